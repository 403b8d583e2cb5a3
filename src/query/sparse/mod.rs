//! Sparse views: the cells of all visible fragments in the array's global order, without deleted cells. Of
//! cells with the same coordinates the newest is kept, unless the array allows duplicates.
//!
//! | step | takes | makes |
//! |---|---|---|
//! | [`input`] | a fragment | its candidates, and windows of their sort keys |
//! | [`merge`] | the inputs | the order of their cells, by a k-way merge of the keys |
//! | [`component`] | a merge | checkpoints to resume it at, and blocks of runs of cells |
//! | [`gather`] | runs of cells | the values of a field |
//!
//! A component is a set of fragments whose intervals in the global order overlap. A fragment that overlaps no
//! other is a component of its own and is not merged. If also no cell is deleted or outside the view, its
//! footer gives the number of cells.
//!
//! In libtiledb:
//! <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/query/readers/sparse_global_order_reader.cc>

mod batch;
mod block;
mod component;
mod deletes;
mod gather;
mod input;
mod member;
mod merge;
mod order;
mod ranges;
#[cfg(test)]
mod tests;

use super::column::RunCells;
use super::selection::Selection;
use super::{CellOrigin, Field, TileRun, Tiles};
use crate::catalog::Array;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::field::Stored;
use crate::format::range::{Rect, compare};
use crate::format::schema::{Dimension, Schema};
use crate::fragment::Fragment;
use crate::fragment::cells::Cells;
use crate::fragment::info::FragmentInfo;
use crate::fragment::prefetch::{TailPrefetch, outlines};
use crate::query::deletes::{any_in_force, in_force as deletes_in_force};
use crate::query::order::{ByteKey, GlobalOrder, SortKey};
use crate::runtime::parallel;
use crate::runtime::single_flight::{Memo, SingleFlight};
use crate::runtime::{get_or_make, lock};
use block::ViewPart;
use component::{Component, FirstCells};
use deletes::Deletes;
use gather::Gather;
use input::Input;
use member::Rules;
use ranges::{Inside, Ranges};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

/// The resources that each fragment of a view may use.
#[derive(Clone, Copy)]
struct Share {
    /// Whether its files are held open. If not, its chunks stay in the cache while other fragments are read.
    hold: bool,
    /// The most bytes of a field that stay in the cache to be read again.
    room: u64,
}

/// With more fragments than this, files are not held open.
const MAX_HELD: u64 = 64;

/// About how many files the merge of `fragments` fragments holds open: of each the metadata and those of
/// coordinates, timestamps and conditions. 0 if it holds none, because they are too many.
pub(super) fn held_files(engine: &Engine, fragments: u64, schema: &Schema) -> u64 {
    let of = |d: &Dimension| 1 + u64::from(d.cell_val_num.is_var());
    let files = fragments * (2 + schema.dimensions.iter().map(of).sum::<u64>());
    match fragments <= MAX_HELD && files <= engine.most_held_files() {
        true => files,
        false => 0,
    }
}

impl Share {
    /// The share of each of `fragments` fragments.
    fn of(engine: &Engine, fragments: u64, schema: &Schema) -> Share {
        Share {
            hold: held_files(engine, fragments, schema) > 0,
            room: engine.cache.capacity() / 4 / fragments.max(1),
        }
    }

    /// Whether there is room for `size` bytes of each cell of a fragment; false for None.
    fn has_room(self, info: &FragmentInfo, size: Option<u64>) -> bool {
        size.is_some_and(|size| size.saturating_mul(info.geometry.cell_num) <= self.room)
    }
}

/// A sparse view: the fragments of a sparse array, merged on demand.
pub(super) struct Sparse {
    of: Arc<Selection>,
    cells: Memo<Arc<dyn Merged>>,
    /// The cells as runs of whole tiles, from the footers; None inside if they do not determine it.
    footer_runs: OnceLock<Option<Vec<TileRun>>>,
}

/// The merged cells of a view, independent of the type of the sort keys.
trait Merged: Send + Sync {
    fn count(&self) -> Result<u64>;

