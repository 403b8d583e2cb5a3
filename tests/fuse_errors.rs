//! What fails, how, and that nothing else does.

mod common;

use common::{BrokenFile, Fault, TestMount, dir, dir_of, errno, file};
use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tiledbfs::error::{Error, ErrorKind, Result};
use tiledbfs::tree::{Directory, Freshness, Listing, Node};

/// The result of a system call that is -1 when it fails.
fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

type Call = fn(&Path) -> io::Result<()>;

/// Every call that would change something, on a path that exists or, where it makes something, on one beside it.
const MUTATIONS: &[(&str, Call)] = &[
    ("open for writing", |p| {
        OpenOptions::new().write(true).open(p).map(drop)
    }),
    ("open for both", |p| {
        OpenOptions::new().read(true).write(true).open(p).map(drop)
    }),
    ("open to append", |p| {
        OpenOptions::new().append(true).open(p).map(drop)
    }),
    ("open to truncate", |p| {
        OpenOptions::new().write(true).truncate(true).open(p).map(drop)
    }),
    ("create", |p| File::create(p.with_extension("new")).map(drop)),
    ("mkdir", |p| fs::create_dir(p.with_extension("new"))),
    ("unlink", |p| fs::remove_file(p)),
    ("rename", |p| fs::rename(p, p.with_extension("new"))),
    ("link", |p| fs::hard_link(p, p.with_extension("new"))),
    ("symlink", |p| {
        std::os::unix::fs::symlink("x", p.with_extension("new"))
    }),
    ("chmod", |p| {
        fs::set_permissions(p, fs::Permissions::from_mode(0o777))
    }),
    ("chown", |p| std::os::unix::fs::chown(p, Some(1), Some(1))),
    ("mkfifo", |p| {
        // SAFETY: the path is a C string that lives through the call.
        check(unsafe { libc::mkfifo(c(&p.with_extension("new")).as_ptr(), 0o600) })
    }),
    ("truncate", |p| {
        // SAFETY: as above.
        check(unsafe { libc::truncate(c(p).as_ptr(), 0) })
    }),
    ("utimes", |p| {
        // SAFETY: as above; no times means now.
        check(unsafe { libc::utimes(c(p).as_ptr(), std::ptr::null()) })
    }),
    ("setxattr", |p| {
        // SAFETY: as above; the value is one byte.
        check(unsafe { libc::setxattr(c(p).as_ptr(), c"user.x".as_ptr(), c"v".as_ptr().cast(), 1, 0) })
    }),
    ("removexattr", |p| {
        // SAFETY: as above.
        check(unsafe { libc::removexattr(c(p).as_ptr(), c"user.x".as_ptr()) })
    }),
];

#[test]
fn nothing_can_be_changed() {
    let mount = TestMount::new(dir([("d", dir([("f", file(*b"12"))])), ("f", file(*b"12"))]));
    for (name, call) in MUTATIONS {
        for path in ["f", "d/f"] {
            assert_eq!(errno(call(&mount.path(path))), libc::EROFS, "{name} {path}");
        }
        if name.starts_with("open") {
            assert_eq!(errno(call(&mount.path("d"))), libc::EISDIR, "{name} d");
        } else if !matches!(*name, "unlink" | "link" | "truncate") {
            assert_eq!(errno(call(&mount.path("d"))), libc::EROFS, "{name} d");
        }
    }
    assert_eq!(errno(fs::remove_dir(mount.path("d"))), libc::EROFS);
    // Of what is open for reading.
    let open = File::open(mount.path("f")).unwrap();
    let fd = open.as_raw_fd();
    // SAFETY: system calls on an open descriptor, without pointers.
    unsafe {
        assert_eq!(errno(check(libc::fallocate(fd, 0, 0, 10))), libc::EBADF);
        assert_eq!(errno(check(libc::ftruncate(fd, 0))), libc::EINVAL);
        assert_eq!(errno(check(libc::fchmod(fd, 0o600))), libc::EROFS);
        assert_eq!(check(libc::fsync(fd)).map_err(|error| error.kind()), Ok(()));
    }
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"12");
    assert_eq!(mount.stats.errors.get(), 0);
}

