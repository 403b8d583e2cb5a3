//! SCALE_FLOAT before other filters (`tests/data/scaled_floats`). Before format version 20, libtiledb gave
//! every filter the attribute's datatype; since then it gives each filter the output type of the filter
//! before. libtiledb 2.30 misreads or refuses arrays of the first kind (`wrong.json`).

use crate::common::names;
use std::path::Path;
use tiledbfs::internals::tree::{Tree, TreeOptions};

fn columns(array: &str) -> Vec<(String, Vec<u8>)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/scaled_floats")
        .join(array);
    let options = TreeOptions {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    let root = Tree::open(&source, &options).unwrap().root;
    let fragments = names(&root, "fragments");
    let [fragment] = &fragments[..] else {
        panic!("{fragments:?}")
    };
    let directory = format!("fragments/{fragment}/columns");
    let read = |name: String| {
        let bytes = root
            .find(&format!("{directory}/{name}/data.bin"))
            .unwrap()
            .unwrap()
            .read_all()
            .unwrap();
        (name, bytes)
    };
    names(&root, &directory).into_iter().map(read).collect()
}

#[test]
fn what_was_written_is_read_whoever_wrote_it() {
    // The formula of tests/data/write_scaled_floats.py.
    let values = (0..1000u32).map(|i| 8.0 + 0.25 * (30 * i + i * i % 29) as f32);
    let expected: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    for array in ["old", "new"] {
        let columns = columns(array);
        assert_eq!(columns.len(), 8);
        for (name, bytes) in columns {
            assert_eq!(bytes, expected, "{array}: {name}");
        }
    }
}

#[test]
fn the_old_array_is_one_that_libtiledb_misreads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/scaled_floats/wrong.json");
    let opinion: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let misread = opinion["old"]
        .as_object()
        .unwrap()
        .values()
        .filter(|said| *said != "right")
        .count();
    assert!(misread >= 4, "{opinion}");
    assert!(
        opinion["new"]
            .as_object()
            .unwrap()
            .values()
            .all(|said| *said == "right"),
        "{opinion}"
    );
}
