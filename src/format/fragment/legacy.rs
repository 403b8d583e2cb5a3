//! The fragment metadata of versions 1 and 2: one generic tile without a footer.

use super::slots::Slots;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::range::Rect;
use crate::format::read;
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
        read::whole("fragment metadata", body, |c| Self::parse_body(c, schema))
    }

    fn parse_body(c: &mut Cursor<'_>, schema: &Schema) -> Result<LegacyMetadata> {
        let version = c.u32("version")?;
        read::check_version(version, 0)?;
        if version > 2 {
            return Err(c.corrupt("version", format!("version {version} has a footer")));
        }
        // Dimensions are fixed-size below version 5; anything else does not belong to this fragment.
        let cell = schema
            .coordinates_size()
            .ok_or_else(|| Error::corrupt("var-sized dimensions"))?;
        let box_size = cell.saturating_mul(2);
        let domain_size = c.u64("non_empty_domain_size")?;
        let non_empty_domain = match domain_size {
            0 => None,
            size if size == box_size => {
                let domain = schema.parse_rect(c, "non_empty_domain")?;
                schema
                    .check_rect(&domain)
                    .map_err(|e| e.at(c.offset()).in_part("`non_empty_domain`"))?;
                Some(domain)
            }
            size => {
                let message = format!("{size} bytes for a box of {box_size}");
                return Err(c.corrupt("non_empty_domain_size", message));
            }
        };
        let min_size = schema.min_rect_size();
        let mbr_num = c.u64("mbr_num")?;
        c.check_count(mbr_num, min_size, "mbr_num")?;
        let mbrs: Vec<Rect> = (0..mbr_num)
            .map(|_| schema.parse_rect(c, "mbr"))
            .collect::<Result<_>>()?;
        let bounding_num = c.u64("bounding_coords_num")?;
        c.check_count(bounding_num, min_size, "bounding_coords_num")?;
        let bounding_coords = (0..bounding_num)
            .map(|_| Ok([parse_cell(c, schema)?, parse_cell(c, schema)?]))
            .collect::<Result<_>>()?;
        let slots = Slots {
            version,
            attributes: schema.attributes.len(),
            dimensions: schema.dimensions.len(),
            has_timestamps: false,
            has_delete_metadata: false,
        };
        let tile_offsets = parse_lists(c, slots.fixed(), "tile_offsets")?;
        let tile_var_offsets = parse_lists(c, slots.var(), "tile_var_offsets")?;
        let tile_var_sizes = parse_lists(c, slots.var(), "tile_var_sizes")?;
        let last_tile_cell_num = c.u64("last_tile_cell_num")?;
        if !mbrs.is_empty() && !(1..=schema.capacity).contains(&last_tile_cell_num) {
            let message = format!("{last_tile_cell_num} cells where tiles hold {}", schema.capacity);
            return Err(c.corrupt("last_tile_cell_num", message));
        }
        Ok(LegacyMetadata {
            version,
            non_empty_domain,
            mbrs,
            bounding_coords,
            tile_offsets,
            tile_var_offsets,
            tile_var_sizes,
            last_tile_cell_num,
            file_sizes: c.u64_list(slots.fixed() as u64, "file_sizes")?,
            file_var_sizes: c.u64_list(slots.var() as u64, "file_var_sizes")?,
        })
    }
}

/// Reads the coordinates of one cell, by dimension.
fn parse_cell(c: &mut Cursor<'_>, schema: &Schema) -> Result<Vec<Vec<u8>>> {
    schema
        .dimensions
        .iter()
        .map(|d| Ok(c.bytes(d.cell_size().unwrap_or(0), "bounding_coords")?.to_vec()))
        .collect()
}

/// Reads `count` lists of u64, each behind its length.
fn parse_lists(c: &mut Cursor<'_>, count: usize, field: &str) -> Result<Vec<Vec<u64>>> {
    c.check_count(count as u64, 8, field)?;
    (0..count)
        .map(|_| {
            let length = c.u64(field)?;
            c.u64_list(length, field)
        })
        .collect()
}
