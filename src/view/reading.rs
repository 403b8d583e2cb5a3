//! The interface for programs that read an array: choose a time and a part of the domain, then read values.

use super::{DimRange, View};
use crate::array::Array;
use crate::array::cells::{Cells, FragmentCells};
use crate::array::fragment::Fragment;
use crate::array::time::TimeRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::datatype::{Datatype, Kind};
use crate::format::range::compare;
use crate::format::schema::Dimension;
use std::cmp::Ordering;
use std::ops::{Range, RangeFrom, RangeInclusive, RangeToInclusive};
use std::sync::Arc;

impl Array {
    /// Begins a view of the array in the time range `times`. A range without an end ends now.
    pub fn at(self: &Arc<Self>, times: TimeRange) -> ViewBuilder {
        ViewBuilder {
            array: self.clone(),
            times,
            subarray: None,
        }
    }
}

/// The settings of a view. Made by [`Array::at`].
#[must_use]
pub struct ViewBuilder {
    array: Arc<Array>,
    times: TimeRange,
    subarray: Option<Vec<DimRange>>,
}

impl ViewBuilder {
    /// Restricts the view to a part of the domain: one range per dimension, in the schema's order.
    pub fn subarray(self, ranges: impl IntoIterator<Item = DimRange>) -> ViewBuilder {
        ViewBuilder {
            subarray: Some(ranges.into_iter().collect()),
            ..self
        }
    }

    /// Opens the view of the array's present state. `InvalidInput` if the ranges do not match the dimensions
    /// or exceed the domain. Also fails if the array cannot be listed, its schema cannot be read, or a
    /// committed fragment is missing.
    pub fn open(self) -> Result<View> {
        let times = Some(self.times).filter(|times| *times != TimeRange::ALL);
        if let Some(ranges) = &self.subarray {
            let schema = self.array.schema(&*self.array.snapshot(times)?)?;
            if ranges.len() != schema.dimensions.len() {
                let message = format!(
                    "found {} ranges, expected one for each of the {} dimensions",
                    ranges.len(),
                    schema.dimensions.len()
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            for (range, dimension) in ranges.iter().zip(&schema.dimensions) {
                check(range, dimension)?;
            }
        }
        let view = View::new(self.array, times, self.subarray)?;
        view.check_complete()?;
        Ok(view)
    }
}

/// `InvalidInput` if a range does not fit its dimension.
fn check(range: &DimRange, dimension: &Dimension) -> Result<()> {
    let refuse = |what: &str| {
        let name = String::from_utf8_lossy(&dimension.name);
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the range of {name:?} {what}"),
        ))
    };
    let above = |a: &[u8], b: &[u8]| {
        compare(dimension.datatype, dimension.cell_val_num, a, b) == Some(Ordering::Greater)
    };
    for bound in [&range.lo, &range.hi].into_iter().flatten() {
        let size = dimension.cell_val_num.cell_size(dimension.datatype);
        if size.is_some_and(|size| size != bound.len() as u64) {
            return refuse(&format!("has a bound of {} bytes", bound.len()));
        }
        let domain = dimension.domain.as_ref();
        if domain.is_some_and(|domain| above(&domain.lo, bound) || above(bound, &domain.hi)) {
            return refuse("exceeds the domain");
        }
    }
    Ok(())
}

impl View {
    /// The fragments that the view merges, oldest first.
    pub fn fragments(&self) -> Vec<Arc<Fragment>> {
        self.snapshot().fragment_list()
    }

    /// The cells of the field with this name. `NotFound` if there is no such field.
    pub fn cells(&self, field: &str) -> Result<Arc<dyn Cells>> {
        self.open(self.index(field)?)
    }

    /// Reads the values of `cells` of a field with fixed-size cells; the values of one cell follow each
    /// other. Cells of a dense view are in row-major order, those of a sparse view in global order; a
    /// dimension of a dense view has each coordinate once. Null cells have values, too.
    ///
    /// `NotFound` if there is no such field; `InvalidInput` if it does not hold `T` or is var-sized, or if
    /// there are fewer cells.
    pub fn read<T: Value>(&self, field: &str, cells: Range<u64>) -> Result<Vec<T>> {
        let index = self.index(field)?;
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, format!("{field:?} {what}")));
        let datatype = self.fields().get(index).map(|field| field.datatype);
        if let Some(other) = datatype.filter(|datatype| !T::holds(*datatype)) {
            return refuse(format!("has datatype {}", other.name()));
        }
        let open = self.open(index)?;
        if open.cell_size().is_none() {
            return refuse("is var-sized".to_owned());
        }
        if cells.start > cells.end || cells.end > open.count() {
            return refuse(format!("has {} cells", open.count()));
        }
        let mut scratch = Vec::new();
        let bytes = open.values(cells, &mut scratch)?;
        Ok(bytes.chunks_exact(size_of::<T>()).map(T::of_bytes).collect())
    }

    fn index(&self, field: &str) -> Result<usize> {
        let schema = self.schema();
        let attribute = || Some(schema.dimensions.len() + schema.attribute_index(field.as_bytes())?);
        let found = schema.dimension_index(field.as_bytes()).or_else(attribute);
        found.ok_or_else(|| Error::not_found(format!("the array has no field {field:?}")))
    }
}

impl Fragment {
    /// The cells of the field with this name, in the order in which the fragment stores them. The internal
    /// fields `__timestamps`, `__delete_timestamps` and `__delete_condition_index` can be read, too.
    /// `NotFound` if the fragment does not store the field.
    pub fn field(&self, name: &str) -> Result<Arc<dyn Cells>> {
        let info = self.open()?;
        let attribute = info.schema.attribute_index(name.as_bytes());
        let attribute = attribute.and_then(|index| info.attribute(index));
        let others = info.fields.iter().skip(info.schema.attributes.len());
        let mut fields = attribute.into_iter().chain(others);
        let found = fields.find(|field| field.name == name.as_bytes() && info.stores(field));
        let field = found.ok_or_else(|| Error::not_found(format!("the fragment has no field {name:?}")))?;
        Ok(Arc::new(FragmentCells::new(info.clone(), field.clone())))
    }
}

/// A Rust number type that can hold one value of some TileDB datatypes.
pub trait Value: Sized + Copy {
    /// Whether the type holds values of `datatype`.
    fn holds(datatype: Datatype) -> bool;

    /// The number in the first `size_of::<Self>()` bytes, little-endian; zero if there are fewer bytes.
    fn of_bytes(bytes: &[u8]) -> Self;

    /// The number as little-endian bytes.
    fn bytes(self) -> Vec<u8>;
}

macro_rules! values {
    ($($number:ty: $kinds:pat,)*) => {$(
        impl Value for $number {
            fn holds(datatype: Datatype) -> bool {
                datatype.size() == size_of::<Self>() && matches!(datatype.kind(), $kinds)
            }

            fn of_bytes(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(Self::default(), |bytes| Self::from_le_bytes(*bytes))
            }

            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
        }
    )*};
}

values! {
    i8: Kind::Signed,
    i16: Kind::Signed,
    i32: Kind::Signed,
    i64: Kind::Signed | Kind::Datetime | Kind::Time,
    u8: Kind::Unsigned | Kind::Bool | Kind::Text | Kind::Bytes,
    u16: Kind::Unsigned | Kind::Text,
    u32: Kind::Unsigned | Kind::Text,
    u64: Kind::Unsigned,
    f32: Kind::Float,
    f64: Kind::Float,
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
}
