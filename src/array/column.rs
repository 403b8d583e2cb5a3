//! A field of a fragment as seekable sequences of bytes: values, offsets, validity; of all tiles, or of one.

use super::cache::Keep;
use super::field::{Field, Role};
use super::fragment_info::{FragmentInfo, ListKind, incomplete};
use super::piece::Piece;
use super::reopened::Reopened;
use super::sequential::SequentialDetector;
use super::sink::Sink;
use super::tile_file::TileFile;
use super::tile_list::{PrefixSums, TileList};
use crate::error::{Error, ErrorKind, Result};
use crate::format::name::Part;
use crate::storage::Blob;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Which bytes of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    /// Its values.
    Data,
    /// Where each var-sized cell begins, little-endian u64.
    Offsets,
    /// One byte a cell, 0 = null.
    Validity,
}

/// A field of a fragment. Cheap: opens nothing until [`Column::open`].
#[derive(Clone)]
pub struct Column {
    info: Arc<FragmentInfo>,
    field: Field,
    hold: bool,
}

/// The cache key of the tiles of a data file; generic tiles are numbered by their offsets.
const TILES: u64 = u64::MAX;

fn overflow() -> Error {
    Error::limit("the column has more than 2^64 bytes").at(0)
}

impl Column {
    /// The column of `field`, one of `info.fields`.
    pub fn new(info: Arc<FragmentInfo>, field: Field) -> Self {
        Column {
            info,
            field,
            hold: true,
        }
    }

    /// The same. Unless `hold`, no file stays open, so that very many fragments can be read in turns.
    #[must_use]
    pub fn holding(self, hold: bool) -> Self {
        Column { hold, ..self }
    }

    /// Whether its files stay open.
    pub fn holds(&self) -> bool {
        self.hold
    }

    /// Its field.
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// What the fragment's metadata says.
    pub fn info(&self) -> &FragmentInfo {
        &self.info
    }

    /// The paths of its files, relative to the source.
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

    /// The paths of the files that `content` is made of, relative to the source, the one that holds it first.
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

    /// The contents that it has, [`Content::Data`] first.
    pub fn contents(&self) -> Vec<Content> {
        let mut contents = vec![Content::Data];
        if self.field.cell_val_num.is_var() {
            contents.push(Content::Offsets);
        }
        if self.field.nullable {
            contents.push(Content::Validity);
        }
        contents
    }

    /// Bytes of `content` of all tiles (`tile` None; offsets have one entry more than cells) or of one.
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
                    Some(tile) => var_size(&list, geometry.tile_num, tile),
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

    /// Opens the files that reading `content` takes.
    pub fn open(&self, content: Content, tile: Option<u64>) -> Result<OpenColumn> {
        self.open_files(content, tile).map_err(|e| self.info.place(e))
    }

    fn open_files(&self, content: Content, tile: Option<u64>) -> Result<OpenColumn> {
        let len = self.len(content, tile)?;
        let var = self.field.cell_val_num.is_var();
        let embeds = self.field.may_embed_offsets(&self.info.schema);
        // Old libraries made fragments of no cells, which have no files.
        let stored = self.info.geometry.tile_num > 0;
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
        let open = |part, wanted: bool| wanted.then(|| self.part(part)).transpose();
        let values = open(Part::Var, needs_var)?;
        Ok(OpenColumn {
            len,
            content,
            tile,
            fixed: open(Part::Fixed, needs_fixed)?,
            embedding: values
                .as_ref()
                .filter(|_| embeds)
                .map(TileFile::embedding_offsets),
            var: values,
            validity: open(Part::Validity, content == Content::Validity && stored)?,
            var_sizes,
            zipped: self.zipped(),
            sequence: SequentialDetector::default(),
            column: self.clone(),
        })
    }

