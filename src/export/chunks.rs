//! The chunks in which `array.zarr/` and `array.nc` store an array.
//!
//! A chunk is a box of the view, counted from the region's lower corner: whole tile extents, joined while it
//! has few cells and halved while it is large, and then cut to the region. It need not agree with tiles.
//! Chunks at the upper ends have the full size as well, padded with the fill value.
//!
//! Only the cut depends on what is written. So the chunks of an array that has grown are those of before, or
//! take more bytes: readers who know the old ones get the same cells, or see that a chunk is not what they
//! know.

use super::grid::{Variable, VariableKind};
use crate::bytes::{Bytes, Output};
use crate::error::{Error, Result};
use crate::format::schema::Schema;
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::fragment::geometry::Axis;
use crate::query::View;
use crate::runtime::ahead;
use std::ops::Range;
use std::sync::Arc;

/// Whole extents are joined while a chunk has fewer cells.
const MIN_CHUNK_CELLS: u64 = 1 << 16;

/// A chunk of more bytes is halved.
const MAX_CHUNK_SIZE: u64 = 64 << 20;

/// An export with more chunks is left out of listings.
pub(super) const MAX_LISTED_CHUNKS: u64 = 1 << 12;

/// How an array is divided.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chunks {
    /// The length of each axis.
    pub(super) shape: Vec<u64>,
    /// The length of each side of a chunk, at least 1.
    pub(super) sides: Vec<u64>,
}

impl Chunks {
    /// The chunks of a variable in a grid of this shape over tiles of these extents: of the coordinates of an
    /// axis, or of cells with values of `size` bytes. `inner` is the length of the axis within cells, which
    /// is never cut, as coordinates are not.
    pub(super) fn of(
        axis: Option<usize>,
        size: u64,
        inner: Option<u64>,
        shape: &[u64],
        extents: &[Extent],
    ) -> Chunks {
        let mut chunks = match axis {
            None => Chunks::new(shape, extents, size * inner.unwrap_or(1)),
            Some(axis) => Chunks {
                shape: vec![shape[axis]],
                sides: vec![shape[axis].max(1)],
            },
        };
        chunks.shape.extend(inner);
        chunks.sides.extend(inner);
        chunks
    }

    /// The chunks of an array of cells of `size` bytes; a scalar has no shape and takes none of the
    /// `extents`. While chunks are too small, the shortest side that can grow within the domain is doubled.
    pub(super) fn new(shape: &[u64], extents: &[Extent], size: u64) -> Chunks {
        let extents = &extents[..shape.len()];
        let mut sides: Vec<u64> = extents
            .iter()
            .map(|extent| extent.tile.min(extent.domain))
            .collect();
        let cells = |sides: &[u64]| sides.iter().copied().fold(1, u64::saturating_mul);
        while cells(&sides) < MIN_CHUNK_CELLS {
            let growing = sides
                .iter_mut()
                .zip(extents)
                .filter(|(side, extent)| **side < extent.domain);
            let Some((side, extent)) = growing.min_by_key(|(side, _)| **side) else {
                break;
            };
            // A side is below MIN_CHUNK_CELLS here.
            *side = (*side * 2).min(extent.domain);
        }
        while cells(&sides).saturating_mul(size) > MAX_CHUNK_SIZE {
            let Some(side) = sides.iter_mut().max().filter(|side| **side > 1) else {
                break;
            };
            *side = side.div_ceil(2);
        }
        for (side, length) in sides.iter_mut().zip(shape) {
            *side = (*side).min(*length).max(1);
        }
        Chunks {
            shape: shape.to_vec(),
            sides,
        }
    }

    /// The number of chunks along each axis.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> {
        counts(&self.shape, &self.sides)
    }

    /// The number of all chunks.
    pub(super) fn count(&self) -> u64 {
        self.counts().fold(1, u64::saturating_mul)
    }

    /// The numbers along the axes of chunk `index`, counted in row-major order. For the number of all chunks
    /// the numbers of the chunk that would come next, beyond the first axis.
    pub(super) fn numbers(&self, index: u64) -> Vec<u64> {
        let counts: Vec<u64> = self.counts().collect();
        let mut rest = index;
        let mut numbers = vec![0; counts.len()];
        for (axis, (number, count)) in numbers.iter_mut().zip(&counts).enumerate().rev() {
            *number = if axis == 0 { rest } else { rest % count };
            rest /= count;
        }
        numbers
    }

    /// The first cell of a chunk, and the lengths of its part inside the array.
    fn part(&self, numbers: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let axes = numbers.iter().zip(&self.shape).zip(&self.sides);
        axes.map(|((number, length), side)| {
            let first = number * side;
            (first, (length - first).min(*side))
        })
        .unzip()
    }
}

/// The number of chunks with these sides along each axis of an array of this shape.
pub(super) fn counts(shape: &[u64], sides: &[u64]) -> impl Iterator<Item = u64> {
    let axes = shape.iter().zip(sides);
    axes.map(|(length, side)| length.div_ceil(*side))
}

/// `NotFound` if an array of this shape has no chunk with these sides and these numbers along the axes.
pub(super) fn check_numbers(numbers: &[u64], shape: &[u64], sides: &[u64]) -> Result<()> {
    let mut within = numbers.iter().zip(counts(shape, sides));
    match numbers.len() == shape.len() && within.all(|(number, count)| *number < count) {
        true => Ok(()),
        false => Err(Error::not_found(format!("there is no chunk {numbers:?}"))),
    }
}

