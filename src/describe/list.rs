//! Lists of values that may be too long to be rendered at once. Any range of items can be read from the body
//! that holds the list, and written.

use super::render::line;
use super::value;
use crate::bytes::{Bytes, Output};
use crate::error::{Error, Result};
use crate::format::body::{MAX_VALUE, u64_items};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::layout::segments::Cutter;
use std::ops::Range;

/// How many offsets of var-sized values are read at once.
const STARTS: u64 = 8192;

/// How many bytes of values are read at once, unless a single value has more.
const STEP: u64 = 64 << 10;

/// A list of values, written as an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueList {
    datatype: Datatype,
    cells: CellValNum,
    /// Byte range of the values in the body.
    data: Range<u64>,
    positions: Positions,
    count: u64,
    /// Whether the array is on one line, by the rules of [`render`](super::render()).
    inline: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Positions {
    /// Each value has this many bytes; the last may have fewer.
    Stride(u64),
    /// A list of u64 begins at this byte of the body. Its entries are the offsets of the values in `data`. A
    /// value ends where the next one starts.
    Starts(u64),
}

impl ValueList {
    /// Consecutive fixed-size cells in `data`. Bytes at the end that are less than a cell are hexadecimal.
    pub fn fixed(datatype: Datatype, values: u32, data: Range<u64>) -> Result<ValueList> {
        let size = data.end - data.start;
        let stride = u64::from(values) * datatype.size() as u64;
        check_value(stride.min(size))?;
        let atoms = matches!(datatype.kind(), Kind::Text | Kind::Bytes) || values <= 2;
        Ok(ValueList {
            datatype,
            cells: CellValNum::Fixed(values),
            data,
            positions: Positions::Stride(stride),
            count: size.div_ceil(stride),
            inline: atoms || size < stride,
        })
    }

    /// `count` var-sized cells in `data`, whose offsets are a list of u64 at byte `starts`. A cell that
    /// exceeds the data is null.
    pub fn var(
        body: &dyn Bytes,
        datatype: Datatype,
        starts: u64,
        count: u64,
        data: Range<u64>,
    ) -> Result<ValueList> {
        let mut list = ValueList {
            datatype,
            cells: CellValNum::Var,
            data,
            positions: Positions::Starts(starts),
            count,
            inline: true,
        };
        // A cell of text or opaque bytes is one string.
        if !matches!(datatype.kind(), Kind::Text | Kind::Bytes) {
            let size = datatype.size() as u64;
            let mut inline = true;
            list.each_length(body, |length| {
                inline &= length.is_none_or(|n| n % size != 0 || n / size == 2);
                Ok(())
            })?;
            list.inline = inline;
        }
        Ok(list)
    }

    /// `Corrupt` if a var-sized item exceeds the data, or if offsets are not ascending.
    pub fn check(&self, body: &dyn Bytes) -> Result<()> {
        let mut index = 0u64;
        self.each_length(body, |length| {
            if length.is_none() {
                let size = self.data.end - self.data.start;
                return Err(Error::corrupt(format!(
                    "the offsets of value {index} are not ascending, or exceed the {size} bytes of values"
                )));
            }
            index += 1;
            Ok(())
        })
    }

    /// Number of items.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Passes the approximate lengths of the items to `cutter`.
    pub fn cut(&self, body: &dyn Bytes, cutter: &mut Cutter) -> Result<()> {
        let text = |bytes: u64| bytes.saturating_mul(2).saturating_add(8);
        match self.positions {
            Positions::Stride(stride) => cutter.items(self.count, text(stride)),
            Positions::Starts(_) => self.each_length(body, |length| {
                cutter.items(1, text(check_value(length.unwrap_or(0))?))
            }),
        }
    }

    /// Appends the items in `items`. The first and the last item include the brackets. The array is at
    /// nesting `depth`.
    pub fn write(&self, body: &dyn Bytes, items: Range<u64>, depth: usize, out: &mut Vec<u8>) -> Result<()> {
        if items.start == 0 {
            out.push(b'[');
        }
        let before = |index: u64, out: &mut Vec<u8>| match self.inline {
            true if index > 0 => out.extend_from_slice(b", "),
            true => {}
            false => {
                if index > 0 {
                    out.push(b',');
                }
                line(out, depth + 1);
            }
        };
        match self.positions {
            Positions::Stride(stride) => self.write_fixed(body, stride, items.clone(), out, before)?,
            Positions::Starts(starts) => self.write_var(body, starts, items.clone(), out, before)?,
        }
        if items.end >= self.count {
            if !self.inline && self.count > 0 {
                line(out, depth);
            }
            out.push(b']');
        }
        Ok(())
    }

