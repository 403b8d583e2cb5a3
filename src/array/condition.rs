//! Delete conditions evaluated on cells of a fragment, as libtiledb does it.
//!
//! A stored condition says which cells are kept. It is evaluated on a bitmap of cells that is all ones at first. In
//! mode AND a comparison clears the bits of cells for which it does not hold, in mode OR it sets those of cells for
//! which it does; a null holds in no comparison. An AND evaluates its children in mode AND: on the bitmap itself, or
//! in mode OR on a fresh one of ones, which is then or-ed to it. An OR evaluates its children in mode OR on a fresh
//! bitmap of zeros, which is then and-ed. A comparison of a field that the fragment lacks clears the whole bitmap that
//! it is evaluated on, whatever its mode.

use super::cell_slice::CellSlice;
use super::field::{Field, Role};
use crate::error::{Error, ErrorKind, Result};
use crate::format::condition::Condition;
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::enums::{Combination, ConditionOp};
use crate::format::schema::Schema;
use std::collections::HashSet;

/// A stored condition, made ready for the cells of one fragment.
#[derive(Debug)]
pub struct BoundCondition {
    root: Node,
    fields: Vec<usize>,
}

#[derive(Debug)]
enum Node {
    /// All, or any, of the children hold.
    Combined { any: bool, children: Vec<Node> },
    /// A comparison of a field that the fragment lacks.
    Missing,
    /// A comparison that holds, or does not hold, for all cells.
    Always(bool),
    /// A comparison with a constant.
    Compare {
        /// The field, an index into [`BoundCondition::fields`].
        field: usize,
        test: Test,
    },
}

#[derive(Debug)]
enum Test {
    /// Numbers as their type has it.
    Number {
        datatype: Datatype,
        op: Comparison,
        value: [u8; 8],
    },
    /// The first byte of a cell of `size` bytes, signed: fixed-size CHAR.
    Char { size: usize, op: Comparison, value: i8 },
    /// Bytes, unsigned; cells are of a fixed `size` or var-sized.
    Text {
        size: Option<usize>,
        op: Comparison,
        value: Vec<u8>,
    },
    /// Whether the bytes of the cell are among some.
    Member {
        size: Option<usize>,
        members: HashSet<Vec<u8>>,
        holds: bool,
    },
}

/// What has to be true of a cell and the constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
}

impl Comparison {
    fn holds<T: PartialOrd + ?Sized>(self, cell: &T, value: &T) -> bool {
        match self {
            Comparison::Lt => cell < value,
            Comparison::Le => cell <= value,
            Comparison::Gt => cell > value,
            Comparison::Ge => cell >= value,
            Comparison::Eq => cell == value,
            Comparison::Ne => cell != value,
        }
    }
}

impl BoundCondition {
    /// Binds a condition to a view with schema `view` and a fragment with these fields. With `until` only cells that were
    /// written at that time or before are concerned; the fragment then has to store timestamps.
    ///
    /// Fails where libtiledb cannot read the array either: fields that the schema lacks or has with values of another
    /// size, null tests of fields of numbers, sets of no members, types that cannot be compared; and where it misreads
    /// it, because an attribute of a fixed size was of another type, or nullable or not, when the fragment was written.
    pub fn bind(
        condition: &Condition,
        view: &Schema,
        fields: &[Field],
        until: Option<u64>,
    ) -> Result<BoundCondition> {
        let mut binder = Binder {
            view,
            all: fields,
            used: Vec::new(),
        };
        let mut root = binder.node(condition)?;
        if let Some(until) = until {
            let later = binder.later(until)?;
            root = match root {
                Node::Combined {
                    any: true,
                    mut children,
                } => {
                    children.insert(0, later);
                    Node::Combined { any: true, children }
                }
                root => Node::Combined {
                    any: true,
                    children: vec![later, root],
                },
            };
        }
        Ok(BoundCondition {
            root,
            fields: binder.used,
        })
    }

