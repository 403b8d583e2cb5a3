//! Damaged arrays in a real mount: everything is listed and read through the kernel. Damage under a checksum
//! gives an error, and undamaged files read as before.
//!
//! `TILEDBFS_ARRAYS` is a directory of more arrays to damage. `TILEDBFS_MUTANTS` is the number of mutants of
//! each array in `tests/data`.

use crate::common::daemon::Daemon;
use crate::mutate::checking::{names, problems, uncommitted};
use crate::mutate::places::{KEYS, Pipelines, Structure, is_told};
use crate::mutate::{Files, Kind, Mutation, Random, files, mutate};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tiledbfs::internals::storage::MemoryStorage;

const CACHE_MIB: u64 = 32;

/// The memory of a mount besides its cache.
const MEMORY_MIB: u64 = 256;

/// Directories of the mutants of `tests/data` and of other arrays. They have different keys.
const GROUPS: [&str; 2] = ["own", "more"];

const TIMEOUT: Duration = Duration::from_secs(10);

/// Mutants per directory.
const MUTANTS_PER_DIRECTORY: usize = 100;

/// Mutants that one mount shows, in sequence.
const MUTANTS_PER_MOUNT: usize = 600;

/// The most arrays of `TILEDBFS_ARRAYS` that are damaged, and the most bytes of each.
const MAX_ARRAYS: usize = 80;
const MAX_ARRAY_SIZE: usize = 200 << 10;

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Read1 {
    Directory,
    Bytes(u64, [u8; 32]),
    Error(i32),
}

/// Results by path in the array.
type Content = BTreeMap<String, Read1>;

struct Mutant {
    array: usize,
    mutation: Mutation,
    place: String,
    /// The damaged part.
    hit: Structure,
}

struct Array {
    name: String,
    files: Files,
    /// The path of the intact array.
    place: String,
    encrypted: bool,
    /// Index of its key.
    key: usize,
    content: Content,
    /// The fragments that the check skips.
    uncommitted: Vec<String>,
}

/// A mount of `source`, with its keys.
fn mount(source: &Path) -> Daemon {
    let keys = tempfile::tempdir().unwrap();
    let key = |i: usize| {
        let (group, file) = (GROUPS[i], keys.path().join(GROUPS[i]));
        fs::write(&file, KEYS[i]).unwrap();
        format!("--key-file={group}={}", file.display())
    };
    Daemon::new(source, &[format!("--cache-size={CACHE_MIB}M"), key(0), key(1)])
}

fn read_file(path: &Path) -> io::Result<(u64, [u8; 32])> {
    let mut file = File::open(path)?;
    let (mut digest, mut buffer, mut len) = (Sha256::new(), vec![0; 256 << 10], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((len, digest.finalize().into())),
            n => {
                digest.update(&buffer[..n]);
                len += n as u64;
            }
        }
    }
}

/// Reads everything below `root`. Appends calls that took too long, and differences from `stat`, to `wrong`.
fn read_all(root: &Path, wrong: &mut Vec<String>) -> Content {
    let mut content = Content::new();
    let mut waiting = vec![(String::new(), root.to_path_buf())];
    while let Some((name, path)) = waiting.pop() {
        let start = Instant::now();
        let read = (|| -> io::Result<Read1> {
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_file() {
                let (len, digest) = read_file(&path)?;
                if len != metadata.len() {
                    wrong.push(format!("{name}: {len} bytes where stat says {}", metadata.len()));
                }
                return Ok(Read1::Bytes(len, digest));
            }
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                let child = entry.file_name().to_string_lossy().into_owned();
                // Views are made of all fragments: tests/oracle/damage.py tests damage to them.
                let is_view = child == "data" && !name.ends_with("columns");
                if child == ".tiledbfs" || is_view {
                    continue;
                }
                let name = if name.is_empty() {
                    child
                } else {
                    format!("{name}/{child}")
                };
                waiting.push((name, entry.path()));
            }
            Ok(Read1::Directory)
        })();
        if start.elapsed() > TIMEOUT {
            wrong.push(format!("{name}: {:?}", start.elapsed()));
        }
        let read = read.unwrap_or_else(|e| Read1::Error(e.raw_os_error().unwrap_or(0)));
        content.insert(name, read);
    }
    content
}

/// The arrays and groups below `root`, groups whole.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        let is = |name: &str| directory.join(name).exists();
        let array = is("__schema") || is("__array_schema.tdb");
        if array || is("__tiledb_group.tdb") || is("__group") {
            found.push(directory.clone());
        }
        if !array {
            let entries = directory.read_dir().into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
    }
    found.sort();
    found
}

