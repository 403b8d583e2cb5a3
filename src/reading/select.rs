//! What to read: a time, a part of the domain, fields.

use super::sealed::Sealed;
use super::values::Value;
use crate::catalog::Array;
use crate::catalog::time::TimeRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::datatype::Kind;
use crate::format::range::{Range, compare};
use crate::format::schema::{Dimension, Schema};
use crate::query::{DimRange, View, table};
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds, RangeFrom, RangeInclusive, RangeToInclusive};
use std::sync::Arc;

impl Array {
    /// Begins a view of the array in the time range `times`. A range without an end ends now.
    pub fn at(self: &Arc<Self>, times: TimeRange) -> ViewBuilder {
        ViewBuilder {
            array: self.clone(),
            times,
            subarray: None,
            ranges: Vec::new(),
            fields: None,
        }
    }
}

/// The settings of a view. Made by [`Array::at`].
///
/// ```
/// use tiledbfs::{Array, TimeRange};
///
/// let array = Array::open("tests/data/sample/weather")?;
/// let view = array
///     .at(TimeRange::until(1_739_000_000_000))
///     .range("day", 32..=59)
///     .range("station", ..3)
///     .fields(["day", "temperature"])
///     .open()?;
/// assert_eq!(view.shape()?, [28, 3]);
/// # Ok::<(), tiledbfs::Error>(())
/// ```
#[must_use]
pub struct ViewBuilder {
    array: Arc<Array>,
    times: TimeRange,
    subarray: Option<Vec<DimRange>>,
    /// Ranges of some dimensions, by name.
    ranges: Vec<(String, Wanted)>,
    fields: Option<Vec<String>>,
}

/// A range of coordinates of a Rust type.
struct Wanted {
    /// Whether the dimension has such coordinates.
    fits: fn(&Dimension) -> bool,
    /// Why there is no such range, if there is none.
    range: std::result::Result<DimRange, &'static str>,
}

impl ViewBuilder {
    /// Restricts the view to a part of the domain: one range per dimension, in the schema's order.
    pub fn subarray(self, ranges: impl IntoIterator<Item = DimRange>) -> ViewBuilder {
        ViewBuilder {
            subarray: Some(ranges.into_iter().collect()),
            ..self
        }
    }

    /// Restricts the view along the dimension with this name; an open end is that of the view without it.
    /// Ranges of integers alone may exclude their end, as `0..10` does. Of several ranges of a dimension the
    /// last counts.
    pub fn range<C: Coordinate>(self, dimension: &str, range: impl RangeBounds<C>) -> ViewBuilder {
        let wanted = Wanted {
            fits: C::fits,
            range: inclusive(&range),
        };
        let mut ranges = self.ranges;
        ranges.push((dimension.to_owned(), wanted));
        ViewBuilder { ranges, ..self }
    }

    /// Names the fields and dimension labels that readers of several fields get, and their order: see
    /// [`View::selected`]. All of them, unless this is called. A label that is called like a field has `_`
    /// after its name, as in batches of all columns.
    pub fn fields<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> ViewBuilder {
        ViewBuilder {
            fields: Some(names.into_iter().map(Into::into).collect()),
            ..self
        }
    }

