//! DELTA: the first value, then the difference of each value to the one before it.
//!
//! | part | type |
//! |---|---|
//! | number of values n | u64 |
//! | first value, n - 1 differences | n of the element type |
//!
//! Libraries of format version 19 wrote one more difference at the end, which has no meaning.
//!
//! Sums wrap at the element's width. Elements have the reinterpreting type if the filter has one, else the
//! type that the filter saw; text counts as bytes, whatever the width of its characters. Floats are not
//! allowed.
//!
//! Example: `03 00 00 00 00 00 00 00 | 05 00 00 00 | f8 ff ff ff | 67 00 00 00` is the INT32 values 5, -3,
//! 100.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filters/delta.md>

use super::element::{Element, by_width, extend_zeroed};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::datatype::{Datatype, Kind};

/// Bytes of the elements of `datatype` for delta and double delta; `Corrupt` for floats.
pub(super) fn element_width(datatype: Datatype) -> Result<usize> {
    match datatype.kind() {
        Kind::Float => Err(Error::corrupt(format!(
            "delta encoding is not defined for {}",
            datatype.name()
        ))),
        Kind::Text | Kind::Bytes | Kind::Bool => Ok(1),
        Kind::Signed | Kind::Unsigned | Kind::Datetime | Kind::Time => Ok(datatype.size()),
    }
}

/// Reads the number of values; `Corrupt` unless they make up `length` bytes.
pub(super) fn value_count(c: &mut Cursor<'_>, width: usize, length: usize) -> Result<u64> {
    let count = c.u64("number of values")?;
    if count.checked_mul(width as u64) != Some(length as u64) {
        return Err(c.corrupt(
            "number of values",
            format!("{count} values of {width} bytes do not make the expected {length} bytes"),
        ));
    }
    Ok(count)
}

/// Appends the `length` bytes that the differences `input` of values of `datatype` decode to.
pub(super) fn decompress(input: &[u8], datatype: Datatype, length: usize, out: &mut Vec<u8>) -> Result<()> {
    let width = element_width(datatype)?;
    let mut c = Cursor::new(input);
    value_count(&mut c, width, length)?;
    let differences = c.bytes(length as u64, "differences")?;
    // libtiledb 2.16 wrote one more difference, which has no meaning.
    if c.remaining() == width {
        c.bytes(width as u64, "extra difference")?;
    }
    c.finish()?;
    let out = extend_zeroed(out, length)?;
    by_width!(width, E => accumulate::<E>(E::default(), differences, out));
    Ok(())
}

/// Writes the running sums, from `start` on, of the whole elements of `input` to `out`.
pub(super) fn accumulate<E: Element>(start: E, input: &[u8], out: &mut [u8]) {
    let mut sum = start;
    let (mut input, mut out) = (input, out);
    if E::SIZE == 1 {
        let whole = input.len().min(out.len()) / 8 * 8;
        let ((words, tail), (words_out, tail_out)) = (input.split_at(whole), out.split_at_mut(whole));
        sum = E::truncate(accumulate_bytes(E::widen(start), words, words_out));
        (input, out) = (tail, tail_out);
    }
    for (out, difference) in E::split_mut(out).0.iter_mut().zip(E::split(input).0) {
        sum = sum.plus(E::load(difference));
        *out = sum.store();
    }
}

