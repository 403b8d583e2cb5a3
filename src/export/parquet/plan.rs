//! How a file is divided: row groups, column chunks, and their positions.

use super::leaf::{self, Leaf};
use super::page::{Amount, data_header, dictionary_header};
use crate::error::{Error, Result};
use crate::format::field::{Form, Stored};
use crate::layout::file_len;
use crate::query::labels::AxisLabel;
use crate::query::table::{Column, Table};
use crate::query::{CellOrigin, Role, TileRun, View};
use crate::runtime::cache::Entry;
use crate::runtime::parallel;
use crate::runtime::tuning::Tuning;
use std::collections::HashMap;
use std::ops::Range;

/// A table of many rows has at least so many row groups, which programs read on several threads.
const SHARES: u64 = 16;

/// From so many row groups on, none is much larger than the others.
const MIN_EVEN: u64 = 8;

/// The most row groups: their ordinals are i16.
pub(super) const MAX_GROUPS: u64 = i16::MAX as u64;

/// Column chunks begin at multiples of a page of the kernel: reading one of them whole, as programs do, then
/// decodes nothing of its neighbours.
pub(super) const ALIGNMENT: u64 = 4096;

/// The most bytes that programs read at the end of a file of about `len` bytes, whose footer's length they do
/// not know: 64 KiB, DuckDB up to 256, DataFusion 512, and Polars, which maps them, 576. Small files have no
/// room for so much.
fn looked_at(len: u64) -> u64 {
    (len / 128).clamp(64 << 10, 576 << 10)
}

/// Gaps take at most this share of a file. Smaller files have none.
const MAX_GAPS: u64 = 32;

/// The magic bytes at both ends of the file.
pub(super) const MAGIC: &[u8; 4] = b"PAR1";

