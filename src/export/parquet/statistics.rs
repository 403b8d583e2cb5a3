//! Bounds and null counts of column chunks, where they can be trusted.
//!
//! They come from the metadata of all tiles that touch a row group, so bounds may be too wide but never
//! wrong. A row group has none if a tile has none, or has some that cannot be trusted:
//!
//! - Minima and maxima of floats start again after a NaN. The sum of a tile shows whether it has a NaN,
//!   unless it has infinities too: those make the sum the greatest number, whatever the other values are.
//! - Leaves that may have nulls have bounds only together with an exact number of nulls. A tile's null count
//!   is exact for the row group if all of its cells are in the row group, or if it is 0. Cells that nobody
//!   wrote are null; how many they are follows from what fragments cover. A row group of nulls alone has a
//!   number and no bounds.
//! - Cells of a fragment without the field have the fill value.
//! - A date that is not-a-time or does not fit is null, so the null count of its tile is wrong.
//!
//! A leaf has statistics in all row groups or in none: DataFusion takes the bounds of those that have some
//! for bounds of the file, and leaves out rows of the others.

use super::leaf::{Encoding, Leaf, Logical, Physical, Shape};
use crate::error::Result;
use crate::format::datatype::{Datatype, Kind};
use crate::format::field::Stored;
use crate::format::fragment::MinMax;
use crate::format::fragment::sections::parse_u64_list;
use crate::format::scalar::Scalar;
use crate::fragment::Fragment;
use crate::fragment::field::StoredField;
use crate::fragment::info::FragmentInfo;
use crate::fragment::tile_list::TileListKey;
use crate::query::Role;
use crate::query::table::{Column, Table, strip};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The most lists of tiles read for one footer.
const MAX_LISTS: usize = 1 << 15;

/// Bounds of the values of a column chunk, and how many are null.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Statistics {
    /// A lower and an upper bound, encoded as in pages; None if all values are null.
    pub bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether the bounds are known to be values of the row group.
    pub exact: bool,
    /// How many entries are null. Arrow skips no row group whose count is not said, even if none can be.
    pub nulls: u64,
}

/// The most bytes of a bound of text.
const MAX_TEXT_BOUND: usize = 32;

/// The most bytes of a bound of a leaf; None if it has no statistics.
pub(super) fn bound_len(leaf: &Leaf) -> Option<usize> {
    match (&leaf.encoding, leaf.shape) {
        (_, Shape::Some(_) | Shape::Any) => None,
        (Encoding::Bit | Encoding::Index { .. } | Encoding::Label(_) | Encoding::List(_), _) => None,
        (Encoding::Bytes { .. }, _) => {
            let text = leaf.stored == Datatype::StringAscii && leaf.logical == Logical::String;
            let most = leaf
                .size
                .map_or(MAX_TEXT_BOUND, |size| (size as usize).min(MAX_TEXT_BOUND));
            text.then_some(most)
        }
        _ => leaf.physical.size(),
    }
}

/// A stored value, comparable in the order of its type.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(Scalar),
    Text(Box<[u8]>),
}

impl Value {
    fn new(leaf: &Leaf, bytes: &[u8]) -> Option<Value> {
        match leaf.physical {
            // TileDB's versions compare bytes above 0x7F in different ways.
            Physical::ByteArray => bytes.is_ascii().then(|| Value::Text(bytes.into())),
            _ => Scalar::read(leaf.stored, bytes).map(Value::Number),
        }
    }

