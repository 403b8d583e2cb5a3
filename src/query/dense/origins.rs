//! Finds the tiles that cells of a dense view are stored in.

use super::Dense;
use super::space::Area;
use super::stack::Slot;
use crate::error::Result;
use crate::format::enums::Layout as Order;
use crate::format::schema::Schema;
use crate::query::{CellOrigin, Tiles};
use std::ops::Range;

/// With more runs of tiles, the origin is unknown.
const MAX_TILE_RUNS: usize = 1 << 20;

impl Dense {
    /// The origin of each of `runs`: see [`View::origins`](crate::query::View::origins).
    pub(in crate::query) fn origins(&self, runs: &[Range<u64>]) -> Result<Vec<Option<CellOrigin>>> {
        let stack = self.stack()?;
        // Whether a fragment has all attributes, and so hides older ones completely.
        let mut hides = vec![true; stack.overlay.layers().len()];
        for attribute in &self.of.schema.attributes {
            for (hides, slot) in hides
                .iter_mut()
                .zip(stack.slots(&attribute.name, attribute.form()))
            {
                *hides &= matches!(slot, Slot::Same(_));
            }
        }
        let mut left = MAX_TILE_RUNS;
        let origins = runs.iter().map(|run| {
            let Some((area, exact)) = self.area(run.clone())? else {
                return Ok(None);
            };
            let mut origin = CellOrigin {
                unwritten: self.unwritten(run.clone())?,
                ..CellOrigin::default()
            };
            for number in stack.overlay.touching(&area) {
                let (layer, (fragment, schema)) = (&stack.overlay.layers()[number], &stack.fragments[number]);
                let Some(common) = layer.area.common(&area).filter(|_| layer.dense) else {
                    return Ok(None);
                };
                let Some(tiles) = self.tiles(&common, &layer.area, schema, left) else {
                    return Ok(None);
                };
                left -= tiles.len();
                let covers = layer.area.contains(&area);
                origin.parts.push(Tiles {
                    fragment: fragment.clone(),
                    tiles,
                    whole: exact && covers && self.is_of_tiles(&area),
                });
                if covers && hides[number] {
                    break;
                }
            }
            if origin.parts.len() > 1 {
                origin.parts.iter_mut().for_each(|part| part.whole = false);
            }
            Ok(Some(origin))
        });
        origins.collect()
    }

    /// The smallest box around the cells of `run`, as the array's indexes, and whether it has no other cells.
    /// None if the region is empty.
    fn area(&self, run: Range<u64>) -> Result<Option<(Area, bool)>> {
        let areas = self.areas(run)?;
        let exact = areas.len() == 1;
        let around = areas.into_iter().reduce(|all, next| all.around(&next));
        Ok(around.map(|area| (area, exact)))
    }

    /// Whether a box consists of whole tiles.
    fn is_of_tiles(&self, area: &Area) -> bool {
        let Ok(stack) = self.stack() else { return false };
        let mut axes = stack.space.axes.iter().zip(&area.0);
        axes.all(|(axis, (first, last))| {
            first % axis.extent == 0 && last.checked_add(1).is_some_and(|end| end % axis.extent == 0)
        })
    }

    /// The numbers of the tiles that `area` touches in a fragment that covers `covered`, as runs; None if
    /// there are more than `most`.
    fn tiles(&self, area: &Area, covered: &Area, schema: &Schema, most: usize) -> Option<Vec<Range<u64>>> {
        let stack = self.stack().ok()?;
        // For each dimension, the slowest-varying first: the first and the last tile, and the fragment's
        // number of tiles.
        let axes = stack.space.axes.iter().zip(area.0.iter().zip(&covered.0));
        let mut axes: Vec<(u64, u64, u64)> = axes
            .map(|(axis, (area, covered))| {
                let tile = |index: u64| index / axis.extent - covered.0 / axis.extent;
                (tile(area.0), tile(area.1), tile(covered.1) + 1)
            })
            .collect();
        if schema.tile_order == Order::ColMajor {
            axes.reverse();
        }
        let mut runs: Vec<Range<u64>> = Vec::from([Range { start: 0, end: 1 }]);
        for (first, last, count) in axes {
            if first == 0 && last + 1 == count {
                let whole =
                    |run: Range<u64>| Some(run.start.checked_mul(count)?..run.end.checked_mul(count)?);
                runs = runs.into_iter().map(whole).collect::<Option<_>>()?;
                continue;
            }
            let mut inner: Vec<Range<u64>> = Vec::new();
            for number in runs.into_iter().flatten() {
                let base = number.checked_mul(count)?;
                let run = base.checked_add(first)?..base.checked_add(last)?.checked_add(1)?;
                match inner.last_mut() {
                    Some(before) if before.end == run.start => before.end = run.end,
                    _ => inner.push(run),
                }
                if inner.len() > most {
                    return None;
                }
            }
            runs = inner;
        }
        Some(runs)
    }
}