/// Puts an array's files below `place`, with hard links to `intact` for unchanged ones.
fn write(array: &Array, intact: &Path, place: &Path, mutation: Option<&Mutation>) {
    for (path, bytes) in &array.files {
        let to = place.join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        match mutation {
            None => fs::write(to, bytes).unwrap(),
            Some(mutation) if !mutation.files().any(|file| file == path) => {
                fs::hard_link(intact.join(path), to).unwrap();
            }
            Some(mutation) => {
                if let Some(bytes) = mutation.now(path, bytes) {
                    fs::write(to, bytes).unwrap();
                }
            }
        }
    }
    // Git stores no empty directories, but an array without its schema still has the directory.
    if let Some(mutation) = mutation {
        fs::create_dir_all(place.join(mutation.file.parent().unwrap())).unwrap();
    }
}

/// Whether a damaged `file` may show in the virtual file at `path`. All others must be unchanged.
fn may_show(file: &Path, path: &str) -> bool {
    let parts: Vec<String> = file
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    // The same rules hold for arrays in groups and for labels, below their paths.
    let at = parts.iter().position(|part| part.starts_with("__")).unwrap_or(0);
    let parts = &parts[at..];
    let ends = |names: &[&str]| names.iter().any(|name| path.ends_with(name));
    let below = |name: &str| path.contains(&format!("{name}/")) || path.ends_with(name);
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return true;
    };
    let fragment = match first.as_str() {
        "__fragments" => parts.get(1),
        _ if last.as_str() == "__fragment_metadata.tdb" || parts.len() == 2 && last.ends_with(".tdb") => {
            Some(first)
        }
        _ => None,
    };
    match (fragment, first.as_str()) {
        (Some(fragment), _) => {
            let own = path.contains(&format!("fragments/{fragment}"));
            let field =
                last == "__fragment_metadata.tdb" || path.ends_with(".json") || path.contains("/columns");
            own && field || ends(&["fragments.json", "consolidated_metadata.json"])
        }
        (None, "__schema") if parts.get(1).is_some_and(|name| name == "__enumerations") => {
            below("enumerations")
        }
        (None, "__meta") => ends(&["metadata.json"]),
        (None, "__commits") => ends(&["commits.json", "fragments.json"]),
        (None, "__fragment_meta") => ends(&["fragments.json", "consolidated_metadata.json"]),
        _ => true,
    }
}

/// Documents that report the state of other files, damage included, and so may differ. (The unencrypted part
/// of an encrypted footer shows without a key, and with a wrong key.)
fn reports(array: &Array, path: &str) -> bool {
    let names = ["fragments.json", "consolidated_metadata.json", "commits.json"];
    names.iter().any(|name| path.ends_with(name)) || array.encrypted && path.ends_with("footer.json")
}

/// The line of the log that tells why `path` cannot be read: its own, or that of a damaged file that shows
/// there, because one cause is logged once.
fn line_for<'a>(told: &'a HashMap<String, String>, place: &str, path: &str) -> Option<&'a String> {
    let shows = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let file = value["file"].as_str().unwrap_or_default();
        // The log names a missing schema by the array's directory.
        file.ends_with(place)
            || file
                .split_once(&format!("{place}/"))
                .is_some_and(|(_, file)| may_show(Path::new(file), path))
    };
    let own = told.get(&format!("{place}/{path}"));
    own.or_else(|| told.values().find(|line| shows(line)))
}

/// Compares a mutant with the intact array.
fn judge(
    array: &Array,
    mutant: &Mutant,
    content: &Content,
    told: &HashMap<String, String>,
    wrong: &mut Vec<String>,
) -> &'static str {
    let mutation = &mutant.mutation;
    let (mut errors, mut changed, mut gone) = (0, 0, 0);
    let must_tell = is_told(mutation, mutant.hit);
    for (path, read) in content {
        let intact = array.content.get(path);
        if let Read1::Error(errno) = read {
            errors += 1;
            // EACCES says that it is encrypted and that there is no key: so it may be, or its bytes say so
            // now.
            if ![libc::EIO, libc::EACCES].contains(errno) {
                wrong.push(format!("{path}: errno {errno}"));
            }
            match line_for(told, &mutant.place, path) {
                None => wrong.push(format!("{path}: EIO, and no line tells why")),
                Some(line) => {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    // The tag of an encrypted chunk does not match, or the header of a tile has become that
                    // of an encrypted one.
                    let cause = line["cause"].as_str().unwrap_or_default();
                    if *errno == libc::EACCES && !["tag", "encrypted"].iter().any(|word| cause.contains(word))
                    {
                        wrong.push(format!("{path}: EACCES for {line}"));
                    }
                    for key in ["file", "offset", "cause"] {
                        if line[key].is_null() {
                            wrong.push(format!("{path}: no {key} in {line}"));
                        }
                    }
                }
            }
        }
        if intact != Some(read) {
            if !matches!(read, Read1::Error(_)) {
                changed += 1;
                if must_tell && !reports(array, path) {
                    wrong.push(format!(
                        "{path}: other bytes, though {:?} tells of it",
                        mutant.hit
                    ));
                }
            }
            if !mutation.files().any(|file| may_show(file, path)) {
                wrong.push(format!(
                    "{path}: should be as it was, is {read:?} and not {intact:?}"
                ));
            }
        }
    }
    for path in array.content.keys().filter(|path| !content.contains_key(*path)) {
        gone += 1;
        if must_tell && errors == 0 {
            wrong.push(format!("{path}: gone without an error"));
        }
        if !mutation.files().any(|file| may_show(file, path)) {
            wrong.push(format!("{path}: should be there"));
        }
    }
    if env::var_os("TILEDBFS_TRACE").is_some() && changed + gone > 0 {
        let differs = |(path, read): &(&String, &Read1)| {
            !matches!(read, Read1::Error(_)) && array.content.get(*path) != Some(read)
        };
        let paths: Vec<&String> = content.iter().filter(differs).map(|(path, _)| path).collect();
        let (kind, hit, file) = (mutation.kind, mutant.hit, mutation.file.display());
        println!(
            "{kind:?} {hit:?}: {} {file} {}: {errors} errors, {gone} gone, {paths:?}",
            array.name, mutation.what
        );
    }
    match (errors, changed, gone) {
        (0, 0, 0) => "reads as before",
        (0, _, _) => "reads as it now stands",
        (_, 0, 0) => "errors, all else as before",
        _ => "errors, and more reads as it now stands",
    }
}

