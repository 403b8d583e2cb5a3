//! Random sparse arrays: schemas, fragments and their cells, and how they are stored.

use crate::format::testing::{Bytes, Random, SCALE_FLOAT};
use crate::query::testing::{Files, Parts, UUID, hilbert, rtree, tile};
use crate::storage::MemoryStorage;
use std::cmp::Ordering;

pub(super) const INT32: u8 = 0;
pub(super) const FLOAT32: u8 = 2;
pub(super) const FLOAT64: u8 = 3;
pub(super) const INT16: u8 = 7;
pub(super) const ASCII: u8 = 11;
pub(super) const HILBERT: u8 = 4;

#[derive(Clone, Debug)]
pub(super) enum Coordinate {
    Int(i32),
    Single(f32),
    Double(f64),
    Text(Vec<u8>),
}

pub(super) use Coordinate::{Double, Int, Single, Text};

impl Coordinate {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Int(v) => v.to_le_bytes().to_vec(),
            Single(v) => v.to_le_bytes().to_vec(),
            Double(v) => v.to_le_bytes().to_vec(),
            Text(v) => v.clone(),
        }
    }

    pub(super) fn compare(&self, other: &Coordinate) -> Ordering {
        match (self, other) {
            (Int(a), Int(b)) => a.cmp(b),
            (Single(a), Single(b)) => a.partial_cmp(b).unwrap(),
            (Double(a), Double(b)) => a.partial_cmp(b).unwrap(),
            (Text(a), Text(b)) => a.cmp(b),
            _ => panic!("coordinates of two types"),
        }
    }

    pub(super) fn number(&self) -> f64 {
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
pub(super) struct Dimension {
    pub(super) datatype: u8,
    /// Whether FLOAT64 coordinates are stored as integers, by a lossy filter.
    pub(super) lossy: bool,
    pub(super) domain: Option<(Coordinate, Coordinate)>,
    pub(super) extent: Option<Coordinate>,
}

impl Dimension {
    pub(super) fn random(numbers: &mut Random) -> Dimension {
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
                    lossy: false,
                    domain: None,
                    extent: None,
                };
            }
        };
        Dimension {
            datatype,
            lossy: false,
            domain: Some((low, high)),
            extent: extent.then_some(size),
        }
    }

    /// One of a few coordinates, so that cells have the same ones. Floats include both zeros.
    pub(super) fn coordinate(&self, numbers: &mut Random) -> Coordinate {
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

    fn filters(&self) -> &'static [(u8, &'static [u8])] {
        if self.lossy { &[SCALE_FLOAT] } else { &[] }
    }

    /// The number of the tile that a coordinate lies in.
    pub(super) fn tile(&self, v: &Coordinate) -> u64 {
        match (v, &self.domain, &self.extent) {
            (Int(v), Some((Int(low), _)), Some(Int(extent))) => ((v - low) / extent) as u64,
            (Single(v), Some((Single(low), _)), Some(Single(extent))) => ((v - low) / extent) as u64,
            (Double(v), Some((Double(low), _)), Some(Double(extent))) => ((v - low) / extent) as u64,
            _ => 0,
        }
    }

    pub(super) fn bucket(&self, v: &Coordinate, bits: u32) -> u64 {
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

#[derive(Clone, Debug)]
pub(super) struct Design {
    pub(super) dimensions: Vec<Dimension>,
    pub(super) duplicates: bool,
    pub(super) tile_order: u8,
    pub(super) cell_order: u8,
    pub(super) capacity: usize,
}

impl Design {
    /// One dimension of strings, row-major, without duplicates.
    pub(super) fn of_texts(capacity: usize) -> Design {
        let dimension = Dimension {
            datatype: ASCII,
            lossy: false,
            domain: None,
            extent: None,
        };
        Design {
            dimensions: vec![dimension],
            duplicates: false,
            tile_order: 0,
            cell_order: 0,
            capacity,
        }
    }

    pub(super) fn random(numbers: &mut Random) -> Design {
        let count = 1 + numbers.below(3);
        Design {
            dimensions: (0..count).map(|_| Dimension::random(numbers)).collect(),
            duplicates: numbers.below(2) == 0,
            tile_order: numbers.below(2) as u8,
            cell_order: [0, 1, HILBERT][numbers.below(3) as usize],
            capacity: 1 + numbers.below(7) as usize,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
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
                    b.u32(1)
                        .pipeline(dimension.filters())
                        .u64(domain.len() as u64)
                        .raw(&domain)
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
    pub(super) fn compare(&self, a: &[Coordinate], b: &[Coordinate]) -> Ordering {
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
pub(super) struct Cell {
    pub(super) place: Vec<Coordinate>,
    /// The timestamp at which it was written.
    pub(super) time: u64,
    /// The timestamp at which it was deleted; `u64::MAX` for never.
    pub(super) deleted: u64,
    pub(super) numbers: [u8; 6],
    pub(super) valid: u8,
    pub(super) text: Vec<u8>,
}

impl Cell {
    /// A cell of one INT32 coordinate, written at time 10, with numbers of its own and without text.
    pub(super) fn at(place: i32) -> Cell {
        Cell {
            place: vec![Int(place)],
            time: 10,
            deleted: u64::MAX,
            numbers: [place as u8; 6],
            valid: 1,
            text: Vec::new(),
        }
    }
}

/// A fragment, cells in stored order.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) stamps: (u64, u64),
    pub(super) name: String,
    pub(super) has_timestamps: bool,
    pub(super) has_delete_metadata: bool,
    pub(super) cells: Vec<Cell>,
}

impl Written {
    /// A fragment of up to `most` cells; `number` makes its name unique.
    pub(super) fn random(numbers: &mut Random, design: &Design, number: u64, most: u64) -> Written {
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
        // Some fragments are not in global order. Alone, those with strings are read as they are stored.
        let has_strings = design.dimensions.iter().any(|d| d.datatype == ASCII);
        if numbers.below(4) > 0 || has_strings {
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

    pub(super) fn write(&self, storage: &mut MemoryStorage, design: &Design) {
        let tiles: Vec<&[Cell]> = self.cells.chunks(design.capacity).collect();
        let fixed = |filters: &[(u8, &[u8])], bytes: &dyn Fn(&Cell) -> Vec<u8>| {
            let mut files = Files::default();
            for cells in &tiles {
                let data: Vec<u8> = cells.iter().flat_map(bytes).collect();
                Files::put(&mut files.fixed, &tile(filters, &data, 48));
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
        let mut numbers = fixed(&[], &|cell| cell.numbers.to_vec());
        numbers.validity = fixed(&[], &|cell| vec![cell.valid]).fixed;
        let mut fields = vec![
            ("a0".to_owned(), numbers),
            ("a1".to_owned(), var(&|cell| cell.text.clone())),
            (String::new(), Files::default()),
        ];
        for (i, dimension) in design.dimensions.iter().enumerate() {
            let bytes = |cell: &Cell| match dimension.lossy {
                true => (cell.place[i].number() as i64).to_le_bytes().to_vec(),
                false => cell.place[i].bytes(),
            };
            let files = match dimension.datatype {
                ASCII => var(&bytes),
                _ => fixed(dimension.filters(), &bytes),
            };
            fields.push((format!("d{i}"), files));
        }
        if self.has_timestamps {
            fields.push((
                "t".to_owned(),
                fixed(&[], &|cell| cell.time.to_le_bytes().to_vec()),
            ));
        }
        if self.has_delete_metadata {
            fields.push((
                "dt".to_owned(),
                fixed(&[], &|cell| cell.deleted.to_le_bytes().to_vec()),
            ));
            fields.push(("dci".to_owned(), fixed(&[], &|_| vec![0; 8])));
        }
        let bounds = |cells: &[Cell]| {
            let sides = design.dimensions.iter().enumerate().flat_map(|(i, dimension)| {
                let is_nan = |place: &&Coordinate| matches!(place, Double(number) if number.is_nan());
                let along = || {
                    cells
                        .iter()
                        .map(|cell| &cell.place[i])
                        .filter(|place| !is_nan(place))
                };
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
        let tile_bounds = tiles.iter().map(|cells| bounds(cells));
        let rtree = rtree(&all, &tile_bounds.collect::<Vec<_>>());
        let parts = Parts {
            schema: format!("__1_1_{UUID}"),
            dense: false,
            domain: all,
            rtree,
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
pub(super) fn key(place: &[Coordinate]) -> Vec<Vec<u8>> {
    place.iter().map(Coordinate::bytes).collect()
}
