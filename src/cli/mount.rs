//! `tiledbfs mount`.

use super::mount_options::MountFlags;
use super::options::source_parser;
use super::shown::ShownArgs;
use super::source::{check_source, open_tree};
use super::{Failure, daemon, logging, show_path, stale};
use crate::error::Result as LibraryResult;
#[cfg(feature = "remote")]
use crate::fuse::Access;
use crate::fuse::{self, FileSystem, MountOptions, Mounted, SUBTYPE};
use crate::runtime::lock;
use crate::storage::location::Location;
use crate::storage::mountinfo;
use crate::tree::Tree;
use clap::{Args, ValueHint};
use nix::mount::MsFlags;
use nix::sys::resource::{Resource, getrlimit};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

pub(super) const HELP: &str = "\
Mount options (-o, separated by commas):
  cache_size=1G, key_file=FILE, log_file=FILE, verbose, ...
                     every long option above, with _ for -; outside of -o
                     it takes precedence
  allow_other        let all users in, each to read what they could read in
                     SOURCE; arrays with a key only for those who may read the
                     key's file (unless root mounts, needs user_allow_other
                     in /etc/fuse.conf)
  allow_root         let root read the mount as well
  auto_unmount       let fusermount3 unmount if the daemon is killed
  fsname=NAME        show NAME as the source in the table of mounts instead
                     of SOURCE's path
  subtype=NAME       show fuse.NAME as the type in the table of mounts
                     (`tiledbfs unmount` knows only fuse.tiledbfs)
  noexec, noatime    as for any file system
  remount            change noexec and noatime of a mount
  ro, nosuid, nodev, default_permissions
                     always on; rw gives a warning
  nofail             do nothing, successfully, if a local SOURCE does not exist
  defaults, auto, noauto, user, _netdev, uid=, gid=, x-*, dev, suid
                     and the like are ignored, for /etc/fstab
In a value, a comma is written \\, or between double quotes.

Examples:
  tiledbfs mount my_array /mnt/a
  tiledbfs mount ~/arrays /mnt/a --cache-size 1G -o allow_other
  tiledbfs mount secret /mnt/a --key-file key.bin
  tiledbfs mount ~/arrays /mnt/a --key-file one=1.hex --key-file two=2.hex
  tiledbfs mount my_array /mnt/a -f     in the foreground; ^C unmounts
  tiledbfs mount s3://bucket/arrays /mnt/a -o anonymous,region=us-east-1

In /etc/fstab:
  /data/arrays  /mnt/arrays  fuse.tiledbfs  ro,allow_other,nofail  0 0
  s3://bucket/arrays  /mnt/s3  fuse.tiledbfs  ro,_netdev,profile=reader  0 0";

#[derive(Debug, Args)]
pub(super) struct MountArgs {
    /// An array, a group, or a directory that holds any of these at any depth; or a URL of one: s3://, gs://,
    /// az://, abfss://, https://
    #[arg(value_hint = ValueHint::DirPath, value_parser = source_parser())]
    source: OsString,
    /// An empty directory; or /dev/fd/N, an open /dev/fuse that the caller has mounted, and will unmount
    #[arg(value_hint = ValueHint::DirPath)]
    mountpoint: PathBuf,
    /// Stay in the foreground; SIGINT, SIGTERM, SIGQUIT and SIGHUP (but not with `nohup`) unmount
    #[arg(short, long)]
    foreground: bool,
    /// Mount options, see below
    #[arg(short, value_name = "OPTIONS")]
    pub(super) options: Vec<OsString>,
    #[command(flatten)]
    shown: ShownArgs,
    /// Permissions to remove from all files if SOURCE is in an object store. With 022, other users may read
    /// with the credentials of this mount (needs allow_other)
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "MODE", value_parser = parse_umask)]
    umask: Option<u32>,
    #[command(flatten)]
    log_args: logging::LogArgs,
    /// Do everything except mounting.
    #[arg(long, hide = true)]
    fake: bool,
    /// Ignore unknown mount options.
    #[arg(long, hide = true)]
    pub(super) sloppy: bool,
    /// This is the background process; stdout is a socket to the process that started it.
    #[arg(long = daemon::BACKGROUND_FLAG, hide = true)]
    in_background: bool,
    /// The parsed `options`.
    #[arg(skip)]
    pub(super) flags: MountFlags,
}

/// Parses a umask in octal digits.
#[cfg(feature = "remote")]
fn parse_umask(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "give one to three octal digits".to_owned())
}

/// The fewest descriptors with which a mount reads without errors, measured with many readers.
const MIN_DESCRIPTORS: u64 = 48;

/// Descriptors that a mount needs besides those of its threads: files that it keeps, those of listings that
/// programs have open, sockets, the log.
const BASE_DESCRIPTORS: u64 = 32;

