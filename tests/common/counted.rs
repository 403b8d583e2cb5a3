//! A storage that counts calls.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tiledbfs::Result;
use tiledbfs::internals::storage::{Audience, Blob, DirEntry, Metadata, Storage, Want};

/// The number of calls of each kind.
#[derive(Default)]
pub struct Counts {
    pub listed: AtomicU64,
    pub looked_at: AtomicU64,
    pub opened: AtomicU64,
}

impl Counts {
    /// The number of all calls since the last call of `take`.
    pub fn take(&self) -> u64 {
        [&self.listed, &self.looked_at, &self.opened]
            .into_iter()
            .map(|count| count.swap(0, Ordering::Relaxed))
            .sum()
    }
}

/// Passes all calls to another storage, and counts them.
pub struct Counted<S> {
    pub inner: S,
    pub counts: Arc<Counts>,
}

impl<S: Storage> Storage for Counted<S> {
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.counts.listed.fetch_add(1, Ordering::Relaxed);
        self.inner.list(path)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.counts.looked_at.fetch_add(1, Ordering::Relaxed);
        self.inner.metadata(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        self.counts.opened.fetch_add(1, Ordering::Relaxed);
        self.inner.open(path)
    }

    fn display(&self, path: &Path) -> String {
        self.inner.display(path)
    }

    fn audience(&self, path: &Path, want: Want) -> Audience {
        self.inner.audience(path, want)
    }
}
