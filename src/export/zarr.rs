//! `array.zarr/`: a dense view as a Zarr group of version 3, for zarr, xarray, dask and tensorstore.
//!
//! A directory of many files. The group's `zarr.json` repeats those of its arrays, so that a reader needs one
//! file for all metadata. Each variable of the [`Grid`] except text has `<name>/zarr.json` and chunks
//! `<name>/c/<i>/<j>`, uncompressed in row-major order. The names of chunks follow from shape and chunk
//! shape, so nothing is made before it is opened.
//!
//! A chunk is a box of the view, counted from the region's lower corner: whole tile extents, joined while it
//! has few cells and halved while it is large. It need not agree with tiles. Chunks at the upper ends have
//! the full size as well, padded with the fill value. Coordinates are one chunk.
//!
//! The `zarr.json` of a nullable INT32 attribute `a` over 5 × 6 cells in tiles of 3 × 4, without blanks and
//! line breaks:
//!
//! ```json
//! {"zarr_format":3,"node_type":"array","shape":[5,6],"data_type":"int32",
//!  "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[5,6]}},
//!  "chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},
//!  "fill_value":-2147483648,"codecs":[{"name":"bytes","configuration":{"endian":"little"}}],
//!  "dimension_names":["y","x"],"attributes":{"ancillary_variables":"a__validity","_FillValue":-2147483648}}
//! ```

use super::grid::{self, Grid, Naming, Value, Variable, VariableKind};
use crate::array::cells::Cells;
use crate::array::column::Content;
use crate::array::geometry::{integer, mask};
use crate::array::sink::Sink;
use crate::error::{Error, Result};
use crate::format::datatype::{Datatype, Kind};
use crate::format::schema::Schema;
use crate::layout::{FileLayout, Source};
use crate::view::{Role, View};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json, json};
use std::ops::Range;
use std::sync::Arc;

/// The name of the group's directory.
pub const NAME: &str = "array.zarr";

/// Whole extents are joined while a chunk has fewer cells.
const MIN_CHUNK_CELLS: u64 = 1 << 16;

/// A chunk of more bytes is halved.
const MAX_CHUNK_SIZE: u64 = 64 << 20;

/// Why a view has no `array.zarr`; None if it has one. Reads only metadata.
pub fn absent(view: &View) -> Result<Option<String>> {
    grid::absent(view)
}

/// Whether listings show it: not if it has very many chunks. Reads as little metadata as possible.
pub fn is_listed(view: &View) -> Result<bool> {
    const MAX_LISTED: u64 = 1 << 12;
    Ok(absent(view)?.is_none()
        && (chunk_count(view, &view.shape_at_most()?)? <= MAX_LISTED
            || chunk_count(view, &view.shape()?)? <= MAX_LISTED))
}

/// The number of chunks of all arrays for a view of this shape.
fn chunk_count(view: &View, shape: &[u64]) -> Result<u64> {
    let extents = extents(view.schema())?;
    let fields = view
        .fields()
        .iter()
        .map(|field| match (field.role, field.cell_size()) {
            (Role::Attribute(_), Some(size))
                if !matches!(field.datatype.kind(), Kind::Text | Kind::Bytes) =>
            {
                let of = |size| Chunks::new(shape, &extents, size).count();
                of(size).saturating_add(if field.nullable { of(1) } else { 0 })
            }
            (Role::Attribute(_), _) => 0,
            (Role::Dimension(_), _) => 1,
        });
    Ok(fields.fold(0, u64::saturating_add))
}

/// A view as a Zarr group.
pub struct ZarrGroup {
    view: Arc<View>,
    grid: Arc<Grid>,
}

impl ZarrGroup {
    /// The group of `view`, for which [`absent`] returns None. Reads only metadata.
    pub fn of(view: Arc<View>) -> Result<ZarrGroup> {
        let grid = Grid::of(&view, Naming::Zarr)?;
        Ok(ZarrGroup { view, grid })
    }

