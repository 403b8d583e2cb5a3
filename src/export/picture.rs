//! A picture of an attribute for people: the image of `raster/` ([`tiff`]) as a PNG of at most 512 by 512
//! pixels.
//!
//! Each pixel is the mean of a square of cells. Numbers are shown in 255 colours from dark (the lowest mean)
//! to light (the highest), cells without a value are transparent. Three samples of a colour stay a colour.
//!
//! ```text
//! 89 50 4e 47 0d 0a 1a 0a   signature, then chunks: length u32, type, bytes, CRC-32 (big-endian)
//! IHDR  width u32, height u32, 8 bits, 3 = palette or 2 = RGB, 0, 0, 0
//! PLTE  256 times red, green, blue        with a palette only
//! tRNS  255 times 255, then 0             the last colour is transparent
//! IDAT  zlib: for each row 0 (no filter) and its pixels
//! IEND
//! ```

use super::{grid, tiff};
use crate::bytes::Output;
use crate::error::{Error, Result};
use crate::format::scalar::Scalar;
use crate::fragment::column::Content;
use crate::query::{Field, View};
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::io::Write;
use std::sync::Arc;

/// The most pixels of a side.
const MAX_SIDE: u64 = 512;

/// The most cells that are read for a picture.
const MAX_CELLS: u64 = 1 << 20;

/// The most values in these cells.
const MAX_VALUES: u64 = 4 * MAX_CELLS;

/// Evenly spaced colours from the lowest value to the highest: lightness grows evenly, so that they can be
/// told apart without seeing hues.
const COLOURS: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 45, 123],
    [59, 82, 139],
    [44, 114, 142],
    [33, 145, 140],
    [40, 174, 128],
    [94, 201, 98],
    [173, 220, 48],
    [253, 231, 37],
];

/// The colour of cells without a value.
const TRANSPARENT: u8 = 255;

/// A picture that can be made.
#[derive(Clone)]
pub struct Picture {
    /// The view whose cells are pixels of the image, without padding.
    view: Arc<View>,
    field: usize,
    /// The stored value of cells without data.
    missing: Option<Vec<u8>>,
    /// Columns and rows of the image, in cells.
    pub width: u64,
    /// See [`Picture::width`].
    pub height: u64,
    /// The number of pictures of the attribute.
    pub bands: u64,
    /// Values of the image that are next to each other in one pixel; each but those of a colour is a band.
    together: u64,
    colour: bool,
    /// Cells along each side of a pixel.
    step: u64,
}

impl Picture {
    /// The picture of attribute `field` of a view. `NotFound`, with the reason, if there is none. Reads only
    /// metadata.
    pub fn of(view: &Arc<View>, field: usize) -> Result<Picture> {
        let (view, image, _) = tiff::whole(view, field..field + 1)?;
        if let Some(reason) = view.unreadable(field)? {
            return Err(Error::not_found(reason));
        }
        let attribute = &view.fields()[field];
        // Both parts of a complex number are shown.
        let parts = if image.is_complex() { 2 } else { 1 };
        let together = parts * if image.planar { 1 } else { image.samples };
        let cells = u128::from(image.width) * u128::from(image.height);
        let planes = if image.planar && image.rgb { 3 } else { 1 };
        let values = cells * u128::from(together) * planes;
        let cell = attribute.cell_size().expect("an image has cells of one size");
        let per_cell = cell / attribute.datatype.size() as u64;
        if values / u128::from(per_cell) > MAX_CELLS.into() || values > MAX_VALUES.into() {
            return Err(Error::not_found(format!(
                "a picture of {} by {} cells would take reading more than {MAX_CELLS}",
                image.width, image.height
            )));
        }
        Ok(Picture {
            field,
            missing: image.missing,
            width: image.width,
            height: image.height,
            bands: if image.rgb { 1 } else { parts * image.samples },
            together,
            colour: image.rgb,
            step: image.width.max(image.height).div_ceil(MAX_SIDE),
            view,
        })
    }

    /// Width and height of the PNG, in pixels.
    pub fn pixels(&self) -> (u64, u64) {
        (self.width.div_ceil(self.step), self.height.div_ceil(self.step))
    }

