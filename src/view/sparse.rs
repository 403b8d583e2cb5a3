//! Sparse views.

use super::DimRange;
use crate::array::Array;
use crate::array::cells::Cells;
use crate::array::snapshot::Snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::format::schema::Schema;
use std::sync::Arc;

/// The fragments of a sparse array merged.
pub(super) struct Sparse {}

impl Sparse {
    pub(super) fn new(
        _array: &Arc<Array>,
        _snapshot: &Arc<Snapshot>,
        _schema: &Arc<Schema>,
        _subarray: Option<&[DimRange]>,
        _state: u64,
    ) -> Sparse {
        Sparse {}
    }

    pub(super) fn count(&self) -> Result<u64> {
        Err(Error::new(ErrorKind::Internal, "not here yet"))
    }

    pub(super) fn open(&self, _field: usize) -> Result<Arc<dyn Cells>> {
        Err(Error::new(ErrorKind::Internal, "not here yet"))
    }
}
