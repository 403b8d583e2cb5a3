//! RLE of fixed-size cells: runs of equal cells.
//!
//! | part | type |
//! |---|---|
//! | repeated: cell, run length | cell size bytes, u16 big-endian |
//!
//! The cell size is that of the tile, even for metadata parts and after filters that changed the width of
//! elements. A run of 0 decodes to nothing.
//!
//! Example: `05 00 00 00 | 00 03 | 06 00 00 00 | 00 01` is the INT32 cells 5, 5, 5, 6.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/compressors/rle_compressor.cc>

use super::element::{Element, extend_zeroed};
use super::framing::{Limits, TABLE_BOUND};
use crate::error::{Error, Result};

/// Bytes of a run length.
const RUN_LENGTH_SIZE: usize = 2;

/// Appends the `length` bytes that the runs `input` of cells of `cell_size` bytes decode to.
pub(super) fn decompress(input: &[u8], cell_size: usize, length: usize, out: &mut Vec<u8>) -> Result<()> {
    if cell_size == 0 {
        return Err(Error::corrupt("the cell size is 0"));
    }
    let pair = cell_size.saturating_add(RUN_LENGTH_SIZE);
    if !input.len().is_multiple_of(pair) {
        return Err(Error::corrupt(format!(
            "{} bytes are not a multiple of {pair}, the bytes of a run",
            input.len()
        )));
    }
    let cells: u64 = input.chunks_exact(pair).map(|run| u64::from(split(run).1)).sum();
    if cells.checked_mul(cell_size as u64) != Some(length as u64) {
        return Err(Error::corrupt(format!(
            "the runs hold {cells} cells of {cell_size} bytes, expected {length} bytes"
        )));
    }
    let out = extend_zeroed(out, length)?;
    match cell_size {
        1 => expand::<u8>(input, out),
        2 => expand::<u16>(input, out),
        4 => expand::<u32>(input, out),
        8 => expand::<u64>(input, out),
        _ => expand_any(input, pair, out),
    }
    Ok(())
}

/// The cell and the length of a run.
#[inline(always)]
fn split(run: &[u8]) -> (&[u8], u16) {
    let (cell, count) = run.split_last_chunk().expect("a run has a length");
    (cell, u16::from_be_bytes(*count))
}

/// Cells written at once for a short run.
const MAX_SHORT_RUN: usize = 8;

/// Fills `out`, which has the length of all runs together.
fn expand<E: Element>(input: &[u8], out: &mut [u8]) {
    let mut rest = E::split_mut(out).0;
    for run in input.chunks_exact(E::SIZE + RUN_LENGTH_SIZE) {
        let (cell, count) = split(run);
        let cell = &E::split(cell).0[0];
        let count = usize::from(count);
        // Writing MAX_SHORT_RUN cells for a shorter run costs less than a loop. The next run overwrites the
        // rest.
        let short = match rest.first_chunk_mut::<MAX_SHORT_RUN>() {
            Some(cells) if count <= MAX_SHORT_RUN => {
                *cells = [*cell; MAX_SHORT_RUN];
                true
            }
            _ => false,
        };
        let (cells, after) = std::mem::take(&mut rest).split_at_mut(count);
        if !short {
            cells.fill(*cell);
        }
        rest = after;
    }
}

/// [`expand`] for cells of any size.
fn expand_any(input: &[u8], pair: usize, out: &mut [u8]) {
    let mut rest = out;
    for run in input.chunks_exact(pair) {
        let (cell, count) = split(run);
        let length = cell.len() * usize::from(count);
        let (cells, after) = std::mem::take(&mut rest).split_at_mut(length);
        for out in cells.chunks_exact_mut(cell.len()) {
            out.copy_from_slice(cell);
        }
        rest = after;
    }
}

/// The most bytes that streams of these sizes can be encoded to: one run for each cell.
pub(super) fn bound(before: Limits, cell_size: u64) -> Limits {
    let all = before.data.saturating_add(before.metadata);
    let runs = all / cell_size.max(1);
    Limits {
        data: all
            .saturating_add(runs.saturating_mul(RUN_LENGTH_SIZE as u64))
            .saturating_add(TABLE_BOUND),
        metadata: TABLE_BOUND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(input: &[u8], cell_size: usize, length: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        decompress(input, cell_size, length, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_example() {
        let runs = [5, 0, 0, 0, 0, 3, 6, 0, 0, 0, 0, 1];
        assert_eq!(
            run(&runs, 4, 16).unwrap(),
            [5u32, 5, 5, 6].map(u32::to_le_bytes).as_flattened()
        );
    }

    #[test]
    fn every_cell_size() {
        for size in [1, 2, 3, 4, 5, 8, 12, 16, 100] {
            let (a, b) = (vec![7; size], (0..size as u8).collect::<Vec<_>>());
            let input = [&a[..], &[1, 2], &b, &[0, 0], &b, &[0, 1]].concat();
            let mut expected = vec![7; size * 258];
            expected.extend(&b);
            assert_eq!(run(&input, size, size * 259).unwrap(), expected);
            assert!(run(&input, size, size * 259 + 1).is_err());
            assert!(run(&input, size, size * 258).is_err());
            assert!(run(&input[1..], size, size * 259).is_err());
        }
        assert_eq!(run(b"", 4, 0).unwrap(), b"");
    }

    #[test]
    fn runs_around_the_short_length() {
        let (mut input, mut expected) = (vec![], vec![]);
        for run in (0..20u16).rev() {
            input.extend([run as u8, 9]);
            input.extend(run.to_be_bytes());
            expected.extend([run as u8, 9].repeat(run.into()));
        }
        assert_eq!(run(&input, 2, expected.len()).unwrap(), expected);
    }

    #[test]
    fn hostile_runs_fail() {
        assert!(run(&[1, 0xFF, 0xFF], 1, 3).is_err(), "more than is declared");
        assert!(run(&[1, 0, 0], 1, 1).is_err(), "a run of 0");
        assert!(run(&[1, 0, 1], 0, 1).is_err());
        assert!(run(&[1, 0, 1], usize::MAX, 1).is_err());
        assert!(run(b"", 1, 1).is_err());
    }
}
