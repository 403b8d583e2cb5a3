//! Parts of objects on a local disk, shared by concurrent mounts and kept after they end.
//!
//! The key of a part is its object's URL and ETag, and its number. Parts never expire, because a replaced
//! object has another ETag. Each part is a file named by the SHA-256 of its key. The file holds the SHA-256
//! of key and bytes, then the bytes.
//!
//! Parts are written under a temporary name and renamed, so a killed process leaves no partial file under a
//! part's name. There is no fsync: parts damaged by a power cut fail their checksum and are fetched again.
//!
//! A part's modification time is its last use. If a new part does not fit, the least recently used ones are
//! removed until an eighth of the cache is free. The sum of all lengths is in a file that is locked while it
//! changes. It grows before a part is written, so that the bound holds. After a kill it may be too large,
//! until the next eviction recomputes it.

use crate::printable::hex;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The key of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartKey<'a> {
    /// URL of the object.
    pub url: &'a str,
    /// ETag of the object.
    pub etag: &'a str,
    /// Number of the part, from 0.
    pub part: u64,
}

/// Bytes per part. Only the last part of an object is shorter.
pub const PART: u64 = 1 << 20;

/// The cache. Failures to read or write a part are logged, and are never an error for the caller.
#[derive(Debug)]
pub struct DiskCache {
    parts: PathBuf,
    max_bytes: u64,
    /// Makes the names of temporary files unique.
    next: AtomicU64,
    /// Whether the last write failed and this was logged.
    failing: AtomicBool,
}

/// The subdirectory for parts. Its name contains the version of the layout.
const DIRECTORY: &str = "tiledbfs-parts-1";
/// The lock file. It holds the sum of all lengths and the id of the boot in which it was written.
const TOTAL: &str = "total";
const TEMPORARY: &str = "new-";
/// Bytes of the checksum at the start of a file.
const DIGEST: usize = 32;
/// The longest file of a part, in bytes.
const MAX_STORED: u64 = PART + DIGEST as u64;
/// Temporary files older than this are left over from killed processes.
const MAX_TEMPORARY_AGE: Duration = Duration::from_secs(600);
/// How far the clock of the disk may be ahead.
const MAX_SKEW: Duration = Duration::from_secs(60);
/// How long the lock of the sum is waited for, and how often it is tried.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(2);
/// The modification time is updated at most this often.
const TOUCH_INTERVAL: Duration = Duration::from_secs(1);

