//! The nodes of a hierarchy, each made when it is looked at: groups and arrays of Zarr, or of HDF5.

use crate::bytes::{Bytes, Output};
use crate::error::{Error, Result};
use crate::export::chunks::{check_numbers, counts};
use crate::export::npy;
use crate::export::zarr::data_type;
use crate::format::datatype::{Datatype, Kind};
use crate::fragment::cells::Cells;
use crate::layout::FileLayout;
use crate::query::table::NOT_A_TIME;
use crate::runtime::get_or_make;
use serde_json::{Map, Value as Json, json};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Attributes of a node by name.
pub(super) type Attributes = Map<String, Json>;

/// The attributes of a node that AnnData reads as `encoding` of this version.
pub(super) fn encoded(encoding: &str, version: &str) -> Attributes {
    let pairs = [("encoding-type", encoding), ("encoding-version", version)];
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// A group or an array.
#[derive(Clone)]
pub enum Node {
    /// A group.
    Group(Arc<Group>),
    /// An array.
    Array(Arc<Array>),
}

impl From<Group> for Node {
    fn from(group: Group) -> Node {
        Node::Group(Arc::new(group))
    }
}

impl From<Array> for Node {
    fn from(array: Array) -> Node {
        Node::Array(Arc::new(array))
    }
}

impl Node {
    /// Its `zarr.json`.
    pub fn json(&self) -> Vec<u8> {
        let document = match self {
            Node::Group(group) => json!({
                "attributes": group.attributes,
                "zarr_format": 3,
                "node_type": "group",
            }),
            Node::Array(array) => array.document(),
        };
        document.to_string().into_bytes()
    }

    /// The number of chunks of all arrays that are not damaged, or more.
    pub(super) fn chunks(&self) -> u64 {
        match self {
            Node::Group(group) => {
                let known = group
                    .members
                    .iter()
                    .filter_map(|(_, member)| member.chunks().ok());
                known.fold(0, u64::saturating_add)
            }
            Node::Array(array) => array.counts().into_iter().fold(1, u64::saturating_mul),
        }
    }
}

/// What makes a node. Making it reads no more than its `zarr.json` needs.
pub(super) trait Element: Send + Sync {
    /// The node.
    fn node(&self) -> Result<Node>;

    /// The number of chunks of its arrays, or more. Reads metadata alone.
    fn chunks(&self) -> Result<u64>;
}

impl Element for Node {
    fn node(&self) -> Result<Node> {
        Ok(self.clone())
    }

    fn chunks(&self) -> Result<u64> {
        Ok(Node::chunks(self))
    }
}

/// What cannot be made because of damage.
impl Element for Error {
    fn node(&self) -> Result<Node> {
        Err(self.clone())
    }

    fn chunks(&self) -> Result<u64> {
        Err(self.clone())
    }
}

/// A member of a group, made once.
pub(super) struct Member {
    element: Box<dyn Element>,
    node: OnceLock<Node>,
}

impl Member {
    /// The member that `element` makes.
    pub(super) fn new(element: impl Element + 'static) -> Arc<Member> {
        Arc::new(Member {
            element: Box::new(element),
            node: OnceLock::new(),
        })
    }

    pub(super) fn node(&self) -> Result<Node> {
        get_or_make(&self.node, || self.element.node()).cloned()
    }

    pub(super) fn chunks(&self) -> Result<u64> {
        self.element.chunks()
    }
}

/// The members of a group by name.
pub(super) type Members = Vec<(String, Arc<Member>)>;

/// A group.
pub struct Group {
    pub(super) attributes: Attributes,
    pub(super) members: Members,
    /// What it is in HDF5, if it has members there that HDF5 does not have.
    pub(super) in_hdf5: Option<Arc<Group>>,
}

impl Group {
    /// A group of `encoding` in version 0.1.0.
    pub(super) fn new(encoding: &str, members: Members) -> Group {
        Group::with(encoded(encoding, "0.1.0"), members)
    }

    /// A group of these attributes.
    pub(super) fn with(attributes: Attributes, members: Members) -> Group {
        Group {
            attributes,
            members,
            in_hdf5: None,
        }
    }

    /// The names of its members, all of them directories.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| &**name)
    }

    /// The member of that name; None if there is none.
    pub fn member(&self, name: &str) -> Result<Option<Node>> {
        let found = self.members.iter().find(|(known, _)| known == name);
        found.map(|(_, member)| member.node()).transpose()
    }
}

/// What the cells of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Integers, floats, or booleans of 0 and 1.
    Number(Datatype),
    /// Counts of the unit of a DATETIME since the Unix epoch.
    Date(Datatype),
    /// Text of any length.
    Text,
}

impl Type {
    /// Bytes of a value; 4, those of its length, for text.
    pub(super) fn size(self) -> u64 {
        match self {
            Type::Number(datatype) | Type::Date(datatype) => datatype.size() as u64,
            Type::Text => 4,
        }
    }

    /// The bytes of the value that fills chunks: `false`, 0, not-a-time, no text.
    pub(super) fn fill(self) -> Vec<u8> {
        match self {
            Type::Date(_) => NOT_A_TIME.to_le_bytes().to_vec(),
            Type::Number(_) | Type::Text => vec![0; self.size() as usize],
        }
    }

