//! Checks the coordinates of a sparse fragment: decodes all dimensions together, and compares them with the
//! R-tree, the global order and the stored sums.

use super::cells::{CELLS, CellRun};
use super::field::tile_runs;
use super::files::Files;
use super::fragment::Shared;
use super::queue::Job;
use super::statistics::{Class, Summary};
use super::stored::Stored;
use super::written_order::WrittenOrder;
use super::{Checker, Kind, Problem};
use crate::error::Error;
use crate::format::range::{Range as Bounds, compare};
use crate::fragment::field::Role;
use crate::fragment::field_files::Tile;
use crate::runtime::lock;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, Mutex};

struct Work {
    shared: Arc<Shared>,
    /// The zipped coordinates; None from version 5 on.
    zipped: Option<Files>,
    /// The dimensions in the schema's order.
    dimensions: Vec<Dimension>,
    order: Option<WrittenOrder>,
    total: Mutex<Total>,
}

struct Dimension {
    files: Files,
    class: Class,
    stored: Stored,
    /// Whether a lossy filter changed the coordinates when they were written. The boxes and the order are
    /// then those of other coordinates.
    lossy: bool,
}

struct Total {
    /// The statistics of each dimension; None if a tile could not be decoded.
    summaries: Vec<Option<Summary>>,
    left: usize,
}

/// Makes the jobs that check the coordinates.
pub(super) fn check(checker: &Checker, shared: Arc<Shared>) {
    let info = shared.info.clone();
    let (mut zipped, mut dimensions) = (None, Vec::new());
    for field in info.fields.iter().filter(|field| info.stores(field)) {
        match field.role {
            Role::Coordinates => zipped = Some(Files::open(checker, &info, field)),
            Role::Dimension(_) | Role::ZippedDimension(_) => dimensions.push(Dimension {
                files: Files::open(checker, &info, field),
                class: Class::of(field.datatype, field.cell_val_num),
                stored: Stored::read(&info, field),
                lossy: field.is_lossy(&info.schema),
            }),
            _ => {}
        }
    }
    if dimensions.len() != info.schema.dimensions.len() {
        let message = "the sparse fragment has no coordinates";
        checker.report(checker.problem(Kind::Size, &info.metadata_path(), message));
        return;
    }
    checker.tally.columns.add(dimensions.len() as u64);
    let own = dimensions.iter().map(|d| &d.files);
    let all: Vec<&Files> = match &zipped {
        Some(zipped) => vec![zipped],
        None => own.collect(),
    };
    let average = all
        .iter()
        .fold(0u64, |sum, files| sum.saturating_add(files.average_tile()));
    let tiles = all.iter().map(|files| files.tiles()).max().unwrap_or(0);
    let complete = tiles == info.geometry.tile_num;
    let runs: Vec<Range<u64>> = tile_runs(tiles, average).collect();
    let work = Arc::new(Work {
        order: WrittenOrder::new(&info.schema, info.writer.library_version)
            .filter(|_| !dimensions.iter().any(|d| d.lossy)),
        total: Mutex::new(Total {
            summaries: vec![complete.then(Summary::default); dimensions.len()],
            left: runs.len(),
        }),
        zipped,
        dimensions,
        shared,
    });
    let jobs = runs.into_iter().map(|run| {
        let work = work.clone();
        Box::new(move |checker: &Checker| work.run(checker, run)) as Job
    });
    checker.queue.push(jobs.collect());
}

/// What was decoded of one dimension of a tile.
#[derive(Default)]
struct Seen {
    cells: CellRun,
    summary: Summary,
    /// Minimum and maximum of string coordinates, which `summary` does not hold.
    texts: Option<Bounds>,
    /// Whether decoding failed.
    failed: bool,
}

