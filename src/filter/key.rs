//! Keys of encrypted arrays.

use super::aes_256_gcm::Cipher;
use crate::error::{Error, ErrorKind};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A 32-byte AES-256 key, expanded. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct EncryptionKey(Arc<Key>);

struct Key {
    bytes: [u8; 32],
    /// The absolute path of the file that it was read from.
    file: Option<PathBuf>,
    cipher: Cipher,
}

impl EncryptionKey {
    /// Wraps the raw key.
    pub fn new(key: [u8; 32]) -> Self {
        Self::make(key, None)
    }

    /// The key from the file at the absolute path `file`: users who may not read that file may not see what
    /// the key decodes.
    pub fn from_file(key: [u8; 32], file: PathBuf) -> Self {
        Self::make(key, Some(file))
    }

    fn make(key: [u8; 32], file: Option<PathBuf>) -> Self {
        EncryptionKey(Arc::new(Key {
            cipher: Cipher::new(&key),
            bytes: key,
            file,
        }))
    }

    /// The absolute path of the file that it was read from, if any.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    pub(super) fn cipher(&self) -> &Cipher {
        &self.0.cipher
    }

    /// The raw key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0.bytes
    }
}

/// The error where a key is needed and none was given.
pub(super) fn key_required() -> Error {
    let message = "the array is encrypted and no key was given";
    Error::new(ErrorKind::KeyRequired, message)
}

impl PartialEq for EncryptionKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for EncryptionKey {}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey(…)")
    }
}
