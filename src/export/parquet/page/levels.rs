//! Repetition and definition levels: which entries begin a row, and which are null.

use super::super::bits::Bits;
use super::super::leaf::Shape;
use super::{Page, check_all};
use crate::error::Result;
use std::ops::Range;

/// The two levels of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Repetition,
    Definition,
}

impl Page<'_> {
    /// Appends bytes of packed levels.
    pub(super) fn levels(&self, range: Range<u64>, bits: u64, level: Level, out: &mut Vec<u8>) -> Result<()> {
        let eights = range.start / bits..range.end.div_ceil(bits);
        let entries = eights.start * 8..eights.end * 8;
        let mut bytes = Vec::new();
        let mut packed = Bits::new(&mut bytes);
        let last = entries.end.min(self.amount.entries);
        let take = |level: u8| packed.push(u64::from(level), bits);
        match (self.leaf.shape, level) {
            (Shape::Any, _) => self.list_levels(entries.start..last, level, take)?,
            (_, Level::Repetition) => {
                let count = self.values_a_row();
                let levels = (entries.start..last).map(|entry| u8::from(entry % count != 0));
                levels.for_each(take);
            }
            (_, Level::Definition) => self.definitions(entries.start..last, take)?,
        }
        packed.finish();
        bytes.resize(((eights.end - eights.start) * bits) as usize, 0);
        let skip = (range.start - eights.start * bits) as usize;
        let wanted = (range.end - range.start) as usize;
        out.extend_from_slice(&bytes[skip..skip + wanted]);
        Ok(())
    }

    /// Calls `take` with the definition levels of entries, if all rows have equally many.
    fn definitions(&self, entries: Range<u64>, mut take: impl FnMut(u8)) -> Result<()> {
        let most = self.leaf.most_definition();
        let mut entry = entries.start;
        while entry < entries.end {
            let end = (entry + self.engine.tuning.page_values).min(entries.end);
            self.presence(entry..end, |present| take(most - u8::from(!present)))?;
            entry = end;
        }
        Ok(())
    }

    /// Calls `take` with the levels of entries of LISTs of any length.
    fn list_levels(&self, entries: Range<u64>, level: Level, mut take: impl FnMut(u8)) -> Result<()> {
        let most = self.leaf.most_definition();
        let empty = u8::from(self.leaf.outer_optional());
        let index = self.index()?;
        let block = index.partition_point(|place| place.entries <= entries.start);
        // The first entry is 0, so at least one is not above.
        let block = block - 1;
        let mut at = index[block].entries;
        for rows in self.blocks(block) {
            for (elements, valid) in self.cells(rows)? {
                if at >= entries.end {
                    return Ok(());
                }
                let count = elements.end - elements.start;
                if !valid || count == 0 {
                    if at >= entries.start {
                        take(match level {
                            Level::Definition if valid => empty,
                            _ => 0,
                        });
                    }
                    at += 1;
                    continue;
                }
                let from = entries.start.saturating_sub(at).min(count);
                let to = entries.end.saturating_sub(at).min(count);
                match level {
                    Level::Repetition => (from..to).for_each(|i| take(u8::from(i > 0))),
                    Level::Definition if self.leaf.null_values => {
                        let wanted = elements.start + from..elements.start + to;
                        self.stream(wanted, |value| {
                            take(most - u8::from(value.is_none()));
                        })?;
                    }
                    Level::Definition => (from..to).for_each(|_| take(most)),
                }
                at += count;
            }
        }
        check_all(at, entries.end)
    }
}
