//! Values of any datatype as JSON: numbers as numbers, text as a string, other bytes as `{"hex": "…"}`.

use super::render;
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::range::Range;
use crate::format::schema::Dimension;
use serde_json::{Map, Value};

/// Any bytes as `{"hex": "…"}`, in lower case.
pub fn hex(bytes: &[u8]) -> Value {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    let text: String = bytes
        .iter()
        .flat_map(|&byte| [digit(byte >> 4), digit(byte)])
        .collect();
    Value::Object(Map::from_iter([("hex".to_string(), Value::String(text))]))
}

/// A name, path or URI: a string where it is UTF-8, else hexadecimal.
pub fn name(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_string()),
        Err(_) => hex(bytes),
    }
}

/// A floating-point number: not-a-number and infinities, which JSON lacks, as the strings `nan`, `inf` and
/// `-inf`.
pub fn float(number: f64) -> Value {
    match serde_json::Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => Value::from("nan"),
        None if number > 0.0 => Value::from("inf"),
        None => Value::from("-inf"),
    }
}

/// Values a cell: an integer or `"var"`.
pub fn cell_val_num(cell_val_num: CellValNum) -> Value {
    match cell_val_num {
        CellValNum::Fixed(n) => Value::from(n),
        CellValNum::Var => Value::from("var"),
    }
}

/// A single value of `datatype` from its little-endian bytes. Of text it is a string of one character, where
/// that is valid. Bytes of another length than the datatype's are hexadecimal.
pub fn element(datatype: Datatype, bytes: &[u8]) -> Value {
    if bytes.len() != datatype.size() {
        return hex(bytes);
    }
    match datatype.kind() {
        Kind::Text => text(datatype, bytes),
        Kind::Bytes => hex(bytes),
        Kind::Bool => match bytes {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => Value::from(unsigned(bytes)),
        },
        Kind::Unsigned => Value::from(unsigned(bytes)),
        Kind::Signed | Kind::Datetime | Kind::Time => Value::from(signed(bytes)),
        Kind::Float => match *bytes {
            [a, b, c, d] => float(f64::from(f32::from_le_bytes([a, b, c, d]))),
            _ => float(f64::from_bits(unsigned(bytes))),
        },
    }
}

/// A cell: a scalar where cells hold one value, an array where they hold several or a varying number; text
/// one string and opaque bytes one hexadecimal string, whatever the number. Bytes that are no such cell, and
/// text that is not valid, are hexadecimal.
pub fn cell(datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) -> Value {
    let fits = match cell_val_num.cell_size(datatype) {
        Some(size) => bytes.len() as u64 == size,
        None => bytes.len().is_multiple_of(datatype.size()),
    };
    if !fits {
        return hex(bytes);
    }
    match datatype.kind() {
        Kind::Text => text(datatype, bytes),
        Kind::Bytes => hex(bytes),
        _ if cell_val_num == CellValNum::Fixed(1) => element(datatype, bytes),
        _ => elements(datatype, bytes),
    }
}

/// Appends the text of [`cell`], as [`render`](super::render()) has it on one line.
pub fn write_cell(out: &mut Vec<u8>, datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) {
    let fits = match cell_val_num.cell_size(datatype) {
        Some(size) => bytes.len() as u64 == size,
        None => bytes.len().is_multiple_of(datatype.size()),
    };
    if !fits {
        return write_hex(out, bytes);
    }
    match datatype.kind() {
        Kind::Text => write_text(out, datatype, bytes),
        Kind::Bytes => write_hex(out, bytes),
        _ if cell_val_num == CellValNum::Fixed(1) => write_element(out, datatype, bytes),
        _ => write_elements(out, datatype, bytes),
    }
}

/// Appends the text of [`elements`].
fn write_elements(out: &mut Vec<u8>, datatype: Datatype, bytes: &[u8]) {
    out.push(b'[');
    for (i, bytes) in bytes.chunks(datatype.size().max(1)).enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        write_element(out, datatype, bytes);
    }
    out.push(b']');
}

/// Elements above which an array is kept as its text: a JSON value takes many times the memory.
const FEW: usize = 256;

/// The key of what is kept as text. No document has it as a key beside a string.
const RENDERED: &str = "\0rendered";

/// An array of more than two items as the text that [`render`](super::render()) is to write for it.
pub fn rendered(text: Vec<u8>) -> Value {
    let text = String::from_utf8(text).unwrap_or_default();
    Value::Object(Map::from_iter([(RENDERED.to_string(), Value::String(text))]))
}

/// The text of what [`rendered`] made; None for anything else.
pub fn rendered_text(entries: &Map<String, Value>) -> Option<&str> {
    match entries.get(RENDERED) {
        Some(Value::String(text)) if entries.len() == 1 => Some(text),
        _ => None,
    }
}

/// Appends the text of [`element`].
fn write_element(out: &mut Vec<u8>, datatype: Datatype, bytes: &[u8]) {
    if bytes.len() != datatype.size() {
        return write_hex(out, bytes);
    }
    match datatype.kind() {
        Kind::Text => write_text(out, datatype, bytes),
        Kind::Bytes => write_hex(out, bytes),
        Kind::Unsigned => write_unsigned(out, unsigned(bytes)),
        Kind::Signed | Kind::Datetime | Kind::Time => {
            let number = signed(bytes);
            if number < 0 {
                out.push(b'-');
            }
            write_unsigned(out, number.unsigned_abs());
        }
        Kind::Bool | Kind::Float => render::write_value(out, &element(datatype, bytes), 0),
    }
}

