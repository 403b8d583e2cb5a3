//! A cache of what is made of several arrays, each of one time.

use crate::error::{Error, ErrorKind, Result};
use crate::export::joined::{Joined, JoinedSource};
use crate::runtime::lock;
use crate::runtime::single_flight::SingleFlight;
use lru::LruCache;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long something is taken to be of the current state: as long as listings are.
const LASTING: Duration = Duration::from_millis(100);

/// How often to look for a time at which no array is written to.
const MAX_TRIES: usize = 100;

/// The most that stay in memory. Nodes come and go, each file of an export is one, and `serve` drops them
/// soon: what they show must outlive them, or each request would make it anew. It may keep files of its
/// arrays open.
const MAX_ENTRIES: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// What was used last.
pub struct JoinedCache<K: Hash + Eq, T>(Mutex<LruCache<K, Arc<Entry<T>>>>);

/// What was made of one source.
struct Entry<T> {
    /// When it was known to be current, and what that is.
    last: Mutex<Option<(Instant, Arc<T>)>>,
    making: SingleFlight,
}

impl<T> Default for Entry<T> {
    /// Nothing was made yet.
    fn default() -> Self {
        Entry {
            last: Mutex::default(),
            making: SingleFlight::default(),
        }
    }
}

impl<K: Hash + Eq, T> Default for JoinedCache<K, T> {
    /// Nothing.
    fn default() -> Self {
        JoinedCache(Mutex::new(LruCache::new(MAX_ENTRIES)))
    }
}

impl<K: Hash + Eq, T: Joined> JoinedCache<K, T> {
    /// What is made of what `find` finds, in a state that this has now or had a tenth of a second ago.
    ///
    /// # Errors
    ///
    /// EBUSY if the arrays are written to all the time; if it cannot be found or made.
    pub fn current(&self, key: K, find: impl Fn() -> Result<T::Source>) -> Result<Arc<T>> {
        let mut entries = lock(&self.0);
        let entry = entries.get(&key).cloned().unwrap_or_default();
        let before = entries.push(key, entry.clone());
        drop(entries);
        // Behind the lock, because that may free much.
        drop(before);
        entry.current(find)
    }
}

impl<T: Joined> Entry<T> {
    /// See [`JoinedCache::current`]. One thread at a time finds and makes it.
    fn current(&self, find: impl Fn() -> Result<T::Source>) -> Result<Arc<T>> {
        let last = || {
            let last = lock(&self.last).clone();
            last.filter(|(_, last)| !last.source().is_stale())
        };
        let fresh = || {
            let (when, last) = last()?;
            (when.elapsed() < LASTING).then_some(last)
        };
        self.making.find_or_make(fresh, || {
            let now = Instant::now();
            let known = last().map(|(_, last)| last).filter(|last| !last.is_makeshift());
            let current = find_current(known, find)?;
            let before = lock(&self.last).replace((now, current.clone()));
            drop(before);
            Ok(current)
        })
    }
}

/// `known`, if what `find` finds has its state; else what is made of it.
fn find_current<T: Joined>(known: Option<Arc<T>>, find: impl Fn() -> Result<T::Source>) -> Result<Arc<T>> {
    let mut before: Option<(T::Source, u64)> = None;
    for _ in 0..MAX_TRIES {
        let source = find()?;
        let state = source.state()?;
        if let Some(known) = known.as_ref().filter(|known| known.state() == state) {
            return Ok(known.clone());
        }
        if before.as_ref().is_some_and(|(_, before)| *before == state) {
            return T::new(source, state).map(Arc::new);
        }
        source.look_again();
        // What was found stays open, so that the next look finds the same.
        before = Some((source, state));
    }
    let message = "its arrays are written to all the time";
    Err(Error::new(ErrorKind::Io(libc::EBUSY), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::group::OpenGroup;
    use crate::export::joined::SourceArray;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    struct Numbered(u64);

    impl JoinedSource for Numbered {
        fn state(&self) -> Result<u64> {
            Ok(self.0)
        }

        fn arrays(&self) -> Vec<&SourceArray> {
            Vec::new()
        }

        fn groups(&self) -> Vec<&Arc<OpenGroup>> {
            Vec::new()
        }
    }

    /// Its source, and how many were made before it.
    struct Made(Numbered, u64);

    static MADE: AtomicU64 = AtomicU64::new(0);

    impl Joined for Made {
        type Source = Numbered;

        fn new(source: Numbered, _: u64) -> Result<Made> {
            thread::sleep(LASTING / 2);
            Ok(Made(source, MADE.fetch_add(1, Ordering::Relaxed)))
        }

        fn source(&self) -> &Numbered {
            &self.0
        }

        fn state(&self) -> u64 {
            self.0.0
        }
    }

    #[test]
    fn each_state_is_made_once_and_only_if_it_is_found_twice() {
        let (cache, state) = (JoinedCache::<u8, Made>::default(), AtomicU64::new(7));
        let find = || Ok(Numbered(state.load(Ordering::Relaxed)));
        let together = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    together.wait();
                    assert_eq!(cache.current(1, find).unwrap().1, 0);
                });
            }
        });
        // It is looked for again, and is the same.
        thread::sleep(LASTING);
        assert_eq!(cache.current(1, find).unwrap().1, 0);
        state.store(8, Ordering::Relaxed);
        thread::sleep(LASTING);
        let made = cache.current(1, find).unwrap();
        assert_eq!((made.state(), made.1), (8, 1));
        let restless = || Ok(Numbered(state.fetch_add(1, Ordering::Relaxed)));
        assert_eq!(
            cache.current(2, restless).err().map(|error| error.errno()),
            Some(libc::EBUSY)
        );
        assert_eq!(MADE.load(Ordering::Relaxed), 2);
    }
}
