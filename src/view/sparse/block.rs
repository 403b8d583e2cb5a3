//! What a merge took from its members, in four bytes a run: the numbers of the members in the view's order.
//!
//! The candidates of a member come in the order of their ranks, so that it is enough to know whose turn it
//! is; a step that skips tells of those that the view leaves out. Where the merge began is known of each
//! member, and a block is read from its start on.

use super::input::Input;
use crate::array::cache;
use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

/// The cells of a member by rank.
#[derive(Clone)]
pub(super) struct Ranked {
    /// The fragment.
    pub input: Arc<Input>,
    /// The cell of each rank, where candidates had to be sorted.
    pub sorted: Option<Arc<Vec<u64>>>,
}

/// Consecutive cells of a fragment that follow each other in the view too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of the fragment in reading order.
    pub input: usize,
    /// Its first cell.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Cells of the view that a merge gave one after the other.
pub(super) struct Block {
    /// How many.
    count: u64,
    /// The rank of the next candidate of each member at its start.
    ranks: Vec<u64>,
    /// The rank behind the last candidate of each member that was taken.
    ends: Vec<u64>,
    /// Candidates between those that were skipped.
    skipped: u64,
    /// See [`Steps`].
    steps: Steps,
}

/// Steps, in pieces as large as most chunks: in the cache both take each other's place, and what one leaves
/// has to fit the other. Blocks in one piece of a MiB made the memory of a mount with a full cache of 256 MiB
/// half as much again.
///
/// A step has the number of a member in its lowest bits, then whether candidates are skipped, and above how
/// many.
struct Steps {
    pieces: Vec<Vec<u32>>,
    /// Bits of the number of a member.
    bits: u32,
}

/// Notes what a merge takes.
pub(super) struct Writer {
    block: Block,
    /// The member that candidates are taken from, and how many.
    open: (u32, u32),
}

/// Some cells of the view that follow each other, and where they are.
pub(super) enum Part {
    /// Candidates of a fragment in the order of their ranks.
    Stored(Arc<Input>, Range<u64>),
    /// Cells of a block, counted in it.
    Merged(Arc<[Ranked]>, Arc<Block>, Range<u64>),
}

/// Where the candidates of a member are up to.
struct Cursor {
    /// The rank of the next.
    rank: u64,
    /// The cell of the fragment that is it; of no meaning where `rank` has reached `end`.
    cell: u64,
    /// Up to which rank cells follow each other.
    end: u64,
}

impl Cursor {
    fn skip(&mut self, count: u64) {
        self.rank = self.rank.saturating_add(count);
        self.cell = self.cell.saturating_add(count);
    }
}

impl Ranked {
    /// The cells of the fragment that the ranks from `rank` on are, as far as they follow each other.
    fn cells(&self, rank: u64) -> Option<Range<u64>> {
        match &self.sorted {
            Some(cells) => cells.get(rank as usize).map(|&cell| cell..cell.saturating_add(1)),
            None => self.input.cells(rank..u64::MAX).next(),
        }
    }
}

impl Steps {
    /// Of four bytes each.
    const PIECE: usize = 16384;

    fn new(members: usize) -> Steps {
        Steps {
            pieces: Vec::new(),
            bits: usize::BITS - members.saturating_sub(1).leading_zeros(),
        }
    }

    /// The most candidates of a step.
    fn most(&self) -> u32 {
        u32::MAX.unbounded_shr(self.bits + 1)
    }

    fn push(&mut self, member: u32, skips: bool, count: u32) {
        let step = member | u32::from(skips) << self.bits | count << (self.bits + 1);
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < Self::PIECE => piece.push(step),
            Some(_) => {
                let mut piece = Vec::with_capacity(Self::PIECE);
                piece.push(step);
                self.pieces.push(piece);
            }
            // The first grows as it needs: most blocks of few members have few runs.
            None => self.pieces.push(vec![step]),
        }
    }

    /// Member, whether its candidates are skipped, and how many.
    fn iter(&self) -> impl Iterator<Item = (usize, bool, u64)> + '_ {
        let bits = self.bits;
        let members = !(u32::MAX << bits);
        let steps = self.pieces.iter().flatten();
        steps.map(move |step| {
            let count = step >> (bits + 1);
            ((step & members) as usize, step >> bits & 1 != 0, u64::from(count))
        })
    }
}

