//! Computes minima, maxima, sums and null counts from values, and compares them with stored ones.
//!
//! The fragment metadata stores these from version 11 on:
//!
//! | | minimum, maximum | sum | null count |
//! |---|---|---|---|
//! | attribute of one number, date or BOOL a cell | yes | yes | yes |
//! | attribute of CHAR or STRING_ASCII, of any number of values a cell | yes | no | yes |
//! | dimension of a sparse fragment, one number or date a cell | no (R-tree instead) | yes | - |
//! | all else | no | no | 0 |
//!
//! The values of null cells are left out of minima, maxima and sums. Text is compared as by C's `strncmp`, up
//! to the first NUL; if it is equal up to there, the shorter text is less. Sums saturate at the bounds of
//! their type.

use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::scalar::{Scalar, with_integer};
use std::cmp::Ordering;

/// How the values of a field are compared and summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// One number a cell.
    Number,
    Text,
    Opaque,
}

impl Class {
    /// The class of the cells of a field.
    pub(super) fn of(datatype: Datatype, cell_val_num: CellValNum) -> Class {
        match datatype.kind() {
            _ if matches!(datatype, Datatype::Char | Datatype::StringAscii) => Class::Text,
            Kind::Text | Kind::Bytes => Class::Opaque,
            _ if cell_val_num == CellValNum::Fixed(1) => Class::Number,
            _ => Class::Opaque,
        }
    }
}

/// Minimum, maximum and sum of several values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Totals {
    Integers(Integers),
    Floats(Floats),
    /// The least and the greatest text.
    Texts(Vec<u8>, Vec<u8>),
}

/// `above` is the sum of the positive values and `below` that of the negative ones. They tell whether a
/// running sum may have saturated on its way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Integers {
    pub min: i128,
    pub max: i128,
    above: i128,
    below: i128,
}

/// `magnitude` is the sum of absolute values; `odd` is set if there is a NaN or an infinity.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Floats {
    min: f64,
    max: f64,
    sum: f64,
    magnitude: f64,
    odd: bool,
}

/// The statistics of some cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Summary {
    /// None if all cells are null, and for opaque values.
    pub values: Option<Totals>,
    /// Cells that are not null.
    pub valid: u64,
    /// Cells that are null.
    pub nulls: u64,
}

/// The statistics of some cells, with and without the padding of dense tiles. Stored statistics include
/// padding if the writer was older than format version 16, consolidated, or wrote in global order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Summaries {
    /// Statistics of the cells inside the non-empty domain.
    pub inside: Summary,
    /// Statistics of all cells, with padding; None if there is no padding.
    pub all: Option<Summary>,
    /// Whether there is a tile in which all cells are null.
    pub tile_of_nulls: bool,
}

impl Summaries {
    /// What `check` finds wrong, if it finds something both with and without the padding.
    pub(super) fn wrong(&self, check: impl Fn(&Summary) -> Option<String>) -> Option<String> {
        let wrong = check(&self.inside)?;
        match &self.all {
            Some(all) => check(all).map(|_| wrong),
            None => Some(wrong),
        }
    }

    /// Adds the statistics of other cells of the field.
    pub(super) fn merge(&mut self, other: Summaries) {
        if self.all.is_some() || other.all.is_some() {
            let own = self.all.get_or_insert_with(|| self.inside.clone());
            own.merge(other.all.unwrap_or_else(|| other.inside.clone()));
        }
        self.inside.merge(other.inside);
        self.tile_of_nulls |= other.tile_of_nulls;
    }
}

impl From<Summary> for Summaries {
    fn from(inside: Summary) -> Self {
        Summaries {
            inside,
            all: None,
            tile_of_nulls: false,
        }
    }
}

/// Compares text as TileDB does.
fn text_order(a: &[u8], b: &[u8]) -> Ordering {
    for (x, y) in a.iter().zip(b) {
        match x.cmp(y) {
            Ordering::Equal if *x == 0 => break,
            Ordering::Equal => {}
            unequal => return unequal,
        }
    }
    a.len().cmp(&b.len())
}

