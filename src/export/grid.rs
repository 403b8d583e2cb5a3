//! A dense view as a grid: what `array.nc`, `array.zarr/` and rasters have in common.
//!
//! A [`Grid`] has axes with coordinates, a variable for each attribute of numbers or of fixed-size text of one byte a character, and beside that of a
//! nullable one a variable of its validity. [`Grid::open`] gives their values in the types that those formats share:
//!
//! - BOOL is 0 or 1, whatever byte is stored.
//! - Dates and times are INT64 with the `units` and the `calendar` of the CF conventions. Those know no years and months of one length, so YEAR, MONTH
//!   and WEEK become days; a date whose days do not fit is not-a-time. PS, FS, AS, which CF lacks, and TIME_* are the integers alone, as is a dimension
//!   of YEAR, MONTH or WEEK whose days do not fit.
//! - A null has the attribute's fill value, not-a-time where that is a date.
//! - An enumerated attribute holds the index; text labels are listed in `flag_values` and `flag_meanings`.
//!
//! Other fields are left out: var-sized ones, wide text, blobs.

#[cfg(test)]
mod tests;

use super::field_names;
use crate::array::body::GenericFile;
use crate::array::cache::{Keep, Key};
use crate::array::cells::Cells;
use crate::array::column::Content;
use crate::array::piece::Piece;
use crate::calendar::days_from_date;
use crate::error::{Error, ErrorKind, Result};
use crate::format::body::Body;
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::metadata::each_record;
use crate::format::range::Range as Bounds;
use crate::format::schema::Attribute;
use crate::names;
use crate::view::{Role, View, ViewField};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use unicode_normalization::UnicodeNormalization;

/// The value of an attribute of a grid or of a variable.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// One or more numbers of a type, little-endian.
    Numbers(Datatype, Vec<u8>),
}

impl Value {
    /// Bytes of it.
    fn len(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Numbers(_, bytes) => bytes.len(),
        }
    }
}

/// Attributes by name.
pub type Attributes = Vec<(String, Value)>;

/// The names that a grid is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Naming {
    /// Those of the directories of columns, but for `zarr.json`, which becomes `%7Aarr.json`. Text is left out.
    Zarr,
    /// Those of the directories of columns, as far as netCDF knows them: with `_` in front of what may not be first, in Unicode's composed form
    /// (NFC), control characters and a blank at the end percent-encoded.
    NetCdf,
}

/// What a variable has for each cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The coordinates along an axis.
    Axis(usize),
    /// The values of an attribute.
    Values,
    /// The validity of an attribute's cells: UINT8, 0 = null.
    Validity,
}

/// A variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name, unlike that of any other variable or inner axis.
    pub name: String,
    /// What it has.
    pub of: Of,
    /// Type of a value: an integer, a float, BOOL or CHAR.
    pub datatype: Datatype,
    /// The axis within a cell of several values: its name and length. Text has one also where it is of one character.
    pub inner: Option<(String, u64)>,
    /// What it has where nothing was written, or null: one cell. Empty for coordinates.
    pub fill: Vec<u8>,
    /// One value of that, where it stands for what is missing: what [`fill_value`] says.
    pub fill_value: Option<Vec<u8>>,
    /// What the CF conventions have to say of it, but for `_FillValue`.
    pub attributes: Attributes,
    /// Which field of the view it is of.
    field: usize,
    /// Values a cell.
    number: u64,
    unit: Option<Unit>,
    nullable: bool,
}

impl Variable {
    /// Bytes of a cell.
    pub fn cell_size(&self) -> u64 {
        self.number.saturating_mul(self.datatype.size() as u64)
    }
}

/// A dense view as a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// The length of each axis, none 0.
    pub shape: Vec<u64>,
    /// The coordinates along each axis, in the order of the axes and named as they are; then the attributes, each with its validity behind it.
    pub variables: Vec<Variable>,
    /// The array's metadata: text, and numbers by their type. Keys that begin with `_` are left out, and values above [`MAX_METADATA`] bytes.
    pub attributes: Attributes,
}

