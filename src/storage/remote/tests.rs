use super::testing::{Request, TestStore};
use super::*;
use crate::array::Array;
use crate::array::engine::Engine;
use crate::tree::{Node, Options, Tree};

fn settings() -> RemoteSettings {
    RemoteSettings {
        refresh: Some(Duration::from_secs(60)),
        disk_cache: None,
        stats: Arc::default(),
    }
}

fn names(storage: &dyn Storage, path: &str) -> Vec<String> {
    let entries = storage.list(Path::new(path)).unwrap();
    entries
        .into_iter()
        .map(|e| e.name.into_string().unwrap())
        .collect()
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample")
}

#[test]
fn one_page_tells_all() {
    let store = TestStore::new(1000);
    for (key, bytes) in [("p/a/b", 3), ("p/a-b", 1), ("p/a/c/d", 4), ("other", 1)] {
        store.put(key, &vec![7; bytes]);
    }
    // The marker of a directory.
    store.put("p/a", b"");
    store.put("p", b"");
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    assert_eq!(names(&*storage, ""), ["a", "a-b"]);
    assert_eq!(names(&*storage, "a"), ["b", "c"]);
    let metadata = |path: &str| storage.metadata(Path::new(path));
    assert_eq!(metadata("a").unwrap().entry_type, EntryType::Directory);
    assert_eq!(metadata("a/c/d").unwrap().len, 4);
    for missing in ["b", "a/x", "a-b/x", "a/c/d/e", "other"] {
        assert_eq!(
            metadata(missing).unwrap_err().kind(),
            ErrorKind::NotFound,
            "{missing}"
        );
        assert!(storage.open(Path::new(missing)).is_err());
    }
    assert!(metadata("a").unwrap().identity != metadata("a/c").unwrap().identity);
    let blob = storage.open(Path::new("a/c/d")).unwrap();
    assert_eq!(store.asked(), [Request::List("p/".to_owned())]);
    assert_eq!(blob.read(1, 2).unwrap(), [7, 7]);
    assert_eq!(blob.read(0, 4).unwrap(), [7; 4]);
    assert_eq!(store.asked(), [Request::Get("p/a/c/d".to_owned(), 0..4)]);
    let error = blob.read_at(3, &mut [0; 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    let error = RemoteStorage::open(store.store("none"), settings())
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("not found"), "{error}");
}

/// Every node below `node`, with what it holds.
fn walk(node: &Node, path: &str, out: &mut Vec<(String, u64, Vec<u8>)>) {
    match node {
        Node::Directory(directory) => {
            let listing = directory.list().unwrap();
            for (name, _) in (0..listing.len()).filter_map(|i| listing.get(i)) {
                if *name == *".tiledbfs" {
                    continue;
                }
                let path = format!("{path}/{}", name.to_str().unwrap());
                match directory.lookup(&name).unwrap() {
                    Some(child) => walk(&child, &path, out),
                    None => panic!("{path} is listed and not there"),
                }
            }
        }
        Node::File(file) => {
            let bytes = match file.open() {
                Ok(open) => {
                    let (len, mut bytes, mut scratch) = (open.len(), Vec::new(), Vec::new());
                    while (bytes.len() as u64) < len {
                        let at = bytes.len() as u64;
                        match open.read(at, (len - at).min(1 << 16) as usize, &mut scratch) {
                            Ok(piece) => bytes.extend_from_slice(&piece),
                            Err(e) => {
                                bytes.extend(e.to_string().into_bytes());
                                break;
                            }
                        }
                    }
                    bytes
                }
                Err(e) => e.to_string().into_bytes(),
            };
            out.push((path.to_owned(), file.mtime(), bytes));
        }
        Node::Link(link) => out.push((
            path.to_owned(),
            link.mtime,
            link.target.as_encoded_bytes().to_vec(),
        )),
    }
}

#[test]
fn the_tree_is_that_of_a_local_copy() {
    let options = Options {
        cache_size: 64 << 20,
        ..Options::default()
    };
    let local = Tree::open(&sample(), &options).unwrap();
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    walk(&local.root, "", &mut expected);
    for page in [Some(1000), Some(7), None] {
        let store = TestStore::new(page.unwrap_or(1000));
        store.put_folder(&sample(), "deep/down");
        let mut opened = store.store("deep/down");
        // Without pages a store lists names alone.
        opened.pages = opened.pages.filter(|_| page.is_some());
        let storage = RemoteStorage::open(opened, settings()).unwrap();
        let tree = Tree::over(storage, &options, Arc::default()).unwrap();
        found.clear();
        walk(&tree.root, "", &mut found);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.0, expected.0);
            assert!(found.2 == expected.2, "{}", found.0);
        }
    }
}

