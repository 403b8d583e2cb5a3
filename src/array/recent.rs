//! The fragments of an array that were used last: what their metadata says stays in memory, that of others does not.

use super::fragment::FragmentInfo;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

/// How many are kept. A parsed footer takes some KiB.
const KEPT: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Fragments by their first number in the cache, which no two share.
pub struct RecentFragments(Mutex<LruCache<u64, Arc<FragmentInfo>>>);

impl Default for RecentFragments {
    fn default() -> Self {
        // The table grows with use: most arrays have few fragments.
        RecentFragments(Mutex::new(LruCache::unbounded()))
    }
}

impl RecentFragments {
    /// Keeps `info` until enough others have been used.
    pub fn used(&self, info: &Arc<FragmentInfo>) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.put(info.objects, info.clone());
        if recent.len() > KEPT.get() {
            recent.pop_lru();
        }
    }
}