    /// Opens one of its files. `Corrupt` where the file is missing.
    pub fn part(&self, part: Part) -> Result<TileFile> {
        let (info, field) = (&self.info, &self.field);
        let list = match part {
            Part::Fixed => ListKind::TileOffsets,
            Part::Var => ListKind::VarOffsets,
            Part::Validity => ListKind::ValidityOffsets,
        };
        let path = info.file_path(field, part)?;
        let codec = field.codec(&info.schema, part, &info.writer).ok_or_else(|| {
            Error::corrupt("the attribute is nullable, but the schema has no validity filters").at(0)
        })?;
        let missing = |e| incomplete(&info.engine, &info.path, e);
        let open = || -> Result<Arc<dyn Blob>> {
            Ok(match self.hold {
                true => info.engine.open_immutable(&path)?,
                false => Arc::new(Reopened::new(&info.engine, path.clone())?),
            })
        };
        let blob = info.engine.read_fragment(&info.path, open).map_err(missing)?;
        let offsets = info.list(field.slot, list, self.hold)?;
        Ok(TileFile {
            engine: info.engine.clone(),
            object: info.engine.object(&*blob, TILES),
            blob,
            codec,
            offsets: Arc::new(offsets),
            file_size: info.file_size(field.slot, part),
            geometry: info.geometry,
            generic: false,
        })
    }

    /// How to find this dimension in zipped coordinates.
    fn zipped(&self) -> Option<Zipped> {
        let Role::ZippedDimension(dimension) = self.field.role else {
            return None;
        };
        Some(Zipped {
            dimension: dimension as u64,
            dimensions: self.info.schema.dimensions.len() as u64,
            // Only version 1 stored tuples, and only where it did not compress them.
            split: self.info.version() > 1 || self.info.schema.coords_filters.has_compressor(),
        })
    }
}

/// Where a dimension lies in a tile of zipped coordinates.
#[derive(Debug, Clone, Copy)]
struct Zipped {
    dimension: u64,
    dimensions: u64,
    /// Whether a tile holds all values of the first dimension, then all of the second, and so on; otherwise
    /// tuples.
    split: bool,
}

fn var_size(list: &TileList, tile_num: u64, tile: u64) -> Result<u64> {
    list.get(tile_num, tile)?.ok_or_else(|| {
        Error::new(
            ErrorKind::Internal,
            format!("no tile {tile}: there are {tile_num}"),
        )
    })
}

/// A column whose files are open.
pub struct OpenColumn {
    column: Column,
    content: Content,
    tile: Option<u64>,
    len: u64,
    fixed: Option<TileFile>,
    var: Option<TileFile>,
    /// The same with a codec that rebuilds offsets; None where they cannot be embedded.
    embedding: Option<TileFile>,
    validity: Option<TileFile>,
    var_sizes: Option<(Arc<PrefixSums>, TileList)>,
    zipped: Option<Zipped>,
    sequence: SequentialDetector,
}

