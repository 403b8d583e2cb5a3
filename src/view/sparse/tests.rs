//! Writes sparse arrays, fragment by fragment, and compares their views with a model. The model collects all
//! cells in a hash map, and sorts those of the view with a plain comparison of coordinates, without keys,
//! windows, heaps or checkpoints.

use super::super::testing::{Files, Numbers, Parts, UUID, generic, open, read, tile};
use super::super::{DimRange, View};
use crate::array::column::Content;
use crate::array::time::TimeRange;
use crate::format::testing::Bytes;
use crate::storage::MemoryStorage;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;

const INT32: u8 = 0;
const FLOAT32: u8 = 2;
const FLOAT64: u8 = 3;
const INT16: u8 = 7;
const ASCII: u8 = 11;
const HILBERT: u8 = 4;

#[derive(Clone, Debug)]
enum Coordinate {
    Int(i32),
    Single(f32),
    Double(f64),
    Text(Vec<u8>),
}

use Coordinate::{Double, Int, Single, Text};

impl Coordinate {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Int(v) => v.to_le_bytes().to_vec(),
            Single(v) => v.to_le_bytes().to_vec(),
            Double(v) => v.to_le_bytes().to_vec(),
            Text(v) => v.clone(),
        }
    }

    fn compare(&self, other: &Coordinate) -> Ordering {
        match (self, other) {
            (Int(a), Int(b)) => a.cmp(b),
            (Single(a), Single(b)) => a.partial_cmp(b).unwrap(),
            (Double(a), Double(b)) => a.partial_cmp(b).unwrap(),
            (Text(a), Text(b)) => a.cmp(b),
            _ => panic!("coordinates of two types"),
        }
    }

    fn number(&self) -> f64 {
        match self {
            Int(v) => f64::from(*v),
            Single(v) => f64::from(*v),
            Double(v) => *v,
            Text(_) => panic!("no number"),
        }
    }
}

/// A dimension; strings have no domain and no extent.
#[derive(Clone, Debug)]
struct Dimension {
    datatype: u8,
    domain: Option<(Coordinate, Coordinate)>,
    extent: Option<Coordinate>,
}

impl Dimension {
    fn random(numbers: &mut Numbers) -> Dimension {
        let extent = numbers.below(5) > 0;
        let (datatype, low, high, size) = match numbers.below(4) {
            0 => {
                let low = numbers.below(20) as i32 - 10;
                let high = low + numbers.below(12) as i32;
                let size = 1 + numbers.below(u64::from((high - low + 1).unsigned_abs())) as i32;
                (INT32, Int(low), Int(high), Int(size))
            }
            1 => {
                let size = [0.25, 0.3, 1.0][numbers.below(3) as usize];
                (FLOAT32, Single(-1.0), Single(2.0), Single(size))
            }
            2 => {
                let size = [0.25, 0.1, 5.0][numbers.below(3) as usize];
                (FLOAT64, Double(-2.0), Double(3.0), Double(size))
            }
            _ => {
                return Dimension {
                    datatype: ASCII,
                    domain: None,
                    extent: None,
                };
            }
        };
        Dimension {
            datatype,
            domain: Some((low, high)),
            extent: extent.then_some(size),
        }
    }

    /// One of a few coordinates, so that cells have the same ones. Floats include both zeros.
    fn coordinate(&self, numbers: &mut Numbers) -> Coordinate {
        let zero = numbers.below(5);
        match &self.domain {
            Some((Int(low), Int(high))) => Int(low + numbers.below((high - low + 1) as u64) as i32),
            Some((Single(low), Single(high))) => Single(match zero {
                0 => -0.0,
                1 => 0.0,
                _ => low + (high - low) * numbers.below(11) as f32 / 10.0,
            }),
            Some((Double(low), Double(high))) => Double(match zero {
                0 => -0.0,
                1 => 0.0,
                _ => low + (high - low) * numbers.below(11) as f64 / 10.0,
            }),
            _ => {
                let words: [&[u8]; 9] = [
                    b"",
                    b"a",
                    b"aa",
                    b"ab",
                    b"b",
                    b"longer than eight",
                    b"longer th",
                    b"z",
                    b"\x7f",
                ];
                Text(words[numbers.below(9) as usize].to_vec())
            }
        }
    }

