//! The open files of a field of a fragment, and the tiles in them.

use super::field::{Role, StoredField};
use super::geometry::Geometry;
use super::info::FragmentInfo;
use super::tile_file::TileFile;
use super::tile_list::TileList;
use crate::bytes::{Keep, Output};
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The open files of a field. Reading from a file that is not open is an error.
pub struct FieldFiles {
    geometry: Geometry,
    /// Bytes of a cell; for a var-sized field, of an offset.
    cell_size: u64,
    /// The values of fixed-size cells (of all dimensions if zipped), or the offsets of var-sized cells.
    pub fixed: Option<TileFile>,
    /// The values of var-sized cells.
    pub var: Option<TileFile>,
    /// `var` with a codec that also rebuilds offsets; None if offsets cannot be embedded.
    embedding: Option<TileFile>,
    /// The validity bytes.
    pub validity: Option<TileFile>,
    /// The unfiltered size of each tile of var-sized values, in bytes.
    pub var_sizes: Option<Arc<dyn TileList>>,
    zipped: Option<Zipped>,
    /// The last result of [`FieldFiles::embeds`]: twice the tile number, plus 1 for true.
    embeds: AtomicU64,
}

/// One tile of a field.
#[derive(Debug, Clone, Copy)]
pub struct Tile {
    /// Its number.
    pub number: u64,
    /// Its cells.
    pub cells: u64,
    /// Bytes of the values of var-sized cells; 0 for fixed-size cells.
    pub var_size: u64,
    /// Whether its offsets are embedded in its values.
    pub embedded: bool,
}

/// The place of a dimension in a tile of zipped coordinates.
#[derive(Debug, Clone, Copy)]
struct Zipped {
    dimension: u64,
    dimensions: u64,
    /// Whether a tile holds all values of the first dimension, then all of the second, and so on; if not, it
    /// holds tuples.
    split: bool,
}

impl FieldFiles {
    /// The given open files of `field`, one of `info.fields`.
    pub fn new(
        info: &FragmentInfo,
        field: &StoredField,
        fixed: Option<TileFile>,
        var: Option<TileFile>,
        validity: Option<TileFile>,
        var_sizes: Option<Arc<dyn TileList>>,
    ) -> Self {
        let embeds = field.may_embed_offsets(&info.schema);
        let zipped = match field.role {
            Role::ZippedDimension(dimension) => Some(Zipped {
                dimension: dimension as u64,
                dimensions: info.schema.dimensions.len() as u64,
                // Only version 1 stored tuples, and only without compression.
                split: info.version() > 1 || info.schema.coords_filters.has_compressor(),
            }),
            _ => None,
        };
        FieldFiles {
            embedding: var.as_ref().filter(|_| embeds).map(TileFile::embedding_offsets),
            fixed,
            var,
            validity,
            var_sizes,
            zipped,
            embeds: AtomicU64::new(u64::MAX),
            geometry: info.geometry,
            cell_size: field.cell_size().unwrap_or(8),
        }
    }

    /// Bytes of the values of tile `tile` of var-sized cells.
    pub fn var_size(&self, tile: u64) -> Result<u64> {
        opened(&self.var_sizes)?.of_tile(self.geometry.tile_num, tile)
    }

    /// Whether the offsets of tile `tile` are embedded in its values. If so, the offsets tile has no chunks.
    pub fn embeds(&self, tile: u64) -> Result<bool> {
        if self.embedding.is_none() {
            return Ok(false);
        }
        // Reads of one tile come in a row.
        let known = self.embeds.load(Ordering::Relaxed);
        if known != u64::MAX && known / 2 == tile {
            return Ok(known % 2 == 1);
        }
        let embeds = opened(&self.fixed)?.stored_chunks(tile)? == 0;
        let answer = 2 * tile + u64::from(embeds);
        self.embeds.store(answer, Ordering::Relaxed);
        Ok(embeds)
    }

    /// The file of the values of var-sized cells, with the codec for a tile whose offsets are embedded or
    /// not.
    pub fn values(&self, embedded: bool) -> Option<&TileFile> {
        match embedded {
            true => self.embedding.as_ref(),
            false => self.var.as_ref(),
        }
    }

    /// Puts bytes of tile `tile` into `out`: values of fixed-size cells, or stored offsets.
    pub fn read_fixed(&self, tile: u64, range: Range<u64>, out: &mut Output) -> Result<()> {
        let part = opened(&self.fixed)?;
        let cells = self.geometry.cells_of(tile);
        let size = cells.checked_mul(self.cell_size).ok_or_else(overflow)?;
        match self.zipped {
            None => part.read(tile, size, range, out),
            Some(zipped) => read_zipped(part, zipped, tile, size, self.cell_size, range, out),
        }
    }

    /// Puts the bytes in `range` of the values of var-sized cells into `out`.
    pub fn read_var(&self, tile: &Tile, range: Range<u64>, out: &mut Output) -> Result<()> {
        let part = self.values(tile.embedded).ok_or_else(missing)?;
        part.read(tile.number, tile.var_size, range, out)
    }

