//! Counts the work of reads: no chunk is decoded twice, or without need.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Barrier};
use tiledbfs::internals::bytes::{Keep, Output, SequentialDetector};
use tiledbfs::internals::engine::Engine;
use tiledbfs::internals::filter::TileCodec;
use tiledbfs::internals::format::datatype::Datatype;
use tiledbfs::internals::format::pipeline::{Filter, Pipeline};
use tiledbfs::internals::fragment::cells::FragmentCells;
use tiledbfs::internals::fragment::column::Column;
use tiledbfs::internals::fragment::geometry::Geometry;
use tiledbfs::internals::fragment::info::Edition;
use tiledbfs::internals::fragment::tile_file::TileFile;
use tiledbfs::internals::runtime::stats::Stats;
use tiledbfs::internals::storage::{Blob, LocalStorage};
use tiledbfs::internals::{fragment_info, open_array};
use tiledbfs::{Cells, Result, TimeRange};

struct Memory(Vec<u8>);

impl Blob for Memory {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
        Ok(())
    }

    fn display(&self) -> &str {
        "memory"
    }
}

const CHUNK: u64 = 65_536;
const CHUNKS_OF_A_TILE: u64 = 16;
const TILES: u64 = 8;
const CHUNKS: u64 = CHUNKS_OF_A_TILE * TILES;
const TILE: u64 = CHUNK * CHUNKS_OF_A_TILE;
const SIZE: u64 = TILE * TILES;

fn plain(offset: u64) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 16).to_le_bytes()[0]
}

/// A file of bytes with byteshuffle, which does not change bytes but has to be undone.
fn part(cache_size: u64) -> (TileFile, Arc<Stats>) {
    let mut file = Vec::new();
    let mut offsets = Vec::new();
    for tile in 0..TILES {
        offsets.push(file.len() as u64);
        file.extend(CHUNKS_OF_A_TILE.to_le_bytes());
        for chunk in 0..CHUNKS_OF_A_TILE {
            file.extend(
                [CHUNK as u32, CHUNK as u32, 8, 1, CHUNK as u32]
                    .map(u32::to_le_bytes)
                    .as_flattened(),
            );
            let start = tile * TILE + chunk * CHUNK;
            file.extend((start..start + CHUNK).map(plain));
        }
    }
    let pipeline = Pipeline {
        max_chunk_size: CHUNK as u32,
        filters: vec![Filter::Byteshuffle],
    };
    let stats: Arc<Stats> = Arc::default();
    let storage = LocalStorage::new(Path::new("/"), false, stats.clone()).unwrap();
    let part = TileFile {
        engine: Arc::new(Engine::new(
            Arc::new(storage),
            cache_size,
            Vec::new(),
            stats.clone(),
        )),
        path: Default::default(),
        edition: Edition::default(),
        object: 1,
        file_size: file.len() as u64,
        blob: Arc::new(Memory(file)),
        codec: TileCodec::new(pipeline, Datatype::Uint8, 1, 22, 22),
        offsets: Arc::new(offsets),
        geometry: Geometry::new(TILES, TILE, TILE).unwrap(),
        generic: false,
    };
    (part, stats)
}

/// Reads and checks a range, which may span tiles.
fn read(part: &TileFile, range: Range<u64>, keep: Keep) {
    let mut piece = Output::keeping(keep);
    let mut position = range.start;
    while position < range.end {
        let tile = position / TILE;
        let end = range.end.min((tile + 1) * TILE);
        part.read(tile, TILE, position - tile * TILE..end - tile * TILE, &mut piece)
            .unwrap();
        position = end;
    }
    assert_eq!(piece.len() as u64, range.end - range.start);
    assert!(
        piece
            .iter()
            .zip(range)
            .all(|(byte, offset)| *byte == plain(offset))
    );
}

/// Reads the whole file in pieces that do not end where chunks do.
fn read_all(part: &TileFile, piece: u64) {
    let sequence = SequentialDetector::default();
    for start in (0..SIZE).step_by(piece as usize) {
        let range = start..SIZE.min(start + piece);
        let keep = sequence.next(&range);
        read(part, range, keep);
    }
}

