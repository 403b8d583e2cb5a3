//! State that all nodes of a tree share, and the nodes of the source's directories.

use super::array::ArrayDirectory;
use super::group::group;
use super::kept::Kept;
use super::node::{Directory, Entry, Listing, Node, NodeType};
use super::permissions::Origin;
use super::view::Views;
use crate::catalog::Array;
use crate::catalog::group::OpenGroup;
use crate::catalog::pin::Pin;
use crate::catalog::source::{ObjectKind, classify};
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::export;
use crate::export::anndata::AnnData;
use crate::export::dataset::Dataset;
use crate::runtime::lock;
use crate::storage::EntryType;
use lru::LruCache;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
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
    pin: Option<Pin>,
    /// The data sets of groups.
    pub datasets: Kept<PathBuf, Dataset>,
    /// The AnnData of measurements, by the paths of the experiment and of the measurement.
    pub anndata: Kept<(PathBuf, PathBuf), AnnData>,
    /// Views in use.
    pub views: Arc<Views>,
    /// Whether directories of arrays list `at`.
    pub show_at: bool,
    /// Options of exports.
    pub exports: export::Options,
}

/// The most arrays that stay in memory because states of them were found by their pins.
const MAX_PINNED: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The directories from the root to a node, so that cycles of groups or links do not make an endless tree.
#[derive(Clone, Default)]
pub struct Ancestors {
    /// The storage's identities of the directories.
    identities: Arc<Vec<u64>>,
    /// How many steps did not lead to a subdirectory.
    jumps: usize,
    /// The last two groups, if each led to the next directory by a member, and the names of these.
    groups: [Option<Arc<Step>>; 2],
}

/// A member by which a group leads to a directory.
pub struct Step {
    /// The group's directory.
    pub group: PathBuf,
    /// The member's name.
    pub name: Vec<u8>,
}

/// The limit of such steps. Through group members elsewhere and symbolic links, the number of paths to one
/// directory can grow exponentially.
const MAX_JUMPS: usize = 3;

impl Ancestors {
    /// Adds a directory; None if it is already among them.
    fn with(&self, identity: u64) -> Option<Ancestors> {
        if self.identities.contains(&identity) {
            return None;
        }
        let mut all = (*self.identities).clone();
        all.push(identity);
        Some(Ancestors {
            identities: Arc::new(all),
            ..self.clone()
        })
    }

    /// Adds the step by a member of a group.
    #[must_use]
    pub fn through(self, group: &Path, name: &[u8]) -> Ancestors {
        let [_, before] = self.groups;
        let step = Step {
            group: group.to_path_buf(),
            name: name.to_vec(),
        };
        Ancestors {
            groups: [before, Some(Arc::new(step))],
            ..self
        }
    }

    /// Forgets through which groups a path went, for a directory that is no member.
    #[must_use]
    pub fn elsewhere(self) -> Ancestors {
        Ancestors {
            groups: [None, None],
            ..self
        }
    }

    /// The last two steps by members of groups; None if the last two steps were others.
    pub fn steps(&self) -> Option<[&Step; 2]> {
        match &self.groups {
            [Some(first), Some(second)] => Some([first, second]),
            _ => None,
        }
    }

    /// Counts a step to a directory elsewhere, or to a duplicate member; None after [`MAX_JUMPS`].
    pub fn jump(&self) -> Option<Ancestors> {
        (self.jumps < MAX_JUMPS).then(|| Ancestors {
            jumps: self.jumps + 1,
            ..self.clone()
        })
    }
}

