//! Bytes of known length that are read by ranges, and where a read puts them.

use crate::error::{Error, Result};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence of bytes of known length, fetched, decoded or made when they are read.
pub trait Bytes: Send + Sync {
    /// The number of bytes.
    fn len(&self) -> u64;

    /// Appends the bytes in `range` to `out`. `Truncated` if they end before.
    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()>;
}

impl<B: Bytes + ?Sized> Bytes for &B {
    fn len(&self) -> u64 {
        B::len(self)
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        B::read(self, range, out)
    }
}

impl Bytes for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        out.append(part(self, range)?);
        Ok(())
    }
}

impl Bytes for Vec<u8> {
    fn len(&self) -> u64 {
        Bytes::len(self.as_slice())
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        self.as_slice().read(range, out)
    }
}

/// The bytes in `range` of `bytes`. `Truncated` if they end before.
pub fn part(bytes: &[u8], range: Range<u64>) -> Result<&[u8]> {
    let places = usize::try_from(range.start)
        .ok()
        .zip(usize::try_from(range.end).ok());
    let part = places.and_then(|(start, end)| bytes.get(start..end));
    part.ok_or_else(|| {
        let (end, len) = (range.end, bytes.len());
        let message = format!("byte {end} wanted, but there are only {len} bytes");
        Error::truncated(message).at(range.start)
    })
}

/// The numbers in `bytes`, little-endian u64. Ignores an incomplete one at the end.
pub fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let numbers = bytes.as_chunks().0.iter();
    numbers.map(|bytes| u64::from_le_bytes(*bytes))
}

/// So many zeros: a gap between two parts of a file.
pub struct Zeros(pub u64);

impl Bytes for Zeros {
    fn len(&self) -> u64 {
        self.0
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        out.write(|out| out.resize(out.len() + (range.end - range.start) as usize, 0));
        Ok(())
    }
}

/// Shared bytes. They are not copied where an output can share them.
impl Bytes for Arc<Vec<u8>> {
    fn len(&self) -> u64 {
        Vec::len(self) as u64
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        out.share(self.clone(), range.start as usize..range.end as usize)
    }
}

/// How long what is decoded for a read is useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// As long as there is room.
    Staying,
    /// Until sequential readers have passed it: while it is among the most recent in their share of the
    /// cache.
    Passing,
}

/// Where reads put their bytes, one after the other: memory that is used again after [`Output::clear`]. While
/// all bytes are a part of one chunk of the cache, that chunk is shared and not copied.
pub struct Output {
    /// How to cache the chunks of the reads. If None, because whoever reads cannot tell, the column of a
    /// fragment guesses from the reads before.
    pub(crate) keep: Option<Keep>,
    /// Not truncated between reads, so that it need not be filled with zeros each time.
    buffer: Vec<u8>,
    /// How many of its bytes were read.
    filled: usize,
    /// In place of the buffer.
    shared: Option<(Arc<Vec<u8>>, Range<usize>)>,
    /// Larger chunks are copied instead of shared: the cache does not count chunks that only readers hold.
    most_shared: usize,
}

impl Default for Output {
    fn default() -> Output {
        Output {
            keep: None,
            buffer: Vec::new(),
            filled: 0,
            shared: None,
            most_shared: 4 << 20,
        }
    }
}

impl Output {
    /// An empty output.
    pub fn new() -> Output {
        Output::default()
    }

    /// An empty output. Chunks that are read for it are cached as `keep` says.
    pub fn keeping(keep: impl Into<Option<Keep>>) -> Output {
        Output {
            keep: keep.into(),
            ..Output::default()
        }
    }

    /// What `read` reads into an empty output.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    pub fn of(read: impl FnOnce(&mut Output) -> Result<()>) -> Result<Output> {
        let mut out = Output::new();
        read(&mut out)?;
        Ok(out)
    }

    /// This output, which shares no chunk of more than `bytes` bytes.
    #[must_use]
    pub(crate) fn sharing_at_most(self, bytes: usize) -> Output {
        Output {
            most_shared: bytes,
            ..self
        }
    }

    /// The bytes of the chunk that it shares, all of it; 0 if it shares none.
    pub(crate) fn held(&self) -> usize {
        self.shared.as_ref().map_or(0, |(chunk, _)| Vec::len(chunk))
    }

    /// The bytes in `range`: as a part of the chunk that is shared, if that has at most `most` bytes, or
    /// copied.
    pub(crate) fn shared_part(&self, range: Range<usize>, most: usize) -> (Arc<Vec<u8>>, Range<usize>) {
        match &self.shared {
            Some((chunk, part)) if Vec::len(chunk) <= most => {
                (chunk.clone(), part.start + range.start..part.start + range.end)
            }
            _ => (Arc::new(self[range.clone()].to_vec()), 0..range.len()),
        }
    }

    /// Forgets the bytes; their memory is used again.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.shared = None;
    }

    /// The bytes of memory that it holds of its own, used or not.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Appends `bytes`.
    pub fn append(&mut self, bytes: &[u8]) {
        self.write(|out| out.extend_from_slice(bytes));
    }

    /// Appends the part `range` of a chunk.
    ///
    /// # Errors
    ///
    /// `Internal` if it has no such part.
    pub fn share(&mut self, chunk: Arc<Vec<u8>>, range: Range<usize>) -> Result<()> {
        let part = chunk
            .get(range.clone())
            .ok_or_else(|| Error::internal("the decoded chunk is shorter than its index says"))?;
        match self.is_empty() && Vec::len(&chunk) <= self.most_shared {
            true => self.shared = Some((chunk, range)),
            false => self.append(part),
        }
        Ok(())
    }

    /// Appends `length` bytes, all of which `fill` overwrites.
    ///
    /// # Errors
    ///
    /// Those of `fill`.
    pub fn fill(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        self.gather();
        let end = self.filled + length;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        fill(&mut self.buffer[self.filled..end])?;
        self.filled = end;
        Ok(())
    }

    /// Lets `write` append to the bytes, or change them.
    pub fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.gather();
        self.buffer.truncate(self.filled);
        let result = write(&mut self.buffer);
        self.filled = self.buffer.len();
        result
    }

    /// Removes `skip` bytes from byte `start` on, and all after the next `length`. `Internal` if there are
    /// fewer.
    pub(crate) fn cut(&mut self, start: usize, skip: usize, length: usize) -> Result<()> {
        let (first, end) = (start + skip, start + length);
        if self.len() < first + length {
            let message = format!("{} bytes were read, {} wanted", self.len() - start, skip + length);
            return Err(Error::internal(message));
        }
        if skip > 0 || self.len() > end {
            self.write(|out| {
                out.drain(start..first);
                out.truncate(end);
            });
        }
        Ok(())
    }

    /// Calls `read` with this output, in which chunks are cached as `keep` says.
    pub(crate) fn kept<T>(&mut self, keep: Keep, read: impl FnOnce(&mut Output) -> T) -> T {
        let before = self.keep.replace(keep);
        let result = read(self);
        self.keep = before;
        result
    }

    /// Copies what is shared into the buffer.
    fn gather(&mut self) {
        if let Some((chunk, range)) = self.shared.take() {
            self.append(&chunk[range]);
        }
    }
}

