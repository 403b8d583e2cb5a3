//! Fragments whose cells interleave in the global order, and the checkpoints at which their merge can be
//! resumed.

use super::block::{Block, Checkpoint, Slice, ViewPart, Writer, changed};
use super::input::{Input, Ranked};
use super::member::{Member, Raised, Rules, Sorted};
use super::merge::{Merge, Stop};
use super::order::{MIN_CHECKED_VERSION, Order, is_looked_at_first, unsorted};
use crate::bytes::Keep;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::query::order::SortKey;
use crate::runtime::cache::{CacheKey, Entry};
use crate::runtime::parallel;
use crate::runtime::single_flight::Memo;
use crate::runtime::work::Job;
use std::ops::Range;
use std::sync::Arc;

/// The first cells of a component, and perhaps some more.
pub(super) struct FirstCells {
    members: Arc<[Ranked]>,
    block: Arc<Block>,
}

impl FirstCells {
    /// The number of these cells.
    pub(super) fn count(&self) -> u64 {
        self.block.count()
    }

    /// Where `cells` of them are stored.
    pub(super) fn part(&self, cells: Range<u64>) -> Result<ViewPart> {
        let slice = Slice::new(self.members.clone(), self.block.clone(), cells)?;
        Ok(ViewPart::Merged(slice))
    }
}

/// Everything needed to find a component's cells.
struct Plan<K> {
    members: Vec<Member<K>>,
    ranked: Arc<[Ranked]>,
    outline: Arc<Outline>,
    /// The cache's number for its blocks.
    blocks: u64,
}

/// The result of one complete merge, an entry of the cache.
struct Outline {
    /// Ascending; the last one is the end of the merge.
    checkpoints: Vec<Checkpoint>,
    /// Indexes of the members whose cells are not in global order and have to be sorted or raised first.
    unsorted: Vec<usize>,
}

/// The cache key of the block that begins at `ranks`. The sum of the ranks differs from block to block.
fn block_key(blocks: u64, ranks: &[u64]) -> CacheKey {
    CacheKey::tile(
        blocks,
        ranks.iter().fold(0u64, |sum, rank| sum.wrapping_add(*rank)),
    )
}

impl Entry for Outline {
    fn memory(&self) -> u64 {
        let checkpoints = self.checkpoints.iter();
        checkpoints
            .map(|checkpoint| 32 + checkpoint.ranks.len() as u64 * 8)
            .sum()
    }
}

/// One fragment, or several whose cells interleave in the global order.
pub(super) struct Component<K> {
    /// The fragments in reading order, oldest first.
    pub inputs: Vec<Arc<Input>>,
    /// The number of cells, if footers determine it.
    known: Option<u64>,
    plan: Memo<Arc<Plan<K>>>,
    /// The cache's number for its outline.
    object: u64,
    order: Order<K>,
}

