//! The program as a helper of mount(8). Runs the real `mount` and `umount` in a mount namespace with its own
//! /etc/fstab and /sbin.

use crate::common::place::Place;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Runs `script`. /etc/fstab is the file `fstab`; /sbin has the files of the FUSE package, and `links` to the
/// program.
fn by_fstab(place: &Place, lines: &str, links: &[&str], script: &str) -> Output {
    let folder = place.path("");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["my group", "mnt 2"] {
        fs::create_dir_all(place.path(name)).unwrap();
    }
    fs::write(place.path("my group/__tiledb_group.tdb"), b"").unwrap();
    for name in ["mnt", "mnt 2"] {
        std::os::unix::fs::chown(place.path(name), Some(65534), Some(65534)).unwrap();
    }
    // Copied by a child: a test process started meanwhile would inherit a descriptor of ours that is open for
    // writing, and the copy could not be executed.
    let copy = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_tiledbfs"))
        .arg(place.path("tiledbfs"))
        .status();
    assert!(copy.unwrap().success());
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    fs::write(place.path("fstab"), lines.replace("DIR", folder)).unwrap();
    let prepare = r#"
        set -e
        sbin=$(readlink -f /sbin)
        mkdir -p fuse
        cp -a "$sbin"/mount.fuse* fuse
        mount -t tmpfs none "$sbin"
        cp -a fuse/* "$sbin"
        for link in tiledbfs $LINKS; do ln -s "$PWD/tiledbfs" "$sbin/$link"; done
        mount --bind fstab /etc/fstab
        mount -t tmpfs none /dev
        mknod -m 666 /dev/null c 1 3
        mknod -m 666 /dev/fuse c 10 229
        nobody='setpriv --reuid=65534 --regid=65534 --clear-groups --'
        table() { grep -F "$PWD/mnt" /proc/self/mountinfo | grep -o 'mnt.* ro[^ ]* .*- fuse.tiledbfs [^ ]*' || echo nothing; }
        set +e
    "#;
    Command::new("unshare")
        .args(["-m", "sh", "-c", &format!("{prepare}\n{script}")])
        .env("LINKS", links.join(" "))
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The script's stdout and stderr.
fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

const HELPERS: [&str; 2] = ["mount.tiledbfs", "mount.fuse.tiledbfs"];

#[test]
fn all_of_fstab() {
    let place = Place::new();
    let lines = r"
        DIR/group DIR/mnt tiledbfs defaults,nofail,_netdev,x-systemd.automount,dev,suid,uid=1,gid=2,log_file=DIR/my\040log,log_level=info,threads=2 0 0
        DIR/my\040group DIR/mnt\0402 fuse.tiledbfs ro,auto,user,exec,cache_size=1M 0 0
        DIR/nothing DIR/tmp fuse.tiledbfs ro,nofail 0 0
        DIR/nothing DIR/tmp fuse.tiledbfs ro,noauto 0 0
    ";
    let script = r#"
        mount -a; echo all $?
        cat mnt/group.json "mnt 2/group.json" | grep -c members
        table
        mount -a 2>/dev/null; echo again $?
        umount mnt; echo unmounted $?
        umount 'mnt 2'; echo unmounted $?
        table
    "#;
    let (text, errors) = texts(&by_fstab(&place, lines, &HELPERS, script));
    for part in [
        "all 0\n2\n",
        "mnt ro,nosuid,nodev,relatime",
        "again 0\nunmounted 0\nunmounted 0\nnothing\n",
    ] {
        assert!(text.contains(part), "{part:?} not in {text}{errors}");
    }
    // mount(8) passes `rw` for `defaults`, which gives one warning. The other line is about the SOURCE that
    // may be missing.
    let warned: Vec<_> = errors.lines().filter(|line| !line.contains(": info: ")).collect();
    assert_eq!(warned.len(), 2, "{errors}");
    assert!(
        warned[0].contains("warning: mount option `rw` is ignored: tiledbfs"),
        "{errors}"
    );
    assert!(
        warned[1].contains("nothing: no such file or directory"),
        "{errors}"
    );
    let log = fs::read_to_string(place.path("my log")).unwrap();
    assert!(log.contains("group is mounted on "), "{log}");
}

/// With a link to the program, and without one, where mount.fuse runs the program.
#[test]
fn by_type() {
    for links in [&HELPERS[..], &[]] {
        let place = Place::new();
        let script = r#"
            for type in $TYPES; do
                mount -t $type group mnt -o ro,allow_other,nosuid,dev; echo mounted $?
                cat mnt/group.json | grep -c members
                $nobody stat -c %A mnt
                umount mnt
                mount -t $type "my group" "mnt 2" -o rw; echo mounted $?
                table
                umount "mnt 2"
            done
        "#;
        let types = if links.is_empty() {
            "fuse.tiledbfs"
        } else {
            "tiledbfs fuse.tiledbfs"
        };
        let script = format!("TYPES='{types}'\n{script}");
        let (text, errors) = texts(&by_fstab(&place, "", links, &script));
        let folder = place.path("").to_str().unwrap().trim_end_matches('/').to_owned();
        let table = format!("mnt\\0402 ro,nosuid,nodev,relatime - fuse.tiledbfs {folder}/my\\040group");
        let wanted = format!("mounted 0\n1\ndr-xr-xr-x\nmounted 0\n{table}\n");
        let count = types.split(' ').count();
        assert_eq!(text, wanted.repeat(count), "{errors}");
        assert_eq!(errors.lines().count(), count, "{errors}");
    }
}

#[test]
fn by_a_user() {
    for links in [&HELPERS[..], &[]] {
        let place = Place::new();
        let lines = "DIR/group DIR/mnt fuse.tiledbfs ro,noauto,user 0 0";
        let script = r#"
            $nobody mount "$PWD/mnt"; echo mounted $?
            $nobody cat mnt/group.json | grep -c members
            $nobody stat -c %u mnt/group.json
            table
            $nobody umount "$PWD/mnt"; echo unmounted $?
            table
        "#;
        let (text, errors) = texts(&by_fstab(&place, lines, links, script));
        for part in [
            "mounted 0\n1\n65534\n",
            "mnt ro,nosuid,nodev,noexec,relatime",
            "unmounted 0\nnothing\n",
        ] {
            assert!(text.contains(part), "{part:?} not in {text}{errors}");
        }
        assert!(errors.is_empty(), "{errors}");
    }
}

#[test]
fn once_more() {
    let place = Place::new();
    let lines = "DIR/group DIR/mnt tiledbfs ro,noauto,cache_size=1M 0 0";
    let script = r#"
        mount mnt
        mount -o remount,ro mnt; echo again $?
        table
        mount -o remount,ro,noexec,noatime "$PWD/mnt"; echo again $?
        table
        mount -o remount,ro -t tiledbfs group group; echo again $?
        mount mnt; echo twice $?
        umount mnt
    "#;
    let (text, errors) = texts(&by_fstab(&place, lines, &HELPERS, script));
    let table = |flags: &str| {
        let source = place.path("group");
        format!(
            "mnt ro,nosuid,nodev,{flags} - fuse.tiledbfs {}\n",
            source.display()
        )
    };
    let wanted = format!(
        "again 0\n{}again 0\n{}again 32\ntwice 32\n",
        table("relatime"),
        table("noexec,noatime")
    );
    assert_eq!(text, wanted, "{errors}");
    assert!(errors.contains("group is not a mount of tiledbfs"), "{errors}");
    assert!(errors.contains("is already a mount of tiledbfs"), "{errors}");
}

#[test]
fn flags_of_the_helper() {
    let place = Place::new();
    let script = r#"
        mount.tiledbfs group mnt -f; echo fake $?
        mount.tiledbfs -f missing mnt -o ro; echo fake $?
        table
        mount.tiledbfs group mnt -o ro,nonsense; echo unknown $?
        mount.tiledbfs group; echo few $?
        mount.tiledbfs group mnt -n -s -o ro,nonsense; echo sloppy $?
        table
        umount mnt
        mount.fuse.tiledbfs group mnt -v -t fuse.tiledbfs -o ro; echo verbose $?
        tiledbfs unmount mnt
        tiledbfs group mnt -o ro,dev; echo first $?
        table
        umount mnt
        tiledbfs mount group mnt -o ro,nonsense; echo command $?
        tiledbfs nonsense mnt 2>/dev/null; echo command $?
    "#;
    let script = format!("PATH=$sbin:$PATH\n{script}");
    let (text, errors) = texts(&by_fstab(&place, "", &HELPERS, &script));
    let table = format!(
        "mnt ro,nosuid,nodev,relatime - fuse.tiledbfs {}\n",
        place.path("group").display()
    );
    let wanted = format!(
        "fake 0\nfake 32\nnothing\nunknown 1\nfew 1\nsloppy 0\n{table}verbose 0\nfirst 0\n{table}command \
         2\ncommand 2\n"
    );
    assert_eq!(text, wanted, "{errors}");
    for part in [
        "unknown mount option `nonsense` (see",
        "unknown mount option `nonsense` is ignored",
        "info: ",
    ] {
        assert!(errors.contains(part), "{part:?} not in {errors}");
    }
}

/// With what scripts/install.sh puts in place, a missing SOURCE of a line with `nofail` does not make
/// `mount -a` fail, and `-s` is understood, whatever the type.
#[test]
fn nofail_with_what_is_installed() {
    let place = Place::new();
    let prefix = place.path("prefix");
    let installed = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/install.sh"))
        .arg(&prefix)
        .env("TILEDBFS_BIN", env!("CARGO_BIN_EXE_tiledbfs"))
        .output()
        .unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let lines = r"
        DIR/nothing DIR/tmp fuse.tiledbfs ro,nofail 0 0
        DIR/nothing DIR/tmp tiledbfs defaults,nofail,_netdev 0 0
        DIR/group DIR/mnt fuse.tiledbfs ro,nofail,noauto 0 0
    ";
    let script = r#"
        cp -a prefix/sbin/* "$sbin"
        mount -a; echo all $?
        mount -a -T fstab; echo private $?
        table
        mount mnt; echo there $?
        table
        umount mnt
        mount -s -t fuse.tiledbfs group mnt -o ro,nonsense; echo sloppy $?
        umount mnt
        mount -t fuse.tiledbfs nothing mnt -o ro; echo missing $?
    "#;
    let (text, errors) = texts(&by_fstab(&place, lines, &[], script));
    let source = place.path("group");
    let table = format!(
        "mnt ro,nosuid,nodev,relatime - fuse.tiledbfs {}",
        source.display()
    );
    let wanted = format!("all 0\nprivate 0\nnothing\nthere 0\n{table}\nsloppy 0\nmissing 32\n");
    assert_eq!(text, wanted, "{errors}");
    let warnings = errors
        .lines()
        .filter(|line| line.contains("nothing: no such file"));
    assert_eq!(warnings.count(), 5, "{errors}");
}
