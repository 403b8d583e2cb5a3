//! POSITIVE_DELTA: the difference of each value to the one before it, window by window; writers refuse
//! decreasing values.
//!
//! | metadata | type |
//! |---|---|
//! | number of windows | u32 |
//! | a window: first value, length | width bytes, u32 |
//!
//! The first difference of a window is 0. A window whose length is no multiple of the width is stored
//! unchanged. The data keeps its length. The filter does nothing, and stores no metadata, for floats, text
//! and ANY; dates and times count as INT64 from format version 20.
//!
//! Example: metadata `02 00 00 00 | 0a 00 00 00 10 00 00 00 | 5a 00 00 00 04 00 00 00` and the INT32 data 0,
//! 2, 3, 0, 0 are the values 10, 12, 15, 15 and, in a second window, 90.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/positive_delta_filter.cc>

use super::bit_width_reduction::window_bound;
use super::delta::accumulate;
use super::element::{Element, by_width, extend_zeroed};
use super::framing::Limits;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::datatype::{Datatype, Kind};

/// Whether the filter does anything to values of `datatype`.
pub(super) fn applies(datatype: Datatype, fragment_version: u32) -> bool {
    match datatype.kind() {
        Kind::Signed | Kind::Unsigned | Kind::Bool => true,
        Kind::Datetime | Kind::Time => fragment_version >= 20,
        _ => matches!(datatype, Datatype::Blob | Datatype::GeomWkb | Datatype::GeomWkt),
    }
}

/// Undoes the filter on `data`, integers of `width` bytes, into the empty `out`.
pub(super) fn undo(metadata: &mut Cursor<'_>, width: usize, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let windows = metadata.u32("number of windows")?;
    metadata.check_count(windows.into(), width + 4, "number of windows")?;
    let mut input = Cursor::new(data);
    let out = extend_zeroed(out, data.len())?;
    by_width!(width, E => undo_windows::<E>(metadata, windows, &mut input, out)?);
    match input.remaining() {
        0 => Ok(()),
        n => Err(Error::corrupt(format!(
            "the windows are {n} bytes shorter than the data"
        ))),
    }
}

fn undo_windows<E: Element>(
    metadata: &mut Cursor<'_>,
    windows: u32,
    input: &mut Cursor<'_>,
    out: &mut [u8],
) -> Result<()> {
    let mut rest = out;
    for _ in 0..windows {
        let start = metadata.bytes(E::SIZE as u64, "first value")?;
        let start = E::load(&E::split(start).0[0]);
        let length = metadata.u32("window length")?;
        let deltas = input.bytes(length.into(), "window")?;
        let Some((window, after)) = std::mem::take(&mut rest).split_at_mut_checked(deltas.len()) else {
            return Err(metadata.corrupt("window length", "the windows are longer than the data"));
        };
        rest = after;
        if deltas.len().is_multiple_of(E::SIZE) {
            accumulate(start, deltas, window);
        } else {
            window.copy_from_slice(deltas);
        }
    }
    Ok(())
}

/// The most bytes that streams of these sizes can be encoded to, with windows of `window` bytes.
pub(super) fn bound(before: Limits, width: usize, window: u32) -> Limits {
    window_bound(before, width, window, 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn table(width: usize, windows: &[(i64, u32)]) -> Vec<u8> {
        let mut bytes = (windows.len() as u32).to_le_bytes().to_vec();
        for (start, length) in windows {
            bytes.extend(&start.to_le_bytes()[..width]);
            bytes.extend(length.to_le_bytes());
        }
        bytes
    }

    fn run(metadata: &[u8], width: usize, data: &[u8]) -> Result<Vec<u8>> {
        let mut out = vec![];
        undo(&mut Cursor::new(metadata), width, data, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_example() {
        assert_eq!(
            run(
                &table(4, &[(10, 16), (90, 4)]),
                4,
                [0u32, 2, 3, 0, 0].map(u32::to_le_bytes).as_flattened()
            )
            .unwrap(),
            [10u32, 12, 15, 15, 90].map(u32::to_le_bytes).as_flattened()
        );
    }

    #[test]
    fn windows_restart_wrap_and_copy() {
        assert_eq!(
            run(&table(1, &[(255, 3), (7, 1)]), 1, &[0, 1, 1, 0]).unwrap(),
            [255, 0, 1, 7]
        );
        assert_eq!(run(&table(2, &[(5, 3)]), 2, &[1, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(run(&table(8, &[]), 8, &[]).unwrap(), b"");
    }

    #[test]
    fn types_that_are_left_alone() {
        assert!(applies(Datatype::Int8, 5));
        assert!(applies(Datatype::GeomWkt, 22));
        assert!(applies(Datatype::Bool, 22));
        assert!(!applies(Datatype::DatetimeDay, 19));
        assert!(applies(Datatype::DatetimeDay, 20));
        for datatype in [
            Datatype::Char,
            Datatype::Any,
            Datatype::Float32,
            Datatype::StringUcs4,
        ] {
            assert!(!applies(datatype, 22));
        }
    }

    #[test]
    fn hostile_input_fails() {
        let kind = |metadata: &[u8], data: &[u8]| run(metadata, 4, data).unwrap_err().kind();
        assert_eq!(kind(&table(4, &[(0, 8)]), &[0; 4]), ErrorKind::Truncated);
        assert_eq!(kind(&table(4, &[(0, 4)]), &[0; 8]), ErrorKind::Corrupt);
        assert_eq!(kind(&table(4, &[]), &[0; 8]), ErrorKind::Corrupt);
        assert_eq!(kind(&[255, 255, 255, 255, 0], &[0; 8]), ErrorKind::LimitExceeded);
        assert_eq!(kind(&[1, 0], &[0; 8]), ErrorKind::Truncated);
        assert_eq!(
            run(&table(3, &[(0, 3)]), 3, &[0; 3]).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}