impl OpenColumn {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Differs between two states of its files.
    pub fn version(&self) -> u64 {
        [&self.fixed, &self.var, &self.validity]
            .into_iter()
            .flatten()
            .fold(0, |version: u64, part| version.rotate_left(1) ^ part.object)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes in `range`, cut at the end of the column.
    pub fn read<'s>(&self, range: Range<u64>, scratch: &'s mut Vec<u8>) -> Result<Piece<'s>> {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let mut sink = Sink::new(scratch, self.keep(&range));
        self.append(range, &mut sink)?;
        Ok(sink.finish())
    }

    /// How the chunks of a read of `range` are cached, as it follows on those before.
    pub(super) fn keep(&self, range: &Range<u64>) -> Keep {
        self.sequence.next(range)
    }

    /// Appends the bytes in `range`, which does not reach beyond the end.
    pub fn append(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        self.read_into(range, sink).map_err(|e| self.place(e))
    }

    /// Appends where each of `cells`, which lie in tile `tile`, begins among the values of all tiles, and
    /// where the last of them ends. For a column that was opened whole for its offsets. Decodes no other
    /// tile.
    pub fn starts(&self, tile: u64, cells: Range<u64>, keep: Keep, out: &mut Vec<u64>) -> Result<()> {
        self.starts_in(tile, cells, keep, out).map_err(|e| self.place(e))
    }

    fn starts_in(&self, tile: u64, cells: Range<u64>, keep: Keep, out: &mut Vec<u64>) -> Result<()> {
        let geometry = &self.column.info.geometry;
        let tile_cells = geometry.cells_of(tile);
        let last = cells.end.saturating_add(1).min(tile_cells);
        let before = out.len();
        let mut bytes = Vec::new();
        let entries = cells.start.saturating_mul(8)..last.saturating_mul(8);
        self.read_offsets_tile(tile, tile_cells, entries, keep, &mut bytes)?;
        let entries = bytes.as_chunks::<8>().0.iter();
        out.extend(entries.map(|bytes| u64::from_le_bytes(*bytes)));
        if last == cells.end {
            let (sums, list) = opened(&self.var_sizes)?;
            let tile_num = geometry.tile_num;
            let size = var_size(list, tile_num, tile)?;
            out.push(sums.before(list, tile_num, tile)?.saturating_add(size));
        }
        let found = out.len().saturating_sub(before) as u64;
        if found.checked_sub(1) != cells.end.checked_sub(cells.start) {
            let message =
                format!("found {found} offsets for cells {cells:?} of a tile of {tile_cells} cells");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        Ok(())
    }

    /// Names the file and the field in an error.
    fn place(&self, error: Error) -> Error {
        let info = &self.column.info;
        let error = info.place(incomplete(&info.engine, &info.path, error));
        error.in_part(format_args!(
            "field `{}`",
            String::from_utf8_lossy(&self.column.field.name)
        ))
    }

    fn read_into(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        match (self.content, self.column.field.cell_size()) {
            (Content::Data, Some(size)) => self.read_fixed(range, size, sink),
            (Content::Data, None) => self.read_var(range, sink),
            (Content::Offsets, _) => self.read_offsets(range, sink),
            (Content::Validity, _) => self.read_validity(range, sink),
        }
    }

    /// Splits `range` of a column of `cell_size` bytes a cell by tiles: tile, its cells, and the bytes of it
    /// that are wanted.
    fn by_tile(
        &self,
        range: Range<u64>,
        cell_size: u64,
        mut read: impl FnMut(u64, u64, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let geometry = &self.column.info.geometry;
        if let Some(tile) = self.tile {
            return read(tile, geometry.cells_of(tile), range);
        }
        // Cannot overflow: the length of the whole column did not, and no tile is longer than the first.
        let tile_size = geometry.cells_of(0).max(1).saturating_mul(cell_size).max(1);
        let mut position = range.start;
        while position < range.end {
            let tile = position / tile_size;
            let start = tile * tile_size;
            let cells = geometry.cells_of(tile);
            let end = range
                .end
                .min(start.saturating_add(cells.saturating_mul(cell_size)));
            if end <= position {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("tile {tile} ends before byte {position}"),
                ));
            }
            read(tile, cells, position - start..end - start)?;
            position = end;
        }
        Ok(())
    }

    fn read_fixed(&self, range: Range<u64>, cell_size: u64, sink: &mut Sink<'_>) -> Result<()> {
        let part = opened(&self.fixed)?;
        self.by_tile(range, cell_size, |tile, cells, wanted| match self.zipped {
            None => part.read(
                tile,
                cells.checked_mul(cell_size).ok_or_else(overflow)?,
                wanted,
                sink,
            ),
            Some(zipped) => read_zipped(part, zipped, tile, cells, cell_size, wanted, sink),
        })
    }

    fn read_validity(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        let part = opened(&self.validity)?;
        self.by_tile(range, 1, |tile, cells, wanted| {
            part.read(tile, cells, wanted, sink)
        })
    }

    fn read_var(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        let tile_num = self.column.info.geometry.tile_num;
        let (sums, list) = opened(&self.var_sizes)?;
        if let Some(tile) = self.tile {
            return self.read_var_tile(tile, var_size(list, tile_num, tile)?, range, sink);
        }
        let mut position = range.start;
        while position < range.end {
            let (tile, start, size) = sums
                .find(list, tile_num, position)?
                .ok_or_else(|| Error::new(ErrorKind::Internal, format!("byte {position} is in no tile")))?;
            let end = range.end.min(start.saturating_add(size));
            self.read_var_tile(tile, size, position - start..end - start, sink)?;
            position = end;
        }
        Ok(())
    }

    fn read_var_tile(&self, tile: u64, size: u64, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        let part = match self.embedding(tile)? {
            Some(part) => part,
            None => opened(&self.var)?,
        };
        part.read(tile, size, range, sink)
    }

    /// The file of values whose codec rebuilds the offsets of tile `tile`, if they are embedded: then the
    /// tile of offsets has no chunks.
    fn embedding(&self, tile: u64) -> Result<Option<&TileFile>> {
        match &self.embedding {
            Some(part) if opened(&self.fixed)?.stored_chunks(tile)? == 0 => Ok(Some(part)),
            _ => Ok(None),
        }
    }

    fn read_offsets(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        let cell_num = self.column.info.geometry.cell_num;
        let (sums, _) = opened(&self.var_sizes)?;
        // Whole entries are read; what was not asked for of the first and the last is cut off at the end.
        let entries = range.start / 8..range.end.div_ceil(8);
        let skip = (range.start % 8) as usize;
        let wanted = (range.end - range.start) as usize;
        let last = if self.tile.is_some() {
            entries.end
        } else {
            entries.end.min(cell_num)
        };
        let keep = sink.keep;
        sink.write(|out| {
            let start = out.len();
            if entries.start < last {
                self.by_tile(entries.start * 8..last * 8, 8, |tile, cells, bytes| {
                    self.read_offsets_tile(tile, cells, bytes, keep, out)
                })?;
            }
            if last < entries.end {
                out.extend_from_slice(&sums.total().to_le_bytes());
            }
            out.drain(start..start.saturating_add(skip).min(out.len()));
            out.truncate(start.saturating_add(wanted));
            Ok(())
        })
    }

    /// Appends the offsets in `bytes` (whole entries) of a tile, rebased unless the tile is shown on its own.
    fn read_offsets_tile(
        &self,
        tile: u64,
        cells: u64,
        bytes: Range<u64>,
        keep: Keep,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let tile_num = self.column.info.geometry.tile_num;
        let part = opened(&self.fixed)?;
        let (sums, list) = opened(&self.var_sizes)?;
        let size = var_size(list, tile_num, tile)?;
        let base = if self.tile.is_some() {
            0
        } else {
            sums.before(list, tile_num, tile)?
        };
        let start = out.len();
        let length = (bytes.end - bytes.start) as usize;
        if let Some(values) = self.embedding(tile)?.filter(|_| cells > 0) {
            match values.embedded_offsets(tile, size, cells, keep)? {
                Some(offsets) => out.extend_from_slice(
                    offsets
                        .get(bytes.start as usize..bytes.end as usize)
                        .unwrap_or(&[]),
                ),
                None => out.resize(start + length, 0),
            }
        } else {
            let expected = cells.checked_mul(8).ok_or_else(overflow)?;
            let mut sink = Sink::behind(out, keep);
            part.read(tile, expected, bytes.clone(), &mut sink)?;
            sink.append();
        }
        let mut previous = 0;
        for (i, entry) in out
            .get_mut(start..)
            .unwrap_or_default()
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .enumerate()
        {
            let offset = u64::from_le_bytes(*entry);
            let first = i == 0 && bytes.start == 0;
            if offset < previous || offset > size || first && offset != 0 {
                return Err(Error::corrupt(format!(
                    "the offset of cell {} is {offset}, but the one before it is {previous} and the tile has \
                     {size} bytes",
                    bytes.start / 8 + i as u64
                ))
                .at(part.start(tile).unwrap_or(0))
                .in_part(format_args!("tile {tile}"))
                .in_file(part.blob.display()));
            }
            previous = offset;
            *entry = base.saturating_add(offset).to_le_bytes();
        }
        Ok(())
    }
}

