//! The cells of one field in order: of a fragment as stored, or of a view as a reader gets them.

use super::column::{Column, Content, OpenColumn};
use super::field::StoredField;
use super::field_files::overflow;
use super::info::FragmentInfo;
use crate::bytes::{Bytes, Keep, Output, numbers};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::get_or_make;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The cells of one field, as up to three seekable sequences of bytes: the values; the start of each
/// var-sized cell and the end of the last (little-endian u64); one byte of validity per cell.
pub trait Cells: Send + Sync {
    /// Number of cells.
    fn count(&self) -> u64;

    /// Bytes of a cell; None if cells are var-sized.
    fn cell_size(&self) -> Option<u64>;

    /// Bytes of `content`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the cells do not have it; fails if what is stored has to be read and cannot be.
    fn len(&self, content: Content) -> Result<u64>;

    /// Appends the bytes in `range` of `content`, clipped at its end.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the cells do not have it, or `range` ends before it starts; fails if what is stored
    /// cannot be read or decoded.
    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()>;
}

impl dyn Cells + '_ {
    /// The values of fixed-size cells.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there are fewer cells, or they do not have this; fails if what is stored cannot be
    /// read or decoded.
    pub fn values(&self, cells: Range<u64>) -> Result<Output> {
        self.check(&cells)?;
        if self.cell_size().is_none() {
            return Err(invalid("the cells are var-sized"));
        }
        Output::of(|out| self.append(Content::Data, cells, out))
    }

    /// The validity of cells, one byte each: 0 = null.
    ///
    /// # Errors
    ///
    /// Those of `values`.
    pub fn validity(&self, cells: Range<u64>) -> Result<Output> {
        self.check(&cells)?;
        Output::of(|out| self.append(Content::Validity, cells, out))
    }

    /// The start of each of some var-sized cells in the bytes of values, and the end of the last.
    ///
    /// # Errors
    ///
    /// Those of `values`.
    pub fn starts(&self, cells: Range<u64>) -> Result<Vec<u64>> {
        self.check(&cells)?;
        self.starts_kept(cells, None)
    }

    /// `InvalidInput` if there are no such cells.
    fn check(&self, cells: &Range<u64>) -> Result<()> {
        let count = self.count();
        match cells.start <= cells.end && cells.end <= count {
            true => Ok(()),
            false => Err(invalid(format!("cells {cells:?} of {count} were asked for"))),
        }
    }

    /// What `starts` returns. Its chunks are cached as `keep` says: see [`Output::keep`].
    pub(crate) fn starts_kept(&self, cells: Range<u64>, keep: Option<Keep>) -> Result<Vec<u64>> {
        let mut out = Output::keeping(keep);
        self.append(Content::Offsets, cells.start..cells.end + 1, &mut out)?;
        Ok(numbers(&out).collect())
    }

    /// The start of one var-sized cell in the bytes of values; of the cell behind the last, their end.
    pub(crate) fn start(&self, cell: u64) -> Result<u64> {
        Ok(self.starts(cell..cell)?[0])
    }

    /// The values of var-sized cells, concatenated, after the start of each and the end of the last in them.
    ///
    /// # Errors
    ///
    /// Those of `values`.
    pub fn var_values(&self, cells: Range<u64>) -> Result<(Vec<u64>, Vec<u8>)> {
        let mut starts = self.starts(cells)?;
        let values = Output::of(|out| self.between(&starts, out))?;
        let first = starts[0];
        starts.iter_mut().for_each(|start| *start -= first);
        Ok((starts, values.into()))
    }

    /// Appends the values of var-sized cells to `out`, given what `starts` returned for them.
    pub(crate) fn between(&self, starts: &[u64], out: &mut Output) -> Result<()> {
        self.append_bytes(Content::Data, starts[0]..starts[starts.len() - 1], out)
    }

    /// Appends entries of `content` to `out`: fixed-size values, offsets, or validity bytes. An error if
    /// there are fewer.
    pub(crate) fn append(&self, content: Content, entries: Range<u64>, out: &mut Output) -> Result<()> {
        let size = match content {
            Content::Data => self.cell_size().expect("the cells have a fixed size"),
            Content::Offsets => 8,
            Content::Validity => 1,
        };
        self.append_bytes(content, bytes_of(&entries, size)?, out)
    }

    /// Appends the bytes in `bytes` of `content` to `out`; an error if there are fewer.
    pub(crate) fn append_bytes(&self, content: Content, bytes: Range<u64>, out: &mut Output) -> Result<()> {
        let wanted = bytes.end - bytes.start;
        let before = out.len();
        self.read(content, bytes, out)?;
        match (out.len() - before) as u64 {
            found if found == wanted => Ok(()),
            found => Err(Error::internal(format!(
                "read {found} bytes of {content:?}, expected {wanted}"
            ))),
        }
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// The bytes of entries of `size` bytes each.
fn bytes_of(entries: &Range<u64>, size: u64) -> Result<Range<u64>> {
    let end = entries.end.checked_mul(size).ok_or_else(overflow)?;
    Ok(entries.start * size..end)
}

/// The cells of a field for programs that use the crate: to ask for what a field does not have is
/// `InvalidInput`. The rest of the crate knows what a field has.
pub struct CheckedCells {
    /// The cells.
    pub cells: Arc<dyn Cells>,
    /// What they have.
    pub contents: Vec<Content>,
}

impl CheckedCells {
    fn check(&self, content: Content) -> Result<()> {
        match content {
            content if self.contents.contains(&content) => Ok(()),
            Content::Validity => Err(invalid("the cells cannot be null, and have no validity")),
            _ => Err(invalid("the cells have a fixed size, and no starts")),
        }
    }
}

impl Cells for CheckedCells {
    fn count(&self) -> u64 {
        self.cells.count()
    }

    fn cell_size(&self) -> Option<u64> {
        self.cells.cell_size()
    }

    fn len(&self, content: Content) -> Result<u64> {
        self.check(content)?;
        self.cells.len(content)
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        self.check(content)?;
        match range.start <= range.end {
            true => self.cells.read(content, range, out),
            false => Err(invalid(format!("bytes {range:?} were asked for"))),
        }
    }
}

/// The cells of a field of a fragment in the order on disk. Files are opened by their first read, and stay
/// open unless [`FragmentCells::holding`] says otherwise.
pub struct FragmentCells {
    column: Column,
    stays: Option<Content>,
    open: [OnceLock<Box<OpenColumn>>; 3],
}

impl FragmentCells {
    /// The cells of `field`, one of `info.fields`.
    pub fn new(info: Arc<FragmentInfo>, field: StoredField) -> Self {
        FragmentCells {
            column: Column::new(info, field),
            stays: None,
            open: Default::default(),
        }
    }

    /// These cells with or without files held open: see [`Column::holding`].
    #[must_use]
    pub fn holding(self, hold: bool) -> Self {
        FragmentCells {
            column: self.column.holding(hold),
            ..self
        }
    }

    /// These cells with the chunks of `content` cached as [`Keep::Staying`], because it will be read again.
    #[must_use]
    pub fn staying(self, content: Option<Content>) -> Self {
        FragmentCells {
            stays: content,
            ..self
        }
    }

    /// The field.
    pub fn field(&self) -> &StoredField {
        self.column.field()
    }

    /// `LimitExceeded` if `bytes` bytes of it at once take much more memory than the cache has.
    pub(crate) fn check_memory(&self, bytes: u64) -> Result<()> {
        let info = self.column.info();
        let check = info.engine.cache.check_size(bytes);
        check.map_err(|e| info.place(e.in_part(format_args!("field `{}`", self.field().name.escape_ascii()))))
    }

    /// Calls `take` with the number of cells and the bytes of values of each tile of `cells`, which are
    /// var-sized and whole tiles, in order. Decodes no data tile.
    ///
    /// # Errors
    ///
    /// If the metadata cannot be read, and those of `take`.
    pub(crate) fn each_tile(
        &self,
        cells: Range<u64>,
        take: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        self.column.each_tile(cells, take)
    }

    fn opened(&self, content: Content) -> Result<&OpenColumn> {
        let [data, offsets, validity] = &self.open;
        let cell = match content {
            Content::Data => data,
            Content::Offsets => offsets,
            Content::Validity => validity,
        };
        get_or_make(cell, || self.column.open(content, None).map(Box::new)).map(|open| &**open)
    }
}

impl Cells for FragmentCells {
    fn count(&self) -> u64 {
        self.column.info().geometry.cell_num
    }

    fn cell_size(&self) -> Option<u64> {
        self.column.field().cell_size()
    }

    fn len(&self, content: Content) -> Result<u64> {
        self.column.len(content, None)
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        let open = self.opened(content)?;
        let range = range.start.min(open.len())..range.end.min(open.len());
        // With very many fragments read in turns, a chunk is needed again later, so it must not pass.
        match self.column.holds() && self.stays != Some(content) {
            true => open.read(range, out),
            false => out.kept(Keep::Staying, |out| open.read(range, out)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::testing::open_local;
    use crate::runtime::tuning::Tuning;
    use std::path::Path;

    #[test]
    fn bytes_of_var_sized_cells_are_not_taken_for_cells() {
        let array = open_local(Path::new("tests/data/sample/weather"), &Tuning::SMALL).unwrap();
        let info = array.listing().unwrap().fragments[0].fragment.open().unwrap();
        let field = info.fields.iter().find(|field| field.cell_size().is_none());
        let cells = FragmentCells::new(info.clone(), field.unwrap().clone());
        let values = (&cells as &dyn Cells).values(0..1);
        assert_eq!(
            values.err().map(|error| error.kind()),
            Some(ErrorKind::InvalidInput)
        );
    }
}
