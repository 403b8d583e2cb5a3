//! Separates the cells of a dense tile inside the fragment's non-empty domain from the padding.

use crate::format::enums::Layout;
use crate::fragment::geometry::{DenseAxis, dense_axis};
use crate::fragment::info::FragmentInfo;
use std::ops::Range;

/// The grid of tiles of a dense fragment.
pub(crate) struct TileGrid {
    axes: Vec<DenseAxis>,
    column_tiles: bool,
    column_cells: bool,
}

/// The cells of one tile that are in the non-empty domain: a range along each axis, the fastest axis first.
pub(crate) struct Window {
    /// Extent of the tile, first and last cell inside.
    axes: Vec<(u64, u64, u64)>,
}

impl TileGrid {
    /// The grid of a fragment; None if it is sparse.
    pub(crate) fn new(info: &FragmentInfo) -> Option<TileGrid> {
        let domain = info.non_empty_domain().filter(|_| info.footer.dense)?;
        let axes = info.schema.dimensions.iter().zip(domain);
        let axes =
            axes.map(|(d, range)| dense_axis(d, range).expect("the fragment's geometry is made of them"));
        Some(TileGrid {
            axes: axes.collect(),
            column_tiles: info.schema.tile_order == Layout::ColMajor,
            column_cells: info.schema.cell_order == Layout::ColMajor,
        })
    }

    /// The cells of `tile` that are in the non-empty domain.
    pub(crate) fn window(&self, tile: u64) -> Window {
        let mut rest = tile;
        let mut along = |axis: &DenseAxis| {
            let place = rest % axis.tiles;
            rest /= axis.tiles;
            let first = if place == 0 { axis.first } else { 0 };
            let last = match place + 1 == axis.tiles {
                true => axis.last,
                false => axis.extent - 1,
            };
            (axis.extent, first, last)
        };
        // Tile numbers count the fastest dimension first.
        let mut axes: Vec<_> = match self.column_tiles {
            true => self.axes.iter().map(&mut along).collect(),
            false => self.axes.iter().rev().map(&mut along).collect(),
        };
        if self.column_tiles != self.column_cells {
            axes.reverse();
        }
        Window { axes }
    }
}

impl Window {
    /// Whether all cells of the tile are inside.
    pub(crate) fn is_full(&self) -> bool {
        let mut axes = self.axes.iter();
        axes.all(|&(extent, first, last)| first == 0 && last + 1 == extent)
    }

    /// The runs of `cells` (positions in the tile) that are inside.
    pub(crate) fn runs(&self, cells: Range<u64>) -> Vec<Range<u64>> {
        if self.is_full() {
            return vec![cells];
        }
        let Some((&(width, first, last), outer)) = self.axes.split_first() else {
            return vec![cells];
        };
        let mut runs = Vec::new();
        for row in cells.start / width..cells.end.div_ceil(width) {
            let mut rest = row;
            let inside = outer.iter().all(|&(extent, first, last)| {
                let place = rest % extent;
                rest /= extent;
                (first..=last).contains(&place)
            });
            let base = row * width;
            let start = (base + first).max(cells.start);
            let end = (base + last + 1).min(cells.end);
            if inside && start < end {
                runs.push(start..end);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(tiles: u64, extent: u64, first: u64, last: u64) -> DenseAxis {
        DenseAxis {
            tiles,
            extent,
            first,
            last,
        }
    }

    /// Two by three tiles of 4 x 5 cells; the non-empty domain cuts all outer ones.
    fn grid(column_tiles: bool, column_cells: bool) -> TileGrid {
        TileGrid {
            axes: vec![axis(2, 4, 1, 2), axis(3, 5, 2, 3)],
            column_tiles,
            column_cells,
        }
    }

    #[test]
    fn padding_is_left_out() {
        // Row-major: tile 0 has rows 1 to 3 and columns 2 to 4 inside.
        let window = grid(false, false).window(0);
        assert_eq!(window.runs(0..20), [7..10, 12..15, 17..20]);
        assert_eq!(window.runs(8..13), [8..10, 12..13]);
        // Tile 4 is in the second row of tiles: rows 0 to 2, all columns.
        assert_eq!(grid(false, false).window(4).runs(0..20), [0..5, 5..10, 10..15]);
        // In column-major tile order, tile 1 is below tile 0.
        let window = grid(true, false).window(1);
        assert_eq!(window.runs(0..20), [2..5, 7..10, 12..15]);
        // In column-major cell order, the cells of a column are contiguous.
        let window = grid(false, true).window(0);
        assert_eq!(window.runs(0..20), [9..12, 13..16, 17..20]);
    }

    #[test]
    fn a_full_tile_is_one_run() {
        let grid = TileGrid {
            axes: vec![axis(1, 4, 0, 3), axis(2, 5, 0, 4)],
            column_tiles: false,
            column_cells: false,
        };
        assert_eq!(grid.window(1).runs(3..17), vec![3..17; 1]);
    }
}
