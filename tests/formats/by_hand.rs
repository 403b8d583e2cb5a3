//! Structures that no released writer produces, in bytes built by hand from the description of the format;
//! and directories in states that a library does not leave behind. Through the tree, which ends up at the
//! same parsers as real arrays.

use crate::common::bytes::Bytes;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tiledbfs::tree::{Node, Options, Tree};

const UUID: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

/// A GZIP filter in a stored pipeline: its number, the size of its options, compressor and level.
const GZIP: &[u8] = &[1, 5, 0, 0, 0, 1, 1, 0, 0, 0];

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A tile of these chunks, each compressed on its own, or without any filter.
fn tile(chunks: &[&[u8]], gzip: bool) -> Vec<u8> {
    let mut tile = Bytes::default().u64(chunks.len() as u64);
    for chunk in chunks {
        let size = chunk.len() as u32;
        tile = if gzip {
            let data = zlib(chunk);
            let stored = data.len() as u32;
            // One data part, no metadata part.
            tile.u32(size)
                .u32(stored)
                .u32(16)
                .u32(0)
                .u32(1)
                .u32(size)
                .u32(stored)
                .raw(&data)
        } else {
            tile.u32(size).u32(size).u32(0).raw(chunk)
        };
    }
    tile.0
}

/// A generic tile as a library of format `version` writes it.
fn generic(version: u32, body: &[u8]) -> Vec<u8> {
    let tile = tile(&[body], true);
    let pipeline = Bytes::default().pipeline(&[GZIP]).0;
    Bytes::default()
        .u32(version)
        .u64(tile.len() as u64)
        .u64(body.len() as u64)
        .u8(4)
        .u64(1)
        .u8(0)
        .u32(pipeline.len() as u32)
        .raw(&pipeline)
        .raw(&tile)
        .0
}

/// The schema of a sparse array over INT32 dimensions 1 to 100 by tens, capacity 2, with an attribute `a` of
/// INT32 without filters.
fn schema(version: u32, dimensions: &[&str], coords: &[&[u8]]) -> Vec<u8> {
    let mut b = Bytes::default().u32(version);
    if version >= 5 {
        b = b.u8(0);
    }
    b = b.u8(1).u8(0).u8(0).u64(2).pipeline(coords).pipeline(&[]);
    b = if version >= 7 { b.pipeline(&[]) } else { b };
    b = if version < 5 { b.u8(0) } else { b };
    b = b.u32(dimensions.len() as u32);
    for name in dimensions {
        b = b.text32(name);
        if version >= 5 {
            b = b.u8(0).u32(1).pipeline(&[]).u64(8);
        }
        b = b.i32s(&[1, 100]).u8(0).i32s(&[10]);
    }
    b = b.u32(1).text32("a").u8(0).u32(1).pipeline(&[]);
    if version >= 6 {
        b = b.u64(4).i32s(&[-1]);
    }
    if version >= 7 {
        b = b.u8(0).u8(0);
    }
    if version >= 17 {
        b = b.u8(0);
    }
    if version >= 20 {
        b = b.text32("");
    }
    if version >= 18 {
        b = b.u32(0);
    }
    if version >= 20 {
        b = b.u32(0);
    }
    if version >= 22 {
        b = b.u32(0).u8(1);
    }
    b.0
}

fn put(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn open(root: &Path) -> Tree {
    let options = Options {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..Options::default()
    };
    Tree::open(root, &options).unwrap()
}

fn read(tree: &Tree, path: &str) -> Vec<u8> {
    let node = tree
        .root
        .find(path)
        .unwrap()
        .unwrap_or_else(|| panic!("no {path}"));
    node.read_all().unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn document(tree: &Tree, path: &str) -> Value {
    serde_json::from_slice(&read(tree, path)).unwrap()
}

fn names(tree: &Tree, path: &str) -> Vec<String> {
    let Some(Node::Directory(directory)) = tree.root.find(path).unwrap() else {
        panic!("no directory {path}")
    };
    let listing = directory.list().unwrap();
    let name = |i| listing.get(i).unwrap().0.into_owned().into_string().unwrap();
    (0..listing.len()).map(name).collect()
}

fn ints(bytes: &[u8]) -> Vec<i32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|b| i32::from_le_bytes(*b))
        .collect()
}

