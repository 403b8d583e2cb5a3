use super::*;
use crate::format::testing::{Bytes, Random, field, schema, var};

/// A cell's value in the model.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Integer(i64),
    Float(f64),
    Text(Vec<u8>),
}

fn bind(
    condition: &Condition,
    view: &Schema,
    fields: &[StoredField],
    until: Option<u64>,
) -> Result<BoundCondition> {
    Arc::new(ViewCondition::new(condition, view)?).bind(fields, until)
}

/// A field with the values of some cells.
struct Column {
    values: Vec<u8>,
    starts: Option<Vec<u64>>,
    validity: Option<Vec<u8>>,
    model: Vec<Value>,
}

const NAMES: [&str; 9] = ["n", "f", "s", "c", "g", "b", "x", "d", "e"];
const MISSING: [&str; 2] = ["gone", "was_var"];

/// Attributes of several types, `g` with three values per cell; a numeric dimension and one of text.
fn view() -> Schema {
    let dimensions = [field("x", Datatype::Int16), var("d", Datatype::StringAscii)];
    let mut nullable = [field("n", Datatype::Int32), var("s", Datatype::StringAscii)];
    nullable[0].nullable = true;
    nullable[1].nullable = true;
    let attributes = [
        nullable[0],
        field("f", Datatype::Float64),
        nullable[1],
        field("c", Datatype::Char),
        field("g", Datatype::StringAscii),
        field("b", Datatype::Bool),
        field("e", Datatype::Uint8),
        field("gone", Datatype::Int32),
        field("was_var", Datatype::StringAscii),
    ];
    let mut schema = schema(22, true, &dimensions, &attributes);
    schema.attributes[4].cell_val_num = CellValNum::Fixed(3);
    schema
}

/// The fields of a fragment that lacks the attribute `gone` and has a var-sized `was_var`.
fn fields(view: &Schema) -> Vec<StoredField> {
    let attributes = view.attributes.iter().enumerate();
    let attributes = attributes
        .filter(|(_, a)| a.name != b"gone")
        .map(|(i, a)| StoredField {
            name: a.name.clone(),
            role: Role::Attribute(i),
            datatype: a.datatype,
            cell_val_num: match a.name.as_slice() {
                b"was_var" => CellValNum::Var,
                _ => a.cell_val_num,
            },
            nullable: a.nullable,
            slot: i,
        });
    let dimensions = view.dimensions.iter().enumerate().map(|(i, d)| StoredField {
        name: d.name.clone(),
        role: Role::Dimension(i),
        datatype: d.datatype,
        cell_val_num: d.cell_val_num,
        nullable: false,
        slot: 20 + i,
    });
    let timestamps = StoredField {
        name: b"__timestamps".to_vec(),
        role: Role::Timestamps,
        datatype: Datatype::Uint64,
        cell_val_num: CellValNum::Fixed(1),
        nullable: false,
        slot: 30,
    };
    attributes.chain(dimensions).chain([timestamps]).collect()
}

/// A random value of a field, for a constant or a cell.
fn bytes(name: &str, random: &mut Random) -> Vec<u8> {
    let small = random.index(4) as i64 - 1;
    let letter = |random: &mut Random| b"ab\0\xE9"[random.index(4)];
    match name {
        "n" => (small as i32).to_le_bytes().to_vec(),
        "f" => [-0.0, 0.0, 1.5, f64::NAN][random.index(4)].to_le_bytes().to_vec(),
        "s" | "d" => (0..random.index(3)).map(|_| letter(random)).collect(),
        "c" => vec![letter(random)],
        "g" => (0..3).map(|_| letter(random)).collect(),
        "b" => vec![random.index(2) as u8],
        "x" => (small as i16).to_le_bytes().to_vec(),
        "e" => vec![random.index(4) as u8 * 60],
        _ => vec![0; 4],
    }
}

fn decode(name: &str, bytes: &[u8]) -> Value {
    match name {
        "n" => Value::Integer(i32::from_le_bytes(bytes.try_into().unwrap()).into()),
        "f" => Value::Float(f64::from_le_bytes(bytes.try_into().unwrap())),
        "c" => Value::Integer((bytes[0] as i8).into()),
        "b" | "e" => Value::Integer(bytes[0].into()),
        "x" => Value::Integer(i16::from_le_bytes(bytes.try_into().unwrap()).into()),
        "t" => Value::Integer(u64::from_le_bytes(bytes.try_into().unwrap()) as i64),
        _ => Value::Text(bytes.to_vec()),
    }
}

