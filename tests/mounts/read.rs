//! Reads bytes, sizes and names through the kernel.

use crate::common::{MTIME, Random, TestMount, dir, dir_of, errno, file, noise};
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use tiledbfs::internals::tree::{Freshness, Node, Tree, TreeOptions};

#[test]
fn what_stat_says() {
    let mount = TestMount::new(dir([("sub", dir([("f", file(noise(12_345, 1)))]))]));
    let (root, sub, f) = (
        fs::metadata(mount.path("")).unwrap(),
        fs::metadata(mount.path("sub")).unwrap(),
        fs::metadata(mount.path("sub/f")).unwrap(),
    );
    assert_eq!((root.ino(), root.mode()), (1, 0o40555));
    assert_eq!((sub.mode(), sub.nlink()), (0o40555, 1));
    assert_eq!((f.mode(), f.nlink()), (0o100444, 1));
    assert_eq!((f.len(), f.blocks()), (12_345, 25));
    assert_eq!((f.uid(), f.gid()), (0, 0));
    for (seconds, nanoseconds) in [
        (f.mtime(), f.mtime_nsec()),
        (f.atime(), f.atime_nsec()),
        (sub.ctime(), sub.ctime_nsec()),
    ] {
        assert_eq!(seconds as u64 * 1000 + nanoseconds as u64 / 1_000_000, MTIME);
    }
    assert_eq!(
        crate::common::errno(fs::metadata(mount.path("sub/missing"))),
        libc::ENOENT
    );
    assert_eq!(
        crate::common::errno(fs::metadata(mount.path("sub/f/x"))),
        libc::ENOTDIR
    );
}

#[test]
fn reads_at_random_offsets_give_the_bytes_of_the_model() {
    let model = noise(5_000_001, 2);
    let mount = TestMount::new(dir([("f", file(model.clone()))]));
    let open = File::open(mount.path("f")).unwrap();
    let mut random = Random(3);
    for _ in 0..500 {
        let offset = random.below(5_100_000);
        let size = [1, 8, 4096, 70_000, 1 << 20][random.below(5) as usize];
        let mut buffer = vec![0; size];
        let n = open.read_at(&mut buffer, offset).unwrap();
        let end = (offset as usize + size).min(model.len());
        let wanted = model.get(offset as usize..end).unwrap_or(&[]);
        assert_eq!(&buffer[..n], wanted, "{size} bytes at {offset}");
    }
    assert!(fs::read(mount.path("f")).unwrap() == model);
    assert!(mount.stats.reads.get() > 0);
    assert!(mount.stats.bytes_served.get() >= 5_000_001);
}

#[test]
fn plain_tools_see_the_same_bytes() {
    let model = noise(300_000, 4);
    let mount = TestMount::new(dir([("f", file(model.clone()))]));
    let shell = |script: &str| {
        let output = Command::new("sh")
            .arg("-c")
            .arg(script)
            .env("F", mount.path("f"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        output.stdout
    };
    assert!(shell("cat $F") == model);
    assert_eq!(
        shell("dd if=$F bs=8 count=1 skip=1000 status=none"),
        model[8000..8008]
    );
    assert!(shell("dd if=$F bs=64k iflag=direct status=none") == model);
    assert_eq!(shell("tail -c 100 $F"), model[299_900..]);
    assert_eq!(shell("wc -c < $F"), b"300000\n");
    assert_eq!(shell("stat -c %s $F"), b"300000\n");
    assert_eq!(
        shell("t=$(mktemp) && cp $F $t && cmp $F $t && echo same; rm $t"),
        b"same\n"
    );
}

#[test]
fn files_can_be_mapped() {
    let model = noise(1_000_003, 5);
    let live = crate::common::MemFile::new(Freshness::Live, model.clone());
    let mount = TestMount::new(dir([
        ("f", file(model.clone())),
        ("live", tiledbfs::internals::tree::Node::File(live)),
    ]));
    for name in ["f", "live"] {
        let script = "import mmap, sys\n\
            with open(sys.argv[1], 'rb') as f:\n\
            \x20   m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)\n\
            \x20   sys.stdout.buffer.write(m[:])";
        let output = Command::new("python3")
            .args(["-c", script])
            .arg(mount.path(name))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.stdout == model);
    }
}

#[test]
fn a_directory_of_100_000_names() {
    let nodes = (0..100_000).map(|i| (format!("entry {i}"), file([0; 3])));
    let big = dir_of(Freshness::Listing, nodes.collect());
    let mount = TestMount::new(dir([("big", big)]));
    let entries: Vec<_> = fs::read_dir(mount.path("big"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), entry.ino())
        })
        .collect();
    assert!(
        entries
            .iter()
            .enumerate()
            .all(|(i, (name, _))| *name == format!("entry {i}"))
    );
    assert_eq!(entries.len(), 100_000);
    assert_eq!(
        entries.iter().map(|(_, ino)| ino).collect::<HashSet<_>>().len(),
        100_000
    );
    for (name, ino) in entries.iter().step_by(9973) {
        let metadata = fs::metadata(mount.path("big").join(name)).unwrap();
        assert_eq!((metadata.ino(), metadata.len()), (*ino, 3));
    }
}

