//! Listing directories and reading byte ranges of a source. Knows nothing of TileDB.
//!
//! [`Storage`] is the one door to the data: local files, memory, and object stores (feature `remote`) are
//! behind it. Paths are relative to the root of the source; the empty path is the root.

pub mod audience;
mod local;
pub mod location;
#[cfg(any(test, feature = "internals"))]
mod memory;
mod open_file_cache;
mod permissions;
#[cfg(feature = "remote")]
pub mod remote;
mod tail;
pub use audience::{Audience, Want};
pub use local::LocalStorage;
#[cfg(any(test, feature = "internals"))]
pub use memory::{MemoryBlob, MemoryStorage};
pub use open_file_cache::OpenFileCache;
pub use tail::Tail;

use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a path of the source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EntryType {
    Directory,
    File,
}

/// One name in a directory of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Its last component.
    pub name: OsString,
    /// What it is; of a symbolic link, what that leads to.
    pub entry_type: EntryType,
    /// Whether it is a symbolic link.
    pub linked: bool,
}

/// What is known of a path without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub entry_type: EntryType,
    /// Bytes of a file.
    pub len: u64,
    /// Modification time in milliseconds since the Unix epoch.
    pub mtime: u64,
    /// Identifies the file or directory, whatever path leads to it.
    pub identity: u64,
    /// Differs between two states of a path whose content differs, as far as the backend can tell.
    pub version: (u64, u64, u64),
}

/// For how long what was found of a source is used without looking again. A storage may answer that look from
/// what it knows.
pub const TRUSTED: Duration = Duration::from_millis(100);

/// For how long after its modification time a directory of this machine may change again without its version
/// showing it.
pub const RACY: Duration = Duration::from_secs(2);

/// Memory with a bound, in which a storage counts what it holds.
pub trait Budget: Send + Sync {
    /// The bound in bytes.
    fn capacity(&self) -> u64;

    /// Counts `bytes` more bytes, for which other things may be dropped.
    fn take(&self, bytes: u64);

    /// Counts `bytes` bytes less.
    fn give_back(&self, bytes: u64);
}

/// A source of files.
pub trait Storage: Send + Sync {
    /// The names in a directory, in byte order. Names that are neither a file nor a directory, and links that
    /// may not be followed, are left out.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;

    /// What is at `path`; `NotFound` when there is nothing.
    fn metadata(&self, path: &Path) -> Result<Metadata>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>>;

    /// The path as messages should show it.
    fn display(&self, path: &Path) -> String;

    /// Where the URI of a member of a group leads, relative to the root; None where that is outside of the
    /// source. The path may have `.` and `..` in it.
    fn inside(&self, uri: &[u8]) -> Option<PathBuf> {
        let _ = uri;
        None
    }

    /// The users who could do what is wanted with `path` without this program: for mounts that other users
    /// may enter. An absolute path is one of the local machine. Nobody, if the backend cannot tell.
    fn audience(&self, path: &Path, want: Want) -> Audience {
        let (_, _) = (path, want);
        Audience::nobody()
    }

    /// What only files of this machine have; None where the source is something else.
    fn local(&self) -> Option<&dyn LocalFiles> {
        None
    }

    /// Whether what is read comes from far away: each file that is opened is a request.
    fn is_remote(&self) -> bool {
        false
    }

    /// Forgets what is known of `path`, because it seems to be out of date.
    fn forget(&self, path: &Path) {
        let _ = path;
    }

    /// A hint: these directories will be looked at soon, as far as they exist.
    fn will_list(&self, directories: &[PathBuf]) {
        let _ = directories;
    }

    /// A hint: the directory will be looked at soon. If listing it takes several requests, they are made at
    /// once, split by `names`, which gives most of the names in it, in byte order. Fails if `names` does.
    fn will_list_named(&self, directory: &Path, names: &dyn Fn() -> Result<Vec<String>>) -> Result<()> {
        let (_, _) = (directory, names);
        Ok(())
    }

    /// A hint: the last `bytes` bytes of these files will be read soon.
    fn will_read_tails(&self, files: &[PathBuf], bytes: u64) {
        let (_, _) = (files, bytes);
    }

    /// Has bytes that are held for later reads count in `budget`.
    fn share(&self, budget: Arc<dyn Budget>) {
        let _ = budget;
    }
}

/// What only files of this machine have.
pub trait LocalFiles: Send + Sync {
    /// Fails while the root is missing, or is another directory than the one that was opened. Then other
    /// answers that something is missing must not be believed.
    fn check_root(&self) -> Result<()>;

    /// Whether the last component of `path` is a symbolic link.
    fn is_link(&self, path: &Path) -> bool;
}

impl dyn Storage + '_ {
    /// Whether the last component of `path` is a symbolic link.
    pub fn is_link(&self, path: &Path) -> bool {
        self.local().is_some_and(|local| local.is_link(path))
    }
}

/// An open file of the source: immutable bytes at offsets.
pub trait Blob: Send + Sync {
    /// Length when it was opened.
    fn len(&self) -> u64;

    /// Fills `out` with the bytes at `offset`. `Truncated` when the file ends before.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// These bytes will be read soon.
    fn will_read(&self, range: Range<u64>) {
        let _ = range;
    }

    /// The path as messages should show it.
    fn display(&self) -> &str;

    /// What differs between two files, and between two states of one, as [`Metadata::version`]; all 0 where
    /// files never change.
    fn version(&self) -> (u64, u64, u64) {
        (0, 0, 0)
    }

    /// Whether it still is as it was when it was opened.
    fn is_unchanged(&self) -> bool {
        true
    }

    /// `size` bytes at `offset` in new memory, allocated only after the length has been checked against the
    /// file.
    fn read(&self, offset: u64, size: u64) -> Result<Vec<u8>> {
        let end = offset.checked_add(size).filter(|&end| end <= self.len());
        let Some(length) = end.and(usize::try_from(size).ok()) else {
            return Err(
                Error::truncated(format!("{size} bytes wanted, the file has {}", self.len()))
                    .at(offset)
                    .in_file(self.display()),
            );
        };
        // Allocators hand out small pieces fast, but not zeroed ones.
        let little = LITTLE.get(..length).map(<[u8]>::to_vec);
        let mut out = little.unwrap_or_else(|| vec![0; length]);
        self.read_at(offset, &mut out)?;
        Ok(out)
    }
}

const LITTLE: [u8; 1024] = [0; 1024];

/// The path of `uri`, one of the local machine, below `root`; None where it lies elsewhere.
fn local_inside(root: &Path, uri: &[u8]) -> Option<PathBuf> {
    let local = Path::new(OsStr::from_bytes(uri.strip_prefix(b"file://").unwrap_or(uri)));
    local.strip_prefix(root).ok().map(Path::to_path_buf)
}

/// `rest` below `base`, allocated once: paths are joined for every file that is looked at.
pub fn join(base: &Path, rest: &Path) -> PathBuf {
    let length = base.as_os_str().len().saturating_add(rest.as_os_str().len());
    let mut joined = PathBuf::with_capacity(length.saturating_add(1));
    joined.push(base);
    joined.push(rest);
    joined
}
