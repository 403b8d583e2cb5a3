//! The shared state of an opened source: storage, cache, open files, keys, counters.

use crate::calendar::now;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::GenericTile;
use crate::runtime::cache::{AllPinned, ChunkCache, Pinned};
use crate::runtime::lock;
use crate::runtime::stats::Stats;
use crate::runtime::tuning::Tuning;
use crate::runtime::work::Work;
use crate::storage::{Blob, OpenFileCache, SteadyStorage, Storage};
use std::any::Any;
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Approximate bytes of fragment metadata kept in memory.
const MAX_CACHED_METADATA: u64 = 24 << 20;

/// The shortest time between two listings of a directory because something is missing.
const RELIST_INTERVAL: Duration = Duration::from_secs(1);

/// Small files that are requested at once, and bytes of each: all of most.
const PREFETCHED_FILES: usize = 256;
const PREFETCHED_BYTES: u64 = 64 << 10;

/// A cell whose content can be read again.
pub trait Evictable: Send + Sync {
    /// Drops the content and returns it.
    fn evict(&self) -> Option<Arc<dyn Any + Send + Sync>>;
}

impl<T: Send + Sync + 'static> Evictable for Mutex<Option<Arc<T>>> {
    fn evict(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(lock(self).take()?)
    }
}

/// The fragments with metadata in memory, in the order in which it was read, each with its bytes.
#[derive(Default)]
struct CachedFragments {
    fragments: VecDeque<(Weak<dyn Evictable>, u64)>,
    bytes: u64,
}

/// What all engines of a source know of fragments whose cells are not in global order.
///
/// Libraries write the cells of a sparse fragment in global order, and nothing in the metadata says so. A
/// mount looks at the order of coordinates when they are read. Where it is wrong, what was opened of that
/// state of the array fails, and the state has another hash from then on, so that all of its files are
/// others: their cells are sorted.
#[derive(Default)]
pub struct Disorder {
    /// Whether files can be opened again, as those of a mount can. If not, the order of a fragment is looked
    /// at before the first of its cells is read.
    reopens: AtomicBool,
    /// Whether `found` has any.
    any: AtomicBool,
    /// The numbers of fragments, eight bytes each.
    found: Mutex<HashSet<u64>>,
}

impl Disorder {
    /// Whether the order of cells is looked at when they are read.
    pub fn is_found_by_readers(&self) -> bool {
        self.reopens.load(Ordering::Relaxed)
    }

