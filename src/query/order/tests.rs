use super::*;
use crate::format::datatype::CellValNum;
use crate::format::range::{Range, compare};
use crate::format::testing::{Random, field, schema, var};
use crate::query::testing::hilbert;
use std::cmp::Ordering;

const NUMBERS: [Datatype; 12] = [
    Datatype::Int8,
    Datatype::Uint8,
    Datatype::Int16,
    Datatype::Uint16,
    Datatype::Int32,
    Datatype::Uint32,
    Datatype::Int64,
    Datatype::Uint64,
    Datatype::DatetimeDay,
    Datatype::TimeNs,
    Datatype::Float32,
    Datatype::Float64,
];

/// A cell: the bytes of each coordinate.
type Cell = Vec<Vec<u8>>;

/// A number in the bytes of a type.
fn bytes(datatype: Datatype, v: i128) -> Vec<u8> {
    match datatype {
        Datatype::Float32 => (v as f32 / 4.0).to_le_bytes().to_vec(),
        Datatype::Float64 => (v as f64 / 4.0).to_le_bytes().to_vec(),
        _ => v.to_le_bytes()[..datatype.size()].to_vec(),
    }
}

/// An integer of a type.
fn integer(datatype: Datatype, bytes: &[u8]) -> i128 {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    let v = i128::from_le_bytes(wide);
    let bits = 8 * datatype.size() as u32;
    let signed = !matches!(datatype.kind(), Kind::Unsigned | Kind::Bool);
    if signed && v >> (bits - 1) & 1 == 1 {
        v - (1 << bits)
    } else {
        v
    }
}

/// The number of the tile of a coordinate.
fn tile(d: &Dimension, v: &[u8]) -> u64 {
    let (Some(domain), Some(extent)) = (&d.domain, &d.tile_extent) else {
        return 0;
    };
    macro_rules! float {
        ($float:ty) => {{
            let number = |bytes: &[u8]| <$float>::from_le_bytes(bytes.try_into().unwrap());
            ((number(v) - number(&domain.lo)) / number(extent)) as u64
        }};
    }
    match d.datatype {
        Datatype::Float32 => float!(f32),
        Datatype::Float64 => float!(f64),
        t => {
            let extent = integer(Datatype::Uint64, extent);
            ((integer(t, v) - integer(t, &domain.lo)) / extent) as u64
        }
    }
}

/// The position of a cell on the Hilbert curve.
fn place(schema: &Schema, cell: &Cell) -> u64 {
    let count = cell.len();
    let bits = 63 / count;
    let x: Vec<u64> = schema
        .dimensions
        .iter()
        .zip(cell)
        .map(|(d, v)| {
            let Some(domain) = &d.domain else {
                let bytes = (0..8).map(|i| v.get(i).copied().unwrap_or(0));
                let text = bytes.enumerate().fold(0u64, |text, (i, byte)| {
                    text | ((byte as i8 as i64 as u64) << (56 - 8 * i))
                });
                return text >> (64 - bits);
            };
            let number = |bytes: &[u8]| match d.datatype {
                Datatype::Float32 => f32::from_le_bytes(bytes.try_into().unwrap()) as f64,
                Datatype::Float64 => f64::from_le_bytes(bytes.try_into().unwrap()),
                t => integer(t, bytes) as f64,
            };
            let (lo, hi) = (number(&domain.lo), number(&domain.hi));
            ((number(v) - lo) / (hi - lo) * ((1u64 << bits) - 1) as f64) as u64
        })
        .collect();
    hilbert(x, bits as u32)
}

