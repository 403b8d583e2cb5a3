//! The fields in the metadata of a fragment, and their keys in documents.

use super::Json;
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::fragment::Slots;
use crate::format::schema::Schema;
use crate::names;

/// A field that has a slot in the lists of a fragment's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredField {
    /// Its key in JSON objects: its name; `__attr` or `__dim_<i>` if it has none. No two fields of a fragment
    /// have the same key.
    pub key: String,
    /// Its index in the lists.
    pub slot: usize,
    /// Type of a value.
    pub datatype: Datatype,
    /// Values a cell.
    pub cell_val_num: CellValNum,
    /// Whether cells may be null.
    pub nullable: bool,
    /// Whether it is a dimension with files of its own (not zipped). A dense fragment stores none of these.
    pub dimension: bool,
}

/// The fields of a fragment in the order of their slots: the attributes; the zipped `__coords` below version
/// 5, or the dimensions from version 5 on; the internal fields that the fragment has. From version 5 on there
/// still is a slot for coordinates, which is left out.
pub fn stored_fields(schema: &Schema, slots: &Slots) -> Vec<StoredField> {
    let field = |key: String, slot, datatype, cell_val_num, nullable| StoredField {
        key,
        slot,
        datatype,
        cell_val_num,
        nullable,
        dimension: false,
    };
    let one = CellValNum::Fixed(1);
    let mut fields = Vec::new();
    for (i, a) in schema.attributes.iter().enumerate() {
        let key = if a.name.is_empty() {
            names::attribute(b"")
        } else {
            names::key(&a.name)
        };
        fields.push(field(
            key,
            slots.attribute(i),
            a.datatype,
            a.cell_val_num,
            a.nullable,
        ));
    }
    if slots.version < 5 {
        let datatype = schema.dimensions.first().map_or(Datatype::Uint64, |d| d.datatype);
        fields.push(field(
            "__coords".to_string(),
            slots.coords(),
            datatype,
            one,
            false,
        ));
    }
    for (i, d) in schema.dimensions.iter().enumerate() {
        if let Some(slot) = slots.dimension(i) {
            let key = if d.name.is_empty() {
                names::dimension(b"", i)
            } else {
                names::key(&d.name)
            };
            fields.push(StoredField {
                dimension: true,
                ..field(key, slot, d.datatype, d.cell_val_num, false)
            });
        }
    }
    for (key, slot) in [
        ("__timestamps", slots.timestamps()),
        ("__delete_timestamps", slots.delete_timestamps()),
        ("__delete_condition_index", slots.delete_condition_index()),
    ] {
        if let Some(slot) = slot {
            fields.push(field(key.to_string(), slot, Datatype::Uint64, one, false));
        }
    }
    let keys = names::unique(fields.iter().map(|f| f.key.clone()).collect(), usize::MAX);
    for (field, key) in fields.iter_mut().zip(keys) {
        field.key = key;
    }
    fields
}

/// An object with one entry for each field.
pub fn by_field(fields: &[StoredField], value: impl Fn(&StoredField) -> Json) -> Json {
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
            version,
            attributes: schema.attributes.len(),
            dimensions: schema.dimensions.len(),
            has_timestamps: extra,
            has_delete_metadata: extra,
        };
        stored_fields(schema, &slots)
            .into_iter()
            .map(|f| (f.key, f.slot))
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
        let slots = Slots {
            version: 5,
            attributes: 2,
            dimensions: 2,
            has_timestamps: false,
            has_delete_metadata: false,
        };
        let fields = stored_fields(&schema, &slots);
        let dimensions: Vec<_> = fields.iter().map(|field| field.dimension).collect();
        assert_eq!(dimensions, [false, false, true, true]);
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
