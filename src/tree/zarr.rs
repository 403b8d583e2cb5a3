//! `array.zarr/`, `dataset.zarr/` and `image.ome.zarr/`: Zarr groups. Chunks have computed names, one directory per dimension.

use super::dataset::{Exported as OfGroup, GroupFile, ShownGroup};
use super::document::{Document, DocumentContent};
use super::export::{ExportFile, Exported};
use super::node::{Directory, Entry, Freshness, Listing, Node, NodeType};
use super::permissions::Origin;
use super::view::Shown;
use crate::error::Result;
use crate::export::joined::Joined;
use crate::export::zarr::{NAME, ZarrGroup};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The metadata documents of the group and its arrays.
pub(super) const DOCUMENT: &str = "zarr.json";

/// The directory of an array's chunks, or the only chunk of a scalar.
pub(super) const CHUNKS: &str = "c";

/// What a Zarr group shows.
#[derive(Clone)]
pub enum Whose {
    /// An array.
    View(Shown),
    /// The data set of a group, or the group at this path in it.
    Group(ShownGroup, Vec<String>),
}

impl Whose {
    /// The current group.
    fn group(&self) -> Result<ZarrGroup> {
        match self {
            Whose::View(shown) => shown.placed(ZarrGroup::of(shown.view()?)),
            Whose::Group(shown, path) => shown.zarr(path),
        }
    }

    /// The group `name` in it.
    fn inner(&self, name: &str) -> Option<Whose> {
        match self {
            Whose::View(_) => None,
            Whose::Group(shown, path) => {
                let path = path.iter().cloned().chain([name.to_owned()]);
                Some(Whose::Group(shown.clone(), path.collect()))
            }
        }
    }

    fn placed<T>(&self, result: Result<T>) -> Result<T> {
        match self {
            Whose::View(shown) => shown.placed(result),
            Whose::Group(shown, _) => shown.placed(result),
        }
    }

    fn mtime(&self) -> u64 {
        match self {
            Whose::View(shown) => shown.mtime(),
            Whose::Group(shown, _) => shown.mtime(),
        }
    }

    fn origin(&self) -> Origin {
        match self {
            // Metadata says where the cells are, in arrays of their own.
            Whose::View(shown) => Origin::DescribedCells(shown.moment.clone()),
            Whose::Group(shown, _) => shown.origin(),
        }
    }

    /// A hash of the state shown; None if it is unknown.
    fn state(&self) -> Option<u64> {
        match self {
            Whose::View(shown) => Some(shown.view().ok()?.state()),
            Whose::Group(shown, _) => Some(shown.dataset().ok()?.state()),
        }
    }

    /// The `zarr.json` with the text `text`, of the array `of`, or of the group if that is empty.
    fn document<F>(&self, of: &str, text: F) -> Node
    where
        F: Fn(&ZarrGroup) -> Result<Vec<u8>> + Send + Sync + 'static,
    {
        let (engine, directory) = match self {
            Whose::View(shown) => {
                let array = &shown.moment.array;
                (array.engine.clone(), array.path.join(NAME))
            }
            Whose::Group(shown, path) => {
                let directory = shown.group.path().join("dataset.zarr");
                let directory = path.iter().fold(directory, |path, name| path.join(name));
                (shown.group.engine().clone(), directory)
            }
        };
        let document = Document {
            engine,
            of: directory.join(of),
            name: DOCUMENT,
            mtime: self.mtime(),
            freshness: Freshness::Listing,
            origin: self.origin(),
        };
        let (of_state, made) = (self.clone(), self.clone());
        document.node(
            move || of_state.state(),
            move || {
                let group = made.group()?;
                made.placed(text(&group)).map(DocumentContent::text)
            },
        )
    }

    /// A chunk of an array.
    fn chunk(&self, array: String, numbers: Vec<u64>) -> Node {
        match self {
            Whose::View(shown) => ExportFile::node(shown, Exported::Chunk(array, numbers)),
            Whose::Group(shown, path) => {
                GroupFile::node(shown.clone(), OfGroup::Chunk(path.clone(), array, numbers))
            }
        }
    }
}

/// The methods of [`Directory`] that depend only on the [`Whose`].
macro_rules! of_whose {
    ($self:ident => $whose:expr) => {
        fn mtime(&$self) -> u64 {
            $whose.mtime()
        }

        fn origin(&$self) -> Origin {
            $whose.origin()
        }
    };
}

/// `array.zarr/`, `dataset.zarr/` with the groups in it, or `image.ome.zarr/`.
pub struct ZarrGroupDirectory(pub Whose);

impl Directory for ZarrGroupDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == DOCUMENT {
            return Ok(Some(self.0.document("", |group| Ok(group.json()))));
        }
        let group = self.0.group()?;
        let Some(name) = name.to_str() else {
            return Ok(None);
        };
        if let Some(is_scalar) = group.is_scalar(name) {
            let array = ZarrArrayDirectory {
                whose: self.0.clone(),
                name: name.to_owned(),
                is_scalar,
            };
            return Ok(Some(Node::Directory(Arc::new(array))));
        }
        let inner = group.group(name).and_then(|_| self.0.inner(name));
        Ok(inner.map(|whose| Node::Directory(Arc::new(ZarrGroupDirectory(whose)))))
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

    of_whose!(self => self.0);
}

/// An array of the group.
#[derive(Clone)]
struct ZarrArrayDirectory {
    whose: Whose,
    name: String,
    /// Whether it has one chunk, which is a file.
    is_scalar: bool,
}

/// An array whose chunks have directories.
pub(super) trait Chunked: Clone + Send + Sync + 'static {
    /// The number of chunks along each axis.
    fn counts(&self) -> Result<Vec<u64>>;

    /// The file of a chunk.
    fn chunk(&self, numbers: Vec<u64>) -> Node;

    /// Modification time in milliseconds since the Unix epoch.
    fn mtime(&self) -> u64;

    /// The origin of chunks and their directories.
    fn origin(&self) -> Origin;
}

impl Chunked for ZarrArrayDirectory {
    fn counts(&self) -> Result<Vec<u64>> {
        let group = self.whose.group()?;
        let counts = group.array(&self.name).map(|array| array.counts());
        self.whose.placed(counts)
    }

    fn chunk(&self, numbers: Vec<u64>) -> Node {
        self.whose.chunk(self.name.clone(), numbers)
    }

    fn mtime(&self) -> u64 {
        self.whose.mtime()
    }

    fn origin(&self) -> Origin {
        self.whose.origin()
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

impl Directory for ZarrArrayDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == DOCUMENT {
            let array = self.name.clone();
            let text = move |group: &ZarrGroup| Ok(group.array(&array)?.json());
            return Ok(Some(self.whose.document(&self.name, text)));
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

    of_whose!(self => self.whose);
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
            array.chunk(numbers)
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

    fn mtime(&self) -> u64 {
        self.array.mtime()
    }

    fn origin(&self) -> Origin {
        self.array.origin()
    }
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
