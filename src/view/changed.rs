//! Attributes that were dropped and added again with another type: fragments written before cannot give their
//! values, and a view that needs such a fragment cannot be read in that attribute.

use super::{Merge, Role, View, ViewField};
use crate::error::Result;
use crate::format::datatype::{CellValNum, Datatype};
use std::collections::HashMap;

/// What the stored bytes of an attribute depend on: its type, the number of values, whether it is nullable.
pub(super) type Form = (Datatype, CellValNum, bool);

/// How the form of an attribute in a fragment differs from the view's, so that its values cannot be read; None
/// if they can. An attribute that is var-sized in one of them only counts as another one, which is missing.
pub(super) fn difference(stored: Form, wanted: Form) -> Option<&'static str> {
    if stored.1.is_var() != wanted.1.is_var() {
        None
    } else if stored.0 != wanted.0 {
        Some("another datatype")
    } else if stored.1 != wanted.1 {
        Some("another number of values per cell")
    } else if stored.2 != wanted.2 {
        Some("another nullability")
    } else {
        None
    }
}

impl ViewField {
    pub(super) fn form(&self) -> Form {
        (self.datatype, self.cell_val_num, self.nullable)
    }
}

impl View {
    /// For each field, whether some schema of the array has an attribute of the same name with another type,
    /// so that [`View::unreadable`] may have a reason. Reads schemas alone.
    pub(crate) fn may_be_unreadable(&self) -> &[bool] {
        self.changed.get_or_init(|| {
            let mut changed = vec![false; self.fields().len()];
            let files = &self.snapshot.listing.schemas;
            if files.len() < 2 {
                return changed;
            }
            let fields = self.fields().iter().enumerate();
            let attributes = fields.filter(|(_, field)| matches!(field.role, Role::Attribute(_)));
            let attributes: HashMap<&[u8], (usize, Form)> = attributes
                .map(|(i, field)| (&*field.name, (i, field.form())))
                .collect();
            for file in files.iter().filter(|file| file.name != self.schema_file.name) {
                // The fragments of a schema that cannot be read cannot be read either.
                let Ok(schema) = self.array.schemas.get(&file.name) else {
                    continue;
                };
                for other in &schema.attributes {
                    let form = (other.datatype, other.cell_val_num, other.nullable);
                    if let Some((i, wanted)) = attributes.get(&*other.name)
                        && difference(form, *wanted).is_some()
                        && let Some(changed) = changed.get_mut(*i)
                    {
                        *changed = true;
                    }
                }
            }
            changed
        })
    }

    /// Why the values of field `field` cannot be read, because its type changed on the way; None if they can.
    /// Reads the metadata of fragments, and merges those of a sparse view, if
    /// [`View::may_be_unreadable`] says so; nothing else.
    pub(crate) fn unreadable(&self, field: usize) -> Result<Option<String>> {
        if self.may_be_unreadable().get(field) != Some(&true) {
            return Ok(None);
        }
        let Some(shown) = self.fields().get(field) else {
            return Ok(None);
        };
        let found = match (self.merge()?, shown.role) {
            (Merge::Dense(dense), Role::Attribute(index)) => dense.unreadable(index)?,
            (Merge::Sparse(sparse), Role::Attribute(_)) => sparse.unreadable(shown)?,
            (_, Role::Dimension(_)) => None,
        };
        Ok(found.map(|(fragment, what)| format!("fragment {fragment} has it with {what}")))
    }
}
