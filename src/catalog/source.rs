//! Opens a source; tells arrays, groups and plain directories apart.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/object/object.cc>

use super::Array;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::fragment::schemas::{LEGACY_SCHEMA, SCHEMA_DIRECTORY};
use crate::runtime::stats::Stats;
use crate::storage::location::Location;
#[cfg(feature = "remote")]
use crate::storage::remote::{
    RemoteSettings, RemoteStorage,
    store::{self, StoreOptions},
};
use crate::storage::{EntryType, LocalStorage, Storage};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "remote")]
use std::time::Duration;

/// Options for opening a source.
///
/// ```
/// use tiledbfs::{Source, SourceOptions};
///
/// let mut options = SourceOptions::default();
/// options.cache_size = 64 << 20;
/// let source = Source::open("tests/data/sample", &options)?;
/// # Ok::<(), tiledbfs::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SourceOptions {
    /// The size of the cache of decoded data, in bytes; 256 MiB by default.
    pub cache_size: u64,
    /// Keys of encrypted arrays, by path relative to the source; the empty path is the source itself. A key
    /// applies to the array at its path and to all below. Of several keys, the longest path counts.
    pub keys: Vec<(PathBuf, EncryptionKey)>,
    /// Whether symbolic links that lead out of a local source are followed.
    pub follow_symlinks: bool,
    /// Options for object stores.
    #[cfg(feature = "remote")]
    pub store: StoreOptions,
}

impl Default for SourceOptions {
    fn default() -> Self {
        SourceOptions {
            cache_size: 256 << 20,
            keys: Vec::new(),
            follow_symlinks: false,
            #[cfg(feature = "remote")]
            store: StoreOptions::default(),
        }
    }
}

/// A directory, or a prefix in an object store, that contains arrays. They share a cache.
pub struct Source(pub(crate) Arc<Engine>);

impl Source {
    /// Opens a local path, or with the feature `remote` a URL such as `s3://bucket/prefix`. Listings of an
    /// object store are cached for a minute. Reads no array.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is nothing, `Unsupported` for a URL without the feature, `InvalidInput` for a URL
    /// that contains credentials or has no bucket. Also fails if the store does not answer.
    pub fn open(location: impl AsRef<OsStr>, options: &SourceOptions) -> Result<Source> {
        let stats: Arc<Stats> = Arc::default();
        let storage: Arc<dyn Storage> = match Location::parse(location.as_ref())? {
            Location::Local(path) => {
                Arc::new(LocalStorage::new(&path, options.follow_symlinks, stats.clone())?)
            }
            #[cfg(feature = "remote")]
            Location::Remote(url) => {
                let settings = RemoteSettings {
                    refresh: Some(Duration::from_secs(60)),
                    disk_cache: None,
                    stats: stats.clone(),
                    memory: Arc::default(),
                };
                RemoteStorage::open(store::open(&url, &options.store, stats.clone())?, settings)?
            }
            #[cfg(not(feature = "remote"))]
            Location::Remote(_) => return Err(crate::storage::location::without_stores()),
        };
        let keys = options.keys.clone();
        Ok(Source(Arc::new(Engine::new(
            storage,
            options.cache_size,
            keys,
            stats,
        ))))
    }

    /// The array at `path`, relative to the source; empty for the source itself. Reads nothing: if there is
    /// no array, opening a view fails.
    pub fn array(&self, path: impl Into<PathBuf>) -> Arc<Array> {
        Arc::new(Array::new(self.0.clone(), path.into()))
    }
}

impl Array {
    /// The array at a local path or URL, opened like [`Source::open`] with default options.
    ///
    /// # Errors
    ///
    /// Those of [`Source::open`].
    pub fn open(location: impl AsRef<OsStr>) -> Result<Arc<Array>> {
        Ok(Source::open(location, &SourceOptions::default())?.array(""))
    }
}

/// The directory of a group's details.
pub const GROUP_DIRECTORY: &str = "__group";

/// The marker of a group.
const GROUP_FILE: &str = "__tiledb_group.tdb";

/// The kind of a directory.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ObjectKind {
    Array,
    Group,
    Directory,
}

/// Whether the directory at `path` is an array, a group or neither: [`classify_entered`], but who may not
/// enter it sees a plain directory. A store refuses what it likes.
pub fn classify(engine: &Engine, path: &Path) -> Result<ObjectKind> {
    match classify_entered(engine, path) {
        Err(error)
            if engine.storage.local().is_some()
                && matches!(error.kind(), ErrorKind::Io(libc::EACCES | libc::EPERM)) =>
        {
            engine.storage.metadata(path)?;
            Ok(ObjectKind::Directory)
        }
        found => found,
    }
}

