//! `array.nc`: NetCDF-4, that is HDF5. Everything before the data follows from schema, region and metadata.
//!
//! In order: superblock, the root's object header, the object headers of dimensions without coordinates and
//! of variables, a global heap, the indexes of chunked variables, the data of the variables in the order of
//! the [`Grid`]. Headers and data begin at multiples of 8, the first data at a multiple of 64, chunks at
//! multiples of a page, so that reading one does not touch its neighbours. In large files nothing that has to
//! be decoded is among the bytes that netCDF-C reads when it opens a file.
//!
//! A variable is contiguous, or chunked if boxes of it would lie scattered: where the chunks of
//! [`super::chunks`] cut an axis other than the first. Indexes are together before all data, so that what
//! readers read to find data, and the kernel reads ahead then, decodes little.
#![doc = include_str!("example.md")]

mod btree;
#[cfg(test)]
mod tests;

use super::chunks::{Chunks, GridChunk, extents};
use super::file_group::FileGroup;
use super::grid::{self, Grid, Naming, Value, Variable, VariableKind};
use super::hdf5::{self, MAX_RANK, Messages, UNDEFINED_ADDRESS};
use crate::bytes::{Bytes, Keep, Output, Zeros};
use crate::engine::Engine;
use crate::error::Result;
use crate::format::datatype::Datatype;
use crate::fragment::column::Content;
use crate::layout::{CellBytes, FileLayout, file_len, too_long};
use crate::query::{Role, View};
use crate::runtime::cache::CacheKey;
use crate::runtime::lock;
use btree::Index;
use lru::LruCache;
use std::collections::HashSet;
use std::iter;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The attribute that names the conventions of a file's attributes.
const CONVENTIONS: (&str, &str) = ("Conventions", "CF-1.12");

/// The most dimensions, each an object in the global heap.
pub(super) const MAX_DIMENSIONS: usize = 65_534;

/// The most bytes of data: a file has at most 2^63 - 1 bytes, and headers take far less than 2^32.
const MAX_DATA: u64 = (1 << 63) - (1 << 32);

/// Chunks begin at multiples of this: a page of the kernel.
const CHUNK_ALIGNMENT: u64 = 4096;

/// netCDF-C reads 4 MiB of any file to look at the first few, and the kernel reads ahead of that. Values that
/// are stored begin behind both, if that leaves less than a 32nd of the file unused.
const LOOKED_AT: u64 = 8 << 20;

/// The most chunks that an open file keeps open.
const MAX_OPEN: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// Why a view has no `array.nc`; None if it has one. Reads the schema and as little fragment metadata as
/// possible.
pub fn absent(view: &View) -> Result<Option<String>> {
    if let Some(reason) = grid::absent(view)? {
        return Ok(Some(reason));
    }
    // Padding at most doubles each axis, and indexes are far smaller than data. So a shape of which thrice
    // each length fits has a file, and all smaller shapes have one.
    let most = view.shape_at_most()?;
    let thrice: Option<Vec<u64>> = most.iter().map(|length| length.checked_mul(3)).collect();
    match thrice {
        Some(thrice) if too_large(view, &thrice)?.is_none() => Ok(None),
        _ => too_large(view, &view.shape()?),
    }
}

/// Why a view of this shape has no file; None if it has one.
fn too_large(view: &View, shape: &[u64]) -> Result<Option<String>> {
    let extents = extents(view.schema())?;
    let (mut rank, mut dimensions, mut data) = (shape.len(), shape.len(), Some(0u64));
    let mut add = |axis, size, inner| {
        let chunks = Chunks::of(axis, size, inner, shape, &extents);
        let bytes = Storage::of(chunks, size).and_then(|storage| {
            let bytes = storage.bytes.checked_add(storage.index)?;
            bytes.checked_add(2 * CHUNK_ALIGNMENT)
        });
        data = data.zip(bytes).and_then(|(data, bytes)| data.checked_add(bytes));
    };
    for field in view.fields() {
        let Some((datatype, number)) = grid::exported(field) else {
            continue;
        };
        let axis = match field.role {
            Role::Dimension(i) => Some(i),
            Role::Attribute(_) => None,
        };
        let inner = grid::inner_suffix(datatype, number).map(|_| number);
        if inner.is_some() {
            rank = shape.len() + 1;
            dimensions += 1;
        }
        add(axis, datatype.size() as u64, inner);
        if field.nullable {
            add(None, 1, None);
        }
    }
    for label in view.labels() {
        if let Some(datatype) = grid::label_type(&label.label) {
            let axis = label.label.dimension_index as usize;
            add(Some(axis), datatype.size() as u64, None);
        }
    }
    Ok(if rank > MAX_RANK {
        Some(format!("HDF5 has no more than {MAX_RANK} axes"))
    } else if dimensions > MAX_DIMENSIONS {
        Some(format!("it would have more than {MAX_DIMENSIONS} dimensions"))
    } else if data.is_none_or(|data| data > MAX_DATA) {
        Some("it would have 2^63 bytes or more".to_owned())
    } else {
        None
    })
}

