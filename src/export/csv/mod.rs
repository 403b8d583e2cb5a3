//! `table.csv`: the table of a view as comma-separated values, RFC 4180 with line feeds; and `head.csv`, its
//! first rows.
//!
//! ```text
//! d,a,"say ""when""",t
//! 1,0.5,"with, comma",2025-02-04
//! 2,NaN,,
//! 3,2.0,"",1970-01-01
//! ```
//!
//! Null is an empty field, empty text is `""` ([`text`]). Rows have varying lengths, so the position of a row
//! is known only after all rows before it have been written. One pass on all threads, done once for each
//! state of the view, notes the position of every 1,024th row, or of more rows if they are long. A read
//! renders the rows from the nearest of these.

pub mod text;

#[cfg(test)]
mod tests;

use crate::bytes::{Bytes, Keep, Output};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{FileLayout, Stream};
use crate::query::View;
use crate::query::table::{Table, most_columns};
use crate::runtime::cache::{CacheKey, Entry};
use crate::runtime::parallel;
use std::collections::VecDeque;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;
use text::Form;

/// A table of more values is left out of listings.
const MAX_LISTED: u64 = 1 << 20;

/// The rows of `head.csv`.
const HEAD_ROWS: u64 = 1000;

/// Rows of a block.
const BLOCK_ROWS: u64 = 1 << 10;

/// Blocks that a thread measures in one task.
const BLOCKS_PER_TASK: u64 = 16;

/// A block ends after this many bytes of text, even if it has fewer rows.
const MAX_BLOCK_TEXT: usize = 4 << 20;

/// The most bytes of values read in one step. A single longer row is read whole.
const MAX_READ: u64 = 4 << 20;

/// The most bytes of values in flight when all rows are streamed.
const MAX_IN_FLIGHT: u64 = 16 << 20;

/// Why there is no `table.csv` of at most `most` values; None if there is one.
pub fn absent(view: &View, most: u64) -> Result<Option<String>> {
    let columns = most_columns(view);
    if view.has_at_most(most / columns)? {
        return Ok(None);
    }
    let rows = match view.count() {
        Ok(rows) if rows <= most / columns => return Ok(None),
        Ok(rows) => rows.to_string(),
        Err(error) if error.kind() == ErrorKind::LimitExceeded => "2^64 or more".to_owned(),
        Err(error) => return Err(error),
    };
    Ok(Some(format!(
        "{rows} rows of {columns} columns are more than {most} values: see --csv-values, or read it with \
         tiledbfs cat"
    )))
}

/// Whether listings show `table.csv`, for a table of at most `most` values.
pub fn is_listed(view: &View, most: u64) -> Result<bool> {
    view.has_at_most(most.min(MAX_LISTED) / most_columns(view))
}

/// The file. Its length is computed by writing all of it once, unless the cache has the length.
pub fn layout(view: &Arc<View>) -> Result<FileLayout> {
    file("table.csv", Writer::new(view, view)?, view)
}

/// The file up to its 1,000th row. Reads only these rows.
pub fn head(view: &Arc<View>) -> Result<FileLayout> {
    let mut writer = Writer::new(&Arc::new(view.head(HEAD_ROWS)?), view)?;
    writer.rows = writer.rows.min(HEAD_ROWS);
    file("head.csv", writer, view)
}

/// The file `name` that `writer` writes, of the view `whole` or its first rows.
fn file(name: &str, writer: Writer, whole: &View) -> Result<FileLayout> {
    // The columns are those of the whole table, which its own state does not tell.
    let state = writer.table.state(whole);
    let body = Body::new(&(name, state), writer)?;
    let header = header(&body.writer.table);
    FileLayout::new(state, vec![Box::new(header), Box::new(body)])
}

/// The bytes of the file in sequence. Does not compute its length.
pub fn stream(view: &Arc<View>) -> Result<impl Stream + use<>> {
    let writer = Writer::new(view, view)?;
    Ok(Written {
        rows: writer.rows,
        ready: VecDeque::from([header(&writer.table)]),
        writer,
        row: 0,
    })
}

