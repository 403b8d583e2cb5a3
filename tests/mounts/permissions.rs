//! Users other than the mounting one see only what they could read in the source.
//!
//! Needs root, to become any user.

use crate::common::{Random, dir, eventually, file};
use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tiledbfs::internals::filter::EncryptionKey;
use tiledbfs::internals::fuse::{Access, FileSystem, MountOptions, Mounted, mount};
use tiledbfs::internals::tree::{Tree, TreeOptions};

const NOBODY: (u32, u32) = (65534, 65534);

/// A user with one group.
type User = (u32, u32);

const FRAGMENT: &str = "__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22";

/// A folder that everybody may enter, with a copy of the sample in `source` and an empty `mnt`.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "only root can become other users"
        );
        let place = Place(tempfile::tempdir().unwrap());
        chmod(place.0.path(), 0o755);
        fs::create_dir(place.path("mnt")).unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
        copy(&sample, &place.path("source"));
        place
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn source(&self, name: &str) -> PathBuf {
        self.path("source").join(name)
    }

    fn mount(&self, access: Access, change: impl FnOnce(&mut TreeOptions)) -> Mounted {
        self.mount_source(&self.path("source"), access, change)
    }

    fn mount_source(&self, source: &Path, access: Access, change: impl FnOnce(&mut TreeOptions)) -> Mounted {
        let mut options = TreeOptions {
            cache_size: 1 << 24,
            keys: Vec::new(),
            follow_symlinks: false,
            ..TreeOptions::default()
        };
        change(&mut options);
        let tree = Tree::open(source, &options).unwrap();
        let options = MountOptions {
            access,
            threads: 2,
            ..MountOptions::default()
        };
        mount(FileSystem::new(tree), &self.path("mnt"), &options).unwrap()
    }

    fn shown(&self, name: &str) -> PathBuf {
        self.path("mnt").join(name)
    }

    /// A path in the columns of the tested fragment.
    fn column(&self, name: &str) -> PathBuf {
        self.shown(&format!("weather/fragments/{FRAGMENT}/columns/{name}"))
    }

    /// A file of the tested fragment in the source.
    fn data(&self, name: &str) -> PathBuf {
        self.source(&format!("weather/__fragments/{FRAGMENT}/{name}"))
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Copies a tree and makes it readable for everybody.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    chmod(to, 0o755);
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
            chmod(&to, 0o644);
        }
    }
}

fn as_user(user: User, program: &str) -> Command {
    let mut command = Command::new(program);
    // Setting the user as root also drops all other groups.
    command.uid(user.0).gid(user.1).current_dir("/");
    command
}

/// Whether `user` can read the whole file, or list the directory.
fn reads(user: User, path: &Path) -> bool {
    let program = if fs::metadata(path).unwrap().is_dir() {
        "ls"
    } else {
        "cat"
    };
    let mut command = as_user(user, program);
    command.arg(path).stdout(Stdio::null());
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() || message.contains("Permission denied"),
        "{message}"
    );
    output.status.success()
}

/// The paths that the user can open for reading.
fn readable(user: User, paths: &[PathBuf]) -> HashSet<PathBuf> {
    let mut found = HashSet::new();
    for paths in paths.chunks(1000) {
        let script = r#"for f; do [ -r "$f" ] && printf '%s\n' "$f"; done; true"#;
        let output = as_user(user, "sh")
            .args(["-c", script, "sh"])
            .args(paths)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        found.extend(
            String::from_utf8(output.stdout)
                .unwrap()
                .lines()
                .map(PathBuf::from),
        );
    }
    found
}

