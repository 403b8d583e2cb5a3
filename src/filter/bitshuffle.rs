//! BITSHUFFLE: the lowest bits of all elements, then all second bits, and so on, in blocks.
//!
//! | metadata | type |
//! |---|---|
//! | number of parts, length of each | u32, u32 each |
//!
//! A part whose length is not a multiple of both 8 and the width is stored unchanged; the writer makes such a
//! tail a part of its own. Any other part is a sequence of blocks of 8192 bytes, the last one shorter. The
//! largest multiple of 8 elements of a block is transposed, the rest copied: row 8 j + k has bit k of byte j
//! of each element, one bit per element, starting at the lowest bit of each byte.
//!
//! Example of INT32: in a part of 40 bytes, the values 1 to 8 are stored as `55 66 78 80` and 28 zeros (row 0
//! has their lowest bits, `01010101` from left to right), and the two values after them unchanged.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/bitshuffle_filter.cc>

use super::element::{extend_zeroed, width_error};
use super::framing::split;
use super::transpose::{gather_bits, interleave};
use crate::cursor::Cursor;
use crate::error::Result;

/// Bytes that are transposed together.
const BLOCK: usize = 8192;

/// Undoes the filter on `data`, elements of `width` bytes, into the empty `out`.
pub(super) fn undo(metadata: &mut Cursor<'_>, width: usize, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if !matches!(width, 1 | 2 | 4 | 8) {
        return Err(width_error(width));
    }
    split(metadata, data, |part| {
        if part.len().is_multiple_of(8) && part.len().is_multiple_of(width) {
            let out = extend_zeroed(out, part.len())?;
            for (block, out) in part.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
                undo_block(width, block, out);
            }
        } else {
            out.extend_from_slice(part);
        }
        Ok(())
    })
}

/// Undoes one block of at most [`BLOCK`] bytes; `out` has the same length.
fn undo_block(width: usize, block: &[u8], out: &mut [u8]) {
    let transposed = block.len() / (8 * width) * (8 * width);
    out[transposed..].copy_from_slice(&block[transposed..]);
    let (rows, out) = (&block[..transposed], &mut out[..transposed]);
    if width == 1 {
        gather_bits(rows, out);
    } else if transposed > 0 {
        // Every eight rows are the bits of one byte of the elements.
        let plane = transposed / width;
        let mut planes = [0; BLOCK];
        let planes = &mut planes[..transposed];
        for (rows, bytes) in rows.chunks_exact(plane).zip(planes.chunks_exact_mut(plane)) {
            gather_bits(rows, bytes);
        }
        interleave(width, planes, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::filter::vectors::undo_parts;

    fn run(parts: &[u32], width: usize, data: &[u8]) -> Result<Vec<u8>> {
        undo_parts(undo, parts, width, data)
    }

    /// The module documentation's definition, bit by bit.
    fn shuffle(plain: &[u8], width: usize) -> Vec<u8> {
        let mut out = vec![];
        for block in plain.chunks(BLOCK) {
            let elements = block.len() / width / 8 * 8;
            let mut rows = vec![0; elements * width];
            for i in 0..elements {
                for j in 0..width {
                    for k in 0..8 {
                        let bit = block[i * width + j] >> k & 1;
                        rows[(8 * j + k) * (elements / 8) + i / 8] |= bit << (i % 8);
                    }
                }
            }
            out.extend(rows);
            out.extend(&block[elements * width..]);
        }
        out
    }

    #[test]
    fn the_example() {
        let plain = (1..=10u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        let stored = shuffle(&plain, 4);
        assert_eq!(stored[..4], [0x55, 0x66, 0x78, 0x80]);
        assert_eq!(run(&[1, 40], 4, &stored).unwrap(), plain);
    }

    #[test]
    fn every_width_and_length() {
        for width in [1, 2, 4, 8] {
            for length in [0, 8, 16, 24, 64, 72, 640, 8184, 8192, 8200, 20000] {
                let plain: Vec<u8> = (0..length).map(|i| (i * i / 7 + i) as u8).collect();
                let stored = shuffle(&plain, width);
                assert_eq!(
                    run(&[1, length as u32], width, &stored).unwrap(),
                    plain,
                    "{width} {length}"
                );
            }
        }
    }

    #[test]
    fn parts_of_odd_length_are_copied() {
        assert_eq!(run(&[1, 7], 1, b"abcdefg").unwrap(), *b"abcdefg");
        assert_eq!(run(&[2, 8, 3], 4, b"abcdefghijk").unwrap(), *b"abcdefghijk");
    }

    #[test]
    fn hostile_input_fails() {
        assert_eq!(run(&[1, 8], 4, &[0; 16]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            run(&[1, 24], 4, &[0; 16]).unwrap_err().kind(),
            ErrorKind::Truncated
        );
        assert_eq!(
            run(&[1, 16], 16, &[0; 16]).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(
            run(&[5, 16], 4, &[0; 16]).unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
    }
}
