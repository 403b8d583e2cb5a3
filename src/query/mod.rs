//! Views: an array as TileDB reads it. The fragments that are visible in a time range are merged, and deletes
//! are applied. A view shows the whole domain or a part of it.
//!
//! A [`View`] has the number and the order of the cells; [`View::open`] gives the cells of one field.
//!
//! | module | |
//! |---|---|
//! | [`selection`] | what a view is of, and its state |
//! | [`dense`] | a box of cells in row-major order |
//! | [`sparse`] | cells in the array's global order |
//! | [`order`], [`hilbert`] | that order, as keys |
//! | [`deletes`], [`condition`] | the deletes of an array, and how they are evaluated |
//! | [`column`](mod@column) | the cells of a field as bytes that can be read at any offset |
//! | [`changed`] | attributes that cannot be read, because their type changed |
//! | [`labels`] | dimension labels |
//! | [`table`], [`repeated`] | a row for each cell, a column for each field |

mod changed;
mod column;
pub mod condition;
pub mod deletes;
mod dense;
pub(crate) mod hilbert;
pub(crate) mod labels;
pub mod order;
pub(crate) mod repeated;
pub(crate) mod selection;
mod sparse;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;

use crate::catalog::Array;
use crate::catalog::listing::SchemaFile;
use crate::catalog::pin::Pin;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::time::{TimeRange, When};
use crate::error::{Error, ErrorKind, Result};
use crate::format::enums::ArrayType;
use crate::format::range::Rect;
use crate::format::schema::Schema;
use crate::fragment::Fragment;
use crate::fragment::cells::Cells;
use crate::fragment::info::FragmentInfo;
use crate::runtime::{get_or_make, parallel};
use selection::Selection;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

pub use crate::format::field::{Field, Role};

/// A range along one dimension. Both ends are inclusive, little-endian values of the dimension's datatype. An
/// end of None is open: in a dense view it is the end of the box that fragments cover, in a sparse view there
/// is no limit. A range whose lower end is above its upper end is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DimRange {
    /// Lower end.
    pub lo: Option<Vec<u8>>,
    /// Upper end.
    pub hi: Option<Vec<u8>>,
}

/// An array, or a part of its domain, as a reader sees it in a time range. Making a view is cheap: fragments
/// are opened on demand.
pub struct View {
    of: Arc<Selection>,
    fields: OnceLock<Vec<Field>>,
    /// See [`View::selected_columns`].
    selected: Option<Vec<usize>>,
    merge: Merge,
    pin: OnceLock<Pin>,
    /// See [`View::shown_labels`]. Kept if none is left out: one that is damaged may be whole again.
    all_labels: OnceLock<Vec<usize>>,
    /// See [`View::may_be_unreadable`].
    changed: OnceLock<Vec<bool>>,
}

/// How the fragments are merged.
enum Merge {
    Dense(dense::Dense),
    Sparse(sparse::Sparse),
}

impl View {
    /// The view of [`Selection::part`]. If it is unknown which fragments are seen, it has no cells: see
    /// [`View::check_complete`].
    pub(crate) fn new(
        array: Arc<Array>,
        times: Option<TimeRange>,
        subarray: Option<Vec<DimRange>>,
    ) -> Result<View> {
        let whole = Selection::new(array, times.into())?;
        Ok(View::of(whole.part(subarray, None)))
    }

    /// The view of what is selected.
    pub(crate) fn of(of: Selection) -> View {
        #[cfg(test)]
        testing::BUILT.set(testing::BUILT.get() + 1);
        let of = Arc::new(of);
        let merge = match of.schema.array_type {
            ArrayType::Dense => Merge::Dense(dense::Dense::new(of.clone())),
            ArrayType::Sparse => Merge::Sparse(sparse::Sparse::new(of.clone())),
        };
        View {
            of,
            // A view is made for each lookup below it.
            fields: OnceLock::new(),
            selected: None,
            merge,
            pin: OnceLock::new(),
            all_labels: OnceLock::new(),
            changed: OnceLock::new(),
        }
    }