#[test]
fn dot_and_dot_dot() {
    let mount = TestMount::new(dir([("a", dir([("b", dir([("f", file(*b"x"))]))]))]));
    let output = Command::new("ls")
        .arg("-ai1")
        .arg(mount.path("a/b"))
        .output()
        .unwrap();
    let ino = |path: &str| fs::metadata(mount.path(path)).unwrap().ino();
    let mut lines: Vec<_> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| line.trim().to_owned())
        .collect();
    lines.sort();
    let mut wanted = vec![
        format!("{} .", ino("a/b")),
        format!("{} ..", ino("a")),
        format!("{} f", ino("a/b/f")),
    ];
    wanted.sort();
    assert_eq!(lines, wanted);
}

#[test]
fn inode_numbers_stay_the_same() {
    let tree = || dir([("a", dir([("f", file(*b"1")), ("g", file(*b"2"))]))]);
    let numbers =
        |mount: &TestMount| ["a", "a/f", "a/g"].map(|path| fs::metadata(mount.path(path)).unwrap().ino());
    let first = TestMount::new(tree());
    let wanted = numbers(&first);
    assert_eq!(wanted.iter().collect::<HashSet<_>>().len(), 3);
    assert_eq!(numbers(&TestMount::new(tree())), wanted);
}

#[test]
fn sixteen_readers_at_once() {
    let model = noise(4 << 20, 6);
    let other = noise(4 << 20, 7);
    let mount = TestMount::new(dir([("f", file(model.clone())), ("g", file(other.clone()))]));
    std::thread::scope(|scope| {
        for reader in 0..16 {
            let (path, bytes) = if reader % 2 == 0 {
                (mount.path("f"), &model)
            } else {
                (mount.path("g"), &other)
            };
            scope.spawn(move || {
                let mut random = Random(reader);
                let open = File::open(&path).unwrap();
                assert!(fs::read(&path).unwrap() == *bytes);
                for _ in 0..200 {
                    let offset = random.below(bytes.len() as u64 - 5000);
                    let mut buffer = [0; 5000];
                    open.read_exact_at(&mut buffer, offset).unwrap();
                    assert!(buffer == bytes[offset as usize..offset as usize + 5000]);
                }
            });
        }
    });
}

#[test]
fn forgotten_inodes_and_closed_files_are_freed() {
    let nodes = (0..2000).map(|i| (format!("{i}"), dir([("f", file(*b"x"))])));
    let mount = TestMount::new(dir_of(Freshness::Immutable, nodes.collect()));
    assert_eq!(mount.stats.inodes.get(), 1);
    for i in 0..2000 {
        assert_eq!(fs::read(mount.path(format!("{i}/f"))).unwrap(), b"x");
    }
    fs::read_dir(mount.path("7")).unwrap().count();
    assert_eq!(mount.stats.inodes.get(), 4001);
    crate::common::eventually("handles are released", || mount.stats.open_handles.get() == 0);
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    crate::common::eventually("the kernel forgets", || mount.stats.inodes.get() <= 2);
    // Everything is found again.
    assert_eq!(fs::read(mount.path("5/f")).unwrap(), b"x");
}

