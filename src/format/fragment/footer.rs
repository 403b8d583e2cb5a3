//! The footer of `__fragment_metadata.tdb`, format versions 3 to 23; see [`super::legacy`] for versions 1
//! and 2.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/fragment.md>

use super::legacy::InlineSections;
use super::slots::Slots;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::format::enums::ArrayType;
use crate::format::range::{self, Rect};
use crate::format::read;
use crate::format::schema::Schema;
use std::cmp::Ordering;

/// Identifier of the optional section with the offsets of the global-order bounds.
const GLOBAL_ORDER_BOUNDS: u64 = 0;

/// Bytes of a generic tile's header, the least that a section takes.
const GENERIC_TILE_HEADER: u64 = 34;

/// A decoded footer. Lists are indexed by slot: see [`Slots`].
#[derive(Debug, Clone, PartialEq)]
pub struct Footer {
    /// Format version of the footer itself; below 5 it may differ from the one in the fragment's name.
    pub version: u32,
    /// File name of the schema that the fragment was written with; from version 10.
    pub schema_name: Option<Vec<u8>>,
    /// Whether cells are stored by position.
    pub dense: bool,
    /// Bounding box of the cells; None if stored as null.
    pub non_empty_domain: Option<Rect>,
    /// Tiles of a sparse fragment; 0 for a dense one.
    pub sparse_tile_num: u64,
    /// Cells of the last tile.
    pub last_tile_cell_num: u64,
    /// Bytes of each slot's data (or offsets) file.
    pub file_sizes: Vec<u64>,
    /// Bytes of each slot's var data file.
    pub file_var_sizes: Vec<u64>,
    /// Bytes of each slot's validity file; empty below version 7.
    pub file_validity_sizes: Vec<u64>,
    /// The offsets of the generic tiles before the footer.
    pub offsets: SectionOffsets,
    /// What versions 1 and 2 have instead of these.
    pub inline: Option<InlineSections>,
    /// From version 23.
    pub optional_sections: Vec<OptionalSection>,
    /// The numbering of the lists.
    pub slots: Slots,
}

/// Offsets in the metadata file of each section's generic tile; lists are by slot, and empty if the version
/// lacks them.
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
    /// From version 12.
    pub fragment_statistics: Option<u64>,
    /// From version 16.
    pub processed_conditions: Option<u64>,
    /// By dimension, from an optional section of version 23, sparse only; empty otherwise.
    pub global_order_mins: Vec<u64>,
    /// As `global_order_mins`.
    pub global_order_maxs: Vec<u64>,
}

/// A section that version 23 allows after the known fields.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionalSection {
    /// The identifier; 0 is the global-order bounds.
    pub id: u64,
    /// The content.
    pub data: Vec<u8>,
}

/// The position of the footer in a metadata file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FooterPosition {
    /// First byte.
    pub offset: u64,
    /// Bytes without the length word.
    pub size: u64,
}

impl Footer {
    /// Finds the footer in a metadata file of `file_size` bytes whose last eight bytes are `last_word`
    /// (shorter files are `Truncated`). `name_version` is the version in the fragment's name. From version 10
    /// on, and with a var-sized dimension, the last word is the length; otherwise the length follows from the
    /// schema. Pass None for the schema if `name_version` is 10 or more.
    ///
    /// `InvalidInput` for versions without a footer, and for one below 10 without a schema;
    /// `UnsupportedVersion` for unknown ones.
    pub fn locate(
        name_version: u32,
        schema: Option<&Schema>,
        file_size: u64,
        last_word: [u8; 8],
    ) -> Result<FooterPosition> {
        Self::locate_in(name_version, schema, file_size, last_word)
            .map_err(|e| e.at(file_size.saturating_sub(8)).in_part("footer"))
    }

