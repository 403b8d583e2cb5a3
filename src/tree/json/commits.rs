//! `commits.json`: the files that say which fragments and which of their cells count.

use super::value;
use crate::format::condition::{Condition, UpdateValue};
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::enums::{Combination, ConditionOp};
use crate::format::schema::Schema;
use crate::tree::names;
use serde_json::{Map, Value, json};

/// What a commit file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommitType {
    /// Commits a fragment of a version below 12.
    Ok,
    /// Commits a fragment of version 12 or later.
    Wrt,
    /// Stands for several commits.
    Con,
    /// Takes commits out of consolidated ones.
    Ign,
    /// Hides what a consolidation has replaced.
    Vac,
    /// Deletes cells.
    Del,
    /// Updates cells.
    Upd,
}

/// What a commit file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum CommitContent {
    /// Nothing: the file's name says all (`ok`, `wrt`).
    Marker,
    /// Other commits (`con`).
    Consolidated(Vec<ConsolidatedCommit>),
    /// Paths (`ign`, `vac`).
    Paths(Vec<ListedPath>),
    /// A condition, which says what is kept, and in `upd` the values assigned.
    Condition(Condition, Option<Vec<UpdateValue>>),
    /// What cannot be decoded, and why.
    Damaged(String),
}

/// An entry of a consolidated commit file.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsolidatedCommit {
    /// The commit's path relative to the array, as written.
    pub path: Vec<u8>,
    /// The condition of an embedded delete or update file, and the values that an update assigns; or why there is none.
    pub condition: Option<Result<EmbeddedCondition, String>>,
}

/// A condition, and in an update the values assigned.
pub type EmbeddedCondition = (Condition, Option<Vec<UpdateValue>>);

/// A line of an ignore or vacuum file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPath {
    /// As written: relative, with a leading slash or an absolute URI.
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
    /// What it is for.
    pub commit_type: CommitType,
    /// Milliseconds since the Unix epoch, both inclusive, where its name tells.
    pub timestamp_range: Option<(u64, u64)>,
    /// Format version, where its name tells.
    pub format_version: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// What it holds.
    pub content: CommitContent,
}

/// Tells type and values a cell of a field by its name; None for a field that is not known.
pub type FieldLookup<'a> = dyn Fn(&[u8]) -> Option<(Datatype, CellValNum)> + 'a;

/// What [`entry_json`] says of a delete condition.
const KEEPS: &str = "cells for which the condition is true; the others are deleted";

impl CommitType {
    /// The type by the extension of a file's name, without its dot.
    pub fn from_extension(extension: &[u8]) -> Option<Self> {
        let all = [
            Self::Ok,
            Self::Wrt,
            Self::Con,
            Self::Ign,
            Self::Vac,
            Self::Del,
            Self::Upd,
        ];
        all.into_iter().find(|t| t.name().as_bytes() == extension)
    }

    /// The extension of the file's name, without its dot.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Wrt => "wrt",
            Self::Con => "con",
            Self::Ign => "ign",
            Self::Vac => "vac",
            Self::Del => "del",
            Self::Upd => "upd",
        }
    }
}

/// A lookup of the attributes and dimensions of `schema`.
pub fn schema_lookup(schema: &Schema) -> impl Fn(&[u8]) -> Option<(Datatype, CellValNum)> + '_ {
    |name| {
        let attribute = schema.attributes.iter().find(|a| a.name == name);
        let dimension = schema.dimensions.iter().find(|d| d.name == name);
        attribute
            .map(|a| (a.datatype, a.cell_val_num))
            .or(dimension.map(|d| (d.datatype, d.cell_val_num)))
    }
}

