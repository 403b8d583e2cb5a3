//! The values of one field, put together from the fragments that the cells of a view are in.

use super::super::column::Runs;
use super::super::{Role, ViewField};
use super::block::{Part, Piece};
use super::{Merged, Share, find_field};
use crate::array::cells::{Cells, FragmentCells};
use crate::array::column::Content;
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

/// Where the cells of an answer are, in its order.
struct Places {
    parts: Vec<Part>,
    /// How many pieces the parts have.
    pieces: u64,
    /// What is read of each input, ascending, one input after the other.
    segments: Vec<Segment>,
    /// The first input that the parts may have cells of.
    first_input: usize,
    /// Where the segments of each input from that on begin, and behind the last one where they end.
    first_segment: Vec<usize>,
}

/// Cells of one fragment that are read at once.
struct Segment {
    input: usize,
    cells: Range<u64>,
    /// How many of them the answer has.
    wanted: u64,
}

/// Runs of so many cells on average are read one by one.
const LONG: u64 = 64;

/// Cells of a fragment that are read at once though not all are wanted: this many for each that is.
const WASTE: u64 = 8;

impl Segment {
    /// One of no cells.
    fn none(input: usize) -> Segment {
        Segment {
            input,
            cells: Range {
                start: u64::MAX,
                end: 0,
            },
            wanted: 0,
        }
    }

    fn take(&mut self, cells: &Range<u64>, wanted: u64) {
        self.cells = self.cells.start.min(cells.start)..self.cells.end.max(cells.end);
        self.wanted = self.wanted.saturating_add(wanted);
    }

    /// Whether both are better read at once.
    fn joins(&self, next: &Segment) -> bool {
        let mut both = Segment::none(self.input);
        both.take(&self.cells, self.wanted);
        both.take(&next.cells, next.wanted);
        !both.wastes()
    }

    /// Whether most of what is read is not wanted.
    fn wastes(&self) -> bool {
        self.cells.end.saturating_sub(self.cells.start) > self.wanted.saturating_mul(WASTE)
    }
}

/// The first cell of a segment, and the cells that were got of it.
type Known<'g, const N: usize> = (u64, &'g [[u8; N]]);

impl Places {
    /// The places of what `parts` are made of.
    fn new(parts: Vec<Part>) -> Result<Places> {
        let inputs = || parts.iter().filter_map(Part::inputs);
        let first_input = inputs().map(|(first, _)| first).min().unwrap_or(0);
        let end = inputs().map(|(_, last)| last + 1).max().unwrap_or(0);
        let mut pieces = 0;
        let mut whole: Vec<Segment> = (first_input..end).map(Segment::none).collect();
        for part in &parts {
            pieces += part.outline(|piece| {
                if let Some(segment) = whole.get_mut(piece.input.wrapping_sub(first_input)) {
                    segment.take(&cells_of(&piece), piece.count);
                }
            })?;
        }
        // Of those that are not all near each other, one by one.
        let mut scattered: Vec<Segment> = Vec::new();
        if whole.iter().any(Segment::wastes) {
            for part in &parts {
                part.pieces(|piece| {
                    let segment = whole.get(piece.input.wrapping_sub(first_input));
                    if segment.is_some_and(Segment::wastes) {
                        let mut segment = Segment::none(piece.input);
                        segment.take(&cells_of(&piece), piece.count);
                        scattered.push(segment);
                    }
                })?;
            }
            // Cells that had to be sorted come in any order.
            scattered.sort_unstable_by_key(|segment| (segment.input, segment.cells.start));
        }
        let mut scattered = scattered.into_iter().peekable();
        let (mut segments, mut first_segment): (Vec<Segment>, _) =
            (Vec::new(), Vec::with_capacity(whole.len() + 1));
        for segment in whole {
            let first = segments.len();
            first_segment.push(first);
            if !segment.wastes() {
                segments.extend(Some(segment).filter(|segment| segment.wanted > 0));
                continue;
            }
            while let Some(next) = scattered.next_if(|next| next.input == segment.input) {
                let joined = segments.get_mut(first..).and_then(|own| own.last_mut());
                match joined {
                    Some(last) if last.joins(&next) => last.take(&next.cells, next.wanted),
                    _ => segments.push(next),
                }
            }
        }
        first_segment.push(segments.len());
        Ok(Places {
            parts,
            pieces,
            segments,
            first_input,
            first_segment,
        })
    }

