//! Tiles written by libtiledb 2.30, for tests.

use super::TileCodec;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::format::datatype::Datatype;
use crate::format::pipeline::{Codec, Filter, Pipeline};

/// A tile and its decoded bytes.
pub(super) struct Vector {
    pub name: &'static str,
    pub datatype: Datatype,
    pub filters: Vec<Filter>,
    pub plain: Vec<u8>,
    pub offsets: Option<Vec<u64>>,
    /// The stored tile, in hexadecimal digits.
    pub tile: &'static str,
}

pub(super) fn compression(codec: Codec) -> Filter {
    Filter::Compression {
        codec,
        level: -1,
        reinterpret: Some(Datatype::Any),
    }
}

pub(super) fn bytes<const N: usize, const M: usize>(values: [[u8; N]; M]) -> Vec<u8> {
    values.as_flattened().to_vec()
}

pub(super) fn codec(datatype: Datatype, filters: Vec<Filter>) -> TileCodec {
    codec_of(datatype, filters, 22)
}

/// As `version` wrote it.
pub(super) fn codec_of(datatype: Datatype, filters: Vec<Filter>, version: u32) -> TileCodec {
    let pipeline = Pipeline {
        max_chunk_size: 65536,
        filters,
    };
    TileCodec::new(pipeline, datatype, datatype.size() as u64, version, version)
}

/// Undoes a filter whose metadata is the number of parts and their lengths.
pub(super) fn undo_parts(
    undo: fn(&mut Cursor, usize, &[u8], &mut Vec<u8>) -> Result<()>,
    parts: &[u32],
    width: usize,
    data: &[u8],
) -> Result<Vec<u8>> {
    let metadata: Vec<u8> = parts.iter().flat_map(|n| n.to_le_bytes()).collect();
    let mut out = vec![];
    undo(&mut Cursor::new(&metadata), width, data, &mut out)?;
    Ok(out)
}

