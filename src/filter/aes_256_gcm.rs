//! AES-256-GCM: the encryption filter, the last of every pipeline of an encrypted array.
//!
//! The framing is that of the [compressors](super::framing); an entry of the part table also has the
//! initialisation vector (12 bytes) and the tag (16 bytes) of its part. Plaintext and ciphertext have equal
//! lengths; there is no associated data.
//!
//! Example: with a key of 32 zeros and an initialisation vector of 12 zeros, empty data has the tag `53 0f 8a
//! fb c7 45 36 b9 a9 63 b4 f1 c4 cb 73 8b`.
//!
//! In libtiledb:
//! <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/encryption_aes256gcm_filter.cc>

use super::framing::{EncodedPart, Limits, TABLE_BOUND};
use crate::error::{Error, ErrorKind, Result};
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};

/// Bytes of an entry of the part table besides the two lengths.
pub(super) const EXTRA_SIZE: usize = IV_SIZE + TAG_SIZE;
const IV_SIZE: usize = 12;
const TAG_SIZE: usize = 16;

/// An expanded key.
#[derive(Clone)]
pub(super) struct Cipher(Aes256Gcm);

impl Cipher {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Cipher(Aes256Gcm::new(key.into()))
    }

    /// Appends the plaintext of `part`. `WrongKey` if the tag does not match: another key, or damaged data.
    pub(super) fn decrypt(&self, part: &EncodedPart<'_>, out: &mut Vec<u8>) -> Result<()> {
        if part.stored.len() != part.original {
            return Err(Error::corrupt(format!(
                "the encrypted part has {} bytes, its plaintext {}; they must be equal",
                part.stored.len(),
                part.original
            )));
        }
        let Some((iv, tag)) = part
            .extra
            .split_first_chunk::<IV_SIZE>()
            .and_then(|(iv, tag)| Some((iv, tag.first_chunk::<TAG_SIZE>()?)))
        else {
            return Err(Error::truncated(
                "the part header is too short for the initialisation vector and the tag",
            ));
        };
        let start = out.len();
        out.extend_from_slice(part.stored);
        let text = &mut out[start..];
        let (nonce, tag) = (Nonce::from(*iv), Tag::from(*tag));
        self.0
            .decrypt_inout_detached(&nonce, &[], text.into(), &tag)
            .map_err(|_| {
                Error::new(
                    ErrorKind::WrongKey,
                    "the authentication tag does not match: the key is wrong or the data are damaged",
                )
            })
    }
}

/// The most bytes that streams of these sizes can be encrypted to.
pub(super) fn bound(before: Limits) -> Limits {
    Limits {
        data: before.data.saturating_add(before.metadata),
        metadata: TABLE_BOUND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_TAG: [u8; 16] = [
        0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45, 0x36, 0xb9, 0xa9, 0x63, 0xb4, 0xf1, 0xc4, 0xcb, 0x73, 0x8b,
    ];

    fn run(key: u8, stored: &[u8], extra: &[u8], original: usize) -> Result<Vec<u8>> {
        let mut out = b"before".to_vec();
        let part = EncodedPart {
            original,
            stored,
            extra,
        };
        Cipher::new(&[key; 32]).decrypt(&part, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_example_and_one_block() {
        let extra = [&[0; 12], &EMPTY_TAG[..]].concat();
        assert_eq!(run(0, &[], &extra, 0).unwrap(), b"before");
        // Test case 14 of the specification of GCM.
        let text = [
            0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18,
        ];
        let tag = [
            0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19,
        ];
        let extra = [&[0; 12], &tag[..]].concat();
        assert_eq!(
            run(0, &text, &extra, 16).unwrap(),
            [&b"before"[..], &[0; 16]].concat()
        );
        assert_eq!(run(1, &text, &extra, 16).unwrap_err().kind(), ErrorKind::WrongKey);
        assert_eq!(
            run(0, &[0; 16], &extra, 16).unwrap_err().kind(),
            ErrorKind::WrongKey
        );
        assert_eq!(run(0, &text, &extra, 15).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            run(0, &text, &extra[..27], 16).unwrap_err().kind(),
            ErrorKind::Truncated
        );
    }
}
