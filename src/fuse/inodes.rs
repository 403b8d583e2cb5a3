//! The inodes that the kernel remembers.
//!
//! An entry lives from the first answer that names it until the kernel has forgotten it as often as it was named, so the table is
//! as large as the kernel's own. Numbers are a hash of the path: the same from one mount to the next.

use crate::stats::Stats;
use crate::tree::Node;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The root's number, fixed by FUSE.
pub(super) const ROOT: u64 = 1;

/// A node under the path by which the kernel knows it.
pub(super) struct Inode {
    pub(super) number: u64,
    /// None for the root. Kept alive for the path, even when the kernel has forgotten it.
    parent: Option<Arc<Inode>>,
    name: OsString,
    /// State of the path's hash after `name`.
    hash: u64,
    node: RwLock<Node>,
    /// The size that the kernel was last told.
    known_size: AtomicU64,
    pages: Mutex<Pages>,
}

/// From which state of a file the kernel's pages of it come.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Version and length at the last open that went through the page cache.
    pub(super) state: Option<(u64, u64)>,
    /// How many files opened so are still open.
    pub(super) users: u64,
}

impl Inode {
    /// The node as it was last looked up.
    pub(super) fn node(&self) -> Node {
        self.node.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The path from the root of the mount, without a leading `/`; what is not UTF-8 is replaced.
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

    /// The path of something named `name` in this directory.
    pub(super) fn path_of(&self, name: &OsStr) -> String {
        let (path, name) = (self.path(), name.to_string_lossy());
        if path.is_empty() {
            name.into_owned()
        } else {
            format!("{path}/{name}")
        }
    }

    /// The number of the directory that it is in; the root's is its own.
    pub(super) fn parent_number(&self) -> u64 {
        self.parent.as_ref().map_or(ROOT, |parent| parent.number)
    }

    /// The size that the kernel was last told.
    pub(super) fn known_size(&self) -> u64 {
        self.known_size.load(Ordering::Relaxed)
    }

    /// Notes the size that the kernel is being told.
    pub(super) fn set_known_size(&self, size: u64) {
        self.known_size.store(size, Ordering::Relaxed);
    }

    /// What the page cache holds.
    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inode {
    /// Frees a chain of parents one after the other: freed by recursion, a deep one would overflow the stack.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut inode) = parent.and_then(Arc::into_inner) {
            parent = inode.parent.take();
        }
    }
}

struct Slot {
    inode: Arc<Inode>,
    /// How often the kernel was told of it, less how often it has forgotten it.
    lookups: u64,
}

/// All inodes that the kernel remembers.
pub(super) struct Inodes {
    slots: RwLock<HashMap<u64, Slot>>,
    stats: Arc<Stats>,
}

impl Inodes {
    /// A table that holds `root` alone.
    pub(super) fn new(root: Node, stats: Arc<Stats>) -> Self {
        let inode = Arc::new(Inode {
            number: ROOT,
            parent: None,
            name: OsString::new(),
            hash: FNV_OFFSET,
            node: RwLock::new(root),
            known_size: AtomicU64::new(0),
            pages: Mutex::default(),
        });
        stats.inodes.set(1);
        Inodes {
            slots: RwLock::new(HashMap::from([(ROOT, Slot { inode, lookups: 1 })])),
            stats,
        }
    }

