//! The memory of what was fetched of all files.

use crate::storage::Budget;
use lru::LruCache;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes of pieces that are kept when no cache has been given to count them in.
const KEPT: u64 = 64 << 20;

/// Locks `mutex`, whatever happened to who held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The least that is fetched at once when more is likely to be wanted around it; reads up to this size count
/// as small.
pub(super) const LEAST: u64 = 64 << 10;

/// A file that holds pieces.
pub(super) trait Holder: Send + Sync {
    /// The number of the file.
    fn number(&self) -> u64;

    /// Drops the piece that begins at `start`.
    fn drop_piece(&self, start: u64);
}

/// The memory of all pieces.
pub(super) struct Pool {
    state: Mutex<PoolState>,
}

struct PoolState {
    budget: Option<Arc<dyn Budget>>,
    /// The most bytes.
    most: u64,
    bytes: u64,
    /// Pieces that have arrived, by the number of their file and their start.
    kept: LruCache<(u64, u64), Kept>,
}

struct Kept {
    file: Arc<dyn Holder>,
    bytes: u64,
    /// Whether somebody has read all of it.
    read: bool,
}

/// A piece that has lost its place.
pub(super) type Victim = (Arc<dyn Holder>, u64);

impl PoolState {
    fn give_back(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(budget) = &self.budget {
            budget.give_back(bytes);
        }
    }
}

impl Pool {
    /// With nothing in it, and nobody to count in.
    pub(super) fn new() -> Self {
        Pool {
            state: Mutex::new(PoolState {
                budget: None,
                most: KEPT,
                bytes: 0,
                kept: LruCache::unbounded(),
            }),
        }
    }

    /// Counts in `budget` from now on.
    pub(super) fn share(&self, budget: Arc<dyn Budget>) {
        let mut state = lock(&self.state);
        state.most = budget.capacity() / 2;
        budget.take(state.bytes);
        state.budget = Some(budget);
    }

    /// The most bytes.
    pub(super) fn most(&self) -> u64 {
        lock(&self.state).most
    }

    /// Lets go of all pieces that nobody reads.
    pub(super) fn clear(&self) {
        let kept = std::mem::replace(&mut lock(&self.state).kept, LruCache::unbounded());
        drop(kept);
    }

    /// Room for `bytes` more, for which older pieces are dropped. If it is only for reading ahead, pieces
    /// that have not been read stay, and there may be no room.
    pub(super) fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        wanted: bool,
        victims: &mut Vec<Victim>,
    ) -> Option<Room> {
        let mut state = lock(&self.state);
        while state.bytes.saturating_add(bytes) > state.most {
            let Some((_, oldest)) = state.kept.peek_lru() else {
                break;
            };
            if !wanted && !oldest.read {
                break;
            }
            if let Some(((_, start), kept)) = state.kept.pop_lru() {
                state.give_back(kept.bytes);
                victims.push((kept.file, start));
            }
        }
        if !wanted && state.bytes.saturating_add(bytes) > state.most {
            return None;
        }
        state.bytes = state.bytes.saturating_add(bytes);
        if let Some(budget) = &state.budget {
            budget.take(bytes);
        }
        Some(Room {
            pool: self.clone(),
            bytes,
        })
    }

    pub(super) fn keep(&self, file: Arc<dyn Holder>, start: u64, mut room: Room) {
        let key = (file.number(), start);
        let kept = Kept {
            file,
            bytes: std::mem::take(&mut room.bytes),
            read: false,
        };
        lock(&self.state).kept.put(key, kept);
    }

    /// Notes that a piece is used; that all of it was read, says `read`.
    pub(super) fn used(&self, key: (u64, u64), read: bool) {
        let mut state = lock(&self.state);
        if let Some(kept) = state.kept.get_mut(&key) {
            kept.read |= read;
            // What a large piece held is kept decoded. Small ones hold more than what was asked for.
            if kept.read && kept.bytes > LEAST {
                state.kept.demote(&key);
            }
        }
    }
}

/// Room that a piece on its way takes.
pub(super) struct Room {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.bytes > 0 {
            lock(&self.pool.state).give_back(self.bytes);
        }
    }
}
