//! The destination and number of log messages, and the effect of signals on them.

use crate::common::copying::copy;
use crate::common::eventually;
use crate::common::place::Place;
use crate::common::program::signal;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Adds a member with an unreadable schema to the mounted group, and reads it. Each has a new name, because
/// one cause is logged once.
fn provoke(place: &Place) {
    let name = format!("broken{}", fs::read_dir(place.path("group")).unwrap().count());
    let schema = place.path("group").join(&name).join("__schema");
    fs::create_dir_all(&schema).unwrap();
    fs::write(schema.join("__1_1_00112233445566778899aabbccddeeff"), b"nonsense").unwrap();
    let file = place.path("mnt").join(name).join("schema.json");
    eventually("it fails", || {
        fs::read(&file).is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
    });
}

#[test]
fn in_the_background_the_system_logs() {
    let place = Place::new();
    let system = UnixDatagram::bind(place.path("log.socket")).unwrap();
    system.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // In a mount namespace with a log; `broken` is read in the mount.
    let script = r#"
        set -e
        mount -t tmpfs none /dev
        mknod -m 666 /dev/null c 1 3
        mknod -m 666 /dev/fuse c 10 229
        ln -s "$PWD/log.socket" /dev/log
        "$0" mount group mnt -o rw
        mkdir -p group/broken/__schema
        echo nonsense > group/broken/__schema/__1_1_00112233445566778899aabbccddeeff
        sleep 1
        cat mnt/broken/schema.json 2>&1 && exit 1
        "$0" unmount mnt
    "#;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_tiledbfs")])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // The waiting caller gets messages until the mount is there, and no more.
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.lines().count() == 1 && errors.starts_with("tiledbfs: warning: "),
        "{errors}"
    );
    let mut bytes = [0; 4096];
    let n = system.recv(&mut bytes).unwrap();
    let line = std::str::from_utf8(&bytes[..n]).unwrap();
    // Facility daemon (3), severity error (3).
    let mountpoint = place.path("mnt");
    let place_of_it = format!("]: {}: broken/schema.json: ", mountpoint.display());
    assert!(
        line.starts_with("<27>") && line.contains(" tiledbfs[") && line.contains(&place_of_it),
        "{line}"
    );
}

#[test]
fn why_it_ends_is_in_the_log() {
    let place = Place::new();
    let daemon = place.mount(&["--log-file", place.path("log").to_str().unwrap()]);
    let script = "mount -t tmpfs none mnt && kill -TERM $0
        while grep -q . /proc/$0/cmdline 2>/dev/null; do sleep 0.05; done
        umount mnt";
    let ended = Command::new("timeout")
        .args(["20", "sh", "-c", script, &daemon.to_string()])
        .current_dir(place.path(""))
        .status()
        .unwrap();
    assert!(ended.success());
    assert!(place.run(&["unmount", "mnt"]).status.success());
    let log = fs::read_to_string(place.path("log")).unwrap();
    let cause = format!("cannot unmount {}: something else", place.path("mnt").display());
    assert!(log.contains(&cause), "{log}");
}

