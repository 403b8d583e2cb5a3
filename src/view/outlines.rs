//! Outlines of all fragments of a view.

use crate::array::engine::Engine;
use crate::array::fragment::{Fragment, Outline};
use crate::array::tail_prefetch::TailPrefetch;
use crate::error::Result;
use crate::parallel;
use std::sync::Arc;

/// Fragments whose metadata is read by one thread in one go.
const TOGETHER: usize = 64;

/// The outlines of `fragments`, by all threads. One that cannot be read is an error.
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
