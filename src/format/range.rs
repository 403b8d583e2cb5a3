//! Inclusive ranges of coordinates: non-empty domains, minimum bounding rectangles, current domains.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/current_domain.md>

use super::datatype::{CellValNum, Datatype, Kind};
use super::scalar::with_number;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use std::cmp::Ordering;

/// `[lo, hi]` of one dimension. Each bound is the stored bytes: one little-endian value, or the text of a
/// var-sized one.
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
    /// Reads a stored range: `lo, hi` for a fixed-size dimension; for a var-sized one the total length u64,
    /// the length of `lo` u64 and the bytes of both (R-tree and footer, version 5 and later).
    pub(crate) fn parse(
        c: &mut Cursor<'_>,
        datatype: Datatype,
        cells: CellValNum,
        field: &str,
    ) -> Result<Range> {
        let (low, high) = match cells.cell_size(datatype) {
            Some(size) => (size, size),
            None => {
                let (total, low) = (c.u64(field)?, c.u64(field)?);
                lengths(total, low).map_err(|e| e.at(c.offset()).in_part(format_args!("`{field}`")))?
            }
        };
        Ok(Range {
            lo: c.bytes(low, field)?.to_vec(),
            hi: c.bytes(high, field)?.to_vec(),
        })
    }

    /// Compares the bounds: integers and times as numbers, floats by IEEE 754, all else bytewise. None for a
    /// NaN.
    pub fn order(&self, datatype: Datatype, cells: CellValNum) -> Option<Ordering> {
        compare(datatype, cells, &self.lo, &self.hi)
    }

    /// Fails if the lower bound is above the upper one. Accepts bounds that cannot be compared (NaN): TileDB
    /// writes them.
    pub(super) fn check(&self, datatype: Datatype, cells: CellValNum) -> Result<()> {
        match self.order(datatype, cells) {
            Some(Ordering::Greater) => Err(Error::corrupt("the lower bound is above the upper one")),
            _ => Ok(()),
        }
    }

    /// The fewest bytes that a stored range takes.
    pub(super) fn min_stored_size(datatype: Datatype, cells: CellValNum) -> usize {
        cells.cell_size(datatype).map_or(16, |size| size as usize * 2)
    }
}

/// The lengths of both bounds of a stored var-sized range of `total` bytes, of which the lower one takes
/// `low`.
pub(super) fn lengths(total: u64, low: u64) -> Result<(u64, u64)> {
    match total.checked_sub(low) {
        Some(high) => Ok((low, high)),
        None => Err(Error::corrupt(format!(
            "the lower bound takes {low} bytes of a range of only {total}"
        ))),
    }
}

/// Compares the stored bytes of two coordinates: integers and times as numbers, floats by IEEE 754, var-sized
/// or textual ones bytewise. None for a NaN, and for values of another size than the datatype's.
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
    let bytewise = || (a.len() == b.len() && a.len() == datatype.size()).then(|| a.cmp(b));
    with_number!(datatype, as_numbers, bytewise())
}

