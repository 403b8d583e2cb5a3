//! Inclusive ranges of coordinates: non-empty domains, minimum bounding rectangles, current domains.

use super::datatype::{CellValNum, Datatype};
use crate::cursor::Cursor;
use crate::error::Result;

/// `[lo, hi]` of one dimension, each bound the stored bytes: one little-endian value, or the text of a var-sized one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Lower bound, inclusive.
    pub lo: Vec<u8>,
    /// Upper bound, inclusive.
    pub hi: Vec<u8>,
}

/// A box: one range for each dimension, in the schema's order. A non-empty domain or an MBR.
pub type Rect = Vec<Range>;

impl Range {
    /// Reads a stored range: `lo, hi` for a fixed-size dimension; total length u64, length of `lo` u64 and the bytes
    /// of both for a var-sized one (FORMAT: R-tree and footer, version 5 and later).
    pub fn parse(c: &mut Cursor<'_>, datatype: Datatype, cells: CellValNum, field: &str) -> Result<Range> {
        match cells.cell_size(datatype) {
            Some(size) => {
                let lo = c.bytes(size, field)?.to_vec();
                Ok(Range {
                    lo,
                    hi: c.bytes(size, field)?.to_vec(),
                })
            }
            None => {
                let total = c.u64(field)?;
                let low = c.u64(field)?;
                let Some(high) = total.checked_sub(low) else {
                    return Err(c.corrupt(
                        field,
                        format!("a lower bound of {low} bytes in a range of {total}"),
                    ));
                };
                let lo = c.bytes(low, field)?.to_vec();
                Ok(Range {
                    lo,
                    hi: c.bytes(high, field)?.to_vec(),
                })
            }
        }
    }
}
