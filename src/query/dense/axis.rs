//! The coordinates along one dimension of a dense view.

use crate::bytes::Output;
use crate::error::{Error, Result};
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::fragment::geometry::Axis;
use std::ops::Range;

/// Consecutive coordinates, once each. They are computed: dense fragments store none.
pub(super) struct AxisCells {
    pub(super) axis: Axis,
    /// Index of the first coordinate in the domain.
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Cells for AxisCells {
    fn count(&self) -> u64 {
        self.count
    }

    fn cell_size(&self) -> Option<u64> {
        Some(self.axis.size() as u64)
    }

    fn len(&self, content: Content) -> Result<u64> {
        match content {
            Content::Data => self
                .count
                .checked_mul(self.axis.size() as u64)
                .ok_or_else(|| Error::limit("the column has more than 2^64 bytes")),
            _ => Err(Error::internal(
                "coordinates of an axis have values only, no offsets or validity",
            )),
        }
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        let len = self.len(content)?;
        let range = range.start.min(len)..range.end.min(len);
        let size = self.axis.size() as u64;
        let start = out.len();
        out.write(|out| {
            for cell in range.start / size..range.end.div_ceil(size) {
                let value = self.axis.coordinate(self.first + cell);
                out.extend_from_slice(&value[..size as usize]);
            }
        });
        let wanted = range.end - range.start;
        out.cut(start, (range.start % size) as usize, wanted as usize)
    }
}
