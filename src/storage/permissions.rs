//! Permissions of local files: mode bits and POSIX access control lists, of all directories above as well.

use super::RECHECK_AFTER;
use super::audience::{Audience, Classes, Want};
use crate::lock::lock;
use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// The cache is emptied when it has this many paths.
const MAX_CACHED_PATHS: usize = 1 << 16;

/// Symbolic links followed in one path, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// The type of an inode, and who may access it.
#[derive(Debug, Clone)]
enum Found {
    Directory {
        search: Audience,
        list: Audience,
    },
    File(Audience),
    Link(PathBuf),
    Missing,
    /// Another type, or it could not be determined.
    Unknown,
}

/// Permissions by path, kept for [`RECHECK_AFTER`].
#[derive(Debug, Default)]
pub(super) struct PermissionCache {
    known: Mutex<HashMap<PathBuf, (Instant, Found)>>,
    /// For each device, whether only the user who mounted it may enter it.
    private: Mutex<HashMap<u64, (Instant, bool)>>,
}

impl PermissionCache {
    /// The users who have the access `want` to the absolute path `path`, considering all directories above
    /// it. Missing directories keep nobody out; nobody may read a missing file.
    pub(super) fn audience(&self, path: &Path, want: Want) -> Audience {
        self.trace(path, want).unwrap_or_else(Audience::nobody)
    }

    /// Like [`PermissionCache::audience`]; None for nobody.
    fn trace(&self, path: &Path, want: Want) -> Option<Audience> {
        let mut audience = Audience::everybody();
        let mut links = 0;
        // The resolved path so far, and the remaining components in reverse order.
        let mut place = PathBuf::from("/");
        let mut rest = names(path);
        let mut found = self.lookup(&place);
        loop {
            match &found {
                Found::Directory { search, list } => match rest.is_empty() {
                    true if want == Want::List => audience.and(list),
                    true if want == Want::Read => return None,
                    _ => audience.and(search),
                },
                Found::File(read) if rest.is_empty() && want == Want::Read => audience.and(read),
                Found::Link(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    place.pop();
                    if target.is_absolute() {
                        place = PathBuf::from("/");
                    }
                    rest.extend(names(target));
                }
                Found::Missing if want != Want::Read => return Some(audience),
                Found::File(_) | Found::Missing | Found::Unknown => return None,
            }
            match rest.pop() {
                None => return Some(audience),
                Some(name) if name == ".." => {
                    place.pop();
                }
                Some(name) => place.push(name),
            }
            found = self.lookup(&place);
        }
    }

    fn lookup(&self, path: &Path) -> Found {
        {
            let known = lock(&self.known);
            if let Some((checked, found)) = known.get(path)
                && checked.elapsed() < RECHECK_AFTER
            {
                return found.clone();
            }
        }
        let checked = Instant::now();
        let found = self.examine(path);
        let mut known = lock(&self.known);
        if known.len() >= MAX_CACHED_PATHS {
            known.clear();
        }
        known.insert(path.to_path_buf(), (checked, found.clone()));
        found
    }

    fn examine(&self, path: &Path) -> Found {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Found::Missing,
            Err(_) => return Found::Unknown,
        };
        if metadata.is_symlink() {
            return fs::read_link(path).map_or(Found::Unknown, Found::Link);
        }
        if self.is_private(metadata.dev()) {
            return Found::Unknown;
        }
        let Some(list) = access_list(path) else {
            return Found::Unknown;
        };
        let who = |bits| {
            let mut audience = Audience::everybody();
            let mut classes = Classes::of_mode(metadata.uid(), metadata.gid(), metadata.mode(), bits);
            if let Some(list) = &list
                && !list.apply(bits, &mut classes)
            {
                return Audience::nobody();
            }
            audience.limit(classes);
            audience
        };
        if metadata.is_dir() {
            Found::Directory {
                search: who(1),
                list: who(5),
            }
        } else if metadata.is_file() {
            Found::File(who(4))
        } else {
            Found::Unknown
        }
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
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|byte| *byte == b'\n').any(|line| {
        // number parent major:minor root place options [tags] - type source options-of-the-file-system
        let mut words = line.split(|byte| *byte == b' ');
        if words.nth(2) != Some(number.as_bytes()) {
            return false;
        }
        let mut words = words.skip_while(|word| *word != b"-").skip(1);
        let kind = words.next().unwrap_or_default();
        let options = words.nth(1).unwrap_or_default();
        let allows_others = options.split(|byte| *byte == b',').any(|o| o == b"allow_other");
        kind.starts_with(b"fuse") && !allows_others
    })
}

/// The components of a path in reverse order, without `.` and the root.
fn names(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from_vec(b"..".to_vec())),
            _ => None,
        })
        .collect()
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

/// The access control list of `path`, which is not a link. None if unreadable, `Some(None)` if there is none.
fn access_list(path: &Path) -> Option<Option<AccessList>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut value = [0_u8; 4096];
    // SAFETY: path and name are C strings, and `value` has room for the number of bytes given.
    let size = unsafe {
        libc::lgetxattr(
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
            let audience = PermissionCache::default().audience(&at(name), want);
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
        let open = || permissions.audience(&file, Want::Read).has_others(u32::MAX, 0);
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
