//! Mounting and unmounting.

use crate::common::{TestMount, dir, eventually, file};
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tiledbfs::Result;
use tiledbfs::internals::bytes::{Bytes, Output};
use tiledbfs::internals::fuse::{FileSystem, MountOptions, mount, unmount_path};
use tiledbfs::internals::layout::FileLayout;
use tiledbfs::internals::storage::mountinfo;
use tiledbfs::internals::tree::{self, Freshness, Node, Stat, Tree};

fn tree() -> tiledbfs::internals::tree::Node {
    dir([("f", file(*b"fine"))])
}

#[test]
fn it_is_listed_read_only_and_gone_after_the_drop() {
    let mount = TestMount::new(tree());
    let path = mount.dir.path().to_owned();
    let entry = mountinfo::mounted_at(&path).unwrap().unwrap();
    assert_eq!(entry.fs_type, "fuse.tiledbfs");
    assert_eq!(entry.source, "tiledbfs");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(path.to_str().unwrap()))
        .unwrap();
    for option in ["ro,nosuid,nodev", "default_permissions", "max_read=1048576"] {
        assert!(line.contains(option), "{line}");
    }
    let (major, minor) = entry.device;
    let read_ahead = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
    // 1 MiB requests, for two of its four threads each.
    assert_eq!(read_ahead.trim(), "2048");
    let ended = mount.mounted.as_ref().unwrap().ended();
    assert!(ended.wait_for(Duration::ZERO).is_none());
    drop(mount);
    assert!(mountinfo::mounted_at(&path).unwrap().is_none());
    ended.wait_for(Duration::ZERO).unwrap().unwrap();
}

/// Without a local source.
#[test]
fn the_size_is_one_that_df_shows() {
    let mount = TestMount::new(tree());
    let shown = std::process::Command::new("df").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let path = mount.dir.path().to_str().unwrap();
    let line = shown.lines().find(|line| line.ends_with(path)).expect(&shown);
    let numbers: Vec<&str> = line.split_whitespace().skip(1).take(4).collect();
    assert_eq!(numbers, ["1099511627776", "1099511627776", "0", "100%"]);
}

#[test]
fn unmounted_by_others() {
    let mount = TestMount::new(tree());
    let ended = mount.mounted.as_ref().unwrap().ended();
    unmount_path(mount.dir.path(), false).unwrap();
    ended.wait_for(Duration::from_secs(10)).unwrap().unwrap();
}

#[test]
fn a_broken_connection_leaves_no_mount() {
    let mount = TestMount::new(tree());
    let path = mount.dir.path().to_owned();
    let ended = mount.mounted.as_ref().unwrap().ended();
    crate::common::abort(&path);
    ended.wait_for(Duration::from_secs(10)).unwrap().unwrap();
    assert!(mountinfo::mounted_at(&path).unwrap().is_some());
    drop(mount);
    assert!(mountinfo::mounted_at(&path).unwrap().is_none());
}

#[test]
fn a_second_mount_on_the_place_is_not_taken_away_by_the_first() {
    let mut first = TestMount::new(tree());
    let path = first.dir.path().to_owned();
    unmount_path(&path, false).unwrap();
    let second = Tree::of_nodes(dir([("second", file(*b"2"))]));
    let second = mount(FileSystem::new(second), &path, &MountOptions::default()).unwrap();
    first.mounted = None;
    assert_eq!(fs::read(path.join("second")).unwrap(), b"2");
    drop(second);
    assert!(mountinfo::mounted_at(&path).unwrap().is_none());
}

#[test]
fn unmounting_does_not_wait_for_open_files() {
    let mut mount = TestMount::new(tree());
    let mut open = File::open(mount.path("f")).unwrap();
    let busy = unmount_path(mount.dir.path(), false).unwrap_err();
    assert_eq!(busy.errno(), libc::EBUSY);
    mount.mounted.as_mut().unwrap().unmount().unwrap();
    assert!(mountinfo::mounted_at(mount.dir.path()).unwrap().is_none());
    assert_eq!(crate::common::errno(fs::metadata(mount.path("f"))), libc::ENOENT);
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "fine");
    let ended = mount.mounted.as_ref().unwrap().ended();
    assert!(ended.wait_for(Duration::ZERO).is_none());
    drop(open);
    ended.wait_for(Duration::from_secs(10)).unwrap().unwrap();
}

#[test]
fn names_that_the_table_of_mounts_escapes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b\\c\td");
    fs::create_dir(&path).unwrap();
    let tree = Tree::of_nodes(tree());
    let options = MountOptions {
        fs_name: "/data/x, y=z".into(),
        ..MountOptions::default()
    };
    let mounted = mount(FileSystem::new(tree), &path, &options).unwrap();
    let entry = mountinfo::mounted_at(&path).unwrap().unwrap();
    assert_eq!(entry.source, "/data/x, y=z");
    assert_eq!(fs::read(path.join("f")).unwrap(), b"fine");
    drop(mounted);
    assert!(mountinfo::mounted_at(&path).unwrap().is_none());
}

/// A file, each read of which takes a minute.
struct Slow;

impl tree::File for Slow {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            len: 4096,
            version: 0,
        })
    }

    fn mtime(&self) -> u64 {
        crate::common::MTIME
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        Ok(Arc::new(FileLayout::new(0, vec![Box::new(Slow)])?))
    }
}

impl Bytes for Slow {
    fn len(&self) -> u64 {
        4096
    }

    fn read(&self, _: Range<u64>, out: &mut Output) -> Result<()> {
        thread::sleep(Duration::from_secs(60));
        out.append(&[7; 4096]);
        Ok(())
    }
}

#[test]
fn reads_that_nobody_waits_for_do_not_outlive_the_mount() {
    let mount = TestMount::new(dir([("slow", Node::File(Arc::new(Slow)))]));
    let ended = mount.mounted.as_ref().unwrap().ended();
    let opened = File::open(mount.path("slow")).unwrap();
    // The kernel reads, and does not wait.
    // SAFETY: a system call without pointers.
    let advised = unsafe { libc::posix_fadvise(opened.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED) };
    assert_eq!(advised, 0);
    eventually("it is read", || mount.requests.of("read") > 0);
    drop(opened);
    unmount_path(mount.dir.path(), true).unwrap();
    ended.wait_for(Duration::from_secs(5)).unwrap().unwrap();
}
