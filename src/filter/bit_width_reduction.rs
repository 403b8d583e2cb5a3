//! BIT_WIDTH_REDUCTION: integers as distances from an offset in fewer bits, window by window.
//!
//! | metadata | type |
//! |---|---|
//! | original length of the data | u32 |
//! | number of windows | u32 |
//! | a window: offset, bits of a stored value, original length of the window | width bytes, u8, u32 |
//!
//! A window whose values have 8 * width bits or more, or whose length is no multiple of the width, is stored
//! unchanged, and its offset has no meaning. In any other window, values are extended (sign-extended if the
//! type is signed), and the offset is added, wrapping at the width. The filter does nothing, and stores no
//! metadata, for types other than integers of 2, 4 or 8 bytes; dates and times count as INT64 from format
//! version 20.
//!
//! Example: metadata `18 00 00 00 | 01 00 00 00 | e8 03 00 00 00 00 00 00 | 10 | 18 00 00 00` and data `00 00
//! 01 00 2c 01` are the 64-bit values 1000, 1001 and 1300 in 16 bits each.
//!
//! In libtiledb:
//! <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/bit_width_reduction_filter.cc>

use super::element::extend_zeroed;
use super::framing::{Limits, TABLE_BOUND};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::datatype::{Datatype, Kind};

/// Bytes and signedness of the integers that the filter sees in `datatype`; None if it does nothing.
pub(super) fn integers(datatype: Datatype, fragment_version: u32) -> Option<(usize, bool)> {
    let signed = match datatype.kind() {
        Kind::Signed => true,
        Kind::Unsigned => false,
        Kind::Datetime | Kind::Time if fragment_version >= 20 => true,
        _ => return None,
    };
    (datatype.size() > 1).then_some((datatype.size(), signed))
}

/// Undoes the filter on `data`, integers of `width` bytes, into the empty `out`. `limit` is an upper bound of
/// the output in bytes.
pub(super) fn undo(
    metadata: &mut Cursor<'_>,
    (width, signed): (usize, bool),
    data: &[u8],
    limit: u64,
    out: &mut Vec<u8>,
) -> Result<()> {
    let original = metadata.u32("original length")?;
    let windows = metadata.u32("number of windows")?;
    metadata.check_count(windows.into(), width + 5, "number of windows")?;
    // A stored value takes at least one byte, an original one at most eight.
    let most = limit.min(data.len() as u64 * 8);
    if u64::from(original) > most {
        return Err(Error::limit(format!(
            "the original length is {original} bytes, but {most} at most are possible"
        )));
    }
    let mut input = Cursor::new(data);
    let mut rest = extend_zeroed(out, original as usize)?;
    for _ in 0..windows {
        let mut offset = [0; 8];
        offset[..width].copy_from_slice(metadata.bytes(width as u64, "window offset")?);
        let offset = u64::from_le_bytes(offset);
        let bits = metadata.u8("window bits")?;
        let length = metadata.u32("window length")? as usize;
        if !matches!(bits, 8 | 16 | 32 | 64) {
            return Err(metadata.corrupt(
                "window bits",
                format!("found {bits} bits per value; expected 8, 16, 32 or 64"),
            ));
        }
        let bytes = usize::from(bits / 8);
        let Some((window, after)) = std::mem::take(&mut rest).split_at_mut_checked(length) else {
            return Err(metadata.corrupt("window length", "the windows are longer than the original length"));
        };
        rest = after;
        if bytes >= width || !length.is_multiple_of(width) {
            window.copy_from_slice(input.bytes(length as u64, "window")?);
        } else {
            let stored = input.bytes((length / width * bytes) as u64, "window")?;
            widen(stored, bytes, signed, offset, width, window);
        }
    }
    if !rest.is_empty() {
        return Err(Error::corrupt(format!(
            "the windows are {} bytes shorter than the original length",
            rest.len()
        )));
    }
    input.finish()
}

/// Extends the values of `stored`, `bytes` bytes each, to `width` bytes, adds `offset` and fills `out` with
/// them.
fn widen(stored: &[u8], bytes: usize, signed: bool, offset: u64, width: usize, out: &mut [u8]) {
    macro_rules! widen {
        ($narrow:ty => $signed:ty => $wide:ty) => {{
            let offset = offset as $wide;
            let stored = stored.as_chunks::<{ size_of::<$narrow>() }>().0;
            let out = out.as_chunks_mut::<{ size_of::<$wide>() }>().0;
            if signed {
                for (out, value) in out.iter_mut().zip(stored) {
                    let value = <$signed>::from_le_bytes(*value) as $wide;
                    *out = value.wrapping_add(offset).to_le_bytes();
                }
            } else {
                for (out, value) in out.iter_mut().zip(stored) {
                    let value = <$narrow>::from_le_bytes(*value) as $wide;
                    *out = value.wrapping_add(offset).to_le_bytes();
                }
            }
        }};
    }
    match (bytes, width) {
        (1, 2) => widen!(u8 => i8 => u16),
        (1, 4) => widen!(u8 => i8 => u32),
        (2, 4) => widen!(u16 => i16 => u32),
        (1, 8) => widen!(u8 => i8 => u64),
        (2, 8) => widen!(u16 => i16 => u64),
        (4, 8) => widen!(u32 => i32 => u64),
        _ => unreachable!("{bytes} bytes are not widened to {width}"),
    }
}

/// The most bytes that streams of these sizes can be encoded to, with windows of `window` bytes.
pub(super) fn bound(before: Limits, width: usize, window: u32) -> Limits {
    window_bound(before, width, window, 5)
}

