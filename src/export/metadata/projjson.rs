//! PROJJSON, in which GDAL and others keep reference systems, as WKT2:2019: programs that read NetCDF and
//! Zarr take WKT alone.
//!
//! Both say the same part by part: `{"type": "GeographicCRS", "name": "a", "datum": {...}, ...}` is
//! `GEOGCRS["a",DATUM[...],...]`. Scopes, areas of use and remarks are left out.

use serde_json::Value as Json;

/// The WKT of a reference system. None if it has parts that are not known, or lacks some.
pub(super) fn wkt(system: &Json) -> Option<String> {
    if system["type"] != "CompoundCRS" {
        return single(system, false);
    }
    let components = system["components"].as_array()?.iter();
    let components: Vec<String> = components.map(|one| single(one, false)).collect::<Option<_>>()?;
    Some(part(
        "COMPOUNDCRS",
        [vec![name(system)?], components, id(system)].concat(),
    ))
}

/// A reference system that consists of no others, or the base of a derived one, which has no coordinates.
fn single(system: &Json, is_base: bool) -> Option<String> {
    // That of a base may be left out.
    let of_base = match system["coordinate_system"]["subtype"].as_str() {
        Some("ellipsoidal") => "GeographicCRS",
        _ => "GeodeticCRS",
    };
    let keyword = match system["type"].as_str().unwrap_or(of_base) {
        "GeographicCRS" | "DerivedGeographicCRS" => "GEOGCRS",
        "GeodeticCRS" | "DerivedGeodeticCRS" => "GEODCRS",
        "ProjectedCRS" => "PROJCRS",
        "VerticalCRS" | "DerivedVerticalCRS" => "VERTCRS",
        "EngineeringCRS" => "ENGCRS",
        _ => return None,
    };
    let mut inside = vec![name(system)?];
    match (system.get("base_crs"), system.get("conversion")) {
        (Some(base), Some(conversion)) => {
            let conversion = match keyword {
                "PROJCRS" => operation("CONVERSION", conversion)?,
                _ => operation("DERIVINGCONVERSION", conversion)?,
            };
            inside.extend([single(base, true)?, conversion]);
        }
        _ => inside.extend(datum(system, keyword)?),
    }
    if !is_base {
        inside.extend(coordinates(system.get("coordinate_system")?)?);
    }
    inside.extend(id(system));
    let base = if is_base { "BASE" } else { "" };
    Some(part(&format!("{base}{keyword}"), inside))
}

/// What the places of a system of this keyword are relative to.
fn datum(system: &Json, of: &str) -> Option<Vec<String>> {
    if let Some(ensemble) = system.get("datum_ensemble") {
        let mut inside = vec![name(ensemble)?];
        for member in ensemble["members"].as_array()? {
            inside.push(part("MEMBER", [vec![name(member)?], id(member)].concat()));
        }
        inside.extend(ellipsoid(ensemble)?);
        let accuracy: f64 = ensemble["accuracy"].as_str()?.parse().ok()?;
        inside.push(part("ENSEMBLEACCURACY", vec![accuracy.to_string()]));
        inside.extend(id(ensemble));
        return Some(vec![part("ENSEMBLE", inside)]);
    }
    let datum = system.get("datum")?;
    let keyword = match of {
        "VERTCRS" => "VDATUM",
        "ENGCRS" => "EDATUM",
        _ => "DATUM",
    };
    let mut out = Vec::new();
    if let Some(epoch) = datum.get("frame_reference_epoch") {
        out.push(part("DYNAMIC", vec![part("FRAMEEPOCH", vec![number(epoch)?])]));
    }
    let mut inside = vec![name(datum)?];
    inside.extend(ellipsoid(datum)?);
    if let Some(anchor) = datum.get("anchor") {
        inside.push(part("ANCHOR", vec![quoted(anchor)?]));
    }
    inside.extend(id(datum));
    out.push(part(keyword, inside));
    if let Some(meridian) = datum.get("prime_meridian") {
        let (longitude, unit) = measure(&meridian["longitude"], "degree")?;
        out.push(part(
            "PRIMEM",
            [vec![name(meridian)?, longitude, unit], id(meridian)].concat(),
        ));
    }
    Some(out)
}

/// The ellipsoid of a datum, if it has one.
fn ellipsoid(datum: &Json) -> Option<Option<String>> {
    let Some(ellipsoid) = datum.get("ellipsoid") else {
        return Some(None);
    };
    let (axis, flattening) = match ellipsoid.get("radius") {
        Some(radius) => (radius, "0".to_owned()),
        None => {
            let axis = ellipsoid.get("semi_major_axis")?;
            let flattening = match ellipsoid.get("semi_minor_axis") {
                Some(minor) => inverse_flattening(axis, minor)?,
                None => number(&ellipsoid["inverse_flattening"])?,
            };
            (axis, flattening)
        }
    };
    let (axis, unit) = measure(axis, "metre")?;
    let inside = [vec![name(ellipsoid)?, axis, flattening, unit], id(ellipsoid)].concat();
    Some(Some(part("ELLIPSOID", inside)))
}

