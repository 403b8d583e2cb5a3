//! What exports show of an array's metadata: attributes of the array, and attributes of its fields.
//!
//! A pair is an attribute of the array, unless its key begins with `_`: then it belongs to a program. These
//! are known:
//!
//! | key | what it is |
//! |---|---|
//! | `__tiledb_attr.<attribute>.<key>` | TileDB-CF: attribute `<key>` of an attribute's variable |
//! | `__tiledb_dim.<dimension>.<key>` | the same of a dimension |
//! | `__np_flat_<key>` | TileDB-Py: a NumPy array, which has `<key>` unless a plain pair has it |
//! | `_gdal` | GDAL: where a raster is, and what its bands are: see [`gdal`] |
//! | `_UNIT`, `_CRS` | GDAL, for arrays of any dimensions: the unit of numbers, and the reference system |
//! | `__pandas_<key>` | TileDB-Py: how pandas had the columns: see [`pandas`] |
//!
//! Names may hold dots: the longest name that fits is meant. TileDB-CF stores all numbers as INT64 or
//! FLOAT64, so those that the CF conventions want in the variable's own type are converted. What does not fit
//! into the conventions is left out, with a reason.

pub mod gdal;
pub(super) mod geometry;
mod group;
pub(super) mod pandas;
mod projjson;
mod rules;
#[cfg(test)]
mod tests;
pub(super) mod wkt;

use super::grid::{self, Attributes, Value};
use super::raster::Placed;
use crate::bytes::{Bytes, Keep, Output};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::format::datatype::{Datatype, Kind};
use crate::format::metadata::each_record;
use crate::fragment::generic_body::GenericFile;
use crate::query::{Field, Role, View};
use crate::runtime::cache::{CacheKey, Entry};
use crate::runtime::hash;
use gdal::Raster;
use geometry::Geometry;
pub(super) use group::GroupMetadata;
use pandas::Pandas;
pub(super) use rules::{check as attribute, in_own_type};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The most bytes of a value.
const MAX_VALUE: u64 = 65_535;

/// The most bytes of a value of a program: tables may have thousands of columns.
const MAX_PROGRAM_VALUE: u64 = 1 << 20;

/// The most bytes of a document of GDAL: palettes of 16 bits have 65,536 colours.
const MAX_GDAL: u64 = 1 << 22;

/// The most bytes of the key and the value of a field's attribute: an attribute of HDF5 has 65,535 with its
/// header.
pub(super) const MAX_ATTRIBUTE: usize = 65_535 - 512;

/// The most bytes of memory for all pairs.
const MAX_MEMORY: usize = 32 << 20;

/// The most pairs whose reasons are kept.
const MAX_LEFT_OUT: usize = 1000;

const OF_ATTRIBUTE: &[u8] = b"__tiledb_attr.";
const OF_DIMENSION: &[u8] = b"__tiledb_dim.";
const FLAT: &[u8] = b"__np_flat_";
const UNIT: &[u8] = b"_UNIT";
const CRS: &[u8] = b"_CRS";

/// Keys of programs that are read.
const OF_PROGRAMS: [&[u8]; 5] = [gdal::KEY, UNIT, CRS, pandas::INDEX, pandas::ATTRIBUTES];

/// The metadata that exports of a view show.
#[derive(Debug, Default, PartialEq)]
pub struct Metadata {
    /// The attributes of the array by key, in order.
    pub array: Vec<(Vec<u8>, Value)>,
    /// The attributes of each field of the view, by key, in order.
    pub fields: Vec<Attributes>,
    /// What GDAL tells of a raster; None if it did not write the array.
    pub raster: Option<Raster>,
    /// The coordinate reference system of the array by the key `_CRS`: WKT, a code as in `EPSG:4326`, or
    /// PROJJSON that has no WKT.
    pub crs: Option<String>,
    /// How pandas had the columns; None if it did not write the array.
    pub pandas: Option<Pandas>,
    /// The geometries of the cells; None if there are none.
    pub geometry: Option<Geometry>,
    /// Keys that exports leave out although they are meant for them, and why: the first thousand.
    pub left_out: LeftOut,
    /// Whether nothing is known because a file is damaged: see [`Metadata::or_none`].
    pub is_damaged: bool,
}