/// The most bytes of streams of these sizes with the metadata of windows: one value and `more` bytes each.
/// Writers round `window` down to whole values.
pub(super) fn window_bound(before: Limits, width: usize, window: u32, more: u64) -> Limits {
    let width = width as u64;
    let windows = before.data / u64::from(window / 2).max(width).max(1);
    Limits {
        data: before.data,
        metadata: before
            .metadata
            .saturating_add(windows.saturating_mul(width + more))
            .saturating_add(TABLE_BOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// Metadata of windows (offset, bits, length) of values of `width` bytes.
    fn table(original: u32, width: usize, windows: &[(i64, u8, u32)]) -> Vec<u8> {
        let mut bytes = original.to_le_bytes().to_vec();
        bytes.extend((windows.len() as u32).to_le_bytes());
        for (offset, bits, length) in windows {
            bytes.extend(&offset.to_le_bytes()[..width]);
            bytes.push(*bits);
            bytes.extend(length.to_le_bytes());
        }
        bytes
    }

    fn run(metadata: &[u8], width: usize, signed: bool, data: &[u8]) -> Result<Vec<u8>> {
        let mut out = vec![];
        undo(&mut Cursor::new(metadata), (width, signed), data, 1000, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_example() {
        let metadata = table(24, 8, &[(1000, 16, 24)]);
        assert_eq!(
            run(&metadata, 8, true, &[0, 0, 1, 0, 0x2c, 1]).unwrap(),
            [1000i64, 1001, 1300].map(i64::to_le_bytes).as_flattened()
        );
    }

    #[test]
    fn every_pair_of_widths() {
        for width in [2usize, 4, 8] {
            for bytes in [1usize, 2, 4].into_iter().filter(|b| *b < width) {
                for signed in [false, true] {
                    // 30 values, so that vector loops have tails.
                    let stored: Vec<u8> = (0..30 * bytes).map(|i| (i * 91) as u8).collect();
                    let mut expected: Vec<u8> = vec![];
                    for value in stored.chunks(bytes) {
                        let fill = if signed && value[bytes - 1] >= 0x80 {
                            0xFF
                        } else {
                            0
                        };
                        let mut wide = [fill; 8];
                        wide[..bytes].copy_from_slice(value);
                        let sum = u64::from_le_bytes(wide).wrapping_add(-77i64 as u64);
                        expected.extend(&sum.to_le_bytes()[..width]);
                    }
                    let length = expected.len() as u32;
                    let metadata = table(length, width, &[(-77, 8 * bytes as u8, length)]);
                    assert_eq!(run(&metadata, width, signed, &stored).unwrap(), expected);
                }
            }
        }
    }

    #[test]
    fn some_windows_are_verbatim() {
        let metadata = table(9, 2, &[(1, 8, 2), (9, 16, 2), (9, 64, 2), (9, 8, 3)]);
        assert_eq!(
            run(&metadata, 2, false, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap(),
            [2, 0, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(run(&table(0, 4, &[]), 4, false, &[]).unwrap(), b"");
    }

    #[test]
    fn types_that_are_left_alone() {
        assert_eq!(integers(Datatype::Int16, 5), Some((2, true)));
        assert_eq!(integers(Datatype::Uint64, 5), Some((8, false)));
        assert_eq!(integers(Datatype::DatetimeDay, 19), None);
        assert_eq!(integers(Datatype::TimeNs, 20), Some((8, true)));
        for datatype in [
            Datatype::Int8,
            Datatype::Bool,
            Datatype::Float64,
            Datatype::StringUtf16,
            Datatype::Blob,
        ] {
            assert_eq!(integers(datatype, 22), None);
        }
    }

    #[test]
    fn hostile_input_fails() {
        let kind = |metadata: &[u8], data: &[u8]| run(metadata, 4, true, data).unwrap_err().kind();
        assert_eq!(
            kind(&table(4, 4, &[(0, 7, 4)]), &[0; 1]),
            ErrorKind::Corrupt,
            "bits"
        );
        assert_eq!(kind(&table(4, 4, &[(0, 0, 4)]), &[0; 1]), ErrorKind::Corrupt);
        assert_eq!(
            kind(&table(8, 4, &[(0, 8, 4)]), &[0; 1]),
            ErrorKind::Corrupt,
            "short"
        );
        assert_eq!(
            kind(&table(4, 4, &[(0, 8, 8)]), &[0; 2]),
            ErrorKind::Corrupt,
            "long"
        );
        assert_eq!(kind(&table(8, 4, &[(0, 8, 8)]), &[0; 1]), ErrorKind::Truncated);
        assert_eq!(
            kind(&table(8, 4, &[(0, 8, 8)]), &[0; 3]),
            ErrorKind::Corrupt,
            "left over"
        );
        assert_eq!(
            kind(&table(80, 4, &[(0, 8, 80)]), &[0; 3]),
            ErrorKind::LimitExceeded
        );
        assert_eq!(
            kind(&table(1004, 4, &[(0, 8, 1004)]), &[0; 251]),
            ErrorKind::LimitExceeded
        );
        assert_eq!(
            kind(&[4, 0, 0, 0, 255, 255, 255, 255], &[0; 1]),
            ErrorKind::LimitExceeded
        );
        assert_eq!(kind(&[4, 0, 0, 0], &[0; 1]), ErrorKind::Truncated);
        let whole = table(4, 4, &[(0, 8, 4)]);
        assert!(run(&whole[..whole.len() - 1], 4, true, &[0]).is_err());
    }
}
