//! The fragment metadata of versions 1 and 2: one generic tile that has all, read as a [`Footer`] with
//! [`InlineSections`].
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/array_format_history.md>

use super::boxes::StoredBoxes;
use super::footer::{Footer, SectionOffsets};
use super::slots::Slots;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::read;
use crate::format::schema::Schema;

/// What versions 1 and 2 store together with the footer; later ones have sections of their own for it. Lists
/// are by slot, and those of var-sized data lack the coordinates.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct InlineSections {
    /// One box for each tile of a sparse fragment.
    pub mbrs: StoredBoxes,
    pub tile_offsets: Vec<Vec<u64>>,
    pub tile_var_offsets: Vec<Vec<u64>>,
    pub tile_var_sizes: Vec<Vec<u64>>,
}

/// Parses the unfiltered body of the metadata's generic tile with the array's schema. The body does not tell
/// whether the fragment is `dense`.
pub fn parse(body: &[u8], schema: &Schema, dense: bool) -> Result<Footer> {
    read::whole("fragment metadata", body, |c| parse_body(c, schema, dense))
}

fn parse_body(c: &mut Cursor<'_>, schema: &Schema, dense: bool) -> Result<Footer> {
    let version = c.u32("version")?;
    read::check_version(version, 0)?;
    if version > 2 {
        return Err(c.corrupt(
            "version",
            format!("fragments of version {version} have a footer, which this one lacks"),
        ));
    }
    // Dimensions are fixed-size below version 5; another schema is not this fragment's.
    let cell = schema
        .coordinates_size()
        .ok_or_else(|| Error::corrupt("var-sized dimensions, which this format version does not have"))?;
    let box_size = cell * 2;
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
            let message = format!("found {size} bytes, expected 0 or {box_size}");
            return Err(c.corrupt("non_empty_domain_size", message));
        }
    };
    let mbr_num = c.u64("mbr_num")?;
    let mbrs = StoredBoxes::parse(c, mbr_num, schema, "mbr_num")?;
    // The coordinates of the first and the last cell of each tile.
    let bounding_num = c.u64("bounding_coords_num")?;
    c.check_count(bounding_num, schema.min_rect_size(), "bounding_coords_num")?;
    c.bytes(bounding_num * box_size, "bounding_coords")?;
    let slots = Slots::of(version, schema);
    let sections = InlineSections {
        tile_offsets: parse_lists(c, slots.fixed(), "tile_offsets")?,
        tile_var_offsets: parse_lists(c, slots.var(), "tile_var_offsets")?,
        tile_var_sizes: parse_lists(c, slots.var(), "tile_var_sizes")?,
        mbrs,
    };
    let last_tile_cell_num = c.u64("last_tile_cell_num")?;
    if !sections.mbrs.is_empty() && !(1..=schema.capacity).contains(&last_tile_cell_num) {
        let message = format!(
            "{last_tile_cell_num} cells in the last tile, expected 1 to {}",
            schema.capacity
        );
        return Err(c.corrupt("last_tile_cell_num", message));
    }
    Ok(Footer {
        version,
        schema_name: None,
        dense,
        non_empty_domain,
        sparse_tile_num: if dense { 0 } else { sections.mbrs.len() },
        last_tile_cell_num,
        file_sizes: c.u64_list(slots.fixed() as u64, "file_sizes")?,
        file_var_sizes: c.u64_list(slots.var() as u64, "file_var_sizes")?,
        file_validity_sizes: Vec::new(),
        offsets: SectionOffsets::default(),
        inline: Some(sections),
        optional_sections: Vec::new(),
        slots,
    })
}

