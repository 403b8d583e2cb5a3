//! Reads the cells of an attribute of a dense view.

use super::copy::{Plan, Run, Target, TileLayout, assert_inside, scatter};
use super::points::Points;
use super::space::{Area, boxes, strides};
use super::stack::{Slot, Stack};
use crate::bytes::{Bytes, Keep, Output};
use crate::error::{Error, Result};
use crate::format::enums::Layout as Order;
use crate::format::field::Field;
use crate::format::schema::Schema;
use crate::fragment::column::{Column, Content, OpenColumn};
use crate::fragment::info::FragmentInfo;
use crate::query::column::Runs;
use crate::runtime::lock;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The most fields of fragments that one reader has open.
const MAX_OPEN: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// A row of cells passes through a row of chunks, which the next row of cells needs again. If the chunks have
/// more bytes than this, they must stay in the cache, because passing ones would be evicted too early.
const MAX_PASSING_BAND: u64 = 1 << 20;

/// An attribute of a view, in a box of cells.
pub(super) struct DenseRuns {
    stack: Arc<Stack>,
    attribute: Field,
    /// What each layer stores of the attribute.
    slots: Vec<Slot>,
    /// The first index of the box along each dimension.
    origin: Vec<u64>,
    shape: Vec<u64>,
    /// The distance in cells between neighbours along each dimension.
    strides: Vec<u64>,
    count: u64,
    /// Bytes of the chunks that a row of cells passes through.
    band: u64,
    sources: Mutex<LruCache<(usize, Content), Arc<OpenField>>>,
}

/// An open field of a fragment, and the layout of its cells.
struct OpenField {
    column: OpenColumn,
    tile_cells: u64,
    shape: Shape,
}

enum Shape {
    Dense(TileLayout),
    Points(Points),
}

/// The start of a value: its layer (None for the fill value), and its byte offset among all values of the
/// fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ValueStart {
    layer: Option<usize>,
    start: u64,
}

impl DenseRuns {
    /// `attribute` in the box of cells that begins at the index `origin` and has `shape` cells along each
    /// dimension. `count` is the product of the shape.
    pub(super) fn new(
        stack: Arc<Stack>,
        schema: &Schema,
        attribute: Field,
        origin: Vec<u64>,
        shape: Vec<u64>,
        count: u64,
    ) -> Self {
        let slots = stack.slots(&attribute.name, attribute.form());
        let size = attribute.cell_size().unwrap_or(8);
        DenseRuns {
            band: band(&stack, schema, size, &shape),
            stack,
            attribute,
            slots,
            origin,
            strides: strides(&shape),
            shape,
            count,
            sources: Mutex::new(LruCache::new(MAX_OPEN)),
        }
    }

    /// How to cache the chunks of a read that says `keep`.
    fn keep(&self, keep: Option<Keep>) -> Option<Keep> {
        match self.band <= MAX_PASSING_BAND {
            true => keep,
            false => Some(Keep::Staying),
        }
    }

