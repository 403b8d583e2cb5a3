//! Which attributes a field may have, by the CF conventions and by its type.

use super::MAX_ATTRIBUTE;
use crate::export::grid::{self, Value};
use crate::format::datatype::{Datatype, Kind};
use crate::format::scalar::Scalar;
use crate::query::Field;

/// Attributes that are text in the CF conventions.
const TEXT: [&str; 18] = [
    "ancillary_variables",
    "axis",
    "bounds",
    "calendar",
    "cell_measures",
    "cell_methods",
    "cf_role",
    "climatology",
    "compress",
    "coordinates",
    "flag_meanings",
    "formula_terms",
    "grid_mapping",
    "long_name",
    "positive",
    "standard_name",
    "units",
    "units_metadata",
];

/// Attributes that tell how stored numbers become others. Readers fail if they are not one number.
const PACKING: [&str; 2] = ["scale_factor", "add_offset"];

/// Attributes that have values of the variable, and how many of them; 0 stands for any number.
const OWN_TYPE: [(&str, usize); 7] = [
    ("_FillValue", 1),
    ("missing_value", 0),
    ("valid_min", 1),
    ("valid_max", 1),
    ("valid_range", 2),
    ("flag_values", 0),
    ("flag_masks", 0),
];

/// Attributes of netCDF-4 and HDF5, which files have of their own.
const OF_FILES: [&str; 3] = ["_NCProperties", "DIMENSION_LIST", "REFERENCE_LIST"];

/// Why nothing else can be called like them.
pub(super) const OF_FILES_REASON: &str = "files have an attribute of this name of their own";

/// Whether files have an attribute `key` of their own.
pub(super) fn is_of_files(key: &str) -> bool {
    OF_FILES.contains(&key) || key.starts_with("_Netcdf4")
}

/// The value of attribute `key` of a field in the type that it must have; or why the field cannot have it.
pub(in crate::export) fn check(field: &Field, key: &str, value: Value) -> Result<Value, &'static str> {
    short(key, converted(field, key, value)?)
}

/// The value of attribute `key`; or why there is no room for both.
pub(super) fn short(key: &str, value: Value) -> Result<Value, &'static str> {
    match key.len() + value.len() > MAX_ATTRIBUTE {
        true => Err("it is too long"),
        false => Ok(value),
    }
}

fn converted(field: &Field, key: &str, value: Value) -> Result<Value, &'static str> {
    let own_type = OWN_TYPE.iter().find(|(name, _)| *name == key);
    let is_packing = PACKING.contains(&key);
    if is_of_files(key) {
        return Err(OF_FILES_REASON);
    }
    // pyarrow opens no table with a column that is said to be of another type than it is.
    if key.starts_with("ARROW:") {
        return Err("Arrow has names like this of its own");
    }
    if field.enumeration.is_some() && key.starts_with("flag_") {
        return Err("the enumeration has flags of its own");
    }
    match field.datatype.kind() {
        Kind::Datetime if own_type.is_some() || is_packing || key == "units" || key == "calendar" => {
            return Err("the stored type of dates decides about this");
        }
        Kind::Bool if own_type.is_some() || is_packing || key == "dtype" => {
            return Err("the stored type BOOL decides about this");
        }
        Kind::Text | Kind::Bytes if is_packing => return Err("only numbers can be packed"),
        _ => {}
    }
    match (&value, own_type) {
        (Value::Numbers(..), _) if TEXT.contains(&key) => Err("it is not text"),
        (Value::Text(_), _) if is_packing => Err("it is not a number"),
        (Value::Numbers(datatype, bytes), _) if is_packing => match Scalar::read(*datatype, bytes) {
            Some(number) if number.float().is_finite() => Ok(value),
            Some(_) => Err("it is not finite"),
            None => Err("it is not one number"),
        },
        (_, Some((_, count))) => own(field, key, value, *count),
        _ => Ok(value),
    }
}

/// `value` of attribute `key` as `count` values of the field's type. Doubles that singles lack stay doubles,
/// but for the fill value: readers compare with the number that is told.
fn own(field: &Field, key: &str, value: Value, count: usize) -> Result<Value, &'static str> {
    const OTHER_TYPE: &str = "the variable's type does not have the value";
    let Some((target, _)) = grid::exported(field) else {
        return Ok(value);
    };
    match value {
        Value::Text(text) if target == Datatype::Char => match text.as_bytes() {
            [_] => Ok(Value::Numbers(target, text.into_bytes())),
            _ => Err("it is not one character"),
        },
        Value::Text(_) => Err("it is not a number"),
        Value::Numbers(..) if target == Datatype::Char => Err("it is not a character"),
        Value::Numbers(datatype, bytes) => {
            let numbers = bytes.chunks_exact(datatype.size());
            if count > 0 && numbers.len() != count {
                return Err("it is not one value, or a range of two");
            }
            let converted = numbers.map(|number| Scalar::read(datatype, number)?.to(target));
            let converted: Option<Vec<Vec<u8>>> = converted.collect();
            let converted = converted.ok_or(OTHER_TYPE)?.concat();
            let is_narrowed = (datatype, target) == (Datatype::Float64, Datatype::Float32);
            let is_lost = |number: f64| f64::from(number as f32) != number && !number.is_nan();
            match is_narrowed && key != "_FillValue" && doubles(&bytes).any(is_lost) {
                true => Ok(Value::Numbers(datatype, bytes)),
                false => Ok(Value::Numbers(target, converted)),
            }
        }
    }
}

/// The FLOAT64 values of an attribute.
fn doubles(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let numbers = bytes.as_chunks().0.iter();
    numbers.map(|number| f64::from_le_bytes(*number))
}

/// `value` of attribute `key` in the type of its variable, where NetCDF wants that: the numbers nearest to
/// it.
pub(in crate::export) fn in_own_type(key: &str, value: &Value, target: Datatype) -> Value {
    let is_own = OWN_TYPE.iter().any(|(name, _)| *name == key);
    match value {
        Value::Numbers(Datatype::Float64, bytes) if is_own && target == Datatype::Float32 => {
            let nearest = doubles(bytes).flat_map(|number| (number as f32).to_le_bytes());
            Value::Numbers(target, nearest.collect())
        }
        _ => value.clone(),
    }
}
