//! What the nodes of a tree share, and how a directory of the source becomes a node.

use super::array::ArrayDirectory;
use super::directory::{Children, ListedDirectory};
use super::group::group;
use super::node::{Freshness, Node};
use crate::array::Array;
use crate::array::engine::Engine;
use crate::array::source::{ObjectKind, classify};
use crate::error::Result;
use crate::storage::EntryType;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// Shared by all nodes of a tree.
pub struct Context {
    /// The source.
    pub engine: Arc<Engine>,
    /// The source's own absolute path, which absolute URIs of group members are compared with.
    pub root: PathBuf,
    /// Arrays that somebody holds, so that one array is opened once.
    arrays: Mutex<HashMap<PathBuf, Weak<Array>>>,
}

/// The directories above a node, from the root of the tree down, as the storage identifies them: what keeps groups that contain themselves, and links to
/// directories above, from making an endless tree.
#[derive(Clone, Default)]
pub struct Ancestors(Arc<Vec<u64>>);

impl Ancestors {
    /// The same with one more; None when it is among them already.
    fn with(&self, identity: u64) -> Option<Ancestors> {
        if self.0.contains(&identity) {
            return None;
        }
        let mut all = (*self.0).clone();
        all.push(identity);
        Some(Ancestors(Arc::new(all)))
    }
}

impl Context {
    /// The context of a tree over `engine`.
    pub fn new(engine: Arc<Engine>, root: PathBuf) -> Self {
        Context {
            engine,
            root,
            arrays: Mutex::default(),
        }
    }

    /// The array at `path`, opened once for all who hold it.
    pub fn array(&self, path: &Path) -> Arc<Array> {
        let mut arrays = self
            .arrays
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(array) = arrays.get(path).and_then(Weak::upgrade) {
            return array;
        }
        if arrays.len().is_power_of_two() {
            arrays.retain(|_, array| array.strong_count() > 0);
        }
        let array = Arc::new(Array::new(self.engine.clone(), path.to_path_buf()));
        arrays.insert(path.to_path_buf(), Arc::downgrade(&array));
        array
    }

    /// The node for the directory at `path` of the source; None where it is one of `above`.
    pub fn object(self: &Arc<Self>, path: &Path, above: &Ancestors) -> Result<Option<Node>> {
        let metadata = self.engine.storage.metadata(path)?;
        let Some(above) = above.with(metadata.version.0) else {
            log::info!(
                "{}: passed over: it contains itself",
                self.engine.storage.display(path)
            );
            return Ok(None);
        };
        Ok(Some(match classify(&self.engine, path)? {
            ObjectKind::Array => Node::Directory(Arc::new(ArrayDirectory::new(
                self.clone(),
                self.array(path),
                above,
            ))),
            ObjectKind::Group => group(self.clone(), path.to_path_buf(), above, metadata.mtime),
            ObjectKind::Directory => plain(self.clone(), path.to_path_buf(), above, metadata.mtime),
        }))
    }
}

/// A plain directory: the arrays, groups and directories in it.
fn plain(context: Arc<Context>, path: PathBuf, above: Ancestors, mtime: u64) -> Node {
    ListedDirectory::node(mtime, Freshness::Listing, move || {
        let mut children = Children::new();
        for entry in context.engine.storage.list(&path)? {
            if entry.entry_type != EntryType::Directory {
                continue;
            }
            match context.object(&path.join(&entry.name), &above) {
                Ok(Some(node)) => children.push((entry.name, node)),
                Ok(None) => {}
                Err(e) => log::warn!("passed over: {e}"),
            }
        }
        Ok(children)
    })
}
