//! Cells of one field, in memory.

use super::cells::{Cells, FragmentCells};
use crate::bytes::{self, Output};
use crate::error::Result;
use std::ops::Range;

/// Consecutive cells of one field.
#[derive(Debug, Clone, Copy)]
pub struct CellSlice<'a> {
    /// Number of cells.
    pub count: usize,
    /// Their values as stored (little-endian), concatenated.
    pub values: &'a [u8],
    /// Var-sized cells: the start of each, and the end of the last. Only differences count: the first cell is
    /// at the start of `values`. None for fixed-size cells.
    pub starts: Option<&'a [u64]>,
    /// Nullable fields: one byte per cell, 0 for null. None if no cell can be null.
    pub validity: Option<&'a [u8]>,
}

impl<'a> CellSlice<'a> {
    /// Cells of `size` bytes each that cannot be null. Ignores an incomplete cell at the end.
    pub fn fixed(values: &'a [u8], size: usize) -> Self {
        CellSlice {
            count: values.len() / size,
            values,
            starts: None,
            validity: None,
        }
    }

    /// Var-sized cells that cannot be null, one fewer than `starts`, of which there is one at least.
    pub fn var(values: &'a [u8], starts: &'a [u64]) -> Self {
        CellSlice {
            count: starts.len() - 1,
            values,
            starts: Some(starts),
            validity: None,
        }
    }

    /// The value of cell `i` of a var-sized field. Panics if there is no such cell.
    pub fn text(&self, i: usize) -> &'a [u8] {
        let starts = self.starts.expect("cells of a var-sized field have starts");
        let place = |i: usize| (starts[i] - starts[0]) as usize;
        &self.values[place(i)..place(i + 1)]
    }
}

/// Consecutive cells of one field: values, and starts and validity if the field has them.
pub(crate) struct Values {
    values: Output,
    starts: Option<Vec<u64>>,
    validity: Option<Output>,
    count: usize,
}

/// The first cells of `range`, which is not empty, whose values take at most `bytes` bytes together in each
/// of `fields`, but at least one. `LimitExceeded` if that one takes much more memory than the cache has.
pub(crate) fn fitting<'f>(
    fields: impl Iterator<Item = &'f FragmentCells>,
    range: Range<u64>,
    bytes: u64,
) -> Result<Range<u64>> {
    let mut end = range.end;
    for cells in fields {
        // The size of the first cell, and how many fit.
        let (size, fit) = match cells.cell_size() {
            Some(size) => (size, bytes / size),
            None => {
                let starts = (cells as &dyn Cells).starts(range.start..end)?;
                let fit = starts.partition_point(|start| start - starts[0] <= bytes) as u64;
                (starts[1] - starts[0], fit - 1)
            }
        };
        if fit == 0 {
            cells.check_memory(size)?;
        }
        end = end.min(range.start.saturating_add(fit.max(1)));
    }
    Ok(range.start..end)
}

impl Values {
    pub(crate) fn read(cells: &FragmentCells, range: Range<u64>) -> Result<Values> {
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

    pub(crate) fn slice(&self) -> CellSlice<'_> {
        CellSlice {
            count: self.count,
            values: &self.values,
            starts: self.starts.as_deref(),
            validity: self.validity.as_deref(),
        }
    }
}

/// Reads cells that are one u64 each.
pub(crate) fn numbers(cells: &FragmentCells, range: Range<u64>) -> Result<Vec<u64>> {
    let read: &dyn Cells = cells;
    Ok(bytes::numbers(&read.values(range)?).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_from_the_first_start_on() {
        let slice = CellSlice::var(b"abbc", &[10, 11, 11, 13, 14]);
        let texts: Vec<&[u8]> = (0..slice.count).map(|i| slice.text(i)).collect();
        assert_eq!(texts, [&b"a"[..], b"", b"bb", b"c"]);
        let text = |starts: &[u64], i| {
            let slice = CellSlice::var(b"abbc", starts);
            std::panic::catch_unwind(|| slice.text(i).to_vec()).ok()
        };
        assert_eq!(text(&[0, 4], 0), Some(b"abbc".to_vec()));
        for (starts, i) in [
            (&[0, 4][..], 1),
            (&[0, 5], 0),
            (&[4, 3], 0),
            (&[0, 1, 0], 1),
            (&[1, 0, 3], 0),
        ] {
            assert_eq!(text(starts, i), None, "{starts:?}");
        }
    }
}
