//! A mount while its source changes: files are truncated, replaced and deleted; arrays are written to,
//! created and removed.

use crate::common::copying::copy;
use crate::common::{errno, eventually};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tiledbfs::internals::fuse::{FileSystem, MountOptions, Mounted, mount};
use tiledbfs::internals::tree::{ErrorLog, Tree, TreeOptions};

mod gone;
mod pins;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/sample")
        .join(name)
}

/// A mounted directory of copies of the sample arrays.
struct Place {
    mounted: Mounted,
    mnt: TempDir,
    source: TempDir,
    errors: Arc<ErrorLog>,
}

impl Place {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(prepare: impl FnOnce(&Path)) -> Self {
        Self::following(false, prepare)
    }

    fn following(follow_symlinks: bool, prepare: impl FnOnce(&Path)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), follow_symlinks, prepare)
    }

    fn at(source: TempDir, follow_symlinks: bool, prepare: impl FnOnce(&Path)) -> Self {
        let mnt = tempfile::tempdir().unwrap();
        copy(&sample("weather"), &source.path().join("weather"));
        prepare(source.path());
        let options = TreeOptions {
            cache_size: 1 << 20,
            keys: Vec::new(),
            follow_symlinks,
            ..TreeOptions::default()
        };
        let tree = Tree::open(source.path(), &options).unwrap();
        let errors = tree.errors.clone();
        let mounted = mount(FileSystem::new(tree), mnt.path(), &MountOptions::default()).unwrap();
        Place {
            mounted,
            mnt,
            source,
            errors,
        }
    }

    fn shown(&self, path: &str) -> PathBuf {
        self.mnt.path().join(path)
    }

    fn source(&self, path: &str) -> PathBuf {
        self.source.path().join(path)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let names = fs::read_dir(self.shown(path)).unwrap();
        let mut names: Vec<_> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn told(&self, part: &str) -> bool {
        String::from_utf8(self.errors.snapshot().0)
            .unwrap()
            .contains(part)
    }
}

/// The two fragments of the sample, the older one first.
const FRAGMENTS: [&str; 2] = [
    "__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22",
    "__1739491200000_1739491200000_0a683bb785d9d29f90fc8ddefc0bcac8_22",
];

fn data(fragment: &str) -> String {
    format!("weather/fragments/{fragment}/columns/measured/data.bin")
}

#[test]
fn a_data_file_cut_short_while_open_is_an_error_and_all_else_goes_on() {
    let place = Place::new();
    let intact = fs::read(sample("weather").join(format!("__fragments/{}/a3.tdb", FRAGMENTS[0]))).unwrap();
    let file = File::open(place.shown(&data(FRAGMENTS[0]))).unwrap();
    let len = file.metadata().unwrap().len();
    let stored = place.source(&format!("weather/__fragments/{}/a3.tdb", FRAGMENTS[0]));
    File::options()
        .write(true)
        .open(&stored)
        .unwrap()
        .set_len(20)
        .unwrap();
    for _ in 0..2 {
        assert_eq!(errno(file.read_at(&mut [0; 100], len - 100)), libc::EIO);
        assert_eq!(errno(fs::read(place.shown(&data(FRAGMENTS[0])))), libc::EIO);
    }
    assert!(place.told("a3.tdb"));
    assert!(!fs::read(place.shown(&data(FRAGMENTS[1]))).unwrap().is_empty());
    // An empty file is an error like any other.
    File::options()
        .write(true)
        .open(&stored)
        .unwrap()
        .set_len(0)
        .unwrap();
    assert_eq!(errno(file.read_at(&mut [0; 100], 0)), libc::EIO);
    // Repaired in place, it is readable again.
    fs::write(&stored, intact).unwrap();
    assert_eq!(
        fs::read(place.shown(&data(FRAGMENTS[0]))).unwrap().len() as u64,
        len
    );
}

