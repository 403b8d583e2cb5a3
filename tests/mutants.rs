//! Damaged arrays under a real mount: each is listed whole and read whole through the kernel, and what is damaged is told apart from what is not.
//!
//! `TILEDBFS_ARRAYS` names a directory of further arrays, each of which gives some mutants; `TILEDBFS_MUTANTS` sets how many an array of
//! `tests/data` gives.

mod mutate;

use mutate::{Files, Kind, Mutation, Random, files, mutate};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tiledbfs::filter::generic::read_generic_tile;
use tiledbfs::format::pipeline::{Codec, Filter, Pipeline};
use tiledbfs::format::schema::Schema;
use tiledbfs::storage::{MemoryBlob, MemoryStorage};

const CACHE_MIB: u64 = 32;

/// What a mount may take beyond its cache.
const MEMORY_MIB: u64 = 256;

const PATIENCE: Duration = Duration::from_secs(10);

/// Mutants in one directory, so that none is large.
const BATCH: usize = 100;

/// Mutants that one mount shows one after the other.
const MOUNTED: usize = 600;

/// Arrays of `TILEDBFS_ARRAYS` that are damaged, and how many bytes they may have.
const MORE: usize = 80;
const SMALL: usize = 200 << 10;

/// What a file reads as.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Read1 {
    Directory,
    Bytes(u64, [u8; 32]),
    Error(i32),
}

/// By path within the array.
type Content = BTreeMap<String, Read1>;

struct Mutant {
    array: usize,
    mutation: Mutation,
    place: String,
}

struct Array {
    name: String,
    files: Files,
    content: Content,
    /// Files of values that a checksum covers whole, by name.
    covered: HashSet<String>,
}

/// The mount, ended whatever happens.
struct Mount {
    child: Child,
    dir: TempDir,
}