fn column(name: &str, nullable: bool, cells: Vec<Vec<u8>>, random: &mut Random) -> Column {
    let validity: Vec<u8> = cells.iter().map(|_| random.index(3).min(1) as u8).collect();
    let ends = cells.iter().scan(7, |end, cell| {
        *end += cell.len() as u64;
        Some(*end)
    });
    Column {
        starts: matches!(name, "s" | "d").then(|| [7].into_iter().chain(ends).collect()),
        model: cells
            .iter()
            .zip(&validity)
            .map(|(cell, &valid)| match valid == 0 && nullable {
                true => Value::Null,
                false => decode(name, cell),
            })
            .collect(),
        values: cells.concat(),
        validity: nullable.then_some(validity),
    }
}

impl Column {
    fn slice(&self) -> CellSlice<'_> {
        CellSlice {
            count: self.model.len(),
            values: &self.values,
            starts: self.starts.as_deref(),
            validity: self.validity.as_deref(),
        }
    }
}

fn value(op: ConditionOp, field: &str, value: &[u8]) -> Condition {
    Condition::value(op, field, value, &[])
}

fn members(op: ConditionOp, field: &str, members: &[Vec<u8>]) -> Condition {
    let offsets = members.iter().scan(0, |end, member| {
        let start = *end;
        *end += member.len() as u64;
        Some(start)
    });
    Condition::value(op, field, &members.concat(), &offsets.collect::<Vec<_>>())
}

fn combined(combination: Combination, children: Vec<Condition>) -> Condition {
    Condition::expression(combination, &children)
}

fn random_condition(random: &mut Random, depth: usize) -> Condition {
    if depth > 0 && random.index(3) > 0 {
        let combination = [Combination::And, Combination::Or][random.index(2)];
        let count = 1 + random.index(3);
        return combined(
            combination,
            (0..count).map(|_| random_condition(random, depth - 1)).collect(),
        );
    }
    if random.index(8) == 0 {
        return value(ConditionOp::Eq, "gone", &[0; 4]);
    }
    if random.index(20) == 0 {
        return value(ConditionOp::Eq, "was_var", b"a");
    }
    use ConditionOp::*;
    let name = NAMES[random.index(NAMES.len())];
    match [Lt, Le, Gt, Ge, Eq, Ne, In, NotIn, AlwaysTrue, AlwaysFalse][random.index(10)] {
        op @ (In | NotIn) => {
            let mut set: Vec<_> = (0..1 + random.index(3)).map(|_| bytes(name, random)).collect();
            if set.concat().is_empty() {
                set.push(b"a".to_vec());
            }
            members(op, name, &set)
        }
        op => value(op, name, &bytes(name, random)),
    }
}

/// The rules of the module's documentation: `or` is the mode, a number in `bitmap` a cell.
fn model(node: &Condition, or: bool, bitmap: &mut Vec<u8>, cells: &dyn Fn(&str) -> Vec<Value>) {
    match &node.nodes()[0] {
        condition::Node::Expression {
            combination: Combination::And,
            ..
        } if !or => {
            for child in node.children() {
                model(&child, false, bitmap, cells);
            }
        }
        condition::Node::Expression {
            combination: Combination::And,
            ..
        } => {
            let mut fresh = vec![1; bitmap.len()];
            for child in node.children() {
                model(&child, false, &mut fresh, cells);
            }
            *bitmap = bitmap.iter().zip(fresh).map(|(a, b)| a | b).collect();
        }
        condition::Node::Expression { .. } => {
            let mut fresh = vec![0; bitmap.len()];
            for child in node.children() {
                model(&child, true, &mut fresh, cells);
            }
            *bitmap = bitmap.iter().zip(fresh).map(|(a, b)| a & b).collect();
        }
        condition::Node::Value {
            op,
            field,
            value,
            offsets,
        } => {
            let name = std::str::from_utf8(field).unwrap();
            if MISSING.contains(&name) {
                bitmap.fill(0);
                return;
            }
            for (bit, cell) in bitmap.iter_mut().zip(cells(name)) {
                let holds = match op {
                    ConditionOp::AlwaysTrue => true,
                    ConditionOp::AlwaysFalse => false,
                    _ => cell != Value::Null && holds(*op, name, &cell, value, offsets),
                };
                *bit = if or {
                    *bit | u8::from(holds)
                } else {
                    *bit & u8::from(holds)
                };
            }
        }
    }
}