/// The members of an entry of the document. Conditions are shown as a tree and as text, their constants typed
/// as `lookup` tells and in hexadecimal where it does not.
pub fn entry_json(entry: &CommitEntry, lookup: &FieldLookup) -> [(&'static str, Value); 12] {
    let (entries, condition, values, error) = match &entry.content {
        CommitContent::Marker => (None, None, None, None),
        CommitContent::Consolidated(commits) => {
            let commits = commits.iter().map(|commit| consolidated_json(commit, lookup));
            (Some(commits.collect::<Value>()), None, None, None)
        }
        CommitContent::Paths(paths) => {
            let paths = paths.iter().map(|listed| {
                json!({"path": value::name(&listed.path), "normalised": value::name(&listed.normalised)})
            });
            (Some(paths.collect::<Value>()), None, None, None)
        }
        CommitContent::Condition(condition, values) => (None, Some(condition), values.as_ref(), None),
        CommitContent::Damaged(error) => (None, None, None, Some(error)),
    };
    let is_delete = entry.commit_type == CommitType::Del && condition.is_some();
    [
        ("name", value::name(&entry.name)),
        ("path", value::name(&entry.path)),
        ("type", json!(entry.commit_type.name())),
        (
            "timestamp_range",
            json!(entry.timestamp_range.map(|(start, end)| [start, end])),
        ),
        ("format_version", json!(entry.format_version)),
        ("size", json!(entry.size)),
        ("entries", Value::from(entries)),
        (
            "condition",
            Value::from(condition.map(|condition| condition_json(condition, lookup))),
        ),
        (
            "text",
            Value::from(condition.map(|condition| condition_text(condition, lookup))),
        ),
        ("keeps", json!(is_delete.then_some(KEEPS))),
        (
            "values",
            Value::from(values.map(|values| values_json(values, lookup))),
        ),
        ("error", json!(error)),
    ]
}

fn values_json(values: &[UpdateValue], lookup: &FieldLookup) -> Value {
    let value = |v: &UpdateValue| json!({"field": value::name(&v.field), "value": constant(lookup(&v.field), &v.value)});
    values.iter().map(value).collect()
}

fn consolidated_json(commit: &ConsolidatedCommit, lookup: &FieldLookup) -> Value {
    let (condition, values, error) = match &commit.condition {
        None => (None, None, None),
        Some(Ok((condition, values))) => (Some(condition), values.as_ref(), None),
        Some(Err(error)) => (None, None, Some(error)),
    };
    json!({
        "path": value::name(&commit.path),
        "condition": condition.map(|condition| condition_json(condition, lookup)),
        "text": condition.map(|condition| condition_text(condition, lookup)),
        "keeps": condition.filter(|_| values.is_none()).map(|_| KEEPS),
        "values": values.map(|values| values_json(values, lookup)),
        "error": error,
    })
}

/// A condition as a tree of `{"combination", "children"}` and `{"op", "field", "value"}`. The value is null
/// in a null test, an array for IN and NOT_IN.
pub fn condition_json(condition: &Condition, lookup: &FieldLookup) -> Value {
    match condition {
        Condition::Expression {
            combination,
            children,
        } => json!({
            "combination": combination.name(),
            "children": children.iter().map(|child| condition_json(child, lookup)).collect::<Value>(),
        }),
        Condition::Value {
            op,
            field,
            value,
            offsets,
        } => Value::Object(Map::from_iter([
            // The macro would copy the constant.
            ("op".to_string(), op.name().into()),
            ("field".to_string(), value::name(field)),
            ("value".to_string(), operand(*op, lookup(field), value, offsets)),
        ])),
    }
}

/// A condition as text, e.g. ``(a <= 30 AND s != "x") OR `odd name` IS NULL``.
pub fn condition_text(condition: &Condition, lookup: &FieldLookup) -> String {
    let mut out = String::new();
    write_condition(&mut out, condition, lookup, false);
    out
}

/// Appends a condition's text; `nested` asks for parentheses where it combines several others.
fn write_condition(out: &mut String, condition: &Condition, lookup: &FieldLookup, nested: bool) {
    let (combination, children) = match condition {
        Condition::Value {
            op,
            field,
            value,
            offsets,
        } => {
            out.push_str(&comparison_text(
                *op,
                field,
                &operand(*op, lookup(field), value, offsets),
            ));
            return;
        }
        Condition::Expression {
            combination,
            children,
        } => (*combination, children.as_slice()),
    };
    if let ([only], Combination::And | Combination::Or) = (children, combination) {
        return write_condition(out, only, lookup, nested);
    }
    let (open, separator) = match combination {
        Combination::Not => ("NOT (", " AND "),
        Combination::And => ("(", " AND "),
        Combination::Or => ("(", " OR "),
    };
    let parentheses = nested || combination == Combination::Not;
    if parentheses {
        out.push_str(open);
    }
    for (i, child) in children.iter().enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        write_condition(out, child, lookup, children.len() > 1);
    }
    if parentheses {
        out.push(')');
    }
}

fn comparison_text(op: ConditionOp, field: &[u8], operand: &Value) -> String {
    let field = field_text(field);
    let sign = match op {
        ConditionOp::AlwaysTrue => return "TRUE".to_string(),
        ConditionOp::AlwaysFalse => return "FALSE".to_string(),
        ConditionOp::Eq if operand.is_null() => return format!("{field} IS NULL"),
        ConditionOp::Ne if operand.is_null() => return format!("{field} IS NOT NULL"),
        ConditionOp::Lt => "<",
        ConditionOp::Le => "<=",
        ConditionOp::Gt => ">",
        ConditionOp::Ge => ">=",
        ConditionOp::Eq => "==",
        ConditionOp::Ne => "!=",
        ConditionOp::In => "IN",
        ConditionOp::NotIn => "NOT IN",
    };
    match (op, operand) {
        (ConditionOp::In | ConditionOp::NotIn, Value::Array(members)) => {
            let members: Vec<_> = members.iter().map(constant_text).collect();
            format!("{field} {sign} ({})", members.join(", "))
        }
        _ => format!("{field} {sign} {}", constant_text(operand)),
    }
}