impl Summary {
    /// Adds cells of one little-endian number each. `validity` has a byte for each cell, or is empty.
    pub(super) fn add_numbers(&mut self, datatype: Datatype, cells: &[u8], validity: &[u8]) {
        macro_rules! valid {
            ($type:ty) => {{
                let values = cells.as_chunks().0.iter().enumerate();
                let values = values.filter(|(i, _)| validity.get(*i) != Some(&0));
                values.map(|(_, value)| <$type>::from_le_bytes(*value))
            }};
        }
        macro_rules! integers {
            ($type:ty) => {{
                let (mut min, mut max, mut above, mut below) = (<$type>::MAX, <$type>::MIN, 0i128, 0i128);
                for value in valid!($type) {
                    min = min.min(value);
                    max = max.max(value);
                    above += i128::from(value.max(0));
                    below += i128::from(value.min(0));
                }
                Some(Totals::Integers(Integers {
                    min: min.into(),
                    max: max.into(),
                    above,
                    below,
                }))
            }};
        }
        macro_rules! floats {
            ($type:ty) => {{
                let mut all = Floats {
                    min: f64::INFINITY,
                    max: f64::NEG_INFINITY,
                    sum: 0.0,
                    magnitude: 0.0,
                    odd: false,
                };
                for value in valid!($type).map(f64::from) {
                    all.min = value.min(all.min);
                    all.max = value.max(all.max);
                    all.sum += value;
                    all.magnitude += value.abs();
                    all.odd |= !value.is_finite();
                }
                Some(Totals::Floats(all))
            }};
        }
        let values = match datatype {
            Datatype::Float32 => floats!(f32),
            Datatype::Float64 => floats!(f64),
            _ => with_integer!(datatype, integers, None),
        };
        let mut added = Summary::default();
        added.add_validity((cells.len() / datatype.size()) as u64, validity);
        added.values = values.filter(|_| added.valid > 0);
        self.merge(added);
    }

    /// Adds cells of which only the validity counts.
    pub(super) fn add_validity(&mut self, cells: u64, validity: &[u8]) {
        let nulls = validity.iter().filter(|&&byte| byte == 0).count() as u64;
        self.nulls += nulls;
        self.valid += cells - nulls;
    }

    /// Adds one text that is not null.
    pub(super) fn add_text(&mut self, text: &[u8]) {
        self.valid += 1;
        match &mut self.values {
            Some(Totals::Texts(min, max)) => {
                if text_order(text, min) == Ordering::Less {
                    min.clear();
                    min.extend_from_slice(text);
                }
                if text_order(text, max) == Ordering::Greater {
                    max.clear();
                    max.extend_from_slice(text);
                }
            }
            _ => self.values = Some(Totals::Texts(text.to_vec(), text.to_vec())),
        }
    }

    /// Adds the statistics of other cells of the field.
    pub(super) fn merge(&mut self, other: Summary) {
        self.valid += other.valid;
        self.nulls += other.nulls;
        let Some(other) = other.values else { return };
        let Some(own) = &mut self.values else {
            self.values = Some(other);
            return;
        };
        match (own, other) {
            (Totals::Integers(own), Totals::Integers(other)) => {
                own.min = own.min.min(other.min);
                own.max = own.max.max(other.max);
                own.above += other.above;
                own.below += other.below;
            }
            (Totals::Floats(own), Totals::Floats(other)) => {
                own.min = other.min.min(own.min);
                own.max = other.max.max(own.max);
                own.sum += other.sum;
                own.magnitude += other.magnitude;
                own.odd |= other.odd;
            }
            (Totals::Texts(min, max), Totals::Texts(other_min, other_max)) => {
                if text_order(&other_min, min) == Ordering::Less {
                    *min = other_min;
                }
                if text_order(&other_max, max) == Ordering::Greater {
                    *max = other_max;
                }
            }
            // Cannot happen: a field has one class.
            _ => {}
        }
    }

    /// A message if the stored minimum differs from that of the values; None if it does not, or if there are
    /// no values.
    pub(super) fn wrong_min(&self, datatype: Datatype, stored: &[u8]) -> Option<String> {
        self.wrong_bound(datatype, stored, true)
    }

    /// As [`Summary::wrong_min`], for the maximum.
    pub(super) fn wrong_max(&self, datatype: Datatype, stored: &[u8]) -> Option<String> {
        self.wrong_bound(datatype, stored, false)
    }

