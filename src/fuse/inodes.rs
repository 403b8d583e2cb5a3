//! The inodes that the kernel knows.
//!
//! An entry exists until the kernel has forgotten it as often as it was looked up. The kernel keeps names as
//! long as memory permits, so the table can be large, and its entries are small. Nodes, which hold metadata
//! of arrays, are kept only for the [`MAX_HELD_NODES`] most recently used entries; others are looked up again
//! by path. Inode numbers are hashes of paths, so they do not change between mounts.
//!
//! A file handle, as servers of NFS have, is an inode number. The kernel may ask for one that it has
//! forgotten, so the paths of the [`MAX_FORGOTTEN`] last ones are kept.
//!
//! Linux caches length and pages per inode, and does not tell which descriptor a `fstat` is for. So each
//! state of a mutable file ([`FileState`]) has its own inode, and an open file keeps its length and pages.
//! The first state that the kernel learns of has the hash of the path as its number, like directories and
//! immutable files. Other states have a hash of path and state. When the first is forgotten, another may get
//! its number, and has another generation.

use crate::error::Result;
use crate::runtime::lock;
use crate::runtime::stats::Stats;
use crate::tree::{FRESH, Node, known_since};
use lru::LruCache;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Instant;

/// The root's inode number, fixed by FUSE.
pub(super) const ROOT: u64 = 1;

/// Inodes besides the root that keep their nodes.
const MAX_HELD_NODES: usize = 4096;

/// The most inodes that are kept after the kernel has forgotten them; some 200 bytes each.
const MAX_FORGOTTEN: usize = 1 << 14;

/// A path that the kernel knows, and its node.
pub(super) struct Inode {
    pub(super) number: u64,
    /// None for the root. Kept alive for the path, even if the kernel has forgotten it.
    parent: Option<Arc<Inode>>,
    name: Box<OsStr>,
    /// The path's hash before [`spread`].
    hash: u64,
    /// None if it must be looked up again. With the time since when the path is known to lead to it.
    node: Mutex<Option<(Node, Instant)>>,
    /// Whether the node was used since it was last considered for eviction.
    used: AtomicBool,
    /// None unless this is a mutable file.
    state: Option<Box<FileState>>,
    /// None before the first open.
    pages: Mutex<Option<Box<Pages>>>,
}

/// One state of a mutable file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileState {
    /// The version, as [`crate::tree::Stat::version`].
    pub(super) version: u64,
    /// Length in bytes.
    pub(super) size: u64,
    /// Modification time in milliseconds since the Unix epoch, as of the inode's creation.
    pub(super) mtime: u64,
    /// The [generation](crate::engine::Engine::generation) of what it is made of.
    pub(super) generation: u64,
}

impl FileState {
    /// Tells states of one file apart.
    fn key(&self) -> u64 {
        self.version ^ self.generation.rotate_left(1)
    }
}

/// Which state of a file is in the kernel's page cache.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Pages {
    /// Version and length at the last open with the page cache.
    pub(super) state: Option<(u64, u64)>,
    /// Whether pages of the state before may still be there: the kernel drops them after it was told to, when
    /// it has the reply to an open.
    pub(super) stale: bool,
    /// The number of open handles that use the page cache.
    pub(super) users: u64,
    /// Up to this byte the file was read for direct I/O, and is on its way into the page cache.
    pub(super) sent: u64,
    /// How many of these bytes have arrived.
    pub(super) stored: u64,
}

impl Inode {
    fn new(
        number: u64,
        parent: Option<Arc<Inode>>,
        name: &OsStr,
        hash: u64,
        state: Option<FileState>,
    ) -> Inode {
        Inode {
            number,
            parent,
            name: name.into(),
            hash,
            node: Mutex::default(),
            used: AtomicBool::new(false),
            state: state.map(Box::new),
            pages: Mutex::default(),
        }
    }

    /// What is kept of the node. Marks it as used.
    fn held(&self) -> Option<(Node, Instant)> {
        let node = lock(&self.node).clone();
        self.used.store(true, Ordering::Relaxed);
        node
    }

    /// The path relative to the root, without a leading `/`. Invalid UTF-8 is replaced.
    pub(super) fn path(&self) -> String {
        let mut names = Vec::new();
        let mut inode = self;
        while let Some(parent) = &inode.parent {
            names.push(inode.name.to_string_lossy());
            inode = parent;
        }
        names.reverse();
        names.join("/")
    }

