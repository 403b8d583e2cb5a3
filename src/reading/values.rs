//! Numbers of a view: a run of cells, or all of them with their shape.

use super::sealed::Sealed;
use crate::error::{Error, ErrorKind, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::fragment::Fragment;
use crate::fragment::cells::{Cells, CheckedCells, FragmentCells};
use crate::fragment::column::Content;
use crate::query::{Field, View};
use std::ops::Range;
use std::sync::Arc;

/// The most bytes that are held besides the caller's, unless one cell takes more.
const PIECE: u64 = 1 << 20;

impl View {
    /// The fragments that the view merges, oldest first.
    pub fn fragments(&self) -> Vec<Arc<Fragment>> {
        self.snapshot().fragment_list()
    }

    /// The cells of the field with this name.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such field. Also fails if the metadata of a fragment cannot be read.
    pub fn cells(&self, field: &str) -> Result<Arc<dyn Cells>> {
        let index = self.field_index(field)?;
        let shown = &self.fields()[index];
        Ok(Arc::new(CheckedCells {
            cells: self.open(index)?,
            contents: Content::all(shown.cell_val_num, shown.nullable),
        }))
    }

    /// Reads the values of `cells` of a field with fixed-size cells; the values of one cell follow each
    /// other. Cells of a dense view are in row-major order, those of a sparse view in global order; a
    /// dimension of a dense view has each coordinate once. Cells of a dense view that nobody wrote have the
    /// [fill value](Field::fill_value). Null cells have values, too: see [`View::read_cells`].
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such field; `InvalidInput` if it does not hold `T` or is var-sized, or if
    /// there are fewer cells; `LimitExceeded` if there is not enough memory. Also fails if what is stored
    /// cannot be read.
    pub fn read<T: Value>(&self, field: &str, cells: Range<u64>) -> Result<Vec<T>> {
        let numbers = self.numbers::<T>(field)?;
        let mut out = Vec::new();
        let count = numbers.count_of(&cells)?;
        out.try_reserve_exact(count).map_err(|_| too_many(count as u64))?;
        numbers.each_piece(cells, |piece| out.extend(of_bytes::<T>(piece)))?;
        Ok(out)
    }

    /// [`View::read`] into the caller's buffer, which has room for exactly these values.
    ///
    /// ```
    /// use tiledbfs::{Array, TimeRange};
    ///
    /// let view = Array::open("tests/data/sample/weather")?.at(TimeRange::ALL).open()?;
    /// // One day: six stations, two values a cell.
    /// let mut wind = [0.0; 12];
    /// view.read_into("wind", 0..6, &mut wind)?;
    /// assert_eq!(wind[..2], [7.93, 2.27]);
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`View::read`], and `InvalidInput` if the buffer is longer or shorter. What is in it then is
    /// undefined.
    pub fn read_into<T: Value>(&self, field: &str, cells: Range<u64>, out: &mut [T]) -> Result<()> {
        let numbers = self.numbers::<T>(field)?;
        let count = numbers.count_of(&cells)?;
        if count != out.len() {
            let message = format!(
                "the cells have {count} values, the buffer has room for {}",
                out.len()
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let mut at = 0;
        numbers.each_piece(cells, |piece| {
            for value in of_bytes(piece) {
                out[at] = value;
                at += 1;
            }
        })
    }

    /// All values of a field with fixed-size cells, with their shape: that of the view for an attribute of a
    /// dense one, and otherwise the number of cells. Cells of several values add an axis, the last.
    ///
    /// ```
    /// use tiledbfs::{Array, TimeRange};
    ///
    /// let array = Array::open("tests/data/sample/weather")?;
    /// let february = array.at(TimeRange::ALL).range("day", 32..=59).open()?;
    /// assert_eq!(february.values::<f32>("temperature")?.shape(), [28, 6]);
    /// assert_eq!(february.values::<f64>("wind")?.shape(), [28, 6, 2]);
    /// assert_eq!(february.values::<i32>("station")?.into_vec(), [0, 1, 2, 3, 4, 5]);
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`View::read`].
    pub fn values<T: Value>(&self, field: &str) -> Result<Values<T>> {
        let numbers = self.numbers::<T>(field)?;
        let cells = numbers.cells.count();
        let mut shape = match self.is_dense() && numbers.field.is_attribute() {
            true => self.shape()?,
            false => vec![cells],
        };
        if numbers.per_cell > 1 {
            shape.push(numbers.per_cell);
        }
        let fits = shape.iter().map(|length| usize::try_from(*length).ok());
        let shape = fits.collect::<Option<Vec<_>>>().ok_or_else(|| too_many(cells))?;
        let values = self.read(field, 0..cells)?;
        Ok(Values { shape, values })
    }

    /// [`View::values`] as an array of `ndarray`.
    ///
    /// ```
    /// use tiledbfs::{Array, TimeRange};
    ///
    /// let array = Array::open("tests/data/sample/weather")?;
    /// let february = array.at(TimeRange::ALL).range("day", 32..=59).open()?;
    /// let temperatures = february.ndarray::<f32>("temperature")?;
    /// assert_eq!(temperatures.shape(), [28, 6]);
    /// let means = temperatures.mean_axis(ndarray::Axis(0));
    /// assert_eq!(means.map(|means| means.len()), Some(6));
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`View::read`].
    #[cfg(feature = "ndarray")]
    pub fn ndarray<T: Value>(&self, field: &str) -> Result<ndarray::ArrayD<T>> {
        let Values { shape, values } = self.values(field)?;
        ndarray::ArrayD::from_shape_vec(shape, values).map_err(|e| Error::internal(e.to_string()))
    }

    /// The index of a field among [`View::fields`]; `NotFound` if there is none.
    pub(super) fn field_index(&self, field: &str) -> Result<usize> {
        let schema = self.schema();
        let attribute = || Some(schema.dimensions.len() + schema.attribute_index(field.as_bytes())?);
        let found = schema.dimension_index(field.as_bytes()).or_else(attribute);
        found.ok_or_else(|| Error::not_found(format!("the array has no field {field:?}")))
    }

    /// The cells of a field that hold values of `T`; the errors are those of [`View::read`].
    fn numbers<T: Value>(&self, field: &str) -> Result<Numbers<'_>> {
        let index = self.field_index(field)?;
        let shown = &self.fields()[index];
        if !T::holds(shown.datatype) {
            return Err(refused(shown, &format!("has datatype {}", shown.datatype.name())));
        }
        let CellValNum::Fixed(per_cell) = shown.cell_val_num else {
            return Err(refused(shown, "is var-sized"));
        };
        Ok(Numbers {
            field: shown,
            cells: self.open(index)?,
            per_cell: per_cell.into(),
        })
    }
}

