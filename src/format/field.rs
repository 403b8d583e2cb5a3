//! The fields of a schema, and what a fragment written with another schema has of them.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/array_schema/array_schema.cc>

use super::datatype::{CellValNum, Datatype};
use super::schema::{Attribute, Dimension, Schema};
use std::fmt;

/// Whether a field is a dimension or an attribute, with its index in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Role {
    Dimension(usize),
    Attribute(usize),
}

/// A dimension or an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Field {
    /// Its name as stored; empty for an anonymous attribute or dimension.
    pub name: Vec<u8>,
    /// Whether it is a dimension or an attribute.
    pub role: Role,
    /// Type of a value.
    pub datatype: Datatype,
    /// Values per cell.
    pub cell_val_num: CellValNum,
    /// Whether its cells may be null.
    pub nullable: bool,
    /// The value of an unwritten cell of an attribute: one cell, or for var-sized ones any length. Empty for
    /// a dimension.
    pub fill_value: Vec<u8>,
    /// Whether unwritten cells are valid (not null).
    pub fill_value_valid: bool,
    /// The name of the enumeration that the values index.
    pub enumeration: Option<Vec<u8>>,
}

/// What the stored bytes of a cell depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Type of a value.
    pub datatype: Datatype,
    /// Values per cell.
    pub cell_val_num: CellValNum,
    /// Whether there are validity bytes.
    pub nullable: bool,
}

/// What a fragment has of a field that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored<T> {
    /// Nothing, so its cells have the fill value. An attribute that is var-sized only in the fragment, or
    /// only for the reader, is another one.
    Nothing,
    /// Cells in the form that the reader wants.
    Same(T),
    /// Cells in another form, which cannot be read; the text names the difference.
    Other(T, &'static str),
}

impl<T> Stored<T> {
    /// What a reader of cells of the form `wanted` gets of what a fragment has under the field's name, and in
    /// which form.
    pub fn of(found: Option<(T, Form)>, wanted: Form) -> Stored<T> {
        let Some((found, form)) = found else {
            return Stored::Nothing;
        };
        if form.cell_val_num.is_var() != wanted.cell_val_num.is_var() {
            Stored::Nothing
        } else if form.datatype != wanted.datatype {
            Stored::Other(found, "another datatype")
        } else if form.cell_val_num != wanted.cell_val_num {
            Stored::Other(found, "another number of values per cell")
        } else if form.nullable != wanted.nullable {
            Stored::Other(found, "another nullability")
        } else {
            Stored::Same(found)
        }
    }
}

impl Form {
    /// Bytes of a cell; None for var-sized cells.
    pub fn cell_size(self) -> Option<u64> {
        self.cell_val_num.cell_size(self.datatype)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.datatype.name())?;
        match self.cell_val_num {
            CellValNum::Var => write!(f, " of any length")?,
            CellValNum::Fixed(1) => {}
            CellValNum::Fixed(n) => write!(f, " x {n}")?,
        }
        write!(f, "{}", if self.nullable { ", nullable" } else { "" })
    }
}

impl Field {
    /// Its name, if that is UTF-8.
    pub fn name_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.name).ok()
    }

    /// Whether it is an attribute.
    pub fn is_attribute(&self) -> bool {
        matches!(self.role, Role::Attribute(_))
    }

    /// Bytes of a cell; None for var-sized cells.
    pub fn cell_size(&self) -> Option<u64> {
        self.cell_val_num.cell_size(self.datatype)
    }

    /// What its stored bytes depend on.
    pub(crate) fn form(&self) -> Form {
        Form {
            datatype: self.datatype,
            cell_val_num: self.cell_val_num,
            nullable: self.nullable,
        }
    }

    fn of_dimension(index: usize, dimension: &Dimension) -> Field {
        Field {
            name: dimension.name.clone(),
            role: Role::Dimension(index),
            datatype: dimension.datatype,
            cell_val_num: dimension.cell_val_num,
            nullable: false,
            fill_value: Vec::new(),
            fill_value_valid: true,
            enumeration: None,
        }
    }

    fn of_attribute(index: usize, attribute: &Attribute) -> Field {
        Field {
            name: attribute.name.clone(),
            role: Role::Attribute(index),
            datatype: attribute.datatype,
            cell_val_num: attribute.cell_val_num,
            nullable: attribute.nullable,
            fill_value: attribute.fill_value.clone(),
            fill_value_valid: attribute.fill_value_valid,
            enumeration: attribute.enumeration.clone(),
        }
    }
}

impl Schema {
    /// Its fields: dimensions, then attributes, each in its order.
    pub fn fields(&self) -> Vec<Field> {
        (0..).map_while(|index| self.field(index)).collect()
    }

    /// Field `index` of [`Schema::fields`].
    pub fn field(&self, index: usize) -> Option<Field> {
        match self.dimensions.get(index) {
            Some(dimension) => Some(Field::of_dimension(index, dimension)),
            None => {
                let index = index - self.dimensions.len();
                Some(Field::of_attribute(index, self.attributes.get(index)?))
            }
        }
    }

    /// The attribute of this name, or else the dimension.
    pub(crate) fn field_named(&self, name: &[u8]) -> Option<Field> {
        let dimension = || self.dimension_index(name);
        let attribute = self.attribute_index(name).map(|i| self.dimensions.len() + i);
        self.field(attribute.or_else(dimension)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_attribute_was_before_decides_what_readers_get() {
        let form = |datatype, cell_val_num, nullable| Form {
            datatype,
            cell_val_num,
            nullable,
        };
        let (one, two, var) = (CellValNum::Fixed(1), CellValNum::Fixed(2), CellValNum::Var);
        let int = form(Datatype::Int32, one, false);
        let ints = form(Datatype::Int32, var, false);
        let text = form(Datatype::StringAscii, var, true);
        let of = |found: Option<Form>, wanted| Stored::of(found.map(|form| ((), form)), wanted);
        assert_eq!(of(None, int), Stored::Nothing);
        assert_eq!(of(Some(int), int), Stored::Same(()));
        // libtiledb gives the fill value of cells that were var-sized and are not, and the other way round,
        // whatever else differs.
        for (stored, wanted) in [(int, ints), (ints, int), (int, text), (text, int)] {
            assert_eq!(of(Some(stored), wanted), Stored::Nothing, "{stored} as {wanted}");
        }
        // It takes the bytes for values of the new type, or fails.
        for (stored, wanted, what) in [
            (int, form(Datatype::Int64, one, false), "another datatype"),
            (int, form(Datatype::Uint32, one, false), "another datatype"),
            (text, ints, "another datatype"),
            (
                int,
                form(Datatype::Int32, two, false),
                "another number of values per cell",
            ),
            (int, form(Datatype::Int32, one, true), "another nullability"),
            (
                text,
                form(Datatype::StringAscii, var, false),
                "another nullability",
            ),
        ] {
            assert_eq!(
                of(Some(stored), wanted),
                Stored::Other((), what),
                "{stored} as {wanted}"
            );
        }
    }

    #[test]
    fn forms_are_named_in_messages() {
        let form = Form {
            datatype: Datatype::StringAscii,
            cell_val_num: CellValNum::Var,
            nullable: true,
        };
        assert_eq!(form.to_string(), "STRING_ASCII of any length, nullable");
        let form = Form {
            datatype: Datatype::Float32,
            cell_val_num: CellValNum::Fixed(3),
            nullable: false,
        };
        assert_eq!(form.to_string(), "FLOAT32 x 3");
    }
}
