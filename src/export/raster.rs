//! A view of a raster that GDAL wrote, as exports show it: without the padding to whole blocks, and placed on
//! the ground.
//!
//! GDAL's dimensions are `X` and `Y`, whose coordinates are columns and rows, and `BANDS`, which counts
//! from 1. So a part of an array tells by its coordinates where it is.

use super::metadata::Metadata;
use super::metadata::gdal::{self, Axes, Band, MAX_BANDS, Raster, Tag};
use crate::error::Result;
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::range::Rect;
use crate::format::scalar::Scalar;
use crate::query::{DimRange, Field, View};
use std::sync::Arc;

/// The attribute that holds the values of GDAL's rasters, or begins the names of those that hold a band each.
pub(super) const VALUES: &str = "TDB_VALUES";

/// `view` without the pixels beyond the size that GDAL tells. The view itself if it tells none, or if nothing
/// else would be left. `read` reads files of metadata, unless the dimensions have other names; this reads the
/// footers of fragments.
pub(super) fn cropped(
    view: &Arc<View>,
    read: impl FnOnce(&View) -> Result<Arc<Metadata>>,
) -> Result<Arc<View>> {
    if Axes::of(view.fields()).is_none() {
        return Ok(view.clone());
    }
    let Some(sizes) = sizes(&*read(view)?, view) else {
        return Ok(view.clone());
    };
    let Some(mut region) = view.region()? else {
        return Ok(view.clone());
    };
    let mut padded = false;
    for (axis, size) in sizes {
        let range = &mut region[axis];
        if number(&range.lo) >= size {
            return Ok(view.clone());
        }
        if number(&range.hi) >= size {
            range.hi = (size - 1).to_le_bytes().to_vec();
            padded = true;
        }
    }
    if !padded {
        return Ok(view.clone());
    }
    let ranges = region.into_iter().map(|range| DimRange {
        lo: Some(range.lo),
        hi: Some(range.hi),
    });
    Ok(Arc::new(view.part(ranges.collect())))
}

/// Whether a view, which is [`cropped`], has all pixels of its raster, or without one all cells of its
/// domain.
pub(super) fn is_whole(metadata: &Metadata, view: &View) -> Result<bool> {
    if let Some(placed) = Placed::of(metadata, view)? {
        return Ok(placed.is_whole);
    }
    let domains = view.schema().dimensions.iter().map(|dimension| &dimension.domain);
    let region = view.region()?;
    Ok(region.is_some_and(|region| {
        region
            .iter()
            .zip(domains)
            .all(|(range, domain)| Some(range) == domain.as_ref())
    }))
}

/// The dimensions of columns and of rows, each with the number that GDAL tells; None if it tells none.
pub(super) fn sizes(metadata: &Metadata, view: &View) -> Option<[(usize, u64); 2]> {
    let (raster, axes) = of(metadata, view)?;
    let (width, height) = raster.size?;
    Some([(axes.x, width), (axes.y, height)])
}

/// The raster of a dense view, and its axes; None if there is none.
fn of<'m>(metadata: &'m Metadata, view: &View) -> Option<(&'m Raster, Axes)> {
    let raster = metadata.raster.as_ref().filter(|_| view.is_dense())?;
    Some((raster, Axes::of(view.fields())?))
}

/// Whether a field of a view has complex numbers: GDAL keeps both parts of one in a cell. Reads files of
/// metadata, unless the schema tells.
pub(super) fn is_complex(view: &View, field: &Field) -> Result<bool> {
    use Datatype::{Float32, Float64, Int16, Int32};
    let has_parts = field.cell_val_num == CellValNum::Fixed(2)
        && matches!(field.datatype, Int16 | Int32 | Float32 | Float64);
    if !has_parts || Axes::of(view.fields()).is_none() {
        return Ok(false);
    }
    Ok(Metadata::or_none(view)?.raster.is_some())
}

/// A coordinate, which is UINT64.
fn number(coordinate: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(coordinate);
    u64::from_le_bytes(bytes)
}

/// A raster in a part of its array.
pub(super) struct Placed<'m> {
    /// The raster.
    pub raster: &'m Raster,
    /// Its axes.
    pub axes: Axes,
    /// [`Raster::transform`] of the part's first pixel.
    pub transform: Option<[f64; 6]>,
    region: Rect,
    /// Whether the part has all rows and columns.
    is_whole: bool,
}