    fn write_fixed(
        &self,
        body: &dyn Bytes,
        stride: u64,
        items: Range<u64>,
        out: &mut Vec<u8>,
        before: impl Fn(u64, &mut Vec<u8>),
    ) -> Result<()> {
        let place = |item: u64| {
            self.data
                .start
                .saturating_add(item.saturating_mul(stride))
                .min(self.data.end)
        };
        let step = (STEP / stride).max(1);
        let mut bytes = Output::new();
        let mut at = items.start;
        while at < items.end {
            let end = items.end.min(at.saturating_add(step));
            bytes.clear();
            body.read(place(at)..place(end), &mut bytes)?;
            let cells = bytes.chunks(stride as usize);
            for (index, cell) in (at..end).zip(cells) {
                before(index, out);
                value::write_cell(out, self.datatype, self.cells, cell);
            }
            at = end;
        }
        Ok(())
    }

    fn write_var(
        &self,
        body: &dyn Bytes,
        starts: u64,
        items: Range<u64>,
        out: &mut Vec<u8>,
        before: impl Fn(u64, &mut Vec<u8>),
    ) -> Result<()> {
        let mut held: Range<u64> = 0..0;
        let mut bytes = Output::new();
        self.each(body, starts, items, |index, part, end_of_known| {
            before(index, out);
            let Some(part) = part else {
                out.extend_from_slice(b"null");
                return Ok(());
            };
            check_value(part.end - part.start)?;
            if part.start < held.start || part.end > held.end {
                // The values that follow are read along, as far as they are wanted.
                let ahead = part.start.saturating_add(STEP).min(end_of_known);
                held = part.start..part.end.max(ahead);
                bytes.clear();
                body.read(held.clone(), &mut bytes)?;
            }
            let cell = &bytes[(part.start - held.start) as usize..(part.end - held.start) as usize];
            value::write_cell(out, self.datatype, self.cells, cell);
            Ok(())
        })
    }

    /// Calls `visit` with the length of each var-sized item; None if the item exceeds the data.
    fn each_length(&self, body: &dyn Bytes, mut visit: impl FnMut(Option<u64>) -> Result<()>) -> Result<()> {
        let Positions::Starts(starts) = self.positions else {
            return Ok(());
        };
        self.each(body, starts, 0..self.count, |_, part, _| {
            visit(part.map(|part| part.end - part.start))
        })
    }

    /// Calls `visit` for each of `items` with its number, its byte range in the body (None if it exceeds the
    /// data), and the end of the last item whose range is known so far.
    fn each(
        &self,
        body: &dyn Bytes,
        starts: u64,
        items: Range<u64>,
        mut visit: impl FnMut(u64, Option<Range<u64>>, u64) -> Result<()>,
    ) -> Result<()> {
        let size = self.data.end - self.data.start;
        let mut scratch = Output::new();
        let mut at = items.start;
        while at < items.end {
            let end = items.end.min(at.saturating_add(STARTS));
            // An item ends where the next one starts, so one more offset is read.
            let known = u64_items(body, starts, at..(end + 1).min(self.count), &mut scratch)?;
            let ends = known.iter().skip(1).copied().chain([size]);
            let last = match end < self.count {
                true => known[known.len() - 1].min(size),
                false => size,
            };
            for ((index, &start), end) in (at..end).zip(&known).zip(ends) {
                let part =
                    (start <= end && end <= size).then(|| self.data.start + start..self.data.start + end);
                visit(index, part, self.data.start + last)?;
            }
            at = end;
        }
        Ok(())
    }
}

/// `LimitExceeded` for a value that is too long to be kept in memory.
fn check_value(length: u64) -> Result<u64> {
    if length > MAX_VALUE {
        return Err(Error::limit(format!(
            "a value has {length} bytes; at most {MAX_VALUE} are shown in a list"
        )));
    }
    Ok(length)
}