pub(super) fn vectors() -> Vec<Vector> {
    vec![
        Vector {
            name: "no filter",
            datatype: Datatype::Int32,
            filters: vec![],
            plain: bytes([1i32, 2, 3].map(i32::to_le_bytes)),
            offsets: None,
            tile: "01000000000000000c0000000c00000000000000010000000200000003000000",
        },
        Vector {
            name: "gzip",
            datatype: Datatype::Int32,
            filters: vec![compression(Codec::Gzip)],
            plain: bytes([1i32, 1, 1, 1].map(i32::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000100000000e000000100000000000000001000000100000000e000000789c636460606044c20000380005",
        },
        Vector {
            name: "lz4",
            datatype: Datatype::Int32,
            filters: vec![compression(Codec::Lz4)],
            plain: bytes([7i32; 16].map(i32::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000400000000e000000100000000000000001000000400000000e0000004f07000000040024500007000000",
        },
        Vector {
            name: "zstd",
            datatype: Datatype::Int32,
            filters: vec![compression(Codec::Zstd)],
            plain: bytes([7i32; 16].map(i32::to_le_bytes)),
            offsets: None,
            tile: "01000000000000004000000013000000100000000000000001000000400000001300000028b52ffd204055000020070000000100597244",
        },
        Vector {
            name: "rle",
            datatype: Datatype::Int32,
            filters: vec![compression(Codec::Rle)],
            plain: bytes([5i32, 5, 5, 6].map(i32::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000100000000c000000100000000000000001000000100000000c000000050000000003060000000001",
        },
        Vector {
            name: "byteshuffle",
            datatype: Datatype::Int32,
            filters: vec![Filter::Byteshuffle],
            plain: bytes([1i32, 2, 3, 258].map(i32::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000100000001000000008000000010000001000000001020302000000010000000000000000",
        },
        Vector {
            name: "bitshuffle (tail part + 8 of 10 elements)",
            datatype: Datatype::Int32,
            filters: vec![Filter::Bitshuffle],
            plain: bytes([1i32, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(i32::to_le_bytes)),
            offsets: None,
            tile: "01000000000000002c0000002c0000000c0000000200000028000000040000005566788000000000000000000000000000000000000000000000000000000000090000000a0000000b000000",
        },
        Vector {
            name: "bit width",
            datatype: Datatype::Int32,
            filters: vec![Filter::BitWidthReduction { max_window_size: 16 }],
            plain: bytes([-5i32, 100, 3, -128, 40000, 1073741824].map(i32::to_le_bytes)),
            offsets: None,
            tile: "010000000000000018000000100000001a000000180000000200000080ffffff1010000000409c000020080000007b00e40083000000409c000000000040",
        },
        Vector {
            name: "bit width datetime(v22)",
            datatype: Datatype::DatetimeMs,
            filters: vec![Filter::BitWidthReduction { max_window_size: 256 }],
            plain: bytes([1000i64, 1001, 1300].map(i64::to_le_bytes)),
            offsets: None,
            tile: "01000000000000001800000006000000150000001800000001000000e8030000000000001018000000000001002c01",
        },
        Vector {
            name: "positive delta",
            datatype: Datatype::Int32,
            filters: vec![Filter::PositiveDelta { max_window_size: 16 }],
            plain: bytes([10i32, 12, 15, 15, 90].map(i32::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000140000001400000014000000020000000a000000100000005a000000040000000000000002000000030000000000000000000000",
        },
        Vector {
            name: "double delta",
            datatype: Datatype::Int32,
            filters: vec![compression(Codec::DoubleDelta)],
            plain: bytes([10i32, 12, 15, 15, 90, -7].map(i32::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000180000001900000010000000000000000100000018000000190000000806000000000000000a0000000c000000000000c07ac9c000",
        },
        Vector {
            name: "double delta two values",
            datatype: Datatype::Int16,
            filters: vec![compression(Codec::DoubleDelta)],
            plain: bytes([5i16, 9].map(i16::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000040000000d000000100000000000000001000000040000000d00000000020000000000000005000900",
        },
        Vector {
            name: "double delta raw",
            datatype: Datatype::Int8,
            filters: vec![compression(Codec::DoubleDelta)],
            plain: bytes([-100i8, 100, -100].map(i8::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000030000000c000000100000000000000001000000030000000c0000000903000000000000009c649c",
        },
        Vector {
            name: "delta",
            datatype: Datatype::Int32,
            filters: vec![compression(Codec::Delta)],
            plain: bytes([5i32, -3, 100].map(i32::to_le_bytes)),
            offsets: None,
            tile: "01000000000000000c000000140000001000000000000000010000000c00000014000000030000000000000005000000f8ffffff67000000",
        },
        Vector {
            name: "xor",
            datatype: Datatype::Int32,
            filters: vec![Filter::Xor],
            plain: bytes([1i32, 3, 7].map(i32::to_le_bytes)),
            offsets: None,
            tile: "01000000000000000c0000000c00000008000000010000000c000000010000000200000004000000",
        },
        Vector {
            name: "float scale",
            datatype: Datatype::Float64,
            filters: vec![Filter::ScaleFloat {
                scale: 0.25,
                offset: 1.0,
                byte_width: 2,
            }],
            plain: bytes([1.5f64, 1.75, -2.0].map(f64::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000180000000600000008000000010000000600000002000300f4ff",
        },
        Vector {
            name: "float scale + byteshuffle (propagated INT16)",
            datatype: Datatype::Float64,
            filters: vec![
                Filter::ScaleFloat {
                    scale: 0.25,
                    offset: 1.0,
                    byte_width: 2,
                },
                Filter::Byteshuffle,
            ],
            plain: bytes([1.5f64, 1.75, -2.0].map(f64::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000180000000600000010000000010000000600000001000000060000000203f40000ff",
        },
        Vector {
            name: "md5 over byteshuffle metadata",
            datatype: Datatype::Int32,
            filters: vec![Filter::Byteshuffle, Filter::ChecksumMd5],
            plain: bytes([1i32, 2].map(i32::to_le_bytes)),
            offsets: None,
            tile: "0100000000000000080000000800000040000000010000000100000008000000000000009ae45f82d7ebe1ce859031cf790ec95708000000000000009ad4f763017e0b40c2f2eacf600fc0ef01000000080000000102000000000000",
        },
        Vector {
            name: "byteshuffle + rle (metadata part under RLE cell 4)",
            datatype: Datatype::Int32,
            filters: vec![Filter::Byteshuffle, compression(Codec::Rle)],
            plain: bytes([1i32, 1].map(i32::to_le_bytes)),
            offsets: None,
            tile: "01000000000000000800000018000000180000000100000001000000080000000c000000080000000c000000010000000001080000000001010100000001000000000001",
        },
        Vector {
            name: "string rle",
            datatype: Datatype::StringAscii,
            filters: vec![compression(Codec::Rle)],
            plain: b"aaaab".to_vec(),
            offsets: Some(vec![0, 2, 4, 5]),
            tile: "010000000000000005000000090000001600000000000000010000000500000009000000200000000101020261610101620100",
        },
        Vector {
            name: "string dictionary",
            datatype: Datatype::StringAscii,
            filters: vec![compression(Codec::Dictionary)],
            plain: b"aaaab".to_vec(),
            offsets: Some(vec![0, 2, 4, 5]),
            tile: "0100000000000000050000000400000020000000000000000100000005000000040000002000000001010600000002616101620000000102",
        },
    ]
}

/// Original length, metadata and data.
pub(super) type ChunkVector = (u32, Vec<u8>, Vec<u8>);

fn chunks(tile: &str) -> Vec<ChunkVector> {
    let tile: Vec<u8> = (0..tile.len() / 2)
        .map(|i| u8::from_str_radix(&tile[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let mut c = Cursor::new(&tile);
    let chunks = (0..c.u64("chunks").unwrap())
        .map(|_| {
            let original = c.u32("original length").unwrap();
            let data = c.u32("filtered length").unwrap();
            let metadata = c.u32("metadata length").unwrap();
            let metadata = c.bytes(metadata.into(), "metadata").unwrap().to_vec();
            (original, metadata, c.bytes(data.into(), "data").unwrap().to_vec())
        })
        .collect();
    c.finish().unwrap();
    chunks
}

impl Vector {
    pub fn codec(&self) -> TileCodec {
        let codec = codec(self.datatype, self.filters.clone());
        match self.offsets {
            Some(_) => codec.embedding_offsets(),
            None => codec,
        }
    }

    pub fn chunk(&self) -> ChunkVector {
        let [chunk] = <[_; 1]>::try_from(chunks(self.tile)).unwrap();
        chunk
    }
}
