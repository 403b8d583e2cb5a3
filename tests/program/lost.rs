//! `cp` and `cat` onto a file system that takes all that is written, and says afterwards that it is lost, as
//! NFS and sshfs do where the disk of the server is full.

use crate::common::place::Place;
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyWrite, Request,
    Session, SessionACL, TimeOrNow, WriteFlags,
};
use nix::mount::MsFlags;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files and directories, by name, of which only numbers and lengths are kept.
#[derive(Default, Clone)]
struct Lossy {
    state: Arc<Mutex<State>>,
    /// How long a write takes.
    pause: Duration,
}

#[derive(Default)]
struct State {
    files: BTreeMap<OsString, (u64, u64)>,
    made: u64,
    /// Whether bytes were lost of which nobody knows yet.
    lost: bool,
}

fn attributes(number: u64, size: u64) -> FileAttr {
    let (kind, perm) = match number % 2 {
        1 => (FileType::Directory, 0o755),
        _ => (FileType::RegularFile, 0o644),
    };
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Lossy {
    /// Tells of lost bytes, once, as Linux does.
    fn tell(&self, reply: ReplyEmpty) {
        match std::mem::take(&mut self.state.lock().unwrap().lost) {
            true => reply.error(Errno::ENOSPC),
            false => reply.ok(),
        }
    }

    /// Mounts it on `mountpoint`, which dropping the place unmounts.
    fn mount(&self, mountpoint: &Path) {
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        nix::mount::mount(
            Some("lossy"),
            mountpoint,
            Some("fuse.lossy"),
            MsFlags::empty(),
            Some(data.as_str()),
        )
        .unwrap();
        let session = Session::from_fd(self.clone(), device.into(), SessionACL::All, Config::default());
        let session = session.unwrap();
        thread::spawn(move || session.run());
    }

    fn names(&self) -> Vec<OsString> {
        self.state.lock().unwrap().files.keys().cloned().collect()
    }
}

impl Filesystem for Lossy {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.state.lock().unwrap().files.get(name) {
            Some((number, size)) => reply.entry(&Duration::ZERO, &attributes(*number, *size), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let state = self.state.lock().unwrap();
        let found = state.files.values().find(|(number, _)| *number == ino.0);
        let (number, size) = found.copied().unwrap_or((ino.0, 0));
        reply.attr(&Duration::ZERO, &attributes(number, size));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        wanted: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state.lock().unwrap();
        let found = state.files.values_mut().find(|(number, _)| *number == ino.0);
        let (_, size) = found.unwrap();
        *size = wanted.unwrap_or(*size);
        reply.attr(&Duration::ZERO, &attributes(ino.0, *size));
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let mut state = self.state.lock().unwrap();
        state.made += 1;
        let number = 2 * state.made;
        state.files.insert(name.into(), (number, 0));
        reply.created(
            &Duration::ZERO,
            &attributes(number, 0),
            Generation(0),
            FileHandle(0),
            FopenFlags::empty(),
        );
    }

    fn mkdir(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let mut state = self.state.lock().unwrap();
        state.made += 1;
        let number = 2 * state.made + 1;
        state.files.insert(name.into(), (number, 0));
        reply.entry(&Duration::ZERO, &attributes(number, 0), Generation(0));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.unlink(request, parent, name, reply);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        thread::sleep(self.pause);
        let mut state = self.state.lock().unwrap();
        state.lost = true;
        let found = state.files.values_mut().find(|(number, _)| *number == ino.0);
        let (_, size) = found.unwrap();
        *size = (*size).max(offset + data.len() as u64);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.tell(reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.tell(reply);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        to: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state.lock().unwrap();
        let file = state.files.remove(name).unwrap();
        state.files.insert(to.into(), file);
        reply.ok();
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.state.lock().unwrap().files.remove(name);
        reply.ok();
    }
}

#[test]
fn what_is_lost_is_no_copy() {
    // With a pause the copy takes so long that it could be continued.
    for pause in [Duration::ZERO, Duration::from_millis(3100)] {
        let place = Place::new();
        let lossy = Lossy {
            pause,
            ..Lossy::default()
        };
        lossy.mount(&place.path("mnt"));
        let output = place.run(&["cp", "group", "group.json", "mnt"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), lossy.names()),
            (Some(1), Vec::new()),
            "{message}"
        );
        let wanted = "tiledbfs: mnt/group.json: cannot write: No space left on device";
        assert!(message.starts_with(wanted), "{message}");
    }
}

#[test]
fn a_directory_whose_mark_is_lost_is_not_copied() {
    let place = Place::new();
    let lossy = Lossy::default();
    lossy.mount(&place.path("mnt"));
    let output = place.run(&["cp", "-r", "group", "mnt"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(lossy.names(), Vec::<OsString>::new(), "{message}");
    assert_eq!(
        message,
        "tiledbfs: mnt/group: cannot write: No space left on device (os error 28)\n"
    );
}

#[test]
fn what_is_lost_of_stdout_is_told() {
    for (arguments, code) in [
        (&["cat", "group", "group.json"][..], 1),
        (&["ls", "group"], 1),
        (&["info", "group"], 1),
        (&["--version"], 1),
        // It finds one note.
        (
            &[
                "check",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/versions/v22/evolved"),
                "--quiet",
            ],
            2,
        ),
    ] {
        let place = Place::new();
        let lossy = Lossy::default();
        lossy.mount(&place.path("mnt"));
        let stdout = File::create(place.path("mnt/out")).unwrap();
        let output = place.command(arguments).stdout(stdout).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        let wanted = "tiledbfs: cannot write: No space left on device";
        assert!(message.starts_with(wanted), "{arguments:?}: {message}");
    }
}