/// The bytes of an object, no two the same for a long way.
fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn one_object(len: u64) -> (Arc<TestStore>, Arc<dyn Storage>) {
    let store = TestStore::new(1000);
    store.put("p/f", &bytes(len));
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    store.asked();
    (store, storage)
}

fn fetched(requests: &[Request]) -> u64 {
    let bytes = requests.iter().map(|request| match request {
        Request::Get(_, range) => range.end - range.start,
        Request::List(_) => 0,
    });
    bytes.sum()
}

#[test]
fn readers_in_sequence_get_large_parts_and_share_them() {
    const LEN: u64 = 40 << 20;
    let (store, storage) = one_object(LEN);
    let all = bytes(LEN);
    let read = |start: u64| {
        let blob = storage.open(Path::new("f")).unwrap();
        let mut at = start;
        while at < LEN {
            let size = (LEN - at).min(100_000);
            blob.will_read(at..at + size);
            let found = blob.read(at, size).unwrap();
            assert!(found == all[at as usize..(at + size) as usize], "{at}");
            at += size;
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| read(0));
        }
    });
    let asked = store.asked();
    assert!(asked.len() <= 16, "{asked:?}");
    assert_eq!(fetched(&asked), LEN);
}

#[test]
fn requests_of_one_reader_that_arrive_out_of_order_are_a_sequence() {
    const LEN: u64 = 16 << 20;
    const TILE: u64 = 64 << 10;
    let (store, storage) = one_object(LEN);
    *store.latency.lock().unwrap() = Duration::from_millis(5);
    let blob = storage.open(Path::new("f")).unwrap();
    let next = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let request = next.fetch_add(2 * TILE, std::sync::atomic::Ordering::Relaxed);
                    if request >= LEN {
                        break;
                    }
                    for tile in [request, request + TILE] {
                        blob.will_read(tile..tile + TILE);
                        blob.read(tile, TILE).unwrap();
                    }
                }
            });
        }
    });
    let asked = store.asked();
    assert!(asked.len() <= 12, "{} {asked:?}", asked.len());
    assert_eq!(fetched(&asked), LEN);
}

