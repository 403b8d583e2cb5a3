//! Open files and directories.

use super::inodes::Inode;
use crate::layout::FileLayout;
use crate::runtime::lock;
use crate::runtime::stats::Stats;
use crate::storage::Credentials;
use crate::tree::Listing;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// An open file or directory.
pub(super) enum Handle {
    File(FileHandle),
    Directory(DirectoryHandle),
}

/// An open file in one state.
pub(super) struct FileHandle {
    pub(super) inode: Arc<Inode>,
    pub(super) open: Arc<FileLayout>,
    /// Whether reads go through the page cache.
    pub(super) paged: bool,
    /// Whether the kernel drops all pages before it reads.
    pub(super) drops_pages: bool,
    /// Whether reads bypass it, but what is read in order is put there for who opens the file next.
    pub(super) stores: bool,
}

impl FileHandle {
    /// Notes that the kernel has the reply to its open: it reads or closes it.
    pub(super) fn is_in_use(&self) {
        if self.drops_pages {
            let state = (self.open.version(), self.open.len());
            self.inode
                .pages(|pages| pages.stale &= pages.state != Some(state));
        }
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.is_in_use();
        if self.paged {
            self.inode.pages(|pages| pages.users -= 1);
        }
    }
}

/// An open directory, with a snapshot of its entries from the last read at offset 0.
pub(super) struct DirectoryHandle {
    pub(super) inode: Arc<Inode>,
    /// Who has opened it.
    pub(super) opener: Credentials,
    listing: Mutex<Option<Arc<dyn Listing>>>,
}

impl DirectoryHandle {
    pub(super) fn new(inode: Arc<Inode>, opener: Credentials) -> Self {
        DirectoryHandle {
            inode,
            opener,
            listing: Mutex::new(None),
        }
    }

    /// The snapshot, if there is one.
    pub(super) fn listing(&self) -> MutexGuard<'_, Option<Arc<dyn Listing>>> {
        lock(&self.listing)
    }
}

/// All open files and directories, by handle number.
pub(super) struct Handles {
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
    stats: Arc<Stats>,
}

impl Handles {
    pub(super) fn new(stats: Arc<Stats>) -> Self {
        Handles {
            handles: RwLock::default(),
            next: AtomicU64::new(1),
            stats,
        }
    }

    /// Adds a handle and returns its number.
    pub(super) fn insert(&self, handle: Handle) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        handles.insert(number, Arc::new(handle));
        self.stats.open_handles.set(handles.len() as u64);
        number
    }

    /// The handle with this number.
    pub(super) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        let handles = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        handles.get(&number).cloned()
    }

    /// Removes and returns the handle with this number.
    pub(super) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let handle = handles.remove(&number);
        self.stats.open_handles.set(handles.len() as u64);
        handle
    }
}
