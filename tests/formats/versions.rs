//! The arrays and groups in `tests/data/versions`, written by releases of libtiledb from 1.4 to 2.30 in every
//! format version from 1 to 22. All columns and JSON documents are compared with what libtiledb 2.30 reads
//! (`answers.json`).

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiledbfs::internals::engine::Engine;
use tiledbfs::internals::filter::EncryptionKey;
use tiledbfs::internals::query::deletes;
use tiledbfs::internals::storage::MemoryStorage;
use tiledbfs::internals::tree::{Node, Tree, TreeOptions};
use tiledbfs::internals::{fragment_info, listing, open_array};
use tiledbfs::{ErrorKind, TimeRange};

mod report;

use report::*;

const KEY: &[u8; 32] = b"versions of TileDB, 32 bytes key";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/versions")
}

fn answers() -> Map<String, Value> {
    let text = std::fs::read(folder().join("answers.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Opens an array, group or folder below [`folder`]; with `key`, with the key of the encrypted array.
fn open(path: &str, key: bool) -> Tree {
    let key = key.then(|| (PathBuf::new(), EncryptionKey::new(*KEY)));
    let options = TreeOptions {
        cache_size: 64 << 20,
        keys: key.into_iter().collect(),
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    Tree::open(&folder().join(path), &options).unwrap()
}

/// The files under test.
struct Shown<'a>(&'a Node);

impl Shown<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let node = self.0.find(path).map_err(|e| e.to_string())?;
        let node = node.ok_or("no such file")?;
        let bytes = node.read_all().map_err(|e| e.to_string())?;
        if let Node::File(file) = &node {
            assert_eq!(file.len().unwrap(), bytes.len() as u64, "length of {path}");
        }
        Ok(bytes)
    }

    fn names(&self, path: &str) -> Result<Vec<String>, String> {
        let Some(Node::Directory(directory)) = self.0.find(path).map_err(|e| e.to_string())? else {
            return Err("no such directory".to_owned());
        };
        let listing = directory.list().map_err(|e| e.to_string())?;
        let names = listing.entries().map(|(name, _)| name.into_owned());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        Ok(names)
    }
}

#[test]
fn every_column_and_fact_of_every_version() {
    let mut report = Report::default();
    for (path, answer) in answers() {
        let tree = open(&path, path.ends_with("encrypted"));
        report.compare(&Shown(&tree.root), &path, &answer);
        assert!(tree.errors.snapshot().0.is_empty());
    }
    report.finish("through the tree:");
}

#[test]
fn a_wrong_byte_is_found_and_named() {
    let path = "v05/sparse";
    let tree = open(path, false);
    let mut answer = answers()[path].clone();
    let fragments = answer["fragments"].as_object_mut().unwrap();
    let (name, fragment) = fragments.iter_mut().next().unwrap();
    let name = name.clone();
    let column = &mut fragment["columns"]["x"];
    let mut data = column["data"].as_str().unwrap().to_owned();
    let digit = data.pop().unwrap();
    data.push(if digit == '0' { '1' } else { '0' });
    column["data"] = data.clone().into();
    let cell = data.len() / 16 - 1;
    let mut report = Report::default();
    report.compare(&Shown(&tree.root), path, &answer);
    let wanted = format!("array {path}, fragment {name}, field \"x\", cell {cell}: ");
    assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
    assert!(report.failures[0].starts_with(&wanted), "{}", report.failures[0]);

    let mut answer = answers()[path].clone();
    answer["json"]["schema.json"]["capacity"] = 3.into();
    answer["fragments"].as_object_mut().unwrap().remove(&name);
    let mut report = Report::default();
    report.compare(&Shown(&tree.root), path, &answer);
    assert_eq!(report.failures.len(), 2, "{:?}", report.failures);
}

fn json(tree: &Tree, path: &str) -> Value {
    let node = tree
        .root
        .find(path)
        .unwrap()
        .unwrap_or_else(|| panic!("no {path}"));
    serde_json::from_slice(&node.read_all().unwrap()).unwrap()
}

fn names(tree: &Tree, path: &str) -> Vec<String> {
    Shown(&tree.root).names(path).unwrap()
}

/// The reasons of the hidden fragments of an array, oldest first.
fn reasons(path: &str) -> Vec<String> {
    let list = json(&open(path, false), "fragments.json");
    let hidden = list
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["visible"] == false);
    hidden
        .map(|entry| entry["reason"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn hidden_fragments_say_why() {
    // Vacuum files have absolute paths up to version 18, then relative ones.
    for path in [
        "v05/sparse",
        "v12/sparse",
        "v18/sparse",
        "v19/sparse",
        "v22/sparse",
    ] {
        let list = json(&open(path, false), "fragments.json");
        let consolidated = list
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["visible"] == true)
            .unwrap();
        let wanted = format!("vacuumed: replaced by {}", consolidated["name"].as_str().unwrap());
        assert_eq!(reasons(path), [wanted.clone(), wanted], "{path}");
    }
    for (path, extension) in [("v10/uncommitted", "ok"), ("v22/uncommitted", "wrt")] {
        let [reason] = &reasons(path)[..] else {
            panic!("{path}")
        };
        assert!(
            reason.starts_with("uncommitted: there is no __20_20_") && reason.ends_with(extension),
            "{reason}"
        );
    }
}

#[test]
fn consolidated_metadata_is_held_against_the_footers() {
    let mut compared = 0;
    for version in 5..=22 {
        let tree = open(&format!("v{version:02}/sparse"), false);
        let files = json(&tree, "consolidated_metadata.json");
        let files = files.as_array().unwrap();
        assert_eq!(files.len(), usize::from(version % 2 == 1), "version {version}");
        for fragment in files
            .iter()
            .flat_map(|file| file["fragments"].as_array().unwrap())
        {
            assert_eq!(
                (&fragment["matches"], &fragment["difference"]),
                (&true.into(), &Value::Null)
            );
            let name = fragment["name"].as_str().unwrap().rsplit('/').next().unwrap();
            let mut own = json(&tree, &format!("fragments/{name}/footer.json"));
            own["footer_offset"] = fragment["offset"].clone();
            assert_eq!(fragment["footer"], own);
            compared += 1;
        }
    }
    assert!(compared >= 18, "{compared}");
    // libtiledb 2.30 repeats footers of version 4 in a form that it cannot read itself.
    let files = json(&open("mixed/dense04", false), "consolidated_metadata.json");
    let fragments = files[0]["fragments"].as_array().unwrap();
    let matches: Vec<&Value> = fragments.iter().map(|fragment| &fragment["matches"]).collect();
    assert!(matches.contains(&&Value::Bool(false)), "{files:#}");
    for fragment in fragments {
        assert_eq!(
            fragment["difference"].is_string(),
            fragment["matches"] == false,
            "{fragment:#}"
        );
    }
}

#[test]
fn members_are_shown_where_they_lie_inside() {
    let top = open("v22/group", false);
    assert_eq!(
        names(&top, ""),
        [
            ".tiledbfs",
            "empty",
            "group.json",
            "inner group",
            "metadata.json",
            "one",
            "zwei"
        ]
    );
    // The inner group has its own parent as a member; the listing ends there.
    assert_eq!(
        names(&top, "inner group"),
        ["group.json", "metadata.json", "three"]
    );
    let members = json(&top, "inner group/group.json");
    assert_eq!(members["members"][1]["uri"], "..");
    let version = |path: &str| json(&open(path, false), "group.json")["version"].clone();
    assert_eq!((version("v14/group"), version("v22/group")), (1.into(), 2.into()));
    // Before members were registered, all objects in the group's directory were members.
    for path in ["v05/old_group", "v11/old_group"] {
        let tree = open(path, false);
        assert_eq!(
            names(&tree, ""),
            [".tiledbfs", "below", "group.json", "metadata.json", "one"]
        );
        assert_eq!(names(&tree, "below"), ["group.json", "metadata.json", "two"]);
        assert_eq!(json(&tree, "group.json")["members"], Value::Array(vec![]));
        assert_eq!(json(&tree, "below/two/schema.json")["array_type"], "dense");
    }
}

#[test]
fn commits_of_all_kinds_are_decoded() {
    let kinds = |path: &str| {
        let commits = json(&open(path, false), "commits.json");
        let commits = commits.as_array().unwrap().clone();
        let kind =
            |kind: &str| -> Vec<Value> { commits.iter().filter(|c| c["type"] == kind).cloned().collect() };
        (kind("con"), kind("ign"), kind("del"), kind("vac"))
    };
    for path in ["v16/ignored", "v22/ignored"] {
        let (con, ign, _, _) = kinds(path);
        let entries = con[0]["entries"].as_array().unwrap();
        let delete: Vec<&Value> = entries.iter().filter(|e| !e["condition"].is_null()).collect();
        assert_eq!((con.len(), entries.len(), delete.len()), (1, 3, 1), "{path}");
        assert_eq!(delete[0]["text"], "v != \"tile\"");
        assert_eq!(ign[0]["entries"].as_array().unwrap().len(), 2, "{path}");
    }
    let (_, _, del, vac) = kinds("v17/sparse");
    assert_eq!(del[0]["text"], "v != \"bb\"");
    assert!(
        vac[0]["entries"][0]["path"]
            .as_str()
            .unwrap()
            .starts_with("file:///")
    );
    assert!(
        vac[0]["entries"][0]["normalised"]
            .as_str()
            .unwrap()
            .starts_with("__fragments/__10_10_")
    );
    let tree = open("v17/sparse", false);
    let visible = json(&tree, "fragments.json");
    let visible = visible
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["visible"] == true)
        .unwrap();
    let conditions = json(
        &tree,
        &format!("fragments/{}/conditions.json", visible["name"].as_str().unwrap()),
    );
    assert!(conditions.to_string().contains(".del"), "{conditions}");
}

#[test]
fn labels_lie_below_their_array() {
    for path in ["v18/labels", "v22/labels"] {
        let tree = open(path, false);
        assert_eq!(names(&tree, "labels"), ["height", "word"]);
        assert_eq!(
            json(&tree, "labels/word/schema.json")["attributes"][0]["datatype"],
            "STRING_ASCII"
        );
    }
}

#[test]
fn without_its_key_an_encrypted_array_is_listed() {
    let tree = open("v22/encrypted", false);
    let fragments = names(&tree, "fragments");
    assert_eq!(fragments.len(), 1);
    let read = |path: &str| {
        tree.root
            .find(path)
            .unwrap()
            .unwrap()
            .read_all()
            .unwrap_err()
            .kind()
    };
    assert_eq!(read("schema.json"), ErrorKind::KeyRequired);
    assert_eq!(read("metadata.json"), ErrorKind::KeyRequired);
}

/// For each fragment of an array, the start and end of its name, and how many conditions apply to it at a
/// time.
fn deletes_of(path: &str, end: u64) -> Vec<((u64, u64), usize)> {
    let storage = MemoryStorage::copy_of(&folder().join(path)).unwrap();
    let engine = Arc::new(Engine::new(
        Arc::new(storage),
        16 << 20,
        Vec::new(),
        Arc::default(),
    ));
    let array = open_array(engine.clone(), "");
    let (listing, view) = (listing(&array).unwrap(), array.latest_schema().unwrap());
    let deletes = deletes::in_force(&engine, None, &listing, TimeRange::until(end), &view).unwrap();
    let fragments = listing.fragments.iter().map(|entry| {
        let info = fragment_info(&entry.fragment).unwrap();
        (
            info.name.timestamps,
            deletes::bind(&deletes, &info).unwrap().len(),
        )
    });
    fragments.collect()
}

#[test]
fn a_delete_concerns_what_was_written_before_and_has_not_carried_it_out() {
    // The consolidated fragment has carried it out: the delete is among its processed conditions.
    assert_eq!(
        deletes_of("v22/sparse", 60),
        [((10, 10), 1), ((10, 20), 0), ((20, 20), 1)]
    );
    assert_eq!(
        deletes_of("v22/sparse", 49),
        [((10, 10), 0), ((10, 20), 0), ((20, 20), 0)]
    );
    // Its delete is only in the consolidated commits.
    assert_eq!(deletes_of("v16/ignored", 60), [((10, 20), 0), ((40, 40), 0)]);
}
