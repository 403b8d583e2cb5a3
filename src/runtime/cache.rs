//! The cache of decoded chunks, chunk indexes and the text of large documents, bounded in bytes.
//!
//! An entry that is being decoded counts against the bound. It is decoded once, even if several readers want
//! it: the first loads it, and the others wait for its result, success or failure. Failures are not kept.
//!
//! The cache is scan-resistant: two lists share the bound. Chunks that a sequential reader passes through
//! ([`Keep::Passing`]) are not read again, since the kernel has its own copy. They get a small share. So they
//! do not evict chunks that may be read again, and their memory is used again: page faults of new memory
//! would cost half as much as decoding.
//!
//! An entry larger than the bound is kept beside it, as long as it is no larger than what may be decoded at
//! once: a reader takes it in many requests. Only the last one is.
//!
//! A loader holds a part of the budget that others may be waiting for, so it must not use the cache itself.
//! An entry that is made from other entries, such as the text of a document, is loaded with
//! [`ChunkCache::derive`], whose loader holds nothing.

use crate::bytes::{Bytes, Keep, Output};
use crate::error::{Error, Result};
use crate::runtime::lock;
use crate::runtime::requester::{is_of_others, wait_on};
use crate::runtime::single_flight::Flight;
use crate::runtime::stats::Stats;
use lru::LruCache;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

/// How many bytes may be decoded at once beyond the size of the cache.
const ALLOWANCE: u64 = 32 << 20;

/// `check_size` assumes at least this capacity, in bytes.
const MIN_ASSUMED_CAPACITY: u64 = 32 << 20;

/// A reservation of at most this many bytes is never refused, and a load of so many never waits for readers.
const SMALL_RESERVATION: u64 = 64 << 10;

/// The longest wait of a loader of an entry larger than the cache for readers to drop another such entry, and
/// the interval at which it polls. The wait is limited, since a reader may hold the one while it asks for the
/// other.
const MAX_UNKEPT_WAIT: Duration = Duration::from_millis(200);
const UNKEPT_POLL: Duration = Duration::from_millis(1);

/// An entry of more than capacity / `LARGE_SHARE` bytes is large.
const LARGE_SHARE: u64 = 4;

/// While an entry larger than the cache is loaded, an eighth of the cache, but no more than this many bytes,
/// stays for what readers of such entries look at in between: to find an index again may take another one.
const MAX_SPARED: u64 = 2 << 20;

/// What a cache entry belongs to. `object` is a number from [`crate::engine::Engine::object`]; `tile` and
/// `chunk` are numbers within the object. Entries of different types may have the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey {
    object: u64,
    tile: u64,
    chunk: usize,
}

impl CacheKey {
    /// The key of an entry for a whole object.
    pub fn of(object: u64) -> CacheKey {
        CacheKey::tile(object, u64::MAX)
    }

    /// The key of a tile of a file, or of another numbered part of an object.
    pub fn tile(object: u64, tile: u64) -> CacheKey {
        CacheKey::chunk(object, tile, 0)
    }

    /// The key of a chunk of a tile.
    pub fn chunk(object: u64, tile: u64, chunk: usize) -> CacheKey {
        CacheKey { object, tile, chunk }
    }
}

/// A type of cache entries.
pub trait Entry: Send + Sync + 'static {
    /// Approximate size in bytes.
    fn memory(&self) -> u64;
}

impl<T: Copy + Send + Sync + 'static> Entry for Vec<T> {
    fn memory(&self) -> u64 {
        (self.capacity() as u64).saturating_mul(size_of::<T>() as u64)
    }
}

/// The measured lengths of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The end offset of each of its segments.
    pub ends: Vec<u64>,
    /// A hash of its text.
    pub version: u64,
}

impl Lengths {
    /// The length of the document in bytes.
    pub fn total(&self) -> u64 {
        // A document has a segment at least.
        self.ends[self.ends.len() - 1]
    }
}

impl Entry for Lengths {
    fn memory(&self) -> u64 {
        self.ends.memory()
    }
}

/// An entry of any type, with the bytes that it counts as. Cloning shares it.
#[derive(Clone)]
struct Item {
    entry: Arc<dyn Any + Send + Sync>,
    size: u64,
}

