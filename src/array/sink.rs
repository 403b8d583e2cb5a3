//! Collects the bytes that a read returns.

use super::cache::Keep;
use super::read_bytes::ReadBytes;
use crate::error::{Error, Result};
use crate::storage::Blob;
use std::ops::Range;
use std::sync::Arc;

/// Collects the bytes that a read returns. A part of a single chunk is not copied.
pub struct Sink<'s> {
    /// How to cache the chunks of the read.
    pub keep: Keep,
    /// Not truncated between reads, so that it need not be filled with zeros each time.
    scratch: &'s mut Vec<u8>,
    /// How many of its bytes are collected.
    filled: usize,
    single: Option<(Arc<Vec<u8>>, Range<usize>)>,
}

impl<'s> Sink<'s> {
    /// Larger chunks are copied instead of shared: the cache does not count chunks that only readers hold.
    const MAX_SHARED: usize = 4 << 20;

    /// A sink that appends to `out`: see [`Sink::append`].
    pub fn behind(out: &'s mut Vec<u8>, keep: Keep) -> Self {
        Sink {
            keep,
            filled: out.len(),
            scratch: out,
            single: None,
        }
    }

    /// An empty sink that may use `scratch`.
    pub fn new(scratch: &'s mut Vec<u8>, keep: Keep) -> Self {
        Sink {
            keep,
            scratch,
            filled: 0,
            single: None,
        }
    }

    /// The number of bytes collected, after those that were there before.
    pub fn len(&self) -> usize {
        let single = self.single.as_ref().map_or(0, |(_, range)| range.len());
        self.filled + single
    }

    /// Appends a part of a chunk.
    pub fn shared(&mut self, data: Arc<Vec<u8>>, range: Range<usize>) -> Result<()> {
        let part = data
            .get(range.clone())
            .ok_or_else(|| Error::internal("the decoded chunk is shorter than its index says"))?;
        if self.filled == 0 && self.single.is_none() && data.len() <= Self::MAX_SHARED {
            self.single = Some((data, range));
            return Ok(());
        }
        self.write(|scratch| scratch.extend_from_slice(part));
        Ok(())
    }

    /// Appends `length` bytes of a file.
    pub fn copy(&mut self, blob: &dyn Blob, offset: u64, length: usize) -> Result<()> {
        blob.read_at(offset, self.room(length))
    }

    /// Appends `length` bytes of undefined content, for the caller to overwrite.
    fn room(&mut self, length: usize) -> &mut [u8] {
        self.gather();
        let start = self.filled;
        self.filled = start + length;
        if self.scratch.len() < self.filled {
            self.scratch.resize(self.filled, 0);
        }
        &mut self.scratch[start..self.filled]
    }

    /// Copies the part of a single chunk into the scratch memory.
    fn gather(&mut self) {
        if let Some((data, range)) = self.single.take() {
            let part = &data[range];
            self.scratch.truncate(self.filled);
            self.scratch.extend_from_slice(part);
            self.filled = self.scratch.len();
        }
    }

    /// Lets `write` append to the bytes, or change them.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.gather();
        self.scratch.truncate(self.filled);
        let result = write(self.scratch);
        self.filled = self.scratch.len();
        result
    }

    /// Ends a sink made by [`Sink::behind`]: all bytes are in `out`, and nothing after them.
    pub fn append(mut self) {
        self.write(|_| ());
    }

    /// The collected bytes.
    pub fn finish(self) -> ReadBytes<'s> {
        match self.single {
            Some((data, range)) => ReadBytes::Shared(data, range),
            None => ReadBytes::Scratch(&self.scratch[..self.filled]),
        }
    }
}
