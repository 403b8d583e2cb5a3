//! The threads that make answers. They run synchronous code, as the threads of a mount do.

use crate::error::{Error, Result, panic_message};
use crate::runtime::lock;
use crate::runtime::requester::{Requester, on_behalf_of};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A number of threads, and the jobs that wait for one, in their order. The threads end with the process.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    more: Condvar,
}

impl Pool {
    /// Starts `threads` threads.
    pub fn new(threads: usize) -> Result<Pool> {
        let shared: Arc<Shared> = Arc::default();
        for _ in 0..threads {
            let shared = shared.clone();
            let named = thread::Builder::new().name("answers".to_owned());
            named
                .spawn(move || shared.work())
                .map_err(|error| Error::io(&error))?;
        }
        Ok(Pool { shared })
    }

    /// Does `work` for the client who has gone once `gone` is set. A panic becomes an error. Nothing is sent
    /// if the client is gone before a thread is free.
    pub fn run<T: Send + 'static>(
        &self,
        gone: &Arc<AtomicBool>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (sender, receiver) = oneshot::channel();
        let gone = gone.clone();
        let job = move || {
            if gone.load(Ordering::Relaxed) {
                return;
            }
            // Unwind safe: shared state is behind locks that recover from poisoning, and changes are atomic.
            let work = AssertUnwindSafe(|| on_behalf_of(Requester::Client(gone), work));
            let result = catch_unwind(work).unwrap_or_else(|panic| {
                let message = panic_message(&*panic);
                Err(Error::internal(format!("panic in an answer: {message}")))
            });
            // The client may be gone by now.
            let _ = sender.send(result);
        };
        lock(&self.shared.jobs).push_back(Box::new(job));
        self.shared.more.notify_one();
        receiver
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let jobs = lock(&self.jobs);
            let waited = self.more.wait_while(jobs, |jobs| jobs.is_empty());
            let job = waited.unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(job) = job {
                job();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_panics_are_errors_and_who_left_gets_nothing() {
        let pool = Pool::new(2).unwrap();
        let here: Arc<AtomicBool> = Arc::default();
        let all: Vec<_> = (0..100).map(|n| pool.run(&here, move || Ok(n))).collect();
        for (n, receiver) in all.into_iter().enumerate() {
            assert_eq!(receiver.blocking_recv().unwrap().unwrap(), n);
        }
        let panicked = pool
            .run(&here, || -> Result<()> { panic!("no {}", 1) })
            .blocking_recv();
        assert!(panicked.unwrap().unwrap_err().to_string().contains("no 1"));
        let gone = Arc::new(AtomicBool::new(true));
        assert!(pool.run(&gone, || Ok(())).blocking_recv().is_err());
    }
}
