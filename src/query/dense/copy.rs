//! Copies boxes of cells from a fragment to the output of a reader: their positions in both, the order of
//! reads, and the size of each.

use super::space::{Area, Space};
use crate::error::Result;
use crate::format::enums::Layout as Order;
use crate::format::schema::Schema;
use std::ops::Range;

/// The order in which a dense fragment stores its cells.
#[derive(Debug, Clone)]
pub(super) struct TileLayout {
    /// For each dimension: the number of the fragment's first tile in the array, the fragment's number of
    /// tiles, and the cells of a tile.
    axes: Vec<(u64, u64, u64)>,
    /// For each dimension, the distance in cells between neighbours in a tile.
    strides: Vec<u64>,
    tile_cells: u64,
    column_tiles: bool,
}

impl TileLayout {
    /// The layout of a fragment that covers `area` and was written with `schema`. It must have at most 2^64
    /// cells.
    pub(super) fn new(space: &Space, area: &Area, schema: &Schema) -> TileLayout {
        let axes: Vec<_> = space
            .axes
            .iter()
            .zip(&area.0)
            .map(|(axis, (first, last))| {
                let tile = first / axis.extent;
                (tile, last / axis.extent - tile + 1, axis.extent)
            })
            .collect();
        let mut strides = vec![1; axes.len()];
        let mut tile_cells = 1u64;
        let mut place = |(stride, (_, _, extent)): (&mut u64, &(u64, u64, u64))| {
            *stride = tile_cells;
            tile_cells *= extent;
        };
        let both = strides.iter_mut().zip(&axes);
        match schema.cell_order == Order::ColMajor {
            true => both.for_each(&mut place),
            false => both.rev().for_each(&mut place),
        }
        TileLayout {
            axes,
            strides,
            tile_cells,
            column_tiles: schema.tile_order == Order::ColMajor,
        }
    }

    /// The number of the first cell of `area` among all stored cells of the fragment.
    fn first(&self, area: &Area) -> u64 {
        let mut within = 0u64;
        let places = self.axes.iter().zip(&area.0).zip(&self.strides);
        let tiles = places.map(|((&(tile, tiles, extent), &(first, _)), stride)| {
            within += first % extent * stride;
            (first / extent - tile, tiles)
        });
        let number = |number: u64, (tile, tiles): (u64, u64)| number * tiles + tile;
        let tile = match self.column_tiles {
            true => {
                let tiles: Vec<_> = tiles.collect();
                tiles.into_iter().rev().fold(0, number)
            }
            false => tiles.fold(0, number),
        };
        tile * self.tile_cells + within
    }

    /// The plan to copy `area`, a box in one tile, to `target`.
    pub(super) fn plan(&self, area: &Area, target: &Target<'_>) -> Plan {
        let sides = area.0.iter().map(|(first, last)| last - first + 1);
        let axes = sides.zip(&self.strides).zip(target.strides);
        let axes = axes.map(|((count, &source), &dest)| Side { count, source, dest });
        Plan::strided(self.first(area), target.first(area), axes)
    }
}

/// The cells that a reader wants: a run of the cells of a box in row-major order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The first index of the box along each dimension.
    pub(super) origin: &'a [u64],
    /// For each dimension, the distance in cells between neighbours.
    pub(super) strides: &'a [u64],
    /// The number of the run's first cell in the box.
    pub(super) start: u64,
}

impl Target<'_> {
    /// The position in the run of the cell with the indexes `place`.
    pub(super) fn position(&self, place: impl Iterator<Item = u64>) -> u64 {
        let places = place.zip(self.origin).zip(self.strides);
        let cell: u64 = places
            .map(|((index, origin), stride)| (index - origin) * stride)
            .sum();
        cell - self.start
    }

    fn first(&self, area: &Area) -> u64 {
        self.position(area.0.iter().map(|(first, _)| *first))
    }

    /// The plan to write the fill value to `area`.
    pub(super) fn plan(&self, area: &Area) -> Plan {
        let sides = area.0.iter().map(|(first, last)| last - first + 1);
        let axes = sides.zip(self.strides).map(|(count, &dest)| Side {
            count,
            source: dest,
            dest,
        });
        Plan::strided(0, self.first(area), axes)
    }
}

