//! Delete and update conditions (`.del`, `.upd`; format version 16 and later).
//!
//! Specification:
//! <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/delete_commit_file.md>,
//! <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/update_commit_file.md>

use super::enums::{Combination, ConditionOp};
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// A condition tree, without recursion, because it may be as deep as its file is long. The stored condition
/// is the *negation* of the user's delete predicate: cells for which it holds are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// In stored order: an expression stands before its children. At least one; the first is the root.
    nodes: Vec<Node>,
}

/// A node of a condition tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// An inner node.
    Expression {
        /// How the children combine.
        combination: Combination,
        /// The number of children, at least one.
        children: u64,
        /// The index of the first node after those below this one.
        end: usize,
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
    /// Parses the unfiltered body of a `.del` file.
    pub fn parse(body: &[u8]) -> Result<Condition> {
        read::whole("delete condition", body, Self::parse_nodes)
    }

    /// Parses the unfiltered body of a `.upd` file: a condition and the values assigned.
    pub fn parse_update(body: &[u8]) -> Result<(Condition, Vec<UpdateValue>)> {
        read::whole("update condition", body, |c| {
            let condition = Self::parse_nodes(c)?;
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

    /// The nodes in stored order: an expression stands before its children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn parse_nodes(c: &mut Cursor<'_>) -> Result<Condition> {
        let mut nodes = Vec::new();
        // The expressions that the next node is below: index, and the number of children still to come.
        let mut open: Vec<(usize, u64)> = Vec::new();
        loop {
            let offset = c.offset();
            match c.u8("node_type")? {
                0 => {
                    let (combination, children) = Self::parse_expression(c)?;
                    open.push((nodes.len(), children));
                    // `end` is known after the last child.
                    nodes.push(Node::Expression {
                        combination,
                        children,
                        end: 0,
                    });
                    continue;
                }
                1 => nodes.push(Self::parse_value(c)?),
                n => {
                    return Err(Error::corrupt(format!("unknown node type {n}; expected 0 or 1"))
                        .at(offset)
                        .in_part("`node_type`"));
                }
            }
            while let Some((at, children)) = open.last_mut() {
                *children -= 1;
                if *children > 0 {
                    break;
                }
                let after = nodes.len();
                if let Node::Expression { end, .. } = &mut nodes[*at] {
                    *end = after;
                }
                open.pop();
            }
            if open.is_empty() {
                return Ok(Condition { nodes });
            }
        }
    }

    /// The combination and the number of children.
    fn parse_expression(c: &mut Cursor<'_>) -> Result<(Combination, u64)> {
        let combination = read::byte(c, "combination", Combination::from_u8)?;
        let count = c.u64("child_num")?;
        if count == 0 {
            return Err(c.corrupt("child_num", "an expression without operands"));
        }
        // An expression takes 10 bytes, a value 14.
        c.check_count(count, 10, "child_num")?;
        Ok((combination, count))
    }

    fn parse_value(c: &mut Cursor<'_>) -> Result<Node> {
        let op = read::byte(c, "op", ConditionOp::from_u8)?;
        let field = read::text32(c, "field_name")?;
        let value = read::text64(c, "value")?;
        let offsets = match op {
            ConditionOp::In | ConditionOp::NotIn => read::offsets(c, value.len(), "member_offsets")?,
            _ => Vec::new(),
        };
        Ok(Node::Value {
            op,
            field,
            value,
            offsets,
        })
    }
}

#[cfg(test)]
impl Condition {
    /// A comparison.
    pub fn value(op: ConditionOp, field: &str, value: &[u8], offsets: &[u64]) -> Condition {
        let node = Node::Value {
            op,
            field: field.into(),
            value: value.to_vec(),
            offsets: offsets.to_vec(),
        };
        Condition { nodes: vec![node] }
    }

    /// An expression.
    pub fn expression(combination: Combination, children: &[Condition]) -> Condition {
        let length = children.iter().map(|child| child.nodes.len()).sum::<usize>() + 1;
        let mut nodes = vec![Node::Expression {
            combination,
            children: children.len() as u64,
            end: length,
        }];
        for child in children {
            let start = nodes.len();
            nodes.extend(child.nodes.iter().cloned().map(|mut node| {
                if let Node::Expression { end, .. } = &mut node {
                    *end += start;
                }
                node
            }));
        }
        Condition { nodes }
    }

    /// The children of the root.
    pub fn children(&self) -> Vec<Condition> {
        let mut children = Vec::new();
        let mut start = 1;
        while start < self.nodes.len() {
            let after = match self.nodes[start] {
                Node::Expression { end, .. } => end,
                Node::Value { .. } => start + 1,
            };
            let mut nodes = self.nodes[start..after].to_vec();
            for node in &mut nodes {
                if let Node::Expression { end, .. } = node {
                    *end -= start;
                }
            }
            children.push(Condition { nodes });
            start = after;
        }
        children
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        Condition::value(op, "a", value, offsets)
    }

    fn expected() -> Condition {
        let or = Condition::expression(
            Combination::Or,
            &[
                value(ConditionOp::NotIn, b"xyz", &[0, 1, 1]),
                value(ConditionOp::Eq, b"", &[]),
            ],
        );
        let le = value(ConditionOp::Le, &[30, 0, 0, 0], &[]);
        Condition::expression(Combination::And, &[le, or])
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
    fn nesting_is_limited_by_the_length_of_the_file_alone() {
        let nested = |depth: usize| {
            let b = (1..depth).fold(Bytes::default(), |b, _| b.u8(0).u8(1).u64(1));
            Condition::parse(&leaf(b, 0, b"").bytes)
        };
        for depth in [1, 65, 200_000] {
            let condition = nested(depth).unwrap();
            assert_eq!(condition.nodes().len(), depth);
            assert_eq!(condition.clone(), condition);
        }
        let cut_off = (1..200_000).fold(Bytes::default(), |b, _| b.u8(0).u8(1).u64(1));
        assert!(Condition::parse(&cut_off.bytes).is_err());
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
