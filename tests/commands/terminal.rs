//! Names and messages on terminals, in pipes and in logs; a stdout that is closed.

use super::{run, sample};
use crate::common::copying::copy;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of arrays, and how they are shown: C0, a line of its own, DEL, C1, direction of text, not UTF-8.
const NAMES: [(&str, &str); 5] = [
    ("c0 \u{1b}[31m", "c0 \\u{1b}[31m"),
    ("line\ntiledbfs: error: x", "line\\ntiledbfs: error: x"),
    ("del \u{7f}", "del \\u{7f}"),
    ("c1 \u{9b}31m", "c1 \\u{9b}31m"),
    ("bidi \u{202e}\u{2066}", "bidi \\u{202e}\\u{2066}"),
];

/// A directory of arrays with the names of [`NAMES`].
fn source() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for (name, _) in NAMES {
        copy(&sample().join("lightning"), &place.path().join(name));
    }
    place
}

/// What a command writes to a terminal that is its stdout and stderr, by script(1).
fn on_terminal(directory: &Path, arguments: &str) -> String {
    let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_tiledbfs"));
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

/// Asserts that a terminal obeys nothing in a text but the ends of its lines.
fn plain(text: &str) {
    let obeyed = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{2069}').contains(&c));
    assert!(!text.contains(obeyed), "{text:?}");
    assert!(!text.lines().any(|line| line == "tiledbfs: error: x"), "{text:?}");
}

#[test]
fn names_are_escaped_on_terminals_and_stay_in_pipes() {
    let source = source();
    for arguments in [
        "ls .",
        "ls -l .",
        "ls -R .",
        "ls -d . '*'",
        "ls . '*/schemas'",
        "info .",
    ] {
        let shown = on_terminal(source.path(), arguments);
        plain(&shown);
        let piped = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {arguments}")])
            .arg(env!("CARGO_BIN_EXE_tiledbfs"))
            .current_dir(source.path())
            .output()
            .unwrap();
        let piped = String::from_utf8(piped.stdout).unwrap();
        for (name, escaped) in NAMES {
            assert!(shown.contains(escaped), "{arguments}: {escaped} not in {shown}");
            assert!(piped.contains(name), "{arguments}: {name:?} not in {piped:?}");
        }
    }
    // SOURCE itself.
    let shown = on_terminal(source.path(), "info \"$(printf 'c0 \\033[31m')\"");
    plain(&shown);
    assert!(shown.starts_with("c0 \\u{1b}[31m: sparse array"), "{shown:?}");
}

#[test]
fn names_in_messages_are_escaped_always() {
    let source = source();
    let path = source.path().to_str().unwrap();
    let dest = tempfile::tempdir().unwrap();
    let dest = dest.path().to_str().unwrap();
    for arguments in [&["cat", path, "*"][..], &["cp", path, "*", dest]] {
        let (code, _, stderr) = run(arguments);
        assert_eq!(
            (code, stderr.lines().count()),
            (Some(1), NAMES.len()),
            "{stderr:?}"
        );
        plain(&stderr);
        for (_, escaped) in NAMES {
            let message = format!("tiledbfs: {escaped}: is a directory");
            assert!(stderr.lines().any(|line| line.starts_with(&message)), "{stderr}");
        }
    }
    // The bar draws its line anew.
    let bar = on_terminal(source.path(), &format!("cp -r . '*' {dest}"));
    plain(&bar.replace("\r\u{1b}[2K", ""));
    assert!(bar.contains("files copied"), "{bar:?}");
    // Names that do not exist, and that are not UTF-8.
    let odd: [&[u8]; 3] = [b"\x1b[2J\n", b"\xff\xc3(", "\u{202e}".as_bytes()];
    for odd in odd {
        let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(odd);
        for arguments in [
            ["ls".as_ref(), odd],
            ["cat".as_ref(), odd],
            ["info".as_ref(), odd],
            ["check".as_ref(), odd],
            ["unmount".as_ref(), odd],
            ["ls".as_ref(), "--at".as_ref()],
        ] {
            let (_, _, stderr) = run(&[arguments[0], arguments[1], odd]);
            plain(&stderr);
            assert!(!stderr.contains('\u{fffd}'), "{stderr}");
        }
        // As mount(8) calls it.
        let output = Command::new(env!("CARGO_BIN_EXE_tiledbfs"))
            .arg0("mount.tiledbfs")
            .args([odd, odd, odd])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        plain(&stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
    }
}

#[test]
fn errors_in_o_are_one_line_that_names_what_is_wrong() {
    let odd = |bytes: &'static [u8]| -> &OsStr { std::os::unix::ffi::OsStrExt::from_bytes(bytes) };
    for (option, wanted) in [
        (
            odd(b"log_level=loud"),
            "invalid value 'loud' for '--log-level <LEVEL>' [possible values: off, error, warn, info, debug, \
             trace]",
        ),
        (
            odd(b"threads=\xff"),
            "invalid value '\\xff' for '--threads <N>': invalid digit found in string",
        ),
        (
            odd(b"what\xff"),
            "unknown mount option `what\\xff` (see `tiledbfs help mount`)",
        ),
    ] {
        let [mount, a, b, o] = ["mount", "weather", "nowhere", "-o"].map(OsStr::new);
        let (code, _, stderr) = run(&[mount, a, b, o, option]);
        assert_eq!((code, stderr), (Some(2), format!("tiledbfs: {wanted}\n")));
    }
}

#[test]
#[cfg(feature = "serve")]
fn what_is_no_certificate_or_no_key_is_told() {
    let place = tempfile::tempdir().unwrap();
    let section = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (name, text) in [("one", section), ("none", ""), ("cut", &section[..40])] {
        fs::write(place.path().join(name), text).unwrap();
    }
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    for (certificates, wanted) in [
        ("none", "none: the file contains no PEM certificate"),
        ("cut", "cut: a PEM section has no end"),
        ("one", "none: the file contains no PEM private key"),
    ] {
        let (certificates, key) = (path(certificates), path("none"));
        let (code, _, stderr) = run(&[
            "serve",
            "weather",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            &certificates,
            "--tls-key",
            &key,
        ]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.ends_with(&format!("/{wanted}\n")), "{stderr}");
    }
}

#[test]
fn findings_of_a_check_are_escaped() {
    let source = source();
    let path = source.path().to_str().unwrap();
    for (name, _) in NAMES {
        let fragments = fs::read_dir(source.path().join(name).join("__fragments")).unwrap();
        let fragment: PathBuf = fragments.map(|entry| entry.unwrap().path()).min().unwrap();
        fs::write(fragment.join("a0.tdb"), b"").unwrap();
    }
    for arguments in [&["check", path][..], &["check", "--json", path]] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!(code, Some(1), "{stderr}");
        plain(&stdout);
        plain(&stderr);
        if arguments.contains(&"--json") {
            let findings = stdout
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let paths: Vec<String> = findings.map(|f| f["path"].as_str().unwrap().to_owned()).collect();
            for (name, _) in NAMES {
                assert!(
                    paths.iter().any(|path| path.starts_with(name)),
                    "{name:?} in {paths:?}"
                );
            }
        }
    }
}

#[test]
fn a_closed_stdout_is_an_error() {
    for (arguments, wanted) in [
        ("ls weather", 1),
        ("ls -R weather", 1),
        ("cat weather schema.json", 1),
        ("info weather", 1),
        ("check weather", 2),
        ("check --json weather", 2),
        ("completions bash", 1),
        ("help", 1),
        ("help ls", 1),
        ("--version", 1),
        ("cat --help", 1),
        // These write nothing there.
        ("cp weather schema.json \"$TMP\"", 0),
        ("man \"$TMP\"", 0),
    ] {
        for redirected in [">&-", "1</dev/null", ">/dev/full"] {
            // Without findings nothing is written.
            if arguments.starts_with("check") && redirected != ">&-" {
                continue;
            }
            let place = tempfile::tempdir().unwrap();
            let output = Command::new("sh")
                .args(["-c", &format!("exec \"$0\" {arguments} {redirected}")])
                .arg(env!("CARGO_BIN_EXE_tiledbfs"))
                .env("TMP", place.path())
                .current_dir(sample())
                .output()
                .unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(
                output.status.code(),
                Some(wanted),
                "{arguments} {redirected}: {said}"
            );
            if wanted != 0 {
                assert!(
                    said.starts_with("tiledbfs: cannot write: "),
                    "{arguments} {redirected}: {said}"
                );
                assert_eq!(said.lines().count(), 1, "{said}");
            }
        }
    }
}