    /// Whether a view of the same array, time and part would be the same now; false also where only making it
    /// can tell.
    pub(crate) fn is_current(&self) -> bool {
        self.of.is_current()
    }

    /// A view of this state that begins with the same cells as this one, at least `most` of them unless there
    /// are fewer. It knows how many cells it has without looking at all cells of this view.
    pub(crate) fn head(&self, most: u64) -> Result<View> {
        let (subarray, most) = match self.merge()? {
            Merge::Dense(_) => (self.first_box(most)?.or_else(|| self.of.subarray.clone()), None),
            Merge::Sparse(_) => (self.of.subarray.clone(), Some(most)),
        };
        Ok(View::of(self.of.part(subarray, most)))
    }

    /// A view of this state of a part of the domain, as in [`Selection::part`].
    pub(crate) fn part(&self, subarray: Vec<DimRange>) -> View {
        View::of(self.of.part(Some(subarray), None))
    }

    /// The box at the lower corner of a dense view that holds its first `most` cells, and at most twice as
    /// many. None if the view has no region.
    fn first_box(&self, most: u64) -> Result<Option<Vec<DimRange>>> {
        let Some(region) = self.region()? else {
            return Ok(None);
        };
        let (mut ranges, mut left) = (Vec::new(), most.max(1));
        for (range, length) in region.iter().zip(self.shape()?).rev() {
            let count = left.min(length);
            ranges.push(DimRange {
                lo: Some(range.lo.clone()),
                // A side without cells ends before it begins.
                hi: Some(coordinate(&range.lo, count.wrapping_sub(1))),
            });
            left = left.div_ceil(length.max(1));
        }
        ranges.reverse();
        Ok(Some(ranges))
    }

    /// [`Selection::check_complete`].
    pub(crate) fn check_complete(&self) -> Result<()> {
        self.of.check_complete()
    }

    fn merge(&self) -> Result<&Merge> {
        self.of.check_complete()?;
        Ok(&self.merge)
    }

    pub(crate) fn array(&self) -> &Arc<Array> {
        &self.of.array
    }

    /// About how many bytes of memory it takes once it is read, outside of the cache.
    pub(crate) fn memory(&self) -> u64 {
        const VIEW_MEMORY: u64 = 16 << 10;
        /// What a merge knows of a fragment and its fields.
        const FRAGMENT_MEMORY: u64 = 3 << 10;
        VIEW_MEMORY + FRAGMENT_MEMORY * self.snapshot().fragments().count() as u64
    }

    /// About how many files it holds open once it is read: those of the coordinates of a merge.
    pub(crate) fn held_files(&self) -> u64 {
        let fragments = self.snapshot().fragments().count() as u64;
        match self.schema().array_type {
            ArrayType::Sparse => sparse::held_files(&self.array().engine, fragments, self.schema()),
            ArrayType::Dense => 0,
        }
    }

