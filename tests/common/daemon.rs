//! Runs the program as a process that mounts a source in the foreground.

use super::eventually;
use super::program::program;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use tempfile::TempDir;
use tiledbfs::internals::fuse::unmount_path;

/// The process and its mount. Dropping it ends both.
pub struct Daemon {
    child: Child,
    mountpoint: TempDir,
}

impl Daemon {
    /// Mounts `source` with the options `options`.
    pub fn new(source: &Path, options: &[impl AsRef<OsStr>]) -> Daemon {
        let mountpoint = tempfile::tempdir().unwrap();
        let child = program()
            .args(["mount", "-f"])
            .args(options)
            .args([source, mountpoint.path()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Daemon { child, mountpoint };
        eventually("it is mounted", || daemon.path(".tiledbfs/version").exists());
        daemon
    }

    /// A path in the mount.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mountpoint.path().join(name)
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    /// The memory of the process in bytes: current for `VmRSS:`, peak for `VmHWM:`.
    pub fn memory(&self, which: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(which)).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib << 10
    }

    /// The number of open file descriptors of the process.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// The paths below `source` of the files in it that the process has open.
    pub fn opened(&self, source: &Path) -> Vec<PathBuf> {
        let source = source.canonicalize().unwrap();
        let links = fs::read_dir(self.proc("fd")).unwrap();
        let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        let files = targets.filter(|target| target.is_file());
        let below = files.filter_map(|file| file.strip_prefix(&source).map(Path::to_owned).ok());
        below.collect()
    }

    /// The content of `.tiledbfs/stats.json`.
    pub fn stats(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.path(".tiledbfs/stats.json")).unwrap()).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(unmount_path(self.mountpoint.path(), true));
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
