use super::testing::{Request, TestStore};
use super::*;
use crate::bytes::Output;
use crate::catalog::Array;
use crate::engine::Engine;
use crate::runtime::requester::ended;
use crate::tree::{Node, Tree, TreeOptions};

mod incomplete;
mod listings;
mod reads;

fn settings() -> RemoteSettings {
    RemoteSettings {
        refresh: Some(Duration::from_secs(60)),
        disk_cache: None,
        stats: Arc::default(),
        memory: Arc::default(),
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
fn one_page_answers_all_questions_about_names() {
    let store = TestStore::new(1000);
    for (key, bytes) in [("p/a/b", 3), ("p/a-b", 1), ("p/a/c/d", 4), ("other", 1)] {
        store.put(key, &vec![7; bytes]);
    }
    // Directory markers.
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

#[test]
fn a_member_is_inside_of_the_source_however_its_store_is_called() {
    let store = TestStore::new(1000);
    store.put("p/a/x", b"1");
    for (url, uri, inside) in [
        ("az://c/p", "azure://c/p/a", Some("a")),
        ("gs://c/p", "gcs://c/p/a/", Some("a")),
        ("gs://c/p", "gs://c/p", Some("")),
        ("s3://c/p", "s3a://c/p/a", Some("a")),
        ("s3://c/p", "s3://c/pa", None),
        ("s3://c/p", "gs://c/p/a", None),
    ] {
        let opened = Store {
            url: url.to_owned(),
            ..store.store("p")
        };
        let storage = RemoteStorage::open(opened, settings()).unwrap();
        let found = storage.inside(uri.as_bytes());
        assert_eq!(found.as_deref(), inside.map(Path::new), "{url} {uri}");
    }
}

/// Appends path, modification time and content (or error) of every node below `node`.
fn walk(node: &Node, path: &str, out: &mut Vec<(String, u64, Vec<u8>)>) {
    match node {
        Node::Directory(directory) => {
            let listing = directory.list().unwrap();
            for (name, _) in listing.entries() {
                if *name == *".tiledbfs" {
                    continue;
                }
                let path = format!("{path}/{}", name.to_str().unwrap());
                match directory.lookup(&name).unwrap() {
                    Some(child) => walk(&child, &path, out),
                    None => panic!("{path} is listed but not found"),
                }
            }
        }
        Node::File(file) => {
            let bytes = match file.open() {
                Ok(open) => {
                    let (len, mut bytes) = (open.len(), Vec::new());
                    while (bytes.len() as u64) < len {
                        let at = bytes.len() as u64;
                        let end = len.min(at + (1 << 16));
                        match Output::of(|out| open.read(at..end, out)) {
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
fn the_tree_equals_that_of_a_local_copy() {
    let options = TreeOptions {
        cache_size: 64 << 20,
        ..TreeOptions::default()
    };
    let local = Tree::open(&sample(), &options).unwrap();
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    walk(&local.root, "", &mut expected);
    for page in [Some(1000), Some(7), None] {
        let store = TestStore::new(page.unwrap_or(1000));
        store.put_folder(&sample(), "deep/down");
        let mut opened = store.store("deep/down");
        // A store without pages lists one directory at a time.
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

#[test]
fn operations_cost_few_requests() {
    let options = TreeOptions {
        cache_size: 64 << 20,
        ..TreeOptions::default()
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
    // One page, the group's details, each array's schema, each fragment's footer.
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