#[test]
fn a_second_mount_with_a_disk_cache_asks_for_a_listing_alone() {
    const LEN: u64 = 5 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = TestStore::new(1000);
    store.put("p/f", &bytes(LEN));
    store.put("p/small", b"few");
    for mount in 0..2 {
        let disk = DiskCache::open(folder.path(), 100 << 20).unwrap();
        let settings = RemoteSettings {
            disk_cache: Some(Arc::new(disk)),
            ..settings()
        };
        let storage = RemoteStorage::open(store.store("p"), settings).unwrap();
        let blob = storage.open(Path::new("f")).unwrap();
        for place in [4 << 20, (2 << 20) - 5, LEN - 10] {
            let found = blob.read(place, 10).unwrap();
            assert_eq!(found, bytes(LEN)[place as usize..place as usize + 10]);
        }
        let small = storage.open(Path::new("small")).unwrap();
        assert_eq!(small.read(0, 3).unwrap(), b"few");
        let asked = store.asked();
        match mount {
            0 => assert!(asked.len() > 3, "{asked:?}"),
            _ => assert_eq!(asked, [Request::List("p/".to_owned())]),
        }
        // Parts are written by others than those who wait for them.
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn random_reads_fetch_what_was_said_and_nothing_else() {
    let (store, storage) = one_object(64 << 20);
    let blob = storage.open(Path::new("f")).unwrap();
    for place in [30 << 20, 5 << 20, 50 << 20, 20 << 20] {
        blob.will_read(place..place + 400_000);
        for step in 0..40 {
            blob.read(place + step * 10_000, 512).unwrap();
        }
        let asked = store.asked();
        assert_eq!(asked, [Request::Get("p/f".to_owned(), place..place + 400_000)]);
    }
}

#[test]
fn what_changes_under_a_reader_is_an_error_and_new_for_the_next() {
    let (store, storage) = one_object(1 << 20);
    let old = storage.open(Path::new("f")).unwrap();
    old.read(0, 10).unwrap();
    store.put("p/f", &[9; 1 << 20]);
    let error = old.read(900_000, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("has changed since it was opened"),
        "{error}"
    );
    // Nor is what was fetched before mixed with it.
    assert!(old.read(0, 10).is_err() && !old.is_unchanged());
    let new = storage.open(Path::new("f")).unwrap();
    assert!(new.version() != old.version());
    assert_eq!(new.read(900_000, 10).unwrap(), [9; 10]);
}

#[test]
fn what_vanishes_is_missing_and_so_it_is_in_the_next_listing() {
    let (store, storage) = one_object(100);
    store.put("p/other", b"x");
    let blob = storage.open(Path::new("f")).unwrap();
    store.delete("p/f");
    assert_eq!(blob.read(0, 10).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names(&*storage, ""), ["other"]);
}

#[test]
fn errors_are_told_apart_and_not_remembered() {
    use object_store::Error as E;
    let (store, storage) = one_object(1 << 20);
    let blob = storage.open(Path::new("f")).unwrap();
    let faults: [(fn() -> E, i32); 4] = [
        (
            || E::PermissionDenied {
                path: String::new(),
                source: "403".into(),
            },
            libc::EACCES,
        ),
        (
            || E::Unauthenticated {
                path: String::new(),
                source: "401".into(),
            },
            libc::EACCES,
        ),
        (
            || E::Generic {
                store: "S3",
                source: "400: <Code>ExpiredToken</Code>".into(),
            },
            libc::EACCES,
        ),
        (
            || E::Generic {
                store: "S3",
                source: "503".into(),
            },
            libc::EIO,
        ),
    ];
    for (fault, errno) in faults {
        *store.fault.lock().unwrap() = Some(Box::new(move |_| Some(fault())));
        let error = blob.read(500_000, 10).unwrap_err();
        assert_eq!((error.errno(), error.file()), (errno, Some("f")), "{error}");
    }
    *store.fault.lock().unwrap() = None;
    assert_eq!(blob.read(500_000, 10).unwrap(), bytes(1 << 20)[500_000..500_010]);
}

#[test]
fn who_is_interrupted_gets_eintr_and_the_others_their_bytes() {
    let (store, storage) = one_object(1 << 20);
    *store.latency.lock().unwrap() = Duration::from_millis(1500);
    let blob = storage.open(Path::new("f")).unwrap();
    let ended = ended();
    let started = Instant::now();
    let gone = || crate::requester::on_behalf_of(ended, || blob.read(0, 10).unwrap_err());
    assert_eq!(gone().errno(), libc::EINTR);
    assert!(started.elapsed() < Duration::from_secs(1));
    thread::scope(|scope| {
        let other = scope.spawn(|| blob.read(0, 10));
        thread::sleep(Duration::from_millis(100));
        assert_eq!(gone().errno(), libc::EINTR);
        assert_eq!(other.join().unwrap().unwrap(), bytes(10));
    });
    // The first was dropped, and the second not fetched twice.
    assert_eq!(store.asked().len(), 2);
}

#[test]
fn listings_are_taken_as_they_are_for_a_while_and_asked_for_by_a_look_alone() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    let refresh = Duration::from_millis(300);
    let settings = RemoteSettings {
        refresh: Some(refresh),
        ..settings()
    };
    let storage = RemoteStorage::open(store.store("p"), settings).unwrap();
    let version = || storage.metadata(Path::new("a")).unwrap().version;
    let before = version();
    store.put("p/a/y", b"2");
    assert_eq!(names(&*storage, "a"), ["x"]);
    assert_eq!((version(), store.asked().len()), (before, 1));
    thread::sleep(refresh * 2);
    assert_eq!(store.asked().len(), 0);
    assert_eq!(names(&*storage, "a"), ["x", "y"]);
    assert!(version() != before);
    // What is replaced shows as well.
    let before = version();
    store.put("p/a/x", b"3");
    storage.forget(Path::new("a/x"));
    assert!(version() != before);
    assert_eq!(store.asked().len(), 2);
}

#[test]
fn keys_that_are_no_paths_are_passed_over() {
    for odd in ["p/./c", "p/a//b", "p/a/../z", "p/a/x\u{1}"] {
        for page in [1000, 3] {
            let store = TestStore::new(page);
            for name in ["a/x", "a/y", "b", "c/d/e", "c/d/f", "x", "y/z"] {
                store.put(&format!("p/{name}"), b"1");
            }
            *store.odd.lock().unwrap() = Some(odd);
            let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
            assert_eq!(names(&*storage, "a"), ["x", "y"], "{odd} {page}");
            assert_eq!(names(&*storage, "c/d"), ["e", "f"]);
            let top = names(&*storage, "");
            assert_eq!(top[..5], ["a", "b", "c", "x", "y"], "{odd} {page}");
        }
    }
}

#[test]
fn a_listing_may_take_longer_than_it_holds() {
    let store = TestStore::new(2);
    for name in ["a/b/1", "a/b/2", "a/b/3", "a/c"] {
        store.put(&format!("p/{name}"), b"1");
    }
    *store.latency.lock().unwrap() = Duration::from_millis(30);
    let settings = RemoteSettings {
        refresh: Some(Duration::from_millis(5)),
        ..settings()
    };
    let storage = RemoteStorage::open(store.store("p"), settings).unwrap();
    assert_eq!(names(&*storage, "a/b"), ["1", "2", "3"]);
    assert!(store.asked().len() < 20);
}

#[test]
fn all_who_ask_for_one_prefix_wait_for_one_request() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    store.asked();
    storage.forget(Path::new(""));
    *store.latency.lock().unwrap() = Duration::from_millis(200);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(names(&*storage, "a"), ["x"]));
        }
    });
    assert_eq!(store.asked(), [Request::List("p/".to_owned())]);
}

