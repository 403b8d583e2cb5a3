//! Directories of an object store, built from the keys in its listings.

use super::listing_room::Share;
use crate::runtime::hash;
use crate::storage::{EntryType, Metadata};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// Relative to the source, with slashes.
    pub(super) path: String,
    pub(super) len: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) mtime: u64,
    pub(super) etag: Option<String>,
}

/// A page of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Object>,
    /// Paths of subdirectories (common prefixes), in listings with a delimiter.
    pub(super) directories: Vec<String>,
    /// The token for the next page, if there is one.
    pub(super) next: Option<String>,
}

/// What an entry, a directory and a page take of memory besides their text, in bytes, with what it takes to
/// make them.
const ENTRY: usize = 200;
const DIRECTORY: usize = 900;
const PAGE: usize = 4 << 10;

impl Page {
    /// Whether it has no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.directories.is_empty()
    }

    /// The most memory that the page takes in a listing, in bytes.
    pub(super) fn cost(&self) -> usize {
        let mut cost = PAGE;
        let mut last = "";
        for object in &self.objects {
            let etag = object.etag.as_ref().map_or(0, String::len);
            cost += ENTRY + object.path.len() + etag;
            // Keys are sorted, so that what the last one shares with this one is there already. Each
            // directory is known by its path.
            let shared = object
                .path
                .bytes()
                .zip(last.bytes())
                .take_while(|(one, other)| one == other);
            let shared = shared.count();
            let slashes = object
                .path
                .bytes()
                .enumerate()
                .skip(shared)
                .filter(|(_, byte)| *byte == b'/');
            cost += slashes.map(|(at, _)| DIRECTORY + 4 * at).sum::<usize>();
            last = &object.path;
        }
        let directories = self.directories.iter().map(|path| ENTRY + path.len());
        cost + directories.sum::<usize>()
    }
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub(super) enum Child {
    File(Arc<File>),
    Directory,
}

/// A file of the source.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) len: u64,
    pub(super) mtime: u64,
    pub(super) etag: Option<String>,
    /// Hash of the path; length; hash of the ETag. Without one, the time, or a hash of it and of how often
    /// the file was found changed, since two states may have one time.
    pub(super) version: (u64, u64, u64),
}

impl File {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            entry_type: EntryType::File,
            len: self.len,
            mtime: self.mtime,
            ctime: 0,
            identity: self.version.0,
            version: self.version,
        }
    }
}

/// The entries of a directory.
pub(super) struct Directory {
    /// In byte order.
    pub(super) children: BTreeMap<Box<str>, Child>,
    identity: u64,
    /// A hash over names, lengths and ETags.
    version: u64,
    mtime: u64,
    /// The listing that they come from.
    pub(super) listing: Arc<Listing>,
}

impl Directory {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            entry_type: EntryType::Directory,
            len: 0,
            mtime: self.mtime,
            ctime: 0,
            identity: self.identity,
            version: (self.identity, self.version, 0),
        }
    }

    /// Whether it does not exist any more: a store has no empty directories.
    pub(super) fn is_gone(&self) -> bool {
        self.children.is_empty()
    }
}

/// A completed listing.
pub(super) struct Listing {
    /// The directory that was listed.
    pub(super) path: String,
    /// Whether it includes subdirectories.
    pub(super) depth: Depth,
    pub(super) made: Instant,
    /// Whether it is known to be out of date.
    pub(super) forgotten: AtomicBool,
    /// Its memory.
    pub(super) _share: Arc<Share>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Not decided yet: the first page decides.
    Unknown,
    /// Everything below the directory.
    Flat,
    /// Only the entries of the directory.
    Names,
}

/// A directory under construction.
#[derive(Default)]
pub(super) struct Growing {
    pub(super) children: BTreeMap<Box<str>, Child>,
    /// The newest modification time of the objects directly in it.
    mtime: u64,
}

/// The directories in the keys of a listing.
pub(super) struct Tree {
    /// Without a trailing slash.
    pub(super) root: String,
    pub(super) directories: HashMap<String, Growing>,
}

/// Splits `path` into its parent and last component.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// `name` in the directory `path`.
pub(super) fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        _ => format!("{path}/{name}"),
    }
}

/// Whether `path` is `above` or below it.
pub(super) fn is_within(path: &str, above: &str) -> bool {
    above.is_empty()
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Tree {
    pub(super) fn new(root: &str) -> Tree {
        Tree {
            root: root.to_owned(),
            directories: HashMap::from([(root.to_owned(), Growing::default())]),
        }
    }

    pub(super) fn directory(&mut self, path: &str) -> &mut Growing {
        if !self.directories.contains_key(path) {
            let (parent, name) = split(path);
            // A directory replaces a file of the same name, which is an empty directory marker.
            self.directory(parent)
                .children
                .insert(name.into(), Child::Directory);
        }
        self.directories.entry(path.to_owned()).or_default()
    }

    pub(super) fn add(&mut self, page: Page) {
        for object in page.objects {
            // The directory marker of the root itself is an object with its name.
            if object.path == self.root || !is_within(&object.path, &self.root) {
                continue;
            }
            let (parent, name) = split(&object.path);
            let version = (
                hash(&object.path),
                object.len,
                object.etag.as_ref().map_or(object.mtime, hash),
            );
            let file = Child::File(Arc::new(File {
                len: object.len,
                mtime: object.mtime,
                etag: object.etag,
                version,
            }));
            let directory = self.directory(parent);
            directory.mtime = directory.mtime.max(object.mtime);
            directory.children.entry(name.into()).or_insert(file);
        }
        for path in page.directories {
            if path != self.root && is_within(&path, &self.root) {
                let (parent, name) = split(&path);
                self.directory(parent)
                    .children
                    .insert(name.into(), Child::Directory);
            }
        }
    }

    /// Notes that the file at `path` was found changed so many times.
    pub(super) fn note_changes(&mut self, path: &str, changes: u64) {
        let (parent, name) = split(path);
        let directory = self.directories.get_mut(parent);
        if let Some(Child::File(file)) = directory.and_then(|directory| directory.children.get_mut(name))
            && file.etag.is_none()
        {
            let (path, len, time) = file.version;
            Arc::make_mut(file).version = (path, len, hash(&(time, changes)));
        }
    }

    /// The finished directories, by path. Their modification times are those of the newest object below them.
    pub(super) fn finish(self, listing: &Arc<Listing>) -> impl Iterator<Item = (String, Arc<Directory>)> {
        let mut mtimes: HashMap<String, u64> = HashMap::new();
        for (path, directory) in &self.directories {
            let mut above = path.as_str();
            loop {
                let newest = mtimes.entry(above.to_owned()).or_default();
                *newest = (*newest).max(directory.mtime);
                if above == self.root || above.is_empty() {
                    break;
                }
                above = split(above).0;
            }
        }
        self.directories.into_iter().map(move |(path, directory)| {
            let mut hasher = DefaultHasher::new();
            for (name, child) in &directory.children {
                name.hash(&mut hasher);
                match child {
                    Child::File(file) => file.version.hash(&mut hasher),
                    Child::Directory => 0_u8.hash(&mut hasher),
                }
            }
            let made = Directory {
                identity: hash(&path),
                version: hasher.finish(),
                mtime: mtimes.get(&path).copied().unwrap_or(0),
                children: directory.children,
                listing: listing.clone(),
            };
            (path, Arc::new(made))
        })
    }
}
