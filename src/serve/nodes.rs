//! Files and directories by their paths, as they were found a moment ago.

use crate::error::Result;
use crate::runtime::lock;
use crate::tree::{FRESH, Node, follow, known_since};
use lru::LruCache;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Instant;

/// The most nodes that are kept.
const MAX_KEPT: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// The nodes of a tree.
pub struct Nodes {
    root: Node,
    /// Each node, and since when its path is known to lead to it.
    known: Mutex<LruCache<Vec<OsString>, (Node, Instant)>>,
}

impl Nodes {
    /// The nodes below `root`.
    pub fn new(root: Node) -> Nodes {
        Nodes {
            root,
            known: Mutex::new(LruCache::new(MAX_KEPT)),
        }
    }

    /// The node that these names lead to, following links; None if there is none.
    pub fn find(&self, names: &[OsString]) -> Result<Option<Node>> {
        match self.walk(names, self.nearest(names)) {
            // A file that was listed may be gone since, and a directory on the way with it.
            Err(error) if error.is_of_a_missing_file() => self.find_anew(names),
            found => found,
        }
    }

    /// As [`Nodes::find`], without what is known.
    pub fn find_anew(&self, names: &[OsString]) -> Result<Option<Node>> {
        self.walk(names, self.top())
    }

    /// As [`Nodes::find`], from a node that is known.
    fn walk(&self, names: &[OsString], known: (usize, Node, Instant)) -> Result<Option<Node>> {
        let (mut depth, mut node, mut since) = known;
        while let Some(name) = names.get(depth) {
            let Node::Directory(directory) = &node else {
                return Ok(None);
            };
            if name.len() > directory.longest_name() {
                return Ok(None);
            }
            let Some(found) = follow(&**directory, name)? else {
                return Ok(None);
            };
            depth += 1;
            node = found;
            since = known_since(since);
            let before = lock(&self.known).push(names[..depth].to_vec(), (node.clone(), since));
            // Behind the lock, because that may free much.
            drop(before);
        }
        Ok(Some(node))
    }

    /// The node that is known of the most of these names, of how many, and since when.
    fn nearest(&self, names: &[OsString]) -> (usize, Node, Instant) {
        let mut known = lock(&self.known);
        for depth in (1..=names.len()).rev() {
            if let Some((node, since)) = known.get(&names[..depth])
                && since.elapsed() < FRESH
            {
                return (depth, node.clone(), *since);
            }
        }
        self.top()
    }

    /// The root, as of now.
    fn top(&self) -> (usize, Node, Instant) {
        (0, self.root.clone(), Instant::now())
    }
}
