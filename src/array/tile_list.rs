//! Lists with one u64 for each tile (offsets, sizes), read piecewise.
//!
//! A list is a generic tile of the fragment's metadata file, filtered in chunks like any other, so that an
//! entry costs one decoded chunk however many tiles there are.

use super::generic_body::GenericBody;
use crate::error::{Error, Result};
use crate::format::body::Body;
use std::ops::Range;
use std::sync::OnceLock;

/// A list with one u64 for each tile.
pub enum TileList {
    /// In memory: fragments of versions 1 and 2, whose metadata is one generic tile.
    Memory(Vec<u64>),
    /// In the metadata file: a count u64, then the entries; and all of these, of a short list that was read.
    Stored(Box<GenericBody>, OnceLock<Vec<u64>>),
}

/// The most entries of a list that are remembered: most fragments have few tiles, and where very many
/// fragments are read in turns to look them up takes longer than to copy the cells.
const SHORT: u64 = 64;

impl TileList {
    /// The entries in `range`. `Corrupt` where the list has fewer than `tile_num` entries.
    ///
    /// More of them are passed over: libtiledb 2.2, writing nullable attributes of dense arrays in global
    /// order, put tiles of nothing behind the last one.
    pub fn entries(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let range = range.start.min(tile_num)..range.end.min(tile_num);
        let (body, known) = match self {
            TileList::Memory(list) if (list.len() as u64) < tile_num => {
                return Err(wrong_count(list.len() as u64, tile_num).at(0));
            }
            TileList::Memory(list) => return Ok(part(list, range)),
            TileList::Stored(body, known) => (body, known),
        };
        if let Some(list) = known.get() {
            return Ok(part(list, range));
        }
        if tile_num > SHORT {
            return stored(body, tile_num, range);
        }
        let list = stored(body, tile_num, 0..tile_num)?;
        Ok(part(known.get_or_init(|| list), range))
    }

    /// One entry; `None` for `tile == tile_num`, as for any other that is not there.
    pub fn get(&self, tile_num: u64, tile: u64) -> Result<Option<u64>> {
        Ok(self
            .entries(tile_num, tile..tile.saturating_add(1))?
            .first()
            .copied())
    }
}

fn part(list: &[u64], range: Range<u64>) -> Vec<u64> {
    let range = range.start as usize..range.end as usize;
    list.get(range).unwrap_or(&[]).to_vec()
}

/// The entries in `range` of a list in the metadata file.
fn stored(body: &GenericBody, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
    let entries = body.size()?.saturating_sub(8) / 8;
    let mut raw = Vec::new();
    body.read(0..8, &mut raw)?;
    let count = u64::from_le_bytes(raw.as_slice().try_into().unwrap_or_default());
    let bytes = count.checked_mul(8).and_then(|n| n.checked_add(8));
    if count < tile_num || bytes != Some(body.size()?) {
        return Err(body.place(wrong_count(count.min(entries), tile_num)));
    }
    raw.clear();
    body.read(8 + range.start * 8..8 + range.end * 8, &mut raw)?;
    let entries = raw.as_chunks::<8>().0.iter();
    Ok(entries.map(|bytes| u64::from_le_bytes(*bytes)).collect())
}

fn wrong_count(found: u64, tile_num: u64) -> Error {
    Error::corrupt(format!("a list of {found} tiles in a fragment of {tile_num}"))
}

/// Running sums over a [`TileList`] of sizes: where each tile begins in the concatenation of all.
pub struct PrefixSums {
    /// Sum before each block, and the total last.
    starts: Vec<u64>,
}

/// Entries between two sums that are kept.
const BLOCK: u64 = 8192;

impl PrefixSums {
    /// Adds up the whole list, a block at a time.
    pub fn new(list: &TileList, tile_num: u64) -> Result<PrefixSums> {
        let mut starts = vec![0];
        let mut sum = 0u64;
        let mut tile = 0;
        while tile < tile_num {
            for size in list.entries(tile_num, tile..tile.saturating_add(BLOCK))? {
                sum = sum
                    .checked_add(size)
                    .ok_or_else(|| Error::limit("the tiles' sizes add up to more than 2^64 bytes").at(0))?;
            }
            starts.push(sum);
            tile = tile.saturating_add(BLOCK);
        }
        Ok(PrefixSums { starts })
    }

    /// Sum of all sizes.
    pub fn total(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Sum of the sizes before `tile`.
    pub fn before(&self, list: &TileList, tile_num: u64, tile: u64) -> Result<u64> {
        let block = tile / BLOCK;
        let start = self
            .starts
            .get(block as usize)
            .copied()
            .unwrap_or_else(|| self.total());
        let sizes = list.entries(tile_num, block * BLOCK..tile)?;
        Ok(sizes.iter().fold(start, |sum, size| sum.saturating_add(*size)))
    }

    /// The tile that holds byte `offset` of the concatenation, with its first byte and its size; None past
    /// the end.
    pub fn find(&self, list: &TileList, tile_num: u64, offset: u64) -> Result<Option<(u64, u64, u64)>> {
        if offset >= self.total() {
            return Ok(None);
        }
        let block = self
            .starts
            .partition_point(|&start| start <= offset)
            .saturating_sub(1);
        let mut start = self.starts.get(block).copied().unwrap_or(0);
        let first = block as u64 * BLOCK;
        for (i, size) in list
            .entries(tile_num, first..first.saturating_add(BLOCK))?
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
