//! The k-way merge of fragments: cells in global order, and only the newest of cells at one place.

use super::batch::{Batch, MergeSink, Run};
use super::input::{DELETED, Window};
use super::member::{Member, Rules};
use crate::error::{Error, Result};
use crate::query::order::SortKey;
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Why a merge ends early.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(Error),
    /// The cells of the input with this number turned out not to be stored in global order.
    Unsorted(usize),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// The progress of a merge in one member.
struct Cursor<K> {
    /// Windows that have been read and have candidates that are in no batch yet. No window is empty.
    windows: VecDeque<Window<K>>,
    /// The index, in the first window, of the first candidate that is in no batch yet.
    at: usize,
    /// The rank after the last window.
    read: u64,
    /// The rank at which the merge of this member ends.
    end: u64,
    /// The last key that was read, and the time of its candidate.
    last: Option<(K, u64)>,
}

/// A merge of the candidates of several fragments, from one rank of each to another.
///
/// A merge takes one batch after the other: all candidates that have been read, up to the first end of what
/// has been read of a member. A batch is sorted as a whole. That is faster than a heap of the members' next
/// candidates, since sorting does not branch on keys.
pub(super) struct Merge<'a, K> {
    /// The settings.
    pub(super) rules: &'a Rules,
    members: &'a [Member<K>],
    /// The range of keys that candidates must be in, if known. The lower bound is inclusive, the upper one
    /// exclusive.
    between: [Option<&'a K>; 2],
    cursors: Vec<Cursor<K>>,
    /// The members in the order in which their cells at one place come, if these have one time.
    newest_first: Vec<u32>,
    /// Whether cells of one member may have been written at different times.
    timed: bool,
    batch: Batch<K>,
    /// The index of the next candidate in the batch.
    next: usize,
    /// The rank after the last candidate taken, for each member.
    ranks: Vec<u64>,
    /// The most candidates in a window.
    window: u64,
    /// The marks of the cells seen at the current place, each with the member of the newest such cell: cells
    /// that differ in the sign of a zero are different cells.
    seen: Vec<(u64, u32)>,
    /// Whether several members have a cell at the current place.
    shared: bool,
}

/// Windows of a member that are read ahead. With two, a batch need not end where a window ends.
const WINDOWS_AHEAD: usize = 2;

impl<K> Cursor<K> {
    /// Candidate `i` of those that are in no batch yet: its window, and its index there. None if it has not
    /// been read.
    fn candidate(&self, i: usize) -> Option<(&Window<K>, usize)> {
        let mut at = self.at + i;
        for window in &self.windows {
            match at.checked_sub(window.keys.len()) {
                None => return Some((window, at)),
                Some(behind) => at = behind,
            }
        }
        None
    }
}

