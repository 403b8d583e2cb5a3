//! Headers of `.npy` files, format version 1.0.
//!
//! A header has the same bytes as that of `numpy.lib.format`, including the spare space for the first
//! dimension to grow. Its length is a multiple of 64, so that the values after it are aligned for mapping.

use crate::format::datatype::{CellValNum, Datatype, Kind};

/// A header has room for this many digits of the first dimension.
const GROWTH_DIGITS: usize = 21;

/// NumPy's largest element in bytes.
const MAX_ITEM: u64 = i32::MAX as u64;

/// The NumPy type of a single value. Text is `|S1` for characters of one byte, and `<U1` for four. NumPy has
/// no type for two-byte characters, which are `<u2`.
fn element_descr(datatype: Datatype) -> &'static str {
    use Datatype::*;
    match datatype {
        Int8 => "|i1",
        Int16 => "<i2",
        Int32 => "<i4",
        Int64 => "<i8",
        Uint8 | Any | Blob | GeomWkb => "|u1",
        Uint16 | StringUtf16 | StringUcs2 => "<u2",
        Uint32 => "<u4",
        Uint64 => "<u8",
        Float32 => "<f4",
        Float64 => "<f8",
        Bool => "|b1",
        Char | StringAscii | StringUtf8 | GeomWkt => "|S1",
        StringUtf32 | StringUcs4 => "<U1",
        DatetimeYear => "<M8[Y]",
        DatetimeMonth => "<M8[M]",
        DatetimeWeek => "<M8[W]",
        DatetimeDay => "<M8[D]",
        DatetimeHr => "<M8[h]",
        DatetimeMin => "<M8[m]",
        DatetimeSec => "<M8[s]",
        DatetimeMs => "<M8[ms]",
        DatetimeUs => "<M8[us]",
        DatetimeNs => "<M8[ns]",
        DatetimePs => "<M8[ps]",
        DatetimeFs => "<M8[fs]",
        DatetimeAs => "<M8[as]",
        TimeHr => "<m8[h]",
        TimeMin => "<m8[m]",
        TimeSec => "<m8[s]",
        TimeMs => "<m8[ms]",
        TimeUs => "<m8[us]",
        TimeNs => "<m8[ns]",
        TimePs => "<m8[ps]",
        TimeFs => "<m8[fs]",
        TimeAs => "<m8[as]",
    }
}

/// NumPy's name for the unit of dates or times; None for other types.
pub fn unit(datatype: Datatype) -> Option<&'static str> {
    element_descr(datatype).split(['[', ']']).nth(1)
}

/// The NumPy type and shape of values in `data_len` bytes. Fixed-size cells have shape `(cells,)`, or
/// `(cells, values)` if a cell has several values that are not text. Var-sized cells have shape `(values,)`.
/// If the length is not a multiple of the cell size, the values are bytes (`|u1`).
///
/// For zipped coordinates, pass `CellValNum::Fixed(1)`.
pub fn data_type(datatype: Datatype, cell_val_num: CellValNum, data_len: u64) -> (String, Vec<u64>) {
    let size = datatype.size() as u64;
    let values = match cell_val_num {
        CellValNum::Fixed(n) => u64::from(n),
        CellValNum::Var => 1,
    };
    let cell_size = values * size;
    if !data_len.is_multiple_of(cell_size) {
        return ("|u1".to_owned(), vec![data_len]);
    }
    let cells = data_len / cell_size;
    match (datatype.kind(), size) {
        _ if values == 1 => (element_descr(datatype).to_owned(), vec![cells]),
        (Kind::Text, 1) if cell_size <= MAX_ITEM => (format!("|S{values}"), vec![cells]),
        (Kind::Text, 4) if cell_size <= MAX_ITEM => (format!("<U{values}"), vec![cells]),
        _ => (element_descr(datatype).to_owned(), vec![cells, values]),
    }
}