    /// Calls `each` with each source of `content` for `cells`, and the plan to copy from it. A source is a
    /// layer, or None for the fill value. In each tile, older sources come first. Each cell is in a plan,
    /// else this is an `Internal` error.
    fn plans(
        &self,
        cells: &Range<u64>,
        content: Content,
        keep: Option<Keep>,
        mut each: impl FnMut(Option<(usize, &OpenField)>, &Plan) -> Result<()>,
    ) -> Result<()> {
        let target = Target {
            origin: &self.origin,
            strides: &self.strides,
            start: cells.start,
        };
        let holds = |layer: usize| self.slots[layer] != Slot::Nothing;
        // Concurrent requests begin at different tiles, so that they do not wait for the same chunks.
        let length = (cells.end - cells.start).max(1);
        let turn = ((cells.start / length) as u32).reverse_bits();
        let mut planned = 0;
        for part in boxes(&self.shape, cells.clone()) {
            let part = part.moved(self.origin.iter().copied());
            if !self.stack.overlay.touches(&part) {
                planned += part.cells();
                each(None, &target.plan(&part))?;
                continue;
            }
            self.stack.space.tiles(&part, turn, |tile| {
                let wanted = tile.common(&part).expect("the tile touches the box");
                let parts = self.stack.overlay.parts(tile, &wanted, holds);
                for part in &parts.boxes {
                    let Some(layer) = part.layer else {
                        planned += part.area.cells();
                        each(None, &target.plan(&part.area))?;
                        continue;
                    };
                    let source = self.source(layer, content)?;
                    let Shape::Dense(layout) = &source.shape else {
                        unreachable!("a box comes from a dense layer");
                    };
                    planned += part.area.cells();
                    each(Some((layer, &source)), &layout.plan(&part.area, &target))?;
                }
                for &(layer, newer) in &parts.points {
                    let source = self.source(layer, content)?;
                    let Shape::Points(points) = &source.shape else {
                        unreachable!("single cells come from a sparse layer");
                    };
                    let newer = parts.whole[..newer].iter();
                    let hiding: Vec<&Area> = newer
                        .map(|&layer| &self.stack.overlay.layers()[layer].area)
                        .collect();
                    points.within(&self.stack.space, &wanted, &hiding, &target, keep, &mut |cells| {
                        each(Some((layer, &source)), &Plan::Cells(cells))
                    })?;
                }
                Ok(())
            })?;
        }
        match cells.end - cells.start {
            count if count == planned => Ok(()),
            count => Err(Error::internal(format!(
                "{count} cells are wanted, {planned} are planned"
            ))),
        }
    }

    /// Opens the attribute in a layer.
    fn source(&self, layer: usize, content: Content) -> Result<Arc<OpenField>> {
        let sources = || lock(&self.sources);
        if let Some(source) = sources().get(&(layer, content)) {
            return Ok(source.clone());
        }
        let info = self.stack.open(layer)?;
        let index = match self.slots[layer] {
            Slot::Same(index) => index,
            Slot::Other(_, what) => {
                return Err(info.place(
                    Error::corrupt(format!(
                        "the fragment's attribute `{}` has {what} than in the view's schema",
                        String::from_utf8_lossy(&self.attribute.name)
                    ))
                    .at(0),
                ));
            }
            Slot::Nothing => unreachable!("no cells come from a layer without the attribute"),
        };
        let source = Arc::new(self.open(layer, &info, index, content)?);
        sources().put((layer, content), source.clone());
        Ok(source)
    }

    fn open(
        &self,
        layer: usize,
        info: &Arc<FragmentInfo>,
        index: usize,
        content: Content,
    ) -> Result<OpenField> {
        let field = info
            .attribute(index)
            .ok_or_else(|| info.place(Error::corrupt("the fragment has no slot for the attribute").at(0)))?;
        let layer = &self.stack.overlay.layers()[layer];
        let shape = match layer.dense {
            true => Shape::Dense(TileLayout::new(&self.stack.space, &layer.area, &info.schema)),
            false => Shape::Points(Points::open(&self.stack, info)?),
        };
        Ok(OpenField {
            column: Column::new(info.clone(), field.clone()).open(content, None)?,
            tile_cells: info.geometry.tile_cells,
            shape,
        })
    }

    /// Appends fixed-size values or validity bytes of `cells`. `fill` is that of the fill value.
    fn copy(&self, cells: Range<u64>, content: Content, fill: &[u8], out: &mut Output) -> Result<()> {
        let size = fill.len();
        let wanted = (cells.end - cells.start).checked_mul(size as u64);
        let wanted = wanted.and_then(|bytes| usize::try_from(bytes).ok());
        let wanted = wanted.ok_or_else(|| Error::limit("the read has more bytes than can be addressed"))?;
        let mut piece = Output::keeping(self.keep(out.keep));
        out.fill(wanted, |out| {
            self.plans(&cells, content, piece.keep, |source, plan| {
                let Some((_, source)) = source else {
                    return plan.runs(|run| {
                        fill_run(fill, out, &run);
                        Ok(())
                    });
                };
                plan.windows(size as u64, source.tile_cells, |window, runs| {
                    let bytes = window.start * size as u64..window.end * size as u64;
                    piece.clear();
                    source.column.read(bytes, &mut piece)?;
                    for run in runs {
                        let start = (run.source - window.start) as usize * size;
                        let from = &piece[start..start + run.count as usize * size];
                        scatter(size, from, out, run.dest as usize, run.step as usize);
                    }
                    Ok(())
                })
            })
        })
    }

