//! The conditions of delete and update files, as JSON and as text; those that a fragment was rid of.

use super::{Json, object, value};
use crate::format::condition::{Condition, Node};
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::enums::{Combination, ConditionOp};
use crate::format::schema::Schema;
use crate::names;
use std::ops::Range;

/// Maps the name of a field to its datatype and number of values a cell; None for an unknown field.
pub type FieldLookup<'a> = dyn Fn(&[u8]) -> Option<(Datatype, CellValNum)> + 'a;

/// A lookup of the attributes and dimensions of `schema`.
pub fn schema_lookup(schema: &Schema) -> impl Fn(&[u8]) -> Option<(Datatype, CellValNum)> + '_ {
    |name| {
        let attribute = schema.attribute(name).map(|a| (a.datatype, a.cell_val_num));
        attribute.or_else(|| schema.dimension(name).map(|d| (d.datatype, d.cell_val_num)))
    }
}

/// The most levels of a condition that are shown as a tree. Programs that read JSON limit its nesting (the
/// least known limit is 128), and a level takes two.
const LEVELS: usize = 60;

/// A condition as a tree of `{"combination", "children"}` and `{"op", "field", "value"}`. The value is null
/// in a null test, an array for IN and NOT_IN. Expressions more than 60 levels deep are given as `{"text"}`.
pub fn condition_json(condition: &Condition, lookup: &FieldLookup) -> Json {
    node_json(condition.nodes(), 0, LEVELS, lookup).0
}

/// The node at `at` with those below, at most so many levels of them, and the index of the node after them.
fn node_json(nodes: &[Node], at: usize, levels: usize, lookup: &FieldLookup) -> (Json, usize) {
    match nodes.get(at) {
        None => (Json::Null, nodes.len()),
        Some(Node::Value {
            op,
            field,
            value,
            offsets,
        }) => {
            let json = object!({
                "op": op.name(),
                "field": value::name(field),
                "value": operand(*op, lookup(field), value, offsets),
            });
            (json, at + 1)
        }
        Some(Node::Expression { end, .. }) if levels == 0 => {
            (object!({"text": nodes_text(nodes, at..*end, lookup)}), *end)
        }
        Some(Node::Expression { combination, end, .. }) => {
            let mut children = Vec::new();
            let mut next = at + 1;
            while next < *end {
                let (child, after) = node_json(nodes, next, levels - 1, lookup);
                children.push(child);
                next = after;
            }
            let json = object!({
                "combination": combination.name(),
                "children": Json::Array(children),
            });
            (json, *end)
        }
    }
}

/// A condition as text, e.g. ``(a <= 30 AND s != "x") OR `odd name` IS NULL``.
pub fn condition_text(condition: &Condition, lookup: &FieldLookup) -> String {
    nodes_text(condition.nodes(), 0..condition.nodes().len(), lookup)
}

/// An expression whose children are being written.
struct Open {
    /// The index of the node after its last one.
    end: usize,
    separator: &'static str,
    /// Whether no child is written yet.
    empty: bool,
    parentheses: bool,
    /// Whether expressions among its children are put in parentheses.
    nested: bool,
}

/// The text of the nodes in `range`, which are one tree.
fn nodes_text(nodes: &[Node], range: Range<usize>, lookup: &FieldLookup) -> String {
    let mut out = String::new();
    let mut open: Vec<Open> = Vec::new();
    let close = |out: &mut String, open: &mut Vec<Open>, at: usize| {
        while let Some(closed) = open.pop_if(|open| open.end <= at) {
            if closed.parentheses {
                out.push(')');
            }
        }
    };
    for (at, node) in range.clone().zip(&nodes[range.clone()]) {
        close(&mut out, &mut open, at);
        let mut nested = false;
        if let Some(outside) = open.last_mut() {
            if !outside.empty {
                out.push_str(outside.separator);
            }
            outside.empty = false;
            nested = outside.nested;
        }
        let (combination, children, end) = match node {
            Node::Value {
                op,
                field,
                value,
                offsets,
            } => {
                write_comparison(&mut out, *op, field, &operand(*op, lookup(field), value, offsets));
                continue;
            }
            Node::Expression {
                combination,
                children,
                end,
            } => (*combination, *children, *end),
        };
        let negated = combination == Combination::Not;
        // An AND or OR of one child is written as that child.
        let single = children == 1 && !negated;
        let parentheses = negated || nested && !single;
        if parentheses {
            out.push_str(if negated { "NOT (" } else { "(" });
        }
        open.push(Open {
            end,
            separator: match combination {
                Combination::Or => " OR ",
                Combination::And | Combination::Not => " AND ",
            },
            empty: true,
            parentheses,
            nested: if single { nested } else { children > 1 },
        });
    }
    close(&mut out, &mut open, range.end);
    out
}

