//! Fragments whose cells interleave in the global order, and the plan by which their merge is entered
//! anywhere.

use super::input::Input;
use super::merge::{Member, Merge, Rules, Sorted, Stop, Unsorted};
use crate::array::cache::{self, Keep};
use crate::array::engine::Engine;
use crate::array::order::Key;
use crate::array::work::Job;
use crate::error::{Error, ErrorKind, Result};
use crate::view::parallel;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

// Tests merge few cells; smaller numbers have them pass the same bounds as large arrays do.

/// Cells of the view between two checkpoints, at least.
const BLOCK: u64 = if cfg!(test) { 8 } else { 1 << 16 };

/// The same for each member, for which a checkpoint holds a rank: at most one 64th of what the coordinates of
/// the cells between take.
const BLOCK_OF_MEMBER: u64 = if cfg!(test) { 1 } else { 64 };

/// Candidates below which a merge is not worth several threads.
const SMALL: u64 = if cfg!(test) { 32 } else { 1 << 16 };

/// Cells of a fragment that follow each other in the view too. How many: up to the next run, or the end of
/// the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The first cell of the fragment.
    pub first: u64,
    /// Where it is in the block.
    pub at: u32,
    /// Which member of the component.
    pub member: u32,
}

/// The runs of a block, and how many cells it has.
pub(super) struct Block {
    /// How many cells.
    pub count: u64,
    /// In the view's order.
    pub runs: Runs,
}

/// Runs, in pieces as large as most chunks: in the cache both take each other's place, and what one leaves
/// has to fit the other. Blocks in one piece of a MiB made the memory of a mount with a full cache of 256 MiB
/// half as much again.
#[derive(Default)]
pub(super) struct Runs(Vec<Vec<Run>>);

impl Runs {
    /// Of 16 bytes each.
    const PIECE: usize = 4096;

    fn push(&mut self, run: Run) {
        match self.0.last_mut() {
            Some(piece) if piece.len() < Self::PIECE => piece.push(run),
            Some(_) => {
                let mut piece = Vec::with_capacity(Self::PIECE);
                piece.push(run);
                self.0.push(piece);
            }
            // The first grows as it needs: most blocks of few members have few runs.
            None => self.0.push(vec![run]),
        }
    }

    fn get(&self, i: usize) -> Option<&Run> {
        self.0.get(i / Self::PIECE)?.get(i % Self::PIECE)
    }

    /// The number of the run that holds place `at` of the block.
    fn holding(&self, at: u64) -> usize {
        let from = |run: &Run| u64::from(run.at) <= at;
        let piece = self.0.partition_point(|piece| piece.first().is_some_and(from));
        let piece = piece.saturating_sub(1);
        let within = self.0.get(piece).map_or(0, |runs| runs.partition_point(from));
        (piece * Self::PIECE + within).saturating_sub(1)
    }

    fn memory(&self) -> u64 {
        let runs: usize = self.0.iter().map(Vec::capacity).sum();
        (runs * size_of::<Run>()) as u64
    }
}

impl cache::Entry for Block {
    fn memory(&self) -> u64 {
        self.runs.memory()
    }
}

impl Block {
    /// The pieces of the cells in `cells`, counted in the block: member, first cell of the fragment, and how
    /// many.
    pub(super) fn pieces(&self, cells: Range<u64>) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let (from, to) = (cells.start, cells.end.min(self.count));
        (self.runs.holding(from)..).map_while(move |i| {
            let run = self.runs.get(i)?;
            let end = self.runs.get(i + 1).map_or(self.count, |next| u64::from(next.at));
            let (start, end) = (from.max(u64::from(run.at)), to.min(end));
            (start < end).then(|| {
                (
                    run.member as usize,
                    run.first + (start - u64::from(run.at)),
                    end - start,
                )
            })
        })
    }
}

/// A place in the merge from which it can go on.
struct Checkpoint {
    /// Cells of the view before it.
    cell: u64,
    /// The rank of the next candidate of each member.
    ranks: Box<[u64]>,
}

/// How a component's cells are found.
struct Plan<K> {
    members: Vec<Member<K>>,
    outline: Arc<Outline>,
    /// Its blocks in the cache.
    blocks: u64,
}

/// What one merge of everything tells, kept in the cache.
struct Outline {
    /// Ascending; the last one is the end.
    checkpoints: Vec<Checkpoint>,
    /// The members whose cells have to be sorted.
    unsorted: Vec<usize>,
}

