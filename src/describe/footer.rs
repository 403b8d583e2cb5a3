//! `footer.json`: the footer of a fragment's metadata file.

use super::fields::{KeyedField, by_field, keyed_fields};
use super::{Json, object, value};
use crate::format::fragment::footer::FooterPosition;
use crate::format::fragment::{Footer, FooterFront};
use crate::format::schema::Schema;
use crate::fragment::geometry::Geometry;
use crate::names;

/// A footer. `schema` is that of the fragment, `position` tells where the footer lies in the metadata file,
/// unless that is one with the sections, and `geometry` is derived from footer and schema.
pub fn footer_json(
    footer: &Footer,
    schema: &Schema,
    position: Option<FooterPosition>,
    geometry: &Geometry,
) -> Json {
    let fields = keyed_fields(schema, &footer.slots);
    object!({
        "format_version": footer.version,
        "array_schema_name": footer.schema_name.as_ref().map(|name| value::name(name)),
        "dense": footer.dense,
        "non_empty_domain": footer.non_empty_domain.as_ref()
            .map(|rect| value::rect(&schema.dimensions, rect)),
        "sparse_tile_num": footer.sparse_tile_num,
        "tile_num": geometry.tile_num,
        "last_tile_cell_num": footer.last_tile_cell_num,
        "cell_num": geometry.cell_num,
        "cells_in_domain": geometry.cells_in_domain,
        "has_timestamps": footer.slots.has_timestamps,
        "has_delete_metadata": footer.slots.has_delete_metadata,
        "fields": sizes_json(&fields, &footer.file_sizes, &footer.file_var_sizes, &footer.file_validity_sizes),
        "offsets": offsets_json(&fields, schema, footer),
        "footer_offset": position.map(|position| position.offset),
        "footer_size": position.map(|position| position.size),
        "optional_sections": footer.optional_sections.iter().map(|section| object!({
            "id": section.id,
            "size": section.data.len() as u64,
            "data": value::hex(&section.data),
        })).collect::<Json>(),
    })
}

/// A footer of an encrypted array whose key was not given. What can be parsed only with the schema is null.
pub fn clear_footer_json(front: &FooterFront, position: FooterPosition) -> Json {
    object!({
        "format_version": front.version,
        "array_schema_name": front.schema_name.as_ref().map(|name| value::name(name)),
        "dense": front.dense,
        "non_empty_domain": Json::Null,
        "sparse_tile_num": Json::Null,
        "tile_num": Json::Null,
        "last_tile_cell_num": Json::Null,
        "cell_num": Json::Null,
        "cells_in_domain": Json::Null,
        "has_timestamps": Json::Null,
        "has_delete_metadata": Json::Null,
        "fields": Json::Null,
        "offsets": Json::Null,
        "footer_offset": position.offset,
        "footer_size": position.size,
        "optional_sections": Json::Null,
    })
}

/// The file sizes of each field in bytes; null for files that a field does not have.
fn sizes_json(fields: &[KeyedField], fixed: &[u64], var: &[u64], validity: &[u64]) -> Json {
    by_field(fields, |field| {
        object!({
            "file_size": fixed[field.stored.slot],
            "file_var_size": var.get(field.stored.slot).copied().filter(|_| field.stored.cell_val_num.is_var()),
            "file_validity_size": validity.get(field.stored.slot).copied().filter(|_| field.stored.nullable),
        })
    })
}

