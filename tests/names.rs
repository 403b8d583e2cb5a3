//! Names that make trouble: of fields, of members of groups, and groups within themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiledbfs::filter::generic::read_generic_tile;
use tiledbfs::storage::{MemoryBlob, MemoryStorage};
use tiledbfs::tree::walk::{Limits, Report, walk};
use tiledbfs::tree::{Node, Options, Tree};

/// A generic tile without filters, of one chunk.
fn generic_tile(body: &[u8]) -> Vec<u8> {
    let mut tile = 22_u32.to_le_bytes().to_vec();
    tile.extend((8 + 12 + body.len() as u64).to_le_bytes());
    tile.extend((body.len() as u64).to_le_bytes());
    tile.push(4);
    tile.extend(1_u64.to_le_bytes());
    tile.push(0);
    tile.extend(8_u32.to_le_bytes());
    tile.extend([65536_u32, 0].map(u32::to_le_bytes).concat());
    tile.extend(1_u64.to_le_bytes());
    let length = body.len() as u32;
    tile.extend([length, length, 0].map(u32::to_le_bytes).concat());
    tile.extend(body);
    tile
}

fn length_prefixed(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text].concat()
}

fn sample(name: &str) -> MemoryStorage {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/sample")
        .join(name);
    MemoryStorage::copy_of(&path).unwrap()
}

/// The sample array with other names of attributes.
fn renamed(names: &[(&str, &[u8])]) -> MemoryStorage {
    let mut storage = sample("weather");
    let is_schema = |path: &Path| path.parent() == Some(Path::new("__schema"));
    let (path, bytes) = storage.files().find(|(path, _)| is_schema(path)).unwrap();
    let blob = MemoryBlob::new(bytes.clone(), "schema");
    let (_, mut body) = read_generic_tile(&blob, 0, None).unwrap();
    for (old, new) in names {
        let old = length_prefixed(old.as_bytes());
        let at = body.windows(old.len()).position(|window| window == old).unwrap();
        body.splice(at..at + old.len(), length_prefixed(new));
    }
    storage.insert(&path, generic_tile(&body));
    storage
}

fn tree(storage: MemoryStorage) -> Node {
    let options = Options {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
    };
    Tree::over(Arc::new(storage), PathBuf::from("/src"), &options, Arc::default())
        .unwrap()
        .root
}

fn list(root: &Node, path: &str) -> Vec<String> {
    let Some(Node::Directory(directory)) = root.find(path).unwrap() else {
        panic!("no directory {path}");
    };
    let listing = directory.list().unwrap();
    let name = |i| listing.get(i).unwrap().0.into_owned().into_string().unwrap();
    (0..listing.len()).map(name).collect()
}

/// Everything below a node, without a contradiction.
fn look(root: &Node) -> Report {
    let report = walk(root, &Limits::default());
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    report
}

const FRAGMENT: &str = "fragments/__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22";

#[test]
fn attributes_of_any_name_have_a_directory_of_their_own() {
    let intact = tree(sample("weather"));
    let bytes = |root: &Node, name: &str| {
        let path = format!("{FRAGMENT}/columns/{name}/data.bin");
        root.find(&path)
            .unwrap()
            .unwrap_or_else(|| panic!("no {path}"))
            .read_all()
            .unwrap()
    };
    let long = [b'x'; 300];
    let cases: [(&[u8], &str); 7] = [
        (b"..", "%2E."),
        (b".", "%2E"),
        (b"a/b", "a%2Fb"),
        (b"", "__attr"),
        (b"\xff\xfe", "%FF%FE"),
        (b"nul\0here", "nul%00here"),
        (b"a%2Fb", "a%252Fb"),
    ];
    for (name, shown) in cases {
        let root = tree(renamed(&[("measured", name)]));
        assert!(
            list(&root, &format!("{FRAGMENT}/columns")).contains(&shown.to_owned()),
            "{shown}"
        );
        assert!(bytes(&root, shown) == bytes(&intact, "measured"));
        look(&root);
    }
    let root = tree(renamed(&[("measured", &long)]));
    let columns = list(&root, &format!("{FRAGMENT}/columns"));
    let shown = columns.iter().find(|name| name.starts_with("xxx")).unwrap();
    assert_eq!(shown.len(), 255);
    assert!(bytes(&root, shown) == bytes(&intact, "measured"));
    look(&root);
}

#[test]
fn names_that_differ_only_until_they_are_encoded() {
    // The anonymous attribute and one that is called like it; the second is shown under a name of its own.
    let intact = tree(sample("weather"));
    let root = tree(renamed(&[("measured", b""), ("rain", b"__attr")]));
    let columns = list(&root, &format!("{FRAGMENT}/columns"));
    let of_both: Vec<_> = columns.iter().filter(|name| name.starts_with("__attr")).collect();
    assert_eq!(of_both.len(), 2, "{columns:?}");
    for (old, shown) in ["rain", "measured"].iter().zip(of_both) {
        let read = |root: &Node, name: &str| {
            let path = format!("{FRAGMENT}/columns/{name}/data.bin");
            root.find(&path).unwrap().unwrap().read_all().unwrap()
        };
        assert!(read(&root, shown) == read(&intact, old));
    }
    look(&root);
}

