//! Lists directories and reads byte ranges of a source. Knows nothing of TileDB.
//!
//! [`Storage`] is implemented for local files, memory, and object stores (feature `remote`). Paths are
//! relative to the root of the source; the empty path is the root.
//!
//! | module | |
//! |---|---|
//! | `local`, `open_file_cache`, `walk` | files of this machine, kept open, and followed name by name |
//! | `steady` | what sees to it that a path leads to one file only |
//! | `permissions`, `audience` | who may read a local file |
//! | `remote` | object stores and web servers |
//! | `memory` | a source in memory |
//! | `mountinfo` | the kernel's table of mounts |
//! | `tail` | a file with its end in memory |
//! | `location` | the argument SOURCE |

pub mod audience;
mod local;
pub mod location;
#[cfg(any(test, feature = "internals"))]
mod memory;
pub mod mountinfo;
mod open_file_cache;
mod permissions;
#[cfg(feature = "remote")]
pub mod remote;
mod steady;
mod tail;
#[cfg(test)]
pub(crate) mod testing;
mod walk;
pub use audience::{Audience, Credentials, Reached, Want};
pub use local::LocalStorage;
#[cfg(feature = "mount")]
pub use local::lag;
#[cfg(any(test, feature = "internals"))]
pub use memory::{MemoryBlob, MemoryStorage};
pub use open_file_cache::OpenFileCache;
pub use steady::SteadyStorage;
pub use tail::Tail;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::cache::ChunkCache;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EntryType {
    Directory,
    File,
    /// In listings alone: a special file, or a link that leads to none of the others or may not be followed.
    Other,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The last component of its path.
    pub name: OsString,
    /// Its type; for a symbolic link, that of its target.
    pub entry_type: EntryType,
    /// Whether it is a symbolic link.
    pub linked: bool,
}

/// The attributes of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Its type.
    pub entry_type: EntryType,
    /// Length of a file in bytes.
    pub len: u64,
    /// Modification time in milliseconds since the Unix epoch.
    pub mtime: u64,
    /// Time of the last change of any kind, which nobody can set, in milliseconds since the Unix epoch; 0 if
    /// the backend has none.
    pub ctime: u64,
    /// Identifies the file or directory, independent of its path.
    pub identity: u64,
    /// Changes with the content, as far as the backend can tell.
    pub version: (u64, u64, u64),
}

/// Listings and attributes older than this are checked again. Remote storages have a cache of their own.
pub const RECHECK_AFTER: Duration = Duration::from_millis(100);

/// A source of files.
pub trait Storage: Send + Sync {
    /// The storage that this one stands before, if it does: what this one does not do itself is left to it.
    fn inner(&self) -> Option<&dyn Storage> {
        None
    }

    /// The entries of a directory, sorted by the bytes of their names. `NotFound` if there is no such
    /// directory.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;

    /// The attributes of `path`; `NotFound` if it does not exist, or is [`EntryType::Other`].
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// The attributes of a directory, the first of `paths`, and of the others; None for those that do not
    /// exist. `NotFound` if the first does not exist. Costs less than one by one if the others lie in the
    /// first.
    fn metadata_of(&self, paths: &[PathBuf]) -> Result<Vec<Option<Metadata>>> {
        let each = paths.iter().enumerate();
        each.map(|(number, path)| found(number, self.metadata(path)))
            .collect()
    }

    /// Opens a file for reading; `NotFound` if it does not exist, `Corrupt` if it is not a regular file.
    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>>;

    /// The path as messages should show it.
    fn display(&self, path: &Path) -> String;

    /// The path, relative to the root, of the group member at `uri`; None if it is outside of the source. The
    /// path may contain `.` and `..`.
    fn inside(&self, uri: &[u8]) -> Option<PathBuf> {
        self.inner()?.inside(uri)
    }

    /// The users who could access `path` without this program: for mounts that other users may enter. An
    /// absolute path is a local one. Nobody, if the backend cannot tell.
    fn audience(&self, path: &Path, want: Want) -> Audience {
        let inner = self.inner();
        inner.map_or_else(Audience::nobody, |inner| inner.audience(path, want))
    }

    /// [`Storage::audience`], with the identity of the file that `path` leads to and the audience is of.
    fn reached(&self, path: &Path, want: Want) -> Reached {
        match self.inner() {
            Some(inner) => inner.reached(path, want),
            None => Reached {
                audience: self.audience(path, want),
                identity: None,
            },
        }
    }

    /// [`Storage::list`], with the identity of the directory that was listed; None if directories have none.
    fn list_directory(&self, path: &Path) -> Result<(Option<u64>, Vec<DirEntry>)> {
        Ok((None, self.list(path)?))
    }

    /// The local files, which have operations of their own; None for other sources.
    fn local(&self) -> Option<&LocalStorage> {
        self.inner()?.local()
    }

    /// Whether each file that is read costs a request over the network.
    fn is_remote(&self) -> bool {
        self.inner().is_some_and(|inner| inner.is_remote())
    }

    /// How old what it tells of the source may be at most, as a rule; None if there is no bound.
    fn lag(&self) -> Option<Duration> {
        self.inner().map_or(Some(Duration::ZERO), |inner| inner.lag())
    }

