//! Checks a field that is not a dimension: decodes its tiles, and compares their statistics.

use super::cells::{CELLS, CellRun, odd_validity};
use super::files::Files;
use super::fragment::Shared;
use super::grid::{TileGrid, Window};
use super::queue::Job;
use super::statistics::{Class, Integers, Summaries, Summary, Totals};
use super::stored::Stored;
use super::{Checker, Kind, Problem};
use crate::bytes::numbers;
use crate::error::Result;
use crate::fragment::field::{Role, StoredField};
use crate::fragment::field_files::Tile;
use crate::runtime::lock;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// About how many stored bytes one job decodes.
const JOB: u64 = 8 << 20;

/// The most tiles that one job decodes.
const JOB_TILES: u64 = 65_536;

/// Splits tiles 0 to `tiles` into runs of about [`JOB`] bytes, one for each job. `average` is the average
/// stored size of a tile, in bytes.
pub(super) fn tile_runs(tiles: u64, average: u64) -> impl Iterator<Item = Range<u64>> {
    let step = (JOB / average.max(1)).clamp(1, JOB_TILES);
    (0..tiles.div_ceil(step)).map(move |i| {
        let start = i * step;
        start..(start + step).min(tiles)
    })
}

struct Work {
    shared: Arc<Shared>,
    files: Files,
    class: Class,
    grid: Option<TileGrid>,
    stored: Stored,
    /// Number of values of the enumeration that the field indexes.
    enumeration: Option<u64>,
    total: Mutex<Total>,
}

/// The result of all tiles that were decoded so far.
struct Total {
    summary: Summaries,
    /// Number of runs of tiles that are not done.
    left: usize,
    /// Whether every tile could be decoded.
    complete: bool,
}

/// Makes the jobs that check the tiles of `field`.
pub(super) fn check(checker: &Checker, shared: Arc<Shared>, field: StoredField) {
    checker.tally.columns.add(1);
    let info = &shared.info;
    let files = Files::open(checker, info, &field);
    let runs: Vec<Range<u64>> = tile_runs(files.tiles(), files.average_tile()).collect();
    let work = Arc::new(Work {
        class: Class::of(field.datatype, field.cell_val_num),
        grid: TileGrid::new(info),
        stored: Stored::read(info, &field),
        enumeration: enumeration(&shared, &field),
        total: Mutex::new(Total {
            summary: Summaries::default(),
            left: runs.len(),
            complete: files.tiles() == info.geometry.tile_num,
        }),
        files,
        shared,
    });
    let jobs = runs.into_iter().map(|run| {
        let work = work.clone();
        Box::new(move |checker: &Checker| work.run(checker, run)) as Job
    });
    checker.queue.push(jobs.collect());
}

/// The number of values in the enumeration of a field. The enumeration is that of the newest schema that has
/// the attribute, as for readers: it may have been extended since the fragment was written, and the attribute
/// may have been dropped since.
fn enumeration(shared: &Shared, field: &StoredField) -> Option<u64> {
    let Role::Attribute(i) = field.role else {
        return None;
    };
    let own = &shared.info.schema;
    let attribute = own.attributes.get(i)?;
    let (listing, now) = (shared.array.listing().ok()?, shared.array.engine.now());
    // Errors of schemas and of the enumeration's file are reported with the schemas.
    let written = listing
        .schemas
        .iter()
        .rev()
        .filter(|file| file.timestamps.1 <= now);
    let schemas = written.filter_map(|file| shared.array.schemas.get(&file.name).ok());
    let schema = schemas
        .chain([own.clone()])
        .find(|schema| schema.attribute(&attribute.name).is_some())?;
    let name = schema.attribute(&attribute.name)?.enumeration.as_ref()?;
    let enumeration = shared.array.enumeration(schema.enumeration_file(name)?).ok()?;
    Some(enumeration.values().len() as u64)
}

impl Work {
    fn run(&self, checker: &Checker, tiles: Range<u64>) {
        let mut cells = CellRun::default();
        let mut summary = Summaries::default();
        let mut complete = true;
        for number in tiles {
            let Some(tile) = self.files.tile(checker, number) else {
                complete = false;
                continue;
            };
            match self.tile(checker, &tile, &mut cells) {
                Ok(found) => {
                    if let Some(found) = &found {
                        self.stored.check_tile(checker, &self.shared.info, number, found);
                    }
                    complete &= found.is_some();
                    summary.merge(found.unwrap_or_default());
                }
                Err(e) => {
                    checker.report(self.files.problem(&e));
                    complete = false;
                }
            }
        }
        let mut total = lock(&self.total);
        total.summary.merge(summary);
        total.complete &= complete;
        total.left -= 1;
        if total.left == 0 {
            if total.complete {
                self.stored.check_fragment(checker, &self.shared, &total.summary);
            }
            self.check_values(checker, &total.summary.inside);
        }
    }

