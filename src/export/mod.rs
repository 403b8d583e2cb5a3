//! Files that other programs open: a view as CSV and other formats, each computed from the view's columns
//! while it is read.
//!
//! A format decides whether a view has such a file, and describes it as a [`FileLayout`]. It knows neither
//! paths nor FUSE.
//!
//! | module | |
//! |---|---|
//! | `csv`, `parquet` | tables: `table.csv` and `head.csv`, `table.parquet` |
//! | `grid` | a dense view as variables over common dimensions, which the next two write |
//! | `netcdf`, `zarr` | `array.nc`, `array.zarr/`, with the same `chunks`; NetCDF-4 is `hdf5` |
//! | `tiff`, `raster` | `raster/`, and what is told of a raster that GDAL wrote |
//! | `metadata` | what exports show of the metadata of other programs |
//! | `dataset`, `file_group` | all arrays of a group as one file, or as an image |
//! | `anndata` | a SOMA measurement |
//! | `joined` | arrays that an export is made of, as they were at one time |
//! | `npy` | the headers of `.npy` files in `columns/` |
//! | `picture`, `preview` | what the pages of `tiledbfs serve` show |

pub mod anndata;
mod chunks;
pub mod csv;
pub mod dataset;
mod file_group;
pub mod grid;
mod hdf5;
pub mod joined;
pub mod metadata;
pub mod netcdf;
pub mod npy;
pub mod parquet;
pub mod picture;
pub mod preview;
mod raster;
#[cfg(test)]
mod tests;
pub mod tiff;
pub mod zarr;

use crate::bytes::Keep;
use crate::error::Result;
use crate::layout::{FileLayout, Stream};
use crate::names;
use crate::query::{Role, View};
use crate::runtime::cache::{CacheKey, Entry};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

/// Path components, and the place of each.
#[derive(Debug)]
pub struct Names {
    /// In order.
    pub names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn new(names: Vec<String>) -> Names {
        let places = names.iter().cloned().enumerate();
        Names {
            places: places.map(|(place, name)| (name, place)).collect(),
            names,
        }
    }

    /// The place of a name among them.
    pub fn position(&self, name: &OsStr) -> Option<usize> {
        self.places.get(name.to_str()?).copied()
    }
}

impl Entry for Names {
    fn memory(&self) -> u64 {
        const NAME_MEMORY: u64 = 96;
        let names = self.names.iter();
        names.map(|name| 2 * name.len() as u64 + NAME_MEMORY).sum()
    }
}

/// The path components that name the fields of a view, in order.
pub fn encoded_names(view: &View) -> Vec<String> {
    let encoded = view.fields().iter().map(|field| match field.role {
        Role::Attribute(_) => names::attribute(&field.name),
        Role::Dimension(i) => names::dimension(&field.name, i),
    });
    names::unique(encoded.collect(), names::MAX)
}

/// The path components that name the fields of a view, then unique names for its dimension labels.
pub fn names_with_labels(view: &View) -> Vec<String> {
    let mut all = encoded_names(view);
    let mut taken = all.iter().cloned().collect();
    let labels = view.labels().iter();
    let labels = labels.map(|label| grid::made_up(&names::encode(&label.label.name), "", &mut taken));
    all.extend(labels.collect::<Vec<_>>());
    all
}

/// The path components that name the fields of a view, in order. Cached for the view's state.
pub fn field_names(view: &View) -> Result<Arc<Names>> {
    names_of(view, "field names", || encoded_names(view))
}

/// Names that follow from the schema of a view. Cached for the view's state; `what` tells them from others.
fn names_of(view: &View, what: &str, make: impl FnOnce() -> Vec<String>) -> Result<Arc<Names>> {
    let engine = &view.array().engine;
    let key = CacheKey::of(engine.number(&(what, &view.array().path, view.state())));
    let make = || Ok(Names::new(make()));
    engine.cache.derive(key, 4096, Keep::Staying, make)
}

/// Which exports a mount has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// Leave exports out of listings; they can still be opened by name.
    pub hide: bool,
    /// The most values (rows times columns) of a `table.csv`.
    pub csv_values: u64,
}

impl Default for ExportOptions {
    fn default() -> Self {
        ExportOptions {
            hide: false,
            csv_values: 1 << 24,
        }
    }
}

