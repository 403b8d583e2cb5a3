//! Opens a source as a tree, and adds `.tiledbfs` to its root.

use super::FRESH;
use super::context::Context;
use super::directory::FixedDirectory;
use super::document::{Document, DocumentContent};
use super::errors::ErrorLog;
use super::node::{Directory, DirectoryKind, Entry, Freshness, Listing, Node, NodeType};
use super::object::object;
use super::permissions::Origin;
use super::position::Position;
use super::shown_group::ShownGroup;
use super::times::Asked;
use super::view_source::Viewed;
use crate::catalog::source::{ObjectKind, classify};
use crate::describe::{self, object};
use crate::engine::{Disorder, Engine};
use crate::error::{Error, ErrorKind, Result};
use crate::export;
use crate::filter::EncryptionKey;
use crate::format::MAX_VERSION;
use crate::runtime::lock;
use crate::runtime::stats::Stats;
use crate::runtime::work::Work;
use crate::storage::{LocalStorage, Storage};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Options for opening a source.
#[derive(Debug, Clone, Default)]
pub struct TreeOptions {
    /// Bound of the cache of decoded data, in bytes.
    pub cache_size: u64,
    /// Keys of encrypted arrays. A key is for the arrays at and below its path, which is relative to the
    /// source and empty for the source itself. The longest path wins.
    pub keys: Vec<(PathBuf, EncryptionKey)>,
    /// Whether to follow symbolic links that lead out of the source.
    pub follow_symlinks: bool,
    /// Shows everything as of the end of this time, or an array in the state of this pin; None means now.
    pub at: Option<Asked>,
    /// Whether directories of arrays list `at`.
    pub show_at: bool,
    /// Options of exports.
    pub exports: export::ExportOptions,
}

impl TreeOptions {
    /// Removes the size limits of exports, which do not apply to sequential reads.
    #[must_use]
    pub fn without_bounds(mut self) -> TreeOptions {
        self.exports.csv_values = u64::MAX;
        self
    }
}

/// An opened source.
pub struct Tree {
    /// The root directory.
    pub root: Node,
    /// The most recent errors.
    pub errors: Arc<ErrorLog>,
    /// Counters.
    pub stats: Arc<Stats>,
    /// The source of the tree, except of [`OWN_DIRECTORY`].
    pub storage: Arc<dyn Storage>,
    /// Whether users read who may not read everything: then names in the source are watched, so that nothing
    /// is shown to anybody on the strength of a file that another has replaced.
    pub guarded: Arc<AtomicBool>,
    /// The fragments whose cells are not in global order.
    pub disorder: Arc<Disorder>,
}

impl Tree {
    /// A tree of nodes without a source.
    #[cfg(any(test, feature = "internals"))]
    pub fn of_nodes(root: Node) -> Tree {
        Tree {
            root,
            errors: Arc::default(),
            stats: Arc::default(),
            storage: Arc::new(crate::storage::MemoryStorage::new()),
            guarded: Arc::default(),
            disorder: Arc::default(),
        }
    }

    /// Opens an array, a group or a plain directory, and reads only what is needed to classify it. Fails with
    /// `NotFound` if it does not exist, `InvalidInput` for a file, and `UnsupportedVersion` for an array of a
    /// version that is too new. For directories without arrays see [`Tree::is_bare`].
    pub fn open(source: &Path, options: &TreeOptions) -> Result<Tree> {
        let place = |e: Error| e.in_file(source.display());
        let metadata = std::fs::metadata(source).map_err(|e| place(Error::io(&e)))?;
        if !metadata.is_dir() {
            return Err(place(Error::new(
                ErrorKind::InvalidInput,
                "not a TileDB array, group or directory of these: it is a file",
            )));
        }
        let stats: Arc<Stats> = Arc::default();
        let storage = LocalStorage::new(source, options.follow_symlinks, stats.clone())?;
        Self::over(Arc::new(storage), options, stats).map_err(place)
    }

