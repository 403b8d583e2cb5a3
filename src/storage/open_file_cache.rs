//! A storage that keeps files open.

use super::{Blob, DirEntry, LocalStorage, Metadata, Storage};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::lock;
use crate::runtime::stats::Stats;
use lru::LruCache;
use nix::sys::resource::{Resource, getrlimit};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// At most this many files are kept open, and at most a quarter of the process's descriptor limit.
const MAX_OPEN_FILES: u64 = 256;
const LIMIT_DIVISOR: u64 = 4;

/// Retries, with a pause, of calls that found no descriptor: other threads may be about to close files.
const DESCRIPTOR_RETRIES: usize = 10;
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// An LRU of open files that never change once they exist. If the process runs out of descriptors, they are
/// closed and the call is tried again.
pub struct OpenFileCache {
    inner: Arc<dyn Storage>,
    files: Mutex<LruCache<PathBuf, Arc<dyn Blob>>>,
    /// A quarter of the files that the process may have open.
    share: u64,
    stats: Arc<Stats>,
}

impl OpenFileCache {
    /// Keeps files of `inner` open, as many as the process's descriptor limit allows.
    pub fn new(inner: Arc<dyn Storage>, stats: Arc<Stats>) -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        let share = limit / LIMIT_DIVISOR;
        let most = share.min(MAX_OPEN_FILES) as usize;
        OpenFileCache {
            inner,
            files: Mutex::new(LruCache::new(
                NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN),
            )),
            share,
            stats,
        }
    }

    /// The most files that those may hold open together who hold them for nobody in particular. Files that
    /// are not local take no descriptor.
    pub fn most_held(&self) -> u64 {
        self.local().map_or(u64::MAX, |_| self.share)
    }

    /// Whether readers may hold one more file open, of local ones: the other half of the descriptors is for
    /// what they open in turn, and for everything else.
    pub fn may_hold(&self) -> bool {
        self.local().is_none() || LocalStorage::open_files() < 2 * self.share
    }

    /// Opens a file that never changes once it exists, or returns the open one if it is unchanged. A local
    /// one only if the path still leads to it.
    pub fn open_cached(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let known = lock(&self.files).get(path).cloned();
        let is_there = |blob: &dyn Blob| match self.local().map(|_| self.metadata(path)) {
            Some(Ok(now)) => now.version == blob.version(),
            // A file that was removed gives what it gave.
            Some(Err(e)) => e.kind() == ErrorKind::NotFound,
            None => true,
        };
        if let Some(blob) = known.filter(|blob| blob.is_unchanged() && is_there(&**blob)) {
            return Ok(blob);
        }
        let blob = self.open(path)?;
        let mut files = lock(&self.files);
        let replaced = files.push(path.to_path_buf(), blob.clone());
        self.stats.kept_files.set(files.len() as u64);
        drop(files);
        drop(replaced);
        Ok(blob)
    }

    /// Closes the kept files for which `which` returns true. Files that are being read close afterwards.
    pub fn close(&self, which: impl Fn(&Path) -> bool) {
        let mut files = lock(&self.files);
        let chosen: Vec<PathBuf> = files
            .iter()
            .map(|(path, _)| path)
            .filter(|path| which(path))
            .cloned()
            .collect();
        let closed: Vec<_> = chosen.iter().filter_map(|path| files.pop(path)).collect();
        self.stats.kept_files.set(files.len() as u64);
        drop(files);
        drop(closed);
    }

    fn with_descriptors<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        let mut result = call();
        for _ in 0..DESCRIPTOR_RETRIES {
            if !result.as_ref().is_err_and(is_out_of_descriptors) {
                break;
            }
            if lock(&self.files).is_empty() {
                std::thread::sleep(RETRY_PAUSE);
            }
            self.close(|_| true);
            result = call();
        }
        result
    }
}

/// Whether a call failed because the process or the system has too many files open.
pub(super) fn is_out_of_descriptors(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io(libc::EMFILE | libc::ENFILE))
}

impl Storage for OpenFileCache {
    fn inner(&self) -> Option<&dyn Storage> {
        Some(&*self.inner)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.with_descriptors(|| self.inner.list(path))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.with_descriptors(|| self.inner.metadata(path))
    }

