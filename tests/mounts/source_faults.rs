//! A source on a file system that fails, hangs or goes away: a FUSE mount made by the test, with the files of
//! a sample array and injected faults.

use crate::common::{Random, TestMount, errno, eventually};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tiledbfs::internals::bytes;
use tiledbfs::internals::fuse::unmount_path;
use tiledbfs::internals::layout::FileLayout;
use tiledbfs::internals::storage::mountinfo;
use tiledbfs::internals::tree::node::Entry;
use tiledbfs::internals::tree::{Directory, File as TreeFile, Freshness, Listing, Node, NodeType, Stat};
use tiledbfs::{Error, ErrorKind, Result};

/// The behaviour of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Failing,
    /// No answer until the mood changes.
    Hanging,
}

struct Switch(Mutex<Mood>, Condvar);

impl Switch {
    fn set(&self, mood: Mood) {
        *self.0.lock().unwrap() = mood;
        self.1.notify_all();
    }

    fn ask(&self) -> Result<()> {
        let hanging = |mood: &mut Mood| *mood == Mood::Hanging;
        match *self.1.wait_while(self.0.lock().unwrap(), hanging).unwrap() {
            Mood::Failing => Err(Error::new(ErrorKind::Io(libc::EIO), "told to fail")),
            _ => Ok(()),
        }
    }
}

/// A file or directory of the sample behind the switch.
#[derive(Clone)]
struct Moody(Arc<Switch>, PathBuf);

impl Moody {
    fn node(&self, kind: NodeType) -> Node {
        match kind {
            NodeType::Directory => Node::Directory(Arc::new(self.clone())),
            _ => Node::File(Arc::new(self.clone())),
        }
    }

    fn kind(path: &Path) -> NodeType {
        match path.is_dir() {
            true => NodeType::Directory,
            false => NodeType::File,
        }
    }
}

impl Directory for Moody {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        self.0.ask()?;
        let path = self.1.join(name);
        let child = Moody(self.0.clone(), path.clone());
        Ok(path.exists().then(|| child.node(Moody::kind(&path))))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        self.0.ask()?;
        let entries = fs::read_dir(&self.1).unwrap().map(|entry| entry.unwrap());
        let entries: Vec<Entry> = entries.map(|e| (e.file_name(), Moody::kind(&e.path()))).collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        crate::common::MTIME
    }

    fn freshness(&self) -> Freshness {
        Freshness::Live
    }
}

impl TreeFile for Moody {
    fn stat(&self) -> Result<Stat> {
        self.0.ask()?;
        Ok(Stat {
            len: self.1.metadata().unwrap().len(),
            version: 0,
        })
    }

    fn mtime(&self) -> u64 {
        crate::common::MTIME
    }

    fn freshness(&self) -> Freshness {
        Freshness::Live
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        self.0.ask()?;
        let bytes = OpenMoody(self.0.clone(), fs::read(&self.1).unwrap());
        Ok(Arc::new(FileLayout::new(0, vec![Box::new(bytes)])?))
    }
}

struct OpenMoody(Arc<Switch>, Vec<u8>);

impl bytes::Bytes for OpenMoody {
    fn len(&self) -> u64 {
        bytes::Bytes::len(&self.1)
    }

    fn read(&self, range: Range<u64>, out: &mut bytes::Output) -> Result<()> {
        self.0.ask()?;
        bytes::Bytes::read(&self.1, range, out)
    }
}

/// The program, mounting a sample array from such a source.
struct Place {
    daemon: Child,
    mnt: TempDir,
    switch: Arc<Switch>,
    source: TestMount,
}

const TIMEOUT: Duration = Duration::from_secs(5);

/// The older fragment of the sample.
const FRAGMENT: &str = "__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22";

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample")
}

