//! The global order of cells, as keys that compare as the cells do.
//!
//! In row- and column-major order, a key consists of the tile number along each dimension, in the tile order,
//! and then of the position in the tile along each dimension, in the cell order. In Hilbert order, it
//! consists of the position on the curve, and then of the coordinates from the first dimension to the last.
//! If a key takes at most 256 bits, as with most domains, it is a few words; otherwise it is a string of
//! bytes.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/misc/comparators.h>

use super::hilbert::{BEYOND_U64, Curve, truncated};
use crate::error::{Error, Result};
use crate::format::datatype::{Datatype, Kind};
use crate::format::enums::Layout;
use crate::format::range::Rect;
use crate::format::scalar::Scalar;
use crate::format::schema::{Dimension, Schema};
use crate::fragment::cell_slice::CellSlice;
use std::iter::repeat_n;

/// The most words of a key.
const MAX_WORDS: u32 = 4;

/// How many tiles on each side of a domain of floats have numbers of their own.
const TILES_OUTSIDE: u64 = 1 << 16;

/// How many keys are made at a time, so that intermediate values stay in the processor's first-level cache.
const BLOCK: usize = 256;

/// The order in which readers merge the cells of an array.
///
/// Two keys are equal exactly if the coordinates are equal in every dimension; `-0.0` and `0.0` are equal.
/// NaN has the key of another number. Writers refuse coordinates outside of the domain, unless they do not
/// check them or a lossy filter makes others of them. Such coordinates have the key of the nearest bound,
/// unless the order is made for them.
pub struct GlobalOrder {
    /// The dimensions in the schema's order.
    axes: Vec<Axis>,
    curve: Option<Curve>,
    /// The parts of a key, most significant first.
    parts: Vec<KeyPart>,
    words: Option<usize>,
    /// Whether coordinates outside of the domain have keys of their own.
    outside: bool,
}

