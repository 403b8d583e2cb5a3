//! Which cells of a dense view the visible fragments cover together.
//!
//! A cell is written if the non-empty domain of a dense fragment contains it, or if a sparse fragment (old
//! versions wrote them into dense arrays) has its coordinates. Which attributes the fragments have does not
//! matter: a cell that is written only in other attributes reads as the fill value and is not unwritten.

use super::Dense;
use super::copy::Target;
use super::overlay::Overlay;
use super::points::Points;
use super::space::{Area, boxes, strides};
use crate::bytes::Keep;
use crate::error::{Error, Result};
use crate::runtime::{get_or_make, lock};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How many layers boxes have been compared with.
    static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Overlay {
    /// Calls `each` with boxes that together are the cells of `area` that none of the layers covers for which
    /// `counts` is true. The boxes do not overlap. Ends early when `each` breaks.
    pub(super) fn holes(
        &self,
        area: Area,
        counts: impl Fn(usize) -> bool,
        each: &mut impl FnMut(Area) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut covering = self.touching(&area);
        covering.retain(|&layer| counts(layer));
        self.holes_among(area, &covering, each)
    }

    /// The boxes of [`Overlay::holes`].
    pub(super) fn all_holes(&self, area: Area, counts: impl Fn(usize) -> bool) -> Vec<Area> {
        let mut found = Vec::new();
        let _ = self.holes(area, counts, &mut |hole| {
            found.push(hole);
            ControlFlow::Continue(())
        });
        found
    }

    /// [`Overlay::holes`] for `layers`, all of which touch `area`. Halves the box at the median of the ends
    /// of layers in it, so that each half has fewer, until a layer covers all of a box or none touches it.
    fn holes_among(
        &self,
        area: Area,
        layers: &[usize],
        each: &mut impl FnMut(Area) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + layers.len());
        let boxes = || layers.iter().map(|&layer| &self.layers()[layer]);
        if boxes().any(|layer| layer.area.contains(&area)) {
            return ControlFlow::Continue(());
        }
        let ends = area.0.iter().enumerate().map(|(axis, &(first, last))| {
            let mut ends: Vec<u64> = Vec::new();
            for (low, high) in boxes().map(|layer| layer.area.0[axis]) {
                ends.extend((low > first).then_some(low));
                ends.extend((high < last).then(|| high + 1));
            }
            (axis, ends)
        });
        let most = ends.max_by_key(|(_, ends)| ends.len());
        let Some((axis, mut ends)) = most.filter(|(_, ends)| !ends.is_empty()) else {
            return each(area);
        };
        let middle = ends.len() / 2;
        let (_, &mut at, _) = ends.select_nth_unstable(middle);
        let (mut low, mut high) = (area.clone(), area);
        (low.0[axis].1, high.0[axis].0) = (at - 1, at);
        for half in [low, high] {
            let touching = layers.iter().copied();
            let touching = touching.filter(|&layer| self.layers()[layer].area.touches(&half));
            let touching: Vec<usize> = touching.collect();
            self.holes_among(half, &touching, each)?;
        }
        ControlFlow::Continue(())
    }

    pub(super) fn is_dense(&self, layer: usize) -> bool {
        self.layers()[layer].dense
    }

    /// The sparse layers that touch `area`, oldest first.
    fn sparse(&self, area: &Area) -> Vec<usize> {
        let mut found = self.touching(area);
        found.retain(|&layer| !self.is_dense(layer));
        found.reverse();
        found
    }
}

impl Dense {
    /// Whether the footers of dense fragments prove that every cell is written.
    pub(in crate::query) fn is_covered(&self) -> Result<bool> {
        get_or_make(&self.covered, || {
            let count = self.count()?;
            let overlay = &self.stack()?.overlay;
            Ok(self.areas(0..count)?.into_iter().all(|area| {
                let mut stop = |_| ControlFlow::Break(());
                let found = overlay.holes(area, |layer| overlay.is_dense(layer), &mut stop);
                found.is_continue()
            }))
        })
        .copied()
    }

    /// The number of unwritten cells in `run`. None if it depends on the coordinates of sparse fragments.
    /// Reads only metadata.
    pub(in crate::query) fn unwritten(&self, run: Range<u64>) -> Result<Option<u64>> {
        if self.is_covered()? {
            return Ok(Some(0));
        }
        let overlay = &self.stack()?.overlay;
        let mut cells = 0u64;
        for area in self.areas(run)? {
            let found = overlay.holes(area, |layer| overlay.is_dense(layer), &mut |hole| {
                if !overlay.sparse(&hole).is_empty() {
                    return ControlFlow::Break(());
                }
                cells += hole.cells();
                ControlFlow::Continue(())
            });
            if found.is_break() {
                return Ok(None);
            }
        }
        Ok(Some(cells))
    }

