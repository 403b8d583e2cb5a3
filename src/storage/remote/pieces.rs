//! The fetched ranges of one file, and the read-ahead of its sequential readers.

use super::disk_cache::PART;
use super::piece_pool::Room;
use crate::runtime::single_flight::Flight;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The read-ahead window of a sequential reader: this multiple of the bytes read so far, within these bounds.
const WINDOW_FACTOR: u64 = 4;
const MIN_WINDOW: u64 = MIB;
pub(super) const MAX_WINDOW: u64 = 64 * MIB;

/// Requests per window, and the bounds of their size. Several run concurrently, because one connection is
/// slower than most networks.
const REQUESTS_PER_WINDOW: u64 = 4;
const MIN_REQUEST_SIZE: u64 = MIB;
const MAX_REQUEST_SIZE: u64 = 8 * MIB;

/// How far a sequential read may begin before or after the expected offset, because the requests of one
/// reader arrive out of order.
const MAX_BEHIND: u64 = MIB;
const MAX_AHEAD: u64 = 16 * MIB;

/// A second read that begins at most this far after the first counts as sequential.
const MAX_FIRST_GAP: u64 = 256 * KIB;

/// Sequential readers that are tracked per file.
const MAX_SEQUENCES: usize = 16;

/// Parts of readers that are remembered per file.
const MAX_PARTS: usize = 16;

/// A range of a file, fetched by one request or read from the disk.
pub(super) struct Piece {
    pub(super) end: u64,
    /// The bytes, possibly still on their way.
    pub(super) bytes: Arc<Flight<Bytes>>,
    /// The reservation, while it is on its way.
    pub(super) room: Option<Room>,
    /// Offset in the file up to which it has been read.
    pub(super) read: u64,
}

/// A sequential reader. All fields are in bytes.
struct Sequence {
    /// Where it began.
    start: u64,
    /// Expected offset of the next read.
    next: u64,
    /// End of what is fetched for it.
    frontier: u64,
    /// Size of its read-ahead; 0 before the second read.
    window: u64,
}

impl Sequence {
    /// Bytes of a read-ahead request: whole parts, because the disk cache stores no others.
    fn part(&self) -> u64 {
        let size = self.window / REQUESTS_PER_WINDOW;
        size.next_multiple_of(PART)
            .clamp(MIN_REQUEST_SIZE, MAX_REQUEST_SIZE)
    }
}

/// The pieces of one file.
#[derive(Default)]
pub(super) struct Pieces {
    /// By offset, without overlaps.
    pub(super) pieces: BTreeMap<u64, Piece>,
    /// Most recently used first.
    sequences: VecDeque<Sequence>,
    /// Parts that readers go through, most recent first. Read-ahead that begins in one ends there.
    parts: VecDeque<Range<u64>>,
}

impl Pieces {
    /// The parts of `range` that are in no piece.
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

    /// Notes that a reader goes through `part` and not on behind it.
    pub(super) fn note_part(&mut self, mut part: Range<u64>) {
        self.parts.retain(|other| {
            let same = other.end == part.end;
            if same {
                part.start = part.start.min(other.start);
            }
            !same
        });
        self.parts.truncate(MAX_PARTS - 1);
        self.parts.push_front(part);
    }

    /// Where the part that offset `at` is in ends; None if no reader has told.
    pub(super) fn part_end(&self, at: u64) -> Option<u64> {
        let part = self.parts.iter().find(|part| part.contains(&at));
        part.map(|part| part.end)
    }

    /// Notes a read of `range`. Returns the offset up to which to fetch, at most `most` bytes ahead.
    pub(super) fn advance(&mut self, range: &Range<u64>, most: u64) -> u64 {
        let goes_on = |sequence: &Sequence| match sequence.window {
            0 => (sequence.next..=sequence.next.saturating_add(MAX_FIRST_GAP)).contains(&range.start),
            _ => {
                range.start.saturating_add(MAX_BEHIND) >= sequence.next
                    && range.start <= sequence.frontier.saturating_add(MAX_AHEAD.min(sequence.window))
            }
        };
        let at = self.sequences.iter().position(goes_on);
        let Some(mut sequence) = at.and_then(|at| self.sequences.remove(at)) else {
            self.sequences.truncate(MAX_SEQUENCES - 1);
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
        // Merges the sequences that out-of-order reads of this reader have begun.
        let (behind, ahead) = (
            sequence.next.saturating_sub(MAX_BEHIND),
            sequence.frontier.saturating_add(MAX_FIRST_GAP),
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
            .saturating_mul(WINDOW_FACTOR)
            .clamp(MIN_WINDOW, most.max(MIN_WINDOW));
        sequence.window = sequence.window.max(window);
        // Only whole requests, which would otherwise shrink to the size of the reads.
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

    /// Splits `gap` into requests. The bytes before `wanted`, which a reader waits for, get requests of their
    /// own.
    pub(super) fn cut(&self, gap: Range<u64>, wanted: u64) -> Vec<Range<u64>> {
        let part = self.sequences.front().map_or(MIN_REQUEST_SIZE, Sequence::part);
        let mut parts = Vec::new();
        let mut at = gap.start;
        while at < gap.end {
            let size = match at < wanted {
                true => (wanted - at).clamp(MIN_REQUEST_SIZE, MAX_REQUEST_SIZE),
                false => part,
            };
            // A short rest joins the last request.
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

    /// Whether offset `at` is in the read-ahead of a sequential reader.
    pub(super) fn is_ahead(&self, at: u64) -> bool {
        let ahead =
            |sequence: &Sequence| sequence.window > 0 && (sequence.next..sequence.frontier).contains(&at);
        self.sequences.iter().any(ahead)
    }

    /// End of what is fetched for the most recent sequence; 0 if it has just begun.
    pub(super) fn frontier(&self) -> u64 {
        let going = self.sequences.front().filter(|sequence| sequence.window > 0);
        going.map_or(0, |sequence| sequence.frontier)
    }

    /// Sets the end of what is fetched for the most recent sequence.
    pub(super) fn fetched(&mut self, frontier: u64) {
        if let Some(sequence) = self.sequences.front_mut() {
            sequence.frontier = sequence.frontier.max(frontier);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_sequential_reader_begin_and_end_at_parts() {
        const READ: u64 = 256 * KIB;
        let mut pieces = Pieces::default();
        let mut frontier = 0;
        for at in (0..64 * MIB).step_by(READ as usize) {
            let ahead = pieces.advance(&(at..at + READ), MAX_WINDOW);
            // As where there is a disk cache.
            let [wanted, ahead] = [at + READ, ahead].map(|end| end.div_ceil(PART) * PART);
            if ahead > frontier {
                for part in pieces.cut(frontier..ahead, wanted) {
                    assert_eq!([part.start % PART, part.end % PART], [0, 0], "{part:?} at {at}");
                }
                pieces.fetched(ahead);
                frontier = ahead;
            }
        }
        assert!(frontier >= 64 * MIB);
    }
}
