//! A panic in any operation gives EIO for that request and a line in the log. The mount continues.

use crate::common::{BrokenFile, Fault, TestMount, dir, dir_of, errno, eventually, file};
use nix::mount::MsFlags;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Duration;
use tiledbfs::internals::bytes::Keep;
use tiledbfs::internals::describe::{Json, render_objects};
use tiledbfs::internals::fuse::{FileSystem, MountOptions, mount};
use tiledbfs::internals::runtime::cache::{CacheKey, ChunkCache};
use tiledbfs::internals::runtime::stats::Stats;
use tiledbfs::internals::tree::{Directory, Freshness, Listing, Node, NodeType, Tree};
use tiledbfs::{ErrorKind, Result};

/// The source of the operations, to test that none is left out.
const REQUESTS: &str = include_str!("../../src/fuse/requests.rs");

/// Operations that no mount can trigger: there are no symbolic links, the kernel checks access itself,
/// closing makes no flush request, and no file can be opened for writing.
const NEVER_ASKED: [&str; 6] = [
    "readlink",
    "access",
    "flush",
    "write",
    "fallocate",
    "copy_file_range",
];

/// The implemented operations, each with the text of its body.
fn operations() -> Vec<(&'static str, &'static str)> {
    let (_, methods) = REQUESTS.split_once("\nimpl Filesystem for FileSystem {").unwrap();
    let (methods, _) = methods.split_once("\n}\n").unwrap();
    methods
        .split("\n    fn ")
        .skip(1)
        .map(|method| (method.split('(').next().unwrap(), method))
        .collect()
}

#[test]
fn every_operation_is_guarded_under_its_name() {
    let operations = operations();
    assert!(operations.len() > 30, "{}", operations.len());
    for (name, body) in operations {
        let guarded = ["guard", "refuse"]
            .iter()
            .any(|way| body.contains(&format!("self.{way}(\"{name}\"")));
        assert!(guarded, "{name} is not guarded");
    }
}

fn check(result: impl Into<i64>) -> io::Result<()> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Lets changes reach the file system. The kernel refuses them itself for a read-only mount.
fn make_writable(mount: &TestMount) {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    nix::mount::mount(None::<&str>, mount.dir.path(), None::<&str>, flags, None::<&str>).unwrap();
}

/// A test mount, and the operations that have panicked in it.
struct Injected {
    mount: TestMount,
    seen: Mutex<BTreeSet<&'static str>>,
}

impl Injected {
    fn new() -> Self {
        let nodes = vec![
            ("d".to_owned(), dir([("f", file(vec![3; 5000]))])),
            ("f".to_owned(), file(*b"12")),
        ];
        let root = dir_of(Freshness::Live, nodes);
        let mount = TestMount::new(root);
        make_writable(&mount);
        Injected {
            mount,
            seen: Mutex::default(),
        }
    }

    /// Makes the operation `name` panic during `call`. Whatever `call` returns, the mount must continue.
    fn panic_in(&self, name: &'static str, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let requests = &self.mount.requests;
        let before = requests.panics.load(Ordering::SeqCst);
        *requests.panic_in.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        requests.armed.store(true, Ordering::SeqCst);
        let result = call();
        // Some are asynchronous: nobody waits for the answer.
        eventually(name, || requests.panics.load(Ordering::SeqCst) > before);
        requests.armed.store(false, Ordering::SeqCst);
        assert_eq!(
            fs::read(self.mount.path("d/f")).unwrap(),
            vec![3; 5000],
            "after {name}"
        );
        eventually("the line in the log", || {
            let lines = self.mount.error_lines();
            let text = format!("panic in {name}: injected into {name}");
            lines.iter().any(|line| line.contains(&text))
        });
        self.seen.lock().unwrap().insert(name);
        result
    }

    /// [`Injected::panic_in`] for a call that must get EIO, about `path`.
    fn fails(&self, name: &'static str, path: &str, call: impl FnOnce() -> io::Result<()>) {
        assert_eq!(errno(self.panic_in(name, call)), libc::EIO, "{name}");
        let lines = self.mount.error_lines();
        let line = lines
            .iter()
            .find(|line| line.contains(&format!("panic in {name}:")))
            .unwrap();
        assert!(line.contains(&format!("\"path\":\"{path}\"")), "{line}");
    }
}

