//! What GDAL keeps of a raster beside its cells: `_gdal`, an XML document of its persistent auxiliary
//! metadata (PAM).
//!
//! ```xml
//! <PAMDataset>
//!   <SRS>PROJCS["WGS 84 / UTM zone 32N", ...]</SRS>
//!   <GeoTransform> 4.0e+05, 10.0, 0.0, 5.2e+06, 0.0, -10.0</GeoTransform>
//!   <Metadata domain="IMAGE_STRUCTURE">
//!     <MDI key="X_SIZE">500</MDI>
//!     <MDI key="Y_SIZE">300</MDI>
//!   </Metadata>
//!   <PAMRasterBand band="1">
//!     <NoDataValue le_hex_equiv="000000A09999B93F">1.00000001490116E-01</NoDataValue>
//!   </PAMRasterBand>
//! </PAMDataset>
//! ```
//!
//! Where attributes were subdatasets, each has a document of its own in it, which may be the only one with
//! the size: `<Subdataset name="..."><PAMDataset>`.
//!
//! Prefixes of names are passed over, bound or not. There are no entities but the five of XML.

use super::{LeftOut, MAX_ATTRIBUTE, PAIR_MEMORY, ValueOrReason, rules};
use crate::export::grid::Value;
use crate::export::raster::VALUES;
use crate::format::datatype::Datatype;
use crate::format::scalar::Scalar;
use crate::query::{Field, Role};
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The key of metadata.
pub(super) const KEY: &[u8] = b"_gdal";

/// The most elements inside of each other.
const MAX_DEPTH: usize = 16;

/// The most elements, which take more memory than they have bytes.
const MAX_ELEMENTS: usize = 1 << 18;

/// Why metadata in domains such as `xml:XMP` and `json:ISIS3` are left out.
const OF_DOCUMENTS: &str = "metadata that are a document are not shown";

/// The most bands: TIFF counts them in 16 bits.
pub const MAX_BANDS: u64 = u16::MAX as u64;

/// The most entries of a palette: one for each value of 16 bits.
const MAX_PALETTE: usize = 1 << 16;

/// Which dimensions of an array are the axes of a raster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axes {
    /// The columns.
    pub x: usize,
    /// The rows.
    pub y: usize,
    /// The bands; None if attributes are bands.
    pub bands: Option<usize>,
}

impl Axes {
    /// The axes of an array of these fields; None if its dimensions are not those of GDAL.
    pub fn of(fields: &[Field]) -> Option<Axes> {
        // The dimensions are the first fields.
        let dimensions = fields
            .iter()
            .take_while(|field| matches!(field.role, Role::Dimension(_)));
        let named = |name: &[u8]| {
            let mut numbered = dimensions.clone().enumerate();
            let found =
                numbered.find(|(_, field)| *field.name == *name && field.datatype == Datatype::Uint64)?;
            Some(found.0)
        };
        let axes = Axes {
            x: named(b"X")?,
            y: named(b"Y")?,
            bands: named(b"BANDS"),
        };
        (dimensions.count() == 2 + usize::from(axes.bands.is_some())).then_some(axes)
    }

    /// Whether columns come right behind rows, as in an image.
    pub fn are_of_image(&self) -> bool {
        self.x == self.y + 1
    }
}

/// A tag: its domain, empty for the default one, key and text.
pub type Tag = (String, String, String);

/// A raster.
#[derive(Debug, Default, PartialEq)]
pub struct Raster {
    /// The coordinate reference system as WKT.
    pub crs: Option<String>,
    /// The year of the coordinates in it, where the ground moves.
    pub epoch: Option<f64>,
    /// Where the upper left corner of the pixel in column x and row y is: `[0] + x [1] + y [2]`,
    /// `[3] + x [4] + y [5]`.
    pub transform: Option<[f64; 6]>,
    /// Ground control points, if there is no such transform: column and row, and their place in three
    /// numbers.
    pub points: Vec<[f64; 5]>,
    /// The coordinate reference system of these places as WKT.
    pub crs_of_points: Option<String>,
    /// The number of columns and of rows. Arrays are padded to whole blocks.
    pub size: Option<(u64, u64)>,
    /// Tags of the raster.
    pub tags: Vec<Tag>,
    /// Bands by number; the first is 1.
    pub bands: BTreeMap<u64, Band>,
}

