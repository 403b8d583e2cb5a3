//! Which tiles of which fragments the cells of a view are from, according to metadata.

use super::{Merge, View};
use crate::array::fragment::Fragment;
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// Tiles of a fragment.
#[derive(Clone)]
pub struct Tiles {
    /// The fragment.
    pub fragment: Arc<Fragment>,
    /// Ascending runs of tiles. Every cell that is from the fragment is in one of them.
    pub tiles: Vec<Range<u64>>,
    /// Whether all cells of these tiles are cells of the view, and no tile has padding.
    pub whole: bool,
}

/// Where some cells of a view are from.
#[derive(Clone, Default)]
pub struct Origin {
    /// Tiles, each once. Some may contribute nothing, because newer fragments hide them.
    pub parts: Vec<Tiles>,
    /// Whether some cells may be in none of them, which have the fill value.
    pub unwritten: bool,
}

impl View {
    /// Where each of some runs of cells is from; None if metadata does not say. For merged fragments whose
    /// cells are not counted by merging, that is all tiles that take part. Always the same in one state.
    pub(crate) fn origins(&self, runs: &[Range<u64>]) -> Result<Vec<Option<Origin>>> {
        match &self.merge {
            Merge::Dense(dense) => dense.origins(runs),
            Merge::Sparse(sparse) => sparse.origins(runs),
        }
    }
}
