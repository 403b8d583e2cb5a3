//! Writing to stdout, for as long as somebody reads.

use super::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// How writing ends before its time.
pub enum Stop {
    /// Nobody reads on, as with `| head`: the end, but no failure.
    Closed,
    /// It cannot be written.
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

/// Turns a reader's going away into success.
pub fn finish(result: Result<(), Stop>) -> Result<(), Failure> {
    match result {
        Ok(()) | Err(Stop::Closed) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// stdout without the buffer of the standard library, which looks for the ends of lines.
pub fn stdout() -> Result<File, Failure> {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Ok(descriptor.into()),
        Err(error) => Err(Failure::new(format!("cannot write: {error}"))),
    }
}

/// A bar on stderr that counts bytes, whose length is not known yet; hidden where stderr is no terminal.
pub fn progress_bar() -> ProgressBar {
    let template = "[{bar:24}] {percent:>3}%  {bytes} of {total_bytes}  {wide_msg}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style.progress_chars("#>-"))
}

/// What went wrong of several things that are done all the same: the last is how the program ends, those
/// before it are shown at once.
#[derive(Default)]
pub struct Failures {
    last: Option<Failure>,
    count: u64,
}

impl Failures {
    /// Notes one more.
    pub fn add(&mut self, failure: Failure) {
        self.count += 1;
        if let Some(before) = self.last.replace(failure) {
            before.show();
        }
    }

    /// Notes one, if it is one.
    pub fn check(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.add(failure);
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Success if there was none.
    pub fn result(self) -> Result<(), Failure> {
        self.last.map_or(Ok(()), Err)
    }
}