/// The entry of the cache that is the block that begins at some ranks: others begin after other numbers of
/// candidates.
fn block_key(blocks: u64, ranks: &[u64]) -> cache::Key {
    cache::Key::tile(
        blocks,
        ranks.iter().fold(0u64, |sum, rank| sum.wrapping_add(*rank)),
    )
}

impl cache::Entry for Outline {
    fn memory(&self) -> u64 {
        let checkpoints = self.checkpoints.iter();
        checkpoints
            .map(|checkpoint| 32 + checkpoint.ranks.len() as u64 * 8)
            .sum()
    }
}

/// Fragments whose cells interleave, or a single one.
pub(super) struct Component<K> {
    /// In reading order.
    pub inputs: Vec<Arc<Input>>,
    /// How many cells it has, where footers tell.
    known: Option<u64>,
    plan: Mutex<Option<Arc<Plan<K>>>>,
    /// Its outline in the cache.
    object: u64,
    in_order: OnceLock<bool>,
}

impl<K: Key + 'static> Component<K> {
    /// The component of `inputs`, of `known` cells where footers tell; `object` names it in the cache.
    pub(super) fn new(inputs: Vec<Arc<Input>>, known: Option<u64>, object: u64) -> Self {
        Component {
            inputs,
            known,
            plan: Mutex::new(None),
            object,
            in_order: OnceLock::new(),
        }
    }

    /// How many cells of the view it has.
    pub(super) fn count(&self, engine: &Engine, rules: &Rules) -> Result<u64> {
        match self.known {
            Some(known) => Ok(known),
            None => Ok(self
                .plan(engine, rules)?
                .outline
                .checkpoints
                .last()
                .map_or(0, |end| end.cell)),
        }
    }

    /// Whether its cells are all those of its fragments, each once.
    pub(super) fn is_counted(&self) -> bool {
        self.known.is_some()
    }

    /// The ranks of the candidates that some cells are made of, with their member; those of others may be
    /// among them. Decodes nothing that counting the cells, or telling whether those of a single fragment are
    /// in order, did not.
    pub(super) fn ranks(
        &self,
        engine: &Engine,
        rules: &Rules,
        cells: Range<u64>,
    ) -> Result<Vec<(usize, Range<u64>)>> {
        let whole = |member: usize| {
            (
                member,
                0..self.inputs.get(member).map_or(0, |input| input.count()),
            )
        };
        let members = 0..self.inputs.len();
        if self.known.is_some() {
            return Ok(match self.inputs.as_slice() {
                [input] if self.is_in_order(rules, input)? => vec![(0, cells)],
                _ => members.map(whole).collect(),
            });
        }
        let plan = self.plan(engine, rules)?;
        let checkpoints = &plan.outline.checkpoints;
        let after = checkpoints.partition_point(|checkpoint| checkpoint.cell <= cells.start);
        let end = checkpoints.partition_point(|checkpoint| checkpoint.cell < cells.end);
        let (Some(from), Some(to)) = (checkpoints.get(after.wrapping_sub(1)), checkpoints.get(end)) else {
            return Ok(members.map(whole).collect());
        };
        let ranks = members.map(|member| {
            let at = |checkpoint: &Checkpoint| checkpoint.ranks.get(member).copied();
            match at(from).zip(at(to)) {
                Some((from, to)) if !plan.outline.unsorted.contains(&member) => (member, from..to),
                _ => whole(member),
            }
        });
        Ok(ranks.collect())
    }

    /// The block that holds `cell`, and its first cell.
    pub(super) fn block(&self, engine: &Engine, rules: &Rules, cell: u64) -> Result<(u64, Arc<Block>)> {
        if let ([input], Some(known)) = (self.inputs.as_slice(), self.known)
            && self.is_in_order(rules, input)?
        {
            let (first, block) = stored(input, known, cell);
            return Ok((first, Arc::new(block)));
        }
        let plan = self.plan(engine, rules)?;
        let checkpoints = &plan.outline.checkpoints;
        let after = checkpoints.partition_point(|checkpoint| checkpoint.cell <= cell);
        let (Some(from), Some(to)) = (checkpoints.get(after.wrapping_sub(1)), checkpoints.get(after)) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("cell {cell} of no block"),
            ));
        };
        let memory = (to.cell - from.cell) * size_of::<Run>() as u64;
        let key = block_key(plan.blocks, &from.ranks);
        let load = || plan.merge(rules, from, to);
        let block = engine.cache.derive(key, memory, Keep::Staying, load)?;
        Ok((from.cell, block))
    }

    /// Whether the cells of a fragment that nothing is merged with are stored in the array's order. All of
    /// them are looked at; of very many, for which that would take long, those at places that are spread
    /// evenly, each place also against the one before it.
    fn is_in_order(&self, rules: &Rules, input: &Input) -> Result<bool> {
        /// Candidates that are looked at together, with the first one behind them.
        const STEP: u64 = if cfg!(test) { 16 } else { 8192 };
        /// The most steps of which each is looked at.
        const STEPS: u64 = if cfg!(test) { 64 } else { 512 };
        /// Steps that are looked at of more.
        const SOME: u64 = if cfg!(test) { 8 } else { 32 };
        if let Some(known) = self.in_order.get() {
            return Ok(*known);
        }
        let in_order = input.merges_as_it_lies() || {
            let steps = input.count().div_ceil(STEP);
            let looks = if steps > STEPS { SOME } else { steps };
            // The first key and the last one of a step; None where they are not in order.
            let ends = parallel::each(looks, |look| -> Result<Option<Vec<K>>> {
                // The first step is among them, and the last one.
                let step = look * (steps - 1) / (looks - 1).max(1);
                let mut rank = step * STEP;
                let end = input.count().min(rank + STEP + 1);
                let mut ends: Option<(K, K)> = None;
                while rank < end {
                    let window = input.window::<K>(&rules.order, rules.times, rank, end - rank)?;
                    rank = window.end;
                    let (Some(first), Some(last)) = (window.keys.first(), window.keys.last()) else {
                        continue;
                    };
                    if !window.keys.is_sorted() || ends.as_ref().is_some_and(|(_, before)| before > first) {
                        return Ok(None);
                    }
                    let first = ends.map_or_else(|| first.clone(), |(first, _)| first);
                    ends = Some((first, last.clone()));
                }
                Ok(Some(
                    ends.map_or_else(Vec::new, |(first, last)| vec![first, last]),
                ))
            })?;
            let ends: Option<Vec<Vec<K>>> = ends.into_iter().collect();
            ends.is_some_and(|ends| ends.concat().is_sorted())
        };
        Ok(*self.in_order.get_or_init(|| in_order))
    }

    /// The plan; made where it is not there, by all threads.
    fn plan(&self, engine: &Engine, rules: &Rules) -> Result<Arc<Plan<K>>> {
        let _waiting = engine.work.wait(self.object);
        let mut known = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = &*known {
            return Ok(plan.clone());
        }
        let candidates = self.inputs.iter();
        let candidates = candidates.fold(0u64, |sum, input| sum.saturating_add(input.count()));
        let estimate = (candidates / BLOCK + 2).saturating_mul(self.inputs.len() as u64 * 8 + 32);
        let key = cache::Key::of(self.object);
        let outline = engine.cache.derive(key, estimate, Keep::Staying, || {
            self.outline(engine, rules, candidates)
        })?;
        let mut members = self.members();
        for &unsorted in &outline.unsorted {
            sort(&mut members, unsorted, rules)?;
        }
        let plan = Arc::new(Plan {
            members,
            blocks: self.blocks(engine, &outline.unsorted),
            outline,
        });
        *known = Some(plan.clone());
        Ok(plan)
    }

    /// The number of its blocks in the cache. What ranks mean depends on which members are sorted.
    fn blocks(&self, engine: &Engine, unsorted: &[usize]) -> u64 {
        let mut unsorted = unsorted.to_vec();
        unsorted.sort_unstable();
        engine.number(&(self.object, "blocks", unsorted))
    }

    fn members(&self) -> Vec<Member<K>> {
        let members = self.inputs.iter().map(|input| Member {
            input: input.clone(),
            sorted: None,
        });
        members.collect()
    }

    /// Merges everything once; again with its cells sorted where those of a fragment turn out not to be.
    fn outline(&self, engine: &Engine, rules: &Rules, candidates: u64) -> Result<Outline> {
        let mut members = self.members();
        let mut unsorted = Vec::new();
        let first = self.inputs.first().and_then(|input| input.info.path.parent());
        let path = first.map_or_else(String::new, |path| path.display().to_string());
        let job = engine
            .work
            .start(self.object, path, "merging fragments", candidates);
        let windows = rules.memory.saturating_mul(parallel::threads());
        // A candidate in a window takes 64 bytes and less, but for long strings.
        let _windows = engine.cache.borrow(windows.min(candidates.saturating_mul(64)));
        // Who asks how many cells there are will read some: blocks stay in the cache where all have room.
        let fit = candidates.saturating_mul(size_of::<Run>() as u64) <= engine.cache.capacity() / 2;
        loop {
            let blocks = self.blocks(engine, &unsorted);
            let keep = |ranks: &[u64], block: Block| -> Result<()> {
                let (key, memory) = (block_key(blocks, ranks), cache::Entry::memory(&block));
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
                Err(Stop::Unsorted(Unsorted { input })) => {
                    sort(&mut members, input, rules)?;
                    unsorted.push(input);
                }
            }
        }
    }
}