/// Descriptors for each thread: its connection to the kernel, and what it reads.
const THREAD_DESCRIPTORS: u64 = 2;

/// Threads that a mount needs besides those that answer requests: for signals, its end, pages, and the like.
const OTHER_THREADS: usize = 6;

/// What fuser allocates for the requests of each thread, in bytes. It is address space for the most part.
const REQUEST_ROOM: usize = (16 << 20) + 4096;

/// Runs `tiledbfs mount`. `arguments` is the whole command line. In the foreground, returns once unmounted.
pub(super) fn run(args: &MountArgs, arguments: &[OsString]) -> Result<(), Failure> {
    #[cfg(feature = "remote")]
    check_umask(args)?;
    if args.flags.remount {
        logging::start(&args.log_args)?;
        return remount(args);
    }
    if args.flags.no_fail && is_missing(&args.source) {
        logging::start(&args.log_args)?;
        log::warn!(
            "{}: no such file or directory",
            show_path(Path::new(&args.source))
        );
        return Ok(());
    }
    if args.fake {
        logging::start(&args.log_args)?;
        return prepare(args).map(drop);
    }
    if args.foreground {
        logging::start(&args.log_args)?;
        let (mounted, events) = start(args)?;
        logging::leave_stderr(None);
        notify(&[NotifyState::Ready]);
        return serve(mounted, &events);
    }
    if !args.in_background {
        return daemon::launch(arguments, &args.mountpoint, descriptor(&args.mountpoint));
    }
    let caller = daemon::Caller::new().map_err(|error| Failure::new(error.to_string()))?;
    let started = logging::start(&args.log_args).and_then(|()| start(args));
    match started {
        Ok((mounted, events)) => {
            let shown = mounted.mountpoint().unwrap_or(&args.mountpoint).to_owned();
            match caller.mounted(|| logging::leave_stderr(Some(&shown))) {
                // Nobody reads what is written to stderr any more.
                Ok(()) => serve(mounted, &events).inspect_err(|failure| log::error!("{}", failure.message)),
                Err(error) => {
                    // The first process has reported the cause, or is gone.
                    log::error!("the process that started this mount is gone: {error}");
                    drop(mounted);
                    std::process::exit(1);
                }
            }
        }
        Err(failure) => {
            caller.failed(&failure);
            std::process::exit(failure.code.into());
        }
    }
}

/// Whether SOURCE is a local path that does not exist.
fn is_missing(source: &OsStr) -> bool {
    let Ok(Location::Local(path)) = Location::parse(source) else {
        return false;
    };
    fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Notifies systemd, if it waits for that.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        log::warn!("cannot notify the service manager: {error}");
    }
}

/// Events for the main thread.
enum Event {
    /// A signal that ends the mount.
    End(i32),
    /// The mount has ended.
    Ended(LibraryResult<()>),
}

/// The descriptor that MOUNTPOINT names, if it is spelled exactly as libfuse wants it.
fn descriptor(mountpoint: &Path) -> Option<RawFd> {
    let digits = mountpoint.to_str()?.strip_prefix("/dev/fd/")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Where to mount.
enum Place {
    /// The canonical path of a directory.
    Directory(PathBuf),
    /// A descriptor of `/dev/fuse` that is mounted already.
    Descriptor(RawFd),
}

/// A checked source and mount point. While this exists, no other process of this program mounts there.
struct Prepared {
    source: Location,
    place: Place,
    tree: Tree,
    threads: usize,
    _lock: Option<File>,
}

/// Checks the arguments and opens the source.
fn prepare(args: &MountArgs) -> Result<Prepared, Failure> {
    for warning in &args.flags.warnings {
        log::warn!("{warning}");
    }
    let source = check_source(&args.source)?;
    let threads = args.shown.threads(&source, MountOptions::default().threads);
    check_file_limit(threads)?;
    check_thread_limit(threads)?;
    let (place, _lock) = match descriptor(&args.mountpoint) {
        Some(number) => (Place::Descriptor(number), None),
        None => {
            // Held until mounted, so that concurrent mounts do not both find the mount point free.
            let lock = lock_mountpoint(&args.mountpoint)?;
            let mountpoint = check_mountpoint(&args.mountpoint)?;
            if let Location::Local(source) = &source {
                check_nesting(source, &mountpoint)?;
            }
            (Place::Directory(mountpoint), lock)
        }
    };
    #[allow(unused_mut)]
    let mut options = args.shown.options()?;
    #[cfg(feature = "remote")]
    if let Some(umask) = args.umask {
        options.remote.shared = lets_others_read(umask);
    }
    let tree = open_tree(&source, &options)?;
    Ok(Prepared {
        source,
        place,
        tree,
        threads,
        _lock,
    })
}

/// Fails if the limit of open files is so low that reads would fail. The soft limit is the hard one by now.
fn check_file_limit(threads: usize) -> Result<(), Failure> {
    let needed = MIN_DESCRIPTORS.max(BASE_DESCRIPTORS + THREAD_DESCRIPTORS * threads as u64);
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft);
    match limit.map_err(|error| Failure::new(format!("cannot find the limit of open files: {error}")))? {
        limit if limit < needed => Err(Failure::new(format!(
            "the limit of open files (`ulimit -n`) is {limit}, and a mount with {threads} threads needs \
             {needed}: raise it, or give fewer --threads"
        ))),
        _ => Ok(()),
    }
}

