use super::*;
use crate::runtime::tuning::Tuning;
use crate::storage::MemoryStorage;
use std::sync::atomic::{AtomicU64, Ordering};

struct Plain {
    cells: Vec<Vec<u8>>,
    /// Runs of cells, and whether each is a tile of known size.
    tiles: Vec<(u64, bool)>,
    /// Number of lengths read.
    lengths: AtomicU64,
    /// Number of bytes of values read.
    values: AtomicU64,
}

impl Plain {
    fn run(&self, cells: Range<u64>) -> &[Vec<u8>] {
        &self.cells[cells.start as usize..cells.end as usize]
    }
}

impl Runs for Arc<Plain> {
    fn count(&self) -> u64 {
        self.cells.len() as u64
    }

    fn fixed(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        self.var(cells, out)
    }

    fn lengths(&self, cells: Range<u64>, _: Option<Keep>, out: &mut Vec<u64>) -> Result<()> {
        self.lengths.fetch_add(cells.end - cells.start, Ordering::Relaxed);
        out.extend(self.run(cells).iter().map(|cell| cell.len() as u64));
        Ok(())
    }

    fn each_tile(&self, take: &mut dyn FnMut(u64, Option<u64>) -> Result<()>) -> Result<()> {
        let mut first = 0;
        for &(cells, known) in &self.tiles {
            let bytes = self.run(first..first + cells).concat().len() as u64;
            take(cells, known.then_some(bytes))?;
            first += cells;
        }
        Ok(())
    }

