//! A dense view as a grid: the model that `array.nc`, `array.zarr/` and `raster/` share.
//!
//! A [`Grid`] has axes with coordinates, and a variable for each attribute of numbers or of fixed-size text
//! of one byte per character. A nullable attribute has a second variable for its validity. [`Variable::open`]
//! gives values in the types that those formats share:
//!
//! - BOOL is 0 or 1, whatever byte is stored.
//! - Dates and times are INT64 with the `units` and the `calendar` of the CF conventions. CF has no years and
//!   months of a fixed length, so YEAR, MONTH and WEEK become days; a date whose days do not fit is
//!   not-a-time. PS, FS, AS and TIME_* have no CF unit and stay plain integers, as does a dimension of YEAR,
//!   MONTH or WEEK whose days do not fit.
//! - A null has the attribute's fill value, or not-a-time if it is a date.
//! - An enumerated attribute holds the index; text labels are listed in `flag_values` and `flag_meanings`.
//!
//! Dimension labels of numbers and dates are further coordinates along their axis: the other variables name
//! them in `coordinates`, as the CF conventions say.
//!
//! Other fields are left out: var-sized ones, wide text, blobs, and those that cannot be read in the view.

mod attributes;
mod ground;
mod naming;
#[cfg(test)]
mod tests;
mod values;

pub use naming::Naming;

use super::chunks::{Chunks, Extent, extents};
use super::encoded_names;
use super::metadata::Metadata;
use super::raster::Placed;
use crate::bytes::Keep;
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::range::Range as Bounds;
use crate::format::scalar::int64;
use crate::format::schema::DimensionLabel;
use crate::fragment::cells::Cells;
use crate::names;
use crate::query::labels::AxisLabel;
use crate::query::table::{NOT_A_TIME, Unit};
use crate::query::{Field, Role, View};
use crate::runtime::cache::{CacheKey, Entry};
use attributes::{describe, flags, is_packed, joined, units};
pub(super) use attributes::{of_pairs, too_long_for_hdf5};
pub(super) use ground::{Ground, place, refer};
pub(super) use naming::made_up;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
pub(super) use values::Centres;
use values::{Computed, ComputedCells, GridCells, convert, null};

/// The value of an attribute of a grid or of a variable.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// One or more numbers of a type, little-endian.
    Numbers(Datatype, Vec<u8>),
}

impl Value {
    /// Bytes of the text or of the numbers.
    pub(super) fn len(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Numbers(_, bytes) => bytes.len(),
        }
    }
}

/// Attributes by name.
pub type Attributes = Vec<(String, Value)>;

/// Estimated bytes of attributes in memory.
fn attributes_memory(attributes: &Attributes) -> usize {
    const ATTRIBUTE_MEMORY: usize = 96;
    let sizes = attributes.iter();
    sizes
        .map(|(name, value)| ATTRIBUTE_MEMORY + name.len() + value.len())
        .sum()
}

/// The room that is left for the attributes of all variables: labels of an enumeration are stored once, and
/// told of each attribute that has it.
pub(super) struct Room(usize);

impl Room {
    /// The most bytes of memory.
    const MOST: usize = 64 << 20;

    pub(super) fn new() -> Room {
        Room(Room::MOST)
    }

    /// Takes what the attributes of a variable need; `LimitExceeded` if that is more than there is.
    pub(super) fn take(&mut self, attributes: &Attributes) -> Result<()> {
        let left = self.0.checked_sub(attributes_memory(attributes));
        self.0 = left.ok_or_else(|| {
            Error::limit(format!(
                "the attributes of variables take more than the {} bytes of memory allowed",
                Room::MOST
            ))
        })?;
        Ok(())
    }
}

/// What a variable holds for each cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableKind {
    /// The coordinates along an axis.
    Axis(usize),
    /// The values of an attribute.
    Values,
    /// The validity of an attribute's cells: UINT8, 0 = null.
    Validity,
    /// The labels of the coordinates along an axis.
    Label(usize),
    /// A scalar whose attributes tell a coordinate reference system.
    Reference,
}

