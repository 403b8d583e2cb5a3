//! Who may see what a node shows: nobody who could not read the files of the source that it comes from.

use super::moment::Moment;
use super::node::{Attributes, Directory, File, Freshness, Listing, Node, OpenFile, Stat};
use crate::array::Array;
use crate::array::engine::Engine;
use crate::array::fragment::Fragment;
use crate::array::listing::{CommitKind, list_or_empty};
use crate::error::{ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::layout::Stream;
use crate::storage::{Audience, EntryType, Want};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// Who may do what with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Read the file, or go through the directory to what is in it.
    pub open: Audience,
    /// Besides, see the names in the directory.
    pub list: Audience,
}

impl Permissions {
    /// Everything for everybody.
    pub fn everybody() -> Self {
        Permissions {
            open: Audience::everybody(),
            list: Audience::everybody(),
        }
    }

    /// Nothing for anybody but the user who mounted it.
    pub fn nobody() -> Self {
        Permissions {
            open: Audience::nobody(),
            list: Audience::everybody(),
        }
    }
}

/// Collects what a node comes from.
pub struct Sources<'a> {
    engine: &'a Engine,
    permissions: Permissions,
}

impl<'a> Sources<'a> {
    /// Nothing so far.
    pub fn new(engine: &'a Engine) -> Self {
        Sources {
            engine,
            permissions: Permissions::everybody(),
        }
    }

    /// The same, known to come from within the array: what `key` was needed for, nobody sees who may not read
    /// the file that it is in.
    pub fn of_array(array: &'a Array) -> Self {
        Self::new(&array.engine)
            .search(&array.path)
            .key(array.key.as_ref())
    }

    fn open(mut self, path: &Path, want: Want) -> Self {
        let audience = self.engine.storage.audience(path, want);
        self.permissions.open.and(&audience);
        self
    }

    /// It comes from the content of the file at `path`.
    pub fn read(self, path: &Path) -> Self {
        self.open(path, Want::Read)
    }

    /// It comes from something in the directory at `path`.
    pub fn search(self, path: &Path) -> Self {
        self.open(path, Want::Search)
    }

    /// It comes from the names in the directory at `path`.
    pub fn names(self, path: &Path) -> Self {
        self.open(path, Want::List)
    }

    /// Its listing, and only that, comes from the names in the directory at `path`.
    pub fn listing(mut self, path: &Path) -> Self {
        let audience = self.engine.storage.audience(path, Want::List);
        self.permissions.list.and(&audience);
        self
    }

    /// It comes from all files in the directory at `path`.
    pub fn files(self, path: &Path) -> Result<Self> {
        let entries = list_or_empty(self.engine, path)?;
        let files = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
        Ok(files.fold(self.names(path), |sources, entry| {
            sources.read(&path.join(&entry.name))
        }))
    }

    /// It was decoded with `key`, if there is one.
    pub fn key(self, key: Option<&EncryptionKey>) -> Self {
        match key.and_then(EncryptionKey::file) {
            Some(file) => self.read(file),
            None => self,
        }
    }

    /// It comes from the schema in force.
    pub fn schema(self, moment: &Moment) -> Result<Self> {
        let file = moment.schema_file()?;
        let path = moment.array.schemas.path(&file.name);
        Ok(match path.parent() {
            Some(directory) => self.names(directory).read(&path),
            None => self.read(&path),
        })
    }

    /// It comes from all that an array's listing does: names of fragments, commits, and what these say.
    pub fn array_listing(self, array: &Array, all_commits: bool) -> Result<Self> {
        let listing = array.listing()?;
        let directories = ["", "__fragments", "__commits", "__fragment_meta"];
        let mut sources = directories
            .iter()
            .fold(self, |sources, name| sources.names(&array.path.join(name)));
        for commit in &listing.commits {
            let says_something = !matches!(commit.kind, CommitKind::Ok | CommitKind::Write);
            if all_commits || says_something {
                sources = sources.read(&commit.path());
            }
        }
        Ok(sources)
    }

    /// It comes from the metadata of all fragments, and the schemas that they were written with.
    pub fn all_fragments(self, array: &Array) -> Result<Self> {
        let listing = array.listing()?;
        let schemas = listing.schemas.iter().map(|file| array.schemas.path(&file.name));
        let fragments = listing.fragments.iter().map(|f| f.fragment.metadata_path());
        let consolidated = listing.consolidated_metadata.iter().cloned();
        let files = schemas.chain(fragments).chain(consolidated);
        Ok(files.fold(self, |sources, path| sources.read(&path)))
    }

    /// All of it.
    pub fn permissions(self) -> Permissions {
        self.permissions
    }
}

/// The permissions of what comes from a fragment's metadata.
pub fn of_fragment(fragment: &Fragment) -> Permissions {
    let sources = Sources::new(fragment.engine())
        .key(fragment.key())
        .read(&fragment.metadata_path());
    match fragment.look() {
        Ok(info) => sources.read(&fragment.schema_path(&info)).permissions(),
        // What cannot be opened without the key shows no more than the footer.
        Err(error) if matches!(error.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey) => {
            sources.permissions()
        }
        Err(_) => Permissions::nobody(),
    }
}

/// `node` with permissions of its own, worked out whenever they are asked for; nobody has any when that
/// fails.
pub fn restricted(node: Node, permissions: impl Fn() -> Result<Permissions> + Send + Sync + 'static) -> Node {
    match node {
        Node::Directory(inner) => Node::Directory(Arc::new(Restricted { inner, permissions })),
        Node::File(inner) => Node::File(Arc::new(Restricted { inner, permissions })),
        Node::Link(link) => Node::Link(link),
    }
}

struct Restricted<N: ?Sized, F> {
    inner: Arc<N>,
    permissions: F,
}

impl<N: ?Sized, F: Fn() -> Result<Permissions>> Restricted<N, F> {
    fn get(&self) -> Permissions {
        (self.permissions)().unwrap_or_else(|error| {
            log::debug!("permissions: {error}");
            Permissions::nobody()
        })
    }
}

impl<F: Fn() -> Result<Permissions> + Send + Sync> Directory for Restricted<dyn Directory, F> {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        self.inner.lookup(name)
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        self.inner.list()
    }

    fn longest_name(&self) -> usize {
        self.inner.longest_name()
    }

    fn mtime(&self) -> u64 {
        self.inner.mtime()
    }

    fn freshness(&self) -> Freshness {
        self.inner.freshness()
    }

    fn attributes(&self) -> Result<Attributes> {
        self.inner.attributes()
    }

    fn permissions(&self) -> Permissions {
        self.get()
    }
}

impl<F: Fn() -> Result<Permissions> + Send + Sync> File for Restricted<dyn File, F> {
    fn stat(&self) -> Result<Stat> {
        self.inner.stat()
    }

    fn mtime(&self) -> u64 {
        self.inner.mtime()
    }

    fn freshness(&self) -> Freshness {
        self.inner.freshness()
    }

    fn open(&self) -> Result<Arc<dyn OpenFile>> {
        self.inner.open()
    }

    fn open_version(&self, version: u64) -> Result<Arc<dyn OpenFile>> {
        self.inner.open_version(version)
    }

    fn stream(&self) -> Result<Option<Box<dyn Stream>>> {
        self.inner.stream()
    }

    fn attributes(&self) -> Result<Attributes> {
        self.inner.attributes()
    }

    fn permissions(&self) -> Permissions {
        self.get()
    }
}
