//! `image.ome.zarr/`: the resolutions of an image that tiledb-bioimg wrote, as OME-Zarr 0.5.
//!
//! | key of the group | what |
//! |---|---|
//! | `axes` | the axes of the source, letters of `TCZYX` in any order |
//! | `pixel_depth` | by level, the samples of a pixel, if they lie side by side along X: `{"0": 3}`; one number for all levels before tiledb-bioimg 0.2.2 |
//! | `metadata` | names, colours and bounds of channels, and the sizes of pixels, as JSON |
//! | `json_zarrwriter_kwargs` | of a source in OME-Zarr, the sizes of pixels, with the axes that they are along, as JSON |
//!
//! Each level is a dense array, whose number is its key `level`. It lacks axes of length 1, and its axes have
//! any order. The arrays of the image have all axes, in the order t, c, z, y, x. Values are not moved for it:
//! Zarr's codec `transpose` says how those of a chunk are stored.

use crate::error::Result;
use crate::export::chunks::{Chunks, Extent, check_numbers, counts};
use crate::export::grid::Value;
use crate::export::metadata::GroupMetadata;
use crate::format::scalar::Scalar;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// All axes, in the order of OME-Zarr.
const AXES: [&str; 5] = ["T", "C", "Z", "Y", "X"];

/// The place of an axis among [`AXES`], and the key that has the size of a pixel along it.
const SIZES: [(usize, &str); 4] = [
    (0, "timeIncrement"),
    (2, "physicalSizeZ"),
    (3, "physicalSizeY"),
    (4, "physicalSizeX"),
];

/// The key that has the sizes of pixels of a source in OME-Zarr.
const OF_ZARR: &str = "json_zarrwriter_kwargs";

/// The channels' place among [`AXES`].
const CHANNELS: usize = 1;

/// The attribute that has the values.
pub(super) const VALUES: &str = "intensity";

/// The most samples of a pixel that lie side by side.
const MAX_DEPTH: u64 = 1 << 16;

/// Units of lengths and times, and how they are written.
const UNITS: [(&str, &[&str]); 16] = [
    ("angstrom", &["Å", "angstrom"]),
    ("picometer", &["pm", "picometer", "picometre"]),
    ("nanometer", &["nm", "nanometer", "nanometre"]),
    // The micro sign, and the Greek letter.
    (
        "micrometer",
        &["\u{b5}m", "\u{3bc}m", "um", "micron", "micrometer", "micrometre"],
    ),
    ("millimeter", &["mm", "millimeter", "millimetre"]),
    ("centimeter", &["cm", "centimeter", "centimetre"]),
    ("meter", &["m", "meter", "metre"]),
    ("kilometer", &["km", "kilometer", "kilometre"]),
    ("inch", &["in", "inch"]),
    ("nanosecond", &["ns", "nanosecond"]),
    ("microsecond", &["\u{b5}s", "\u{3bc}s", "us", "microsecond"]),
    ("millisecond", &["ms", "millisecond"]),
    ("second", &["s", "sec", "second"]),
    ("minute", &["min", "minute"]),
    ("hour", &["h", "hour"]),
    ("day", &["d", "day"]),
];

/// Units before this one are lengths.
const FIRST_TIME: usize = 9;