    /// None if one of them is NaN.
    fn order(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => a.order(*b),
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// The value encoded as in pages; None if pages cannot hold it.
    fn page(&self, leaf: &Leaf, least: bool) -> Option<Vec<u8>> {
        let number = match self {
            Value::Number(number) => *number,
            Value::Text(text) => return text_bound(text, bound_len(leaf)?, least),
        };
        match number.integer() {
            Some(_) => {
                let bits = leaf.value(&number.to(leaf.stored)?)?;
                Some(bits.to_le_bytes().get(..leaf.physical.size()?)?.to_vec())
            }
            None if number.float().is_nan() => None,
            // Writers may not tell -0.0 from 0.0.
            None if number.float() == 0.0 => Scalar::Float64(if least { -0.0 } else { 0.0 }).to(leaf.stored),
            None => number.to(leaf.stored),
        }
    }
}

/// A bound of at most `most` bytes for texts none of which is below (`least`) or above `text`, which counts
/// only up to its first NUL. None if there is no such bound.
fn text_bound(text: &[u8], most: usize, least: bool) -> Option<Vec<u8>> {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let bound = text.get(..end.min(most))?;
    if least || bound.len() == text.len() {
        return Some(bound.to_vec());
    }
    // The next text that does not have this prefix.
    let last = bound.iter().rposition(|&byte| byte < 0x7F)?;
    let mut bound = bound.get(..=last)?.to_vec();
    *bound.last_mut()? += 1;
    Some(bound)
}

/// What is known of a leaf in a row group.
#[derive(Debug, Clone, Default)]
struct LeafStatistics {
    min: Option<Value>,
    max: Option<Value>,
    /// Null cells of tiles.
    nulls: u64,
    /// Cells that nobody wrote.
    unwritten: u64,
    /// Whether `nulls` is an upper bound only.
    guessed: bool,
    /// Whether some cells have no bounds.
    unknown: bool,
    /// Whether the bounds are values of the row group.
    exact: bool,
}

impl LeafStatistics {
    fn add(&mut self, min: Option<Value>, max: Option<Value>) {
        let (Some(min), Some(max)) = (min, max) else {
            self.unknown = true;
            return;
        };
        match self.min.as_ref().map(|own| min.order(own)) {
            Some(Some(Ordering::Less)) | None => self.min = Some(min),
            Some(order) => self.unknown |= order.is_none(),
        }
        match self.max.as_ref().map(|own| max.order(own)) {
            Some(Some(Ordering::Greater)) | None => self.max = Some(max),
            Some(order) => self.unknown |= order.is_none(),
        }
    }

    /// The statistics of a row group of `rows` rows.
    fn statistics(&self, leaf: &Leaf, rows: u64) -> Option<Statistics> {
        // An upper bound of 0 is exact.
        if self.unknown || leaf.optional() && self.guessed && self.nulls > 0 {
            return None;
        }
        let nulls = self.nulls.checked_add(self.unwritten)?;
        let bounds = match (&self.min, &self.max) {
            (None, None) if leaf.optional() && nulls == rows => None,
            (Some(min), Some(max)) if min.order(max)? != Ordering::Greater => {
                Some((min.page(leaf, true)?, max.page(leaf, false)?))
            }
            _ => return None,
        };
        Some(Statistics {
            bounds,
            exact: self.exact,
            nulls: if leaf.optional() { nulls } else { 0 },
        })
    }
}

/// The statistics in a fragment's metadata of the tiles of an attribute.
struct Lists {
    mins: MinMax,
    maxs: MinMax,
    sums: Option<Vec<u64>>,
    nulls: Option<Vec<u64>>,
    cell_size: Option<u64>,
}

impl Lists {
    /// None if the fragment has no statistics of the field, or none that can be trusted.
    fn read(info: &FragmentInfo, field: &StoredField, leaf: &Leaf) -> Option<Lists> {
        let text = leaf.physical == Physical::ByteArray;
        // libtiledb computes these for dense fragments from memory that it has freed.
        let garbage = info.footer.dense && (field.cell_val_num.is_var() || field.nullable && text);
        if garbage || field.is_lossy(&info.schema) {
            return None;
        }
        let bounds = |list| parsed(info, list, field.slot, MinMax::parse);
        let numbers = |list| parsed(info, list, field.slot, parse_u64_list);
        let float = leaf.stored.kind() == Kind::Float;
        Some(Lists {
            mins: bounds(TileListKey::Mins)?,
            maxs: bounds(TileListKey::Maxs)?,
            sums: match float {
                true => Some(numbers(TileListKey::Sums)?),
                false => None,
            },
            nulls: match field.nullable {
                true => Some(numbers(TileListKey::NullCounts)?),
                false => None,
            },
            cell_size: field.cell_size(),
        })
    }

