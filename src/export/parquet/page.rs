//! The pages of a column chunk.
//!
//! ```text
//! [dictionary page: header, labels]
//! data page: header, [repetition levels], [definition levels], values, slack
//! ```
//!
//! A page has *entries*: one for each value of a row or element of a LIST, and one for an empty or null LIST.
//! Levels say which entries are null; only the others have values. To find a value, an index has the number
//! of values before every so many rows. It is made on demand and cached.

mod levels;
mod text;

use super::bits::Bits;
use super::leaf::{Encoding, Labels, Leaf, Shape};
use super::thrift::{Writer, varint, varint_len};
use crate::bytes::{Keep, Output};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fragment::column::Content;
use crate::query::table::Column;
use crate::runtime::cache::CacheKey;
use levels::Level;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How many values too many [`Page::index`] counts, and entries [`Amount::measure`].
    pub(super) static TOO_MANY: Cell<u64> = const { Cell::new(0) };
}

/// The size of a page, in entries and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amount {
    /// Entries.
    pub entries: u64,
    /// Entries with a value, before conversion makes any null; for text, bytes in all rows.
    pub values: u64,
}

impl Amount {
    /// The amount of `rows` rows; None if it depends on the data.
    pub(super) fn of(leaf: &Leaf, rows: u64) -> Option<Amount> {
        let (entries, values) = match (leaf.shape, leaf.bits(), leaf.size) {
            (Shape::Any, ..) | (_, None, None) => return None,
            (_, None, Some(size)) => (rows, rows.saturating_mul(size)),
            (Shape::One, ..) => (rows, rows),
            (Shape::Some(count), ..) => (rows.saturating_mul(count), rows.saturating_mul(count)),
        };
        Some(Amount { entries, values })
    }

    /// The amount of var-sized cells in some rows: one pass over the offsets, and over validity if a null
    /// LIST has another number of entries than its elements. `step`: the most rows read at once.
    pub(super) fn measure(leaf: &Leaf, column: &Column, rows: Range<u64>, step: u64) -> Result<Amount> {
        if leaf.shape != Shape::Any {
            return Ok(Amount {
                entries: rows.end - rows.start,
                values: column.stored_bytes(&rows)?,
            });
        }
        let mut amount = Amount::default();
        let mut row = rows.start;
        while row < rows.end {
            let end = rows.end.min(row + step);
            for (elements, valid) in cells(leaf, column, row..end, None)? {
                let count = elements.end - elements.start;
                let values = if valid { count } else { 0 };
                amount.entries += values.max(1);
                amount.values += values;
            }
            row = end;
        }
        #[cfg(test)]
        {
            amount.entries += TOO_MANY.get();
        }
        Ok(amount)
    }

    /// Bytes of the values of a page.
    fn values_len(self, leaf: &Leaf) -> u64 {
        match (leaf.bits(), leaf.shape) {
            (None, _) => leaf.values_len(self.entries, self.values),
            (_, Shape::Any) => leaf.values_len(self.values, 0),
            _ => leaf.values_len(self.entries, 0),
        }
    }

    /// Bytes of a page without its header.
    pub(super) fn body_len(self, leaf: &Leaf) -> u64 {
        let packed = |bits: u64| {
            let eights = self.entries.div_ceil(8);
            let header = varint_len(eights << 1 | 1);
            eights.saturating_mul(bits).saturating_add(4 + header)
        };
        let repetition = if leaf.shape == Shape::One { 0 } else { packed(1) };
        let definition = match leaf.definition_bits() {
            0 => 0,
            _ if leaf.is_run() => 5 + varint_len(self.entries << 1),
            bits => packed(bits),
        };
        self.values_len(leaf)
            .saturating_add(repetition)
            .saturating_add(definition)
    }
}

impl Leaf {
    /// Bytes of a stored value. Those of var-sized text are bytes.
    fn value_size(&self) -> u64 {
        self.size.unwrap_or(1)
    }

    /// Whether all definition levels are 1.
    fn is_run(&self) -> bool {
        matches!(self.shape, Shape::Some(_)) && !self.optional()
    }
}

/// The header of a data page.
pub(super) fn data_header(leaf: &Leaf, entries: u64, body: u64) -> Vec<u8> {
    let encoding = if leaf.has_dictionary() { 8 } else { 0 };
    header(0, body, |writer| {
        writer.structure(5, |writer| {
            writer.i32(1, entries as i32);
            writer.i32(2, encoding);
            writer.i32(3, 3);
            writer.i32(4, 3);
        });
    })
}