/// `InvalidInput`: a field is not as the caller thinks.
pub(super) fn refused(field: &Field, what: &str) -> Error {
    let name = String::from_utf8_lossy(&field.name);
    Error::new(ErrorKind::InvalidInput, format!("{name:?} {what}"))
}

/// `InvalidInput` if a field does not have these cells.
pub(super) fn check_cells(field: &Field, cells: &Range<u64>, count: u64) -> Result<()> {
    match cells.start <= cells.end && cells.end <= count {
        true => Ok(()),
        false => Err(refused(field, &format!("has {count} cells"))),
    }
}

fn too_many(values: u64) -> Error {
    Error::limit(format!("there is no memory for {values} values"))
}

/// Little-endian numbers.
pub(super) fn of_bytes<T: Value>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(T::of_bytes)
}

/// The cells of a field of numbers.
struct Numbers<'a> {
    field: &'a Field,
    cells: Arc<dyn Cells>,
    /// Values per cell.
    per_cell: u64,
}

impl Numbers<'_> {
    /// The number of values of some cells; `InvalidInput` if there are no such cells.
    fn count_of(&self, cells: &Range<u64>) -> Result<usize> {
        check_cells(self.field, cells, self.cells.count())?;
        let values = (cells.end - cells.start).checked_mul(self.per_cell);
        let values = values.and_then(|values| usize::try_from(values).ok());
        values.ok_or_else(|| too_many(cells.end - cells.start))
    }

    /// Calls `take` with the bytes of some cells, in order, piece by piece.
    fn each_piece(&self, cells: Range<u64>, mut take: impl FnMut(&[u8])) -> Result<()> {
        let step = (PIECE / (self.per_cell * self.field.datatype.size() as u64)).max(1);
        let mut start = cells.start;
        while start < cells.end {
            let end = start + step.min(cells.end - start);
            take(&self.cells.values(start..end)?);
            start = end;
        }
        Ok(())
    }
}

