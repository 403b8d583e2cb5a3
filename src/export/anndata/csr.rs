//! A sparse matrix as CSR (compressed sparse row), made out of tiles when it is read.
//!
//! Three sequences of numbers: `data` has the values row by row, `indices` the column of each, ascending
//! within a row, and `indptr` where each row begins in both, and the end of the last.
//!
//! ```text
//!                  0  1  2  3
//!             0  [ .  5  .  7 ]        indptr   0 2 2 3
//!             1  [ .  .  .  . ]        indices  1 3 0
//!             2  [ 6  .  .  . ]        data     5 7 6
//! ```
//!
//! An array has its cells in another order: that of its space tiles, in each of which a row has a few. What
//! is made, each an entry of the cache, and when it is made:
//!
//! | | of what | made of |
//! |---|---|---|
//! | cells before each *band* | a band is the rows of one tile extent, or of about a thousand | metadata; the rows of tiles that cross the edge of a band. Of merged fragments, and where cells may be dropped: the counts of all bands |
//! | *runs* | cells of a tile that follow each other in one row, unless they are short | the rows of the tile |
//! | *counts* of rows | a u32 for each row of a band | the runs of the tiles of the band; their columns if cells may be dropped |
//! | *blocks* | whole rows of a band with up to 2^20 cells together; of a longer row, 2^20 columns | the runs that have them, sorted by counting |
//!
//! So `indptr` needs no values, and a few rows of a matrix need the tiles of their band. Where fragments have
//! to be merged, or cells are deleted, a view of the rows of a band does it: see
//! [`sparse`](crate::query). Otherwise the tiles of fragments are read as they are, in whatever order.

pub(super) mod source;
#[cfg(test)]
pub(super) mod tests;

use super::axis::{Axis, Finder};
use crate::bytes::{Bytes, Keep, Output};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::query::View;
use crate::runtime::cache::{CacheKey, Entry};
use crate::runtime::single_flight::Memo;
use source::{MatrixCells, Piece, is_matrix, scan};
use std::ops::Range;
use std::sync::Arc;

/// The attribute that has the values.
const VALUES: &[u8] = b"soma_data";

/// The most cells of a block, unless the cache is small.
const MAX_BLOCK: u64 = 1 << 20;

/// The least number of rows of a band, unless there are fewer, and the greatest if tiles have more.
const BAND_ROWS: Range<u64> = 1 << 10..1 << 13;

/// The rows of a matrix, divided by their joinids.
struct Bands {
    rows: Arc<Axis>,
    /// Joinids of a band.
    size: u64,
    /// The first place of each band that has rows, if some joinids are missing.
    firsts: Vec<u64>,
}

impl Bands {
    /// The bands of `rows`, with tiles of `extent` joinids.
    fn new(rows: Arc<Axis>, extent: u64) -> Bands {
        let size = match extent {
            0 => BAND_ROWS.start,
            _ => BAND_ROWS
                .start
                .next_multiple_of(extent)
                .clamp(BAND_ROWS.start, BAND_ROWS.end),
        };
        let mut firsts = Vec::new();
        if let Axis::Listed(joinids) = &*rows {
            let band = |joinid: i64| joinid.div_euclid(size as i64);
            let mut first = 0;
            while let Some(joinid) = joinids.get(first) {
                firsts.push(first as u64);
                first += joinids[first..].partition_point(|other| band(*other) == band(*joinid));
            }
        }
        Bands { rows, size, firsts }
    }

    fn count(&self) -> u64 {
        match &*self.rows {
            Axis::Whole(count) => count.div_ceil(self.size),
            Axis::Listed(_) => self.firsts.len() as u64,
        }
    }

    /// The band of the row at `place`.
    fn of(&self, place: u64) -> u64 {
        match &*self.rows {
            Axis::Whole(_) => place / self.size,
            Axis::Listed(_) => self.firsts.partition_point(|first| *first <= place) as u64 - 1,
        }
    }

    /// The places of its rows, at least one.
    fn places(&self, band: u64) -> Range<u64> {
        let end = self.rows.len();
        match &*self.rows {
            Axis::Whole(_) => band * self.size..end.min((band + 1) * self.size),
            Axis::Listed(_) => {
                let next = self.firsts.get(band as usize + 1);
                self.firsts[band as usize]..next.copied().unwrap_or(end)
            }
        }
    }
}