/// A band of a raster.
#[derive(Debug, Default, PartialEq)]
pub struct Band {
    /// What it shows.
    pub description: Option<String>,
    /// The value of pixels without data.
    pub nodata: Option<Scalar>,
    /// What is added to values times [`Band::scale`].
    pub offset: Option<f64>,
    /// What values are multiplied by.
    pub scale: Option<f64>,
    /// The unit of values.
    pub unit: Option<String>,
    /// What it is of a colour, by GDAL's name, such as `Gray` or `Alpha`.
    pub colour: Option<String>,
    /// Red, green and blue of each value, up to 255.
    pub palette: Vec<[u8; 3]>,
    /// Tags of the band.
    pub tags: Vec<Tag>,
}

impl Band {
    /// What it tells as attributes of variables, in order of their names.
    pub fn attributes(&self) -> [(&'static str, Option<Value>); 5] {
        let number = |number: f64| Value::Numbers(Datatype::Float64, number.to_le_bytes().to_vec());
        let nodata = |value: Scalar| match value {
            Scalar::Signed(n) => Value::Numbers(Datatype::Int64, n.to_le_bytes().to_vec()),
            Scalar::Unsigned(n) => Value::Numbers(Datatype::Uint64, n.to_le_bytes().to_vec()),
            Scalar::Float32(_) | Scalar::Float64(_) => number(value.float()),
        };
        let text = |text: &Option<String>| text.clone().map(Value::Text);
        [
            ("_FillValue", self.nodata.map(nodata)),
            ("add_offset", self.offset.map(number)),
            ("long_name", text(&self.description)),
            ("scale_factor", self.scale.map(number)),
            ("units", text(&self.unit)),
        ]
    }
}

/// The numbers of the bands that a field has, an attribute; None if it has none. `along` are those along the
/// dimension of bands, if there is one.
pub fn numbers(
    fields: &[Field],
    field: usize,
    along: Option<RangeInclusive<u64>>,
) -> Option<RangeInclusive<u64>> {
    let is_attribute = |field: &&Field| matches!(field.role, Role::Attribute(_));
    let is_only = fields.iter().filter(is_attribute).nth(1).is_none();
    let suffix = fields[field].name.strip_prefix(VALUES.as_bytes());
    let is_values = suffix.is_some_and(<[u8]>::is_empty) || is_only;
    match (along, suffix) {
        (along, _) if is_values => Some(along.unwrap_or(1..=1)),
        (None, Some([b'_', digits @ ..])) => {
            let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some(number..=number)
        }
        _ => None,
    }
}

impl Raster {
    /// Appends to `left_out` why images and variables of these fields cannot have what their bands tell.
    pub(super) fn check(&self, fields: &[Field], left_out: &mut LeftOut) {
        let Some(axes) = Axes::of(fields) else { return };
        if !axes.are_of_image() {
            let reason = "images have it only if X comes right behind Y";
            left_out.push((KEY.to_vec(), reason));
        }
        for (index, field) in fields.iter().enumerate() {
            if !matches!(field.role, Role::Attribute(_)) {
                continue;
            }
            let along = axes.bands.map(|_| 1..=MAX_BANDS);
            let Some(numbers) = numbers(fields, index, along) else {
                continue;
            };
            for (_, band) in self.bands.range(numbers) {
                if band.palette.len() > most_colours(field) {
                    leave_out(left_out, "the palette has more colours than pixels have values");
                }
                for (name, value) in band.attributes() {
                    if let Some(Err(reason)) = value.map(|value| rules::check(field, name, value)) {
                        leave_out(left_out, reason);
                    }
                }
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        let tags = |tags: &[Tag]| {
            let tags = tags.iter();
            tags.map(|(domain, key, text)| PAIR_MEMORY + domain.len() + key.len() + text.len())
                .sum::<usize>()
        };
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let bands = self.bands.values().map(|band| {
            let texts = text(&band.description) + text(&band.unit) + text(&band.colour);
            2 * PAIR_MEMORY + texts + 3 * band.palette.len() + tags(&band.tags)
        });
        let points = text(&self.crs_of_points) + size_of_val(&*self.points);
        PAIR_MEMORY + text(&self.crs) + points + tags(&self.tags) + bands.sum::<usize>()
    }

    /// What the value of `_gdal` says; None if it cannot be read. Appends what is malformed to `left_out`.
    pub(super) fn read(fields: &[Field], value: ValueOrReason, left_out: &mut LeftOut) -> Option<Raster> {
        let root = value.and_then(|value| {
            if Axes::of(fields).is_none() {
                return Err("the dimensions are not X and Y, and BANDS, of UINT64");
            }
            let text = match value {
                Value::Text(text) => text,
                // GDAL keeps bytes of tags as they are.
                Value::Numbers(Datatype::Uint8, bytes) => String::from_utf8(bytes).unwrap_or_else(|error| {
                    leave_out(left_out, "bytes that are not UTF-8 are shown as U+FFFD");
                    String::from_utf8_lossy(error.as_bytes()).into_owned()
                }),
                Value::Numbers(..) => return Err("it is not text"),
            };
            let root = parse(text.trim_end_matches('\0'))?;
            match root.name == "PAMDataset" {
                true => Ok(root),
                false => Err("it is no PAMDataset"),
            }
        });
        let root = root
            .map_err(|reason| left_out.push((KEY.to_vec(), reason)))
            .ok()?;
        let mut reader = Reading {
            raster: Raster::default(),
            left_out,
        };
        reader.raster(&root);
        let raster = &mut reader.raster;
        if !raster.points.is_empty() {
            // Images have one of both.
            let reason = if raster.transform.is_some() {
                raster.points.clear();
                "ground control points are not shown beside a GeoTransform"
            } else {
                "images alone tell ground control points"
            };
            reader.leave_out(reason);
        }
        Some(reader.raster)
    }
}

/// Tells that something of the key is not shown, once of each kind.
fn leave_out(left_out: &mut LeftOut, reason: &'static str) {
    let entry = (KEY.to_vec(), reason);
    if !left_out.contains(&entry) {
        left_out.push(entry);
    }
}

/// A raster that is being read.
struct Reading<'l> {
    raster: Raster,
    left_out: &'l mut LeftOut,
}

impl Reading<'_> {
    fn leave_out(&mut self, reason: &'static str) {
        leave_out(self.left_out, reason);
    }