    /// Where `cells` are stored, in the view's order.
    fn parts(&self, cells: Range<u64>) -> Result<Vec<ViewPart>>;

    /// The fragments in reading order, oldest first.
    fn inputs(&self) -> &[Arc<Input>];

    /// The runs of cells of fragments that contain `cells`.
    fn sources(&self, cells: Range<u64>) -> Result<Vec<FragmentRuns<'_>>>;

    /// Fails if the tiles that have some of `cells` are found not to be in global order.
    fn check_order(&self, cells: Range<u64>) -> Result<()>;

    /// Runs of all cells: how many, and the fragment whose candidates they are as stored; None if cells are
    /// merged or sorted.
    fn stored(&self) -> Result<Vec<(u64, Option<Arc<Input>>)>>;

    /// The fragments that have cells of the view, if all their cells are, each once.
    fn whole_fragments(&self) -> Option<Vec<Arc<FragmentInfo>>>;

    /// Whether some cell of the view comes from input `number`.
    fn shows(&self, number: usize) -> Result<bool>;
}

/// A fragment, runs of its cells, and whether all of these are cells of the view.
type FragmentRuns<'a> = (&'a Input, Vec<Range<u64>>, bool);

impl Sparse {
    /// The view of what is selected.
    pub(super) fn new(of: Arc<Selection>) -> Sparse {
        Sparse {
            of,
            cells: Memo::default(),
            footer_runs: OnceLock::new(),
        }
    }

    /// The number of cells. Merges the fragments if footers do not determine it.
    pub(super) fn count(&self) -> Result<u64> {
        if let Some(merged) = self.cells.get() {
            return merged.count();
        }
        match self.footer_runs()? {
            Some(runs) => Ok(runs.iter().map(|run| run.cells).sum()),
            None => self.cells()?.count(),
        }
    }

    /// All cells as runs of whole tiles: see [`View::tile_runs`](super::View::tile_runs).
    pub(super) fn tile_runs(&self) -> Result<Vec<TileRun>> {
        // Where the order of cells is looked at first, the outlines do not tell it.
        let later = self.of.array.engine.disorder.is_found_by_readers() && !self.looks_first();
        match self.footer_runs()? {
            Some(runs) if later => Ok(runs.to_vec()),
            _ => {
                let runs = self.cells()?.stored()?.into_iter();
                let runs = runs.map(|(cells, input)| match input {
                    Some(input) => input.tile_runs(),
                    None => vec![TileRun { cells, tile: 1 }],
                });
                Ok(runs.flatten().collect())
            }
        }
    }

    /// Whether the cells of small fragments are compared before any is read.
    fn looks_first(&self) -> bool {
        let few = self.of.array.engine.tuning.opened_fragments;
        self.of.snapshot.fragments().count() <= few || !self.of.unsorted.is_empty()
    }

    fn footer_runs(&self) -> Result<Option<&[TileRun]>> {
        let few = self.of.array.engine.tuning.opened_fragments;
        let runs = get_or_make(&self.footer_runs, || self.runs_of_outlines(few))?;
        Ok(runs.as_deref())
    }

    /// The number of cells if metadata alone determines it, or if the fragments have been merged; else None.
    pub(super) fn known_count(&self) -> Result<Option<u64>> {
        let count = |runs: &[TileRun]| runs.iter().map(|run| run.cells).sum();
        match (self.cells.get(), self.footer_runs.get()) {
            (Some(merged), _) => merged.count().map(Some),
            (None, Some(Some(runs))) => Ok(Some(count(runs))),
            (None, _) => Ok(self.runs_of_outlines(0)?.as_deref().map(count)),
        }
    }