/// A variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The name, unique among variables and inner axes.
    pub name: String,
    /// What it holds for each cell.
    pub kind: VariableKind,
    /// Type of a value: an integer, a float, BOOL or CHAR.
    pub datatype: Datatype,
    /// Name and length of the axis within a cell of several values. Text always has one, even text of one
    /// character.
    pub inner: Option<(String, u64)>,
    /// The cell that unwritten cells hold, and null ones unless `fill_value` is another. Empty for
    /// coordinates.
    pub fill: Vec<u8>,
    /// The value that stands for missing values, if one does: of `fill`, see [`fill_value`], or of the
    /// metadata.
    pub fill_value: Option<Vec<u8>>,
    /// Attributes by the CF conventions, without `_FillValue`.
    pub attributes: Attributes,
    /// Its dimensions in the order of its axes, as indexes of [`Grid::dimensions`].
    pub dimensions: Vec<usize>,
    /// How its values are divided.
    pub(super) chunks: Chunks,
    /// Index of the view that has its values among those that the grid is made of.
    pub view: usize,
    /// Index of the field in the view, or of the label among the view's.
    field: usize,
    unit: Option<Unit>,
    nullable: bool,
    /// Its values, if no field has them.
    computed: Option<Computed>,
}

impl Variable {
    /// Bytes of a cell.
    pub fn cell_size(&self) -> u64 {
        let number = self.inner.as_ref().map_or(1, |(_, number)| *number);
        number * self.datatype.size() as u64
    }

    /// What null cells hold, so that readers take them for missing: a cell, or a value that is repeated.
    fn null(&self) -> &[u8] {
        self.fill_value.as_ref().unwrap_or(&self.fill)
    }
}

/// Variables over common dimensions: of one dense view, or of several.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Name and length of each dimension: those of cells, then those within cells.
    pub dimensions: Vec<(String, u64)>,
    /// Of a view: the coordinates of each axis, in order and named as the axes are; then the labels of the
    /// axes; then the attributes, each followed by its validity; then what tells where they are.
    pub variables: Vec<Variable>,
    /// The metadata of the array or group: text, and numbers with their type. Leaves out keys of programs,
    /// and values of more than 65,535 bytes.
    pub attributes: Attributes,
    /// The index of each variable, by name.
    index: HashMap<String, usize>,
}

/// Why a view is not a grid; None if it is. Reads fragments only until one shows that there are cells.
pub fn absent(view: &View) -> Result<Option<String>> {
    if !view.is_dense() {
        return Ok(Some("the array is sparse".to_owned()));
    }
    Ok(view
        .shape_at_most()?
        .contains(&0)
        .then(|| "there are no cells".to_owned()))
}

/// The value that stands for missing values of an attribute: one value of its fill. Floats always have one,
/// and so do dates (not-a-time). Other numbers have one if cells may be null, or if the type has more than 8
/// bits and the fragments together leave a hole: `covered` is [`View::is_covered`]. BOOL and text have none,
/// because all their values mean something, nor does a fill of several different values.
pub fn fill_value(field: &Field, covered: bool) -> Option<Vec<u8>> {
    let missing = match field.datatype.kind() {
        Kind::Datetime => return Some(NOT_A_TIME.to_le_bytes().to_vec()),
        Kind::Float => true,
        Kind::Signed | Kind::Unsigned | Kind::Time => field.nullable || !covered && field.datatype.size() > 1,
        Kind::Bool | Kind::Text | Kind::Bytes => false,
    };
    one_value(field).filter(|_| missing)
}

/// The value of an attribute's fill; None if there are several.
fn one_value(field: &Field) -> Option<Vec<u8>> {
    let mut values = field.fill_value.chunks_exact(field.datatype.size());
    let first = values.next()?;
    values.all(|value| value == first).then(|| first.to_vec())
}

