//! Converts stored values to those of a grid: booleans of 0 and 1, days for years, fill values for nulls.

use super::{Variable, VariableKind};
use crate::bytes::{Keep, Output};
use crate::error::{Error, Result};
use crate::format::datatype::{Datatype, Kind};
use crate::format::field::Field;
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::query::table::{NOT_A_TIME, Unit};
use std::ops::Range;
use std::sync::Arc;

/// The value of null cells: `fill`, which is in the grid's type, or not-a-time for dates.
pub(super) fn null(field: &Field, fill: Vec<u8>) -> Vec<u8> {
    match field.datatype.kind() {
        Kind::Datetime if field.nullable => NOT_A_TIME.to_le_bytes().repeat(fill.len() / 8),
        _ => fill,
    }
}

/// The cells of a variable whose values differ from the stored ones.
pub(super) struct GridCells {
    pub(super) variable: Variable,
    pub(super) cells: Arc<dyn Cells>,
}

impl Cells for GridCells {
    fn count(&self) -> u64 {
        self.cells.count()
    }

    fn cell_size(&self) -> Option<u64> {
        Some(self.variable.cell_size())
    }

    fn len(&self, content: Content) -> Result<u64> {
        match (content, self.variable.kind) {
            (Content::Data, VariableKind::Validity) => self.cells.len(Content::Validity),
            (Content::Data, _) => self.cells.len(Content::Data),
            _ => Err(values_alone()),
        }
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        let variable = &self.variable;
        match (content, variable.kind) {
            (Content::Data, VariableKind::Validity) => {
                return self.cells.read(Content::Validity, range, out);
            }
            (Content::Data, _) => {}
            _ => return Err(values_alone()),
        }
        let len = self.cells.len(Content::Data)?;
        let range = range.start.min(len)..range.end.min(len);
        let size = variable.datatype.size() as u64;
        // A value is converted as a whole.
        let start = range.start - range.start % size;
        let whole = start..range.end.next_multiple_of(size).min(len);
        let before = out.len();
        self.cells.read(Content::Data, whole.clone(), out)?;
        let keep = out.keep;
        out.write(|out| {
            let values = &mut out[before..];
            convert(variable.unit, variable.datatype, values);
            match variable.nullable {
                true => self.fill_nulls(whole, keep, values),
                false => Ok(()),
            }
        })?;
        let (skip, wanted) = (range.start - start, range.end - range.start);
        out.cut(before, skip as usize, wanted as usize)
    }
}

impl GridCells {
    /// Replaces null cells in `values`, the bytes `range` of the variable, by [`Variable::null`].
    fn fill_nulls(&self, range: Range<u64>, keep: Option<Keep>, values: &mut [u8]) -> Result<()> {
        let null = self.variable.null();
        let size = self.variable.cell_size();
        let cells = range.start / size..range.end.div_ceil(size);
        let mut validity = Output::keeping(keep);
        self.cells
            .append(Content::Validity, cells.clone(), &mut validity)?;
        for (cell, _) in cells.zip(&*validity).filter(|(_, valid)| **valid == 0) {
            let start = cell * size;
            let end = (start + size).min(range.end);
            let from = start.max(range.start);
            let target = (from - range.start) as usize..(end - range.start) as usize;
            let rest = &null[(from - start) as usize % null.len()..];
            let (first, others) = values[target.clone()].split_at_mut(rest.len().min(target.len()));
            first.copy_from_slice(&rest[..first.len()]);
            for part in others.chunks_mut(null.len()) {
                part.copy_from_slice(&null[..part.len()]);
            }
        }
        Ok(())
    }
}

/// The values of a variable that no field has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::export) enum Computed {
    /// The places of pixels along an axis: FLOAT64.
    Centres(Centres),
    /// The value of a scalar whose attributes alone matter: INT32.
    Zero,
}

/// The centres of pixels along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::export) struct Centres {
    /// The near edge of pixel 0.
    pub origin: f64,
    /// The size of a pixel, negative where coordinates decrease.
    pub step: f64,
    /// The number of the first pixel.
    pub first: u64,
}

/// The cells of a computed variable.
pub(super) struct ComputedCells {
    pub(super) computed: Computed,
    pub(super) count: u64,
}

impl Cells for ComputedCells {
    fn count(&self) -> u64 {
        self.count
    }

    fn cell_size(&self) -> Option<u64> {
        Some(match self.computed {
            Computed::Centres(_) => 8,
            Computed::Zero => 4,
        })
    }

    fn len(&self, content: Content) -> Result<u64> {
        let size = self.cell_size().filter(|_| content == Content::Data);
        Ok(self.count * size.ok_or_else(values_alone)?)
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        let len = self.len(content)?;
        let range = range.start.min(len)..range.end.min(len);
        out.write(|out| match self.computed {
            Computed::Zero => out.extend(range.map(|_| 0)),
            Computed::Centres(Centres { origin, step, first }) => {
                for pixel in range.start / 8..range.end.div_ceil(8) {
                    let centre = origin + ((first + pixel) as f64 + 0.5) * step;
                    let part = range.start.max(pixel * 8)..range.end.min(pixel * 8 + 8);
                    let part = (part.start - pixel * 8) as usize..(part.end - pixel * 8) as usize;
                    out.extend_from_slice(&centre.to_le_bytes()[part]);
                }
            }
        });
        Ok(())
    }
}

fn values_alone() -> Error {
    Error::internal("a variable of a grid has no offsets or validity")
}

/// Converts stored values in place; their size does not change.
pub(super) fn convert(unit: Option<Unit>, datatype: Datatype, values: &mut [u8]) {
    if datatype == Datatype::Bool {
        values.iter_mut().for_each(|value| *value = u8::from(*value != 0));
    }
    let Some(unit) = unit else { return };
    for value in values.as_chunks_mut::<8>().0 {
        let days = unit.days(i64::from_le_bytes(*value));
        *value = days.unwrap_or(NOT_A_TIME).to_le_bytes();
    }
}