#[cfg(test)]
thread_local! {
    /// Calls of [`Plan::page`].
    pub(super) static PAGE_CALLS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// How far [`Plan::start_of`] is wrong for row group 1.
    pub(super) static WRONG_START: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A key and a value of the file's metadata.
pub(super) type Pair = (&'static str, String);

/// How a file is divided up.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Rows of the table.
    pub rows: u64,
    /// The first row of each row group, and the number of all rows.
    bounds: Vec<u64>,
    /// For each number of rows that a row group has, one that has as many, and how many have.
    kinds: Vec<(u64, u64)>,
    /// The index in `kinds` of each row group.
    kind: Vec<u32>,
    /// For each leaf, the amount and the bytes of its data page in row groups of each kind. None if they
    /// depend on the data.
    fixed: Vec<Option<Vec<(Amount, u64)>>>,
    /// The amount of each leaf in each row group; None if it does not depend on the data.
    var: Vec<Option<Vec<Amount>>>,
    /// Bytes of the dictionary page of each leaf with its header.
    dictionaries: Vec<Option<u64>>,
    /// What column chunks begin at multiples of: [`ALIGNMENT`], or 1 in a small file.
    alignment: u64,
    /// The start of each row group, and the end of the last.
    starts: Vec<u64>,
    /// Bytes of the column chunks of each row group.
    lens: Vec<u64>,
    /// The file's metadata.
    pub pairs: Vec<Pair>,
    /// Bytes of the footer: see [`measure`](super::footer::measure).
    pub footer: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ColumnChunk {
    /// Index of its leaf.
    pub leaf: usize,
    /// Its first byte in the file.
    pub start: u64,
    /// Bytes of its dictionary page.
    pub dictionary: Option<u64>,
    /// Bytes of its data page.
    pub page: u64,
    /// The size of the data page in entries and values.
    pub amount: Amount,
}

impl ColumnChunk {
    pub(super) fn len(&self) -> u64 {
        self.page + self.dictionary.unwrap_or(0)
    }

    /// The first byte of its data page.
    pub(super) fn data(&self) -> u64 {
        self.start + self.dictionary.unwrap_or(0)
    }
}

/// The leaves of a view's fields and dimension labels, as far as lengths of pages depend on them. Labels of
/// enumerations are far shorter than the limits here.
fn leaves(view: &View, covered: bool) -> Vec<Leaf> {
    let leaves = view.fields().iter().map(|field| {
        let mut leaf = Leaf::of(field.form(), String::new());
        leaf.nullable |= !covered && matches!(field.role, Role::Attribute(_));
        leaf
    });
    let labels = view.labels().iter().map(|AxisLabel { label, .. }| {
        let form = Form {
            datatype: label.datatype,
            cell_val_num: label.cell_val_num,
            // Some may be unwritten.
            nullable: true,
        };
        Leaf::of(form, String::new())
    });
    leaves.chain(labels).collect()
}

/// Rows that a row group of any view with these fields has at least, if it has many groups. Reads the schema
/// alone.
pub(super) fn least_rows_of_group(view: &View) -> u64 {
    let tuning = view.array().engine.tuning;
    (halved(&leaves(view, false), tuning.max_group_rows, tuning) / 2).max(1)
}

/// The most rows of a row group of a view of `rows` rows, without reading data: a 16th of the table within
/// bounds, in pages that are not too long. One that has to be a whole tile may have more.
pub(super) fn most_rows_of_group(view: &View, rows: u64) -> Result<u64> {
    let tuning = view.array().engine.tuning;
    let group = rows
        .div_ceil(SHARES)
        .clamp(tuning.min_group_rows, tuning.max_group_rows);
    Ok(halved(&leaves(view, view.is_covered()?), group, tuning))
}

/// Divides all rows into row groups of at most `most` rows, which are even, so that programs can share them,
/// and end where tiles end, so that their lengths are known from the metadata of tiles. Row groups end inside
/// of tiles only if tiles are so large that they could not be even otherwise. Returns the first row of each
/// row group, and the number of all rows.
pub(super) fn divide(runs: &[TileRun], most: u64) -> Vec<u64> {
    /// Up to so many sixteenths more row groups than are needed.
    const TRIES: u64 = 16;
    let mut rows = 0;
    let mut starts = Vec::with_capacity(runs.len());
    for run in runs {
        starts.push(rows);
        rows += run.cells;
    }
    if rows == 0 {
        return vec![0];
    }
    // The last end of a tile at or before a row.
    let tile_end = |row: u64| {
        let number = starts.partition_point(|start| *start <= row) - 1;
        row - (row - starts[number]) % runs[number].tile.max(1)
    };
    let even = |groups: u64| {
        (1..groups).map(move |i| (u128::from(rows) * u128::from(i) / u128::from(groups)) as u64)
    };
    let least = rows.div_ceil(most);
    for more in 0..=TRIES {
        let groups = least + least * more / TRIES;
        let mut bounds: Vec<u64> = std::iter::once(0)
            .chain(even(groups).map(tile_end))
            .chain([rows])
            .collect();
        bounds.dedup();
        let longest = bounds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let groups = bounds.len() as u64 - 1;
        // None has more than 1.3 of the mean.
        let is_even = u128::from(longest) * u128::from(groups) * 10 <= u128::from(rows) * 13;
        if longest <= most && (groups < MIN_EVEN || is_even) && groups <= MAX_GROUPS {
            return bounds;
        }
    }
    std::iter::once(0).chain(even(least)).chain([rows]).collect()
}

/// A row group of `group` rows halved until no page is too long of those whose length is known without data.
fn halved(leaves: &[Leaf], mut group: u64, tuning: &Tuning) -> u64 {
    let too_long = |rows| {
        leaves.iter().any(|leaf| {
            Amount::of(leaf, rows)
                .is_some_and(|amount| amount.body_len(leaf).max(amount.entries) > tuning.page_bytes)
        })
    };
    while group > 1 && too_long(group) {
        group /= 2;
    }
    group
}

/// The reason that a file of too many row groups is absent.
pub(super) fn too_many(rows: u64, group: u64) -> String {
    format!("{rows} rows in row groups of {group} are more than {MAX_GROUPS} row groups")
}

/// Bytes of a data page.
fn page_len(leaf: &Leaf, amount: Amount) -> u64 {
    let body = amount.body_len(leaf);
    let header = data_header(leaf, amount.entries, body).len() as u64;
    body.saturating_add(header)
}

impl Plan {
    /// Divides a table. Reads metadata, and offsets of var-sized cells, but no values. `LimitExceeded` if the
    /// numbers do not fit the format.
    pub(super) fn make(table: &Table, leaves: &[Leaf]) -> Result<Plan> {
        let rows = table.rows()?;
        let runs = table.view().tile_runs()?;
        let tuning = table.view().array().engine.tuning;
        let mut group = halved(leaves, most_rows_of_group(table.view(), rows)?, tuning);
        // The lengths of var-sized cells are metadata in whole tiles only.
        let is_var = leaves.iter().any(|leaf| Amount::of(leaf, 1).is_none());
        let tile = runs.iter().map(|run| run.tile).max();
        let most = halved(leaves, tuning.max_group_rows, tuning);
        if let Some(tile) = tile.filter(|tile| is_var && *tile <= most) {
            group = group.max(tile);
        }
        let mut dictionaries = Vec::new();
        for (leaf, column) in leaves.iter().zip(table.columns()) {
            let count = column.labels.as_ref().map_or(0, |labels| labels.count());
            dictionaries.push(match leaf.has_dictionary() {
                true => {
                    let body = leaf::dictionary(column)?.len() as u64;
                    let header = dictionary_header(count as u64, body).len() as u64;
                    Some(body.saturating_add(header))
                }
                false => None,
            });
        }
        let mut plan = Plan {
            rows,
            dictionaries,
            ..Plan::default()
        };
        loop {
            plan.set_bounds(divide(&runs, group));
            if plan.groups() > MAX_GROUPS {
                return Err(Error::limit(too_many(rows, group)));
            }
            plan.var = plan.measure(table, leaves)?;
            let longest = |(leaf, amounts): (&Leaf, &Option<Vec<Amount>>)| {
                let amounts = amounts.iter().flatten();
                let lengths = amounts.map(|amount| amount.body_len(leaf).max(amount.entries));
                lengths.max().unwrap_or(0)
            };
            let longest = leaves.iter().zip(&plan.var).map(longest).max().unwrap_or(0);
            if longest <= tuning.page_bytes || group == 1 && longest <= i32::MAX as u64 {
                break;
            }
            if group == 1 {
                return Err(Error::limit(format!(
                    "a row would take a page of {longest} bytes"
                )));
            }
            group /= 2;
        }
        plan.place(leaves);
        file_len(Some(plan.end()))?;
        Ok(plan)
    }

    /// A plan for tests: `amount` gives what depends on the data in as many rows. Dictionaries have 30 bytes.
    #[cfg(test)]
    pub(super) fn of(leaves: &[Leaf], rows: u64, group: u64, amount: impl Fn(u64) -> Amount) -> Plan {
        let mut plan = Plan {
            rows,
            dictionaries: leaves
                .iter()
                .map(|leaf| leaf.has_dictionary().then_some(30))
                .collect(),
            ..Plan::default()
        };
        plan.set_bounds((0..rows).step_by(group as usize).chain([rows]).collect());
        let groups = (0..plan.groups()).map(|number| plan.rows_of(number));
        let amounts: Vec<Amount> = groups.map(|rows| amount(rows.end - rows.start)).collect();
        plan.var = vec![Some(amounts); leaves.len()];
        plan.place(leaves);
        plan
    }

    fn set_bounds(&mut self, bounds: Vec<u64>) {
        let mut known: HashMap<u64, u32> = HashMap::new();
        (self.kinds, self.kind) = (Vec::new(), Vec::new());
        for (number, pair) in bounds.windows(2).enumerate() {
            let kind = *known.entry(pair[1] - pair[0]).or_insert_with(|| {
                self.kinds.push((number as u64, 0));
                self.kinds.len() as u32 - 1
            });
            self.kinds[kind as usize].1 += 1;
            self.kind.push(kind);
        }
        self.bounds = bounds;
    }

    /// Computes all positions, with gaps if the file is so large that they take little of it.
    fn place(&mut self, leaves: &[Leaf]) {
        self.set_starts(leaves, 1);
        let chunks = self.groups() * leaves.len() as u64;
        let gaps = (chunks + 1) * ALIGNMENT + looked_at(self.end());
        if gaps <= self.end() / MAX_GAPS {
            self.set_starts(leaves, ALIGNMENT);
        }
    }

    /// Computes all positions in one pass over the leaves for each number of rows, and over row groups only
    /// for leaves that depend on the data: there may be a thousand of each.
    fn set_starts(&mut self, leaves: &[Leaf], alignment: u64) {
        self.alignment = alignment;
        let fixed = leaves.iter().map(|leaf| {
            let kinds = self.kinds.iter().map(|(number, _)| {
                let rows = self.rows_of(*number);
                let amount = Amount::of(leaf, rows.end - rows.start)?;
                Some((amount, page_len(leaf, amount)))
            });
            kinds
                .collect::<Option<Vec<_>>>()
                .filter(|_| Amount::of(leaf, 1).is_some())
        });
        self.fixed = fixed.collect();
        let (fixed, var): (Vec<_>, Vec<_>) = leaves
            .iter()
            .enumerate()
            .partition(|(i, _)| self.fixed[*i].is_some());
        // Bytes of column chunks, without gaps and with them. A file of 2^63 bytes is refused, so these sums
        // may stop at 2^64.
        let chunks = |leaves: &[(usize, &Leaf)], number| {
            leaves.iter().fold((0u64, 0u64), |(len, placed), (i, leaf)| {
                let page = self.page(*i, leaf, number).1;
                let chunk = page.saturating_add(self.dictionary(*i).unwrap_or(0));
                (
                    len.saturating_add(chunk),
                    placed.saturating_add(self.aligned(chunk)),
                )
            })
        };
        let kinds: Vec<_> = self
            .kinds
            .iter()
            .map(|(number, _)| chunks(&fixed, *number))
            .collect();
        let mut end = self.aligned(MAGIC.len() as u64);
        let (mut starts, mut lens) = (vec![end], Vec::new());
        for number in 0..self.groups() {
            let fixed = kinds[self.kind[number as usize] as usize];
            let var = chunks(&var, number);
            lens.push(fixed.0.saturating_add(var.0));
            end = end.saturating_add(fixed.1).saturating_add(var.1);
            starts.push(end);
        }
        (self.starts, self.lens) = (starts, lens);
    }

    /// The first position at or after `end` where a column chunk may begin.
    pub(super) fn aligned(&self, end: u64) -> u64 {
        end.checked_next_multiple_of(self.alignment).unwrap_or(u64::MAX)
    }

    /// Bytes between the last row group and the footer: so many that a look at the end of the file, and the
    /// kernel's page before it, meet no values.
    pub(super) fn gap(&self) -> u64 {
        match self.alignment {
            1 => 0,
            _ => {
                let len = self.end() + ALIGNMENT + looked_at(u64::MAX).max(self.footer);
                (looked_at(len) + ALIGNMENT).saturating_sub(self.footer + 8)
            }
        }
    }

    /// The amount of a leaf in a row group, and the bytes of its data page.
    pub(super) fn page(&self, i: usize, leaf: &Leaf, number: u64) -> (Amount, u64) {
        #[cfg(test)]
        PAGE_CALLS.set(PAGE_CALLS.get() + 1);
        match (&self.fixed[i], &self.var[i]) {
            (Some(kinds), _) => kinds[self.kind[number as usize] as usize],
            (None, Some(amounts)) => {
                let amount = amounts[number as usize];
                (amount, page_len(leaf, amount))
            }
            (None, None) => unreachable!("leaf {i} was not measured"),
        }
    }

    /// Bytes of the dictionary page of a leaf; None if it has none.
    pub(super) fn dictionary(&self, i: usize) -> Option<u64> {
        self.dictionaries[i]
    }

    /// Representative row groups of a leaf, each with the number of row groups in which the leaf has the same
    /// amount.
    pub(super) fn kinds(&self, i: usize) -> Vec<(u64, u64)> {
        match self.fixed[i] {
            Some(_) => self.kinds.clone(),
            None => (0..self.groups()).map(|number| (number, 1)).collect(),
        }
    }

    /// The number of pages, with dictionaries, that begin at or after byte `position` of the file.
    pub(super) fn pages_from(&self, leaves: &[Leaf], position: u64) -> u64 {
        if position >= self.end() {
            return 0;
        }
        let number = self.group_at(position.max(self.starts[0]));
        let here = self.chunks(leaves, number).map(|chunk| {
            let dictionary = chunk.dictionary.is_some() && chunk.start >= position;
            u64::from(dictionary) + u64::from(chunk.data() >= position)
        });
        let each = leaves.len() + self.dictionaries.iter().flatten().count();
        let later = self.groups() - (number + 1);
        here.sum::<u64>() + later * each as u64
    }

    /// The amount of each leaf of var-sized cells in each row group.
    fn measure(&self, table: &Table, leaves: &[Leaf]) -> Result<Vec<Option<Vec<Amount>>>> {
        let mut origins: Option<Vec<Option<CellOrigin>>> = None;
        let mut var = Vec::new();
        for (leaf, column) in leaves.iter().zip(table.columns()) {
            if Amount::of(leaf, 1).is_some() {
                var.push(None);
                continue;
            }
            if leaf.bits().is_none() && !column.is_label() {
                let origins = match &mut origins {
                    Some(origins) => &*origins,
                    None => {
                        let runs: Vec<_> = (0..self.groups()).map(|number| self.rows_of(number)).collect();
                        origins.insert(table.view().origins(&runs)?)
                    }
                };
                if let Some(amounts) = self.of_tiles(column, origins)? {
                    var.push(Some(amounts));
                    continue;
                }
            }
            let step = table.view().array().engine.tuning.page_values;
            let measure = |number| Amount::measure(leaf, column, self.rows_of(number), step);
            var.push(Some(parallel::each(self.groups(), measure)?));
        }
        Ok(var)
    }

    /// The amount of text in each row group, from the metadata of tiles. None if row groups are not whole
    /// tiles.
    fn of_tiles(&self, column: &Column, origins: &[Option<CellOrigin>]) -> Result<Option<Vec<Amount>>> {
        let mut amounts = Vec::new();
        for number in 0..self.groups() {
            let origin = &origins[number as usize];
            let Some(origin) = origin.as_ref().filter(|origin| origin.unwritten == Some(0)) else {
                return Ok(None);
            };
            let mut values = 0u64;
            for part in &origin.parts {
                let info = part.fragment.open()?;
                let Stored::Same(field) = info.stored_as(&column.stored) else {
                    return Ok(None);
                };
                if !part.whole {
                    return Ok(None);
                }
                let (sums, list) = info.var_sizes(field.slot, false)?;
                let before = |tile| sums.before(&*list, info.geometry.tile_num, tile);
                for tiles in &part.tiles {
                    let bytes = before(tiles.end)?.checked_sub(before(tiles.start)?);
                    let bytes = bytes.ok_or_else(|| Error::corrupt("the sizes of tiles have changed"))?;
                    // A file of 2^63 bytes is refused.
                    values = values.saturating_add(bytes);
                }
            }
            let rows = self.rows_of(number);
            amounts.push(Amount {
                entries: rows.end - rows.start,
                values,
            });
        }
        Ok(Some(amounts))
    }

    pub(super) fn groups(&self) -> u64 {
        self.bounds.len() as u64 - 1
    }

    /// The rows of a row group.
    pub(super) fn rows_of(&self, number: u64) -> Range<u64> {
        self.bounds[number as usize]..self.bounds[number as usize + 1]
    }

    /// The first byte of a row group.
    pub(super) fn start_of(&self, number: u64) -> u64 {
        #[cfg(test)]
        if number == 1 {
            return self.starts[1] + WRONG_START.get();
        }
        self.starts[number as usize]
    }

    /// Bytes of the column chunks of a row group, without the gaps between them.
    pub(super) fn len_of(&self, number: u64) -> u64 {
        self.lens[number as usize]
    }

    /// The end of the last row group.
    pub(super) fn end(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// The row group of byte `position`.
    pub(super) fn group_at(&self, position: u64) -> u64 {
        let after = self.starts.partition_point(|start| *start <= position);
        after as u64 - 1
    }

    /// The column chunks of a row group, which end, but for a gap, where the next row group begins.
    pub(super) fn checked_chunks(&self, leaves: &[Leaf], number: u64) -> Result<Vec<ColumnChunk>> {
        let chunks: Vec<ColumnChunk> = self.chunks(leaves, number).collect();
        let end = chunks.last().map(|chunk| self.aligned(chunk.start + chunk.len()));
        let next = self.start_of(number + 1);
        match end == Some(next) {
            true => Ok(chunks),
            false => Err(Error::internal(format!(
                "row group {number} ends at byte {end:?}, and the next begins at byte {next}"
            ))),
        }
    }

    /// The column chunks of a row group.
    pub(super) fn chunks<'a>(
        &'a self,
        leaves: &'a [Leaf],
        number: u64,
    ) -> impl Iterator<Item = ColumnChunk> + 'a {
        let mut start = self.start_of(number);
        leaves.iter().enumerate().map(move |(i, leaf)| {
            let (amount, page) = self.page(i, leaf, number);
            let chunk = ColumnChunk {
                leaf: i,
                start,
                dictionary: self.dictionary(i),
                page,
                amount,
            };
            start = self.aligned(start + chunk.len());
            chunk
        })
    }
}

impl Entry for Plan {
    fn memory(&self) -> u64 {
        let var: u64 = self.var.iter().flatten().map(Entry::memory).sum();
        let pairs = self.pairs.iter().map(|(_, value)| value.len() as u64);
        let fixed: u64 = self.fixed.iter().flatten().map(Entry::memory).sum();
        let groups = self.starts.memory() + self.lens.memory() + self.bounds.memory() + self.kind.memory();
        var + groups + fixed + self.kinds.memory() + pairs.sum::<u64>()
    }
}
