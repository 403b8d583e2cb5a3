//! The number of tiles of a fragment, and of cells in a tile.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/fragment/fragment_metadata.cc>

use crate::error::{Error, Result};
use crate::format::datatype::Datatype;
use crate::format::fragment::Footer;
use crate::format::range::Range;
use crate::format::scalar::Scalar;
use crate::format::schema::{Dimension, Schema};

/// The tiles of one fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of tiles.
    pub tile_num: u64,
    /// Cells of each tile but the last.
    pub tile_cells: u64,
    /// Cells of the last tile.
    pub last_tile_cells: u64,
    /// Cells of all tiles; in dense fragments with the padding.
    pub cell_num: u64,
    /// Cells without the padding: those in a dense fragment's non-empty domain.
    pub cells_in_domain: u64,
}

impl Geometry {
    /// `LimitExceeded` if there are 2^64 cells or more.
    pub fn new(tile_num: u64, tile_cells: u64, last_tile_cells: u64) -> Result<Geometry> {
        let cell_num = match tile_num.checked_sub(1) {
            None => Some(0),
            Some(full) => full
                .checked_mul(tile_cells)
                .and_then(|cells| cells.checked_add(last_tile_cells)),
        };
        let cell_num = cell_num.ok_or_else(|| {
            Error::limit(format!(
                "{tile_num} tiles of {tile_cells} cells are more than 2^64 cells"
            ))
        })?;
        Ok(Geometry {
            tile_num,
            tile_cells,
            last_tile_cells,
            cell_num,
            cells_in_domain: cell_num,
        })
    }

    /// Tiles of a sparse fragment: `capacity` cells each, except the last.
    pub fn sparse(tile_num: u64, capacity: u64, last_tile_cells: u64) -> Result<Geometry> {
        if tile_num > 0 && !(1..=capacity).contains(&last_tile_cells) {
            return Err(Error::corrupt(format!(
                "the last tile has {last_tile_cells} cells, expected 1 to {capacity}"
            )));
        }
        Self::new(tile_num, capacity, last_tile_cells)
    }

    /// Tiles of a dense fragment: all that its non-empty domain touches, each stored in full. If it
    /// has no non-empty domain, it has no tiles.
    pub fn dense(schema: &Schema, non_empty_domain: Option<&[Range]>) -> Result<Geometry> {
        let Some(non_empty_domain) = non_empty_domain else {
            return Self::new(0, 0, 0);
        };
        let (mut tile_num, mut tile_cells, mut cells_in_domain) = (1u64, 1u64, 1u64);
        if non_empty_domain.len() != schema.dimensions.len() {
            return Err(Error::corrupt(format!(
                "the non-empty domain has {} dimensions, but the array has {}",
                non_empty_domain.len(),
                schema.dimensions.len()
            )));
        }
        for (dimension, range) in schema.dimensions.iter().zip(non_empty_domain) {
            let axis = dense_axis(dimension, range).map_err(|e| {
                e.in_part(format_args!(
                    "dimension `{}`",
                    String::from_utf8_lossy(&dimension.name)
                ))
            })?;
            let DenseAxis { tiles, extent, .. } = axis;
            tile_num = tile_num.checked_mul(tiles).ok_or_else(overflow)?;
            tile_cells = tile_cells.checked_mul(extent).ok_or_else(overflow)?;
            let cells = tiles.checked_mul(extent).ok_or_else(overflow)? - axis.padding();
            cells_in_domain = cells_in_domain.checked_mul(cells).ok_or_else(overflow)?;
        }
        Ok(Geometry {
            cells_in_domain,
            ..Self::new(tile_num, tile_cells, tile_cells)?
        })
    }

    /// The tiles of a fragment with this footer.
    pub fn of_footer(footer: &Footer, schema: &Schema) -> Result<Geometry> {
        match footer.dense {
            true => Self::dense(schema, footer.non_empty_domain.as_deref()),
            false => Self::sparse(footer.sparse_tile_num, schema.capacity, footer.last_tile_cell_num),
        }
    }

    /// Cells of tile `tile`.
    pub fn cells_of(&self, tile: u64) -> u64 {
        if tile + 1 == self.tile_num {
            self.last_tile_cells
        } else {
            self.tile_cells
        }
    }
}

/// A dimension of a dense array. Cells along it have unsigned indexes, counted from the lower end of the
/// domain. So signed, unsigned and temporal dimensions are the same, up to a domain of all 64-bit numbers.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// The type of its coordinates.
    pub datatype: Datatype,
    /// The lower end of the domain, as unsigned bits.
    pub origin: u64,
    /// The last index of the domain.
    pub last: u64,
    /// Cells of a tile.
    pub extent: u64,
}

impl Axis {
    /// `Corrupt` if the dimension has no domain, no tile extent or no integers.
    pub fn new(dimension: &Dimension) -> Result<Axis> {
        let (Some(domain), Some(extent)) = (&dimension.domain, &dimension.tile_extent) else {
            return Err(Error::corrupt(
                "a dimension of a dense array needs a domain and a tile extent",
            ));
        };
        let datatype = dimension.datatype;
        let origin = integer(datatype, &domain.lo)?;
        // A negative extent of a signed type means the unsigned number with the same bits.
        let extent = integer(datatype, extent)?;
        if extent == 0 {
            return Err(Error::corrupt("the tile extent is 0"));
        }
        Ok(Axis {
            datatype,
            origin,
            last: integer(datatype, &domain.hi)?.wrapping_sub(origin) & datatype.mask(),
            extent,
        })
    }