    fn wrong_bound(&self, datatype: Datatype, stored: &[u8], least: bool) -> Option<String> {
        let what = if least { "minimum" } else { "maximum" };
        let differ = |stored: String, actual: String| {
            Some(format!(
                "the stored {what} is {stored}, but the {what} of the values is {actual}"
            ))
        };
        let size = |found: bool| {
            let length = stored.len();
            (!found)
                .then(|| format!("the stored {what} has {length} bytes, which is not the size of a value"))
        };
        match self.values.as_ref()? {
            Totals::Integers(Integers { min, max, .. }) => {
                let actual = if least { min } else { max };
                match Scalar::read(datatype, stored).and_then(Scalar::integer) {
                    Some(stored) if stored != *actual => differ(stored.to_string(), actual.to_string()),
                    found => size(found.is_some()),
                }
            }
            Totals::Floats(Floats { min, max, odd, .. }) => {
                let actual = if least { min } else { max };
                match Scalar::read(datatype, stored).map(Scalar::float) {
                    Some(stored) if !odd && stored != *actual => {
                        differ(stored.to_string(), actual.to_string())
                    }
                    found => size(found.is_some()),
                }
            }
            Totals::Texts(min, max) => {
                let actual = if least { min } else { max };
                let show = |text: &[u8]| format!("{:?}", String::from_utf8_lossy(text));
                match text_order(stored, actual) {
                    Ordering::Equal => None,
                    _ => differ(show(stored), show(actual)),
                }
            }
        }
    }

    /// A message if the stored sum differs from that of the values; None as for [`Summary::wrong_min`].
    pub(super) fn wrong_sum(&self, datatype: Datatype, stored: [u8; 8]) -> Option<String> {
        let differ = |stored: String, actual: String| {
            Some(format!(
                "the stored sum is {stored}, but the sum of the values is {actual}"
            ))
        };
        match (
            self.values.as_ref()?,
            Scalar::read(datatype.sum_type()?, &stored)?,
        ) {
            (Totals::Integers(Integers { above, below, .. }), Scalar::Signed(stored)) => {
                let actual = above + below;
                // If the running sum can saturate, its result depends on the order of the values.
                let exact = *above <= i128::from(i64::MAX) && *below >= i128::from(i64::MIN);
                match exact && i128::from(stored) != actual {
                    true => differ(stored.to_string(), actual.to_string()),
                    false => None,
                }
            }
            (Totals::Integers(Integers { above: actual, .. }), Scalar::Unsigned(stored)) => {
                match i128::from(stored) != *actual.min(&i128::from(u64::MAX)) {
                    true => differ(stored.to_string(), actual.to_string()),
                    false => None,
                }
            }
            (Totals::Floats(all), Scalar::Float64(stored)) => {
                // The rounding error depends on the order of the values, and grows with their number.
                let tolerance = all.magnitude * (self.valid as f64 + 2.0) * f64::EPSILON;
                let close = (stored - all.sum).abs() <= tolerance;
                match close || all.odd || !all.magnitude.is_finite() {
                    true => None,
                    false => differ(stored.to_string(), all.sum.to_string()),
                }
            }
            _ => None,
        }
    }