impl Place {
    fn new() -> Place {
        let switch = Arc::new(Switch(Mutex::new(Mood::Well), Condvar::new()));
        let root = Moody(switch.clone(), sample());
        let source = TestMount::with(
            root.node(NodeType::Directory),
            |filesystem| filesystem,
            // A thread for each request that may hang.
            |options| options.threads = 12,
        );
        let mnt = tempfile::tempdir().unwrap();
        let daemon = Command::new(env!("CARGO_BIN_EXE_tiledbfs"))
            .args(["mount", "-f"])
            .args([source.path(""), mnt.path().to_owned()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let place = Place {
            daemon,
            mnt,
            switch,
            source,
        };
        eventually("it is mounted", || place.is_mounted());
        place
    }

    fn shown(&self, path: &str) -> PathBuf {
        self.mnt.path().join("weather").join(path)
    }

    fn column(&self, name: &str) -> PathBuf {
        self.shown(&format!("fragments/{FRAGMENT}/columns/{name}/data.bin"))
    }

    fn is_mounted(&self) -> bool {
        mountinfo::mounted_at(self.mnt.path()).unwrap().is_some()
    }

    fn told(&self, parts: &[&str]) -> bool {
        let text = fs::read_to_string(self.mnt.path().join(".tiledbfs/errors.jsonl")).unwrap();
        text.lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    }

    fn unmount(&self, more: &[&str]) -> Output {
        let start = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_tiledbfs"))
            .arg("unmount")
            .args(more)
            .arg(self.mnt.path())
            .output()
            .unwrap();
        assert!(start.elapsed() < TIMEOUT, "{:?}: {output:?}", start.elapsed());
        output
    }

    /// Waits until the daemon has ended successfully.
    fn ends(&mut self) {
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            match self.daemon.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < end, "the daemon lives"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!((status.code(), status.signal()), (Some(0), None));
        assert!(!self.is_mounted());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.switch.set(Mood::Well);
        let _ = unmount_path(self.mnt.path(), true);
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// The bytes of a column, read without the faulty source.
fn intact(name: &str) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_tiledbfs"))
        .arg("cat")
        .arg(sample().join("weather"))
        .arg(format!("fragments/{FRAGMENT}/columns/{name}/data.bin"))
        .output()
        .unwrap();
    assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    output.stdout
}

#[test]
fn a_source_that_fails_and_mends() {
    let mut place = Place::new();
    let (wind, measured) = (intact("wind"), intact("measured"));
    let open = File::open(place.column("wind")).unwrap();
    let other = File::open(place.column("sky")).unwrap();
    assert!(fs::read(place.column("wind")).unwrap() == wind);
    let names = fs::read_dir(place.mnt.path()).unwrap().count();
    place.switch.set(Mood::Failing);
    std::thread::sleep(Duration::from_millis(400));
    // Reading uncached data needs the source.
    assert_eq!(errno(fs::read(place.column("measured"))), libc::EIO);
    assert_eq!(errno(other.read_at(&mut [0; 100], 0)), libc::EIO);
    assert!(place.told(&[
        "\"file\":\"weather/__fragments/",
        "\"path\":\"weather/fragments/",
        "os error 5"
    ]));
    // Cached data reads as before or gives an error, never anything else.
    let mut bytes = vec![0; wind.len()];
    match open.read_exact_at(&mut bytes, 0) {
        Ok(()) => assert!(bytes == wind),
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
    }
    let listed: io::Result<Vec<_>> = fs::read_dir(place.mnt.path()).and_then(Iterator::collect);
    if let Ok(listed) = listed {
        assert_eq!(listed.len(), names);
    }
    assert!(fs::read(place.mnt.path().join(".tiledbfs/version")).is_ok());
    place.switch.set(Mood::Well);
    eventually("it reads again", || {
        fs::read(place.column("measured")).is_ok_and(|bytes| bytes == measured)
    });
    assert!(fs::read(place.column("wind")).unwrap() == wind);
    other.read_at(&mut [0; 100], 0).unwrap();
    // It can be unmounted while the source fails.
    place.switch.set(Mood::Failing);
    drop((open, other));
    let output = place.unmount(&[]);
    assert!(output.status.success(), "{output:?}");
    place.ends();
}

#[test]
fn a_source_that_hangs_does_not_hold_up_unmounting() {
    for lazy in [true, false] {
        let mut place = Place::new();
        let open = File::open(place.column("wind")).unwrap();
        place.switch.set(Mood::Hanging);
        let (path, again) = (place.column("measured"), place.column("rain"));
        let readers = [
            std::thread::spawn(move || open.read_at(&mut [0; 100], 0)),
            std::thread::spawn(move || fs::read(path).map(|bytes| bytes.len())),
            std::thread::spawn(move || fs::read(again).map(|bytes| bytes.len())),
        ];
        std::thread::sleep(Duration::from_millis(500));
        assert!(readers.iter().any(|reader| !reader.is_finished()), "nobody waits");
        let output = place.unmount(&[]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            message.contains("is in use") && message.contains("--lazy"),
            "{message}"
        );
        if lazy {
            let output = place.unmount(&["--lazy"]);
            assert!(output.status.success(), "{output:?}");
            assert!(!place.is_mounted());
            // Blocked readers keep the file open: they continue when the source does.
            place.switch.set(Mood::Well);
            for reader in readers {
                reader.join().unwrap().unwrap();
            }
        } else {
            // SAFETY: a system call without pointers, on a process that this test has started.
            assert_eq!(unsafe { libc::kill(place.daemon.id() as i32, libc::SIGTERM) }, 0);
            let end = Instant::now() + TIMEOUT;
            while place.is_mounted() || readers.iter().any(|reader| !reader.is_finished()) {
                assert!(Instant::now() < end, "the mount or its readers are left");
                std::thread::sleep(Duration::from_millis(10));
            }
            for reader in readers {
                assert!(reader.join().unwrap().is_err());
            }
            // The kernel keeps a process as long as one of its requests to another FUSE file system is
            // unanswered.
            place.switch.set(Mood::Well);
        }
        place.ends();
    }
}

#[test]
fn a_source_that_dies() {
    let mut place = Place::new();
    let open = File::open(place.column("wind")).unwrap();
    let wind = intact("wind");
    // A broken connection, as when the source's daemon is killed: every call gives ENOTCONN or ECONNABORTED.
    crate::common::abort(&place.source.path(""));
    std::thread::sleep(Duration::from_millis(400));
    assert!(fs::read(place.column("measured")).is_err());
    assert_eq!(errno(open.read_at(&mut [0; 100], 0)), libc::EIO);
    assert!(place.told(&["\"path\":\"weather"]));
    assert!(fs::read(place.mnt.path().join(".tiledbfs/stats.json")).is_ok());
    assert!(!wind.is_empty());
    drop(open);
    assert!(place.unmount(&[]).status.success());
    place.ends();
}

#[test]
fn a_source_that_is_unmounted_lazily() {
    let mut place = Place::new();
    let wind = intact("wind");
    let open = File::open(place.column("wind")).unwrap();
    unmount_path(&place.source.path("").canonicalize().unwrap(), true).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    // Open files keep the source's files open, too.
    let mut bytes = vec![0; wind.len()];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == wind);
    assert!(fs::read(place.shown("schema.json")).is_err());
    let listed: io::Result<Vec<_>> = fs::read_dir(place.mnt.path()).and_then(Iterator::collect);
    assert_eq!(errno(listed), libc::EIO);
    assert!(fs::read(place.mnt.path().join(".tiledbfs/version")).is_ok());
    drop(open);
    assert!(place.unmount(&[]).status.success());
    place.ends();
}

/// Ends the threads of a test also when it fails.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_source_that_fails_now_and_then_gives_right_bytes_or_errors() {
    let place = Place::new();
    let names = ["wind", "measured", "temperature", "rain", "sky"];
    let wanted: Vec<_> = names.iter().map(|name| intact(name)).collect();
    let done = AtomicBool::new(false);
    let counts = Mutex::new((0, 0));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (place, wanted, done, counts) = (&place, &wanted, &done, &counts);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !done.load(Ordering::Relaxed) {
                    let i = random.below(5) as usize;
                    match fs::read(place.column(names[i])) {
                        Ok(bytes) => {
                            assert!(bytes == wanted[i], "{}", names[i]);
                            counts.lock().unwrap().0 += 1;
                        }
                        Err(error) => {
                            let code = error.raw_os_error().unwrap();
                            assert!([libc::EIO, libc::ENOENT, libc::ESTALE].contains(&code), "{error}");
                            counts.lock().unwrap().1 += 1;
                        }
                    }
                }
            });
        }
        let _end = SetWhenDropped(&done);
        for round in 0..20 {
            place.switch.set([Mood::Failing, Mood::Well][round % 2]);
            drop(fs::write("/proc/sys/vm/drop_caches", "3"));
            // Enough of either comes before the next round.
            let before = *counts.lock().unwrap();
            eventually("reads go on", || {
                let (read, failed) = *counts.lock().unwrap();
                match round % 2 {
                    0 => failed > before.1,
                    _ => read >= before.0 + 10,
                }
            });
        }
    });
    eventually("all of it reads", || {
        names
            .iter()
            .zip(&wanted)
            .all(|(name, bytes)| fs::read(place.column(name)).is_ok_and(|read| read == *bytes))
    });
}
