//! Parts of objects, kept on a disk of this machine, for many mounts at once and after the last of them.
//!
//! A part is known by the URL of its object, the object's ETag and its number, so it never needs to expire:
//! an object that is replaced has another ETag. Each is a file of its own, named by a hash of these, with a
//! checksum over them and its bytes in front.
//!
//! A part is written under a temporary name and renamed, so a process that is killed leaves no half of one
//! under its name. Nothing waits for the disk: what a power cut damages is found by its checksum, like any
//! other damage, and fetched again.
//!
//! A part's modification time is its last use. When a new part would not fit, the least recently used ones
//! are removed until an eighth is free. The sum of all lengths is in a file that is locked while it changes.
//! It is added to before a part is written, so that the bound holds; after a kill it may be too large, until
//! the next clearing counts again.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Which part of which object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartKey<'a> {
    /// Where the object lies.
    pub url: &'a str,
    /// Which state of it.
    pub etag: &'a str,
    /// Which part: the first has the number 0.
    pub part: u64,
}

/// Bytes of a part: objects are kept in parts that start at multiples of it; the last one of an object is
/// shorter.
pub const PART: u64 = 1 << 20;

/// The cache. What goes wrong with a part is a line in the log, and never an error for the caller.
#[derive(Debug)]
pub struct DiskCache {
    parts: PathBuf,
    max_bytes: u64,
    /// Names of temporary files differ by it.
    next: AtomicU64,
    /// Whether writing has failed, as it was told.
    failing: AtomicBool,
}

/// The directory of parts, below the one that was given. Its name has the version of their layout.
const DIRECTORY: &str = "tiledbfs-parts-1";
/// The file that is locked, with the sum of all lengths and the boot in which it was written.
const TOTAL: &str = "total";
const TEMPORARY: &str = "new-";
/// Bytes of the checksum in front of a part.
const DIGEST: usize = 32;
/// Bytes of the longest file of a part.
const MAX_STORED: u64 = PART + DIGEST as u64;
/// When a temporary file belongs to nobody any more.
const ABANDONED: Duration = Duration::from_secs(600);
/// Uses within this time of each other are one.
const USED: Duration = Duration::from_secs(1);

impl DiskCache {
    /// The cache in `directory`, which is made if need be, of at most `max_bytes`. Fails where the directory
    /// cannot be written to, or belongs to another user.
    pub fn open(directory: &Path, max_bytes: u64) -> io::Result<DiskCache> {
        // As absolute: a background process leaves the working directory.
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
        // Also where another mount allowed more.
        cache.reserve(0)?;
        Ok(cache)
    }

    /// A part that is there and whole.
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