    /// The PNG of band `band`, which counts from 0. `NotFound` if there are fewer.
    pub fn png(&self, band: u64) -> Result<Vec<u8>> {
        if band >= self.bands {
            return Err(Error::not_found(format!("there are {} bands", self.bands)));
        }
        let means = self.means(band)?;
        match self.colour {
            true => self.encode(2, &colours(&means)),
            false => self.encode(3, &indexes(&means)),
        }
    }

    /// The means of the pixels, row by row, of each of three samples for a colour; NaN where no cell has a
    /// value.
    fn means(&self, band: u64) -> Result<Vec<f64>> {
        let attribute = &self.view.fields()[self.field];
        let cells = grid::stored(&self.view, self.field, self.missing.clone())?;
        // The samples of a pixel in each plane: their channels, and their places in it.
        let planes: Vec<(u64, Vec<(usize, u64)>)> = match (self.colour, self.together) {
            (true, 1) => (0..3).map(|plane| (plane, vec![(plane as usize, 0)])).collect(),
            (true, _) => vec![(0, vec![(0, 0), (1, 1), (2, 2)])],
            (false, together) => vec![(band / together, vec![(0, band % together)])],
        };
        let channels = if self.colour { 3 } else { 1 };
        let size = attribute.datatype.size() as u64;
        let row_bytes = self.width * self.together * size;
        let across = self.pixels().0 as usize;
        let mut means = Vec::new();
        let mut row = 0;
        while row < self.height {
            let end = (row + self.step).min(self.height);
            let mut sums = vec![(0.0, 0.0); across * channels];
            for (plane, samples) in &planes {
                let first = (plane * self.height + row) * row_bytes;
                let mut bytes = Output::new();
                cells.append_bytes(Content::Data, first..first + (end - row) * row_bytes, &mut bytes)?;
                for line in bytes.chunks_exact(row_bytes as usize) {
                    for (column, pixel) in line.chunks_exact((self.together * size) as usize).enumerate() {
                        let at = column / self.step as usize * channels;
                        for (channel, place) in samples {
                            let value = &pixel[(place * size) as usize..][..size as usize];
                            if let Some(number) = number(attribute, value, self.missing.as_deref()) {
                                let sum = &mut sums[at + channel];
                                *sum = (sum.0 + number, sum.1 + 1.0);
                            }
                        }
                    }
                }
            }
            means.extend(sums.into_iter().map(|(sum, count)| sum / count));
            row = end;
        }
        Ok(means)
    }

    /// A PNG of 8-bit samples: colour type 2 has three of a pixel, 3 an index.
    fn encode(&self, colour_type: u8, pixels: &[u8]) -> Result<Vec<u8>> {
        let (width, height) = self.pixels();
        let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut head = Vec::new();
        head.extend_from_slice(&(width as u32).to_be_bytes());
        head.extend_from_slice(&(height as u32).to_be_bytes());
        head.extend_from_slice(&[8, colour_type, 0, 0, 0]);
        chunk(b"IHDR", &head, &mut out);
        if colour_type == 3 {
            let colours: Vec<u8> = (0..=TRANSPARENT).flat_map(colour).collect();
            chunk(b"PLTE", &colours, &mut out);
            let mut alpha = [255; 256];
            alpha[usize::from(TRANSPARENT)] = 0;
            chunk(b"tRNS", &alpha, &mut out);
        }
        let io = |error: std::io::Error| Error::io(&error);
        let mut compressed = ZlibEncoder::new(Vec::new(), Compression::default());
        for row in pixels.chunks_exact(pixels.len() / height as usize) {
            compressed.write_all(&[0]).map_err(io)?;
            compressed.write_all(row).map_err(io)?;
        }
        chunk(b"IDAT", &compressed.finish().map_err(io)?, &mut out);
        chunk(b"IEND", &[], &mut out);
        Ok(out)
    }
}

