//! Checks that modules know each other in one direction: as the table in `docs/architecture.md` is ordered,
//! and without circles in `tree`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What everybody may use. They use each other.
const SHARED: [&str; 6] = ["bytes", "calendar", "cursor", "error", "names", "printable"];

/// The modules in the order of the table, each after those that it may import.
fn layers() -> Vec<String> {
    let text = fs::read_to_string("docs/architecture.md").unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| [`"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect()
}

/// All files below `directory`, but for tests.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// The modules of the crate that the code in `text` names, without its tests.
fn imported(text: &str) -> HashSet<&str> {
    named_after(text, "crate::")
}

/// The modules that the code in `text` names after `prefix`, without its tests.
fn named_after<'a>(text: &'a str, prefix: &str) -> HashSet<&'a str> {
    let code = text.split("\n#[cfg(test)]\n").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = lines.flat_map(|line| line.split(prefix).skip(1));
    let ends = |c: char| !c.is_ascii_lowercase() && c != '_';
    paths
        .filter_map(|path| path.split(ends).next())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn modules_import_from_the_layers_below_only() {
    let layers = layers();
    let mut count = 0;
    for (level, layer) in layers.iter().enumerate() {
        let mut paths = Vec::new();
        match Path::new("src").join(layer) {
            directory if directory.is_dir() => files(&directory, &mut paths),
            file => paths.push(file.with_extension("rs")),
        }
        let below: HashSet<&str> = layers[..=level]
            .iter()
            .map(String::as_str)
            .chain(SHARED)
            .collect();
        for path in paths
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        {
            count += 1;
            let text = fs::read_to_string(path).unwrap();
            let wrong: Vec<_> = imported(&text).difference(&below).copied().collect();
            assert!(wrong.is_empty(), "{} imports from {wrong:?}", path.display());
        }
    }
    for name in SHARED {
        let text = fs::read_to_string(format!("src/{name}.rs")).unwrap();
        let wrong: Vec<_> = imported(&text)
            .into_iter()
            .filter(|name| !SHARED.contains(name))
            .collect();
        assert!(wrong.is_empty(), "{name} imports from {wrong:?}");
    }
    let mut all = Vec::new();
    files(Path::new("src"), &mut all);
    let in_root = all
        .iter()
        .filter(|path| path.parent() == Some(Path::new("src")))
        .count();
    let with_mod = all
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .count();
    // What is in no layer: what all share, this file, `lib.rs`, `main.rs` and `internals.rs`. `engine.rs` is
    // one.
    assert_eq!((in_root, with_mod - count), (SHARED.len() + 5, SHARED.len() + 4));
}

/// Those in which each file is what its name says: a document, a filter, a structure of the format.
const PLAIN: [&str; 3] = ["describe", "filter", "format"];

#[test]
fn each_module_says_what_is_where_in_it() {
    let for_tests = ["memory", "model", "tests", "testing"];
    for directory in fs::read_dir("src").unwrap().map(|entry| entry.unwrap().path()) {
        let plain = PLAIN.iter().any(|name| directory.ends_with(name));
        let Some(text) = fs::read_to_string(directory.join("mod.rs"))
            .ok()
            .filter(|_| !plain)
        else {
            continue;
        };
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let is_module = path.is_dir() || path.extension().is_some_and(|end| end == "rs");
            let said = head.iter().any(|line| line.contains(&format!("`{name}`")));
            let named = said || name == "mod" || for_tests.contains(&name);
            assert!(
                !is_module || named,
                "{} does not name {name}",
                directory.display()
            );
        }
    }
}

#[test]
fn modules_of_the_tree_have_no_circle() {
    let mut left = HashMap::new();
    for entry in fs::read_dir("src/tree").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_file() && name != "mod" {
            left.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    assert!(left.len() > 20);
    loop {
        let names: HashSet<String> = left.keys().cloned().collect();
        left.retain(|_, text| {
            let named = ["super::", "crate::tree::"].map(|prefix| named_after(text, prefix));
            named.iter().flatten().any(|name| names.contains(*name))
        });
        if left.is_empty() {
            return;
        }
        assert!(left.len() < names.len(), "in circles, or above them: {names:?}");
    }
}
