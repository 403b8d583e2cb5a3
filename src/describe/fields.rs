//! The fields in the metadata of a fragment, and their keys in documents.

use super::Json;
use crate::format::fragment::Slots;
use crate::format::schema::Schema;
use crate::fragment::field::{Role, StoredField};
use crate::names;

/// A field that has a slot in the lists of a fragment's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedField {
    /// Its key in JSON objects: its name; `__attr` or `__dim_<i>` if it has none. No two fields of a fragment
    /// have the same key.
    pub key: String,
    /// The field.
    pub stored: StoredField,
}

/// The fields of a fragment in the order of their slots: the attributes; the zipped `__coords` below version
/// 5, or the dimensions from version 5 on, which a dense fragment has slots for as well; the internal fields
/// that the fragment has. From version 5 on there still is a slot for coordinates, which is left out.
pub fn keyed_fields(schema: &Schema, slots: &Slots) -> Vec<KeyedField> {
    let mut fields = StoredField::all(schema, slots, false);
    fields.retain(|field| !matches!(field.role, Role::ZippedDimension(_)));
    let keys = fields.iter().map(|field| match field.role {
        Role::Attribute(_) if field.name.is_empty() => names::attribute(b""),
        Role::Dimension(i) if field.name.is_empty() => names::dimension(b"", i),
        _ => names::key(&field.name),
    });
    let keys = names::unique(keys.collect(), usize::MAX);
    let fields = keys.into_iter().zip(fields);
    fields.map(|(key, stored)| KeyedField { key, stored }).collect()
}

/// An object with one entry for each field.
pub fn by_field(fields: &[KeyedField], value: impl Fn(&KeyedField) -> Json) -> Json {
    fields
        .iter()
        .map(|field| (field.key.clone(), value(field)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::example;
    use super::*;

    fn keys(schema: &Schema, version: u32, extra: bool) -> Vec<(String, usize)> {
        let slots = Slots {
            has_timestamps: extra,
            has_delete_metadata: extra,
            ..Slots::of(version, schema)
        };
        keyed_fields(schema, &slots)
            .into_iter()
            .map(|f| (f.key, f.stored.slot))
            .collect()
    }

    #[test]
    fn fields_follow_their_slots() {
        let schema = example();
        let list =
            |names: &[(&str, usize)]| names.iter().map(|(n, i)| (n.to_string(), *i)).collect::<Vec<_>>();
        assert_eq!(
            keys(&schema, 4, false),
            list(&[("a", 0), ("s", 1), ("__coords", 2)])
        );
        assert_eq!(
            keys(&schema, 5, false),
            list(&[("a", 0), ("s", 1), ("x", 3), ("y", 4)])
        );
        assert_eq!(
            keys(&schema, 22, true)[4..],
            list(&[
                ("__timestamps", 5),
                ("__delete_timestamps", 6),
                ("__delete_condition_index", 7)
            ])
        );
    }

    #[test]
    fn fields_without_a_name_and_fields_that_share_one_have_keys() {
        let mut schema = example();
        schema.attributes[0].name.clear();
        schema.attributes[1].name = b"\xFF/".to_vec();
        schema.dimensions[0].name.clear();
        schema.dimensions[1].name.clear();
        let names = |schema: &Schema| {
            let keys = keys(schema, 22, false);
            keys.into_iter().map(|key| key.0).collect::<Vec<_>>()
        };
        assert_eq!(names(&schema), ["__attr", "%FF%2F", "__dim_0", "__dim_1"]);
        schema.attributes[1].name = b"__attr".to_vec();
        let names = names(&schema);
        assert_eq!(names[0], "__attr");
        assert!(names[1].starts_with("__attr~"));
    }
}