/// The value of the fill that somebody gave an attribute of numbers; None if it has the one that TileDB gives
/// its type. GDAL keeps there what stands for pixels without data.
pub(super) fn given_fill(field: &Field) -> Option<Vec<u8>> {
    let is_number = matches!(field.datatype.kind(), Kind::Signed | Kind::Unsigned | Kind::Float);
    one_value(field).filter(|_| is_number && field.fill_value != fill_of_type(field))
}

/// Whether the fill that TileDB gives a type by itself means missing values, given the metadata of the
/// attribute: programs that pack take the least or the greatest number for that. All 256 numbers of a byte
/// are values. With the other sign, which `_Unsigned` tells, the number is none of the two.
fn tells_missing(field: &Field, metadata: &Attributes) -> bool {
    let other_sign = match field.datatype.kind() {
        Kind::Signed => "true",
        Kind::Unsigned => "false",
        _ => return false,
    };
    let has_other_sign = metadata.iter().any(|(key, value)| {
        key == "_Unsigned" && matches!(value, Value::Text(text) if text.eq_ignore_ascii_case(other_sign))
    });
    is_packed(metadata) && !has_other_sign && field.datatype.size() > 1
}

/// The value that stands for missing values of an attribute, given the metadata of it: its `_FillValue`, or
/// that of [`fill_value`]. Packed values become floats in any case, so that to tell what is missing makes
/// nothing worse.
pub(super) fn missing(field: &Field, covered: bool, metadata: &Attributes) -> Option<Vec<u8>> {
    let told = metadata.iter().find_map(|(key, value)| match value {
        Value::Numbers(_, bytes) if key == "_FillValue" => Some(bytes.clone()),
        _ => None,
    });
    let has_given = is_packed(metadata) && field.fill_value != fill_of_type(field);
    told.or_else(|| match has_given || tells_missing(field, metadata) {
        true => one_value(field),
        false => fill_value(field, covered),
    })
}

/// The fill that an attribute has unless it is given another.
fn fill_of_type(field: &Field) -> Vec<u8> {
    let fill = field.datatype.default_fill();
    fill.repeat(field.fill_value.len() / fill.len())
}

impl Entry for Grid {
    fn memory(&self) -> u64 {
        const VARIABLE_MEMORY: usize = 256;
        let variables = self.variables.iter().map(|variable| {
            let axes = (variable.dimensions.len() + 2 * variable.chunks.shape.len()) * size_of::<u64>();
            VARIABLE_MEMORY
                + 3 * variable.name.len()
                + variable.fill.len()
                + axes
                + attributes_memory(&variable.attributes)
        });
        (variables.sum::<usize>() + attributes_memory(&self.attributes)) as u64
    }
}

impl Grid {
    /// The grid of a view for which [`absent`] returns None. Reads only metadata; cached for the view's
    /// state.
    pub fn of(view: &View, naming: Naming) -> Result<Arc<Grid>> {
        let array = view.array();
        let shown = view.shown_labels()?;
        let state = view.state_with(&shown);
        let object = array.engine.number(&("grid", &array.path, state, naming));
        array
            .engine
            .cache
            .derive(CacheKey::of(object), 4096, Keep::Staying, || {
                Grid::make(view, &shown, naming)
            })
    }