    /// The number of the tile that a coordinate lies in.
    fn tile(&self, v: &Coordinate) -> u64 {
        match (v, &self.domain, &self.extent) {
            (Int(v), Some((Int(low), _)), Some(Int(extent))) => ((v - low) / extent) as u64,
            (Single(v), Some((Single(low), _)), Some(Single(extent))) => ((v - low) / extent) as u64,
            (Double(v), Some((Double(low), _)), Some(Double(extent))) => ((v - low) / extent) as u64,
            _ => 0,
        }
    }

    fn bucket(&self, v: &Coordinate, bits: u32) -> u64 {
        if let Text(text) = v {
            let mut bytes = [0; 8];
            let length = text.len().min(8);
            bytes[..length].copy_from_slice(&text[..length]);
            return u64::from_be_bytes(bytes) >> (64 - bits);
        }
        let (low, high) = self.domain.as_ref().unwrap();
        let width = high.number() - low.number();
        if width == 0.0 {
            return 0;
        }
        ((v.number() - low.number()) / width * ((1u64 << bits) - 1) as f64) as u64
    }
}

/// The position on the Hilbert curve of a cell in these buckets.
fn hilbert(mut x: Vec<u64>, bits: u32) -> u64 {
    let d = x.len();
    let mut q = 1u64 << (bits - 1);
    while q > 1 {
        let p = q - 1;
        if x[0] & q != 0 {
            x[0] ^= p;
        }
        for i in 1..d {
            if x[i] & q != 0 {
                x[0] ^= p;
            } else {
                let t = (x[0] ^ x[i]) & p;
                x[0] ^= t;
                x[i] ^= t;
            }
        }
        q >>= 1;
    }
    for i in 1..d {
        x[i] ^= x[i - 1];
    }
    let mut t = x[d - 1];
    let mut i = 1;
    while i < bits {
        x[d - 1] ^= x[d - 1] >> i;
        i <<= 1;
    }
    t ^= x[d - 1];
    for i in (0..d - 1).rev() {
        x[i] ^= t;
    }
    let mut value = 0;
    for (i, x) in x.iter().enumerate() {
        for j in 0..bits as usize {
            value |= (x >> j & 1) << (j * d + d - 1 - i);
        }
    }
    value
}

#[derive(Clone, Debug)]
struct Design {
    dimensions: Vec<Dimension>,
    duplicates: bool,
    tile_order: u8,
    cell_order: u8,
    capacity: usize,
}

