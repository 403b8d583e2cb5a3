//! What everything in an opened source shares: storage, cache, open files, keys, counters.

use super::cache::{CacheKey, ChunkCache, Lengths};
use super::pinned::{AllPinned, Pinned};
use super::work::Work;
use crate::error::{ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::GenericTile;
use crate::stats::Stats;
use crate::storage::{Blob, OpenFileCache, Storage};
use std::any::Any;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// About how many bytes of fragment metadata are kept in memory.
const FRAGMENT_BYTES: u64 = 24 << 20;

/// The shortest time between two new listings of directories in which something is missing.
const LIST_ANEW: Duration = Duration::from_secs(1);

/// A cell that keeps something which can be read again.
pub trait Kept: Send + Sync {
    /// Drops its content.
    fn take(&self) -> Option<Arc<dyn Any + Send + Sync>>;
}

impl<T: Send + Sync + 'static> Kept for Mutex<Option<Arc<T>>> {
    fn take(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(lock(self).take()?)
    }
}

/// The fragments whose metadata is kept, in the order in which it was read, with the bytes that it takes.
#[derive(Default)]
struct KeptFragments {
    fragments: VecDeque<(Weak<dyn Kept>, u64)>,
    bytes: u64,
}

/// The shared state of an opened source.
pub struct Engine {
    /// The files.
    pub storage: Arc<dyn Storage>,
    /// Decoded chunks.
    pub cache: Arc<ChunkCache>,
    /// Counters.
    pub stats: Arc<Stats>,
    /// The long jobs that run at present.
    pub work: Work,
    keys: Vec<(PathBuf, EncryptionKey)>,
    /// The time at which everything is read, in milliseconds since the Unix epoch; None for the present.
    at: Option<u64>,
    /// The same as `storage`.
    files: Arc<OpenFileCache>,
    fragments: Mutex<KeptFragments>,
    objects: RandomState,
    /// When directories were last listed again because something was missing.
    listed_anew: Mutex<Option<Instant>>,
    pinned: AllPinned,
}

impl Engine {
    /// Brings the parts together; `keys` as in [`crate::tree::Options`].
    pub fn new(
        storage: Arc<dyn Storage>,
        cache_size: u64,
        keys: Vec<(PathBuf, EncryptionKey)>,
        stats: Arc<Stats>,
    ) -> Self {
        let files = Arc::new(OpenFileCache::new(storage, stats.clone()));
        let cache = Arc::new(ChunkCache::new(cache_size, stats.clone()));
        files.share(cache.clone());
        Engine {
            storage: files.clone(),
            cache,
            stats,
            work: Work::default(),
            keys,
            at: None,
            files,
            fragments: Mutex::default(),
            objects: RandomState::new(),
            listed_anew: Mutex::default(),
            pinned: AllPinned::default(),
        }
    }

