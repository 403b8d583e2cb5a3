//! A fragment as the input of a merge: which cells are candidates, when each was written, and which are
//! deleted.

use super::Share;
use super::deletes::Deletes;
use super::ranges::{Inside, Ranges};
use crate::catalog::time::TimeRange;
use crate::error::{Error, Result};
use crate::format::datatype::Kind;
use crate::format::enums::Layout;
use crate::format::scalar::Scalar;
use crate::fragment::cell_slice::{CellSlice, Values, fitting, numbers};
use crate::fragment::cells::FragmentCells;
use crate::fragment::column::Content;
use crate::fragment::field;
use crate::fragment::info::FragmentInfo;
use crate::query::TileRun;
use crate::query::order::{GlobalOrder, SortKey};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A fragment that takes part in a sparse view.
///
/// Its *candidates* are the cells of all tiles that may hold cells of the view. The index of a candidate
/// among them is its *rank*.
pub(super) struct Input {
    /// The index among the fragments in reading order, oldest first.
    pub index: usize,
    /// Whether its cells are known not to be in global order.
    pub is_unsorted: bool,
    /// The fragment.
    pub info: Arc<FragmentInfo>,
    /// The coordinates, one field per dimension.
    pub dimensions: Vec<FragmentCells>,
    /// The timestamp of each cell, if the fragment stores them and they decide which cells there are: where
    /// duplicates are allowed, only if some are cut.
    timestamps: Option<FragmentCells>,
    /// Whether some cells may have been written outside the view's time range.
    cut: bool,
    deletes: Deletes,
    /// The ranges of the view's cells.
    ranges: Arc<Ranges>,
    candidates: Vec<Candidates>,
    count: u64,
    /// Indexes of the floating-point dimensions. There, 0.0 and -0.0 have the same key, but are different
    /// coordinates.
    floats: Vec<usize>,
    signed_strings: bool,
    /// Whether a window had strings with bytes of 0x80 or more.
    has_read_signed_strings: AtomicBool,
    /// Whether a lossy filter, or Hilbert order by an old library, may have made another order.
    other_order: bool,
}

/// Consecutive tiles that may hold cells of the view.
struct Candidates {
    /// The rank of the first cell.
    rank: u64,
    /// The cells' numbers in the fragment.
    cells: Range<u64>,
    /// Whether all cells are inside the ranges, so that no cell needs a check.
    inside: bool,
}

impl Candidates {
    /// The rank after the last cell.
    fn end(&self) -> u64 {
        self.rank + (self.cells.end - self.cells.start)
    }
}

/// Maps the ranks of a member's candidates to cells of its fragment.
#[derive(Clone)]
pub(super) struct Ranked {
    /// The fragment.
    pub input: Arc<Input>,
    /// The cell of each rank, if the candidates had to be sorted.
    pub sorted: Option<Arc<Vec<u64>>>,
}

/// The keys of consecutive candidates, in the order in which they are merged. Candidates outside of the
/// view's ranges and times are left out.
#[derive(Clone)]
pub(super) struct Window<K> {
    /// The key of each candidate.
    pub keys: Vec<K>,
    /// The rank of each; empty if the ranks are consecutive from `first` on.
    pub ranks: Vec<u64>,
    /// The timestamp of each; empty if the fragment has one timestamp for all.
    pub times: Vec<u64>,
    /// For each, [`DELETED`] and two bits for each dimension of floats, whether the coordinate is -0.0 and
    /// whether it is NaN; empty if all are 0.
    pub marks: Vec<u64>,
    /// The rank of the first candidate, counting those that are left out.
    pub first: u64,
    /// The rank after the last candidate, counting those that are left out.
    pub end: u64,
}

/// The mark of a cell that is deleted.
pub(super) const DELETED: u64 = 1 << 63;

impl Ranked {
    /// The cells from rank `rank` on that are consecutive in the fragment. None if there is no such rank.
    pub(super) fn cells(&self, rank: u64) -> Option<Range<u64>> {
        match &self.sorted {
            Some(cells) => cells.get(rank as usize).map(|&cell| cell..cell + 1),
            None => self.input.cells(rank..u64::MAX).next(),
        }
    }
}

impl<K> Window<K> {
    pub(super) fn empty_at(rank: u64) -> Self {
        Window {
            keys: Vec::new(),
            ranks: Vec::new(),
            times: Vec::new(),
            marks: Vec::new(),
            first: rank,
            end: rank,
        }
    }

