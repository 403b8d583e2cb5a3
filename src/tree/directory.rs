//! Directories in which a lookup creates only the requested node.

use super::node::{Directory, DirectoryKind, Entry, Freshness, Listing, Node, NodeType};
use super::permissions::Origin;
use super::shown_group::ShownGroup;
use crate::error::{Error, Result};
use crate::runtime::lock;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, Weak};

/// A directory with a fixed set of names.
pub struct FixedDirectory<F> {
    names: Vec<(&'static str, NodeType)>,
    node: F,
    mtime: u64,
    origin: Origin,
}

impl<F: Fn(&'static str) -> Node + Send + Sync + 'static> FixedDirectory<F> {
    /// A directory of `names`; `node` creates the node of a name.
    pub fn node(mtime: u64, origin: Origin, names: Vec<(&'static str, NodeType)>, node: F) -> Node {
        Node::Directory(Arc::new(FixedDirectory {
            names,
            node,
            mtime,
            origin,
        }))
    }
}

/// The listing of `names`.
pub fn fixed_listing(names: &[(&'static str, NodeType)]) -> Arc<dyn Listing> {
    let entries = names.iter().map(|(name, kind)| (OsString::from(name), *kind));
    Arc::new(entries.collect::<Vec<Entry>>())
}

impl<F: Fn(&'static str) -> Node + Send + Sync> Directory for FixedDirectory<F> {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let known = self.names.iter().find(|(known, _)| *known == name);
        Ok(known.map(|(name, _)| (self.node)(name)))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(fixed_listing(&self.names))
    }

    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn origin(&self) -> Origin {
        self.origin.clone()
    }
}

/// The content of a [`NamedDirectory`]: names that are derived from data, and their nodes.
pub trait Names: Send + Sync + 'static {
    /// The data from which the names are derived.
    type From: Send + Sync;

    /// The current data: the same `Arc` while nothing has changed.
    fn from(&self) -> Result<Arc<Self::From>>;

    /// All names, without duplicates.
    fn names(&self, from: &Self::From) -> Vec<String>;

    /// The node of name `index`; None if it is not shown.
    fn node(&self, from: &Arc<Self::From>, index: usize) -> Result<Option<Node>>;

    /// The node of a name that does not depend on the data; None if this one does. It is there also if the
    /// data cannot be read.
    fn fixed(&self, name: &OsStr) -> Option<Node> {
        let _ = name;
        None
    }

    /// The type of name `index`. None if only the node tells the type, or whether it is shown.
    fn kind(&self, index: usize) -> Option<NodeType>;

    /// The node of another name, or of a name whose own node is not shown; None if there is none. Fails with
    /// `NotFound` if there is a reason for that.
    fn other(&self, from: &Self::From, name: &OsStr) -> Result<Option<Node>> {
        let _ = (from, name);
        Ok(None)
    }

    /// Those of the other names that listings show. `shown` has what the directory of each name shows; None
    /// of names without one.
    fn listed_others(
        &self,
        from: &Self::From,
        shown: &[Option<DirectoryKind>],
    ) -> Vec<(&'static str, NodeType)> {
        let _ = (from, shown);
        Vec::new()
    }

    /// What the directory shows.
    fn shows(&self) -> DirectoryKind {
        DirectoryKind::Other
    }

    /// The group that the directory shows, as in [`Directory::group`].
    fn group(&self) -> Option<ShownGroup> {
        None
    }
}

/// A directory of any number of names, which are computed once per state of the data.
pub struct NamedDirectory<N: Names> {
    inner: N,
    mtime: u64,
    freshness: Freshness,
    origin: Origin,
    known: Mutex<Option<NameIndex<N::From>>>,
}

/// The index of each name, and the data from which the names are derived.
struct NameIndex<T> {
    from: Weak<T>,
    indexes: Arc<HashMap<String, usize>>,
}

impl<N: Names> NamedDirectory<N> {
    /// A directory node. `origin` decides who may see it.
    pub fn node(mtime: u64, freshness: Freshness, origin: Origin, inner: N) -> Node {
        Node::Directory(Arc::new(NamedDirectory {
            inner,
            mtime,
            freshness,
            origin,
            known: Mutex::default(),
        }))
    }

    fn indexes(&self, from: &Arc<N::From>) -> Arc<HashMap<String, usize>> {
        let mut known = lock(&self.known);
        if let Some(known) = &*known
            && known.from.as_ptr() == Arc::as_ptr(from)
        {
            return known.indexes.clone();
        }
        let names = self.inner.names(from).into_iter().enumerate();
        let indexes: Arc<HashMap<_, _>> = Arc::new(names.map(|(index, name)| (name, index)).collect());
        *known = Some(NameIndex {
            from: Arc::downgrade(from),
            indexes: indexes.clone(),
        });
        indexes
    }
}

impl<N: Names> Directory for NamedDirectory<N> {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if let Some(node) = self.inner.fixed(name) {
            return Ok(Some(node));
        }
        let from = self.inner.from()?;
        let index = name
            .to_str()
            .and_then(|name| self.indexes(&from).get(name).copied());
        let node = match index {
            Some(index) => self.inner.node(&from, index)?,
            None => None,
        };
        match node {
            Some(node) => Ok(Some(node)),
            None => self.inner.other(&from, name),
        }
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let from = self.inner.from()?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut shown: Vec<Option<DirectoryKind>> = Vec::new();
        for (index, name) in self.inner.names(&from).into_iter().enumerate() {
            let (kind, directory) = match self.inner.kind(index) {
                Some(kind) => (Some(kind), None),
                None => match self.inner.node(&from, index)? {
                    Some(Node::Directory(directory)) => (Some(NodeType::Directory), Some(directory.kind())),
                    other => (other.map(|node| node.node_type()), None),
                },
            };
            entries.extend(kind.map(|kind| (name.into(), kind)));
            shown.push(directory);
        }
        for (name, kind) in self.inner.listed_others(&from, &shown) {
            if entries.iter().all(|(known, _)| known != name) {
                entries.push((name.into(), kind));
            }
        }
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn kind(&self) -> DirectoryKind {
        self.inner.shows()
    }

    fn group(&self) -> Option<ShownGroup> {
        self.inner.group()
    }

    fn freshness(&self) -> Freshness {
        self.freshness
    }

    fn origin(&self) -> Origin {
        self.origin.clone()
    }
}

/// A directory that could not be read: every access fails with `error`, until it is looked up again.
pub fn unreadable(error: Error) -> Node {
    Node::Directory(Arc::new(Unreadable(error)))
}

struct Unreadable(Error);

impl Directory for Unreadable {
    fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
        Err(self.0.clone())
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Err(self.0.clone())
    }

    fn mtime(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A thousand directories, with counts of how often names and nodes were created.
    #[derive(Default)]
    struct Thousand {
        state: Mutex<Arc<u64>>,
        names: Arc<AtomicU64>,
        nodes: Arc<AtomicU64>,
    }

    impl Names for Arc<Thousand> {
        type From = u64;

        fn from(&self) -> Result<Arc<u64>> {
            Ok(self.state.lock().unwrap().clone())
        }

        fn names(&self, from: &u64) -> Vec<String> {
            self.names.fetch_add(1, Ordering::Relaxed);
            (0..1000).map(|i| format!("{from} {i}")).collect()
        }

        fn node(&self, _: &Arc<u64>, index: usize) -> Result<Option<Node>> {
            self.nodes.fetch_add(1, Ordering::Relaxed);
            Ok((index < 500).then(|| unreadable(Error::corrupt("of no use"))))
        }

        fn kind(&self, index: usize) -> Option<NodeType> {
            (index < 400).then_some(NodeType::File)
        }
    }

    #[test]
    fn a_lookup_creates_one_node_and_names_are_created_once_per_state() {
        let thousand = Arc::new(Thousand::default());
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let node = NamedDirectory::node(0, Freshness::Listing, Origin::Private, thousand.clone());
        let Node::Directory(directory) = node else {
            unreachable!()
        };
        for state in [0, 1] {
            *thousand.state.lock().unwrap() = Arc::new(state);
            for i in 0..1000 {
                let found = directory.lookup(OsStr::new(&format!("{state} {i}"))).unwrap();
                assert_eq!(found.is_some(), i < 500);
            }
            let other = format!("{} 0", 1 - state);
            assert!(directory.lookup(OsStr::new(&other)).unwrap().is_none());
            assert_eq!((taken(&thousand.names), taken(&thousand.nodes)), (1, 1000));
            let listing = directory.list().unwrap();
            assert_eq!((listing.len(), taken(&thousand.nodes)), (500, 600));
            let kinds = [399, 400].map(|i| listing.get(i).unwrap().1);
            assert_eq!(kinds, [NodeType::File, NodeType::Directory]);
            taken(&thousand.names);
        }
    }
}
