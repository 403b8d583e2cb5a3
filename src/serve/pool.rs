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
    /// The line that it has left.
    line: Option<Arc<Line>>,
}

/// Jobs of which few are done at once: see [`Pool::run_in`].
#[derive(Default)]
pub struct Line(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Jobs that have left the line and are not done.
    left: usize,
    jobs: VecDeque<Job>,
}

impl Line {
    /// The job after one that is done.
    fn next(self: Arc<Self>) -> Option<Job> {
        let mut waiting = lock(&self.0);
        let Some(job) = waiting.jobs.pop_front() else {
            waiting.left -= 1;
            return None;
        };
        drop(waiting);
        let line = Some(self);
        Some(Job { line, ..job })
    }
}

/// A number of threads, and the jobs that wait for one, in their order. The threads end with the process.
#[derive(Clone)]
pub struct Pool {
    state: Arc<Mutex<State>>,
    in_line: usize,
}

#[derive(Default)]
struct State {
    jobs: Jobs,
    /// The threads that have nothing to do. The one that was busy last is the next: what it needs to decode
    /// is still in the processor's caches.
    idle: Vec<Thread>,
}

impl Pool {
    /// Starts `threads` threads, of which `in_line` do jobs of a line at once.
    pub fn new(threads: usize, in_line: usize) -> Result<Pool> {
        let state: Arc<Mutex<State>> = Arc::default();
        for _ in 0..threads {
            let state = state.clone();
            let named = thread::Builder::new().name("answers".to_owned());
            named
                .spawn(move || work(&state))
                .map_err(|error| Error::io(&error))?;
        }
        Ok(Pool { state, in_line })
    }

    /// Does `work` for the client who has gone once `gone` is set. A panic becomes an error. Nothing is sent
    /// if the client is gone before a thread is free.
    pub fn run<T: Send + 'static>(
        &self,
        gone: &Arc<AtomicBool>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (job, receiver) = Job::new(gone, work);
        self.start(job);
        receiver
    }

    /// Does `work` as [`Pool::run`] does. While enough threads do jobs of this line, one of them does it
    /// afterwards: one more would take a processor from those who send and receive what is made.
    pub fn run_in<T: Send + 'static>(
        &self,
        line: &Arc<Line>,
        gone: &Arc<AtomicBool>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (job, receiver) = Job::new(gone, work);
        let mut waiting = lock(&line.0);
        if waiting.left == self.in_line {
            waiting.jobs.push_back(job);
            return receiver;
        }
        waiting.left += 1;
        drop(waiting);
        let line = Some(line.clone());
        self.start(Job { line, ..job });
        receiver
    }

    /// Lets the next thread that is free do a job.
    fn start(&self, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.add(job);
        let idle = state.idle.pop();
        drop(state);
        if let Some(idle) = idle {
            idle.unpark();
        }
    }
}

impl Job {
    /// `work` and where its result will be.
    fn new<T: Send + 'static>(
        gone: &Arc<AtomicBool>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> (Job, oneshot::Receiver<Result<T>>) {
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
            line: None,
        };
        (job, receiver)
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
        let next = job.line.and_then(Line::next);
        state = lock(shared);
        // Nobody need be woken: this thread does the first job that waits.
        if let Some(next) = next {
            state.jobs.add(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_are_done_panics_are_errors_and_who_left_gets_nothing() {
        let pool = Pool::new(2, 2).unwrap();
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
        let pool = Pool::new(4, 4).unwrap();
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
    fn jobs_of_a_line_take_few_threads() {
        let pool = Pool::new(4, 2).unwrap();
        let line: Arc<Line> = Arc::default();
        let here: Arc<AtomicBool> = Arc::default();
        let own = || Ok(thread::current().id());
        for _ in 0..2 {
            let working: Vec<_> = (0..2)
                .map(|_| {
                    let (begun, begins) = channel();
                    let (free, waits) = channel::<()>();
                    let ended = pool.run_in(&line, &here, move || {
                        begun.send(thread::current().id()).unwrap();
                        Ok(waits.recv().is_err())
                    });
                    (begins.recv().unwrap(), free, ended)
                })
                .collect();
            let threads: Vec<_> = working.iter().map(|(thread, ..)| *thread).collect();
            let third = pool.run_in(&line, &here, own);
            let of_none = pool.run(&here, own).blocking_recv().unwrap().unwrap();
            assert!(!threads.contains(&of_none));
            for (_, free, ended) in working {
                drop(free);
                assert!(ended.blocking_recv().unwrap().unwrap());
            }
            assert!(threads.contains(&third.blocking_recv().unwrap().unwrap()));
        }
    }

    #[test]
    fn who_left_before_a_thread_is_free_takes_no_memory() {
        let pool = Pool::new(1, 1).unwrap();
        let (free, busy) = channel::<()>();
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
