//! `raster/<attr>.tif`: an attribute of a dense view as an image, for GDAL, QGIS, ImageMagick, Fiji and other
//! readers of TIFF.
//!
//! Little-endian: the header and directory, then the values of the column without gaps. The two dimensions of
//! a view are rows and columns; several values per cell are samples of a pixel. With three dimensions, the
//! first one counts bands, each a plane of its own; or, where it is long, the last one counts the samples of
//! a colour. Of more dimensions, those of length 1 are left out. A file of less than 2^32 bytes is a classic
//! TIFF; a longer one is a BigTIFF, with offsets and counts of 8 bytes.
//!
//! An image of 2 rows and 3 columns of UINT16, 1 to 6, without a no-data value, has 204 bytes:
//!
//! ```text
//!   0  49 49 2a 00 08 00 00 00               II 42, directory at 8
//!   8  0b 00                                 11 entries: tag, type, count, value
//!  10  00 01 04 00 01 00 00 00 03 00 00 00   256 width = 3
//!  22  01 01 04 00 01 00 00 00 02 00 00 00   257 height = 2
//!  34  02 01 03 00 01 00 00 00 10 00 00 00   258 bits a sample = 16
//!  46  03 01 03 00 01 00 00 00 01 00 00 00   259 compression = none
//!  58  06 01 03 00 01 00 00 00 01 00 00 00   262 photometric = black is zero
//!  70  11 01 04 00 01 00 00 00 c0 00 00 00   273 strip offsets = 192
//!  82  15 01 03 00 01 00 00 00 01 00 00 00   277 samples a pixel = 1
//!  94  16 01 04 00 01 00 00 00 02 00 00 00   278 rows a strip = 2
//! 106  17 01 04 00 01 00 00 00 0c 00 00 00   279 strip byte counts = 12
//! 118  1c 01 03 00 01 00 00 00 01 00 00 00   284 planar configuration = samples of a pixel together
//! 130  53 01 03 00 01 00 00 00 01 00 00 00   339 sample format = unsigned
//! 142  00 00 00 00                           no other directory
//! 192  01 00 02 00 03 00 04 00 05 00 06 00   values
//! ```
//!
//! Complex numbers, of which GDAL keeps both parts in a cell, are one sample each (339 = 5 or 6). Dates and
//! times are the stored integers. Null cells hold the no-data value (GDAL_NODATA), which is that of
//! the metadata or, where the rule for `_FillValue` allows it, the attribute's fill. What GDAL tells of a
//! raster that it wrote is in [`geo`].
//!
//! `<attr>.tif.ovr` has the same attribute of smaller resolutions as images after each other, larger ones
//! first: all directories, of which each has the offset of the next, then all values. Their entry 254, 1,
//! says that they are of a reduced resolution. GDAL takes such a file for overviews of the image that its
//! name begins with.

mod geo;

use super::metadata::Metadata;
use super::metadata::gdal::{Axes, Band};
use super::raster::{self, Placed};
use super::{Names, encoded_names, grid, names_of};
use crate::bytes::{Bytes, Output};
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::scalar::Scalar;
use crate::fragment::column::Content;
use crate::layout::{CellBytes, FileLayout, file_len};
use crate::names;
use crate::query::{Field, Role, View};
use crate::runtime::hash;
use geo::Geo;
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

/// Approximate bytes of a strip: what a reader takes in one read.
const STRIP_SIZE: u64 = 256 << 10;

/// The most strips of a plane.
const MAX_STRIPS: u64 = 1 << 16;

/// The most samples of a pixel, and so the most bands: TIFF counts them in 16 bits.
const MAX_SAMPLES: u64 = u16::MAX as u64;

/// The sample format of complex numbers less that of their parts: 5 of integers, 6 of floats.
const COMPLEX: u64 = 3;

/// More bytes than header, directories and tables of any file take.
const MAX_HEAD: u128 = 1 << 40;

/// Values begin at a multiple of this.
const ALIGNMENT: u64 = 64;

/// The name of the directory of images.
pub const DIRECTORY: &str = "raster";

/// The file names of the images that a view may have, in the order of [`fields`].
pub(super) fn image_names(view: &View) -> Vec<String> {
    const SUFFIX: &str = ".tif";
    let named = encoded_names(view).into_iter().skip(attributes(view).start);
    let named = named.chain(together(view).map(|_| raster::VALUES.to_owned()));
    let named = named.map(|name| names::within(&name, names::MAX - SUFFIX.len()) + SUFFIX);
    names::unique(named.collect(), names::MAX)
}