    /// The segment that holds the first cell of a piece, and the number of that cell in it.
    fn find(&self, piece: &Piece) -> Option<(usize, usize)> {
        let input = piece.input.checked_sub(self.first_input)?;
        let first = *self.first_segment.get(input)?;
        let end = *self.first_segment.get(input + 1)?;
        let mut number = first;
        if end - first > 1 {
            let own = self.segments.get(first..end)?;
            number += own
                .partition_point(|segment| segment.cells.start <= piece.first)
                .checked_sub(1)?;
        }
        let start = self.segments.get(number)?.cells.start;
        Some((number, piece.first.checked_sub(start)? as usize))
    }

    /// By input what was `got` of its segment, and the first cell of that; None where an input has several
    /// segments, or nothing was got.
    fn single<'g, const N: usize>(&self, got: &'g [Option<Vec<u8>>]) -> Option<Vec<Known<'g, N>>> {
        let of = |bounds: &[usize]| match *bounds {
            [first, end] if first == end => Some((0, &[][..])),
            [first, end] if first + 1 == end => {
                let (segment, got) = self.segments.get(first).zip(got.get(first)?.as_ref())?;
                Some((segment.cells.start, got.as_chunks().0))
            }
            _ => None,
        };
        self.first_segment.windows(2).map(of).collect()
    }

    /// Lets `take` take each piece: how many cells, the number of the first one in its segment, and what was
    /// `got` of that.
    fn each<T>(
        &self,
        got: &[Option<T>],
        mut take: impl FnMut(usize, usize, Option<&T>) -> Result<()>,
    ) -> Result<()> {
        for part in &self.parts {
            let mut result = Ok(());
            part.pieces(|piece| {
                if result.is_ok() {
                    let found = self
                        .find(&piece)
                        .and_then(|(number, from)| Some((from, got.get(number)?)));
                    result = match found {
                        Some((from, got)) => take(piece.count as usize, from, got.as_ref()),
                        None => Err(too_few()),
                    };
                }
            })?;
            result?;
        }
        Ok(())
    }
}

fn cells_of(piece: &Piece) -> Range<u64> {
    piece.first..piece.first.saturating_add(piece.count)
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
            return Err(Error::new(ErrorKind::Internal, "there is no such fragment"));
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
                    let share = Share::of(&info.engine, self.stored.len());
                    // Where cells begin is looked at to measure them, and again to read them.
                    let var = found.cell_val_num.is_var() && share.has_room(info, Some(8));
                    let cells = FragmentCells::new(info.clone(), found.clone());
                    let stays = Some(Content::Offsets).filter(|_| var);
                    Stored::Cells(cells.holding(share.hold).staying(stays))
                }
                false => Stored::Changed(
                    info.place(
                        Error::corrupt(format!(
                            "the fragment's field `{}` has another type than the view's schema says",
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
        Places::new(self.merged.parts(cells)?)
    }

    /// What `read` makes of the cells of each segment; None of those of a fragment that has not got the
    /// field.
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
            let message = format!("the fill value has {} bytes, a cell {size}", fill.len());
            return Err(Error::corrupt(message).at(0));
        }
        let wanted = cells.end - cells.start;
        let found = self.places(cells)?;
        out.reserve(wanted.saturating_mul(size) as usize);
        // Long runs are read one by one, straight into the answer.
        if wanted >= LONG.saturating_mul(found.pieces) {
            for part in &found.parts {
                let mut result = Ok(());
                part.pieces(|piece| {
                    if result.is_ok() {
                        result = self.run(&piece, content, fill, out);
                    }
                })?;
                result?;
            }
            return Ok(());
        }
        let got = self.segments(&found, |stored, cells| {
            let mut entries = Vec::with_capacity((cells.end - cells.start).saturating_mul(size) as usize);
            stored.append(content, cells, &mut entries)?;
            Ok(entries)
        })?;
        // Copies of a known size are a few instructions each.
        match size {
            1 => copy::<1>(&found, &got, fill, out),
            2 => copy::<2>(&found, &got, fill, out),
            4 => copy::<4>(&found, &got, fill, out),
            8 => copy::<8>(&found, &got, fill, out),
            _ => found.each(&got, |count, from, got| {
                let Some(got) = got else {
                    (0..count).for_each(|_| out.extend_from_slice(fill));
                    return Ok(());
                };
                let size = size as usize;
                let range = from.saturating_mul(size)..from.saturating_add(count).saturating_mul(size);
                out.extend_from_slice(got.get(range).ok_or_else(too_few)?);
                Ok(())
            }),
        }
    }

    /// Appends the entries of a run.
    fn run(&self, piece: &Piece, content: Content, fill: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self.stored(piece.input)? {
            Some(stored) => stored.append(content, cells_of(piece), out)?,
            None => (0..piece.count).for_each(|_| out.extend_from_slice(fill)),
        }
        Ok(())
    }
}

