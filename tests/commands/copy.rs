//! `cp`: copies, messages and exit codes.

use super::{fails, run, sample, text};
use crate::common::copying::copy;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;
use tiledbfs::internals::tree::{Node, Tree, TreeOptions};

/// A tree, and its node at `path`.
fn node(source: &Path, path: &str) -> Node {
    let options = TreeOptions {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    let tree = Tree::open(source, &options).unwrap();
    tree.root.find(path).unwrap().unwrap()
}

/// Asserts that a copy has exactly what the tree has; returns the number of files.
fn same(node: &Node, copy: &Path) -> usize {
    let mode = fs::metadata(copy).unwrap().permissions().mode();
    assert_ne!(mode & 0o200, 0, "{} cannot be written to", copy.display());
    let Node::Directory(directory) = node else {
        assert_eq!(
            fs::read(copy).unwrap(),
            node.read_all().unwrap(),
            "{}",
            copy.display()
        );
        return 1;
    };
    let listing = directory.list().unwrap();
    let names = listing.entries().map(|(name, _)| name);
    let names: Vec<_> = names.filter(|name| **name != *".tiledbfs").collect();
    assert_eq!(
        fs::read_dir(copy).unwrap().count(),
        names.len(),
        "{}",
        copy.display()
    );
    let children = names
        .iter()
        .map(|name| (directory.lookup(name).unwrap().unwrap(), copy.join(name)));
    children.map(|(node, copy)| same(&node, &copy)).sum()
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn files_and_directories() {
    let place = Place::new();
    let schema = node(&sample(), "weather/schema.json");
    text(&["cp", "weather", "schema.json", &place.name("a.json")]);
    text(&["cp", "weather/schema.json", &place.name("b.json")]);
    // Over existing files.
    text(&["cp", "lightning/schema.json", &place.name("c.json")]);
    text(&["cp", "weather/schema.json", &place.name("c.json")]);
    fs::create_dir(place.path("d")).unwrap();
    text(&[
        "cp",
        "weather",
        "schema.json",
        "commits.json",
        "fragments/../metadata.json",
        &place.name("d"),
    ]);
    for name in ["a.json", "b.json", "c.json", "d/schema.json"] {
        assert_eq!(same(&schema, &place.path(name)), 1);
    }
    assert_eq!(fs::read_dir(place.path("d")).unwrap().count(), 3);
    // Options stand anywhere, and behind `--` there are none.
    text(&["cp", "weather", "schema.json", "-q", &place.name("g.json")]);
    text(&["cp", "--", "weather", "schema.json", &place.name("h.json")]);
    for name in ["g.json", "h.json"] {
        assert_eq!(same(&schema, &place.path(name)), 1);
    }

    // A missing destination is the name of the copy; an existing directory receives it.
    let fragments = node(&sample(), "weather/fragments");
    for _ in 0..2 {
        text(&["cp", "-r", "weather/fragments", &place.name("e")]);
    }
    let files = same(&fragments, &place.path("e/fragments"));
    assert!(files > 100, "{files}");
    fs::remove_dir_all(place.path("e/fragments")).unwrap();
    assert_eq!(same(&fragments, &place.path("e")), files);
    // With -T, and for all in SOURCE, DEST is the copy.
    text(&["cp", "-rT", "weather/fragments", &place.name("e")]);
    assert_eq!(same(&fragments, &place.path("e")), files);
    let all = node(&sample(), "");
    for _ in 0..2 {
        text(&["cp", "-r", ".", ".", &place.name("f")]);
        same(&all, &place.path("f"));
    }
    text(&["cp", "-R", sample().to_str().unwrap(), &place.name("d")]);
    same(&all, &place.path("d/sample"));
}

#[test]
fn what_is_not_copied() {
    let place = Place::new();
    copy(&sample(), &place.path("source"));
    let source = place.name("source");
    fs::create_dir(place.path("d")).unwrap();
    let run = |arguments: &[&str], part: &str| {
        let message = fails(&[&["cp"], arguments].concat(), 1);
        assert!(message.contains(part), "{message}");
    };
    run(
        &["weather", "fragments", &place.name("x")],
        "fragments: is a directory (use -r)",
    );
    run(
        &["weather", &place.name("x")],
        "sample/weather: is a directory (use -r)",
    );
    run(&["weather/nothing", &place.name("x")], "nothing: no such file");
    run(
        &["weather", "schema.json", "metadata.json", &place.name("x")],
        "is not a directory, so several files",
    );
    run(
        &["weather", "fragments/*/footer.json", &place.name("x")],
        "is not a directory, so several files",
    );
    run(
        &["weather/schema.json", &place.name("x/")],
        "x/: is not a directory",
    );
    // Two sources must not have the same copy.
    run(
        &["weather", "fragments/*/footer.json", &place.name("d")],
        "footer.json: would be the copy of two files",
    );
    run(
        &["-r", &source, &place.name("source/weather")],
        "is inside the source",
    );
    run(
        &["-r", &source, ".", &place.name("source/new/deep")],
        "is inside the source",
    );
    run(&["weather/schema.json", "/dev/null"], "not a regular file");
    run(
        &["weather/schema.json", &place.name("no/such/place")],
        "cannot write",
    );
    assert_eq!(
        fs::read_dir(place.path("source")).unwrap().count(),
        fs::read_dir(sample()).unwrap().count()
    );
    assert!(!place.path("x").exists() && !place.path("source/new").exists());
    assert_eq!(run_code(&["cp", "weather"]), Some(2));
}

fn run_code(arguments: &[&str]) -> Option<i32> {
    run(arguments).0
}

#[test]
fn what_cannot_be_read_has_no_copy() {
    let place = Place::new();
    let source = place.path("source");
    copy(&sample().join("lightning"), &source);
    // As if it had been written long ago.
    for entry in fs::read_dir(&source).unwrap() {
        let entry = fs::File::open(entry.unwrap().path()).unwrap();
        entry.set_modified(UNIX_EPOCH).unwrap();
    }
    let directory = fs::File::open(&source).unwrap();
    directory.set_modified(UNIX_EPOCH).unwrap();
    let fragments = source.join("__fragments");
    let fragment = fs::read_dir(&fragments).unwrap().next().unwrap().unwrap().path();
    let broken = fragment.join("a0.tdb");
    let bytes = fs::read(&broken).unwrap();
    fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();

    let dest = place.path("copy");
    let arguments = ["cp", "-r", &place.name("source"), &place.name("copy")];
    let message = fails(&arguments, 1);
    assert!(
        message.contains("data.bin") && message.contains("a0.tdb"),
        "{message}"
    );
    let name = Path::new("fragments")
        .join(fragment.file_name().unwrap())
        .join("columns");
    let left = |directory: &Path| -> Vec<PathBuf> {
        let mut waiting = vec![directory.to_path_buf()];
        let mut files = Vec::new();
        while let Some(path) = waiting.pop() {
            match path.is_dir() {
                true => waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
                false => files.push(path),
            }
        }
        files
    };
    let copied = left(&dest);
    assert!(
        copied.iter().all(|path| !path.ends_with(".tiledbfs-part")),
        "{copied:?}"
    );
    let marker = dest.join(".tiledbfs-unfinished");
    assert!(
        fs::read_to_string(&marker)
            .unwrap()
            .contains("not yet a whole copy")
    );
    let columns = fs::read_dir(dest.join(&name))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (whole, partial): (Vec<_>, Vec<_>) = columns.partition(|path| path.join("data.bin").exists());
    assert_eq!(partial.len(), 1, "{whole:?} {partial:?}");

    let again = [
        "cp",
        "-r",
        "--skip-existing",
        &place.name("source"),
        &place.name("copy"),
    ];
    // What the source has no more is no part of a copy that goes on.
    let gone = [dest.join("fragments/gone"), dest.join("fragments/gone.json")];
    fs::create_dir(&gone[0]).unwrap();
    fs::write(&gone[1], "{}").unwrap();
    let (code, _, message) = run(&again);
    assert_eq!(code, Some(1), "{message}");
    assert!(
        gone.iter().all(|path| message.contains(path.to_str().unwrap())),
        "{message}"
    );
    assert!(marker.exists());
    fs::remove_dir(&gone[0]).unwrap();
    fs::remove_file(&gone[1]).unwrap();

    // After a repair, the same command continues, and does not take a partial copy for a whole one.
    fs::write(&broken, &bytes).unwrap();
    let half = whole[0].join("data.bin");
    let length = fs::metadata(&half).unwrap().len();
    let half = fs::File::options().write(true).open(half).unwrap();
    half.set_len(length / 2).unwrap();
    let old = fs::File::options()
        .write(true)
        .open(dest.join("schema.json"))
        .unwrap();
    old.set_modified(UNIX_EPOCH).unwrap();
    let kept = fs::metadata(dest.join("commits.json"))
        .unwrap()
        .modified()
        .unwrap();
    let (code, _, stderr) = run(&again);
    assert_eq!(code, Some(0), "{stderr}");
    let files = same(&node(&source, ""), &dest);
    assert!(!marker.exists());
    assert_eq!(
        fs::metadata(dest.join("commits.json"))
            .unwrap()
            .modified()
            .unwrap(),
        kept
    );
    assert!(
        fs::metadata(dest.join("schema.json"))
            .unwrap()
            .modified()
            .unwrap()
            > UNIX_EPOCH
    );
    let there: usize = stderr
        .rsplit(", ")
        .next()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        there > 2 && there < files && stderr.ends_with(" skipped\n"),
        "{stderr}"
    );
}

#[test]
fn links_at_the_destination_are_not_followed() {
    let place = Place::new();
    let link =
        |target: &str, name: &str| std::os::unix::fs::symlink(place.path(target), place.path(name)).unwrap();
    for directory in ["outside", "dest/weather/schemas", "real"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    fs::write(place.path("outside/file"), b"mine").unwrap();
    link("outside", "dest/weather/fragments");
    link("outside/file", "dest/weather/schema.json");
    link("outside/new", "dest/weather/metadata.json");
    link("outside", "dest/lightning");
    fs::hard_link(
        place.path("outside/file"),
        place.path("dest/weather/schemas/.tiledbfs-part"),
    )
    .unwrap();
    for name in ["weather", "lightning"] {
        let stderr = fails(&["cp", "-r", name, &place.name("dest")], 1);
        let links = if name == "weather" { 3 } else { 1 };
        let told = stderr
            .lines()
            .filter(|line| line.ends_with("is a symbolic link, which is not followed"));
        assert_eq!(told.count(), links, "{stderr}");
    }
    let stderr = fails(&["cp", "weather", "schema.json", &place.name("dest/weather")], 1);
    assert!(stderr.contains("is a symbolic link"), "{stderr}");
    let outside: Vec<_> = fs::read_dir(place.path("outside")).unwrap().collect();
    assert_eq!(outside.len(), 1, "{outside:?}");
    assert_eq!(fs::read(place.path("outside/file")).unwrap(), b"mine");
    // What is no link is copied.
    assert!(place.path("dest/weather/commits.json").is_file());
    assert_eq!(
        fs::read_dir(place.path("dest/weather/schemas")).unwrap().count(),
        1
    );

    // DEST itself may be a link to a directory that the copy goes into, but not be replaced by the copy.
    link("real", "named");
    text(&["cp", "-r", "weather/schemas", &place.name("named")]);
    assert!(place.path("real/schemas").is_dir());
    let stderr = fails(&["cp", "-rT", "weather/schemas", &place.name("named")], 1);
    assert!(stderr.contains("is a symbolic link"), "{stderr}");
}

#[test]
fn a_pipe_in_the_place_of_the_mark_of_an_unfinished_copy_blocks_nobody() {
    let place = Place::new();
    let mark = place.path("dest/schemas/.tiledbfs-unfinished");
    fs::create_dir_all(place.path("dest/schemas")).unwrap();
    let made = Command::new("mkfifo").arg(&mark).status().unwrap();
    assert!(made.success());
    // Nobody writes to it.
    text(&["cp", "-r", "weather/schemas", &place.name("dest")]);
    let copied = fs::read_dir(place.path("dest/schemas")).unwrap();
    assert_eq!(copied.count(), 1);
}

#[test]
fn a_bar_where_there_is_a_terminal() {
    let place = Place::new();
    // script(1) gives the command a terminal.
    let on_terminal = |arguments: &str| {
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_tiledbfs"));
        let output = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .current_dir(sample())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = on_terminal(&format!("cp -r weather {}", place.name("a")));
    // Copying may be over before the bar is drawn again, so that it may stand at 0 %.
    let bar = |text: &str| text.len() == 24 && text.chars().all(|c| "#>-".contains(c));
    let (before, after) = shown.split_once("] ").unwrap();
    assert!(bar(before.trim_start_matches('[')), "{shown:?}");
    assert!(after.trim_start().split_once("%  ").is_some(), "{shown:?}");
    assert!(shown.contains("iB), 0 skipped"), "{shown:?}");
    let quiet = on_terminal(&format!("cp -qr weather {}", place.name("b")));
    assert_eq!(quiet, "");
    let shown = on_terminal("check .");
    assert!(
        shown.contains("\rchecked 1 group") || shown.contains("Kchecked 1 group"),
        "{shown:?}"
    );
}
