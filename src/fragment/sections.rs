//! The sections of a fragment's metadata, across format versions.

use super::generic_body::OpenBody;
use super::info::FragmentInfo;
use super::tile_list::TileListKey;
use crate::bytes::{Bytes, Output};
use crate::error::{Error, Result};
use crate::format::fragment::boxes::Bounds;
use crate::format::fragment::sections::{parse_fragment_statistics, parse_processed_conditions};
use crate::format::fragment::{Boxes, FragmentStatistics, RTree};
use crate::format::range::Rect;
use crate::storage::Blob;
use std::ops::Range;
use std::sync::Arc;

/// The R-tree of a fragment.
pub struct StoredRTree {
    /// Children per node; None in versions 1 and 2, which have only the MBRs of tiles.
    pub fanout: Option<u32>,
    /// Root first, leaves last; empty for a dense fragment.
    pub levels: Vec<Boxes>,
    /// The bytes that the boxes are in.
    pub body: Arc<dyn Bytes>,
}

impl FragmentInfo {
    /// A list of a slot, if it is stored with the footer.
    pub(super) fn inline_list(&self, list: TileListKey, slot: usize) -> Option<&Vec<u64>> {
        let inline = self.footer.inline.as_ref()?;
        let lists = match list {
            TileListKey::TileOffsets => &inline.tile_offsets,
            TileListKey::TileVarOffsets => &inline.tile_var_offsets,
            TileListKey::TileVarSizes => &inline.tile_var_sizes,
            _ => return None,
        };
        lists.get(slot)
    }

    /// The offset in the metadata file of the generic tile of a slot's list; None if the version has no such
    /// tile.
    pub fn list_offset(&self, list: TileListKey, slot: usize) -> Option<u64> {
        let o = &self.footer.offsets;
        // The lists of the global order are indexed by dimension, not by slot.
        let dimension =
            || (0..self.footer.slots.dimensions).find(|&i| self.footer.slots.dimension(i) == Some(slot));
        let (offsets, index) = match list {
            TileListKey::TileOffsets => (&o.tile_offsets, slot),
            TileListKey::TileVarOffsets => (&o.tile_var_offsets, slot),
            TileListKey::TileVarSizes => (&o.tile_var_sizes, slot),
            TileListKey::TileValidityOffsets => (&o.tile_validity_offsets, slot),
            TileListKey::Mins => (&o.tile_mins, slot),
            TileListKey::Maxs => (&o.tile_maxs, slot),
            TileListKey::Sums => (&o.tile_sums, slot),
            TileListKey::NullCounts => (&o.tile_null_counts, slot),
            TileListKey::GlobalOrderMins => (&o.global_order_mins, dimension()?),
            TileListKey::GlobalOrderMaxs => (&o.global_order_maxs, dimension()?),
        };
        offsets.get(index).copied()
    }

    /// A list of a slot as stored, read from the metadata file `blob`; None if the version lacks it.
    pub fn list_body(
        &self,
        blob: &Arc<dyn Blob>,
        list: TileListKey,
        slot: usize,
    ) -> Result<Option<Box<dyn Bytes + '_>>> {
        if let Some(numbers) = self.inline_list(list, slot) {
            return Ok(Some(Box::new(Numbers(numbers))));
        }
        let Some(offset) = self.list_offset(list, slot) else {
            return Ok(None);
        };
        let body = self.generic_body(offset).held(blob.clone()).open()?;
        Ok(Some(Box::new(body)))
    }

    /// A list of a slot, parsed by `parse`, and the offset of its generic tile; None if the version lacks the
    /// list.
    pub fn parsed_list<T>(
        &self,
        list: TileListKey,
        slot: usize,
        parse: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<Option<(u64, T)>> {
        let Some(offset) = self.list_offset(list, slot) else {
            return Ok(None);
        };
        let body = self.section(offset)?;
        Ok(Some((offset, parse(&body)?)))
    }

    /// The R-tree as stored.
    pub fn rtree(self: &Arc<Self>) -> Result<StoredRTree> {
        if let Some(inline) = &self.footer.inline {
            let level = Some(&inline.mbrs).filter(|boxes| !boxes.is_empty());
            return Ok(StoredRTree {
                fanout: None,
                levels: level.map(|level| level.boxes.clone()).into_iter().collect(),
                body: inline.mbrs.body.clone(),
            });
        }
        let offset = self.footer.offsets.rtree;
        let body = self.generic_body(offset).hold()?.open();
        let parse = |body: OpenBody| {
            let rtree = RTree::parse(&body, self.footer.version, &self.schema)?;
            Ok((rtree, body))
        };
        let (rtree, body) = body.and_then(parse).map_err(|e| e.in_part("R-tree").at(offset))?;
        Ok(StoredRTree {
            fanout: Some(rtree.fanout),
            levels: rtree.levels,
            body: Arc::new(body),
        })
    }

    /// The statistics of each slot; None below version 12.
    pub fn statistics(&self) -> Result<Option<Vec<FragmentStatistics>>> {
        // A newer library that writes to an array of version 11 leaves an offset in the footer, but version
        // 11 has no statistics.
        let offset = self.footer.offsets.fragment_statistics;
        let offset = offset.filter(|_| self.footer.version >= 12);
        let parse = |offset| {
            let statistics = parse_fragment_statistics(&self.section(offset)?, self.footer.slots.fixed());
            statistics.map_err(|e| e.in_part("fragment statistics").at(offset))
        };
        offset.map(parse).transpose()
    }

    /// Paths of the delete and update files that a consolidation has carried out on the cells, relative to
    /// the array, as stored. None below version 16.
    pub fn processed_conditions(&self) -> Result<Option<Vec<Vec<u8>>>> {
        let offset = self.footer.offsets.processed_conditions;
        let parse = |offset| {
            let conditions = parse_processed_conditions(&self.section(offset)?);
            conditions.map_err(|e| e.in_part("processed conditions").at(offset))
        };
        offset.map(parse).transpose()
    }

    /// The decoded body of the section of the metadata at `offset`. `LimitExceeded` if that takes more memory
    /// than the cache allows.
    pub fn section(&self, offset: u64) -> Result<Vec<u8>> {
        let blob = self.engine.open_immutable(&self.metadata_path())?;
        let checked = self.edition.check(&self.engine, &*blob, self.metadata_version);
        checked.map_err(|e| self.place(e.at(offset)))?;
        let (_, body) = self
            .engine
            .generic_tile(&*blob, offset, self.writer.key.as_ref())?;
        Ok(body)
    }
}

