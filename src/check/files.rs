//! Checks the lengths of a field's files and the chunks of its tiles, and reads its cells.

use super::{Checker, Kind, Problem};
use crate::bytes::Output;
use crate::error::{Error, Result};
use crate::format::name::Part;
use crate::fragment::column::Column;
use crate::fragment::field::{Role, StoredField};
use crate::fragment::field_files::{FieldFiles, Tile};
use crate::fragment::info::FragmentInfo;
use crate::fragment::tile_file::TileFile;
use crate::fragment::tile_list::TileListKey;
use std::ops::Range;
use std::sync::Arc;

/// The files of one field, open.
pub(super) struct Files {
    /// The field.
    pub field: StoredField,
    info: Arc<FragmentInfo>,
    files: FieldFiles,
    /// Whether it is a dimension inside zipped coordinates. Errors of their file are reported once, for the
    /// coordinates as a whole.
    inside: bool,
}

fn overflow() -> Error {
    Error::limit("the tile has more than 2^64 bytes")
}

impl Files {
    /// Opens the files of `field`. Reports files that are missing, or whose length is not that in the
    /// metadata.
    pub(super) fn open(checker: &Checker, info: &Arc<FragmentInfo>, field: &StoredField) -> Files {
        let column = Column::new(info.clone(), field.clone());
        let var = field.cell_val_num.is_var();
        let inside = matches!(field.role, Role::ZippedDimension(_));
        let part = |part, wanted: bool| {
            let wanted = wanted && info.geometry.tile_num > 0 && !inside;
            let path = info.file_path(field, part).unwrap_or_else(|_| info.path.clone());
            let opened = checker.take(wanted.then(|| column.part(part)).transpose(), &path)??;
            let (stored, actual) = (opened.file_size, opened.blob.len());
            if stored != actual {
                let message = format!("the file has {actual} bytes, but the metadata says {stored}");
                let problem = checker.problem(Kind::Size, &path, message);
                // Readers do not look behind the last tile, and programs that write a fragment twice leave
                // bytes there.
                checker.report(if actual > stored { problem.noted() } else { problem });
            }
            Some(opened)
        };
        let values = part(Part::Var, var);
        let fixed = match inside {
            true => column.part(Part::Fixed).ok(),
            false => part(Part::Fixed, true),
        };
        let validity = part(Part::Validity, field.nullable);
        let sizes = || info.list(field.slot, TileListKey::TileVarSizes, true);
        let sizes = checker.take(var.then(sizes).transpose(), &info.metadata_path());
        Files {
            files: FieldFiles::new(info, field, fixed, values, validity, sizes.flatten()),
            field: field.clone(),
            info: info.clone(),
            inside,
        }
    }

    /// Whether all files that reading cells needs are open.
    fn is_complete(&self) -> bool {
        let (files, var) = (&self.files, self.field.cell_val_num.is_var());
        files.fixed.is_some()
            && (!var || files.var.is_some() && files.var_sizes.is_some())
            && (!self.field.nullable || files.validity.is_some())
    }

    /// Its own file of values (or offsets); None for a dimension inside zipped coordinates.
    fn fixed(&self) -> Option<&TileFile> {
        self.files.fixed.as_ref().filter(|_| !self.inside)
    }

    /// The number of tiles to check: that in the metadata, but no more than the file has room for at eight
    /// bytes or more for each.
    pub(super) fn tiles(&self) -> u64 {
        let room = self.fixed().map_or(0, |part| part.blob.len() / 8);
        room.min(self.info.geometry.tile_num)
    }

    /// The average size of a tile as stored in all files together, in bytes; at least 1.
    pub(super) fn average_tile(&self) -> u64 {
        let files = [
            self.fixed(),
            self.files.var.as_ref(),
            self.files.validity.as_ref(),
        ];
        let bytes = files
            .into_iter()
            .flatten()
            .fold(0u64, |sum, part| sum.saturating_add(part.file_size));
        (bytes / self.info.geometry.tile_num.max(1)).max(1)
    }

    /// As [`Files::find`], but counts the tile and reports errors.
    pub(super) fn tile(&self, checker: &Checker, number: u64) -> Option<Tile> {
        if !self.inside {
            checker.tally.tiles.add(1);
        }
        self.find(number, |part| match part {
            Ok(bytes) => checker.tally.stored_bytes.add(bytes),
            Err(e) => checker.report(self.problem(&e)),
        })
    }