    /// The number of an element, which is left out if it is none. Of one that 15 digits do not tell, GDAL
    /// writes the bytes too.
    fn number(&mut self, element: &Element) -> Option<f64> {
        let exact = element.attribute("le_hex_equiv").and_then(little_endian);
        let number = exact.or_else(|| element.text.trim().parse().ok());
        if number.is_none() {
            self.leave_out("a value of a band is not a number");
        }
        number
    }

    /// The year of the coordinates in a reference system, if it is told.
    fn epoch(&mut self, element: &Element) -> Option<f64> {
        let year = element.attribute("coordinateEpoch")?.trim().parse().ok();
        match year.filter(|year: &f64| year.is_finite()) {
            // Grids have no place for it.
            Some(_) => self.leave_out("images alone tell the year of the coordinates"),
            None => self.leave_out("the year of the coordinates is not a number"),
        }
        year.filter(|year| year.is_finite())
    }

    /// The number of an element, which is left out if it is not finite.
    fn finite(&mut self, element: &Element) -> Option<f64> {
        let number = self.number(element)?;
        if !number.is_finite() {
            self.leave_out("a scale or an offset is not finite");
        }
        Some(number).filter(|number| number.is_finite())
    }

    /// The number of an element; an integer where f64 lacks it.
    fn nodata(&mut self, element: &Element) -> Option<Scalar> {
        /// All integers up to this one are numbers of f64.
        const MAX_EXACT: u64 = 1 << 53;
        let text = element.text.trim();
        let signed = text.parse().ok().filter(|n: &i64| n.unsigned_abs() > MAX_EXACT);
        let unsigned = || text.parse().ok().filter(|n: &u64| *n > MAX_EXACT);
        let integer = signed
            .map(Scalar::Signed)
            .or_else(|| unsigned().map(Scalar::Unsigned));
        integer.or_else(|| self.number(element).map(Scalar::Float64))
    }