    /// The fields whose values are needed, as indices into the fragment's fields, each once.
    pub fn fields(&self) -> &[usize] {
        &self.fields
    }

    /// Clears the flags of cells that the condition deletes. `cells` are those of [`BoundCondition::fields`], in that
    /// order, as many of each as there are flags.
    pub fn evaluate(&self, cells: &[CellSlice<'_>], keep: &mut [bool]) {
        self.root.evaluate(cells, false, keep);
    }
}

impl Node {
    /// Evaluates it on a bitmap, in mode OR where `any`, else in mode AND.
    fn evaluate(&self, cells: &[CellSlice<'_>], any: bool, bitmap: &mut [bool]) {
        match self {
            Node::Missing => bitmap.fill(false),
            Node::Always(holds) if *holds == any => bitmap.fill(any),
            Node::Always(_) => {}
            Node::Compare { field, test } => {
                let mut holds = vec![false; bitmap.len()];
                if let Some(cells) = cells.get(*field) {
                    test.evaluate(cells, &mut holds);
                    for (i, holds) in holds.iter_mut().enumerate() {
                        *holds &= cells.is_valid(i);
                    }
                }
                combine(any, bitmap, &holds);
            }
            Node::Combined { any: false, children } => {
                if any {
                    let mut all = vec![true; bitmap.len()];
                    for child in children {
                        child.evaluate(cells, false, &mut all);
                    }
                    combine(true, bitmap, &all);
                } else {
                    for child in children {
                        child.evaluate(cells, false, bitmap);
                    }
                }
            }
            Node::Combined { any: true, children } => {
                let mut some = vec![false; bitmap.len()];
                for child in children {
                    child.evaluate(cells, true, &mut some);
                }
                combine(false, bitmap, &some);
            }
        }
    }
}

fn combine(any: bool, bitmap: &mut [bool], with: &[bool]) {
    for (bit, with) in bitmap.iter_mut().zip(with) {
        match any {
            true => *bit |= with,
            false => *bit &= with,
        }
    }
}

impl Test {
    /// Tells for which cells it holds, null or not.
    fn evaluate(&self, cells: &CellSlice<'_>, holds: &mut [bool]) {
        macro_rules! numbers {
            ($type:ty, $op:expr, $value:expr) => {{
                let value = $value
                    .first_chunk()
                    .map(|value| <$type>::from_le_bytes(*value));
                let value = value.unwrap_or_default();
                for (holds, cell) in holds.iter_mut().zip(cells.values.as_chunks().0) {
                    *holds = $op.holds(&<$type>::from_le_bytes(*cell), &value);
                }
            }};
        }
        match self {
            Test::Number { datatype, op, value } => match (datatype.kind(), datatype.size()) {
                (Kind::Signed, 1) => numbers!(i8, op, value),
                (Kind::Signed, 2) => numbers!(i16, op, value),
                (Kind::Signed, 4) => numbers!(i32, op, value),
                (Kind::Signed | Kind::Datetime | Kind::Time, _) => numbers!(i64, op, value),
                (Kind::Float, 4) => numbers!(f32, op, value),
                (Kind::Float, _) => numbers!(f64, op, value),
                (_, 1) => numbers!(u8, op, value),
                (_, 2) => numbers!(u16, op, value),
                (_, 4) => numbers!(u32, op, value),
                _ => numbers!(u64, op, value),
            },
            Test::Char { size, op, value } => {
                for (holds, cell) in holds.iter_mut().zip(cells.values.chunks_exact(*size)) {
                    let first = cell.first().copied().unwrap_or(0);
                    *holds = op.holds(&first.cast_signed(), value);
                }
            }
            Test::Text { size, op, value } => {
                each_text(cells, *size, holds, |cell| op.holds(cell, value.as_slice()));
            }
            Test::Member {
                size,
                members,
                holds: wanted,
            } => each_text(cells, *size, holds, |cell| members.contains(cell) == *wanted),
        }
    }
}

/// Calls `test` with the bytes of each cell.
fn each_text(cells: &CellSlice<'_>, size: Option<usize>, holds: &mut [bool], test: impl Fn(&[u8]) -> bool) {
    match size {
        Some(size) => {
            for (holds, cell) in holds.iter_mut().zip(cells.values.chunks_exact(size)) {
                *holds = test(cell);
            }
        }
        None => {
            for (i, holds) in holds.iter_mut().enumerate() {
                *holds = test(cells.text(i));
            }
        }
    }
}

/// What a condition is being bound to.
struct Binder<'a> {
    view: &'a Schema,
    all: &'a [Field],
    used: Vec<usize>,
}

/// The type of a field.
#[derive(Clone, Copy, PartialEq)]
struct Type {
    datatype: Datatype,
    cells: CellValNum,
    nullable: bool,
}

impl Type {
    /// Bytes of a cell; None when var-sized.
    fn size(self) -> Option<usize> {
        let size = self.cells.cell_size(self.datatype)?;
        usize::try_from(size).ok()
    }