#[test]
fn one_missing_file_is_one_line_of_the_errors() {
    let place = Place::new();
    let stored = place.source(&format!("weather/__fragments/{}/a3.tdb", FRAGMENTS[0]));
    fs::remove_file(stored).unwrap();
    let column = format!("weather/fragments/{}/columns/measured", FRAGMENTS[0]);
    let tiles = place.names(&format!("{column}/tiles"));
    assert!(tiles.len() > 5, "{tiles:?}");
    for tile in &tiles {
        assert_eq!(
            errno(fs::read(place.shown(&format!("{column}/tiles/{tile}")))),
            libc::EIO
        );
    }
    assert_eq!(
        errno(fs::read(place.shown(&format!("{column}/data.npy")))),
        libc::EIO
    );
    let text = String::from_utf8(place.errors.snapshot().0).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0]["count"].as_u64().unwrap() > tiles.len() as u64, "{text}");
    assert!(lines[0]["last"].as_u64() >= lines[0]["time"].as_u64(), "{text}");
    assert!(lines[0]["file"].as_str().unwrap().ends_with("a3.tdb"), "{text}");
}

#[test]
fn a_replaced_data_file_stays_what_it_was_for_who_has_it_open() {
    let place = Place::new();
    let whole = fs::read(place.shown(&data(FRAGMENTS[0]))).unwrap();
    drop(place);
    let place = Place::new();
    let file = File::open(place.shown(&data(FRAGMENTS[0]))).unwrap();
    let stored = place.source(&format!("weather/__fragments/{}/a3.tdb", FRAGMENTS[0]));
    fs::write(place.source("other"), b"not a tile").unwrap();
    fs::rename(place.source("other"), &stored).unwrap();
    let mut bytes = vec![0; whole.len()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == whole);
}

#[test]
fn an_array_in_whose_place_another_is_moved_is_that_one() {
    let place = Place::with(|source| {
        let other = source.join("other");
        copy(&sample("weather"), &other);
        let stored = other.join(format!("__fragments/{}/a2.tdb", FRAGMENTS[1]));
        let mut bytes = fs::read(&stored).unwrap();
        *bytes.last_mut().unwrap() ^= 0x5a;
        fs::write(stored, bytes).unwrap();
    });
    let path = place.shown("weather/data/columns/wind/data.bin");
    let old = fs::read(&path).unwrap();
    fs::rename(place.source("weather"), place.source("gone")).unwrap();
    fs::rename(place.source("other"), place.source("weather")).unwrap();
    // Another value, or an error of what is damaged.
    eventually("the other array is there", || {
        fs::read(&path).map_or(true, |new| new != old)
    });
}

#[test]
fn a_fragment_vacuumed_while_a_reader_has_its_column_open() {
    let place = Place::new();
    let file = File::open(place.shown(&data(FRAGMENTS[0]))).unwrap();
    let len = file.metadata().unwrap().len();
    let mut before = vec![0; 100];
    file.read_exact_at(&mut before, 0).unwrap();
    fs::remove_file(place.source(&format!("weather/__commits/{}.wrt", FRAGMENTS[0]))).unwrap();
    fs::remove_dir_all(place.source(&format!("weather/__fragments/{}", FRAGMENTS[0]))).unwrap();
    eventually("the fragment is gone", || {
        place.names("weather/fragments") == FRAGMENTS[1..]
    });
    // The open file keeps its content to the end.
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[..100], before);
    assert!(!fs::read(place.shown(&data(FRAGMENTS[1]))).unwrap().is_empty());
}