/// All files below a directory, as seen by root.
fn files(below: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut waiting = vec![below.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            } else {
                out.push(entry.path());
            }
        }
    }
    out.sort();
    out
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn without_allow_other_only_the_mounting_user_enters() {
    let place = Place::new();
    let _mounted = place.mount(Access::Owner, |_| ());
    assert!(reads((0, 0), &place.shown("weather/schema.json")));
    chmod(&place.data("a0.tdb"), 0o600);
    assert_eq!(mode(&place.column("temperature/data.bin")), 0o444);
    assert_eq!(mode(&place.column("temperature")), 0o555);
    for path in [place.shown("weather/schema.json"), place.shown("weather")] {
        assert!(!reads(NOBODY, &path));
    }
}

#[test]
fn allow_root_keeps_out_all_but_root_and_the_mounting_user() {
    let place = Place::new();
    let _mounted = place.mount(Access::OwnerAndRoot, |_| ());
    let path = place.shown("weather/schema.json");
    assert!(reads((0, 0), &path) && !reads(NOBODY, &path));
    assert_eq!((mode(&path), mode(&place.shown("weather"))), (0o400, 0o500));
}

#[test]
fn what_everybody_could_read_everybody_reads() {
    let place = Place::new();
    let _mounted = place.mount(Access::All, |_| ());
    let all = files(&place.path("mnt"));
    let closed: Vec<_> = all.iter().filter(|path| !reads(NOBODY, path)).collect();
    let own =
        ["errors.jsonl", "stats.json", "work.json"].map(|name| place.shown(&format!(".tiledbfs/{name}")));
    assert_eq!(closed, own.iter().collect::<Vec<_>>());
    assert!(all.len() > 200, "{}", all.len());
    assert!(reads(NOBODY, &place.path("mnt")));
    let times = place.shown("weather/at");
    assert!(reads(NOBODY, &times));
    for time in fs::read_dir(times).unwrap() {
        assert!(reads(NOBODY, &time.unwrap().path().join("schema.json")));
    }
}

#[test]
fn a_closed_data_file_closes_its_column_alone() {
    let place = Place::new();
    let closed = "temperature";
    chmod(&place.data("a0.tdb"), 0o600);
    let _mounted = place.mount(Access::All, |_| ());
    for path in files(&place.shown("weather/fragments")) {
        let of_column = path.starts_with(place.column(closed));
        assert_eq!(reads(NOBODY, &path), !of_column, "{}", path.display());
    }
    assert_eq!(mode(&place.column("temperature/data.bin")), 0o400);
    assert!(
        reads(NOBODY, &place.column(closed)),
        "its names are in the metadata"
    );
}

#[test]
fn a_group_reads_what_it_could_read() {
    let place = Place::new();
    let data = place.data("a0.tdb");
    chown(&data, Some(1234), Some(4321)).unwrap();
    chmod(&data, 0o640);
    // The files of one column differ in their group.
    let (one, other) = (place.data("a5.tdb"), place.data("a5_var.tdb"));
    chown(&one, None, Some(4321)).unwrap();
    chown(&other, None, Some(4322)).unwrap();
    chmod(&one, 0o640);
    chmod(&other, 0o640);
    let _mounted = place.mount(Access::All, |_| ());
    let shown = place.column("temperature/data.npy");
    let metadata = fs::metadata(&shown).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), mode(&shown)), (0, 4321, 0o440));
    assert!(reads((555, 4321), &shown));
    assert!(!reads(NOBODY, &shown));
    let note = place.column("note/data.bin");
    assert!(mode(&note) == 0o400 && !reads((555, 4321), &note) && !reads((555, 4322), &note));
}

