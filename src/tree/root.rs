//! Opening a source, and the root of its tree with `.tiledbfs`.

use super::context::{Ancestors, Context};
use super::directory::FixedDirectory;
use super::document::{Document, DocumentContent};
use super::errors::ErrorLog;
use super::json::{self, object};
use super::node::{Directory, Entry, Freshness, Listing, Node, NodeType};
use super::permissions::Origin;
use crate::array::engine::Engine;
use crate::array::source::{ObjectKind, classify};
use crate::array::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::export;
use crate::filter::EncryptionKey;
use crate::format::MAX_VERSION;
use crate::stats::Stats;
use crate::storage::{LocalStorage, Storage};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How a source is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Bound of the decoded-chunk cache, in bytes.
    pub cache_size: u64,
    /// Keys of encrypted arrays. A key counts for the array at its path (relative to the source, empty for
    /// the source itself) and for all below; where several do, the longest path wins.
    pub keys: Vec<(PathBuf, EncryptionKey)>,
    /// Whether symbolic links that lead out of the source are followed.
    pub follow_symlinks: bool,
    /// The time as of which everything is shown, in milliseconds since the Unix epoch; None: now.
    pub at: Option<u64>,
    /// Whether directories of arrays list `at`.
    pub show_at: bool,
    /// Which exports there are.
    pub exports: export::Options,
}

impl Options {
    /// The same without a limit for exports, for reading one from its first byte to its last.
    #[must_use]
    pub fn without_bounds(mut self) -> Options {
        self.exports.csv_values = u64::MAX;
        self
    }
}

/// An opened source, ready to be looked at.
pub struct Tree {
    /// The directory that a mount shows.
    pub root: Node,
    /// The most recent errors.
    pub errors: Arc<ErrorLog>,
    /// The counters.
    pub stats: Arc<Stats>,
    /// What the tree is made of; below [`OWN_DIRECTORY`] it is not.
    pub storage: Arc<dyn Storage>,
}

impl Tree {
    /// A tree of nodes that come from no source.
    #[cfg(any(test, feature = "internals"))]
    pub fn of_nodes(root: Node) -> Tree {
        Tree {
            root,
            errors: Arc::default(),
            stats: Arc::default(),
            storage: Arc::new(crate::storage::MemoryStorage::new()),
        }
    }

