//! The k-way merge of fragments: cells in the array's global order, of each place the newest.

use super::block::Ranked;
use super::input::{DELETED, Input, Window};
use crate::array::order::{GlobalOrder, Key};
use crate::array::time::TimeRange;
use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// The fewest candidates of a window, and the most; few in tests, whose fragments are small. Tiles of sparse
/// fragments have 10,000 cells unless somebody said otherwise.
const WINDOW: Range<u64> = if cfg!(test) { 3..11 } else { 64..10_000 };

/// What does not change while a component is merged.
pub(super) struct Rules {
    /// The order of keys.
    pub order: GlobalOrder,
    /// The range of time that is read.
    pub times: TimeRange,
    /// Whether several cells may be at one place; otherwise the newest alone stays.
    pub duplicates: bool,
    /// The most bytes that the windows of one merge may take together.
    pub memory: u64,
}

impl Rules {
    /// Whether the cells of a window, and before them one of this key and time, are in the order of a merge:
    /// places ascend, and of one place the newest comes first. Libraries that wrote format version 15
    /// consolidated the cells of one place in any order.
    fn continues<K: Key>(&self, last: Option<&(K, u64)>, window: &Window<K>) -> bool {
        let time = |i: usize| window.times.get(i).copied().unwrap_or(0);
        let last = last.map(|(key, time)| (key, *time));
        let cells = window.keys.iter().enumerate().map(|(i, key)| (key, time(i)));
        last.into_iter()
            .chain(cells)
            .is_sorted_by(|a, b| match a.0.cmp(b.0) {
                Ordering::Equal => self.duplicates || a.1 >= b.1,
                order => order == Ordering::Less,
            })
    }
}

/// A fragment whose cells turned out not to be stored in the array's order.
#[derive(Debug)]
pub(super) struct Unsorted {
    /// Which of the inputs.
    pub input: usize,
}

/// Why a merge ends early.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(Error),
    Unsorted(Unsorted),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// The candidates of a fragment whose stored order is another, sorted.
pub(super) struct Sorted<K> {
    /// Of all of them; here ranks are those of the sorted sequence.
    pub window: Window<K>,
    /// The cell of the fragment that is each of them.
    pub cells: Arc<Vec<u64>>,
}

impl<K: Key> Sorted<K> {
    /// The bytes that the sorted candidates of `input` take.
    fn memory(input: &Input) -> u64 {
        let each = size_of::<K>() as u64 + 4 * 8;
        input.count().saturating_mul(each)
    }

    /// Sorts the candidates of `input`. `LimitExceeded` where they take, with those of `others` that are
    /// sorted too, more memory than windows may.
    pub(super) fn new(input: &Input, others: &[Member<K>], rules: &Rules) -> Result<Sorted<K>> {
        let sorted = others.iter().filter(|member| member.sorted.is_some());
        let others = sorted.fold(0u64, |sum, member| {
            sum.saturating_add(Self::memory(&member.input))
        });
        if others.saturating_add(Self::memory(input)) > rules.memory {
            let message = format!(
                "its {} cells are not in the array's order, and sorting them takes more memory than this \
                 cache size allows",
                input.count()
            );
            return Err(input.info.place(Error::limit(message).at(0)));
        }
        let mut all: Vec<(K, u64, u32, u64)> = Vec::new();
        let mut rank = 0;
        while rank < input.count() {
            let window: Window<K> = input.window(&rules.order, rules.times, rank, WINDOW.end)?;
            let cells: Vec<u64> = input.cells(rank..window.end).flatten().collect();
            for (i, key) in window.keys.iter().enumerate() {
                let offset = window.rank(i).saturating_sub(rank) as usize;
                all.push((
                    key.clone(),
                    window.times.get(i).copied().unwrap_or(0),
                    window.marks.get(i).copied().unwrap_or(0),
                    cells.get(offset).copied().unwrap_or(0),
                ));
            }
            rank = window.end;
        }
        // Stable; of one place the newest comes first, as where fragments are consolidated. Duplicates stay
        // in stored order.
        all.sort_by(|a, b| {
            let newest_first = match rules.duplicates {
                true => Ordering::Equal,
                false => b.1.cmp(&a.1),
            };
            a.0.cmp(&b.0).then(newest_first)
        });
        let mut window = Window::empty_at(0);
        window.end = all.len() as u64;
        let mut cells = Vec::with_capacity(all.len());
        for (key, time, mark, cell) in all {
            window.keys.push(key);
            window.times.push(time);
            window.marks.push(mark);
            cells.push(cell);
        }
        if !input.has_timestamps() {
            window.times.clear();
        }
        Ok(Sorted {
            window,
            cells: Arc::new(cells),
        })
    }
}

/// One fragment in a merge.
#[derive(Clone)]
pub(super) struct Member<K> {
    /// The fragment.
    pub input: Arc<Input>,
    /// Its candidates, where they had to be sorted.
    pub sorted: Option<Arc<Sorted<K>>>,
}

