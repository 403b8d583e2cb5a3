//! Follows a path as the kernel does, but one component at a time, holding each directory open.
//!
//! Nobody can exchange a directory on the way for another unnoticed: each step begins at the directory that
//! the step before has reached, and all questions are asked of what is open.

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Symbolic links followed in one path, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// A file or directory that was reached, and the directories above it on the way from `/`.
pub(super) struct Place {
    /// Open with O_PATH.
    pub(super) file: File,
    pub(super) metadata: Metadata,
    /// The directory that it was found in; None for `/`.
    pub(super) parent: Option<Arc<Place>>,
}

impl Place {
    /// The root of the file system.
    pub(super) fn root() -> io::Result<Arc<Place>> {
        let file = File::from(openat(AT_FDCWD, "/", flags(), Mode::empty())?);
        Ok(Arc::new(Place {
            metadata: file.metadata()?,
            file,
            parent: None,
        }))
    }

    /// Device and inode.
    pub(super) fn number(&self) -> (u64, u64) {
        (self.metadata.dev(), self.metadata.ino())
    }

    /// Whether it is the directory with this device and inode, or was reached through it.
    pub(super) fn is_below(&self, number: (u64, u64)) -> bool {
        let mut place = Some(self);
        while let Some(at) = place {
            if at.number() == number {
                return true;
            }
            place = at.parent.as_deref();
        }
        false
    }

    /// A path that leads to this very file, whatever happens to its names.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

fn flags() -> OFlag {
    OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// Follows `path` from the directory `from`, or from `/` if it is absolute, through symbolic links. Calls
/// `through` with each directory in which a name is looked up. Fails with ENOENT if a component is missing,
/// ENOTDIR if one is not a directory, ELOOP after too many links.
pub(super) fn walk(
    from: &Arc<Place>,
    path: &Path,
    mut through: impl FnMut(&Place),
) -> io::Result<Arc<Place>> {
    let mut place = from.clone();
    let mut links = 0;
    // The components that remain, in reverse order.
    let mut rest = Vec::new();
    push(&mut rest, &mut place, path)?;
    while let Some(name) = rest.pop() {
        if !place.metadata.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        through(&place);
        if name == ".." {
            if let Some(parent) = &place.parent {
                place = parent.clone();
            }
            continue;
        }
        let file = File::from(openat(&place.file, &*name, flags(), Mode::empty())?);
        let metadata = file.metadata()?;
        if metadata.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP.into());
            }
            // Of the link that is open.
            let target = readlinkat(&file, OsStr::new(""))?;
            push(&mut rest, &mut place, Path::new(&target))?;
            continue;
        }
        place = Arc::new(Place {
            file,
            metadata,
            parent: Some(place),
        });
    }
    Ok(place)
}

/// Puts the components of `path` before `rest`. An absolute path begins at `/`.
fn push(rest: &mut Vec<OsString>, place: &mut Arc<Place>, path: &Path) -> io::Result<()> {
    if path.is_absolute() {
        *place = Place::root()?;
    }
    rest.extend(path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    }));
    Ok(())
}