/// Fails if the threads of a mount cannot all be started, or have no room for requests: it would end when it
/// is there.
fn check_thread_limit(threads: usize) -> Result<(), Failure> {
    let gate = Mutex::new(());
    let closed = lock(&gate);
    let (started, room) = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, || drop(gate.lock()));
        let started: io::Result<Vec<_>> = (0..threads + OTHER_THREADS).map(start).collect();
        // Beside their stacks.
        let room = Vec::<u8>::new().try_reserve_exact(threads * REQUEST_ROOM);
        drop(closed);
        (started.map(drop), room)
    });
    started.map_err(|error| {
        Failure::new(format!(
            "cannot start the threads of a mount, {threads} and some more: {error}: raise the limit of \
             processes (`ulimit -u`, or of the control group) or of memory (`ulimit -v`), or give fewer \
             --threads"
        ))
    })?;
    room.map_err(|_| {
        Failure::new(format!(
            "the limit of memory (`ulimit -v` or `-d`) leaves no room for requests, {} MiB for each of \
             {threads} threads: raise it, or give fewer --threads",
            REQUEST_ROOM >> 20
        ))
    })
}

/// Whether a umask lets other users read.
#[cfg(feature = "remote")]
fn lets_others_read(umask: u32) -> bool {
    umask & 0o004 == 0
}

/// Fails if a umask is given that would have no effect.
#[cfg(feature = "remote")]
fn check_umask(args: &MountArgs) -> Result<(), Failure> {
    let Some(umask) = args.umask else { return Ok(()) };
    if !Location::is_remote(&args.source) {
        return Err(Failure::usage(
            "`umask` is for object stores: the modes of a local SOURCE are those of its files",
        ));
    }
    if lets_others_read(umask) && args.flags.access != Access::All {
        return Err(Failure::usage("`umask` has no effect without `-o allow_other`"));
    }
    Ok(())
}

/// Checks the arguments, opens the source and mounts it.
fn start(args: &MountArgs) -> Result<(Mounted, Receiver<Event>), Failure> {
    let Prepared {
        source,
        place,
        tree,
        threads,
        _lock,
    } = prepare(args)?;
    let flags = &args.flags;
    let defaults = MountOptions::default();
    let read_ahead = matches!(source, Location::Local(_));
    let name = match source {
        Location::Local(path) => path.into_os_string(),
        Location::Remote(url) => url.into(),
    };
    let options = MountOptions {
        fs_name: flags.fs_name.clone().unwrap_or(name),
        subtype: flags.subtype.clone().unwrap_or(defaults.subtype),
        access: flags.access,
        threads,
        read_ahead,
        no_exec: flags.no_exec,
        no_atime: flags.no_atime,
        auto_unmount: flags.auto_unmount,
    };
    let (sender, events) = channel();
    // Before mounting, so that no signal can end the process and leave a dead mount.
    watch_signals(sender.clone(), args.foreground)
        .map_err(|error| Failure::new(format!("cannot watch signals: {error}")))?;
    let filesystem = FileSystem::new(tree);
    let mounted = match &place {
        Place::Directory(mountpoint) => fuse::mount(filesystem, mountpoint, &options),
        Place::Descriptor(number) => fuse::serve_descriptor(filesystem, *number, &options),
    };
    let shown = match &place {
        Place::Directory(mountpoint) => mountpoint,
        Place::Descriptor(_) => &args.mountpoint,
    };
    let mounted =
        mounted.map_err(|error| Failure::new(format!("cannot mount on {}: {error}", show_path(shown))))?;
    log::info!(
        "{} is mounted on {}",
        show_path(Path::new(&options.fs_name)),
        show_path(shown)
    );
    let ended = mounted.ended();
    thread::spawn(move || sender.send(Event::Ended(ended.wait())));
    Ok((mounted, events))
}