/// A box of a view as a chunk of full size.
pub(super) struct GridChunk {
    /// The cells inside the array.
    cells: Arc<dyn Cells>,
    /// Bytes of a cell.
    cell: u64,
    /// The cell that fills the padding. Empty for coordinates and labels, whose one chunk has no padding.
    fill: Vec<u8>,
    /// The length of each side.
    sides: Vec<u64>,
    /// The length of each side inside the array.
    part: Vec<u64>,
    /// Bytes of the chunk.
    len: u64,
}

impl GridChunk {
    /// The chunk with these numbers along the axes. `NotFound` if there is none. Reads decode the data.
    pub(super) fn open(view: &View, variable: &Variable, numbers: &[u64]) -> Result<GridChunk> {
        let chunks = &variable.chunks;
        check_numbers(numbers, &chunks.shape, &chunks.sides)?;
        let (mut first, mut part) = chunks.part(numbers);
        let mut sides = chunks.sides.clone();
        if variable.inner.is_some() {
            for axes in [&mut first, &mut part, &mut sides] {
                axes.pop();
            }
        }
        let (mut own, mut shape) = (first, part.clone());
        if part.is_empty() {
            // A scalar is the only cell of its array.
            (own, shape) = (vec![0], vec![1]);
        }
        let cells = match variable.kind {
            VariableKind::Axis(_) | VariableKind::Label(_) | VariableKind::Reference => {
                variable.open(view)?
            }
            VariableKind::Values | VariableKind::Validity => variable.open_box(view, &own, &shape)?,
        };
        let fill = match variable.axis() {
            Some(_) => Vec::new(),
            None => variable.fill.clone(),
        };
        let cell = variable.cell_size();
        if sides != part && fill.len() as u64 != cell {
            let message = format!("{} bytes pad a chunk of cells of {cell} bytes", fill.len());
            return Err(Error::internal(message));
        }
        // Only an axis, which is never cut, can be so long.
        let len = sides.iter().try_fold(cell, |len, side| len.checked_mul(*side));
        let len = len.ok_or_else(|| Error::limit("a chunk would have 2^64 bytes or more"))?;
        Ok(GridChunk {
            cells,
            cell,
            fill,
            sides,
            part,
            len,
        })
    }

    /// The row of `cells` at row `row` of the chunk; None if that is padding.
    fn row(&self, row: u64) -> Option<u64> {
        let leading = self.sides.len() - 1;
        let (mut rest, mut own, mut stride) = (row, 0u64, 1u64);
        for (side, part) in self.sides.iter().zip(&self.part).take(leading).rev() {
            let place = rest % side;
            rest /= side;
            if place >= *part {
                return None;
            }
            own += place * stride;
            stride *= part;
        }
        Some(own)
    }
}

impl Bytes for GridChunk {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let (cells, end) = (self.cells.count(), range.end);
        let read = || self.read_padded(range, out);
        match ahead::is_through() {
            true => read(),
            false => ahead::reading(cells, self.len, end, read),
        }
    }
}

impl GridChunk {
    /// Appends the bytes in `range`, padding included.
    fn read_padded(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if self.sides == self.part {
            return self.cells.read(Content::Data, range, out);
        }
        // The sides differ from the part, so there is one.
        let last = self.sides.len() - 1;
        let (long, short) = (self.sides[last] * self.cell, self.part[last] * self.cell);
        // For each row of the chunk: its bytes in the range, and the cells that they belong to.
        let rows = range.start / long..range.end.div_ceil(long);
        let rows = rows.map(|row| {
            let start = row * long;
            let within = range.start.max(start) - start..range.end.min(start + long) - start;
            let own = self.row(row).map(|own| own * short);
            let own = own.map(|own| own + within.start.min(short)..own + within.end.min(short));
            (within, own.filter(|own| !own.is_empty()))
        });
        let mut all: Option<Range<u64>> = None;
        for own in rows.clone().filter_map(|(_, own)| own) {
            all = Some(all.map_or(own.start, |all| all.start)..own.end);
        }
        // Nothing is read where all is padding.
        let first = all.as_ref().map_or(0, |all| all.start);
        let mut found = Output::keeping(out.keep);
        if let Some(all) = &all {
            self.cells.read(Content::Data, all.clone(), &mut found)?;
        }
        let padding = |place: u64| self.fill[(place % self.cell) as usize];
        out.write(|out| {
            for (within, own) in rows {
                let mut padded = within;
                if let Some(own) = own {
                    out.extend_from_slice(&found[(own.start - first) as usize..(own.end - first) as usize]);
                    padded.start += own.end - own.start;
                }
                out.extend(padded.map(padding));
            }
        });
        Ok(())
    }
}

/// Lengths along a dimension of a dense array, in cells, at least 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Of a tile.
    pub(super) tile: u64,
    /// Of the domain; `u64::MAX` for 2^64.
    pub(super) domain: u64,
}

/// The lengths along each dimension of a dense array.
pub(super) fn extents(schema: &Schema) -> Result<Vec<Extent>> {
    let extents = schema.dimensions.iter().map(|dimension| {
        let axis = Axis::new(dimension)?;
        Ok(Extent {
            tile: axis.extent,
            domain: axis.last.saturating_add(1),
        })
    });
    extents.collect()
}

#[cfg(test)]
mod tests;
