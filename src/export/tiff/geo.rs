//! GeoTIFF: where an image is on the ground, and what GDAL keeps in tags of its own.
//!
//! | tag | what |
//! |---|---|
//! | 320 | the palette: all reds, all greens, all blues, in 16 bits |
//! | 33550, 33922 | pixel sizes, and the place of a pixel, where north is up; 33922 alone: the places of ground control points |
//! | 34264 | otherwise the matrix from pixels to places |
//! | 34735, 34736, 34737 | the keys of the coordinate reference system, their number and their text |
//! | 42112 | GDAL's metadata, as XML in which texts are escaped twice |
//!
//! A reference system with a code of EPSG is told by this, one of places and heights by the codes of both,
//! any other by its WKT. Without one there are no keys: GDAL would make up a local system.

use super::Image;
use crate::export::metadata::gdal::{Band, Tag};
use crate::export::metadata::wkt::{System, without_usage};
use crate::export::raster::Placed;

/// The values of these tags; empty where there is no such tag.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Geo {
    pub palette: Vec<u16>,
    pub sizes: Vec<f64>,
    pub tie: Vec<f64>,
    pub matrix: Vec<f64>,
    pub keys: Vec<u16>,
    pub numbers: Vec<f64>,
    pub text: String,
    pub metadata: String,
}

/// The default domain's tag that tells whether a pixel is an area or a point.
const AREA_OR_POINT: &str = "AREA_OR_POINT";

impl Geo {
    /// The tags of an image whose samples are these bands.
    pub(super) fn new(placed: &Placed<'_>, bands: &[Option<&Band>], image: &Image) -> Geo {
        let raster = placed.raster;
        let of_points = raster
            .crs_of_points
            .as_ref()
            .filter(|_| !raster.points.is_empty());
        let crs = raster.crs.as_ref().or(of_points);
        let mut geo = Geo {
            metadata: metadata(&placed.tags(), crs.is_some(), bands, image.rgb, |tag| {
                placed.has(tag)
            }),
            ..Geo::default()
        };
        let is_point =
            |(domain, key, text): &Tag| domain.is_empty() && key == AREA_OR_POINT && text == "Point";
        let is_point = crs.is_some() && raster.tags.iter().any(is_point);
        if let Some([x, xx, xy, y, yx, yy]) = placed.transform {
            // A point is the centre of its pixel.
            let (x, y) = match is_point {
                true => (x + 0.5 * xx + 0.5 * xy, y + 0.5 * yx + 0.5 * yy),
                false => (x, y),
            };
            if xy == 0.0 && yx == 0.0 && xx > 0.0 && yy < 0.0 {
                geo.sizes = vec![xx, -yy, 0.0];
                geo.tie = vec![0.0, 0.0, 0.0, x, y, 0.0];
            } else {
                geo.matrix = vec![
                    xx, xy, 0.0, x, yx, yy, 0.0, y, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0,
                ];
            }
        }
        let first = |axis| placed.first(axis) as f64 + if is_point { 0.5 } else { 0.0 };
        let (column, row) = (first(placed.axes.x), first(placed.axes.y));
        let points = raster.points.iter();
        geo.tie
            .extend(points.flat_map(|[x, y, place @ ..]| [[x - column, y - row, 0.0], *place].concat()));
        if let Some(wkt) = crs {
            geo.numbers = raster.epoch.into_iter().collect();
            (geo.keys, geo.text) = keys(wkt, is_point, raster.epoch.is_some());
        }
        if let [Some(band)] = bands
            && image.format == 1
            && image.bits <= 16
        {
            geo.palette = palette(&band.palette, image.bits);
        }
        geo
    }
}

/// All reds, greens and blues for values of this many bits; empty if there is no palette, or a longer one.
fn palette(colours: &[[u8; 3]], bits: u64) -> Vec<u16> {
    let values = 1 << bits;
    if colours.is_empty() || colours.len() > values {
        return Vec::new();
    }
    let mut out = vec![0; 3 * values];
    for (value, colour) in colours.iter().enumerate() {
        for (part, amount) in colour.iter().enumerate() {
            out[part * values + value] = u16::from(*amount) * 257;
        }
    }
    out
}