impl DiskCache {
    /// Opens or creates a cache of at most `max_bytes` in `directory`. Fails if the directory cannot be
    /// written to, or if other users can read or write it.
    pub fn open(directory: &Path, max_bytes: u64) -> io::Result<DiskCache> {
        // Absolute, because a background process changes its working directory.
        let parts = std::path::absolute(directory)?.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&parts)?;
        let metadata = fs::metadata(&parts)?;
        if metadata.uid() != nix::unistd::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{} belongs to another user, or others may read or write it",
                    parts.display()
                ),
            ));
        }
        let cache = DiskCache {
            parts,
            max_bytes,
            next: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        };
        let tag = cache.parts.join("CACHEDIR.TAG");
        if !tag.exists() {
            fs::write(
                tag,
                "Signature: 8a477f597d28d172789f06886806bc55\n# Made by tiledbfs.\n",
            )?;
        }
        // Another mount may have had a larger bound.
        match cache.reserve(0, Duration::ZERO) {
            // Who has the lock keeps to its own bound, or counts all parts, which may take long.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            reserved => reserved?,
        }
        Ok(cache)
    }

    /// Whether there is this part, perhaps a damaged one.
    pub fn has(&self, key: &PartKey<'_>) -> bool {
        self.path(key).exists()
    }

    /// The bytes of a part; None if it is missing or damaged.
    pub fn get(&self, key: &PartKey<'_>) -> Option<Bytes> {
        let path = self.path(key);
        let mut file = File::open(&path).ok()?;
        match read(&mut file, key) {
            Ok(Some(bytes)) => Some(bytes),
            Ok(None) => {
                log::warn!(
                    "{}: a damaged cached part of {} is fetched again",
                    path.display(),
                    key.url
                );
                let _ = fs::remove_file(&path);
                None
            }
            Err(error) => {
                log::warn!(
                    "{}: {error}: a cached part of {} is fetched again",
                    path.display(),
                    key.url
                );
                None
            }
        }
    }

    /// Removes a part, if it is there. Its bytes stay in the sum until parts are evicted.
    pub fn remove(&self, key: &PartKey<'_>) {
        let _ = fs::remove_file(self.path(key));
    }

    /// Stores a part, if it fits.
    pub fn put(&self, key: &PartKey<'_>, bytes: &[u8]) {
        match self.write(key, bytes) {
            Ok(()) => self.failing.store(false, Ordering::Relaxed),
            Err(error) => {
                // Logged once, not for each part.
                if !self.failing.swap(true, Ordering::Relaxed) {
                    log::warn!(
                        "{}: the disk cache cannot be written: {error}",
                        self.parts.display()
                    );
                }
            }
        }
    }

    fn write(&self, key: &PartKey<'_>, bytes: &[u8]) -> io::Result<()> {
        let stored = (bytes.len() as u64).saturating_add(DIGEST as u64);
        if stored > self.max_bytes.min(MAX_STORED) {
            return Ok(());
        }
        self.reserve(stored, MAX_LOCK_WAIT)?;
        let path = self.path(key);
        // In the same file system, so that it can be renamed. In another container, or on another machine,
        // another process may have the same id.
        let (temporary, mut file) = loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let temporary = self
                .parts
                .join(format!("{TEMPORARY}{}-{next}", std::process::id()));
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(0o600).open(&temporary) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => break (temporary, file?),
            }
        };
        let written = (|| {
            file.write_all(&digest(key, bytes))?;
            file.write_all(bytes)?;
            match fs::rename(&temporary, &path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if let Some(folder) = path.parent() {
                        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                    }
                    fs::rename(&temporary, &path)
                }
                renamed => renamed,
            }
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Adds `bytes` to the sum; evicts parts if they do not fit. `WouldBlock` if others have the lock for
    /// longer than `most`.
    fn reserve(&self, bytes: u64, most: Duration) -> io::Result<()> {
        let open = || {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true);
            options.truncate(false).mode(0o600).open(self.parts.join(TOTAL))
        };
        let mut file = match open() {
            // Somebody has removed the cache.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&self.parts)?;
                open()?
            }
            file => file?,
        };
        // The lock is released when the file is closed, and when the process is killed.
        lock_within(&file, most)?;
        let boot = boot();
        let mut text = Vec::new();
        (&file).take(256).read_to_end(&mut text)?;
        let known = String::from_utf8_lossy(&text)
            .trim_end()
            .split_once(' ')
            .filter(|(_, of)| *of == boot)
            .and_then(|(total, _)| total.parse::<u64>().ok());
        let mut total = match known {
            Some(total) => total,
            None => self.evict_to(self.max_bytes)?,
        };
        if total.saturating_add(bytes) > self.max_bytes {
            let goal = self.max_bytes - self.max_bytes / 8;
            total = self.evict_to(goal.saturating_sub(bytes))?;
        }
        total = total.saturating_add(bytes);
        file.rewind()?;
        // Of fixed width, so that it overwrites the old sum completely.
        file.write_all(format!("{total:020} {boot}\n").as_bytes())
    }

    /// Removes the least recently used parts until at most `goal` bytes are left. The caller holds the lock.
    /// Returns the bytes left.
    fn evict_to(&self, goal: u64) -> io::Result<u64> {
        let now = SystemTime::now();
        // Of a clock that was ahead: such parts would outlast all others.
        let to_come = now + MAX_SKEW;
        let (mut parts, mut total) = (Vec::new(), 0_u64);
        for entry in fs::read_dir(&self.parts)?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(TEMPORARY) {
                let Ok(metadata) = entry.metadata() else { continue };
                let age = metadata
                    .modified()
                    .ok()
                    .and_then(|time| now.duration_since(time).ok());
                if age.is_some_and(|age| age > MAX_TEMPORARY_AGE) && fs::remove_file(entry.path()).is_ok() {
                    continue;
                }
                total = total.saturating_add(metadata.len());
            }
            // Ignores files, and directories that are gone.
            for part in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let Ok(metadata) = part.metadata() else { continue };
                let used = metadata.modified().ok().filter(|used| *used < to_come);
                let used = used.unwrap_or(SystemTime::UNIX_EPOCH);
                total = total.saturating_add(metadata.len());
                parts.push((used, metadata.len(), part.path()));
            }
        }
        parts.sort_unstable();
        for (_, length, path) in parts {
            if total <= goal {
                break;
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => total = total.saturating_sub(length),
            }
        }
        Ok(total)
    }

    /// The file of a part.
    fn path(&self, key: &PartKey<'_>) -> PathBuf {
        let name = hex(&hasher(key).finalize());
        let (folder, file) = name.split_at(2);
        self.parts.join(folder).join(file)
    }
}

