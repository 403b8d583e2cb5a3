//! Dimension labels in views: the labels of each coordinate, and which coordinates have the labels from one
//! to another.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/array_schema.md#dimension-label>

use super::selection::Selection;
use super::{DimRange, Field, Role, View, coordinate};
use crate::catalog::Array;
use crate::catalog::time::When;
use crate::error::{Error, ErrorKind, Result};
use crate::format::datatype::CellValNum;
use crate::format::enums::DataOrder;
use crate::format::range::compare;
use crate::format::schema::{DimensionLabel, Schema};
use crate::fragment::cells::Cells;
use crate::runtime::hash;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The coordinates whose labels lie in `wanted`, in the state that `of` has seen. An open end stays open.
/// `NotFound`, with the reason, if there are none, if the labels have no order, or if there are none at that
/// time. Reads a few labels.
pub(crate) fn labelled(of: &Selection, label: &DimensionLabel, wanted: &DimRange) -> Result<DimRange> {
    let (first, last) = match label.order {
        DataOrder::Increasing => (&wanted.lo, &wanted.hi),
        DataOrder::Decreasing => (&wanted.hi, &wanted.lo),
        DataOrder::Unordered => return Err(Error::not_found("the labels have no order")),
    };
    let own = of.labels.iter().find(|own| own.label.name == label.name);
    let view = own.expect("a label of the schema").view()?;
    let labels = Labels::new(&view, &of.schema, label)?;
    let region = view.region()?.filter(|_| labels.cells.count() > 0);
    let none = || Error::not_found(UNWRITTEN);
    let region = region.ok_or_else(none)?;
    if !view.is_covered()? {
        return Err(Error::not_found("some labels between others were not written"));
    }
    if !labels.are_in_order(&view.seams()?)? {
        return Err(Error::not_found(
            "some labels were written over others and are not in order with these",
        ));
    }
    // What is before the first label of the range, and what is not behind its last one.
    let (before, within) = match label.order {
        DataOrder::Increasing => (Ordering::Less, Ordering::Greater),
        _ => (Ordering::Greater, Ordering::Less),
    };
    let start = match first {
        None => 0,
        Some(bound) => labels.count_while(|label| labels.compare(label, bound) == Some(before))?,
    };
    let end = match last {
        None => labels.cells.count(),
        // A NaN, behind all numbers, is in no range.
        Some(bound) => {
            labels.count_while(|label| labels.compare(label, bound).is_some_and(|order| order != within))?
        }
    };
    if start >= end {
        return Err(Error::not_found("there are no labels in it"));
    }
    let at = |index, bound: &Option<Vec<u8>>| bound.as_ref().map(|_| coordinate(&region[0].lo, index));
    Ok(DimRange {
        lo: at(start, first),
        hi: at(end - 1, last),
    })
}

/// Why there are no labels at a time.
const UNWRITTEN: &str = "no labels were written until then";

/// All labels. `NotFound` if they are not in the directory of the array.
fn whole(array: &Array, when: &When, label: &DimensionLabel) -> Result<Selection> {
    let outside = || Error::not_found("the labels are not in the directory of the array");
    // Labels have no labels, whatever their schema says.
    let array = array.label(label).ok_or_else(outside)?;
    Selection::with_labels(array, when.clone(), |_, _, _| Arc::new([]))
}

/// The field of the labels in `view`, of the array of `label`. `Corrupt` if that array is not as `schema`
/// says.
fn field(view: &View, schema: &Schema, label: &DimensionLabel) -> Result<usize> {
    let dimension = &schema.dimensions[label.dimension_index as usize];
    let fits = match view.schema().dimensions.as_slice() {
        [own] => view.is_dense() && (own.datatype, &own.domain) == (dimension.datatype, &dimension.domain),
        _ => false,
    };
    let mut fields = view.fields().iter();
    let field = fields.position(|field| {
        matches!(field.role, Role::Attribute(_))
            && field.name == label.attribute
            && (field.datatype, field.cell_val_num) == (label.datatype, label.cell_val_num)
    });
    field.filter(|_| fits).ok_or_else(|| {
        let path = view.array().path.display();
        Error::corrupt("the array does not have the labels that the schema says").in_file(path)
    })
}

/// A dimension label.
pub(crate) struct AxisLabel {
    /// As the schema has it.
    pub(crate) label: DimensionLabel,
    /// All labels in the view's time range.
    whole: Result<Selection>,
}

impl AxisLabel {
    /// The labels of an array. Reads only file names and schemas.
    pub(super) fn all(array: &Array, when: &When, schema: &Schema) -> Arc<[AxisLabel]> {
        let labels = schema.dimension_labels.iter();
        let labels = labels.map(|label| AxisLabel {
            label: label.clone(),
            whole: whole(array, when, label),
        });
        labels.collect()
    }

    /// A view of all labels.
    fn view(&self) -> Result<View> {
        self.whole.clone().map(View::of)
    }

    /// What is seen of the array of the labels; None if that is unknown.
    pub(super) fn selection(&self) -> Option<&Selection> {
        self.whole.as_ref().ok()
    }
}