    /// Ground control points.
    fn points(&mut self, element: &Element) {
        let points = element.children.iter().filter(|point| point.name == "GCP");
        let points = points.map(|point| {
            let number = |name| {
                let number = point.attribute(name)?.trim().parse().ok();
                number.filter(|number: &f64| number.is_finite())
            };
            let height = if point.attribute("Z").is_some() {
                number("Z")
            } else {
                Some(0.0)
            };
            Some([
                number("Pixel")?,
                number("Line")?,
                number("X")?,
                number("Y")?,
                height?,
            ])
        });
        let system = element.attribute("Projection").map(str::trim);
        match points.collect() {
            Some(_) if system.is_some_and(|system| system.len() > MAX_ATTRIBUTE) => {
                self.leave_out("the reference system has more bytes than attributes hold");
            }
            Some(points) => {
                self.raster.points = points;
                let system = system.filter(|system| !system.is_empty());
                self.raster.crs_of_points = system.map(str::to_owned);
            }
            None => self.leave_out("a ground control point is not four or five numbers"),
        }
    }

    fn raster(&mut self, root: &Element) {
        for element in &root.children {
            match &*element.name {
                "SRS" if element.text.trim().is_empty() => {}
                "SRS" if element.text.len() > MAX_ATTRIBUTE => {
                    self.leave_out("the reference system has more bytes than attributes hold");
                }
                "SRS" => {
                    self.raster.crs = Some(element.text.trim().to_owned());
                    self.raster.epoch = self.epoch(element);
                }
                "GeoTransform" => match transform(&element.text) {
                    Some(transform) => self.raster.transform = Some(transform),
                    None => self.leave_out("GeoTransform is not six numbers that tell all pixels apart"),
                },
                "GCPList" => self.points(element),
                "Metadata" => match element.attribute("domain") {
                    Some("IMAGE_STRUCTURE") => self.structure(element),
                    _ if element.attribute("format").is_some() => self.leave_out(OF_DOCUMENTS),
                    _ => tags(element, &mut self.raster.tags),
                },
                "PAMRasterBand" => self.band(element),
                _ => {}
            }
        }
        let subdatasets = root
            .children
            .iter()
            .filter(|element| element.name == "Subdataset");
        for inner in subdatasets.flat_map(|element| &element.children) {
            if inner.name == "PAMDataset" {
                self.subdataset(inner);
            }
        }
    }

    /// Takes the place from an attribute that is a raster of its own, as far as nothing else tells it: all of
    /// an array have one.
    fn subdataset(&mut self, root: &Element) {
        let mut reader = Reading {
            raster: Raster::default(),
            left_out: self.left_out,
        };
        reader.raster(root);
        let (own, all) = (reader.raster, &mut self.raster);
        if all.crs.is_none() {
            (all.crs, all.epoch) = (own.crs, own.epoch);
        }
        all.transform = all.transform.or(own.transform);
        if all.points.is_empty() {
            (all.points, all.crs_of_points) = (own.points, own.crs_of_points);
        }
        all.size = all.size.or(own.size);
        if !own.tags.is_empty() || !own.bands.is_empty() {
            self.leave_out("tags and bands of subdatasets are not shown");
        }
    }

