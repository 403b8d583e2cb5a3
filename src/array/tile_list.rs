//! Lists with one u64 for each tile (offsets, sizes), read piecewise.
//!
//! A list is a generic tile of the fragment's metadata file, filtered in chunks like any other, so that an
//! entry costs one decoded chunk however many tiles there are.

use super::cache::{Item, Keep, Key};
use super::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::chunk::{ChunkIndex, ChunkPosition};
use crate::filter::generic::GenericTile;
use crate::format::body::Body;
use crate::storage::Blob;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A generic tile whose body is read by ranges, each chunk decoded when needed and kept in the cache.
pub struct Section {
    engine: Arc<Engine>,
    path: PathBuf,
    offset: u64,
    key: Option<EncryptionKey>,
    /// The state of the file that the offset is from.
    version: (u64, u64, u64),
    /// The tile's header, and the tile's number in the cache.
    header: OnceLock<(GenericTile, u64)>,
    /// The file, once it is held.
    held: OnceLock<Arc<dyn Blob>>,
}

impl Section {
    /// The generic tile at `offset` of the file at `path` in the state `version`; in another state it is not
    /// read.
    pub fn new(
        engine: Arc<Engine>,
        path: PathBuf,
        offset: u64,
        key: Option<EncryptionKey>,
        version: (u64, u64, u64),
    ) -> Self {
        Section {
            engine,
            path,
            offset,
            key,
            version,
            header: OnceLock::new(),
            held: OnceLock::new(),
        }
    }

    /// The same, read from `blob`, its file, which is held.
    #[must_use]
    pub fn held(self, blob: Arc<dyn Blob>) -> Self {
        self.held.get_or_init(|| blob);
        self
    }

    /// Keeps the file open from now on, so that deleting it does not matter.
    pub fn hold(&self) -> Result<()> {
        let blob = self.blob()?;
        self.held.get_or_init(|| blob);
        Ok(())
    }

    fn blob(&self) -> Result<Arc<dyn Blob>> {
        if let Some(blob) = self.held.get() {
            return Ok(blob.clone());
        }
        let blob = self.engine.open_immutable(&self.path)?;
        if blob.version() != self.version {
            return Err(self.place(Error::corrupt(
                "the file has changed since the fragment was first looked at",
            )));
        }
        Ok(blob)
    }

    fn opened(&self) -> Result<&(GenericTile, u64)> {
        if let Some(header) = self.header.get() {
            return Ok(header);
        }
        let blob = self.blob()?;
        let header = GenericTile::read_header(&*blob, self.offset, self.key.as_ref())?;
        let object = self.engine.object(&*blob, self.offset);
        Ok(self.header.get_or_init(|| (header, object)))
    }

    fn header(&self) -> Result<&GenericTile> {
        Ok(&self.opened()?.0)
    }

    /// The tile's number in the cache.
    fn object(&self) -> Result<u64> {
        Ok(self.opened()?.1)
    }

    /// Bytes of the unfiltered body.
    pub fn size(&self) -> Result<u64> {
        Ok(self.header()?.size)
    }

    fn index(&self) -> Result<Arc<ChunkIndex>> {
        let header = self.header()?;
        // A chunk takes twelve bytes at the least, whatever size is declared.
        let chunks = (header.size / 65_536).min(header.data_end.saturating_sub(header.data_start) / 12);
        let estimate = chunks * size_of::<ChunkPosition>() as u64;
        let key = Key {
            object: self.object()?,
            tile: 0,
            chunk: Key::INDEX,
        };
        let item = self.engine.cache.get(key, estimate, Keep::Staying, || {
            Ok(Item::Index(Arc::new(header.index(&*self.blob()?)?)))
        })?;
        match item {
            Item::Index(index) => Ok(index),
            _ => Err(Error::new(ErrorKind::Internal, "a chunk in place of an index")),
        }
    }