/// The directory of keys of a reference system, and the text of those that have one. The year of coordinates
/// is the only number.
fn keys(wkt: &str, is_point: bool, has_epoch: bool) -> (Vec<u16>, String) {
    const MODEL: u16 = 1024;
    const RASTER: u16 = 1025;
    const GEOGRAPHIC: u16 = 2048;
    const PROJECTED: u16 = 3072;
    const CITATION: u16 = 3073;
    const HEIGHTS: u16 = 4096;
    /// A key of GDAL's.
    const EPOCH: u16 = 5120;
    /// The tag of numbers.
    const NUMBERS: u16 = 34736;
    /// The tag of texts.
    const TEXTS: u16 = 34737;
    const USER_DEFINED: u16 = 32767;
    let raster = [RASTER, 0, 1, if is_point { 2 } else { 1 }];
    // GDAL reads 2,400 bytes.
    let mut text = format!("ESRI PE String = {}|", without_usage(wkt));
    let heights = System::heights(wkt);
    let system = System::root(wkt).or_else(|| heights.and_then(|_| System::horizontal(wkt)));
    let code = system.and_then(|system| Some((system.is_projected, system.code?)));
    let (model, last) = match (code, u16::try_from(text.len())) {
        (Some((true, code)), _) => (1, [PROJECTED, 0, 1, code]),
        (Some((false, code)), _) => (2, [GEOGRAPHIC, 0, 1, code]),
        (None, Ok(length)) => (USER_DEFINED, [CITATION, TEXTS, length, 0]),
        // There is no room for it.
        (None, Err(_)) => return (Vec::new(), String::new()),
    };
    if model != USER_DEFINED {
        text.clear();
    }
    let heights = heights.filter(|_| model != USER_DEFINED);
    // Readers expect heights from minor revision 1 on.
    let minor = u16::from(heights.is_some());
    let keys = [[MODEL, 0, 1, model], raster, last].into_iter();
    let keys = keys.chain(heights.map(|code| [HEIGHTS, 0, 1, code]));
    let keys: Vec<_> = keys.chain(has_epoch.then_some([EPOCH, NUMBERS, 1, 0])).collect();
    let header = [1, 1, minor, keys.len() as u16];
    ([&[header], &*keys].concat().concat(), text)
}

/// GDAL's metadata: tags of the raster, then those of each sample that the image `has`; empty if there are
/// none. Of the tags that keys repeat, none. What samples are of a colour is told where it is not what they
/// are by their order in an image that is `rgb` or not.
fn metadata(
    tags: &[Tag],
    has_keys: bool,
    bands: &[Option<&Band>],
    rgb: bool,
    has: impl Fn(&Tag) -> bool,
) -> String {
    let mut items = String::new();
    let mut item = |name: &str, rest: &str, text: &str| {
        items += &format!(
            "  <Item name=\"{}\"{rest}>{}</Item>\n",
            escape(name),
            escape(&escape(text))
        );
    };
    let domain_of = |domain: &str| match domain {
        "" => String::new(),
        domain => format!(" domain=\"{}\"", escape(domain)),
    };
    for (domain, key, text) in tags {
        let is_repeated = domain.is_empty() && key == AREA_OR_POINT && (has_keys || text == "Area");
        if !is_repeated {
            item(key, &domain_of(domain), text);
        }
    }
    for (sample, band) in bands.iter().enumerate() {
        let Some(band) = band else { continue };
        let of = |role: &str| format!(" sample=\"{sample}\" role=\"{role}\"");
        for (domain, key, text) in band.tags.iter().filter(|tag| has(tag)) {
            item(key, &format!(" sample=\"{sample}\"{}", domain_of(domain)), text);
        }
        if let Some(text) = &band.description {
            item("DESCRIPTION", &of("description"), text);
        }
        let by_order = if sample == 0 { "Gray" } else { "Undefined" };
        // Palettes have a tag of their own.
        let colour = band
            .colour
            .as_deref()
            .filter(|colour| !rgb && ![by_order, "Palette"].contains(colour));
        if let Some(text) = colour {
            item("COLORINTERP", &of("colorinterp"), text);
        }
        if let Some(offset) = band.offset {
            item("OFFSET", &of("offset"), &offset.to_string());
        }
        if let Some(scale) = band.scale {
            item("SCALE", &of("scale"), &scale.to_string());
        }
        if let Some(unit) = &band.unit {
            item("UNITTYPE", &of("unittype"), unit);
        }
    }
    match items.is_empty() {
        true => items,
        false => format!("<GDALMetadata>\n{items}</GDALMetadata>\n"),
    }
}