    /// Drops what is cached about `path`, because it seems to be out of date, if it is of `age` or older.
    /// Returns whether it is.
    fn forget(&self, path: &Path, age: Duration) -> bool {
        self.inner().is_some_and(|inner| inner.forget(path, age))
    }

    /// A hint: those of these directories that exist will be listed soon.
    fn will_list(&self, directories: &[PathBuf]) {
        if let Some(inner) = self.inner() {
            inner.will_list(directories);
        }
    }

    /// A hint: `directory` will be listed soon. `names` returns most of the names in it, in byte order; long
    /// listings are split at them into concurrent requests. Fails only if `names` does.
    fn will_list_named(&self, directory: &Path, names: &dyn Fn() -> Result<Vec<String>>) -> Result<()> {
        match self.inner() {
            Some(inner) => inner.will_list_named(directory, names),
            None => Ok(()),
        }
    }

    /// A hint: the last `bytes` bytes of these files will be read soon.
    fn will_read_tails(&self, files: &[PathBuf], bytes: u64) {
        if let Some(inner) = self.inner() {
            inner.will_read_tails(files, bytes);
        }
    }

    /// Counts bytes that are kept for later reads in `budget`.
    fn share(&self, budget: Arc<ChunkCache>) {
        if let Some(inner) = self.inner() {
            inner.share(budget);
        }
    }
}

/// The attributes of the path with this number in [`Storage::metadata_of`].
fn found(number: usize, metadata: Result<Metadata>) -> Result<Option<Metadata>> {
    match metadata {
        Err(error) if error.kind() == ErrorKind::NotFound && number > 0 => Ok(None),
        metadata => metadata.map(Some),
    }
}

/// The size of a file system, as in statvfs(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of inodes; 0 if it does not count them.
    pub files: u64,
}

impl dyn Storage + '_ {
    /// Whether the last component of `path` is a symbolic link.
    pub fn is_link(&self, path: &Path) -> bool {
        self.local().is_some_and(|local| local.is_link(path))
    }

    /// Whether there is anything at `path`, also a special file, or a link that leads nowhere: of local
    /// files.
    pub fn is_there(&self, path: &Path) -> bool {
        self.local().is_some_and(|local| local.is_there(path))
    }

    /// `NotFound` if the directory above a local `path`, at which nothing was found, is not there either: it
    /// may be back in a moment, with what was in it. Listings of a store have all of both.
    pub fn check_above(&self, path: &Path) -> Result<()> {
        match (self.local(), path.parent()) {
            (Some(_), Some(above)) => self.metadata(above).map(|_| ()),
            _ => Ok(()),
        }
    }
}

/// An open file of a source. Its bytes do not change.
pub trait Blob: Send + Sync {
    /// Length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Fills `out` from `offset` on. `Truncated` if the file ends before, `Changed` if it has changed.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// A hint: these bytes will be read soon.
    fn will_read(&self, range: Range<u64>) {
        let _ = range;
    }

    /// A hint: a reader goes through this range, and does not go on behind it.
    fn will_read_through(&self, range: Range<u64>) {
        let _ = range;
    }

    /// What was read of this range makes no sense: it is not kept for the next reader.
    fn forget(&self, range: Range<u64>) {
        let _ = range;
    }

    /// The path as messages should show it.
    fn display(&self) -> &str;

    /// Identifies the file and its state, like [`Metadata::version`]; all 0 if files never change.
    fn version(&self) -> (u64, u64, u64) {
        (0, 0, 0)
    }

    /// Whether the file is unchanged since it was opened, as far as is known.
    fn is_unchanged(&self) -> bool {
        true
    }

    /// The `size` bytes at `offset`. `Truncated` if the file ends before; checked before memory is allocated.
    fn read(&self, offset: u64, size: u64) -> Result<Vec<u8>> {
        let end = offset.checked_add(size).filter(|&end| end <= self.len());
        let Some(length) = end.and(usize::try_from(size).ok()) else {
            return Err(
                Error::truncated(format!("{size} bytes wanted, the file has {}", self.len()))
                    .at(offset)
                    .in_file(self.display()),
            );
        };
        // For small buffers, copying zeros is faster than a zeroed allocation.
        let small = ZEROS.get(..length).map(<[u8]>::to_vec);
        let mut out = small.unwrap_or_else(|| vec![0; length]);
        self.read_at(offset, &mut out)?;
        Ok(out)
    }
}

const ZEROS: [u8; 1024] = [0; 1024];

/// The path of the local file `uri`, relative to `root`; None if it is not below `root`.
fn local_inside(root: &Path, uri: &[u8]) -> Option<PathBuf> {
    let local = Path::new(OsStr::from_bytes(uri.strip_prefix(b"file://").unwrap_or(uri)));
    local.strip_prefix(root).ok().map(Path::to_path_buf)
}

/// Joins two paths with one allocation, because this runs for every file that is looked up.
pub fn join(base: &Path, rest: &Path) -> PathBuf {
    let length = base.as_os_str().len() + rest.as_os_str().len();
    let mut joined = PathBuf::with_capacity(length + 1);
    joined.push(base);
    joined.push(rest);
    joined
}
