//! Small arrays of every shape, written in memory from the bytes of an input.

use super::bare::bare_tile;
use std::cmp::Ordering;
use std::path::Path;
use tiledbfs::internals::format::datatype::{Datatype, Kind};
use tiledbfs::internals::query::DimRange;
use tiledbfs::internals::storage::MemoryStorage;

const UUID: &str = "0123456789abcdef0123456789abcdef";
const VAR: u32 = u32::MAX;

/// Names of attributes: of what files, tables and grids have rules for.
const NAMES: [&[u8]; 10] = [
    b"a",
    b"",
    b"b/c",
    b"d,\"e",
    b".x",
    b"zarr.json",
    "\u{fc} ".as_bytes(),
    b"a__validity",
    b"_cell",
    b"\xff",
];

/// Decisions that follow from an input: one byte each, 0 where there is none left; and values that follow
/// from its first two bytes.
pub struct Dice<'a> {
    decisions: std::slice::Iter<'a, u8>,
    seed: u64,
}

impl Dice<'_> {
    /// Those of an input.
    pub fn new(data: &[u8]) -> Dice<'_> {
        let (seed, decisions) = data.split_at(data.len().min(2));
        let seed = seed.iter().fold(1, |seed, byte| seed << 8 | u64::from(*byte));
        Dice {
            decisions: decisions.iter(),
            seed,
        }
    }

    /// A decision for a number below `n`, at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.decisions.next().copied().unwrap_or(0)) % n.max(1)
    }

    /// One of some.
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number that is no decision.
    pub fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A stored value, often one that rules are about.
    fn value(&mut self, datatype: Datatype) -> Vec<u8> {
        let random = self.random();
        let size = datatype.size();
        let small = (random >> 32) % 7;
        let whole = match (random % 12, datatype.kind()) {
            (0, _) => u64::MAX,
            (1, Kind::Float) => [0x7fc0_0000, f64::NAN.to_bits()][size / 8],
            (1, _) => 1 << (8 * size - 1),
            (2, Kind::Float) => [0x7f80_0000, f64::INFINITY.to_bits()][size / 8],
            (2, _) => (1 << (8 * size - 1)) - 1,
            (3, Kind::Float) => 1 << (8 * size - 1),
            (3, _) => random,
            (4, _) => (random >> 40) % 40_000,
            (_, Kind::Float) if size == 4 => u64::from((small as f32 - 3.5).to_bits()),
            (_, Kind::Float) => (small as f64 - 3.5).to_bits(),
            _ => small,
        };
        whole.to_le_bytes()[..size].to_vec()
    }

    /// A cell of `number` values.
    fn cell(&mut self, datatype: Datatype, number: u32) -> Vec<u8> {
        let count = match number {
            VAR => [0, 1, 2, 3, 9, 700]
                [(self.random() % 6) as usize % (5 + self.random().is_multiple_of(50) as usize)],
            number => number as usize,
        };
        if !matches!(datatype.kind(), Kind::Text | Kind::Bytes) || datatype.size() > 1 {
            return (0..count).flat_map(|_| self.value(datatype)).collect();
        }
        const LETTERS: [u8; 12] = *b"ab,\"\n\r\t \x00\xff\xc3\xbc";
        (0..count)
            .map(|_| LETTERS[(self.random() % 12) as usize])
            .collect()
    }
}

/// Bytes of a schema, a footer or a section, one after the other.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }
    fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }
    fn u64s(self, values: &[u64]) -> Self {
        values.iter().fold(self, |bytes, value| bytes.u64(*value))
    }
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
    /// A length of 32 bits and what is as long.
    fn text(self, text: &[u8]) -> Self {
        self.u32(text.len() as u32).raw(text)
    }
    /// A length of 64 bits and what is as long.
    fn blob(self, bytes: &[u8]) -> Self {
        self.u64(bytes.len() as u64).raw(bytes)
    }
    /// A pipeline without filters.
    fn pipeline(self) -> Self {
        self.u32(1 << 16).u32(0)
    }
}

/// A coordinate.
#[derive(Clone, PartialEq)]
enum Coordinate {
    Integer(i64),
    Float(f64),
    Text(Vec<u8>),
}

use Coordinate::{Float, Integer, Text};