/// Compares two cells step by step.
fn naive(schema: &Schema, a: &Cell, b: &Cell) -> Ordering {
    let count = a.len();
    let along = |layout: Layout| {
        let column = layout == Layout::ColMajor;
        (0..count).map(move |i| if column { count - 1 - i } else { i })
    };
    let tiles = |i: usize| {
        let d = &schema.dimensions[i];
        tile(d, &a[i]).cmp(&tile(d, &b[i]))
    };
    let coordinates = |i: usize| {
        let d = &schema.dimensions[i];
        compare(d.datatype, d.cell_val_num, &a[i], &b[i]).unwrap()
    };
    let first = match schema.cell_order {
        Layout::Hilbert => place(schema, a).cmp(&place(schema, b)),
        _ => along(schema.tile_order)
            .map(tiles)
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal),
    };
    let coordinates = along(schema.cell_order).map(coordinates);
    first.then(
        coordinates
            .into_iter()
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal),
    )
}

/// A dimension of numbers with a domain that may be narrow, wide or everything.
fn number_dimension(random: &mut Random, d: &mut Dimension) {
    let t = NUMBERS[random.index(NUMBERS.len())];
    let limits = match t.kind() {
        Kind::Float => (-1_000_000i128, 1_000_000),
        Kind::Unsigned => (0, (1i128 << (8 * t.size())) - 1),
        _ => (-(1i128 << (8 * t.size() - 1)), (1i128 << (8 * t.size() - 1)) - 1),
    };
    let span = limits.1 - limits.0;
    let width = match random.index(4) {
        0 => 0,
        1 => span,
        2 => span.min(1 + random.index(20) as i128),
        _ => i128::from(random.next()) % (span + 1),
    };
    let lo = limits.0 + i128::from(random.next()) % (span - width + 1);
    d.datatype = t;
    d.cell_val_num = CellValNum::Fixed(1);
    d.domain = Some(Range {
        lo: bytes(t, lo),
        hi: bytes(t, lo + width),
    });
    let extent = match random.index(3) {
        0 => 1 + width / 7,
        1 => 1 + i128::from(random.next()) % (width + 1),
        _ => width + 1,
    };
    let extent = extent.min(u64::MAX.into());
    let extent = if t.kind() == Kind::Float {
        4 * extent + 1
    } else {
        extent
    };
    let fits = t.kind() == Kind::Float || extent < 1 << (8 * t.size());
    d.tile_extent = (fits && random.index(4) > 0).then(|| bytes(t, extent));
}

fn random_schema(random: &mut Random) -> Schema {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let count = 1 + random.index(4);
    let fields: Vec<_> = NAMES[..count]
        .iter()
        .map(|name| field(name, Datatype::Int8))
        .collect();
    let mut schema = schema(22, true, &fields, &[]);
    let texts = random.index(3) == 0;
    for d in &mut schema.dimensions {
        if texts && random.index(2) == 0 {
            (d.datatype, d.cell_val_num) = (Datatype::StringAscii, CellValNum::Var);
            (d.domain, d.tile_extent) = (None, None);
        } else {
            number_dimension(random, d);
        }
    }
    let layouts = [Layout::RowMajor, Layout::ColMajor, Layout::Hilbert];
    schema.tile_order = layouts[random.index(2)];
    schema.cell_order = layouts[random.index(3)];
    schema
}

/// A coordinate inside the domain, often shared by several cells.
fn coordinate(random: &mut Random, d: &Dimension) -> Vec<u8> {
    let Some(domain) = &d.domain else {
        let length = random.index(4) + 8 * random.index(2);
        return (0..length).map(|_| b"\0\x01aab\xFF"[random.index(6)]).collect();
    };
    let (lo, hi) = match d.datatype {
        Datatype::Float32 | Datatype::Float64 => {
            let quarters = |bytes: &[u8]| match d.datatype {
                Datatype::Float32 => (f32::from_le_bytes(bytes.try_into().unwrap()) * 4.0) as i128,
                _ => (f64::from_le_bytes(bytes.try_into().unwrap()) * 4.0) as i128,
            };
            let (lo, hi) = (quarters(&domain.lo), quarters(&domain.hi));
            if lo <= 0 && hi >= 0 && random.index(8) == 0 {
                let zero = bytes(d.datatype, 0);
                let sign = zero.len() - 1;
                let mut zero = zero;
                zero[sign] |= (random.index(2) as u8) << 7;
                return zero;
            }
            (lo, hi)
        }
        t => (integer(t, &domain.lo), integer(t, &domain.hi)),
    };
    let width = hi - lo;
    let offset = match random.index(3) {
        0 => i128::from(random.next()) % (width + 1),
        1 => width.min(random.index(4) as i128),
        _ => width - width.min(random.index(4) as i128),
    };
    bytes(d.datatype, lo + offset)
}

