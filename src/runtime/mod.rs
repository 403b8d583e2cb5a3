//! What decodes and waits, without a word of TileDB: memory, threads, and whoever waits for them.
//!
//! | module | |
//! |---|---|
//! | [`cache`] | what was decoded, and what open files pin in memory, within one bound in bytes |
//! | [`single_flight`] | one thread makes what several want |
//! | [`parallel`] | work on all processors |
//! | [`ahead`] | how much of its part of a file a reader still wants |
//! | [`requester`] | the thread that this one works for, and whether it still waits |
//! | [`work`] | long jobs, which end when nobody waits for them |
//! | [`tuning`] | the sizes at which work is cut |
//! | [`stats`] | counters of all that |

pub(crate) mod ahead;
pub mod cache;
pub(crate) mod parallel;
pub(crate) mod requester;
pub(crate) mod single_flight;
pub mod stats;
pub mod tuning;
pub mod work;

use crate::error::Result;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Locks `mutex`, even if a thread panicked while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time of a processor that this thread has taken.
#[cfg(test)]
pub(crate) fn processor_time() -> std::time::Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Values by key, dropped when they are not in use any more.
pub(crate) type InUse<K, T> = Mutex<HashMap<K, Weak<T>>>;

/// The value in `all` for `key`, if it is still in use, else the result of `make`.
pub(crate) fn shared<K: Eq + Hash, T>(all: &InUse<K, T>, key: K, make: impl FnOnce() -> T) -> Arc<T> {
    shared_if(all, key, |_| true, make)
}

/// [`shared`], if the value is good.
pub(crate) fn shared_if<K: Eq + Hash, T>(
    all: &InUse<K, T>,
    key: K,
    is_good: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> Arc<T> {
    let mut all = lock(all);
    // Dropped behind the lock, because that may free much.
    let known = all.get(&key).and_then(Weak::upgrade);
    if let Some(known) = known.as_ref().filter(|known| is_good(known)) {
        return known.clone();
    }
    if all.len().is_power_of_two() {
        all.retain(|_, known| known.strong_count() > 0);
    }
    let made = Arc::new(make());
    all.insert(key, Arc::downgrade(&made));
    made
}

/// A right that only some may have at once, in the whole process: the number of those who have it.
pub(crate) struct Permits(AtomicUsize);

/// The right of one; given back when dropped.
pub(crate) struct Permit(&'static Permits);

impl Permits {
    pub(crate) const fn new() -> Permits {
        Permits(AtomicUsize::new(0))
    }

    /// The right, if fewer than `most` have it. Nobody waits for one.
    pub(crate) fn take(&'static self, most: usize) -> Option<Permit> {
        let more = |taken| (taken < most).then_some(taken + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Permit(self))
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The value of `cell`, which `make` makes if there is none. Several threads may make it; the first one
/// stays. A failure is not kept.
pub(crate) fn get_or_make<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match cell.get() {
        Some(value) => Ok(value),
        None => {
            let value = make()?;
            Ok(cell.get_or_init(|| value))
        }
    }
}

/// A hash that is the same in every process, so long that no two values have the same by chance.
#[cfg(feature = "mount")]
pub(crate) fn strong_hash(value: &impl Hash) -> u128 {
    let half = |salt: u8| u128::from(hash(&(salt, value)));
    half(0) << 64 | half(1)
}

/// A hash that is the same in every process.
pub(crate) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
