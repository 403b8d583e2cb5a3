//! The fragment metadata of versions 1 and 2: one generic tile without a footer.

use crate::error::Result;
use crate::format::range::Rect;
use crate::format::schema::Schema;

/// The whole metadata of a fragment of version 1 or 2. Lists are indexed by attribute, the last one being the coordinates where there is one more.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct LegacyMetadata {
    /// 1 or 2.
    pub version: u32,
    pub non_empty_domain: Option<Rect>,
    /// One rectangle for each tile of a sparse fragment.
    pub mbrs: Vec<Rect>,
    /// First and last cell of each tile: `[[coordinate bytes by dimension]; 2]`.
    pub bounding_coords: Vec<[Vec<Vec<u8>>; 2]>,
    /// Attributes, then coordinates.
    pub tile_offsets: Vec<Vec<u64>>,
    /// Attributes only.
    pub tile_var_offsets: Vec<Vec<u64>>,
    /// Attributes only.
    pub tile_var_sizes: Vec<Vec<u64>>,
    pub last_tile_cell_num: u64,
    /// Attributes, then coordinates.
    pub file_sizes: Vec<u64>,
    /// Attributes only.
    pub file_var_sizes: Vec<u64>,
}

impl LegacyMetadata {
    /// Parses the unfiltered body of the metadata's generic tile with the array's schema.
    pub fn parse(body: &[u8], schema: &Schema) -> Result<LegacyMetadata> {
        let _ = (body, schema);
        unimplemented!("format helper")
    }
}
