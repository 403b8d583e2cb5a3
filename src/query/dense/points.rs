//! Sparse fragments in dense arrays, written by old versions of libtiledb. Each sets the cells at its
//! coordinates.

use super::copy::Target;
use super::space::{Area, Space};
use super::stack::Stack;
use crate::bytes::{Bytes, Keep, Output};
use crate::error::{Error, Result};
use crate::fragment::column::{Column, Content, OpenColumn};
use crate::fragment::field::Role;
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
            let mut fields = info.fields.iter();
            let field = fields
                .find(|field| [Role::Dimension(index), Role::ZippedDimension(index)].contains(&field.role));
            let field = field
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
        let bounds = size_of::<(u64, u64)>().saturating_mul(points.columns.len());
        let size = info.geometry.tile_num.saturating_mul(bounds as u64);
        points.boxes = engine.cache.derive(key, size, Keep::Staying, || {
            let mut out = Vec::new();
            for tile in 0..info.geometry.tile_num {
                for indexes in points.tile(&stack.space, tile, Some(Keep::Passing))? {
                    let ends = indexes.iter().min().zip(indexes.iter().max());
                    let (first, last) = ends.ok_or_else(|| Error::internal("a tile has no cells"))?;
                    out.push((*first, *last));
                }
            }
            Ok(out)
        })?;
        Ok(points)
    }

    /// The indexes of a tile's cells along each dimension.
    fn tile(&self, space: &Space, tile: u64, keep: Option<Keep>) -> Result<Vec<Vec<u64>>> {
        let geometry = &self.info.geometry;
        let first = tile * geometry.tile_cells;
        let end = first + geometry.cells_of(tile);
        let columns = self.columns.iter().zip(&space.axes);
        let indexes = columns.map(|(column, axis)| {
            let size = axis.size() as u64;
            let bytes = first * size..end * size;
            let mut out = Output::keeping(keep);
            column.read(bytes, &mut out)?;
            let coordinates = out.chunks_exact(axis.size().max(1));
            coordinates.map(|coordinate| axis.index(coordinate)).collect()
        });
        indexes.collect()
    }

    /// The cells in `wanted` that are in none of `hiding`: the number of each in the fragment, and its
    /// position in `target`.
    pub(super) fn within(
        &self,
        space: &Space,
        wanted: &Area,
        hiding: &[&Area],
        target: &Target<'_>,
        keep: Option<Keep>,
    ) -> Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for (tile, bounds) in self.boxes.chunks_exact(self.columns.len().max(1)).enumerate() {
            let bounds = Area(bounds.to_vec());
            if !bounds.touches(wanted) {
                continue;
            }
            let indexes = self.tile(space, tile as u64, keep)?;
            let first = tile as u64 * self.info.geometry.tile_cells;
            let mut place = vec![0; indexes.len()];
            for cell in 0..indexes.first().map_or(0, Vec::len) {
                for (index, along) in place.iter_mut().zip(&indexes) {
                    *index = along[cell];
                }
                if wanted.has(&place) && !hiding.iter().any(|area| area.has(&place)) {
                    found.push((first + cell as u64, target.position(place.iter().copied())));
                }
            }
        }
        Ok(found)
    }
}