/// All values of a field with their shape, the last axis varying fastest. Made by [`View::values`].
#[derive(Debug, Clone, PartialEq)]
pub struct Values<T> {
    shape: Vec<usize>,
    values: Vec<T>,
}

impl<T> Values<T> {
    /// The number of values along each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values in row-major order.
    pub fn as_slice(&self) -> &[T] {
        &self.values
    }

    /// The values in row-major order, without their shape.
    pub fn into_vec(self) -> Vec<T> {
        self.values
    }
}

impl Fragment {
    /// The cells of the field with this name, in the order in which the fragment stores them. The internal
    /// fields `__timestamps`, `__delete_timestamps` and `__delete_condition_index` can be read, too.
    ///
    /// # Errors
    ///
    /// `NotFound` if the fragment does not store the field. Also fails if its metadata cannot be read.
    pub fn field(&self, name: &str) -> Result<Arc<dyn Cells>> {
        let info = self.open()?;
        let attribute = info.schema.attribute_index(name.as_bytes());
        let attribute = attribute.and_then(|index| info.attribute(index));
        let others = info.fields.iter().skip(info.schema.attributes.len());
        let mut fields = attribute.into_iter().chain(others);
        let found = fields.find(|field| field.name == name.as_bytes() && info.stores(field));
        let field = found.ok_or_else(|| Error::not_found(format!("the fragment has no field {name:?}")))?;
        Ok(Arc::new(CheckedCells {
            contents: Content::all(field.cell_val_num, field.nullable),
            cells: Arc::new(FragmentCells::new(info.clone(), field.clone())),
        }))
    }
}

/// A Rust number type that can hold one value of some TileDB datatypes: those of its size that are integers
/// of its sign or floats. Dates and times are an `i64`; text is units of `u8`, `u16` or `u32`; BOOL and
/// opaque bytes are `u8`.
pub trait Value: Sealed + Copy {
    /// Whether the type holds values of `datatype`.
    fn holds(datatype: Datatype) -> bool;

    /// The number in `bytes`, little-endian.
    ///
    /// # Panics
    ///
    /// If there are not exactly `size_of::<Self>()` bytes.
    fn of_bytes(bytes: &[u8]) -> Self;

    /// The number as little-endian bytes.
    fn bytes(self) -> Vec<u8>;

    /// The greatest number below this one; None for floats, and if there is none.
    fn before(self) -> Option<Self>;
}

macro_rules! values {
    ($($number:ty: $kinds:pat, $before:expr;)*) => {$(
        impl Sealed for $number {}

        impl Value for $number {
            fn holds(datatype: Datatype) -> bool {
                datatype.size() == size_of::<Self>() && matches!(datatype.kind(), $kinds)
            }

            fn of_bytes(bytes: &[u8]) -> Self {
                let mut whole = [0; size_of::<Self>()];
                whole.copy_from_slice(bytes);
                Self::from_le_bytes(whole)
            }

            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }

            fn before(self) -> Option<Self> {
                $before(self)
            }
        }
    )*};
}