    /// The names of its arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.grid.variables.iter().map(|variable| &*variable.name)
    }

    /// The array of that name; `NotFound` if there is none.
    pub fn array(&self, name: &str) -> Result<ZarrArray<'_>> {
        let mut variables = self.grid.variables.iter();
        match variables.find(|variable| variable.name == name) {
            Some(variable) => ZarrArray::new(self, variable),
            None => Err(Error::not_found(format!("there is no array {name:?}"))),
        }
    }

    /// The group's `zarr.json`.
    pub fn json(&self) -> Result<Vec<u8>> {
        let arrays = self.grid.variables.iter().map(|variable| {
            let array = ZarrArray::new(self, variable)?;
            Ok((variable.name.clone(), array.document()))
        });
        let arrays: Map<String, Json> = arrays.collect::<Result<_>>()?;
        let document = json!({
            "zarr_format": 3,
            "node_type": "group",
            "attributes": attributes(&self.grid.attributes),
            "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": arrays},
        });
        Ok(document.to_string().into_bytes())
    }
}

/// An array of a group.
pub struct ZarrArray<'g> {
    group: &'g ZarrGroup,
    variable: &'g Variable,
    chunks: Chunks,
}

impl<'g> ZarrArray<'g> {
    fn new(group: &'g ZarrGroup, variable: &'g Variable) -> Result<ZarrArray<'g>> {
        let shape = &group.grid.shape;
        let missing = || Error::internal("the grid has no such axis");
        let mut chunks = match variable.kind {
            VariableKind::Axis(axis) => Chunks::whole(*shape.get(axis).ok_or_else(missing)?),
            VariableKind::Values | VariableKind::Validity => {
                Chunks::new(shape, &extents(group.view.schema())?, variable.cell_size())
            }
        };
        if let Some((_, values)) = &variable.inner {
            chunks.shape.push(*values);
            chunks.sides.push(*values);
        }
        Ok(ZarrArray {
            group,
            variable,
            chunks,
        })
    }

    /// The array's `zarr.json`.
    pub fn json(&self) -> Vec<u8> {
        self.document().to_string().into_bytes()
    }

    fn document(&self) -> Json {
        let variable = self.variable;
        let (datatype, size) = (variable.datatype, variable.datatype.size());
        let axes = |variable: &&Variable| matches!(variable.kind, VariableKind::Axis(_));
        let mut names: Vec<&str> = match variable.kind {
            VariableKind::Axis(_) => vec![&variable.name],
            _ => self
                .group
                .grid
                .variables
                .iter()
                .filter(axes)
                .map(|axis| &*axis.name)
                .collect(),
        };
        names.extend(variable.inner.iter().map(|(name, _)| &**name));
        let codec = match size {
            1 => json!({"name": "bytes"}),
            _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
        };
        let mut attributes = attributes(&variable.attributes);
        if let Some(fill) = &variable.fill_value {
            attributes.insert("_FillValue".to_owned(), encoded(datatype, fill));
        }
        let zero = vec![0; size];
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.chunks.shape,
            "data_type": data_type(datatype),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.chunks.sides}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": number(datatype, variable.fill.get(..size).unwrap_or(&zero)),
            "codecs": [codec],
            "dimension_names": names,
            "attributes": attributes,
        })
    }

    /// The number of chunks along each axis.
    pub fn counts(&self) -> Vec<u64> {
        self.chunks.counts().collect()
    }

    /// The chunk of these numbers along the axes; `NotFound` if there is none. Reads decode the data.
    pub fn chunk(&self, numbers: &[u64]) -> Result<FileLayout> {
        let there = numbers
            .iter()
            .zip(self.chunks.counts())
            .all(|(number, count)| *number < count);
        if !there || numbers.len() != self.chunks.shape.len() {
            return Err(Error::not_found(format!("there is no chunk {numbers:?}")));
        }
        let (view, variable) = (&self.group.view, self.variable);
        let (mut first, mut part) = self.chunks.part(numbers);
        let mut sides = self.chunks.sides.clone();
        if variable.inner.is_some() {
            for axes in [&mut first, &mut part, &mut sides] {
                axes.pop();
            }
        }
        let cells = match variable.kind {
            VariableKind::Axis(_) => variable.open(view)?,
            VariableKind::Values | VariableKind::Validity => variable.open_box(view, &first, &part)?,
        };
        let chunk = Chunk {
            cells,
            cell: variable.cell_size(),
            fill: variable.fill.clone(),
            sides,
            part,
        };
        FileLayout::new(view.state(), vec![Box::new(chunk)])
    }
}

/// How an array is divided.
#[derive(Debug, Clone, PartialEq)]
struct Chunks {
    /// The length of each axis, at least 1.
    shape: Vec<u64>,
    /// The length of each side of a chunk.
    sides: Vec<u64>,
}

