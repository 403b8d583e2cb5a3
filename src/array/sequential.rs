//! Telling sequential reading from random access.

use super::cache::Keep;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a reader is in a file that it has open.
#[derive(Debug, Default)]
pub struct SequentialDetector {
    /// Where the read before ended.
    position: AtomicU64,
}

/// How far from the end of the read before a sequential read may begin, in bytes. The kernel has several
/// requests under way, which overtake each other, and skips pages that it has.
const SLACK: u64 = 4 << 20;

impl SequentialDetector {
    /// How the chunks of a read of `range` are cached: those of a sequential reader, which will soon be past
    /// them, pass.
    pub fn next(&self, range: &Range<u64>) -> Keep {
        let position = self.position.swap(range.end, Ordering::Relaxed);
        if range.start.abs_diff(position) <= SLACK {
            Keep::Passing
        } else {
            Keep::Staying
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_follow_each_other_are_sequential() {
        const MIB: u64 = 1 << 20;
        let sequence = SequentialDetector::default();
        // The second and the third have changed places.
        for start in [0, 2, 1, 3, 4] {
            assert_eq!(sequence.next(&(start * MIB..(start + 1) * MIB)), Keep::Passing);
        }
        assert_eq!(sequence.next(&(100 * MIB..101 * MIB)), Keep::Staying);
        assert_eq!(sequence.next(&(101 * MIB..102 * MIB)), Keep::Passing);
        assert_eq!(sequence.next(&(0..8)), Keep::Staying);
    }
}
