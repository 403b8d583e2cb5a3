//! Array schemas: the unfiltered body of a schema's generic tile, format versions 1 to 23.

use super::datatype::{CellValNum, Datatype};
use super::enums::{ArrayType, DataOrder, Layout};
use super::pipeline::Pipeline;
use super::range::{Range, Rect};
use crate::error::Result;

/// An array schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// Format version that it was written in.
    pub version: u32,
    /// Whether two cells may have equal coordinates; false below version 5.
    pub allows_duplicates: bool,
    /// Dense or sparse.
    pub array_type: ArrayType,
    /// Order of tiles in the domain.
    pub tile_order: Layout,
    /// Order of cells in a tile.
    pub cell_order: Layout,
    /// Cells of a tile of a sparse fragment.
    pub capacity: u64,
    /// Pipeline of zipped coordinates, of dimensions without one of their own, and of timestamps.
    pub coords_filters: Pipeline,
    /// Pipeline of all offsets.
    pub offsets_filters: Pipeline,
    /// Pipeline of all validity bytes; None below version 7.
    pub validity_filters: Option<Pipeline>,
    /// In the order of the domain; never empty.
    pub dimensions: Vec<Dimension>,
    /// In the order that numbers their files.
    pub attributes: Vec<Attribute>,
    /// From version 18.
    pub dimension_labels: Vec<DimensionLabel>,
    /// Name and file name of each enumeration, as stored; from version 20.
    pub enumerations: Vec<EnumerationRef>,
    /// From version 22; None below it or where it is stored as empty.
    pub current_domain: Option<Rect>,
}

/// A dimension of the domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// As stored; may be empty.
    pub name: Vec<u8>,
    /// Type of a coordinate.
    pub datatype: Datatype,
    /// 1, or var for strings.
    pub cell_val_num: CellValNum,
    /// Its own pipeline; empty when it uses [`Schema::coords_filters`].
    pub filters: Pipeline,
    /// None for strings.
    pub domain: Option<Range>,
    /// One little-endian value; None where there are no tiles along it.
    pub tile_extent: Option<Vec<u8>>,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// As stored; may be empty (`__attr` below version 5).
    pub name: Vec<u8>,
    /// Type of a value.
    pub datatype: Datatype,
    /// Values a cell.
    pub cell_val_num: CellValNum,
    /// Its pipeline.
    pub filters: Pipeline,
    /// Value of a cell that was never written: one cell, or for var-sized ones any length. The type's default below version 6.
    pub fill_value: Vec<u8>,
    /// Whether such a cell is valid (not null); false below version 7.
    pub fill_value_valid: bool,
    /// Whether cells may be null.
    pub nullable: bool,
    /// From version 17; unordered below.
    pub order: DataOrder,
    /// Name of the enumeration that its values index; from version 20.
    pub enumeration: Option<Vec<u8>>,
}

/// A dimension label: an array whose values name the coordinates of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct DimensionLabel {
    /// Index of the dimension that it labels.
    pub dimension_index: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Whether `uri` is relative to the array.
    pub relative: bool,
    /// Where its array lies, e.g. `__labels/l0`.
    pub uri: Vec<u8>,
    /// The attribute of that array which holds the labels.
    pub attribute: Vec<u8>,
    /// Whether labels are sorted.
    pub order: DataOrder,
    /// Type of a label.
    pub datatype: Datatype,
    /// Values a label.
    pub cell_val_num: CellValNum,
    /// Whether its array belongs to somebody else.
    pub external: bool,
}

/// Where an enumeration is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct EnumerationRef {
    /// The name by which attributes refer to it.
    pub name: Vec<u8>,
    /// A file in `__schema/__enumerations/`.
    pub file: Vec<u8>,
}

impl Schema {
    /// Parses the unfiltered body of a schema's generic tile. `UnsupportedVersion` above [`super::MAX_VERSION`] (the bytes are not looked at further).
    pub fn parse(body: &[u8]) -> Result<Schema> {
        let _ = body;
        unimplemented!("format helper")
    }
}
