//! Files that are opened for each read, because there may be too many to keep open.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::storage::Blob;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is opened for each read, unless it is among the [open files](Engine::open_immutable). Reads
/// fail once the file was changed or removed.
pub struct Reopened {
    engine: Arc<Engine>,
    /// Relative to the source.
    path: PathBuf,
    len: u64,
    version: (u64, u64, u64),
    display: String,
}

impl Reopened {
    /// The file at `path` as it is now.
    pub fn new(engine: &Arc<Engine>, path: PathBuf) -> Result<Reopened> {
        let blob = engine.open_immutable(&path)?;
        Ok(Reopened {
            engine: engine.clone(),
            path,
            len: blob.len(),
            version: blob.version(),
            display: blob.display().to_owned(),
        })
    }

    fn open(&self) -> Result<Arc<dyn Blob>> {
        let blob = self.engine.open_immutable(&self.path)?;
        match blob.version() == self.version {
            true => Ok(blob),
            false => Err(Error::corrupt("the file has changed since it was opened")
                .at(0)
                .in_file(&*self.display)),
        }
    }
}

impl Blob for Reopened {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.open()?.read_at(offset, out)
    }

    fn will_read(&self, range: Range<u64>) {
        if let Ok(blob) = self.open() {
            blob.will_read(range);
        }
    }

    fn display(&self) -> &str {
        &self.display
    }

    fn version(&self) -> (u64, u64, u64) {
        self.version
    }

    fn is_unchanged(&self) -> bool {
        self.open().is_ok_and(|blob| blob.is_unchanged())
    }
}
