//! Files that are one generic tile, read by ranges.

use super::engine::Engine;
use super::part::FETCHED_WHOLE;
use super::tile_list::Section;
use crate::error::Result;
use crate::filter::EncryptionKey;
use crate::filter::generic::GenericTile;
use crate::format::body::Body;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A file that is one generic tile and never changes. A small body is decoded whole; of a large one each
/// chunk when it is needed, which then is in the cache.
pub enum GenericFile {
    /// The body of a small one.
    Whole(Vec<u8>),
    /// A large one.
    Section(Section),
}

impl GenericFile {
    /// The most bytes of a small body.
    pub const SMALL: u64 = 64 << 10;

    /// Opens the file at `path`. A large one is held open if `hold` says so, so that deleting it does not
    /// matter.
    pub fn open(
        engine: &Arc<Engine>,
        path: &Path,
        key: Option<&EncryptionKey>,
        hold: bool,
    ) -> Result<GenericFile> {
        let blob = engine.storage.open(path)?;
        blob.will_read(0..blob.len().min(FETCHED_WHOLE));
        let tile = GenericTile::read_header(&*blob, 0, key)?;
        if tile.size <= Self::SMALL {
            return tile.decode(&*blob).map(GenericFile::Whole);
        }
        let version = blob.version();
        let section = Section::new(engine.clone(), path.to_path_buf(), 0, key.cloned(), version);
        Ok(GenericFile::Section(if hold {
            section.held(blob)
        } else {
            section
        }))
    }
}

impl GenericFile {
    /// Decodes all of it, a piece at a time, and keeps nothing.
    pub fn decode(&self) -> Result<()> {
        let size = self.size()?;
        let mut piece = Vec::new();
        let mut at = 0u64;
        while at < size {
            let end = at.saturating_add(Self::SMALL).min(size);
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
            GenericFile::Section(section) => section.size(),
        }
    }

    fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        match self {
            GenericFile::Whole(body) => body.read(range, out),
            GenericFile::Section(section) => section.read(range, out),
        }
    }
}
