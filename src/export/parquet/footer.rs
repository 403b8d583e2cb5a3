//! The footer: FileMetaData, of a length that does not depend on the statistics in it.
//!
//! It has the length that the longest possible statistics would give, so that the length of the file is known
//! without the metadata of tiles. A key-value pair of padding takes the space that is left.

use super::leaf::{Leaf, Logical, Physical, Shape};
use super::plan::{ColumnChunk, Plan};
use super::statistics::{Statistics, bound_len};
use super::thrift::{Type, Writer, integer_len, varint_len};
use crate::error::{Error, Result};

/// The longest statistics of a leaf, with a null count of 0; None if the leaf has none.
fn longest(leaf: &Leaf) -> Option<Statistics> {
    let len = bound_len(leaf)?;
    Some(Statistics {
        bounds: Some((vec![0; len], vec![0; len])),
        exact: false,
        nulls: 0,
    })
}

/// The key of the padding.
const PADDING: &str = "padding";

/// The writer that the footer names.
const CREATED_BY: &str = concat!("tiledbfs ", env!("CARGO_PKG_VERSION"));

/// `plan` with the length of the footer for `leaves`. `LimitExceeded` if the format has no room for it.
pub(super) fn measure(leaves: &[Leaf], mut plan: Plan) -> Result<Plan> {
    plan.footer = len(leaves, &plan);
    if plan.footer > i32::MAX as u64 {
        return Err(Error::limit(format!(
            "the footer would have {} bytes",
            plan.footer
        )));
    }
    Ok(plan)
}

/// Bytes of the footer for `leaves` in a file divided by `plan`.
fn len(leaves: &[Leaf], plan: &Plan) -> u64 {
    let mut writer = Writer::default();
    front(&mut writer, leaves, plan.rows);
    writer.list(4, Type::Struct, plan.groups() as usize);
    pairs(&mut writer, plan);
    pair(&mut writer, PADDING, b"");
    back(&mut writer, leaves);
    let ends = writer.finish().len() as u64;
    let mut empty = Writer::default();
    group(&mut empty, leaves.len(), &Totals::default(), 0, |_| ());
    let group_len = empty.bytes().len() as u64;
    let groups = plan.groups();
    let ordinal = i16::MAX.cast_unsigned().into();
    let groups_len = (0..groups).map(|number| {
        let totals = Totals::of(plan, number);
        group_len.saturating_add(more([
            totals.bytes,
            totals.rows,
            totals.start,
            totals.bytes,
            ordinal,
        ]))
    });
    let chunks_len = leaves.iter().enumerate().map(|(i, leaf)| {
        let shortest = longest_chunk(leaf).saturating_mul(groups);
        let has_nulls = leaf.optional() && longest(leaf).is_some();
        let numbers = plan.kinds(i).into_iter().map(|(number, times)| {
            let (amount, page) = plan.page(i, leaf, number);
            let rows = plan.rows_of(number);
            let rows = rows.end - rows.start;
            let len = page + plan.dictionary(i).unwrap_or(0);
            let nulls = if has_nulls { rows } else { 0 };
            more([amount.entries, len, len, nulls]).saturating_mul(times)
        });
        numbers.fold(shortest, u64::saturating_add)
    });
    // The varint of a page's offset grows by a byte at 2^6, 2^13, 2^20, ...
    let longer = (6..63).step_by(7).map(|bit| plan.pages_from(leaves, 1 << bit));
    groups_len
        .chain(chunks_len)
        .chain(longer)
        .fold(ends, u64::saturating_add)
}

/// Bytes of these varints beyond one byte each.
fn more<const N: usize>(numbers: [u64; N]) -> u64 {
    let more = numbers.into_iter().map(|n| integer_len(n as i64) - 1);
    more.sum()
}

/// Bytes of a column chunk's metadata with the longest statistics, if all numbers were 0.
fn longest_chunk(leaf: &Leaf) -> u64 {
    let chunk = ColumnChunk {
        dictionary: leaf.has_dictionary().then_some(0),
        ..ColumnChunk::default()
    };
    let mut writer = Writer::default();
    column(&mut writer, leaf, &chunk, longest(leaf).as_ref());
    writer.bytes().len() as u64
}

