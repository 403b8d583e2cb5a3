//! Reads the outlines of many fragments.

use crate::array::engine::Engine;
use crate::array::fragment::{Fragment, Outline};
use crate::array::tail_prefetch::TailPrefetch;
use crate::error::Result;
use crate::parallel;
use std::sync::Arc;

/// How many fragments one thread reads at a time.
const TOGETHER: usize = 64;

/// The outlines of `fragments`, read on all threads. An outline that cannot be read is an error.
pub(super) fn outlines(engine: &Engine, fragments: &[Arc<Fragment>]) -> Result<Vec<Arc<Outline>>> {
    let parts: Vec<&[Arc<Fragment>]> = fragments.chunks(TOGETHER).collect();
    let tails = TailPrefetch::new(engine, fragments.iter(), Fragment::has_outline);
    let outlines = parallel::each(parts.len() as u64, |number| {
        tails.reach((number as usize).saturating_mul(TOGETHER));
        let part = parts.get(number as usize).copied().unwrap_or_default();
        part.iter()
            .map(|fragment| fragment.outline())
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(outlines.into_iter().flatten().collect())
}
