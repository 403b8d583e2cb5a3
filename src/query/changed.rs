//! Attributes that were dropped and added again with another type: fragments written before cannot give their
//! values, and a view that needs such a fragment cannot be read in that attribute.

use super::{Merge, Role, View};
use crate::error::Result;
use crate::format::field::{Form, Stored};
use crate::format::schema::Schema;
use crate::fragment::prefetch::outlines;
use crate::runtime::requester::settled;
use std::borrow::Cow;
use std::collections::HashMap;

impl View {
    /// For each field, whether a fragment that is seen was written with a schema that has an attribute of
    /// the same name with another type, so that [`View::unreadable`] may have a reason. True for more
    /// attributes, for now, while a schema or a fragment cannot be had that may turn up. Reads schemas, and
    /// the footers of fragments if some schema has such an attribute.
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
        let differ = |schema: &Schema, changed: &mut [bool]| {
            for other in &schema.attributes {
                if let Some((i, wanted)) = attributes.get(&*other.name) {
                    let found = Stored::of(Some(((), other.form())), *wanted);
                    changed[*i] |= matches!(found, Stored::Other(..));
                }
            }
        };
        let snapshot = &self.of.snapshot;
        let files = snapshot.listing.schemas.iter();
        for file in files.filter(|file| file.name != self.of.schema_file.name) {
            match settled(self.of.array.schemas.get(&file.name))? {
                Ok(schema) => differ(&schema, &mut changed),
                Err(error) if error.may_pass() => {
                    attributes.values().for_each(|(i, _)| changed[*i] = true);
                    return Ok(Cow::Owned(changed));
                }
                // The fragments of a schema that cannot be read cannot be read either.
                Err(_) => continue,
            }
        }
        if changed.contains(&true) {
            // Schemas of later do not change what is seen in this state.
            let outlines = outlines(&self.of.array.engine, &snapshot.fragment_list());
            let Ok(outlines) = settled(outlines)? else {
                return Ok(Cow::Owned(changed));
            };
            changed.fill(false);
            for outline in outlines {
                differ(&outline.schema, &mut changed);
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

#[cfg(test)]
mod tests {
    use crate::catalog::time::{TimeRange, When};
    use crate::query::View;
    use crate::query::selection::Selection;
    use crate::query::testing::open_local;
    use crate::runtime::tuning::Tuning;
    use std::path::Path;

    #[test]
    fn a_pinned_state_knows_the_types_of_before_and_no_state_those_of_later() {
        let array = open_local(Path::new("tests/data/versions/v22/evolved"), &Tuning::SMALL).unwrap();
        let reasons = |when: When| {
            let view = View::of(Selection::new(array.clone(), when).unwrap());
            let fields = 0..view.fields().len();
            let reasons: Vec<Option<String>> = fields.map(|field| view.unreadable(field).unwrap()).collect();
            (
                reasons,
                view.may_be_unreadable().unwrap().into_owned(),
                view.pin(),
            )
        };
        let (now, may, pin) = reasons(When::Now);
        assert_eq!(now.iter().flatten().count(), 1);
        let pinned = array.pinned(pin.unwrap()).unwrap();
        assert_eq!(reasons(When::Pinned(pinned)), (now, may, pin));
        // Before `a` came back with another type.
        let (then, may, _) = reasons(When::Within(TimeRange::until(15)));
        assert!(then.iter().all(Option::is_none) && !may.contains(&true));
    }
}
