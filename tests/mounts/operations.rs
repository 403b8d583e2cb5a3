//! Makes every system call on every kind of path, and compares the result with that of a kernel file system:
//! a tmpfs with copies of the same files, mounted read-only.
//!
//! Needs root, so that no permission check precedes the call.

mod calls;
mod mutations;
mod queries;
mod reference;

use calls::*;
use mutations::MUTATIONS;
use queries::*;
use reference::{Both, Reference, paths};
use std::path::Path;
use std::process::Command;

/// Allowed differences: each call, the mount's answer, and the reason. None of these calls changes anything.
const DIFFERENCES: &[(&str, Answer, &str)] = &[
    (
        "epoll_ctl",
        Ok(0),
        "the kernel takes every file of FUSE for one that can be polled",
    ),
    (
        "getxattr ",
        Err(libc::EOPNOTSUPP),
        "there are none but in `user.`; the references have them, and none of that name",
    ),
    (
        "ioctl FIBMAP",
        Ok(0),
        "the kernel answers that block 0 is meant, as there is no device",
    ),
    (
        "ioctl FITRIM",
        Err(libc::ENOTTY),
        "only a file system on a device knows it",
    ),
    (
        "ioctl FS_IOC_FIEMAP",
        Err(libc::EOPNOTSUPP),
        "as a tmpfs answers: there are no extents",
    ),
    ("ioctl FS_IOC_GETFLAGS", Err(libc::ENOTTY), "there are no flags"),
    (
        "lseek SEEK_",
        Err(libc::ENXIO),
        "of directories, of which each file system has its own way; nobody seeks in them so",
    ),
    (
        "listxattr",
        Ok(0),
        "columns and tiles tell of their cells; the files of the references have none",
    ),
    ("lseek SEEK_END", Ok(0), "of directories, which have no size"),
    (
        "preadv2 RWF_NOWAIT",
        Err(libc::EOPNOTSUPP),
        "as a tmpfs answers; FUSE cannot tell whether it would wait",
    ),
    (
        "read O_DIRECT not aligned",
        Ok(0),
        "nothing has to be aligned, as on a tmpfs",
    ),
    ("statvfs f_bsize", Ok(4096), "a block is as large as a page"),
];

fn on_every_path(reference: Reference) {
    let both = Both::new(reference);
    let name = both.reference.name;
    let mut answers = 0;
    let mut erofs = 0;
    for (call, run) in MUTATIONS {
        for (kind, path) in paths() {
            let (mount, _) = both.ask(*run, &path);
            assert!(mount.is_err(), "{call} on {kind}: {mount:?}");
            answers += 1;
            erofs += u32::from(mount == Err(libc::EROFS));
        }
    }
    let all = MUTATIONS.iter().chain(QUERIES).copied().collect::<Vec<_>>();
    for ((call, mount, reference), kinds) in both.differences(&all) {
        let known = DIFFERENCES.iter().any(|(other, answer, _)| {
            let any = call.contains("O_DIRECT") || call == "listxattr";
            let same = *answer == mount || any && mount.is_ok();
            call.starts_with(other) && same
        });
        assert!(known, "{call}: {mount:?}, on {name} {reference:?}: {kinds:?}");
    }
    println!("{name}: {answers} tries to change something refused, {erofs} of them with EROFS");
    println!("{name}: {} calls compared", all.len() * paths().len());
    drop(both.mounted);
}

#[test]
fn as_on_a_tmpfs() {
    on_every_path(Reference::tmpfs());
}

#[test]
fn as_on_an_ext4() {
    match Reference::ext4() {
        Some(reference) => on_every_path(reference),
        None => println!("not compared: no ext4 on a loop device here"),
    }
}

#[test]
fn sizes_of_the_file_system() {
    let both = Both::new(Reference::tmpfs());
    let path = both.mountpoint.path();
    let on = On {
        path,
        new: path,
        other: path,
        outside: path,
    };
    let stat = statvfs(&on).unwrap();
    assert_ne!(stat.f_blocks, 0);
    // Full: nobody can write anything.
    assert_eq!(
        (stat.f_bfree, stat.f_bavail, stat.f_ffree, stat.f_namemax),
        (0, 0, 0, 255)
    );
    assert_ne!(stat.f_flag & libc::ST_RDONLY, 0);
    assert_ne!(stat.f_flag & libc::ST_NOSUID, 0);
    assert_ne!(stat.f_flag & libc::ST_NODEV, 0);
}

#[test]
fn programs_run_only_without_noexec_and_never_from_these_modes() {
    for no_exec in [false, true] {
        let mount = crate::common::TestMount::with(
            crate::common::dir([("script", crate::common::file(*b"#!/bin/sh\nexit 0\n"))]),
            |filesystem| filesystem,
            |options| options.no_exec = no_exec,
        );
        // No file has an x bit.
        let result = Command::new(mount.path("script")).status();
        assert_eq!(crate::common::errno(result), libc::EACCES);
        let loader = map_executable(&mount.path("script"));
        assert_eq!(loader, if no_exec { Err(libc::EPERM) } else { Ok(0) });
    }
}

fn map_executable(path: &Path) -> Answer {
    let on = On {
        path,
        new: path,
        other: path,
        outside: path,
    };
    map(&on, libc::MAP_PRIVATE, libc::PROT_READ | libc::PROT_EXEC)
}

#[test]
fn a_long_listing_asks_for_labels_and_access_lists_once() {
    let nodes = (0..200)
        .map(|i| (format!("f{i}"), crate::common::file(*b"12")))
        .collect();
    let mount = crate::common::TestMount::new(crate::common::dir_of(
        tiledbfs::internals::tree::Freshness::Immutable,
        nodes,
    ));
    for _ in 0..3 {
        let output = Command::new("ls")
            .arg("-l")
            .arg(mount.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 201);
    }
    // `ls` takes "not supported" as an answer about the whole file system: once for labels, once for access
    // lists.
    let asked = mount.requests.of("getxattr");
    assert!(asked <= 2 * 3, "{asked} times");
    println!(
        "{asked} getxattr, {} listxattr, {} lookups",
        mount.requests.of("listxattr"),
        mount.requests.of("lookup")
    );
}
