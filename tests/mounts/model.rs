//! Several threads make random calls through the kernel. Each result is compared with the tree in memory.
//!
//! `TILEDBFS_SEED` is the seed that an earlier run printed, to repeat it.

use crate::common::{Random, TestMount, dir_of, eventually, file, noise};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Mutex;
use tiledbfs::internals::tree::{Freshness, Node};

/// By path: the bytes of a file, or the names in a directory.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, Vec<u8>>,
    directories: BTreeMap<String, Vec<String>>,
}

fn build(random: &mut Random, path: &str, depth: usize, model: &mut Model) -> Node {
    let mut nodes = Vec::new();
    /// With more files, directories are small: some seeds would fill gigabytes.
    const LARGE_TREE: usize = 2000;
    let count = match [0, 3, 30, 400][random.below(4) as usize] {
        count if model.files.len() > LARGE_TREE => 3.min(count),
        count if depth == 0 => 20.max(count),
        count => count,
    };
    for i in 0..count {
        let name = format!("{i}-{}", "x".repeat(random.below(60) as usize));
        let child = format!("{path}/{name}");
        let node = if depth < 3 && i % 10 == 0 {
            build(random, &child, depth + 1, model)
        } else {
            let bytes = noise(random.below(30_000) as usize, random.next());
            model.files.insert(child, bytes.clone());
            file(bytes)
        };
        nodes.push((name, node));
    }
    let names = nodes.iter().map(|(name, _)| name.clone()).collect();
    model.directories.insert(path.to_owned(), names);
    let freshness = [Freshness::Immutable, Freshness::Listing][random.below(2) as usize];
    dir_of(freshness, nodes)
}

/// One call of getdents: each name, and the position of the next entry. Empty at the end.
fn entries(directory: &File, room: usize) -> io::Result<Vec<(String, i64)>> {
    let mut buffer = vec![0u8; room];
    // SAFETY: the kernel writes no more than the length given.
    let size = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            directory.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    if size < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut rest = &buffer[..size as usize];
    let mut found = Vec::new();
    // Inode u64, offset i64, length u16, type u8, name.
    while let Some(head) = rest.get(..19) {
        let next = i64::from_ne_bytes(head[8..16].try_into().unwrap());
        let length = u16::from_ne_bytes([head[16], head[17]]) as usize;
        let name = CStr::from_bytes_until_nul(&rest[19..length]).unwrap();
        found.push((name.to_str().unwrap().to_owned(), next));
        rest = &rest[length..];
    }
    Ok(found)
}

/// Reads a directory in small pieces, and sometimes seeks back to earlier positions.
fn list(random: &mut Random, mount: &TestMount, path: &str, names: &[String]) {
    let directory = File::open(mount.path(&path[1.min(path.len())..])).unwrap();
    let dots = [".".to_owned(), "..".to_owned()];
    let wanted: Vec<&String> = dots.iter().chain(names).collect();
    // The position after each number of entries.
    let mut places = vec![0i64];
    let mut at = 0;
    let mut jumps = 4;
    loop {
        let found = entries(&directory, 300 + random.below(3000) as usize).unwrap();
        for (name, next) in &found {
            assert_eq!(name, wanted[at], "{path} entry {at}");
            at += 1;
            if at == places.len() {
                places.push(*next);
            }
            assert_eq!(places[at], *next, "{path} entry {at}");
        }
        if found.is_empty() {
            assert_eq!(at, wanted.len(), "{path}");
            if jumps == 0 {
                return;
            }
        }
        if jumps > 0 && random.below(3) == 0 {
            jumps -= 1;
            at = random.below(places.len() as u64) as usize;
            // SAFETY: a system call on an open descriptor, without pointers.
            let now = unsafe { libc::lseek(directory.as_raw_fd(), places[at], libc::SEEK_SET) };
            assert_eq!(now, places[at]);
        } else if found.is_empty() {
            jumps = 0;
        }
    }
}

#[test]
fn several_threads_see_the_model() {
    let seed =
        std::env::var("TILEDBFS_SEED").map_or(u64::from(std::process::id()), |text| text.parse().unwrap());
    let mut model = Model::default();
    let root = build(&mut Random(seed), "", 0, &mut model);
    let mount = TestMount::new(root);
    let files: Vec<(&String, &Vec<u8>)> = model.files.iter().collect();
    let directories: Vec<(&String, &Vec<String>)> = model.directories.iter().collect();
    println!(
        "seed {seed}, {} files, {} directories",
        files.len(),
        directories.len()
    );
    // A path always has the same inode number, for all threads.
    let numbers: Mutex<HashMap<String, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (mount, files, directories, numbers) = (&mount, &files, &directories, &numbers);
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_mul(100).wrapping_add(thread));
                let mut open: Vec<(usize, File)> = Vec::new();
                for step in 0..250 {
                    let at = random.below(files.len() as u64) as usize;
                    let (path, bytes) = files[at];
                    match random.below(8) {
                        0 | 1 => {
                            let metadata = fs::symlink_metadata(mount.path(&path[1..])).unwrap();
                            assert_eq!(metadata.len(), bytes.len() as u64, "seed {seed}: {path}");
                            let mut numbers = numbers.lock().unwrap();
                            let number = *numbers.entry(path.clone()).or_insert(metadata.ino());
                            assert_eq!(number, metadata.ino(), "seed {seed}: {path}");
                        }
                        2 => open.push((at, File::open(mount.path(&path[1..])).unwrap())),
                        3 | 4 if !open.is_empty() => {
                            let (at, file) = &open[random.below(open.len() as u64) as usize];
                            let (path, bytes) = files[*at];
                            let offset = random.below(31_000) as usize;
                            let mut buffer = vec![0; 1 + random.below(10_000) as usize];
                            let got = file.read_at(&mut buffer, offset as u64).unwrap();
                            let end = bytes.len().min(offset + buffer.len());
                            assert!(
                                buffer[..got] == bytes[offset.min(end)..end],
                                "seed {seed}: {path} at {offset}"
                            );
                        }
                        5 if !open.is_empty() => {
                            open.swap_remove(random.below(open.len() as u64) as usize);
                        }
                        6 => {
                            let (path, names) = directories[random.below(directories.len() as u64) as usize];
                            list(&mut random, mount, path, names);
                        }
                        _ => {
                            let missing = format!("{}.none", &path[1..]);
                            assert_eq!(
                                crate::common::errno(fs::metadata(mount.path(missing))),
                                libc::ENOENT
                            );
                        }
                    }
                    if step % 100 == 50 && thread == 0 {
                        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
                    }
                }
            });
        }
    });
    let numbers = numbers.into_inner().unwrap();
    let distinct: std::collections::HashSet<u64> = numbers.values().copied().collect();
    assert_eq!(
        distinct.len(),
        numbers.len(),
        "seed {seed}: two paths have one number"
    );
    assert!(
        numbers.len() > files.len().min(100) / 2,
        "seed {seed}: hardly any was looked at"
    );
    eventually("all is forgotten and closed", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        (mount.stats.inodes.get(), mount.stats.open_handles.get()) == (1, 0)
    });
}
