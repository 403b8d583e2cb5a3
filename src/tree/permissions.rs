//! Who may see a node: nobody who could not read the files of the source that it comes from. A node says what
//! that is, its [`Origin`]; here alone it becomes paths, and these become users.

use super::moment::Moment;
use crate::array::Array;
use crate::array::column::Column;
use crate::array::commits::{CommitFile, CommitKind};
use crate::array::engine::Engine;
use crate::array::fragment::Fragment;
use crate::array::group::OpenGroup;
use crate::array::listing::list_or_empty;
use crate::array::schemas::SCHEMA_DIRECTORY;
use crate::error::{ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::storage::{Audience, EntryType, Storage, Want};
use std::path::{Path, PathBuf};
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
    fn everybody() -> Self {
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

/// What a node comes from.
#[derive(Clone)]
pub enum Origin {
    /// Nothing that anybody should not see.
    Public,
    /// Something that is for the user who mounted it, or that cannot be told.
    Private,
    /// A directory of the source, which shows the names in it.
    Directory(PathBuf),
    /// The files in this directory of a group.
    Group(Arc<OpenGroup>, &'static str),
    /// The directory of an array.
    Array(Arc<Array>),
    /// What is called so in the directory of an array.
    InArray(Moment, &'static str),
    /// The schema in this file.
    Schema(Arc<Array>, String),
    /// The enumeration in this file.
    Enumeration(Moment, Vec<u8>),
    /// The cells that a reader sees.
    Cells(Moment),
    /// These, and the labels of enumerations.
    LabelledCells(Moment),
    /// These, and the array's metadata.
    DescribedCells(Moment),
    /// The directory of a fragment.
    Fragment(Arc<Fragment>),
    /// The metadata of a fragment.
    FragmentMetadata(Arc<Fragment>),
    /// These, and the files of one of its columns.
    Column(Arc<Fragment>, Column),
}

impl Origin {
    /// Who may see what comes from it, by what `storage`, the source, says now; nobody where that cannot be
    /// told.
    pub fn permissions(&self, storage: &dyn Storage) -> Permissions {
        let sources = Sources {
            storage,
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
            Origin::Directory(path) => sources.search(path).listing(path),
            Origin::Group(group, directory) => {
                let (engine, path) = (group.engine(), group.path());
                let sources = sources.key(engine.key_for(path)).search(path).listing(path);
                sources.directory(engine, &path.join(directory))?
            }
            Origin::Array(array) => sources.array(array).listing(&array.path),
            Origin::InArray(moment, name) => sources.in_array(moment, name)?,
            Origin::Schema(array, name) => sources.array(array).read(&array.schemas.path(name)),
            Origin::Enumeration(moment, file) => {
                let path = moment.array.enumeration_path(file)?;
                sources.array(&moment.array).schema(moment)?.read(&path)
            }
            Origin::Cells(moment) => sources.cells(moment)?,
            Origin::LabelledCells(moment) => sources.cells(moment)?.labels(moment)?,
            Origin::DescribedCells(moment) => sources.cells(moment)?.labels(moment)?.metadata(moment)?,
            Origin::Fragment(fragment) => {
                let sources = sources.key(fragment.key());
                sources.search(&fragment.path).listing(&fragment.path)
            }
            Origin::FragmentMetadata(fragment) => sources.fragment(fragment)?,
            Origin::Column(fragment, column) => sources.fragment(fragment)?.files(column.files()?),
        })
    }
}

/// Collects what something comes from.
struct Sources<'a> {
    storage: &'a dyn Storage,
    permissions: Permissions,
}

impl Sources<'_> {
    fn nobody(mut self) -> Self {
        self.permissions = Permissions::nobody();
        self
    }

    fn open(mut self, path: &Path, want: Want) -> Self {
        let audience = self.storage.audience(path, want);
        self.permissions.open.and(&audience);
        self
    }

    /// It comes from the content of the file at `path`.
    fn read(self, path: &Path) -> Self {
        self.open(path, Want::Read)
    }

    /// It comes from the content of these files.
    fn files(self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        paths.into_iter().fold(self, |sources, path| sources.read(&path))
    }

    /// It comes from all files in the directory at `path`.
    fn directory(self, engine: &Engine, path: &Path) -> Result<Self> {
        let entries = list_or_empty(engine, path)?.into_iter();
        let files = entries.filter(|entry| entry.entry_type == EntryType::File);
        Ok(self.names(path).files(files.map(|entry| path.join(entry.name))))
    }

    /// It comes from something in the directory at `path`.
    fn search(self, path: &Path) -> Self {
        self.open(path, Want::Search)
    }

    /// It comes from the names in the directory at `path`.
    fn names(self, path: &Path) -> Self {
        self.open(path, Want::List)
    }

    /// Its listing, and only that, comes from the names in the directory at `path`.
    fn listing(mut self, path: &Path) -> Self {
        let audience = self.storage.audience(path, Want::List);
        self.permissions.list.and(&audience);
        self
    }

    /// It was decoded with `key`, if there is one.
    fn key(self, key: Option<&EncryptionKey>) -> Self {
        match key.and_then(EncryptionKey::file) {
            Some(file) => self.read(file),
            None => self,
        }
    }

    /// It comes from something in the array: what a key was needed for, nobody sees who may not read the file
    /// that the key is in.
    fn array(self, array: &Array) -> Self {
        self.search(&array.path).key(array.key.as_ref())
    }

    /// It is called `name` in the directory of the array.
    fn in_array(self, moment: &Moment, name: &str) -> Result<Self> {
        let array = &*moment.array;
        let sources = self.array(array);
        let names_in = |sources: Self, directory: &str| {
            let directory = array.path.join(directory);
            let sources = sources.search(&directory).listing(&directory);
            sources.listing(&array.path)
        };
        Ok(match name {
            "schema.json" | "enumerations" | "labels" => sources.schema(moment)?,
            "metadata.json" => sources.metadata(moment)?,
            "schemas" => names_in(sources, SCHEMA_DIRECTORY),
            "fragments" => names_in(sources, "__fragments"),
            // Its names are the times in the names of all that was written.
            "at" => {
                let directories = [SCHEMA_DIRECTORY, "__meta"].map(|name| array.path.join(name));
                let sources = sources.array_listing(array, false)?;
                directories
                    .iter()
                    .fold(sources, |sources, path| sources.names(path))
            }
            "commits.json" => sources.array_listing(array, true)?.schema(moment)?,
            // "fragments.json", "consolidated_metadata.json"
            _ => sources.array_listing(array, false)?.all_fragments(array)?,
        })
    }

    /// It comes from the schema in force.
    fn schema(self, moment: &Moment) -> Result<Self> {
        let file = moment.schema_file()?;
        let path = moment.array.schemas.path(&file.name);
        Ok(match path.parent() {
            Some(directory) => self.names(directory).read(&path),
            None => self.read(&path),
        })
    }

    /// It comes from all that an array's listing does: names of fragments, commits, and what these say.
    fn array_listing(self, array: &Array, all_commits: bool) -> Result<Self> {
        let directories = ["", "__fragments", "__commits", "__fragment_meta"];
        let sources = directories
            .iter()
            .fold(self, |sources, name| sources.names(&array.path.join(name)));
        let listing = array.listing()?;
        let commits = listing.commits.iter().filter(|commit| {
            let says_something = !matches!(commit.kind, CommitKind::Ok | CommitKind::Write);
            all_commits || says_something
        });
        Ok(sources.files(commits.map(CommitFile::path)))
    }

    /// It comes from the metadata of all fragments, and the schemas that they were written with.
    fn all_fragments(self, array: &Array) -> Result<Self> {
        let listing = array.listing()?;
        let schemas = listing.schemas.iter().map(|file| array.schemas.path(&file.name));
        let fragments = listing.fragments.iter().map(|f| f.fragment.metadata_path());
        let consolidated = listing.consolidated_metadata.iter().cloned();
        Ok(self.files(schemas.chain(fragments).chain(consolidated)))
    }

    /// It comes from all that readers see of the array.
    fn cells(self, moment: &Moment) -> Result<Self> {
        let array = &*moment.array;
        let sources = self.array(array).array_listing(array, true)?;
        let snapshot = moment.snapshot()?;
        let mut fragments = snapshot.fragments();
        fragments.try_fold(sources.all_fragments(array)?, |sources, entry| {
            sources.directory(&array.engine, &entry.fragment.path)
        })
    }

    /// It comes from the enumerations of the schema in force.
    fn labels(self, moment: &Moment) -> Result<Self> {
        let schema = moment.schema()?;
        let mut enumerations = schema.enumerations.iter();
        enumerations.try_fold(self, |sources, enumeration| {
            Ok(sources.read(&moment.array.enumeration_path(&enumeration.file)?))
        })
    }

    /// It comes from the array's metadata.
    fn metadata(self, moment: &Moment) -> Result<Self> {
        let sources = self.names(&moment.array.path.join("__meta"));
        Ok(sources.files(moment.metadata_paths()?))
    }

    /// It comes from a fragment's metadata.
    fn fragment(self, fragment: &Fragment) -> Result<Self> {
        let sources = self.key(fragment.key()).read(&fragment.metadata_path());
        match fragment.look() {
            Ok(info) => Ok(sources.read(&fragment.schema_path(&info))),
            // What cannot be opened without the key shows no more than the footer.
            Err(error) if matches!(error.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey) => Ok(sources),
            Err(error) => Err(error),
        }
    }
}