    /// An engine that reads everything as it was at a time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn fixed_at(self, at: Option<u64>) -> Self {
        Engine { at, ..self }
    }

    /// The time at which everything is read, in milliseconds since the Unix epoch; None for the present.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// The end of what readers see, in milliseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        self.at.unwrap_or_else(super::time::now)
    }

    /// The key for the array or group at `path`. If several paths with keys are `path` or above it, the
    /// longest counts.
    pub fn key_for(&self, path: &Path) -> Option<&EncryptionKey> {
        self.keys
            .iter()
            .filter(|(prefix, _)| path.starts_with(prefix))
            .max_by_key(|(prefix, _)| prefix.components().count())
            .map(|(_, key)| key)
    }

    /// Opens a file that never changes once it exists, or finds it still open. If the file has changed all
    /// the same, it is opened again.
    pub fn open_immutable(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        self.files.open_cached(path)
    }

    /// Decodes the generic tile at `offset` whole. `LimitExceeded` for more than the cache allows to be
    /// decoded at once.
    pub fn generic_tile(
        &self,
        blob: &dyn Blob,
        offset: u64,
        key: Option<&EncryptionKey>,
    ) -> Result<(GenericTile, Vec<u8>)> {
        /// Where in the header the size is.
        const SIZE: u64 = 12;
        let tile = GenericTile::read_header(blob, offset, key)?;
        let check = self.cache.check_size(tile.size);
        check.map_err(|e| e.at(offset.saturating_add(SIZE)).in_file(blob.display()))?;
        let body = tile.decode_within(blob, tile.size)?;
        Ok((tile, body))
    }

    /// Makes the next look at `directory` list it again, because something is missing in it. Only for
    /// storages whose listings hold for long, and at most once a second. Returns whether it was done.
    pub fn list_anew(&self, directory: &Path) -> bool {
        let mut last = lock(&self.listed_anew);
        if !self.storage.is_remote() || last.is_some_and(|last| last.elapsed() < LIST_ANEW) {
            return false;
        }
        *last = Some(Instant::now());
        drop(last);
        self.storage.forget(directory);
        true
    }

    /// What `read` reads of the fragment at `directory`. If a file is missing, the directory is listed again
    /// and `read` called once more.
    pub fn read_fragment<T>(&self, directory: &Path, read: impl Fn() -> Result<T>) -> Result<T> {
        match read() {
            Err(e) if e.kind() == ErrorKind::NotFound && self.list_anew(directory) => read(),
            result => result,
        }
    }

    /// Closes the files below `path` that are kept open between reads.
    pub fn close_below(&self, path: &Path) {
        self.files.let_go(|file| file.starts_with(path));
    }

    /// The cache's number for object `number` of a file. It is different for each state of the file, so that
    /// chunks of two states are never mixed. It is 64 bits of a keyed hash, so that no file can provoke a
    /// collision.
    pub fn object(&self, blob: &dyn Blob, number: u64) -> u64 {
        self.objects.hash_one((blob.display(), blob.version(), number))
    }

    /// The cache's number for something derived from the source, in a state that is part of its `name`: 64
    /// bits of a keyed hash.
    pub fn number(&self, name: &impl Hash) -> u64 {
        self.objects.hash_one(name)
    }

    /// The measured lengths of the document with this number, if they are still in the cache.
    pub fn recall(&self, document: u64) -> Option<Arc<Lengths>> {
        self.cache.find(CacheKey::of(document))
    }

    /// Puts the measured lengths of the document with this number into the cache.
    pub fn remember(&self, document: u64, lengths: Arc<Lengths>) {
        self.cache.put(CacheKey::of(document), lengths);
    }

    /// The text with this number, if it is still in the cache.
    pub fn text(&self, number: u64) -> Option<Arc<Vec<u8>>> {
        self.cache.find(CacheKey::of(number))
    }

    /// Puts a text into the cache.
    pub fn keep_text(&self, number: u64, text: Arc<Vec<u8>>) {
        self.cache.put(CacheKey::of(number), text);
    }

    /// Pins a text, as [`AllPinned::pin`] does.
    pub fn pin(&self, number: u64, text: Arc<Vec<u8>>) -> Result<Arc<Pinned>> {
        self.pinned.pin(&self.cache, number, text)
    }

    /// Notes that the metadata of a fragment, of `bytes` bytes, was put into `cell`, and drops what was read
    /// longest ago.
    pub fn keep_fragment(&self, cell: &Arc<impl Kept + 'static>, bytes: u64) {
        let mut kept = lock(&self.fragments);
        let cell: Arc<dyn Kept> = cell.clone();
        kept.fragments.push_back((Arc::downgrade(&cell), bytes));
        kept.bytes = kept.bytes.saturating_add(bytes);
        let mut let_go = Vec::new();
        while kept.bytes > FRAGMENT_BYTES && kept.fragments.len() > 1 {
            let Some((cell, bytes)) = kept.fragments.pop_front() else {
                break;
            };
            kept.bytes = kept.bytes.saturating_sub(bytes);
            let_go.push(cell.upgrade().and_then(|cell| cell.take()));
        }
        drop(kept);
        drop(let_go);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