/// A format that is one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `table.csv`
    Csv,
    /// `head.csv`: the first rows of `table.csv`.
    Head,
    /// `table.parquet`
    Parquet,
    /// `array.nc`
    NetCdf,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [Format::Csv, Format::Head, Format::Parquet, Format::NetCdf];

    /// The name of the file.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "table.csv",
            Format::Head => "head.csv",
            Format::Parquet => "table.parquet",
            Format::NetCdf => "array.nc",
        }
    }

    /// Why `view` has no such file; None if it has one.
    pub fn absent(self, view: &View, options: &ExportOptions) -> Result<Option<String>> {
        match self {
            Format::Csv => csv::absent(view, options.csv_values),
            Format::Head => Ok(None),
            Format::Parquet => parquet::absent(view),
            Format::NetCdf => netcdf::absent(view),
        }
    }

    /// Whether listings show the file. Reads names, the schema, and at most footers.
    pub fn is_listed(self, view: &View, options: &ExportOptions) -> Result<bool> {
        match self {
            Format::Csv => csv::is_listed(view, options.csv_values),
            // Beside table.csv it says nothing new.
            Format::Head => Ok(false),
            Format::Parquet => parquet::is_listed(view),
            Format::NetCdf => Ok(netcdf::absent(view)?.is_none()),
        }
    }

    /// The bytes of the file in sequence; None if computing its length is cheap.
    pub fn stream(self, view: &Arc<View>) -> Result<Option<Box<dyn Stream>>> {
        match self {
            Format::Csv => Ok(Some(Box::new(csv::stream(view)?))),
            _ => Ok(None),
        }
    }

    /// The file, of exact length.
    pub fn layout(self, view: &Arc<View>) -> Result<FileLayout> {
        match self {
            Format::Csv => csv::layout(view),
            Format::Head => csv::head(view),
            Format::Parquet => parquet::layout(view),
            Format::NetCdf => netcdf::layout(view),
        }
    }
}

/// An export of a view, a path below the directory of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Export {
    /// A file.
    File(Format),
    /// `array.zarr/`
    Zarr,
    /// `raster/<name>`, an image of the fields of these indexes.
    Image(String, Range<usize>),
}

impl Export {
    /// All exports that a view of this schema may have.
    pub fn all(view: &View) -> Vec<Export> {
        let images = tiff::image_names(view).into_iter().zip(tiff::fields(view));
        let images = images.map(|(name, fields)| Export::Image(name, fields));
        let files = Format::ALL.into_iter().map(Export::File);
        files.chain([Export::Zarr]).chain(images).collect()
    }

    /// The path below the view.
    pub fn path(&self) -> String {
        match self {
            Export::File(format) => format.name().to_owned(),
            Export::Zarr => zarr::NAME.to_owned(),
            Export::Image(name, _) => format!("{}/{name}", tiff::DIRECTORY),
        }
    }

    /// The fields that the export, which exists, leaves out, as indexes of [`View::fields`], and why; then
    /// the dimension labels, counted on.
    pub fn left_out(&self, view: &View) -> Result<Vec<(usize, String)>> {
        match self {
            Export::File(Format::Csv | Format::Head | Format::Parquet) => {
                let fields = view.fields().len();
                let all = (0..fields + view.labels().len()).map(|index| {
                    let reason = match index.checked_sub(fields) {
                        None => view.unreadable(index)?,
                        Some(label) => view.along(label)?.err(),
                    };
                    Ok(reason.map(|reason| (index, reason)))
                });
                all.filter_map(Result::transpose).collect()
            }
            Export::File(Format::NetCdf) => grid::left_out(view, grid::Naming::NetCdf),
            Export::Zarr => grid::left_out(view, grid::Naming::Zarr),
            Export::Image(..) => Ok(Vec::new()),
        }
    }

    /// The fields and labels that [`Export::left_out`] may name. Reads schemas alone.
    pub fn may_leave_out(&self, view: &View) -> Result<Vec<usize>> {
        let naming = match self {
            Export::Image(..) => return Ok(Vec::new()),
            Export::File(Format::Csv | Format::Head | Format::Parquet) => None,
            Export::File(Format::NetCdf) => Some(grid::Naming::NetCdf),
            Export::Zarr => Some(grid::Naming::Zarr),
        };
        let changed = view.may_be_unreadable()?;
        let fields = view.fields().iter().zip(&*changed).enumerate();
        let fields = fields.filter(|(_, (field, changed))| {
            **changed || view.is_dense() && naming.is_some_and(|naming| grid::unfit(field, naming).is_some())
        });
        let fields = fields.map(|(index, _)| index);
        let labels = 0..view.labels().len();
        Ok(fields
            .chain(labels.map(|label| view.fields().len() + label))
            .collect())
    }

    /// Why `view` has no such export; None if it has one.
    pub fn absent(&self, view: &View, options: &ExportOptions) -> Result<Option<String>> {
        match self {
            Export::File(format) => format.absent(view, options),
            Export::Zarr => zarr::absent(view),
            Export::Image(_, fields) => tiff::absent(view, fields.clone()),
        }
    }
}
