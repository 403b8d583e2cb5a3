//! The errors in `.tiledbfs/errors.jsonl`.

use crate::calendar::now;
use crate::describe::object;
use crate::error::{Error, ErrorKind};
use crate::runtime::lock;
use crate::runtime::stats::Stats;
use log::Level;
use std::collections::HashMap;
use std::sync::Mutex;

/// The most causes that are kept.
const MAX_CAUSES: usize = 1000;

/// Each cause is logged at most once in this many milliseconds.
const LOG_INTERVAL: u64 = 1000;

/// The most recent causes of errors, one line of JSON each, however many reads a cause makes fail.
#[derive(Debug, Default)]
pub struct ErrorLog {
    state: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    causes: HashMap<String, Cause>,
    /// Number of errors so far.
    seen: u64,
}

/// A cause of errors.
#[derive(Debug)]
struct Cause {
    error: Error,
    /// The first virtual file that it affected.
    path: String,
    /// Times of the first and last occurrence in milliseconds since the Unix epoch, and their number.
    first: u64,
    last: u64,
    count: u64,
    /// [`Inner::seen`] at the last occurrence.
    order: u64,
    /// Time of the last log message.
    logged: u64,
}

impl ErrorLog {
    /// [Records](ErrorLog::record) and counts the error of an operation on `path`.
    pub fn report(&self, path: &str, error: &Error, stats: &Stats) {
        if self.record(path, error) {
            stats.errors.add(1);
        }
    }

    /// Records and logs an error for the virtual file `path`, which is relative to the root of the tree.
    /// False if who asked for it is gone: then nobody needs it.
    pub fn record(&self, path: &str, error: &Error) -> bool {
        if error.kind() == ErrorKind::Abandoned {
            log::debug!("{path}: {error}");
            return false;
        }
        let now = now();
        // An error without a file of the source is about the virtual file.
        let key = match error.file() {
            Some(_) => format!("{:?} {error}", error.kind()),
            None => format!("{:?} {error} {path}", error.kind()),
        };
        let mut state = lock(&self.state);
        state.seen += 1;
        let order = state.seen;
        let mut silent = false;
        if let Some(cause) = state.causes.get_mut(&key) {
            silent = is_recent(cause.logged, now);
            if !silent {
                cause.logged = now;
            }
            cause.last = now;
            cause.count += 1;
            cause.order = order;
        } else {
            if state.causes.len() >= MAX_CAUSES {
                state.evict_one();
            }
            let cause = Cause {
                error: error.clone(),
                path: path.to_owned(),
                first: now,
                last: now,
                count: 1,
                order,
                logged: now,
            };
            state.causes.insert(key, cause);
        }
        drop(state);
        let level = if silent { Level::Debug } else { Level::Error };
        match path {
            "" => log::log!(level, "{error}"),
            _ => log::log!(level, "{path}: {error}"),
        }
        true
    }

    /// All lines, the most recent cause last, and a number that changes with them.
    pub fn snapshot(&self) -> (Vec<u8>, u64) {
        let state = lock(&self.state);
        let mut causes: Vec<&Cause> = state.causes.values().collect();
        causes.sort_by_key(|cause| cause.order);
        let lines = causes.into_iter().map(|cause| {
            let error = &cause.error;
            let line = object!({
                "time": cause.first,
                "last": cause.last,
                "count": cause.count,
                "path": &*cause.path,
                "file": error.file(),
                "part": error.part(),
                "offset": error.offset(),
                "cause": error.message(),
                "error": error.to_string(),
            });
            format!("{line}\n")
        });
        (lines.collect::<String>().into_bytes(), state.seen)
    }
}

/// Whether a cause that was logged at `logged` is not logged again yet. The clock may have been put back.
fn is_recent(logged: u64, now: u64) -> bool {
    now.abs_diff(logged) < LOG_INTERVAL
}

impl Inner {
    /// Removes the oldest cause of the file with the most, so that one damaged file does not displace others.
    fn evict_one(&mut self) {
        let mut of_file: HashMap<Option<&str>, u64> = HashMap::new();
        for cause in self.causes.values() {
            *of_file.entry(cause.error.file()).or_default() += 1;
        }
        let worst = self.causes.iter().max_by_key(|(_, cause)| {
            let count = of_file.get(&cause.error.file()).copied();
            (count, std::cmp::Reverse(cause.order))
        });
        if let Some(key) = worst.map(|(key, _)| key.clone()) {
            self.causes.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(log: &ErrorLog) -> Vec<serde_json::Value> {
        let text = String::from_utf8(log.snapshot().0).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn each_cause_is_one_counted_line() {
        let log = ErrorLog::default();
        let missing = Error::corrupt("the file is missing").in_file("a/a0.tdb");
        log.record("other", &Error::corrupt("x").in_file("b"));
        for tile in 0..5000 {
            log.record(&format!("a/tiles/{tile}.data.bin"), &missing);
        }
        // Without a file of the source, the virtual file is part of the cause.
        log.record("c", &Error::corrupt("y"));
        log.record("d", &Error::corrupt("y"));
        let lines = lines(&log);
        let counts: Vec<_> = lines.iter().map(|line| line["count"].as_u64().unwrap()).collect();
        assert_eq!(counts, [1, 5000, 1, 1]);
        assert_eq!(lines[1]["path"], "a/tiles/0.data.bin");
        assert!(lines[1]["last"].as_u64() >= lines[1]["time"].as_u64());
    }

    #[test]
    fn a_cause_is_logged_again_after_the_clock_was_put_back() {
        let second = 1000;
        for (logged, now, silent) in [
            (10 * second, 10 * second + 1, true),
            (10 * second, 11 * second, false),
            (10 * second, 9 * second + 1, true),
            (10 * second, 5 * second, false),
        ] {
            assert_eq!(is_recent(logged, now), silent, "{logged} {now}");
        }
    }

    #[test]
    fn many_causes_in_one_file_do_not_displace_others() {
        let log = ErrorLog::default();
        log.record("x", &Error::corrupt("x").in_file("b"));
        for offset in 0..5000 {
            log.record("a", &Error::corrupt("y").at(offset).in_file("a0.tdb"));
        }
        let lines = lines(&log);
        assert_eq!((lines.len(), &lines[0]["file"]), (MAX_CAUSES, &json!("b")));
        assert_eq!(lines[MAX_CAUSES - 1]["offset"], 4999);
    }
}
