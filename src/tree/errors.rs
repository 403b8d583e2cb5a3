//! The most recent errors, shown in `.tiledbfs/errors.jsonl`.

use crate::error::Error;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines kept; older ones are dropped.
const KEPT: usize = 1000;

/// A bounded list of errors, each a line of JSON.
#[derive(Debug, Default)]
pub struct ErrorLog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    /// Changes with every line.
    version: u64,
}

impl ErrorLog {
    /// Adds a line about `error`, met while serving the virtual file `path` (relative to the root of the tree), and logs it.
    pub fn record(&self, path: &str, error: &Error) {
        log::error!("{path}: {error}");
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as u64);
        let line = json!({
            "time": time,
            "path": path,
            "file": error.file(),
            "part": error.part(),
            "offset": error.offset(),
            "cause": error.message(),
            "error": error.to_string(),
        });
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if state.lines.len() == KEPT {
            state.lines.pop_front();
        }
        state.lines.push_back(format!("{line}\n"));
        state.version += 1;
    }

    /// All lines, oldest first, and a number that is another one whenever they differ.
    pub fn snapshot(&self) -> (Vec<u8>, u64) {
        let state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        (
            state.lines.iter().flat_map(|line| line.bytes()).collect(),
            state.version,
        )
    }
}
