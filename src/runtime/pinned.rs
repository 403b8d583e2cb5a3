//! Open documents that change with the array: their bytes are pinned in memory, because they could not be
//! made again.

use super::cache::ChunkCache;
use crate::bytes::{Bytes, Output};
use crate::error::Result;
use crate::runtime::lock::lock;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

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