/// [`image_names`], to be searched. Cached for the view's state.
pub fn images(view: &View) -> Result<Arc<Names>> {
    names_of(view, "images", || image_names(view))
}

/// The fields of a view that are attributes.
fn attributes(view: &View) -> Range<usize> {
    view.schema().dimensions.len()..view.fields().len()
}

/// The fields of each image that a view may have: each attribute, then those that GDAL wrote as bands.
pub fn fields(view: &View) -> impl Iterator<Item = Range<usize>> {
    let each = attributes(view).map(|field| field..field + 1);
    // Looks at all names: only for who wants what comes last.
    each.chain(std::iter::once_with(|| together(view)).flatten())
}

/// The attributes `TDB_VALUES_1`, `TDB_VALUES_2` and so on of an array of rows and columns: GDAL writes bands
/// as attributes. None if there are none, or if `TDB_VALUES` is an attribute itself.
fn together(view: &View) -> Option<Range<usize>> {
    let attributes = attributes(view);
    let all = view.fields();
    let named = |field: usize, name: &str| *all[field].name == *name.as_bytes();
    let first_name = format!("{}_1", raster::VALUES);
    let first = attributes.clone().find(|field| named(*field, &first_name))?;
    let bands = (first..attributes.end).zip(1u64..);
    let bands = bands.take_while(|(field, band)| named(*field, &format!("{}_{band}", raster::VALUES)));
    let fields = first..first + bands.count();
    let is_free = attributes.clone().all(|field| !named(field, raster::VALUES));
    let is_raster = Axes::of(all).is_some_and(|axes| axes.bands.is_none());
    (is_free && is_raster).then_some(fields)
}

/// The fields of the image of this name, whether there is one or not; None if none is called so.
pub fn fields_of(view: &View, name: &OsStr) -> Result<Option<Range<usize>>> {
    let place = images(view)?.position(name);
    Ok(place.and_then(|place| fields(view).nth(place)))
}

