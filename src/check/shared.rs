//! What the checks of the fields of one fragment share.

use super::rtree::TileBoxes;
use crate::catalog::Array;
use crate::format::fragment::sections::FragmentStatistics;
use crate::fragment::info::FragmentInfo;
use std::sync::Arc;

/// The decoded metadata of a fragment, for the checks of its fields.
pub(super) struct Shared {
    /// The fragment.
    pub info: Arc<FragmentInfo>,
    /// Its array, for enumerations.
    pub array: Arc<Array>,
    /// The bounding boxes of its tiles; None for a dense fragment, or if they cannot be read.
    pub boxes: Option<TileBoxes>,
    /// Statistics of the whole fragment, by slot; None below version 12, or if they cannot be read.
    pub statistics: Option<Vec<FragmentStatistics>>,
    /// Number of processed conditions; None if they cannot be read.
    pub conditions: Option<u64>,
}
