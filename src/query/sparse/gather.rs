//! The values of one field of a sparse view, gathered from its fragments.

use super::super::column::Runs;
use super::super::{Field, Role};
use super::block::{Piece, ViewPart};
use super::{Merged, Share};
use crate::bytes::{Keep, Output};
use crate::error::{Error, Result};
use crate::format::field::Stored;
use crate::fragment::cells::{Cells, FragmentCells};
use crate::fragment::column::Content;
use crate::runtime::ahead;
use crate::runtime::tuning::Tuning;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// One field of a sparse view.
pub(super) struct Gather {
    merged: Arc<dyn Merged>,
    /// Number of cells in the view.
    count: u64,
    field: Field,
    tuning: &'static Tuning,
    /// The cells of each input, once known; None if they have the fill value.
    stored: Vec<OnceLock<Result<Option<FragmentCells>>>>,
}

/// The cells of one read, and where they are stored.
struct Places {
    parts: Vec<ViewPart>,
    /// Number of pieces in `parts`.
    pieces: u64,
    /// The cells to read: ascending cells of the first input, then of the next, and so on.
    segments: Vec<Segment>,
    /// The first input that `parts` may have cells of.
    first_input: usize,
    /// For each input from `first_input` on, the index of its first segment; then the number of segments.
    first_segment: Vec<usize>,
}

/// Cells of one fragment, read in one step.
struct Segment {
    input: usize,
    cells: Range<u64>,
    /// How many of `cells` are wanted.
    wanted: u64,
}

/// Reads the segments of one read, and shares chunks with the cache as long as they are few: it does not
/// count those that only readers hold.
struct Shared {
    keep: Option<Keep>,
    /// The bytes of chunks that may still be shared.
    room: usize,
}

impl Shared {
    /// The most bytes of chunks that a read holds.
    const MOST: usize = 4 << 20;

    fn new(keep: Option<Keep>) -> Shared {
        Shared {
            keep,
            room: Self::MOST,
        }
    }

    /// What `read` reads into an empty output.
    fn read(&mut self, read: impl FnOnce(&mut Output) -> Result<()>) -> Result<Output> {
        let mut out = Output::keeping(self.keep).sharing_at_most(self.room);
        read(&mut out)?;
        self.room -= out.held();
        Ok(out)
    }
}

/// If runs have at least this many cells on average, each run is read by itself.
const MIN_LONG_RUN: u64 = 64;

/// The most cells of a segment for each cell wanted, and the most bytes of var-sized cells.
const MAX_WASTE: u64 = 8;

impl Segment {
    /// A segment without cells.
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
        self.wanted += wanted;
    }

    /// Whether to read both as one segment.
    fn joins(&self, next: &Segment) -> bool {
        let mut both = Segment::none(self.input);
        both.take(&self.cells, self.wanted);
        both.take(&next.cells, next.wanted);
        !both.wastes()
    }

    /// Whether it has too many cells besides those wanted.
    fn wastes(&self) -> bool {
        self.cells.end.saturating_sub(self.cells.start) > self.wanted.saturating_mul(MAX_WASTE)
    }
}

/// The number of a segment's first cell in its fragment, and the cells read.
type SegmentCells<'g, const N: usize> = (u64, &'g [[u8; N]]);

