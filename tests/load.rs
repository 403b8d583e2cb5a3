//! 64 threads of reads, listings and page faults on every array of a source, each answer compared with what
//! the library reads without a mount, while a small cache has to be emptied all the time.
//!
//! `TILEDBFS_LOAD_SOURCE` is the source, in place of the arrays in `tests/data`; `TILEDBFS_LOAD_SECONDS` how
//! long it takes; `TILEDBFS_LOAD_SEED` what an earlier run printed; `TILEDBFS_LOAD_HASHES` a file with
//! `SHA-256 path` in each line, as `tests/oracle/run.py --hashes` writes it: files that were found equal to
//! what libtiledb reads, to which the reference must be equal.

mod common;

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
use tiledbfs::internals::tree::{Node, Options, Tree};

const THREADS: u64 = 64;

const CACHE_MIB: u64 = 32;

/// What the daemon may take beyond its cache.
const MEMORY_MIB: u64 = 64;

/// The longest that one system call may take, beyond what the machine keeps a thread waiting that asks
/// nothing of the mount.
const STALL: Duration = Duration::from_secs(2);

/// Files are read at once up to this size.
const MOST: usize = 1 << 20;

/// The key of the encrypted arrays among those of other releases.
const KEY: &[u8; 32] = b"0123456789abcdeF0123456789abcdeF";

enum Content {
    Directory(HashSet<OsString>),
    Bytes(Vec<u8>),
    /// It cannot be opened, listed or read, and the errno says so.
    Error,
}

/// What every path holds.
#[derive(Default)]
struct Reference {
    all: BTreeMap<PathBuf, Content>,
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
    /// Those with a schema or a group in them.
    objects: Vec<PathBuf>,
    bytes: u64,
}

