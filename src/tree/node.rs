//! The kinds of node, and the small traits that everything shown implements.

use super::permissions::{Origin, Permissions};
pub use crate::array::ReadBytes;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{FileLayout, Stream};
use crate::storage::Storage;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
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

/// A symbolic link to another name in the directory that it is in. It is never listed, so that everything is
/// met once.
pub struct Link {
    /// That name.
    pub target: OsString,
    /// Modification time in milliseconds since the Unix epoch.
    pub mtime: u64,
}

/// Which kind a node is, without the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NodeType {
    Directory,
    File,
    Link,
}

/// How long what is known of a node stays true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// For ever: it belongs to a committed fragment or a schema.
    Immutable,
    /// Until somebody writes to the array: listings and what is derived from them. Must be checked again
    /// within a second.
    Listing,
    /// It changes by itself (`.tiledbfs`): must be read again every time.
    Live,
}

/// Extended attributes: name and value, which is UTF-8.
pub type ExtendedAttributes = Vec<(&'static str, String)>;

/// A directory. Cheap to make: it does its work when asked.
pub trait Directory: Send + Sync {
    /// The node called `name`; None when there is none.
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>>;

    /// A snapshot of the names, `.` and `..` not among them.
    fn list(&self) -> Result<Arc<dyn Listing>>;

    /// Modification time in milliseconds since the Unix epoch.
    fn mtime(&self) -> u64;

    /// How long names and listing stay true.
    fn freshness(&self) -> Freshness;

    /// The longest name that can be looked up, in bytes.
    fn longest_name(&self) -> usize {
        255
    }

    /// Its extended attributes, as [`File::attributes`].
    fn attributes(&self) -> Result<ExtendedAttributes> {
        Ok(ExtendedAttributes::new())
    }

    /// What it comes from. Asked for only where others than the user who mounts it may enter the mount.
    fn origin(&self) -> Origin {
        Origin::Private
    }
}

/// The names in a directory at one moment, in an order that does not change.
pub trait Listing: Send + Sync {
    /// How many.
    fn len(&self) -> u64;

    /// The entry at `index`, None from [`Listing::len`] on.
    fn get(&self, index: u64) -> Option<(Cow<'_, OsStr>, NodeType)>;
}

/// One name of a listing that is held in memory.
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

/// A regular file. Cheap to make: it does its work when asked.
pub trait File: Send + Sync {
    /// Its length and state, found without decoding a data tile.
    fn stat(&self) -> Result<Stat>;

    /// Modification time in milliseconds since the Unix epoch.
    fn mtime(&self) -> u64;

    /// How long length and content stay true.
    fn freshness(&self) -> Freshness;

    /// Its extended attributes: what is known of it besides its content, by names that begin with `user.`.
    fn attributes(&self) -> Result<ExtendedAttributes> {
        Ok(ExtendedAttributes::new())
    }

    /// What it comes from, as [`Directory::origin`].
    fn origin(&self) -> Origin {
        Origin::Private
    }

    /// Opens it. What is read through the result is one consistent state, whatever happens to the source.
    fn open(&self) -> Result<Arc<dyn OpenFile>>;

    /// The same in the state `version`, if that can still be had; else in the present one.
    fn open_version(&self, version: u64) -> Result<Arc<dyn OpenFile>> {
        let _ = version;
        self.open()
    }

    /// Its bytes as a stream, for readers of the whole file who need not know its length; None if finding the
    /// length takes little work.
    fn stream(&self) -> Result<Option<Box<dyn Stream>>> {
        Ok(None)
    }

    /// Its exact length in bytes.
    fn len(&self) -> Result<u64> {
        Ok(self.stat()?.len)
    }
}

/// What is known of a file without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its exact length in bytes.
    pub len: u64,
    /// Differs between two states of a file that changes; equal numbers mean equal bytes. 0 if states are not
    /// distinguished.
    pub version: u64,
}

/// An open file: a seekable sequence of bytes.
pub trait OpenFile: Send + Sync {
    /// Its exact length in bytes.
    fn len(&self) -> u64;

    /// Differs between two states of one file, as [`Stat::version`].
    fn version(&self) -> u64 {
        0
    }

    /// The bytes from `offset` on: exactly `size` of them, or those up to the end of the file. `scratch` is
    /// memory that the answer may be put together in; what it held is lost.
    fn read<'s>(&self, offset: u64, size: usize, scratch: &'s mut Vec<u8>) -> Result<ReadBytes<'s>>;
}

impl OpenFile for FileLayout {
    fn len(&self) -> u64 {
        FileLayout::len(self)
    }

    fn version(&self) -> u64 {
        FileLayout::version(self)
    }

    fn read<'s>(&self, offset: u64, size: usize, scratch: &'s mut Vec<u8>) -> Result<ReadBytes<'s>> {
        FileLayout::read(self, clamp(self.len(), offset, size), scratch)
    }
}

/// The part of a file of `len` bytes that a read of `size` bytes at `offset` covers.
pub fn clamp(len: u64, offset: u64, size: usize) -> Range<u64> {
    let start = offset.min(len);
    start..start.saturating_add(size as u64).min(len)
}

/// The node called `name` in `directory`; where that is a symbolic link, what it leads to.
pub fn follow(directory: &dyn Directory, name: &OsStr) -> Result<Option<Node>> {
    match directory.lookup(name)? {
        Some(Node::Link(link)) => directory.lookup(&link.target),
        found => Ok(found),
    }
}

impl Node {
    /// Which kind it is.
    pub fn node_type(&self) -> NodeType {
        match self {
            Node::Directory(_) => NodeType::Directory,
            Node::File(_) => NodeType::File,
            Node::Link(_) => NodeType::Link,
        }
    }

    /// Who may see it, besides the user who mounts it, by what `storage`, the source, says now. No mode can
    /// keep a link from being read.
    pub fn permissions(&self, storage: &dyn Storage) -> Permissions {
        let origin = match self {
            Node::Directory(directory) => directory.origin(),
            Node::File(file) => file.origin(),
            Node::Link(_) => Origin::Public,
        };
        origin.permissions(storage)
    }

    /// Its attributes, as [`File::attributes`].
    pub fn attributes(&self) -> Result<ExtendedAttributes> {
        match self {
            Node::Directory(directory) => directory.attributes(),
            Node::File(file) => file.attributes(),
            Node::Link(_) => Ok(ExtendedAttributes::new()),
        }
    }

    /// Walks down `path` (components separated by `/`), following links; None where a component does not
    /// exist.
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

    /// The whole content of a file.
    pub fn read_all(&self) -> Result<Vec<u8>> {
        let Node::File(file) = self else {
            return Err(Error::new(ErrorKind::InvalidInput, "is a directory"));
        };
        let open = file.open()?;
        let mut out = Vec::new();
        let mut scratch = Vec::new();
        while (out.len() as u64) < open.len() {
            let piece = open.read(out.len() as u64, 1 << 20, &mut scratch)?;
            if piece.is_empty() {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "a read returned no bytes before the end of the file",
                ));
            }
            out.extend_from_slice(&piece);
        }
        Ok(out)
    }
}
