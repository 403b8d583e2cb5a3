//! Throughput of undoing each filter (bytes of output), of reading and searching a chunk index, and of
//! finding a chunk in the cache.
//!
//! `cargo bench` runs all, `cargo bench -- ZSTD` some.

use aes_gcm::Aes256Gcm;
use aes_gcm::aead::{AeadInOut, KeyInit};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sha2::Digest;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tiledbfs::internals::bytes::Keep;
use tiledbfs::internals::filter::chunk::ChunkIndex;
use tiledbfs::internals::filter::tile_codec::Decoded;
use tiledbfs::internals::filter::{EncryptionKey, TileCodec};
use tiledbfs::internals::format::datatype::Datatype;
use tiledbfs::internals::format::enums::WebpFormat;
use tiledbfs::internals::format::pipeline::{Codec, Filter, Pipeline};
use tiledbfs::internals::runtime::cache::{CacheKey, ChunkCache};
use tiledbfs::internals::storage::{Blob, MemoryBlob};

/// Bytes of a chunk, and its values of 8 bytes.
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

/// A chunk to decode.
struct Case {
    name: &'static str,
    filter: Filter,
    metadata: Vec<u8>,
    data: Vec<u8>,
    /// Cells of the tile, if the chunk embeds their offsets.
    strings: Option<u64>,
}

impl Case {
    fn new(name: &'static str, filter: Filter, metadata: Vec<u8>, data: impl Into<Vec<u8>>) -> Self {
        Case {
            name,
            filter,
            metadata,
            data: data.into(),
            strings: None,
        }
    }

    /// A case of a compressor: the metadata is a table of one part.
    fn compressed(name: &'static str, codec: Codec, part: Vec<u8>) -> Self {
        let table = words(&[0, 1, CHUNK as u32, part.len() as u32]);
        Case::new(name, compression(codec), table, part)
    }

    /// A case of `count` strings. `rest` follows the header of the metadata.
    fn strings(name: &'static str, codec: Codec, count: usize, rest: &[u8], data: Vec<u8>) -> Self {
        let header = words(&[0, 1, CHUNK as u32, data.len() as u32, count as u32 * 8]);
        let metadata = [&header, &[1, 1][..], rest].concat();
        Case {
            strings: Some(count as u64),
            ..Case::new(name, compression(codec), metadata, data)
        }
    }

    fn codec(&self) -> TileCodec {
        let datatype = match (&self.filter, self.strings) {
            (_, Some(_)) => Datatype::StringAscii,
            (Filter::Webp { .. }, _) => Datatype::Uint8,
            _ => Datatype::Int64,
        };
        let pipeline = Pipeline {
            max_chunk_size: CHUNK as u32,
            filters: vec![self.filter.clone()],
        };
        let codec = TileCodec::new(pipeline, datatype, datatype.size() as u64, 22, 22);
        match self.filter {
            Filter::Aes256Gcm => codec.encrypted_with(Some(EncryptionKey::new(KEY))),
            _ if self.strings.is_some() => codec.embedding_offsets(),
            _ => codec,
        }
    }

    fn decode(&self, codec: &TileCodec) -> Decoded {
        let (metadata, data) = (black_box(&self.metadata), black_box(&self.data));
        match self.strings {
            Some(cells) => codec.decode_chunk_of_cells(CHUNK as u32, cells, metadata, data),
            None => codec.decode_chunk(CHUNK as u32, metadata, data),
        }
        .expect("a chunk as the format has it")
    }
}

const KEY: [u8; 32] = [7; 32];

fn compression(codec: Codec) -> Filter {
    Filter::Compression {
        codec,
        level: -1,
        reinterpret: None,
    }
}

/// The table of one digest, of a whole chunk.
fn checked(digest: &[u8]) -> Vec<u8> {
    [&words(&[0, 1]), &(CHUNK as u64).to_le_bytes()[..], digest].concat()
}

/// GZIP, ZSTD, LZ4 and BZIP2, encoded by the libraries.
fn codecs(plain: &[u8]) -> Vec<Case> {
    let mut gzip = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    gzip.write_all(plain).expect("writing to memory");
    let gzip = gzip.finish().expect("writing to memory");
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(1));
    bzip2.write_all(plain).expect("writing to memory");
    let bzip2 = bzip2.finish().expect("writing to memory");
    let zstd = zstd::bulk::compress(plain, 3).expect("compressing in memory");
    vec![
        Case::compressed("GZIP", Codec::Gzip, gzip),
        Case::compressed("ZSTD", Codec::Zstd, zstd),
        Case::compressed("LZ4", Codec::Lz4, lz4_flex::block::compress(plain)),
        Case::compressed("BZIP2", Codec::Bzip2, bzip2),
    ]
}

/// TileDB's own codecs. Those of differences get arbitrary input: their result does not matter.
fn encodings(plain: &[u8]) -> Vec<Case> {
    let runs: Vec<u8> = (0..VALUES as u64 / 16)
        .flat_map(|value| [&value.to_le_bytes()[..], &[0, 16]].concat())
        .collect();
    let count = (VALUES as u64).to_le_bytes();
    // Second differences of a sign and seven bits, in words of 64 bits.
    let differences = vec![0x35; (VALUES - 2).div_ceil(8) * 8];
    let double_delta = [&[7], &count[..], &plain[..16], &differences].concat();
    let delta = [&count[..], plain].concat();
    vec![
        Case::compressed("RLE", Codec::Rle, runs),
        Case::compressed("DOUBLE_DELTA", Codec::DoubleDelta, double_delta),
        Case::compressed("DELTA", Codec::Delta, delta),
    ]
}

