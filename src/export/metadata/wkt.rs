//! Well-known text (WKT) of coordinate reference systems, as far as exports have to understand it.
//!
//! A part is a keyword with further parts in brackets or parentheses, a text in quotes, or a number:
//! `GEOGCS["WGS 84", ..., UNIT["degree", 0.0174532925199433], AUTHORITY["EPSG", "4326"]]`.

/// A projected or geographic coordinate reference system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct System {
    /// Whether its coordinates are lengths; otherwise they are angles.
    pub is_projected: bool,
    /// Whether its longitudes and latitudes are those of another globe, turned or moved.
    pub is_derived: bool,
    /// Its code in the registry of EPSG. None if it has a third axis: GeoTIFF takes codes for those of two.
    pub code: Option<u16>,
    /// The unit of its coordinates, in metres or radians.
    pub unit: Option<f64>,
}

impl System {
    /// What the root of a text is; None if it is neither projected nor geographic, or malformed.
    pub fn root(wkt: &str) -> Option<System> {
        let (name, inside) = opened(wkt)?;
        let is_projected = match name {
            "PROJCS" | "PROJCRS" | "PROJECTEDCRS" => true,
            "GEOGCS" | "GEOGCRS" | "GEOGRAPHICCRS" => false,
            _ => return None,
        };
        let inner = |names: &[&str]| {
            let mut opened = inside.iter().filter_map(|part| opened(part));
            opened.find(|(name, _)| names.contains(name))
        };
        const UNITS: [&str; 3] = ["UNIT", "LENGTHUNIT", "ANGLEUNIT"];
        let unit = inner(&UNITS).or_else(|| {
            let (_, axis) = inner(&["AXIS"])?;
            let mut opened = axis.iter().filter_map(|part| opened(part));
            opened.find(|(name, _)| UNITS.contains(name))
        });
        let axes = inside
            .iter()
            .filter(|part| opened(part).is_some_and(|(name, _)| name == "AXIS"));
        Some(System {
            is_projected,
            is_derived: inner(&["DERIVINGCONVERSION"]).is_some(),
            code: code(&inside).filter(|_| axes.count() < 3),
            unit: unit.and_then(|(_, parts)| parts.get(1)?.trim().parse().ok()),
        })
    }

    /// The code of the heights that a compound system has; None if it is no compound system, or has none.
    pub fn heights(wkt: &str) -> Option<u16> {
        let ("COMPD_CS" | "COMPOUNDCRS", inside) = opened(wkt)? else {
            return None;
        };
        let mut opened = inside.iter().filter_map(|part| opened(part));
        let (_, heights) = opened.find(|(name, _)| matches!(*name, "VERT_CS" | "VERTCRS" | "VERTICALCRS"))?;
        code(&heights)
    }

    /// The system of places on the ground: the root, or the one that a compound system has for it.
    pub fn horizontal(wkt: &str) -> Option<System> {
        System::root(wkt).or_else(|| match opened(wkt)? {
            ("COMPD_CS" | "COMPOUNDCRS", inside) => inside.iter().find_map(|part| System::root(part)),
            _ => None,
        })
    }
}

/// The text of a system without what it is meant for, which may be long.
pub fn without_usage(wkt: &str) -> String {
    const USAGE: [&str; 5] = ["USAGE", "SCOPE", "AREA", "BBOX", "REMARK"];
    let Some((name, mut inside)) = opened(wkt) else {
        return wkt.to_owned();
    };
    inside.retain(|part| opened(part).is_none_or(|(name, _)| !USAGE.contains(&name)));
    format!("{name}[{}]", inside.join(","))
}

/// The code of EPSG among the parts of a system.
fn code(inside: &[&str]) -> Option<u16> {
    let mut opened = inside.iter().filter_map(|part| opened(part));
    let (_, parts) = opened.find(|(name, _)| matches!(*name, "AUTHORITY" | "ID"))?;
    let code: u16 = match *parts.as_slice() {
        [registry, code, ..] if text(registry) == "EPSG" => text(code).parse().ok()?,
        _ => return None,
    };
    // GeoTIFF has a meaning of its own for other numbers.
    (1024..32767).contains(&code).then_some(code)
}

