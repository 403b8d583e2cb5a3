//! `array.zarr/`: a dense view as a Zarr group. Chunks have computed names, one directory per dimension.

use super::document::{Document, DocumentContent};
use super::export::{ExportFile, Exported};
use super::node::{Directory, Entry, Freshness, Listing, Node, NodeType};
use super::permissions::Origin;
use super::view::{Shown, of_view};
use crate::error::Result;
use crate::export::zarr::{NAME, ZarrGroup};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The metadata documents of the group and its arrays.
const DOCUMENT: &str = "zarr.json";

/// The directory of an array's chunks.
const CHUNKS: &str = "c";

/// `array.zarr/`.
pub struct ZarrGroupDirectory(pub Shown);

impl Directory for ZarrGroupDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == DOCUMENT {
            return Ok(Some(document(&self.0, "", |group| group.json())));
        }
        let group = group(&self.0)?;
        let found = name.to_str().filter(|name| group.has(name));
        Ok(found.map(|known| {
            let array = ZarrArrayDirectory {
                shown: self.0.clone(),
                name: known.to_owned(),
            };
            Node::Directory(Arc::new(array))
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let group = group(&self.0)?;
        let names = group
            .names()
            .map(|name| (OsString::from(name), NodeType::Directory));
        let document = (OsString::from(DOCUMENT), NodeType::File);
        Ok(Arc::new(
            [document].into_iter().chain(names).collect::<Vec<Entry>>(),
        ))
    }

    of_view!(self => self.0);
}

/// The current group.
fn group(shown: &Shown) -> Result<ZarrGroup> {
    shown.placed(ZarrGroup::of(shown.view()?))
}

/// The `zarr.json` with the text `text`, of the array `of`, or of the group if that is empty.
fn document<F>(shown: &Shown, of: &str, text: F) -> Node
where
    F: Fn(&ZarrGroup) -> Result<Vec<u8>> + Send + Sync + 'static,
{
    let array = &shown.moment.array;
    let document = Document {
        engine: array.engine.clone(),
        of: array.path.join(NAME).join(of),
        name: DOCUMENT,
        mtime: shown.mtime(),
        freshness: Freshness::Listing,
        origin: Origin::DescribedCells(shown.moment.clone()),
    };
    let (of_state, made) = (shown.clone(), shown.clone());
    document.node(
        move || of_state.view().ok().map(|view| view.state()),
        move || {
            let group = group(&made)?;
            made.placed(text(&group)).map(DocumentContent::text)
        },
    )
}

/// An array of the group.
#[derive(Clone)]
struct ZarrArrayDirectory {
    shown: Shown,
    name: String,
}

impl ZarrArrayDirectory {
    /// The number of chunks along each axis.
    fn counts(&self) -> Result<Vec<u64>> {
        let group = group(&self.shown)?;
        let counts = group.array(&self.name).map(|array| array.counts());
        self.shown.placed(counts)
    }
}

impl Directory for ZarrArrayDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == DOCUMENT {
            let array = self.name.clone();
            let text = move |group: &ZarrGroup| Ok(group.array(&array)?.json());
            return Ok(Some(document(&self.shown, &self.name, text)));
        }
        Ok((name == CHUNKS).then(|| {
            let chunks = ChunksDirectory {
                array: self.clone(),
                numbers: Vec::new(),
            };
            Node::Directory(Arc::new(chunks))
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(super::directory::fixed_listing(&[
            (DOCUMENT, NodeType::File),
            (CHUNKS, NodeType::Directory),
        ]))
    }

    of_view!(self => self.shown);
}

/// The chunks of an array with these leading grid coordinates.
struct ChunksDirectory {
    array: ZarrArrayDirectory,
    numbers: Vec<u64>,
}

impl Directory for ChunksDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let counts = self.array.counts()?;
        let name = name.to_str().unwrap_or_default();
        let number = name
            .parse::<u64>()
            .ok()
            .filter(|number| number.to_string() == name);
        let count = counts[self.numbers.len()];
        let Some(number) = number.filter(|number| *number < count) else {
            return Ok(None);
        };
        let mut numbers = self.numbers.clone();
        numbers.push(number);
        let array = self.array.clone();
        Ok(Some(if numbers.len() < counts.len() {
            Node::Directory(Arc::new(ChunksDirectory { array, numbers }))
        } else {
            ExportFile::node(&self.array.shown, Exported::Chunk(array.name, numbers))
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let counts = self.array.counts()?;
        let last = self.numbers.len() + 1 >= counts.len();
        Ok(Arc::new(Numbers {
            count: counts[self.numbers.len()],
            kind: if last { NodeType::File } else { NodeType::Directory },
        }))
    }

    of_view!(self => self.array.shown);
}

/// The names `0` to `count - 1`.
struct Numbers {
    count: u64,
    kind: NodeType,
}

impl Listing for Numbers {
    fn len(&self) -> u64 {
        self.count
    }

    fn get(&self, index: u64) -> Option<(Cow<'_, OsStr>, NodeType)> {
        let name = || Cow::Owned(OsString::from(index.to_string()));
        (index < self.count).then(|| (name(), self.kind))
    }
}