/// A process that has ended and was waited for: it has no use for an answer.
fn ended() -> u32 {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    ended.id()
}

#[test]
fn a_slow_listing_keeps_nobody_from_what_is_known() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    let settings = RemoteSettings {
        refresh: Some(Duration::from_millis(100)),
        ..settings()
    };
    let storage = RemoteStorage::open(store.store("p"), settings).unwrap();
    assert_eq!(names(&*storage, "a"), ["x"]);
    store.put("p/a/y", b"2");
    thread::sleep(Duration::from_millis(200));
    store.asked();
    *store.latency.lock().unwrap() = Duration::from_millis(2500);
    let started = Instant::now();
    // A listing that is over does for a little longer; what is waited for is waited for once.
    for _ in 0..3 {
        assert_eq!(names(&*storage, "a"), ["x"]);
        let missing = storage.metadata(Path::new("a/y")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(started.elapsed() < Duration::from_secs(2));
    }
    assert_eq!(store.asked().len(), 1);
    // One that is known to be wrong does not, and who waits may give up.
    storage.forget(Path::new("a"));
    let started = Instant::now();
    let ended = ended();
    let error = crate::requester::on_behalf_of(ended, || storage.list(Path::new("a")).unwrap_err());
    assert_eq!(error.errno(), libc::EINTR);
    assert!(started.elapsed() < Duration::from_secs(1));
    *store.latency.lock().unwrap() = Duration::ZERO;
    assert_eq!(names(&*storage, "a"), ["x", "y"]);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "the request of nobody was waited for"
    );
}

#[test]
fn who_waits_for_the_names_in_an_array_may_give_up() {
    let store = TestStore::new(1000);
    store.put_folder(&sample().join("weather"), "a");
    let storage = RemoteStorage::open(store.store("a"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    let array = Array::new(engine.clone(), PathBuf::new());
    array.listing().unwrap();
    engine.storage.forget(Path::new(""));
    array.look_again();
    *store.latency.lock().unwrap() = Duration::from_millis(1500);
    let ended = ended();
    thread::scope(|scope| {
        let first = scope.spawn(|| array.listing());
        thread::sleep(Duration::from_millis(100));
        let started = Instant::now();
        let error = crate::requester::on_behalf_of(ended, || array.listing().err().unwrap());
        assert_eq!(error.errno(), libc::EINTR);
        assert!(started.elapsed() < Duration::from_secs(1));
        first.join().unwrap().unwrap();
    });
    // Who waited for one that failed does not wait for another.
    engine.storage.forget(Path::new(""));
    array.look_again();
    *store.fault.lock().unwrap() = Some(Box::new(|_| {
        Some(object_store::Error::Generic {
            store: "S3",
            source: "503".into(),
        })
    }));
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(array.listing().err().unwrap().errno(), libc::EIO));
        }
    });
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
}

const COLUMN: &str = "weather/data/columns/temperature/data.bin";

