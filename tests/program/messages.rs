//! Messages and exit codes of the program that need no array.

use crate::common::bytes::generic_tile;
use crate::common::place::Place;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

impl Place {
    /// Runs a command that must fail with `code` and one line on stderr that contains all `parts`.
    fn fails_with(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        let output = self.run(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.starts_with("tiledbfs: "), "{arguments:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        for part in parts {
            assert!(message.contains(part), "{arguments:?}: {part:?} not in {message}");
        }
        assert!(output.stdout.is_empty());
        self.nothing_mounted();
    }

    fn nothing_mounted(&self) {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!table.contains(self.path("").to_str().unwrap()), "{table}");
    }
}

#[cfg(not(feature = "remote"))]
#[test]
fn object_stores_are_refused_where_they_are_not_built_in() {
    let place = Place::new();
    for (arguments, code) in [
        (&["mount", "s3://bucket/array", "mnt"][..], 1),
        (&["ls", "s3://bucket/array"], 1),
        (&["cat", "s3://bucket/array/schema.json"], 1),
        (&["cp", "s3://bucket/array/schema.json", "mnt"], 1),
        (&["info", "s3://bucket/array"], 1),
        (&["check", "s3://bucket/array"], 2),
    ] {
        let parts = ["s3://bucket/array", "built without support for object stores"];
        place.fails_with(arguments, code, &parts);
    }
}

#[test]
fn what_cannot_be_mounted() {
    let place = Place::new();
    fs::create_dir(place.path("plain")).unwrap();
    fs::write(place.path("plain/file"), b"text").unwrap();
    for mode in [&["mount"][..], &["mount", "-f"]] {
        let run = |source: &str, mountpoint: &str, parts: &[&str]| {
            place.fails_with(&[mode, &[source, mountpoint]].concat(), 1, parts);
        };
        run("missing", "mnt", &["missing: no such file or directory"]);
        run("plain/file", "mnt", &["/plain/file: not a TileDB array"]);
        run("group", "missing", &["mount point missing: no such directory"]);
        run(
            "group",
            "plain/file",
            &["mount point plain/file is not a directory"],
        );
        run(
            "group",
            "plain/file/x",
            &["mount point plain/file/x is not a directory"],
        );
        run("group", "plain", &["mount point plain is not empty"]);
        run("group", "/proc", &["/proc is already a mount point", "type proc"]);
    }
    place.fails_with(&["ls", "missing"], 1, &["missing: no such file or directory"]);
    place.fails_with(&["check", "plain"], 2, &["/plain: not TileDB"]);
}

