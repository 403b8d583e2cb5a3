//! A file while it is written: it has another name until it is whole, and a copy that is interrupted can be
//! continued.
//!
//! [`PARTIAL`] has the bytes. Every [`SAVE_EVERY`] they are synced, and [`SAVED`] beside it says of which
//! state of which file they are, and how many from its beginning are there. The next copy of the same state
//! goes on there; any other begins anew. Copies that take less time leave nothing.

use super::Place;
use crate::cli::output::close_copy;
use crate::runtime::lock;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// The name of a file while it is written.
pub(super) const PARTIAL: &str = ".tiledbfs-part";

/// Of what the partial file is, and how much.
pub(super) const SAVED: &str = ".tiledbfs-part-saved";

/// The name of [`SAVED`] while it is written.
pub(super) const SAVED_NEXT: &str = ".tiledbfs-part-saved-next";

/// The time between two points from which a copy can be continued.
pub(super) const SAVE_EVERY: Duration = Duration::from_secs(3);

/// The partial file of a directory, locked against other processes. Threads may write to it at once.
pub(super) struct Partial<'p> {
    place: &'p Place,
    file: File,
    save_every: Duration,
    written: Mutex<Written>,
    saved: Mutex<Saved>,
}

/// What is written.
struct Written {
    /// All bytes before this one.
    whole: u64,
    /// The ends of ranges behind it, by their starts.
    later: BTreeMap<u64, u64>,
}

/// From where a copy could be continued.
struct Saved {
    /// Of what the bytes are; None if copies of it cannot be continued, or if bytes were lost.
    identity: Option<u128>,
    /// Whether there is a file [`SAVED`].
    exists: bool,
    /// When bytes were last synced, or the copy began.
    at: Instant,
}

impl<'p> Partial<'p> {
    /// The partial file in `place`, which may be that of an earlier copy. Fails if another process has it.
    /// `save_every` is [`SAVE_EVERY`] but for tests.
    pub(super) fn open(place: &'p Place, save_every: Duration) -> io::Result<Partial<'p>> {
        Ok(Partial {
            place,
            file: locked(&place.path(PARTIAL))?,
            save_every,
            written: Mutex::new(Written {
                whole: 0,
                later: BTreeMap::new(),
            }),
            saved: Mutex::new(Saved {
                identity: None,
                exists: fs::symlink_metadata(place.path(SAVED)).is_ok(),
                at: Instant::now(),
            }),
        })
    }

    /// Begins with the file of this identity, of `len` bytes; without one it cannot be continued. Returns how
    /// many of its first bytes are there; all others are removed.
    pub(super) fn begin(&self, identity: Option<u128>, len: u64) -> io::Result<u64> {
        let (metadata, mut saved) = (self.file.metadata()?, lock(&self.saved));
        // What somebody else has put there is not continued.
        let own = metadata.uid() == nix::unistd::geteuid().as_raw();
        let known = identity.filter(|_| own && saved.exists);
        let whole = known.and_then(|identity| self.saved_bytes(identity));
        let whole = whole.filter(|whole| *whole <= metadata.len().min(len));
        if saved.exists && whole.is_none() {
            // Before the bytes are.
            remove(&self.place.path(SAVED))?;
            saved.exists = false;
        }
        (saved.identity, saved.at) = (identity, Instant::now());
        let whole = whole.unwrap_or(0);
        self.file.set_len(whole)?;
        lock(&self.written).whole = whole;
        Ok(whole)
    }

    /// How many bytes of the file of this identity [`SAVED`] says are there; None if it says nothing of it.
    fn saved_bytes(&self, identity: u128) -> Option<u64> {
        let mut options = File::options();
        options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut found = String::new();
        let file = options.open(self.place.path(SAVED)).ok()?;
        file.take(100).read_to_string(&mut found).ok()?;
        let (_, number) = found.split_once(' ')?;
        let whole = number.strip_suffix('\n')?.parse().ok()?;
        (text(identity, whole) == found).then_some(whole)
    }

    /// Writes bytes at an offset. Now and then syncs all, and saves how far they are whole.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        lock(&self.written).add(offset, offset + bytes.len() as u64);
        // One thread saves while the others go on.
        match self.saved.try_lock() {
            Ok(mut saved) if saved.at.elapsed() >= self.save_every => self.save(&mut saved),
            _ => Ok(()),
        }
    }

    fn save(&self, saved: &mut Saved) -> io::Result<()> {
        let whole = lock(&self.written).whole;
        if let Some(identity) = saved.identity.filter(|_| whole > 0) {
            // Linux says once that bytes are lost: the next one would succeed.
            self.file.sync_data().inspect_err(|_| saved.identity = None)?;
            let next = self.place.path(SAVED_NEXT);
            remove(&next)?;
            let renamed = (|| {
                let mut file = File::create_new(&next)?;
                file.write_all(text(identity, whole).as_bytes())?;
                file.sync_data()?;
                fs::rename(&next, self.place.path(SAVED))
            })();
            renamed.inspect_err(|_| drop(fs::remove_file(&next)))?;
            saved.exists = true;
        }
        saved.at = Instant::now();
        Ok(())
    }

    /// Gives the file, which is whole, a modification time and the name `held`. Replaces what has that name,
    /// a link too.
    pub(super) fn finish(self, held: &Path, modified: SystemTime) -> io::Result<()> {
        let closed = close_copy(&self.file).inspect_err(|_| lock(&self.saved).identity = None);
        let named = closed
            .and_then(|()| self.file.set_modified(modified))
            .and_then(|()| fs::rename(self.place.path(PARTIAL), held));
        if let Err(error) = named {
            self.stop()?;
            return Err(error);
        }
        match lock(&self.saved).exists {
            true => remove(&self.place.path(SAVED)),
            false => Ok(()),
        }
    }

    /// Ends a copy early: it can be continued if it took some time, or an earlier one did; else nothing is
    /// left of it.
    pub(super) fn stop(self) -> io::Result<()> {
        let mut saved = lock(&self.saved);
        let long = saved.exists || saved.at.elapsed() >= self.save_every;
        // On a full disk what was saved before still counts, unless bytes were lost.
        if long && (self.save(&mut saved).is_ok() || saved.identity.is_some()) && saved.exists {
            return Ok(());
        }
        remove(&self.place.path(SAVED))?;
        remove(&self.place.path(PARTIAL))
    }
}

impl Written {
    fn add(&mut self, start: u64, end: u64) {
        self.later.insert(start, end);
        while let Some(end) = self.later.remove(&self.whole) {
            self.whole = end;
        }
    }
}

/// The content of [`SAVED`].
fn text(identity: u128, whole: u64) -> String {
    format!("{identity:032x} {whole}\n")
}

/// Opens the partial file, and locks out other processes.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process is copying to this directory"));
            }
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // Another process may have renamed the file since it was opened.
        let opened = file.metadata()?;
        let still = fs::symlink_metadata(path);
        if still.is_ok_and(|still| (still.dev(), still.ino()) == (opened.dev(), opened.ino())) {
            // Another name of somebody's file.
            if opened.nlink() > 1 {
                fs::remove_file(path)?;
                continue;
            }
            return Ok(file);
        }
    }
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
