//! The parts of HDF5 that a file of data sets needs: superblock, object headers of version 2, their messages,
//! global heaps.
//!
//! All integers are little-endian; addresses and lengths have 8 bytes.

mod lookup3;

use super::grid::Value;
use crate::format::datatype::{Datatype, Kind};
use lookup3::lookup3;

/// HDF5's undefined address.
pub(super) const UNDEFINED_ADDRESS: u64 = u64::MAX;

/// Bytes of the superblock; the root's object header follows it.
pub(super) const SUPERBLOCK_SIZE: u64 = 48;

/// The most axes of a data set in libhdf5.
pub(super) const MAX_RANK: usize = 32;

/// The most bytes of a message.
pub(super) const MAX_MESSAGE: usize = 65_535;

/// The fewest bytes of a global heap.
const MIN_HEAP: u64 = 4096;

/// The superblock of a file of `len` bytes.
pub(super) fn superblock(len: u64) -> Vec<u8> {
    let mut out = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
    for number in [0, UNDEFINED_ADDRESS, len, SUPERBLOCK_SIZE] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    checked(out)
}

/// A block followed by its checksum.
fn checked(mut block: Vec<u8>) -> Vec<u8> {
    let sum = lookup3(&block);
    block.extend_from_slice(&sum.to_le_bytes());
    block
}

/// The messages of an object header.
#[derive(Default)]
pub(super) struct Messages(Vec<u8>);

impl Messages {
    /// The encoded object header. Its length does not depend on the addresses in it.
    pub(super) fn header(&self) -> Vec<u8> {
        let mut out = b"OHDR\x02\x02".to_vec();
        out.extend_from_slice(&(self.0.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.0);
        checked(out)
    }

    /// Adds a message. Leaves out one that is too long.
    fn message(&mut self, number: u8, body: &[u8]) {
        if body.len() > MAX_MESSAGE {
            return;
        }
        self.0.push(number);
        self.0.extend_from_slice(&(body.len() as u16).to_le_bytes());
        self.0.push(0);
        self.0.extend_from_slice(body);
    }

    /// Adds the messages that begin a group of `links` links.
    pub(super) fn group(&mut self, links: u64) {
        let mut info = vec![0, 1];
        for number in [links, UNDEFINED_ADDRESS, UNDEFINED_ADDRESS] {
            info.extend_from_slice(&number.to_le_bytes());
        }
        self.message(2, &info);
        self.message(10, &[0, 0]);
        self.attribute_info();
    }

    /// Adds the message without which libhdf5 counts no attributes, and h5repack copies none. They are
    /// messages of their own, not in a heap, and have no order.
    fn attribute_info(&mut self) {
        let mut info = vec![0, 0];
        for address in [UNDEFINED_ADDRESS, UNDEFINED_ADDRESS] {
            info.extend_from_slice(&address.to_le_bytes());
        }
        self.message(21, &info);
    }

    /// Adds a link to the object at `address`; `order` counts the links of the group.
    pub(super) fn link(&mut self, order: u64, name: &str, address: u64) {
        let mut body = vec![1, 0x15];
        body.extend_from_slice(&order.to_le_bytes());
        body.push(1);
        body.extend_from_slice(&(name.len() as u16).to_le_bytes());
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&address.to_le_bytes());
        self.message(6, &body);
    }

    /// Adds the messages of a data set of this shape (empty: a scalar), type and layout: see [`contiguous`]
    /// and [`chunked`].
    pub(super) fn dataset(&mut self, shape: &[u64], datatype: &[u8], layout: &[u8]) {
        self.message(1, &dataspace(Some(shape).filter(|shape| !shape.is_empty())));
        self.message(3, datatype);
        // Late allocation, fill values are written if set, no fill value is set.
        self.message(5, &[3, 0x0A]);
        self.message(8, layout);
        self.attribute_info();
    }

    /// Adds an attribute of this type, a scalar if `count` is None.
    pub(super) fn attribute(&mut self, name: &str, datatype: &[u8], count: Option<u64>, value: &[u8]) {
        let shape = count.map(|count| [count]);
        let dataspace = dataspace(shape.as_ref().map(<[u64; 1]>::as_slice));
        let mut body = vec![3, 0];
        for len in [name.len() + 1, datatype.len(), dataspace.len()] {
            body.extend_from_slice(&(len as u16).to_le_bytes());
        }
        body.push(1);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(datatype);
        body.extend_from_slice(&dataspace);
        body.extend_from_slice(value);
        self.message(12, &body);
    }

    /// Adds an attribute of text.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        let mut datatype = vec![0x13, 0x10, 0, 0];
        datatype.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
        let mut value = text.as_bytes().to_vec();
        value.push(0);
        self.attribute(name, &datatype, None, &value);
    }

    /// Adds an attribute that is true or false.
    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.attribute(name, &boolean_type(), None, &[u8::from(value)]);
    }

    /// Whether an attribute of a grid fits into a message.
    pub(super) fn fits(name: &str, value: &Value) -> bool {
        let mut messages = Messages::default();
        messages.value(name, value);
        !messages.0.is_empty()
    }

    /// Adds an attribute of a grid: text, a scalar, or several numbers.
    pub(super) fn value(&mut self, name: &str, value: &Value) {
        match value {
            Value::Text(text) => self.text(name, text),
            Value::Numbers(datatype, bytes) => {
                let count = (bytes.len() / datatype.size()) as u64;
                let count = (count != 1).then_some(count);
                self.attribute(name, &number_type(*datatype), count, bytes);
            }
        }
    }
}