/// The footer, in exactly the bytes that `plan` has for it. `statistics` gives those of a leaf in a row
/// group.
pub(super) fn render(
    leaves: &[Leaf],
    plan: &Plan,
    statistics: impl Fn(usize, u64) -> Option<Statistics>,
) -> Result<Vec<u8>> {
    let mut writer = Writer::default();
    front(&mut writer, leaves, plan.rows);
    writer.list(4, Type::Struct, plan.groups() as usize);
    for number in 0..plan.groups() {
        let totals = Totals::of(plan, number);
        let chunks = plan.checked_chunks(leaves, number)?;
        group(&mut writer, leaves.len(), &totals, number, |writer| {
            for chunk in &chunks {
                let statistics = statistics(chunk.leaf, number);
                column(writer, &leaves[chunk.leaf], chunk, statistics.as_ref());
            }
        });
    }
    pairs(&mut writer, plan);
    let mut end = Writer::default();
    // The fields after the row groups, encoded as they follow field 5.
    end.list(5, Type::Struct, 0);
    let before = end.bytes().len();
    back(&mut end, leaves);
    let end = (end.finish().len() - before) as u64;
    let have = writer.bytes().len() as u64 + end;
    let room = plan.footer.checked_sub(have);
    let found = room.and_then(|room| {
        // A value longer by one byte may lengthen its varint, too. A longer key avoids that.
        [PADDING.to_owned(), format!("{PADDING}_")]
            .into_iter()
            .find_map(|key| {
                let mut shortest = Writer::default();
                pair(&mut shortest, &key, b"");
                let rest = room.checked_sub(shortest.bytes().len() as u64)?;
                let taken = |len: u64| len + varint_len(len) - 1;
                let len = (rest.saturating_sub(4)..=rest).find(|len| taken(*len) == rest)?;
                Some((key, len))
            })
    });
    let (key, len) = found.ok_or_else(|| Error::internal("the footer is longer than planned"))?;
    pair(&mut writer, &key, &vec![b' '; len as usize]);
    back(&mut writer, leaves);
    let bytes = writer.finish();
    match bytes.len() as u64 == plan.footer {
        true => Ok(bytes),
        false => Err(Error::internal("the footer does not have the planned length")),
    }
}

/// Writes the fields before the row groups.
fn front(writer: &mut Writer, leaves: &[Leaf], rows: u64) {
    writer.i32(1, 2);
    let lists = leaves.iter().filter(|leaf| leaf.shape != Shape::One).count();
    writer.list(2, Type::Struct, leaves.len() + 2 * lists + 1);
    writer.element(|writer| {
        writer.binary(4, b"schema");
        writer.i32(5, leaves.len() as i32);
    });
    leaves.iter().for_each(|leaf| schema(writer, leaf));
    writer.i64(3, rows as i64);
}

/// Writes the schema elements of a leaf, for a LIST with its enclosing groups.
fn schema(writer: &mut Writer, leaf: &Leaf) {
    const REQUIRED: i32 = 0;
    const OPTIONAL: i32 = 1;
    const REPEATED: i32 = 2;
    let list = leaf.shape != Shape::One;
    if list {
        writer.element(|writer| {
            writer.i32(3, if leaf.outer_optional() { OPTIONAL } else { REQUIRED });
            writer.binary(4, leaf.name.as_bytes());
            writer.i32(5, 1);
            writer.i32(6, 3);
            writer.structure(10, |writer| writer.structure(3, |_| ()));
        });
        writer.element(|writer| {
            writer.i32(3, REPEATED);
            writer.binary(4, b"list");
            writer.i32(5, 1);
        });
    }
    writer.element(|writer| {
        writer.i32(1, leaf.physical as i32);
        writer.i32(3, if leaf.optional() { OPTIONAL } else { REQUIRED });
        writer.binary(4, if list { b"element" } else { leaf.name.as_bytes() });
        let (converted, logical) = (converted(leaf.logical), leaf.logical);
        if let Some(converted) = converted {
            writer.i32(6, converted);
        }
        if logical != Logical::Nothing {
            writer.structure(10, |writer| write_logical(writer, logical));
        }
    });
}

/// The converted type, for readers that do not know logical types. None for timestamps: their converted type
/// would mean UTC.
fn converted(logical: Logical) -> Option<i32> {
    Some(match logical {
        Logical::String => 0,
        Logical::Date => 6,
        Logical::Integer { bits, signed } => {
            let place = bits.trailing_zeros() as i32 - 3;
            if signed { 15 + place } else { 11 + place }
        }
        Logical::Timestamp(_) | Logical::Nothing => return None,
    })
}

