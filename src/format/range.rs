//! Inclusive ranges of coordinates: non-empty domains, minimum bounding rectangles, current domains.

use super::datatype::{CellValNum, Datatype, Kind};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use std::cmp::Ordering;

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

    /// How the bounds compare, see [`compare`].
    pub fn order(&self, datatype: Datatype, cells: CellValNum) -> Option<Ordering> {
        compare(datatype, cells, &self.lo, &self.hi)
    }

    /// Fails when the lower bound is above the upper one. Bounds that cannot be compared (NaN) pass: TileDB writes them.
    pub(super) fn check(&self, datatype: Datatype, cells: CellValNum) -> Result<()> {
        match self.order(datatype, cells) {
            Some(Ordering::Greater) => Err(Error::corrupt("the lower bound is above the upper one")),
            _ => Ok(()),
        }
    }

    /// The fewest bytes that a stored range takes.
    pub(super) fn min_stored_size(datatype: Datatype, cells: CellValNum) -> usize {
        cells.cell_size(datatype).map_or(16, |size| {
            usize::try_from(size).unwrap_or(usize::MAX).saturating_mul(2)
        })
    }
}

/// Compares two coordinates in their stored bytes: integers and times as numbers, floats as IEEE 754 does, everything
/// var-sized or textual bytewise. None for a NaN, and for values of another size than the datatype's.
pub fn compare(datatype: Datatype, cells: CellValNum, a: &[u8], b: &[u8]) -> Option<Ordering> {
    macro_rules! as_numbers {
        ($type:ty) => {{
            let number = |bytes: &[u8]| Some(<$type>::from_le_bytes(bytes.try_into().ok()?));
            number(a)?.partial_cmp(&number(b)?)
        }};
    }
    if cells.is_var() {
        return Some(a.cmp(b));
    }
    match (datatype.kind(), datatype.size()) {
        (Kind::Signed | Kind::Datetime | Kind::Time, 8) => as_numbers!(i64),
        (Kind::Signed, 4) => as_numbers!(i32),
        (Kind::Signed, 2) => as_numbers!(i16),
        (Kind::Signed, 1) => as_numbers!(i8),
        (Kind::Unsigned, 8) => as_numbers!(u64),
        (Kind::Unsigned, 4) => as_numbers!(u32),
        (Kind::Unsigned, 2) => as_numbers!(u16),
        (Kind::Float, 4) => as_numbers!(f32),
        (Kind::Float, 8) => as_numbers!(f64),
        _ if a.len() == b.len() && a.len() == datatype.size() => Some(a.cmp(b)),
        _ => None,
    }
}