/// The size of a pixel along an axis, and its unit.
type Size = (f64, Option<&'static str>);

/// What a group tells of an image.
#[derive(Debug, Default)]
pub(super) struct ImageDescription {
    /// Which of [`AXES`] the source has.
    axes: [bool; 5],
    /// The samples of a pixel that lie side by side, by level.
    depths: BTreeMap<u64, u64>,
    /// The same of levels that are not among these; None for 1.
    depth_of_others: Option<u64>,
    /// The size of a pixel along each of [`AXES`].
    sizes: [Option<Size>; 5],
    /// The channels as OME-Zarr has them.
    channels: Vec<Json>,
}

impl ImageDescription {
    /// Reads the metadata of a group. Appends what is malformed to `left_out`.
    pub(super) fn read(metadata: &GroupMetadata, left_out: &mut Vec<(String, String)>) -> ImageDescription {
        let mut described = ImageDescription::default();
        let mut leave_out = |key: &str, reason: &str| left_out.push((key.to_owned(), reason.to_owned()));
        let mut text = |key: &str| {
            let found = metadata.attributes.iter().find(|(own, _)| *own == key.as_bytes());
            match found {
                Some((_, Value::Text(text))) => Some(text.as_str()),
                Some(_) => {
                    leave_out(key, "it is not text");
                    None
                }
                None => None,
            }
        };
        let (axes, all) = (text("axes"), text("metadata"));
        let of_zarr = text(OF_ZARR);
        for letter in axes.unwrap_or_default().chars() {
            match AXES.iter().position(|axis| axis.chars().eq([letter])) {
                Some(axis) => described.axes[axis] = true,
                None => leave_out("axes", "axes other than T, C, Z, Y and X are not shown"),
            }
        }
        let depths = metadata.attributes.iter().find(|(key, _)| key == b"pixel_depth");
        if let Some((_, depths)) = depths {
            match pixel_depths(depths) {
                Some((of_levels, of_others)) => {
                    (described.depths, described.depth_of_others) = (of_levels, of_others);
                }
                None => leave_out("pixel_depth", "it is not the number of samples of each level"),
            }
        }
        let parse = |all| {
            let plain = serde_json::from_str::<Json>(all);
            plain.or_else(|_| serde_json::from_str(&without_numbers_of_python(all)))
        };
        match all.map(parse) {
            None => {}
            Some(Ok(all)) if all.is_object() => {
                let told = |key: &str| all.get(key).or_else(|| all.get(&*with_letters_of_greek(key)));
                for (place, key) in SIZES {
                    let Some(size) = told(key) else { continue };
                    let size = positive(size);
                    if size.is_none() {
                        leave_out("metadata", "the size of a pixel is not a positive number");
                    }
                    let unit = told(&format!("{key}Unit")).and_then(Json::as_str);
                    described.sizes[place] =
                        size.map(|size| (size, unit.and_then(|unit| unit_of(unit, place == 0))));
                }
                // Of slides, tiledb-bioimg names the unit of Y alone.
                if let [.., Some((y, unit)), Some((x, x_unit))] = &mut described.sizes
                    && x == y
                    && told("physicalSizeXUnit").is_none()
                {
                    *x_unit = *unit;
                }
                if let Some(channels) = all.get("channels").and_then(|channels| channels.get(VALUES)) {
                    match self::channels(channels) {
                        Some(channels) => described.channels = channels,
                        None => leave_out("metadata", "a channel lacks its colour or its bounds"),
                    }
                }
            }
            Some(_) => leave_out("metadata", "it is no object of JSON"),
        }
        match of_zarr.map(parse) {
            None => {}
            Some(Ok(all)) if all.is_object() => {
                for (place, size) in sizes_of_zarr(&all) {
                    match size {
                        Some(size) => described.sizes[place] = described.sizes[place].or(Some(size)),
                        None => leave_out(OF_ZARR, "the size of a pixel is not a positive number"),
                    }
                }
            }
            Some(_) => leave_out(OF_ZARR, "it is no object of JSON"),
        }
        described
    }

    /// The samples of a pixel of a level that lie side by side.
    pub(super) fn depth(&self, level: u64) -> u64 {
        let own = self.depths.get(&level).copied();
        own.or(self.depth_of_others).unwrap_or(1)
    }
}

fn positive(size: &Json) -> Option<f64> {
    size.as_f64().filter(|size| *size > 0.0 && size.is_finite())
}

/// The sizes of pixels of level 0 in an image that was OME-Zarr, with the place of each axis among [`AXES`];
/// None for each that is no size.
fn sizes_of_zarr(all: &Json) -> Vec<(usize, Option<Size>)> {
    let transforms = all["coordinate_transformations"][0]
        .as_array()
        .into_iter()
        .flatten();
    let scale = transforms.filter_map(|one| one["scale"].as_array()).next();
    let axes = all["axes"].as_array().into_iter().flatten();
    let axes = axes.zip(scale.into_iter().flatten()).filter_map(|(axis, size)| {
        let name = axis["name"].as_str()?.to_uppercase();
        let (place, _) = SIZES.into_iter().find(|(place, _)| AXES[*place] == name)?;
        let unit = axis["unit"].as_str().and_then(|unit| unit_of(unit, place == 0));
        Some((place, positive(size).map(|size| (size, unit))))
    });
    axes.collect()
}

/// A key as tiledb-bioimg writes it of QPTIFF: with a capital chi for X, and a capital upsilon for Y.
fn with_letters_of_greek(key: &str) -> String {
    key.replace('X', "\u{3a7}").replace('Y', "\u{3a5}")
}

/// JSON as Python writes it, in which null stands for `NaN`, `Infinity` and `-Infinity`: bounds of channels
/// of images with such pixels.
fn without_numbers_of_python(json: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(json.len()), json);
    while let Some(next) = rest.chars().next() {
        let mut numbers = ["NaN", "Infinity", "-Infinity"].into_iter();
        let number = numbers.find(|number| rest.starts_with(number));
        let taken = match next {
            '"' => end_of_string(rest),
            _ => number.map_or(next.len_utf8(), str::len),
        };
        out += number.map_or(&rest[..taken], |_| "null");
        rest = &rest[taken..];
    }
    out
}

