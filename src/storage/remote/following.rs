//! Sources whose groups have members outside of the source, in other prefixes or buckets.
//!
//! Paths in such a member begin with [`OUTSIDE`] and its number. Members are opened at their first use.

use crate::error::{Error, Result};
use crate::runtime::cache::ChunkCache;
use crate::runtime::lock;
use crate::runtime::requester::on_another_thread;
use crate::runtime::single_flight::Memo;
use crate::storage::location::Location;
use crate::storage::{Audience, Blob, DirEntry, LocalStorage, Metadata, Storage, Want};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A name that no key has.
const OUTSIDE: &str = "\0elsewhere";

/// Opens the source at a URL.
pub type Open = Arc<dyn Fn(&str) -> Result<Arc<dyn Storage>> + Send + Sync>;

/// A source and the members of its groups outside of it.
pub struct FollowingStorage {
    source: Arc<dyn Storage>,
    open: Open,
    members: Mutex<Members>,
}

/// The members that URIs have named so far.
#[derive(Default)]
struct Members {
    numbers: HashMap<String, usize>,
    by_number: Vec<Arc<Member>>,
}

/// A member outside of the source.
struct Member {
    url: String,
    /// None until it has been opened.
    storage: Memo<Arc<dyn Storage>>,
}

impl FollowingStorage {
    /// A storage over `source`; `open` opens members of its groups, which keep what they read in its memory.
    pub fn new(source: Arc<dyn Storage>, open: Open) -> Self {
        FollowingStorage {
            source,
            open,
            members: Mutex::default(),
        }
    }

    /// The member of `path`, as (number, member, path in it); None if it is in the source itself.
    fn member<'a>(&self, path: &'a Path) -> Option<(usize, Arc<Member>, &'a Path)> {
        let rest = path.strip_prefix(OUTSIDE).ok()?;
        let number = rest.components().next()?.as_os_str();
        let below = rest.strip_prefix(number).ok()?;
        let number: usize = number.to_str()?.parse().ok()?;
        let member = lock(&self.members).by_number.get(number)?.clone();
        Some((number, member, below))
    }

    /// The storage that has `path`, and the path in that storage.
    fn resolve<'a>(&self, path: &'a Path) -> Result<(Arc<dyn Storage>, &'a Path)> {
        if !path.starts_with(OUTSIDE) {
            return Ok((self.source.clone(), path));
        }
        let (_, member, below) = self
            .member(path)
            .ok_or_else(|| Error::not_found("the group has no such member"))?;
        Ok((self.storage(&member)?, below))
    }

    /// The storage of a member, opened if need be. Members open independently of each other; after a failure,
    /// the next use tries again.
    fn storage(&self, member: &Member) -> Result<Arc<dyn Storage>> {
        member.storage.get_or_make(|| {
            let (open, url) = (self.open.clone(), member.url.clone());
            on_another_thread(move || open(&url)).map_err(|error| error.in_file(&member.url))
        })
    }
}

impl Storage for FollowingStorage {
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let (storage, path) = self.resolve(path)?;
        storage.list(path)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let (storage, below) = self.resolve(path)?;
        let metadata = storage.metadata(below)?;
        // Identities are unique only within a storage.
        let number = self.member(path).map_or(0, |(number, ..)| number as u64 + 1);
        Ok(Metadata {
            identity: metadata.identity ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..metadata
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let (storage, below) = self.resolve(path)?;
        let blob = storage.open(below)?;
        Ok(match self.member(path) {
            Some(_) => Arc::new(MemberBlob {
                blob,
                display: self.display(path),
            }),
            None => blob,
        })
    }

    fn display(&self, path: &Path) -> String {
        match self.member(path) {
            Some((_, member, below)) if below.as_os_str().is_empty() => member.url.clone(),
            Some((_, member, below)) => format!("{}/{}", member.url, below.display()),
            None => self.source.display(path),
        }
    }

    fn inside(&self, uri: &[u8]) -> Option<PathBuf> {
        if let Some(path) = self.source.inside(uri) {
            return Some(path);
        }
        let Ok(Location::Remote(url)) = Location::parse(OsStr::from_bytes(uri)) else {
            return None;
        };
        let mut members = lock(&self.members);
        let next = members.by_number.len();
        let number = *members.numbers.entry(url.clone()).or_insert(next);
        if number == next {
            log::warn!("{url}: following a group member that lies outside of the source");
            members.by_number.push(Arc::new(Member {
                url,
                storage: Memo::default(),
            }));
        }
        Some(Path::new(OUTSIDE).join(number.to_string()))
    }

    fn audience(&self, path: &Path, want: Want) -> Audience {
        match self.resolve(path) {
            Ok((storage, path)) => storage.audience(path, want),
            Err(_) => Audience::nobody(),
        }
    }

    /// Members outside of a source are never local.
    fn local(&self) -> Option<&LocalStorage> {
        self.source.local()
    }

    fn is_remote(&self) -> bool {
        self.source.is_remote()
    }

    /// Members have the settings of the source.
    fn lag(&self) -> Option<Duration> {
        self.source.lag()
    }

    fn forget(&self, path: &Path, age: Duration) -> bool {
        let resolved = self.resolve(path);
        resolved.is_ok_and(|(storage, path)| storage.forget(path, age))
    }

    fn will_list(&self, directories: &[PathBuf]) {
        self.each(directories, |storage, paths| storage.will_list(paths));
    }

    fn will_list_named(&self, directory: &Path, names: &dyn Fn() -> Result<Vec<String>>) -> Result<()> {
        let (storage, path) = self.resolve(directory)?;
        storage.will_list_named(path, names)
    }

    fn will_read_tails(&self, files: &[PathBuf], bytes: u64) {
        self.each(files, |storage, paths| storage.will_read_tails(paths, bytes));
    }

    fn share(&self, budget: Arc<ChunkCache>) {
        self.source.share(budget);
    }
}

impl FollowingStorage {
    /// Calls `each` with the storage of the first path and those of `paths` that are in it.
    fn each(&self, paths: &[PathBuf], each: impl Fn(&dyn Storage, &[PathBuf])) {
        let Some(first) = paths.first() else { return };
        if !first.starts_with(OUTSIDE) {
            return each(&*self.source, paths);
        }
        let Some((number, ..)) = self.member(first) else {
            return;
        };
        let Ok((storage, _)) = self.resolve(first) else {
            return;
        };
        let of_member = |path: &PathBuf| {
            let (of, _, below) = self.member(path)?;
            (of == number).then(|| below.to_path_buf())
        };
        let below: Vec<PathBuf> = paths.iter().filter_map(of_member).collect();
        each(&*storage, &below);
    }
}

/// A file of a member, which is called by its whole URL: other members may have one of its path, and of its
/// version if they are copies.
struct MemberBlob {
    blob: Arc<dyn Blob>,
    display: String,
}

impl Blob for MemberBlob {
    fn len(&self) -> u64 {
        self.blob.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.blob.read_at(offset, out)
    }

