//! `consolidated_metadata.json`: the footers that consolidated fragment metadata files (`.meta`) repeat.

use super::value;
use serde_json::{Value, json};

/// A consolidated fragment metadata file.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsolidatedMetadata {
    /// Its path relative to the array.
    pub path: Vec<u8>,
    /// Milliseconds since the Unix epoch, both inclusive, where its name tells.
    pub timestamp_range: Option<(u64, u64)>,
    /// Format version, where its name tells.
    pub format_version: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// The fragments in the order of the file, or why they cannot be read.
    pub fragments: Result<Vec<RepeatedFooter>, String>,
}

/// What a consolidated fragment metadata file has of one fragment.
#[derive(Debug, Clone, PartialEq)]
pub struct RepeatedFooter {
    /// As written: the name of the fragment's directory, or an absolute URI.
    pub name: Vec<u8>,
    /// Where its footer begins in the unfiltered file.
    pub offset: u64,
    /// The footer, as in `footer.json`; None where it cannot be parsed.
    pub footer: Option<Value>,
    /// Whether it is the fragment's own footer; None where that cannot be told.
    pub matches: Option<bool>,
    /// What is different, or why it cannot be told.
    pub difference: Option<String>,
}

/// The document, in the order of `files`.
pub fn consolidated_metadata_json(files: &[ConsolidatedMetadata]) -> Value {
    files.iter().map(file_json).collect()
}

fn file_json(file: &ConsolidatedMetadata) -> Value {
    let name = crate::format::commits::last_component(&file.path);
    let fragments = file.fragments.as_ref();
    json!({
        "name": value::name(name),
        "path": value::name(&file.path),
        "timestamp_range": file.timestamp_range.map(|(start, end)| [start, end]),
        "format_version": file.format_version,
        "size": file.size,
        "fragments": fragments.ok().map(|fragments| fragments.iter().map(|fragment| json!({
            "name": value::name(&fragment.name),
            "offset": fragment.offset,
            "matches": fragment.matches,
            "difference": fragment.difference,
            "footer": fragment.footer,
        })).collect::<Value>()),
        "error": fragments.err(),
    })
}

/// Where two documents differ first, as a path with both values.
pub fn difference(here: &Value, own: &Value) -> Option<String> {
    match (here, own) {
        _ if here == own => None,
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => a.iter().find_map(|(key, value)| {
            let below = difference(value, b.get(key).unwrap_or(&Value::Null))?;
            let separator = if below.starts_with(':') { "" } else { "." };
            Some(format!("{key}{separator}{below}"))
        }),
        _ => Some(format!(": {here} here, {own} in the fragment's own footer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_all_keys_in_order() {
        let file = ConsolidatedMetadata {
            path: b"__fragment_meta/__1_2_ab_22.meta".to_vec(),
            timestamp_range: Some((1, 2)),
            format_version: Some(22),
            size: Some(300),
            fragments: Ok(vec![RepeatedFooter {
                name: b"__1_1_cd_22".to_vec(),
                offset: 64,
                footer: Some(json!({"dense": true})),
                matches: Some(true),
                difference: None,
            }]),
        };
        let damaged = ConsolidatedMetadata {
            path: b"x.meta".to_vec(),
            timestamp_range: None,
            format_version: None,
            size: None,
            fragments: Err("cut off".to_string()),
        };
        assert_eq!(
            consolidated_metadata_json(&[file, damaged]).to_string(),
            concat!(
                r#"[{"name":"__1_2_ab_22.meta","path":"__fragment_meta/__1_2_ab_22.meta","timestamp_range":[1,2],"format_version":22,"#,
                r#""size":300,"fragments":[{"name":"__1_1_cd_22","offset":64,"matches":true,"difference":null,"footer":{"dense":true}}],"#,
                r#""error":null},{"name":"x.meta","path":"x.meta","timestamp_range":null,"format_version":null,"size":null,"#,
                r#""fragments":null,"error":"cut off"}]"#,
            )
        );
    }

    #[test]
    fn the_first_difference_is_named() {
        let own = json!({"a": 1, "fields": {"x": {"size": 5}, "y": {"size": 6}}});
        let mut here = own.clone();
        assert_eq!(difference(&here, &own), None);
        here["fields"]["y"]["size"] = json!(7);
        assert_eq!(
            difference(&here, &own).unwrap(),
            "fields.y.size: 7 here, 6 in the fragment's own footer"
        );
        let other = json!({"fields": {"x": 5}});
        assert!(difference(&other, &own).unwrap().starts_with(": {"));
    }
}