/// A sparse view with the dimensions `soma_dim_0` and `soma_dim_1` and the attribute `soma_data` as a matrix
/// in CSR. The row of a cell is the place of its first joinid among the rows, the column that of its second
/// one among the columns; cells whose joinids have no place are left out. Stored zeros stay.
pub struct Csr {
    view: Arc<View>,
    rows: Arc<Axis>,
    columns: Arc<Axis>,
    /// The field that has the values.
    values: usize,
    bands: Bands,
    /// The most cells of a block.
    max_block: u64,
    /// The cache's number of what is made of it.
    object: u64,
    plan: Memo<Arc<Plan>>,
}

/// What metadata tells of the cells.
struct Plan {
    source: MatrixCells,
    /// Whether all cells have a column.
    has_columns: bool,
    /// The number of cells in the matrix, if it is known.
    count: Option<u64>,
}

/// Cells of a matrix in order.
struct Block {
    /// The number of cells before.
    first: u64,
    /// The columns, little-endian.
    indices: Arc<Vec<u8>>,
    /// The values, little-endian.
    data: Arc<Vec<u8>>,
}

impl Entry for Block {
    fn memory(&self) -> u64 {
        self.indices.memory() + self.data.memory()
    }
}

/// Where a block lies: rows of a band, or a part of one row.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    /// Rows, counted in the band.
    rows: Range<usize>,
    /// The number of cells before, counted in the band.
    before: u64,
    cells: u64,
}

impl Extent {
    /// The block that has cell `cell` of a band, or the row that is longer than a block.
    fn of(counts: &[u32], cell: u64, max_block: u64) -> Extent {
        let (mut first, mut before, mut cells) = (0, 0, 0);
        for (row, count) in counts.iter().enumerate() {
            let count = u64::from(*count);
            if cells > 0 && cells + count > max_block {
                if cell < before + cells {
                    return Extent {
                        rows: first..row,
                        before,
                        cells,
                    };
                }
                (first, before, cells) = (row, before + cells, 0);
            }
            cells += count;
        }
        Extent {
            rows: first..counts.len(),
            before,
            cells,
        }
    }
}

/// Cells that follow each other in one row.
struct Run {
    row: u64,
    cells: Range<u32>,
}

impl Run {
    /// Its part of something that each cell has.
    fn part<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        &all[self.cells.start as usize..self.cells.end as usize]
    }
}

/// The runs of a piece, with the places of their rows.
struct Runs(Box<[Run]>);

impl Entry for Runs {
    fn memory(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }
}

/// The least mean length of runs that are kept. So they take two bytes a cell at most.
const MIN_RUN: u64 = 8;

/// What has been read of a piece from its first to its last cell in some rows.
#[derive(Default)]
struct Taken {
    /// The runs in these rows. Rows and cells are counted from the first.
    runs: Vec<Run>,
    columns: Output,
    values: Output,
}

impl Csr {
    /// Why a view has no such matrix; None if it has one. Reads the schema alone.
    pub fn absent(view: &View) -> Option<String> {
        let values = view
            .fields()
            .iter()
            .find(|field| field.is_attribute() && field.name == VALUES);
        let Some(values) = values else {
            return Some("it has no attribute `soma_data`".to_owned());
        };
        let number = matches!(
            values.datatype.kind(),
            Kind::Signed | Kind::Unsigned | Kind::Float | Kind::Bool
        );
        if view.is_dense() {
            Some("it is dense".to_owned())
        } else if !is_matrix(view.schema()) {
            Some("it does not have two dimensions of type INT64".to_owned())
        } else if !number {
            Some(format!("its values have type {}", values.datatype.name()))
        } else if values.cell_val_num != CellValNum::Fixed(1) {
            Some("a cell has several values".to_owned())
        } else if values.nullable {
            Some("its values may be null".to_owned())
        } else {
            None
        }
    }

    /// The matrix of `view`, all of an array. Reads nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the view has [no such matrix](Csr::absent); `LimitExceeded` for more than 2^63 rows
    /// or columns.
    pub fn new(view: Arc<View>, rows: Arc<Axis>, columns: Arc<Axis>) -> Result<Arc<Csr>> {
        Csr::with_blocks(view, rows, columns, MAX_BLOCK)
    }