#[test]
fn a_log_file_is_opened_anew() {
    let place = Place::new();
    fs::create_dir(place.path("logs")).unwrap();
    let daemon = place.mount(&["--log-file", "logs/log"]);
    let (file, old) = (place.path("logs/log"), place.path("logs/log.1"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
    fs::rename(&file, &old).unwrap();
    provoke(&place);
    assert!(fs::read_to_string(&old).unwrap().contains("/schema.json"));
    signal(daemon, libc::SIGHUP);
    eventually("it is opened anew", || {
        provoke(&place);
        fs::read_to_string(&file).is_ok_and(|text| text.contains("/schema.json"))
    });
    // If that fails, logging continues in the old file.
    let length = || fs::metadata(&file).unwrap().len();
    fs::rename(place.path("logs"), place.path("moved")).unwrap();
    signal(daemon, libc::SIGHUP);
    let moved = place.path("moved/log");
    eventually("it says so", || {
        fs::read_to_string(&moved).unwrap().contains("cannot reopen it")
    });
    fs::rename(place.path("moved"), place.path("logs")).unwrap();
    let before = length();
    eventually("it is written to", || {
        provoke(&place);
        length() > before
    });
    place.succeeds(&["unmount", "mnt"]);
}

/// The levels logged at the start with `flags` and RUST_LOG.
fn levels(flags: &[&str], rust_log: Option<&str>) -> Vec<String> {
    let place = Place::new();
    let mut command =
        place.command(&[&["mount", "group", "mnt", "--log-file", "log", "-o", "rw"], flags].concat());
    match rust_log {
        Some(value) => command.env("RUST_LOG", value),
        None => command.env_remove("RUST_LOG"),
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    place.succeeds(&["unmount", "mnt"]);
    let log = fs::read_to_string(place.path("log")).unwrap();
    // A line begins with `[TIME LEVEL MODULE]` in the file, and with `tiledbfs: LEVEL: ` on stderr.
    let errors = String::from_utf8(output.stderr).unwrap();
    let mut levels = Vec::new();
    for (level, name, text) in [("WARN", "warning", "`rw`"), ("INFO", "info", "is mounted on")] {
        let in_file = log
            .lines()
            .any(|line| line.contains(level) && line.contains(text));
        let shown = errors
            .lines()
            .any(|line| line.starts_with(&format!("tiledbfs: {name}: ")) && line.contains(text));
        assert_eq!(in_file, shown, "{log}{errors}");
        if shown {
            levels.push(name.to_owned());
        }
    }
    levels
}

#[test]
fn how_much_is_logged() {
    let rust_log = Some("tiledbfs=info");
    for (flags, rust_log, wanted) in [
        (&[][..], None, &["warning"][..]),
        (&["-q"], None, &[]),
        (&["-v"], None, &["warning", "info"]),
        (&["-vv"], None, &["warning", "info"]),
        (&["--log-level", "info"], None, &["warning", "info"]),
        (&["--log-level", "off"], None, &[]),
        (&["-o", "log_level=info"], None, &["warning", "info"]),
        (&["-o", "verbose"], None, &["warning", "info"]),
        (&["-o", "log_level=info", "--log-level=error"], None, &[]),
        (&[], rust_log, &["warning", "info"]),
        (&["-q"], Some("info"), &[]),
        (&["-q"], rust_log, &["warning", "info"]),
    ] {
        assert_eq!(levels(flags, rust_log), wanted, "{flags:?} {rust_log:?}");
    }
}

/// If stderr is the journal, lines begin with its level prefix.
#[test]
fn the_journal_learns_the_level() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    for (is_journal, begin) in [(true, "<4>tiledbfs: warning: "), (false, "tiledbfs: warning: ")] {
        let stderr = fs::File::create(place.path("stderr")).unwrap();
        let metadata = stderr.metadata().unwrap();
        let inode = metadata.ino() + u64::from(!is_journal);
        let status = place
            .command(&["mount", "group", "mnt", "-o", "rw"])
            .env("JOURNAL_STREAM", format!("{}:{inode}", metadata.dev()))
            .stderr(stderr)
            .status();
        assert!(status.unwrap().success());
        place.succeeds(&["unmount", "mnt"]);
        let text = fs::read_to_string(place.path("stderr")).unwrap();
        assert!(text.starts_with(begin), "{text}");
    }
}

#[test]
fn signals_without_a_meaning() {
    let place = Place::new();
    let daemon = place.mount(&[]);
    let faults = [
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGSYS,
    ];
    let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let ends = [libc::SIGKILL, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT];
    // The C library uses 32 and 33.
    let others = (1..=31).chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    for number in others.filter(|number| ![&faults[..], &stops, &ends].concat().contains(number)) {
        signal(daemon, number);
        sleep(Duration::from_millis(2));
        assert_eq!(place.daemons(), [daemon], "signal {number}");
    }
    place.works();
    signal(daemon, libc::SIGQUIT);
    eventually("it unmounts", || !place.is_mounted());
}

#[test]
fn names_in_the_logs_of_a_mount_are_escaped() {
    let place = Place::new();
    let name = "a\u{1b}[31m\ntiledbfs: error: x";
    copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample/lightning"),
        &place.path(name),
    );
    let fragments = fs::read_dir(place.path(name).join("__fragments")).unwrap();
    let fragment: PathBuf = fragments.map(|entry| entry.unwrap().path()).min().unwrap();
    fs::write(fragment.join("a0.tdb"), b"").unwrap();
    for log_file in [false, true] {
        let mut arguments = vec!["mount", "-f", "-vv", name, "mnt"];
        if log_file {
            arguments.extend(["--log-file", "log"]);
        }
        let daemon = place.command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        eventually("it mounts", || place.mounts() > 0);
        let fragment = Path::new("fragments").join(fragment.file_name().unwrap());
        let damaged = place.path("mnt").join(fragment).join("columns");
        let damaged = fs::read_dir(damaged).unwrap().map(|entry| entry.unwrap().path());
        let failed = damaged.filter(|path| fs::read(path.join("data.bin")).is_err());
        assert_eq!(failed.count(), 1);
        assert!(place.run(&["unmount", "mnt"]).status.success());
        let output = daemon.wait_with_output().unwrap();
        let mut said = String::from_utf8(output.stderr).unwrap();
        if log_file {
            said += &fs::read_to_string(place.path("log")).unwrap();
        }
        assert!(!said.contains('\u{1b}') && !said.lines().any(|line| line == "tiledbfs: error: x"));
        assert!(said.contains("a\\u{1b}[31m\\ntiledbfs: error: x"), "{said}");
        assert!(said.contains("a0.tdb"), "{said}");
    }
}