/// The most bytes of a value among the attributes of a grid.
pub const MAX_METADATA: u64 = 65_535;

/// The most bytes that metadata may take in memory.
const MAX_PAIRS: usize = 32 << 20;

/// Units of time of no, or of another, number of days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Year,
    Month,
    Week,
}

impl Unit {
    pub(super) fn of(datatype: Datatype) -> Option<Unit> {
        match datatype {
            Datatype::DatetimeYear => Some(Unit::Year),
            Datatype::DatetimeMonth => Some(Unit::Month),
            Datatype::DatetimeWeek => Some(Unit::Week),
            _ => None,
        }
    }

    /// Days since the epoch; None for not-a-time and for what does not fit.
    pub(super) fn days(self, count: i64) -> Option<i64> {
        let first_of = |year: i64, month: i64| {
            let days = days_from_date(1970i64.checked_add(year)?, month as u32, 1)?;
            i64::try_from(days).ok()
        };
        match self {
            _ if count == NOT_A_TIME => None,
            Unit::Year => first_of(count, 1),
            Unit::Month => first_of(count.div_euclid(12), count.rem_euclid(12) + 1),
            Unit::Week => count.checked_mul(7),
        }
    }
}

/// What stands for no time at all.
const NOT_A_TIME: i64 = i64::MIN;

/// Why a view is no grid; None where it is one. Looks at fragments' metadata at the most.
pub fn absent(view: &View) -> Result<Option<String>> {
    if !view.is_dense() {
        return Ok(Some("the array is sparse".to_owned()));
    }
    Ok(view
        .shape()?
        .contains(&0)
        .then(|| "there are no cells".to_owned()))
}

/// What stands for missing values of an attribute, where that can mean something: one value of its fill. Of floats always, and of dates, for which it
/// is not-a-time; of others if there are nulls, or if cells may be unwritten (see [`View::written`]) and the type has more than 8 bits. Never of BOOL
/// and text, whose values would all have a second meaning, nor where a fill of several values has different ones.
pub fn fill_value(attribute: &Attribute, written: bool) -> Option<Vec<u8>> {
    let datatype = attribute.datatype;
    let size = datatype.size();
    let missing = match datatype.kind() {
        Kind::Datetime => return Some(NOT_A_TIME.to_le_bytes().to_vec()),
        Kind::Float => true,
        Kind::Signed | Kind::Unsigned | Kind::Time => attribute.nullable || !written && size > 1,
        Kind::Bool | Kind::Text | Kind::Bytes => false,
    };
    let mut values = attribute.fill_value.chunks_exact(size);
    let first = values.next().filter(|_| missing)?;
    values.all(|value| value == first).then(|| first.to_vec())
}

impl Grid {
    /// The grid of a view for which [`absent`] has no reason. Looks at metadata alone; remembered for the view's state.
    pub fn of(view: &View, naming: Naming) -> Result<Arc<Grid>> {
        let array = view.array();
        let object = array.engine.number(&("grid", &array.path, view.state(), naming));
        let key = Key {
            object,
            tile: u64::MAX,
            chunk: 0,
        };
        array.engine.cache.made(key, 4096, Keep::Staying, || {
            let grid = Grid::make(view, naming)?;
            let memory = grid.memory();
            Ok((grid, memory))
        })
    }

    /// Bytes that it takes in memory, about.
    fn memory(&self) -> u64 {
        const VARIABLE: usize = 256;
        const ATTRIBUTE: usize = 96;
        let attributes = |attributes: &Attributes| {
            let sizes = attributes.iter();
            sizes
                .map(|(name, value)| ATTRIBUTE + name.len() + value.len())
                .sum::<usize>()
        };
        let variables = self.variables.iter().map(|variable| {
            VARIABLE + 2 * variable.name.len() + variable.fill.len() + attributes(&variable.attributes)
        });
        variables
            .sum::<usize>()
            .saturating_add(attributes(&self.attributes)) as u64
    }

