//! The generic tiles that a footer points to, each parsed from its unfiltered body.

use crate::error::Result;
use crate::format::range::Rect;
use crate::format::schema::Schema;

/// The R-tree over the MBRs of a sparse fragment's tiles.
#[derive(Debug, Clone, PartialEq)]
pub struct RTree {
    /// Children of a node.
    pub fanout: u32,
    /// Root first, leaves last; leaf `i` is the MBR of tile `i`. No levels in a dense fragment.
    pub levels: Vec<Vec<Rect>>,
}

/// The minimum (or maximum) of each tile, for one field.
#[derive(Debug, Clone, PartialEq)]
pub struct MinMax {
    /// Fixed-size field: one cell for each tile. Var-sized: one u64 for each tile, its start in `var`.
    pub fixed: Vec<u8>,
    /// Var-sized field: the values.
    pub var: Vec<u8>,
}

/// The statistics of one field over a whole fragment.
#[derive(Debug, Clone, PartialEq)]
pub struct FragmentStatistics {
    /// Least value; empty where there is none.
    pub min: Vec<u8>,
    /// Greatest value; empty where there is none.
    pub max: Vec<u8>,
    /// Sum of all values that are not null: i64, u64 or f64 after the field's type.
    pub sum: [u8; 8],
    /// Number of null cells.
    pub null_count: u64,
}

impl RTree {
    /// Parses an R-tree of a fragment of `version`; below 5 the dimension count and datatype are stored with it.
    pub fn parse(body: &[u8], version: u32, schema: &Schema) -> Result<RTree> {
        let _ = (body, version, schema);
        unimplemented!("format helper")
    }
}

impl MinMax {
    /// Parses a list of mins or maxs.
    pub fn parse(body: &[u8]) -> Result<MinMax> {
        let _ = body;
        unimplemented!("format helper")
    }

    /// The bytes of tile `tile`, given the cell size of a fixed-size field (None: var-sized). None where the tile has no entry.
    pub fn tile(&self, tile: u64, cell_size: Option<u64>) -> Option<&[u8]> {
        let _ = (tile, cell_size);
        unimplemented!("format helper")
    }
}

/// Parses a list of u64: tile offsets, var offsets, var sizes, validity offsets, null counts, and sums (whose eight bytes the caller interprets).
pub fn parse_u64_list(body: &[u8]) -> Result<Vec<u64>> {
    let _ = body;
    unimplemented!("format helper")
}

/// Parses the statistics of all `slots` slots (version 12 and later).
pub fn parse_fragment_statistics(body: &[u8], slots: usize) -> Result<Vec<FragmentStatistics>> {
    let _ = (body, slots);
    unimplemented!("format helper")
}

/// Parses the processed conditions (version 16 and later): array-relative paths of delete files.
pub fn parse_processed_conditions(body: &[u8]) -> Result<Vec<Vec<u8>>> {
    let _ = body;
    unimplemented!("format helper")
}