    /// The grid with these of the view's labels, as far as they fit into one.
    fn make(view: &View, shown: &[usize], naming: Naming) -> Result<Grid> {
        let encoded = encoded_names(view).into_iter().map(|name| naming.name(name));
        let names = names::unique(encoded.collect(), names::MAX);
        let mut taken: HashSet<String> = names.iter().cloned().collect();
        let (covered, region) = (view.is_covered()?, view.region()?);
        let labels = labels(view, shown, naming, &mut taken)?;
        let metadata = Metadata::of(view)?;
        let placed = Placed::of(&metadata, view)?;
        let auxiliary: Vec<&str> = labels.iter().map(|label| &*label.name).collect();
        // Readers split the list at blanks.
        let auxiliary = auxiliary
            .into_iter()
            .filter(|name| !name.contains(char::is_whitespace));
        let auxiliary = auxiliary.collect::<Vec<_>>().join(" ");
        let (mut variables, mut room) = (Vec::new(), Room::new());
        for (field, (shown, name)) in view.fields().iter().zip(names).enumerate() {
            let Some((datatype, number)) = exported(shown) else {
                continue;
            };
            if unfit(shown, naming).is_some() || view.unreadable(field)?.is_some() {
                continue;
            }
            if let Role::Dimension(i) = shown.role {
                let mut axis = Variable::new(name, VariableKind::Axis(i), field, datatype);
                axis.unit = Unit::of(shown.datatype);
                match region.as_ref().is_some_and(|region| axis.fits(&region[i])) {
                    true => axis.attributes = units(shown.datatype),
                    false => axis.unit = None,
                }
                describe(&mut axis, &metadata.fields[field], naming);
                room.take(&axis.attributes)?;
                variables.push(axis);
                continue;
            }
            let described = metadata.fields[field].clone();
            let described = ground::with_bands(described, placed.as_ref(), view, field);
            let mut variable = Variable::of_attribute(view, field, name, datatype)?;
            let suffix = inner_suffix(datatype, number);
            variable.inner = suffix.map(|suffix| (made_up(&variable.name, suffix, &mut taken), number));
            variable.fill_value = missing(shown, covered, &metadata.fields[field]);
            if placed.is_some() {
                variable.fill_value = given_fill(shown).or(variable.fill_value);
            }
            let variable = variable.described(shown, &described, naming, &mut taken);
            variable.iter().try_for_each(|one| room.take(&one.attributes))?;
            variables.extend(variable);
        }
        let ground = Ground::of(&metadata, placed.as_ref());
        let coordinates = ground.as_ref().and_then(Ground::coordinates);
        for (axis, centres, attributes) in coordinates.into_iter().flatten() {
            place(&mut variables[axis], centres, attributes);
        }
        refer(&mut variables, &[ground], &mut taken);
        if !auxiliary.is_empty() {
            let shown = variables.iter().chain(&labels);
            let shown: HashSet<String> = shown.map(|variable| variable.name.clone()).collect();
            for variable in variables.iter_mut().filter(|variable| variable.axis().is_none()) {
                let mut before = variable.attributes.iter_mut();
                match before.find(|(name, _)| name == "coordinates") {
                    Some((_, Value::Text(list))) => {
                        // Readers take no name of a list that has one which they do not find.
                        let found = list.split_whitespace().filter(|name| shown.contains(*name));
                        *list = joined(&found.collect::<Vec<_>>().join(" "), &auxiliary);
                    }
                    _ => {
                        let list = vec![("coordinates".to_owned(), Value::Text(auxiliary.clone()))];
                        room.take(&list)?;
                        variable.attributes.extend(list);
                    }
                }
            }
        }
        let axes = view.schema().dimensions.len();
        variables.splice(axes..axes, labels);
        for variable in &mut variables {
            variable.dimensions = match (variable.axis(), variable.kind) {
                (Some(axis), _) => vec![axis],
                (None, VariableKind::Reference) => Vec::new(),
                (None, _) => (0..axes).collect(),
            };
        }
        let names = variables.iter().map(|axis| axis.name.clone());
        let dimensions = names.zip(view.shape()?).collect();
        let extents = extents(view.schema())?;
        let attributes = of_pairs(&metadata.array, naming);
        Ok(Grid::new(dimensions, variables, &[extents], attributes))
    }

    /// A grid of variables over these dimensions of cells, which they name; dimensions within cells are
    /// added. `extents` are those of the tiles of each view.
    pub(super) fn new(
        mut dimensions: Vec<(String, u64)>,
        mut variables: Vec<Variable>,
        extents: &[Vec<Extent>],
        attributes: Attributes,
    ) -> Grid {
        for variable in &mut variables {
            let axes = variable.dimensions.iter();
            let shape: Vec<u64> = axes.map(|dimension| dimensions[*dimension].1).collect();
            let size = variable.datatype.size() as u64;
            let whole = variable.axis().map(|_| 0);
            let inner = variable.inner.as_ref().map(|(_, number)| *number);
            variable.chunks = Chunks::of(whole, size, inner, &shape, &extents[variable.view]);
            if let Some(inner) = &variable.inner {
                variable.dimensions.push(dimensions.len());
                dimensions.push(inner.clone());
            }
        }
        let names = variables.iter().enumerate();
        Grid {
            index: names.map(|(i, variable)| (variable.name.clone(), i)).collect(),
            dimensions,
            variables,
            attributes,
        }
    }