/// The file of a view for which [`absent`] returns None. Its length follows from metadata; reads decode the
/// data.
pub fn layout(view: &Arc<View>) -> Result<FileLayout> {
    let array = view.array();
    let group = Arc::new(FileGroup::of_view(view.clone(), Naming::NetCdf)?);
    let state = view.state_with(&group.grid.labels());
    let object = array.engine.number(&("array.nc", &array.path, state));
    file(&array.engine, object, state, &group, Some(CONVENTIONS))
}

/// The file of a group and all in it. `object` is the cache's number for its header, and `version` the state
/// of the file. `conventions` is an attribute that it has unless the group's own differs.
pub(super) fn file(
    engine: &Engine,
    object: u64,
    version: u64,
    group: &Arc<FileGroup>,
    conventions: Option<(&str, &str)>,
) -> Result<FileLayout> {
    let sections = Section::all(group);
    let storages = storages(&sections)?;
    let header = engine
        .cache
        .derive(CacheKey::of(object), 8192, Keep::Staying, || {
            header(&sections, &storages, conventions, env!("CARGO_PKG_VERSION"))
        })?;
    let places = Places::new(&storages, header.len())?;
    let mut end = header.len();
    let mut parts: Vec<Box<dyn Bytes>> = vec![Box::new(engine.pin(object, header)?)];
    let mut put = |start: u64, part: Box<dyn Bytes>| {
        parts.push(Box::new(Zeros(start - end)));
        end = start + part.len();
        parts.push(part);
    };
    for ((storage, index), data) in storages.iter().zip(&places.indexes).zip(&places.data) {
        if let Some(chunked) = &storage.chunked {
            put(
                *index,
                Box::new(Index::new(&chunked.chunks, chunked.size, *index, *data)),
            );
        }
    }
    let variables = sections.iter().flat_map(|section| {
        let numbers = 0..section.group.grid.variables.len();
        numbers.map(|number| (section.group.clone(), number))
    });
    for (((group, index), storage), start) in variables.zip(storages).zip(&places.data) {
        let len = storage.bytes;
        match storage.chunked {
            // Opened by the first read: most readers want few variables.
            None => put(
                *start,
                Box::new(CellBytes::opened_by(len, Content::Data, move || {
                    let variable = &group.grid.variables[index];
                    variable.open(group.view(variable))
                })),
            ),
            Some(chunked) => put(
                *start,
                Box::new(InChunks {
                    group,
                    index,
                    len,
                    size: chunked.size.into(),
                    open: Mutex::new(LruCache::new(MAX_OPEN)),
                }),
            ),
        }
    }
    put(places.end, Box::<Vec<u8>>::default());
    FileLayout::new(version, parts)
}

/// How the values of a variable are stored.
struct Storage {
    /// The length of each axis.
    shape: Vec<u64>,
    /// Bytes of all values, with the padding of chunks.
    bytes: u64,
    /// Bytes of the index of chunks.
    index: u64,
    /// None if the values are contiguous.
    chunked: Option<Chunked>,
    /// Whether the values have to be decoded: coordinates along an axis follow from the schema.
    decoded: bool,
}

/// The chunks of a variable.
struct Chunked {
    chunks: Chunks,
    /// Bytes of a chunk.
    size: u32,
}