    /// The inode of that number; None when the kernel was never told of it, or has forgotten it.
    pub(super) fn get(&self, number: u64) -> Option<Arc<Inode>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.get(&number).map(|slot| slot.inode.clone())
    }

    /// The number that `name` in `parent` has, or would get.
    pub(super) fn number_of(&self, parent: &Inode, name: &OsStr) -> u64 {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        place(&slots, parent, name, hash(parent.hash, name))
    }

    /// The inode of `node`, which is `name` in `parent`, counting that the kernel is told of it once more.
    pub(super) fn remember(&self, parent: &Arc<Inode>, name: &OsStr, node: Node) -> Arc<Inode> {
        let hash = hash(parent.hash, name);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let number = place(&slots, parent, name, hash);
        match slots.entry(number) {
            Entry::Occupied(mut entry) => {
                let slot = entry.get_mut();
                slot.lookups = slot.lookups.saturating_add(1);
                let inode = slot.inode.clone();
                let old = {
                    let mut held = inode.node.write().unwrap_or_else(PoisonError::into_inner);
                    std::mem::replace(&mut *held, node)
                };
                drop(slots);
                drop(old);
                inode
            }
            Entry::Vacant(entry) => {
                let inode = Arc::new(Inode {
                    number,
                    parent: Some(parent.clone()),
                    name: name.to_os_string(),
                    hash,
                    node: RwLock::new(node),
                    known_size: AtomicU64::new(0),
                    pages: Mutex::default(),
                });
                entry.insert(Slot {
                    inode: inode.clone(),
                    lookups: 1,
                });
                self.stats.inodes.set(slots.len() as u64);
                inode
            }
        }
    }

    /// Takes back `count` of the times that the kernel was told of inode `number`.
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
            self.stats.inodes.set(slots.len() as u64);
            drop(slots);
            // What the node holds is freed without holding up the others.
            drop(slot);
        }
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a of a path, one component at a time: `state` is that of the parent.
fn hash(state: u64, name: &OsStr) -> u64 {
    name.as_bytes().iter().chain(b"/").fold(state, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

/// Spreads the hash over all bits (the finalizer of MurmurHash3).
fn spread(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The number of `name` in `parent`: its hash, or the next number that no other path has.
fn place(slots: &HashMap<u64, Slot>, parent: &Inode, name: &OsStr, hash: u64) -> u64 {
    let mut number = spread(hash);
    loop {
        // 0 means "none" to FUSE.
        if number > ROOT {
            match slots.get(&number) {
                None => return number,
                Some(slot) if slot.inode.name == name && slot.inode.parent_number() == parent.number => {
                    return number;
                }
                Some(_) => {}
            }
        }
        number = number.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::tree::{Directory, Freshness, Listing};

    struct Empty;

    impl Directory for Empty {
        fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
            Ok(None)
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

    fn node() -> Node {
        Node::Directory(Arc::new(Empty))
    }

    fn table() -> (Inodes, Arc<Stats>, Arc<Inode>) {
        let stats = Arc::new(Stats::default());
        let inodes = Inodes::new(node(), stats.clone());
        let root = inodes.get(ROOT).unwrap();
        (inodes, stats, root)
    }

    #[test]
    fn numbers_depend_on_the_path_alone() {
        let numbers = || {
            let (inodes, _, root) = table();
            let a = inodes.remember(&root, OsStr::new("a"), node());
            let b = inodes.remember(&a, OsStr::new("b"), node());
            (a.number, b.number)
        };
        assert_eq!(numbers(), numbers());
        let (inodes, _, root) = table();
        let ab = inodes.remember(&root, OsStr::new("ab"), node());
        assert_ne!(ab.number, numbers().1);
        assert_eq!(inodes.number_of(&root, OsStr::new("a")), numbers().0);
    }

    #[test]
    fn an_inode_lives_as_long_as_it_is_remembered() {
        let (inodes, stats, root) = table();
        let number = inodes.remember(&root, OsStr::new("a"), node()).number;
        assert_eq!(
            inodes.remember(&root, OsStr::new("a"), node()).number,
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
    fn a_taken_number_is_passed_over() {
        let (inodes, _, root) = table();
        let wanted = inodes.number_of(&root, OsStr::new("a"));
        let other = Arc::new(Inode {
            number: wanted,
            parent: Some(root.clone()),
            name: OsString::from("other"),
            hash: 0,
            node: RwLock::new(node()),
            known_size: AtomicU64::new(0),
            pages: Mutex::default(),
        });
        inodes.slots.write().unwrap().insert(
            wanted,
            Slot {
                inode: other,
                lookups: 1,
            },
        );
        let a = inodes.remember(&root, OsStr::new("a"), node());
        assert_eq!(a.number, wanted.wrapping_add(1));
        assert_eq!(inodes.number_of(&root, OsStr::new("a")), a.number);
    }

    #[test]
    fn paths_and_deep_chains() {
        let (inodes, _, root) = table();
        assert_eq!(root.path(), "");
        assert_eq!(root.path_of(OsStr::new("x")), "x");
        let mut inode = root;
        for _ in 0..200_000 {
            inode = inodes.remember(&inode, OsStr::new("d"), node());
        }
        assert!(inode.path().starts_with("d/d/"));
        let numbers: Vec<u64> = inodes.slots.read().unwrap().keys().copied().collect();
        for number in numbers {
            inodes.forget(number, 1);
        }
        // The chain is now held by its last link alone.
        drop(inode);
    }
}
