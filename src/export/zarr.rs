//! `array.zarr/`: a dense view as a Zarr group of version 3, for zarr, xarray, dask and tensorstore.
//!
//! A directory of many files. The group's `zarr.json` repeats those of its arrays, so that a reader needs one
//! file for all metadata. Each variable of the [`grid`] except text has `<name>/zarr.json` and chunks
//! `<name>/c/<i>/<j>`, uncompressed in row-major order. The names of chunks follow from shape and chunk
//! shape, so nothing is made before it is opened.
//!
//! The chunks are those of [`super::chunks`]; coordinates are one chunk.
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

use super::chunks::{Chunks, GridChunk, MAX_LISTED_CHUNKS, extents};
use super::dataset::image::{Image, Level};
use super::file_group::FileGroup;
use super::grid::{self, Naming, Value, Variable};
use crate::error::{Error, Result};
use crate::format::datatype::{Datatype, Kind};
use crate::format::scalar::Scalar;
use crate::layout::FileLayout;
use crate::query::{Role, View};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// The name of the group's directory.
pub const NAME: &str = "array.zarr";

/// Why a view has no `array.zarr`; None if it has one. Reads only metadata.
pub fn absent(view: &View) -> Result<Option<String>> {
    grid::absent(view)
}

/// Whether listings show it: not if it has very many chunks. Reads as little metadata as possible.
pub fn is_listed(view: &View) -> Result<bool> {
    Ok(absent(view)?.is_none()
        && (chunk_count(view, &view.shape_at_most()?)? <= MAX_LISTED_CHUNKS
            || chunk_count(view, &view.shape()?)? <= MAX_LISTED_CHUNKS))
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
    let labels = view.labels().len() as u64;
    Ok(fields.fold(labels, u64::saturating_add))
}

/// A group of a file as a Zarr group.
pub struct ZarrGroup(Arc<FileGroup>);

impl ZarrGroup {
    /// The group of `view`, for which [`absent`] returns None. Reads only metadata.
    pub fn of(view: Arc<View>) -> Result<ZarrGroup> {
        let group = FileGroup::of_view(view, Naming::Zarr)?;
        Ok(Arc::new(group).into())
    }

    /// The names of its arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.grid.variables.iter().map(|variable| &*variable.name)
    }

    /// Whether the array of that name is a scalar; None if there is none.
    pub fn is_scalar(&self, name: &str) -> Option<bool> {
        let array = self.array(name).ok()?;
        Some(array.counts().is_empty())
    }

    /// The names of the groups in it.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.0.groups.iter().map(|(name, _)| &**name)
    }

    /// The group of that name in it.
    pub fn group(&self, name: &str) -> Option<ZarrGroup> {
        let found = self.0.groups.iter().find(|(known, _)| known == name);
        found.map(|(_, group)| ZarrGroup(group.clone()))
    }

    /// The array of that name; `NotFound` if there is none.
    pub fn array(&self, name: &str) -> Result<ZarrArray<'_>> {
        match self.0.grid.variable(name) {
            Some(variable) => Ok(ZarrArray {
                group: &self.0,
                variable,
            }),
            None => Err(Error::not_found(format!("there is no array {name:?}"))),
        }
    }

    /// All arrays in it and in the groups below, by their paths.
    pub fn all_arrays(&self) -> Vec<(String, ZarrArray<'_>)> {
        let mut all = Vec::new();
        each_node(&self.0, "", &mut |path, node| {
            if let ZarrNode::Array(array) = node {
                all.push((path, array));
            }
        });
        all
    }

    /// Its attribute `ome`, which describes an image; None if it is none.
    pub fn ome(&self) -> Option<&Json> {
        self.0.image.as_ref().map(|image| &image.ome)
    }

    /// The group's `zarr.json`, with those of everything in it.
    pub fn json(&self) -> Vec<u8> {
        let mut all = Map::new();
        each_node(&self.0, "", &mut |path, node| {
            let document = match node {
                ZarrNode::Array(array) => array.document(),
                ZarrNode::Group(group) => group_document(group),
            };
            all.insert(path, document);
        });
        let mut document = group_document(&self.0);
        document["consolidated_metadata"] =
            json!({"kind": "inline", "must_understand": false, "metadata": all});
        document.to_string().into_bytes()
    }
}