values! {
    i8: Kind::Signed, |n: i8| n.checked_sub(1);
    i16: Kind::Signed, |n: i16| n.checked_sub(1);
    i32: Kind::Signed, |n: i32| n.checked_sub(1);
    i64: Kind::Signed | Kind::Datetime | Kind::Time, |n: i64| n.checked_sub(1);
    u8: Kind::Unsigned | Kind::Bool | Kind::Text | Kind::Bytes, |n: u8| n.checked_sub(1);
    u16: Kind::Unsigned | Kind::Text, |n: u16| n.checked_sub(1);
    u32: Kind::Unsigned | Kind::Text, |n: u32| n.checked_sub(1);
    u64: Kind::Unsigned, |n: u64| n.checked_sub(1);
    f32: Kind::Float, |_| None;
    f64: Kind::Float, |_| None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, Output, TimeRange};

    #[test]
    fn a_buffer_gets_what_a_read_returns() {
        let view = Array::open("tests/data/sample/weather")
            .unwrap()
            .at(TimeRange::ALL);
        let view = view.range("day", 40..=70).open().unwrap();
        let wind = view.values::<f64>("wind").unwrap();
        assert_eq!(
            (wind.shape(), wind.as_slice().len()),
            (&[31, 6, 2][..], 31 * 6 * 2)
        );
        let mut out = vec![f64::NAN; 10];
        view.read_into("wind", 7..12, &mut out).unwrap();
        assert_eq!(out, wind.as_slice()[14..24]);
        assert_eq!(out, view.read::<f64>("wind", 7..12).unwrap());
        let reversed = Range { start: 12, end: 7 };
        for cells in [7..11, 7..13, reversed, 182..187] {
            let refused = view.read_into("wind", cells, &mut out);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let whole = view.ndarray::<f64>("wind").unwrap();
        assert_eq!(whole[[1, 1, 0]], out[0]);
        let sparse = Array::open("tests/data/sample/lightning").unwrap();
        let sparse = sparse.at(TimeRange::ALL).open().unwrap();
        assert_eq!(sparse.values::<f64>("lat").unwrap().shape(), [1000]);
    }

    #[test]
    fn bytes_that_a_field_does_not_have_are_refused() {
        let view = Array::open("tests/data/sample/weather")
            .unwrap()
            .at(TimeRange::ALL)
            .open()
            .unwrap();
        let stored = view.fragments();
        let reversed = Range { start: 3, end: 1 };
        let refused = |error: Error| assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        for (fixed, note, axis) in [
            (
                view.cells("temperature"),
                view.cells("note"),
                Some(view.cells("day")),
            ),
            (stored[0].field("temperature"), stored[0].field("note"), None),
        ] {
            let (fixed, note) = (fixed.unwrap(), note.unwrap());
            let beyond = fixed.count()..fixed.count() + 1;
            for cells in [beyond, reversed.clone(), 0..u64::MAX, u64::MAX..u64::MAX] {
                refused(fixed.values(cells.clone()).err().unwrap());
                refused(note.validity(cells.clone()).err().unwrap());
                refused(note.starts(cells.clone()).unwrap_err());
                refused(note.var_values(cells).unwrap_err());
            }
            refused(note.values(0..1).err().unwrap());
            for cells in [Some(fixed), axis.map(Result::unwrap)].into_iter().flatten() {
                refused(cells.starts(0..1).unwrap_err());
                refused(cells.var_values(0..1).unwrap_err());
                refused(cells.validity(0..1).err().unwrap());
                refused(cells.len(Content::Offsets).unwrap_err());
                let read = Output::of(|out| cells.read(Content::Data, reversed.clone(), out));
                refused(read.err().unwrap());
            }
            assert_eq!(note.validity(0..2).unwrap().len(), 2);
            assert_eq!(note.starts(note.count()..note.count()).unwrap().len(), 1);
        }
    }

    #[test]
    fn long_reads_are_joined_of_pieces() {
        let view = Array::open("tests/data/sample/weather")
            .unwrap()
            .at(TimeRange::ALL);
        let view = view.open().unwrap();
        let numbers = view.numbers::<u8>("sky").unwrap();
        let mut pieces = Vec::new();
        numbers
            .each_piece(1..2190, |piece| pieces.push(piece.to_vec()))
            .unwrap();
        assert_eq!(pieces.concat(), view.read::<u8>("sky", 1..2190).unwrap());
    }
}