    /// [`Csr::new`] with blocks of at most `max_block` cells.
    fn with_blocks(view: Arc<View>, rows: Arc<Axis>, columns: Arc<Axis>, max_block: u64) -> Result<Arc<Csr>> {
        if let Some(reason) = Csr::absent(&view) {
            return Err(Error::unsupported(reason));
        }
        if view.subarray().is_some() {
            return Err(Error::unsupported("a part of an array is no matrix"));
        }
        if rows.len().max(columns.len()) > i64::MAX as u64 {
            return Err(Error::limit("the matrix has more than 2^63 rows or columns"));
        }
        let values = view
            .fields()
            .iter()
            .position(|field| field.name == VALUES && field.is_attribute());
        let values = values.ok_or_else(|| Error::internal("the view has no values"))?;
        let extent = view.schema().dimensions[0].tile_extent.as_deref();
        // Extents may be as long as a domain of all integers.
        let extent = extent.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let engine = &view.array().engine;
        let cell = 8 + view.fields()[values].datatype.size() as u64;
        let room = engine.cache.capacity() / 8 / cell;
        Ok(Arc::new(Csr {
            object: engine.number(&(
                "csr",
                &view.array().path,
                view.state(),
                &rows,
                &columns,
                max_block,
            )),
            bands: Bands::new(rows.clone(), extent.unwrap_or(0)),
            max_block: max_block.min(room.max(1 << 12)),
            values,
            plan: Memo::default(),
            view,
            rows,
            columns,
        }))
    }

    /// The number of rows and of columns.
    pub fn shape(&self) -> [u64; 2] {
        [self.rows.len(), self.columns.len()]
    }

    /// The type of the values.
    pub fn datatype(&self) -> Datatype {
        self.view.fields()[self.values].datatype
    }

    /// The number of cells. Metadata tells it unless fragments are merged, or cells deleted or left out;
    /// otherwise the coordinates are read, once for each state.
    ///
    /// # Errors
    ///
    /// If what decides it cannot be read.
    pub fn nnz(&self) -> Result<u64> {
        let _waiting = self.engine().work.wait(self.object);
        match self.plan()?.count {
            Some(count) => Ok(count),
            None => Ok(total(&self.starts()?)),
        }
    }

    /// The type of the numbers of `indices` and `indptr`: INT32 if they fit, else INT64.
    ///
    /// # Errors
    ///
    /// Those of [`Csr::nnz`].
    pub fn index_datatype(&self) -> Result<Datatype> {
        const MOST: u64 = i32::MAX as u64;
        Ok(match self.nnz()? <= MOST && self.columns.len() <= MOST {
            true => Datatype::Int32,
            false => Datatype::Int64,
        })
    }

    /// Where each row begins, and the end of the last: numbers of [`Csr::index_datatype`], little-endian, one
    /// more than there are rows.
    ///
    /// # Errors
    ///
    /// Those of [`Csr::nnz`].
    pub fn indptr(self: &Arc<Self>) -> Result<Arc<dyn Bytes>> {
        self.open(Content::Indptr)
    }

    /// The column of each cell, ascending within a row: numbers of [`Csr::index_datatype`], little-endian.
    ///
    /// # Errors
    ///
    /// Those of [`Csr::nnz`].
    pub fn indices(self: &Arc<Self>) -> Result<Arc<dyn Bytes>> {
        self.open(Content::Indices)
    }

    /// The value of each cell, of [`Csr::datatype`], little-endian; BOOL as 0 or 1.
    ///
    /// # Errors
    ///
    /// Those of [`Csr::nnz`].
    pub fn data(self: &Arc<Self>) -> Result<Arc<dyn Bytes>> {
        self.open(Content::Data)
    }

    fn open(self: &Arc<Self>, content: Content) -> Result<Arc<dyn Bytes>> {
        let count = match content {
            Content::Indptr => self.rows.len() + 1,
            Content::Indices | Content::Data => self.nnz()?,
        };
        let size = match content {
            Content::Indptr | Content::Indices => self.index_datatype()?.size(),
            Content::Data => self.datatype().size(),
        } as u64;
        let len = count.checked_mul(size);
        Ok(Arc::new(Sequence {
            csr: self.clone(),
            content,
            size,
            len: len.ok_or_else(|| Error::limit("the matrix has more than 2^64 bytes"))?,
        }))
    }

