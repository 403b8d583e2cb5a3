//! The cells of a field of a view as bytes that can be read at any offset.
//!
//! The offset of a fixed-size cell is a multiple of its size. Var-sized cells are divided into blocks, of
//! which the first cell and byte are noted. Where cells are read as they are stored, blocks are whole tiles,
//! whose sizes metadata has; the lengths of all others are added up, in one pass on all threads. Finding a
//! byte takes a search for its block, then one for its cell among the offsets in the block. Both tables are
//! in the cache, and made again after eviction.

use crate::bytes::{Keep, Output};
use crate::catalog::Array;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::runtime::cache::CacheKey;
use crate::runtime::parallel;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Reads runs of cells of one field of a view, in the view's order. Ranges must be within the number of
/// cells.
pub(super) trait Runs: Send + Sync {
    fn count(&self) -> u64;

    /// Appends the values of fixed-size cells.
    fn fixed(&self, cells: Range<u64>, out: &mut Output) -> Result<()>;

    /// Appends the length in bytes of each var-sized cell. Decodes no values; chunks are cached as in
    /// [`Output::keep`].
    fn lengths(&self, cells: Range<u64>, keep: Option<Keep>, out: &mut Vec<u64>) -> Result<()>;

    /// Calls `take` with the number of var-sized cells of each run, in order until all have been passed, and
    /// with the bytes of their values if the run is a whole tile whose size metadata has.
    fn each_tile(&self, take: &mut dyn FnMut(u64, Option<u64>) -> Result<()>) -> Result<()> {
        take(self.count(), None)
    }

    /// Appends the values of var-sized cells, concatenated.
    fn var(&self, cells: Range<u64>, out: &mut Output) -> Result<()>;

    /// Appends the range `bytes` of one cell, fixed-size or var-sized. The whole cell may be too long for
    /// memory.
    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Output) -> Result<()>;

    /// Appends a validity byte for each cell.
    fn validity(&self, cells: Range<u64>, out: &mut Output) -> Result<()>;
}

/// Cells per block, if there are fewer than 2^32 cells in all. Blocks of whole tiles have at most as many, or
/// are one tile.
const BLOCK_CELLS: u64 = 1 << 14;

/// The approximate maximum of blocks, apart from those split by their bytes. With more cells in all, a block
/// has more cells.
const MAX_BLOCKS: u64 = 1 << 18;

/// Larger tiles are not read as one block: reading a byte takes all offsets of a block.
const MAX_TILE_CELLS: u64 = 1 << 17;

/// A block ends after this many bytes of values, unless it is of whole tiles.
const MAX_BLOCK_BYTES: u64 = 4 << 20;

/// The most var-sized cells. With more, even the offsets of a single block would be large.
const MAX_VAR_CELLS: u64 = 1 << 38;

/// The cells of a field, read by [`Runs`], as [`Cells`].
pub(super) struct RunCells<R> {
    runs: R,
    cell_size: Option<u64>,
    engine: Arc<Engine>,
    /// The array, relative to the source.
    path: PathBuf,
    /// The cache's number for this field in this state.
    object: u64,
    blocks: OnceLock<Blocks>,
}

/// The first cell and the first byte of each block of var-sized cells, as pairs of little-endian u64. The
/// last entry is the number of all cells and bytes.
struct Blocks(Arc<Vec<u8>>);

struct Block {
    cells: Range<u64>,
    /// The offset of its first byte among all values.
    start: u64,
    /// The offsets of its cells in the block, and the end of the last, as little-endian u64.
    starts: Arc<Vec<u8>>,
}

impl<R: Runs> RunCells<R> {
    /// The cells of `array` that `runs` reads, of `cell_size` bytes each (None: var-sized). `object` is the
    /// cache's number for the field in this state: see [`Engine::number`].
    pub(super) fn new(runs: R, cell_size: Option<u64>, array: &Array, object: u64) -> Self {
        RunCells {
            runs,
            cell_size,
            engine: array.engine.clone(),
            path: array.path.clone(),
            object,
            blocks: OnceLock::new(),
        }
    }

