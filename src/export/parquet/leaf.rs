//! A column of a table in Parquet: its types, and the conversion of its values.

use super::thrift::varint_len;
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::enumeration::Enumeration;
use crate::format::field::Form;
use crate::format::range::Range as Bounds;
use crate::format::scalar::with_integer;
use crate::query::table::{Column, NOT_A_TIME, Unit, is_padded, strip};
use std::ops::Range;

/// Integers of less than 64 bits that are widened at once: few, so that they stay in the processor's cache.
const INTEGERS_AT_ONCE: usize = 256;

/// Physical types, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub(super) enum Physical {
    Boolean = 0,
    Int32 = 1,
    Int64 = 2,
    Float = 4,
    Double = 5,
    ByteArray = 6,
}

/// Units of timestamps, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub(super) enum TimeUnit {
    Millis = 1,
    Micros = 2,
    Nanos = 3,
}

/// What the values of a physical type mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Logical {
    Nothing,
    String,
    Date,
    Timestamp(TimeUnit),
    Integer { bits: u8, signed: bool },
}

/// The number of values in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    /// A LIST of this length.
    Some(u64),
    /// A LIST of any length.
    Any,
}

/// How stored values are encoded in pages.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Encoding {
    /// Numbers as stored.
    Same,
    /// Integers of less than 32 bits and unsigned ones of 32, widened.
    Widened { signed: bool },
    /// BOOL, or bytes that are booleans: one bit.
    Bit,
    /// Dates of a unit (None: days) as 32-bit days. Null if the days do not fit.
    Days(Option<Unit>),
    /// Times in 64 bits, multiplied by this factor. Null if they overflow.
    Scaled(i64),
    /// A u32 length and bytes. `strip` removes the NULs at the end of fixed-size text.
    Bytes { strip: bool },
    /// Same for a geometry. Null if it is shorter than any: readers fail at what is none.
    Geometry,
    /// Stored indexes into a dictionary page of `labels` entries, `width` bits each. Null if there is no such
    /// label.
    Index { labels: u64, width: u8 },
    /// Stored indexes, replaced by the numbers that they stand for; None is null.
    Label(Vec<Option<u64>>),
    /// Stored indexes, replaced by the LISTs that they stand for.
    List(Labels),
}

/// Labels of several numbers, or of any number of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Labels {
    /// Index of the first number of each label, and the number of all.
    starts: Vec<u64>,
    /// The numbers of all labels as pages have them; None is null.
    numbers: Vec<Option<u64>>,
}

