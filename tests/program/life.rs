//! How mounts end: under load, while they start, when they are killed, and when the terminal is closed. They
//! leave no mount, process or file behind.

use crate::common::place::Place;
use crate::common::program::{signal, with_signals};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(5);

impl Place {
    fn mount_command(&self, more: &[&str]) -> Command {
        let mut command = self.command(&["mount"]);
        command
            .args(more)
            .arg(sample())
            .arg(self.path("mnt"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn mount_sample(&self) -> i32 {
        let output = self.mount_command(&[]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        self.daemon().unwrap()
    }

    fn start_in_foreground(&self) -> Child {
        let child = self.mount_command(&["-f"]).spawn().unwrap();
        within("it is mounted", || self.column().is_file());
        child
    }

    fn daemon(&self) -> Option<i32> {
        self.daemons().first().copied()
    }

    fn column(&self) -> PathBuf {
        self.path(&format!("mnt/fragments/{FRAGMENT}/columns/temperature/data.bin"))
    }

    /// Asserts that no mount, process or file is left.
    fn is_clean(&self) {
        within("nothing is mounted", || self.mounts() == 0);
        within("no process is left", || self.processes().is_empty());
        assert_eq!(fs::read_dir(self.path("tmp")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(self.path("mnt")).unwrap().count(), 0);
    }
}

/// The older fragment of the sample.
const FRAGMENT: &str = "__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22";

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample/weather")
}

fn within(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "not within {TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// `end` ends the mount while 16 readers are busy. Each gets right bytes or an error, and none hangs.
fn under_load(place: &Place, end: impl FnOnce()) {
    let path = place.column();
    let intact = fs::read(&path).unwrap();
    let (done, reads, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16)
            .map(|i| {
                let (path, intact, done, reads, failed) = (&path, &intact, &done, &reads, &failed);
                scope.spawn(move || {
                    let read = |file: &File| -> io::Result<()> {
                        let mut bytes = vec![0; intact.len()];
                        file.read_exact_at(&mut bytes, 0)?;
                        assert!(bytes == *intact);
                        reads.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    };
                    // Half of them keep one file open throughout.
                    let kept = File::open(path).unwrap();
                    while !done.load(Ordering::Relaxed) {
                        let result = match i % 2 {
                            0 => File::open(path).and_then(|file| read(&file)),
                            _ => read(&kept).and_then(|()| fs::metadata(path).map(drop)),
                        };
                        if result.is_err() {
                            failed.fetch_add(1, Ordering::Relaxed);
                            sleep(Duration::from_millis(1));
                        }
                    }
                })
            })
            .collect();
        within("they read", || reads.load(Ordering::Relaxed) > 1000);
        assert_eq!(failed.load(Ordering::Relaxed), 0);
        let start = Instant::now();
        end();
        within("it is unmounted", || place.mounts() == 0);
        within("the process ends", || place.processes().is_empty());
        assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
        done.store(true, Ordering::Relaxed);
        within("all readers come back", || {
            readers.iter().all(|reader| reader.is_finished())
        });
    });
    place.is_clean();
}

#[test]
fn signals_under_load() {
    for number in [libc::SIGTERM, libc::SIGINT] {
        let place = Place::new();
        let daemon = place.mount_sample();
        under_load(&place, || signal(daemon, number));
        let place = Place::new();
        let mut child = place.start_in_foreground();
        under_load(&place, || {
            signal(child.id() as i32, number);
            let status = child.wait().unwrap();
            assert_eq!((status.code(), status.signal()), (Some(0), None));
        });
    }
}

#[test]
fn killed_under_load() {
    let place = Place::new();
    let daemon = place.mount_sample();
    let held = File::open(place.column()).unwrap();
    under_load_killed(&place, daemon);
    // An open file must not prevent cleaning up the dead mount.
    let again = place.mount_command(&[]).output().unwrap();
    let message = String::from_utf8(again.stderr).unwrap();
    assert!(message.contains("tiledbfs unmount"), "{message}");
    let output = place.run(&["unmount", "mnt"]);
    assert!(output.status.success(), "{output:?}");
    assert!(held.read_at(&mut [0; 100], 1 << 40).is_ok_and(|n| n == 0) || place.mounts() == 0);
    drop(held);
    place.is_clean();
    place.mount_sample();
    assert!(place.run(&["unmount", "mnt"]).status.success());
    place.is_clean();
}

fn under_load_killed(place: &Place, daemon: i32) {
    let path = place.column();
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    while fs::read(&path).is_ok() {}
                    failed.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        sleep(Duration::from_millis(100));
        signal(daemon, libc::SIGKILL);
        within("all readers come back", || {
            readers.iter().all(|reader| reader.is_finished())
        });
    });
    assert_eq!(failed.load(Ordering::Relaxed), 16);
    // The kernel may use cached attributes of the root for a moment.
    within("the mount is dead", || {
        fs::metadata(place.path("mnt")).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
    });
}

#[test]
fn signals_during_start() {
    let mut mounted = 0;
    for round in 0..60u64 {
        let place = Place::new();
        let number = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP][round as usize % 3];
        let foreground = round % 2 == 0;
        let flags: &[&str] = if foreground { &["-f"] } else { &[] };
        let mut child = place.mount_command(flags).spawn().unwrap();
        sleep(Duration::from_micros(round * 500));
        match place.daemon().filter(|_| round % 4 == 1) {
            Some(daemon) => signal(daemon, number),
            None => signal(child.id() as i32, number),
        }
        let end = Instant::now() + TIMEOUT;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "round {round}: it does not end");
            sleep(Duration::from_millis(2));
        }
        // The called process is gone. A background one may have been too late; then the mount is whole.
        within("it is mounted and served, or not at all", || {
            match (place.mounts(), place.daemon()) {
                (0, None) => true,
                (1, Some(_)) => fs::read_dir(place.path("mnt")).is_ok_and(|names| names.count() > 1),
                _ => false,
            }
        });
        if place.mounts() > 0 {
            assert!(!foreground, "round {round}: a mount is left");
            mounted += 1;
            sleep(Duration::from_millis(50));
            if place.mounts() > 0 {
                // It may be ending on its own, because nobody waits for it any more.
                let output = place.run(&["unmount", "mnt"]);
                assert!(
                    output.status.success() || place.mounts() == 0,
                    "round {round}: {output:?}"
                );
            }
        }
        place.is_clean();
    }
    println!("{mounted} of 60 were mounted all the same");
}

