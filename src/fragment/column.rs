//! A field of a fragment as seekable sequences of bytes (values, offsets, validity) of all tiles or of one.

use super::field::StoredField;
use super::field_files::{FieldFiles, Tile, missing, overflow};
use super::info::FragmentInfo;
use super::tile_file::TileFile;
use super::tile_list::{PrefixSums, TileList, TileListKey, WINDOW};
use crate::bytes::{Bytes, Keep, Output, SequentialDetector, numbers};
use crate::engine::Reopened;
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::name::Part;
use crate::storage::Blob;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Which sequence of a field's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    /// The values.
    Data,
    /// The start of each var-sized cell, little-endian u64.
    Offsets,
    /// One byte per cell, 0 = null.
    Validity,
}

impl Content {
    /// What a field of such cells has, [`Content::Data`] first.
    pub(crate) fn all(cell_val_num: CellValNum, nullable: bool) -> Vec<Content> {
        let offsets = cell_val_num.is_var().then_some(Content::Offsets);
        let validity = nullable.then_some(Content::Validity);
        let all = [Some(Content::Data), offsets, validity];
        all.into_iter().flatten().collect()
    }

    /// The datatype and the number of values per cell of this content of a field, whose values are so.
    pub fn stored_as(self, datatype: Datatype, cell_val_num: CellValNum) -> (Datatype, CellValNum) {
        match self {
            Content::Data => (datatype, cell_val_num),
            Content::Offsets => (Datatype::Uint64, CellValNum::Fixed(1)),
            Content::Validity => (Datatype::Uint8, CellValNum::Fixed(1)),
        }
    }
}

/// A field of a fragment. Opens nothing until [`Column::open`].
#[derive(Clone)]
pub struct Column {
    info: Arc<FragmentInfo>,
    field: StoredField,
    hold: bool,
}

impl Column {
    /// The column of `field`, one of `info.fields`.
    pub fn new(info: Arc<FragmentInfo>, field: StoredField) -> Self {
        Column {
            info,
            field,
            hold: true,
        }
    }

    /// This column. If `hold` is false, no file stays open, so that very many fragments can be read in turns.
    #[must_use]
    pub fn holding(self, hold: bool) -> Self {
        Column { hold, ..self }
    }

    /// Whether its files stay open.
    pub fn holds(&self) -> bool {
        self.hold
    }

    /// The field.
    pub fn field(&self) -> &StoredField {
        &self.field
    }

    /// The fragment.
    pub fn info(&self) -> &FragmentInfo {
        &self.info
    }

