//! Values of any datatype as JSON: numbers as numbers, text as a string, other bytes as `{"hex": "…"}`.

use super::Json;
use super::render::write_inline;
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::range::Range;
use crate::format::scalar::Scalar;
use crate::format::schema::Dimension;
use crate::printable;
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// Bytes as `{"hex": "…"}`, in lower case.
pub fn hex(bytes: &[u8]) -> Json {
    cell(Datatype::Blob, CellValNum::Var, bytes)
}

/// A name, path or URI: a string where it is UTF-8, else hexadecimal.
pub fn name(bytes: &[u8]) -> Json {
    cell(Datatype::StringUtf8, CellValNum::Var, bytes)
}

/// The number of values a cell: an integer or `"var"`.
pub fn cell_val_num(cell_val_num: CellValNum) -> Json {
    match cell_val_num {
        CellValNum::Fixed(n) => n.into(),
        CellValNum::Var => "var".into(),
    }
}

/// A cell: its type and its little-endian bytes. A number is written as a scalar if cells hold one value,
/// else as an array. Text is one string and opaque bytes are one hexadecimal string, however many values they
/// are. Bytes of a wrong length and invalid text are hexadecimal, too. JSON has no NaN and no infinities:
/// they are the strings `nan`, `inf` and `-inf`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell<'a> {
    datatype: Datatype,
    cell_val_num: CellValNum,
    bytes: Cow<'a, [u8]>,
}

/// What a cell is written as.
enum Form<'a> {
    Hex,
    Text(Cow<'a, str>),
    Array,
    Scalar(Scalar),
}

impl<'a> Cell<'a> {
    /// A cell of `cell_val_num` values.
    pub fn new(datatype: Datatype, cell_val_num: CellValNum, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Cell {
            datatype,
            cell_val_num,
            bytes: bytes.into(),
        }
    }

    fn fits(&self) -> bool {
        match self.cell_val_num.cell_size(self.datatype) {
            Some(size) => self.bytes.len() as u64 == size,
            None => self.bytes.len().is_multiple_of(self.datatype.size()),
        }
    }

    /// Whether it is written as a scalar or hexadecimal bytes. Arrays of these are written on one line.
    pub fn is_atom(&self) -> bool {
        let one = self.cell_val_num == CellValNum::Fixed(1);
        one || matches!(self.datatype.kind(), Kind::Text | Kind::Bytes) || !self.fits()
    }

    /// The number of elements if it is written as an array.
    pub fn array_len(&self) -> Option<usize> {
        (!self.is_atom()).then(|| self.bytes.len() / self.datatype.size().max(1))
    }

    /// Its bytes in hexadecimal if they are written so.
    pub fn hex(&self) -> Option<String> {
        matches!(self.form(), Form::Hex).then(|| printable::hex(&self.bytes))
    }

    fn form(&self) -> Form<'_> {
        let text = match self.datatype.kind() {
            Kind::Bytes => None,
            _ if !self.fits() => None,
            Kind::Text if self.datatype.size() == 1 => {
                std::str::from_utf8(&self.bytes).ok().map(Cow::Borrowed)
            }
            Kind::Text => self.datatype.text(&self.bytes).map(Cow::Owned),
            _ if self.is_atom() => {
                return Scalar::read(self.datatype, &self.bytes).map_or(Form::Hex, Form::Scalar);
            }
            _ => return Form::Array,
        };
        text.map_or(Form::Hex, Form::Text)
    }
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (datatype, bytes) = (self.datatype, &*self.bytes);
        match self.form() {
            Form::Hex => serializer.collect_map([("hex", printable::hex(bytes))]),
            Form::Text(text) => serializer.serialize_str(&text),
            Form::Array => {
                let values = bytes.chunks(datatype.size().max(1));
                serializer.collect_seq(values.map(|bytes| Cell::new(datatype, CellValNum::Fixed(1), bytes)))
            }
            Form::Scalar(Scalar::Unsigned(bit @ 0..=1)) if datatype == Datatype::Bool => {
                serializer.serialize_bool(bit == 1)
            }
            Form::Scalar(Scalar::Unsigned(number)) => serializer.serialize_u64(number),
            Form::Scalar(Scalar::Signed(number)) => serializer.serialize_i64(number),
            Form::Scalar(float) => match float.float() {
                number if number.is_finite() => serializer.serialize_f64(number),
                number if number.is_nan() => serializer.serialize_str("nan"),
                number if number > 0.0 => serializer.serialize_str("inf"),
                _ => serializer.serialize_str("-inf"),
            },
        }
    }
}