#[test]
fn of_several_that_mount_at_once_one_does() {
    for _ in 0..5 {
        let place = Place::new();
        let children: Vec<Child> = (0..4)
            .map(|_| place.mount_command(&[]).spawn().unwrap())
            .collect();
        let outputs: Vec<Output> = children
            .into_iter()
            .map(|child| child.wait_with_output().unwrap())
            .collect();
        let successes = outputs.iter().filter(|output| output.status.success()).count();
        assert_eq!((successes, place.mounts()), (1, 1), "{outputs:?}");
        for output in outputs.iter().filter(|output| !output.status.success()) {
            let message = String::from_utf8_lossy(&output.stderr);
            let told = ["about to mount", "already a mount"];
            assert!(told.iter().any(|part| message.contains(part)), "{message}");
        }
        assert!(place.column().is_file());
        assert!(place.run(&["unmount", "mnt"]).status.success());
        place.is_clean();
    }
}

/// Runs `line` in a terminal of its own, which is closed at the end.
fn in_terminal(place: &Place, line: &str) -> Child {
    let mut command = with_signals("script");
    command
        .args(["-q", "-e", "-c", line, "/dev/null"])
        .current_dir(place.path(""))
        .env("TILEDBFS", env!("CARGO_BIN_EXE_tiledbfs"))
        .env("SOURCE", sample())
        .env("MNT", place.path("mnt"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn the_terminal_goes_away() {
    // Closing the terminal does not affect a mount in the background.
    let place = Place::new();
    let mut terminal = in_terminal(&place, "\"$TILEDBFS\" mount \"$SOURCE\" \"$MNT\"; sleep 100");
    within("it is mounted", || place.column().is_file());
    within("the one that was called has ended", || {
        place.processes().len() == 1
    });
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    sleep(Duration::from_millis(300));
    assert!(!fs::read(place.column()).unwrap().is_empty());
    assert!(place.run(&["unmount", "mnt"]).status.success());
    place.is_clean();
    // It ends a mount in the foreground.
    let place = Place::new();
    let mut terminal = in_terminal(&place, "exec \"$TILEDBFS\" mount -f \"$SOURCE\" \"$MNT\"");
    within("it is mounted", || place.column().is_file());
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    place.is_clean();
}

/// The mount does not keep the caller's descriptors open: neither a lock on descriptor 9, nor the end of a
/// pipe, whatever its number.
#[test]
fn descriptors_of_the_caller_are_its_own() {
    for more in [&[][..], &["-o", "auto_unmount"]] {
        let place = Place::new();
        let script = r#"
            exec 9>lock 3>&1
            flock 9
            "$@"
        "#;
        let mount = place.mount_command(more);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script, "sh"])
            .arg(mount.get_program())
            .args(mount.get_args())
            .current_dir(place.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (sender, receiver) = std::sync::mpsc::channel();
        // Its output ends when nobody holds the pipe any more.
        std::thread::spawn(move || sender.send(shell.output()));
        let output = receiver
            .recv_timeout(TIMEOUT)
            .expect("the pipeline ends")
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(place.mounts(), 1);
        let lock = Command::new("flock")
            .args(["-n", "lock", "true"])
            .current_dir(place.path(""))
            .status();
        assert!(lock.unwrap().success(), "the lock is free");
        assert!(place.run(&["unmount", "mnt"]).status.success());
        fs::remove_file(place.path("lock")).unwrap();
        place.is_clean();
    }
}

#[test]
fn an_open_file_and_a_working_directory_keep_it_busy() {
    let place = Place::new();
    place.mount_sample();
    let mut inside = Command::new("sleep")
        .arg("100")
        .current_dir(place.path("mnt"))
        .spawn()
        .unwrap();
    for _ in 0..2 {
        let output = place.run(&["unmount", "mnt"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            message.contains("is in use") && message.contains("--lazy"),
            "{message}"
        );
        assert!(place.column().is_file());
    }
    inside.kill().unwrap();
    inside.wait().unwrap();
    assert!(place.run(&["unmount", "mnt"]).status.success());
    place.is_clean();
}
