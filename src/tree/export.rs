//! Exports of a view, as files and directories of the tree; see [`crate::export`].

use super::node::{File, Node};
use super::permissions::Origin;
use super::view_source::{ViewSource, place};
use super::zarr::AsZarr;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::export::{Format, tiff, zarr};
use crate::layout::{FileLayout, Stream};
use crate::query::View;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// The part of a view that a file exports.
pub enum Exported {
    /// The whole view.
    File(Format),
    /// The image of this name. Indexes of fields are those of one schema.
    Image(OsString),
    /// The chunk with these grid coordinates of an array in the Zarr group.
    Chunk(String, Vec<u64>),
}

/// A file that exports a view.
pub struct ExportFile {
    source: ViewSource,
    exported: Exported,
}

impl ExportFile {
    /// The file `exported` of the view `source`.
    pub fn node(source: &ViewSource, exported: Exported) -> Node {
        let source = source.clone();
        Node::File(Arc::new(ExportFile { source, exported }))
    }

    fn layout(&self) -> Result<FileLayout> {
        let view = self.source.view()?;
        match &self.exported {
            // The array may have been another when the file was looked up.
            Exported::File(format) => match format.absent(&view, &self.source.context.exports)? {
                None => format.layout(&view),
                Some(reason) => Err(Error::not_found(reason)),
            },
            Exported::Image(name) => match tiff::fields_of(&view, name)? {
                Some(fields) => tiff::layout(&view, fields),
                None => Err(Error::not_found("the schema has changed")),
            },
            Exported::Chunk(array, numbers) => self.source.zarr(&view)?.array(array)?.chunk(numbers),
        }
    }
}

impl ViewSource {
    /// The Zarr group of a view. `NotFound`, with the reason, if it has none.
    fn zarr(&self, view: &Arc<View>) -> Result<zarr::ZarrGroup> {
        match zarr::absent(view)? {
            None => zarr::ZarrGroup::of(view.clone()),
            Some(reason) => Err(Error::not_found(reason)),
        }
    }
}

impl File for ExportFile {
    fn known_len(&self) -> Result<Option<u64>> {
        let view = self.source.view()?;
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
        self.source.mtime()
    }

    fn origin(&self) -> Origin {
        let array_at = self.source.array_at.clone();
        match &self.exported {
            // Text has the values of cells, and nothing of metadata.
            Exported::File(Format::Csv | Format::Head) => Origin::LabelledCells(array_at),
            Exported::File(Format::Parquet | Format::NetCdf) | Exported::Image(_) | Exported::Chunk(..) => {
                Origin::DescribedCells(array_at)
            }
        }
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let layout = self.source.placed(self.layout())?;
        Ok(Arc::new(layout.of(self.source.display())))
    }

    fn stream(&self) -> Result<Option<Box<dyn Stream>>> {
        let Exported::File(format) = &self.exported else {
            return Ok(None);
        };
        let stream = self.source.view().and_then(|view| format.stream(&view));
        let source = self.source.clone();
        Ok(self
            .source
            .placed(stream)?
            .map(|stream| -> Box<dyn Stream> { Box::new(ExportStream { stream, source }) }))
    }
}

/// A stream of an export, whose errors name the array.
struct ExportStream {
    stream: Box<dyn Stream>,
    source: ViewSource,
}

impl Stream for ExportStream {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.source.placed(self.stream.next())
    }

    fn done(&self) -> f64 {
        self.stream.done()
    }
}

/// `array.zarr/`
impl AsZarr for ViewSource {
    fn group(&self) -> Result<zarr::ZarrGroup> {
        self.placed(self.zarr(&self.view()?))
    }

    fn inner(&self, _: &str) -> Option<ViewSource> {
        None
    }

    fn chunk(&self, array: String, numbers: Vec<u64>) -> Node {
        ExportFile::node(self, Exported::Chunk(array, numbers))
    }

    fn place(&self, error: Error) -> Error {
        place(error, &self.display())
    }

    fn directory(&self) -> (Arc<Engine>, PathBuf) {
        let array = &self.array_at.array;
        (array.engine.clone(), array.path.join(zarr::NAME))
    }

    fn state(&self) -> Option<u64> {
        let view = self.view().ok()?;
        Some(view.state_with(&view.shown_labels().ok()?))
    }

    fn mtime(&self) -> u64 {
        self.mtime()
    }

    fn origin(&self) -> Origin {
        // Metadata says where the cells are, in arrays of their own.
        Origin::DescribedCells(self.array_at.clone())
    }
}