/// A field's name, in backticks unless it is a plain word.
fn field_text(field: &[u8]) -> String {
    const KEYWORDS: [&str; 8] = ["AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE"];
    let name = names::key(field);
    let word = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let starts_well = !name.starts_with(|c: char| c.is_numeric()) && !name.is_empty();
    let keyword = KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(&name));
    if word && starts_well && !keyword {
        name
    } else {
        format!("`{}`", name.replace('`', "``"))
    }
}

/// A constant as text: JSON, but opaque bytes as `0x…` and a missing one as NULL.
fn constant_text(constant: &Value) -> String {
    match constant {
        Value::Null => "NULL".to_string(),
        Value::Object(hex) => match hex.get("hex") {
            // As JSON without spaces is: what is kept as text is numbers.
            None => match value::rendered_text(hex) {
                Some(text) => text.replace(", ", ","),
                None => constant.to_string(),
            },
            Some(Value::String(digits)) => format!("0x{digits}"),
            _ => constant.to_string(),
        },
        _ => constant.to_string(),
    }
}

/// The right-hand side of a comparison: null for a null test, an array for IN and NOT_IN.
fn operand(op: ConditionOp, field: Option<(Datatype, CellValNum)>, value: &[u8], offsets: &[u64]) -> Value {
    match op {
        ConditionOp::In | ConditionOp::NotIn => value::split(offsets, value)
            .map(|member| member.map(|member| constant(field, member)))
            .collect(),
        // On var-sized fields an empty constant is an empty value; of an unknown field the null test is as
        // likely as any.
        _ if value.is_empty() && !matches!(field, Some((_, CellValNum::Var))) => Value::Null,
        _ => constant(field, value),
    }
}