impl Mount {
    fn new(source: &Path) -> Mount {
        let dir = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tiledbfs"))
            .args(["mount", "-f", "--cache-size", &format!("{CACHE_MIB}M")])
            .arg(source)
            .arg(dir.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + PATIENCE;
        while !dir.path().join(".tiledbfs/version").exists() {
            assert!(Instant::now() < end, "not mounted within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Mount { child, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The most memory that the daemon ever had, in MiB.
    fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib / 1024
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3")
            .arg("-uz")
            .arg(self.dir.path())
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

/// Everything below `root`. Says which calls took too long, and what differs from what `stat` said.
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
                if child == ".tiledbfs" {
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
        if start.elapsed() > PATIENCE {
            wrong.push(format!("{name}: {:?}", start.elapsed()));
        }
        let read = read.unwrap_or_else(|e| Read1::Error(e.raw_os_error().unwrap_or(0)));
        content.insert(name, read);
    }
    content
}

fn checks(pipeline: &Pipeline) -> bool {
    pipeline.filters.iter().any(|filter| {
        matches!(
            filter,
            Filter::ChecksumMd5
                | Filter::ChecksumSha256
                | Filter::Compression {
                    codec: Codec::Gzip | Codec::Bzip2,
                    ..
                }
        )
    })
}

/// The names of data files whose every value a checksum covers, for arrays with one schema.
fn covered(files: &Files) -> HashSet<String> {
    let mut covered = HashSet::new();
    let in_schema = |path: &Path| path.parent().is_some_and(|p| p.ends_with("__schema"));
    let schemas: Vec<_> = files.iter().filter(|(path, _)| in_schema(path)).collect();
    let [(_, bytes)] = schemas[..] else { return covered };
    let Ok((_, body)) = read_generic_tile(&MemoryBlob::new(bytes.clone(), "schema"), 0, None) else {
        return covered;
    };
    let Ok(schema) = Schema::parse(&body) else {
        return covered;
    };
    for (i, attribute) in schema.attributes.iter().enumerate() {
        let (values, offsets) = (checks(&attribute.filters), checks(&schema.offsets_filters));
        match attribute.cell_val_num.is_var() {
            true if values && offsets => covered.extend([format!("a{i}.tdb"), format!("a{i}_var.tdb")]),
            false if values => covered.extend([format!("a{i}.tdb")]),
            _ => {}
        }
    }
    for i in 0..schema.dimensions.len() {
        if checks(schema.dimension_filters(i)) && !schema.dimensions[i].cell_val_num.is_var() {
            covered.insert(format!("d{i}.tdb"));
        }
    }
    covered
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

/// Puts an array's files below `place`, hard links to `intact` where nothing is changed.
fn write(array: &Array, intact: &Path, place: &Path, mutation: Option<&Mutation>) {
    for (path, bytes) in &array.files {
        let to = place.join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        match mutation.filter(|mutation| mutation.file == *path) {
            None if mutation.is_some() => fs::hard_link(intact.join(path), to).unwrap(),
            None => fs::write(to, bytes).unwrap(),
            Some(mutation) => {
                if let Some(bytes) = &mutation.bytes {
                    fs::write(to, bytes).unwrap();
                }
            }
        }
    }
    // Git keeps no empty directories, but an array whose schema is missing still has the directory.
    if let Some(mutation) = mutation {
        fs::create_dir_all(place.join(mutation.file.parent().unwrap())).unwrap();
    }
}

/// Whether a damaged `file` may show in the virtual file at `path`: what lies elsewhere must be as it was.
fn may_show(file: &Path, path: &str) -> bool {
    let parts: Vec<String> = file
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    // Arrays in groups and labels: as for themselves, below wherever they are shown.
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
            own && field || ends(&["fragments.json"])
        }
        (None, "__schema") if parts.get(1).is_some_and(|name| name == "__enumerations") => {
            below("enumerations")
        }
        (None, "__meta") => ends(&["metadata.json"]),
        (None, "__commits") => ends(&["commits.json", "fragments.json"]),
        (None, "__fragment_meta") => ends(&["fragments.json"]),
        _ => true,
    }
}

/// Whether nothing but an error or the intact bytes may come of it: a checksum covers what was changed.
fn is_covered(array: &Array, mutation: &Mutation) -> bool {
    let name = mutation.file.file_name().unwrap().to_string_lossy().into_owned();
    matches!(mutation.kind, Kind::BitFlip) && array.covered.contains(&name)
}

/// What became of a mutant.
fn judge(
    array: &Array,
    mutant: &Mutant,
    content: &Content,
    told: &HashMap<String, String>,
    wrong: &mut Vec<String>,
) -> &'static str {
    let mutation = &mutant.mutation;
    let (mut errors, mut changed, mut gone) = (0, 0, 0);
    for (path, read) in content {
        let intact = array.content.get(path);
        if let Read1::Error(errno) = read {
            errors += 1;
            // Of an encrypted array without its key nothing can be read in the first place.
            let encrypted = array
                .content
                .values()
                .any(|read| *read == Read1::Error(libc::EACCES));
            if *errno != libc::EIO && !(encrypted && *errno == libc::EACCES) {
                wrong.push(format!("{path}: errno {errno}"));
            }
            match told.get(&format!("{}/{path}", mutant.place)) {
                None => wrong.push(format!("{path}: EIO, and no line tells why")),
                Some(line) => {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
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
                if is_covered(array, mutation) && !path.ends_with(".json") {
                    wrong.push(format!("{path}: other bytes in spite of a checksum"));
                }
            }
            if !may_show(&mutation.file, path) {
                wrong.push(format!(
                    "{path}: should be as it was, is {read:?} and not {intact:?}"
                ));
            }
        }
    }
    for path in array.content.keys().filter(|path| !content.contains_key(*path)) {
        gone += 1;
        if !may_show(&mutation.file, path) {
            wrong.push(format!("{path}: should be there"));
        }
    }
    match (errors, changed, gone) {
        (0, 0, 0) => "reads as before",
        (0, _, _) => "reads as it now stands",
        (_, 0, 0) => "errors, all else as before",
        _ => "errors, and more reads as it now stands",
    }
}

/// The lines of the log of errors, by path.
fn told(mount: &Mount, place: &str, into: &mut HashMap<String, String>) {
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
    if let Some(more) = env::var_os("TILEDBFS_ARRAYS") {
        // Some of them, small ones: the time that this takes is not to depend on how many there are.
        let more = sources(Path::new(&more));
        let step = more.len().div_ceil(MORE).max(1);
        roots.extend(more.into_iter().step_by(step));
    }
    let most = env::var("TILEDBFS_MUTANTS").map_or(1600usize.div_ceil(own), |text| text.parse().unwrap());
    let source = tempfile::tempdir().unwrap();
    let mut arrays = Vec::new();
    for (i, root) in roots.into_iter().enumerate() {
        let files = files(&MemoryStorage::copy_of(&root).unwrap());
        if i >= own && files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > SMALL {
            continue;
        }
        arrays.push(Array {
            name: root.file_name().unwrap().to_string_lossy().into_owned(),
            files,
            content: Content::new(),
            covered: HashSet::new(),
        });
    }
    let mut mutants = Vec::new();
    for (i, array) in arrays.iter_mut().enumerate() {
        let intact = source.path().join(format!("intact/{i}"));
        write(array, &intact, &intact, None);
        array.covered = covered(&array.files);
        let wanted = if i < own { most } else { 10 };
        let mut random = Random(i as u64);
        let mut n = 0;
        // A group may have nothing but empty files.
        for _ in 0..2 * wanted {
            if n == wanted {
                break;
            }
            let Some(mutation) = mutate(&array.files, &mut random) else {
                continue;
            };
            let place = format!("{:03}/{}", mutants.len() / BATCH, mutants.len());
            write(array, &intact, &source.path().join(&place), Some(&mutation));
            mutants.push(Mutant {
                array: i,
                mutation,
                place,
            });
            n += 1;
        }
    }
    let mount = Mount::new(source.path());
    for (i, array) in arrays.iter_mut().enumerate() {
        let mut wrong = Vec::new();
        array.content = read_all(&mount.path(&format!("intact/{i}")), &mut wrong);
        assert!(wrong.is_empty(), "{}: {wrong:?}", array.name);
        let failed = array
            .content
            .iter()
            .find(|(_, read)| matches!(read, Read1::Error(errno) if *errno != libc::EACCES));
        assert!(failed.is_none() || i >= own, "{}: {failed:?}", array.name);
    }
    drop(mount);
    let start = Instant::now();
    let mut report = Report::default();
    // What the kernel remembers of one mount is not to add up over all.
    for some in mutants.chunks(MOUNTED) {
        look_at(some, &arrays, source.path(), &mut report);
    }
    println!(
        "{} mutants of {} arrays in {:?}:",
        mutants.len(),
        arrays.len(),
        start.elapsed()
    );
    for ((kind, outcome), count) in &report.outcomes {
        println!("{count:6} {kind:?}: {outcome}");
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

/// What came of all mutants.
#[derive(Default)]
struct Report {
    outcomes: BTreeMap<(Kind, &'static str), u64>,
    wrong: Vec<String>,
    /// Memory of a daemon at most, in MiB.
    peak: u64,
}

/// Reads some mutants through a mount of their own, three at a time.
fn look_at(mutants: &[Mutant], arrays: &[Array], source: &Path, report: &mut Report) {
    let mount = Mount::new(source);
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
                    let kind = mutant.mutation.kind;
                    *outcomes.lock().unwrap().entry((kind, outcome)).or_default() += 1;
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
    // Nothing has changed what is intact beside them.
    let array = &arrays[0];
    let intact = read_all(&mount.path("intact/0"), &mut Vec::new());
    assert!(array.content == intact, "{} has changed", array.name);
    report.peak = report.peak.max(mount.peak());
}