    /// Like [`Tree::open`] for any storage, which handles `options.follow_symlinks` itself.
    pub fn over(storage: Arc<dyn Storage>, options: &TreeOptions, stats: Arc<Stats>) -> Result<Tree> {
        let engine = Engine::new(
            storage.clone(),
            options.cache_size,
            options.keys.clone(),
            stats.clone(),
        );
        let engine = Arc::new(engine.fixed_at(options.at.map(Asked::end)));
        let pin = match options.at {
            Some(Asked::Pin(pin)) => Some(pin),
            _ => None,
        };
        let context = Arc::new(Context::new(
            engine.clone(),
            pin,
            options.show_at,
            options.exports,
        ));
        let top = Path::new("");
        // Kept until its node exists, so that its directories are read only once.
        let array = context.array(top);
        let is_array = classify(&engine, top)? == ObjectKind::Array;
        if is_array
            && let Err(e) = array.latest_schema()
            && e.kind() == ErrorKind::UnsupportedVersion
        {
            return Err(e);
        }
        if pin.is_some() && !is_array {
            let message = "not an array: a pin is the name of a state of one array";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let position = Position::root(context, object);
        warn_about_unused_keys(&position, &options.keys);
        let at = options.at;
        let open = move || match position.node(top)? {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(_) => Err(Error::internal("the root of the tree is no directory")),
            None => Err(match at {
                Some(_) => Error::not_found("nothing had been written at that time"),
                None => Error::internal("the source contains itself"),
            }),
        };
        let inner = open()?;
        drop(array);
        let errors: Arc<ErrorLog> = Arc::default();
        let own = own_directory(&engine, errors.clone());
        let remote_mtime = engine.storage.is_remote().then(|| {
            let known = engine.storage.metadata(top);
            Arc::new(RemoteMtime::new(known.map_or(0, |known| known.mtime)))
        });
        let root = RootDirectory {
            inner: Mutex::new((inner, Instant::now())),
            open: Box::new(open),
            own,
            remote_mtime,
        };
        Ok(Tree {
            root: Node::Directory(Arc::new(root)),
            errors,
            stats,
            storage,
            guarded: engine.guarded().clone(),
            disorder: engine.disorder.clone(),
        })
    }

    /// Whether the source has no array or group, at any depth; None if a short search does not find out.
    pub fn is_bare(&self) -> Option<bool> {
        let Node::Directory(root) = self.root.clone() else {
            return Some(false);
        };
        // In a thread of its own, because listing one directory may take longer than the search may.
        let (sender, answer) = channel();
        let until = Instant::now() + SEARCH_TIME;
        let _ = Builder::new().spawn(move || sender.send(is_bare(root, until)));
        answer.recv_timeout(SEARCH_TIME).ok().flatten()
    }
}

/// Whether there is an array or a group at `path` itself.
pub fn is_object(path: &Path) -> bool {
    let storage = LocalStorage::new(path, false, Arc::default());
    storage.is_ok_and(|storage| is_object_in(Arc::new(storage)))
}

/// Whether there is an array or a group at the root of `storage`.
pub fn is_object_in(storage: Arc<dyn Storage>) -> bool {
    let engine = Engine::new(storage, 1, Vec::new(), Arc::default());
    matches!(
        classify(&engine, Path::new("")),
        Ok(ObjectKind::Array | ObjectKind::Group)
    )
}

/// Warns of keys for paths at or below which no array is found.
fn warn_about_unused_keys(root: &Position, keys: &[(PathBuf, EncryptionKey)]) {
    let paths = keys.iter().map(|(path, _)| path.clone());
    let paths: Vec<PathBuf> = paths.filter(|path| !path.as_os_str().is_empty()).collect();
    if paths.is_empty() {
        return;
    }
    let root = root.clone();
    // Without a thread nobody is warned.
    let _ = Builder::new().spawn(move || {
        for path in paths {
            let found = match root.node(&path) {
                Ok(Some(Node::Directory(directory))) => {
                    is_bare(directory, Instant::now() + SEARCH_TIME) != Some(true)
                }
                Ok(_) => false,
                Err(e) => e.kind() != ErrorKind::NotFound,
            };
            if !found {
                log::warn!("a key is given for {path:?}, but no array is at or below it");
            }
        }
    });
}

/// Limits of the search for arrays and groups: time, and number of directories.
const SEARCH_TIME: Duration = Duration::from_millis(300);
const MAX_SEARCHED: usize = 10_000;

/// Whether neither `root` nor a directory below it is an array or a group; None if `until` or
/// [`MAX_SEARCHED`] was reached first, or one of them cannot be listed. Searches breadth-first.
fn is_bare(root: Arc<dyn Directory>, until: Instant) -> Option<bool> {
    // To list a group takes looking at all arrays in it.
    let is_object = |directory: &Arc<dyn Directory>| directory.kind() != DirectoryKind::Other;
    if is_object(&root) {
        return Some(false);
    }
    let mut waiting = VecDeque::from([root]);
    let (mut seen, mut all_listed) = (1, true);
    while let Some(directory) = waiting.pop_front() {
        let Ok(listing) = directory.list() else {
            all_listed = false;
            continue;
        };
        for (name, _) in listing.entries() {
            if seen > MAX_SEARCHED || Instant::now() > until {
                return None;
            }
            let own = seen == 1 && *name == *OWN_DIRECTORY;
            if !own && let Ok(Some(Node::Directory(below))) = directory.lookup(&name) {
                if is_object(&below) {
                    return Some(false);
                }
                waiting.push_back(below);
                seen += 1;
            }
        }
    }
    all_listed.then_some(true)
}

/// The name of the directory with information about the mount.
pub const OWN_DIRECTORY: &str = ".tiledbfs";

/// The source's root directory with [`OWN_DIRECTORY`].
struct RootDirectory {
    /// With the time when it was opened.
    inner: Mutex<(Arc<dyn Directory>, Instant)>,
    /// Opens the source's root directory.
    open: Box<dyn Fn() -> Result<Arc<dyn Directory>> + Send + Sync>,
    own: Node,
    /// None for a local source.
    remote_mtime: Option<Arc<RemoteMtime>>,
}

/// The modification time of a remote source. The kernel asks for it on every access to [`OWN_DIRECTORY`] and
/// for unmounting, which a store that does not answer must not block.
struct RemoteMtime {
    state: Mutex<RemoteMtimeState>,
    over: Condvar,
}

struct RemoteMtimeState {
    mtime: u64,
    /// Since when a thread has been asking for it.
    looking: Option<Instant>,
}

/// How long to wait for a current modification time.
const MTIME_WAIT: Duration = Duration::from_millis(500);

impl RemoteMtime {
    fn new(mtime: u64) -> RemoteMtime {
        let state = RemoteMtimeState { mtime, looking: None };
        RemoteMtime {
            state: Mutex::new(state),
            over: Condvar::new(),
        }
    }