/// The columns of cells: for each dimension the values and, for strings, the starts.
fn columns(schema: &Schema, cells: &[Cell]) -> Vec<(Vec<u8>, Vec<u64>)> {
    let column = |i: usize| {
        let values = cells.iter().flat_map(|cell| cell[i].clone()).collect();
        let ends = cells.iter().scan(0, |end, cell| {
            *end += cell[i].len() as u64;
            Some(*end)
        });
        (values, std::iter::once(0).chain(ends).collect())
    };
    (0..schema.dimensions.len()).map(column).collect()
}

fn keys<K: SortKey>(schema: &Schema, order: &GlobalOrder, cells: &[Cell]) -> Vec<K> {
    let columns = columns(schema, cells);
    let slices: Vec<CellSlice> = schema
        .dimensions
        .iter()
        .zip(&columns)
        .map(|(d, (values, starts))| match d.cell_size() {
            Some(size) => CellSlice::fixed(values, size as usize),
            None => CellSlice::var(values, starts),
        })
        .collect();
    let mut keys = Vec::new();
    K::append(order, &slices, &mut keys);
    assert_eq!(keys.len(), cells.len());
    keys
}

/// The order of all pairs of neighbours among shuffled cells, by words (if the order has them) and by bytes.
fn orders(schema: &Schema, order: &GlobalOrder, cells: &[Cell]) -> Vec<Vec<Ordering>> {
    fn pairs<K: SortKey>(schema: &Schema, order: &GlobalOrder, cells: &[Cell]) -> Vec<Ordering> {
        let keys: Vec<K> = keys(schema, order, cells);
        keys.windows(2).map(|pair| pair[0].cmp(&pair[1])).collect()
    }
    let words = match order.words() {
        None => None,
        Some(1) => Some(pairs::<[u64; 1]>(schema, order, cells)),
        Some(2) => Some(pairs::<[u64; 2]>(schema, order, cells)),
        Some(3) => Some(pairs::<[u64; 3]>(schema, order, cells)),
        Some(4) => Some(pairs::<[u64; 4]>(schema, order, cells)),
        Some(n) => panic!("{n} words"),
    };
    let bytes = pairs::<ByteKey>(schema, order, cells);
    words.into_iter().chain([bytes]).collect()
}

#[test]
fn keys_compare_as_cells_do() {
    let mut random = Random(1);
    let mut words = [0; 5];
    for round in 0..3000 {
        let schema = random_schema(&mut random);
        let order = GlobalOrder::new(&schema, false).unwrap();
        words[order.words().unwrap_or(0)] += 1;
        let count = if round % 50 == 0 { 3 * BLOCK + 1 } else { 20 };
        let cells: Vec<Cell> = (0..count)
            .map(|_| {
                schema
                    .dimensions
                    .iter()
                    .map(|d| coordinate(&mut random, d))
                    .collect()
            })
            .collect();
        let expected: Vec<Ordering> = cells
            .windows(2)
            .map(|pair| naive(&schema, &pair[0], &pair[1]))
            .collect();
        for found in orders(&schema, &order, &cells) {
            let wrong = found
                .iter()
                .zip(&expected)
                .position(|(found, expected)| found != expected);
            if let Some(at) = wrong {
                let pair = &cells[at..at + 2];
                panic!(
                    "{pair:?} are {:?}, not {:?}: {schema:#?}",
                    expected[at], found[at]
                );
            }
        }
    }
    assert!(words.iter().all(|&n| n > 50), "{words:?}");
}

