//! Blocks: the results of a merge, four bytes for each run of cells of one member.
//!
//! The candidates of a member come in the order of their ranks. So a block is a sequence of steps: a member,
//! and how many of its candidates are taken, or skipped because the view leaves them out. Reads start at the
//! ranks of the block's start or of one of its checkpoints.

use super::batch::{MergeSink, Turn};
use super::input::{Input, Ranked};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::cache;
use crate::runtime::tuning::Tuning;
use std::ops::Range;
use std::sync::Arc;

/// Consecutive cells of a fragment that are consecutive in the view, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of the fragment, in reading order.
    pub input: usize,
    /// The first cell.
    pub first: u64,
    /// The number of cells.
    pub count: u64,
}

/// Consecutive cells of the view, in the order of a merge.
pub(super) struct Block {
    steps: Steps,
    /// The position before every `stride` steps, from the first on.
    checkpoints: Vec<Checkpoint>,
    /// Steps between two checkpoints.
    stride: usize,
    end: Checkpoint,
}

/// Steps, in pieces of the size of most chunks. Chunks and blocks replace each other in the cache, so the
/// memory of one must fit the other: with blocks in one piece of a MiB, a mount with a full cache of 256 MiB
/// took half as much memory again.
///
/// A step has, from the lowest bit on: the number of a member, whether its candidates are skipped, and how
/// many candidates there are.
struct Steps {
    pieces: Vec<Vec<u32>>,
    /// Steps in a piece.
    piece: usize,
    /// Bits of a member's number.
    bits: u32,
}

/// A position at which a merge can be resumed, or from which a block can be read.
#[derive(Clone)]
pub(super) struct Checkpoint {
    /// The number of cells before it in the component, or in the block.
    pub cell: u64,
    /// The rank of the next candidate of each member.
    pub ranks: Box<[u64]>,
}

/// Makes a block from the cells that a merge takes.
pub(super) struct Writer {
    block: Block,
    /// The most candidates of a step.
    most: u32,
    /// Steps left before the next checkpoint.
    left: usize,
    /// The member of the unfinished step, and the number of its candidates so far.
    open: (u32, u32),
}

/// Consecutive cells of the view, and the place that they are stored in.
pub(super) enum ViewPart {
    /// Candidates of a fragment, by rank.
    Stored(Arc<Input>, Range<u64>),
    /// Cells of a block.
    Merged(Slice),
}

/// Consecutive cells of a block.
pub(super) struct Slice {
    members: Arc<[Ranked]>,
    block: Arc<Block>,
    count: u64,
    start: Position,
    end: Position,
}

/// A position in a block, between two cells.
struct Position {
    /// The index of the next step, and how many of its candidates are before the position.
    step: usize,
    before: u64,
    /// The rank of the next candidate of each member.
    ranks: Vec<u64>,
}

/// The next candidate of a member.
struct Cursor {
    rank: u64,
    /// Its cell in the fragment. Undefined if `rank` has reached `end`.
    cell: u64,
    /// The rank up to which the cells are consecutive.
    end: u64,
}

impl Cursor {
    fn skip(&mut self, count: u64) {
        self.rank += count;
        self.cell += count;
    }
}

impl Steps {
    fn new(members: usize, piece: usize) -> Steps {
        Steps {
            pieces: Vec::new(),
            piece,
            bits: usize::BITS - (members - 1).leading_zeros(),
        }
    }

    /// The most candidates of a step.
    fn most(&self) -> u32 {
        u32::MAX.unbounded_shr(self.bits + 1)
    }

    fn count(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    #[inline]
    fn push(&mut self, member: u32, skips: bool, count: u32) {
        let step = member | u32::from(skips) << self.bits | count << (self.bits + 1);
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < self.piece => piece.push(step),
            Some(_) => {
                let mut piece = Vec::with_capacity(self.piece);
                piece.push(step);
                self.pieces.push(piece);
            }
            // Grows on demand: most blocks of few members have few runs.
            None => self.pieces.push(vec![step]),
        }
    }