    fn will_read(&self, range: Range<u64>) {
        self.blob.will_read(range);
    }

    fn will_read_through(&self, range: Range<u64>) {
        self.blob.will_read_through(range);
    }

    fn forget(&self, range: Range<u64>) {
        self.blob.forget(range);
    }

    fn display(&self) -> &str {
        &self.display
    }

    fn version(&self) -> (u64, u64, u64) {
        self.blob.version()
    }

    fn is_unchanged(&self) -> bool {
        self.blob.is_unchanged()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::runtime::requester::{ended, on_behalf_of};
    use crate::storage::MemoryStorage;
    use std::time::Duration;

    fn memory(files: &[(&str, &str)]) -> Arc<dyn Storage> {
        let mut storage = MemoryStorage::new();
        for (path, bytes) in files {
            storage.insert(Path::new(path), bytes.as_bytes().to_vec());
        }
        Arc::new(storage)
    }

    #[test]
    fn outside_members_are_opened_once_each() {
        let opened = Arc::new(Mutex::new(Vec::new()));
        let noted = opened.clone();
        let open = move |url: &str| {
            noted.lock().unwrap().push(url.to_owned());
            match url {
                "s3://b/gone" => Err(Error::not_found("not found")),
                _ => Ok(memory(&[("__schema/x", url)])),
            }
        };
        let storage = FollowingStorage::new(memory(&[("__schema/x", "here"), ("a", "")]), Arc::new(open));
        let read = |path: &Path| {
            let blob = storage.open(path).unwrap();
            String::from_utf8(blob.read(0, blob.len()).unwrap()).unwrap()
        };
        let one = storage.inside(b"s3://b/one").unwrap();
        let two = storage.inside(b"s3://c/two/").unwrap();
        assert_eq!(storage.inside(b"s3://b/one/").unwrap(), one);
        assert!(opened.lock().unwrap().is_empty());
        for _ in 0..2 {
            assert_eq!(read(&one.join("__schema/x")), "s3://b/one");
            assert_eq!(read(&two.join("__schema/x")), "s3://c/two");
            assert_eq!(read(Path::new("__schema/x")), "here");
        }
        assert_eq!(*opened.lock().unwrap(), ["s3://b/one", "s3://c/two"]);
        assert_eq!(storage.display(&one), "s3://b/one");
        assert_eq!(storage.display(&two.join("__schema/x")), "s3://c/two/__schema/x");
        let called = |path: &Path| storage.open(path).unwrap().display().to_owned();
        assert_eq!(called(&two.join("__schema/x")), "s3://c/two/__schema/x");
        assert_eq!(called(Path::new("__schema/x")), "__schema/x");
        let identity = |path: &Path| storage.metadata(path).unwrap().identity;
        assert_ne!(identity(&one), identity(&two));
        assert_ne!(identity(&one), identity(Path::new("")));
        // A failed opening is tried again.
        let gone = storage.inside(b"s3://b/gone").unwrap();
        for _ in 0..2 {
            assert_eq!(storage.list(&gone).unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert_eq!(opened.lock().unwrap().len(), 4);
        // There are no members that no URI has named.
        for path in ["\0elsewhere", "\0elsewhere/9", "\0elsewhere/x/y"] {
            assert_eq!(
                storage.list(Path::new(path)).unwrap_err().kind(),
                ErrorKind::NotFound,
                "{path}"
            );
        }
        assert_eq!(storage.inside(b"hdfs://elsewhere/a"), None);
        assert_eq!(storage.inside(b"s3://key:secret@b/a"), None);
    }

    #[test]
    fn an_interrupted_requester_does_not_wait_for_a_member() {
        let (answer, answered) = std::sync::mpsc::channel();
        let answered = Mutex::new(answered);
        let open = move |_: &str| {
            let in_time = answered.lock().unwrap().recv_timeout(Duration::from_secs(20));
            in_time.expect("nobody answered");
            Ok(memory(&[("x", "")]))
        };
        let storage = FollowingStorage::new(memory(&[]), Arc::new(open));
        let member = storage.inside(b"s3://b/one").unwrap();
        let error = on_behalf_of(ended(), || storage.list(&member).unwrap_err());
        assert_eq!(error.errno(), libc::EINTR);
        // Once for the opening that was given up, and once for another.
        answer.send(()).unwrap();
        answer.send(()).unwrap();
        assert_eq!(storage.list(&member).unwrap().len(), 1);
    }
}