#[test]
fn a_data_file_written_to_is_never_mixed_with_what_it_was() {
    for column in ["temperature", "wind", "measured", "sky", "note"] {
        let place = Place::new();
        let path = place.shown(&format!(
            "weather/fragments/{}/columns/{column}/data.bin",
            FRAGMENTS[0]
        ));
        let old = fs::read(&path).unwrap();
        let (open, unread) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        let slot = ["temperature", "rain", "wind", "measured", "sky", "note"]
            .iter()
            .position(|name| *name == column);
        let end = if column == "note" { "_var" } else { "" };
        let stored = place.source(&format!(
            "weather/__fragments/{}/a{}{end}.tdb",
            FRAGMENTS[0],
            slot.unwrap()
        ));
        // The same length with another last byte, which is part of a value or of compressed data.
        let mut bytes = fs::read(&stored).unwrap();
        *bytes.last_mut().unwrap() ^= 0x5a;
        let file = File::options().write(true).open(&stored).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        // A new opener gets no old bytes from any cache.
        let new = fs::read(&path);
        assert!(new.as_ref().map_or(true, |new| *new != old), "{column}");
        for open in [&open, &unread] {
            let mut bytes = vec![0; old.len()];
            match open.read_exact_at(&mut bytes, 0) {
                Ok(()) => assert!(bytes == old, "{column}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{column}"),
            }
        }
        // Also meanwhile, as long as they are open.
        for _ in 0..2 {
            let again = fs::read(&path);
            assert_eq!(
                again.map_err(|e| e.raw_os_error()),
                new.as_ref().map(Vec::clone).map_err(|e| e.raw_os_error())
            );
        }
        drop((open, unread));
        let again = fs::read(&path);
        assert_eq!(
            again.map_err(|e| e.raw_os_error()),
            new.as_ref().map(Vec::clone).map_err(|e| e.raw_os_error())
        );
        // The other fragment is not affected.
        let other = format!("weather/fragments/{}/columns/{column}/data.bin", FRAGMENTS[1]);
        assert!(!fs::read(place.shown(&other)).unwrap().is_empty());
    }
}

#[test]
fn what_is_open_and_was_never_read_outlives_a_vacuum() {
    let place = Place::new();
    let columns = format!("weather/fragments/{}/columns", FRAGMENTS[0]);
    let mut files = Vec::new();
    for column in place.names(&columns) {
        for name in place.names(&format!("{columns}/{column}")) {
            if name != "tiles" {
                files.push(format!("{columns}/{column}/{name}"));
            }
        }
    }
    let wanted: Vec<_> = files
        .iter()
        .map(|path| fs::read(place.shown(path)).unwrap())
        .collect();
    drop(place);
    let place = Place::new();
    let open: Vec<_> = files
        .iter()
        .map(|path| File::open(place.shown(path)).unwrap())
        .collect();
    fs::remove_file(place.source(&format!("weather/__commits/{}.wrt", FRAGMENTS[0]))).unwrap();
    fs::remove_dir_all(place.source(&format!("weather/__fragments/{}", FRAGMENTS[0]))).unwrap();
    eventually("the fragment is gone", || {
        place.names("weather/fragments") == FRAGMENTS[1..]
    });
    assert!(files.len() >= 16, "{files:?}");
    for ((file, wanted), path) in open.iter().zip(&wanted).zip(&files) {
        let mut bytes = vec![0; wanted.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == *wanted, "{path}");
        assert_eq!(
            file.read_at(&mut [0; 8], wanted.len() as u64).unwrap(),
            0,
            "{path}"
        );
        assert_eq!(file.metadata().unwrap().len(), wanted.len() as u64, "{path}");
    }
}

#[test]
fn documents_that_change_are_seen_however_warm_the_caches() {
    let place = Place::new();
    let documents = ["fragments.json", "commits.json", "metadata.json", "schema.json"];
    let read = |name: &str| fs::read_to_string(place.shown(&format!("weather/{name}"))).unwrap();
    for _ in 0..3 {
        for name in documents {
            read(name);
        }
    }
    let before = documents.map(read);
    fs::remove_file(place.source(&format!("weather/__commits/{}.wrt", FRAGMENTS[0]))).unwrap();
    fs::remove_dir_all(place.source(&format!("weather/__fragments/{}", FRAGMENTS[0]))).unwrap();
    fs::remove_dir_all(place.source("weather/__meta")).unwrap();
    let schemas = place.source("weather/__schema");
    let schema = fs::read_dir(&schemas)
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| entry.file_type().unwrap().is_file())
        .unwrap();
    fs::copy(
        schema.path(),
        schemas.join("__1735689600000_1735689600000_0da010fa7c3c22221ad500aa4ef12456"),
    )
    .unwrap();
    for (name, before) in documents.iter().zip(&before) {
        let path = place.shown(&format!("weather/{name}"));
        // Read all the time, so that the kernel's cache is always fresh.
        eventually(name, || read(name) != *before);
        let text = read(name);
        eventually(name, || fs::metadata(&path).unwrap().len() == text.len() as u64);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{name}");
    }
}

