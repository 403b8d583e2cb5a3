//! Reads the outlines of many fragments.

use crate::engine::Engine;
use crate::error::Result;
use crate::fragment::tail_prefetch::TailPrefetch;
use crate::fragment::{Fragment, Outline};
use crate::runtime::parallel;
use std::sync::Arc;

/// Fragments that a thread reads at a time.
const FRAGMENTS_PER_TASK: usize = 64;

/// The outlines of `fragments`, read on all threads. Fails if one cannot be read.
pub(super) fn outlines(engine: &Engine, fragments: &[Arc<Fragment>]) -> Result<Vec<Arc<Outline>>> {
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
