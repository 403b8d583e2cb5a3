//! Permissions of local files: mode bits and POSIX access control lists, of all directories above as well.

use super::RECHECK_AFTER;
use super::audience::{Audience, Classes, Reached, Want};
use super::local::identity;
use super::mountinfo::mounts;
use super::walk::{Place, walk};
use crate::runtime::lock;
use lru::LruCache;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The cache is emptied when it has this many paths.
const MAX_CACHED_PATHS: usize = 1 << 16;

/// Directories that are kept open, because many of their files are asked for one after another.
const KEPT_DIRECTORIES: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// A directory, when it was reached, and who may come there.
type KeptDirectory = (Instant, Arc<Place>, Audience);

/// Permissions by path, kept for [`RECHECK_AFTER`].
pub(super) struct PermissionCache {
    known: Mutex<HashMap<(PathBuf, Want), (Instant, Reached)>>,
    directories: Mutex<LruCache<PathBuf, KeptDirectory>>,
    /// For each device, whether only the user who mounted it may enter it.
    private: Mutex<HashMap<u64, (Instant, bool)>>,
}

impl Default for PermissionCache {
    fn default() -> Self {
        PermissionCache {
            known: Mutex::default(),
            directories: Mutex::new(LruCache::new(KEPT_DIRECTORIES)),
            private: Mutex::default(),
        }
    }
}

impl PermissionCache {
    /// Where the absolute path `path` leads, through any links, and the users who have the access `want` to
    /// that very file, considering all directories on the way. Missing directories keep nobody out; nobody
    /// may read a missing file.
    pub(super) fn reached(&self, path: &Path, want: Want) -> Reached {
        let key = (path.to_path_buf(), want);
        if let Some((checked, reached)) = lock(&self.known).get(&key)
            && checked.elapsed() < RECHECK_AFTER
        {
            return reached.clone();
        }
        let checked = Instant::now();
        let reached = self.look(path, want);
        let mut known = lock(&self.known);
        if known.len() >= MAX_CACHED_PATHS {
            known.clear();
        }
        known.insert(key, (checked, reached.clone()));
        reached
    }

    fn look(&self, path: &Path, want: Want) -> Reached {
        let mut audience = Audience::everybody();
        let mut found = self.find(path, &mut audience);
        if let Err(libc::EMFILE | libc::ENFILE) = found.as_ref().map_err(|e| e.raw_os_error().unwrap_or(0)) {
            lock(&self.directories).clear();
            found = self.find(path, &mut audience);
        }
        match found {
            Ok(place) => {
                audience.and(&self.access(&place, want));
                Reached {
                    audience,
                    identity: Some(identity(&place.metadata)),
                }
            }
            Err(e) => Reached {
                audience: match e.kind() == io::ErrorKind::NotFound && want != Want::Read {
                    true => audience,
                    false => Audience::nobody(),
                },
                identity: None,
            },
        }
    }