/// The length of the string of JSON that `json` begins with, with its quotes; of all if it has no end.
fn end_of_string(json: &str) -> usize {
    let mut escaped = false;
    for (at, character) in json.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

/// The samples of a pixel that lie side by side: by level, or of all levels.
fn pixel_depths(told: &Value) -> Option<(BTreeMap<u64, u64>, Option<u64>)> {
    let valid = |depth: u64| (1..MAX_DEPTH).contains(&depth).then_some(depth);
    let text = match told {
        Value::Text(text) => text,
        Value::Numbers(datatype, bytes) => {
            let depth = u64::try_from(Scalar::read(*datatype, bytes)?.integer()?).ok();
            return Some((BTreeMap::new(), Some(valid(depth?)?)));
        }
    };
    let depths: BTreeMap<String, u64> = serde_json::from_str(text).ok()?;
    let depths = depths
        .into_iter()
        .map(|(level, depth)| Some((level.parse().ok()?, valid(depth)?)));
    Some((depths.collect::<Option<_>>()?, None))
}

/// The name of a unit of times or of lengths in OME-Zarr; None if it is unknown.
fn unit_of(text: &str, is_time: bool) -> Option<&'static str> {
    let (lengths, times) = UNITS.split_at(FIRST_TIME);
    let mut known = if is_time { times } else { lengths }.iter();
    let found = known.find(|(_, written)| written.contains(&text))?;
    Some(found.0)
}

fn channels(channels: &Json) -> Option<Vec<Json>> {
    let channels = channels.as_array()?.iter().map(|channel| {
        let part = |name| {
            channel
                .get("color")?
                .get(name)?
                .as_u64()
                .filter(|part| *part <= 255)
        };
        let (min, max) = (channel.get("min")?.as_f64()?, channel.get("max")?.as_f64()?);
        let mut shown = json!({
            "color": format!("{:02X}{:02X}{:02X}", part("red")?, part("green")?, part("blue")?),
            "active": true,
            "window": {"start": min, "end": max, "min": min, "max": max},
        });
        if let Some(name) = channel.get("name").and_then(Json::as_str) {
            shown["label"] = name.into();
        }
        Some(shown)
    });
    channels.collect()
}

/// An image in several resolutions.
#[derive(Debug)]
pub struct Image {
    /// The names of its axes.
    pub axes: Vec<String>,
    /// The attribute `ome` of the group.
    pub ome: Json,
    /// Its resolutions, the highest first.
    pub levels: Vec<Level>,
}

/// A resolution of an image.
#[derive(Debug, PartialEq)]
pub struct Level {
    /// The length of each axis.
    pub shape: Vec<u64>,
    /// The lengths of a chunk.
    pub sides: Vec<u64>,
    /// The axes in the order of the stored values: the `order` of Zarr's codec `transpose`.
    pub order: Vec<usize>,
    /// The axis of each dimension of the array.
    dimensions: Vec<usize>,
    /// How the array is divided.
    pub(super) chunks: Chunks,
}

