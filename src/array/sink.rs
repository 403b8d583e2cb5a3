//! Where reads put their answers.

use super::cache::Keep;
use super::read_bytes::ReadBytes;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Blob;
use std::ops::Range;
use std::sync::Arc;

/// Collects the answer to a read. An answer that is one part of one chunk is not copied.
pub struct Sink<'s> {
    /// How the chunks that it takes are cached.
    pub keep: Keep,
    /// Is not truncated between answers, so that it need not be filled with zeros each time.
    scratch: &'s mut Vec<u8>,
    /// How much of it is the answer.
    filled: usize,
    single: Option<(Arc<Vec<u8>>, Range<usize>)>,
}

impl<'s> Sink<'s> {
    /// Larger chunks are copied instead of shared: chunks that only answers hold are not counted by the
    /// cache.
    const HELD: usize = 4 << 20;

    /// An answer that is appended to `out`: see [`Sink::append`].
    pub fn behind(out: &'s mut Vec<u8>, keep: Keep) -> Self {
        Sink {
            keep,
            filled: out.len(),
            scratch: out,
            single: None,
        }
    }

    /// An empty answer that may be put together in `scratch`.
    pub fn new(scratch: &'s mut Vec<u8>, keep: Keep) -> Self {
        Sink {
            keep,
            scratch,
            filled: 0,
            single: None,
        }
    }

    /// Appends a part of a chunk.
    pub fn shared(&mut self, data: Arc<Vec<u8>>, range: Range<usize>) -> Result<()> {
        if self.filled == 0 && self.single.is_none() && data.len() <= Self::HELD {
            self.single = Some((data, range));
            return Ok(());
        }
        let part = data.get(range).ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "the decoded chunk is shorter than its index says",
            )
        })?;
        self.write(|scratch| scratch.extend_from_slice(part));
        Ok(())
    }

    /// Appends `length` bytes of a file.
    pub fn copy(&mut self, blob: &dyn Blob, offset: u64, length: usize) -> Result<()> {
        blob.read_at(offset, self.room(length))
    }

    /// Appends `length` bytes of any content, for the caller to overwrite.
    fn room(&mut self, length: usize) -> &mut [u8] {
        self.gather();
        let start = self.filled;
        self.filled = start.saturating_add(length);
        if self.scratch.len() < self.filled {
            self.scratch.resize(self.filled, 0);
        }
        self.scratch.get_mut(start..self.filled).unwrap_or_default()
    }

    /// Moves the part of a single chunk into the scratch memory.
    fn gather(&mut self) {
        if let Some((data, range)) = self.single.take() {
            let part = data.get(range).unwrap_or(&[]);
            self.scratch.truncate(self.filled);
            self.scratch.extend_from_slice(part);
            self.filled = self.scratch.len();
        }
    }

    /// Lets `write` append to the answer, or change it.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.gather();
        self.scratch.truncate(self.filled);
        let result = write(self.scratch);
        self.filled = self.scratch.len();
        result
    }

    /// Finishes an answer made by [`Sink::behind`]: all of it is in `out`, and nothing after it.
    pub fn append(mut self) {
        self.write(|_| ());
    }

    /// The answer.
    pub fn finish(self) -> ReadBytes<'s> {
        match self.single {
            Some((data, range)) => ReadBytes::Shared(data, range),
            None => ReadBytes::Scratch(self.scratch.get(..self.filled).unwrap_or_default()),
        }
    }
}
