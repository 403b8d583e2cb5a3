//! Writes dense arrays, fragment by fragment, and compares their views with a model that finds the fragment
//! of each cell independently, without another library.

use super::super::testing::{Files, Parts, UUID, generic, open, read, tile};
use super::super::{DimRange, Merge, View};
use super::copy::Target;
use super::points::Points;
use crate::bytes::Output;
use crate::catalog::Array;
use crate::error::ErrorKind;
use crate::format::testing::{Bytes, Random, ZSTD};
use crate::fragment::column::Content;
use crate::runtime::stats::Stats;
use crate::storage::MemoryStorage;
use std::path::Path;
use std::sync::Arc;

/// The type of an attribute in a schema.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// Three INT16, nullable.
    Fixed,
    /// STRING_ASCII.
    Var,
    /// INT64, replacing one of the others.
    Long,
}

const INT16: u8 = 7;
const INT32: u8 = 0;
const INT64: u8 = 1;
const ASCII: u8 = 11;
const FILL: [u8; 6] = [1, 2, 3, 4, 5, 6];

/// A schema: INT32 dimensions, orders (1: col-major) and attributes.
#[derive(Clone, Debug)]
struct Design {
    /// Lower and upper end of the domain, and tile extent.
    dimensions: Vec<(i32, i32, i32)>,
    tile_order: u8,
    cell_order: u8,
    attributes: Vec<(&'static str, Kind)>,
    filter: &'static [(u8, &'static [u8])],
}

impl Design {
    fn bytes(&self) -> Vec<u8> {
        let b = Bytes::default().u32(22).u8(0).u8(0);
        let b = b.u8(self.tile_order).u8(self.cell_order).u64(4);
        let b = b.pipeline(&[]).pipeline(self.filter).pipeline(self.filter);
        let mut b = b.u32(self.dimensions.len() as u32);
        for (i, (low, high, extent)) in self.dimensions.iter().enumerate() {
            b = b.text32(&format!("d{i}")).u8(INT32).u32(1).pipeline(&[]).u64(8);
            b = b.u32(*low as u32).u32(*high as u32).u8(0).u32(*extent as u32);
        }
        b = b.u32(self.attributes.len() as u32);
        for (name, kind) in &self.attributes {
            let (datatype, number, fill): (u8, u32, &[u8]) = match kind {
                Kind::Fixed => (INT16, 3, &FILL),
                Kind::Var => (ASCII, u32::MAX, b"none"),
                Kind::Long => (INT64, 1, &[9; 8]),
            };
            let b2 = b.text32(name).u8(datatype).u32(number).pipeline(self.filter);
            let nullable = u8::from(*kind == Kind::Fixed);
            b = b2.u64(fill.len() as u64).raw(fill).u8(nullable).u8(nullable);
            b = b.u8(0).text32("");
        }
        b.u32(0).u32(0).u32(0).u8(1).bytes
    }

    /// All cells of a box, tile by tile, in the order of a fragment that covers it.
    fn stored(&self, area: &[(i32, i32)]) -> Vec<Vec<Vec<i32>>> {
        let tiles: Vec<(i32, i32)> = self
            .dimensions
            .iter()
            .zip(area)
            .map(|(d, (low, high))| ((low - d.0).div_euclid(d.2), (high - d.0).div_euclid(d.2)))
            .collect();
        let cells = |tile: &Vec<i32>| {
            let sides: Vec<(i32, i32)> = self
                .dimensions
                .iter()
                .zip(tile)
                .map(|(d, t)| (d.0 + t * d.2, d.0 + t * d.2 + d.2 - 1))
                .collect();
            places(&sides, self.cell_order == 1)
        };
        places(&tiles, self.tile_order == 1).iter().map(cells).collect()
    }
}

