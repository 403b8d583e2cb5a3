//! Compares matrices with a model: all cells of the view, sorted by row and column.

use super::*;
use crate::catalog::Array;
use crate::format::testing::{Bytes as Builder, Random};
use crate::query::testing::{Files, Parts, UUID, generic, open, open_tuned, rtree, tile};
use crate::runtime::stats::Stats;
use crate::runtime::tuning::Tuning;
use crate::storage::MemoryStorage;
use std::path::Path;

const HILBERT: u8 = 4;

/// An array with rows and columns 0 to 9999.
#[derive(Clone, Copy)]
pub(in crate::export::anndata) struct Design {
    extents: [i64; 2],
    tile_order: u8,
    cell_order: u8,
    capacity: usize,
    duplicates: bool,
    /// Whether the dimensions have a lossy filter.
    lossy: bool,
    values: Datatype,
}

pub(in crate::export::anndata) const PLAIN: Design = Design {
    extents: [4, 3],
    tile_order: 0,
    cell_order: 0,
    capacity: 6,
    duplicates: false,
    lossy: false,
    values: Datatype::Float32,
};

/// The boxes are those of other coordinates.
pub(in crate::export::anndata) const LOSSY: Design = Design { lossy: true, ..PLAIN };

/// Several cells may have the same coordinates.
pub(in crate::export::anndata) const DUPLICATES: Design = Design {
    duplicates: true,
    ..PLAIN
};

/// Row, column, the number that the value is made of, and the time of its deletion.
pub(in crate::export::anndata) type Cell = (i64, i64, u64, u64);

impl Design {
    fn schema(&self) -> Vec<u8> {
        let b = Builder::default().u32(22).u8(u8::from(self.duplicates)).u8(1);
        let b = b
            .u8(self.tile_order)
            .u8(self.cell_order)
            .u64(self.capacity as u64);
        let mut b = b.pipeline(&[]).pipeline(&[]).pipeline(&[]).u32(2);
        for (i, extent) in self.extents.iter().enumerate() {
            // SCALE_FLOAT into integers of one byte.
            let filter = [[0; 16].as_slice(), &1u64.to_le_bytes()].concat();
            let filters = [(15, &*filter)];
            b = b.text32(&format!("soma_dim_{i}")).u8(1).u32(1);
            b = b.pipeline(&filters[..usize::from(self.lossy)]);
            b = b.u64(16).raw(&0i64.to_le_bytes()).raw(&9999i64.to_le_bytes());
            b = b.u8(0).raw(&extent.to_le_bytes());
        }
        let size = self.values.size();
        let number = Datatype::ALL
            .iter()
            .position(|datatype| *datatype == self.values)
            .unwrap();
        b = b.u32(1).text32("soma_data").u8(number as u8).u32(1).pipeline(&[]);
        b = b.u64(size as u64).raw(&vec![0; size]);
        b = b.u8(0).u8(0).u8(0).text32("");
        b.u32(0).u32(0).u32(0).u8(1).bytes
    }

    fn bytes(&self, value: u64) -> Vec<u8> {
        match self.values {
            Datatype::Bool => vec![(value % 2) as u8],
            _ => value.to_le_bytes()[..self.values.size()].to_vec(),
        }
    }

