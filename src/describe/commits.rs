//! `commits.json`: the commit files of an array, which say what fragments are committed and what is deleted.

use super::condition::{FieldLookup, condition_json, condition_text, constant};
use super::{Json, object, value};
use crate::catalog::commits::CommitKind;
use crate::format::condition::{Condition, UpdateValue};
use crate::query::deletes::StoredCondition;

/// The content of a commit file.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitContent {
    /// Nothing: the file's name commits a fragment (`ok`, `wrt`).
    Marker,
    /// The names of other commit files, and copies of them (`con`).
    Consolidated(Vec<ConsolidatedCommit>),
    /// Paths of ignored or vacuumed files (`ign`, `vac`).
    Paths(Vec<ListedPath>),
    /// A condition on cells, and the values that an update assigns. The condition of a delete is true for the
    /// cells that are kept.
    Condition(Condition, Option<Vec<UpdateValue>>),
    /// Why the content cannot be decoded.
    Damaged(String),
}

/// An entry of a consolidated commit file.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsolidatedCommit {
    /// The commit's path relative to the array, as written.
    pub path: Vec<u8>,
    /// If the entry is a copy of a delete or update file: its condition and the values that an update
    /// assigns, or why they cannot be decoded.
    pub condition: Option<Result<StoredCondition, String>>,
}

/// A line of an ignore or vacuum file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPath {
    /// As written: a relative path, a path with a leading slash, or an absolute URI.
    pub path: Vec<u8>,
    /// Relative to the array.
    pub normalised: Vec<u8>,
}

/// A commit file.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitEntry {
    /// Its file name.
    pub name: Vec<u8>,
    /// Its path relative to the array.
    pub path: Vec<u8>,
    /// Its purpose.
    pub kind: CommitKind,
    /// Milliseconds since the Unix epoch, both inclusive; None if the name is malformed.
    pub timestamp_range: Option<(u64, u64)>,
    /// Format version; None if the name is malformed.
    pub format_version: Option<u32>,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Its content.
    pub content: CommitContent,
}

/// What [`entry_json`] says of a delete condition.
const KEEPS: &str = "cells for which the condition is true; the others are deleted";

/// An entry of the document. Conditions are shown as a tree and as text. `lookup` gives the
/// types of their constants; constants of unknown fields are hexadecimal.
pub fn entry_json(entry: &CommitEntry, lookup: &FieldLookup) -> Json {
    let (entries, condition, values, error) = match &entry.content {
        CommitContent::Marker => (None, None, None, None),
        CommitContent::Consolidated(commits) => {
            let commits = commits.iter().map(|commit| consolidated_json(commit, lookup));
            (Some(commits.collect::<Json>()), None, None, None)
        }
        CommitContent::Paths(paths) => {
            let paths = paths.iter().map(|listed| {
                object!({"path": value::name(&listed.path), "normalised": value::name(&listed.normalised)})
            });
            (Some(paths.collect::<Json>()), None, None, None)
        }
        CommitContent::Condition(condition, values) => (None, Some(condition), values.as_ref(), None),
        CommitContent::Damaged(error) => (None, None, None, Some(error.as_str())),
    };
    let is_delete = entry.kind == CommitKind::Delete && condition.is_some();
    object!({
        "name": value::name(&entry.name),
        "path": value::name(&entry.path),
        "type": entry.kind.extension(),
        "timestamp_range": entry.timestamp_range.map(<[u64; 2]>::from),
        "format_version": entry.format_version,
        "size": entry.size,
        "entries": entries,
        "condition": condition.map(|condition| condition_json(condition, lookup)),
        "text": condition.map(|condition| condition_text(condition, lookup)),
        "keeps": is_delete.then_some(KEEPS),
        "values": values.map(|values| values_json(values, lookup)),
        "error": error,
    })
}

fn values_json(values: &[UpdateValue], lookup: &FieldLookup) -> Json {
    let value = |v: &UpdateValue| {
        object!({
            "field": value::name(&v.field),
            "value": constant(lookup(&v.field), &v.value),
        })
    };
    values.iter().map(value).collect()
}

fn consolidated_json(commit: &ConsolidatedCommit, lookup: &FieldLookup) -> Json {
    let (condition, values, error) = match &commit.condition {
        None => (None, None, None),
        Some(Ok((condition, values))) => (Some(condition), values.as_ref(), None),
        Some(Err(error)) => (None, None, Some(error.as_str())),
    };
    object!({
        "path": value::name(&commit.path),
        "condition": condition.map(|condition| condition_json(condition, lookup)),
        "text": condition.map(|condition| condition_text(condition, lookup)),
        "keeps": condition.filter(|_| values.is_none()).map(|_| KEEPS),
        "values": values.map(|values| values_json(values, lookup)),
        "error": error,
    })
}

#[cfg(test)]
mod tests {
    use super::super::condition::schema_lookup;
    use super::super::condition::tests::{combine, value};
    use super::super::schema::tests::example;
    use super::*;
    use crate::format::enums::{Combination, ConditionOp};
    use serde_json::{Value, json};

    fn entry(kind: CommitKind, content: CommitContent) -> CommitEntry {
        let name = format!("__1_2_ab_22.{}", kind.extension());
        CommitEntry {
            path: format!("__commits/{name}").into(),
            name: name.into(),
            kind,
            timestamp_range: Some((1, 2)),
            format_version: Some(22),
            size: Some(0),
            content,
        }
    }

