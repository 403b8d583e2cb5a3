//! `ARROW:schema`: the schema as an Arrow IPC message in base 64. Parquet itself has no metadata of columns;
//! readers that know Arrow take them from here.
//!
//! ```text
//! u32 2^32 - 1, u32 length of the rest, a FlatBuffer `Message` of a `Schema`, zeros up to a multiple of 8
//! ```
//!
//! The types are those that readers would derive from the Parquet schema alone. In the FlatBuffer, what a table
//! refers to lies behind it, so that each part can be written before the ones that it points to.

use super::leaf::{Leaf, Logical, Physical, Shape};
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
    /// A number of 1, 2 or 4 bytes, little-endian.
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

/// The value of `ARROW:schema` for leaves with these attributes.
pub(super) fn schema<'a>(leaves: &[Leaf], attributes: impl Iterator<Item = &'a Attributes>) -> String {
    const VERSION_5: i16 = 4;
    const SCHEMA: u8 = 1;
    let fields = leaves.iter().zip(attributes);
    let fields = fields
        .map(|(leaf, attributes)| column(leaf, attributes))
        .collect();
    let schema = Node::Table(vec![Slot::Default, Slot::To(Node::List(fields))]);
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

/// The `Field` of a leaf, for a LIST with its element.
fn column(leaf: &Leaf, attributes: &Attributes) -> Node {
    let pairs = attributes.iter().map(|(key, value)| {
        let text = match zarr::attribute(value) {
            Json::String(text) => text,
            other => other.to_string(),
        };
        Node::Table(vec![
            Slot::To(Node::Text(key.clone())),
            Slot::To(Node::Text(text)),
        ])
    });
    let pairs: Vec<Node> = pairs.collect();
    let of_value = of_value(leaf);
    match leaf.shape {
        Shape::One => field(&leaf.name, leaf.optional(), of_value, Vec::new(), pairs),
        Shape::Some(_) | Shape::Any => {
            let element = field("element", leaf.optional(), of_value, Vec::new(), Vec::new());
            let list = (types::LIST, Vec::new());
            field(&leaf.name, leaf.outer_optional(), list, vec![element], pairs)
        }
    }
}

/// A `Field`.
fn field(name: &str, nullable: bool, of: (u8, Vec<Slot>), children: Vec<Node>, pairs: Vec<Node>) -> Node {
    let (number, slots) = of;
    Node::Table(vec![
        Slot::To(Node::Text(name.to_owned())),
        Slot::Number(vec![u8::from(nullable)]),
        Slot::Number(vec![number]),
        Slot::To(Node::Table(slots)),
        Slot::Default,
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
    let int = |bits: u8, signed: bool| {
        let bits = i32::from(bits).to_le_bytes().to_vec();
        (
            types::INT,
            vec![Slot::Number(bits), Slot::Number(vec![u8::from(signed)])],
        )
    };
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
    // The longest numbers have 4 bytes.
    align(out, 4);
    let vtable = out.len();
    let start = (vtable + 4 + 2 * slots.len()).next_multiple_of(4);
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
