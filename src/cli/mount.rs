//! `tiledbfs mount`.

use super::options::{MountFlags, parse_mount_options};
use super::{Failure, MountArgs, check_source, daemon, log_to_stderr, open_tree, show_path, stale};
use crate::error::Result as LibraryResult;
use crate::fuse::{self, FileSystem, MountOptions, Mounted, SUBTYPE, mountinfo};
use crate::tree::Options;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Runs the subcommand, given with the command line `arguments`; in the foreground until it is unmounted.
pub(super) fn run(args: &MountArgs, arguments: &[OsString]) -> Result<(), Failure> {
    let flags = parse_mount_options(&args.options)?;
    if args.foreground {
        start_log(args.log_file.as_deref(), true)?;
        let (mounted, events) = start(args, &flags)?;
        return serve(mounted, &events);
    }
    if !args.in_background {
        return daemon::launch(arguments, &args.mountpoint);
    }
    let caller = daemon::Caller::new().map_err(|error| Failure::new(error.to_string()))?;
    let started = start_log(args.log_file.as_deref(), false).and_then(|()| start(args, &flags));
    match started {
        Ok((mounted, events)) => match caller.mounted() {
            Ok(()) => serve(mounted, &events),
            Err(error) => {
                // The caller has told why, or is gone.
                log::error!("nobody waits for the mount: {error}");
                drop(mounted);
                std::process::exit(1);
            }
        },
        Err(failure) => {
            caller.failed(&failure);
            std::process::exit(failure.code.into());
        }
    }
}

/// Sends what is logged to `file`; without one to stderr, if that is `wanted`. Panics are logged as all else.
fn start_log(file: Option<&Path>, wanted: bool) -> Result<(), Failure> {
    match file {
        Some(path) => {
            let file = File::options()
                .append(true)
                .create(true)
                .open(path)
                .map_err(|error| Failure::new(format!("log file {}: {error}", show_path(path))))?;
            let env = env_logger::Env::default().default_filter_or("warn");
            let _ = env_logger::Builder::from_env(env)
                .target(env_logger::Target::Pipe(Box::new(file)))
                .try_init();
        }
        None if wanted => log_to_stderr(),
        None => {}
    }
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    Ok(())
}

/// What the main thread waits for.
enum Event {
    Signal(i32),
    Ended(LibraryResult<()>),
}

/// Checks, opens and mounts.
fn start(args: &MountArgs, flags: &MountFlags) -> Result<(Mounted, Receiver<Event>), Failure> {
    let source = check_source(&args.source)?;
    // Held until it is mounted: two that start at once would both find the place free.
    let _lock = lock_mountpoint(&args.mountpoint)?;
    let mountpoint = check_mountpoint(&args.mountpoint)?;
    check_nesting(&source, &mountpoint)?;
    let options: Options = args.source_args.options(flags.follow_symlinks)?;
    let tree = open_tree(&source, &options)?;
    let defaults = MountOptions::default();
    let options = MountOptions {
        fs_name: match &flags.fs_name {
            Some(name) => name.into(),
            None => source.into_os_string(),
        },
        subtype: flags.subtype.clone(),
        access: flags.access,
        threads: args.threads.map_or(defaults.threads, usize::from),
        no_exec: flags.no_exec,
        no_atime: flags.no_atime,
        auto_unmount: flags.auto_unmount,
    };
    let (sender, events) = channel();
    // Before mounting, so that no signal can end the process with the mount left behind.
    watch_signals(sender.clone()).map_err(|error| Failure::new(format!("cannot watch signals: {error}")))?;
    let mounted = fuse::mount(FileSystem::new(tree), &mountpoint, &options)
        .map_err(|error| Failure::new(format!("cannot mount on {}: {error}", show_path(&mountpoint))))?;
    let ended = mounted.ended();
    thread::spawn(move || sender.send(Event::Ended(ended.wait())));
    Ok((mounted, events))
}

fn watch_signals(sender: Sender<Event>) -> io::Result<()> {
    // Started with `nohup`, it goes on when the terminal is gone.
    let hang_up = (!ignores(SIGHUP)).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up))?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

