//! The program as a daemon. The source is an empty group.

mod automount;
mod fstab;
mod logs;
mod service;

use crate::common::eventually;
use crate::common::place::Place;
use crate::common::program::{program, signal};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tiledbfs::internals::storage::mountinfo;

impl Place {
    fn succeeds(&self, arguments: &[&str]) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }

    /// The message of a command that must fail.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            message.starts_with("tiledbfs: ") && message.lines().count() == 1,
            "{message}"
        );
        message
    }

    fn is_mounted(&self) -> bool {
        self.mounts() > 0
    }

    fn works(&self) {
        assert!(
            fs::read_to_string(self.path("mnt/group.json"))
                .unwrap()
                .contains("members")
        );
    }

    /// Mounts by absolute path, to find the process; returns its process id.
    fn mount(&self, more: &[&str]) -> i32 {
        let mountpoint = self.path("mnt");
        self.succeeds(&[&["mount", "group", mountpoint.to_str().unwrap()], more].concat());
        // Immediately, because the command returns only when the mount answers.
        self.works();
        let daemons = self.daemons();
        assert_eq!(daemons.len(), 1);
        daemons[0]
    }
}

/// Whether a condition becomes true within this many seconds.
fn within(seconds: u64, condition: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn mount_and_unmount() {
    let place = Place::new();
    let daemon = place.mount(&[]);
    let entry = mountinfo::mounted_at(&place.path("mnt")).unwrap().unwrap();
    assert_eq!(entry.source, place.path("group").as_os_str());
    assert_eq!(entry.fs_type, "fuse.tiledbfs");
    // It has no ties to the place where it was started.
    let proc = PathBuf::from(format!("/proc/{daemon}"));
    assert_eq!(fs::read_link(proc.join("cwd")).unwrap(), Path::new("/"));
    for descriptor in ["0", "1", "2"] {
        let file = fs::read_link(proc.join("fd").join(descriptor)).unwrap();
        assert_eq!(file, Path::new("/dev/null"));
    }
    let stat = fs::read_to_string(proc.join("stat")).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap();
    assert_eq!(session, daemon.to_string(), "it leads its own session");
    let limits = fs::read_to_string(proc.join("limits")).unwrap();
    let files: Vec<_> = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(files[3], files[4]);

    let again = place.fails(&["mount", "group", "mnt"]);
    assert!(again.contains("mnt is already a mount of tiledbfs"), "{again}");
    place.works();
    place.succeeds(&["unmount", "mnt"]);
    assert!(!place.is_mounted());
    eventually("the daemon ends", || place.daemons().is_empty());
    assert!(place.fails(&["unmount", "mnt"]).contains("nothing is mounted"));
}

#[test]
fn a_source_as_a_uri() {
    let place = Place::new();
    let source = place.path("group");
    place.succeeds(&["mount", &format!("file://{}", source.display()), "mnt"]);
    place.works();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        table.contains(&format!(
            " - fuse.tiledbfs {} ",
            source.canonicalize().unwrap().display()
        )),
        "{table}"
    );
    place.succeeds(&["unmount", "mnt"]);
}

#[test]
fn many_times_in_a_row() {
    let place = Place::new();
    for _ in 0..10 {
        place.succeeds(&["mount", "group", "mnt"]);
        place.works();
        place.succeeds(&["umount", "mnt"]);
    }
    assert!(!place.is_mounted());
}

#[test]
fn umount_by_the_system_ends_the_daemon() {
    let place = Place::new();
    place.mount(&[]);
    assert!(
        Command::new("umount")
            .arg(place.path("mnt"))
            .status()
            .unwrap()
            .success()
    );
    eventually("the daemon ends", || place.daemons().is_empty());
}

#[test]
fn a_mount_in_use() {
    let place = Place::new();
    place.mount(&[]);
    let mut open = File::open(place.path("mnt/group.json")).unwrap();
    let message = place.fails(&["unmount", "mnt"]);
    assert!(
        message.contains("mnt is in use") && message.contains("--lazy"),
        "{message}"
    );
    place.works();
    place.succeeds(&["unmount", "--lazy", "mnt"]);
    assert!(!place.is_mounted());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert!(text.contains("members"));
    drop(open);
    eventually("the daemon ends", || place.daemons().is_empty());
}

#[test]
fn signals_in_the_background() {
    for (number, hold) in [
        (libc::SIGTERM, false),
        (libc::SIGINT, false),
        (libc::SIGQUIT, false),
        (libc::SIGTERM, true),
    ] {
        let place = Place::new();
        let daemon = place.mount(&[]);
        let open = hold.then(|| File::open(place.path("mnt/group.json")).unwrap());
        signal(daemon, number);
        eventually("it unmounts", || !place.is_mounted());
        eventually("it ends", || place.daemons().is_empty());
        drop(open);
    }
}