/// Cells that are contiguous in the source, and `step` cells apart in the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) source: u64,
    pub(super) dest: u64,
    pub(super) count: u64,
    pub(super) step: u64,
}

/// One side of a box: its length, and the distances in cells between neighbours in source and destination.
#[derive(Debug, Clone, Copy)]
struct Side {
    count: u64,
    source: u64,
    dest: u64,
}

/// Pairs of source and destination cells, in the order of the source.
#[derive(Debug)]
pub(super) enum Plan {
    /// A box: its first cell in source and destination, and its sides, the slowest-varying in the source
    /// first.
    #[allow(private_interfaces)]
    Box(u64, u64, Vec<Side>),
    /// Single cells: the number of each in source and destination.
    Cells(Vec<(u64, u64)>),
}

impl Plan {
    fn strided(source: u64, dest: u64, sides: impl Iterator<Item = Side>) -> Plan {
        let mut sides: Vec<Side> = sides.filter(|side| side.count > 1).collect();
        sides.sort_unstable_by_key(|side| std::cmp::Reverse(side.source));
        // Two sides that are contiguous in both source and destination become one.
        sides.dedup_by(|inner, outer| {
            let joined = |inner: u64, outer: u64, count: u64| inner.checked_mul(count) == Some(outer);
            let one = joined(inner.source, outer.source, inner.count)
                && joined(inner.dest, outer.dest, inner.count);
            if one {
                outer.count *= inner.count;
                (outer.source, outer.dest) = (inner.source, inner.dest);
            }
            one
        });
        Plan::Box(source, dest, sides)
    }

    /// Calls `each` with every run, in the order of the source.
    pub(super) fn runs(&self, mut each: impl FnMut(Run) -> Result<()>) -> Result<()> {
        let (mut source, mut dest, sides) = match self {
            Plan::Box(source, dest, sides) => (*source, *dest, sides),
            Plan::Cells(cells) => {
                return cells.iter().try_for_each(|&(source, dest)| {
                    each(Run {
                        source,
                        dest,
                        count: 1,
                        step: 1,
                    })
                });
            }
        };
        let single = Side {
            count: 1,
            source: 1,
            dest: 1,
        };
        let (inner, outer) = match sides.split_last() {
            Some((inner, outer)) if inner.source == 1 => (*inner, outer),
            _ => (single, sides.as_slice()),
        };
        let mut places = vec![0; outer.len()];
        loop {
            each(Run {
                source,
                dest,
                count: inner.count,
                step: inner.dest,
            })?;
            let mut sides = places.iter_mut().zip(outer).rev();
            let advanced = sides.any(|(place, side)| {
                *place += 1;
                if *place < side.count {
                    source += side.source;
                    dest += side.dest;
                    return true;
                }
                *place = 0;
                source -= (side.count - 1) * side.source;
                dest -= (side.count - 1) * side.dest;
                false
            });
            if !advanced {
                return Ok(());
            }
        }
    }

    /// Calls `each` with each window of the source and the runs in it. A window is a range of cells of one
    /// tile that are read at once. `size` is the bytes of a cell in the source.
    pub(super) fn windows(
        &self,
        size: u64,
        tile_cells: u64,
        mut each: impl FnMut(Range<u64>, &[Run]) -> Result<()>,
    ) -> Result<()> {
        let (most, gap) = ((MAX_WINDOW / size).max(1), MAX_GAP / size);
        let mut runs: Vec<Run> = Vec::new();
        let (mut start, mut end, mut limit) = (0, 0, 0);
        self.runs(|mut run| {
            while run.count > 0 {
                if runs.is_empty() || run.source >= limit || run.source - end > gap || runs.len() >= MAX_RUNS
                {
                    if !runs.is_empty() {
                        each(start..end, &runs)?;
                        runs.clear();
                    }
                    let tile = run.source / tile_cells * tile_cells;
                    start = run.source;
                    // The end of the window in which the run begins, or of the tile.
                    let windows = (run.source - tile) / most + 1;
                    limit = tile + windows.saturating_mul(most).min(tile_cells);
                }
                let part = Run {
                    count: run.count.min(limit - run.source),
                    ..run
                };
                runs.push(part);
                end = part.source + part.count;
                run.source = end;
                run.dest += part.count * run.step;
                run.count -= part.count;
            }
            Ok(())
        })?;
        match runs.is_empty() {
            true => Ok(()),
            false => each(start..end, &runs),
        }
    }
}

