//! One file of a field: its tiles, found, and read chunk by chunk.

use super::cache::{Item, Key};
use super::engine::Engine;
use super::geometry::Geometry;
use super::piece::Piece;
use super::tile_list::TileList;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::TileCodec;
use crate::filter::chunk::{self, ChunkIndex, ChunkPosition};
use crate::storage::Blob;
use std::ops::Range;
use std::sync::Arc;

/// A decoded chunk: its bytes and, where the codec embeds them, its offsets.
pub type Chunk = (Arc<Vec<u8>>, Option<Arc<Vec<u8>>>);

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
                )),
            )),
            None => Err(Error::new(
                ErrorKind::Internal,
                format!("tile {tile} of {}", self.geometry.tile_num),
            )),
        }
    }

    fn place(&self, tile: u64, error: Error) -> Error {
        error
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
        let item = self.engine.cache.get(key, estimate, || {
            let index = ChunkIndex::read(&*self.blob, extent.start, extent.end, size)
                .map_err(|e| self.place(tile, e))?;
            self.engine.stats.tiles_opened.add(1);
            Ok(Item::Index(Arc::new(index)))
        })?;
        match item {
            Item::Index(index) => Ok(index),
            Item::Chunk { .. } => Err(Error::new(ErrorKind::Internal, "a chunk in place of an index")),
        }
    }

    /// The decoded chunk `chunk` of tile `tile`.
    pub fn chunk(&self, tile: u64, index: &ChunkIndex, chunk: usize) -> Result<Chunk> {
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
        let item = self
            .engine
            .cache
            .get(key, u64::from(position.original_length), || {
                // The schema was read with this key, so it is the data that are wrong.
                let place = |e: Error| {
                    let e = if e.kind() == ErrorKind::WrongKey {
                        e.with_kind(ErrorKind::ChecksumMismatch)
                    } else {
                        e
                    };
                    self.place(
                        tile,
                        e.at(position.stored_offset)
                            .in_part(format_args!("chunk {chunk}")),
                    )
                };
                let stored = self
                    .blob
                    .read(position.stored_offset, position.stored_length())
                    .map_err(place)?;
                let (metadata, data) = stored.split_at(position.metadata_length as usize);
                let decoded = self
                    .codec
                    .decode_chunk_of_cells(
                        position.original_length,
                        self.geometry.cells_of(tile),
                        metadata,
                        data,
                    )
                    .map_err(place)?;
                self.engine.stats.chunks_decoded.add(1);
                self.engine.stats.bytes_decoded.add(decoded.data.len() as u64);
                let offsets = decoded.offsets.map(|offsets| {
                    Arc::new(offsets.iter().flat_map(|o| o.to_le_bytes()).collect::<Vec<u8>>())
                });
                Ok(Item::Chunk {
                    data: Arc::new(decoded.data),
                    offsets,
                })
            })?;
        match item {
            Item::Chunk { data, offsets } => Ok((data, offsets)),
            Item::Index(_) => Err(Error::new(ErrorKind::Internal, "an index in place of a chunk")),
        }
    }

    /// Hands the bytes in `range` of the unfiltered tile `tile` of `size` bytes to `sink`, in order: each piece a chunk and the part of it wanted.
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
                let (data, _) = self.chunk(tile, &index, number)?;
                sink.shared(data, within)?;
            }
            position = end;
        }
        Ok(())
    }

    /// The offsets embedded in tile `tile`, whose values unfilter to `size` bytes: `cells` little-endian u64. None where the tile has no
    /// values at all, so that every offset is 0.
    pub fn embedded_offsets(&self, tile: u64, size: u64, cells: u64) -> Result<Option<Arc<Vec<u8>>>> {
        let index = self.index(tile, size)?;
        match index.chunks() {
            [] => Ok(None),
            [_] => match self.chunk(tile, &index, 0)?.1 {
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
    scratch: &'s mut Vec<u8>,
    single: Option<(Arc<Vec<u8>>, Range<usize>)>,
}

impl<'s> Sink<'s> {
    /// An empty answer that may be put together in `scratch`.
    pub fn new(scratch: &'s mut Vec<u8>) -> Self {
        scratch.clear();
        Sink {
            scratch,
            single: None,
        }
    }

    /// Appends a part of a chunk.
    pub fn shared(&mut self, data: Arc<Vec<u8>>, range: Range<usize>) -> Result<()> {
        if self.scratch.is_empty() && self.single.is_none() {
            self.single = Some((data, range));
            return Ok(());
        }
        self.scratch().extend_from_slice(
            data.get(range)
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a chunk shorter than its index says"))?,
        );
        Ok(())
    }

    /// Appends `length` bytes of a file.
    pub fn copy(&mut self, blob: &dyn Blob, offset: u64, length: usize) -> Result<()> {
        let scratch = self.scratch();
        let start = scratch.len();
        scratch.resize(start + length, 0);
        match scratch.get_mut(start..) {
            Some(out) => blob.read_at(offset, out),
            None => Ok(()),
        }
    }

    /// The memory that everything is gathered in from now on.
    pub fn scratch(&mut self) -> &mut Vec<u8> {
        if let Some((data, range)) = self.single.take() {
            self.scratch.extend_from_slice(data.get(range).unwrap_or(&[]));
        }
        self.scratch
    }

    /// The answer.
    pub fn finish(self) -> Piece<'s> {
        match self.single {
            Some((data, range)) => Piece::Shared(data, range),
            None => Piece::Scratch(self.scratch),
        }
    }
}