/// All signals that end the process by default, except those for its own faults.
fn fatal_signals() -> impl Iterator<Item = i32> {
    [
        SIGHUP,
        SIGINT,
        SIGQUIT,
        SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGSTKFLT,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGIO,
        libc::SIGPWR,
    ]
    .into_iter()
    .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

/// Starts a thread that sends signals as events.
fn watch_signals(sender: Sender<Event>, foreground: bool) -> io::Result<()> {
    // SIGHUP ends a foreground process with its terminal, but not with `nohup`, nor a service.
    let hang_up_ends = foreground && !ignores(SIGHUP) && std::env::var_os("NOTIFY_SOCKET").is_none();
    let mut signals = Signals::new(fatal_signals())?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGINT | SIGTERM | SIGQUIT => Event::End(signal),
                SIGHUP if hang_up_ends => Event::End(signal),
                SIGHUP => {
                    logging::reopen();
                    continue;
                }
                _ => {
                    log::info!("signal {signal} is ignored");
                    continue;
                }
            };
            if sender.send(event).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

/// Whether this process was started with `signal` ignored.
fn ignores(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Waits for a signal or an unmount.
fn serve(mut mounted: Mounted, events: &Receiver<Event>) -> Result<(), Failure> {
    match events.recv() {
        Ok(Event::Ended(Ok(()))) => Ok(()),
        Ok(Event::Ended(Err(error))) => Err(Failure::new(format!(
            "the connection to the kernel broke: {error}"
        ))),
        Ok(Event::End(signal)) => {
            log::info!("signal {signal}: unmounting");
            notify(&[NotifyState::Stopping]);
            let result = mounted.end();
            result.map_err(|error| {
                let mountpoint = mounted.mountpoint().map(show_path);
                Failure::new(format!(
                    "cannot unmount {}: {error}",
                    mountpoint.unwrap_or_default()
                ))
            })
        }
        Err(_) => Err(Failure::new("the threads that watch the mount are gone")),
    }
}

/// Changes `noexec` and `noatime` of a mount.
fn remount(args: &MountArgs) -> Result<(), Failure> {
    let flags = &args.flags;
    for warning in &flags.warnings {
        log::warn!("{warning}");
    }
    let name = show_path(&args.mountpoint);
    let fail = |error: io::Error| Failure::new(format!("{name}: {error}"));
    let path = fs::canonicalize(&args.mountpoint).map_err(fail)?;
    match mountinfo::mounted_at(&path).map_err(fail)? {
        Some(mount) if mount.fs_type == format!("fuse.{SUBTYPE}") => {}
        _ => return Err(Failure::new(format!("{name} is not a mount of tiledbfs"))),
    }
    // As a bind mount, because these are options of the mount, not of the file system.
    let mut options =
        MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    options.set(MsFlags::MS_NOEXEC, flags.no_exec);
    options.set(MsFlags::MS_NOATIME, flags.no_atime);
    let nothing: Option<&Path> = None;
    nix::mount::mount(nothing, &path, nothing, options, nothing)
        .map_err(|error| Failure::new(format!("cannot remount {name}: {}", io::Error::from(error))))
}

/// Locks MOUNTPOINT against other processes of this program while the result exists. Fails if another one has
/// the lock. None if it cannot be locked; [`check_mountpoint`] reports the cause.
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

/// The canonical path of MOUNTPOINT. Fails unless it is an empty directory on which nothing is mounted.
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
    if let Some(mount) = mountinfo::mounted_at(&path).map_err(explain)?
        // autofs waits there for a mount on demand.
        && mount.fs_type != "autofs"
    {
        let what = show_path(Path::new(&mount.source));
        return Err(Failure::new(if mount.fs_type == format!("fuse.{SUBTYPE}") {
            format!(
                "{name} is already a mount of tiledbfs, showing {what}; `tiledbfs unmount {name}` unmounts it"
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

/// Fails if one path contains the other: a mount inside its source shows itself, one above hides it.
fn check_nesting(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let (s, m) = (show_path(source), show_path(mountpoint));
    if source == mountpoint {
        Err(Failure::new(format!(
            "{s} cannot be mounted on itself: give another directory as the mount point"
        )))
    } else if source.starts_with(mountpoint) {
        Err(Failure::new(format!(
            "the source {s} is inside the mount point {m}, which would hide it"
        )))
    } else if mountpoint.starts_with(source) {
        Err(Failure::new(format!(
            "the mount point {m} is inside the source {s}: give a directory outside of it"
        )))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_source_and_mount_point_are_refused() {
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

    #[test]
    fn descriptors_are_numbers_in_dev_fd() {
        for (path, number) in [
            ("/dev/fd/3", Some(3)),
            ("/dev/fd/0", Some(0)),
            ("/dev/fd/12", Some(12)),
            ("/dev/fd/", None),
            ("/dev/fd/+3", None),
            ("/dev/fd/3/", None),
            ("/dev/fd/99999999999", None),
            ("/dev/fdx/3", None),
            ("dev/fd/3", None),
        ] {
            assert_eq!(descriptor(Path::new(path)), number, "{path}");
        }
    }
}
