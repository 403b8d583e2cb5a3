//! State that all nodes of a tree share.

use super::joined_cache::JoinedCache;
use crate::catalog::Array;
use crate::catalog::group::OpenGroup;
use crate::catalog::pin::Pin;
use crate::engine::Engine;
use crate::error::Result;
use crate::export;
use crate::export::anndata::AnnData;
use crate::export::dataset::Dataset;
use crate::query::View;
use crate::runtime::{InUse, lock, shared_if};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// Shared by all nodes of a tree.
pub struct Context {
    /// The source.
    pub engine: Arc<Engine>,
    /// Arrays and groups in use, so that each is opened only once.
    arrays: InUse<PathBuf, Array>,
    groups: InUse<PathBuf, OpenGroup>,
    /// The arrays of which a state was found by its pin last: they remember it.
    pinned: Mutex<LruCache<PathBuf, Arc<Array>>>,
    /// The state in which the source, an array, is shown; None: as of now, or of the engine's time.
    pub pin: Option<Pin>,
    /// The data sets of groups.
    pub datasets: JoinedCache<PathBuf, Dataset>,
    /// The AnnData of measurements, by the paths of the experiment and of the measurement.
    pub anndata: JoinedCache<(PathBuf, PathBuf), AnnData>,
    /// The views in use, by array and state, so that each is opened and measured only once.
    pub views: InUse<(PathBuf, u64), View>,
    /// Those that nodes keep in use.
    kept: Mutex<KeptViews>,
    /// Whether directories of arrays list `at`.
    pub show_at: bool,
    /// Options of exports.
    pub exports: export::ExportOptions,
}

/// The most arrays that stay in memory because states of them were found by their pins.
const MAX_PINNED: NonZeroUsize = NonZeroUsize::new(64).unwrap();

impl Context {
    /// The context of a tree over `engine`: see the fields of the same names.
    pub fn new(engine: Arc<Engine>, pin: Option<Pin>, show_at: bool, exports: export::ExportOptions) -> Self {
        Context {
            engine,
            arrays: Mutex::default(),
            groups: Mutex::default(),
            pinned: Mutex::new(LruCache::new(MAX_PINNED)),
            pin,
            datasets: JoinedCache::default(),
            anndata: JoinedCache::default(),
            views: Mutex::default(),
            kept: Mutex::new(KeptViews {
                by_node: LruCache::unbounded(),
                bytes: 0,
                files: 0,
            }),
            show_at,
            exports,
        }
    }

    /// The array at `path`, shared while in use.
    pub fn array(&self, path: &Path) -> Arc<Array> {
        let make = || Array::new(self.engine.for_object(), path.to_path_buf());
        let is_good = |array: &Array| !array.engine.is_stale();
        shared_if(&self.arrays, path.to_path_buf(), is_good, make)
    }

    /// Keeps `array`, which remembers a state that was found by its pin.
    pub fn keep_pinned(&self, array: &Arc<Array>) {
        let before = lock(&self.pinned).push(array.path.clone(), array.clone());
        drop(before);
    }

    /// The group at `path`, shared while in use.
    pub fn group(&self, path: &Path) -> Arc<OpenGroup> {
        let make = || OpenGroup::new(self.engine.for_object(), path.to_path_buf());
        let is_good = |group: &OpenGroup| !group.engine().is_stale();
        shared_if(&self.groups, path.to_path_buf(), is_good, make)
    }

    /// Whether everything in the array at `path` is later than the time shown.
    pub fn is_later(&self, path: &Path) -> Result<bool> {
        let Some(at) = self.engine.at() else {
            return Ok(false);
        };
        let first = self.array(path).listing()?.instants().first().copied();
        Ok(first.is_some_and(|first| first > at))
    }
}

/// The last view of a node, which keeps it in use.
pub type LastView = Mutex<Option<Arc<View>>>;

/// What is known of the views that nodes keep in use: the kernel may know any number of nodes.
struct KeptViews {
    /// By the address of a node's last view; that which was asked for last in front.
    by_node: LruCache<usize, KeptView>,
    /// Of all of them together.
    bytes: u64,
    files: u64,
}

struct KeptView {
    last: Weak<LastView>,
    /// About how much memory it takes.
    bytes: u64,
    /// About how many files it holds open.
    files: u64,
}

impl KeptViews {
    fn subtract(&mut self, view: &KeptView) {
        self.bytes -= view.bytes;
        self.files -= view.files;
    }
}

impl Context {
    /// Keeps `view` in use as the last one of a node, and lets go of those that were asked for longest ago if
    /// all take more than a quarter of the cache, or of the files that may be open: they are made again when
    /// they are asked for.
    pub fn keep_view(&self, last: &Arc<LastView>, view: &Arc<View>) {
        let before = lock(last).replace(view.clone());
        let is_same = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, view));
        let node = Arc::as_ptr(last).addr();
        let mut kept = lock(&self.kept);
        if is_same && kept.by_node.get(&node).is_some() {
            return;
        }
        let view = KeptView {
            last: Arc::downgrade(last),
            bytes: view.memory(),
            files: view.held_files(),
        };
        kept.bytes += view.bytes;
        kept.files += view.files;
        if let Some((_, replaced)) = kept.by_node.push(node, view) {
            kept.subtract(&replaced);
        }
        let (most_bytes, most_files) = (self.engine.cache.capacity() / 4, self.engine.most_held_files());
        let mut let_go = Vec::new();
        while (kept.bytes > most_bytes || kept.files > most_files)
            && kept.by_node.len() > 1
            && let Some((_, view)) = kept.by_node.pop_lru()
        {
            kept.subtract(&view);
            let_go.push(view.last.upgrade().and_then(|last| lock(&last).take()));
        }
        // What it was made of is freed behind the lock.
        drop(kept);
    }
}