    /// Appends the bytes in `range` of the body to `out`.
    pub fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let header = self.header()?;
        let index = self.index()?;
        let mut position = range.start;
        while position < range.end {
            let chunk = index.find(position).ok_or_else(|| {
                Error::truncated(format!("byte {position} wanted of {}", header.size))
                    .at(self.offset)
                    .in_file(self.engine.storage.display(&self.path))
            })?;
            let (data, start) = self.chunk(header, &index, chunk)?;
            let from = (position - start) as usize;
            let to = data
                .len()
                .min((range.end - start).try_into().unwrap_or(usize::MAX));
            let piece = data.get(from..to).unwrap_or(&[]);
            if piece.is_empty() {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "a chunk shorter than its index says",
                ));
            }
            out.extend_from_slice(piece);
            position += piece.len() as u64;
        }
        Ok(())
    }

    /// A decoded chunk and the offset of its first byte in the body.
    fn chunk(&self, header: &GenericTile, index: &ChunkIndex, chunk: usize) -> Result<(Arc<Vec<u8>>, u64)> {
        let position = index
            .chunks()
            .get(chunk)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a chunk that its index lacks"))?;
        let key = Key {
            object: self.object()?,
            tile: 0,
            chunk: u32::try_from(chunk).unwrap_or(Key::INDEX - 1),
        };
        let estimate = header
            .codec
            .working_memory(u64::from(position.original_length), position.stored_length());
        self.engine
            .cache
            .check_size(estimate)
            .map_err(|e| self.place(e))?;
        let item = self.engine.cache.get(key, estimate, Keep::Staying, || {
            let data = header.decode_chunk(&*self.blob()?, index, chunk)?;
            self.engine.stats.metadata_chunks_decoded.add(1);
            self.engine.stats.bytes_decoded.add(data.len() as u64);
            Ok(Item::Chunk {
                data: Arc::new(data),
                offsets: None,
            })
        })?;
        match item {
            Item::Chunk { data, .. } => Ok((data, position.original_offset)),
            _ => Err(Error::new(ErrorKind::Internal, "an index in place of a chunk")),
        }
    }

    fn place(&self, error: Error) -> Error {
        error
            .at(self.offset)
            .in_file(self.engine.storage.display(&self.path))
    }
}

impl Body for Section {
    fn size(&self) -> Result<u64> {
        Section::size(self)
    }

    fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        Section::read(self, range, out)
    }
}

/// A list with one u64 for each tile.
pub enum TileList {
    /// In memory: fragments of versions 1 and 2, whose metadata is one generic tile.
    Memory(Vec<u64>),
    /// In the metadata file: a count u64, then the entries; and all of these, of a short list that was read.
    Section(Box<Section>, OnceLock<Vec<u64>>),
}

/// The most entries of a list that are remembered: most fragments have few tiles, and where very many
/// fragments are read in turns to look them up takes longer than to copy the cells.
const SHORT: u64 = 64;

impl TileList {
    /// Keeps the file that it is in open for as long as the list is used.
    pub fn hold(&self) -> Result<()> {
        match self {
            TileList::Memory(_) => Ok(()),
            TileList::Section(section, _) => section.hold(),
        }
    }

    /// The entries in `range`. `Corrupt` where the list has fewer than `tile_num` entries.
    ///
    /// More of them are passed over: libtiledb 2.2, writing nullable attributes of dense arrays in global
    /// order, put tiles of nothing behind the last one.
    pub fn entries(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let range = range.start.min(tile_num)..range.end.min(tile_num);
        let (section, known) = match self {
            TileList::Memory(list) if (list.len() as u64) < tile_num => {
                return Err(wrong_count(list.len() as u64, tile_num).at(0));
            }
            TileList::Memory(list) => return Ok(part(list, range)),
            TileList::Section(section, known) => (section, known),
        };
        if let Some(list) = known.get() {
            return Ok(part(list, range));
        }
        if tile_num > SHORT {
            return stored(section, tile_num, range);
        }
        let list = stored(section, tile_num, 0..tile_num)?;
        Ok(part(known.get_or_init(|| list), range))
    }

    /// One entry; `None` for `tile == tile_num`, as for any other that is not there.
    pub fn get(&self, tile_num: u64, tile: u64) -> Result<Option<u64>> {
        Ok(self
            .entries(tile_num, tile..tile.saturating_add(1))?
            .first()
            .copied())
    }
}

fn part(list: &[u64], range: Range<u64>) -> Vec<u64> {
    let range = range.start as usize..range.end as usize;
    list.get(range).unwrap_or(&[]).to_vec()
}