impl Reference {
    fn read(source: &Path) -> Reference {
        let options = Options {
            cache_size: 256 << 20,
            keys: vec![(PathBuf::new(), EncryptionKey::new(*KEY))],
            follow_symlinks: false,
            ..Options::default()
        };
        let tree = Tree::open(source, &options).unwrap();
        let mut reference = Reference::default();
        let mut waiting = vec![(PathBuf::new(), tree.root)];
        while let Some((path, node)) = waiting.pop() {
            let content = match &node {
                Node::File(_) | Node::Link(_) => node.read_all().map(Content::Bytes),
                Node::Directory(directory) => directory.list().map(|listing| {
                    let mut names = HashSet::new();
                    for (name, _) in (0..).map_while(|i| listing.get(i)) {
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

    /// Compares with what was found equal to libtiledb's answers; how many files that were.
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

/// Latencies of one kind of system call: how many took less than 2^i microseconds.
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

    /// A bound that at least this part of all calls stayed below.
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

/// One thread's work.
struct Worker<'a> {
    mount: &'a Path,
    reference: &'a Reference,
    random: Random,
    latencies: BTreeMap<&'static str, Latencies>,
    compared: u64,
    buffer: Vec<u8>,
    /// Files that stay open for a while.
    open: Vec<(&'a Path, &'a [u8], File)>,
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

impl<'a> Worker<'a> {
    fn timed<T>(&mut self, name: &'static str, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        self.latencies.entry(name).or_default().add(start.elapsed());
        result
    }

    fn pick(&mut self, paths: &'a [PathBuf]) -> &'a Path {
        &paths[self.random.below(paths.len() as u64) as usize]
    }

    fn file(&mut self) -> (&'a Path, &'a [u8]) {
        // Columns half of the time: most files are small documents.
        for _ in 0..4 {
            let path = self.pick(&self.reference.files);
            if path.extension() != Some(OsStr::new("json")) {
                return (path, self.bytes(path));
            }
        }
        let path = self.pick(&self.reference.files);
        (path, self.bytes(path))
    }

    fn bytes(&self, path: &Path) -> &'a [u8] {
        match &self.reference.all[path] {
            Content::Bytes(bytes) => bytes,
            _ => unreachable!("{path:?} is a file"),
        }
    }

    fn open(&mut self, path: &Path, flags: i32) -> Result<File, String> {
        let full = self.mount.join(path);
        self.timed("open", || {
            File::options().read(true).custom_flags(flags).open(full)
        })
        .map_err(|error| wrong(path, format!("open: {error}")))
    }

    /// Reads `size` bytes at `offset`, or those up to the end.
    fn read(
        &mut self,
        path: &Path,
        bytes: &[u8],
        file: &File,
        offset: usize,
        size: usize,
    ) -> Result<(), String> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(size, 0);
        let wanted = &bytes[offset.min(bytes.len())..(offset + size).min(bytes.len())];
        let mut got = 0;
        // A read may be short where it is not at the end, as any.
        let result = loop {
            match self.timed("pread", || {
                file.read_at(&mut buffer[got..], (offset + got) as u64)
            }) {
                Ok(0) => break Ok(()),
                Ok(n) => got += n,
                Err(error) => break Err(wrong(path, format!("read at {offset}: {error}"))),
            }
            if got == size {
                break Ok(());
            }
        };
        let same = buffer[..got] == *wanted;
        self.compared += got as u64;
        self.buffer = buffer;
        result?;
        match same {
            true => Ok(()),
            false => Err(wrong(
                path,
                format!("{got} bytes at {offset} are not the {} expected", wanted.len()),
            )),
        }
    }

    fn random_reads(&mut self) -> Result<(), String> {
        let (path, bytes) = self.file();
        let direct = if self.random.below(8) == 0 {
            libc::O_DIRECT
        } else {
            0
        };
        let file = self.open(path, direct)?;
        for _ in 0..=self.random.below(6) {
            let offset = self.random.below(bytes.len() as u64 + 100) as usize;
            let most = [16, 4096, 70_000, MOST as u64][self.random.below(4) as usize];
            let size = 1 + self.random.below(most);
            self.read(path, bytes, &file, offset, size as usize)?;
        }
        if self.random.below(4) == 0 {
            if self.open.len() >= 8 {
                let gone = self.random.below(8) as usize;
                self.open.swap_remove(gone);
            }
            self.open.push((path, bytes, file));
        }
        Ok(())
    }

    /// Reads in a file that was opened long ago.
    fn old_reads(&mut self) -> Result<(), String> {
        if self.open.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let (path, bytes, file) = self.open.swap_remove(at);
        let offset = self.random.below(bytes.len() as u64 + 1) as usize;
        let result = self.read(path, bytes, &file, offset, 10_000);
        self.open.push((path, bytes, file));
        result
    }

    fn sequential_read(&mut self) -> Result<(), String> {
        let (path, bytes) = self.file();
        let file = self.open(path, 0)?;
        let size = 1 + self.random.below(200_000) as usize;
        // A megabyte, from somewhere.
        let start = self.random.below((bytes.len().saturating_sub(MOST) + 1) as u64) as usize;
        for offset in (start..=bytes.len().min(start + MOST)).step_by(size) {
            self.read(path, bytes, &file, offset, size)?;
        }
        Ok(())
    }

    /// Maps a file and looks at pages of it.
    fn faults(&mut self) -> Result<(), String> {
        let (path, bytes) = self.file();
        if bytes.is_empty() {
            return Ok(());
        }
        let file = self.open(path, 0)?;
        let (len, fd) = (bytes.len(), file.as_raw_fd());
        // SAFETY: a new mapping, of a file that nothing cuts short; it is taken away below.
        let address = self.timed("mmap", || unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            )
        });
        if address == libc::MAP_FAILED {
            return Err(wrong(path, format!("mmap: {}", io::Error::last_os_error())));
        }
        drop(file);
        // SAFETY: the mapping has this length and nobody writes to it.
        let mapped = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        let mut result = Ok(());
        for _ in 0..8 {
            let page = self.random.below(len.div_ceil(4096) as u64) as usize * 4096;
            let range = page..(page + 4096).min(len);
            if !self.timed("fault", || mapped[range.clone()] == bytes[range.clone()]) {
                result = Err(wrong(path, format!("the mapped page at {page} differs")));
            }
            self.compared += range.len() as u64;
        }
        // SAFETY: the mapping made above, which nothing refers to any more.
        unsafe { libc::munmap(address, len) };
        result
    }

    fn stat(&mut self, path: &Path) -> Result<(), String> {
        let full = self.mount.join(path);
        let metadata = self
            .timed("stat", || fs::symlink_metadata(full))
            .map_err(|error| wrong(path, format!("stat: {error}")))?;
        match &self.reference.all[path] {
            Content::Bytes(bytes) if metadata.is_file() && metadata.len() == bytes.len() as u64 => Ok(()),
            Content::Directory(_) if metadata.is_dir() => Ok(()),
            Content::Error => Ok(()),
            _ => Err(wrong(path, format!("stat: {metadata:?}"))),
        }
    }

    fn list(&mut self, path: &Path) -> Result<(), String> {
        let full = self.mount.join(path);
        let listed: io::Result<HashSet<OsString>> = self.timed("list", || {
            fs::read_dir(full)?.map(|entry| Ok(entry?.file_name())).collect()
        });
        let mut listed = listed.map_err(|error| wrong(path, format!("list: {error}")))?;
        listed.remove(OsStr::new(".tiledbfs"));
        match &self.reference.all[path] {
            Content::Directory(names) if *names == listed => Ok(()),
            _ => Err(wrong(path, format!("it holds {listed:?}"))),
        }
    }

    /// Looks at everything in an array or group, as `find` does.
    fn walk(&mut self) -> Result<(), String> {
        let root = self.pick(&self.reference.objects);
        let mut left = 500;
        for (path, content) in self.reference.all.range(root.to_path_buf()..) {
            if !path.starts_with(root) || left == 0 {
                break;
            }
            left -= 1;
            self.stat(path)?;
            if let Content::Directory(_) = content {
                self.list(path)?;
            }
        }
        Ok(())
    }

    /// What cannot be read says so, and what is not there is not there.
    fn errors(&mut self) -> Result<(), String> {
        let path = self.pick(&self.reference.directories);
        let name = format!("none-{}", self.random.next());
        let full = self.mount.join(path).join(name);
        match self.timed("stat", || fs::symlink_metadata(full)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => Err(wrong(path, format!("a name that is not there: {other:?}"))),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0..6 => self.random_reads(),
            6..9 => self.old_reads(),
            9..11 => self.sequential_read(),
            11..14 => self.faults(),
            14..16 => {
                let path = self.pick(&self.reference.directories);
                self.list(path)
            }
            16..18 => {
                let path = self.pick(&self.reference.files);
                self.stat(path)
            }
            18 => self.walk(),
            _ => self.errors(),
        }
    }
}

/// The longest that a thread which only sleeps and reads a local file was kept waiting.
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
        all.longest < STALL + control_latencies.longest,
        "seed {seed}: a call took {:?}, where the control thread waited at most {:?}",
        all.longest,
        control_latencies.longest
    );
    let most = CACHE_MIB + MEMORY_MIB;
    assert!(
        mount.memory("VmHWM:") >> 20 <= most,
        "seed {seed}: more than {most} MiB"
    );
    assert!(all.total() > 1000, "hardly anything was asked");

    // What the kernel has forgotten, nobody keeps.
    let forgotten = || {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let stats = mount.stats();
        // The root and the way to the counters, whose reading began before it was a handle.
        (
            stats["inodes"].as_u64(),
            stats["open_handles"].as_u64(),
            stats["kept_files"].as_u64(),
        ) == (Some(3), Some(0), Some(0))
    };
    eventually("inodes and handles are given back", forgotten);
    eventually("descriptors are closed", || mount.descriptors() <= descriptors);
    println!(
        "afterwards: memory {} MiB, {descriptors} descriptors",
        mount.memory("VmRSS:") >> 20
    );
}

/// Percentiles of what a loop over the counts must give.
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
