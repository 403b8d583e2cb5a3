//! The nodes of the source's directories: arrays, groups and plain directories.

use super::array::ArrayDirectory;
use super::group::group;
use super::node::{Directory, Entry, Listing, Node, NodeType};
use super::permissions::Origin;
use super::position::Position;
use crate::catalog::source::{ObjectKind, classify};
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::names;
use crate::storage::EntryType;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The node of the source directory at `path`; None if it is one of `above`, or an array that was written
/// later than the time shown.
pub fn object(path: &Path, above: &Position) -> Result<Option<Node>> {
    let context = &above.context;
    let metadata = context.engine.storage.metadata(path)?;
    let Some(above) = above.with(metadata.identity) else {
        log::info!(
            "{}: ignored: it contains itself",
            context.engine.storage.display(path)
        );
        return Ok(None);
    };
    Ok(Some(match classify(&context.engine, path)? {
        ObjectKind::Array => {
            let directory = ArrayDirectory::new(context.array(path), above);
            let is_source = path.as_os_str().is_empty();
            Node::Directory(Arc::new(match context.pin.filter(|_| is_source) {
                Some(pin) => directory.pinned(pin)?,
                None if context.is_later(path)? => return Ok(None),
                None => directory,
            }))
        }
        ObjectKind::Group => group(context.group(path), above, metadata.mtime),
        ObjectKind::Directory => Node::Directory(Arc::new(PlainDirectory {
            engine: context.engine.for_object(),
            path: path.to_path_buf(),
            position: above.elsewhere(),
            mtime: metadata.mtime,
        })),
    }))
}

/// A plain directory of arrays, groups and directories. Children are classified when they are looked up, so
/// that a listing costs one `readdir`.
struct PlainDirectory {
    /// Its own.
    engine: Arc<Engine>,
    position: Position,
    path: PathBuf,
    mtime: u64,
}

impl Directory for PlainDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if !names::is_component(name) {
            return Ok(None);
        }
        let path = self.path.join(name);
        match self.position.context.engine.storage.metadata(&path) {
            Ok(metadata) if metadata.entry_type == EntryType::Directory => self.position.child(&path),
            Ok(_) => Ok(None),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        // At a past time an array may not be there yet.
        let is_past = self.engine.at().is_some();
        let entries: Vec<Entry> = self
            .engine
            .storage
            .list(&self.path)?
            .into_iter()
            .filter(|entry| entry.entry_type == EntryType::Directory)
            .filter(|entry| !(entry.linked || is_past) || self.is_shown(&entry.name))
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
    /// Whether the child `name` is shown: not if it is a link to an ancestor, or an array of a later time. If
    /// that is unknown, it is, and accesses fail.
    fn is_shown(&self, name: &OsStr) -> bool {
        !matches!(self.lookup(name), Ok(None))
    }
}
