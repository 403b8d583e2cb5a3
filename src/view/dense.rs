//! Dense views.

use super::DimRange;
use crate::array::Array;
use crate::array::cells::Cells;
use crate::array::snapshot::Snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::format::range::Rect;
use crate::format::schema::Schema;
use std::sync::Arc;

/// The fragments of a dense array laid over each other.
pub(super) struct Dense {}

impl Dense {
    pub(super) fn new(
        _array: &Arc<Array>,
        _snapshot: &Arc<Snapshot>,
        _schema: &Arc<Schema>,
        _subarray: Option<&[DimRange]>,
        _state: u64,
    ) -> Dense {
        Dense {}
    }

    pub(super) fn region(&self) -> Result<Option<Rect>> {
        Err(unfinished())
    }

    pub(super) fn shape(&self) -> Result<Vec<u64>> {
        Err(unfinished())
    }

    pub(super) fn count(&self) -> Result<u64> {
        Err(unfinished())
    }

    pub(super) fn open(&self, _field: usize) -> Result<Arc<dyn Cells>> {
        Err(unfinished())
    }
}

fn unfinished() -> Error {
    Error::new(ErrorKind::Internal, "not here yet")
}
