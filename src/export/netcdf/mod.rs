//! `array.nc`: NetCDF-4, that is HDF5 with contiguous data sets. Everything before the data follows from
//! schema, region and metadata.
//!
//! In order: superblock, the root's object header, the object headers of dimensions without coordinates and
//! of variables, a global heap, the data of the variables in the order of the [`Grid`]. Headers and data
//! begin at multiples of 8, the first data at a multiple of 64.
#![doc = include_str!("example.md")]

mod hdf5;
mod lookup3;
#[cfg(test)]
mod tests;

use super::grid::{self, Grid, Naming, Value, Variable, VariableKind};
use crate::array::cache::{CacheKey, Keep};
use crate::array::cells::Cells;
use crate::array::column::Content;
use crate::array::sink::Sink;
use crate::error::{Error, Result};
use crate::format::datatype::Datatype;
use crate::layout::{FileLayout, Source};
use crate::view::{Role, View};
use hdf5::{Messages, UNDEFINED_ADDRESS};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The most axes of a data set in libhdf5.
const MAX_RANK: usize = 32;

/// The most dimensions, each an object in the global heap.
const MAX_DIMENSIONS: usize = 65_534;

/// The most bytes of data: a file has at most 2^63 - 1 bytes, and headers take far less than 2^32.
const MAX_DATA: u64 = (1 << 63) - (1 << 32);

/// Why a view has no `array.nc`; None if it has one. Reads the schema and as little fragment metadata as
/// possible.
pub fn absent(view: &View) -> Result<Option<String>> {
    if let Some(reason) = grid::absent(view)? {
        return Ok(Some(reason));
    }
    match too_large(view, &view.shape_at_most()?) {
        None => Ok(None),
        Some(_) => Ok(too_large(view, &view.shape()?)),
    }
}

/// Why a view of this shape has no file; None if it and all smaller shapes have one.
fn too_large(view: &View, shape: &[u64]) -> Option<String> {
    let (mut rank, mut dimensions, mut data) = (shape.len(), shape.len(), Some(0u64));
    for field in view.fields() {
        let Some((datatype, number)) = grid::exported(field) else {
            continue;
        };
        let lengths = match field.role {
            Role::Dimension(i) => shape.get(i).into_iter().copied().collect(),
            Role::Attribute(_) => shape.to_vec(),
        };
        if grid::inner_suffix(datatype, number).is_some() {
            rank = shape.len() + 1;
            dimensions += 1;
        }
        let cells = lengths.into_iter().try_fold(1u64, u64::checked_mul);
        let validity = u64::from(field.nullable);
        // Data begins at multiples of 8.
        let cell = number
            .saturating_mul(datatype.size() as u64)
            .saturating_add(validity);
        let size = cells.and_then(|cells| cells.checked_mul(cell)?.checked_add(14));
        data = data.zip(size).and_then(|(data, size)| data.checked_add(size));
    }
    if rank > MAX_RANK {
        Some(format!("HDF5 has no more than {MAX_RANK} axes"))
    } else if dimensions > MAX_DIMENSIONS {
        Some(format!("it would have more than {MAX_DIMENSIONS} dimensions"))
    } else if data.is_none_or(|data| data > MAX_DATA) {
        Some("it would have 2^63 bytes or more".to_owned())
    } else {
        None
    }
}

/// The file of a view for which [`absent`] returns None. Its length follows from metadata; reads decode the
/// data.
pub fn layout(view: &Arc<View>) -> Result<FileLayout> {
    let grid = Grid::of(view, Naming::NetCdf)?;
    let array = view.array();
    let engine = &array.engine;
    let object = engine.number(&("array.nc", &array.path, view.state()));
    let header = engine
        .cache
        .derive(CacheKey::of(object), 8192, Keep::Staying, || {
            header(&grid, env!("CARGO_PKG_VERSION"))
        })?;
    let mut parts: Vec<Box<dyn Source>> = vec![Box::new(engine.pin(object, header)?)];
    for (index, variable) in grid.variables.iter().enumerate() {
        let len = size(&grid, variable).ok_or_else(too_long)?;
        parts.push(Box::new(Values {
            view: view.clone(),
            grid: grid.clone(),
            index,
            len,
            cells: OnceLock::new(),
        }));
        let padding = len.next_multiple_of(8).saturating_sub(len);
        parts.push(Box::new(vec![0; padding as usize]));
    }
    FileLayout::new(view.state(), parts)
}

