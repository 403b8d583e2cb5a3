//! Boxes of cells in a domain of integers, and the tiles that they touch. Cells are numbered along each
//! dimension: see [`Axis`].

use crate::error::{Error, Result};
use crate::format::range;
use crate::format::schema::Schema;
use crate::fragment::geometry::Axis;
use std::ops::Range;

/// The dimensions of a dense array.
#[derive(Debug, Clone)]
pub(super) struct Space {
    pub(super) axes: Vec<Axis>,
}

impl Space {
    /// The space of a dense array with this schema. `Corrupt` if a dimension has no domain or tile extent.
    pub(super) fn new(schema: &Schema) -> Result<Space> {
        let axes = schema.dimensions.iter().map(Axis::new);
        Ok(Space {
            axes: axes.collect::<Result<_>>()?,
        })
    }

    /// Whether `other` numbers cells and divides them into tiles in the same way.
    pub(super) fn agrees_with(&self, other: &Space) -> bool {
        let grid = |axis: &Axis| (axis.datatype, axis.origin, axis.extent);
        self.axes.iter().map(grid).eq(other.axes.iter().map(grid))
    }

    pub(super) fn domain(&self) -> Area {
        Area(self.axes.iter().map(|axis| (0, axis.last)).collect())
    }

    /// A stored box as indexes, which may exceed the domain. `Corrupt` if it has another number of
    /// dimensions, or the index of a lower end is above that of the upper one.
    pub(super) fn area(&self, rect: &[range::Range]) -> Result<Area> {
        let wrong = || Error::corrupt("the box is not within the array's domain");
        if rect.len() != self.axes.len() {
            return Err(wrong());
        }
        let ends = self.axes.iter().zip(rect).map(|(axis, range)| {
            let (first, last) = (axis.index(&range.lo)?, axis.index(&range.hi)?);
            match first <= last {
                true => Ok((first, last)),
                false => Err(wrong()),
            }
        });
        ends.collect::<Result<_>>().map(Area)
    }

    /// The number of tiles that `area` touches; the most if it is larger.
    pub(super) fn tile_count(&self, area: &Area) -> u64 {
        let axes = self.axes.iter().zip(&area.0);
        let counts = axes.map(|(axis, (first, last))| last / axis.extent - first / axis.extent);
        counts.fold(1, |all, last| all.saturating_mul(last.saturating_add(1)))
    }

    /// Calls `each` with the box of each tile that `area` touches, in row-major order. The order along the
    /// last dimension is rotated by `turn` / 2^32 of its length, so that threads that read neighbouring rows
    /// begin at different tiles and do not wait for each other.
    pub(super) fn tiles(
        &self,
        area: &Area,
        turn: u32,
        mut each: impl FnMut(&Area) -> Result<()>,
    ) -> Result<()> {
        let tiles = self.axes.iter().zip(&area.0);
        let tiles: Vec<(u64, u64)> = tiles
            .map(|(axis, &(first, last))| (first / axis.extent, last / axis.extent))
            .collect();
        let inner = tiles.len() - 1;
        let mut current: Vec<u64> = tiles.iter().map(|(first, _)| *first).collect();
        let mut tile = Area(vec![(0, 0); tiles.len()]);
        loop {
            for ((ends, axis), number) in tile.0.iter_mut().zip(&self.axes).zip(&current) {
                *ends = axis.tile(*number);
            }
            let (number, (first, last)) = (current[inner], tiles[inner]);
            let count = u128::from(last - first) + 1;
            let begin = (count * u128::from(turn)) >> 32;
            let place = (u128::from(number - first) + begin) % count;
            tile.0[inner] = self.axes[inner].tile(first + place as u64);
            each(&tile)?;
            let mut places = current.iter_mut().zip(&tiles).rev();
            let advanced = places.any(|(place, (first, last))| {
                let more = *place < *last;
                *place = if more { *place + 1 } else { *first };
                more
            });
            if !advanced {
                return Ok(());
            }
        }
    }
}

/// A box of cells: first and last index along each dimension, both inclusive. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Area(pub(super) Vec<(u64, u64)>);

impl Area {
    /// The number of its cells, which must be below 2^64.
    pub(super) fn cells(&self) -> u64 {
        let lengths = self.0.iter().map(|(first, last)| last - first + 1);
        lengths.product()
    }

    /// The intersection of two boxes; None if it is empty.
    pub(super) fn common(&self, other: &Area) -> Option<Area> {
        let ends = self.0.iter().zip(&other.0);
        let ends = ends.map(|(a, b)| {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            (first <= last).then_some((first, last))
        });
        ends.collect::<Option<_>>().map(Area)
    }