/// A text without its quotes.
fn text(part: &str) -> &str {
    part.trim().trim_matches('"')
}

/// The keyword of a part and the parts in it; None if it is a text or a number, or malformed.
fn opened(part: &str) -> Option<(&str, Vec<&str>)> {
    let (name, rest) = part.trim().split_once(['[', '('])?;
    let inside = rest.strip_suffix([']', ')'])?;
    let (mut depth, mut is_quoted, mut start) = (0usize, false, 0);
    let mut parts = Vec::new();
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    (depth == 0 && !is_quoted).then_some((name.trim(), parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_left_out_of_the_root() {
        let (inner, usage) = (
            r#"DATUM["b (]",REMARK["c"]]"#,
            r#"USAGE[SCOPE["x"],AREA["y, z"]]"#,
        );
        let shorter = format!(r#"GEOGCRS["a",{inner},ID["EPSG",4979]]"#);
        assert_eq!(
            without_usage(&format!(r#"GEOGCRS["a",{inner},{usage},ID["EPSG",4979]]"#)),
            shorter
        );
        assert_eq!(without_usage(&shorter), shorter);
        assert_eq!(without_usage("GEOGCRS[["), "GEOGCRS[[");
    }

    #[test]
    fn code_and_unit_are_those_of_the_root() {
        let of = |is_projected, code, unit| {
            Some(System {
                is_projected,
                is_derived: false,
                code,
                unit,
            })
        };
        let geographic = r#"GEOGCS["WGS 84",DATUM["x, [y]",SPHEROID["z",1,2,AUTHORITY["EPSG","7030"]]],UNIT["degree",0.0174],AUTHORITY["EPSG","4326"]]"#;
        assert_eq!(System::root(geographic), of(false, Some(4326), Some(0.0174)));
        let projected =
            format!(r#"PROJCS["UTM", {geographic}, UNIT["metre",1], AUTHORITY["EPSG", "32632"]]"#);
        assert_eq!(System::root(&projected), of(true, Some(32632), Some(1.0)));
        let second = r#"PROJCRS["a",BASEGEOGCRS["b",ID["EPSG",4326]],CS[Cartesian,2],AXIS["(E)",east,LENGTHUNIT["foot",0.3048]],ID["EPSG",3035]]"#;
        assert_eq!(System::root(second), of(true, Some(3035), Some(0.3048)));
        for without in [
            format!(r#"PROJCS["UTM", {geographic}]"#),
            r#"PROJCS["a",AUTHORITY["ESRI","102003"]]"#.to_owned(),
            r#"PROJCS["a",AUTHORITY["EPSG","99999"]]"#.to_owned(),
        ] {
            assert_eq!(System::root(&without), of(true, None, None), "{without}");
        }
        let heights = r#"GEOGCRS["a",AXIS["lat",north],AXIS["lon",east],AXIS["h",up],ID["EPSG",4979]]"#;
        assert_eq!(System::root(heights), of(false, None, None));
        let rotated =
            r#"GEOGCRS["a",BASEGEOGCRS["b"],DERIVINGCONVERSION["c",METHOD["d"]],CS[ellipsoidal,2]]"#;
        assert!(System::root(rotated).unwrap().is_derived);
        let compound = format!(r#"COMPD_CS["a",{projected},VERT_CS["b"],AUTHORITY["EPSG","7405"]]"#);
        assert_eq!(System::root(&compound), None);
        assert_eq!(System::horizontal(&compound), System::root(&projected));
        assert_eq!(
            (System::heights(&compound), System::heights(&projected)),
            (None, None)
        );
        let compound = format!(r#"COMPOUNDCRS["a",{second},VERTCRS["b",ID["EPSG",5709]]]"#);
        assert_eq!(System::heights(&compound), Some(5709));
        for malformed in [
            r#"GEOGCS["a"#,
            "GEOGCS]]",
            "GEOGCS[[]",
            r#"GEOGCS["]"#,
            r#"LOCAL_CS["a"]"#,
            "",
        ] {
            assert_eq!(System::horizontal(malformed), None, "{malformed}");
        }
    }
}