    /// The steps from index `first` on.
    fn pieces_from(&self, first: usize) -> impl Iterator<Item = &[u32]> + '_ {
        let mut pieces = self.pieces.iter().skip(first / self.piece);
        let rest = pieces.next().and_then(|piece| piece.get(first % self.piece..));
        rest.into_iter().chain(pieces.map(Vec::as_slice))
    }

    /// The steps from index `first` on: the member, whether its candidates are skipped, and their number.
    fn from(&self, first: usize) -> impl Iterator<Item = (usize, bool, u64)> + '_ {
        let bits = self.bits;
        let members = !(u32::MAX << bits);
        self.pieces_from(first).flatten().map(move |step| {
            let count = step >> (bits + 1);
            ((step & members) as usize, step >> bits & 1 != 0, u64::from(count))
        })
    }
}

impl Writer {
    /// A writer for a merge at `ranks`. `LimitExceeded` if a step has no room for the number of a member.
    pub(super) fn new(ranks: &[u64], tuning: &Tuning) -> Result<Writer> {
        let steps = Steps::new(ranks.len(), tuning.piece_steps);
        let most = steps.most();
        if most == 0 {
            return Err(Error::limit(format!("{} fragments are too many to be merged", ranks.len())).at(0));
        }
        Ok(Writer {
            block: Block {
                steps,
                checkpoints: Vec::new(),
                stride: tuning
                    .stride_steps
                    .max(ranks.len() * tuning.stride_steps_per_member),
                end: Checkpoint {
                    cell: 0,
                    ranks: ranks.into(),
                },
            },
            most,
            left: 0,
            open: (0, 0),
        })
    }

    fn close(&mut self) {
        let (member, count) = std::mem::take(&mut self.open);
        if count > 0 {
            self.push(member, false, count);
        }
    }

    fn push(&mut self, member: u32, skips: bool, count: u32) {
        let Block {
            steps,
            checkpoints,
            stride,
            end,
        } = &mut self.block;
        if self.left == 0 {
            checkpoints.push(end.clone());
            self.left = *stride;
        }
        self.left -= 1;
        steps.push(member, skips, count);
        end.ranks[member as usize] += u64::from(count);
        end.cell += if skips { 0 } else { u64::from(count) };
    }

