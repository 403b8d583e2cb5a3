//! Prefetches the ends of fragments' metadata files, many at once, if each takes a request.

use super::{Fragment, Outline};
use crate::engine::Engine;
use crate::error::Result;
use crate::runtime::parallel;
use crate::storage::Tail;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Fragments per batch of requests.
const WINDOW: usize = 256;

/// Fragments whose metadata will be read, in sequence or by several threads in any order.
pub struct TailPrefetch<'a> {
    engine: &'a Engine,
    fragments: Vec<&'a Arc<Fragment>>,
    /// Which fragments need no prefetch.
    known: fn(&Fragment) -> bool,
    /// For each window, whether it was prefetched. Empty if files are local.
    asked: Vec<AtomicBool>,
}

impl<'a> TailPrefetch<'a> {
    /// Prefetches those of `fragments` that are not `known`. Nothing yet.
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

    /// Call before reading the metadata of the fragment at `index`: prefetches its window and the next one.
    pub fn reach(&self, index: usize) {
        let windows = self.asked.iter().zip(self.fragments.chunks(WINDOW));
        for (asked, fragments) in windows.skip(index / WINDOW).take(2) {
            if asked.swap(true, Ordering::Relaxed) {
                continue;
            }
            let unknown = fragments.iter().filter(|fragment| !(self.known)(fragment));
            let files: Vec<_> = unknown.map(|fragment| fragment.metadata_path()).collect();
            self.engine.storage.will_read_tails(&files, Tail::SIZE as u64);
        }
    }
}

/// Fragments that a thread reads at a time.
const FRAGMENTS_PER_TASK: usize = 64;

/// The outlines of `fragments`, read on all threads. Fails if one cannot be read.
pub(crate) fn outlines(engine: &Engine, fragments: &[Arc<Fragment>]) -> Result<Vec<Arc<Outline>>> {
    let parts: Vec<&[Arc<Fragment>]> = fragments.chunks(FRAGMENTS_PER_TASK).collect();
    let tails = TailPrefetch::new(engine, fragments.iter(), Fragment::has_outline);
    let outlines = parallel::each(parts.len() as u64, |number| {
        tails.reach(number as usize * FRAGMENTS_PER_TASK);
        parts[number as usize]
            .iter()
            .map(|fragment| fragment.outline())
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(outlines.into_iter().flatten().collect())
}