impl Item {
    fn new<T: Entry>(entry: Arc<T>) -> Item {
        Item {
            size: Item::size(&*entry),
            entry,
        }
    }

    fn size(entry: &impl Entry) -> u64 {
        /// Overhead of an entry, bytes.
        const OVERHEAD: u64 = 128;
        entry.memory().saturating_add(OVERHEAD)
    }

    fn entry<T: Entry>(self) -> Arc<T> {
        self.entry.downcast().expect("the key has the type of the entry")
    }
}

/// The key of an entry, and its type.
type TypedKey = (TypeId, CacheKey);

fn typed<T: Entry>(key: CacheKey) -> TypedKey {
    (TypeId::of::<T>(), key)
}

/// The share of the cache for [`Keep::Passing`]: capacity / `PASSING_SHARE`, at most `MAX_PASSING` bytes.
const PASSING_SHARE: u64 = 16;
const MAX_PASSING: u64 = 16 << 20;

/// The share has room for at least this many entries, because larger entries stay.
const MIN_PASSING_ENTRIES: u64 = 32;

/// How much of that share is used per processor: this many entries or this many bytes, whichever is more.
/// Requests on different processors use the same chunks, and overlapping fragments need several chunks for
/// each request. With half of it, ten fragments of 256 MiB took 10 % more decoding and 24 % more time; other
/// arrays were as fast.
const PASSING_ENTRIES_PER_CPU: usize = 64;
const PASSING_BYTES_PER_CPU: u64 = 4 << 20;

/// Free memory is returned to the system whenever capacity / `TRIM_FRACTION` bytes were evicted. Entries have
/// many sizes: a full cache of chunks of 40 and 80 KB used a third more memory than it counted.
const TRIM_FRACTION: u64 = 16;

/// Makes the allocator return all empty pages.
fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The cache. Safe to use from any number of threads.
pub struct ChunkCache {
    capacity: u64,
    processors: usize,
    /// [`MAX_UNKEPT_WAIT`], but in tests.
    unkept_wait: Duration,
    stats: Arc<Stats>,
    state: Mutex<Inner>,
    /// Signalled when bytes become free.
    room: Condvar,
}

struct Inner {
    staying: LruCache<TypedKey, Item>,
    passing: LruCache<TypedKey, Item>,
    loading: HashMap<TypedKey, Arc<Flight<Item>>>,
    /// Bytes of entries, loads and reservations together.
    bytes: u64,
    passing_bytes: u64,
    loading_bytes: u64,
    /// The part of `bytes` that cannot be evicted.
    held_bytes: u64,
    /// The size of the one staying entry that is larger than the whole cache; 0 without one.
    oversized: u64,
    /// Entries larger than the whole cache that are not kept any more, and that readers may still hold.
    unkept: Vec<Weak<dyn Any + Send + Sync>>,
    /// The large entry that was loaded last.
    large: Option<Large>,
    /// Bytes of staying entries evicted since the allocator last returned free memory.
    dropped_bytes: u64,
}

/// When a large entry was used, for loaders of others that have no room beside it.
struct Large {
    key: TypedKey,
    size: u64,
    /// How long it took to load.
    took: Duration,
    /// When it was wanted last.
    used: Instant,
}

impl Inner {
    /// The entry for `key`. A passing entry becomes a staying one if `keep` says so.
    fn find(&mut self, key: &TypedKey, keep: Keep) -> Option<Item> {
        if let Some(item) = self.staying.get(key) {
            if let Some(large) = self.large.as_mut().filter(|large| large.key == *key) {
                large.used = Instant::now();
            }
            return Some(item.clone());
        }
        if keep == Keep::Passing {
            return self.passing.get(key).cloned();
        }
        let item = self.passing.pop(key)?;
        self.passing_bytes = self.passing_bytes.saturating_sub(item.size);
        self.staying.put(*key, item.clone());
        Some(item)
    }

