//! `raster/`: attributes of a dense view as TIFF images, and their overviews.

use super::export::{ExportFile, Exported};
use super::node::{Directory, Entry, Listing, Node, NodeType};
use super::pyramid;
use super::view_source::{ViewSource, of_view};
use crate::error::{Error, Result};
use crate::export::tiff;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// `raster/`.
pub struct RasterDirectory(pub ViewSource);

impl Directory for RasterDirectory {
    /// `NotFound`, with the reason, if an attribute has no image.
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let view = self.0.view()?;
        let Some(fields) = tiff::fields_of(&view, name)? else {
            return pyramid::find(&self.0, name);
        };
        // If it is unknown whether the image exists, it is shown, and accesses fail.
        match tiff::absent(&view, fields) {
            Ok(Some(reason)) => Err(Error::not_found(reason)),
            _ => Ok(Some(ExportFile::node(&self.0, Exported::Image(name.to_owned())))),
        }
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let view = self.0.view()?;
        let mut images: Vec<OsString> = Vec::new();
        for (name, fields) in tiff::images(&view)?.names.iter().zip(tiff::fields(&view)) {
            if !matches!(tiff::absent(&view, fields), Ok(Some(_))) {
                images.push(name.into());
            }
        }
        let overviews = pyramid::listed(&self.0, &images);
        let files = images.into_iter().chain(overviews);
        let entries: Vec<Entry> = files.map(|name| (name, NodeType::File)).collect();
        Ok(Arc::new(entries))
    }

    of_view!(self => self.0);
}