fn opened<T>(part: &Option<T>) -> Result<&T> {
    part.as_ref()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a file of the column was not opened"))
}

/// Reads the bytes in `range` of one dimension's values out of a tile of zipped coordinates.
fn read_zipped(
    part: &TileFile,
    zipped: Zipped,
    tile: u64,
    cells: u64,
    cell_size: u64,
    range: Range<u64>,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let column = cells.checked_mul(cell_size).ok_or_else(overflow)?;
    let size = column.checked_mul(zipped.dimensions).ok_or_else(overflow)?;
    if zipped.split {
        let start = zipped.dimension * column;
        return part.read(tile, size, start + range.start..start + range.end, sink);
    }
    let tuple = cell_size * zipped.dimensions;
    let first = range.start / cell_size;
    let last = range.end.div_ceil(cell_size);
    let mut scratch = Vec::new();
    let mut tuples = Sink::new(&mut scratch, sink.keep);
    part.read(tile, size, first * tuple..last * tuple, &mut tuples)?;
    let tuples = tuples.finish();
    let skip = (range.start - first * cell_size) as usize;
    let from = (zipped.dimension * cell_size) as usize;
    let values = tuples
        .chunks_exact(tuple as usize)
        .flat_map(|t| t.get(from..from + cell_size as usize).unwrap_or(&[]));
    let wanted = values.skip(skip).take((range.end - range.start) as usize);
    sink.write(|out| out.extend(wanted));
    Ok(())
}
