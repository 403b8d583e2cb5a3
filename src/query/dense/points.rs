//! Sparse fragments in dense arrays, written by old versions of libtiledb. Each sets the cells at its
//! coordinates.

use super::copy::Target;
use super::space::{Area, Space};
use super::stack::Stack;
use crate::bytes::{Bytes, Keep, Output};
use crate::error::{Error, Result};
use crate::fragment::column::{Column, Content, OpenColumn};
use crate::fragment::info::FragmentInfo;
use crate::runtime::cache::CacheKey;
use std::sync::Arc;

/// The coordinates of a sparse fragment.
pub(super) struct Points {
    info: Arc<FragmentInfo>,
    /// The coordinates along each dimension.
    columns: Vec<OpenColumn>,
    /// The bounding box of each tile: first and last index along each dimension.
    boxes: Arc<Vec<(u64, u64)>>,
}

impl Points {
    /// Opens the coordinates of a fragment. Decodes all coordinates to find the bounding boxes, unless the
    /// cache has these.
    pub(super) fn open(stack: &Stack, info: &Arc<FragmentInfo>) -> Result<Points> {
        let dimension = |index: usize| {
            let field = info
                .dimension(index)
                .ok_or_else(|| info.place(Error::corrupt("the sparse fragment has no coordinates").at(0)))?;
            Column::new(info.clone(), field.clone()).open(Content::Data, None)
        };
        let columns = (0..stack.space.axes.len()).map(dimension);
        let mut points = Points {
            info: info.clone(),
            columns: columns.collect::<Result<_>>()?,
            boxes: Arc::default(),
        };
        let engine = &stack.array.engine;
        let versions: Vec<u64> = points.columns.iter().map(OpenColumn::version).collect();
        let key = CacheKey::of(engine.number(&("boxes", &info.path, versions)));
        let bounds = size_of::<(u64, u64)>() * points.columns.len();
        let size = info.geometry.tile_num.saturating_mul(bounds as u64);
        points.boxes = engine.cache.derive(key, size, Keep::Staying, || {
            let mut out = Vec::new();
            for tile in 0..info.geometry.tile_num {
                let mut ends: Vec<Option<(u64, u64)>> = vec![None; points.columns.len()];
                points.pieces(&stack.space, tile, Some(Keep::Passing), |_, indexes| {
                    for (ends, along) in ends.iter_mut().zip(indexes) {
                        for &index in along {
                            let (first, last) = ends.unwrap_or((index, index));
                            *ends = Some((first.min(index), last.max(index)));
                        }
                    }
                    Ok(())
                })?;
                for ends in ends {
                    out.push(ends.ok_or_else(|| Error::internal("a tile has no cells"))?);
                }
            }
            Ok(out)
        })?;
        Ok(points)
    }

    /// Calls `each` with the cells of a tile, some at a time, since a tile has any number of cells: the
    /// number of the first of them in the fragment, and the indexes of all along each dimension.
    fn pieces(
        &self,
        space: &Space,
        tile: u64,
        keep: Option<Keep>,
        mut each: impl FnMut(u64, &[Vec<u64>]) -> Result<()>,
    ) -> Result<()> {
        let geometry = &self.info.geometry;
        let mut first = tile * geometry.tile_cells;
        let last = first + geometry.cells_of(tile);
        while first < last {
            let end = last.min(first.saturating_add(self.info.engine.tuning.point_cells));
            let columns = self.columns.iter().zip(&space.axes);
            let indexes = columns.map(|(column, axis)| {
                let size = axis.size() as u64;
                let bytes = first * size..end * size;
                let mut out = Output::keeping(keep);
                column.read(bytes, &mut out)?;
                let coordinates = out.chunks_exact(axis.size());
                coordinates.map(|coordinate| axis.index(coordinate)).collect()
            });
            each(first, &indexes.collect::<Result<Vec<_>>>()?)?;
            first = end;
        }
        Ok(())
    }

    /// Calls `each` with the cells in `wanted` that are in none of `hiding`, some at a time: the number of
    /// each in the fragment, and its position in `target`.
    pub(super) fn within(
        &self,
        space: &Space,
        wanted: &Area,
        hiding: &[&Area],
        target: &Target<'_>,
        keep: Option<Keep>,
        each: &mut dyn FnMut(Vec<(u64, u64)>) -> Result<()>,
    ) -> Result<()> {
        for (tile, bounds) in self.boxes.chunks_exact(self.columns.len()).enumerate() {
            let bounds = Area(bounds.to_vec());
            if !bounds.touches(wanted) {
                continue;
            }
            self.pieces(space, tile as u64, keep, |first, indexes| {
                let mut found = Vec::new();
                let mut place = vec![0; indexes.len()];
                for cell in 0..indexes[0].len() {
                    for (index, along) in place.iter_mut().zip(indexes) {
                        *index = along[cell];
                    }
                    if wanted.has(&place) && !hiding.iter().any(|area| area.has(&place)) {
                        found.push((first + cell as u64, target.position(place.iter().copied())));
                    }
                }
                each(found)
            })?;
        }
        Ok(())
    }
}
