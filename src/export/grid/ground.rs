//! Where the cells of a grid are on the ground, as the CF conventions tell it.
//!
//! Of a raster that GDAL wrote, the coordinates along `X` and `Y` are the centres of pixels, unless rows and
//! columns are rotated: then they are the numbers of pixels. The scalar `spatial_ref` has the coordinate
//! reference system and the place of the first pixel as attributes, which GDAL and rioxarray read;
//! `grid_mapping` of the variables names it. What the bands of a variable have in common are attributes of
//! the variable.

use super::naming::made_up;
use super::values::{Centres, Computed};
use super::{Attributes, Value, Variable, VariableKind};
use crate::export::metadata::gdal::Band;
use crate::export::metadata::wkt::System;
use crate::export::metadata::{Metadata, attribute};
use crate::export::raster::Placed;
use crate::format::datatype::Datatype;
use crate::query::{Field, View};
use std::collections::HashSet;

/// The name of the variable that tells the reference system, if it is free.
const REFERENCE: &str = "spatial_ref";

/// The attribute that names it.
const GRID_MAPPING: &str = "grid_mapping";

/// Where the cells of a view are on the ground.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::export) struct Ground {
    /// The reference system as WKT, or as [`Metadata::crs`] has it; empty if it is unknown.
    crs: String,
    /// The transformation of the view's pixels as text, in the order of GDAL.
    transform: Option<String>,
    /// The dimensions of columns and rows, with the centres of pixels.
    centres: Option<[(usize, Centres); 2]>,
}

impl Ground {
    /// Where a view is, which is `placed` if it is a raster; None if nothing is told of it.
    pub(in crate::export) fn of(metadata: &Metadata, placed: Option<&Placed<'_>>) -> Option<Ground> {
        let of_raster = placed.and_then(|placed| placed.raster.crs.as_ref());
        let crs = of_raster.or(metadata.crs.as_ref()).cloned().unwrap_or_default();
        let transform = placed.and_then(|placed| {
            let numbers = placed.transform?.map(|number| number.to_string());
            Some(numbers.join(" "))
        });
        if crs.is_empty() && transform.is_none() {
            return None;
        }
        let centres = placed.and_then(|placed| {
            let [x, xx, xy, y, yx, yy] = placed.raster.transform?;
            let centres = |axis, origin, step| {
                let first = placed.first(axis);
                (axis, Centres { origin, step, first })
            };
            let axes = placed.axes;
            (xy == 0.0 && yx == 0.0).then(|| [centres(axes.x, x, xx), centres(axes.y, y, yy)])
        });
        Some(Ground {
            crs,
            transform,
            centres,
        })
    }

    /// The coordinates along the axes of columns and of rows: the dimension of the view, the centres of
    /// pixels, and attributes. None if pixels are numbered.
    pub(in crate::export) fn coordinates(&self) -> Option<[(usize, Centres, Attributes); 2]> {
        let [(x, columns), (y, rows)] = self.centres?;
        let system = System::horizontal(&self.crs);
        let of = |letter: &str, length: &str, angle: &str, direction: &str| {
            let mut out = vec![text("axis", letter)];
            if let Some(system) = system {
                let (name, direction) = match (system.is_projected, system.is_derived) {
                    (true, _) => (length.to_owned(), String::new()),
                    (false, false) => (angle.to_owned(), format!("_{direction}")),
                    // As those of a rotated pole.
                    (false, true) => (format!("grid_{angle}"), String::new()),
                };
                out.push(text("standard_name", &name));
                out.extend(unit(system).map(|unit| text("units", &format!("{unit}{direction}"))));
            }
            out
        };
        Some([
            (
                x,
                columns,
                of("X", "projection_x_coordinate", "longitude", "east"),
            ),
            (y, rows, of("Y", "projection_y_coordinate", "latitude", "north")),
        ])
    }

    /// The attributes of [`REFERENCE`].
    fn reference(&self) -> Attributes {
        let mut out = Attributes::new();
        // That of arrays of any dimensions may be no WKT: JSON, a code, a definition of PROJ.
        if self.crs.trim_end().ends_with([']', ')']) {
            out.push(text("crs_wkt", &self.crs));
        }
        if !self.crs.is_empty() {
            out.push(text("spatial_ref", &self.crs));
        }
        out.extend(
            self.transform
                .iter()
                .map(|transform| text("GeoTransform", transform)),
        );
        out
    }
}

/// The name of a unit by UDUNITS; `degrees` lack their direction. None if it is not one of the usual ones.
fn unit(system: System) -> Option<&'static str> {
    const LENGTHS: [(f64, &str); 4] = [
        (1.0, "m"),
        (1000.0, "km"),
        (0.3048, "foot"),
        (1200.0 / 3937.0, "US_survey_foot"),
    ];
    const ANGLES: [(f64, &str); 1] = [(std::f64::consts::PI / 180.0, "degrees")];
    let known: &[(f64, &str)] = if system.is_projected { &LENGTHS } else { &ANGLES };
    let wanted = system.unit?;
    let mut known = known.iter();
    let found = known.find(|(size, _)| (size - wanted).abs() <= 1e-8 * size)?;
    Some(found.1)
}