#[test]
fn closed_metadata_closes_what_is_said_in_it() {
    let place = Place::new();
    chmod(&place.data("__fragment_metadata.tdb"), 0o600);
    chmod(&place.source("lightning/__schema"), 0o700);
    chmod(&place.source("__group"), 0o711);
    let _mounted = place.mount(Access::All, |_| ());
    let fragment = format!("weather/fragments/{FRAGMENT}");
    // The names of members are in the details.
    assert!(!reads(NOBODY, &place.shown("weather")));
    assert!(!reads(NOBODY, &place.shown("group.json")));
    chmod(&place.source("__group"), 0o755);
    std::thread::sleep(Duration::from_millis(900));
    for (name, expected) in [
        ("group.json", true),
        ("weather", true),
        ("weather/schema.json", true),
        ("weather/fragments", true),
        (&fragment, true),
        (&format!("{fragment}/footer.json"), false),
        (&format!("{fragment}/tiles.json"), false),
        (&format!("{fragment}/columns"), false),
        (&format!("{fragment}/columns/wind/data.bin"), false),
        ("weather/fragments.json", false),
        ("weather/commits.json", true),
        ("weather/metadata.json", true),
        ("weather/at", true),
        ("lightning", true),
        ("lightning/schema.json", false),
        ("lightning/schemas", false),
        ("lightning/fragments", true),
        ("lightning/fragments.json", false),
        ("lightning/metadata.json", true),
        ("lightning/at", false),
    ] {
        assert_eq!(reads(NOBODY, &place.shown(name)), expected, "{name}");
    }
}

#[test]
fn closed_array_metadata_closes_what_takes_from_it() {
    let place = Place::new();
    let files_of_metadata = files(&place.source("weather/__meta"));
    assert!(!files_of_metadata.is_empty());
    for path in &files_of_metadata {
        chmod(path, 0o600);
    }
    let _mounted = place.mount(Access::All, |_| ());
    for (name, expected) in [
        ("metadata.json", false),
        // The keys that exports leave out.
        ("data/view.json", false),
        // What pandas and GeoPandas say of columns.
        ("data/table.parquet", false),
        ("data/array.nc", false),
        ("data/raster/temperature.tif", false),
        // The arrays of places on the ground.
        ("data/array.zarr", false),
        ("data/array.zarr/zarr.json", false),
        ("data/array.zarr/temperature/c/0/0", false),
        ("data/table.csv", true),
        ("data/head.csv", true),
        ("data/columns/temperature/data.npy", true),
        ("schema.json", true),
    ] {
        let path = place.shown(&format!("weather/{name}"));
        assert_eq!(reads(NOBODY, &path), expected, "{name}");
    }
}

#[test]
fn a_closed_directory_above_closes_everything() {
    let place = Place::new();
    let above = place.path("above");
    fs::create_dir(&above).unwrap();
    fs::rename(place.path("source"), above.join("source")).unwrap();
    chmod(&above, 0o700);
    let _mounted = place.mount_source(&above.join("source"), Access::All, |_| ());
    assert!(!reads(NOBODY, &place.path("mnt")));
    assert_eq!(mode(&place.path("mnt")), 0o500);
    assert!(!reads(NOBODY, &place.shown("weather/schema.json")));
    // A directory that everybody may pass through but not list.
    chmod(&above, 0o711);
    eventually("it opens", || reads(NOBODY, &place.path("mnt")));
    // What was answered for each file is remembered for itself.
    eventually("what is in it opens", || {
        reads(NOBODY, &place.shown("weather/schema.json"))
    });
}

#[test]
fn a_change_is_seen() {
    let place = Place::new();
    let _mounted = place.mount(Access::All, |_| ());
    let shown = place.column("temperature/data.bin");
    let seen = |wanted: bool, change: &dyn Fn()| {
        assert_eq!(reads(NOBODY, &shown), !wanted);
        change();
        eventually("the change is seen", || reads(NOBODY, &shown) == wanted);
    };
    seen(false, &|| chmod(&place.data("a0.tdb"), 0o600));
    seen(true, &|| chmod(&place.data("a0.tdb"), 0o644));
    seen(false, &|| chmod(&place.source("weather"), 0o700));
    seen(true, &|| chmod(&place.source("weather"), 0o755));
    // Open files stay open, as in any file system.
    seen(false, &|| fs::remove_file(place.data("a0.tdb")).unwrap());
}