#[test]
fn as_on_any_read_only_disk() {
    let mount = TestMount::new(dir([("f", file(vec![7; 10_000]))]));
    let path = c(&mount.path("f"));
    let open = File::open(mount.path("f")).unwrap();
    let fd = open.as_raw_fd();
    // SAFETY: the pointers are to C strings and structures that live through the calls.
    unsafe {
        let get = libc::getxattr(path.as_ptr(), c"user.x".as_ptr(), std::ptr::null_mut(), 0);
        assert_eq!(errno(check(get as libc::c_int)), libc::ENODATA);
        assert_eq!(libc::listxattr(path.as_ptr(), std::ptr::null_mut(), 0), 0);
        let mut flags: libc::c_long = 0;
        assert_eq!(
            errno(check(libc::ioctl(fd, libc::FS_IOC_GETFLAGS, &raw mut flags))),
            libc::ENOTTY
        );
        assert_eq!(libc::lseek(fd, 5, libc::SEEK_DATA), 5);
        assert_eq!(libc::lseek(fd, 5, libc::SEEK_HOLE), 10_000);
        assert_eq!(libc::lseek(fd, 10_000, libc::SEEK_DATA), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENXIO));
        assert_eq!(libc::lseek(fd, -3, libc::SEEK_END), 9_997);
        let mut statfs: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &raw mut statfs)).unwrap();
        assert_eq!((statfs.f_namemax, statfs.f_bfree), (255, 0));
        assert_ne!(statfs.f_flag & libc::ST_RDONLY, 0);
        assert_eq!(libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB), 0);
        assert_eq!(errno(check(libc::access(path.as_ptr(), libc::W_OK))), libc::EROFS);
        assert_eq!(libc::access(path.as_ptr(), libc::R_OK), 0);
    }
    assert_eq!(errno(fs::read_link(mount.path("f"))), libc::EINVAL);
    assert_eq!(errno(fs::read_dir(mount.path("f"))), libc::ENOTDIR);
    assert_eq!(errno(fs::read(mount.path(""))), libc::EISDIR);
}

fn broken(len: Option<Fault>, open: Option<Fault>, read: Option<Fault>) -> Node {
    Node::File(Arc::new(BrokenFile { len, open, read }))
}

fn error(kind: ErrorKind) -> Option<Fault> {
    Some(Fault::Error(kind))
}

#[test]
fn an_error_stays_with_its_file_and_is_told() {
    let mount = TestMount::new(dir([
        (
            "len",
            broken(error(ErrorKind::Corrupt), error(ErrorKind::Corrupt), None),
        ),
        ("open", broken(None, error(ErrorKind::NotFound), None)),
        ("locked", broken(None, error(ErrorKind::KeyRequired), None)),
        ("read", broken(None, None, error(ErrorKind::ChecksumMismatch))),
        ("short", broken(None, None, Some(Fault::Short))),
        ("io", broken(None, None, error(ErrorKind::Io(libc::ESTALE)))),
        ("good", file(*b"fine")),
    ]));
    let metadata = fs::metadata(mount.path("len")).unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode()), (0, 0o100444));
    for (name, wanted) in [
        ("len", libc::EIO),
        ("open", libc::EIO),
        ("locked", libc::EACCES),
        ("read", libc::EIO),
        ("short", libc::EIO),
    ] {
        assert_eq!(errno(fs::read(mount.path(name))), wanted, "{name}");
    }
    // The page cache makes EIO of all errors; without it they come through.
    let direct = OpenOptions::new();
    let direct = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut direct.clone(), libc::O_DIRECT)
        .read(true)
        .open(mount.path("io"))
        .unwrap();
    assert_eq!(errno(direct.read_at(&mut [0; 4096], 0)), libc::ESTALE);
    assert_eq!(fs::read(mount.path("good")).unwrap(), b"fine");

    let lines = mount.error_lines();
    for (path, cause) in [
        ("len", "broken len"),
        ("len", "broken open"),
        ("open", "broken open"),
        ("locked", "broken open"),
        ("read", "broken read"),
        ("short", "bytes instead of"),
        ("io", "broken read"),
    ] {
        let found = lines
            .iter()
            .any(|line| line.contains(&format!("\"path\":\"{path}\"")) && line.contains(cause));
        assert!(found, "{path}: {cause} not in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("good")));
    assert!(mount.stats.errors.get() >= 7);
}

#[test]
fn the_same_error_is_not_told_again_and_again() {
    let mount = TestMount::new(dir([(
        "len",
        broken(error(ErrorKind::Corrupt), error(ErrorKind::Corrupt), None),
    )]));
    for _ in 0..100 {
        fs::metadata(mount.path("len")).unwrap();
    }
    assert!(mount.stats.errors.get() >= 100);
    assert!(mount.error_lines().len() < 10);
}

/// A directory whose methods fail.
struct BrokenDir;

impl Directory for BrokenDir {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        match name.to_str() {
            Some("panic") => panic!("broken lookup"),
            Some("gone") => Err(Error::not_found("gone")),
            Some("denied") => Err(Error::new(ErrorKind::WrongKey, "wrong key")),
            Some("corrupt") => Err(Error::corrupt("bad")),
            _ => Ok(None),
        }
    }
    fn list(&self) -> Result<Arc<dyn Listing>> {
        Err(Error::corrupt("bad listing"))
    }
    fn mtime(&self) -> u64 {
        0
    }
    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }
}

#[test]
fn errors_of_directories() {
    let mount = TestMount::new(dir([("d", Node::Directory(Arc::new(BrokenDir)))]));
    for (name, wanted) in [
        ("panic", libc::EIO),
        ("gone", libc::ENOENT),
        ("denied", libc::EACCES),
        ("corrupt", libc::EIO),
        ("other", libc::ENOENT),
    ] {
        assert_eq!(errno(fs::metadata(mount.path("d").join(name))), wanted, "{name}");
    }
    let listed = fs::read_dir(mount.path("d")).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    assert_eq!(errno(listed), libc::EIO);
    assert_eq!(mount.error_lines().len(), 4, "{:#?}", mount.error_lines());
}

