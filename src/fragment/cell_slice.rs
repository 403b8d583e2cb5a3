//! Cells of one field, in memory.

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
        let starts = self.starts.unwrap_or(&[]);
        let place = |i: usize| (starts[i] - starts[0]) as usize;
        &self.values[place(i)..place(i + 1)]
    }
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