    /// The modification time of `directory`, or the last known one.
    fn mtime(self: &Arc<Self>, directory: &Arc<dyn Directory>) -> u64 {
        let mut state = lock(&self.state);
        if state.looking.is_none() {
            let (remote_mtime, directory) = (self.clone(), directory.clone());
            let started = Builder::new().spawn(move || {
                let mtime = catch_unwind(AssertUnwindSafe(|| directory.mtime())).unwrap_or(0);
                let mut state = lock(&remote_mtime.state);
                state.looking = None;
                // 0 means unknown.
                if mtime != 0 {
                    state.mtime = mtime;
                }
                drop(state);
                remote_mtime.over.notify_all();
            });
            state.looking = started.ok().map(|_| Instant::now());
        }
        let Some(since) = state.looking else {
            return state.mtime;
        };
        let left = MTIME_WAIT.saturating_sub(since.elapsed());
        let looking = |state: &mut RemoteMtimeState| state.looking == Some(since);
        let waited = self.over.wait_timeout_while(state, left, looking);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.mtime
    }
}

impl RootDirectory {
    /// The source's root directory, opened anew if names were exchanged in it, and from time to time: an
    /// empty directory may have become an array.
    fn inner(&self) -> Result<Arc<dyn Directory>> {
        let (known, since) = lock(&self.inner).clone();
        let is_stale = Node::Directory(known.clone()).is_stale();
        if !is_stale && since.elapsed() < FRESH {
            return Ok(known);
        }
        match (self.open)() {
            Ok(opened) => {
                let before = std::mem::replace(&mut *lock(&self.inner), (opened.clone(), Instant::now()));
                // Behind the lock, because that may free much.
                drop(before);
                Ok(opened)
            }
            Err(error) if is_stale || !error.is_transient() => Err(error),
            Err(_) => Ok(known),
        }
    }

