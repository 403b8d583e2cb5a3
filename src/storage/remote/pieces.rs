//! What of one file was fetched or is on its way, and what its readers will want next.

use super::flight::Flight;
use super::piece_pool::Room;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The read-ahead window of a sequential reader: this many times what was read so far, within these bounds.
const GROWTH: u64 = 4;
const LEAST_WINDOW: u64 = MIB;
pub(super) const MOST_WINDOW: u64 = 64 * MIB;

/// The sizes of the requests that fill a window. Several are made at once, because one connection is slower
/// than most networks.
const PARTS: u64 = 4;
const LEAST_PART: u64 = MIB;
const MOST_PART: u64 = 8 * MIB;

/// How far a sequential read may be behind or ahead of the one before: the requests of one reader arrive out
/// of order.
const BEHIND: u64 = MIB;
const AHEAD: u64 = 16 * MIB;

/// A second read that starts at most this far after the end of the first counts as sequential.
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
    /// Where it began.
    start: u64,
    /// Where the next read is expected.
    next: u64,
    /// Up to where it is fetched.
    frontier: u64,
    /// How much ahead; 0 before the second read.
    window: u64,
}

impl Sequence {
    /// Bytes of a request for what is ahead.
    fn part(&self) -> u64 {
        (self.window / PARTS).clamp(LEAST_PART, MOST_PART)
    }
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

    /// Notes that `range` is read. Returns up to where more should be fetched, in a window of at most `most`
    /// bytes.
    pub(super) fn advance(&mut self, range: &Range<u64>, most: u64) -> u64 {
        let goes_on = |sequence: &Sequence| match sequence.window {
            0 => (sequence.next..=sequence.next.saturating_add(NEAR)).contains(&range.start),
            _ => {
                range.start.saturating_add(BEHIND) >= sequence.next
                    && range.start <= sequence.frontier.saturating_add(AHEAD.min(sequence.window))
            }
        };
        let at = self.sequences.iter().position(goes_on);
        let Some(mut sequence) = at.and_then(|at| self.sequences.remove(at)) else {
            self.sequences.truncate(SEQUENCES - 1);
            self.sequences.push_front(Sequence {
                start: range.start,
                next: range.end,
                frontier: range.end,
                window: 0,
            });
            return range.end;
        };
        sequence.next = sequence.next.max(range.end);
        sequence.frontier = sequence.frontier.max(sequence.next);
        // Reads that arrived out of order began sequences of their own, which end here.
        let (behind, ahead) = (
            sequence.next.saturating_sub(BEHIND),
            sequence.frontier.saturating_add(NEAR),
        );
        self.sequences.retain(|other| {
            let same = (behind..=ahead).contains(&other.next);
            if same {
                sequence.start = sequence.start.min(other.start);
                sequence.next = sequence.next.max(other.next);
                sequence.frontier = sequence.frontier.max(other.frontier);
                sequence.window = sequence.window.max(other.window);
            }
            !same
        });
        let read = sequence.next - sequence.start;
        let window = read
            .saturating_mul(GROWTH)
            .clamp(LEAST_WINDOW, most.max(LEAST_WINDOW));
        sequence.window = sequence.window.max(window);
        // Whole multiples, so that requests do not become as small as the reads.
        let left = sequence.frontier - sequence.next;
        let parts = sequence.window.saturating_sub(left) / sequence.part();
        let wanted = match parts {
            0 => range.end,
            _ => sequence
                .frontier
                .saturating_add(parts.saturating_mul(sequence.part())),
        };
        self.sequences.push_front(sequence);
        wanted
    }

    /// Cuts `gap` into requests: one for what is before `wanted` and needed now, so that it comes early, and
    /// others for the rest.
    pub(super) fn cut(&self, gap: Range<u64>, wanted: u64) -> Vec<Range<u64>> {
        let part = self.sequences.front().map_or(LEAST_PART, Sequence::part);
        let mut parts = Vec::new();
        let mut at = gap.start;
        while at < gap.end {
            let size = match at < wanted {
                true => (wanted - at).clamp(LEAST_PART, MOST_PART),
                false => part,
            };
            // Two requests cost more than a little more of one.
            let left = gap.end - at;
            let end = match left < size.saturating_add(part / 2) {
                true => gap.end,
                false => at + size,
            };
            parts.push(at..end);
            at = end;
        }
        parts
    }

    /// Whether the byte at `at` was fetched ahead of a sequential reader.
    pub(super) fn is_ahead(&self, at: u64) -> bool {
        let ahead =
            |sequence: &Sequence| sequence.window > 0 && (sequence.next..sequence.frontier).contains(&at);
        self.sequences.iter().any(ahead)
    }

    /// Up to where the most recent sequence is fetched; 0 if it has just begun.
    pub(super) fn frontier(&self) -> u64 {
        let going = self.sequences.front().filter(|sequence| sequence.window > 0);
        going.map_or(0, |sequence| sequence.frontier)
    }

    /// Notes that the most recent sequence is fetched up to `frontier`.
    pub(super) fn fetched(&mut self, frontier: u64) {
        if let Some(sequence) = self.sequences.front_mut() {
            sequence.frontier = sequence.frontier.max(frontier);
        }
    }
}
