//! Lists with one u64 for each tile (offsets, sizes), read piecewise.
//!
//! A list is a generic tile of the fragment's metadata file, filtered in chunks like any other, so that an
//! entry costs one decoded chunk however many tiles there are.

use super::generic_body::GenericBody;
use crate::error::{Error, Result};
use crate::format::body::Body;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The lists of tiles that the metadata of a fragment has of each field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TileListKey {
    /// Where each tile starts in the file of the data, or of the offsets of a var-sized field.
    TileOffsets,
    /// Where each tile starts in the file of the var data.
    TileVarOffsets,
    /// Unfiltered bytes of each tile of the var data.
    TileVarSizes,
    /// Where each tile starts in the file of the validity bytes.
    TileValidityOffsets,
    /// Least values.
    Mins,
    /// Greatest values.
    Maxs,
    /// Sums, eight bytes each.
    Sums,
    /// Numbers of null cells.
    NullCounts,
    /// The coordinates of the first cells in global order, of dimensions; from version 23.
    GlobalOrderMins,
    /// The coordinates of the last cells.
    GlobalOrderMaxs,
}

impl TileListKey {
    /// What it is called in messages.
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

/// A list with one u64 for each tile.
pub enum TileList {
    /// In memory: fragments of versions 1 and 2, whose metadata is one generic tile.
    Memory(Vec<u64>),
    /// In the metadata file.
    Stored(Box<StoredList>),
}

/// A list in the metadata file: a count u64, then the entries.
pub struct StoredList {
    body: GenericBody,
    /// The number of the first entry that was read last, and the entries from there on. A sequential reader
    /// wants the next ones, and if very many fragments are read in turns, looking them up would take longer
    /// than copying the cells.
    window: Mutex<(u64, Vec<u64>)>,
}

/// Entries that are read together.
const WINDOW: u64 = 512;

impl StoredList {
    /// The list that `body` is.
    pub fn new(body: GenericBody) -> Self {
        StoredList {
            body,
            window: Mutex::default(),
        }
    }

    /// Appends the entries in `range`, which is not empty, up to the end of the window that holds the first
    /// one. Returns where that is.
    fn append(&self, tile_num: u64, range: Range<u64>, out: &mut Vec<u64>) -> Result<u64> {
        let first = range.start - range.start % WINDOW;
        let end = range.end.min(first.saturating_add(WINDOW));
        let part = (range.start - first) as usize..(end - first) as usize;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.0 != first || window.1.is_empty() {
            drop(window);
            let entries = self.read(tile_num, first..first.saturating_add(WINDOW).min(tile_num))?;
            window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
            *window = (first, entries);
        }
        out.extend_from_slice(window.1.get(part).unwrap_or_default());
        Ok(end)
    }

    fn read(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let size = self.body.size()?;
        let mut raw = Vec::new();
        self.body.read(0..8, &mut raw)?;
        let count = u64::from_le_bytes(raw.as_slice().try_into().unwrap_or_default());
        let bytes = count.checked_mul(8).and_then(|n| n.checked_add(8));
        if count < tile_num || bytes != Some(size) {
            let entries = size.saturating_sub(8) / 8;
            return Err(self.body.place(wrong_count(count.min(entries), tile_num)));
        }
        raw.clear();
        self.body.read(8 + range.start * 8..8 + range.end * 8, &mut raw)?;
        let entries = raw.as_chunks::<8>().0.iter();
        Ok(entries.map(|bytes| u64::from_le_bytes(*bytes)).collect())
    }
}

impl TileList {
    /// The entries in `range`. `Corrupt` where the list has fewer than `tile_num` entries.
    ///
    /// Surplus entries are ignored: libtiledb 2.2, writing nullable attributes of dense arrays in global
    /// order, put empty tiles after the last one.
    pub fn entries(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let mut range = range.start.min(tile_num)..range.end.min(tile_num);
        match self {
            TileList::Memory(list) if (list.len() as u64) < tile_num => {
                Err(wrong_count(list.len() as u64, tile_num).at(0))
            }
            TileList::Memory(list) => {
                let part = list.get(range.start as usize..range.end as usize);
                Ok(part.unwrap_or_default().to_vec())
            }
            TileList::Stored(list) => {
                let mut out = Vec::with_capacity((range.end.saturating_sub(range.start)) as usize);
                while range.start < range.end {
                    range.start = list.append(tile_num, range.clone(), &mut out)?;
                }
                Ok(out)
            }
        }
    }

    /// One entry; `None` for `tile == tile_num` and beyond.
    pub fn get(&self, tile_num: u64, tile: u64) -> Result<Option<u64>> {
        Ok(self
            .entries(tile_num, tile..tile.saturating_add(1))?
            .first()
            .copied())
    }
}

fn wrong_count(found: u64, tile_num: u64) -> Error {
    Error::corrupt(format!("the list has {found} tiles, the fragment {tile_num}"))
}

/// Running sums over a [`TileList`] of sizes: where each tile begins in the concatenation of all.
pub struct PrefixSums {
    /// Sum before each window of the list, and the total last.
    starts: Vec<u64>,
}

impl PrefixSums {
    /// Adds up the whole list, a window at a time.
    pub fn new(list: &TileList, tile_num: u64) -> Result<PrefixSums> {
        let mut starts = vec![0];
        let mut sum = 0u64;
        let mut tile = 0;
        while tile < tile_num {
            for size in list.entries(tile_num, tile..tile.saturating_add(WINDOW))? {
                sum = sum.checked_add(size).ok_or_else(|| {
                    Error::limit("the sizes of the tiles add up to more than 2^64 bytes").at(0)
                })?;
            }
            starts.push(sum);
            tile = tile.saturating_add(WINDOW);
        }
        Ok(PrefixSums { starts })
    }

    /// Sum of all sizes.
    pub fn total(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Sum of the sizes before `tile`.
    pub fn before(&self, list: &TileList, tile_num: u64, tile: u64) -> Result<u64> {
        let window = tile / WINDOW;
        let start = self
            .starts
            .get(window as usize)
            .copied()
            .unwrap_or_else(|| self.total());
        let sizes = list.entries(tile_num, window * WINDOW..tile)?;
        Ok(sizes.iter().fold(start, |sum, size| sum.saturating_add(*size)))
    }

    /// The tile that holds byte `offset` of the concatenation, with its first byte and its size; None past
    /// the end.
    pub fn find(&self, list: &TileList, tile_num: u64, offset: u64) -> Result<Option<(u64, u64, u64)>> {
        if offset >= self.total() {
            return Ok(None);
        }
        let window = self
            .starts
            .partition_point(|&start| start <= offset)
            .saturating_sub(1);
        let mut start = self.starts.get(window).copied().unwrap_or(0);
        let first = window as u64 * WINDOW;
        for (i, size) in list
            .entries(tile_num, first..first.saturating_add(WINDOW))?
            .into_iter()
            .enumerate()
        {
            if offset - start < size {
                return Ok(Some((first + i as u64, start, size)));
            }
            start = start.saturating_add(size);
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
        let list = TileList::Memory(sizes.clone());
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
        let list = TileList::Memory(vec![1, 2, 3]);
        assert_eq!(list.entries(3, 1..9).unwrap(), [2, 3]);
        assert_eq!(list.entries(2, 1..9).unwrap(), [2]);
        assert!(list.entries(4, 0..1).is_err());
        assert!(PrefixSums::new(&TileList::Memory(vec![u64::MAX, 1]), 2).is_err());
    }
}
