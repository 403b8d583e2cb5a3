//! The one cache of decoded chunks, chunk indexes and the text of large documents, bounded in bytes.
//!
//! What is being decoded counts against the bound, and is decoded once however many readers want it: the
//! first becomes its loader, the others wait for the result, success or failure. Failures are not kept.
//!
//! Two lists share the bound. What sequential readers pass through ([`Keep::Passing`]) is soon read by
//! nobody, since the kernel keeps its own copy. It gets a small share, so that it neither drives out what may
//! be read again nor touches new memory all the time: page faults would cost half as much as decoding.
//!
//! A loader must not ask the cache for anything itself: it holds a part of the budget that others may be
//! waiting for. What is made of other entries, such as the text of documents, is asked for with
//! [`ChunkCache::derive`], whose loader holds none.

use crate::asker::{asker, is_interrupted};
use crate::error::{Error, ErrorKind, Result};
use crate::filter::chunk::ChunkIndex;
use crate::stats::Stats;
use crate::storage::Budget;
use lru::LruCache;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::available_parallelism;
use std::time::Duration;

/// What may be decoded at once beyond the size of the cache, and with the smallest cache.
const ALLOWANCE: u64 = 32 << 20;
const LEAST: u64 = 32 << 20;

/// How often who waits for a loader looks whether they still should.
const LOOK: Duration = Duration::from_millis(200);

/// What is held may always have this much more.
const LITTLE: u64 = 64 << 10;

/// What a cache entry is of. `object` comes from [`super::engine::Engine::object`]; `tile` and `chunk` count
/// within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// A file of tiles, or a generic tile.
    pub object: u64,
    /// Tile of the file.
    pub tile: u64,
    /// Chunk of the tile, or [`Key::INDEX`].
    pub chunk: u32,
}

impl Key {
    /// In place of a chunk's number: the tile's chunk index.
    pub const INDEX: u32 = u32::MAX;

    /// What was measured of a document.
    pub fn lengths(document: u64) -> Key {
        Key {
            object: document,
            tile: u64::MAX,
            chunk: 0,
        }
    }

    /// The text of a document that is made in one piece; one in segments has each of them as a tile.
    pub fn text(document: u64) -> Key {
        Key {
            object: document,
            tile: u64::MAX - 1,
            chunk: 0,
        }
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

/// For how long an entry is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// As long as there is room.
    Staying,
    /// Until sequential readers are past it: as long as it is among the last in their share of the cache.
    Passing,
}

/// A cached thing. Cloning shares it.
#[derive(Debug, Clone)]
pub enum Item {
    /// A decoded chunk, with the rebuilt offsets (little-endian u64, relative to the tile) where the chunk
    /// embeds them.
    Chunk {
        /// Unfiltered bytes.
        data: Arc<Vec<u8>>,
        /// One u64 a cell.
        offsets: Option<Arc<Vec<u8>>>,
    },
    /// The chunk index of a tile.
    Index(Arc<ChunkIndex>),
    /// What was measured of a document.
    Lengths(Arc<Lengths>),
    /// Something made of chunks, and the bytes that it takes.
    Made(Made, u64),
}

/// Something of a type that whoever made it knows.
#[derive(Clone)]
pub struct Made(Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Made")
    }
}

impl Item {
    fn memory(&self) -> u64 {
        const ENTRY: u64 = 128;
        ENTRY
            + match self {
                Item::Chunk { data, offsets } => {
                    (data.capacity() + offsets.as_ref().map_or(0, |o| o.capacity())) as u64
                }
                Item::Index(index) => index.memory(),
                Item::Made(_, memory) => *memory,
                Item::Lengths(lengths) => (lengths.ends.capacity() as u64).saturating_mul(8),
            }
    }
}

/// The part of the cache that is for what passes: one in this many bytes, and at most [`PASSING_MOST`].
const PASSING_SHARE: u64 = 16;
const PASSING_MOST: u64 = 16 << 20;

/// The least number of entries that the share has room for.
const PASSING_ENTRIES: u64 = 32;

/// What is kept of what passes for each processor, of its share: this many entries or this many bytes,
/// whichever is more. That is as much as a processor decodes while another reads the rest of the chunk that
/// their requests have in common, and little enough to stay in the processors' own caches.
const PASSING_ENTRIES_EACH: usize = 32;
const PASSING_EACH: u64 = 2 << 20;

