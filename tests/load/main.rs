//! 64 threads read, list and map the files of a mount at the same time. Each result is compared with a read
//! without a mount. The cache is so small that it evicts all the time.
//!
//! | variable | |
//! |---|---|
//! | `TILEDBFS_LOAD_SOURCE` | the source; by default the arrays in `tests/data` |
//! | `TILEDBFS_LOAD_SECONDS` | how long to run |
//! | `TILEDBFS_LOAD_SEED` | the seed that an earlier run printed, to repeat it |
//! | `TILEDBFS_LOAD_HASHES` | a file of `SHA-256 path` lines, as `tests/oracle/run.py --hashes` writes it |
//!
//! The hashes are those of files that equal what libtiledb reads. The reference must have the same.

#[path = "../common/mod.rs"]
mod common;
mod worker;

use common::daemon::Daemon;
use common::{Random, eventually};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tiledbfs::internals::filter::EncryptionKey;
use tiledbfs::internals::tree::{Node, Tree, TreeOptions};
use worker::Worker;

const THREADS: u64 = 64;

const CACHE_MIB: u64 = 32;

/// The memory of the daemon besides its cache and the inodes that the kernel knows, which it alone decides
/// about. What 64 threads read at once takes 30 to 42 MiB, by the moment; what leaks with each of their calls
/// takes more.
const MEMORY_MIB: u64 = 64;

/// The memory of an inode that the kernel knows.
const INODE_BYTES: u64 = 320;

/// Files that four data sets keep open: of two arrays each, two of a fragment.
const MAX_KEPT_FILES: u64 = 16;

/// A system call that takes longer hangs. How long calls take is printed, beside what a thread waits that
/// does not use the mount.
const MAX_CALL: Duration = Duration::from_secs(60);

/// The most bytes of a file that are read at once.
const MAX_READ: usize = 1 << 20;

/// The key of the encrypted arrays written by other releases.
const KEY: &[u8; 32] = b"0123456789abcdeF0123456789abcdeF";

enum Content {
    Directory(HashSet<OsString>),
    Bytes(Vec<u8>),
    /// It cannot be opened, listed or read, with a proper errno.
    Error,
}

/// The expected content of each path.
#[derive(Default)]
struct Reference {
    all: BTreeMap<PathBuf, Content>,
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    /// The directories of arrays and groups.
    objects: Vec<PathBuf>,
    bytes: u64,
}

impl Reference {
    fn read(source: &Path) -> Reference {
        let options = TreeOptions {
            cache_size: 256 << 20,
            keys: vec![(PathBuf::new(), EncryptionKey::new(*KEY))],
            follow_symlinks: false,
            ..TreeOptions::default()
        };
        let tree = Tree::open(source, &options).unwrap();
        let mut reference = Reference::default();
        let mut waiting = vec![(PathBuf::new(), tree.root)];
        while let Some((path, node)) = waiting.pop() {
            let content = match &node {
                Node::File(_) | Node::Link(_) => node.read_all().map(Content::Bytes),
                Node::Directory(directory) => directory.list().map(|listing| {
                    let mut names = HashSet::new();
                    for (name, _) in listing.entries() {
                        if *name == *".tiledbfs" {
                            continue;
                        }
                        names.insert(name.to_os_string());
                        let child = directory.lookup(&name).unwrap().unwrap();
                        waiting.push((path.join(&name), child));
                    }
                    Content::Directory(names)
                }),
            };
            let content = content.unwrap_or_else(|error| {
                let _ = error;
                Content::Error
            });
            match &content {
                Content::Bytes(bytes) => {
                    reference.bytes += bytes.len() as u64;
                    reference.files.push(path.clone());
                }
                Content::Directory(names) => {
                    if ["schema.json", "group.json"]
                        .iter()
                        .any(|n| names.contains(OsStr::new(n)))
                    {
                        reference.objects.push(path.clone());
                    }
                    reference.directories.push(path.clone());
                }
                Content::Error => {}
            }
            reference.all.insert(path, content);
        }
        reference
    }

