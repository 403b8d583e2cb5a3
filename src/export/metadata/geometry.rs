//! Geometries in the cells of an array: well-known binary (WKB), as GDAL's vector driver and others write it.
//!
//! | key | what it is |
//! |---|---|
//! | `GEOMETRY_ATTRIBUTE_NAME` | GDAL: the attribute, var-sized BLOB or UINT8; else it is `wkb_geometry` |
//! | `CRS` | the coordinate reference system as PROJJSON or WKT |
//! | `LAYER_EXTENT_MINX`, `_MINY`, `_MAXX`, `_MAXY` | the extent of all geometries, FLOAT64 |
//!
//! Attributes of the type GEOM_WKB are geometries without a name, where `CRS` or `dataset_type` says that
//! there are some, or dimensions are called `_X` and `_Y`. The type alone says little: DuckDB opens no file
//! with a geometry that is none.

use super::projjson::wkt;
use super::{LeftOut, PAIR_MEMORY};
use crate::export::grid::Value;
use crate::format::datatype::Datatype;
use crate::format::scalar::Scalar;
use crate::query::{Field, Role};
use serde_json::Value as Json;
use std::collections::BTreeMap;

const NAME: &[u8] = b"GEOMETRY_ATTRIBUTE_NAME";

const CRS: &[u8] = b"CRS";

const DATASET_TYPE: &[u8] = b"dataset_type";

const EXTENT: [&[u8]; 4] = [
    b"LAYER_EXTENT_MINX",
    b"LAYER_EXTENT_MINY",
    b"LAYER_EXTENT_MAXX",
    b"LAYER_EXTENT_MAXY",
];

/// The fields that hold geometries.
#[derive(Debug, Default, PartialEq)]
pub struct Geometry {
    /// Their numbers, the one that is meant first.
    pub fields: Vec<usize>,
    /// The coordinate reference system as PROJJSON, of the first field.
    pub crs: Option<Json>,
    /// Least x, least y, greatest x and greatest y of the first field's geometries.
    pub extent: Option<[f64; 4]>,
}

impl Geometry {
    /// Estimated: a parsed PROJJSON takes some times its text, which has at most 65,535 bytes.
    pub(super) fn memory(&self) -> usize {
        PAIR_MEMORY + self.crs.as_ref().map_or(0, |_| 1 << 17) + size_of::<usize>() * self.fields.len()
    }

    /// The geometries of fields by the array's metadata. Appends what is malformed to `left_out`.
    pub(super) fn read(
        fields: &[Field],
        pairs: &BTreeMap<Vec<u8>, Value>,
        left_out: &mut LeftOut,
    ) -> Option<Geometry> {
        let mut out = Geometry::default();
        let attributes = fields.iter().enumerate();
        let attributes = attributes.filter(|(_, field)| {
            matches!(field.role, Role::Attribute(_))
                && field.cell_val_num.is_var()
                && field.enumeration.is_none()
        });
        let is = |name: &[u8]| fields.iter().any(|field| *field.name == *name);
        let is_told = pairs.contains_key(CRS)
            || pairs.get(DATASET_TYPE).and_then(text) == Some("geometry")
            || is(b"_X") && is(b"_Y");
        let types = [Datatype::Blob, Datatype::Uint8, Datatype::GeomWkb];
        let named = |name: &[u8]| attributes.clone().find(|(_, field)| *field.name == *name);
        match pairs.get(NAME) {
            Some(name) => match text(name).and_then(|name| named(name.as_bytes())) {
                Some((number, field)) if types.contains(&field.datatype) => out.fields.push(number),
                Some(_) => left_out.push((NAME.to_vec(), "the attribute's type holds no geometries")),
                None => left_out.push((NAME.to_vec(), "there is no such var-sized attribute")),
            },
            // What GDAL takes for the geometry if no key names it.
            None => out.fields.extend(
                named(b"wkb_geometry")
                    .filter(|(_, field)| is_told && types.contains(&field.datatype))
                    .map(|(number, _)| number),
            ),
        }
        let primary = out.fields.first().copied();
        for (number, field) in attributes.filter(|_| is_told) {
            if field.datatype == Datatype::GeomWkb && primary != Some(number) {
                out.fields.push(number);
            }
        }
        if out.fields.is_empty() {
            return None;
        }
        if let Some(crs) = pairs.get(CRS).and_then(text) {
            out.crs = projjson(crs);
            // WKT has no place in GeoParquet.
            if out.crs.is_none() && crs.trim_start().starts_with('{') {
                left_out.push((CRS.to_vec(), "it is no PROJJSON"));
            }
        }
        if EXTENT.iter().any(|key| pairs.contains_key(*key)) {
            out.extent = extent(pairs);
            if out.extent.is_none() {
                left_out.push((EXTENT[0].to_vec(), "the four keys of the extent hold no box"));
            }
        }
        Some(out)
    }
}

/// The text of a pair: GDAL takes UINT8 for text too.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        Value::Numbers(Datatype::Uint8, bytes) => std::str::from_utf8(bytes).ok(),
        Value::Numbers(..) => None,
    }
}

/// The reference system of a PROJJSON. Of others, readers of GeoParquet fail.
fn projjson(text: &str) -> Option<Json> {
    let crs: Json = serde_json::from_str(text).ok()?;
    is_whole(&crs).then_some(crs)
}

/// Whether a reference system has all parts that make it one.
fn is_whole(crs: &Json) -> bool {
    if crs["type"] != "BoundCRS" {
        return wkt(crs).is_some();
    }
    let both = [&crs["source_crs"], &crs["target_crs"]];
    crs["transformation"].is_object() && both.into_iter().all(is_whole)
}

fn extent(pairs: &BTreeMap<Vec<u8>, Value>) -> Option<[f64; 4]> {
    let mut out = [0.0; 4];
    for (out, key) in out.iter_mut().zip(EXTENT) {
        let Value::Numbers(datatype, bytes) = pairs.get(key)? else {
            return None;
        };
        *out = Scalar::read(*datatype, bytes)?.float();
    }
    let [min_x, min_y, max_x, max_y] = out;
    let is_box = out.iter().all(|number| number.is_finite()) && min_x <= max_x && min_y <= max_y;
    is_box.then_some(out)
}