    /// Whether two boxes intersect.
    pub(super) fn touches(&self, other: &Area) -> bool {
        let mut ends = self.0.iter().zip(&other.0);
        ends.all(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
    }

    /// Whether it contains all cells of `other`.
    pub(super) fn contains(&self, other: &Area) -> bool {
        let mut ends = self.0.iter().zip(&other.0);
        ends.all(|(a, b)| a.0 <= b.0 && b.1 <= a.1)
    }

    /// Whether it contains the cell with the indexes `place`.
    pub(super) fn has(&self, place: &[u64]) -> bool {
        let mut ends = self.0.iter().zip(place);
        ends.all(|(ends, index)| ends.0 <= *index && *index <= ends.1)
    }

    /// The same box, farther from the lower end of each dimension by so many cells.
    pub(super) fn moved(&self, by: impl Iterator<Item = u64>) -> Area {
        let ends = self.0.iter().zip(by);
        Area(ends.map(|((first, last), by)| (first + by, last + by)).collect())
    }

    /// The smallest box that contains both.
    pub(super) fn around(&self, other: &Area) -> Area {
        let ends = self.0.iter().zip(&other.0);
        Area(ends.map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect())
    }

    /// Appends its cells without those of `inner`, a box inside it, as boxes: at most two per dimension.
    pub(super) fn without(mut self, inner: &Area, out: &mut Vec<Area>) {
        for (i, &(first, last)) in inner.0.iter().enumerate() {
            let own = self.0[i];
            let mut part = |ends| {
                let mut part = self.clone();
                part.0[i] = ends;
                out.push(part);
            };
            if own.0 < first {
                part((own.0, first - 1));
            }
            if last < own.1 {
                part((last + 1, own.1));
            }
            self.0[i] = (first, last);
        }
    }
}

/// Splits a run of cells, in row-major order, of an array of this shape into boxes of indexes: at most 2n - 1
/// for n dimensions. The product of the shape must fit into 64 bits.
pub(super) fn boxes(shape: &[u64], run: Range<u64>) -> Vec<Area> {
    let mut out = Vec::new();
    cut(shape, run, &mut Vec::with_capacity(shape.len()), &mut out);
    out
}

/// For each dimension of a box of `shape` cells, the distance in cells between neighbours in row-major order.
pub(super) fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1u64; shape.len()];
    for i in (1..shape.len()).rev() {
        // The product may be beyond 2^64 if another axis has no cells.
        strides[i - 1] = strides[i].saturating_mul(shape[i]);
    }
    strides
}

/// Appends the boxes of a run of cells of a part of an array: `above` are the ranges of indexes along the
/// first dimensions, `shape` the lengths of the others, and `run` counts cells along these.
fn cut(shape: &[u64], run: Range<u64>, above: &mut Vec<(u64, u64)>, out: &mut Vec<Area>) {
    let Some((_, inner)) = shape.split_first().filter(|_| !run.is_empty()) else {
        return;
    };
    let row = inner.iter().product::<u64>();
    let (first, last) = (run.start / row, run.end / row);
    let (head, tail) = (run.start % row, run.end % row);
    let mut nested = |index: u64, run: Range<u64>, out: &mut Vec<Area>| {
        above.push((index, index));
        cut(inner, run, above, out);
        above.pop();
    };
    if first == last {
        return nested(first, head..tail, out);
    }
    if head > 0 {
        nested(first, head..row, out);
    }
    let full = first + u64::from(head > 0)..last;
    if tail > 0 {
        nested(last, 0..tail, out);
    }
    if !full.is_empty() {
        let mut ends = above.clone();
        ends.push((full.start, full.end - 1));
        ends.extend(inner.iter().map(|length| (0, length - 1)));
        out.push(Area(ends));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::Datatype;

    #[test]
    fn runs_of_cells_become_few_boxes() {
        let shapes: [&[u64]; 5] = [&[17], &[3, 5], &[2, 3, 4], &[1, 4, 1, 3], &[2, 2, 2, 2]];
        for shape in shapes {
            let count: u64 = shape.iter().product();
            for (start, end) in (0..count).flat_map(|a| (a..=count).map(move |b| (a, b))) {
                let boxes = boxes(shape, start..end);
                assert!(boxes.len() < 2 * shape.len());
                let mut seen = vec![false; count as usize];
                for area in &boxes {
                    for cell in 0..count {
                        let mut rest = cell;
                        let mut place = vec![0; shape.len()];
                        for (index, length) in place.iter_mut().zip(shape).rev() {
                            *index = rest % length;
                            rest /= length;
                        }
                        if area.has(&place) {
                            assert!(!std::mem::replace(&mut seen[cell as usize], true), "twice");
                        }
                    }
                }
                let run = (start as usize)..(end as usize);
                assert!(seen.iter().enumerate().all(|(i, &seen)| seen == run.contains(&i)));
            }
        }
    }

    #[test]
    fn all_tiles_are_visited_once_wherever_it_begins() {
        let axis = Axis {
            datatype: Datatype::Int32,
            origin: 0,
            last: 99,
            extent: 10,
        };
        let space = Space { axes: vec![axis; 2] };
        let area = Area(vec![(15, 20), (5, 42)]);
        let visit = |turn| {
            let mut seen = Vec::new();
            let note = |tile: &Area| {
                seen.push((tile.0[0].0, tile.0[1].0));
                Ok(())
            };
            space.tiles(&area, turn, note).unwrap();
            seen
        };
        let rows = |columns: [u64; 5]| -> Vec<_> {
            let places = [10, 20]
                .into_iter()
                .flat_map(|row| columns.map(|column| (row, column)));
            places.collect()
        };
        assert_eq!(visit(0), rows([0, 10, 20, 30, 40]));
        assert_eq!(visit(1 << 31), rows([20, 30, 40, 0, 10]));
        assert_eq!(visit(u32::MAX), rows([40, 0, 10, 20, 30]));
    }

    #[test]
    fn what_is_left_of_a_box_are_boxes() {
        let outer = Area(vec![(0, 9), (5, u64::MAX), (3, 3)]);
        let inner = Area(vec![(2, 9), (6, 7), (3, 3)]);
        let mut left = Vec::new();
        outer.clone().without(&inner, &mut left);
        assert_eq!(left.len(), 3);
        left.push(inner);
        for (i, area) in left.iter().enumerate() {
            assert!(outer.contains(area));
            assert!(left.iter().skip(i + 1).all(|other| !other.touches(area)));
        }
        let cells = |area: &Area| {
            area.0
                .iter()
                .map(|(a, b)| u128::from(b - a) + 1)
                .product::<u128>()
        };
        assert_eq!(left.iter().map(cells).sum::<u128>(), cells(&outer));
    }
}
