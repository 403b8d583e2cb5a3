//! The kinds of nodes, and the traits that they implement.

use super::permissions::{Origin, Permissions};
use super::shown_group::ShownGroup;
use super::view_source::Viewed;
use crate::error::Result;
use crate::export::zarr::ZarrGroup;
use crate::layout::{FileLayout, Stream};
#[cfg(feature = "mount")]
use crate::runtime::strong_hash;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
#[cfg(feature = "mount")]
use std::hash::Hash;
use std::sync::Arc;

/// A file, a directory or a symbolic link.
#[derive(Clone)]
pub enum Node {
    /// A directory.
    Directory(Arc<dyn Directory>),
    /// A regular file.
    File(Arc<dyn File>),
    /// A symbolic link.
    Link(Arc<Link>),
}

/// A symbolic link to another name in the same directory. Links are never listed, so that programs that walk
/// the tree meet each node once.
pub struct Link {
    /// The target name.
    pub target: OsString,
    /// Modification time in milliseconds since the Unix epoch.
    pub mtime: u64,
}

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NodeType {
    Directory,
    File,
    Link,
}

/// What a directory shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryKind {
    /// An array, now or at another time.
    Array,
    /// A group.
    Group,
    /// What TileDB reads of an array: `data/`, or a part of it.
    View,
    /// Anything else.
    Other,
}

/// How long the attributes and content of a node are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Forever: the node belongs to a committed fragment or a schema.
    Immutable,
    /// Until the next write: listings and what is derived from them. Must be checked again within a second.
    Listing,
    /// Never: changes continuously (`.tiledbfs`), and must be read every time.
    Live,
}

/// Extended attributes: names and UTF-8 values.
pub type ExtendedAttributes = Vec<(&'static str, String)>;

/// A directory. Cheap to create; does its work in these methods.
pub trait Directory: Send + Sync {
    /// The node `name`; None if it does not exist. If there is a reason for that to tell, fails with
    /// `NotFound` instead.
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>>;

    /// A snapshot of the entries, without `.` and `..`.
    fn list(&self) -> Result<Arc<dyn Listing>>;

    /// Modification time in milliseconds since the Unix epoch.
    fn mtime(&self) -> u64;

    /// What it shows.
    fn kind(&self) -> DirectoryKind {
        DirectoryKind::Other
    }

    /// The view that it shows: of an array that of its `data/`. None if it shows no array.
    fn viewed(&self) -> Option<Viewed> {
        None
    }

    /// The group that it shows; None if it shows none.
    fn group(&self) -> Option<ShownGroup> {
        None
    }

    /// The Zarr group that it shows; None if it shows none.
    fn zarr(&self) -> Result<Option<ZarrGroup>> {
        Ok(None)
    }

    /// How long names and listing are valid.
    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }

    /// The longest name that can be looked up, in bytes.
    fn longest_name(&self) -> usize {
        255
    }

    /// Extended attributes, as in [`File::attributes`].
    fn attributes(&self) -> Result<ExtendedAttributes> {
        Ok(ExtendedAttributes::new())
    }

    /// The origin, which decides who may see it.
    fn origin(&self) -> Origin {
        Origin::Private
    }
}

/// A snapshot of a directory's entries, in a fixed order.
pub trait Listing: Send + Sync {
    /// The number of entries.
    fn len(&self) -> u64;

    /// The entry at `index`, None from [`Listing::len`] on.
    fn get(&self, index: u64) -> Option<(Cow<'_, OsStr>, NodeType)>;
}

impl dyn Listing + '_ {
    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = (Cow<'_, OsStr>, NodeType)> {
        (0..self.len()).map_while(|index| self.get(index))
    }
}

/// An entry of a listing in memory.
pub type Entry = (OsString, NodeType);

impl Listing for Vec<Entry> {
    fn len(&self) -> u64 {
        Vec::len(self) as u64
    }

    fn get(&self, index: u64) -> Option<(Cow<'_, OsStr>, NodeType)> {
        let (name, kind) = self.as_slice().get(usize::try_from(index).ok()?)?;
        Some((Cow::Borrowed(name), *kind))
    }
}

/// A regular file. Cheap to create; does its work in these methods.
pub trait File: Send + Sync {
    /// Length and state: those of what would be opened. Decodes no data tile if the length follows from
    /// metadata.
    fn stat(&self) -> Result<Stat> {
        Ok(Stat::of(&*self.open()?))
    }

    /// Modification time in milliseconds since the Unix epoch.
    fn mtime(&self) -> u64;