    fn make(view: &View, naming: Naming) -> Result<Grid> {
        let encoded = field_names(view).into_iter().map(|name| naming.name(name));
        let names = names::unique(encoded.collect(), names::MAX);
        let mut taken: HashSet<String> = names.iter().cloned().collect();
        let (written, region) = (view.written()?, view.region()?.unwrap_or_default());
        let mut variables = Vec::new();
        for (field, (shown, name)) in view.fields().iter().zip(names).enumerate() {
            let Some((datatype, number)) = exported(shown) else {
                continue;
            };
            if naming == Naming::Zarr && datatype == Datatype::Char {
                continue;
            }
            let attribute = match shown.role {
                Role::Dimension(i) => {
                    let mut axis = Variable::new(name, Of::Axis(i), field, datatype);
                    axis.unit = Unit::of(shown.datatype);
                    match region.get(i).is_some_and(|bounds| axis.fits(bounds)) {
                        true => axis.attributes = units(shown.datatype),
                        false => axis.unit = None,
                    }
                    variables.push(axis);
                    continue;
                }
                Role::Attribute(i) => view.schema().attributes.get(i),
            };
            let Some(attribute) = attribute else { continue };
            let mut variable = Variable::new(name, Of::Values, field, datatype);
            variable.number = number;
            variable.unit = Unit::of(shown.datatype);
            variable.attributes = units(shown.datatype);
            variable.attributes.extend(flags(view, attribute, datatype)?);
            let suffix = inner_suffix(datatype, number);
            variable.inner = suffix.map(|suffix| (made_up(&variable.name, suffix, &mut taken), number));
            let mut fill = attribute.fill_value.clone();
            convert(variable.unit, datatype, &mut fill);
            variable.fill = null(attribute, fill);
            variable.fill_value = fill_value(attribute, written.get(field).copied().unwrap_or(false));
            if !attribute.nullable {
                variables.push(variable);
                continue;
            }
            variable.nullable = true;
            let validity = made_up(&variable.name, "__validity", &mut taken);
            let ancillary = Value::Text(validity.clone());
            variable
                .attributes
                .push(("ancillary_variables".to_owned(), ancillary));
            let mut validity = Variable::new(validity, Of::Validity, field, Datatype::Uint8);
            validity.fill = vec![u8::from(attribute.fill_value_valid)];
            variables.extend([variable, validity]);
        }
        Ok(Grid {
            shape: view.shape()?,
            variables,
            attributes: metadata(view, naming)?,
        })
    }
}

impl Variable {
    /// A variable of one value a cell, and nothing said of it.
    pub(super) fn new(name: String, of: Of, field: usize, datatype: Datatype) -> Variable {
        Variable {
            name,
            of,
            datatype,
            inner: None,
            fill: Vec::new(),
            fill_value: None,
            attributes: Attributes::new(),
            field,
            number: 1,
            unit: None,
            nullable: false,
        }
    }

    /// Whether the coordinates within `bounds` are dates whose days fit, or none that become days at all.
    fn fits(&self, bounds: &Bounds) -> bool {
        let end = |bytes: &[u8]| Some(i64::from_le_bytes(bytes.try_into().ok()?));
        let fits = |unit: Unit, bytes| end(bytes).and_then(|count| unit.days(count)).is_some();
        self.unit
            .is_none_or(|unit| fits(unit, &bounds.lo) && fits(unit, &bounds.hi))
    }

    /// Its values in `view`, the one that its grid is of, as the formats have them: their [`Content::Data`].
    pub fn open(&self, view: &View) -> Result<Arc<dyn Cells>> {
        Ok(self.clone().over(view.open(self.field)?))
    }

    /// The same in a box, of a variable that is no axis: see [`View::open_box`].
    pub fn open_box(&self, view: &View, first: &[u64], shape: &[u64]) -> Result<Arc<dyn Cells>> {
        Ok(self.clone().over(view.open_box(self.field, first, shape)?))
    }