#[test]
fn a_new_fragment_is_seen_and_what_is_open_stays() {
    let place = Place::with(|source| {
        for (directory, end) in [("__fragments", ""), ("__commits", ".wrt")] {
            let name = |root: &Path| root.join(format!("weather/{directory}/{}{end}", FRAGMENTS[1]));
            fs::create_dir_all(source.join("later/weather").join(directory)).unwrap();
            fs::rename(name(source), name(&source.join("later"))).unwrap();
        }
    });
    assert_eq!(place.names("weather/fragments"), FRAGMENTS[..1]);
    let latest = || fs::read_link(place.shown("weather/fragments/latest")).unwrap();
    assert_eq!(latest(), Path::new(FRAGMENTS[0]));
    let open = File::open(place.shown("weather/fragments.json")).unwrap();
    let len = open.metadata().unwrap().len();
    // Like libtiledb: the fragment first, then its commit.
    for (directory, end) in [("__fragments", ""), ("__commits", ".wrt")] {
        let name = |root: &str| place.source(&format!("{root}weather/{directory}/{}{end}", FRAGMENTS[1]));
        fs::rename(name("later/"), name("")).unwrap();
    }
    eventually("the new fragment", || {
        place.names("weather/fragments") == FRAGMENTS
    });
    eventually("its line", || {
        fs::read_to_string(place.shown("weather/fragments.json"))
            .unwrap()
            .contains(FRAGMENTS[1])
    });
    eventually("the link to it", || latest() == Path::new(FRAGMENTS[1]));
    let footer = fs::read(place.shown("weather/fragments/latest/footer.json")).unwrap();
    assert_eq!(
        footer,
        fs::read(place.shown(&format!("weather/fragments/{}/footer.json", FRAGMENTS[1]))).unwrap()
    );
    // The open file keeps one length and one content for all kinds of access; the path has new ones.
    let now = fs::metadata(place.shown("weather/fragments.json")).unwrap();
    assert!(now.len() > len);
    assert_eq!(open.metadata().unwrap().len(), len);
    assert_ne!(open.metadata().unwrap().ino(), now.ino());
    let mut bytes = vec![0; len as usize + 1];
    assert_eq!(open.read_at(&mut bytes, 0).unwrap() as u64, len);
    bytes.pop();
    assert!(mapped(&open, len as usize) == bytes);
    let text = String::from_utf8(bytes).unwrap();
    assert!(!text.contains(FRAGMENTS[1]) && text.ends_with("]\n"), "{text}");
}

/// The bytes of a file, through a mapping of pages that nobody has read.
fn mapped(file: &File, len: usize) -> Vec<u8> {
    // SAFETY: a new mapping of a file that has `len` bytes, used only for reading.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let bytes = std::slice::from_raw_parts(at.cast::<u8>(), len).to_vec();
        libc::munmap(at, len);
        bytes
    }
}