    /// The indexes of the labels, among the view's, that it shows.
    pub(super) fn labels(&self) -> Vec<usize> {
        let labels = self.variables.iter();
        let labels = labels.filter(|variable| matches!(variable.kind, VariableKind::Label(_)));
        labels.map(|variable| variable.field).collect()
    }

    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.index.get(name).map(|i| &self.variables[*i])
    }
}

impl Variable {
    /// A variable of one value per cell without attributes.
    pub(super) fn new(name: String, kind: VariableKind, field: usize, datatype: Datatype) -> Variable {
        Variable {
            name,
            kind,
            datatype,
            inner: None,
            fill: Vec::new(),
            fill_value: None,
            attributes: Attributes::new(),
            dimensions: Vec::new(),
            chunks: Chunks::default(),
            view: 0,
            field,
            unit: None,
            nullable: false,
            computed: None,
        }
    }

    /// The variable of attribute `field` of a view, of values of this type, without [`Variable::inner`] and
    /// what the metadata says of it.
    fn of_attribute(view: &View, field: usize, name: String, datatype: Datatype) -> Result<Variable> {
        let shown = &view.fields()[field];
        let mut variable = Variable::new(name, VariableKind::Values, field, datatype);
        variable.unit = Unit::of(shown.datatype);
        variable.attributes = units(shown.datatype);
        variable.attributes.extend(flags(view, shown, datatype)?);
        variable.fill = shown_fill(shown, variable.unit, datatype);
        Ok(variable)
    }

    /// The variable with the attributes that the metadata has for it; then that of its validity if the field
    /// is nullable.
    fn described(
        mut self,
        shown: &Field,
        metadata: &Attributes,
        naming: Naming,
        taken: &mut HashSet<String>,
    ) -> Vec<Variable> {
        if !shown.nullable {
            describe(&mut self, metadata, naming);
            return vec![self];
        }
        self.nullable = true;
        let validity = made_up(&self.name, "__validity", taken);
        let ancillary = Value::Text(validity.clone());
        self.attributes
            .push(("ancillary_variables".to_owned(), ancillary));
        describe(&mut self, metadata, naming);
        let mut validity = Variable::new(validity, VariableKind::Validity, self.field, Datatype::Uint8);
        validity.fill = vec![u8::from(shown.fill_value_valid)];
        vec![self, validity]
    }

    /// The axis along which it has values; None if it has one for each cell of the grid, or is a scalar.
    pub fn axis(&self) -> Option<usize> {
        match self.kind {
            VariableKind::Axis(axis) | VariableKind::Label(axis) => Some(axis),
            VariableKind::Values | VariableKind::Validity | VariableKind::Reference => None,
        }
    }

    /// Whether all coordinates within `bounds` fit if they become days. True if they do not become days.
    fn fits(&self, bounds: &Bounds) -> bool {
        let fits = |unit: Unit, bytes| int64(bytes).and_then(|count| unit.days(count)).is_some();
        self.unit
            .is_none_or(|unit| fits(unit, &bounds.lo) && fits(unit, &bounds.hi))
    }

    /// The values in `view`, which the grid must belong to, as the formats have them: the
    /// [`Content::Data`](crate::fragment::column::Content::Data) of the result.
    pub fn open(&self, view: &View) -> Result<Arc<dyn Cells>> {
        if let Some(computed) = self.computed {
            let count = match self.axis() {
                Some(_) => self.chunks.shape[0],
                None => 1,
            };
            return Ok(Arc::new(ComputedCells { computed, count }));
        }
        let cells = match self.kind {
            VariableKind::Label(_) => view.along(self.field)?.map_err(Error::not_found)?.open()?,
            _ => view.open(self.field)?,
        };
        Ok(self.clone().over(cells))
    }

