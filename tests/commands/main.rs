//! The commands without a mount: their output and exit codes.

mod check;
#[path = "../common/mod.rs"]
mod common;
mod copy;
mod exports;
mod help;
mod info;
mod install;
mod terminal;
mod tree;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A group of two arrays, `weather` and `lightning`.
fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample")
}

/// Runs the program; returns exit code, stdout and stderr.
fn run(arguments: &[impl AsRef<OsStr>]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_tiledbfs"))
        .args(arguments)
        .current_dir(sample())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// The stdout of a successful run.
fn text(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    stdout
}

/// The messages of a run that fails with exit code `wanted`.
fn fails(arguments: &[&str], wanted: i32) -> String {
    let (code, _, stderr) = run(arguments);
    assert_eq!(code, Some(wanted), "{arguments:?}: {stderr}");
    assert!(
        stderr.lines().all(|line| line.starts_with("tiledbfs: ")),
        "{stderr}"
    );
    stderr
}