/// Whether whoever started this process had it ignore `signal`.
fn ignores(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Waits for a signal or for somebody to unmount it.
fn serve(mut mounted: Mounted, events: &Receiver<Event>) -> Result<(), Failure> {
    match events.recv() {
        Ok(Event::Ended(Ok(()))) => Ok(()),
        Ok(Event::Ended(Err(error))) => Err(Failure::new(format!(
            "the connection to the kernel broke: {error}"
        ))),
        Ok(Event::Signal(signal)) => {
            log::info!("signal {signal}: unmounting");
            let result = mounted.end();
            result.map_err(|error| {
                Failure::new(format!(
                    "cannot unmount {}: {error}",
                    show_path(mounted.mountpoint())
                ))
            })
        }
        Err(_) => Err(Failure::new("all that could end the mount is gone")),
    }
}

/// Keeps other processes of this program from mounting on MOUNTPOINT as long as the result lives. None where it cannot be locked, for
/// reasons that are told elsewhere.
fn lock_mountpoint(mountpoint: &Path) -> Result<Option<File>, Failure> {
    let Ok(directory) = File::open(mountpoint) else {
        return Ok(None);
    };
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
            "another process is about to mount on {}",
            show_path(mountpoint)
        ))),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// MOUNTPOINT must be an empty directory on which nothing is mounted. Returns its absolute path without symbolic links.
fn check_mountpoint(mountpoint: &Path) -> Result<PathBuf, Failure> {
    let name = show_path(mountpoint);
    let explain = |error: io::Error| {
        Failure::new(match error.raw_os_error() {
            Some(libc::ENOENT) => format!("mount point {name}: no such directory"),
            Some(libc::ENOTDIR) => format!("mount point {name} is not a directory"),
            Some(libc::ENOTCONN) => stale(mountpoint),
            _ => format!("mount point {name}: {error}"),
        })
    };
    let metadata = fs::metadata(mountpoint).map_err(explain)?;
    let path = fs::canonicalize(mountpoint).map_err(explain)?;
    if let Some(mount) = mountinfo::mounted_at(&path).map_err(explain)? {
        let what = mountinfo::printable(&mount.source);
        return Err(Failure::new(if mount.fs_type == format!("fuse.{SUBTYPE}") {
            format!(
                "{name} is already a mount of tiledbfs, showing {what}; `tiledbfs unmount {name}` takes it away"
            )
        } else {
            format!(
                "{name} is already a mount point: {} of type {}",
                what, mount.fs_type
            )
        }));
    }
    if !metadata.is_dir() {
        return Err(Failure::new(format!("mount point {name} is not a directory")));
    }
    if fs::read_dir(&path).map_err(explain)?.next().is_some() {
        return Err(Failure::new(format!("mount point {name} is not empty")));
    }
    Ok(path)
}

/// A mount in what it shows would show itself; one over what it shows would hide it from itself.
fn check_nesting(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let (s, m) = (show_path(source), show_path(mountpoint));
    if source == mountpoint {
        Err(Failure::new(format!(
            "{s} cannot be mounted on itself: give another directory as the mount point"
        )))
    } else if source.starts_with(mountpoint) {
        Err(Failure::new(format!(
            "the source {s} lies inside the mount point {m}, which would hide it"
        )))
    } else if mountpoint.starts_with(source) {
        Err(Failure::new(format!(
            "the mount point {m} lies inside the source {s}: give a directory outside of it"
        )))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_and_mount_point_are_apart() {
        let check = |source: &str, mountpoint: &str| check_nesting(Path::new(source), Path::new(mountpoint));
        assert_eq!(check("/a/b", "/a/c"), Ok(()));
        assert_eq!(check("/a/b", "/a/bc"), Ok(()));
        for (source, mountpoint, part) in [
            ("/a/b", "/a/b", "itself"),
            ("/a/b/c", "/a/b", "inside the mount point"),
            ("/a", "/a/b/c", "inside the source"),
        ] {
            let failure = check(source, mountpoint).unwrap_err();
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }
}