/// What stands in the place of the non-empty domain.
#[derive(Clone, Copy, PartialEq)]
enum Domain {
    Known,
    /// Marked as null, with the zeros that writers put there.
    NullWithZeros,
    /// Marked as null, with nothing.
    Null,
}

/// Writes an array of one sparse fragment: x is 3, 7, 50 and a is 10, 20, 30, in tiles of two cells and one.
/// `version` is 22 or 23; 23 has an optional section for the global-order bounds and one that nobody knows.
/// The fragment's name.
fn write_sparse(root: &Path, version: u32, domain: Domain) -> String {
    let schema_name = format!("__1_1_{UUID}");
    put(
        root,
        &format!("__schema/{schema_name}"),
        &generic(version, &schema(version, &["x"], &[])),
    );
    let name = format!("__5_5_{UUID}_{version}");
    put(root, &format!("__commits/{name}.wrt"), b"");
    let data = |values: &[i32]| tile(&[&Bytes::default().i32s(values).0], false);
    let (first, second) = (data(&[3, 7]), data(&[50]));
    put(
        root,
        &format!("__fragments/{name}/d0.tdb"),
        &[first.clone(), second.clone()].concat(),
    );
    put(
        root,
        &format!("__fragments/{name}/a0.tdb"),
        &[data(&[10, 20]), data(&[30])].concat(),
    );
    let (second_at, size) = (first.len() as u64, (first.len() + second.len()) as u64);

    // Slots: a, the dead one of the coordinates, x.
    let mut file = Vec::new();
    let mut section = |body: Bytes| {
        let at = file.len() as u64;
        file.extend(generic(version, &body.0));
        at
    };
    let b = Bytes::default;
    let rtree = section(
        b().u32(10)
            .u32(2)
            .u64(1)
            .i32s(&[3, 50])
            .u64(2)
            .i32s(&[3, 7, 50, 50]),
    );
    let list = |section: &mut dyn FnMut(Bytes) -> u64, lists: [&[u64]; 3]| {
        lists.map(|list| section(b().u64(list.len() as u64).u64s(list)))
    };
    let starts: &[u64] = &[0, second_at];
    let tile_offsets = list(&mut section, [starts, &[0, 0], starts]);
    let var_offsets = list(&mut section, [&[0, 0]; 3]);
    let var_sizes = list(&mut section, [&[0, 0]; 3]);
    let validity_offsets = list(&mut section, [&[0, 0]; 3]);
    let mut min_max = |values: &[i32]| section(b().u64(4 * values.len() as u64).u64(0).i32s(values));
    let mins = [min_max(&[10, 30]), min_max(&[]), min_max(&[])];
    let maxs = [min_max(&[20, 30]), min_max(&[]), min_max(&[])];
    let (first_cells, last_cells) = (min_max(&[3, 50]), min_max(&[7, 50]));
    let sums = list(&mut section, [&[30, 30], &[], &[10, 50]]);
    let null_counts = list(&mut section, [&[], &[], &[]]);
    let statistics = section(
        b().u64(4)
            .i32s(&[10])
            .u64(4)
            .i32s(&[30])
            .u64(60)
            .u64(0)
            .u64s(&[0; 4])
            .u64s(&[0, 0, 60, 0]),
    );
    let conditions = section(b().u64(0));

    let mut footer = b().u32(version).text64(&schema_name).u8(0);
    footer = match domain {
        Domain::Known => footer.u8(0).i32s(&[3, 50]),
        Domain::NullWithZeros => footer.u8(1).i32s(&[0, 0]),
        Domain::Null => footer.u8(1),
    };
    footer = footer.u64(2).u64(1).u8(0).u8(0);
    footer = footer
        .u64s(&[size, 0, size])
        .u64s(&[0; 3])
        .u64s(&[0; 3])
        .u64(rtree);
    for offsets in [
        tile_offsets,
        var_offsets,
        var_sizes,
        validity_offsets,
        mins,
        maxs,
        sums,
        null_counts,
    ] {
        footer = footer.u64s(&offsets);
    }
    footer = footer.u64(statistics).u64(conditions);
    if version >= 23 {
        footer = footer.u32(2).u64(0).u32(16).u64s(&[first_cells, last_cells]);
        footer = footer.u64(4711).u32(3).raw(&[1, 2, 255]);
    }
    let length = footer.0.len() as u64;
    file.extend(footer.u64(length).0);
    put(
        root,
        &format!("__fragments/{name}/__fragment_metadata.tdb"),
        &file,
    );
    name
}

