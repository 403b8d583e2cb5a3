//! Fragments whose cells interleave in the global order, and the plan by which their merge is entered
//! anywhere.

use super::block::{Block, Part, Slice, Writer, changed};
use super::input::{Input, Ranked};
use super::member::{Member, Rules, Sorted};
use super::merge::{Merge, Stop, Unsorted};
use crate::array::cache::{CacheKey, Entry, Keep};
use crate::array::engine::Engine;
use crate::array::order::SortKey;
use crate::array::work::Job;
use crate::error::{Error, ErrorKind, Result};
use crate::parallel;
use crate::single_flight::SingleFlight;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

// Tests merge few cells; smaller numbers have them pass the same bounds as large arrays do.

/// Cells of the view between two checkpoints, at least.
const BLOCK: u64 = if cfg!(test) { 8 } else { 1 << 16 };

/// The same for each member, for which a checkpoint holds a rank: at most one 64th of what the coordinates of
/// the cells between take.
const BLOCK_OF_MEMBER: u64 = if cfg!(test) { 1 } else { 64 };

/// Candidates below which a merge is not worth several threads.
const SMALL: u64 = if cfg!(test) { 32 } else { 1 << 16 };

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
    ranked: Arc<[Ranked]>,
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

/// Fragments whose cells interleave, or a single one.
pub(super) struct Component<K> {
    /// In reading order.
    pub inputs: Vec<Arc<Input>>,
    /// How many cells it has, where footers tell.
    known: Option<u64>,
    plan: Mutex<Option<Arc<Plan<K>>>>,
    planning: SingleFlight,
    /// Its outline in the cache.
    object: u64,
    in_order: Mutex<Option<bool>>,
}

impl<K: SortKey + 'static> Component<K> {
    /// The component of `inputs`, of `known` cells where footers tell; `object` names it in the cache.
    pub(super) fn new(inputs: Vec<Arc<Input>>, known: Option<u64>, object: u64) -> Self {
        Component {
            inputs,
            known,
            plan: Mutex::new(None),
            planning: SingleFlight::default(),
            object,
            in_order: Mutex::default(),
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

    /// Where the first cells of `cells` are, and maybe all of them.
    pub(super) fn part(&self, engine: &Engine, rules: &Rules, cells: Range<u64>) -> Result<Part> {
        if let ([input], Some(_)) = (self.inputs.as_slice(), self.known)
            && self.is_in_order(rules, input)?
        {
            return Ok(Part::Stored(input.clone(), cells));
        }
        let plan = self.plan(engine, rules)?;
        let checkpoints = &plan.outline.checkpoints;
        let after = checkpoints.partition_point(|checkpoint| checkpoint.cell <= cells.start);
        let (Some(from), Some(to)) = (checkpoints.get(after.wrapping_sub(1)), checkpoints.get(after)) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("cell {} is in no block", cells.start),
            ));
        };
        let key = block_key(plan.blocks, &from.ranks);
        let memory = Block::estimate(to.cell - from.cell);
        let load = || plan.merge(rules, from, to);
        let block = engine.cache.derive(key, memory, Keep::Staying, load)?;
        let part = cells.start - from.cell..cells.end.min(to.cell) - from.cell;
        Ok(Part::Merged(Slice::new(plan.ranked.clone(), block, part)?))
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
        let mut known = self.in_order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = *known {
            return Ok(known);
        }
        // Readers return strings in the order of their writer where they have nothing to merge.
        let in_order = input.has_signed_strings() || {
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
        *known = Some(in_order);
        Ok(in_order)
    }

    /// The plan; made where it is not there, by all threads.
    fn plan(&self, engine: &Engine, rules: &Rules) -> Result<Arc<Plan<K>>> {
        let _waiting = engine.work.wait(self.object);
        let known = || self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let find = || known().clone();
        self.planning.find_or_make(find, || {
            let plan = self.make_plan(engine, rules)?;
            *known() = Some(plan.clone());
            Ok(plan)
        })
    }

    fn make_plan(&self, engine: &Engine, rules: &Rules) -> Result<Arc<Plan<K>>> {
        let candidates = self.inputs.iter();
        let candidates = candidates.fold(0u64, |sum, input| sum.saturating_add(input.count()));
        let estimate = (candidates / BLOCK + 2).saturating_mul(self.inputs.len() as u64 * 8 + 32);
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
                Err(Stop::Unsorted(Unsorted { input })) => {
                    let signed = |&number: &usize| {
                        let input = self.inputs.get(number);
                        input.is_some_and(|input| input.has_signed_strings()) && !unsorted.contains(&number)
                    };
                    // Where the order of strings is not the reader's, that of other fragments is not either.
                    let others = (0..self.inputs.len()).filter(signed).collect();
                    let found = if signed(&input) { others } else { vec![input] };
                    for input in found {
                        sort(&mut members, input, rules)?;
                        unsorted.push(input);
                    }
                }
            }
        }
    }
}

/// Puts the block that begins at some ranks into the cache.
type KeepBlock<'a> = &'a (dyn Fn(&[u64], Block) -> Result<()> + Sync);

/// Sorts the candidates of member `number`, which is not sorted yet.
fn sort<K: SortKey>(members: &mut [Member<K>], number: usize, rules: &Rules) -> Result<()> {
    let member = members.get(number).filter(|member| member.sorted.is_none());
    let Some(input) = member.map(|member| member.input.clone()) else {
        return Err(Error::new(
            ErrorKind::Internal,
            "there is no such member of the merge",
        ));
    };
    log::info!(
        "{}: its cells are not in the array's order and are sorted first",
        input.info.path.display()
    );
    let sorted = Arc::new(Sorted::new(&input, members, rules)?);
    if let Some(member) = members.get_mut(number) {
        member.sorted = Some(sorted);
    }
    Ok(())
}

/// Merges everything once, and remembers places to begin at.
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
    if total > SMALL && threads > 1 {
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
fn splits<K: SortKey>(rules: &Rules, members: &[Member<K>], parts: u64) -> Result<(Vec<K>, Vec<Vec<u64>>)> {
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
    // By member, so that no two threads want the same chunks.
    let ranks = parallel::each(members.len() as u64, |number| -> Result<Vec<u64>> {
        let member = members.get(number as usize);
        let ranks = keys
            .iter()
            .filter_map(|key| Some(member?.lower_bound(rules, key)));
        ranks.collect()
    })?;
    let ranks = (0..keys.len()).map(|key| {
        ranks
            .iter()
            .filter_map(|of_keys| of_keys.get(key).copied())
            .collect()
    });
    let ranks = ranks.collect();
    Ok((keys, ranks))
}

/// Merges a part, from one rank of each member to another: a checkpoint every so many cells, the last one at
/// its end.
fn part<K: SortKey>(
    rules: &Rules,
    members: &[Member<K>],
    [from, to]: [&[u64]; 2],
    between: [Option<&K>; 2],
    job: &Job,
    keep: Option<KeepBlock>,
) -> std::result::Result<Vec<Checkpoint>, Stop> {
    let most = BLOCK.max(members.len() as u64 * BLOCK_OF_MEMBER);
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

/// The next block of a merge, see [`Merge::take`].
fn next_block<K: SortKey>(
    merge: &mut Merge<K>,
    most: u64,
    pass: impl FnMut(u64) -> Result<()>,
) -> std::result::Result<Block, Stop> {
    let mut writer = Writer::new(merge.ranks())?;
    merge.take(most, &mut writer, pass)?;
    Ok(writer.end())
}

impl<K: SortKey> Plan<K> {
    /// Merges what lies between two checkpoints.
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
