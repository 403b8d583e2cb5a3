//! How values are written in `table.csv`.

use crate::calendar::date;
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::scalar::Scalar;
use crate::printable::write_hex;
use crate::query::table::{Column, NOT_A_TIME, is_padded, strip};

/// How the cells of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One value.
    Value(Datatype),
    /// Several values, or a varying number of them.
    List(Datatype),
    /// Bytes of text written unchanged, without the NULs at the end if `padded`.
    Bytes {
        /// Whether cells have a fixed size.
        padded: bool,
    },
    /// Text in units of two or four bytes.
    Wide(Datatype),
    /// Bytes in hexadecimal.
    Hex,
}

impl Form {
    /// The form of a column.
    pub fn of(column: &Column) -> Form {
        Form::new(column.datatype, column.cell_val_num)
    }

    /// The form of cells of so many values of a datatype.
    pub fn new(datatype: Datatype, cell_val_num: CellValNum) -> Form {
        let fixed = !cell_val_num.is_var();
        match (datatype.kind(), datatype) {
            (Kind::Text, _) if datatype.size() > 1 => Form::Wide(datatype),
            (Kind::Text, _) => Form::Bytes {
                padded: fixed && is_padded(datatype),
            },
            (Kind::Bytes, _) => Form::Hex,
            _ if cell_val_num == CellValNum::Fixed(1) => Form::Value(datatype),
            _ => Form::List(datatype),
        }
    }

    /// Appends a cell that is not null.
    pub fn write(self, cell: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Form::Value(datatype) => value(datatype, cell, out)?,
            Form::List(datatype) => {
                let mut values = cell.chunks_exact(datatype.size()).enumerate();
                let quoted = cell.len() > datatype.size();
                out.extend_from_slice(if quoted { b"\"[" } else { b"[" });
                values.try_for_each(|(i, cell)| {
                    if i > 0 {
                        out.extend_from_slice(b", ");
                    }
                    value(datatype, cell, out)
                })?;
                out.extend_from_slice(if quoted { b"]\"" } else { b"]" });
            }
            Form::Bytes { padded: false } => text(cell, out),
            Form::Bytes { padded: true } => text(strip(cell), out),
            Form::Wide(datatype) => text(wide(datatype, cell).as_bytes(), out),
            Form::Hex if cell.is_empty() => text(cell, out),
            Form::Hex => write_hex(cell, out),
        }
        Ok(())
    }
}

/// Appends text. It is quoted if it is empty (to distinguish it from null), contains a comma, a quote or an
/// end of line, or begins or ends with a blank or a tab.
pub fn text(text: &[u8], out: &mut Vec<u8>) {
    let blank = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b' ' | b'\t'));
    let special = |byte: &u8| matches!(byte, b',' | b'"' | b'\r' | b'\n');
    if !blank(text.first()) && !blank(text.last()) && !text.iter().any(special) {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for part in text.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(part);
        if part.last() == Some(&b'"') {
            out.push(b'"');
        }
    }
    out.push(b'"');
}