fn write_unsigned(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut length = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        length += 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - length..).unwrap_or_default());
}

/// Appends the text of [`hex`].
pub fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(HEX.0);
    write_digits(out, bytes);
    out.extend_from_slice(HEX.1);
}

/// What stands around the digits of bytes in hexadecimal.
pub const HEX: (&[u8], &[u8]) = (b"{\"hex\": \"", b"\"}");

/// Appends two hexadecimal digits for each byte.
pub fn write_digits(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
    out.extend(bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]));
}

fn write_text(out: &mut Vec<u8>, datatype: Datatype, bytes: &[u8]) {
    match datatype.size() {
        2 | 4 => render::write_value(out, &text(datatype, bytes), 0),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => render::write_string(out, text),
            Err(_) => write_hex(out, bytes),
        },
    }
}

/// Whether the text of [`cell`] is a scalar or bytes in hexadecimal, which arrays are written on one line
/// with.
pub fn is_atom(datatype: Datatype, cell_val_num: CellValNum, bytes: &[u8]) -> bool {
    let size = datatype.size();
    match cell_val_num {
        CellValNum::Fixed(1) => true,
        CellValNum::Fixed(n) => {
            matches!(datatype.kind(), Kind::Text | Kind::Bytes)
                || bytes.len() as u64 != u64::from(n).saturating_mul(size as u64)
        }
        CellValNum::Var => {
            matches!(datatype.kind(), Kind::Text | Kind::Bytes) || !bytes.len().is_multiple_of(size)
        }
    }
}

/// All values in `bytes` as an array. What is left at the end, shorter than a value, is hexadecimal.
pub fn elements(datatype: Datatype, bytes: &[u8]) -> Value {
    if bytes.len() / datatype.size().max(1) > FEW {
        let mut text = Vec::new();
        write_elements(&mut text, datatype, bytes);
        return rendered(text);
    }
    bytes
        .chunks(datatype.size().max(1))
        .map(|bytes| element(datatype, bytes))
        .collect()
}

/// Cells of a fixed size one after the other as an array. What is left at the end, shorter than a cell, is
/// hexadecimal.
pub fn fixed_cells(datatype: Datatype, values: u32, bytes: &[u8]) -> Value {
    let size = usize::try_from(u64::from(values).saturating_mul(datatype.size() as u64));
    bytes
        .chunks(size.unwrap_or(usize::MAX).max(1))
        .map(|bytes| cell(datatype, CellValNum::Fixed(values), bytes))
        .collect()
}

/// Var-sized cells as an array, located as by [`split`]. A cell that does not lie in the data is null.
pub fn var_cells(datatype: Datatype, starts: &[u64], data: &[u8]) -> Value {
    split(starts, data)
        .map(|bytes| bytes.map(|bytes| cell(datatype, CellValNum::Var, bytes)))
        .collect()
}

/// The parts of `data`: part `i` starts at byte `starts[i]` and ends where the next one starts, the last one
/// at the end of the data. None for a part that does not lie in the data.
pub fn split<'a>(starts: &'a [u64], data: &'a [u8]) -> impl Iterator<Item = Option<&'a [u8]>> {
    let ends = starts.iter().skip(1).copied().chain([data.len() as u64]);
    starts.iter().zip(ends).map(|(&start, end)| {
        let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
        data.get(start..end)
    })
}

/// A range as `[lo, hi]`.
pub fn range(datatype: Datatype, cell_val_num: CellValNum, range: &Range) -> Value {
    Value::Array(vec![
        cell(datatype, cell_val_num, &range.lo),
        cell(datatype, cell_val_num, &range.hi),
    ])
}

/// A box as `[[lo, hi], …]` by dimension. A range beyond the dimensions has hexadecimal bounds.
pub fn rect(dimensions: &[Dimension], rect: &[Range]) -> Value {
    rect.iter()
        .enumerate()
        .map(|(i, bounds)| match dimensions.get(i) {
            Some(dimension) => range(dimension.datatype, dimension.cell_val_num, bounds),
            None => Value::Array(vec![hex(&bounds.lo), hex(&bounds.hi)]),
        })
        .collect()
}

/// Text of any length in the encoding of `datatype`, hexadecimal where it is not valid.
fn text(datatype: Datatype, bytes: &[u8]) -> Value {
    datatype.text(bytes).map_or_else(|| hex(bytes), Value::String)
}

/// Up to eight little-endian bytes as an unsigned integer.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// One to eight little-endian bytes in two's complement.
fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned(bytes) << unused) as i64 >> unused
}

#[cfg(test)]
mod tests {
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
        assert_eq!(elements(Datatype::Bool, &[0, 1, 2]), json!([false, true, 2]));
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
    fn lists_of_cells() {
        assert_eq!(fixed_cells(Datatype::Uint8, 1, &[1, 2]), json!([1, 2]));
        assert_eq!(
            fixed_cells(Datatype::Uint8, 2, &[1, 2, 3]),
            json!([[1, 2], {"hex": "03"}])
        );
        assert_eq!(
            fixed_cells(Datatype::Float64, u32::MAX, &[1]),
            json!([{"hex": "01"}])
        );
        assert_eq!(
            var_cells(Datatype::StringUtf8, &[0, 3, 3], b"redblue"),
            json!(["red", "", "blue"])
        );
        assert_eq!(
            var_cells(Datatype::StringUtf8, &[0, 9, 1], b"abc"),
            json!([null, null, "bc"])
        );
        assert_eq!(var_cells(Datatype::StringUtf8, &[], b"abc"), json!([]));
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