    fn data_type(self) -> Json {
        match self {
            Type::Number(datatype) => data_type(datatype).into(),
            Type::Date(datatype) => json!({
                "name": "numpy.datetime64",
                "configuration": {"unit": npy::unit(datatype), "scale_factor": 1},
            }),
            Type::Text => "string".into(),
        }
    }

    fn fill_value(self) -> Json {
        match self {
            Type::Number(Datatype::Bool) => false.into(),
            Type::Number(datatype) if datatype.kind() == Kind::Float => 0.0.into(),
            Type::Number(_) => 0.into(),
            Type::Date(_) => NOT_A_TIME.into(),
            Type::Text => "".into(),
        }
    }

    fn codec(self) -> Json {
        match self {
            Type::Text => json!({"name": "vlen-utf8"}),
            _ if self.size() == 1 => json!({"name": "bytes"}),
            _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
        }
    }
}

/// The parts of a chunk, one after the other.
pub(super) type Parts = Vec<Box<dyn Bytes>>;

/// All cells of an array in C order, of one size.
pub(super) struct InOrder {
    /// Bytes of a cell.
    pub(super) size: u64,
    pub(super) bytes: Box<dyn Bytes>,
}

/// The bytes of an array.
pub(super) trait Content: Send + Sync {
    /// The chunk of these numbers along the axes, which exists. May measure text.
    fn chunk(&self, array: &Array, numbers: &[u64]) -> Result<Parts>;

    /// All cells, without padding; text padded with NUL bytes to the length of the longest. May measure text.
    fn in_order(&self, array: &Array) -> Result<InOrder>;
}

/// An array.
pub struct Array {
    pub(super) of: Type,
    pub(super) shape: Vec<u64>,
    /// The sides of a chunk, at least 1 each.
    pub(super) sides: Vec<u64>,
    pub(super) attributes: Attributes,
    content: Box<dyn Content>,
}

/// The most cells in a chunk of a column.
pub(super) const MAX_CELLS: u64 = 1 << 18;

impl Array {
    /// An array of `shape` in chunks of these sides, or of one cell if it has none.
    pub(super) fn new(
        of: Type,
        shape: Vec<u64>,
        sides: Vec<u64>,
        attributes: Attributes,
        content: impl Content + 'static,
    ) -> Array {
        let sides = match shape.contains(&0) {
            true => vec![1; shape.len()],
            false => sides,
        };
        Array {
            of,
            shape,
            sides,
            attributes,
            content: Box::new(content),
        }
    }

    /// An array of `rows` cells in chunks of at most `most`.
    pub(super) fn column(
        of: Type,
        rows: u64,
        most: u64,
        attributes: Attributes,
        content: impl Content + 'static,
    ) -> Array {
        Array::new(of, vec![rows], vec![rows.min(most)], attributes, content)
    }

    /// The number of chunks along each axis: none for a scalar, whose only chunk is one file.
    pub fn counts(&self) -> Vec<u64> {
        counts(&self.shape, &self.sides).collect()
    }

    /// The file of the chunk of these numbers. `version` differs between two states of it. May read what
    /// tells the length of text.
    pub fn chunk(&self, numbers: &[u64], version: u64) -> Result<FileLayout> {
        check_numbers(numbers, &self.shape, &self.sides)?;
        FileLayout::new(version, self.content.chunk(self, numbers)?)
    }

    /// All cells in C order. May read what tells the length of text.
    pub(super) fn in_order(&self) -> Result<InOrder> {
        let found = self.content.in_order(self)?;
        match self.cells()?.checked_mul(found.size) == Some(found.bytes.len()) {
            true => Ok(found),
            false => Err(Error::internal("an array is not as long as its shape says")),
        }
    }

    /// The number of cells.
    pub(super) fn cells(&self) -> Result<u64> {
        let cells = self
            .shape
            .iter()
            .try_fold(1u64, |cells, length| cells.checked_mul(*length));
        cells.ok_or_else(|| Error::limit("an array would have 2^64 cells or more"))
    }

    fn document(&self) -> Json {
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": self.of.data_type(),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.sides}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": self.of.fill_value(),
            "codecs": [self.of.codec()],
            "attributes": self.attributes,
        })
    }

    /// The rows of a chunk along the first axis.
    pub(super) fn rows(&self, number: u64) -> Range<u64> {
        let (length, side) = (self.shape[0], self.sides[0]);
        number * side..((number + 1) * side).min(length)
    }

    /// The padding of chunk `number` along the first axis, given how many cells a row has.
    pub(super) fn padding(&self, number: u64, cells: u64) -> Box<dyn Bytes> {
        let rows = self.rows(number);
        Box::new(Padding {
            fill: self.of.fill(),
            count: (self.sides[0] - (rows.end - rows.start)) * cells,
        })
    }
}

/// The same value again and again.
struct Padding {
    fill: Vec<u8>,
    count: u64,
}

