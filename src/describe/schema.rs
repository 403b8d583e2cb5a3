//! `schema.json` and `schemas/<name>.json`: array schemas.

use super::{Json, object, value};
use crate::format::pipeline::{Codec, Filter, Pipeline};
use crate::format::schema::{Attribute, Dimension, DimensionLabel, Schema};

/// The document of a schema. `name` is the name of its file.
pub fn schema_json(schema: &Schema, name: &str) -> Json {
    let dimensions = &schema.dimensions;
    object!({
        "format_version": schema.version,
        "name": name,
        "array_type": schema.array_type.name(),
        "allows_duplicates": schema.allows_duplicates,
        "tile_order": schema.tile_order.name(),
        "cell_order": schema.cell_order.name(),
        "capacity": schema.capacity,
        "coords_filters": pipeline_json(&schema.coords_filters),
        "offsets_filters": pipeline_json(&schema.offsets_filters),
        "validity_filters": schema.validity_filters.as_ref().map(pipeline_json),
        "dimensions": dimensions.iter().enumerate()
            .map(|(i, d)| dimension_json(schema, i, d))
            .collect::<Json>(),
        "attributes": schema.attributes.iter().map(attribute_json).collect::<Json>(),
        "dimension_labels": schema.dimension_labels.iter()
            .map(|label| label_json(label, dimensions))
            .collect::<Json>(),
        "enumerations": schema.enumerations.iter().map(|e| object!({
            "name": value::name(&e.name),
            "file": value::name(&e.file),
        })).collect::<Json>(),
        "current_domain": schema.current_domain.as_ref().map(|rect| value::rect(dimensions, rect)),
    })
}

/// A filter pipeline, with the filters in the order in which a writer applies them.
pub fn pipeline_json(pipeline: &Pipeline) -> Json {
    object!({
        "max_chunk_size": pipeline.max_chunk_size,
        "filters": pipeline.filters.iter().map(filter_json).collect::<Json>(),
    })
}

/// A filter: its type, then its options by the names that the format specification gives them.
fn filter_json(filter: &Filter) -> Json {
    let name = filter.name();
    match filter {
        Filter::Unknown { id, options } => {
            object!({"type": "UNKNOWN", "id": *id, "options": value::hex(options)})
        }
        Filter::Compression {
            codec: Codec::Delta | Codec::DoubleDelta,
            level,
            reinterpret,
        } => object!({
            "type": name,
            "level": *level,
            "reinterpret_datatype": reinterpret.map(|datatype| datatype.name()),
        }),
        Filter::Compression { level, .. } => object!({"type": name, "level": *level}),
        Filter::BitWidthReduction { max_window_size } | Filter::PositiveDelta { max_window_size } => {
            object!({"type": name, "max_window_size": *max_window_size})
        }
        Filter::ScaleFloat {
            scale,
            offset,
            byte_width,
        } => object!({"type": name, "scale": *scale, "offset": *offset, "byte_width": *byte_width}),
        Filter::Webp {
            quality,
            format,
            lossless,
            y_extent,
            x_extent,
        } => object!({
            "type": name,
            "quality": f64::from(*quality),
            "format": format.name(),
            "lossless": *lossless,
            "y_extent": *y_extent,
            "x_extent": *x_extent,
        }),
        Filter::Noop
        | Filter::Bitshuffle
        | Filter::Byteshuffle
        | Filter::Aes256Gcm
        | Filter::ChecksumMd5
        | Filter::ChecksumSha256
        | Filter::Xor => object!({"type": name}),
    }
}

/// A dimension, with the filter pipeline of its tiles: its own, or that for all coordinates if its own is
/// empty. Before version 5 dimensions have no tiles of their own, and it is empty.
fn dimension_json(schema: &Schema, index: usize, dimension: &Dimension) -> Json {
    let (datatype, cell_val_num) = (dimension.datatype, dimension.cell_val_num);
    object!({
        "name": value::name(&dimension.name),
        "datatype": datatype.name(),
        "cell_val_num": value::cell_val_num(cell_val_num),
        "domain": dimension.domain.as_ref().map(|domain| value::range(datatype, cell_val_num, domain)),
        "tile_extent": dimension.tile_extent.as_ref().map(|extent| value::element(datatype, extent)),
        "filters": pipeline_json(schema.dimension_filters(index)),
    })
}

fn attribute_json(attribute: &Attribute) -> Json {
    let Attribute {
        datatype,
        cell_val_num,
        ..
    } = *attribute;
    object!({
        "name": value::name(&attribute.name),
        "datatype": datatype.name(),
        "cell_val_num": value::cell_val_num(cell_val_num),
        "nullable": attribute.nullable,
        "fill_value": value::cell(datatype, cell_val_num, &attribute.fill_value),
        "fill_value_valid": attribute.fill_value_valid,
        "order": attribute.order.name(),
        "enumeration": attribute.enumeration.as_ref().map(|name| value::name(name)),
        "filters": pipeline_json(&attribute.filters),
    })
}