/// The header for values of NumPy type `descr` (ASCII without quotes) in C order with this shape.
pub fn header(descr: &str, shape: &[u64]) -> Vec<u8> {
    let numbers: Vec<String> = shape.iter().map(u64::to_string).collect();
    // A tuple of one is written `(n,)`.
    let comma = if shape.len() == 1 { "," } else { "" };
    let growth = numbers.first().map_or(0, |first| GROWTH_DIGITS - first.len());
    let dict = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}{:growth$}",
        numbers.join(", "),
        ""
    );
    let prefix = 10; // magic, version, length of the rest
    let total = (prefix + dict.len() + 1).next_multiple_of(64);
    let mut out = Vec::with_capacity(total);
    out.extend_from_slice(b"\x93NUMPY\x01\x00");
    out.extend_from_slice(&((total - prefix) as u16).to_le_bytes());
    out.extend_from_slice(dict.as_bytes());
    out.resize(total - 1, b' ');
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_header(datatype: Datatype, cells: CellValNum, len: u64) -> Vec<u8> {
        let (descr, shape) = data_type(datatype, cells, len);
        header(&descr, &shape)
    }

    /// The dictionary of a header. Checks magic, length and padding.
    fn dict(header: &[u8]) -> &str {
        assert_eq!(header[..8], *b"\x93NUMPY\x01\x00");
        assert_eq!(header.len() % 64, 0);
        assert_eq!(
            usize::from(u16::from_le_bytes([header[8], header[9]])) + 10,
            header.len()
        );
        std::str::from_utf8(&header[10..])
            .unwrap()
            .strip_suffix('\n')
            .unwrap()
            .trim_end_matches(' ')
    }

    fn data(datatype: Datatype, n: u32, len: u64) -> String {
        dict(&data_header(datatype, CellValNum::Fixed(n), len)).to_string()
    }

    #[test]
    fn headers_equal_those_of_numpy() {
        // numpy.save of numpy.zeros(10, "<i4") with numpy 2.4.
        let mut expected =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<i4', 'fortran_order': False, 'shape': (10,), }".to_vec();
        expected.resize(127, b' ');
        expected.push(b'\n');
        assert_eq!(data_header(Datatype::Int32, CellValNum::Fixed(1), 40), expected);
        // numpy.save of numpy.zeros((2, 3), "<M8[ms]").
        let mut expected =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<M8[ms]', 'fortran_order': False, 'shape': (2, 3), }".to_vec();
        expected.resize(127, b' ');
        expected.push(b'\n');
        assert_eq!(
            data_header(Datatype::DatetimeMs, CellValNum::Fixed(3), 48),
            expected
        );
    }

    #[test]
    fn cells_of_one_value_have_one_dimension() {
        let line = |descr: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}")
        };
        assert_eq!(data(Datatype::Float64, 1, 80), line("<f8", "(10,)"));
        assert_eq!(data(Datatype::Int8, 1, 0), line("|i1", "(0,)"));
        assert_eq!(data(Datatype::Bool, 1, 3), line("|b1", "(3,)"));
        assert_eq!(data(Datatype::Blob, 1, 3), line("|u1", "(3,)"));
        assert_eq!(data(Datatype::TimeNs, 1, 8), line("<m8[ns]", "(1,)"));
        assert_eq!(data(Datatype::StringUtf16, 1, 8), line("<u2", "(4,)"));
        assert_eq!(
            data(Datatype::Uint8, 1, u64::MAX),
            line("|u1", "(18446744073709551615,)")
        );
    }

    #[test]
    fn several_characters_are_one_element_and_several_values_a_second_dimension() {
        let line = |descr: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}")
        };
        assert_eq!(data(Datatype::Char, 5, 20), line("|S5", "(4,)"));
        assert_eq!(data(Datatype::StringUtf8, 1, 4), line("|S1", "(4,)"));
        assert_eq!(data(Datatype::StringUtf32, 2, 24), line("<U2", "(3,)"));
        assert_eq!(data(Datatype::StringUcs2, 2, 24), line("<u2", "(6, 2)"));
        assert_eq!(data(Datatype::Int16, 3, 24), line("<i2", "(4, 3)"));
        assert_eq!(data(Datatype::GeomWkb, 3, 24), line("|u1", "(8, 3)"));
        // Longer than NumPy's largest element.
        assert_eq!(data(Datatype::Char, 1 << 31, 0), line("|S1", "(0, 2147483648)"));
        assert_eq!(
            data(Datatype::StringUcs4, 1 << 29, 0),
            line("<U1", "(0, 536870912)")
        );
    }

    #[test]
    fn var_sized_cells_are_counted_by_value() {
        let var = |datatype, len| dict(&data_header(datatype, CellValNum::Var, len)).to_string();
        assert!(var(Datatype::StringAscii, 7).contains("'|S1', 'fortran_order': False, 'shape': (7,)"));
        assert!(var(Datatype::Int64, 16).contains("'<i8', 'fortran_order': False, 'shape': (2,)"));
        assert!(var(Datatype::StringUcs4, 8).contains("'<U1', 'fortran_order': False, 'shape': (2,)"));
    }

    #[test]
    fn a_partial_cell_gives_bytes() {
        assert!(data(Datatype::Int32, 1, 7).contains("'|u1', 'fortran_order': False, 'shape': (7,)"));
        assert!(data(Datatype::Int16, 2, 6).contains("'|u1', 'fortran_order': False, 'shape': (6,)"));
    }

    #[test]
    fn numpy_types_have_the_size_of_the_datatype() {
        for &datatype in Datatype::ALL {
            let descr = element_descr(datatype);
            let size: usize = descr[2..3].parse().unwrap();
            let size = if descr.starts_with("<U") { 4 * size } else { size };
            assert_eq!(size, datatype.size(), "{descr}");
        }
    }
}