    /// Whether somebody who has waited for `waited` should let readers of a large entry finish that has no
    /// room beside `wanted` more bytes. Two readers in turns would load each entry again for each read: it is
    /// worth a quarter of the time of a load (at most `longest`) to see whether the next read comes, and four
    /// times that time while reads come.
    fn is_large_used(&self, wanted: u64, bound: u64, longest: Duration, waited: Duration) -> bool {
        self.large.as_ref().is_some_and(|large| {
            let took = large.took.min(longest);
            large.size.saturating_add(wanted) > bound
                && large.used.elapsed() < took / 4
                && waited < took * 4
                && self.staying.contains(&large.key)
        })
    }

    fn put(&mut self, key: TypedKey, item: Item, keep: Keep) {
        self.bytes = self.bytes.saturating_add(item.size);
        match keep {
            Keep::Staying => self.staying.put(key, item),
            Keep::Passing => {
                self.passing_bytes = self.passing_bytes.saturating_add(item.size);
                self.passing.put(key, item)
            }
        };
    }

    /// Whether a reader still holds an entry that is larger than the whole cache.
    fn holds_unkept(&self) -> bool {
        self.unkept.iter().any(|entry| entry.strong_count() > 0)
    }

    /// Notes an entry that is larger than the whole cache and not kept, and forgets those that nobody holds.
    fn note_unkept(&mut self, item: &Item) {
        self.unkept.retain(|entry| entry.strong_count() > 0);
        self.unkept.push(Arc::downgrade(&item.entry));
    }

    /// Counts a staying entry no more.
    fn forget(&mut self, item: &Item) {
        self.bytes = self.bytes.saturating_sub(item.size);
        if item.size == self.oversized {
            self.oversized = 0;
            self.note_unkept(item);
        }
    }

    /// Drops the least recently used of the passing entries.
    fn drop_passing(&mut self) -> bool {
        let Some((_, Item { size, .. })) = self.passing.pop_lru() else {
            return false;
        };
        self.passing_bytes = self.passing_bytes.saturating_sub(size);
        self.bytes = self.bytes.saturating_sub(size);
        true
    }

    /// Drops the least recently used of the staying entries.
    fn drop_staying(&mut self) -> bool {
        let lru = self.staying.pop_lru();
        lru.map(|(_, item)| self.drop_item(&item)).is_some()
    }

    /// Drops the large entry that was loaded last, if it is there.
    fn drop_large(&mut self) -> bool {
        let large = self.large.as_ref().and_then(|large| self.staying.pop(&large.key));
        large.map(|item| self.drop_item(&item)).is_some()
    }

    fn drop_item(&mut self, item: &Item) {
        self.dropped_bytes = self.dropped_bytes.saturating_add(item.size);
        self.forget(item);
    }
}

impl ChunkCache {
    /// An empty cache of at most `capacity` bytes.
    pub fn new(capacity: u64, stats: Arc<Stats>) -> Self {
        stats.cache_capacity.set(capacity);
        ChunkCache {
            capacity,
            processors: available_parallelism().map_or(1, NonZeroUsize::get),
            unkept_wait: MAX_UNKEPT_WAIT,
            stats,
            state: Mutex::new(Inner {
                staying: LruCache::unbounded(),
                passing: LruCache::unbounded(),
                loading: HashMap::new(),
                bytes: 0,
                passing_bytes: 0,
                loading_bytes: 0,
                held_bytes: 0,
                oversized: 0,
                unkept: Vec::new(),
                large: None,
                dropped_bytes: 0,
            }),
            room: Condvar::new(),
        }
    }

    /// The capacity in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The most bytes that may be decoded at once.
    pub fn most_at_once(&self) -> u64 {
        self.capacity.max(MIN_ASSUMED_CAPACITY).saturating_add(ALLOWANCE)
    }

    /// `LimitExceeded` if decoding `bytes` bytes at once would take much more memory than the cache has. The
    /// check covers sizes in damaged files, which may be consistent.
    pub fn check_size(&self, bytes: u64) -> Result<()> {
        let most = self.most_at_once();
        if bytes > most {
            return Err(Error::limit(format!(
                "decoding this takes {bytes} bytes at once, but the cache size allows {most}"
            )));
        }
        Ok(())
    }

    /// Whether an entry is no larger than the cache. Of larger ones the last is kept alone, and the next is
    /// loaded only when readers have dropped it.
    pub fn can_keep(&self, entry: &impl Entry) -> bool {
        Item::size(entry) <= self.capacity
    }

