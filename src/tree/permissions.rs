//! Permissions of nodes: only users who can read the source files of a node may see it.
//!
//! A node has an [`Origin`]. Only this module maps origins to source paths, and paths to users.

use super::array_at::ArrayAt;
use crate::catalog::Array;
use crate::catalog::commits::{CommitFile, CommitKind};
use crate::catalog::group::{Members, OpenGroup};
use crate::catalog::listing::{ArrayListing, list_or_empty};
use crate::catalog::source::GROUP_DIRECTORY;
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::export::joined::{Joined, JoinedSource};
use crate::filter::EncryptionKey;
use crate::fragment::Fragment;
use crate::fragment::column::Column;
use crate::fragment::schemas::SCHEMA_DIRECTORY;
use crate::storage::{Audience, EntryType, Storage, Want};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The users that may access a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Who may read the file, or traverse the directory.
    pub open: Audience,
    /// Who of these may also list the directory.
    pub list: Audience,
}

impl Permissions {
    /// Everybody may open and list the node.
    fn everybody() -> Self {
        Permissions {
            open: Audience::everybody(),
            list: Audience::everybody(),
        }
    }

    /// Only the mounting user may open the node.
    pub fn nobody() -> Self {
        Permissions {
            open: Audience::nobody(),
            list: Audience::everybody(),
        }
    }
}

