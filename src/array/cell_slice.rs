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
            count: values.len().checked_div(size).unwrap_or(0),
            values,
            starts: None,
            validity: None,
        }
    }

    /// Var-sized cells that cannot be null, one fewer than `starts`.
    pub fn var(values: &'a [u8], starts: &'a [u64]) -> Self {
        CellSlice {
            count: starts.len().saturating_sub(1),
            values,
            starts: Some(starts),
            validity: None,
        }
    }

    /// The value of cell `i` of a var-sized field; empty if there is no such cell.
    pub fn text(&self, i: usize) -> &'a [u8] {
        let starts = self.starts.unwrap_or(&[]);
        let Some(&[start, end]) = starts.get(i..i.saturating_add(2)) else {
            return &[];
        };
        let base = starts.first().copied().unwrap_or(0);
        let place = |at: u64| usize::try_from(at.wrapping_sub(base)).unwrap_or(usize::MAX);
        self.values.get(place(start)..place(end)).unwrap_or(&[])
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
        assert_eq!(slice.text(4), b"");
        for starts in [&[0, 5][..], &[4, 3], &[0, 1, 0], &[1, 0, 3]] {
            let slice = CellSlice::var(b"abbc", starts);
            assert_eq!(slice.text(slice.count - 1), b"");
        }
    }
}