    /// The entry for `key`, if there is one.
    pub fn find<T: Entry>(&self, key: CacheKey) -> Option<Arc<T>> {
        let item = lock(&self.state).find(&typed::<T>(key), Keep::Staying)?;
        self.stats.cache_hits.add(1);
        Some(item.entry())
    }

    /// Puts an entry into the cache, in place of one with the same key. An entry larger than an eighth of the
    /// cache is not kept.
    pub fn put<T: Entry>(&self, key: CacheKey, entry: Arc<T>) {
        let (key, item) = (typed::<T>(key), Item::new(entry));
        let mut state = lock(&self.state);
        // A passing entry is moved, so that no key is in both lists.
        if state.find(&key, Keep::Staying).is_some()
            && let Some(before) = state.staying.pop(&key)
        {
            state.forget(&before);
        }
        if item.size > self.capacity / 8 {
            return;
        }
        self.evict(&mut state, item.size);
        if state.bytes.saturating_add(item.size) <= self.capacity {
            state.put(key, item, Keep::Staying);
        }
        self.stats.cache_bytes.set(state.bytes);
    }

    /// Counts `bytes` bytes held outside the cache against its capacity, until they are
    /// [released](ChunkCache::release). `LimitExceeded` if more than half the capacity would be held.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let mut state = lock(&self.state);
        let most = self.capacity.max(MIN_ASSUMED_CAPACITY) / 2;
        if bytes > SMALL_RESERVATION && state.held_bytes.saturating_add(bytes) > most {
            return Err(Error::limit(format!(
                "opening a document of {bytes} bytes would make open documents larger than {most} bytes, half of \
                 the cache"
            )));
        }
        state.held_bytes = state.held_bytes.saturating_add(bytes);
        state.bytes = state.bytes.saturating_add(bytes);
        self.evict(&mut state, 0);
        self.stats.cache_bytes.set(state.bytes);
        Ok(())
    }

    /// Counts `bytes` bytes of temporary memory against the capacity, until the result is dropped.
    pub fn borrow(&self, bytes: u64) -> Borrowed<'_> {
        let mut state = lock(&self.state);
        state.bytes = state.bytes.saturating_add(bytes);
        self.evict(&mut state, 0);
        self.stats.cache_bytes.set(state.bytes);
        Borrowed { cache: self, bytes }
    }

    /// Ends a [`ChunkCache::reserve`] of `bytes` bytes.
    pub fn release(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.held_bytes = state.held_bytes.saturating_sub(bytes);
        state.bytes = state.bytes.saturating_sub(bytes);
        self.stats.cache_bytes.set(state.bytes);
        drop(state);
        self.room.notify_all();
    }

    /// The most bytes of all entries, of which one has `oversized` bytes, more than the capacity; 0 if none
    /// has so many.
    fn bound(&self, oversized: u64) -> u64 {
        self.capacity.saturating_add(oversized).min(self.most_at_once())
    }

    /// The most bytes of passing entries.
    fn passing_share(&self) -> u64 {
        (self.capacity / PASSING_SHARE).min(MAX_PASSING)
    }

    /// Whether there are more passing entries than are useful.
    fn passes_too_much(&self, state: &Inner) -> bool {
        let entries = PASSING_ENTRIES_PER_CPU.saturating_mul(self.processors);
        let bytes = PASSING_BYTES_PER_CPU.saturating_mul(self.processors as u64);
        state.passing_bytes > self.passing_share()
            || state.passing_bytes > bytes && state.passing.len() > entries
    }

    /// The entry for `key`. If there is none, `load` makes it; `estimate` is its expected size in bytes.
    /// Waits for room if loads in progress take the whole capacity. An entry larger than the cache is loaded
    /// alone, and kept until the next such entry or until its room is wanted.
    pub fn get<T: Entry>(
        &self,
        key: CacheKey,
        estimate: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        self.fetch(key, estimate, self.kept(estimate, keep), load)
    }

    /// As [`ChunkCache::get`], but `load` may use other entries of the cache. `size` is the approximate size;
    /// it must be small, since the entry is counted only when it is complete.
    pub fn derive<T: Entry>(
        &self,
        key: CacheKey,
        size: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        self.fetch(key, 0, self.kept(size, keep), load)
    }

    /// How to keep an entry of `size` bytes. Large entries always stay: reading one takes many requests, and
    /// too few would fit into the share for passing entries.
    fn kept(&self, size: u64, keep: Keep) -> Keep {
        if size > self.passing_share() / MIN_PASSING_ENTRIES {
            Keep::Staying
        } else {
            keep
        }
    }

    fn fetch<T: Entry>(
        &self,
        key: CacheKey,
        estimate: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut landing = match self.find_or_begin(typed::<T>(key), estimate, keep)? {
            Begun::Found(item) => return Ok(item.entry()),
            Begun::Loading(landing) => landing,
        };
        let result = load().map(Arc::new);
        landing.result = Some(result.clone().map(Item::new));
        drop(landing);
        result
    }

    /// The entry, if it is there or another thread loads it; else there is room for it now, and this thread
    /// loads it. Not a part of `fetch`, which is compiled for each type of entries and each way to load one.
    fn find_or_begin(&self, key: TypedKey, estimate: u64, keep: Keep) -> Result<Begun<'_>> {
        let flight = Arc::new(Flight::default());
        let mut begun = None;
        let mut state = lock(&self.state);
        loop {
            if let Some(item) = state.find(&key, keep) {
                self.stats.cache_hits.add(1);
                return Ok(Begun::Found(item));
            }
            if let Some(other) = state.loading.get(&key).cloned() {
                drop(state);
                match other.wait(&|| ()) {
                    // The requester of that load gave up, but this one did not.
                    Err(e) if is_of_others(&e) => {
                        state = lock(&self.state);
                        continue;
                    }
                    result => {
                        self.stats.cache_hits.add(1);
                        return result.map(Begun::Found);
                    }
                }
            }
            let waited = begun.get_or_insert_with(Instant::now).elapsed();
            if !state.is_large_used(estimate, self.bound(state.oversized), self.unkept_wait, waited) {
                self.evict(&mut state, estimate);
                if state.loading_bytes > 0
                    && state.bytes.saturating_add(estimate) > self.bound(state.oversized)
                {
                    state = wait_on(&self.room, state)?;
                    continue;
                }
                let is_oversized = estimate > self.capacity.max(SMALL_RESERVATION);
                if !(is_oversized && state.holds_unkept() && waited < self.unkept_wait) {
                    break;
                }
            }
            // Readers come and go without notice.
            drop(state);
            thread::sleep(UNKEPT_POLL);
            state = lock(&self.state);
        }
        self.stats.cache_misses.add(1);
        state.loading.insert(key, flight.clone());
        state.bytes = state.bytes.saturating_add(estimate);
        state.loading_bytes = state.loading_bytes.saturating_add(estimate);
        self.stats.cache_bytes.set(state.bytes);
        drop(state);
        Ok(Begun::Loading(Landing {
            cache: self,
            key,
            keep,
            estimate,
            began: Instant::now(),
            flight,
            result: None,
        }))
    }

    /// Puts an entry that was loaded since `began` into the cache, if there is room.
    fn land(&self, state: &mut Inner, key: TypedKey, item: &Item, keep: Keep, began: Instant) {
        self.evict(state, item.size);
        let is_oversized = item.size > self.capacity;
        let (oversized, keep) = match is_oversized {
            true => (item.size, Keep::Staying),
            false => (state.oversized, keep),
        };
        if state.bytes.saturating_add(item.size) <= self.bound(oversized) {
            state.oversized = oversized;
            state.put(key, item.clone(), keep);
            // Passing entries make room for each other only.
            self.evict(state, 0);
        } else if is_oversized {
            state.note_unkept(item);
        }
        if item.size > self.capacity / LARGE_SHARE {
            state.large = Some(Large {
                key,
                size: item.size,
                took: began.elapsed(),
                used: Instant::now(),
            });
        }
    }

    /// Evicts until `wanted` more bytes fit or little is left: first passing entries beyond their useful
    /// number, then the least recently used; for more than the cache has, a large one before others.
    fn evict(&self, state: &mut Inner, wanted: u64) {
        let is_oversized = wanted > self.capacity;
        let spared = match is_oversized {
            true => (self.capacity / 8).min(MAX_SPARED),
            false => 0,
        };
        let full = |state: &Inner| {
            let kept = state.bytes.saturating_sub(state.loading_bytes);
            kept > spared && state.bytes.saturating_add(wanted) > self.bound(state.oversized)
        };
        if is_oversized && full(state) && state.drop_large() {
            self.stats.cache_evictions.add(1);
        }
        while self.passes_too_much(state) && state.drop_passing()
            || full(state) && (state.drop_staying() || state.drop_passing())
        {
            self.stats.cache_evictions.add(1);
        }
    }
}

