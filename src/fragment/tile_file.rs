//! A file of filtered tiles, read chunk by chunk through the cache.

use super::geometry::Geometry;
use super::info::Edition;
use super::tile_list::{TileList, WINDOW};
use crate::bytes::{Keep, Output};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::TileCodec;
use crate::filter::chunk::{self, ChunkIndex, ChunkPosition};
use crate::filter::generic::MAX_WHOLE;
use crate::runtime::ahead::cells_ahead;
use crate::runtime::cache::{CacheKey, Entry};
use crate::storage::Blob;
use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A decoded chunk.
pub struct DecodedChunk {
    /// Unfiltered bytes.
    pub data: Arc<Vec<u8>>,
    /// Where the codec embeds them, the rebuilt offsets: one little-endian u64 a cell, relative to the tile.
    pub offsets: Option<Arc<Vec<u8>>>,
}

impl Entry for DecodedChunk {
    fn memory(&self) -> u64 {
        self.data.memory() + self.offsets.as_ref().map_or(0, |offsets| offsets.memory())
    }
}

impl Entry for ChunkIndex {
    fn memory(&self) -> u64 {
        ChunkIndex::memory(self)
    }
}

thread_local! {
    /// Room for a chunk as stored, kept from chunk to chunk.
    static STORED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Tiles of at most this many bytes as stored are read as a whole where the storage fetches them.
pub(super) const FETCHED_WHOLE: u64 = 4 << 20;

/// Above this much, the room for stored chunks is given back.
const STORED_KEPT: usize = 1 << 20;

/// An open file of a fragment's field; or a generic tile, which is treated as a file of one tile. Cloning
/// shares the file.
#[derive(Clone)]
pub struct TileFile {
    /// Shared state.
    pub engine: Arc<Engine>,
    /// Its path, relative to the source.
    pub path: PathBuf,
    /// The edition that the offsets are of.
    pub edition: Edition,
    /// Its number in the cache.
    pub object: u64,
    /// The file; held while somebody reads, so that deleting it does not matter to them.
    pub blob: Arc<dyn Blob>,
    /// How its tiles are filtered. Two streams between filters take no more than may be decoded at once.
    pub codec: TileCodec,
    /// Where each tile begins.
    pub offsets: Arc<dyn TileList>,
    /// Where the last tile ends, as the fragment's metadata has it.
    pub file_size: u64,
    /// The tiles of the fragment.
    pub geometry: Geometry,
    /// Whether it is a generic tile: errors say so, and its chunks count as metadata.
    pub generic: bool,
}

impl TileFile {
    /// The same with a codec that rebuilds the offsets which are embedded in the tiles.
    #[must_use]
    pub fn embedding_offsets(&self) -> Self {
        let mut file = self.clone();
        file.codec = file.codec.embedding_offsets();
        file
    }

    /// First byte of tile `tile`, and the byte behind its last.
    pub fn extent(&self, tile: u64) -> Result<Range<u64>> {
        let around = self.offsets.entries(self.geometry.tile_num, tile..tile + 2)?;
        let end = around.get(1).copied().unwrap_or(self.file_size);
        match around.first() {
            Some(&start) if start <= end && end <= self.file_size && end - start >= 8 => Ok(start..end),
            Some(start) => Err(self.place(
                tile,
                Error::corrupt(format!(
                    "the metadata places the tile at bytes {start} to {end}, but the file has {} bytes",
                    self.file_size
                ))
                .at(*start),
            )),
            None => Err(Error::internal(format!(
                "no tile {tile}: there are {}",
                self.geometry.tile_num
            ))),
        }
    }

    /// First byte of tile `tile`.
    pub fn start(&self, tile: u64) -> Result<u64> {
        Ok(self.extent(tile)?.start)
    }

    /// An error about tile `tile`, at the tile's first byte unless it has a place already.
    fn place(&self, tile: u64, error: Error) -> Error {
        let start = match error.offset() {
            None => self.offsets.entry(self.geometry.tile_num, tile).ok().flatten(),
            known => known,
        };
        let error = match start {
            Some(start) => error.at(start),
            None => error,
        };
        let error = match self.generic {
            true => error.in_part("generic tile"),
            false => error.in_part(format_args!("tile {tile}")),
        };
        error.in_file(self.blob.display())
    }

    /// The number of chunks that tile `tile` states.
    pub fn stored_chunks(&self, tile: u64) -> Result<u64> {
        let extent = self.extent(tile)?;
        chunk::stored_chunks(&*self.blob, extent.start, extent.end).map_err(|e| self.place(tile, e))
    }

    /// Tells the storage how far the reader goes that has come to tile `tile`, which begins at byte `start`,
    /// as far as that is known and not many tiles away. A wrong extent fails only who reads that tile.
    fn announce_part(&self, tile: u64, start: u64) {
        let Some(cells) = cells_ahead() else { return };
        let tiles = cells / self.geometry.tile_cells.max(1);
        if tiles >= WINDOW {
            return;
        }
        let last = (tile + tiles).min(self.geometry.tile_num - 1);
        if let Ok(last) = self.extent(last)
            && start < last.end
        {
            self.blob.will_read_through(start..last.end);
        }
    }

    /// The chunks of tile `tile`, which must unfilter to `size` bytes.
    pub fn index(&self, tile: u64, size: u64) -> Result<Arc<ChunkIndex>> {
        let key = CacheKey::tile(self.object, tile);
        // The tile's place is looked up only if the index is not cached.
        if let Some(index) = self.engine.cache.find(key) {
            return Ok(index);
        }
        let extent = self.extent(tile)?;
        // A chunk takes twelve bytes at the least, whatever size is declared.
        let chunks = (size / 65_536).min((extent.end - extent.start) / 12);
        let estimate = chunks * size_of::<ChunkPosition>() as u64;
        self.engine.cache.get(key, estimate, Keep::Staying, || {
            if !self.generic && self.engine.storage.is_remote() {
                self.announce_part(tile, extent.start);
            }
            // If each read is a request, walking from chunk to chunk would be many.
            if extent.end - extent.start <= FETCHED_WHOLE {
                self.blob.will_read(extent.clone());
            }
            let index = ChunkIndex::read(&*self.blob, extent.start, extent.end, size)
                .map_err(|e| self.place(tile, self.distrusted(extent, e)))?;
            if !self.generic {
                self.engine.stats.tiles_opened.add(1);
            }
            Ok(index)
        })
    }

    /// The decoded chunk `chunk` of tile `tile`, to be cached as `keep` says.
    pub fn chunk(
        &self,
        tile: u64,
        index: &ChunkIndex,
        chunk: usize,
        keep: Keep,
    ) -> Result<Arc<DecodedChunk>> {
        let position = index.chunks()[chunk];
        // Twice the offsets: as numbers, and as bytes.
        let offsets = match self.codec.embeds_offsets() {
            true => self.geometry.cells_of(tile).saturating_mul(16),
            false => 0,
        };
        let (original, stored) = (position.original_length, position.stored_length());
        let (usual, most) = self
            .codec
            .working_memory(original, stored, self.geometry.cells_of(tile));
        let cache = &self.engine.cache;
        let checked = match self.generic && u64::from(original) > MAX_WHOLE {
            true => Err(Error::limit(format!(
                "a chunk of {original} bytes is too large for metadata"
            ))),
            false => cache.check_size(usual.saturating_add(offsets)),
        };
        checked.map_err(|e| self.place(tile, e.at(position.stored_offset)))?;
        // Where more is possible, the codec's bound holds.
        let estimate = most.saturating_add(offsets).min(cache.most_at_once());
        let key = CacheKey::chunk(self.object, tile, chunk);
        self.engine.cache.get(key, estimate, keep, || {
            self.decode(tile, position).map_err(|e| {
                // The schema was read with this key, so the data are damaged, not the key wrong.
                let e = match e.kind() {
                    ErrorKind::WrongKey => e.with_kind(ErrorKind::ChecksumMismatch),
                    _ => e,
                };
                let end = position.stored_offset.saturating_add(position.stored_length());
                let e = self.distrusted(position.stored_offset..end, e);
                self.place(
                    tile,
                    e.at(position.stored_offset)
                        .in_part(format_args!("chunk {chunk}")),
                )
            })
        })
    }

    /// `error`, which reading or decoding this range gave: what was read is not kept if it makes no sense,
    /// nor the file if another has its place by now.
    fn distrusted(&self, range: Range<u64>, error: Error) -> Error {
        if error.may_pass() && error.kind() != ErrorKind::Changed {
            return error;
        }
        self.blob.forget(range);
        let there = self.engine.storage.metadata(&self.path);
        if there.is_ok_and(|there| there.version != self.blob.version()) {
            self.engine.close_below(&self.path);
            self.edition.end(&self.engine);
        }
        error
    }

    /// Reads a chunk of tile `tile` and decodes it.
    fn decode(&self, tile: u64, position: ChunkPosition) -> Result<DecodedChunk> {
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
        let stored = &mut room[..length];
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
        let stats = &self.engine.stats;
        match self.generic {
            true => stats.metadata_chunks_decoded.add(1),
            false => stats.chunks_decoded.add(1),
        }
        stats.bytes_decoded.add(decoded.data.len() as u64);
        let offsets = decoded.offsets.map(|offsets| {
            let mut bytes = Vec::with_capacity(offsets.len() * 8);
            bytes.extend(offsets.iter().flat_map(|o| o.to_le_bytes()));
            Arc::new(bytes)
        });
        Ok(DecodedChunk {
            data: Arc::new(decoded.data),
            offsets,
        })
    }

    /// Puts the bytes in `range` of the unfiltered tile `tile` of `size` bytes into `out`, in order.
    pub fn read(&self, tile: u64, size: u64, range: Range<u64>, out: &mut Output) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let index = self.index(tile, size)?;
        let mut position = range.start;
        while position < range.end {
            let (number, found) = index
                .find(position)
                .map(|number| (number, &index.chunks()[number]))
                .ok_or_else(|| {
                    self.place(
                        tile,
                        Error::truncated(format!("byte {position} wanted, but the tile has {size} bytes")),
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
                        Error::corrupt(
                            "original and stored length of the chunk differ, but it has no filters",
                        )
                        .at(found.stored_offset)
                        .in_part(format_args!("chunk {number}")),
                    ));
                }
                let end = start + within.len() as u64;
                out.fill(within.len(), |room| self.blob.read_at(start, room))
                    .map_err(|e| self.place(tile, self.distrusted(start..end, e)))?;
            } else {
                let keep = out.keep.unwrap_or(Keep::Staying);
                let chunk = self.chunk(tile, &index, number, keep)?;
                match self.engine.cache.can_keep(&*chunk) {
                    true => out.share(chunk.data.clone(), within)?,
                    // The next such chunk is not loaded while somebody holds this one.
                    false => out.append(&chunk.data[within]),
                }
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
            [_] => match &self.chunk(tile, &index, 0, keep)?.offsets {
                Some(offsets) if offsets.len() as u64 / 8 == cells => Ok(Some(offsets.clone())),
                Some(offsets) => Err(self.place(
                    tile,
                    Error::corrupt(format!(
                        "{} embedded offsets do not match a tile of {cells} cells",
                        offsets.len() / 8
                    )),
                )),
                None => Err(Error::internal("the codec returned no embedded offsets")),
            },
            chunks => Err(self.place(
                tile,
                Error::corrupt(format!(
                    "a tile with embedded offsets must be one chunk, found {}",
                    chunks.len()
                )),
            )),
        }
    }
}