impl Storage {
    /// The storage of a variable that `chunks` may cut, of values of `size` bytes. None beyond 2^64 bytes.
    fn of(chunks: Chunks, size: u64) -> Option<Storage> {
        let bytes = |axes: &[u64]| match axes.contains(&0) {
            true => Some(0),
            false => axes.iter().copied().try_fold(size, u64::checked_mul),
        };
        // An index of no chunks would have no bytes, and its address would be that of something else.
        let scattered = chunks.count() > 0 && chunks.counts().skip(1).any(|count| count > 1);
        // HDF5 counts the bytes of a chunk in 32 bits.
        let chunk = bytes(&chunks.sides).and_then(|bytes| u32::try_from(bytes).ok());
        Some(match chunk.filter(|_| scattered) {
            None => Storage {
                bytes: bytes(&chunks.shape)?,
                shape: chunks.shape,
                index: 0,
                chunked: None,
                decoded: true,
            },
            Some(size) => Storage {
                shape: chunks.shape.clone(),
                bytes: chunks.count().checked_mul(size.into())?,
                index: btree::len(chunks.count(), chunks.shape.len())?,
                chunked: Some(Chunked { chunks, size }),
                decoded: true,
            },
        })
    }
}

/// How the variables of all groups are stored.
fn storages(sections: &[Section]) -> Result<Vec<Storage>> {
    let variables = sections.iter().flat_map(|section| &section.group.grid.variables);
    let storages = variables.map(|variable| {
        let size = variable.datatype.size() as u64;
        let storage = Storage::of(variable.chunks.clone(), size).ok_or_else(too_long)?;
        Ok(Storage {
            decoded: !matches!(variable.kind, VariableKind::Axis(_)),
            ..storage
        })
    });
    storages.collect()
}

/// A group of the file. Its objects are its own header, its dimensions without coordinates, and its
/// variables.
struct Section {
    group: Arc<FileGroup>,
    /// The groups in it by name, as indexes of all groups.
    groups: Vec<(String, usize)>,
    /// The number of its first object among those of all groups.
    first_object: usize,
    /// The number of its first dimension among those of all groups.
    first_dimension: usize,
    /// Its dimensions without coordinates.
    bare: Vec<usize>,
    /// The place of each dimension among its objects.
    scales: Vec<usize>,
}

impl Section {
    /// The sections of a group and of all groups in it; a group comes before those in it.
    fn all(root: &Arc<FileGroup>) -> Vec<Section> {
        let mut all = Vec::new();
        Section::add(root, &mut all);
        let (mut first_object, mut first_dimension) = (0, 0);
        for section in &mut all {
            (section.first_object, section.first_dimension) = (first_object, first_dimension);
            first_object += section.objects();
            first_dimension += section.group.grid.dimensions.len();
        }
        all
    }

    fn add(group: &Arc<FileGroup>, all: &mut Vec<Section>) -> usize {
        let (grid, number) = (&group.grid, all.len());
        let mut scales: Vec<Option<usize>> = vec![None; grid.dimensions.len()];
        for (place, variable) in grid.variables.iter().enumerate() {
            if let Some(dimension) = scale_of(grid, variable) {
                scales[dimension] = Some(place);
            }
        }
        let bare = (0..scales.len()).filter(|dimension| scales[*dimension].is_none());
        let bare: Vec<usize> = bare.collect();
        let mut next_bare = 1..;
        let scales = scales.into_iter().map(|variable| match variable {
            Some(place) => 1 + bare.len() + place,
            None => next_bare.next().expect("there is a next number"),
        });
        all.push(Section {
            scales: scales.collect(),
            group: group.clone(),
            groups: Vec::new(),
            first_object: 0,
            first_dimension: 0,
            bare,
        });
        for (name, inner) in &group.groups {
            let inner = Section::add(inner, all);
            all[number].groups.push((name.clone(), inner));
        }
        number
    }

    fn objects(&self) -> usize {
        1 + self.bare.len() + self.group.grid.variables.len()
    }
}

/// The dimension whose coordinates the variable is: the only one, of the same name.
fn scale_of(grid: &Grid, variable: &Variable) -> Option<usize> {
    match variable.dimensions.as_slice() {
        [only] if grid.dimensions[*only].0 == variable.name => Some(*only),
        _ => None,
    }
}

/// Addresses behind the object headers and the global heap.
struct Places {
    /// The index of each variable, if it has one.
    indexes: Vec<u64>,
    /// The data of each variable.
    data: Vec<u64>,
    end: u64,
}