    fn over(self, cells: Arc<dyn Cells>) -> Arc<dyn Cells> {
        let as_stored = self.of != Of::Validity
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

/// The values of attribute `field` of a view as in a grid, but that dates are as they are stored. `NotFound` for what is not among the variables of a
/// grid.
pub fn stored(view: &View, field: usize) -> Result<Arc<dyn Cells>> {
    let missing = || Error::not_found(format!("field {field} is no attribute of a grid"));
    let shown = view.fields().get(field).ok_or_else(missing)?;
    let (Role::Attribute(index), Some((datatype, number))) = (shown.role, exported(shown)) else {
        return Err(missing());
    };
    let attribute = view.schema().attributes.get(index).ok_or_else(missing)?;
    let mut variable = Variable::new(String::new(), Of::Values, field, datatype);
    variable.number = number;
    variable.nullable = attribute.nullable;
    variable.fill = null(attribute, attribute.fill_value.clone());
    variable.open(view)
}

/// What stands for a null: `fill`, the fill value as a grid has it, or not-a-time.
fn null(attribute: &Attribute, fill: Vec<u8>) -> Vec<u8> {
    match attribute.datatype.kind() {
        Kind::Datetime if attribute.nullable => NOT_A_TIME.to_le_bytes().repeat(fill.len() / 8),
        _ => fill,
    }
}

/// The cells of a variable that are not as they are stored.
struct GridCells {
    variable: Variable,
    cells: Arc<dyn Cells>,
}

impl Cells for GridCells {
    fn count(&self) -> u64 {
        self.cells.count()
    }

    fn cell_size(&self) -> Option<u64> {
        Some(self.variable.cell_size())
    }

    fn len(&self, content: Content) -> Result<u64> {
        match (content, self.variable.of) {
            (Content::Data, Of::Validity) => self.cells.len(Content::Validity),
            (Content::Data, _) => self.cells.len(Content::Data),
            _ => Err(values_alone()),
        }
    }

    fn read<'s>(&self, content: Content, range: Range<u64>, scratch: &'s mut Vec<u8>) -> Result<Piece<'s>> {
        let variable = &self.variable;
        match (content, variable.of) {
            (Content::Data, Of::Validity) => return self.cells.read(Content::Validity, range, scratch),
            (Content::Data, _) => {}
            _ => return Err(values_alone()),
        }
        let len = self.cells.len(Content::Data)?;
        let range = range.start.min(len)..range.end.min(len);
        let size = variable.datatype.size() as u64;
        // Values are converted whole.
        let start = range.start - range.start % size;
        let whole = start..range.end.next_multiple_of(size).min(len);
        let mut values = Vec::new();
        values.extend_from_slice(&self.cells.read(Content::Data, whole.clone(), scratch)?);
        convert(variable.unit, variable.datatype, &mut values);
        if variable.nullable {
            self.fill_nulls(whole, &mut values)?;
        }
        let wanted = (range.start - start) as usize..;
        scratch.clear();
        scratch.extend_from_slice(values.get(wanted).unwrap_or_default());
        scratch.truncate(range.end.saturating_sub(range.start) as usize);
        Ok(Piece::Scratch(scratch))
    }
}

impl GridCells {
    /// Puts the fill value in place of null cells into `values`, which are the bytes `range` of all.
    fn fill_nulls(&self, range: Range<u64>, values: &mut [u8]) -> Result<()> {
        let fill = &self.variable.fill;
        let size = self.variable.cell_size().max(1);
        let cells = range.start / size..range.end.div_ceil(size);
        let mut scratch = Vec::new();
        let validity = self.cells.validity(cells.clone(), &mut scratch)?;
        for (cell, _) in cells.zip(&*validity).filter(|(_, valid)| **valid == 0) {
            let start = cell.saturating_mul(size);
            let end = start.saturating_add(size).min(range.end);
            let from = start.max(range.start);
            let target = (from - range.start) as usize..(end.saturating_sub(range.start)) as usize;
            let source = (from - start) as usize..(end - start) as usize;
            if let (Some(target), Some(source)) = (values.get_mut(target), fill.get(source)) {
                target.copy_from_slice(source);
            }
        }
        Ok(())
    }
}

fn values_alone() -> Error {
    Error::new(ErrorKind::Internal, "a variable of a grid has values alone")
}

