//! The threads that make answers. They run synchronous code, as the threads of a mount do.

use crate::error::{Error, Result, panic_message};
use crate::runtime::lock;
use crate::runtime::requester::{Requester, on_behalf_of};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use tokio::sync::oneshot;

/// Work for a client who has gone once `gone` is set.
struct Job {
    gone: Arc<AtomicBool>,
    work: Box<dyn FnOnce() + Send>,
}

/// A number of threads, and the jobs that wait for one, in their order. The threads end with the process.
#[derive(Clone)]
pub struct Pool {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    jobs: Jobs,
    /// The threads that have nothing to do. The one that was busy last is the next: what it needs to decode
    /// is still in the processor's caches.
    idle: Vec<Thread>,
}

impl Pool {
    /// Starts `threads` threads.
    pub fn new(threads: usize) -> Result<Pool> {
        let state: Arc<Mutex<State>> = Arc::default();
        for _ in 0..threads {
            let state = state.clone();
            let named = thread::Builder::new().name("answers".to_owned());
            named
                .spawn(move || work(&state))
                .map_err(|error| Error::io(&error))?;
        }
        Ok(Pool { state })
    }

    /// Does `work` for the client who has gone once `gone` is set. A panic becomes an error. Nothing is sent
    /// if the client is gone before a thread is free.
    pub fn run<T: Send + 'static>(
        &self,
        gone: &Arc<AtomicBool>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (sender, receiver) = oneshot::channel();
        let requester = Requester::Client(gone.clone());
        let work = move || {
            // Unwind safe: shared state is behind locks that recover from poisoning, and changes are atomic.
            let work = AssertUnwindSafe(|| on_behalf_of(requester, work));
            let result = catch_unwind(work).unwrap_or_else(|panic| {
                let message = panic_message(&*panic);
                Err(Error::internal(format!("panic in an answer: {message}")))
            });
            // The client may be gone by now.
            let _ = sender.send(result);
        };
        let job = Job {
            gone: gone.clone(),
            work: Box::new(work),
        };
        let mut state = lock(&self.state);
        state.jobs.add(job);
        let idle = state.idle.pop();
        drop(state);
        if let Some(idle) = idle {
            idle.unpark();
        }
        receiver
    }
}

/// Jobs that wait for a thread.
#[derive(Default)]
struct Jobs(VecDeque<Job>);

impl Jobs {
    fn add(&mut self, job: Job) {
        // While all threads are busy, a client may ask for things and leave as often as it likes.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|waiting| !waiting.gone.load(Ordering::Relaxed));
            self.0.reserve(self.0.len().max(64));
        }
        self.0.push_back(job);
    }
}

/// What a thread does.
fn work(shared: &Mutex<State>) {
    let own = thread::current();
    let mut state = lock(shared);
    loop {
        let Some(job) = state.jobs.0.pop_front() else {
            state.idle.push(own.clone());
            drop(state);
            thread::park();
            state = lock(shared);
            // It is still there if nobody has woken this thread.
            state.idle.retain(|idle| idle.id() != own.id());
            continue;
        };
        drop(state);
        if !job.gone.load(Ordering::Relaxed) {
            (job.work)();
        }
        state = lock(shared);
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

    #[test]
    fn the_thread_that_was_busy_last_is_the_next() {
        let pool = Pool::new(4).unwrap();
        let here: Arc<AtomicBool> = Arc::default();
        let mut threads: Vec<_> = (0..100)
            .map(|_| {
                while lock(&pool.state).idle.len() < 4 {
                    thread::yield_now();
                }
                let ran = pool.run(&here, || Ok(thread::current().id()));
                ran.blocking_recv().unwrap().unwrap()
            })
            .collect();
        threads.dedup();
        assert_eq!(threads.len(), 1);
    }

    #[test]
    fn who_left_before_a_thread_is_free_takes_no_memory() {
        let pool = Pool::new(1).unwrap();
        let (free, busy) = std::sync::mpsc::channel::<()>();
        let here: Arc<AtomicBool> = Arc::default();
        let first = pool.run(&here, move || Ok(busy.recv().is_err()));
        let asked = Arc::new(());
        let mut waiting = Vec::new();
        for number in 0..10_000 {
            let gone = Arc::new(AtomicBool::new(number % 100 != 0));
            let question = asked.clone();
            let answer = pool.run(&gone, move || Ok(Arc::strong_count(&question) > 0));
            waiting.extend((number % 100 == 0).then_some(answer));
        }
        let kept = Arc::strong_count(&asked);
        assert!((101..1000).contains(&kept), "{kept}");
        drop(free);
        for answer in waiting.into_iter().chain([first]) {
            assert!(answer.blocking_recv().unwrap().unwrap());
        }
    }
}