impl Places {
    /// The addresses if the heap ends at `end`, a multiple of 8.
    fn new(storages: &[Storage], end: u64) -> Result<Places> {
        let mut end = Some(end);
        let mut take = |align: u64, bytes: u64| {
            let start = end.and_then(|end| end.checked_next_multiple_of(align));
            end = start.and_then(|start| start.checked_add(bytes));
            file_len(start)
        };
        let indexes = storages.iter().map(|storage| take(8, storage.index));
        let indexes = indexes.collect::<Result<_>>()?;
        take(64, 0)?;
        let bytes = storages.iter().map(|storage| storage.bytes);
        let mut is_looked_at = bytes.fold(0, u64::saturating_add) >= 32 * LOOKED_AT;
        let data = storages.iter().map(|storage| {
            if is_looked_at && storage.decoded {
                is_looked_at = false;
                take(LOOKED_AT, 0)?;
            }
            match storage.chunked {
                None => take(8, storage.bytes),
                Some(_) => take(CHUNK_ALIGNMENT, storage.bytes),
            }
        });
        let data = data.collect::<Result<_>>()?;
        let end = take(8, 0)?;
        Ok(Places { indexes, data, end })
    }
}

/// What object headers refer to.
struct Addresses {
    /// The object headers of all groups.
    objects: Vec<u64>,
    heap: u64,
    places: Places,
}

/// The file up to the end of the global heap; `version` is the program's.
fn header(
    sections: &[Section],
    storages: &[Storage],
    conventions: Option<(&str, &str)>,
    version: &str,
) -> Result<Vec<u8>> {
    // Lengths do not depend on addresses, so all addresses are 0 in a first pass that computes lengths.
    let none = Addresses {
        objects: vec![0; sections.iter().map(Section::objects).sum()],
        heap: 0,
        places: Places {
            indexes: vec![0; storages.len()],
            data: vec![0; storages.len()],
            end: 0,
        },
    };
    let mut heap = hdf5::SUPERBLOCK_SIZE;
    let mut starts = Vec::new();
    for object in objects(sections, storages, conventions, version, &none) {
        starts.push(heap);
        heap = (heap + object.len() as u64).next_multiple_of(8);
    }
    let dimensions = sections.iter().map(|section| section.scales.len()).sum::<usize>();
    let end = heap + hdf5::heap_size(iter::repeat_n(size_of::<u64>(), dimensions));
    let addresses = Addresses {
        objects: starts,
        heap,
        places: Places::new(storages, end)?,
    };
    let mut out = hdf5::superblock(addresses.places.end);
    for object in objects(sections, storages, conventions, version, &addresses) {
        out.extend_from_slice(&object);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    let scales = sections.iter().flat_map(|section| {
        let places = section.scales.iter();
        places.map(|place| addresses.objects[section.first_object + place].to_le_bytes())
    });
    out.extend(hdf5::heap(&scales.collect::<Vec<_>>()));
    Ok(out)
}

/// The object headers of all groups, the root's first.
fn objects(
    sections: &[Section],
    storages: &[Storage],
    conventions: Option<(&str, &str)>,
    version: &str,
    addresses: &Addresses,
) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let places = &addresses.places;
    let mut placed = places.indexes.iter().zip(&places.data).zip(storages);
    for (number, section) in sections.iter().enumerate() {
        let grid = &section.group.grid;
        let links = links(sections, section, &addresses.objects);
        let mut messages = Messages::default();
        messages.group(links.len() as u64);
        for (order, (name, address)) in links.iter().enumerate() {
            messages.link(order as u64, name, *address);
        }
        if number == 0 {
            messages.text("_NCProperties", &format!("version=2,tiledbfs={version}"));
            if let Some((key, value)) = conventions
                && grid.attributes.iter().all(|(name, _)| name != key)
            {
                messages.text(key, value);
            }
        }
        for (name, value) in &grid.attributes {
            messages.value(name, value);
        }
        out.push(messages.header());
        for dimension in &section.bare {
            let len = grid.dimensions[*dimension].1;
            let mut messages = Messages::default();
            let layout = hdf5::contiguous(UNDEFINED_ADDRESS, len.saturating_mul(4));
            messages.dataset(&[len], &hdf5::single(1), &layout);
            let name = format!("This is a netCDF dimension but not a netCDF variable. {len:10}");
            scale(&mut messages, &name, section.first_dimension + dimension);
            out.push(messages.header());
        }
        for (variable, ((index, data), storage)) in grid.variables.iter().zip(&mut placed) {
            let size = variable.datatype.size() as u32;
            let layout = match &storage.chunked {
                None => hdf5::contiguous(*data, storage.bytes),
                Some(chunked) => hdf5::chunked(*index, &chunked.chunks.sides, size),
            };
            let mut messages = Messages::default();
            messages.dataset(&storage.shape, &hdf5::number_type(variable.datatype), &layout);
            describe(
                grid,
                variable,
                section.first_dimension,
                addresses.heap,
                &mut messages,
            );
            out.push(messages.header());
        }
    }
    out
}

