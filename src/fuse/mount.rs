//! Mounts and unmounts file systems.
//!
//! `fuser`'s own mounting is not used: at the end of a session it unmounts whatever is at the mount point,
//! which may already be another mount.

use super::attributes::Access;
use super::filesystem::{FileSystem, MAX_REQUEST, Piece};
use crate::error::{Error, ErrorKind, Result};
use crate::printable;
use crate::runtime::lock;
use crate::storage::mountinfo::{self, MountEntry};
use fuser::{Config, INodeNo, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The default subtype of mounts: their type is `fuse.tiledbfs`.
pub const SUBTYPE: &str = "tiledbfs";

const DEVICE: &str = "/dev/fuse";

/// The major and minor number of `/dev/fuse`.
const DEVICE_NUMBERS: (u64, u64) = (10, 229);

/// Limit of the kernel's read-ahead, in requests of the largest size. For mapped files it reads as much
/// around a page that is accessed at random.
const MAX_READ_AHEAD_REQUESTS: usize = 4;

/// The most pieces of files that wait for the page cache, each in at most as much memory as a request.
const MAX_PIECES: usize = 32;

/// How long dropping [`Mounted`] waits for the session's threads, which run while files are open.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// How often to look whether the kernel has dropped the file system.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long requests may last that are under way when the kernel drops the file system.
const LAST_REQUESTS: Duration = Duration::from_millis(500);

/// How long [`Mounted::end`] waits for open files to be closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of a mount, which is always read-only, `nosuid`, `nodev` and `default_permissions`.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The source in the mount table.
    pub fs_name: OsString,
    /// The type in the mount table, after `fuse.`.
    pub subtype: String,
    /// Who may use it.
    pub access: Access,
    /// Threads that answer requests, at least 1.
    pub threads: usize,
    /// Whether to raise the kernel's read-ahead, so that threads decode concurrently. Object stores have a
    /// read-ahead of their own, and would fetch too much.
    pub read_ahead: bool,
    /// Forbid running programs (`noexec`).
    pub no_exec: bool,
    /// Show the mount as `noatime`; access times are never stored.
    pub no_atime: bool,
    /// Let a helper process (fusermount3) unmount when this process dies.
    pub auto_unmount: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            fs_name: OsString::from(SUBTYPE),
            subtype: SUBTYPE.to_owned(),
            access: Access::default(),
            threads: default_threads(),
            read_ahead: true,
            no_exec: false,
            no_atime: false,
            auto_unmount: false,
        }
    }
}

/// One thread per core, at least 2 and at most 16.
fn default_threads() -> usize {
    thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 16))
}

/// A mounted file system, which threads of this process serve. Dropping it unmounts.
pub struct Mounted {
    /// None if it is not this process that mounted, and unmounting is up to whoever did.
    entry: Option<MountEntry>,
    ended: Ended,
    /// The connection to the kernel; the session's threads have their own.
    device: OwnedFd,
    /// For `auto_unmount`: fusermount3, which waits for this process to die.
    helper: Option<Helper>,
}

/// The end of a session, to wait for.
#[derive(Clone, Default)]
pub struct Ended(Arc<(Mutex<Option<Result<()>>>, Condvar)>);

struct Helper {
    process: Child,
    /// Closed when this process dies, which fusermount3 notices.
    _socket: UnixStream,
}

impl Ended {
    /// The first result stays.
    fn set(&self, result: Result<()>) {
        lock(&self.0.0).get_or_insert(result);
        self.0.1.notify_all();
    }

    /// Waits until the session has ended: unmounted, and all files closed. Fails if an error ended it.
    /// Requests that nobody waits for any more may still be under way.
    pub fn wait(&self) -> Result<()> {
        loop {
            if let Some(result) = self.wait_for(Duration::MAX) {
                return result;
            }
        }
    }

