//! Reads the cells of a tile, some thousands at a time.

use super::files::Files;
use super::{Kind, Problem};
use crate::bytes::{Keep, Output, numbers};
use crate::error::Result;
use crate::fragment::field_files::Tile;
use std::ops::Range;

/// The most cells in a [`CellRun`].
pub(super) const CELLS: u64 = 16_384;

/// The most bytes of values in a [`CellRun`], unless a single cell is longer.
const BYTES: u64 = 4 << 20;

/// The longest cell, in bytes, that is kept in memory whole. Longer cells are decoded, but their values are
/// not checked.
const LONGEST: u64 = 64 << 20;

/// Consecutive cells of a tile.
pub(super) struct CellRun {
    /// Index of the first cell within the tile.
    pub first: u64,
    /// Number of cells.
    pub count: usize,
    /// The values, one after the other. Empty if the cells are too long.
    pub data: Output,
    /// For var-sized cells, the offset of each in `data` and the end of the last. Empty for fixed-size cells.
    pub starts: Vec<usize>,
    /// One validity byte for each cell. Empty if the field is not nullable.
    pub validity: Output,
    /// Whether the cells are longer than `LONGEST`, so that their values were not kept.
    pub too_long: bool,
    /// Bytes of values, offsets and validity that were decoded.
    pub bytes: u64,
    raw: Output,
}

impl Default for CellRun {
    /// No cells. Each chunk is read once.
    fn default() -> CellRun {
        CellRun {
            first: 0,
            count: 0,
            data: Output::keeping(Keep::Passing),
            starts: Vec::new(),
            validity: Output::keeping(Keep::Passing),
            too_long: false,
            bytes: 0,
            raw: Output::keeping(Keep::Passing),
        }
    }
}

impl CellRun {
    /// The indexes of the cells within the tile.
    pub(super) fn in_tile(&self) -> Range<u64> {
        self.first..self.first + self.count as u64
    }

    /// The value of the `i`-th cell, unless they are too long. `size` is the cell size in bytes; None for
    /// var-sized cells.
    pub(super) fn cell(&self, i: usize, size: Option<u64>) -> &[u8] {
        let range = match size {
            Some(size) => {
                let size = size as usize;
                i * size..(i + 1) * size
            }
            None => self.starts[i]..self.starts[i + 1],
        };
        &self.data[range]
    }

    /// Reads the cells from `first` on: at most `most`, fewer if they are long, but at least one.
    pub(super) fn read(&mut self, files: &Files, tile: &Tile, first: u64, most: u64) -> Result<()> {
        let count = (tile.cells - first).min(most);
        self.first = first;
        self.too_long = false;
        self.bytes = 0;
        self.validity.clear();
        self.starts.clear();
        self.count = count as usize;
        match files.field.cell_size() {
            Some(size) => {
                // Fixed-size cells may be long, too.
                self.count = count.min((BYTES / size).max(1)) as usize;
                let end = first + self.count as u64;
                let range = first * size..end * size;
                if size > LONGEST {
                    self.too_long = true;
                    self.bytes = range.end - range.start;
                    self.drain(range, |range, out| files.read_fixed(tile, range, out))?;
                } else {
                    files.read_fixed(tile, range, &mut self.data)?;
                    self.bytes = self.data.len() as u64;
                }
            }
            None => self.read_var(files, tile)?,
        }
        if files.field.nullable {
            files.read_validity(tile, self.in_tile(), &mut self.validity)?;
            self.bytes += self.validity.len() as u64;
        }
        Ok(())
    }

    fn read_var(&mut self, files: &Files, tile: &Tile) -> Result<()> {
        // The offset of the next cell is the end of the last one. The tile's last cell ends with its data.
        let end = (self.in_tile().end + 1).min(tile.cells);
        files.read_offsets(tile, self.first..end, &mut self.raw)?;
        let mut offsets: Vec<u64> = numbers(&self.raw).collect();
        if offsets.len() == self.count {
            offsets.push(tile.var_size);
        }
        let start = offsets[0];
        let fitting = offsets.partition_point(|&offset| offset - start <= BYTES);
        self.count = self.count.min((fitting - 1).max(1));
        let end = offsets[self.count];
        self.too_long = end - start > LONGEST;
        if self.too_long {
            self.drain(start..end, |range, out| files.read_var(tile, range, out))?;
        } else {
            files.read_var(tile, start..end, &mut self.data)?;
            let starts = offsets.iter().take(self.count + 1);
            self.starts
                .extend(starts.map(|&offset| (offset - start) as usize));
        }
        self.bytes = end - start + self.count as u64 * 8;
        Ok(())
    }

    /// Decodes the bytes in `range` in steps, without keeping them.
    fn drain(
        &mut self,
        range: Range<u64>,
        read: impl Fn(Range<u64>, &mut Output) -> Result<()>,
    ) -> Result<()> {
        let mut position = range.start;
        while position < range.end {
            let end = position.saturating_add(BYTES).min(range.end);
            read(position..end, &mut self.data)?;
            position = end;
        }
        self.data.clear();
        Ok(())
    }
}

/// A note on the first validity byte that is neither 0 nor 1. Readers treat such bytes as 1.
pub(super) fn odd_validity(files: &Files, tile: &Tile, cells: &CellRun) -> Option<Problem> {
    let odd = cells.validity.iter().position(|&byte| byte > 1)?;
    let byte = cells.validity[odd];
    let cell = cells.first + odd as u64;
    let message = format!("the validity of cell {cell} is {byte}, expected 0 or 1");
    let problem = Problem::new(Kind::Validity, files.path(), message);
    let name = String::from_utf8_lossy(&files.field.name).into_owned();
    Some(
        problem
            .in_part(format_args!("field `{name}`, tile {}", tile.number))
            .noted(),
    )
}