/// The sources of a node.
#[derive(Clone)]
pub enum Origin {
    /// Nothing that is protected.
    Public,
    /// Only the mounting user may see the node.
    Private,
    /// A directory of the source and its entries.
    Directory(Arc<Engine>, PathBuf),
    /// All files in the named subdirectory of a group.
    Group(Arc<OpenGroup>, &'static str),
    /// The directory of an array.
    Array(Arc<Array>),
    /// The node of this name in the directory of an array.
    InArray(ArrayAt, &'static str),
    /// The schema file with this name.
    Schema(Arc<Array>, String),
    /// The enumeration file with this name.
    Enumeration(ArrayAt, Vec<u8>),
    /// The cells that a reader of the array sees.
    Cells(ArrayAt),
    /// Like `Cells`, with the values of enumerations.
    LabelledCells(ArrayAt),
    /// Like `LabelledCells`, with the array's metadata.
    DescribedCells(ArrayAt),
    /// The directory of a fragment.
    Fragment(Arc<Fragment>),
    /// The metadata of a fragment.
    FragmentMetadata(Arc<Fragment>),
    /// The metadata of a fragment, and the files of one of its fields.
    Column(Arc<Fragment>, Column),
    /// All of these, the first of which is of the object that the node belongs to.
    Several(Vec<Origin>),
}

impl Origin {
    /// All that is made of these arrays, and of the members and the metadata of these groups. The node
    /// belongs to the first group.
    pub fn joined<'a>(
        groups: impl IntoIterator<Item = &'a Arc<OpenGroup>>,
        arrays: impl IntoIterator<Item = ArrayAt>,
    ) -> Origin {
        let groups = groups.into_iter();
        let groups = groups.flat_map(|group| {
            [GROUP_DIRECTORY, "__meta"].map(|directory| Origin::Group(group.clone(), directory))
        });
        let arrays = arrays.into_iter().map(Origin::DescribedCells);
        Origin::Several(groups.chain(arrays).collect())
    }

    /// All that is `made` of several arrays comes from; nothing that others may read if that is unknown.
    pub fn of_joined<J: Joined>(made: Result<Arc<J>>) -> Origin {
        let Ok(made) = made else {
            return Origin::Private;
        };
        let source = made.source();
        let arrays = source.arrays().into_iter();
        Origin::joined(source.groups(), arrays.map(|found| ArrayAt::now(&found.array)))
    }

    /// The engine of the object that the node belongs to; None for nodes of no source.
    pub fn engine(&self) -> Option<&Arc<Engine>> {
        Some(match self {
            Origin::Public | Origin::Private => return None,
            Origin::Directory(engine, _) => engine,
            Origin::Group(group, _) => group.engine(),
            Origin::Array(array) | Origin::Schema(array, _) => &array.engine,
            Origin::InArray(array_at, _)
            | Origin::Enumeration(array_at, _)
            | Origin::Cells(array_at)
            | Origin::LabelledCells(array_at)
            | Origin::DescribedCells(array_at) => &array_at.array.engine,
            Origin::Fragment(fragment) | Origin::FragmentMetadata(fragment) | Origin::Column(fragment, _) => {
                fragment.engine()
            }
            Origin::Several(origins) => return origins.first()?.engine(),
        })
    }

    /// The path in the source of the one file or directory of an array that never changes and that the node
    /// is made of; None for all others.
    pub fn made_of(&self) -> Option<PathBuf> {
        match self {
            Origin::Schema(array, name) => Some(array.schemas.path(name)),
            Origin::Enumeration(array_at, file) => array_at.array.enumeration_path(file).ok(),
            Origin::Fragment(fragment) | Origin::FragmentMetadata(fragment) | Origin::Column(fragment, _) => {
                Some(fragment.path.clone())
            }
            _ => None,
        }
    }

    /// Whether names were exchanged below an object that the node is made of.
    pub fn is_stale(&self) -> bool {
        match self {
            Origin::Several(origins) => origins.iter().any(Origin::is_stale),
            _ => self.engine().is_some_and(|engine| engine.is_stale()),
        }
    }

    /// What the list of sources depends on: while it is the same, so are the sources.
    pub fn basis(&self) -> Result<Basis> {
        Ok(match self {
            Origin::Public
            | Origin::Private
            | Origin::Directory(..)
            | Origin::Fragment(_)
            | Origin::FragmentMetadata(_)
            | Origin::Column(..) => Basis::Fixed,
            Origin::Group(group, _) => Basis::Members(group.members()?),
            Origin::Array(array) | Origin::Schema(array, _) => Basis::Listing(array.listing()?),
            Origin::InArray(array_at, _)
            | Origin::Enumeration(array_at, _)
            | Origin::Cells(array_at)
            | Origin::LabelledCells(array_at)
            | Origin::DescribedCells(array_at) => Basis::Listing(array_at.array.listing()?),
            Origin::Several(origins) => {
                Basis::Several(origins.iter().map(Origin::basis).collect::<Result<_>>()?)
            }
        })
    }

    /// Who may see a node of this origin, by the current permissions in the source. If these cannot be
    /// determined, only the mounting user.
    pub fn permissions(&self) -> Permissions {
        let Some(engine) = self.engine() else {
            return match self {
                Origin::Public => Permissions::everybody(),
                _ => Permissions::nobody(),
            };
        };
        let sources = Sources {
            storage: &*engine.storage,
            permissions: Permissions::everybody(),
        };
        match self.sources(sources) {
            Ok(sources) => sources.permissions,
            Err(error) => {
                log::debug!("permissions: {error}");
                Permissions::nobody()
            }
        }
    }

    fn sources<'a>(&self, sources: Sources<'a>) -> Result<Sources<'a>> {
        Ok(match self {
            Origin::Public => sources,
            Origin::Private => sources.nobody(),
            Origin::Directory(_, path) => sources.search(path).listing(path),
            Origin::Group(group, directory) => {
                let (engine, path) = (group.engine(), group.path());
                let sources = sources.key(engine.key_for(path)).search(path).listing(path);
                sources.directory(engine, &path.join(directory))?
            }
            Origin::Array(array) => sources.array(array).listing(&array.path),
            Origin::InArray(array_at, name) => sources.in_array(array_at, name)?,
            Origin::Schema(array, name) => sources.array(array).read(&array.schemas.path(name)),
            Origin::Enumeration(array_at, file) => {
                let path = array_at.array.enumeration_path(file)?;
                sources.array(&array_at.array).schema(array_at)?.read(&path)
            }
            Origin::Cells(array_at) => sources.view(array_at)?,
            Origin::LabelledCells(array_at) => sources.view(array_at)?.labels(array_at)?,
            Origin::DescribedCells(array_at) => {
                sources.view(array_at)?.labels(array_at)?.metadata(array_at)?
            }
            Origin::Fragment(fragment) => {
                let sources = sources.key(fragment.key());
                sources.search(&fragment.path).listing(&fragment.path)
            }
            Origin::FragmentMetadata(fragment) => sources.fragment(fragment)?,
            Origin::Column(fragment, column) => sources.fragment(fragment)?.files(column.files()?),
            Origin::Several(origins) => origins
                .iter()
                .try_fold(sources, |sources, origin| origin.sources(sources))?,
        })
    }
}