    /// Puts the validity of some cells of tile `tile` into `out`.
    pub fn read_validity(&self, tile: u64, cells: Range<u64>, out: &mut Output) -> Result<()> {
        let size = self.geometry.cells_of(tile);
        opened(&self.validity)?.read(tile, size, cells, out)
    }

    /// Appends the offsets of some var-sized cells plus `base`, little-endian u64. `Corrupt` if the first
    /// offset of the tile is not 0, or if offsets descend or exceed the values.
    pub fn read_offsets(&self, tile: &Tile, cells: Range<u64>, base: u64, out: &mut Output) -> Result<()> {
        let bytes = 8 * cells.start..8 * cells.end;
        let start = out.len();
        if tile.embedded && tile.cells > 0 {
            let values = opened(&self.embedding)?;
            let keep = out.keep.unwrap_or(Keep::Staying);
            match values.embedded_offsets(tile.number, tile.var_size, tile.cells, keep)? {
                Some(offsets) => {
                    let wanted = bytes.start as usize..bytes.end as usize;
                    let missing = || Error::internal("the tile has fewer offsets than cells");
                    out.append(offsets.get(wanted).ok_or_else(missing)?);
                }
                None => out.write(|out| out.resize(start + (bytes.end - bytes.start) as usize, 0)),
            }
        } else {
            self.read_fixed(tile.number, bytes, out)?;
        }
        let check = |out: &mut Vec<u8>| {
            let entries = out[start..].as_chunks_mut().0;
            check_offsets(entries, cells.start, tile.var_size, base)
        };
        out.write(check).map_err(|e| {
            let path = self.fixed.as_ref().map_or("", |part| part.blob.display());
            e.in_part(format_args!("tile {}", tile.number)).in_file(path)
        })
    }
}

/// Checks offsets of cells from `first` on in a tile of `size` bytes, and adds `base` to each.
fn check_offsets(entries: &mut [[u8; 8]], first: u64, size: u64, base: u64) -> Result<()> {
    let mut previous = 0;
    for (cell, entry) in (first..).zip(entries) {
        let offset = u64::from_le_bytes(*entry);
        if offset < previous || offset > size || cell == 0 && offset != 0 {
            return Err(Error::corrupt(format!(
                "the offset of cell {cell} is {offset}, but the one before it is {previous} and the tile has \
                     {size} bytes"
            )));
        }
        previous = offset;
        *entry = (base + offset).to_le_bytes();
    }
    Ok(())
}

fn opened<T>(part: &Option<T>) -> Result<&T> {
    part.as_ref().ok_or_else(missing)
}

/// The error of reading from a file that was not opened.
pub(super) fn missing() -> Error {
    Error::internal("a file of the column was not opened")
}

/// The error of a column with more than 2^64 bytes.
pub(super) fn overflow() -> Error {
    Error::limit("the column has more than 2^64 bytes").at(0)
}

/// Reads the bytes in `range` of one dimension's `column` bytes from a tile of zipped coordinates.
fn read_zipped(
    part: &TileFile,
    zipped: Zipped,
    tile: u64,
    column: u64,
    cell_size: u64,
    range: Range<u64>,
    out: &mut Output,
) -> Result<()> {
    let size = column.checked_mul(zipped.dimensions).ok_or_else(overflow)?;
    if zipped.split {
        let start = zipped.dimension * column;
        return part.read(tile, size, start + range.start..start + range.end, out);
    }
    let tuple = cell_size * zipped.dimensions;
    let first = range.start / cell_size;
    let last = range.end.div_ceil(cell_size);
    let mut tuples = Output::keeping(out.keep);
    part.read(tile, size, first * tuple..last * tuple, &mut tuples)?;
    let skip = (range.start - first * cell_size) as usize;
    let from = (zipped.dimension * cell_size) as usize;
    let values = tuples
        .chunks_exact(tuple as usize)
        .flat_map(|t| &t[from..from + cell_size as usize]);
    let wanted = values.skip(skip).take((range.end - range.start) as usize);
    out.write(|out| out.extend(wanted));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_ascend_from_zero_to_the_end() {
        let check = |offsets: &[u64], first| {
            let mut entries: Vec<_> = offsets.iter().map(|offset| offset.to_le_bytes()).collect();
            let result = check_offsets(&mut entries, first, 5, 100);
            result.map(|()| entries.into_iter().map(u64::from_le_bytes).collect::<Vec<_>>())
        };
        assert_eq!(check(&[0, 0, 3, 5], 0).unwrap(), [100, 100, 103, 105]);
        assert_eq!(check(&[2, 3], 7).unwrap(), [102, 103]);
        assert!(check(&[1, 3], 0).is_err());
        assert!(check(&[0, 3, 2], 0).is_err());
        assert!(check(&[0, 6], 0).is_err());
    }
}