    fn metadata_of(&self, paths: &[PathBuf]) -> Result<Vec<Option<Metadata>>> {
        self.with_descriptors(|| self.inner.metadata_of(paths))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        self.with_descriptors(|| self.inner.open(path))
    }

    fn display(&self, path: &Path) -> String {
        self.inner.display(path)
    }

    fn list_directory(&self, path: &Path) -> Result<(Option<u64>, Vec<DirEntry>)> {
        self.with_descriptors(|| self.inner.list_directory(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A source that fails with EMFILE while `limit` blobs are held.
    struct Scarce {
        inner: MemoryStorage,
        limit: usize,
        held: Mutex<Vec<std::sync::Weak<dyn Blob>>>,
        refused: AtomicUsize,
    }

    impl Scarce {
        fn ask(&self) -> Result<()> {
            let mut held = self.held.lock().unwrap();
            held.retain(|blob| blob.strong_count() > 0);
            if held.len() < self.limit {
                return Ok(());
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
            Err(Error::new(ErrorKind::Io(libc::EMFILE), "too many"))
        }
    }

    impl Storage for Scarce {
        fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
            self.ask()?;
            self.inner.list(path)
        }
        fn metadata(&self, path: &Path) -> Result<Metadata> {
            self.ask()?;
            self.inner.metadata(path)
        }
        fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
            self.ask()?;
            let blob = self.inner.open(path)?;
            self.held.lock().unwrap().push(Arc::downgrade(&blob));
            Ok(blob)
        }
        fn display(&self, path: &Path) -> String {
            self.inner.display(path)
        }
    }

    fn scarce(limit: usize) -> (OpenFileCache, Arc<Scarce>) {
        let mut inner = MemoryStorage::new();
        for file in 0..20 {
            inner.insert(Path::new(&format!("f{file}")), *b"x");
        }
        let scarce = Arc::new(Scarce {
            inner,
            limit,
            held: Mutex::default(),
            refused: AtomicUsize::new(0),
        });
        (OpenFileCache::new(scarce.clone(), Arc::default()), scarce)
    }

    #[test]
    fn kept_files_are_closed_when_descriptors_run_out() {
        let (kept, scarce) = scarce(5);
        for file in 0..20 {
            kept.open_cached(Path::new(&format!("f{file}"))).unwrap();
        }
        assert_eq!(scarce.refused.load(Ordering::Relaxed), 3);
        assert_eq!(kept.stats.kept_files.get(), 5);
        // `list` and `metadata` need a descriptor as well.
        kept.list(Path::new("")).unwrap();
        assert_eq!(kept.stats.kept_files.get(), 0);
        for file in 0..5 {
            kept.open_cached(Path::new(&format!("f{file}"))).unwrap();
        }
        kept.metadata(Path::new("f1")).unwrap();
    }

    #[test]
    fn a_file_that_has_taken_the_place_of_another_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path(), false, Arc::default()).unwrap();
        let kept = OpenFileCache::new(Arc::new(storage), Arc::default());
        let read = || kept.open_cached(Path::new("f")).unwrap().read(0, 3).unwrap();
        std::fs::write(dir.path().join("f"), b"old").unwrap();
        assert_eq!(read(), b"old");
        std::fs::write(dir.path().join("g"), b"new").unwrap();
        std::fs::rename(dir.path().join("g"), dir.path().join("f")).unwrap();
        assert_eq!(read(), b"new");
        // Who reads a fragment that is vacuumed goes on.
        std::fs::remove_file(dir.path().join("f")).unwrap();
        assert_eq!(read(), b"new");
    }

    #[test]
    fn files_held_by_readers_stay_open() {
        let (kept, scarce) = scarce(5);
        let open = |file: usize| kept.open_cached(Path::new(&format!("f{file}")));
        let held: Vec<_> = (0..5).map(|file| open(file).unwrap()).collect();
        let error = open(5).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Io(libc::EMFILE));
        assert_eq!(scarce.refused.load(Ordering::Relaxed), DESCRIPTOR_RETRIES + 1);
        drop(held);
        open(5).unwrap();
    }
}
