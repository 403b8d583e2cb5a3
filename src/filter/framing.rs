//! The table of parts that several filters use.
//!
//! A compressor or the encryption filter consumes the whole metadata stream. It is a table of the parts that
//! the filter encoded one by one: first those of the metadata stream of the filters before it, then those of
//! the data.
//!
//! | metadata | type |
//! |---|---|
//! | number of metadata parts M | u32 |
//! | number of data parts D | u32 |
//! | (M + D) times: original length, stored length, then what the filter adds | u32, u32, bytes |
//!
//! The stored parts follow each other in the data, in the order of the table. The decoded metadata parts are
//! the metadata stream of the filter before; the decoded data parts are its data.
//!
//! Example (byteshuffle, then RLE of INT32 cells): the table `01000000 01000000 | 08000000 0c000000 |
//! 08000000 0c000000` says that bytes 0 to 12 of the data decode to 8 bytes of metadata, and bytes 12 to 24
//! to 8 bytes of data.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/compression_filter.cc>

use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// One entry of the table.
pub(super) struct EncodedPart<'a> {
    /// Its decoded length, already checked against the limits.
    pub original: usize,
    /// The stored bytes.
    pub stored: &'a [u8],
    /// What the filter adds to the entry.
    pub extra: &'a [u8],
}

/// The most bytes that the streams before the filter can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub metadata: u64,
    pub data: u64,
}

/// Decodes all parts with `decode`, which must append exactly the part's original length to the vector.
///
/// `metadata` must be exactly the table, with `extra` bytes per entry besides the two lengths; `data` must be
/// exactly the stored parts.
pub(super) fn undo<'a>(
    metadata: &'a [u8],
    data: &'a [u8],
    extra: usize,
    limits: Limits,
    metadata_out: &mut Vec<u8>,
    data_out: &mut Vec<u8>,
    mut decode: impl FnMut(EncodedPart<'a>, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut table = Cursor::new(metadata);
    let metadata_parts = table.u32("number of metadata parts")?;
    let data_parts = table.u32("number of data parts")?;
    let parts = u64::from(metadata_parts) + u64::from(data_parts);
    table.check_count(parts, 8 + extra, "number of parts")?;

    let mut rest = data;
    for index in 0..parts {
        let (out, limit) = if index < u64::from(metadata_parts) {
            (&mut *metadata_out, limits.metadata)
        } else {
            (&mut *data_out, limits.data)
        };
        let original = table.u32("original length")? as usize;
        let stored = table.u32("stored length")? as usize;
        let extra = table.bytes(extra as u64, "part")?;
        let stored = next_part(&mut rest, index, stored)?;
        let before = out.len();
        if before as u64 + original as u64 > limit {
            return Err(Error::limit(format!(
                "part {index} decodes to {original} bytes after {before}, but {limit} at most are possible"
            )));
        }
        if original != 0 || !stored.is_empty() {
            decode(
                EncodedPart {
                    original,
                    stored,
                    extra,
                },
                out,
            )?;
        }
        let decoded = out.len() - before;
        if decoded != original {
            return Err(Error::corrupt(format!(
                "part {index} decodes to {decoded} bytes, expected {original}"
            )));
        }
    }
    table.finish().map_err(|e| e.in_part("part table"))?;
    check_end(rest)
}

/// Takes part number `index`, of `length` bytes, from the front of `rest`.
fn next_part<'a>(rest: &mut &'a [u8], index: u64, length: usize) -> Result<&'a [u8]> {
    let Some((part, after)) = rest.split_at_checked(length) else {
        let left = rest.len();
        let message = format!("part {index} is {length} bytes long, but only {left} are left");
        return Err(Error::truncated(message));
    };
    *rest = after;
    Ok(part)
}

/// Fails unless nothing is left after the last part.
fn check_end(rest: &[u8]) -> Result<()> {
    match rest.len() {
        0 => Ok(()),
        n => Err(Error::corrupt(format!(
            "{n} bytes are left over after the last part"
        ))),
    }
}

