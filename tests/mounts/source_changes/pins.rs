//! States of an array by their pins, on two mounts, while the array is consolidated and vacuumed.

use super::{FRAGMENTS, Place};
use crate::common::copying::copy;
use crate::common::{errno, eventually};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;
use tiledbfs::internals::fuse::{FileSystem, MountOptions, Mounted, mount};
use tiledbfs::internals::tree::{Tree, TreeOptions};

/// What takes the place of both fragments: a copy of the newer one.
const CONSOLIDATED: &str = "__1738627200000_1739491200000_00112233445566778899aabbccddeeff_22";

/// Another mount of a source.
fn second(source: &Path) -> (Mounted, TempDir) {
    let mnt = tempfile::tempdir().unwrap();
    let tree = Tree::open(source, &TreeOptions::default()).unwrap();
    let mounted = mount(FileSystem::new(tree), mnt.path(), &MountOptions::default()).unwrap();
    (mounted, mnt)
}

/// A column of the array now (`.`) or in a state.
fn rain(state: &str) -> String {
    format!("weather/{state}/data/columns/rain/data.bin")
}

#[test]
fn a_pin_is_one_state_on_every_mount_or_an_error() {
    let place = Place::new();
    let latest = || fs::read_link(place.shown("weather/at/latest")).unwrap();
    let pin = latest().into_os_string().into_string().unwrap();
    assert_eq!(pin, "2025-02-14T00:00:00.000Z~b5911a3af3834452");
    let pinned = format!("at/{pin}");
    let before = fs::read(place.shown(&rain("."))).unwrap();
    assert!(fs::read(place.shown(&rain(&pinned))).unwrap() == before);

    // Consolidated.
    let (fragments, commits) = (
        place.source("weather/__fragments"),
        place.source("weather/__commits"),
    );
    copy(&fragments.join(FRAGMENTS[1]), &fragments.join(CONSOLIDATED));
    let both = FRAGMENTS.map(|name| format!("__fragments/{name}\n")).concat();
    fs::write(commits.join(format!("{CONSOLIDATED}.vac")), both).unwrap();
    fs::write(commits.join(format!("{CONSOLIDATED}.wrt")), b"").unwrap();
    eventually("the link leads to another pin", || latest() != Path::new(&pin));
    let after = fs::read(place.shown(&rain("."))).unwrap();
    assert_ne!(after.len(), before.len());
    let (mounted, other) = second(place.source.path());
    assert!(fs::read(other.path().join(rain(&pinned))).unwrap() == before);
    assert!(fs::read(place.shown(&rain(&pinned))).unwrap() == before);
    assert_eq!(
        fs::read_link(other.path().join("weather/at/latest")).unwrap(),
        latest()
    );
    let listed = fs::read_to_string(other.path().join(format!("weather/{pinned}/fragments.json")));
    assert!(!listed.unwrap().contains(CONSOLIDATED));

    // Vacuumed.
    let open = File::open(place.shown(&rain(&pinned))).unwrap();
    for name in FRAGMENTS {
        fs::remove_file(commits.join(format!("{name}.wrt"))).unwrap();
        fs::remove_dir_all(fragments.join(name)).unwrap();
    }
    fs::remove_file(commits.join(format!("{CONSOLIDATED}.vac"))).unwrap();
    let (third, new) = second(place.source.path());
    assert_eq!(
        errno(fs::metadata(new.path().join("weather").join(&pinned))),
        libc::ESTALE
    );
    assert!(fs::read(new.path().join(rain("at/latest"))).unwrap() == after);
    // What a mount knows can be read as far as it is there.
    let mut bytes = vec![0; before.len()];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == before);
    for mnt in [place.mnt.path(), other.path()] {
        let measured = mnt.join(format!("weather/{pinned}/data/columns/measured/data.bin"));
        match fs::read(measured) {
            Ok(bytes) => assert_eq!(bytes.len(), 365 * 6 * 8),
            Err(error) => assert!([libc::EIO, libc::ESTALE].contains(&error.raw_os_error().unwrap())),
        }
    }
    drop((mounted, third));
}