    /// Like [`Ended::wait`] for at most `limit`; None if the session has not ended by then.
    pub fn wait_for(&self, limit: Duration) -> Option<Result<()>> {
        let (state, ended) = &*self.0;
        let waited = ended.wait_timeout_while(lock(state), limit, |state| state.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }
}

/// Mounts `filesystem` on the directory `mountpoint` and serves it in the background.
///
/// Errors say what to do about a missing `/dev/fuse`, `fusermount3` or permission.
pub fn mount(mut filesystem: FileSystem, mountpoint: &Path, options: &MountOptions) -> Result<Mounted> {
    let mountpoint = fs::canonicalize(mountpoint)
        .map_err(|error| Error::io(&error).in_file(printable::escape(mountpoint.as_os_str().as_bytes())))?;
    filesystem.set_access(options.access);
    let (device, helper) = attach(&mountpoint, options)?;
    let entry = mountinfo::mounted_at(&mountpoint).map_err(|error| Error::io(&error))?;
    if entry.is_none() {
        // In place of fusermount3 there may be a program that mounts elsewhere.
        log::warn!(
            "the mount is not in /proc/self/mountinfo: unmounting it is up to fusermount3's replacement"
        );
    }
    start(filesystem, device, entry, helper, options)
}

/// Serves `filesystem` in the background on descriptor `number`, an open `/dev/fuse` that somebody else has
/// mounted, and will unmount. Of `options`, those of the mount itself have no effect.
pub fn serve_descriptor(
    mut filesystem: FileSystem,
    number: RawFd,
    options: &MountOptions,
) -> Result<Mounted> {
    filesystem.set_access(options.access);
    start(filesystem, device_at(number)?, None, None, options).map_err(|error| match error.kind() {
        ErrorKind::Io(libc::EPERM) => {
            let message = format!("descriptor {number} is an open {DEVICE}, but nothing is mounted with it");
            Error::new(error.kind(), message)
        }
        _ => error,
    })
}

/// A copy of descriptor `number`, which is closed with this process's children. Fails if it is not an open
/// `/dev/fuse`.
fn device_at(number: RawFd) -> Result<OwnedFd> {
    let explain = |error: io::Error| Error::io(&error).in_file(format!("descriptor {number}"));
    // SAFETY: a system call without pointers.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(explain(io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just created this descriptor, and nothing else uses it.
    let device = File::from(unsafe { OwnedFd::from_raw_fd(copy) });
    let metadata = device.metadata().map_err(explain)?;
    let numbers = (
        libc::major(metadata.rdev()).into(),
        libc::minor(metadata.rdev()).into(),
    );
    if !metadata.file_type().is_char_device() || numbers != DEVICE_NUMBERS {
        let message = format!("descriptor {number} is not an open {DEVICE}");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(device.into())
}

/// Serves `filesystem` on `device`, mounted as `entry`.
fn start(
    filesystem: FileSystem,
    device: OwnedFd,
    entry: Option<MountEntry>,
    helper: Option<Helper>,
    options: &MountOptions,
) -> Result<Mounted> {
    let mounted = Mounted {
        entry,
        ended: Ended::default(),
        device: device.try_clone().map_err(|error| Error::io(&error))?,
        helper,
    };
    // From here on, dropping `mounted` unmounts.
    if let Err(error) = serve(filesystem, device, options, mounted.ended.clone()) {
        mounted.ended.set(Ok(()));
        return Err(Error::io(&error));
    }
    if let Some(entry) = &mounted.entry
        && options.read_ahead
    {
        raise_read_ahead(entry.device, read_ahead(options.threads));
    }
    Ok(mounted)
}

/// Initializes the connection to the kernel and starts the threads.
fn serve(
    mut filesystem: FileSystem,
    device: OwnedFd,
    options: &MountOptions,
    ended: Ended,
) -> io::Result<()> {
    let acl = match options.access {
        Access::Owner => SessionACL::Owner,
        Access::OwnerAndRoot => SessionACL::RootAndOwner,
        Access::All => SessionACL::All,
    };
    let mut config = Config::default();
    config.acl = acl;
    config.n_threads = Some(options.threads.max(1));
    // With this, each thread opens the device itself.
    config.clone_fd = open_device().is_ok();
    let watched = device.try_clone()?;
    let (sender, pieces) = sync_channel(MAX_PIECES);
    filesystem.pages = Some(sender);
    let inodes = filesystem.inodes.clone();
    let session = Session::from_fd(filesystem, device, acl, config)?;
    let notifier = session.notifier();
    // A thread of its own, as the kernel waits for pages that others read until these have been answered.
    thread::Builder::new()
        .name("fuse-pages".to_owned())
        .spawn(move || {
            for Piece { inode, offset, bytes } in pieces {
                let (chunk, part) = bytes;
                let bytes = &chunk[part];
                match notifier.store(INodeNo(inode.number), offset, bytes) {
                    Ok(()) => inode.pages(|pages| pages.stored += bytes.len() as u64),
                    // The file stays open for direct I/O.
                    Err(error) => log::debug!("the kernel does not keep pages of {}: {error}", inode.path()),
                }
                inodes.forget(inode.number, 1);
            }
        })?;
    let ended_otherwise = ended.clone();
    thread::Builder::new()
        .name("fuse-connection".to_owned())
        .spawn(move || {
            while ended_otherwise.wait_for(LOOK_EVERY).is_none() && !has_ended(&watched) {}
            // The session goes on until the last request is done, which may take long.
            if ended_otherwise.wait_for(LAST_REQUESTS).is_none() {
                ended_otherwise.set(Ok(()));
            }
        })?;
    thread::Builder::new()
        .name("fuse-session".to_owned())
        .spawn(move || {
            ended.set(match session.run() {
                // A thread that waits for a request when the session ends gets this error.
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => Ok(()),
                result => result.map_err(|error| Error::io(&error)),
            });
        })?;
    Ok(())
}

/// Whether the kernel has dropped the file system that is served on `device`. False if in doubt. Does not
/// wait: each request would wake who does.
fn has_ended(device: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(device.as_fd(), PollFlags::empty())];
    let answer = poll(&mut polled, PollTimeout::ZERO);
    let [polled] = polled;
    let events = polled.revents().unwrap_or(PollFlags::empty());
    answer == Ok(1) && events.contains(PollFlags::POLLERR)
}

impl Mounted {
    /// The mount point; None if it is not this process that mounted.
    pub fn mountpoint(&self) -> Option<&Path> {
        self.entry.as_ref().map(|entry| &*entry.mount_point)
    }

