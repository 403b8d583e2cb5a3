//! Tells sequential reads from random access.

use crate::bytes::Keep;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The position of a reader in a file that it has open.
#[derive(Debug, Default)]
pub struct SequentialDetector {
    /// The end of the previous read.
    position: AtomicU64,
}

/// The most bytes between the end of a read and the start of a sequential next one. The kernel sends several
/// requests at once, which overtake each other, and skips pages that it has.
const MAX_DISTANCE: u64 = 4 << 20;

impl SequentialDetector {
    /// How to cache the chunks of a read of `range`. Chunks of a sequential reader, which will soon be past
    /// them, are [`Keep::Passing`].
    pub fn next(&self, range: &Range<u64>) -> Keep {
        let position = self.position.swap(range.end, Ordering::Relaxed);
        if range.start.abs_diff(position) <= MAX_DISTANCE {
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
        // The second and the third are swapped.
        for start in [0, 2, 1, 3, 4] {
            assert_eq!(sequence.next(&(start * MIB..(start + 1) * MIB)), Keep::Passing);
        }
        assert_eq!(sequence.next(&(100 * MIB..101 * MIB)), Keep::Staying);
        assert_eq!(sequence.next(&(101 * MIB..102 * MIB)), Keep::Passing);
        assert_eq!(sequence.next(&(0..8)), Keep::Staying);
    }
}
