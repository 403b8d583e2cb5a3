//! The members of a merge: fragments with their candidates in global order.

use super::input::{Input, Ranked, Window};
use crate::catalog::time::TimeRange;
use crate::error::{Error, Result};
use crate::query::order::{GlobalOrder, SortKey};
use crate::runtime::parallel;
use crate::runtime::tuning::Tuning;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// The settings that all merges of a view share.
pub(super) struct Rules {
    /// The order of keys.
    pub order: GlobalOrder,
    /// The range of time of the reader.
    pub times: TimeRange,
    /// Whether the array allows duplicates. If not, only the newest cell at a place stays.
    pub duplicates: bool,
    /// The most bytes that all windows of one merge may take together.
    pub memory: u64,
    /// The most bytes that sorting a fragment may take.
    pub sorting: u64,
    /// Whether the cells of small fragments are compared before any is read: see [`order`](super::order).
    pub looks_first: bool,
    /// The sizes of windows, batches and blocks.
    pub tuning: &'static Tuning,
}

impl Rules {
    /// The time at which candidate `i` of a window of `source` was written; 0 if the array allows duplicates.
    pub(super) fn time<K>(&self, source: &Member<K>, window: &Window<K>, i: usize) -> u64 {
        match self.duplicates {
            true => 0,
            false => window.time(i).unwrap_or_else(|| source.input.start()),
        }
    }

    /// Whether the cells of a window follow `last`, a key and a time, in the order of a merge: places ascend,
    /// and at one place the newest cell comes first. Libraries that wrote format version 15 consolidated the
    /// cells at one place in any order.
    pub(super) fn continues<K: SortKey>(&self, last: Option<&(K, u64)>, window: &Window<K>) -> bool {
        if self.duplicates || window.times.is_empty() {
            let goes_on = last
                .zip(window.keys.first())
                .is_none_or(|(last, first)| last.0 <= *first);
            return goes_on && window.keys.is_sorted();
        }
        let last = last.map(|(key, time)| (key, *time));
        let cells = window.keys.iter().enumerate();
        let cells = cells.map(|(i, key)| (key, window.times[i]));
        last.into_iter()
            .chain(cells)
            .is_sorted_by(|a, b| match a.0.cmp(b.0) {
                Ordering::Equal => a.1 >= b.1,
                order => order == Ordering::Less,
            })
    }
}

/// The candidates of a fragment that is not stored in global order, sorted.
pub(super) struct Sorted<K> {
    /// All candidates. Their ranks are those in the sorted sequence.
    pub window: Window<K>,
    /// The number of each candidate's cell in the fragment.
    pub cells: Arc<Vec<u64>>,
    /// The bytes that they take.
    memory: u64,
}

impl<K: SortKey> Sorted<K> {
    /// Sorts the candidates of `input`. `LimitExceeded` if all sorted candidates, with those of `others`,
    /// would take more memory than windows may.
    pub(super) fn new(input: &Input, others: &[Member<K>], rules: &Rules) -> Result<Sorted<K>> {
        let others = others.iter().filter_map(|member| member.sorted.as_ref());
        let others = others.fold(0u64, |sum, sorted| sum.saturating_add(sorted.memory));
        let check = |memory: u64| match others.saturating_add(memory) > rules.sorting {
            false => Ok(()),
            true => {
                let message = format!(
                    "its {} cells are not in global order, and sorting them takes more memory than this \
                     cache size allows",
                    input.count()
                );
                Err(input.info.place(Error::limit(message).at(0)))
            }
        };
        let mut memory = input.count().saturating_mul(size_of::<K>() as u64 + 4 * 8);
        check(memory)?;
        let mut all: Vec<(K, u64, u64, u64)> = Vec::new();
        let most = rules.tuning.max_window_candidates;
        let mut rank = 0;
        while rank < input.count() {
            let window: Window<K> = input.window(&rules.order, rules.times, rank, most)?;
            let heap = window.keys.iter().map(SortKey::heap).sum();
            memory = memory.saturating_add(heap);
            check(memory)?;
            let cells: Vec<u64> = input.cells(rank..window.end).flatten().collect();
            for (i, key) in window.keys.iter().enumerate() {
                let offset = (window.rank(i) - rank) as usize;
                all.push((
                    key.clone(),
                    window.time(i).unwrap_or_else(|| input.start()),
                    window.mark(i),
                    cells[offset],
                ));
            }
            rank = window.end;
        }
        // At one place the newest comes first, as in consolidated fragments. The sort is stable: duplicates
        // keep their stored order.
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
            memory,
        })
    }
}

/// The keys by which a fragment is merged as it is stored though its cells are not in global order: that of a
/// candidate is the greatest up to it. So it comes next after those that are stored before it, as in
/// libtiledb's readers, which compare the next cells of fragments. Deleted ones do not take part.
///
/// For each step of [`Tuning::order_step_candidates`], this is the greatest key before it; None if the view has
/// no candidate there.
pub(super) struct Raised<K>(Vec<Option<K>>);