/// The extended attributes of a file, read like `getfattr -d` does: the names, then each value.
fn attributes(path: &Path) -> Vec<(String, String)> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let read = |name: Option<&CString>, out: &mut [u8]| {
        let (to, size) = (out.as_mut_ptr(), out.len());
        // SAFETY: NUL-terminated strings, and a buffer of the given length.
        let length = unsafe {
            match name {
                None => libc::listxattr(path.as_ptr(), to.cast(), size),
                Some(name) => libc::getxattr(path.as_ptr(), name.as_ptr(), to.cast(), size),
            }
        };
        assert!(length >= 0, "{}", std::io::Error::last_os_error());
        length as usize
    };
    let whole = |name: Option<&CString>| {
        let mut value = vec![0; read(name, &mut [])];
        let length = read(name, &mut value);
        assert_eq!(length, value.len());
        String::from_utf8(value).unwrap()
    };
    let names = whole(None);
    let names = names.split_terminator('\0').map(str::to_owned);
    let with_value = |name: String| (name.clone(), whole(Some(&CString::new(name).unwrap())));
    names.map(with_value).collect()
}

#[test]
fn columns_say_what_they_are() {
    let place = Place::new();
    let column = format!("weather/fragments/{}/columns/rain", FRAGMENTS[0]);
    let of = |name: &str| attributes(&place.shown(&format!("{column}{name}")));
    let value = |all: &[(String, String)], name: &str| {
        let name = format!("user.tiledb.{name}");
        let found = all.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no {name} in {all:?}")).1.clone()
    };
    let cells = fs::metadata(place.shown(&format!("{column}/validity.bin")))
        .map(|metadata| metadata.len())
        .unwrap();
    for name in ["", "/data.bin", "/data.npy", "/validity.bin", "/tiles/0.data.bin"] {
        let all = of(name);
        assert_eq!(all.len(), 5, "{name}: {all:?}");
        let shape: Vec<u64> = serde_json::from_str(&value(&all, "shape")).unwrap();
        assert!(shape[0] <= cells && shape[0] > 0, "{name}: {shape:?}");
        let filters: serde_json::Value = serde_json::from_str(&value(&all, "filters")).unwrap();
        assert!(filters["filters"].is_array(), "{name}: {filters}");
        for path in value(&all, "source").split('\n') {
            assert!(place.source(path).is_file(), "{name}: {path}");
        }
    }
    let schema = fs::read(place.shown("weather/schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&schema).unwrap();
    let mut fields = schema["attributes"].as_array().unwrap().iter();
    let rain = fields.find(|field| field["name"] == "rain").unwrap();
    let all = of("/data.bin");
    assert_eq!(value(&all, "datatype"), rain["datatype"].as_str().unwrap());
    assert_eq!(value(&all, "cell_val_num"), rain["cell_val_num"].to_string());
    assert_eq!(value(&all, "shape"), format!("[{cells}]"));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&value(&all, "filters")).unwrap(),
        rain["filters"]
    );
    assert_eq!(value(&of("/validity.bin"), "datatype"), "UINT8");
    // Columns of views have them too, except filters.
    let view = "weather/data/columns/rain";
    for (name, datatype) in [
        ("data.bin", "UINT16"),
        ("data.npy", "UINT16"),
        ("validity.npy", "UINT8"),
    ] {
        let of_view = attributes(&place.shown(&format!("{view}/{name}")));
        assert_eq!(of_view.len(), 4, "{of_view:?}");
        assert_eq!(value(&of_view, "datatype"), datatype);
        assert_eq!(value(&of_view, "shape"), "[365,6]");
        assert_eq!(value(&of_view, "cell_val_num"), "1");
        assert_eq!(value(&of_view, "source"), FRAGMENTS.join("\n"));
    }
    let offsets = attributes(&place.shown("weather/data/columns/note/offsets.bin"));
    assert_eq!(value(&offsets, "datatype"), "UINT64");
    assert_eq!(value(&offsets, "shape"), format!("[{}]", 365 * 6 + 1));
    // Other files have none, and names that only the system asks for are not supported at all.
    assert!(attributes_of_none(&place.shown("weather/schema.json")));
}

