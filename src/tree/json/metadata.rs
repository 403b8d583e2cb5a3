//! `metadata.json`: the key-value pairs of an array or group.

use super::value;
use crate::format::datatype::{CellValNum, Kind};
use crate::format::metadata::{MetadataEntry, MetadataValue};
use crate::tree::names;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The pairs that are left once the records of several files, oldest file first, have been replayed: each
/// record replaces or deletes the value of its key.
pub fn merge(files: impl IntoIterator<Item = Vec<MetadataEntry>>) -> BTreeMap<Vec<u8>, MetadataValue> {
    let mut pairs = BTreeMap::new();
    for entry in files.into_iter().flatten() {
        match entry.value {
            Some(value) => pairs.insert(entry.key, value),
            None => pairs.remove(&entry.key),
        };
    }
    pairs
}

/// The document: an object of `{"datatype", "value_num", "value"}` by key, ordered by the keys' bytes. A key
/// that is not UTF-8 is percent-encoded.
pub fn metadata_json(pairs: &BTreeMap<Vec<u8>, MetadataValue>) -> Value {
    let keys = pairs.keys().map(|key| names::key(key)).collect();
    let keys = names::unique(keys, usize::MAX);
    let entries = keys.into_iter().zip(pairs.values().map(value_json));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn value_json(metadata: &MetadataValue) -> Value {
    let MetadataValue {
        datatype, value_num, ..
    } = *metadata;
    let value = match value_num {
        0 => Value::Null,
        _ if datatype.kind() == Kind::Text => value::cell(datatype, CellValNum::Var, &metadata.value),
        n => value::cell(datatype, CellValNum::Fixed(n), &metadata.value),
    };
    json!({"datatype": datatype.name(), "value_num": value_num, "value": value})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::Datatype;

    fn entry(key: &[u8], datatype: Datatype, value_num: u32, value: &[u8]) -> MetadataEntry {
        MetadataEntry {
            key: key.to_vec(),
            value: Some(MetadataValue {
                datatype,
                value_num,
                value: value.to_vec(),
            }),
        }
    }

    fn deletion(key: &[u8]) -> MetadataEntry {
        MetadataEntry {
            key: key.to_vec(),
            value: None,
        }
    }

    #[test]
    fn values_are_scalars_arrays_or_strings() {
        let file = vec![
            entry(b"one", Datatype::Int16, 1, &[5, 0]),
            entry(b"many", Datatype::Int16, 2, &[1, 0, 2, 0]),
            entry(b"text", Datatype::StringUtf8, 3, b"abc"),
            entry(b"wide", Datatype::StringUtf16, 2, b"a\0b\0"),
            entry(b"empty", Datatype::StringUtf8, 0, b""),
            entry(b"blob", Datatype::Blob, 2, &[1, 0xFF]),
            entry(b"short", Datatype::Int32, 2, &[1, 0]),
            entry(b"\xFF/", Datatype::Bool, 1, &[1]),
            entry(b"", Datatype::Float64, 1, &f64::NAN.to_le_bytes()),
        ];
        assert_eq!(
            metadata_json(&merge([file])).to_string(),
            concat!(
                r#"{"":{"datatype":"FLOAT64","value_num":1,"value":"nan"},"#,
                r#""blob":{"datatype":"BLOB","value_num":2,"value":{"hex":"01ff"}},"#,
                r#""empty":{"datatype":"STRING_UTF8","value_num":0,"value":null},"#,
                r#""many":{"datatype":"INT16","value_num":2,"value":[1,2]},"#,
                r#""one":{"datatype":"INT16","value_num":1,"value":5},"#,
                r#""short":{"datatype":"INT32","value_num":2,"value":{"hex":"0100"}},"#,
                r#""text":{"datatype":"STRING_UTF8","value_num":3,"value":"abc"},"#,
                r#""wide":{"datatype":"STRING_UTF16","value_num":2,"value":"ab"},"#,
                r#""%FF%2F":{"datatype":"BOOL","value_num":1,"value":true}}"#,
            )
        );
    }

    #[test]
    fn later_records_win() {
        let files = [
            vec![
                entry(b"a", Datatype::Uint8, 1, &[1]),
                entry(b"b", Datatype::Uint8, 1, &[1]),
            ],
            vec![
                deletion(b"a"),
                entry(b"b", Datatype::Uint8, 1, &[2]),
                deletion(b"never"),
            ],
            vec![
                entry(b"c", Datatype::Uint8, 1, &[3]),
                deletion(b"c"),
                entry(b"c", Datatype::Uint8, 1, &[4]),
            ],
        ];
        let pairs = merge(files);
        let left: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (key.as_slice(), value.value[0]))
            .collect();
        assert_eq!(left, [(b"b".as_slice(), 2), (b"c".as_slice(), 4)]);
    }

    #[test]
    fn keys_that_look_the_same_are_both_there() {
        let file = vec![
            entry(b"%FF", Datatype::Uint8, 1, &[1]),
            entry(b"\xFF", Datatype::Uint8, 1, &[2]),
        ];
        let json = metadata_json(&merge([file]));
        assert_eq!(json["%FF"]["value"], json!(1));
        assert_eq!(json.as_object().map(Map::len), Some(2));
    }
}