    fn add(
        &self,
        leaf: &Leaf,
        info: &FragmentInfo,
        tiles: &[Range<u64>],
        whole: bool,
        known: &mut LeafStatistics,
    ) {
        known.guessed |= !whole;
        for tile in tiles.iter().cloned().flatten() {
            let index = tile as usize;
            if let Some(nulls) = &self.nulls {
                let Some(&count) = nulls.get(index) else {
                    known.unknown = true;
                    return;
                };
                known.nulls = known.nulls.saturating_add(count);
                // A tile of nulls alone has meaningless bounds.
                if count >= info.geometry.cells_of(tile) {
                    continue;
                }
            }
            let of = |list: &MinMax| {
                let value = Value::new(leaf, list.tile(tile, self.cell_size)?);
                value.filter(|value| is_ordinary(value, self.sums.as_deref(), index))
            };
            known.add(of(&self.mins), of(&self.maxs));
        }
    }
}

/// Whether a tile's bound, if it is a float, is so far from infinity that a finite sum proves that the tile
/// has no NaN.
fn is_ordinary(value: &Value, sums: Option<&[u64]>, tile: usize) -> bool {
    const LARGEST: f64 = 1e300;
    let Value::Number(float @ (Scalar::Float32(_) | Scalar::Float64(_))) = value else {
        return true;
    };
    let sum = sums.and_then(|sums| sums.get(tile));
    float.float().abs() < LARGEST && sum.is_some_and(|sum| f64::from_bits(*sum).abs() < LARGEST)
}

/// A list of the tiles of a slot; None if it is absent or cannot be read.
fn parsed<T>(
    info: &FragmentInfo,
    list: TileListKey,
    slot: usize,
    parse: impl FnOnce(&[u8]) -> Result<T>,
) -> Option<T> {
    let parsed = info.parsed_list(list, slot, parse);
    let parsed = parsed.map(|parsed| parsed.map(|(_, content)| content));
    parsed.unwrap_or_else(|error| {
        log::warn!(
            "{}: its statistics are left out of table.parquet: {error}",
            info.path.display()
        );
        None
    })
}

/// A fragment, and the origins in each row group that refer to it, as pairs of indexes.
type Uses = (Arc<Fragment>, Vec<(usize, usize)>);

/// The statistics of each leaf in each row group; none for leaves that lack them in one.
pub(super) struct TableStatistics(Vec<Option<Vec<Statistics>>>);

impl TableStatistics {
    /// The statistics of a leaf in a row group.
    pub(super) fn get(&self, leaf: usize, group: u64) -> Option<Statistics> {
        let groups = self.0[leaf].as_ref()?;
        Some(groups[group as usize].clone())
    }