impl Writer {
    /// Of a merge whose members are at `ranks`. `LimitExceeded` where they are more than a step can tell
    /// apart.
    pub(super) fn new(ranks: Vec<u64>) -> Result<Writer> {
        let steps = Steps::new(ranks.len());
        if steps.most() == 0 {
            return Err(Error::limit(format!("{} fragments are too many to be merged", ranks.len())).at(0));
        }
        Ok(Writer {
            block: Block {
                count: 0,
                ends: ranks.clone(),
                skipped: 0,
                ranks,
                steps,
            },
            open: (0, 0),
        })
    }

    /// Takes the candidate of rank `rank`; false where the member has passed it, or is none.
    #[must_use]
    pub(super) fn take(&mut self, member: u32, rank: u64) -> bool {
        let Some(next) = self.block.ends.get_mut(member as usize) else {
            return false;
        };
        let Some(mut skipped) = rank.checked_sub(*next) else {
            return false;
        };
        *next = rank.saturating_add(1);
        self.block.count += 1;
        self.block.skipped = self.block.skipped.saturating_add(skipped);
        let most = self.block.steps.most();
        let (open, count) = self.open;
        if skipped == 0 && member == open && count < most {
            self.open = (member, count + 1);
            return true;
        }
        self.close();
        while skipped > 0 {
            let count = skipped.min(u64::from(most));
            self.block.steps.push(member, true, count as u32);
            skipped -= count;
        }
        self.open = (member, 1);
        true
    }

    fn close(&mut self) {
        let (member, count) = self.open;
        if count > 0 {
            self.block.steps.push(member, false, count);
        }
    }

    /// What was taken.
    pub(super) fn end(mut self) -> Block {
        self.close();
        self.block
    }
}

impl cache::Entry for Block {
    fn memory(&self) -> u64 {
        let steps: usize = self.steps.pieces.iter().map(Vec::capacity).sum();
        (steps * size_of::<u32>() + 2 * self.ranks.len() * size_of::<u64>()) as u64
    }
}

impl Block {
    /// About how many bytes one of `cells` cells takes.
    pub(super) fn estimate(cells: u64) -> u64 {
        cells.saturating_mul(size_of::<u32>() as u64)
    }

    /// How many cells it has.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Hands the pieces that the cells in `cells` are made of to `take`, in order.
    fn pieces(&self, members: &[Ranked], cells: &Range<u64>, take: &mut impl FnMut(Piece)) -> Result<()> {
        let cursor = |&rank: &u64| Cursor {
            rank,
            cell: 0,
            end: rank,
        };
        let mut cursors: Vec<Cursor> = self.ranks.iter().map(cursor).collect();
        let mut at = 0;
        for (member, skips, mut count) in self.steps.iter() {
            let (Some(cursor), Some(ranked)) = (cursors.get_mut(member), members.get(member)) else {
                return Err(none(at));
            };
            if skips {
                cursor.skip(count);
                continue;
            }
            if at >= cells.end {
                break;
            }
            // Those before what is wanted.
            let before = cells.start.saturating_sub(at).min(count);
            cursor.skip(before);
            at += before;
            count = (count - before).min(cells.end - at);
            while count > 0 {
                if cursor.rank >= cursor.end {
                    let found = ranked.cells(cursor.rank).ok_or_else(|| none(at))?;
                    cursor.cell = found.start;
                    cursor.end = cursor.rank.saturating_add(found.end - found.start);
                }
                let run = count.min(cursor.end - cursor.rank);
                take(Piece {
                    input: ranked.input.index,
                    first: cursor.cell,
                    count: run,
                });
                cursor.skip(run);
                at += run;
                count -= run;
            }
        }
        match at >= cells.end {
            true => Ok(()),
            false => Err(none(at)),
        }
    }
}

