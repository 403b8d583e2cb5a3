//! TileDB datatypes, and the number of values per cell.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/enums/datatype.h>

use super::enums::byte_enum;
use crate::error::{Error, Result};

/// The class of values that a [`Datatype`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Signed two's complement.
    Signed,
    /// Unsigned.
    Unsigned,
    /// IEEE 754.
    Float,
    /// One byte per value, 0 or 1.
    Bool,
    /// Text: CHAR, the STRING types and GEOM_WKT.
    Text,
    /// Opaque bytes: BLOB, ANY and GEOM_WKB.
    Bytes,
    /// Signed 64-bit count of units since the Unix epoch.
    Datetime,
    /// Signed 64-bit count of units.
    Time,
}

macro_rules! datatypes {
    ($($variant:ident = $id:literal, $name:literal, $size:literal, $kind:ident;)*) => {
        byte_enum! {
            /// A datatype as stored in one byte of a schema.
            Datatype, "a datatype" { $($variant = $id, $name;)* }
        }

        impl Datatype {
            /// All datatypes, in the order of their numbers.
            pub const ALL: &'static [Datatype] = &[$(Datatype::$variant),*];

            /// Bytes of one value.
            pub fn size(self) -> usize {
                match self { $(Datatype::$variant => $size),* }
            }

            /// The class of its values.
            pub fn kind(self) -> Kind {
                match self { $(Datatype::$variant => Kind::$kind),* }
            }
        }
    };
}

datatypes! {
    Int32 = 0, "INT32", 4, Signed;
    Int64 = 1, "INT64", 8, Signed;
    Float32 = 2, "FLOAT32", 4, Float;
    Float64 = 3, "FLOAT64", 8, Float;
    Char = 4, "CHAR", 1, Text;
    Int8 = 5, "INT8", 1, Signed;
    Uint8 = 6, "UINT8", 1, Unsigned;
    Int16 = 7, "INT16", 2, Signed;
    Uint16 = 8, "UINT16", 2, Unsigned;
    Uint32 = 9, "UINT32", 4, Unsigned;
    Uint64 = 10, "UINT64", 8, Unsigned;
    StringAscii = 11, "STRING_ASCII", 1, Text;
    StringUtf8 = 12, "STRING_UTF8", 1, Text;
    StringUtf16 = 13, "STRING_UTF16", 2, Text;
    StringUtf32 = 14, "STRING_UTF32", 4, Text;
    StringUcs2 = 15, "STRING_UCS2", 2, Text;
    StringUcs4 = 16, "STRING_UCS4", 4, Text;
    Any = 17, "ANY", 1, Bytes;
    DatetimeYear = 18, "DATETIME_YEAR", 8, Datetime;
    DatetimeMonth = 19, "DATETIME_MONTH", 8, Datetime;
    DatetimeWeek = 20, "DATETIME_WEEK", 8, Datetime;
    DatetimeDay = 21, "DATETIME_DAY", 8, Datetime;
    DatetimeHr = 22, "DATETIME_HR", 8, Datetime;
    DatetimeMin = 23, "DATETIME_MIN", 8, Datetime;
    DatetimeSec = 24, "DATETIME_SEC", 8, Datetime;
    DatetimeMs = 25, "DATETIME_MS", 8, Datetime;
    DatetimeUs = 26, "DATETIME_US", 8, Datetime;
    DatetimeNs = 27, "DATETIME_NS", 8, Datetime;
    DatetimePs = 28, "DATETIME_PS", 8, Datetime;
    DatetimeFs = 29, "DATETIME_FS", 8, Datetime;
    DatetimeAs = 30, "DATETIME_AS", 8, Datetime;
    TimeHr = 31, "TIME_HR", 8, Time;
    TimeMin = 32, "TIME_MIN", 8, Time;
    TimeSec = 33, "TIME_SEC", 8, Time;
    TimeMs = 34, "TIME_MS", 8, Time;
    TimeUs = 35, "TIME_US", 8, Time;
    TimeNs = 36, "TIME_NS", 8, Time;
    TimePs = 37, "TIME_PS", 8, Time;
    TimeFs = 38, "TIME_FS", 8, Time;
    TimeAs = 39, "TIME_AS", 8, Time;
    Blob = 40, "BLOB", 1, Bytes;
    Bool = 41, "BOOL", 1, Bool;
    GeomWkb = 42, "GEOM_WKB", 1, Bytes;
    GeomWkt = 43, "GEOM_WKT", 1, Text;
}