    /// Reads the metadata of tiles for row groups of these rows. Decodes no data.
    pub(super) fn read(table: &Table, leaves: &[Leaf], runs: &[Range<u64>]) -> Result<TableStatistics> {
        let known = known(table, leaves, runs)?;
        let of = |(leaf, known): (&Leaf, Vec<LeafStatistics>)| {
            let groups = known.iter().zip(runs);
            let all = groups.map(|(known, run)| known.statistics(leaf, run.end - run.start));
            let all: Option<Vec<Statistics>> = all.collect();
            all.filter(|all| !all.is_empty())
        };
        Ok(TableStatistics(leaves.iter().zip(known).map(of).collect()))
    }
}

/// What the metadata of tiles tells of each leaf in row groups of these rows; empty for leaves without
/// statistics.
fn known(table: &Table, leaves: &[Leaf], runs: &[Range<u64>]) -> Result<Vec<Vec<LeafStatistics>>> {
    let view = table.view();
    let mut all: Vec<Vec<LeafStatistics>> = Vec::new();
    for (leaf, column) in leaves.iter().zip(table.columns()) {
        all.push(match bound_len(leaf).filter(|_| !column.is_label()) {
            Some(_) if column.is_axis() => axis(table, column, leaf, runs)?,
            Some(_) => vec![LeafStatistics::default(); runs.len()],
            None => Vec::new(),
        });
    }
    let wanted: Vec<usize> = (0..leaves.len())
        .filter(|&i| !table.columns()[i].is_axis() && !all[i].is_empty())
        .collect();
    if wanted.is_empty() {
        return Ok(all);
    }
    let origins = view.origins(runs)?;
    let mut fragments: HashMap<*const Fragment, Uses> = HashMap::new();
    for (group, origin) in origins.iter().enumerate() {
        let parts = origin.iter().flat_map(|origin| &origin.parts).enumerate();
        for (part, tiles) in parts {
            let entry = fragments.entry(Arc::as_ptr(&tiles.fragment));
            let entry = entry.or_insert_with(|| (tiles.fragment.clone(), Vec::new()));
            entry.1.push((group, part));
        }
    }
    let too_many = fragments.len().saturating_mul(wanted.len()) > MAX_LISTS;
    let part_of = |group: usize, part: usize| {
        let origin = origins[group].as_ref();
        &origin.expect("a part comes from an origin").parts[part]
    };
    for (fragment, uses) in fragments.values() {
        let info = fragment.look()?;
        let mut boxes = TileBounds::default();
        for &i in &wanted {
            let (leaf, column, groups) = (&leaves[i], &table.columns()[i], &mut all[i]);
            let statistics = match too_many {
                true => FieldStatistics::Nothing,
                false => boxes.statistics(&info, column, leaf)?,
            };
            for &(group, part) in uses {
                let (known, part) = (&mut groups[group], part_of(group, part));
                match &statistics {
                    FieldStatistics::Nothing => known.unknown = true,
                    FieldStatistics::Missing => add_fill(column, leaf, known),
                    FieldStatistics::Lists(lists) => {
                        lists.add(leaf, &info, &part.tiles, part.whole, known);
                    }
                    FieldStatistics::Bounds(bounds) => {
                        // Boxes of tiles are as small as they can be. Zeros have two signs, and text is cut.
                        let exact = part.whole
                            && leaf.stored.kind() != Kind::Float
                            && leaf.physical != Physical::ByteArray;
                        known.exact = exact && (known.exact || known.min.is_none());
                        for tile in part.tiles.iter().cloned().flatten() {
                            let (min, max) = bounds[tile as usize].clone();
                            known.add(min, max);
                        }
                    }
                }
            }
        }
    }
    for &i in &wanted {
        for (known, origin) in all[i].iter_mut().zip(&origins) {
            match origin.as_ref().and_then(|origin| origin.unwritten) {
                Some(unwritten) => known.unwritten = unwritten,
                None => known.unknown = true,
            }
        }
    }
    Ok(all)
}

/// What a fragment says of a field.
enum FieldStatistics {
    /// It has the field, but no statistics that can be trusted.
    Nothing,
    /// It lacks the field, so its cells have the fill value.
    Missing,
    /// Lists of the tiles of an attribute.
    Lists(Box<Lists>),
    /// The least and the greatest coordinate of each tile.
    Bounds(Vec<(Option<Value>, Option<Value>)>),
}

/// Widens the bounds by the fill value. If that is null, the null count is unknown.
fn add_fill(column: &Column, leaf: &Leaf, known: &mut LeafStatistics) {
    let field = &column.stored;
    if field.nullable && !field.fill_value_valid {
        known.unknown = true;
        return;
    }
    let fill = match leaf.encoding {
        Encoding::Bytes { strip: true } => strip(&field.fill_value),
        _ => &field.fill_value,
    };
    let value = || Value::new(leaf, fill).filter(|value| value.order(value).is_some());
    known.guessed = true;
    known.add(value(), value());
}

/// The bounds of all tiles along each dimension of a fragment, read once for all dimensions.
#[derive(Default)]
struct TileBounds(Option<Vec<Vec<Ends>>>);

/// The least and the greatest coordinate of a tile, as stored.
type Ends = (Vec<u8>, Vec<u8>);

impl TileBounds {
    /// What the fragment says of a column's field.
    fn statistics(&mut self, info: &FragmentInfo, column: &Column, leaf: &Leaf) -> Result<FieldStatistics> {
        let field = match info.stored_as(&column.stored) {
            Stored::Nothing => return Ok(FieldStatistics::Missing),
            Stored::Same(field) => field,
            Stored::Other(..) => return Ok(FieldStatistics::Nothing),
        };
        let Role::Dimension(dimension) = column.stored.role else {
            let lists = Lists::read(info, field, leaf);
            return Ok(lists.map_or(FieldStatistics::Nothing, |lists| {
                FieldStatistics::Lists(Box::new(lists))
            }));
        };
        if !info.has_sound_boxes() || field.is_lossy(&info.schema) {
            return Ok(FieldStatistics::Nothing);
        }
        let sums = match leaf.stored.kind() {
            Kind::Float => match parsed(info, TileListKey::Sums, field.slot, parse_u64_list) {
                Some(sums) => Some(sums),
                None => return Ok(FieldStatistics::Nothing),
            },
            _ => None,
        };
        let dimensions = match &self.0 {
            Some(dimensions) => dimensions,
            None => {
                let mut dimensions = vec![Vec::new(); info.schema.dimensions.len()];
                info.visit_tile_boxes(|_, bounds| {
                    for (list, (lo, hi)) in dimensions.iter_mut().zip(bounds) {
                        list.push((lo.to_vec(), hi.to_vec()));
                    }
                    Ok(())
                })?;
                self.0.insert(dimensions)
            }
        };
        let tiles = &dimensions[dimension];
        if tiles.len() as u64 != info.geometry.tile_num {
            return Ok(FieldStatistics::Nothing);
        }
        let bounds = tiles.iter().enumerate().map(|(tile, (lo, hi))| {
            let value = |bytes: &[u8]| {
                let value = Value::new(leaf, bytes);
                value.filter(|value| is_ordinary(value, sums.as_deref(), tile))
            };
            (value(lo), value(hi))
        });
        Ok(FieldStatistics::Bounds(bounds.collect()))
    }
}

/// What is known of the coordinates of an axis in each run of rows.
fn axis(table: &Table, column: &Column, leaf: &Leaf, runs: &[Range<u64>]) -> Result<Vec<LeafStatistics>> {
    let shape = table.view().shape()?;
    let inner = shape.iter().skip(column.field + 1);
    let inner = inner
        .fold(1, |rows: u64, length| rows.saturating_mul(*length))
        .max(1);
    let cells = column.cells()?;
    let length = cells.count().max(1);
    let at = |index: u64| -> Result<Option<Value>> {
        let bytes = cells.values(index..index + 1)?;
        Ok(Value::new(leaf, &bytes))
    };
    let known = runs.iter().map(|run| {
        let (first, last) = (run.start / inner, run.end.saturating_sub(1) / inner);
        let ends = match first / length == last / length {
            true => (first % length, last % length),
            false => (0, length - 1),
        };
        let mut known = LeafStatistics {
            exact: true,
            ..LeafStatistics::default()
        };
        known.add(at(ends.0)?, at(ends.1)?);
        Ok(known)
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_text_are_cut_and_still_bounds() {
        let both = |text: &[u8]| [text_bound(text, 4, true), text_bound(text, 4, false)];
        assert_eq!(both(b"abc"), [Some(b"abc".to_vec()), Some(b"abc".to_vec())]);
        assert_eq!(both(b"abcdefg"), [Some(b"abcd".to_vec()), Some(b"abce".to_vec())]);
        // Bytes after a NUL were not compared: a\0z may be there as well.
        assert_eq!(both(b"a\0b"), [Some(b"a".to_vec()), Some(b"b".to_vec())]);
        assert_eq!(both(b"\0"), [Some(Vec::new()), None]);
        assert_eq!(both(b""), [Some(Vec::new()), Some(Vec::new())]);
        assert_eq!(text_bound(b"ab\x7F\x7F\x7F", 4, false), Some(b"ac".to_vec()));
        assert_eq!(text_bound(b"\x7F\x7F\x7F\x7F\x7F", 4, false), None);
    }
}
