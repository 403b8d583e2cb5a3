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

/// Whether the directory at `path` is an array, a group or neither. A failure to read it, and something else in
/// place of what tells, is an error, so that an array never looks like a plain directory.
pub fn classify(engine: &Engine, path: &Path) -> Result<ObjectKind> {
    let is_local = engine.storage.local().is_some();
    let is = |name: &str, wanted: EntryType| {
        let at = path.join(name);
        let found = engine.storage.metadata(&at);
        match found.map_err(|error| (error.kind(), error)) {
            Ok(metadata) if metadata.entry_type == wanted => Ok(true),
            // Who may not enter a directory may see nothing in it. A store refuses what it likes.
            Err((ErrorKind::Io(libc::EACCES | libc::EPERM), _)) if is_local => Ok(false),
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
mod tests {
    use super::*;
    use crate::ReadStorage;
    use crate::catalog::time::TimeRange;

    /// A store with one directory, which says something else of `__schema` in it.
    struct Refusing(fn() -> Error);

    impl ReadStorage for Refusing {
        fn list(&self, _: &Path) -> Result<Vec<(String, EntryType)>> {
            Ok(Vec::new())
        }
        fn metadata(&self, path: &Path) -> Result<(EntryType, u64)> {
            match path.to_str() {
                Some("a") => Ok((EntryType::Directory, 0)),
                Some("a/__schema") => Err((self.0)()),
                _ => Err(Error::not_found("nothing")),
            }
        }
        fn read(&self, _: &Path, _: u64, _: &mut [u8]) -> Result<()> {
            Err(Error::not_found("nothing"))
        }
    }

    #[test]
    fn what_a_store_refuses_is_not_absent() {
        let kind = |error| {
            let source = Source::over(Arc::new(Refusing(error)), &SourceOptions::default());
            classify(&source.0, Path::new("a")).map_err(|error| error.kind())
        };
        let refused = || Error::new(ErrorKind::Io(libc::EACCES), "403");
        assert_eq!(kind(refused), Err(ErrorKind::Io(libc::EACCES)));
        assert_eq!(
            kind(|| Error::unsupported("no listing")),
            Err(ErrorKind::Unsupported)
        );
        assert_eq!(kind(|| Error::not_found("none")), Ok(ObjectKind::Directory));
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