impl Entry for Metadata {
    fn memory(&self) -> u64 {
        let array = self.array.iter().map(|(key, value)| size(key, value));
        let fields = self.fields.iter().flatten();
        let fields = fields.map(|(key, value)| size(key.as_bytes(), value));
        let left_out = self.left_out.iter().map(|(key, _)| PAIR_MEMORY + key.len());
        let raster = self.raster.as_ref().map_or(0, Raster::memory);
        let crs = self.crs.as_ref().map_or(0, String::len);
        let pandas = self.pandas.as_ref().map_or(0, Pandas::memory);
        let geometry = self.geometry.as_ref().map_or(0, Geometry::memory);
        array
            .chain(fields)
            .chain(left_out)
            .chain([raster, crs, pandas, geometry])
            .sum::<usize>() as u64
    }
}

/// Estimated overhead of a pair in memory, bytes.
const PAIR_MEMORY: usize = 96;

fn size(key: &[u8], value: &Value) -> usize {
    PAIR_MEMORY + key.len() + value.len()
}

/// A value that exports show, or why they do not.
type ValueOrReason = Result<Value, &'static str>;

/// Keys that are left out, and why.
type LeftOut = Vec<(Vec<u8>, &'static str)>;

impl Metadata {
    /// The metadata of a view. Reads only files of metadata; cached for the view's state.
    pub fn of(view: &View) -> Result<Arc<Metadata>> {
        let array = view.array();
        let object = array.engine.number(&("metadata", &array.path, view.state()));
        let make = || {
            let mut metadata = Metadata::sort(view.fields(), pairs(view)?);
            if view.is_dense() {
                let too_long = grid::too_long_for_hdf5(&metadata.array);
                let reason = "array.nc: HDF5 has no room for such a long attribute";
                let too_long = too_long.into_iter().map(|key| (key, reason));
                metadata.left_out.extend(too_long);
            }
            let mut reasons = Vec::new();
            if let Some(placed) = Placed::of(&metadata, view)? {
                if placed.bands_differ_in_nodata(view) {
                    reasons
                        .push("bands differ in no-data values; an image has that of the first which has one");
                }
                if placed.has_palette_among_bands(view) {
                    reasons.push("images of several bands have no palette");
                }
                if placed.exceeds_domain(view) {
                    reasons.push("X_SIZE or Y_SIZE is more than the array has; images have what is there");
                }
            }
            let reasons = reasons.into_iter().map(|reason| (gdal::KEY.to_vec(), reason));
            metadata.left_out.extend(reasons);
            Ok(metadata)
        };
        let cache = &array.engine.cache;
        cache.derive(CacheKey::of(object), 4096, Keep::Staying, make)
    }

    /// [`Metadata::of`], or none at all if it is damaged, for what is there without it: `view.json` says so.
    /// What is made of it belongs to its [`Metadata::state`].
    pub(super) fn or_none(view: &View) -> Result<Arc<Metadata>> {
        let damaged = match Metadata::of(view) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => match error.kind() {
                ErrorKind::Truncated
                | ErrorKind::Corrupt
                | ErrorKind::ChecksumMismatch
                | ErrorKind::UnsupportedVersion
                | ErrorKind::Unsupported
                | ErrorKind::LimitExceeded => Metadata {
                    fields: vec![Attributes::new(); view.fields().len()],
                    is_damaged: true,
                    ..Metadata::default()
                },
                _ => return Err(error),
            },
        };
        Ok(Arc::new(damaged))
    }

    /// The state of a file that shows these metadata and what has `state`. A damaged file may be whole again,
    /// while the state of the view, which names it, stays the same.
    pub(super) fn state(&self, state: u64) -> u64 {
        match self.is_damaged {
            false => state,
            true => hash(&(state, "damaged")),
        }
    }

    /// The metadata of an array of these fields, of which this is the only file's body.
    #[cfg(any(test, feature = "internals"))]
    pub fn of_body(fields: &[Field], body: &dyn Bytes) -> Result<Metadata> {
        let mut pairs = Pairs::default();
        pairs.replay(body, &is_shown)?;
        Ok(Metadata::sort(fields, pairs.pairs))
    }

    /// Tells whose attribute each pair is, and reads what programs tell in pairs of their own.
    fn sort(fields: &[Field], pairs: BTreeMap<Vec<u8>, ValueOrReason>) -> Metadata {
        let numbered = fields.iter().enumerate();
        let is_dimension = |field: &Field| matches!(field.role, Role::Dimension(_));
        let names = numbered.map(|(number, field)| ((is_dimension(field), &*field.name), number));
        let names: HashMap<(bool, &[u8]), usize> = names.collect();
        let lengths: BTreeSet<usize> = fields.iter().map(|field| field.name.len()).collect();
        let mut out = Metadata::default();
        let mut array: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
        let mut found: Vec<BTreeMap<String, Value>> = vec![BTreeMap::new(); fields.len()];
        let mut programs: BTreeMap<Vec<u8>, ValueOrReason> = BTreeMap::new();
        let (flat, plain): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, _)| key.starts_with(FLAT));
        for (key, value) in plain.into_iter().chain(flat) {
            let own = key.strip_prefix(FLAT).unwrap_or(&key);
            let (is_dimension, path) = match (own.strip_prefix(OF_ATTRIBUTE), own.strip_prefix(OF_DIMENSION))
            {
                (Some(path), _) => (false, path),
                (_, Some(path)) => (true, path),
                (None, None) if OF_PROGRAMS.contains(&&*key) => {
                    programs.insert(key, value);
                    continue;
                }
                (None, None) if own.starts_with(b"_") => continue,
                (None, None) => {
                    match value {
                        Ok(value) => drop(array.entry(own.to_vec()).or_insert(value)),
                        Err(reason) => out.left_out.push((key, reason)),
                    }
                    continue;
                }
            };
            let shown = attribute_of(&names, &lengths, is_dimension, path).and_then(|(number, name)| {
                Ok((
                    number,
                    name.to_owned(),
                    rules::check(&fields[number], name, value?)?,
                ))
            });
            match shown {
                Ok((number, name, value)) => drop(found[number].entry(name).or_insert(value)),
                Err(reason) => out.left_out.push((key, reason)),
            }
        }
        if let Some(value) = programs.remove(gdal::KEY) {
            out.raster = Raster::read(fields, value, &mut out.left_out);
            if let Some(raster) = &out.raster {
                raster.check(fields, &mut out.left_out);
            }
        }
        for key in [UNIT, CRS] {
            let Some(value) = programs.remove(key) else {
                continue;
            };
            let value = value.and_then(|value| match value {
                Value::Text(text) if key == CRS => {
                    let system = reference_system(text, &mut out.left_out);
                    rules::short("spatial_ref", Value::Text(system))
                }
                value => rules::short("units", value),
            });
            match value {
                Ok(Value::Text(text)) if text.is_empty() => {}
                Ok(Value::Text(text)) if key == CRS => out.crs = Some(text),
                Ok(unit @ Value::Text(_)) => {
                    // GDAL keeps the attributes of numbers as those of the array: times need their calendar.
                    let calendar = array.get(&b"calendar"[..]);
                    let calendar = calendar.filter(|calendar| matches!(calendar, Value::Text(_)));
                    let calendar = calendar.and_then(|calendar| {
                        let short = rules::short("calendar", calendar.clone());
                        short
                            .map_err(|reason| out.left_out.push((b"calendar".to_vec(), reason)))
                            .ok()
                    });
                    let bytes = unit.len() + calendar.as_ref().map_or(0, Value::len);
                    let alike = fields.iter().filter(|field| has_unit(field)).count();
                    if bytes.saturating_mul(alike) > MAX_MEMORY {
                        out.left_out
                            .push((key.to_vec(), "it is too long for so many attributes"));
                        continue;
                    }
                    let fields = fields.iter().zip(&mut found);
                    for (_, attributes) in fields.filter(|(field, _)| has_unit(field)) {
                        if attributes.contains_key("units") {
                            continue;
                        }
                        attributes.insert("units".to_owned(), unit.clone());
                        if let Some(calendar) = &calendar {
                            let own = attributes.entry("calendar".to_owned());
                            own.or_insert_with(|| calendar.clone());
                        }
                    }
                }
                Ok(Value::Numbers(..)) => out.left_out.push((key.to_vec(), "it is not text")),
                Err(reason) => out.left_out.push((key.to_vec(), reason)),
            }
        }
        out.pandas = Pandas::read(fields, programs, &mut out.left_out);
        out.geometry = Geometry::read(fields, &array, &mut out.left_out);
        out.left_out.truncate(MAX_LEFT_OUT);
        out.array = array.into_iter().collect();
        out.fields = found.into_iter().map(|own| own.into_iter().collect()).collect();
        out
    }
}