    /// Finds the chunks of tile `number` in all files. They must fill the tile's extent in the file, and add
    /// up to its unfiltered length. Calls `each` for every file with the stored bytes of the tile, or an
    /// error. Returns the tile if there was no error.
    pub(super) fn find(&self, number: u64, mut each: impl FnMut(Result<u64>)) -> Option<Tile> {
        let cells = self.info.geometry.cells_of(number);
        let mut sound = true;
        let mut keep = |result: Result<u64>| {
            sound &= result.is_ok();
            each(result);
        };
        let mut tile = Tile {
            number,
            cells,
            var_size: 0,
            embedded: false,
        };
        if let Some(list) = &self.files.var_sizes {
            let size = list.of_tile(self.info.geometry.tile_num, number);
            keep(size.map(|size| {
                tile.var_size = size;
                0
            }));
        }
        if let Some(part) = self.fixed() {
            keep(self.check_fixed(part, &mut tile));
        }
        if let Some(part) = self.files.values(tile.embedded) {
            keep(check_part(part, number, tile.var_size));
        }
        if let Some(part) = &self.files.validity {
            keep(check_part(part, number, cells));
        }
        (sound && self.is_complete()).then_some(tile)
    }

    fn check_fixed(&self, part: &TileFile, tile: &mut Tile) -> Result<u64> {
        if tile.cells > 0 && self.files.embeds(tile.number)? {
            tile.embedded = true;
            let extent = part.extent(tile.number)?;
            let length = extent.end - extent.start;
            if length != 8 {
                let message = format!("a tile of offsets without chunks must take 8 bytes, found {length}");
                return Err(Error::corrupt(message)
                    .in_part(format_args!("tile {}", tile.number))
                    .at(extent.start)
                    .in_file(part.blob.display()));
            }
            return Ok(length);
        }
        let size = self.field.cell_size().unwrap_or(8);
        check_part(
            part,
            tile.number,
            tile.cells.checked_mul(size).ok_or_else(overflow)?,
        )
    }

    /// `error` as a finding of this field.
    pub(super) fn problem(&self, error: &Error) -> Problem {
        let name = String::from_utf8_lossy(&self.field.name);
        let storage = &self.info.engine.storage;
        Problem::from_error(error, storage.display(&self.info.path)).in_part(format_args!("field `{name}`"))
    }

    /// The path of its file of values (or offsets), as findings show it.
    pub(super) fn path(&self) -> String {
        match self.fixed() {
            Some(part) => part.blob.display().to_owned(),
            None => self.info.engine.storage.display(&self.info.path),
        }
    }

    /// Reads the bytes in `range` of the fixed-size values of a tile.
    pub(super) fn read_fixed(&self, tile: &Tile, range: Range<u64>, out: &mut Output) -> Result<()> {
        out.clear();
        self.files.read_fixed(tile.number, range, out)
    }

    /// Reads the bytes in `range` of the var data of a tile.
    pub(super) fn read_var(&self, tile: &Tile, range: Range<u64>, out: &mut Output) -> Result<()> {
        out.clear();
        self.files.read_var(tile, range, out)
    }

    /// Reads the validity bytes of the `cells` of a tile.
    pub(super) fn read_validity(&self, tile: &Tile, cells: Range<u64>, out: &mut Output) -> Result<()> {
        out.clear();
        self.files.read_validity(tile.number, cells, out)
    }

    /// Reads the offsets of the `cells` of a tile in its var data, as little-endian u64.
    pub(super) fn read_offsets(&self, tile: &Tile, cells: Range<u64>, out: &mut Output) -> Result<()> {
        out.clear();
        self.files.read_offsets(tile, cells, 0, out)
    }
}

/// Finds the chunks of a tile, which must add up to `size` unfiltered bytes. Returns the bytes that the tile
/// takes in the file.
fn check_part(part: &TileFile, tile: u64, size: u64) -> Result<u64> {
    let extent = part.extent(tile)?;
    if tile == 0 && extent.start != 0 {
        return Err(Error::corrupt("the first tile does not begin at byte 0")
            .in_part("tile 0")
            .at(extent.start)
            .in_file(part.blob.display()));
    }
    part.index(tile, size)?;
    Ok(extent.end - extent.start)
}
