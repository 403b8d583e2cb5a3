//! How fast each filter is undone, in bytes of output, and how fast a chunk index is read and searched.
//!
//! `cargo bench`, or `cargo bench -- ZSTD` for some.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sha2::Digest;
use std::hint::black_box;
use std::io::Write;
use tiledbfs::filter::TileCodec;
use tiledbfs::filter::chunk::ChunkIndex;
use tiledbfs::format::datatype::Datatype;
use tiledbfs::format::pipeline::{Codec, Filter, Pipeline};
use tiledbfs::storage::{Blob, MemoryBlob};

/// Bytes of a chunk, and its values of eight bytes.
const CHUNK: usize = 65_536;
const VALUES: usize = CHUNK / 8;

/// A random walk in hundredths.
fn walk() -> Vec<u64> {
    let mut state = 7u64;
    let mut value = 2000u64;
    let step = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        value += state >> 61;
        value
    };
    (0..VALUES).map(step).collect()
}

fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A chunk of a compressor: the table of one part, and the part.
fn compressed(codec: Codec, part: Vec<u8>) -> (Filter, Vec<u8>, Vec<u8>) {
    let filter = Filter::Compression {
        codec,
        level: -1,
        reinterpret: None,
    };
    (filter, words(&[0, 1, CHUNK as u32, part.len() as u32]), part)
}

/// The table of a digest of a whole chunk.
fn checked(digest: &[u8]) -> Vec<u8> {
    [&words(&[0, 1]), &(CHUNK as u64).to_le_bytes()[..], digest].concat()
}

/// Name, filter, metadata and data of a chunk for each filter. What the data of those that only compute decode to does not matter.
fn chunks() -> Vec<(&'static str, Filter, Vec<u8>, Vec<u8>)> {
    let plain = bytes(&walk());
    let mut gzip = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    gzip.write_all(&plain).expect("writing to memory");
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(1));
    bzip2.write_all(&plain).expect("writing to memory");
    let runs: Vec<u8> = (0..VALUES as u64 / 16)
        .flat_map(|value| [&value.to_le_bytes()[..], &[0, 16]].concat())
        .collect();
    let count = (VALUES as u64).to_le_bytes();
    // Differences of a sign and seven bits, in words of 64 bits.
    let differences = vec![0x35; (VALUES - 2).div_ceil(8) * 8];
    let double_delta = [&[7], &count[..], &plain[..16], &differences].concat();
    let delta = [&count[..], &plain].concat();
    let one_part = words(&[1, CHUNK as u32]);
    let window = 1024u32;
    let windows = CHUNK as u32 / window;
    let mut positive = words(&[windows]);
    let mut narrow = words(&[CHUNK as u32, windows]);
    for _ in 0..windows {
        positive.extend([&7u64.to_le_bytes()[..], &window.to_le_bytes()].concat());
        narrow.extend([&7u64.to_le_bytes()[..], &[16], &window.to_le_bytes()].concat());
    }
    let zstd = zstd::bulk::compress(&plain, 3).expect("compressing in memory");
    let of = |name, (filter, metadata, data)| (name, filter, metadata, data);
    vec![
        of(
            "GZIP",
            compressed(Codec::Gzip, gzip.finish().expect("writing to memory")),
        ),
        of("ZSTD", compressed(Codec::Zstd, zstd)),
        of("LZ4", compressed(Codec::Lz4, lz4_flex::block::compress(&plain))),
        of(
            "BZIP2",
            compressed(Codec::Bzip2, bzip2.finish().expect("writing to memory")),
        ),
        of("RLE", compressed(Codec::Rle, runs)),
        of("DOUBLE_DELTA", compressed(Codec::DoubleDelta, double_delta)),
        of("DELTA", compressed(Codec::Delta, delta)),
        (
            "BYTESHUFFLE",
            Filter::Byteshuffle,
            one_part.clone(),
            plain.clone(),
        ),
        ("BITSHUFFLE", Filter::Bitshuffle, one_part.clone(), plain.clone()),
        ("XOR", Filter::Xor, one_part, plain.clone()),
        (
            "POSITIVE_DELTA",
            Filter::PositiveDelta {
                max_window_size: window,
            },
            positive,
            plain.clone(),
        ),
        (
            "BIT_WIDTH_REDUCTION",
            Filter::BitWidthReduction {
                max_window_size: window,
            },
            narrow,
            plain[..CHUNK / 4].to_vec(),
        ),
        (
            "SCALE_FLOAT",
            Filter::ScaleFloat {
                scale: 0.01,
                offset: 20.0,
                byte_width: 4,
            },
            words(&[1, CHUNK as u32 / 2]),
            plain[..CHUNK / 2].to_vec(),
        ),
        (
            "CHECKSUM_MD5",
            Filter::ChecksumMd5,
            checked(&md5::Md5::digest(&plain)),
            plain.clone(),
        ),
        (
            "CHECKSUM_SHA256",
            Filter::ChecksumSha256,
            checked(&sha2::Sha256::digest(&plain)),
            plain.clone(),
        ),
    ]
}

fn decoders(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Bytes(CHUNK as u64));
    for (name, filter, metadata, data) in chunks() {
        let codec = TileCodec {
            pipeline: Pipeline {
                max_chunk_size: CHUNK as u32,
                filters: vec![filter],
            },
            datatype: Datatype::Int64,
            cell_size: 8,
            fragment_version: 22,
            propagates_types: true,
            embeds_offsets: false,
            key: None,
        };
        group.bench_function(name, |b| {
            b.iter(|| {
                codec
                    .decode_chunk(CHUNK as u32, black_box(&metadata), black_box(&data))
                    .expect("a chunk as the format has it")
            });
        });
    }
    group.finish();
}

fn chunk_index(c: &mut Criterion) {
    let mut group = c.benchmark_group("chunk index");
    for count in [16u64, 1024] {
        let mut tile = count.to_le_bytes().to_vec();
        for _ in 0..count {
            tile.extend(words(&[CHUNK as u32, 8000, 16]));
            tile.resize(tile.len() + 8016, 0);
        }
        let blob = MemoryBlob::new(tile, "memory");
        let size = count * CHUNK as u64;
        let read = || ChunkIndex::read(&blob, 0, blob.len(), size).expect("a tile as the format has it");
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::new("read", count), |b| b.iter(read));
        let index = read();
        group.throughput(Throughput::Elements(1));
        let mut offset = 0;
        group.bench_function(BenchmarkId::new("find", count), |b| {
            b.iter(|| {
                offset = (offset + 10_000_019) % size;
                index.find(black_box(offset))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decoders, chunk_index);
criterion_main!(benches);
