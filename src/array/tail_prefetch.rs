//! Prefetches the ends of fragments' metadata files, many at once, if each is a request.

use super::engine::Engine;
use super::fragment::Fragment;
use crate::storage::Tail;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fragments that are asked for at once.
const WINDOW: usize = 256;

/// Fragments whose metadata will be read, one after the other or by several threads in any order.
pub struct TailPrefetch<'a> {
    engine: &'a Engine,
    fragments: Vec<&'a Arc<Fragment>>,
    /// Which of them need not be asked for.
    known: fn(&Fragment) -> bool,
    /// For each window whether it has been prefetched. Empty if files are local.
    asked: Vec<AtomicBool>,
}

impl<'a> TailPrefetch<'a> {
    /// For those of `fragments` that are not `known`. Prefetches nothing yet.
    pub fn new(
        engine: &'a Engine,
        fragments: impl Iterator<Item = &'a Arc<Fragment>>,
        known: fn(&Fragment) -> bool,
    ) -> Self {
        let fragments: Vec<_> = match engine.storage.is_remote() {
            true => fragments.collect(),
            false => Vec::new(),
        };
        let windows = fragments.len().div_ceil(WINDOW);
        TailPrefetch {
            engine,
            fragments,
            known,
            asked: (0..windows).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// The metadata of the fragment at `index` is read next: prefetches its window and the one after it.
    pub fn reach(&self, index: usize) {
        let window = index / WINDOW;
        for window in [window, window.saturating_add(1)] {
            let asked = self.asked.get(window);
            if asked.is_none_or(|asked| asked.swap(true, Ordering::Relaxed)) {
                continue;
            }
            let fragments = self.fragments.chunks(WINDOW).nth(window).unwrap_or_default();
            let unknown = fragments.iter().filter(|fragment| !(self.known)(fragment));
            let files: Vec<_> = unknown.map(|fragment| fragment.metadata_path()).collect();
            self.engine.storage.will_read_tails(&files, Tail::SIZE as u64);
        }
    }
}
