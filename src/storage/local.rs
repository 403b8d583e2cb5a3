//! Local files, read with `pread`.
//!
//! If an open file shrinks, `pread` reports a short read, where a mapping would raise SIGBUS. If an open file
//! is written to, reads fail, so that old and new bytes are never mixed. A file that is replaced or deleted
//! stays readable through its open descriptor.

use super::open_file_cache::is_out_of_descriptors;
use super::permissions::PermissionCache;
use super::{Audience, Blob, DirEntry, EntryType, LocalFiles, Metadata, Storage, Want, join, local_inside};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Stats;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A local directory tree.
pub struct LocalStorage {
    /// Canonical path.
    root: PathBuf,
    /// Device and inode of the root.
    identity: (u64, u64),
    follow_symlinks: bool,
    permissions: PermissionCache,
    stats: Arc<Stats>,
}

impl LocalStorage {
    /// Opens the tree below `root`; fails if `root` does not exist. Unless `follow_symlinks`, links that lead
    /// out of the tree count as missing.
    pub fn new(root: &Path, follow_symlinks: bool, stats: Arc<Stats>) -> Result<Self> {
        let place = |e: io::Error| Error::io(&e).in_file(root.display());
        let root = fs::canonicalize(root).map_err(place)?;
        let metadata = fs::metadata(&root).map_err(place)?;
        Ok(LocalStorage {
            identity: (metadata.dev(), metadata.ino()),
            root,
            follow_symlinks,
            permissions: PermissionCache::default(),
            stats,
        })
    }

    /// The absolute path. Unless links are followed, resolves it; `NotFound` if it leads out of the tree.
    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let full = join(&self.root, path);
        if self.follow_symlinks {
            return Ok(full);
        }
        let real = fs::canonicalize(&full).map_err(|e| self.error(&e, path))?;
        if real.starts_with(&self.root) {
            Ok(real)
        } else {
            Err(
                Error::not_found("a symbolic link leads out of the source and is not followed")
                    .in_file(self.display(path)),
            )
        }
    }

    /// Opens `path`; `NotFound` if it leads out of the tree. One `openat2` suffices for a path without links.
    /// Paths with links, and all paths on kernels before 5.6, are resolved first.
    fn open_inside(&self, path: &Path, flags: OFlag) -> Result<File> {
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if plain && !self.follow_symlinks {
            let how = OpenHow::new()
                .flags(flags | OFlag::O_CLOEXEC)
                .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
            match openat2(AT_FDCWD, &join(&self.root, path), how) {
                Ok(file) => return Ok(file.into()),
                Err(Errno::ENOENT) => return Err(self.error(&Errno::ENOENT.into(), path)),
                Err(_) => {}
            }
        }
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits());
        options
            .open(self.resolve(path)?)
            .map_err(|e| self.error(&e, path))
    }

    fn error(&self, error: &io::Error, path: &Path) -> Error {
        let error = match error.raw_os_error() {
            Some(libc::ELOOP) => Error::not_found("a loop of symbolic links"),
            Some(libc::ENAMETOOLONG) => Error::not_found("the path is too long"),
            _ if path.as_os_str().as_bytes().contains(&0) => Error::not_found("the path contains a NUL byte"),
            _ => Error::io(error),
        };
        // If the source itself is gone, "not found" would make it look empty.
        if error.kind() == ErrorKind::NotFound
            && let Err(gone) = self.check_root()
        {
            return gone;
        }
        error.in_file(self.display(path))
    }

    /// The entry to list; None for special files, broken links, and links out of the tree.
    fn classify(&self, directory: &Path, entry: &fs::DirEntry) -> Result<Option<DirEntry>> {
        let Ok(file_type) = entry.file_type() else {
            return Ok(None);
        };
        let name = entry.file_name();
        let linked = file_type.is_symlink();
        let entry_type = if linked {
            match self.metadata(&directory.join(&name)) {
                Ok(metadata) => metadata.entry_type,
                Err(e) if is_out_of_descriptors(&e) => return Err(e),
                Err(_) => return Ok(None),
            }
        } else if file_type.is_dir() {
            EntryType::Directory
        } else if file_type.is_file() {
            EntryType::File
        } else {
            return Ok(None);
        };
        Ok(Some(DirEntry {
            name,
            entry_type,
            linked,
        }))
    }
}