/// All rows in sequence.
struct Written {
    writer: Writer,
    rows: u64,
    /// The next row to write.
    row: u64,
    /// Text that is written but not yet returned.
    ready: VecDeque<Vec<u8>>,
}

impl Stream for Written {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.ready.is_empty() && self.row < self.rows {
            let (mut parts, mut bytes) = (Vec::new(), 0u64);
            let most = parallel::threads() * BLOCKS_PER_TASK;
            while self.row < self.rows && bytes < MAX_IN_FLIGHT && (parts.len() as u64) < most {
                let (rows, more) = self.writer.next_batch(self.row..self.rows)?;
                self.row = rows.end;
                bytes = bytes.saturating_add(more);
                parts.push(rows);
            }
            let written = parallel::each(parts.len() as u64, |number| {
                let mut text = Vec::new();
                let rows = parts[number as usize].clone();
                self.writer.write_batch(rows, &mut text, &mut |_, _| {})?;
                Ok::<_, Error>(text)
            });
            self.ready.extend(written?);
        }
        Ok(self.ready.pop_front())
    }

    fn done(&self) -> f64 {
        match self.rows {
            0 => 1.0,
            rows => self.row as f64 / rows as f64,
        }
    }
}

/// The line of column names.
fn header(table: &Table) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, column) in table.columns().iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        text::text(&column.name, &mut out);
    }
    out.push(b'\n');
    out
}

/// All lines but the header.
struct Body {
    writer: Writer,
    blocks: Arc<Blocks>,
    /// The number of the file in the cache.
    object: u64,
}

/// Where blocks of rows end.
#[derive(Debug, Default)]
struct Blocks {
    /// The row after the last one of each block.
    rows: Vec<u64>,
    /// The byte after the last one of each block.
    ends: Vec<u64>,
}

impl Entry for Blocks {
    fn memory(&self) -> u64 {
        self.rows.memory() + self.ends.memory()
    }
}

impl Body {
    /// The lines that `writer` writes, of the file `name`.
    fn new(name: &impl Hash, writer: Writer) -> Result<Body> {
        let view = writer.table.view();
        let array = view.array();
        let object = array.engine.number(&(name, &array.path, view.state()));
        let cache = &array.engine.cache;
        let _waiting = array.engine.work.wait(object);
        let blocks = cache.derive(CacheKey::of(object), 0, Keep::Staying, || writer.measure(object))?;
        Ok(Body {
            writer,
            blocks,
            object,
        })
    }

    /// The text of block `block`, of `rows` and `length` bytes.
    fn text(&self, block: usize, rows: Range<u64>, length: u64, keep: Keep) -> Result<Arc<Vec<u8>>> {
        let key = CacheKey::tile(self.object, block as u64);
        let cache = &self.writer.table.view().array().engine.cache;
        cache.derive(key, length, keep, || {
            let mut text = Vec::with_capacity(length as usize);
            self.writer.write(rows, &mut text, |_, _| {})?;
            if text.len() as u64 != length {
                let message = format!(
                    "the text has {} bytes, but had {length} when it was measured",
                    text.len()
                );
                return Err(Error::corrupt(message));
            }
            Ok(text)
        })
    }
}

impl Bytes for Body {
    fn len(&self) -> u64 {
        self.blocks.ends.last().copied().unwrap_or(0)
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let Blocks { rows, ends } = &*self.blocks;
        let keep = out.keep.unwrap_or(Keep::Staying);
        let first = ends.partition_point(|end| *end <= range.start);
        let before = |all: &[u64], i: usize| if i == 0 { 0 } else { all[i - 1] };
        for (block, (&row, &end)) in rows.iter().zip(ends).enumerate().skip(first) {
            let start = before(ends, block);
            if start >= range.end {
                break;
            }
            let length = end - start;
            let text = self.text(block, before(rows, block)..row, length, keep)?;
            let part = range.start.max(start)..range.end.min(end);
            out.share(text, (part.start - start) as usize..(part.end - start) as usize)?;
        }
        Ok(())
    }
}