/// All coordinates in a box, both ends inclusive, in row-major or column-major order.
fn places(sides: &[(i32, i32)], column: bool) -> Vec<Vec<i32>> {
    let mut sides = sides.to_vec();
    if column {
        sides.reverse();
    }
    let mut all = vec![Vec::new()];
    for (low, high) in sides {
        let longer = |place: &Vec<i32>| {
            let place = place.clone();
            (low..=high).map(move |index| [place.clone(), vec![index]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    if column {
        all.iter_mut().for_each(|place| place.reverse());
    }
    all
}

/// The value of fragment `number` at a cell: validity, three numbers, and a text.
fn value(number: usize, place: &[i32]) -> (u8, [u8; 6], Vec<u8>) {
    let mut hash = number as u64 + 1;
    for index in place {
        hash = hash.wrapping_mul(1_000_003).wrapping_add(*index as u32 as u64);
    }
    let bytes = hash.to_le_bytes();
    let text = b"abcdefghijklmnopqrstuvwxyz".repeat(if hash.is_multiple_of(97) { 3000 } else { 1 });
    let length = match hash % 97 {
        0 => text.len(),
        _ => (hash % 9) as usize,
    };
    let mut text = text[..length].to_vec();
    text.iter_mut().for_each(|letter| *letter ^= number as u8);
    (
        u8::from(!hash.is_multiple_of(5)),
        std::array::from_fn(|i| bytes[i]),
        text,
    )
}

/// An array in memory.
#[derive(Default)]
struct Writer {
    storage: MemoryStorage,
    fragments: usize,
}

impl Writer {
    fn schema(&mut self, stamp: usize, design: &Design) {
        let path = format!("__schema/__{stamp}_{stamp}_{UUID}");
        self.storage.insert(Path::new(&path), generic(&design.bytes()));
    }

    /// Writes a fragment of the cells of `area`; with `cells`, a sparse one of these. Uses the schema with
    /// that timestamp.
    fn fragment(
        &mut self,
        stamp: usize,
        design: &Design,
        area: &[(i32, i32)],
        cells: Option<&[Vec<i32>]>,
    ) -> String {
        let number = self.fragments;
        self.fragments += 1;
        let when = 100 + number;
        let name = format!("__{when}_{when}_{UUID}_22");
        let tiles: Vec<Vec<Vec<i32>>> = match cells {
            None => design.stored(area),
            Some(cells) => cells.chunks(4).map(<[Vec<i32>]>::to_vec).collect(),
        };
        let mut fields: Vec<(String, Files)> = Vec::new();
        for (i, (_, kind)) in design.attributes.iter().enumerate() {
            let mut files = Files::default();
            for cells in &tiles {
                let values: Vec<_> = cells.iter().map(|place| value(number, place)).collect();
                match kind {
                    Kind::Fixed => {
                        let data: Vec<u8> = values.iter().flat_map(|v| v.1).collect();
                        Files::put(&mut files.fixed, &tile(design.filter, &data, 42));
                        let validity: Vec<u8> = values.iter().map(|v| v.0).collect();
                        Files::put(&mut files.validity, &tile(design.filter, &validity, 16));
                    }
                    Kind::Long => {
                        let data: Vec<u8> = values.iter().flat_map(|v| [v.0; 8]).collect();
                        Files::put(&mut files.fixed, &tile(design.filter, &data, 64));
                    }
                    Kind::Var => {
                        let mut start = 0u64;
                        let mut offsets = Vec::new();
                        for value in &values {
                            offsets.extend(start.to_le_bytes());
                            start += value.2.len() as u64;
                        }
                        Files::put(&mut files.fixed, &tile(design.filter, &offsets, 40));
                        let data: Vec<u8> = values.iter().flat_map(|v| v.2.clone()).collect();
                        Files::put(&mut files.var, &tile(design.filter, &data, 1000));
                        files.var_sizes.push(start);
                    }
                }
            }
            fields.push((format!("a{i}"), files));
        }
        fields.push((String::new(), Files::default()));
        for i in 0..design.dimensions.len() {
            let mut files = Files::default();
            for cells in tiles.iter().filter(|_| cells.is_some()) {
                let data: Vec<u8> = cells.iter().flat_map(|place| place[i].to_le_bytes()).collect();
                Files::put(&mut files.fixed, &tile(&[], &data, 1 << 16));
            }
            fields.push((format!("d{i}"), files));
        }
        let domain = area.iter().fold(Bytes::default(), |bytes, (low, high)| {
            bytes.u32(*low as u32).u32(*high as u32)
        });
        let parts = Parts {
            schema: format!("__{stamp}_{stamp}_{UUID}"),
            dense: cells.is_none(),
            domain: domain.bytes,
            rtree: Bytes::default().u32(10).u32(0).bytes,
            tiles: if cells.is_some() { tiles.len() as u64 } else { 0 },
            last_tile_cells: tiles.last().map_or(0, Vec::len) as u64,
            has_timestamps: false,
            has_delete_metadata: false,
            fields,
        };
        parts.write(&mut self.storage, &name);
        name
    }

    fn open(&self) -> (Arc<Array>, Arc<Stats>) {
        open(&self.storage)
    }
}

/// A fragment in the model.
struct Painted {
    area: Vec<(i32, i32)>,
    attributes: Vec<(&'static str, Kind)>,
    /// The coordinates of each cell of a sparse fragment; None for a dense one.
    cells: Option<Vec<Vec<i32>>>,
}

/// The number of the fragment that has the cell at `place`.
fn owner(design: &Design, written: &[Painted], attribute: (&str, Kind), place: &[i32]) -> Option<usize> {
    let in_tile = |area: &[(i32, i32)]| -> Option<Vec<(i32, i32)>> {
        let sides = design.dimensions.iter().zip(area).zip(place);
        sides
            .map(|((d, (low, high)), index)| {
                let first = d.0 + (index - d.0).div_euclid(d.2) * d.2;
                let (low, high) = (*low.max(&first), *high.min(&(first + d.2 - 1)));
                (low <= high).then_some((low, high))
            })
            .collect()
    };
    let within = |inner: &[(i32, i32)], outer: &[(i32, i32)]| {
        inner.iter().zip(outer).all(|(i, o)| o.0 <= i.0 && i.1 <= o.1)
    };
    (0..written.len()).rev().find(|&number| {
        let own = &written[number];
        let has = match &own.cells {
            Some(cells) => cells.iter().any(|cell| cell == place),
            None => own
                .area
                .iter()
                .zip(place)
                .all(|(side, index)| (side.0..=side.1).contains(index)),
        };
        let Some(covered) = in_tile(&own.area).filter(|_| has && own.attributes.contains(&attribute)) else {
            return false;
        };
        let mut newer = written[number + 1..].iter().filter(|newer| newer.cells.is_none());
        let dropped = newer.any(|newer| in_tile(&newer.area).is_some_and(|newer| within(&covered, &newer)));
        !dropped
    })
}

/// Arrays of random shapes, orders, schemas and fragments, dense and sparse ones.
#[test]
fn views_equal_a_model_that_paints_cell_after_cell() {
    let mut counted = 0;
    for seed in 0..60 {
        let mut numbers = Random(seed);
        let dimensions = 1 + numbers.below(3) as usize;
        let design = |numbers: &mut Random, dimensions: Vec<(i32, i32, i32)>| {
            let mut attributes = vec![("f", Kind::Fixed), ("v", Kind::Var)];
            match numbers.below(6) {
                0 => drop(attributes.remove(0)),
                1 => drop(attributes.remove(1)),
                // A fixed-size attribute that replaces a var-sized one counts as missing.
                2 => attributes[1].1 = Kind::Long,
                _ => {}
            }
            Design {
                dimensions,
                tile_order: numbers.below(2) as u8,
                cell_order: numbers.below(2) as u8,
                attributes,
                filter: if numbers.below(2) == 0 { &[] } else { &[ZSTD] },
            }
        };
        let sides = (0..dimensions).map(|_| {
            let low = numbers.below(20) as i32 - 10;
            (
                low,
                low + 9 + numbers.below(8) as i32,
                1 + numbers.below(6) as i32,
            )
        });
        let sides: Vec<_> = sides.collect();
        let mut writer = Writer::default();
        let mut written: Vec<Painted> = Vec::new();
        let count = numbers.below(7) as usize;
        for number in 0..count {
            let own = design(&mut numbers, sides.clone());
            writer.schema(number + 1, &own);
            let mut side = |low: i32, high: i32| {
                let mut one = || low + numbers.below((high - low + 1) as u64) as i32;
                let (a, b) = (one(), one());
                (a.min(b), a.max(b))
            };
            let mut area: Vec<(i32, i32)> = sides.iter().map(|d| side(d.0, d.1)).collect();
            let mut cells = None;
            if numbers.below(4) == 0 {
                let mut some = places(&area, false);
                some.retain(|_| numbers.below(3) == 0);
                some.truncate(30);
                if !some.is_empty() {
                    for (i, side) in area.iter_mut().enumerate() {
                        let along = || some.iter().map(|place| place[i]);
                        *side = (along().min().unwrap(), along().max().unwrap());
                    }
                    cells = Some(some);
                }
            }
            writer.fragment(number + 1, &own, &area, cells.as_deref());
            written.push(Painted {
                area,
                attributes: own.attributes,
                cells,
            });
        }
        let now = Design {
            attributes: vec![("f", Kind::Fixed), ("v", Kind::Var)],
            ..design(&mut numbers, sides.clone())
        };
        writer.schema(99, &now);
        let (array, _) = writer.open();
        let part: Vec<(i32, i32)> = sides.iter().map(|d| (d.0 + 1, d.1 - 1)).collect();
        let ranges = part.iter().map(|(low, high)| DimRange {
            lo: Some(low.to_le_bytes().to_vec()),
            hi: Some(high.to_le_bytes().to_vec()),
        });
        let around = |painted: &[Painted]| -> Option<Vec<(i32, i32)>> {
            let first = painted.first()?.area.clone();
            Some(painted.iter().fold(first, |all, next| {
                let both = all.iter().zip(&next.area);
                both.map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect()
            }))
        };
        for (subarray, region) in [
            (None, around(&written)),
            (Some(ranges.collect()), Some(part.clone())),
        ] {
            let view = View::new(array.clone(), None, subarray).unwrap();
            let Some(region) = region else {
                assert_eq!(view.region().unwrap(), None);
                assert_eq!(view.shape().unwrap(), vec![0; dimensions]);
                continue;
            };
            let shape: Vec<u64> = region.iter().map(|(low, high)| (high - low + 1) as u64).collect();
            assert_eq!(view.shape().unwrap(), shape);
            let all = places(&region, false);
            let (mut data, mut validity) = (Vec::new(), Vec::new());
            let (mut text, mut offsets) = (Vec::new(), vec![0u8; 8]);
            for place in &all {
                match owner(&now, &written, ("f", Kind::Fixed), place) {
                    None => {
                        data.extend(FILL);
                        validity.push(1);
                    }
                    Some(number) => {
                        let value = value(number, place);
                        data.extend(value.1);
                        validity.push(value.0);
                    }
                }
                match owner(&now, &written, ("v", Kind::Var), place) {
                    None => text.extend(b"none"),
                    Some(number) => text.extend(value(number, place).2),
                }
                offsets.extend((text.len() as u64).to_le_bytes());
            }
            // Whether somebody wrote a cell, be it only in other attributes.
            let has = |painted: &Painted, place: &Vec<i32>| match &painted.cells {
                Some(cells) => cells.contains(place),
                None => painted
                    .area
                    .iter()
                    .zip(place)
                    .all(|(side, index)| (side.0..=side.1).contains(index)),
            };
            let marks = all
                .iter()
                .map(|place| u8::from(written.iter().any(|one| has(one, place))));
            let marks: Vec<u8> = marks.collect();
            let dense: Vec<&Painted> = written.iter().filter(|one| one.cells.is_none()).collect();
            let covered = all.iter().all(|place| dense.iter().any(|one| has(one, place)));
            assert_eq!(view.is_covered().unwrap(), covered, "seed {seed}");
            for _ in 0..8 {
                let count = all.len() as u64;
                let start = numbers.below(count + 1);
                let run = start..start + numbers.below(count - start + 1);
                let expected = &marks[run.start as usize..run.end as usize];
                let found = view.written(run.clone()).unwrap();
                assert_eq!(found.is_none(), !expected.contains(&0), "seed {seed}");
                assert!(found.is_none_or(|found| found == expected), "seed {seed}");
                let holes = expected.iter().filter(|mark| **mark == 0).count() as u64;
                let origin = view.origins(&[run]).unwrap().remove(0);
                if let Some(told) = origin.and_then(|origin| origin.unwritten) {
                    assert_eq!(told, holes, "seed {seed}");
                    counted += 1;
                }
            }
            let open = |field| view.open(dimensions + field).unwrap();
            for step in [1 << 20, 7 + numbers.below(5000)] {
                let (fixed, var) = (open(0), open(1));
                assert!(read(&*fixed, Content::Data, step) == data, "seed {seed}");
                assert!(read(&*fixed, Content::Validity, step) == validity, "seed {seed}");
                assert!(read(&*var, Content::Offsets, step) == offsets, "seed {seed}");
                assert!(read(&*var, Content::Data, step) == text, "seed {seed}");
            }
            let first: Vec<u64> = shape.iter().map(|length| numbers.below(*length)).collect();
            let sides = shape.iter().zip(&first);
            let sides: Vec<u64> = sides.map(|(all, first)| numbers.below(all - first + 1)).collect();
            let inside = |place: &[i32]| {
                let mut axes = place.iter().zip(&region).zip(first.iter().zip(&sides));
                axes.all(|((index, (low, _)), (first, length))| {
                    (*first..first + length).contains(&((index - low) as u64))
                })
            };
            let cells = all.iter().zip(data.chunks(FILL.len()));
            let expected: Vec<u8> = cells
                .filter(|(place, _)| inside(place))
                .flat_map(|(_, cell)| cell.to_vec())
                .collect();
            let part = view.open_box(dimensions, &first, &sides).unwrap();
            assert!(read(&*part, Content::Data, 100) == expected, "seed {seed}");
            assert!(view.open_box(dimensions, &first, &vec![100; dimensions]).is_err());
            for (i, (low, high)) in region.iter().enumerate() {
                let coordinates: Vec<u8> = (*low..=*high).flat_map(i32::to_le_bytes).collect();
                assert_eq!(read(&*view.open(i).unwrap(), Content::Data, 5), coordinates);
            }
        }
    }
    assert!(counted > 300, "{counted} runs whose holes metadata counts");
}

/// An array of one filtered attribute over a square of `side` cells in tiles of `extent`.
fn square(side: i32, extent: i32, cell_order: u8) -> (Writer, Design) {
    let design = Design {
        dimensions: vec![(1, side, extent); 2],
        tile_order: 0,
        cell_order,
        attributes: vec![("f", Kind::Fixed)],
        filter: &[ZSTD],
    };
    let mut writer = Writer::default();
    writer.schema(1, &design);
    writer.fragment(1, &design, &[(1, side); 2], None);
    (writer, design)
}

#[test]
fn a_box_decodes_the_tiles_that_it_touches_once_each() {
    for cell_order in [0, 1] {
        let (writer, _) = square(64, 8, cell_order);
        // 64 cells of 6 bytes in chunks of 42.
        let chunks_of_tile = 10;
        let range = |low: i32, high: i32| DimRange {
            lo: Some(low.to_le_bytes().to_vec()),
            hi: Some(high.to_le_bytes().to_vec()),
        };
        let (array, stats) = writer.open();
        let view = View::new(array, None, Some(vec![range(9, 24), range(33, 40)])).unwrap();
        let cells = view.open(2).unwrap();
        assert_eq!(cells.len(Content::Data).unwrap(), 16 * 8 * 6);
        assert_eq!(stats.chunks_decoded.get(), 0, "its length is known without data");
        read(&*cells, Content::Data, 50);
        assert_eq!(stats.chunks_decoded.get(), 2 * chunks_of_tile);
        let (array, stats) = writer.open();
        let view = View::new(array, None, None).unwrap();
        read(&*view.open(2).unwrap(), Content::Data, 500);
        assert_eq!(stats.chunks_decoded.get(), 64 * chunks_of_tile);
    }
}

/// A tile has as many cells as its schema says, which nothing bounds.
#[test]
fn coordinates_of_a_tile_are_read_some_at_a_time() {
    let (mut writer, design) = square(16, 4, 0);
    let cells = places(&[(3, 4), (2, 6)], false);
    writer.fragment(1, &design, &[(3, 4), (2, 6)], Some(&cells));
    let (array, _) = writer.open();
    let view = View::new(array, None, None).unwrap();
    let Merge::Dense(dense) = view.merge().unwrap() else {
        panic!("the array is dense")
    };
    let stack = dense.stack().unwrap();
    let points = Points::open(stack, &stack.open(1).unwrap()).unwrap();
    let target = Target {
        origin: &[0, 0],
        strides: &[16, 1],
        start: 0,
    };
    let (mut found, mut counts) = (Vec::new(), Vec::new());
    let domain = stack.space.domain();
    points
        .within(&stack.space, &domain, &[], &target, None, &mut |piece| {
            counts.push(piece.len());
            found.extend(piece);
            Ok(())
        })
        .unwrap();
    let expected = cells.iter().map(|place| (place[0] - 1) * 16 + place[1] - 1);
    let expected = expected.map(|place| place as u64);
    assert_eq!(found, Vec::from_iter((0..10).zip(expected)));
    // Three of the four cells of a tile at a time.
    assert_eq!(counts, [3, 1, 3, 1, 2]);
}

#[test]
fn what_cannot_be_given_is_an_error_where_it_is_needed() {
    let (mut writer, design) = square(16, 4, 0);
    let other = Design {
        attributes: vec![("f", Kind::Long)],
        ..design.clone()
    };
    writer.schema(2, &other);
    let name = writer.fragment(2, &other, &[(5, 8), (5, 8)], None);
    writer.schema(3, &design);
    let (array, _) = writer.open();
    let view = View::new(array.clone(), None, None).unwrap();
    let cells = view.open(2).unwrap();
    // Rows of 16 cells of 6 bytes: the fifth row is the first that needs the other type.
    Output::of(|out| cells.read(Content::Data, 0..4 * 96, out)).unwrap();
    let error = Output::of(|out| cells.read(Content::Data, 4 * 96..5 * 96, out))
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(
        text.contains(&name) && text.contains("another datatype"),
        "{text}"
    );
    // The other type does not matter once it is overwritten.
    writer.fragment(3, &design, &[(4, 9), (4, 9)], None);
    let (array, _) = writer.open();
    let view = View::new(array, None, None).unwrap();
    read(&*view.open(2).unwrap(), Content::Data, 96);

    // A fragment that cannot be opened may hide any cell.
    let metadata = format!("__fragments/{name}/__fragment_metadata.tdb");
    writer.storage.insert(Path::new(&metadata), vec![7; 500]);
    let (array, _) = writer.open();
    let view = View::new(array, None, None).unwrap();
    let error = view.shape().unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
    assert!(view.open(2).is_err());
}

#[test]
fn parts_have_open_ends_and_may_be_empty_or_too_large() {
    let (writer, _) = square(16, 4, 0);
    let (array, _) = writer.open();
    let end = |value: i32| Some(value.to_le_bytes().to_vec());
    let shape = |ranges: Vec<DimRange>| View::new(array.clone(), None, Some(ranges)).unwrap().shape();
    let all = DimRange::default();
    let from = DimRange { lo: end(3), hi: None };
    assert_eq!(shape(vec![all.clone(), from]).unwrap(), [16, 14]);
    let wrong = DimRange {
        lo: end(5),
        hi: end(4),
    };
    assert_eq!(shape(vec![wrong, all.clone()]).unwrap(), [0, 16]);
    let outside = DimRange {
        lo: end(5),
        hi: end(17),
    };
    assert_eq!(
        shape(vec![outside, all.clone()]).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert!(shape(vec![all]).is_err());

    // Five dimensions of almost 2^32 cells, nothing written.
    let design = Design {
        dimensions: vec![(i32::MIN, i32::MAX - 10, 10); 5],
        attributes: vec![("v", Kind::Var)],
        ..square(4, 4, 0).1
    };
    let mut writer = Writer::default();
    writer.schema(1, &design);
    let (array, _) = writer.open();
    let side = DimRange {
        lo: end(i32::MIN),
        hi: end(i32::MAX - 10),
    };
    let view = View::new(array.clone(), None, Some(vec![side.clone(); 5])).unwrap();
    assert_eq!(view.shape().unwrap(), [(1u64 << 32) - 10; 5]);
    assert_eq!(view.count().unwrap_err().kind(), ErrorKind::LimitExceeded);
    let one = DimRange {
        lo: end(0),
        hi: end(0),
    };
    let mut ranges = vec![one; 5];
    ranges[0] = side.clone();
    ranges[1] = side;
    let view = View::new(array.clone(), None, Some(ranges.clone())).unwrap();
    let cells = view.open(5).unwrap();
    assert_eq!(cells.count(), ((1u64 << 32) - 10).pow(2));
    assert_eq!(
        cells.len(Content::Data).unwrap_err().kind(),
        ErrorKind::LimitExceeded
    );
    ranges[1] = DimRange {
        lo: end(1),
        hi: end(1),
    };
    ranges[0] = DimRange {
        lo: end(-1000),
        hi: end(99_000),
    };
    let view = View::new(array, None, Some(ranges)).unwrap();
    let bytes = read(&*view.open(5).unwrap(), Content::Data, 1 << 20);
    assert!(bytes == b"none".repeat(100_001));
}

#[test]
fn a_large_array_whose_fragments_cannot_be_read_is_not_taken_for_empty() {
    let design = Design {
        dimensions: vec![(0, (1 << 27) - 1, 4)],
        ..square(16, 4, 0).1
    };
    let mut writer = Writer::default();
    writer.schema(1, &design);
    let name = writer.fragment(1, &design, &[(0, 7)], None);
    let path = format!("__fragments/{name}/__fragment_metadata.tdb");
    writer.storage.insert(Path::new(&path), vec![0; 100]);
    let view = View::new(writer.open().0, None, None).unwrap();
    assert!(view.is_mostly_empty().is_err());
}