fn too_long() -> Error {
    Error::limit("the file would have 2^63 bytes or more").at(0)
}

/// The lengths of the axes of a variable.
fn shape(grid: &Grid, variable: &Variable) -> Vec<u64> {
    match variable.kind {
        VariableKind::Axis(i) => grid.shape.get(i).copied().into_iter().collect(),
        _ => {
            let inner = variable.inner.iter().map(|(_, len)| *len);
            grid.shape.iter().copied().chain(inner).collect()
        }
    }
}

/// Bytes of a variable's values; None beyond 2^64.
fn size(grid: &Grid, variable: &Variable) -> Option<u64> {
    let mut lengths = shape(grid, variable).into_iter();
    lengths.try_fold(variable.datatype.size() as u64, u64::checked_mul)
}

/// Names and lengths of the dimensions by number: those with coordinates, then those within cells.
fn dimensions(grid: &Grid) -> Vec<(&str, u64)> {
    let variables = grid.variables.iter();
    let axes = variables.clone().zip(&grid.shape);
    let inner = variables.filter_map(|variable| variable.inner.as_ref());
    axes.map(|(axis, len)| (&*axis.name, *len))
        .chain(inner.map(|(name, len)| (&**name, *len)))
        .collect()
}

/// Addresses in the file.
struct Places {
    /// The object headers: dimensions without coordinates, then variables.
    objects: Vec<u64>,
    heap: u64,
    /// The data of each variable.
    data: Vec<u64>,
    end: u64,
}

