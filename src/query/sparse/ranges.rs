//! The ranges of the cells of a view: the subarray and the current domain.

use super::super::DimRange;
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::fragment::boxes::Bounds;
use crate::format::range::{Rect, compare, keep_between};
use crate::format::schema::Schema;
use crate::fragment::cell_slice::CellSlice;
use std::cmp::Ordering;

/// Inclusive bounds of the coordinates of some dimensions. A dimension may have none or several.
pub(super) struct Ranges(Vec<Axis>);

struct Axis {
    dimension: usize,
    datatype: Datatype,
    cell_val_num: CellValNum,
    lo: Option<Vec<u8>>,
    hi: Option<Vec<u8>>,
}

/// How much of a box is inside the ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    Not,
    Partly,
    Wholly,
}

impl Ranges {
    /// The intersection of `subarray` and the current domain of `schema`.
    pub(super) fn new(schema: &Schema, subarray: Option<&[DimRange]>) -> Ranges {
        let axes = schema.dimensions.iter().enumerate().flat_map(|(i, dimension)| {
            let axis = |lo: Option<&[u8]>, hi: Option<&[u8]>| Axis {
                dimension: i,
                datatype: dimension.datatype,
                cell_val_num: dimension.cell_val_num,
                lo: lo.map(<[u8]>::to_vec),
                hi: hi.map(<[u8]>::to_vec),
            };
            let current = schema.current_domain.as_ref().map(|rect| &rect[i]);
            let wanted = subarray.map(|ranges| &ranges[i]);
            let current = current.map(|range| axis(Some(&range.lo), Some(&range.hi)));
            let wanted = wanted.map(|range| axis(range.lo.as_deref(), range.hi.as_deref()));
            [current, wanted]
        });
        let restricting = axes
            .flatten()
            .filter(|axis| axis.lo.is_some() || axis.hi.is_some());
        Ranges(restricting.collect())
    }

    /// Clears the flags of cells outside the ranges. `columns` has the coordinates by dimension.
    pub(super) fn keep(&self, columns: &[CellSlice<'_>], stay: &mut [bool]) {
        for axis in &self.0 {
            axis.keep(&columns[axis.dimension], stay);
        }
    }

    /// How much of a box is inside the ranges; of one that is unknown, [`Inside::Partly`] if there are any.
    pub(super) fn meet_box(&self, bounds: Option<&Rect>) -> Inside {
        match bounds {
            _ if self.0.is_empty() => Inside::Wholly,
            None => Inside::Partly,
            Some(bounds) => {
                let pairs = bounds.iter().map(|range| (&*range.lo, &*range.hi));
                self.meet(&pairs.collect::<Vec<_>>())
            }
        }
    }

    /// How much of a box is inside the ranges.
    pub(super) fn meet(&self, bounds: &[Bounds<'_>]) -> Inside {
        let mut inside = Inside::Wholly;
        for axis in &self.0 {
            let (lo, hi) = &bounds[axis.dimension];
            match (axis.side(lo), axis.side(hi)) {
                (_, Some(Ordering::Less)) | (Some(Ordering::Greater), _) => return Inside::Not,
                (Some(Ordering::Equal), Some(Ordering::Equal)) => {}
                _ => inside = Inside::Partly,
            }
        }
        inside
    }
}

impl Axis {
    /// Clears the flags of coordinates outside the range.
    fn keep(&self, column: &CellSlice<'_>, stay: &mut [bool]) {
        let ends = [self.lo.as_deref(), self.hi.as_deref()];
        let single = self.cell_val_num == CellValNum::Fixed(1);
        if single && keep_between(self.datatype, column.values, ends, stay) {
            return;
        }
        let size = self
            .cell_val_num
            .cell_size(self.datatype)
            .map(|size| size as usize);
        for (i, stay) in stay.iter_mut().enumerate() {
            let value = match size {
                None => column.text(i),
                Some(size) => &column.values[i * size..(i + 1) * size],
            };
            *stay &= self.side(value) == Some(Ordering::Equal);
        }
    }

    /// Whether a value is below, inside (`Equal`) or above the range. None if it cannot be compared (NaN).
    fn side(&self, value: &[u8]) -> Option<Ordering> {
        let to = |end: &Option<Vec<u8>>, open: Ordering| match end {
            None => Some(open),
            Some(end) => compare(self.datatype, self.cell_val_num, value, end),
        };
        Some(
            match (to(&self.lo, Ordering::Greater)?, to(&self.hi, Ordering::Less)?) {
                (Ordering::Less, _) => Ordering::Less,
                (_, Ordering::Greater) => Ordering::Greater,
                _ => Ordering::Equal,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::testing::open_local;
    use crate::runtime::tuning::Tuning;
    use std::path::Path;

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_dimension_without_a_range_is_not_taken_for_an_open_one() {
        let array = open_local(Path::new("tests/data/sample/lightning"), &Tuning::SMALL).unwrap();
        let schema = array.schema(&array.snapshot(None).unwrap()).unwrap();
        Ranges::new(&schema, Some(&[]));
    }
}