    /// The first component of the path; None for the root.
    pub(super) fn top(&self) -> Option<&OsStr> {
        let mut inode = self;
        loop {
            let parent = inode.parent.as_ref()?;
            if parent.parent.is_none() {
                return Some(&inode.name);
            }
            inode = parent;
        }
    }

    /// The path of `name` in this directory.
    pub(super) fn path_of(&self, name: &OsStr) -> String {
        let (path, name) = (self.path(), name.to_string_lossy());
        if path.is_empty() {
            name.into_owned()
        } else {
            format!("{path}/{name}")
        }
    }

    /// The inode number of the parent directory; the root is its own parent.
    pub(super) fn parent_number(&self) -> u64 {
        self.parent.as_ref().map_or(ROOT, |parent| parent.number)
    }

    /// The state, if this is a mutable file.
    pub(super) fn state(&self) -> Option<FileState> {
        self.state.as_deref().copied()
    }

    /// What a file handle has beside the number, of which the kernel keeps 32 bits: another one for each
    /// state, because a state may get the number of one that was forgotten. 0 of what has no states.
    pub(super) fn generation(&self) -> u64 {
        self.version().map_or(0, |version| spread(version) >> 32)
    }

    /// Whether this is `name` in `parent`, in any state.
    fn is(&self, parent: &Inode, name: &OsStr) -> bool {
        *self.name == *name && self.parent_number() == parent.number
    }

    fn version(&self) -> Option<u64> {
        self.state.as_ref().map(|state| state.key())
    }

    /// Calls `change` with the state of the page cache.
    pub(super) fn pages<T>(&self, change: impl FnOnce(&mut Pages) -> T) -> T {
        change(lock(&self.pages).get_or_insert_default())
    }
}

impl Drop for Inode {
    /// Drops a chain of parents in a loop, because recursion could overflow the stack.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut inode) = parent.and_then(Arc::into_inner) {
            parent = inode.parent.take();
        }
    }
}

struct Slot {
    inode: Arc<Inode>,
    /// The kernel's lookup count: lookups minus forgets.
    lookups: u64,
}

/// By number.
type Slots = HashMap<u64, Slot>;

/// An inode that the kernel has forgotten.
struct Forgotten {
    /// The number of the parent directory.
    parent: u64,
    name: Box<OsStr>,
    hash: u64,
    state: Option<FileState>,
}

/// The inode with this number, made again from what is known of it and of the directories above. None if one
/// of these is not known.
fn recall(slots: &Slots, forgotten: &mut LruCache<u64, Forgotten>, number: u64) -> Option<Arc<Inode>> {
    let (mut way, mut at) = (Vec::new(), number);
    let mut inode = loop {
        if let Some(slot) = slots.get(&at) {
            break slot.inode.clone();
        }
        // Numbers that other paths have got may form a circle.
        if way.len() > forgotten.len() {
            return None;
        }
        way.push(at);
        at = forgotten.get(&at)?.parent;
    };
    for number in way.into_iter().rev() {
        let known = forgotten.peek(&number)?;
        if hash(inode.hash, &known.name) != known.hash {
            return None;
        }
        inode = Arc::new(Inode::new(
            number,
            Some(inode),
            &known.name,
            known.hash,
            known.state,
        ));
    }
    Some(inode)
}

/// All inodes that the kernel knows.
pub(super) struct Inodes {
    slots: RwLock<Slots>,
    /// For mutable files, the number of the last state looked up, by the number of the path, if they differ.
    newest: Mutex<HashMap<u64, u64>>,
    /// Inodes that keep their nodes, in eviction order. The kernel may have forgotten some meanwhile.
    held: Mutex<VecDeque<Weak<Inode>>>,
    /// By number. Locked after `slots`.
    forgotten: Mutex<LruCache<u64, Forgotten>>,
    /// [`MAX_HELD_NODES`], except in tests.
    pub(super) most_held: usize,
    stats: Arc<Stats>,
}

impl Inodes {
    /// A table with only the root.
    pub(super) fn new(root: Node, stats: Arc<Stats>) -> Self {
        let inode = Arc::new(Inode::new(ROOT, None, OsStr::new(""), FNV_OFFSET, None));
        *lock(&inode.node) = Some((root, Instant::now()));
        stats.inodes.set(1);
        Inodes {
            slots: RwLock::new(HashMap::from([(ROOT, Slot { inode, lookups: 1 })])),
            newest: Mutex::default(),
            held: Mutex::default(),
            forgotten: Mutex::new(LruCache::unbounded()),
            most_held: MAX_HELD_NODES,
            stats,
        }
    }

