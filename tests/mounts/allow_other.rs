//! `-o allow_other` by users other than root.
//!
//! Needs root, to become any user. Runs in a mount namespace with its own /etc/fuse.conf.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A user's folder with an empty group (`group`), a mount point (`mnt`), the program, and a `fuse.conf`.
struct Place(TempDir);

const USER: u32 = 65534;

impl Place {
    fn new(configuration: &str) -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        let chmod = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        chmod(place.0.path());
        for name in ["mnt", "group"] {
            fs::create_dir(place.path(name)).unwrap();
            chmod(&place.path(name));
            chown(place.path(name), Some(USER), Some(USER)).unwrap();
        }
        fs::write(place.path("group/__tiledb_group.tdb"), b"").unwrap();
        fs::write(place.path("fuse.conf"), configuration).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_tiledbfs"), place.path("tiledbfs")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    /// Mounts as the user in a new namespace, then runs `script` as root, and unmounts.
    fn mount(&self, options: &str, script: &str) -> Output {
        let script = format!(
            "mount --bind fuse.conf /etc/fuse.conf || exit 99
             {{ [ -e fuse ] || mknod fuse c 10 229; }} && chmod 666 fuse && mount --bind fuse /dev/fuse || exit 98
             as() {{ setpriv --reuid=$1 --regid=$1 --clear-groups \"${{@:2}}\"; }}
             trap 'umount -l mnt 2>/dev/null' EXIT
             as {USER} ./tiledbfs mount group mnt {options} || exit $?
             {script}
             as {USER} ./tiledbfs unmount mnt"
        );
        Command::new("unshare")
            .args(["-m", "bash", "-c", &script])
            .current_dir(self.path(""))
            .output()
            .unwrap()
    }
}

fn message(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn without_the_line_in_fuse_conf_the_message_tells_of_it() {
    let place = Place::new("# user_allow_other\n");
    for option in ["allow_other", "allow_root"] {
        let message = message(&place.mount(&format!("-o {option}"), ""));
        assert!(
            message.contains("need the line `user_allow_other` in /etc/fuse.conf"),
            "{message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn without_the_option_other_users_stay_out() {
    let place = Place::new("");
    let output = place.mount(
        "",
        "as 1 cat mnt/group.json && exit 7; cat mnt/group.json && exit 8",
    );
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn with_the_line_others_read_what_they_could_read() {
    let place = Place::new("user_allow_other\n");
    let script = "as 1 cat mnt/group.json || exit 7
         cat mnt/group.json || exit 8
         chmod 700 group; sleep 0.9
         as 1 cat mnt/group.json && exit 9
         as 65534 cat mnt/group.json || exit 10";
    let output = place.mount("-o allow_other", script);
    assert!(output.status.success(), "{output:?}");
    let script = "as 1 cat mnt/group.json && exit 7; cat mnt/group.json || exit 8";
    let output = place.mount("-o allow_root", script);
    assert!(output.status.success(), "{output:?}");
}