impl Design {
    fn random(numbers: &mut Numbers) -> Design {
        let count = 1 + numbers.below(3);
        Design {
            dimensions: (0..count).map(|_| Dimension::random(numbers)).collect(),
            duplicates: numbers.below(2) == 0,
            tile_order: numbers.below(2) as u8,
            cell_order: [0, 1, HILBERT][numbers.below(3) as usize],
            capacity: 1 + numbers.below(7) as usize,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let b = Bytes::default().u32(22).u8(u8::from(self.duplicates)).u8(1);
        let b = b
            .u8(self.tile_order)
            .u8(self.cell_order)
            .u64(self.capacity as u64);
        let b = b.pipeline(&[]).pipeline(&[]).pipeline(&[]);
        let mut b = b.u32(self.dimensions.len() as u32);
        for (i, dimension) in self.dimensions.iter().enumerate() {
            b = b.text32(&format!("d{i}")).u8(dimension.datatype);
            b = match &dimension.domain {
                None => b.u32(u32::MAX).pipeline(&[]).u64(0),
                Some((low, high)) => {
                    let domain = [low.bytes(), high.bytes()].concat();
                    b.u32(1).pipeline(&[]).u64(domain.len() as u64).raw(&domain)
                }
            };
            b = match &dimension.extent {
                None => b.u8(1),
                Some(extent) => b.u8(0).raw(&extent.bytes()),
            };
        }
        b = b.u32(2);
        b = b.text32("f").u8(INT16).u32(3).pipeline(&[]).u64(6).raw(&[7; 6]);
        b = b.u8(1).u8(1).u8(0).text32("");
        b = b
            .text32("v")
            .u8(ASCII)
            .u32(u32::MAX)
            .pipeline(&[])
            .u64(1)
            .raw(b"?");
        b = b.u8(0).u8(0).u8(0).text32("");
        b.u32(0).u32(0).u32(0).u8(1).bytes
    }

    /// The global order of two cells, by their coordinates.
    fn compare(&self, a: &[Coordinate], b: &[Coordinate]) -> Ordering {
        let all: Vec<usize> = (0..self.dimensions.len()).collect();
        let back: Vec<usize> = all.iter().rev().copied().collect();
        if self.cell_order == HILBERT {
            let bits = 63 / self.dimensions.len() as u32;
            let value = |place: &[Coordinate]| {
                let buckets = self.dimensions.iter().zip(place);
                hilbert(buckets.map(|(d, v)| d.bucket(v, bits)).collect(), bits)
            };
            let by_curve = value(a).cmp(&value(b));
            let coordinates = all.iter().map(|&i| a[i].compare(&b[i]));
            return coordinates.fold(by_curve, Ordering::then);
        }
        let tiles = if self.tile_order == 0 { &all } else { &back };
        let cells = if self.cell_order == 0 { &all } else { &back };
        let tile = |i: usize| {
            self.dimensions[i]
                .tile(&a[i])
                .cmp(&self.dimensions[i].tile(&b[i]))
        };
        let by_tile = tiles.iter().map(|&i| tile(i));
        let by_cell = cells.iter().map(|&i| a[i].compare(&b[i]));
        by_tile.chain(by_cell).fold(Ordering::Equal, Ordering::then)
    }
}

/// A cell as it is stored.
#[derive(Clone, Debug)]
struct Cell {
    place: Vec<Coordinate>,
    /// The timestamp at which it was written.
    time: u64,
    /// The timestamp at which it was deleted; `u64::MAX` for never.
    deleted: u64,
    numbers: [u8; 6],
    valid: u8,
    text: Vec<u8>,
}

/// A fragment, cells in stored order.
#[derive(Debug)]
struct Written {
    stamps: (u64, u64),
    name: String,
    has_timestamps: bool,
    has_delete_metadata: bool,
    cells: Vec<Cell>,
}

impl Written {
    /// A fragment of up to `most` cells; `number` makes its name unique.
    fn random(numbers: &mut Numbers, design: &Design, number: u64, most: u64) -> Written {
        let has_timestamps = numbers.below(3) == 0;
        let start = 10 + numbers.below(20);
        let end = if has_timestamps {
            start + numbers.below(8)
        } else {
            start
        };
        // The order of names with equal timestamps is not that in which they were written.
        let shuffled = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let name = format!("__{start}_{end}_{shuffled:016x}{number:016x}_22");
        let has_delete_metadata = has_timestamps && numbers.below(2) == 0;
        let mut cells: Vec<Cell> = (0..1 + numbers.below(most))
            .map(|i| Cell {
                place: design.dimensions.iter().map(|d| d.coordinate(numbers)).collect(),
                time: start + numbers.below(end - start + 1),
                deleted: match has_delete_metadata && numbers.below(3) == 0 {
                    true => start + numbers.below(end - start + 3),
                    false => u64::MAX,
                },
                numbers: std::array::from_fn(|_| numbers.below(256) as u8),
                valid: numbers.below(2) as u8,
                text: format!("{number}.{i}")
                    .repeat(numbers.below(4) as usize)
                    .into_bytes(),
            })
            .collect();
        if !design.duplicates && !has_timestamps {
            // Cells that are written at once have different coordinates.
            let mut seen = std::collections::HashSet::new();
            cells.retain(|cell| seen.insert(key(&cell.place)));
        }
        // Some fragments are not in global order.
        if numbers.below(4) > 0 {
            cells.sort_by(|a, b| {
                let newest_first = match design.duplicates {
                    true => Ordering::Equal,
                    false => b.time.cmp(&a.time),
                };
                design.compare(&a.place, &b.place).then(newest_first)
            });
        }
        Written {
            stamps: (start, end),
            name,
            has_timestamps,
            has_delete_metadata,
            cells,
        }
    }