/// Checks the columns of [`write_sparse`].
fn check_sparse(tree: &Tree, name: &str) {
    let column = |field: &str| ints(&read(tree, &format!("fragments/{name}/columns/{field}/data.bin")));
    assert_eq!((column("x"), column("a")), (vec![3, 7, 50], vec![10, 20, 30]));
    let tiles = document(tree, &format!("fragments/{name}/tiles.json"));
    assert_eq!(
        (&tiles["a"]["mins"], &tiles["a"]["maxs"]),
        (&json!([10, 30]), &json!([20, 30]))
    );
    let statistics = document(tree, &format!("fragments/{name}/statistics.json"));
    assert_eq!(statistics["a"]["sum"], 60);
}

#[test]
fn optional_sections_of_version_23() {
    let dir = TempDir::new().unwrap();
    let name = write_sparse(dir.path(), 23, Domain::Known);
    let tree = open(dir.path());
    check_sparse(&tree, &name);
    let schema = document(&tree, "schema.json");
    assert_eq!(schema["format_version"], 23);
    let footer = document(&tree, &format!("fragments/{name}/footer.json"));
    assert_eq!(footer["format_version"], 23);
    let sections = footer["optional_sections"].as_array().unwrap();
    assert_eq!(sections.len(), 2);
    assert_eq!(
        (&sections[0]["id"], &sections[0]["size"]),
        (&json!(0), &json!(16))
    );
    assert_eq!(
        sections[1],
        json!({"id": 4711, "size": 3, "data": {"hex": "0102ff"}})
    );
    assert!(footer["offsets"]["global_order_mins"]["x"].is_u64());
    let tiles = document(&tree, &format!("fragments/{name}/tiles.json"));
    assert_eq!(tiles["x"]["global_order_mins"], json!([3, 50]));
    assert_eq!(tiles["x"]["global_order_maxs"], json!([7, 50]));
    assert_eq!(tiles["a"]["global_order_mins"], Value::Null);
}

#[test]
fn a_null_non_empty_domain_with_and_without_zeros_in_its_place() {
    for domain in [Domain::Known, Domain::NullWithZeros, Domain::Null] {
        for version in [22, 23] {
            let dir = TempDir::new().unwrap();
            let name = write_sparse(dir.path(), version, domain);
            let tree = open(dir.path());
            check_sparse(&tree, &name);
            let shown = match domain {
                Domain::Known => json!([[3, 50]]),
                _ => Value::Null,
            };
            let footer = document(&tree, &format!("fragments/{name}/footer.json"));
            assert_eq!(footer["non_empty_domain"], shown);
            assert_eq!(document(&tree, "fragments.json")[0]["non_empty_domain"], shown);
        }
    }
}

