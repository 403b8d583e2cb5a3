//! Whether the cells of a fragment that is not merged are stored in global order.
//!
//! Nothing but the coordinates tells, and whoever reads a length or another field needs no coordinates. So
//! where files can be opened again (see [`Disorder`](crate::engine::Disorder)), the coordinates of large
//! fragments are compared when they are read, tile by tile, and those of some tiles before the first cell of
//! any field is. If some are not in order, the reader fails, and in the state of the view that is seen from
//! then on the fragment is sorted. Otherwise, in small fragments where they are few, and in those of
//! libraries that wrote global order as it came, all are compared first. So are small fragments, however
//! many, where another is known not to be in order: readers need not fail once for each. Those that keep the
//! order of their writer ([`Input::keeps_order_of_writer`]) are not compared, unless they are merged.

use super::input::Input;
use super::member::Rules;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::query::order::SortKey;
use crate::runtime::single_flight::Memo;
use crate::runtime::{lock, parallel};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

/// The format version from which on writers in global order check the order of cells.
pub(super) const MIN_CHECKED_VERSION: u32 = 5;

/// In larger fragments, one of so many tiles is compared before, and at most [`MAX_SAMPLES`].
const TILES_PER_SAMPLE: u64 = 64;

const MAX_SAMPLES: u64 = 32;

/// What is known of the order of a fragment's candidates.
pub(super) struct Order<K> {
    /// Whether all candidates are in order, looked at first.
    all: Memo<bool>,
    /// Set once the samples are in order.
    samples: Memo<()>,
    seen: Mutex<Seen<K>>,
}

impl<K> Default for Order<K> {
    fn default() -> Self {
        Order {
            all: Memo::default(),
            samples: Memo::default(),
            seen: Mutex::new(Seen(BTreeMap::new())),
        }
    }
}

impl<K: SortKey> Order<K> {
    /// Whether the cells are read as they are stored. If not, they have to be sorted.
    pub(super) fn is_stored(&self, engine: &Engine, rules: &Rules, input: &Input) -> Result<bool> {
        if input.is_unsorted {
            return Ok(false);
        }
        // If nothing is merged, libtiledb's readers return cells in the order in which they were written.
        if input.keeps_order_of_writer() {
            return Ok(true);
        }
        match engine.disorder.is_found_by_readers() && !is_looked_at_first(rules, input) {
            true => Ok(true),
            false => self.all.get_or_make(|| look_at_order::<K>(rules, input)),
        }
    }

    /// Fails if the cells are known not to be in order. The first call looks at some.
    pub(super) fn look(&self, engine: &Engine, rules: &Rules, input: &Input) -> Result<()> {
        if self.all.get().is_some() || input.keeps_order_of_writer() {
            return Ok(());
        }
        if engine.disorder.is_known(engine, &input.info.path) {
            return Err(unsorted(engine, input));
        }
        self.samples.get_or_make(|| {
            let count = input.count();
            let samples = (count / input.info.geometry.tile_cells / TILES_PER_SAMPLE).min(MAX_SAMPLES);
            for sample in 0..samples {
                let rank = (2 * sample + 1) * (count / (2 * samples));
                self.check(engine, rules, input, rank..rank + 1)?;
            }
            Ok(())
        })
    }

    /// Fails if the tiles that hold the candidates `ranks` are not in order, in themselves or among those
    /// that were looked at before.
    pub(super) fn check(
        &self,
        engine: &Engine,
        rules: &Rules,
        input: &Input,
        ranks: Range<u64>,
    ) -> Result<()> {
        if self.all.get().is_some() || input.keeps_order_of_writer() {
            return Ok(());
        }
        let mut rank = ranks.start;
        while rank < ranks.end {
            if let Some(end) = lock(&self.seen).end_of(rank) {
                rank = end;
                continue;
            }
            let tile = input.tile_of(rank);
            let in_order = match ends::<K>(rules, input, tile.clone())? {
                Looked::InOrder(first, last) => lock(&self.seen).add(tile.clone(), first, last),
                Looked::Nothing => true,
                Looked::Unsorted => false,
            };
            if !in_order {
                return Err(unsorted(engine, input));
            }
            rank = tile.end;
        }
        Ok(())
    }
}

/// Whether all cells of a fragment are compared before any is shown: in small fragments where the rules say
/// so, and in those of writers that did not check the order.
pub(super) fn is_looked_at_first(rules: &Rules, input: &Input) -> bool {
    let is_small = input.count() <= rules.tuning.small_fragment_cells;
    is_small && rules.looks_first || input.info.version() < MIN_CHECKED_VERSION
}

/// Remembers that the cells of a fragment are not in order. The error for what is open of it.
pub(super) fn unsorted(engine: &Engine, input: &Input) -> Error {
    let path = &input.info.path;
    if engine.disorder.remember(engine, path) {
        log::warn!(
            "{}: the cells are not in global order; what is open of the array fails, and what is opened \
             from now on is sorted",
            path.display()
        );
    }
    let message =
        "the cells of the fragment are not in global order; they are sorted once the file is opened again";
    input
        .info
        .place(Error::new(ErrorKind::Io(libc::EIO), message).at(0))
}