    fn write(&self, storage: &mut MemoryStorage, design: &Design) {
        let tiles: Vec<&[Cell]> = self.cells.chunks(design.capacity).collect();
        let fixed = |bytes: &dyn Fn(&Cell) -> Vec<u8>| {
            let mut files = Files::default();
            for cells in &tiles {
                let data: Vec<u8> = cells.iter().flat_map(bytes).collect();
                Files::put(&mut files.fixed, &tile(&[], &data, 48));
            }
            files
        };
        let var = |bytes: &dyn Fn(&Cell) -> Vec<u8>| {
            let mut files = Files::default();
            for cells in &tiles {
                let (mut offsets, mut data) = (Vec::new(), Vec::new());
                for cell in *cells {
                    offsets.extend((data.len() as u64).to_le_bytes());
                    data.extend(bytes(cell));
                }
                Files::put(&mut files.fixed, &tile(&[], &offsets, 24));
                Files::put(&mut files.var, &tile(&[], &data, 50));
                files.var_sizes.push(data.len() as u64);
            }
            files
        };
        let mut numbers = fixed(&|cell| cell.numbers.to_vec());
        numbers.validity = fixed(&|cell| vec![cell.valid]).fixed;
        let mut fields = vec![
            ("a0".to_owned(), numbers),
            ("a1".to_owned(), var(&|cell| cell.text.clone())),
            (String::new(), Files::default()),
        ];
        for (i, dimension) in design.dimensions.iter().enumerate() {
            let bytes = |cell: &Cell| cell.place[i].bytes();
            let files = if dimension.datatype == ASCII {
                var(&bytes)
            } else {
                fixed(&bytes)
            };
            fields.push((format!("d{i}"), files));
        }
        if self.has_timestamps {
            fields.push(("t".to_owned(), fixed(&|cell| cell.time.to_le_bytes().to_vec())));
        }
        if self.has_delete_metadata {
            fields.push((
                "dt".to_owned(),
                fixed(&|cell| cell.deleted.to_le_bytes().to_vec()),
            ));
            fields.push(("dci".to_owned(), fixed(&|_| vec![0; 8])));
        }
        let bounds = |cells: &[Cell]| {
            let sides = design.dimensions.iter().enumerate().flat_map(|(i, dimension)| {
                let along = || cells.iter().map(|cell| &cell.place[i]);
                let low = along().min_by(|a, b| a.compare(b)).unwrap().bytes();
                let high = along().max_by(|a, b| a.compare(b)).unwrap().bytes();
                let lengths = [(low.len() + high.len()) as u64, low.len() as u64];
                let lengths: &[u64] = if dimension.datatype == ASCII {
                    &lengths
                } else {
                    &[]
                };
                Bytes::default().u64s(lengths).raw(&low).raw(&high).bytes
            });
            sides.collect::<Vec<u8>>()
        };
        let all = bounds(&self.cells);
        let mut rtree = Bytes::default()
            .u32(1000)
            .u32(if tiles.len() > 1 { 2 } else { 1 });
        if tiles.len() > 1 {
            rtree = rtree.u64(1).raw(&all);
        }
        rtree = rtree.u64(tiles.len() as u64);
        let rtree = tiles.iter().fold(rtree, |rtree, cells| rtree.raw(&bounds(cells)));
        let parts = Parts {
            schema: format!("__1_1_{UUID}"),
            dense: false,
            domain: all,
            rtree: rtree.bytes,
            tiles: tiles.len() as u64,
            last_tile_cells: tiles.last().map_or(0, |cells| cells.len()) as u64,
            has_timestamps: self.has_timestamps,
            has_delete_metadata: self.has_delete_metadata,
            fields,
        };
        parts.write(storage, &self.name);
    }
}

/// The bytes by which coordinates are told apart.
fn key(place: &[Coordinate]) -> Vec<Vec<u8>> {
    place.iter().map(Coordinate::bytes).collect()
}

/// The cells that a view must have.
fn model(
    design: &Design,
    written: &[Written],
    times: TimeRange,
    ranges: Option<&[(Option<Coordinate>, Option<Coordinate>)]>,
) -> Vec<Cell> {
    let mut visible: Vec<&Written> = written
        .iter()
        .filter(|own| own.stamps.0 <= times.end && times.start <= own.stamps.1)
        .collect();
    visible.sort_by(|a, b| (a.stamps.0, &a.name).cmp(&(b.stamps.0, &b.name)));
    /// Timestamp, index of the fragment, index in the fragment, and the cell.
    type Version<'a> = (u64, usize, usize, &'a Cell);
    let mut places: HashMap<Vec<Vec<u8>>, Vec<Version>> = HashMap::new();
    for (index, own) in visible.iter().enumerate() {
        for (at, cell) in own.cells.iter().enumerate() {
            let time = if own.has_timestamps {
                cell.time
            } else {
                own.stamps.0
            };
            if !own.has_timestamps || times.start <= time && time <= times.end {
                places
                    .entry(key(&cell.place))
                    .or_default()
                    .push((time, index, at, cell));
            }
        }
    }
    let mut cells = Vec::new();
    for (_, mut versions) in places {
        if !design.duplicates {
            // The newest is kept; within one fragment, the one that is stored first.
            versions.sort_by_key(|&(time, index, at, _)| (time, index, usize::MAX - at));
            versions = versions.pop().into_iter().collect();
        }
        cells.extend(versions);
    }
    cells.retain(|(.., cell)| cell.deleted > times.end);
    cells.retain(|(.., cell)| {
        ranges.is_none_or(|ranges| {
            cell.place.iter().zip(ranges).all(|(v, (low, high))| {
                low.as_ref().is_none_or(|low| v.compare(low) != Ordering::Less)
                    && high
                        .as_ref()
                        .is_none_or(|high| v.compare(high) != Ordering::Greater)
            })
        })
    });
    cells.sort_by(|a, b| {
        let newest_first = match design.duplicates {
            true => b.1.cmp(&a.1),
            false => (b.0, b.1).cmp(&(a.0, a.1)),
        };
        let order = design.compare(&a.3.place, &b.3.place);
        order.then(newest_first).then(a.2.cmp(&b.2))
    });
    cells.into_iter().map(|(.., cell)| cell.clone()).collect()
}

