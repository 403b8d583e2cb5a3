//! DOUBLE_DELTA: the differences between neighbouring differences of values, each in the fewest bits that
//! suffice for all.
//!
//! | part | type |
//! |---|---|
//! | bits of a magnitude b | u8 |
//! | number of values n | u64 |
//! | b at least 8 * width - 1: the values themselves | n of the element type |
//! | otherwise: the first two values (one if n is 1, none if 0) | of the element type |
//! | then for each other value: sign (1 is negative), magnitude | 1 and b bits, in u64 words |
//!
//! The words are little-endian. Their bits are used from the most significant down; values may straddle
//! words, and the last word is padded with zeros. Modulo 2^(8 * width), each number d gives `d + 2 * v[i-1] -
//! v[i-2]`. Elements are those of [`delta`](super::delta).
//!
//! Example: `08 | 06 00 00 00 00 00 00 00 | 0a 00 00 00 | 0c 00 00 00 | 00 c0 7a c9 c0 00 ..` is the INT32
//! values 10, 12, 15, 15, 90, -7: 1, -3, 75 and -172 in 9 bits each.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filters/double_delta.md>

use super::delta::{element_width, value_count};
use super::element::{Element, by_width, extend_zeroed};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::datatype::Datatype;

/// Appends the `length` bytes that `input`, encoded from values of `datatype`, decodes to.
pub(super) fn decompress(input: &[u8], datatype: Datatype, length: usize, out: &mut Vec<u8>) -> Result<()> {
    let width = element_width(datatype)?;
    let mut c = Cursor::new(input);
    let magnitude = u32::from(c.u8("bits of a magnitude")?);
    let count = value_count(&mut c, width, length)?;
    if magnitude as usize >= 8 * width - 1 {
        out.extend_from_slice(c.bytes(length as u64, "values")?);
        return c.finish();
    }
    let first = c.bytes(count.min(2) * width as u64, "first values")?;
    let bits = u128::from(count.saturating_sub(2)) * u128::from(magnitude + 1);
    let words = c.rest().as_chunks::<8>().0;
    if bits.div_ceil(64) * 8 != c.remaining() as u128 {
        return Err(Error::corrupt(format!(
            "{} bytes of differences do not match the {bits} bits declared",
            c.remaining()
        ))
        .at(c.offset()));
    }
    let out = extend_zeroed(out, length)?;
    by_width!(width, E => integrate::<E>(first, words, magnitude, out));
    Ok(())
}