/// The details of a group: type of each member, whether its URI is relative, URI, name.
fn details(members: &[(u8, bool, &str, Option<&str>)]) -> Vec<u8> {
    let mut body = 2_u32.to_le_bytes().to_vec();
    body.extend((members.len() as u64).to_le_bytes());
    for (object, relative, uri, name) in members {
        body.extend(2_u32.to_le_bytes());
        body.extend([*object, u8::from(*relative)]);
        body.extend((uri.len() as u64).to_le_bytes());
        body.extend(uri.as_bytes());
        body.push(u8::from(name.is_some()));
        if let Some(name) = name {
            body.extend((name.len() as u64).to_le_bytes());
            body.extend(name.as_bytes());
        }
        body.push(0);
    }
    generic_tile(&body)
}

fn put_group(storage: &mut MemoryStorage, at: &str, members: &[(u8, bool, &str, Option<&str>)]) {
    let file = Path::new(at).join("__group/__1_1_00000000000000000000000000000000_2");
    storage.insert(&file, details(members));
    storage.insert(&Path::new(at).join("__tiledb_group.tdb"), *b"");
}

fn put_array(storage: &mut MemoryStorage, at: &str) {
    for (path, bytes) in sample("weather").files() {
        storage.insert(&Path::new(at).join(path), bytes.clone());
    }
}

#[test]
fn members_of_one_name_and_of_reserved_ones() {
    let mut storage = MemoryStorage::new();
    for name in ["a", "b", "metadata.json"] {
        put_array(&mut storage, name);
    }
    // Members without names are known by their URIs, and shown by the last part of these.
    put_array(&mut storage, "c/a");
    let members = [
        (2, true, "a", None),
        (2, true, "c/a", None),
        (2, true, "metadata.json", None),
        (2, true, "b", Some("../up")),
        (2, true, "../../etc", Some("out")),
        (2, false, "file:///etc", Some("elsewhere")),
        (2, false, "s3://bucket/x", Some("remote")),
    ];
    put_group(&mut storage, "", &members);
    let root = tree(storage);
    let names = list(&root, "");
    assert_eq!(names[..4], [".tiledbfs", "group.json", "metadata.json", "a"]);
    assert!(
        names[4].starts_with("a~") && names[5].starts_with("metadata.json~"),
        "{names:?}"
    );
    assert_eq!(names[6..], ["%2E.%2Fup"]);
    look(&root);
}

#[test]
fn groups_that_contain_themselves_end() {
    let mut storage = MemoryStorage::new();
    put_array(&mut storage, "g/h/a");
    put_group(
        &mut storage,
        "",
        &[(1, true, "g", None), (1, true, ".", Some("self"))],
    );
    put_group(
        &mut storage,
        "g",
        &[(1, true, "h", None), (1, false, "/src", Some("top"))],
    );
    put_group(
        &mut storage,
        "g/h",
        &[(2, true, "a", None), (1, true, "..", Some("up"))],
    );
    let root = tree(storage);
    assert_eq!(list(&root, "")[3..], ["g"]);
    assert_eq!(list(&root, "g")[2..], ["h"]);
    assert_eq!(list(&root, "g/h")[2..], ["a"]);
    look(&root);
}

#[test]
fn ways_through_groups_do_not_multiply_for_ever() {
    // Each of fourteen groups has the next one twice, and one beside it twice, which has others: 4^14 ways to the last ones.
    let mut storage = MemoryStorage::new();
    let mut inside = String::new();
    for i in 0..14 {
        let next = format!("g{}", i + 1);
        let beside = format!("/src/b{}", i + 1);
        let members = [
            (1, true, next.as_str(), Some("x")),
            (1, true, next.as_str(), Some("y")),
            (1, false, beside.as_str(), Some("z")),
            (1, false, beside.as_str(), Some("w")),
        ];
        put_group(&mut storage, &inside, &members);
        put_group(&mut storage, &format!("b{i}"), &members[2..]);
        inside = format!("{inside}/{next}").trim_start_matches('/').to_owned();
    }
    let limits = Limits {
        nodes: 2_000_000,
        ..Limits::default()
    };
    let report = walk(&tree(storage), &limits);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(
        (1000..100_000).contains(&report.visits.len()),
        "{}",
        report.visits.len()
    );
    println!("{} files and directories", report.visits.len());
}

#[test]
fn the_sample_is_as_it_should_be() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
    assert!(fs::metadata(&path).unwrap().is_dir());
    let report = look(&tree(sample("")));
    assert!(report.visits.iter().all(|visit| visit.outcome.is_ok()));
}
