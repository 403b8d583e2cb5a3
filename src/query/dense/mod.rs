//! Dense views: boxes of cells in row-major order. A cell comes from the newest fragment that covers it and
//! has the attribute.
//!
//! A run of cells is split into boxes, these by tiles ([`space`]) and by fragments ([`overlay`]); then each
//! part is copied from its fragment ([`copy`], [`attribute`]). Which cells no fragment has is known from the
//! same boxes ([`coverage`]).
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/query/readers/dense_reader.cc>

mod attribute;
mod axis;
mod copy;
mod coverage;
mod origins;
mod overlay;
mod points;
mod space;
mod stack;
#[cfg(test)]
mod tests;

use super::column::RunCells;
use super::selection::Selection;
use super::{DimRange, Role};
use crate::error::{Error, ErrorKind, Result};
use crate::format::range::{Range, Rect};
use crate::fragment::Fragment;
use crate::fragment::cells::Cells;
use crate::fragment::prefetch::TailPrefetch;
use crate::runtime::get_or_make;
use attribute::DenseRuns;
use axis::AxisCells;
use lru::LruCache;
use points::Points;
use space::{Area, Space};
use stack::{Slot, Stack};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock};

/// The most sparse fragments of a view whose coordinates stay open.
const MAX_POINTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// With more tiles than this, [`Dense::shows`] does not look.
const MAX_TILES_LOOKED_AT: u64 = 1 << 20;

/// A dense view: the fragments of a dense array, newer ones over older ones.
pub(super) struct Dense {
    of: Arc<Selection>,
    stack: OnceLock<Arc<Stack>>,
    region: OnceLock<Region>,
    covered: OnceLock<bool>,
    /// The coordinates of sparse layers.
    points: Mutex<LruCache<usize, Arc<Points>>>,
}

/// The cells that a view covers.
#[derive(Debug, Clone)]
struct Region {
    /// First and last index along each dimension; the first is greater if the range is empty. None if neither
    /// the subarray nor a fragment bounds them.
    ends: Vec<Option<(u64, u64)>>,
    /// The length of each axis.
    shape: Vec<u64>,
}

impl Dense {
    /// The view of what is selected.
    pub(super) fn new(of: Arc<Selection>) -> Dense {
        Dense {
            of,
            stack: OnceLock::new(),
            region: OnceLock::new(),
            covered: OnceLock::new(),
            points: Mutex::new(LruCache::new(MAX_POINTS)),
        }
    }

    /// The stack of fragments. The first call reads the metadata of all of them.
    fn stack(&self) -> Result<&Arc<Stack>> {
        get_or_make(&self.stack, || {
            let fragments = self.of.snapshot.fragment_list();
            Stack::new(
                self.of.array.clone(),
                &self.of.schema,
                fragments,
                &self.of.changes,
            )
            .map(Arc::new)
        })
    }

    /// The cells of a slab: all with coordinates in one tile along the first dimension.
    pub(super) fn slab(&self) -> Result<u64> {
        let extent = Space::new(&self.of.schema)?.axes[0].extent;
        let inner = self.cells()?.shape.iter().skip(1);
        Ok(inner.fold(extent, |cells, length| cells.saturating_mul(*length)))
    }

    fn cells(&self) -> Result<&Region> {
        get_or_make(&self.region, || self.find_region())
    }

    /// The number of cells in the domain; None beyond 2^64.
    pub(super) fn domain_cells(&self) -> Option<u64> {
        let domain = Space::new(&self.of.schema).ok()?.domain();
        let mut lengths = domain.0.iter().map(|(first, last)| (last - first).checked_add(1));
        lengths.try_fold(1u64, |cells, length| cells.checked_mul(length?))
    }

    /// The number of cells that all fragments store, with padding.
    pub(super) fn stored(&self) -> Result<u64> {
        let fragments = self.of.snapshot.fragment_list();
        let tails = TailPrefetch::new(&self.of.array.engine, fragments.iter(), Fragment::has_outline);
        fragments
            .iter()
            .enumerate()
            .try_fold(0u64, |cells, (index, fragment)| {
                tails.reach(index);
                Ok(cells.saturating_add(fragment.look_at_outline()?.cells))
            })
    }

