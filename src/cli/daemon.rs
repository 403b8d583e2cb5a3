//! Background mounts: a second process of this program serves the mount; the first waits until it answers.
//!
//! The second process is started, not forked, because the first may have threads by then. They talk over a
//! socket that is the second one's stdout:
//!
//! | background process | first process |
//! |---|---|
//! | sends `mounted`; or `failed MESSAGE`, and ends | |
//! | | looks at the root of the mount; sends `go`, or closes the socket |
//! | closes stdin, stdout and stderr, sends `ready`; unmounts and ends if the socket was closed | |
//! | | ends with success |

use super::{Failure, show_path};
use crate::fuse;
use crate::printable::escape;
use crate::storage::mountinfo;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The hidden option that marks the background process.
pub(super) const BACKGROUND_FLAG: &str = "in-background";

/// Starts the background process with `arguments`, and waits until its mount on `mountpoint` answers. If that
/// is a descriptor, nobody knows where it is mounted; it is passed on, and its caller has to look.
pub(super) fn launch(
    arguments: &[OsString],
    mountpoint: &Path,
    descriptor: Option<RawFd>,
) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::new(format!("cannot go into the background: {error}"));
    close_descriptors_on_exec(descriptor).map_err(cannot)?;
    let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
    let mut child = start(arguments, theirs.into()).map_err(cannot)?;
    let mut input = BufReader::new(&ours);
    let message = receive(&mut input);
    let failure = match message.split_once(' ').unwrap_or((&message, "")) {
        ("mounted", _) => match descriptor
            .map_or_else(|| list_root(mountpoint), |_| Ok(()))
            .and_then(|()| (&ours).write_all(b"go\n"))
        {
            Ok(()) if receive(&mut input) == "ready" => return Ok(()),
            Ok(()) => None,
            Err(error) => Some(format!(
                "{}: the new mount does not answer: {error}",
                show_path(mountpoint)
            )),
        },
        ("failed", message) => Some(message.to_owned()),
        _ => None,
    };
    // The background process sees this and unmounts.
    drop(input);
    drop(ours);
    let failure = failure.unwrap_or_else(|| match wait(&mut child) {
        Some(status) => format!("the background process ended unexpectedly ({status})"),
        None => "the background process ended unexpectedly".to_owned(),
    });
    wait(&mut child);
    if message == "mounted" && descriptor.is_none() {
        clear(mountpoint);
    }
    Err(Failure::new(failure))
}

/// Sets close-on-exec on inherited descriptors but `kept`: else the caller's locks and pipes would stay open.
fn close_descriptors_on_exec(kept: Option<RawFd>) -> io::Result<()> {
    let names = fs::read_dir("/proc/self/fd")?.map(|entry| entry.map(|entry| entry.file_name()));
    for name in names.collect::<io::Result<Vec<OsString>>>()? {
        let Some(descriptor) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // SAFETY: a system call without pointers, which only changes what child processes inherit.
        if descriptor > 2
            && kept != Some(descriptor)
            && unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0
            && let error = io::Error::last_os_error()
            // The descriptor of the listing itself is closed by now.
            && error.raw_os_error() != Some(libc::EBADF)
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Starts the program with [`BACKGROUND_FLAG`] inserted after the subcommand, which is the second argument.
fn start(arguments: &[OsString], stdout: OwnedFd) -> io::Result<Child> {
    let (subcommand, rest) = match arguments {
        [_, subcommand, rest @ ..] => (subcommand, rest),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let executable = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    Command::new(executable)
        .arg0("tiledbfs")
        .arg(subcommand)
        .arg(format!("--{BACKGROUND_FLAG}"))
        .args(rest)
        // The service manager expects notifications from the first process.
        .env_remove("NOTIFY_SOCKET")
        .stdout(Stdio::from(stdout))
        .spawn()
}

/// One line without its newline; empty if the other side is gone.
fn receive(input: &mut impl BufRead) -> String {
    let mut line = Vec::new();
    let _ = input.read_until(b'\n', &mut line);
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// Checks through the kernel that the root of the mount can be listed. A group with damaged details cannot,
/// but other files of it are there.
fn list_root(mountpoint: &Path) -> io::Result<()> {
    fs::metadata(mountpoint)?;
    match fs::read_dir(mountpoint)?.next().transpose() {
        Err(error) if error.raw_os_error() != Some(libc::EIO) => Err(error),
        _ => Ok(()),
    }
}

fn wait(child: &mut Child) -> Option<String> {
    child.wait().ok().map(|status| status.to_string())
}

/// Unmounts the dead mount of a process that has ended.
fn clear(mountpoint: &Path) {
    let Ok(path) = super::unmount::resolve(mountpoint) else {
        return;
    };
    if let Ok(Some(mount)) = mountinfo::mounted_at(&path)
        && mount.fs_type.starts_with("fuse.")
        && fuse::is_dead(&path)
    {
        let _ = fuse::unmount_path(&path, true);
    }
}

/// The background process's end of the socket.
pub(super) struct Caller {
    socket: UnixStream,
}

impl Caller {
    /// Uses stdout as the socket.
    pub(super) fn new() -> io::Result<Self> {
        let socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Caller { socket })
    }

    /// Reports why nothing is mounted.
    pub(super) fn failed(mut self, failure: &Failure) {
        // One line, because that is a message of this protocol.
        let _ = writeln!(self.socket, "failed {}", escape(&failure.message));
    }

    /// Reports the mount and waits until the first process has looked at it. Then calls `before_detach`, and
    /// detaches from the terminal and the standard streams. Fails if the first process is gone.
    pub(super) fn mounted(mut self, before_detach: impl FnOnce()) -> io::Result<()> {
        self.socket.write_all(b"mounted\n")?;
        if receive(&mut BufReader::new(&self.socket)) != "go" {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Not earlier: with autofs, only the process group that mounts may access the mount point.
        let _ = nix::unistd::setsid();
        std::env::set_current_dir("/")?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        before_detach();
        nix::unistd::dup2_stdin(&null)?;
        nix::unistd::dup2_stdout(&null)?;
        nix::unistd::dup2_stderr(&null)?;
        self.socket.write_all(b"ready\n")
    }
}
