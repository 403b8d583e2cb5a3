//! Finds by metadata alone the tiles that cells of a view are stored in.

use super::{Merge, View};
use crate::error::Result;
use crate::fragment::Fragment;
use std::ops::Range;
use std::sync::Arc;

/// Some tiles of a fragment.
#[derive(Clone)]
pub struct Tiles {
    /// The fragment.
    pub fragment: Arc<Fragment>,
    /// Ascending runs of tiles. They have every cell that comes from this fragment.
    pub tiles: Vec<Range<u64>>,
    /// Whether all cells of these tiles are cells of the view, without padding.
    pub whole: bool,
}

/// The tiles that some cells of a view are stored in.
#[derive(Clone, Default)]
pub struct CellOrigin {
    /// The tiles, each once. Newer fragments may hide all cells of some.
    pub parts: Vec<Tiles>,
    /// The number of cells that no fragment wrote, which are in none of the tiles; None if metadata does not
    /// tell.
    pub unwritten: Option<u64>,
}

impl View {
    /// The origin of each of `runs`, which are ranges of cells; None if metadata does not tell. Where
    /// fragments must be merged, but were not merged to count the cells, the origin has all their tiles. The
    /// result depends only on the view's state.
    pub(crate) fn origins(&self, runs: &[Range<u64>]) -> Result<Vec<Option<CellOrigin>>> {
        match &self.merge {
            Merge::Dense(dense) => dense.origins(runs),
            Merge::Sparse(sparse) => sparse.origins(runs),
        }
    }
}
