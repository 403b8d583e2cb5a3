//! Delete conditions evaluated on cells of a fragment, as libtiledb does it.
//!
//! A stored condition tells which cells are kept. It is evaluated on a bitmap of cells that starts as all
//! ones. In mode AND, a comparison clears the bits of cells for which it does not hold; in mode OR, it sets
//! those of cells for which it holds. No comparison holds for a null. An AND evaluates its children in mode
//! AND: on the bitmap itself if it is in mode AND, else on a new bitmap of ones, which is then or-ed to it.
//! An OR evaluates its children in mode OR on a new bitmap of zeros, which is then and-ed to it. A comparison
//! of a field that the fragment lacks clears the whole bitmap, whatever the mode.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/query/query_condition.cc>

use crate::error::{Error, Result};
use crate::format::condition::{self, Condition};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::enums::{Combination, ConditionOp};
use crate::format::field::{Field, Form, Role as FieldRole, Stored};
use crate::format::scalar::with_number;
use crate::format::schema::Schema;
use crate::fragment::cell_slice::CellSlice;
use crate::fragment::field::{Role, StoredField};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A stored condition, checked and resolved for an array with one schema.
#[derive(Debug)]
pub struct ViewCondition {
    /// In the order of the stored nodes: a combination stands before its children.
    nodes: Vec<Node>,
    fields: Vec<Field>,
    /// The most combinations inside each other.
    depth: usize,
}

/// About how much memory the bitmaps of one evaluation may take, in bytes. A deep condition needs a bitmap
/// for each level, so it is evaluated on fewer cells at a time.
const BITMAPS: usize = 8 << 20;

/// A condition on the cells of one fragment.
#[derive(Debug)]
pub struct BoundCondition {
    condition: Arc<ViewCondition>,
    /// For each field of the condition its index in `fields`; None if the fragment lacks the field.
    columns: Vec<Option<usize>>,
    fields: Vec<usize>,
    /// Restricts the condition to cells written until then (inclusive); the second number is the index of the
    /// timestamps in `fields`.
    until: Option<(u64, usize)>,
}

#[derive(Debug)]
enum Node {
    /// Holds if all, or any, of the children hold. `end` is the index of the first node after those below.
    Combined { any: bool, end: usize },
    /// A comparison of a field, an index into [`ViewCondition::fields`].
    Compare { field: usize, test: Test },
}

#[derive(Debug)]
enum Test {
    /// The same result for all cells, null or not.
    Always(bool),
    /// Numbers, compared in their type.
    Number {
        datatype: Datatype,
        op: Comparison,
        value: [u8; 8],
    },
    /// The first byte of a cell of `size` bytes, signed: fixed-size CHAR.
    Char { size: usize, op: Comparison, value: i8 },
    /// Bytes, compared as unsigned; cells have a fixed `size` or are var-sized.
    Text {
        size: Option<usize>,
        op: Comparison,
        value: Vec<u8>,
    },
    /// Whether the bytes of the cell are those of a member.
    Member {
        size: Option<usize>,
        members: Members,
        holds: bool,
    },
}

/// The members of a set: ranges of `bytes`, in the order of what is in them.
#[derive(Debug)]
struct Members {
    bytes: Box<[u8]>,
    ranges: Vec<Range<u32>>,
}

impl Members {
    fn new(bytes: Box<[u8]>, mut ranges: Vec<Range<u32>>) -> Members {
        let of = |range: &Range<u32>| &bytes[range.start as usize..range.end as usize];
        ranges.sort_unstable_by(|one, other| of(one).cmp(of(other)));
        Members { bytes, ranges }
    }

    fn contains(&self, cell: &[u8]) -> bool {
        let member = |range: &Range<u32>| self.bytes[range.start as usize..range.end as usize].cmp(cell);
        self.ranges.binary_search_by(member).is_ok()
    }
}

/// The relation required between a cell and the constant.
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

