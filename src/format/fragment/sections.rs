//! The generic tiles that a footer points to, each parsed from its unfiltered body.

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::datatype::Datatype;
use crate::format::range::Rect;
use crate::format::read;
use crate::format::schema::Schema;

/// More levels than a tree with a leaf for every u64 needs.
const MAX_LEVELS: u32 = 64;

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
    ///
    /// Levels have to shrink from the leaves to one root by the fanout, and there are at most 64.
    pub fn parse(body: &[u8], version: u32, schema: &Schema) -> Result<RTree> {
        read::whole("R-tree", body, |c| Self::parse_body(c, version, schema))
    }

    fn parse_body(c: &mut Cursor<'_>, version: u32, schema: &Schema) -> Result<RTree> {
        if version < 5 {
            let count = c.u32("dimension_num")?;
            if count as usize != schema.dimensions.len() {
                let message = format!("{count} dimensions of {}", schema.dimensions.len());
                return Err(c.corrupt("dimension_num", message));
            }
        }
        let fanout = c.u32("fanout")?;
        if version < 5 {
            let datatype = read::byte(c, "datatype", Datatype::from_u8)?;
            if schema.dimensions.iter().any(|d| d.datatype != datatype) {
                return Err(c.corrupt("datatype", format!("{} is not the domain's", datatype.name())));
            }
        }
        let level_num = c.u32("level_num")?;
        if level_num > MAX_LEVELS {
            return Err(
                Error::limit(format!("{level_num} levels; {MAX_LEVELS} are allowed"))
                    .at(c.offset())
                    .in_part("`level_num`"),
            );
        }
        let mut levels: Vec<Vec<Rect>> = Vec::new();
        for i in 0..level_num {
            let level = Self::parse_level(c, schema).map_err(|e| e.in_part(format_args!("level {i}")))?;
            // One root; below it, as many nodes as fit their parents with only the last one not full.
            let fits = match levels.last() {
                None => level.len() == 1,
                Some(parents) => level.len().div_ceil(fanout.max(1) as usize) == parents.len(),
            };
            if !fits {
                let message = format!("{} nodes do not fit the level above", level.len());
                return Err(c.corrupt("mbr_num", message).in_part(format_args!("level {i}")));
            }
            levels.push(level);
        }
        Ok(RTree { fanout, levels })
    }

    fn parse_level(c: &mut Cursor<'_>, schema: &Schema) -> Result<Vec<Rect>> {
        let count = c.u64("mbr_num")?;
        c.check_count(count, schema.min_rect_size(), "mbr_num")?;
        (0..count).map(|_| schema.parse_rect(c, "mbr")).collect()
    }

    /// The MBRs of the tiles, in their order; none in a dense fragment.
    pub fn leaves(&self) -> &[Rect] {
        self.levels.last().map_or(&[], Vec::as_slice)
    }
}

impl MinMax {
    /// Parses a list of mins or maxs.
    pub fn parse(body: &[u8]) -> Result<MinMax> {
        read::whole("tile minima or maxima", body, |c| {
            let fixed = c.u64("fixed_size")?;
            let var = c.u64("var_size")?;
            Ok(MinMax {
                fixed: c.bytes(fixed, "fixed_values")?.to_vec(),
                var: c.bytes(var, "var_values")?.to_vec(),
            })
        })
    }

    /// The bytes of tile `tile`, given the cell size of a fixed-size field (None: var-sized). None where the tile has no entry.
    pub fn tile(&self, tile: u64, cell_size: Option<u64>) -> Option<&[u8]> {
        let tile = usize::try_from(tile).ok()?;
        if let Some(size) = cell_size {
            let size = usize::try_from(size).ok()?;
            let start = tile.checked_mul(size)?;
            return self.fixed.get(start..start.checked_add(size)?);
        }
        let offset = |i: usize| {
            let bytes = self.fixed.get(i.checked_mul(8)?..)?.first_chunk::<8>()?;
            usize::try_from(u64::from_le_bytes(*bytes)).ok()
        };
        let end = offset(tile.checked_add(1)?).unwrap_or(self.var.len());
        self.var.get(offset(tile)?..end)
    }
}

/// Parses a list of u64: tile offsets, var offsets, var sizes, validity offsets, null counts, and sums (whose eight bytes the caller interprets).
pub fn parse_u64_list(body: &[u8]) -> Result<Vec<u64>> {
    read::whole("list of tiles", body, |c| {
        let count = c.u64("count")?;
        c.u64_list(count, "values")
    })
}