/// The bound on memory, for bytes that others keep.
impl ChunkCache {
    /// Counts `bytes` more bytes, for which entries may be evicted.
    pub fn take(&self, bytes: u64) {
        std::mem::forget(self.borrow(bytes));
    }

    /// Counts `bytes` fewer bytes.
    pub fn give_back(&self, bytes: u64) {
        drop(Borrowed { cache: self, bytes });
    }
}

/// Bytes that count against the capacity until this is dropped.
pub struct Borrowed<'a> {
    cache: &'a ChunkCache,
    bytes: u64,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.cache.state);
        state.bytes = state.bytes.saturating_sub(self.bytes);
        self.cache.stats.cache_bytes.set(state.bytes);
        drop(state);
        self.cache.room.notify_all();
    }
}

/// What a thread finds that wants an entry.
enum Begun<'a> {
    Found(Item),
    /// It loads the entry itself.
    Loading(Landing<'a>),
}

/// An entry that is being loaded. Gives its budget back even if that panics, so that nobody waits forever.
struct Landing<'a> {
    cache: &'a ChunkCache,
    key: TypedKey,
    keep: Keep,
    estimate: u64,
    began: Instant,
    flight: Arc<Flight<Item>>,
    result: Option<Result<Item>>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let result = self
            .result
            .take()
            .unwrap_or_else(|| Err(Error::internal("the decoder panicked; this is a bug")));
        let mut state = lock(&self.cache.state);
        state.loading.remove(&self.key);
        state.bytes = state.bytes.saturating_sub(self.estimate);
        state.loading_bytes = state.loading_bytes.saturating_sub(self.estimate);
        if let Ok(item) = &result {
            self.cache.land(&mut state, self.key, item, self.keep, self.began);
        }
        self.cache.stats.cache_bytes.set(state.bytes);
        let gives_back = state.dropped_bytes > self.cache.capacity / TRIM_FRACTION;
        if gives_back {
            state.dropped_bytes = 0;
        }
        drop(state);
        self.cache.room.notify_all();
        self.flight.finish(result);
        if gives_back {
            give_back();
        }
    }
}