fn label_json(label: &DimensionLabel, dimensions: &[Dimension]) -> Json {
    let dimension = usize::try_from(label.dimension_index)
        .ok()
        .and_then(|i| dimensions.get(i));
    object!({
        "name": value::name(&label.name),
        "dimension_index": label.dimension_index,
        "dimension": dimension.map(|d| value::name(&d.name)),
        "uri": value::name(&label.uri),
        "relative": label.relative,
        "attribute": value::name(&label.attribute),
        "order": label.order.name(),
        "datatype": label.datatype.name(),
        "cell_val_num": value::cell_val_num(label.cell_val_num),
        "external": label.external,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::format::datatype::{CellValNum, Datatype};
    use crate::format::enums::{ArrayType, DataOrder, Layout, WebpFormat};
    use crate::format::range::Range;
    use crate::format::schema::EnumerationRef;
    use serde_json::{Value, json};

    /// A sparse schema of version 22 with the attributes `a` (INT32) and `s` (nullable var-sized UTF-8) over
    /// the dimensions `x` (INT16) and `y` (text). No filters.
    pub(crate) fn example() -> Schema {
        let none = Pipeline {
            max_chunk_size: 65536,
            filters: Vec::new(),
        };
        Schema {
            indexes: Default::default(),
            version: 22,
            allows_duplicates: true,
            array_type: ArrayType::Sparse,
            tile_order: Layout::RowMajor,
            cell_order: Layout::Hilbert,
            capacity: u64::MAX,
            coords_filters: none.clone(),
            offsets_filters: none.clone(),
            validity_filters: Some(none.clone()),
            dimensions: vec![
                Dimension {
                    name: b"x".to_vec(),
                    datatype: Datatype::Int16,
                    cell_val_num: CellValNum::Fixed(1),
                    filters: none.clone(),
                    domain: Some(Range {
                        lo: vec![0xFF, 0xFF],
                        hi: vec![9, 0],
                    }),
                    tile_extent: Some(vec![5, 0]),
                },
                Dimension {
                    name: b"y".to_vec(),
                    datatype: Datatype::StringAscii,
                    cell_val_num: CellValNum::Var,
                    filters: none.clone(),
                    domain: None,
                    tile_extent: None,
                },
            ],
            attributes: vec![
                Attribute {
                    name: b"a".to_vec(),
                    datatype: Datatype::Int32,
                    cell_val_num: CellValNum::Fixed(1),
                    filters: none.clone(),
                    fill_value: i32::MIN.to_le_bytes().to_vec(),
                    fill_value_valid: false,
                    nullable: false,
                    order: DataOrder::Unordered,
                    enumeration: Some(b"colours".to_vec()),
                },
                Attribute {
                    name: b"s".to_vec(),
                    datatype: Datatype::StringUtf8,
                    cell_val_num: CellValNum::Var,
                    filters: none,
                    fill_value: vec![0],
                    fill_value_valid: true,
                    nullable: true,
                    order: DataOrder::Increasing,
                    enumeration: None,
                },
            ],
            dimension_labels: vec![DimensionLabel {
                dimension_index: 1,
                name: b"l".to_vec(),
                relative: true,
                uri: b"__labels/l0".to_vec(),
                attribute: b"label".to_vec(),
                order: DataOrder::Decreasing,
                datatype: Datatype::StringAscii,
                cell_val_num: CellValNum::Var,
                external: false,
            }],
            enumerations: vec![EnumerationRef {
                name: b"colours".to_vec(),
                file: b"__1_0".to_vec(),
            }],
            current_domain: Some(vec![
                Range {
                    lo: vec![0, 0],
                    hi: vec![4, 0],
                },
                Range {
                    lo: b"a".to_vec(),
                    hi: b"m".to_vec(),
                },
            ]),
        }
    }

    #[test]
    fn a_schema_has_all_keys_in_order() {
        let none = r#"{"max_chunk_size":65536,"filters":[]}"#;
        let expected = r#"{"format_version":22,"name":"__1_1_ab","array_type":"sparse","allows_duplicates":true,
            "tile_order":"row-major","cell_order":"hilbert","capacity":18446744073709551615,
            "coords_filters":NONE,"offsets_filters":NONE,"validity_filters":NONE,
            "dimensions":[
                {"name":"x","datatype":"INT16","cell_val_num":1,"domain":[-1,9],"tile_extent":5,"filters":NONE},
                {"name":"y","datatype":"STRING_ASCII","cell_val_num":"var","domain":null,"tile_extent":null,"filters":NONE}],
            "attributes":[
                {"name":"a","datatype":"INT32","cell_val_num":1,"nullable":false,"fill_value":-2147483648,
                    "fill_value_valid":false,"order":"unordered","enumeration":"colours","filters":NONE},
                {"name":"s","datatype":"STRING_UTF8","cell_val_num":"var","nullable":true,"fill_value":"\u0000",
                    "fill_value_valid":true,"order":"increasing","enumeration":null,"filters":NONE}],
            "dimension_labels":[{"name":"l","dimension_index":1,"dimension":"y","uri":"__labels/l0","relative":true,
                "attribute":"label","order":"decreasing","datatype":"STRING_ASCII","cell_val_num":"var","external":false}],
            "enumerations":[{"name":"colours","file":"__1_0"}],
            "current_domain":[[0,4],["a","m"]]}"#
            .replace("NONE", none)
            .replace("\n", "")
            .replace("  ", "");
        assert_eq!(schema_json(&example(), "__1_1_ab").to_string(), expected);
    }

    #[test]
    fn what_an_old_schema_lacks_is_null() {
        let mut schema = example();
        schema.validity_filters = None;
        schema.current_domain = None;
        schema.dimension_labels[0].dimension_index = 7;
        let json = serde_json::to_value(schema_json(&schema, "__array_schema.tdb")).unwrap();
        for pointer in [
            "/validity_filters",
            "/current_domain",
            "/dimension_labels/0/dimension",
        ] {
            assert_eq!(json.pointer(pointer), Some(&Value::Null), "{pointer}");
        }
    }

    #[test]
    fn names_that_are_not_utf8_are_hexadecimal() {
        let mut schema = example();
        schema.attributes[0].name = vec![0xFF];
        schema.attributes[0].enumeration = Some(vec![0xFE]);
        let json = serde_json::to_value(schema_json(&schema, "x")).unwrap();
        assert_eq!(json["attributes"][0]["name"], json!({"hex": "ff"}));
        assert_eq!(json["attributes"][0]["enumeration"], json!({"hex": "fe"}));
    }

    #[test]
    fn filters_have_their_own_options() {
        let filters = |filters| {
            pipeline_json(&Pipeline {
                max_chunk_size: 1,
                filters,
            })
            .to_string()
        };
        let compression = |codec, reinterpret| Filter::Compression {
            codec,
            level: -1,
            reinterpret,
        };
        assert_eq!(
            filters(vec![
                compression(Codec::Zstd, None),
                compression(Codec::Delta, None),
                compression(Codec::DoubleDelta, Some(Datatype::Int32)),
                compression(Codec::Dictionary, None),
            ]),
            concat!(
                r#"{"max_chunk_size":1,"filters":[{"type":"ZSTD","level":-1},"#,
                r#"{"type":"DELTA","level":-1,"reinterpret_datatype":null},"#,
                r#"{"type":"DOUBLE_DELTA","level":-1,"reinterpret_datatype":"INT32"},"#,
                r#"{"type":"DICTIONARY_ENCODING","level":-1}]}"#,
            )
        );
        assert_eq!(
            filters(vec![
                Filter::Noop,
                Filter::BitWidthReduction { max_window_size: 256 },
                Filter::PositiveDelta {
                    max_window_size: 1024
                },
                Filter::ScaleFloat {
                    scale: 0.5,
                    offset: f64::NEG_INFINITY,
                    byte_width: 2
                },
                Filter::Xor,
            ]),
            concat!(
                r#"{"max_chunk_size":1,"filters":[{"type":"NONE"},"#,
                r#"{"type":"BIT_WIDTH_REDUCTION","max_window_size":256},"#,
                r#"{"type":"POSITIVE_DELTA","max_window_size":1024},"#,
                r#"{"type":"SCALE_FLOAT","scale":0.5,"offset":"-inf","byte_width":2},"#,
                r#"{"type":"XOR"}]}"#,
            )
        );
        assert_eq!(
            filters(vec![
                Filter::Webp {
                    quality: 100.0,
                    format: WebpFormat::Rgba,
                    lossless: true,
                    y_extent: 16,
                    x_extent: 64
                },
                Filter::Unknown {
                    id: 17,
                    options: vec![0xAB]
                },
            ]),
            concat!(
                r#"{"max_chunk_size":1,"filters":[{"type":"WEBP","quality":100.0,"format":"RGBA","#,
                r#""lossless":true,"y_extent":16,"x_extent":64},"#,
                r#"{"type":"UNKNOWN","id":17,"options":{"hex":"ab"}}]}"#,
            )
        );
    }
}