    fn blocks(&self) -> Result<&Blocks> {
        if let Some(blocks) = self.blocks.get() {
            return Ok(blocks);
        }
        let count = self.runs.count();
        if count > MAX_VAR_CELLS {
            return Err(Error::limit(format!(
                "{count} var-sized cells are more than the {MAX_VAR_CELLS} allowed"
            )));
        }
        let cells = (count / MAX_BLOCKS).next_power_of_two().max(BLOCK_CELLS);
        let estimate = (count / cells).saturating_mul(32);
        let _waiting = self.engine.work.wait(self.object);
        let bytes = self.derived(u64::MAX, estimate, Keep::Staying, || self.measure(count, cells))?;
        Ok(self.blocks.get_or_init(|| Blocks(bytes)))
    }

    /// The cells of each block, at most `block` or those of a tile, and the bytes of their values if metadata
    /// tells. `count` is the number of all cells.
    fn divide(&self, count: u64, block: u64) -> Result<Vec<(Range<u64>, Option<u64>)>> {
        let mut blocks: Vec<(Range<u64>, Option<u64>)> = Vec::new();
        let mut start = 0;
        self.runs.each_tile(&mut |cells, bytes| {
            let end = start + cells;
            match (bytes.filter(|_| cells <= MAX_TILE_CELLS), blocks.last_mut()) {
                (Some(bytes), Some((last, Some(known)))) if end - last.start <= block => {
                    last.end = end;
                    *known = known.checked_add(bytes).ok_or_else(too_long)?;
                }
                (Some(bytes), _) => blocks.push((start..end, Some(bytes))),
                (None, _) => {
                    let firsts = (start..end).step_by(block as usize);
                    blocks.extend(firsts.map(|first| (first..(first + block).min(end), None)));
                }
            }
            start = end;
            Ok(())
        })?;
        check(start, count, "cells")?;
        Ok(blocks)
    }

    /// Makes the entries of [`Blocks`]. `count` is the number of all cells, `block` the number of cells per
    /// block.
    fn measure(&self, count: u64, block: u64) -> Result<Vec<u8>> {
        let work = &self.engine.work;
        let job = work.start(
            self.object,
            self.path.display().to_string(),
            "measuring var-sized cells",
            count,
        );
        let blocks = self.divide(count, block)?;
        let parts = parallel::each(blocks.len() as u64, |number| {
            let (cells, bytes) = blocks[number as usize].clone();
            if let Some(bytes) = bytes {
                return Ok(vec![(cells.end - cells.start, bytes)]);
            }
            let mut lengths = Vec::new();
            self.lengths(cells, Keep::Passing, &mut lengths)?;
            job.advance(lengths.len() as u64)?;
            let (mut parts, mut cells, mut bytes) = (Vec::new(), 0u64, 0u64);
            for length in lengths {
                if bytes >= MAX_BLOCK_BYTES {
                    parts.push((cells, bytes));
                    (cells, bytes) = (0, 0);
                }
                cells += 1;
                bytes = bytes.checked_add(length).ok_or_else(too_long)?;
            }
            parts.push((cells, bytes));
            Ok(parts)
        })?;
        let mut out = Vec::new();
        let (mut cell, mut byte) = (0u64, 0u64);
        let mut note = |cell: u64, byte: u64| {
            out.extend_from_slice(&cell.to_le_bytes());
            out.extend_from_slice(&byte.to_le_bytes());
        };
        for (cells, bytes) in parts.into_iter().flatten() {
            note(cell, byte);
            cell += cells;
            byte = byte.checked_add(bytes).ok_or_else(too_long)?;
        }
        note(cell, byte);
        Ok(out)
    }

    fn lengths(&self, cells: Range<u64>, keep: impl Into<Option<Keep>>, out: &mut Vec<u64>) -> Result<()> {
        let wanted = cells.end - cells.start;
        self.runs.lengths(cells, keep.into(), out)?;
        check(out.len() as u64, wanted, "lengths")
    }