impl<K: SortKey + 'static> Component<K> {
    /// The component of `inputs`. `known` is the number of cells if footers determine it; `object` is the
    /// cache's number for the outline.
    pub(super) fn new(inputs: Vec<Arc<Input>>, known: Option<u64>, object: u64) -> Self {
        Component {
            inputs,
            known,
            plan: Memo::default(),
            object,
            order: Order::default(),
        }
    }

    /// The number of its cells in the view.
    pub(super) fn count(&self, engine: &Engine, rules: &Rules) -> Result<u64> {
        match self.known {
            Some(known) => Ok(known),
            None => Ok(end_of(&self.plan(engine, rules)?.outline.checkpoints)),
        }
    }

    /// Whether the cells of the view are all cells of its fragments, each once.
    pub(super) fn is_counted(&self) -> bool {
        self.known.is_some()
    }

    /// For each member, ranks that contain the candidates of `cells`, and maybe others. Decodes only what
    /// counting the cells takes, or checking the order of a single fragment.
    pub(super) fn ranks(
        &self,
        engine: &Engine,
        rules: &Rules,
        cells: Range<u64>,
    ) -> Result<Vec<(usize, Range<u64>)>> {
        let whole = |member: usize| (member, 0..self.inputs[member].count());
        let members = 0..self.inputs.len();
        if self.known.is_some() {
            return Ok(match self.inputs.as_slice() {
                [_] if self.as_stored(engine, rules)?.is_some() => vec![(0, cells)],
                _ => members.map(whole).collect(),
            });
        }
        let plan = self.plan(engine, rules)?;
        let checkpoints = &plan.outline.checkpoints;
        let after = checkpoints.partition_point(|checkpoint| checkpoint.cell <= cells.start);
        let end = checkpoints.partition_point(|checkpoint| checkpoint.cell < cells.end);
        let (from, to) = (&checkpoints[after - 1].ranks, &checkpoints[end].ranks);
        let ranks = members.map(|member| match plan.members[member].sorted.is_some() {
            false => (member, from[member]..to[member]),
            true => whole(member),
        });
        Ok(ranks.collect())
    }

    /// Where `cells` are stored, found block by block.
    pub(super) fn parts(
        &self,
        engine: &Engine,
        rules: &Rules,
        mut cells: Range<u64>,
    ) -> impl Iterator<Item = Result<ViewPart>> {
        std::iter::from_fn(move || {
            if cells.is_empty() {
                return None;
            }
            let part = self.part(engine, rules, cells.clone());
            match &part {
                Ok(part) => cells.start += part.count(),
                Err(_) => cells.start = cells.end,
            }
            Some(part)
        })
    }

    /// Where the first of `cells` are stored; at most the cells of one block.
    fn part(&self, engine: &Engine, rules: &Rules, cells: Range<u64>) -> Result<ViewPart> {
        if let Some(input) = self.as_stored(engine, rules)? {
            self.order.look(engine, rules, input)?;
            return Ok(ViewPart::Stored(input.clone(), cells));
        }
        let plan = self.plan(engine, rules)?;
        let checkpoints = &plan.outline.checkpoints;
        let after = checkpoints.partition_point(|checkpoint| checkpoint.cell <= cells.start);
        let (from, to) = (&checkpoints[after - 1], &checkpoints[after]);
        let key = block_key(plan.blocks, &from.ranks);
        let memory = Block::estimate(to.cell - from.cell);
        let load = || plan.merge(rules, from, to);
        let block = engine.cache.derive(key, memory, Keep::Staying, load)?;
        let part = cells.start - from.cell..cells.end.min(to.cell) - from.cell;
        Ok(ViewPart::Merged(Slice::new(plan.ranked.clone(), block, part)?))
    }

    /// The first cells, at least `most` unless there are fewer, from a merge of no more than these. None if
    /// cells are not merged, or if it takes a look at all of them, because fragments are likely not to be in
    /// global order, or turn out not to be. What is behind the first cells of others that are large or
    /// several is not looked at.
    pub(super) fn head(&self, engine: &Engine, rules: &Rules, most: u64) -> Result<Option<FirstCells>> {
        // The order of what is read as it is stored is not judged. Of others, `as_stored` may take a look at
        // all.
        let keeps_order = self.inputs.iter().any(|input| input.keeps_order_of_writer());
        let candidates = self.candidates();
        let few = candidates <= rules.tuning.small_fragment_cells;
        if keeps_order && (few || self.as_stored(engine, rules)?.is_some()) {
            return Ok(None);
        }
        if self.inputs.iter().any(|input| input.is_reordered()) || !self.begins_in_order(engine, rules)? {
            return Ok(None);
        }
        let members = self.members();
        let end: Vec<u64> = members.iter().map(Member::count).collect();
        let _waiting = engine.work.wait(self.object);
        let what = "merging the first cells of fragments";
        let job = engine.work.start(self.object, self.path(), what, candidates);
        let start = vec![0; end.len()];
        let mut merge = Merge::new(rules, &members, &start, &end, [None; 2]);
        match next_block(&mut merge, most, |candidates| job.advance(candidates)) {
            // Less cells may follow behind the windows.
            Ok(_) if self.inputs.iter().any(|input| input.has_read_signed_strings()) => Ok(None),
            Ok(block) => Ok(Some(FirstCells {
                members: members.iter().map(Member::ranked).collect(),
                block: Arc::new(block),
            })),
            Err(Stop::Unsorted(_)) => match self.as_stored(engine, rules)? {
                Some(input) if engine.disorder.is_found_by_readers() => Err(unsorted(engine, input)),
                _ => Ok(None),
            },
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Whether the first cells of each fragment are those that are first in global order, unless a look at
    /// them tells otherwise.
    fn begins_in_order(&self, engine: &Engine, rules: &Rules) -> Result<bool> {
        match self.inputs.as_slice() {
            [input] if is_looked_at_first(rules, input) => self.order.is_stored(engine, rules, input),
            [input] => Ok(!input.is_unsorted),
            inputs => Ok(inputs
                .iter()
                .all(|input| !input.is_unsorted && input.info.version() >= MIN_CHECKED_VERSION)),
        }
    }

    /// The candidates of all its fragments.
    fn candidates(&self) -> u64 {
        let inputs = self.inputs.iter();
        inputs.fold(0u64, |sum, input| sum.saturating_add(input.count()))
    }

    /// The directory of its fragments, for messages.
    fn path(&self) -> String {
        let first = self.inputs.first().and_then(|input| input.info.path.parent());
        first.map_or_else(String::new, |path| path.display().to_string())
    }

    /// The fragment whose cells are those of the view, in the order in which they are stored; None if cells
    /// are merged or sorted.
    pub(super) fn as_stored(&self, engine: &Engine, rules: &Rules) -> Result<Option<&Arc<Input>>> {
        let ([input], Some(_)) = (self.inputs.as_slice(), self.known) else {
            return Ok(None);
        };
        Ok(self.order.is_stored(engine, rules, input)?.then_some(input))
    }

    /// Fails if tiles that have some of `cells` are not in global order. Decodes their coordinates, unless it
    /// was done before.
    pub(super) fn check_order(&self, engine: &Engine, rules: &Rules, cells: Range<u64>) -> Result<()> {
        match self.as_stored(engine, rules)? {
            Some(input) => self.order.check(engine, rules, input, cells),
            None => Ok(()),
        }
    }

    /// The plan. The first call makes it, on all threads.
    fn plan(&self, engine: &Engine, rules: &Rules) -> Result<Arc<Plan<K>>> {
        let _waiting = engine.work.wait(self.object);
        self.plan.get_or_make(|| self.make_plan(engine, rules))
    }

    fn make_plan(&self, engine: &Engine, rules: &Rules) -> Result<Arc<Plan<K>>> {
        let candidates = self.candidates();
        let estimate =
            (candidates / rules.tuning.block_cells + 2).saturating_mul(self.inputs.len() as u64 * 8 + 32);
        let key = CacheKey::of(self.object);
        let outline = engine.cache.derive(key, estimate, Keep::Staying, || {
            self.outline(engine, rules, candidates)
        })?;
        let mut members = self.members();
        for &unsorted in &outline.unsorted {
            sort(&mut members, unsorted, rules)?;
        }
        Ok(Arc::new(Plan {
            ranked: members.iter().map(Member::ranked).collect(),
            members,
            blocks: self.blocks(engine, &outline.unsorted),
            outline,
        }))
    }

    /// The cache's number for its blocks. It depends on the members that are sorted, because ranks do.
    fn blocks(&self, engine: &Engine, unsorted: &[usize]) -> u64 {
        let mut unsorted = unsorted.to_vec();
        unsorted.sort_unstable();
        engine.number(&(self.object, "blocks", unsorted))
    }

    fn members(&self) -> Vec<Member<K>> {
        let members = self.inputs.iter().map(|input| Member {
            input: input.clone(),
            sorted: None,
            raised: None,
            stays: self.known.is_some(),
        });
        members.collect()
    }

    /// Merges everything once. If a fragment turns out not to be in global order, sorts its cells and starts
    /// again.
    fn outline(&self, engine: &Engine, rules: &Rules, candidates: u64) -> Result<Outline> {
        let mut members = self.members();
        let mut unsorted = Vec::new();
        let job = engine
            .work
            .start(self.object, self.path(), "merging fragments", candidates);
        let windows = rules.memory.saturating_mul(parallel::threads());
        // A candidate in a window takes about 64 bytes at most.
        let _windows = engine.cache.borrow(windows.min(candidates.saturating_mul(64)));
        // A reader that counts cells will read some, so blocks are kept if the cache has room for all.
        let fit = Block::estimate(candidates) <= engine.cache.capacity() / 2;
        loop {
            let blocks = self.blocks(engine, &unsorted);
            let keep = |ranks: &[u64], block: Block| -> Result<()> {
                let (key, memory) = (block_key(blocks, ranks), Entry::memory(&block));
                engine.cache.derive(key, memory, Keep::Staying, || Ok(block))?;
                Ok(())
            };
            let keep: Option<KeepBlock> = if fit { Some(&keep) } else { None };
            match checkpoints(rules, &members, &job, keep) {
                Ok(checkpoints) => {
                    return Ok(Outline {
                        checkpoints,
                        unsorted,
                    });
                }
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Unsorted(input)) => {
                    let signed = |number: usize| self.inputs[number].has_signed_strings();
                    let stays = |number: usize| stays_as_stored(rules, &self.inputs[number]);
                    // If one fragment is in the order of signed bytes, or has coordinates that were changed,
                    // the others will be, too.
                    let is_like = |number| signed(number) && signed(input) || stays(number) && stays(input);
                    let found: Vec<usize> = (0..self.inputs.len())
                        .filter(|&number| number == input || is_like(number) && !unsorted.contains(&number))
                        .collect();
                    for input in found {
                        sort(&mut members, input, rules)?;
                        unsorted.push(input);
                    }
                }
            }
        }
    }
}