impl Labels {
    fn add(&mut self, numbers: impl FnOnce(&mut Vec<Option<u64>>)) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        numbers(&mut self.numbers);
        self.starts.push(self.numbers.len() as u64);
    }

    /// The numbers of label `label`, as a range of the numbers of all labels.
    pub(super) fn elements(&self, label: usize) -> Result<Range<u64>> {
        match self.starts.get(label..) {
            Some([start, end, ..]) => Ok(*start..*end),
            _ => Err(Error::internal(format!("there is no label {label}"))),
        }
    }

    /// Number `element` of those of all labels; None if it is null.
    pub(super) fn number(&self, element: u64) -> Result<Option<u64>> {
        let number = self.numbers.get(element as usize).copied();
        number.ok_or_else(|| Error::internal(format!("the labels have no number {element}")))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leaf {
    pub name: String,
    pub physical: Physical,
    pub logical: Logical,
    pub shape: Shape,
    pub encoding: Encoding,
    /// Type of a stored value.
    pub stored: Datatype,
    /// Bytes of a stored value; for fixed-size text, of all its characters. None for var-sized text.
    pub size: Option<u64>,
    /// Whether cells may be null whatever their values are: by their validity, or because nobody wrote them.
    pub nullable: bool,
    /// Whether values may be null although their cells are valid.
    pub null_values: bool,
}

/// The types of a field of numbers; None for other fields.
fn number(datatype: Datatype) -> Option<(Physical, Logical, Encoding)> {
    use Encoding::{Bit, Days, Same, Scaled, Widened};
    use Physical::{Boolean, Double, Float, Int32, Int64};
    let integer = |bits, signed| Logical::Integer { bits, signed };
    let small = |bits, signed| (Int32, integer(bits, signed), Widened { signed });
    let timestamp = |unit, scale| (Int64, Logical::Timestamp(unit), Scaled(scale));
    let plain = |physical| (physical, Logical::Nothing, Same);
    Some(match datatype {
        Datatype::Int8 => small(8, true),
        Datatype::Int16 => small(16, true),
        Datatype::Int32 => plain(Int32),
        Datatype::Int64 => plain(Int64),
        Datatype::Uint8 => small(8, false),
        Datatype::Uint16 => small(16, false),
        Datatype::Uint32 => (Int32, integer(32, false), Same),
        Datatype::Uint64 => (Int64, integer(64, false), Same),
        Datatype::Float32 => plain(Float),
        Datatype::Float64 => plain(Double),
        Datatype::Bool => (Boolean, Logical::Nothing, Bit),
        Datatype::DatetimeYear | Datatype::DatetimeMonth | Datatype::DatetimeWeek | Datatype::DatetimeDay => {
            (Int32, Logical::Date, Days(Unit::of(datatype)))
        }
        Datatype::DatetimeHr => timestamp(TimeUnit::Millis, 3_600_000),
        Datatype::DatetimeMin => timestamp(TimeUnit::Millis, 60_000),
        Datatype::DatetimeSec => timestamp(TimeUnit::Millis, 1000),
        Datatype::DatetimeMs => timestamp(TimeUnit::Millis, 1),
        Datatype::DatetimeUs => timestamp(TimeUnit::Micros, 1),
        Datatype::DatetimeNs => timestamp(TimeUnit::Nanos, 1),
        Datatype::DatetimePs | Datatype::DatetimeFs | Datatype::DatetimeAs => {
            (Int64, Logical::Nothing, Scaled(1))
        }
        _ if datatype.kind() == Kind::Time => plain(Int64),
        _ => return None,
    })
}

/// The meaning of bytes of this type.
fn bytes(datatype: Datatype) -> Logical {
    match datatype {
        Datatype::StringAscii | Datatype::StringUtf8 | Datatype::GeomWkt => Logical::String,
        _ => Logical::Nothing,
    }
}

impl Leaf {
    /// The leaf of a field of this form with its stored values.
    pub(super) fn of(stored: Form, name: String) -> Leaf {
        let mut leaf = Leaf {
            name,
            physical: Physical::ByteArray,
            logical: bytes(stored.datatype),
            shape: Shape::One,
            encoding: Encoding::Bytes { strip: false },
            stored: stored.datatype,
            size: stored.cell_size(),
            nullable: stored.nullable,
            null_values: stored.datatype.kind() == Kind::Datetime,
        };
        if let Some((physical, logical, encoding)) = number(stored.datatype) {
            (leaf.physical, leaf.logical, leaf.encoding) = (physical, logical, encoding);
            leaf.size = Some(stored.datatype.size() as u64);
            leaf.shape = match stored.cell_val_num {
                CellValNum::Fixed(1) => Shape::One,
                CellValNum::Fixed(count) => Shape::Some(u64::from(count)),
                CellValNum::Var => Shape::Any,
            };
        } else if is_padded(stored.datatype) {
            let strip = leaf.size.is_some();
            leaf.encoding = Encoding::Bytes { strip };
        }
        leaf
    }

    /// The leaf of a column; `bounds` are those of the coordinates if it is an axis.
    pub(super) fn new(column: &Column, name: String, bounds: Option<&Bounds>) -> Leaf {
        let mut leaf = Leaf::of(column.stored.form(), name);
        leaf.nullable = column.is_nullable();
        if column.is_axis() {
            leaf.fit(bounds);
        }
        if let Some(labels) = &column.labels {
            let (datatype, number) = (labels.datatype, labels.cell_val_num);
            leaf.enumerate(datatype, number, labels.count(), |label| labels.value(label));
        }
        leaf
    }

    /// Bytes of any number, or a LIST of any number of UINT8, become geometries.
    pub(super) fn hold_geometries(&mut self) {
        (self.physical, self.logical) = (Physical::ByteArray, Logical::Nothing);
        (self.shape, self.encoding, self.size) = (Shape::One, Encoding::Geometry, None);
        self.null_values = true;
    }

    /// Bytes become booleans.
    pub(super) fn hold_booleans(&mut self) {
        (self.physical, self.logical) = (Physical::Boolean, Logical::Nothing);
        self.encoding = Encoding::Bit;
    }

    /// Unsigned integers of 64 bits become signed; all of them are an INT64.
    pub(super) fn sign(&mut self) {
        let unsigned = Logical::Integer {
            bits: 64,
            signed: false,
        };
        if self.logical == unsigned {
            self.logical = Logical::Nothing;
        }
    }

    /// Coordinates of an axis are never null: if one date does not fit, all become the stored integers.
    fn fit(&mut self, bounds: Option<&Bounds>) {
        let fits = bounds.is_none_or(|bounds| {
            [&bounds.lo, &bounds.hi]
                .into_iter()
                .all(|end| self.value(end).is_some())
        });
        if !fits {
            (self.physical, self.logical, self.encoding) =
                (Physical::Int64, Logical::Nothing, Encoding::Same);
        }
        self.null_values = false;
    }

    /// Replaces stored indexes by labels; those of several numbers, or of any number of them, are LISTs. An
    /// index without a label is null.
    pub(super) fn enumerate<'a>(
        &mut self,
        datatype: Datatype,
        cell_val_num: CellValNum,
        count: usize,
        value: impl Fn(usize) -> Option<&'a [u8]>,
    ) {
        let Some((physical, logical, encoding)) = number(datatype) else {
            let labels = count as u64;
            let highest = labels.saturating_sub(1);
            self.physical = Physical::ByteArray;
            self.logical = bytes(datatype);
            self.encoding = Encoding::Index {
                labels,
                width: (u64::BITS - highest.leading_zeros()).max(1) as u8,
            };
            self.null_values = true;
            return;
        };
        let label = Leaf {
            physical,
            logical,
            encoding,
            stored: datatype,
            size: Some(datatype.size() as u64),
            ..self.clone()
        };
        (self.physical, self.logical) = (physical, logical);
        let values = (0..count).filter_map(value);
        if cell_val_num == CellValNum::Fixed(1) {
            self.encoding = Encoding::Label(values.map(|bytes| label.value(bytes)).collect());
            self.null_values = true;
            return;
        }
        let mut labels = Labels::default();
        // Bytes that are no whole number are no element, as in table.csv.
        values.for_each(|bytes| labels.add(|numbers| label.each(bytes, |number| numbers.push(number))));
        self.encoding = Encoding::List(labels);
        (self.shape, self.null_values) = match cell_val_num {
            CellValNum::Fixed(count) => (Shape::Some(u64::from(count)), true),
            CellValNum::Var => (Shape::Any, datatype.kind() == Kind::Datetime),
        };
        self.nullable = true;
    }

    /// Whether entries may be null.
    pub(super) fn optional(&self) -> bool {
        self.null_values || self.nullable && self.shape != Shape::Any
    }

    /// Whether rows may be null, for LISTs of any length.
    pub(super) fn outer_optional(&self) -> bool {
        self.nullable && self.shape == Shape::Any
    }

    /// Whether nothing is ever null.
    pub(super) fn required(&self) -> bool {
        !self.null_values && !self.nullable
    }

    /// The highest definition level.
    pub(super) fn most_definition(&self) -> u8 {
        u8::from(self.shape != Shape::One) + u8::from(self.optional()) + u8::from(self.outer_optional())
    }

    /// Bits of a definition level.
    pub(super) fn definition_bits(&self) -> u64 {
        match self.most_definition() {
            0 => 0,
            1 => 1,
            _ => 2,
        }
    }

    /// Bits of a value in a page; None for text.
    pub(super) fn bits(&self) -> Option<u64> {
        Some(match (&self.encoding, self.physical) {
            (Encoding::Index { width, .. }, _) => u64::from(*width),
            (_, Physical::Boolean) => 1,
            (_, Physical::Int32 | Physical::Float) => 32,
            (_, Physical::Int64 | Physical::Double) => 64,
            (_, Physical::ByteArray) => return None,
        })
    }

    /// Whether pages hold indexes into a dictionary page.
    pub(super) fn has_dictionary(&self) -> bool {
        matches!(self.encoding, Encoding::Index { .. })
    }

    /// Bytes of the values of a page of `entries` values without nulls; for text, with `bytes` bytes in all.
    pub(super) fn values_len(&self, entries: u64, bytes: u64) -> u64 {
        match (&self.encoding, self.bits()) {
            (Encoding::Index { width, .. }, _) => {
                let eights = entries.div_ceil(8);
                let packed = eights.saturating_mul(u64::from(*width));
                packed.saturating_add(1 + varint_len(eights << 1 | 1))
            }
            (_, Some(bits)) => (u128::from(entries) * u128::from(bits))
                .div_ceil(8)
                .try_into()
                .unwrap_or(u64::MAX),
            (_, None) => entries.saturating_mul(4).saturating_add(bytes),
        }
    }

    /// A stored value as pages have it, in the low bits; None if it is null. Not for text.
    pub(super) fn value(&self, stored: &[u8]) -> Option<u64> {
        let mut out = None;
        self.each(stored, |value| out = value);
        out
    }

    /// Puts stored integers of any type into `integers`; negative ones are those of two's complement. Not a
    /// part of `each`, which is compiled for each kind of reader.
    fn integers(&self, stored: &[u8], integers: &mut Vec<u64>) {
        macro_rules! each {
            ($type:ty) => {{
                let stored = stored.as_chunks().0.iter();
                integers.clear();
                integers.extend(stored.map(|bytes| <$type>::from_le_bytes(*bytes) as u64))
            }};
        }
        with_integer!(self.stored, each, unreachable!("{:?} is no integer", self.stored))
    }

    /// Calls `take` with each stored value, converted by [`Leaf::value`].
    pub(super) fn each(&self, stored: &[u8], mut take: impl FnMut(Option<u64>)) {
        /// Applies a function of a number of this type to each value.
        macro_rules! numbers {
            ($type:ty, $value:expr) => {
                for bytes in stored.as_chunks().0 {
                    take($value(<$type>::from_le_bytes(*bytes)));
                }
            };
        }
        /// Same for an integer of any type, in two's complement.
        fn integers(leaf: &Leaf, stored: &[u8], mut take: impl FnMut(u64)) {
            let mut integers = Vec::new();
            for part in stored.chunks(INTEGERS_AT_ONCE * leaf.stored.size()) {
                leaf.integers(part, &mut integers);
                integers.iter().for_each(|integer| take(*integer));
            }
        }
        match &self.encoding {
            Encoding::Same if self.stored.size() == 4 => numbers!(u32, |n| Some(u64::from(n))),
            Encoding::Same => numbers!(u64, Some),
            Encoding::Widened { .. } => {
                integers(self, stored, |n| {
                    take(Some(u64::from((n as i32).cast_unsigned())))
                });
            }
            Encoding::Bit => numbers!(u8, |n| Some(u64::from(n != 0))),
            Encoding::Days(unit) => numbers!(i64, |n: i64| {
                let days = match unit {
                    _ if n == NOT_A_TIME => return None,
                    Some(unit) => unit.days(n)?,
                    None => n,
                };
                Some(u64::from(i32::try_from(days).ok()?.cast_unsigned()))
            }),
            Encoding::Scaled(scale) => numbers!(i64, |n: i64| {
                let scaled = n.checked_mul(*scale).filter(|_| n != NOT_A_TIME);
                scaled.filter(|n| *n != NOT_A_TIME).map(i64::cast_unsigned)
            }),
            Encoding::Index { labels, .. } => {
                // A negative one is beyond all labels.
                integers(self, stored, |n| take(Some(n).filter(|n| n < labels)));
            }
            Encoding::Label(labels) => {
                let label = |n| *labels.get(usize::try_from(n).ok()?)?;
                integers(self, stored, |n| take(label(n)));
            }
            Encoding::Bytes { .. } | Encoding::Geometry | Encoding::List(_) => {}
        }
    }

    /// Bytes of a stored text as pages show it.
    pub(super) fn text_len(&self, stored: &[u8]) -> u64 {
        match self.encoding {
            Encoding::Bytes { strip: true } => strip(stored).len() as u64,
            _ => stored.len() as u64,
        }
    }
}

/// Labels of text as pages show them.
pub(super) fn labels(labels: &Enumeration) -> impl Iterator<Item = &[u8]> {
    let fixed = labels.cell_val_num != CellValNum::Var;
    let text = fixed && is_padded(labels.datatype);
    let labels = labels.values().into_iter();
    labels.map(move |label| if text { strip(label) } else { label })
}

/// The dictionary page of labels of text, each after its u32 length. `LimitExceeded` above 2^30 bytes.
pub(super) fn dictionary(column: &Column) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let Some(labels) = &column.labels else {
        return Ok(out);
    };
    for label in self::labels(labels) {
        let len = u32::try_from(label.len()).ok();
        let fits = len.filter(|_| out.len() < 1 << 30);
        let len = fits.ok_or_else(|| Error::limit("the labels take more than 2^30 bytes").at(0))?;
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(label);
    }
    Ok(out)
}