impl Hash for AxisLabel {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let state = self.whole.as_ref().map(Selection::state);
        state.map_err(|error| error.to_string()).hash(hasher);
    }
}

/// The labels along an axis of a dense view.
pub(crate) struct Along {
    /// The array of the labels, in the range of the axis.
    pub(crate) view: View,
    /// The index of the labels among its fields.
    pub(crate) field: usize,
}

impl Along {
    /// The field of the labels.
    pub(crate) fn shown(&self) -> &Field {
        &self.view.fields()[self.field]
    }

    /// The labels, one per coordinate.
    pub(crate) fn open(&self) -> Result<Arc<dyn Cells>> {
        self.view.open(self.field)
    }
}

impl View {
    /// The dimension labels of a dense view, in the schema's order; none of a sparse one.
    pub(crate) fn labels(&self) -> &[AxisLabel] {
        if self.is_dense() { &self.of.labels } else { &[] }
    }

    /// Label `index` along its axis, or the reason why the view does not show it. An error if that is
    /// unknown. Reads metadata of fragments.
    pub(crate) fn along(&self, index: usize) -> Result<std::result::Result<Along, String>> {
        match self.find_along(index) {
            Ok(along) => Ok(Ok(along)),
            Err(error) => match error.kind() {
                _ if error.is_transient() => Err(error),
                ErrorKind::Internal => Err(error),
                ErrorKind::NotFound => Ok(Err(error.message().to_owned())),
                _ => Ok(Err(error.to_string())),
            },
        }
    }

    /// The indexes of the labels that the view shows. Reads metadata of fragments, if there are labels.
    pub(crate) fn shown_labels(&self) -> Result<Vec<usize>> {
        if let Some(all) = self.all_labels.get() {
            return Ok(all.clone());
        }
        let all = 0..self.labels().len();
        let shown = all.map(|index| Ok(self.along(index)?.is_ok().then_some(index)));
        let shown: Vec<usize> = shown.filter_map(Result::transpose).collect::<Result<_>>()?;
        if shown.len() == self.labels().len() {
            let _ = self.all_labels.set(shown.clone());
        }
        Ok(shown)
    }

    /// The state of a file that shows this view with these of its labels. A label that is damaged, and so
    /// left out, may be whole again while the [state](View::state) of the view, which names it, stays the
    /// same.
    pub(crate) fn state_with(&self, shown: &[usize]) -> u64 {
        match shown.len() == self.labels().len() {
            true => self.state(),
            false => hash(&(self.state(), shown)),
        }
    }

    fn find_along(&self, index: usize) -> Result<Along> {
        let own = &self.of.labels[index];
        let (label, whole) = (&own.label, own.view()?);
        let field = field(&whole, &self.of.schema, label)?;
        if whole.shape_at_most()?.contains(&0) {
            return Err(Error::not_found(UNWRITTEN));
        }
        if let Some(reason) = whole.unreadable(field)? {
            return Err(Error::not_found(reason));
        }
        let empty = || Error::not_found("there are no cells");
        let region = self.region()?.ok_or_else(empty)?;
        let axis = &region[label.dimension_index as usize];
        let subarray = Some(vec![DimRange {
            lo: Some(axis.lo.clone()),
            hi: Some(axis.hi.clone()),
        }]);
        let view = View::of(whole.of.part(subarray, None));
        Ok(Along { view, field })
    }
}

/// The labels of a dimension.
struct Labels {
    cells: Arc<dyn Cells>,
    label: DimensionLabel,
}

impl Labels {
    /// The labels in `view`, of the array of `label`. `Corrupt` if that array is not as the schema says.
    fn new(view: &View, schema: &Schema, label: &DimensionLabel) -> Result<Labels> {
        Ok(Labels {
            cells: view.open(field(view, schema, label)?)?,
            label: label.clone(),
        })
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        compare(self.label.datatype, self.label.cell_val_num, a, b)
    }

    /// Label number `index`.
    fn get(&self, index: u64) -> Result<Vec<u8>> {
        match self.label.cell_val_num {
            CellValNum::Var => Ok(self.cells.var_values(index..index + 1)?.1),
            CellValNum::Fixed(_) => Ok(self.cells.values(index..index + 1)?.to_vec()),
        }
    }

    /// Whether the labels at each of `seams` are in order with those before them. Writers see to the order of
    /// labels that are written together.
    fn are_in_order(&self, seams: &[u64]) -> Result<bool> {
        let wrong = match self.label.order {
            DataOrder::Increasing => Ordering::Greater,
            _ => Ordering::Less,
        };
        for seam in seams {
            let (before, label) = (self.get(seam - 1)?, self.get(*seam)?);
            // A NaN is behind all numbers.
            let after_number = || self.compare(&before, &before).is_some();
            let in_order = match self.compare(&before, &label) {
                Some(order) => order != wrong,
                None => after_number(),
            };
            if !in_order {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How many labels there are until the first that is not `taken`, by a binary search.
    fn count_while(&self, taken: impl Fn(&[u8]) -> bool) -> Result<u64> {
        let (mut low, mut high) = (0, self.cells.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match taken(&self.get(middle)?) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }
}
