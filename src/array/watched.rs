//! What was read of directories, and is read again once they have changed.

use super::engine::Engine;
use super::time::now;
use crate::error::{ErrorKind, Result};
use crate::storage::TRUSTED;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A value that follows from some directories of the source.
pub struct Watched<T> {
    directories: Vec<PathBuf>,
    known: Mutex<Option<Known<T>>>,
}

struct Known<T> {
    value: Arc<T>,
    stamp: Stamp,
    /// Whether the stamp would differ, had the directories changed since they were read.
    settled: bool,
    checked: Instant,
}

/// The state of directories: their versions, None for those that are missing.
type Stamp = Vec<Option<(u64, u64, u64)>>;

impl<T> Watched<T> {
    /// Nothing yet of what follows from `directories`, the first of which must be there.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Watched {
            directories,
            known: Mutex::default(),
        }
    }

    /// The value, at most a tenth of a second old; what `read` makes, of the one before it, where it is to be
    /// read. `NotFound` where the first directory is gone.
    pub fn get(&self, engine: &Engine, read: impl FnOnce(Option<&T>) -> Result<T>) -> Result<Arc<T>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known
            && known.checked.elapsed() < TRUSTED
        {
            return Ok(known.value.clone());
        }
        let (checked, read_at) = (Instant::now(), now());
        let (stamp, newest) = self.stamp(engine)?;
        if let Some(known) = &mut *known
            && known.settled
            && known.stamp == stamp
        {
            known.checked = checked;
            return Ok(known.value.clone());
        }
        let value = Arc::new(read(known.as_ref().map(|known| &*known.value))?);
        *known = Some(Known {
            value: value.clone(),
            stamp,
            settled: engine.storage.racy_for().is_none_or(|racy| {
                let racy = u64::try_from(racy.as_millis()).unwrap_or(u64::MAX);
                newest.saturating_add(racy) < read_at
            }),
            checked,
        });
        Ok(value)
    }

    /// Names the state of the directories that `value` was read from. None where they may have changed since
    /// without its showing.
    pub fn state(&self, value: &Arc<T>) -> Option<u64> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref()?;
        let mut hasher = DefaultHasher::new();
        known.stamp.hash(&mut hasher);
        (known.settled && Arc::ptr_eq(&known.value, value)).then(|| hasher.finish())
    }

    /// Has the next look be at the directories, however young the last one is.
    pub fn look_again(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(known), Some(before)) = (&mut *known, Instant::now().checked_sub(TRUSTED)) {
            known.checked = before;
        }
    }

    /// The state of the directories, and the newest of their modification times.
    fn stamp(&self, engine: &Engine) -> Result<(Stamp, u64)> {
        engine.storage.will_list(&self.directories);
        let first = self.directories.first().map(PathBuf::as_path);
        let mut newest = 0;
        let mut look = |path: &Path| match engine.storage.metadata(path) {
            Ok(metadata) => {
                newest = newest.max(metadata.mtime);
                Ok(Some(metadata.version))
            }
            Err(e) if e.kind() == ErrorKind::NotFound && Some(path) != first => Ok(None),
            Err(e) => Err(e),
        };
        let stamp = self
            .directories
            .iter()
            .map(|path| look(path))
            .collect::<Result<_>>()?;
        Ok((stamp, newest))
    }
}
