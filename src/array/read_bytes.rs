//! The bytes that a read returns.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// The bytes that a read returns: collected for it, or a part of something shared.
#[non_exhaustive]
pub enum ReadBytes<'s> {
    /// In the caller's scratch memory.
    Scratch(&'s [u8]),
    /// A part of shared memory.
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Deref for ReadBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ReadBytes::Scratch(bytes) => bytes,
            ReadBytes::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}
