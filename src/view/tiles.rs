//! Tells, by metadata alone, which tiles of which fragments the cells of a view are from.

use super::{Merge, View};
use crate::array::fragment::Fragment;
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// Some tiles of a fragment.
#[derive(Clone)]
pub struct Tiles {
    /// The fragment.
    pub fragment: Arc<Fragment>,
    /// Ascending runs of tiles. Every cell that is from this fragment is in one of them.
    pub tiles: Vec<Range<u64>>,
    /// Whether all cells of these tiles are cells of the view, and no tile has padding.
    pub whole: bool,
}

/// Where some cells of a view are from.
#[derive(Clone, Default)]
pub struct Origin {
    /// The tiles, each once. Some may contribute nothing, because newer fragments hide them.
    pub parts: Vec<Tiles>,
    /// Whether some cells may be in none of the tiles. Such cells have the fill value.
    pub unwritten: bool,
}

impl View {
    /// The origin of each of `runs`, which are ranges of cells; None if metadata does not tell. If fragments
    /// must be merged, but were not merged to count the cells, it has all their tiles. The result depends on
    /// the view's state alone.
    pub(crate) fn origins(&self, runs: &[Range<u64>]) -> Result<Vec<Option<Origin>>> {
        match &self.merge {
            Merge::Dense(dense) => dense.origins(runs),
            Merge::Sparse(sparse) => sparse.origins(runs),
        }
    }
}
