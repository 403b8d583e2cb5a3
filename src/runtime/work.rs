//! Long-running jobs: their progress, and those who wait for them. A job ends when nobody waits.

use crate::calendar::now;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::lock;
use crate::runtime::requester::{Requester, is_gone, requester};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Jobs that run longer are shown.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The interval of checks whether somebody still waits, in milliseconds.
const CHECK_INTERVAL: u64 = 100;

/// Those who wait, by object.
type Requesters = Arc<Mutex<HashMap<u64, Vec<Requester>>>>;

/// A job in progress.
pub struct Job {
    /// The path that it works for, relative to the source.
    pub path: String,
    /// What it does, for messages.
    pub what: &'static str,
    /// The total of steps.
    pub of: u64,
    /// Its start, in milliseconds since the Unix epoch.
    pub since: u64,
    done: AtomicU64,
    started: Instant,
    object: u64,
    requesters: Requesters,
    /// The last check whether somebody waits, in milliseconds after the start.
    looked: AtomicU64,
}

impl Job {
    /// Counts `steps` more as done. `Abandoned` once all who waited for the job are gone.
    pub fn advance(&self, steps: u64) -> Result<()> {
        self.done.fetch_add(steps, Ordering::Relaxed);
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if elapsed.saturating_sub(self.looked.load(Ordering::Relaxed)) < CHECK_INTERVAL {
            return Ok(());
        }
        self.looked.store(elapsed, Ordering::Relaxed);
        let requesters = lock(&self.requesters)
            .get(&self.object)
            .cloned()
            .unwrap_or_default();
        if requesters.is_empty() || !requesters.iter().all(is_gone) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Abandoned,
            format!("{} was stopped, because nobody waits for it any more", self.what),
        ))
    }

    /// The steps done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        if took > SHOWN_AFTER {
            log::info!("{}: {} took {:.1} s", self.path, self.what, took.as_secs_f64());
        }
    }
}

/// Registers that somebody waits until this is dropped.
pub struct Waiting {
    object: u64,
    requester: Requester,
    requesters: Requesters,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut all = lock(&self.requesters);
        if let Some(requesters) = all.get_mut(&self.object) {
            if let Some(at) = requesters
                .iter()
                .position(|requester| *requester == self.requester)
            {
                requesters.swap_remove(at);
            }
            if requesters.is_empty() {
                all.remove(&self.object);
            }
        }
    }
}

/// All jobs in progress.
#[derive(Default)]
pub struct Work {
    jobs: Mutex<Vec<Weak<Job>>>,
    requesters: Requesters,
}

impl Work {
    /// Registers that this thread's requester waits for `object`, a number from
    /// [`crate::engine::Engine::number`]. To be called before it is known whether another thread works on the
    /// object.
    pub fn wait(&self, object: u64) -> Waiting {
        let requester = requester();
        lock(&self.requesters)
            .entry(object)
            .or_default()
            .push(requester.clone());
        Waiting {
            object,
            requester,
            requesters: self.requesters.clone(),
        }
    }

    /// Begins a job that makes `object`. It ends when the result is dropped.
    pub fn start(&self, object: u64, path: String, what: &'static str, of: u64) -> Arc<Job> {
        let job = Arc::new(Job {
            path,
            what,
            of,
            since: now(),
            done: AtomicU64::new(0),
            started: Instant::now(),
            object,
            requesters: self.requesters.clone(),
            looked: AtomicU64::new(0),
        });
        let mut jobs = lock(&self.jobs);
        jobs.retain(|job| job.strong_count() > 0);
        jobs.push(Arc::downgrade(&job));
        job
    }

    /// The jobs that have taken longer than a second.
    pub fn long(&self) -> Vec<Arc<Job>> {
        let jobs = lock(&self.jobs);
        let jobs = jobs.iter().filter_map(Weak::upgrade);
        jobs.filter(|job| job.started.elapsed() > SHOWN_AFTER).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::requester::{ended, on_behalf_of};

    #[test]
    fn what_takes_long_is_shown_until_it_is_done() {
        let work = Work::default();
        let job = work.start(1, "a".to_owned(), "merging", 10);
        job.advance(3).unwrap();
        assert!(work.long().is_empty());
        std::thread::sleep(SHOWN_AFTER + Duration::from_millis(20));
        let long = work.long();
        assert_eq!(
            long.iter().map(|job| (job.done(), job.of)).collect::<Vec<_>>(),
            [(3, 10)]
        );
        drop((job, long));
        assert!(work.long().is_empty());
    }

    #[test]
    fn who_was_killed_waits_no_more() {
        let work = Work::default();
        let job = work.start(1, String::new(), "merging", 10);
        let look = || {
            std::thread::sleep(Duration::from_millis(CHECK_INTERVAL + 20));
            job.advance(1)
        };
        look().unwrap();
        let gone = on_behalf_of(ended(), || work.wait(1));
        assert_eq!(look().unwrap_err().kind(), ErrorKind::Abandoned);
        let other = on_behalf_of(std::process::id(), || work.wait(1));
        look().unwrap();
        drop(gone);
        look().unwrap();
        drop(other);
        let gone = Arc::new(std::sync::atomic::AtomicBool::default());
        let client = on_behalf_of(Requester::Client(gone.clone()), || work.wait(1));
        look().unwrap();
        gone.store(true, Ordering::Relaxed);
        assert_eq!(look().unwrap_err().kind(), ErrorKind::Abandoned);
        drop(client);
        assert!(lock(&work.requesters).is_empty());
        assert_eq!(requester(), Requester::Unknown);
    }
}