#[test]
fn cells_in_a_box_have_keys_in_its_interval() {
    let mut random = Random(2);
    let mut checked = 0;
    while checked < 500 {
        let schema = random_schema(&mut random);
        let order = GlobalOrder::new(&schema, false).unwrap();
        let mut some = || -> Cell {
            schema
                .dimensions
                .iter()
                .map(|d| coordinate(&mut random, d))
                .collect()
        };
        let cells: Vec<Cell> = (0..10).map(|_| some()).collect();
        let bound = |i: usize, wanted: Ordering| {
            let d = &schema.dimensions[i];
            let further = |a: &&Vec<u8>, b: &&Vec<u8>| {
                let order = compare(d.datatype, d.cell_val_num, a, b).unwrap();
                if wanted == Ordering::Less {
                    order
                } else {
                    order.reverse()
                }
            };
            cells.iter().map(|cell| &cell[i]).min_by(further).unwrap().clone()
        };
        let rect: Rect = (0..schema.dimensions.len())
            .map(|i| Range {
                lo: bound(i, Ordering::Less),
                hi: bound(i, Ordering::Greater),
            })
            .collect();
        let interval = order.interval::<ByteKey>(&rect);
        assert_eq!(interval.is_none(), schema.cell_order == Layout::Hilbert);
        let Some((low, high)) = interval else { continue };
        for key in keys::<ByteKey>(&schema, &order, &cells) {
            assert!(low <= key && key <= high);
        }
        if order.words() == Some(2) {
            let (low, high) = order.interval::<[u64; 2]>(&rect).unwrap();
            assert!(low <= high);
            assert!(
                keys(&schema, &order, &cells)
                    .iter()
                    .all(|key| low <= *key && *key <= high)
            );
        }
        checked += 1;
    }
}

#[test]
fn a_box_that_is_none_has_no_interval() {
    let schema = schema(22, true, &[field("x", Datatype::Float32)], &[]);
    let order = GlobalOrder::new(&schema, false).unwrap();
    let rect = |lo: &[u8]| {
        vec![Range {
            lo: lo.to_vec(),
            hi: 2f32.to_le_bytes().to_vec(),
        }]
    };
    let interval = |rect: &Rect| order.interval::<[u64; 1]>(rect);
    assert!(interval(&rect(&1f32.to_le_bytes())).is_some());
    assert!(interval(&rect(&f32::NAN.to_le_bytes())).is_none());
    assert!(interval(&rect(&[0; 3])).is_none());
    assert!(interval(&Rect::new()).is_none());
}

#[test]
fn small_domains_take_one_word() {
    let dimensions = [field("x", Datatype::Int64), field("y", Datatype::Int64)];
    let mut schema = schema(22, true, &dimensions, &[]);
    schema.cell_order = Layout::RowMajor;
    // 1 to 100 in tiles of 10 along both: 4 bits for the tile and 4 for the position in it.
    let order = GlobalOrder::new(&schema, false).unwrap();
    assert_eq!(order.words(), Some(1));
    let cell = |x: i64, y: i64| vec![x.to_le_bytes().to_vec(), y.to_le_bytes().to_vec()];
    let key = |x, y| keys::<[u64; 1]>(&schema, &order, &[cell(x, y)])[0][0];
    assert_eq!(key(1, 1), 0);
    assert_eq!(key(12, 100), 0x1919);
    assert_eq!(
        keys::<ByteKey>(&schema, &order, &[cell(12, 100)])[0][..],
        [1, 9, 1, 9]
    );
    schema.tile_order = Layout::ColMajor;
    let order = GlobalOrder::new(&schema, false).unwrap();
    assert_eq!(keys::<[u64; 1]>(&schema, &order, &[cell(12, 100)])[0][0], 0x9119);
    schema.cell_order = Layout::ColMajor;
    let order = GlobalOrder::new(&schema, false).unwrap();
    assert_eq!(keys::<[u64; 1]>(&schema, &order, &[cell(12, 100)])[0][0], 0x9191);
}

