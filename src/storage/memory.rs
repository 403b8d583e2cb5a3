//! A source in memory, for tests and fuzzing.

use super::{Blob, DirEntry, EntryType, Metadata, Storage, local_inside};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A directory tree in memory. Cloning shares the files' bytes.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    /// Entries by directory and name.
    directories: BTreeMap<PathBuf, BTreeMap<OsString, Node>>,
    /// The last node number in use. The root has number 0.
    last: u64,
}

#[derive(Clone)]
struct Node {
    number: u64,
    /// None for a directory.
    bytes: Option<Arc<[u8]>>,
}

impl MemoryStorage {
    /// An empty root directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of the local directory `root`, without its symbolic links.
    pub fn copy_of(root: &Path) -> io::Result<Self> {
        let mut storage = Self::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(directory) = waiting.pop() {
            storage.insert_directory(&directory);
            for entry in fs::read_dir(root.join(&directory))? {
                let entry = entry?;
                let path = directory.join(entry.file_name());
                let file_type = entry.file_type()?;
                if file_type.is_dir() {
                    waiting.push(path);
                } else if file_type.is_file() {
                    storage.insert(&path, fs::read(entry.path())?);
                }
            }
        }
        Ok(storage)
    }

    /// Inserts or replaces a file, and creates its parent directories. Does nothing if a component is not a
    /// valid file name on Linux, or if a parent is a file.
    pub fn insert(&mut self, path: &Path, bytes: impl Into<Arc<[u8]>>) {
        self.put(path, Some(bytes.into()));
    }

    /// Creates a directory and its parents; ignores the same paths as [`MemoryStorage::insert`].
    pub fn insert_directory(&mut self, path: &Path) {
        self.put(path, None);
    }

    fn put(&mut self, path: &Path, bytes: Option<Arc<[u8]>>) {
        self.directories.entry(PathBuf::new()).or_default();
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) if name.len() <= 255 && !name.as_bytes().contains(&0) => {
                    names.push(name);
                }
                _ => return,
            }
        }
        let Some((name, above)) = names.split_last() else {
            return;
        };
        let mut directory = PathBuf::new();
        for part in above {
            if !self.put_one(&directory, part, None) {
                return;
            }
            directory.push(part);
        }
        self.put_one(&directory, name, bytes);
    }

    /// Inserts one entry into an existing directory. Returns false if there is no such directory, or if an
    /// entry of the other type has this name.
    fn put_one(&mut self, directory: &Path, name: &OsStr, bytes: Option<Arc<[u8]>>) -> bool {
        let Some(entries) = self.directories.get_mut(directory) else {
            return false;
        };
        match (entries.get_mut(name), &bytes) {
            (Some(known), _) if known.bytes.is_none() != bytes.is_none() => return false,
            (Some(_), None) => return true,
            _ => {}
        }
        self.last += 1;
        let is_directory = bytes.is_none();
        let node = Node {
            number: self.last,
            bytes,
        };
        entries.insert(name.to_owned(), node);
        if is_directory {
            self.directories.entry(directory.join(name)).or_default();
        }
        true
    }

    /// Removes a file. Returns whether it existed.
    pub fn remove(&mut self, path: &Path) -> bool {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        match self.directories.get_mut(directory) {
            Some(entries) if entries.get(name).is_some_and(|node| node.bytes.is_some()) => {
                entries.remove(name).is_some()
            }
            _ => false,
        }
    }

    /// All files by path; a directory's own files come before those of its subdirectories.
    pub fn files(&self) -> impl Iterator<Item = (PathBuf, &Arc<[u8]>)> {
        self.directories.iter().flat_map(|(directory, entries)| {
            entries
                .iter()
                .filter_map(move |(name, node)| Some((directory.join(name), node.bytes.as_ref()?)))
        })
    }

    fn find(&self, path: &Path) -> Result<Node> {
        if path.as_os_str().is_empty() {
            return Ok(Node {
                number: 0,
                bytes: None,
            });
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        path.file_name()
            .and_then(|name| self.directories.get(directory)?.get(name))
            .cloned()
            .ok_or_else(|| Error::not_found("no such file or directory").in_file(self.display(path)))
    }
}

