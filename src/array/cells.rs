//! The cells of one field in order: of a fragment as stored, or of a view as a reader gets them.

use super::cache::Keep;
use super::column::{Column, Content, OpenColumn};
use super::field::StoredField;
use super::field_files::overflow;
use super::fragment_info::FragmentInfo;
use super::read_bytes::ReadBytes;
use super::sink::Sink;
use crate::error::{Error, Result};
use crate::lock::get_or_make;
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
    /// If what is stored has to be read for it and cannot be.
    fn len(&self, content: Content) -> Result<u64>;

    /// The bytes in `range` of `content`, clipped at its end.
    ///
    /// # Errors
    ///
    /// If what is stored cannot be read or decoded.
    fn read<'s>(
        &self,
        content: Content,
        range: Range<u64>,
        scratch: &'s mut Vec<u8>,
    ) -> Result<ReadBytes<'s>>;
}

impl dyn Cells + '_ {
    /// The values of fixed-size cells.
    ///
    /// # Errors
    ///
    /// `Internal` if there are fewer cells; fails if what is stored cannot be read or decoded.
    pub fn values<'s>(&self, cells: Range<u64>, scratch: &'s mut Vec<u8>) -> Result<ReadBytes<'s>> {
        let size = self.cell_size().unwrap_or(1);
        self.read_whole(Content::Data, cells, size, scratch)
    }

    /// The validity of cells, one byte each: 0 = null.
    ///
    /// # Errors
    ///
    /// Those of `values`.
    pub fn validity<'s>(&self, cells: Range<u64>, scratch: &'s mut Vec<u8>) -> Result<ReadBytes<'s>> {
        self.read_whole(Content::Validity, cells, 1, scratch)
    }

    /// The start of each of some var-sized cells in the bytes of values, and the end of the last.
    ///
    /// # Errors
    ///
    /// Those of `values`.
    pub fn starts(&self, cells: Range<u64>) -> Result<Vec<u64>> {
        let mut scratch = Vec::new();
        let entries = cells.start..cells.end + 1;
        let bytes = self.read_whole(Content::Offsets, entries, 8, &mut scratch)?;
        let entries = bytes.as_chunks::<8>().0.iter();
        Ok(entries.map(|bytes| u64::from_le_bytes(*bytes)).collect())
    }

    /// The start of one var-sized cell in the bytes of values; of the cell behind the last, their end.
    pub(crate) fn start(&self, cell: u64) -> Result<u64> {
        let starts = self.starts(cell..cell)?;
        let start = starts.first().copied();
        start.ok_or_else(|| Error::internal(format!("cell {cell} has no start")))
    }

    /// The values of var-sized cells, concatenated, after the start of each and the end of the last in them.
    ///
    /// # Errors
    ///
    /// Those of `values`.
    pub fn var_values(&self, cells: Range<u64>) -> Result<(Vec<u64>, Vec<u8>)> {
        let mut starts = self.starts(cells)?;
        let values = self.between(&starts)?;
        if let Some(&first) = starts.first() {
            starts.iter_mut().for_each(|start| *start -= first);
        }
        Ok((starts, values))
    }

    /// The values of var-sized cells, concatenated, given what [`starts`](Self::starts) returned for them.
    pub(crate) fn between(&self, starts: &[u64]) -> Result<Vec<u8>> {
        let (Some(&first), Some(&end)) = (starts.first(), starts.last()) else {
            return Err(Error::internal("cells without a start"));
        };
        let mut scratch = Vec::new();
        Ok(self
            .read_whole(Content::Data, first..end, 1, &mut scratch)?
            .to_vec())
    }

    /// Entries of `size` bytes each; an error if there are fewer.
    fn read_whole<'s>(
        &self,
        content: Content,
        entries: Range<u64>,
        size: u64,
        scratch: &'s mut Vec<u8>,
    ) -> Result<ReadBytes<'s>> {
        let bytes = bytes_of(&entries, size)?;
        let wanted = bytes.end - bytes.start;
        let piece = self.read(content, bytes, scratch)?;
        if piece.len() as u64 != wanted {
            return Err(Error::internal(format!(
                "read {} bytes of {content:?}, expected {wanted}",
                piece.len()
            )));
        }
        Ok(piece)
    }
}

/// The bytes of entries of `size` bytes each.
fn bytes_of(entries: &Range<u64>, size: u64) -> Result<Range<u64>> {
    let end = entries.end.checked_mul(size).ok_or_else(overflow)?;
    Ok(entries.start * size..end)
}

/// The cells of a field of a fragment in the order on disk. Files are opened by their first read, and stay
/// open unless [`FragmentCells::holding`] says otherwise.
pub struct FragmentCells {
    column: Column,
    count: u64,
    stays: Option<Content>,
    open: [OnceLock<Box<OpenColumn>>; 3],
}

impl FragmentCells {
    /// The cells of `field`, one of `info.fields`.
    pub fn new(info: Arc<FragmentInfo>, field: StoredField) -> Self {
        FragmentCells {
            count: info.geometry.cell_num,
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

    /// Appends the values of fixed-size cells, or their validity, to `out`.
    pub fn append(&self, content: Content, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let size = match content {
            Content::Data => self.cell_size().unwrap_or(1),
            Content::Offsets | Content::Validity => 1,
        };
        let bytes = bytes_of(&cells, size)?;
        let open = self.opened(content)?;
        if bytes.end > open.len() {
            let message = format!(
                "{content:?} wanted up to byte {}, but it ends at byte {}",
                bytes.end,
                open.len()
            );
            return Err(Error::internal(message));
        }
        let mut sink = Sink::behind(out, self.keep(open, content, &bytes));
        open.append(bytes, &mut sink)?;
        sink.append();
        Ok(())
    }

    fn keep(&self, open: &OpenColumn, content: Content, bytes: &Range<u64>) -> Keep {
        // With very many fragments read in turns, a chunk is needed again later, so it must not pass.
        match self.column.holds() && self.stays != Some(content) {
            true => open.keep(bytes),
            false => Keep::Staying,
        }
    }

    /// The field.
    pub fn field(&self) -> &StoredField {
        self.column.field()
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
        self.count
    }

    fn cell_size(&self) -> Option<u64> {
        self.column.field().cell_size()
    }

    fn len(&self, content: Content) -> Result<u64> {
        self.column.len(content, None)
    }

    fn read<'s>(
        &self,
        content: Content,
        range: Range<u64>,
        scratch: &'s mut Vec<u8>,
    ) -> Result<ReadBytes<'s>> {
        let open = self.opened(content)?;
        let range = range.start.min(open.len())..range.end.min(open.len());
        let mut sink = Sink::new(scratch, self.keep(open, content, &range));
        open.append(range, &mut sink)?;
        Ok(sink.finish())
    }
}