impl Places {
    /// The segments that have the cells of `parts`.
    fn new(parts: Vec<ViewPart>) -> Result<Places> {
        let inputs = || parts.iter().filter_map(ViewPart::inputs);
        let first_input = inputs().map(|(first, _)| first).min().unwrap_or(0);
        let end = inputs().map(|(_, last)| last + 1).max().unwrap_or(0);
        let mut pieces = 0;
        let mut whole: Vec<Segment> = (first_input..end).map(Segment::none).collect();
        for part in &parts {
            pieces += part.outline(|piece| {
                whole[piece.input - first_input].take(&cells_of(&piece), piece.count);
            })?;
        }
        // Inputs whose wanted cells are far apart get several segments.
        let mut scattered: Vec<Segment> = Vec::new();
        if whole.iter().any(Segment::wastes) {
            for part in &parts {
                part.pieces(|piece| {
                    if whole[piece.input - first_input].wastes() {
                        let mut segment = Segment::none(piece.input);
                        segment.take(&cells_of(&piece), piece.count);
                        scattered.push(segment);
                    }
                })?;
            }
            // The pieces of a fragment whose cells had to be sorted are in any order.
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
                match segments[first..].last_mut() {
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

    /// The number of cells to read.
    fn wanted(&self) -> u64 {
        self.segments.iter().map(|segment| segment.wanted).sum()
    }

    /// The index of the segment that holds a piece, and the index of the piece's first cell in the segment.
    #[inline]
    fn find(&self, piece: &Piece) -> (usize, usize) {
        let input = piece.input - self.first_input;
        let (first, end) = (self.first_segment[input], self.first_segment[input + 1]);
        let own = &self.segments[first..end];
        let number = own.partition_point(|segment| segment.cells.start <= piece.first) - 1;
        (first + number, (piece.first - own[number].cells.start) as usize)
    }

    /// For each input from `first_input` on, the cells read of its segment. None if an input has several
    /// segments or lacks the field.
    fn single<'g, const N: usize>(&self, got: &'g [Option<Output>]) -> Option<Vec<SegmentCells<'g, N>>> {
        let of = |bounds: &[usize]| match *bounds {
            [first, end] if first == end => Some((0, &[][..])),
            [first, end] if first + 1 == end => {
                let cells = got[first].as_ref()?.as_chunks().0;
                Some((self.segments[first].cells.start, cells))
            }
            _ => None,
        };
        self.first_segment.windows(2).map(of).collect()
    }

    /// Whether some cell is one of input `input`.
    fn shows(&self, input: usize) -> Result<bool> {
        for part in &self.parts {
            if part.shows(input)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Calls `take` for each piece, in order, until one fails.
    fn each_piece(&self, mut take: impl FnMut(&Piece) -> Result<()>) -> Result<()> {
        for part in &self.parts {
            let mut result = Ok(());
            part.pieces(|piece| {
                if result.is_ok() {
                    result = take(&piece);
                }
            })?;
            result?;
        }
        Ok(())
    }

    /// Calls `take` for each piece with its number of cells, the index of its first cell in the segment, and
    /// the cells read of the segment.
    fn each<T>(
        &self,
        got: &[Option<T>],
        mut take: impl FnMut(usize, usize, Option<&T>) -> Result<()>,
    ) -> Result<()> {
        self.each_piece(|piece| {
            let (number, from) = self.find(piece);
            take(piece.count as usize, from, got[number].as_ref())
        })
    }
}

fn cells_of(piece: &Piece) -> Range<u64> {
    piece.first..piece.first + piece.count
}

impl Gather {
    /// `field` of the view that `merged` makes.
    pub(super) fn new(merged: Arc<dyn Merged>, field: Field, tuning: &'static Tuning) -> Result<Gather> {
        Ok(Gather {
            count: merged.count()?,
            stored: merged.inputs().iter().map(|_| OnceLock::new()).collect(),
            merged,
            field,
            tuning,
        })
    }

    /// The cells of input `input`; None if they have the fill value.
    fn stored(&self, input: usize) -> Result<Option<&FragmentCells>> {
        let stored = self.stored[input].get_or_init(|| {
            let info = &self.merged.inputs()[input].info;
            match info.stored_as(&self.field) {
                Stored::Nothing => Ok(None),
                Stored::Same(found) => {
                    let share = Share::of(&info.engine, self.stored.len() as u64, &info.schema);
                    // The offsets are read twice: to measure the cells, and to read them.
                    let var = found.cell_val_num.is_var() && share.has_room(info, Some(8));
                    let cells = FragmentCells::new(info.clone(), found.clone());
                    let stays = Some(Content::Offsets).filter(|_| var);
                    Ok(Some(cells.holding(share.hold).staying(stays)))
                }
                Stored::Other(_, what) => Err(info.place(
                    Error::corrupt(format!(
                        "the fragment's field `{}` has {what} than in the view's schema",
                        String::from_utf8_lossy(&self.field.name)
                    ))
                    .at(0),
                )),
            }
        });
        stored.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// Where `cells` of the view are stored.
    fn places(&self, cells: Range<u64>) -> Result<Places> {
        self.check_order(&cells)?;
        Places::new(self.merged.parts(cells)?)
    }

    /// Calls `read` for each segment and returns the results; None for a fragment without the field.
    fn segments<T>(
        &self,
        places: &Places,
        mut read: impl FnMut(&dyn Cells, Range<u64>) -> Result<T>,
    ) -> Result<Vec<Option<T>>> {
        let wanted = places.wanted();
        let segments = places.segments.iter().map(|segment| {
            let stored = match self.stored(segment.input) {
                // A segment may have none but hidden cells, whose values nobody needs.
                Err(error) if places.shows(segment.input)? => return Err(error),
                stored => stored.unwrap_or(None),
            };
            stored
                .map(|stored| ahead::share(segment.wanted, wanted, || read(stored, segment.cells.clone())))
                .transpose()
        });
        segments.collect()
    }

    /// Who reads coordinates finds out whether they are in order.
    fn check_order(&self, cells: &Range<u64>) -> Result<()> {
        match self.field.role {
            Role::Dimension(_) => self.merged.check_order(cells.clone()),
            Role::Attribute(_) => Ok(()),
        }
    }

    /// Where one cell of the view is stored.
    fn piece_of(&self, cell: u64) -> Result<Piece> {
        self.check_order(&(cell..cell + 1))?;
        let mut found = Vec::new();
        for part in self.merged.parts(cell..cell + 1)? {
            part.pieces(|piece| found.push(piece))?;
        }
        match found.as_slice() {
            [piece] if piece.count == 1 => Ok(*piece),
            _ => Err(Error::internal(format!(
                "cell {cell} of the view is in {} pieces",
                found.len()
            ))),
        }
    }

    /// Whether the segments of var-sized cells have many more bytes than those wanted. `starts` has, for each
    /// segment, the start of each of its cells and the end of the last.
    fn wastes_bytes(&self, found: &Places, starts: &[Option<Vec<u64>>]) -> Result<bool> {
        let length = |starts: &[u64]| match starts {
            [first, .., last] => last - first,
            _ => 0,
        };
        let all: u64 = starts.iter().flatten().map(|starts| length(starts)).sum();
        if all <= self.tuning.wasted_bytes {
            return Ok(false);
        }
        let mut wanted = 0;
        found.each(starts, |count, from, starts| {
            if let Some(starts) = starts {
                wanted += length(&starts[from..=from + count]);
            }
            Ok(())
        })?;
        Ok(all > wanted.saturating_mul(MAX_WASTE))
    }

    /// Appends the entries of `cells` in `content`, of `size` bytes each. `fill` is the entry of cells of
    /// fragments without the field.
    fn entries(
        &self,
        cells: Range<u64>,
        size: u64,
        content: Content,
        fill: &[u8],
        out: &mut Output,
    ) -> Result<()> {
        if fill.len() as u64 != size && matches!(self.field.role, Role::Attribute(_)) {
            let message = format!("the fill value has {} bytes, but a cell has {size}", fill.len());
            return Err(Error::corrupt(message).at(0));
        }
        let wanted = cells.end - cells.start;
        let found = self.places(cells)?;
        // Long runs are read one by one, directly into `out`.
        if wanted >= MIN_LONG_RUN.saturating_mul(found.pieces) {
            return found.each_piece(|piece| self.run(piece, content, fill, out));
        }
        let mut shared = Shared::new(out.keep);
        let got = self.segments(&found, |stored, cells| {
            shared.read(|out| stored.append(content, cells, out))
        })?;
        out.write(|out| {
            out.reserve((wanted * size) as usize);
            // A copy whose size is known to the compiler takes a few instructions.
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
                    out.extend_from_slice(&got[from * size..(from + count) * size]);
                    Ok(())
                }),
            }
        })
    }

    /// Reads and appends the entries of one piece.
    fn run(&self, piece: &Piece, content: Content, fill: &[u8], out: &mut Output) -> Result<()> {
        match self.stored(piece.input)? {
            Some(stored) => (stored as &dyn Cells).append(content, cells_of(piece), out)?,
            None => out.write(|out| repeat(fill, piece.count, out)),
        }
        Ok(())
    }
}

/// Appends the entries of all pieces, of `N` bytes each.
fn copy<const N: usize>(
    found: &Places,
    got: &[Option<Output>],
    fill: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    // Most pieces are single cells, so this is the fast path.
    if let Some(single) = found.single::<N>(got) {
        let find = |input: usize, cells: Range<u64>| {
            if cells.is_empty() {
                return Some(&[][..]);
            }
            // Skipped cells may lie outside of the segment.
            let (start, found) = single[input - found.first_input];
            let from = cells.start.checked_sub(start)? as usize;
            found.get(from..from + (cells.end - cells.start) as usize)
        };
        for part in &found.parts {
            // If the cells that the slice takes of each fragment are contiguous, the order of the fragments
            // is enough.
            let runs = match part {
                ViewPart::Merged(slice) => slice
                    .runs()
                    .map(|run| run.and_then(|(input, cells)| find(input, cells)))
                    .collect::<Option<Vec<_>>>()
                    .map(|runs| (slice, runs)),
                ViewPart::Stored(..) => None,
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
            let cells = out[before..].as_chunks_mut().0;
            slice.interleave(&mut runs, cells).ok_or_else(too_few)?;
        }
        return Ok(());
    }
    found.each(got, |count, from, got| {
        match got.map(|got| &got.as_chunks::<N>().0[from..from + count]) {
            Some([cell]) => out.extend_from_slice(cell),
            Some(cells) => out.extend_from_slice(cells.as_flattened()),
            None => (0..count).for_each(|_| out.extend_from_slice(fill)),
        }
        Ok(())
    })
}

/// Appends `cell` so many times.
fn repeat(cell: &[u8], times: u64, out: &mut Vec<u8>) {
    (0..times).for_each(|_| out.extend_from_slice(cell));
}

fn too_few() -> Error {
    Error::internal("read fewer cells than the fragment has")
}

impl Runs for Gather {
    fn count(&self) -> u64 {
        self.count
    }

    fn fixed(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        let size = self.field.cell_size().expect("fixed-size cells");
        self.entries(cells, size, Content::Data, &self.field.fill_value, out)
    }

    fn validity(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        self.entries(
            cells,
            1,
            Content::Validity,
            &[u8::from(self.field.fill_value_valid)],
            out,
        )
    }

    fn lengths(&self, cells: Range<u64>, keep: Option<Keep>, out: &mut Vec<u64>) -> Result<()> {
        let found = self.places(cells)?;
        let got = self.segments(&found, |stored, cells| stored.starts_kept(cells, keep))?;
        found.each(&got, |count, from, starts| {
            let Some(starts) = starts else {
                out.extend((0..count).map(|_| self.field.fill_value.len() as u64));
                return Ok(());
            };
            let ends = &starts[from..=from + count];
            out.extend(ends.windows(2).map(|pair| pair[1] - pair[0]));
            Ok(())
        })
    }

    fn each_tile(&self, take: &mut dyn FnMut(u64, Option<u64>) -> Result<()>) -> Result<()> {
        for (cells, input) in self.merged.stored()? {
            let stored = match &input {
                Some(input) => self.stored(input.index)?.map(|stored| (input, stored)),
                None => None,
            };
            let Some((input, stored)) = stored else {
                take(cells, None)?;
                continue;
            };
            for run in input.cells(0..input.count()) {
                stored.each_tile(run, |cells, bytes| take(cells, Some(bytes)))?;
            }
        }
        Ok(())
    }

    fn var(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        let found = self.places(cells)?;
        let keep = out.keep;
        let starts = self.segments(&found, |stored, cells| stored.starts_kept(cells, keep))?;
        if self.wastes_bytes(&found, &starts)? {
            // Long cells that are not wanted lie between those that are: each piece is read by itself.
            return found.each_piece(|piece| match self.stored(piece.input)? {
                Some(stored) => {
                    let stored: &dyn Cells = stored;
                    stored.between(&stored.starts_kept(cells_of(piece), keep)?, out)
                }
                None => {
                    out.write(|out| repeat(&self.field.fill_value, piece.count, out));
                    Ok(())
                }
            });
        }
        let mut shared = Shared::new(keep);
        let wanted = found.wanted();
        let segments = found.segments.iter().zip(starts);
        let got = segments.map(|(segment, starts)| {
            let Some(starts) = starts else { return Ok(None) };
            let stored: &dyn Cells = self.stored(segment.input)?.expect("what has starts is stored");
            let read = || shared.read(|out| stored.between(&starts, out));
            let values = ahead::share(segment.wanted, wanted, read)?;
            Ok(Some((starts, values)))
        });
        let got = got.collect::<Result<Vec<_>>>()?;
        let copy = |out: &mut Vec<u8>| {
            found.each(&got, |count, from, got| {
                let Some((starts, values)) = got else {
                    repeat(&self.field.fill_value, count as u64, out);
                    return Ok(());
                };
                let [start, end] = [from, from + count].map(|cell| (starts[cell] - starts[0]) as usize);
                out.extend_from_slice(&values[start..end]);
                Ok(())
            })
        };
        out.write(copy)
    }

    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Output) -> Result<()> {
        let piece = self.piece_of(cell)?;
        let Some(stored) = self.stored(piece.input)? else {
            out.append(&self.field.fill_value[bytes.start as usize..bytes.end as usize]);
            return Ok(());
        };
        let stored: &dyn Cells = stored;
        let start = match stored.cell_size() {
            Some(size) => piece.first * size,
            None => stored.starts(cells_of(&piece))?[0],
        };
        stored.read(Content::Data, start + bytes.start..start + bytes.end, out)
    }
}