    /// Opens an array, a group or a plain directory. Reads no more than it needs to tell which: `NotFound`
    /// when there is nothing, `InvalidInput` for a file, `UnsupportedVersion` for a single array of a version
    /// that is too new. For a directory without any array see [`Tree::is_bare`].
    pub fn open(source: &Path, options: &Options) -> Result<Tree> {
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

    /// The same over any storage, which has to handle `options.follow_symlinks` itself.
    pub fn over(storage: Arc<dyn Storage>, options: &Options, stats: Arc<Stats>) -> Result<Tree> {
        let engine = Engine::new(
            storage.clone(),
            options.cache_size,
            options.keys.clone(),
            stats.clone(),
        );
        let engine = Arc::new(engine.fixed_at(options.at));
        let context = Arc::new(Context::new(engine.clone(), options.show_at, options.exports));
        let top = Path::new("");
        // Kept until its node exists, so that its directories are read once.
        let array = context.array(top);
        match classify(&engine, top)? {
            ObjectKind::Array => match array.latest_schema() {
                Err(e) if e.kind() == ErrorKind::UnsupportedVersion => return Err(e),
                _ => {}
            },
            ObjectKind::Group | ObjectKind::Directory => {}
        }
        warn_of_keys(&context, &options.keys);
        let inner = context
            .object(top, &Ancestors::default())?
            .ok_or_else(|| match options.at {
                Some(_) => Error::not_found("nothing had been written at that time"),
                None => Error::new(ErrorKind::Internal, "the source contains itself"),
            })?;
        drop(array);
        let errors: Arc<ErrorLog> = Arc::default();
        let own = own_directory(&engine, errors.clone());
        let root = match inner {
            Node::Directory(inner) => {
                let changed = engine.storage.is_remote().then(|| {
                    let known = engine.storage.metadata(top);
                    Arc::new(Changed::new(known.map_or(0, |known| known.mtime)))
                });
                Node::Directory(Arc::new(RootDirectory { inner, own, changed }))
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "the root of the tree is no directory",
                ));
            }
        };
        Ok(Tree {
            root,
            errors,
            stats,
            storage,
        })
    }

    /// Whether there is no array and no group in the source, at any depth; None if a short search does not
    /// find out.
    pub fn is_bare(&self) -> Option<bool> {
        let Node::Directory(root) = self.root.clone() else {
            return Some(false);
        };
        // In a thread of its own: listing one directory may take longer than the search may.
        let (sender, answer) = channel();
        let until = Instant::now() + LOOK.0;
        thread::spawn(move || sender.send(is_bare(root, until)));
        answer.recv_timeout(LOOK.0).ok().flatten()
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
fn warn_of_keys(context: &Arc<Context>, keys: &[(PathBuf, EncryptionKey)]) {
    let paths = keys.iter().map(|(path, _)| path.clone());
    let paths: Vec<PathBuf> = paths.filter(|path| !path.as_os_str().is_empty()).collect();
    if paths.is_empty() {
        return;
    }
    let context = context.clone();
    thread::spawn(move || {
        for path in paths {
            let found = match context.object(&path, &Ancestors::default()) {
                Ok(Some(Node::Directory(directory))) => {
                    is_bare(directory, Instant::now() + LOOK.0) != Some(true)
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

/// How long [`Tree::is_bare`] looks, and into how many directories.
const LOOK: (Duration, usize) = (Duration::from_millis(300), 10_000);

/// Whether neither `root` nor a directory below it is an array or a group; None if `until` or [`LOOK`] was
/// reached first. Directories near the root are searched first.
fn is_bare(root: Arc<dyn Directory>, until: Instant) -> Option<bool> {
    let mut waiting = VecDeque::from([root]);
    let mut seen = 1;
    while let Some(directory) = waiting.pop_front() {
        // What cannot be listed holds nothing that could be shown.
        let Ok(listing) = directory.list() else { continue };
        for (name, kind) in (0..listing.len()).filter_map(|i| listing.get(i)) {
            // Plain directories show no files.
            if kind == NodeType::File {
                return Some(false);
            }
            if seen > LOOK.1 || Instant::now() > until {
                return None;
            }
            let own = seen == 1 && *name == *OWN_DIRECTORY;
            if !own && let Ok(Some(Node::Directory(below))) = directory.lookup(&name) {
                waiting.push_back(below);
                seen += 1;
            }
        }
    }
    Some(true)
}

/// The name of the directory about the mount itself.
pub const OWN_DIRECTORY: &str = ".tiledbfs";

/// The source's directory, and [`OWN_DIRECTORY`] beside its entries.
struct RootDirectory {
    inner: Arc<dyn Directory>,
    own: Node,
    /// None where the source is one of this machine.
    changed: Option<Arc<Changed>>,
}

/// When a remote source was changed, as far as that is known. The kernel asks the root for it on every access
/// to [`OWN_DIRECTORY`], and so does unmounting: a store that does not answer must not block these.
struct Changed {
    state: Mutex<ChangedState>,
    over: Condvar,
}

struct ChangedState {
    mtime: u64,
    /// Since when a thread finds it out.
    looking: Option<Instant>,
}

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

impl Changed {
    fn new(mtime: u64) -> Changed {
        let state = ChangedState { mtime, looking: None };
        Changed {
            state: Mutex::new(state),
            over: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ChangedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of `directory`, or what it was when that was known last.
    fn mtime(self: &Arc<Self>, directory: &Arc<dyn Directory>) -> u64 {
        let mut state = self.state();
        let since = *state.looking.get_or_insert_with(|| {
            let (changed, directory) = (self.clone(), directory.clone());
            thread::spawn(move || {
                let mtime = catch_unwind(AssertUnwindSafe(|| directory.mtime())).unwrap_or(0);
                let mut state = changed.state();
                state.looking = None;
                // 0 is what cannot be told.
                if mtime != 0 {
                    state.mtime = mtime;
                }
                drop(state);
                changed.over.notify_all();
            });
            Instant::now()
        });
        let left = PATIENCE.saturating_sub(since.elapsed());
        let looking = |state: &mut ChangedState| state.looking == Some(since);
        let waited = self.over.wait_timeout_while(state, left, looking);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.mtime
    }
}

impl Directory for RootDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == OWN_DIRECTORY {
            Ok(Some(self.own.clone()))
        } else {
            self.inner.lookup(name)
        }
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let inner = self.inner.list()?;
        let mut entries: Vec<Entry> = vec![(OWN_DIRECTORY.into(), NodeType::Directory)];
        let names = (0..inner.len())
            .filter_map(|i| inner.get(i))
            .filter(|(name, _)| **name != *OWN_DIRECTORY);
        entries.extend(names.map(|(name, kind)| (name.into_owned(), kind)));
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        match &self.changed {
            Some(changed) => changed.mtime(&self.inner),
            None => self.inner.mtime(),
        }
    }

    fn freshness(&self) -> Freshness {
        self.inner.freshness()
    }

    fn origin(&self) -> Origin {
        self.inner.origin()
    }
}

/// `.tiledbfs/`. Errors contain names and values, and counters show what is read, so these are only for the
/// user who mounted it.
fn own_directory(engine: &Arc<Engine>, errors: Arc<ErrorLog>) -> Node {
    let mounted = crate::array::time::now();
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

/// Long-running work as JSON: an array of `path`, `what`, `done`, `of`, and `since`, in milliseconds since
/// the Unix epoch.
fn work_json(work: &Work) -> Vec<u8> {
    json::render_objects(&work.long(), |job| {
        object!({
            "path": job.path.clone(),
            "what": job.what,
            "done": job.done(),
            "of": job.of,
            "since": job.since,
        })
    })
}

/// The counters as JSON, padded to a fixed length, so that the size from `stat` still holds when the file is
/// read a moment later.
fn stats_json(stats: &Stats) -> Vec<u8> {
    const LENGTH: usize = 2048;
    let counters = stats.snapshot().into_iter();
    let mut out = json::render(&counters.map(|(name, value)| (name, value.into())).collect());
    if out.len() < LENGTH {
        out.pop();
        out.resize(LENGTH - 1, b' ');
        out.push(b'\n');
    }
    out
}