/// An array that has a level.
pub(super) struct Stored<'s> {
    /// The number of the level.
    pub level: u64,
    /// The names of its dimensions.
    pub dimensions: &'s [String],
    /// The length of each.
    pub shape: &'s [u64],
    /// The tile extent of each.
    pub extents: &'s [Extent],
    /// Bytes of a cell.
    pub size: u64,
}

impl Stored<'_> {
    /// The place of each dimension among [`AXES`]; or why the array is no level.
    pub(super) fn axes(&self, depth: u64) -> Result<Vec<usize>, &'static str> {
        let axes = self
            .dimensions
            .iter()
            .map(|name| AXES.iter().position(|axis| axis == name));
        let axes: Option<Vec<usize>> = axes.collect();
        let axes = axes.ok_or("a dimension is none of T, C, Z, Y and X")?;
        if depth > 1 && (self.dimensions != ["Y", "X"] || !self.shape[1].is_multiple_of(depth)) {
            return Err("its dimensions are not Y and X with all samples of each pixel");
        }
        Ok(axes)
    }
}

impl Image {
    /// The image of these arrays, each of which has [`Stored::axes`], in the order of levels. Appends what
    /// does not fit together to `left_out`.
    pub(super) fn new(
        described: &ImageDescription,
        stored: &[Stored<'_>],
        left_out: &mut Vec<(String, String)>,
    ) -> Image {
        let mut sizes = described.sizes;
        // Nothing else tells how much larger the pixels of other levels are.
        if stored.first().is_some_and(|one| one.level != 0) && sizes.iter().any(Option::is_some) {
            sizes = Default::default();
            let reason = "the sizes of pixels are those of level 0, which is not shown".to_owned();
            left_out.push(("metadata".to_owned(), reason));
        }
        let mut has = described.axes;
        for one in stored {
            let depth = described.depth(one.level);
            has[CHANNELS] |= depth > 1;
            for axis in one.axes(depth).into_iter().flatten() {
                has[axis] = true;
            }
        }
        let axes: Vec<usize> = (0..AXES.len()).filter(|axis| has[*axis]).collect();
        let levels = stored
            .iter()
            .map(|one| Level::new(&axes, one, described.depth(one.level)));
        let levels: Vec<Level> = levels.collect();
        let names: Vec<String> = axes.iter().map(|axis| AXES[*axis].to_lowercase()).collect();
        let axes_json = axes.iter().zip(&names).map(|(axis, name)| {
            let of = match AXES[*axis] {
                "T" => "time",
                "C" => "channel",
                _ => "space",
            };
            let mut axis_json = json!({"name": name, "type": of});
            if let Some((_, Some(unit))) = sizes[*axis] {
                axis_json["unit"] = unit.into();
            }
            axis_json
        });
        let axes_json: Vec<Json> = axes_json.collect();
        let datasets = stored.iter().zip(&levels).map(|(one, level)| {
            let lengths = axes.iter().zip(level.shape.iter().zip(&levels[0].shape));
            let scale = lengths.map(|(axis, (length, first))| {
                let size = sizes[*axis].map_or(1.0, |(size, _)| size);
                size * (*first as f64 / *length as f64)
            });
            json!({
                "path": one.level.to_string(),
                "coordinateTransformations": [{"type": "scale", "scale": scale.collect::<Vec<f64>>()}],
            })
        });
        let datasets: Vec<Json> = datasets.collect();
        let mut ome = json!({
            "version": "0.5",
            "multiscales": [{"axes": axes_json, "datasets": datasets}],
        });
        let place = axes.iter().position(|axis| *axis == CHANNELS);
        let count = levels
            .first()
            .map_or(1, |level| place.map_or(1, |place| level.shape[place]));
        if described.channels.len() as u64 == count {
            ome["omero"] = json!({"channels": described.channels});
        } else if !described.channels.is_empty() {
            let reason = format!(
                "it tells of {} channels, of which there are {count}",
                described.channels.len()
            );
            left_out.push(("metadata".to_owned(), reason));
        }
        Image {
            axes: names,
            ome,
            levels,
        }
    }
}

impl Level {
    /// A level with these of [`AXES`], among which are all of the array.
    fn new(axes: &[usize], stored: &Stored<'_>, depth: u64) -> Level {
        // Pixels are not cut.
        let (mut pixels, mut extents) = (stored.shape.to_vec(), stored.extents.to_vec());
        if let (Some(length), Some(extent), true) = (pixels.last_mut(), extents.last_mut(), depth > 1) {
            for length in [length, &mut extent.tile, &mut extent.domain] {
                *length = length.div_ceil(depth);
            }
        }
        let mut chunks = Chunks::new(&pixels, &extents, stored.size * depth);
        let (mut shape, mut sides) = (vec![1; axes.len()], vec![1; axes.len()]);
        let mut dimensions = Vec::new();
        let place = |name: &str| axes.iter().position(|axis| AXES[*axis] == name);
        for (dimension, name) in stored.dimensions.iter().enumerate() {
            let axis = place(name).expect("the axes are those of all arrays");
            (shape[axis], sides[axis]) = (chunks.shape[dimension], chunks.sides[dimension]);
            dimensions.push(axis);
        }
        let mut together = dimensions.clone();
        if let (Some(axis), true) = (place("C"), depth > 1) {
            (shape[axis], sides[axis]) = (depth, depth);
            together.push(axis);
            for lengths in [&mut chunks.shape, &mut chunks.sides] {
                lengths[1] *= depth;
            }
        }
        let mut order: Vec<usize> = (0..axes.len()).filter(|axis| !together.contains(axis)).collect();
        order.extend(together);
        Level {
            shape,
            sides,
            order,
            dimensions,
            chunks,
        }
    }