    /// The end of the session, to wait for.
    pub fn ended(&self) -> Ended {
        self.ended.clone()
    }

    /// Unmounts at once. Open files stay readable until they are closed, while this process runs. Does
    /// nothing if already unmounted.
    pub fn unmount(&mut self) -> Result<()> {
        let Some(path) = self.uppermost()? else {
            return Ok(());
        };
        match unmount_path(&path, false) {
            Err(error) if error.kind() == ErrorKind::Io(libc::EBUSY) => unmount_path(&path, true),
            result => result,
        }
    }

    /// Unmounts before the process ends. Waits a little for open files to be closed, then aborts the
    /// connection, so that pending requests fail even if the source hangs. Without root, only the process's
    /// end does that.
    pub fn end(&mut self) -> Result<()> {
        let end = Instant::now().checked_add(CLOSE_TIMEOUT);
        while let Some(path) = self.uppermost()? {
            match unmount_path(&path, false) {
                Err(error) if error.kind() == ErrorKind::Io(libc::EBUSY) => {}
                result => return result,
            }
            if end.is_none_or(|end| Instant::now() > end) {
                let flags = MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_FORCE | MntFlags::MNT_DETACH;
                return match umount2(&path, flags) {
                    Ok(()) => Ok(()),
                    Err(_) => self.unmount(),
                };
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Where it is mounted by now: directories above the mount point may be renamed, and the mount itself
    /// moved. None if it is not. Fails with `Io(EBUSY)` if something else is mounted on top of it.
    fn uppermost(&self) -> Result<Option<PathBuf>> {
        let table = mountinfo::mounts().map_err(|error| Error::io(&error))?;
        let of = |entry: &MountEntry| (entry.id, entry.device, entry.source.clone());
        let own = self.entry.as_ref().map(of);
        let Some(entry) = table.iter().find(|entry| Some(of(entry)) == own) else {
            return Ok(None);
        };
        let path = &entry.mount_point;
        // While connected, no other mount has this device number. Later, one may have an equal entry.
        if !self.is_connected() && !is_dead(path) {
            return Ok(None);
        }
        if table.iter().rfind(|mount| mount.mount_point == *path) != Some(entry) {
            return Err(Error::new(
                ErrorKind::Io(libc::EBUSY),
                format!(
                    "something else is mounted on top of {}",
                    printable::escape(path.as_os_str().as_bytes())
                ),
            ));
        }
        Ok(Some(path.clone()))
    }

    /// Whether the kernel still has the file system, mounted or detached.
    fn is_connected(&self) -> bool {
        // If in doubt, true: trying to unmount is harmless.
        !has_ended(&self.device)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            log::error!("cannot unmount: {error}");
        }
        if self.entry.is_some() && self.ended.wait_for(DROP_TIMEOUT).is_none() {
            log::warn!("the mount is gone, but some of its files are still open");
        }
        if let Some(Helper { mut process, _socket }) = self.helper.take() {
            drop(_socket);
            let _ = process.wait();
        }
    }
}

/// Whether the daemon of the FUSE mount at `mountpoint` has died. False if it does not answer in a second.
pub fn is_dead(mountpoint: &Path) -> bool {
    let Ok(path) = CString::new(mountpoint.as_os_str().as_bytes()) else {
        return false;
    };
    let (sender, receiver) = channel();
    // On another thread, because the reply may never come. Extended attributes, because the daemon returns
    // these without accessing the source.
    let ask = move || {
        // SAFETY: the path is a C string that outlives the call, and the buffer has size 0.
        let answer = unsafe { libc::llistxattr(path.as_ptr(), std::ptr::null_mut(), 0) };
        let error = io::Error::last_os_error();
        let _ = sender.send(answer < 0 && error.raw_os_error() == Some(libc::ENOTCONN));
    };
    thread::spawn(ask);
    receiver.recv_timeout(Duration::from_secs(1)) == Ok(true)
}

/// Unmounts `path`, which must be canonical; with `lazy` even while files are open. Users other than root use
/// fusermount3. Fails with `Io(EBUSY)` if it is in use.
pub fn unmount_path(path: &Path, lazy: bool) -> Result<()> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    flags.set(MntFlags::MNT_DETACH, lazy);
    match umount2(path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => {
            let mut command = Command::new(fusermount());
            command.arg("-u");
            if lazy {
                command.arg("-z");
            }
            let output = command
                .arg("--")
                .arg(path)
                .stdin(Stdio::null())
                .output()
                .map_err(|error| fusermount_error(&error))?;
            let message = String::from_utf8_lossy(&output.stderr);
            if output.status.success() {
                Ok(())
            } else if message.contains("busy") {
                Err(Error::new(ErrorKind::Io(libc::EBUSY), "it is in use"))
            } else {
                Err(Error::new(ErrorKind::Io(libc::EPERM), one_line(&message)))
            }
        }
        Err(Errno::EBUSY) => Err(Error::new(ErrorKind::Io(libc::EBUSY), "it is in use")),
        Err(errno) => Err(Error::io(&errno.into())),
    }
}

fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

/// Mounts. Returns the device for serving the file system, and the helper of `auto_unmount`. fusermount3 may
/// have the device, or the capability, that this process lacks, root's or not.
fn attach(mountpoint: &Path, options: &MountOptions) -> Result<(OwnedFd, Option<Helper>)> {
    if options.auto_unmount {
        return attach_with_fusermount(mountpoint, options);
    }
    let reason = match attach_directly(mountpoint, options) {
        Ok(device) => return Ok((device, None)),
        Err(error) if is_lack(&error) => error,
        Err(error) => return Err(error),
    };
    // Other users lack the capability anyway, and fusermount3 says what else is wrong.
    let expected = matches!(reason.kind(), ErrorKind::Io(libc::EPERM | libc::EACCES));
    let expected = expected && !nix::unistd::geteuid().is_root();
    attach_with_fusermount(mountpoint, options).map_err(|error| match error.kind() {
        _ if expected => error,
        ErrorKind::NotFound => reason,
        kind => Error::new(kind, format!("{reason}; {error}")),
    })
}

/// Whether an error of [`attach_directly`] says that this process lacks the device or the privilege.
fn is_lack(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io(libc::EPERM | libc::EACCES | libc::ENOENT | libc::ENODEV | libc::ENXIO)
    )
}

/// Mounts with mount(2).
fn attach_directly(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let device = open_device().map_err(|error| device_error(&error))?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,max_read={MAX_REQUEST}",
        device.as_raw_fd(),
        nix::unistd::getuid(),
        nix::unistd::getgid(),
    );
    if options.access != Access::Owner {
        data.push_str(",allow_other");
    }
    let mut flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    flags.set(MsFlags::MS_NOEXEC, options.no_exec);
    flags.set(MsFlags::MS_NOATIME, options.no_atime);
    match nix::mount::mount(
        Some(options.fs_name.as_os_str()),
        mountpoint,
        Some(format!("fuse.{}", options.subtype).as_str()),
        flags,
        Some(data.as_str()),
    ) {
        Ok(()) => Ok(device.into()),
        Err(Errno::EPERM) => Err(Error::new(
            ErrorKind::Io(libc::EPERM),
            "not permitted to mount: the process lacks CAP_SYS_ADMIN (start a container with --cap-add \
             SYS_ADMIN --device /dev/fuse)",
        )),
        Err(Errno::ENODEV) => Err(device_error(&io::Error::from_raw_os_error(libc::ENODEV))),
        Err(errno) => Err(Error::io(&errno.into()).in_file("mount(2)")),
    }
}