    fn var(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        let before = out.len();
        self.run(cells).iter().for_each(|cell| out.append(cell));
        let added = (out.len() - before) as u64;
        self.values.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    fn part_of_cell(&self, cell: u64, bytes: Range<u64>, out: &mut Output) -> Result<()> {
        self.values.fetch_add(bytes.end - bytes.start, Ordering::Relaxed);
        out.append(&self.cells[cell as usize][bytes.start as usize..bytes.end as usize]);
        Ok(())
    }

    fn validity(&self, cells: Range<u64>, out: &mut Output) -> Result<()> {
        let valid = self.run(cells).iter().map(|cell| u8::from(!cell.is_empty()));
        out.write(|out| out.extend(valid));
        Ok(())
    }
}

fn column(lengths: impl Iterator<Item = usize>, size: Option<u64>) -> (Arc<Plain>, RunCells<Arc<Plain>>) {
    column_of_tiles(lengths, size, None, &Tuning::PRODUCTION)
}

/// A column whose cells are in `tiles`; None: nothing is known of tiles.
fn column_of_tiles(
    lengths: impl Iterator<Item = usize>,
    size: Option<u64>,
    tiles: Option<&[(u64, bool)]>,
    tuning: &'static Tuning,
) -> (Arc<Plain>, RunCells<Arc<Plain>>) {
    let cells = lengths.enumerate().map(|(i, length)| {
        let bytes = (0..length).map(move |j| (i * 31 + j * 7) as u8);
        bytes.collect()
    });
    let cells: Vec<_> = cells.collect();
    let plain = Arc::new(Plain {
        tiles: tiles.map_or_else(|| vec![(cells.len() as u64, false)], <[_]>::to_vec),
        cells,
        lengths: AtomicU64::new(0),
        values: AtomicU64::new(0),
    });
    let storage = Arc::new(MemoryStorage::new());
    let engine = Arc::new(Engine::new(storage, 64 << 20, Vec::new(), Arc::default()).tuned(tuning));
    let array = Array::new(engine, PathBuf::new());
    (plain.clone(), RunCells::new(plain, size, &array, 1))
}

fn read(cells: &dyn Cells, content: Content, range: Range<u64>) -> Vec<u8> {
    Output::of(|out| cells.read(content, range, out))
        .unwrap()
        .to_vec()
}

fn all(plain: &Plain) -> (Vec<u8>, Vec<u8>) {
    let mut offsets = vec![0u8; 8];
    let mut position = 0u64;
    for cell in &plain.cells {
        position += cell.len() as u64;
        offsets.extend(position.to_le_bytes());
    }
    (plain.cells.concat(), offsets)
}

fn check_all(lengths: impl Iterator<Item = usize> + Clone, size: Option<u64>, steps: &[u64]) {
    for tuning in [&Tuning::SMALL, &Tuning::PRODUCTION] {
        let (plain, cells) = column_of_tiles(lengths.clone(), size, None, tuning);
        check_read(&plain, &cells, steps);
    }
}

fn check_read(plain: &Plain, cells: &RunCells<Arc<Plain>>, steps: &[u64]) {
    let (data, offsets) = all(plain);
    let validity: Vec<u8> = plain.cells.iter().map(|c| u8::from(!c.is_empty())).collect();
    let mut contents = vec![(Content::Data, data), (Content::Validity, validity)];
    if cells.cell_size.is_none() {
        contents.push((Content::Offsets, offsets));
    }
    for (content, expected) in contents {
        let len = expected.len() as u64;
        assert_eq!(cells.len(content).unwrap(), len);
        for &step in steps {
            for start in (0..len).step_by(step as usize) {
                let part = &expected[start as usize..len.min(start + step) as usize];
                assert!(
                    read(cells, content, start..start + step) == part,
                    "{content:?} {start}"
                );
            }
        }
        assert!(read(cells, content, len..len + 1).is_empty());
    }
}

#[test]
fn every_byte_is_where_it_should_be() {
    check_all(std::iter::empty(), None, &[7]);
    check_all((0..100).map(|_| 0), None, &[7]);
    check_all((0..1000).map(|i| i % 7), None, &[1, 3, 1000]);
    check_all((0..50_000).map(|i| i % 13), None, &[4096, 100_000]);
    // Blocks of empty cells, and cells longer than a block.
    let lengths = |i: usize| if i % 20_000 == 5 { 5 << 20 } else { 0 };
    check_all((0..60_000).map(lengths), None, &[128 << 10, 8 << 20]);
    check_all((0..1000).map(|_| 12), Some(12), &[5, 12, 1000]);
    check_all((0..9).map(|_| 200_000), Some(200_000), &[70_000, 1_000_000]);
}

#[test]
fn sequential_reading_looks_at_lengths_twice_and_at_values_once() {
    let (plain, cells) = column((0..100_000).map(|i| 20 + i % 20), None);
    let len = cells.len(Content::Data).unwrap();
    assert_eq!(plain.lengths.load(Ordering::Relaxed), 100_000);
    for start in (0..len).step_by(16 << 10) {
        read(&cells, Content::Data, start..start + (16 << 10));
    }
    assert_eq!(plain.lengths.load(Ordering::Relaxed), 200_000);
    // Only cells at the border of two reads are read twice.
    let values = plain.values.load(Ordering::Relaxed);
    assert!((len..len + len / 100).contains(&values), "{values} of {len}");
    // Offsets come from the same blocks.
    read(&cells, Content::Offsets, 0..8_000);
    assert!(plain.lengths.load(Ordering::Relaxed) <= 200_000 + BLOCK_CELLS);
}

#[test]
fn of_whole_tiles_only_those_that_are_read_are_measured() {
    let tiles: Vec<(u64, bool)> = [(10_000, true); 9].into_iter().chain([(1, true)]).collect();
    let (plain, cells) = column_of_tiles(
        (0..90_001).map(|i| i % 40),
        None,
        Some(&tiles),
        &Tuning::PRODUCTION,
    );
    let len = cells.len(Content::Data).unwrap();
    assert_eq!(plain.lengths.load(Ordering::Relaxed), 0);
    read(&cells, Content::Data, len - 10..len);
    // The last block has two tiles.
    assert_eq!(plain.lengths.load(Ordering::Relaxed), 10_001);
    read(&cells, Content::Offsets, 30_000 * 8..30_010 * 8);
    assert_eq!(plain.lengths.load(Ordering::Relaxed), 20_001);
    // The end of a tile is the start of the next one, of which nothing is measured.
    assert_eq!(
        (&cells as &dyn Cells).starts(50_000..60_000).unwrap().len(),
        10_001
    );
    assert_eq!(plain.lengths.load(Ordering::Relaxed), 30_001);
    check_read(&plain, &cells, &[4096, 1 << 20]);

    // Small tiles, one that is too large for a block, cells that are merged, and an empty tile at the end.
    let tiles = [
        (5, true),
        (7, true),
        (MAX_TILE_CELLS + 1, true),
        (20_000, false),
        (30_000, true),
        (3, true),
    ];
    let count: u64 = tiles.iter().map(|(cells, _)| cells).sum();
    let lengths = (0..count as usize).map(|i| if i + 3 < count as usize { i % 5 } else { 0 });
    let (plain, cells) = column_of_tiles(lengths, None, Some(&tiles), &Tuning::PRODUCTION);
    cells.len(Content::Data).unwrap();
    assert_eq!(plain.lengths.load(Ordering::Relaxed), MAX_TILE_CELLS + 1 + 20_000);
    check_read(&plain, &cells, &[5000, 1 << 20]);
}

#[test]
fn of_a_long_cell_no_more_is_read_than_is_wanted() {
    let (plain, cells) = column([10, 50 << 20, 10].into_iter(), None);
    let (data, _) = all(&plain);
    for range in [
        5u64..100,
        1 << 20..(1 << 20) + 4096,
        (50 << 20) - 50..(50 << 20) + 15,
    ] {
        let expected = &data[range.start as usize..range.end as usize];
        assert!(read(&cells, Content::Data, range.clone()) == expected);
    }
    assert!(plain.values.load(Ordering::Relaxed) < 10_000);
}

#[test]
fn lengths_that_change_meanwhile_are_an_error() {
    let (_, cells) = column((0..100).map(|_| 5), None);
    assert_eq!(cells.len(Content::Data).unwrap(), 500);
    let engine = cells.engine.clone();
    let (changed, _) = column((0..100).map(|_| 6), None);
    let array = Array::new(engine, PathBuf::new());
    let later = RunCells::new(changed, None, &array, 1);
    // It has the same number in the cache, and so the same blocks.
    assert_eq!(later.len(Content::Data).unwrap(), 500);
    let error = Output::of(|out| later.read(Content::Data, 0..10, out))
        .err()
        .unwrap();
    assert!(error.to_string().contains("changed"), "{error}");
}