    /// The index of a stored coordinate; above the domain's last index if it is outside the domain.
    pub fn index(&self, coordinate: &[u8]) -> Result<u64> {
        Ok(integer(self.datatype, coordinate)?.wrapping_sub(self.origin) & self.datatype.mask())
    }

    /// The size of a coordinate in bytes.
    pub fn size(&self) -> usize {
        self.datatype.size()
    }

    /// The stored coordinate of an index: little-endian, in the first [`Axis::size`] bytes.
    pub fn coordinate(&self, index: u64) -> [u8; 8] {
        self.origin.wrapping_add(index).to_le_bytes()
    }

    /// First and last index of tile number `tile`. The last tile may exceed the domain.
    pub fn tile(&self, tile: u64) -> (u64, u64) {
        let first = tile * self.extent;
        (first, first.saturating_add(self.extent - 1))
    }
}

/// The extent of a dense fragment along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseAxis {
    /// Number of tiles.
    pub tiles: u64,
    /// Cells of a tile.
    pub extent: u64,
    /// The first cell in the first tile.
    pub first: u64,
    /// The last cell in the last tile, inclusive.
    pub last: u64,
}

impl DenseAxis {
    /// Cells of the tiles outside of the range.
    fn padding(&self) -> u64 {
        self.first + (self.extent - 1 - self.last)
    }
}

fn overflow() -> Error {
    Error::limit("the dense fragment has more than 2^64 cells")
}

/// The axis of `range`, the range of a dense fragment's non-empty domain in one dimension.
pub fn dense_axis(dimension: &Dimension, range: &Range) -> Result<DenseAxis> {
    let axis = Axis::new(dimension)?;
    let (low, high) = (axis.index(&range.lo)?, axis.index(&range.hi)?);
    if low > high {
        let message = "the lower bound of the non-empty domain is above the upper one";
        return Err(Error::corrupt(message));
    }
    let extent = axis.extent;
    let tiles = (high / extent - low / extent).checked_add(1);
    Ok(DenseAxis {
        tiles: tiles.ok_or_else(overflow)?,
        extent,
        first: low % extent,
        last: high % extent,
    })
}

/// A stored integer in the low bits of a u64. `Corrupt` if the type is not integral.
fn integer(datatype: Datatype, bytes: &[u8]) -> Result<u64> {
    Scalar::bits(datatype, bytes).ok_or_else(|| {
        Error::corrupt(format!(
            "a dimension of a dense array cannot have type {}",
            datatype.name()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::CellValNum;

    fn dimension(lo: i8, hi: i8, extent: u8) -> Dimension {
        Dimension {
            name: b"x".to_vec(),
            datatype: Datatype::Int8,
            cell_val_num: CellValNum::Fixed(1),
            filters: Default::default(),
            domain: Some(Range {
                lo: vec![lo.cast_unsigned()],
                hi: vec![hi.cast_unsigned()],
            }),
            tile_extent: Some(vec![extent]),
        }
    }

    fn range(lo: i8, hi: i8) -> Range {
        Range {
            lo: vec![lo.cast_unsigned()],
            hi: vec![hi.cast_unsigned()],
        }
    }

    #[test]
    fn tiles_of_a_signed_domain_wider_than_its_maximum() {
        let axis = |tiles, extent, first, last| DenseAxis {
            tiles,
            extent,
            first,
            last,
        };
        let d = dimension(-128, 127, 200);
        assert_eq!(dense_axis(&d, &range(-128, 127)).unwrap(), axis(2, 200, 0, 55));
        assert_eq!(dense_axis(&d, &range(-128, 71)).unwrap(), axis(1, 200, 0, 199));
        assert_eq!(dense_axis(&d, &range(72, 72)).unwrap(), axis(1, 200, 0, 0));
        let d = dimension(-10, 9, 6);
        assert_eq!(dense_axis(&d, &range(-5, -4)).unwrap(), axis(2, 6, 5, 0));
        assert!(dense_axis(&d, &range(5, -5)).is_err());
        assert!(dense_axis(&dimension(0, 9, 0), &range(0, 1)).is_err());
    }

    #[test]
    fn padding_is_told_apart() {
        let cells = |lo, hi| {
            let (dimension, range) = (dimension(-10, 9, 6), range(lo, hi));
            let axis = dense_axis(&dimension, &range).unwrap();
            axis.tiles * axis.extent - axis.padding()
        };
        assert_eq!([cells(-10, 9), cells(-5, -4), cells(3, 3)], [20, 2, 1]);
    }

    #[test]
    fn cell_counts_are_checked() {
        let g = Geometry::sparse(3, 10, 4).unwrap();
        assert_eq!((g.cell_num, g.cells_of(1), g.cells_of(2)), (24, 10, 4));
        assert_eq!(Geometry::sparse(0, 10, 0).unwrap().cell_num, 0);
        assert!(Geometry::sparse(3, 10, 11).is_err());
        assert!(Geometry::sparse(3, 10, 0).is_err());
        assert!(Geometry::new(u64::MAX, u64::MAX, 1).is_err());
    }
}