impl Coordinate {
    fn compare(&self, other: &Coordinate) -> Ordering {
        match (self, other) {
            (Integer(a), Integer(b)) => a.cmp(b),
            (Float(a), Float(b)) => a.total_cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }

    fn stored(&self, datatype: Datatype) -> Vec<u8> {
        match self {
            Integer(value) => value.to_le_bytes()[..datatype.size()].to_vec(),
            Float(value) if datatype.size() == 4 => (*value as f32).to_le_bytes().to_vec(),
            Float(value) => value.to_le_bytes().to_vec(),
            Text(value) => value.clone(),
        }
    }
}

struct Dimension {
    datatype: Datatype,
    /// Both ends; of text those of no domain.
    low: i64,
    high: i64,
    extent: Option<i64>,
}

impl Dimension {
    /// A number of its domain as a coordinate of its type.
    fn coordinate(&self, number: i64) -> Coordinate {
        match self.datatype.kind() {
            Kind::Float => Float(number as f64 / 2.0),
            Kind::Text => Text(vec![b'a'; usize::try_from(number).unwrap_or(0)]),
            _ => Integer(number),
        }
    }

    fn stored(&self, number: i64) -> Vec<u8> {
        self.coordinate(number).stored(self.datatype)
    }

    fn any(&self, random: u64) -> i64 {
        self.low + (random % (self.high - self.low + 1) as u64) as i64
    }
}

struct Attribute {
    name: &'static [u8],
    datatype: Datatype,
    number: u32,
    nullable: bool,
    /// Which enumeration its values are indexes into.
    labels: Option<usize>,
}

/// An array whose shape and values an input decides.
pub struct Design {
    sparse: bool,
    duplicates: bool,
    orders: (u8, u8),
    dimensions: Vec<Dimension>,
    attributes: Vec<Attribute>,
    /// Type and number of the values of each enumeration.
    enumerations: Vec<(Datatype, u32)>,
}

impl Design {
    /// One that `dice` decide.
    pub fn new(dice: &mut Dice<'_>) -> Design {
        let sparse = dice.below(2) == 1;
        let integral = |datatype: &&Datatype| {
            matches!(
                datatype.kind(),
                Kind::Signed | Kind::Unsigned | Kind::Datetime | Kind::Time
            )
        };
        let types: Vec<Datatype> = Datatype::ALL.iter().filter(integral).copied().collect();
        let more = [
            types.clone(),
            vec![Datatype::Float32, Datatype::Float64, Datatype::StringAscii],
        ]
        .concat();
        let count = 1 + dice.below(3);
        let common = dice.pick(&types);
        let dimensions = (0..count).map(|_| {
            let datatype = if sparse { dice.pick(&more) } else { common };
            let low = match datatype.kind() {
                Kind::Unsigned | Kind::Text => dice.below(9) as i64,
                _ => dice.below(40) as i64 - 20,
            };
            let extent = 1 + dice.below(6) as i64;
            Dimension {
                datatype,
                low,
                high: low + dice.below([40, 10, 4][count - 1]) as i64,
                extent: Some(extent)
                    .filter(|_| !sparse || datatype.kind() != Kind::Text && dice.below(4) > 0),
            }
        });
        let dimensions: Vec<Dimension> = dimensions.collect();
        let enumerations = (0..dice.below(3)).map(|_| {
            let datatype = dice.pick(Datatype::ALL);
            let number = if datatype.kind() == Kind::Text { VAR } else { 1 };
            (datatype, number)
        });
        let enumerations: Vec<_> = enumerations.collect();
        let first = dice.below(NAMES.len());
        let attributes = (0..1 + dice.below(5)).map(|i| {
            let datatype = dice.pick(Datatype::ALL);
            let number = dice.pick(&[1, 1, 1, 2, 3, VAR]);
            let labels = dice.below(2 * enumerations.len() + 1);
            let index = matches!(datatype.kind(), Kind::Signed | Kind::Unsigned) && number == 1;
            Attribute {
                name: NAMES[(first + i) % NAMES.len()],
                datatype,
                // What is of any type has cells of any length.
                number: if datatype == Datatype::Any { VAR } else { number },
                nullable: dice.below(2) == 1,
                labels: labels.checked_sub(1).filter(|i| index && *i < enumerations.len()),
            }
        });
        let attributes = attributes.collect();
        Design {
            sparse,
            duplicates: sparse && dice.below(2) == 1,
            attributes,
            orders: (
                dice.below(2) as u8,
                if sparse {
                    dice.pick(&[0, 1, 4])
                } else {
                    dice.below(2) as u8
                },
            ),
            dimensions,
            enumerations,
        }
    }