/// Puts the block that begins at the given ranks into the cache.
type KeepBlock<'a> = &'a (dyn Fn(&[u64], Block) -> Result<()> + Sync);

/// Whether a fragment whose cells are not in global order is merged as it is stored. A lossy filter makes
/// that of cells that were in order. Without duplicates the cells of a place must be next to each other.
fn stays_as_stored(rules: &Rules, input: &Input) -> bool {
    rules.duplicates && input.info.schema.has_lossy_dimensions()
}

/// Sorts the candidates of member `number`, or raises their keys. Neither was done before.
fn sort<K: SortKey>(members: &mut [Member<K>], number: usize, rules: &Rules) -> Result<()> {
    if members[number].sorted.is_some() || members[number].raised.is_some() {
        return Err(Error::internal("the sorted cells of a fragment are not in order"));
    }
    let input = members[number].input.clone();
    if stays_as_stored(rules, &input) {
        members[number].raised = Some(Arc::new(Raised::new(&input, rules)?));
        return Ok(());
    }
    log::info!(
        "{}: the cells are not in global order and are sorted first",
        input.info.path.display()
    );
    members[number].sorted = Some(Arc::new(Sorted::new(&input, members, rules)?));
    Ok(())
}

/// Merges everything once and returns the checkpoints. The merge is split into parts for several threads.
fn checkpoints<K: SortKey>(
    rules: &Rules,
    members: &[Member<K>],
    job: &Job,
    keep: Option<KeepBlock>,
) -> std::result::Result<Vec<Checkpoint>, Stop> {
    let start = vec![0; members.len()];
    let end: Vec<u64> = members.iter().map(Member::count).collect();
    let total = end.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
    let threads = parallel::threads();
    let (mut bounds, mut keys) = (vec![start], Vec::new());
    let worth = rules.tuning.parallel_candidates;
    if total > worth && threads > 1 {
        let ranks;
        (keys, ranks) = splits(rules, members, (2 * threads).min(total / worth + 1))?;
        bounds.extend(ranks);
    }
    bounds.push(end);
    // If the bounds of the parts do not ascend in a member, its candidates are not in order.
    for bounds in bounds.windows(2) {
        let mut members = bounds[0].iter().zip(&bounds[1]);
        if let Some(input) = members.position(|(from, to)| from > to) {
            return Err(Stop::Unsorted(input));
        }
    }
    let parts = parallel::each(bounds.len() as u64 - 1, |number| {
        let number = number as usize;
        // If candidates that the view leaves out are not in order, the search for the bounds of a part may
        // have gone wrong. So a part also checks its keys.
        let below = number.checked_sub(1);
        let between = [below.and_then(|below| keys.get(below)), keys.get(number)];
        let ends: [&[u64]; 2] = [&bounds[number], &bounds[number + 1]];
        part(rules, members, ends, between, job, keep)
    })?;
    let mut all = vec![Checkpoint {
        cell: 0,
        ranks: bounds[0].clone().into(),
    }];
    let mut before = 0;
    for part in parts {
        let count = end_of(&part);
        for checkpoint in part {
            let cell = checkpoint.cell + before;
            // After a part without cells, the next checkpoint replaces the one before.
            match all.last_mut() {
                Some(last) if last.cell == cell => last.ranks = checkpoint.ranks,
                _ => all.push(Checkpoint { cell, ..checkpoint }),
            }
        }
        before += count;
    }
    Ok(all)
}