    /// The fragments, deletes and metadata in the time range.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.of.snapshot
    }

    /// The time range that is read; None for everything up to now.
    pub fn times(&self) -> Option<TimeRange> {
        self.of.when.times_in(&self.array().engine)
    }

    /// The file of the schema in force.
    pub(crate) fn schema_file(&self) -> &SchemaFile {
        &self.of.schema_file
    }

    /// The schema in force.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.of.schema
    }

    /// The name of the array's state. None if the time range has a start, or if the state is unknown, be it
    /// for the moment.
    pub(crate) fn pin(&self) -> Option<Pin> {
        match &self.of.when {
            When::Pinned(pinned) if pinned.is_of(&self.of.array) => Some(pinned.pin),
            _ if self.of.snapshot.times.start > 0 || self.check_complete().is_err() => None,
            _ => {
                let pin = get_or_make(&self.pin, || self.of.array.pin(&self.of.snapshot));
                let log = |error: &_| log::debug!("{}: no pin: {error}", self.of.array.path.display());
                pin.inspect_err(log).ok().copied()
            }
        }
    }

    /// The part of the domain that was asked for; None for the whole domain.
    pub fn subarray(&self) -> Option<&[DimRange]> {
        self.of.subarray.as_deref()
    }

    /// Dimensions, then attributes, in the order of the schema in force.
    pub fn fields(&self) -> &[Field] {
        self.fields.get_or_init(|| self.of.schema.fields())
    }

    /// The indexes among [`View::fields`] of those that [`ViewBuilder::fields`] named, in that order; of all
    /// fields if it was not called. Dimension labels are no fields.
    ///
    /// [`ViewBuilder::fields`]: crate::ViewBuilder::fields
    pub fn selected(&self) -> Vec<usize> {
        let fields = 0..self.fields().len();
        match &self.selected {
            None => fields.collect(),
            Some(selected) => {
                let selected = selected.iter().copied();
                selected.filter(|index| fields.contains(index)).collect()
            }
        }
    }

    /// The columns of a table that [`ViewBuilder::fields`](crate::ViewBuilder::fields) named, in that order:
    /// indexes of fields, and those of dimension labels, which count on. None if it was not called.
    #[cfg(feature = "arrow")]
    pub(crate) fn selected_columns(&self) -> Option<&[usize]> {
        self.selected.as_deref()
    }

    /// This view with some of its columns selected.
    pub(crate) fn select(self, columns: Vec<usize>) -> View {
        View {
            selected: Some(columns),
            ..self
        }
    }

    /// Whether the array is dense, with cells in row-major order. Otherwise they are in global order.
    pub fn is_dense(&self) -> bool {
        matches!(self.merge, Merge::Dense(_))
    }

    /// A hash of the state that it shows: two views of an array with equal hashes show the same.
    pub(crate) fn state(&self) -> u64 {
        self.of.state()
    }

    /// The box of a dense view: the subarray, with open ends at the box that fragments cover. None for a
    /// sparse view, or if nothing is visible.
    ///
    /// # Errors
    ///
    /// If the metadata of a fragment cannot be read.
    pub fn region(&self) -> Result<Option<Rect>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.region(),
            Merge::Sparse(_) => Ok(None),
        }
    }

    /// The number of cells along each dimension of a dense view; the number of all cells of a sparse view.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for 2^64 cells or more; fails if what decides it cannot be read: metadata of
    /// fragments, and of a sparse view whose fragments have to be merged coordinates.
    pub fn shape(&self) -> Result<Vec<u64>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.shape(),
            Merge::Sparse(sparse) => Ok(vec![sparse.count()?]),
        }
    }

    /// An upper bound of [`View::shape`] for each length. A length is 0 only if one of the shape is. Reads
    /// fragments only until one has cells.
    pub(crate) fn shape_at_most(&self) -> Result<Vec<u64>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.shape_at_most(),
            Merge::Sparse(_) => self.shape(),
        }
    }

    /// The number of cells.
    ///
    /// # Errors
    ///
    /// Those of [`View::shape`].
    pub fn count(&self) -> Result<u64> {
        match self.merge()? {
            Merge::Dense(dense) => dense.count(),
            Merge::Sparse(sparse) => sparse.count(),
        }
    }

    /// The number of cells if it is known without reading cells; else None.
    pub(crate) fn known_count(&self) -> Result<Option<u64>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.count().map(Some),
            Merge::Sparse(sparse) => sparse.known_count(),
        }
    }

    /// The fragments that have cells of a sparse view, if all their cells are cells of the view, each once:
    /// none is deleted, outside of the view, or hidden by a newer one. Else None. Reads metadata alone.
    pub(crate) fn whole_fragments(&self) -> Result<Option<Vec<Arc<FragmentInfo>>>> {
        match self.merge()? {
            Merge::Dense(_) => Ok(None),
            Merge::Sparse(sparse) => sparse.whole_fragments(),
        }
    }

    /// Whether metadata alone proves that the view has at most `most` cells. In a sparse view all cells of
    /// fragments count, deleted ones and duplicates included.
    pub(crate) fn has_at_most(&self, most: u64) -> Result<bool> {
        match self.merge()? {
            Merge::Dense(dense) => {
                if dense.domain_cells().is_some_and(|cells| cells <= most) {
                    return Ok(true);
                }
                match dense.count() {
                    Ok(cells) => Ok(cells <= most),
                    Err(error) if error.kind() == ErrorKind::LimitExceeded => Ok(false),
                    Err(error) => Err(error),
                }
            }
            Merge::Sparse(_) => {
                // A few fragments may be enough, so they are read in batches. Each batch starts threads, so
                // it is larger than the one before.
                let fragments = self.of.snapshot.fragment_list();
                let (mut cells, mut read, mut more) = (0u64, 0, 512);
                while let Some(batch) = fragments.get(read..fragments.len().min(read + more))
                    && !batch.is_empty()
                {
                    let counts = parallel::each(batch.len() as u64, |i| batch[i as usize].cells())?;
                    cells = counts.into_iter().fold(cells, u64::saturating_add);
                    if cells > most {
                        return Ok(false);
                    }
                    (read, more) = (read + more, more * 2);
                }
                Ok(true)
            }
        }
    }

    /// Whether a dense view has more than 2^26 cells, of which fragments store less than one 64th. Reads
    /// fragments only if the domain has so many cells.
    pub(crate) fn is_mostly_empty(&self) -> Result<bool> {
        const MIN_CELLS: u64 = 1 << 26;
        let Merge::Dense(dense) = self.merge()? else {
            return Ok(false);
        };
        if dense.domain_cells().is_some_and(|cells| cells <= MIN_CELLS) {
            return Ok(false);
        }
        match dense.count() {
            Ok(count) => Ok(count > MIN_CELLS && count / 64 > dense.stored()?),
            Err(error) if error.kind() == ErrorKind::LimitExceeded => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether the footers of dense fragments prove that every cell of a dense view is written. True for
    /// sparse views. Reads the metadata of fragments.
    pub(crate) fn is_covered(&self) -> Result<bool> {
        match self.merge()? {
            Merge::Dense(dense) => dense.is_covered(),
            Merge::Sparse(_) => Ok(true),
        }
    }

    /// The cells of a dense view of one dimension, ascending, at which a fragment begins or behind which one
    /// ends, but for the first cell. None of a sparse view.
    fn seams(&self) -> Result<Vec<u64>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.seams(),
            Merge::Sparse(_) => Ok(Vec::new()),
        }
    }

    /// For each of `cells`, 1 if a fragment wrote it and 0 if none did; None if all are written, as they are
    /// in sparse views. Reads metadata, and the coordinates of sparse fragments in dense arrays.
    pub(crate) fn written(&self, cells: Range<u64>) -> Result<Option<Vec<u8>>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.written(cells),
            Merge::Sparse(_) => Ok(None),
        }
    }

    /// The cells of field `field`, an index into [`View::fields`]. A dimension of a dense view has each
    /// coordinate once.
    ///
    /// # Errors
    ///
    /// `NotFound` for an index out of bounds; fails if the metadata of a fragment cannot be read.
    pub fn open(&self, field: usize) -> Result<Arc<dyn Cells>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.open(field),
            Merge::Sparse(sparse) => sparse.open(field),
        }
    }

    /// The cells of attribute `field` of a dense view in a box of its region, in row-major order. The box
    /// begins at index `first` (0 is the lower end of the region) and has `shape` cells along each dimension.
    /// `NotFound` if `field` is not an attribute of a dense view.
    pub(crate) fn open_box(&self, field: usize, first: &[u64], shape: &[u64]) -> Result<Arc<dyn Cells>> {
        match self.merge()? {
            Merge::Dense(dense) => dense.open_box(field, first, shape),
            Merge::Sparse(_) => Err(Error::not_found("a sparse view has no boxes")),
        }
    }
}