    /// The inode with this number; None if the kernel does not know it.
    pub(super) fn get(&self, number: u64) -> Option<Arc<Inode>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(&number).map(|slot| slot.inode.clone())
    }

    /// The number that `name` in `parent` has or would get; of a mutable file, that of its last state.
    pub(super) fn number_of(&self, parent: &Inode, name: &OsStr) -> u64 {
        let hash = hash(parent.hash, name);
        if let Some(newest) = lock(&self.newest).get(&spread(hash)) {
            return *newest;
        }
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        match slots.get(&spread(hash)) {
            Some(slot) if slot.inode.is(parent, name) => slot.inode.number,
            _ => number(&slots, parent, name, None, hash),
        }
    }

    /// The inode of `node`, which is `name` in `parent`, created if need be. Adds one to its lookup count.
    /// Mutable files have a `state`.
    pub(super) fn remember(
        &self,
        parent: &Arc<Inode>,
        name: &OsStr,
        state: Option<FileState>,
        node: Node,
    ) -> Arc<Inode> {
        let hash = hash(parent.hash, name);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let number = number(&slots, parent, name, state.map(|state| state.key()), hash);
        if state.is_some() {
            let mut newest = lock(&self.newest);
            match number == spread(hash) {
                true => newest.remove(&number),
                false => newest.insert(spread(hash), number),
            };
        }
        let inode = match slots.entry(number) {
            Entry::Occupied(mut entry) => {
                let slot = entry.get_mut();
                slot.lookups += 1;
                slot.inode.clone()
            }
            Entry::Vacant(entry) => {
                let inode = Arc::new(Inode::new(number, Some(parent.clone()), name, hash, state));
                entry.insert(Slot {
                    inode: inode.clone(),
                    lookups: 1,
                });
                self.stats.inodes.set(slots.len() as u64);
                // Also if the number was that of another path.
                lock(&self.forgotten).pop(&number);
                inode
            }
        };
        drop(slots);
        // The parent's own path led to it a moment ago.
        let since = match &parent.parent {
            Some(_) => parent.held().map_or_else(Instant::now, |(_, since)| since),
            None => Instant::now(),
        };
        self.hold(&inode, node, known_since(since));
        inode
    }

    /// The inode with this number, or its parent (the root's is the root), even if the kernel has forgotten
    /// it. Adds one to its lookup count. None if it is not known any more.
    pub(super) fn look_up_number(&self, number: u64, parent: bool) -> Option<Arc<Inode>> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let known = recall(&slots, &mut lock(&self.forgotten), number)?;
        let wanted = match (&known.parent, parent) {
            (Some(parent), true) => parent.clone(),
            _ => known,
        };
        let slot = slots.entry(wanted.number).or_insert_with(|| Slot {
            inode: wanted.clone(),
            lookups: 0,
        });
        // Another path may have got the number of a directory that was forgotten.
        if slot.inode.hash != wanted.hash || slot.inode.name != wanted.name {
            return None;
        }
        slot.lookups += 1;
        let inode = slot.inode.clone();
        lock(&self.forgotten).pop(&wanted.number);
        self.stats.inodes.set(slots.len() as u64);
        Some(inode)
    }

    /// The node of `inode`, looked up again by its path if it was not kept, is older than [`FRESH`] or
    /// `is_stale`: who stays in a directory does not look it up. None if its path does not exist any more.
    pub(super) fn node(&self, inode: &Arc<Inode>, is_stale: impl Fn(&Node) -> bool) -> Result<Option<Node>> {
        let mut way = Vec::new();
        let mut at = inode;
        let (mut node, mut since) = loop {
            match (at.held(), &at.parent) {
                (Some((root, _)), None) => break (root, Instant::now()),
                (Some((node, since)), Some(_)) if since.elapsed() < FRESH && !is_stale(&node) => {
                    break (node, since);
                }
                (_, Some(parent)) => {
                    way.push(at);
                    at = parent;
                }
                (_, None) => return Ok(None),
            }
        };
        for inode in way.into_iter().rev() {
            let Node::Directory(directory) = &node else {
                return Ok(None);
            };
            let Some(next) = directory.lookup(&inode.name)? else {
                return Ok(None);
            };
            since = known_since(since);
            self.hold(inode, next.clone(), since);
            node = next;
        }
        Ok(Some(node))
    }

    /// Adds one to the lookup count of `inode`, which the kernel has looked up and not forgotten: the number
    /// stays that of this state until [`forget`](Inodes::forget), whatever the kernel forgets.
    pub(super) fn keep(&self, inode: &Arc<Inode>) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots
            .get_mut(&inode.number)
            .expect("the inode of an open file is known");
        assert!(
            Arc::ptr_eq(&slot.inode, inode),
            "the inode of an open file keeps its number"
        );
        slot.lookups += 1;
    }

    /// Puts a node into its inode, and evicts the least recently used nodes (second-chance algorithm).
    fn hold(&self, inode: &Arc<Inode>, node: Node, since: Instant) {
        // Nodes are dropped after the locks are released, because they may free much.
        let old = lock(&inode.node).replace((node, since));
        if old.is_some() {
            return;
        }
        let mut evicted = Vec::new();
        let mut held = lock(&self.held);
        held.push_back(Arc::downgrade(inode));
        // Twice, because each has a second chance.
        for _ in 0..self.most_held.saturating_mul(2) {
            if held.len() <= self.most_held {
                break;
            }
            let Some(oldest) = held.pop_front() else { break };
            match oldest.upgrade() {
                Some(inode) if inode.used.swap(false, Ordering::Relaxed) => held.push_back(oldest),
                Some(inode) => {
                    let node = lock(&inode.node).take();
                    evicted.push((node, inode));
                }
                None => {}
            }
        }
        drop(held);
        drop(evicted);
    }

    /// Subtracts `count` from the lookup count of inode `number`, and removes the inode at 0.
    pub(super) fn forget(&self, number: u64, count: u64) {
        if number == ROOT {
            return;
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let Entry::Occupied(mut entry) = slots.entry(number) else {
            return;
        };
        let slot = entry.get_mut();
        slot.lookups = slot.lookups.saturating_sub(count);
        if slot.lookups == 0 {
            let slot = entry.remove();
            if slot.inode.state.is_some() {
                let mut newest = lock(&self.newest);
                if let Entry::Occupied(entry) = newest.entry(spread(slot.inode.hash))
                    && *entry.get() == number
                {
                    entry.remove();
                }
            }
            self.stats.inodes.set(slots.len() as u64);
            if slots.len() < slots.capacity() / 8 {
                let room = slots.len().saturating_mul(2);
                slots.shrink_to(room);
            }
            let mut forgotten = lock(&self.forgotten);
            let known = Forgotten {
                parent: slot.inode.parent_number(),
                name: slot.inode.name.clone(),
                hash: slot.inode.hash,
                state: slot.inode.state(),
            };
            forgotten.put(number, known);
            if forgotten.len() > MAX_FORGOTTEN {
                forgotten.pop_lru();
            }
            drop(forgotten);
            drop(slots);
            drop(slot);
        }
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a of a path; `state` is the hash of the parent's path.
fn hash(state: u64, name: &OsStr) -> u64 {
    name.as_bytes().iter().chain(b"/").fold(state, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

/// The finalizer of MurmurHash3, which spreads the hash over all bits.
fn spread(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The number of `name` in `parent`, in the state `version` of a mutable file: a hash, or the next free one.
fn number(slots: &Slots, parent: &Inode, name: &OsStr, version: Option<u64>, hash: u64) -> u64 {
    let is_it = |slot: &Slot| slot.inode.is(parent, name) && slot.inode.version() == version;
    let mut number = spread(hash);
    if let Some(version) = version {
        let of_state = spread(hash ^ version.wrapping_mul(FNV_PRIME));
        let taken = slots.get(&number).is_some_and(|slot| !is_it(slot));
        if taken || slots.get(&of_state).is_some_and(is_it) {
            number = of_state;
        }
    }
    loop {
        // 0 means "none" to FUSE.
        if number > ROOT && slots.get(&number).is_none_or(is_it) {
            return number;
        }
        number = number.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::tree::memory::folder;
    use crate::tree::{Directory, Freshness, Listing};

    /// An empty directory.
    fn node() -> Node {
        folder(0, Freshness::Immutable, Vec::new())
    }

    fn table() -> (Inodes, Arc<Stats>, Arc<Inode>) {
        let stats = Arc::new(Stats::default());
        let inodes = Inodes::new(node(), stats.clone());
        let root = inodes.get(ROOT).unwrap();
        (inodes, stats, root)
    }

    #[test]
    fn numbers_depend_only_on_the_path() {
        let numbers = || {
            let (inodes, _, root) = table();
            let a = inodes.remember(&root, OsStr::new("a"), None, node());
            let b = inodes.remember(&a, OsStr::new("b"), None, node());
            (a.number, b.number)
        };
        assert_eq!(numbers(), numbers());
        let (inodes, _, root) = table();
        let ab = inodes.remember(&root, OsStr::new("ab"), None, node());
        assert_ne!(ab.number, numbers().1);
        assert_eq!(inodes.number_of(&root, OsStr::new("a")), numbers().0);
    }

    #[test]
    fn inodes_exist_until_they_are_forgotten() {
        let (inodes, stats, root) = table();
        let number = inodes.remember(&root, OsStr::new("a"), None, node()).number;
        assert_eq!(
            inodes.remember(&root, OsStr::new("a"), None, node()).number,
            number,
            "the same name is the same inode"
        );
        inodes.forget(number, 1);
        assert!(inodes.get(number).is_some());
        assert_eq!(stats.inodes.get(), 2);
        inodes.forget(number, 1);
        inodes.forget(ROOT, 1);
        assert!(inodes.get(ROOT).is_some());
        assert!(inodes.get(number).is_none());
        assert_eq!(stats.inodes.get(), 1);
    }

    #[test]
    fn mutable_files_have_an_inode_for_each_state() {
        let (inodes, stats, root) = table();
        let remember = |version, size| {
            let state = FileState {
                version,
                size,
                mtime: 0,
                generation: 0,
            };
            inodes.remember(&root, OsStr::new("f"), Some(state), node())
        };
        let (one, two, again) = (remember(1, 10), remember(2, 20), remember(1, 10));
        assert_ne!(one.number, two.number);
        assert_eq!(one.number, again.number);
        assert_eq!(stats.inodes.get(), 3);
        assert_eq!(two.state().map(|state| state.size), Some(20));
        let listed = || inodes.number_of(&root, OsStr::new("f"));
        assert_eq!(listed(), one.number, "the state that was looked up last");
        let third = remember(3, 30);
        assert_eq!(listed(), third.number);
        // The second state keeps its number, although the number of the path is free.
        inodes.forget(one.number, 2);
        assert_eq!(remember(2, 20).number, two.number);
        assert_eq!(listed(), two.number);
        inodes.forget(third.number, 1);
        inodes.forget(two.number, 2);
        assert!(lock(&inodes.newest).is_empty());
        assert_eq!(listed(), one.number);
        assert_eq!(remember(3, 30).number, one.number);
    }

    #[test]
    fn a_number_is_not_that_of_another_state_while_its_inode_is_kept() {
        let (inodes, stats, root) = table();
        let remember = |version| {
            let state = FileState {
                version,
                size: 10,
                mtime: 0,
                generation: 0,
            };
            inodes.remember(&root, OsStr::new("f"), Some(state), node())
        };
        let one = remember(1);
        inodes.keep(&one);
        inodes.forget(one.number, 1);
        let two = remember(2);
        assert_ne!(one.number, two.number);
        assert!(Arc::ptr_eq(&one, &remember(1)));
        inodes.forget(one.number, 2);
        inodes.forget(two.number, 1);
        assert_eq!(stats.inodes.get(), 1);
        assert_eq!(remember(2).number, one.number);
    }

    #[test]
    fn forgotten_inodes_are_found_by_number_for_a_while() {
        let (inodes, stats, root) = table();
        let d = inodes.remember(&root, OsStr::new("d"), None, node()).number;
        let state = FileState {
            version: 1,
            size: 10,
            mtime: 0,
            generation: 0,
        };
        let f = inodes.remember(&inodes.get(d).unwrap(), OsStr::new("f"), Some(state), node());
        let (f, path) = (f.number, f.path());
        assert!(inodes.look_up_number(f.wrapping_add(1), false).is_none());
        inodes.forget(f, 1);
        inodes.forget(d, 1);
        assert_eq!((inodes.get(f).is_none(), stats.inodes.get()), (true, 1));
        let again = inodes.look_up_number(f, false).unwrap();
        assert_eq!((again.path(), again.state()), (path, Some(state)));
        assert_eq!(inodes.look_up_number(f, true).unwrap().number, d);
        assert_eq!(inodes.look_up_number(d, true).unwrap().number, ROOT);
        assert_eq!(inodes.look_up_number(ROOT, true).unwrap().number, ROOT);
        assert_eq!(stats.inodes.get(), 3);
        // Each counts as one lookup.
        inodes.forget(f, 1);
        inodes.forget(d, 1);
        assert!(inodes.get(f).is_none() && inodes.get(d).is_none());
        // The same name is the same number as before.
        assert_eq!(inodes.remember(&root, OsStr::new("d"), None, node()).number, d);
        for i in 0..MAX_FORGOTTEN {
            let number = inodes
                .remember(&root, OsStr::new(&format!("{i}")), None, node())
                .number;
            inodes.forget(number, 1);
        }
        assert!(inodes.look_up_number(f, false).is_none());
        assert!(lock(&inodes.forgotten).len() <= MAX_FORGOTTEN);
    }

    /// A directory with every name; all are such directories and share one `Arc`, which counts nodes.
    struct Endless(Arc<()>);

    impl Directory for Endless {
        fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
            Ok(Some(Node::Directory(Arc::new(Endless(self.0.clone())))))
        }
        fn list(&self) -> Result<Arc<dyn Listing>> {
            Ok(Arc::new(Vec::new()))
        }
        fn mtime(&self) -> u64 {
            0
        }
        fn freshness(&self) -> Freshness {
            Freshness::Immutable
        }
    }

    #[test]
    fn few_nodes_are_kept_for_many_inodes() {
        let shared = Arc::new(());
        let node = || Node::Directory(Arc::new(Endless(shared.clone())));
        let stats = Arc::new(Stats::default());
        let inodes = Inodes::new(node(), stats.clone());
        let top = inodes.remember(&inodes.get(ROOT).unwrap(), OsStr::new("top"), None, node());
        for i in 0..3 * MAX_HELD_NODES {
            inodes.remember(&top, OsStr::new(&format!("{i}")), None, node());
        }
        assert_eq!(stats.inodes.get() as usize, 3 * MAX_HELD_NODES + 2);
        assert!(Arc::strong_count(&shared) <= MAX_HELD_NODES + 3);
        // Looked up again, and kept again.
        let first = inodes.get(inodes.number_of(&top, OsStr::new("0"))).unwrap();
        assert!(lock(&first.node).is_none());
        assert!(inodes.node(&first, |_| false).unwrap().is_some());
        assert!(lock(&first.node).is_some());
        // Inodes are small, because the kernel may know many.
        assert!(size_of::<Inode>() <= 120, "{}", size_of::<Inode>());
        let numbers: Vec<u64> = inodes.slots.read().unwrap().keys().copied().collect();
        for number in numbers {
            inodes.forget(number, 1);
        }
        drop((first, top));
        // The root's node and `shared`.
        assert_eq!(Arc::strong_count(&shared), 2);
        assert!(inodes.slots.read().unwrap().capacity() < MAX_HELD_NODES);
    }

    #[test]
    fn taken_numbers_are_skipped() {
        let (inodes, _, root) = table();
        let wanted = inodes.number_of(&root, OsStr::new("a"));
        let other = Inode::new(wanted, Some(root.clone()), OsStr::new("other"), 0, None);
        let other = Arc::new(other);
        inodes.slots.write().unwrap().insert(
            wanted,
            Slot {
                inode: other,
                lookups: 1,
            },
        );
        let a = inodes.remember(&root, OsStr::new("a"), None, node());
        assert_eq!(a.number, wanted.wrapping_add(1));
        assert_eq!(inodes.number_of(&root, OsStr::new("a")), a.number);
    }

    #[test]
    fn deep_paths_do_not_overflow_the_stack() {
        let (inodes, _, root) = table();
        assert_eq!(root.path(), "");
        assert_eq!(root.path_of(OsStr::new("x")), "x");
        let mut inode = root;
        for _ in 0..200_000 {
            inode = inodes.remember(&inode, OsStr::new("d"), None, node());
        }
        assert!(inode.path().starts_with("d/d/"));
        let numbers: Vec<u64> = inodes.slots.read().unwrap().keys().copied().collect();
        for number in numbers {
            inodes.forget(number, 1);
        }
        // Drops the last reference to the chain.
        drop(inode);
    }
}