/// The number of cells before the last of some checkpoints.
fn end_of(checkpoints: &[Checkpoint]) -> u64 {
    checkpoints[checkpoints.len() - 1].cell
}

/// Keys that split the candidates into about `parts` equal parts, and for each key its rank in each member.
/// Candidates with the same key stay together.
fn splits<K: SortKey>(rules: &Rules, members: &[Member<K>], parts: u64) -> Result<(Vec<K>, Vec<Vec<u64>>)> {
    /// Sampled keys per part.
    const SAMPLES_PER_PART: u64 = 16;
    let total: u64 = members.iter().fold(0u64, |sum, m| sum.saturating_add(m.count()));
    let step = (total / (parts * SAMPLES_PER_PART)).max(1);
    let samples = parallel::each(members.len() as u64, |number| -> Result<Vec<K>> {
        let member = &members[number as usize];
        let ranks = (step / 2..member.count()).step_by(step as usize);
        ranks
            .filter_map(|rank| member.sample(rules, rank).transpose())
            .collect()
    })?;
    let mut samples: Vec<K> = samples.into_iter().flatten().collect();
    samples.sort_unstable();
    // Without samples there are no keys.
    let parts = if samples.is_empty() { 1 } else { parts };
    let places = (1..parts).map(|part| samples.len() as u64 * part / parts);
    let mut keys: Vec<K> = places.map(|at| samples[at as usize].clone()).collect();
    keys.dedup();
    // Each thread searches one member, so that no two need the same chunks.
    let ranks = parallel::each(members.len() as u64, |number| -> Result<Vec<u64>> {
        let member = &members[number as usize];
        keys.iter().map(|key| member.lower_bound(rules, key)).collect()
    })?;
    let ranks = (0..keys.len()).map(|key| ranks.iter().map(|of_keys| of_keys[key]).collect());
    let ranks = ranks.collect();
    Ok((keys, ranks))
}

