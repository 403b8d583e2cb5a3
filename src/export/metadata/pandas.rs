//! How pandas had the columns of a table that TileDB-Py wrote.
//!
//! Both keys hold JSON, names with types of pandas, such as `{"a": "Int64", "b": "category"}`:
//! `__pandas_index_dims` for the levels of the index in order, `__pandas_attribute_repr` for other columns.
//! Types that NumPy has follow from the stored ones. Those that it lacks are kept where the stored type has
//! their values, because pyarrow reads no file that names others.

use super::{LeftOut, PAIR_MEMORY, ValueOrReason};
use crate::export::grid::Value;
use crate::format::datatype::{CellValNum, Datatype};
use crate::query::{Field, Role};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The levels of the index.
pub(super) const INDEX: &[u8] = b"__pandas_index_dims";

/// Types of other columns.
pub(super) const ATTRIBUTES: &[u8] = b"__pandas_attribute_repr";

/// The name of an index that has none.
pub(in crate::export) const UNNAMED_INDEX: &str = "__tiledb_rows";

/// How pandas had the columns of a table.
#[derive(Debug, Default, PartialEq)]
pub struct Pandas {
    /// The fields that are levels of the index, in order.
    pub index: Vec<usize>,
    /// The types of fields by the names that pandas has for them, where NumPy has none.
    pub types: HashMap<usize, &'static str>,
    /// The unsigned fields that pandas has as INT64.
    pub signed: HashSet<usize>,
    /// The attributes of UINT8 that pandas has as booleans.
    pub booleans: HashSet<usize>,
}

impl Pandas {
    pub(super) fn memory(&self) -> usize {
        let numbers = self.index.len() + self.signed.len() + self.booleans.len();
        PAIR_MEMORY * (1 + self.types.len()) + size_of::<usize>() * numbers
    }

    /// What the pairs of these keys say; None if there are none. Appends what is malformed to `left_out`.
    pub(super) fn read(
        fields: &[Field],
        pairs: BTreeMap<Vec<u8>, ValueOrReason>,
        left_out: &mut LeftOut,
    ) -> Option<Pandas> {
        let names = fields.iter().enumerate();
        let names: HashMap<&[u8], usize> = names.map(|(i, field)| (&*field.name, i)).collect();
        let mut out = None;
        for (key, value) in pairs {
            match value.and_then(object) {
                Err(reason) => left_out.push((key, reason)),
                Ok(columns) => {
                    let out: &mut Pandas = out.get_or_insert_default();
                    for (name, of) in columns {
                        if let Err(reason) = out.add(fields, &names, key == INDEX, &name, &of) {
                            left_out.push((key.clone(), reason));
                        }
                    }
                }
            }
        }
        out
    }

    /// Adds column `name` of the type `of`.
    fn add(
        &mut self,
        fields: &[Field],
        names: &HashMap<&[u8], usize>,
        is_index: bool,
        name: &str,
        of: &Json,
    ) -> Result<(), &'static str> {
        let number = *names.get(name.as_bytes()).ok_or("there is no such column")?;
        if is_index {
            self.index.push(number);
        }
        let field = &fields[number];
        let Json::String(of) = of else {
            return Err("the type of a column is not text");
        };
        // TileDB-Py stored booleans as bytes before TileDB 2.10.
        let is_byte = field.datatype == Datatype::Uint8 && field.cell_val_num == CellValNum::Fixed(1);
        let is_byte = is_byte && field.enumeration.is_none() && matches!(field.role, Role::Attribute(_));
        if is_byte && matches!(&**of, "bool" | "boolean") {
            self.booleans.insert(number);
        }
        if let Some((of, wanted)) = EXTENSIONS.iter().find(|(name, _)| name == of) {
            let text = matches!(field.datatype, Datatype::StringAscii | Datatype::StringUtf8);
            let fits = match wanted {
                None => text && field.cell_val_num.is_var(),
                Some(wanted) => field.datatype == *wanted && field.cell_val_num == CellValNum::Fixed(1),
            };
            let fits = fits || *of == "boolean" && is_byte;
            if !fits || field.enumeration.is_some() {
                return Err("the stored type of a column has no such values");
            }
            self.types.insert(number, of);
        } else if of.ends_with(OF_PYARROW) {
            return Err("the stored type of a column may have values that this type of pyarrow lacks");
        } else if of == "int64" && field.datatype == Datatype::Uint64 {
            self.signed.insert(number);
        }
        Ok(())
    }
}

/// Types that NumPy lacks, and the stored type that has their values; None for text of any length.
const EXTENSIONS: [(&str, Option<Datatype>); 16] = [
    ("Int8", Some(Datatype::Int8)),
    ("Int16", Some(Datatype::Int16)),
    ("Int32", Some(Datatype::Int32)),
    ("Int64", Some(Datatype::Int64)),
    ("UInt8", Some(Datatype::Uint8)),
    ("UInt16", Some(Datatype::Uint16)),
    ("UInt32", Some(Datatype::Uint32)),
    ("UInt64", Some(Datatype::Uint64)),
    ("Float32", Some(Datatype::Float32)),
    ("Float64", Some(Datatype::Float64)),
    ("boolean", Some(Datatype::Bool)),
    ("string", None),
    ("string[pyarrow]", None),
    ("int64[pyarrow]", Some(Datatype::Int64)),
    ("double[pyarrow]", Some(Datatype::Float64)),
    ("bool[pyarrow]", Some(Datatype::Bool)),
];

/// What the names of pyarrow's types end with.
const OF_PYARROW: &str = "[pyarrow]";

/// The members of a JSON object.
fn object(value: Value) -> Result<Map<String, Json>, &'static str> {
    const NOT_AN_OBJECT: &str = "it is not a JSON object";
    let Value::Text(text) = value else {
        return Err("it is not text");
    };
    // The parser stops at a depth of 128.
    match serde_json::from_str(&text) {
        Ok(Json::Object(members)) => Ok(members),
        _ => Err(NOT_AN_OBJECT),
    }
}