    /// A part of the domain, or all of it.
    pub fn subarray(&self, dice: &mut Dice<'_>) -> Option<Vec<DimRange>> {
        if dice.below(2) == 0 {
            return None;
        }
        let ranges = self.dimensions.iter().map(|dimension| {
            let (a, b) = (dice.below(41) as u64, dice.below(41) as u64);
            let (a, b) = (dimension.any(a), dimension.any(b));
            let open = dice.below(4);
            DimRange {
                lo: (open & 1 == 0).then(|| dimension.stored(a.min(b))),
                hi: (open & 2 == 0).then(|| dimension.stored(a.max(b))),
            }
        });
        Some(ranges.collect())
    }

    /// Writes the array, with a fragment at each of the times from 10 on.
    pub fn write(&self, dice: &mut Dice<'_>) -> MemoryStorage {
        let mut storage = MemoryStorage::new();
        let mut put = |path: &str, bytes: Vec<u8>| storage.insert(Path::new(path), bytes);
        put(
            &format!("__schema/__1_1_{UUID}"),
            bare_tile(22, &self.schema(dice)),
        );
        for (i, (datatype, number)) in self.enumerations.iter().enumerate() {
            let labels: Vec<Vec<u8>> = (0..dice.below(6))
                .map(|_| dice.cell(*datatype, *number))
                .collect();
            let body = Bytes::default().u32(0).text(b"e").text(enumeration(i).as_bytes());
            let body = body.u8(*datatype as u8).u32(*number).u8(0).blob(&labels.concat());
            let body = match *number {
                VAR => body.blob(starts(&labels).as_flattened()),
                _ => body,
            };
            put(
                &format!("__schema/__enumerations/{}", enumeration(i)),
                bare_tile(22, &body.0),
            );
        }
        for time in 10..10 + dice.below(4) {
            let name = format!("__{time}_{time}_{UUID}_22");
            let (footer, files) = self.fragment(dice);
            put(&format!("__fragments/{name}/__fragment_metadata.tdb"), footer);
            put(&format!("__commits/{name}.wrt"), Vec::new());
            for (file, bytes) in files {
                put(&format!("__fragments/{name}/{file}.tdb"), bytes);
            }
        }
        storage
    }

    fn schema(&self, dice: &mut Dice<'_>) -> Vec<u8> {
        let b = Bytes::default()
            .u32(22)
            .u8(self.duplicates.into())
            .u8(self.sparse.into());
        let b = b.u8(self.orders.0).u8(self.orders.1).u64(CAPACITY as u64);
        let mut b = b
            .pipeline()
            .pipeline()
            .pipeline()
            .u32(self.dimensions.len() as u32);
        for (dimension, name) in self.dimensions.iter().zip([b"x", b"y", b"z"]) {
            let text = dimension.datatype.kind() == Kind::Text;
            b = b
                .text(name)
                .u8(dimension.datatype as u8)
                .u32(if text { VAR } else { 1 })
                .pipeline();
            b = match text {
                true => b.u64(0),
                false => {
                    b.blob(&[dimension.stored(dimension.low), dimension.stored(dimension.high)].concat())
                }
            };
            b = match dimension.extent {
                None => b.u8(1),
                Some(extent) => b.u8(0).raw(&dimension.stored(extent)),
            };
        }
        b = b.u32(self.attributes.len() as u32);
        for attribute in &self.attributes {
            let fill = dice.cell(attribute.datatype, attribute.number);
            let nullable = u8::from(attribute.nullable);
            b = b
                .text(attribute.name)
                .u8(attribute.datatype as u8)
                .u32(attribute.number);
            b = b
                .pipeline()
                .blob(&fill)
                .u8(nullable)
                .u8(nullable * dice.below(2) as u8)
                .u8(0);
            b = b.text(
                attribute
                    .labels
                    .map(|i| format!("e{i}"))
                    .unwrap_or_default()
                    .as_bytes(),
            );
        }
        b = b.u32(0).u32(self.enumerations.len() as u32);
        for i in 0..self.enumerations.len() {
            b = b.text(format!("e{i}").as_bytes()).text(enumeration(i).as_bytes());
        }
        b.u32(0).u8(1).0
    }

