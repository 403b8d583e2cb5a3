//! Cells of one field of a fragment, read into memory.

use crate::bytes::Output;
use crate::error::{Error, Result};
use crate::fragment::cell_slice::CellSlice;
use crate::fragment::cells::{Cells, FragmentCells};
use std::ops::Range;

/// Consecutive cells of one field: values, and starts and validity if the field has them.
pub(super) struct Values {
    values: Output,
    starts: Option<Vec<u64>>,
    validity: Option<Output>,
    count: usize,
}

/// The first of `range` whose values take at most `bytes` bytes together in each of `fields`, but at least one.
/// Only var-sized cells are measured.
pub(super) fn fitting<'f>(
    fields: impl Iterator<Item = &'f FragmentCells>,
    range: Range<u64>,
    bytes: u64,
) -> Result<Range<u64>> {
    let mut end = range.end;
    for cells in fields.filter(|cells| cells.cell_size().is_none()) {
        let starts = (cells as &dyn Cells).starts(range.start..end)?;
        let first = starts
            .first()
            .ok_or_else(|| Error::internal("cells without a start"))?;
        let fit = starts.partition_point(|start| start - first <= bytes) as u64;
        end = end.min(range.start + (fit - 1).max(1));
    }
    Ok(range.start..end)
}

impl Values {
    pub(super) fn read(cells: &FragmentCells, range: Range<u64>) -> Result<Values> {
        let read: &dyn Cells = cells;
        let (starts, values) = match cells.cell_size() {
            Some(_) => (None, read.values(range.clone())?),
            None => {
                let starts = read.starts(range.clone())?;
                let values = Output::of(|out| read.between(&starts, out))?;
                (Some(starts), values)
            }
        };
        let validity = match cells.field().nullable {
            true => Some(read.validity(range.clone())?),
            false => None,
        };
        Ok(Values {
            values,
            starts,
            validity,
            count: (range.end - range.start) as usize,
        })
    }

    pub(super) fn slice(&self) -> CellSlice<'_> {
        CellSlice {
            count: self.count,
            values: &self.values,
            starts: self.starts.as_deref(),
            validity: self.validity.as_deref(),
        }
    }
}

/// Reads cells that are one u64 each.
pub(super) fn numbers(cells: &FragmentCells, range: Range<u64>) -> Result<Vec<u64>> {
    let read: &dyn Cells = cells;
    let bytes = read.values(range)?;
    let numbers = bytes.as_chunks::<8>().0.iter();
    Ok(numbers.map(|bytes| u64::from_le_bytes(*bytes)).collect())
}