/// The header of a dictionary page.
pub(super) fn dictionary_header(labels: u64, body: u64) -> Vec<u8> {
    header(2, body, |writer| {
        writer.structure(7, |writer| {
            writer.i32(1, labels as i32);
            writer.i32(2, 0);
        });
    })
}

fn header(of: i32, body: u64, more: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.i32(1, of);
    writer.i32(2, body as i32);
    writer.i32(3, body as i32);
    more(&mut writer);
    writer.finish()
}

/// The elements of each cell of some rows, and whether the cell is valid. Elements are numbered over the
/// whole column, those of labels over all labels. Chunks of offsets are cached as `keep` says.
fn cells(
    leaf: &Leaf,
    column: &Column,
    rows: Range<u64>,
    keep: Option<Keep>,
) -> Result<Vec<(Range<u64>, bool)>> {
    if let Encoding::List(labels) = &leaf.encoding {
        let count = (rows.end - rows.start) as usize;
        let rows = column.read(rows)?;
        let cells = (0..count).map(|row| match rows.valid_label(row) {
            Some(label) => Ok((labels.elements(label)?, true)),
            None => Ok((0..0, false)),
        });
        return cells.collect();
    }
    let size = leaf.value_size();
    let cells = column.cells()?;
    let starts = cells.starts_kept(rows.clone(), keep)?;
    let valid = column.validity(rows)?;
    let mut out = Vec::with_capacity(starts.len());
    for (i, pair) in starts.windows(2).enumerate() {
        let (start, end) = (pair[0], pair[1]);
        if start % size != 0 || end % size != 0 || end < start {
            let message = format!(
                "a cell takes bytes {start} to {end}, which is not a whole number of values of {size} bytes"
            );
            return Err(Error::corrupt(message).at(start));
        }
        let valid = valid.as_ref().is_none_or(|valid| valid[i] != 0);
        out.push((start / size..end / size, valid));
    }
    Ok(out)
}

/// The counts before a block of entries; the last one is that of the whole page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    entries: u64,
    /// Values that are not null; for text, their bytes and lengths.
    values: u64,
}

/// A part of a data page.
enum PagePart {
    Bytes(Vec<u8>),
    Repetition(u64),
    Definition(u64),
    Values(u64),
}

impl PagePart {
    fn len(&self) -> u64 {
        match self {
            PagePart::Bytes(bytes) => bytes.len() as u64,
            PagePart::Repetition(len) | PagePart::Definition(len) | PagePart::Values(len) => *len,
        }
    }
}

pub(super) struct Page<'a> {
    pub leaf: &'a Leaf,
    pub column: &'a Column,
    pub rows: Range<u64>,
    pub amount: Amount,
    /// Where the index of the page is cached.
    pub engine: &'a Engine,
    pub key: CacheKey,
    /// How to cache the chunks of the values.
    pub keep: Option<Keep>,
}

