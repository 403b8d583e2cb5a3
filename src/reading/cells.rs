//! Cells as Rust values: numbers, lists of numbers, text; each of them may be null.

use super::sealed::Sealed;
use super::values::{Value, check_cells, of_bytes, refused};
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::enumeration::Enumeration;
use crate::fragment::cells::Cells;
use crate::query::table::{enumeration, enumeration_index};
use crate::query::{Field, View};
use std::ops::Range;
use std::sync::Arc;

/// The most cells that are held as bytes at a time.
const PIECE: u64 = 1 << 16;

impl<T: Value> Sealed for Vec<T> {}
impl Sealed for String {}
impl<C: Cell> Sealed for Option<C> {}

/// What a cell is in Rust:
///
/// | type | cells |
/// |---|---|
/// | a number that is a [`Value`] | one value of such a datatype |
/// | `Vec` of such a number | any number of values, fixed or not |
/// | `String` | text in any encoding; of fixed-size text without the NULs at its end; CHAR that is UTF-8 |
/// | `Option` of one of these | the same of a field that may be null |
///
/// CHAR holds any bytes, and mostly 0x80 where nobody wrote, which is not UTF-8: `Vec<u8>` is always right.
pub trait Cell: Sealed + Sized {
    /// Why cells of a field are not of this type; None if they are.
    fn refusal(field: &Field) -> Option<&'static str>;

    /// A cell of a type that is not refused, from its stored bytes. None if they are no text, or no whole
    /// number of values, as a damaged file may say.
    fn of_bytes(datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) -> Option<Self>;

    /// What a null cell is; None if this type has no such value.
    fn null() -> Option<Self> {
        None
    }
}

impl<T: Value> Cell for T {
    fn refusal(field: &Field) -> Option<&'static str> {
        let fits = T::holds(field.datatype) && field.cell_val_num == CellValNum::Fixed(1);
        (!fits).then_some("does not have one such number in each cell")
    }

    fn of_bytes(_: Datatype, _: CellValNum, bytes: &[u8]) -> Option<Self> {
        Some(T::of_bytes(bytes))
    }
}

impl<T: Value> Cell for Vec<T> {
    fn refusal(field: &Field) -> Option<&'static str> {
        (!T::holds(field.datatype)).then_some("does not have such numbers")
    }

    fn of_bytes(_: Datatype, _: CellValNum, bytes: &[u8]) -> Option<Self> {
        bytes
            .len()
            .is_multiple_of(size_of::<T>())
            .then(|| of_bytes(bytes).collect())
    }
}

impl Cell for String {
    fn refusal(field: &Field) -> Option<&'static str> {
        (field.datatype.kind() != Kind::Text).then_some("is not text")
    }

    fn of_bytes(datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) -> Option<Self> {
        let mut text = datatype.text(bytes)?;
        if !cell_val_num.is_var() {
            text.truncate(text.trim_end_matches('\0').len());
        }
        Some(text)
    }
}

impl<C: Cell> Cell for Option<C> {
    fn refusal(field: &Field) -> Option<&'static str> {
        C::refusal(field)
    }

    fn of_bytes(datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) -> Option<Self> {
        C::of_bytes(datatype, cell_val_num, bytes).map(Some)
    }

    fn null() -> Option<Self> {
        Some(None)
    }
}

impl View {
    /// Reads `cells` of a field, each as a Rust value, in the order of [`View::read`].
    ///
    /// ```
    /// use tiledbfs::{Array, TimeRange};
    ///
    /// let weather = Array::open("tests/data/sample/weather")?.at(TimeRange::ALL).open()?;
    /// let notes: Vec<Option<String>> = weather.read_cells("note", 0..6)?;
    /// assert_eq!(notes[0].as_deref(), Some("fog"));
    ///
    /// let rain: Vec<Option<u16>> = weather.read_cells("rain", 0..6)?;
    /// assert_eq!(rain[0], None);
    ///
    /// let wind: Vec<Vec<f64>> = weather.read_cells("wind", 0..6)?;
    /// assert_eq!(wind[0], [7.93, 2.27]);
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such field; `InvalidInput` if its cells are not such values, or may be null
    /// and `C` is no `Option`, or if there are fewer cells, or for a `String` of CHAR that is not UTF-8;
    /// `Corrupt` for other text that is none and for a part of a value. Also fails if what is stored cannot
    /// be read.
    pub fn read_cells<C: Cell>(&self, field: &str, cells: Range<u64>) -> Result<Vec<C>> {
        let index = self.field_index(field)?;
        let shown = &self.fields()[index];
        if let Some(what) = C::refusal(shown) {
            return Err(refused(shown, what));
        }
        if shown.nullable && C::null().is_none() {
            return Err(refused(shown, "may be null, so its cells are an Option"));
        }
        let mut out = Vec::new();
        self.each_cell(index, cells, |number, stored| {
            let cell = match stored {
                Some(bytes) => C::of_bytes(shown.datatype, shown.cell_val_num, bytes),
                None => C::null(),
            };
            out.push(cell.ok_or_else(|| not_valid(shown, shown.datatype, number))?);
            Ok(())
        })?;
        Ok(out)
    }

