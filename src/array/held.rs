//! Documents that change with the array: while one is open its bytes are held in memory, because they could
//! not be made again.

use super::engine::Engine;
use crate::error::Result;
use std::sync::{Arc, PoisonError, Weak};

/// Bytes that count against the cache's bound as long as they are held.
pub struct Held {
    engine: Arc<Engine>,
    bytes: Arc<Vec<u8>>,
}

impl Held {
    /// Holds `bytes`, named `object`; holders of the same object share them. `LimitExceeded` if they are too
    /// many beside what is held already.
    pub fn new(engine: &Arc<Engine>, object: u64, bytes: Arc<Vec<u8>>) -> Result<Arc<Held>> {
        let mut all = engine.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = all.get(&object).and_then(Weak::upgrade) {
            return Ok(held);
        }
        if all.len().is_power_of_two() {
            all.retain(|_, held| held.strong_count() > 0);
        }
        engine.cache.reserve(bytes.len() as u64)?;
        let held = Arc::new(Held {
            engine: engine.clone(),
            bytes,
        });
        all.insert(object, Arc::downgrade(&held));
        Ok(held)
    }

    /// The bytes.
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.engine.cache.release(self.bytes.len() as u64);
    }
}