/// What is free is given back to the system when this part of the cache was dropped: what leaves and what
/// comes is of many sizes, and a full cache of chunks of 40 and 80 KB took up a third more than it holds.
const GIVE_BACK: u64 = 16;

/// Has the allocator give back the pages that nothing is left on, wherever they lie.
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
    staying: LruCache<Key, (Item, u64)>,
    passing: LruCache<Key, (Item, u64)>,
    loading: HashMap<Key, Arc<Flight>>,
    /// Of all three together.
    bytes: u64,
    passing_bytes: u64,
    loading_bytes: u64,
    /// What is held whatever the cache would do, and part of `bytes`.
    held_bytes: u64,
    /// Of what stayed, dropped since the allocator was last asked to give back what is free.
    dropped_bytes: u64,
}

impl State {
    /// The entry for `key`. One that passes stays from now on if it is wanted for longer.
    fn find(&mut self, key: &Key, keep: Keep) -> Option<Item> {
        if let Some((item, _)) = self.staying.get(key) {
            return Some(item.clone());
        }
        if keep == Keep::Passing {
            return self.passing.get(key).map(|(item, _)| item.clone());
        }
        let (item, size) = self.passing.pop(key)?;
        self.passing_bytes = self.passing_bytes.saturating_sub(size);
        self.staying.put(*key, (item.clone(), size));
        Some(item)
    }

    fn put(&mut self, key: Key, item: Item, size: u64, keep: Keep) {
        self.bytes = self.bytes.saturating_add(size);
        match keep {
            Keep::Staying => self.staying.put(key, (item, size)),
            Keep::Passing => {
                self.passing_bytes = self.passing_bytes.saturating_add(size);
                self.passing.put(key, (item, size))
            }
        };
    }

    /// Drops the least recently used entry of those that pass.
    fn drop_passing(&mut self) -> bool {
        let Some((_, (_, size))) = self.passing.pop_lru() else {
            return false;
        };
        self.passing_bytes = self.passing_bytes.saturating_sub(size);
        self.bytes = self.bytes.saturating_sub(size);
        true
    }

