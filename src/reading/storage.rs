//! Sources over storages that a program brings along.

use crate::catalog::source::{Source, SourceOptions};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::hash;
use crate::storage::{Blob, DirEntry, EntryType, Metadata, Storage};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A storage of a program's own: what it takes to read arrays from anywhere.
///
/// Paths are relative to the root of the storage, without `.` and `..`; the empty path is the root. Files
/// must not change once they are listed, as TileDB's never do; new ones may appear, and old ones go. Methods
/// are called from several threads at once.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::path::{Path, PathBuf};
/// use std::sync::Arc;
/// use tiledbfs::{EntryType, Error, ReadStorage, Result, Source, SourceOptions, TimeRange};
///
/// /// Files in memory, by path.
/// struct InMemory(BTreeMap<PathBuf, Vec<u8>>);
///
/// impl ReadStorage for InMemory {
///     fn list(&self, directory: &Path) -> Result<Vec<(String, EntryType)>> {
///         let mut entries = BTreeMap::new();
///         for path in self.0.keys() {
///             let Ok(below) = path.strip_prefix(directory) else { continue };
///             let mut parts = below.components();
///             if let Some(name) = parts.next() {
///                 let is_file = parts.next().is_none();
///                 let kind = if is_file { EntryType::File } else { EntryType::Directory };
///                 entries.insert(name.as_os_str().to_string_lossy().into_owned(), kind);
///             }
///         }
///         match entries.is_empty() {
///             true => Err(Error::not_found("no such directory")),
///             false => Ok(entries.into_iter().collect()),
///         }
///     }
///
///     fn metadata(&self, path: &Path) -> Result<(EntryType, u64)> {
///         match self.0.get(path) {
///             Some(bytes) => Ok((EntryType::File, bytes.len() as u64)),
///             None => self.list(path).map(|_| (EntryType::Directory, 0)),
///         }
///     }
///
///     fn read(&self, path: &Path, offset: u64, out: &mut [u8]) -> Result<()> {
///         let bytes = self.0.get(path).ok_or_else(|| Error::not_found("no such file"))?;
///         let bytes = bytes.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
///         out.copy_from_slice(bytes.ok_or_else(|| Error::truncated("the file ends before"))?);
///         Ok(())
///     }
/// }
///
/// # fn files(below: &Path, path: PathBuf, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
/// #     for entry in std::fs::read_dir(below.join(&path)).unwrap() {
/// #         let path = path.join(entry.unwrap().file_name());
/// #         match below.join(&path).is_dir() {
/// #             true => files(below, path, into),
/// #             false => drop(into.insert(path.clone(), std::fs::read(below.join(&path)).unwrap())),
/// #         }
/// #     }
/// # }
/// # let mut all = BTreeMap::new();
/// # files(Path::new("tests/data/sample"), PathBuf::new(), &mut all);
/// let storage = Arc::new(InMemory(all));
/// let source = Source::over(storage, &SourceOptions::default());
/// let view = source.array("weather").at(TimeRange::ALL).open()?;
/// assert_eq!(view.shape()?, [365, 6]);
/// assert_eq!(view.read::<f32>("temperature", 0..2)?, [1.5, 1.4]);
/// # Ok::<(), tiledbfs::Error>(())
/// ```
pub trait ReadStorage: Send + Sync {
    /// The names in a directory, in any order, each with its type. Asked again, at most ten times a second,
    /// when views are opened.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such directory. Storages without directories of their own, such as object
    /// stores, may return nothing instead.
    fn list(&self, directory: &Path) -> Result<Vec<(String, EntryType)>>;

    /// The type of a file or directory, and the length of a file in bytes.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is neither.
    fn metadata(&self, path: &Path) -> Result<(EntryType, u64)>;

    /// Fills `out` with the bytes of a file from `offset` on.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such file, `Truncated` if it ends before.
    fn read(&self, path: &Path, offset: u64, out: &mut [u8]) -> Result<()>;

    /// The path as messages show it.
    fn display(&self, path: &Path) -> String {
        path.display().to_string()
    }
}

impl Source {
    /// The root of a storage of one's own. Reads nothing. Of the options, those for links and object stores
    /// have no meaning.
    pub fn over(storage: Arc<dyn ReadStorage>, options: &SourceOptions) -> Source {
        let storage = Arc::new(Foreign {
            storage,
            looks: AtomicU64::new(0),
        });
        let keys = options.keys.clone();
        Source(Arc::new(Engine::new(
            storage,
            options.cache_size,
            keys,
            Arc::default(),
        )))
    }
}

/// A storage of a program's own, as the rest of the crate sees it.
struct Foreign {
    storage: Arc<dyn ReadStorage>,
    /// How often directories were looked at.
    looks: AtomicU64,
}

impl Foreign {
    fn place(&self, path: &Path) -> impl Fn(Error) -> Error {
        let display = self.storage.display(path);
        move |error| error.in_file(&display)
    }
}

impl Storage for Foreign {
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let place = self.place(path);
        let entries = self.storage.list(path).map_err(&place)?;
        let mut names = HashSet::new();
        for (name, _) in &entries {
            let plain = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '\0']);
            if !plain || !names.insert(name) {
                let message = format!("{name:?} in a listing is no file name, or is there twice");
                return Err(place(Error::new(ErrorKind::InvalidInput, message)));
            }
        }
        let entries = entries.into_iter().map(|(name, entry_type)| DirEntry {
            name: OsString::from(name),
            entry_type,
            linked: false,
        });
        let mut entries: Vec<DirEntry> = entries.collect();
        entries.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let (entry_type, len) = self.storage.metadata(path).map_err(self.place(path))?;
        let version = match entry_type {
            EntryType::File => (0, len, 0),
            // Nobody tells whether the names in it have changed.
            EntryType::Directory | EntryType::Other => (1, self.looks.fetch_add(1, Ordering::Relaxed), 0),
        };
        Ok(Metadata {
            entry_type,
            len,
            mtime: 0,
            ctime: 0,
            identity: hash(&path),
            version,
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let metadata = Storage::metadata(self, path)?;
        let display = self.storage.display(path);
        match metadata.entry_type {
            EntryType::File => Ok(Arc::new(File {
                storage: self.storage.clone(),
                path: path.to_owned(),
                display,
                metadata,
            })),
            EntryType::Directory | EntryType::Other => {
                Err(Error::corrupt("not a regular file").in_file(display))
            }
        }
    }

    fn display(&self, path: &Path) -> String {
        self.storage.display(path)
    }
}

/// A file of a storage of a program's own.
struct File {
    storage: Arc<dyn ReadStorage>,
    path: PathBuf,
    display: String,
    metadata: Metadata,
}

impl Blob for File {
    fn len(&self) -> u64 {
        self.metadata.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let read = self.storage.read(&self.path, offset, out);
        read.map_err(|error| error.at(offset).in_file(&self.display))
    }

    fn display(&self) -> &str {
        &self.display
    }

    fn version(&self) -> (u64, u64, u64) {
        self.metadata.version
    }
}
