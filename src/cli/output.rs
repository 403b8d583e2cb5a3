//! Output on stdout and stderr, and failures.

use super::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

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

/// stdout without the line buffer of the standard library.
pub fn stdout() -> Result<File, Failure> {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Ok(descriptor.into()),
        Err(error) => Err(Failure::new(format!("cannot write: {error}"))),
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
