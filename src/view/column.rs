//! The cells of a field of a view as seekable bytes, made of runs of cells that its merge puts together.

use crate::error::Result;
use std::ops::Range;

/// Puts runs of cells of one field of a view together, in the view's order. Ranges lie within the cells that there are.
#[allow(dead_code)]
pub(super) trait Runs: Send + Sync {
    /// How many cells there are.
    fn count(&self) -> u64;

    /// Appends the values of fixed-size cells.
    fn fixed(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()>;

    /// Appends the length in bytes of each of some var-sized cells. Decodes no value.
    fn lengths(&self, cells: Range<u64>, out: &mut Vec<u64>) -> Result<()>;

    /// Appends the values of var-sized cells, one after the other.
    fn var(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()>;

    /// Appends some bytes of one var-sized cell, which may be too long to be put together whole.
    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Vec<u8>) -> Result<()>;

    /// Appends a byte of validity a cell.
    fn validity(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()>;
}
