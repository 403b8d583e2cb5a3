//! Nodes in memory, for tests and examples.

use super::node::{Directory, Entry, File, Freshness, Listing, Node};
use crate::error::Result;
use crate::layout::FileLayout;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// A directory whose entries never change.
struct Folder {
    nodes: HashMap<OsString, Node>,
    names: Arc<Vec<Entry>>,
    mtime: u64,
    freshness: Freshness,
}

/// A directory with these entries, in this order.
pub fn folder(mtime: u64, freshness: Freshness, nodes: Vec<(OsString, Node)>) -> Node {
    let names = nodes.iter().map(|(name, node)| (name.clone(), node.node_type()));
    Node::Directory(Arc::new(Folder {
        names: Arc::new(names.collect()),
        nodes: nodes.into_iter().collect(),
        mtime,
        freshness,
    }))
}

impl Directory for Folder {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        Ok(self.nodes.get(name).cloned())
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(self.names.clone())
    }

    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn freshness(&self) -> Freshness {
        self.freshness
    }
}

/// A file whose bytes never change.
struct Fixed {
    bytes: Arc<Vec<u8>>,
    mtime: u64,
}

/// A file of these bytes.
pub fn file(mtime: u64, bytes: Vec<u8>) -> Node {
    let bytes = Arc::new(bytes);
    Node::File(Arc::new(Fixed { bytes, mtime }))
}

impl File for Fixed {
    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        Ok(Arc::new(FileLayout::new(0, vec![Box::new(self.bytes.clone())])?))
    }
}
