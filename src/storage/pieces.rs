//! What of one file was fetched or is on its way, and what its readers will want next.

use super::flight::Flight;
use super::piece_pool::Room;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The least that is fetched where more is likely to be wanted around it, and the most that is little.
pub(super) const LEAST: u64 = 64 * KIB;

/// Bytes of a request while somebody reads on and on.
const PART_AHEAD: u64 = 8 * MIB;

/// The first window, the largest, and how many times as large the next one is: each step is a request that others
/// wait for.
const FIRST_WINDOW: u64 = MIB;
pub(super) const LAST_WINDOW: u64 = 64 * MIB;
const GROWTH: u64 = 4;

/// Who reads on in a window may be this far behind or ahead of where they were: the requests of one reader
/// arrive out of order.
const BEHIND: u64 = MIB;
const AHEAD: u64 = 16 * MIB;

/// Who reads this little behind the end of their first read reads on.
const NEAR: u64 = 256 * KIB;

/// Sequences that are told apart in one file.
const SEQUENCES: usize = 16;

/// A range of a file, fetched by one request or read from the disk.
pub(super) struct Piece {
    pub(super) end: u64,
    /// What is in it, or will be.
    pub(super) bytes: Arc<Flight<Bytes>>,
    /// While it is on its way.
    pub(super) room: Option<Room>,
    /// How far it has been read.
    pub(super) read: u64,
}

/// Somebody who reads on and on.
struct Sequence {
    /// Where the next read is expected.
    next: u64,
    /// Up to where it is fetched.
    frontier: u64,
    /// How much ahead; 0 before the second read.
    window: u64,
}

/// The pieces of one file.
#[derive(Default)]
pub(super) struct Pieces {
    /// By their first byte. They do not overlap.
    pub(super) pieces: BTreeMap<u64, Piece>,
    /// Those used last first.
    sequences: VecDeque<Sequence>,
}

impl Pieces {
    /// The parts of `range` that no piece has.
    pub(super) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.pieces.range(..=range.start).next_back();
        let inside = self
            .pieces
            .range(range.start.saturating_add(1)..range.end.max(range.start + 1));
        for (&start, piece) in before.into_iter().chain(inside) {
            if start > at {
                gaps.push(at..start.min(range.end));
            }
            at = at.max(piece.end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Notes that `range` is read: up to where the rest is worth fetching too, and the window for that.
    pub(super) fn advance(&mut self, range: &Range<u64>, most: u64) -> u64 {
        let goes_on = |sequence: &Sequence| match sequence.window {
            0 => (sequence.next..=sequence.next.saturating_add(NEAR)).contains(&range.start),
            _ => {
                range.start.saturating_add(BEHIND) >= sequence.next
                    && range.start <= sequence.frontier.saturating_add(AHEAD.min(sequence.window))
            }
        };
        let Some(at) = self.sequences.iter().position(goes_on) else {
            self.sequences.truncate(SEQUENCES - 1);
            self.sequences.push_front(Sequence {
                next: range.end,
                frontier: range.end,
                window: 0,
            });
            return range.end;
        };
        let Some(mut sequence) = self.sequences.remove(at) else {
            return range.end;
        };
        sequence.next = sequence.next.max(range.end);
        sequence.frontier = sequence.frontier.max(sequence.next);
        // Reads that arrived out of order had begun sequences of their own.
        let (behind, ahead) = (
            sequence.next.saturating_sub(BEHIND),
            sequence.frontier.saturating_add(NEAR),
        );
        self.sequences.retain(|other| {
            let same = (behind..=ahead).contains(&other.next);
            if same {
                sequence.next = sequence.next.max(other.next);
                sequence.frontier = sequence.frontier.max(other.frontier);
                sequence.window = sequence.window.max(other.window);
            }
            !same
        });
        let left = sequence.frontier - sequence.next;
        let wanted = if sequence.window == 0 || left < sequence.window / 2 {
            sequence.window = sequence
                .window
                .saturating_mul(GROWTH)
                .clamp(FIRST_WINDOW, most.max(FIRST_WINDOW));
            sequence.next.saturating_add(sequence.window)
        } else {
            range.end
        };
        self.sequences.push_front(sequence);
        wanted
    }

    /// Up to where the sequence that went on last is fetched; 0 where it has just begun.
    pub(super) fn frontier(&self) -> u64 {
        let going = self.sequences.front().filter(|sequence| sequence.window > 0);
        going.map_or(0, |sequence| sequence.frontier)
    }

    /// Notes that the sequence that went on last is fetched up to `frontier`.
    pub(super) fn fetched(&mut self, frontier: u64) {
        if let Some(sequence) = self.sequences.front_mut() {
            sequence.frontier = sequence.frontier.max(frontier);
        }
    }
}

/// Cuts `gap`, of which what is before `wanted` is wanted now, into requests: one for that, so that it comes early,
/// and larger ones for the rest.
pub(super) fn cut(gap: Range<u64>, wanted: u64) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut at = gap.start;
    let first = match at < wanted {
        true => wanted.max(at.saturating_add(MIB)).min(gap.end),
        false => gap.end,
    };
    // Two requests cost more than a little more of one.
    let first = match gap.end - first < MIB {
        true => gap.end,
        false => first,
    };
    let mut end = first.min(at.saturating_add(PART_AHEAD));
    while at < gap.end {
        parts.push(at..end);
        at = end;
        end = gap.end.min(at.saturating_add(PART_AHEAD));
        if gap.end.saturating_sub(end) < MIB {
            end = gap.end;
        }
    }
    parts
}
