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