impl ViewCondition {
    /// Resolves a condition for an array whose schema is `view`.
    ///
    /// Fails if libtiledb cannot read the array either: fields that the schema lacks or has with values of
    /// another size, null tests of numeric fields, sets without members, types that cannot be compared.
    pub fn new(condition: &Condition, view: &Schema) -> Result<ViewCondition> {
        let mut fields = Fields {
            view,
            list: Vec::new(),
            indexes: HashMap::new(),
        };
        let mut nodes = Vec::with_capacity(condition.nodes().len());
        let (mut open, mut depth) = (Vec::new(), 0);
        for stored in condition.nodes() {
            let here = nodes.len();
            while open.last().is_some_and(|&end| end <= here) {
                open.pop();
            }
            nodes.push(match stored {
                condition::Node::Expression { combination, end, .. } => {
                    open.push(*end);
                    depth = depth.max(open.len());
                    let any = match combination {
                        Combination::And => false,
                        Combination::Or => true,
                        Combination::Not => {
                            return Err(Error::unsupported("a stored condition cannot have NOT"));
                        }
                    };
                    Node::Combined { any, end: *end }
                }
                condition::Node::Value {
                    op,
                    field,
                    value,
                    offsets,
                } => {
                    let found = fields.find(field).and_then(|(index, form)| {
                        let test = test(form, *op, value, offsets)?;
                        Ok(Node::Compare { field: index, test })
                    });
                    found.map_err(|e| e.in_part(field_part(field)))?
                }
            });
        }
        Ok(ViewCondition {
            nodes,
            fields: fields.list,
            depth,
        })
    }

    /// The fields that it compares.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Binds the condition to a fragment with these fields. `until` restricts it to cells written until then
    /// (inclusive); the fragment must store timestamps for that.
    ///
    /// Fails if libtiledb misreads the array: a fixed-size attribute had another type or nullability when the
    /// fragment was written.
    pub fn bind(self: &Arc<Self>, fields: &[StoredField], until: Option<u64>) -> Result<BoundCondition> {
        let mut used = Vec::new();
        let columns = self.fields.iter().map(|field| {
            Ok(find(field, fields)?.map(|at| {
                used.push(at);
                used.len() - 1
            }))
        });
        let columns = columns.collect::<Result<_>>()?;
        let until = match until {
            None => None,
            Some(until) => {
                let timestamps = fields.iter().position(|field| field.role == Role::Timestamps);
                used.push(timestamps.ok_or_else(|| Error::internal("the fragment has no timestamps"))?);
                Some((until, used.len() - 1))
            }
        };
        Ok(BoundCondition {
            condition: self.clone(),
            columns,
            fields: used,
            until,
        })
    }
}

/// The index of `wanted` among the fields of a fragment. None if the fragment lacks it. Fails if it has
/// another type.
fn find(wanted: &Field, fields: &[StoredField]) -> Result<Option<usize>> {
    let same_field = |field: &&StoredField| {
        let same_role = match wanted.role {
            FieldRole::Attribute(_) => matches!(field.role, Role::Attribute(_)),
            FieldRole::Dimension(_) => {
                matches!(field.role, Role::Dimension(_) | Role::ZippedDimension(_))
            }
        };
        same_role && field.name == wanted.name
    };
    let mut found = fields.iter().enumerate();
    let found = found.find(|(_, field)| same_field(field));
    let form = wanted.form();
    match Stored::of(found.map(|found| (found, found.1.form())), form) {
        Stored::Nothing => Ok(None),
        Stored::Same((at, _)) => Ok(Some(at)),
        // Texts of one length or another, in this encoding or that, are compared as bytes.
        Stored::Other((at, field), _)
            if form.cell_val_num.is_var() && field.nullable == form.nullable && is_text(field.datatype) =>
        {
            Ok(Some(at))
        }
        Stored::Other((_, field), _) => {
            let stored = field.form();
            let message = format!("its type is {form}, but was {stored} when the fragment was written");
            Err(Error::corrupt(message).in_part(field_part(&wanted.name)))
        }
    }
}

impl BoundCondition {
    /// The fields that `evaluate` needs, as indexes into the fragment's fields, each once.
    pub fn fields(&self) -> &[usize] {
        &self.fields
    }

    /// Whether it is the same as `other`, another binding of its condition.
    pub fn is_same(&self, other: &BoundCondition) -> bool {
        (&self.columns, &self.fields, self.until) == (&other.columns, &other.fields, other.until)
    }

