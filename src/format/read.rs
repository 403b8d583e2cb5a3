//! Reading steps common to several parsers of the format.

use super::datatype::CellValNum;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};

/// The bit that experimental builds of TileDB set in format versions.
const EXPERIMENTAL: u32 = 1 << 31;

/// Reads one byte and interprets it with `from`. An error gets the byte's offset.
pub(super) fn byte<T>(c: &mut Cursor<'_>, field: &str, from: impl FnOnce(u8) -> Result<T>) -> Result<T> {
    let offset = c.offset();
    from(c.u8(field)?).map_err(|e| e.at(offset).in_part(format_args!("`{field}`")))
}

/// Reads a u32 and interprets it as the number of values per cell.
pub(super) fn cell_val_num(c: &mut Cursor<'_>) -> Result<CellValNum> {
    let offset = c.offset();
    let word = c.u32("cell_val_num")?;
    CellValNum::from_u32(word).map_err(|e| e.at(offset).in_part("`cell_val_num`"))
}

/// Reads a string after its length as u32.
pub(super) fn text32(c: &mut Cursor<'_>, field: &str) -> Result<Vec<u8>> {
    let length = c.u32(field)?;
    Ok(c.bytes(u64::from(length), field)?.to_vec())
}

/// Reads a string, or other bytes, after its length as u64.
pub(super) fn text64(c: &mut Cursor<'_>, field: &str) -> Result<Vec<u8>> {
    let length = c.u64(field)?;
    Ok(c.bytes(length, field)?.to_vec())
}

/// Reads a list of items, each of at least `min_size` bytes, after their number as u32, called `field`.
/// `item` is the name of one in errors.
pub(super) fn items<T>(
    c: &mut Cursor<'_>,
    field: &str,
    min_size: usize,
    item: &str,
    mut parse: impl FnMut(&mut Cursor<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = c.u32(field)?;
    c.check_count(u64::from(count), min_size, field)?;
    (0..count)
        .map(|i| parse(c).map_err(|e| e.in_part(format_args!("{item} {i}"))))
        .collect()
}

/// Reads a list of u64 offsets after its length in bytes (u64). The offsets must not decrease or exceed
/// `data_size`.
pub(super) fn offsets(c: &mut Cursor<'_>, data_size: usize, field: &str) -> Result<Vec<u64>> {
    let size = c.u64(field)?;
    if size % 8 != 0 {
        return Err(c.corrupt(field, format!("{size} bytes of offsets are not a multiple of 8")));
    }
    let start = c.offset();
    let list = c.u64_list(size / 8, field)?;
    let end = data_size as u64;
    let mut previous = 0;
    for (&value, at) in list.iter().zip((start..).step_by(8)) {
        if value < previous || value > end {
            let message = format!(
                "offset {value} is below {previous}, the one before it, or above the {end} bytes of values"
            );
            return Err(Error::corrupt(message).at(at).in_part(format_args!("`{field}`")));
        }
        previous = value;
    }
    Ok(list)
}

/// Refuses unknown format versions: 0, those above [`super::MAX_VERSION`] and those of experimental builds.
pub(super) fn check_version(version: u32, offset: u64) -> Result<()> {
    let newest = super::MAX_VERSION;
    let message = match version {
        0 => "format version 0 does not exist".to_string(),
        v if v <= newest => return Ok(()),
        v if v & EXPERIMENTAL != 0 => format!(
            "format version {v} is that of an experimental build of TileDB ({}); up to {newest} are \
             understood",
            v ^ EXPERIMENTAL
        ),
        v => format!("format version {v} is newer than {newest}, the newest that is supported"),
    };
    Err(Error::new(ErrorKind::UnsupportedVersion, message)
        .at(offset)
        .in_part("`version`"))
}

/// Whether `name` can be looked up in a directory without leaving it: not empty, not `.` or `..`, without
/// slash, backslash or NUL.
pub(super) fn is_plain_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | b'\\' | 0))
}

/// Parses all of `body`, the unfiltered body of a generic tile of `part`; left-over bytes are an error.
/// Errors without an offset get that of the first byte.
pub(super) fn whole<T>(
    part: &str,
    body: &[u8],
    parse: impl FnOnce(&mut Cursor<'_>) -> Result<T>,
) -> Result<T> {
    let mut c = Cursor::new(body);
    parse(&mut c)
        .and_then(|value| c.finish().map(|()| value))
        .map_err(|e| e.at(0).in_part(part))
}
