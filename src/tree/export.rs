//! Exports of a view, as files and directories of the tree; see [`crate::export`].

use super::node::{File, Node, NodeType, Stat};
use super::permissions::Origin;
use super::raster::RasterDirectory;
use super::view::Shown;
use super::zarr::{Whose, ZarrGroupDirectory};
use crate::error::{Error, Result};
use crate::export::{Format, tiff, zarr};
use crate::layout::{FileLayout, Stream};
use crate::query::View;
use std::ops::Range;
use std::sync::Arc;

/// The export `name` of the view `shown`; None if no export has that name. `NotFound`, with the reason, if
/// this view has none. If that is unknown, returns a node whose accesses fail.
pub fn find(shown: &Shown, name: &str) -> Result<Option<Node>> {
    let of = shown.clone();
    let (absent, node) = match (name, Format::ALL.into_iter().find(|format| format.name() == name)) {
        (zarr::NAME, _) => (
            zarr::absent(&*shown.view()?),
            Node::Directory(Arc::new(ZarrGroupDirectory(Whose::View(of)))),
        ),
        (tiff::DIRECTORY, _) => (
            tiff::all_absent(&*shown.view()?),
            Node::Directory(Arc::new(RasterDirectory(of))),
        ),
        (_, Some(format)) => (
            format.absent(&*shown.view()?, &shown.context.exports),
            ExportFile::node(shown, Exported::File(format)),
        ),
        (_, None) => return Ok(None),
    };
    match absent {
        Ok(Some(reason)) => Err(Error::not_found(reason)),
        _ => Ok(Some(node)),
    }
}

/// The listed exports of `view`.
pub fn listed(shown: &Shown, view: &View) -> Vec<(&'static str, NodeType)> {
    if shown.context.exports.hide {
        return Vec::new();
    }
    let formats = Format::ALL.into_iter();
    let files = formats.map(|format| {
        (
            format.name(),
            NodeType::File,
            format.is_listed(view, &shown.context.exports),
        )
    });
    let images = tiff::all_absent(view).map(|absent| absent.is_none());
    let directories = [
        (zarr::NAME, NodeType::Directory, zarr::is_listed(view)),
        (tiff::DIRECTORY, NodeType::Directory, images),
    ];
    // If it is unknown whether an export exists, it is listed; accessing it reports the error.
    let listed = files
        .chain(directories)
        .filter(|(.., listed)| *listed.as_ref().unwrap_or(&true));
    listed.map(|(name, kind, _)| (name, kind)).collect()
}

/// The part of a view that a file exports.
pub enum Exported {
    /// The whole view.
    File(Format),
    /// The image of the fields with these indexes.
    Image(Range<usize>),
    /// The chunk with these grid coordinates of an array in the Zarr group.
    Chunk(String, Vec<u64>),
}

/// A file that exports a view.
pub struct ExportFile {
    shown: Shown,
    exported: Exported,
}

impl ExportFile {
    /// The file `exported` of the view `shown`.
    pub fn node(shown: &Shown, exported: Exported) -> Node {
        let shown = shown.clone();
        Node::File(Arc::new(ExportFile { shown, exported }))
    }

    fn layout(&self) -> Result<FileLayout> {
        let view = self.shown.view()?;
        let layout = || match &self.exported {
            Exported::File(format) => format.layout(&view),
            Exported::Image(fields) => tiff::layout(&view, fields.clone()),
            Exported::Chunk(array, numbers) => {
                zarr::ZarrGroup::of(view.clone())?.array(array)?.chunk(numbers)
            }
        };
        let layout = layout().and_then(|layout| match i64::try_from(layout.len()) {
            Ok(_) => Ok(layout),
            Err(_) => Err(Error::limit("the file would have 2^63 bytes or more")),
        });
        self.shown.placed(layout)
    }
}

impl File for ExportFile {
    fn stat(&self) -> Result<Stat> {
        let layout = self.layout()?;
        Ok(Stat {
            len: layout.len(),
            version: layout.version(),
        })
    }

    fn known_len(&self) -> Result<Option<u64>> {
        let view = self.shown.view()?;
        let is_known = match self.exported {
            Exported::File(Format::Csv | Format::Head) => false,
            // Its pages of text are as long as the text is.
            Exported::File(Format::Parquet) => {
                !view.fields().iter().any(|field| field.cell_val_num.is_var())
                    && view.known_count()?.is_some()
            }
            // These are grids of cells of fixed size.
            Exported::File(Format::NetCdf) | Exported::Image(_) | Exported::Chunk(..) => true,
        };
        match is_known {
            true => self.len().map(Some),
            false => Ok(None),
        }
    }

    fn mtime(&self) -> u64 {
        self.shown.mtime()
    }

    fn origin(&self) -> Origin {
        let moment = self.shown.moment.clone();
        match &self.exported {
            // Text has the values of cells, and nothing of metadata.
            Exported::File(Format::Csv | Format::Head) => Origin::LabelledCells(moment),
            Exported::File(Format::Parquet | Format::NetCdf) | Exported::Image(_) | Exported::Chunk(..) => {
                Origin::DescribedCells(moment)
            }
        }
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        Ok(Arc::new(self.layout()?.of(self.shown.display())))
    }

    fn stream(&self) -> Result<Option<Box<dyn Stream>>> {
        let Exported::File(format) = &self.exported else {
            return Ok(None);
        };
        let stream = self.shown.view().and_then(|view| format.stream(&view));
        let shown = self.shown.clone();
        Ok(self
            .shown
            .placed(stream)?
            .map(|stream| -> Box<dyn Stream> { Box::new(ExportStream { stream, shown }) }))
    }
}

/// A stream of an export, whose errors name the array.
struct ExportStream {
    stream: Box<dyn Stream>,
    shown: Shown,
}

impl Stream for ExportStream {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.shown.placed(self.stream.next())
    }

    fn done(&self) -> f64 {
        self.stream.done()
    }
}