impl Chunks {
    /// An axis in one chunk.
    fn whole(length: u64) -> Chunks {
        Chunks {
            shape: vec![length],
            sides: vec![length],
        }
    }

    /// The chunks of an array of cells of `size` bytes. While they are too small, the shortest side that can
    /// grow is doubled.
    fn new(shape: &[u64], extents: &[u64], size: u64) -> Chunks {
        let sides = shape
            .iter()
            .zip(extents)
            .map(|(length, extent)| *length.min(extent));
        let mut sides: Vec<u64> = sides.map(|side| side.max(1)).collect();
        let cells = |sides: &[u64]| sides.iter().copied().fold(1, u64::saturating_mul);
        while cells(&sides) < MIN_CHUNK_CELLS {
            let growing = sides
                .iter_mut()
                .zip(shape)
                .filter(|(side, length)| **side < **length);
            let Some((side, length)) = growing.min_by_key(|(side, _)| **side) else {
                break;
            };
            *side = side.saturating_mul(2).min(*length);
        }
        while cells(&sides).saturating_mul(size) > MAX_CHUNK_SIZE {
            let Some(side) = sides.iter_mut().max().filter(|side| **side > 1) else {
                break;
            };
            *side = side.div_ceil(2);
        }
        Chunks {
            shape: shape.to_vec(),
            sides,
        }
    }

    /// The number of chunks along each axis.
    fn counts(&self) -> impl Iterator<Item = u64> {
        let axes = self.shape.iter().zip(&self.sides);
        axes.map(|(length, side)| length.div_ceil((*side).max(1)))
    }

    /// The number of all chunks.
    fn count(&self) -> u64 {
        self.counts().fold(1, u64::saturating_mul)
    }

    /// The first cell of a chunk, and the lengths of its part inside the array.
    fn part(&self, numbers: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let axes = numbers.iter().zip(&self.shape).zip(&self.sides);
        axes.map(|((number, length), side)| {
            let first = number.saturating_mul(*side);
            (first, length.saturating_sub(first).min(*side))
        })
        .unzip()
    }
}

/// A box of a view as a chunk of full size.
struct Chunk {
    /// The cells inside the array.
    cells: Arc<dyn Cells>,
    /// Bytes of a cell.
    cell: u64,
    /// The cell that fills the padding. Empty if there is no padding.
    fill: Vec<u8>,
    /// The length of each side.
    sides: Vec<u64>,
    /// The length of each side inside the array.
    part: Vec<u64>,
}

impl Chunk {
    /// The row of `cells` at row `row` of the chunk; None if that is padding.
    fn row(&self, row: u64) -> Option<u64> {
        let leading = self.sides.len().saturating_sub(1);
        let (mut rest, mut own, mut stride) = (row, 0u64, 1u64);
        for (side, part) in self.sides.iter().zip(&self.part).take(leading).rev() {
            let place = rest % (*side).max(1);
            rest /= (*side).max(1);
            if place >= *part {
                return None;
            }
            own = own.saturating_add(place.saturating_mul(stride));
            stride = stride.saturating_mul(*part);
        }
        Some(own)
    }
}

impl Source for Chunk {
    fn len(&self) -> u64 {
        self.sides
            .iter()
            .fold(self.cell, |bytes, side| bytes.saturating_mul(*side))
    }