/// Reads `count` lists of u64, each after its length.
fn parse_lists(c: &mut Cursor<'_>, count: usize, field: &str) -> Result<Vec<Vec<u64>>> {
    c.check_count(count as u64, 8, field)?;
    (0..count)
        .map(|_| {
            let length = c.u64(field)?;
            c.u64_list(length, field)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::datatype::Datatype;
    use crate::format::testing::{Bytes, check_hostile, field, schema, var};

    fn two_by_two(version: u32) -> Schema {
        let dimensions = [field("x", Datatype::Int16), field("y", Datatype::Int16)];
        let attributes = [field("a", Datatype::Int32), var("s", Datatype::StringAscii)];
        schema(version, true, &dimensions, &attributes)
    }

    /// Two tiles of a sparse fragment, with `last` cells in the second one.
    fn body(version: u32, last: u64) -> Bytes {
        let list = |b: Bytes, values: &[u64]| b.count64(values.len()).u64s(values);
        let mut b = Bytes::default()
            .u32(version)
            .count64(8)
            .raw(&[1, 0, 9, 0, 2, 0, 8, 0])
            .count64(2)
            .raw(&[1, 0, 2, 0, 3, 0, 4, 0])
            .raw(&[5, 0, 6, 0, 7, 0, 8, 0])
            .count64(1)
            .raw(&[11, 0, 12, 0, 13, 0, 14, 0]);
        for offsets in [&[0, 40][..], &[0, 80], &[0, 41]] {
            b = list(b, offsets);
        }
        for values in [&[][..], &[0, 7], &[], &[3, 5]] {
            b = list(b, values);
        }
        b.u64(last).u64s(&[81, 121, 82]).u64s(&[0, 12])
    }

    #[test]
    fn a_sparse_fragment() {
        for version in [1, 2] {
            let schema = two_by_two(version);
            let m = check_hostile(&body(version, 4), |bytes| parse(bytes, &schema, false));
            let sections = m.inline.unwrap();
            assert_eq!((m.version, m.last_tile_cell_num), (version, 4));
            let domain = m.non_empty_domain.unwrap();
            assert_eq!((&domain[0].hi[..], &domain[1].lo[..]), (&[9, 0][..], &[2, 0][..]));
            assert_eq!(
                (m.sparse_tile_num, &sections.mbrs.get(1).unwrap()[1].lo[..]),
                (2, &[7, 0][..])
            );
            assert_eq!(sections.tile_offsets, [[0, 40], [0, 80], [0, 41]]);
            assert_eq!(sections.tile_var_offsets, [vec![], vec![0, 7]]);
            assert_eq!(sections.tile_var_sizes, [vec![], vec![3, 5]]);
            assert_eq!((m.file_sizes, m.file_var_sizes), (vec![81, 121, 82], vec![0, 12]));
        }
    }

    #[test]
    fn a_dense_fragment_may_lack_everything() {
        let b = Bytes::default().u32(2).count64(0).count64(0).count64(0);
        let b = (0..7).fold(b, |b, _| b.count64(0)).u64(0).u64s(&[0; 5]);
        let m = check_hostile(&b, |bytes| parse(bytes, &two_by_two(2), true));
        let sections = m.inline.unwrap();
        assert_eq!(
            (
                m.non_empty_domain,
                sections.mbrs.len(),
                sections.tile_offsets.len()
            ),
            (None, 0, 3)
        );
    }

    #[test]
    fn contradictions_are_found() {
        let schema = two_by_two(2);
        let part = |bytes: &[u8]| {
            let error = parse(bytes, &schema, false).unwrap_err();
            error.part().unwrap().to_string()
        };
        assert_eq!(part(&body(3, 4).bytes), "fragment metadata, `version`");
        for last in [0, 11] {
            assert_eq!(
                part(&body(2, last).bytes),
                "fragment metadata, `last_tile_cell_num`"
            );
        }
        let mut reversed = body(2, 4).bytes;
        reversed[12] = 10;
        assert_eq!(
            part(&reversed),
            "fragment metadata, `non_empty_domain`, dimension 0"
        );
        let future = Bytes::default().u32(24).bytes;
        let error = parse(&future, &schema, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
    }
}