#[test]
fn a_sequential_read_decodes_each_chunk_once() {
    for (cache, piece) in [
        (256 << 20, 1 << 20),
        (256 << 20, 100_000),
        (4 << 20, 131_072),
        (4 << 20, 70_001),
    ] {
        let (part, stats) = part(cache);
        read_all(&part, piece);
        assert_eq!(stats.chunks_decoded.get(), CHUNKS, "{cache} {piece}");
        assert_eq!(stats.tiles_opened.get(), TILES);
        assert_eq!(stats.bytes_decoded.get(), SIZE);
        assert!(stats.cache_bytes.get() <= cache);
    }
}

#[test]
fn who_goes_through_a_chunk_larger_than_the_cache_has_it_decoded_once() {
    const CACHE: u64 = CHUNK / 2;
    for piece in [8192, 70_001] {
        let (part, stats) = part(CACHE);
        read_all(&part, piece);
        assert_eq!(stats.chunks_decoded.get(), CHUNKS, "{piece}");
        assert_eq!(stats.tiles_opened.get(), TILES);
        assert!(stats.cache_bytes.get() <= CACHE + CHUNK + 128);
    }
}

#[test]
fn sequential_reads_take_a_small_share_of_the_cache() {
    let (part, stats) = part(64 << 20);
    read(&part, 5..13, Keep::Staying);
    read_all(&part, 1 << 20);
    // A sixteenth, the chunk that stays, and chunk indexes.
    assert!(
        stats.cache_bytes.get() < (4 << 20) + 2 * CHUNK,
        "{}",
        stats.cache_bytes.get()
    );
    let before = stats.chunks_decoded.get();
    read(&part, 20..28, Keep::Staying);
    assert_eq!(stats.chunks_decoded.get(), before, "it was driven out");
}

#[test]
fn eight_bytes_anywhere_decode_one_chunk() {
    let (part, stats) = part(256 << 20);
    let sequence = SequentialDetector::default();
    let mut random = 1u64;
    let mut touched = std::collections::HashSet::new();
    for _ in 0..500 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let start = (random >> 33) % (SIZE / 8) * 8;
        let before = stats.chunks_decoded.get();
        let range = start..start + 8;
        let keep = sequence.next(&range);
        read(&part, range, keep);
        assert!(stats.chunks_decoded.get() - before <= 1);
        touched.insert(start / CHUNK);
    }
    assert!(stats.chunks_decoded.get() >= touched.len() as u64);
    assert!(touched.len() as u64 > CHUNKS * 9 / 10);
}

#[test]
fn sixteen_readers_of_one_column_decode_each_chunk_once() {
    let (part, stats) = part(256 << 20);
    // All read the same piece at once, like readers through the kernel's pages.
    let together = Barrier::new(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for start in (0..SIZE).step_by(1 << 20) {
                    together.wait();
                    read(&part, start..start + (1 << 20), Keep::Passing);
                }
            });
        }
    });
    assert_eq!(stats.chunks_decoded.get(), CHUNKS);
    assert_eq!(stats.tiles_opened.get(), TILES);
}

/// Cache lookups for each content of each field of the fragments of an array with ten tiles.
#[test]
fn a_read_asks_the_cache_twice_a_tile() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample/weather");
    let stats: Arc<Stats> = Arc::default();
    let storage = LocalStorage::new(&path, false, stats.clone()).unwrap();
    let engine = Engine::new(Arc::new(storage), 256 << 20, Vec::new(), stats.clone());
    let view = open_array(Arc::new(engine), "")
        .at(TimeRange::ALL)
        .open()
        .unwrap();
    let mut read = 0;
    for fragment in view.fragments() {
        let info = fragment_info(&fragment).unwrap();
        for field in &info.fields {
            let column = Column::new(info.clone(), field.clone());
            for content in column.contents() {
                let cells: &dyn Cells = &FragmentCells::new(info.clone(), field.clone());
                let len = cells.len(content).unwrap();
                let lookups = || {
                    let before = stats.cache_hits.get() + stats.cache_misses.get();
                    Output::of(|out| cells.read(content, 0..len, out)).unwrap();
                    stats.cache_hits.get() + stats.cache_misses.get() - before
                };
                let tiles = column.tile_num();
                // The lists of tiles and sizes, once for all tiles: the index, the count, the entries.
                assert!(lookups() <= 3 * tiles + 10, "{content:?} of {tiles} tiles, first");
                assert!(lookups() <= 2 * tiles, "{content:?} of {tiles} tiles");
                read = read.max(tiles);
            }
        }
    }
    assert!(read >= 10);
}