/// Whether the directory at `path` is an array, a group or neither. A failure to read it, and something else
/// in place of what tells, is an error, so that an array never looks like a plain directory.
pub fn classify_entered(engine: &Engine, path: &Path) -> Result<ObjectKind> {
    let is_local = engine.storage.local().is_some();
    let is = |name: &str, wanted: EntryType| {
        let at = path.join(name);
        let found = engine.storage.metadata(&at);
        match found.map_err(|error| (error.kind(), error)) {
            Ok(metadata) if metadata.entry_type == wanted => Ok(true),
            // The marker of an empty directory, which listings of a store give without its slash.
            Ok(metadata) if !is_local && wanted == EntryType::Directory && metadata.len == 0 => Ok(false),
            Err((ErrorKind::Io(_), error)) => Err(error),
            Err((kind, error)) if !is_local && kind != ErrorKind::NotFound => Err(error),
            Err(_) if !engine.storage.is_there(&at) => Ok(false),
            _ => Err(misplaced(engine, &at)),
        }
    };
    if is(SCHEMA_DIRECTORY, EntryType::Directory)? || is(LEGACY_SCHEMA, EntryType::File)? {
        return Ok(ObjectKind::Array);
    }
    if is(GROUP_DIRECTORY, EntryType::Directory)? || is(GROUP_FILE, EntryType::File)? {
        return Ok(ObjectKind::Group);
    }
    engine.storage.metadata(path)?;
    Ok(ObjectKind::Directory)
}