    /// Compares the reference with hashes of libtiledb's answers; returns the number of files.
    fn check(&self, hashes: &Path) -> usize {
        let text = fs::read_to_string(hashes).unwrap();
        for line in text.lines() {
            let (hash, path) = line.split_once(' ').unwrap();
            let Some(Content::Bytes(bytes)) = self.all.get(Path::new(path)) else {
                panic!("{path} was compared with libtiledb's answers, and is no file of the reference");
            };
            let found: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(found, hash, "{path}");
        }
        text.lines().count()
    }
}

/// Latencies of one kind of system call: the number that took less than 2^i microseconds.
struct Latencies {
    counts: [u64; 40],
    longest: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            counts: [0; 40],
            longest: Duration::ZERO,
        }
    }
}

impl Latencies {
    fn add(&mut self, took: Duration) {
        let micros = took.as_micros() as u64;
        self.counts[(64 - micros.leading_zeros()).min(39) as usize] += 1;
        self.longest = self.longest.max(took);
    }

    fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.longest = self.longest.max(other.longest);
    }

    fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// An upper bound of the given fraction of all calls.
    fn below(&self, part: f64) -> Duration {
        let wanted = (self.total() as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (i, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(1 << i);
            }
        }
        self.longest
    }
}

/// Latencies of a control thread that only sleeps and reads a local file.
fn control(done: &AtomicBool) -> Latencies {
    let local = tempfile::NamedTempFile::new().unwrap();
    local.as_file().write_all_at(&[7; 65_536], 0).unwrap();
    let mut latencies = Latencies::default();
    let mut buffer = vec![0; 65_536];
    while !done.load(Ordering::Relaxed) {
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        local.as_file().read_exact_at(&mut buffer, 0).unwrap();
        latencies.add(start.elapsed().saturating_sub(Duration::from_millis(5)));
    }
    latencies
}