impl<'m> Placed<'m> {
    /// The raster of a view, which is [`cropped`]; None if there is none.
    pub(super) fn of(metadata: &'m Metadata, view: &View) -> Result<Option<Placed<'m>>> {
        let Some((raster, axes)) = of(metadata, view) else {
            return Ok(None);
        };
        let Some(region) = view.region()? else {
            return Ok(None);
        };
        let first = |axis: usize| number(&region[axis].lo) as f64;
        let (x, y) = (first(axes.x), first(axes.y));
        let transform = raster
            .transform
            .map(|[x0, xx, xy, y0, yx, yy]| [x0 + x * xx + y * xy, xx, xy, y0 + x * yx + y * yy, yx, yy]);
        let has_all = |axis: usize, size: Option<u64>| {
            let domain = view.schema().dimensions[axis].domain.as_ref();
            let last = size.map(|size| size - 1).or_else(|| Some(number(&domain?.hi)));
            (number(&region[axis].lo), Some(number(&region[axis].hi))) == (0, last)
        };
        let (width, height) = raster.size.unzip();
        Ok(Some(Placed {
            raster,
            axes,
            transform,
            is_whole: has_all(axes.x, width) && has_all(axes.y, height),
            region,
        }))
    }

    /// Whether the raster says that it has more columns or rows than the domain of its array.
    pub(super) fn exceeds_domain(&self, view: &View) -> bool {
        let (width, height) = self.raster.size.unzip();
        [(self.axes.x, width), (self.axes.y, height)]
            .into_iter()
            .any(|(axis, size)| {
                let domain = view.schema().dimensions[axis].domain.as_ref();
                matches!((size, domain), (Some(size), Some(domain)) if size - 1 > number(&domain.hi))
            })
    }

    /// The number of the first cell along an axis of the raster.
    pub(super) fn first(&self, axis: usize) -> u64 {
        number(&self.region[axis].lo)
    }

    /// Whether a tag is also one of the part: statistics are those of all pixels.
    pub(super) fn has(&self, (domain, key, _): &Tag) -> bool {
        self.is_whole || !(domain.is_empty() && key.starts_with("STATISTICS_"))
    }

    /// The raster's tags. Those that name a pixel count from the part's first one; where such a tag is no
    /// number, a part that begins elsewhere lacks it.
    pub(super) fn tags(&self) -> Vec<Tag> {
        let counted = |(domain, key, text): &Tag| {
            let first = match (&**domain, &**key) {
                ("RPC", "SAMP_OFF") | ("GEOLOCATION", "PIXEL_OFFSET") => self.first(self.axes.x),
                ("RPC", "LINE_OFF") | ("GEOLOCATION", "LINE_OFFSET") => self.first(self.axes.y),
                _ => 0,
            };
            let text = match first {
                0 => text.clone(),
                first => (text.trim().parse::<f64>().ok()? - first as f64).to_string(),
            };
            Some((domain.clone(), key.clone(), text))
        };
        let tags = self.raster.tags.iter().filter(|tag| self.has(tag));
        tags.filter_map(counted).collect()
    }

    /// The bands that field `field` of the view has, an attribute, in order; None for each that nothing is
    /// told of.
    pub(super) fn bands(&self, view: &View, field: usize) -> Vec<Option<&'m Band>> {
        let along = self.axes.bands.map(|axis| {
            let (range, domain) = (&self.region[axis], &view.schema().dimensions[axis].domain);
            // Others than GDAL, whose band 1 is the first of all, may count from 0.
            let before = domain.as_ref().map_or(1, |domain| number(&domain.lo));
            let of = |coordinate: &[u8]| (number(coordinate) - before).saturating_add(1);
            of(&range.lo)..=of(&range.hi)
        });
        let Some(numbers) = gdal::numbers(view.fields(), field, along) else {
            return Vec::new();
        };
        if numbers.end() - numbers.start() >= MAX_BANDS {
            return Vec::new();
        }
        numbers.map(|number| self.raster.bands.get(&number)).collect()
    }

    /// The bands of all attributes of the view.
    fn all_bands(&self, view: &View) -> Vec<Option<&'m Band>> {
        let numbered = view.fields().iter().enumerate();
        let attributes = numbered.filter(|(_, field)| field.is_attribute());
        let bands = attributes.flat_map(|(number, _)| self.bands(view, number));
        bands.collect()
    }

    /// Whether the bands of the view differ in the value of pixels without data. One that nothing is told of
    /// has none.
    pub(super) fn bands_differ_in_nodata(&self, view: &View) -> bool {
        let key = |value: Scalar| (value.integer(), value.float().to_bits());
        let bands = self.all_bands(view).into_iter();
        let nodata: Vec<_> = bands.map(|band| band?.nodata.map(key)).collect();
        nodata.windows(2).any(|two| two[0] != two[1])
    }

    /// Whether one of several bands of the view has a palette.
    pub(super) fn has_palette_among_bands(&self, view: &View) -> bool {
        let bands = self.all_bands(view);
        bands.len() > 1 && bands.iter().flatten().any(|band| !band.palette.is_empty())
    }
}