    /// Drops the least recently used entry of those that stay.
    fn drop_staying(&mut self) -> bool {
        let Some((_, (_, size))) = self.staying.pop_lru() else {
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
            match &*result {
                Some(result) => return result.clone(),
                None => {
                    let (locked, waited) = self
                        .done
                        .wait_timeout(result, LOOK)
                        .unwrap_or_else(|poisoned| poisoned.into_inner());
                    result = locked;
                    if waited.timed_out() && is_interrupted(asker()) {
                        let message = "nobody waits for it any more";
                        return Err(Error::new(ErrorKind::Abandoned, message));
                    }
                }
            }
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
                dropped_bytes: 0,
            }),
            room: Condvar::new(),
        }
    }

    /// The most bytes that it holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Fails where decoding something of `bytes` bytes would take much more memory than the cache may: what
    /// the file declares is believed no further, however consistent it is.
    pub fn check_size(&self, bytes: u64) -> Result<()> {
        let most = self.capacity.max(LEAST).saturating_add(ALLOWANCE);
        if bytes > most {
            return Err(Error::limit(format!(
                "{bytes} bytes to be decoded at once, where the size of the cache allows {most}"
            )));
        }
        Ok(())
    }

    /// The entry for `key`, if there is one.
    pub fn find(&self, key: &Key) -> Option<Item> {
        lock(&self.state).find(key, Keep::Staying)
    }

    /// Puts an entry of at most an eighth of the cache into it, in place of what was there under its key.
    pub fn put(&self, key: Key, item: Item) {
        let size = item.memory();
        let mut state = lock(&self.state);
        // One that passed stays from now on, so that there is none in either list.
        if state.find(&key, Keep::Staying).is_some()
            && let Some((_, size)) = state.staying.pop(&key)
        {
            state.bytes = state.bytes.saturating_sub(size);
        }
        if size > self.capacity / 8 {
            return;
        }
        self.evict(&mut state, size);
        if state.bytes.saturating_add(size) <= self.capacity {
            state.put(key, item, size, Keep::Staying);
        }
        self.stats.cache_bytes.set(state.bytes);
    }

    /// Counts `bytes` bytes that are held outside of the cache against its bound, until they are
    /// [released](ChunkCache::release). `LimitExceeded` where that came to more than half of it.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        let mut state = lock(&self.state);
        let most = self.capacity.max(LEAST) / 2;
        if bytes > LITTLE && state.held_bytes.saturating_add(bytes) > most {
            return Err(Error::limit(format!(
                "{bytes} bytes of text besides what is open already, which come to more than {most} in memory"
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
    pub fn get(
        &self,
        key: Key,
        estimate: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<Item>,
    ) -> Result<Item> {
        self.fetch(key, estimate, self.kept(estimate, keep), load)
    }

    /// The same for what `load` makes of other entries of the cache, which has `size` bytes in the end:
    /// little, since it is counted only when it is there.
    pub fn derive(
        &self,
        key: Key,
        size: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<Item>,
    ) -> Result<Item> {
        self.fetch(key, 0, self.kept(size, keep), load)
    }

    /// What `load` makes of other entries of the cache, with the bytes that it takes; about `size`, it says
    /// beforehand.
    pub fn made<T: Send + Sync + 'static>(
        &self,
        key: Key,
        size: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<(T, u64)>,
    ) -> Result<Arc<T>> {
        let item = self.derive(key, size, keep, || {
            let (made, memory) = load()?;
            Ok(Item::Made(Made(Arc::new(made)), memory))
        })?;
        let Item::Made(Made(made), _) = item else {
            return Err(Error::new(ErrorKind::Internal, "something else in the cache"));
        };
        made.downcast()
            .map_err(|_| Error::new(ErrorKind::Internal, "something of another type in the cache"))
    }

    /// Of large entries, which take many requests to read, too few would fit into the share of what passes.
    fn kept(&self, size: u64, keep: Keep) -> Keep {
        if size > self.passing_share() / PASSING_ENTRIES {
            Keep::Staying
        } else {
            keep
        }
    }

    fn fetch(
        &self,
        key: Key,
        estimate: u64,
        keep: Keep,
        load: impl FnOnce() -> Result<Item>,
    ) -> Result<Item> {
        let flight = Arc::new(Flight::default());
        let mut state = lock(&self.state);
        loop {
            if let Some(item) = state.find(&key, keep) {
                self.stats.cache_hits.add(1);
                return Ok(item);
            }
            if let Some(other) = state.loading.get(&key).cloned() {
                drop(state);
                match other.wait() {
                    // Who loaded it gave up; this one has not.
                    Err(e) if e.kind() == ErrorKind::Abandoned && !is_interrupted(asker()) => {
                        state = lock(&self.state);
                        continue;
                    }
                    result => {
                        self.stats.cache_hits.add(1);
                        return result;
                    }
                }
            }
            self.evict(&mut state, estimate);
            if state.loading_bytes == 0 || state.bytes.saturating_add(estimate) <= self.capacity {
                break;
            }
            state = self
                .room
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        self.stats.cache_misses.add(1);
        state.loading.insert(key, flight.clone());
        state.bytes = state.bytes.saturating_add(estimate);
        state.loading_bytes = state.loading_bytes.saturating_add(estimate);
        self.stats.cache_bytes.set(state.bytes);
        drop(state);

        // Settles the account even if `load` unwinds, so that nobody waits for ever.
        let mut landing = Landing {
            cache: self,
            key,
            keep,
            estimate,
            flight,
            result: None,
        };
        let result = load();
        landing.result = Some(result.clone());
        drop(landing);
        result
    }

    /// Drops entries, those that pass beyond what is of use and then the least recently used, until `wanted`
    /// more bytes fit or nothing is left to drop.
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
    key: Key,
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
        if let Ok(item) = &result {
            let size = item.memory();
            if size <= self.cache.capacity {
                self.cache.evict(&mut state, size);
                if state.bytes.saturating_add(size) <= self.cache.capacity {
                    state.put(self.key, item.clone(), size, self.keep);
                    // What passes makes room for what passes.
                    self.cache.evict(&mut state, 0);
                }
            }
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
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    fn key(tile: u64) -> Key {
        Key {
            object: 0,
            tile,
            chunk: 0,
        }
    }

    fn item(bytes: usize) -> Item {
        Item::Chunk {
            data: Arc::new(vec![1; bytes]),
            offsets: None,
        }
    }

    #[test]
    fn many_readers_of_one_chunk_cause_one_load() {
        let cache = ChunkCache::new(1 << 20, Arc::default());
        let (loads, start) = (AtomicUsize::new(0), Barrier::new(16));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    let load = || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok(item(10))
                    };
                    cache.get(key(1), 10, Keep::Staying, load).unwrap();
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_is_borrowed_drives_out_what_is_kept() {
        let stats: Arc<Stats> = Arc::default();
        let cache = ChunkCache::new(10_000, stats.clone());
        for tile in 0..4 {
            cache
                .get(key(tile), 2000, Keep::Staying, || Ok(item(2000)))
                .unwrap();
        }
        let before = stats.cache_bytes.get();
        let borrowed = cache.borrow(5000);
        assert!(stats.cache_bytes.get() <= 10_000);
        assert!(stats.cache_evictions.get() >= 2);
        drop(borrowed);
        assert!(stats.cache_bytes.get() < before);
    }

    #[test]
    fn the_bound_holds_with_loads_in_progress() {
        let stats: Arc<Stats> = Arc::default();
        let cache = ChunkCache::new(10_000, stats.clone());
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (cache, stats, most) = (&cache, &stats, &most);
                scope.spawn(move || {
                    for i in 0..200u64 {
                        let load = || {
                            most.fetch_max(stats.cache_bytes.get(), Ordering::SeqCst);
                            Ok(item(3000))
                        };
                        cache
                            .get(key((thread * 31 + i * 7) % 50), 3200, Keep::Staying, load)
                            .unwrap();
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 10_000);
        assert!(stats.cache_evictions.get() > 0);
        assert!(stats.cache_bytes.get() <= 10_000);
    }

    #[test]
    fn what_passes_is_kept_in_small_numbers() {
        const CHUNK: usize = 64 << 10;
        const LARGE: usize = 256 << 10;
        let stats: Arc<Stats> = Arc::default();
        let mut cache = ChunkCache::new(256 << 20, stats.clone());
        cache.processors = 2;
        let pass = |cache: &ChunkCache, size: usize, tiles: std::ops::Range<u64>| {
            for tile in tiles {
                let load = || Ok(item(size));
                cache.get(key(tile), size as u64, Keep::Passing, load).unwrap();
            }
            stats.cache_bytes.get() >> 10
        };
        assert_eq!(pass(&cache, CHUNK, 0..1000), 64 * 64 + 8);
        let evictions = stats.cache_evictions.get();
        pass(&cache, CHUNK, 940..1000);
        assert_eq!(stats.cache_evictions.get(), evictions, "the last ones are there");
        assert_eq!(
            pass(&cache, LARGE, 2000..3000),
            63 * 256 + 7,
            "the share of 16 MiB"
        );
        assert_eq!(pass(&cache, 100, 4000..40_000), 4095, "small ones fill 4 MiB");
    }

    #[test]
    fn too_large_for_the_cache_is_served_and_not_kept() {
        let stats: Arc<Stats> = Arc::default();
        let cache = ChunkCache::new(1000, stats.clone());
        cache.get(key(1), 5000, Keep::Staying, || Ok(item(5000))).unwrap();
        assert_eq!(stats.cache_bytes.get(), 0);
        cache.get(key(2), 100, Keep::Staying, || Ok(item(100))).unwrap();
        cache
            .get(key(2), 100, Keep::Staying, || panic!("must be cached"))
            .unwrap();
    }

    #[test]
    fn what_is_decoded_at_once_is_bounded() {
        let small = ChunkCache::new(1, Arc::default());
        small.check_size(64 << 20).unwrap();
        assert_eq!(
            small.check_size(u64::MAX).unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
        let large = ChunkCache::new(1 << 30, Arc::default());
        large.check_size(1 << 30).unwrap();
        assert!(large.check_size(2 << 30).is_err());
    }

    #[test]
    fn failures_and_panics_free_their_budget_and_are_not_kept() {
        let stats: Arc<Stats> = Arc::default();
        let cache = ChunkCache::new(1000, stats.clone());
        assert!(
            cache
                .get(key(1), 500, Keep::Staying, || Err(Error::corrupt("x")))
                .is_err()
        );
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = cache.get(key(1), 500, Keep::Staying, || panic!("deliberate"));
        }));
        assert!(unwound.is_err());
        assert_eq!(stats.cache_bytes.get(), 0);
        cache.get(key(1), 500, Keep::Staying, || Ok(item(5))).unwrap();
    }
}