    /// The paths of the field's files, relative to the source.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut parts = vec![Part::Fixed];
        if self.field.cell_val_num.is_var() {
            parts.push(Part::Var);
        }
        if self.field.nullable {
            parts.push(Part::Validity);
        }
        self.paths(&parts)
    }

    /// The paths of the files needed for `content`, relative to the source. The first one holds it.
    pub fn files_of(&self, content: Content) -> Result<Vec<PathBuf>> {
        let embeds = self.field.may_embed_offsets(&self.info.schema);
        let other = match self.part_of(content) {
            Part::Fixed if embeds => Some(Part::Var),
            Part::Var if embeds => Some(Part::Fixed),
            _ => None,
        };
        let parts: Vec<Part> = [self.part_of(content)].into_iter().chain(other).collect();
        self.paths(&parts)
    }

    /// The file that holds `content`.
    pub fn part_of(&self, content: Content) -> Part {
        match content {
            Content::Data if self.field.cell_val_num.is_var() => Part::Var,
            Content::Data | Content::Offsets => Part::Fixed,
            Content::Validity => Part::Validity,
        }
    }

    fn paths(&self, parts: &[Part]) -> Result<Vec<PathBuf>> {
        let paths = parts.iter().map(|part| self.info.file_path(&self.field, *part));
        paths.collect()
    }

    /// Number of tiles.
    pub fn tile_num(&self) -> u64 {
        self.info.geometry.tile_num
    }

    /// The contents of the field, [`Content::Data`] first.
    pub fn contents(&self) -> Vec<Content> {
        Content::all(self.field.cell_val_num, self.field.nullable)
    }

    /// Bytes of `content` of one tile, or of all if `tile` is None: then there is one offset more than cells.
    /// Decodes no data tile.
    pub fn len(&self, content: Content, tile: Option<u64>) -> Result<u64> {
        self.length(content, tile).map_err(|e| self.info.place(e))
    }

    fn length(&self, content: Content, tile: Option<u64>) -> Result<u64> {
        let geometry = &self.info.geometry;
        let cells = tile.map_or(geometry.cell_num, |tile| geometry.cells_of(tile));
        match (content, self.field.cell_size()) {
            (Content::Data, Some(size)) => cells.checked_mul(size).ok_or_else(overflow),
            (Content::Data, None) => {
                let (sums, list) = self.info.var_sizes(self.field.slot, false)?;
                match tile {
                    None => Ok(sums.total()),
                    Some(tile) => list.of_tile(geometry.tile_num, tile),
                }
            }
            (Content::Offsets, _) => {
                let entries = if tile.is_none() {
                    cells.checked_add(1)
                } else {
                    Some(cells)
                };
                entries.and_then(|n| n.checked_mul(8)).ok_or_else(overflow)
            }
            (Content::Validity, _) => Ok(cells),
        }
    }

    /// Calls `take` with the number of cells and the bytes of values of each tile of `cells`, which are
    /// var-sized and whole tiles, in order. Decodes no data tile.
    pub fn each_tile(&self, cells: Range<u64>, mut take: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let geometry = &self.info.geometry;
        let (_, list) = self.info.var_sizes(self.field.slot, self.hold)?;
        let tiles = cells.start / geometry.tile_cells..cells.end.div_ceil(geometry.tile_cells);
        for first in tiles.clone().step_by(WINDOW as usize) {
            let window = first..tiles.end.min(first + WINDOW);
            let sizes = list.entries(geometry.tile_num, window.clone());
            for (tile, size) in window.zip(sizes.map_err(|e| self.info.place(e))?) {
                take(geometry.cells_of(tile), size)?;
            }
        }
        Ok(())
    }

    /// Opens the files needed to read `content`. `Changed` if a file of the fragment has changed since the
    /// metadata were read: what was read before may be of another state.
    pub fn open(&self, content: Content, tile: Option<u64>) -> Result<OpenColumn> {
        let opened = self.open_alone(content, tile)?;
        match self.info.edition.is_valid() {
            true => Ok(opened),
            false => Err(self.info.place(Error::changed())),
        }
    }

    /// [`Column::open`] for a reader of this column alone, to whom it does not matter whether another file
    /// has changed, or this one before it was opened.
    pub fn open_alone(&self, content: Content, tile: Option<u64>) -> Result<OpenColumn> {
        self.open_files(content, tile).map_err(|e| self.info.place(e))
    }

    fn open_files(&self, content: Content, tile: Option<u64>) -> Result<OpenColumn> {
        let len = self.len(content, tile)?;
        let var = self.field.cell_val_num.is_var();
        let embeds = self.field.may_embed_offsets(&self.info.schema);
        // Old libraries made fragments without cells, which have no files.
        let stored = self.info.geometry.tile_num > 0;
        if content == Content::Data && tile != Some(0) && self.may_mix_validity() {
            let cells = self.info.geometry.cells_of(0);
            self.part(Part::Validity)?.index(0, cells)?;
        }
        let needs_fixed = match content {
            Content::Data => !var || embeds,
            Content::Offsets => true,
            Content::Validity => false,
        };
        let needs_fixed = needs_fixed && stored;
        let needs_var = content == Content::Data && var || content == Content::Offsets && embeds;
        let needs_var = needs_var && stored;
        let var_sizes = match content {
            Content::Data | Content::Offsets if var => Some(self.info.var_sizes(self.field.slot, self.hold)?),
            _ => None,
        };
        let (sums, list) = var_sizes.unzip();
        let open = |part, wanted: bool| wanted.then(|| self.part(part)).transpose();
        let var = open(Part::Var, needs_var)?;
        let fixed = open(Part::Fixed, needs_fixed)?;
        let validity = open(Part::Validity, content == Content::Validity && stored)?;
        Ok(OpenColumn {
            len,
            content,
            tile,
            files: FieldFiles::new(&self.info, &self.field, fixed, var, validity, list),
            column: self.clone(),
            sums,
            sequence: SequentialDetector::default(),
        })
    }

    /// Whether its writer may have mixed values and validity: releases 2.2.0 to 2.2.7 wrote, in each tile but
    /// the first of a sparse fragment, the validity of the first cell for its value, and the value behind the
    /// validity of the tile before. Then the first tile of validity is too long.
    fn may_mix_validity(&self) -> bool {
        let (info, field) = (&self.info, &self.field);
        matches!(info.version(), 7 | 8)
            && !info.footer.dense
            && info.geometry.tile_num > 1
            && field.nullable
            && field.cell_size().is_some()
    }

    /// Opens one of the field's files. `Corrupt` if it is missing.
    pub fn part(&self, part: Part) -> Result<TileFile> {
        let (info, field) = (&self.info, &self.field);
        let list = match part {
            Part::Fixed => TileListKey::TileOffsets,
            Part::Var => TileListKey::TileVarOffsets,
            Part::Validity => TileListKey::TileValidityOffsets,
        };
        let path = info.file_path(field, part)?;
        let codec = field.codec(&info.schema, part, &info.writer).ok_or_else(|| {
            Error::corrupt("the attribute is nullable, but the schema has no validity filters").at(0)
        })?;
        let missing = |e| info.engine.incomplete(&info.path, e);
        let open = || -> Result<Arc<dyn Blob>> {
            Ok(match self.hold && info.engine.may_hold() {
                true => info.engine.open_immutable(&path)?,
                false => Arc::new(Reopened::new(&info.engine, path.clone())?),
            })
        };
        let blob = info.engine.read_in(&info.path, open).map_err(missing)?;
        info.edition.meet(&info.engine, field.slot, part, blob.version());
        let offsets = info.list(field.slot, list, self.hold)?;
        Ok(TileFile {
            engine: info.engine.clone(),
            object: info.engine.object(&*blob, info.read_from),
            path,
            edition: info.edition.clone(),
            blob,
            codec: codec.bounded(info.engine.cache.most_at_once() / 2),
            offsets,
            file_size: info.file_size(field.slot, part),
            geometry: info.geometry,
            generic: false,
        })
    }
}

