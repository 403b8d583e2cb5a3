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