/// Runs of candidates that are in order: for the rank of each one's first candidate, the rank after its last
/// one, and the keys of both.
struct Seen<K>(BTreeMap<u64, (u64, K, K)>);

impl<K: Ord> Seen<K> {
    /// The end of the run that has `rank`.
    fn end_of(&self, rank: u64) -> Option<u64> {
        let (_, (end, ..)) = self.0.range(..=rank).next_back()?;
        (rank < *end).then_some(*end)
    }

    /// Adds a run, if it is not there yet. Whether it is in order among its neighbors, as far as these are
    /// there.
    fn add(&mut self, ranks: Range<u64>, mut first: K, mut last: K) -> bool {
        if self.end_of(ranks.start).is_some() {
            return true;
        }
        let (mut start, mut end) = (ranks.start, ranks.end);
        if let Some((&at, (before, _, greatest))) = self.0.range(..start).next_back()
            && *before == start
        {
            if *greatest > first {
                return false;
            }
            start = at;
        }
        if let Some((.., least, _)) = self.0.get(&end)
            && last > *least
        {
            return false;
        }
        if start < ranks.start
            && let Some((_, least, _)) = self.0.remove(&start)
        {
            first = least;
        }
        if let Some((after, _, greatest)) = self.0.remove(&end) {
            (end, last) = (after, greatest);
        }
        self.0.insert(start, (end, first, last));
        true
    }
}

/// What a look at candidates has found.
enum Looked<K> {
    /// The first and the last key.
    InOrder(K, K),
    /// The view has none of them.
    Nothing,
    Unsorted,
}

/// Compares the keys of the candidates in `ranks`.
fn ends<K: SortKey>(rules: &Rules, input: &Input, ranks: Range<u64>) -> Result<Looked<K>> {
    let mut rank = ranks.start;
    let mut ends: Option<(K, K)> = None;
    while rank < ranks.end {
        // Few at a time, so that coordinates and keys stay in the processor's cache.
        let most = (ranks.end - rank).min(rules.tuning.order_step_candidates);
        let window = input.window::<K>(&rules.order, rules.times, rank, most)?;
        rank = window.end;
        let (Some(first), Some(last)) = (window.keys.first(), window.keys.last()) else {
            continue;
        };
        if !window.keys.is_sorted() || ends.as_ref().is_some_and(|(_, before)| before > first) {
            return Ok(Looked::Unsorted);
        }
        let first = ends.map_or_else(|| first.clone(), |(first, _)| first);
        ends = Some((first, last.clone()));
    }
    Ok(ends.map_or(Looked::Nothing, |(first, last)| Looked::InOrder(first, last)))
}

/// Whether the cells of a fragment are stored in global order. If there are too many to compare all of them,
/// evenly spread samples are compared, within themselves and with each other.
fn look_at_order<K: SortKey>(rules: &Rules, input: &Input) -> Result<bool> {
    let size = rules.tuning.order_step_candidates;
    let steps = input.count().div_ceil(size);
    let looks = if steps > rules.tuning.all_order_steps {
        rules.tuning.sampled_order_steps
    } else {
        steps
    };
    // The first and the last key of a step; None if its keys are not in order.
    let ends = parallel::each(looks, |look| -> Result<Option<Vec<K>>> {
        // The samples include the first and the last step.
        let step = look * (steps - 1) / (looks - 1).max(1);
        let rank = step * size;
        let end = input.count().min(rank + size + 1);
        Ok(match ends(rules, input, rank..end)? {
            Looked::InOrder(first, last) => Some(vec![first, last]),
            Looked::Nothing => Some(Vec::new()),
            Looked::Unsorted => None,
        })
    })?;
    let ends: Option<Vec<Vec<K>>> = ends.into_iter().collect();
    Ok(ends.is_some_and(|ends| ends.concat().is_sorted()))
}

#[cfg(test)]
mod tests {
    use super::Seen;
    use std::collections::BTreeMap;

    #[test]
    fn runs_are_joined_and_compared_with_their_neighbors() {
        let mut seen = Seen(BTreeMap::new());
        assert!(seen.add(10..20, 100, 190));
        assert!(seen.add(30..40, 300, 390));
        assert_eq!(
            (seen.end_of(9), seen.end_of(10), seen.end_of(20)),
            (None, Some(20), None)
        );
        // Equal keys are in order.
        assert!(!seen.add(20..30, 189, 300));
        assert!(!seen.add(20..30, 190, 301));
        assert!(seen.add(20..30, 190, 300));
        assert_eq!(seen.0.len(), 1);
        assert_eq!(seen.end_of(10), Some(40));
        // What is there already is not compared again.
        assert!(seen.add(20..30, 0, 0));
        assert!(!seen.add(0..10, 0, 101));
        assert!(seen.add(0..10, 0, 100));
        assert!(!seen.add(40..41, 389, 389));
        assert!(seen.add(50..51, 0, 0));
        assert_eq!(seen.0.len(), 2);
    }
}
