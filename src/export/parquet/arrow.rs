//! `ARROW:schema`: the schema as an Arrow IPC message in base 64. Parquet itself has no metadata of columns;
//! readers that know Arrow take them from here.
//!
//! ```text
//! u32 2^32 - 1, u32 length of the rest, a FlatBuffer `Message` of a `Schema`, zeros up to a multiple of 8
//! ```
//!
//! The types are those that readers would derive from the Parquet schema alone, except that enumerated text
//! is a dictionary, which keeps labels that no cell has, and the order of all. pyarrow takes the file's other
//! metadata from here as well. In the FlatBuffer, what a table refers to lies behind it, so that each part
//! can be written before the ones that it points to.

use super::leaf::{Leaf, Logical, Physical, Shape};
use super::plan::Pair;
use crate::export::grid::Attributes;
use crate::export::zarr;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value as Json;

/// A part of a FlatBuffer that others point to.
enum Node {
    Text(String),
    /// A list of other parts.
    List(Vec<Node>),
    /// The fields of a table by number.
    Table(Vec<Slot>),
}

/// A field of a table.
enum Slot {
    /// It has its default.
    Default,
    /// A number of 1, 2, 4 or 8 bytes, little-endian.
    Number(Vec<u8>),
    /// A reference.
    To(Node),
}

/// The numbers of types in Arrow's `Schema.fbs`.
mod types {
    pub(super) const INT: u8 = 2;
    pub(super) const FLOATING_POINT: u8 = 3;
    pub(super) const BINARY: u8 = 4;
    pub(super) const UTF8: u8 = 5;
    pub(super) const BOOL: u8 = 6;
    pub(super) const DATE: u8 = 8;
    pub(super) const TIMESTAMP: u8 = 10;
    pub(super) const LIST: u8 = 12;
}

/// A column whose labels are a dictionary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dictionary {
    /// Whether the order of the labels means anything.
    pub ordered: bool,
}

/// The value of `ARROW:schema` for leaves, each with its attributes and its dictionary, and for the file's
/// other `pairs`.
pub(super) fn schema<'a>(
    leaves: &[Leaf],
    columns: impl Iterator<Item = (&'a Attributes, Option<Dictionary>)>,
    pairs: &[Pair],
) -> String {
    const VERSION_5: i16 = 4;
    const SCHEMA: u8 = 1;
    let fields = leaves.iter().zip(columns).enumerate();
    let fields = fields
        .map(|(id, (leaf, (attributes, of)))| {
            column(leaf, attributes, of.map(|of| dictionary(id as u64, of)))
        })
        .collect();
    let pairs = pairs.iter().map(|(key, value)| pair(key, value)).collect();
    let schema = Node::Table(vec![
        Slot::Default,
        Slot::To(Node::List(fields)),
        Slot::To(Node::List(pairs)),
    ]);
    let message = Node::Table(vec![
        Slot::Number(VERSION_5.to_le_bytes().to_vec()),
        Slot::Number(vec![SCHEMA]),
        Slot::To(schema),
    ]);
    let buffer = buffer(&message);
    let mut out = u32::MAX.to_le_bytes().to_vec();
    out.extend_from_slice(&(buffer.len() as u32).to_le_bytes());
    out.extend_from_slice(&buffer);
    BASE64.encode(out)
}

/// A `KeyValue`.
fn pair(key: &str, value: &str) -> Node {
    Node::Table(vec![
        Slot::To(Node::Text(key.to_owned())),
        Slot::To(Node::Text(value.to_owned())),
    ])
}

/// A `DictionaryEncoding` with indexes of INT32, which is what readers make of any.
fn dictionary(id: u64, of: Dictionary) -> Node {
    Node::Table(vec![
        Slot::Number(id.to_le_bytes().to_vec()),
        Slot::To(Node::Table(int(32, true))),
        Slot::Number(vec![u8::from(of.ordered)]),
    ])
}

/// The fields of an `Int`.
fn int(bits: u8, signed: bool) -> Vec<Slot> {
    let bits = i32::from(bits).to_le_bytes().to_vec();
    vec![Slot::Number(bits), Slot::Number(vec![u8::from(signed)])]
}

/// The `Field` of a leaf, for a LIST with its element.
fn column(leaf: &Leaf, attributes: &Attributes, dictionary: Option<Node>) -> Node {
    let pairs = attributes
        .iter()
        .map(|(key, value)| match zarr::attribute(value) {
            Json::String(text) => pair(key, &text),
            other => pair(key, &other.to_string()),
        });
    let pairs: Vec<Node> = pairs.collect();
    let of_value = of_value(leaf);
    match leaf.shape {
        Shape::One => field(
            &leaf.name,
            leaf.optional(),
            of_value,
            dictionary,
            Vec::new(),
            pairs,
        ),
        Shape::Some(_) | Shape::Any => {
            let element = field("element", leaf.optional(), of_value, None, Vec::new(), Vec::new());
            let list = (types::LIST, Vec::new());
            field(
                &leaf.name,
                leaf.outer_optional(),
                list,
                None,
                vec![element],
                pairs,
            )
        }
    }
}