    /// Keeps a part, if it fits.
    pub fn put(&self, key: &PartKey<'_>, bytes: &[u8]) {
        match self.write(key, bytes) {
            Ok(()) => self.failing.store(false, Ordering::Relaxed),
            Err(error) => {
                // Once, not for each part.
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
        self.reserve(stored)?;
        let path = self.path(key);
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        // Below the same directory, which a rename may not leave.
        let temporary = self
            .parts
            .join(format!("{TEMPORARY}{}-{next}", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
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

    /// Adds `bytes` to the sum, and makes room for them where need be.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.parts.join(TOTAL))?;
        // The lock is released when the file is closed, and when the process is killed.
        file.lock()?;
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
            None => self.clear(self.max_bytes)?,
        };
        if total.saturating_add(bytes) > self.max_bytes {
            let goal = self.max_bytes - self.max_bytes / 8;
            total = self.clear(goal.saturating_sub(bytes))?;
        }
        total = total.saturating_add(bytes);
        file.rewind()?;
        // Padded, so that a shorter number overwrites all of a longer one.
        file.write_all(format!("{total:020} {boot}\n").as_bytes())
    }

    /// Removes the least recently used parts until at most `goal` bytes are left. Returns the sum of what is
    /// left. The caller holds the lock.
    fn clear(&self, goal: u64) -> io::Result<u64> {
        let now = SystemTime::now();
        let (mut parts, mut total) = (Vec::new(), 0_u64);
        for entry in fs::read_dir(&self.parts)?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(TEMPORARY) {
                let Ok(metadata) = entry.metadata() else { continue };
                let age = metadata
                    .modified()
                    .ok()
                    .and_then(|time| now.duration_since(time).ok());
                if age.is_some_and(|age| age > ABANDONED) && fs::remove_file(entry.path()).is_ok() {
                    continue;
                }
                total = total.saturating_add(metadata.len());
            }
            // What is no directory, or gone, holds nothing.
            for part in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let Ok(metadata) = part.metadata() else { continue };
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
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

    /// Where a part lies.
    fn path(&self, key: &PartKey<'_>) -> PathBuf {
        let mut name = String::with_capacity(64);
        for byte in hasher(key).finalize() {
            // To a string it cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        let (folder, file) = name.split_at_checked(2).unwrap_or((&name, ""));
        self.parts.join(folder).join(file)
    }
}

/// The bytes of a part, where its checksum is right; notes that it was used.
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
    if metadata.modified().is_ok_and(|used| used + USED < now) {
        // If this fails, the part only seems older than it is.
        let _ = file.set_modified(now);
    }
    Ok(Some(bytes))
}

/// A hash of the key, to go on with.
fn hasher(key: &PartKey<'_>) -> Sha256 {
    let mut hasher = Sha256::new();
    // None of them ends where another could begin.
    for text in [key.url, key.etag] {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.update(key.part.to_le_bytes());
    hasher
}

/// The checksum of a part.
fn digest(key: &PartKey<'_>, bytes: &[u8]) -> [u8; DIGEST] {
    let mut hasher = hasher(key);
    hasher.update(bytes);
    hasher.finalize().into()
}

/// What tells one boot of this machine from another.
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

    /// Makes a part look as if it was used so many seconds ago.
    fn age(cache: &DiskCache, key: &PartKey<'_>, seconds: u64) {
        let file = File::options().write(true).open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .unwrap();
    }

    /// Bytes of all parts, as the file system has them.
    fn stored(cache: &DiskCache) -> u64 {
        cache.clear(u64::MAX).unwrap()
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
    fn a_damaged_part_is_forgotten() {
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
        // A whole part under the name of another.
        cache.put(&whole, b"some bytes");
        let other = key("a", 1);
        cache.put(&other, b"other bytes");
        fs::copy(&path, cache.path(&other)).unwrap();
        assert_eq!(cache.get(&other), None);
        assert_eq!(cache.get(&whole).unwrap(), "some bytes");
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_bound_holds() {
        let bytes = vec![7; 1000 - DIGEST];
        let (folder, cache) = cache(10_000);
        for part in 0..10 {
            cache.put(&key("a", part), &bytes);
            age(&cache, &key("a", part), 1000 - part);
        }
        assert_eq!(stored(&cache), 10_000);
        // The oldest is used; in another process, that does not know of the first.
        let other = DiskCache::open(folder.path(), 10_000).unwrap();
        assert!(other.get(&key("a", 0)).is_some());
        other.put(&key("a", 10), &bytes);
        assert!(stored(&cache) <= 8750, "{}", stored(&cache));
        let there: Vec<u64> = (0..11)
            .filter(|part| cache.get(&key("a", *part)).is_some())
            .collect();
        assert_eq!(there, [0, 4, 5, 6, 7, 8, 9, 10]);
        // Less is allowed from now on.
        let small = DiskCache::open(folder.path(), 3000).unwrap();
        assert!(stored(&small) <= 3000);
        small.put(&key("b", 0), &vec![0; 4000]);
        assert_eq!(small.get(&key("b", 0)), None);
    }

    #[test]
    fn what_a_kill_leaves_behind_is_cleared_away() {
        let (folder, cache) = cache(10_000);
        cache.put(&key("a", 0), &[1; 1000]);
        let left = cache.parts.join(format!("{TEMPORARY}1-1"));
        fs::write(&left, vec![0; 5000]).unwrap();
        // Another process may be writing it.
        assert!(stored(&cache) > 6000 && left.exists());
        let file = File::options().write(true).open(&left).unwrap();
        file.set_modified(SystemTime::now() - ABANDONED * 2).unwrap();
        assert!(stored(&cache) < 2000 && !left.exists());
        // A sum that is nonsense, or of another boot, is counted again.
        for text in ["", "x", "00000000000000000005 another boot\n", "\u{e9}\0"] {
            fs::write(cache.parts.join(TOTAL), text).unwrap();
            DiskCache::open(folder.path(), 10_000).unwrap();
            let total = fs::read_to_string(cache.parts.join(TOTAL)).unwrap();
            assert!(total.starts_with("00000000000000001032 "), "{text}: {total}");
        }
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, cache) = cache(1000);
        fs::set_permissions(&cache.parts, PermissionsExt::from_mode(0o770)).unwrap();
        let error = DiskCache::open(folder.path(), 1000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    /// What [`processes_share_it_and_may_be_killed`] starts: reads and writes without end.
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
            // All that is there is right, and no more than what is allowed, but for what the killed ones
            // wrote.
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
