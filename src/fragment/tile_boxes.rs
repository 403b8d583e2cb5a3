//! The minimum bounding rectangles (MBRs) of a sparse fragment's tiles, across format versions.

use super::info::FragmentInfo;
use crate::error::Result;
use crate::format::fragment::RTree;
use crate::format::fragment::boxes::Bounds;

impl FragmentInfo {
    /// Whether the MBRs can be trusted: libraries before format 9 wrote wrong MBRs of strings, and those
    /// before 10 left tiles out of the non-empty domain of strings.
    pub fn has_sound_boxes(&self) -> bool {
        !self.dense && (self.writer.library_version >= 10 || self.schema.all_dimensions_fixed())
    }

    /// Calls `visit` with the MBR of each tile, in order.
    pub fn visit_tile_boxes(&self, visit: impl FnMut(u64, &[Bounds<'_>]) -> Result<()>) -> Result<()> {
        let visited = match &self.footer.inline {
            Some(inline) => {
                let boxes = &inline.mbrs.boxes;
                boxes.visit(&inline.mbrs.body.as_slice(), 0..boxes.len(), visit)
            }
            None => {
                let offset = self.footer.offsets.rtree;
                let body = self.generic_body(offset);
                RTree::parse(&body, self.footer.version, &self.schema)
                    .map_err(|e| e.in_part("R-tree").at(offset))
                    .and_then(|rtree| match rtree.leaves() {
                        Some(leaves) => leaves.visit(&body, 0..leaves.len(), visit),
                        None => Ok(()),
                    })
            }
        };
        visited.map_err(|e| self.place(e))
    }
}
