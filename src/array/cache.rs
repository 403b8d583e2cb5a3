//! The one cache of decoded chunks, chunk indexes and the text of large documents, bounded in bytes.
//!
//! What is being decoded counts against the bound, and is decoded once however many readers want it: the
//! first becomes its loader, the others wait for the result, success or failure. Failures are not kept.
//!
//! Two lists share the bound. The cache is scan-resistant: what sequential readers pass through
//! ([`Keep::Passing`]) is not read again, since the kernel keeps its own copy. It gets a small share of its
//! own, so that it neither evicts what may be read again nor touches new memory all the time: page faults
//! would cost half as much as decoding.
//!
//! A loader must not ask the cache for anything itself, because it holds a part of the budget that others may
//! be waiting for. What is made of other entries, such as the text of documents, is loaded with
//! [`ChunkCache::derive`], whose loader holds none.

use crate::error::{Error, ErrorKind, Result};
use crate::requester::{is_of_others, wait_on};
use crate::stats::Stats;
use crate::storage::Budget;
use lru::LruCache;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

/// What may be decoded at once beyond the size of the cache, and with the smallest cache.
const ALLOWANCE: u64 = 32 << 20;
const LEAST: u64 = 32 << 20;

/// What is held may always have this much more.
const LITTLE: u64 = 64 << 10;

/// For how long, and how often, an entry larger than the whole cache waits for readers to let go of another
/// such entry. Not for longer: a reader may ask for one while it holds one.
const LETTING_GO: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(1);

/// What a cache entry belongs to. `object` is a number from [`super::engine::Engine::object`]; `tile` and
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

/// What the cache can hold.
pub trait Entry: Send + Sync + 'static {
    /// Bytes that it takes, about.
    fn memory(&self) -> u64;
}

impl<T: Copy + Send + Sync + 'static> Entry for Vec<T> {
    fn memory(&self) -> u64 {
        (self.capacity() as u64).saturating_mul(size_of::<T>() as u64)
    }
}

/// What was measured of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Where each of its segments ends.
    pub ends: Vec<u64>,
    /// A hash of its text.
    pub version: u64,
}

impl Entry for Lengths {
    fn memory(&self) -> u64 {
        self.ends.memory()
    }
}

/// For how long an entry is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// As long as there is room.
    Staying,
    /// Until sequential readers are past it: while it is among the most recent in their share of the cache.
    Passing,
}

/// An entry of any type, with the bytes that it counts as. Cloning shares it.
#[derive(Clone)]
struct Item {
    entry: Arc<dyn Any + Send + Sync>,
    size: u64,
}

impl Item {
    fn new<T: Entry>(entry: Arc<T>) -> Item {
        /// What an entry takes besides.
        const BESIDES: u64 = 128;
        Item {
            size: entry.memory().saturating_add(BESIDES),
            entry,
        }
    }

    fn entry<T: Entry>(self) -> Result<Arc<T>> {
        let other = |_| {
            Error::new(
                ErrorKind::Internal,
                "a cache entry has another type than its key says",
            )
        };
        self.entry.downcast().map_err(other)
    }
}

/// The key of an entry, and its type.
type TypedKey = (TypeId, CacheKey);

fn typed<T: Entry>(key: CacheKey) -> TypedKey {
    (TypeId::of::<T>(), key)
}

/// The share of the cache for [`Keep::Passing`]: one in this many bytes, and at most [`PASSING_MOST`].
const PASSING_SHARE: u64 = 16;
const PASSING_MOST: u64 = 16 << 20;

/// The least number of entries that the share has room for.
const PASSING_ENTRIES: u64 = 32;

/// How much of that share is used for each processor: this many entries or this many bytes, whichever is
/// more. Requests of different processors have chunks in common, and with overlapping fragments those of
/// several. With half of it, ten fragments of 256 MiB took 10 % more decoding and 24 % more time; other
/// arrays are as fast with either.
const PASSING_ENTRIES_EACH: usize = 64;
const PASSING_EACH: u64 = 4 << 20;

/// Free memory is given back to the system after this part of the cache was evicted. Entries have many sizes,
/// and a full cache of chunks of 40 and 80 KB took up a third more than it holds.
const GIVE_BACK: u64 = 16;

/// Makes the allocator give back all empty pages, wherever they lie.
fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The cache. Safe to use from any number of threads.
pub struct ChunkCache {
    capacity: u64,
    processors: usize,
    stats: Arc<Stats>,
    state: Mutex<State>,
    /// Signalled when bytes become free.
    room: Condvar,
}

struct State {
    staying: LruCache<TypedKey, Item>,
    passing: LruCache<TypedKey, Item>,
    loading: HashMap<TypedKey, Arc<Flight>>,
    /// Of all three together.
    bytes: u64,
    passing_bytes: u64,
    loading_bytes: u64,
    /// The part of `bytes` that cannot be evicted.
    held_bytes: u64,
    /// Entries that were larger than the whole cache, so not kept, while readers may still hold them.
    unkept: Vec<Weak<dyn Any + Send + Sync>>,
    /// Bytes evicted, not counting what passes, since the allocator last gave back free memory.
    dropped_bytes: u64,
}

