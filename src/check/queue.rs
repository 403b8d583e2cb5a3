//! A stack of jobs that several threads work on.
//!
//! Jobs make more jobs: the job of a directory makes one for each array in it, that of an array one for each
//! fragment, and so on down to runs of tiles. The newest job is done first, as in a depth-first walk, which
//! keeps the stack short.

use super::{Checker, Kind, Problem};
use crate::error::ErrorKind;
use crate::runtime::lock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};

/// Checks one thing, and may push more jobs.
pub(super) type Job = Box<dyn FnOnce(&Checker) + Send>;

/// The jobs that wait, and the number of those that run.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    waiting: Vec<Job>,
    running: usize,
}

impl Queue {
    /// Adds jobs. The first of them is the next to be done.
    pub(super) fn push(&self, jobs: Vec<Job>) {
        lock(&self.state).waiting.extend(jobs.into_iter().rev());
        self.changed.notify_all();
    }

    /// Does jobs until none waits and none runs, since a running job could push more. A panic in a job is
    /// reported as a problem.
    pub(super) fn work(&self, checker: &Checker) {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.waiting.pop() {
                state.running += 1;
                drop(state);
                if catch_unwind(AssertUnwindSafe(|| job(checker))).is_err() {
                    let (kind, path) = (Kind::Error(ErrorKind::Internal), checker.show("".as_ref()));
                    let message = "internal error: a check panicked; this is a bug";
                    checker.report(Problem::new(kind, path, message));
                }
                state = lock(&self.state);
                state.running -= 1;
                if state.running == 0 {
                    self.changed.notify_all();
                }
            } else if state.running == 0 {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
