//! `anndata.h5ad`: the groups and arrays of an AnnData as one file of HDF5.
//!
//! In order: superblock, the object headers of groups and arrays, the root's first, global heaps with the
//! text of attributes, the cells of the arrays. Headers begin at multiples of 8, cells at multiples of 64.
//!
//! | | in HDF5 |
//! |---|---|
//! | groups and arrays | groups, and contiguous data sets |
//! | numbers | the same bytes as in Zarr |
//! | booleans, the attribute `ordered` | the enumeration FALSE, TRUE of INT8, as h5py has it |
//! | text | of fixed size, UTF-8, padded with NUL bytes |
//! | attributes of text | of variable length: anndata reads no others everywhere |
//! | dates | nothing: a column of dates is left out |
//!
//! So everything before the cells follows from shapes and from the length of the longest text of each array,
//! and any range of the cells is a range of the columns that it is made of.
#![doc = include_str!("example.md")]

use super::node::{Array, Attributes, Group, Node, Type};
use crate::bytes::{Bytes, Keep};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::export::hdf5::{self, MAX_RANK, Messages};
use crate::format::datatype::Datatype;
use crate::layout::{FileLayout, file_len};
use crate::runtime::cache::CacheKey;
use serde_json::Value as Json;
use std::collections::HashMap;

/// The most texts in a global heap.
const HEAP_TEXTS: usize = 1 << 10;

/// Cells begin at multiples of this.
const ALIGNMENT: u64 = 64;

/// The file of a group and all in it. `object` is the cache's number for its header, and `version` the state
/// of the file. Makes all nodes, and measures all text.
pub(super) fn file(engine: &Engine, object: u64, version: u64, root: &Group) -> Result<FileLayout> {
    let mut objects = Objects::default();
    objects.add_group(root)?;
    let make = || header(&objects.headers, &objects.lens());
    let header = engine
        .cache
        .derive(CacheKey::of(object), 8192, Keep::Staying, make)?;
    let starts = starts(header.len(), &objects.lens())?;
    let mut end = header.len();
    let mut parts: Vec<Box<dyn Bytes>> = vec![Box::new(engine.pin(object, header)?)];
    for (cells, start) in objects.cells.into_iter().zip(starts) {
        parts.push(Box::new(vec![0; (start - end) as usize]));
        end = start + cells.len();
        parts.push(cells);
    }
    FileLayout::new(version, parts)
}

/// What is in a file.
#[derive(Default)]
struct Objects {
    headers: Vec<Object>,
    /// The cells of each array, in the order of their headers.
    cells: Vec<Box<dyn Bytes>>,
}

/// A group or an array.
struct Object {
    attributes: Attributes,
    kind: Kind,
}

/// What an object is.
enum Kind {
    /// A group: the name of each member, and its number among all objects.
    Group(Vec<(String, usize)>),
    /// An array.
    Array {
        shape: Vec<u64>,
        datatype: Vec<u8>,
        /// Its number among arrays.
        number: usize,
    },
}

impl Objects {
    /// Bytes of the cells of each array.
    fn lens(&self) -> Vec<u64> {
        self.cells.iter().map(|cells| cells.len()).collect()
    }

    /// Adds a group, and then all that is in it. Its number.
    fn add_group(&mut self, group: &Group) -> Result<usize> {
        let group = group.in_hdf5.as_deref().unwrap_or(group);
        let number = self.headers.len();
        self.headers.push(Object {
            attributes: group.attributes.clone(),
            kind: Kind::Group(Vec::new()),
        });
        let mut members = Vec::new();
        for (name, member) in &group.members {
            let inner = member.node().and_then(|node| match node {
                Node::Group(inner) => self.add_group(&inner),
                Node::Array(array) => self.add_array(&array),
            });
            members.push((name.clone(), inner.map_err(|error| error.in_part(name))?));
        }
        self.headers[number].kind = Kind::Group(members);
        Ok(number)
    }

    fn add_array(&mut self, array: &Array) -> Result<usize> {
        let cells = array.in_order()?;
        let datatype = match array.of {
            Type::Number(Datatype::Bool) => hdf5::boolean_type(),
            Type::Number(datatype) => hdf5::number_type(datatype),
            Type::Text => {
                // NumPy has no longer ones.
                let size = i32::try_from(cells.size);
                let size = size.map_err(|_| Error::limit(format!("a text of {} bytes", cells.size)))?;
                hdf5::text_type(size as u32)
            }
            Type::Date(_) => return Err(Error::internal("HDF5 has no dates")),
        };
        if array.shape.len() > MAX_RANK {
            return Err(Error::internal("HDF5 has no array of so many axes"));
        }
        self.headers.push(Object {
            attributes: array.attributes.clone(),
            kind: Kind::Array {
                shape: array.shape.clone(),
                datatype,
                number: self.cells.len(),
            },
        });
        self.cells.push(cells.bytes);
        Ok(self.headers.len() - 1)
    }
}