/// Appends cells of `N` bytes.
fn copy<const N: usize>(
    found: &Places,
    got: &[Option<Vec<u8>>],
    fill: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    // Mostly cells come one by one, and there is little time for each.
    if let Some(single) = found.single::<N>(got) {
        let find = |input: usize, cells: Range<u64>| {
            if cells.is_empty() {
                return Some(&[][..]);
            }
            let (start, found) = single.get(input.wrapping_sub(found.first_input))?;
            let from = cells.start.wrapping_sub(*start) as usize;
            found.get(from..from.saturating_add((cells.end - cells.start) as usize))
        };
        for part in &found.parts {
            // Where the cells of each fragment follow each other, it is enough to know whose turn it is.
            let runs = match part {
                Part::Merged(slice) => slice
                    .runs()
                    .map(|run| run.and_then(|(input, cells)| find(input, cells)))
                    .collect::<Option<Vec<_>>>()
                    .map(|runs| (slice, runs)),
                Part::Stored(..) => None,
            };
            let Some((slice, mut runs)) = runs else {
                let mut all = true;
                part.pieces(|piece| match find(piece.input, cells_of(&piece)) {
                    Some(cells) => out.extend_from_slice(cells.as_flattened()),
                    None => all = false,
                })?;
                match all {
                    true => continue,
                    false => return Err(too_few()),
                }
            };
            let before = out.len();
            out.resize(before + N * slice.count() as usize, 0);
            let cells = out.get_mut(before..).map(|cells| cells.as_chunks_mut().0);
            slice
                .interleave(&mut runs, cells.unwrap_or(&mut []))
                .ok_or_else(too_few)?;
        }
        return Ok(());
    }
    found.each(got, |count, from, got| {
        match got.map(|got| got.as_chunks::<N>().0.get(from..from.saturating_add(count))) {
            Some(Some([cell])) => out.extend_from_slice(cell),
            Some(Some(cells)) => out.extend_from_slice(cells.as_flattened()),
            Some(None) => return Err(too_few()),
            None => (0..count).for_each(|_| out.extend_from_slice(fill)),
        }
        Ok(())
    })
}

fn too_few() -> Error {
    Error::new(ErrorKind::Internal, "found fewer cells than the fragment has")
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
        found.each(&got, |count, from, starts| {
            let Some(starts) = starts else {
                out.extend((0..count).map(|_| self.fill.len() as u64));
                return Ok(());
            };
            let ends = starts
                .get(from..=from.saturating_add(count))
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
        found.each(&got, |count, from, got| {
            let Some((starts, values)) = got else {
                (0..count).for_each(|_| out.extend_from_slice(&self.fill));
                return Ok(());
            };
            let range = starts.get(from).zip(starts.get(from.saturating_add(count)));
            let range = range.map(|(start, end)| *start as usize..*end as usize);
            let values = range.and_then(|range| values.get(range));
            out.extend_from_slice(values.ok_or_else(too_few)?);
            Ok(())
        })
    }

    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let found = self.places(cell..cell.saturating_add(1))?;
        let Some(segment) = found.segments.first() else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("cell {cell} is in no fragment"),
            ));
        };
        let first = segment.cells.start;
        match self.stored(segment.input)? {
            None => {
                let range = bytes.start as usize..(bytes.end as usize).min(self.fill.len());
                out.extend_from_slice(self.fill.get(range).unwrap_or(&[]));
            }
            Some(stored) => {
                let stored: &dyn Cells = stored;
                let start = match stored.cell_size() {
                    Some(size) => first.saturating_mul(size),
                    None => {
                        let starts = stored.starts(first..first.saturating_add(1))?;
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