    /// The runs of whole tiles from the outlines of the fragments, without opening them. None if a cell may
    /// be left out, or hidden by another with the same coordinates, or if there are no more than `few`
    /// fragments.
    fn runs_of_outlines(&self, few: usize) -> Result<Option<Vec<TileRun>>> {
        let (array, times) = (&self.of.array, self.of.snapshot.times);
        let fragments = self.of.snapshot.fragment_list();
        let has_deletes = any_in_force(&self.of.snapshot.listing, times);
        if self.of.subarray.is_some() || self.of.most.is_some() || fragments.len() <= few || has_deletes {
            return Ok(None);
        }
        let outlines = outlines(&array.engine, &fragments)?;
        let outlines: Vec<_> = outlines.iter().filter(|outline| outline.cells > 0).collect();
        if outlines.iter().any(|outline| outline.timed || outline.dense) {
            return Ok(None);
        }
        let total = outlines
            .iter()
            .try_fold(0u64, |sum, outline| sum.checked_add(outline.cells));
        let Some(total) = total else { return Ok(None) };
        let order = GlobalOrder::new(&self.of.schema, false)?;
        let domains = outlines.iter().map(|outline| {
            outline
                .domain
                .as_ref()
                .filter(|_| outline.schema.has_exact_coordinates())
        });
        let domains: Vec<Option<&Rect>> = domains.collect();
        let current = Ranges::new(&self.of.schema, None);
        let inside = |domain: &Option<&Rect>| current.meet_box(*domain) == Inside::Wholly;
        if !domains.iter().all(inside) {
            return Ok(None);
        }
        let domains: Option<Vec<&Rect>> = domains.into_iter().collect();
        let intervals = domains.and_then(|domains| order.intervals::<ByteKey>(&domains));
        let duplicates = self.of.schema.allows_duplicates;
        let Some(intervals) = intervals else {
            let all = TileRun {
                cells: total,
                tile: 1,
            };
            return Ok(duplicates.then(|| vec![all]));
        };
        let mut sorted: Vec<_> = intervals.into_iter().zip(&outlines).collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut runs: Vec<TileRun> = Vec::new();
        let mut end: Option<ByteKey> = None;
        for ((low, high), outline) in sorted {
            match runs.last_mut() {
                Some(_) if !duplicates && end.as_ref().is_some_and(|end| low <= *end) => return Ok(None),
                // Cells of these fragments interleave.
                Some(last) if end.as_ref().is_some_and(|end| low <= *end) => {
                    last.cells += outline.cells;
                    last.tile = 1;
                }
                _ => runs.push(TileRun {
                    cells: outline.cells,
                    tile: outline.schema.capacity,
                }),
            }
            end = end.max(Some(high));
        }
        Ok(Some(runs))
    }

    /// The cells of field `field`, an index into the view's fields.
    pub(super) fn open(&self, field: usize) -> Result<Arc<dyn Cells>> {
        let Some(found) = self.of.schema.field(field) else {
            return Err(Error::not_found(format!("there is no field {field}")));
        };
        let cells = self.cells()?;
        let size = found.cell_size();
        let engine = &self.of.array.engine;
        let object = engine.number(&(&self.of.array.path, self.of.state(), field));
        let gather = Gather::new(cells, found, engine.tuning)?;
        Ok(Arc::new(RunCells::new(gather, size, &self.of.array, object)))
    }

    /// The origin of each of `runs`: see [`View::origins`](super::View::origins).
    pub(super) fn origins(&self, runs: &[Range<u64>]) -> Result<Vec<Option<CellOrigin>>> {
        let (cells, fragments) = (self.cells()?, self.of.snapshot.fragment_list());
        let origins = runs.iter().map(|run| {
            let mut origin = CellOrigin {
                unwritten: Some(0),
                ..CellOrigin::default()
            };
            for (input, cells, whole) in cells.sources(run.clone())? {
                let fragment = &fragments[input.index];
                let geometry = &input.info.geometry;
                let size = geometry.tile_cells;
                let mut tiles: Vec<Range<u64>> = Vec::new();
                let mut full = whole;
                for run in cells {
                    full &= run.start % size == 0 && (run.end % size == 0 || run.end == geometry.cell_num);
                    let (first, end) = (run.start / size, run.end.div_ceil(size));
                    match tiles.last_mut() {
                        Some(last) if last.end >= first => last.end = end,
                        _ => tiles.push(first..end),
                    }
                }
                if !tiles.is_empty() {
                    origin.parts.push(Tiles {
                        fragment: fragment.clone(),
                        tiles,
                        whole: full,
                    });
                }
            }
            Ok(Some(origin))
        });
        origins.collect()
    }