/// A constant in the type of its field, hexadecimal where that is not known.
fn constant(field: Option<(Datatype, CellValNum)>, value: &[u8]) -> Value {
    match field {
        Some((datatype, cell_val_num)) => value::cell(datatype, cell_val_num, value),
        None => value::hex(value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::example;
    use super::*;

    fn value(op: ConditionOp, field: &str, value: &[u8]) -> Condition {
        Condition::Value {
            op,
            field: field.into(),
            value: value.to_vec(),
            offsets: vec![],
        }
    }

    fn combine(combination: Combination, children: Vec<Condition>) -> Condition {
        Condition::Expression {
            combination,
            children,
        }
    }

    /// `a` is INT32, `s` var-sized UTF-8, `x` a dimension of INT16.
    fn text(condition: &Condition) -> String {
        condition_text(condition, &schema_lookup(&example()))
    }

    #[test]
    fn comparisons_read_naturally() {
        use ConditionOp::*;
        let thirty = 30_i32.to_le_bytes();
        assert_eq!(text(&value(Le, "a", &thirty)), "a <= 30");
        assert_eq!(text(&value(Lt, "x", &[0xFF, 0xFF])), "x < -1");
        assert_eq!(text(&value(Gt, "a", &thirty)), "a > 30");
        assert_eq!(text(&value(Ge, "a", &thirty)), "a >= 30");
        assert_eq!(text(&value(Eq, "s", b"say \"x\"")), r#"s == "say \"x\"""#);
        assert_eq!(text(&value(Ne, "s", b"\xFF")), "s != 0xff");
        assert_eq!(text(&value(AlwaysTrue, "a", &thirty)), "TRUE");
        assert_eq!(text(&value(AlwaysFalse, "a", b"")), "FALSE");
        assert_eq!(text(&value(Eq, "unknown", &thirty)), "unknown == 0x1e000000");
        assert_eq!(text(&value(Eq, "a", &[1])), "a == 0x01");
    }

    #[test]
    fn null_tests_are_told_from_empty_text() {
        assert_eq!(text(&value(ConditionOp::Eq, "a", b"")), "a IS NULL");
        assert_eq!(text(&value(ConditionOp::Ne, "a", b"")), "a IS NOT NULL");
        assert_eq!(
            text(&value(ConditionOp::Ne, "unknown", b"")),
            "unknown IS NOT NULL"
        );
        assert_eq!(text(&value(ConditionOp::Lt, "a", b"")), "a < NULL");
        assert_eq!(text(&value(ConditionOp::Eq, "s", b"")), r#"s == """#);
    }

    #[test]
    fn members_are_listed() {
        let members = |op, field: &str, value: &[u8], offsets: &[u64]| Condition::Value {
            op,
            field: field.into(),
            value: value.to_vec(),
            offsets: offsets.to_vec(),
        };
        let numbers = [1_i32.to_le_bytes(), (-2_i32).to_le_bytes()].concat();
        let not_in = members(ConditionOp::NotIn, "a", &numbers, &[0, 4]);
        assert_eq!(text(&not_in), "a NOT IN (1, -2)");
        let words = members(ConditionOp::In, "s", b"redblue", &[0, 3, 3]);
        assert_eq!(text(&words), r#"s IN ("red", "", "blue")"#);
        let damaged = members(ConditionOp::In, "s", b"red", &[9]);
        assert_eq!(text(&damaged), "s IN (NULL)");
        assert_eq!(
            condition_json(&not_in, &schema_lookup(&example())).to_string(),
            r#"{"op":"NOT_IN","field":"a","value":[1,-2]}"#
        );
    }

    #[test]
    fn combinations_have_the_parentheses_they_need() {
        use Combination::*;
        let leaf = |name| value(ConditionOp::Eq, name, b"");
        let (a, b, c) = (leaf("i"), leaf("j"), leaf("k"));
        let and = combine(And, vec![a.clone(), b.clone()]);
        assert_eq!(text(&and), "i IS NULL AND j IS NULL");
        assert_eq!(
            text(&combine(Or, vec![and.clone(), c.clone()])),
            "(i IS NULL AND j IS NULL) OR k IS NULL"
        );
        let single = combine(Or, vec![combine(And, vec![a.clone()])]);
        assert_eq!(text(&single), "i IS NULL");
        let wrapped = combine(Or, vec![and.clone()]);
        assert_eq!(
            text(&combine(Or, vec![wrapped, c.clone()])),
            "(i IS NULL AND j IS NULL) OR k IS NULL"
        );
        assert_eq!(
            text(&combine(And, vec![combine(Not, vec![and]), c])),
            "NOT (i IS NULL AND j IS NULL) AND k IS NULL"
        );
    }

    #[test]
    fn deep_nesting_takes_no_more_time_than_its_size() {
        let mut condition = value(ConditionOp::Eq, "a", &[1, 0, 0, 0]);
        for _ in 0..64 {
            condition = combine(Combination::And, vec![condition]);
        }
        assert_eq!(text(&condition), "a == 1");
    }

    #[test]
    fn odd_field_names_are_quoted() {
        let field = |name: &[u8]| field_text(name);
        assert_eq!(field(b"a_1"), "a_1");
        assert_eq!(field("größe".as_bytes()), "größe");
        assert_eq!(field(b"a b"), "`a b`");
        assert_eq!(field(b"1a"), "`1a`");
        assert_eq!(field(b""), "``");
        assert_eq!(field(b"or"), "`or`");
        assert_eq!(field(b"a`b"), "`a``b`");
        assert_eq!(field(b"\xFF"), "`%FF`");
    }

    fn entry(commit_type: CommitType, content: CommitContent) -> CommitEntry {
        let name = format!("__1_2_ab_22.{}", commit_type.name());
        CommitEntry {
            path: format!("__commits/{name}").into(),
            name: name.into(),
            commit_type,
            timestamp_range: Some((1, 2)),
            format_version: Some(22),
            size: Some(0),
            content,
        }
    }

    fn shown(entry: &CommitEntry) -> Value {
        Value::from_iter(entry_json(entry, &schema_lookup(&example())))
    }

    #[test]
    fn every_entry_has_all_keys_in_order() {
        let mut marker = entry(CommitType::Wrt, CommitContent::Marker);
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
        let delete = entry(CommitType::Del, CommitContent::Condition(condition.clone(), None));
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
        let update = entry(CommitType::Upd, CommitContent::Condition(condition, Some(values)));
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
        let con = entry(CommitType::Con, CommitContent::Consolidated(commits));
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
        let vac = entry(CommitType::Vac, CommitContent::Paths(paths));
        assert_eq!(
            shown(&vac)["entries"].to_string(),
            r#"[{"path":"/__fragments/__1_1_ab_22","normalised":"__fragments/__1_1_ab_22"}]"#
        );
    }

    #[test]
    fn types_follow_extensions() {
        assert_eq!(CommitType::from_extension(b"del"), Some(CommitType::Del));
        assert_eq!(CommitType::from_extension(b"tmp"), None);
    }
}