fn holds(op: ConditionOp, name: &str, cell: &Value, value: &[u8], offsets: &[u64]) -> bool {
    use ConditionOp::*;
    if let In | NotIn = op {
        let mut members = offsets.iter().enumerate().map(|(i, &start)| {
            let end = offsets.get(i + 1).map_or(value.len(), |&end| end as usize);
            decode(name, &value[start as usize..end])
        });
        let same = |member: Value| match (&member, cell) {
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            _ => member == *cell,
        };
        return members.any(same) == (op == In);
    }
    let order = match (cell, decode(name, value)) {
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(&b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(&b)),
        _ => panic!("{cell:?} and {value:?}"),
    };
    match op {
        Lt => order.is_some_and(|o| o.is_lt()),
        Le => order.is_some_and(|o| o.is_le()),
        Gt => order.is_some_and(|o| o.is_gt()),
        Ge => order.is_some_and(|o| o.is_ge()),
        Eq => order.is_some_and(|o| o.is_eq()),
        _ => !order.is_some_and(|o| o.is_eq()),
    }
}

#[test]
fn conditions_are_evaluated_as_the_rules_say() {
    let mut random = Random(5);
    let (view, count) = (view(), 24);
    let fields = fields(&view);
    let (mut kept, mut dropped) = (0, 0);
    for _ in 0..4000 {
        let condition = random_condition(&mut random, 3);
        let until = (random.index(2) == 0).then_some(10);
        let bound = bind(&condition, &view, &fields, until).unwrap();
        let mut columns: Vec<(&str, Column)> = Vec::new();
        for name in NAMES {
            let cells = (0..count).map(|_| bytes(name, &mut random)).collect();
            let nullable = matches!(name, "n" | "s");
            columns.push((name, column(name, nullable, cells, &mut random)));
        }
        let times = (0..count).map(|_| (8 + random.next() % 5).to_le_bytes().to_vec());
        let times = column("t", false, times.collect(), &mut random);
        columns.push(("t", times));
        let named = |name: &str| &columns.iter().find(|(other, _)| *other == name).unwrap().1;
        let slices: Vec<CellSlice> = bound
            .fields()
            .iter()
            .map(|&i| match fields[i].role {
                Role::Timestamps => named("t").slice(),
                _ => named(std::str::from_utf8(&fields[i].name).unwrap()).slice(),
            })
            .collect();
        // Cells that are already deleted stay deleted.
        let before: Vec<bool> = (0..count).map(|_| random.index(8) > 0).collect();
        let mut found = before.clone();
        bound.evaluate(&slices, &mut found);

        let later = value(ConditionOp::Gt, "t", &10u64.to_le_bytes());
        let root = match (&condition.nodes()[0], until) {
            (_, None) => condition.clone(),
            (
                condition::Node::Expression {
                    combination: Combination::Or,
                    ..
                },
                Some(_),
            ) => combined(Combination::Or, [&[later], &condition.children()[..]].concat()),
            _ => combined(Combination::Or, vec![later, condition.clone()]),
        };
        let mut bitmap: Vec<u8> = before.iter().map(|&bit| bit.into()).collect();
        model(&root, false, &mut bitmap, &|name| named(name).model.clone());
        let expected: Vec<bool> = bitmap.iter().map(|&bit| bit == 1).collect();
        assert_eq!(found, expected, "{condition:?} until {until:?}");
        kept += found.iter().filter(|&&bit| bit).count();
        dropped += found
            .iter()
            .zip(&before)
            .filter(|(after, before)| after != before)
            .count();
    }
    assert!(
        kept > 10_000 && dropped > 10_000,
        "{kept} kept, {dropped} dropped"
    );
}

/// Which cells of one field a condition on it keeps.
fn kept(condition: &Condition, name: &str, cells: &[&[u8]], validity: Option<&[u8]>) -> Vec<bool> {
    let view = view();
    let fields = fields(&view);
    let bound = bind(condition, &view, &fields, None).unwrap();
    let ends = cells.iter().scan(0, |end, cell| {
        *end += cell.len() as u64;
        Some(*end)
    });
    let starts: Vec<u64> = [0].into_iter().chain(ends).collect();
    let slice = CellSlice {
        count: cells.len(),
        values: &cells.concat(),
        starts: matches!(name, "s" | "d").then_some(&starts),
        validity,
    };
    let slices: Vec<CellSlice> = bound.fields().iter().map(|_| slice).collect();
    let mut keep = vec![true; cells.len()];
    bound.evaluate(&slices, &mut keep);
    keep
}