/// The byte offset of each section in the metadata file; null for sections that the version does not have.
fn offsets_json(fields: &[KeyedField], schema: &Schema, footer: &Footer) -> Json {
    let sections = &footer.offsets;
    let list = |offsets: &[u64]| match offsets {
        [] => Json::Null,
        _ => by_field(fields, |field| offsets.get(field.stored.slot).copied().into()),
    };
    // The sections of global-order minima and maxima are indexed by dimension, not by slot.
    let dimensions = |offsets: &[u64]| match offsets {
        [] => Json::Null,
        _ => {
            let keys = schema.dimensions.iter().enumerate().map(|(i, dimension)| {
                if dimension.name.is_empty() {
                    names::dimension(b"", i)
                } else {
                    names::key(&dimension.name)
                }
            });
            let keys = names::unique(keys.collect(), usize::MAX);
            let entries = keys.into_iter().enumerate();
            entries
                .map(|(i, key)| (key, offsets.get(i).copied().into()))
                .collect()
        }
    };
    object!({
        "rtree": footer.inline.is_none().then_some(sections.rtree),
        "tile_offsets": list(&sections.tile_offsets),
        "tile_var_offsets": list(&sections.tile_var_offsets),
        "tile_var_sizes": list(&sections.tile_var_sizes),
        "tile_validity_offsets": list(&sections.tile_validity_offsets),
        "tile_mins": list(&sections.tile_mins),
        "tile_maxs": list(&sections.tile_maxs),
        "tile_sums": list(&sections.tile_sums),
        "tile_null_counts": list(&sections.tile_null_counts),
        "fragment_statistics": sections.fragment_statistics,
        "processed_conditions": sections.processed_conditions,
        "global_order_mins": dimensions(&sections.global_order_mins),
        "global_order_maxs": dimensions(&sections.global_order_maxs),
    })
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::example;
    use super::*;
    use crate::cursor::Cursor;
    use crate::format::datatype::Datatype;
    use crate::format::fragment::Slots;
    use crate::format::fragment::StoredBoxes;
    use crate::format::fragment::footer::{OptionalSection, SectionOffsets};
    use crate::format::fragment::legacy::InlineSections;
    use crate::format::range::Range;

    fn compact(text: &str) -> String {
        text.replace('\n', "").replace("  ", "")
    }

    #[test]
    fn a_footer_has_all_keys_in_order() {
        let schema = example();
        let slots = Slots {
            version: 23,
            attributes: 2,
            dimensions: 2,
            has_timestamps: true,
            has_delete_metadata: false,
        };
        // Slots: a, s, the dead one of the coordinates, x, y, timestamps.
        let list = |start: u64| (start..start + 6).collect::<Vec<u64>>();
        let footer = Footer {
            version: 23,
            schema_name: Some(b"__1_1_ab".to_vec()),
            dense: false,
            non_empty_domain: Some(vec![
                Range {
                    lo: vec![1, 0],
                    hi: vec![2, 0],
                },
                Range {
                    lo: b"p".to_vec(),
                    hi: b"q".to_vec(),
                },
            ]),
            sparse_tile_num: 3,
            last_tile_cell_num: 1,
            file_sizes: list(10),
            file_var_sizes: list(20),
            file_validity_sizes: list(30),
            offsets: SectionOffsets {
                rtree: 0,
                tile_offsets: list(100),
                tile_var_offsets: list(200),
                tile_var_sizes: list(300),
                tile_validity_offsets: list(400),
                tile_mins: list(500),
                tile_maxs: list(600),
                tile_sums: list(700),
                tile_null_counts: list(800),
                fragment_statistics: Some(900),
                processed_conditions: Some(910),
                global_order_mins: vec![920, 921],
                global_order_maxs: vec![930, 931],
            },
            inline: None,
            optional_sections: vec![OptionalSection {
                id: 7,
                data: vec![1, 0xFF],
            }],
            slots,
        };
        let by = |start: u64| {
            format!(
                r#"{{"a":{},"s":{},"x":{},"y":{},"__timestamps":{}}}"#,
                start,
                start + 1,
                start + 3,
                start + 4,
                start + 5
            )
        };
        let position = FooterPosition {
            offset: 1000,
            size: 500,
        };
        let expected = compact(
            r#"{"format_version":23,"array_schema_name":"__1_1_ab","dense":false,"non_empty_domain":[[1,2],["p","q"]],
            "sparse_tile_num":3,"tile_num":3,"last_tile_cell_num":1,"cell_num":21,"cells_in_domain":21,"has_timestamps":true,"has_delete_metadata":false,
            "fields":{
                "a":{"file_size":10,"file_var_size":null,"file_validity_size":null},
                "s":{"file_size":11,"file_var_size":21,"file_validity_size":31},
                "x":{"file_size":13,"file_var_size":null,"file_validity_size":null},
                "y":{"file_size":14,"file_var_size":24,"file_validity_size":null},
                "__timestamps":{"file_size":15,"file_var_size":null,"file_validity_size":null}},
            "offsets":{"rtree":0,"tile_offsets":F100,"tile_var_offsets":F200,"tile_var_sizes":F300,"tile_validity_offsets":F400,
                "tile_mins":F500,"tile_maxs":F600,"tile_sums":F700,"tile_null_counts":F800,
                "fragment_statistics":900,"processed_conditions":910,
                "global_order_mins":{"x":920,"y":921},"global_order_maxs":{"x":930,"y":931}},
            "footer_offset":1000,"footer_size":500,
            "optional_sections":[{"id":7,"size":2,"data":{"hex":"01ff"}}]}"#,
        );
        let expected = (1..=8).fold(expected, |text, i| text.replace(&format!("F{i}00"), &by(100 * i)));
        assert_eq!(
            footer_json(
                &footer,
                &schema,
                Some(position),
                &Geometry::new(3, 10, 1).unwrap()
            )
            .to_string(),
            expected
        );
    }

    #[test]
    fn what_version_3_lacks_is_null() {
        let schema = example();
        let footer = Footer {
            version: 3,
            schema_name: None,
            dense: true,
            non_empty_domain: None,
            sparse_tile_num: 0,
            last_tile_cell_num: 4,
            file_sizes: vec![10, 11, 12],
            file_var_sizes: vec![20, 21],
            file_validity_sizes: vec![],
            offsets: SectionOffsets {
                rtree: 5,
                tile_offsets: vec![1, 2, 3],
                tile_var_offsets: vec![4, 5],
                tile_var_sizes: vec![6, 7],
                ..SectionOffsets::default()
            },
            inline: None,
            optional_sections: vec![],
            slots: Slots {
                version: 3,
                attributes: 2,
                dimensions: 2,
                has_timestamps: false,
                has_delete_metadata: false,
            },
        };
        let position = FooterPosition { offset: 50, size: 60 };
        let padded = Geometry {
            cells_in_domain: 3,
            ..Geometry::new(1, 4, 4).unwrap()
        };
        let expected = compact(
            r#"{"format_version":3,"array_schema_name":null,"dense":true,"non_empty_domain":null,
            "sparse_tile_num":0,"tile_num":1,"last_tile_cell_num":4,"cell_num":4,"cells_in_domain":3,"has_timestamps":false,"has_delete_metadata":false,
            "fields":{
                "a":{"file_size":10,"file_var_size":null,"file_validity_size":null},
                "s":{"file_size":11,"file_var_size":21,"file_validity_size":null},
                "__coords":{"file_size":12,"file_var_size":null,"file_validity_size":null}},
            "offsets":{"rtree":5,"tile_offsets":{"a":1,"s":2,"__coords":3},
                "tile_var_offsets":{"a":4,"s":5,"__coords":null},"tile_var_sizes":{"a":6,"s":7,"__coords":null},
                "tile_validity_offsets":null,"tile_mins":null,"tile_maxs":null,"tile_sums":null,"tile_null_counts":null,
                "fragment_statistics":null,"processed_conditions":null,"global_order_mins":null,"global_order_maxs":null},
            "footer_offset":50,"footer_size":60,"optional_sections":[]}"#,
        );
        assert_eq!(
            footer_json(&footer, &schema, Some(position), &padded).to_string(),
            expected
        );
    }

    #[test]
    fn a_footer_with_inline_sections_has_the_same_keys() {
        let schema = example();
        let bounds = Range {
            lo: vec![1, 0],
            hi: vec![2, 0],
        };
        let x = [crate::format::testing::field("x", Datatype::Int16)];
        let of_x = crate::format::testing::schema(2, true, &x, &[]);
        let mut boxes = Cursor::new(&[1, 0, 2, 0, 1, 0, 2, 0]);
        let footer = Footer {
            version: 2,
            schema_name: None,
            dense: false,
            non_empty_domain: Some(vec![bounds]),
            sparse_tile_num: 2,
            last_tile_cell_num: 5,
            file_sizes: vec![10, 11, 12],
            file_var_sizes: vec![0, 21],
            file_validity_sizes: vec![],
            offsets: SectionOffsets::default(),
            inline: Some(InlineSections {
                mbrs: StoredBoxes::parse(&mut boxes, 2, &of_x, "mbrs").unwrap(),
                tile_offsets: vec![],
                tile_var_offsets: vec![],
                tile_var_sizes: vec![],
            }),
            optional_sections: vec![],
            slots: Slots {
                version: 2,
                attributes: 2,
                dimensions: 2,
                has_timestamps: false,
                has_delete_metadata: false,
            },
        };
        let geometry = Geometry::new(2, 10, 5).unwrap();
        let expected = compact(
            r#"{"format_version":2,"array_schema_name":null,"dense":false,"non_empty_domain":[[1,2]],
            "sparse_tile_num":2,"tile_num":2,"last_tile_cell_num":5,"cell_num":15,"cells_in_domain":15,"has_timestamps":false,"has_delete_metadata":false,
            "fields":{
                "a":{"file_size":10,"file_var_size":null,"file_validity_size":null},
                "s":{"file_size":11,"file_var_size":21,"file_validity_size":null},
                "__coords":{"file_size":12,"file_var_size":null,"file_validity_size":null}},
            "offsets":{"rtree":null,"tile_offsets":null,"tile_var_offsets":null,"tile_var_sizes":null,"tile_validity_offsets":null,
                "tile_mins":null,"tile_maxs":null,"tile_sums":null,"tile_null_counts":null,
                "fragment_statistics":null,"processed_conditions":null,"global_order_mins":null,"global_order_maxs":null},
            "footer_offset":null,"footer_size":null,"optional_sections":[]}"#,
        );
        assert_eq!(
            footer_json(&footer, &schema, None, &geometry).to_string(),
            expected
        );
    }
}