    /// The size of the raster.
    fn structure(&mut self, element: &Element) {
        let of = |key: &str| {
            let items = element.children.iter();
            let mut items = items.filter(|item| item.attribute("key") == Some(key));
            items
                .next()
                .map(|item| item.text.trim().parse().ok().filter(|size| *size > 0))
        };
        match (of("X_SIZE"), of("Y_SIZE")) {
            (None, None) => {}
            (Some(Some(width)), Some(Some(height))) => self.raster.size = Some((width, height)),
            _ => self.leave_out("X_SIZE and Y_SIZE are not two lengths"),
        }
    }

    fn band(&mut self, element: &Element) {
        let number = element
            .attribute("band")
            .and_then(|number| number.trim().parse().ok());
        let Some(number @ 1..=MAX_BANDS) = number else {
            return self.leave_out("a band has no number from 1 to 65,535");
        };
        let text = |element: &Element| Some(element.text.clone()).filter(|text| !text.is_empty());
        let mut band = Band::default();
        for element in &element.children {
            match &*element.name {
                "Description" => band.description = text(element),
                "UnitType" => band.unit = text(element),
                "ColorInterp" => band.colour = text(element),
                "NoDataValue" => band.nodata = self.nodata(element),
                "Offset" => band.offset = self.finite(element),
                "Scale" => band.scale = self.finite(element),
                "ColorTable" => match palette(element) {
                    Some(palette) => {
                        band.palette = palette;
                        let mut alphas = element.children.iter().filter_map(|entry| entry.attribute("c4"));
                        if alphas.any(|alpha| alpha.trim() != "255") {
                            self.leave_out(
                                "a palette has transparent colours, which images show like others",
                            );
                        }
                    }
                    None => self.leave_out("a palette has entries that are no colours"),
                },
                "CategoryNames" => self.leave_out("names of categories are not shown"),
                "GDALRasterAttributeTable" => self.leave_out("tables of what values mean are not shown"),
                "Histograms" => self.leave_out("histograms are not shown"),
                "Metadata" if element.attribute("format").is_some() => self.leave_out(OF_DOCUMENTS),
                "Metadata" if element.attribute("domain") != Some("IMAGE_STRUCTURE") => {
                    tags(element, &mut band.tags);
                }
                _ => {}
            }
        }
        self.raster.bands.insert(number, band);
    }
}

/// The number whose bytes, the least first, are 16 hexadecimal digits.
fn little_endian(digits: &str) -> Option<f64> {
    let is_whole = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bits = u64::from_str_radix(digits, 16).ok().filter(|_| is_whole)?;
    Some(f64::from_bits(bits.swap_bytes()))
}

/// Six finite numbers of which pixels have different places.
fn transform(text: &str) -> Option<[f64; 6]> {
    let numbers = text.split(',').map(|number| number.trim().parse().ok());
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    let transform: [f64; 6] = numbers.try_into().ok()?;
    let [_, a, b, _, d, e] = transform;
    let tells_apart = a * e - b * d;
    (transform.iter().all(|number| number.is_finite()) && tells_apart.is_finite() && tells_apart != 0.0)
        .then_some(transform)
}

/// Appends the tags of a `Metadata` element, but those that hold a document instead of items.
fn tags(element: &Element, out: &mut Vec<Tag>) {
    let domain = element.attribute("domain").unwrap_or("");
    // Subdatasets are paths on the machine that wrote the array.
    if domain.ends_with("SUBDATASETS") {
        return;
    }
    for item in element.children.iter().filter(|item| item.name == "MDI") {
        if let Some(key) = item.attribute("key") {
            out.push((domain.to_owned(), key.to_owned(), item.text.clone()));
        }
    }
}

/// The most colours of a palette for pixels of this type: images have palettes for UINT8 and UINT16 alone.
fn most_colours(field: &Field) -> usize {
    match field.datatype {
        Datatype::Uint8 => 1 << 8,
        Datatype::Uint16 => 1 << 16,
        _ => 0,
    }
}

/// The colours of a palette; None if an entry lacks one.
fn palette(element: &Element) -> Option<Vec<[u8; 3]>> {
    let entries = element.children.iter().filter(|entry| entry.name == "Entry");
    let colours = entries.take(MAX_PALETTE + 1).map(|entry| {
        let part = |name| entry.attribute(name)?.trim().parse().ok();
        Some([part("c1")?, part("c2")?, part("c3")?])
    });
    let colours: Vec<[u8; 3]> = colours.collect::<Option<_>>()?;
    (colours.len() <= MAX_PALETTE).then_some(colours)
}

/// An element of a document.
#[derive(Debug, Default)]
struct Element {
    /// Its name without a prefix.
    name: String,
    attributes: Vec<(String, String)>,
    /// The text directly in it.
    text: String,
    children: Vec<Element>,
}

impl Element {
    /// The attribute of this name, in any case: GDAL writes `key` and `KEY`.
    fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    fn of(start: &BytesStart<'_>) -> Result<Element, &'static str> {
        let text = |bytes: &[u8]| {
            std::str::from_utf8(bytes)
                .map(str::to_owned)
                .map_err(|_| MALFORMED)
        };
        let mut element = Element {
            name: text(start.local_name().as_ref())?,
            ..Element::default()
        };
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|_| MALFORMED)?;
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|_| MALFORMED)?;
            let name = text(attribute.key.local_name().as_ref())?;
            element.attributes.push((name, value.into_owned()));
        }
        Ok(element)
    }
}