    /// The enumeration whose values the integers of a field stand for; None if it has none.
    ///
    /// ```
    /// use tiledbfs::{Array, TimeRange};
    ///
    /// let weather = Array::open("tests/data/sample/weather")?.at(TimeRange::ALL).open()?;
    /// let sky = weather.enumeration("sky")?.expect("the sky is one of several");
    /// assert_eq!((sky.name_str(), sky.value(0)), (Some("sky"), Some(&b"clear"[..])));
    /// assert_eq!(weather.schema().enumerations[0].name_str(), sky.name_str());
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such field; fails if the enumeration cannot be read.
    pub fn enumeration(&self, field: &str) -> Result<Option<Arc<Enumeration>>> {
        enumeration(self, &self.fields()[self.field_index(field)?])
    }

    /// Reads `cells` of a field with an [enumeration](View::enumeration), each as the value that it stands
    /// for: None for null, and for an index without a value.
    ///
    /// ```
    /// use tiledbfs::{Array, TimeRange};
    ///
    /// let weather = Array::open("tests/data/sample/weather")?.at(TimeRange::ALL).open()?;
    /// let sky: Vec<Option<String>> = weather.read_enumerated("sky", 0..2)?;
    /// assert_eq!(sky[0].as_deref(), Some("rain"));
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such field; `InvalidInput` if it has no enumeration, or one of other values,
    /// or for a `String` of CHAR that is not UTF-8; `Corrupt` for other text that is none and for a part of a
    /// value. Also fails if what is stored cannot be read.
    pub fn read_enumerated<C: Cell>(&self, field: &str, cells: Range<u64>) -> Result<Vec<Option<C>>> {
        let index = self.field_index(field)?;
        let shown = &self.fields()[index];
        let labels = enumeration(self, shown)?.ok_or_else(|| refused(shown, "has no enumeration"))?;
        let of_labels = Field {
            datatype: labels.datatype,
            cell_val_num: labels.cell_val_num,
            ..shown.clone()
        };
        if let Some(what) = C::refusal(&of_labels) {
            return Err(refused(shown, &format!("has an enumeration that {what}")));
        }
        let mut out = Vec::new();
        self.each_cell(index, cells, |number, stored| {
            let label = stored
                .and_then(|bytes| enumeration_index(shown.datatype, bytes))
                .and_then(|index| labels.value(index));
            let of_bytes = |bytes| C::of_bytes(labels.datatype, labels.cell_val_num, bytes);
            out.push(match label {
                None => None,
                Some(bytes) => {
                    Some(of_bytes(bytes).ok_or_else(|| not_valid(shown, labels.datatype, number))?)
                }
            });
            Ok(())
        })?;
        Ok(out)
    }