/// Why these fields have no image; None if they have one. Reads only metadata.
pub fn absent(view: &View, fields: Range<usize>) -> Result<Option<String>> {
    let image = match describe(view, fields.clone(), || view.shape_at_most())? {
        // Where a third axis counts samples, a smaller shape may have it count columns.
        Ok((image, _)) if image.planar || view.schema().dimensions.len() == 2 => Ok(image),
        _ => describe(view, fields.clone(), || view.shape())?.map(|(image, _)| image),
    };
    if let Err(reason) = image {
        return Ok(Some(reason));
    }
    for field in fields {
        if let Some(reason) = view.unreadable(field)? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

/// Why no attribute has an image; None if one has.
pub fn all_absent(view: &View) -> Result<Option<String>> {
    let mut reason = Some("there are no attributes".to_owned());
    for fields in fields(view) {
        reason = absent(view, fields)?;
        if reason.is_none() {
            break;
        }
    }
    Ok(reason)
}

/// The image of these fields; reads decode the data. `NotFound` if there is none.
pub fn layout(view: &Arc<View>, fields: Range<usize>) -> Result<FileLayout> {
    let (view, image, state) = whole(view, fields.clone())?;
    let values = values(&view, fields, &image)?;
    let mut parts = head(&[image]);
    parts.extend(values);
    FileLayout::new(state, parts)
}

/// The values of these fields, which are an image.
fn values(view: &Arc<View>, fields: Range<usize>, image: &Image) -> Result<Vec<Box<dyn Bytes>>> {
    let values = fields.map(|field| -> Result<Box<dyn Bytes>> {
        Ok(Box::new(CellBytes::new(
            grid::stored(view, field, image.missing.clone())?,
            Content::Data,
        )?))
    });
    values.collect()
}

/// The view that has an image's values, the image with all that is told of it, and the state of both.
/// `NotFound` if there is none.
pub(super) fn whole(view: &Arc<View>, fields: Range<usize>) -> Result<(Arc<View>, Image, u64)> {
    let view = raster::cropped(view, Metadata::or_none)?;
    let (mut image, attribute) =
        describe(&view, fields.clone(), || view.shape())?.map_err(Error::not_found)?;
    let metadata = Metadata::or_none(&view)?;
    let placed = Placed::of(&metadata, &view)?;
    let (covered, own) = (view.is_covered()?, &metadata.fields[fields.start]);
    let missing = grid::missing(attribute, covered, own);
    let mut told = None;
    image.missing = match placed.filter(|placed| placed.axes.are_of_image()) {
        None => missing,
        Some(placed) => {
            // A cell may hold several values of its band.
            let CellValNum::Fixed(values) = attribute.cell_val_num else {
                return Err(Error::internal("an image of cells of any length"));
            };
            let bands = fields.flat_map(|field| placed.bands(&view, field));
            let values = if image.is_complex() { 1 } else { values as usize };
            let bands = bands.flat_map(|band| std::iter::repeat_n(band, values));
            let bands: Vec<Option<&Band>> = bands.collect();
            image.rgb &= are_colours(&bands);
            image.geo = Geo::new(&placed, &bands, &image);
            // A file has one value.
            let of_bands = bands.iter().flatten().filter_map(|band| band.nodata);
            let given = grid::given_fill(attribute).and_then(|fill| Scalar::read(attribute.datatype, &fill));
            let has_own = own.iter().any(|(key, _)| key == "_FillValue");
            // Those that the type has.
            let mut all = of_bands.chain(given).filter(|_| !has_own);
            told = all.find_map(|value| Some((value, value.to(attribute.datatype)?)));
            let may_lack = has_own || attribute.nullable || !covered;
            let stored = told.as_ref().map(|(_, stored)| stored.clone());
            stored.or(missing.filter(|_| may_lack))
        }
    };
    image.nodata = nodata(
        attribute.datatype,
        told.map(|(value, _)| value),
        image.missing.as_deref(),
    );
    let state = metadata.state(view.state());
    Ok((view, image, state))
}

/// Whether bands may be the samples of a colour: GDAL tells it of those that are something else than they are
/// by their order.
fn are_colours(bands: &[Option<&Band>]) -> bool {
    let mut told = bands.iter().zip(["Red", "Green", "Blue", "Alpha"]);
    told.all(|(band, by_order)| {
        let colour = band.and_then(|band| band.colour.as_deref());
        colour.is_none_or(|colour| colour == by_order)
    })
}

/// The name of the file of overviews of an image begins with that of the image and ends so.
pub const OVERVIEWS: &str = ".ovr";

/// The image called `name` in each of `smaller`, views of smaller resolutions, that can be an overview of
/// that of `view`: of the same bands, not larger, and not of a part only, which programs would take for the
/// whole. The fields of each, with its view, those of larger ones first. Reads only metadata.
pub fn overviews(
    view: &Arc<View>,
    name: &OsStr,
    smaller: &[Arc<View>],
) -> Result<Vec<(Arc<View>, Range<usize>)>> {
    let Some((_, full)) = named(view, name)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for view in smaller {
        if let Some((fields, image)) = named(view, name)?.filter(|(_, image)| image.is_overview_of(&full)) {
            found.push((image.width * image.height, (view.clone(), fields)));
        }
    }
    // Programs may make larger ones later than smaller ones.
    found.sort_by_key(|(pixels, _)| Reverse(*pixels));
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

/// The image of this name, without its no-data value and place, and its fields; None if there is none, or not
/// all of it was written.
fn named(view: &Arc<View>, name: &OsStr) -> Result<Option<(Range<usize>, Image)>> {
    let Some(fields) = fields_of(view, name)? else {
        return Ok(None);
    };
    if absent(view, fields.clone())?.is_some() {
        return Ok(None);
    }
    let view = raster::cropped(view, Metadata::or_none)?;
    if !raster::is_whole(&*Metadata::or_none(&view)?, &view)? {
        return Ok(None);
    }
    let image = describe(&view, fields.clone(), || view.shape())?;
    Ok(image.ok().map(|(image, _)| (fields, image)))
}

/// The file of the images that [`overviews`] found of the image called `name` of `full`.
pub fn overviews_layout(
    full: &Arc<View>,
    name: &OsStr,
    found: &[(Arc<View>, Range<usize>)],
) -> Result<FileLayout> {
    // GDAL tells of the full resolution alone what bands are of a colour.
    let rgb = match fields_of(full, name)? {
        Some(fields) => whole(full, fields)?.1.rgb,
        None => return Err(Error::not_found("there is no such image")),
    };
    let (mut images, mut all, mut states) = (Vec::new(), Vec::new(), Vec::new());
    for (view, fields) in found {
        let (view, mut image, state) = whole(view, fields.clone())?;
        (image.is_reduced, image.rgb) = (true, rgb);
        all.extend(values(&view, fields.clone(), &image)?);
        images.push(image);
        states.push(state);
    }
    let data = images.iter().map(|image| u128::from(image.data()));
    file_len(u64::try_from(data.sum::<u128>() + MAX_HEAD).ok())?;
    let mut parts = head(&images);
    parts.extend(all);
    FileLayout::new(hash(&states), parts)
}

/// The arrangement of an image's values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Image {
    pub(super) width: u64,
    pub(super) height: u64,
    /// Values per pixel.
    pub(super) samples: u64,
    /// Whether each sample is a plane of its own; otherwise the samples of a pixel are together.
    pub(super) planar: bool,
    /// Bits of a value, which may be complex.
    bits: u64,
    /// The kind of number, a TIFF sample format.
    format: u64,
    /// Whether three samples are a colour; a fourth is its alpha.
    pub(super) rgb: bool,
    /// The no-data value in digits.
    nodata: Option<String>,
    /// The stored value of pixels without data, null ones too; None if there is none, so that null pixels
    /// hold the attribute's fill.
    pub(super) missing: Option<Vec<u8>>,
    /// Where it is on the ground.
    geo: Geo,
    /// Whether it is a smaller resolution of another image.
    is_reduced: bool,
}

/// The image of some fields for a view of this shape, without its no-data value and place, and the first
/// field; or why there is none. If a shape has an image whose third axis counts no samples, so have all
/// smaller shapes.
pub(super) fn describe(
    view: &View,
    fields: Range<usize>,
    shape: impl FnOnce() -> Result<Vec<u64>>,
) -> Result<Result<(Image, &Field), String>> {
    let field = fields.start;
    let attribute = view.fields().get(field);
    let attribute = attribute.filter(|field| matches!(field.role, Role::Attribute(_)));
    let Some(attribute) = attribute else {
        return Err(Error::not_found(format!("there is no attribute {field}")));
    };
    let reason = |text: &str| Ok(Err(text.to_owned()));
    if !view.is_dense() {
        return reason("the array is sparse");
    }
    if view.schema().dimensions.len() < 2 {
        return reason("an image has 2 or 3 dimensions");
    }
    let CellValNum::Fixed(values) = attribute.cell_val_num else {
        return reason("the attribute is var-sized");
    };
    let format = match attribute.datatype.kind() {
        Kind::Unsigned | Kind::Bool => 1,
        Kind::Signed | Kind::Datetime | Kind::Time => 2,
        Kind::Float => 3,
        Kind::Text | Kind::Bytes => return reason("the attribute is not numeric"),
    };
    let bits = attribute.datatype.size() as u64 * 8;
    let colours = attribute.datatype.kind() == Kind::Unsigned && bits <= 16;
    let (values, bits, format) = match raster::is_complex(view, attribute)? {
        true => (1, 2 * bits, format + COMPLEX),
        false => (values, bits, format),
    };
    let alike = |other: &Field| other.form() == attribute.form() && values == 1;
    if fields.len() > 1 && !fields.clone().all(|other| alike(&view.fields()[other])) {
        return reason("the attributes differ in type");
    }
    let shape = shown_axes(shape()?);
    let bands = Axes::of(view.fields()).filter(|axes| axes.are_of_image() && values == 1);
    let bands = bands.and_then(|axes| axes.bands);
    let (planar, samples, height, width) = match *shape.as_slice() {
        [height, width] if fields.len() > 1 => (true, fields.len() as u64, height, width),
        [samples, height, width] if bands == Some(0) => (true, samples, height, width),
        [height, width, samples] if bands == Some(2) => (false, samples, height, width),
        [height, width] => (false, u64::from(values), height, width),
        [_, _, _] if values > 1 => return reason("several values per cell are shown in 2 dimensions only"),
        [height, width, samples @ 3..=4] if colours && height > 4 => (false, samples, height, width),
        [bands, height, width] => (true, bands, height, width),
        _ => return reason("an image has 2 or 3 dimensions of more than one cell"),
    };
    if shape.contains(&0) {
        return reason("there are no cells");
    }
    if samples > MAX_SAMPLES {
        return reason("an image has at most 65,535 bands");
    }
    if height > u64::from(u32::MAX) || width > u64::from(u32::MAX) {
        return reason("an image has at most 2^32 - 1 rows and columns");
    }
    let image = Image {
        width,
        height,
        samples,
        planar,
        bits,
        format,
        rgb: colours && matches!(samples, 3 | 4),
        nodata: None,
        missing: None,
        geo: Geo::default(),
        is_reduced: false,
    };
    let pixels = u128::from(height) * u128::from(width) * u128::from(samples);
    let bytes = pixels * u128::from(bits / 8);
    if bytes + MAX_HEAD > i64::MAX as u128 {
        return reason("the file would have 2^63 bytes and more");
    }
    Ok(Ok((image, attribute)))
}

/// The axes of an image of a view of this shape: without those of length 1 in front of the last two, until
/// three are left.
fn shown_axes(mut shape: Vec<u64>) -> Vec<u64> {
    let mut axis = 0;
    while shape.len() > 3 && axis + 2 < shape.len() {
        match shape[axis] {
            1 => drop(shape.remove(axis)),
            _ => axis += 1,
        }
    }
    shape
}

/// The no-data value in digits: as it was told if it is a float that the type has, else as it is stored.
fn nodata(datatype: Datatype, told: Option<Scalar>, stored: Option<&[u8]>) -> Option<String> {
    // Releases of GDAL told the least of FLOAT32 in 15 digits, which are beyond it.
    let most = match datatype {
        Datatype::Float32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    let told = told.filter(|value| datatype.kind() == Kind::Float && value.float().abs() <= most);
    // Of an exponent, GDAL's reader of integers of 64 bits takes no notice.
    let value = told.or_else(|| Scalar::read(datatype, stored?));
    value.map(digits)
}

/// A value in the notation of GDAL's no-data values.
fn digits(value: Scalar) -> String {
    match value {
        Scalar::Signed(number) => number.to_string(),
        Scalar::Unsigned(number) => number.to_string(),
        Scalar::Float32(number) => float(number.into()),
        Scalar::Float64(number) => float(number),
    }
}

/// Digits that are this number in double precision, in which readers take them.
fn float(number: f64) -> String {
    match number.is_nan() {
        true => "nan".to_owned(),
        false => format!("{number:e}"),
    }
}

/// The values of a tag.
enum TagValues {
    Short(u64),
    Long(u64),
    /// One value repeated: the value and the count.
    Shorts(u64, u64),
    Words(Vec<u16>),
    Doubles(Vec<f64>),
    Ascii(Vec<u8>),
    /// An address-sized number for each strip: its offset.
    StripOffsets,
    /// Its length.
    StripLengths,
}

impl Image {
    /// Whether values are complex numbers.
    pub(super) fn is_complex(&self) -> bool {
        self.format > COMPLEX
    }

    /// The number of planes, which follow each other.
    fn planes(&self) -> u64 {
        if self.planar { self.samples } else { 1 }
    }

    /// Bytes of a row of a plane.
    fn row(&self) -> u64 {
        let together = if self.planar { 1 } else { self.samples };
        self.width * together * (self.bits / 8)
    }

    /// Bytes of a plane.
    fn plane(&self) -> u64 {
        self.height * self.row()
    }

    /// Rows of a strip.
    fn rows(&self) -> u64 {
        let rows = (STRIP_SIZE / self.row()).max(self.height.div_ceil(MAX_STRIPS));
        rows.clamp(1, self.height)
    }

    /// Strips of a plane.
    fn strips(&self) -> u64 {
        self.height.div_ceil(self.rows())
    }

    /// The tags and their values.
    fn entries(&self) -> Vec<(u16, TagValues)> {
        // Samples beyond the colours or the grey.
        let (extra, kind) = match self.rgb {
            true => (self.samples - 3, 2),
            false => (self.samples - 1, 0),
        };
        let text =
            |text: &str| (!text.is_empty()).then(|| TagValues::Ascii([text.as_bytes(), b"\0"].concat()));
        let words = |words: &[u16]| (!words.is_empty()).then(|| TagValues::Words(words.to_vec()));
        let doubles = |numbers: &[f64]| (!numbers.is_empty()).then(|| TagValues::Doubles(numbers.to_vec()));
        let geo = &self.geo;
        let photometric = match (self.rgb, geo.palette.is_empty()) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 3,
        };
        let entries = [
            (254, self.is_reduced.then_some(TagValues::Long(1))),
            (256, Some(TagValues::Long(self.width))),
            (257, Some(TagValues::Long(self.height))),
            (258, Some(TagValues::Shorts(self.bits, self.samples))),
            (259, Some(TagValues::Short(1))),
            (262, Some(TagValues::Short(photometric))),
            (273, Some(TagValues::StripOffsets)),
            (277, Some(TagValues::Short(self.samples))),
            (278, Some(TagValues::Long(self.rows()))),
            (279, Some(TagValues::StripLengths)),
            (284, Some(TagValues::Short(if self.planar { 2 } else { 1 }))),
            (320, words(&geo.palette)),
            (338, (extra > 0).then_some(TagValues::Shorts(kind, extra))),
            (339, Some(TagValues::Shorts(self.format, self.samples))),
            (33550, doubles(&geo.sizes)),
            (33922, doubles(&geo.tie)),
            (34264, doubles(&geo.matrix)),
            (34735, words(&geo.keys)),
            (34736, doubles(&geo.numbers)),
            (34737, text(&geo.text)),
            (42112, text(&geo.metadata)),
            (42113, self.nodata.as_deref().and_then(text)),
        ];
        let entries = entries.into_iter();
        entries.filter_map(|(tag, values)| Some((tag, values?))).collect()
    }

    /// Bytes of the values.
    fn data(&self) -> u64 {
        self.planes() * self.plane()
    }

    /// Whether it can be an overview of `other`: the same bands, and no more pixels along either side.
    fn is_overview_of(&self, other: &Image) -> bool {
        let form = |image: &Image| (image.samples, image.planar, image.bits, image.format, image.rgb);
        form(self) == form(other) && self.width <= other.width && self.height <= other.height
    }

    /// The value of each strip for a tag, if the first strip begins at `data`.
    fn numbers(&self, values: TagValues, data: u64) -> Box<dyn Fn(u64) -> u64 + Send + Sync> {
        let (plane, strips) = (self.plane(), self.strips());
        let strip = self.rows() * self.row();
        let start = move |index: u64| index % strips * strip;
        match values {
            TagValues::Short(number) | TagValues::Long(number) | TagValues::Shorts(number, _) => {
                Box::new(move |_| number)
            }
            TagValues::Words(words) => Box::new(move |index| words[index as usize].into()),
            TagValues::Doubles(numbers) => Box::new(move |index| numbers[index as usize].to_bits()),
            TagValues::Ascii(text) => Box::new(move |index| text[index as usize].into()),
            TagValues::StripOffsets => Box::new(move |index| data + index / strips * plane + start(index)),
            TagValues::StripLengths => Box::new(move |index| strip.min(plane - start(index))),
        }
    }
}

/// The directory of an image in a file.
struct Directory {
    /// Its offset.
    start: u64,
    /// Tags with their values.
    entries: Vec<(u16, TagValues)>,
    /// The type, the bytes of a value, and the number of values of each entry.
    shaped: Vec<(u16, u64, u64)>,
    /// The offset of the values of each entry that do not fit into it.
    places: Vec<Option<u64>>,
    /// Where it ends, with these values.
    end: u64,
}

impl Directory {
    /// The directory at `start` of a BigTIFF or a classic TIFF.
    fn new(image: &Image, start: u64, big: bool) -> Directory {
        let entries = image.entries();
        let (address, count, long) = widths(big);
        let shaped: Vec<(u16, u64, u64)> = entries
            .iter()
            .map(|(_, values)| match values {
                TagValues::Ascii(text) => (2, 1, text.len() as u64),
                TagValues::Short(_) => (3, 2, 1),
                TagValues::Shorts(_, count) => (3, 2, *count),
                TagValues::Words(words) => (3, 2, words.len() as u64),
                TagValues::Doubles(numbers) => (12, 8, numbers.len() as u64),
                TagValues::Long(_) => (4, 4, 1),
                TagValues::StripOffsets | TagValues::StripLengths => {
                    (long, address, image.planes() * image.strips())
                }
            })
            .collect();
        let mut end = start + count + entries.len() as u64 * (4 + 2 * address) + address;
        let places: Vec<Option<u64>> = shaped
            .iter()
            .map(|(_, size, count)| {
                let bytes = size * count;
                (bytes > address).then(|| {
                    let start = end.next_multiple_of(8);
                    end = start + bytes;
                    start
                })
            })
            .collect();
        Directory {
            start,
            entries,
            shaped,
            places,
            end,
        }
    }
}

/// Bytes of an address, bytes of a count of entries, and the type of an address.
fn widths(big: bool) -> (u64, u64, u16) {
    if big { (8, 8, 16) } else { (4, 2, 4) }
}

/// Everything before the values of a file of these images, of which there is at least one: header,
/// directories, and the tables that do not fit into entries.
fn head(images: &[Image]) -> Vec<Box<dyn Bytes>> {
    let data: u64 = images.iter().map(Image::data).sum();
    let (parts, start) = head_as(images, false);
    match start + data < 1 << 32 {
        true => parts,
        false => head_as(images, true).0,
    }
}

/// [`head`] of a BigTIFF or a classic TIFF, and the offset of the values.
fn head_as(images: &[Image], big: bool) -> (Vec<Box<dyn Bytes>>, u64) {
    let (address, count, _) = widths(big);
    let header = address * 2;
    let mut end = header;
    let directories = images.iter().map(|image| {
        let directory = Directory::new(image, end.next_multiple_of(8), big);
        end = directory.end;
        directory
    });
    let directories: Vec<Directory> = directories.collect();
    let data = end.next_multiple_of(ALIGNMENT);
    // The directory after each; 0 after the last.
    let starts = directories.iter().skip(1).map(|directory| directory.start);
    let next: Vec<u64> = starts.chain([0]).collect();

    let word = |number: u64, size: u64| number.to_le_bytes().into_iter().take(size as usize);
    let mut first = Vec::new();
    match big {
        true => first.extend(b"II\x2b\0\x08\0\0\0"),
        false => first.extend(b"II\x2a\0"),
    }
    first.extend(word(header, address));
    let mut pieces: Vec<(u64, Box<dyn Bytes>)> = vec![(0, Box::new(first))];
    let mut values_start = data;
    for ((image, directory), next) in images.iter().zip(directories).zip(next) {
        let mut own = Vec::new();
        let mut tables: Vec<(u64, Box<dyn Bytes>)> = Vec::new();
        own.extend(word(directory.entries.len() as u64, count));
        let entries = directory.entries.into_iter().zip(directory.shaped);
        for (((tag, values), (kind, size, count)), place) in entries.zip(directory.places) {
            own.extend(word(tag.into(), 2));
            own.extend(word(kind.into(), 2));
            own.extend(word(count, address));
            let table = Table {
                size,
                count,
                numbers: image.numbers(values, values_start),
            };
            match place {
                Some(place) => {
                    own.extend(word(place, address));
                    tables.push((place, Box::new(table)));
                }
                None => {
                    let before = own.len();
                    (0..count).for_each(|index| own.extend(word((table.numbers)(index), size)));
                    own.resize(before + address as usize, 0);
                }
            }
        }
        own.extend(word(next, address));
        pieces.push((directory.start, Box::new(own)));
        pieces.extend(tables);
        values_start += image.data();
    }
    // Zeros in between.
    let mut parts: Vec<Box<dyn Bytes>> = Vec::new();
    let mut end = 0;
    for (place, piece) in pieces {
        parts.push(Box::new(vec![0; (place - end) as usize]));
        end = place + piece.len();
        parts.push(piece);
    }
    parts.push(Box::new(vec![0; (data - end) as usize]));
    (parts, data)
}

/// Numbers of `size` bytes each, computed by reads: many bands have very many strips.
struct Table {
    size: u64,
    count: u64,
    numbers: Box<dyn Fn(u64) -> u64 + Send + Sync>,
}

impl Bytes for Table {
    fn len(&self) -> u64 {
        self.count * self.size
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let entries = range.start / self.size..range.end.div_ceil(self.size);
        let skipped = (range.start % self.size) as usize;
        let bytes = entries.flat_map(|index| {
            (self.numbers)(index)
                .to_le_bytes()
                .into_iter()
                .take(self.size as usize)
        });
        let wanted = (range.end - range.start) as usize;
        out.write(|out| out.extend(bytes.skip(skipped).take(wanted)));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
