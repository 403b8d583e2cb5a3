//! A storage in which each path leads to one file only.
//!
//! What is derived from files is kept: listings, metadata, decoded data. Who may read it follows from who may
//! read the files, so it has to be certain which files these were. Names can be exchanged at any moment, also
//! between two looks at a path. [`SteadyStorage`] remembers where each path has led, to readers of data as to
//! those who ask for permissions, and fails for ever once a path leads elsewhere. Everything that was derived
//! from it is then dropped with it.

use super::{Audience, Blob, DirEntry, Metadata, Reached, Storage, Want};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::lock;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A storage in which each path leads to one file only, or to none.
pub struct SteadyStorage {
    inner: Arc<dyn Storage>,
    /// The identity of the file at each path, by a keyed hash of the path.
    identities: Mutex<HashMap<u64, u64>>,
    paths: RandomState,
    stale: AtomicBool,
}

impl SteadyStorage {
    /// A storage over `inner`, with no path met yet.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        SteadyStorage {
            inner,
            identities: Mutex::default(),
            paths: RandomState::new(),
            stale: AtomicBool::new(false),
        }
    }

    /// Whether a path has led to two files. All calls fail from then on, with ESTALE.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Notes that `path` has led to the file `identity`. Fails with ESTALE if it has led to another before.
    pub fn meet(&self, path: &Path, identity: u64) -> Result<()> {
        let known = *lock(&self.identities).entry(self.hash(path)).or_insert(identity);
        self.check(path, known == identity)
    }

    /// Notes that nothing is at `path`. Fails with ESTALE if something was there before, because nobody can
    /// say who may read that.
    fn miss(&self, path: &Path) -> Result<()> {
        let known = lock(&self.identities).contains_key(&self.hash(path));
        self.check(path, !known)
    }

    fn hash(&self, path: &Path) -> u64 {
        self.paths.hash_one(path.as_os_str())
    }

    fn check(&self, path: &Path, good: bool) -> Result<()> {
        if !good && !self.stale.swap(true, Ordering::AcqRel) {
            log::info!("{}: replaced while it was in use", self.inner.display(path));
        }
        match self.is_stale() {
            true => Err(Error::new(
                ErrorKind::Io(libc::ESTALE),
                "files were replaced by others since it was opened",
            )
            .in_file(self.inner.display(path))),
            false => Ok(()),
        }
    }
}

impl Storage for SteadyStorage {
    fn inner(&self) -> Option<&dyn Storage> {
        Some(&*self.inner)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        Ok(self.list_directory(path)?.1)
    }

    fn list_directory(&self, path: &Path) -> Result<(Option<u64>, Vec<DirEntry>)> {
        let (identity, entries) = self.inner.list_directory(path)?;
        if let Some(identity) = identity {
            self.meet(path, identity)?;
        }
        Ok((identity, entries))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let metadata = self.inner.metadata(path)?;
        self.meet(path, metadata.identity)?;
        Ok(metadata)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let blob = self.inner.open(path)?;
        self.meet(path, blob.version().0)?;
        Ok(blob)
    }

    fn display(&self, path: &Path) -> String {
        self.inner.display(path)
    }

    fn audience(&self, path: &Path, want: Want) -> Audience {
        self.reached(path, want).audience
    }

    fn reached(&self, path: &Path, want: Want) -> Reached {
        let mut reached = self.inner.reached(path, want);
        let known = match reached.identity {
            Some(identity) => self.meet(path, identity),
            None => self.miss(path),
        };
        if known.is_err() {
            reached.audience = Audience::nobody();
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::LocalStorage;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_that_leads_elsewhere_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("f"), name).unwrap();
        }
        symlink("a", at("link")).unwrap();
        let local = Arc::new(LocalStorage::new(folder.path(), false, Arc::default()).unwrap());
        let file = Path::new("link/f");
        let swap = || {
            symlink("b", at("new")).unwrap();
            fs::rename(at("new"), at("link")).unwrap();
        };
        // Whoever comes first: a reader of data, or somebody who asks for permissions.
        let read = |storage: &SteadyStorage| storage.open(file).is_ok();
        let look = |storage: &SteadyStorage| storage.metadata(file).is_ok();
        let ask = |storage: &SteadyStorage| storage.reached(file, Want::Read).audience != Audience::nobody();
        let uses: [&dyn Fn(&SteadyStorage) -> bool; 3] = [&read, &look, &ask];
        let met: Vec<_> = uses
            .iter()
            .flat_map(|first| uses.iter().map(move |second| (first, second)))
            .map(|(first, second)| {
                let storage = SteadyStorage::new(local.clone());
                assert!(first(&storage) && second(&storage));
                (storage, second)
            })
            .collect();
        swap();
        std::thread::sleep(super::super::RECHECK_AFTER);
        for (storage, second) in met {
            assert!(!storage.is_stale());
            assert!(!second(&storage) && storage.is_stale());
            assert!(uses.iter().all(|used| !used(&storage)));
        }
        let listed = SteadyStorage::new(local);
        assert_eq!(listed.list(Path::new("link")).unwrap().len(), 1);
        fs::remove_file(at("link")).unwrap();
        // Who may read what was listed is unknown while it is gone.
        assert_eq!(listed.audience(Path::new("link"), Want::List), Audience::nobody());
        assert!(listed.is_stale());
    }
}