    fn is_text(self) -> bool {
        use Datatype::{Char, StringAscii, StringUtf8};
        matches!(self.datatype, Char | StringAscii | StringUtf8)
    }

    /// What the type is, for messages.
    fn name(self) -> String {
        let cells = match self.cells {
            CellValNum::Var => " of any length".to_owned(),
            CellValNum::Fixed(1) => String::new(),
            CellValNum::Fixed(n) => format!(" x {n}"),
        };
        let null = if self.nullable { ", nullable" } else { "" };
        format!("{}{cells}{null}", self.datatype.name())
    }
}

impl Binder<'_> {
    fn node(&mut self, condition: &Condition) -> Result<Node> {
        match condition {
            Condition::Expression {
                combination,
                children,
            } => {
                let any = match combination {
                    Combination::And => false,
                    Combination::Or => true,
                    Combination::Not => {
                        return Err(Error::unsupported("a stored condition with NOT"));
                    }
                };
                let children = children.iter().map(|child| self.node(child));
                Ok(Node::Combined {
                    any,
                    children: children.collect::<Result<_>>()?,
                })
            }
            Condition::Value {
                op,
                field,
                value,
                offsets,
            } => self
                .comparison(*op, field, value, offsets)
                .map_err(|e| e.in_part(format_args!("field `{}`", String::from_utf8_lossy(field)))),
        }
    }

    fn comparison(&mut self, op: ConditionOp, name: &[u8], value: &[u8], offsets: &[u64]) -> Result<Node> {
        let attribute = self.view.attribute(name).map(|a| Type {
            datatype: a.datatype,
            cells: a.cell_val_num,
            nullable: a.nullable,
        });
        let dimension = || {
            self.view.dimension(name).map(|d| Type {
                datatype: d.datatype,
                cells: d.cell_val_num,
                nullable: false,
            })
        };
        let in_view = attribute
            .or_else(dimension)
            .ok_or_else(|| Error::corrupt("the schema has no such field"))?;
        let test = test(in_view, op, value, offsets)?;
        let found = self.all.iter().position(|field| {
            let role = match attribute {
                Some(_) => matches!(field.role, Role::Attribute(_)),
                None => matches!(field.role, Role::Dimension(_) | Role::ZippedDimension(_)),
            };
            role && field.name == name && field.cell_val_num.is_var() == in_view.cells.is_var()
        });
        let Some((at, field)) = found.and_then(|at| Some((at, self.all.get(at)?))) else {
            return Ok(Node::Missing);
        };
        let stored = Type {
            datatype: field.datatype,
            cells: field.cell_val_num,
            nullable: field.nullable,
        };
        let same = stored == in_view || stored.cells.is_var() && stored.nullable == in_view.nullable;
        if !same {
            return Err(Error::corrupt(format!(
                "of type {} now, of type {} when the fragment was written",
                in_view.name(),
                stored.name()
            )));
        }
        Ok(match test {
            Some(test) => Node::Compare {
                field: self.field(at),
                test,
            },
            None => Node::Always(op == ConditionOp::AlwaysTrue),
        })
    }