fn attributes_of_none(path: &Path) -> bool {
    let path_of = CString::new(path.as_os_str().as_bytes()).unwrap();
    let error = |name: &std::ffi::CStr| {
        // SAFETY: NUL-terminated strings, and no buffer.
        let length = unsafe { libc::getxattr(path_of.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
        (length < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap())
    };
    attributes(path).is_empty()
        && error(c"user.tiledb.shape") == Some(libc::ENODATA)
        && error(c"security.selinux") == Some(libc::EOPNOTSUPP)
}

#[test]
fn a_new_schema_is_seen() {
    let place = Place::new();
    let [old] = &place.names("weather/schemas")[..] else {
        panic!("several schemas");
    };
    let schemas = place.source("weather/__schema");
    let new = "__1735689600000_1735689600000_0da010fa7c3c22221ad500aa4ef12456";
    assert!(
        fs::read_to_string(place.shown("weather/schema.json"))
            .unwrap()
            .contains(&old[..30])
    );
    fs::copy(
        schemas.join(old.strip_suffix(".json").unwrap()),
        schemas.join(new),
    )
    .unwrap();
    eventually("the new schema", || place.names("weather/schemas").len() == 2);
    eventually("in force", || {
        fs::read_to_string(place.shown("weather/schema.json"))
            .unwrap()
            .contains(new)
    });
}

#[test]
fn arrays_come_and_go() {
    let place = Place::new();
    assert_eq!(place.names(""), [".tiledbfs", "weather"]);
    copy(&sample("lightning"), &place.source("lightning"));
    eventually("a new array", || {
        place.names("") == [".tiledbfs", "lightning", "weather"]
    });
    assert!(
        fs::read_to_string(place.shown("lightning/schema.json"))
            .unwrap()
            .contains("sparse")
    );
    let open = File::open(place.shown(&data(FRAGMENTS[0]))).unwrap();
    fs::remove_dir_all(place.source("weather")).unwrap();
    eventually("an array less", || place.names("") == [".tiledbfs", "lightning"]);
    eventually("nothing under its name", || {
        fs::metadata(place.shown("weather")).is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT))
    });
    open.read_exact_at(&mut [0; 100], 0).unwrap();
    // Another array of the same name.
    copy(&sample("lightning"), &place.source("weather"));
    eventually("another array of the name", || {
        fs::read_to_string(place.shown("weather/schema.json")).is_ok_and(|text| text.contains("sparse"))
    });
}

#[test]
fn links_that_lead_out_are_followed_only_when_asked() {
    let outside = tempfile::tempdir().unwrap();
    copy(&sample("lightning"), outside.path());
    let prepare = |source: &Path| {
        symlink(outside.path(), source.join("out")).unwrap();
        symlink("weather", source.join("inside")).unwrap();
        symlink("circle", source.join("circle")).unwrap();
        symlink("b", source.join("a")).unwrap();
        symlink("a", source.join("b")).unwrap();
        fs::create_dir(source.join("deep")).unwrap();
        symlink("..", source.join("deep/up")).unwrap();
        copy(&sample("lightning"), &source.join("deep/lightning"));
    };
    let place = Place::with(prepare);
    assert_eq!(place.names(""), [".tiledbfs", "deep", "inside", "weather"]);
    assert_eq!(
        place.names("deep"),
        ["lightning"],
        "a link to a directory above is no directory"
    );
    assert_eq!(errno(fs::metadata(place.shown("out"))), libc::ENOENT);
    drop(place);
    let place = Place::following(true, prepare);
    assert_eq!(place.names(""), [".tiledbfs", "deep", "inside", "out", "weather"]);
    assert_eq!(place.names("deep"), ["lightning"]);
    assert!(
        fs::read_to_string(place.shown("out/schema.json"))
            .unwrap()
            .contains("sparse")
    );
    // A link within an array counts as well.
    drop(place);
    let place = Place::with(|source| {
        let stored = source.join(format!("weather/__fragments/{}/a3.tdb", FRAGMENTS[0]));
        fs::remove_file(&stored).unwrap();
        symlink("/etc/passwd", stored).unwrap();
    });
    assert_eq!(errno(fs::read(place.shown(&data(FRAGMENTS[0])))), libc::EIO);
}