impl From<Arc<FileGroup>> for ZarrGroup {
    fn from(group: Arc<FileGroup>) -> ZarrGroup {
        ZarrGroup(group)
    }
}

/// An array or a group in a group.
enum ZarrNode<'g> {
    Array(ZarrArray<'g>),
    Group(&'g FileGroup),
}

/// Calls `each` with all arrays and groups in `group`, whose own path is `path`, and their paths.
fn each_node<'g>(group: &'g FileGroup, path: &str, each: &mut impl FnMut(String, ZarrNode<'g>)) {
    for variable in &group.grid.variables {
        let array = ZarrArray { group, variable };
        each(format!("{path}{}", variable.name), ZarrNode::Array(array));
    }
    for (name, group) in &group.groups {
        let path = format!("{path}{name}");
        each(path.clone(), ZarrNode::Group(group));
        each_node(group, &(path + "/"), each);
    }
}

fn group_document(group: &FileGroup) -> Json {
    let attributes = match &group.image {
        Some(image) => json!({"ome": image.ome}),
        None => attributes(&group.grid.attributes).into(),
    };
    json!({
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
    })
}

/// An array of a group.
pub struct ZarrArray<'g> {
    group: &'g FileGroup,
    variable: &'g Variable,
}

impl<'g> ZarrArray<'g> {
    /// Zarr's name for the type of its values.
    pub fn data_type(&self) -> &'static str {
        data_type(self.variable.datatype)
    }

    /// The names of its axes.
    pub fn dimension_names(&self) -> Vec<&'g str> {
        if let Some((image, _)) = self.level() {
            return image.axes.iter().map(|name| &**name).collect();
        }
        let dimensions = &self.group.grid.dimensions;
        let numbers = self.variable.dimensions.iter();
        numbers.map(|number| &*dimensions[*number].0).collect()
    }

    /// The lengths of its axes.
    pub fn shape(&self) -> &'g [u64] {
        match self.level() {
            Some((_, level)) => &level.shape,
            None => &self.variable.chunks.shape,
        }
    }

    /// The attribute of this name, if it is text.
    pub fn text(&self, name: &str) -> Option<&'g str> {
        let found = self.variable.attributes.iter().find(|(known, _)| known == name);
        match found? {
            (_, Value::Text(text)) => Some(text),
            (_, Value::Numbers(..)) => None,
        }
    }

    /// The array's `zarr.json`.
    pub fn json(&self) -> Vec<u8> {
        self.document().to_string().into_bytes()
    }

    fn document(&self) -> Json {
        let variable = self.variable;
        let (datatype, size) = (variable.datatype, variable.datatype.size());
        let codec = match size {
            1 => json!({"name": "bytes"}),
            _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
        };
        let (mut sides, mut codecs) = (&variable.chunks.sides, vec![codec]);
        if let Some((_, level)) = self.level() {
            sides = &level.sides;
            if !level.order.is_sorted() {
                codecs.insert(
                    0,
                    json!({"name": "transpose", "configuration": {"order": level.order}}),
                );
            }
        }
        let mut attributes = attributes(&variable.attributes);
        if let Some(fill) = &variable.fill_value {
            attributes.insert("_FillValue".to_owned(), encoded(datatype, fill));
        }
        // Axes have none.
        let zero = vec![0; size];
        let fill = match &*variable.fill {
            [] => &*zero,
            fill => &fill[..size],
        };
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape(),
            "data_type": self.data_type(),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": sides}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": number(datatype, fill),
            "codecs": codecs,
            "dimension_names": self.dimension_names(),
            "attributes": attributes,
        })
    }

    /// The number of chunks along each axis.
    pub fn counts(&self) -> Vec<u64> {
        match self.level() {
            Some((_, level)) => level.counts().collect(),
            None => self.variable.chunks.counts().collect(),
        }
    }

    /// The level that the array is, of which image; None if it is none.
    fn level(&self) -> Option<(&'g Image, &'g Level)> {
        let image = self.group.image.as_ref()?;
        Some((image, &image.levels[self.variable.view]))
    }

    /// The chunk of these numbers along the axes; `NotFound` if there is none. Reads decode the data.
    pub fn chunk(&self, numbers: &[u64]) -> Result<FileLayout> {
        let view = self.group.view(self.variable);
        let stored = self.level().map(|(_, level)| level.stored(numbers)).transpose()?;
        let chunk = GridChunk::open(view, self.variable, stored.as_deref().unwrap_or(numbers))?;
        FileLayout::new(view.state(), vec![Box::new(chunk)])
    }
}

