//! The part common to string RLE and dictionary encoding: strings whose offsets are embedded in the data.
//!
//! Both are the first filter of a pipeline, have one data part and leave no metadata to other filters. Their
//! metadata is
//!
//! | metadata | type |
//! |---|---|
//! | metadata parts (0), data parts (1) | u32, u32 |
//! | bytes of all strings | u32 |
//! | bytes of the encoded data | u32 |
//! | bytes of the offsets, 8 a string | u32 |
//! | width of a run length (RLE) or an id (dictionary) | u8 |
//! | width of a string length | u8 |
//! | dictionary only: bytes of the dictionary, the dictionary | u32, bytes |
//!
//! Widths are 1, 2, 4 or 8 bytes; lengths, run lengths and ids are big-endian.
//!
//! Example: `00 00 00 00 | 01 00 00 00 | 05 00 00 00 | 09 00 00 00 | 20 00 00 00 | 01 | 01` is the metadata
//! of string RLE for 5 bytes of text in 4 strings, encoded in 9 bytes of runs.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filters/dictionary_encoding.md>

use super::framing::{Limits, TABLE_BOUND};
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// The fields above, checked.
pub(super) struct Header {
    /// Bytes of all strings: the original length of the chunk.
    pub bytes: usize,
    /// Number of strings.
    pub strings: usize,
    /// Bytes of a run length or an id.
    pub number_width: usize,
    /// Bytes of a string length.
    pub length_width: usize,
}

/// The most strings, besides one per byte, if the number of cells is unknown: empty strings take no bytes, so
/// a chunk's length does not bound their number.
const MAX_EMPTY_STRINGS: u64 = 1 << 24;

/// The most strings of a chunk; `cells` is the number of cells of the tile, if known.
pub(super) fn string_bound(original_length: u64, cells: Option<u64>) -> u64 {
    cells.unwrap_or_else(|| original_length.saturating_add(MAX_EMPTY_STRINGS))
}

/// Reads the fields of the header for `encoded` bytes of data that decode to `original_length` bytes in
/// `cells` strings.
pub(super) fn header(
    c: &mut Cursor<'_>,
    encoded: usize,
    original_length: u64,
    cells: Option<u64>,
) -> Result<Header> {
    let parts = (c.u32("number of metadata parts")?, c.u32("data parts")?);
    if parts != (0, 1) {
        return Err(c.corrupt(
            "data parts",
            format!(
                "found {} metadata parts and {} data parts; strings have 0 and 1",
                parts.0, parts.1
            ),
        ));
    }
    let bytes = c.u32("bytes of strings")?;
    let stored = c.u32("encoded bytes")?;
    let offsets = c.u32("bytes of offsets")?;
    if u64::from(bytes) != original_length || stored as usize != encoded {
        return Err(c.corrupt(
            "bytes of strings",
            format!(
                "{stored} bytes that decode to {bytes}; expected {encoded} that decode to {original_length}"
            ),
        ));
    }
    let strings = u64::from(offsets / 8);
    let most = string_bound(original_length, cells);
    if offsets % 8 != 0 || strings > most || cells.is_some_and(|cells| cells != strings) {
        return Err(Error::limit(format!(
            "{offsets} bytes of offsets do not match {most} strings at most"
        ))
        .in_part("`bytes of offsets`"));
    }
    Ok(Header {
        bytes: bytes as usize,
        strings: strings as usize,
        number_width: width(c, "width of a run length or id")?,
        length_width: width(c, "width of a string length")?,
    })
}

fn width(c: &mut Cursor<'_>, field: &str) -> Result<usize> {
    match c.u8(field)? {
        width @ (1 | 2 | 4 | 8) => Ok(width.into()),
        width => Err(c.corrupt(
            field,
            format!("found a width of {width} bytes; expected 1, 2, 4 or 8"),
        )),
    }
}

/// Reads a big-endian number of 1, 2, 4 or 8 bytes.
#[inline(always)]
pub(super) fn number(c: &mut Cursor<'_>, width: usize, field: &str) -> Result<u64> {
    match width {
        1 => c.u8(field).map(u64::from),
        2 => c.array(field).map(|b| u16::from_be_bytes(b).into()),
        4 => c.array(field).map(|b| u32::from_be_bytes(b).into()),
        _ => c.array(field).map(u64::from_be_bytes),
    }
}

/// Reserves room for the decoded strings, whose numbers have been checked against the encoded ones.
pub(super) fn reserve(header: &Header, out: &mut Vec<u8>, offsets: &mut Vec<u64>) -> Result<()> {
    super::element::reserve(out, header.bytes)?;
    offsets.try_reserve_exact(header.strings).map_err(|_| {
        Error::limit(format!(
            "out of memory: cannot allocate {} offsets",
            header.strings
        ))
    })
}

/// The most bytes that `strings` strings with `bytes` bytes can be encoded to in either encoding. Each run
/// has a string, and of two adjacent runs, at least one has non-empty strings.
pub(super) fn bound(bytes: u64, strings: u64) -> Limits {
    let runs = bytes.saturating_mul(2).saturating_add(1).min(strings);
    let text = bytes.saturating_add(runs.saturating_mul(16));
    Limits {
        data: text.max(strings.saturating_mul(8)),
        metadata: text.saturating_add(TABLE_BOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn run(words: [u32; 5], widths: [u8; 2], cells: Option<u64>) -> Result<Header> {
        let bytes = [words.map(u32::to_le_bytes).as_flattened(), &widths].concat();
        header(&mut Cursor::new(&bytes), 9, 5, cells)
    }

    #[test]
    fn the_example() {
        let header = run([0, 1, 5, 9, 32], [1, 2], Some(4)).unwrap();
        assert_eq!((header.bytes, header.strings), (5, 4));
        assert_eq!((header.number_width, header.length_width), (1, 2));
    }

    #[test]
    fn hostile_headers_fail() {
        let kind = |words, widths, cells| run(words, widths, cells).err().map(|e| e.kind());
        assert_eq!(kind([1, 1, 5, 9, 32], [1, 1], None), Some(ErrorKind::Corrupt));
        assert_eq!(kind([0, 2, 5, 9, 32], [1, 1], None), Some(ErrorKind::Corrupt));
        assert_eq!(kind([0, 1, 6, 9, 32], [1, 1], None), Some(ErrorKind::Corrupt));
        assert_eq!(kind([0, 1, 5, 8, 32], [1, 1], None), Some(ErrorKind::Corrupt));
        assert_eq!(
            kind([0, 1, 5, 9, 33], [1, 1], None),
            Some(ErrorKind::LimitExceeded)
        );
        assert_eq!(
            kind([0, 1, 5, 9, 32], [1, 1], Some(3)),
            Some(ErrorKind::LimitExceeded)
        );
        assert_eq!(
            kind([0, 1, 5, 9, 32], [1, 1], Some(5)),
            Some(ErrorKind::LimitExceeded)
        );
        assert_eq!(
            kind([0, 1, 5, 9, u32::MAX - 7], [1, 1], None),
            Some(ErrorKind::LimitExceeded)
        );
        for width in [0, 3, 5, 9, 255] {
            assert_eq!(kind([0, 1, 5, 9, 32], [width, 1], None), Some(ErrorKind::Corrupt));
            assert_eq!(kind([0, 1, 5, 9, 32], [1, width], None), Some(ErrorKind::Corrupt));
        }
    }
}
