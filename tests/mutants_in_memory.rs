//! Damaged arrays looked at whole, without a mount: nothing panics, hangs or contradicts itself.
//!
//! `TILEDBFS_ARRAYS` names a directory of further arrays, `TILEDBFS_MUTANTS` the number of mutants of each,
//! `TILEDBFS_SEED` the seed.

mod mutate;

use mutate::{Random, files, mutate};
use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tiledbfs::Result;
use tiledbfs::filter::EncryptionKey;
use tiledbfs::storage::MemoryStorage;
use tiledbfs::tree::walk::{Limits, Report, walk};
use tiledbfs::tree::{Options, Tree};

/// The key of the arrays whose names begin with `enc`.
const KEY: &[u8; 32] = b"0123456789abcdeF0123456789abcdeF";

fn options() -> Options {
    Options {
        cache_size: 16 << 20,
        keys: vec![(PathBuf::new(), EncryptionKey::new(*KEY))],
        follow_symlinks: false,
        ..Options::default()
    }
}

fn look(storage: MemoryStorage, limits: &Limits) -> Result<Report> {
    let tree = Tree::over(Arc::new(storage), &options(), Arc::default())?;
    Ok(walk(&tree.root, limits))
}

/// The arrays and groups below `root`.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        let is = |name: &str| directory.join(name).exists();
        if is("__schema") || is("__array_schema.tdb") || is("__tiledb_group.tdb") || is("__group") {
            found.push(directory);
        } else {
            let entries = directory.read_dir().into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
    }
    found.sort();
    found
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn nothing_that_files_hold_makes_it_panic_hang_or_contradict_itself() {
    let mut arrays = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"));
    if let Some(more) = env::var_os("TILEDBFS_ARRAYS").filter(|more| !more.is_empty()) {
        arrays.extend(sources(Path::new(&more)));
    }
    let each = number("TILEDBFS_MUTANTS", 2000_u64.div_ceil(arrays.len() as u64));
    let seed = number("TILEDBFS_SEED", 1);
    let limits = Limits {
        file_bytes: 1 << 20,
        total_bytes: 16 << 20,
        ..Limits::default()
    };
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (i, array) in arrays.iter().enumerate() {
        let intact = MemoryStorage::copy_of(array).unwrap();
        match look(intact.clone(), &limits) {
            Ok(report) => {
                wrong.extend(
                    report
                        .violations
                        .iter()
                        .map(|v| format!("{} intact: {v}", array.display())),
                );
            }
            Err(error) => eprintln!("{}: {error}", array.display()),
        }
        let files = files(&intact);
        for n in 0..each {
            let mut random = Random((seed << 48) + ((i as u64) << 24) + n);
            let Some(mutation) = mutate(&files, &mut random) else {
                continue;
            };
            let mut storage = intact.clone();
            mutation.apply(&mut storage);
            let place = format!(
                "{} {n}: {} {}",
                array.display(),
                mutation.file.display(),
                mutation.what
            );
            if env::var_os("TILEDBFS_TRACE").is_some() {
                eprintln!("{place}");
            }
            let start = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| look(storage, &limits)));
            if start.elapsed() > Duration::from_secs(5) {
                wrong.push(format!("{place}: {:?}", start.elapsed()));
            }
            let outcome = match outcome {
                Err(_) => {
                    wrong.push(format!("{place}: a panic"));
                    "panic"
                }
                Ok(Err(_)) => "not opened",
                Ok(Ok(report)) => {
                    // One cause may show in many files.
                    wrong.extend(report.violations.first().map(|v| format!("{place}: {v}")));
                    match report.visits.iter().any(|visit| visit.outcome.is_err()) {
                        true => "errors",
                        false => "read",
                    }
                }
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    println!("{outcomes:?}");
    let shown: Vec<&String> = wrong.iter().take(200).collect();
    assert!(wrong.is_empty(), "{} violations: {shown:#?}", wrong.len());
}
