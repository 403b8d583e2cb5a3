//! The generic tiles that a footer refers to, each parsed from its unfiltered body.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/fragment.md>

use crate::cursor::Cursor;
use crate::error::Result;
use crate::format::read;

/// The minimum (or maximum) of each tile of one field.
#[derive(Debug, Clone, PartialEq)]
pub struct MinMax {
    /// Fixed-size field: one cell per tile. Var-sized field: one u64 per tile, its start in `var`.
    pub fixed: Vec<u8>,
    /// Var-sized field: the values.
    pub var: Vec<u8>,
}

/// The statistics of one field over a whole fragment.
#[derive(Debug, Clone, PartialEq)]
pub struct FragmentStatistics {
    /// The least value; empty if there is none.
    pub min: Vec<u8>,
    /// The greatest value; empty if there is none.
    pub max: Vec<u8>,
    /// The sum of all values that are not null: i64, u64 or f64, by the field's type.
    pub sum: [u8; 8],
    /// Number of null cells.
    pub null_count: u64,
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

    /// The bytes of tile `tile`, given the cell size of a fixed-size field (None: var-sized). None if the
    /// tile has no entry.
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

/// Parses a list of u64: tile offsets, var offsets, var sizes, validity offsets, null counts, and sums (eight
/// bytes for the caller to interpret).
pub fn parse_u64_list(body: &[u8]) -> Result<Vec<u64>> {
    read::whole("list of tiles", body, |c| {
        let count = c.u64("count")?;
        c.u64_list(count, "values")
    })
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
    use crate::format::testing::{Bytes, check_hostile};

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