#[test]
fn links_count_with_what_they_lead_to() {
    let place = Place::new();
    let closed = place.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::rename(place.source("weather"), closed.join("weather")).unwrap();
    fs::create_dir(place.source("plain")).unwrap();
    symlink(closed.join("weather"), place.source("weather")).unwrap();
    chmod(&closed, 0o700);
    let _mounted = place.mount(Access::All, |options| options.follow_symlinks = true);
    assert!(reads(NOBODY, &place.shown("lightning/schema.json")));
    assert!(!reads(NOBODY, &place.shown("weather/schema.json")));
    chmod(&closed, 0o755);
    eventually("it opens", || reads(NOBODY, &place.shown("weather/schema.json")));
}

#[test]
fn a_closed_key_file_closes_what_it_is_for() {
    let place = Place::new();
    let key = place.path("key");
    fs::write(&key, [7; 32]).unwrap();
    chmod(&key, 0o600);
    let _mounted = place.mount(Access::All, |options| {
        options.keys = vec![("weather".into(), EncryptionKey::from_file([7; 32], key.clone()))];
    });
    for name in [
        "",
        "/schema.json",
        "/fragments",
        "/fragments.json",
        "/metadata.json",
        "/commits.json",
    ] {
        assert!(!reads(NOBODY, &place.shown(&format!("weather{name}"))), "{name}");
    }
    for path in files(&place.shown("weather")) {
        assert_eq!(mode(&path), 0o400, "{}", path.display());
    }
    assert!(reads(NOBODY, &place.shown("lightning/schema.json")));
    chmod(&key, 0o644);
    eventually("it opens", || reads(NOBODY, &place.column("wind/data.bin")));
    fs::remove_file(&key).unwrap();
    eventually("it closes", || !reads(NOBODY, &place.column("wind/data.bin")));
}

/// Sets a POSIX access control list of (tag, permissions, id); false if the file system has none.
fn set_list(path: &Path, entries: &[(u16, u16, u32)]) -> bool {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: path and name are C strings, and the value has the given length.
    let result = unsafe {
        let name = c"system.posix_acl_access".as_ptr();
        libc::setxattr(path.as_ptr(), name, bytes.as_ptr().cast(), bytes.len(), 0)
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
    }
    result == 0
}

#[test]
fn access_control_lists_count() {
    const NONE: u32 = u32::MAX;
    let place = Place::new();
    let (temperature, rain) = (place.data("a0.tdb"), place.data("a1.tdb"));
    // Everybody but user 4000; everybody but the owning group, whose bits in the mode are the mask.
    chown(&rain, None, Some(4321)).unwrap();
    let without_user = [
        (1, 6, NONE),
        (2, 0, 4000),
        (4, 4, NONE),
        (0x10, 4, NONE),
        (0x20, 4, NONE),
    ];
    let without_group = [
        (1, 6, NONE),
        (2, 4, 4000),
        (4, 0, NONE),
        (0x10, 4, NONE),
        (0x20, 4, NONE),
    ];
    if !set_list(&temperature, &without_user) {
        println!("not tested: no access control lists on this file system");
        return;
    }
    assert!(set_list(&rain, &without_group));
    assert_eq!((mode(&temperature), mode(&rain)), (0o644, 0o644));
    let _mounted = place.mount(Access::All, |_| ());
    assert!(!reads((4000, 4000), &place.column("temperature/data.bin")));
    assert!(!reads((5000, 4321), &place.column("rain/data.bin")));
    assert!(reads(NOBODY, &place.column("rain/data.bin")));
}

#[test]
fn a_source_that_only_its_mounter_may_enter_stays_so() {
    let place = Place::new();
    let inner = crate::common::TestMount::new(dir([("__tiledb_group.tdb", file(*b""))]));
    let marker = inner.path("__tiledb_group.tdb");
    assert_eq!(mode(&marker), 0o444, "the modes say nothing of it");
    assert!(!reads(NOBODY, &marker));
    let _mounted = place.mount_source(inner.dir.path(), Access::All, |_| ());
    assert!(reads((0, 0), &place.shown("group.json")));
    assert!(!reads(NOBODY, &place.shown("group.json")));
}