    /// From now on the order of cells is looked at when they are read.
    pub fn let_readers_find(&self) {
        self.reopens.store(true, Ordering::Relaxed);
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Whether the cells of the fragment in directory `path` are known not to be in global order.
    pub fn is_known(&self, engine: &Engine, path: &Path) -> bool {
        !self.is_empty() && lock(&self.found).contains(&number(engine, path))
    }

    /// Remembers that the cells of the fragment in directory `path` are not in global order. Whether that was
    /// not known before.
    pub fn remember(&self, engine: &Engine, path: &Path) -> bool {
        let is_new = lock(&self.found).insert(number(engine, path));
        self.any.store(true, Ordering::Release);
        is_new
    }
}

/// The number of a fragment. It differs between engines, for which a path may lead to different files.
fn number(engine: &Engine, path: &Path) -> u64 {
    engine.number(&("disorder", path))
}
/// The shared state of an opened source.
pub struct Engine {
    /// The files.
    pub storage: Arc<dyn Storage>,
    /// Decoded chunks.
    pub cache: Arc<ChunkCache>,
    /// Counters.
    pub stats: Arc<Stats>,
    /// The long jobs that are running.
    pub work: Arc<Work>,
    /// The fragments whose cells are not in global order.
    pub disorder: Arc<Disorder>,
    /// Whether the metadata file of any fragment was found changed.
    pub has_changed_fragments: Arc<AtomicBool>,
    /// The sizes at which readers cut their work.
    pub tuning: &'static Tuning,
    keys: Arc<[(PathBuf, EncryptionKey)]>,
    /// The time as of which everything is read, in milliseconds since the Unix epoch; None for the present.
    at: Option<u64>,
    /// The open files of `storage`.
    files: Arc<OpenFileCache>,
    /// Whether users read who may not read everything; for all engines of a source.
    guarded: Arc<AtomicBool>,
    /// None where names are not watched.
    steady: Option<Arc<SteadyStorage>>,
    fragments: Arc<Mutex<CachedFragments>>,
    objects: RandomState,
    /// When a directory was last listed again because something was missing.
    listed_anew: Mutex<Option<Instant>>,
    pinned: AllPinned,
}

impl Engine {
    /// An engine over `storage`; `keys` as in [`crate::tree::TreeOptions`].
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
            work: Arc::default(),
            disorder: Arc::default(),
            has_changed_fragments: Arc::default(),
            tuning: &Tuning::PRODUCTION,
            keys: keys.into(),
            at: None,
            files,
            guarded: Arc::default(),
            steady: None,
            fragments: Arc::default(),
            objects: RandomState::new(),
            listed_anew: Mutex::default(),
            pinned: AllPinned::default(),
        }
    }

    /// This engine, reading as of a time in milliseconds since the Unix epoch.
    #[must_use]
    pub fn fixed_at(self, at: Option<u64>) -> Self {
        Engine { at, ..self }
    }

    /// This engine, cutting its work into other parts.
    #[cfg(test)]
    pub fn tuned(self, tuning: &'static Tuning) -> Self {
        Engine { tuning, ..self }
    }

    /// The switch by which all engines of the source learn that users read who may not read everything.
    pub fn guarded(&self) -> &Arc<AtomicBool> {
        &self.guarded
    }

    fn is_guarded(&self) -> bool {
        self.guarded.load(Ordering::Relaxed) && self.storage.local().is_some()
    }

    /// The engine for one object, an array, a group or a directory. If guarded, an engine of its own: what it
    /// remembers comes from the files to which the paths lead as long as it is not [stale](Engine::is_stale),
    /// and no other engine finds it in the cache. Otherwise this one.
    #[must_use]
    pub fn for_object(self: &Arc<Self>) -> Arc<Engine> {
        if !self.is_guarded() {
            return self.clone();
        }
        let steady = Arc::new(SteadyStorage::new(self.files.clone()));
        Arc::new(Engine {
            storage: steady.clone(),
            cache: self.cache.clone(),
            stats: self.stats.clone(),
            work: self.work.clone(),
            disorder: self.disorder.clone(),
            has_changed_fragments: self.has_changed_fragments.clone(),
            tuning: self.tuning,
            keys: self.keys.clone(),
            at: self.at,
            files: self.files.clone(),
            guarded: self.guarded.clone(),
            steady: Some(steady),
            fragments: self.fragments.clone(),
            objects: RandomState::new(),
            listed_anew: Mutex::default(),
            pinned: AllPinned::default(),
        })
    }

    /// Whether the object of this engine has to be opened anew, because names were exchanged below it.
    pub fn is_stale(&self) -> bool {
        match &self.steady {
            Some(steady) => steady.is_stale(),
            None => self.is_guarded(),
        }
    }

    /// Tells what it remembers from what other engines do; 0 where names are not watched.
    pub fn generation(&self) -> u64 {
        self.steady.as_ref().map_or(0, |_| self.number(&()))
    }

    /// The time as of which everything is read, in milliseconds since the Unix epoch; None for the present.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// The end of what readers see, in milliseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        self.at.unwrap_or_else(now)
    }

    /// The key for the array or group at `path`: that of the longest path that is `path` or one of its
    /// ancestors.
    pub fn key_for(&self, path: &Path) -> Option<&EncryptionKey> {
        self.keys
            .iter()
            .filter(|(prefix, _)| path.starts_with(prefix))
            .max_by_key(|(prefix, _)| prefix.components().count())
            .map(|(_, key)| key)
    }

    /// The most files that all views may hold open which nobody is reading.
    pub fn most_held_files(&self) -> u64 {
        self.files.most_held()
    }

    /// Whether a reader may hold one more file open. Views with very many fields have more files than that.
    pub fn may_hold(&self) -> bool {
        self.files.may_hold()
    }

    /// Opens a file that never changes once it exists, or returns it from the open files. If the file has
    /// changed nevertheless, it is opened again.
    pub fn open_immutable(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let blob = self.files.open_cached(path)?;
        if let Some(steady) = &self.steady {
            steady.meet(path, blob.version().0)?;
        }
        Ok(blob)
    }

    /// Decodes the whole generic tile at `offset`. `LimitExceeded` if that takes more memory than the cache
    /// allows.
    pub fn generic_tile(
        &self,
        blob: &dyn Blob,
        offset: u64,
        key: Option<&EncryptionKey>,
    ) -> Result<(GenericTile, Vec<u8>)> {
        /// The offset of the size in the header.
        const SIZE_OFFSET: u64 = 12;
        let tile = GenericTile::read_header(blob, offset, key)?;
        let check = self.cache.check_size(tile.size);
        check.map_err(|e| e.at(offset + SIZE_OFFSET).in_file(blob.display()))?;
        let body = tile.decode_within(blob, tile.size)?;
        Ok((tile, body))
    }

    /// Makes the next access list `directory` again, because something is missing in it. Only if the storage
    /// caches listings; and only if its listing is a second old, or this did nothing for a second. Returns
    /// whether it did.
    pub fn list_anew(&self, directory: &Path) -> bool {
        if !self.storage.is_remote() {
            return false;
        }
        let is_old = self.storage.forget(directory, RELIST_INTERVAL);
        let mut last = lock(&self.listed_anew);
        if !is_old && last.is_some_and(|last| last.elapsed() < RELIST_INTERVAL) {
            return false;
        }
        *last = Some(Instant::now());
        drop(last);
        if !is_old {
            self.storage.forget(directory, Duration::ZERO);
        }
        true
    }

    /// An error of reading something that belongs to `path`, or `path` itself, which was listed: `Missing` if
    /// it is not there although `path` is there still, so that it was not deleted meanwhile.
    pub fn incomplete(&self, path: &Path, error: Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound if self.storage.metadata(path).is_ok() => error.missing_if_not_found(),
            _ => error,
        }
    }

    /// Drops listings of `directories` that were begun before `time`, in milliseconds since the Unix epoch,
    /// if the storage caches listings; all, if `time` is to come.
    pub fn forget_listings_before(&self, directories: &[PathBuf], time: u64) {
        let age = now().checked_sub(time);
        let age = age.map_or(Duration::ZERO, Duration::from_millis);
        for directory in directories {
            self.storage.forget(directory, age);
        }
    }

    /// Calls `read`, which reads files of `directory`. If one is missing, lists the directory again and calls
    /// `read` once more.
    pub fn read_in<T>(&self, directory: &Path, read: impl Fn() -> Result<T>) -> Result<T> {
        match read() {
            Err(e) if e.kind() == ErrorKind::NotFound && self.list_anew(directory) => read(),
            result => result,
        }
    }

    /// `files`, which are small and are read one after the other. If each takes a request, those of many are
    /// made at once.
    pub fn in_turn<'e>(&'e self, files: &'e [PathBuf]) -> impl Iterator<Item = &'e Path> {
        files.chunks(PREFETCHED_FILES).flat_map(move |files| {
            self.storage.will_read_tails(files, PREFETCHED_BYTES);
            files.iter().map(PathBuf::as_path)
        })
    }

    /// Closes the cached open files below `path`.
    pub fn close_below(&self, path: &Path) {
        self.files.close(|file| file.starts_with(path));
    }

    /// The cache's number for object `number` of a file: 64 bits of a keyed hash, so that no file can provoke
    /// a collision. It differs for each state of the file, so that chunks of two states never mix.
    pub fn object(&self, blob: &dyn Blob, number: u64) -> u64 {
        self.objects.hash_one((blob.display(), blob.version(), number))
    }

    /// The cache's number for something derived from the source: 64 bits of a keyed hash. `name` must contain
    /// the state that it is derived from.
    pub fn number(&self, name: &impl Hash) -> u64 {
        self.objects.hash_one(name)
    }

    /// Pins a text: see [`AllPinned::pin`].
    pub fn pin(&self, number: u64, text: Arc<Vec<u8>>) -> Result<Arc<Pinned>> {
        self.pinned.pin(&self.cache, number, text)
    }

    /// Notes that the metadata of a fragment, `bytes` bytes, was put into `cell`, and drops the metadata that
    /// was read longest ago.
    pub fn keep_fragment(&self, cell: &Arc<impl Evictable + 'static>, bytes: u64) {
        let mut kept = lock(&self.fragments);
        let cell: Arc<dyn Evictable> = cell.clone();
        kept.fragments.push_back((Arc::downgrade(&cell), bytes));
        kept.bytes += bytes;
        let mut let_go = Vec::new();
        while kept.bytes > MAX_CACHED_METADATA
            && kept.fragments.len() > 1
            && let Some((cell, bytes)) = kept.fragments.pop_front()
        {
            kept.bytes -= bytes;
            let_go.push(cell.upgrade().and_then(|cell| cell.evict()));
        }
        drop(kept);
        drop(let_go);
    }
}

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
            false => Err(Error::changed().at(0).in_file(&*self.display)),
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

    fn will_read_through(&self, range: Range<u64>) {
        if let Ok(blob) = self.open() {
            blob.will_read_through(range);
        }
    }

    fn forget(&self, range: Range<u64>) {
        if let Ok(blob) = self.open() {
            blob.forget(range);
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