/// Locks a file. Fails if that takes longer than `most`: a process that is stopped may hold the lock.
fn lock_within(file: &File, most: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= most => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "another process holds the lock of its lengths",
                ));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY),
        }
    }
}

/// The bytes of a part, or None if its checksum is wrong. Updates its time of last use.
fn read(file: &mut File, key: &PartKey<'_>) -> io::Result<Option<Bytes>> {
    let metadata = file.metadata()?;
    if metadata.len() > MAX_STORED {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(MAX_STORED).read_to_end(&mut bytes)?;
    let mut bytes = Bytes::from(bytes);
    if bytes.len() < DIGEST {
        return Ok(None);
    }
    let stored = bytes.split_to(DIGEST);
    if digest(key, &bytes) != *stored {
        return Ok(None);
    }
    let now = SystemTime::now();
    let is_now = |used: SystemTime| {
        let (Ok(apart) | Err(apart)) = now.duration_since(used).map_err(|ahead| ahead.duration());
        apart <= TOUCH_INTERVAL
    };
    if metadata.modified().is_ok_and(|used| !is_now(used)) {
        // A failure only makes the part seem older.
        let _ = file.set_modified(now);
    }
    Ok(Some(bytes))
}

/// A hasher that has consumed the key.
fn hasher(key: &PartKey<'_>) -> Sha256 {
    let mut hasher = Sha256::new();
    // The lengths keep different keys from having the same bytes.
    for text in [key.url, key.etag] {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.update(key.part.to_le_bytes());
    hasher
}

/// The checksum of a part's key and bytes.
fn digest(key: &PartKey<'_>, bytes: &[u8]) -> [u8; DIGEST] {
    let mut hasher = hasher(key);
    hasher.update(bytes);
    hasher.finalize().into()
}

/// The id of the current boot.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use tempfile::TempDir;

    fn key(etag: &str, part: u64) -> PartKey<'_> {
        PartKey {
            url: "s3://bucket/object",
            etag,
            part,
        }
    }

    fn cache(max_bytes: u64) -> (TempDir, DiskCache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(folder.path(), max_bytes).unwrap();
        (folder, cache)
    }

    /// Sets a part's time of last use to `seconds` ago.
    fn age(cache: &DiskCache, key: &PartKey<'_>, seconds: u64) {
        let file = File::options().write(true).open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .unwrap();
    }

    /// Bytes of all parts in the file system.
    fn stored(cache: &DiskCache) -> u64 {
        cache.evict_to(u64::MAX).unwrap()
    }

    #[test]
    fn a_part_is_found_again_by_its_whole_key() {
        let (folder, cache) = cache(1 << 20);
        assert_eq!(cache.get(&key("a", 0)), None);
        cache.put(&key("a", 0), b"one");
        cache.put(&key("a", 3), b"two");
        cache.put(&key("a", 9), b"");
        let again = DiskCache::open(folder.path(), 1 << 20).unwrap();
        assert_eq!(again.get(&key("a", 0)).unwrap(), "one");
        assert_eq!(again.get(&key("a", 3)).unwrap(), "two");
        assert_eq!(again.get(&key("a", 9)).unwrap(), "");
        assert_eq!(again.get(&key("b", 0)), None);
        assert_eq!(again.get(&key("a", 1)), None);
        let elsewhere = PartKey {
            url: "s3://bucket/objecta",
            etag: "",
            part: 0,
        };
        assert_eq!(again.get(&elsewhere), None);
        let mode = fs::metadata(cache.path(&key("a", 0))).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn damaged_parts_are_removed() {
        let (_folder, cache) = cache(1 << 20);
        let whole = key("a", 0);
        cache.put(&whole, b"some bytes");
        let path = cache.path(&whole);
        let good = fs::read(&path).unwrap();
        let mut damaged: Vec<Vec<u8>> = (0..good.len())
            .map(|at| {
                let mut bytes = good.clone();
                bytes[at] ^= 1;
                bytes
            })
            .collect();
        damaged.push(Vec::new());
        damaged.push(good[..good.len() - 1].to_vec());
        damaged.push(good[..DIGEST - 1].to_vec());
        damaged.push([&good[..], b"x"].concat());
        for bytes in damaged {
            fs::write(&path, bytes).unwrap();
            assert_eq!(cache.get(&whole), None);
            assert!(!path.exists());
        }
        // An intact part under the name of another.
        cache.put(&whole, b"some bytes");
        let other = key("a", 1);
        cache.put(&other, b"other bytes");
        fs::copy(&path, cache.path(&other)).unwrap();
        assert_eq!(cache.get(&other), None);
        assert_eq!(cache.get(&whole).unwrap(), "some bytes");
    }

    #[test]
    fn least_recently_used_parts_are_evicted_and_the_bound_holds() {
        let bytes = vec![7; 1000 - DIGEST];
        let (folder, cache) = cache(10_000);
        for part in 0..10 {
            cache.put(&key("a", part), &bytes);
            age(&cache, &key("a", part), 1000 - part);
        }
        assert_eq!(stored(&cache), 10_000);
        // Another process uses the oldest part.
        let other = DiskCache::open(folder.path(), 10_000).unwrap();
        assert!(other.get(&key("a", 0)).is_some());
        other.put(&key("a", 10), &bytes);
        assert!(stored(&cache) <= 8750, "{}", stored(&cache));
        let there: Vec<u64> = (0..11)
            .filter(|part| cache.get(&key("a", *part)).is_some())
            .collect();
        assert_eq!(there, [0, 4, 5, 6, 7, 8, 9, 10]);
        // A smaller bound.
        let small = DiskCache::open(folder.path(), 3000).unwrap();
        assert!(stored(&small) <= 3000);
        small.put(&key("b", 0), &vec![0; 4000]);
        assert_eq!(small.get(&key("b", 0)), None);
    }

    #[test]
    fn parts_of_times_to_come_go_first_unless_they_are_used() {
        let bytes = vec![7; 1000 - DIGEST];
        let (_folder, cache) = cache(4000);
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        for part in 0..4 {
            cache.put(&key("a", part), &bytes);
            let file = File::options().write(true).open(cache.path(&key("a", part)));
            file.unwrap().set_modified(SystemTime::now() + year).unwrap();
        }
        assert!(cache.get(&key("a", 0)).is_some());
        for part in 4..8 {
            cache.put(&key("a", part), &bytes);
            assert!(cache.has(&key("a", 0)) || part > 5);
        }
        let there: Vec<u64> = (0..8).filter(|part| cache.has(&key("a", *part))).collect();
        assert_eq!(there, [4, 5, 6, 7]);
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed() {
        let (folder, cache) = cache(10_000);
        cache.put(&key("a", 0), &[1; 1000]);
        let left = cache.parts.join(format!("{TEMPORARY}1-1"));
        fs::write(&left, vec![0; 5000]).unwrap();
        // Another process may still be writing the file.
        assert!(stored(&cache) > 6000 && left.exists());
        let file = File::options().write(true).open(&left).unwrap();
        file.set_modified(SystemTime::now() - MAX_TEMPORARY_AGE * 2)
            .unwrap();
        assert!(stored(&cache) < 2000 && !left.exists());
        // An invalid sum, or one of another boot, is recomputed.
        for text in ["", "x", "00000000000000000005 another boot\n", "\u{e9}\0"] {
            fs::write(cache.parts.join(TOTAL), text).unwrap();
            DiskCache::open(folder.path(), 10_000).unwrap();
            let total = fs::read_to_string(cache.parts.join(TOTAL)).unwrap();
            assert!(total.starts_with("00000000000000001032 "), "{text}: {total}");
        }
    }

    #[test]
    fn processes_of_the_same_id_do_not_write_to_one_file() {
        let (folder, cache) = cache(10_000);
        let left = cache.parts.join(format!("{TEMPORARY}{}-0", std::process::id()));
        fs::write(&left, "of another container").unwrap();
        let other = DiskCache::open(folder.path(), 10_000).unwrap();
        for (number, cache) in [cache, other].iter().enumerate() {
            cache.put(&key("a", number as u64), b"one");
            assert_eq!(cache.get(&key("a", number as u64)).unwrap(), "one");
        }
        assert_eq!(fs::read(&left).unwrap(), b"of another container");
    }

    #[test]
    fn it_is_opened_while_another_process_has_the_lock() {
        let (folder, cache) = cache(10_000);
        let total = File::open(cache.parts.join(TOTAL)).unwrap();
        total.lock().unwrap();
        let begun = Instant::now();
        let other = DiskCache::open(folder.path(), 10_000).unwrap();
        assert!(begun.elapsed() < MAX_LOCK_WAIT);
        drop(total);
        other.put(&key("a", 0), b"one");
        assert_eq!(cache.get(&key("a", 0)).unwrap(), "one");
    }

    #[test]
    fn what_was_removed_is_made_again() {
        let (_folder, cache) = cache(10_000);
        cache.put(&key("a", 0), b"one");
        fs::remove_dir_all(&cache.parts).unwrap();
        assert_eq!(cache.get(&key("a", 0)), None);
        cache.put(&key("a", 0), b"one");
        assert_eq!(cache.get(&key("a", 0)).unwrap(), "one");
        assert_eq!(fs::metadata(&cache.parts).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, cache) = cache(1000);
        fs::set_permissions(&cache.parts, PermissionsExt::from_mode(0o770)).unwrap();
        let error = DiskCache::open(folder.path(), 1000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    /// The child process of [`processes_share_it_and_may_be_killed`]: reads and writes without end.
    #[test]
    #[ignore = "a part of another test"]
    fn endless_writer() {
        let Ok(folder) = std::env::var("TILEDBFS_TEST_DISK_CACHE") else {
            return;
        };
        let cache = DiskCache::open(Path::new(&folder), 1 << 20).unwrap();
        for round in 0_u64.. {
            let part = round * 7919 % 97;
            match cache.get(&key("shared", part)) {
                Some(bytes) => assert_eq!(bytes, vec![part as u8; 50_000]),
                None => cache.put(&key("shared", part), &vec![part as u8; 50_000]),
            }
        }
    }

    #[test]
    fn processes_share_it_and_may_be_killed() {
        let (folder, cache) = cache(1 << 20);
        let program = std::env::current_exe().unwrap();
        let name = format!("{}::endless_writer", module_path!().split_once("::").unwrap().1);
        let start = || {
            Command::new(&program)
                .args(["--exact", &name, "--ignored", "--quiet"])
                .env("TILEDBFS_TEST_DISK_CACHE", folder.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        for _ in 0..5 {
            let mut children = [start(), start()];
            std::thread::sleep(Duration::from_millis(300));
            for child in &mut children {
                assert!(child.try_wait().unwrap().is_none(), "it found a wrong part");
                child.kill().unwrap();
                child.wait().unwrap();
            }
            // All parts are intact, and the bound holds except for what the killed processes were writing.
            let there: Vec<u64> = (0..97)
                .filter(|part| {
                    let found = cache.get(&key("shared", *part));
                    found.is_some_and(|bytes| {
                        assert_eq!(bytes, vec![*part as u8; 50_000]);
                        true
                    })
                })
                .collect();
            assert!(there.len() > 5, "{there:?}");
            assert!(stored(&cache) <= (1 << 20) + 20 * 50_032, "{}", stored(&cache));
        }
    }
}
