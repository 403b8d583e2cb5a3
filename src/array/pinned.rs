//! Documents that change with the array: while one is open its bytes are pinned in memory, because they could
//! not be made again.

use super::engine::Engine;
use crate::error::Result;
use std::sync::{Arc, PoisonError, Weak};

/// Bytes that count against the cache's bound as long as they are pinned.
pub struct Pinned {
    engine: Arc<Engine>,
    bytes: Arc<Vec<u8>>,
}

impl Pinned {
    /// Holds `bytes`, named `object`; holders of the same object share them. `LimitExceeded` if they are too
    /// many beside what is pinned already.
    pub fn new(engine: &Arc<Engine>, object: u64, bytes: Arc<Vec<u8>>) -> Result<Arc<Pinned>> {
        let mut all = engine.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pinned) = all.get(&object).and_then(Weak::upgrade) {
            return Ok(pinned);
        }
        if all.len().is_power_of_two() {
            all.retain(|_, pinned| pinned.strong_count() > 0);
        }
        engine.cache.reserve(bytes.len() as u64)?;
        let pinned = Arc::new(Pinned {
            engine: engine.clone(),
            bytes,
        });
        all.insert(object, Arc::downgrade(&pinned));
        Ok(pinned)
    }

    /// The bytes.
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.engine.cache.release(self.bytes.len() as u64);
    }
}
