//! Answers to the kernel's requests.
//!
//! Each request is worked out inside [`Reporter::guard`] and answered outside it, so that it is answered whatever happens.

use super::attributes::{Attributes, Owner, absent, file_type, ttl};
use super::guard::Reporter;
use super::handles::{DirectoryHandle, FileHandle, Handle, Handles};
use super::inodes::{Inode, Inodes};
use crate::error::{Error, ErrorKind};
use crate::stats::Stats;
use crate::tree::node::clamp;
use crate::tree::{File, Freshness, Listing, Node, NodeType, Tree};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle as FuseHandle, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, Notifier, OpenAccMode,
    OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// The largest request, in bytes.
pub(super) const MAX_REQUEST: u32 = 1 << 20;

/// Reads that the kernel may have under way ahead of the readers.
const MAX_BACKGROUND: u16 = 64;

/// Above this much, a thread's scratch memory is given back after the request.
const SCRATCH_KEPT: usize = 2 * MAX_REQUEST as usize;

/// Inode numbers are never used for another path, so generations are not needed.
const GENERATION: Generation = Generation(0);

/// Called with the name of each operation before it is worked out, inside the guard: what it panics with is what the operation
/// panics with. For tests, which count requests and inject faults with it.
pub type Probe = Arc<dyn Fn(&'static str) + Send + Sync>;

/// A [`Tree`] as a FUSE file system. Read only: whatever would change something is EROFS.
pub struct FileSystem {
    stats: Arc<Stats>,
    reporter: Reporter,
    inodes: Inodes,
    handles: Handles,
    owner: Owner,
    probe: Option<Probe>,
    readdirplus: bool,
    /// Whether a file open for direct I/O can be mapped.
    direct_mmap: bool,
    notifier: Arc<OnceLock<Notifier>>,
}

/// The answer to a lookup.
enum Found {
    Entry {
        attributes: FileAttr,
        attributes_ttl: Duration,
        entry_ttl: Duration,
    },
    Absent {
        entry_ttl: Duration,
    },
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl FileSystem {
    /// Shows `tree`, all of it owned by the user of this process.
    pub fn new(tree: Tree) -> Self {
        FileSystem {
            reporter: Reporter::new(tree.errors, tree.stats.clone()),
            inodes: Inodes::new(tree.root, tree.stats.clone()),
            handles: Handles::new(tree.stats.clone()),
            owner: Owner {
                uid: nix::unistd::geteuid().as_raw(),
                gid: nix::unistd::getegid().as_raw(),
            },
            probe: None,
            readdirplus: false,
            direct_mmap: false,
            notifier: Arc::default(),
            stats: tree.stats,
        }
    }

    /// Calls `probe` before each operation.
    #[must_use]
    pub fn with_probe(mut self, probe: Probe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Gives attributes along with names when a directory is read (READDIRPLUS). Not done by default: the kernel asks so for every
    /// directory that is listed, and the length of a file may take work that a plain `ls` or `find` does not need.
    #[must_use]
    pub fn with_readdirplus(mut self, enabled: bool) -> Self {
        self.readdirplus = enabled;
        self
    }

    /// Where the session's notifier is to be put once there is one.
    pub(super) fn notifier(&self) -> Arc<OnceLock<Notifier>> {
        self.notifier.clone()
    }

    fn guard<T>(
        &self,
        name: &'static str,
        number: INodeNo,
        operation: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let path = || {
            self.inodes
                .get(number.0)
                .map_or_else(String::new, |inode| inode.path())
        };
        self.reporter.guard(name, path, || {
            if let Some(probe) = &self.probe {
                probe(name);
            }
            operation()
        })
    }

    /// For operations that only say no.
    fn refuse(&self, name: &'static str, number: INodeNo, errno: Errno) -> Errno {
        self.guard(name, number, || Err::<(), _>(errno))
            .err()
            .unwrap_or(errno)
    }

    fn inode(&self, number: INodeNo) -> Result<Arc<Inode>, Errno> {
        self.inodes.get(number.0).ok_or(Errno::ESTALE)
    }

    fn handle(&self, handle: FuseHandle) -> Result<Arc<Handle>, Errno> {
        self.handles.get(handle.0).ok_or(Errno::EBADF)
    }

    /// What `stat` says of a node. A file whose length cannot be told still stats, as an empty one: opening it gives the error.
    fn attributes(&self, node: &Node, path: impl FnOnce() -> String) -> Attributes {
        match node {
            Node::Directory(directory) => Attributes {
                kind: NodeType::Directory,
                size: 0,
                mtime: directory.mtime(),
                ttl: ttl(directory.freshness()),
            },
            Node::File(file) => {
                let (size, ttl) = match file.len() {
                    Ok(len) => (len, ttl(file.freshness())),
                    Err(error) => {
                        self.reporter.report(&path(), &error);
                        (0, Duration::ZERO)
                    }
                };
                Attributes {
                    kind: NodeType::File,
                    size,
                    mtime: file.mtime(),
                    ttl,
                }
            }
        }
    }

    /// The attributes of an inode, noted as told to the kernel.
    fn tell(&self, inode: &Inode, attributes: Attributes) -> FileAttr {
        inode.set_known_size(attributes.size);
        attributes.to_fuse(inode.number, self.owner)
    }

    fn do_lookup(&self, parent: INodeNo, name: &OsStr) -> Result<Found, Errno> {
        let parent = self.inode(parent)?;
        let Node::Directory(directory) = parent.node() else {
            return Err(Errno::ENOTDIR);
        };
        let entry_ttl = ttl(directory.freshness());
        match directory.lookup(name) {
            Ok(Some(node)) => {
                let attributes = self.attributes(&node, || parent.path_of(name));
                let inode = self.inodes.remember(&parent, name, node);
                Ok(Found::Entry {
                    attributes: self.tell(&inode, attributes),
                    attributes_ttl: attributes.ttl,
                    entry_ttl,
                })
            }
            Ok(None) => Ok(Found::Absent { entry_ttl }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Absent {
                entry_ttl: Duration::ZERO,
            }),
            Err(error) => Err(self.reporter.inside(&parent.path_of(name), &error)),
        }
    }

    fn do_getattr(&self, number: INodeNo, handle: Option<FuseHandle>) -> Result<(Duration, FileAttr), Errno> {
        let inode = self.inode(number)?;
        let node = inode.node();
        let mut attributes = None;
        if let (Some(handle), Node::File(file)) = (handle, &node)
            && let Some(handle) = self.handles.get(handle.0)
            && let Handle::File(handle) = &*handle
        {
            // The kernel asks so before it reads past the end that it knows of: the end is that of what is open.
            attributes = Some(Attributes {
                kind: NodeType::File,
                size: handle.open.len(),
                mtime: file.mtime(),
                ttl: ttl(file.freshness()),
            });
        }
        let attributes = attributes.unwrap_or_else(|| self.attributes(&node, || inode.path()));
        Ok((attributes.ttl, self.tell(&inode, attributes)))
    }

    fn do_open(&self, number: INodeNo, flags: OpenFlags) -> Result<(FuseHandle, FopenFlags), Errno> {
        if flags.acc_mode() != OpenAccMode::O_RDONLY || flags.0 & libc::O_TRUNC != 0 {
            return Err(Errno::EROFS);
        }
        let inode = self.inode(number)?;
        let Node::File(file) = inode.node() else {
            return Err(Errno::EISDIR);
        };
        let open = file
            .open()
            .map_err(|error| self.reporter.inside(&inode.path(), &error))?;
        let state = (open.version(), open.len());
        let (paged, flags) = self.caching(&inode, &*file, state);
        if file.freshness() != Freshness::Immutable && inode.known_size() != open.len() {
            // The kernel would cut reads short at the size that it still believes in.
            inode.set_known_size(open.len());
            if let Some(notifier) = self.notifier.get()
                && let Err(error) = notifier.inval_inode(INodeNo(inode.number), -1, 0)
            {
                log::warn!("{}: cannot invalidate attributes: {error}", inode.path());
            }
        }
        let handle = self
            .handles
            .insert(Handle::File(FileHandle { inode, open, paged }));
        Ok((FuseHandle(handle), flags))
    }

    /// How a file just opened at `state` (version, length) goes through the page cache: whether at all, and the flags to answer with.
    fn caching(&self, inode: &Inode, file: &dyn File, state: (u64, u64)) -> (bool, FopenFlags) {
        let freshness = file.freshness();
        let mut pages = inode.pages();
        let same = pages.state == Some(state);
        // The pages belong to all who have the file open. One who has it open in another state goes around them.
        let other_state = freshness == Freshness::Listing && pages.users > 0 && !same;
        if self.direct_mmap && (freshness == Freshness::Live || other_state) {
            return (false, FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH);
        }
        pages.state = Some(state);
        pages.users = pages.users.saturating_add(1);
        let keep = match freshness {
            Freshness::Immutable => true,
            Freshness::Listing => same,
            Freshness::Live => false,
        };
        let mut flags = FopenFlags::FOPEN_NOFLUSH;
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, keep);
        (true, flags)
    }

    /// The part of an open file that a request asks for, in `scratch` or shared.
    fn do_read<'s>(
        &self,
        handle: &FileHandle,
        offset: u64,
        size: u32,
        scratch: &'s mut Vec<u8>,
    ) -> Result<crate::tree::Piece<'s>, Errno> {
        let range = clamp(handle.open.len(), offset, size as usize);
        let wanted = usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| Errno::EINVAL)?;
        if wanted == 0 {
            return Ok(crate::tree::Piece::Scratch(&[]));
        }
        let piece = handle
            .open
            .read(offset, wanted, scratch)
            .map_err(|error| self.reporter.inside(&handle.inode.path(), &error))?;
        if piece.len() != wanted {
            // Fewer bytes would look like the end of the file to the reader.
            let error = Error::new(
                ErrorKind::Internal,
                format!("{} bytes instead of {wanted} were read", piece.len()),
            );
            return Err(self.reporter.inside(&handle.inode.path(), &error.at(offset)));
        }
        Ok(piece)
    }

    fn do_opendir(&self, number: INodeNo, flags: OpenFlags) -> Result<(FuseHandle, FopenFlags), Errno> {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return Err(Errno::EISDIR);
        }
        let inode = self.inode(number)?;
        let Node::Directory(directory) = inode.node() else {
            return Err(Errno::ENOTDIR);
        };
        let flags = match directory.freshness() {
            Freshness::Immutable => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
            Freshness::Listing | Freshness::Live => FopenFlags::empty(),
        };
        let handle = self
            .handles
            .insert(Handle::Directory(DirectoryHandle::new(inode)));
        Ok((FuseHandle(handle), flags))
    }

    /// Passes the entries from `offset` on to `add`, until that says that the answer is full: 0 is `.`, 1 is `..`, the listing begins at 2.
    fn do_readdir(
        &self,
        handle: FuseHandle,
        offset: u64,
        mut add: impl FnMut(&Arc<Inode>, u64, Option<(Cow<'_, OsStr>, NodeType)>) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.handle(handle)?;
        let Handle::Directory(handle) = &*handle else {
            return Err(Errno::ENOTDIR);
        };
        let listing = self.listing(handle, offset)?;
        for position in offset.. {
            let entry = match position {
                0 | 1 => None,
                _ => match listing.get(position.saturating_sub(2)) {
                    Some(entry) => Some(entry),
                    None => break,
                },
            };
            if add(&handle.inode, position, entry) {
                break;
            }
        }
        Ok(())
    }

    /// The snapshot that the directory is being read from; a new one at its beginning.
    fn listing(&self, handle: &DirectoryHandle, offset: u64) -> Result<Arc<dyn Listing>, Errno> {
        let mut held = handle.listing();
        match &*held {
            Some(listing) if offset > 0 => Ok(listing.clone()),
            _ => {
                let Node::Directory(directory) = handle.inode.node() else {
                    return Err(Errno::ENOTDIR);
                };
                let listing = directory.list().map_err(|error| {
                    let errno = self.reporter.inside(&handle.inode.path(), &error);
                    match error.kind() {
                        ErrorKind::NotFound => Errno::ENOENT,
                        _ => errno,
                    }
                })?;
                *held = Some(listing.clone());
                Ok(listing)
            }
        }
    }

    /// Adds one entry with its attributes to a READDIRPLUS answer. Returns whether the answer is full.
    fn add_plus(
        &self,
        reply: &mut ReplyDirectoryPlus,
        parent: &Arc<Inode>,
        position: u64,
        name: &OsStr,
    ) -> Result<bool, Errno> {
        let Node::Directory(directory) = parent.node() else {
            return Err(Errno::ENOTDIR);
        };
        let node = match directory.lookup(name) {
            Ok(Some(node)) => node,
            // It is gone since the snapshot was taken.
            Ok(None) => return Ok(false),
            Err(error) => {
                self.reporter.report(&parent.path_of(name), &error);
                return Ok(false);
            }
        };
        let attributes = self.attributes(&node, || parent.path_of(name));
        let inode = self.inodes.remember(parent, name, node);
        let full = reply.add(
            INodeNo(inode.number),
            position.saturating_add(1),
            name,
            &attributes.ttl.min(ttl(directory.freshness())),
            &attributes.to_fuse(inode.number, self.owner),
            GENERATION,
        );
        if full {
            self.inodes.forget(inode.number, 1);
        } else {
            inode.set_known_size(attributes.size);
        }
        Ok(full)
    }

    fn do_lseek(&self, handle: FuseHandle, offset: i64, whence: i32) -> Result<i64, Errno> {
        let handle = self.handle(handle)?;
        let Handle::File(handle) = &*handle else {
            return Err(Errno::EINVAL);
        };
        let len = i64::try_from(handle.open.len()).map_err(|_| Errno::EOVERFLOW)?;
        // One run of data and the hole that every file has at its end.
        match whence {
            libc::SEEK_DATA | libc::SEEK_HOLE if !(0..len).contains(&offset) => Err(Errno::ENXIO),
            libc::SEEK_DATA => Ok(offset),
            libc::SEEK_HOLE => Ok(len),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        if self.readdirplus {
            wanted |= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        let offered = config.capabilities() & wanted;
        self.direct_mmap = offered.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let settings = [
            config.add_capabilities(offered).err().map(|_| "capabilities"),
            config
                .set_max_background(MAX_BACKGROUND)
                .err()
                .map(|_| "max_background"),
            config
                .set_congestion_threshold(MAX_BACKGROUND / 4 * 3)
                .err()
                .map(|_| "congestion_threshold"),
            // Nothing is written, but the size of all requests follows from it.
            config.set_max_write(MAX_REQUEST).err().map(|_| "max_write"),
        ];
        for refused in settings.into_iter().flatten() {
            log::warn!("the kernel does not take the wanted {refused}");
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.guard("lookup", parent, || self.do_lookup(parent, name)) {
            Ok(Found::Entry {
                attributes,
                attributes_ttl,
                entry_ttl,
            }) => reply.entry_with_ttls(&attributes_ttl, &entry_ttl, &attributes, GENERATION),
            Ok(Found::Absent { entry_ttl }) if entry_ttl.is_zero() => reply.error(Errno::ENOENT),
            Ok(Found::Absent { entry_ttl }) => reply.entry(&entry_ttl, &absent(), GENERATION),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        let _ = self.guard("forget", ino, || {
            self.inodes.forget(ino.0, nlookup);
            Ok(())
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, fh: Option<FuseHandle>, reply: ReplyAttr) {
        match self.guard("getattr", ino, || self.do_getattr(ino, fh)) {
            Ok((ttl, attributes)) => reply.attr(&ttl, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        reply.error(self.refuse("readlink", ino, Errno::EINVAL));
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.guard("open", ino, || self.do_open(ino, flags)) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FuseHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut scratch = SCRATCH.with(RefCell::take);
        let handle = self.handle(fh);
        let piece = self.guard("read", ino, || match handle.as_deref() {
            Ok(Handle::File(handle)) => self.do_read(handle, offset, size, &mut scratch),
            Ok(Handle::Directory(_)) => Err(Errno::EISDIR),
            Err(errno) => Err(*errno),
        });
        match piece {
            Ok(piece) => {
                self.stats.reads.add(1);
                self.stats.bytes_served.add(piece.len() as u64);
                reply.data(&piece);
            }
            Err(errno) => reply.error(errno),
        }
        if scratch.capacity() <= SCRATCH_KEPT {
            SCRATCH.set(scratch);
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FuseHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel then asks no more.
        reply.error(self.refuse("flush", ino, Errno::ENOSYS));
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FuseHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        match self.guard("release", ino, || {
            drop(self.handles.remove(fh.0));
            Ok(())
        }) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FuseHandle, _: bool, reply: ReplyEmpty) {
        // Nothing is ever dirty.
        match self.guard("fsync", ino, || Ok(())) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn opendir(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.guard("opendir", ino, || self.do_opendir(ino, flags)) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FuseHandle, offset: u64, mut reply: ReplyDirectory) {
        let result = self.guard("readdir", ino, || {
            self.do_readdir(fh, offset, |inode, position, entry| {
                let next = position.saturating_add(1);
                match (position, entry) {
                    (_, Some((name, kind))) => {
                        let number = INodeNo(self.inodes.number_of(inode, &name));
                        reply.add(number, next, file_type(kind), &name)
                    }
                    (0, None) => reply.add(INodeNo(inode.number), next, fuser::FileType::Directory, "."),
                    (_, None) => {
                        let number = INodeNo(inode.parent_number());
                        reply.add(number, next, fuser::FileType::Directory, "..")
                    }
                }
            })
        });
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FuseHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let result = self.guard("readdirplus", ino, || {
            let mut failed = None;
            self.do_readdir(fh, offset, |inode, position, entry| {
                let Some((name, _)) = entry else {
                    // The kernel takes only number and kind of these, and does not count them as looked up.
                    let (name, number) = match position {
                        0 => (".", inode.number),
                        _ => ("..", inode.parent_number()),
                    };
                    let dots = Attributes {
                        kind: NodeType::Directory,
                        size: 0,
                        mtime: 0,
                        ttl: Duration::ZERO,
                    };
                    let attributes = dots.to_fuse(number, self.owner);
                    let next = position.saturating_add(1);
                    return reply.add(INodeNo(number), next, name, &dots.ttl, &attributes, GENERATION);
                };
                self.add_plus(&mut reply, inode, position, &name)
                    .unwrap_or_else(|errno| {
                        failed = Some(errno);
                        true
                    })
            })?;
            failed.map_or(Ok(()), Err)
        });
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, fh: FuseHandle, _: OpenFlags, reply: ReplyEmpty) {
        match self.guard("releasedir", ino, || {
            drop(self.handles.remove(fh.0));
            Ok(())
        }) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FuseHandle, _: bool, reply: ReplyEmpty) {
        match self.guard("fsyncdir", ino, || Ok(())) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        // Full, as a read-only disk is; how large is not known without looking at everything.
        match self.guard("statfs", ino, || Ok(())) {
            Ok(()) => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096),
            Err(errno) => reply.error(errno),
        }
    }

    fn access(&self, _: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let result = self.guard("access", ino, || {
            let directory = matches!(self.inode(ino)?.node(), Node::Directory(_));
            if mask.contains(AccessFlags::W_OK) {
                Err(Errno::EROFS)
            } else if mask.contains(AccessFlags::X_OK) && !directory {
                Err(Errno::EACCES)
            } else {
                Ok(())
            }
        });
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(self.refuse("getxattr", ino, Errno::ENODATA));
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.guard("listxattr", ino, || Ok(())) {
            Ok(()) if size == 0 => reply.size(0),
            Ok(()) => reply.data(&[]),
            Err(errno) => reply.error(errno),
        }
    }

    fn lseek(&self, _: &Request, ino: INodeNo, fh: FuseHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.guard("lseek", ino, || self.do_lseek(fh, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(errno) => reply.error(errno),
        }
    }

    fn ioctl(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FuseHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(self.refuse("ioctl", ino, Errno::ENOTTY));
    }

    fn poll(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FuseHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // The kernel then takes every file for ready, as files are.
        reply.error(self.refuse("poll", ino, Errno::ENOSYS));
    }

    // From here on: what would change something. The kernel refuses most of it by itself, because the mount is read only.

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FuseHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(self.refuse("setattr", ino, Errno::EROFS));
    }

    fn mknod(&self, _: &Request, parent: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refuse("mknod", parent, Errno::EROFS));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refuse("mkdir", parent, Errno::EROFS));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse("unlink", parent, Errno::EROFS));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse("rmdir", parent, Errno::EROFS));
    }

    fn symlink(&self, _: &Request, parent: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(self.refuse("symlink", parent, Errno::EROFS));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refuse("rename", parent, Errno::EROFS));
    }

    fn link(&self, _: &Request, ino: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(self.refuse("link", ino, Errno::EROFS));
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FuseHandle,
        _: u64,
        _: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(self.refuse("write", ino, Errno::EROFS));
    }

    fn create(&self, _: &Request, parent: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(self.refuse("create", parent, Errno::EROFS));
    }

    fn setxattr(&self, _: &Request, ino: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(self.refuse("setxattr", ino, Errno::EROFS));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse("removexattr", ino, Errno::EROFS));
    }

    fn fallocate(&self, _: &Request, ino: INodeNo, _: FuseHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(self.refuse("fallocate", ino, Errno::EROFS));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FuseHandle,
        _: u64,
        ino_out: INodeNo,
        _: FuseHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(self.refuse("copy_file_range", ino_out, Errno::EROFS));
    }
}