impl Context {
    /// The context of a tree over `engine`, with the fields of these names.
    pub fn new(engine: Arc<Engine>, pin: Option<Pin>, show_at: bool, exports: export::Options) -> Self {
        Context {
            engine,
            arrays: Mutex::default(),
            groups: Mutex::default(),
            pinned: Mutex::new(LruCache::new(MAX_PINNED)),
            pin,
            datasets: Kept::default(),
            anndata: Kept::default(),
            views: Arc::default(),
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

    /// The node of the source directory at `path`, a child of the last of `above`; None if it is one of
    /// `above`, or a symbolic link after too many jumps.
    pub fn child(self: &Arc<Self>, path: &Path, above: &Ancestors) -> Result<Option<Node>> {
        if !self.engine.storage.is_link(path) {
            return self.object(path, above);
        }
        match above.jump() {
            Some(above) => self.object(path, &above),
            None => Ok(None),
        }
    }

    /// The node of the source directory at `path`; None if it is one of `above`, or an array that was written
    /// later than the time shown.
    pub fn object(self: &Arc<Self>, path: &Path, above: &Ancestors) -> Result<Option<Node>> {
        let metadata = self.engine.storage.metadata(path)?;
        let Some(above) = above.with(metadata.identity) else {
            log::info!(
                "{}: ignored: it contains itself",
                self.engine.storage.display(path)
            );
            return Ok(None);
        };
        Ok(Some(match classify(&self.engine, path)? {
            ObjectKind::Array => {
                let directory = ArrayDirectory::new(self.clone(), self.array(path), above);
                let is_source = path.as_os_str().is_empty();
                Node::Directory(Arc::new(match self.pin.filter(|_| is_source) {
                    Some(pin) => directory.pinned(pin)?,
                    None if self.is_later(path)? => return Ok(None),
                    None => directory,
                }))
            }
            ObjectKind::Group => group(self.clone(), self.group(path), above, metadata.mtime),
            ObjectKind::Directory => Node::Directory(Arc::new(PlainDirectory {
                engine: self.engine.for_object(),
                context: self.clone(),
                path: path.to_path_buf(),
                above: above.elsewhere(),
                mtime: metadata.mtime,
            })),
        }))
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

/// Values by key, dropped when they are not in use any more.
pub type InUse<K, T> = Mutex<HashMap<K, Weak<T>>>;

/// The value in `all` for `key`, if it is still in use, else the result of `make`.
pub fn shared<K: Eq + Hash, T>(all: &InUse<K, T>, key: K, make: impl FnOnce() -> T) -> Arc<T> {
    shared_if(all, key, |_| true, make)
}

/// [`shared`], if the value is good.
fn shared_if<K: Eq + Hash, T>(
    all: &InUse<K, T>,
    key: K,
    is_good: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> Arc<T> {
    let mut all = lock(all);
    // Dropped behind the lock, because that may free much.
    let known = all.get(&key).and_then(Weak::upgrade);
    if let Some(known) = known.as_ref().filter(|known| is_good(known)) {
        return known.clone();
    }
    if all.len().is_power_of_two() {
        all.retain(|_, known| known.strong_count() > 0);
    }
    let made = Arc::new(make());
    all.insert(key, Arc::downgrade(&made));
    made
}

/// A plain directory of arrays, groups and directories. Children are classified when they are looked up, so
/// that a listing costs one `readdir`.
struct PlainDirectory {
    /// Its own.
    engine: Arc<Engine>,
    context: Arc<Context>,
    path: PathBuf,
    above: Ancestors,
    mtime: u64,
}

impl Directory for PlainDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let plain =
            matches!(Path::new(name).components().next(), Some(Component::Normal(only)) if only == name);
        if !plain {
            return Ok(None);
        }
        let path = self.path.join(name);
        match self.context.engine.storage.metadata(&path) {
            Ok(metadata) if metadata.entry_type == EntryType::Directory => {
                self.context.child(&path, &self.above)
            }
            Ok(_) => Ok(None),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let entries: Vec<Entry> = self
            .engine
            .storage
            .list(&self.path)?
            .into_iter()
            .filter(|entry| entry.entry_type == EntryType::Directory)
            .filter(|entry| !entry.linked || self.is_below(&entry.name))
            .map(|entry| (entry.name, NodeType::Directory))
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn origin(&self) -> Origin {
        Origin::Directory(self.engine.clone(), self.path.clone())
    }
}

impl PlainDirectory {
    /// Whether the child `name`, a symbolic link, is shown: not if it leads to an ancestor.
    fn is_below(&self, name: &OsStr) -> bool {
        matches!(self.lookup(name), Ok(Some(_)))
    }
}