/// Puts the block that begins at some ranks into the cache.
type KeepBlock<'a> = &'a (dyn Fn(&[u64], Block) -> Result<()> + Sync);

/// Sorts the candidates of member `number`, which is not sorted yet.
fn sort<K: Key>(members: &mut [Member<K>], number: usize, rules: &Rules) -> Result<()> {
    let member = members.get(number).filter(|member| member.sorted.is_none());
    let Some(input) = member.map(|member| member.input.clone()) else {
        return Err(Error::new(ErrorKind::Internal, "a member that is none"));
    };
    log::info!("{}: its cells are sorted first", input.info.path.display());
    let sorted = Arc::new(Sorted::new(&input, members, rules)?);
    if let Some(member) = members.get_mut(number) {
        member.sorted = Some(sorted);
    }
    Ok(())
}

/// The block of a fragment whose cells are those of the view: some millions around `cell`; and its first cell.
fn stored(input: &Input, known: u64, cell: u64) -> (u64, Block) {
    const CELLS: u64 = 1 << 30;
    let first = cell / CELLS * CELLS;
    let count = CELLS.min(known - first);
    let mut runs = Runs::default();
    let mut at = 0u64;
    for cells in input.cells(first..first + count) {
        runs.push(Run {
            first: cells.start,
            at: at as u32,
            member: 0,
        });
        at += cells.end - cells.start;
    }
    (first, Block { count, runs })
}