impl Work {
    fn run(&self, checker: &Checker, tiles: Range<u64>) {
        let mut seen: Vec<Seen> = self.dimensions.iter().map(|_| Seen::default()).collect();
        let mut sums: Vec<Option<Summary>> = vec![Some(Summary::default()); self.dimensions.len()];
        let mut previous = tiles
            .start
            .checked_sub(1)
            .and_then(|before| self.last_cell(before));
        for number in tiles {
            previous = self.tile(checker, number, &mut seen, previous);
            for ((seen, sum), dimension) in seen.iter_mut().zip(&mut sums).zip(&self.dimensions) {
                let summary = std::mem::take(&mut seen.summary);
                if seen.failed {
                    *sum = None;
                    continue;
                }
                dimension
                    .stored
                    .check_tile(checker, &self.shared.info, number, &summary.clone().into());
                if let Some(sum) = sum {
                    sum.merge(summary);
                }
            }
        }
        let mut total = lock(&self.total);
        for (total, sum) in total.summaries.iter_mut().zip(sums) {
            match (total.as_mut(), sum) {
                (Some(total), Some(sum)) => total.merge(sum),
                _ => *total = None,
            }
        }
        total.left -= 1;
        if total.left == 0 {
            for (dimension, total) in self.dimensions.iter().zip(&total.summaries) {
                if let Some(total) = total {
                    let total = total.clone().into();
                    dimension.stored.check_fragment(checker, &self.shared, &total);
                }
            }
        }
    }

    /// The coordinates of the last cell of a tile; None if they cannot be read. Errors are left to the job
    /// that checks that tile.
    fn last_cell(&self, number: u64) -> Option<Vec<Vec<u8>>> {
        self.order.as_ref()?;
        let cell_num = self.shared.info.geometry.cells_of(number);
        let mut cells = CellRun::default();
        let cell = self.dimensions.iter().map(|d| {
            let tile = d.files.find(number, |_| {})?;
            cells.read(&d.files, &tile, cell_num.checked_sub(1)?, 1).ok()?;
            (!cells.too_long).then(|| cells.cell(0, d.files.field.cell_size()).to_vec())
        });
        cell.collect()
    }

    /// Decodes a tile. `previous` is the cell before its first one. Returns its last cell if all dimensions
    /// could be decoded.
    fn tile(
        &self,
        checker: &Checker,
        number: u64,
        seen: &mut [Seen],
        mut previous: Option<Vec<Vec<u8>>>,
    ) -> Option<Vec<Vec<u8>>> {
        let sound = match &self.zipped {
            Some(zipped) => zipped.tile(checker, number).is_some(),
            None => true,
        };
        let mut tiles: Vec<Option<Tile>> = Vec::new();
        for (dimension, seen) in self.dimensions.iter().zip(seen.iter_mut()) {
            let tile = dimension.files.tile(checker, number).filter(|_| sound);
            seen.failed = tile.is_none();
            seen.texts = None;
            tiles.push(tile);
        }
        let cell_num = self.shared.info.geometry.cells_of(number);
        let (mut first, mut ordered) = (0, self.order.is_some());
        let mut last_error: Option<String> = None;
        while first < cell_num && seen.iter().any(|seen| !seen.failed) {
            for ((dimension, tile), seen) in self.dimensions.iter().zip(&tiles).zip(seen.iter_mut()) {
                let Some(tile) = tile.as_ref().filter(|_| !seen.failed) else {
                    continue;
                };
                if let Err(e) = seen.cells.read(&dimension.files, tile, first, CELLS) {
                    seen.failed = true;
                    self.report_once(checker, &dimension.files, &e, &mut last_error);
                }
                checker.tally.bytes.add(seen.cells.bytes);
                seen.failed |= seen.cells.too_long;
            }
            let count = seen
                .iter()
                .filter(|seen| !seen.failed)
                .map(|seen| seen.cells.count)
                .min();
            let Some(count) = count.filter(|&count| count > 0) else {
                break;
            };
            for (dimension, seen) in self.dimensions.iter().zip(seen.iter_mut()) {
                if !seen.failed {
                    dimension.add(seen, count);
                }
            }
            ordered &= !seen.iter().any(|seen| seen.failed);
            if ordered {
                ordered = self.check_order(checker, number, first, count, seen, &previous);
                previous = Some(self.cell(seen, count - 1));
            }
            first += count as u64;
        }
        self.check_box(checker, number, seen);
        previous.filter(|_| !seen.iter().any(|seen| seen.failed))
    }

    /// Reports an error. The dimensions of zipped coordinates share chunks, so that the same error may come
    /// once for each: it is reported once.
    fn report_once(&self, checker: &Checker, files: &Files, error: &Error, last: &mut Option<String>) {
        let text = error.to_string();
        if self.zipped.is_none() || last.as_ref() != Some(&text) {
            checker.report(files.problem(error));
        }
        *last = Some(text);
    }