/// The layout of `size` bytes at `address`. No bytes are nowhere: HDF5 2.0 takes another address for damage.
pub(super) fn contiguous(address: u64, size: u64) -> Vec<u8> {
    let address = if size == 0 { UNDEFINED_ADDRESS } else { address };
    let mut layout = vec![3, 1];
    layout.extend_from_slice(&address.to_le_bytes());
    layout.extend_from_slice(&size.to_le_bytes());
    layout
}

/// The layout of chunks with these sides, of values of `size` bytes, whose index is at `address`. A chunk has
/// fewer than 2^32 bytes.
pub(super) fn chunked(address: u64, sides: &[u64], size: u32) -> Vec<u8> {
    let mut layout = vec![3, 2, sides.len() as u8 + 1];
    layout.extend_from_slice(&address.to_le_bytes());
    layout.extend(sides.iter().flat_map(|side| (*side as u32).to_le_bytes()));
    layout.extend_from_slice(&size.to_le_bytes());
    layout
}

/// A dataspace of this shape; None gives a scalar.
fn dataspace(shape: Option<&[u64]>) -> Vec<u8> {
    let Some(shape) = shape else {
        return vec![2, 0, 0, 0];
    };
    let mut out = vec![2, shape.len() as u8, 0, 1];
    out.extend(shape.iter().flat_map(|len| len.to_le_bytes()));
    out
}

/// The datatype of values of a grid: integers, floats, BOOL as INT8, CHAR.
pub(super) fn number_type(datatype: Datatype) -> Vec<u8> {
    let size = datatype.size() as u32;
    let integer = |sign: u8| {
        let mut out = vec![0x10, sign, 0, 0];
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&(8 * size as u16).to_le_bytes());
        out
    };
    match (datatype.kind(), size) {
        (Kind::Unsigned, _) => integer(0),
        (Kind::Float, 4) => single(0),
        (Kind::Float, _) => {
            let mut out = vec![0x11, 0x20, 0x3F, 0, 8, 0, 0, 0, 0, 0, 64, 0, 52, 11, 0, 52];
            out.extend_from_slice(&1023u32.to_le_bytes());
            out
        }
        (Kind::Text, _) => vec![0x13, 0, 0, 0, 1, 0, 0, 0],
        _ => integer(8),
    }
}

/// The datatype of 32-bit floats, little-endian (0) or big-endian (1).
pub(super) fn single(order: u8) -> Vec<u8> {
    let mut out = vec![0x11, 0x20 | order, 0x1F, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23];
    out.extend_from_slice(&127u32.to_le_bytes());
    out
}

/// The datatype of booleans of one byte, 0 or 1, as h5py has it: an enumeration of INT8.
pub(super) fn boolean_type() -> Vec<u8> {
    let mut out = vec![0x18, 2, 0, 0, 1, 0, 0, 0];
    out.extend(number_type(Datatype::Int8));
    // Names are padded to multiples of 8.
    out.extend_from_slice(b"FALSE\0\0\0TRUE\0\0\0\0\0\x01");
    out
}

/// The datatype of UTF-8 text of `size` bytes, at least 1, padded with NUL bytes.
pub(super) fn text_type(size: u32) -> Vec<u8> {
    [[0x13, 0x11, 0, 0], size.to_le_bytes()].concat()
}

/// The datatype of UTF-8 text of any length, stored in a global heap.
pub(super) fn heap_text_type() -> Vec<u8> {
    let mut out = vec![0x19, 1, 1, 0, 16, 0, 0, 0];
    out.extend(number_type(Datatype::Uint8));
    out
}

/// The datatype of object references.
pub(super) const REFERENCE: [u8; 8] = [0x17, 0, 0, 0, 8, 0, 0, 0];

/// The datatype of variable-length lists of references, stored in the global heap.
pub(super) fn reference_lists() -> Vec<u8> {
    [&[0x19, 0, 0, 0, 16, 0, 0, 0], REFERENCE.as_slice()].concat()
}

/// A list of `count` elements (references, or bytes of text): object `index` (from 0) of the global heap at
/// `heap`.
pub(super) fn in_heap(count: u32, heap: u64, index: u32) -> Vec<u8> {
    let mut out = count.to_le_bytes().to_vec();
    out.extend_from_slice(&heap.to_le_bytes());
    out.extend_from_slice(&(index + 1).to_le_bytes());
    out
}

/// The bytes of a global heap of objects of these lengths.
pub(super) fn heap_size(lengths: impl Iterator<Item = usize>) -> u64 {
    // The heap's header, each object with a header and padding, and the header of the free space.
    let objects = lengths.map(|length| 16 + (length as u64).next_multiple_of(8));
    (32 + objects.sum::<u64>()).max(MIN_HEAP)
}

/// A global heap of these objects, at most 65,534.
pub(super) fn heap(objects: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let size = heap_size(objects.iter().map(|object| object.as_ref().len()));
    let mut out = b"GCOL\x01\0\0\0".to_vec();
    out.extend_from_slice(&size.to_le_bytes());
    for (i, object) in objects.iter().enumerate() {
        let bytes = object.as_ref();
        out.extend_from_slice(&(i as u16 + 1).to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    let rest = size - out.len() as u64;
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&rest.to_le_bytes());
    out.resize(size as usize, 0);
    out
}