/// Names and addresses of what is in a group: dimensions without coordinates, variables, groups.
fn links(sections: &[Section], section: &Section, objects: &[u64]) -> Vec<(String, u64)> {
    let grid = &section.group.grid;
    let bare = section
        .bare
        .iter()
        .map(|dimension| grid.dimensions[*dimension].0.clone());
    let dimensions: HashSet<&str> = grid.dimensions.iter().map(|(name, _)| &**name).collect();
    let variables = grid.variables.iter().map(|variable| {
        // netCDF-4 takes a variable with the name of a dimension for its coordinates.
        match dimensions.contains(&*variable.name) && scale_of(grid, variable).is_none() {
            true => format!("_nc4_non_coord_{}", variable.name),
            false => variable.name.clone(),
        }
    });
    let own = bare.chain(variables).zip(&objects[section.first_object + 1..]);
    let own = own.map(|(name, address)| (name, *address));
    let groups = section.groups.iter();
    let groups = groups.map(|(name, inner)| (name.clone(), objects[sections[*inner].first_object]));
    own.chain(groups).collect()
}

/// The attributes that make a data set the scale of dimension `number`.
fn scale(messages: &mut Messages, name: &str, number: usize) {
    messages.text("CLASS", "DIMENSION_SCALE");
    messages.text("NAME", name);
    let number = (number as u32).to_le_bytes();
    messages.attribute(
        "_Netcdf4Dimid",
        &hdf5::number_type(Datatype::Int32),
        None,
        &number,
    );
}

/// The attributes of a variable of a grid whose dimensions have numbers from `first` on.
fn describe(grid: &Grid, variable: &Variable, first: usize, heap: u64, messages: &mut Messages) {
    if let Some(dimension) = scale_of(grid, variable) {
        scale(messages, &variable.name, first + dimension);
    } else if !variable.dimensions.is_empty() {
        let count = Some(variable.dimensions.len() as u64);
        let numbers = variable.dimensions.iter().map(|number| (first + number) as u32);
        let references = numbers.clone().flat_map(|number| hdf5::in_heap(1, heap, number));
        let references: Vec<u8> = references.collect();
        messages.attribute("DIMENSION_LIST", &hdf5::reference_lists(), count, &references);
        let numbers: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        let datatype = hdf5::number_type(Datatype::Int32);
        messages.attribute("_Netcdf4Coordinates", &datatype, count, &numbers);
    }
    if let Some(value) = &variable.fill_value {
        messages.value("_FillValue", &Value::Numbers(variable.datatype, value.clone()));
    }
    if variable.datatype == Datatype::Bool {
        messages.text("dtype", "bool");
    }
    for (name, value) in &variable.attributes {
        messages.value(name, value);
    }
}

/// The values of a variable in chunks of one size, in row-major order.
struct InChunks {
    group: Arc<FileGroup>,
    /// Index of the variable in the grid.
    index: usize,
    /// Bytes of all chunks.
    len: u64,
    /// Bytes of a chunk.
    size: u64,
    /// The chunks read last, by their place in the order: requests of the kernel may be shorter than a chunk.
    open: Mutex<LruCache<u64, Arc<GridChunk>>>,
}

impl InChunks {
    fn chunk(&self, number: u64) -> Result<Arc<GridChunk>> {
        if let Some(chunk) = lock(&self.open).get(&number) {
            return Ok(chunk.clone());
        }
        let variable = &self.group.grid.variables[self.index];
        let numbers = variable.chunks.numbers(number);
        let chunk = Arc::new(GridChunk::open(self.group.view(variable), variable, &numbers)?);
        lock(&self.open).put(number, chunk.clone());
        Ok(chunk)
    }
}

impl Bytes for InChunks {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let size = self.size;
        for number in range.start / size..range.end.div_ceil(size) {
            let start = number * size;
            let part = range.start.max(start) - start..range.end.min(start + size) - start;
            self.chunk(number)?.read(part, out)?;
        }
        Ok(())
    }
}