    /// The start of the value of each of the var-sized `cells`, and its length in bytes.
    fn places(&self, cells: &Range<u64>, keep: Option<Keep>) -> Result<(Vec<ValueStart>, Vec<u64>)> {
        let count = (cells.end - cells.start) as usize;
        let none = ValueStart {
            layer: None,
            start: 0,
        };
        let (mut places, mut lengths) = (vec![none; count], vec![0; count]);
        let fill = self.attribute.fill_value.len() as u64;
        let keep = self.keep(keep);
        let mut starts = Vec::new();
        self.plans(cells, Content::Offsets, keep, |source, plan| {
            let mut put = |run: &Run, layer: Option<usize>, cell: &dyn Fn(usize) -> (u64, u64)| {
                for i in 0..run.count as usize {
                    let place = run.dest as usize + i * run.step as usize;
                    let (start, end) = cell(i);
                    places[place] = ValueStart { layer, start };
                    lengths[place] = end - start;
                }
            };
            let Some((layer, source)) = source else {
                return plan.runs(|run| {
                    put(&run, None, &|_| (0, fill));
                    Ok(())
                });
            };
            plan.windows(8, source.tile_cells, |window, runs| {
                starts.clear();
                let tile = window.start / source.tile_cells;
                let first = tile * source.tile_cells;
                let within = window.start - first..window.end - first;
                source.column.starts(tile, within, keep, &mut starts)?;
                for run in runs {
                    let first = (run.source - window.start) as usize;
                    put(run, Some(layer), &|i| (starts[first + i], starts[first + i + 1]));
                }
                Ok(())
            })
        })?;
        Ok((places, lengths))
    }

    /// Appends the range `bytes` of the value that begins at `place`.
    fn bytes(&self, place: ValueStart, bytes: Range<u64>, out: &mut Output) -> Result<()> {
        let Some(layer) = place.layer else {
            let fill = &self.attribute.fill_value;
            out.append(&fill[bytes.start as usize..bytes.end as usize]);
            return Ok(());
        };
        let source = self.source(layer, Content::Data)?;
        let range = place.start + bytes.start..place.start + bytes.end;
        source.column.read(range, out)
    }

    /// Copies `runs` of values to their places in `out`, which they fill. What is copied is read into
    /// `piece`.
    fn copy_values(
        &self,
        runs: &[(ValueStart, u64, Range<u64>)],
        piece: &mut Output,
        out: &mut [u8],
    ) -> Result<()> {
        let mut rest = runs;
        while let Some((first, end, _)) = rest.first() {
            // Runs that are close to each other are read together.
            let mut end = *end;
            let together = rest
                .iter()
                .enumerate()
                .skip(1)
                .take_while(|(_, (place, last, _))| {
                    let near = place.layer == first.layer
                        && first.layer.is_some()
                        && place.start.saturating_sub(end) <= MAX_GAP
                        && *last - first.start <= MAX_WINDOW;
                    if near {
                        end = end.max(*last);
                    }
                    near
                });
            let count = together.last().map_or(1, |(i, _)| i + 1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let source = match first.layer {
                None => None,
                Some(layer) => Some(self.source(layer, Content::Data)?),
            };
            let window = first.start..end;
            piece.clear();
            let bytes: &[u8] = match &source {
                Some(source) => {
                    source.column.read(window.clone(), piece)?;
                    piece
                }
                None => &self.attribute.fill_value,
            };
            for (place, _, dest) in now {
                let start = (place.start - window.start) as usize;
                let length = (dest.end - dest.start) as usize;
                let to = &mut out[dest.start as usize..dest.end as usize];
                to.copy_from_slice(&bytes[start..start + length]);
            }
        }
        Ok(())
    }
}

impl Runs for DenseRuns {
    fn count(&self) -> u64 {
        self.count
    }

    fn fixed(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        self.copy(cells, Content::Data, &self.attribute.fill_value, out)
    }