    fn locate_in(
        name_version: u32,
        schema: Option<&Schema>,
        file_size: u64,
        last_word: [u8; 8],
    ) -> Result<FooterPosition> {
        read::check_version(name_version, 0)?;
        let coordinates = schema.and_then(Schema::coordinates_size);
        let (size, end) = match (name_version, schema, coordinates) {
            (..3, ..) => {
                let message = format!("fragments of version {name_version} have no footer");
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            (..10, None, _) => {
                let message = format!("version {name_version} needs the schema to find the footer");
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            (..10, Some(schema), Some(coordinates)) => {
                (computed_size(name_version, schema, coordinates), file_size)
            }
            _ => {
                let end = file_size.checked_sub(8).ok_or_else(|| {
                    Error::truncated(format!(
                        "a file of {file_size} bytes has no room for a footer's length"
                    ))
                })?;
                (u64::from_le_bytes(last_word), end)
            }
        };
        match end.checked_sub(size) {
            Some(offset) => Ok(FooterPosition { offset, size }),
            None => Err(Error::truncated(format!(
                "the footer takes {size} bytes, more than the file has ({file_size})"
            ))),
        }
    }

    /// Reads only the fields before the non-empty domain, which need no schema.
    ///
    /// `Corrupt` if the schema's name could lead out of the directory of schemas, `UnsupportedVersion` for
    /// unknown versions.
    pub fn peek(c: &mut Cursor<'_>) -> Result<FooterFront> {
        FooterFront::parse(c).map_err(|e| e.in_part("footer"))
    }

    /// Parses one footer with the fragment's own schema, and leaves the cursor after it. `exact` says that
    /// the cursor holds nothing else, as is the case outside consolidated fragment metadata. Checks counts,
    /// tile numbers and section offsets as far as the footer alone allows.
    ///
    /// A non-empty domain that is marked as null may still have dummy bytes. Only the number of bytes left
    /// tells; without `exact`, the first reading that parses is taken. [`Footer::check_sections`] checks the
    /// targets of the section offsets.
    pub fn parse(c: &mut Cursor<'_>, schema: &Schema, exact: bool) -> Result<Footer> {
        Self::peek(c)?.parse_rest(c, schema, exact)
    }

    /// Bytes of all files of fields; None beyond 2^64.
    pub fn files_size(&self) -> Option<u64> {
        let lists = [&self.file_sizes, &self.file_var_sizes, &self.file_validity_sizes];
        let mut sizes = lists.into_iter().flatten();
        sizes.try_fold(0u64, |sum, size| sum.checked_add(*size))
    }

    /// Checks that every section is before `end`, the offset of the footer in the metadata file. Offset 0
    /// means that the field has no such section.
    pub fn check_sections(&self, end: u64) -> Result<()> {
        let o = &self.offsets;
        let lists: [(&str, &[u64]); 13] = [
            ("rtree", &[o.rtree]),
            ("tile_offsets", &o.tile_offsets),
            ("tile_var_offsets", &o.tile_var_offsets),
            ("tile_var_sizes", &o.tile_var_sizes),
            ("tile_validity_offsets", &o.tile_validity_offsets),
            ("tile_mins", &o.tile_mins),
            ("tile_maxs", &o.tile_maxs),
            ("tile_sums", &o.tile_sums),
            ("tile_null_counts", &o.tile_null_counts),
            ("fragment_statistics", o.fragment_statistics.as_slice()),
            ("processed_conditions", o.processed_conditions.as_slice()),
            ("global_order_mins", &o.global_order_mins),
            ("global_order_maxs", &o.global_order_maxs),
        ];
        for (name, offsets) in lists {
            for &offset in offsets {
                if offset != 0 && offset.checked_add(GENERIC_TILE_HEADER).is_none_or(|e| e > end) {
                    let message = format!(
                        "the footer places the section at byte {offset}, but sections end at byte {end}"
                    );
                    return Err(Error::corrupt(message)
                        .at(end)
                        .in_part(format_args!("`{name}`"))
                        .in_part("footer"));
                }
            }
        }
        Ok(())
    }
}

/// The fields before the non-empty domain.
#[derive(Debug, Clone, PartialEq)]
pub struct FooterFront {
    /// Format version.
    pub version: u32,
    /// File name of the schema that the fragment was written with; from version 10.
    pub schema_name: Option<Vec<u8>>,
    /// Whether cells are stored by position.
    pub dense: bool,
}

impl FooterFront {
    fn parse(c: &mut Cursor<'_>) -> Result<FooterFront> {
        let offset = c.offset();
        let version = c.u32("version")?;
        read::check_version(version, offset)?;
        if version < 3 {
            return Err(c.corrupt(
                "version",
                format!("fragments of version {version} have no footer"),
            ));
        }
        let schema_name = if version < 10 {
            None
        } else {
            Some(read::text64(c, "schema_name")?)
        };
        if schema_name
            .as_ref()
            .is_some_and(|name| !read::is_plain_file_name(name))
        {
            return Err(c.corrupt("schema_name", "the name is not a plain file name"));
        }
        Ok(FooterFront {
            version,
            schema_name,
            dense: c.bool("dense")?,
        })
    }

    /// Parses the other fields: see [`Footer::parse`].
    pub fn parse_rest(self, c: &mut Cursor<'_>, schema: &Schema, exact: bool) -> Result<Footer> {
        self.parse_body(c, schema, exact).map_err(|e| e.in_part("footer"))
    }

    fn parse_body(self, c: &mut Cursor<'_>, schema: &Schema, exact: bool) -> Result<Footer> {
        let dense = self.dense;
        if dense && schema.array_type == ArrayType::Sparse {
            return Err(c.corrupt("dense", "a dense fragment in a sparse array"));
        }
        if !c.bool("null_non_empty_domain")? {
            let domain = schema.parse_rect(c, "non_empty_domain")?;
            check_domain(&domain, dense, schema)
                .map_err(|e| e.at(c.offset()).in_part("`non_empty_domain`"))?;
            return self.parse_behind_domain(c, Some(domain), schema, exact);
        }
        // Writers put zeros in place of a null domain; readers of version 5 and later do not expect them.
        if let Some(dummy) = schema.coordinates_size().map(|size| size * 2) {
            let mut attempt = c.clone();
            if attempt
                .bytes(dummy, "non_empty_domain")
                .is_ok_and(|bytes| bytes.iter().all(|&b| b == 0))
                && let Ok(footer) = self
                    .clone()
                    .parse_behind_domain(&mut attempt, None, schema, exact)
            {
                *c = attempt;
                return Ok(footer);
            }
        }
        self.parse_behind_domain(c, None, schema, exact)
    }

    fn parse_behind_domain(
        self,
        c: &mut Cursor<'_>,
        non_empty_domain: Option<Rect>,
        schema: &Schema,
        exact: bool,
    ) -> Result<Footer> {
        let version = self.version;
        let sparse_tile_num = c.u64("sparse_tile_num")?;
        let last_tile_cell_num = c.u64("last_tile_cell_num")?;
        if self.dense && sparse_tile_num != 0 {
            return Err(c.corrupt("sparse_tile_num", "a dense fragment has sparse tiles"));
        }
        if sparse_tile_num != 0 && !(1..=schema.capacity).contains(&last_tile_cell_num) {
            let message = format!(
                "{last_tile_cell_num} cells in the last tile, expected 1 to {}",
                schema.capacity
            );
            return Err(c.corrupt("last_tile_cell_num", message));
        }
        let slots = Slots {
            has_timestamps: version >= 14 && c.bool("has_timestamps")?,
            has_delete_metadata: version >= 15 && c.bool("has_delete_metadata")?,
            ..Slots::of(version, schema)
        };
        let (fixed, var) = (slots.fixed() as u64, slots.var() as u64);
        let (validity, tile_metadata) = (
            if version >= 7 { fixed } else { 0 },
            if version >= 11 { fixed } else { 0 },
        );
        let file_sizes = c.u64_list(fixed, "file_sizes")?;
        let file_var_sizes = c.u64_list(var, "file_var_sizes")?;
        let file_validity_sizes = c.u64_list(validity, "file_validity_sizes")?;
        let mut offsets = SectionOffsets {
            rtree: c.u64("rtree_offset")?,
            tile_offsets: c.u64_list(fixed, "tile_offsets_offsets")?,
            tile_var_offsets: c.u64_list(var, "tile_var_offsets_offsets")?,
            tile_var_sizes: c.u64_list(var, "tile_var_sizes_offsets")?,
            tile_validity_offsets: c.u64_list(validity, "tile_validity_offsets_offsets")?,
            tile_mins: c.u64_list(tile_metadata, "tile_mins_offsets")?,
            tile_maxs: c.u64_list(tile_metadata, "tile_maxs_offsets")?,
            tile_sums: c.u64_list(tile_metadata, "tile_sums_offsets")?,
            tile_null_counts: c.u64_list(tile_metadata, "tile_null_counts_offsets")?,
            ..SectionOffsets::default()
        };
        if version >= 12 {
            offsets.fragment_statistics = Some(c.u64("fragment_statistics_offset")?);
        } else if version == 11 && exact && c.remaining() == 8 {
            // Newer libraries put the field into version 11 too, but without such a section.
            c.u64("fragment_statistics_offset")?;
        }
        if version >= 16 {
            offsets.processed_conditions = Some(c.u64("processed_conditions_offset")?);
        }
        let mut optional_sections = Vec::new();
        if version >= 23 {
            optional_sections = read::items(c, "optional_section_num", 12, "optional section", |c| {
                OptionalSection::parse(c, schema, self.dense, &mut offsets)
            })?;
        }
        if exact {
            c.finish()?;
        }
        Ok(Footer {
            version,
            schema_name: self.schema_name,
            dense: self.dense,
            non_empty_domain,
            sparse_tile_num,
            last_tile_cell_num,
            file_sizes,
            file_var_sizes,
            file_validity_sizes,
            offsets,
            inline: None,
            optional_sections,
            slots,
        })
    }
}

impl OptionalSection {
    /// Reads one section. Also puts the bounds of a sparse fragment's tiles into `offsets`.
    fn parse(
        c: &mut Cursor<'_>,
        schema: &Schema,
        dense: bool,
        offsets: &mut SectionOffsets,
    ) -> Result<OptionalSection> {
        let id = c.u64("id")?;
        let size = c.u32("size")?;
        let base = c.offset();
        let data = c.bytes(u64::from(size), "data")?;
        if id == GLOBAL_ORDER_BOUNDS && !dense {
            let mut inner = Cursor::with_base(data, base);
            let dimensions = schema.dimensions.len() as u64;
            offsets.global_order_mins = inner.u64_list(dimensions, "global_order_mins_offsets")?;
            offsets.global_order_maxs = inner.u64_list(dimensions, "global_order_maxs_offsets")?;
            inner.finish()?;
        }
        Ok(OptionalSection {
            id,
            data: data.to_vec(),
        })
    }
}

/// Checks that bounds are in order, and that the box of a dense fragment begins inside the array's domain,
/// where its tiles are counted from. The box may end beyond the domain: consolidation once rounded up to
/// whole tiles.
fn check_domain(domain: &Rect, dense: bool, schema: &Schema) -> Result<()> {
    schema.check_rect(domain)?;
    if !dense {
        return Ok(());
    }
    for (i, (range, d)) in domain.iter().zip(&schema.dimensions).enumerate() {
        let Some(bounds) = &d.domain else { continue };
        let above = range::compare(d.datatype, d.cell_val_num, &range.lo, &bounds.lo);
        let below = range::compare(d.datatype, d.cell_val_num, &range.lo, &bounds.hi);
        if above == Some(Ordering::Less) || below == Some(Ordering::Greater) {
            let error = Error::corrupt("the non-empty domain begins outside of the array's domain");
            return Err(error.in_part(format_args!("dimension {i}")));
        }
    }
    Ok(())
}

/// Bytes of a footer of versions 3 to 9 if all dimensions are fixed-size, and coordinates take `coordinates`
/// bytes.
fn computed_size(version: u32, schema: &Schema, coordinates: u64) -> u64 {
    let slots = Slots::of(version, schema);
    let (fixed, var) = (slots.fixed() as u64, slots.var() as u64);
    let lists = match version {
        ..7 => 2 * fixed + 3 * var,
        _ => 4 * fixed + 3 * var,
    };
    // Version, two flags, the domain, two cell counts, the R-tree's offset, the lists.
    4 + 2 + 2 * coordinates + 16 + 8 + 8 * lists
}

#[cfg(test)]
mod tests;
