//! Trees in memory, and mounts of them that are removed even if a test fails.
#![allow(dead_code)]

pub mod bytes;
pub mod copying;
pub mod counted;
pub mod daemon;
pub mod place;
pub mod program;
mod random;

pub use random::Random;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tiledbfs::internals::bytes::{Bytes, Output};
use tiledbfs::internals::fuse::{FileSystem, MountOptions, Mounted, mount};
use tiledbfs::internals::layout::FileLayout;
use tiledbfs::internals::runtime::stats::Stats;
use tiledbfs::internals::storage::mountinfo;
use tiledbfs::internals::tree::memory::folder;
use tiledbfs::internals::tree::{Directory, ErrorLog, File, Freshness, Listing, Node, Stat, Tree};
use tiledbfs::{Error, ErrorKind, Result};

/// 2023-11-14T22:13:20.123Z
pub const MTIME: u64 = 1_700_000_000_123;

/// A directory with these entries, which never change.
pub fn dir_of(freshness: Freshness, nodes: Vec<(String, Node)>) -> Node {
    let nodes = nodes.into_iter().map(|(name, node)| (name.into(), node));
    folder(MTIME, freshness, nodes.collect())
}

/// An immutable directory with these entries.
pub fn dir<const N: usize>(nodes: [(&str, Node); N]) -> Node {
    let nodes = nodes.into_iter().map(|(name, node)| (name.to_owned(), node));
    dir_of(Freshness::Immutable, nodes.collect())
}

/// A directory in memory whose entries can be changed.
#[derive(Default)]
pub struct ChangingDir(pub Mutex<Vec<(OsString, Node)>>);

impl Directory for ChangingDir {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let nodes = self.0.lock().unwrap();
        Ok(nodes
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, node)| node.clone()))
    }
    fn list(&self) -> Result<Arc<dyn Listing>> {
        let nodes = self.0.lock().unwrap();
        let names: Vec<_> = nodes
            .iter()
            .map(|(n, node)| (n.clone(), node.node_type()))
            .collect();
        Ok(Arc::new(names))
    }
    fn mtime(&self) -> u64 {
        MTIME
    }
    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }
}

/// A file in memory whose content can be changed.
pub struct MemFile {
    state: Mutex<(u64, Arc<Vec<u8>>)>,
    freshness: Freshness,
}

impl MemFile {
    pub fn new(freshness: Freshness, bytes: impl Into<Vec<u8>>) -> Arc<Self> {
        Arc::new(MemFile {
            state: Mutex::new((1, Arc::new(bytes.into()))),
            freshness,
        })
    }
    pub fn set(&self, bytes: impl Into<Vec<u8>>) {
        let mut state = self.state.lock().unwrap();
        *state = (state.0 + 1, Arc::new(bytes.into()));
    }
}

/// An immutable file.
pub fn file(bytes: impl Into<Vec<u8>>) -> Node {
    Node::File(MemFile::new(Freshness::Immutable, bytes))
}

impl File for MemFile {
    fn stat(&self) -> Result<Stat> {
        let state = self.state.lock().unwrap();
        Ok(Stat {
            len: state.1.len(),
            version: if self.freshness == Freshness::Listing {
                state.0
            } else {
                0
            },
        })
    }
    fn mtime(&self) -> u64 {
        MTIME
    }
    fn freshness(&self) -> Freshness {
        self.freshness
    }
    fn open(&self) -> Result<Arc<FileLayout>> {
        let state = self.state.lock().unwrap();
        let bytes = OpenMem(state.1.clone());
        Ok(Arc::new(FileLayout::new(state.0, vec![Box::new(bytes)])?))
    }
}

struct OpenMem(Arc<Vec<u8>>);

impl Bytes for OpenMem {
    fn len(&self) -> u64 {
        Bytes::len(&self.0)
    }
    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        // Shared, and copied.
        match range.start.is_multiple_of(3) {
            true => self.0.read(range, out),
            false => (**self.0).read(range, out),
        }
    }
}

/// How a broken file fails.
#[derive(Clone, Copy)]
pub enum Fault {
    Error(ErrorKind),
    Panic,
    /// Returns fewer bytes than requested.
    Short,
}

/// A file of 10,000 bytes. Each field tells how a method fails.
pub struct BrokenFile {
    pub len: Option<Fault>,
    pub open: Option<Fault>,
    pub read: Option<Fault>,
}

fn fail(fault: Option<Fault>, place: &str) -> Result<()> {
    match fault {
        Some(Fault::Error(kind)) => Err(Error::new(kind, format!("broken {place}")).at(7).in_file("x.tdb")),
        Some(Fault::Panic) => panic!("broken {place}"),
        Some(Fault::Short) | None => Ok(()),
    }
}