/// The source files of a file in the columns of a fragment.
fn sources_of(place: &Place, shown: &Path) -> Option<Vec<PathBuf>> {
    let relative = shown.strip_prefix(place.path("mnt")).unwrap();
    let parts: Vec<&str> = relative.iter().map(|part| part.to_str().unwrap()).collect();
    let [array, "fragments", fragment, "columns", field, ..] = parts[..] else {
        return None;
    };
    let directory = place.source(&format!("{array}/__fragments/{fragment}"));
    let fields: &[&str] = match array {
        "weather" => &["temperature", "rain", "wind", "measured", "sky", "note"],
        _ => return None,
    };
    let index = fields.iter().position(|name| *name == field)?;
    let mut sources = vec![directory.join("__fragment_metadata.tdb")];
    let own = [
        format!("a{index}.tdb"),
        format!("a{index}_var.tdb"),
        format!("a{index}_validity.tdb"),
    ];
    sources.extend(
        own.iter()
            .map(|name| directory.join(name))
            .filter(|path| path.exists()),
    );
    sources.extend(
        files(&place.source(&format!("{array}/__schema")))
            .into_iter()
            .filter(|path| !path.to_str().unwrap().contains("__enumerations")),
    );
    Some(sources)
}

#[test]
fn nobody_reads_more_whatever_the_permissions() {
    let place = Place::new();
    let _mounted = place.mount(Access::All, |_| ());
    let source = place.path("source");
    let mut all: Vec<PathBuf> = files(&source);
    let shown: Vec<(PathBuf, Vec<PathBuf>)> = files(&place.shown("weather/fragments"))
        .into_iter()
        .filter_map(|path| sources_of(&place, &path).map(|sources| (path, sources)))
        .collect();
    assert!(shown.len() > 50, "{}", shown.len());
    let mut folders: Vec<PathBuf> = all
        .iter()
        .map(|path| path.parent().unwrap().to_path_buf())
        .collect();
    folders.sort();
    folders.dedup();
    all.extend(folders);
    let users = [(2001, 3001), (2001, 3002), (2002, 3001), (2002, 3002), NOBODY];
    let mut random = Random(6);
    let (mut could_read, mut can_read) = (0, 0);
    for round in 0..6 {
        for path in &all {
            let directory = path.is_dir();
            // Mostly open: otherwise nobody reads anything.
            let usual = if directory { 0o755 } else { 0o644 };
            let unusual = [0o700, 0o750, 0o705, 0o770, 0o711, 0o077, 0o740, 0o704, 0o444];
            let mode = match random.below(if directory { 12 } else { 5 }) {
                0 => unusual[random.below(unusual.len() as u64) as usize],
                _ => usual,
            };
            let uid = [0, 2001, 2002][random.below(3) as usize];
            let gid = [3001, 3002][random.below(2) as usize];
            chown(path, Some(uid), Some(gid)).unwrap();
            chmod(path, mode);
        }
        std::thread::sleep(Duration::from_millis(900));
        let paths: Vec<PathBuf> = shown.iter().map(|(path, _)| path.clone()).collect();
        for user in users {
            let (in_source, in_mount) = (readable(user, &all), readable(user, &paths));
            for (path, sources) in &shown {
                let could = sources.iter().all(|source| in_source.contains(source));
                let can = in_mount.contains(path);
                assert!(could || !can, "round {round}: {user:?} reads {}", path.display());
                could_read += u32::from(could);
                can_read += u32::from(can);
            }
        }
    }
    println!("{can_read} readable of {could_read} that were so in the source");
    assert!(
        can_read > 100 && can_read * 2 > could_read,
        "{can_read} of {could_read}"
    );
}