/// The texts of attributes, each once.
#[derive(Default)]
struct Texts<'a> {
    all: Vec<&'a str>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> Texts<'a> {
    fn of(objects: &'a [Object]) -> Texts<'a> {
        let mut texts = Texts::default();
        for value in objects.iter().flat_map(|object| object.attributes.values()) {
            match value {
                Json::Array(values) => values.iter().for_each(|value| texts.add(value)),
                value => texts.add(value),
            }
        }
        texts
    }

    fn add(&mut self, value: &'a Json) {
        if let Json::String(text) = value {
            let next = self.all.len();
            if *self.numbers.entry(text).or_insert(next) == next {
                self.all.push(text);
            }
        }
    }

    /// The texts of each heap.
    fn heaps(&self) -> impl Iterator<Item = &[&'a str]> {
        self.all.chunks(HEAP_TEXTS)
    }

    /// Where a text is, given the addresses of the heaps.
    fn place(&self, text: &str, heaps: &[u64]) -> Vec<u8> {
        let number = self.numbers[text];
        let (heap, index) = (number / HEAP_TEXTS, number % HEAP_TEXTS);
        hdf5::in_heap(text.len() as u32, heaps[heap], index as u32)
    }
}

/// What object headers refer to.
struct Addresses {
    objects: Vec<u64>,
    heaps: Vec<u64>,
    cells: Vec<u64>,
}

/// The file up to the end of the last heap, given the bytes of the cells of each array.
fn header(objects: &[Object], lens: &[u64]) -> Result<Vec<u8>> {
    let texts = Texts::of(objects);
    // Lengths do not depend on addresses, so all addresses are 0 in a first pass that computes lengths.
    let mut addresses = Addresses {
        objects: vec![0; objects.len()],
        heaps: vec![0; texts.heaps().count()],
        cells: vec![0; lens.len()],
    };
    let encoded = |addresses: &Addresses| -> Result<Vec<Vec<u8>>> {
        let objects = objects.iter();
        objects
            .map(|object| encode(object, &texts, lens, addresses))
            .collect()
    };
    let mut end = hdf5::SUPERBLOCK_SIZE;
    let mut take = |len: u64| {
        let start = end;
        end = (end + len).next_multiple_of(8);
        start
    };
    let sizes: Vec<u64> = encoded(&addresses)?
        .iter()
        .map(|object| object.len() as u64)
        .collect();
    addresses.objects = sizes.into_iter().map(&mut take).collect();
    let heaps = texts.heaps();
    addresses.heaps = heaps
        .map(|texts| take(hdf5::heap_size(texts.iter().map(|text| text.len()))))
        .collect();
    addresses.cells = starts(end, lens)?;
    let last = addresses.cells.last().zip(lens.last());
    let mut out = hdf5::superblock(last.map_or(end, |(start, len)| start + len));
    for object in encoded(&addresses)? {
        out.extend(object);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    for texts in texts.heaps() {
        out.extend(hdf5::heap(texts));
        out.resize(out.len().next_multiple_of(8), 0);
    }
    Ok(out)
}

/// Where the cells of each array begin, given the bytes of each, behind byte `end`.
fn starts(mut end: u64, lens: &[u64]) -> Result<Vec<u64>> {
    let starts = lens.iter().map(|len| {
        let start = file_len(end.checked_next_multiple_of(ALIGNMENT))?;
        end = file_len(start.checked_add(*len))?;
        Ok(start)
    });
    starts.collect()
}

/// An object header.
fn encode(object: &Object, texts: &Texts, lens: &[u64], addresses: &Addresses) -> Result<Vec<u8>> {
    let mut messages = Messages::default();
    match &object.kind {
        Kind::Group(members) => {
            messages.group(members.len() as u64);
            for (order, (name, number)) in members.iter().enumerate() {
                messages.link(order as u64, name, addresses.objects[*number]);
            }
        }
        Kind::Array {
            shape,
            datatype,
            number,
        } => {
            let layout = hdf5::contiguous(addresses.cells[*number], lens[*number]);
            messages.dataset(shape, datatype, &layout);
        }
    }
    for (name, value) in &object.attributes {
        attribute(&mut messages, name, value, texts, &addresses.heaps)?;
    }
    Ok(messages.header())
}

/// Adds an attribute: text, true or false, or a list of either text or INT64.
fn attribute(messages: &mut Messages, name: &str, value: &Json, texts: &Texts, heaps: &[u64]) -> Result<()> {
    let unknown = || Error::internal(format!("the attribute {name} has no type in HDF5"));
    match value {
        Json::String(text) => {
            messages.attribute(name, &hdf5::heap_text_type(), None, &texts.place(text, heaps));
        }
        Json::Bool(value) => messages.flag(name, *value),
        Json::Array(values) => {
            let count = Some(values.len() as u64);
            let numbers: Option<Vec<i64>> = values.iter().map(Json::as_i64).collect();
            match numbers.filter(|numbers| !numbers.is_empty()) {
                Some(numbers) => {
                    let bytes: Vec<u8> = numbers.into_iter().flat_map(i64::to_le_bytes).collect();
                    messages.attribute(name, &hdf5::number_type(Datatype::Int64), count, &bytes);
                }
                None => {
                    let places = values
                        .iter()
                        .map(|value| Some(texts.place(value.as_str()?, heaps)));
                    let places: Option<Vec<Vec<u8>>> = places.collect();
                    let places = places.ok_or_else(unknown)?.concat();
                    messages.attribute(name, &hdf5::heap_text_type(), count, &places);
                }
            }
        }
        _ => return Err(unknown()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::frame::MAX_COLUMNS;
    use super::super::node::{Member, Members, Whole, encoded};
    use super::super::text::OneText;
    use super::*;
    use crate::bytes::Output;
    use crate::export::tests::dump;
    use crate::runtime::stats::Stats;
    use crate::storage::MemoryStorage;
    use std::sync::Arc;

    fn engine() -> Engine {
        let stats: Arc<Stats> = Arc::default();
        Engine::new(Arc::new(MemoryStorage::default()), 1 << 20, Vec::new(), stats)
    }

    fn array(of: Type, bytes: &[u8]) -> Arc<Member> {
        let count = bytes.len() as u64 / of.size();
        let content = Whole(Arc::new(bytes.to_vec()));
        let attributes = encoded("array", "0.2.0");
        Member::new(Node::from(Array::column(of, count, count, attributes, content)))
    }

    fn read(file: &FileLayout) -> Vec<u8> {
        Output::of(|out| file.read(0..file.len(), out)).unwrap().into()
    }

    /// The file shown in the module's documentation.
    #[test]
    fn the_file_is_the_one_that_is_shown() {
        let text = OneText(Arc::new(b"CD4".to_vec()));
        let text = Array::new(
            Type::Text,
            Vec::new(),
            Vec::new(),
            encoded("string", "0.2.0"),
            text,
        );
        let members: Members = vec![
            (
                "n".to_owned(),
                array(Type::Number(Datatype::Int16), &[1, 0, 2, 0]),
            ),
            ("b".to_owned(), array(Type::Number(Datatype::Bool), &[1, 0])),
            ("t".to_owned(), Member::new(Node::from(text))),
        ];
        let mut root = Group::new("dict", members);
        root.attributes.insert("shape".to_owned(), vec![2, 3].into());
        root.attributes.insert("ordered".to_owned(), true.into());
        let file = file(&engine(), 1, 0, &root).unwrap();
        let shown = include_str!("example.md").split("```text\n").nth(1).unwrap();
        let dump = dump(&read(&file));
        assert!(shown == format!("{dump}```\n"), "\n{dump}");
    }

    #[test]
    fn any_range_of_the_file_is_what_lies_there() {
        let numbers: Vec<u8> = (0..=255).collect();
        let members = (0..9).map(|i| {
            let bytes = &numbers[..16 * i];
            (format!("n{i}"), array(Type::Number(Datatype::Uint64), bytes))
        });
        let file = file(&engine(), 1, 0, &Group::new("dict", members.collect())).unwrap();
        let whole = read(&file);
        assert_eq!(whole.len() as u64, file.len());
        assert_eq!(whole[28..36], file.len().to_le_bytes());
        for start in 0..whole.len() {
            for length in [1, 8, 64, 999] {
                let end = whole.len().min(start + length);
                let part = Output::of(|out| file.read(start as u64..end as u64, out)).unwrap();
                assert_eq!(*part, whole[start..end], "{start}..{end}");
            }
        }
    }

    #[test]
    fn a_list_of_columns_is_never_dropped() {
        let names = |count: usize| (0..count).map(|i| format!("column {i}")).collect::<Vec<_>>();
        let columns = |count| {
            let mut group = Group::new("dataframe", Members::new());
            group
                .attributes
                .insert("column-order".to_owned(), names(count).into());
            read(&file(&engine(), 1, 0, &group).unwrap())
        };
        for (count, heaps) in [(0, 1), (MAX_COLUMNS, 4)] {
            let file = columns(count);
            let times = |text: &[u8]| file.windows(text.len()).filter(|bytes| *bytes == text).count();
            assert_eq!((times(b"column-order"), times(b"GCOL")), (1, heaps), "{count}");
        }
    }
}