/// A reference system as files tell it: of the PROJJSON that GDAL keeps, the WKT.
fn reference_system(text: String, left_out: &mut LeftOut) -> String {
    let Ok(system @ Json::Object(_)) = serde_json::from_str(&text) else {
        return text;
    };
    projjson::wkt(&system).unwrap_or_else(|| {
        let reason = "it is PROJJSON with parts that are not known, so that it is not told as WKT";
        left_out.push((CRS.to_vec(), reason));
        text
    })
}

/// Whether the unit of an array's numbers is one of the field's.
fn has_unit(field: &Field) -> bool {
    let is_number = matches!(field.datatype.kind(), Kind::Signed | Kind::Unsigned | Kind::Float);
    is_number && field.enumeration.is_none() && matches!(field.role, Role::Attribute(_))
}

/// The field whose attribute `<name>.<key>` is, and the key. The longest name that fits is meant. Looks at
/// each of the `lengths` that names have, not at each dot, of which a key may have a million.
fn attribute_of<'k>(
    names: &HashMap<(bool, &[u8]), usize>,
    lengths: &BTreeSet<usize>,
    is_dimension: bool,
    path: &'k [u8],
) -> Result<(usize, &'k str), &'static str> {
    let mut dots = lengths
        .iter()
        .rev()
        .copied()
        .filter(|i| path.get(*i) == Some(&b'.'));
    let field = |dot| Some((*names.get(&(is_dimension, &path[..dot]))?, dot));
    let (number, dot) = dots.find_map(field).ok_or(match is_dimension {
        true => "there is no such dimension",
        false => "there is no such attribute",
    })?;
    match std::str::from_utf8(&path[dot + 1..]) {
        Ok("") => Err("it names no attribute of the variable"),
        Ok(key) => Ok((number, key)),
        Err(_) => Err("the name is not UTF-8"),
    }
}

/// The pairs of the array's metadata that may be shown.
fn pairs(view: &View) -> Result<BTreeMap<Vec<u8>, ValueOrReason>> {
    let (array, snapshot) = (view.array(), view.snapshot());
    let files = snapshot.metadata().map(|file| &*file.path);
    replayed(&array.engine, files, array.key.as_ref(), is_shown)
}

/// The most bytes of the value of a key that may be shown; None for the keys of other programs.
fn is_shown(key: &[u8]) -> Option<u64> {
    let known = [OF_ATTRIBUTE, OF_DIMENSION, FLAT, group::FIXED];
    match OF_PROGRAMS.contains(&key) {
        true if key == gdal::KEY => Some(MAX_GDAL),
        true => Some(MAX_PROGRAM_VALUE),
        false if !key.starts_with(b"_") || known.iter().any(|prefix| key.starts_with(prefix)) => {
            Some(MAX_VALUE)
        }
        false => None,
    }
}

/// All pairs in metadata files, the oldest first, with values of up to a mebibyte.
pub(super) fn all_pairs<'p>(
    engine: &Arc<Engine>,
    files: impl Iterator<Item = &'p Path>,
    key: Option<&EncryptionKey>,
) -> Result<BTreeMap<Vec<u8>, ValueOrReason>> {
    replayed(engine, files, key, |_| Some(MAX_PROGRAM_VALUE))
}