/// Merges a part: the candidates from rank `from` to rank `to` of each member, with keys `between` two.
/// Returns its checkpoints, counted from the start of the part; the last one is at its end.
fn part<K: SortKey>(
    rules: &Rules,
    members: &[Member<K>],
    [from, to]: [&[u64]; 2],
    between: [Option<&K>; 2],
    job: &Job,
    keep: Option<KeepBlock>,
) -> std::result::Result<Vec<Checkpoint>, Stop> {
    let per_member = members.len() as u64 * rules.tuning.block_cells_per_member;
    let most = rules.tuning.block_cells.max(per_member);
    let mut merge = Merge::new(rules, members, from, to, between);
    let mut checkpoints: Vec<Checkpoint> = Vec::new();
    let mut cell = 0u64;
    while merge.has_next()? {
        let ranks = merge.ranks().to_vec();
        let pass = |candidates| job.advance(candidates);
        match keep {
            Some(keep) => {
                let block = next_block(&mut merge, most, pass)?;
                cell += block.count();
                keep(&ranks, block)?;
            }
            None => cell += merge.take(most, &mut (), pass)?,
        }
        checkpoints.push(Checkpoint {
            cell,
            ranks: merge.ranks().into(),
        });
    }
    // A part without candidates has only this checkpoint.
    let end = Checkpoint {
        cell,
        ranks: to.into(),
    };
    match checkpoints.last_mut() {
        Some(last) => *last = end,
        None => checkpoints.push(end),
    }
    Ok(checkpoints)
}

/// The next block of a merge: see [`Merge::take`].
fn next_block<K: SortKey>(
    merge: &mut Merge<K>,
    most: u64,
    pass: impl FnMut(u64) -> Result<()>,
) -> std::result::Result<Block, Stop> {
    let mut writer = Writer::new(merge.ranks(), merge.rules.tuning)?;
    merge.take(most, &mut writer, pass)?;
    Ok(writer.end())
}

impl<K: SortKey> Plan<K> {
    /// Merges the candidates between two checkpoints.
    fn merge(&self, rules: &Rules, from: &Checkpoint, to: &Checkpoint) -> Result<Block> {
        let stop = |stop| match stop {
            Stop::Failed(error) => error,
            Stop::Unsorted(_) => changed(),
        };
        let mut merge = Merge::new(rules, &self.members, &from.ranks, &to.ranks, [None; 2]);
        let block = next_block(&mut merge, u64::MAX, |_| Ok(())).map_err(stop)?;
        match block.count() == to.cell - from.cell {
            true => Ok(block),
            false => Err(changed()),
        }
    }
}
