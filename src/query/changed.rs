//! Attributes that were dropped and added again with another type: fragments written before cannot give their
//! values, and a view that needs such a fragment cannot be read in that attribute.

use super::{Merge, Role, View};
use crate::error::Result;
use crate::format::field::{Form, Stored};
use crate::runtime::requester::settled;
use std::borrow::Cow;
use std::collections::HashMap;

impl View {
    /// For each field, whether some schema of the array has an attribute of the same name with another type,
    /// so that [`View::unreadable`] may have a reason. True for all attributes, for now, while a schema
    /// cannot be had that may turn up. Reads schemas alone.
    pub(crate) fn may_be_unreadable(&self) -> Result<Cow<'_, [bool]>> {
        if let Some(changed) = self.changed.get() {
            return Ok(Cow::Borrowed(changed));
        }
        let mut changed = vec![false; self.fields().len()];
        let fields = self.fields().iter().enumerate();
        let attributes = fields.filter(|(_, field)| matches!(field.role, Role::Attribute(_)));
        let attributes: HashMap<&[u8], (usize, Form)> = attributes
            .map(|(i, field)| (&*field.name, (i, field.form())))
            .collect();
        let files = self.of.snapshot.listing.schemas.iter();
        for file in files.filter(|file| file.name != self.of.schema_file.name) {
            let schema = match settled(self.of.array.schemas.get(&file.name))? {
                Ok(schema) => schema,
                Err(error) if error.may_pass() => {
                    attributes.values().for_each(|(i, _)| changed[*i] = true);
                    return Ok(Cow::Owned(changed));
                }
                // The fragments of a schema that cannot be read cannot be read either.
                Err(_) => continue,
            };
            for other in &schema.attributes {
                if let Some((i, wanted)) = attributes.get(&*other.name) {
                    let found = Stored::of(Some(((), other.form())), *wanted);
                    changed[*i] |= matches!(found, Stored::Other(..));
                }
            }
        }
        Ok(Cow::Borrowed(self.changed.get_or_init(|| changed)))
    }

    /// Why the values of field `field` cannot be read, because its type changed on the way; None if they can.
    /// Reads the metadata of fragments, and merges those of a sparse view, if
    /// [`View::may_be_unreadable`] says so; nothing else.
    pub(crate) fn unreadable(&self, field: usize) -> Result<Option<String>> {
        if !self.may_be_unreadable()?[field] {
            return Ok(None);
        }
        let shown = &self.fields()[field];
        let found = match (self.merge()?, shown.role) {
            (Merge::Dense(dense), Role::Attribute(index)) => dense.unreadable(index)?,
            (Merge::Sparse(sparse), Role::Attribute(_)) => sparse.unreadable(shown)?,
            (_, Role::Dimension(_)) => None,
        };
        Ok(found.map(|(fragment, what)| format!("fragment {fragment} has it with {what}")))
    }
}