/// A list of numbers in memory in the stored form: the count, then the numbers.
struct Numbers<'a>(&'a [u64]);

impl Bytes for Numbers<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64 * 8 + 8
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if range.end > Bytes::len(self) {
            return Err(Error::truncated("the list ends early").at(range.start));
        }
        let first = range.start / 8;
        let words = std::iter::once(self.0.len() as u64).chain(self.0.iter().copied());
        let wanted = (range.end.div_ceil(8) - first) as usize;
        let bytes = words.skip(first as usize).take(wanted).flat_map(u64::to_le_bytes);
        let skipped = (range.start % 8) as usize;
        let bytes = bytes.skip(skipped).take((range.end - range.start) as usize);
        out.write(|out| out.extend(bytes));
        Ok(())
    }
}

impl FragmentInfo {
    /// Whether the MBRs can be trusted: libraries before format 9 wrote wrong MBRs of strings, and those
    /// before 10 left tiles out of the non-empty domain of strings.
    pub fn has_sound_boxes(&self) -> bool {
        !self.footer.dense && (self.writer.library_version >= 10 || self.schema.all_dimensions_fixed())
    }

    /// The non-empty domain, if it bounds the coordinates that readers get. Where the filters of a dimension
    /// are lossy, it bounds those before they were filtered.
    pub fn exact_domain(&self) -> Option<&Rect> {
        let is_exact = self.has_sound_boxes() && !self.schema.has_lossy_dimensions();
        self.non_empty_domain().filter(|_| is_exact)
    }

    /// Calls `visit` with the MBR of each tile, in order. `Corrupt` if a sparse fragment has another
    /// number of them.
    pub fn visit_tile_boxes(&self, visit: impl FnMut(u64, &[Bounds<'_>]) -> Result<()>) -> Result<()> {
        let tiles = self.geometry.tile_num;
        let one_each = |boxes: u64| match self.footer.dense || boxes == tiles {
            true => Ok(()),
            false => Err(Error::corrupt(format!("{boxes} MBRs for {tiles} tiles"))),
        };
        let visited = match &self.footer.inline {
            Some(inline) => {
                let boxes = &inline.mbrs.boxes;
                one_each(boxes.len()).and_then(|()| boxes.visit(&*inline.mbrs.body, 0..boxes.len(), visit))
            }
            None => {
                let offset = self.footer.offsets.rtree;
                let parse = |body: OpenBody| {
                    let rtree = RTree::parse(&body, self.footer.version, &self.schema)?;
                    one_each(rtree.leaves().map_or(0, Boxes::len))?;
                    Ok((rtree, body))
                };
                let parsed = self.generic_body(offset).open().and_then(parse);
                let parsed = parsed.map_err(|e| e.in_part("R-tree").at(offset));
                parsed.and_then(|(rtree, body)| match rtree.leaves() {
                    Some(leaves) => leaves.visit(&body, 0..leaves.len(), visit),
                    None => Ok(()),
                })
            }
        };
        visited.map_err(|e| self.place(e))
    }
}
