//! The values of one field, put together from the fragments that the cells of a view are in.

use super::super::column::Runs;
use super::super::{Role, ViewField};
use super::{HELD, Merged, Piece as Run, find_field};
use crate::array::cells::{Cells, FragmentCells};
use crate::array::column::Content;
use crate::array::piece::Piece;
use crate::error::{Error, ErrorKind, Result};
use crate::format::schema::Schema;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What a fragment has of the field.
enum Stored {
    /// Nothing: its cells have the fill value.
    Nothing,
    /// The field.
    Cells(FragmentCells),
    /// Something that is no longer what the view's schema says.
    Changed(Error),
}

/// One field of a sparse view.
pub(super) struct Gather {
    merged: Arc<dyn Merged>,
    /// How many cells there are.
    count: u64,
    field: ViewField,
    /// The fill value, and whether it is valid.
    fill: Vec<u8>,
    fill_valid: bool,
    /// By input, in reading order.
    stored: Vec<OnceLock<Stored>>,
}

/// Where consecutive cells of an answer are.
struct Place {
    /// The first cell of the fragment.
    first: u64,
    /// How many.
    count: u64,
    /// Which of the segments holds them.
    segment: usize,
}

/// Cells of one fragment that are read at once.
struct Segment {
    input: usize,
    cells: Range<u64>,
    /// How many of them the answer has.
    wanted: u64,
}

/// Where the cells of an answer are, in its order.
struct Places {
    places: Vec<Place>,
    segments: Vec<Segment>,
}

/// Runs of so many cells on average are read one by one.
const LONG: u64 = 64;

/// Cells of a fragment that are read at once though not all are wanted: this many for each that is.
const WASTE: u64 = 8;

impl Segment {
    /// Takes in other cells of the same fragment, unless most of what were read then is not wanted.
    fn takes(&mut self, input: usize, cells: &Range<u64>, wanted: u64) -> bool {
        let all = self.cells.start.min(cells.start)..self.cells.end.max(cells.end);
        let wanted = self.wanted.saturating_add(wanted);
        let takes = self.input == input && all.end - all.start <= wanted.saturating_mul(WASTE);
        if takes {
            (self.cells, self.wanted) = (all, wanted);
        }
        takes
    }
}

impl Places {
    /// Puts segments together that are near each other: cells that had to be sorted come in any order.
    fn join_segments(&mut self) {
        let mut order: Vec<usize> = (0..self.segments.len()).collect();
        order.sort_by_key(|&i| {
            self.segments
                .get(i)
                .map(|segment| (segment.input, segment.cells.start))
        });
        let mut joined: Vec<Segment> = Vec::new();
        let mut numbers = vec![0; order.len()];
        for i in order {
            let Some(segment) = self.segments.get(i) else {
                continue;
            };
            let (input, cells, wanted) = (segment.input, segment.cells.clone(), segment.wanted);
            if !joined
                .last_mut()
                .is_some_and(|last| last.takes(input, &cells, wanted))
            {
                joined.push(Segment { input, cells, wanted });
            }
            if let Some(number) = numbers.get_mut(i) {
                *number = joined.len() - 1;
            }
        }
        for place in &mut self.places {
            place.segment = numbers.get(place.segment).copied().unwrap_or(0);
        }
        self.segments = joined;
    }
}

impl Gather {
    /// `field` of the view that `merged` makes.
    pub(super) fn new(merged: Arc<dyn Merged>, schema: &Schema, field: &ViewField) -> Result<Gather> {
        let (fill, fill_valid) = match field.role {
            Role::Dimension(_) => (Vec::new(), true),
            Role::Attribute(i) => schema.attributes.get(i).map_or((Vec::new(), true), |attribute| {
                (attribute.fill_value.clone(), attribute.fill_value_valid)
            }),
        };
        Ok(Gather {
            count: merged.count()?,
            stored: merged.inputs().iter().map(|_| OnceLock::new()).collect(),
            merged,
            field: field.clone(),
            fill,
            fill_valid,
        })
    }

