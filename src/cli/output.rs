//! Output on stdout and stderr, and failures.

use super::Failure;
use crate::printable::escape;
use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why output ends early.
pub enum Stop {
    /// The reader has closed the pipe, as with `| head`, or the user has interrupted. Not a failure.
    Closed,
    /// A failure to report.
    Failed(Failure),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Stop::Closed
        } else {
            Stop::Failed(Failure::new(format!("cannot write: {error}")))
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

/// Turns a closed pipe into success.
pub fn finish(result: Result<(), Stop>) -> Result<(), Failure> {
    match result {
        Ok(()) | Err(Stop::Closed) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// Whether the program was started without a stdout.
static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the standard library opens /dev/null in place of a stdout that is closed.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: a system call without pointers, which changes nothing.
        if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0 {
            STDOUT_IS_CLOSED.store(true, Ordering::Relaxed);
        }
    }
    look
};

/// stdout without the line buffer of the standard library, which also hides errors. It is no copy of the
/// descriptor: to close that would take away what [`close_stdout`] is told.
#[derive(Clone, Copy)]
pub struct Stdout {
    /// Whether it is a terminal.
    terminal: bool,
}

/// stdout. Fails if it is closed.
pub fn stdout() -> Result<Stdout, Failure> {
    if STDOUT_IS_CLOSED.load(Ordering::Relaxed) {
        return Err(Failure::new("cannot write: stdout is closed"));
    }
    Ok(Stdout {
        terminal: io::stdout().is_terminal(),
    })
}

/// Fails if what was written to stdout is lost.
pub fn close_stdout() -> Result<(), Failure> {
    if STDOUT_IS_CLOSED.load(Ordering::Relaxed) {
        return Ok(());
    }
    close_copy(io::stdout()).map_err(|error| Failure::new(format!("cannot write: {error}")))
}

/// Closes a copy of a descriptor. NFS and file systems in FUSE may say only then that what was written is
/// lost, for instance because a disk was full.
pub fn close_copy(descriptor: impl AsFd) -> io::Result<()> {
    let copy = descriptor.as_fd().try_clone_to_owned()?;
    Ok(nix::unistd::close(copy)?)
}

impl Stdout {
    /// Writes the text of a command's help or version, with colours on a terminal.
    pub fn print(&mut self, text: &clap::Error) -> Result<(), Stop> {
        let text = text.render();
        let text = match self.terminal {
            true => text.ansi().to_string(),
            false => text.to_string(),
        };
        Ok(self.write_all(text.as_bytes())?)
    }

    /// Writes all bytes.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<(), Stop> {
        let mut stdout = *self;
        Ok(stdout.write_all(bytes)?)
    }

    /// How names are written.
    pub fn names(&self) -> Names {
        Names {
            escaped: self.terminal,
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(nix::unistd::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How names are written to stdout: escaped if that is a terminal, else as they are.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Whether they are escaped.
    pub escaped: bool,
}

impl Names {
    /// The name as it is written.
    pub fn show(self, name: &OsStr) -> Cow<'_, OsStr> {
        match self.escaped {
            true => Cow::Owned(escape(name.as_bytes()).into()),
            false => Cow::Borrowed(name),
        }
    }

    /// The name as it is written in text: escaped too if it is not UTF-8.
    pub fn show_in_text(self, name: &OsStr) -> String {
        match name.to_str() {
            Some(name) => self.show_text(name),
            None => escape(name.as_bytes()),
        }
    }

    /// The name as it is written in text.
    pub fn show_text(self, name: &str) -> String {
        match self.escaped {
            true => escape(name),
            false => name.to_owned(),
        }
    }
}

/// A progress bar for bytes on stderr, of unknown length so far; hidden if `quiet`, or unless stderr is a
/// terminal.
pub fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let template = "[{bar:24}] {percent:>3}%  {bytes} of {total_bytes}  {wide_msg}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style.progress_chars("#>-"))
}

/// Failures of independent steps. All but the last are shown at once; the last is the program's result.
#[derive(Default)]
pub struct Failures {
    last: Option<Failure>,
    count: u64,
}

impl Failures {
    /// Adds a failure.
    pub fn add(&mut self, failure: Failure) {
        self.count += 1;
        if let Some(before) = self.last.replace(failure) {
            before.show();
        }
    }

    /// Adds the failure in `result`, if there is one.
    pub fn check(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.add(failure);
        }
    }

    /// The number of failures.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last failure, or success.
    pub fn result(self) -> Result<(), Failure> {
        self.last.map_or(Ok(()), Err)
    }
}
