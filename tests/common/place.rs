//! A directory for each test of the program.

use super::program::program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use tiledbfs::internals::fuse::unmount_path;
use tiledbfs::internals::storage::mountinfo;

/// A temporary directory with an empty group (`group`), a mount point (`mnt`) and a directory for temporary
/// files (`tmp`). Dropping it unmounts `mnt`.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for name in ["mnt", "group", "tmp"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        fs::write(place.path("group/__tiledb_group.tdb"), b"").unwrap();
        place
    }

    /// A path in the directory, without symbolic links, as in messages of the program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// A command that runs the program in the directory.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command
            .args(arguments)
            .current_dir(self.path(""))
            .env("TMPDIR", self.path("tmp"))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The number of mounts on `mnt`.
    pub fn mounts(&self) -> usize {
        let mountpoint = self.path("mnt");
        let all = mountinfo::mounts().unwrap();
        all.iter().filter(|mount| mount.mount_point == mountpoint).count()
    }

    /// All processes with the mount point in their command line: process id and state.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let mountpoint = self.path("mnt");
        let pids = fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
        let belongs = |pid: i32| {
            let mut words = words(pid).into_iter();
            words.any(|word| Path::new(&word) == mountpoint)
        };
        let state = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        pids.filter(|pid| belongs(*pid))
            .map(|pid| (pid, state(pid)))
            .collect()
    }

    /// The process ids of the background daemons among them.
    pub fn daemons(&self) -> Vec<i32> {
        let processes = self.processes().into_iter().map(|(pid, _)| pid);
        processes
            .filter(|pid| words(*pid).iter().any(|word| word == "--in-background"))
            .collect()
    }
}

/// The command line of a process.
fn words(pid: i32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0);
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

impl Drop for Place {
    fn drop(&mut self) {
        while unmount_path(&self.path("mnt"), true).is_ok() {}
    }
}