    fn engine(&self) -> &Engine {
        &self.view.array().engine
    }

    /// Adds the array to an error.
    fn place(&self, error: Error) -> Error {
        error.in_file(self.engine().storage.display(&self.view.array().path))
    }

    /// The error if what was counted is not what is there.
    fn changed(&self) -> Error {
        self.place(Error::corrupt(
            "cells are not where the bounding boxes of tiles and earlier reads say",
        ))
    }

    fn plan(&self) -> Result<Arc<Plan>> {
        self.plan.get_or_make(|| {
            let source = MatrixCells::new(&self.view, self.values)?;
            let has_rows = source.is_within(0, |rows| self.rows.places(rows).is_some());
            let has_columns = source.is_within(1, |columns| self.columns.places(columns).is_some());
            let count = match has_rows && has_columns {
                true => Some(self.view.count()?),
                false => self.shape().contains(&0).then_some(0),
            };
            Ok(Arc::new(Plan {
                source,
                has_columns,
                count,
            }))
        })
    }

    /// See [`scan`].
    fn scan<T: Send>(
        &self,
        pieces: &[Piece],
        what: &'static str,
        read: impl Fn(&Piece) -> Result<T> + Sync,
        take: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        scan(&self.view, self.object, pieces, what, read, take)
    }

    /// The runs of a piece whose rows are in the matrix. Starts, counts and blocks need them in turn.
    fn runs(&self, piece: &Piece) -> Result<Arc<Runs>> {
        let (source, first) = piece.number();
        let (cache, key) = (&self.engine().cache, CacheKey::chunk(self.object, first, source));
        if let Some(runs) = cache.find(key) {
            return Ok(runs);
        }
        let rows = piece.rows()?;
        let (mut runs, mut row_of, mut end) = (Vec::new(), Finder::new(&self.rows), 0);
        for cells in joinids(&rows).chunk_by(|a, b| a == b) {
            let start = end;
            end += cells.len() as u32;
            let place = row_of.place(i64::from_le_bytes(cells[0]));
            runs.extend(place.map(|row| Run {
                row,
                cells: start..end,
            }));
        }
        let runs = Arc::new(Runs(runs.into()));
        if runs.0.len() as u64 * MIN_RUN <= piece.count() {
            cache.put(key, runs.clone());
        }
        Ok(runs)
    }

    /// The rows of a piece's runs, and how many cells each has in the matrix.
    fn count(&self, plan: &Plan, piece: &Piece) -> Result<Vec<(u64, u32)>> {
        let runs = self.runs(piece)?;
        if plan.has_columns {
            let counts = runs.0.iter().map(|run| (run.row, run.cells.len() as u32));
            return Ok(counts.collect());
        }
        let columns = piece.columns(&(0..piece.count() as usize))?;
        let mut column_of = self.column_of(0..self.columns.len());
        let counts = runs.0.iter().map(|run| {
            let own = run.part(joinids(&columns)).iter().filter_map(&mut column_of);
            (run.row, own.count() as u32)
        });
        Ok(counts.collect())
    }

    /// Finds the places of joinids among `columns`.
    fn column_of(&self, columns: Range<u64>) -> impl FnMut(&[u8; 8]) -> Option<u64> {
        let mut finder = Finder::new(&self.columns);
        move |joinid| {
            let place = finder.place(i64::from_le_bytes(*joinid));
            place.filter(|place| columns.contains(place))
        }
    }

    /// The number of cells before each band, and of all.
    fn starts(&self) -> Result<Arc<Vec<u64>>> {
        let size = (self.bands.count() + 1).saturating_mul(8);
        self.engine().cache.check_size(size)?;
        let make = || self.make_starts();
        self.engine()
            .cache
            .derive(CacheKey::of(self.object), size, Keep::Staying, make)
    }

