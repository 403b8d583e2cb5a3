//! XOR: each value exclusive-or the value before it.
//!
//! | metadata | type |
//! |---|---|
//! | number of parts, length of each | u32, u32 each |
//!
//! Values are integers of their datatype's width. The first value of each part is stored unchanged.
//!
//! Example: parts `01 00 00 00 | 0c 00 00 00` and the INT32 1, 2, 4 decode to 1, 3, 7.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filters/xor.md>

use super::element::{Element, by_width, extend_zeroed};
use super::framing::split;
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// Undoes the filter on `data`, values of `width` bytes, into the empty `out`.
pub(super) fn undo(metadata: &mut Cursor<'_>, width: usize, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
    split(metadata, data, |part| {
        if width == 0 || !part.len().is_multiple_of(width) {
            return Err(Error::corrupt(format!(
                "{} bytes are not a multiple of {width}, the bytes of a value",
                part.len()
            )));
        }
        let out = extend_zeroed(out, part.len())?;
        match width {
            1 => accumulate_narrow::<u8>(part, out),
            2 => accumulate_narrow::<u16>(part, out),
            _ => by_width!(width, E => accumulate::<E>(E::default(), part, out)),
        }
        Ok(())
    })
}

fn accumulate<E: Element>(start: E, input: &[u8], out: &mut [u8]) {
    let mut last = start;
    for (out, value) in E::split_mut(out).0.iter_mut().zip(E::split(input).0) {
        last = last.xor(E::load(value));
        *out = last.store();
    }
}

/// [`accumulate`] for narrow elements, a word at a time: shifts by one, two and four elements make each
/// element the exclusive-or of itself and all lower ones.
fn accumulate_narrow<E: Element>(input: &[u8], out: &mut [u8]) {
    let bits = 8 * E::SIZE as u32;
    // An element times this is a word with the element in each position.
    let spread = u64::MAX / (u64::MAX >> (64 - bits));
    let (words, tail) = u64::split(input);
    let (words_out, tail_out) = u64::split_mut(out);
    let mut carry = 0;
    for (out, word) in words_out.iter_mut().zip(words) {
        let mut word = u64::from_le_bytes(*word);
        let mut shift = bits;
        while shift < 64 {
            word ^= word << shift;
            shift *= 2;
        }
        *out = (word ^ carry).to_le_bytes();
        carry ^= (word >> (64 - bits)).wrapping_mul(spread);
    }
    accumulate(E::truncate(carry), tail, tail_out);
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
        assert_eq!(
            run(&[1, 12], 4, [1u32, 2, 4].map(u32::to_le_bytes).as_flattened()).unwrap(),
            [1u32, 3, 7].map(u32::to_le_bytes).as_flattened()
        );
        assert_eq!(run(&[2, 2, 2], 1, &[1, 2, 4, 8]).unwrap(), [1, 3, 4, 12]);
        assert_eq!(run(&[0], 8, &[]).unwrap(), b"");
    }

    #[test]
    fn every_width() {
        let plain: Vec<u8> = (0..200u32).map(|i| ((i * i * 37) >> 3) as u8).collect();
        for width in [1, 2, 4, 8] {
            for length in [0, width, 3 * width, 8, 24, 200] {
                let length = length / width * width;
                let plain = &plain[..length];
                let mut stored = plain.to_vec();
                for i in (width..length).rev() {
                    stored[i] ^= plain[i - width];
                }
                assert_eq!(run(&[1, length as u32], width, &stored).unwrap(), plain);
            }
        }
    }

    #[test]
    fn hostile_input_fails() {
        assert_eq!(run(&[1, 3], 2, &[0; 3]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(run(&[1, 4], 2, &[0; 6]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(run(&[1, 8], 2, &[0; 6]).unwrap_err().kind(), ErrorKind::Truncated);
        assert_eq!(
            run(&[1, 3], 3, &[0; 3]).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(
            run(&[9, 3], 1, &[0; 3]).unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
        assert_eq!(run(&[], 1, &[0; 3]).unwrap_err().kind(), ErrorKind::Truncated);
    }
}
