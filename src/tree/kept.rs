//! What is made of several arrays: the last ones are kept, each of one time.

use crate::error::{Error, ErrorKind, Result};
use crate::export::joined::{Joined, Source};
use crate::runtime::lock;
use lru::LruCache;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long something is taken to be of the current state: as long as listings are.
const LASTING: Duration = Duration::from_millis(100);

/// How often to look for a time at which no array is written to.
const MAX_TRIES: usize = 100;

/// The most that stay in memory.
const MAX_KEPT: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// What was used last, and when each was known to be current.
pub struct Kept<K: Hash + Eq, T>(Mutex<LruCache<K, (Instant, Arc<T>)>>);

impl<K: Hash + Eq, T> Default for Kept<K, T> {
    /// Nothing.
    fn default() -> Self {
        Kept(Mutex::new(LruCache::new(MAX_KEPT)))
    }
}

impl<K: Hash + Eq, T: Joined> Kept<K, T> {
    /// What is made of what `find` finds, in a state that this has now or had a tenth of a second ago.
    ///
    /// # Errors
    ///
    /// EBUSY if the arrays are written to all the time; if it cannot be found or made.
    pub fn current(&self, key: K, find: impl Fn() -> Result<T::Source>) -> Result<Arc<T>> {
        let known = lock(&self.0).get(&key).cloned();
        let known = known.filter(|(_, known)| !known.source().is_stale());
        if let Some((when, known)) = &known
            && when.elapsed() < LASTING
        {
            return Ok(known.clone());
        }
        let now = Instant::now();
        let current = find_current(known.map(|(_, known)| known), find)?;
        let before = lock(&self.0).push(key, (now, current.clone()));
        // Behind the lock, because that may free much.
        drop(before);
        Ok(current)
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
