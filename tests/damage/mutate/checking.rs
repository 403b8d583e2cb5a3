//! Runs the check of a source, and collects its findings.

use super::places::KEYS;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tiledbfs::internals::check::{CheckOptions, Level, Problem, Tally, check};
use tiledbfs::internals::filter::EncryptionKey;

/// The problems in the source at `path`, with the key of this index in [`KEYS`], without notes and unchecked
/// parts.
pub fn problems(path: &Path, key: usize) -> Vec<Problem> {
    let mut found = findings(path, key);
    found.retain(|problem| problem.level == Level::Problem);
    found
}

/// The directories of the uncommitted fragments at `path`, which belong to no array.
pub fn uncommitted(path: &Path, key: usize) -> Vec<String> {
    let mut found = findings(path, key);
    found.retain(|problem| problem.message.starts_with("the fragment is not committed"));
    found.into_iter().map(|problem| problem.path).collect()
}

fn findings(path: &Path, key: usize) -> Vec<Problem> {
    let found: Arc<Mutex<Vec<Problem>>> = Arc::default();
    let options = CheckOptions {
        cache_size: 1 << 20,
        keys: vec![(PathBuf::new(), EncryptionKey::new(*KEYS[key]))],
        follow_symlinks: false,
        threads: 1,
    };
    let report = found.clone();
    let report = Box::new(move |problem| report.lock().unwrap().push(problem));
    let outcome = check(path, &options, report, Arc::new(Tally::default()));
    let mut found = std::mem::take(&mut *found.lock().unwrap());
    // The command, too, reports that there is nothing left to check.
    if let Err(error) = outcome {
        found.push(Problem::from_error(&error, ""));
    }
    found
}

/// Whether one of `problems` names `file`, or, if it is `missing`, a directory that should have it.
pub fn names(problems: &[Problem], file: &Path, missing: bool) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    problems.iter().any(|problem| {
        let path = Path::new(&problem.path);
        path == file || problem.message.contains(&*name) || missing && file.starts_with(path)
    })
}