/// A column whose files are open.
pub struct OpenColumn {
    column: Column,
    files: FieldFiles,
    content: Content,
    tile: Option<u64>,
    len: u64,
    /// Running sums of the sizes of tiles of var-sized cells.
    sums: Option<Arc<PrefixSums>>,
    sequence: SequentialDetector,
}

impl Bytes for OpenColumn {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if range.end > self.len {
            let message = format!("byte {} wanted, but it ends at byte {}", range.end, self.len);
            return Err(self.place(Error::truncated(message).at(self.len)));
        }
        let before = out.len();
        let keep = out.keep.unwrap_or_else(|| self.sequence.next(&range));
        let read = out.kept(keep, |out| self.read_into(range.clone(), out));
        read.map_err(|e| self.place(e))?;
        let found = (out.len() - before) as u64;
        match found == range.end - range.start {
            true => Ok(()),
            false => Err(self.place(Error::internal(format!(
                "read {found} bytes of a column, expected {range:?}"
            )))),
        }
    }
}

impl OpenColumn {
    /// A hash that differs between states of its files.
    pub fn version(&self) -> u64 {
        [&self.files.fixed, &self.files.var, &self.files.validity]
            .into_iter()
            .flatten()
            .fold(0, |version: u64, part| version.rotate_left(1) ^ part.object)
    }

    /// Appends the start of each of `cells` of tile `tile` in the values of all tiles, and the end of the
    /// last. Only for a column opened whole for its offsets. Decodes no other tile.
    pub fn starts(&self, tile: u64, cells: Range<u64>, keep: Option<Keep>, out: &mut Vec<u64>) -> Result<()> {
        self.starts_in(tile, cells, keep, out).map_err(|e| self.place(e))
    }

    fn starts_in(&self, tile: u64, cells: Range<u64>, keep: Option<Keep>, out: &mut Vec<u64>) -> Result<()> {
        let tile_cells = self.column.info.geometry.cells_of(tile);
        let last = (cells.end + 1).min(tile_cells);
        let before = out.len();
        let mut bytes = Output::keeping(keep);
        self.read_offsets_tile(tile, cells.start..last, false, &mut bytes)?;
        out.extend(numbers(&bytes));
        if last == cells.end {
            let (sums, list) = self.var_sizes()?;
            let before = sums.before(list, self.column.tile_num(), tile)?;
            out.push(before + self.files.var_size(tile)?);
        }
        let found = (out.len() - before) as u64;
        if found.checked_sub(1) != cells.end.checked_sub(cells.start) {
            let message =
                format!("found {found} offsets for cells {cells:?} of a tile of {tile_cells} cells");
            return Err(Error::internal(message));
        }
        Ok(())
    }

    /// Adds file and field to an error.
    fn place(&self, error: Error) -> Error {
        let info = &self.column.info;
        let error = info.place(info.engine.incomplete(&info.path, error));
        error.in_part(format_args!(
            "field `{}`",
            String::from_utf8_lossy(&self.column.field.name)
        ))
    }

    fn read_into(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        match (self.content, self.column.field.cell_size()) {
            (Content::Data, Some(size)) => {
                self.by_tile(range, size, |tile, bytes| self.files.read_fixed(tile, bytes, out))
            }
            (Content::Data, None) => self.read_var(range, out),
            (Content::Offsets, _) => self.read_offsets(range, out),
            (Content::Validity, _) => {
                self.by_tile(range, 1, |tile, cells| self.files.read_validity(tile, cells, out))
            }
        }
    }