/// Compares one content of a field with the bytes that it must have: read as a whole, in steps, and in some
/// random parts.
fn check(view: &View, field: usize, content: Content, wanted: &[u8], numbers: &mut Numbers, what: &str) {
    let cells = view.open(field).unwrap();
    assert_eq!(cells.len(content).unwrap(), wanted.len() as u64, "{what}");
    let (mut scratch, len) = (Vec::new(), wanted.len() as u64);
    for _ in 0..3 {
        let from = numbers.below(len + 1);
        let to = from + numbers.below((len - from).min(100) + 1);
        let piece = cells.read(content, from..to, &mut scratch).unwrap();
        assert!(
            *piece == wanted[from as usize..to as usize],
            "{what}: {from}..{to}"
        );
    }
    assert!(read(&*cells, content, 1 + numbers.below(200)) == wanted, "{what}");
    assert!(read(&*cells, content, 1 << 20) == wanted, "{what}");
}

/// Concatenated texts, and the offset of each, with the end of the last.
fn texts<'a>(values: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<u8>) {
    let (mut data, mut offsets) = (Vec::new(), vec![0; 8]);
    for value in values {
        data.extend(value);
        offsets.extend((data.len() as u64).to_le_bytes());
    }
    (data, offsets)
}

/// Compares views of `written`, at random times and in random parts, with the model.
fn compare(numbers: &mut Numbers, design: &Design, written: &[Written], seed: u64) {
    let mut storage = MemoryStorage::default();
    let schema = format!("__schema/__1_1_{UUID}");
    storage.insert(Path::new(&schema), generic(&design.bytes()));
    for own in written {
        own.write(&mut storage, design);
    }
    let (array, _) = open(&storage);
    for round in 0..4 {
        let times = match round {
            0 => None,
            _ => Some(TimeRange {
                start: numbers.below(2) * numbers.below(25),
                end: 10 + numbers.below(30),
            }),
        };
        let ranges: Option<Vec<_>> = (round % 2 == 1).then(|| {
            let sides = design.dimensions.iter().map(|dimension| {
                let (mut low, mut high) = (dimension.coordinate(numbers), dimension.coordinate(numbers));
                if low.compare(&high) == Ordering::Greater {
                    (low, high) = (high, low);
                }
                let open = numbers.below(8);
                ((open != 0).then_some(low), (open != 1).then_some(high))
            });
            sides.collect()
        });
        let subarray = ranges.as_ref().map(|ranges| {
            let sides = ranges.iter().map(|(low, high)| DimRange {
                lo: low.as_ref().map(Coordinate::bytes),
                hi: high.as_ref().map(Coordinate::bytes),
            });
            sides.collect()
        });
        let seen = times.unwrap_or(TimeRange {
            start: 0,
            end: u64::MAX - 1,
        });
        let wanted = model(design, written, seen, ranges.as_deref());
        let what = format!("seed {seed}, {times:?}, {ranges:?}, {design:?}");
        let view = View::new(array.clone(), times, subarray).unwrap();
        assert_eq!(view.count().unwrap(), wanted.len() as u64, "{what}");
        for (i, dimension) in design.dimensions.iter().enumerate() {
            let what = format!("dimension {i}, {what}");
            let values: Vec<Vec<u8>> = wanted.iter().map(|cell| cell.place[i].bytes()).collect();
            let (data, offsets) = texts(values.iter().map(Vec::as_slice));
            check(&view, i, Content::Data, &data, numbers, &what);
            if dimension.datatype == ASCII {
                check(&view, i, Content::Offsets, &offsets, numbers, &what);
            }
        }
        let first = design.dimensions.len();
        let data: Vec<u8> = wanted.iter().flat_map(|cell| cell.numbers).collect();
        let validity: Vec<u8> = wanted.iter().map(|cell| cell.valid).collect();
        let (text, offsets) = texts(wanted.iter().map(|cell| cell.text.as_slice()));
        check(&view, first, Content::Data, &data, numbers, &what);
        check(&view, first, Content::Validity, &validity, numbers, &what);
        check(&view, first + 1, Content::Data, &text, numbers, &what);
        check(&view, first + 1, Content::Offsets, &offsets, numbers, &what);
    }
}

