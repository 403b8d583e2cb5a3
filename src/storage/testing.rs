//! A local source of tests.

use super::{Blob, DirEntry, LocalStorage, Metadata, Storage};
use crate::error::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A local directory whose listings a test makes.
pub struct ListedBy<L> {
    files: LocalStorage,
    list: L,
    /// Whether it counts as a store.
    pub is_remote: bool,
    /// How old what it tells may be.
    pub lag: Option<Duration>,
}

impl<L: Fn(&LocalStorage, &Path) -> Result<Vec<DirEntry>>> ListedBy<L> {
    /// The directory `root`, whose listings are what `list` makes of it and of a path.
    pub fn new(root: &Path, list: L) -> Self {
        ListedBy {
            files: LocalStorage::new(root, false, Arc::default()).unwrap(),
            list,
            is_remote: false,
            lag: Some(Duration::ZERO),
        }
    }
}

impl<L: Fn(&LocalStorage, &Path) -> Result<Vec<DirEntry>> + Send + Sync> Storage for ListedBy<L> {
    fn inner(&self) -> Option<&dyn Storage> {
        Some(&self.files)
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn lag(&self) -> Option<Duration> {
        self.lag
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        (self.list)(&self.files, path)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.files.metadata(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        self.files.open(path)
    }

    fn display(&self, path: &Path) -> String {
        self.files.display(path)
    }
}