/// UTF-16, UCS-2, UTF-32 or UCS-4; invalid characters become U+FFFD.
fn wide(datatype: Datatype, cell: &[u8]) -> String {
    match datatype.size() {
        2 => {
            let units = cell.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
            char::decode_utf16(units)
                .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        _ => {
            let units = cell.as_chunks().0.iter().map(|unit| u32::from_le_bytes(*unit));
            units
                .map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
    }
}

/// Appends one value.
fn value(datatype: Datatype, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let Some(value) = Scalar::read(datatype, bytes) else {
        return Err(Error::corrupt(format!(
            "found {} bytes, but a value of {} has {}",
            bytes.len(),
            datatype.name(),
            datatype.size()
        )));
    };
    match value {
        Scalar::Unsigned(bit) if datatype == Datatype::Bool => {
            out.extend_from_slice(if bit == 0 { b"false" } else { b"true" });
        }
        Scalar::Unsigned(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Scalar::Signed(count) if datatype.kind() == Kind::Datetime => datetime(datatype, count, out),
        Scalar::Signed(number) => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Scalar::Float32(number) => float(number, out),
        Scalar::Float64(number) => float(number, out),
    }
    Ok(())
}

/// Appends a number, `NaN`, `inf` or `-inf`.
fn float(number: impl zmij::Float, out: &mut Vec<u8>) {
    out.extend_from_slice(zmij::Buffer::new().format(number).as_bytes());
}

/// Appends a date, or a date and a time of day with as many decimals as the unit has. Years have at least
/// four characters, including the sign, as NumPy prints them.
pub(in crate::export) fn datetime(datatype: Datatype, count: i64, out: &mut Vec<u8>) {
    use Datatype::*;
    if count == NOT_A_TIME {
        out.extend_from_slice(b"NaT");
        return;
    }
    let count = i128::from(count);
    let (year, month, day) = match datatype {
        DatetimeYear => (count + 1970, 1, 1),
        DatetimeMonth => (count.div_euclid(12) + 1970, count.rem_euclid(12) as u32 + 1, 1),
        DatetimeWeek => date(count * 7),
        DatetimeDay => date(count),
        _ => {
            // Units per day, and decimals of the second.
            let (units, places) = match datatype {
                DatetimeHr => (24, 0),
                DatetimeMin => (24 * 60, 0),
                DatetimeSec => (86_400, 0),
                DatetimeMs => (86_400_000, 3),
                DatetimeUs => (86_400_000_000, 6),
                DatetimeNs => (86_400_000_000_000, 9),
                DatetimePs => (86_400_000_000_000_000, 12),
                DatetimeFs => (86_400_000_000_000_000_000, 15),
                _ => (86_400_000_000_000_000_000_000, 18),
            };
            let (day, of_day) = divided(count, units);
            write_date(date(day), out);
            // Seconds, or the unit itself where it is finer.
            let of_day = of_day * (86_400 / units).max(1) as u128;
            let (second, fraction) = divided(of_day as i128, (units / 86_400).max(1));
            let second = second as u64;
            out.push(b'T');
            digits(second / 3600, 2, out);
            out.push(b':');
            digits(second / 60 % 60, 2, out);
            out.push(b':');
            digits(second % 60, 2, out);
            if places > 0 {
                out.push(b'.');
                digits(fraction as u64, places, out);
            }
            return;
        }
    };
    write_date((year, month, day), out);
}

fn write_date((year, month, day): (i128, u32, u32), out: &mut Vec<u8>) {
    if year < 0 {
        out.push(b'-');
    }
    let (width, year) = (if year < 0 { 3 } else { 4 }, year.unsigned_abs() as u64);
    match year {
        ..1000 => digits(year, width, out),
        _ => out.extend_from_slice(itoa::Buffer::new().format(year).as_bytes()),
    }
    out.push(b'-');
    digits(month.into(), 2, out);
    out.push(b'-');
    digits(day.into(), 2, out);
}

/// The quotient, rounded down, and the remainder. An i64 division takes a tenth of the time of an i128 one.
fn divided(count: i128, by: i128) -> (i128, u128) {
    match (i64::try_from(count), i64::try_from(by)) {
        (Ok(count), Ok(by)) => (count.div_euclid(by).into(), count.rem_euclid(by) as u128),
        _ => (count.div_euclid(by), count.rem_euclid(by) as u128),
    }
}

/// Appends the last `places` digits of a number.
fn digits(mut number: u64, places: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + places, 0);
    for digit in out[start..].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, cell: &[u8]) -> String {
        let mut out = Vec::new();
        form.write(cell, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_read_back_as_they_are() {
        use Datatype::*;
        let f64s = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (2.0, "2.0"),
            (0.1, "0.1"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in f64s {
            assert_eq!(written(Form::Value(Float64), &number.to_le_bytes()), text);
        }
        assert_eq!(written(Form::Value(Float32), &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(written(Form::Value(Float32), &(-f32::NAN).to_le_bytes()), "NaN");
        assert_eq!(
            written(Form::Value(Uint64), &u64::MAX.to_le_bytes()),
            "18446744073709551615"
        );
        assert_eq!(
            written(Form::Value(Int64), &i64::MIN.to_le_bytes()),
            "-9223372036854775808"
        );
        assert_eq!(written(Form::Value(Int8), &[0x80]), "-128");
        assert_eq!(written(Form::Value(TimeNs), &(-5i64).to_le_bytes()), "-5");
        assert_eq!(
            [written(Form::Value(Bool), &[7]), written(Form::Value(Bool), &[0])],
            ["true", "false"]
        );
        assert!(Form::Value(Int32).write(&[0; 3], &mut Vec::new()).is_err());
    }

    #[test]
    fn datetimes_are_those_of_numpy() {
        use Datatype::*;
        let written = |datatype, count: i64| written(Form::Value(datatype), &count.to_le_bytes());
        for (datatype, count, text) in [
            (DatetimeYear, 55, "2025-01-01"),
            (DatetimeMonth, -1, "1969-12-01"),
            (DatetimeWeek, 1, "1970-01-08"),
            (DatetimeDay, -719_529, "-001-12-31"),
            (DatetimeDay, 2_932_897, "10000-01-01"),
            (DatetimeHr, -1, "1969-12-31T23:00:00"),
            (DatetimeMin, 61, "1970-01-01T01:01:00"),
            (DatetimeSec, 1_738_673_445, "2025-02-04T12:50:45"),
            (DatetimeMs, -1, "1969-12-31T23:59:59.999"),
            (DatetimeUs, 1, "1970-01-01T00:00:00.000001"),
            (DatetimeNs, i64::MAX, "2262-04-11T23:47:16.854775807"),
            (DatetimePs, 1, "1970-01-01T00:00:00.000000000001"),
            (DatetimeFs, -1, "1969-12-31T23:59:59.999999999999999"),
            (DatetimeAs, i64::MAX, "1970-01-01T00:00:09.223372036854775807"),
            (DatetimeAs, i64::MIN + 1, "1969-12-31T23:59:50.776627963145224193"),
            (DatetimeDay, i64::MIN, "NaT"),
            (DatetimeYear, i64::MAX, "9223372036854777777-01-01"),
        ] {
            assert_eq!(written(datatype, count), text);
        }
        // Weeks whose days do not fit i64 are still dates.
        assert!(written(DatetimeWeek, i64::MAX).starts_with("176769"));
    }

    #[test]
    fn quotes_stand_where_they_are_needed() {
        for (plain, quoted) in [
            ("", "\"\""),
            ("a", "a"),
            ("a b", "a b"),
            ("NA", "NA"),
            (" a", "\" a\""),
            ("a\t", "\"a\t\""),
            ("a,b", "\"a,b\""),
            ("\"", "\"\"\"\""),
            ("say \"a\" now", "\"say \"\"a\"\" now\""),
            ("a\nb", "\"a\nb\""),
            ("a\rb", "\"a\rb\""),
            ("é", "é"),
        ] {
            let mut out = Vec::new();
            text(plain.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), quoted);
        }
    }

    #[test]
    fn lists_text_and_bytes() {
        use Datatype::*;
        let list = Form::List(Int16);
        assert_eq!(written(list, &[]), "[]");
        assert_eq!(written(list, &[1, 0]), "[1]");
        assert_eq!(written(list, &[1, 0, 254, 255]), "\"[1, -2]\"");
        assert_eq!(written(Form::Hex, &[0, 0xAB]), "00ab");
        assert_eq!(written(Form::Hex, &[]), "\"\"");
        assert_eq!(written(Form::Bytes { padded: true }, b"a\0b\0\0"), "a\0b");
        assert_eq!(written(Form::Bytes { padded: true }, b"\0\0"), "\"\"");
        assert_eq!(written(Form::Bytes { padded: false }, b"a\0"), "a\0");
        assert_eq!(
            written(Form::Wide(StringUtf16), &[0x3D, 0xD8, 0, 0xDE, b',', 0]),
            "\"😀,\""
        );
        assert_eq!(written(Form::Wide(StringUtf16), &[0x3D, 0xD8]), "\u{FFFD}");
        assert_eq!(written(Form::Wide(StringUcs4), &[0xE9, 0, 0, 0]), "é");
    }
}
