//! A read-only tmpfs beside a mount of the same files.

use super::calls::*;
use nix::mount::{MntFlags, MsFlags, umount2};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use tiledbfs::internals::fuse::{FileSystem, MountOptions, Mounted, mount};
use tiledbfs::internals::tree::{Tree, TreeOptions};

const FRAGMENT: &str = "weather/fragments/__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22";

/// A kernel file system, unmounted when dropped.
pub struct Reference {
    pub name: &'static str,
    mountpoint: TempDir,
    /// The directory of its image file.
    _image: Option<TempDir>,
}

impl Reference {
    pub fn tmpfs() -> Self {
        let mountpoint = tempfile::tempdir().unwrap();
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        nix::mount::mount(
            Some("reference"),
            mountpoint.path(),
            Some("tmpfs"),
            flags,
            None::<&str>,
        )
        .unwrap();
        Reference {
            name: "tmpfs",
            mountpoint,
            _image: None,
        }
    }

    /// None if its tools or loop devices are missing.
    pub fn ext4() -> Option<Self> {
        let image = tempfile::tempdir().unwrap();
        let file = image.path().join("image");
        File::create(&file).unwrap().set_len(16 << 20).unwrap();
        let mountpoint = tempfile::tempdir().unwrap();
        let runs = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made = runs(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&file))
            && runs(
                Command::new("mount")
                    .args(["-o", "loop,nosuid,nodev"])
                    .arg(&file)
                    .arg(mountpoint.path()),
            );
        made.then(|| Reference {
            name: "ext4",
            mountpoint,
            _image: Some(image),
        })
    }

    pub fn path(&self) -> &Path {
        self.mountpoint.path()
    }

    pub fn make_read_only(&self) {
        let output = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

pub fn copy(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
            fs::set_permissions(&to, fs::Permissions::from_mode(0o555)).unwrap();
        } else {
            fs::write(&to, fs::read(entry.path()).unwrap()).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o444)).unwrap();
        }
    }
}

/// Paths by the name of their kind.
pub fn paths() -> Vec<(&'static str, String)> {
    let in_fragment = |name: &str| format!("{FRAGMENT}/{name}");
    vec![
        ("root, a group", String::new()),
        ("array", "weather".into()),
        ("fragments", "weather/fragments".into()),
        ("fragment", FRAGMENT.into()),
        ("tiles", in_fragment("columns/note/tiles")),
        (".tiledbfs", ".tiledbfs".into()),
        ("document of a group", "group.json".into()),
        ("document of an array", "weather/schema.json".into()),
        ("document of a fragment", in_fragment("footer.json")),
        ("column", in_fragment("columns/temperature/data.bin")),
        (
            "column with a header",
            in_fragment("columns/temperature/data.npy"),
        ),
        ("tile", in_fragment("columns/note/tiles/0.data.bin")),
        ("stats.json", ".tiledbfs/stats.json".into()),
        ("missing in the root", "missing".into()),
        ("missing in an array", "weather/missing".into()),
        ("missing in fragments", "weather/fragments/missing".into()),
        ("missing in a fragment", in_fragment("missing")),
        (
            "missing among tiles",
            in_fragment("columns/note/tiles/99999.data.bin"),
        ),
        ("missing in .tiledbfs", ".tiledbfs/missing".into()),
        ("missing below a file", "group.json/missing".into()),
    ]
}

pub struct Both {
    pub reference: Reference,
    pub mountpoint: TempDir,
    outside: TempDir,
    pub mounted: Option<Mounted>,
}

impl Both {
    pub fn new(reference: Reference) -> Self {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
        let options = TreeOptions {
            cache_size: 1 << 24,
            keys: Vec::new(),
            follow_symlinks: false,
            ..TreeOptions::default()
        };
        let tree = Tree::open(&sample, &options).unwrap();
        let mountpoint = tempfile::tempdir().unwrap();
        let mounted = mount(FileSystem::new(tree), mountpoint.path(), &MountOptions::default()).unwrap();
        copy(mountpoint.path(), reference.path());
        reference.make_read_only();
        Both {
            reference,
            mountpoint,
            outside: tempfile::tempdir().unwrap(),
            mounted: Some(mounted),
        }
    }

    /// The results of a call on the mount and on the reference.
    pub fn ask(&self, call: Call, path: &str) -> (Answer, Answer) {
        let ask = |root: &Path| {
            let path = match path {
                "" => root.to_path_buf(),
                path => root.join(path),
            };
            let new = match path.is_dir() {
                true => path.join("new"),
                false => path.with_file_name("new"),
            };
            call(&On {
                path: &path,
                new: &new,
                other: &root.join("metadata.json"),
                outside: self.outside.path(),
            })
        };
        let answers = (ask(self.mountpoint.path()), ask(self.reference.path()));
        for name in ["file", "new", "copy"] {
            let _ = fs::remove_file(self.outside.path().join(name));
        }
        answers
    }

    /// Runs a table of calls on all paths, and returns the differences: the kinds of path by call, mount's
    /// answer and reference's answer.
    pub fn differences(
        &self,
        table: &[(&'static str, Call)],
    ) -> BTreeMap<(&'static str, Answer, Answer), Vec<&'static str>> {
        let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, call) in table {
            for (kind, path) in paths() {
                let (mount, reference) = self.ask(*call, &path);
                if mount != reference {
                    out.entry((*name, mount, reference)).or_default().push(kind);
                }
            }
        }
        out
    }
}