/// Writes the values to `out`, which has room for exactly the values of `first` and `words`.
fn integrate<E: Element>(first: &[u8], words: &[[u8; 8]], magnitude: u32, out: &mut [u8]) {
    let (head, rest) = out.split_at_mut(first.len());
    head.copy_from_slice(first);
    let [v0, v1] = E::split(first).0 else { return };
    let mut value = E::load(v1);
    let mut slope = value.minus(E::load(v0));

    // Below 8 * width - 1, so at most 62: all shifts below are in range.
    let magnitude = magnitude & 63;
    let unused = 63 - magnitude;
    let mask = (1u64 << magnitude) - 1;
    // The last bits may end with the last word.
    let next = |index: usize| words.get(index + 1).map_or(0, |word| u64::from_le_bytes(*word));
    let mut bit = 0usize;
    for out in E::split_mut(rest).0 {
        let (index, shift) = (bit / 64, bit % 64);
        let word = u64::from_le_bytes(words[index]);
        let bits = (word << shift) | (next(index) >> 1 >> (63 - shift));
        let bits = bits >> unused;
        let sign = 0u64.wrapping_sub(bits >> magnitude);
        let difference = ((bits & mask) ^ sign).wrapping_sub(sign);
        slope = slope.plus(E::truncate(difference));
        value = value.plus(slope);
        *out = value.store();
        bit += magnitude as usize + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn run(input: &[u8], datatype: Datatype, length: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        decompress(input, datatype, length, &mut out)?;
        Ok(out)
    }

    fn encode(magnitude: u8, count: u64, body: &[u8]) -> Vec<u8> {
        [&[magnitude], &count.to_le_bytes()[..], body].concat()
    }

    /// Encodes like the writers, but with any magnitude.
    fn encode_values(values: &[i64], width: usize, magnitude: u32) -> Vec<u8> {
        let mut body = vec![];
        for v in values.iter().take(2) {
            body.extend(&v.to_le_bytes()[..width]);
        }
        let mut bits = vec![];
        for w in values.windows(3) {
            let d = (w[2] - w[1]) - (w[1] - w[0]);
            bits.push(d < 0);
            bits.extend((0..magnitude).rev().map(|k| d.unsigned_abs() >> k & 1 == 1));
        }
        for word in bits.chunks(64) {
            let word = word
                .iter()
                .enumerate()
                .fold(0u64, |w, (k, bit)| w | u64::from(*bit) << (63 - k));
            body.extend(word.to_le_bytes());
        }
        encode(magnitude as u8, values.len() as u64, &body)
    }

    #[test]
    fn the_example() {
        let values = [10, 12, 15, 15, 90, -7];
        let input = encode_values(&values, 4, 8);
        assert_eq!(
            input[..25][17..],
            [0x00, 0x00, 0x00, 0xc0, 0x7a, 0xc9, 0xc0, 0x00]
        );
        let out = run(&input, Datatype::Int32, 24).unwrap();
        assert_eq!(out, values.map(|v| (v as i32).to_le_bytes()).as_flattened());
    }

    #[test]
    fn every_width_and_magnitude() {
        for (datatype, width) in [
            (Datatype::Uint8, 1),
            (Datatype::Int16, 2),
            (Datatype::Uint32, 4),
            (Datatype::DatetimeNs, 8),
        ] {
            for magnitude in 1..8 * width as u32 - 1 {
                let largest = (1i64 << magnitude.min(60)) - 1;
                let (mut v, mut slope) = (3i64, 0i64);
                let values: Vec<i64> = (0..200i64)
                    .map(|i| {
                        let d = if i % 5 == 0 {
                            -(slope.clamp(-largest, largest))
                        } else {
                            (i * 7919) % largest.max(1)
                        };
                        slope += d;
                        v = v.wrapping_add(slope);
                        v
                    })
                    .collect();
                // The values may wrap at the width; only their second differences must fit.
                let input = encode_values(&values, width, magnitude);
                let expected: Vec<u8> = values
                    .iter()
                    .flat_map(|v| v.to_le_bytes()[..width].to_vec())
                    .collect();
                assert_eq!(
                    run(&input, datatype, expected.len()).unwrap(),
                    expected,
                    "{width} {magnitude}"
                );
            }
        }
    }

    #[test]
    fn few_values_and_raw_values() {
        assert_eq!(run(&encode(0, 0, &[]), Datatype::Int16, 0).unwrap(), b"");
        assert_eq!(run(&encode(0, 1, &[5, 1]), Datatype::Int16, 2).unwrap(), [5, 1]);
        assert_eq!(
            run(&encode(0, 2, &[5, 1, 9, 2]), Datatype::Int16, 4).unwrap(),
            [5, 1, 9, 2]
        );
        assert_eq!(run(&encode(7, 3, b"abc"), Datatype::Char, 3).unwrap(), *b"abc");
        assert_eq!(run(&encode(255, 3, b"abc"), Datatype::Char, 3).unwrap(), *b"abc");
    }

    #[test]
    fn hostile_input_fails() {
        let kind = |input: &[u8], length| run(input, Datatype::Int16, length).unwrap_err().kind();
        assert_eq!(kind(&encode(3, 3, &[0; 4]), 6), ErrorKind::Corrupt, "no words");
        assert_eq!(kind(&encode(3, 3, &[0; 11]), 6), ErrorKind::Corrupt);
        assert_eq!(
            kind(&encode(3, 3, &[0; 20]), 6),
            ErrorKind::Corrupt,
            "too many words"
        );
        assert_eq!(kind(&encode(3, 2, &[0; 3]), 4), ErrorKind::Truncated);
        assert_eq!(kind(&encode(15, 3, &[0; 5]), 6), ErrorKind::Truncated);
        assert_eq!(kind(&encode(15, 3, &[0; 7]), 6), ErrorKind::Corrupt);
        assert_eq!(kind(&encode(3, u64::MAX, &[0; 12]), 6), ErrorKind::Corrupt);
        assert_eq!(kind(&[3], 6), ErrorKind::Truncated);
        assert!(run(&encode(3, 3, &[0; 12]), Datatype::Float64, 24).is_err());
    }
}
