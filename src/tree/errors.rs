//! The most recent errors, shown in `.tiledbfs/errors.jsonl`.

use super::json::object;
use crate::array::time::now;
use crate::error::Error;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Causes kept.
const KEPT: usize = 1000;

/// A cause is logged once in this time, in milliseconds.
const SILENCE: u64 = 1000;

/// A bounded list of errors, one line of JSON for each cause: a missing file that makes thousands of others
/// fail takes one line.
#[derive(Debug, Default)]
pub struct ErrorLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    causes: HashMap<String, Cause>,
    /// How often any was seen.
    seen: u64,
}

/// One cause.
#[derive(Debug)]
struct Cause {
    error: Error,
    /// The virtual file that met it first.
    path: String,
    /// When it was seen first and last, in milliseconds since the Unix epoch, and how often.
    first: u64,
    last: u64,
    count: u64,
    /// [`State::seen`] when it was seen last.
    order: u64,
    /// When it was logged last.
    logged: u64,
}

impl ErrorLog {
    /// Notes that `error` was met while serving the virtual file `path` (relative to the root of the tree),
    /// and logs it.
    pub fn record(&self, path: &str, error: &Error) {
        let now = now();
        // What names no file of the source is about the virtual one.
        let key = match error.file() {
            Some(_) => format!("{:?} {error}", error.kind()),
            None => format!("{:?} {error} {path}", error.kind()),
        };
        let mut state = self.state();
        state.seen = state.seen.saturating_add(1);
        let order = state.seen;
        let mut silent = false;
        if let Some(cause) = state.causes.get_mut(&key) {
            silent = now.saturating_sub(cause.logged) < SILENCE;
            if !silent {
                cause.logged = now;
            }
            cause.last = now;
            cause.count = cause.count.saturating_add(1);
            cause.order = order;
        } else {
            if state.causes.len() >= KEPT {
                state.forget_one();
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
        let level = if silent {
            log::Level::Debug
        } else {
            log::Level::Error
        };
        log::log!(level, "{path}: {error}");
    }

    /// All lines, the most recent cause last, and a number that changes whenever they do.
    pub fn snapshot(&self) -> (Vec<u8>, u64) {
        let state = self.state();
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes room: forgets the oldest cause of the file that has most, so that one damaged file does not
    /// displace the others.
    fn forget_one(&mut self) {
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
    fn a_cause_is_one_line_and_counted() {
        let log = ErrorLog::default();
        let missing = Error::corrupt("the file is missing").in_file("a/a0.tdb");
        log.record("other", &Error::corrupt("x").in_file("b"));
        for tile in 0..5000 {
            log.record(&format!("a/tiles/{tile}.data.bin"), &missing);
        }
        // Without a file of the source it is about the virtual one.
        log.record("c", &Error::corrupt("y"));
        log.record("d", &Error::corrupt("y"));
        let lines = lines(&log);
        let counts: Vec<_> = lines.iter().map(|line| line["count"].as_u64().unwrap()).collect();
        assert_eq!(counts, [1, 5000, 1, 1]);
        assert_eq!(lines[1]["path"], "a/tiles/0.data.bin");
        assert!(lines[1]["last"].as_u64() >= lines[1]["time"].as_u64());
    }

    #[test]
    fn many_causes_in_one_file_do_not_drive_out_the_others() {
        let log = ErrorLog::default();
        log.record("x", &Error::corrupt("x").in_file("b"));
        for offset in 0..5000 {
            log.record("a", &Error::corrupt("y").at(offset).in_file("a0.tdb"));
        }
        let lines = lines(&log);
        assert_eq!((lines.len(), &lines[0]["file"]), (KEPT, &json!("b")));
        assert_eq!(lines[KEPT - 1]["offset"], 4999);
    }
}
