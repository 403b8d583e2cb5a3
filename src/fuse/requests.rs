//! Replies to the kernel's requests. Each is carried out inside [`FileSystem::guard`], and replied to outside
//! of it, so that a panic cannot prevent the reply.

use super::attributes::{BLOCK_SIZE, absent, file_type};
use super::filesystem::{FileSystem, Found, MAX_NAME, MAX_REQUEST, place_behind};
use super::handles::Handle;
use super::inodes::ROOT;
use crate::bytes::Output;
use crate::runtime::requester::{Requester, on_behalf_of};
use crate::storage::{Credentials, Space};
use crate::tree::Node;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle as FuseHandle, FileType, Filesystem,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags,
    PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// Concurrent background requests of the kernel, such as read-ahead.
const MAX_BACKGROUND: u16 = 64;

/// Larger memory is freed after the request.
const MAX_KEPT: usize = 2 * MAX_REQUEST as usize;

thread_local! {
    static OUTPUT: RefCell<Output> = RefCell::default();
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Settings that the kernel refuses stay at its defaults.
        if let Ok(direct_mmap) = self.guard("init", INodeNo(ROOT), || Ok(self.do_init(config))) {
            self.direct_mmap = direct_mmap;
        }
        Ok(())
    }

    fn destroy(&mut self) {
        let _ = self.guard("destroy", INodeNo(ROOT), || Ok(()));
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.guard("lookup", parent, || {
            on_behalf_of(request.pid(), || self.do_lookup(&user(request), parent, name))
        }) {
            Ok(Found::Entry {
                attributes,
                attributes_ttl,
                entry_ttl,
                generation,
            }) => reply.entry_with_ttls(&attributes_ttl, &entry_ttl, &attributes, generation),
            Ok(Found::Absent { entry_ttl }) if entry_ttl.is_zero() => reply.error(Errno::ENOENT),
            Ok(Found::Absent { entry_ttl }) => reply.entry(&entry_ttl, &absent(), Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        let _ = self.guard("forget", ino, || {
            self.inodes.forget(ino.0, nlookup);
            Ok(())
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FuseHandle>, reply: ReplyAttr) {
        match self.guard("getattr", ino, || {
            on_behalf_of(request.pid(), || self.do_getattr(ino, fh))
        }) {
            Ok((ttl, attributes)) => reply.attr(&ttl, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.guard("readlink", ino, || self.do_readlink(&user(request), ino)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.guard("open", ino, || {
            on_behalf_of(request.pid(), || self.do_open(&user(request), ino, flags))
        }) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FuseHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut out = OUTPUT.take();
        let handle = self.handle(fh);
        let read = self.guard("read", ino, || match handle.as_deref() {
            Ok(Handle::File(handle)) => {
                let requester = match flags.0 & libc::O_DIRECT {
                    0 => request.pid().into(),
                    // As after io_submit(2).
                    _ => Requester::asynchronous(request.pid()),
                };
                on_behalf_of(requester, || self.do_read(handle, offset, size, &mut out))
            }
            Ok(Handle::Directory(_)) => Err(Errno::EISDIR),
            Err(errno) => Err(*errno),
        });
        match read {
            Ok(()) => {
                self.stats.reads.add(1);
                self.stats.bytes_served.add(out.len() as u64);
                reply.data(&out);
            }
            Err(errno) => reply.error(errno),
        }
        if out.capacity() <= MAX_KEPT {
            out.clear();
            OUTPUT.set(out);
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FuseHandle, _: LockOwner, reply: ReplyEmpty) {
        // After ENOSYS, the kernel does not ask again.
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
        answer_empty(self.guard("release", ino, || self.close(fh)), reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FuseHandle, _: bool, reply: ReplyEmpty) {
        // Nothing is ever dirty.
        answer_empty(self.guard("fsync", ino, || Ok(())), reply);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.guard("opendir", ino, || {
            on_behalf_of(request.pid(), || self.do_opendir(&user(request), ino, flags))
        }) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FuseHandle, offset: u64, mut reply: ReplyDirectory) {
        let result = self.guard("readdir", ino, || {
            self.do_readdir(fh, offset, |inode, position, entry| {
                let (number, kind, name) = match (position, entry) {
                    (_, Some((name, kind))) => (self.inodes.number_of(inode, &name), file_type(kind), name),
                    (0, None) => (inode.number, FileType::Directory, OsStr::new(".").into()),
                    (_, None) => (
                        inode.parent_number(),
                        FileType::Directory,
                        OsStr::new("..").into(),
                    ),
                };
                reply.add(INodeNo(number), place_behind(position, &name), kind, &name)
            })
        });
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, fh: FuseHandle, _: OpenFlags, reply: ReplyEmpty) {
        answer_empty(self.guard("releasedir", ino, || self.close(fh)), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FuseHandle, _: bool, reply: ReplyEmpty) {
        answer_empty(self.guard("fsyncdir", ino, || Ok(())), reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.guard("statfs", ino, || self.space(ino)) {
            // Nothing is free, because nothing can be written.
            Ok(Space {
                block_size,
                blocks,
                files,
            }) => {
                reply.statfs(blocks, 0, 0, files, 0, BLOCK_SIZE, MAX_NAME, block_size);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn access(&self, _: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let result = self.guard("access", ino, || {
            let directory = matches!(self.node(&self.inode(ino)?)?, Node::Directory(_));
            if mask.contains(AccessFlags::W_OK) {
                Err(Errno::EROFS)
            } else if mask.contains(AccessFlags::X_OK) && !directory {
                Err(Errno::EACCES)
            } else {
                Ok(())
            }
        });
        answer_empty(result, reply);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.guard("getxattr", ino, || {
            // `ls -l` asks for access control lists and labels. EOPNOTSUPP stops the kernel from asking.
            if !name.as_bytes().starts_with(b"user.") {
                return Err(Errno::EOPNOTSUPP);
            }
            let attributes = self.do_attributes(&user(request), ino)?;
            let found = attributes.into_iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into_bytes()).ok_or(Errno::NO_XATTR)
        });
        answer_xattr(value, size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.guard("listxattr", ino, || {
            let names = self.do_attributes(&user(request), ino)?.into_iter();
            Ok(names
                .flat_map(|(name, _)| [name, "\0"])
                .collect::<String>()
                .into_bytes())
        });
        answer_xattr(names, size, reply);
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
        // After ENOSYS, the kernel treats files as always ready.
        reply.error(self.refuse("poll", ino, Errno::ENOSYS));
    }

    // Requests for changes. The kernel refuses most of them itself, because the mount is read-only.

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

/// Who makes a request.
fn user(request: &Request) -> Credentials {
    Credentials::new(request.uid(), request.gid(), request.pid())
}

fn answer_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// Replies with a value, or with its length if `size` is 0.
fn answer_xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

impl FileSystem {
    /// Closes an open file or directory.
    fn close(&self, handle: FuseHandle) -> Result<(), Errno> {
        drop(self.handles.remove(handle.0));
        Ok(())
    }

    /// Negotiates settings with the kernel. Returns whether files open for direct I/O can be mapped.
    fn do_init(&self, config: &mut KernelConfig) -> bool {
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let offered = config.capabilities() & wanted;
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
            // Limits reads as well.
            config.set_max_write(MAX_REQUEST).err().map(|_| "max_write"),
        ];
        for refused in settings.into_iter().flatten() {
            log::warn!("the kernel does not accept the requested {refused}");
        }
        offered.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
    }
}
