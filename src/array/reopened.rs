//! Files of very many fragments, none of which is held open.

use super::engine::Engine;
use super::fragment_info::incomplete;
use crate::error::{Error, Result};
use crate::storage::Blob;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a fragment that is opened for each read, unless it is among those that are
/// [kept open](Engine::open_immutable): what is decoded already is found in the cache without opening it.
/// Fails once the file is another than it was first, or was removed.
pub struct Reopened {
    engine: Arc<Engine>,
    /// Relative to the source, as is its fragment's directory.
    path: PathBuf,
    fragment: PathBuf,
    len: u64,
    version: (u64, u64, u64),
    display: String,
}

impl Reopened {
    /// The file at `path`, which belongs to the fragment at `fragment`, as it is now.
    pub fn new(engine: &Arc<Engine>, path: PathBuf, fragment: &Path) -> Result<Reopened> {
        let blob = engine.open_immutable(&path)?;
        Ok(Reopened {
            engine: engine.clone(),
            path,
            fragment: fragment.to_path_buf(),
            len: blob.len(),
            version: blob.version(),
            display: blob.display().to_owned(),
        })
    }

    fn open(&self) -> Result<Arc<dyn Blob>> {
        let blob = self.engine.open_immutable(&self.path);
        let blob = blob.map_err(|e| incomplete(&self.engine, &self.fragment, e))?;
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
