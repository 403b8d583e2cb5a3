//! The kernel's caches: what they keep, and that changes reach them.

use crate::common::{ChangingDir, MemFile, TestMount, dir, errno, file, noise};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;
use tiledbfs::internals::tree::{Freshness, Node};

/// Longer than the kernel may keep what changes.
const A_SECOND: Duration = Duration::from_millis(1000);

/// Whether `action` makes no request, according to `count`. The kernel may reclaim cached data at any time,
/// so one of several attempts suffices.
fn asks_nothing<T: PartialEq>(count: impl Fn() -> T, action: impl Fn()) -> bool {
    (0..10).any(|_| {
        let before = count();
        action();
        count() == before
    })
}

#[test]
fn a_second_read_of_what_cannot_change_asks_nothing() {
    let model = noise(3 << 20, 1);
    let mount = TestMount::new(dir([("d", dir([("f", file(model.clone()))]))]));
    assert!(fs::read(mount.path("d/f")).unwrap() == model);
    assert!(mount.stats.reads.get() > 0);
    assert_eq!(errno(fs::metadata(mount.path("d/none"))), libc::ENOENT);
    let again = || {
        assert!(fs::read(mount.path("d/f")).unwrap() == model);
        fs::metadata(mount.path("d/f")).unwrap();
        assert_eq!(errno(fs::metadata(mount.path("d/none"))), libc::ENOENT);
    };
    let count = || ["lookup", "getattr", "read"].map(|name| mount.requests.of(name));
    assert!(asks_nothing(count, again));
}

#[test]
fn a_second_listing_of_what_cannot_change_asks_nothing() {
    let mount = TestMount::new(dir([("d", dir([("a", file(*b"")), ("b", file(*b""))]))]));
    let list = || {
        let names = fs::read_dir(mount.path("d")).unwrap();
        names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(list(), ["a", "b"]);
    let again = || assert_eq!(list(), ["a", "b"]);
    assert!(asks_nothing(|| mount.requests.of("readdir"), again));
}

#[test]
fn requests_are_large() {
    let mount = TestMount::new(dir([("f", file(noise(32 << 20, 2)))]));
    fs::read(mount.path("f")).unwrap();
    let reads = mount.stats.reads.get();
    assert!((32..100).contains(&reads), "{reads} reads of 32 MiB");
}

fn listing(bytes: &[u8]) -> (Arc<MemFile>, TestMount) {
    let file = MemFile::new(Freshness::Listing, bytes);
    let mount = TestMount::new(dir([("f", Node::File(file.clone()))]));
    (file, mount)
}

#[test]
fn pages_are_kept_while_the_version_is_the_same() {
    let (file, mount) = listing(&noise(500_000, 3));
    let first = fs::read(mount.path("f")).unwrap();
    let reads = || mount.requests.of("read");
    let again = || {
        sleep(A_SECOND);
        assert!(fs::read(mount.path("f")).unwrap() == first);
    };
    assert!(asks_nothing(reads, again));
    let before = reads();
    // The same length, so that only the version differs.
    let second = noise(500_000, 4);
    file.set(second.clone());
    assert!(fs::read(mount.path("f")).unwrap() == second);
    assert!(reads() > before);
}

#[test]
fn a_new_length_is_seen_at_once_by_who_opens_the_file() {
    let (file, mount) = listing(b"short");
    for round in 0..20 {
        // The kernel may rely for a while on the length that it has just been given.
        fs::metadata(mount.path("f")).unwrap();
        let bytes = noise(if round % 2 == 0 { 20_000 } else { 3000 }, round);
        file.set(bytes.clone());
        assert!(fs::read(mount.path("f")).unwrap() == bytes, "round {round}");
    }
}

#[test]
fn a_new_length_is_seen_within_a_second_by_stat() {
    let (file, mount) = listing(b"short");
    assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), 5);
    file.set(*b"longer");
    sleep(A_SECOND);
    assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), 6);
}

#[test]
fn what_is_open_stays_as_it_was() {
    for freshness in [Freshness::Listing, Freshness::Live] {
        let (old, new) = (noise(300_000, 5), noise(450_000, 6));
        let file = MemFile::new(freshness, old.clone());
        let mount = TestMount::new(dir([("f", Node::File(file.clone()))]));
        let first = File::open(mount.path("f")).unwrap();
        let mut start = vec![0; 5000];
        first.read_exact_at(&mut start, 0).unwrap();
        file.set(new.clone());
        let second = File::open(mount.path("f")).unwrap();
        let whole = |file: &File| {
            let mut bytes = Vec::new();
            let mut buffer = vec![0; 70_000];
            loop {
                match file.read_at(&mut buffer, bytes.len() as u64).unwrap() {
                    0 => break bytes,
                    n => bytes.extend_from_slice(&buffer[..n]),
                }
            }
        };
        for _ in 0..2 {
            assert!(whole(&second) == new);
            assert!(whole(&first) == old);
            sleep(Duration::from_millis(400));
        }
        drop(first);
        assert!(whole(&second) == new);
        assert!(fs::read(mount.path("f")).unwrap() == new);
        drop(second);
        assert!(fs::read(mount.path("f")).unwrap() == new);
    }
}

#[test]
fn what_is_live_is_never_kept() {
    let file = MemFile::new(Freshness::Live, *b"0");
    let mount = TestMount::new(dir([("f", Node::File(file.clone()))]));
    for round in 0..50 {
        let text = "x".repeat(round);
        file.set(text.as_bytes());
        assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), round as u64);
        assert_eq!(fs::read_to_string(mount.path("f")).unwrap(), text);
    }
}

#[test]
fn new_and_removed_names_are_seen_within_a_second() {
    let names = Arc::new(ChangingDir::default());
    let mount = TestMount::new(dir([("d", Node::Directory(names.clone()))]));
    let set = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|name| {
            let inner = dir([("f", file(name.as_bytes()))]);
            (OsString::from(name), inner)
        });
        *names.0.lock().unwrap() = nodes.collect();
    };
    let list = || {
        let names = fs::read_dir(mount.path("d")).unwrap();
        names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    set(&["a"]);
    assert_eq!(list(), ["a"]);
    assert_eq!(fs::read(mount.path("d/a/f")).unwrap(), b"a");
    assert_eq!(errno(fs::metadata(mount.path("d/b"))), libc::ENOENT);
    let open = File::open(mount.path("d/a/f")).unwrap();
    set(&["b"]);
    assert_eq!(list(), ["b"]);
    sleep(A_SECOND);
    assert_eq!(fs::read(mount.path("d/b/f")).unwrap(), b"b");
    // Everything below a removed name is gone with it, although it cannot change.
    assert_eq!(errno(fs::metadata(mount.path("d/a/f"))), libc::ENOENT);
    let mut byte = [0];
    open.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(&byte, b"a");
}

#[test]
fn a_name_may_change_from_file_to_directory() {
    let names = Arc::new(ChangingDir::default());
    let mount = TestMount::new(Node::Directory(names.clone()));
    let set = |node: Node| *names.0.lock().unwrap() = vec![("x".into(), node)];
    set(file(*b"file"));
    assert_eq!(fs::read(mount.path("x")).unwrap(), b"file");
    set(dir([("inner", file(*b"inner"))]));
    sleep(A_SECOND);
    assert_eq!(fs::read(mount.path("x/inner")).unwrap(), b"inner");
    set(file(*b"file again"));
    sleep(A_SECOND);
    assert_eq!(fs::read(mount.path("x")).unwrap(), b"file again");
}