    fn shown(entry: &CommitEntry) -> Value {
        serde_json::to_value(entry_json(entry, &schema_lookup(&example()))).unwrap()
    }

    #[test]
    fn every_entry_has_all_keys_in_order() {
        let mut marker = entry(CommitKind::Write, CommitContent::Marker);
        assert_eq!(
            shown(&marker).to_string(),
            concat!(
                r#"{"name":"__1_2_ab_22.wrt","path":"__commits/__1_2_ab_22.wrt","type":"wrt","timestamp_range":[1,2],"#,
                r#""format_version":22,"size":0,"entries":null,"condition":null,"text":null,"keeps":null,"values":null,"#,
                r#""error":null}"#,
            )
        );
        marker.timestamp_range = None;
        marker.format_version = None;
        marker.size = None;
        marker.content = CommitContent::Damaged("cut off".to_string());
        assert_eq!(
            shown(&marker).to_string(),
            concat!(
                r#"{"name":"__1_2_ab_22.wrt","path":"__commits/__1_2_ab_22.wrt","type":"wrt","timestamp_range":null,"#,
                r#""format_version":null,"size":null,"entries":null,"condition":null,"text":null,"keeps":null,"values":null,"#,
                r#""error":"cut off"}"#,
            )
        );
    }

    #[test]
    fn deletes_and_updates_show_their_condition() {
        let condition = combine(
            Combination::And,
            vec![
                value(ConditionOp::Le, "a", &[30, 0, 0, 0]),
                value(ConditionOp::Ne, "s", b"x"),
            ],
        );
        let delete = entry(
            CommitKind::Delete,
            CommitContent::Condition(condition.clone(), None),
        );
        let json = shown(&delete);
        assert_eq!(
            json["condition"].to_string(),
            concat!(
                r#"{"combination":"AND","children":[{"op":"LE","field":"a","value":30},"#,
                r#"{"op":"NE","field":"s","value":"x"}]}"#,
            )
        );
        assert_eq!(json["text"], json!(r#"a <= 30 AND s != "x""#));
        assert_eq!(
            json["keeps"],
            json!("cells for which the condition is true; the others are deleted")
        );
        assert_eq!(json["values"], Value::Null);
        let values = vec![
            UpdateValue {
                field: b"a".to_vec(),
                value: vec![5, 0, 0, 0],
            },
            UpdateValue {
                field: b"gone".to_vec(),
                value: vec![5],
            },
        ];
        let update = entry(
            CommitKind::Update,
            CommitContent::Condition(condition, Some(values)),
        );
        let json = shown(&update);
        assert_eq!(json["keeps"], Value::Null);
        assert_eq!(
            json["values"].to_string(),
            r#"[{"field":"a","value":5},{"field":"gone","value":{"hex":"05"}}]"#
        );
    }

    #[test]
    fn consolidated_commits_and_paths_are_listed() {
        let commits = vec![
            ConsolidatedCommit {
                path: b"__commits/__1_1_ab_22.wrt".to_vec(),
                condition: None,
            },
            ConsolidatedCommit {
                path: b"__commits/__2_2_ab_22.del".to_vec(),
                condition: Some(Ok((value(ConditionOp::Ne, "a", b""), None))),
            },
            ConsolidatedCommit {
                path: b"__commits/__3_3_ab_22.upd".to_vec(),
                condition: Some(Ok((
                    value(ConditionOp::Lt, "a", &[9, 0, 0, 0]),
                    Some(vec![UpdateValue {
                        field: b"a".to_vec(),
                        value: vec![1, 0, 0, 0],
                    }]),
                ))),
            },
            ConsolidatedCommit {
                path: b"x.del".to_vec(),
                condition: Some(Err("cut off".to_string())),
            },
        ];
        let con = entry(CommitKind::Consolidated, CommitContent::Consolidated(commits));
        assert_eq!(
            shown(&con)["entries"].to_string(),
            concat!(
                r#"[{"path":"__commits/__1_1_ab_22.wrt","condition":null,"text":null,"keeps":null,"values":null,"error":null},"#,
                r#"{"path":"__commits/__2_2_ab_22.del","condition":{"op":"NE","field":"a","value":null},"#,
                r#""text":"a IS NOT NULL","keeps":"cells for which the condition is true; the others are deleted","values":null,"error":null},"#,
                r#"{"path":"__commits/__3_3_ab_22.upd","condition":{"op":"LT","field":"a","value":9},"#,
                r#""text":"a < 9","keeps":null,"values":[{"field":"a","value":1}],"error":null},"#,
                r#"{"path":"x.del","condition":null,"text":null,"keeps":null,"values":null,"error":"cut off"}]"#,
            )
        );
        let paths = vec![ListedPath {
            path: b"/__fragments/__1_1_ab_22".to_vec(),
            normalised: b"__fragments/__1_1_ab_22".to_vec(),
        }];
        let vac = entry(CommitKind::Vacuum, CommitContent::Paths(paths));
        assert_eq!(
            shown(&vac)["entries"].to_string(),
            r#"[{"path":"/__fragments/__1_1_ab_22","normalised":"__fragments/__1_1_ab_22"}]"#
        );
    }
}