    /// Writes a fragment at `time`, in global order unless that is Hilbert's.
    fn write(&self, storage: &mut MemoryStorage, time: u64, mut cells: Vec<Cell>) {
        let order = |column_first: u8, [row, column]: [i64; 2]| match column_first {
            1 => [column, row],
            _ => [row, column],
        };
        cells.sort_by_key(|(row, column, ..)| {
            let tile = [row / self.extents[0], column / self.extents[1]];
            (
                order(self.tile_order, tile),
                order(self.cell_order, [*row, *column]),
            )
        });
        let tiles: Vec<&[Cell]> = cells.chunks(self.capacity).collect();
        let field = |name: &str, bytes: &dyn Fn(&Cell) -> Vec<u8>| {
            let mut files = Files::default();
            for cells in &tiles {
                let data: Vec<u8> = cells.iter().flat_map(bytes).collect();
                Files::put(&mut files.fixed, &tile(&[], &data, 32));
            }
            (name.to_owned(), files)
        };
        let deletes = cells.iter().any(|cell| cell.3 < u64::MAX);
        let mut fields = vec![
            field("a0", &|cell| self.bytes(cell.2)),
            (String::new(), Files::default()),
            field("d0", &|cell| cell.0.to_le_bytes().to_vec()),
            field("d1", &|cell| cell.1.to_le_bytes().to_vec()),
        ];
        if deletes {
            fields.push(field("t", &|_| time.to_le_bytes().to_vec()));
            fields.push(field("dt", &|cell| cell.3.to_le_bytes().to_vec()));
            fields.push(field("dci", &|_| vec![0; 8]));
        }
        let bounds = |cells: &[Cell]| {
            let along = |of: fn(&Cell) -> i64| {
                let (low, high) = (
                    cells.iter().map(of).min().unwrap(),
                    cells.iter().map(of).max().unwrap(),
                );
                [low.to_le_bytes(), high.to_le_bytes()].concat()
            };
            [along(|cell| cell.0), along(|cell| cell.1)].concat()
        };
        let all = bounds(&cells);
        let tile_bounds = tiles.iter().map(|cells| bounds(cells));
        let rtree = rtree(&all, &tile_bounds.collect::<Vec<_>>());
        let parts = Parts {
            schema: format!("__1_1_{UUID}"),
            dense: false,
            domain: all,
            rtree,
            tiles: tiles.len() as u64,
            last_tile_cells: tiles.last().map_or(0, |cells| cells.len()) as u64,
            has_timestamps: deletes,
            has_delete_metadata: deletes,
            fields,
        };
        parts.write(storage, &format!("__{time}_{time}_{UUID}_22"));
    }

    pub(in crate::export::anndata) fn array(
        &self,
        fragments: &[Vec<Cell>],
    ) -> (MemoryStorage, Arc<Array>, Arc<Stats>) {
        let mut storage = MemoryStorage::default();
        storage.insert(
            Path::new(&format!("__schema/__1_1_{UUID}")),
            generic(&self.schema()),
        );
        for (time, cells) in (10..).zip(fragments) {
            self.write(&mut storage, time, cells.clone());
        }
        let (array, stats) = open(&storage);
        (storage, array, stats)
    }
}

pub(in crate::export::anndata) fn view(array: &Arc<Array>) -> Arc<View> {
    Arc::new(View::new(array.clone(), None, None).unwrap())
}

/// Different cells in some rows and columns.
fn random_cells(numbers: &mut Random, rows: Range<u64>, columns: u64, most: u64) -> Vec<Cell> {
    let cells = (0..1 + numbers.below(most)).map(|_| {
        let row = rows.start + numbers.below(rows.end - rows.start);
        (
            (row as i64, numbers.below(columns) as i64),
            numbers.below(1 << 40),
        )
    });
    let cells: std::collections::BTreeMap<_, _> = cells.collect();
    cells
        .into_iter()
        .map(|((row, column), value)| (row, column, value, u64::MAX))
        .collect()
}

fn random_axis(numbers: &mut Random, end: u64) -> Arc<Axis> {
    Arc::new(match numbers.below(4) {
        0 => Axis::Whole(end),
        1 => Axis::Whole(numbers.below(end + 1)),
        part => Axis::Listed(
            (0..end as i64 + 3)
                .filter(|_| numbers.below(8) > 2 * (part - 2))
                .collect(),
        ),
    })
}

