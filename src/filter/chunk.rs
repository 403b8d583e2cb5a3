//! The chunks of a tile: their positions, found without decoding any.
//!
//! A tile is a count of chunks u64, then for each chunk its original length u32, filtered length u32,
//! metadata length u32, metadata and filtered data. Two chunks of 3 and 1 bytes without filters:
//!
//! ```text
//! 02 00 00 00 00 00 00 00   two chunks
//! 03 00 00 00  03 00 00 00  00 00 00 00   aa bb cc
//! 01 00 00 00  01 00 00 00  00 00 00 00   dd
//! ```
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/tile.md>

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::storage::Blob;

/// Bytes of a chunk's three lengths.
const HEADER_SIZE: u64 = 12;

/// The most chunks of a tile: 64 GiB in chunks of 64 KiB.
const MAX_CHUNKS: u64 = 1 << 20;

/// Bytes per read in the pass over the headers: small chunks share a read, large ones waste little.
const WINDOW: u64 = 512;

/// The position of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPosition {
    /// Offset of its first byte in the unfiltered tile.
    pub original_offset: u64,
    /// Bytes once unfiltered; never 0.
    pub original_length: u32,
    /// Offset of its metadata in the file; the filtered data follow.
    pub stored_offset: u64,
    /// Bytes of metadata.
    pub metadata_length: u32,
    /// Bytes of filtered data.
    pub filtered_length: u32,
}

impl ChunkPosition {
    /// Bytes of metadata and filtered data.
    pub fn stored_length(&self) -> u64 {
        u64::from(self.metadata_length) + u64::from(self.filtered_length)
    }
}

/// The chunks of one tile, in order, without empty ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkIndex {
    chunks: Vec<ChunkPosition>,
    original_length: u64,
}

impl ChunkIndex {
    /// Walks the chunk headers of the tile in `[start, end)` of `blob`, which must unfilter to `expected`
    /// bytes. Reads nothing but headers.
    ///
    /// Fails with `Truncated`, `LimitExceeded` or `Corrupt` if headers do not fill the tile exactly or do not
    /// add up to `expected`.
    pub fn read(blob: &dyn Blob, start: u64, end: u64, expected: u64) -> Result<ChunkIndex> {
        let mut window = Window::new(blob, end);
        let stored_chunks = Cursor::with_base(window.at(start, 8)?, start).u64("number of chunks")?;
        let mut position = start + 8;
        if stored_chunks > ((end - position) / HEADER_SIZE).min(MAX_CHUNKS) {
            let size = end - start;
            let message = format!("{stored_chunks} chunks are too many for a tile of {size} bytes");
            return Err(place(blob, start, Error::limit(message)));
        }
        let mut index = ChunkIndex {
            chunks: Vec::new(),
            original_length: 0,
        };
        for chunk in 0..stored_chunks {
            let header = position;
            let mut c = Cursor::with_base(window.at(position, HEADER_SIZE)?, position);
            let original_length = c.u32("original length")?;
            let filtered_length = c.u32("filtered length")?;
            let metadata_length = c.u32("metadata length")?;
            let found = ChunkPosition {
                original_offset: index.original_length,
                original_length,
                stored_offset: position + HEADER_SIZE,
                metadata_length,
                filtered_length,
            };
            if found.stored_length() > end - found.stored_offset {
                let (size, left) = (found.stored_length(), end - found.stored_offset);
                let message =
                    format!("chunk {chunk} takes {size} bytes, but only {left} are left in the tile");
                return Err(place(blob, header, Error::truncated(message)));
            }
            position = found.stored_offset + found.stored_length();
            index.original_length += u64::from(original_length);
            if index.original_length > expected {
                let message =
                    format!("the chunks hold more than the {expected} bytes that the tile should have");
                return Err(place(blob, header, Error::corrupt(message)));
            }
            if original_length > 0 {
                index.chunks.push(found);
            }
        }
        if index.original_length != expected {
            let held = index.original_length;
            let message = format!("the chunks hold {held} bytes, the tile should have {expected}");
            return Err(place(blob, start, Error::corrupt(message)));
        }
        if position != end {
            let message = format!("{} bytes are left over after the last chunk", end - position);
            return Err(place(blob, position, Error::corrupt(message)));
        }
        index.chunks.shrink_to_fit();
        Ok(index)
    }

    /// The chunks that are not empty.
    pub fn chunks(&self) -> &[ChunkPosition] {
        &self.chunks
    }

