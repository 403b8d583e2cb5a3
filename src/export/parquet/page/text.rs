//! Values of text and other bytes, each after its length.

use super::super::leaf::Encoding;
use super::{Page, check_all};
use crate::bytes::Output;
use crate::error::Result;
use crate::fragment::column::Content;
use std::ops::Range;

/// Bytes of the shortest well-known binary: the order of bytes, a type, and a count of 0.
const MIN_WKB: u64 = 9;

impl Page<'_> {
    /// Appends bytes of texts with their lengths, up to the last text that is not null.
    pub(super) fn texts(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let index = self.index()?;
        let end = range.end.min(index.last().map_or(0, |place| place.values));
        let block = index.partition_point(|place| place.values <= range.start);
        // The first entry is 0, so at least one is not above.
        let block = block - 1;
        let mut at = index[block].values;
        for rows in self.blocks(block) {
            if at >= end {
                break;
            }
            // The texts in the range, each with its offset in the page.
            let mut wanted: Vec<(u64, u64, u64)> = Vec::new();
            for (bytes, len) in self.text_cells(rows)? {
                let Some(len) = len else { continue };
                let next = at + len + 4;
                if next > range.start && at < end {
                    wanted.push((at, bytes.start, len));
                }
                at = next;
            }
            let mut rest = &*wanted;
            while let Some(&(_, start, _)) = rest.first() {
                let near = |&(_, first, len): &(u64, u64, u64)| {
                    first + len - start <= self.engine.tuning.page_text_bytes
                };
                let together = rest.partition_point(near).max(1);
                let (some, others) = rest.split_at(together);
                self.some_texts(some, range.start..end, out)?;
                rest = others;
            }
        }
        check_all(at, end)
    }

    /// Appends the bytes in `range` of some texts, each given by its offset in the page, its first byte in
    /// the column, and its length.
    fn some_texts(&self, texts: &[(u64, u64, u64)], range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        // A long text comes alone. Only its part in the range is read.
        let inside = |place: u64, len: u64| {
            let first = place + 4;
            range.start.saturating_sub(first).min(len)..range.end.saturating_sub(first).min(len)
        };
        let (Some(first), Some(last)) = (texts.first(), texts.last()) else {
            return Ok(());
        };
        let start = first.1 + inside(first.0, first.2).start;
        let end = last.1 + inside(last.0, last.2).end;
        let mut piece = Output::keeping(self.keep);
        self.column.cells()?.read(Content::Data, start..end, &mut piece)?;
        for &(place, at, len) in texts {
            let head = (len as u32).to_le_bytes();
            let of_head = range.start.saturating_sub(place).min(4)..range.end.saturating_sub(place).min(4);
            out.extend_from_slice(&head[of_head.start as usize..of_head.end as usize]);
            let wanted = inside(place, len);
            let (from, to) = (at + wanted.start - start, at + wanted.end - start);
            out.extend_from_slice(&piece[from as usize..to as usize]);
        }
        Ok(())
    }

    /// The bytes of the texts in some rows, and how many of them pages show; None for a null.
    pub(super) fn text_cells(&self, rows: Range<u64>) -> Result<Vec<(Range<u64>, Option<u64>)>> {
        let Some(size) = self.leaf.size else {
            let cells = self.cells(rows)?;
            let is_geometry = self.leaf.encoding == Encoding::Geometry;
            let cells = cells.into_iter().map(|(bytes, valid)| {
                let len = bytes.end - bytes.start;
                let is_null = !valid || is_geometry && len < MIN_WKB;
                (bytes, (!is_null).then_some(len))
            });
            return Ok(cells.collect());
        };
        let valid = self.column.validity(rows.clone())?;
        let strip = matches!(self.leaf.encoding, Encoding::Bytes { strip: true });
        let step = (self.engine.tuning.page_text_bytes / size).max(1);
        let mut out = Vec::new();
        let null = |row: u64| {
            let place = (row - rows.start) as usize;
            valid.as_ref().is_some_and(|valid| valid[place] == 0)
        };
        let mut row = rows.start;
        while row < rows.end {
            let end = (row + step).min(rows.end);
            let mut lens = vec![size; (end - row) as usize];
            if strip {
                let stored = self.column.cells()?.values(row..end)?;
                let texts = stored.chunks_exact(size as usize);
                for (len, text) in lens.iter_mut().zip(texts) {
                    *len = self.leaf.text_len(text);
                }
            }
            for (row, len) in (row..end).zip(lens) {
                let start = row * size;
                out.push((start..start + size, (!null(row)).then_some(len)));
            }
            row = end;
        }
        Ok(out)
    }
}
