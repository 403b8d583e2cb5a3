//! `table.parquet`.
//!
//! ```text
//! PAR1, row groups, footer (FileMetaData in Thrift's compact protocol), its length as u32, PAR1
//! ```
//!
//! A row group has a column chunk for each [leaf](leaf); a column chunk has one [data page](page) of version
//! 1, after a dictionary page if the field is enumerated and its labels are text. Nothing is compressed. All
//! positions follow from the number of cells ([`plan`]), and for var-sized cells from their offsets: a page
//! is padded with zeros to its size without nulls, and the [footer](footer) to its size with the longest
//! [statistics](statistics). Readers take as many values as the levels say. In large files there are gaps:
//! column chunks begin at multiples of 4 KiB, and the footer lies so far behind the last of them that
//! programs, who look at the last 64 to 576 KiB first, meet no values.
//!
#![doc = include_str!("example.md")]

mod arrow;
mod bits;
mod footer;
mod geo;
mod leaf;
mod page;
mod pandas;
mod plan;
mod statistics;
#[cfg(test)]
mod tests;
mod thrift;

use crate::bytes::{Bytes, Keep, Output, Zeros};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::export::grid::Attributes;
use crate::export::metadata::Metadata;
use crate::format::datatype::CellValNum;
use crate::format::range::Range as Bounds;
use crate::format::scalar::Scalar;
use crate::layout::FileLayout;
use crate::query::table::{Column, Table};
use crate::query::{Field, Role, View};
use crate::runtime::cache::CacheKey;
use crate::runtime::{ahead, parallel};
use arrow::Dictionary;
use leaf::{Leaf, Logical};
use page::Page;
use plan::{MAGIC, Pair, Plan};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Why there is no `table.parquet`; None if there is one. Reads only metadata, unless there are very many
/// cells.
pub fn absent(view: &View) -> Result<Option<String>> {
    if view.has_at_most(plan::least_rows_of_group(view) * plan::MAX_GROUPS)? {
        return Ok(None);
    }
    let rows = match view.count() {
        Err(error) if error.kind() == ErrorKind::LimitExceeded => {
            return Ok(Some(error.message().to_owned()));
        }
        rows => rows?,
    };
    let group = plan::most_rows_of_group(view, rows)?;
    Ok((rows.div_ceil(group) > plan::MAX_GROUPS).then(|| plan::too_many(rows, group)))
}

/// Whether listings show it: not if there is none, or if very many cells or offsets would have to be read for
/// its length.
pub fn is_listed(view: &View) -> Result<bool> {
    const MAX_LISTED: u64 = 1 << 26;
    let var = |field: &Field| field.cell_val_num == CellValNum::Var;
    let mut known = view.is_dense() && !view.fields().iter().any(var);
    // The length of a dimension's labels takes their offsets, not those of all cells.
    for label in view.labels().iter().map(|label| &label.label) {
        if known && label.cell_val_num == CellValNum::Var {
            known = view.shape()?[label.dimension_index as usize] <= MAX_LISTED;
        }
    }
    Ok((known || view.has_at_most(MAX_LISTED)?) && absent(view)?.is_none())
}

/// The file. Its length follows from metadata, or for var-sized cells from their offsets, which are read once
/// for each state of the view.
pub fn layout(view: &Arc<View>) -> Result<FileLayout> {
    let table = Table::new(view)?;
    let metadata = Metadata::or_none(view)?;
    let leaves = leaves(&table, &metadata)?;
    let (array, state) = (view.array(), metadata.state(table.state(view)));
    let object = |part| array.engine.number(&("table.parquet", &array.path, state, part));
    let key = CacheKey::of(object(usize::MAX));
    let plan = array.engine.cache.derive(key, 4096, Keep::Staying, || {
        let mut plan = Plan::make(&table, &leaves)?;
        plan.pairs = pairs(&table, &leaves, &metadata);
        footer::measure(&leaves, plan)
    })?;
    let objects = (0..leaves.len()).map(object).collect();
    let windows = object(usize::MAX - 1);
    let file = Arc::new(File {
        footer: OnceLock::new(),
        key,
        dictionaries: leaves.iter().map(|_| OnceLock::new()).collect(),
        table,
        leaves,
        plan,
        objects,
        windows,
        reader: AtomicU64::new(0),
        ahead: AtomicU64::new(0),
    });
    let mut start = MAGIC.to_vec();
    start.resize(file.plan.start_of(0) as usize, 0);
    let gap = Zeros(file.plan.gap());
    let mut end = Vec::with_capacity(8);
    end.extend_from_slice(&(file.plan.footer as u32).to_le_bytes());
    end.extend_from_slice(MAGIC);
    let layout = FileLayout::new(
        state,
        vec![
            Box::new(start),
            Box::new(Groups(file.clone())),
            Box::new(gap),
            Box::new(Footer(file)),
            Box::new(end),
        ],
    )?;
    Ok(layout.read_in_parts())
}

