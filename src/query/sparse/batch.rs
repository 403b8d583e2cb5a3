//! A batch of a merge: candidates of several members, sorted.
//!
//! The candidates of a member stay in their order, so a sorted batch is only a sequence of members. Mostly a
//! word is enough to sort a candidate: the distance of its key from the lowest one, and the number of its
//! run.

use super::input::Window;
use super::member::{Member, Rules};
use crate::error::Result;
use crate::query::order::SortKey;
use std::cmp::Ordering;
use std::ops::Range;

/// Consecutive candidates of a member.
pub(super) struct Run<'w, K> {
    /// The number of the member.
    pub member: u32,
    /// The member.
    pub source: &'w Member<K>,
    /// The window that they are in.
    pub window: &'w Window<K>,
    /// Their range in the window.
    pub range: Range<usize>,
}

/// The member of the next candidate.
#[derive(Clone, Copy)]
pub(super) struct Turn(u32);

/// Where a merge puts the cells of the view.
pub(super) trait MergeSink {
    /// Takes the candidate of `member` with rank `rank`.
    fn take(&mut self, member: u32, rank: u64) -> Result<()>;

    /// Takes the next candidate of the member of each turn. `ranks` has the rank of each member's next
    /// candidate, and is updated.
    fn take_next(&mut self, turns: &[Turn], ranks: &mut [u64]) -> Result<()>;
}

/// Only counts.
impl MergeSink for () {
    fn take(&mut self, _member: u32, _rank: u64) -> Result<()> {
        Ok(())
    }

    fn take_next(&mut self, turns: &[Turn], ranks: &mut [u64]) -> Result<()> {
        for turn in turns {
            ranks[turn.member() as usize] += 1;
        }
        Ok(())
    }
}

/// A candidate with all that decides its place.
struct Candidate<K> {
    key: K,
    /// The time of the write; 0 if it does not matter.
    time: u64,
    rank: u64,
    member: u32,
    mark: u64,
}

/// Candidates in order.
pub(super) struct Batch<K> {
    /// The member of each candidate.
    pub turns: Vec<Turn>,
    /// The rank and the mark of each; empty if ranks continue those of the batch before and no mark is set.
    pub details: Vec<(u64, u64)>,
    /// The key of the last candidate; in an empty batch, that of the batch before.
    pub last: Option<K>,
    candidates: Vec<Candidate<K>>,
    words: Vec<u64>,
    /// Scratch space for sorting them.
    sorted: Vec<u64>,
}

#[cfg(test)]
thread_local! {
    /// For tests: the turn of each batch with this number becomes that of this member.
    pub(super) static WRONG_TURN: std::cell::Cell<Option<(usize, u32)>> = const { std::cell::Cell::new(None) };
}

impl Turn {
    const SAME_PLACE: u32 = 1 << 31;

    fn new(member: u32, is_at_same_place: bool) -> Turn {
        let flag = if is_at_same_place { Self::SAME_PLACE } else { 0 };
        Turn(member | flag)
    }

    pub(super) fn member(self) -> u32 {
        self.0 & !Self::SAME_PLACE
    }

    /// Whether the candidate is at the place of the one before it, where the view may keep only one.
    pub(super) fn is_at_same_place(self) -> bool {
        self.0 & Self::SAME_PLACE != 0
    }
}

impl<K> Run<'_, K> {
    fn keys(&self) -> &[K] {
        &self.window.keys[self.range.clone()]
    }
}

impl<K: SortKey> Batch<K> {
    pub(super) fn new() -> Self {
        Batch {
            turns: Vec::new(),
            details: Vec::new(),
            last: None,
            candidates: Vec::new(),
            words: Vec::new(),
            sorted: Vec::new(),
        }
    }

    /// The number of candidates from `first` on that are alone at their place and have no details. Does not
    /// count the very last one: the next batch may begin at its place.
    pub(super) fn alone(&self, first: usize) -> usize {
        if !self.details.is_empty() {
            return 0;
        }
        let turns = &self.turns[first..];
        let second = turns.iter().position(|turn| turn.is_at_same_place());
        second.unwrap_or(turns.len()).saturating_sub(1)
    }

    /// Replaces the candidates, which must all come before those of `runs`. The runs of a member follow each
    /// other. Members are in the order in which their cells at one place come, unless cells of one member are
    /// `timed`. `ranks` has the rank of each member's next candidate.
    pub(super) fn fill(&mut self, rules: &Rules, runs: &[Run<K>], ranks: &[u64], timed: bool) {
        self.turns.clear();
        self.details.clear();
        if self.fill_words(rules, runs, ranks).is_none() {
            self.fill_candidates(rules, runs, timed);
        }
        #[cfg(test)]
        if let Some((number, member)) = WRONG_TURN.get()
            && let Some(turn) = self.turns.get_mut(number)
        {
            *turn = Turn::new(member, turn.is_at_same_place());
        }
    }