    fn make_starts(&self) -> Result<Vec<u64>> {
        let plan = self.plan()?;
        let mut counts = vec![0u64; self.bands.count() as usize];
        // Of bands in which no tile lies as a whole, all rows are read here.
        let mut is_read = vec![true; counts.len()];
        let mut crossing = None;
        if plan.has_columns {
            crossing = plan.source.crossing(|cells, rows| {
                let band = self.rows.places(&rows).and_then(|places| {
                    let band = self.bands.of(*places.start());
                    (band == self.bands.of(*places.end())).then_some(band as usize)
                });
                let Some(band) = band else {
                    return false;
                };
                counts[band] += cells;
                is_read[band] = false;
                true
            })?;
        }
        match crossing {
            Some(pieces) => {
                // Then the counts of their rows stay, unless these are very many.
                let rows = self.rows.len();
                let is_small = rows.saturating_mul(4) <= self.engine().cache.capacity() / 8;
                let mut of_rows = vec![0; if is_small { rows as usize } else { 0 }];
                let _memory = self.engine().cache.borrow(4 * of_rows.len() as u64);
                let count = |piece: &Piece| self.count(&plan, piece);
                self.scan(&pieces, "counting the cells of rows", count, |found| {
                    for (place, count) in found {
                        counts[self.bands.of(place) as usize] += u64::from(count);
                        if is_small {
                            add_cells(&mut of_rows[place as usize], count)?;
                        }
                    }
                    Ok(())
                })?;
                for (band, _) in (0..).zip(&is_read).filter(|(_, is_read)| is_small && **is_read) {
                    let places = self.bands.places(band);
                    let own = &of_rows[places.start as usize..places.end as usize];
                    self.counts_by(band, || Ok(own.to_vec()))?;
                }
            }
            None => {
                let path = self.view.array().path.display().to_string();
                let (work, bands) = (&self.engine().work, counts.len() as u64);
                let job = work.start(self.object, path, "counting the cells of bands of rows", bands);
                for (band, cells) in (0..).zip(&mut counts) {
                    *cells = self.counts(band)?.iter().map(|count| u64::from(*count)).sum();
                    job.advance(1)?;
                }
            }
        }
        let mut starts = vec![0];
        for count in counts {
            let start = total(&starts).checked_add(count);
            starts.push(start.ok_or_else(|| Error::limit("the matrix has more than 2^64 cells"))?);
        }
        match plan.count {
            Some(count) if count != total(&starts) => Err(self.changed()),
            _ => Ok(starts),
        }
    }

    /// The number of cells of each row of a band.
    fn counts(&self, band: u64) -> Result<Arc<Vec<u32>>> {
        self.counts_by(band, || {
            let places = self.bands.places(band);
            let plan = self.plan()?;
            let joinids = self.rows.joinids(&places);
            let pieces = plan.source.pieces(&joinids, &joinids)?;
            let mut counts = vec![0u32; (places.end - places.start) as usize];
            let count = |piece: &Piece| self.count(&plan, piece);
            self.scan(&pieces, "counting the cells of rows", count, |found| {
                for (place, count) in found.into_iter().filter(|(place, _)| places.contains(place)) {
                    add_cells(&mut counts[(place - places.start) as usize], count)?;
                }
                Ok(())
            })?;
            Ok(counts)
        })
    }

    /// The counts of a band, which `make` makes unless they are in the cache.
    fn counts_by(&self, band: u64, make: impl FnOnce() -> Result<Vec<u32>>) -> Result<Arc<Vec<u32>>> {
        let places = self.bands.places(band);
        let key = CacheKey::tile(self.object, band);
        let size = (places.end - places.start) * 4;
        self.engine().cache.derive(key, size, Keep::Staying, make)
    }