/// The leaves of a table, one per column.
fn leaves(table: &Table, metadata: &Metadata) -> Result<Vec<Leaf>> {
    let mut names: HashSet<String> = HashSet::new();
    let region = table.view().region()?;
    let geometries: HashSet<usize> = metadata
        .geometry
        .iter()
        .flat_map(|of| &of.fields)
        .copied()
        .collect();
    let mut leaves = Vec::new();
    for column in table.columns() {
        // Parquet's names are UTF-8.
        let mut name = String::from_utf8_lossy(&column.name).into_owned();
        while !names.insert(name.clone()) {
            name.push('_');
        }
        let bounds = match column.stored.role {
            Role::Dimension(i) => region.as_ref().and_then(|region| region.get(i)),
            Role::Attribute(_) => None,
        };
        let mut leaf = Leaf::new(column, name, bounds);
        if geometries.contains(&column.field) {
            leaf.hold_geometries();
        }
        if let Some(pandas) = &metadata.pandas {
            if pandas.booleans.contains(&column.field) {
                leaf.hold_booleans();
            }
            if pandas.signed.contains(&column.field) && fits_signed(table.view(), column, bounds)? {
                leaf.sign();
            }
        }
        leaves.push(leaf);
    }
    Ok(leaves)
}

/// Whether all coordinates of a dimension of UINT64 are numbers of INT64: by its bounds in a dense view, by
/// the boxes of fragments in a sparse one.
fn fits_signed(view: &View, column: &Column, bounds: Option<&Bounds>) -> Result<bool> {
    let fits = |range: &Bounds| {
        let highest = Scalar::read(column.stored.datatype, &range.hi);
        highest.is_some_and(|highest| highest.integer().is_some_and(|n| n <= i64::MAX.into()))
    };
    let Role::Dimension(dimension) = column.stored.role else {
        return Ok(false);
    };
    if let Some(bounds) = bounds {
        return Ok(fits(bounds));
    }
    for fragment in view.snapshot().fragment_list() {
        let outline = fragment.outline()?;
        if !outline.domain.iter().all(|domain| fits(&domain[dimension])) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The file's metadata: what pandas, GeoParquet and Arrow have of it, each where there is something to say.
fn pairs(table: &Table, leaves: &[Leaf], metadata: &Metadata) -> Vec<Pair> {
    let mut pairs = Vec::new();
    if let Some(pandas) = &metadata.pandas {
        pairs.push(("pandas", pandas::metadata(table, leaves, pandas)));
    }
    let of_part = table.view().subarray().is_some();
    if let Some(geo) = metadata
        .geometry
        .as_ref()
        .and_then(|of| geo::metadata(table, leaves, of, of_part))
    {
        pairs.push(("geo", geo));
    }
    let dictionaries = table
        .columns()
        .iter()
        .zip(leaves)
        .map(|(column, leaf)| dictionary(column, leaf));
    let dictionaries: Vec<Option<Dictionary>> = dictionaries.collect();
    let has_attributes = metadata.fields.iter().any(|attributes| !attributes.is_empty());
    if has_attributes || dictionaries.iter().any(Option::is_some) {
        let none = Attributes::new();
        let attributes = table.columns().iter().map(|column| match column.is_label() {
            true => &none,
            false => &metadata.fields[column.field],
        });
        let arrow = arrow::schema(leaves, attributes.zip(dictionaries), &pairs);
        pairs.push(("ARROW:schema", arrow));
    }
    pairs
}

/// The dictionary of an enumerated column of text. None if two labels are the same: readers would take them
/// for one, and count the others anew.
fn dictionary(column: &Column, leaf: &Leaf) -> Option<Dictionary> {
    let labels = column
        .labels
        .as_ref()
        .filter(|_| leaf.has_dictionary() && leaf.logical == Logical::String)?;
    let mut seen = HashSet::new();
    let unique = leaf::labels(labels).all(|label| seen.insert(label));
    unique.then_some(Dictionary {
        ordered: labels.ordered,
    })
}

/// The most bytes of a column chunk in a store that are read in one step.
const PIECE: u64 = 128 << 10;

/// What the parts of an open file share.
struct File {
    table: Table,
    leaves: Vec<Leaf>,
    plan: Arc<Plan>,
    /// The number of each leaf in the cache.
    objects: Vec<u64>,
    /// The number of the windows in the cache.
    windows: u64,
    /// The last window that a reader wanted, and the last that is made ahead.
    reader: AtomicU64,
    ahead: AtomicU64,
    dictionaries: Vec<OnceLock<Vec<u8>>>,
    footer: OnceLock<Arc<Vec<u8>>>,
    /// The cache's key of the plan, and of the footer.
    key: CacheKey,
}

struct Groups(Arc<File>);

struct Footer(Arc<File>);

impl Bytes for Groups {
    fn len(&self) -> u64 {
        self.0.plan.end() - self.0.plan.start_of(0)
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let start = self.0.plan.start_of(0);
        let range = range.start + start..range.end + start;
        match self.0.has_windows(&range) {
            true => self.0.read_windows(range, out),
            false => self.0.read_groups(range, out),
        }
    }
}

impl File {
    fn engine(&self) -> &Engine {
        &self.table.view().array().engine
    }

    /// Whether it is read by windows: for somebody who goes through a file on a disk by small reads, and
    /// waits for each, as the kernel does not read ahead. Over a store the storage does, and a small cache
    /// would not keep a window until all of it was read.
    fn has_windows(&self, range: &Range<u64>) -> bool {
        /// So many windows take a small share of the cache.
        const MANY: u64 = 64;
        let (engine, window) = (self.engine(), self.engine().tuning.table_window_bytes);
        ahead::is_through()
            && !engine.storage.is_remote()
            && range.end - range.start <= 2 * window
            && engine.cache.capacity() >= MANY * window
    }

    /// Appends the bytes in `range` of the file, which must be in row groups, from windows. While the reader
    /// takes one, helping threads make the next ones.
    fn read_windows(self: &Arc<Self>, range: Range<u64>, out: &mut Output) -> Result<()> {
        let size = self.engine().tuning.table_window_bytes;
        for number in range.start / size..range.end.div_ceil(size) {
            self.make_ahead(number);
            let bytes = self.bytes_of_window(number);
            let wanted = range.start.max(bytes.start)..range.end.min(bytes.end);
            match self.window(number) {
                Ok(window) => {
                    let start = (wanted.start - bytes.start) as usize;
                    out.share(window, start..(wanted.end - bytes.start) as usize)?;
                }
                // What cannot be read may lie beside what is wanted.
                Err(_) => self.read_groups(wanted, out)?,
            }
        }
        Ok(())
    }

    /// Lets helping threads make the windows behind `number`, which the reader wants now.
    fn make_ahead(self: &Arc<Self>, number: u64) {
        if self.reader.fetch_max(number, Ordering::Relaxed) < number {
            let file = self.clone();
            parallel::aside(move || {
                while let Some(next) = file.next_ahead() {
                    // Whoever wants it meets the error again.
                    drop(file.window(next));
                }
            });
        }
    }

    /// The next window to make ahead of the reader, if it is not too far away.
    fn next_ahead(&self) -> Option<u64> {
        /// They are a small share of the cache.
        const MOST: u64 = 16;
        let size = self.engine().tuning.table_window_bytes;
        let reader = self.reader.load(Ordering::Relaxed);
        let most = reader + (4 * parallel::threads()).min(MOST);
        let last = most.min(self.plan.end().div_ceil(size) - 1);
        let next = |made: u64| Some(made.max(reader) + 1).filter(|next| *next <= last);
        let before = self
            .ahead
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.ok().and_then(next)
    }

    fn bytes_of_window(&self, number: u64) -> Range<u64> {
        let size = self.engine().tuning.table_window_bytes;
        self.plan.start_of(0).max(number * size)..self.plan.end().min((number + 1) * size)
    }

    fn window(&self, number: u64) -> Result<Arc<Vec<u8>>> {
        let (cache, size) = (&self.engine().cache, self.engine().tuning.table_window_bytes);
        cache.derive(CacheKey::tile(self.windows, number), size, Keep::Passing, || {
            let bytes = self.bytes_of_window(number);
            let mut made = Output::keeping(Keep::Passing);
            // Room for the rest of a value at its end, too.
            made.write(|out| out.reserve((bytes.end - bytes.start) as usize + 1024));
            self.read_groups(bytes, &mut made)?;
            Ok(Vec::from(made))
        })
    }

    /// Appends the bytes in `range` of the file, which must be in row groups.
    fn read_groups(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let mut number = self.plan.group_at(range.start);
        while number < self.plan.groups() && self.plan.start_of(number) < range.end {
            for chunk in &self.plan.checked_chunks(&self.leaves, number)? {
                let end = chunk.start + chunk.len();
                let next = self.plan.aligned(end);
                let wanted = range.start.max(chunk.start)..range.end.min(end);
                if !wanted.is_empty() {
                    self.read_chunk(number, chunk, wanted, out)?;
                }
                let gap = range.start.max(end)..range.end.min(next);
                if !gap.is_empty() {
                    Zeros(next - end).read(gap.start - end..gap.end - end, out)?;
                }
            }
            number += 1;
        }
        Ok(())
    }

    fn read_chunk(
        &self,
        number: u64,
        chunk: &plan::ColumnChunk,
        range: Range<u64>,
        out: &mut Output,
    ) -> Result<()> {
        let data = chunk.data();
        if range.start < data {
            let page = self.dictionary(chunk.leaf)?;
            let from = (range.start - chunk.start) as usize;
            let to = (range.end.min(data) - chunk.start) as usize;
            out.append(page.get(from..to).ok_or_else(|| {
                Error::corrupt("the enumeration has changed since the file was opened").at(0)
            })?);
        }
        if range.end <= data {
            return Ok(());
        }
        let page = Page {
            leaf: &self.leaves[chunk.leaf],
            column: &self.table.columns()[chunk.leaf],
            rows: self.plan.rows_of(number),
            amount: chunk.amount,
            engine: self.engine(),
            key: CacheKey::tile(self.objects[chunk.leaf], number),
            keep: out.keep,
        };
        let wanted = range.start.max(data) - data..range.end - data;
        if !page.engine.storage.is_remote() || ahead::is_through() {
            return page.read(wanted, out);
        }
        // In pieces: tiles behind the first are fetched together.
        let rows = page.rows.end - page.rows.start;
        for start in wanted.clone().step_by(PIECE as usize) {
            let piece = start..wanted.end.min(start + PIECE);
            ahead::reading(rows, chunk.page, piece.end, || page.read(piece, out))?;
        }
        Ok(())
    }

    /// The dictionary page of a leaf with its header.
    fn dictionary(&self, number: usize) -> Result<&[u8]> {
        let page = &self.dictionaries[number];
        if let Some(page) = page.get() {
            return Ok(page);
        }
        let column = &self.table.columns()[number];
        let labels = column.labels.as_ref().expect("a dictionary is of labels");
        let body = leaf::dictionary(column)?;
        let mut bytes = page::dictionary_header(labels.count() as u64, body.len() as u64);
        bytes.extend_from_slice(&body);
        Ok(page.get_or_init(|| bytes))
    }

    /// The footer, made once.
    fn footer(&self) -> Result<&Arc<Vec<u8>>> {
        if let Some(footer) = self.footer.get() {
            return Ok(footer);
        }
        let engine = self.engine();
        let footer = engine
            .cache
            .derive(self.key, self.plan.footer, Keep::Staying, || {
                let rows = (0..self.plan.groups()).map(|group| self.plan.rows_of(group));
                let rows: Vec<Range<u64>> = rows.collect();
                let all = statistics::TableStatistics::read(&self.table, &self.leaves, &rows)?;
                footer::render(&self.leaves, &self.plan, |leaf, group| all.get(leaf, group))
            })?;
        Ok(self.footer.get_or_init(|| footer))
    }
}

impl Bytes for Footer {
    fn len(&self) -> u64 {
        self.0.plan.footer
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let footer = self.0.footer()?;
        out.share(footer.clone(), range.start as usize..range.end as usize)
    }
}