    /// What `path` leads to. Removes from `audience` those who may not come there.
    fn find(&self, path: &Path, audience: &mut Audience) -> io::Result<Arc<Place>> {
        let (from, rest) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => match self.directory(parent) {
                Ok((place, way)) => {
                    audience.and(&way);
                    (place, Path::new(name))
                }
                // For those who may come as far as there is something.
                Err(_) => (Place::root()?, path),
            },
            _ => (Place::root()?, path),
        };
        walk(&from, rest, |passed| {
            audience.and(&self.access(passed, Want::Search));
        })
    }

    /// The directory at `path`, and who may come there.
    fn directory(&self, path: &Path) -> io::Result<(Arc<Place>, Audience)> {
        if let Some((checked, place, way)) = lock(&self.directories).get(path)
            && checked.elapsed() < RECHECK_AFTER
        {
            return Ok((place.clone(), way.clone()));
        }
        let checked = Instant::now();
        let mut way = Audience::everybody();
        let place = walk(&Place::root()?, path, |passed| {
            way.and(&self.access(passed, Want::Search));
        })?;
        let kept = (checked, place.clone(), way.clone());
        let before = lock(&self.directories).push(path.to_path_buf(), kept);
        drop(before);
        Ok((place, way))
    }

    /// Who has the access `want` to a file or directory that they have reached.
    fn access(&self, place: &Place, want: Want) -> Audience {
        let metadata = &place.metadata;
        let bits = match want {
            Want::Read if metadata.is_file() => 4,
            Want::Search if metadata.is_dir() => 1,
            Want::List if metadata.is_dir() => 5,
            _ => return Audience::nobody(),
        };
        if self.is_private(metadata.dev()) {
            return Audience::nobody();
        }
        let Some(list) = access_list(place) else {
            return Audience::nobody();
        };
        let mut classes = Classes::of_mode(metadata.uid(), metadata.gid(), metadata.mode(), bits);
        if let Some(list) = list
            && !list.apply(bits, &mut classes)
        {
            return Audience::nobody();
        }
        let mut audience = Audience::everybody();
        audience.limit(classes);
        audience
    }

    /// Whether `device` is a FUSE file system without `allow_other`. The kernel lets only its mounter in,
    /// whatever its mode bits say.
    fn is_private(&self, device: u64) -> bool {
        let mut private = lock(&self.private);
        match private.get(&device) {
            // Device numbers are reused.
            Some((checked, private)) if checked.elapsed() < RECHECK_AFTER => *private,
            _ => {
                let (checked, answer) = (Instant::now(), is_private(device));
                private.insert(device, (checked, answer));
                answer
            }
        }
    }
}

fn is_private(device: u64) -> bool {
    let device = (libc::major(device), libc::minor(device));
    mounts().unwrap_or_default().iter().any(|mount| {
        let allows_others = mount.options.split(',').any(|option| option == "allow_other");
        mount.device == device && mount.fs_type.starts_with("fuse") && !allows_others
    })
}

/// A POSIX access control list with entries beyond the mode bits.
#[derive(Debug, PartialEq, Eq)]
struct AccessList {
    /// Permission bits of the owning group.
    group: u32,
    /// Permission bits of all others.
    others: u32,
    mask: u32,
    /// The permissions that every named user and group has.
    named: u32,
}

impl AccessList {
    /// Parses a u32 version (2), then entries of u16 tag, u16 permissions and u32 id, all little-endian
    /// (`linux/posix_acl_xattr.h`). None if malformed.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != 2 || !entries.len().is_multiple_of(8) {
            return None;
        }
        let (mut group, mut others, mut mask, mut named) = (0, 0, 7, 7);
        for entry in entries.chunks_exact(8) {
            let (tag, rest) = entry.split_first_chunk::<2>()?;
            let permissions = u32::from(u16::from_le_bytes(*rest.first_chunk::<2>()?));
            match u16::from_le_bytes(*tag) {
                0x01 => {}
                0x02 | 0x08 => named &= permissions,
                0x04 => group = permissions,
                0x10 => mask = permissions,
                0x20 => others = permissions,
                _ => return None,
            }
        }
        Some(AccessList {
            group,
            others,
            mask,
            named,
        })
    }

    /// Replaces the group and other permissions in `classes`: with a list, the mode's group bits are its
    /// mask. Returns false if a named user or group lacks `bits`.
    fn apply(&self, bits: u32, classes: &mut Classes) -> bool {
        classes.group = self.group & self.mask & bits == bits;
        classes.others = self.others & bits == bits;
        self.named & self.mask & bits == bits
    }
}