    /// For each cell of `run`, 1 if it is written and 0 if not; None if all are. Decodes the coordinates of
    /// sparse fragments.
    pub(in crate::query) fn written(&self, run: Range<u64>) -> Result<Option<Vec<u8>>> {
        if self.is_covered()? {
            return Ok(None);
        }
        let (stack, region) = (self.stack()?, self.cells()?);
        let count = run.end - run.start;
        let count = usize::try_from(count).map_err(|_| Error::limit("too many cells to address"))?;
        // A view without a region has no cells.
        let origin: Option<Vec<u64>> = region.ends.iter().map(|ends| Some((*ends)?.0)).collect();
        let Some(origin) = origin else { return Ok(None) };
        let target = Target {
            origin: &origin,
            strides: &strides(&region.shape),
            start: run.start,
        };
        let mut written = vec![1u8; count];
        for area in self.areas(run)? {
            let overlay = &stack.overlay;
            let holes = overlay.all_holes(area.clone(), |layer| overlay.is_dense(layer));
            for hole in &holes {
                target.plan(hole).runs(|run| {
                    for i in 0..run.count {
                        written[(run.dest + i * run.step) as usize] = 0;
                    }
                    Ok(())
                })?;
            }
            if holes.is_empty() {
                continue;
            }
            for layer in overlay.sparse(&area) {
                let points = self.points(layer)?;
                let keep = Some(Keep::Staying);
                points.within(&stack.space, &area, &[], &target, keep, &mut |found| {
                    for (_, place) in found {
                        written[place as usize] = 1;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(written.contains(&0).then_some(written))
    }

    /// The cells of `run` as boxes of the array's indexes. None of them overlap.
    pub(super) fn areas(&self, run: Range<u64>) -> Result<Vec<Area>> {
        let region = self.cells()?;
        let origin = region.ends.iter();
        let origin = origin.map(|ends| ends.expect("a view without a region has no cells").0);
        let boxes = boxes(&region.shape, run).into_iter();
        Ok(boxes.map(|area| area.moved(origin.clone())).collect())
    }

    /// The coordinates of a sparse layer.
    fn points(&self, layer: usize) -> Result<Arc<Points>> {
        if let Some(points) = lock(&self.points).get(&layer) {
            return Ok(points.clone());
        }
        let stack = self.stack()?;
        let points = Arc::new(Points::open(stack, &stack.open(layer)?)?);
        lock(&self.points).put(layer, points.clone());
        Ok(points)
    }
}

#[cfg(test)]
mod tests {
    use super::super::overlay::Layer;
    use super::*;
    use crate::format::testing::Random;

    fn random_area(random: &mut Random, sides: &[u64]) -> Area {
        let ends = sides.iter().map(|&side| {
            let (a, b) = (random.below(side), random.below(side));
            (a.min(b), a.max(b))
        });
        Area(ends.collect())
    }

    /// All cells of a box.
    fn places(area: &Area) -> Vec<Vec<u64>> {
        area.0.iter().fold(vec![Vec::new()], |places, &(first, last)| {
            let longer = |place: Vec<u64>| (first..=last).map(move |i| [&*place, &[i]].concat());
            places.into_iter().flat_map(longer).collect()
        })
    }

    #[test]
    fn holes_are_the_cells_that_no_box_has() {
        let mut random = Random(11);
        for round in 0..500 {
            let sides = &[7, 5, 4][..1 + random.below(3) as usize];
            let count = random.below(if round % 9 == 0 { 60 } else { 8 });
            let layers = (0..count).map(|_| Layer {
                area: random_area(&mut random, sides),
                dense: random.below(5) > 0,
            });
            let layers: Vec<Layer> = layers.collect();
            let overlay = Overlay::new(layers.clone());
            let area = random_area(&mut random, sides);
            let found = overlay.all_holes(area.clone(), |layer| layers[layer].dense);
            let mut found: Vec<_> = found.iter().flat_map(places).collect();
            found.sort_unstable();
            let covers = |layer: &Layer, place: &[u64]| layer.dense && layer.area.has(place);
            let mut expected = places(&area);
            expected.retain(|place| !layers.iter().any(|layer| covers(layer, place)));
            assert_eq!(found, expected);
        }
    }

    /// Ten thousand fragments, as rows, as tiles, and nested: the work grows little more than their number.
    #[test]
    fn very_many_boxes_are_compared_with_their_neighbours_alone() {
        let rows = |n: u64| vec![(n, n), (0, u64::MAX - 1)];
        let tiles = |n: u64| {
            let (row, column) = (n / 100 * 10, n % 100 * 10);
            vec![(row, row + 9), (column, column + 9)]
        };
        let nested = |n: u64| vec![(n / 2, 9999 - n / 2), (n / 3, 9999 - n / 4)];
        let makes: [&dyn Fn(u64) -> Vec<(u64, u64)>; 3] = [&rows, &tiles, &nested];
        for (make, holes_without_one) in makes.into_iter().zip([1, 1, 0]) {
            let layers = (0..10_000).map(|n| Layer {
                area: Area(make(n)),
                dense: true,
            });
            let layers: Vec<Layer> = layers.collect();
            let all = layers.iter().map(|layer| layer.area.clone());
            let all = all.reduce(|all, next| all.around(&next)).unwrap();
            let overlay = Overlay::new(layers.clone());
            let before = LOOKS.get();
            assert!(overlay.all_holes(all.clone(), |_| true).is_empty());
            let found = overlay.all_holes(all, |layer| layer != 4321);
            // All pairs would be 10^8.
            assert!(LOOKS.get() - before < 2_000_000, "{}", LOOKS.get() - before);
            let cells: u64 = found.iter().map(Area::cells).sum();
            let expected = layers[4321].area.cells() * holes_without_one;
            assert_eq!(cells, expected);
            assert!(found.len() < 10);
        }
    }
}
