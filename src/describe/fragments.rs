//! `fragments.json`: the fragments of an array, committed or not.

use super::{Json, object, value};
use crate::catalog::commits::NotVisible;
use crate::catalog::listing::FragmentEntry;
use crate::error::{Error, ErrorKind, Result};
use crate::fragment::Outline;
use crate::runtime::requester::settled;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One fragment in the list. A value is None if the format version does not have it, or it cannot be read.
pub struct FragmentSummary {
    /// Name of its directory.
    pub name: String,
    /// Format version of its metadata.
    pub format_version: Option<u32>,
    /// Milliseconds since the Unix epoch, both inclusive.
    pub timestamps: (u64, u64),
    /// Whether the fragment is dense.
    pub dense: Option<bool>,
    /// File name of the schema that it was written with.
    pub schema_name: Option<Vec<u8>>,
    /// Its cells, tiles, size and non-empty domain. The size is known.
    pub outline: Option<Arc<Outline>>,
    /// Whether a reader that opens the array now would see it.
    pub visible: bool,
    /// Why it is not visible, or what is wrong with it.
    pub reason: Option<String>,
}

impl FragmentSummary {
    /// What is known of a fragment, which is not visible if it is `hidden`. What cannot be read is logged,
    /// and sets `errors` unless it is for the lack of a key. Fails if nobody waits.
    pub fn of(
        entry: &FragmentEntry,
        hidden: Option<&NotVisible>,
        errors: &AtomicBool,
    ) -> Result<FragmentSummary> {
        let name = &entry.fragment.name;
        let mut out = FragmentSummary {
            name: entry.name.clone(),
            format_version: name.version,
            timestamps: name.timestamps,
            dense: None,
            schema_name: None,
            outline: None,
            visible: hidden.is_none(),
            reason: hidden.map(NotVisible::to_string),
        };
        match settled(entry.fragment.look_at_outline().and_then(sized))? {
            Ok(outline) => {
                out.format_version = Some(outline.version);
                out.dense = Some(outline.dense);
                out.schema_name = Some(outline.schema_name.clone().into_bytes());
                out.outline = Some(outline);
            }
            Err(e) => {
                // Without the key, the unencrypted part of the footer is shown. Not a transient error.
                let locked = matches!(e.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey);
                errors.fetch_or(!locked, Ordering::Relaxed);
                if locked && let Ok(Some((front, _))) = entry.fragment.clear_footer() {
                    out.format_version = Some(front.version);
                    out.dense = Some(front.dense);
                    out.schema_name = front.schema_name;
                }
                log::warn!("{e}");
                out.reason = Some(match out.reason {
                    Some(reason) => format!("{reason}; {e}"),
                    None => e.to_string(),
                });
            }
        }
        Ok(out)
    }
}

/// Fails if the size of all files of the fragment, its metadata included, is unknown.
fn sized(outline: Arc<Outline>) -> Result<Arc<Outline>> {
    match outline.size {
        Some(_) => Ok(outline),
        None => Err(Error::limit("the files take more than 2^64 bytes").at(0)),
    }
}

/// One object of the document. The document is an array of these, oldest fragment first. `repeated` is
/// whether a `.meta` file holds its footer too, if that is known.
pub fn entry_json(entry: &FragmentSummary, repeated: Option<bool>) -> Json {
    let outline = entry.outline.as_deref();
    let domain = outline.and_then(|outline| Some((outline, outline.domain.as_ref()?)));
    object!({
        "name": entry.name.clone(),
        "format_version": entry.format_version,
        "timestamp_range": <[u64; 2]>::from(entry.timestamps),
        "dense": entry.dense,
        "cell_num": outline.map(|outline| outline.cells),
        "tile_num": outline.map(|outline| outline.tiles),
        "size": outline.and_then(|outline| outline.size),
        "schema_name": entry.schema_name.as_ref().map(|name| value::name(name)),
        "non_empty_domain": domain.map(|(outline, domain)| value::rect(&outline.schema.dimensions, domain)),
        "has_consolidated_metadata": repeated,
        "visible": entry.visible,
        "reason": entry.reason.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::example;
    use super::*;
    use crate::format::range::Range;

    #[test]
    fn an_entry_has_all_keys_in_order_and_null_for_what_is_not_known() {
        let range = |lo: &[u8], hi: &[u8]| Range {
            lo: lo.to_vec(),
            hi: hi.to_vec(),
        };
        let outline = Outline {
            domain: Some(vec![range(&[1, 0], &[4, 0]), range(b"a", b"m")]),
            dense: false,
            cells: 16,
            timed: false,
            tiles: 4,
            size: Some(1234),
            version: 22,
            schema: Arc::new(example()),
            schema_name: "__1_1_cd".to_owned(),
        };
        let whole = FragmentSummary {
            name: "__1_2_ab_22".to_owned(),
            format_version: Some(22),
            timestamps: (1, 2),
            dense: Some(false),
            schema_name: Some(b"__1_1_cd".to_vec()),
            outline: Some(Arc::new(outline)),
            visible: true,
            reason: None,
        };
        assert_eq!(
            entry_json(&whole, Some(false)).to_string(),
            concat!(
                r#"{"name":"__1_2_ab_22","format_version":22,"timestamp_range":[1,2],"dense":false,"cell_num":16,"#,
                r#""tile_num":4,"size":1234,"schema_name":"__1_1_cd","non_empty_domain":[[1,4],["a","m"]],"#,
                r#""has_consolidated_metadata":false,"visible":true,"reason":null}"#,
            )
        );
        let damaged = FragmentSummary {
            name: "__1_2_ab".to_owned(),
            format_version: None,
            dense: None,
            schema_name: None,
            outline: None,
            visible: false,
            reason: Some("no commit".to_string()),
            ..whole
        };
        assert_eq!(
            entry_json(&damaged, None).to_string(),
            concat!(
                r#"{"name":"__1_2_ab","format_version":null,"timestamp_range":[1,2],"dense":null,"cell_num":null,"#,
                r#""tile_num":null,"size":null,"schema_name":null,"non_empty_domain":null,"#,
                r#""has_consolidated_metadata":null,"visible":false,"reason":"no commit"}"#,
            )
        );
    }
}
