//! RLE of strings: runs of equal strings, with embedded offsets (see [`embedded`](super::embedded) for the
//! metadata).
//!
//! | data | type |
//! |---|---|
//! | repeated: run length, string length, string | big-endian of the stored widths, bytes |
//!
//! Writers choose the width of a string length without regard to the last run. If its string is longer, its
//! length is stored modulo 2^(8 * width), and its bytes in full. Only such a run can end at the end of the
//! data with the numbers of strings and bytes in the header, so it is recognised by that.
//!
//! Example: `02 02 61 61 | 01 01 62 | 01 00` with widths of 1 is `aa`, `aa`, `b` and an empty string.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/compressors/rle_compressor.cc>

use super::embedded::{Header, number, reserve};
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// Undoes the filter on `input` into the empty `out` and `offsets`.
pub(super) fn undo(header: &Header, input: &[u8], out: &mut Vec<u8>, offsets: &mut Vec<u64>) -> Result<()> {
    let long_run = check(header, input)?;
    reserve(header, out, offsets)?;
    let mut c = Cursor::new(input);
    while !c.is_empty() {
        let is_long = long_run == Some(c.remaining());
        let (run, length) = run_header(header, &mut c)?;
        let length = if is_long { c.remaining() as u64 } else { length };
        let string = c.bytes(length, "string")?;
        append(string, run, out, offsets);
    }
    Ok(())
}

/// Appends a string `run` times. [`check`] has bounded the result.
fn append(string: &[u8], run: u64, out: &mut Vec<u8>, offsets: &mut Vec<u64>) {
    let start = out.len() as u64;
    offsets.extend((0..run).map(|i| start + i * string.len() as u64));
    let mut left = run as usize * string.len();
    if left == 0 {
        return;
    }
    // Copies what has been written, doubling each time.
    let start = out.len();
    out.extend_from_slice(string);
    left -= string.len();
    while left > 0 {
        let more = left.min(out.len() - start);
        out.extend_from_within(start..start + more);
        left -= more;
    }
}

fn run_header(header: &Header, c: &mut Cursor<'_>) -> Result<(u64, u64)> {
    Ok((
        number(c, header.number_width, "run length")?,
        number(c, header.length_width, "string length")?,
    ))
}

/// Checks that the runs have the strings and bytes that the header declares. If they do only with a last
/// string longer than its stored length, returns the number of bytes of the last run.
fn check(header: &Header, input: &[u8]) -> Result<Option<usize>> {
    let (all_strings, all_bytes) = (header.strings as u64, header.bytes as u64);
    let (mut strings, mut bytes) = (0u64, 0u64);
    let mut long_run = None;
    let mut c = Cursor::new(input);
    let mut read_runs = || -> Result<()> {
        while !c.is_empty() {
            let at = c.remaining();
            let (run, length) = run_header(header, &mut c)?;
            let total = |length: u64| {
                let strings = strings.checked_add(run)?;
                let bytes = bytes.checked_add(run.checked_mul(length)?)?;
                (strings <= all_strings && bytes <= all_bytes).then_some((strings, bytes))
            };
            let rest = c.remaining() as u64;
            if header.length_width < 8
                && rest > length
                && (rest - length).trailing_zeros() as usize >= 8 * header.length_width
                && total(rest) == Some((all_strings, all_bytes))
            {
                long_run = Some(at);
            }
            let Some(sums) = total(length) else {
                return Err(Error::limit(format!(
                    "a run of {run} strings of {length} bytes, after {strings} strings with {bytes} bytes, \
                     exceeds the {all_strings} strings with {all_bytes} bytes that are declared"
                ))
                .at(c.offset()));
            };
            c.bytes(length, "string")?;
            (strings, bytes) = sums;
        }
        Ok(())
    };
    match (read_runs(), long_run) {
        (Ok(()), _) if (strings, bytes) == (all_strings, all_bytes) => Ok(None),
        (_, Some(at)) => Ok(Some(at)),
        (Err(error), None) => Err(error),
        (Ok(()), None) => Err(Error::corrupt(format!(
            "found {strings} strings with {bytes} bytes; declared are {all_strings} with {all_bytes}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        strings: usize,
        bytes: usize,
        widths: (usize, usize),
        input: &[u8],
    ) -> Result<(Vec<u8>, Vec<u64>)> {
        let header = Header {
            bytes,
            strings,
            number_width: widths.0,
            length_width: widths.1,
        };
        let (mut out, mut offsets) = (vec![], vec![]);
        undo(&header, input, &mut out, &mut offsets)?;
        Ok((out, offsets))
    }

    #[test]
    fn the_example() {
        assert_eq!(
            run(4, 5, (1, 1), b"\x02\x02aa\x01\x01b\x01\x00").unwrap(),
            (b"aaaab".to_vec(), vec![0, 2, 4, 5])
        );
        assert_eq!(run(0, 0, (1, 1), b"").unwrap(), (vec![], vec![]));
    }

    #[test]
    fn wide_numbers_are_big_endian() {
        let (out, offsets) = run(258, 258, (2, 4), b"\x01\x02\0\0\0\x01x").unwrap();
        assert_eq!(out, vec![b'x'; 258]);
        assert_eq!(offsets, (0..258).collect::<Vec<_>>());
        let input = b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02ab";
        assert_eq!(
            run(3, 6, (8, 8), input).unwrap(),
            (b"ababab".to_vec(), vec![0, 2, 4])
        );
    }

    #[test]
    fn a_last_string_longer_than_its_stored_length_is_recovered() {
        let long = vec![b'c'; 300];
        let input = [b"\x01\x01a\x01\x2c", &long[..]].concat();
        let (out, offsets) = run(2, 301, (1, 1), &input).unwrap();
        assert_eq!(out, [b"a", &long[..]].concat());
        assert_eq!(offsets, [0, 1]);
        // Two of them, after a run that could be mistaken for the start of the last.
        let input = [b"\x02\x01a\x02\x2c", &long[..]].concat();
        assert_eq!(run(4, 602, (1, 1), &input).unwrap().1, [0, 1, 2, 302]);
        // Stored length 0: 256 bytes.
        let input = [b"\x01\x00", &long[..256]].concat();
        assert_eq!(run(1, 256, (1, 1), &input).unwrap().0, &long[..256]);
        // The lengths do not differ by a multiple of 256.
        let input = [b"\x01\x2b", &long[..]].concat();
        assert!(run(1, 300, (1, 1), &input).is_err());
    }

    #[test]
    fn hostile_runs_fail() {
        let input = b"\x02\x02aa\x01\x01b\x01\x00";
        assert!(run(3, 5, (1, 1), input).is_err());
        assert!(run(5, 5, (1, 1), input).is_err());
        assert!(run(4, 4, (1, 1), input).is_err());
        assert!(run(4, 6, (1, 1), input).is_err());
        assert!(run(4, 5, (1, 1), &input[..8]).is_err());
        assert!(run(4, 5, (1, 1), &input[..6]).is_err());
        // Runs of 0 decode to nothing, but end.
        assert_eq!(run(0, 0, (1, 1), &[0; 1000]).unwrap().0, b"");
        // Products and sums that overflow.
        let run8 = [[0xFF; 8], 2u64.to_be_bytes()].concat();
        assert!(run(4, 5, (8, 8), &[&run8[..], b"ab"].concat()).is_err());
        assert!(run(4, 5, (8, 8), &[0xFF; 16]).is_err());
        assert!(run(4, 0, (8, 8), &[[0xFF; 8], [0; 8]].concat()).is_err());
    }
}