    /// What input `input` has of the field.
    fn stored(&self, input: usize) -> Result<Option<&FragmentCells>> {
        let (Some(cell), Some(source)) = (self.stored.get(input), self.merged.inputs().get(input)) else {
            return Err(Error::new(ErrorKind::Internal, "a fragment that is none"));
        };
        let stored = cell.get_or_init(|| {
            let info = &source.info;
            let Some(found) = find_field(info, &self.field).filter(|found| info.stores(found)) else {
                return Stored::Nothing;
            };
            let wanted = &self.field;
            if found.cell_val_num.is_var() != wanted.cell_val_num.is_var() {
                return Stored::Nothing;
            }
            let same = found.datatype == wanted.datatype
                && found.cell_val_num == wanted.cell_val_num
                && found.nullable == wanted.nullable;
            match same {
                true => {
                    let hold = self.stored.len() <= HELD;
                    Stored::Cells(FragmentCells::new(info.clone(), found.clone()).holding(hold))
                }
                false => Stored::Changed(
                    info.place(
                        Error::corrupt(format!(
                            "field `{}` has another type here than in the schema in force",
                            String::from_utf8_lossy(&wanted.name)
                        ))
                        .at(0),
                    ),
                ),
            }
        });
        match stored {
            Stored::Nothing => Ok(None),
            Stored::Cells(cells) => Ok(Some(cells)),
            Stored::Changed(error) => Err(error.clone()),
        }
    }

    /// Where the cells in `cells` are.
    fn places(&self, cells: Range<u64>) -> Result<Places> {
        let mut found = Places {
            places: Vec::new(),
            segments: Vec::new(),
        };
        // The segment of each input that takes more.
        let mut open = vec![usize::MAX; self.stored.len()];
        self.merged.visit(cells, &mut |run: Run<'_>| {
            let input = run.input.index;
            let Some(segment) = open.get_mut(input) else {
                return;
            };
            let cells = run.first..run.first.saturating_add(run.count);
            let last = found.segments.get_mut(*segment);
            if !last.is_some_and(|last| last.takes(input, &cells, run.count)) {
                *segment = found.segments.len();
                found.segments.push(Segment {
                    input,
                    cells,
                    wanted: run.count,
                });
            }
            found.places.push(Place {
                first: run.first,
                count: run.count,
                segment: *segment,
            });
        })?;
        found.join_segments();
        Ok(found)
    }

    /// What `read` makes of the cells of each segment; None of those of a fragment that has not got the field.
    fn segments<T>(
        &self,
        places: &Places,
        mut read: impl FnMut(&FragmentCells, Range<u64>) -> Result<T>,
    ) -> Result<Vec<Option<T>>> {
        let segments = places.segments.iter().map(|segment| {
            let stored = self.stored(segment.input)?;
            stored
                .map(|stored| read(stored, segment.cells.clone()))
                .transpose()
        });
        segments.collect()
    }

    /// Reads entries of `size` bytes each of `content`; `fill` is that of cells that a fragment has nothing
    /// of.
    fn entries(
        &self,
        cells: Range<u64>,
        size: u64,
        content: Content,
        fill: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if fill.len() as u64 != size && matches!(self.field.role, Role::Attribute(_)) {
            let message = format!("a fill value of {} bytes for cells of {size}", fill.len());
            return Err(Error::corrupt(message).at(0));
        }
        let found = self.places(cells.clone())?;
        let mut scratch = Vec::new();
        out.reserve((cells.end - cells.start).saturating_mul(size) as usize);
        // Long runs are read one by one, straight into the answer.
        if cells.end - cells.start >= LONG.saturating_mul(found.places.len() as u64) {
            for place in &found.places {
                let input = found
                    .segments
                    .get(place.segment)
                    .map_or(usize::MAX, |segment| segment.input);
                let run = place.first..place.first.saturating_add(place.count);
                match self.stored(input)? {
                    Some(stored) => out.extend_from_slice(&read_entries(stored, content, run, &mut scratch)?),
                    None => (0..place.count).for_each(|_| out.extend_from_slice(fill)),
                }
            }
            return Ok(());
        }
        let got = self.segments(&found, |stored, cells| {
            Ok(read_entries(stored, content, cells, &mut scratch)?.to_vec())
        })?;
        // Copies of a known size are a few instructions each.
        match size {
            1 => copy::<1>(&found, &got, fill, out),
            2 => copy::<2>(&found, &got, fill, out),
            4 => copy::<4>(&found, &got, fill, out),
            8 => copy::<8>(&found, &got, fill, out),
            _ => each(&found, &got, |place, start, got| {
                let Some(got) = got else {
                    (0..place.count).for_each(|_| out.extend_from_slice(fill));
                    return Ok(());
                };
                let range = (place.first - start).saturating_mul(size) as usize
                    ..(place.first - start + place.count).saturating_mul(size) as usize;
                out.extend_from_slice(got.get(range).ok_or_else(too_few)?);
                Ok(())
            }),
        }
    }
}