    /// What it was last, for what must not wait for a source that hangs; opened anew if names were exchanged
    /// in it and that works.
    fn last(&self) -> Arc<dyn Directory> {
        let known = lock(&self.inner).0.clone();
        match Node::Directory(known.clone()).is_stale() {
            true => self.inner().unwrap_or(known),
            false => known,
        }
    }
}

impl Directory for RootDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == OWN_DIRECTORY {
            Ok(Some(self.own.clone()))
        } else {
            self.inner()?.lookup(name)
        }
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let inner = self.inner()?.list()?;
        let mut entries: Vec<Entry> = vec![(OWN_DIRECTORY.into(), NodeType::Directory)];
        let names = inner.entries().filter(|(name, _)| **name != *OWN_DIRECTORY);
        entries.extend(names.map(|(name, kind)| (name.into_owned(), kind)));
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        match &self.remote_mtime {
            Some(remote_mtime) => remote_mtime.mtime(&self.last()),
            None => self.last().mtime(),
        }
    }

    fn kind(&self) -> DirectoryKind {
        self.last().kind()
    }

    fn viewed(&self) -> Option<Viewed> {
        self.last().viewed()
    }

    fn group(&self) -> Option<ShownGroup> {
        self.last().group()
    }

    fn freshness(&self) -> Freshness {
        self.last().freshness()
    }

    fn origin(&self) -> Origin {
        self.last().origin()
    }
}

/// `.tiledbfs/`. Errors show names and values, counters show accesses: only the mounting user may see them.
fn own_directory(engine: &Arc<Engine>, errors: Arc<ErrorLog>) -> Node {
    let mounted = crate::calendar::now();
    let names = ["version", "stats.json", "errors.jsonl", "work.json"].map(|name| (name, NodeType::File));
    let engine = engine.clone();
    FixedDirectory::node(mounted, Origin::Public, names.into(), move |name| {
        let document = |freshness| Document {
            engine: engine.clone(),
            of: PathBuf::from(OWN_DIRECTORY),
            name,
            mtime: mounted,
            freshness,
            origin: match name {
                "version" => Origin::Public,
                _ => Origin::Private,
            },
        };
        match name {
            "version" => {
                let (version, newest) = (env!("CARGO_PKG_VERSION"), MAX_VERSION);
                let text = format!("tiledbfs {version}\nformat versions 1 to {newest}\n");
                let render = move || Ok(DocumentContent::text(text.clone().into()));
                document(Freshness::Immutable).node(|| Some(0), render)
            }
            "stats.json" => {
                let stats = engine.stats.clone();
                document(Freshness::Live).node(|| None, move || Ok(DocumentContent::text(stats_json(&stats))))
            }
            "work.json" => {
                let engine = engine.clone();
                let render = move || Ok(DocumentContent::text(work_json(&engine.work)));
                document(Freshness::Live).node(|| None, render)
            }
            _ => {
                let (of_state, errors) = (errors.clone(), errors.clone());
                document(Freshness::Live).node(
                    move || Some(of_state.snapshot().1),
                    move || Ok(DocumentContent::text(errors.snapshot().0)),
                )
            }
        }
    })
}

/// Long-running work as JSON objects of `path`, `what`, `done`, `of`, `since` (ms since the Unix epoch).
fn work_json(work: &Work) -> Vec<u8> {
    let Ok(text) = describe::render_objects(&work.long(), |job| -> std::result::Result<_, Infallible> {
        Ok(object!({
            "path": job.path.clone(),
            "what": job.what,
            "done": job.done(),
            "of": job.of,
            "since": job.since,
        }))
    });
    text
}

/// The counters as JSON, padded to a fixed length, so that the length from `stat` holds for the next read.
fn stats_json(stats: &Stats) -> Vec<u8> {
    const PADDED_LENGTH: usize = 2048;
    let counters = stats.snapshot().into_iter();
    let mut out = describe::render(&counters.map(|(name, value)| (name, value.into())).collect());
    if out.len() < PADDED_LENGTH {
        out.pop();
        out.resize(PADDED_LENGTH - 1, b' ');
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A directory of forty such directories, without end. Counts those that were looked up.
    struct Endless(Arc<AtomicUsize>);

    impl Directory for Endless {
        fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Some(Node::Directory(Arc::new(Endless(self.0.clone())))))
        }

        fn list(&self) -> Result<Arc<dyn Listing>> {
            let entries = (0..40).map(|i| (i.to_string().into(), NodeType::Directory));
            Ok(Arc::new(entries.collect::<Vec<Entry>>()))
        }

        fn mtime(&self) -> u64 {
            0
        }
    }

    #[test]
    fn looking_for_arrays_ends_at_the_time_and_at_the_number() {
        let searched = |until: Instant| {
            let looked_up = Arc::new(AtomicUsize::new(0));
            assert_eq!(is_bare(Arc::new(Endless(looked_up.clone())), until), None);
            looked_up.load(Ordering::Relaxed)
        };
        let now = Instant::now();
        assert_eq!(searched(now + Duration::from_secs(3600)), MAX_SEARCHED);
        assert_eq!(searched(now), 0);
    }
}