#[test]
fn nulls_are_deleted_by_whatever_looks_at_them() {
    use ConditionOp::*;
    let (one, three) = (1i32.to_le_bytes(), 3i32.to_le_bytes());
    let cells: [&[u8]; 3] = [&one, &three, &one];
    let validity = Some(&[1, 1, 0][..]);
    let two = 2i32.to_le_bytes();
    assert_eq!(
        kept(&value(Ge, "n", &two), "n", &cells, validity),
        [false, true, false]
    );
    assert_eq!(
        kept(&value(Lt, "n", &two), "n", &cells, validity),
        [true, false, false]
    );
    for op in [In, NotIn] {
        let condition = members(op, "n", &[one.to_vec()]);
        assert_eq!(
            kept(&condition, "n", &cells, validity),
            [op == In, op == NotIn, false]
        );
    }
}

#[test]
fn nan_holds_in_inequality_alone() {
    use ConditionOp::*;
    let nan = f64::NAN.to_le_bytes();
    let one = 1.5f64.to_le_bytes();
    for (op, keeps) in [(Lt, false), (Ge, false), (Eq, false), (Ne, true)] {
        assert_eq!(kept(&value(op, "f", &one), "f", &[&nan], None), [keeps]);
        assert_eq!(kept(&value(op, "f", &nan), "f", &[&one], None), [keeps]);
    }
    // Members are bytes.
    let zero = members(In, "f", &[0f64.to_le_bytes().to_vec(), nan.to_vec()]);
    let cells: [&[u8]; 3] = [&0f64.to_le_bytes(), &(-0f64).to_le_bytes(), &nan];
    assert_eq!(kept(&zero, "f", &cells, None), [true, false, true]);
    let equal = value(Eq, "f", &0f64.to_le_bytes());
    assert_eq!(kept(&equal, "f", &cells, None), [true, true, false]);
}

#[test]
fn characters_have_a_sign_and_texts_have_none() {
    use ConditionOp::*;
    let lt_b = |name| value(Lt, name, b"b");
    assert_eq!(kept(&lt_b("c"), "c", &[b"a", b"\xE9"], None), [true, true]);
    assert_eq!(
        kept(&lt_b("s"), "s", &[b"a", b"\xE9", b"", b"b\0"], None),
        [true, false, true, false]
    );
    // Like libtiledb: a longer constant counts by its first byte, an empty one is a zero byte.
    assert_eq!(
        kept(&value(Eq, "c", b"ab"), "c", &[b"a", b"b"], None),
        [true, false]
    );
    assert_eq!(
        kept(&value(Eq, "c", b""), "c", &[b"a", b"\0"], None),
        [false, true]
    );
    // A text of a fixed size is all of its bytes.
    let cells: [&[u8]; 2] = [b"a\0\0", b"abc"];
    assert_eq!(kept(&value(Eq, "g", b"a"), "g", &cells, None), [false, false]);
    assert_eq!(kept(&value(Lt, "g", b"ab"), "g", &cells, None), [true, false]);
}

#[test]
fn what_stands_after_a_missing_field_in_an_or_counts() {
    use ConditionOp::*;
    let zero = 0i16.to_le_bytes();
    let one = 1i16.to_le_bytes();
    let cells: [&[u8]; 2] = [&zero, &one];
    let missing = value(Ne, "gone", &[4, 0, 0, 0]);
    let present = value(Ne, "x", &one);
    let or = |children| combined(Combination::Or, children);
    let and = |children| combined(Combination::And, children);
    let kept = |condition| kept(&condition, "x", &cells, None);
    assert_eq!(kept(or(vec![missing.clone(), present.clone()])), [true, false]);
    assert_eq!(kept(or(vec![present.clone(), missing.clone()])), [false, false]);
    assert_eq!(kept(and(vec![missing.clone(), present.clone()])), [false, false]);
    // An AND in an OR has a bitmap of its own.
    assert_eq!(kept(or(vec![present, and(vec![missing])])), [true, false]);
}

#[test]
fn later_cells_of_a_missing_field_are_deleted_too() {
    let view = view();
    let fields = fields(&view);
    let missing = value(ConditionOp::Ne, "gone", &[0; 4]);
    let times: Vec<u8> = [5u64, 20].iter().flat_map(|t| t.to_le_bytes()).collect();
    let kept = |condition: &Condition| {
        let bound = bind(condition, &view, &fields, Some(10)).unwrap();
        assert_eq!(fields[bound.fields()[0]].role, Role::Timestamps);
        let mut keep = [true; 2];
        bound.evaluate(&[CellSlice::fixed(&times, 8)], &mut keep);
        keep
    };
    assert_eq!(kept(&missing), [false, false]);
    assert_eq!(kept(&combined(Combination::And, vec![missing])), [false, true]);
}

