//! Local files, read with `pread`.
//!
//! If an open file shrinks, `pread` reports a short read, where a mapping would raise SIGBUS. If an open file
//! is written to, reads fail, so that old and new bytes are never mixed. A file that is replaced or deleted
//! stays readable through its open descriptor.

use super::mountinfo::{MountEntry, mounts};
use super::open_file_cache::is_out_of_descriptors;
use super::permissions::PermissionCache;
use super::walk::{Place, walk};
use super::{
    Audience, Blob, DirEntry, EntryType, Metadata, Reached, Space, Storage, Want, found, join, local_inside,
};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::hash;
use crate::runtime::stats::Stats;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{
    FUSE_SUPER_MAGIC, FsType, MSDOS_SUPER_MAGIC, NFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, statfs,
};
use nix::sys::statvfs::statvfs;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

/// The error of a path that leads to a file of another kind.
const NOT_REGULAR: &str = "not a regular file";

/// Some file systems keep whole seconds only: two changes within one look the same.
const RACY_WINDOW: Duration = Duration::from_secs(2);

/// sshfs keeps the times of a directory and its listing for 20 s, each from when it was asked.
const FUSE_RACY_WINDOW: Duration = Duration::from_secs(30);

/// NFS keeps what it knows of a directory for up to a minute.
const NFS_LAG: Duration = Duration::from_secs(60);

/// A local directory tree.
pub struct LocalStorage {
    /// Canonical path.
    root: PathBuf,
    /// `ROOT/.`: it fails also if this process may not enter the directory.
    inside_root: PathBuf,
    /// The device of the root.
    device: u64,
    /// The inode number of the root; None if it [may change](renumbers).
    number: Option<u64>,
    /// When the root was made, which tells it from others where its number does not; None if nobody says.
    made: Option<Duration>,
    /// The root on an overlayfs, where it keeps its number while it is open. Elsewhere that would keep a disk
    /// or a server from being unmounted.
    _held: Option<File>,
    racy_window: Duration,
    /// Found out when it is wanted: a machine may have many mounts.
    lag: OnceLock<Duration>,
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
        // Without it every directory would look empty.
        if let Err(error) = fs::metadata("/proc/self/fd") {
            let missing = format!("local arrays need /proc/self/fd: {error}");
            return Err(Error::unsupported(missing).in_file(root.display()));
        }
        let kind = kind(&root);
        let held = match kind {
            OVERLAYFS_SUPER_MAGIC => Some(open(&root, OFlag::O_PATH | OFlag::O_CLOEXEC).map_err(place)?),
            _ => None,
        };
        let metadata = match &held {
            Some(held) => held.metadata(),
            None => fs::metadata(&root),
        };
        let metadata = metadata.map_err(place)?;
        Ok(LocalStorage {
            device: metadata.dev(),
            number: (!renumbers(kind)).then(|| metadata.ino()),
            made: made(&metadata),
            _held: held,
            racy_window: match kind {
                FUSE_SUPER_MAGIC => FUSE_RACY_WINDOW,
                _ => RACY_WINDOW,
            },
            lag: OnceLock::new(),
            inside_root: join(&root, Path::new(".")),
            root,
            follow_symlinks,
            permissions: PermissionCache::default(),
            stats,
        })
    }

    /// Opens `path`; `NotFound` if it leads out of the tree. One `openat2` suffices for a path without links.
    /// Paths with links, and all paths on kernels before 5.6, are followed step by step.
    fn open_inside(&self, path: &Path, flags: OFlag) -> Result<File> {
        let full = join(&self.root, path);
        let flags = flags | OFlag::O_CLOEXEC;
        if self.follow_symlinks {
            return open(&full, flags).map_err(|e| self.error(&e, path));
        }
        if path.components().all(|part| matches!(part, Component::Normal(_))) {
            let how = OpenHow::new()
                .flags(flags)
                .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
            match openat2(AT_FDCWD, &full, how) {
                Ok(file) => return Ok(file.into()),
                Err(Errno::ENOENT) => return Err(self.error(&Errno::ENOENT.into(), path)),
                Err(_) => {}
            }
        }
        let place = Place::root().and_then(|top| walk(&top, &full, |_| ()));
        let place = place.map_err(|e| self.error(&e, path))?;
        let number = match self.number {
            Some(number) => Ok(number),
            None => fs::metadata(&self.root).map(|root| root.ino()),
        };
        if !place.is_below((self.device, number.map_err(|e| self.error(&e, path))?)) {
            return Err(
                Error::not_found("a symbolic link leads out of the source and is not followed")
                    .in_file(self.display(path)),
            );
        }
        open(&place.path(), flags).map_err(|e| self.error(&e, path))
    }

    fn error(&self, error: &io::Error, path: &Path) -> Error {
        let error = match error.raw_os_error() {
            Some(libc::ELOOP) => Error::not_found("a loop of symbolic links"),
            Some(libc::ENAMETOOLONG) => Error::not_found("the path is too long"),
            Some(libc::ENXIO) => Error::corrupt(NOT_REGULAR),
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

    /// The attributes of the file or directory at `path`; `NotFound` if it is something else.
    fn attributes(&self, metadata: &fs::Metadata, path: &Path) -> Result<Metadata> {
        let entry_type = if metadata.is_dir() {
            EntryType::Directory
        } else if metadata.is_file() {
            EntryType::File
        } else {
            return Err(Error::not_found("neither a file nor a directory").in_file(self.display(path)));
        };
        let mut version = version(metadata);
        if entry_type == EntryType::Directory {
            // Programs that copy set a directory's mtime back after changes of its entries.
            version.2 = hash(&(version.2, metadata.ctime(), metadata.ctime_nsec()));
        }
        Ok(Metadata {
            entry_type,
            len: metadata.len(),
            mtime: milliseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime: milliseconds(metadata.ctime(), metadata.ctime_nsec()),
            identity: identity(metadata),
            version,
        })
    }

    /// The entry to list; None if it is gone.
    fn classify(&self, directory: &Path, entry: &fs::DirEntry) -> Result<Option<DirEntry>> {
        let name = entry.file_name();
        let path = directory.join(&name);
        let file_type = match entry.file_type() {
            Ok(file_type) => file_type,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.error(&e, &path)),
        };
        let linked = file_type.is_symlink();
        let entry_type = if linked {
            match self.metadata(&path) {
                Ok(metadata) => metadata.entry_type,
                Err(e) if is_out_of_descriptors(&e) => return Err(e),
                Err(e) if e.kind() == ErrorKind::NotFound => EntryType::Other,
                // It cannot be looked at: whoever wants it is told so.
                Err(_) => EntryType::Directory,
            }
        } else if file_type.is_dir() {
            EntryType::Directory
        } else if file_type.is_file() {
            EntryType::File
        } else {
            EntryType::Other
        };
        Ok(Some(DirEntry {
            name,
            entry_type,
            linked,
        }))
    }
}