/// Appends a comparison of `field` with `operand`.
fn write_comparison(out: &mut String, op: ConditionOp, field: &[u8], operand: &Json) {
    let sign = match op {
        ConditionOp::AlwaysTrue => return out.push_str("TRUE"),
        ConditionOp::AlwaysFalse => return out.push_str("FALSE"),
        ConditionOp::Eq if *operand == Json::Null => "IS",
        ConditionOp::Ne if *operand == Json::Null => "IS NOT",
        ConditionOp::Lt => "<",
        ConditionOp::Le => "<=",
        ConditionOp::Gt => ">",
        ConditionOp::Ge => ">=",
        ConditionOp::Eq => "==",
        ConditionOp::Ne => "!=",
        ConditionOp::In => "IN",
        ConditionOp::NotIn => "NOT IN",
    };
    out.push_str(&format!("{} {sign} ", field_text(field)));
    match (op, operand) {
        // A list may have hundreds of thousands of members: one text at a time.
        (ConditionOp::In | ConditionOp::NotIn, Json::Array(members)) => {
            for (i, member) in members.iter().enumerate() {
                out.push_str(if i == 0 { "(" } else { ", " });
                out.push_str(&constant_text(member));
            }
            out.push_str(if members.is_empty() { "()" } else { ")" });
        }
        _ => out.push_str(&constant_text(operand)),
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

/// A constant as text: as in JSON, but opaque bytes are `0x…` and a missing constant is NULL.
fn constant_text(constant: &Json) -> String {
    match constant {
        Json::Null => "NULL".to_string(),
        Json::Cell(cell) => match cell.hex() {
            Some(digits) => format!("0x{digits}"),
            None => constant.to_string(),
        },
        _ => constant.to_string(),
    }
}

/// The right-hand side of a comparison: null for a null test, an array for IN and NOT_IN.
fn operand(op: ConditionOp, field: Option<(Datatype, CellValNum)>, value: &[u8], offsets: &[u64]) -> Json {
    match op {
        ConditionOp::In | ConditionOp::NotIn => value::split(offsets, value)
            .map(|member| member.map(|member| constant(field, member)))
            .collect(),
        // An empty constant is an empty value for a var-sized field, else a null test. For an unknown field a
        // null test is assumed.
        _ if value.is_empty() && !matches!(field, Some((_, CellValNum::Var))) => Json::Null,
        _ => constant(field, value),
    }
}

/// A constant in the type of its field; hexadecimal if the field is unknown.
pub(super) fn constant(field: Option<(Datatype, CellValNum)>, value: &[u8]) -> Json {
    match field {
        Some((datatype, cell_val_num)) => value::cell(datatype, cell_val_num, value),
        None => value::hex(value),
    }
}

/// `conditions.json`: the delete conditions that a consolidation already applied to a fragment, an array of
/// their paths, relative to the array as they are stored, such as `__commits/__1_1_<uuid>_22.del`. Null for
/// None, which versions below 16 have.
pub fn conditions_json(paths: Option<&[Vec<u8>]>) -> Json {
    match paths {
        Some(paths) => paths.iter().map(|path| value::name(path)).collect(),
        None => Json::Null,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::schema::tests::example;
    use super::*;
    use crate::format::testing::Bytes;
    use serde_json::json;

    pub fn value(op: ConditionOp, field: &str, value: &[u8]) -> Condition {
        Condition::value(op, field, value, &[])
    }

    pub fn combine(combination: Combination, children: Vec<Condition>) -> Condition {
        Condition::expression(combination, &children)
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
        let list = |_: &[u8]| Some((Datatype::Int16, CellValNum::Var));
        let bytes = [1, 0, 0xFF, 0xFF].repeat(1000);
        assert_eq!(
            condition_text(&value(Ge, "list", &bytes), &list),
            format!("list >= [1,-1{}]", ",1,-1".repeat(999))
        );
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
        let members = Condition::value;
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
        let leaf = |b: Bytes, number| b.u8(1).u8(4).text32("a").count64(4).raw(&[number, 0, 0, 0]);
        let (mut single, mut pairs) = (Bytes::default(), Bytes::default());
        for level in 0..70_000 {
            let odd = u8::from(level % 2 == 1);
            single = single.u8(0).u8(0).u64(1);
            pairs = leaf(pairs.u8(0).u8(odd).u64(2), odd);
        }
        let parse = |bytes: Bytes| Condition::parse(&leaf(bytes, 7).bytes).unwrap();
        assert_eq!(text(&parse(single)), "a == 7");
        let pairs = parse(pairs);
        let shown = text(&pairs);
        assert!(
            shown.starts_with("a == 0 AND (a == 1 OR (a == 0 AND ("),
            "{}",
            &shown[..50]
        );
        assert!(shown.trim_end_matches(')').ends_with("(a == 1 OR a == 7"));
        // The tree ends where readers of JSON give up.
        let tree = condition_json(&pairs, &schema_lookup(&example())).to_string();
        let tree: serde_json::Value = serde_json::from_str(&tree).unwrap();
        let mut node = &tree;
        for _ in 0..LEVELS {
            node = &node["children"][1];
        }
        let rest = node["text"].as_str().unwrap();
        assert!(shown.contains(rest) && rest.len() > shown.len() - 3000);
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

    #[test]
    fn paths_are_listed() {
        let paths = [b"__commits/__1_1_ab_22.del".to_vec(), vec![0xFF]];
        assert_eq!(
            conditions_json(Some(&paths)),
            json!(["__commits/__1_1_ab_22.del", {"hex": "ff"}])
        );
        assert_eq!(conditions_json(Some(&[])), json!([]));
        assert_eq!(conditions_json(None), Json::Null);
    }
}