/// A cell from its little-endian bytes.
pub fn cell(datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) -> Json {
    Json::Cell(Cell::new(datatype, cell_val_num, bytes.to_vec()))
}

/// As [`cell`], for a cell of a single value.
pub fn element(datatype: Datatype, bytes: &[u8]) -> Json {
    cell(datatype, CellValNum::Fixed(1), bytes)
}

/// Appends a cell on the current line.
pub fn write_cell(out: &mut Vec<u8>, datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) {
    write_inline(out, &Cell::new(datatype, cell_val_num, bytes));
}

/// What [`hex`] puts before and after the digits.
pub const HEX: (&[u8], &[u8]) = (b"{\"hex\": \"", b"\"}");

/// Splits `data`: part `i` starts at byte `starts[i]` and ends where the next one starts. The last part ends
/// with the data. A part that exceeds the data is None.
pub fn split<'a>(starts: &'a [u64], data: &'a [u8]) -> impl Iterator<Item = Option<&'a [u8]>> {
    let ends = starts.iter().skip(1).copied().chain([data.len() as u64]);
    starts.iter().zip(ends).map(|(&start, end)| {
        let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
        data.get(start..end)
    })
}

/// A range as `[lo, hi]`.
pub fn range(datatype: Datatype, cell_val_num: CellValNum, range: &Range) -> Json {
    [&range.lo, &range.hi]
        .map(|bytes| cell(datatype, cell_val_num, bytes))
        .into()
}