impl Storage for LocalStorage {
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.resolve(path)?).map_err(|e| self.error(&e, path))? {
            let entry = entry.map_err(|e| self.error(&e, path))?;
            entries.extend(self.classify(path, &entry)?);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let file = self.open_inside(path, OFlag::O_PATH)?;
        let metadata = file.metadata().map_err(|e| self.error(&e, path))?;
        let entry_type = if metadata.is_dir() {
            EntryType::Directory
        } else if metadata.is_file() {
            EntryType::File
        } else {
            return Err(Error::not_found("neither a file nor a directory").in_file(self.display(path)));
        };
        let milliseconds = metadata
            .mtime()
            .saturating_mul(1000)
            .saturating_add(metadata.mtime_nsec() / 1_000_000);
        Ok(Metadata {
            entry_type,
            len: metadata.len(),
            mtime: u64::try_from(milliseconds).unwrap_or(0),
            identity: version(&metadata).0,
            version: version(&metadata),
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let file = self.open_inside(path, OFlag::O_RDONLY)?;
        let metadata = file.metadata().map_err(|e| self.error(&e, path))?;
        if !metadata.is_file() {
            return Err(Error::corrupt("not a regular file").in_file(self.display(path)));
        }
        self.stats.files_opened.add(1);
        Ok(Arc::new(LocalBlob {
            file,
            version: version(&metadata),
            display: self.display(path),
            stats: self.stats.clone(),
        }))
    }

    fn display(&self, path: &Path) -> String {
        if path.as_os_str().is_empty() {
            self.root.display().to_string()
        } else {
            path.display().to_string()
        }
    }

    fn inside(&self, uri: &[u8]) -> Option<PathBuf> {
        local_inside(&self.root, uri)
    }

    fn audience(&self, path: &Path, want: Want) -> Audience {
        self.permissions.audience(&join(&self.root, path), want)
    }

    fn local(&self) -> Option<&dyn LocalFiles> {
        Some(self)
    }
}

impl LocalFiles for LocalStorage {
    fn check_root(&self) -> Result<()> {
        let gone =
            |cause: String| Error::new(ErrorKind::Io(libc::EIO), cause).in_file(self.display(Path::new("")));
        // `ROOT/.` rather than `ROOT`: fails also if this process may not enter the directory.
        let metadata = fs::metadata(join(&self.root, Path::new(".")))
            .map_err(|e| gone(format!("the source cannot be reached: {e}")))?;
        if (metadata.dev(), metadata.ino()) == self.identity {
            Ok(())
        } else {
            Err(gone(
                "the source was replaced by another directory: unmount and mount it again".to_owned(),
            ))
        }
    }

    fn is_link(&self, path: &Path) -> bool {
        fs::symlink_metadata(join(&self.root, path)).is_ok_and(|metadata| metadata.is_symlink())
    }
}

/// Identity, length in bytes, and modification time in nanoseconds since the Unix epoch.
fn version(metadata: &fs::Metadata) -> (u64, u64, u64) {
    let nanoseconds = metadata
        .mtime()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(metadata.mtime_nsec())
        .cast_unsigned();
    // Inode numbers are unique only within a device.
    let identity = metadata.ino() ^ metadata.dev().rotate_left(40);
    (identity, metadata.len(), nanoseconds)
}

struct LocalBlob {
    file: File,
    /// At the time of opening.
    version: (u64, u64, u64),
    display: String,
    stats: Arc<Stats>,
}

impl Blob for LocalBlob {
    fn len(&self) -> u64 {
        self.version.1
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| {
            let error = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    Error::truncated(format!("the file ends within the {} bytes wanted", out.len()))
                }
                _ => Error::io(&error),
            };
            error.at(offset).in_file(&self.display)
        })?;
        // Checked after the read, because a write sets the time before it changes a byte.
        if !self.is_unchanged() {
            return Err(Error::corrupt("the file has changed since it was opened")
                .at(offset)
                .in_file(&self.display));
        }
        self.stats.bytes_read.add(out.len() as u64);
        Ok(())
    }

    fn version(&self) -> (u64, u64, u64) {
        self.version
    }

    fn is_unchanged(&self) -> bool {
        // If `fstat` fails, the next read reports the error.
        self.file
            .metadata()
            .map_or(true, |metadata| version(&metadata) == self.version)
    }

    fn display(&self) -> &str {
        &self.display
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use std::os::unix::fs::symlink;

    fn storage(root: &Path, follow: bool) -> LocalStorage {
        LocalStorage::new(root, follow, Arc::default()).unwrap()
    }

    #[test]
    fn links_out_of_the_source_are_missing() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("f"), b"x").unwrap();
        symlink(&outside, inside.join("leads-out")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        fs::create_dir(inside.join("real")).unwrap();
        symlink("real", inside.join("stays")).unwrap();
        let names = |s: &LocalStorage| -> Vec<_> {
            s.list(Path::new(""))
                .unwrap()
                .into_iter()
                .map(|e| e.name.into_string().unwrap())
                .collect()
        };
        assert_eq!(names(&storage(&inside, false)), ["real", "stays"]);
        assert_eq!(names(&storage(&inside, true)), ["leads-out", "real", "stays"]);
        let error = storage(&inside, false)
            .open(Path::new("leads-out/f"))
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(
            storage(&inside, true)
                .open(Path::new("leads-out/f"))
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn a_file_that_shrinks_gives_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), [7; 100]).unwrap();
        let storage = storage(dir.path(), false);
        let blob = storage.open(Path::new("f")).unwrap();
        assert_eq!(blob.read(90, 10).unwrap(), [7; 10]);
        assert_eq!(blob.read(90, u64::MAX).unwrap_err().kind(), ErrorKind::Truncated);
        File::options()
            .write(true)
            .open(dir.path().join("f"))
            .unwrap()
            .set_len(95)
            .unwrap();
        let error = blob.read(90, 10).unwrap_err();
        assert_eq!(
            (error.kind(), error.offset(), error.file()),
            (ErrorKind::Truncated, Some(90), Some("f"))
        );
    }
}