/// The access control list of a file or directory. None if unreadable, `Some(None)` if there is none.
fn access_list(place: &Place) -> Option<Option<AccessList>> {
    let path = CString::new(place.path().as_os_str().as_bytes()).ok()?;
    let mut value = [0_u8; 4096];
    // SAFETY: path and name are C strings, and `value` has room for the number of bytes given.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"system.posix_acl_access".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    match usize::try_from(size) {
        Ok(size) => AccessList::parse(value.get(..size)?).map(Some),
        Err(_) => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENODATA | libc::EOPNOTSUPP | libc::ENOSYS) => Some(None),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn all_directories_above_a_path_count() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        chmod(folder.path(), 0o755);
        for name in ["open", "open/closed", "open/listed"] {
            fs::create_dir(at(name)).unwrap();
            chmod(&at(name), 0o755);
        }
        chmod(&at("open/closed"), 0o700);
        chmod(&at("open/listed"), 0o744);
        for name in ["open/f", "open/closed/f"] {
            fs::write(at(name), b"x").unwrap();
            chmod(&at(name), 0o644);
        }
        symlink("closed/f", at("open/to-closed")).unwrap();
        symlink("closed/../f", at("open/through-closed")).unwrap();
        symlink(at("open/f"), at("open/to-f")).unwrap();
        symlink("loop", at("open/loop")).unwrap();
        let everybody = |name: &str, want| {
            let audience = PermissionCache::default().reached(&at(name), want).audience;
            audience.has_others(u32::MAX, 0) && audience.has_group(u32::MAX, 0)
        };
        for (name, want, expected) in [
            ("open", Want::List, true),
            ("open", Want::Search, true),
            ("open", Want::Read, false),
            ("open/f", Want::Read, true),
            ("open/f", Want::Search, false),
            ("open/to-f", Want::Read, true),
            ("open/closed/f", Want::Read, false),
            ("open/to-closed", Want::Read, false),
            ("open/through-closed", Want::Read, false),
            ("open/closed", Want::Search, false),
            // Listing without search permission shows names, but not their types.
            ("open/listed", Want::List, false),
            ("open/loop", Want::Read, false),
            ("open/none", Want::Read, false),
            ("open/none", Want::List, true),
            ("open/closed/none", Want::List, false),
            ("open/f/none", Want::Search, false),
        ] {
            assert_eq!(everybody(name, want), expected, "{name} {want:?}");
        }
    }

    #[test]
    fn changed_permissions_are_seen_soon() {
        let folder = tempfile::tempdir().unwrap();
        chmod(folder.path(), 0o755);
        let file = folder.path().join("f");
        fs::write(&file, b"x").unwrap();
        chmod(&file, 0o644);
        let permissions = PermissionCache::default();
        let open = || {
            permissions
                .reached(&file, Want::Read)
                .audience
                .has_others(u32::MAX, 0)
        };
        assert!(open());
        chmod(&file, 0o600);
        std::thread::sleep(RECHECK_AFTER);
        assert!(!open());
    }

    #[test]
    fn access_control_lists() {
        let list = |entries: &[(u16, u16)]| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (tag, permissions) in entries {
                bytes.extend(tag.to_le_bytes());
                bytes.extend(permissions.to_le_bytes());
                bytes.extend(7_u32.to_le_bytes());
            }
            AccessList::parse(&bytes)
        };
        let applied = |list: Option<AccessList>, mode| {
            let mut classes = Classes::of_mode(1, 2, mode, 4);
            let known = list.unwrap().apply(4, &mut classes);
            (known, classes.owner, classes.group, classes.others)
        };
        // user::rw-, user:7:r--, group::---, mask::r--, other::r--: mode 0644, but the group may not read.
        let entries = [(1, 6), (2, 4), (4, 0), (0x10, 4), (0x20, 4)];
        assert_eq!(applied(list(&entries), 0o644), (true, true, false, true));
        // A named user without permissions.
        let entries = [(1, 6), (2, 0), (4, 4), (0x10, 4), (0x20, 4)];
        assert!(!applied(list(&entries), 0o644).0);
        // A named group whose permissions the mask removes.
        let entries = [(1, 6), (4, 4), (8, 4), (0x10, 0), (0x20, 4)];
        assert!(!applied(list(&entries), 0o604).0);
        assert_eq!(list(&[(3, 4)]), None);
        assert_eq!(AccessList::parse(&[1, 0, 0, 0]), None);
        assert_eq!(AccessList::parse(&[2, 0, 0, 0, 1]), None);
    }
}