#[test]
fn many_readers_at_once() {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let source = variable("TILEDBFS_LOAD_SOURCE")
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"));
    let seconds = number("TILEDBFS_LOAD_SECONDS").unwrap_or(3);
    let seed = number("TILEDBFS_LOAD_SEED").unwrap_or_else(|| u64::from(std::process::id()));

    let reference = Reference::read(&source);
    let errors = reference
        .all
        .values()
        .filter(|c| matches!(c, Content::Error))
        .count();
    println!(
        "seed {seed}; {} files with {} MiB, {} directories, {} arrays and groups; {errors} that cannot be read",
        reference.files.len(),
        reference.bytes >> 20,
        reference.directories.len(),
        reference.objects.len(),
    );
    if let Some(hashes) = variable("TILEDBFS_LOAD_HASHES") {
        println!("{} files equal to what libtiledb reads", reference.check(&hashes));
    }

    let has_data_set = |group: &&PathBuf| reference.all.contains_key(&group.join("dataset.json"));
    let data_sets: HashSet<&Path> = reference
        .objects
        .iter()
        .filter(has_data_set)
        .map(PathBuf::as_path)
        .collect();

    let key = tempfile::tempdir().unwrap();
    let key = key.path().join("key");
    fs::write(&key, KEY).unwrap();
    let options = [
        format!("--cache-size={CACHE_MIB}M"),
        format!("--key-file={}", key.display()),
    ];
    let mount = Daemon::new(&source, &options);
    mount.stats();
    let descriptors = mount.descriptors();
    let root = mount.path("");
    // Where the cells of an array turn out not to be in global order, what is open of it fails, once.
    for path in reference.files.iter().filter(|path| path.ends_with("data.bin")) {
        let _ = File::open(root.join(path)).and_then(|file| file.read_at(&mut [0], 0));
    }
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let (failures, latencies) = (
        Mutex::new(Vec::new()),
        Mutex::new(BTreeMap::<_, Latencies>::new()),
    );
    let (compared, inodes) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut control_latencies = Latencies::default();
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let control = scope.spawn(|| control(&done));
        let sampler = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(mount.memory("VmRSS:"), Ordering::Relaxed);
                inodes.fetch_max(mount.stats()["inodes"].as_u64().unwrap(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mut worker = Worker {
                    mount: &root,
                    reference: &reference,
                    random: Random(seed.wrapping_mul(1000).wrapping_add(thread)),
                    latencies: BTreeMap::new(),
                    compared: 0,
                    buffer: Vec::new(),
                    open: Vec::new(),
                };
                let (failures, latencies, compared) = (&failures, &latencies, &compared);
                scope.spawn(move || {
                    while Instant::now() < end {
                        if let Err(failure) = worker.step() {
                            failures.lock().unwrap().push(failure);
                            break;
                        }
                    }
                    compared.fetch_add(worker.compared, Ordering::Relaxed);
                    for (name, mine) in &worker.latencies {
                        latencies.lock().unwrap().entry(*name).or_default().merge(mine);
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        sampler.join().unwrap();
        control_latencies = control.join().unwrap();
    });

    let latencies = latencies.into_inner().unwrap();
    let mut all = Latencies::default();
    for (name, one) in latencies
        .iter()
        .map(|(n, l)| (*n, l))
        .chain([("(control)", &control_latencies)])
    {
        println!(
            "{name:10} {:9} calls, 50 % below {:?}, 99.9 % below {:?}, longest {:?}",
            one.total(),
            one.below(0.5),
            one.below(0.999),
            one.longest
        );
        if name != "(control)" {
            all.merge(one);
        }
    }
    let stats = mount.stats();
    println!(
        "{} calls in {seconds} s, {} MiB compared; 99.9 % below {:?}, longest {:?}; memory at most {} MiB, {} MiB by the kernel's count; {} inodes at most; {} chunks decoded, {} evictions",
        all.total(),
        compared.load(Ordering::Relaxed) >> 20,
        all.below(0.999),
        all.longest,
        peak.load(Ordering::Relaxed) >> 20,
        mount.memory("VmHWM:") >> 20,
        inodes.load(Ordering::Relaxed),
        stats["chunks_decoded"],
        stats["cache_evictions"],
    );
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    assert!(
        all.longest < MAX_CALL,
        "seed {seed}: a call took {:?}",
        all.longest
    );
    let most = CACHE_MIB + MEMORY_MIB + ((inodes.load(Ordering::Relaxed) * INODE_BYTES) >> 20);
    assert!(
        mount.memory("VmHWM:") >> 20 <= most,
        "seed {seed}: more than {most} MiB"
    );
    assert!(all.total() > 1000, "hardly anything was asked");

    // What the kernel has forgotten is freed, but for the data sets that were made last, whose arrays keep
    // files open.
    let of_data_sets = || {
        let of_data_set = |file: &PathBuf| file.ancestors().any(|above| data_sets.contains(above));
        mount
            .opened(&source)
            .iter()
            .filter(|file| of_data_set(file))
            .count()
    };
    let forgotten = || {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let (stats, kept) = (mount.stats(), of_data_sets() as u64);
        // The root, and the path of the counters, which are read before their handle counts.
        let counts = ["inodes", "open_handles", "kept_files"].map(|name| stats[name].as_u64());
        counts == [Some(3), Some(0), Some(kept)] && kept <= MAX_KEPT_FILES
    };
    eventually("inodes and handles are given back", forgotten);
    eventually("descriptors are closed", || {
        mount.descriptors() <= descriptors + of_data_sets()
    });
    println!(
        "afterwards: memory {} MiB, {descriptors} descriptors",
        mount.memory("VmRSS:") >> 20
    );
}

/// Percentiles equal those of a loop over the counts.
#[test]
fn latencies_count() {
    let mut latencies = Latencies::default();
    for micros in 1..=1000 {
        latencies.add(Duration::from_micros(micros));
    }
    latencies.add(Duration::from_secs(3));
    assert_eq!(latencies.total(), 1001);
    assert_eq!(latencies.below(0.5), Duration::from_micros(512));
    assert_eq!(latencies.below(0.99), Duration::from_micros(1024));
    assert_eq!(latencies.longest, Duration::from_secs(3));
}