/// A box as `[[lo, hi], …]`, with a range for each dimension. Surplus ranges have hexadecimal bounds.
pub fn rect(dimensions: &[Dimension], rect: &[Range]) -> Json {
    rect.iter()
        .enumerate()
        .map(|(i, bounds)| match dimensions.get(i) {
            Some(dimension) => range(dimension.datatype, dimension.cell_val_num, bounds),
            None => Json::from([hex(&bounds.lo), hex(&bounds.hi)]),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::render;
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_exact() {
        use Datatype::*;
        assert_eq!(element(Int8, &[0x80]), json!(-128));
        assert_eq!(element(Uint8, &[0x80]), json!(128));
        assert_eq!(element(Int16, &[0xFE, 0xFF]), json!(-2));
        assert_eq!(element(Int32, &i32::MIN.to_le_bytes()), json!(-2147483648_i64));
        assert_eq!(element(Int64, &i64::MIN.to_le_bytes()), json!(i64::MIN));
        assert_eq!(
            element(Uint64, &u64::MAX.to_le_bytes()).to_string(),
            "18446744073709551615"
        );
        assert_eq!(
            element(Float32, &0.1_f32.to_le_bytes()).to_string(),
            "0.10000000149011612"
        );
        assert_eq!(element(Float64, &0.1_f64.to_le_bytes()).to_string(), "0.1");
        assert_eq!(element(Float64, &2_f64.to_le_bytes()).to_string(), "2.0");
        assert_eq!(element(Float64, &f64::NAN.to_le_bytes()), json!("nan"));
        assert_eq!(element(Float32, &f32::INFINITY.to_le_bytes()), json!("inf"));
        assert_eq!(element(Float32, &f32::NEG_INFINITY.to_le_bytes()), json!("-inf"));
        assert_eq!(element(DatetimeNs, &(-5_i64).to_le_bytes()), json!(-5));
        assert_eq!(element(TimeAs, &7_i64.to_le_bytes()), json!(7));
    }

    #[test]
    fn booleans_of_other_values_are_integers() {
        let booleans = cell(Datatype::Bool, CellValNum::Var, &[0, 1, 2]);
        assert_eq!(booleans, json!([false, true, 2]));
    }

    #[test]
    fn text_is_a_string_where_it_is_valid() {
        use Datatype::*;
        let var = |datatype, bytes: &[u8]| cell(datatype, CellValNum::Var, bytes);
        assert_eq!(var(StringUtf8, "grün".as_bytes()), json!("grün"));
        assert_eq!(var(StringAscii, b""), json!(""));
        assert_eq!(var(GeomWkt, b"POINT (1 2)"), json!("POINT (1 2)"));
        assert_eq!(var(Char, &[0x80]), json!({"hex": "80"}));
        assert_eq!(var(StringUtf16, &[0x3D, 0xD8, 0x00, 0xDE]), json!("😀"));
        assert_eq!(var(StringUtf16, &[0x3D, 0xD8]), json!({"hex": "3dd8"}));
        assert_eq!(var(StringUcs2, b"a\0b\0"), json!("ab"));
        assert_eq!(var(StringUcs2, b"a\0b"), json!({"hex": "610062"}));
        assert_eq!(var(StringUtf32, &[0, 0xF6, 1, 0]), json!("\u{1F600}"));
        assert_eq!(var(StringUcs4, &[0, 0, 0x11, 0]), json!({"hex": "00001100"}));
        assert_eq!(cell(Char, CellValNum::Fixed(3), b"abc"), json!("abc"));
        assert_eq!(cell(Char, CellValNum::Fixed(3), b"ab"), json!({"hex": "6162"}));
        assert_eq!(cell(Char, CellValNum::Fixed(1), b"a"), json!("a"));
    }

    #[test]
    fn opaque_bytes_are_hexadecimal() {
        use Datatype::*;
        for datatype in [Any, Blob, GeomWkb] {
            assert_eq!(
                cell(datatype, CellValNum::Var, b"ab\xFF"),
                json!({"hex": "6162ff"})
            );
            assert_eq!(cell(datatype, CellValNum::Fixed(1), b"a"), json!({"hex": "61"}));
        }
    }

    #[test]
    fn a_cell_of_several_values_is_an_array() {
        let one = CellValNum::Fixed(1);
        assert_eq!(cell(Datatype::Int16, one, &[1, 0]), json!(1));
        assert_eq!(cell(Datatype::Int16, one, &[1]), json!({"hex": "01"}));
        assert_eq!(cell(Datatype::Int16, one, &[]), json!({"hex": ""}));
        assert_eq!(
            cell(Datatype::Int16, CellValNum::Fixed(2), &[1, 0, 2, 0]),
            json!([1, 2])
        );
        assert_eq!(
            cell(Datatype::Int16, CellValNum::Fixed(2), &[1, 0]),
            json!({"hex": "0100"})
        );
        assert_eq!(cell(Datatype::Int16, CellValNum::Var, &[1, 0]), json!([1]));
        assert_eq!(cell(Datatype::Int16, CellValNum::Var, &[]), json!([]));
        assert_eq!(
            cell(Datatype::Int16, CellValNum::Var, &[1, 0, 2]),
            json!({"hex": "010002"})
        );
    }

    #[test]
    fn a_cell_is_laid_out_as_the_array_of_its_values() {
        for len in 0..5 {
            let array = cell(Datatype::Int16, CellValNum::Var, &[1, 0].repeat(len));
            assert_eq!(array, json!(vec![1; len]));
            let values = Json::from(json!(vec![1; len]));
            for (array, values) in [
                (&array, &values),
                (&[array.clone()].into(), &[values.clone()].into()),
            ] {
                let lists =
                    [array, values].map(|value| render(&Json::from([value.clone(), hex(&[1]), 5.into()])));
                assert_eq!(lists[0], lists[1], "{len}");
            }
        }
    }

    #[test]
    fn cells_begin_where_the_starts_say() {
        let parts = |starts: &[u64], data| -> Json {
            let cell = |bytes| cell(Datatype::StringUtf8, CellValNum::Var, bytes);
            split(starts, data).map(|bytes| bytes.map(cell)).collect()
        };
        assert_eq!(parts(&[0, 3, 3], b"redblue"), json!(["red", "", "blue"]));
        assert_eq!(parts(&[0, 9, 1], b"abc"), json!([null, null, "bc"]));
        assert_eq!(parts(&[], b"abc"), json!([]));
    }

    #[test]
    fn ranges() {
        let bounds = Range {
            lo: vec![1, 0],
            hi: vec![0xFF, 0xFF],
        };
        assert_eq!(
            range(Datatype::Int16, CellValNum::Fixed(1), &bounds),
            json!([1, -1])
        );
        assert_eq!(
            range(Datatype::StringAscii, CellValNum::Var, &bounds),
            json!(["\u{1}\0", {"hex": "ffff"}])
        );
        assert_eq!(rect(&[], &[bounds]), json!([[{"hex": "0100"}, {"hex": "ffff"}]]));
    }

    #[test]
    fn names_and_counts() {
        assert_eq!(name(b"a"), json!("a"));
        assert_eq!(name(b"\xFF"), json!({"hex": "ff"}));
        assert_eq!(cell_val_num(CellValNum::Fixed(3)), json!(3));
        assert_eq!(cell_val_num(CellValNum::Var), json!("var"));
    }
}