/// Checks the tile offsets of one file: as many as there are `tiles`, never decreasing, none beyond the `file_size` bytes
/// of the file. An empty list, as a field without that file has, passes.
pub fn check_tile_offsets(offsets: &[u64], tiles: u64, file_size: u64) -> Result<()> {
    if !offsets.is_empty() && offsets.len() as u64 != tiles {
        let message = format!("offsets of {} tiles in a fragment of {tiles}", offsets.len());
        return Err(Error::corrupt(message).in_part("tile offsets"));
    }
    let ascending = offsets.is_sorted() && offsets.last().is_none_or(|&last| last <= file_size);
    match ascending {
        true => Ok(()),
        false => Err(
            Error::corrupt(format!("not in ascending order within {file_size} bytes"))
                .in_part("tile offsets"),
        ),
    }
}

/// Parses the statistics of all `slots` slots (version 12 and later).
pub fn parse_fragment_statistics(body: &[u8], slots: usize) -> Result<Vec<FragmentStatistics>> {
    read::whole("fragment statistics", body, |c| {
        c.check_count(slots as u64, 32, "slots")?;
        (0..slots)
            .map(|i| FragmentStatistics::parse(c).map_err(|e| e.in_part(format_args!("slot {i}"))))
            .collect()
    })
}

impl FragmentStatistics {
    fn parse(c: &mut Cursor<'_>) -> Result<FragmentStatistics> {
        Ok(FragmentStatistics {
            min: read::text64(c, "min")?,
            max: read::text64(c, "max")?,
            sum: c.array("sum")?,
            null_count: c.u64("null_count")?,
        })
    }
}

