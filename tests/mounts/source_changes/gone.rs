//! Sources that are removed while they are mounted.

use super::*;

/// Directories of every kind, whose names the kernel may remember.
const DIRECTORIES: [&str; 5] = [
    "",
    "weather",
    "weather/schemas",
    "weather/fragments",
    "weather/fragments/__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22/columns",
];

/// Asserts that programs that walk the mount report failure, and that a backup keeps its files.
fn every_walk_fails(place: &Place, why: &str) {
    for directory in DIRECTORIES {
        let listed: Result<Vec<_>, _> = fs::read_dir(place.shown(directory)).and_then(Iterator::collect);
        assert_eq!(errno(listed), libc::EIO, "{why}: {directory:?}");
    }
    let backup = tempfile::tempdir().unwrap();
    copy(&sample("weather"), &backup.path().join("weather"));
    let (mnt, to) = (
        place.mnt.path().to_str().unwrap(),
        backup.path().to_str().unwrap(),
    );
    let (all, below) = (format!("{mnt}/"), format!("{mnt}/weather"));
    for command in [
        &["rsync", "-a", "--delete", "--exclude=/.tiledbfs", &all, to][..],
        &["ls", mnt],
        &["ls", "-R", mnt],
        &["find", mnt],
        &["find", &below],
        &["tar", "-cf", "/dev/null", mnt],
        &["cp", "-r", mnt, to],
    ] {
        let output = Command::new(command[0]).args(&command[1..]).output().unwrap();
        assert!(!output.status.success(), "{why}: {command:?}: {output:?}");
    }
    assert!(backup.path().join("weather/__schema").is_dir(), "{why}");
    assert!(fs::read(place.shown("weather/schema.json")).is_err(), "{why}");
    let own = [".tiledbfs", ".tiledbfs/version", ".tiledbfs/errors.jsonl"];
    assert!(own.map(|name| fs::metadata(place.shown(name)).is_ok()) == [true; 3]);
    assert_eq!(place.names(".tiledbfs").len(), 4);
    eventually("the log tells it", || place.told("the source"));
}

/// Walks the whole mount, so that the kernel and the file system remember it.
fn look_around(place: &Place) {
    for directory in DIRECTORIES {
        assert!(!place.names(directory).is_empty());
    }
}

#[test]
fn a_source_that_goes_away_is_not_empty() {
    let place = Place::new();
    look_around(&place);
    let moved = place.source.path().with_extension("moved");
    fs::rename(place.source.path(), &moved).unwrap();
    every_walk_fails(&place, "renamed");
    // Another directory in its place, with the same content.
    copy(&moved, place.source.path());
    every_walk_fails(&place, "replaced");
    fs::remove_dir_all(place.source.path()).unwrap();
    symlink(&moved, place.source.path()).unwrap();
    eventually("it is the same one again", || {
        fs::read_dir(place.mnt.path()).is_ok()
    });
    fs::remove_file(place.source.path()).unwrap();
    fs::rename(&moved, place.source.path()).unwrap();
    eventually("it is back", || place.names("") == [".tiledbfs", "weather"]);
    look_around(&place);
    fs::remove_dir_all(place.source.path()).unwrap();
    every_walk_fails(&place, "deleted");
    assert_eq!(place.mounted.mountpoint(), Some(place.mnt.path()));
}

#[test]
fn a_source_that_is_unmounted_is_not_empty() {
    let mount_at = |path: &Path| {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "none"]).arg(path);
        assert!(command.status().unwrap().success(), "only root can mount");
    };
    let source = tempfile::tempdir().unwrap();
    mount_at(source.path());
    let place = Place::at(source, false, |_| ());
    look_around(&place);
    let unmounted = Command::new("umount").arg(place.source.path()).status();
    assert!(unmounted.unwrap().success());
    every_walk_fails(&place, "unmounted");
}

#[test]
fn a_directory_removed_during_a_walk() {
    let place = Place::with(|source| fs::create_dir_all(source.join("plain/deeper")).unwrap());
    look_around(&place);
    for (directory, removed) in [("plain/deeper", "plain/deeper"), ("weather", "weather")] {
        // Held open, like a walk with descriptors (find, rm) does.
        let open = File::open(place.shown(directory)).unwrap();
        fs::remove_dir_all(place.source(removed)).unwrap();
        let again = format!("/proc/self/fd/{}", open.as_raw_fd());
        let listed: Result<Vec<_>, _> = fs::read_dir(again).and_then(Iterator::collect);
        assert_eq!(errno(listed), libc::ESTALE, "{directory}");
        eventually("nothing under its name", || {
            fs::metadata(place.shown(directory)).is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT))
        });
    }
    assert_eq!(place.names(""), [".tiledbfs", "plain"]);
}