fn device_error(error: &io::Error) -> Error {
    let message = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "/dev/fuse is missing: load the kernel module with `modprobe fuse`, or start the container with \
             --device /dev/fuse --cap-add SYS_ADMIN"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "no permission to open /dev/fuse: it should be readable and writable for all (mode 0666), and a \
             container must be started with --device /dev/fuse"
                .to_owned()
        }
        _ => format!("cannot open /dev/fuse: {error}"),
    };
    Error::new(ErrorKind::Io(error.raw_os_error().unwrap_or(libc::EIO)), message)
}

/// The setuid program that mounts for users other than root; `fusermount` is its older name.
fn fusermount() -> &'static str {
    let found = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    if !found("fusermount3") && found("fusermount") {
        "fusermount"
    } else {
        "fusermount3"
    }
}

fn fusermount_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(
            "fusermount3 is missing, without which only root can mount: install the package fuse3",
        ),
        _ => Error::io(error).in_file("fusermount3"),
    }
}

/// Mounts through fusermount3, which passes the device over a socket, its standard input.
fn attach_with_fusermount(mountpoint: &Path, options: &MountOptions) -> Result<(OwnedFd, Option<Helper>)> {
    let mut list = OsString::from(format!(
        "ro,nosuid,nodev,default_permissions,max_read={MAX_REQUEST},subtype={},fsname=",
        options.subtype
    ));
    list.push(escape(&options.fs_name));
    let flags = [
        (options.access != Access::Owner, ",allow_other"),
        (options.no_exec, ",noexec"),
        (options.no_atime, ",noatime"),
        (options.auto_unmount, ",auto_unmount"),
    ];
    for (_, flag) in flags.into_iter().filter(|(wanted, _)| *wanted) {
        list.push(flag);
    }
    let (theirs, ours) = UnixStream::pair().map_err(|error| Error::io(&error))?;
    let mut process = Command::new(fusermount())
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| fusermount_error(&error))?;
    match receive_descriptor(&ours) {
        Ok(device) if options.auto_unmount => Ok((
            device,
            Some(Helper {
                process,
                _socket: ours,
            }),
        )),
        Ok(device) => {
            let _ = process.wait();
            Ok((device, None))
        }
        Err(error) => {
            drop(ours);
            let message = process
                .wait_with_output()
                .map(|output| one_line(&String::from_utf8_lossy(&output.stderr)))
                .unwrap_or_default();
            Err(Error::new(
                ErrorKind::Io(libc::EPERM),
                match message {
                    _ if message.is_empty() => format!("fusermount3 did not mount: {error}"),
                    _ if message.contains("user_allow_other") => {
                        "-o allow_other and -o allow_root need the line `user_allow_other` in \
                         /etc/fuse.conf: add it, or mount as root"
                            .to_owned()
                    }
                    _ => message,
                },
            ))
        }
    }
}

