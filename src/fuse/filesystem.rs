//! Carries out the kernel's requests.

use super::attributes::{Access, Attributes, BLOCK_SIZE, Mode, Owner, ttl};
use super::guard::Reporter;
use super::handles::{DirectoryHandle, FileHandle, Handle, Handles};
use super::inodes::{FileState, Inode, Inodes};
use crate::bytes::Output;
use crate::error::ErrorKind;
use crate::runtime::hash;
use crate::runtime::stats::Stats;
use crate::storage::{Credentials, Space, Storage};
use crate::tree::{self, File, Freshness, Listing, Node, NodeType, OWN_DIRECTORY, Permissions, Stat, Tree};
use fuser::{
    Errno, FileAttr, FileHandle as FuseHandle, FopenFlags, Generation, INodeNo, OpenAccMode, OpenFlags,
};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::sleep;
use std::time::Duration;

/// The largest read request, in bytes.
pub(super) const MAX_REQUEST: u32 = 1 << 20;

/// The longest file name, in bytes.
pub(super) const MAX_NAME: u32 = 255;

/// The size of object stores, which have none that they tell: 1 PiB, as other file systems over them say.
/// `df` leaves out file systems without blocks.
const UNKNOWN_SPACE: Space = Space {
    block_size: BLOCK_SIZE,
    blocks: (1 << 50) / BLOCK_SIZE as u64,
    files: 0,
};