/// The entries in `range` of a list in the metadata file.
fn stored(section: &Section, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
    let entries = section.size()?.saturating_sub(8) / 8;
    let mut raw = Vec::new();
    section.read(0..8, &mut raw)?;
    let count = u64::from_le_bytes(raw.as_slice().try_into().unwrap_or_default());
    let bytes = count.checked_mul(8).and_then(|n| n.checked_add(8));
    if count < tile_num || bytes != Some(section.size()?) {
        return Err(section.place(wrong_count(count.min(entries), tile_num)));
    }
    raw.clear();
    section.read(8 + range.start * 8..8 + range.end * 8, &mut raw)?;
    let entries = raw.as_chunks::<8>().0.iter();
    Ok(entries.map(|bytes| u64::from_le_bytes(*bytes)).collect())
}

fn wrong_count(found: u64, tile_num: u64) -> Error {
    Error::corrupt(format!("a list of {found} tiles in a fragment of {tile_num}"))
}

/// Running sums over a [`TileList`] of sizes: where each tile begins in the concatenation of all.
pub struct PrefixSums {
    /// Sum before each block, and the total last.
    starts: Vec<u64>,
}

/// Entries between two sums that are kept.
const BLOCK: u64 = 8192;

impl PrefixSums {
    /// Adds up the whole list, a block at a time.
    pub fn new(list: &TileList, tile_num: u64) -> Result<PrefixSums> {
        let mut starts = vec![0];
        let mut sum = 0u64;
        let mut tile = 0;
        while tile < tile_num {
            for size in list.entries(tile_num, tile..tile.saturating_add(BLOCK))? {
                sum = sum
                    .checked_add(size)
                    .ok_or_else(|| Error::limit("the tiles' sizes add up to more than 2^64 bytes").at(0))?;
            }
            starts.push(sum);
            tile = tile.saturating_add(BLOCK);
        }
        Ok(PrefixSums { starts })
    }

    /// Sum of all sizes.
    pub fn total(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Sum of the sizes before `tile`.
    pub fn before(&self, list: &TileList, tile_num: u64, tile: u64) -> Result<u64> {
        let block = tile / BLOCK;
        let start = self
            .starts
            .get(block as usize)
            .copied()
            .unwrap_or_else(|| self.total());
        let sizes = list.entries(tile_num, block * BLOCK..tile)?;
        Ok(sizes.iter().fold(start, |sum, size| sum.saturating_add(*size)))
    }

    /// The tile that holds byte `offset` of the concatenation, with its first byte and its size; None past
    /// the end.
    pub fn find(&self, list: &TileList, tile_num: u64, offset: u64) -> Result<Option<(u64, u64, u64)>> {
        if offset >= self.total() {
            return Ok(None);
        }
        let block = self
            .starts
            .partition_point(|&start| start <= offset)
            .saturating_sub(1);
        let mut start = self.starts.get(block).copied().unwrap_or(0);
        let first = block as u64 * BLOCK;
        for (i, size) in list
            .entries(tile_num, first..first.saturating_add(BLOCK))?
            .into_iter()
            .enumerate()
        {
            if offset - start < size {
                return Ok(Some((first + i as u64, start, size)));
            }
            start = start.saturating_add(size);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_find_every_byte() {
        let sizes: Vec<u64> = (0..20_000).map(|i| i % 5).collect();
        let n = sizes.len() as u64;
        let list = TileList::Memory(sizes.clone());
        let sums = PrefixSums::new(&list, n).unwrap();
        assert_eq!(sums.total(), sizes.iter().sum::<u64>());
        let mut start = 0;
        for (tile, size) in sizes.iter().enumerate().step_by(7) {
            start = if tile == 0 {
                0
            } else {
                sums.before(&list, n, tile as u64).unwrap()
            };
            for offset in [start, start + size.saturating_sub(1)] {
                if *size > 0 {
                    assert_eq!(
                        sums.find(&list, n, offset).unwrap(),
                        Some((tile as u64, start, *size))
                    );
                }
            }
        }
        assert!(start > 0);
        assert_eq!(sums.before(&list, n, n).unwrap(), sums.total());
        assert_eq!(sums.find(&list, n, sums.total()).unwrap(), None);
    }

    #[test]
    fn a_list_that_is_too_short_is_corrupt() {
        let list = TileList::Memory(vec![1, 2, 3]);
        assert_eq!(list.entries(3, 1..9).unwrap(), [2, 3]);
        assert_eq!(list.entries(2, 1..9).unwrap(), [2]);
        assert!(list.entries(4, 0..1).is_err());
        assert!(PrefixSums::new(&TileList::Memory(vec![u64::MAX, 1]), 2).is_err());
    }
}