impl<K: SortKey> Raised<K> {
    /// Reads the coordinates of all candidates of `input`.
    pub(super) fn new(input: &Input, rules: &Rules) -> Result<Raised<K>> {
        let step = rules.tuning.order_step_candidates;
        let greatest = parallel::each(input.count().div_ceil(step), |number| {
            let start = number * step;
            greatest::<K>(input, rules, start..input.count().min(start + step))
        })?;
        let before = greatest.into_iter().scan(None, |before, greatest| {
            let after = greatest.max(before.clone());
            Some(std::mem::replace(before, after))
        });
        Ok(Raised(before.collect()))
    }

    /// The greatest key before the step that has a rank.
    pub(super) fn before_step(&self, rules: &Rules, rank: u64) -> Option<K> {
        self.0[(rank / rules.tuning.order_step_candidates) as usize].clone()
    }

    /// The greatest key before a rank.
    pub(super) fn before(&self, input: &Input, rules: &Rules, rank: u64) -> Result<Option<K>> {
        let start = rank - rank % rules.tuning.order_step_candidates;
        Ok(greatest(input, rules, start..rank)?.max(self.before_step(rules, rank)))
    }

    /// The lowest rank up to which there is a key that is not below `key`.
    fn lower_bound(&self, input: &Input, rules: &Rules, key: &K) -> Result<u64> {
        let step = rules.tuning.order_step_candidates;
        let below = |before: &Option<K>| before.as_ref().is_none_or(|before| before < key);
        let mut rank = (self.0.partition_point(below) as u64 - 1) * step;
        let end = input.count().min(rank + step);
        while rank < end {
            let window: Window<K> = undeleted(input, rules, rank, end - rank)?;
            if let Some(i) = window.keys.iter().position(|found| found >= key) {
                return Ok(window.rank(i));
            }
            rank = window.end;
        }
        Ok(end)
    }
}

/// The greatest key of the candidates `ranks`; None if the view has none of them.
fn greatest<K: SortKey>(input: &Input, rules: &Rules, ranks: Range<u64>) -> Result<Option<K>> {
    let (mut greatest, mut rank) = (None, ranks.start);
    while rank < ranks.end {
        let window: Window<K> = undeleted(input, rules, rank, ranks.end - rank)?;
        greatest = window.keys.into_iter().max().max(greatest);
        rank = window.end;
    }
    Ok(greatest)
}

/// A [window](Input::window) without the candidates that are deleted.
fn undeleted<K: SortKey>(input: &Input, rules: &Rules, rank: u64, most: u64) -> Result<Window<K>> {
    let mut window = input.window(&rules.order, rules.times, rank, most)?;
    window.keep_undeleted();
    Ok(window)
}

/// One fragment in a merge.
#[derive(Clone)]
pub(super) struct Member<K> {
    /// The fragment.
    pub input: Arc<Input>,
    /// Its sorted candidates, if they are not stored in order.
    pub sorted: Option<Arc<Sorted<K>>>,
    /// The keys by which its candidates are merged, if they are not stored in order and stay so.
    pub raised: Option<Arc<Raised<K>>>,
    /// Whether every cell of it is one of the view, because no box of another meets its box. Boxes have no
    /// NaN: cells that are at NaN in several fragments stay as well.
    pub stays: bool,
}

impl<K: SortKey> Member<K> {
    pub(super) fn count(&self) -> u64 {
        match &self.sorted {
            Some(sorted) => sorted.window.end,
            None => self.input.count(),
        }
    }

    /// A window of at most `most` candidates from `rank` on. `last` is the key of the candidate before it, if
    /// that is known.
    pub(super) fn window(&self, rules: &Rules, rank: u64, most: u64, last: Option<&K>) -> Result<Window<K>> {
        if let Some(raised) = &self.raised {
            let mut window: Window<K> = undeleted(&self.input, rules, rank, most)?;
            let mut greatest = match last {
                Some(last) => Some(last.clone()),
                None => raised.before(&self.input, rules, rank)?,
            };
            for key in &mut window.keys {
                greatest = greatest.max(Some(key.clone()));
                key.clone_from(greatest.as_ref().expect("a key"));
            }
            return Ok(window);
        }
        let Some(sorted) = &self.sorted else {
            return self.input.window(&rules.order, rules.times, rank, most);
        };
        let all = &sorted.window;
        let end = rank.saturating_add(most).min(all.end);
        let range = rank as usize..end as usize;
        let mut window = Window::empty_at(rank);
        window.end = end;
        window.keys = all.keys[range.clone()].to_vec();
        if !all.times.is_empty() {
            window.times = all.times[range.clone()].to_vec();
        }
        window.marks = all.marks[range].to_vec();
        Ok(window)
    }

    /// The lowest rank whose key is not below `key`.
    pub(super) fn lower_bound(&self, rules: &Rules, key: &K) -> Result<u64> {
        if let Some(raised) = &self.raised {
            return raised.lower_bound(&self.input, rules, key);
        }
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(rules, middle)? {
                found if found < *key => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// A key near a rank, by which the member can be parted; None if none is known.
    pub(super) fn sample(&self, rules: &Rules, rank: u64) -> Result<Option<K>> {
        match &self.raised {
            Some(raised) => Ok(raised.before_step(rules, rank)),
            None => self.key(rules, rank).map(Some),
        }
    }

    /// The key at a rank.
    fn key(&self, rules: &Rules, rank: u64) -> Result<K> {
        match &self.sorted {
            Some(sorted) => Ok(sorted.window.keys[rank as usize].clone()),
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
