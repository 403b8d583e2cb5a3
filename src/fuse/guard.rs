//! Turns failures of operations into an errno for the caller and a report.

use crate::error::{Error, ErrorKind, panic_message};
use crate::runtime::stats::Stats;
use crate::tree::ErrorLog;
use fuser::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Counts and logs errors.
pub(super) struct Reporter {
    errors: Arc<ErrorLog>,
    stats: Arc<Stats>,
}

impl Reporter {
    pub(super) fn new(errors: Arc<ErrorLog>, stats: Arc<Stats>) -> Self {
        Reporter { errors, stats }
    }

    /// Counts and logs the `error` of an operation on `path`.
    pub(super) fn report(&self, path: &str, error: &Error) {
        self.errors.report(path, error, &self.stats);
    }

    /// Reports an error inside an existing file or directory. Returns its errno, but never ENOENT, which
    /// would mean that the file itself does not exist.
    pub(super) fn inside(&self, path: &str, error: &Error) -> Errno {
        self.report(path, error);
        match error.errno() {
            errno if error.kind() == ErrorKind::Abandoned => Errno::from_i32(errno),
            libc::ENOENT | libc::ENOTDIR | libc::EINVAL | libc::EINTR | libc::EAGAIN => Errno::EIO,
            // The source's connection broke. Passed on, these would mean that this daemon has died.
            libc::ENOTCONN | libc::ECONNABORTED => Errno::EIO,
            // The range that the kernel accepts.
            errno @ 1..=511 => Errno::from_i32(errno),
            _ => Errno::EIO,
        }
    }

    /// Runs `operation`; a panic in it becomes EIO and a report about `path`.
    pub(super) fn guard<T>(
        &self,
        name: &str,
        path: impl Fn() -> String,
        operation: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // Unwind safe: shared state is behind locks that recover from poisoning, and changes are atomic.
        catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|panic| {
            let error = Error::internal(format!("panic in {name}: {}", panic_message(&*panic)));
            self.report(&path(), &error);
            Err(Errno::EIO)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> Reporter {
        Reporter::new(Arc::default(), Arc::default())
    }

    fn lines(reporter: &Reporter) -> usize {
        let (text, _) = reporter.errors.snapshot();
        text.iter().filter(|byte| **byte == b'\n').count()
    }

    #[test]
    fn repeated_errors_are_logged_once_and_counted() {
        let reporter = reporter();
        let error = Error::corrupt("bad");
        for _ in 0..10 {
            reporter.report("a", &error);
        }
        reporter.report("b", &error);
        reporter.report("a", &Error::corrupt("worse"));
        assert_eq!((lines(&reporter), reporter.stats.errors.get()), (3, 12));
    }

    #[test]
    fn inner_errors_never_become_enoent() {
        let reporter = reporter();
        let code = |error: Error| reporter.inside("a", &error).code();
        assert_eq!(code(Error::not_found("x")), libc::EIO);
        assert_eq!(code(Error::new(ErrorKind::WrongKey, "x")), libc::EACCES);
        assert_eq!(code(Error::new(ErrorKind::Io(libc::ESTALE), "x")), libc::ESTALE);
        assert_eq!(code(Error::new(ErrorKind::Io(libc::ENOTCONN), "x")), libc::EIO);
        assert_eq!(code(Error::new(ErrorKind::Io(-5), "x")), libc::EIO);
        assert_eq!(code(Error::new(ErrorKind::Io(100_000), "x")), libc::EIO);
    }

    #[test]
    fn a_panic_becomes_eio() {
        let reporter = reporter();
        let result: Result<(), _> = reporter.guard("read", || "a".into(), || panic!("no {}", 1));
        assert_eq!(result.unwrap_err().code(), libc::EIO);
        assert_eq!(lines(&reporter), 1);
    }
}