impl Page<'_> {
    /// Appends the bytes in `range` of the page, header included, to `out`.
    pub(super) fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let mut start = 0u64;
        for part in self.parts() {
            let end = start + part.len();
            let wanted = range.start.max(start)..range.end.min(end);
            if wanted.start < wanted.end {
                let wanted = wanted.start - start..wanted.end - start;
                self.read_part(&part, wanted, out)?;
            }
            start = end;
        }
        Ok(())
    }

    /// What [`cells`] returns. The offsets of all rows are read for the index, and again for the values: of
    /// many rows, more than are kept of what passes, they stay meanwhile.
    fn cells(&self, rows: Range<u64>) -> Result<Vec<(Range<u64>, bool)>> {
        /// The bytes of the offsets of a row: as they are stored, and as the view has them.
        const OFFSETS: u64 = 16;
        /// At least so many bytes are kept of what passes.
        const PASSING: u64 = 4 << 20;
        let bytes = (self.rows.end - self.rows.start) * OFFSETS;
        let stay = bytes > PASSING && bytes <= self.engine.cache.capacity() / 8;
        let keep = stay.then_some(Keep::Staying);
        cells(self.leaf, self.column, rows, keep)
    }

    fn parts(&self) -> Vec<PagePart> {
        let (leaf, entries) = (self.leaf, self.amount.entries);
        let body = self.amount.body_len(leaf);
        let mut parts = vec![PagePart::Bytes(data_header(leaf, entries, body))];
        let eights = entries.div_ceil(8);
        let packed = |bits: u64, part: fn(u64) -> PagePart, parts: &mut Vec<PagePart>| {
            let mut run = Vec::new();
            varint(eights << 1 | 1, &mut run);
            let len = eights.saturating_mul(bits);
            let all = len.saturating_add(run.len() as u64);
            let mut bytes = (all as u32).to_le_bytes().to_vec();
            bytes.append(&mut run);
            parts.extend([PagePart::Bytes(bytes), part(len)]);
        };
        if leaf.shape != Shape::One {
            packed(1, PagePart::Repetition, &mut parts);
        }
        match leaf.definition_bits() {
            0 => {}
            _ if leaf.is_run() => {
                let mut run = Vec::new();
                varint(entries << 1, &mut run);
                run.push(1);
                let mut bytes = (run.len() as u32).to_le_bytes().to_vec();
                bytes.append(&mut run);
                parts.push(PagePart::Bytes(bytes));
            }
            bits => packed(bits, PagePart::Definition, &mut parts),
        }
        let mut values = self.amount.values_len(leaf);
        if let Encoding::Index { width, .. } = leaf.encoding {
            let mut bytes = vec![width];
            varint(eights << 1 | 1, &mut bytes);
            values -= bytes.len() as u64;
            parts.push(PagePart::Bytes(bytes));
        }
        parts.push(PagePart::Values(values));
        parts
    }

    fn read_part(&self, part: &PagePart, range: Range<u64>, out: &mut Output) -> Result<()> {
        let before = out.len();
        let wanted = range.end - range.start;
        match part {
            PagePart::Bytes(bytes) => {
                out.append(&bytes[range.start as usize..range.end as usize]);
            }
            PagePart::Repetition(_) => out.write(|out| self.levels(range, 1, Level::Repetition, out))?,
            PagePart::Definition(_) => {
                let bits = self.leaf.definition_bits();
                out.write(|out| self.levels(range, bits, Level::Definition, out))?;
            }
            PagePart::Values(_) => {
                match self.leaf.bits() {
                    Some(bits) => self.numbers(range, bits, out)?,
                    None => out.write(|out| self.texts(range, out))?,
                }
                // The slack after the values.
                let slack = (before + wanted as usize).saturating_sub(out.len());
                if slack > 0 {
                    out.append(&vec![0; slack]);
                }
            }
        }
        let found = (out.len() - before) as u64;
        if found != wanted {
            let message = format!("made {found} bytes of a page, expected {wanted}");
            return Err(Error::internal(message));
        }
        Ok(())
    }

    /// Appends bytes of values without nulls, unconverted.
    fn copy(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let size = self.leaf.value_size();
        if self.column.is_axis() {
            let rows = range.start / size..range.end.div_ceil(size);
            let skip = (range.start - rows.start * size) as usize;
            let first = self.rows.start;
            let rows = first + rows.start..first + rows.end;
            let rows = self.column.read(rows)?;
            let wanted = skip..skip + (range.end - range.start) as usize;
            out.append(&rows.stored_values()[wanted]);
            return Ok(());
        }
        let start = self.first()? * size;
        let bytes = start + range.start..start + range.end;
        self.column.cells()?.append_bytes(Content::Data, bytes, out)
    }

    /// Appends bytes of the values, `bits` bits each, up to the last value that is not null.
    fn numbers(&self, range: Range<u64>, bits: u64, out: &mut Output) -> Result<()> {
        if self.leaf.required() && matches!(self.leaf.encoding, Encoding::Same) {
            return self.copy(range, out);
        }
        // Begin at a value that begins on a byte boundary.
        let first = (range.start * 8 / bits) & !7;
        let last = (range.end * 8).div_ceil(bits);
        let skip = (range.start - first * bits / 8) as usize;
        let wanted = (range.end - range.start) as usize;
        let mut bytes = Vec::with_capacity(wanted + 64);
        match bits {
            64 => self.wanted(first..last, |value| bytes.extend_from_slice(&value.to_le_bytes()))?,
            32 => self.wanted(first..last, |value| {
                bytes.extend_from_slice(&(value as u32).to_le_bytes())
            })?,
            _ => {
                let mut packed = Bits::new(&mut bytes);
                self.wanted(first..last, |value| packed.push(value, bits))?;
                packed.finish();
            }
        }
        // Fewer or none where the range reaches into the slack.
        let end = bytes.len().min(skip + wanted);
        out.append(&bytes[skip.min(end)..end]);
        Ok(())
    }

    /// Calls `take` with the values of these numbers; nulls have no number.
    fn wanted(&self, numbers: Range<u64>, mut take: impl FnMut(u64)) -> Result<()> {
        let fixed = self.leaf.shape != Shape::Any;
        if self.leaf.required() {
            let first = self.first()?;
            let end = numbers.end.min(self.amount.values);
            let elements = first + numbers.start..first + end;
            let mut one = |value: Option<u64>| take(value.expect("the column has no nulls"));
            return self.stream(elements, &mut one);
        }
        let index = self.index()?;
        let total = index.last().map_or(0, |place| place.values);
        let end = numbers.end.min(total);
        if fixed && total == self.amount.entries {
            let mut one = |value: Option<u64>| take(value.expect("the page has no nulls"));
            return self.values(numbers.start..end, &mut one);
        }
        let block = index.partition_point(|place| place.values <= numbers.start);
        // The first entry is 0, so at least one is not above.
        let block = block - 1;
        let at = Cell::new(index[block].values);
        let mut one = |value: Option<u64>| {
            let Some(value) = value else { return };
            if (numbers.start..end).contains(&at.get()) {
                take(value);
            }
            at.set(at.get() + 1);
        };
        for rows in self.blocks(block) {
            if at.get() >= end {
                break;
            }
            if fixed {
                self.values(rows, &mut one)?;
                continue;
            }
            for elements in runs(self.cells(rows)?) {
                let count = elements.end - elements.start;
                if !self.leaf.null_values {
                    // Skips the values before the first one wanted.
                    let from = numbers.start.saturating_sub(at.get()).min(count);
                    let to = end.saturating_sub(at.get()).min(count);
                    at.set(at.get() + from);
                    let wanted = elements.start + from..elements.start + to;
                    self.stream(wanted, &mut one)?;
                } else if at.get() < end {
                    self.stream(elements, &mut one)?;
                }
            }
        }
        check_all(at.get(), end)
    }

    /// Which of the rows of `entries` are null; None if none is.
    fn nulls(&self, entries: &Range<u64>) -> Result<Option<impl Fn(u64) -> bool>> {
        let count = self.values_a_row();
        let rows = self.rows.start + entries.start / count..self.rows.start + entries.end.div_ceil(count);
        let skipped = entries.start % count;
        Ok(self
            .column
            .validity(rows)?
            .map(move |valid| move |i: u64| valid[((skipped + i) / count) as usize] == 0))
    }

    /// Calls `take` with the entries in `entries` of a page with a fixed number of values per row.
    fn values(&self, entries: Range<u64>, mut take: impl FnMut(Option<u64>)) -> Result<()> {
        if entries.start >= entries.end {
            return Ok(());
        }
        let first = self.rows.start * self.values_a_row();
        let null = self.nulls(&entries)?;
        let elements = first + entries.start..first + entries.end;
        let mut i = 0;
        self.stream(elements, |value| {
            take(value.filter(|_| !null.as_ref().is_some_and(|null| null(i))));
            i += 1;
        })
    }

    /// Calls `take` with whether each entry has a value. Reads values only if that depends on them.
    fn presence(&self, entries: Range<u64>, mut take: impl FnMut(bool)) -> Result<()> {
        if self.leaf.encoding == Encoding::Geometry {
            let rows = self.rows.start + entries.start..self.rows.start + entries.end;
            let cells = self.text_cells(rows)?.into_iter();
            cells.for_each(|(_, len)| take(len.is_some()));
            return Ok(());
        }
        if self.leaf.null_values {
            return self.values(entries, |value| take(value.is_some()));
        }
        let null = self.nulls(&entries)?;
        for i in 0..entries.end - entries.start {
            take(!null.as_ref().is_some_and(|null| null(i)));
        }
        Ok(())
    }

    /// Calls `take` with stored values, numbered as in [`cells`].
    fn stream(&self, elements: Range<u64>, mut take: impl FnMut(Option<u64>)) -> Result<()> {
        match (&self.leaf.encoding, self.leaf.shape) {
            (Encoding::List(labels), Shape::Some(count)) => {
                return self.labels(labels, count, elements, take);
            }
            (Encoding::List(labels), _) => {
                return elements.into_iter().try_for_each(|element| {
                    take(labels.number(element)?);
                    Ok(())
                });
            }
            _ => {}
        }
        let size = self.leaf.value_size();
        let mut stored = Output::keeping(self.keep);
        let mut at = elements.start;
        while at < elements.end {
            let end = at
                .saturating_add(self.engine.tuning.page_values)
                .min(elements.end);
            if self.column.is_axis() {
                let rows = self.column.read(at..end)?;
                self.leaf.each(rows.stored_values(), &mut take);
            } else {
                let bytes = at * size..end * size;
                stored.clear();
                self.column
                    .cells()?
                    .append_bytes(Content::Data, bytes, &mut stored)?;
                self.leaf.each(&stored, &mut take);
            }
            at = end;
        }
        Ok(())
    }

    /// Calls `take` with elements of labels of `count` numbers each, numbered over the whole column.
    fn labels(
        &self,
        labels: &Labels,
        count: u64,
        elements: Range<u64>,
        mut take: impl FnMut(Option<u64>),
    ) -> Result<()> {
        let mut at = elements.start;
        while at < elements.end {
            let first = at / count;
            let last = elements
                .end
                .div_ceil(count)
                .min(first.saturating_add(self.engine.tuning.page_values));
            let rows = self.column.read(first..last)?;
            let end = elements.end.min(last.saturating_mul(count));
            for element in at..end {
                let number = match rows.valid_label((element / count - first) as usize) {
                    Some(label) => labels.number(labels.elements(label)?.start + element % count)?,
                    None => None,
                };
                take(number);
            }
            at = end;
        }
        Ok(())
    }

    /// The first element of the page's rows, numbered over the whole column.
    fn first(&self) -> Result<u64> {
        if self.leaf.shape != Shape::Any {
            return Ok(self.rows.start * self.values_a_row());
        }
        Ok(self.column.cells()?.start(self.rows.start)? / self.leaf.value_size())
    }

    /// Values per row, for rows that are no LIST of any length.
    fn values_a_row(&self) -> u64 {
        match self.leaf.shape {
            Shape::Some(count) => count,
            _ => 1,
        }
    }

    /// The ranges of the blocks from number `block` on: of rows, or of entries if all rows have equally many.
    fn blocks(&self, block: usize) -> impl Iterator<Item = Range<u64>> {
        let by_row = self.leaf.shape == Shape::Any || self.leaf.bits().is_none();
        let all = match by_row {
            true => self.rows.clone(),
            false => 0..self.amount.entries,
        };
        let step = self.engine.tuning.index_entries;
        let first = all.start + step * block as u64;
        (first..all.end)
            .step_by(step as usize)
            .map(move |start| start..(start + step).min(all.end))
    }

    /// The counts before each block and those of the whole page.
    fn index(&self) -> Result<Arc<Vec<Counts>>> {
        let rows = self.rows.end - self.rows.start;
        let step = self.engine.tuning.index_entries;
        let estimate = rows.max(self.amount.entries) / step * size_of::<Counts>() as u64;
        self.engine.cache.derive(self.key, estimate, Keep::Staying, || {
            let strips = self.leaf.encoding == Encoding::Bytes { strip: true };
            let mut index = vec![Counts::default()];
            let mut counts = Counts::default();
            for block in self.blocks(0) {
                let (entries, values) = self.count(block)?;
                counts.entries += entries;
                counts.values += values;
                index.push(counts);
            }
            // The planned length may come from metadata of tiles that disagrees with the data.
            let all = self.amount.values_len(self.leaf);
            let exact = self.leaf.required() && !strips;
            if self.leaf.bits().is_none() && (counts.values > all || exact && counts.values < all) {
                let message = format!("found {} bytes of text, expected {all}", counts.values);
                return Err(Error::corrupt(message).at(0));
            }
            #[cfg(test)]
            index
                .iter_mut()
                .skip(1)
                .for_each(|counts| counts.values += TOO_MANY.get());
            Ok(index)
        })
    }

    /// Entries of a block, and its values that are not null; for text, their bytes and lengths.
    fn count(&self, block: Range<u64>) -> Result<(u64, u64)> {
        let all = block.end - block.start;
        let mut values = 0u64;
        if self.leaf.bits().is_none() {
            for (_, len) in self.text_cells(block)? {
                values += len.map_or(0, |len| len + 4);
            }
            return Ok((all, values));
        }
        if self.leaf.shape != Shape::Any {
            self.presence(block, |present| values += u64::from(present))?;
            return Ok((all, values));
        }
        let cells = self.cells(block)?;
        let mut entries = 0u64;
        for (elements, valid) in &cells {
            let count = elements.end - elements.start;
            let count = if *valid { count } else { 0 };
            entries += count.max(1);
            values += count;
        }
        if self.leaf.null_values {
            values = 0;
            for elements in runs(cells) {
                self.stream(elements, |value| values += u64::from(value.is_some()))?;
            }
        }
        Ok((entries, values))
    }
}

/// Fails if what was counted up to `end` was found only up to `at`: zeros would follow in its place.
fn check_all(at: u64, end: u64) -> Result<()> {
    match at < end {
        true => Err(Error::internal(format!(
            "a page ends at {at}, but was counted to {end}"
        ))),
        false => Ok(()),
    }
}

/// The elements of valid cells, adjacent ranges joined.
fn runs(cells: Vec<(Range<u64>, bool)>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (elements, valid) in cells {
        if !valid || elements.is_empty() {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == elements.start => last.end = elements.end,
            _ => runs.push(elements),
        }
    }
    runs
}
