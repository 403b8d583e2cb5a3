//! The systemd unit, tested without systemd: the test runs the lines of the unit.

use crate::common::eventually;
use crate::common::place::Place;
use crate::common::program::signal;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/tiledbfs@.service");
    fs::read_to_string(path).unwrap()
}

/// The command of a line of the unit, as systemd makes it: single quotes group words, then specifiers and
/// variables are replaced, and `$NAME` gives several words.
fn command(place: &Place, line: &str, pid: &str) -> Command {
    let unit = unit();
    let mut found = unit
        .lines()
        .filter_map(|text| text.strip_prefix(&format!("{line}=")));
    let text = found.next().unwrap().trim_start_matches('-');
    assert!(found.next().is_none());
    let mut words: Vec<String> = Vec::new();
    for (i, part) in text.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    let mountpoint = place.path("mnt");
    let words = words.iter().flat_map(|word| match word.as_str() {
        "$OPTIONS" => ["--cache-size", "1M"].map(str::to_owned).to_vec(),
        "${SOURCE}" => vec!["my group".to_owned()],
        "%f" => vec![mountpoint.to_str().unwrap().to_owned()],
        "$MAINPID" => vec![pid.to_owned()],
        word => {
            let word = word.replace("/usr/bin/tiledbfs", env!("CARGO_BIN_EXE_tiledbfs"));
            vec![word.replace("$$", "$")]
        }
    });
    let words: Vec<String> = words.collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(place.path(""));
    command
}

fn start(place: &Place) -> (Child, UnixDatagram) {
    let _ = fs::remove_file(place.path("notify"));
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut command = command(place, "ExecStart", "");
    command
        .env("NOTIFY_SOCKET", place.path("notify"))
        .stdin(Stdio::null());
    let child = command.spawn().unwrap();
    (child, socket)
}

fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1000];
    let n = socket.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..n].to_vec()).unwrap()
}

#[test]
fn a_service() {
    let place = Place::new();
    fs::rename(place.path("group"), place.path("my group")).unwrap();
    let (mut child, socket) = start(&place);
    assert_eq!(told(&socket), "READY=1\n");
    // Immediately, because the service has reported that it is ready.
    place.works();
    let pid = child.id().to_string();
    let mut reload = command(&place, "ExecReload", &pid);
    assert!(reload.status().unwrap().success());
    sleep(Duration::from_millis(100));
    place.works();
    assert!(child.try_wait().unwrap().is_none());
    signal(child.id() as i32, libc::SIGTERM);
    assert_eq!(told(&socket), "STOPPING=1\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!place.is_mounted());
    let after = |result: &str| {
        let mut command = command(&place, "ExecStopPost", "");
        command.env("SERVICE_RESULT", result).output().unwrap()
    };
    let output = after("success");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // A kill leaves a dead mount, which is cleared before the next start.
    let (mut child, socket) = start(&place);
    assert_eq!(told(&socket), "READY=1\n");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(place.is_mounted());
    let output = after("signal");
    assert!(output.status.success(), "{output:?}");
    assert!(!place.is_mounted());
    // A start fails where somebody has mounted already, who keeps that mount.
    place.succeeds(&["mount", "my group", "mnt"]);
    let (mut child, _socket) = start(&place);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(after("exit-code").status.success());
    place.works();
    place.succeeds(&["unmount", "mnt"]);
}

/// The parent waits for a background mount, so there is no notification.
#[test]
fn in_the_background_nobody_is_notified() {
    let place = Place::new();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut command = place.command(&["mount", "group", "mnt"]);
    let status = command.env("NOTIFY_SOCKET", place.path("notify")).status();
    assert!(status.unwrap().success());
    place.succeeds(&["unmount", "mnt"]);
    eventually("the daemon ends", || place.daemons().is_empty());
    assert!(socket.recv(&mut [0; 100]).is_err());
}

#[test]
fn systemd_understands_the_unit() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        println!("systemd-analyze is not installed");
        return;
    };
    println!("{}", String::from_utf8_lossy(&version.stdout));
    let place = Place::new();
    let path = place.path("tiledbfs@.service");
    fs::write(
        &path,
        unit().replace("/usr/bin/tiledbfs", env!("CARGO_BIN_EXE_tiledbfs")),
    )
    .unwrap();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let ours: Vec<_> = errors.lines().filter(|line| line.contains("tiledbfs@")).collect();
    assert!(output.status.success() && ours.is_empty(), "{errors}");
}

/// Names that systemd-escape writes have a backslash for each hyphen, and systemd reads EnvironmentFile= as a
/// pattern, in which that protects the next character.
#[test]
fn settings_are_found_by_the_path_of_the_mount_point() {
    for setting in ["AssertFileNotEmpty", "EnvironmentFile"] {
        let line = format!("\n{setting}=/etc/tiledbfs%f.conf\n");
        assert!(unit().contains(&line), "{setting}");
    }
}