/// Everything before the data; `version` is the program's.
fn header(grid: &Grid, version: &str) -> Result<Vec<u8>> {
    let dimensions = dimensions(grid);
    let axes = grid.shape.len();
    let inner = dimensions.len().saturating_sub(axes);
    // Lengths do not depend on addresses, so all addresses are 0 in a first pass that computes lengths.
    let none = Places {
        objects: vec![0; inner + grid.variables.len()],
        heap: 0,
        data: vec![0; grid.variables.len()],
        end: 0,
    };
    let places = places(
        grid,
        dimensions.len(),
        &objects(grid, version, &dimensions, &none),
    )?;
    let mut out = hdf5::superblock(places.end);
    for object in objects(grid, version, &dimensions, &places) {
        out.extend_from_slice(&object);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    let (inner, axes_and_rest) = places.objects.split_at_checked(inner).unwrap_or_default();
    let axes = axes_and_rest.iter().take(axes);
    out.extend(hdf5::heap(&axes.chain(inner).copied().collect::<Vec<_>>()));
    out.resize(out.len().next_multiple_of(64), 0);
    Ok(out)
}

/// The addresses that follow from the lengths of the object headers.
fn places(grid: &Grid, dimensions: usize, objects: &[Vec<u8>]) -> Result<Places> {
    let mut heap = hdf5::SUPERBLOCK_SIZE;
    let mut starts = Vec::with_capacity(objects.len());
    for object in objects {
        starts.push(heap);
        heap = heap.saturating_add(object.len() as u64).next_multiple_of(8);
    }
    let start = heap
        .saturating_add(hdf5::heap_size(dimensions as u64))
        .next_multiple_of(64);
    let mut end = Some(start);
    let mut data = Vec::with_capacity(grid.variables.len());
    for variable in &grid.variables {
        let start = end.ok_or_else(too_long)?;
        data.push(start);
        end = size(grid, variable)
            .and_then(|size| start.checked_add(size))
            .and_then(|end| end.checked_next_multiple_of(8));
    }
    Ok(Places {
        // The root's header is always right behind the superblock.
        objects: starts.into_iter().skip(1).collect(),
        heap,
        data,
        end: end
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(too_long)?,
    })
}

/// The object headers: the root's, those of dimensions without coordinates, those of variables.
fn objects(grid: &Grid, version: &str, dimensions: &[(&str, u64)], places: &Places) -> Vec<Vec<u8>> {
    let axes = grid.shape.len();
    let inner = dimensions.get(axes..).unwrap_or_default();
    let names = inner.iter().map(|(name, _)| *name);
    let names = names.chain(grid.variables.iter().map(|variable| &*variable.name));
    let mut out = vec![root(grid, version, names.zip(&places.objects).collect()).header()];
    for (number, (_, len)) in inner.iter().enumerate() {
        let mut messages = Messages::default();
        messages.dataset(
            &[*len],
            &hdf5::single(1),
            UNDEFINED_ADDRESS,
            len.saturating_mul(4),
        );
        let name = format!("This is a netCDF dimension but not a netCDF variable. {len:10}");
        scale(&mut messages, &name, axes + number);
        out.push(messages.header());
    }
    let mut inner = axes..;
    for (variable, address) in grid.variables.iter().zip(&places.data) {
        let mut numbers: Vec<usize> = (0..axes).collect();
        if variable.inner.is_some() {
            numbers.extend(inner.next());
        }
        out.push(data_set(grid, variable, *address, &numbers, places.heap).header());
    }
    out
}

fn root(grid: &Grid, version: &str, links: Vec<(&str, &u64)>) -> Messages {
    const CONVENTIONS: &str = "Conventions";
    let mut messages = Messages::default();
    messages.group(links.len() as u64);
    for (order, (name, address)) in links.into_iter().enumerate() {
        messages.link(order as u64, name, *address);
    }
    messages.text("_NCProperties", &format!("version=2,tiledbfs={version}"));
    if grid.attributes.iter().all(|(name, _)| name != CONVENTIONS) {
        messages.text(CONVENTIONS, "CF-1.12");
    }
    for (name, value) in &grid.attributes {
        messages.value(name, value);
    }
    messages
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

/// The data set of a variable whose axes are the dimensions `numbers`.
fn data_set(grid: &Grid, variable: &Variable, address: u64, numbers: &[usize], heap: u64) -> Messages {
    let mut messages = Messages::default();
    let (datatype, size) = (hdf5::number_type(variable.datatype), size(grid, variable));
    messages.dataset(&shape(grid, variable), &datatype, address, size.unwrap_or(0));
    if let VariableKind::Axis(number) = variable.kind {
        scale(&mut messages, &variable.name, number);
    } else {
        let count = Some(numbers.len() as u64);
        let numbers = numbers.iter().map(|number| *number as u32);
        let references = numbers
            .clone()
            .flat_map(|number| hdf5::reference_list(heap, number));
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
    messages
}

/// The values of a variable as a part of a file. Opened by the first read: most readers want few variables.
struct Values {
    view: Arc<View>,
    grid: Arc<Grid>,
    /// Index of the variable in the grid.
    index: usize,
    len: u64,
    cells: OnceLock<Arc<dyn Cells>>,
}

impl Source for Values {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        let cells = match (self.cells.get(), self.grid.variables.get(self.index)) {
            (Some(cells), _) => cells,
            (None, Some(variable)) => {
                let cells = variable.open(&self.view)?;
                self.cells.get_or_init(|| cells)
            }
            (None, None) => return Err(Error::not_found("there is no such variable")),
        };
        let mut scratch = Vec::new();
        let piece = cells.read(Content::Data, range, &mut scratch)?;
        sink.write(|out| out.extend_from_slice(&piece));
        Ok(())
    }
}