#[test]
fn a_float_at_the_end_of_its_domain_is_in_a_tile_of_its_own() {
    let mut schema = schema(
        22,
        true,
        &[field("x", Datatype::Float32), field("y", Datatype::Float32)],
        &[],
    );
    let number = |v: f32| v.to_le_bytes().to_vec();
    for d in &mut schema.dimensions {
        d.domain = Some(Range {
            lo: number(0.0),
            hi: number(1.0),
        });
        d.tile_extent = Some(number(1.0));
    }
    let order = GlobalOrder::new(&schema, false).unwrap();
    let cells = [vec![number(0.5), number(1.0)], vec![number(0.75), number(0.0)]];
    assert_eq!(orders(&schema, &order, &cells)[0], [Ordering::Greater]);
}

#[test]
fn tiles_whose_number_overflows_are_those_of_libtiledb() {
    let mut schema = schema(22, true, &[field("x", Datatype::Float32)], &[]);
    let number = |v: f32| v.to_le_bytes().to_vec();
    schema.dimensions[0].domain = Some(Range {
        lo: number(f32::MIN),
        hi: number(f32::MAX),
    });
    schema.dimensions[0].tile_extent = Some(number(9e37));
    let order = GlobalOrder::new(&schema, false).unwrap();
    // From 0 on, the distance to the lower bound is infinite or close to it. An infinite one gives the first
    // tile.
    let cells = [f32::MIN, -2.6e38, 1e38, f32::MAX, -2.4e38, 0.0].map(|v| vec![number(v)]);
    let found = orders(&schema, &order, &cells);
    assert!(found.iter().all(|o| o[..] == [Ordering::Less; 5]), "{found:?}");
    let rect = vec![schema.dimensions[0].domain.clone().unwrap()];
    assert!(order.interval::<ByteKey>(&rect).is_none());
}

#[test]
fn zeros_of_both_signs_have_one_key() {
    let mut schema = schema(22, true, &[field("x", Datatype::Float64)], &[]);
    schema.dimensions[0].domain.as_mut().unwrap().lo = (-0.0f64).to_le_bytes().to_vec();
    let order = GlobalOrder::new(&schema, false).unwrap();
    let cells = [0.0f64, -0.0, f64::MIN_POSITIVE].map(|v| vec![v.to_le_bytes().to_vec()]);
    let found = orders(&schema, &order, &cells);
    assert!(
        found.iter().all(|o| o[..] == [Ordering::Equal, Ordering::Less]),
        "{found:?}"
    );
}

#[test]
fn coordinates_outside_the_domain_are_at_its_ends() {
    let mut random = Random(3);
    for _ in 0..1000 {
        let schema = random_schema(&mut random);
        let order = GlobalOrder::new(&schema, false).unwrap();
        let cells: Vec<Cell> = (0..20)
            .map(|_| {
                let dimensions = schema.dimensions.iter();
                dimensions
                    .map(|d| {
                        let length = d.cell_size().unwrap_or(random.index(20) as u64);
                        (0..length).map(|_| random.next() as u8).collect()
                    })
                    .collect()
            })
            .collect();
        // Words and bytes agree, so no part of a key overflows into another.
        let found = orders(&schema, &order, &cells);
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]));
    }
    let dimensions = [field("x", Datatype::Int64), field("y", Datatype::Int64)];
    let schema = schema(22, true, &dimensions, &[]);
    let order = GlobalOrder::new(&schema, false).unwrap();
    let cell = |x: i64, y: i64| vec![x.to_le_bytes().to_vec(), y.to_le_bytes().to_vec()];
    let cells = [cell(-5, 7), cell(1, 7), cell(100, 7), cell(i64::MAX, 7)];
    assert_eq!(
        orders(&schema, &order, &cells)[0],
        [Ordering::Equal, Ordering::Less, Ordering::Equal]
    );
}

