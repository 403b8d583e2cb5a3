use super::super::testing::{Request, TestStore};
use super::*;
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
    for page in [1000, 7] {
        let store = TestStore::new(page);
        store.put_folder(&sample(), "deep/down");
        let storage = RemoteStorage::open(store.store("deep/down"), settings()).unwrap();
        let tree = Tree::over(storage, &options, Arc::default()).unwrap();
        found.clear();
        walk(&tree.root, "", &mut found);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.0, expected.0);
            assert!(found.2 == expected.2, "{}", found.0);
        }
        println!("{page}: {} files, {} requests", found.len(), store.asked().len());
    }
}

#[test]
#[ignore]
fn trial() {
    let options = Options {
        cache_size: 256 << 20,
        ..Options::default()
    };
    let folder = PathBuf::from(std::env::var("TRY").unwrap());
    for array in std::env::var("ARRAYS").unwrap().split(',') {
        let store = TestStore::new(1000);
        store.put_folder(&folder.join(array), "p");
        let before = std::time::Instant::now();
        let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
        let tree = Tree::over(storage, &options, Arc::default()).unwrap();
        println!("== {array}: open {:?}", store.asked());
        for path in std::env::var("PATHS").unwrap().split(',') {
            let Ok(Some(node)) = tree.root.find(path) else {
                println!("   {path}: none; {}", store.asked().len());
                continue;
            };
            let show = |store: &TestStore| {
                let asked = store.asked();
                let bytes: u64 = asked
                    .iter()
                    .map(|r| match r {
                        Request::Get(_, range) => range.end - range.start,
                        Request::List(_) => 0,
                    })
                    .sum();
                let some: Vec<_> = asked.iter().take(12).collect();
                format!("{} requests, {bytes} bytes {some:?}", asked.len())
            };
            match node {
                Node::Directory(directory) => {
                    let n = directory.list().map(|l| l.len());
                    println!("   ls {path}: {n:?} {}", show(&store));
                }
                Node::File(file) => {
                    println!(
                        "   stat {path}: {:?} {}",
                        file.stat().map(|s| s.len),
                        show(&store)
                    );
                    let mut scratch = Vec::new();
                    let open = file.open().unwrap();
                    let len = open.len();
                    open.read(len / 3, 8, &mut scratch).unwrap();
                    println!("   8 bytes {path}: {}", show(&store));
                    open.read(len / 3 * 2, 8, &mut scratch).unwrap();
                    println!("   8 more {path}: {}", show(&store));
                    let mut at = 0;
                    while at < len {
                        at += open.read(at, 1 << 17, &mut scratch).unwrap().len() as u64;
                    }
                    println!("   cat {path}: {len} {}", show(&store));
                }
                Node::Link(_) => {}
            }
        }
        println!("   {:?}", before.elapsed());
    }
}