    /// Whether it has only keys: ranks are consecutive, and there are no timestamps or marks.
    pub(super) fn is_plain(&self) -> bool {
        self.ranks.is_empty() && self.times.is_empty() && self.marks.is_empty()
    }

    /// The rank of candidate `i`.
    pub(super) fn rank(&self, i: usize) -> u64 {
        match self.ranks.is_empty() {
            true => self.first + i as u64,
            false => self.ranks[i],
        }
    }

    /// The timestamp of candidate `i`; None if the fragment has one timestamp for all.
    pub(super) fn time(&self, i: usize) -> Option<u64> {
        (!self.times.is_empty()).then(|| self.times[i])
    }

    /// The marks of candidate `i`.
    pub(super) fn mark(&self, i: usize) -> u64 {
        match self.marks.is_empty() {
            true => 0,
            false => self.marks[i],
        }
    }
}

impl Input {
    /// The fragment `info`, number `index` in reading order, `is_unsorted` if that is known, as the input of
    /// a view of `times` and `ranges`. `Corrupt` if it has no coordinates.
    pub(super) fn new(
        (index, is_unsorted): (usize, bool),
        info: Arc<FragmentInfo>,
        times: TimeRange,
        ranges: Arc<Ranges>,
        deletes: Deletes,
        share: Share,
    ) -> Result<Input> {
        let count = info.schema.dimensions.len();
        let mut dimensions: Vec<Option<FragmentCells>> = (0..count).map(|_| None).collect();
        let mut timestamps = None;
        // After a merge, most readers read all coordinates again, so they stay in the cache.
        let sizes = info.schema.dimensions.iter();
        let sizes = sizes.map(|d| d.cell_val_num.cell_size(d.datatype));
        let cell = sizes.sum::<Option<u64>>();
        let stays = Some(Content::Data).filter(|_| share.has_room(&info, cell));
        for field in &info.fields {
            let cells = || {
                let cells = FragmentCells::new(info.clone(), field.clone());
                cells.holding(share.hold).staying(stays)
            };
            match field.role {
                field::Role::Dimension(i) | field::Role::ZippedDimension(i) => {
                    dimensions[i] = Some(cells());
                }
                field::Role::Timestamps => timestamps = Some(cells()),
                _ => {}
            }
        }
        let dimensions: Vec<FragmentCells> = dimensions
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| info.place(Error::corrupt("the sparse fragment has no coordinates").at(0)))?;
        let candidates = candidates(&info, &ranges)?;
        let cut = timestamps.is_some() && !times.covers(info.name.timestamps);
        let floats = info.schema.dimensions.iter().enumerate();
        Ok(Input {
            index,
            is_unsorted,
            cut,
            count: candidates.last().map_or(0, Candidates::end),
            floats: floats
                .filter(|(_, d)| d.datatype.kind() == Kind::Float)
                .map(|(i, _)| i)
                .collect(),
            candidates,
            dimensions,
            timestamps: timestamps.filter(|_| cut || !info.schema.allows_duplicates),
            deletes,
            ranges,
            signed_strings: has_signed_strings(&info),
            has_read_signed_strings: AtomicBool::new(false),
            other_order: has_other_order(&info),
            info,
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether every candidate is a cell of the view, unless a newer cell has the same coordinates.
    pub(super) fn is_whole(&self) -> bool {
        !self.cut && self.deletes.is_empty() && self.candidates.iter().all(|run| run.inside)
    }

    /// Whether cells have timestamps of their own that matter: then several may have the same coordinates.
    pub(super) fn has_timestamps(&self) -> bool {
        self.timestamps.is_some()
    }

    /// The timestamp of cells without one of their own: the start of the fragment's time range.
    pub(super) fn start(&self) -> u64 {
        self.info.name.timestamps.0
    }

    /// The cells of the candidates in `ranks`, as ascending runs.
    pub(super) fn cells(&self, ranks: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.candidates.partition_point(|run| run.end() <= ranks.start);
        let runs = self.candidates.iter().skip(first);
        runs.map_while(move |run| {
            let from = ranks.start.max(run.rank);
            let to = ranks.end.min(run.end());
            (from < to).then(|| run.cells.start + (from - run.rank)..run.cells.start + (to - run.rank))
        })
    }

    /// The candidates in the same tile as that with rank `rank`.
    pub(super) fn tile_of(&self, rank: u64) -> Range<u64> {
        let run = &self.candidates[self.candidates.partition_point(|run| run.end() <= rank)];
        // A run begins at a tile.
        let size = self.info.geometry.tile_cells;
        let start = rank - (rank - run.rank) % size;
        start..run.end().min(start + size)
    }

    /// Its candidates as whole tiles.
    pub(super) fn tile_runs(&self) -> Vec<TileRun> {
        let runs = self.candidates.iter().map(|run| TileRun {
            cells: run.cells.end - run.cells.start,
            tile: self.info.geometry.tile_cells,
        });
        runs.collect()
    }

    /// Reads a window of at most `most` candidates from `rank` on, where there is one; of fewer if their
    /// values are long.
    pub(super) fn window<K: SortKey>(
        &self,
        order: &GlobalOrder,
        times: TimeRange,
        rank: u64,
        most: u64,
    ) -> Result<Window<K>> {
        let at = self.candidates.partition_point(|run| run.end() <= rank);
        let run = &self.candidates[at];
        let start = run.cells.start + (rank - run.rank);
        let mut cells = start..run.cells.end.min(start.saturating_add(most));
        // If the window reaches the end of a tile, it ends there, so that no chunk is read for two windows.
        let tile = self.info.geometry.tile_cells;
        let whole = cells.end - cells.end % tile;
        if whole > start && cells.end < run.cells.end {
            cells.end = whole;
        }
        let fields = self.dimensions.iter().chain(self.deletes.fields());
        cells = fitting(
            fields,
            cells,
            most.saturating_mul(self.info.engine.tuning.candidate_string_bytes),
        )?;
        let mut window = Window::empty_at(rank);
        window.end = rank + (cells.end - cells.start);

        let mut scratch: Vec<Values> = Vec::with_capacity(self.dimensions.len());
        for dimension in &self.dimensions {
            scratch.push(Values::read(dimension, cells.clone())?);
        }
        let columns: Vec<CellSlice> = scratch.iter().map(Values::slice).collect();
        let mut strings = self.info.schema.dimensions.iter().zip(&columns);
        if strings.any(|(dimension, column)| dimension.cell_val_num.is_var() && !column.values.is_ascii()) {
            self.has_read_signed_strings.store(true, Ordering::Relaxed);
        }
        K::append(order, &columns, &mut window.keys);
        let count = (cells.end - cells.start) as usize;
        if window.keys.len() != count {
            return Err(Error::internal("made fewer keys than there are cells"));
        }
        if let Some(timestamps) = &self.timestamps {
            window.times = numbers(timestamps, cells.clone())?;
        }
        self.mark(&mut window, &columns, times, cells)?;
        if self.cut || !run.inside {
            let mut stay = vec![true; count];
            if self.cut {
                let written = stay.iter_mut().zip(&window.times);
                written.for_each(|(stay, time)| *stay = times.contains(*time));
            }
            if !run.inside {
                self.ranges.keep(&columns, &mut stay);
            }
            window.keep(&stay);
        }
        Ok(window)
    }

    fn mark<K>(
        &self,
        window: &mut Window<K>,
        columns: &[CellSlice<'_>],
        times: TimeRange,
        cells: Range<u64>,
    ) -> Result<()> {
        let count = (cells.end - cells.start) as usize;
        if !self.deletes.is_empty() {
            let kept = self.deletes.kept(times, cells)?;
            window
                .marks
                .extend(kept.iter().map(|&kept| if kept { 0 } else { DELETED }));
        }
        for (bit, &i) in self.floats.iter().enumerate() {
            let column = &columns[i];
            let datatype = self.info.schema.dimensions[i].datatype;
            let size = column.values.len() / count;
            for (cell, value) in column.values.chunks_exact(size).enumerate() {
                let Some(number) = Scalar::read(datatype, value).map(Scalar::float) else {
                    return Err(Error::internal("a coordinate is no number"));
                };
                // NaN has the key of another number, which may be 0.
                let is_nan = number.is_nan();
                if is_nan || number == 0.0 && number.is_sign_negative() {
                    if bit >= 31 {
                        let message = format!("-0.0 or NaN in dimension {i}, and 31 others are of floats");
                        return Err(self.info.place(Error::limit(message)));
                    }
                    window.marks.resize(count, 0);
                    window.marks[cell] |= 1 << (2 * bit + usize::from(is_nan));
                }
            }
        }
        Ok(())
    }

    /// The key of the candidate with rank `rank`.
    pub(super) fn key<K: SortKey>(&self, order: &GlobalOrder, rank: u64) -> Result<K> {
        let cells = self.cells(rank..rank + 1).next().expect("a candidate");
        let mut coordinates = Vec::with_capacity(self.dimensions.len());
        for dimension in &self.dimensions {
            coordinates.push(Values::read(dimension, cells.clone())?);
        }
        let columns: Vec<CellSlice> = coordinates.iter().map(Values::slice).collect();
        let mut keys = Vec::with_capacity(1);
        K::append(order, &columns, &mut keys);
        Ok(keys.pop().expect("a key for each cell"))
    }

    /// Whether the order of its cells may depend on how bytes of strings are compared. On most machines,
    /// TileDB writes them in the order of signed bytes, but readers use that of unsigned bytes.
    pub(super) fn has_signed_strings(&self) -> bool {
        self.signed_strings
    }

    /// Whether cells of the windows that were read may stand before others that are less for readers: they
    /// have a byte of 0x80 or more, which writers may take for less than all others.
    pub(super) fn has_read_signed_strings(&self) -> bool {
        self.has_read_signed_strings.load(Ordering::Relaxed)
    }

    /// Whether its cells, read alone, stay in the order of their writer, which may differ from that of the
    /// coordinates that readers get: strings, lossy filters of dimensions, and Hilbert order by libraries
    /// before format 22, which had no one order for cells at the same position of the curve.
    pub(super) fn keeps_order_of_writer(&self) -> bool {
        self.other_order || !self.info.schema.all_dimensions_fixed()
    }

    /// Whether readers probably order its cells in another way than its writer did, so that its first cells
    /// may be stored anywhere.
    pub(super) fn is_reordered(&self) -> bool {
        self.other_order || self.signed_strings
    }
}

impl<K> Window<K> {
    /// Removes the candidates that are deleted.
    pub(super) fn keep_undeleted(&mut self) {
        if !self.marks.is_empty() {
            let stay: Vec<bool> = self.marks.iter().map(|mark| mark & DELETED == 0).collect();
            self.keep(&stay);
        }
    }

    /// Removes the candidates for which `stay` is false.
    fn keep(&mut self, stay: &[bool]) {
        if stay.iter().all(|&stay| stay) {
            return;
        }
        let ranks = (0..stay.len()).filter(|&i| stay[i]).map(|i| self.rank(i));
        self.ranks = ranks.collect();
        retain(&mut self.keys, stay);
        retain(&mut self.times, stay);
        retain(&mut self.marks, stay);
    }
}

fn retain<T>(items: &mut Vec<T>, stay: &[bool]) {
    let mut stay = stay.iter();
    items.retain(|_| *stay.next().expect("one for each item"));
}

fn has_other_order(info: &FragmentInfo) -> bool {
    let schema = &info.schema;
    schema.has_lossy_dimensions() || schema.cell_order == Layout::Hilbert && info.writer.library_version < 22
}

/// Whether the non-empty domain has strings with bytes of 0x80 or more. Those that begin with such a byte are
/// least as signed bytes and greatest as unsigned bytes, so that the domain has them.
fn has_signed_strings(info: &FragmentInfo) -> bool {
    let domain = info.non_empty_domain().into_iter().flatten();
    let mut strings = info.schema.dimensions.iter().zip(domain);
    strings.any(|(dimension, range)| {
        dimension.cell_val_num.is_var() && !(range.lo.is_ascii() && range.hi.is_ascii())
    })
}

/// The cells of the tiles whose bounding boxes meet `ranges`.
fn candidates(info: &FragmentInfo, ranges: &Ranges) -> Result<Vec<Candidates>> {
    let cell_num = info.geometry.cell_num;
    let all = |inside| {
        vec![Candidates {
            rank: 0,
            cells: 0..cell_num,
            inside,
        }]
    };
    if cell_num == 0 {
        return Ok(Vec::new());
    }
    let sound = info.has_sound_boxes();
    match ranges.meet_box(info.non_empty_domain().filter(|_| sound)) {
        Inside::Wholly => return Ok(all(true)),
        Inside::Not => return Ok(Vec::new()),
        Inside::Partly if !sound => return Ok(all(false)),
        Inside::Partly => {}
    }
    let mut runs: Vec<Candidates> = Vec::new();
    info.visit_tile_boxes(|tile, bounds| {
        let inside = match ranges.meet(bounds) {
            Inside::Not => return Ok(()),
            Inside::Wholly => true,
            Inside::Partly => false,
        };
        let first = tile * info.geometry.tile_cells;
        let end = first + info.geometry.cells_of(tile);
        match runs.last_mut() {
            Some(last) if last.cells.end == first && last.inside == inside => last.cells.end = end,
            last => {
                let rank = last.map_or(0, |last| last.end());
                runs.push(Candidates {
                    rank,
                    cells: first..end,
                    inside,
                });
            }
        }
        Ok(())
    })?;
    Ok(runs)
}
