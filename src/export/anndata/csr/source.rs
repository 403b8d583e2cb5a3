//! Where the cells of a matrix are read from, and how.

use crate::bytes::{Keep, Output};
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::field::{Field, Stored};
use crate::format::fragment::boxes::Bounds;
use crate::format::scalar::int64;
use crate::format::schema::Schema;
use crate::fragment::cells::{Cells, FragmentCells};
use crate::fragment::column::Content;
use crate::fragment::info::FragmentInfo;
use crate::query::{DimRange, View};
use crate::runtime::{Permit, Permits, parallel};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// With more fragments than this, files are not held open.
const MAX_HELD: usize = 64;

/// Pieces that are read at once, by several threads.
const PIECES_AT_ONCE: usize = 32;

/// The fragments of all matrices whose files are held open. A matrix is known for as long as its AnnData,
/// whether somebody reads it or not.
static HELD: Permits = Permits::new();

/// How many files of a fragment are held: its metadata, and those of rows, columns and values.
const FILES: u64 = 4;

/// The rows, the columns and the values of cells.
type Fields = Arc<[Arc<dyn Cells>; 3]>;

/// Where the cells of a matrix come from.
pub enum MatrixCells {
    /// Fragments all of whose cells are cells of the view, each once. Their tiles are read as they are.
    Fragments(Vec<WholeFragment>),
    /// A view whose fragments are merged, or that leaves out cells of them.
    Merged(Arc<View>, usize),
}

/// A fragment all of whose cells are cells of the view.
pub struct WholeFragment {
    number: usize,
    info: Arc<FragmentInfo>,
    fields: Fields,
    /// The rows and the columns of its non-empty domain.
    domain: [RangeInclusive<i64>; 2],
    /// The right to hold its files open.
    _held: Option<Permit>,
}

/// Consecutive cells, in any order of rows and columns.
pub struct Piece {
    fields: Fields,
    /// The number of the fragment; where fragments are merged, that of the first row of the band.
    source: usize,
    cells: Range<u64>,
}

impl Piece {
    /// The number of its cells.
    pub fn count(&self) -> u64 {
        self.cells.end - self.cells.start
    }

    /// What tells it from others of the matrix: a number of what it is a part of, and its first cell there.
    pub fn number(&self) -> (usize, u64) {
        (self.source, self.cells.start)
    }

    /// The rows of all cells.
    pub fn rows(&self) -> Result<Output> {
        self.read(0, &(0..self.count() as usize))
    }

    /// The columns of the cells `some` of these.
    pub fn columns(&self, some: &Range<usize>) -> Result<Output> {
        self.read(1, some)
    }

    /// The values of the cells `some` of these.
    pub fn values(&self, some: &Range<usize>) -> Result<Output> {
        self.read(2, some)
    }

    fn read(&self, field: usize, some: &Range<usize>) -> Result<Output> {
        let first = self.cells.start;
        let mut out = Output::keeping(Keep::Passing);
        let cells = first + some.start as u64..first + some.end as u64;
        self.fields[field].append(Content::Data, cells, &mut out)?;
        Ok(out)
    }
}

/// Appends `cells` of a source in pieces of at most `most` cells.
fn cut(fields: &Fields, source: usize, mut cells: Range<u64>, most: u64, pieces: &mut Vec<Piece>) {
    while !cells.is_empty() {
        let end = cells.end.min(cells.start + most);
        pieces.push(Piece {
            fields: fields.clone(),
            source,
            cells: cells.start..end,
        });
        cells.start = end;
    }
}

/// Whether an array has two dimensions, both INT64.
pub(super) fn is_matrix(schema: &Schema) -> bool {
    let mut dimensions = schema.dimensions.iter();
    schema.dimensions.len() == 2
        && dimensions.all(|d| d.datatype == Datatype::Int64 && d.cell_val_num == CellValNum::Fixed(1))
}

/// The ends of a range of INT64; None if they are something else.
fn ends((lo, hi): Bounds<'_>) -> Option<RangeInclusive<i64>> {
    Some(int64(lo)?..=int64(hi)?)
}