    /// Decodes a tile and returns its statistics; None if it has cells that are too long to be kept.
    fn tile(&self, checker: &Checker, tile: &Tile, cells: &mut CellRun) -> Result<Option<Summaries>> {
        let window = self.grid.as_ref().map(|grid| grid.window(tile.number));
        let mut summary = Summaries::default();
        let mut padded = window.as_ref().is_some_and(|window| !window.is_full());
        padded &= self.class != Class::Opaque;
        summary.all = padded.then(Summary::default);
        let (mut first, mut known, mut odd) = (0, true, false);
        while first < tile.cells {
            cells.read(&self.files, tile, first, CELLS)?;
            checker.tally.bytes.add(cells.bytes);
            first = cells.in_tile().end;
            known &= !cells.too_long;
            if !odd && let Some(problem) = odd_validity(&self.files, tile, cells) {
                checker.report(problem);
                odd = true;
            }
            if !cells.too_long {
                self.add(&mut summary.inside, cells, window.as_ref());
                if let Some(all) = &mut summary.all {
                    self.add(all, cells, None);
                }
            }
            if self.files.field.role == Role::DeleteConditionIndex {
                self.check_conditions(checker, tile, cells);
            }
        }
        summary.tile_of_nulls = summary.inside.valid == 0;
        Ok(known.then_some(summary))
    }

    /// Adds the cells that lie in `window` to `summary`.
    fn add(&self, summary: &mut Summary, cells: &CellRun, window: Option<&Window>) {
        let field = &self.files.field;
        let runs = match window {
            Some(window) => window.runs(cells.in_tile()),
            None => vec![cells.in_tile()],
        };
        for run in runs {
            let range = (run.start - cells.first) as usize..(run.end - cells.first) as usize;
            let validity = match field.nullable {
                true => &cells.validity[range.clone()],
                false => &[],
            };
            match self.class {
                Class::Opaque => summary.add_validity(range.len() as u64, validity),
                Class::Text => {
                    for (i, cell) in range.enumerate() {
                        if validity.get(i) == Some(&0) {
                            summary.nulls += 1;
                        } else {
                            summary.add_text(cells.cell(cell, field.cell_size()));
                        }
                    }
                }
                Class::Number => {
                    let size = field.datatype.size();
                    let values = &cells.data[range.start * size..range.end * size];
                    summary.add_numbers(field.datatype, values, validity);
                }
            }
        }
    }

    /// Checks the indexes of delete conditions: each is that of a processed condition, or 2^64 - 1 for none.
    fn check_conditions(&self, checker: &Checker, tile: &Tile, cells: &CellRun) {
        let Some(count) = self.shared.conditions else {
            return;
        };
        let wrong = |index: &u64| *index != u64::MAX && *index >= count;
        let Some(index) = numbers(&cells.data).find(wrong) else {
            return;
        };
        let message =
            format!("a cell names delete condition {index}, but the fragment has only {count} of them");
        let problem = Problem::new(Kind::Timestamps, self.files.path(), message);
        checker.report(problem.in_part(format_args!("tile {}", tile.number)));
    }

    /// Checks that enumeration indexes lie in the enumeration, and timestamps in the fragment's range.
    fn check_values(&self, checker: &Checker, summary: &Summary) {
        let name = String::from_utf8_lossy(&self.files.field.name).into_owned();
        let found = |kind, message: String| {
            Problem::new(kind, self.files.path(), message).in_part(format_args!("field `{name}`"))
        };
        let Some(Totals::Integers(Integers { min, max, .. })) = &summary.values else {
            return;
        };
        if let Some(count) = self.enumeration {
            let outside = match *max >= i128::from(count) {
                true => Some(max),
                false => Some(min).filter(|min| **min < 0),
            };
            if let Some(index) = outside {
                let message = format!(
                    "index {index} is outside of the enumeration, which has {count} values; readers take \
                     it for missing"
                );
                checker.report(found(Kind::Enumeration, message).noted());
            }
        }
        if self.files.field.role == Role::Timestamps {
            let (start, end) = self.shared.info.name.timestamps;
            if *min < i128::from(start) || *max > i128::from(end) {
                let message = format!(
                    "the cells' timestamps are {min} to {max}, but the fragment's name says {start} to {end}"
                );
                let problem = found(Kind::Timestamps, message);
                // The name ends with the time of the last fragment that was consolidated, by their order: of
                // fragments that overlap in time, another may have later cells.
                checker.report(match *min < i128::from(start) {
                    true => problem,
                    false => problem.noted(),
                });
            }
        }
    }
}
