//! Difficult names of fields and of group members, and groups that contain themselves.

use crate::common::bytes::generic_tile;
use crate::common::counted::{Counted, Counts};
use crate::common::names;
use crate::walk::{Limits, Report, walk};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;
use tiledbfs::internals::filter::generic::read_generic_tile;
use tiledbfs::internals::fuse::{FileSystem, MountOptions, Mounted, mount};
use tiledbfs::internals::storage::{MemoryBlob, MemoryStorage};
use tiledbfs::internals::tree::{Node, Tree, TreeOptions};

mod mounted;

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
    storage.insert(&path, generic_tile(22, &body));
    storage
}

fn tree(storage: MemoryStorage) -> Node {
    let options = TreeOptions {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    Tree::over(Arc::new(storage), &options, Arc::default())
        .unwrap()
        .root
}

/// [`tree`], with the number of calls to the source.
fn counted_tree(inner: MemoryStorage) -> (Node, Arc<Counts>) {
    let options = TreeOptions {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    let counts: Arc<Counts> = Arc::default();
    let storage = Arc::new(Counted {
        inner,
        counts: counts.clone(),
    });
    let tree = Tree::over(storage, &options, Arc::default()).unwrap();
    (tree.root, counts)
}

/// Walks everything below a node; it must not contradict itself.
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
            names(&root, &format!("{FRAGMENT}/columns")).contains(&shown.to_owned()),
            "{shown}"
        );
        assert!(bytes(&root, shown) == bytes(&intact, "measured"));
        look(&root);
    }
    let root = tree(renamed(&[("measured", &long)]));
    let columns = names(&root, &format!("{FRAGMENT}/columns"));
    let shown = columns.iter().find(|name| name.starts_with("xxx")).unwrap();
    assert_eq!(shown.len(), 255);
    assert!(bytes(&root, shown) == bytes(&intact, "measured"));
    look(&root);
}