/// The three sequences as the model has them, with indices of INT32.
fn model(view: &View, rows: &Axis, columns: &Axis) -> [Vec<u8>; 3] {
    let all = |field| {
        Vec::from(
            view.open(field)
                .unwrap()
                .values(0..view.count().unwrap())
                .unwrap(),
        )
    };
    let (x, y, data) = (all(0), all(1), all(2));
    let size = view.fields()[2].datatype.size();
    let place = |axis: &Axis, joinid: &[u8; 8]| {
        let joinid = i64::from_le_bytes(*joinid);
        (0..axis.len()).find(|place| axis.joinid(*place) == joinid)
    };
    let cells = x.as_chunks().0.iter().zip(y.as_chunks().0).zip(data.chunks(size));
    let cells = cells.filter_map(|((x, y), value)| Some((place(rows, x)?, place(columns, y)?, value)));
    let mut cells: Vec<(u64, u64, &[u8])> = cells.collect();
    cells.sort();
    let int = |number: u64| (number as i32).to_le_bytes();
    let before = |row: u64| cells.iter().filter(|cell| cell.0 < row).count() as u64;
    [
        (0..=rows.len()).flat_map(|row| int(before(row))).collect(),
        cells.iter().flat_map(|cell| int(cell.1)).collect(),
        cells.iter().flat_map(|cell| cell.2.to_vec()).collect(),
    ]
}

fn read(bytes: &dyn Bytes, range: Range<u64>) -> Result<Vec<u8>> {
    Output::of(|out| bytes.read(range, out)).map(Vec::from)
}

fn sequences(csr: &Arc<Csr>) -> [Arc<dyn Bytes>; 3] {
    [csr.indptr().unwrap(), csr.indices().unwrap(), csr.data().unwrap()]
}

#[test]
fn matrices_are_those_of_the_model() {
    let types = [
        Datatype::Float32,
        Datatype::Float64,
        Datatype::Int16,
        Datatype::Uint8,
        Datatype::Bool,
    ];
    for seed in 0..250 {
        let numbers = &mut Random(seed);
        let design = Design {
            extents: [numbers.one(&[1, 3, 300, 9000]), numbers.one(&[1, 4, 50])],
            tile_order: numbers.below(2) as u8,
            cell_order: numbers.one(&[0, 0, 1, HILBERT]),
            capacity: 1 + numbers.below(20) as usize,
            values: numbers.one(&types),
            ..PLAIN
        };
        let (rows, columns) = (numbers.one(&[5, 40, 2500]), numbers.one(&[1, 7, 60]));
        let kind = numbers.below(4);
        let fragments = 1 + numbers.below(4);
        let fragments: Vec<Vec<Cell>> = (0..fragments)
            .map(|number| {
                // Appended one after the other, or overlapping.
                let own = match kind {
                    0 => rows * number / fragments..(rows * (number + 1)).div_ceil(fragments),
                    _ => 0..rows,
                };
                let mut cells = random_cells(numbers, own, columns, 80);
                if kind == 3 {
                    for cell in cells.iter_mut().filter(|_| numbers.below(3) == 0) {
                        cell.3 = 10 + number;
                    }
                }
                cells
            })
            .collect();
        let (storage, ..) = design.array(&fragments);
        let tuning = numbers.one(&[&Tuning::SMALL, &Tuning::PRODUCTION]);
        let (array, _) = open_tuned(&storage, tuning);
        let view = view(&array);
        let (rows, columns) = (random_axis(numbers, rows), random_axis(numbers, columns));
        let wanted = model(&view, &rows, &columns);
        let max_block = numbers.one(&[1, 3, 10, MAX_BLOCK]);
        let csr = Csr::with_blocks(view, rows.clone(), columns.clone(), max_block).unwrap();
        assert_eq!(csr.nnz().unwrap(), wanted[1].len() as u64 / 4, "seed {seed}");
        for (which, (bytes, wanted)) in sequences(&csr).into_iter().zip(&wanted).enumerate() {
            let what = format!("sequence {which}, seed {seed}, blocks of {max_block}");
            let len = bytes.len();
            assert_eq!(len, wanted.len() as u64, "{what}");
            for _ in 0..4 {
                let start = numbers.below(len + 1);
                let end = start + numbers.below((len - start).min(60) + 1);
                let part = read(&*bytes, start..end).unwrap();
                assert!(
                    part == wanted[start as usize..end as usize],
                    "{start}..{end}, {what}"
                );
            }
            assert!(read(&*bytes, 0..len).unwrap() == *wanted, "{what}");
            assert!(read(&*bytes, 0..len + 1).is_err(), "{what}");
        }
    }
}