impl<K: Key> Member<K> {
    /// How many ranks there are.
    pub(super) fn count(&self) -> u64 {
        match &self.sorted {
            Some(sorted) => sorted.window.end,
            None => self.input.count(),
        }
    }

    fn window(&self, rules: &Rules, rank: u64, most: u64) -> Result<Window<K>> {
        let Some(sorted) = &self.sorted else {
            return self.input.window(&rules.order, rules.times, rank, most);
        };
        let all = &sorted.window;
        let end = rank.saturating_add(most).min(all.end);
        let range = rank as usize..end as usize;
        let mut window = Window::empty_at(rank);
        window.end = end;
        window.keys = all.keys.get(range.clone()).unwrap_or(&[]).to_vec();
        window.times = all.times.get(range.clone()).unwrap_or(&[]).to_vec();
        window.marks = all.marks.get(range).unwrap_or(&[]).to_vec();
        Ok(window)
    }

    /// The lowest rank whose key is not below `key`.
    pub(super) fn lower_bound(&self, rules: &Rules, key: &K) -> Result<u64> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(rules, middle)? {
                Some(found) if found < *key => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The key of a rank.
    pub(super) fn key(&self, rules: &Rules, rank: u64) -> Result<Option<K>> {
        match &self.sorted {
            Some(sorted) => Ok(sorted.window.keys.get(rank as usize).cloned()),
            None => self.input.key(&rules.order, rank),
        }
    }

    /// Its cells by rank.
    pub(super) fn ranked(&self) -> Ranked {
        Ranked {
            input: self.input.clone(),
            sorted: self.sorted.as_ref().map(|sorted| sorted.cells.clone()),
        }
    }
}

/// A member's place in a merge that is under way.
struct Cursor<K> {
    window: Window<K>,
    /// Of the next candidate, in the window.
    at: usize,
    /// The rank behind the last one of this merge.
    end: u64,
    /// The last key of the window before, and its time.
    last: Option<(K, u64)>,
}

/// The next candidate of a member.
struct Head<K> {
    key: K,
    /// When it was written; 0 where that plays no part.
    time: u64,
    member: u32,
}

impl<K: Key> Head<K> {
    /// Whether it comes before another: by place, then the newest first.
    fn precedes(&self, other: &Self) -> bool {
        let order = self.key.cmp(&other.key);
        let order = order.then_with(|| other.time.cmp(&self.time));
        order.then_with(|| other.member.cmp(&self.member)) == Ordering::Less
    }
}

/// A merge of the candidates of several fragments, from one rank of each to another.
pub(super) struct Merge<'a, K> {
    rules: &'a Rules,
    members: &'a [Member<K>],
    /// Between which keys candidates have to be, where that is known: the lower one is in.
    between: [Option<&'a K>; 2],
    cursors: Vec<Cursor<K>>,
    /// The next candidate of each member that has some left, as a binary heap: what comes first is at the
    /// top.
    heap: Vec<Head<K>>,
    window: u64,
    /// The place that was merged last.
    place: Option<K>,
    /// For each sign of zeros that was seen there: the mark, and the member that has the newest cell.
    seen: Vec<(u32, u32)>,
    /// Whether several members have a cell there.
    shared: bool,
}

impl<'a, K: Key> Merge<'a, K> {
    /// A merge of ranks `from[i]..to[i]` of each member, whose keys are `between` two where those are given.
    /// A member with others is not sorted.
    pub(super) fn new(
        rules: &'a Rules,
        members: &'a [Member<K>],
        from: &[u64],
        to: &[u64],
        between: [Option<&'a K>; 2],
    ) -> std::result::Result<Self, Stop> {
        // A candidate takes its key, time, rank and mark.
        let each = size_of::<K>() as u64 + 3 * 8;
        let window = rules.memory / (each * members.len().max(1) as u64);
        let mut merge = Merge {
            rules,
            members,
            between,
            cursors: Vec::with_capacity(members.len()),
            heap: Vec::with_capacity(members.len()),
            window: window.clamp(WINDOW.start, WINDOW.end),
            place: None,
            seen: Vec::new(),
            shared: false,
        };
        for (&from, &to) in from.iter().zip(to) {
            merge.cursors.push(Cursor {
                window: Window::empty_at(from),
                at: 0,
                end: to,
                last: None,
            });
        }
        for member in 0..merge.cursors.len() {
            if let Some(head) = merge.head(member as u32)? {
                merge.heap.push(head);
                merge.sift_up(merge.heap.len() - 1);
            }
        }
        Ok(merge)
    }

    /// The rank of the next candidate of each member.
    pub(super) fn ranks(&self) -> Vec<u64> {
        let rank = |cursor: &Cursor<K>| match cursor.at < cursor.window.keys.len() {
            true => cursor.window.rank(cursor.at),
            false => cursor.window.end,
        };
        self.cursors.iter().map(rank).collect()
    }

    /// Whether no candidate is left.
    pub(super) fn is_done(&self) -> bool {
        self.heap.is_empty()
    }

    /// Whether the next candidate is at another place than the one before it, so that a merge may begin with
    /// it.
    pub(super) fn is_at_new_place(&self) -> bool {
        let key = self.heap.first().map(|top| &top.key);
        self.rules.duplicates || key.is_none() || key != self.place.as_ref()
    }

    /// Has a member's next candidate in its window; false where none is left.
    fn fill(&mut self, member: usize) -> std::result::Result<bool, Stop> {
        let (Some(cursor), Some(source)) = (self.cursors.get_mut(member), self.members.get(member)) else {
            return Ok(false);
        };
        while cursor.at >= cursor.window.keys.len() {
            let rank = cursor.window.end;
            if rank >= cursor.end {
                return Ok(false);
            }
            if let Some(last) = cursor.window.keys.pop() {
                cursor.last = Some((last, cursor.window.times.last().copied().unwrap_or(0)));
            }
            let most = self.window.min(cursor.end - rank);
            let window = source.window(self.rules, rank, most)?;
            let [low, high] = self.between;
            let below = low.is_some_and(|low| window.keys.first().is_some_and(|first| first < low));
            let above = high.is_some_and(|high| window.keys.last().is_some_and(|last| last >= high));
            let sorted = !below && !above && self.rules.continues(cursor.last.as_ref(), &window);
            if !sorted && !source.input.merges_as_it_lies() {
                return Err(Stop::Unsorted(Unsorted { input: member }));
            }
            cursor.at = 0;
            cursor.window = window;
        }
        Ok(true)
    }

    /// A member's next candidate, with the window that it is in; None where none is left.
    fn head(&mut self, member: u32) -> std::result::Result<Option<Head<K>>, Stop> {
        if !self.fill(member as usize)? {
            return Ok(None);
        }
        let (cursor, source) = (
            self.cursors.get(member as usize),
            self.members.get(member as usize),
        );
        let (Some(cursor), Some(source)) = (cursor, source) else {
            return Ok(None);
        };
        let time = match cursor.window.times.get(cursor.at) {
            _ if self.rules.duplicates => 0,
            Some(&time) => time,
            None => source.input.start(),
        };
        let key = cursor.window.keys.get(cursor.at).cloned();
        Ok(key.map(|key| Head { key, time, member }))
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            match (self.heap.get(at), self.heap.get(parent)) {
                (Some(child), Some(above)) if child.precedes(above) => self.heap.swap(at, parent),
                _ => return,
            }
            at = parent;
        }
    }

    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            let Some(first) = self.heap.get(left) else { return };
            let child = match self.heap.get(left + 1) {
                Some(second) if second.precedes(first) => left + 1,
                _ => left,
            };
            match (self.heap.get(child), self.heap.get(at)) {
                (Some(below), Some(above)) if below.precedes(above) => self.heap.swap(child, at),
                _ => return,
            }
            at = child;
        }
    }

    /// The next candidate and whether it is a cell of the view: its member and its rank. None at the end.
    pub(super) fn next(&mut self) -> std::result::Result<Option<(u32, u64, bool)>, Stop> {
        let Some(member) = self.heap.first().map(|top| top.member) else {
            return Ok(None);
        };
        let Some(cursor) = self.cursors.get_mut(member as usize) else {
            return Ok(None);
        };
        let mark = cursor.window.marks.get(cursor.at).copied().unwrap_or(0);
        let rank = cursor.window.rank(cursor.at);
        cursor.at += 1;
        let is_new = !self.rules.duplicates && self.heap.first().map(|top| &top.key) != self.place.as_ref();
        if is_new {
            let (top, children) = (self.heap.first(), [self.heap.get(1), self.heap.get(2)]);
            let mut children = children.into_iter().flatten();
            self.shared = children.any(|child| top.is_some_and(|top| top.key == child.key));
        }
        let last = match self.head(member)? {
            Some(next) => self.heap.first_mut().map(|top| std::mem::replace(top, next)),
            None if self.heap.is_empty() => None,
            None => Some(self.heap.swap_remove(0)),
        };
        self.sift_down();
        if is_new {
            self.place = last.map(|last| last.key);
            self.seen.clear();
        }
        let stays = self.rules.duplicates || self.is_newest(member, mark & !DELETED);
        Ok(Some((member, rank, stays && mark & DELETED == 0)))
    }

    /// Whether a candidate of `member`, at the place that is merged, is the newest there with its `mark`.
    fn is_newest(&mut self, member: u32, mark: u32) -> bool {
        match self.seen.iter().find(|(seen, _)| *seen == mark) {
            None => {
                self.seen.push((mark, member));
                true
            }
            // A fragment that was written at once may hold a place several times, if its writer was told not
            // to look. Readers return all of them.
            Some(&(_, newest)) => {
                let source = self.members.get(member as usize);
                newest == member
                    && !self.shared
                    && source.is_some_and(|source| !source.input.has_timestamps())
            }
        }
    }
}