// SAFETY of the system calls: paths and names are C strings, and structures live through the calls.
fn all_operations() -> BTreeSet<&'static str> {
    let injected = Injected::new();
    let on = &injected;
    let root = on.mount.dir.path().to_path_buf();
    let (f, new) = (root.join("f"), root.join("new"));
    let (f_c, new_c) = (c(&f), c(&new));
    on.fails("lookup", "", || fs::metadata(&f).map(drop));
    on.fails("getattr", "", || fs::metadata(&root).map(drop));
    on.fails("open", "f", || File::open(&f).map(drop));
    on.fails("read", "f", || fs::read(&f).map(drop));
    on.fails("opendir", "d", || fs::read_dir(root.join("d")).map(drop));
    on.fails("readdir", "", || {
        fs::read_dir(&root)?.next().transpose().map(drop)
    });
    on.fails("statfs", "f", || unsafe {
        let mut out: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(f_c.as_ptr(), &raw mut out))
    });
    let open = File::open(root.join("d/f")).unwrap();
    let fd = open.as_raw_fd();
    on.fails("lseek", "d/f", || {
        check(unsafe { libc::lseek(fd, 5, libc::SEEK_HOLE) })
    });
    on.fails("getxattr", "f", || {
        check(unsafe { libc::getxattr(f_c.as_ptr(), c"user.x".as_ptr(), null_mut(), 0) } as i64)
    });
    on.fails("listxattr", "f", || {
        check(unsafe { libc::listxattr(f_c.as_ptr(), null_mut(), 0) } as i64)
    });
    on.fails("fsync", "d/f", || open.sync_all());
    let directory = File::open(root.join("d")).unwrap();
    on.fails("fsyncdir", "d", || directory.sync_all());
    on.fails("ioctl", "d/f", || {
        let mut value = [0_u64; 8];
        check(unsafe { libc::ioctl(fd, 0x8008_6655, value.as_mut_ptr()) })
    });
    // The kernel takes a file for ready, or broken, if it cannot ask.
    on.panic_in("poll", || {
        let mut polled = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        check(unsafe { libc::poll(&raw mut polled, 1, 100) })
    })
    .unwrap();
    on.fails("mknod", "", || {
        check(unsafe { libc::mknod(new_c.as_ptr(), libc::S_IFIFO | 0o600, 0) })
    });
    on.fails("create", "", || File::create(&new).map(drop));
    on.fails("mkdir", "", || fs::create_dir(&new));
    on.fails("unlink", "", || fs::remove_file(&f));
    on.fails("rmdir", "", || fs::remove_dir(root.join("d")));
    on.fails("symlink", "", || std::os::unix::fs::symlink("x", &new));
    on.fails("rename", "", || fs::rename(&f, &new));
    on.fails("link", "f", || fs::hard_link(&f, &new));
    on.fails("setattr", "f", || {
        fs::set_permissions(&f, fs::Permissions::from_mode(0o600))
    });
    on.fails("setxattr", "f", || {
        check(unsafe { libc::setxattr(f_c.as_ptr(), c"user.x".as_ptr(), c"v".as_ptr().cast(), 1, 0) })
    });
    on.fails("removexattr", "f", || {
        check(unsafe { libc::removexattr(f_c.as_ptr(), c"user.x".as_ptr()) })
    });
    // Calls whose callers get no error. Opened before, so that only closing panics.
    let closing = File::open(&f).unwrap();
    on.panic_in("release", || {
        drop(closing);
        Ok(())
    })
    .unwrap();
    let closing = File::open(&root).unwrap();
    on.panic_in("releasedir", || {
        drop(closing);
        Ok(())
    })
    .unwrap();
    on.panic_in("forget", || fs::write("/proc/sys/vm/drop_caches", "2"))
        .unwrap();
    injected.seen.into_inner().unwrap()
}

#[test]
fn a_panic_in_any_operation_is_eio_and_a_line_in_the_log() {
    let mut seen = all_operations();
    seen.extend(NEVER_ASKED);
    // These two are tested below.
    seen.extend(["init", "destroy"]);
    let all: BTreeSet<_> = operations().into_iter().map(|(name, _)| name).collect();
    assert_eq!(seen, all);
}

/// A tree of one file under a file system that panics in one operation.
fn panicking(name: &'static str) -> (Tree, impl Fn(Tree) -> FileSystem) {
    let tree = Tree::of_nodes(dir([("f", file(*b"12"))]));
    let make = move |tree| {
        let probe = move |operation: &'static str| assert!(operation != name, "injected into {operation}");
        FileSystem::new(tree).with_probe(Arc::new(probe))
    };
    (tree, make)
}

#[test]
fn a_panic_at_the_beginning_or_the_end_harms_nobody() {
    for name in ["init", "destroy"] {
        let (tree, make) = panicking(name);
        let errors = tree.errors.clone();
        let folder = tempfile::tempdir().unwrap();
        let mut mounted = mount(make(tree), folder.path(), &MountOptions::default()).unwrap();
        assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"12", "{name}");
        mounted.unmount().unwrap();
        let ended = mounted.ended().wait_for(Duration::from_secs(10));
        assert!(matches!(ended, Some(Ok(()))), "{name}: {ended:?}");
        let lines = String::from_utf8(errors.snapshot().0).unwrap();
        assert!(
            lines.contains(&format!("panic in {name}: injected into {name}")),
            "{lines}"
        );
    }
}