/// A file handle, as servers of NFS have: `struct file_handle` of name_to_handle_at(2).
#[repr(C)]
struct Handle {
    length: u32,
    kind: i32,
    bytes: [u8; 128],
}

impl Handle {
    fn of(path: &Path) -> Handle {
        let mut handle = Handle {
            length: 128,
            kind: 0,
            bytes: [0; 128],
        };
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut mount = 0;
        // SAFETY: all pointers are to values that live until the call returns, and the length is that of
        // `bytes`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                &raw mut handle,
                &raw mut mount,
                0,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        handle
    }

    fn open(&self, mount: &File) -> io::Result<File> {
        // SAFETY: the handle lives until the call returns, and its length is that of its bytes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                &raw const *self,
                libc::O_RDONLY,
            )
        };
        match result {
            // SAFETY: the call has opened this descriptor, and nobody else has it.
            0.. => Ok(unsafe { File::from_raw_fd(result as i32) }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[test]
fn file_handles_survive_that_the_kernel_forgets() {
    let below = dir([("e", dir([("f", file(*b"content")), ("g", file(*b"other"))]))]);
    let mount = TestMount::new(dir([("d", below), ("top", file(*b"top"))]));
    let names = ["d/e/f", "d/e", "top", "d/e/g"];
    let handles = names.map(|name| Handle::of(&mount.path(name)));
    let point = File::open(mount.path("")).unwrap();
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    crate::common::eventually("the kernel forgets", || mount.stats.inodes.get() <= 1);
    let text = |handle: &Handle| io::read_to_string(handle.open(&point).unwrap()).unwrap();
    assert_eq!([text(&handles[0]), text(&handles[2])], ["content", "top"]);
    // Of a directory the kernel finds the whole way to the root again.
    let directory = handles[1].open(&point).unwrap();
    let own = format!("/proc/self/fd/{}", directory.as_raw_fd());
    assert_eq!(fs::read_link(&own).unwrap(), mount.path("d/e"));
    assert_eq!(fs::read_dir(&own).unwrap().count(), 2);
    assert_eq!(text(&handles[3]), "other");
    // A number that nobody was told.
    let mut unknown = Handle::of(&mount.path("top"));
    unknown.bytes[0] ^= 1;
    assert_eq!(errno(unknown.open(&point)), libc::ESTALE);
}

/// Compares a directory of a mount, and all below it, with the node of the tree. Returns the number of files.
fn compare(mount: &Path, node: &Node) -> u64 {
    let Node::Directory(directory) = node else {
        match (fs::read(mount), node.read_all()) {
            (Ok(shown), Ok(bytes)) => assert!(shown == bytes, "{}", mount.display()),
            (Err(_), Err(_)) => {}
            (shown, _) => panic!("{}: {:?}", mount.display(), shown.map(|bytes| bytes.len())),
        }
        return 1;
    };
    let shown = fs::read_dir(mount).and_then(|all| all.map(|entry| Ok(entry?.file_name())).collect());
    let (mut names, listing): (Vec<_>, _) = match (shown, directory.list()) {
        (Ok(names), Ok(listing)) => (names, listing),
        // Of boxes and times there are too many for a listing; some views cannot be made.
        (Err(_), Err(_)) => return 1,
        (shown, _) => panic!("{}: {shown:?}", mount.display()),
    };
    let mut wanted: Vec<_> = listing.entries().map(|(name, _)| name.into_owned()).collect();
    names.sort();
    wanted.sort();
    assert_eq!(names, wanted, "{}", mount.display());
    // What is below `.tiledbfs` changes with each read.
    let below = names
        .iter()
        .filter(|name| !["at", ".tiledbfs"].map(OsStr::new).contains(&name.as_os_str()));
    below
        .map(|name| compare(&mount.join(name), &directory.lookup(name).unwrap().unwrap()))
        .sum()
}

#[test]
fn arrays_of_every_version_are_shown_as_in_the_tree() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/versions");
    let options = TreeOptions {
        cache_size: 16 << 20,
        ..TreeOptions::default()
    };
    let tree = Tree::open(&source, &options).unwrap();
    let mount = TestMount::new(tree.root.clone());
    let files = compare(&mount.path(""), &tree.root);
    assert!(files > 1000, "{files}");
}