impl Datatype {
    /// The fill value of one element of unwritten cells, little-endian: the smallest signed number, the
    /// largest unsigned one, a quiet NaN, 0x80 for CHAR, zero for other types.
    pub fn default_fill(self) -> Vec<u8> {
        match self {
            Datatype::Char => vec![0x80],
            Datatype::Float32 => f32::from_bits(0x7FC0_0000).to_le_bytes().to_vec(),
            Datatype::Float64 => f64::from_bits(0x7FF8_0000_0000_0000).to_le_bytes().to_vec(),
            _ => match self.kind() {
                Kind::Signed | Kind::Datetime | Kind::Time => {
                    let mut fill = vec![0; self.size()];
                    fill[self.size() - 1] = 0x80;
                    fill
                }
                Kind::Unsigned => vec![0xFF; self.size()],
                _ => vec![0; self.size()],
            },
        }
    }

    /// All bits of a value.
    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.size())
    }

    /// The type in which TileDB stores the sum of values of this type; None if it stores none.
    pub fn sum_type(self) -> Option<Datatype> {
        match self.kind() {
            Kind::Signed | Kind::Datetime | Kind::Time => Some(Datatype::Int64),
            Kind::Text if self == Datatype::Char => Some(Datatype::Int64),
            Kind::Unsigned | Kind::Bool => Some(Datatype::Uint64),
            Kind::Float => Some(Datatype::Float64),
            Kind::Text | Kind::Bytes => None,
        }
    }

    /// `bytes` as text in the encoding of the type; None if they are invalid. UCS-2 and UCS-4 are read as
    /// UTF-16 and UTF-32, types that are not text as UTF-8.
    pub fn text(self, bytes: &[u8]) -> Option<String> {
        match (self.kind(), self.size()) {
            (Kind::Text, 2) => {
                let (units, rest) = bytes.as_chunks::<2>();
                let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
                let chars: Option<String> = char::decode_utf16(units).map(std::result::Result::ok).collect();
                chars.filter(|_| rest.is_empty())
            }
            (Kind::Text, 4) => {
                let (units, rest) = bytes.as_chunks::<4>();
                let chars: Option<String> = units
                    .iter()
                    .map(|unit| char::from_u32(u32::from_le_bytes(*unit)))
                    .collect();
                chars.filter(|_| rest.is_empty())
            }
            _ => std::str::from_utf8(bytes).ok().map(str::to_owned),
        }
    }
}

/// The number of values per cell, as stored in a schema's `cell_val_num`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellValNum {
    /// Always this many; never 0.
    Fixed(u32),
    /// A number that varies by cell; an offsets file locates the cells.
    Var,
}

impl CellValNum {
    /// The stored word for [`CellValNum::Var`].
    pub const VAR: u32 = u32::MAX;

    /// Interprets the stored word.
    ///
    /// # Errors
    ///
    /// `Corrupt` for 0.
    pub fn from_u32(n: u32) -> Result<Self> {
        match n {
            Self::VAR => Ok(CellValNum::Var),
            0 => Err(Error::corrupt("a cell must have at least one value")),
            n => Ok(CellValNum::Fixed(n)),
        }
    }

    /// Whether cells are var-sized.
    pub fn is_var(self) -> bool {
        self == CellValNum::Var
    }

    /// Bytes of a cell of `datatype`, at most 2^35; None if var-sized.
    pub fn cell_size(self, datatype: Datatype) -> Option<u64> {
        match self {
            CellValNum::Fixed(n) => Some(u64::from(n) * datatype.size() as u64),
            CellValNum::Var => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_sizes_agree() {
        for (i, &datatype) in Datatype::ALL.iter().enumerate() {
            assert_eq!(datatype as usize, i);
            assert_eq!(Datatype::from_u8(i as u8).unwrap(), datatype);
            assert_eq!(datatype.default_fill().len(), datatype.size());
        }
        assert!(Datatype::from_u8(44).is_err());
        assert_eq!(Datatype::DatetimeAs.name(), "DATETIME_AS");
    }

    #[test]
    fn default_fills() {
        assert_eq!(Datatype::Int16.default_fill(), i16::MIN.to_le_bytes());
        assert_eq!(Datatype::TimeNs.default_fill(), i64::MIN.to_le_bytes());
        assert_eq!(Datatype::Uint32.default_fill(), [0xFF; 4]);
        assert_eq!(Datatype::Bool.default_fill(), [0]);
    }
}