#[test]
fn views_equal_a_model_that_sorts_all_cells() {
    for seed in 0..300 {
        let mut numbers = Numbers(seed * 77 + 1);
        let design = Design::random(&mut numbers);
        let count = numbers.below(7);
        let most = 1 + numbers.below(40);
        let written: Vec<Written> = (0..count)
            .map(|number| Written::random(&mut numbers, &design, number, most))
            .collect();
        compare(&mut numbers, &design, &written, seed);
    }
}

#[test]
fn many_fragments_equal_the_model() {
    for seed in 0..2 {
        let mut numbers = Numbers(seed + 1000);
        let design = Design {
            duplicates: seed == 1,
            ..Design::random(&mut numbers)
        };
        let written: Vec<Written> = (0..300)
            .map(|number| Written::random(&mut numbers, &design, number, 6))
            .collect();
        compare(&mut numbers, &design, &written, seed);
    }
}

/// libtiledb writes strings in the order of signed bytes, and reads them in that of unsigned ones.
#[test]
fn strings_of_signed_bytes_are_merged_by_unsigned_ones() {
    let places: [&[u8]; 8] = [b"", b"\x80", b"\xff", b"a", b"a\x80", b"az", b"b", b"z"];
    for seed in 0..100 {
        let mut numbers = Numbers(seed + 2000);
        let dimension = Dimension {
            datatype: ASCII,
            domain: None,
            extent: None,
        };
        let design = Design {
            dimensions: vec![dimension],
            duplicates: false,
            tile_order: 0,
            cell_order: 0,
            capacity: 1 + numbers.below(4) as usize,
        };
        // All have the same domain and timestamp, so that they are merged: a single one is not sorted.
        let mut written = |number: u64| {
            let chosen = places
                .iter()
                .filter(|place| place.len() != 2 || numbers.below(2) == 0);
            let mut cells: Vec<Cell> = chosen
                .map(|place| Cell {
                    place: vec![Text(place.to_vec())],
                    time: 10,
                    deleted: u64::MAX,
                    numbers: [number as u8; 6],
                    valid: 1,
                    text: place.to_vec(),
                })
                .collect();
            cells.sort_by_key(|cell| cell.text.iter().map(|byte| *byte as i8).collect::<Vec<_>>());
            Written {
                stamps: (10, 10),
                name: format!("__10_10_{number:032x}_22"),
                has_timestamps: false,
                has_delete_metadata: false,
                cells,
            }
        };
        let written: Vec<Written> = (0..2 + seed % 4).map(&mut written).collect();
        compare(&mut numbers, &design, &written, seed);
    }
}

