//! The global order in which a library wrote cells: tiles in tile order, cells in a tile in cell order.

use crate::format::datatype::Kind;
use crate::format::enums::Layout;
use crate::format::range::compare;
use crate::format::scalar::Scalar;
use crate::format::schema::{Dimension, Schema};
use crate::query::hilbert::Curve;
use std::cmp::Ordering;

/// The order of an array's cells, as far as it can be computed without rounding.
pub(crate) struct WrittenOrder {
    dimensions: Vec<Along>,
    column_tiles: bool,
    column_cells: bool,
    /// For Hilbert order, which has no tiles in space.
    curve: Option<Curve>,
    /// Whether cells at the same position of the curve are in row-major order. Libraries before format 22
    /// wrote them in column-major or in row-major order.
    tied: bool,
}

struct Along {
    dimension: Dimension,
    /// Lower bound of the domain and tile extent, if there are tiles along the dimension.
    tiles: Option<(u64, u64)>,
}

impl WrittenOrder {
    /// The order of the cells of a fragment written by a library of format `library_version`. None for tiles
    /// along float dimensions, whose numbers depend on rounding; if the writer's tile numbers overflowed; and
    /// for the first form of the Hilbert curve, that of versions 7 and 8.
    pub(crate) fn new(schema: &Schema, library_version: u32) -> Option<WrittenOrder> {
        let hilbert = schema.cell_order == Layout::Hilbert;
        if hilbert && library_version < 9 {
            return None;
        }
        let along = |dimension: &Dimension| {
            let tiles = match (&dimension.domain, &dimension.tile_extent) {
                _ if hilbert => None,
                (Some(domain), Some(extent)) => {
                    let (lo, hi) = (number(dimension, &domain.lo)?, number(dimension, &domain.hi)?);
                    if overflows(dimension, lo, hi, library_version) {
                        return None;
                    }
                    Some((lo, number(dimension, extent).filter(|&extent| extent > 0)?))
                }
                _ => None,
            };
            Some(Along {
                dimension: dimension.clone(),
                tiles,
            })
        };
        Some(WrittenOrder {
            dimensions: schema.dimensions.iter().map(along).collect::<Option<_>>()?,
            column_tiles: schema.tile_order == Layout::ColMajor,
            column_cells: schema.cell_order == Layout::ColMajor,
            curve: match hilbert {
                true => Some(Curve::new(schema)?),
                false => None,
            },
            tied: library_version >= 22,
        })
    }

    /// Compares two cells by their coordinates. Where strings of unsigned and of signed bytes have different
    /// orders, both are right: libtiledb writes in that of its platform's characters.
    pub(crate) fn compare(&self, a: &[&[u8]], b: &[&[u8]]) -> Ordering {
        match self.compare_by(a, b, compare_unsigned) {
            Ordering::Greater => self.compare_by(a, b, compare_signed),
            order => order,
        }
    }

    fn compare_by(
        &self,
        a: &[&[u8]],
        b: &[&[u8]],
        compare: impl Fn(&Dimension, &[u8], &[u8]) -> Ordering,
    ) -> Ordering {
        let tile = |i: usize| self.dimensions[i].compare_tiles(a[i], b[i]);
        let cell = |i: usize| compare(&self.dimensions[i].dimension, a[i], b[i]);
        let places = |curve: &Curve| Some(curve.certain_place(a)?.cmp(&curve.certain_place(b)?));
        let places = match &self.curve {
            Some(curve) => match places(curve) {
                Some(Ordering::Equal) if !self.tied => return Ordering::Equal,
                Some(order) => order,
                // An unknown order counts as right.
                None => return Ordering::Less,
            },
            None => Ordering::Equal,
        };
        places
            .then_with(|| self.first(self.column_tiles, tile))
            .then_with(|| self.first(self.column_cells, cell))
    }

    /// Compares two cells in the first dimension in which they differ, counted from the first or from the
    /// last.
    fn first(&self, from_last: bool, compare: impl Fn(usize) -> Ordering) -> Ordering {
        let count = self.dimensions.len();
        let at = |i: usize| if from_last { count - 1 - i } else { i };
        let unequal = (0..count).map(at).map(compare).find(|o| o.is_ne());
        unequal.unwrap_or(Ordering::Equal)
    }
}

fn compare_unsigned(dimension: &Dimension, a: &[u8], b: &[u8]) -> Ordering {
    compare(dimension.datatype, dimension.cell_val_num, a, b).unwrap_or(Ordering::Equal)
}

/// [`compare_unsigned`] with strings in the order of signed bytes.
fn compare_signed(dimension: &Dimension, a: &[u8], b: &[u8]) -> Ordering {
    match dimension.cell_val_num.is_var() {
        true => a
            .iter()
            .map(|byte| byte.cast_signed())
            .cmp(b.iter().map(|byte| byte.cast_signed())),
        false => compare_unsigned(dimension, a, b),
    }
}

impl Along {
    fn compare_tiles(&self, a: &[u8], b: &[u8]) -> Ordering {
        let Some((origin, extent)) = self.tiles else {
            return Ordering::Equal;
        };
        let d = &self.dimension;
        let tile = |v: &[u8]| number(d, v).map(|v| (v.wrapping_sub(origin) & d.datatype.mask()) / extent);
        tile(a).cmp(&tile(b))
    }
}