    /// The region. Reads fragments only if the subarray has an open end.
    fn find_region(&self) -> Result<Region> {
        let space = Space::new(&self.of.schema)?;
        let all = vec![DimRange::default(); space.axes.len()];
        let ranges = self.of.subarray.as_ref().unwrap_or(&all);
        if ranges.len() != space.axes.len() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "found {} ranges, expected one for each of the {} dimensions",
                    ranges.len(),
                    space.axes.len()
                ),
            ));
        }
        let open = ranges
            .iter()
            .any(|range| range.lo.is_none() || range.hi.is_none());
        let covered = if open { self.covered(&space)? } else { None };
        let domain = space.domain();
        let mut ends = Vec::new();
        for (i, ((axis, range), last)) in space.axes.iter().zip(ranges).zip(&domain.0).enumerate() {
            let covered = covered.as_ref().map(|area| area.0[i]);
            let end = |given: &Option<Vec<u8>>, covered: Option<u64>| match given {
                None => Ok(covered),
                Some(value) => match axis.index(value)? {
                    index if index <= last.1 => Ok(Some(index)),
                    _ => Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!("the range of dimension {i} exceeds the domain"),
                    )),
                },
            };
            let first = end(&range.lo, covered.map(|ends| ends.0))?;
            ends.push(first.zip(end(&range.hi, covered.map(|ends| ends.1))?));
        }
        let lengths = ends.iter().map(|ends| match ends {
            Some((first, last)) if first <= last => (last - first)
                .checked_add(1)
                .ok_or_else(|| Error::limit("a dimension has 2^64 cells or more")),
            _ => Ok(0),
        });
        Ok(Region {
            shape: lengths.collect::<Result<_>>()?,
            ends,
        })
    }

    /// The smallest box around all fragments, cropped to the domain and the current domain.
    fn covered(&self, space: &Space) -> Result<Option<Area>> {
        let Some(bounds) = self.stack()?.bounds() else {
            return Ok(None);
        };
        Ok(self.allowed(space)?.and_then(|allowed| bounds.common(&allowed)))
    }

    /// The domain, cropped to the current domain.
    fn allowed(&self, space: &Space) -> Result<Option<Area>> {
        let domain = space.domain();
        match &self.of.schema.current_domain {
            Some(current) => Ok(domain.common(&space.area(current)?)),
            None => Ok(Some(domain)),
        }
    }

    pub(super) fn region(&self) -> Result<Option<Rect>> {
        let region = self.cells()?;
        let space = Space::new(&self.of.schema)?;
        let ranges = space.axes.iter().zip(&region.ends).map(|(axis, ends)| {
            let (first, last) = (*ends)?;
            let stored = |index| axis.coordinate(index)[..axis.size()].to_vec();
            Some(Range {
                lo: stored(first),
                hi: stored(last),
            })
        });
        Ok(ranges.collect())
    }

    pub(super) fn shape(&self) -> Result<Vec<u64>> {
        Ok(self.cells()?.shape.clone())
    }

    pub(super) fn shape_at_most(&self) -> Result<Vec<u64>> {
        if self.region.get().is_some() || self.of.subarray.is_some() {
            return self.shape();
        }
        let space = Space::new(&self.of.schema)?;
        let touches = |within: &Area| {
            self.of.snapshot.fragment_list().iter().rev().any(|fragment| {
                let outline = fragment.outline().ok();
                let domain = outline.as_ref().and_then(|outline| outline.domain.as_ref());
                domain
                    .and_then(|domain| space.area(domain).ok())
                    .is_some_and(|area| area.touches(within))
            })
        };
        match self.allowed(&space)?.filter(touches) {
            Some(within) => {
                let lengths = within.0.iter();
                Ok(lengths
                    .map(|(first, last)| (last - first).saturating_add(1))
                    .collect())
            }
            // No fragment has cells in the domain, or one cannot be read.
            None => self.shape(),
        }
    }

    pub(super) fn count(&self) -> Result<u64> {
        count(&self.cells()?.shape)
    }

    /// See [`View::seams`](super::View::seams).
    pub(super) fn seams(&self) -> Result<Vec<u64>> {
        let Some((first, last)) = self.cells()?.ends[0] else {
            return Ok(Vec::new());
        };
        let layers = self.stack()?.overlay.layers().iter();
        let ends = layers.flat_map(|layer| {
            let (low, high) = layer.area.0[0];
            [Some(low), high.checked_add(1)]
        });
        let inside = ends.flatten().filter(|cell| first < *cell && *cell <= last);
        let mut seams: Vec<u64> = inside.map(|cell| cell - first).collect();
        seams.sort_unstable();
        seams.dedup();
        Ok(seams)
    }

    /// The newest fragment that has attribute `index` in another form and that some cell comes from: its
    /// name, and the difference.
    pub(super) fn unreadable(&self, index: usize) -> Result<Option<(String, &'static str)>> {
        let attribute = &self.of.schema.attributes[index];
        let stack = self.stack()?;
        let slots = stack.slots(&attribute.name, attribute.form());
        let layers = stack.overlay.layers();
        for area in self.areas(0..self.count()?)? {
            for ((number, slot), layer) in slots.iter().enumerate().zip(layers).rev() {
                let (Slot::Other(_, what), Some(common)) = (slot, layer.area.common(&area)) else {
                    continue;
                };
                if self.shows(number, common, &slots)? {
                    let (fragment, _) = &stack.fragments[number];
                    return Ok(Some((fragment.directory_name(), what)));
                }
            }
        }
        Ok(None)
    }

    /// Whether some cell of `area`, which layer `number` touches, comes from this layer. True as well where
    /// that would take looking at more than `MAX_TILES_LOOKED_AT` tiles.
    fn shows(&self, number: usize, area: Area, slots: &[Slot]) -> Result<bool> {
        let stack = self.stack()?;
        let overlay = &stack.overlay;
        let holds = |layer: usize| slots[layer] != Slot::Nothing;
        let dense = |layer: usize| overlay.is_dense(layer);
        for hole in overlay.all_holes(area, |layer| layer > number && dense(layer) && holds(layer)) {
            // Newer fragments without the attribute hide it where they cover all that it has of a tile.
            let touching = overlay.touching(&hole);
            if !dense(number) || !touching.iter().any(|&layer| layer > number && dense(layer)) {
                return Ok(true);
            }
            if stack.space.tile_count(&hole) > MAX_TILES_LOOKED_AT {
                return Ok(true);
            }
            let mut found = false;
            stack.space.tiles(&hole, 0, |tile| {
                if let Some(wanted) = tile.common(&hole).filter(|_| !found) {
                    let parts = overlay.parts(tile, &wanted, holds);
                    found = parts.boxes.iter().any(|part| part.layer == Some(number));
                }
                Ok(())
            })?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn open(&self, field: usize) -> Result<Arc<dyn Cells>> {
        let region = self.cells()?;
        let missing = || Error::not_found(format!("there is no field {field}"));
        match self.of.schema.field(field).ok_or_else(missing)?.role {
            Role::Dimension(i) => {
                let space = Space::new(&self.of.schema)?;
                Ok(Arc::new(AxisCells {
                    axis: space.axes[i],
                    first: region.ends[i].map_or(0, |(first, _)| first),
                    count: region.shape[i],
                }))
            }
            Role::Attribute(_) => {
                let first = vec![0; region.shape.len()];
                self.open_box(field, &first, &region.shape)
            }
        }
    }

    pub(super) fn open_box(&self, field: usize, first: &[u64], shape: &[u64]) -> Result<Arc<dyn Cells>> {
        let region = self.cells()?;
        let missing = || Error::not_found(format!("there is no attribute {field}"));
        let found = self.of.schema.field(field);
        let attribute = found.filter(|field| matches!(field.role, Role::Attribute(_)));
        let attribute = attribute.ok_or_else(missing)?;
        let axes = first.iter().zip(shape).zip(&region.shape);
        let inside = axes
            .clone()
            .all(|((first, length), all)| first.checked_add(*length).is_some_and(|end| end <= *all));
        if !inside || axes.len() != region.shape.len() || first.len() != shape.len() {
            return Err(Error::internal("the box exceeds the region"));
        }
        let origin = region.ends.iter().zip(first);
        let origin = origin.map(|(ends, first)| ends.map_or(0, |(low, _)| low + first));
        let size = attribute.cell_size();
        let (array, state) = (&self.of.array, self.of.state());
        let object = array
            .engine
            .number(&("view", &array.path, state, field, first, shape));
        let runs = DenseRuns::new(
            self.stack()?.clone(),
            &self.of.schema,
            attribute,
            origin.collect(),
            shape.to_vec(),
            count(shape)?,
        );
        Ok(Arc::new(RunCells::new(runs, size, array, object)))
    }
}

/// The number of cells in a box of this shape. `LimitExceeded` beyond 2^64.
fn count(shape: &[u64]) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let mut lengths = shape.iter();
    lengths
        .try_fold(1u64, |cells, length| cells.checked_mul(*length))
        .ok_or_else(|| Error::limit("the view has more than 2^64 cells"))
}