    /// The block that has cell `cell`.
    fn block(&self, cell: u64) -> Result<Arc<Block>> {
        let starts = self.starts()?;
        let band = starts.partition_point(|start| *start <= cell) as u64 - 1;
        let counts = self.counts(band)?;
        let first = starts[band as usize];
        let sum: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        if sum != starts[band as usize + 1] - first {
            return Err(self.changed());
        }
        let mut extent = Extent::of(&counts, cell - first, self.max_block);
        let rows = self.bands.places(band).start + extent.rows.start as u64;
        let (mut columns, mut part) = (0..self.columns.len(), 0);
        let mut counts = &counts[extent.rows.clone()];
        let long;
        if extent.cells > self.max_block {
            let row = counts
                .iter()
                .position(|count| *count > 0)
                .expect("a row has the cells");
            let parts = self.parts(band, rows + row as u64)?;
            let mut left = cell - first - extent.before;
            let count = parts
                .iter()
                .position(|count| match left.checked_sub(u64::from(*count)) {
                    Some(more) => {
                        left = more;
                        false
                    }
                    None => true,
                });
            part = count.ok_or_else(|| self.changed())?;
            extent.before = cell - first - left;
            extent.cells = u64::from(parts[part]);
            columns.start = part as u64 * self.max_block;
            columns.end = columns.end.min(columns.start + self.max_block);
            extent.rows = extent.rows.start + row..extent.rows.start + row + 1;
            long = [parts[part]];
            counts = &long;
            part += 1;
        }
        let rows = self.bands.places(band).start + extent.rows.start as u64;
        let key = CacheKey::chunk(self.object, rows, part);
        let size = extent.cells * (8 + self.datatype().size() as u64);
        self.engine().cache.derive(key, size, Keep::Staying, || {
            let rows = rows..rows + counts.len() as u64;
            self.make_block(band, rows, columns, counts, first + extent.before)
        })
    }

    /// How many cells of a long row there are in each `max_block` columns.
    fn parts(&self, band: u64, row: u64) -> Result<Arc<Vec<u32>>> {
        let count = self.columns.len().div_ceil(self.max_block);
        self.engine().cache.check_size(count.saturating_mul(4))?;
        let key = CacheKey::chunk(self.object, row, usize::MAX);
        self.engine().cache.derive(key, count * 4, Keep::Staying, || {
            let plan = self.plan()?;
            let joinid = self.rows.joinid(row);
            let band = self.rows.joinids(&self.bands.places(band));
            let pieces = plan.source.pieces(&(joinid..=joinid), &band)?;
            let mut parts = vec![0u32; count as usize];
            let (rows, columns) = (row..row + 1, 0..self.columns.len());
            let read = |piece: &Piece| self.take(piece, &rows, &columns, false);
            let mut column_of = self.column_of(columns.clone());
            self.scan(&pieces, "counting the cells of a long row", read, |taken| {
                for run in &taken.runs {
                    for column in run
                        .part(joinids(&taken.columns))
                        .iter()
                        .filter_map(&mut column_of)
                    {
                        parts[(column / self.max_block) as usize] += 1;
                    }
                }
                Ok(())
            })?;
            match parts.iter().any(|count| u64::from(*count) > self.max_block) {
                true => Err(self.place(Error::corrupt(format!(
                    "some cells of row {joinid} are there twice"
                )))),
                false => Ok(parts),
            }
        })
    }

    /// Reads the columns, and the values if `values`, of a piece from its first to its last cell in `rows`.
    /// Nothing is taken if none of the cells is in `columns`.
    fn take(&self, piece: &Piece, rows: &Range<u64>, columns: &Range<u64>, values: bool) -> Result<Taken> {
        let runs = self.runs(piece)?;
        let mut own = runs.0.iter().filter(|run| rows.contains(&run.row)).peekable();
        let Some(first) = own.peek().map(|run| run.cells.start) else {
            return Ok(Taken::default());
        };
        let runs = own.map(|run| Run {
            row: run.row - rows.start,
            cells: run.cells.start - first..run.cells.end - first,
        });
        let mut taken = Taken {
            runs: runs.collect(),
            ..Taken::default()
        };
        let end = taken.runs.last().map_or(first, |run| first + run.cells.end);
        let span = first as usize..end as usize;
        taken.columns = piece.columns(&span)?;
        let mut column_of = self.column_of(columns.clone());
        let mut all = taken
            .runs
            .iter()
            .flat_map(|run| run.part(joinids(&taken.columns)));
        if !all.any(|joinid| column_of(joinid).is_some()) {
            return Ok(Taken::default());
        }
        if values {
            taken.values = piece.values(&span)?;
        }
        Ok(taken)
    }