impl Deref for Output {
    type Target = [u8];

    /// The bytes so far.
    fn deref(&self) -> &[u8] {
        match &self.shared {
            Some((chunk, range)) => &chunk[range.clone()],
            None => &self.buffer[..self.filled],
        }
    }
}

impl AsRef<[u8]> for Output {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Output> for Vec<u8> {
    fn from(mut output: Output) -> Vec<u8> {
        output.write(std::mem::take)
    }
}

/// The position of a reader in a file that it has open.
#[derive(Debug, Default)]
pub struct SequentialDetector {
    /// The end of the previous read.
    position: AtomicU64,
}

/// The most bytes between the end of a read and the start of a sequential next one. The kernel sends several
/// requests at once, which overtake each other, and skips pages that it has.
const MAX_DISTANCE: u64 = 4 << 20;

impl SequentialDetector {
    /// How to cache the chunks of a read of `range`. Chunks of a sequential reader, which will soon be past
    /// them, are [`Keep::Passing`].
    pub fn next(&self, range: &Range<u64>) -> Keep {
        let position = self.position.swap(range.end, Ordering::Relaxed);
        if range.start.abs_diff(position) <= MAX_DISTANCE {
            Keep::Passing
        } else {
            Keep::Staying
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_output_is_that_of_its_chunk_unless_that_is_large() {
        let chunk: Arc<Vec<u8>> = Arc::new((0..100).collect());
        let mut out = Output::new();
        out.share(chunk.clone(), 10..20).unwrap();
        for (most, is_shared) in [(100, true), (99, false)] {
            let (bytes, part) = out.shared_part(3..7, most);
            assert_eq!(bytes[part], chunk[13..17]);
            assert_eq!(Arc::ptr_eq(&bytes, &chunk), is_shared);
        }
        out.append(b"x");
        let (bytes, part) = out.shared_part(8..11, 100);
        assert_eq!(bytes[part], [18, 19, b'x']);
    }

    #[test]
    fn a_part_of_one_chunk_is_shared_and_others_are_copied() {
        let chunk: Arc<Vec<u8>> = Arc::new((0..100).collect());
        let mut out = Output::new();
        out.share(chunk.clone(), 10..20).unwrap();
        assert!(std::ptr::eq(&out[0], &chunk[10]));
        out.share(chunk.clone(), 50..52).unwrap();
        out.fill(2, |room| {
            room.copy_from_slice(&[7, 8]);
            Ok(())
        })
        .unwrap();
        out.append(b"x");
        let expected = [&chunk[10..20], &chunk[50..52], &[7, 8, b'x']].concat();
        assert_eq!(*out, *expected);
        // What was there before does not show.
        out.clear();
        assert!(out.is_empty());
        out.write(|out| out.resize(3, 0));
        assert_eq!(*out, [0; 3]);
        assert!(out.fill(5, |_| Err(Error::internal("not filled"))).is_err());
        assert_eq!(*out, [0; 3]);
        assert!(out.share(chunk, 90..101).is_err());
        assert_eq!(Vec::from(out), [0; 3]);
    }

    #[test]
    fn bytes_beyond_the_end_are_missing() {
        let bytes = b"bytes".to_vec();
        let mut out = Output::new();
        bytes.read(1..3, &mut out).unwrap();
        bytes.read(5..5, &mut out).unwrap();
        assert_eq!(*out, *b"yt");
        for range in [4..6, 6..6, u64::MAX - 1..u64::MAX] {
            let error = bytes.read(range, &mut out).unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::Truncated);
        }
    }

    #[test]
    fn reads_that_follow_each_other_are_sequential() {
        const MIB: u64 = 1 << 20;
        let sequence = SequentialDetector::default();
        // The second and the third are swapped.
        for start in [0, 2, 1, 3, 4] {
            assert_eq!(sequence.next(&(start * MIB..(start + 1) * MIB)), Keep::Passing);
        }
        assert_eq!(sequence.next(&(100 * MIB..101 * MIB)), Keep::Staying);
        assert_eq!(sequence.next(&(101 * MIB..102 * MIB)), Keep::Passing);
        assert_eq!(sequence.next(&(0..8)), Keep::Staying);
    }
}