impl Storage for MemoryStorage {
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let entries = match self.directories.get(path) {
            Some(entries) => entries,
            // The root is created with the first entry.
            None if path.as_os_str().is_empty() => return Ok(Vec::new()),
            None => return Err(Error::not_found("no such directory").in_file(self.display(path))),
        };
        Ok(entries
            .iter()
            .map(|(name, node)| DirEntry {
                name: name.clone(),
                entry_type: entry_type(node),
                linked: false,
            })
            .collect())
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let node = self.find(path)?;
        let len = node.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        Ok(Metadata {
            entry_type: entry_type(&node),
            len,
            mtime: 0,
            ctime: 0,
            identity: node.number,
            version: (node.number, len, 0),
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let display = self.display(path);
        match self.find(path)?.bytes {
            Some(bytes) => Ok(Arc::new(MemoryBlob { bytes, display })),
            None => Err(Error::corrupt("not a regular file").in_file(display)),
        }
    }

    fn display(&self, path: &Path) -> String {
        path.display().to_string()
    }

    /// Treats the source as the local root directory.
    fn inside(&self, uri: &[u8]) -> Option<PathBuf> {
        local_inside(Path::new("/"), uri)
    }
}

fn entry_type(node: &Node) -> EntryType {
    match node.bytes {
        Some(_) => EntryType::File,
        None => EntryType::Directory,
    }
}

/// An open file in memory.
pub struct MemoryBlob {
    bytes: Arc<[u8]>,
    display: String,
}

impl MemoryBlob {
    /// A file with the content `bytes`, shown as `display` in messages.
    pub fn new(bytes: impl Into<Arc<[u8]>>, display: &str) -> Self {
        MemoryBlob {
            bytes: bytes.into(),
            display: display.to_owned(),
        }
    }
}

impl Blob for MemoryBlob {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.bytes.get(start..start.checked_add(out.len())?));
        match found {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(
                Error::truncated(format!("the file ends within the {} bytes wanted", out.len()))
                    .at(offset)
                    .in_file(&self.display),
            ),
        }
    }

    fn display(&self) -> &str {
        &self.display
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn files_and_directories_are_listed_and_read() {
        let mut storage = MemoryStorage::new();
        storage.insert(Path::new("a/b"), *b"xyz");
        storage.insert(Path::new("a/c"), *b"");
        storage.insert_directory(Path::new("d/e"));
        let names = |path: &str| -> Vec<_> {
            let entries = storage.list(Path::new(path)).unwrap().into_iter();
            entries
                .map(|e| (e.name.into_string().unwrap(), e.entry_type))
                .collect()
        };
        use EntryType::{Directory, File};
        assert_eq!(names(""), [("a".into(), Directory), ("d".into(), Directory)]);
        assert_eq!(names("a"), [("b".into(), File), ("c".into(), File)]);
        assert!(names("d/e").is_empty());
        assert_eq!(storage.files().count(), 2);
        let blob = storage.open(Path::new("a/b")).unwrap();
        assert_eq!(blob.read(1, 2).unwrap(), b"yz");
        assert_eq!(
            blob.read_at(2, &mut [0; 2]).unwrap_err().kind(),
            ErrorKind::Truncated
        );
        assert!(blob.read_at(u64::MAX, &mut [0; 2]).is_err());
        assert_eq!(
            storage.open(Path::new("d")).err().unwrap().kind(),
            ErrorKind::Corrupt
        );
        let missing = storage.metadata(Path::new("a/x")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn invalid_paths_are_ignored() {
        let mut storage = MemoryStorage::new();
        storage.insert(Path::new("f"), *b"x");
        for path in ["../f", "/f", "f/g", "", "a/../b", "a\0", &"x".repeat(256)] {
            storage.insert(Path::new(path), *b"y");
        }
        let files: Vec<_> = storage
            .files()
            .map(|(path, bytes)| (path, bytes.to_vec()))
            .collect();
        assert_eq!(files, [(PathBuf::from("f"), b"x".to_vec())]);
        assert!(storage.remove(Path::new("f")) && !storage.remove(Path::new("f")));
    }

    #[test]
    fn directories_have_identities_and_copies_have_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/f"), b"1").unwrap();
        let storage = MemoryStorage::copy_of(dir.path()).unwrap();
        let number = |path: &str| storage.metadata(Path::new(path)).unwrap().version.0;
        assert!(number("") != number("a") && number("a") != number("a/b"));
        assert_eq!(storage.open(Path::new("a/f")).unwrap().read(0, 1).unwrap(), b"1");
    }
}
