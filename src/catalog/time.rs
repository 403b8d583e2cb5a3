//! TileDB's time in the names of files: milliseconds since the Unix epoch.

use super::pin::Pinned;
use crate::engine::Engine;
use std::sync::Arc;

/// The time range of a reader: timestamps from `start` to `end`, inclusive, in milliseconds since the Unix
/// epoch. A range whose start is after its end is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// The first millisecond.
    pub start: u64,
    /// The last one.
    pub end: u64,
}

impl TimeRange {
    /// All of time, the future included.
    pub const ALL: TimeRange = TimeRange {
        start: 0,
        end: u64::MAX,
    };

    /// Everything up to `end`.
    pub fn until(end: u64) -> TimeRange {
        TimeRange { start: 0, end }
    }

    /// Whether all of `stamps`, start and end, is in the range.
    pub fn covers(&self, stamps: (u64, u64)) -> bool {
        self.start <= stamps.0 && stamps.1 <= self.end
    }

    /// Whether any of `stamps` is in the range.
    pub fn meets(&self, stamps: (u64, u64)) -> bool {
        stamps.0 <= self.end && self.start <= stamps.1
    }

    /// Whether an instant is in the range.
    pub fn contains(&self, instant: u64) -> bool {
        self.covers((instant, instant))
    }
}

/// What of an array a reader asks for.
#[derive(Clone)]
pub enum When {
    /// Everything up to now.
    Now,
    /// A range of time.
    Within(TimeRange),
    /// A state that was found by its pin.
    Pinned(Arc<Pinned>),
}

impl When {
    /// The range of time; None for everything up to now.
    pub fn times(&self) -> Option<TimeRange> {
        match self {
            When::Now => None,
            When::Within(times) => Some(*times),
            When::Pinned(pinned) => Some(TimeRange::until(pinned.pin.time)),
        }
    }

    /// [`When::times`], or until the time as of which everything in `engine` is read.
    pub fn times_in(&self, engine: &Engine) -> Option<TimeRange> {
        self.times().or_else(|| engine.at().map(TimeRange::until))
    }
}

impl From<Option<TimeRange>> for When {
    fn from(times: Option<TimeRange>) -> When {
        times.map_or(When::Now, When::Within)
    }
}