fn text(name: &str, value: &str) -> (String, Value) {
    (name.to_owned(), Value::Text(value.to_owned()))
}

/// Makes the variable of an axis the coordinates of pixels. Numbers among its attributes are left out: they
/// are of the stored coordinates.
pub(in crate::export) fn place(axis: &mut Variable, centres: Centres, attributes: Attributes) {
    axis.datatype = Datatype::Float64;
    axis.computed = Some(Computed::Centres(centres));
    axis.fill_value = None;
    axis.attributes
        .retain(|(_, value)| matches!(value, Value::Text(_)));
    for (name, value) in attributes {
        add_missing(&mut axis.attributes, name, value);
    }
}

/// Adds an attribute unless there is one of this name.
fn add_missing(attributes: &mut Attributes, name: String, value: Value) {
    if attributes.iter().all(|(known, _)| *known != name) {
        attributes.push((name, value));
    }
}

/// Adds what tells the reference systems of the views, one variable for each that differs from others; the
/// variables of values name it in `grid_mapping`, unless they have this attribute.
pub(in crate::export) fn refer(
    variables: &mut Vec<Variable>,
    grounds: &[Option<Ground>],
    taken: &mut HashSet<String>,
) {
    let mut references: Vec<Variable> = Vec::new();
    let mut last: Option<(usize, String)> = None;
    for variable in variables
        .iter_mut()
        .filter(|one| one.kind == VariableKind::Values)
    {
        let has_own = variable.attributes.iter().any(|(name, _)| name == GRID_MAPPING);
        let Some(ground) = grounds[variable.view].as_ref().filter(|_| !has_own) else {
            continue;
        };
        let name = match last.take() {
            Some((view, name)) if view == variable.view => name,
            _ => {
                let attributes = ground.reference();
                let known = references.iter().find(|known| known.attributes == attributes);
                known.map(|known| known.name.clone()).unwrap_or_else(|| {
                    let name = made_up(REFERENCE, "", taken);
                    let mut made = Variable::new(name.clone(), VariableKind::Reference, 0, Datatype::Int32);
                    made.computed = Some(Computed::Zero);
                    made.attributes = attributes;
                    made.view = variable.view;
                    references.push(made);
                    name
                })
            }
        };
        let mapping = (GRID_MAPPING.to_owned(), Value::Text(name.clone()));
        variable.attributes.push(mapping);
        last = Some((variable.view, name));
    }
    variables.append(&mut references);
}

/// The attributes that the metadata has for a field, then those in which all its bands are alike: what the
/// field cannot have, such as a no-data value beyond its type, is none.
pub(super) fn with_bands(
    mut attributes: Attributes,
    placed: Option<&Placed<'_>>,
    view: &View,
    field: usize,
) -> Attributes {
    let Some(placed) = placed else {
        return attributes;
    };
    let bands = placed.bands(view, field);
    for (key, value) in of_bands(&view.fields()[field], &bands) {
        add_missing(&mut attributes, key, value);
    }
    attributes
}

/// The attributes in which all bands are alike.
fn of_bands(field: &Field, bands: &[Option<&Band>]) -> Attributes {
    let attributes = bands.iter().map(|band| Some((*band)?.attributes()));
    let Some(attributes) = attributes.collect::<Option<Vec<_>>>() else {
        return Attributes::new();
    };
    let Some((first, others)) = attributes.split_first() else {
        return Attributes::new();
    };
    let alike = first
        .iter()
        .enumerate()
        .filter(|(i, value)| others.iter().all(|other| other[*i] == **value));
    let alike = alike.filter_map(|(_, (key, value))| Some((*key, value.clone()?)));
    let fitting = alike.filter_map(|(key, value)| Some((key.to_owned(), attribute(field, key, value).ok()?)));
    fitting.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_wkt_is_not_told_as_such() {
        for (crs, is_wkt) in [
            (r#"GEOGCS["a"]"#, true),
            (" LOCAL_CS(\"a\") ", true),
            ("EPSG:4326", false),
            ("OGC:CRS84", false),
            ("+proj=utm +zone=32", false),
            (r#"{"type": "BoundCRS"}"#, false),
        ] {
            let ground = Ground {
                crs: crs.to_owned(),
                transform: None,
                centres: None,
            };
            let names: Vec<String> = ground.reference().into_iter().map(|(name, _)| name).collect();
            let wanted: &[&str] = if is_wkt {
                &["crs_wkt", "spatial_ref"]
            } else {
                &["spatial_ref"]
            };
            assert_eq!(names, wanted, "{crs}");
        }
    }
}