/// Writes an array of version 1 with one fragment of two tiles; its coordinates (3, 30), (7, 10), (50, 20).
fn write_version_1(root: &Path, compressed: bool) -> String {
    let coords: &[&[u8]] = if compressed { &[GZIP] } else { &[] };
    put(
        root,
        "__array_schema.tdb",
        &generic(1, &schema(1, &["x", "y"], coords)),
    );
    let name = format!("__{UUID}_5");
    let values = |v: &[i32]| Bytes::default().i32s(v).0;
    let tiles = if compressed {
        // Split, and each dimension in a chunk of its own.
        [
            tile(&[&values(&[3, 7]), &values(&[30, 10])], true),
            tile(&[&values(&[50]), &values(&[20])], true),
        ]
    } else {
        [
            tile(&[&values(&[3, 30, 7, 10])], false),
            tile(&[&values(&[50, 20])], false),
        ]
    };
    let cells = [tile(&[&values(&[10, 20])], false), tile(&[&values(&[30])], false)];
    put(root, &format!("{name}/__coords.tdb"), &tiles.concat());
    put(root, &format!("{name}/a.tdb"), &cells.concat());
    let metadata = Bytes::default()
        .u32(1)
        .u64(16)
        .i32s(&[3, 50, 10, 30])
        .u64(2)
        .i32s(&[3, 7, 10, 30])
        .i32s(&[50, 50, 20, 20])
        .u64(2)
        .i32s(&[3, 30, 7, 10])
        .i32s(&[50, 20, 50, 20])
        .u64s(&[2, 0, cells[0].len() as u64])
        .u64s(&[2, 0, tiles[0].len() as u64])
        .u64s(&[0, 0])
        .u64(1)
        .u64s(&[cells.concat().len() as u64, tiles.concat().len() as u64])
        .u64(0);
    put(
        root,
        &format!("{name}/__fragment_metadata.tdb"),
        &generic(1, &metadata.0),
    );
    name
}

#[test]
fn coordinates_of_version_1_are_split_where_they_are_compressed() {
    for compressed in [true, false] {
        let dir = TempDir::new().unwrap();
        let name = write_version_1(dir.path(), compressed);
        let tree = open(dir.path());
        let column = |field: &str| {
            ints(&read(
                &tree,
                &format!("fragments/{name}/columns/{field}/data.bin"),
            ))
        };
        assert_eq!(column("x"), [3, 7, 50], "compressed: {compressed}");
        assert_eq!(column("y"), [30, 10, 20]);
        assert_eq!(column("a"), [10, 20, 30]);
        let stored = if compressed {
            [3, 7, 30, 10, 50, 20]
        } else {
            [3, 30, 7, 10, 50, 20]
        };
        assert_eq!(column("__coords"), stored);
        let tile = |n| {
            ints(&read(
                &tree,
                &format!("fragments/{name}/columns/y/tiles/{n}.data.bin"),
            ))
        };
        assert_eq!((tile(0), tile(1)), (vec![30, 10], vec![20]));
        let footer = document(&tree, &format!("fragments/{name}/footer.json"));
        assert_eq!(
            (&footer["format_version"], &footer["dense"]),
            (&json!(1), &json!(false))
        );
    }
}

/// The body of an update: where `a` is less than 20, `a` becomes 99.
fn update() -> Vec<u8> {
    Bytes::default()
        .u8(1)
        .u8(0)
        .text32("a")
        .u64(4)
        .i32s(&[20])
        .u64(1)
        .text64("a")
        .u64(4)
        .i32s(&[99])
        .0
}