    /// [`Variable::open`] within a box, for a variable that is no axis: see [`View::open_box`].
    pub fn open_box(&self, view: &View, first: &[u64], shape: &[u64]) -> Result<Arc<dyn Cells>> {
        Ok(self.clone().over(view.open_box(self.field, first, shape)?))
    }

    fn over(self, cells: Arc<dyn Cells>) -> Arc<dyn Cells> {
        let as_stored = self.kind != VariableKind::Validity
            && self.unit.is_none()
            && !self.nullable
            && self.datatype != Datatype::Bool;
        match as_stored {
            true => cells,
            false => Arc::new(GridCells {
                variable: self,
                cells,
            }),
        }
    }
}

/// The variables of attribute `field` of a view in a data set, which neither [`unfit`] nor
/// [`View::unreadable`] must exclude: its values, and its validity if it is nullable. Text of one character
/// has no axis within cells. A fill that is not the type's own always tells what is missing; one that is does
/// so where cells may be missing, and in packed integers of more than 8 bits.
pub(super) fn of_dataset(
    view: &View,
    field: usize,
    name: String,
    naming: Naming,
    taken: &mut HashSet<String>,
) -> Result<Vec<Variable>> {
    let shown = &view.fields()[field];
    let (datatype, number) = exported(shown).ok_or_else(|| Error::internal("the field does not fit"))?;
    let mut variable = Variable::of_attribute(view, field, name, datatype)?;
    let suffix = inner_suffix(datatype, number).filter(|_| number > 1);
    variable.inner = suffix.map(|suffix| (made_up(&variable.name, suffix, taken), number));
    let has_own = shown.fill_value == fill_of_type(shown);
    let covered = view.is_covered()?;
    let metadata = Metadata::of(view)?;
    variable.fill_value = match shown.datatype.kind() {
        Kind::Datetime | Kind::Bool | Kind::Bytes => fill_value(shown, covered),
        Kind::Float if has_own && covered && !shown.nullable => None,
        _ if has_own && !tells_missing(shown, &metadata.fields[field]) => fill_value(shown, covered),
        _ => one_value(shown),
    };
    let placed = Placed::of(&metadata, view)?;
    let described = ground::with_bands(metadata.fields[field].clone(), placed.as_ref(), view, field);
    Ok(variable.described(shown, &described, naming, taken))
}

/// The values of attribute `field` as in a grid, except that dates stay as stored. Null cells hold the value
/// `null_value`, or if there is none the attribute's fill. `NotFound` if grids leave the attribute out.
pub fn stored(view: &View, field: usize, null_value: Option<Vec<u8>>) -> Result<Arc<dyn Cells>> {
    let missing = || Error::not_found(format!("field {field} is not an attribute that a grid can have"));
    let shown = view.fields().get(field).ok_or_else(missing)?;
    let (Role::Attribute(_), Some((datatype, number))) = (shown.role, exported(shown)) else {
        return Err(missing());
    };
    let mut variable = Variable::new(String::new(), VariableKind::Values, field, datatype);
    variable.inner = (number > 1).then(|| (String::new(), number));
    variable.nullable = shown.nullable;
    variable.fill = shown_fill(shown, None, datatype);
    variable.fill_value = null_value;
    variable.open(view)
}

/// The fill of an attribute, converted as its values are.
fn shown_fill(shown: &Field, unit: Option<Unit>, datatype: Datatype) -> Vec<u8> {
    let mut fill = shown.fill_value.clone();
    convert(unit, datatype, &mut fill);
    null(shown, fill)
}

/// Type and number of the values in a cell of a grid. None if grids leave the field out.
pub(super) fn exported(field: &Field) -> Option<(Datatype, u64)> {
    let stored = match (field.datatype, &field.enumeration) {
        // Indexes of labels, of which there may be more than two.
        (Datatype::Bool, Some(_)) => Datatype::Uint8,
        (stored, _) => stored,
    };
    exported_as(stored, field.cell_val_num)
}

