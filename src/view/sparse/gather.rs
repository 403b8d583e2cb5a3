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

/// Consecutive cells of one fragment, and where in the answer they go.
struct Place {
    input: usize,
    first: u64,
    count: u64,
    /// The cell of the answer.
    at: u64,
}

/// Runs of so many cells on average are read one by one.
const LONG: u64 = 64;

/// Cells of a fragment that are read at once though not all are wanted: this many for each that is.
const WASTE: u64 = 8;

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
    fn places(&self, cells: Range<u64>) -> Result<Vec<Place>> {
        let inputs = self.merged.inputs();
        let mut places = Vec::new();
        let mut at = 0;
        self.merged.visit(cells, &mut |run: Run<'_>| {
            // Inputs are in reading order, which is that of their pointers' places in the list.
            let input = run.input.index;
            debug_assert!(inputs.get(input).is_some());
            places.push(Place {
                input,
                first: run.first,
                count: run.count,
                at,
            });
            at += run.count;
        })?;
        Ok(places)
    }

    /// Lets `read` read cells of one fragment at a time, as few times as that can be done without reading
    /// much that is not wanted, and `take` take the cells of each place from the first cell that was read.
    fn by_fragment<T>(
        &self,
        places: &[Place],
        mut read: impl FnMut(Option<&FragmentCells>, Range<u64>) -> Result<T>,
        mut take: impl FnMut(&Place, &T, u64) -> Result<()>,
    ) -> Result<()> {
        // A stable sort keeps the order of places within each fragment, in which cells ascend unless they had
        // to be sorted.
        let mut order: Vec<usize> = (0..places.len()).collect();
        let key = |i: &usize| places.get(*i).map(|place| (place.input, place.first));
        if places.len() > 1 {
            order.sort_by_key(key);
        }
        let mut start = 0;
        while let Some(first) = order.get(start).and_then(|&i| places.get(i)) {
            let mut end = first.first + first.count;
            let (mut wanted, mut next) = (first.count, start + 1);
            while let Some(place) = order.get(next).and_then(|&i| places.get(i)) {
                let to = (place.first + place.count).max(end);
                let total = wanted + place.count;
                if place.input != first.input || to - first.first > total.saturating_mul(WASTE) {
                    break;
                }
                (end, wanted) = (to, total);
                next += 1;
            }
            let cells = self.stored(first.input)?;
            let got = read(cells, first.first..end)?;
            for place in order.get(start..next).unwrap_or(&[]) {
                if let Some(place) = places.get(*place) {
                    take(place, &got, first.first)?;
                }
            }
            start = next;
        }
        Ok(())
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
        let places = self.places(cells.clone())?;
        let start = out.len();
        let bytes = |cells: u64| (cells.saturating_mul(size)) as usize;
        let mut scratch = Vec::new();
        // Long runs are read one by one, straight into the answer.
        if cells.end - cells.start >= LONG.saturating_mul(places.len() as u64) {
            for place in &places {
                let run = place.first..place.first.saturating_add(place.count);
                match self.stored(place.input)? {
                    Some(stored) => out.extend_from_slice(&read_entries(stored, content, run, &mut scratch)?),
                    None => (0..place.count).for_each(|_| out.extend_from_slice(fill)),
                }
            }
            return Ok(());
        }
        let mut read = |stored: &FragmentCells, cells: Range<u64>| -> Result<Vec<u8>> {
            Ok(read_entries(stored, content, cells, &mut scratch)?.to_vec())
        };
        out.resize(start + bytes(cells.end - cells.start), 0);
        let answer = out.get_mut(start..).unwrap_or_default();
        self.by_fragment(
            &places,
            |stored, cells| stored.map(|stored| read(stored, cells)).transpose(),
            |place, got, first| {
                let to = answer
                    .get_mut(bytes(place.at)..bytes(place.at + place.count))
                    .ok_or_else(|| Error::new(ErrorKind::Internal, "a cell behind the last one"))?;
                match got {
                    None => {
                        for cell in to.chunks_exact_mut(fill.len().max(1)) {
                            cell.copy_from_slice(fill);
                        }
                    }
                    Some(got) => {
                        let from = bytes(place.first - first);
                        let from = got.get(from..from.saturating_add(to.len()));
                        to.copy_from_slice(from.ok_or_else(too_few)?);
                    }
                }
                Ok(())
            },
        )
    }
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
        let places = self.places(cells.clone())?;
        let start = out.len();
        out.resize(start + (cells.end - cells.start) as usize, self.fill.len() as u64);
        let answer = out.get_mut(start..).unwrap_or_default();
        let starts = |stored: &FragmentCells, cells| {
            let stored: &dyn Cells = stored;
            stored.starts(cells)
        };
        self.by_fragment(
            &places,
            |stored, cells| stored.map(|stored| starts(stored, cells)).transpose(),
            |place, got, first| {
                let Some(got) = got else { return Ok(()) };
                let from = (place.first - first) as usize;
                let lengths = got.windows(2).skip(from).map(|pair| match pair {
                    [start, end] => end.saturating_sub(*start),
                    _ => 0,
                });
                let to = answer
                    .iter_mut()
                    .skip(place.at as usize)
                    .take(place.count as usize);
                for (to, length) in to.zip(lengths) {
                    *to = length;
                }
                Ok(())
            },
        )
    }

    fn var(&self, cells: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let places = self.places(cells)?;
        // The values of each place, wherever they were read.
        type Part = (Arc<Vec<u8>>, Range<usize>);
        let mut values: Vec<Option<Part>> = vec![None; places.len()];
        let numbers: Vec<u64> = places.iter().map(|place| place.at).collect();
        self.by_fragment(
            &places,
            |stored, cells| {
                let Some(stored) = stored else { return Ok(None) };
                let stored: &dyn Cells = stored;
                let (starts, values) = stored.var_values(cells)?;
                Ok(Some((starts, Arc::new(values))))
            },
            |place, got, first| {
                let Some((starts, bytes)) = got else { return Ok(()) };
                let from = (place.first - first) as usize;
                let at = |i: usize| starts.get(i).copied().unwrap_or(0) as usize;
                let number = numbers.binary_search(&place.at);
                if let Some(slot) = number.ok().and_then(|i| values.get_mut(i)) {
                    *slot = Some((bytes.clone(), at(from)..at(from + place.count as usize)));
                }
                Ok(())
            },
        )?;
        for (place, found) in places.iter().zip(&values) {
            match found {
                Some((bytes, range)) => out.extend_from_slice(bytes.get(range.clone()).unwrap_or(&[])),
                None => {
                    for _ in 0..place.count {
                        out.extend_from_slice(&self.fill);
                    }
                }
            }
        }
        Ok(())
    }

    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let places = self.places(cell..cell.saturating_add(1))?;
        let Some(place) = places.first() else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("cell {cell} of no fragment"),
            ));
        };
        match self.stored(place.input)? {
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