    /// The metadata of a fragment, and its other files by their names.
    fn fragment(&self, dice: &mut Dice<'_>) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
        let sides: Vec<(i64, i64)> = self
            .dimensions
            .iter()
            .map(|dimension| {
                let (a, b) = (dimension.any(dice.random()), dimension.any(dice.random()));
                (a.min(b), a.max(b))
            })
            .collect();
        // The coordinates of sparse fragments, tile by tile; of dense ones how many cells each tile has.
        let mut places: Vec<Vec<Coordinate>> = Vec::new();
        let tiles: Vec<usize> = match self.sparse {
            false => {
                let sides = self.dimensions.iter().zip(&sides);
                let tiles = sides.map(|(dimension, (low, high))| {
                    let extent = dimension.extent.unwrap_or(1);
                    ((high - dimension.low) / extent - (low - dimension.low) / extent + 1) as usize
                });
                let extents = self.dimensions.iter().map(|d| d.extent.unwrap_or(1) as usize);
                vec![extents.product(); tiles.product()]
            }
            true => {
                for _ in 0..=dice.below(20) {
                    let place = self
                        .dimensions
                        .iter()
                        .zip(&sides)
                        .map(|(dimension, (low, high))| {
                            dimension.coordinate(low + (dice.random() % (high - low + 1) as u64) as i64)
                        });
                    let place = place.collect();
                    if self.duplicates || !places.contains(&place) {
                        places.push(place);
                    }
                }
                if dice.below(2) == 0 {
                    places.sort_by(|a, b| {
                        let each = a.iter().zip(b).map(|(a, b)| a.compare(b));
                        each.fold(Ordering::Equal, Ordering::then)
                    });
                }
                places.chunks(CAPACITY).map(<[_]>::len).collect()
            }
        };
        let mut fields: Vec<(String, Files)> = Vec::new();
        for (i, attribute) in self.attributes.iter().enumerate() {
            let mut files = Files::default();
            for count in &tiles {
                let cells: Vec<Vec<u8>> = (0..*count)
                    .map(|_| dice.cell(attribute.datatype, attribute.number))
                    .collect();
                files.push(&cells, attribute.number == VAR);
                if attribute.nullable {
                    let validity: Vec<u8> = (0..*count)
                        .map(|_| (!dice.random().is_multiple_of(3)).into())
                        .collect();
                    put(&mut files.validity, &validity);
                }
            }
            fields.push((format!("a{i}"), files));
        }
        fields.push((String::new(), Files::default()));
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let mut files = Files::default();
            for places in places.chunks(CAPACITY) {
                let cells: Vec<Vec<u8>> = places
                    .iter()
                    .map(|place| place[i].stored(dimension.datatype))
                    .collect();
                files.push(&cells, dimension.datatype.kind() == Kind::Text);
            }
            fields.push((format!("d{i}"), files));
        }
        let (domain, rtree) = match self.sparse {
            true => {
                let all = self.bounds(&places);
                let leaves = places.chunks(CAPACITY).flat_map(|places| self.bounds(places));
                let tree = Bytes::default()
                    .u32(1000)
                    .u32(if tiles.len() > 1 { 2 } else { 1 });
                let tree = if tiles.len() > 1 {
                    tree.u64(1).raw(&all)
                } else {
                    tree
                };
                (
                    all,
                    tree.u64(tiles.len() as u64).raw(&leaves.collect::<Vec<u8>>()),
                )
            }
            false => {
                let ends = self
                    .dimensions
                    .iter()
                    .zip(&sides)
                    .flat_map(|(dimension, (low, high))| {
                        [dimension.stored(*low), dimension.stored(*high)].concat()
                    });
                (ends.collect(), Bytes::default().u32(1000).u32(0))
            }
        };
        let metadata = self.metadata(&fields, &tiles, &domain, &rtree.0);
        let files = fields.into_iter().flat_map(|(field, files)| {
            [
                ("", files.fixed.0),
                ("_var", files.var.0),
                ("_validity", files.validity.0),
            ]
            .into_iter()
            .filter(|(_, bytes)| !bytes.is_empty())
            .map(move |(part, bytes)| (format!("{field}{part}"), bytes))
        });
        (metadata, files.collect())
    }