/// Mounts `source`; returns the messages and the names in the mount.
fn mount_and_list(place: &Place, source: &str) -> (String, Vec<String>) {
    let output = place.run(&["mount", source, "mnt"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let shown = fs::read_dir(place.path("mnt")).unwrap();
    let mut shown: Vec<_> = shown
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    shown.sort();
    assert!(place.run(&["unmount", "mnt"]).status.success());
    place.nothing_mounted();
    (said, shown)
}

#[test]
fn a_source_without_arrays_is_mounted_with_a_warning() {
    let place = Place::new();
    fs::create_dir_all(place.path("landing/deep/deeper")).unwrap();
    fs::write(place.path("landing/file"), b"text").unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    for (source, shown) in [("empty", &[".tiledbfs"][..]), ("landing", &[".tiledbfs", "deep"])] {
        let (said, names) = mount_and_list(&place, source);
        let warning = format!(
            "tiledbfs: warning: {}: there is no array",
            place.path(source).display()
        );
        assert!(said.starts_with(&warning) && said.lines().count() == 1, "{said}");
        assert_eq!(names, shown);
        let listed = place.run(&["ls", source]);
        assert!(listed.status.success() && String::from_utf8_lossy(&listed.stderr).starts_with(&warning));
    }
    // An array deep inside is enough to avoid the warning.
    fs::write(place.path("landing/deep/deeper/__tiledb_group.tdb"), b"").unwrap();
    assert_eq!(mount_and_list(&place, "landing").0, "");
}

#[test]
fn looking_for_arrays_has_an_end() {
    let place = Place::new();
    // Forty directories, each with a link to each: endless paths.
    for directory in 0..40 {
        let directory = place.path(&format!("circles/d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for link in 0..40 {
            symlink(format!("../d{link}"), directory.join(format!("l{link}"))).unwrap();
        }
    }
    fs::create_dir_all(place.path(&format!("deep{}", "/d".repeat(1000)))).unwrap();
    for source in ["circles", "deep", "/usr"] {
        mount_and_list(&place, source);
        place.run(&["ls", source]);
    }
    place.fails_with(&["check", "circles"], 2, &["/circles: not TileDB"]);
}

#[test]
fn a_format_version_that_is_too_new() {
    let place = Place::new();
    // A schema of which only the version is read.
    let tile = generic_tile(24, &[24, 0, 0, 0, 1, 2, 3, 4]);
    let schemas = place.path("new/__schema");
    fs::create_dir_all(&schemas).unwrap();
    fs::write(schemas.join("__1_1_00112233445566778899aabbccddeeff"), tile).unwrap();
    for arguments in [
        &["mount", "new", "mnt"][..],
        &["mount", "-f", "new", "mnt"],
        &["ls", "new"],
    ] {
        place.fails_with(arguments, 1, &["/new", "version 24", "format versions 1 to 23"]);
    }
}

#[test]
fn source_and_mount_point_in_each_other() {
    let place = Place::new();
    fs::create_dir(place.path("group/inner")).unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    place.fails_with(
        &["mount", "group", "group/inner"],
        1,
        &["the mount point", "is inside the source"],
    );
    place.fails_with(&["mount", "empty", "empty"], 1, &["cannot be mounted on itself"]);
    // A message of its own, not just "not empty".
    std::os::unix::fs::symlink(place.path("group"), place.path("link")).unwrap();
    place.fails_with(&["mount", "link", "group/inner"], 1, &["is inside the source"]);
}

#[test]
fn mount_options() {
    let place = Place::new();
    let run = |options: &str, parts: &[&str]| {
        place.fails_with(&["mount", "group", "mnt", "-o", options], 2, parts);
    };
    run("foo", &["unknown mount option `foo`"]);
    run("ro,allow_other,bar=1", &["unknown mount option `bar=1`"]);
    run("cache_size", &["`cache_size` needs a value"]);
    run("cache_size=lots", &["--cache-size", "give bytes"]);
    run("follow_symlinks=1", &["--follow-symlinks"]);
    run("fake", &["unknown mount option `fake`"]);
    run("allow_other,allow_root", &["exclude each other"]);
}

#[test]
fn long_options_as_mount_options() {
    let place = Place::new();
    // Every option in the help is understood: the error is about another option.
    let output = place.run(&["help", "mount"]);
    let help = String::from_utf8(output.stdout).unwrap();
    let shown = help.lines().filter_map(|line| {
        // `-v, --verbose...`, `    --threads <N>`
        let line = line.trim_start().strip_prefix('-')?;
        let mut words = line
            .split_once("--")
            .map_or(line.get(1..)?, |(_, long)| long)
            .split(' ');
        let name = words.next()?.trim_end_matches("...").to_owned();
        Some((name, words.next().is_some()))
    });
    let shown: Vec<(String, bool)> = shown
        .filter(|(name, _)| name.len() > 1 && name != "help")
        .collect();
    assert!(shown.len() > 8, "{shown:?} in {help}");
    for (name, takes_value) in shown {
        let value = match name.as_str() {
            _ if !takes_value => String::new(),
            "log-level" => "=info".to_owned(),
            "endpoint-url" => "=http://x".to_owned(),
            "log-file" | "key-file" => "=x".to_owned(),
            _ => "=1".to_owned(),
        };
        let option = format!("{}{value}", name.replace('-', "_"));
        place.fails_with(
            &[
                "mount",
                "group",
                "mnt",
                "-o",
                &format!("{option},log_level=nonsense"),
            ],
            2,
            &["nonsense"],
        );
    }
    // The last of several counts, because mount(8) appends its own to a line of /etc/fstab.
    place.fails_with(
        &[
            "mount",
            "group",
            "mnt",
            "-o",
            "key_file=missing,threads=1,threads=2",
        ],
        1,
        &["key file missing"],
    );
}

#[test]
fn sizes_of_zero_are_refused_in_words_of_the_option() {
    let place = Place::new();
    for (option, part) in [
        ("--cache-size", "the cache cannot be empty"),
        ("--disk-cache-size", "leave out --disk-cache"),
    ] {
        let output = place.run(&["ls", "group", option, "0"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn following_members_of_a_local_source_says_that_it_does_nothing() {
    let place = Place::new();
    for command in ["ls", "check"] {
        let told = place.run(&[command, "group", "--follow-members"]);
        let without = place.run(&[command, "group"]);
        assert_eq!(told.stdout, without.stdout);
        let message = String::from_utf8(told.stderr).unwrap();
        assert_eq!(
            message.matches("--follow-members does nothing").count(),
            1,
            "{message}"
        );
    }
}

#[test]
fn arguments_that_make_no_sense() {
    let place = Place::new();
    for arguments in [
        &["mount"][..],
        &["mount", "group"],
        &["mount", "group", "mnt", "more"],
        &["mount", "group", "mnt", "--cache-size", "lots"],
        &["mount", "group", "mnt", "--cache-size", "0"],
        &["mount", "group", "mnt", "--cache-size", "-1"],
        &["mount", "group", "mnt", "--cache-size=10Q"],
        &["mount", "group", "mnt", "--disk-cache-size", "0"],
        &["mount", "group", "mnt", "--threads", "0"],
        &["mount", "group", "mnt", "--nonsense"],
        &["unmount"],
        &["nonsense"],
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    place.nothing_mounted();
}

#[test]
fn key_files() {
    let place = Place::new();
    fs::write(place.path("short"), b"SECRETSECRET").unwrap();
    let bad = ["mount", "group", "mnt", "--key-file", "short"];
    place.fails_with(
        &bad,
        1,
        &["key file short", "neither 32 raw bytes nor 64 hexadecimal digits"],
    );
    let message = String::from_utf8(place.run(&bad).stderr).unwrap();
    assert!(!message.contains("SECRET"), "{message}");
    place.fails_with(
        &["mount", "group", "mnt", "--key-file", "a=missing"],
        1,
        &["key file missing", "No such file"],
    );
}

#[test]
fn what_cannot_be_unmounted() {
    let place = Place::new();
    place.fails_with(&["unmount", "mnt"], 1, &["nothing is mounted on mnt"]);
    place.fails_with(&["umount", "missing"], 1, &["missing: no such file or directory"]);
    place.fails_with(
        &["unmount", "/proc"],
        1,
        &["type proc", "not a mount of tiledbfs"],
    );
    assert!(Path::new("/proc/self").exists());
}

#[test]
fn the_device_is_missing_or_closed() {
    let place = Place::new();
    // In a new mount namespace.
    let run = |prepare: &str| {
        let script = format!("{prepare} && exec \"$0\" mount group mnt");
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tiledbfs")])
            .current_dir(place.path(""))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let message = run("mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3");
    for part in ["/dev/fuse is missing", "modprobe fuse", "--device /dev/fuse"] {
        assert!(message.contains(part), "{message}");
    }
    place.nothing_mounted();
}

/// Too few descriptors are refused before anything is mounted, and with as many as that asks for all files
/// can be read at once.
#[test]
fn the_limit_of_open_files() {
    let place = Place::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
    let run = |limit: &str, more: &str| {
        let script = format!("ulimit -n {limit} && exec \"$0\" mount \"$SAMPLE\" mnt --threads 2 {more}");
        Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_tiledbfs")])
            .env("SAMPLE", &sample)
            .current_dir(place.path(""))
            .output()
            .unwrap()
    };
    for more in ["", "-f"] {
        let output = run("12", more);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), message.lines().count()),
            (Some(1), 1),
            "{message}"
        );
        assert!(
            message.contains("limit of open files")
                && message.contains("is 12, and")
                && message.contains("needs 48"),
            "{message}"
        );
        place.nothing_mounted();
    }
    assert!(run("48", "").status.success());
    let script = "find mnt -type f | xargs -P 16 -n 8 cat >read 2>errors";
    let read = Command::new("sh")
        .args(["-c", script])
        .current_dir(place.path(""))
        .status()
        .unwrap();
    let errors = fs::read_to_string(place.path("errors")).unwrap();
    assert!(read.success() && errors.is_empty(), "{errors}");
    assert!(place.run(&["unmount", "mnt"]).status.success());
}

/// A mount that cannot start its threads would end when it is there.
#[test]
fn the_limit_of_threads() {
    let place = Place::new();
    let program = place.path("tiledbfs");
    // By a child, as no test that runs meanwhile may inherit a descriptor that is open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_tiledbfs"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    // Of a user without other processes, since the limit is that of all processes of a user.
    let run = |limit: &str| {
        Command::new("setpriv")
            .args([
                "--reuid=64321",
                "--regid=64321",
                "--clear-groups",
                "--",
                "prlimit",
            ])
            .arg(format!("--nproc={limit}"))
            .args(["./tiledbfs", "mount", "--fake", "group", "mnt", "--threads", "8"])
            .current_dir(place.path(""))
            .output()
            .unwrap()
    };
    let output = run("10");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("cannot start the threads of a mount, 8 and") && message.contains("--threads"),
        "{message}"
    );
    let output = run("100");
    assert!(output.status.success(), "{output:?}");
}

/// A mount whose threads find no memory for requests would end when it is there.
#[test]
fn the_limit_of_memory() {
    let place = Place::new();
    let run = |limit: u64| {
        let limited = format!("ulimit -v {limit} && exec \"$0\" mount --fake group mnt --threads 16");
        Command::new("sh")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_tiledbfs")])
            .current_dir(place.path(""))
            .output()
            .unwrap()
    };
    let output = run(300_000);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let parts = ["tiledbfs: ", "`ulimit -v`", "16 threads", "--threads"];
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    assert!(run(4_000_000).status.success());
}

#[test]
fn fusermount_is_missing() {
    let place = Place::new();
    let program = place.path("tiledbfs");
    // In a place where nobody can reach fusermount3. A child copies the program: a test process started
    // meanwhile would inherit a descriptor of ours that is open for writing, and the copy could not be
    // executed.
    let copy = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_tiledbfs"))
        .arg(&program)
        .status();
    assert!(copy.unwrap().success());
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            "env",
            "PATH=/nowhere",
        ])
        .arg(&program)
        .args(["mount", "group", "mnt"])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message.contains("fusermount3 is missing") && message.contains("package fuse3"),
        "{message}"
    );
    place.nothing_mounted();
}

#[test]
fn help_and_version() {
    let place = Place::new();
    let text = |arguments: &[&str]| {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let version = text(&["--version"]);
    assert!(
        version.starts_with(concat!("tiledbfs ", env!("CARGO_PKG_VERSION"))),
        "{version}"
    );
    assert!(version.contains("format versions 1 to 23"), "{version}");
    let help = text(&["help", "mount"]);
    for part in [
        "--cache-size",
        "256M",
        "--threads",
        "--key-file",
        "allow_other",
        "--follow-symlinks",
        "Examples:",
    ] {
        assert!(help.contains(part), "{part} not in {help}");
    }
    assert!(!help.contains("in-background"));
}
