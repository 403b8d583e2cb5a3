//! Documents that change with the array: while one is open its bytes are pinned in memory, because they could
//! not be made again.

use super::cache::ChunkCache;
use crate::error::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes that count against the cache's bound as long as they are pinned.
pub struct Pinned {
    cache: Arc<ChunkCache>,
    bytes: Arc<Vec<u8>>,
}

/// What is pinned, by the number of what it is.
#[derive(Default)]
pub struct AllPinned(Mutex<HashMap<u64, Weak<Pinned>>>);

impl AllPinned {
    /// Pins `bytes`, named `object`; holders of the same object share them. `LimitExceeded` if they are too
    /// many for `cache` beside what is pinned already.
    pub fn pin(&self, cache: &Arc<ChunkCache>, object: u64, bytes: Arc<Vec<u8>>) -> Result<Arc<Pinned>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pinned) = all.get(&object).and_then(Weak::upgrade) {
            return Ok(pinned);
        }
        if all.len().is_power_of_two() {
            all.retain(|_, pinned| pinned.strong_count() > 0);
        }
        cache.reserve(bytes.len() as u64)?;
        let pinned = Arc::new(Pinned {
            cache: cache.clone(),
            bytes,
        });
        all.insert(object, Arc::downgrade(&pinned));
        Ok(pinned)
    }
}

impl Pinned {
    /// The bytes.
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.cache.release(self.bytes.len() as u64);
    }
}