/// The pairs in metadata files, the oldest first. `most` tells the most bytes of the value of a key; None if
/// it is not wanted.
fn replayed<'p>(
    engine: &Arc<Engine>,
    files: impl Iterator<Item = &'p Path>,
    key: Option<&EncryptionKey>,
    most: impl Fn(&[u8]) -> Option<u64>,
) -> Result<BTreeMap<Vec<u8>, ValueOrReason>> {
    let mut pairs = Pairs::default();
    for file in files {
        let place = |e: Error| e.at(0).in_part("metadata").in_file(engine.storage.display(file));
        let body = GenericFile::open(engine, file, key, true);
        let replayed = body.and_then(|body| pairs.replay(&body, &most).map_err(place));
        replayed.map_err(|e| engine.incomplete(file, e))?;
    }
    Ok(pairs.pairs)
}

/// Pairs while files are replayed.
#[derive(Default)]
struct Pairs {
    pairs: BTreeMap<Vec<u8>, ValueOrReason>,
    /// Bytes that they take.
    memory: usize,
}

impl Pairs {
    /// Replays the body of a file. `most` is that of [`replayed`].
    fn replay(&mut self, body: &dyn Bytes, most: &impl Fn(&[u8]) -> Option<u64>) -> Result<()> {
        let size = |key: &[u8], value: &ValueOrReason| match value {
            Ok(value) => size(key, value),
            Err(_) => PAIR_MEMORY + key.len(),
        };
        each_record(body, |record| {
            let key = &record.key;
            let Some(most) = most(key) else {
                return Ok(());
            };
            let value = match record.value {
                None => None,
                Some((_, _, data)) if data.end.saturating_sub(data.start) > most => {
                    Some(Err("it is too long"))
                }
                Some((datatype, _, data)) => {
                    let bytes = Output::of(|out| body.read(data, out))?;
                    Some(shown(datatype, bytes.into()))
                }
            };
            if let Some(before) = self.pairs.remove(key) {
                self.memory -= size(key, &before);
            }
            if let Some(value) = value {
                self.memory += size(key, &value);
                self.pairs.insert(record.key, value);
            }
            match self.memory > MAX_MEMORY {
                true => Err(Error::limit(format!(
                    "the metadata takes more than the {MAX_MEMORY} bytes of memory allowed"
                ))),
                false => Ok(()),
            }
        })
    }
}

/// A value of metadata as exports have it.
fn shown(datatype: Datatype, mut bytes: Vec<u8>) -> ValueOrReason {
    let datatype = match datatype.kind() {
        Kind::Text => {
            return datatype
                .text(&bytes)
                .map(Value::Text)
                .ok_or("its text is invalid");
        }
        Kind::Bytes => return Err("it is bytes without a type"),
        Kind::Datetime | Kind::Time => Datatype::Int64,
        Kind::Bool => {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            datatype
        }
        Kind::Signed | Kind::Unsigned | Kind::Float => datatype,
    };
    match bytes.is_empty() {
        true => Err("it has no value"),
        false => Ok(Value::Numbers(datatype, bytes)),
    }
}