    /// Index of the chunk that holds byte `offset` of the unfiltered tile; None past its end.
    pub fn find(&self, offset: u64) -> Option<usize> {
        if offset >= self.original_length {
            return None;
        }
        self.chunks
            .partition_point(|chunk| chunk.original_offset <= offset)
            .checked_sub(1)
    }

    /// Bytes of memory that the index takes, for the cache.
    pub fn memory(&self) -> u64 {
        (size_of::<Self>() + self.chunks.capacity() * size_of::<ChunkPosition>()) as u64
    }
}

/// The number of chunks that a tile declares. Reads only that.
pub fn stored_chunks(blob: &dyn Blob, start: u64, end: u64) -> Result<u64> {
    Cursor::with_base(Window::new(blob, end).at(start, 8)?, start).u64("number of chunks")
}

fn place(blob: &dyn Blob, offset: u64, error: Error) -> Error {
    error.at(offset).in_part("chunk headers").in_file(blob.display())
}

/// A buffer over a part of the file. Moves forward as headers are read.
struct Window<'a> {
    blob: &'a dyn Blob,
    end: u64,
    buffer: Vec<u8>,
    start: u64,
}

impl<'a> Window<'a> {
    fn new(blob: &'a dyn Blob, end: u64) -> Self {
        Window {
            blob,
            end,
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// `size` bytes at `offset`; an error if the tile ends before.
    fn at(&mut self, offset: u64, size: u64) -> Result<&[u8]> {
        let wanted_end = offset
            .checked_add(size)
            .filter(|&wanted_end| wanted_end <= self.end);
        let Some(wanted_end) = wanted_end else {
            let left = self.end.saturating_sub(offset);
            let message = format!("{size} bytes wanted, {left} left in the tile");
            return Err(place(self.blob, offset, Error::truncated(message)));
        };
        if offset < self.start || wanted_end > self.start + self.buffer.len() as u64 {
            let take = WINDOW.min(self.end - offset);
            self.buffer = self.blob.read(offset, take)?;
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        self.buffer.get(from..from + size as usize).ok_or_else(|| {
            place(
                self.blob,
                offset,
                Error::truncated("the file ends within a chunk header"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::storage::MemoryBlob;

    fn tile(chunks: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
        let mut out = (chunks.len() as u64).to_le_bytes().to_vec();
        for (original, metadata, data) in chunks {
            out.extend(original.to_le_bytes());
            out.extend((data.len() as u32).to_le_bytes());
            out.extend((metadata.len() as u32).to_le_bytes());
            out.extend(*metadata);
            out.extend(*data);
        }
        out
    }

    fn read(bytes: &[u8], expected: u64) -> Result<ChunkIndex> {
        ChunkIndex::read(&MemoryBlob::new(bytes, "memory"), 0, bytes.len() as u64, expected)
    }

    #[test]
    fn finds_the_chunk_of_every_byte() {
        let big = vec![9; 2000];
        let bytes = tile(&[(3, b"mm", b"abc"), (0, b"", b""), (5, b"", &big), (1, b"x", b"d")]);
        let index = read(&bytes, 9).unwrap();
        assert_eq!((index.chunks().len(), index.original_length), (3, 9));
        let found: Vec<_> = (0..10).map(|offset| index.find(offset)).collect();
        let expected = [0, 0, 0, 1, 1, 1, 1, 1, 2].map(Some);
        assert_eq!(found[..9], expected);
        assert_eq!(found[9], None);
        let last = index.chunks()[2];
        assert_eq!(bytes[last.stored_offset as usize..], *b"xd");
    }

    #[test]
    fn a_tile_of_no_chunks_is_empty() {
        let index = read(&[0; 8], 0).unwrap();
        assert_eq!((index.chunks().len(), index.find(0)), (0, None));
        assert_eq!(read(&[0; 8], 4).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn every_wrong_length_is_found() {
        let good = tile(&[(3, b"mm", b"abc"), (1, b"", b"d")]);
        read(&good, 4).unwrap();
        for end in 0..good.len() {
            assert!(read(&good[..end], 4).is_err(), "cut at {end}");
        }
        let mut trailing = good.clone();
        trailing.push(0);
        assert_eq!(read(&trailing, 4).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(read(&good, 3).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(read(&good, 5).unwrap_err().kind(), ErrorKind::Corrupt);
        for count in [0u64, 1, 3, u64::MAX] {
            let mut bytes = good.clone();
            bytes[..8].copy_from_slice(&count.to_le_bytes());
            assert!(read(&bytes, 4).is_err(), "count {count}");
        }
    }
}