    /// Splits `range` of a column with `cell_size` bytes per cell into the ranges of its tiles.
    fn by_tile(
        &self,
        range: Range<u64>,
        cell_size: u64,
        mut read: impl FnMut(u64, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let geometry = &self.column.info.geometry;
        if let Some(tile) = self.tile {
            return read(tile, range);
        }
        // Cannot overflow: the whole column's length did not, and no tile is longer than the first.
        let tile_size = geometry.cells_of(0) * cell_size;
        let mut position = range.start;
        while position < range.end {
            let tile = position / tile_size;
            let start = tile * tile_size;
            let cells = geometry.cells_of(tile);
            let end = range.end.min(start + cells * cell_size);
            if end <= position {
                return Err(Error::internal(format!(
                    "tile {tile} ends before byte {position}"
                )));
            }
            read(tile, position - start..end - start)?;
            position = end;
        }
        Ok(())
    }

    fn read_var(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if let Some(number) = self.tile {
            return self.files.read_var(&self.tile_of(number)?, range, out);
        }
        let (sums, list) = self.var_sizes()?;
        let mut position = range.start;
        while position < range.end {
            let (number, start, var_size) = sums
                .find(list, self.column.tile_num(), position)?
                .ok_or_else(|| Error::internal(format!("byte {position} is in no tile")))?;
            let end = range.end.min(start + var_size);
            let tile = Tile {
                number,
                cells: self.column.info.geometry.cells_of(number),
                var_size,
                embedded: self.files.embeds(number)?,
            };
            self.files.read_var(&tile, position - start..end - start, out)?;
            position = end;
        }
        Ok(())
    }

    fn tile_of(&self, number: u64) -> Result<Tile> {
        Ok(Tile {
            number,
            cells: self.column.info.geometry.cells_of(number),
            var_size: self.files.var_size(number)?,
            embedded: self.files.embeds(number)?,
        })
    }

    fn var_sizes(&self) -> Result<(&PrefixSums, &dyn TileList)> {
        let known = self.sums.as_deref().zip(self.files.var_sizes.as_deref());
        known.ok_or_else(missing)
    }

    fn read_offsets(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let cell_num = self.column.info.geometry.cell_num;
        let (sums, _) = self.var_sizes()?;
        // Reads whole entries, then cuts the first and the last one.
        let entries = range.start / 8..range.end.div_ceil(8);
        let skip = (range.start % 8) as usize;
        let wanted = (range.end - range.start) as usize;
        let last = if self.tile.is_some() {
            entries.end
        } else {
            entries.end.min(cell_num)
        };
        let start = out.len();
        if entries.start < last {
            // One entry per cell.
            self.by_tile(entries.start..last, 1, |tile, cells| {
                self.read_offsets_tile(tile, cells, out.len() > start, out)
            })?;
        }
        if last < entries.end {
            out.append(&sums.total().to_le_bytes());
        }
        out.cut(start, skip, wanted)
    }

    /// Appends the starts of some cells of a tile: within the tile if only that is open, else within the
    /// column. `follows`: the reader has those of cells before them, too.
    fn read_offsets_tile(
        &self,
        number: u64,
        cells: Range<u64>,
        follows: bool,
        out: &mut Output,
    ) -> Result<()> {
        let (sums, list) = self.var_sizes()?;
        let tile = self.tile_of(number)?;
        let base = match self.tile {
            Some(_) => 0,
            None => sums.before(list, self.column.tile_num(), number)?,
        };
        if follows && cells == (0..1) && tile.cells > 1 {
            // The end of the cells before it. It takes no offsets.
            out.append(&base.to_le_bytes());
            return Ok(());
        }
        let read = self.files.read_offsets(&tile, cells, base, out);
        read.map_err(|e| {
            let part = self.files.fixed.as_ref();
            match part.and_then(|part| part.start(number).ok()) {
                Some(start) => e.at(start),
                None => e,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::testing::open_local;
    use crate::runtime::tuning::Tuning;
    use std::path::Path;

    /// After somebody puts right metadata or a right schema in place of wrong ones, nothing is read that was
    /// decoded by the wrong ones.
    #[test]
    fn chunks_are_those_of_the_metadata_and_the_schema() {
        let array = open_local(Path::new("tests/data/sample/weather"), &Tuning::SMALL).unwrap();
        let listing = array.listing().unwrap();
        let object = |change: u64| {
            let mut info = Arc::into_inner(listing.fragments[0].fragment.look().unwrap()).unwrap();
            info.read_from ^= change;
            let field = info.attribute(0).unwrap().clone();
            Column::new(Arc::new(info), field)
                .part(Part::Fixed)
                .unwrap()
                .object
        };
        assert_eq!(object(0), object(0));
        assert_ne!(object(0), object(1));
    }
}