/// Whether only fragments changed that were or are uncommitted, so that they belong to no array.
fn is_left_out(place: &Path, array: &Array, mutation: &Mutation) -> bool {
    let now = uncommitted(place, array.key);
    let all = || array.uncommitted.iter().chain(&now);
    mutation
        .files()
        .any(|file| all().any(|directory| file.starts_with(directory)))
}

/// Whether `tiledbfs check` finds the damage and names the file, or a file that an error of the mount names.
fn find(array: &Array, mutant: &Mutant, source: &Path, told: &HashMap<String, String>) -> &'static str {
    let found = problems(&source.join(&mutant.place), array.key);
    let mutation = &mutant.mutation;
    let is_told = |line: &String| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let file = line["file"].as_str().unwrap_or_default();
        let file = file.strip_prefix(&format!("{}/", mutant.place));
        file.is_some_and(|file| found.iter().any(|problem| problem.path == file))
    };
    let missing = mutation.bytes.is_none();
    if mutation.files().any(|file| names(&found, file, missing)) || told.values().any(is_told) {
        "named"
    } else if !found.is_empty() {
        "found elsewhere"
    } else {
        "not found"
    }
}

/// The lines of the error log, by path.
fn told(mount: &Daemon, place: &str, into: &mut HashMap<String, String>) {
    let text = fs::read_to_string(mount.path(".tiledbfs/errors.jsonl")).unwrap();
    let wanted = format!("\"{place}/");
    for line in text.lines().filter(|line| line.contains(&wanted)) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        into.insert(value["path"].as_str().unwrap().to_owned(), line.to_owned());
    }
}