/// A directory above the mount point may be renamed while it is mounted.
#[test]
fn a_signal_unmounts_it_wherever_it_is_by_now() {
    let place = Place::new();
    let (above, beside) = (place.path("above"), place.path("beside"));
    fs::create_dir_all(above.join("mnt")).unwrap();
    let mut child = place
        .command(&["mount", "-f", "group", "above/mnt"])
        .spawn()
        .unwrap();
    eventually("it mounts", || above.join("mnt/group.json").exists());
    fs::rename(&above, &beside).unwrap();
    signal(child.id() as i32, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mounts = mountinfo::mounts().unwrap();
    let left = mounts.iter().any(|mount| mount.mount_point.starts_with(&beside));
    let _ = nix::mount::umount2(&beside.join("mnt"), nix::mount::MntFlags::MNT_DETACH);
    assert!(!left);
}

fn start_in_foreground(place: &Place, more: &[&str]) -> Child {
    let child = place
        .command(&[&["mount", "-f", "group", "mnt"], more].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it mounts", || place.is_mounted());
    place.works();
    child
}

#[test]
fn signals_in_the_foreground() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP] {
        let place = Place::new();
        let child = start_in_foreground(&place, &[]);
        signal(child.id() as i32, number);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!place.is_mounted());
    }
}

