//! Files that other programs open: a view as CSV and other formats, each computed from the view's columns
//! while it is read.
//!
//! A format decides whether a view has such a file, and describes it as a [`FileLayout`]. It knows neither
//! paths nor FUSE.

pub mod csv;
pub mod grid;
pub mod netcdf;
pub mod parquet;
pub mod table;
#[cfg(test)]
mod tests;
pub mod tiff;
pub mod zarr;

use crate::error::Result;
use crate::layout::{FileLayout, Stream};
use crate::names;
use crate::view::{Role, View};
use std::sync::Arc;

/// The path components that name the fields of a view, in order.
pub fn field_names(view: &View) -> Vec<String> {
    let encoded = view.fields().iter().map(|field| match field.role {
        Role::Attribute(_) => names::attribute(&field.name),
        Role::Dimension(i) => names::dimension(&field.name, i),
    });
    names::unique(encoded.collect(), names::MAX)
}

/// Which exports a mount has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Leave exports out of listings; they can still be opened by name.
    pub hide: bool,
    /// The most values (rows times columns) of a `table.csv`.
    pub csv_values: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
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
    /// `table.parquet`
    Parquet,
    /// `array.nc`
    NetCdf,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 3] = [Format::Csv, Format::Parquet, Format::NetCdf];

    /// The name of the file.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "table.csv",
            Format::Parquet => "table.parquet",
            Format::NetCdf => "array.nc",
        }
    }

    /// Why `view` has no such file; None if it has one.
    pub fn absent(self, view: &View, options: &Options) -> Result<Option<String>> {
        match self {
            Format::Csv => csv::absent(view, options.csv_values),
            Format::Parquet => parquet::absent(view),
            Format::NetCdf => netcdf::absent(view),
        }
    }

    /// Whether listings show the file. Reads names, the schema, and at most footers.
    pub fn is_listed(self, view: &View, options: &Options) -> Result<bool> {
        match self {
            Format::Csv => csv::is_listed(view, options.csv_values),
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
    /// `raster/<name>`, an image of the field of this index.
    Image(String, usize),
}

impl Export {
    /// All exports that a view of this schema may have.
    pub fn all(view: &View) -> Vec<Export> {
        let images = tiff::images(view).into_iter();
        let images = images.map(|(name, field)| Export::Image(name, field));
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

    /// Why `view` has no such export; None if it has one.
    pub fn absent(&self, view: &View, options: &Options) -> Result<Option<String>> {
        match self {
            Export::File(format) => format.absent(view, options),
            Export::Zarr => zarr::absent(view),
            Export::Image(_, field) => tiff::absent(view, *field),
        }
    }
}