/// Merges everything once, and remembers places to begin at.
fn checkpoints<K: Key>(
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
    if total > SMALL && threads > 1 && !members.iter().any(|member| member.input.merges_as_it_lies()) {
        let ranks;
        (keys, ranks) = splits(rules, members, (2 * threads).min(total / SMALL + 1))?;
        bounds.extend(ranks);
    }
    bounds.push(end);
    // Places that do not ascend are those of candidates that do not either.
    for bounds in bounds.windows(2) {
        if let [from, to] = bounds
            && let Some(input) = from.iter().zip(to).position(|(from, to)| from > to)
        {
            return Err(Stop::Unsorted(Unsorted { input }));
        }
    }
    let parts = parallel::each(bounds.len() as u64 - 1, |number| {
        let number = number as usize;
        // Candidates that the view leaves out may have misled the search for a part's ends, if they are in
        // another order.
        let below = number.checked_sub(1);
        let between = [below.and_then(|below| keys.get(below)), keys.get(number)];
        match bounds.get(number..number + 2) {
            Some([from, to]) => part(rules, members, [from, to], between, job, keep),
            _ => Ok(Vec::new()),
        }
    })?;
    let mut all = vec![Checkpoint {
        cell: 0,
        ranks: bounds.first().cloned().unwrap_or_default().into(),
    }];
    let mut before = 0;
    for part in parts {
        let count = part.last().map_or(0, |last| last.cell);
        for checkpoint in part {
            let cell = checkpoint.cell + before;
            // A part without cells moves the place at which the next one begins.
            match all.last_mut() {
                Some(last) if last.cell == cell => last.ranks = checkpoint.ranks,
                _ => all.push(Checkpoint { cell, ..checkpoint }),
            }
        }
        before += count;
    }
    Ok(all)
}

