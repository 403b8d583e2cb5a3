//! The answer to a read of a range of bytes.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// An answer to a read: bytes put together for it, or a part of something shared.
pub enum ReadBytes<'s> {
    /// In the scratch memory.
    Scratch(&'s [u8]),
    /// In memory that others look at too.
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Deref for ReadBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ReadBytes::Scratch(bytes) => bytes,
            ReadBytes::Shared(bytes, range) => bytes.get(range.clone()).unwrap_or(&[]),
        }
    }
}