/// The lines that another program has printed, as one.
fn one_line(text: &str) -> String {
    text.trim().replace('\n', "; ")
}

/// Receives one descriptor, which comes with one byte.
fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let [descriptor] = descriptors.as_slice()
        {
            // SAFETY: the kernel has just created this descriptor, and nothing else uses it.
            return Ok(unsafe { OwnedFd::from_raw_fd(*descriptor) });
        }
    }
    Err(io::Error::other("fusermount3 did not pass a file descriptor"))
}

/// Escapes a name for a list of mount options.
fn escape(name: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(name.len());
    for byte in name.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    OsString::from_vec(out)
}

/// The kernel's read-ahead in bytes, for which threads decode concurrently, one request each. With
/// POSIX_FADV_SEQUENTIAL, as in `cat`, the kernel doubles it.
fn read_ahead(threads: usize) -> usize {
    MAX_REQUEST as usize * (threads / 2).clamp(1, MAX_READ_AHEAD_REQUESTS)
}

/// Sets the kernel's read-ahead for the file system on `device`, which needs root.
fn raise_read_ahead((major, minor): (u32, u32), bytes: usize) {
    let path: PathBuf = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb").into();
    if let Err(error) = fs::write(&path, (bytes >> 10).to_string()) {
        log::info!(
            "{}: {error}: cannot raise the read-ahead, so sequential reads are slower",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_ahead_is_for_half_of_the_threads() {
        let mib = [1, 2, 3, 4, 7, 8, 256].map(|threads| read_ahead(threads) >> 20);
        assert_eq!(mib, [1, 1, 1, 2, 3, 4, 4]);
    }
}