#[test]
fn updates_are_shown_alone_and_inside_consolidated_commits() {
    let dir = TempDir::new().unwrap();
    let name = write_sparse(dir.path(), 22, Domain::Known);
    let file = generic(22, &update());
    let path = format!("__commits/__6_6_{UUID}_22.upd");
    put(dir.path(), &path, &file);
    let con = Bytes::default()
        .raw(format!("__commits/{name}.wrt\n{path}\n").as_bytes())
        .u64(file.len() as u64)
        .raw(&file)
        .raw(format!("__commits/__9_9_{OTHER}_22.wrt\n").as_bytes());
    put(dir.path(), &format!("__commits/__5_6_{UUID}_22.con"), &con.0);
    let tree = open(dir.path());
    let commits = document(&tree, "commits.json");
    let of = |kind: &str| {
        commits
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["type"] == kind)
            .unwrap()
    };
    let values = json!([{"field": "a", "value": 99}]);
    assert_eq!(
        (&of("upd")["text"], &of("upd")["values"]),
        (&json!("a < 20"), &values)
    );
    let entries = of("con")["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(
        (&entries[1]["text"], &entries[1]["values"]),
        (&json!("a < 20"), &values)
    );
    assert_eq!(
        (&entries[1]["keeps"], &entries[1]["error"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(document(&tree, "fragments.json")[0]["visible"], true);
}

/// The reason for which the only hidden fragment is hidden.
fn reason(tree: &Tree) -> String {
    let list = document(tree, "fragments.json");
    let hidden: Vec<&Value> = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["visible"] == false)
        .collect();
    assert_eq!(hidden.len(), 1, "{list:#}");
    hidden[0]["reason"].as_str().unwrap().to_owned()
}

fn rename(root: &Path, from: &str, to: &str) {
    fs::rename(
        root.join("__fragments").join(from),
        root.join("__fragments").join(to),
    )
    .unwrap();
    fs::remove_file(root.join(format!("__commits/{from}.wrt"))).unwrap();
}

#[test]
fn fragments_of_the_future_ignored_and_uncommitted_ones() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    let name = write_sparse(root, 22, Domain::Known);
    // Sparse fragments count from the start of their time on.
    let later = format!("__5_32503680000000_{UUID}_22");
    rename(root, &name, &later);
    put(root, &format!("__commits/{later}.wrt"), b"");
    assert_eq!(document(&open(root), "fragments.json")[0]["visible"], true);
    let future = format!("__32503680000000_32503680000000_{UUID}_22");
    rename(root, &later, &future);
    put(root, &format!("__commits/{future}.wrt"), b"");
    assert_eq!(
        reason(&open(root)),
        "in the future: its timestamps are 32503680000000 to 32503680000000"
    );
    // Its columns are there all the same.
    check_sparse(&open(root), &future);

    rename(root, &future, &name);
    assert_eq!(
        reason(&open(root)),
        format!("uncommitted: there is no {name}.wrt")
    );
    let con = format!("__5_5_{OTHER}_22.con");
    put(root, &format!("__commits/{con}"), b"damaged\n");
    assert_eq!(
        reason(&open(root)),
        format!("uncommitted: there is no {name}.wrt, and {con}, which may stand for it, cannot be read")
    );
    put(
        root,
        &format!("__commits/{con}"),
        format!("__commits/{name}.wrt\n").as_bytes(),
    );
    let list = document(&open(root), "fragments.json");
    assert_eq!(
        (&list[0]["visible"], &list[0]["reason"]),
        (&json!(true), &Value::Null)
    );
    put(
        root,
        &format!("__commits/__5_5_{OTHER}_22.ign"),
        format!("__commits/{name}.wrt\n").as_bytes(),
    );
    assert!(reason(&open(root)).starts_with("ignored: "));
}

#[test]
fn vacuum_files_name_what_they_hide_in_all_ways() {
    for line in [
        "/__fragments/NAME",
        "__fragments/NAME",
        "file:///somewhere/else/__fragments/NAME/",
        "s3://bucket/array/__fragments/NAME",
    ] {
        let dir = TempDir::new().unwrap();
        let name = write_sparse(dir.path(), 22, Domain::Known);
        let by = format!("__5_9_{OTHER}_22");
        let vacuum = format!("{}\n", line.replace("NAME", &name));
        put(dir.path(), &format!("__commits/{by}.vac"), vacuum.as_bytes());
        assert_eq!(
            reason(&open(dir.path())),
            format!("vacuumed: replaced by {by}"),
            "{line}"
        );
        // One whose time has not come hides nothing.
        let from = dir.path().join(format!("__commits/{by}.vac"));
        fs::rename(
            from,
            dir.path().join(format!(
                "__commits/__32503680000000_32503680000001_{OTHER}_22.vac"
            )),
        )
        .unwrap();
        assert_eq!(document(&open(dir.path()), "fragments.json")[0]["visible"], true);
    }
}