/// The inverse flattening of an ellipsoid of these axes; 0 for a sphere.
fn inverse_flattening(major: &Json, minor: &Json) -> Option<String> {
    let of = |axis: &Json| axis.get("value").unwrap_or(axis).as_f64();
    let (major, minor) = (of(major)?, of(minor)?);
    Some(
        if major == minor {
            0.0
        } else {
            major / (major - minor)
        }
        .to_string(),
    )
}

/// A coordinate system and its axes.
fn coordinates(system: &Json) -> Option<Vec<String>> {
    let axes = system["axis"].as_array()?;
    let kind = word(&system["subtype"])?;
    let mut out = vec![part("CS", vec![kind, axes.len().to_string()])];
    for (place, axis) in axes.iter().enumerate() {
        let (long, short) = (axis["name"].as_str()?, axis["abbreviation"].as_str()?);
        let mut inside = vec![in_quotes(&format!("{long} ({short})")), word(&axis["direction"])?];
        if let Some(meridian) = axis.get("meridian") {
            let (longitude, unit) = measure(&meridian["longitude"], "degree")?;
            inside.push(part("MERIDIAN", vec![longitude, unit]));
        }
        inside.push(part("ORDER", vec![(place + 1).to_string()]));
        if let Some(of) = axis.get("unit") {
            inside.push(unit(of)?);
        }
        out.push(part("AXIS", inside));
    }
    Some(out)
}

/// A conversion or transformation.
fn operation(keyword: &str, operation: &Json) -> Option<String> {
    let method = operation.get("method")?;
    let method = part("METHOD", [vec![name(method)?], id(method)].concat());
    let mut inside = vec![name(operation)?, method];
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let (name, id) = (name(parameter)?, id(parameter));
        let value = &parameter["value"];
        inside.push(match value {
            Json::String(_) => part("PARAMETERFILE", [vec![name, quoted(value)?], id].concat()),
            _ => {
                let unit = parameter.get("unit").map(unit);
                let unit = unit.map_or(Some(Vec::new()), |unit| Some(vec![unit?]))?;
                part("PARAMETER", [vec![name, number(value)?], unit, id].concat())
            }
        });
    }
    inside.extend(id(operation));
    Some(part(keyword, inside))
}

/// A number and its unit, which is that of this name unless it is told.
fn measure(value: &Json, of: &str) -> Option<(String, String)> {
    match value.get("value") {
        Some(inner) => Some((number(inner)?, unit(&value["unit"])?)),
        None => Some((number(value)?, unit(&Json::from(of))?)),
    }
}

/// A unit: one of three names, or with its size.
fn unit(unit: &Json) -> Option<String> {
    if let Some(name) = unit.as_str() {
        let (keyword, size) = match name {
            "metre" => ("LENGTHUNIT", "1"),
            "degree" => ("ANGLEUNIT", "0.0174532925199433"),
            "unity" => ("SCALEUNIT", "1"),
            _ => return None,
        };
        return Some(part(keyword, vec![in_quotes(name), size.to_owned()]));
    }
    let keyword = match unit["type"].as_str()? {
        "LinearUnit" => "LENGTHUNIT",
        "AngularUnit" => "ANGLEUNIT",
        "ScaleUnit" => "SCALEUNIT",
        "TimeUnit" => "TIMEUNIT",
        "ParametricUnit" => "PARAMETRICUNIT",
        _ => return None,
    };
    let size = number(&unit["conversion_factor"])?;
    Some(part(keyword, [vec![name(unit)?, size], id(unit)].concat()))
}

/// The identifier of a part in a registry, if it has one.
fn id(of: &Json) -> Vec<String> {
    let id = of.get("id").or_else(|| of["ids"].get(0));
    let told = id.and_then(|id| {
        let code = match &id["code"] {
            code @ Json::String(_) => quoted(code)?,
            code => number(code)?,
        };
        Some(part("ID", vec![quoted(&id["authority"])?, code]))
    });
    told.into_iter().collect()
}

fn part(keyword: &str, inside: Vec<String>) -> String {
    format!("{keyword}[{}]", inside.join(","))
}

fn name(of: &Json) -> Option<String> {
    quoted(&of["name"])
}

fn quoted(text: &Json) -> Option<String> {
    text.as_str().map(in_quotes)
}