impl Bytes for Padding {
    fn len(&self) -> u64 {
        self.count * self.fill.len() as u64
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let size = self.fill.len();
        out.fill((range.end - range.start) as usize, |bytes| {
            let first = (range.start % size as u64) as usize;
            for (byte, value) in bytes.iter_mut().zip(self.fill.iter().cycle().skip(first)) {
                *byte = *value;
            }
            Ok(())
        })
    }
}

/// The columns that a file reads. Their files stay open as long as it does.
pub(super) type Held = Vec<Arc<dyn Cells>>;

/// Values of fixed size in rows.
pub(super) trait RowValues: Send + Sync {
    /// The columns that are read.
    fn hold(&self) -> Result<Held> {
        Ok(Held::new())
    }

    /// Appends the values of some rows.
    fn append(&self, rows: Range<u64>, out: &mut Output) -> Result<()>;
}

/// The bytes of some rows.
struct RowBytes {
    values: Arc<dyn RowValues>,
    /// Bytes of a row.
    size: u64,
    rows: Range<u64>,
    held: OnceLock<Held>,
}

impl Bytes for RowBytes {
    fn len(&self) -> u64 {
        (self.rows.end - self.rows.start) * self.size
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        get_or_make(&self.held, || self.values.hold())?;
        let rows = range.start / self.size..range.end.div_ceil(self.size);
        let before = out.len();
        let first = self.rows.start;
        for start in rows.clone().step_by(MAX_CELLS as usize) {
            let end = rows.end.min(start + MAX_CELLS);
            self.values.append(first + start..first + end, out)?;
        }
        let skip = range.start - rows.start * self.size;
        out.cut(before, skip as usize, (range.end - range.start) as usize)
    }
}

/// An array of one axis.
pub(super) struct InRows(pub(super) Arc<dyn RowValues>);

impl InRows {
    fn bytes(&self, of: Type, rows: Range<u64>) -> Box<dyn Bytes> {
        Box::new(RowBytes {
            values: self.0.clone(),
            size: of.size(),
            rows,
            held: OnceLock::new(),
        })
    }
}

impl Content for InRows {
    fn chunk(&self, array: &Array, numbers: &[u64]) -> Result<Parts> {
        let rows = self.bytes(array.of, array.rows(numbers[0]));
        Ok(vec![rows, array.padding(numbers[0], 1)])
    }

    fn in_order(&self, array: &Array) -> Result<InOrder> {
        Ok(InOrder {
            size: array.of.size(),
            bytes: self.bytes(array.of, 0..array.shape[0]),
        })
    }
}

/// All bytes of an array of numbers in one chunk.
pub(super) struct Whole(pub(super) Arc<Vec<u8>>);

impl Content for Whole {
    fn chunk(&self, _: &Array, _: &[u64]) -> Result<Parts> {
        Ok(vec![Box::new(self.0.clone())])
    }

    fn in_order(&self, array: &Array) -> Result<InOrder> {
        Ok(InOrder {
            size: array.of.size(),
            bytes: Box::new(self.0.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_as_long_as_all_others() {
        struct Numbers;
        impl RowValues for Numbers {
            fn append(&self, rows: Range<u64>, out: &mut Output) -> Result<()> {
                out.write(|out| out.extend(rows.flat_map(|row| (row as i64 + 1).to_le_bytes())));
                Ok(())
            }
        }
        let of = Type::Date(Datatype::DatetimeMs);
        let array = Array::column(of, 5, 3, encoded("array", "0.2.0"), InRows(Arc::new(Numbers)));
        let not_a_time = i64::MIN;
        for (number, expected) in [(0, [1i64, 2, 3]), (1, [4, 5, not_a_time])] {
            let expected = expected.map(i64::to_le_bytes).concat();
            let file = array.chunk(&[number], 0).unwrap();
            for start in 0..24 {
                for end in start..=24 {
                    let range = start as u64..end as u64;
                    let read = Output::of(|out| file.read(range, out)).unwrap();
                    assert_eq!(*read, expected[start..end], "{start}..{end}");
                }
            }
        }
        let in_order = array.in_order().unwrap();
        let expected = [1i64, 2, 3, 4, 5].map(i64::to_le_bytes).concat();
        for (start, end) in (0..40).flat_map(|start| (start..=40).map(move |end| (start, end))) {
            let read = Output::of(|out| in_order.bytes.read(start as u64..end as u64, out)).unwrap();
            assert_eq!(*read, expected[start..end], "{start}..{end}");
        }
        let json: Json = serde_json::from_slice(&Node::from(array).json()).unwrap();
        assert_eq!(json["data_type"]["configuration"]["unit"], "ms");
        assert_eq!(json["fill_value"], i64::MIN);
        assert_eq!(json["chunk_grid"]["configuration"]["chunk_shape"], json!([3]));
    }

    #[test]
    fn an_array_without_cells_has_chunks_of_one() {
        let array = Array::new(
            Type::Text,
            vec![0, 4],
            vec![0, 4],
            Attributes::new(),
            Whole(Arc::default()),
        );
        assert_eq!((array.sides.clone(), array.counts()), (vec![1, 1], vec![0, 4]));
        assert!(array.chunk(&[0, 0], 0).is_err());
    }
}
