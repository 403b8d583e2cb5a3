//! Directories whose children are made at once: those with few, or with many that cost nothing each.

use super::node::{Directory, Entry, Freshness, Listing, Node};
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The children of a directory: name and node.
pub type Children = Vec<(OsString, Node)>;

/// A directory whose children are what a function gives whenever they are needed.
pub struct ListedDirectory<F> {
    children: F,
    mtime: u64,
    freshness: Freshness,
}

impl<F: Fn() -> Result<Children> + Send + Sync + 'static> ListedDirectory<F> {
    /// A directory node.
    pub fn node(mtime: u64, freshness: Freshness, children: F) -> Node {
        Node::Directory(Arc::new(ListedDirectory {
            children,
            mtime,
            freshness,
        }))
    }
}

/// A directory that is known to be there and could not be looked at: `error` is what everything in it gives, until it is looked up again.
pub fn unreadable(error: Error) -> Node {
    ListedDirectory::node(0, Freshness::Listing, move || Err(error.clone()))
}

impl<F: Fn() -> Result<Children> + Send + Sync> Directory for ListedDirectory<F> {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        Ok((self.children)()?
            .into_iter()
            .find(|(child, _)| child == name)
            .map(|(_, node)| node))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let entries: Vec<Entry> = (self.children)()?
            .into_iter()
            .map(|(name, node)| (name, node.node_type()))
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn freshness(&self) -> Freshness {
        self.freshness
    }
}