fn none(cell: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("cell {cell} is in no run"))
}

impl Part {
    /// How many cells it has.
    pub(super) fn count(&self) -> u64 {
        let (Part::Stored(_, cells) | Part::Merged(_, _, cells)) = self;
        cells.end.saturating_sub(cells.start)
    }

    /// The first and the last input that it may have cells of.
    pub(super) fn inputs(&self) -> Option<(usize, usize)> {
        match self {
            Part::Stored(input, _) => Some((input.index, input.index)),
            // In reading order.
            Part::Merged(members, _, _) => members
                .first()
                .zip(members.last())
                .map(|(first, last)| (first.input.index, last.input.index)),
        }
    }

    /// The same cells in any order, with few others between them, in as few pieces as may be; and how many
    /// pieces there are in order, about.
    pub(super) fn outline(&self, mut take: impl FnMut(Piece)) -> Result<u64> {
        let mut count = 0;
        if let Part::Merged(members, block, cells) = self
            && *cells == (0..block.count)
            && block.skipped <= block.count
        {
            let ends = block.ranks.iter().zip(&block.ends);
            for (ranked, (&first, &end)) in members.iter().zip(ends) {
                let mut rank = first;
                while rank < end {
                    let cells = ranked.cells(rank).ok_or_else(|| none(rank))?;
                    let run = (cells.end - cells.start).min(end - rank);
                    take(Piece {
                        input: ranked.input.index,
                        first: cells.start,
                        count: run,
                    });
                    rank = rank.saturating_add(run);
                }
            }
            let steps = block.steps.pieces.iter().map(|piece| piece.len() as u64);
            return Ok(steps.sum());
        }
        self.pieces(|piece| {
            count += 1;
            take(piece);
        })?;
        Ok(count)
    }

    /// Hands the pieces that it is made of to `take`, in order.
    pub(super) fn pieces(&self, mut take: impl FnMut(Piece)) -> Result<()> {
        match self {
            Part::Stored(input, ranks) => {
                for cells in input.cells(ranks.clone()) {
                    take(Piece {
                        input: input.index,
                        first: cells.start,
                        count: cells.end - cells.start,
                    });
                }
                Ok(())
            }
            Part::Merged(members, block, cells) => block.pieces(members, cells, &mut take),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_tell_whose_turn_it_was_and_what_was_skipped() {
        // So many members leave eleven bits for how many candidates a step is of.
        let members = 1 << 20;
        for members in [1, 2, 20, members] {
            let mut ranks = vec![7; members];
            let last = members as u32 - 1;
            let taken = (0..5000).map(|i| (last, 7 + i));
            let taken = taken.chain((0..10).map(|i| (0, 100_000 + 3 * i)));
            let taken: Vec<(u32, u64)> = taken.chain([(last, 200_000)]).collect();
            let mut writer = Writer::new(ranks.clone()).unwrap();
            assert!(taken.iter().all(|&(member, rank)| writer.take(member, rank)));
            assert!(!writer.take(last, 199_999), "it is behind");
            assert!(!writer.take(members as u32, 7), "there is none");
            let block = writer.end();
            assert_eq!(block.count(), taken.len() as u64);
            let mut found = Vec::new();
            for (member, skips, count) in block.steps.iter() {
                let start = ranks[member];
                ranks[member] += count;
                if !skips {
                    found.extend((start..ranks[member]).map(|rank| (member as u32, rank)));
                }
            }
            assert!(found == taken, "{members} members");
        }
        assert_eq!(Steps::new(1 << 31).most(), 0);
    }
}