    /// Clears the flags of cells that the condition deletes. `cells` has the cells of each of
    /// [`BoundCondition::fields`], as many as there are flags.
    pub fn evaluate(&self, cells: &[CellSlice<'_>], keep: &mut [bool]) {
        let most = BITMAPS / (self.condition.depth + 2);
        let mut first = 0;
        for keep in keep.chunks_mut(most.max(1)) {
            let count = keep.len();
            self.evaluate_run(cells, first, &mut BitmapStack::new(keep));
            first += count;
        }
    }

    /// Evaluates the condition on the cells from `first` on, as many as the bitmaps of `stack` have flags.
    fn evaluate_run(&self, cells: &[CellSlice<'_>], first: usize, stack: &mut BitmapStack<'_>) {
        let nodes = &self.condition.nodes;
        let mut begin = 0;
        if let Some((until, times)) = self.until {
            // An OR of "written later" and the root; if the root is an OR, of its children.
            stack.open(true, nodes.len());
            let later = Test::Number {
                datatype: Datatype::Uint64,
                op: Comparison::Gt,
                value: until.to_le_bytes(),
            };
            stack.compare(&later, &cells[times], first);
            begin = usize::from(matches!(nodes.first(), Some(Node::Combined { any: true, .. })));
        }
        for (at, node) in nodes.iter().enumerate().skip(begin) {
            stack.close(at);
            match node {
                Node::Combined { any, end } => stack.open(*any, *end),
                Node::Compare { field, test } => match self.columns[*field] {
                    Some(column) => stack.compare(test, &cells[column], first),
                    None => stack.bitmap().fill(false),
                },
            }
        }
        stack.close(nodes.len());
    }
}

/// The combinations that are being evaluated, outermost first, and their bitmaps.
struct BitmapStack<'a> {
    root: &'a mut [bool],
    open: Vec<Open>,
    /// Those of the combinations that have one; the last one is in use.
    bitmaps: Vec<Vec<bool>>,
    /// Bitmaps that are no longer in use, and one for the result of a comparison.
    spare: Vec<Vec<bool>>,
    holds: Vec<bool>,
}

/// A combination whose children are being evaluated.
struct Open {
    /// Whether its children are evaluated in mode OR.
    any: bool,
    /// The index of the first node after those below it.
    end: usize,
    /// Whether its children have a bitmap of their own, not the one outside.
    own_bitmap: bool,
}

impl<'a> BitmapStack<'a> {
    fn new(root: &'a mut [bool]) -> Self {
        BitmapStack {
            holds: vec![false; root.len()],
            root,
            open: Vec::new(),
            bitmaps: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Whether the mode is OR.
    fn any(&self) -> bool {
        self.open.last().is_some_and(|open| open.any)
    }

    /// The bitmap in use.
    fn bitmap(&mut self) -> &mut [bool] {
        match self.bitmaps.last_mut() {
            Some(bitmap) => bitmap,
            None => self.root,
        }
    }

    /// Begins an OR, if `any`, or an AND, which ends before the node `end`.
    fn open(&mut self, any: bool, end: usize) {
        let own_bitmap = any || self.any();
        if own_bitmap {
            let spare = self.spare.pop();
            let mut bitmap = spare.unwrap_or_else(|| vec![false; self.root.len()]);
            bitmap.fill(!any);
            self.bitmaps.push(bitmap);
        }
        self.open.push(Open { any, end, own_bitmap });
    }

    /// Ends all combinations that end before the node `at`.
    fn close(&mut self, at: usize) {
        while let Some(open) = self.open.pop_if(|open| open.end <= at) {
            if open.own_bitmap {
                let bitmap = self.bitmaps.pop().expect("a bitmap for each that has its own");
                // An AND with a bitmap of its own stands in an OR.
                combine(!open.any, self.bitmap(), &bitmap);
                self.spare.push(bitmap);
            }
        }
    }

    /// Evaluates a comparison of the cells from `first` on.
    fn compare(&mut self, test: &Test, cells: &CellSlice<'_>, first: usize) {
        let any = self.any();
        let mut holds = std::mem::take(&mut self.holds);
        holds.fill(false);
        test.evaluate(cells, first, &mut holds);
        if let (Some(validity), false) = (cells.validity, matches!(test, Test::Always(_))) {
            for (holds, valid) in holds.iter_mut().zip(validity.iter().skip(first)) {
                *holds &= *valid != 0;
            }
        }
        combine(any, self.bitmap(), &holds);
        self.holds = holds;
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
    /// Sets the flag of each cell, from `first` on, for which the test holds, whether the cell is null or
    /// not.
    fn evaluate(&self, cells: &CellSlice<'_>, first: usize, holds: &mut [bool]) {
        match self {
            Test::Always(always) => holds.fill(*always),
            Test::Number { datatype, op, value } => {
                macro_rules! numbers {
                    ($type:ty) => {{
                        let value = <$type>::from_le_bytes(value.as_chunks().0[0]);
                        let cells = cells.values.as_chunks().0.iter().skip(first);
                        for (holds, cell) in holds.iter_mut().zip(cells) {
                            *holds = op.holds(&<$type>::from_le_bytes(*cell), &value);
                        }
                    }};
                }
                with_number!(datatype, numbers, unreachable!("text and bytes are no numbers"))
            }
            Test::Char { size, op, value } => {
                for (holds, cell) in holds.iter_mut().zip(cells.values.chunks_exact(*size).skip(first)) {
                    *holds = op.holds(&cell[0].cast_signed(), value);
                }
            }
            Test::Text { size, op, value } => {
                each_text(cells, first, *size, holds, |cell| {
                    op.holds(cell, value.as_slice())
                });
            }
            Test::Member {
                size,
                members,
                holds: wanted,
            } => each_text(cells, first, *size, holds, |cell| {
                members.contains(cell) == *wanted
            }),
        }
    }
}

/// Sets the flag of each cell, from `first` on, whose bytes pass `test`.
fn each_text(
    cells: &CellSlice<'_>,
    first: usize,
    size: Option<usize>,
    holds: &mut [bool],
    test: impl Fn(&[u8]) -> bool,
) {
    match size {
        Some(size) => {
            for (holds, cell) in holds.iter_mut().zip(cells.values.chunks_exact(size).skip(first)) {
                *holds = test(cell);
            }
        }
        None => {
            for (i, holds) in holds.iter_mut().enumerate() {
                *holds = test(cells.text(first + i));
            }
        }
    }
}

fn is_text(datatype: Datatype) -> bool {
    use Datatype::{Char, StringAscii, StringUtf8};
    matches!(datatype, Char | StringAscii | StringUtf8)
}

/// The fields of a condition, each once.
struct Fields<'a> {
    view: &'a Schema,
    list: Vec<Field>,
    indexes: HashMap<&'a [u8], usize>,
}

impl<'a> Fields<'a> {
    /// The index of the field, and its type.
    fn find(&mut self, name: &'a [u8]) -> Result<(usize, Form)> {
        let index = match self.indexes.get(name) {
            Some(index) => *index,
            None => {
                let field = self.view.field_named(name);
                self.list
                    .push(field.ok_or_else(|| Error::corrupt("the schema has no such field"))?);
                self.indexes.insert(name, self.list.len() - 1);
                self.list.len() - 1
            }
        };
        Ok((index, self.list[index].form()))
    }
}

fn field_part(name: &[u8]) -> String {
    format!("field `{}`", String::from_utf8_lossy(name))
}

/// The comparison of values of a type with a constant.
fn test(of: Form, op: ConditionOp, value: &[u8], offsets: &[u64]) -> Result<Test> {
    let size = of.cell_size().map(|size| size as usize);
    let numeric = !matches!(of.datatype.kind(), Kind::Text | Kind::Bytes);
    let one = of.cell_val_num == CellValNum::Fixed(1);
    if !(is_text(of.datatype) || numeric && one) {
        return Err(Error::unsupported(format!(
            "no condition can be evaluated on values of type {of}"
        )));
    }
    let wrong_size = |length: usize| match (value.is_empty(), length) {
        (true, _) => Error::corrupt(format!(
            "a null test on values of type {of}, which TileDB does not evaluate"
        )),
        (false, _) => Error::corrupt(format!(
            "the constant has {length} bytes, which does not fit values of type {of}"
        )),
    };
    let op = match op {
        ConditionOp::AlwaysTrue => return Ok(Test::Always(true)),
        ConditionOp::AlwaysFalse => return Ok(Test::Always(false)),
        ConditionOp::In | ConditionOp::NotIn => {
            if value.is_empty() {
                return Err(Error::corrupt("the set of an IN or NOT IN has no members"));
            }
            let ends = offsets.iter().skip(1).copied().chain([value.len() as u64]);
            let mut ranges = Vec::with_capacity(offsets.len());
            for (&start, end) in offsets.iter().zip(ends) {
                let range = u32::try_from(start).ok().zip(u32::try_from(end).ok());
                let range = range.filter(|(start, end)| start <= end && *end as usize <= value.len());
                let (start, end) = range.ok_or_else(|| {
                    Error::corrupt("the offsets of the set's members are not ascending, or exceed its bytes")
                })?;
                let length = (end - start) as usize;
                if size.is_some_and(|size| size != length) {
                    return Err(wrong_size(length));
                }
                ranges.push(start..end);
            }
            return Ok(Test::Member {
                size,
                members: Members::new(value.into(), ranges),
                holds: op == ConditionOp::In,
            });
        }
        ConditionOp::Lt => Comparison::Lt,
        ConditionOp::Le => Comparison::Le,
        ConditionOp::Gt => Comparison::Gt,
        ConditionOp::Ge => Comparison::Ge,
        ConditionOp::Eq => Comparison::Eq,
        ConditionOp::Ne => Comparison::Ne,
    };
    Ok(match (of.datatype, size) {
        // An empty constant counts as a zero byte.
        (Datatype::Char, Some(size)) => Test::Char {
            size,
            op,
            value: value.first().copied().unwrap_or(0).cast_signed(),
        },
        _ if is_text(of.datatype) => Test::Text {
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
    })
}

#[cfg(test)]
mod tests;
