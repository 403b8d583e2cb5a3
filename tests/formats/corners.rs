//! Small arrays with rare properties, found by random tests (`tests/data/corners`, written by
//! `tests/data/write_corners.py`).

use crate::common::names;
use std::path::{Path, PathBuf};
use std::process::Command;
use tiledbfs::internals::tree::{Tree, TreeOptions};
use tiledbfs::{ErrorKind, Result};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corners")
}

/// A file of a column of an array's only fragment.
fn read(array: &str, file: &str) -> Vec<u8> {
    read_of(&folder().join(array), file).unwrap()
}

fn read_of(array: &Path, file: &str) -> Result<Vec<u8>> {
    let options = TreeOptions {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    let root = Tree::open(array, &options).unwrap().root;
    let fragments = names(&root, "fragments");
    let path = format!("fragments/{}/columns/{file}", fragments[0]);
    let node = root.find(&path).unwrap().unwrap();
    node.read_all()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (entries, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty());
    entries.iter().map(|entry| u64::from_le_bytes(*entry)).collect()
}

#[test]
fn check_finds_nothing_wrong() {
    let arrays = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().path());
    let arrays: Vec<PathBuf> = arrays.collect();
    assert_eq!(arrays.len(), 9);
    for array in arrays {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tiledbfs"));
        let output = command.arg("check").arg(&array).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), text.as_str()), (Some(0), ""), "{array:?}");
    }
}

#[test]
fn tiles_of_nothing_behind_the_last_one_are_passed_over() {
    let cells: Vec<String> = (0..8).map(|i| format!("cell {i}")).collect();
    assert_eq!(read("one_more", "s/data.bin"), cells.concat().into_bytes());
    let starts: Vec<u64> = (0..=8).map(|i| 6 * i).collect();
    assert_eq!(numbers(&read("one_more", "s/offsets.bin")), starts);
    assert_eq!(read("one_more", "s/validity.bin"), [0, 1, 1, 0, 1, 1, 0, 1]);
    assert_eq!(
        read("one_more", "s/tiles/1.data.bin"),
        cells[4..].concat().into_bytes()
    );
    let expected: Vec<u8> = (0..12i32).flat_map(i32::to_le_bytes).collect();
    assert_eq!(read("twice", "n/data.bin"), expected);
    assert_eq!(read("twice", "n/validity.bin"), [0, 1, 1].repeat(4));
}

#[test]
fn values_among_which_validity_was_written_are_errors() {
    let array = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/mixed_validity");
    for file in ["n/data.bin", "n/data.npy", "n/tiles/1.data.bin", "n/validity.bin"] {
        let error = read_of(&array, file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{file}: {error}");
    }
    assert_eq!(read_of(&array, "n/tiles/0.data.bin").unwrap(), [40, 41]);
    assert_eq!(read_of(&array, "a/data.bin").unwrap(), [50, 51, 52, 53, 54]);
}

#[test]
fn a_fragment_without_cells_needs_no_files() {
    for file in ["a/data.bin", "s/data.bin", "x/data.bin", "__coords/data.bin"] {
        assert!(read("no_cells", file).is_empty(), "{file}");
    }
    assert_eq!(numbers(&read("no_cells", "s/offsets.bin")), [0]);
    let npy = read("no_cells", "a/data.npy");
    assert!(npy.starts_with(b"\x93NUMPY") && npy.len().is_multiple_of(64));
}

#[test]
fn scaled_values_are_the_rounded_ones() {
    let floats = |name: &str| {
        let bytes = read("scaled", &format!("{name}/data.bin"));
        bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| f64::from_le_bytes(*b))
            .collect::<Vec<_>>()
    };
    let expected: Vec<f64> = (0..11)
        .map(|n| (f64::from(n) * 7.7 / 3.0).round() * 3.0)
        .collect();
    assert_eq!(floats("f"), expected);
}