/// Keys that cut the candidates into about `parts` equal parts, none of which divides the cells of a place;
/// and the ranks at which each cuts the members.
fn splits<K: Key>(rules: &Rules, members: &[Member<K>], parts: u64) -> Result<(Vec<K>, Vec<Vec<u64>>)> {
    /// Keys that are looked at for each part.
    const SAMPLES: u64 = 16;
    let total: u64 = members.iter().fold(0u64, |sum, m| sum.saturating_add(m.count()));
    let step = (total / (parts * SAMPLES)).max(1);
    let samples = parallel::each(members.len() as u64, |number| -> Result<Vec<K>> {
        let Some(member) = members.get(number as usize) else {
            return Ok(Vec::new());
        };
        let ranks = (step / 2..member.count()).step_by(step as usize);
        ranks
            .filter_map(|rank| member.key(rules, rank).transpose())
            .collect()
    })?;
    let mut samples: Vec<K> = samples.into_iter().flatten().collect();
    samples.sort_unstable();
    let mut keys: Vec<K> = (1..parts)
        .filter_map(|part| {
            let at = samples.len() as u64 * part / parts;
            samples.get(at as usize).cloned()
        })
        .collect();
    keys.dedup();
    let ranks = parallel::each(keys.len() as u64, |number| {
        let Some(key) = keys.get(number as usize) else {
            return Ok(Vec::new());
        };
        let ranks = members.iter().map(|member| member.lower_bound(rules, key));
        ranks.collect::<Result<Vec<u64>>>()
    })?;
    Ok((keys, ranks))
}

/// Merges a part, from one rank of each member to another: a checkpoint every so many cells, the last one at
/// its end.
fn part<K: Key>(
    rules: &Rules,
    members: &[Member<K>],
    [from, to]: [&[u64]; 2],
    between: [Option<&K>; 2],
    job: &Job,
    keep: Option<KeepBlock>,
) -> std::result::Result<Vec<Checkpoint>, Stop> {
    /// Candidates after which progress is noted.
    const STEP: u64 = 1 << 16;
    let most = BLOCK.max(members.len() as u64 * BLOCK_OF_MEMBER);
    let mut merge = Merge::new(rules, members, from, to, between)?;
    let mut checkpoints: Vec<Checkpoint> = Vec::new();
    let (mut cell, mut candidates) = (0u64, 0u64);
    while !merge.is_done() {
        let ranks = merge.ranks();
        let full = |merge: &Merge<K>, count: u64| -> Result<bool> {
            candidates += 1;
            if candidates % STEP == 0 {
                job.advance(STEP)?;
            }
            Ok(count >= most && merge.is_at_new_place())
        };
        let block = next_block(&mut merge, members, keep.is_some(), full)?;
        cell += block.count;
        if let Some(keep) = keep {
            keep(&ranks, block)?;
        }
        checkpoints.push(Checkpoint {
            cell,
            ranks: merge.ranks().into(),
        });
    }
    // Without candidates it has no cells; otherwise the last one is at the end by itself.
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

/// What a merge gives next, until it ends or is `full`, as it is asked before each candidate; only the number
/// of cells where runs are not wanted.
fn next_block<K: Key>(
    merge: &mut Merge<K>,
    members: &[Member<K>],
    wanted: bool,
    mut full: impl FnMut(&Merge<K>, u64) -> Result<bool>,
) -> std::result::Result<Block, Stop> {
    let mut runs = Runs::default();
    let (mut count, mut expected) = (0u64, (u32::MAX, 0));
    while !full(merge, count)? {
        let Some((member, rank, stays)) = merge.next()? else {
            break;
        };
        if stays && wanted {
            let cell = members.get(member as usize).and_then(|m| m.cell(rank));
            let first = cell.ok_or_else(changed)?;
            if expected != (member, first) {
                let at = u32::try_from(count).map_err(|_| changed())?;
                runs.push(Run { first, at, member });
            }
            expected = (member, first + 1);
        }
        count += u64::from(stays);
    }
    Ok(Block { count, runs })
}

fn changed() -> Error {
    Error::new(
        ErrorKind::Io(libc::ESTALE),
        "the fragments are no longer what they were",
    )
}

impl<K: Key> Plan<K> {
    /// Merges what lies between two checkpoints.
    fn merge(&self, rules: &Rules, from: &Checkpoint, to: &Checkpoint) -> Result<Block> {
        let stop = |stop| match stop {
            Stop::Failed(error) => error,
            Stop::Unsorted(_) => changed(),
        };
        let mut merge = Merge::new(rules, &self.members, &from.ranks, &to.ranks, [None; 2]).map_err(stop)?;
        let block = next_block(&mut merge, &self.members, true, |_, _| Ok(false)).map_err(stop)?;
        match block.count == to.cell - from.cell {
            true => Ok(block),
            false => Err(changed()),
        }
    }
}