    /// The number of chunks along each axis.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        counts(&self.shape, &self.sides)
    }

    /// The numbers of a chunk along the dimensions of the array; `NotFound` if there is no such chunk.
    pub fn stored(&self, numbers: &[u64]) -> Result<Vec<u64>> {
        check_numbers(numbers, &self.shape, &self.sides)?;
        Ok(self.dimensions.iter().map(|axis| numbers[*axis]).collect())
    }
}

/// The number of a level, from the metadata of its array.
pub(super) fn level(pairs: &[(Vec<u8>, Value)]) -> Option<u64> {
    let (_, value) = pairs.iter().find(|(key, _)| key == b"level")?;
    match value {
        Value::Numbers(datatype, bytes) => {
            let number = Scalar::read(*datatype, bytes)?.integer()?;
            u64::try_from(number).ok()
        }
        Value::Text(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::Datatype;

    #[test]
    fn levels_have_all_axes_whatever_is_stored() {
        let names = |names: &str| names.chars().map(String::from).collect::<Vec<String>>();
        let of = |dimensions: &str, shape: &[u64], extents: &[u64], depth| {
            let dimensions = names(dimensions);
            let extents = extents.iter().zip(shape);
            let extents: Vec<Extent> = extents.map(|(&tile, &domain)| Extent { tile, domain }).collect();
            let stored = Stored {
                level: 0,
                dimensions: &dimensions,
                shape,
                extents: &extents,
                size: 1,
            };
            assert!(stored.axes(depth).is_ok());
            Level::new(&[0, 1, 3, 4], &stored, depth)
        };
        let level = of("YXC", &[500, 700, 3], &[300, 300, 3], 1);
        assert_eq!(
            (level.shape.as_slice(), level.order.as_slice()),
            (&[1, 3, 500, 700][..], &[0, 2, 3, 1][..])
        );
        assert_eq!(level.sides, [1, 3, 300, 300]);
        assert_eq!(level.stored(&[0, 0, 1, 2]).unwrap(), [1, 2, 0]);
        assert!(level.stored(&[0, 1, 0, 0]).is_err() && level.stored(&[0, 0, 0]).is_err());
        let samples = of("YX", &[500, 2100], &[300, 900], 3);
        assert_eq!(
            (&samples.shape, &samples.sides, &samples.order),
            (&level.shape, &level.sides, &level.order)
        );
        assert_eq!(
            (samples.chunks.shape, samples.chunks.sides),
            (vec![500, 2100], vec![300, 900])
        );
    }

    #[test]
    fn samples_side_by_side_are_told_of_each_level_or_of_all() {
        let depths = |value: Value| {
            let metadata = GroupMetadata::of_pairs([("pixel_depth", value)].into_iter());
            let mut left_out = Vec::new();
            let described = ImageDescription::read(&metadata, &mut left_out);
            ([0, 1].map(|level| described.depth(level)), left_out.len())
        };
        let number = |number: i64| Value::Numbers(Datatype::Int64, number.to_le_bytes().to_vec());
        assert_eq!(depths(Value::Text(r#"{"0": 3}"#.to_owned())), ([3, 1], 0));
        assert_eq!(depths(number(4)), ([4, 4], 0));
        for malformed in [number(0), number(-3), Value::Text("3".to_owned())] {
            assert_eq!(depths(malformed), ([1, 1], 1));
        }
    }

    #[test]
    fn sizes_of_pixels_are_those_of_the_source_in_ome_zarr() {
        let read = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, text)| (*key, Value::Text((*text).to_owned())));
            let (metadata, mut left_out) = (GroupMetadata::of_pairs(pairs), Vec::new());
            let described = ImageDescription::read(&metadata, &mut left_out);
            (
                described.sizes,
                left_out.into_iter().map(|(key, _)| key).collect::<Vec<_>>(),
            )
        };
        let of_zarr = r#"{"axes": [{"name": "t", "unit": "second"}, {"name": "c"}, {"name": "y", "unit": "micrometer"},
            {"name": "x"}], "coordinate_transformations": [[{"type": "translation", "translation": [1, 1, 1, 1]},
            {"type": "scale", "scale": [0.5, 7, 0.25, 3]}], [{"type": "scale", "scale": [1, 1, 1, 1]}]], "omero": null}"#;
        let wanted = [
            Some((0.5, Some("second"))),
            None,
            None,
            Some((0.25, Some("micrometer"))),
            Some((3.0, None)),
        ];
        assert_eq!(read(&[(OF_ZARR, of_zarr)]), (wanted, vec![]));
        let metadata = r#"{"physicalSizeX": 4.0, "physicalSizeXUnit": "mm"}"#;
        let (sizes, _) = read(&[(OF_ZARR, of_zarr), ("metadata", metadata)]);
        assert_eq!(sizes[3..], [wanted[3], Some((4.0, Some("millimeter")))]);
        let slide = r#"{"physicalSizeX": 0.5, "physicalSizeY": 0.5, "physicalSizeYUnit": "\u00b5m"}"#;
        let (sizes, _) = read(&[("metadata", slide)]);
        assert_eq!(sizes[3..], [Some((0.5, Some("micrometer"))); 2]);
        for (text, is_told) in [
            ("[]", true),
            ("{", true),
            (r#"{"axes": null, "coordinate_transformations": [null]}"#, false),
            (&of_zarr.replace("0.25", "-1"), true),
        ] {
            assert_eq!(read(&[(OF_ZARR, text)]).1.len(), usize::from(is_told), "{text}");
        }
    }

    #[test]
    fn numbers_that_json_lacks_are_null() {
        let text = r#"{"a": NaN, "b\\\"NaN": [Infinity, -Infinity, -1], "ü": "\\", "c": "NaN"}"#;
        let want = r#"{"a": null, "b\\\"NaN": [null, null, -1], "ü": "\\", "c": "NaN"}"#;
        assert_eq!(without_numbers_of_python(text), want);
        assert_eq!(without_numbers_of_python(r#"{"a": "\"#), r#"{"a": "\"#);
    }

    #[test]
    fn units_are_those_of_lengths_or_of_times() {
        assert_eq!(
            (unit_of("µm", false), unit_of("μm", false)),
            (Some("micrometer"), Some("micrometer"))
        );
        assert_eq!(
            (unit_of("m", false), unit_of("m", true), unit_of("s", true)),
            (Some("meter"), None, Some("second"))
        );
        assert_eq!((unit_of("s", false), unit_of("pixel", false)), (None, None));
    }
}