/// The coordinate of a dense dimension that is `offset` above another one, both little-endian.
fn coordinate(from: &[u8], offset: u64) -> Vec<u8> {
    let mut bytes = [0; 8];
    bytes[..from.len()].copy_from_slice(from);
    // Two's complement: right for signed coordinates, too.
    let sum = u64::from_le_bytes(bytes).wrapping_add(offset).to_le_bytes();
    sum[..from.len()].to_vec()
}

/// Some tiles of a fragment.
#[derive(Clone)]
pub struct Tiles {
    /// The fragment.
    pub fragment: Arc<Fragment>,
    /// Ascending runs of tiles. They have every cell that comes from this fragment.
    pub tiles: Vec<Range<u64>>,
    /// Whether all cells of these tiles are cells of the view, without padding.
    pub whole: bool,
}

/// Consecutive cells of a view, whole tiles of one size; the last tile may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileRun {
    /// The number of cells.
    pub cells: u64,
    /// Cells of a tile; 1 where the cells of several tiles interleave.
    pub tile: u64,
}

/// The tiles that some cells of a view are stored in.
#[derive(Clone, Default)]
pub struct CellOrigin {
    /// The tiles, each once. Newer fragments may hide all cells of some.
    pub parts: Vec<Tiles>,
    /// The number of cells that no fragment wrote, which are in none of the tiles; None if metadata does not
    /// tell.
    pub unwritten: Option<u64>,
}