#[test]
fn a_panic_is_eio_and_the_mount_lives() {
    let panic = Some(Fault::Panic);
    let mount = TestMount::new(dir([
        ("len", broken(panic, None, None)),
        ("open", broken(None, panic, None)),
        ("read", broken(None, None, panic)),
        ("good", file(*b"fine")),
    ]));
    for _ in 0..20 {
        // More often than there are threads.
        assert_eq!(errno(fs::metadata(mount.path("len"))), libc::EIO);
        assert_eq!(errno(File::open(mount.path("open"))), libc::EIO);
        assert_eq!(errno(fs::read(mount.path("read"))), libc::EIO);
    }
    assert_eq!(fs::read(mount.path("good")).unwrap(), b"fine");
    let lines = mount.error_lines();
    for (path, operation) in [("open", "open"), ("read", "read")] {
        let found = lines.iter().any(|line| {
            line.contains(&format!("\"path\":\"{path}\""))
                && line.contains(&format!("panic in {operation}: broken {operation}"))
        });
        assert!(found, "{path} not in {lines:#?}");
    }
}

#[test]
fn a_panic_in_any_operation_leaves_the_mount_alive() {
    let nodes = vec![
        ("d".to_owned(), dir([("f", file(vec![3; 5000]))])),
        ("f".to_owned(), file(*b"12")),
    ];
    for plus in [false, true] {
        let mount = TestMount::with(
            dir_of(Freshness::Live, nodes.clone()),
            |filesystem| filesystem.with_readdirplus(plus),
            |_| (),
        );
        let readdir = if plus { "readdirplus" } else { "readdir" };
        let fails = |name: &'static str, call: &dyn Fn() -> io::Result<()>| {
            let before = mount.requests.panics.load(Ordering::SeqCst);
            *mount.requests.panic_in.lock().unwrap() = Some(name);
            mount.requests.armed.store(true, Ordering::SeqCst);
            let result = call();
            mount.requests.armed.store(false, Ordering::SeqCst);
            let panics = mount.requests.panics.load(Ordering::SeqCst) - before;
            assert!(panics > 0, "{name} was not asked for");
            assert_eq!(
                fs::read(mount.path("d/f")).unwrap(),
                vec![3; 5000],
                "after {name}"
            );
            result
        };
        let open = File::open(mount.path("d/f")).unwrap();
        let fd = open.as_raw_fd();
        let path = c(&mount.path("f"));
        let table: [(&'static str, &dyn Fn() -> io::Result<()>); 9] = [
            ("lookup", &|| fs::metadata(mount.path("f")).map(drop)),
            ("getattr", &|| fs::metadata(mount.path("")).map(drop)),
            ("open", &|| File::open(mount.path("f")).map(drop)),
            ("read", &|| fs::read(mount.path("f")).map(drop)),
            ("opendir", &|| fs::read_dir(mount.path("d")).map(drop)),
            (readdir, &|| {
                fs::read_dir(mount.path(""))?.next().transpose().map(drop)
            }),
            ("statfs", &|| {
                // SAFETY: the pointers are to a C string and a structure that live through the call.
                unsafe {
                    let mut statfs: libc::statvfs = std::mem::zeroed();
                    check(libc::statvfs(path.as_ptr(), &raw mut statfs))
                }
            }),
            ("lseek", &|| {
                // SAFETY: a system call on an open descriptor, without pointers.
                check(unsafe { libc::lseek(fd, 5, libc::SEEK_HOLE) } as libc::c_int)
            }),
            ("getxattr", &|| {
                // SAFETY: the pointers are to C strings that live through the call.
                let size =
                    unsafe { libc::getxattr(path.as_ptr(), c"user.x".as_ptr(), std::ptr::null_mut(), 0) };
                check(size as libc::c_int)
            }),
        ];
        for (name, call) in table {
            assert_eq!(errno(fails(name, call)), libc::EIO, "{name}");
        }
        // The callers of these are not told.
        for name in ["release", "releasedir", "forget"] {
            fails(name, &|| {
                drop(File::open(mount.path("f")));
                fs::read_dir(mount.path("d")).unwrap().count();
                if name == "forget" {
                    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
                }
                common::eventually(name, || mount.requests.of(name) > 0);
                let seen = || mount.requests.panics.load(Ordering::SeqCst) > 0;
                common::eventually("it panics", seen);
                std::thread::sleep(std::time::Duration::from_millis(20));
                Ok(())
            })
            .unwrap();
        }
        let lines = mount.error_lines();
        assert!(
            lines
                .iter()
                .any(|line| line.contains("panic in lookup: injected into lookup"))
        );
    }
}