    /// The newest fragment that has `field` in another form and that some cell comes from: its name, and the
    /// difference.
    pub(super) fn unreadable(&self, field: &Field) -> Result<Option<(String, &'static str)>> {
        let cells = self.cells()?;
        for (number, input) in cells.inputs().iter().enumerate().rev() {
            if let Stored::Other(_, what) = input.info.stored_as(field)
                && cells.shows(number)?
            {
                let fragments = self.of.snapshot.fragment_list();
                return Ok(Some((fragments[input.index].directory_name(), what)));
            }
        }
        Ok(None)
    }

    /// See [`View::whole_fragments`](super::View::whole_fragments).
    pub(super) fn whole_fragments(&self) -> Result<Option<Vec<Arc<FragmentInfo>>>> {
        Ok(self.cells()?.whole_fragments())
    }

    /// The merge of the fragments. The first call opens them.
    fn cells(&self) -> Result<Arc<dyn Merged>> {
        self.cells.get_or_make(|| self.merge())
    }

    fn merge(&self) -> Result<Arc<dyn Merged>> {
        let inputs = self.inputs()?;
        let outside = inputs.iter().any(|input| may_leave_domain(&input.info));
        let order = GlobalOrder::new(&self.of.schema, outside)?;
        match order.words() {
            Some(1) => self.merged::<[u64; 1]>(order, inputs),
            Some(2) => self.merged::<[u64; 2]>(order, inputs),
            Some(3) => self.merged::<[u64; 3]>(order, inputs),
            Some(4) => self.merged::<[u64; 4]>(order, inputs),
            _ => self.merged::<ByteKey>(order, inputs),
        }
    }

    /// Opens the fragments.
    fn inputs(&self) -> Result<Vec<Arc<Input>>> {
        let times = self.of.snapshot.times;
        let ranges = Arc::new(Ranges::new(&self.of.schema, self.of.subarray.as_deref()));
        let array = &self.of.array;
        let listing = &self.of.snapshot.listing;
        let fragments = self.of.snapshot.fragment_list();
        let share = Share::of(&array.engine, fragments.len() as u64, &self.of.schema);
        // Without fragments, delete conditions need not be read.
        let deletes = match fragments.is_empty() {
            true => Vec::new(),
            false => deletes_in_force(&array.engine, array.key.as_ref(), listing, times, &self.of.schema)?,
        };
        let tails = TailPrefetch::new(&array.engine, fragments.iter(), Fragment::is_open);
        parallel::each(fragments.len() as u64, |index| -> Result<Arc<Input>> {
            let index = index as usize;
            tails.reach(index);
            let info = fragments[index].open_after(self.of.changes.of(index))?;
            let deletes = Deletes::new(&info, &deletes, share.hold)?;
            let number = (index, self.of.unsorted.contains(&index));
            let input = Input::new(number, info, times, ranges.clone(), deletes, share)?;
            Ok(Arc::new(input))
        })
    }

    fn merged<K: SortKey + 'static>(
        &self,
        order: GlobalOrder,
        inputs: Vec<Arc<Input>>,
    ) -> Result<Arc<dyn Merged>> {
        /// Approximate bytes of memory for a candidate that a merge reads ahead.
        const CANDIDATE: u64 = 128;
        let array = &self.of.array;
        let memory = array.engine.cache.capacity() / 4 / parallel::threads();
        // A merge of the first cells need not read further ahead in a fragment.
        let enough = |most: u64| most.saturating_mul(CANDIDATE * inputs.len() as u64);
        let rules = Rules {
            order,
            times: self.of.snapshot.times,
            duplicates: self.of.schema.allows_duplicates,
            memory: self.of.most.map_or(memory, |most| memory.min(enough(most))),
            sorting: memory,
            looks_first: self.looks_first(),
            tuning: array.engine.tuning,
        };
        let components = Components::<K>::new(self.of.array.clone(), self.of.state(), rules, inputs);
        Ok(match self.of.most {
            Some(most) => Arc::new(Head::new(components, most)?),
            None => Arc::new(components),
        })
    }
}

