//! `consolidated_metadata.json`: the copies of footers in consolidated fragment metadata files (`.meta`).

use super::render::{self, line};
use super::{Json, object, value};
use crate::error::Error;
use crate::layout::segments::{Cutter, Parts, Segments};
use std::ops::Range;

/// A consolidated fragment metadata file.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsolidatedMetadata {
    /// Its path relative to the array.
    pub path: Vec<u8>,
    /// Milliseconds since the Unix epoch, both inclusive; None if the name is malformed.
    pub timestamp_range: Option<(u64, u64)>,
    /// Format version; None if the name is malformed.
    pub format_version: Option<u32>,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// The number of fragments in the file, or why they cannot be read.
    pub fragments: Result<usize, String>,
}

/// The copy of one fragment's footer in a consolidated fragment metadata file.
#[derive(Debug, Clone, PartialEq)]
pub struct RepeatedFooter {
    /// As written: the name of the fragment's directory, or an absolute URI.
    pub name: Vec<u8>,
    /// Byte offset of the footer in the unfiltered file.
    pub offset: u64,
    /// The footer, as in `footer.json`; None if it cannot be parsed.
    pub footer: Option<Json>,
    /// Whether it equals the fragment's own footer; None if that is unknown.
    pub matches: Option<bool>,
    /// The first difference, or why it is unknown.
    pub difference: Option<String>,
}

/// Reads copies of footers.
pub trait FooterSource: Send + Sync {
    /// The copy for fragment number `index` in file number `file`.
    fn footer(&self, file: usize, index: usize) -> Result<RepeatedFooter, Error>;
}

/// The document. Files are in the order of `files`, fragments in that of their file.
pub fn consolidated_metadata_segments(
    files: Vec<ConsolidatedMetadata>,
    footers: impl FooterSource + 'static,
) -> Result<Segments, Error> {
    /// About how many bytes a footer takes as text.
    const FOOTER: u64 = 3000;
    let mut cutter = Cutter::new();
    for file in &files {
        cutter.part();
        cutter.items(count(file), FOOTER)?;
    }
    Ok(cutter.finish(Document {
        files,
        footers: Box::new(footers),
    }))
}

fn count(file: &ConsolidatedMetadata) -> u64 {
    file.fragments.as_ref().map_or(0, |&count| count as u64)
}

struct Document {
    files: Vec<ConsolidatedMetadata>,
    footers: Box<dyn FooterSource>,
}

impl Parts for Document {
    fn write(&self, part: usize, items: Range<u64>, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.files.is_empty() {
            out.extend_from_slice(b"[]\n");
            return Ok(());
        }
        let file = &self.files[part];
        if items.start == 0 {
            out.push(if part == 0 { b'[' } else { b',' });
            line(out, 1);
            let name = crate::format::commits::last_component(&file.path);
            let fields = [
                ("name", value::name(name)),
                ("path", value::name(&file.path)),
                (
                    "timestamp_range",
                    file.timestamp_range.map(<[u64; 2]>::from).into(),
                ),
                ("format_version", file.format_version.into()),
                ("size", file.size.into()),
            ];
            render::begin_object(out, &fields, 1);
            out.push(b',');
            render::key(out, "fragments", 2);
            out.extend_from_slice(if file.fragments.is_ok() { b"[" } else { b"null" });
        }
        for index in items.clone() {
            if index > 0 {
                out.push(b',');
            }
            line(out, 3);
            let fragment = self.footers.footer(part, index as usize)?;
            let shown = object!({
                "name": value::name(&fragment.name),
                "offset": fragment.offset,
                "matches": fragment.matches,
                "difference": fragment.difference,
                "footer": fragment.footer,
            });
            render::write_value(out, &shown, 3);
        }
        if items.end >= count(file) {
            if count(file) > 0 {
                line(out, 2);
            }
            if file.fragments.is_ok() {
                out.push(b']');
            }
            out.push(b',');
            render::key(out, "error", 2);
            render::write_value(out, &file.fragments.as_ref().err().cloned().into(), 2);
            line(out, 1);
            out.push(b'}');
            if part + 1 == self.files.len() {
                out.extend_from_slice(b"\n]\n");
            }
        }
        Ok(())
    }
}

/// The first difference of two documents, as a path with both values; None if they are equal.
pub fn difference(here: &Json, own: &Json) -> Option<String> {
    match (here, own) {
        _ if here == own => None,
        (Json::Object(a), Json::Object(b)) if a.len() == b.len() => a.iter().find_map(|(key, value)| {
            let other = b.iter().find(|(other, _)| other == key);
            let below = difference(value, other.map_or(&Json::Null, |(_, value)| value))?;
            let separator = if below.starts_with(':') { "" } else { "." };
            Some(format!("{key}{separator}{below}"))
        }),
        _ => Some(format!(": {here} here, {own} in the fragment's own footer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_file_has_all_keys_in_order() {
        let file = ConsolidatedMetadata {
            path: b"__fragment_meta/__1_2_ab_22.meta".to_vec(),
            timestamp_range: Some((1, 2)),
            format_version: Some(22),
            size: Some(300),
            fragments: Ok(1),
        };
        struct One;
        impl FooterSource for One {
            fn footer(&self, file: usize, index: usize) -> Result<RepeatedFooter, Error> {
                assert_eq!((file, index), (0, 0));
                Ok(RepeatedFooter {
                    name: b"__1_1_cd_22".to_vec(),
                    offset: 64,
                    footer: Some(object!({"dense": true})),
                    matches: Some(true),
                    difference: None,
                })
            }
        }
        let empty = ConsolidatedMetadata {
            fragments: Ok(0),
            ..file.clone()
        };
        let damaged = ConsolidatedMetadata {
            path: b"x.meta".to_vec(),
            timestamp_range: None,
            format_version: None,
            size: None,
            fragments: Err("cut off".to_string()),
        };
        let text = |files: Vec<ConsolidatedMetadata>| {
            let text = consolidated_metadata_segments(files, One)
                .unwrap()
                .render()
                .unwrap();
            let json: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(
                String::from_utf8(text).unwrap(),
                String::from_utf8(render::render(&json.clone().into())).unwrap()
            );
            json
        };
        assert_eq!(text(vec![]), json!([]));
        assert_eq!(text(vec![empty])[0]["fragments"], json!([]));
        assert_eq!(
            text(vec![file, damaged]).to_string(),
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
        let footer = |size: u64| object!({"a": 1, "fields": object!({"x": object!({"size": 5}), "y": object!({"size": size})})});
        assert_eq!(difference(&footer(6), &footer(6)), None);
        assert_eq!(
            difference(&footer(7), &footer(6)).unwrap(),
            "fields.y.size: 7 here, 6 in the fragment's own footer"
        );
        let other = object!({"fields": object!({"x": 5})});
        assert_eq!(
            difference(&other, &object!({"a": [1, 2], "b": value::hex(&[1])})).unwrap(),
            r#": {"fields":{"x":5}} here, {"a":[1,2],"b":{"hex":"01"}} in the fragment's own footer"#
        );
    }
}