    /// [`Batch::fill`] with words; None, and no change, if words do not suffice.
    fn fill_words(&mut self, rules: &Rules, runs: &[Run<K>], ranks: &[u64]) -> Option<()> {
        let mut next = (u32::MAX, 0);
        for run in runs {
            let first = run.window.rank(run.range.start);
            let follows = match next {
                (member, rank) if member == run.member => rank == first,
                _ => ranks[run.member as usize] == first,
            };
            if !follows || !run.window.is_plain() {
                return None;
            }
            next = (run.member, first + run.range.len() as u64);
        }
        let lowest = runs.iter().filter_map(|run| run.keys().first()).min()?;
        let highest = runs.iter().filter_map(|run| run.keys().last()).max()?;
        // The number of a run takes these bits.
        let bits = u64::BITS - (runs.len() as u64).leading_zeros();
        let farthest = highest.distance(lowest)?;
        if farthest > u64::MAX >> bits {
            return None;
        }
        self.words.clear();
        for (number, run) in (0..).zip(runs) {
            let words = run.keys().iter().map(|key| {
                let distance = key.distance(lowest).expect("keys up to the highest have one");
                distance << bits | number
            });
            self.words.extend(words);
        }
        let most = u64::BITS - farthest.leading_zeros();
        sort(&mut self.words, &mut self.sorted, bits..bits + most);
        let members: Vec<u32> = runs.iter().map(|run| run.member).collect();
        let goes_on = self.last.as_ref() == Some(lowest);
        // Distances are smaller, because the number of a run takes at least a bit.
        let mut before = if goes_on { 0 } else { u64::MAX };
        self.turns.extend(self.words.iter().map(|word| {
            let (distance, run) = (word >> bits, word & !(u64::MAX << bits));
            let same_place = !rules.duplicates && distance == before;
            before = distance;
            Turn::new(members[run as usize], same_place)
        }));
        self.last = Some(highest.clone());
        Some(())
    }

    /// [`Batch::fill`] with candidates.
    fn fill_candidates(&mut self, rules: &Rules, runs: &[Run<K>], timed: bool) {
        for run in runs {
            let keys = run.range.clone().zip(run.keys());
            self.candidates.extend(keys.map(|(i, key)| Candidate {
                key: key.clone(),
                time: rules.time(run.source, run.window, i),
                rank: run.window.rank(i),
                member: run.member,
                mark: run.window.mark(i),
            }));
        }
        // A stable sort of runs that ascend is a merge of these runs.
        self.candidates.sort_by(|a, b| {
            // Candidates of one time and member stay in stored order.
            let newest_first = || match timed {
                true => (b.time, b.member).cmp(&(a.time, a.member)),
                false => Ordering::Equal,
            };
            a.key.cmp(&b.key).then_with(newest_first)
        });
        for Candidate {
            key,
            rank,
            member,
            mark,
            ..
        } in self.candidates.drain(..)
        {
            let last = self.last.as_ref().filter(|_| !rules.duplicates);
            let same_place = last == Some(&key);
            self.turns.push(Turn::new(member, same_place));
            self.details.push((rank, mark));
            self.last = Some(key);
        }
    }
}

/// A stable radix sort of words by `bits`; higher bits must be 0. `room` is overwritten.
///
/// For 8,192 words of 24 bits in 20 runs it takes a third of the time of `Vec::sort`, and half of that of
/// `sort_unstable`.
fn sort(words: &mut Vec<u64>, room: &mut Vec<u64>, bits: Range<u32>) {
    room.resize(words.len(), 0);
    for shift in bits.step_by(8) {
        let digit = |word: u64| usize::from((word >> shift) as u8);
        let mut places = [0; 256];
        for &word in words.iter() {
            places[digit(word)] += 1;
        }
        let mut before: usize = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for &word in words.iter() {
            let place = &mut places[digit(word)];
            room[*place] = word;
            *place += 1;
        }
        std::mem::swap(words, room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted_by_some_bits_and_keep_their_order_otherwise() {
        for bits in [3..64, 3..40, 5..21, 7..7] {
            let words = (0..5000u64)
                .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) & !u64::MAX.unbounded_shl(bits.end));
            let mut words: Vec<u64> = words.collect();
            let mut expected = words.clone();
            expected.sort_by_key(|word| word >> bits.start);
            sort(&mut words, &mut vec![1; 9], bits.clone());
            assert!(words == expected, "{bits:?}");
        }
    }
}
