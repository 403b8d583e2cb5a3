//! A mount on demand by the kernel's autofs. The test takes the role of systemd or the automounter.

use crate::common::eventually;
use crate::common::place::Place;
use nix::mount::MsFlags;
use std::fs::File;
use std::io::{PipeReader, Read, pipe};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tiledbfs::internals::fuse::unmount_path;

/// autofs requests by which its daemon reports that the missing mount is there, or failed (linux/auto_fs.h).
const AUTOFS_IOC_READY: libc::c_ulong = 0x9360;
const AUTOFS_IOC_FAIL: libc::c_ulong = 0x9361;

/// The range of the request's token in a packet of version 5, and the packet type for a missing mount.
const TOKEN: std::ops::Range<usize> = 8..12;
const MISSING_DIRECT: u8 = 5;

/// Unmounts everything on this path when dropped.
struct Cleared<'a>(&'a Path);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        while unmount_path(self.0, true).is_ok() {}
    }
}

/// Waits for the request that an access triggers, and returns its token.
fn requested(mut pipe: PipeReader) -> u32 {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut packet = [0; 304];
        pipe.read_exact(&mut packet).unwrap();
        let _ = sender.send(packet);
    });
    let packet = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(packet[4], MISSING_DIRECT);
    u32::from_ne_bytes(packet[TOKEN].try_into().unwrap())
}

/// Every access to the mount point waits for the mount, except from the process group of the mounting
/// process. So nothing else may access it, also when mounting in the background.
#[test]
fn on_demand() {
    let place = Place::new();
    let mountpoint = place.path("mnt");
    let (reader, writer) = pipe().unwrap();
    let options = format!(
        "fd={},pgrp={},minproto=5,maxproto=5,direct",
        writer.as_raw_fd(),
        nix::unistd::getpgrp()
    );
    nix::mount::mount(
        Some("test"),
        &mountpoint,
        Some("autofs"),
        MsFlags::empty(),
        Some(options.as_str()),
    )
    .unwrap();
    let _cleared = Cleared(&mountpoint);
    let root = File::open(&mountpoint).unwrap();
    let reading = Command::new("setsid")
        .args(["-w", "cat"])
        .arg(mountpoint.join("group.json"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let token = requested(reader);
    let mut mounting = place.command(&["mount", "group", mountpoint.to_str().unwrap(), "-o", "ro"]);
    let mut mounting = mounting.spawn().unwrap();
    let (sender, ended) = channel();
    let answer = |request| {
        // SAFETY: the request takes a number, and the descriptor is open.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), request, libc::c_ulong::from(token)) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    thread::spawn(move || sender.send(mounting.wait().unwrap()));
    let ended = ended.recv_timeout(Duration::from_secs(10));
    answer(if ended.is_ok() {
        AUTOFS_IOC_READY
    } else {
        AUTOFS_IOC_FAIL
    });
    assert!(ended.expect("it does not wait for itself").success());
    let output = reading.wait_with_output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("members"));
    place.works();
    place.succeeds(&["unmount", "mnt"]);
    eventually("the daemon ends", || place.daemons().is_empty());
}