#[test]
fn names_that_differ_only_until_they_are_encoded() {
    // The anonymous attribute, and one with the name that it is shown by; the second gets a name of its own.
    let intact = tree(sample("weather"));
    let root = tree(renamed(&[("measured", b""), ("rain", b"__attr")]));
    let columns = names(&root, &format!("{FRAGMENT}/columns"));
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

/// A member of a group: its type, whether its URI is relative, URI, name.
type Member<'a> = (u8, bool, &'a [u8], Option<&'a [u8]>);

/// The details of a group.
fn details(members: &[Member]) -> Vec<u8> {
    let mut body = 2_u32.to_le_bytes().to_vec();
    body.extend((members.len() as u64).to_le_bytes());
    for (object, relative, uri, name) in members {
        body.extend(2_u32.to_le_bytes());
        body.extend([*object, u8::from(*relative)]);
        body.extend((uri.len() as u64).to_le_bytes());
        body.extend(*uri);
        body.push(u8::from(name.is_some()));
        if let Some(name) = name {
            body.extend((name.len() as u64).to_le_bytes());
            body.extend(*name);
        }
        body.push(0);
    }
    generic_tile(22, &body)
}

fn put_group(storage: &mut MemoryStorage, at: &str, members: &[(u8, bool, &str, Option<&str>)]) {
    let file = Path::new(at).join("__group/__1_1_00000000000000000000000000000000_2");
    let members: Vec<_> = members
        .iter()
        .map(|(object, relative, uri, name)| (*object, *relative, uri.as_bytes(), name.map(str::as_bytes)))
        .collect();
    storage.insert(&file, details(&members));
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
    // Members without names are identified by their URIs, and shown by the last part of these.
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
    let names = names(&root, "");
    assert_eq!(names[..4], [".tiledbfs", "group.json", "metadata.json", "a"]);
    assert!(
        names[4].starts_with("a~") && names[5].starts_with("metadata.json~"),
        "{names:?}"
    );
    assert_eq!(names[6..], ["%2E.%2Fup"]);
    look(&root);
}

#[test]
fn members_that_were_never_registered() {
    let mut storage = MemoryStorage::new();
    let group = |storage: &mut MemoryStorage, at: &str| {
        storage.insert(&Path::new(at).join("__tiledb_group.tdb"), *b"");
    };
    // Everything in it, with an empty directory of details or without one.
    for at in ["empty", "old"] {
        group(&mut storage, at);
        put_array(&mut storage, &format!("{at}/a"));
        group(&mut storage, &format!("{at}/sub"));
        storage.insert_directory(&Path::new(at).join("plain/deeper"));
    }
    storage.insert_directory(Path::new("empty/__group"));
    // If there are details, they are the members, except for groups that never had details: these may hold
    // members.
    put_array(&mut storage, "registered/data");
    put_array(&mut storage, "registered/removed");
    put_array(&mut storage, "registered/inner/headers");
    group(&mut storage, "registered/inner");
    put_group(&mut storage, "registered/gone", &[(2, true, "../data", None)]);
    let members = [
        (2, true, "inner/headers", Some("headers")),
        (2, true, "data", None),
    ];
    put_group(&mut storage, "registered", &members);
    let root = tree(storage);
    for at in ["empty", "old"] {
        assert_eq!(names(&root, at)[2..], ["a", "sub"], "{at}");
    }
    assert_eq!(names(&root, "registered")[2..], ["headers", "data", "inner"]);
    assert_eq!(names(&root, "registered/inner")[2..], ["headers"]);
    look(&root);
}

#[test]
fn a_lookup_in_a_group_touches_its_member_alone() {
    let group = |registered: bool, members: usize| {
        let mut storage = MemoryStorage::new();
        let names: Vec<String> = (0..members).map(|i| format!("array {i}")).collect();
        for name in &names {
            storage.insert(&Path::new(name).join("__schema/__1_1_x"), *b"");
        }
        if registered {
            let members: Vec<_> = names.iter().map(|name| (2, true, &**name, None)).collect();
            put_group(&mut storage, "", &members);
        } else {
            storage.insert(Path::new("__tiledb_group.tdb"), *b"");
        }
        let (root, counts) = counted_tree(storage);
        let Node::Directory(directory) = root else {
            panic!("a group is a directory");
        };
        assert!(directory.lookup("array 0".as_ref()).unwrap().is_some());
        counts.take();
        for name in &names {
            assert!(directory.lookup(name.as_ref()).unwrap().is_some(), "{name}");
        }
        let of_lookups = counts.take();
        assert_eq!(directory.list().unwrap().len(), members as u64 + 3);
        (of_lookups, counts.take())
    };
    for registered in [true, false] {
        let (few, many) = (group(registered, 10), group(registered, 400));
        // The group itself is looked at a few times as time passes.
        assert!(many.0 <= few.0 * 40 + 100, "{many:?} where ten take {few:?}");
        assert!(many.1 <= few.1 * 40, "{many:?} where ten take {few:?}");
        assert!(few.0 <= 10 * 8 + 10, "{few:?}");
    }
}

#[test]
fn what_was_measured_is_measured_once() {
    let mut storage = MemoryStorage::new();
    put_array(&mut storage, "array");
    put_group(&mut storage, "group", &[(2, true, "../array", Some("member"))]);
    let (root, counts) = counted_tree(storage);
    // Like `ls -lR`, which gets new nodes each time. The most recent ones are held, as in a mount.
    let mut held = Vec::new();
    let mut stat_all = || {
        let mut waiting = vec![(String::new(), root.clone())];
        let (mut files, mut bytes) = (0, 0);
        let mut met = Vec::new();
        while let Some((path, node)) = waiting.pop() {
            met.push(node.clone());
            match node {
                Node::Directory(directory) => {
                    let listing = directory.list().unwrap();
                    let names = listing.entries().map(|(name, _)| name.into_owned());
                    let names = names.filter(|name| *name != *".tiledbfs");
                    waiting.extend(names.map(|name| {
                        let node = directory.lookup(&name).unwrap().unwrap();
                        (format!("{path}/{}", name.display()), node)
                    }));
                }
                Node::File(file) => {
                    files += 1;
                    bytes += file.len().unwrap_or_else(|e| panic!("{path}: {e}"));
                }
                Node::Link(_) => panic!("{path} is listed"),
            }
        }
        held = met;
        (files, bytes, held.len())
    };
    let first = stat_all();
    assert!(first.0 > 100, "{first:?}");
    assert!(counts.opened.swap(0, Ordering::Relaxed) > 0);
    assert_eq!(stat_all(), first);
    assert_eq!(counts.opened.load(Ordering::Relaxed), 0);
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
        &[(1, true, "h", None), (1, false, "/", Some("top"))],
    );
    put_group(
        &mut storage,
        "g/h",
        &[(2, true, "a", None), (1, true, "..", Some("up"))],
    );
    let root = tree(storage);
    assert_eq!(names(&root, "")[3..], ["g"]);
    assert_eq!(names(&root, "g")[2..], ["h"]);
    assert_eq!(names(&root, "g/h")[2..], ["a"]);
    look(&root);
}

#[test]
fn ways_through_groups_do_not_multiply_for_ever() {
    // Each of fourteen groups has the next one twice, and one beside it twice, which has others: 4^14 paths
    // to the last ones.
    let mut storage = MemoryStorage::new();
    let mut inside = String::new();
    for i in 0..14 {
        let next = format!("g{}", i + 1);
        let beside = format!("/b{}", i + 1);
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
