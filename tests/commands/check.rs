//! `check`: its output and exit codes.

use super::{run as run_program, sample};
use crate::common::copying::copy;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

fn run(source: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let all: Vec<&OsStr> = ["check".as_ref(), source.as_os_str()]
        .into_iter()
        .chain(arguments.iter().map(OsStr::new))
        .collect();
    run_program(&all)
}

/// An array with a commit that has no fragment, and a name that has to be escaped.
fn damaged() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let array = place.path().join("two\nlines");
    copy(&sample().join("lightning/__schema"), &array.join("__schema"));
    fs::create_dir_all(array.join("__commits")).unwrap();
    let commit = format!("__commits/__1_1_{}_22.wrt", "0".repeat(32));
    fs::write(array.join(commit), b"").unwrap();
    fs::write(array.join("__commits/odd.wrt"), b"").unwrap();
    place
}

#[test]
fn a_clean_source() {
    let (code, stdout, stderr) = run(&sample(), &[]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
    // One line and no progress bar, because stderr is no terminal.
    assert_eq!(stderr.lines().count(), 1, "{stderr:?}");
    assert!(!stderr.contains(['\r', '\x1b']), "{stderr:?}");
    assert!(
        stderr.starts_with("checked 1 group, 2 arrays, 4 fragments, 22 columns, 102 tiles, 167.46 KiB ("),
        "{stderr}"
    );
    assert!(stderr.ends_with(": 0 problems\n"), "{stderr}");
    let (code, stdout, stderr) = run(
        &sample().join("weather"),
        &["--quiet", "--threads", "1", "--json"],
    );
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn arrays_of_every_version_are_clean() {
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/versions");
    // One of them is encrypted.
    let (code, stdout, stderr) = run(&versions, &[]);
    assert_eq!(code, Some(2), "{stdout}");
    assert!(stderr.contains(": 0 problems, "), "{stdout}{stderr}");
    let mut lines = stdout.lines();
    assert!(
        lines.all(|line| line.starts_with("note: ") || line.starts_with("unchecked: v22/encrypted/")),
        "{stdout}"
    );
}

#[test]
fn a_damaged_source() {
    let place = damaged();
    let (code, stdout, stderr) = run(place.path(), &[]);
    assert_eq!(code, Some(1));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{stdout}");
    let commit = "two\\nlines/__commits/__1_1_";
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with(commit) && l.ends_with("does not exist"))
    );
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("note: two\\nlines/__commits/odd.wrt: "))
    );
    assert!(stderr.ends_with(": 1 problem, 1 note\n"), "{stderr}");

    let (code, stdout, _) = run(place.path(), &["--json"]);
    assert_eq!(code, Some(1));
    let objects: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |level: &str| objects.iter().find(|o| o["level"] == level).unwrap();
    assert_eq!(of("note")["kind"], "name");
    let problem = of("problem").as_object().unwrap();
    let keys: Vec<&String> = problem.keys().collect();
    assert_eq!(
        keys,
        ["source", "level", "kind", "path", "part", "offset", "message"]
    );
    assert_eq!(
        (&problem["kind"], &problem["part"]),
        (&Value::from("commit"), &Value::Null)
    );
    assert!(
        problem["path"]
            .as_str()
            .unwrap()
            .starts_with("two\nlines/__commits/__1_1_")
    );
}

#[test]
fn what_cannot_be_checked() {
    let place = tempfile::tempdir().unwrap();
    for (source, message) in [("missing", "no such file"), ("", "no array or group")] {
        let (code, stdout, stderr) = run(&place.path().join(source), &[]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""));
        assert!(
            stderr.starts_with("tiledbfs: ") && stderr.contains(message),
            "{stderr}"
        );
    }
    let (code, _, stderr) = run(&sample(), &["--key-file", "/nonexistent"]);
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn an_encrypted_array_without_its_key_is_unchecked() {
    let place = tempfile::tempdir().unwrap();
    copy(&sample().join("lightning"), place.path());
    for entry in fs::read_dir(place.path().join("__schema")).unwrap() {
        // The encryption type in the header of the generic tile.
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[29] = 1;
        fs::write(path, bytes).unwrap();
    }
    let (code, stdout, stderr) = run(place.path(), &[]);
    assert_eq!(code, Some(2));
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    assert!(stdout.starts_with("unchecked: "), "{stdout}");
    assert!(stderr.ends_with(": 0 problems, 1 unchecked\n"), "{stderr}");
    // An array with metadata, written by libtiledb.
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/versions");
    let (code, stdout, _) = run(&versions.join("v22/encrypted"), &[]);
    assert_eq!((code, stdout.lines().count()), (Some(2), 1), "{stdout}");
}