/// A text in XML.
fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hold_the_code_or_the_text() {
        let (coded, text) = keys(r#"GEOGCS["a",AUTHORITY["EPSG","4326"]]"#, true, false);
        assert_eq!(
            coded,
            [1, 1, 0, 3, 1024, 0, 1, 2, 1025, 0, 1, 2, 2048, 0, 1, 4326]
        );
        assert_eq!(text, "");
        let compound =
            r#"COMPD_CS["a",PROJCS["b",AUTHORITY["EPSG","28992"]],VERT_CS["c",AUTHORITY["EPSG","5709"]]]"#;
        let (coded, text) = keys(compound, false, true);
        assert_eq!(coded[..4], [1, 1, 1, 5]);
        assert_eq!(
            coded[12..],
            [3072, 0, 1, 28992, 4096, 0, 1, 5709, 5120, 34736, 1, 0]
        );
        assert_eq!(text, "");
        let (coded, text) = keys(r#"LOCAL_CS["a"]"#, false, false);
        assert_eq!(text, r#"ESRI PE String = LOCAL_CS["a"]|"#);
        assert_eq!(
            coded,
            [
                1,
                1,
                0,
                3,
                1024,
                0,
                1,
                32767,
                1025,
                0,
                1,
                1,
                3073,
                34737,
                text.len() as u16,
                0
            ]
        );
        assert_eq!(
            keys(&"x".repeat(70_000), false, true),
            (Vec::new(), String::new())
        );
    }

    #[test]
    fn texts_are_escaped_twice_and_names_once() {
        let band = Band {
            unit: Some("m".to_owned()),
            scale: Some(0.5),
            ..Band::default()
        };
        let tag = |domain: &str, key: &str, text: &str| (domain.to_owned(), key.to_owned(), text.to_owned());
        let tags = [
            tag("", "a<b", "1 & 2"),
            tag("", AREA_OR_POINT, "Point"),
            tag("RPC", "k", ""),
        ];
        let wanted = "<GDALMetadata>\n  <Item name=\"a&lt;b\">1 &amp;amp; 2</Item>\n  \
                      <Item name=\"k\" domain=\"RPC\"></Item>\n  \
                      <Item name=\"SCALE\" sample=\"1\" role=\"scale\">0.5</Item>\n  \
                      <Item name=\"UNITTYPE\" sample=\"1\" role=\"unittype\">m</Item>\n</GDALMetadata>\n";
        assert_eq!(
            metadata(&tags, true, &[None, Some(&band)], false, |_| true),
            wanted
        );
        assert_eq!(metadata(&tags[1..2], true, &[], false, |_| true), "");
    }

    #[test]
    fn colours_are_told_that_differ_from_the_order() {
        let of = |colours: &[&str], rgb| {
            let band = |colour: &&str| Band {
                colour: Some((*colour).to_owned()),
                ..Band::default()
            };
            let bands: Vec<Band> = colours.iter().map(band).collect();
            let bands: Vec<_> = bands.iter().map(Some).collect();
            metadata(&[], false, &bands, rgb, |_| true)
        };
        let told = of(&["Gray", "Alpha", "Undefined"], false);
        let item = "  <Item name=\"COLORINTERP\" sample=\"1\" role=\"colorinterp\">Alpha</Item>\n";
        assert_eq!(told, format!("<GDALMetadata>\n{item}</GDALMetadata>\n"));
        assert_eq!(of(&["Blue", "Green", "Red"], false).matches("<Item").count(), 3);
        assert_eq!(of(&["Red", "Green", "Blue", "Alpha"], true), "");
        assert_eq!(of(&["Palette"], false), "");
    }

    #[test]
    fn palettes_fill_all_values() {
        let colours = palette(&[[255, 0, 1], [2, 3, 4]], 8);
        assert_eq!(colours.len(), 3 * 256);
        assert_eq!(
            (colours[0], colours[1], colours[256], colours[512], colours[513]),
            (65535, 514, 0, 257, 1028)
        );
        assert!(palette(&[[0; 3]; 257], 8).is_empty() && palette(&[], 8).is_empty());
    }
}