/// Calls `undo` with each part of `data`, for filters that store only the lengths of parts in front of the
/// metadata stream: their number u32, then a u32 for each. They must add up to all of the data.
pub(super) fn split<'a>(
    metadata: &mut Cursor<'_>,
    data: &'a [u8],
    mut undo: impl FnMut(&'a [u8]) -> Result<()>,
) -> Result<()> {
    let parts = metadata.u32("number of parts")?;
    metadata.check_count(u64::from(parts), 4, "number of parts")?;
    let mut rest = data;
    for index in 0..parts {
        let length = metadata.u32("length of a part")? as usize;
        undo(next_part(&mut rest, index.into(), length)?)?;
    }
    check_end(rest)
}

/// The most bytes that streams of these sizes can be compressed to, for all compressors but RLE: an eighth
/// more, and some bytes for each part.
pub(super) fn bound(before: Limits) -> Limits {
    let all = before.data.saturating_add(before.metadata);
    Limits {
        data: all.saturating_add(all / 8).saturating_add(TABLE_BOUND),
        metadata: TABLE_BOUND,
    }
}

/// An upper bound of the table of parts and the parts' fixed costs: chunks have few parts in practice.
pub(super) const TABLE_BOUND: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const LIMITS: Limits = Limits { metadata: 8, data: 8 };

    fn copy(part: EncodedPart<'_>, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(part.stored);
        Ok(())
    }

    fn table(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn run(words: &[u32], data: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut metadata_out, mut data_out) = (vec![], vec![]);
        undo(
            &table(words),
            data,
            0,
            LIMITS,
            &mut metadata_out,
            &mut data_out,
            copy,
        )?;
        Ok((metadata_out, data_out))
    }

    #[test]
    fn metadata_parts_come_first() {
        let (metadata, data) = run(&[1, 2, 2, 2, 1, 1, 3, 3], b"mmabbb").unwrap();
        assert_eq!((metadata.as_slice(), data.as_slice()), (&b"mm"[..], &b"abbb"[..]));
        assert_eq!(run(&[0, 0], b"").unwrap(), (vec![], vec![]));
        assert_eq!(run(&[0, 1, 0, 0], b"").unwrap(), (vec![], vec![]));
    }

    #[test]
    fn data_splits_into_parts() {
        let run = |words: &[u32], data: &[u8]| -> Result<Vec<usize>> {
            let (bytes, mut lengths) = (table(words), vec![]);
            let mut metadata = Cursor::new(&bytes);
            split(&mut metadata, data, |part| {
                lengths.push(part.len());
                Ok(())
            })?;
            lengths.push(metadata.remaining());
            Ok(lengths)
        };
        assert_eq!(run(&[2, 1, 2, 99], b"abc").unwrap(), [1, 2, 4]);
        assert_eq!(run(&[0], b"").unwrap(), [0]);
        assert_eq!(run(&[1, 2], b"abc").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(run(&[1, 4], b"abc").unwrap_err().kind(), ErrorKind::Truncated);
        assert_eq!(
            run(&[u32::MAX, 3], b"abc").unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
    }

    #[test]
    fn lengths_must_agree() {
        let kind = |words: &[u32], data: &[u8]| run(words, data).unwrap_err().kind();
        assert_eq!(kind(&[0, 1, 4, 4], b"abcde"), ErrorKind::Corrupt);
        assert_eq!(kind(&[0, 1, 4, 4], b"abc"), ErrorKind::Truncated);
        assert_eq!(kind(&[0, 1, 4, 3], b"abc"), ErrorKind::Corrupt);
        assert_eq!(kind(&[0, 1, 3, 3, 9], b"abc"), ErrorKind::Corrupt);
        assert_eq!(kind(&[0, 1, 9, 9], b"abcdefghi"), ErrorKind::LimitExceeded);
        assert_eq!(kind(&[u32::MAX, u32::MAX, 9, 9], b""), ErrorKind::LimitExceeded);
        assert_eq!(kind(&[1], b""), ErrorKind::Truncated);
        assert_eq!(kind(&[], b""), ErrorKind::Truncated);
    }
}
