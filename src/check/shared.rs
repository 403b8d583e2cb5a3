//! What the checks of the fields of one fragment need to know of it.

use super::rtree::Boxes;
use crate::array::Array;
use crate::array::fragment_info::FragmentInfo;
use crate::format::fragment::sections::FragmentStatistics;
use std::sync::Arc;

/// What the checks of a fragment's fields share.
pub(super) struct Shared {
    /// The fragment.
    pub info: Arc<FragmentInfo>,
    /// Its array, for enumerations.
    pub array: Arc<Array>,
    /// The bounding boxes of its tiles; None in a dense fragment, and where they cannot be read.
    pub boxes: Option<Boxes>,
    /// Statistics of the whole fragment, by slot; None below version 12 and where they cannot be read.
    pub statistics: Option<Vec<FragmentStatistics>>,
    /// Number of processed conditions; None where they cannot be read.
    pub conditions: Option<u64>,
}