    /// Block `number`, for a read that says `keep`. `Corrupt` if the lengths of its cells changed since
    /// `blocks` was made.
    fn block(&self, number: usize, blocks: &Blocks, keep: Option<Keep>) -> Result<Block> {
        let ((first, start), (end, last)) = (blocks.get(number), blocks.get(number + 1));
        let cells = first..end;
        let size = (end - first + 1) * 8;
        let starts = self.derived(number as u64, size, keep.unwrap_or(Keep::Staying), || {
            let mut lengths = Vec::new();
            self.lengths(cells.clone(), keep, &mut lengths)?;
            let mut out = Vec::with_capacity((lengths.len() + 1) * 8);
            let mut position = 0u64;
            for length in lengths {
                out.extend_from_slice(&position.to_le_bytes());
                position = position.checked_add(length).ok_or_else(too_long)?;
            }
            out.extend_from_slice(&position.to_le_bytes());
            Ok(out)
        })?;
        let block = Block { cells, start, starts };
        let (cells, bytes) = (end - first, last - start);
        check(block.entries().len() as u64, cells + 1, "entries")?;
        if block.at(cells as usize) != bytes {
            return Err(Error::corrupt(format!(
                "cells {first} to {end} have {} bytes, but had {bytes} before: files have changed",
                block.at(cells as usize)
            ))
            .at(0));
        }
        Ok(block)
    }

    /// The cache's entry `tile` of this field, made by `make` in a single flight. `size` is an estimate in
    /// bytes.
    fn derived(
        &self,
        tile: u64,
        size: u64,
        keep: Keep,
        make: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>> {
        self.engine
            .cache
            .derive(CacheKey::tile(self.object, tile), size, keep, make)
    }

    /// Appends the bytes in `range` of fixed-size cells.
    fn read_fixed(&self, range: Range<u64>, size: u64, out: &mut Output) -> Result<()> {
        let cells = range.start / size..range.end.div_ceil(size);
        let before = out.len();
        let wanted = range.end - range.start;
        if size <= self.engine.tuning.long_cell_bytes {
            self.runs.fixed(cells.clone(), out)?;
            check(
                (out.len() - before) as u64,
                (cells.end - cells.start) * size,
                "bytes",
            )?;
            return out.cut(before, (range.start % size) as usize, wanted as usize);
        }
        for cell in cells {
            let start = cell * size;
            let part = range.start.max(start) - start..(range.end - start).min(size);
            self.runs.part_of_cell(cell, part, out)?;
        }
        check((out.len() - before) as u64, wanted, "bytes")
    }

    /// Appends the bytes in `range` of var-sized cells.
    fn read_var(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let blocks = self.blocks()?;
        let mut position = range.start;
        while position < range.end {
            let number = blocks.find(|(_, byte)| byte <= position);
            let block = self.block(number, blocks, out.keep)?;
            let end = (block.start + block.size()).min(range.end);
            if end <= position {
                return Err(Error::internal("the block has no bytes to read"));
            }
            self.read_block(&block, position - block.start..end - block.start, out)?;
            position = end;
        }
        Ok(())
    }

    /// Appends the range `bytes`, which is not empty, of the values of a block. Reads a long cell only as far
    /// as wanted.
    fn read_block(&self, block: &Block, bytes: Range<u64>, out: &mut Output) -> Result<()> {
        let entries = block.entries();
        let begins_by = |byte: u64| entries.partition_point(|start| u64::from_le_bytes(*start) <= byte);
        let first = begins_by(bytes.start) - 1;
        let last = begins_by(bytes.end - 1);
        let mut cell = first;
        while cell < last {
            let (start, end) = (block.at(cell), block.at(cell + 1));
            let whole = bytes.start <= start && end <= bytes.end;
            if !whole && end - start > self.engine.tuning.long_cell_bytes {
                let part = bytes.start.max(start) - start..bytes.end.min(end) - start;
                let wanted = part.end - part.start;
                let before = out.len();
                self.runs
                    .part_of_cell(block.cells.start + cell as u64, part, out)?;
                check((out.len() - before) as u64, wanted, "bytes")?;
                cell += 1;
                continue;
            }
            // Reads the cells up to the end at once, except a long last one of which only a part is wanted.
            let mut stop = last;
            let tail = block.at(last - 1);
            if block.at(last) > bytes.end && block.at(last) - tail > self.engine.tuning.long_cell_bytes {
                stop = (last - 1).max(cell + 1);
            }
            let end = block.at(stop);
            let run = block.cells.start + cell as u64..block.cells.start + stop as u64;
            let before = out.len();
            self.runs.var(run, out)?;
            check((out.len() - before) as u64, end - start, "bytes")?;
            let wanted = bytes.start.max(start)..bytes.end.min(end);
            let length = wanted.end - wanted.start;
            out.cut(before, (wanted.start - start) as usize, length as usize)?;
            cell = stop;
        }
        Ok(())
    }

    /// Appends entries of the offsets, little-endian u64: the start of each cell, and the end of the last.
    fn read_offsets(&self, entries: Range<u64>, out: &mut Output) -> Result<()> {
        let blocks = self.blocks()?;
        let (count, total) = blocks.total();
        let mut entry = entries.start;
        while entry < entries.end.min(count) {
            let number = blocks.find(|(cell, _)| cell <= entry);
            let (first, start) = blocks.get(number);
            if entry == first && entry > entries.start && entries.end == first + 1 {
                // The end of the cells before it. It takes no lengths.
                out.append(&start.to_le_bytes());
                break;
            }
            let block = self.block(number, blocks, out.keep)?;
            let end = block.cells.end.min(entries.end);
            let wanted = (entry - block.cells.start) as usize..(end - block.cells.start) as usize;
            let starts = &block.entries()[wanted];
            let starts = starts
                .iter()
                .map(|start| block.start + u64::from_le_bytes(*start));
            out.write(|out| out.extend(starts.flat_map(u64::to_le_bytes)));
            entry = end;
        }
        if entries.end > count {
            out.append(&total.to_le_bytes());
        }
        Ok(())
    }
}

impl Blocks {
    fn entries(&self) -> &[[u8; 16]] {
        self.0.as_chunks().0
    }

