//! Single flight for requests: all threads that want a result wait for one task. Each may give up waiting.

use crate::error::Result;
use crate::lock::lock;
use crate::requester::{abandoned, wait_on};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;
use tokio::task::AbortHandle;

/// The future result of one task.
pub(super) struct Flight<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

struct State<T> {
    result: Option<Result<T>>,
    /// Threads that wait for it.
    waiting: usize,
    /// Aborted when nobody waits any more; None for work that then goes on.
    task: Option<AbortHandle>,
}

impl<T: Clone> Flight<T> {
    /// A flight without a result yet.
    pub(super) fn new() -> Self {
        Flight {
            state: Mutex::new(State {
                result: None,
                waiting: 0,
                task: None,
            }),
            done: Condvar::new(),
        }
    }

    /// A flight with a result.
    pub(super) fn arrived(value: T) -> Self {
        let flight = Flight::new();
        flight.finish(Ok(value));
        flight
    }

    /// Aborts `task` once all waiting threads have given up.
    pub(super) fn abort_when_abandoned(&self, task: AbortHandle) {
        lock(&self.state).task = Some(task);
    }

    /// Sets the result for all threads that wait now or later.
    pub(super) fn finish(&self, result: Result<T>) {
        lock(&self.state).result.get_or_insert(result);
        self.done.notify_all();
    }

    /// Waits for the result until `end`. Returns whether it has arrived.
    pub(super) fn arrives_by(&self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self
            .done
            .wait_timeout_while(lock(&self.state), left, |state| state.result.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.result.is_some()
    }

    /// Waits for the result. `Abandoned` if this thread's requester was killed or has a signal to handle, or
    /// if the task was aborted. Calls `given_up` if this was the last waiting thread and the task is aborted.
    pub(super) fn wait(&self, given_up: impl FnOnce()) -> Result<T> {
        let mut state = lock(&self.state);
        state.waiting += 1;
        let result = loop {
            if let Some(result) = &state.result {
                break result.clone();
            }
            match wait_on(&self.done, state) {
                Ok(locked) => state = locked,
                Err(error) => {
                    state = lock(&self.state);
                    break state.result.clone().unwrap_or(Err(error));
                }
            }
        };
        state.waiting = state.waiting.saturating_sub(1);
        if state.waiting == 0
            && state.result.is_none()
            && let Some(task) = state.task.take()
        {
            state.result = Some(Err(abandoned()));
            drop(state);
            task.abort();
            given_up();
            self.done.notify_all();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requester::is_of_others;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn waiting_and_later_threads_get_the_result() {
        let flight = Arc::new(Flight::new());
        let waiting: Vec<_> = (0..3)
            .map(|_| flight.clone())
            .map(|flight| std::thread::spawn(move || flight.wait(|| ())))
            .collect();
        flight.finish(Ok(7));
        for thread in waiting {
            assert_eq!(thread.join().unwrap().unwrap(), 7);
        }
        assert_eq!(flight.wait(|| ()).unwrap(), 7);
    }

    #[test]
    fn the_task_is_aborted_when_the_last_thread_gives_up() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let flight: Flight<u8> = Flight::new();
        let task = runtime.spawn(async { tokio::time::sleep(Duration::from_secs(1000)).await });
        flight.abort_when_abandoned(task.abort_handle());
        // A requester that has ended needs no answer.
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let given_up = AtomicBool::new(false);
        let error = crate::requester::on_behalf_of(ended.id(), || {
            flight
                .wait(|| given_up.store(true, Ordering::Relaxed))
                .unwrap_err()
        });
        assert_eq!(error.errno(), libc::EINTR);
        assert!(given_up.load(Ordering::Relaxed));
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        // A later thread is not interrupted, but learns that the others were.
        assert!(is_of_others(&flight.wait(|| ()).unwrap_err()));
    }
}
