//! Lists of one u64 per tile (offsets, sizes), read piecewise.

use crate::error::{Error, Result};
use std::ops::Range;

/// The lists with one entry per tile that the fragment metadata has for each field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TileListKey {
    /// The byte offset of each tile in the data file; for a var-sized field, in the file of its offsets.
    TileOffsets,
    /// The byte offset of each tile in the file of var data.
    TileVarOffsets,
    /// The unfiltered size of each tile of var data, in bytes.
    TileVarSizes,
    /// The byte offset of each tile in the validity file.
    TileValidityOffsets,
    /// The minimum of each tile.
    Mins,
    /// The maximum of each tile.
    Maxs,
    /// The sum of each tile, 8 bytes.
    Sums,
    /// The number of null cells of each tile.
    NullCounts,
    /// The coordinate of the first cell of each tile in global order; for dimensions, from version 23.
    GlobalOrderMins,
    /// The coordinate of the last cell of each tile in global order; for dimensions, from version 23.
    GlobalOrderMaxs,
}

impl TileListKey {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            TileListKey::TileOffsets => "tile offsets",
            TileListKey::TileVarOffsets => "tile var offsets",
            TileListKey::TileVarSizes => "tile var sizes",
            TileListKey::TileValidityOffsets => "tile validity offsets",
            TileListKey::Mins => "tile mins",
            TileListKey::Maxs => "tile maxs",
            TileListKey::Sums => "tile sums",
            TileListKey::NullCounts => "tile null counts",
            TileListKey::GlobalOrderMins => "global-order minima",
            TileListKey::GlobalOrderMaxs => "global-order maxima",
        }
    }
}

/// Entries that are read together.
pub(super) const WINDOW: u64 = 512;

/// A list of one u64 per tile.
pub trait TileList: Send + Sync {
    /// The entries in `range`. `Corrupt` if the list has fewer than `tile_num` entries.
    ///
    /// Surplus entries are ignored: libtiledb 2.2, writing nullable attributes of dense arrays in global
    /// order, put empty tiles after the last one.
    fn entries(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>>;

    /// One entry; `None` for `tile == tile_num` and beyond.
    fn entry(&self, tile_num: u64, tile: u64) -> Result<Option<u64>> {
        Ok(self.entries(tile_num, tile..tile + 1)?.first().copied())
    }
}

impl dyn TileList {
    /// The entry of `tile`, one of the tiles.
    pub(crate) fn of_tile(&self, tile_num: u64, tile: u64) -> Result<u64> {
        self.entry(tile_num, tile)?
            .ok_or_else(|| Error::internal(format!("tile {tile} of {tile_num}")))
    }
}

/// In memory, for fragments of versions 1 and 2.
impl TileList for Vec<u64> {
    fn entries(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        if (self.len() as u64) < tile_num {
            return Err(wrong_count(self.len() as u64, tile_num).at(0));
        }
        let part = range.start.min(tile_num) as usize..range.end.min(tile_num) as usize;
        Ok(self[part].to_vec())
    }
}

pub(super) fn wrong_count(found: u64, tile_num: u64) -> Error {
    Error::corrupt(format!(
        "the list has {found} entries, but the fragment has {tile_num} tiles"
    ))
}

/// Running sums over a [`TileList`] of sizes: the start of each tile if all were concatenated.
pub struct PrefixSums {
    /// The sum before each window of the list, and the total last.
    starts: Vec<u64>,
}

impl PrefixSums {
    /// Adds up the list, window by window.
    pub fn new(list: &dyn TileList, tile_num: u64) -> Result<PrefixSums> {
        let mut starts = vec![0];
        let mut sum = 0u64;
        let mut tile = 0;
        while tile < tile_num {
            for size in list.entries(tile_num, tile..tile + WINDOW)? {
                sum = sum.checked_add(size).ok_or_else(|| {
                    Error::limit("the sizes of the tiles add up to more than 2^64 bytes").at(0)
                })?;
            }
            starts.push(sum);
            tile += WINDOW;
        }
        Ok(PrefixSums { starts })
    }

    /// Sum of all sizes.
    pub fn total(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Sum of the sizes before `tile`.
    pub fn before(&self, list: &dyn TileList, tile_num: u64, tile: u64) -> Result<u64> {
        let window = tile / WINDOW;
        let sizes = list.entries(tile_num, window * WINDOW..tile)?;
        Ok(self.starts[window as usize] + sizes.iter().sum::<u64>())
    }

    /// The tile that holds byte `offset` of the concatenation, with its first byte and its size; None past
    /// the end.
    pub fn find(&self, list: &dyn TileList, tile_num: u64, offset: u64) -> Result<Option<(u64, u64, u64)>> {
        if offset >= self.total() {
            return Ok(None);
        }
        let window = self.starts.partition_point(|&start| start <= offset) - 1;
        let mut start = self.starts[window];
        let first = window as u64 * WINDOW;
        let sizes = list.entries(tile_num, first..first + WINDOW)?;
        for (i, size) in sizes.into_iter().enumerate() {
            if offset - start < size {
                return Ok(Some((first + i as u64, start, size)));
            }
            start += size;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_find_every_byte() {
        let sizes: Vec<u64> = (0..20_000).map(|i| i % 5).collect();
        let n = sizes.len() as u64;
        let list = sizes.clone();
        let sums = PrefixSums::new(&list, n).unwrap();
        assert_eq!(sums.total(), sizes.iter().sum::<u64>());
        let mut start = 0;
        for (tile, size) in sizes.iter().enumerate().step_by(7) {
            start = if tile == 0 {
                0
            } else {
                sums.before(&list, n, tile as u64).unwrap()
            };
            for offset in [start, start + size.saturating_sub(1)] {
                if *size > 0 {
                    assert_eq!(
                        sums.find(&list, n, offset).unwrap(),
                        Some((tile as u64, start, *size))
                    );
                }
            }
        }
        assert!(start > 0);
        assert_eq!(sums.before(&list, n, n).unwrap(), sums.total());
        assert_eq!(sums.find(&list, n, sums.total()).unwrap(), None);
    }

    #[test]
    fn a_list_that_is_too_short_is_corrupt() {
        let list = vec![1, 2, 3];
        assert_eq!(list.entries(3, 1..9).unwrap(), [2, 3]);
        assert_eq!(list.entries(2, 1..9).unwrap(), [2]);
        assert!(list.entries(4, 0..1).is_err());
        assert!(PrefixSums::new(&vec![u64::MAX, 1], 2).is_err());
    }
}