/// What the list of a node's sources depends on.
pub enum Basis {
    /// Nothing that changes.
    Fixed,
    /// The listing of an array.
    Listing(Arc<ArrayListing>),
    /// The members of a group.
    Members(Arc<Members>),
    /// All of these.
    Several(Vec<Basis>),
}

impl Basis {
    /// Whether nothing has changed between the two.
    pub fn is(&self, other: &Basis) -> bool {
        match (self, other) {
            (Basis::Fixed, Basis::Fixed) => true,
            (Basis::Listing(one), Basis::Listing(other)) => Arc::ptr_eq(one, other),
            (Basis::Members(one), Basis::Members(other)) => Arc::ptr_eq(one, other),
            (Basis::Several(one), Basis::Several(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is(other))
            }
            _ => false,
        }
    }
}

/// Collects the sources of a node. Each method adds some, and removes users who may not read them.
struct Sources<'a> {
    storage: &'a dyn Storage,
    permissions: Permissions,
}

impl Sources<'_> {
    /// Leaves nobody but the mounting user.
    fn nobody(mut self) -> Self {
        self.permissions.open.and(&Audience::nobody());
        self
    }

    fn open(mut self, path: &Path, want: Want) -> Self {
        let audience = self.storage.audience(path, want);
        self.permissions.open.and(&audience);
        self
    }

    /// Adds the content of the file at `path`.
    fn read(self, path: &Path) -> Self {
        self.open(path, Want::Read)
    }

    /// Adds the content of these files.
    fn files(self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        paths.into_iter().fold(self, |sources, path| sources.read(&path))
    }

    /// Adds the directory at `path`: its entries and the content of its files.
    fn directory(self, engine: &Engine, path: &Path) -> Result<Self> {
        let entries = list_or_empty(engine, path)?.into_iter();
        let files = entries.filter(|entry| entry.entry_type == EntryType::File);
        Ok(self.names(path).files(files.map(|entry| path.join(entry.name))))
    }

    /// Adds traversing the directory at `path`.
    fn search(self, path: &Path) -> Self {
        self.open(path, Want::Search)
    }

    /// Adds the entries of the directory at `path`.
    fn names(self, path: &Path) -> Self {
        self.open(path, Want::List)
    }

    /// Adds the entries of the directory at `path`, only for listing the node.
    fn listing(mut self, path: &Path) -> Self {
        let audience = self.storage.audience(path, Want::List);
        self.permissions.list.and(&audience);
        self
    }

    /// Adds the key file, if there is one: only users who can read the key may see decrypted data.
    fn key(self, key: Option<&EncryptionKey>) -> Self {
        match key.and_then(EncryptionKey::file) {
            Some(file) => self.read(file),
            None => self,
        }
    }

    /// Adds the array's directory and its key.
    fn array(self, array: &Array) -> Self {
        self.search(&array.path).key(array.key.as_ref())
    }

    /// Adds the sources of the node `name` in the directory of the array.
    fn in_array(self, array_at: &ArrayAt, name: &str) -> Result<Self> {
        let array = &*array_at.array;
        let sources = self.array(array);
        let names_in = |sources: Self, directory: &str| {
            let directory = array.path.join(directory);
            let sources = sources.search(&directory).listing(&directory);
            sources.listing(&array.path)
        };
        Ok(match name {
            "schema.json" | "enumerations" | "labels" => sources.schema(array_at)?,
            "metadata.json" => sources.metadata(array_at)?,
            "schemas" => names_in(sources, SCHEMA_DIRECTORY),
            "fragments" => names_in(sources, "__fragments"),
            // The entries are the timestamps in the names of fragments, commits, schemas and metadata.
            "at" => {
                let directories = [SCHEMA_DIRECTORY, "__meta"].map(|name| array.path.join(name));
                let sources = sources.array_listing(array, false)?;
                directories
                    .iter()
                    .fold(sources, |sources, path| sources.names(path))
            }
            "commits.json" => sources.array_listing(array, true)?.schema(array_at)?,
            // "fragments.json", "consolidated_metadata.json"
            _ => sources.array_listing(array, false)?.all_fragments(array)?,
        })
    }

    /// Adds the current schema.
    fn schema(self, array_at: &ArrayAt) -> Result<Self> {
        let file = array_at.schema_file()?;
        let path = array_at.array.schemas.path(&file.name);
        Ok(match path.parent() {
            Some(directory) => self.names(directory).read(&path),
            None => self.read(&path),
        })
    }

    /// Adds the sources of an array's listing: names of fragments and commits, and commit files with content,
    /// or with `all_commits` all of them.
    fn array_listing(self, array: &Array, all_commits: bool) -> Result<Self> {
        let directories = ["", "__fragments", "__commits", "__fragment_meta"];
        let sources = directories
            .iter()
            .fold(self, |sources, name| sources.names(&array.path.join(name)));
        let listing = array.listing()?;
        let commits = listing.commits.iter().filter(|commit| {
            let has_content = !matches!(commit.kind, CommitKind::Ok | CommitKind::Write);
            all_commits || has_content
        });
        Ok(sources.files(commits.map(CommitFile::path)))
    }

    /// Adds the metadata of all fragments and all schemas.
    fn all_fragments(self, array: &Array) -> Result<Self> {
        let listing = array.listing()?;
        let schemas = listing.schemas.iter().map(|file| array.schemas.path(&file.name));
        let fragments = listing.fragments.iter().map(|f| f.fragment.metadata_path());
        let consolidated = listing.consolidated_metadata.iter().cloned();
        Ok(self.files(schemas.chain(fragments).chain(consolidated)))
    }

    /// Adds all files that a reader of cells needs.
    fn cells(self, array_at: &ArrayAt) -> Result<Self> {
        let array = &*array_at.array;
        let sources = self.array(array).array_listing(array, true)?;
        let snapshot = array_at.snapshot()?;
        let mut fragments = snapshot.fragments();
        fragments.try_fold(sources.all_fragments(array)?, |sources, entry| {
            sources.directory(&array.engine, &entry.fragment.path)
        })
    }

    /// Adds all files that a reader of cells needs, and those of dimension labels, by which parts may be
    /// named.
    fn view(self, array_at: &ArrayAt) -> Result<Self> {
        let schema = array_at.schema()?;
        let labels = schema.dimension_labels.iter();
        let mut arrays = labels.filter_map(|label| array_at.array.label(label));
        arrays.try_fold(self.cells(array_at)?, |sources, array| {
            let when = array_at.when.clone();
            sources.cells(&ArrayAt { array, when })
        })
    }

    /// Adds the enumerations of the current schema.
    fn labels(self, array_at: &ArrayAt) -> Result<Self> {
        let schema = array_at.schema()?;
        let mut enumerations = schema.enumerations.iter();
        enumerations.try_fold(self, |sources, enumeration| {
            Ok(sources.read(&array_at.array.enumeration_path(&enumeration.file)?))
        })
    }

    /// Adds the array's metadata.
    fn metadata(self, array_at: &ArrayAt) -> Result<Self> {
        let sources = self.names(&array_at.array.path.join("__meta"));
        Ok(sources.files(array_at.metadata_paths()?))
    }

    /// Adds a fragment's metadata.
    fn fragment(self, fragment: &Fragment) -> Result<Self> {
        let sources = self.key(fragment.key()).read(&fragment.metadata_path());
        match fragment.look() {
            Ok(info) => Ok(sources.read(&fragment.schema_path(&info))),
            // Without the key, only the unencrypted part of the footer is shown.
            Err(error) if matches!(error.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey) => Ok(sources),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Blob, DirEntry, Metadata};

    /// A storage that everybody may read.
    struct Open;

    impl Storage for Open {
        fn list(&self, _: &Path) -> Result<Vec<DirEntry>> {
            unreachable!()
        }

        fn metadata(&self, _: &Path) -> Result<Metadata> {
            unreachable!()
        }

        fn open(&self, _: &Path) -> Result<Arc<dyn Blob>> {
            unreachable!()
        }

        fn display(&self, _: &Path) -> String {
            unreachable!()
        }

        fn audience(&self, _: &Path, _: Want) -> Audience {
            Audience::everybody()
        }
    }

    #[test]
    fn what_comes_from_something_private_too_is_private() {
        let engine = Engine::new(Arc::new(Open), 1, Vec::new(), Arc::default());
        let directory = Origin::Directory(Arc::new(engine), PathBuf::new());
        assert_eq!(directory.permissions(), Permissions::everybody());
        let both = Origin::Several(vec![directory, Origin::Private]);
        assert_eq!(both.permissions().open, Audience::nobody());
    }
}
