//! Tests of whole chunks: those of libtiledb, other pipelines built here, and damage to all of them.

use super::tile_codec::Decoded;
use super::vectors::{ChunkVector, bytes, codec, codec_of, compression, vectors};
use super::{EncryptionKey, TileCodec};
use crate::error::ErrorKind;
use crate::format::datatype::Datatype;
use crate::format::pipeline::{Codec, Filter};
use crate::format::testing::Random;

#[test]
fn tiles_of_libtiledb() {
    for vector in vectors() {
        let (original, metadata, data) = vector.chunk();
        let decoded = vector.codec().decode_chunk(original, &metadata, &data);
        let expected = Decoded {
            data: vector.plain.clone(),
            offsets: vector.offsets.clone(),
        };
        assert_eq!(decoded.unwrap(), expected, "{}", vector.name);
        assert_eq!(
            vector.codec().is_identity(),
            vector.filters.is_empty(),
            "{}",
            vector.name
        );
        if let Some(offsets) = &vector.offsets {
            let cells = offsets.len() as u64;
            let codec = vector.codec();
            assert_eq!(
                codec
                    .decode_chunk_of_cells(original, cells, &metadata, &data)
                    .unwrap(),
                expected
            );
            let error = codec
                .decode_chunk_of_cells(original, cells + 1, &metadata, &data)
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        }
    }
}

/// Every truncation, extension and wrong original length of a chunk is an error, or gives the right bytes.
#[test]
fn lengths_that_disagree_fail() {
    for vector in vectors() {
        let (original, metadata, data) = vector.chunk();
        let codec = vector.codec();
        for cut in 0..metadata.len() {
            assert!(
                codec.decode_chunk(original, &metadata[..cut], &data).is_err(),
                "{} {cut}",
                vector.name
            );
        }
        for cut in 0..data.len() {
            assert!(
                codec.decode_chunk(original, &metadata, &data[..cut]).is_err(),
                "{} {cut}",
                vector.name
            );
        }
        for (metadata, data) in [
            ([&metadata[..], &[0]].concat(), data.clone()),
            (metadata.clone(), [&data[..], &[0]].concat()),
        ] {
            assert!(
                codec.decode_chunk(original, &metadata, &data).is_err(),
                "{}",
                vector.name
            );
        }
        for wrong in [0, 1, original - 1, original + 1, u32::MAX] {
            assert!(
                codec.decode_chunk(wrong, &metadata, &data).is_err(),
                "{} {wrong}",
                vector.name
            );
        }
    }
}

impl Random {
    /// Changes one to three bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.index(3) {
            let at = self.index(bytes.len());
            match self.index(8) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.next() as u8),
                2 => bytes.extend_from_within(at..),
                3 if at + 4 <= bytes.len() => bytes[at..at + 4].fill(0xFF),
                4 if at + 4 <= bytes.len() => bytes[at..at + 4].fill(0),
                5 if at < bytes.len() => bytes[at] ^= 1 << self.index(8),
                6 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(1),
                _ if at < bytes.len() => bytes[at] = self.next() as u8,
                _ => {}
            }
        }
    }
}

#[test]
fn damage_never_panics_nor_changes_the_length() {
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let mut cases: Vec<_> = vectors().iter().map(|v| (v.codec(), v.chunk())).collect();
    cases.extend(pipelines());
    let (mut decoded, mut refused) = (0, 0);
    for round in 0..8000 {
        let (codec, (original, metadata, data)) = &cases[round % cases.len()];
        let (mut original, mut metadata, mut data) = (*original, metadata.clone(), data.clone());
        match random.index(8) {
            0..4 => random.damage(&mut metadata),
            4..7 => random.damage(&mut data),
            _ => original = original.wrapping_add(random.below(9) as u32).wrapping_sub(4) & 0xFFFF,
        }
        match codec.decode_chunk(original, &metadata, &data) {
            Ok(chunk) => {
                decoded += 1;
                assert_eq!(chunk.data.len(), original as usize);
                if let Some(offsets) = chunk.offsets {
                    assert!(offsets.is_sorted() && offsets.iter().all(|o| *o <= original.into()));
                }
            }
            Err(error) => {
                refused += 1;
                assert!(
                    !matches!(error.kind(), ErrorKind::Internal | ErrorKind::Io(_)),
                    "{error}"
                );
            }
        }
    }
    assert!(decoded > 500 && refused > 2000, "{decoded} {refused}");
}

