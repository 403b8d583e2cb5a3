//! Which attributes a field may have, by the CF conventions and by its type.

use crate::export::grid::{self, Value};
use crate::format::datatype::{Datatype, Kind};
use crate::view::{Role, ViewField};

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

/// What decides about the attributes of a field.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) struct Field {
    /// Whether it is a dimension.
    pub(super) is_dimension: bool,
    /// The stored type.
    stored: Datatype,
    /// The type of its variable; None if grids leave the field out.
    exported: Option<Datatype>,
    /// Whether its values are indexes of an enumeration.
    enumerated: bool,
}

impl Field {
    /// The rules of a field.
    pub(super) fn of(field: &ViewField, enumerated: bool) -> Field {
        Field {
            is_dimension: matches!(field.role, Role::Dimension(_)),
            stored: field.datatype,
            exported: grid::exported(field).map(|(datatype, _)| datatype),
            enumerated,
        }
    }

    /// The value of attribute `key` in the type that it must have; or why the field cannot have it.
    pub(super) fn check(&self, key: &str, value: Value) -> Result<Value, &'static str> {
        let own_type = OWN_TYPE.iter().find(|(name, _)| *name == key);
        let is_packing = PACKING.contains(&key);
        if OF_FILES.contains(&key) || key.starts_with("_Netcdf4") {
            return Err("files have an attribute of this name of their own");
        }
        if self.enumerated && key.starts_with("flag_") {
            return Err("the enumeration has flags of its own");
        }
        match self.stored.kind() {
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
            (Value::Numbers(datatype, bytes), _) if is_packing => {
                match numbers(*datatype, bytes).as_slice() {
                    [Number::Integer(_)] => Ok(value),
                    [Number::Float(number)] if number.is_finite() => Ok(value),
                    [_] => Err("it is not finite"),
                    _ => Err("it is not one number"),
                }
            }
            (_, Some((_, count))) => self.own(value, *count),
            _ => Ok(value),
        }
    }

    /// `value` as `count` values of the field's type.
    fn own(&self, value: Value, count: usize) -> Result<Value, &'static str> {
        const OTHER_TYPE: &str = "the variable's type does not have the value";
        let Some(target) = self.exported else {
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
                let numbers = numbers(datatype, &bytes);
                if count > 0 && numbers.len() != count {
                    return Err("it is not one value, or a range of two");
                }
                let converted = numbers.into_iter().map(|number| number.to(target));
                let converted: Option<Vec<Vec<u8>>> = converted.collect();
                let bytes = converted.ok_or(OTHER_TYPE)?.concat();
                Ok(Value::Numbers(target, bytes))
            }
        }
    }
}

/// A number of any type.
#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i128),
    Float(f64),
}

/// Little-endian numbers of a type.
fn numbers(datatype: Datatype, bytes: &[u8]) -> Vec<Number> {
    let number = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let unused = 64 - 8 * bytes.len();
        match (datatype.kind(), bytes.len()) {
            (Kind::Float, 4) => Number::Float(f32::from_bits(bits as u32).into()),
            (Kind::Float, _) => Number::Float(f64::from_bits(bits)),
            (Kind::Unsigned | Kind::Bool, _) => Number::Integer(bits.into()),
            _ => Number::Integer(((bits << unused).cast_signed() >> unused).into()),
        }
    };
    bytes.chunks_exact(datatype.size()).map(number).collect()
}

impl Number {
    /// The number in another type, little-endian. None if integers do not have it, or if it becomes infinite.
    fn to(self, target: Datatype) -> Option<Vec<u8>> {
        let size = target.size();
        if target.kind() == Kind::Float {
            let wide = match self {
                Number::Integer(integer) => integer as f64,
                Number::Float(float) => float,
            };
            if size == 8 {
                return Some(wide.to_le_bytes().to_vec());
            }
            let narrow = wide as f32;
            return (narrow.is_infinite() == wide.is_infinite()).then(|| narrow.to_le_bytes().to_vec());
        }
        let integer = match self {
            Number::Integer(integer) => integer,
            // The cast saturates far outside of the types.
            Number::Float(float) if float == float.trunc() => float as i128,
            Number::Float(_) => return None,
        };
        let bits = 8 * size as u32;
        let range = match target.kind() {
            Kind::Unsigned => 0..1i128 << bits,
            _ => -(1i128 << (bits - 1))..1i128 << (bits - 1),
        };
        range
            .contains(&integer)
            .then(|| integer.to_le_bytes()[..size].to_vec())
    }
}
