//! Files and directories that fail: the errors that they give, and that all others still work.

use crate::common::copying::copy;
use crate::common::{BrokenFile, Fault, TestMount, dir, errno, file};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use tiledbfs::internals::storage::MemoryStorage;
use tiledbfs::internals::tree::{Directory, Freshness, Listing, Node, Tree, TreeOptions};
use tiledbfs::{Error, ErrorKind, Result};

fn broken(len: Option<Fault>, open: Option<Fault>, read: Option<Fault>) -> Node {
    Node::File(Arc::new(BrokenFile { len, open, read }))
}

fn error(kind: ErrorKind) -> Option<Fault> {
    Some(Fault::Error(kind))
}

#[test]
fn an_error_stays_with_its_file_and_is_told() {
    let mount = TestMount::new(dir([
        (
            "len",
            broken(error(ErrorKind::Corrupt), error(ErrorKind::Corrupt), None),
        ),
        ("open", broken(None, error(ErrorKind::NotFound), None)),
        ("locked", broken(None, error(ErrorKind::KeyRequired), None)),
        ("read", broken(None, None, error(ErrorKind::ChecksumMismatch))),
        ("short", broken(None, None, Some(Fault::Short))),
        ("io", broken(None, None, error(ErrorKind::Io(libc::ESTALE)))),
        ("good", file(*b"fine")),
    ]));
    let metadata = fs::metadata(mount.path("len")).unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode()), (0, 0o100444));
    for (name, wanted) in [
        ("len", libc::EIO),
        ("open", libc::EIO),
        ("locked", libc::EACCES),
        ("read", libc::EIO),
        ("short", libc::EIO),
    ] {
        assert_eq!(errno(fs::read(mount.path(name))), wanted, "{name}");
    }
    // The page cache turns all errors into EIO; without it they are passed on.
    let direct = OpenOptions::new();
    let direct = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut direct.clone(), libc::O_DIRECT)
        .read(true)
        .open(mount.path("io"))
        .unwrap();
    assert_eq!(errno(direct.read_at(&mut [0; 4096], 0)), libc::ESTALE);
    assert_eq!(fs::read(mount.path("good")).unwrap(), b"fine");

    let lines = mount.error_lines();
    for (path, cause) in [
        ("len", "broken len"),
        ("len", "broken open"),
        ("open", "broken open"),
        ("locked", "broken open"),
        ("read", "broken read"),
        ("short", "bytes, expected"),
        ("io", "broken read"),
    ] {
        let found = lines
            .iter()
            .any(|line| line.contains(&format!("\"path\":\"{path}\"")) && line.contains(cause));
        assert!(found, "{path}: {cause} not in {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("good")));
    assert!(mount.stats.errors.get() >= 7);
}

#[test]
fn the_same_error_is_not_told_again_and_again() {
    let mount = TestMount::new(dir([(
        "len",
        broken(error(ErrorKind::Corrupt), error(ErrorKind::Corrupt), None),
    )]));
    for _ in 0..100 {
        fs::metadata(mount.path("len")).unwrap();
    }
    assert!(mount.stats.errors.get() >= 100);
    assert!(mount.error_lines().len() < 10);
}

/// A directory whose methods fail.
struct BrokenDir;

impl Directory for BrokenDir {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        match name.to_str() {
            Some("panic") => panic!("broken lookup"),
            Some("gone") => Err(Error::not_found("gone")),
            Some("denied") => Err(Error::new(ErrorKind::WrongKey, "wrong key")),
            Some("corrupt") => Err(Error::corrupt("bad")),
            _ => Ok(None),
        }
    }
    fn list(&self) -> Result<Arc<dyn Listing>> {
        Err(Error::corrupt("bad listing"))
    }
    fn mtime(&self) -> u64 {
        0
    }
    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }
}