    /// Calls `take` with the number and the bytes of each of `cells`, without bytes if it is null.
    fn each_cell(
        &self,
        index: usize,
        cells: Range<u64>,
        mut take: impl FnMut(u64, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let shown = &self.fields()[index];
        let open = self.open(index)?;
        check_cells(shown, &cells, open.count())?;
        let mut start = cells.start;
        while start < cells.end {
            let piece = start..start + PIECE.min(cells.end - start);
            let (starts, values) = run(&*open, piece.clone())?;
            let valid = match shown.nullable {
                true => Some(open.validity(piece.clone())?),
                false => None,
            };
            for (place, number) in piece.clone().enumerate() {
                let bytes = &values[starts[place] as usize..starts[place + 1] as usize];
                let null = valid.as_ref().is_some_and(|valid| valid[place] == 0);
                take(number, (!null).then_some(bytes))?;
            }
            start = piece.end;
        }
        Ok(())
    }
}

/// The start of each of some cells in the bytes of all of them, and the end of the last; and these bytes.
fn run(open: &dyn Cells, cells: Range<u64>) -> Result<(Vec<u64>, Vec<u8>)> {
    match open.cell_size() {
        None => open.var_values(cells),
        Some(size) => {
            let starts = (0..=cells.end - cells.start).map(|cell| cell * size);
            let values = open.values(cells.clone())?;
            Ok((starts.collect(), values.into()))
        }
    }
}

fn not_valid(field: &Field, datatype: Datatype, cell: u64) -> Error {
    if datatype == Datatype::Char {
        let what = format!("has bytes in cell {cell} that are not UTF-8, as CHAR may: read it as Vec<u8>");
        return refused(field, &what);
    }
    let name = String::from_utf8_lossy(&field.name);
    Error::corrupt(format!(
        "cell {cell} of {name:?} is not valid {}",
        datatype.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, ErrorKind, TimeRange};

    fn open(name: &str) -> View {
        let array = Array::open(format!("tests/data/sample/{name}")).unwrap();
        array.at(TimeRange::ALL).open().unwrap()
    }

    #[test]
    fn nulls_and_texts_are_those_of_the_columns() {
        let view = open("lightning");
        let cells = 0..view.count().unwrap();
        let current: Vec<Option<i32>> = view.read_cells("current", cells.clone()).unwrap();
        let stored: Vec<i32> = view.read("current", cells.clone()).unwrap();
        let column = view.cells("current").unwrap();
        let valid = column.validity(cells.clone()).unwrap();
        let expected = stored
            .iter()
            .zip(&*valid)
            .map(|(n, valid)| (*valid != 0).then_some(*n));
        assert_eq!(current, Vec::from_iter(expected));
        assert!(current.contains(&None) && current.iter().any(Option::is_some));
        let networks: Vec<String> = view.read_cells("network", cells.clone()).unwrap();
        let (starts, bytes) = view.cells("network").unwrap().var_values(cells).unwrap();
        for (place, network) in networks.iter().enumerate() {
            let range = starts[place] as usize..starts[place + 1] as usize;
            assert_eq!(network.as_bytes(), &bytes[range]);
        }
    }

    #[test]
    fn cells_of_another_type_are_refused() {
        fn refused<C: Cell>(field: &str) -> ErrorKind {
            open("weather").read_cells::<C>(field, 0..1).err().unwrap().kind()
        }
        assert_eq!(refused::<u16>("rain"), ErrorKind::InvalidInput, "nullable");
        assert_eq!(refused::<f64>("wind"), ErrorKind::InvalidInput, "two values");
        assert_eq!(refused::<String>("wind"), ErrorKind::InvalidInput);
        assert_eq!(refused::<Vec<f32>>("wind"), ErrorKind::InvalidInput);
        assert_eq!(refused::<u8>("note"), ErrorKind::InvalidInput, "var-sized");
        assert_eq!(refused::<u8>("none"), ErrorKind::NotFound);
        let view = open("weather");
        assert!(view.read_cells::<u8>("sky", 2190..2191).is_err());
        assert!(view.read_enumerated::<f32>("sky", 0..1).is_err());
        assert!(view.read_enumerated::<String>("rain", 0..1).is_err());
        assert!(view.enumeration("rain").unwrap().is_none());
    }

    /// CHAR may hold any bytes, and does where nobody wrote: the array is not damaged.
    #[test]
    fn char_that_is_no_text_is_read_as_bytes() {
        let array = Array::open("tests/data/versions/v04/dense").unwrap();
        let whole = array.at(TimeRange::ALL).range("x", 1..=10).open().unwrap();
        let error = whole.read_cells::<String>("s", 0..1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let bytes: Vec<Vec<u8>> = whole.read_cells("s", 0..1).unwrap();
        assert_eq!(bytes, [[0x80]]);
        let written = array.at(TimeRange::ALL).open().unwrap();
        let text: Vec<String> = written.read_cells("s", 0..1).unwrap();
        assert_eq!(text, ["a longer cell of text"]);
    }

    #[test]
    fn a_part_of_a_value_is_no_cell() {
        let cell = |bytes: &[u8]| Vec::<i32>::of_bytes(Datatype::Int32, CellValNum::Var, bytes);
        assert_eq!(cell(&[]), Some(vec![]));
        assert_eq!(cell(&[1, 0, 0, 0, 2, 0, 0, 0]), Some(vec![1, 2]));
        assert_eq!(cell(&[1, 0, 0, 0, 2]), None);
        assert_eq!(cell(&[1]), None);
    }

    #[test]
    fn an_index_stands_for_its_value() {
        let view = open("weather");
        let cells = 0..view.count().unwrap();
        let labels = view.enumeration("sky").unwrap().unwrap();
        let indexes: Vec<u8> = view.read("sky", cells.clone()).unwrap();
        let sky: Vec<Option<String>> = view.read_enumerated("sky", cells).unwrap();
        for (index, shown) in indexes.iter().zip(&sky) {
            let label = labels.value(usize::from(*index));
            assert_eq!(shown.as_ref().map(String::as_bytes), label);
        }
        assert!(sky.iter().any(Option::is_some));
    }
}