/// Puts values as formats have them in the place of stored ones, which are of the same size.
fn convert(unit: Option<Unit>, datatype: Datatype, values: &mut [u8]) {
    if datatype == Datatype::Bool {
        values.iter_mut().for_each(|value| *value = u8::from(*value != 0));
    }
    let Some(unit) = unit else { return };
    for value in values.as_chunks_mut::<8>().0 {
        let days = unit.days(i64::from_le_bytes(*value));
        *value = days.unwrap_or(NOT_A_TIME).to_le_bytes();
    }
}

/// The type that values of a field have in a grid, and their number a cell. None where it is left out.
pub(super) fn exported(field: &ViewField) -> Option<(Datatype, u64)> {
    let CellValNum::Fixed(number) = field.cell_val_num else {
        return None;
    };
    let datatype = match field.datatype.kind() {
        Kind::Signed | Kind::Unsigned | Kind::Float | Kind::Bool => field.datatype,
        Kind::Datetime | Kind::Time => Datatype::Int64,
        Kind::Text if field.datatype.size() == 1 && field.datatype != Datatype::GeomWkt => Datatype::Char,
        Kind::Text | Kind::Bytes => return None,
    };
    Some((datatype, u64::from(number)))
}

/// How the name of the axis within cells of `number` values ends; None where there is none.
pub(super) fn inner_suffix(datatype: Datatype, number: u64) -> Option<&'static str> {
    match datatype {
        Datatype::Char => Some("_strlen"),
        _ if number > 1 => Some("_cell"),
        _ => None,
    }
}

/// What the CF conventions call a count of this type.
fn units(datatype: Datatype) -> Attributes {
    let unit = match datatype {
        Datatype::DatetimeYear | Datatype::DatetimeMonth | Datatype::DatetimeWeek | Datatype::DatetimeDay => {
            "days"
        }
        Datatype::DatetimeHr => "hours",
        Datatype::DatetimeMin => "minutes",
        Datatype::DatetimeSec => "seconds",
        Datatype::DatetimeMs => "milliseconds",
        Datatype::DatetimeUs => "microseconds",
        Datatype::DatetimeNs => "nanoseconds",
        _ => return Attributes::new(),
    };
    let text = |name: &str, value: String| (name.to_owned(), Value::Text(value));
    vec![
        text("units", format!("{unit} since 1970-01-01")),
        text("calendar", "proleptic_gregorian".to_owned()),
    ]
}

/// `flag_values` and `flag_meanings` of an attribute whose values are labelled with text. None of both where there are more than an attribute holds.
fn flags(view: &View, attribute: &Attribute, datatype: Datatype) -> Result<Attributes> {
    let Some(name) = &attribute.enumeration else {
        return Ok(Attributes::new());
    };
    let array = view.array();
    let mut enumerations = view.schema().enumerations.iter();
    let Some(enumeration) = enumerations.find(|enumeration| enumeration.name == *name) else {
        let message = "an attribute's enumeration is none of those that the schema names";
        let file = array.engine.storage.display(&array.path);
        return Err(Error::corrupt(message).at(0).in_file(file));
    };
    let enumeration = array.enumeration(&enumeration.file)?;
    let size = datatype.size();
    let integral = matches!(datatype.kind(), Kind::Signed | Kind::Unsigned);
    if enumeration.datatype.kind() != Kind::Text || !integral {
        return Ok(Attributes::new());
    }
    let bits = size * 8 - usize::from(datatype.kind() == Kind::Signed);
    let most = 1u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
    let (mut values, mut meanings) = (Vec::new(), String::new());
    for (index, label) in (0..most).zip(enumeration.values()) {
        values.extend_from_slice(index.to_le_bytes().get(..size).unwrap_or_default());
        if index > 0 {
            meanings.push(' ');
        }
        meanings.push_str(&meaning(enumeration.datatype, label));
        if values.len().max(meanings.len()) as u64 > MAX_METADATA {
            return Ok(Attributes::new());
        }
    }
    Ok(match values.is_empty() {
        true => Attributes::new(),
        false => vec![
            ("flag_values".to_owned(), Value::Numbers(datatype, values)),
            ("flag_meanings".to_owned(), Value::Text(meanings)),
        ],
    })
}