impl Storage for LocalStorage {
    fn lag(&self) -> Option<Duration> {
        Some(*self.lag.get_or_init(|| lag(&self.root)))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        Ok(self.list_directory(path)?.1)
    }

    fn list_directory(&self, path: &Path) -> Result<(Option<u64>, Vec<DirEntry>)> {
        let directory = self.open_inside(path, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let listed = directory.metadata().map_err(|e| self.error(&e, path))?;
        let mut entries = Vec::new();
        // What is open, whatever the path leads to by now.
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        for entry in fs::read_dir(place).map_err(|e| self.error(&e, path))? {
            let entry = entry.map_err(|e| self.error(&e, path))?;
            entries.extend(self.classify(path, &entry)?);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((Some(identity(&listed)), entries))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let file = self.open_inside(path, OFlag::O_PATH)?;
        let metadata = file.metadata().map_err(|e| self.error(&e, path))?;
        self.attributes(&metadata, path)
    }

    fn metadata_of(&self, paths: &[PathBuf]) -> Result<Vec<Option<Metadata>>> {
        let Some((first, others)) = paths.split_first() else {
            return Ok(Vec::new());
        };
        let directory = self.open_inside(first, OFlag::O_PATH)?;
        let metadata = directory.metadata().map_err(|e| self.error(&e, first))?;
        let mut all = vec![Some(self.attributes(&metadata, first)?)];
        // What is open, whatever the path leads to by now.
        let place = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        for (number, path) in others.iter().enumerate() {
            let name = path
                .file_name()
                .filter(|_| path.parent() == Some(first.as_path()));
            let metadata = match name.map(|name| fs::symlink_metadata(place.join(name))) {
                // Without a link on the way, it lies in the source.
                Some(Ok(metadata)) if !metadata.is_symlink() => self.attributes(&metadata, path),
                Some(Err(error)) => Err(self.error(&error, path)),
                _ => self.metadata(path),
            };
            all.push(found(number + 1, metadata)?);
        }
        Ok(all)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        // A pipe would not open before somebody writes to it.
        let file = self.open_inside(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
        let metadata = file.metadata().map_err(|e| self.error(&e, path))?;
        if !metadata.is_file() {
            return Err(Error::corrupt(NOT_REGULAR).in_file(self.display(path)));
        }
        self.stats.files_opened.add(1);
        OPEN_BLOBS.fetch_add(1, Ordering::Relaxed);
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
        self.reached(path, want).audience
    }

    fn reached(&self, path: &Path, want: Want) -> Reached {
        self.permissions.reached(&join(&self.root, path), want)
    }

    fn local(&self) -> Option<&LocalStorage> {
        Some(self)
    }
}

impl LocalStorage {
    /// How many local files are open to be read.
    pub fn open_files() -> u64 {
        OPEN_BLOBS.load(Ordering::Relaxed)
    }

    /// Fails while the root is missing, or is not the directory that was opened. While it does, "not found"
    /// from other calls means nothing.
    pub fn check_root(&self) -> Result<()> {
        let gone =
            |cause: String| Error::new(ErrorKind::Io(libc::EIO), cause).in_file(self.display(Path::new("")));
        let metadata = fs::metadata(&self.inside_root)
            .map_err(|e| gone(format!("the source cannot be reached: {e}")))?;
        let is_same = match self.number {
            Some(number) => metadata.ino() == number,
            None => self.made.is_none_or(|time| made(&metadata) == Some(time)),
        };
        if metadata.dev() == self.device && is_same {
            Ok(())
        } else {
            Err(gone(
                "the source was replaced by another directory: unmount and mount it again".to_owned(),
            ))
        }
    }

    /// What is used of the file system that the root is on. Fails as [`LocalStorage::check_root`] does.
    pub fn used_space(&self) -> Result<Space> {
        self.check_root()?;
        let found = statvfs(&self.root).map_err(|errno| self.error(&errno.into(), Path::new("")))?;
        let block_size = u32::try_from(found.fragment_size())
            .map_err(|_| Error::limit("blocks of 4 GiB and more").in_file(self.display(Path::new(""))))?;
        // Drivers may count more free than there is.
        let used = |all: u64, free: u64| all.checked_sub(free).unwrap_or(all);
        Ok(Space {
            block_size,
            blocks: used(found.blocks(), found.blocks_free()),
            files: used(found.files(), found.files_free()),
        })
    }

    /// For this long after a change of one of `directories` its times may hide another change, or its listing
    /// be older than they are.
    pub fn racy_window(&self, directories: &[PathBuf]) -> Duration {
        // Another file system may be mounted below the root.
        let is_of_fuse = |path: &PathBuf| {
            let full = join(&self.root, path);
            let is_other = fs::metadata(&full).is_ok_and(|metadata| metadata.dev() != self.device);
            is_other && kind(&full) == FUSE_SUPER_MAGIC
        };
        match directories.iter().any(is_of_fuse) {
            true => FUSE_RACY_WINDOW,
            false => self.racy_window,
        }
    }

    /// Whether the last component of `path` is a symbolic link.
    pub fn is_link(&self, path: &Path) -> bool {
        fs::symlink_metadata(join(&self.root, path)).is_ok_and(|metadata| metadata.is_symlink())
    }

    /// Whether there is anything at `path`, also a special file, or a link that leads nowhere.
    pub fn is_there(&self, path: &Path) -> bool {
        fs::symlink_metadata(join(&self.root, path)).is_ok()
    }
}

/// How old what is found at `path`, which is canonical, or below it may be: file systems of other machines
/// answer out of caches of their own.
pub fn lag(path: &Path) -> Duration {
    lag_on(kind(path)).max(lag_below(path, &mounts().unwrap_or_default()))
}

/// The most of those of `mounts` that are below `path`.
fn lag_below(path: &Path, mounts: &[MountEntry]) -> Duration {
    let below = mounts.iter().filter(|mount| mount.mount_point.starts_with(path));
    let lags = below.map(|mount| match &*mount.fs_type {
        kind if kind.starts_with("fuse") => FUSE_RACY_WINDOW,
        kind if kind.starts_with("nfs") => NFS_LAG,
        _ => Duration::ZERO,
    });
    lags.max().unwrap_or_default()
}

/// [`lag`] on a file system of this kind.
fn lag_on(kind: FsType) -> Duration {
    match kind {
        FUSE_SUPER_MAGIC => FUSE_RACY_WINDOW,
        NFS_SUPER_MAGIC => NFS_LAG,
        _ => Duration::ZERO,
    }
}

/// The file system that `path` is on. Of all, those of FUSE need not answer.
fn kind(path: &Path) -> FsType {
    statfs(path).map_or(FUSE_SUPER_MAGIC, |found| found.filesystem_type())
}

/// A time in milliseconds since the Unix epoch; 0 if it is before.
fn milliseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let time = seconds
        .saturating_mul(1000)
        .saturating_add(nanoseconds / 1_000_000);
    u64::try_from(time).unwrap_or(0)
}

/// Identity, length in bytes, and modification time in nanoseconds since the Unix epoch. Without the ctime,
/// which changes of links and permissions move: a file that is deleted while it is open stays readable.
fn version(metadata: &fs::Metadata) -> (u64, u64, u64) {
    let nanoseconds = metadata
        .mtime()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(metadata.mtime_nsec())
        .cast_unsigned();
    (identity(metadata), metadata.len(), nanoseconds)
}

/// Identifies a file. Inode numbers are unique only within a device, and are used again: the time when the
/// file was made, which nobody can set, tells the next one apart where the file system keeps it.
pub(super) fn identity(metadata: &fs::Metadata) -> u64 {
    hash(&(metadata.dev(), metadata.ino(), made(metadata)))
}

/// When a file was made, since the Unix epoch.
fn made(metadata: &fs::Metadata) -> Option<Duration> {
    metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()
}

/// The magic number of exFAT.
const EXFAT_SUPER_MAGIC: FsType = FsType(0x2011_bab0);

/// Whether a file system of this kind may give a file another inode number once the kernel has forgotten it,
/// as sshfs, mergerfs and FAT do.
fn renumbers(kind: FsType) -> bool {
    [FUSE_SUPER_MAGIC, MSDOS_SUPER_MAGIC, EXFAT_SUPER_MAGIC].contains(&kind)
}

/// Opens `path`, through any links.
fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

/// How many [`LocalBlob`]s there are in this process, which has one limit of descriptors.
static OPEN_BLOBS: AtomicU64 = AtomicU64::new(0);

struct LocalBlob {
    file: File,
    /// At the time of opening.
    version: (u64, u64, u64),
    display: String,
    stats: Arc<Stats>,
}

impl Drop for LocalBlob {
    fn drop(&mut self) {
        OPEN_BLOBS.fetch_sub(1, Ordering::Relaxed);
    }
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
            return Err(Error::changed().at(offset).in_file(&self.display));
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
    use super::super::mountinfo::parse;
    use super::*;
    use crate::error::ErrorKind;
    use std::os::unix::fs::symlink;

    fn storage(root: &Path, follow: bool) -> LocalStorage {
        LocalStorage::new(root, follow, Arc::default()).unwrap()
    }

    #[test]
    fn links_out_of_the_source_are_not_followed() {
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
            let listed = s.list(Path::new("")).unwrap().into_iter();
            listed
                .map(|e| (e.name.into_string().unwrap(), e.entry_type))
                .collect()
        };
        let entries = |kinds: [EntryType; 4]| {
            let all = ["leads-out", "loop", "real", "stays"];
            all.map(str::to_owned).into_iter().zip(kinds).collect::<Vec<_>>()
        };
        use EntryType::{Directory, Other};
        let kinds = [Other, Other, Directory, Directory];
        assert_eq!(names(&storage(&inside, false)), entries(kinds));
        let kinds = [Directory, Other, Directory, Directory];
        assert_eq!(names(&storage(&inside, true)), entries(kinds));
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
    fn links_are_followed_to_where_they_lead_in_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("in");
        for folder in ["in/a/b", "out"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join("f"), folder).unwrap();
        }
        for (target, link) in [
            (root.join("a/b").to_str().unwrap(), "in/absolute"),
            ("a/../a/b", "in/around"),
            ("../in/a/b", "in/out-and-in"),
            ("../absolute", "in/a/twice"),
            ("../../out", "in/a/out"),
            ("../../in", "in/a/top"),
        ] {
            symlink(target, dir.path().join(link)).unwrap();
        }
        let storage = storage(&root, false);
        let read = |path: &str| match storage.open(Path::new(path)) {
            Ok(blob) => String::from_utf8(blob.read(0, blob.len()).unwrap()).unwrap(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{path}: {error}");
                "-".to_owned()
            }
        };
        for path in [
            "a/b/f",
            "absolute/f",
            "around/f",
            "out-and-in/f",
            "a/twice/f",
            "a/top/a/top/absolute/f",
        ] {
            assert_eq!(read(path), "in/a/b", "{path}");
        }
        for path in ["a/out/f", "a/b/f/none", "none", "a/top/../out/f", "../out/f"] {
            assert_eq!(read(path), "-", "{path}");
        }
        // Of all paths at once, the same is found as of each.
        let inside = [
            "a", "a/b", "a/out", "a/twice", "a/top", "a/none", "a/b/f", "absolute", "out",
        ]
        .map(PathBuf::from);
        let each = inside.iter().map(|path| storage.metadata(path).ok());
        assert_eq!(storage.metadata_of(&inside).unwrap(), each.collect::<Vec<_>>());
        let missing = storage.metadata_of(&["a/none".into(), "a".into()]);
        assert_eq!(missing.err().map(|e| e.kind()), Some(ErrorKind::NotFound));
        // A pipe is no file, and nobody waits for its other end.
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let error = storage.open(Path::new("pipe")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn another_inode_number_is_another_source_only_where_numbers_stay() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("in");
        fs::create_dir(&root).unwrap();
        let numbered = storage(&root, false);
        let renumbered = LocalStorage {
            number: None,
            made: None,
            ..storage(&root, false)
        };
        fs::rename(&root, dir.path().join("out")).unwrap();
        fs::create_dir(&root).unwrap();
        for place in ["in", "out"] {
            fs::write(dir.path().join(place).join("f"), place).unwrap();
        }
        symlink("../out/f", root.join("out")).unwrap();
        symlink("../in/f", root.join("in")).unwrap();
        assert!(numbered.check_root().is_err());
        renumbered.check_root().unwrap();
        let read = |name| Some(renumbered.open(Path::new(name)).ok()?.read(0, 2).unwrap());
        assert_eq!(read("in"), Some(b"in".to_vec()));
        assert_eq!(read("out"), None);
    }

    #[test]
    fn other_machines_may_tell_of_a_change_late() {
        const EXT4: FsType = FsType(0xef53);
        let seconds = [FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC, EXT4].map(|kind| lag_on(kind).as_secs());
        assert_eq!(seconds, [30, 60, 0]);
        let table = b"36 35 0:50 / /data/a\\040b/sshfs ro - fuse.sshfs h: rw\n\
            37 35 0:51 / /data/nfs rw shared:1 - nfs4 h:/ rw\n";
        for (path, seconds) in [
            ("/data/a b", 30),
            ("/data/a", 0),
            ("/data", 60),
            ("/data/nfs/x", 0),
        ] {
            assert_eq!(
                lag_below(Path::new(path), &parse(table)).as_secs(),
                seconds,
                "{path}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        let distant = LocalStorage {
            lag: NFS_LAG.into(),
            ..storage(dir.path(), false)
        };
        let engine = crate::engine::Engine::new(Arc::new(distant), 1, Vec::new(), Arc::default());
        assert_eq!(engine.storage.lag(), Some(NFS_LAG));
    }

    #[test]
    fn a_directory_whose_mtime_was_set_back_has_another_version() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), b"").unwrap();
        let storage = storage(dir.path(), false);
        let look = || {
            let directory = File::open(dir.path()).unwrap();
            directory.set_modified(UNIX_EPOCH).unwrap();
            storage.metadata(Path::new("")).unwrap()
        };
        let before = look();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let after = look();
        assert_eq!((before.mtime, after.mtime), (0, 0));
        assert!(after.ctime > before.ctime && after.version != before.version);
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