const MALFORMED: &str = "it is not well-formed XML";

/// The root of a document. There are at most [`MAX_ELEMENTS`] elements, at most [`MAX_DEPTH`] deep, and no
/// document type.
fn parse(document: &str) -> Result<Element, &'static str> {
    let mut reader = Reader::from_str(document);
    // The outermost has no name; its only child is the root.
    let mut open = vec![Element::default()];
    let mut elements = 0;
    loop {
        let event = reader.read_event().map_err(|_| MALFORMED)?;
        let depth = open.len();
        let last = &mut open[depth - 1];
        elements += usize::from(matches!(event, Event::Start(_) | Event::Empty(_)));
        match event {
            _ if elements > MAX_ELEMENTS => return Err("it has too many elements"),
            Event::Start(_) | Event::Empty(_) if depth > MAX_DEPTH => {
                return Err("its elements are too deep");
            }
            Event::Start(start) => open.push(Element::of(&start)?),
            Event::Empty(start) => last.children.push(Element::of(&start)?),
            Event::End(_) if depth == 1 => return Err(MALFORMED),
            Event::End(_) => {
                let element = open.pop();
                open[depth - 2].children.extend(element);
            }
            Event::Text(text) => last.text += &text.decode().map_err(|_| MALFORMED)?,
            Event::CData(text) => last.text += &text.decode().map_err(|_| MALFORMED)?,
            Event::GeneralRef(reference) => match reference.resolve_char_ref().map_err(|_| MALFORMED)? {
                Some(character) => last.text.push(character),
                None => {
                    let name = reference.decode().map_err(|_| MALFORMED)?;
                    last.text += resolve_predefined_entity(&name).ok_or("it has entities")?;
                }
            },
            Event::DocType(_) => return Err("it has a document type"),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof if depth > 1 => return Err(MALFORMED),
            Event::Eof => break,
        }
    }
    let root = open.swap_remove(0);
    match <[Element; 1]>::try_from(root.children) {
        Ok([root_element]) if root.text.trim().is_empty() => Ok(root_element),
        _ => Err(MALFORMED),
    }
}

#[cfg(test)]
mod tests;