/// Strings of 16 bytes, 64 distinct ones.
fn strings() -> Vec<Case> {
    const LENGTH: usize = 16;
    let count = CHUNK / LENGTH;
    let different: Vec<String> = (0..64).map(|i| format!("station of {i:05}")).collect();
    let runs = (0..count / LENGTH)
        .flat_map(|i| [&[16, LENGTH as u8], different[i % 64].as_bytes()].concat())
        .collect();
    let dictionary: Vec<u8> = different
        .iter()
        .flat_map(|string| [&[LENGTH as u8], string.as_bytes()].concat())
        .collect();
    let dictionary = [words(&[dictionary.len() as u32]), dictionary].concat();
    let places = (0..count).map(|i| (i * 37 % 64) as u8).collect();
    vec![
        Case::strings("RLE of strings", Codec::Rle, count, &[], runs),
        Case::strings(
            "DICTIONARY_ENCODING",
            Codec::Dictionary,
            count,
            &dictionary,
            places,
        ),
    ]
}

/// The filters that transform values one by one or by windows.
fn transformations(plain: &[u8]) -> Vec<Case> {
    let one_part = words(&[1, CHUNK as u32]);
    let max_window_size = 1024u32;
    let windows = CHUNK as u32 / max_window_size;
    let mut positive = words(&[windows]);
    let mut narrow = words(&[CHUNK as u32, windows]);
    for _ in 0..windows {
        positive.extend([&7u64.to_le_bytes()[..], &max_window_size.to_le_bytes()].concat());
        narrow.extend([&7u64.to_le_bytes()[..], &[16], &max_window_size.to_le_bytes()].concat());
    }
    let scale = Filter::ScaleFloat {
        scale: 0.01,
        offset: 20.0,
        byte_width: 4,
    };
    let half = words(&[1, CHUNK as u32 / 2]);
    vec![
        Case::new("BYTESHUFFLE", Filter::Byteshuffle, one_part.clone(), plain),
        Case::new("BITSHUFFLE", Filter::Bitshuffle, one_part.clone(), plain),
        Case::new("XOR", Filter::Xor, one_part, plain),
        Case::new(
            "POSITIVE_DELTA",
            Filter::PositiveDelta { max_window_size },
            positive,
            plain,
        ),
        Case::new(
            "BIT_WIDTH_REDUCTION",
            Filter::BitWidthReduction { max_window_size },
            narrow,
            &plain[..CHUNK / 4],
        ),
        Case::new("SCALE_FLOAT", scale, half, &plain[..CHUNK / 2]),
    ]
}

/// A lossless image with the walk's bytes as grey values.
fn webp(plain: &[u8]) -> Case {
    const SIDE: u16 = 128;
    let grey = |byte: &u8| [*byte, *byte, *byte, 255];
    let pixels: Vec<u8> = plain.iter().step_by(4).flat_map(grey).collect();
    let mut file = Vec::new();
    image_webp::WebPEncoder::new(&mut file)
        .encode(&pixels, SIDE.into(), SIDE.into(), image_webp::ColorType::Rgba8)
        .expect("writing to memory");
    let filter = Filter::Webp {
        quality: 100.0,
        format: WebpFormat::Rgba,
        lossless: true,
        y_extent: SIDE,
        x_extent: SIDE * 4,
    };
    Case::new("WEBP", filter, words(&[1, file.len() as u32]), file)
}

/// The checksum and encryption filters.
fn seals(plain: &[u8]) -> Vec<Case> {
    let md5 = checked(&md5::Md5::digest(plain));
    let sha256 = checked(&sha2::Sha256::digest(plain));
    let mut secret = plain.to_vec();
    let vector = [0; 12];
    let tag = Aes256Gcm::new(&KEY.into())
        .encrypt_inout_detached(&vector.into(), &[], secret.as_mut_slice().into())
        .expect("as many bytes as AES-GCM takes");
    let table = [
        words(&[0, 1, CHUNK as u32, CHUNK as u32]),
        vector.to_vec(),
        tag.to_vec(),
    ]
    .concat();
    vec![
        Case::new("CHECKSUM_MD5", Filter::ChecksumMd5, md5, plain),
        Case::new("CHECKSUM_SHA256", Filter::ChecksumSha256, sha256, plain),
        Case::new("AES_256_GCM", Filter::Aes256Gcm, table, secret),
    ]
}

fn decoders(c: &mut Criterion) {
    let plain = bytes(&walk());
    let cases = [
        codecs(&plain),
        encodings(&plain),
        strings(),
        transformations(&plain),
        vec![webp(&plain)],
        seals(&plain),
    ];
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Bytes(CHUNK as u64));
    for case in cases.iter().flatten() {
        let codec = case.codec();
        assert_eq!(case.decode(&codec).data.len(), CHUNK, "{}", case.name);
        group.bench_function(case.name, |b| b.iter(|| case.decode(&codec)));
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

/// Lookups of cached chunks, with one thread and with 16: all threads lock the cache.
fn cache(c: &mut Criterion) {
    const ENTRIES: u64 = 4096;
    let cache = ChunkCache::new(u64::MAX, Arc::default());
    let find = |number: u64| {
        let key = CacheKey::tile(7, number * 2_654_435_761 % ENTRIES);
        cache
            .get(key, 64, Keep::Staying, || Ok(Vec::<u8>::new()))
            .expect("a load that does not fail")
    };
    (0..ENTRIES).for_each(|number| drop(find(number)));
    let mut group = c.benchmark_group("cache");
    for threads in [1u64, 16] {
        group.bench_function(BenchmarkId::new("hit", threads), |b| {
            b.iter_custom(|count| -> Duration {
                let start = Instant::now();
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        scope.spawn(move || {
                            for number in 0..count.div_ceil(threads) {
                                black_box(find(number * threads + thread));
                            }
                        });
                    }
                });
                start.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decoders, chunk_index, cache);
criterion_main!(benches);
