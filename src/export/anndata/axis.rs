//! The rows and columns of an AnnData.

use std::sync::Arc;

/// The joinids of an axis, ascending; each has the place of its rank.
pub enum Axis {
    /// 0, 1, .. up to this number.
    Whole(u64),
    /// These.
    Listed(Arc<[i64]>),
}

impl Axis {
    /// How many.
    pub fn len(&self) -> u64 {
        match self {
            Axis::Whole(count) => *count,
            Axis::Listed(joinids) => joinids.len() as u64,
        }
    }

    /// The place of a joinid; None if it is not among them.
    pub fn place(&self, joinid: i64) -> Option<u64> {
        match self {
            Axis::Whole(count) => u64::try_from(joinid).ok().filter(|place| place < count),
            Axis::Listed(joinids) => Some(joinids.binary_search(&joinid).ok()? as u64),
        }
    }
}
