//! `array.zarr/`, `dataset.zarr/` and `image.ome.zarr/`: Zarr groups. Chunks have computed names, one
//! directory per dimension.

use super::document::{Document, DocumentContent};
use super::node::{Directory, Entry, Freshness, Listing, Node, NodeType, of_object};
use super::permissions::Origin;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::export::zarr::ZarrGroup;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

/// The metadata documents of the group and its arrays.
pub(super) const DOCUMENT: &str = "zarr.json";

/// The directory of an array's chunks, or the only chunk of a scalar.
pub(super) const CHUNKS: &str = "c";

/// What is shown as a Zarr group.
pub trait AsZarr: Clone + Send + Sync + 'static {
    /// The current group.
    fn group(&self) -> Result<ZarrGroup>;

    /// What is shown as the group `name` in it.
    fn inner(&self, name: &str) -> Option<Self>;

    /// The file of a chunk of an array.
    fn chunk(&self, array: String, numbers: Vec<u64>) -> Node;

    /// Adds to an error without a file what is shown.
    fn place(&self, error: Error) -> Error;

    /// The path of the group, by which messages name its files.
    fn directory(&self) -> (Arc<Engine>, PathBuf);

    /// A hash of the state shown; None if it is unknown.
    fn state(&self) -> Option<u64>;

    /// Modification time in milliseconds since the Unix epoch.
    fn mtime(&self) -> u64;

    /// The origin of everything in it.
    fn origin(&self) -> Origin;
}

/// The `zarr.json` with the text `text`, of the array `of` in what is `shown`, or of the group if that is
/// empty.
fn document<Z, F>(shown: &Z, of: &str, text: F) -> Node
where
    Z: AsZarr,
    F: Fn(&ZarrGroup) -> Result<Vec<u8>> + Send + Sync + 'static,
{
    let (engine, directory) = shown.directory();
    let document = Document {
        engine,
        of: directory.join(of),
        name: DOCUMENT,
        mtime: shown.mtime(),
        freshness: Freshness::Listing,
        origin: shown.origin(),
    };
    let (of_state, shown) = (shown.clone(), shown.clone());
    document.node(
        move || of_state.state(),
        move || {
            let text = text(&shown.group()?).map_err(|error| shown.place(error));
            text.map(DocumentContent::text)
        },
    )
}

/// `array.zarr/`, `dataset.zarr/` with the groups in it, or `image.ome.zarr/`.
pub struct ZarrGroupDirectory<Z>(pub Z);

impl<Z: AsZarr> Directory for ZarrGroupDirectory<Z> {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == DOCUMENT {
            return Ok(Some(document(&self.0, "", |group| Ok(group.json()))));
        }
        let group = self.0.group()?;
        let Some(name) = name.to_str() else {
            return Ok(None);
        };
        if let Some(is_scalar) = group.is_scalar(name) {
            let array = ZarrArrayDirectory {
                group: self.0.clone(),
                name: name.to_owned(),
                is_scalar,
            };
            return Ok(Some(Node::Directory(Arc::new(array))));
        }
        let inner = group.group(name).and_then(|_| self.0.inner(name));
        Ok(inner.map(|inner| Node::Directory(Arc::new(ZarrGroupDirectory(inner)))))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let group = self.0.group()?;
        let names = group
            .names()
            .chain(group.group_names())
            .map(|name| (OsString::from(name), NodeType::Directory));
        let document = (OsString::from(DOCUMENT), NodeType::File);
        Ok(Arc::new(
            [document].into_iter().chain(names).collect::<Vec<Entry>>(),
        ))
    }

    fn zarr(&self) -> Result<Option<ZarrGroup>> {
        self.0.group().map(Some)
    }

    of_object!(self => self.0);
}

/// An array of the group.
#[derive(Clone)]
struct ZarrArrayDirectory<Z> {
    group: Z,
    name: String,
    /// Whether it has one chunk, which is a file.
    is_scalar: bool,
}

/// The directory of an array whose chunks have directories.
pub(super) trait Chunked: Directory + Clone + 'static {
    /// The number of chunks along each axis.
    fn counts(&self) -> Result<Vec<u64>>;

    /// The file of a chunk.
    fn chunk(&self, numbers: Vec<u64>) -> Node;
}

impl<Z: AsZarr> Chunked for ZarrArrayDirectory<Z> {
    fn counts(&self) -> Result<Vec<u64>> {
        let counts = self.group.group()?.array(&self.name).map(|array| array.counts());
        counts.map_err(|error| self.group.place(error))
    }

    fn chunk(&self, numbers: Vec<u64>) -> Node {
        self.group.chunk(self.name.clone(), numbers)
    }
}

/// The node `c` of an array that has chunks.
pub(super) fn chunks<A: Chunked>(array: A, is_scalar: bool) -> Node {
    if is_scalar {
        return array.chunk(Vec::new());
    }
    Node::Directory(Arc::new(ChunksDirectory {
        array,
        numbers: Vec::new(),
    }))
}

impl<Z: AsZarr> Directory for ZarrArrayDirectory<Z> {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == DOCUMENT {
            let array = self.name.clone();
            let text = move |group: &ZarrGroup| Ok(group.array(&array)?.json());
            return Ok(Some(document(&self.group, &self.name, text)));
        }
        if name != CHUNKS {
            return Ok(None);
        }
        Ok(Some(chunks(self.clone(), self.is_scalar)))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let chunks = match self.is_scalar {
            true => NodeType::File,
            false => NodeType::Directory,
        };
        Ok(super::directory::fixed_listing(&[
            (DOCUMENT, NodeType::File),
            (CHUNKS, chunks),
        ]))
    }

    of_object!(self => self.group);
}

/// The chunks of an array with these leading grid coordinates.
struct ChunksDirectory<A> {
    array: A,
    numbers: Vec<u64>,
}

impl<A: Chunked> Directory for ChunksDirectory<A> {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let counts = self.array.counts()?;
        let name = name.to_str().unwrap_or_default();
        let number = name
            .parse::<u64>()
            .ok()
            .filter(|number| number.to_string() == name);
        let count = counts.get(self.numbers.len());
        let Some(number) = number.filter(|number| count.is_some_and(|count| number < count)) else {
            return Ok(None);
        };
        let mut numbers = self.numbers.clone();
        numbers.push(number);
        let array = self.array.clone();
        Ok(Some(if numbers.len() < counts.len() {
            Node::Directory(Arc::new(ChunksDirectory { array, numbers }))
        } else {
            array.chunk(numbers)
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let counts = self.array.counts()?;
        // The array may have had more axes.
        let gone = || Error::not_found("the array has no such chunks");
        let count = *counts.get(self.numbers.len()).ok_or_else(gone)?;
        let last = self.numbers.len() + 1 >= counts.len();
        Ok(Arc::new(Numbers {
            count,
            kind: if last { NodeType::File } else { NodeType::Directory },
        }))
    }

    of_object!(self => self.array);
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