impl<'a, K: SortKey> Merge<'a, K> {
    /// A merge of ranks `from[i]..to[i]` of each member. If `between` is given, keys outside of it mean that
    /// a member is not sorted.
    pub(super) fn new(
        rules: &'a Rules,
        members: &'a [Member<K>],
        from: &[u64],
        to: &[u64],
        between: [Option<&'a K>; 2],
    ) -> Self {
        // A candidate takes memory for its key, time, rank and mark.
        let each = size_of::<K>() + 3 * 8;
        let tuning = rules.tuning;
        let window = rules.memory / (WINDOWS_AHEAD * each * members.len()) as u64;
        let cursors = from.iter().zip(to).map(|(&from, &to)| Cursor {
            windows: VecDeque::with_capacity(WINDOWS_AHEAD),
            at: 0,
            read: from,
            end: to,
            last: None,
        });
        let mut newest_first: Vec<u32> = (0..members.len() as u32).collect();
        newest_first.sort_by_key(|&member| {
            let start = (!rules.duplicates).then(|| members[member as usize].input.start());
            Reverse((start, member))
        });
        Merge {
            rules,
            members,
            between,
            cursors: cursors.collect(),
            newest_first,
            timed: !rules.duplicates && members.iter().any(|member| member.input.has_timestamps()),
            batch: Batch::new(),
            next: 0,
            ranks: from.to_vec(),
            window: window.clamp(tuning.min_window_candidates, tuning.max_window_candidates),
            seen: Vec::new(),
            shared: false,
        }
    }

    /// The rank after the last candidate taken, for each member. A merge that begins at these ranks continues
    /// this one.
    pub(super) fn ranks(&self) -> &[u64] {
        &self.ranks
    }

    /// Whether there is a candidate left.
    pub(super) fn has_next(&mut self) -> std::result::Result<bool, Stop> {
        if self.next >= self.batch.turns.len() {
            self.fill_batch()?;
        }
        Ok(self.next < self.batch.turns.len())
    }

    /// Hands the next cells of the view to `sink` and returns their number: at least `most`, then up to the
    /// next place, or all that are left. From time to time, calls `pass` with the number of candidates
    /// passed.
    pub(super) fn take(
        &mut self,
        most: u64,
        sink: &mut impl MergeSink,
        mut pass: impl FnMut(u64) -> Result<()>,
    ) -> std::result::Result<u64, Stop> {
        let mut count = 0;
        let mut full = false;
        while !full && self.has_next()? {
            let first = self.next;
            while let Some(turn) = self.batch.turns.get(self.next) {
                let (member, is_new) = (turn.member(), !turn.is_at_same_place());
                full = is_new && count >= most;
                if full {
                    break;
                }
                // Most are alone at their place.
                let alone = self
                    .batch
                    .alone(self.next)
                    .min(most.saturating_sub(count) as usize);
                if alone > 0 {
                    let turns = &self.batch.turns[self.next..self.next + alone];
                    sink.take_next(turns, &mut self.ranks)?;
                    self.next += alone;
                    count += alone as u64;
                    continue;
                }
                let behind = &mut self.ranks[member as usize];
                let (rank, mark) = match self.batch.details.is_empty() {
                    true => (*behind, 0),
                    false => self.batch.details[self.next],
                };
                *behind = rank + 1;
                self.next += 1;
                let mut stays = mark & DELETED == 0;
                let next = self.batch.turns.get(self.next);
                if !is_new || next.is_none_or(|next| next.is_at_same_place()) {
                    if is_new {
                        self.shared = self.is_shared(member);
                        self.seen.clear();
                    }
                    stays &= self.is_newest(member, mark & !DELETED);
                }
                if stays {
                    sink.take(member, rank)?;
                    count += 1;
                }
            }
            pass((self.next - first) as u64)?;
        }
        Ok(count)
    }

    /// Reads windows of a member until it has `windows` of them, or nothing is left.
    fn read_ahead(&mut self, member: usize, windows: usize) -> std::result::Result<(), Stop> {
        let (cursor, source) = (&mut self.cursors[member], &self.members[member]);
        while cursor.read < cursor.end && cursor.windows.len() < windows {
            let most = self.window.min(cursor.end - cursor.read);
            let last = cursor.last.as_ref().map(|(key, _)| key);
            let window = source.window(self.rules, cursor.read, most, last)?;
            cursor.read = window.end;
            let [low, high] = self.between;
            let below = low.is_some_and(|low| window.keys.first().is_some_and(|first| first < low));
            let above = high.is_some_and(|high| window.keys.last().is_some_and(|last| last >= high));
            if below || above || !self.rules.continues(cursor.last.as_ref(), &window) {
                return Err(Stop::Unsorted(member));
            }
            if let Some(last) = window.keys.last() {
                let time = self.rules.time(source, &window, window.keys.len() - 1);
                cursor.last = Some((last.clone(), time));
                cursor.windows.push_back(window);
            }
        }
        Ok(())
    }

    /// Makes the next batch, which is empty at the end.
    fn fill_batch(&mut self) -> std::result::Result<(), Stop> {
        self.next = 0;
        let tuning = self.rules.tuning;
        let most = tuning.batch_candidates / self.members.len();
        let most = most.max(tuning.batch_candidates_per_member);
        for member in 0..self.cursors.len() {
            self.read_ahead(member, WINDOWS_AHEAD)?;
        }
        // The batch ends before the first candidate that exceeds a member's part or has not been read.
        let ends = (0..).zip(self.cursors.iter().zip(self.members));
        let ends = ends.filter_map(|(member, (cursor, source))| {
            let (window, i) = cursor.candidate(most).or_else(|| {
                let last = cursor.windows.back().filter(|_| cursor.read < cursor.end)?;
                Some((last, last.keys.len().checked_sub(1)?))
            })?;
            let time = self.rules.time(source, window, i);
            Some((&window.keys[i], Reverse(time), Reverse(member)))
        });
        let until = ends.min();
        let until = until.map(|(key, time, member)| (key.clone(), time, member));
        let mut runs = Vec::with_capacity(WINDOWS_AHEAD * self.members.len());
        for &member in &self.newest_first {
            let number = member as usize;
            let (cursor, source) = (&self.cursors[number], &self.members[number]);
            let mut at = cursor.at;
            for window in &cursor.windows {
                let keys = &window.keys[at..];
                let mut count = keys.len();
                if let Some(until) = &until {
                    count = keys.partition_point(|key| *key < until.0);
                    let time = |i: usize| self.rules.time(source, window, at + i);
                    let ties = keys.iter().enumerate().skip(count);
                    let ties = ties.map(|(i, key)| (key, Reverse(time(i)), Reverse(member)));
                    count += ties
                        .take_while(|tie| *tie <= (&until.0, until.1, until.2))
                        .count();
                }
                runs.push(Run {
                    member,
                    source,
                    window,
                    range: at..at + count,
                });
                if count < keys.len() {
                    break;
                }
                at = 0;
            }
        }
        self.batch.fill(self.rules, &runs, &self.ranks, self.timed);
        let ends: Vec<(u32, usize)> = runs.iter().map(|run| (run.member, run.range.end)).collect();
        for (member, end) in ends {
            let cursor = &mut self.cursors[member as usize];
            cursor.at = end;
            if cursor
                .windows
                .front()
                .is_some_and(|window| end >= window.keys.len())
            {
                cursor.at = 0;
                cursor.windows.pop_front();
            }
        }
        // The candidates after the batch may be at the place of its last one.
        for member in 0..self.cursors.len() {
            self.read_ahead(member, 1)?;
        }
        Ok(())
    }

    /// Whether a member other than `member` has a candidate at the place of the last candidate taken.
    fn is_shared(&self, member: u32) -> bool {
        let rest = self.batch.turns.iter().skip(self.next);
        for next in rest {
            if !next.is_at_same_place() || next.member() != member {
                return next.is_at_same_place();
            }
        }
        (0..).zip(&self.cursors).any(|(other, cursor): (u32, _)| {
            let next = cursor.candidate(0).map(|(window, i)| &window.keys[i]);
            other != member && next.is_some() && next == self.batch.last.as_ref()
        })
    }

    /// Whether a candidate of `member` at the current place is the newest there with its `mark`.
    fn is_newest(&mut self, member: u32, mark: u64) -> bool {
        if self.rules.duplicates || self.members[member as usize].stays {
            return true;
        }
        match self.seen.iter().find(|(seen, _)| *seen == mark) {
            None => {
                self.seen.push((mark, member));
                true
            }
            // A fragment may have a place several times if its writer did not check for duplicates. Readers
            // return all of them.
            Some(&(_, newest)) => {
                let source = &self.members[member as usize];
                newest == member && !self.shared && !source.input.has_timestamps()
            }
        }
    }
}