/// Zarr's name for a type of numbers or BOOL.
pub(super) fn data_type(datatype: Datatype) -> &'static str {
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
        (Kind::Text | Kind::Bytes | Kind::Datetime | Kind::Time, _) => {
            unreachable!("no Zarr array has these")
        }
    }
}

fn attributes(attributes: &grid::Attributes) -> Map<String, Json> {
    let attributes = attributes.iter();
    attributes
        .filter_map(|(name, value)| {
            let value = match (name.as_str(), value) {
                ("missing_value", Value::Numbers(datatype, bytes)) => &finite(*datatype, bytes)?,
                (_, value) => value,
            };
            Some((name.clone(), attribute(value)))
        })
        .collect()
}

/// Those of the values that are missing for which JSON has numbers: as text, the others would make text of
/// all. None if nothing is left.
fn finite(datatype: Datatype, bytes: &[u8]) -> Option<Value> {
    let is_finite =
        |value: &&[u8]| Scalar::read(datatype, value).is_some_and(|value| value.float().is_finite());
    let values = bytes.chunks_exact(datatype.size());
    let left: Vec<u8> = values.filter(is_finite).flatten().copied().collect();
    (!left.is_empty()).then_some(Value::Numbers(datatype, left))
}

/// The value of an attribute as JSON: text, a number, or a list of numbers.
pub(super) fn attribute(value: &Value) -> Json {
    match value {
        Value::Text(text) => text.clone().into(),
        // Tables have characters, which Zarr lacks.
        Value::Numbers(Datatype::Char, bytes) => String::from_utf8_lossy(bytes).into(),
        Value::Numbers(datatype, bytes) => {
            let numbers = bytes.chunks_exact(datatype.size());
            let mut numbers: Vec<Json> = numbers.map(|value| number(*datatype, value)).collect();
            match numbers.len() {
                1 => numbers.swap_remove(0),
                _ => numbers.into(),
            }
        }
    }
}

/// A little-endian value as JSON.
fn number(datatype: Datatype, value: &[u8]) -> Json {
    match Scalar::read(datatype, value) {
        Some(Scalar::Unsigned(number)) if datatype == Datatype::Bool => (number != 0).into(),
        Some(Scalar::Unsigned(number)) => number.into(),
        Some(Scalar::Signed(number)) => number.into(),
        Some(float) => match float.float() {
            float if float.is_nan() => "NaN".into(),
            f64::INFINITY => "Infinity".into(),
            f64::NEG_INFINITY => "-Infinity".into(),
            float => float.into(),
        },
        // No grid has text or opaque bytes here.
        None => Json::Null,
    }
}

/// A value of `_FillValue` as xarray encodes it: floats in base 64.
fn encoded(datatype: Datatype, value: &[u8]) -> Json {
    match Scalar::read(datatype, value) {
        Some(float @ (Scalar::Float32(_) | Scalar::Float64(_))) => {
            BASE64.encode(float.float().to_le_bytes()).into()
        }
        _ => number(datatype, value),
    }
}

#[cfg(test)]
mod tests;
