//! What everything in an opened source shares: storage, cache, open files, keys, counters.

use super::cache::{ChunkCache, new_objects};
use crate::error::Result;
use crate::filter::EncryptionKey;
use crate::stats::Stats;
use crate::storage::{Blob, Storage};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Files of committed fragments that are kept open between reads.
const OPEN_FILES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Files whose numbers in the cache are remembered.
const OBJECTS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The shared state of an opened source.
pub struct Engine {
    /// The files.
    pub storage: Arc<dyn Storage>,
    /// Decoded chunks.
    pub cache: ChunkCache,
    /// Counters.
    pub stats: Arc<Stats>,
    keys: Vec<(PathBuf, EncryptionKey)>,
    open_files: Mutex<LruCache<PathBuf, Arc<dyn Blob>>>,
    objects: Mutex<LruCache<PathBuf, u64>>,
}

impl Engine {
    /// Brings the parts together; `keys` as in [`crate::tree::Options`].
    pub fn new(
        storage: Arc<dyn Storage>,
        cache_size: u64,
        keys: Vec<(PathBuf, EncryptionKey)>,
        stats: Arc<Stats>,
    ) -> Self {
        Engine {
            storage,
            cache: ChunkCache::new(cache_size, stats.clone()),
            stats,
            keys,
            open_files: Mutex::new(LruCache::new(OPEN_FILES)),
            objects: Mutex::new(LruCache::new(OBJECTS)),
        }
    }

    /// The key for the array or group at `path`: that of the longest path given which is `path` or above it.
    pub fn key_for(&self, path: &Path) -> Option<&EncryptionKey> {
        self.keys
            .iter()
            .filter(|(prefix, _)| path.starts_with(prefix))
            .max_by_key(|(prefix, _)| prefix.components().count())
            .map(|(_, key)| key)
    }

    /// Opens a file that never changes once it exists, or finds it still open.
    pub fn open_immutable(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        if let Some(blob) = self.files().get(path) {
            return Ok(blob.clone());
        }
        let blob = self.storage.open(path)?;
        self.files().put(path.to_path_buf(), blob.clone());
        Ok(blob)
    }

    /// The number in the cache of a file that is one generic tile and never changes once it exists.
    pub fn object_of(&self, path: &Path) -> u64 {
        let mut objects = self
            .objects
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        *objects.get_or_insert(path.to_path_buf(), || new_objects(1))
    }

    fn files(&self) -> std::sync::MutexGuard<'_, LruCache<PathBuf, Arc<dyn Blob>>> {
        self.open_files
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
