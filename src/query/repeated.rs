//! The labels of an axis for each cell of a dense view, as tables have them.

use super::View;
use super::labels::Along;
use crate::bytes::Output;
use crate::error::{Error, Result};
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use std::ops::Range;
use std::sync::Arc;

/// The labels of the coordinates along an axis, one for each cell of a dense view in row-major order.
#[derive(Clone)]
pub(crate) struct Repeated {
    along: Arc<Along>,
    /// One label per coordinate.
    labels: Arc<dyn Cells>,
    /// The number of coordinates.
    length: u64,
    /// The number of adjacent cells with the same coordinate.
    inner: u64,
    /// The number of cells.
    count: u64,
}

impl View {
    /// Label `index`, which is `along` an axis of this view, for each cell.
    pub(crate) fn repeat(&self, index: usize, along: Along) -> Result<Repeated> {
        let axis = self.labels()[index].label.dimension_index as usize;
        let shape = self.shape()?;
        let labels = along.open()?;
        if shape[axis] != labels.count() {
            return Err(Error::internal("an axis does not have one label per coordinate"));
        }
        let inner = shape.iter().skip(axis + 1);
        Ok(Repeated {
            length: labels.count().max(1),
            // The product may be beyond 2^64 if another axis has no cells.
            inner: inner
                .fold(1, |cells: u64, length| cells.saturating_mul(*length))
                .max(1),
            count: self.count()?,
            along: Arc::new(along),
            labels,
        })
    }
}

impl Repeated {
    /// The bytes of the labels of all cells before `cell`. Reads at most three offsets.
    fn start(&self, cell: u64) -> Result<u64> {
        if let Some(size) = self.labels.cell_size() {
            return cell.checked_mul(size).ok_or_else(too_long);
        }
        let (step, place) = (cell / self.inner, cell % self.inner);
        let (turns, label) = (step / self.length, step % self.length);
        let before = |label| self.labels.start(label).map(u128::from);
        let start = before(label)?;
        let mut bytes = start * u128::from(self.inner);
        if turns > 0 {
            bytes += before(self.length)? * u128::from(self.inner) * u128::from(turns);
        }
        if place > 0 {
            bytes += (before(label + 1)? - start) * u128::from(place);
        }
        u64::try_from(bytes).map_err(|_| too_long())
    }

    /// The last cell that begins at byte `position` or before, which must be before the end of the last one.
    fn cell_at(&self, position: u64) -> Result<u64> {
        if let Some(size) = self.labels.cell_size() {
            return Ok(position / size);
        }
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.start(middle)? <= position {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// Whether some labels may be null or unwritten.
    pub(crate) fn may_be_null(&self) -> Result<bool> {
        Ok(self.along.shown().nullable || !self.along.view.is_covered()?)
    }

    /// For each of `cells`, 0 if its label is null or was not written, and 1 if it is there.
    pub(crate) fn valid(&self, cells: Range<u64>) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.append_validity(cells, &mut out)?;
        Ok(out)
    }

    /// The labels of some cells, each once: one or two ranges of labels.
    fn labels_of(&self, cells: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let ranges = match cells.is_empty() {
            true => [0..0, 0..0],
            false => {
                let (first, last) = (cells.start / self.inner, (cells.end - 1) / self.inner);
                let whole = last - first >= self.length - 1;
                match (first % self.length, last % self.length) {
                    _ if whole => [0..self.length, 0..0],
                    (first, last) if first <= last => [first..last + 1, 0..0],
                    // From the end of one turn into the next.
                    (first, last) => [first..self.length, 0..last + 1],
                }
            }
        };
        ranges.into_iter().filter(|range| !range.is_empty())
    }

    /// Calls `take` for each run of adjacent cells with the same label: with the place of the label among
    /// [`Repeated::labels_of`] these cells, and the number of cells.
    fn each_run(&self, cells: Range<u64>, mut take: impl FnMut(usize, usize)) {
        let first = self.labels_of(&cells).next().map_or(0, |range| range.start);
        let mut cell = cells.start;
        while cell < cells.end {
            let label = cell / self.inner % self.length;
            let place = match label.checked_sub(first) {
                Some(place) => place,
                None => self.length - first + label,
            };
            let left = (self.inner - cell % self.inner).min(cells.end - cell);
            take(place as usize, left as usize);
            cell += left;
        }
    }

    /// Appends fixed-size labels, of `size` bytes each.
    fn fixed(&self, size: usize, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let mut values = Vec::new();
        for labels in self.labels_of(&cells) {
            values.extend_from_slice(&self.labels.values(labels)?);
        }
        self.each_run(cells, |place, count| {
            let label = &values[place * size..(place + 1) * size];
            (0..count).for_each(|_| out.extend_from_slice(label));
        });
        Ok(())
    }

    /// Appends the length of each var-sized label.
    fn lengths(&self, cells: Range<u64>, out: &mut Vec<u64>) -> Result<()> {
        let mut lengths = Vec::new();
        for labels in self.labels_of(&cells) {
            let starts = self.labels.starts(labels)?;
            lengths.extend(starts.windows(2).map(|pair| pair[1] - pair[0]));
        }
        self.each_run(cells, |place, count| {
            out.resize(out.len() + count, lengths[place]);
        });
        Ok(())
    }

    /// Appends var-sized labels.
    fn var(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let (mut values, mut ends) = (Vec::new(), vec![0]);
        for labels in self.labels_of(&cells) {
            let (starts, more) = self.labels.var_values(labels)?;
            ends.extend(starts.iter().skip(1).map(|start| values.len() + *start as usize));
            values.extend_from_slice(&more);
        }
        self.each_run(cells, |place, count| {
            let label = &values[ends[place]..ends[place + 1]];
            (0..count).for_each(|_| out.extend_from_slice(label));
        });
        Ok(())
    }

    /// Appends the range `bytes` of one label.
    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Output) -> Result<()> {
        let label = cell / self.inner % self.length;
        let start = match self.labels.cell_size() {
            Some(size) => label * size,
            None => self.labels.start(label)?,
        };
        let bytes = start + bytes.start..start + bytes.end;
        self.labels.read(Content::Data, bytes, out)
    }