/// Pinned bytes. They count against the cache's capacity.
pub struct Pinned {
    cache: Arc<ChunkCache>,
    bytes: Arc<Vec<u8>>,
}

/// All pinned bytes by the number of their document.
#[derive(Default)]
pub struct AllPinned(Mutex<HashMap<u64, Weak<Pinned>>>);

impl AllPinned {
    /// Pins `bytes` as `object`; holders of the same object share them. `LimitExceeded` if they are too many
    /// for `cache` in addition to those already pinned.
    pub fn pin(&self, cache: &Arc<ChunkCache>, object: u64, bytes: Arc<Vec<u8>>) -> Result<Arc<Pinned>> {
        let mut all = lock(&self.0);
        if let Some(pinned) = all.get(&object).and_then(Weak::upgrade) {
            return Ok(pinned);
        }
        if all.len().is_power_of_two() {
            all.retain(|_, pinned| pinned.strong_count() > 0);
        }
        cache.reserve(bytes.len())?;
        let pinned = Arc::new(Pinned {
            cache: cache.clone(),
            bytes,
        });
        all.insert(object, Arc::downgrade(&pinned));
        Ok(pinned)
    }
}

impl Bytes for Arc<Pinned> {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        self.bytes.read(range, out)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.cache.release(self.bytes.len());
    }
}

#[cfg(test)]
mod tests;
