//! What takes long just now, for those who wait for it.

use super::time::now;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What takes longer than this is shown.
const LONG: Duration = Duration::from_secs(1);

/// Something that is under way.
pub struct Job {
    /// What it is done for, relative to the source.
    pub path: String,
    /// What is done.
    pub what: &'static str,
    /// How much there is to do, in a unit of its own.
    pub of: u64,
    /// When it began, in milliseconds since the Unix epoch.
    pub since: u64,
    done: AtomicU64,
    started: Instant,
}

impl Job {
    /// Notes that `steps` more are done.
    pub fn advance(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
    }

    /// How much is done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        if took > LONG {
            log::info!("{}: {} took {:.1} s", self.path, self.what, took.as_secs_f64());
        }
    }
}

/// All that is under way.
#[derive(Default)]
pub struct Work(Mutex<Vec<Weak<Job>>>);

impl Work {
    /// Begins something, which ends when it is dropped.
    pub fn start(&self, path: String, what: &'static str, of: u64) -> Arc<Job> {
        let job = Arc::new(Job {
            path,
            what,
            of,
            since: now(),
            done: AtomicU64::new(0),
            started: Instant::now(),
        });
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|job| job.strong_count() > 0);
        jobs.push(Arc::downgrade(&job));
        job
    }

    /// What has taken longer than a second already.
    pub fn long(&self) -> Vec<Arc<Job>> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.iter().filter_map(Weak::upgrade);
        jobs.filter(|job| job.started.elapsed() > LONG).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_shown_until_it_is_done() {
        let work = Work::default();
        let job = work.start("a".to_owned(), "merging", 10);
        job.advance(3);
        assert!(work.long().is_empty());
        std::thread::sleep(LONG + Duration::from_millis(20));
        let long = work.long();
        assert_eq!(
            long.iter().map(|job| (job.done(), job.of)).collect::<Vec<_>>(),
            [(3, 10)]
        );
        drop((job, long));
        assert!(work.long().is_empty());
    }
}