    /// How long length and content are valid.
    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }

    /// Extended attributes, with names that begin with `user.`.
    fn attributes(&self) -> Result<ExtendedAttributes> {
        Ok(ExtendedAttributes::new())
    }

    /// The origin, as in [`Directory::origin`].
    fn origin(&self) -> Origin {
        Origin::Private
    }

    /// Opens the file in one state: reads are consistent or fail, whatever happens to the source.
    fn open(&self) -> Result<Arc<FileLayout>>;

    /// Opens the state `version` if it is still available, else the current one.
    fn open_version(&self, version: u64) -> Result<Arc<FileLayout>> {
        let _ = version;
        self.open()
    }

    /// The bytes as a stream, for reading the whole file without its length; None if the length is cheap.
    fn stream(&self) -> Result<Option<Box<dyn Stream>>> {
        Ok(None)
    }

    /// Exact length in bytes.
    fn len(&self) -> Result<u64> {
        Ok(self.stat()?.len)
    }

    /// Exact length in bytes if it follows from metadata; None if cells have to be read for it.
    fn known_len(&self) -> Result<Option<u64>> {
        self.len().map(Some)
    }
}

/// Length and state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Exact length in bytes.
    pub len: u64,
    /// Identifies the state of a mutable file; equal numbers mean equal bytes. 0 without states.
    pub version: u64,
}

impl Stat {
    /// Those of an open file.
    pub fn of(open: &FileLayout) -> Stat {
        Stat {
            len: open.len(),
            version: open.version(),
        }
    }
}

/// A hash of what decides the bytes of `file`, which is called `name`, in the state of `stat`: the same in
/// every process of this version of the program. None for files that change continuously.
#[cfg(feature = "mount")]
pub fn identity(file: &dyn File, stat: Stat, name: &impl Hash) -> Option<u128> {
    let state = match file.freshness() {
        Freshness::Live => return None,
        // A fragment, schema or enumeration has one state. Its name in the tree may be another one's later.
        Freshness::Immutable => {
            let origin = file.origin();
            let path = origin.made_of();
            // In stores an object may have been replaced for all that.
            let store = origin.engine().filter(|engine| engine.storage.local().is_none());
            let stored = path.as_ref().zip(store);
            let stored = stored.and_then(|(path, engine)| engine.storage.metadata(path).ok());
            (0, path, stored.map(|metadata| metadata.version))
        }
        Freshness::Listing => (stat.version, None, None),
    };
    Some(strong_hash(&(env!("CARGO_PKG_VERSION"), name, state, stat.len)))
}

/// The methods that a node has from the object to which it belongs, by the methods of these names there.
macro_rules! of_object {
    ($self:ident => $object:expr) => {
        fn mtime(&$self) -> u64 {
            $object.mtime()
        }

        fn origin(&$self) -> $crate::tree::permissions::Origin {
            $object.origin()
        }
    };
}
pub(super) use of_object;

/// The node `name` in `directory`, or the target if it is a symbolic link; None if it does not exist.
pub fn follow(directory: &dyn Directory, name: &OsStr) -> Result<Option<Node>> {
    match directory.lookup(name)? {
        Some(Node::Link(link)) => directory.lookup(&link.target),
        found => Ok(found),
    }
}

impl Node {
    /// The type of the node.
    pub fn node_type(&self) -> NodeType {
        match self {
            Node::Directory(_) => NodeType::Directory,
            Node::File(_) => NodeType::File,
            Node::Link(_) => NodeType::Link,
        }
    }

    /// The origin, which decides who may see it. Links are public, because no mode protects them.
    pub fn origin(&self) -> Origin {
        match self {
            Node::Directory(directory) => directory.origin(),
            Node::File(file) => file.origin(),
            Node::Link(_) => Origin::Public,
        }
    }

    /// Who may see the node besides the mounting user, by the current permissions in the source.
    pub fn permissions(&self) -> Permissions {
        self.origin().permissions()
    }

    /// Whether the node has to be looked up again, because names were exchanged in the source.
    pub fn is_stale(&self) -> bool {
        self.origin().is_stale()
    }

    /// Extended attributes, as in [`File::attributes`].
    pub fn attributes(&self) -> Result<ExtendedAttributes> {
        match self {
            Node::Directory(directory) => directory.attributes(),
            Node::File(file) => file.attributes(),
            Node::Link(_) => Ok(ExtendedAttributes::new()),
        }
    }

    /// The node at `path` (components separated by `/`), following links; None if it does not exist.
    #[cfg(any(test, feature = "internals"))]
    pub fn find(&self, path: &str) -> Result<Option<Node>> {
        let mut node = self.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Node::Directory(directory) = &node else {
                return Ok(None);
            };
            match follow(&**directory, OsStr::new(name))? {
                Some(next) => node = next,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// The whole content of a file. Fails for directories and links.
    #[cfg(any(test, feature = "internals"))]
    pub fn read_all(&self) -> Result<Vec<u8>> {
        use crate::bytes::Output;
        use crate::error::{Error, ErrorKind};
        let Node::File(file) = self else {
            return Err(Error::new(ErrorKind::InvalidInput, "is a directory"));
        };
        let open = file.open()?;
        let (mut all, mut piece) = (Vec::new(), Output::new());
        while (all.len() as u64) < open.len() {
            let start = all.len() as u64;
            piece.clear();
            open.read(start..start.saturating_add(1 << 20), &mut piece)?;
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}
