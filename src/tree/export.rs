//! The files of a view that are exports: see [`crate::export`].

use super::node::{File, Freshness, Node, NodeType, OpenFile, Piece, Stat, clamp};
use super::permissions::restricted;
use super::view::{Shown, place};
use crate::error::{Error, Result};
use crate::export::Format;
use crate::layout::{Layout, Stream};
use crate::view::View;
use std::sync::Arc;

/// The file of the view `shown` that is called `name`; None where there is none. Where it cannot be told whether there is one, it is there, and
/// fails.
pub fn find(shown: &Shown, name: &str) -> Result<Option<Node>> {
    let Some(format) = Format::ALL.into_iter().find(|format| format.name() == name) else {
        return Ok(None);
    };
    let absent = format.absent(&*shown.view()?, &shown.exports);
    if let Ok(Some(reason)) = &absent {
        log::debug!("{}: no {name}: {reason}", shown.place());
        return Ok(None);
    }
    let of = shown.clone();
    let file = ExportFile {
        shown: shown.clone(),
        format,
    };
    Ok(Some(restricted(Node::File(Arc::new(file)), move || {
        of.permissions_with_labels()
    })))
}

/// The names of the exports of `view` that are listed.
pub fn listed(shown: &Shown, view: &View) -> Vec<(&'static str, NodeType)> {
    if shown.exports.hide {
        return Vec::new();
    }
    // What fails is there, and says so when it is looked at.
    let formats = Format::ALL.into_iter();
    let listed = formats.filter(|format| format.is_listed(view, &shown.exports).unwrap_or(true));
    listed.map(|format| (format.name(), NodeType::File)).collect()
}

/// An export that is one file.
struct ExportFile {
    shown: Shown,
    format: Format,
}

impl ExportFile {
    fn layout(&self) -> Result<Layout> {
        let layout = self.format.layout(&self.shown.view()?);
        let layout = layout.and_then(|layout| match i64::try_from(layout.len()) {
            Ok(_) => Ok(layout),
            Err(_) => Err(Error::limit("a file of 2^63 bytes and more")),
        });
        layout.map_err(|error| place(error, &self.shown.place()))
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

    fn mtime(&self) -> u64 {
        self.shown.mtime()
    }

    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }

    fn open(&self) -> Result<Arc<dyn OpenFile>> {
        Ok(Arc::new(OpenExport {
            layout: self.layout()?,
            place: self.shown.place(),
        }))
    }

    fn stream(&self) -> Result<Option<Box<dyn Stream>>> {
        let place_of = self.shown.place();
        let stream = self.shown.view().and_then(|view| self.format.stream(&view));
        let stream = stream.map_err(|error| place(error, &place_of))?;
        Ok(stream.map(|stream| -> Box<dyn Stream> {
            Box::new(ExportStream {
                stream,
                place: place_of,
            })
        }))
    }
}

/// The bytes of an export, whose errors name the array.
struct ExportStream {
    stream: Box<dyn Stream>,
    place: String,
}

impl Stream for ExportStream {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.stream.next().map_err(|error| place(error, &self.place))
    }

    fn done(&self) -> f64 {
        self.stream.done()
    }
}

/// An open export, whose errors name the array.
struct OpenExport {
    layout: Layout,
    place: String,
}

impl OpenFile for OpenExport {
    fn len(&self) -> u64 {
        self.layout.len()
    }

    fn version(&self) -> u64 {
        self.layout.version()
    }

    fn read<'s>(&self, offset: u64, size: usize, scratch: &'s mut Vec<u8>) -> Result<Piece<'s>> {
        let range = clamp(self.len(), offset, size);
        self.layout
            .read(range, scratch)
            .map_err(|error| place(error, &self.place))
    }
}
