//! Exports, files for other programs: which exist, and how `cat` and `cp` write them.

use super::{fails, sample, text};
use crate::common::names;
use tiledbfs::ErrorKind;
use tiledbfs::internals::export;
use tiledbfs::internals::tree::{Node, Tree, TreeOptions};

fn tree(exports: export::ExportOptions) -> Tree {
    let options = TreeOptions {
        cache_size: 64 << 20,
        exports,
        ..TreeOptions::default()
    };
    Tree::open(&sample(), &options).unwrap()
}

/// The entry of `table.csv` in `view.json`: whether it is there, and why not.
fn said(tree: &Tree, view: &str) -> (Option<bool>, String) {
    let text = tree.root.find(&format!("{view}/view.json")).unwrap().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text.read_all().unwrap()).unwrap();
    let entry = &json["exports"]["table.csv"];
    let reason = entry["reason"].as_str().unwrap_or_default();
    (entry["exists"].as_bool(), reason.to_owned())
}

#[test]
fn a_table_is_written_with_or_without_its_length() {
    let place = tempfile::tempdir().unwrap();
    let tree = tree(export::ExportOptions::default());
    for path in [
        "lightning/data/table.csv",
        "weather/data/table.csv",
        "weather/data/subarray/100..101,2/table.csv",
        "weather/at/2025-02-10/data/table.csv",
    ] {
        let node = tree.root.find(path).unwrap().unwrap();
        let Node::File(file) = &node else {
            panic!("{path} is no file")
        };
        let whole = String::from_utf8(node.read_all().unwrap()).unwrap();
        assert_eq!(file.stat().unwrap().len, whole.len() as u64);
        assert!(file.stream().unwrap().is_some());
        assert_eq!(text(&["cat", ".", path]), whole);
        let copy = place.path().join("table.csv");
        text(&["cp", ".", path, copy.to_str().unwrap()]);
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), whole);
        text(&["cp", "-q", "--skip-existing", ".", path, copy.to_str().unwrap()]);
    }
    let part = text(&["cat", ".", "weather/data/subarray/100..101,2/table.csv"]);
    let rows: Vec<&str> = part.lines().collect();
    assert_eq!((rows.len(), rows[0].split(',').count()), (3, 8));
    assert!(
        rows[1].starts_with("100,2,") && rows[2].starts_with("101,2,"),
        "{part}"
    );
    let then = text(&["cat", "--at", "2025-02-10", "weather", "data/table.csv"]);
    assert_eq!(then, text(&["cat", ".", "weather/at/2025-02-10/data/table.csv"]));
    assert_ne!(then, text(&["cat", "weather", "data/table.csv"]));
    fails(&["cat", ".", "weather/data/subarray/1..2,77/table.csv"], 1);
}

#[test]
fn a_table_beyond_the_bound_is_not_there() {
    // 2,190 rows of 8 columns, and 1,000 of 5.
    let tree = tree(export::ExportOptions {
        csv_values: 17_000,
        ..export::ExportOptions::default()
    });
    assert!(!names(&tree.root, "weather/data").contains(&"table.csv".to_owned()));
    assert!(names(&tree.root, "lightning/data").contains(&"table.csv".to_owned()));
    let absent = tree.root.find("weather/data/table.csv").map(|_| ());
    assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(
        tree.root
            .find("weather/data/subarray/1..9,/table.csv")
            .unwrap()
            .is_some()
    );
    let (exists, reason) = said(&tree, "weather/data");
    assert_eq!(exists, Some(false));
    assert!(
        reason.starts_with("2190 rows of 8 columns are more than 17000 values"),
        "{reason}"
    );
    assert_eq!(said(&tree, "lightning/data"), (Some(true), String::new()));
    // Without a mount there is no bound.
    assert_eq!(
        text(&["cat", ".", "weather/data/table.csv"]).lines().count(),
        2191
    );
}

#[test]
fn hidden_exports_are_there_by_name() {
    let shown = tree(export::ExportOptions::default());
    let hidden = tree(export::ExportOptions {
        hide: true,
        ..export::ExportOptions::default()
    });
    assert!(names(&shown.root, "weather/data").contains(&"table.csv".to_owned()));
    assert_eq!(names(&hidden.root, "weather/data"), ["view.json", "columns"]);
    assert!(hidden.root.find("weather/data/table.csv").unwrap().is_some());
    assert_eq!(said(&hidden, "weather/data").0, Some(true));
}