/// For [`many_bands`].
const LARGE: Design = Design {
    extents: [1000, 1000],
    capacity: 100,
    ..PLAIN
};

/// A matrix of 8,000 rows of ten cells, in 800 tiles and four bands.
fn many_bands() -> Vec<Cell> {
    let cells = (0..8000).flat_map(|row| (0..10).map(move |column| (row, (row + 7 * column) % 70)));
    cells
        .map(|(row, column)| (row, column, (row * 70 + column) as u64, u64::MAX))
        .collect()
}

#[test]
fn boxes_before_lossy_filters_are_not_trusted() {
    let is_read_as_it_is = [PLAIN, LOSSY].map(|design| {
        let view = view(&design.array(&[vec![(1, 1, 1, u64::MAX)]]).1);
        matches!(MatrixCells::new(&view, 2), Ok(MatrixCells::Fragments(_)))
    });
    assert_eq!(is_read_as_it_is, [true, false]);
}

#[test]
fn metadata_tells_how_many_cells_there_are() {
    let (_, array, stats) = LARGE.array(&[many_bands()]);
    let whole = |count| Arc::new(Axis::Whole(count));
    let csr = Csr::new(view(&array), whole(8000), whole(70)).unwrap();
    assert_eq!((csr.nnz().unwrap(), csr.data().unwrap().len()), (80_000, 320_000));
    assert_eq!((stats.tiles_opened.get(), stats.chunks_decoded.get()), (0, 0));
    // A row without a place takes a look.
    let csr = Csr::new(view(&array), whole(7999), whole(70)).unwrap();
    assert_eq!(csr.nnz().unwrap(), 79_990);
    assert!(stats.tiles_opened.get() > 0);
}

#[test]
fn a_few_rows_need_the_tiles_of_their_band() {
    let (_, array, stats) = LARGE.array(&[many_bands()]);
    let csr = Csr::new(
        view(&array),
        Arc::new(Axis::Whole(8000)),
        Arc::new(Axis::Whole(70)),
    )
    .unwrap();
    let [.., data] = sequences(&csr);
    let first = read(&*data, 4 * 30_010..4 * 30_020).unwrap();
    let value = |cell: &[u8; 4]| u32::from_le_bytes(*cell);
    assert!(first.as_chunks().0.iter().all(|cell| value(cell) / 70 == 3001));
    // Three fields of the 102 tiles that have rows 2000 to 3999, of 800; none crosses the edges.
    assert!(
        stats.tiles_opened.get() <= 3 * 202,
        "{}",
        stats.tiles_opened.get()
    );
}

#[test]
fn rows_that_are_read_for_bands_are_counted_once() {
    // Three tiles of 3,000 rows, of which two lie in no band of 2,000.
    let design = Design {
        capacity: 30_000,
        ..LARGE
    };
    let (_, array, _) = design.array(&[many_bands()]);
    let whole = |count| Arc::new(Axis::Whole(count));
    let csr = Csr::new(view(&array), whole(8000), whole(70)).unwrap();
    assert_eq!(*csr.starts().unwrap(), [0, 20_000, 40_000, 60_000, 80_000]);
    let is_known = |band| {
        let unknown = || Err(Error::internal("not counted yet"));
        csr.counts_by(band, unknown).map(|counts| counts.to_vec()).ok()
    };
    let known = || Some(vec![10; 2000]);
    assert_eq!([0, 1, 2, 3].map(is_known), [known(), known(), known(), None]);
}