#[test]
fn errors_of_directories() {
    let mount = TestMount::new(dir([("d", Node::Directory(Arc::new(BrokenDir)))]));
    for (name, wanted) in [
        ("panic", libc::EIO),
        ("gone", libc::ENOENT),
        ("denied", libc::EACCES),
        ("corrupt", libc::EIO),
        ("other", libc::ENOENT),
    ] {
        assert_eq!(errno(fs::metadata(mount.path("d").join(name))), wanted, "{name}");
    }
    let listed = fs::read_dir(mount.path("d")).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    assert_eq!(errno(listed), libc::EIO);
    assert_eq!(mount.error_lines().len(), 4, "{:#?}", mount.error_lines());
}

/// A group whose details cannot be read has no listing, rather than an empty one.
#[test]
fn members_that_cannot_be_read_are_no_empty_group() {
    let sample = MemoryStorage::copy_of(Path::new("tests/data/sample")).unwrap();
    let details = sample
        .files()
        .filter(|(path, _)| path.parent() == Some(Path::new("__group")));
    let (details, intact) = details.map(|(path, bytes)| (path, bytes.clone())).max().unwrap();
    for damaged in [
        intact[..intact.len() / 2].to_vec(),
        vec![0xff; intact.len()],
        Vec::new(),
    ] {
        let mut storage = sample.clone();
        storage.insert(&details, damaged);
        let tree = Tree::over(Arc::new(storage), &TreeOptions::default(), Arc::default()).unwrap();
        assert_eq!(tree.is_bare(), Some(false));
        let mount = TestMount::new(tree.root);
        let listed = fs::read_dir(mount.path("")).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        assert_eq!(errno(listed), libc::EIO);
        for name in ["weather", "none", "dataset.nc"] {
            assert_eq!(errno(fs::metadata(mount.path(name))), libc::EIO, "{name}");
        }
        assert_eq!(errno(fs::read(mount.path("group.json"))), libc::EIO);
        let metadata = fs::read_to_string(mount.path("metadata.json")).unwrap();
        assert!(metadata.contains("write_sample.py"), "{metadata}");
        let lines = mount.error_lines();
        let told = |line: &String| line.contains(details.to_str().unwrap());
        assert!(!lines.is_empty() && lines.iter().all(told), "{lines:#?}");
    }
}

/// What a group exports is unknown while a member may be anything: then the names are errors.
#[test]
fn exports_of_a_group_with_a_damaged_member_are_not_absent() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("none", |_| ()),
        ("empty files", |array| {
            let paths = fs::read_dir(array.join("__schema")).unwrap();
            let paths = paths.map(|entry| entry.unwrap().path());
            paths
                .filter(|path| path.is_file())
                .for_each(|path| fs::write(path, "").unwrap());
        }),
        ("gone", |array| {
            fs::remove_dir_all(array.join("__schema")).unwrap()
        }),
        ("a file", |array| {
            fs::remove_dir_all(array.join("__schema")).unwrap();
            fs::write(array.join("__schema"), "").unwrap();
        }),
        ("a link to nothing", |array| {
            fs::remove_dir_all(array.join("__schema")).unwrap();
            symlink("nothing", array.join("__schema")).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let source = tempfile::tempdir().unwrap();
        copy(Path::new("tests/data/sample"), source.path());
        damage(&source.path().join("weather"));
        let mount = TestMount::new(Tree::open(source.path(), &TreeOptions::default()).unwrap().root);
        for path in ["dataset.zarr/zarr.json", "dataset.nc", "image.ome.zarr/zarr.json"] {
            let expected = if what == "none" { libc::ENOENT } else { libc::EIO };
            assert_eq!(errno(fs::read(mount.path(path))), expected, "{what}: {path}");
        }
        let names = fs::read_dir(mount.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        for name in ["weather", "lightning", "group.json"] {
            assert!(names.iter().any(|known| known == name), "{what}: {names:?}");
        }
        for path in ["lightning/data/view.json", "group.json", "metadata.json"] {
            assert!(!fs::read(mount.path(path)).unwrap().is_empty(), "{what}: {path}");
        }
    }
}