#[test]
fn the_order_of_a_large_fragment_is_looked_at_in_some_places() {
    let dimension = Dimension {
        datatype: INT32,
        domain: Some((Int(0), Int(5000))),
        extent: Some(Int(10)),
    };
    let design = Design {
        dimensions: vec![dimension],
        duplicates: false,
        tile_order: 0,
        cell_order: 0,
        capacity: 16,
    };
    let cell = |place: i32| Cell {
        place: vec![Int(place)],
        time: 10,
        deleted: u64::MAX,
        numbers: [place as u8; 6],
        valid: 1,
        text: Vec::new(),
    };
    let sorted: Vec<i32> = (0..4000).collect();
    let turned: Vec<i32> = (0..4000).rev().collect();
    // Each sample is in order, but the samples are not in order among themselves.
    let halves: Vec<i32> = (2000..4000).chain(0..2000).collect();
    for (places, chunks) in [(sorted, 20), (turned, 1000), (halves, 1000)] {
        let written = Written {
            stamps: (10, 10),
            name: format!("__10_10_{UUID}_22"),
            has_timestamps: false,
            has_delete_metadata: false,
            cells: places.into_iter().map(cell).collect(),
        };
        let mut storage = MemoryStorage::default();
        let schema = format!("__schema/__1_1_{UUID}");
        storage.insert(Path::new(&schema), generic(&design.bytes()));
        written.write(&mut storage, &design);
        let (array, stats) = open(&storage);
        let view = View::new(array, None, None).unwrap();
        let cells = view.open(0).unwrap();
        let mut scratch = Vec::new();
        let first = cells.read(Content::Data, 0..40, &mut scratch).unwrap();
        let wanted: Vec<u8> = (0..10).flat_map(i32::to_le_bytes).collect();
        assert!(*first == wanted);
        let decoded = stats.chunks_decoded.get();
        assert!(decoded < chunks, "{decoded} chunks decoded");
    }
}
