//! CHECKSUM_MD5 and CHECKSUM_SHA256: digests of the data and of the earlier filters' metadata stream.
//!
//! | metadata | type |
//! |---|---|
//! | number of metadata digests M, number of data digests D | u32, u32 |
//! | M + D times: bytes covered, digest | u64, 16 or 32 bytes |
//!
//! The first M digests cover consecutive runs of the metadata stream after the table, the others of the data.
//! Both streams stay unchanged.
//!
//! Example: `00 00 00 00 | 01 00 00 00 | 03 00 00 00 00 00 00 00 | 90 01 50 98 3c d2 4f b0 d6 96 3f 7d 28 e1
//! 7f 72` is the MD5 of the data `abc`, with empty metadata.
//!
//! In libtiledb:
//! <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/checksum_md5_filter.cc>,
//! <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/checksum_sha256_filter.cc>

use super::framing::{Limits, TABLE_BOUND};
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::printable::hex;
use md5::Md5;
use sha2::{Digest, Sha256};

/// Checks MD5 digests. Leaves `metadata` after the table.
pub(super) fn check_md5(metadata: &mut Cursor<'_>, data: &[u8]) -> Result<()> {
    check(metadata, data, "MD5", |bytes| Md5::digest(bytes).into())
}

/// Checks SHA-256 digests. Leaves `metadata` after the table.
pub(super) fn check_sha256(metadata: &mut Cursor<'_>, data: &[u8]) -> Result<()> {
    check(metadata, data, "SHA-256", |bytes| Sha256::digest(bytes).into())
}

fn check<const N: usize>(
    metadata: &mut Cursor<'_>,
    data: &[u8],
    name: &str,
    digest: impl Fn(&[u8]) -> [u8; N],
) -> Result<()> {
    let metadata_digests = metadata.u32("number of metadata digests")?;
    let data_digests = metadata.u32("number of data digests")?;
    let digests = u64::from(metadata_digests) + u64::from(data_digests);
    metadata.check_count(digests, 8 + N, "number of digests")?;
    let table = metadata.bytes(digests * (8 + N as u64), "digests")?;
    let mut table = Cursor::new(table);
    let mut covered = Cursor::new(metadata.rest());
    let mut covered_data = Cursor::new(data);
    for index in 0..digests {
        let (stream, of) = if index < u64::from(metadata_digests) {
            (&mut covered, "metadata")
        } else {
            (&mut covered_data, "data")
        };
        let length = table.u64("bytes covered")?;
        let stored = table.array::<N>("digest")?;
        let bytes = stream.bytes(length, "covered bytes")?;
        let computed = digest(bytes);
        if computed != stored {
            return Err(Error::new(
                ErrorKind::ChecksumMismatch,
                format!(
                    "the {name} of {length} bytes of {of} is {}, but {} is stored",
                    hex(&computed),
                    hex(&stored)
                ),
            ));
        }
    }
    Ok(())
}

/// The most bytes of streams of these sizes with their digests.
pub(super) fn bound(before: Limits) -> Limits {
    Limits {
        metadata: before.metadata.saturating_add(TABLE_BOUND),
        ..before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: [u8; 16] = [
        0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0, 0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f, 0x72,
    ];

    fn table(metadata: u32, data: u32, digests: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = [metadata.to_le_bytes(), data.to_le_bytes()].concat();
        for (length, digest) in digests {
            bytes.extend(length.to_le_bytes());
            bytes.extend(*digest);
        }
        bytes
    }

    #[test]
    fn the_example() {
        let mut bytes = table(0, 1, &[(3, &ABC)]);
        bytes.extend(b"the rest");
        let mut c = Cursor::new(&bytes);
        check_md5(&mut c, b"abc").unwrap();
        assert_eq!(c.rest(), b"the rest");
    }

    #[test]
    fn both_streams_are_covered() {
        let of = |bytes: &[u8]| Sha256::digest(bytes).to_vec();
        let mut bytes = table(1, 2, &[(4, &of(b"meta")), (1, &of(b"a")), (2, &of(b"bc"))]);
        bytes.extend(b"metadata");
        check_sha256(&mut Cursor::new(&bytes), b"abc").unwrap();
        let last = bytes.len() - 8;
        bytes[last] = b'M';
        let error = check_sha256(&mut Cursor::new(&bytes), b"abc").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChecksumMismatch);
    }

    #[test]
    fn a_mismatch_names_both_digests() {
        let bytes = table(0, 1, &[(3, &ABC)]);
        let error = check_md5(&mut Cursor::new(&bytes), b"abd").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChecksumMismatch);
        assert!(error.message().contains("900150983cd24fb0d6963f7d28e17f72"));
        assert!(error.message().contains("4911e516e5aa21d327512e0c8b197616"));
    }

    #[test]
    fn hostile_input_fails() {
        let kind = |bytes: &[u8]| check_md5(&mut Cursor::new(bytes), b"abc").unwrap_err().kind();
        assert_eq!(kind(&table(0, 1, &[(4, &ABC)])), ErrorKind::Truncated);
        assert_eq!(kind(&table(1, 0, &[(1, &ABC)])), ErrorKind::Truncated);
        assert_eq!(kind(&table(0, 1, &[(u64::MAX, &ABC)])), ErrorKind::Truncated);
        assert_eq!(kind(&table(u32::MAX, u32::MAX, &[])), ErrorKind::LimitExceeded);
        assert_eq!(kind(&table(0, 2, &[(3, &ABC)])), ErrorKind::LimitExceeded);
        assert_eq!(kind(&[0; 7]), ErrorKind::Truncated);
    }
}