/// [`accumulate`] for bytes, eight at a time; returns the last sum.
///
/// The sum of each pair of bytes gets a lane of 16 bits, wide enough for all sums of a word. A multiplication
/// adds up the lanes: these are the sums at the odd bytes. Subtracting the odd byte gives the sum at the even
/// one.
fn accumulate_bytes(start: u64, input: &[u8], out: &mut [u8]) -> u64 {
    const LOW: u64 = 0x00FF_00FF_00FF_00FF;
    const EACH: u64 = 0x0001_0001_0001_0001;
    let mut carry = (start & 0xFF) * EACH;
    for (out, word) in u64::split_mut(out).0.iter_mut().zip(u64::split(input).0) {
        let word = u64::from_le_bytes(*word);
        let (even, odd) = (word & LOW, (word >> 8) & LOW);
        let sums = (even + odd).wrapping_mul(EACH);
        let odd_sums = sums + carry;
        *out = (((odd_sums - odd) & LOW) | ((odd_sums & LOW) << 8)).to_le_bytes();
        carry = (carry + (sums >> 48) * EACH) & LOW;
    }
    carry
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

    fn encode(count: u64, body: &[u8]) -> Vec<u8> {
        [&count.to_le_bytes(), body].concat()
    }

    #[test]
    fn the_example() {
        let input = encode(3, [5, -8, 103].map(i32::to_le_bytes).as_flattened());
        assert_eq!(
            run(&input, Datatype::Int32, 12).unwrap(),
            [5, -3, 100].map(i32::to_le_bytes).as_flattened()
        );
    }

    #[test]
    fn one_spare_difference_is_passed_over() {
        let body = [5i16, 6, 7, -11].map(i16::to_le_bytes).concat();
        let decoded = run(&encode(3, &body), Datatype::Int16, 6).unwrap();
        assert_eq!(decoded, [5i16, 11, 18].map(i16::to_le_bytes).concat());
        let more = [&body[..], &[0, 0]].concat();
        assert_eq!(
            run(&encode(3, &more), Datatype::Int16, 6).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }

    #[test]
    fn sums_wrap_at_every_width() {
        assert_eq!(
            run(&encode(2, &[255, 2]), Datatype::StringUtf8, 2).unwrap(),
            [255, 1]
        );
        assert_eq!(
            run(&encode(2, &[255, 255, 2, 0]), Datatype::Uint16, 4).unwrap(),
            [255, 255, 1, 0]
        );
        let input = encode(2, [-1, 2].map(i64::to_le_bytes).as_flattened());
        assert_eq!(
            run(&input, Datatype::DatetimeMs, 16).unwrap(),
            [-1, 1].map(i64::to_le_bytes).as_flattened()
        );
        // Elements are bytes, although characters have two.
        assert_eq!(
            run(&encode(2, &[255, 2]), Datatype::StringUtf16, 2).unwrap(),
            [255, 1]
        );
        assert_eq!(run(&encode(0, &[]), Datatype::Int32, 0).unwrap(), b"");
    }

    #[test]
    fn bytes_in_words_sum_like_bytes() {
        for length in [0, 1, 7, 8, 9, 64, 200] {
            for mask in [0xFF, 3] {
                let input: Vec<u8> = (0..length).map(|i| (i * 151 + 200) as u8 & mask).collect();
                let mut out = vec![0; length];
                accumulate::<u8>(250, &input, &mut out);
                let mut sum = 250u8;
                for (out, delta) in out.iter().zip(&input) {
                    sum = sum.wrapping_add(*delta);
                    assert_eq!(*out, sum);
                }
            }
        }
        let mut out = [0; 24];
        accumulate::<u8>(255, &[255; 24], &mut out);
        assert_eq!(out[..3], [254, 253, 252]);
        assert_eq!(out[23], 231);
    }

    #[test]
    fn hostile_input_fails() {
        let kind = |input: &[u8], length| run(input, Datatype::Int32, length).unwrap_err().kind();
        assert_eq!(kind(&encode(3, &[0; 12]), 16), ErrorKind::Corrupt);
        assert_eq!(kind(&encode(3, &[0; 11]), 12), ErrorKind::Truncated);
        assert_eq!(kind(&encode(3, &[0; 13]), 12), ErrorKind::Corrupt);
        assert_eq!(kind(&encode(u64::MAX / 4 + 4, &[0; 12]), 12), ErrorKind::Corrupt);
        assert_eq!(kind(&[1], 12), ErrorKind::Truncated);
        assert_eq!(
            run(&encode(3, &[0; 12]), Datatype::Float32, 12)
                .unwrap_err()
                .kind(),
            ErrorKind::Corrupt
        );
    }
}