    /// The cells in `rows` of a band and in `columns`, where row by row there are `counts`.
    fn make_block(
        &self,
        band: u64,
        rows: Range<u64>,
        columns: Range<u64>,
        counts: &[u32],
        first: u64,
    ) -> Result<Block> {
        let index = self.index_datatype()?.size();
        let plan = self.plan()?;
        let band = self.rows.joinids(&self.bands.places(band));
        let pieces = plan.source.pieces(&self.rows.joinids(&rows), &band)?;
        let cells: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let _memory = self
            .engine()
            .cache
            .borrow(cells * (index + self.datatype().size()) as u64);
        let mut sorter = Sorter::new(counts, index, self.datatype().size());
        let read = |piece: &Piece| self.take(piece, &rows, &columns, true);
        self.scan(&pieces, "sorting cells by row", read, |taken| {
            let column_of = self.column_of(columns.clone());
            let placed = match (index, self.datatype().size()) {
                (4, 1) => sorter.place::<4, 1>(&taken, column_of),
                (4, 2) => sorter.place::<4, 2>(&taken, column_of),
                (4, 4) => sorter.place::<4, 4>(&taken, column_of),
                (4, 8) => sorter.place::<4, 8>(&taken, column_of),
                (8, 1) => sorter.place::<8, 1>(&taken, column_of),
                (8, 2) => sorter.place::<8, 2>(&taken, column_of),
                (8, 4) => sorter.place::<8, 4>(&taken, column_of),
                (8, 8) => sorter.place::<8, 8>(&taken, column_of),
                _ => return Err(Error::internal("values of this size are no numbers")),
            };
            placed.ok_or_else(|| self.changed())
        })?;
        if !sorter.is_full() {
            return Err(self.changed());
        }
        if let Some((row, column)) = sorter.sort_columns() {
            let (row, column) = (self.rows.joinid(rows.start + row), self.columns.joinid(column));
            return Err(self.place(Error::corrupt(format!(
                "several cells have the coordinates ({row}, {column}), where a matrix has one value"
            ))));
        }
        if self.datatype().kind() == Kind::Bool {
            sorter
                .data
                .iter_mut()
                .for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(Block {
            first,
            indices: Arc::new(sorter.indices),
            data: Arc::new(sorter.data),
        })
    }

    /// The entries `entries` of `indptr`, of `size` bytes each.
    fn read_indptr(&self, entries: Range<u64>, size: usize) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity((entries.end - entries.start) as usize * size);
        let starts = self.starts()?;
        let mut row = entries.start;
        while row < entries.end.min(self.rows.len()) {
            let band = self.bands.of(row);
            let places = self.bands.places(band);
            let counts = self.counts(band)?;
            let (before, wanted) = counts.split_at((row - places.start) as usize);
            let mut start = starts[band as usize] + before.iter().map(|count| u64::from(*count)).sum::<u64>();
            for count in wanted.iter().take((entries.end - row) as usize) {
                out.extend_from_slice(&start.to_le_bytes()[..size]);
                start += u64::from(*count);
            }
            row = places.end;
        }
        if entries.end > self.rows.len() {
            out.extend_from_slice(&total(&starts).to_le_bytes()[..size]);
        }
        Ok(out)
    }
}

/// Adds cells to those of a row.
fn add_cells(row: &mut u32, count: u32) -> Result<()> {
    let more = row.checked_add(count);
    *row = more.ok_or_else(|| Error::limit("a row has 2^32 cells or more"))?;
    Ok(())
}

/// The last of ascending numbers, of which there is one at least.
fn total(starts: &[u64]) -> u64 {
    starts[starts.len() - 1]
}

/// Coordinates, as stored.
fn joinids(bytes: &[u8]) -> &[[u8; 8]] {
    bytes.as_chunks().0
}

/// Sorts cells by row by counting, and those of a row by column.
struct Sorter {
    /// Where the next cell of each row belongs, and where its cells end.
    rows: Vec<Range<usize>>,
    /// Where the cells of each row begin.
    firsts: Vec<usize>,
    /// Rows whose columns did not come in ascending order.
    unsorted: Vec<bool>,
    /// Bytes of an index.
    index: usize,
    indices: Vec<u8>,
    data: Vec<u8>,
}

impl Sorter {
    /// Room for so many cells of each row, with indices and values of these sizes in bytes.
    fn new(counts: &[u32], index: usize, value: usize) -> Sorter {
        let mut end = 0;
        let rows = counts.iter().map(|count| {
            let start = end;
            end += *count as usize;
            start..end
        });
        let rows: Vec<Range<usize>> = rows.collect();
        Sorter {
            firsts: rows.iter().map(|row| row.start).collect(),
            unsorted: vec![false; rows.len()],
            index,
            indices: vec![0; end * index],
            data: vec![0; end * value],
            rows,
        }
    }

