//! One file of a field: its tiles, found, and read chunk by chunk.

use super::cache::{Item, Keep, Key};
use super::engine::Engine;
use super::geometry::Geometry;
use super::piece::Piece;
use super::tile_list::TileList;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::TileCodec;
use crate::filter::chunk::{self, ChunkIndex, ChunkPosition};
use crate::storage::Blob;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// A decoded chunk: its bytes and, where the codec embeds them, its offsets.
pub type Chunk = (Arc<Vec<u8>>, Option<Arc<Vec<u8>>>);

thread_local! {
    /// Room for a chunk as stored, kept from chunk to chunk.
    static STORED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Tiles of at most this many bytes as stored are read as a whole where the storage fetches them.
pub(super) const FETCHED_WHOLE: u64 = 4 << 20;

/// Above this much, the room for stored chunks is given back.
const STORED_KEPT: usize = 1 << 20;

/// One file of a field of a fragment, open. Cloning shares the file.
#[derive(Clone)]
pub struct PartFile {
    /// Shared state.
    pub engine: Arc<Engine>,
    /// Its number in the cache.
    pub object: u64,
    /// The file; held for as long as somebody reads, so that deleting it does not matter to them.
    pub blob: Arc<dyn Blob>,
    /// How its tiles are filtered.
    pub codec: TileCodec,
    /// Where each tile begins.
    pub offsets: Arc<TileList>,
    /// Where the last tile ends, as the fragment's metadata has it.
    pub file_size: u64,
    /// The tiles of the fragment.
    pub geometry: Geometry,
}

impl PartFile {
    /// First byte of tile `tile`, and the byte behind its last.
    pub fn extent(&self, tile: u64) -> Result<Range<u64>> {
        let next = tile.saturating_add(2);
        let around = self.offsets.entries(self.geometry.tile_num, tile..next)?;
        let end = around.get(1).copied().unwrap_or(self.file_size);
        match around.first() {
            Some(&start) if start <= end && end <= self.file_size && end - start >= 8 => Ok(start..end),
            Some(start) => Err(self.place(
                tile,
                Error::corrupt(format!(
                    "the tile lies at {start} to {end} in a file of {}",
                    self.file_size
                ))
                .at(*start),
            )),
            None => Err(Error::new(
                ErrorKind::Internal,
                format!("tile {tile} of {}", self.geometry.tile_num),
            )),
        }
    }

    /// First byte of tile `tile`.
    pub fn start(&self, tile: u64) -> Result<u64> {
        Ok(self.extent(tile)?.start)
    }

    /// An error about tile `tile`, which begins where it is wrong unless that is known better.
    fn place(&self, tile: u64, error: Error) -> Error {
        let start = match error.offset() {
            None => self.offsets.get(self.geometry.tile_num, tile).ok().flatten(),
            known => known,
        };
        error
            .at(start.unwrap_or(0))
            .in_part(format_args!("tile {tile}"))
            .in_file(self.blob.display())
    }

    /// The number of chunks that tile `tile` states.
    pub fn stored_chunks(&self, tile: u64) -> Result<u64> {
        let extent = self.extent(tile)?;
        chunk::stored_chunks(&*self.blob, extent.start, extent.end).map_err(|e| self.place(tile, e))
    }

    /// The chunks of tile `tile`, which must unfilter to `size` bytes.
    pub fn index(&self, tile: u64, size: u64) -> Result<Arc<ChunkIndex>> {
        let extent = self.extent(tile)?;
        let estimate =
            (size / 65_536).min((extent.end - extent.start) / 12) * size_of::<ChunkPosition>() as u64;
        let key = Key {
            object: self.object,
            tile,
            chunk: Key::INDEX,
        };
        let item = self.engine.cache.get(key, estimate, Keep::Staying, || {
            // Where each read is a request, the walk from chunk to chunk would be many.
            if extent.end - extent.start <= FETCHED_WHOLE {
                self.blob.will_read(extent.clone());
            }
            let index = ChunkIndex::read(&*self.blob, extent.start, extent.end, size)
                .map_err(|e| self.place(tile, e))?;
            self.engine.stats.tiles_opened.add(1);
            Ok(Item::Index(Arc::new(index)))
        })?;
        match item {
            Item::Index(index) => Ok(index),
            _ => Err(Error::new(ErrorKind::Internal, "a chunk in place of an index")),
        }
    }

    /// The decoded chunk `chunk` of tile `tile`, to be cached as `keep` says.
    pub fn chunk(&self, tile: u64, index: &ChunkIndex, chunk: usize, keep: Keep) -> Result<Chunk> {
        let position = *index
            .chunks()
            .get(chunk)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a chunk that its index lacks"))?;
        let number = u32::try_from(chunk).ok().filter(|&n| n != Key::INDEX);
        let number =
            number.ok_or_else(|| self.place(tile, Error::limit(format!("chunk {chunk} of a tile"))))?;
        let key = Key {
            object: self.object,
            tile,
            chunk: number,
        };
        // Twice the offsets: as numbers, and as bytes.
        let offsets = match self.codec.embeds_offsets {
            true => self.geometry.cells_of(tile).saturating_mul(16),
            false => 0,
        };
        let estimate = self
            .codec
            .working_memory(u64::from(position.original_length), position.stored_length())
            .saturating_add(offsets);
        self.engine
            .cache
            .check_size(estimate)
            .map_err(|e| self.place(tile, e.at(position.stored_offset)))?;
        let item = self.engine.cache.get(key, estimate, keep, || {
            self.decode(tile, position).map_err(|e| {
                // The schema was read with this key, so it is the data that are wrong.
                let e = match e.kind() {
                    ErrorKind::WrongKey => e.with_kind(ErrorKind::ChecksumMismatch),
                    _ => e,
                };
                self.place(
                    tile,
                    e.at(position.stored_offset)
                        .in_part(format_args!("chunk {chunk}")),
                )
            })
        })?;
        match item {
            Item::Chunk { data, offsets } => Ok((data, offsets)),
            _ => Err(Error::new(ErrorKind::Internal, "an index in place of a chunk")),
        }
    }

    /// Reads a chunk of tile `tile` and decodes it.
    fn decode(&self, tile: u64, position: ChunkPosition) -> Result<Item> {
        let length = position.stored_length();
        let end = position
            .stored_offset
            .checked_add(length)
            .filter(|&end| end <= self.blob.len());
        let Some(length) = end.and(usize::try_from(length).ok()) else {
            return Err(Error::truncated(format!(
                "{length} bytes wanted, the file has {}",
                self.blob.len()
            )));
        };
        let mut room = STORED.take();
        if room.len() < length {
            room.resize(length, 0);
        }
        let stored = room.get_mut(..length).unwrap_or_default();
        let decoded = self.blob.read_at(position.stored_offset, stored).and_then(|()| {
            let (metadata, data) = stored.split_at(position.metadata_length as usize);
            self.codec.decode_chunk_of_cells(
                position.original_length,
                self.geometry.cells_of(tile),
                metadata,
                data,
            )
        });
        if room.capacity() <= STORED_KEPT {
            STORED.set(room);
        }
        let decoded = decoded?;
        self.engine.stats.chunks_decoded.add(1);
        self.engine.stats.bytes_decoded.add(decoded.data.len() as u64);
        let offsets = decoded.offsets.map(|offsets| {
            let mut bytes = Vec::with_capacity(offsets.len().saturating_mul(8));
            bytes.extend(offsets.iter().flat_map(|o| o.to_le_bytes()));
            Arc::new(bytes)
        });
        Ok(Item::Chunk {
            data: Arc::new(decoded.data),
            offsets,
        })
    }

    /// Hands the bytes in `range` of the unfiltered tile `tile` of `size` bytes to `sink`, in order: each
    /// piece a chunk and the part of it wanted.
    pub fn read(&self, tile: u64, size: u64, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let index = self.index(tile, size)?;
        let mut position = range.start;
        while position < range.end {
            let (number, found) = index
                .find(position)
                .and_then(|n| Some((n, index.chunks().get(n)?)))
                .ok_or_else(|| {
                    self.place(
                        tile,
                        Error::truncated(format!("byte {position} wanted of {size}")),
                    )
                })?;
            let end = range
                .end
                .min(found.original_offset + u64::from(found.original_length));
            let within = (position - found.original_offset) as usize..(end - found.original_offset) as usize;
            if self.codec.is_identity() {
                let start = found.stored_offset + u64::from(found.metadata_length) + within.start as u64;
                if found.filtered_length != found.original_length || found.metadata_length != 0 {
                    return Err(self.place(
                        tile,
                        Error::corrupt("a chunk without filters whose lengths differ")
                            .at(found.stored_offset)
                            .in_part(format_args!("chunk {number}")),
                    ));
                }
                sink.copy(&*self.blob, start, within.len())
                    .map_err(|e| self.place(tile, e))?;
            } else {
                let (data, _) = self.chunk(tile, &index, number, sink.keep)?;
                sink.shared(data, within)?;
            }
            position = end;
        }
        Ok(())
    }

    /// The offsets embedded in tile `tile`, whose values unfilter to `size` bytes: `cells` little-endian u64.
    /// None where the tile has no values at all, so that every offset is 0.
    pub fn embedded_offsets(
        &self,
        tile: u64,
        size: u64,
        cells: u64,
        keep: Keep,
    ) -> Result<Option<Arc<Vec<u8>>>> {
        let index = self.index(tile, size)?;
        match index.chunks() {
            [] => Ok(None),
            [_] => match self.chunk(tile, &index, 0, keep)?.1 {
                Some(offsets) if offsets.len() as u64 / 8 == cells => Ok(Some(offsets)),
                Some(offsets) => Err(self.place(
                    tile,
                    Error::corrupt(format!(
                        "{} embedded offsets in a tile of {cells} cells",
                        offsets.len() / 8
                    )),
                )),
                None => Err(Error::new(
                    ErrorKind::Internal,
                    "a codec that should embed offsets gave none",
                )),
            },
            chunks => Err(self.place(
                tile,
                Error::corrupt(format!("{} chunks in a tile with embedded offsets", chunks.len())),
            )),
        }
    }
}

/// Where a read puts its answer: nothing is copied while it is one part of one chunk.
pub struct Sink<'s> {
    /// How the chunks that it takes are cached.
    pub keep: Keep,
    /// Keeps its length from answer to answer, so that it is not filled with zeros each time.
    scratch: &'s mut Vec<u8>,
    /// How much of it is the answer.
    filled: usize,
    single: Option<(Arc<Vec<u8>>, Range<usize>)>,
}

impl<'s> Sink<'s> {
    /// Chunks of more bytes than this are copied from: the cache does not count those that answers hold, and
    /// need not keep them either.
    const HELD: usize = 4 << 20;

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
        let part = data
            .get(range)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a chunk shorter than its index says"))?;
        self.room(part.len()).copy_from_slice(part);
        Ok(())
    }

    /// Appends `length` bytes of a file.
    pub fn copy(&mut self, blob: &dyn Blob, offset: u64, length: usize) -> Result<()> {
        blob.read_at(offset, self.room(length))
    }

    /// Appends `length` bytes to be written, which hold anything.
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
            self.room(part.len()).copy_from_slice(part);
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

    /// The answer.
    pub fn finish(self) -> Piece<'s> {
        match self.single {
            Some((data, range)) => Piece::Shared(data, range),
            None => Piece::Scratch(self.scratch.get(..self.filled).unwrap_or_default()),
        }
    }
}