    /// Whether a cell was written after `until`.
    fn later(&mut self, until: u64) -> Result<Node> {
        let timestamps = self.all.iter().position(|field| field.role == Role::Timestamps);
        let at =
            timestamps.ok_or_else(|| Error::new(ErrorKind::Internal, "a fragment without timestamps"))?;
        Ok(Node::Compare {
            field: self.field(at),
            test: Test::Number {
                datatype: Datatype::Uint64,
                op: Comparison::Gt,
                value: until.to_le_bytes(),
            },
        })
    }

    /// Notes that a field is needed.
    fn field(&mut self, at: usize) -> usize {
        match self.used.iter().position(|&used| used == at) {
            Some(i) => i,
            None => {
                self.used.push(at);
                self.used.len() - 1
            }
        }
    }
}

/// The comparison of values of a type with a constant; None for one that does not look at them.
fn test(of: Type, op: ConditionOp, value: &[u8], offsets: &[u64]) -> Result<Option<Test>> {
    let size = of.size();
    let numeric = !matches!(of.datatype.kind(), Kind::Text | Kind::Bytes);
    let one = of.cells == CellValNum::Fixed(1);
    if !(of.is_text() || numeric && one) {
        return Err(Error::unsupported(format!(
            "a condition on values of type {}",
            of.name()
        )));
    }
    let wrong_size = |length: usize| match (value.is_empty(), length) {
        (true, _) => Error::corrupt(format!("a null test of values of type {}", of.name())),
        (false, _) => Error::corrupt(format!(
            "a constant of {length} bytes for values of type {}",
            of.name()
        )),
    };
    let op = match op {
        ConditionOp::AlwaysTrue | ConditionOp::AlwaysFalse => return Ok(None),
        ConditionOp::In | ConditionOp::NotIn => {
            if value.is_empty() {
                return Err(Error::corrupt("a condition on a set of no members"));
            }
            let ends = offsets.iter().skip(1).copied().chain([value.len() as u64]);
            let mut members = HashSet::new();
            for (&start, end) in offsets.iter().zip(ends) {
                let member = usize::try_from(start)
                    .ok()
                    .zip(usize::try_from(end).ok())
                    .and_then(|(start, end)| value.get(start..end))
                    .ok_or_else(|| Error::corrupt("members that do not follow each other"))?;
                if size.is_some_and(|size| size != member.len()) {
                    return Err(wrong_size(member.len()));
                }
                members.insert(member.to_vec());
            }
            return Ok(Some(Test::Member {
                size,
                members,
                holds: op == ConditionOp::In,
            }));
        }
        ConditionOp::Lt => Comparison::Lt,
        ConditionOp::Le => Comparison::Le,
        ConditionOp::Gt => Comparison::Gt,
        ConditionOp::Ge => Comparison::Ge,
        ConditionOp::Eq => Comparison::Eq,
        ConditionOp::Ne => Comparison::Ne,
    };
    Ok(Some(match (of.datatype, size) {
        // An empty constant is a zero byte.
        (Datatype::Char, Some(size)) => Test::Char {
            size,
            op,
            value: value.first().copied().unwrap_or(0).cast_signed(),
        },
        _ if of.is_text() => Test::Text {
            size,
            op,
            value: value.to_vec(),
        },
        (datatype, _) => {
            let mut bytes = [0; 8];
            match bytes.get_mut(..value.len()) {
                Some(bytes) if size == Some(value.len()) => bytes.copy_from_slice(value),
                _ => return Err(wrong_size(value.len())),
            }
            Test::Number {
                datatype,
                op,
                value: bytes,
            }
        }
    }))
}

#[cfg(test)]
mod tests;