/// The error of something at `path` in place of a file or a directory of TileDB.
pub fn misplaced(engine: &Engine, path: &Path) -> Error {
    let message = "it is of another type than TileDB's, or a link that leads nowhere or may not be followed";
    Error::new(ErrorKind::Missing, message).in_file(engine.storage.display(path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::catalog::time::TimeRange;
    use crate::runtime::lock;
    use crate::storage::{Blob, DirEntry, MemoryStorage, Metadata, Storage};
    use std::sync::Mutex;

    /// A copy of a directory, of which one path is refused for a while.
    pub(crate) struct Refusing {
        files: MemoryStorage,
        refused: Mutex<Option<(PathBuf, ErrorKind)>>,
    }

    impl Refusing {
        pub(crate) fn of(root: &str, refused: &str, kind: ErrorKind) -> (Arc<Refusing>, Source) {
            let storage = Arc::new(Refusing {
                files: MemoryStorage::copy_of(Path::new(root)).unwrap(),
                refused: Mutex::new(Some((refused.into(), kind))),
            });
            let engine = Engine::new(storage.clone(), 1 << 20, Vec::new(), Arc::default());
            (storage, Source(Arc::new(engine)))
        }

        fn check(&self, path: &Path) -> Result<()> {
            match &*lock(&self.refused) {
                Some((refused, kind)) if path.starts_with(refused) => Err(Error::new(*kind, "refused")),
                _ => Ok(()),
            }
        }
    }

    impl Storage for Refusing {
        fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
            self.check(path)?;
            self.files.list(path)
        }

        fn metadata(&self, path: &Path) -> Result<Metadata> {
            self.check(path)?;
            self.files.metadata(path)
        }

        fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
            self.check(path)?;
            self.files.open(path)
        }

        fn display(&self, path: &Path) -> String {
            self.files.display(path)
        }
    }

    #[test]
    fn an_array_that_a_store_refuses_is_not_absent() {
        let kind = |kind| {
            let (_, source) = Refusing::of("tests/data/sample", "weather/__schema", kind);
            classify(&source.0, Path::new("weather")).map_err(|error| error.kind())
        };
        let refused = ErrorKind::Io(libc::EACCES);
        assert_eq!(kind(refused), Err(refused));
        assert_eq!(kind(ErrorKind::Unsupported), Err(ErrorKind::Unsupported));
        assert_eq!(kind(ErrorKind::NotFound), Ok(ObjectKind::Directory));
    }

    /// The number of cells of `sparse`.
    fn cells(source: &Source) -> std::result::Result<Vec<u64>, ErrorKind> {
        let view = source.array("sparse").at(TimeRange::ALL).open();
        view.and_then(|view| view.shape()).map_err(|error| error.kind())
    }

    #[test]
    fn a_fragment_is_not_uncommitted_because_a_store_refuses_it() {
        let root = "tests/data/versions/v03";
        let metadata = "sparse/__10_10_8326eb6cd4634d30b26c5ccbc7892de3/__fragment_metadata.tdb";
        let refused = ErrorKind::Io(libc::EACCES);
        let (storage, source) = Refusing::of(root, metadata, refused);
        assert_eq!(cells(&source), Err(refused));
        *lock(&storage.refused) = None;
        let whole = Source::open(root, &SourceOptions::default()).unwrap();
        assert_eq!(cells(&source), cells(&whole));
    }

    #[test]
    fn a_schema_that_was_damaged_leaves_no_error() {
        let root = "tests/data/versions/v22";
        let (storage, source) = Refusing::of(
            root,
            "sparse/__schema/__1_1_5513743ff39ac3f1e318ada9ebb3e1ef",
            ErrorKind::Corrupt,
        );
        assert_eq!(cells(&source), Err(ErrorKind::Corrupt));
        *lock(&storage.refused) = None;
        let whole = Source::open(root, &SourceOptions::default()).unwrap();
        assert_eq!(cells(&source), cells(&whole));
    }

    #[test]
    fn which_fragments_are_seen_is_known_without_the_schema() {
        let seen = |source: &Source| -> Vec<String> {
            let until = TimeRange::until(15);
            let snapshot = source.array("sparse").snapshot(Some(until)).unwrap();
            snapshot.fragments().map(|entry| entry.name.clone()).collect()
        };
        let root = "tests/data/versions/v22";
        let (_, locked) = Refusing::of(
            root,
            "sparse/__schema/__1_1_5513743ff39ac3f1e318ada9ebb3e1ef",
            ErrorKind::KeyRequired,
        );
        let whole = Source::open(root, &SourceOptions::default()).unwrap();
        assert_eq!(seen(&locked), seen(&whole));
    }

    #[test]
    fn a_schema_that_is_refused_for_a_moment_leaves_no_change_unseen() {
        let refused = "evolved/__schema/__1_1_5fc3f2021786e47b8cfa2e709558b912";
        let root = "tests/data/versions/v22";
        let changed = |source: &Source| {
            let view = source.array("evolved").at(TimeRange::ALL).open().unwrap();
            move || view.may_be_unreadable().unwrap().into_owned()
        };
        let whole = changed(&Source::open(root, &SourceOptions::default()).unwrap())();
        let (storage, source) = Refusing::of(root, refused, ErrorKind::Io(libc::EIO));
        let found = changed(&source);
        assert!(found().iter().zip(&whole).all(|(found, whole)| found >= whole));
        assert_ne!(found(), whole);
        *lock(&storage.refused) = None;
        assert_eq!(found(), whole, "it is kept");
        let (_, source) = Refusing::of(root, refused, ErrorKind::Corrupt);
        assert!(!changed(&source)().contains(&true));
    }

    #[test]
    fn who_stops_waiting_for_commits_leaves_no_error() {
        let root = "tests/data/versions/v22";
        let consolidated = "sparse/__commits/__10_50_498b41bae35ccdb194a28c2ae13bf45a_22.con";
        let (storage, source) = Refusing::of(root, consolidated, ErrorKind::Abandoned);
        assert_eq!(cells(&source), Err(ErrorKind::Abandoned));
        *lock(&storage.refused) = None;
        let whole = Source::open(root, &SourceOptions::default()).unwrap();
        assert_eq!(cells(&source), cells(&whole));
    }

    #[test]
    fn arrays_of_a_source_are_found_by_their_paths() {
        let source = Source::open("tests/data/sample", &SourceOptions::default()).unwrap();
        let view = source.array("weather").at(TimeRange::ALL).open().unwrap();
        assert_eq!(view.shape().unwrap(), [365, 6]);
        let fragments = view.fragments();
        let cells = fragments[1].field("temperature").unwrap();
        assert_eq!(cells.count(), fragments[1].outline().unwrap().cells);
        assert_eq!(
            fragments[1].field("none").err().map(|e| e.kind()),
            Some(ErrorKind::NotFound)
        );
        assert!(source.array("none").at(TimeRange::ALL).open().is_err());
        let missing = Source::open("tests/data/none", &SourceOptions::default());
        assert_eq!(missing.err().map(|e| e.kind()), Some(ErrorKind::NotFound));
    }
}
