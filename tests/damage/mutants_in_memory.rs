//! Damaged arrays read completely, without a mount: nothing panics, hangs or contradicts itself.
//!
//! `TILEDBFS_ARRAYS` is a directory of more arrays, `TILEDBFS_VIEWS` one of arrays whose views are read.
//! `TILEDBFS_MUTANTS` is the number of mutants of each array, `TILEDBFS_SEED` the seed.

use crate::mutate::{Files, Random, files, mutate};
use crate::targets::walk::{Limits, Report, walk};
use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tiledbfs::internals::calendar::timestamp;
use tiledbfs::internals::engine::Engine;
use tiledbfs::internals::open_array;
use tiledbfs::internals::storage::MemoryStorage;
use tiledbfs::internals::tree::node::Node;
use tiledbfs::internals::tree::{Tree, TreeOptions};
use tiledbfs::{DimRange, EncryptionKey, Result, TimeRange};

/// The key of the arrays whose names begin with `enc`.
const KEY: &[u8; 32] = b"0123456789abcdeF0123456789abcdeF";

fn options() -> TreeOptions {
    TreeOptions {
        cache_size: 16 << 20,
        keys: vec![(PathBuf::new(), EncryptionKey::new(*KEY))],
        follow_symlinks: false,
        ..TreeOptions::default()
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

/// Makes a mutant of `files`, describes it, and walks it: no panic, no violation, at most five seconds. Puts
/// at most one line into `wrong`.
fn look_at_mutant(
    (array, n): (&Path, u64),
    intact: &MemoryStorage,
    files: &Files,
    random: &mut Random,
    wrong: &mut Vec<String>,
    look: impl Fn(MemoryStorage) -> Result<Report>,
) -> Option<&'static str> {
    let mutation = mutate(files, random)?;
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
    let outcome = catch_unwind(AssertUnwindSafe(|| look(storage)));
    if start.elapsed() > Duration::from_secs(5) {
        wrong.push(format!("{place}: {:?}", start.elapsed()));
    }
    Some(match outcome {
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
    })
}

#[test]
fn nothing_that_files_hold_makes_it_panic_hang_or_contradict_itself() {
    let mut arrays = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"));
    if let Some(more) = env::var_os("TILEDBFS_ARRAYS").filter(|more| !more.is_empty()) {
        arrays.extend(sources(Path::new(&more)));
    }
    let each = number("TILEDBFS_MUTANTS", 800_u64.div_ceil(arrays.len() as u64));
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
            let look = |storage| look(storage, &limits);
            let outcome = look_at_mutant((array, n), &intact, &files, &mut random, &mut wrong, look);
            let Some(outcome) = outcome else { continue };
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    println!("{outcomes:?}");
    let shown: Vec<&String> = wrong.iter().take(200).collect();
    assert!(wrong.is_empty(), "{} violations: {shown:#?}", wrong.len());
}

/// Paths of views of an array at the root of `storage`: all of it now, all of it at the time of its first
/// fragment, and the part that its last fragment covers. None if it has no fragments.
fn views(storage: &MemoryStorage) -> Option<[String; 3]> {
    let engine = Engine::new(Arc::new(storage.clone()), 16 << 20, Vec::new(), Arc::default());
    let view = open_array(Arc::new(engine), "").at(TimeRange::ALL).open().ok()?;
    let fragments = view.fragments();
    let first = fragments.first()?.name.timestamps.1;
    let last = fragments.last()?.outline().ok()?;
    let ranges = last.domain.as_ref()?.iter().map(|range| DimRange {
        lo: Some(range.lo.clone()),
        hi: Some(range.hi.clone()),
    });
    let part = crate::targets::paths::text_of(&ranges.collect::<Vec<_>>(), &view.schema().dimensions);
    Some([
        "data".to_owned(),
        format!("at/{}/data", timestamp(first)),
        format!("data/subarray/{part}"),
    ])
}

/// The node at a path.
fn find(root: &Node, path: &str) -> Result<Option<Node>> {
    let mut node = root.clone();
    for name in path.split('/') {
        let Node::Directory(directory) = &node else {
            return Ok(None);
        };
        let Some(next) = directory.lookup(name.as_ref())? else {
            return Ok(None);
        };
        node = next;
    }
    Ok(Some(node))
}

/// Columns and exports of views of damaged arrays.
#[test]
fn views_of_damaged_arrays_give_errors_and_take_no_more_memory() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let given = env::var_os("TILEDBFS_VIEWS").filter(|given| !given.is_empty());
    let arrays = sources(given.as_deref().map_or(&root, Path::new));
    let each = number("TILEDBFS_MUTANTS", 1200_u64.div_ceil(arrays.len() as u64));
    let seed = number("TILEDBFS_SEED", 1);
    let limits = Limits {
        file_bytes: 256 << 10,
        total_bytes: 4 << 20,
        ..Limits::default()
    };
    let (mut outcomes, mut wrong) = (BTreeMap::<&str, u64>::new(), Vec::new());
    let (mut highest, mut files_read) = (0, 0);
    for (i, path) in arrays.iter().enumerate() {
        let intact = MemoryStorage::copy_of(path).unwrap();
        let Some(views) = views(&intact) else { continue };
        let bytes: u64 = intact.files().map(|(_, bytes)| bytes.len() as u64).sum();
        let files = files(&intact);
        for n in 0..each {
            let mut random = Random((seed << 48) + ((i as u64) << 24) + n);
            let view = &views[random.below(3) as usize];
            let visits = std::cell::Cell::new(0);
            let look = |storage: MemoryStorage| {
                let tree = Tree::over(Arc::new(storage), &options(), Arc::default())?;
                let report = find(&tree.root, view)?.map(|node| walk(&node, &limits));
                let report = report.unwrap_or_default();
                visits.set(report.visits.iter().filter(|visit| visit.outcome.is_ok()).count());
                Ok(report)
            };
            let mut outcome = None;
            let peak = crate::targets::memory::peak_of(|| {
                outcome = look_at_mutant((path, n), &intact, &files, &mut random, &mut wrong, look);
            });
            // The cache, and room for a copy of the array and a few tiles.
            if peak > (24 << 20) + 4 * bytes {
                wrong.push(format!("{} {n}: {view}: {peak} bytes of memory", path.display()));
            }
            highest = highest.max(peak);
            files_read += visits.get();
            *outcomes.entry(outcome.unwrap_or("unchanged")).or_default() += 1;
        }
    }
    println!(
        "{outcomes:?}, {files_read} files read, at most {} MiB allocated",
        highest >> 20
    );
    let shown: Vec<&String> = wrong.iter().take(200).collect();
    assert!(wrong.is_empty(), "{} violations: {shown:#?}", wrong.len());
    assert!(files_read > 1000);
}