    fn validity(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        let fill = [u8::from(self.attribute.fill_value_valid)];
        self.copy(cells, Content::Validity, &fill, out)
    }

    fn lengths(&self, cells: Range<u64>, keep: Option<Keep>, out: &mut Vec<u64>) -> Result<()> {
        out.append(&mut self.places(&cells, keep)?.1);
        Ok(())
    }

    fn var(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        let (places, lengths) = self.places(&cells, out.keep)?;
        // Values that are contiguous both in a fragment and in the view become one run. Runs are read in the
        // order in which they are stored.
        let mut runs: Vec<(ValueStart, u64, Range<u64>)> = Vec::new();
        let mut total = 0u64;
        for (place, length) in places.into_iter().zip(lengths) {
            let start = total;
            total = total
                .checked_add(length)
                .ok_or_else(|| Error::limit("the values take more than 2^64 bytes"))?;
            match runs.last_mut() {
                _ if length == 0 => {}
                Some((before, end, dest))
                    if place.layer.is_some() && before.layer == place.layer && *end == place.start =>
                {
                    *end += length;
                    dest.end = total;
                }
                _ => runs.push((place, place.start + length, start..total)),
            }
        }
        runs.sort_unstable_by_key(|(place, _, _)| *place);
        let wanted = usize::try_from(total)
            .map_err(|_| Error::limit("the read has more bytes than can be addressed"))?;
        let mut piece = Output::keeping(self.keep(out.keep));
        out.fill(wanted, |out| self.copy_values(&runs, &mut piece, out))
    }

    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Output) -> Result<()> {
        let cells = cell..cell + 1;
        let keep = self.keep(out.keep);
        let place = match self.attribute.cell_size() {
            None => self.places(&cells, keep)?.0[0],
            Some(size) => {
                let mut found = None;
                self.plans(&cells, Content::Data, keep, |source, plan| {
                    plan.runs(|run| {
                        // A single cell of the fill value is number 0 of its source.
                        found = Some(ValueStart {
                            layer: source.map(|(layer, _)| layer),
                            start: run.source * size,
                        });
                        Ok(())
                    })
                })?;
                found.expect("the plans have each cell")
            }
        };
        match keep {
            Some(keep) => out.kept(keep, |out| self.bytes(place, bytes, out)),
            None => self.bytes(place, bytes, out),
        }
    }
}

/// Runs with a gap of at most this many bytes between them are read together.
const MAX_GAP: u64 = 4 << 10;

/// The most bytes of runs that are read together.
const MAX_WINDOW: u64 = 256 << 10;

/// Writes the fill value to the cells of `run`.
fn fill_run(fill: &[u8], out: &mut [u8], run: &Run) {
    let size = fill.len();
    assert_inside(
        run.dest as usize,
        run.step as usize,
        run.count as usize,
        size,
        out.len(),
    );
    let out = &mut out[run.dest as usize * size..];
    if run.step != 1 {
        let cells = out.chunks_exact_mut(size).step_by(run.step as usize);
        cells
            .take(run.count as usize)
            .for_each(|cell| cell.copy_from_slice(fill));
        return;
    }
    let out = &mut out[..run.count as usize * size];
    // Copies what has been written, doubling each time.
    let mut done = size.min(out.len());
    out[..done].copy_from_slice(&fill[..done]);
    while done < out.len() {
        let more = done.min(out.len() - done);
        out.copy_within(..more, done);
        done += more;
    }
}

/// Bytes of the chunks that a row of cells passes through and that the next row needs again.
fn band(stack: &Stack, schema: &Schema, size: u64, shape: &[u64]) -> u64 {
    const CHUNK: u64 = 64 << 10;
    let axes = || stack.space.axes.iter().zip(shape);
    let tile = axes().fold(size, |bytes, (axis, length)| {
        bytes.saturating_mul(axis.extent.min(*length))
    });
    let live = match schema.cell_order == Order::ColMajor {
        true => tile,
        false => tile.min(CHUNK),
    };
    let mut inner = axes().skip_while(|(axis, length)| axis.extent.min(**length) <= 1);
    inner.next();
    inner.fold(live, |bytes, (axis, length)| {
        bytes.saturating_mul(length.div_ceil(axis.extent))
    })
}