    /// First cell and first byte of block `number`; after the last block, the number of all cells and bytes.
    fn get(&self, number: usize) -> (u64, u64) {
        numbers(&self.entries()[number])
    }

    /// The number of all cells and bytes.
    fn total(&self) -> (u64, u64) {
        let entries = self.entries();
        numbers(&entries[entries.len() - 1])
    }

    /// The last block whose first cell and byte satisfy `by`.
    fn find(&self, by: impl Fn((u64, u64)) -> bool) -> usize {
        let entries = self.entries();
        // The first block begins at cell 0 and byte 0.
        entries.partition_point(|entry| by(numbers(entry))) - 1
    }
}

fn numbers(entry: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*entry);
    (both as u64, (both >> 64) as u64)
}

impl Block {
    fn entries(&self) -> &[[u8; 8]] {
        self.starts.as_chunks().0
    }

    /// The offset in the block of cell number `cell`.
    fn at(&self, cell: usize) -> u64 {
        u64::from_le_bytes(self.entries()[cell])
    }

    fn size(&self) -> u64 {
        self.at(self.entries().len() - 1)
    }
}

fn too_long() -> Error {
    Error::limit("the column has more than 2^64 bytes")
}

fn check(found: u64, wanted: u64, what: &str) -> Result<()> {
    match found == wanted {
        true => Ok(()),
        false => Err(Error::internal(format!(
            "found {found} {what} of a view, expected {wanted}"
        ))),
    }
}

impl<R: Runs> Cells for RunCells<R> {
    fn count(&self) -> u64 {
        self.runs.count()
    }

    fn cell_size(&self) -> Option<u64> {
        self.cell_size
    }

    fn len(&self, content: Content) -> Result<u64> {
        let count = self.runs.count();
        match (content, self.cell_size) {
            (Content::Data, Some(size)) => count.checked_mul(size).ok_or_else(too_long),
            (Content::Data, None) => Ok(self.blocks()?.total().1),
            (Content::Offsets, _) => count
                .checked_add(1)
                .and_then(|entries| entries.checked_mul(8))
                .ok_or_else(too_long),
            (Content::Validity, _) => Ok(count),
        }
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        let len = self.len(content)?;
        let range = range.start.min(len)..range.end.min(len);
        if range.is_empty() {
            return Ok(());
        }
        let (before, wanted) = (out.len(), (range.end - range.start) as usize);
        match (content, self.cell_size) {
            (Content::Data, Some(size)) => self.read_fixed(range, size, out),
            (Content::Data, None) => self.read_var(range, out),
            (Content::Offsets, None) => {
                self.read_offsets(range.start / 8..range.end.div_ceil(8), out)?;
                out.cut(before, (range.start % 8) as usize, wanted)
            }
            (Content::Offsets, Some(_)) => Err(Error::internal("fixed-size cells have no offsets")),
            (Content::Validity, _) => {
                self.runs.validity(range, out)?;
                check((out.len() - before) as u64, wanted as u64, "bytes")
            }
        }
    }
}

#[cfg(test)]
mod tests;
