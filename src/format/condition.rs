//! Delete and update conditions (`.del`, `.upd`; format version 16 and later).

use super::enums::{Combination, ConditionOp};
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// The deepest nesting of a condition.
const MAX_DEPTH: u32 = 64;

/// A condition tree. The stored condition is the *negation* of the user's delete predicate: cells for which
/// it holds are kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// An inner node.
    Expression {
        /// How the children combine.
        combination: Combination,
        /// At least one.
        children: Vec<Condition>,
    },
    /// A comparison of a field with a constant.
    Value {
        /// The comparison.
        op: ConditionOp,
        /// The field's name.
        field: Vec<u8>,
        /// The constant in the field's type; empty for a null test on a fixed-size field. For IN and NOT_IN,
        /// all members concatenated.
        value: Vec<u8>,
        /// For IN and NOT_IN: the start of each member in `value`.
        offsets: Vec<u64>,
    },
}

/// A new value that an update assigns.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct UpdateValue {
    pub field: Vec<u8>,
    pub value: Vec<u8>,
}

impl Condition {
    /// Parses the unfiltered body of a `.del` file. `LimitExceeded` for more than 64 levels.
    pub fn parse(body: &[u8]) -> Result<Condition> {
        read::whole("delete condition", body, |c| Self::parse_node(c, 1))
    }

    /// Parses the unfiltered body of a `.upd` file: a condition and the values assigned.
    pub fn parse_update(body: &[u8]) -> Result<(Condition, Vec<UpdateValue>)> {
        read::whole("update condition", body, |c| {
            let condition = Self::parse_node(c, 1)?;
            let count = c.u64("update_value_num")?;
            c.check_count(count, 16, "update_value_num")?;
            let values = (0..count)
                .map(|_| {
                    Ok(UpdateValue {
                        field: read::text64(c, "field_name")?,
                        value: read::text64(c, "value")?,
                    })
                })
                .collect::<Result<_>>()?;
            Ok((condition, values))
        })
    }

    fn parse_node(c: &mut Cursor<'_>, depth: u32) -> Result<Condition> {
        if depth > MAX_DEPTH {
            return Err(Error::limit(format!(
                "the condition is nested more than {MAX_DEPTH} levels deep"
            ))
            .at(c.offset()));
        }
        let offset = c.offset();
        match c.u8("node_type")? {
            0 => Self::parse_expression(c, depth),
            1 => Self::parse_value(c),
            n => Err(Error::corrupt(format!("unknown node type {n}; expected 0 or 1"))
                .at(offset)
                .in_part("`node_type`")),
        }
    }

    fn parse_expression(c: &mut Cursor<'_>, depth: u32) -> Result<Condition> {
        let combination = read::byte(c, "combination", Combination::from_u8)?;
        let count = c.u64("child_num")?;
        if count == 0 {
            return Err(c.corrupt("child_num", "an expression without operands"));
        }
        // An expression takes 10 bytes, a value 14.
        c.check_count(count, 10, "child_num")?;
        let children = (0..count)
            .map(|_| Self::parse_node(c, depth + 1))
            .collect::<Result<_>>()?;
        Ok(Condition::Expression {
            combination,
            children,
        })
    }

    fn parse_value(c: &mut Cursor<'_>) -> Result<Condition> {
        let op = read::byte(c, "op", ConditionOp::from_u8)?;
        let field = read::text32(c, "field_name")?;
        let value = read::text64(c, "value")?;
        let offsets = match op {
            ConditionOp::In | ConditionOp::NotIn => read::offsets(c, value.len(), "member_offsets")?,
            _ => Vec::new(),
        };
        Ok(Condition::Value {
            op,
            field,
            value,
            offsets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::testing::{Bytes, check_hostile};

    fn leaf(b: Bytes, op: u8, value: &[u8]) -> Bytes {
        b.u8(1).u8(op).text32("a").count64(value.len()).raw(value)
    }

    /// `a <= 30 AND (a NOT IN ("x", "", "yz") OR a == null)`
    fn tree() -> Bytes {
        let b = Bytes::default().u8(0).u8(0).count64(2);
        let b = leaf(b, 1, &[30, 0, 0, 0]).u8(0).u8(1).count64(2);
        let b = leaf(b, 7, b"xyz").count64(24).u64s(&[0, 1, 1]);
        leaf(b, 4, b"")
    }

    fn value(op: ConditionOp, value: &[u8], offsets: &[u64]) -> Condition {
        Condition::Value {
            op,
            field: b"a".to_vec(),
            value: value.to_vec(),
            offsets: offsets.to_vec(),
        }
    }

    fn expected() -> Condition {
        let or = Condition::Expression {
            combination: Combination::Or,
            children: vec![
                value(ConditionOp::NotIn, b"xyz", &[0, 1, 1]),
                value(ConditionOp::Eq, b"", &[]),
            ],
        };
        Condition::Expression {
            combination: Combination::And,
            children: vec![value(ConditionOp::Le, &[30, 0, 0, 0], &[]), or],
        }
    }

    #[test]
    fn a_tree() {
        assert_eq!(check_hostile(&tree(), Condition::parse), expected());
        let leaf = leaf(Bytes::default(), 253, b"");
        assert_eq!(
            check_hostile(&leaf, Condition::parse),
            value(ConditionOp::AlwaysTrue, b"", &[])
        );
    }

    #[test]
    fn an_update_assigns_values() {
        let bytes = tree().count64(2).text64("b").text64("new").text64("c").text64("");
        let (condition, values) = check_hostile(&bytes, Condition::parse_update);
        assert_eq!(condition, expected());
        let values: Vec<_> = values.iter().map(|v| (&v.field[..], &v.value[..])).collect();
        assert_eq!(values, [(&b"b"[..], &b"new"[..]), (b"c", b"")]);
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| {
            let b = (1..depth).fold(Bytes::default(), |b, _| b.u8(0).u8(2).u64(1));
            Condition::parse(&leaf(b, 0, b"").bytes)
        };
        assert!(nested(64).is_ok());
        assert_eq!(nested(65).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert!(nested(100_000).is_err());
    }

    #[test]
    fn contradictions_are_found() {
        let part = |b: Bytes| {
            Condition::parse(&b.bytes)
                .unwrap_err()
                .part()
                .map(str::to_string)
                .unwrap()
        };
        let start = Bytes::default;
        assert_eq!(part(start().u8(2)), "delete condition, `node_type`");
        assert_eq!(part(start().u8(0).u8(3)), "delete condition, `combination`");
        assert_eq!(part(start().u8(0).u8(0).u64(0)), "delete condition, `child_num`");
        assert_eq!(part(leaf(start(), 8, b"")), "delete condition, `op`");
        for offsets in [&[1, 0][..], &[0, 4]] {
            let members = leaf(start(), 6, b"xyz").u64(16).u64s(offsets);
            assert_eq!(part(members), "delete condition, `member_offsets`");
        }
        assert_eq!(
            part(leaf(start(), 6, b"xyz").u64(7).raw(&[0; 7])),
            "delete condition, `member_offsets`"
        );
    }
}