#[test]
fn panics_in_nodes_are_eio_and_the_mount_lives() {
    let broken = |len, open, read| Node::File(Arc::new(BrokenFile { len, open, read }));
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

/// A directory that panics in its first listing, and a listing that panics at its second entry the first
/// time: both while locks are held.
struct PanicsAtFirst(AtomicU32, Arc<AtomicU32>);

struct PanicsAtTheSecond(Arc<AtomicU32>);

impl Directory for PanicsAtFirst {
    fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
        Ok(Some(file(*b"12")))
    }
    fn list(&self) -> Result<Arc<dyn Listing>> {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "first listing");
        Ok(Arc::new(PanicsAtTheSecond(self.1.clone())))
    }
    fn mtime(&self) -> u64 {
        0
    }
    fn freshness(&self) -> Freshness {
        Freshness::Live
    }
}

impl Listing for PanicsAtTheSecond {
    fn len(&self) -> u64 {
        2
    }
    fn get(&self, index: u64) -> Option<(std::borrow::Cow<'_, OsStr>, NodeType)> {
        assert!(
            index != 1 || self.0.fetch_add(1, Ordering::SeqCst) > 0,
            "second entry"
        );
        let name = ["a", "b"].get(index as usize)?;
        Some((OsStr::new(*name).into(), NodeType::File))
    }
}

#[test]
fn no_lock_stays_poisoned() {
    let directory = Node::Directory(Arc::new(PanicsAtFirst(AtomicU32::new(0), Arc::default())));
    let mount = TestMount::new(dir([("d", directory)]));
    let mut options = OpenOptions::new();
    let open = options
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(mount.path("d"))
        .unwrap();
    // SAFETY: the descriptor is that of a directory, and the buffer has the given length.
    let read = || unsafe {
        libc::lseek(open.as_raw_fd(), 0, libc::SEEK_SET);
        let mut buffer = [0_u64; 512];
        let got = libc::syscall(libc::SYS_getdents64, open.as_raw_fd(), buffer.as_mut_ptr(), 4096);
        if got < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(got)
        }
    };
    let answers: Vec<_> = (0..4)
        .map(|_| read().map_err(|error| error.raw_os_error()))
        .collect();
    assert_eq!(answers[0], Err(Some(libc::EIO)));
    assert!(answers[3].is_ok(), "{answers:?}");
    let names = fs::read_dir(mount.path("d")).map(|entries| entries.filter_map(io::Result::ok).count());
    assert!(names.is_ok());
    assert_eq!(fs::read(mount.path("d/a")).unwrap(), b"12");
}

fn item() -> Vec<u8> {
    vec![1]
}

#[test]
fn those_who_wait_for_a_load_that_panics_are_let_go() {
    let stats = Arc::<Stats>::default();
    let cache = ChunkCache::new(1 << 20, stats.clone());
    let key = CacheKey::of(1);
    const WAITING: usize = 8;
    let started = Barrier::new(WAITING + 1);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                scope.spawn(|| {
                    started.wait();
                    cache.get(key, 10, Keep::Staying, || Ok(item()))
                })
            })
            .collect();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cache.get(key, 10, Keep::Staying, || -> Result<Vec<u8>> {
                started.wait();
                eventually("all wait", || stats.cache_hits.get() == WAITING as u64);
                panic!("while others wait")
            })
        }));
        assert!(unwound.is_err());
        for thread in waiting {
            let result = thread.join().unwrap();
            assert_eq!(result.err().map(|error| error.kind()), Some(ErrorKind::Internal));
        }
    });
    // The failed load leaves nothing behind.
    assert!(cache.get(key, 10, Keep::Staying, || Ok(item())).is_ok());
}

#[test]
fn a_panic_in_another_thread_comes_to_the_one_that_asked() {
    let items: Vec<u32> = (0..1000).collect();
    let rendered = std::panic::catch_unwind(|| {
        render_objects(&items, |&item| {
            assert!(item != 999, "in the last thread");
            Ok::<_, ()>(Json::from([item]))
        })
    });
    let panic = rendered.unwrap_err();
    assert!(
        panic
            .downcast_ref::<String>()
            .is_some_and(|text| text.contains("in the last thread"))
            || panic
                .downcast_ref::<&str>()
                .is_some_and(|text| text.contains("in the last thread"))
    );
}