    /// Puts the cells of runs that have a column behind those of their rows. None if a row has no room for
    /// one.
    fn place<const INDEX: usize, const VALUE: usize>(
        &mut self,
        taken: &Taken,
        mut column_of: impl FnMut(&[u8; 8]) -> Option<u64>,
    ) -> Option<()> {
        let columns = joinids(&taken.columns);
        let values = taken.values.as_chunks::<VALUE>().0;
        let indices = self.indices.as_chunks_mut::<INDEX>().0;
        let data = self.data.as_chunks_mut::<VALUE>().0;
        for run in &taken.runs {
            let row = run.row as usize;
            let room = &mut self.rows[row];
            // The least column that is in order.
            let mut least = match room.start > self.firsts[row] {
                true => number(&indices[room.start - 1]) + 1,
                false => 0,
            };
            for (joinid, value) in run.part(columns).iter().zip(run.part(values)) {
                let Some(column) = column_of(joinid) else {
                    continue;
                };
                let at = room.next()?;
                indices[at] = *column.to_le_bytes().first_chunk()?;
                data[at] = *value;
                self.unsorted[row] |= column < least;
                least = column + 1;
            }
        }
        Some(())
    }

    /// Whether all cells have come.
    fn is_full(&self) -> bool {
        self.rows.iter().all(Range::is_empty)
    }

    /// Sorts the cells of each row by column. The row and the column of two cells at one place, if there are.
    fn sort_columns(&mut self) -> Option<(u64, u64)> {
        let cells = self.indices.len() / self.index;
        let value = self.data.len().checked_div(cells)?;
        for row in (0..self.rows.len()).filter(|row| self.unsorted[*row]) {
            let (first, end) = (self.firsts[row], self.rows[row].end);
            let indices = &mut self.indices[first * self.index..end * self.index];
            let data = &mut self.data[first * value..end * value];
            let pairs = indices.chunks_exact(self.index).zip(data.chunks_exact(value));
            let mut pairs: Vec<(u64, [u8; 8])> = pairs
                .map(|(index, value)| {
                    let mut bytes = [0; 8];
                    bytes[..value.len()].copy_from_slice(value);
                    (number(index), bytes)
                })
                .collect();
            pairs.sort_unstable_by_key(|(column, _)| *column);
            if let Some(pair) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Some((row as u64, pair[0].0));
            }
            let places = indices
                .chunks_exact_mut(self.index)
                .zip(data.chunks_exact_mut(value));
            for ((index, value), (column, bytes)) in places.zip(pairs) {
                index.copy_from_slice(&column.to_le_bytes()[..index.len()]);
                value.copy_from_slice(&bytes[..value.len()]);
            }
        }
        None
    }
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// One of the three sequences.
#[derive(Debug, Clone, Copy)]
enum Content {
    Indptr,
    Indices,
    Data,
}

/// One of the three sequences as bytes.
struct Sequence {
    csr: Arc<Csr>,
    content: Content,
    /// Bytes of a number.
    size: u64,
    /// Bytes in all.
    len: u64,
}

impl Bytes for Sequence {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if range.end > self.len {
            let message = format!("byte {} wanted, but there are only {}", range.end, self.len);
            return Err(Error::truncated(message).at(self.len));
        }
        let _waiting = self.csr.engine().work.wait(self.csr.object);
        if let Content::Indptr = self.content {
            let entries = range.start / self.size..range.end.div_ceil(self.size);
            let skip = (range.start - entries.start * self.size) as usize;
            let bytes = self.csr.read_indptr(entries, self.size as usize)?;
            out.append(&bytes[skip..skip + (range.end - range.start) as usize]);
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end {
            let block = self.csr.block(at / self.size)?;
            let bytes = match self.content {
                Content::Data => &block.data,
                _ => &block.indices,
            };
            let first = block.first * self.size;
            let end = range.end.min(first + Bytes::len(bytes));
            if at < first || at >= end {
                return Err(Error::internal("the block does not have the cell"));
            }
            out.share(bytes.clone(), (at - first) as usize..(end - first) as usize)?;
            at = end;
        }
        Ok(())
    }
}