/// A stored value as a number; None if it is not-a-number, infinite, or stands for nothing.
fn number(attribute: &Field, value: &[u8], missing: Option<&[u8]>) -> Option<f64> {
    let number = Scalar::read(attribute.datatype, value)?.float();
    (number.is_finite() && missing != Some(value)).then_some(number)
}

/// The colour of an index of the palette.
fn colour(index: u8) -> [u8; 3] {
    let steps = COLOURS.len() - 1;
    let place = f64::from(index.min(TRANSPARENT - 1)) / f64::from(TRANSPARENT - 1) * steps as f64;
    let below = (place as usize).min(steps - 1);
    let part = place - below as f64;
    let mix = |i: usize| {
        let (a, b) = (f64::from(COLOURS[below][i]), f64::from(COLOURS[below + 1][i]));
        (a + (b - a) * part).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// The lowest and the highest of some numbers that are no NaN; None if there are none.
fn extent(numbers: &[f64]) -> Option<(f64, f64)> {
    let numbers = numbers.iter().filter(|number| !number.is_nan());
    numbers.fold(None, |extent, &number| match extent {
        None => Some((number, number)),
        Some((low, high)) => Some((number.min(low), number.max(high))),
    })
}

/// The place of each number between the lowest and the highest, as an index of the palette.
fn indexes(means: &[f64]) -> Vec<u8> {
    let (low, high) = extent(means).unwrap_or((0.0, 0.0));
    // Halved, because a difference of two numbers may be infinite.
    let span = high / 2.0 - low / 2.0;
    let index = |mean: &f64| match mean.is_nan() {
        true => TRANSPARENT,
        false if span > 0.0 => ((mean / 2.0 - low / 2.0) / span * f64::from(TRANSPARENT - 1)).round() as u8,
        false => TRANSPARENT / 2,
    };
    means.iter().map(index).collect()
}

/// Samples of colours, of 8 bits or, if one is larger, of 16.
fn colours(means: &[f64]) -> Vec<u8> {
    let highest = extent(means).map_or(0.0, |(_, high)| high);
    let unit = if highest > 255.0 { 257.0 } else { 1.0 };
    // A cast of NaN is 0.
    means.iter().map(|mean| (mean / unit).round() as u8).collect()
}

/// Appends a chunk.
fn chunk(name: &[u8; 4], bytes: &[u8], out: &mut Vec<u8>) {
    let mut crc = Crc::new();
    crc.update(name);
    crc.update(bytes);
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Array;
    use crate::catalog::time::TimeRange;
    use crate::error::ErrorKind;
    use crate::export::tests::{array_of_a, write_metadata, write_raster};
    use crate::format::datatype::Datatype;
    use crate::query::testing::open;
    use flate2::read::ZlibDecoder;
    use std::io::Read;

    fn view(array: &str) -> Arc<View> {
        let array = Array::open(format!("tests/data/{array}")).unwrap();
        Arc::new(array.at(TimeRange::ALL).open().unwrap())
    }

    fn field(view: &View, name: &str) -> usize {
        view.fields()
            .iter()
            .position(|field| field.name == name.as_bytes())
            .unwrap()
    }

    /// Colour type, width, height and pixels.
    fn decoded(png: &[u8]) -> (u8, u32, u32, Vec<u8>) {
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        let (mut at, mut head, mut data, mut names) = (8, Vec::new(), Vec::new(), Vec::new());
        while at < png.len() {
            let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
            let (name, bytes) = (&png[at + 4..at + 8], &png[at + 8..at + 8 + length]);
            let mut crc = Crc::new();
            crc.update(&png[at + 4..at + 8 + length]);
            assert_eq!(crc.sum().to_be_bytes(), png[at + 8 + length..at + 12 + length]);
            match name {
                b"IHDR" => head = bytes.to_vec(),
                b"IDAT" => data.extend_from_slice(bytes),
                _ => {}
            }
            names.push(String::from_utf8_lossy(name).into_owned());
            at += 12 + length;
        }
        assert_eq!(names.last().unwrap(), "IEND");
        let side = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut rows = Vec::new();
        ZlibDecoder::new(&*data).read_to_end(&mut rows).unwrap();
        let row = 1 + side(0) as usize * if head[9] == 2 { 3 } else { 1 };
        let pixels = rows.chunks(row).flat_map(|row| row[1..].to_vec()).collect();
        (head[9], side(0), side(4), pixels)
    }

    #[test]
    fn a_pixel_is_the_place_of_its_value() {
        let view = view("sample/weather");
        let picture = Picture::of(&view, field(&view, "temperature")).unwrap();
        assert_eq!((picture.width, picture.height, picture.bands), (6, 365, 1));
        let (kind, width, height, pixels) = decoded(&picture.png(0).unwrap());
        assert_eq!((kind, width, height, pixels.len()), (3, 6, 365, 6 * 365));
        let values: Vec<f32> = view.read("temperature", 0..6 * 365).unwrap();
        let finite = || values.iter().zip(&pixels).filter(|(value, _)| !value.is_nan());
        let lowest = finite().min_by(|a, b| a.0.total_cmp(b.0)).unwrap();
        let highest = finite().max_by(|a, b| a.0.total_cmp(b.0)).unwrap();
        assert_eq!((*lowest.1, *highest.1), (0, TRANSPARENT - 1));
        let missing = values.iter().zip(&pixels).filter(|(value, _)| value.is_nan());
        assert!(missing.into_iter().all(|(_, pixel)| *pixel == TRANSPARENT));
    }

    #[test]
    fn a_picture_has_neither_padding_nor_what_is_no_data() {
        let mut storage = array_of_a(Datatype::Uint8);
        write_raster(&mut storage, [3, 2], false);
        let view = Arc::new(View::new(open(&storage).0, None, None).unwrap());
        let picture = Picture::of(&view, 2).unwrap();
        assert_eq!((picture.width, picture.height), (3, 2));
        assert_eq!(decoded(&picture.png(0).unwrap()).3, [127; 6]);
        let mut storage = array_of_a(Datatype::Uint8);
        write_metadata(
            &mut storage,
            &[("__tiledb_attr.a._FillValue", Datatype::Int64, &1i64.to_le_bytes())],
        );
        let view = Arc::new(View::new(open(&storage).0, None, None).unwrap());
        let picture = Picture::of(&view, 2).unwrap();
        assert_eq!(decoded(&picture.png(0).unwrap()).3, [TRANSPARENT; 12]);
    }

    #[test]
    fn each_value_of_a_cell_is_a_band() {
        let view = view("sample/weather");
        let wind = Picture::of(&view, field(&view, "wind")).unwrap();
        assert_eq!((wind.bands, wind.together), (2, 2));
        let bands = [0, 1].map(|band| decoded(&wind.png(band).unwrap()).3);
        assert_ne!(bands[0], bands[1]);
        assert_eq!(wind.png(2).unwrap_err().kind(), ErrorKind::NotFound);
        for absent in ["note", "day"] {
            let error = Picture::of(&view, field(&view, absent)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{absent}");
        }
    }

    #[test]
    fn the_palette_goes_from_dark_to_light() {
        let light = |[r, g, b]: [u8; 3]| 2 * u32::from(r) + 7 * u32::from(g) + u32::from(b);
        let all: Vec<u32> = (0..TRANSPARENT).map(|index| light(colour(index))).collect();
        // Channels are rounded, so that neighbours may differ by it.
        assert!(all.windows(5).all(|some| some[0] < some[4]), "{all:?}");
        assert_eq!((colour(0), colour(254)), (COLOURS[0], COLOURS[8]));
    }

    #[test]
    fn numbers_become_indexes() {
        assert_eq!(indexes(&[1.0, 3.0, 2.0, f64::NAN]), [0, 254, 127, TRANSPARENT]);
        assert_eq!(indexes(&[5.0, 5.0]), [127, 127]);
        assert_eq!(indexes(&[f64::MIN, f64::MAX]), [0, 254]);
        assert_eq!(indexes(&[f64::NAN]), [TRANSPARENT]);
        assert_eq!(colours(&[0.4, 255.0, f64::NAN]), [0, 255, 0]);
        assert_eq!(colours(&[65535.0, 257.0]), [255, 1]);
    }
}