    /// A message if the stored null count differs from that of the cells.
    pub(super) fn wrong_null_count(&self, stored: u64) -> Option<String> {
        (stored != self.nulls).then(|| {
            format!(
                "the stored null count is {stored}, but there are {} nulls",
                self.nulls
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT16: Datatype = Datatype::Int16;

    fn numbers(datatype: Datatype, cells: &[u8], validity: &[u8]) -> Summary {
        let mut summary = Summary::default();
        summary.add_numbers(datatype, cells, validity);
        summary
    }

    #[test]
    fn nulls_count_for_the_null_count_alone() {
        let cells = [-3i16, 500, 2].map(i16::to_le_bytes);
        let summary = numbers(INT16, cells.as_flattened(), &[1, 0, 1]);
        assert_eq!((summary.valid, summary.nulls), (2, 1));
        assert_eq!(summary.wrong_min(Datatype::Int16, &(-3i16).to_le_bytes()), None);
        assert_eq!(summary.wrong_max(Datatype::Int16, &2i16.to_le_bytes()), None);
        assert!(
            summary
                .wrong_max(Datatype::Int16, &500i16.to_le_bytes())
                .is_some()
        );
        assert!(
            summary
                .wrong_min(Datatype::Int16, &[])
                .unwrap()
                .contains("0 bytes")
        );
        assert_eq!(summary.wrong_sum(INT16, (-1i64).to_le_bytes()), None);
        assert!(summary.wrong_sum(INT16, 499i64.to_le_bytes()).is_some());
        assert_eq!(summary.wrong_null_count(1), None);
        assert!(summary.wrong_null_count(0).is_some());
        let nothing = numbers(INT16, &[0; 4], &[0, 0]);
        assert_eq!(nothing.wrong_min(Datatype::Int16, &[9, 9]), None);
    }

    #[test]
    fn sums_stick_at_their_bounds() {
        let sum = |values: &[i64]| {
            let cells: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            numbers(Datatype::Int64, &cells, &[])
        };
        // Whether it stuck before the negative ones came is not to be known.
        assert_eq!(
            sum(&[i64::MAX, 1, -5]).wrong_sum(Datatype::Int64, i64::MAX.to_le_bytes()),
            None
        );
        assert!(
            sum(&[i64::MAX - 1, 1])
                .wrong_sum(Datatype::Int64, 5i64.to_le_bytes())
                .is_some()
        );
        let cells = [u64::MAX, 7].map(u64::to_le_bytes);
        let unsigned = numbers(Datatype::Uint64, cells.as_flattened(), &[]);
        assert_eq!(unsigned.wrong_sum(Datatype::Uint64, u64::MAX.to_le_bytes()), None);
        assert!(unsigned.wrong_sum(Datatype::Uint64, 6u64.to_le_bytes()).is_some());
    }

    #[test]
    fn sums_of_floats_may_be_rounded() {
        let sum = |values: &[f64]| {
            let cells: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            numbers(Datatype::Float64, &cells, &[])
        };
        let summary = sum(&[0.1, 0.2, 0.3]);
        assert_eq!(
            summary.wrong_sum(Datatype::Float64, ((0.3 + 0.2) + 0.1f64).to_le_bytes()),
            None
        );
        assert!(
            summary
                .wrong_sum(Datatype::Float64, 0.600_001f64.to_le_bytes())
                .is_some()
        );
        assert!(
            summary
                .wrong_sum(Datatype::Float64, f64::NAN.to_le_bytes())
                .is_some()
        );
        let odd = sum(&[f64::NAN, 1.0]);
        assert_eq!(odd.wrong_sum(Datatype::Float64, 5f64.to_le_bytes()), None);
        assert_eq!(odd.wrong_min(Datatype::Float64, &9f64.to_le_bytes()), None);
        let zero = sum(&[-0.0]);
        assert_eq!(zero.wrong_min(Datatype::Float64, &0f64.to_le_bytes()), None);
    }

    #[test]
    fn text_ends_at_its_first_nul() {
        assert_eq!(text_order(b"a\0b", b"a\0c"), Ordering::Equal);
        assert_eq!(text_order(b"a\0b", b"a\0"), Ordering::Greater);
        assert_eq!(text_order(b"a\xC3", b"az"), Ordering::Greater);
        let mut summary = Summary::default();
        for text in [b"b".as_slice(), b"", b"ba"] {
            summary.add_text(text);
        }
        assert_eq!(summary.wrong_min(Datatype::StringAscii, b""), None);
        assert_eq!(summary.wrong_max(Datatype::StringAscii, b"ba"), None);
        assert!(summary.wrong_max(Datatype::StringAscii, b"b").is_some());
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let all = [-3i16, 500, 2, -700].map(i16::to_le_bytes);
        let whole = numbers(INT16, all.as_flattened(), &[]);
        let mut parts = numbers(INT16, all[..1].as_flattened(), &[]);
        parts.merge(Summary::default());
        parts.merge(numbers(INT16, all[1..].as_flattened(), &[]));
        assert_eq!(parts, whole);
    }

    #[test]
    fn padding_may_be_counted_or_not() {
        let inside = numbers(INT16, &[5, 0], &[]);
        let mut tile = Summaries {
            all: Some(numbers(INT16, &[5, 0, 0, 0], &[])),
            inside: inside.clone(),
            tile_of_nulls: false,
        };
        let wrong = |tile: &Summaries, min: i16| {
            tile.wrong(|s| s.wrong_min(Datatype::Int16, &min.to_le_bytes()))
                .is_some()
        };
        assert!(!wrong(&tile, 5) && !wrong(&tile, 0) && wrong(&tile, 1));
        // A tile without padding counts on both sides.
        tile.merge(numbers(INT16, &[3, 0], &[]).into());
        assert!(!wrong(&tile, 3) && !wrong(&tile, 0) && wrong(&tile, 5));
        assert!(wrong(&inside.into(), 0));
    }
}