/// Lets `take` take each place, the first cell of its segment, and what was read of that.
fn each<T>(
    found: &Places,
    got: &[Option<T>],
    mut take: impl FnMut(&Place, u64, Option<&T>) -> Result<()>,
) -> Result<()> {
    for place in &found.places {
        let (Some(segment), Some(got)) = (found.segments.get(place.segment), got.get(place.segment)) else {
            return Err(too_few());
        };
        take(place, segment.cells.start, got.as_ref())?;
    }
    Ok(())
}

/// Appends cells of `N` bytes.
fn copy<const N: usize>(
    found: &Places,
    got: &[Option<Vec<u8>>],
    fill: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    each(found, got, |place, start, got| {
        let from = (place.first - start) as usize;
        match got.map(|got| got.as_chunks::<N>().0.get(from..from + place.count as usize)) {
            Some(Some([cell])) => out.extend_from_slice(cell),
            Some(Some(cells)) => out.extend_from_slice(cells.as_flattened()),
            Some(None) => return Err(too_few()),
            None => (0..place.count).for_each(|_| out.extend_from_slice(fill)),
        }
        Ok(())
    })
}

/// The values or the validity of cells of a fragment.
fn read_entries<'s>(
    stored: &FragmentCells,
    content: Content,
    cells: Range<u64>,
    scratch: &'s mut Vec<u8>,
) -> Result<Piece<'s>> {
    let stored: &dyn Cells = stored;
    match content {
        Content::Validity => stored.validity(cells, scratch),
        _ => stored.values(cells, scratch),
    }
}

fn too_few() -> Error {
    Error::new(ErrorKind::Internal, "fewer cells than a fragment has")
}

impl Runs for Gather {
    fn count(&self) -> u64 {
        self.count
    }

    fn fixed(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let size = self.field.cell_size().unwrap_or(1);
        self.entries(cells, size, Content::Data, &self.fill, out)
    }

    fn validity(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        self.entries(cells, 1, Content::Validity, &[u8::from(self.fill_valid)], out)
    }

    fn lengths(&self, cells: Range<u64>, out: &mut Vec<u64>) -> Result<()> {
        let found = self.places(cells)?;
        let got = self.segments(&found, |stored, cells| {
            let stored: &dyn Cells = stored;
            stored.starts(cells)
        })?;
        each(&found, &got, |place, start, starts| {
            let Some(starts) = starts else {
                out.extend((0..place.count).map(|_| self.fill.len() as u64));
                return Ok(());
            };
            let from = (place.first - start) as usize;
            let ends = starts
                .get(from..=from + place.count as usize)
                .ok_or_else(too_few)?;
            out.extend(ends.windows(2).map(|pair| match pair {
                [start, end] => end.saturating_sub(*start),
                _ => 0,
            }));
            Ok(())
        })
    }

    fn var(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let found = self.places(cells)?;
        let got = self.segments(&found, |stored, cells| {
            let stored: &dyn Cells = stored;
            stored.var_values(cells)
        })?;
        each(&found, &got, |place, start, got| {
            let Some((starts, values)) = got else {
                (0..place.count).for_each(|_| out.extend_from_slice(&self.fill));
                return Ok(());
            };
            let from = (place.first - start) as usize;
            let range = starts.get(from).zip(starts.get(from + place.count as usize));
            let range = range.map(|(start, end)| *start as usize..*end as usize);
            let values = range.and_then(|range| values.get(range));
            out.extend_from_slice(values.ok_or_else(too_few)?);
            Ok(())
        })
    }

    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let found = self.places(cell..cell.saturating_add(1))?;
        let (Some(place), Some(segment)) = (found.places.first(), found.segments.first()) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("cell {cell} of no fragment"),
            ));
        };
        match self.stored(segment.input)? {
            None => {
                let range = bytes.start as usize..(bytes.end as usize).min(self.fill.len());
                out.extend_from_slice(self.fill.get(range).unwrap_or(&[]));
            }
            Some(stored) => {
                let stored: &dyn Cells = stored;
                let start = match stored.cell_size() {
                    Some(size) => place.first.saturating_mul(size),
                    None => {
                        let starts = stored.starts(place.first..place.first.saturating_add(1))?;
                        starts.first().copied().unwrap_or(0)
                    }
                };
                let mut scratch = Vec::new();
                let range = start.saturating_add(bytes.start)..start.saturating_add(bytes.end);
                out.extend_from_slice(&stored.read(Content::Data, range, &mut scratch)?);
            }
        }
        Ok(())
    }
}
