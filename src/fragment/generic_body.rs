//! Bodies of generic tiles, read by ranges: each chunk is decoded on demand, through the cache.

use super::geometry::Geometry;
use super::info::Edition;
use super::tile_file::{FETCHED_WHOLE, TileFile};
use super::tile_list::{TileList, WINDOW, wrong_count};
use crate::bytes::{Bytes, Output, numbers};
use crate::cursor::Cursor;
use crate::engine::{Engine, Reopened};
use crate::error::{Error, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::GenericTile;
use crate::runtime::{get_or_make, lock};
use crate::storage::Blob;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// The body of a generic tile, whose header is not read before it is opened.
pub struct GenericBody {
    engine: Arc<Engine>,
    path: PathBuf,
    offset: u64,
    key: Option<EncryptionKey>,
    /// The state of the file that the offset is valid for.
    version: (u64, u64, u64),
    /// The edition that the offset is of.
    edition: Edition,
    /// The file, if it is held open.
    held: Option<Arc<dyn Blob>>,
}

/// A body whose header is read.
pub struct OpenBody {
    /// The tile, as the only one of a file.
    file: TileFile,
    /// Its unfiltered size.
    size: u64,
}

impl GenericBody {
    /// The body of the generic tile at `offset` of the file at `path`. Reads fail if the file is no longer in
    /// the state `version`.
    pub fn new(
        engine: Arc<Engine>,
        path: PathBuf,
        offset: u64,
        key: Option<EncryptionKey>,
        version: (u64, u64, u64),
        edition: Edition,
    ) -> Self {
        GenericBody {
            engine,
            path,
            offset,
            key,
            version,
            edition,
            held: None,
        }
    }

    /// This body, read from `blob`, its file. The file stays open as long as the body lives, so that deleting
    /// it does not matter.
    #[must_use]
    pub fn held(self, blob: Arc<dyn Blob>) -> Self {
        let held = Some(blob);
        GenericBody { held, ..self }
    }

    /// This body, with its file opened now and held open.
    pub fn hold(self) -> Result<Self> {
        let blob = self.engine.open_immutable(&self.path)?;
        Ok(self.held(blob))
    }

    /// Reads the header.
    pub fn open(&self) -> Result<OpenBody> {
        let blob = match &self.held {
            Some(blob) => blob.clone(),
            None => Arc::new(Reopened::new(&self.engine, self.path.clone())?),
        };
        let checked = self.edition.check(&self.engine, &*blob, self.version);
        checked.map_err(|e| self.place(e))?;
        let tile = GenericTile::read_header(&*blob, self.offset, self.key.as_ref())?;
        tile.check_key().map_err(|e| self.place(e))?;
        let file = TileFile {
            engine: self.engine.clone(),
            path: self.path.clone(),
            edition: self.edition.clone(),
            object: self.engine.object(&*blob, self.offset),
            blob,
            codec: tile.codec.bounded(self.engine.cache.most_at_once() / 2),
            offsets: Arc::new(vec![tile.data_start]),
            file_size: tile.data_end,
            geometry: Geometry::new(1, 0, 0)?,
            generic: true,
        };
        Ok(OpenBody {
            file,
            size: tile.size,
        })
    }

    /// Adds file and offset of the tile to an error.
    pub(super) fn place(&self, error: Error) -> Error {
        error
            .at(self.offset)
            .in_file(self.engine.storage.display(&self.path))
    }
}

impl Bytes for OpenBody {
    fn len(&self) -> u64 {
        self.size
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        self.file.read(0, self.size, range, out)
    }
}

/// A file that is one generic tile and never changes.
pub enum GenericFile {
    /// A small body, decoded whole.
    Whole(Vec<u8>),
    /// A large body, read by ranges.
    Large(Box<OpenBody>),
}

impl GenericFile {
    /// Larger bodies, in bytes, are read by ranges.
    const LARGE_ABOVE: u64 = 64 << 10;

    /// Opens the file at `path`. With `hold`, a large one stays open, so that deleting it does not matter.
    pub fn open(
        engine: &Arc<Engine>,
        path: &Path,
        key: Option<&EncryptionKey>,
        hold: bool,
    ) -> Result<GenericFile> {
        let blob = engine.storage.open(path)?;
        blob.will_read(0..blob.len().min(FETCHED_WHOLE));
        let tile = GenericTile::read_header(&*blob, 0, key)?;
        if tile.size <= Self::LARGE_ABOVE {
            return tile.decode(&*blob).map(GenericFile::Whole);
        }
        let version = blob.version();
        let body = GenericBody::new(
            engine.clone(),
            path.to_path_buf(),
            0,
            key.cloned(),
            version,
            Edition::default(),
        );
        let body = if hold { body.held(blob) } else { body };
        Ok(GenericFile::Large(Box::new(body.open()?)))
    }

    /// Decodes the whole body piece by piece, to find errors.
    pub fn decode(&self) -> Result<()> {
        let size = self.len();
        let mut piece = Output::new();
        let mut at = 0u64;
        while at < size {
            let end = at.saturating_add(Self::LARGE_ABOVE).min(size);
            piece.clear();
            self.read(at..end, &mut piece)?;
            at = end;
        }
        Ok(())
    }
}

impl Bytes for GenericFile {
    fn len(&self) -> u64 {
        match self {
            GenericFile::Whole(body) => Bytes::len(body),
            GenericFile::Large(body) => body.len(),
        }
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        match self {
            GenericFile::Whole(body) => body.read(range, out),
            GenericFile::Large(body) => body.read(range, out),
        }
    }
}

/// A list in the metadata file: a count u64, then the entries.
pub struct StoredList {
    body: GenericBody,
    opened: OnceLock<OpenBody>,
    /// The entries read last, after the number of the first of them. Sequential readers want the next ones:
    /// with very many fragments read in turns, looking entries up would take longer than copying cells.
    window: Mutex<(u64, Vec<u64>)>,
}

impl StoredList {
    /// The list in `body`.
    pub fn new(body: GenericBody) -> Self {
        StoredList {
            body,
            opened: OnceLock::new(),
            window: Mutex::default(),
        }
    }

    /// Appends the entries in `range`, which is not empty, up to the end of the first entry's window. Returns
    /// that end.
    fn append(&self, tile_num: u64, range: Range<u64>, out: &mut Vec<u64>) -> Result<u64> {
        let first = range.start - range.start % WINDOW;
        let end = range.end.min(first.saturating_add(WINDOW));
        let part = (range.start - first) as usize..(end - first) as usize;
        let mut window = lock(&self.window);
        if window.0 != first || window.1.is_empty() {
            drop(window);
            let entries = self.read(tile_num, first..first.saturating_add(WINDOW).min(tile_num))?;
            window = lock(&self.window);
            *window = (first, entries);
        }
        out.extend_from_slice(&window.1[part]);
        Ok(end)
    }

    fn read(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let body = get_or_make(&self.opened, || self.body.open())?;
        let mut raw = Output::new();
        body.read(0..8, &mut raw)?;
        let count = Cursor::new(&raw).u64("count")?;
        let bytes = count.checked_mul(8).and_then(|n| n.checked_add(8));
        if count < tile_num || bytes != Some(body.len()) {
            let entries = (body.len() - 8) / 8;
            return Err(self.body.place(wrong_count(count.min(entries), tile_num)));
        }
        raw.clear();
        body.read(8 + range.start * 8..8 + range.end * 8, &mut raw)?;
        Ok(numbers(&raw).collect())
    }
}

impl TileList for StoredList {
    fn entries(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let mut range = range.start.min(tile_num)..range.end.min(tile_num);
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        while range.start < range.end {
            range.start = self.append(tile_num, range.clone(), &mut out)?;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::filter::generic::tests::gzip_tile;
    use crate::storage::MemoryStorage;

    #[test]
    fn a_chunk_that_is_too_large_for_metadata_is_refused() {
        let read = |size| {
            let mut storage = MemoryStorage::new();
            storage.insert(Path::new("a"), gzip_tile(size, b"damaged"));
            let engine = Engine::new(Arc::new(storage), 1 << 20, Vec::new(), Arc::default());
            let file = GenericFile::open(&Arc::new(engine), Path::new("a"), None, false).unwrap();
            file.read(0..8, &mut Output::new()).unwrap_err().kind()
        };
        assert_eq!(read(16 << 20), ErrorKind::Truncated);
        assert_eq!(read(17 << 20), ErrorKind::LimitExceeded);
    }
}