/// A component, the number of its cells, and those of them that are wanted.
type PartOfComponent<'a, K> = (&'a Component<K>, u64, Range<u64>);

/// The components of a view, in the global order.
struct Components<K> {
    array: Arc<Array>,
    rules: Rules,
    inputs: Vec<Arc<Input>>,
    components: Vec<Component<K>>,
    /// The number of cells before each component, as far as it is known; the last entry counts all.
    starts: Mutex<Vec<u64>>,
    counting: SingleFlight,
}

impl<K: SortKey + 'static> Components<K> {
    fn new(array: Arc<Array>, state: u64, rules: Rules, inputs: Vec<Arc<Input>>) -> Self {
        let taking_part: Vec<&Arc<Input>> = inputs.iter().filter(|input| input.count() > 0).collect();
        let intervals = taking_part.iter().enumerate();
        let intervals = intervals.map(|(i, input)| Some((interval(&rules.order, &input.info)?, i)));
        let mut groups: Vec<Vec<usize>> = Vec::new();
        match intervals.collect::<Option<Vec<((K, K), usize)>>>() {
            None => groups.push((0..taking_part.len()).collect()),
            Some(mut intervals) => {
                intervals.sort_by(|a, b| a.0.cmp(&b.0));
                let mut end: Option<&K> = None;
                for ((low, high), i) in &intervals {
                    match groups.last_mut() {
                        Some(group) if end.is_some_and(|end| low <= end) => group.push(*i),
                        _ => groups.push(vec![*i]),
                    }
                    end = end.max(Some(high));
                }
            }
        }
        let components = groups.into_iter().enumerate();
        let components = components.map(|(number, mut group)| {
            // Members are in reading order, so that a later one is newer.
            group.sort_unstable();
            let members: Vec<Arc<Input>> = group.into_iter().map(|i| taking_part[i].clone()).collect();
            let known = known_count(&rules, &members);
            let object = array.engine.number(&(&array.path, state, "runs", number));
            Component::new(members, known, object)
        });
        Components {
            components: components.collect(),
            array,
            rules,
            inputs,
            starts: Mutex::new(vec![0]),
            counting: SingleFlight::default(),
        }
    }

    /// The number of cells before component `i`.
    fn start(&self, i: usize) -> Result<u64> {
        let find = || lock(&self.starts).get(i).copied();
        self.counting.find_or_make(find, || {
            loop {
                if let Some(start) = find() {
                    return Ok(start);
                }
                let (known, last) = {
                    let starts = lock(&self.starts);
                    (starts.len(), starts[starts.len() - 1])
                };
                let count = self.components[known - 1].count(&self.array.engine, &self.rules)?;
                let next = last.checked_add(count);
                lock(&self.starts)
                    .push(next.ok_or_else(|| Error::limit("the view has more than 2^64 cells").at(0))?);
            }
        })
    }

    /// The components that have some of `cells`.
    fn having(&self, cells: Range<u64>) -> Result<Vec<PartOfComponent<'_, K>>> {
        self.count()?;
        let starts = lock(&self.starts);
        let first = starts.partition_point(|&start| start <= cells.start) - 1;
        let bounds = self.components.iter().zip(starts.windows(2)).skip(first);
        let bounds = bounds.take_while(|(_, bounds)| bounds[0] < cells.end);
        let having = bounds.map(|(component, bounds)| {
            let wanted = within(&cells, &(bounds[0]..bounds[1]));
            (component, bounds[1] - bounds[0], wanted)
        });
        Ok(having.filter(|(_, _, wanted)| !wanted.is_empty()).collect())
    }
}

/// Those of `cells` that are in `own`, counted from the first of `own`.
fn within(cells: &Range<u64>, own: &Range<u64>) -> Range<u64> {
    let (start, end) = (cells.start.max(own.start), cells.end.min(own.end));
    start - own.start..end.max(start) - own.start
}