/// For tests: called inside the guard before each operation, to count requests and inject panics.
pub type Probe = Arc<dyn Fn(&'static str) + Send + Sync>;

/// A [`Tree`] as a read-only FUSE file system; every change fails with EROFS.
pub struct FileSystem {
    storage: Arc<dyn Storage>,
    pub(super) stats: Arc<Stats>,
    reporter: Reporter,
    pub(super) inodes: Arc<Inodes>,
    pub(super) handles: Handles,
    pub(super) owner: Owner,
    access: Access,
    /// The switch by which the tree learns that users read who may not read everything.
    guarded: Arc<AtomicBool>,
    probe: Option<Probe>,
    /// Whether a file that is open for direct I/O can be mapped.
    pub(super) direct_mmap: bool,
    /// The way into the page cache.
    pub(super) pages: Option<SyncSender<Piece>>,
}

/// A piece of a file for the page cache. Until it is there, the inode [is kept](Inodes::keep): the kernel
/// puts it where the number is, which must not be that of another state by then.
pub(super) struct Piece {
    pub(super) inode: Arc<Inode>,
    pub(super) offset: u64,
    /// A part of a chunk: its bytes.
    pub(super) bytes: (Arc<Vec<u8>>, Range<usize>),
}

/// The result of a lookup.
pub(super) enum Found {
    Entry {
        attributes: FileAttr,
        attributes_ttl: Duration,
        entry_ttl: Duration,
        generation: Generation,
    },
    Absent {
        entry_ttl: Duration,
    },
}

impl FileSystem {
    /// Serves `tree`. The user of this process owns all files.
    pub fn new(tree: Tree) -> Self {
        tree.disorder.let_readers_find();
        FileSystem {
            storage: tree.storage,
            reporter: Reporter::new(tree.errors, tree.stats.clone()),
            inodes: Arc::new(Inodes::new(tree.root, tree.stats.clone())),
            handles: Handles::new(tree.stats.clone()),
            owner: Owner {
                uid: nix::unistd::geteuid().as_raw(),
                gid: nix::unistd::getegid().as_raw(),
            },
            access: Access::default(),
            guarded: tree.guarded,
            probe: None,
            direct_mmap: false,
            pages: None,
            stats: tree.stats,
        }
    }

    /// Calls `probe` before each operation.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn with_probe(mut self, probe: Probe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Sets whom the kernel lets in, on which modes depend.
    pub(super) fn set_access(&mut self, access: Access) {
        self.access = access;
        self.guarded.store(access == Access::All, Ordering::Relaxed);
    }

    pub(super) fn guard<T>(
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

    /// An operation that always fails with `errno`.
    pub(super) fn refuse(&self, name: &'static str, number: INodeNo, errno: Errno) -> Errno {
        self.guard(name, number, || Err::<(), _>(errno))
            .err()
            .unwrap_or(errno)
    }

    pub(super) fn inode(&self, number: INodeNo) -> Result<Arc<Inode>, Errno> {
        self.inodes.get(number.0).ok_or(Errno::ESTALE)
    }

    /// The node of an inode. ESTALE if its path is gone, so that the kernel looks it up again.
    pub(super) fn node(&self, inode: &Arc<Inode>) -> Result<Node, Errno> {
        match self.inodes.node(inode, |node| self.is_stale(node)) {
            Ok(Some(node)) => Ok(node),
            Ok(None) => Err(Errno::ESTALE),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Errno::ESTALE),
            Err(error) => Err(self.reporter.inside(&inode.path(), &error)),
        }
    }

    /// Whether nothing has the path of `inode` any more.
    fn is_gone(&self, inode: &Arc<Inode>) -> bool {
        match self.inodes.node(inode, |_| true) {
            Ok(node) => node.is_none(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Whether a node that was kept must not be used any more. Links do not know what they belong to.
    fn is_stale(&self, node: &Node) -> bool {
        self.access == Access::All && (node.node_type() == NodeType::Link || node.is_stale())
    }

    /// What `make` makes of the node of `inode`, for a user who may open the node, and with `list` list it.
    ///
    /// The kernel has checked the mode that it knew. Meanwhile names may have been exchanged in the source,
    /// and what was kept may come from other files. So those files are checked that `make` has used: the node
    /// belongs to an object for which each path leads to one file only, and these are the files that the user
    /// has to be allowed to read. EACCES if not; ESTALE if that cannot be said, because everything changes.
    fn for_user<T>(
        &self,
        user: &Credentials,
        inode: &Arc<Inode>,
        list: bool,
        make: impl Fn(&Node) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        /// How often to try while something changes.
        const TRIES: usize = 4;
        if self.access != Access::All || user.uid == 0 || user.uid == self.owner.uid {
            return make(&self.node(inode)?);
        }
        for _ in 0..TRIES {
            let node = self.node(inode)?;
            let origin = node.origin();
            let before = origin.basis();
            let made = make(&node);
            let permissions = origin.permissions();
            let after = origin.basis();
            if node.is_stale() || matches!((&before, &after), (Ok(before), Ok(after)) if !before.is(after)) {
                continue;
            }
            let listed = !list || permissions.list.has(user);
            let may = before.is_ok() && after.is_ok() && permissions.open.has(user) && listed;
            return if may { made } else { Err(Errno::EACCES) };
        }
        Err(Errno::ESTALE)
    }

    /// EIO while the source is gone, except below `.tiledbfs`. `top` is the first component of the path.
    fn check_source(&self, top: Option<&OsStr>, path: impl FnOnce() -> String) -> Result<(), Errno> {
        if top.is_some_and(|top| top == OWN_DIRECTORY) {
            return Ok(());
        }
        let result = self.storage.local().map_or(Ok(()), |local| local.check_root());
        result.map_err(|error| self.reporter.inside(&path(), &error))
    }

    /// The size that `df` shows: what is used of the file system that the source is on. What is below SOURCE
    /// alone would have to be counted.
    pub(super) fn space(&self, number: INodeNo) -> Result<Space, Errno> {
        let Some(local) = self.storage.local() else {
            return Ok(UNKNOWN_SPACE);
        };
        let path = || {
            self.inode(number)
                .map_or_else(|_| String::new(), |inode| inode.path())
        };
        local
            .used_space()
            .map_err(|error| self.reporter.inside(&path(), &error))
    }

    pub(super) fn handle(&self, handle: FuseHandle) -> Result<Arc<Handle>, Errno> {
        self.handles.get(handle.0).ok_or(Errno::EBADF)
    }

    /// The attributes of a node, and the state of a mutable file. If the length of a file cannot be
    /// determined, it is shown as empty and without a state; opening it then fails. EINTR if the requester is
    /// asked to end: its program may go on, and would take the file for an empty one.
    fn attributes(
        &self,
        node: &Node,
        path: impl FnOnce() -> String,
    ) -> Result<(Attributes, Option<FileState>), Errno> {
        let mode = self.mode(node);
        let attributes = |size: u64, mtime: u64, ttl: Duration| Attributes {
            kind: node.node_type(),
            size,
            mtime,
            ttl,
            mode,
        };
        Ok(match node {
            Node::Directory(directory) => {
                let ttl = self.attributes_ttl(directory.freshness());
                (attributes(0, directory.mtime(), ttl), None)
            }
            Node::Link(link) => {
                let ttl = self.attributes_ttl(Freshness::Listing);
                (attributes(link.target.len() as u64, link.mtime, ttl), None)
            }
            Node::File(file) => {
                let freshness = file.freshness();
                let Stat { len, version } = match file.stat() {
                    Ok(stat) => stat,
                    Err(error) if error.kind() == ErrorKind::Abandoned => {
                        return Err(self.reporter.inside(&path(), &error));
                    }
                    Err(error) => {
                        self.reporter.report(&path(), &error);
                        return Ok((attributes(0, file.mtime(), Duration::ZERO), None));
                    }
                };
                let state = FileState {
                    version,
                    size: len,
                    mtime: file.mtime(),
                    generation: generation(node),
                };
                let has_states = match freshness {
                    Freshness::Immutable => state.generation != 0,
                    Freshness::Listing => state.generation != 0 || state.version != 0,
                    Freshness::Live => state.version != 0,
                };
                match has_states {
                    true => (self.attributes_in(state, mode), Some(state)),
                    false => (
                        attributes(state.size, state.mtime, self.attributes_ttl(freshness)),
                        None,
                    ),
                }
            }
        })
    }

    /// The attributes of one state of a mutable file, which never change.
    fn attributes_in(&self, state: FileState, mode: Mode) -> Attributes {
        Attributes {
            kind: NodeType::File,
            size: state.size,
            mtime: state.mtime,
            ttl: self.attributes_ttl(Freshness::Immutable),
            mode,
        }
    }

    fn mode(&self, node: &Node) -> Mode {
        let permissions = || node.permissions();
        Mode::of(node.node_type(), permissions, self.access, self.owner)
    }

    /// How long the kernel may cache attributes.
    fn attributes_ttl(&self, freshness: Freshness) -> Duration {
        match self.access {
            Access::Owner | Access::OwnerAndRoot => ttl(freshness),
            // Permissions of the source may change at any time.
            Access::All => ttl(freshness).min(ttl(Freshness::Listing)),
        }
    }

    /// What a file handle stands for: an inode, or with `parent` the directory above it. ESTALE if it is not
    /// known any more.
    fn look_up_number(&self, number: INodeNo, parent: bool) -> Result<Found, Errno> {
        let inode = self
            .inodes
            .look_up_number(number.0, parent)
            .ok_or(Errno::ESTALE)?;
        let attributes = self
            .check_source(inode.top(), || inode.path())
            .and_then(|()| self.do_getattr(INodeNo(inode.number), None));
        match attributes {
            Ok((attributes_ttl, attributes)) => Ok(Found::Entry {
                attributes,
                attributes_ttl,
                entry_ttl: Duration::ZERO,
                generation: Generation(inode.generation()),
            }),
            Err(errno) => {
                self.inodes.forget(inode.number, 1);
                Err(errno)
            }
        }
    }

    pub(super) fn do_lookup(
        &self,
        user: &Credentials,
        parent: INodeNo,
        name: &OsStr,
    ) -> Result<Found, Errno> {
        // No path has these names: the kernel resolves them itself.
        if name == "." || name == ".." {
            return self.look_up_number(parent, name == "..");
        }
        let parent = self.inode(parent)?;
        self.check_source(Some(parent.top().unwrap_or(name)), || parent.path_of(name))?;
        let (found, entry_ttl) = self.for_user(user, &parent, false, |above| {
            let Node::Directory(directory) = above else {
                return Err(Errno::ENOTDIR);
            };
            // The kernel itself refuses only names longer than 1024 bytes.
            if name.len() > directory.longest_name() {
                return Err(Errno::ENAMETOOLONG);
            }
            let found = match directory.lookup(name) {
                Ok(Some(Node::Link(_))) if !self.all_may_list(above) => Ok(None),
                // A file that was listed may be gone since.
                Err(error) if error.is_of_a_missing_file() => directory.lookup(name),
                found => found,
            };
            // Names lead to other files when the source's permissions or links change.
            Ok((found, self.attributes_ttl(directory.freshness())))
        })?;
        match found {
            Ok(Some(node)) => {
                let (attributes, state) = self.attributes(&node, || parent.path_of(name))?;
                let entry_ttl = entry_ttl.min(name_ttl(&node, state));
                let inode = self.inodes.remember(&parent, name, state, node);
                Ok(Found::Entry {
                    attributes: attributes.to_fuse(inode.number, self.owner),
                    attributes_ttl: attributes.ttl,
                    entry_ttl,
                    generation: Generation(inode.generation()),
                })
            }
            Ok(None) => Ok(Found::Absent { entry_ttl }),
            Err(error) if error.is_of_a_name() => {
                log::debug!("{} does not exist: {error}", parent.path_of(name));
                Ok(Found::Absent {
                    entry_ttl: Duration::ZERO,
                })
            }
            // So that the kernel looks it up again.
            Err(error) if error.is_of_a_missing_file() && self.is_gone(&parent) => Err(Errno::ESTALE),
            Err(error) => Err(self.reporter.inside(&parent.path_of(name), &error)),
        }
    }

    pub(super) fn do_getattr(
        &self,
        number: INodeNo,
        handle: Option<FuseHandle>,
    ) -> Result<(Duration, FileAttr), Errno> {
        let inode = self.inode(number)?;
        let attributes = match (inode.state(), handle) {
            (Some(state), _) => self.attributes_in(state, self.mode_of_state(&inode)),
            (None, handle) => {
                let node = self.node(&inode)?;
                let open = handle.and_then(|handle| self.handles.get(handle.0));
                match (&node, open.as_deref()) {
                    // Asked before a read past the known end: reply with the length of the open file.
                    (Node::File(file), Some(Handle::File(handle))) => Attributes {
                        kind: NodeType::File,
                        size: handle.open.len(),
                        mtime: file.mtime(),
                        ttl: self.attributes_ttl(file.freshness()),
                        mode: self.mode(&node),
                    },
                    _ => match self.attributes(&node, || inode.path())? {
                        (attributes, None) => attributes,
                        // The length has become known, so the path now has another inode.
                        (_, Some(_)) => return Err(Errno::ESTALE),
                    },
                }
            }
        };
        Ok((attributes.ttl, attributes.to_fuse(inode.number, self.owner)))
    }

    /// The mode of one state of a file. If its path is gone, only the mounting user has access.
    fn mode_of_state(&self, inode: &Arc<Inode>) -> Mode {
        let permissions = || match self.inodes.node(inode, |node| self.is_stale(node)) {
            Ok(Some(node)) => node.permissions(),
            _ => Permissions::nobody(),
        };
        Mode::of(NodeType::File, permissions, self.access, self.owner)
    }

    /// Whether everybody who may look up a name in a directory may also list it. Links are shown only then:
    /// their targets are names in the directory, and no mode protects a link.
    fn all_may_list(&self, directory: &Node) -> bool {
        if self.access != Access::All {
            return true;
        }
        let Permissions { open, list } = directory.permissions();
        let mut both = open.clone();
        both.and(&list);
        both == open
    }

    pub(super) fn do_readlink(&self, user: &Credentials, number: INodeNo) -> Result<OsString, Errno> {
        let inode = self.inode(number)?;
        // A target is a name in the directory that the link is in.
        let directory = self.inode(INodeNo(inode.parent_number()))?;
        self.for_user(user, &directory, true, |_| match self.node(&inode)? {
            Node::Link(link) => Ok(link.target.clone()),
            _ => Err(Errno::EINVAL),
        })
    }

    /// The extended attributes of an inode, as names and values.
    pub(super) fn do_attributes(
        &self,
        user: &Credentials,
        number: INodeNo,
    ) -> Result<tree::ExtendedAttributes, Errno> {
        let inode = self.inode(number)?;
        self.for_user(user, &inode, false, |node| {
            let attributes = node.attributes();
            attributes.map_err(|error| self.reporter.inside(&inode.path(), &error))
        })
    }

    pub(super) fn do_open(
        &self,
        user: &Credentials,
        number: INodeNo,
        flags: OpenFlags,
    ) -> Result<(FuseHandle, FopenFlags), Errno> {
        if flags.acc_mode() != OpenAccMode::O_RDONLY || flags.0 & libc::O_TRUNC != 0 {
            return Err(Errno::EROFS);
        }
        let inode = self.inode(number)?;
        self.check_source(inode.top(), || inode.path())?;
        let (known, generation_known) = match inode.state() {
            Some(state) => (Some(state.version), state.generation),
            None => (None, 0),
        };
        let (file, open) = self.for_user(user, &inode, false, |node| {
            let Node::File(file) = node else {
                return Err(Errno::EISDIR);
            };
            let open = match known {
                Some(version) => file.open_version(version),
                None => file.open(),
            };
            let open = open.map_err(|error| self.reporter.inside(&inode.path(), &error))?;
            // The kernel's pages are those of another generation.
            match file.freshness() == Freshness::Live || generation(node) == generation_known {
                true => Ok((file.clone(), open)),
                false => Err(Errno::ESTALE),
            }
        })?;
        let mut stores = false;
        let (paged, flags) = match (known, file.freshness()) {
            (Some(_), Freshness::Immutable) => self.caching(&inode, &*file, (open.version(), open.len())),
            // The file has changed. ESTALE makes the kernel look it up again and find the new inode.
            (Some(version), _) if version != open.version() => return Err(Errno::ESTALE),
            // The kernel reads ahead without knowing the parts, unless it has all pages.
            (Some(_), _)
                if self.direct_mmap
                    && open.is_read_in_parts()
                    && inode.pages(|pages| pages.stored) < open.len() =>
            {
                stores = true;
                // What others have stored is kept.
                let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_KEEP_CACHE;
                (false, direct | FopenFlags::FOPEN_NOFLUSH)
            }
            (Some(_), _) => (false, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            (None, Freshness::Listing) => return Err(Errno::ESTALE),
            (None, _) => self.caching(&inode, &*file, (open.version(), open.len())),
        };
        let handle = self.handles.insert(Handle::File(FileHandle {
            inode,
            open,
            paged,
            drops_pages: paged && !flags.contains(FopenFlags::FOPEN_KEEP_CACHE),
            stores,
        }));
        Ok((FuseHandle(handle), flags))
    }

    /// Whether a file opened at `state` (version, length) uses the page cache, and the flags of the reply.
    fn caching(&self, inode: &Inode, file: &dyn File, state: (u64, u64)) -> (bool, FopenFlags) {
        let freshness = file.freshness();
        inode.pages(|pages| {
            // At the first open the only pages are those of a concurrent opener, which must stay.
            let same = pages.state.is_none_or(|known| known == state);
            // All open handles share the pages. A handle to another state bypasses them.
            let other_state = freshness != Freshness::Live && pages.users > 0 && !same;
            if self.direct_mmap && (freshness == Freshness::Live || other_state) {
                return (false, FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH);
            }
            pages.state = Some(state);
            pages.stale |= !same;
            pages.users += 1;
            let keep = freshness != Freshness::Live && same && !pages.stale;
            let mut flags = FopenFlags::FOPEN_NOFLUSH;
            flags.set(FopenFlags::FOPEN_KEEP_CACHE, keep);
            (true, flags)
        })
    }

    /// Reads the requested range of an open file, up to its end, into `out`.
    pub(super) fn do_read(
        &self,
        handle: &FileHandle,
        offset: u64,
        size: u32,
        out: &mut Output,
    ) -> Result<(), Errno> {
        handle.is_in_use();
        let range = offset..offset.saturating_add(size.into());
        let read = handle.open.read(range, out);
        read.map_err(|error| self.reporter.inside(&handle.inode.path(), &error))?;
        if handle.stores {
            self.store(handle, offset, out);
        }
        Ok(())
    }

    /// Sends what is next of `bytes`, which were read at `offset`, to the page cache.
    fn store(&self, handle: &FileHandle, offset: u64, bytes: &Output) {
        /// Only whole pages are kept.
        const PAGE: u64 = 4096;
        /// How many milliseconds to wait for the page cache at most.
        const MAX_WAITS: u32 = 20;
        let (len, end) = (handle.open.len(), offset + bytes.len() as u64);
        let end = if end == len { end } else { end / PAGE * PAGE };
        let Some(sender) = &self.pages else {
            return;
        };
        let start = handle.inode.pages(|pages| {
            let next = (offset..end).contains(&pages.sent);
            next.then(|| std::mem::replace(&mut pages.sent, end))
        });
        let Some(start) = start else {
            return;
        };
        self.inodes.keep(&handle.inode);
        let mut piece = Piece {
            inode: handle.inode.clone(),
            offset: start,
            bytes: bytes.shared_part(
                (start - offset) as usize..(end - offset) as usize,
                MAX_REQUEST as usize,
            ),
        };
        // Not for long: the kernel may wait for pages that this thread has to read.
        for _ in 0..MAX_WAITS {
            piece = match sender.try_send(piece) {
                Ok(()) => return,
                Err(TrySendError::Full(piece) | TrySendError::Disconnected(piece)) => piece,
            };
            sleep(Duration::from_millis(1));
        }
        // The next reader of this place sends it.
        self.inodes.forget(handle.inode.number, 1);
        handle.inode.pages(|pages| {
            if pages.sent == end {
                pages.sent = start;
            }
        });
    }

    pub(super) fn do_opendir(
        &self,
        user: &Credentials,
        number: INodeNo,
        flags: OpenFlags,
    ) -> Result<(FuseHandle, FopenFlags), Errno> {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return Err(Errno::EISDIR);
        }
        let inode = self.inode(number)?;
        let check_source = || self.check_source(inode.top(), || inode.path());
        if self.access == Access::All {
            // Nobody may list what is gone: that would be EACCES.
            check_source()?;
        }
        let freshness = self.for_user(user, &inode, true, |node| match node {
            Node::Directory(directory) => Ok(directory.freshness()),
            _ => Err(Errno::ENOTDIR),
        })?;
        let flags = match freshness {
            // The kernel would show the names to all who may list the directory by then.
            Freshness::Immutable if self.access != Access::All => {
                // It may list what it has without another request.
                check_source()?;
                FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE
            }
            _ => FopenFlags::empty(),
        };
        let handle = DirectoryHandle::new(inode, user.clone());
        let handle = self.handles.insert(Handle::Directory(handle));
        Ok((FuseHandle(handle), flags))
    }

    /// Calls `add` with the entries from [`place`](place_behind) on until it returns true, because the reply
    /// is full. Entry 0 is `.`, 1 is `..`, the listing begins at 2. ESTALE if the place is not known any
    /// more.
    pub(super) fn do_readdir(
        &self,
        handle: FuseHandle,
        place: u64,
        mut add: impl FnMut(&Arc<Inode>, u64, Option<(Cow<'_, OsStr>, NodeType)>) -> bool,
    ) -> Result<(), Errno> {
        let handle = self.handle(handle)?;
        let Handle::Directory(handle) = &*handle else {
            return Err(Errno::ENOTDIR);
        };
        let listing = self.listing(handle, place)?;
        for position in position_of(place, &*listing).ok_or(Errno::ESTALE)?.. {
            let entry = match position {
                0 | 1 => None,
                _ => match listing.get(position - 2) {
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

    /// The snapshot for reading the directory; a new one at its beginning.
    fn listing(&self, handle: &DirectoryHandle, place: u64) -> Result<Arc<dyn Listing>, Errno> {
        let mut held = handle.listing();
        match &*held {
            Some(listing) if place > 0 => Ok(listing.clone()),
            _ => {
                self.check_source(handle.inode.top(), || handle.inode.path())?;
                let listing = self.for_user(&handle.opener, &handle.inode, true, |node| {
                    let Node::Directory(directory) = node else {
                        return Err(Errno::ENOTDIR);
                    };
                    directory.list().map_err(|error| match error.kind() {
                        // The directory was removed. C libraries would take ENOENT for an empty directory.
                        ErrorKind::NotFound => Errno::ESTALE,
                        _ => self.reporter.inside(&handle.inode.path(), &error),
                    })
                })?;
                *held = Some(listing.clone());
                Ok(listing)
            }
        }
    }

    pub(super) fn do_lseek(&self, handle: FuseHandle, offset: i64, whence: i32) -> Result<i64, Errno> {
        let handle = self.handle(handle)?;
        let Handle::File(handle) = &*handle else {
            return Err(Errno::EINVAL);
        };
        let len = i64::try_from(handle.open.len()).map_err(|_| Errno::EOVERFLOW)?;
        // All data, and the implicit hole at the end of every file.
        match whence {
            libc::SEEK_DATA | libc::SEEK_HOLE if !(0..len).contains(&offset) => Err(Errno::ENXIO),
            libc::SEEK_DATA => Ok(offset),
            libc::SEEK_HOLE => Ok(len),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Bits of a place in a directory that tell the name before it.
const NAME_BITS: u32 = 24;

/// The place behind the entry at `position`, which is called `name`. A server of NFS opens the directory anew
/// for each part that its client reads: entries may have come or gone by then, and the name tells which were
/// read.
pub(super) fn place_behind(position: u64, name: &OsStr) -> u64 {
    (position + 1) << NAME_BITS | hash(&name) >> (u64::BITS - NAME_BITS)
}

/// The position of the entry that comes next at `place`. None if the one before it is not there any more.
fn position_of(place: u64, listing: &dyn Listing) -> Option<u64> {
    /// How far away from where it was an entry is looked for.
    const MOST_MOVED: u64 = 1 << 20;
    let known = place >> NAME_BITS;
    // `.` and `..` are always there.
    let is_behind = |position: u64| match position.checked_sub(3) {
        None => position == known,
        Some(before) => {
            let before = listing.get(before);
            before.is_some_and(|(name, _)| place_behind(known - 1, &name) == place)
        }
    };
    let near = |by: u64| [known.checked_add(by), known.checked_sub(by)];
    let mut positions = (0..MOST_MOVED).flat_map(near).flatten();
    positions.find(|position| is_behind(*position))
}

/// Tells what a node is made of from what was there before names were exchanged in the source; 0 where they
/// are not watched.
fn generation(node: &Node) -> u64 {
    node.origin().engine().map_or(0, |engine| engine.generation())
}

/// How long the kernel may cache which inode a name has. A state's inode is valid only during that state.
fn name_ttl(node: &Node, state: Option<FileState>) -> Duration {
    match (node, state) {
        (Node::File(file), Some(_)) => ttl(file.freshness()),
        _ => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::node::Entry;

    #[test]
    fn a_directory_that_is_opened_anew_goes_on_behind_what_was_read() {
        let third = place_behind(4, OsStr::new("c"));
        for (names, next) in [
            ("abcde", Some(Some('d'))),
            ("bcde", Some(Some('d'))),
            ("0abcde", Some(Some('d'))),
            ("abc", Some(None)),
            ("c", Some(None)),
            ("abde", None),
            ("", None),
        ] {
            let entry = |name: char| (OsString::from(name.to_string()), NodeType::File);
            let listing: Vec<Entry> = names.chars().map(entry).collect();
            let position = position_of(third, &listing);
            let found = position.map(|position| names.chars().nth(position as usize - 2));
            assert_eq!(found, next, "{names}");
            for dots in 0..3 {
                assert_eq!(position_of(dots << NAME_BITS, &listing), Some(dots));
            }
        }
    }
}