/// A store with the sample but for what of its last fragment `without` says, by the path below the fragments;
/// and that, and what is in [`COLUMN`] when all of it is there.
fn incomplete(page: usize, without: impl Fn(&str) -> bool) -> (Arc<TestStore>, Vec<String>, Vec<u8>) {
    let store = TestStore::new(page);
    store.put_folder(&sample(), "p");
    let fragments = std::fs::read_dir(sample().join("weather/__fragments")).unwrap();
    let last = fragments.map(|entry| entry.unwrap().file_name()).max().unwrap();
    let last = last.into_string().unwrap();
    let mut files = vec![format!("weather/__commits/{last}.wrt")];
    for file in std::fs::read_dir(sample().join("weather/__fragments").join(&last)).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        files.push(format!("weather/__fragments/{last}/{name}"));
    }
    files.retain(|file| without(file));
    for file in &files {
        store.delete(&format!("p/{file}"));
    }
    let tree = Tree::open(&sample(), &Options::default()).unwrap();
    (store, files, read(&tree, COLUMN).unwrap())
}

/// Bytes of a file of `tree`.
fn read(tree: &Tree, path: &str) -> Result<Vec<u8>> {
    let Some(Node::File(file)) = tree.root.find(path)? else {
        panic!("{path} is no file");
    };
    let (open, mut scratch) = (file.open()?, Vec::new());
    Ok(open
        .read(0, usize::try_from(open.len()).unwrap(), &mut scratch)?
        .to_vec())
}