/// Whether the library numbered the tiles of a signed dimension wrongly: before format 5 in the dimension's
/// own type, whatever the width of the domain; from 5 to 8 in f64; from 9 to 13 in C's int if the type is
/// narrower, on both sides of zero.
fn overflows(dimension: &Dimension, lo: u64, hi: u64, library_version: u32) -> bool {
    let kind = dimension.datatype.kind();
    let signed = matches!(kind, Kind::Signed | Kind::Datetime | Kind::Time);
    let mask = dimension.datatype.mask();
    let sign = mask ^ (mask >> 1);
    let width = hi.wrapping_sub(lo);
    signed
        && match library_version {
            0..=4 => width & sign != 0,
            5..=8 => width >> f64::MANTISSA_DIGITS != 0,
            9..=13 => dimension.datatype.size() < 4 && lo & sign != 0 && hi & sign == 0,
            _ => false,
        }
}

/// An integer coordinate or extent as the low bits of a u64; None for other types.
fn number(dimension: &Dimension, bytes: &[u8]) -> Option<u64> {
    Scalar::bits(dimension.datatype, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::Datatype;
    use crate::format::range::Range;
    use crate::format::testing::{field, schema, var};

    /// Two dimensions of INT8 from -10 on, in tiles of 6.
    fn order(tile_order: Layout, cell_order: Layout) -> WrittenOrder {
        let dimensions = [field("x", Datatype::Int8), field("y", Datatype::Int8)];
        let mut schema = schema(22, true, &dimensions, &[]);
        (schema.tile_order, schema.cell_order) = (tile_order, cell_order);
        for d in &mut schema.dimensions {
            d.domain = Some(Range {
                lo: vec![(-10i8).cast_unsigned()],
                hi: vec![100],
            });
            d.tile_extent = Some(vec![6]);
        }
        // These formats numbered such tiles wrongly.
        assert!((9..=13).all(|version| WrittenOrder::new(&schema, version).is_none()));
        assert!(WrittenOrder::new(&schema, 4).is_some());
        schema.dimensions[0].domain.as_mut().unwrap().lo = vec![(-100i8).cast_unsigned()];
        assert!(WrittenOrder::new(&schema, 4).is_none());
        schema.dimensions[0].domain.as_mut().unwrap().lo = vec![(-10i8).cast_unsigned()];
        WrittenOrder::new(&schema, 22).unwrap()
    }

    #[test]
    fn tiles_come_before_cells() {
        let compare = |order: &WrittenOrder, a: (i8, i8), b: (i8, i8)| {
            let bytes = |v: i8| [v.cast_unsigned()];
            let (ax, ay, bx, by) = (bytes(a.0), bytes(a.1), bytes(b.0), bytes(b.1));
            order.compare(&[&ax, &ay], &[&bx, &by])
        };
        let rows = order(Layout::RowMajor, Layout::RowMajor);
        // (-5, -10) is in the first tile, (-10, -4) in the tile next to it.
        assert_eq!(compare(&rows, (-5, -10), (-10, -4)), Ordering::Less);
        assert_eq!(compare(&rows, (-9, -8), (-8, -9)), Ordering::Less);
        assert_eq!(compare(&rows, (1, 1), (1, 1)), Ordering::Equal);
        let mixed = order(Layout::RowMajor, Layout::ColMajor);
        assert_eq!(compare(&mixed, (-9, -8), (-8, -9)), Ordering::Greater);
        assert_eq!(compare(&mixed, (-10, -4), (-4, -10)), Ordering::Less);
        let columns = order(Layout::ColMajor, Layout::RowMajor);
        assert_eq!(compare(&columns, (-10, -4), (-4, -10)), Ordering::Greater);
    }

    #[test]
    fn orders_that_depend_on_rounding_are_left_alone() {
        let mut strings = schema(22, true, &[var("s", Datatype::StringAscii)], &[]);
        let order = WrittenOrder::new(&strings, 22).unwrap();
        assert_eq!(order.compare(&[b"a\0b"], &[b"a\0a"]), Ordering::Greater);
        assert_eq!(order.compare(&[b"\x81"], &[b"\x80"]), Ordering::Greater);
        assert_eq!(order.compare(&[b"\x80"], &[b"a"]), Ordering::Less);
        assert_eq!(order.compare(&[b"a"], &[b"\x80"]), Ordering::Less);
        strings.cell_order = Layout::Hilbert;
        let order = WrittenOrder::new(&strings, 22).unwrap();
        assert!(WrittenOrder::new(&strings, 7).is_none());
        assert_eq!(order.compare(&[b"b"], &[b"aa"]), Ordering::Greater);
        assert_eq!(order.compare(&[b"\x80"], &[b"aa"]), Ordering::Less);
        let mut floats = schema(22, true, &[field("f", Datatype::Float32)], &[]);
        floats.dimensions[0].tile_extent = None;
        assert!(WrittenOrder::new(&floats, 22).is_some());
        floats.dimensions[0].tile_extent = Some(1f32.to_le_bytes().to_vec());
        assert!(WrittenOrder::new(&floats, 22).is_none());
    }
}