    /// Opens the view of the array's present state.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the ranges do not match the dimensions, exceed the domain or the current domain,
    /// begin above their ends, or have NaN as a bound; `NotFound` if there is no dimension, field or label
    /// with a given name, or no such directory; `Corrupt` for a directory without a schema, such as a
    /// group's. Also fails if the array cannot be listed, its schema cannot be read, or a committed fragment
    /// is missing.
    pub fn open(self) -> Result<View> {
        let times = Some(self.times).filter(|times| *times != TimeRange::ALL);
        let mut subarray = self.subarray;
        if subarray.is_some() || !self.ranges.is_empty() {
            let schema = self.array.schema(&*self.array.snapshot(times)?)?;
            let given = subarray.unwrap_or_else(|| vec![DimRange::default(); schema.dimensions.len()]);
            subarray = Some(combined(&schema, given, self.ranges)?);
        }
        let view = View::new(self.array, times, subarray)?;
        view.check_complete()?;
        match self.fields {
            None => Ok(view),
            Some(names) => {
                let columns = table::names(&view);
                let label = |name: &str| {
                    let mut labels = view.fields().len()..columns.len();
                    labels.find(|index| columns[*index] == name.as_bytes())
                };
                let index = |name: &String| view.field_index(name).or_else(|e| label(name).ok_or(e));
                let selected = names.iter().map(index).collect::<Result<_>>()?;
                Ok(view.select(selected))
            }
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// One range for each dimension: those of `ranges` for their dimensions, else those of `subarray`.
fn combined(
    schema: &Schema,
    mut subarray: Vec<DimRange>,
    ranges: Vec<(String, Wanted)>,
) -> Result<Vec<DimRange>> {
    let count = schema.dimensions.len();
    if subarray.len() != count {
        let found = subarray.len();
        return Err(invalid(format!(
            "found {found} ranges, expected one for each of the {count} dimensions"
        )));
    }
    for (name, Wanted { fits, range }) in ranges {
        let index = schema.dimension_index(name.as_bytes());
        let index = index.ok_or_else(|| Error::not_found(format!("the array has no dimension {name:?}")))?;
        let dimension = &schema.dimensions[index];
        if !fits(dimension) {
            let datatype = dimension.datatype.name();
            return Err(refused(
                dimension,
                &format!("has bounds of another type than {datatype}"),
            ));
        }
        subarray[index] = range.map_err(|what| refused(dimension, what))?;
    }
    for (index, (range, dimension)) in subarray.iter().zip(&schema.dimensions).enumerate() {
        let current = schema.current_domain.as_ref().map(|rect| &rect[index]);
        check(range, dimension, current)?;
    }
    Ok(subarray)
}

fn refused(dimension: &Dimension, what: &str) -> Error {
    let name = String::from_utf8_lossy(&dimension.name);
    invalid(format!("the range of {name:?} {what}"))
}

/// A range with inclusive ends, or why there is none.
fn inclusive<C: Coordinate>(range: &impl RangeBounds<C>) -> std::result::Result<DimRange, &'static str> {
    const EXCLUDED: &str = "excludes its end, before which there is no coordinate, or too many";
    let lo = match range.start_bound() {
        Bound::Unbounded => None,
        Bound::Included(start) => Some(start.to_bytes()),
        // No range operator makes one.
        Bound::Excluded(_) => return Err("excludes its start"),
    };
    let hi = match range.end_bound() {
        Bound::Unbounded => None,
        Bound::Included(end) => Some(end.to_bytes()),
        Bound::Excluded(end) => Some(end.bytes_before().ok_or(EXCLUDED)?),
    };
    Ok(DimRange { lo, hi })
}

impl Sealed for &str {}

/// A Rust type of coordinates: the numbers that are a [`Value`], and `&str` for dimensions of strings.
pub trait Coordinate: Sealed {
    /// Whether a dimension has coordinates of this type.
    fn fits(dimension: &Dimension) -> bool;

    /// The coordinate as TileDB stores it: little-endian, or the bytes of the text.
    fn to_bytes(&self) -> Vec<u8>;

    /// The same of the coordinate before; None if there is none, or too many, as for floats and text.
    fn bytes_before(&self) -> Option<Vec<u8>>;
}

impl<T: Value> Coordinate for T {
    fn fits(dimension: &Dimension) -> bool {
        T::holds(dimension.datatype) && dimension.cell_size().is_some()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.bytes()
    }

    fn bytes_before(&self) -> Option<Vec<u8>> {
        self.before().map(T::bytes)
    }
}

impl Coordinate for &str {
    fn fits(dimension: &Dimension) -> bool {
        dimension.datatype.kind() == Kind::Text && dimension.cell_size().is_none()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn bytes_before(&self) -> Option<Vec<u8>> {
        None
    }
}

/// `InvalidInput` if a range is empty, or does not fit its dimension and the current domain along it.
fn check(range: &DimRange, dimension: &Dimension, current: Option<&Range>) -> Result<()> {
    let order = |a: &[u8], b: &[u8]| compare(dimension.datatype, dimension.cell_val_num, a, b);
    let above = |a: &[u8], b: &[u8]| order(a, b) == Some(Ordering::Greater);
    for bound in [&range.lo, &range.hi].into_iter().flatten() {
        let size = dimension.cell_val_num.cell_size(dimension.datatype);
        if size.is_some_and(|size| size != bound.len() as u64) {
            return Err(refused(
                dimension,
                &format!("has a bound of {} bytes", bound.len()),
            ));
        }
        if order(bound, bound).is_none() {
            return Err(refused(dimension, "has a bound that is not a number"));
        }
        let outside = |allowed: &Range| above(&allowed.lo, bound) || above(bound, &allowed.hi);
        if dimension.domain.as_ref().is_some_and(outside) {
            return Err(refused(dimension, "exceeds the domain"));
        }
        if current.is_some_and(outside) {
            return Err(refused(dimension, "exceeds the current domain"));
        }
    }
    match (&range.lo, &range.hi) {
        (Some(lo), Some(hi)) if above(lo, hi) => Err(refused(dimension, "is empty: it begins above its end")),
        _ => Ok(()),
    }
}

impl<T: Value> From<RangeInclusive<T>> for DimRange {
    fn from(range: RangeInclusive<T>) -> DimRange {
        DimRange {
            lo: Some(range.start().bytes()),
            hi: Some(range.end().bytes()),
        }
    }
}

impl<T: Value> From<RangeFrom<T>> for DimRange {
    fn from(range: RangeFrom<T>) -> DimRange {
        DimRange {
            lo: Some(range.start.bytes()),
            hi: None,
        }
    }
}

impl<T: Value> From<RangeToInclusive<T>> for DimRange {
    fn from(range: RangeToInclusive<T>) -> DimRange {
        DimRange {
            lo: None,
            hi: Some(range.end.bytes()),
        }
    }
}

impl From<RangeInclusive<&str>> for DimRange {
    fn from(range: RangeInclusive<&str>) -> DimRange {
        DimRange {
            lo: Some(range.start().as_bytes().to_vec()),
            hi: Some(range.end().as_bytes().to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Output;
    use crate::catalog::source::{Source, SourceOptions};
    use crate::fragment::column::Content;

    #[test]
    fn a_chunk_is_shared_unless_the_cache_has_no_room_for_it() {
        for (cache_size, shared) in [(0, false), (64 << 20, true)] {
            let options = SourceOptions {
                cache_size,
                ..SourceOptions::default()
            };
            let source = Source::open("tests/data/sample/weather", &options).unwrap();
            let view = source.array("").at(TimeRange::ALL).open().unwrap();
            let cells = view.fragments()[0].field("temperature").unwrap();
            let out = Output::of(|out| cells.read(Content::Data, 0..8, out)).unwrap();
            assert_eq!((out.len(), out.held() > 0), (8, shared));
        }
    }

    fn weather() -> Arc<Array> {
        Array::open("tests/data/sample/weather").unwrap()
    }

    #[test]
    fn a_part_is_that_part_of_the_whole() {
        let array = weather();
        let whole = array.at(TimeRange::ALL).open().unwrap();
        let wind: Vec<f64> = whole.read("wind", 0..whole.count().unwrap()).unwrap();
        let part = array
            .at(TimeRange::ALL)
            .subarray([DimRange::from(73_i32..=74), DimRange::from(2_i32..)])
            .open()
            .unwrap();
        assert_eq!(part.shape().unwrap(), [2, 4]);
        // Six stations a day, two values per cell; the first day is 1.
        let expected =
            [(72 * 6 + 2) * 2..73 * 6 * 2, (73 * 6 + 2) * 2..74 * 6 * 2].map(|values| &wind[values]);
        assert_eq!(part.read::<f64>("wind", 0..8).unwrap(), expected.concat());
        assert_eq!(part.read::<i32>("day", 0..2).unwrap(), [73, 74]);
        assert_eq!(part.read::<i32>("station", 1..3).unwrap(), [3, 4]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let array = weather();
        let view = array.at(TimeRange::ALL).open().unwrap();
        let invalid = |result: Result<Vec<f32>>| result.unwrap_err().kind() == ErrorKind::InvalidInput;
        assert!(invalid(view.read("rain", 0..1)), "UINT16");
        assert!(
            invalid(view.read("temperature", 0..365 * 6 + 1)),
            "beyond the end"
        );
        assert!(view.read::<u8>("note", 0..1).is_err(), "var-sized");
        assert_eq!(
            view.read::<f32>("none", 0..1).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let all = DimRange::default;
        for ranges in [
            vec![all()],
            vec![DimRange::from(0_i32..), all()],
            vec![DimRange::from(1_i64..), all()],
            vec![all(), DimRange::from("a"..="b")],
        ] {
            let refused = array.at(TimeRange::ALL).subarray(ranges).open();
            assert_eq!(refused.err().map(|e| e.kind()), Some(ErrorKind::InvalidInput));
        }
    }

    #[test]
    fn ranges_are_found_by_name_and_type() {
        let array = weather();
        let all = || array.at(TimeRange::ALL);
        let by_order = all().subarray([DimRange::from(73_i32..=74), DimRange::from(2_i32..)]);
        let by_order = by_order.open().unwrap();
        for by_name in [
            all().range("station", 2..).range("day", 73..=74),
            all()
                .range("day", 1..=2)
                .range("day", 73..75)
                .range("station", 2..),
            all()
                .subarray([DimRange::from(73_i32..=74), DimRange::default()])
                .range("station", 2..6),
        ] {
            let view = by_name.open().unwrap();
            assert_eq!(view.subarray().unwrap()[0], DimRange::from(73_i32..=74));
            assert_eq!(view.region().unwrap(), by_order.region().unwrap());
        }
        let refused = |builder: ViewBuilder| {
            let error = builder.open().err().unwrap();
            (error.kind(), error.message().to_owned())
        };
        for (builder, kind, part) in [
            (all().range("hour", 1..2), ErrorKind::NotFound, "\"hour\""),
            (all().range("wind", 1..2), ErrorKind::NotFound, "\"wind\""),
            (all().range("day", 1.0_f32..), ErrorKind::InvalidInput, "INT32"),
            (all().range("day", 1_i64..), ErrorKind::InvalidInput, "INT32"),
            (all().range("day", 1_u32..), ErrorKind::InvalidInput, "INT32"),
            (all().range("day", "a"..="b"), ErrorKind::InvalidInput, "INT32"),
            (all().range("day", 0..5), ErrorKind::InvalidInput, "domain"),
            (all().range("day", 5..5), ErrorKind::InvalidInput, "empty"),
            (all().range("day", ..i32::MIN), ErrorKind::InvalidInput, "its end"),
            (all().fields(["day", "none"]), ErrorKind::NotFound, "\"none\""),
        ] {
            let (found, message) = refused(builder);
            assert_eq!(found, kind, "{message}");
            assert!(message.contains(part), "{message}");
        }
        let lightning = Array::open("tests/data/sample/lightning").unwrap();
        let error = refused(lightning.at(TimeRange::ALL).range("lat", 45.0..50.0));
        assert!(error.1.contains("no coordinate, or too many"), "{}", error.1);
        let north = lightning.at(TimeRange::ALL).range("lat", 50.0..).open().unwrap();
        let latitudes: Vec<f64> = north.read("lat", 0..north.count().unwrap()).unwrap();
        assert!(!latitudes.is_empty() && latitudes.iter().all(|lat| *lat >= 50.0));
    }

    #[test]
    fn what_no_coordinate_can_be_in_is_refused() {
        fn message(array: &str, ranges: [DimRange; 2]) -> Option<String> {
            let array = Array::open(format!("tests/data/{array}")).unwrap();
            let error = array.at(TimeRange::ALL).subarray(ranges).open().err()?;
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            Some(error.message().to_owned())
        }
        let all = DimRange::default;
        for (range, part) in [
            (DimRange::from(f64::NAN..), "not a number"),
            (DimRange::from(..=f64::NAN), "not a number"),
            (DimRange::from(50.0..=45.0), "empty"),
        ] {
            let message = message("sample/lightning", [range, all()]).unwrap();
            assert!(message.contains(part), "{message}");
        }
        // The domain of the numbers is longer than 0 to 79, and strings have none.
        let found = |numbers, texts| message("versions/v22/current_domain", [numbers, texts]);
        assert_eq!(found(DimRange::from(0_i32..=79), DimRange::from("a"..="z")), None);
        for (numbers, texts, part) in [
            (DimRange::from(0_i32..=80), all(), "current domain"),
            (all(), DimRange::from("A"..="b"), "current domain"),
            (all(), DimRange::from("c"..="b"), "empty"),
        ] {
            let message = found(numbers, texts).unwrap();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn selected_fields_keep_their_order() {
        let view = weather().at(TimeRange::ALL).open().unwrap();
        assert_eq!(view.selected(), Vec::from_iter(0..view.fields().len()));
        let view = weather()
            .at(TimeRange::ALL)
            .fields(["wind", "day"])
            .open()
            .unwrap();
        let names = view
            .selected()
            .into_iter()
            .map(|index| view.fields()[index].name_str());
        assert_eq!(Vec::from_iter(names), [Some("wind"), Some("day")]);
    }
}