/// The table of parts for one data part.
fn one_part(original: usize, stored: usize) -> Vec<u8> {
    words(&[0, 1, original as u32, stored as u32])
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Chunks of filters that `vectors` lacks.
fn pipelines() -> Vec<(TileCodec, ChunkVector)> {
    let plain: Vec<u8> = (0..600u32).flat_map(|i| (i * i).to_le_bytes()).collect();
    let original = plain.len() as u32;
    let mut bz = bzip2_encode(&plain);
    let mut cases = vec![(
        codec(Datatype::Int32, vec![compression(Codec::Bzip2)]),
        (original, one_part(plain.len(), bz.len()), std::mem::take(&mut bz)),
    )];

    let (metadata, data) = encrypt(&[7; 32], &[], &plain);
    cases.push((
        codec(Datatype::Int32, vec![]).encrypted_with(Some(EncryptionKey::new([7; 32]))),
        (original, metadata, data),
    ));

    let mut shuffled = vec![0; plain.len()];
    for (i, byte) in plain.iter().enumerate() {
        shuffled[i % 4 * 600 + i / 4] = *byte;
    }
    let digest = <sha2::Sha256 as sha2::Digest>::digest;
    let lengths = words(&[1, original]);
    let mut checks = words(&[1, 1]);
    checks.extend(8u64.to_le_bytes());
    checks.extend(digest(&lengths));
    checks.extend(u64::from(original).to_le_bytes());
    checks.extend(digest(&shuffled));
    checks.extend(&lengths);
    let packed = [
        zstd::bulk::compress(&checks, 3).unwrap(),
        zstd::bulk::compress(&shuffled, 3).unwrap(),
    ];
    let mut table = words(&[1, 1]);
    for (plain, packed) in [(&checks, &packed[0]), (&shuffled, &packed[1])] {
        table.extend(words(&[plain.len() as u32, packed.len() as u32]));
    }
    cases.push((
        codec(
            Datatype::Int32,
            vec![
                Filter::Byteshuffle,
                Filter::ChecksumSha256,
                Filter::Noop,
                compression(Codec::Zstd),
            ],
        ),
        (original, table, packed.concat()),
    ));
    cases
}

fn bzip2_encode(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = bzip2::write::BzEncoder::new(vec![], bzip2::Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The encryption filter's output for a metadata part (if any) and a data part.
fn encrypt(key: &[u8; 32], metadata: &[u8], data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    use aes_gcm::aead::{AeadInOut, KeyInit};
    let cipher = aes_gcm::Aes256Gcm::new(key.into());
    let mut table = words(&[u32::from(!metadata.is_empty()), 1]);
    let mut out = vec![];
    for (i, part) in [metadata, data].into_iter().enumerate() {
        if part.is_empty() && i == 0 {
            continue;
        }
        let iv = [i as u8 + 1; 12];
        let mut text = part.to_vec();
        let tag = cipher
            .encrypt_inout_detached(&aes_gcm::Nonce::from(iv), &[], text.as_mut_slice().into())
            .unwrap();
        table.extend(words(&[part.len() as u32; 2]));
        table.extend(iv);
        table.extend(tag.as_slice());
        out.extend(text);
    }
    (table, out)
}

#[test]
fn other_pipelines() {
    let plain: Vec<u8> = (0..600u32).flat_map(|i| (i * i).to_le_bytes()).collect();
    for (codec, (original, metadata, data)) in pipelines() {
        assert_eq!(
            codec.decode_chunk(original, &metadata, &data).unwrap().data,
            plain
        );
    }
}

fn kind(codec: &TileCodec, original: u32, metadata: &[u8], data: &[u8]) -> ErrorKind {
    codec.decode_chunk(original, metadata, data).unwrap_err().kind()
}

#[test]
fn encryption() {
    let (inner, (original, metadata, data)) = {
        let vector = &vectors()[1];
        (vector.codec(), vector.chunk())
    };
    let (outer, text) = encrypt(&[9; 32], &metadata, &data);
    assert_eq!(outer.len(), 80);
    let with = |key: Option<u8>| {
        inner
            .clone()
            .encrypted_with(key.map(|k| EncryptionKey::new([k; 32])))
    };
    assert_eq!(
        with(Some(9)).decode_chunk(original, &outer, &text).unwrap().data,
        bytes([1i32; 4].map(i32::to_le_bytes))
    );
    assert_eq!(kind(&with(None), original, &outer, &text), ErrorKind::KeyRequired);
    assert_eq!(kind(&with(Some(8)), original, &outer, &text), ErrorKind::WrongKey);
    let error = with(Some(8)).decode_chunk(original, &outer, &text).unwrap_err();
    assert!(error.to_string().contains("the key is wrong") && error.to_string().contains("damaged"));
    let key = EncryptionKey::new([9; 32]);
    assert_eq!(format!("{key:?}"), "EncryptionKey(…)");
    assert_eq!((key.bytes(), &key), (&[9; 32], &EncryptionKey::new([9; 32])));
    let twice = with(Some(9)).encrypted_with(Some(key));
    assert_eq!(twice.pipeline().filters.len(), 2);
}

#[test]
fn an_unknown_filter_is_named() {
    let codec = codec(
        Datatype::Int32,
        vec![
            Filter::Byteshuffle,
            Filter::Unknown {
                id: 77,
                options: vec![1],
            },
        ],
    );
    let error = codec.decode_chunk(4, &[], &[0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("77"));
    assert!(!codec.is_identity());
}

#[test]
fn errors_name_the_filter() {
    let codec = codec(Datatype::Int32, vec![Filter::Noop, Filter::Byteshuffle]);
    let error = codec.decode_chunk(4, &[1, 0], &[0; 4]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter 2 (byteshuffle), `number of parts` at byte 0: 4 bytes wanted, 2 left"
    );
}

#[test]
fn types_are_propagated_or_not() {
    let scaled = vectors()
        .into_iter()
        .find(|v| v.name.starts_with("float scale + byteshuffle"))
        .unwrap();
    // A library before format 20 shuffled the six bytes as FLOAT64, which left them unchanged.
    let old = codec_of(scaled.datatype, scaled.filters.clone(), 19);
    let (original, metadata, _) = scaled.chunk();
    let stored = [2, 0, 3, 0, 0xf4, 0xff];
    assert_eq!(
        old.decode_chunk(original, &metadata, &stored).unwrap().data,
        scaled.plain
    );
    assert_ne!(
        scaled
            .codec()
            .decode_chunk(original, &metadata, &stored)
            .unwrap()
            .data,
        scaled.plain
    );
}

#[test]
fn identities() {
    let window = Filter::BitWidthReduction { max_window_size: 256 };
    let delta = Filter::PositiveDelta { max_window_size: 256 };
    assert!(
        codec(
            Datatype::Float32,
            vec![Filter::Noop, window.clone(), delta.clone()]
        )
        .is_identity()
    );
    assert!(!codec(Datatype::Int8, vec![delta.clone()]).is_identity());
    assert!(codec(Datatype::Int8, vec![window.clone()]).is_identity());
    assert!(!codec(Datatype::Int8, vec![Filter::ChecksumMd5]).is_identity());
    let old = codec_of(Datatype::DatetimeMs, vec![window, delta], 19);
    assert!(old.is_identity());
    assert_eq!(old.decode_chunk(8, &[], &[7; 8]).unwrap().data, [7; 8]);
    assert_eq!(kind(&old, 8, &[1], &[7; 8]), ErrorKind::Corrupt);
    assert_eq!(kind(&old, 9, &[], &[7; 8]), ErrorKind::Corrupt);
}

#[test]
fn empty_input() {
    for filter in [
        compression(Codec::Gzip),
        compression(Codec::DoubleDelta),
        Filter::Bitshuffle,
        Filter::Xor,
        Filter::ChecksumMd5,
        Filter::Aes256Gcm,
    ] {
        let codec = codec(Datatype::Int32, vec![filter]).with_key(Some(EncryptionKey::new([0; 32])));
        assert_eq!(kind(&codec, 0, &[], &[]), ErrorKind::Truncated);
        assert_eq!(kind(&codec, 4, &[], &[]), ErrorKind::Truncated);
    }
    assert_eq!(
        codec(Datatype::Int32, vec![])
            .decode_chunk(0, &[], &[])
            .unwrap()
            .data,
        b""
    );
}

/// A small chunk that declares much, or expands to much between two filters, is refused.
#[test]
fn bombs_are_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    let one = codec(Datatype::Uint8, vec![compression(Codec::Zstd)]);
    assert_eq!(
        kind(&one, 100, &one_part(64 << 20, bomb.len()), &bomb),
        ErrorKind::LimitExceeded
    );
    assert_eq!(
        kind(&one, 100, &one_part(100, bomb.len()), &bomb),
        ErrorKind::Corrupt
    );
    let chain = codec(
        Datatype::Uint8,
        vec![compression(Codec::Rle), compression(Codec::Zstd)],
    );
    assert_eq!(
        kind(&chain, 100, &one_part(64 << 20, bomb.len()), &bomb),
        ErrorKind::LimitExceeded
    );
    // A long pipeline does not raise the bound without limit.
    let many = codec(
        Datatype::Uint8,
        vec![compression(Codec::Rle); 60]
            .into_iter()
            .chain([compression(Codec::Zstd)])
            .collect(),
    );
    assert_eq!(
        kind(&many, 100, &one_part(64 << 20, bomb.len()), &bomb),
        ErrorKind::LimitExceeded
    );
    // Nor do the streams of a large chunk take more than the codec's bound.
    let bomb_of = |codec: &TileCodec| kind(codec, 1 << 20, &one_part(64 << 20, bomb.len()), &bomb);
    assert_eq!(bomb_of(&many), ErrorKind::Truncated);
    assert_eq!(bomb_of(&many.bounded(32 << 20)), ErrorKind::LimitExceeded);
    // The number of empty strings is bounded, although they take no bytes.
    let strings = codec(Datatype::StringAscii, vec![compression(Codec::Rle)]).embedding_offsets();
    let header = [&words(&[0, 1, 0, 9, u32::MAX - 7])[..], &[8, 1]].concat();
    let runs = [&[0, 0, 0, 0, 0x1F, 0xFF, 0xFF, 0xFF], &[0][..]].concat();
    assert_eq!(kind(&strings, 0, &header, &runs), ErrorKind::LimitExceeded);
}

#[test]
fn memory_counts_the_streams_between_filters() {
    let memory = |filters| codec(Datatype::Uint8, filters).working_memory(2 << 20, 1 << 20, 0);
    let [rle, zstd] = [Codec::Rle, Codec::Zstd].map(compression);
    assert_eq!(memory(vec![zstd.clone()]), (3 << 20, 3 << 20));
    let (usual, most) = memory(vec![Filter::Byteshuffle, Filter::ChecksumMd5, zstd.clone()]);
    assert!(usual == 7 << 20 && most == usual, "{most}");
    let (usual, most) = memory(vec![rle.clone(), rle.clone(), rle, zstd]);
    // Streams of 9 and 27 times the chunk.
    assert!(usual == 7 << 20 && most > 75 << 20 && most < 76 << 20, "{most}");
}

#[test]
fn embedded_offsets_need_their_filter() {
    for filters in [
        vec![],
        vec![Filter::Byteshuffle],
        vec![Filter::Noop, compression(Codec::Rle)],
    ] {
        let codec = codec(Datatype::StringAscii, filters).embedding_offsets();
        assert_eq!(
            kind(&codec, 4, &[1, 0, 0, 0, 4, 0, 0, 0], &[0; 4]),
            ErrorKind::Corrupt
        );
    }
    let codec = codec(Datatype::StringAscii, vec![compression(Codec::Dictionary)]);
    assert_eq!(kind(&codec, 4, &one_part(4, 4), &[0; 4]), ErrorKind::Corrupt);
}