/// The position of a cell in the global order, in a form that compares quickly. It is `[u64; N]` where
/// [`GlobalOrder::words`] is `Some(N)`; [`ByteKey`] fits every array.
pub trait SortKey: Ord + Clone + Send + Sync + Sized {
    /// Appends the keys of some cells. `columns` are their coordinates along each dimension, in the schema's
    /// order.
    ///
    /// # Panics
    /// If the keys of the order have another number of words.
    fn append(order: &GlobalOrder, columns: &[CellSlice<'_>], keys: &mut Vec<Self>);

    /// Its distance from `base`, which is not greater. Distances from the same key compare as the keys do.
    /// None if the distance does not fit a word.
    fn distance(&self, _base: &Self) -> Option<u64> {
        None
    }

    /// The bytes that it takes on the heap.
    fn heap(&self) -> u64 {
        0
    }
}

/// A key as bytes, which fits every array. Bytes compare as the cells do.
pub type ByteKey = Box<[u8]>;

struct Axis {
    datatype: Datatype,
    /// The size of a coordinate in bytes; None for strings.
    size: Option<usize>,
    /// The ordinal (see [`Axis::ordinals`]) of the lower bound of the domain; 0 where those below it come
    /// first.
    origin: u64,
    /// The distance between the ordinals of the two bounds, or with `outside` the greatest of any two.
    width: u64,
    outside: bool,
    tiles: Option<Tiles>,
}

/// The tiles along a dimension.
#[derive(Clone, Copy)]
enum Tiles {
    /// Tiles of this many cells.
    Integer { extent: u64 },
    /// Tile numbers are computed in the dimension's own type.
    Float32 { lo: f32, extent: f32, last: u64 },
    /// As `Float32`.
    Float64 { lo: f64, extent: f64, last: u64 },
}

struct KeyPart {
    what: What,
    /// Number of bits; 0 for a string.
    bits: u32,
    /// Number of bits that follow it in a key of words.
    shift: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    /// The position on the Hilbert curve.
    Place,
    /// The number of the tile along a dimension.
    Tile(usize),
    /// The position in the tile along a dimension; the coordinate if the dimension has no tiles.
    Coordinate(usize),
}

/// Intermediate values of at most [`BLOCK`] cells.
struct Block {
    /// For each dimension, the tile number of each cell.
    tiles: Vec<[u64; BLOCK]>,
    /// For each dimension, the position of each cell in its tile.
    coordinates: Vec<[u64; BLOCK]>,
    places: [u64; BLOCK],
    /// Scratch space for the buckets of the Hilbert curve.
    buckets: Vec<u64>,
}

impl GlobalOrder {
    /// The order of an array's cells. `schema` may be any of its schemas: dimensions, domain and order are
    /// the same in all. With `outside`, coordinates outside of the domain have keys of their own.
    /// `Unsupported` for Hilbert order in more than 63 dimensions.
    pub fn new(schema: &Schema, outside: bool) -> Result<GlobalOrder> {
        let count = schema.dimensions.len();
        let hilbert = schema.cell_order == Layout::Hilbert;
        let curve = match hilbert {
            true => Some(Curve::new(schema).ok_or_else(|| {
                Error::unsupported(format!(
                    "Hilbert order of {count} dimensions; at most 63 are supported"
                ))
            })?),
            false => None,
        };
        let axes: Vec<Axis> = schema
            .dimensions
            .iter()
            .map(|dimension| {
                // Along a single dimension of integers, the order of coordinates is that of tiles.
                let alone = count == 1 && dimension.datatype.kind() != Kind::Float;
                Axis::new(dimension, hilbert, alone, outside)
            })
            .collect();
        let along = |layout: Layout, i: usize| match layout {
            Layout::ColMajor => count - 1 - i,
            _ => i,
        };
        let place = curve.iter().map(|_| What::Place);
        let tiles = (0..count).map(|i| What::Tile(along(schema.tile_order, i)));
        let cells = (0..count).map(|i| What::Coordinate(along(schema.cell_order, i)));
        let mut parts: Vec<KeyPart> = place
            .chain(tiles)
            .chain(cells)
            .map(|what| KeyPart {
                what,
                bits: match what {
                    What::Place => curve.as_ref().map_or(0, Curve::position_bits),
                    What::Tile(i) => axes[i].tile_bits(),
                    What::Coordinate(i) => axes[i].coordinate_bits(),
                },
                shift: 0,
            })
            .filter(|part| part.bits > 0 || part.is_text(&axes))
            .collect();
        let mut bits = 0u32;
        for part in parts.iter_mut().rev() {
            part.shift = bits;
            bits = bits.saturating_add(part.bits);
        }
        let words = bits.div_ceil(64).max(1);
        let packs = words <= MAX_WORDS && axes.iter().all(|axis| axis.size.is_some());
        Ok(GlobalOrder {
            axes,
            curve,
            parts,
            words: packs.then_some(words as usize),
            outside,
        })
    }

    /// Number of words of a key, 1 to 4, the most significant first. None if keys must be strings of bytes:
    /// with string dimensions, or if 256 bits do not suffice.
    pub fn words(&self) -> Option<usize> {
        self.words
    }

    /// The least and the greatest key that a cell in a box can have. None if that is unknown: in Hilbert
    /// order, if tile numbers overflow, if there are keys outside of the domain, and for a box with NaN or
    /// with other dimensions.
    pub fn interval<K: SortKey>(&self, rect: &Rect) -> Option<(K, K)> {
        self.intervals(&[rect])?.pop()
    }

    /// As [`GlobalOrder::interval`], for several boxes; None if it is unknown for one.
    pub fn intervals<K: SortKey>(&self, rects: &[&Rect]) -> Option<Vec<(K, K)>> {
        if self.curve.is_some() || self.outside || self.axes.iter().any(Axis::overflows) {
            return None;
        }
        // For each dimension, the lower and the upper end of each box, concatenated, and their offsets.
        let mut corners: Vec<(Vec<u8>, Vec<u64>)> = vec![(Vec::new(), vec![0]); self.axes.len()];
        for rect in rects {
            if rect.len() != self.axes.len() {
                return None;
            }
            for ((axis, range), (values, starts)) in self.axes.iter().zip(*rect).zip(&mut corners) {
                for bound in [&*range.lo, &*range.hi] {
                    if axis
                        .size
                        .is_some_and(|size| bound.len() != size || axis.is_nan(bound))
                    {
                        return None;
                    }
                    values.extend_from_slice(bound);
                    starts.push(values.len() as u64);
                }
            }
        }
        let columns = self
            .axes
            .iter()
            .zip(&corners)
            .map(|(axis, (values, starts))| match axis.size {
                Some(size) => CellSlice::fixed(values, size),
                None => CellSlice::var(values, starts),
            });
        let mut keys = Vec::with_capacity(2 * rects.len());
        K::append(self, &columns.collect::<Vec<_>>(), &mut keys);
        let mut keys = keys.into_iter();
        Some(std::iter::from_fn(|| keys.next().zip(keys.next())).collect())
    }

    fn block(&self) -> Block {
        let count = self.axes.len();
        Block {
            tiles: vec![[0; BLOCK]; count],
            coordinates: vec![[0; BLOCK]; count],
            places: [0; BLOCK],
            buckets: match self.curve {
                Some(_) => vec![0; count * BLOCK],
                None => Vec::new(),
            },
        }
    }

    /// Computes the parts of the keys of `cells` cells from `first` on.
    fn fill(&self, block: &mut Block, columns: &[CellSlice<'_>], first: usize, cells: usize) {
        for (i, (axis, column)) in self.axes.iter().zip(columns).enumerate() {
            let Some(size) = axis.size else { continue };
            let values = &column.values[first * size..(first + cells) * size];
            let (tiles, coordinates) = (&mut block.tiles[i], &mut block.coordinates[i]);
            axis.ordinals(values, coordinates);
            axis.tiles(values, tiles, coordinates);
        }
        let Some(curve) = &self.curve else { return };
        let buckets = block.buckets.chunks_exact_mut(cells);
        for (i, ((axis, column), buckets)) in self.axes.iter().zip(columns).zip(buckets).enumerate() {
            for (cell, bucket) in buckets.iter_mut().enumerate() {
                *bucket = curve.bucket(i, axis.value(column, first + cell));
            }
        }
        let buckets = &mut block.buckets[..self.axes.len() * cells];
        curve.positions(buckets, &mut block.places[..cells]);
    }
}

/// The number of cells in each of `columns`.
fn count(columns: &[CellSlice<'_>]) -> usize {
    let count = columns[0].count;
    assert!(columns.iter().all(|column| column.count == count));
    count
}

impl<const N: usize> SortKey for [u64; N] {
    fn append(order: &GlobalOrder, columns: &[CellSlice<'_>], keys: &mut Vec<Self>) {
        assert_eq!(
            order.words,
            Some(N),
            "the key type must have as many words as the order"
        );
        let count = count(columns);
        keys.reserve(count);
        let mut block = order.block();
        for first in (0..count).step_by(BLOCK) {
            let cells = (count - first).min(BLOCK);
            order.fill(&mut block, columns, first, cells);
            let before = keys.len();
            keys.extend(repeat_n([0; N], cells));
            let keys = &mut keys[before..];
            for part in &order.parts {
                let values = block.values(part.what);
                let (word, shift) = (part.shift / 64, part.shift % 64);
                let low = N - 1 - word as usize;
                for (key, value) in keys.iter_mut().zip(values) {
                    key[low] |= value << shift;
                }
                if shift + part.bits > 64 {
                    for (key, value) in keys.iter_mut().zip(values) {
                        key[low - 1] |= value >> (64 - shift);
                    }
                }
            }
        }
    }

    fn distance(&self, base: &Self) -> Option<u64> {
        let (low, high) = self.split_last()?;
        let (base_low, base_high) = base.split_last()?;
        (high == base_high).then(|| low.wrapping_sub(*base_low))
    }
}

impl SortKey for ByteKey {
    fn append(order: &GlobalOrder, columns: &[CellSlice<'_>], keys: &mut Vec<Self>) {
        let count = count(columns);
        keys.reserve(count);
        let mut block = order.block();
        let mut key = Vec::new();
        for cell in 0..count {
            let at = cell % BLOCK;
            if at == 0 {
                order.fill(&mut block, columns, cell, (count - cell).min(BLOCK));
            }
            key.clear();
            for (i, part) in order.parts.iter().enumerate() {
                match part.what {
                    What::Coordinate(axis) if part.is_text(&order.axes) => {
                        let text = columns[axis].text(cell);
                        match i + 1 == order.parts.len() {
                            true => key.extend_from_slice(text),
                            false => push_text(&mut key, text),
                        }
                    }
                    what => {
                        let bytes = block.values(what)[at].to_be_bytes();
                        let unused = 8 - part.bits.div_ceil(8) as usize;
                        key.extend_from_slice(&bytes[unused..]);
                    }
                }
            }
            keys.push(key.as_slice().into());
        }
    }

    fn heap(&self) -> u64 {
        self.len() as u64
    }
}

/// Appends a text so that keys compare by it before they compare by what follows: a 0xFF is inserted after
/// each zero byte, and two zero bytes are appended.
fn push_text(key: &mut Vec<u8>, text: &[u8]) {
    for piece in text.split_inclusive(|&byte| byte == 0) {
        key.extend_from_slice(piece);
        if piece.last() == Some(&0) {
            key.push(0xFF);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

impl Block {
    /// The values of a part that is not a string.
    fn values(&self, what: What) -> &[u64; BLOCK] {
        match what {
            What::Place => &self.places,
            What::Tile(i) => &self.tiles[i],
            What::Coordinate(i) => &self.coordinates[i],
        }
    }
}

impl KeyPart {
    fn is_text(&self, axes: &[Axis]) -> bool {
        matches!(self.what, What::Coordinate(i) if axes[i].size.is_none())
    }
}

/// The number of bits that `number` takes.
fn bits(number: u64) -> u32 {
    64 - number.leading_zeros()
}

impl Axis {
    fn new(dimension: &Dimension, hilbert: bool, alone: bool, outside: bool) -> Axis {
        let mut axis = Axis {
            datatype: dimension.datatype,
            size: match dimension.cell_val_num.is_var() {
                true => None,
                false => Some(dimension.datatype.size()),
            },
            origin: 0,
            width: u64::MAX,
            outside: false,
            tiles: None,
        };
        let Some(domain) = &dimension.domain else {
            return axis;
        };
        let (mut lo, mut hi) = ([0], [0]);
        axis.ordinals(&domain.lo, &mut lo);
        axis.ordinals(&domain.hi, &mut hi);
        let ([lo], [hi]) = (lo, hi);
        // The tiles of integers below the domain come last, and so do these.
        let comes_last = !hilbert && axis.datatype.kind() != Kind::Float;
        axis.origin = if outside && !comes_last { 0 } else { lo };
        axis.outside = outside;
        axis.width = match outside {
            true => u64::MAX >> (64 - 8 * axis.datatype.size()),
            false => hi - lo,
        };
        if let Some(extent) = dimension.tile_extent.as_ref().filter(|_| !hilbert && !alone) {
            axis.tiles = Tiles::new(axis.datatype, &domain.lo, &domain.hi, extent);
        }
        axis
    }

    /// The number of bits of a tile number; 0 if there are no tiles, or a single one.
    fn tile_bits(&self) -> u32 {
        match self.tiles {
            Some(Tiles::Integer { extent }) => bits(self.width / extent),
            Some(Tiles::Float32 { last, .. } | Tiles::Float64 { last, .. }) => match self.outside {
                true => bits(last.saturating_add(2 * TILES_OUTSIDE)),
                false => bits(last),
            },
            None => 0,
        }
    }

    /// The number of bits of a position in a tile; 0 for strings.
    fn coordinate_bits(&self) -> u32 {
        match (self.size, self.tiles) {
            (None, _) => 0,
            (_, Some(Tiles::Integer { extent })) => bits(self.width.min(extent - 1)),
            _ => bits(self.width),
        }
    }

    /// The value of a cell.
    fn value<'a>(&self, column: &CellSlice<'a>, cell: usize) -> &'a [u8] {
        let Some(size) = self.size else {
            return column.text(cell);
        };
        &column.values[cell * size..(cell + 1) * size]
    }

    /// Whether tiles with higher coordinates may have lower numbers.
    fn overflows(&self) -> bool {
        matches!(
            self.tiles,
            Some(Tiles::Float32 { last: u64::MAX, .. } | Tiles::Float64 { last: u64::MAX, .. })
        )
    }

    fn is_nan(&self, value: &[u8]) -> bool {
        Scalar::read(self.datatype, value).is_some_and(|value| value.float().is_nan())
    }

    /// The ordinals of fixed-size coordinates: their distance from the lower bound of the domain, at most the
    /// width of the domain. It is counted in steps: 1 for integers, and to the next float for floats.
    /// Ordinals compare as the coordinates do, but that with `outside` those of integers in tiles that are
    /// below the domain come last, as they do in libtiledb.
    fn ordinals(&self, values: &[u8], ordinals: &mut [u64]) {
        // As an expression, not a function that is called for each value.
        macro_rules! each {
            ($unsigned:ty, $v:ident => $ordinal:expr) => {{
                let values = values.as_chunks().0.iter();
                let numbers = values.map(|value| {
                    let $v = <$unsigned>::from_le_bytes(*value);
                    u64::from($ordinal)
                });
                match self.outside {
                    true => numbers.zip(ordinals).for_each(|(number, ordinal)| {
                        *ordinal = number.wrapping_sub(self.origin) & self.width;
                    }),
                    false => numbers.zip(ordinals).for_each(|(number, ordinal)| {
                        *ordinal = number.saturating_sub(self.origin).min(self.width);
                    }),
                }
            }};
        }
        macro_rules! float {
            ($unsigned:ty) => {
                each!($unsigned, v => {
                    const SIGN: $unsigned = 1 << (<$unsigned>::BITS - 1);
                    match v {
                        SIGN => SIGN,
                        _ if v & SIGN != 0 => !v,
                        _ => v | SIGN,
                    }
                })
            };
        }
        match (self.datatype.kind(), self.datatype.size()) {
            (Kind::Signed, 1) => each!(u8, v => v ^ 1 << 7),
            (Kind::Signed, 2) => each!(u16, v => v ^ 1 << 15),
            (Kind::Signed, 4) => each!(u32, v => v ^ 1 << 31),
            (Kind::Signed | Kind::Datetime | Kind::Time, 8) => each!(u64, v => v ^ 1 << 63),
            (Kind::Float, 4) => float!(u32),
            (Kind::Float, _) => float!(u64),
            // Texts and other bytes compare bytewise.
            (Kind::Text | Kind::Bytes, 2) => each!(u16, v => v.swap_bytes()),
            (Kind::Text | Kind::Bytes, 4) => each!(u32, v => v.swap_bytes()),
            (_, 1) => each!(u8, v => v),
            (_, 2) => each!(u16, v => v),
            (_, 4) => each!(u32, v => v),
            _ => each!(u64, v => v),
        }
    }

    /// The tile numbers of fixed-size coordinates. Turns their ordinals into positions in the tiles.
    fn tiles(&self, values: &[u8], tiles: &mut [u64], ordinals: &mut [u64]) {
        match self.tiles {
            None => {}
            Some(Tiles::Integer { extent }) => {
                // Neighbours often lie in the same tile, and divisions are slow.
                let (mut tile, mut start) = (0, 0);
                for (number, ordinal) in tiles.iter_mut().zip(ordinals) {
                    if *ordinal < start || *ordinal - start >= extent {
                        tile = *ordinal / extent;
                        start = *ordinal - *ordinal % extent;
                    }
                    *number = tile;
                    *ordinal -= start;
                }
            }
            Some(Tiles::Float32 { lo, extent, last }) => {
                for (tile, value) in tiles.iter_mut().zip(values.as_chunks().0) {
                    *tile = self.float_tile(f64::from((f32::from_le_bytes(*value) - lo) / extent), last);
                }
            }
            Some(Tiles::Float64 { lo, extent, last }) => {
                for (tile, value) in tiles.iter_mut().zip(values.as_chunks().0) {
                    *tile = self.float_tile((f64::from_le_bytes(*value) - lo) / extent, last);
                }
            }
        }
    }

    /// The number of the tile of a float, given its quotient and the number of the last tile. libtiledb
    /// rounds towards 0, so that coordinates a little below the domain are in the first tile, and others
    /// below it come last. Beyond [`TILES_OUTSIDE`] tiles on each side have one number.
    fn float_tile(&self, quotient: f64, last: u64) -> u64 {
        let above = last.saturating_add(TILES_OUTSIDE);
        match (self.outside, quotient <= -1.0) {
            (false, true) => 0,
            (false, false) => truncated(quotient).min(last),
            (true, false) => truncated(quotient).min(above),
            (true, true) => above.saturating_add(TILES_OUTSIDE + 1) - (-quotient as u64).min(TILES_OUTSIDE),
        }
    }
}

impl Tiles {
    /// The tiles of a domain; None if the datatype is not numeric.
    fn new(datatype: Datatype, lo: &[u8], hi: &[u8], extent: &[u8]) -> Option<Tiles> {
        let number = |bytes| Scalar::read(datatype, bytes);
        match (number(lo), number(hi), number(extent)) {
            (Some(Scalar::Float32(lo)), Some(Scalar::Float32(hi)), Some(Scalar::Float32(extent))) => {
                let last = last_tile(f64::from((hi - lo) / extent));
                Some(Tiles::Float32 { lo, extent, last })
            }
            (Some(Scalar::Float64(lo)), Some(Scalar::Float64(hi)), Some(Scalar::Float64(extent))) => {
                let last = last_tile((hi - lo) / extent);
                Some(Tiles::Float64 { lo, extent, last })
            }
            _ => {
                let extent = Scalar::bits(datatype, extent).filter(|&extent| extent > 0)?;
                Some(Tiles::Integer { extent })
            }
        }
    }
}

/// The number of the last tile, given its quotient; `u64::MAX` if later tiles may have the numbers of earlier
/// ones.
fn last_tile(quotient: f64) -> u64 {
    match quotient < BEYOND_U64 {
        true => quotient as u64,
        false => u64::MAX,
    }
}

#[cfg(test)]
mod tests;
