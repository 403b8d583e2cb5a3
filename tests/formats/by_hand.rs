//! Structures that no released writer produces, built by hand from the format specification, and directories
//! in states that libtiledb does not leave behind. Tests read them through the tree, with the parsers for
//! real arrays.

use crate::common::bytes::Bytes;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tiledbfs::internals::tree::{Tree, TreeOptions};

mod directories;

const UUID: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

/// A GZIP filter in a stored pipeline: its number, the size of its options, compressor and level.
const GZIP: &[u8] = &[1, 5, 0, 0, 0, 1, 1, 0, 0, 0];

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A tile of these chunks, each compressed by itself, or without any filter.
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

/// The schema of a sparse array with INT32 dimensions from 1 to 100 in tiles of 10, capacity 2, and an
/// attribute `a` of INT32 without filters.
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
    let options = TreeOptions {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..TreeOptions::default()
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

fn ints(bytes: &[u8]) -> Vec<i32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|b| i32::from_le_bytes(*b))
        .collect()
}

/// The stored non-empty domain.
#[derive(Clone, Copy, PartialEq)]
enum Domain {
    Known,
    /// Marked as null, followed by the zeros that writers put there.
    NullWithZeros,
    /// Marked as null, followed by nothing.
    Null,
}

/// Writes an array of one sparse fragment: x is 3, 7, 50 and a is 10, 20, 30, in tiles of two cells and one.
/// `version` is 22 or 23; 23 has an optional section for the global-order bounds and an unknown one. Returns
/// the fragment's name.
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

    // Slots: a, the unused one of the coordinates, x.
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

/// Writes an array of version 1 with one fragment of two tiles and the coordinates (3, 30), (7, 10), (50,
/// 20).
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
        // Split, with each dimension in a chunk of its own.
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

/// The body of an update: where `a` is less than 20, assign 99 to `a`.
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
