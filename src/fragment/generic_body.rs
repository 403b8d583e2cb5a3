//! Bodies of generic tiles, read by ranges: each chunk is decoded on demand, through the cache.

use super::geometry::Geometry;
use super::reopened::Reopened;
use super::tile_file::{FETCHED_WHOLE, TileFile};
use crate::bytes::{Keep, Output};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::GenericTile;
use crate::format::body::Body;
use crate::storage::Blob;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The body of a generic tile. The first access reads its header.
pub struct GenericBody {
    engine: Arc<Engine>,
    path: PathBuf,
    offset: u64,
    key: Option<EncryptionKey>,
    /// The state of the file that the offset is valid for.
    version: (u64, u64, u64),
    /// The file, if it is held open.
    held: Option<Arc<dyn Blob>>,
    /// The tile, as the only one of a file, and its unfiltered size.
    opened: OnceLock<(TileFile, u64)>,
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
    ) -> Self {
        GenericBody {
            engine,
            path,
            offset,
            key,
            version,
            held: None,
            opened: OnceLock::new(),
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

    fn opened(&self) -> Result<&(TileFile, u64)> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let blob = match &self.held {
            Some(blob) => blob.clone(),
            None => Arc::new(Reopened::new(&self.engine, self.path.clone())?),
        };
        if blob.version() != self.version {
            return Err(self.place(Error::corrupt(
                "the file has changed since the fragment was first read",
            )));
        }
        let tile = GenericTile::read_header(&*blob, self.offset, self.key.as_ref())?;
        tile.check_key().map_err(|e| self.place(e))?;
        let file = TileFile {
            engine: self.engine.clone(),
            object: self.engine.object(&*blob, self.offset),
            blob,
            codec: tile.codec,
            offsets: Arc::new(vec![tile.data_start]),
            file_size: tile.data_end,
            geometry: Geometry::new(1, 0, 0)?,
            generic: true,
        };
        Ok(self.opened.get_or_init(|| (file, tile.size)))
    }

    /// Adds file and offset of the tile to an error.
    pub(super) fn place(&self, error: Error) -> Error {
        error
            .at(self.offset)
            .in_file(self.engine.storage.display(&self.path))
    }
}

impl Body for GenericBody {
    fn size(&self) -> Result<u64> {
        Ok(self.opened()?.1)
    }

    fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let (file, size) = self.opened()?;
        let mut read = Output::keeping(Keep::Staying);
        file.read(0, *size, range, &mut read)?;
        out.extend_from_slice(&read);
        Ok(())
    }
}

/// A file that is one generic tile and never changes.
pub enum GenericFile {
    /// A small body, decoded whole.
    Whole(Vec<u8>),
    /// A large body, read by ranges.
    Large(Box<GenericBody>),
}

impl GenericFile {
    /// Larger bodies, in bytes, are read by ranges.
    pub const LARGE_ABOVE: u64 = 64 << 10;

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
        let body = GenericBody::new(engine.clone(), path.to_path_buf(), 0, key.cloned(), version);
        Ok(GenericFile::Large(Box::new(match hold {
            true => body.held(blob),
            false => body,
        })))
    }

    /// Decodes the whole body piece by piece, to find errors.
    pub fn decode(&self) -> Result<()> {
        let size = self.size()?;
        let mut piece = Vec::new();
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

impl Body for GenericFile {
    fn size(&self) -> Result<u64> {
        match self {
            GenericFile::Whole(body) => Ok(body.len() as u64),
            GenericFile::Large(body) => body.size(),
        }
    }

    fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        match self {
            GenericFile::Whole(body) => body.read(range, out),
            GenericFile::Large(body) => body.read(range, out),
        }
    }
}