/// A `Field`.
fn field(
    name: &str,
    nullable: bool,
    of: (u8, Vec<Slot>),
    dictionary: Option<Node>,
    children: Vec<Node>,
    pairs: Vec<Node>,
) -> Node {
    let (number, slots) = of;
    Node::Table(vec![
        Slot::To(Node::Text(name.to_owned())),
        Slot::Number(vec![u8::from(nullable)]),
        Slot::Number(vec![number]),
        Slot::To(Node::Table(slots)),
        dictionary.map_or(Slot::Default, Slot::To),
        Slot::To(Node::List(children)),
        match pairs.is_empty() {
            true => Slot::Default,
            false => Slot::To(Node::List(pairs)),
        },
    ])
}

/// The number of a leaf's type, and the fields of its table.
fn of_value(leaf: &Leaf) -> (u8, Vec<Slot>) {
    let number = |number: i16| Slot::Number(number.to_le_bytes().to_vec());
    let int = |bits, signed| (types::INT, int(bits, signed));
    match (leaf.logical, leaf.physical) {
        (Logical::String, _) => (types::UTF8, Vec::new()),
        (Logical::Date, _) => (types::DATE, vec![number(0)]),
        (Logical::Timestamp(unit), _) => (types::TIMESTAMP, vec![number(unit as i16)]),
        (Logical::Integer { bits, signed }, _) => int(bits, signed),
        (Logical::Nothing, Physical::Boolean) => (types::BOOL, Vec::new()),
        (Logical::Nothing, Physical::Int32) => int(32, true),
        (Logical::Nothing, Physical::Int64) => int(64, true),
        (Logical::Nothing, Physical::Float) => (types::FLOATING_POINT, vec![number(1)]),
        (Logical::Nothing, Physical::Double) => (types::FLOATING_POINT, vec![number(2)]),
        (Logical::Nothing, Physical::ByteArray) => (types::BINARY, Vec::new()),
    }
}

/// A FlatBuffer whose root is `root`, of a multiple of 8 bytes.
fn buffer(root: &Node) -> Vec<u8> {
    let mut out = vec![0; 4];
    point(&mut out, 0, root);
    align(&mut out, 8);
    out
}

fn align(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

/// Appends a part and lets the reference at `from` point to it.
fn point(out: &mut Vec<u8>, from: usize, node: &Node) {
    let at = match node {
        Node::Text(text) => {
            align(out, 4);
            let at = out.len();
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
            out.push(0);
            at
        }
        Node::List(nodes) => {
            align(out, 4);
            let at = out.len();
            out.extend_from_slice(&(nodes.len() as u32).to_le_bytes());
            let first = out.len();
            out.resize(first + 4 * nodes.len(), 0);
            for (i, node) in nodes.iter().enumerate() {
                point(out, first + 4 * i, node);
            }
            at
        }
        Node::Table(slots) => table(out, slots),
    };
    out[from..from + 4].copy_from_slice(&((at - from) as u32).to_le_bytes());
}

/// Appends a table behind its vtable; returns its start.
fn table(out: &mut Vec<u8>, slots: &[Slot]) -> usize {
    align(out, 4);
    let vtable = out.len();
    let longest = slots.iter().map(|slot| match slot {
        Slot::Number(bytes) => bytes.len(),
        Slot::Default | Slot::To(_) => 4,
    });
    let alignment = longest.max().unwrap_or(4).max(4);
    let start = (vtable + 4 + 2 * slots.len()).next_multiple_of(alignment);
    let mut size = 4usize;
    let places: Vec<usize> = slots
        .iter()
        .map(|slot| {
            let len = match slot {
                Slot::Default => return 0,
                Slot::Number(bytes) => bytes.len(),
                Slot::To(_) => 4,
            };
            let place = size.next_multiple_of(len);
            size = place + len;
            place
        })
        .collect();
    let words = [4 + 2 * slots.len(), size]
        .into_iter()
        .chain(places.iter().copied());
    out.extend(words.flat_map(|word| (word as u16).to_le_bytes()));
    out.resize(start, 0);
    out.extend_from_slice(&((start - vtable) as i32).to_le_bytes());
    out.resize(start + size, 0);
    for (place, slot) in places.iter().zip(slots) {
        let at = start + place;
        match slot {
            Slot::Default => {}
            Slot::Number(bytes) => out[at..at + bytes.len()].copy_from_slice(bytes),
            Slot::To(node) => point(out, at, node),
        }
    }
    start
}