#[test]
fn what_is_foreign_or_from_an_experiment_does_not_disturb_the_rest() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    let name = write_sparse(root, 22, Domain::Known);
    let experiment = format!("__7_7_{UUID}_2147483670");
    for path in [
        "README".to_owned(),
        "directory/file".to_owned(),
        format!("__8_8_{UUID}_22.tmp"),
        format!("__fragments/{experiment}/__fragment_metadata.tdb"),
        "__fragments/.staging/x".to_owned(),
        "__fragments/file".to_owned(),
        format!("__commits/{experiment}.wrt"),
        "__commits/notes".to_owned(),
        format!("__schema/__9_9_{UUID}.tmp"),
        "__schema/notes".to_owned(),
        format!("__meta/__9_9_{UUID}.tmp"),
        "__meta/notes".to_owned(),
        "__fragment_meta/notes".to_owned(),
    ] {
        put(root, &path, b"?");
    }
    let tree = open(root);
    check_sparse(&tree, &name);
    assert_eq!(names(&tree, "fragments"), [name]);
    assert_eq!(names(&tree, "schemas"), [format!("__1_1_{UUID}.json")]);
    assert_eq!(document(&tree, "metadata.json"), json!({}));
    assert_eq!(document(&tree, "consolidated_metadata.json"), json!([]));
    assert!(
        document(&tree, "commits.json")
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["error"].is_null())
    );
    assert!(tree.errors.snapshot().0.is_empty());
}

#[test]
fn consolidated_metadata_that_does_not_fit() {
    let dir = TempDir::new().unwrap();
    let root: PathBuf = dir.path().into();
    let name = write_sparse(&root, 22, Domain::Known);
    let position = document(&open(&root), &format!("fragments/{name}/footer.json"));
    let file = fs::read(root.join(format!("__fragments/{name}/__fragment_metadata.tdb"))).unwrap();
    let start = position["footer_offset"].as_u64().unwrap() as usize;
    let own = &file[start..start + position["footer_size"].as_u64().unwrap() as usize];
    let gone = format!("__1_1_{OTHER}_22");
    let mut wrong = own.to_vec();
    // The end of the non-empty domain: behind version, name and its length, two flags, its start.
    let at = 4 + 8 + 6 + 32 + 2 + 4;
    assert_eq!(wrong[at], 50);
    wrong[at] = 51;
    let cases = [
        (&name, own),
        (&name, &wrong[..]),
        (&name, &own[..40]),
        (&gone, own),
    ];
    let mut offset = 4 + cases.iter().map(|(name, _)| 16 + name.len() as u64).sum::<u64>();
    let mut body = Bytes::default().u32(cases.len() as u32);
    for (name, footer) in &cases {
        body = body.text64(name).u64(offset);
        offset += footer.len() as u64;
    }
    let body = cases.iter().fold(body, |body, (_, footer)| body.raw(footer));
    put(
        &root,
        &format!("__fragment_meta/__1_5_{OTHER}_22.meta"),
        &generic(22, &body.0),
    );
    put(
        &root,
        &format!("__fragment_meta/__2_5_{OTHER}_22.meta"),
        b"damaged",
    );
    let tree = open(&root);
    let files = document(&tree, "consolidated_metadata.json");
    assert!(files[1]["error"].is_string() && files[1]["fragments"].is_null());
    let fragments = files[0]["fragments"].as_array().unwrap();
    let difference = |i: usize| fragments[i]["difference"].as_str().unwrap_or_default();
    assert_eq!(
        (&fragments[0]["matches"], &fragments[0]["difference"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(fragments[1]["matches"], false);
    assert_eq!(
        difference(1),
        "non_empty_domain: [[3,51]] here, [[3,50]] in the fragment's own footer"
    );
    assert_eq!(fragments[2]["matches"], false);
    assert!(
        difference(2).starts_with("not a footer of this fragment: "),
        "{}",
        difference(2)
    );
    assert_eq!(fragments[3]["matches"], Value::Null);
    assert!(
        difference(3).contains("there is no such fragment"),
        "{}",
        difference(3)
    );
    assert_eq!(fragments[3]["footer"]["non_empty_domain"], json!([[3, 50]]));
    assert_eq!(
        document(&tree, "fragments.json")[0]["has_consolidated_metadata"],
        true
    );
}