impl File for BrokenFile {
    fn stat(&self) -> Result<Stat> {
        fail(self.len, "len").map(|()| Stat {
            len: 10_000,
            version: 0,
        })
    }
    fn mtime(&self) -> u64 {
        MTIME
    }
    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }
    fn open(&self) -> Result<Arc<FileLayout>> {
        fail(self.open, "open")?;
        let bytes = OpenBroken(self.read);
        Ok(Arc::new(FileLayout::new(0, vec![Box::new(bytes)])?))
    }
}

struct OpenBroken(Option<Fault>);

impl Bytes for OpenBroken {
    fn len(&self) -> u64 {
        10_000
    }
    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        fail(self.0, "read")?;
        let missing = usize::from(matches!(self.0, Some(Fault::Short)));
        out.append(&vec![1; (range.end - range.start) as usize - missing]);
        Ok(())
    }
}

/// Counts the requests of each operation, and makes some of them panic.
#[derive(Default)]
pub struct Requests {
    counts: Mutex<HashMap<&'static str, u64>>,
    pub panic_in: Mutex<Option<&'static str>>,
    pub armed: AtomicBool,
    pub panics: AtomicU64,
}

impl Requests {
    pub fn of(&self, name: &str) -> u64 {
        self.counts.lock().unwrap().get(name).copied().unwrap_or(0)
    }
}

/// A mounted tree.
pub struct TestMount {
    // Fields are dropped in this order: unmounting comes before removing the directory.
    pub mounted: Option<Mounted>,
    pub dir: TempDir,
    pub stats: Arc<Stats>,
    pub errors: Arc<ErrorLog>,
    pub requests: Arc<Requests>,
}

impl TestMount {
    pub fn new(root: Node) -> Self {
        Self::with(root, |filesystem| filesystem, |_| ())
    }

    pub fn with(
        root: Node,
        change: impl FnOnce(FileSystem) -> FileSystem,
        options: impl FnOnce(&mut MountOptions),
    ) -> Self {
        let tree = Tree::of_nodes(root);
        let (errors, stats) = (tree.errors.clone(), tree.stats.clone());
        let requests = Arc::new(Requests::default());
        let probe = {
            let requests = requests.clone();
            Arc::new(move |name: &'static str| {
                *requests.counts.lock().unwrap().entry(name).or_default() += 1;
                if requests.armed.load(Ordering::SeqCst) && *requests.panic_in.lock().unwrap() == Some(name) {
                    requests.panics.fetch_add(1, Ordering::SeqCst);
                    panic!("injected into {name}");
                }
            })
        };
        let dir = tempfile::tempdir().unwrap();
        let mut mount_options = MountOptions {
            threads: 4,
            ..MountOptions::default()
        };
        options(&mut mount_options);
        let filesystem = change(FileSystem::new(tree).with_probe(probe));
        let mounted = mount(filesystem, dir.path(), &mount_options).unwrap();
        TestMount {
            mounted: Some(mounted),
            dir,
            stats,
            errors,
            requests,
        }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The lines of the error log.
    pub fn error_lines(&self) -> Vec<String> {
        let (text, _) = self.errors.snapshot();
        String::from_utf8(text)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// Aborts the connection of the FUSE file system mounted at `path`, through `/sys/fs/fuse`. Needs root.
pub fn abort(path: &Path) {
    let control = tempfile::tempdir().unwrap();
    let succeeds = |command: &mut Command| command.status().unwrap().success();
    assert!(succeeds(
        Command::new("mount")
            .args(["-t", "fusectl", "none"])
            .arg(control.path())
    ));
    let entry = mountinfo::mounted_at(&path.canonicalize().unwrap());
    let (_, minor) = entry.unwrap().unwrap().device;
    fs::write(control.path().join(format!("{minor}/abort")), "1").unwrap();
    assert!(succeeds(Command::new("umount").arg(control.path())));
}

/// The names that the directory at `path` below `root` lists, in its order.
pub fn names(root: &Node, path: &str) -> Vec<String> {
    let Some(Node::Directory(directory)) = root.find(path).unwrap() else {
        panic!("{path} is no directory");
    };
    let listing = directory.list().unwrap();
    let names = listing.entries().map(|(name, _)| name.into_owned().into_string());
    names.collect::<std::result::Result<_, _>>().unwrap()
}

/// Waits until `condition` is true. Panics after 10 s.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The errno of an operation that must fail.
pub fn errno<T>(result: std::io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.raw_os_error().unwrap(),
    }
}

/// `len` pseudorandom bytes.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