    fn read(&self, range: Range<u64>, sink: &mut Sink<'_>) -> Result<()> {
        let mut scratch = Vec::new();
        if self.sides == self.part {
            let bytes = self.cells.read(Content::Data, range, &mut scratch)?;
            sink.write(|out| out.extend_from_slice(&bytes));
            return Ok(());
        }
        let bytes = |sides: &[u64]| sides.last().map_or(0, |side| side.saturating_mul(self.cell));
        let (long, short) = (bytes(&self.sides).max(1), bytes(&self.part));
        // For each row of the chunk: its bytes in the range, and the cells that they belong to.
        let rows = range.start / long..range.end.div_ceil(long);
        let rows = rows.map(|row| {
            let start = row.saturating_mul(long);
            let within = range.start.max(start) - start..range.end.min(start.saturating_add(long)) - start;
            let own = self.row(row).map(|own| own.saturating_mul(short));
            let own = own.map(|own| {
                own.saturating_add(within.start.min(short))..own.saturating_add(within.end.min(short))
            });
            (within, own.filter(|own| !own.is_empty()))
        });
        let mut all: Option<Range<u64>> = None;
        for own in rows.clone().filter_map(|(_, own)| own) {
            all = Some(all.map_or(own.start, |all| all.start)..own.end);
        }
        let all = all.unwrap_or_default();
        let found = self.cells.read(Content::Data, all.clone(), &mut scratch)?;
        let padding = |place: u64| {
            let place = (place % self.cell.max(1)) as usize;
            self.fill.get(place).copied().unwrap_or(0)
        };
        sink.write(|out| {
            for (within, own) in rows {
                let own = own.unwrap_or_default();
                let bytes =
                    own.start.saturating_sub(all.start) as usize..own.end.saturating_sub(all.start) as usize;
                out.extend_from_slice(found.get(bytes).unwrap_or_default());
                let padded = within.start.saturating_add(own.end.saturating_sub(own.start))..within.end;
                out.extend(padded.map(padding));
            }
        });
        Ok(())
    }
}

/// The tile extent of each dimension of a dense array.
fn extents(schema: &Schema) -> Result<Vec<u64>> {
    let extents = schema.dimensions.iter().map(|dimension| {
        let missing = || Error::corrupt("a dimension of a dense array needs a tile extent");
        let extent = dimension.tile_extent.as_ref().ok_or_else(missing)?;
        Ok(integer(dimension.datatype, extent)? & mask(dimension.datatype))
    });
    extents.collect()
}

/// Zarr's name for a type of a grid's variables.
fn data_type(datatype: Datatype) -> &'static str {
    match (datatype.kind(), datatype.size()) {
        (Kind::Bool, _) => "bool",
        (Kind::Signed, 1) => "int8",
        (Kind::Signed, 2) => "int16",
        (Kind::Signed, 4) => "int32",
        (Kind::Signed, _) => "int64",
        (Kind::Unsigned, 1) => "uint8",
        (Kind::Unsigned, 2) => "uint16",
        (Kind::Unsigned, 4) => "uint32",
        (Kind::Unsigned, _) => "uint64",
        (Kind::Float, 4) => "float32",
        (Kind::Float, _) => "float64",
        // No grid has these.
        (Kind::Text | Kind::Bytes | Kind::Datetime | Kind::Time, _) => "int64",
    }
}

fn attributes(attributes: &grid::Attributes) -> Map<String, Json> {
    let attributes = attributes.iter().map(|(name, value)| {
        let value = match value {
            Value::Text(text) => text.clone().into(),
            Value::Numbers(datatype, bytes) => {
                let mut numbers: Vec<Json> = bytes
                    .chunks_exact(datatype.size())
                    .map(|value| number(*datatype, value))
                    .collect();
                match numbers.len() {
                    1 => numbers.swap_remove(0),
                    _ => numbers.into(),
                }
            }
        };
        (name.clone(), value)
    });
    attributes.collect()
}

/// A little-endian value as JSON.
fn number(datatype: Datatype, value: &[u8]) -> Json {
    let unsigned = bits(value);
    match datatype.kind() {
        Kind::Bool => (unsigned != 0).into(),
        Kind::Float => match float(value) {
            float if float.is_nan() => "NaN".into(),
            f64::INFINITY => "Infinity".into(),
            f64::NEG_INFINITY => "-Infinity".into(),
            float => float.into(),
        },
        Kind::Signed | Kind::Datetime | Kind::Time => {
            let unused = 64 - 8 * datatype.size() as u32;
            ((unsigned << unused) as i64 >> unused).into()
        }
        _ => unsigned.into(),
    }
}

/// Up to eight little-endian bytes as a number.
fn bits(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(value).for_each(|(byte, own)| *byte = *own);
    u64::from_le_bytes(bytes)
}

fn float(value: &[u8]) -> f64 {
    match value.len() {
        4 => f32::from_bits(bits(value) as u32).into(),
        _ => f64::from_bits(bits(value)),
    }
}

/// A value of `_FillValue` as xarray encodes it: floats in base 64.
fn encoded(datatype: Datatype, value: &[u8]) -> Json {
    match datatype.kind() {
        Kind::Float => BASE64.encode(float(value).to_le_bytes()).into(),
        _ => number(datatype, value),
    }
}

#[cfg(test)]
mod tests;