    /// The bounding box of some places.
    fn bounds(&self, places: &[Vec<Coordinate>]) -> Vec<u8> {
        let sides = self.dimensions.iter().enumerate().flat_map(|(i, dimension)| {
            let along = || places.iter().map(|place| &place[i]);
            let ends = [
                along().min_by(|a, b| a.compare(b)),
                along().max_by(|a, b| a.compare(b)),
            ];
            let [low, high] = ends.map(|end| end.map_or(Vec::new(), |end| end.stored(dimension.datatype)));
            let lengths = [(low.len() + high.len()) as u64, low.len() as u64];
            let lengths = match dimension.datatype.kind() {
                Kind::Text => &lengths[..],
                _ => &[],
            };
            Bytes::default().u64s(lengths).raw(&low).raw(&high).0
        });
        sides.collect()
    }

    fn metadata(&self, fields: &[(String, Files)], tiles: &[usize], domain: &[u8], rtree: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut section = |body: &[u8]| {
            let at = file.len() as u64;
            file.extend(bare_tile(22, body));
            at
        };
        let rtree = section(rtree);
        let mut lists = |get: fn(&Files) -> &Vec<u64>| -> Vec<u64> {
            let lists = fields.iter().map(|(_, files)| get(files));
            lists
                .map(|list| section(&Bytes::default().u64(list.len() as u64).u64s(list).0))
                .collect()
        };
        let lists = [
            lists(|files| &files.fixed.1),
            lists(|files| &files.var.1),
            lists(|files| &files.var_sizes),
            lists(|files| &files.validity.1),
        ];
        let none = section(&[0; 8]);
        let bounds = section(&[0; 16]);
        let statistics = section(&[0; 96]);
        let footer = Bytes::default().u32(22).blob(format!("__1_1_{UUID}").as_bytes());
        let footer = footer.u8((!self.sparse).into()).u8(0).raw(domain);
        let (count, last) = match self.sparse {
            true => (tiles.len(), tiles.last().copied().unwrap_or(0)),
            false => (0, 0),
        };
        let mut footer = footer.u64(count as u64).u64(last as u64).u8(0).u8(0);
        let sizes: [fn(&Files) -> usize; 3] = [
            |files| files.fixed.0.len(),
            |files| files.var.0.len(),
            |files| files.validity.0.len(),
        ];
        for size in sizes {
            footer = fields
                .iter()
                .fold(footer, |footer, (_, files)| footer.u64(size(files) as u64));
        }
        footer = lists
            .iter()
            .fold(footer.u64(rtree), |footer, list| footer.u64s(list));
        for at in [bounds, bounds, none, none] {
            footer = footer.u64s(&vec![at; fields.len()]);
        }
        let footer = footer.u64(statistics).u64(none).0;
        file.extend_from_slice(&footer);
        file.extend((footer.len() as u64).to_le_bytes());
        file
    }
}

/// Cells of a tile of a sparse fragment.
const CAPACITY: usize = 6;

/// The file of an enumeration.
fn enumeration(i: usize) -> String {
    format!("__{i}_{UUID}_0")
}

/// Where each of some cells begins.
fn starts(cells: &[Vec<u8>]) -> Vec<[u8; 8]> {
    let mut start = 0;
    let starts = cells.iter().map(|cell| {
        let this = start;
        start += cell.len() as u64;
        this.to_le_bytes()
    });
    starts.collect()
}

/// A file of tiles, and where each begins.
type Tiles = (Vec<u8>, Vec<u64>);

/// The files of a field.
#[derive(Default)]
struct Files {
    fixed: Tiles,
    var: Tiles,
    var_sizes: Vec<u64>,
    validity: Tiles,
}

impl Files {
    /// Adds the tile of some cells.
    fn push(&mut self, cells: &[Vec<u8>], var: bool) {
        let values = cells.concat();
        if var {
            put(&mut self.fixed, starts(cells).as_flattened());
            put(&mut self.var, &values);
            self.var_sizes.push(values.len() as u64);
        } else {
            put(&mut self.fixed, &values);
        }
    }
}

/// Adds a tile of one chunk.
fn put(tiles: &mut Tiles, data: &[u8]) {
    tiles.1.push(tiles.0.len() as u64);
    let length = data.len() as u32;
    let tile = match data.is_empty() {
        true => Bytes::default().u64(0),
        false => Bytes::default().u64(1).u32(length).u32(length).u32(0).raw(data),
    };
    tiles.0.extend(tile.0);
}
