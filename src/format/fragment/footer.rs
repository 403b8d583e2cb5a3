//! The footer of `__fragment_metadata.tdb`, format versions 3 to 23.

use super::slots::Slots;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::format::range::Rect;
use crate::format::schema::Schema;

/// A decoded footer. Lists are indexed by slot, see [`Slots`].
#[derive(Debug, Clone, PartialEq)]
pub struct Footer {
    /// Format version of the footer itself; may differ from the one in the fragment's name below 5.
    pub version: u32,
    /// File name of the schema that the fragment was written with; from version 10.
    pub schema_name: Option<Vec<u8>>,
    /// Whether cells are stored by position.
    pub dense: bool,
    /// Bounding box of the cells; None where stored as null.
    pub non_empty_domain: Option<Rect>,
    /// Tiles of a sparse fragment; 0 in a dense one.
    pub sparse_tile_num: u64,
    /// Cells of the last tile.
    pub last_tile_cell_num: u64,
    /// Whether the fragment stores a timestamp for each cell; from version 14.
    pub has_timestamps: bool,
    /// Whether the fragment stores delete timestamps and condition indexes; from version 15.
    pub has_delete_metadata: bool,
    /// Bytes of each slot's data (or offsets) file.
    pub file_sizes: Vec<u64>,
    /// Bytes of each slot's var data file.
    pub file_var_sizes: Vec<u64>,
    /// Bytes of each slot's validity file; empty below version 7.
    pub file_validity_sizes: Vec<u64>,
    /// Where the generic tiles before the footer lie.
    pub offsets: SectionOffsets,
    /// From version 23.
    pub optional_sections: Vec<OptionalSection>,
    /// The numbering of the lists.
    pub slots: Slots,
}

/// Offsets into the metadata file of the generic tiles that hold each section; lists by slot, empty where the version lacks them.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)]
pub struct SectionOffsets {
    pub rtree: u64,
    pub tile_offsets: Vec<u64>,
    pub tile_var_offsets: Vec<u64>,
    pub tile_var_sizes: Vec<u64>,
    /// From version 7.
    pub tile_validity_offsets: Vec<u64>,
    /// From version 11, as are the next three.
    pub tile_mins: Vec<u64>,
    pub tile_maxs: Vec<u64>,
    pub tile_sums: Vec<u64>,
    pub tile_null_counts: Vec<u64>,
    /// From version 12 (also what a newer library appends to a version 11 footer).
    pub fragment_statistics: Option<u64>,
    /// From version 16.
    pub processed_conditions: Option<u64>,
    /// By dimension, from an optional section of version 23, sparse only; empty otherwise.
    pub global_order_mins: Vec<u64>,
    /// As `global_order_mins`.
    pub global_order_maxs: Vec<u64>,
}

/// A section that version 23 allows behind the known fields.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionalSection {
    /// Its identifier; 0 is the global-order bounds.
    pub id: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// Where the footer lies in a metadata file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FooterPosition {
    /// First byte.
    pub offset: u64,
    /// Bytes, without the length word.
    pub size: u64,
}

impl Footer {
    /// Finds the footer in a metadata file of `file_size` bytes whose last eight bytes are `last_word` (shorter files are
    /// `Truncated`). `name_version` is the version in the fragment's name. From version 10, and with a var-sized dimension, the last word holds the length;
    /// otherwise it follows from the schema. The schema is only needed below version 10: pass None when the name says 10 or more.
    pub fn locate(
        name_version: u32,
        schema: Option<&Schema>,
        file_size: u64,
        last_word: [u8; 8],
    ) -> Result<FooterPosition> {
        let _ = (name_version, schema, file_size, last_word);
        unimplemented!("format helper")
    }

    /// Reads only the version word and, from version 10, the schema's name from the front of a footer, so that the schema can be loaded that the rest needs.
    pub fn peek_schema_name(footer: &[u8]) -> Result<(u32, Option<Vec<u8>>)> {
        let _ = footer;
        unimplemented!("format helper")
    }

    /// Parses one footer with the fragment's own schema. Leaves the cursor behind it. `exact` says that the cursor holds this footer and nothing else, which
    /// is the case everywhere but in consolidated fragment metadata. Checks counts, tile numbers and section offsets as far as the footer alone allows.
    pub fn parse(c: &mut Cursor<'_>, schema: &Schema, exact: bool) -> Result<Footer> {
        let _ = (c, schema, exact);
        unimplemented!("format helper")
    }
}
