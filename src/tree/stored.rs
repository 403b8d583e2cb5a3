//! The files of a source's arrays and groups as they are stored, for programs that read them from elsewhere.
//!
//! All that belongs to an array or a group lies in its directory in files and directories whose names begin
//! with `__`. What lies beside them is not shown, but for directories, in which there may be other arrays and
//! groups.

use super::node::{Directory, Entry, File, Listing, Node, NodeType, Stat};
use crate::bytes::{Bytes, Output};
use crate::catalog::source::{ObjectKind, classify};
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::layout::FileLayout;
use crate::names;
use crate::runtime::hash;
use crate::runtime::stats::Stats;
use crate::storage::{Blob, EntryType, Metadata, Storage};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The directory of the stored files of `storage`.
pub fn stored(storage: Arc<dyn Storage>, stats: Arc<Stats>) -> Node {
    Node::Directory(Arc::new(StoredDirectory {
        engine: Arc::new(Engine::new(storage, 1, Vec::new(), stats)),
        path: PathBuf::new(),
        within: false,
    }))
}

/// A directory of the source.
struct StoredDirectory {
    engine: Arc<Engine>,
    path: PathBuf,
    /// Whether it is a part of an array or a group, and so is all that is in it.
    within: bool,
}

impl StoredDirectory {
    /// Whether files called `__...` in it are those of an array or a group.
    fn is_object(&self) -> Result<bool> {
        Ok(self.within || classify(&self.engine, &self.path)? != ObjectKind::Directory)
    }

    /// Whether the entry `name` is shown in a directory that `is_object` or is not.
    fn shows(&self, name: &OsStr, kind: EntryType, is_object: bool) -> bool {
        match kind {
            EntryType::Directory => true,
            EntryType::File => self.within || is_object && name.as_bytes().starts_with(b"__"),
            EntryType::Other => false,
        }
    }
}

impl Directory for StoredDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if !names::is_component(name) {
            return Ok(None);
        }
        let path = self.path.join(name);
        let metadata = match self.engine.storage.metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_object = self.is_object()?;
        if !self.shows(name, metadata.entry_type, is_object) {
            return Ok(None);
        }
        let engine = self.engine.clone();
        Ok(Some(match metadata.entry_type {
            EntryType::Directory => Node::Directory(Arc::new(StoredDirectory {
                engine,
                path,
                within: self.within || is_object && name.as_bytes().starts_with(b"__"),
            })),
            EntryType::File | EntryType::Other => Node::File(Arc::new(StoredFile {
                engine,
                path,
                metadata,
            })),
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let is_object = self.is_object()?;
        let all = self.engine.storage.list(&self.path)?.into_iter();
        let shown = all.filter(|entry| self.shows(&entry.name, entry.entry_type, is_object));
        let entries: Vec<Entry> = shown
            .map(|entry| match entry.entry_type {
                EntryType::Directory => (entry.name, NodeType::Directory),
                EntryType::File | EntryType::Other => (entry.name, NodeType::File),
            })
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        let metadata = self.engine.storage.metadata(&self.path);
        metadata.map_or(0, |metadata| metadata.mtime)
    }
}

/// A file of an array or a group.
struct StoredFile {
    engine: Arc<Engine>,
    path: PathBuf,
    metadata: Metadata,
}

impl File for StoredFile {
    fn stat(&self) -> Result<Stat> {
        let metadata = self.engine.storage.metadata(&self.path)?;
        Ok(Stat {
            len: metadata.len,
            version: hash(&metadata.version),
        })
    }

    fn mtime(&self) -> u64 {
        self.metadata.mtime
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let blob = self.engine.storage.open(&self.path)?;
        let version = hash(&blob.version());
        Ok(Arc::new(FileLayout::new(
            version,
            vec![Box::new(StoredBytes(blob))],
        )?))
    }
}

/// The bytes of a file in the state in which it was opened.
struct StoredBytes(Arc<dyn Blob>);

impl Bytes for StoredBytes {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        out.append(&self.0.read(range.start, range.end - range.start)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalStorage;

    /// All files below `node`, by their paths.
    fn files(node: &Node, above: &str, out: &mut Vec<String>) {
        let Node::Directory(directory) = node else {
            return out.push(above.to_owned());
        };
        let listing = directory.list().unwrap();
        for (name, _) in listing.entries() {
            let found = directory.lookup(&name).unwrap().unwrap();
            files(&found, &format!("{above}/{}", name.to_string_lossy()), out);
        }
    }

    #[test]
    fn only_what_belongs_to_arrays_and_groups_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            "secret",
            "__secret",
            "a/__schema/__1_1_x",
            "a/__fragments/__1_1_y_22/a0.tdb",
            "a/notes.txt",
            "a/more/secret",
            "g/__group/__1_1_z",
            "g/__tiledb_group.tdb",
            "g/member/__schema/__1_1_x",
            "g/readme",
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "bytes").unwrap();
        }
        let storage = LocalStorage::new(folder.path(), false, Arc::default()).unwrap();
        let root = stored(Arc::new(storage), Arc::default());
        let mut found = Vec::new();
        files(&root, "", &mut found);
        assert_eq!(
            found,
            [
                "/a/__fragments/__1_1_y_22/a0.tdb",
                "/a/__schema/__1_1_x",
                "/g/__group/__1_1_z",
                "/g/__tiledb_group.tdb",
                "/g/member/__schema/__1_1_x",
            ]
        );
        for hidden in ["secret", "__secret", "a/notes.txt", "a/more/secret", "g/readme"] {
            assert!(root.find(hidden).unwrap().is_none(), "{hidden}");
        }
        let Some(Node::File(file)) = root.find("g/__tiledb_group.tdb").unwrap() else {
            unreachable!()
        };
        let open = file.open().unwrap();
        assert_eq!(
            file.stat().unwrap(),
            Stat {
                len: open.len(),
                version: open.version()
            }
        );
        assert_eq!(Node::File(file).read_all().unwrap(), b"bytes");
    }
}