fn exported_as(stored: Datatype, cell_val_num: CellValNum) -> Option<(Datatype, u64)> {
    let CellValNum::Fixed(number) = cell_val_num else {
        return None;
    };
    let datatype = match stored.kind() {
        Kind::Signed | Kind::Unsigned | Kind::Float | Kind::Bool => stored,
        Kind::Datetime | Kind::Time => Datatype::Int64,
        Kind::Text if stored.size() == 1 && stored != Datatype::GeomWkt => Datatype::Char,
        Kind::Text | Kind::Bytes => return None,
    };
    Some((datatype, u64::from(number)))
}

/// Why a grid leaves the field out whatever its cells are; None if it does not.
pub(super) fn unfit(field: &Field, naming: Naming) -> Option<&'static str> {
    if field.cell_val_num.is_var() {
        return Some("var-sized cells do not fit into a grid");
    }
    match exported(field) {
        Some((Datatype::Char, _)) if naming == Naming::Zarr => Some("text does not fit into the format"),
        Some(_) => None,
        None if field.datatype.kind() == Kind::Text => Some("text of this type does not fit into a grid"),
        None => Some("bytes without a type do not fit into a grid"),
    }
}

/// Why a grid leaves the label out whatever its cells are; None if it does not.
fn unfit_label(label: &DimensionLabel) -> Option<&'static str> {
    let fits = label_type(label).is_some();
    (!fits).then_some("labels other than numbers and dates do not fit into a grid")
}

/// The fields that a grid leaves out, as indexes, and why; then the labels, counted on.
pub(super) fn left_out(view: &View, naming: Naming) -> Result<Vec<(usize, String)>> {
    let mut out = Vec::new();
    for (index, field) in view.fields().iter().enumerate() {
        let reason = match unfit(field, naming) {
            Some(reason) => Some(reason.to_owned()),
            None => view.unreadable(index)?,
        };
        out.extend(reason.map(|reason| (index, reason)));
    }
    for (index, AxisLabel { label, .. }) in view.labels().iter().enumerate() {
        let reason = match unfit_label(label) {
            Some(reason) => Some(reason.to_owned()),
            None => view.along(index)?.err(),
        };
        out.extend(reason.map(|reason| (view.fields().len() + index, reason)));
    }
    Ok(out)
}

/// The labels of the axes that a grid shows, of those that the view shows.
fn labels(
    view: &View,
    shown: &[usize],
    naming: Naming,
    taken: &mut HashSet<String>,
) -> Result<Vec<Variable>> {
    let mut out = Vec::new();
    for &index in shown {
        let label = &view.labels()[index].label;
        let Some(datatype) = label_type(label) else {
            continue;
        };
        let along = view.along(index)?.map_err(Error::not_found)?;
        let shown = along.shown();
        let name = made_up(&naming.name(names::encode(&label.name)), "", taken);
        let kind = VariableKind::Label(label.dimension_index as usize);
        let mut variable = Variable::new(name, kind, index, datatype);
        variable.unit = Unit::of(label.datatype);
        variable.attributes = units(label.datatype);
        variable.fill = shown_fill(shown, variable.unit, datatype);
        variable.fill_value = fill_value(shown, along.view.is_covered()?);
        variable.nullable = shown.nullable;
        out.push(variable);
    }
    Ok(out)
}

/// The type of a label in a grid; None if grids leave it out, as they do text.
pub(super) fn label_type(label: &DimensionLabel) -> Option<Datatype> {
    match exported_as(label.datatype, label.cell_val_num) {
        Some((datatype, 1)) if datatype != Datatype::Char => Some(datatype),
        _ => None,
    }
}

/// The suffix that names the axis within cells of `number` values; None if there is no such axis.
pub(super) fn inner_suffix(datatype: Datatype, number: u64) -> Option<&'static str> {
    match datatype {
        Datatype::Char => Some("_strlen"),
        _ if number > 1 => Some("_cell"),
        _ => None,
    }
}
