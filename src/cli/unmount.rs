//! `tiledbfs unmount`.

use super::{Failure, show_path};
use crate::error::ErrorKind;
use crate::fuse::{SUBTYPE, is_dead, unmount_path};
use crate::storage::mountinfo;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the mount may take to leave the mount table.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `tiledbfs unmount`. Returns once the mount has left the mount table.
pub(super) fn run(mountpoint: &Path, lazy: bool) -> Result<(), Failure> {
    let name = show_path(mountpoint);
    let fail = |error: io::Error| {
        Failure::new(match error.kind() {
            io::ErrorKind::NotFound => format!("{name}: no such file or directory"),
            _ => format!("{name}: {error}"),
        })
    };
    let path = resolve(mountpoint).map_err(fail)?;
    let Some(mount) = mountinfo::mounted_at(&path).map_err(fail)? else {
        return Err(Failure::new(match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                format!("{name}: no such file or directory")
            }
            _ => format!("nothing is mounted on {name}"),
        }));
    };
    if mount.fs_type != format!("fuse.{SUBTYPE}") {
        return Err(Failure::new(format!(
            "{name} is not a mount of tiledbfs, but of type {}",
            mount.fs_type
        )));
    }
    let unmounted = match unmount_soon(&path, lazy) {
        // Without a daemon, programs with open files get only errors, so a lazy unmount does no harm.
        Err(error) if error.kind() == ErrorKind::Io(libc::EBUSY) && is_dead(&path) => {
            unmount_path(&path, true)
        }
        result => result,
    };
    unmounted.map_err(|error| {
        Failure::new(if error.kind() == ErrorKind::Io(libc::EBUSY) {
            format!(
                "{name} is in use: close the programs that have its files open or work in it, or run \
                 `tiledbfs unmount --lazy {name}`"
            )
        } else {
            format!("cannot unmount {name}: {error}")
        })
    })?;
    let end = Instant::now().checked_add(UNMOUNT_TIMEOUT);
    while mountinfo::mounts().map_err(fail)?.contains(&mount) {
        if end.is_none_or(|end| Instant::now() > end) {
            return Err(Failure::new(format!("{name} is still in the table of mounts")));
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Unmounts, and retries for a moment while the mount is in use: children of a program that has just ended
/// may be about to end as well.
fn unmount_soon(path: &Path, lazy: bool) -> crate::error::Result<()> {
    const TRIES: u32 = 8;
    for _ in 1..TRIES {
        match unmount_path(path, lazy) {
            Err(error) if error.kind() == ErrorKind::Io(libc::EBUSY) => sleep(Duration::from_millis(25)),
            result => return result,
        }
    }
    unmount_path(path, lazy)
}

/// The canonical path. If a dead mount makes that fail, the last component is not resolved.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(error) => {
            let absolute = std::path::absolute(path)?;
            match (absolute.parent().map(fs::canonicalize), absolute.file_name()) {
                (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
                (Some(Err(_)), Some(_)) => Ok(absolute),
                _ => Err(error),
            }
        }
    }
}
