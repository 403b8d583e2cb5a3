//! `fragments.json`: the fragments of an array, committed or not.

use super::{Json, object, value};

/// One fragment in the list. A value is None if the format version does not have it, or it cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct FragmentSummary {
    /// Name of its directory.
    pub name: Vec<u8>,
    /// Format version of its metadata.
    pub format_version: Option<u32>,
    /// Milliseconds since the Unix epoch, both inclusive.
    pub timestamp_range: Option<(u64, u64)>,
    /// Whether the fragment is dense.
    pub dense: Option<bool>,
    /// Cells stored, the padding of dense tiles included.
    pub cell_num: Option<u64>,
    /// Tiles of each field.
    pub tile_num: Option<u64>,
    /// The size of all its files together, in bytes.
    pub size: Option<u64>,
    /// File name of the schema that it was written with.
    pub schema_name: Option<Vec<u8>>,
    /// Its non-empty domain as [`value::rect`] gives it with that schema.
    pub non_empty_domain: Option<Json>,
    /// Whether a `.meta` file holds its footer too.
    pub has_consolidated_metadata: Option<bool>,
    /// Whether a reader that opens the array now would see it.
    pub visible: bool,
    /// Why it is not visible, or what is wrong with it.
    pub reason: Option<String>,
}

/// One object of the document. The document is an array of these, oldest fragment first.
pub fn entry_json(entry: &FragmentSummary) -> Json {
    object!({
        "name": value::name(&entry.name),
        "format_version": entry.format_version,
        "timestamp_range": entry.timestamp_range.map(<[u64; 2]>::from),
        "dense": entry.dense,
        "cell_num": entry.cell_num,
        "tile_num": entry.tile_num,
        "size": entry.size,
        "schema_name": entry.schema_name.as_ref().map(|name| value::name(name)),
        "non_empty_domain": entry.non_empty_domain.clone(),
        "has_consolidated_metadata": entry.has_consolidated_metadata,
        "visible": entry.visible,
        "reason": entry.reason.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_all_keys_in_order_and_null_for_what_is_not_known() {
        let whole = FragmentSummary {
            name: b"__1_2_ab_22".to_vec(),
            format_version: Some(22),
            timestamp_range: Some((1, 2)),
            dense: Some(true),
            cell_num: Some(16),
            tile_num: Some(4),
            size: Some(1234),
            schema_name: Some(b"__1_1_cd".to_vec()),
            non_empty_domain: Some(Json::from([[1, 4], [1, 4]])),
            has_consolidated_metadata: Some(false),
            visible: true,
            reason: None,
        };
        let damaged = FragmentSummary {
            name: b"__\xFF".to_vec(),
            format_version: None,
            timestamp_range: None,
            dense: None,
            cell_num: None,
            tile_num: None,
            size: None,
            schema_name: None,
            non_empty_domain: None,
            has_consolidated_metadata: None,
            visible: false,
            reason: Some("no commit".to_string()),
        };
        assert_eq!(
            Json::from([entry_json(&whole), entry_json(&damaged)]).to_string(),
            concat!(
                r#"[{"name":"__1_2_ab_22","format_version":22,"timestamp_range":[1,2],"dense":true,"cell_num":16,"#,
                r#""tile_num":4,"size":1234,"schema_name":"__1_1_cd","non_empty_domain":[[1,4],[1,4]],"#,
                r#""has_consolidated_metadata":false,"visible":true,"reason":null},"#,
                r#"{"name":{"hex":"5f5fff"},"format_version":null,"timestamp_range":null,"dense":null,"cell_num":null,"#,
                r#""tile_num":null,"size":null,"schema_name":null,"non_empty_domain":null,"#,
                r#""has_consolidated_metadata":null,"visible":false,"reason":"no commit"}]"#,
            )
        );
    }
}