fn in_quotes(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A word without quotes, such as a direction.
fn word(text: &Json) -> Option<String> {
    let text = text.as_str()?;
    text.bytes()
        .all(|byte| byte.is_ascii_alphabetic())
        .then(|| text.to_owned())
}

fn number(number: &Json) -> Option<String> {
    number.is_number().then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_told_part_by_part() {
        let datum = r#"{"type": "GeodeticReferenceFrame", "name": "D \"1\"", "ellipsoid": {"name": "WGS 84",
            "semi_major_axis": 6378137, "inverse_flattening": 298.257223563},
            "prime_meridian": {"name": "Paris", "longitude": {"value": 2.5969213, "unit": {"type": "AngularUnit",
            "name": "grad", "conversion_factor": 0.0157}}}}"#;
        let axis = |name: &str, short: &str, direction: &str, unit: &str| {
            format!(
                r#"{{"name": "{name}", "abbreviation": "{short}", "direction": "{direction}", "unit": "{unit}"}}"#
            )
        };
        let cartesian = [
            axis("Easting", "E", "east", "metre"),
            axis("Northing", "N", "north", "metre"),
        ];
        let projected = format!(
            r#"{{"type": "ProjectedCRS", "name": "p", "base_crs": {{"name": "b", "datum": {datum},
            "coordinate_system": {{"subtype": "ellipsoidal", "axis": []}}, "id": {{"authority": "EPSG", "code": 4807}}}},
            "conversion": {{"name": "c", "method": {{"name": "Transverse Mercator"}}, "parameters": [
            {{"name": "Scale factor", "value": 0.9996, "unit": "unity", "id": {{"authority": "EPSG", "code": "8805"}}}}]}},
            "coordinate_system": {{"subtype": "Cartesian", "axis": [{}]}}, "scope": "x"}}"#,
            cartesian.join(", ")
        );
        let up = axis("Height", "H", "up", "metre");
        let vertical = format!(
            r#"{{"type": "VerticalCRS", "name": "v", "datum": {{"type": "DynamicVerticalReferenceFrame", "name": "vd",
            "frame_reference_epoch": 2010.5}}, "coordinate_system": {{"subtype": "vertical", "axis": [{up}]}}}}"#
        );
        let compound =
            format!(r#"{{"type": "CompoundCRS", "name": "a", "components": [{projected}, {vertical}]}}"#);
        let told = wkt(&serde_json::from_str(&compound).unwrap()).unwrap();
        let wanted = concat!(
            r#"COMPOUNDCRS["a",PROJCRS["p",BASEGEOGCRS["b",DATUM["D ""1""",ELLIPSOID["WGS 84",6378137,298.257223563,"#,
            r#"LENGTHUNIT["metre",1]]],PRIMEM["Paris",2.5969213,ANGLEUNIT["grad",0.0157]],ID["EPSG",4807]],"#,
            r#"CONVERSION["c",METHOD["Transverse Mercator"],PARAMETER["Scale factor",0.9996,SCALEUNIT["unity",1],"#,
            r#"ID["EPSG","8805"]]],CS[Cartesian,2],AXIS["Easting (E)",east,ORDER[1],LENGTHUNIT["metre",1]],"#,
            r#"AXIS["Northing (N)",north,ORDER[2],LENGTHUNIT["metre",1]]],VERTCRS["v",DYNAMIC[FRAMEEPOCH[2010.5]],"#,
            r#"VDATUM["vd"],CS[vertical,1],AXIS["Height (H)",up,ORDER[1],LENGTHUNIT["metre",1]]]]"#
        );
        assert_eq!(told, wanted);
        assert!(
            crate::export::metadata::wkt::System::horizontal(&told)
                .unwrap()
                .is_projected
        );
        for (part, other) in [
            ("ProjectedCRS", "BoundCRS"),
            ("\"metre\"", "\"mile\""),
            ("east", "ea]st"),
        ] {
            let changed = compound.replace(part, other);
            assert_eq!(wkt(&serde_json::from_str(&changed).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn ensembles_and_spheres_are_told() {
        let system = r#"{"type": "GeographicCRS", "name": "g", "datum_ensemble": {"name": "e", "members": [
            {"name": "m", "id": {"authority": "EPSG", "code": 1166}}], "ellipsoid": {"name": "s", "radius": 6371000},
            "accuracy": "2.0"}, "coordinate_system": {"subtype": "ellipsoidal", "axis": []},
            "id": {"authority": "EPSG", "code": 4326}}"#;
        let told = concat!(
            r#"GEOGCRS["g",ENSEMBLE["e",MEMBER["m",ID["EPSG",1166]],ELLIPSOID["s",6371000,0,LENGTHUNIT["metre",1]],"#,
            r#"ENSEMBLEACCURACY[2]],CS[ellipsoidal,0],ID["EPSG",4326]]"#
        );
        assert_eq!(wkt(&serde_json::from_str(system).unwrap()).as_deref(), Some(told));
    }
}