#[test]
fn conditions_that_make_an_array_unreadable_are_refused() {
    use ConditionOp::*;
    let view = view();
    let all = fields(&view);
    let refused = |condition: &Condition| {
        let error = bind(condition, &view, &all, None).unwrap_err();
        error.to_string()
    };
    let contains = |condition: &Condition, text: &str| {
        let message = refused(condition);
        assert!(message.contains(text), "{message}");
    };
    contains(&value(Eq, "never", &[0; 4]), "field `never`");
    contains(
        &value(Eq, "n", &[0; 8]),
        "the constant has 8 bytes, which does not fit values of type INT32, nullable",
    );
    contains(&value(Ne, "n", b""), "a null test");
    contains(&value(Eq, "gone", &[0; 8]), "the constant has 8 bytes");
    contains(&members(In, "n", &[]), "no members");
    contains(&members(NotIn, "s", &[vec![]]), "no members");
    contains(
        &members(In, "n", &[vec![0; 4], vec![0; 3]]),
        "the constant has 3 bytes",
    );
    contains(
        &combined(Combination::Not, vec![value(Eq, "n", &[0; 4])]),
        "a stored condition cannot have NOT",
    );
    let members = Condition::value(In, "s", b"ab", &[1, 0]);
    contains(&members, "the offsets of the set's members are not ascending");

    let changed = |condition: &Condition, change: fn(&mut Schema)| {
        let mut view = view.clone();
        change(&mut view);
        bind(condition, &view, &all, None).map(|_| ())
    };
    let on_n = value(Eq, "n", &[0; 4]);
    assert!(changed(&on_n, |_| ()).is_ok());
    assert!(changed(&on_n, |view| view.attributes[0].datatype = Datatype::Uint32).is_err());
    assert!(changed(&on_n, |view| view.attributes[0].nullable = false).is_err());
    assert!(
        changed(&on_n, |view| view.attributes[0].cell_val_num =
            CellValNum::Fixed(2))
        .is_err()
    );
    assert!(changed(&on_n, |view| view.attributes[0].datatype = Datatype::Blob).is_err());
    assert!(
        changed(&value(Eq, "s", b"a"), |view| view.attributes[2].datatype =
            Datatype::Char)
        .is_ok()
    );
    assert!(
        changed(&value(Eq, "s", b"a"), |view| view.attributes[2].datatype =
            Datatype::StringUtf16)
        .is_err()
    );
    // The bytes of the fragment were no text.
    let mut bytes = all.clone();
    let text = bytes.iter_mut().find(|field| field.name == b"s");
    text.unwrap().datatype = Datatype::Blob;
    assert!(bind(&value(Eq, "s", b"a"), &view, &bytes, None).is_err());
    let without_time: Vec<StoredField> = all
        .iter()
        .filter(|f| f.role != Role::Timestamps)
        .cloned()
        .collect();
    assert!(bind(&on_n, &view, &without_time, Some(3)).is_err());
}

/// A condition of `depth` levels on the attribute `n`, each with a comparison and the next level.
fn deep(depth: usize) -> Vec<u8> {
    let mut bytes = Bytes::default();
    let leaf = |b: Bytes, number: u8| b.u8(1).u8(5).text32("n").count64(4).raw(&[number, 0, 0, 0]);
    for level in 1..depth {
        bytes = leaf(bytes.u8(0).u8((level % 2) as u8).u64(2), (level % 7) as u8);
    }
    leaf(bytes, 3).bytes
}

#[test]
fn deep_conditions_take_neither_stack_nor_much_memory() {
    let view = view();
    let fields = fields(&view);
    let count = 200;
    let values: Vec<u8> = (0..count).flat_map(|i: i32| (i % 8).to_le_bytes()).collect();
    let validity = vec![1; count as usize];
    let slice = CellSlice {
        validity: Some(&validity),
        ..CellSlice::fixed(&values, 4)
    };
    let kept = |depth: usize| {
        let condition = Condition::parse(&deep(depth)).unwrap();
        let bound = bind(&condition, &view, &fields, None).unwrap();
        let mut keep = vec![true; count as usize];
        bound.evaluate(&[slice], &mut keep);
        keep
    };
    let expected: Vec<bool> = (0..count).map(|i| model_of_deep(i % 8, 2001)).collect();
    assert_eq!(kept(2001), expected);
    let expected: Vec<bool> = (0..count).map(|i| model_of_deep(i % 8, 70_000)).collect();
    assert_eq!(kept(70_000), expected);
}

/// Whether [`deep`] keeps `value`, from the innermost level outwards.
fn model_of_deep(value: i32, depth: usize) -> bool {
    let mut inner = value != 3;
    for level in (1..depth).rev() {
        let own = value != (level % 7) as i32;
        inner = match level % 2 {
            1 => own | inner,
            _ => own & inner,
        };
    }
    inner
}