#[test]
fn where_the_rows_are_is_kept_for_blocks() {
    // Tiles of 3,000 rows, which cross the edges of bands of 2,000.
    let design = Design {
        capacity: 30_000,
        ..LARGE
    };
    let (storage, ..) = design.array(&[many_bands()]);
    let (array, _) = open_tuned(&storage, &Tuning::PRODUCTION);
    let whole = |count| Arc::new(Axis::Whole(count));
    let csr = Csr::new(view(&array), whole(8000), whole(70)).unwrap();
    let indptr = csr.indptr().unwrap();
    read(&*indptr, 0..indptr.len()).unwrap();
    let (plan, all) = (csr.plan().unwrap(), 0..=7999);
    let pieces = plan.source.pieces(&all, &all).unwrap();
    let kept = pieces.iter().map(|piece| {
        let (source, first) = piece.number();
        let key = CacheKey::chunk(csr.object, first, source);
        let runs = csr.engine().cache.find::<Runs>(key).unwrap();
        runs.0.iter().map(|run| run.cells.len()).sum::<usize>()
    });
    assert_eq!(kept.sum::<usize>(), 80_000);
}

#[test]
fn row_starts_need_the_first_dimension_alone() {
    let (mut storage, ..) = LARGE.array(&[many_bands()]);
    let names: Vec<_> = ["d1", "a0"]
        .map(|field| format!("__fragments/__10_10_{UUID}_22/{field}.tdb"))
        .into();
    for name in &names {
        storage.insert(Path::new(name), Vec::new());
    }
    let (array, _) = open(&storage);
    let csr = Csr::new(
        view(&array),
        Arc::new(Axis::Whole(8000)),
        Arc::new(Axis::Whole(70)),
    )
    .unwrap();
    let [indptr, indices, data] = sequences(&csr);
    let starts = read(&*indptr, 4 * 5000..4 * 5002).unwrap();
    assert_eq!(
        starts,
        [50_000i32.to_le_bytes(), 50_010i32.to_le_bytes()].concat()
    );
    assert!(read(&*indices, 0..4).is_err());
    assert!(read(&*data, 0..4).is_err());
}

#[test]
fn cells_at_one_place_are_an_error() {
    let twice = vec![(3, 4, 1, u64::MAX), (3, 5, 2, u64::MAX), (3, 4, 3, u64::MAX)];
    let (_, array, _) = DUPLICATES.array(&[twice]);
    for max_block in [1, 100] {
        let axis = || Arc::new(Axis::Whole(10));
        let csr = Csr::with_blocks(view(&array), axis(), axis(), max_block).unwrap();
        let error = csr
            .data()
            .and_then(|data| read(&*data, 0..4))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(if max_block == 1 { "row 3" } else { "(3, 4)" }),
            "{error}"
        );
    }
}

#[test]
fn boxes_that_lie_are_an_error() {
    // The rows of the last tile are others than those of its box.
    let (mut storage, ..) = LARGE.array(&[many_bands()]);
    let name = format!("__fragments/__10_10_{UUID}_22/d0.tdb");
    let stored = storage.files().find(|(path, _)| *path == Path::new(&name));
    let mut bytes = stored.unwrap().1.to_vec();
    let end = bytes.len();
    bytes[end - 8..].copy_from_slice(&17i64.to_le_bytes());
    storage.insert(Path::new(&name), bytes);
    let (array, _) = open(&storage);
    let csr = Csr::new(
        view(&array),
        Arc::new(Axis::Whole(8000)),
        Arc::new(Axis::Whole(70)),
    )
    .unwrap();
    let data = csr.data().unwrap();
    assert!(read(&*data, 0..4).is_ok());
    assert!(read(&*data, data.len() - 4..data.len()).is_err());
}