/// A label as a word of `flag_meanings`: never empty, and with `_` in place of each run of blanks.
fn meaning(datatype: Datatype, label: &[u8]) -> String {
    let text = datatype.text(label);
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(label).into_owned());
    let mut word = String::new();
    let mut blanks = true;
    for c in text.trim_end_matches('\0').chars() {
        if !c.is_whitespace() {
            word.push(c);
        } else if !blanks || word.is_empty() {
            word.push('_');
        }
        blanks = c.is_whitespace();
    }
    if word.is_empty() {
        word.push('_');
    }
    word
}

impl Naming {
    /// `name`, a component of a path, as a format has it.
    fn name(self, name: String) -> String {
        match self {
            Naming::Zarr if name == "zarr.json" => "%7Aarr.json".to_owned(),
            Naming::Zarr => name,
            Naming::NetCdf => names::within(&netcdf_name(&name), names::MAX),
        }
    }
}

fn netcdf_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    let mut out = if name.starts_with(plain) { "" } else { "_" }.to_owned();
    // The form in which netcdf-c looks for names, whatever is stored.
    for c in name.nfc() {
        match c.is_ascii_control() {
            true => out += &format!("%{:02X}", u32::from(c)),
            false => out.push(c),
        }
    }
    if out.ends_with(' ') {
        out.pop();
        out += "%20";
    }
    out
}

/// A name that nothing else has, of something beside what is called `name`.
fn made_up(name: &str, suffix: &str, taken: &mut HashSet<String>) -> String {
    let mut suffix = suffix.to_owned();
    loop {
        let room = names::MAX.saturating_sub(suffix.len());
        let made = names::within(name, room) + &suffix;
        if taken.insert(made.clone()) {
            return made;
        }
        suffix.push('_');
    }
}

/// What of the array's metadata goes into a grid.
fn metadata(view: &View, naming: Naming) -> Result<Attributes> {
    /// What a pair takes besides key and value.
    const PAIR: usize = 96;
    let array = view.array();
    let mut pairs: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
    let mut memory = 0usize;
    for file in view.snapshot().metadata() {
        let path = array.engine.storage.display(&file.path);
        let body = GenericFile::open(&array.engine, &file.path, array.key.as_ref(), true)?;
        let replay = each_record(&body, |record| {
            let mut bytes = Vec::new();
            let value = match record.value {
                Some((datatype, _, data)) if data.end.saturating_sub(data.start) <= MAX_METADATA => {
                    body.read(data, &mut bytes)?;
                    metadata_value(datatype, bytes)
                }
                _ => None,
            };
            let size = |key: &[u8], value: &Value| PAIR + key.len() + value.len();
            if let Some(before) = pairs.remove(&record.key) {
                memory = memory.saturating_sub(size(&record.key, &before));
            }
            if let Some(value) = value.filter(|_| !record.key.starts_with(b"_")) {
                memory = memory.saturating_add(size(&record.key, &value));
                pairs.insert(record.key, value);
            }
            match memory > MAX_PAIRS {
                true => Err(Error::limit(format!("metadata of more than {MAX_PAIRS} bytes"))),
                false => Ok(()),
            }
        });
        replay.map_err(|e| e.at(0).in_part("metadata").in_file(path))?;
    }
    let (keys, values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let keys = keys.iter().map(|key| naming.name(names::encode(key)));
    let keys = names::unique(keys.collect(), names::MAX);
    Ok(keys.into_iter().zip(values).collect())
}

/// A value of metadata; None for none, for blobs, and for text that is none.
fn metadata_value(datatype: Datatype, mut bytes: Vec<u8>) -> Option<Value> {
    let datatype = match datatype.kind() {
        Kind::Text => return datatype.text(&bytes).map(Value::Text),
        Kind::Bytes => return None,
        Kind::Datetime | Kind::Time => Datatype::Int64,
        _ => datatype,
    };
    convert(None, datatype, &mut bytes);
    (!bytes.is_empty()).then_some(Value::Numbers(datatype, bytes))
}