impl State {
    /// The entry for `key`. A passing one stays from now on, if `keep` says so.
    fn find(&mut self, key: &TypedKey, keep: Keep) -> Option<Item> {
        if let Some(item) = self.staying.get(key) {
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
    fn holds_unkept(&mut self) -> bool {
        self.unkept.retain(|entry| entry.strong_count() > 0);
        !self.unkept.is_empty()
    }

    /// Drops the least recently used entry of those that pass.
    fn drop_passing(&mut self) -> bool {
        let Some((_, Item { size, .. })) = self.passing.pop_lru() else {
            return false;
        };
        self.passing_bytes = self.passing_bytes.saturating_sub(size);
        self.bytes = self.bytes.saturating_sub(size);
        true
    }

    /// Drops the least recently used entry of those that stay.
    fn drop_staying(&mut self) -> bool {
        let Some((_, Item { size, .. })) = self.staying.pop_lru() else {
            return false;
        };
        self.dropped_bytes = self.dropped_bytes.saturating_add(size);
        self.bytes = self.bytes.saturating_sub(size);
        true
    }
}

/// A load that others may wait for.
#[derive(Default)]
struct Flight {
    result: Mutex<Option<Result<Item>>>,
    done: Condvar,
}

impl Flight {
    fn wait(&self) -> Result<Item> {
        let mut result = lock(&self.result);
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            result = wait_on(&self.done, result)?;
        }
    }

    fn finish(&self, value: Result<Item>) {
        lock(&self.result).get_or_insert(value);
        self.done.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl ChunkCache {
    /// An empty cache of at most `capacity` bytes.
    pub fn new(capacity: u64, stats: Arc<Stats>) -> Self {
        stats.cache_capacity.set(capacity);
        ChunkCache {
            capacity,
            processors: available_parallelism().map_or(1, NonZeroUsize::get),
            stats,
            state: Mutex::new(State {
                staying: LruCache::unbounded(),
                passing: LruCache::unbounded(),
                loading: HashMap::new(),
                bytes: 0,
                passing_bytes: 0,
                loading_bytes: 0,
                held_bytes: 0,
                unkept: Vec::new(),
                dropped_bytes: 0,
            }),
            room: Condvar::new(),
        }
    }

    /// The most bytes that it holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Fails where decoding something of `bytes` bytes would take much more memory than the cache may: sizes
    /// that a file declares are not believed beyond that, however consistent they are.
    pub fn check_size(&self, bytes: u64) -> Result<()> {
        let most = self.capacity.max(LEAST).saturating_add(ALLOWANCE);
        if bytes > most {
            return Err(Error::limit(format!(
                "decoding this takes {bytes} bytes at once, but the cache size allows {most}"
            )));
        }
        Ok(())
    }

    /// The entry for `key`, if there is one.
    pub fn find<T: Entry>(&self, key: CacheKey) -> Option<Arc<T>> {
        let item = lock(&self.state).find(&typed::<T>(key), Keep::Staying)?;
        self.stats.cache_hits.add(1);
        item.entry().ok()
    }

    /// Puts an entry of at most an eighth of the cache into it, in place of what was there under its key.
    pub fn put<T: Entry>(&self, key: CacheKey, entry: Arc<T>) {
        let (key, item) = (typed::<T>(key), Item::new(entry));
        let mut state = lock(&self.state);
        // A passing entry is moved, so that no key is in both lists.
        if state.find(&key, Keep::Staying).is_some()
            && let Some(before) = state.staying.pop(&key)
        {
            state.bytes = state.bytes.saturating_sub(before.size);
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

    /// Counts `bytes` bytes that are held outside of the cache against its bound, until they are
    /// [released](ChunkCache::release). `LimitExceeded` if more than half of it would be held.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let mut state = lock(&self.state);
        let most = self.capacity.max(LEAST) / 2;
        if bytes > LITTLE && state.held_bytes.saturating_add(bytes) > most {
            return Err(Error::limit(format!(
                "opening {bytes} bytes of text would take the open documents above {most} bytes, half of the \
                 cache"
            )));
        }
        state.held_bytes = state.held_bytes.saturating_add(bytes);
        state.bytes = state.bytes.saturating_add(bytes);
        self.evict(&mut state, 0);
        self.stats.cache_bytes.set(state.bytes);
        Ok(())
    }

    /// Counts `bytes` bytes that work in progress takes outside of the cache against its bound, as long as
    /// the answer lives.
    pub fn borrow(&self, bytes: u64) -> Borrowed<'_> {
        let mut state = lock(&self.state);
        state.bytes = state.bytes.saturating_add(bytes);
        self.evict(&mut state, 0);
        self.stats.cache_bytes.set(state.bytes);
        Borrowed { cache: self, bytes }
    }

    /// Ends what [`ChunkCache::reserve`] began.
    pub fn release(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.held_bytes = state.held_bytes.saturating_sub(bytes);
        state.bytes = state.bytes.saturating_sub(bytes);
        self.stats.cache_bytes.set(state.bytes);
        drop(state);
        self.room.notify_all();
    }

    /// The most bytes of what passes.
    fn passing_share(&self) -> u64 {
        (self.capacity / PASSING_SHARE).min(PASSING_MOST)
    }

    /// Whether more is kept of what passes than is of use.
    fn passes_too_much(&self, state: &State) -> bool {
        let entries = PASSING_ENTRIES_EACH.saturating_mul(self.processors);
        let bytes = PASSING_EACH.saturating_mul(self.processors as u64);
        state.passing_bytes > self.passing_share()
            || state.passing_bytes > bytes && state.passing.len() > entries
    }

    /// The entry for `key`, or what `load` makes of it, expected to take `estimate` bytes. Waits for room
    /// where loads in progress take up all of it; an entry larger than the whole cache is loaded alone and
    /// not kept.
    pub fn get<T: Entry>(
        &self,
        key: CacheKey,
        estimate: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        self.fetch(key, estimate, self.kept(estimate, keep), load)
    }

    /// The same for what `load` makes of other entries of the cache. `size` is about its length; it must be
    /// small, since it is counted only when it is complete.
    pub fn derive<T: Entry>(
        &self,
        key: CacheKey,
        size: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        self.fetch(key, 0, self.kept(size, keep), load)
    }

    /// Large entries, which take many requests to read, stay: too few would fit into the share for passing
    /// ones.
    fn kept(&self, size: u64, keep: Keep) -> Keep {
        if size > self.passing_share() / PASSING_ENTRIES {
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
        let key = typed::<T>(key);
        let flight = Arc::new(Flight::default());
        let mut begun = None;
        let mut state = lock(&self.state);
        loop {
            if let Some(item) = state.find(&key, keep) {
                self.stats.cache_hits.add(1);
                return item.entry();
            }
            if let Some(other) = state.loading.get(&key).cloned() {
                drop(state);
                match other.wait() {
                    // Who loaded it gave up; this one has not.
                    Err(e) if is_of_others(&e) => {
                        state = lock(&self.state);
                        continue;
                    }
                    result => {
                        self.stats.cache_hits.add(1);
                        return result.and_then(Item::entry);
                    }
                }
            }
            self.evict(&mut state, estimate);
            if state.loading_bytes > 0 && state.bytes.saturating_add(estimate) > self.capacity {
                state = wait_on(&self.room, state)?;
            } else if estimate > self.capacity
                && state.holds_unkept()
                && begun.get_or_insert_with(Instant::now).elapsed() < LETTING_GO
            {
                // Nothing tells when the last reader lets go.
                drop(state);
                thread::sleep(LOOK);
                state = lock(&self.state);
            } else {
                break;
            }
        }
        self.stats.cache_misses.add(1);
        state.loading.insert(key, flight.clone());
        state.bytes = state.bytes.saturating_add(estimate);
        state.loading_bytes = state.loading_bytes.saturating_add(estimate);
        self.stats.cache_bytes.set(state.bytes);
        drop(state);

        // Settles the account even if `load` panics, so that nobody waits forever.
        let mut landing = Landing {
            cache: self,
            key,
            keep,
            estimate,
            flight,
            result: None,
        };
        let result = load().map(Arc::new);
        landing.result = Some(result.clone().map(Item::new));
        drop(landing);
        result
    }

    /// Evicts entries until `wanted` more bytes fit or nothing is left: first passing ones beyond their
    /// useful number, then the least recently used.
    fn evict(&self, state: &mut State, wanted: u64) {
        let full = |state: &State| state.bytes.saturating_add(wanted) > self.capacity;
        while self.passes_too_much(state) && state.drop_passing()
            || full(state) && (state.drop_staying() || state.drop_passing())
        {
            self.stats.cache_evictions.add(1);
        }
    }
}

impl Budget for ChunkCache {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn take(&self, bytes: u64) {
        std::mem::forget(self.borrow(bytes));
    }

    fn give_back(&self, bytes: u64) {
        drop(Borrowed { cache: self, bytes });
    }
}

/// Bytes that count against the bound of the cache until this is dropped.
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

struct Landing<'a> {
    cache: &'a ChunkCache,
    key: TypedKey,
    keep: Keep,
    estimate: u64,
    flight: Arc<Flight>,
    result: Option<Result<Item>>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::Internal,
                "the decoder panicked; this is a bug",
            ))
        });
        let mut state = lock(&self.cache.state);
        state.loading.remove(&self.key);
        state.bytes = state.bytes.saturating_sub(self.estimate);
        state.loading_bytes = state.loading_bytes.saturating_sub(self.estimate);
        match &result {
            Ok(item) if item.size > self.cache.capacity => state.unkept.push(Arc::downgrade(&item.entry)),
            Ok(item) => {
                self.cache.evict(&mut state, item.size);
                if state.bytes.saturating_add(item.size) <= self.cache.capacity {
                    state.put(self.key, item.clone(), self.keep);
                    // What passes makes room for what passes.
                    self.cache.evict(&mut state, 0);
                }
            }
            Err(_) => {}
        }
        self.cache.stats.cache_bytes.set(state.bytes);
        let gives_back = state.dropped_bytes > self.cache.capacity / GIVE_BACK;
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

#[cfg(test)]
mod tests;
