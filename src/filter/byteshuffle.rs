//! BYTESHUFFLE: the first bytes of all elements, then all second bytes, and so on.
//!
//! | metadata | type |
//! |---|---|
//! | number of parts, length of each | u32, u32 each |
//!
//! A part of n bytes holds m = n / width elements; byte j of element i is stored at j * m + i. The n % width
//! bytes at the end stay where they are.
//!
//! Example: `01 02 03 02 | 00 00 00 01 | 00 00 00 00 | 00 00 00 00` is the INT32 values 1, 2, 3, 258.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/byteshuffle_filter.cc>

use super::element::{extend_zeroed, width_error};
use super::framing::split;
use super::transpose::interleave;
use crate::cursor::Cursor;
use crate::error::Result;

/// Undoes the filter on `data`, elements of `width` bytes, into the empty `out`.
pub(super) fn undo(metadata: &mut Cursor<'_>, width: usize, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if !matches!(width, 1 | 2 | 4 | 8) {
        return Err(width_error(width));
    }
    split(metadata, data, |part| {
        if width == 1 {
            out.extend_from_slice(part);
        } else {
            unshuffle(width, part, extend_zeroed(out, part.len())?);
        }
        Ok(())
    })
}

/// Undoes the filter on one part of elements of `width` bytes; `out` has the length of `part`.
fn unshuffle(width: usize, part: &[u8], out: &mut [u8]) {
    let whole = part.len() / width * width;
    interleave(width, &part[..whole], &mut out[..whole]);
    out[whole..].copy_from_slice(&part[whole..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::filter::vectors::undo_parts;

    fn run(parts: &[u32], width: usize, data: &[u8]) -> Result<Vec<u8>> {
        undo_parts(undo, parts, width, data)
    }

    #[test]
    fn the_example() {
        let stored = [1, 2, 3, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            run(&[1, 16], 4, &stored).unwrap(),
            [1u32, 2, 3, 258].map(u32::to_le_bytes).as_flattened()
        );
    }

    #[test]
    fn every_width_and_tail() {
        for width in [1, 2, 4, 8] {
            for length in (0..40).chain([127, 128, 129, 1000, 1023]) {
                let plain: Vec<u8> = (0..length).map(|i| (i * 7 + i / 256) as u8).collect();
                let m = length / width;
                let mut stored = plain.clone();
                for i in 0..m {
                    for j in 0..width {
                        stored[j * m + i] = plain[i * width + j];
                    }
                }
                assert_eq!(
                    run(&[1, length as u32], width, &stored).unwrap(),
                    plain,
                    "{width} {length}"
                );
            }
        }
        assert_eq!(
            run(&[2, 4, 2], 2, &[1, 2, 3, 4, 5, 6]).unwrap(),
            [1, 3, 2, 4, 5, 6]
        );
    }

    #[test]
    fn hostile_input_fails() {
        assert_eq!(run(&[1, 4], 2, &[0; 6]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(run(&[1, 8], 2, &[0; 6]).unwrap_err().kind(), ErrorKind::Truncated);
        assert_eq!(
            run(&[1, 6], 3, &[0; 6]).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(
            run(&[1, 6], 0, &[0; 6]).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(
            run(&[u32::MAX, 6], 1, &[0; 6]).unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
    }
}