impl<K: SortKey + 'static> Merged for Components<K> {
    fn count(&self) -> Result<u64> {
        self.start(self.components.len())
    }

    fn parts(&self, cells: Range<u64>) -> Result<Vec<ViewPart>> {
        let mut all = Vec::new();
        for (component, _, wanted) in self.having(cells)? {
            let parts = component.parts(&self.array.engine, &self.rules, wanted);
            all.extend(parts.collect::<Result<Vec<_>>>()?);
        }
        Ok(all)
    }

    fn inputs(&self) -> &[Arc<Input>] {
        &self.inputs
    }

    fn sources(&self, cells: Range<u64>) -> Result<Vec<FragmentRuns<'_>>> {
        let mut sources = Vec::new();
        for (component, count, wanted) in self.having(cells)? {
            let (engine, rules) = (&self.array.engine, &self.rules);
            // Of a part of what is merged or sorted, it is unknown which cells are in it.
            let all = wanted == (0..count) || component.as_stored(engine, rules)?.is_some();
            let exact = component.is_counted() && all;
            for (member, ranks) in component.ranks(engine, rules, wanted)? {
                let input = &component.inputs[member];
                sources.push((&**input, input.cells(ranks).collect(), exact));
            }
        }
        Ok(sources)
    }

    fn check_order(&self, cells: Range<u64>) -> Result<()> {
        for (component, _, wanted) in self.having(cells)? {
            component.check_order(&self.array.engine, &self.rules, wanted)?;
        }
        Ok(())
    }

    fn stored(&self) -> Result<Vec<(u64, Option<Arc<Input>>)>> {
        let (engine, rules) = (&self.array.engine, &self.rules);
        let runs = self.components.iter().map(|component| {
            let input = component.as_stored(engine, rules)?.cloned();
            Ok((component.count(engine, rules)?, input))
        });
        runs.collect()
    }

    fn whole_fragments(&self) -> Option<Vec<Arc<FragmentInfo>>> {
        let mut whole = Vec::new();
        for component in &self.components {
            for input in &component.inputs {
                // Tiles outside of the view have no candidates.
                let all = component.is_counted() && input.count() == input.info.geometry.cell_num;
                whole.push(all.then(|| input.info.clone())?);
            }
        }
        Some(whole)
    }

    fn shows(&self, number: usize) -> Result<bool> {
        for (component, _, all) in self.having(0..self.count()?)? {
            if !component.inputs.iter().any(|input| input.index == number) {
                continue;
            }
            if component.is_counted() {
                return Ok(true);
            }
            for part in component.parts(&self.array.engine, &self.rules, all) {
                if part?.shows(number)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        Ok(false)
    }
}

/// The first cells of a view, without a merge of all cells.
struct Head<K> {
    all: Components<K>,
    parts: Vec<HeadPart>,
}

/// The first cells of a component.
struct HeadPart {
    /// The index of the component.
    component: usize,
    /// Its cells, counted in the view.
    cells: Range<u64>,
    /// The merge of its first cells; None if all of the component is merged.
    first: Option<FirstCells>,
}

impl<K: SortKey + 'static> Head<K> {
    /// The first `most` cells of `all`, or all if there are fewer.
    fn new(all: Components<K>, most: u64) -> Result<Head<K>> {
        let engine = &all.array.engine;
        let (mut parts, mut start) = (Vec::new(), 0);
        for (number, component) in all.components.iter().enumerate() {
            if start == most {
                break;
            }
            let first = component.head(engine, &all.rules, most - start)?;
            let count = match &first {
                Some(first) => first.count(),
                None => component.count(engine, &all.rules)?,
            };
            let end = start + count.min(most - start);
            parts.push(HeadPart {
                component: number,
                cells: start..end,
                first,
            });
            start = end;
        }
        Ok(Head { all, parts })
    }
}