fn meet(a: &RangeInclusive<i64>, b: &RangeInclusive<i64>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

impl WholeFragment {
    /// None if its cells cannot be read as they are. With `hold`, its files are held open, unless those of
    /// others are so many.
    fn new(number: usize, info: &Arc<FragmentInfo>, values: &Field, hold: bool) -> Option<WholeFragment> {
        if !is_matrix(&info.schema) {
            return None;
        }
        let Stored::Same(values) = info.stored_as(values) else {
            return None;
        };
        let most = info.engine.most_held_files() / FILES;
        let held = hold.then(|| HELD.take(most as usize)).flatten();
        let cells = |field| -> Arc<dyn Cells> {
            Arc::new(FragmentCells::new(info.clone(), field).holding(held.is_some()))
        };
        let [rows, columns] = [info.dimension(0)?, info.dimension(1)?];
        let domain = info.exact_domain()?;
        let along = |i: usize| domain.get(i).and_then(|range| ends((&range.lo, &range.hi)));
        Some(WholeFragment {
            number,
            fields: Arc::new([rows, columns, values].map(|field| cells(field.clone()))),
            domain: [along(0)?, along(1)?],
            info: info.clone(),
            _held: held,
        })
    }

    /// Appends `cells` in pieces.
    fn cut(&self, cells: Range<u64>, pieces: &mut Vec<Piece>) {
        cut(
            &self.fields,
            self.number,
            cells,
            self.info.engine.tuning.matrix_piece_cells,
            pieces,
        );
    }

    /// Calls `visit` with the cells of each tile and a range that has their rows.
    fn tiles(&self, mut visit: impl FnMut(Range<u64>, RangeInclusive<i64>)) -> Result<()> {
        self.info.visit_tile_boxes(|tile, bounds| {
            let rows = bounds.first().and_then(|bounds| ends(*bounds));
            let rows = rows.ok_or_else(|| Error::internal("the bounding box has no rows"))?;
            let first = tile * self.info.geometry.tile_cells;
            visit(first..first + self.info.geometry.cells_of(tile), rows);
            Ok(())
        })
    }
}

impl MatrixCells {
    /// The cells of `view`, whose field `values` has the values. Opens the fragments.
    pub fn new(view: &Arc<View>, values: usize) -> Result<MatrixCells> {
        let field = &view.fields()[values];
        let whole = view.whole_fragments()?.and_then(|fragments| {
            let hold = fragments.len() <= MAX_HELD;
            let fragments = fragments.iter().enumerate();
            fragments
                .map(|(number, info)| WholeFragment::new(number, info, field, hold))
                .collect()
        });
        Ok(match whole {
            Some(fragments) => MatrixCells::Fragments(fragments),
            None => MatrixCells::Merged(view.clone(), values),
        })
    }

    /// Whether metadata proves that `has` all rows of cells (`along` 0) or all columns (1).
    pub(super) fn is_within(&self, along: usize, has: impl Fn(&RangeInclusive<i64>) -> bool) -> bool {
        match self {
            MatrixCells::Fragments(fragments) => {
                fragments.iter().all(|fragment| has(&fragment.domain[along]))
            }
            MatrixCells::Merged(..) => false,
        }
    }

    /// Calls `is_known` with the number of cells of each tile and a range that has their rows, and returns
    /// the cells of the tiles for which it is false. None where fragments are merged, so that tiles do not
    /// count.
    pub(super) fn crossing(
        &self,
        mut is_known: impl FnMut(u64, RangeInclusive<i64>) -> bool,
    ) -> Result<Option<Vec<Piece>>> {
        let MatrixCells::Fragments(fragments) = self else {
            return Ok(None);
        };
        let mut crossing = Vec::new();
        for fragment in fragments {
            fragment.tiles(|cells, rows| {
                if !is_known(cells.end - cells.start, rows) {
                    fragment.cut(cells, &mut crossing);
                }
            })?;
        }
        Ok(Some(crossing))
    }

    /// All cells in `rows`, and others. `band` contains `rows`; where fragments are merged, those of all its
    /// rows are.
    pub fn pieces(&self, rows: &RangeInclusive<i64>, band: &RangeInclusive<i64>) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        match self {
            MatrixCells::Fragments(fragments) => {
                for fragment in fragments.iter().filter(|own| meet(&own.domain[0], rows)) {
                    fragment.tiles(|cells, tile| {
                        if meet(&tile, rows) {
                            fragment.cut(cells, &mut pieces);
                        }
                    })?;
                }
            }
            MatrixCells::Merged(view, values) => {
                let end = |row: i64| Some(row.to_le_bytes().to_vec());
                let rows = DimRange {
                    lo: end(*band.start()),
                    hi: end(*band.end()),
                };
                let part = view.part(vec![rows, DimRange::default()]);
                let fields = Arc::new([part.open(0)?, part.open(1)?, part.open(*values)?]);
                cut(
                    &fields,
                    *band.start() as usize,
                    0..part.count()?,
                    view.array().engine.tuning.matrix_piece_cells,
                    &mut pieces,
                );
            }
        }
        Ok(pieces)
    }
}

/// Reads pieces of an array of the view on all threads with `read`, and hands what it makes of each to
/// `take`, in their order. `what` it does it for shows in `work.json`, under the number `object`.
pub fn scan<T: Send>(
    view: &View,
    object: u64,
    pieces: &[Piece],
    what: &'static str,
    read: impl Fn(&Piece) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let path = view.array().path.display().to_string();
    let cells = |pieces: &[Piece]| pieces.iter().map(Piece::count).sum();
    let job = view.array().engine.work.start(object, path, what, cells(pieces));
    for group in pieces.chunks(PIECES_AT_ONCE) {
        let made = parallel::each(group.len() as u64, |number| read(&group[number as usize]))?;
        made.into_iter().try_for_each(&mut take)?;
        job.advance(cells(group))?;
    }
    Ok(())
}
