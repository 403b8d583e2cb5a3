//! Finds out which cells of a fragment are deleted.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/query/readers/reader_base.cc>

use crate::catalog::time::TimeRange;
use crate::error::Result;
use crate::fragment::cell_slice::{CellSlice, Values, numbers};
use crate::fragment::cells::FragmentCells;
use crate::fragment::field::Role;
use crate::fragment::info::FragmentInfo;
use crate::query::condition::BoundCondition;
use crate::query::deletes::{Delete, bind};
use std::ops::Range;
use std::sync::Arc;

/// The delete timestamps and delete conditions of one fragment.
pub(super) struct Deletes {
    /// The timestamp at which each cell was deleted, if a consolidation stored these.
    timestamps: Option<FragmentCells>,
    conditions: Vec<Arc<BoundCondition>>,
    /// The fields that conditions refer to, with their index in the fragment.
    fields: Vec<(usize, FragmentCells)>,
}

impl Deletes {
    /// Binds those of `deletes` that apply to the fragment `info`. With `hold`, files are held open.
    pub(super) fn new(info: &Arc<FragmentInfo>, deletes: &[Delete], hold: bool) -> Result<Deletes> {
        let conditions = bind(deletes, info)?;
        let mut indices: Vec<usize> = conditions.iter().flat_map(|c| c.fields()).copied().collect();
        indices.sort_unstable();
        indices.dedup();
        let cells = |i: usize| FragmentCells::new(info.clone(), info.fields[i].clone()).holding(hold);
        let timestamps = info
            .fields
            .iter()
            .position(|field| field.role == Role::DeleteTimestamps);
        Ok(Deletes {
            timestamps: timestamps.map(cells),
            fields: indices.into_iter().map(|i| (i, cells(i))).collect(),
            conditions,
        })
    }

    /// Whether no cell can be deleted.
    pub(super) fn is_empty(&self) -> bool {
        self.timestamps.is_none() && self.conditions.is_empty()
    }

    /// The fields that conditions refer to.
    pub(super) fn fields(&self) -> impl Iterator<Item = &FragmentCells> {
        self.fields.iter().map(|(_, field)| field)
    }

    /// For each of `cells`, whether a reader of `times` sees it.
    pub(super) fn kept(&self, times: TimeRange, cells: Range<u64>) -> Result<Vec<bool>> {
        let mut kept = vec![true; (cells.end - cells.start) as usize];
        if let Some(timestamps) = &self.timestamps {
            for (kept, deleted) in kept.iter_mut().zip(numbers(timestamps, cells.clone())?) {
                *kept = deleted > times.end;
            }
        }
        let mut values = Vec::with_capacity(self.fields.len());
        for (_, field) in &self.fields {
            values.push(Values::read(field, cells.clone())?);
        }
        for condition in &self.conditions {
            let slices = condition.fields().iter().map(|i| {
                let at = self.fields.iter().position(|(field, _)| field == i);
                values[at.expect("the fields are those of all conditions")].slice()
            });
            let slices: Vec<CellSlice> = slices.collect();
            condition.evaluate(&slices, &mut kept);
        }
        Ok(kept)
    }
}