#[test]
fn damage_stays_where_it_is() {
    let mut roots = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"));
    let own = roots.len();
    if let Some(more) = env::var_os("TILEDBFS_ARRAYS").filter(|more| !more.is_empty()) {
        // Some small arrays, so that the duration does not depend on their number.
        let more = sources(Path::new(&more));
        let step = more.len().div_ceil(MAX_ARRAYS).max(1);
        roots.extend(more.into_iter().step_by(step));
    }
    let most = env::var("TILEDBFS_MUTANTS").map_or(1600usize.div_ceil(own), |text| text.parse().unwrap());
    let source = tempfile::tempdir().unwrap();
    let mut arrays = Vec::new();
    for (i, root) in roots.into_iter().enumerate() {
        let files = files(&MemoryStorage::copy_of(&root).unwrap());
        if i >= own && files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > MAX_ARRAY_SIZE {
            continue;
        }
        arrays.push(Array {
            name: root.file_name().unwrap().to_string_lossy().into_owned(),
            files,
            place: String::new(),
            encrypted: false,
            key: usize::from(i >= own),
            content: Content::new(),
            uncommitted: Vec::new(),
        });
    }
    let mut mutants = Vec::new();
    for (i, array) in arrays.iter_mut().enumerate() {
        array.place = format!("{}/intact/{i}", GROUPS[array.key]);
        let intact = source.path().join(&array.place);
        write(array, &intact, &intact, None);
        let pipelines = Pipelines::of(&array.files);
        array.encrypted = pipelines.encrypted;
        let wanted = if i < own { most } else { 10 };
        let mut random = Random(i as u64);
        let mut n = 0;
        // A group may have only empty files.
        for _ in 0..2 * wanted {
            if n == wanted {
                break;
            }
            let Some(mutation) = mutate(&array.files, &mut random) else {
                continue;
            };
            let place = format!(
                "{}/{:03}/{}",
                GROUPS[usize::from(i >= own)],
                mutants.len() / MUTANTS_PER_DIRECTORY,
                mutants.len()
            );
            write(array, &intact, &source.path().join(&place), Some(&mutation));
            let before = array.files.iter().find(|(path, _)| *path == mutation.file);
            let before: &[u8] = before.map_or(&[], |(_, bytes)| bytes);
            let hit = crate::mutate::places::place(&mutation, before, &pipelines);
            mutants.push(Mutant {
                array: i,
                mutation,
                hit,
                place,
            });
            n += 1;
        }
    }
    let mount = mount(source.path());
    for (i, array) in arrays.iter_mut().enumerate() {
        let mut wrong = Vec::new();
        array.uncommitted = uncommitted(&source.path().join(&array.place), array.key);
        let problems = problems(&source.path().join(&array.place), array.key);
        assert!(i >= own || problems.is_empty(), "{}: {problems:?}", array.name);
        array.content = read_all(&mount.path(&array.place), &mut wrong);
        assert!(wrong.is_empty(), "{}: {wrong:?}", array.name);
        let failed = array
            .content
            .iter()
            .find(|(_, read)| matches!(read, Read1::Error(_)));
        assert!(failed.is_none() || i >= own, "{}: {failed:?}", array.name);
    }
    drop(mount);
    let start = Instant::now();
    let mut report = Report::default();
    // A new mount for each batch, so that the kernel's memory for them does not add up.
    for some in mutants.chunks(MUTANTS_PER_MOUNT) {
        look_at(some, &arrays, source.path(), &mut report);
    }
    println!(
        "{} mutants of {} arrays in {:?}:",
        mutants.len(),
        arrays.len(),
        start.elapsed()
    );
    for ((kind, hit, outcome, found), count) in &report.outcomes {
        let (kind, hit) = (format!("{kind:?}"), format!("{hit:?}"));
        println!("{count:6} {kind:9} {hit:12} {outcome:42} by the check: {found}");
    }
    let (peak, wrong) = (report.peak, &report.wrong);
    println!("peak memory: {peak} MiB, cache {CACHE_MIB} MiB");
    let shown: Vec<&String> = wrong.iter().take(60).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} mutants: {shown:#?}",
        wrong.len(),
        mutants.len()
    );
    assert!(peak < CACHE_MIB + MEMORY_MIB, "{peak} MiB");
}

/// The outcomes of all mutants.
#[derive(Default)]
struct Report {
    outcomes: BTreeMap<(Kind, Structure, &'static str, &'static str), u64>,
    wrong: Vec<String>,
    /// The peak memory of a daemon, in MiB.
    peak: u64,
}

/// Reads some mutants through one mount, three at a time.
fn look_at(mutants: &[Mutant], arrays: &[Array], source: &Path, report: &mut Report) {
    let mount = mount(source);
    let next = AtomicUsize::new(0);
    let (outcomes, all_wrong) = (Mutex::new(&mut report.outcomes), Mutex::new(&mut report.wrong));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let array = &arrays[mutant.array];
                    let mut wrong = Vec::new();
                    let content = read_all(&mount.path(&mutant.place), &mut wrong);
                    let mut lines = HashMap::new();
                    if content.values().any(|read| matches!(read, Read1::Error(_))) {
                        told(&mount, &mutant.place, &mut lines);
                    }
                    let outcome = judge(array, mutant, &content, &lines, &mut wrong);
                    let found = find(array, mutant, source, &lines);
                    // A file that cannot be read when intact is not checked either.
                    let is_read = !matches!(array.content.get("schema.json"), Some(Read1::Error(_)));
                    if outcome.starts_with("errors")
                        && found != "named"
                        && is_read
                        && !is_left_out(&source.join(&mutant.place), array, &mutant.mutation)
                    {
                        wrong.push(format!("{outcome}, but by the check it is {found}"));
                    }
                    let key = (mutant.mutation.kind, mutant.hit, outcome, found);
                    *outcomes.lock().unwrap().entry(key).or_default() += 1;
                    if let Some(first) = wrong.first() {
                        let Mutation { file, what, .. } = &mutant.mutation;
                        all_wrong.lock().unwrap().push(format!(
                            "{} {}: {} {what}: {first} (of {})",
                            mutant.place,
                            array.name,
                            file.display(),
                            wrong.len()
                        ));
                    }
                }
            });
        }
    });
    // The intact array beside them is unchanged.
    let array = &arrays[0];
    let intact = read_all(&mount.path(&array.place), &mut Vec::new());
    assert!(array.content == intact, "{} has changed", array.name);
    report.peak = report.peak.max(mount.memory("VmHWM:") >> 20);
}