    /// Skips the candidates of `member` before rank `rank`. `ESTALE` if that rank has been passed.
    fn skip_to(&mut self, member: u32, rank: u64) -> Result<()> {
        let next = self.block.end.ranks[member as usize];
        let mut skipped = rank.checked_sub(next).ok_or_else(changed)?;
        while skipped > 0 {
            let count = skipped.min(u64::from(self.most)) as u32;
            self.push(member, true, count);
            skipped -= u64::from(count);
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> Block {
        self.close();
        self.block
    }
}

impl MergeSink for Writer {
    fn take(&mut self, member: u32, rank: u64) -> Result<()> {
        let (open, count) = self.open;
        let next = self.block.end.ranks[member as usize];
        if member == open && count < self.most && rank == next + u64::from(count) {
            self.open.1 = count + 1;
            return Ok(());
        }
        self.close();
        self.skip_to(member, rank)?;
        self.open = (member, 1);
        Ok(())
    }

    fn take_next(&mut self, turns: &[Turn], ranks: &mut [u64]) -> Result<()> {
        self.close();
        for (member, &rank) in (0..).zip(&*ranks) {
            self.skip_to(member, rank)?;
        }
        for turn in turns {
            let (member, count) = self.open;
            if turn.member() == member && count < self.most {
                self.open.1 = count + 1;
            } else {
                self.close();
                self.open = (turn.member(), 1);
            }
        }
        self.close();
        ranks.copy_from_slice(&self.block.end.ranks);
        Ok(())
    }
}

impl cache::Entry for Block {
    fn memory(&self) -> u64 {
        let steps: usize = self.steps.pieces.iter().map(Vec::capacity).sum();
        let ranks = (1 + self.checkpoints.len()) * (self.end.ranks.len() + 3);
        (steps * size_of::<u32>() + ranks * size_of::<u64>()) as u64
    }
}

impl Block {
    /// Approximate bytes of a block of `cells` cells.
    pub(super) fn estimate(cells: u64) -> u64 {
        cells.saturating_mul(size_of::<u32>() as u64)
    }

    pub(super) fn count(&self) -> u64 {
        self.end.cell
    }

    /// The position before cell `cell`; None after the end.
    #[inline]
    fn position(&self, cell: u64) -> Option<Position> {
        if cell == self.end.cell {
            return Some(Position {
                step: usize::MAX,
                before: 0,
                ranks: self.end.ranks.to_vec(),
            });
        }
        let after = self
            .checkpoints
            .partition_point(|checkpoint| checkpoint.cell <= cell);
        let number = after.checked_sub(1)?;
        let checkpoint = self.checkpoints.get(number)?;
        let (mut left, mut ranks) = (cell - checkpoint.cell, checkpoint.ranks.to_vec());
        let (mut step, mut before) = (number * self.stride, 0);
        for (member, skips, count) in self.steps.from(step) {
            if left == 0 {
                break;
            }
            before = if skips { count } else { count.min(left) };
            left -= if skips { 0 } else { before };
            *ranks.get_mut(member)? += before;
            if before == count {
                (step, before) = (step + 1, 0);
            }
        }
        (left == 0).then_some(Position { step, before, ranks })
    }
}

impl Slice {
    /// `cells` of `block`, whose members are `members`.
    pub(super) fn new(members: Arc<[Ranked]>, block: Arc<Block>, cells: Range<u64>) -> Result<Slice> {
        let position = |cell| block.position(cell).ok_or_else(|| none(cell));
        Ok(Slice {
            count: cells.end - cells.start,
            start: position(cells.start)?,
            end: position(cells.end)?,
            members,
            block,
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The rank of the next candidate of each member at its start and at its end.
    fn ranks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ends = self.end.ranks.iter().copied();
        self.start.ranks.iter().copied().zip(ends)
    }

    /// Fills `out` with the cells, given the cells of each member, skipped ones included. None if these are
    /// too few.
    pub(super) fn interleave<T: Copy>(&self, runs: &mut [&[T]], mut out: &mut [T]) -> Option<()> {
        let steps = &self.block.steps;
        let members = !(u32::MAX << steps.bits);
        // A step of one taken candidate, the most frequent one.
        let single = 2 << steps.bits;
        let mut before = self.start.before;
        for piece in steps.pieces_from(self.start.step) {
            for step in piece {
                let run = runs.get_mut((step & members) as usize)?;
                if step & !members == single {
                    let Some((slot, rest)) = std::mem::take(&mut out).split_first_mut() else {
                        return Some(());
                    };
                    out = rest;
                    let (cell, rest) = run.split_first()?;
                    *slot = *cell;
                    *run = rest;
                    continue;
                }
                if out.is_empty() {
                    return Some(());
                }
                let count = (step >> (steps.bits + 1)) as usize - std::mem::take(&mut before) as usize;
                match step >> steps.bits & 1 {
                    0 => {
                        let count = count.min(out.len());
                        let (slots, rest) = std::mem::take(&mut out).split_at_mut(count);
                        out = rest;
                        slots.copy_from_slice(run.get(..count)?);
                        *run = run.get(count..)?;
                    }
                    _ => *run = run.get(count..)?,
                }
            }
        }
        out.is_empty().then_some(())
    }

    /// The number of each member's input and its range of cells, skipped ones included. None for a member
    /// whose cells are not consecutive.
    pub(super) fn runs(&self) -> impl Iterator<Item = Option<(usize, Range<u64>)>> + '_ {
        self.ranks().zip(&*self.members).map(|((rank, end), ranked)| {
            let count = end - rank;
            let cells = match count {
                0 => 0..0,
                _ => ranked.cells(rank)?,
            };
            (cells.end - cells.start >= count).then(|| (ranked.input.index, cells.start..cells.start + count))
        })
    }

    /// Hands the pieces of the slice to `take`, in order.
    fn pieces(&self, take: &mut impl FnMut(Piece)) -> Result<()> {
        let cursor = |&rank: &u64| Cursor {
            rank,
            cell: 0,
            end: rank,
        };
        let mut cursors: Vec<Cursor> = self.start.ranks.iter().map(cursor).collect();
        let (mut before, mut left) = (self.start.before, self.count);
        for (member, skips, mut count) in self.block.steps.from(self.start.step) {
            let (cursor, ranked) = (&mut cursors[member], &self.members[member]);
            count -= std::mem::take(&mut before);
            if skips {
                cursor.skip(count);
                continue;
            }
            count = count.min(left);
            left -= count;
            while count > 0 {
                if cursor.rank >= cursor.end {
                    let found = ranked.cells(cursor.rank).ok_or_else(|| none(cursor.rank))?;
                    cursor.cell = found.start;
                    cursor.end = cursor.rank + (found.end - found.start);
                }
                let run = count.min(cursor.end - cursor.rank);
                take(Piece {
                    input: ranked.input.index,
                    first: cursor.cell,
                    count: run,
                });
                cursor.skip(run);
                count -= run;
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// The error for fragments that have changed since they were merged.
pub(super) fn changed() -> Error {
    Error::new(
        ErrorKind::Io(libc::ESTALE),
        "the fragments have changed since they were merged",
    )
}

fn none(cell: u64) -> Error {
    Error::internal(format!("cell {cell} is in no run"))
}

impl ViewPart {
    pub(super) fn count(&self) -> u64 {
        match self {
            ViewPart::Stored(_, cells) => cells.end - cells.start,
            ViewPart::Merged(slice) => slice.count,
        }
    }

    /// Whether some cell is one of input `number`.
    pub(super) fn shows(&self, number: usize) -> Result<bool> {
        let mut found = false;
        self.pieces(|piece| found |= piece.input == number)?;
        Ok(found)
    }

    /// The first and the last input that may have cells in it.
    pub(super) fn inputs(&self) -> Option<(usize, usize)> {
        match self {
            ViewPart::Stored(input, _) => Some((input.index, input.index)),
            // Members are in reading order.
            ViewPart::Merged(Slice { members, .. }) => members
                .first()
                .zip(members.last())
                .map(|(first, last)| (first.input.index, last.input.index)),
        }
    }

    /// Hands the cells to `take` in few pieces, in any order and with other cells between them. Returns the
    /// approximate number of pieces in order.
    pub(super) fn outline(&self, mut take: impl FnMut(Piece)) -> Result<u64> {
        let mut count = 0;
        if let ViewPart::Merged(slice) = self {
            let taken: u64 = slice.ranks().map(|(first, end)| end - first).sum();
            if taken <= 2 * slice.count {
                for (ranked, (first, end)) in slice.members.iter().zip(slice.ranks()) {
                    let mut rank = first;
                    while rank < end {
                        let cells = ranked.cells(rank).ok_or_else(|| none(rank))?;
                        let run = (cells.end - cells.start).min(end - rank);
                        take(Piece {
                            input: ranked.input.index,
                            first: cells.start,
                            count: run,
                        });
                        rank += run;
                    }
                }
                // The slice's share of the block's steps.
                let steps = slice.block.steps.count();
                return Ok(steps * slice.count / slice.block.count().max(1));
            }
        }
        self.pieces(|piece| {
            count += 1;
            take(piece);
        })?;
        Ok(count)
    }

    /// Hands the pieces to `take`, in order.
    pub(super) fn pieces(&self, mut take: impl FnMut(Piece)) -> Result<()> {
        match self {
            ViewPart::Stored(input, ranks) => {
                for cells in input.cells(ranks.clone()) {
                    take(Piece {
                        input: input.index,
                        first: cells.start,
                        count: cells.end - cells.start,
                    });
                }
                Ok(())
            }
            ViewPart::Merged(slice) => slice.pieces(&mut take),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_tell_whose_turn_it_was_and_what_was_skipped() {
        // So many members leave eleven bits for the number of candidates in a step.
        let members = 1 << 20;
        for members in [1, 2, 20, members] {
            let mut ranks = vec![7; members];
            let last = members as u32 - 1;
            let taken = (0..5000).map(|i| (last, 7 + i));
            let taken = taken.chain((0..10).map(|i| (0, 100_000 + 3 * i)));
            let taken: Vec<(u32, u64)> = taken.chain([(last, 200_000)]).collect();
            let mut writer = Writer::new(&ranks, &Tuning::SMALL).unwrap();
            assert!(
                taken
                    .iter()
                    .all(|&(member, rank)| writer.take(member, rank).is_ok())
            );
            assert!(writer.take(last, 199_999).is_err(), "it is behind");
            let block = writer.end();
            assert_eq!(block.count(), taken.len() as u64);
            let mut found = Vec::new();
            for (member, skips, count) in block.steps.from(0) {
                let start = ranks[member];
                ranks[member] += count;
                if !skips {
                    found.extend((start..ranks[member]).map(|rank| (member as u32, rank)));
                }
            }
            assert!(found == taken, "{members} members");
        }
        assert_eq!(Steps::new(1 << 31, 4).most(), 0);
    }
}