#[test]
fn a_commit_that_is_listed_before_its_files_is_not_there_yet() {
    let (store, files, wanted) = incomplete(1000, |file| !file.ends_with(".wrt"));
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let tree = Tree::over(storage, &Options::default(), Arc::default()).unwrap();
    let before = read(&tree, COLUMN).unwrap();
    assert!(before != wanted);
    for file in &files {
        store.put(&format!("p/{file}"), &std::fs::read(sample().join(file)).unwrap());
    }
    // In time, although what is listed holds for a minute.
    let end = Instant::now() + Duration::from_secs(4);
    while read(&tree, COLUMN).unwrap() != wanted {
        assert!(Instant::now() < end, "the fragment is not seen");
        thread::sleep(Duration::from_millis(200));
    }
    // After a while it is damage.
    let engine = Arc::new(Engine::new(
        RemoteStorage::open(
            incomplete(1000, |file| !file.ends_with(".wrt")).0.store("p"),
            settings(),
        )
        .unwrap(),
        1 << 20,
        Vec::new(),
        Arc::default(),
    ));
    let snapshot = Array::new(engine, "weather".into()).snapshot(None).unwrap();
    let now = crate::array::time::now();
    assert!(snapshot.check_complete(now).is_ok());
    let error = snapshot.check_complete(now + 20_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
}

#[test]
fn files_that_were_not_listed_are_looked_for_again() {
    let without =
        |file: &str| file.ends_with(".wrt") || file.ends_with("metadata.tdb") || file.ends_with("a1.tdb");
    let (store, files, wanted) = incomplete(12, without);
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let tree = Tree::over(storage.clone(), &Options::default(), Arc::default()).unwrap();
    assert!(read(&tree, COLUMN).unwrap() != wanted);
    for file in &files {
        store.put(&format!("p/{file}"), &std::fs::read(sample().join(file)).unwrap());
    }
    // The commit is listed anew, and the fragments are not.
    storage.forget(Path::new("weather/__commits"));
    thread::sleep(Duration::from_millis(150));
    assert!(read(&tree, COLUMN).unwrap() == wanted);
}

#[test]
fn a_schema_that_cannot_be_read_now_is_read_by_the_next() {
    let store = TestStore::new(1000);
    store.put_folder(&sample().join("weather"), "a");
    let storage = RemoteStorage::open(store.store("a"), settings()).unwrap();
    let engine = Arc::new(Engine::new(storage, 1 << 20, Vec::new(), Arc::default()));
    let array = Array::new(engine, PathBuf::new());
    *store.fault.lock().unwrap() = Some(Box::new(|_| {
        Some(object_store::Error::Generic {
            store: "S3",
            source: "503".into(),
        })
    }));
    let unread = array.snapshot(None).unwrap();
    *store.fault.lock().unwrap() = None;
    let read = array.snapshot(None).unwrap();
    assert!(!Arc::ptr_eq(&unread, &read), "what was not known is remembered");
    assert!(Arc::ptr_eq(&read, &array.snapshot(None).unwrap()));
}

#[test]
fn large_prefixes_are_listed_as_far_as_it_takes() {
    let store = TestStore::new(20);
    for array in 0..3 {
        for fragment in 0..30 {
            store.put(&format!("p/a{array}/__fragments/f{fragment:02}/m"), b"m");
        }
        store.put(&format!("p/a{array}/__schema/s"), b"s");
        store.put(&format!("p/a{array}/wide/w/deep"), b"d");
        for file in 0..30 {
            store.put(&format!("p/a{array}/wide/x/{file:02}"), b"w");
        }
    }
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let asked = || store.asked().len();
    // A page that ends in the first array, and the names.
    assert_eq!(names(&*storage, ""), ["a0", "a1", "a2"]);
    assert_eq!(asked(), 2);
    assert_eq!(names(&*storage, "a1"), ["__fragments", "__schema", "wide"]);
    assert_eq!(asked(), 2);
    // Few keys for each name: with the lengths of all.
    assert_eq!(names(&*storage, "a1/__fragments").len(), 30);
    assert_eq!(asked(), 2);
    assert_eq!(
        storage.metadata(Path::new("a1/__fragments/f07/m")).unwrap().len,
        1
    );
    assert_eq!(asked(), 0);
    assert_eq!(names(&*storage, "a1/__schema"), ["s"]);
    assert_eq!(asked(), 1);
    // Many: only the names. The first page has one of them whole.
    assert_eq!(names(&*storage, "a1/wide"), ["w", "x"]);
    assert_eq!(names(&*storage, "a1/wide/w"), ["deep"]);
    assert_eq!(asked(), 2);
    assert_eq!(names(&*storage, "a1/wide/x").len(), 30);
    assert_eq!(asked(), 2);
    let missing = storage.metadata(Path::new("a1/none/x")).unwrap_err();
    assert_eq!((missing.kind(), asked()), (ErrorKind::NotFound, 0));
}

#[test]
fn where_names_are_expected_many_pages_are_listed_at_once() {
    const LATENCY: Duration = Duration::from_millis(100);
    let all: Vec<String> = (0..100).map(|number| format!("f{number:02}")).collect();
    let some = |step: usize| all.iter().step_by(step).cloned().collect::<Vec<_>>();
    let mut more = all.clone();
    more.extend((0..40).map(|number| format!("f50{number:02}")));
    more.sort();
    for (expected, pages) in [
        (some(1), 10),
        (some(3), 12),
        (more, 15),
        (vec!["g".to_owned()], 10),
    ] {
        let store = TestStore::new(20);
        for name in &all {
            // Another number of keys in one of them.
            let files = if name == "f33" {
                ["a", "b", "m"].as_slice()
            } else {
                ["a", "m"].as_slice()
            };
            for file in files {
                store.put(&format!("p/__fragments/{name}/{file}"), b"m");
            }
        }
        let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
        store.asked();
        let directory = Path::new("__fragments");
        storage
            .will_list_named(directory, &|| Ok(expected.clone()))
            .unwrap();
        *store.latency.lock().unwrap() = LATENCY;
        let begun = Instant::now();
        assert_eq!(names(&*storage, "__fragments"), all);
        assert_eq!(names(&*storage, "__fragments/f33"), ["a", "b", "m"]);
        let asked = store.asked().len();
        assert!((10..=pages + 1).contains(&asked), "{asked} of {pages}");
        if expected.len() >= all.len() {
            assert!(begun.elapsed() < 7 * LATENCY, "{:?}", begun.elapsed());
        }
        storage
            .will_list_named(directory, &|| panic!("it is known"))
            .unwrap();
    }
}

#[test]
fn what_an_operation_costs() {
    let options = Options {
        cache_size: 64 << 20,
        ..Options::default()
    };
    let store = TestStore::new(1000);
    store.put_folder(&sample(), "s");
    let storage = RemoteStorage::open(store.store("s"), settings()).unwrap();
    let tree = Tree::over(storage, &options, Arc::default()).unwrap();
    let look = |path: &str| {
        let node = tree.root.find(path).unwrap().unwrap();
        let mut out = Vec::new();
        match &node {
            Node::Directory(directory) => drop(directory.list().unwrap()),
            _ => walk(&node, path, &mut out),
        }
        store.asked().len()
    };
    // One page, and the details of the group; for each array its schema; for each fragment its footer.
    assert!(look("") <= 4);
    assert!(look("group.json") <= 1);
    assert!(look("weather/schema.json") <= 1);
    let fragments = std::fs::read_dir(sample().join("weather/__fragments")).unwrap();
    assert!(look("weather/fragments.json") <= 1 + fragments.count());
    for again in [
        "",
        "group.json",
        "weather",
        "weather/schema.json",
        "weather/fragments.json",
    ] {
        assert_eq!(look(again), 0, "{again}");
    }
}