/// Writes the lines of a table.
struct Writer {
    table: Table,
    /// The number of rows.
    rows: u64,
    forms: Vec<Form>,
}

impl Writer {
    /// Writes the table of `view`, with the columns of the table of `whole`, of which it is a part.
    fn new(view: &Arc<View>, whole: &View) -> Result<Writer> {
        let table = Table::of_part(view, whole)?;
        Ok(Writer {
            forms: table.columns().iter().map(Form::of).collect(),
            rows: table.rows()?,
            table,
        })
    }

    /// Writes all rows once; `object` is the file's number in the cache.
    fn measure(&self, object: u64) -> Result<Blocks> {
        let rows = self.rows;
        let array = self.table.view().array();
        let job = array.engine.work.start(
            object,
            array.path.display().to_string(),
            "measuring table.csv",
            rows,
        );
        let each = BLOCK_ROWS * BLOCKS_PER_TASK;
        let parts = parallel::each(rows.div_ceil(each), |number| -> Result<Vec<(u64, u64)>> {
            let first = number * each;
            let part = first..(first + each).min(rows);
            let (mut ends, mut out) = (Vec::new(), Vec::new());
            let last = part.end;
            self.write(part, &mut out, |row, out| {
                if row % BLOCK_ROWS == 0 || row == last || out.len() >= MAX_BLOCK_TEXT {
                    ends.push((row, out.len() as u64));
                    out.clear();
                }
            })?;
            job.advance(last - first)?;
            Ok(ends)
        })?;
        let mut blocks = Blocks::default();
        let mut end = 0u64;
        for (row, length) in parts.into_iter().flatten() {
            end = end
                .checked_add(length)
                .ok_or_else(|| Error::limit("the table would have more than 2^64 bytes"))?;
            blocks.rows.push(row);
            blocks.ends.push(end);
        }
        Ok(blocks)
    }

    /// Appends the text of `rows` to the output. Calls `done` after each row with the number of the next one.
    fn write(
        &self,
        rows: Range<u64>,
        out: &mut Vec<u8>,
        mut done: impl FnMut(u64, &mut Vec<u8>),
    ) -> Result<()> {
        let mut row = rows.start;
        while row < rows.end {
            let (batch, _) = self.next_batch(row..rows.end)?;
            row = batch.end;
            self.write_batch(batch, out, &mut done)?;
        }
        Ok(())
    }

    /// The next rows of `rows` to read in one step, at least one, and an estimate of their bytes.
    fn next_batch(&self, rows: Range<u64>) -> Result<(Range<u64>, u64)> {
        let mut rows = rows.start..rows.end.min(rows.start.saturating_add(BLOCK_ROWS));
        loop {
            let mut bytes = 0u64;
            for column in self.table.columns() {
                bytes = bytes.saturating_add(column.most_bytes(&rows)?);
            }
            let count = rows.end - rows.start;
            if bytes <= MAX_READ {
                return Ok((rows, bytes));
            }
            if count <= 1 {
                // Text takes several times as many bytes as stored values.
                let cache = &self.table.view().array().engine.cache;
                let check = cache.check_size(bytes.saturating_mul(4));
                check.map_err(|e| e.in_part(format_args!("row {}", rows.start)))?;
                return Ok((rows, bytes));
            }
            rows.end = rows.start + count / 2;
        }
    }

    /// [`Writer::write`] for rows that fit into one read.
    fn write_batch(
        &self,
        rows: Range<u64>,
        out: &mut Vec<u8>,
        done: &mut impl FnMut(u64, &mut Vec<u8>),
    ) -> Result<()> {
        let columns = self.table.columns().iter();
        let columns = columns.map(|column| column.read(rows.clone()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        for (index, row) in rows.enumerate() {
            for (i, (column, form)) in columns.iter().zip(&self.forms).enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                if let Some(value) = column.value(index) {
                    form.write(value, out)?;
                }
            }
            out.push(b'\n');
            done(row + 1, out);
        }
        Ok(())
    }
}
