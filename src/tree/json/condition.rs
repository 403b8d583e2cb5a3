//! The conditions of delete and update files, as JSON and as text.

use super::{Json, object, value};
use crate::format::condition::Condition;
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::enums::{Combination, ConditionOp};
use crate::format::schema::Schema;
use crate::names;

/// Maps the name of a field to its datatype and number of values a cell; None for an unknown field.
pub type FieldLookup<'a> = dyn Fn(&[u8]) -> Option<(Datatype, CellValNum)> + 'a;

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

/// A condition as a tree of `{"combination", "children"}` and `{"op", "field", "value"}`. The value is null
/// in a null test, an array for IN and NOT_IN.
pub fn condition_json(condition: &Condition, lookup: &FieldLookup) -> Json {
    match condition {
        Condition::Expression {
            combination,
            children,
        } => object!({
            "combination": combination.name(),
            "children": children.iter().map(|child| condition_json(child, lookup)).collect::<Json>(),
        }),
        Condition::Value {
            op,
            field,
            value,
            offsets,
        } => object!({
            "op": op.name(),
            "field": value::name(field),
            "value": operand(*op, lookup(field), value, offsets),
        }),
    }
}

/// A condition as text, e.g. ``(a <= 30 AND s != "x") OR `odd name` IS NULL``.
pub fn condition_text(condition: &Condition, lookup: &FieldLookup) -> String {
    let mut out = String::new();
    write_condition(&mut out, condition, lookup, false);
    out
}

/// Appends a condition's text. With `nested`, a combination of several conditions is put in parentheses.
fn write_condition(out: &mut String, condition: &Condition, lookup: &FieldLookup, nested: bool) {
    let (combination, children) = match condition {
        Condition::Value {
            op,
            field,
            value,
            offsets,
        } => return write_comparison(out, *op, field, &operand(*op, lookup(field), value, offsets)),
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::schema::tests::example;
    use super::*;

    pub fn value(op: ConditionOp, field: &str, value: &[u8]) -> Condition {
        Condition::Value {
            op,
            field: field.into(),
            value: value.to_vec(),
            offsets: vec![],
        }
    }

    pub fn combine(combination: Combination, children: Vec<Condition>) -> Condition {
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
}
