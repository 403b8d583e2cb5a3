//! `scripts/install.sh`: what it installs, and where.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn install(dest: &Path, arguments: &[&str]) {
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install.sh"))
        .args(arguments)
        .env("DESTDIR", dest)
        .env("TILEDBFS_BIN", env!("CARGO_BIN_EXE_tiledbfs"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// All empty directories at and below a directory, in order.
fn empty_directories(directory: &Path) -> Vec<PathBuf> {
    let mut waiting = vec![directory.to_path_buf()];
    let mut empty = Vec::new();
    while let Some(directory) = waiting.pop() {
        let entries: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        if entries.is_empty() {
            empty.push(directory);
        }
        waiting.extend(entries.into_iter().filter(|path| path.is_dir()));
    }
    empty.sort();
    empty
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut waiting = vec![directory.to_path_buf()];
    let mut files = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files
}

#[test]
fn all_is_put_in_place_and_taken_away() {
    for (prefix, sbin) in [("/usr/local", "sbin"), ("/opt/tools", "opt/tools/sbin")] {
        let place = tempfile::tempdir().unwrap();
        // There before, and to be left, though empty.
        let kept = place
            .path()
            .join(prefix.trim_start_matches('/'))
            .join("share/zsh");
        fs::create_dir_all(&kept).unwrap();
        let at = |name: &str| place.path().join(prefix.trim_start_matches('/')).join(name);
        install(place.path(), &[prefix]);
        let program = at("bin/tiledbfs");
        assert_eq!(
            fs::metadata(&program).unwrap().permissions().mode() & 0o777,
            0o755
        );
        let version = Command::new(&program).arg("--version").output().unwrap();
        assert!(version.stdout.starts_with(b"tiledbfs "), "{version:?}");
        for helper in ["mount.tiledbfs", "mount.fuse.tiledbfs"] {
            let link = fs::read_link(place.path().join(sbin).join(helper)).unwrap();
            assert_eq!(link, Path::new(prefix).join("bin/tiledbfs"));
        }
        for (file, part) in [
            ("share/man/man1/tiledbfs.1", ".TH tiledbfs 1"),
            ("share/man/man1/tiledbfs-cp.1", ".SH SYNOPSIS"),
            ("share/man/man8/mount.tiledbfs.8", "man1/tiledbfs-mount.1"),
            ("share/bash-completion/completions/tiledbfs", "complete -F"),
            ("share/zsh/site-functions/_tiledbfs", "#compdef tiledbfs"),
            (
                "share/fish/vendor_completions.d/tiledbfs.fish",
                "complete -c tiledbfs",
            ),
            (
                "lib/systemd/system/tiledbfs@.service",
                &format!("ExecStart={prefix}/bin/tiledbfs mount "),
            ),
            (
                "lib/systemd/system/tiledbfs-serve@.service",
                &format!("ExecStart={prefix}/bin/tiledbfs serve "),
            ),
            (
                "lib/systemd/system/tiledbfs-serve@.socket",
                "ListenStream=127.0.0.1:8470",
            ),
        ] {
            let text = fs::read_to_string(at(file)).unwrap();
            assert!(text.contains(part), "{file}: {text}");
        }
        // Installs over itself. A file of somebody else stays.
        install(place.path(), &[prefix]);
        fs::write(at("share/man/man1/other.1"), b"").unwrap();
        install(place.path(), &["--uninstall", prefix]);
        assert_eq!(files(place.path()), [at("share/man/man1/other.1")]);
        // Nor a directory but those above it, and those that were there.
        fs::remove_file(at("share/man/man1/other.1")).unwrap();
        let left = [at("share/man/man1"), kept];
        assert_eq!(empty_directories(place.path()), left);
    }
}

/// Puts `program` into a directory. By another process: one that is started meanwhile would inherit a file
/// that is open for writing, and the program could not be run.
fn copy_program(directory: &Path) {
    let mut command = Command::new("cp");
    command.args([env!("CARGO_BIN_EXE_tiledbfs"), "program"]);
    assert!(command.current_dir(directory).status().unwrap().success());
}

#[test]
fn paths_are_those_of_the_caller() {
    let place = tempfile::tempdir().unwrap();
    copy_program(place.path());
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install.sh"))
        .arg("/usr")
        .envs([("DESTDIR", "dest"), ("TILEDBFS_BIN", "./program")])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(place.path().join("dest/usr/bin/tiledbfs").exists());
}

#[test]
fn no_directory_is_left() {
    let place = tempfile::tempdir().unwrap();
    for prefix in ["/usr/local", "/opt/tools"] {
        let dest = place.path().join("dest");
        for _ in 0..2 {
            install(&dest, &[prefix]);
        }
        install(&dest, &["--uninstall", prefix]);
        assert_eq!(empty_directories(place.path()), [place.path()], "{prefix}");
    }
}

/// By sudo, it is the caller who builds: Rust is theirs, and so is what is built. Only root can try that.
#[test]
fn the_caller_of_sudo_builds() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    copy_program(place.path());
    // By another process too.
    let write = r#"
        mkdir -p cargo/bin
        echo '#!/bin/sh' >cargo/bin/cargo
        echo 'mkdir -p $CARGO_TARGET_DIR/release' >>cargo/bin/cargo
        echo 'cp $CARGO_HOME/../program $CARGO_TARGET_DIR/release/tiledbfs' >>cargo/bin/cargo
        chmod 755 cargo/bin/cargo
    "#;
    let written = Command::new("sh")
        .args(["-c", write])
        .current_dir(place.path())
        .status();
    assert!(written.unwrap().success());
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install.sh"))
        .arg("/usr")
        .env_clear()
        .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("SUDO_USER", "nobody")])
        .env("CARGO_HOME", at("cargo"))
        .env("CARGO_TARGET_DIR", at("target"))
        .env("DESTDIR", at("dest"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let owner = |name: &str| std::os::unix::fs::MetadataExt::uid(&fs::metadata(at(name)).unwrap());
    assert_ne!(owner("target/release/tiledbfs"), 0);
    assert_eq!(owner("dest/usr/bin/tiledbfs"), 0);
}