#[test]
fn floats_outside_of_the_domain_come_where_libtiledb_has_them() {
    let mut schema = schema(22, true, &[field("x", Datatype::Float64)], &[]);
    let number = |v: f64| v.to_le_bytes().to_vec();
    schema.dimensions[0].domain = Some(Range {
        lo: number(10.0),
        hi: number(100.0),
    });
    schema.dimensions[0].tile_extent = Some(number(10.0));
    let ascend = |schema: &Schema, places: &[f64]| {
        let order = GlobalOrder::new(schema, true).unwrap();
        let cells: Vec<Cell> = places.iter().map(|place| vec![number(*place)]).collect();
        let found = orders(schema, &order, &cells);
        assert!(found.iter().flatten().all(|order| order.is_lt()), "{found:?}");
    };
    // The first tile begins less than an extent below the domain; what is further below comes last.
    let above = [99.5, 100.0, 105.0, 250.0, 1e15];
    let inside = [0.5, 9.75, 10.0, 10.5, 19.75, 20.0];
    ascend(
        &schema,
        &[&inside[..], &above, &[-1e300, -35.0, -15.0, 0.0]].concat(),
    );
    schema.cell_order = Layout::Hilbert;
    // Near its ends the curve goes back.
    ascend(
        &schema,
        &[10.0, 250.0, 1e15, 9.75, 10.25, 9.5, -35.0, 105.0, 99.5, 100.0],
    );
}

#[test]
fn tiles_outside_of_the_domain_count_along_the_first_dimension_first() {
    let dimensions = ["x", "y"].map(|name| field(name, Datatype::Float32));
    let mut schema = schema(22, true, &dimensions, &[]);
    let number = |v: f32| v.to_le_bytes().to_vec();
    for dimension in &mut schema.dimensions {
        dimension.domain = Some(Range {
            lo: number(0.0),
            hi: number(100.0),
        });
        dimension.tile_extent = Some(number(10.0));
    }
    let order = GlobalOrder::new(&schema, true).unwrap();
    let places = [
        (105.0, 25.0),
        (115.0, 5.0),
        (115.0, 125.0),
        (115.0, -35.0),
        (115.0, -15.0),
        (-35.0, 25.0),
        (-15.0, 5.0),
    ];
    let cells: Vec<Cell> = places.iter().map(|(x, y)| vec![number(*x), number(*y)]).collect();
    let found = orders(&schema, &order, &cells);
    assert!(found.iter().flatten().all(|order| order.is_lt()), "{found:?}");
}

#[test]
fn texts_of_which_one_begins_the_other() {
    let mut schema = schema(
        22,
        true,
        &[var("a", Datatype::StringAscii), var("b", Datatype::StringAscii)],
        &[],
    );
    schema.cell_order = Layout::RowMajor;
    let order = GlobalOrder::new(&schema, false).unwrap();
    assert_eq!(order.words(), None);
    let cell = |a: &str, b: &str| vec![a.as_bytes().to_vec(), b.as_bytes().to_vec()];
    let cells = [
        cell("", "z"),
        cell("\0", "a"),
        cell("\0\0", ""),
        cell("\0\x01", ""),
        cell("a", "b"),
        cell("a\0", ""),
        cell("a\x01", ""),
        cell("aa", "\0"),
        cell("aa", "\0\0"),
    ];
    assert_eq!(orders(&schema, &order, &cells)[0], [Ordering::Less; 8]);
}

#[test]
fn a_curve_needs_a_bit_for_each_dimension() {
    let names: Vec<String> = (0..64).map(|i| format!("d{i}")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
    let fields: Vec<_> = names.iter().map(|name| field(name, Datatype::Int8)).collect();
    let mut schema = schema(22, true, &fields, &[]);
    assert_eq!(GlobalOrder::new(&schema, false).unwrap().words(), None);
    schema.cell_order = Layout::Hilbert;
    assert!(GlobalOrder::new(&schema, false).is_err());
    schema.dimensions.pop();
    assert!(GlobalOrder::new(&schema, false).is_ok());
}