impl View {
    /// All of its cells as runs of whole tiles, in order. Those of a dense view are slabs: all cells with
    /// coordinates in one tile along the first dimension. Decodes no more than counting the cells does.
    pub(crate) fn tile_runs(&self) -> Result<Vec<TileRun>> {
        let rows = self.count()?;
        match &self.merge {
            Merge::Dense(dense) => {
                let tile = dense.slab()?;
                Ok(vec![TileRun { cells: rows, tile }])
            }
            Merge::Sparse(sparse) => sparse.tile_runs(),
        }
    }

    /// The origin of each of `runs`, which are ranges of cells; None if metadata does not tell. Where
    /// fragments must be merged, but were not merged to count the cells, the origin has all their tiles. The
    /// result depends only on the view's state.
    pub(crate) fn origins(&self, runs: &[Range<u64>]) -> Result<Vec<Option<CellOrigin>>> {
        match &self.merge {
            Merge::Dense(dense) => dense.origins(runs),
            Merge::Sparse(sparse) => sparse.origins(runs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::View;
    use crate::query::testing::open_local;
    use crate::runtime::tuning::Tuning;
    use std::fs;
    use std::process::Command;

    #[test]
    fn what_kept_a_pin_from_being_found_may_pass() {
        let folder = tempfile::tempdir().unwrap();
        let copied = Command::new("cp")
            .args(["-r", "tests/data/versions/v22/labels/."])
            .arg(folder.path())
            .status();
        assert!(copied.unwrap().success());
        let schemas = fs::read_dir(folder.path().join("__labels/l0/__schema")).unwrap();
        let schema = schemas
            .map(|entry| entry.unwrap().path())
            .find(|path| path.is_file())
            .unwrap();
        let bytes = fs::read(&schema).unwrap();
        fs::write(&schema, &bytes[..10]).unwrap();
        let view = View::new(open_local(folder.path(), &Tuning::SMALL).unwrap(), None, None).unwrap();
        assert!(view.pin().is_none());
        fs::write(&schema, bytes).unwrap();
        assert!(view.pin().is_some());
    }
}