fn write_logical(writer: &mut Writer, logical: Logical) {
    match logical {
        Logical::Nothing => {}
        Logical::String => writer.structure(1, |_| ()),
        Logical::Date => writer.structure(6, |_| ()),
        Logical::Timestamp(unit) => writer.structure(8, |writer| {
            writer.bool(1, false);
            writer.structure(2, |writer| writer.structure(unit as u8, |_| ()));
        }),
        Logical::Integer { bits, signed } => writer.structure(10, |writer| {
            writer.i8(1, bits as i8);
            writer.bool(2, signed);
        }),
    }
}

/// Sums of a row group.
#[derive(Debug, Default)]
struct Totals {
    start: u64,
    bytes: u64,
    rows: u64,
}

impl Totals {
    fn of(plan: &Plan, number: u64) -> Totals {
        let rows = plan.rows_of(number);
        Totals {
            start: plan.start_of(number),
            bytes: plan.len_of(number),
            rows: rows.end - rows.start,
        }
    }
}

fn group(
    writer: &mut Writer,
    leaves: usize,
    totals: &Totals,
    number: u64,
    columns: impl FnOnce(&mut Writer),
) {
    writer.element(|writer| {
        writer.list(1, Type::Struct, leaves);
        columns(writer);
        writer.i64(2, totals.bytes as i64);
        writer.i64(3, totals.rows as i64);
        writer.i64(5, totals.start as i64);
        writer.i64(6, totals.bytes as i64);
        writer.i16(7, number as i16);
    });
}

fn column(writer: &mut Writer, leaf: &Leaf, chunk: &ColumnChunk, statistics: Option<&Statistics>) {
    let body = |writer: &mut Writer| {
        writer.i32(1, leaf.physical as i32);
        let encodings: &[i32] = if leaf.has_dictionary() {
            &[0, 3, 8]
        } else {
            &[0, 3]
        };
        writer.list(2, Type::I32, encodings.len());
        encodings
            .iter()
            .for_each(|encoding| writer.i32_element(*encoding));
        let path: &[&str] = match leaf.shape {
            Shape::One => &[&leaf.name],
            _ => &[&leaf.name, "list", "element"],
        };
        writer.list(3, Type::Binary, path.len());
        path.iter()
            .for_each(|name| writer.binary_element(name.as_bytes()));
        writer.i32(4, 0);
        writer.i64(5, chunk.amount.entries as i64);
        writer.i64(6, chunk.len() as i64);
        writer.i64(7, chunk.len() as i64);
        writer.i64(9, chunk.data() as i64);
        if chunk.dictionary.is_some() {
            writer.i64(11, chunk.start as i64);
        }
        if let Some(statistics) = statistics {
            writer.structure(12, |writer| {
                writer.i64(3, statistics.nulls as i64);
                if let Some((min, max)) = &statistics.bounds {
                    writer.binary(5, max);
                    writer.binary(6, min);
                    // Polars skips no row group whose bounds are said to be inexact.
                    writer.bool(7, statistics.exact);
                    writer.bool(8, statistics.exact);
                }
            });
        }
    };
    writer.element(|writer| {
        writer.i64(2, 0);
        writer.structure(3, body);
    });
}

/// Begins the key-value pairs, of which the padding, which follows, is the last.
fn pairs(writer: &mut Writer, plan: &Plan) {
    writer.list(5, Type::Struct, plan.pairs.len() + 1);
    for (key, value) in &plan.pairs {
        pair(writer, key, value.as_bytes());
    }
}

fn pair(writer: &mut Writer, key: &str, value: &[u8]) {
    writer.element(|writer| {
        writer.binary(1, key.as_bytes());
        writer.binary(2, value);
    });
}

/// Writes the fields after the row groups and the padding.
fn back(writer: &mut Writer, leaves: &[Leaf]) {
    writer.binary(6, CREATED_BY.as_bytes());
    writer.list(7, Type::Struct, leaves.len());
    for _ in leaves {
        // TypeDefinedOrder
        writer.element(|writer| writer.structure(1, |_| ()));
    }
}

impl Physical {
    /// Bytes of a bound; None for ByteArray.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Physical::Boolean => Some(1),
            Physical::Int32 | Physical::Float => Some(4),
            Physical::Int64 | Physical::Double => Some(8),
            Physical::ByteArray => None,
        }
    }
}
