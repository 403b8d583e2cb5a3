//! Values derived from directories, made again when these change.

use crate::calendar::now;
use crate::engine::Engine;
use crate::error::Result;
use crate::runtime::single_flight::SingleFlight;
use crate::runtime::{hash, lock};
use crate::storage::RECHECK_AFTER;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A value derived from some directories of the source.
pub struct Revalidated<T> {
    directories: Vec<PathBuf>,
    /// Not locked while directories are read, which may wait for the network.
    state: Mutex<Inner<T>>,
    looking: SingleFlight,
}

struct Inner<T> {
    known: Option<Checked<T>>,
    /// Looks at the directories before this do not count.
    since: Option<Instant>,
}

struct Checked<T> {
    value: Arc<T>,
    stamp: Stamp,
    /// Whether every later change of the directories shows in the stamp.
    settled: bool,
    /// Until when it is used while the directories stay the same, in milliseconds since the Unix epoch.
    until: u64,
    checked: Instant,
}

/// The state of directories: their versions, None for those that are missing.
type Stamp = Vec<Option<(u64, u64, u64)>>;

impl<T> Revalidated<T> {
    /// A value of `directories`, not read yet. The first directory must exist.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Revalidated {
            directories,
            state: Mutex::new(Inner {
                known: None,
                since: None,
            }),
            looking: SingleFlight::default(),
        }
    }

    /// The value, at most a tenth of a second old. If directories have changed, `read` makes it from the
    /// value before, and tells until when it can be used if they do not change again, in milliseconds since
    /// the Unix epoch; `u64::MAX` if that is for ever. `prepare` is called before each look at the
    /// directories. `NotFound` if the first of them is gone.
    pub fn get(
        &self,
        engine: &Engine,
        prepare: impl FnOnce() -> Result<()>,
        read: impl FnOnce(Option<&T>) -> Result<(T, u64)>,
    ) -> Result<Arc<T>> {
        let look = || {
            prepare()?;
            self.look(engine, read)
        };
        self.looking.find_or_make(|| self.trusted(), look)
    }

    /// The value, if the last look is recent.
    fn trusted(&self) -> Option<Arc<T>> {
        let state = lock(&self.state);
        let known = state.known.as_ref()?;
        let counts = state.since.is_none_or(|since| known.checked >= since);
        (counts && known.checked.elapsed() < RECHECK_AFTER).then(|| known.value.clone())
    }

    fn look(&self, engine: &Engine, read: impl FnOnce(Option<&T>) -> Result<(T, u64)>) -> Result<Arc<T>> {
        let (checked, read_at) = (Instant::now(), now());
        let (stamp, newest) = self.stamp(engine)?;
        let before = match &mut lock(&self.state).known {
            Some(known) if known.settled && known.stamp == stamp && read_at < known.until => {
                known.checked = checked;
                return Ok(known.value.clone());
            }
            known => known.as_ref().map(|known| known.value.clone()),
        };
        let (value, until) = read(before.as_deref())?;
        let value = Arc::new(value);
        let known = Checked {
            value: value.clone(),
            stamp,
            until,
            settled: engine.storage.local().is_none_or(|local| {
                let window = local.racy_window(&self.directories).as_millis() as u64;
                newest.saturating_add(window) < read_at
            }),
            checked,
        };
        // Drops the value before after the lock is released.
        let _before = lock(&self.state).known.replace(known);
        Ok(value)
    }

    /// A number for the state of the directories that `value` was read from. None if they may have changed
    /// unnoticed since.
    pub fn state(&self, value: &Arc<T>) -> Option<u64> {
        let state = lock(&self.state);
        let known = state.known.as_ref()?;
        (known.settled && Arc::ptr_eq(&known.value, value)).then(|| hash(&(&known.stamp, known.until)))
    }

    /// Makes the next call look at the directories, however recent the last look is.
    pub fn look_again(&self) {
        lock(&self.state).since = Some(Instant::now());
    }

    /// The state of the directories, and the newest of their times. Programs that copy set old mtimes.
    fn stamp(&self, engine: &Engine) -> Result<(Stamp, u64)> {
        engine.storage.will_list(&self.directories);
        let found = engine.storage.metadata_of(&self.directories)?;
        let times = found
            .iter()
            .flatten()
            .map(|metadata| metadata.mtime.max(metadata.ctime));
        let newest = times.max();
        let versions = found
            .iter()
            .map(|metadata| metadata.map(|metadata| metadata.version));
        Ok((versions.collect(), newest.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{LocalStorage, MemoryStorage};
    use std::fs::File;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_directory_that_just_changed_may_change_again_whatever_its_mtime() {
        let folder = tempfile::tempdir().unwrap();
        let directory = File::open(folder.path()).unwrap();
        directory.set_modified(UNIX_EPOCH).unwrap();
        let storage = LocalStorage::new(folder.path(), false, Arc::default()).unwrap();
        let engine = Engine::new(Arc::new(storage), 1, Vec::new(), Arc::default());
        let value = Revalidated::new(vec![PathBuf::new()]);
        let made = value.get(&engine, || Ok(()), |_| Ok((1, u64::MAX))).unwrap();
        assert_eq!(value.state(&made), None);
    }

    #[test]
    fn a_value_that_does_not_last_is_made_again() {
        let storage = Arc::new(MemoryStorage::default());
        let engine = Engine::new(storage, 1, Vec::new(), Arc::default());
        for (until, times) in [(u64::MAX, 1), (0, 3)] {
            let (value, mut made) = (Revalidated::new(vec![PathBuf::new()]), 0);
            for _ in 0..3 {
                value.look_again();
                let read = |_: Option<&u64>| {
                    made += 1;
                    Ok((made, until))
                };
                value.get(&engine, || Ok(()), read).unwrap();
            }
            assert_eq!(made, times);
        }
    }
}