/// Parses the processed conditions (version 16 and later): array-relative paths of delete files.
pub fn parse_processed_conditions(body: &[u8]) -> Result<Vec<Vec<u8>>> {
    read::whole("processed conditions", body, |c| {
        let count = c.u64("count")?;
        c.check_count(count, 8, "count")?;
        (0..count).map(|_| read::text64(c, "path")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::testing::{Bytes, check_hostile, field, schema, var};

    fn numbers(version: u32) -> Schema {
        let two = [field("x", Datatype::Int16), field("y", Datatype::Int16)];
        schema(version, true, &two, &[])
    }

    /// An R-tree of INT16 boxes with this many nodes a level; each node's bytes count on from the one before.
    fn tree(version: u32, fanout: u32, levels: &[usize]) -> Bytes {
        let mut b = Bytes::default()
            .when(version < 5, |b| b.u32(2))
            .u32(fanout)
            .when(version < 5, |b| b.u8(Datatype::Int16 as u8))
            .count32(levels.len());
        let mut next = 0;
        for &nodes in levels {
            b = b.count64(nodes);
            for _ in 0..nodes {
                b = b.raw(&[next; 8]);
                next += 1;
            }
        }
        b
    }

    #[test]
    fn r_trees_of_numbers() {
        for version in 3..=23 {
            let schema = numbers(version);
            let bytes = tree(version, 10, &[1, 2, 13]);
            let rtree = check_hostile(&bytes, |bytes| RTree::parse(bytes, version, &schema));
            assert_eq!(rtree.fanout, 10);
            assert_eq!(rtree.levels.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 13]);
            assert_eq!(
                (&rtree.leaves()[0][1].lo[..], &rtree.leaves()[12][0].hi[..]),
                (&[3, 3][..], &[15, 15][..])
            );
            let dense = RTree::parse(&tree(version, 10, &[]).bytes, version, &schema).unwrap();
            assert!(dense.leaves().is_empty());
        }
    }

    #[test]
    fn r_trees_of_strings() {
        let dimensions = [field("x", Datatype::Int32), var("s", Datatype::StringAscii)];
        let schema = schema(22, true, &dimensions, &[]);
        let bytes = Bytes::default()
            .u32(10)
            .count32(1)
            .count64(1)
            .u32(1)
            .u32(41)
            .count64(3)
            .count64(0)
            .raw(b"zzz");
        let rtree = check_hostile(&bytes, |bytes| RTree::parse(bytes, 22, &schema));
        let strings = &rtree.leaves()[0][1];
        assert_eq!((&strings.lo[..], &strings.hi[..]), (&b""[..], &b"zzz"[..]));
    }

    #[test]
    fn r_trees_shrink_to_one_root() {
        let parse =
            |fanout, levels: &[usize]| RTree::parse(&tree(22, fanout, levels).bytes, 22, &numbers(22));
        for (fanout, levels) in [(10, &[1][..]), (10, &[1, 10]), (2, &[1, 2, 3]), (3, &[1, 1])] {
            assert!(parse(fanout, levels).is_ok(), "{levels:?}");
        }
        for (fanout, levels) in [
            (10, &[2][..]),
            (10, &[0]),
            (10, &[1, 11]),
            (10, &[1, 0]),
            (0, &[1, 2]),
        ] {
            assert!(parse(fanout, levels).is_err(), "{levels:?}");
        }
        assert!(parse(10, &[1; 64]).is_ok());
        assert_eq!(parse(10, &[1; 65]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn old_r_trees_repeat_the_domain() {
        let schema = numbers(4);
        let good = tree(4, 10, &[1]).bytes;
        for (at, field) in [(0, "`dimension_num`"), (8, "`datatype`")] {
            let mut bad = good.clone();
            bad[at] = 1;
            let error = RTree::parse(&bad, 4, &schema).unwrap_err();
            assert_eq!(error.part(), Some(format!("R-tree, {field}").as_str()));
        }
    }

    #[test]
    fn minima_of_fixed_size_fields() {
        let bytes = Bytes::default().count64(6).count64(0).raw(&[1, 0, 2, 0, 3, 0]);
        let mins = check_hostile(&bytes, MinMax::parse);
        assert_eq!(mins.tile(1, Some(2)), Some(&[2, 0][..]));
        for (tile, size) in [(3, 2), (1, 4), (u64::MAX, 2), (1, u64::MAX)] {
            assert_eq!(mins.tile(tile, Some(size)), None);
        }
    }

    #[test]
    fn minima_of_var_sized_fields() {
        let bytes = Bytes::default()
            .count64(24)
            .count64(5)
            .u64s(&[0, 0, 4])
            .raw(b"cccca");
        let mins = check_hostile(&bytes, MinMax::parse);
        let tiles: Vec<_> = (0..4).map(|tile| mins.tile(tile, None)).collect();
        assert_eq!(tiles, [Some(&b""[..]), Some(b"cccc"), Some(b"a"), None]);
        let broken = Bytes::default().u64(16).u64(1).u64s(&[1, 0]).raw(b"x").bytes;
        let broken = MinMax::parse(&broken).unwrap();
        assert_eq!(broken.tile(0, None), None);
        assert_eq!(broken.tile(1, None), Some(&b"x"[..]));
        let beyond = MinMax::parse(&Bytes::default().u64(8).u64(0).u64(u64::MAX).bytes).unwrap();
        assert_eq!((beyond.tile(0, None), beyond.tile(u64::MAX, None)), (None, None));
    }

    #[test]
    fn lists_of_tiles() {
        let bytes = Bytes::default().count64(3).u64s(&[0, 44, 65]);
        assert_eq!(check_hostile(&bytes, parse_u64_list), [0, 44, 65]);
        assert!(check_hostile(&Bytes::default().count64(0), parse_u64_list).is_empty());
        let error = parse_u64_list(&Bytes::default().u64(1).u32(0).bytes).unwrap_err();
        assert_eq!(error.part(), Some("list of tiles, `values`"));
    }

    #[test]
    fn tile_offsets_ascend_within_their_file() {
        assert!(check_tile_offsets(&[0, 10, 10, 30], 4, 30).is_ok());
        assert!(check_tile_offsets(&[], 4, 0).is_ok());
        assert!(check_tile_offsets(&[0; 3], 3, 0).is_ok(), "an unused slot");
        assert!(check_tile_offsets(&[0, 10], 3, 30).is_err());
        assert!(check_tile_offsets(&[0, 20, 10], 3, 30).is_err());
        assert!(check_tile_offsets(&[0, 10, 31], 3, 30).is_err());
    }

    #[test]
    fn statistics_of_fragments() {
        let bytes = Bytes::default()
            .text64("aa")
            .text64("zzz")
            .u64(0)
            .u64(3)
            .text64("")
            .text64("")
            .raw(&2.5f64.to_le_bytes())
            .u64(0);
        let list = check_hostile(&bytes, |bytes| parse_fragment_statistics(bytes, 2));
        assert_eq!(
            (&list[0].min[..], &list[0].max[..], list[0].null_count),
            (&b"aa"[..], &b"zzz"[..], 3)
        );
        assert_eq!(f64::from_le_bytes(list[1].sum), 2.5);
        for slots in [0, 1, 3, usize::MAX] {
            assert!(parse_fragment_statistics(&bytes.bytes, slots).is_err());
        }
    }

    #[test]
    fn processed_conditions_are_paths() {
        let bytes = Bytes::default().count64(2).text64("__commits/a.del").text64("b");
        let paths = check_hostile(&bytes, parse_processed_conditions);
        assert_eq!(paths, [&b"__commits/a.del"[..], b"b"]);
    }
}