    fn append_validity(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let nullable = self.along.shown().nullable;
        let mut valid = Vec::new();
        for labels in self.labels_of(&cells) {
            let written = self.along.view.written(labels.clone())?;
            let count = (labels.end - labels.start) as usize;
            let mut some = written.unwrap_or_else(|| vec![1; count]);
            if nullable {
                let stored = self.labels.validity(labels)?;
                some.iter_mut()
                    .zip(&*stored)
                    .for_each(|(valid, stored)| *valid &= u8::from(*stored != 0));
            }
            valid.append(&mut some);
        }
        self.each_run(cells, |place, count| out.resize(out.len() + count, valid[place]));
        Ok(())
    }
}

fn too_long() -> Error {
    Error::limit("the labels of all cells have 2^64 bytes or more")
}

/// All that is needed to find a byte follows from the offsets of the labels: there is no pass over all cells.
impl Cells for Repeated {
    fn count(&self) -> u64 {
        self.count
    }

    fn cell_size(&self) -> Option<u64> {
        self.labels.cell_size()
    }

    fn len(&self, content: Content) -> Result<u64> {
        match content {
            Content::Data => self.start(self.count),
            Content::Offsets => {
                let entries = self.count.checked_add(1);
                entries
                    .and_then(|entries| entries.checked_mul(8))
                    .ok_or_else(too_long)
            }
            Content::Validity => Ok(self.count),
        }
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        let len = self.len(content)?;
        let range = range.start.min(len)..range.end.min(len);
        if range.is_empty() {
            return Ok(());
        }
        match content {
            Content::Data => {
                let (first, last) = (self.cell_at(range.start)?, self.cell_at(range.end - 1)?);
                let (start, end) = (self.start(first)?, self.start(last)?);
                // Of a long label at an end only a part is read.
                if first == last {
                    self.part_of_cell(first, range.start - start..range.end - start, out)?;
                } else {
                    let first_end = self.start(first + 1)?;
                    self.part_of_cell(first, range.start - start..first_end - start, out)?;
                    out.write(|out| match self.labels.cell_size() {
                        Some(size) => self.fixed(size as usize, first + 1..last, out),
                        None => self.var(first + 1..last, out),
                    })?;
                    self.part_of_cell(last, 0..range.end - end, out)?;
                }
            }
            Content::Offsets => {
                let entries = range.start / 8..range.end.div_ceil(8);
                let mut start = self.start(entries.start)?;
                let mut lengths = Vec::new();
                self.lengths(entries.start..entries.end - 1, &mut lengths)?;
                let before = out.len();
                out.write(|out| {
                    out.extend_from_slice(&start.to_le_bytes());
                    for length in lengths {
                        start += length;
                        out.extend_from_slice(&start.to_le_bytes());
                    }
                });
                let wanted = (range.end - range.start) as usize;
                out.cut(before, (range.start % 8) as usize, wanted)?;
            }
            Content::Validity => out.write(|out| self.append_validity(range, out))?,
        }
        Ok(())
    }
}