#[test]
fn with_nohup_it_outlives_the_terminal() {
    let place = Place::new();
    let mut command = Command::new("nohup");
    let own = place.command(&["mount", "-f", "group", "mnt"]);
    let child = command
        .arg(own.get_program())
        .args(own.get_args())
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it mounts", || place.is_mounted());
    signal(child.id() as i32, libc::SIGHUP);
    sleep(Duration::from_millis(100));
    place.works();
    signal(child.id() as i32, libc::SIGTERM);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn unmounted_in_the_foreground() {
    let place = Place::new();
    let child = start_in_foreground(&place, &["--threads", "1", "--cache-size", "1M"]);
    place.succeeds(&["unmount", "mnt"]);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn a_killed_daemon() {
    let place = Place::new();
    let daemon = place.mount(&[]);
    signal(daemon, libc::SIGKILL);
    let dead =
        || fs::metadata(place.path("mnt")).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
    eventually("the mount is dead", dead);
    let mend = format!("run `tiledbfs unmount {}`", place.path("mnt").display());
    for mountpoint in ["mnt", "mnt/group.json"] {
        let message = place.fails(&["mount", "group", mountpoint]);
        for part in ["Transport endpoint is not connected", &mend] {
            assert!(message.contains(part), "{message}");
        }
    }
    assert!(place.is_mounted(), "mounting only explains");
    let message = place.fails(&["ls", "mnt"]);
    assert!(
        message.contains("Transport endpoint is not connected"),
        "{message}"
    );
    place.succeeds(&["unmount", "mnt"]);
    assert!(!place.is_mounted());
    place.mount(&[]);
}

#[test]
fn auto_unmount() {
    let place = Place::new();
    let daemon = place.mount(&["-o", "auto_unmount"]);
    place.succeeds(&["unmount", "mnt"]);
    eventually("the daemon ends", || place.daemons().is_empty());
    // fusermount3 gives up if other mounts, such as those of other tests, come and go while it counts them.
    let unmounted = (0..5).any(|_| {
        let killed = place.mount(&["-o", "auto_unmount"]);
        assert_ne!(daemon, killed);
        signal(killed, libc::SIGKILL);
        let unmounted = within(2, || !place.is_mounted());
        if !unmounted {
            place.succeeds(&["unmount", "mnt"]);
        }
        unmounted
    });
    assert!(unmounted, "fusermount3 unmounts");
}

#[test]
fn a_user_other_than_root() {
    let place = Place::new();
    // Copied by a child: a test process started meanwhile would inherit a descriptor of ours that is open for
    // writing, and the copy could not be executed.
    let copy = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_tiledbfs"))
        .arg(place.path("tiledbfs"))
        .status();
    assert!(copy.unwrap().success());
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(place.path("mnt"), Some(65534), Some(65534)).unwrap();
    // In a new mount namespace, with a device like on a desktop.
    let script = r#"
        set -e
        mount -t tmpfs none /dev
        mknod -m 666 /dev/null c 1 3
        mknod -m 666 /dev/fuse c 10 229
        nobody='setpriv --reuid=65534 --regid=65534 --clear-groups --'
        $nobody ./tiledbfs mount group mnt
        $nobody cat mnt/group.json
        echo lines $(grep -c 'mnt ro,nosuid,nodev.* fuse.tiledbfs .*user_id=65534.*max_read=1048576' /proc/self/mountinfo)
        stat -c %u mnt/group.json 2>&1 || echo root is kept out
        $nobody stat -c 'owner %u' mnt/group.json
        $nobody ./tiledbfs unmount mnt
        grep -c user_id=65534 /proc/self/mountinfo || echo gone
    "#;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    for part in [
        "members",
        "lines 1\n",
        "root is kept out",
        "owner 65534",
        "0\ngone",
    ] {
        assert!(text.contains(part), "{part:?} not in {output:?}");
    }
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn ls_and_cat_need_no_mount() {
    let place = Place::new();
    let text = |arguments: &[&str]| {
        let output = place.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let names = text(&["ls", "group"]);
    assert!(names.lines().any(|line| line == "group.json"), "{names}");
    let long = text(&["ls", "-l", "group", "group.json"]);
    let json = text(&["cat", "group", "group.json"]);
    assert!(
        long.starts_with("-r--r--r-- ") && long.contains(&format!(" {} ", json.len())),
        "{long}"
    );
    let all = text(&["ls", "-aR", "group"]);
    assert!(
        all.starts_with(".:\n") && all.contains("\n\n.tiledbfs:\n"),
        "{all}"
    );
    assert!(
        place
            .fails(&["cat", "group", "nothing"])
            .contains("nothing: no such file")
    );
    assert!(
        place
            .fails(&["cat", "group", ".tiledbfs"])
            .contains("is a directory")
    );
    assert!(
        place
            .fails(&["ls", "group", "nothing"])
            .contains("nothing: no such file")
    );
    // A closed pipe is no error.
    let script = "\"$0\" cat group group.json group.json | true; \"$0\" ls -lR group | head -c 1 >/dev/null";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tiledbfs")])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_key_for_a_path_without_an_array_is_told_in_the_log() {
    let place = Place::new();
    fs::write(place.path("key"), [b'k'; 32]).unwrap();
    fs::create_dir(place.path("group/bare")).unwrap();
    let keys = ["--key-file", "bare=key", "--key-file", "missing=key"];
    let output = place.run(&[&["mount", "group", "mnt", "--log-file", "log"], &keys[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let told = |path: &str| {
        let log = fs::read_to_string(place.path("log")).unwrap_or_default();
        log.contains(&format!("a key is given for {path:?}"))
    };
    eventually("both paths are told", || told("bare") && told("missing"));
}

#[test]
fn few_descriptors_are_enough() {
    let place = Place::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for copy in 0..40 {
        for (name, array) in [("a", "sample/weather"), ("sparse", "versions/v22/sparse")] {
            crate::common::copying::copy(&data.join(array), &place.path(&format!("group/{name}{copy}")));
        }
    }
    let limited = "ulimit -n 64 && exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limited])
        .arg(program().get_program())
        .args(["mount", "--threads", "16", "group", "mnt"])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // One after the other, then several at once.
    let mut files = Vec::new();
    for copy in 0..40 {
        // Merged: the merge stays, and with it what it holds open.
        for column in fs::read_dir(place.path(&format!("mnt/sparse{copy}/data/columns"))).unwrap() {
            files.push(column.unwrap().path().join("data.bin"));
        }
        for fragment in fs::read_dir(place.path(&format!("mnt/a{copy}/fragments"))).unwrap() {
            for column in fs::read_dir(fragment.unwrap().path().join("columns")).unwrap() {
                files.push(column.unwrap().path().join("data.bin"));
            }
        }
    }
    assert!(files.len() >= 400, "{}", files.len());
    let read_all = |files: &[PathBuf]| {
        for file in files {
            assert!(!fs::read(file).unwrap().is_empty());
        }
    };
    read_all(&files);
    std::thread::scope(|scope| {
        for part in files.chunks(files.len() / 8) {
            scope.spawn(move || read_all(part));
        }
    });
    let stats = fs::read_to_string(place.path("mnt/.tiledbfs/stats.json")).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert!(stats["kept_files"].as_u64().unwrap() <= 16);
}

#[test]
fn the_cache_takes_at_most_a_quarter_of_the_limits_of_memory() {
    for limit in ["-v", "-d"] {
        let place = Place::new();
        let output = Command::new("sh")
            .args([
                "-c",
                &format!("ulimit {limit} 1000000 && exec \"$0\" mount group mnt"),
            ])
            .arg(program().get_program())
            .current_dir(place.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let stats = fs::read_to_string(place.path("mnt/.tiledbfs/stats.json")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["cache_capacity"], 1_000_000 * 1024 / 4, "ulimit {limit}");
    }
}

#[test]
fn the_size_is_what_is_used_of_the_file_system_of_the_source() {
    let place = Place::new();
    let source = place.path("disk");
    fs::create_dir(&source).unwrap();
    // A file system of its own, so that nothing else changes what is free.
    let script = r#"
        mount -t tmpfs -o size=12M,nr_inodes=50 none disk
        touch disk/__tiledb_group.tdb
        dd if=/dev/zero of=disk/other bs=1M count=3 status=none
        "$0" mount disk mnt
        for of in disk mnt; do
            df -B1 --output=size,used,avail,pcent $of | tail -1
            df --output=itotal,iused,iavail $of | tail -1
        done
        df | grep -c "$PWD/mnt$"
        umount -l disk
        rm -r disk
        df mnt 2>&1 | grep -c 'error'
        "$0" unmount mnt
    "#;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_tiledbfs")])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{output:?}");
    let numbers = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(numbers(lines[0])[..2], ["12582912", "3145728"], "{text}");
    assert_eq!(numbers(lines[2]), ["3145728", "3145728", "0", "100%"], "{text}");
    assert_eq!(numbers(lines[1])[1], numbers(lines[3])[0], "{text}");
    assert_eq!(&lines[4..], ["1", "1"], "{output:?}");
}