/// Clears the flags in `stay` of coordinates that [`compare`] does not find between `lo` and `hi`, inclusive.
/// `values` has the stored bytes of many coordinates of one value each. Returns false, without changes, if
/// they are not numbers or a bound is missing.
pub fn keep_between(
    datatype: Datatype,
    values: &[u8],
    [lo, hi]: [Option<&[u8]>; 2],
    stay: &mut [bool],
) -> bool {
    macro_rules! as_numbers {
        ($type:ty) => {{
            let number = |end: Option<&[u8]>| match end {
                None => Some(None),
                Some(bytes) => Some(Some(<$type>::from_le_bytes(bytes.try_into().ok()?))),
            };
            let ends = || Some((number(lo)?, number(hi)?));
            let Some((lo, hi)) = ends() else { return false };
            let values = values.as_chunks().0.iter();
            for (stay, value) in stay.iter_mut().zip(values) {
                let value = <$type>::from_le_bytes(*value);
                *stay &= lo.is_none_or(|lo| value >= lo) & hi.is_none_or(|hi| value <= hi);
            }
            true
        }};
    }
    with_number!(datatype, as_numbers, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::{Bytes, check_hostile};

    const ONE: CellValNum = CellValNum::Fixed(1);

    fn parse(bytes: &[u8], datatype: Datatype, cells: CellValNum) -> Result<Range> {
        let mut c = Cursor::new(bytes);
        let range = Range::parse(&mut c, datatype, cells, "range")?;
        c.finish()?;
        Ok(range)
    }

    #[test]
    fn many_coordinates_are_kept_as_each_compares() {
        use Datatype::*;
        let patterns: Vec<u64> = (0..200u64)
            .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(i as u32 % 64))
            .chain([0, u64::MAX, f64::NAN.to_bits(), (-0.0f64).to_bits(), 1 << 63])
            .collect();
        for datatype in [
            Int8,
            Int16,
            Int32,
            Int64,
            Uint8,
            Uint16,
            Uint32,
            Uint64,
            Float32,
            Float64,
            DatetimeDay,
        ] {
            let size = datatype.size();
            let bytes: Vec<Vec<u8>> = patterns
                .iter()
                .map(|p| p.to_le_bytes()[8 - size..].to_vec())
                .collect();
            let values = bytes.concat();
            for ends in bytes.windows(2) {
                for (lo, hi) in [(Some(0), Some(1)), (None, Some(0)), (Some(1), None)] {
                    let end = |i: Option<usize>| i.map(|i| ends[i].as_slice());
                    let is = |value: &Vec<u8>, end: Option<&[u8]>, outside: Ordering| {
                        end.is_none_or(|end| {
                            compare(datatype, ONE, value, end).is_some_and(|order| order != outside)
                        })
                    };
                    let expected: Vec<bool> = bytes
                        .iter()
                        .map(|v| is(v, end(lo), Ordering::Less) && is(v, end(hi), Ordering::Greater))
                        .collect();
                    let mut stay = vec![true; bytes.len()];
                    let numbers = keep_between(datatype, &values, [end(lo), end(hi)], &mut stay);
                    assert!(numbers && stay == expected, "{datatype:?}");
                }
            }
        }
    }

    #[test]
    fn fixed_and_var_sized_ranges() {
        let fixed = Bytes::default().raw(&[1, 2, 3, 4]);
        let range = check_hostile(&fixed, |bytes| parse(bytes, Datatype::Int16, ONE));
        assert_eq!((&range.lo[..], &range.hi[..]), (&[1, 2][..], &[3, 4][..]));
        let var = Bytes::default().count64(5).count64(2).raw(b"aabbb");
        let range = check_hostile(&var, |bytes| parse(bytes, Datatype::StringAscii, CellValNum::Var));
        assert_eq!((&range.lo[..], &range.hi[..]), (&b"aa"[..], &b"bbb"[..]));
        let low_too_long = Bytes::default().u64(1).u64(2).raw(b"aab");
        assert!(parse(&low_too_long.bytes, Datatype::StringAscii, CellValNum::Var).is_err());
    }

    #[test]
    fn coordinates_compare_by_their_type() {
        let less = Some(Ordering::Less);
        let compare = |datatype, a: &[u8], b: &[u8]| super::compare(datatype, ONE, a, b);
        assert_eq!(compare(Datatype::Int8, &[0xFF], &[1]), less);
        assert_eq!(compare(Datatype::Uint8, &[1], &[0xFF]), less);
        assert_eq!(compare(Datatype::Int16, &[0, 0xFF], &[1, 0]), less);
        assert_eq!(compare(Datatype::Uint16, &[0xFF, 0], &[0, 1]), less);
        assert_eq!(compare(Datatype::Int32, &[0xFF; 4], &[0; 4]), less);
        assert_eq!(compare(Datatype::Uint32, &[0; 4], &[0xFF; 4]), less);
        assert_eq!(compare(Datatype::Uint64, &[0; 8], &[0xFF; 8]), less);
        for signed in [Datatype::Int64, Datatype::DatetimeNs, Datatype::TimeHr] {
            assert_eq!(compare(signed, &[0xFF; 8], &[0; 8]), less);
        }
        let float = |v: f64| v.to_le_bytes();
        assert_eq!(compare(Datatype::Float64, &float(-1.0), &float(0.5)), less);
        assert_eq!(compare(Datatype::Float64, &float(f64::NAN), &float(0.5)), None);
        assert_eq!(
            compare(Datatype::Float32, &(-0.0f32).to_le_bytes(), &0f32.to_le_bytes()),
            Some(Ordering::Equal)
        );
        assert_eq!(compare(Datatype::Int32, &[0; 3], &[0; 4]), None, "not a value");
        assert_eq!(compare(Datatype::Char, b"a", b"\x80"), less);
        assert_eq!(compare(Datatype::Char, b"a", b""), None);
        let strings = |a: &[u8], b: &[u8]| super::compare(Datatype::StringAscii, CellValNum::Var, a, b);
        assert_eq!(strings(b"a", b"aa"), less);
        assert_eq!(strings(b"z", b"\xC3"), less);
    }

    #[test]
    fn only_ranges_the_wrong_way_round_are_refused() {
        let check = |lo: f32, hi: f32| {
            let range = Range {
                lo: lo.to_le_bytes().to_vec(),
                hi: hi.to_le_bytes().to_vec(),
            };
            range.check(Datatype::Float32, ONE).is_ok()
        };
        assert!(check(1.0, 2.0) && check(1.0, 1.0) && check(f32::NAN, 1.0));
        assert!(!check(2.0, 1.0));
    }
}