/// Schema files of TileDB 1.3, of GenomicsDB, and of GenomicsDB before it had versions.
fn schemas_of_predecessors() -> [(&'static str, Vec<u8>); 3] {
    let path = b"/tmp/workspace/t0_1_2";
    let rest = [1; 200];
    let tile = [
        &8_u64.to_le_bytes()[..],
        &99_u64.to_le_bytes(),
        &[4],
        &1_u64.to_le_bytes(),
        &[1, 1, 0, 0, 0],
        &[7; 8],
    ];
    let counted = [
        &(-2_i32).to_le_bytes()[..],
        &[0; 4],
        &21_u32.to_le_bytes(),
        path,
        &rest,
    ];
    let uncounted = [&21_u32.to_le_bytes()[..], path, &rest];
    [
        ("tiledb", tile.concat()),
        ("genomicsdb", counted.concat()),
        ("older", uncounted.concat()),
    ]
}

#[test]
fn arrays_from_before_versions_were_counted_are_unchecked() {
    let place = tempfile::tempdir().unwrap();
    for (name, schema) in schemas_of_predecessors() {
        let array = place.path().join(name);
        let fragment = array.join("__b4cae15e1a294904a1296510c34f19ec_1538747712566");
        fs::create_dir_all(&fragment).unwrap();
        fs::write(array.join("__array_schema.tdb"), schema).unwrap();
        fs::write(fragment.join("__fragment_metadata.tdb"), [1; 100]).unwrap();
        fs::write(fragment.join("a.tdb"), [1; 100]).unwrap();
    }
    let (code, stdout, stderr) = run(place.path(), &[]);
    assert_eq!((code, stdout.lines().count()), (Some(2), 3), "{stdout}");
    for (name, _) in schemas_of_predecessors() {
        let line = format!("unchecked: {name}/__array_schema.tdb: at byte 0: arrays of ");
        assert!(stdout.lines().any(|found| found.starts_with(&line)), "{stdout}");
    }
    assert!(stderr.ends_with(": 0 problems, 3 unchecked\n"), "{stderr}");
    // In the tree they have one file, with the same message.
    let program = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tiledbfs"));
        command
            .args(arguments)
            .current_dir(place.path())
            .output()
            .unwrap()
    };
    for (name, _) in schemas_of_predecessors() {
        let listed = program(&["ls", ".", name]);
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "schema.json\n", "{name}");
        assert!(
            !program(&["ls", ".", &format!("{name}/fragments")])
                .status
                .success()
        );
        let read = program(&["cat", ".", &format!("{name}/schema.json")]);
        let said = String::from_utf8_lossy(&read.stderr).into_owned();
        assert!(
            !read.status.success() && said.contains(" are not supported"),
            "{said}"
        );
    }
    // A damaged schema of today is still reported as damaged.
    copy(&sample().join("lightning"), &place.path().join("damaged"));
    let schemas = fs::read_dir(place.path().join("damaged/__schema")).unwrap();
    for entry in schemas {
        fs::write(entry.unwrap().path(), [0xFF; 300]).unwrap();
    }
    assert_eq!(run(place.path(), &[]).0, Some(1));
}

#[test]
fn a_longer_data_file_is_noted_and_a_shorter_one_is_a_problem() {
    let place = tempfile::tempdir().unwrap();
    copy(&sample().join("lightning"), place.path());
    let fragments = fs::read_dir(place.path().join("__fragments")).unwrap();
    let file = fragments.last().unwrap().unwrap().path().join("a0.tdb");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, [&bytes[..], &bytes].concat()).unwrap();
    let (code, stdout, _) = run(place.path(), &[]);
    assert_eq!((code, stdout.lines().count()), (Some(0), 1), "{stdout}");
    assert!(
        stdout.starts_with("note: ") && stdout.contains("the metadata says"),
        "{stdout}"
    );
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let (code, stdout, _) = run(place.path(), &[]);
    assert_eq!(code, Some(1));
    let line = stdout.lines().find(|line| line.contains("the metadata says"));
    assert!(line.is_some_and(|line| !line.starts_with("note: ")), "{stdout}");
}

#[test]
fn a_key_for_a_path_without_an_array() {
    let place = tempfile::tempdir().unwrap();
    let key = place.path().join("key");
    fs::write(&key, [b'k'; 32]).unwrap();
    fs::create_dir(place.path().join("source")).unwrap();
    copy(&sample().join("lightning"), &place.path().join("source/in/array"));
    fs::create_dir(place.path().join("source/bare")).unwrap();
    let check = |path: &str| {
        run(
            &place.path().join("source"),
            &["--key-file", &format!("{path}={}", key.display())],
        )
    };
    for path in ["bare", "arry", "in/array/more"] {
        let (code, stdout, stderr) = check(path);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        let message = format!("a key is given for {path:?}, but no array");
        assert!(
            stderr.lines().count() == 2 && stderr.contains(&message),
            "{stderr}"
        );
    }
    // A key that is used in one of several sources is accepted.
    let (weather, source) = (sample().join("weather"), place.path().join("source"));
    for (path, wanted) in [("in", Some(0)), ("arry", Some(2))] {
        let key = format!("{path}={}", key.display());
        let (code, _, stderr) = run(&weather, &[source.to_str().unwrap(), "--key-file", &key]);
        assert_eq!(code, wanted, "{stderr}");
    }
    for path in ["in", "in/array", ""] {
        assert_eq!(check(path).0, Some(0), "{path}");
    }
}

#[test]
fn several_sources() {
    let place = damaged();
    let one = place.path().to_str().unwrap();
    let weather = sample().join("weather");
    let (code, stdout, stderr) = run(&weather, &[one, "/nonexistent"]);
    assert_eq!(code, Some(1), "{stderr}");
    let mut lines = stdout.lines();
    assert!(
        lines.all(|line| line
            .trim_start_matches("note: ")
            .starts_with(&format!("{one}/two\\nlines/"))),
        "{stdout}"
    );
    assert!(stderr.contains("/nonexistent: no such file"), "{stderr}");
    assert!(stderr.contains("checked 2 arrays, "), "{stderr}");
    let (_, stdout, _) = run(&weather, &[one, "--json"]);
    assert_eq!(
        stdout.matches(&format!("\"source\":\"{one}\"")).count(),
        2,
        "{stdout}"
    );
    // Without problems, the missing source decides the exit code.
    assert_eq!(run(&weather, &["/nonexistent"]).0, Some(2));
    assert_eq!(
        run(&weather, &[sample().join("lightning").to_str().unwrap()]).0,
        Some(0)
    );
}