/// The most bytes of a window. Most chunks have as many, so that a window is in a single chunk and need not
/// be assembled.
const MAX_WINDOW: u64 = 64 << 10;

/// Runs with a gap of at most this many bytes between them are read in one window.
const MAX_GAP: u64 = 4 << 10;

/// The most runs of a window.
const MAX_RUNS: usize = 4096;

/// Panics unless the `count` cells `first`, `first + step`, … are among the `size` bytes each of `bytes`.
pub(super) fn assert_inside(first: usize, step: usize, count: usize, size: usize, bytes: usize) {
    let end = if count == 0 {
        first
    } else {
        first + (count - 1) * step + 1
    };
    assert!(
        end * size <= bytes,
        "cells up to {end} do not fit into {bytes} bytes"
    );
}

/// Copies the cells of `size` bytes in `from` to the cells `first`, `first + step`, `first + 2 * step` … of
/// `to`.
pub(super) fn scatter(size: usize, from: &[u8], to: &mut [u8], first: usize, step: usize) {
    fn by<const N: usize>(from: &[u8], to: &mut [u8], first: usize, step: usize) {
        let places = &mut to.as_chunks_mut::<N>().0[first..];
        for (place, cell) in places.iter_mut().step_by(step).zip(from.as_chunks::<N>().0) {
            *place = *cell;
        }
    }
    assert_inside(first, step, from.len() / size, size, to.len());
    let start = first * size;
    match (step, size) {
        (1, _) => {
            to[start..start + from.len()].copy_from_slice(from);
        }
        (_, 1) => by::<1>(from, to, first, step),
        (_, 2) => by::<2>(from, to, first, step),
        (_, 4) => by::<4>(from, to, first, step),
        (_, 8) => by::<8>(from, to, first, step),
        _ => {
            let places = to[start..].chunks_exact_mut(size);
            for (place, cell) in places.step_by(step).zip(from.chunks_exact(size)) {
                place.copy_from_slice(cell);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The cells of a fragment of 2 by 3 tiles of 4 by 5 cells that begins in tile (1, 2), in the order in
    /// which they are stored.
    fn stored(column_tiles: bool, column_cells: bool) -> HashMap<(u64, u64), u64> {
        let order = |column: bool, rows: u64, columns: u64| -> Vec<(u64, u64)> {
            match column {
                false => (0..rows)
                    .flat_map(|r| (0..columns).map(move |c| (r, c)))
                    .collect(),
                true => (0..columns)
                    .flat_map(|c| (0..rows).map(move |r| (r, c)))
                    .collect(),
            }
        };
        let tiles = order(column_tiles, 2, 3);
        let cells = tiles.into_iter().flat_map(|(tr, tc)| {
            let cells = order(column_cells, 4, 5).into_iter();
            cells.map(move |(r, c)| ((1 + tr) * 4 + r, (2 + tc) * 5 + c))
        });
        cells.zip(0..).collect()
    }

    fn layout(column_tiles: bool, column_cells: bool) -> TileLayout {
        TileLayout {
            axes: vec![(1, 2, 4), (2, 3, 5)],
            strides: if column_cells { vec![1, 4] } else { vec![5, 1] },
            tile_cells: 20,
            column_tiles,
        }
    }

    #[test]
    fn cells_outside_of_the_answer_are_never_left_out() {
        for size in [1, 2, 3, 4, 8] {
            let from = vec![1; 2 * size];
            let copy = |first, step| {
                let mut to = vec![0; 5 * size];
                scatter(size, &from, &mut to, first, step);
                to.iter().filter(|byte| **byte == 1).count()
            };
            let copied = |(first, step)| std::panic::catch_unwind(|| copy(first, step)).ok();
            for inside in [(0, 1), (3, 1), (0, 4), (1, 3), (2, 2)] {
                assert_eq!(copied(inside), Some(from.len()));
            }
            for outside in [(4, 1), (5, 1), (9, 1), (0, 5), (3, 2), (5, 2), (9, 2)] {
                assert_eq!(copied(outside), None, "{outside:?}");
            }
        }
    }

    #[test]
    fn cells_are_found_in_every_order() {
        let (origin, strides) = ([3, 7], [30, 1]);
        for (column_tiles, column_cells) in [(false, false), (false, true), (true, false), (true, true)] {
            let stored = stored(column_tiles, column_cells);
            let layout = layout(column_tiles, column_cells);
            for (rows, columns) in [
                ((4, 7), (10, 14)),
                ((5, 6), (11, 11)),
                ((9, 11), (16, 19)),
                ((8, 8), (20, 24)),
            ] {
                let start = (rows.0 - 3) * 30;
                let target = Target {
                    origin: &origin,
                    strides: &strides,
                    start,
                };
                let plan = layout.plan(&Area(vec![rows, columns]), &target);
                let mut copied = HashMap::new();
                plan.windows(8, 20, |window, runs| {
                    for run in runs {
                        assert!(window.contains(&run.source) && run.source + run.count <= window.end);
                        for i in 0..run.count {
                            copied.insert(run.dest + i * run.step, run.source + i);
                        }
                    }
                    Ok(())
                })
                .unwrap();
                let cells = (rows.0..=rows.1).flat_map(|r| (columns.0..=columns.1).map(move |c| (r, c)));
                let wanted = cells.map(|(r, c)| ((r - 3) * 30 + c - 7 - start, stored[&(r, c)]));
                assert_eq!(copied, wanted.collect());
            }
        }
    }

    #[test]
    fn what_lies_together_is_one_run() {
        let target = Target {
            origin: &[4, 10],
            strides: &[5, 1],
            start: 0,
        };
        let mut runs = Vec::new();
        let plan = layout(false, false).plan(&Area(vec![(4, 7), (10, 14)]), &target);
        plan.runs(|run| {
            runs.push(run);
            Ok(())
        })
        .unwrap();
        let all = Run {
            source: 0,
            dest: 0,
            count: 20,
            step: 1,
        };
        assert_eq!(runs, [all]);
    }

    #[test]
    fn windows_end_where_chunks_do() {
        let mut windows = Vec::new();
        let run = [Side {
            count: 100_000,
            source: 1,
            dest: 1,
        }];
        let plan = Plan::strided(50_000, 0, run.into_iter());
        plan.windows(4, 70_000, |window, _| {
            windows.push(window);
            Ok(())
        })
        .unwrap();
        let ends = [
            50_000, 65_536, 70_000, 86_384, 102_768, 119_152, 135_536, 140_000, 150_000,
        ];
        let expected: Vec<Range<u64>> = ends.windows(2).map(|ends| ends[0]..ends[1]).collect();
        assert_eq!(windows, expected);
    }

    #[test]
    fn cells_of_every_size_are_scattered() {
        for size in [1usize, 2, 3, 4, 8, 16] {
            for step in [1usize, 3] {
                let from: Vec<u8> = (0..5 * size as u8).collect();
                let mut to = vec![255; 20 * size];
                scatter(size, &from, &mut to, 2, step);
                for cell in 0..20usize {
                    let n = cell.wrapping_sub(2);
                    let own = n % step == 0 && n / step < 5;
                    let expected = match own {
                        true => from[n / step * size..][..size].to_vec(),
                        false => vec![255; size],
                    };
                    assert_eq!(to[cell * size..][..size], expected);
                }
            }
        }
    }
}
