//! Accounts for the memory of the pieces of all files, and evicts them.

use crate::runtime::cache::ChunkCache;
use crate::runtime::lock;
use lru::LruCache;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of pieces to keep if there is no shared budget.
const DEFAULT_CAPACITY: u64 = 64 << 20;

/// Bytes of a small piece: shorter reads fetch this much, because readers often want neighbouring bytes soon.
pub(super) const SMALL_PIECE: u64 = 64 << 10;

/// A file that holds pieces.
pub(super) trait Holder: Send + Sync {
    /// The number of the file.
    fn number(&self) -> u64;

    /// Drops the piece that begins at `start`.
    fn drop_piece(&self, start: u64);
}

/// The pieces of all files in least-recently-used order.
pub(super) struct Pool {
    state: Mutex<PoolState>,
    /// The number of files so far.
    files: AtomicU64,
}

struct PoolState {
    budget: Option<Arc<ChunkCache>>,
    /// Capacity in bytes.
    most: u64,
    bytes: u64,
    /// Pieces that have arrived, by file number and offset.
    kept: LruCache<(u64, u64), CachedPiece>,
}

struct CachedPiece {
    file: Arc<dyn Holder>,
    bytes: u64,
    /// Whether somebody has read all of it.
    read: bool,
}

/// An evicted piece: its file and offset. The caller drops it after releasing its own lock.
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
    /// An empty pool without a shared budget.
    pub(super) fn new() -> Self {
        Pool {
            state: Mutex::new(PoolState {
                budget: None,
                most: DEFAULT_CAPACITY,
                bytes: 0,
                kept: LruCache::unbounded(),
            }),
            files: AtomicU64::new(0),
        }
    }

    /// A number for another file.
    pub(super) fn next_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts its bytes in `budget` from now on, and uses at most half of it.
    pub(super) fn share(&self, budget: Arc<ChunkCache>) {
        let mut state = lock(&self.state);
        state.most = budget.capacity() / 2;
        budget.take(state.bytes);
        state.budget = Some(budget);
    }

    /// Capacity in bytes.
    pub(super) fn most(&self) -> u64 {
        lock(&self.state).most
    }

    /// Drops all pieces that nobody is reading.
    pub(super) fn clear(&self) {
        let kept = std::mem::replace(&mut lock(&self.state).kept, LruCache::unbounded());
        drop(kept);
    }

    /// Reserves `bytes`, and evicts older pieces into `victims`. Read-ahead (not `wanted`) evicts no unread
    /// pieces; None if there is no room for it.
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
        let kept = CachedPiece {
            file,
            bytes: std::mem::take(&mut room.bytes),
            read: false,
        };
        let mut state = lock(&self.state);
        let replaced = state.kept.put(key, kept);
        if let Some(replaced) = &replaced {
            state.give_back(replaced.bytes);
        }
    }

    /// Bytes of all pieces, those on their way included.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    /// Counts a piece no more that its file has dropped.
    pub(super) fn forget(&self, key: (u64, u64)) {
        let mut state = lock(&self.state);
        if let Some(piece) = state.kept.pop(&key) {
            state.give_back(piece.bytes);
        }
    }

    /// Notes that a piece was used; `read` if all of it has been read.
    pub(super) fn used(&self, key: (u64, u64), read: bool) {
        let mut state = lock(&self.state);
        if let Some(kept) = state.kept.get_mut(&key) {
            kept.read |= read;
            // The cache has the decoded content of large pieces. Small ones hold bytes not asked for yet.
            if kept.read && kept.bytes > SMALL_PIECE {
                state.kept.demote(&key);
            }
        }
    }
}

/// Reserved bytes of a piece on its way.
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

#[cfg(test)]
mod tests {
    use super::*;

    struct OneFile;

    impl Holder for OneFile {
        fn number(&self) -> u64 {
            1
        }

        fn drop_piece(&self, _: u64) {}
    }

    #[test]
    fn a_piece_that_replaces_another_is_counted_alone() {
        let pool = Arc::new(Pool::new());
        for bytes in [1000, 300] {
            let room = pool.reserve(bytes, true, &mut Vec::new()).unwrap();
            pool.keep(Arc::new(OneFile), 0, room);
        }
        assert_eq!(pool.bytes(), 300);
        pool.forget((1, 0));
        assert_eq!(pool.bytes(), 0);
    }
}