    fn cell(&self, seen: &[Seen], i: usize) -> Vec<Vec<u8>> {
        let dimensions = self.dimensions.iter().zip(seen);
        dimensions
            .map(|(d, seen)| seen.cells.cell(i, d.files.field.cell_size()).to_vec())
            .collect()
    }

    /// Whether the first `count` cells in `seen` are in global order, after `previous`. Reports the first
    /// that is not.
    fn check_order(
        &self,
        checker: &Checker,
        number: u64,
        first: u64,
        count: usize,
        seen: &[Seen],
        previous: &Option<Vec<Vec<u8>>>,
    ) -> bool {
        let Some(order) = &self.order else { return true };
        let sizes: Vec<Option<u64>> = self
            .dimensions
            .iter()
            .map(|d| d.files.field.cell_size())
            .collect();
        let mut before: Vec<&[u8]> = previous.iter().flatten().map(Vec::as_slice).collect();
        let mut cell: Vec<&[u8]> = Vec::new();
        for i in 0..count {
            cell.clear();
            cell.extend(
                seen.iter()
                    .zip(&sizes)
                    .map(|(seen, size)| seen.cells.cell(i, *size)),
            );
            if !before.is_empty() && order.compare(&before, &cell) == Ordering::Greater {
                let at = first + i as u64;
                let message = format!(
                    "cell {at} is out of order: in global order it comes before the cell stored before it"
                );
                let problem = Problem::new(Kind::Order, self.dimensions[0].files.path(), message);
                checker.report(problem.in_part(format_args!("tile {number}")));
                return false;
            }
            std::mem::swap(&mut before, &mut cell);
        }
        true
    }

    /// Compares the minima and maxima of a tile's coordinates with its bounding box.
    fn check_box(&self, checker: &Checker, number: u64, seen: &[Seen]) {
        let Some(stored) = self.shared.boxes.as_ref().and_then(|boxes| boxes.tile(number)) else {
            return;
        };
        for ((dimension, seen), stored) in self.dimensions.iter().zip(seen).zip(&stored) {
            if seen.failed || dimension.lossy {
                continue;
            }
            let field = &dimension.files.field;
            let wrong = match (&seen.texts, &seen.summary.values) {
                // libtiledb before format version 9 wrote wrong boxes for strings.
                (Some(_), _) if self.shared.info.writer.library_version < 9 => None,
                (Some(texts), _) if texts != stored => {
                    Some("the stored range is not the minimum and maximum of the coordinates".to_owned())
                }
                (None, Some(_)) => seen
                    .summary
                    .wrong_min(field.datatype, &stored.lo)
                    .or_else(|| seen.summary.wrong_max(field.datatype, &stored.hi)),
                _ => None,
            };
            if let Some(message) = wrong {
                let path = checker.show(&self.shared.info.metadata_path());
                let name = String::from_utf8_lossy(&field.name).into_owned();
                let problem = Problem::new(Kind::RTree, path, message);
                checker
                    .report(problem.in_part(format_args!("bounding box, dimension `{name}`, tile {number}")));
            }
        }
    }
}

impl Dimension {
    /// Adds the first `count` cells that were read to the statistics.
    fn add(&self, seen: &mut Seen, count: usize) {
        let field = &self.files.field;
        match self.class {
            Class::Number => {
                let bytes = &seen.cells.data[..count * field.datatype.size()];
                seen.summary.add_numbers(field.datatype, bytes, &[]);
            }
            Class::Text | Class::Opaque => {
                for i in 0..count {
                    let cell = seen.cells.cell(i, field.cell_size());
                    let bounds = seen.texts.get_or_insert_with(|| Bounds {
                        lo: cell.to_vec(),
                        hi: cell.to_vec(),
                    });
                    let order = |bound: &[u8]| compare(field.datatype, field.cell_val_num, cell, bound);
                    if order(&bounds.lo) == Some(Ordering::Less) {
                        bounds.lo = cell.to_vec();
                    }
                    if order(&bounds.hi) == Some(Ordering::Greater) {
                        bounds.hi = cell.to_vec();
                    }
                }
            }
        }
    }
}