impl<K: SortKey + 'static> Merged for Head<K> {
    fn count(&self) -> Result<u64> {
        Ok(self.parts.last().map_or(0, |part| part.cells.end))
    }

    fn parts(&self, cells: Range<u64>) -> Result<Vec<ViewPart>> {
        let mut all = Vec::new();
        for part in &self.parts {
            let wanted = within(&cells, &part.cells);
            match &part.first {
                _ if wanted.is_empty() => {}
                Some(first) => all.push(first.part(wanted)?),
                None => {
                    let component = &self.all.components[part.component];
                    let parts = component.parts(&self.all.array.engine, &self.all.rules, wanted);
                    all.extend(parts.collect::<Result<Vec<_>>>()?);
                }
            }
        }
        Ok(all)
    }

    fn inputs(&self) -> &[Arc<Input>] {
        &self.all.inputs
    }

    fn sources(&self, cells: Range<u64>) -> Result<Vec<FragmentRuns<'_>>> {
        self.all.sources(cells)
    }

    fn check_order(&self, cells: Range<u64>) -> Result<()> {
        for part in self.parts.iter().filter(|part| part.first.is_none()) {
            let wanted = within(&cells, &part.cells);
            if !wanted.is_empty() {
                let component = &self.all.components[part.component];
                component.check_order(&self.all.array.engine, &self.all.rules, wanted)?;
            }
        }
        Ok(())
    }

    fn stored(&self) -> Result<Vec<(u64, Option<Arc<Input>>)>> {
        Ok(vec![(self.count()?, None)])
    }

    fn whole_fragments(&self) -> Option<Vec<Arc<FragmentInfo>>> {
        None
    }

    fn shows(&self, number: usize) -> Result<bool> {
        for part in self.parts(0..self.count()?)? {
            if part.shows(number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The least and the greatest possible key in a fragment; None if its non-empty domain does not bound them.
fn interval<K: SortKey>(order: &GlobalOrder, info: &FragmentInfo) -> Option<(K, K)> {
    order.interval(info.exact_domain()?)
}

/// The number of cells of a component, the sum of those of its fragments, if footers determine it. None if
/// some cells may be left out or have the same coordinates.
fn known_count(rules: &Rules, members: &[Arc<Input>]) -> Option<u64> {
    let whole = members.iter().all(|input| input.is_whole());
    let once = rules.duplicates || members.iter().all(|input| !input.has_timestamps()) && !overlap(members);
    let mut counts = members.iter().map(|input| input.count());
    (whole && once).then(|| counts.try_fold(0u64, u64::checked_add))?
}

/// Whether a fragment may have coordinates outside of the array's domain: its writer did not check them, or a
/// lossy filter has made others of them.
fn may_leave_domain(info: &FragmentInfo) -> bool {
    let schema = &info.schema;
    let Some(written) = info.non_empty_domain() else {
        return true;
    };
    let mut dimensions = schema.dimensions.iter().zip(written);
    schema.has_lossy_dimensions()
        || dimensions.any(|(dimension, written)| {
            let below = |a: &[u8], b: &[u8]| is_below(dimension, a, b);
            let domain = dimension.domain.as_ref();
            domain.is_some_and(|domain| below(&written.lo, &domain.lo) || below(&domain.hi, &written.hi))
        })
}

/// Whether coordinate `a` of a dimension is below `b`.
fn is_below(dimension: &Dimension, a: &[u8], b: &[u8]) -> bool {
    compare(dimension.datatype, dimension.cell_val_num, a, b) == Some(Ordering::Less)
}

/// Whether the non-empty domains of some fragments overlap, so that cells may have the same coordinates.
fn overlap(members: &[Arc<Input>]) -> bool {
    /// With more fragments than this, domains are not compared, and the answer is yes.
    const MAX_COMPARED: usize = 1000;
    if members.len() < 2 {
        return false;
    }
    if members.len() > MAX_COMPARED {
        return true;
    }
    let domains = members.iter().map(|input| input.info.exact_domain());
    let Some(domains) = domains.collect::<Option<Vec<&Rect>>>() else {
        return true;
    };
    let schema = &members[0].info.schema;
    let apart = |a: &Rect, b: &Rect| {
        schema
            .dimensions
            .iter()
            .zip(a.iter().zip(b))
            .any(|(d, (a, b))| is_below(d, &a.hi, &b.lo) || is_below(d, &b.hi, &a.lo))
    };
    let mut pairs = domains.iter().enumerate();
    pairs.any(|(i, a)| domains.iter().skip(i + 1).any(|b| !apart(a, b)))
}
