//! Generic tiles: the self-describing tiles that hold everything but data.
//!
//! | offset | field | type |
//! |---|---|---|
//! | 0 | format version of the library that wrote the tile | u32 |
//! | 4 | stored bytes P behind the pipeline | u64 |
//! | 12 | unfiltered bytes | u64 |
//! | 20 | datatype | u8 |
//! | 21 | cell size | u64 |
//! | 29 | encryption type | u8 |
//! | 30 | bytes L of the pipeline | u32 |
//! | 34 | filter pipeline | L |
//! | 34 + L | chunks | P |
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/generic_tile.md>

use super::chunk::ChunkIndex;
use super::key::{EncryptionKey, key_required};
use super::tile_codec::TileCodec;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::datatype::Datatype;
use crate::format::enums::Encryption;
use crate::format::pipeline::Pipeline;
use crate::storage::Blob;
use std::ops::Range;

/// Bytes before the pipeline.
const HEADER: u64 = 34;

/// The most that a pipeline may take: libtiledb writes 18 to 23 bytes.
const MAX_PIPELINE: u32 = 64 * 1024;

/// The most bytes of a body that is decoded whole, unless the caller says otherwise. Bodies that can
/// legitimately be larger are read chunk by chunk.
pub const MAX_WHOLE: u64 = 16 << 20;

/// The most bytes of a stream between two filters, and of a chunk as it is stored: twice the largest body
/// that is decoded whole, of which libtiledb makes chunks of 64 KiB.
const MAX_STREAM: u64 = 128 << 20;

/// The header of a generic tile, and what it takes to decode it.
#[derive(Debug, Clone)]
pub struct GenericTile {
    /// Format version of the library that wrote it; says which filter semantics hold for the data written
    /// with it.
    pub version: u32,
    /// First byte of the chunks in the file.
    pub data_start: u64,
    /// Behind the last byte of the chunks, and of the tile.
    pub data_end: u64,
    /// Unfiltered bytes.
    pub size: u64,
    /// How it is encrypted.
    pub encryption: Encryption,
    /// Decodes its chunks.
    pub codec: TileCodec,
}

impl GenericTile {
    /// Reads the header of the tile at `offset`. `key` is kept for decoding: the header itself is not
    /// encrypted.
    pub fn read_header(blob: &dyn Blob, offset: u64, key: Option<&EncryptionKey>) -> Result<GenericTile> {
        Self::parse_header(blob, offset, key).map_err(|e| {
            forget(blob, offset..blob.len(), &e);
            e.in_part("generic tile header").in_file(blob.display())
        })
    }

    fn parse_header(blob: &dyn Blob, offset: u64, key: Option<&EncryptionKey>) -> Result<GenericTile> {
        let header = blob.read(offset, HEADER)?;
        let mut c = Cursor::with_base(&header, offset);
        let version = c.u32("version")?;
        let stored = c.u64("persisted size")?;
        let size = c.u64("tile size")?;
        let datatype = Datatype::from_u8(c.u8("datatype")?).map_err(|e| e.at(offset + 20))?;
        let cell_size = c.u64("cell size")?;
        let encryption = Encryption::from_u8(c.u8("encryption type")?).map_err(|e| e.at(offset + 29))?;
        let pipeline_size = c.u32("pipeline size")?;
        if pipeline_size > MAX_PIPELINE {
            return Err(Error::limit(format!(
                "the pipeline takes {pipeline_size} bytes, more than the {MAX_PIPELINE} allowed"
            ))
            .at(offset + 30));
        }
        if cell_size == 0 {
            return Err(Error::corrupt("the cell size is 0").at(offset + 21));
        }
        let pipeline_start = offset + HEADER;
        let bytes = blob.read(pipeline_start, u64::from(pipeline_size))?;
        let mut c = Cursor::with_base(&bytes, pipeline_start);
        let pipeline = Pipeline::parse(&mut c)?;
        c.finish()?;
        let data_start = pipeline_start + u64::from(pipeline_size);
        let data_end = data_start
            .checked_add(stored)
            .filter(|&end| end <= blob.len())
            .ok_or_else(|| {
                Error::truncated(format!(
                    "the chunks take {stored} bytes, but only {} are left in the file",
                    blob.len() - data_start
                ))
                .at(offset + 4)
            })?;
        Ok(GenericTile {
            version,
            data_start,
            data_end,
            size,
            encryption,
            codec: TileCodec::new(pipeline, datatype, cell_size, version, version)
                .with_key(key.cloned())
                .bounded(MAX_STREAM),
        })
    }

    /// `KeyRequired` when it is encrypted and there is no key.
    pub fn check_key(&self) -> Result<()> {
        if self.encryption != Encryption::None && self.codec.key.is_none() {
            return Err(key_required());
        }
        Ok(())
    }

    /// Finds its chunks.
    pub fn index(&self, blob: &dyn Blob) -> Result<ChunkIndex> {
        self.check_key().map_err(|e| e.in_file(blob.display()))?;
        ChunkIndex::read(blob, self.data_start, self.data_end, self.size)
    }

    /// Decodes chunk `chunk` of `index`.
    pub fn decode_chunk(&self, blob: &dyn Blob, index: &ChunkIndex, chunk: usize) -> Result<Vec<u8>> {
        let position = &index.chunks()[chunk];
        let (metadata_length, data_length) = (position.metadata_length, position.filtered_length);
        let decode = || {
            self.codec
                .check_stored(position.original_length, metadata_length, data_length)?;
            let stored = blob.read(position.stored_offset, position.stored_length())?;
            let (metadata, data) = stored.split_at(metadata_length as usize);
            self.codec.decode_chunk(position.original_length, metadata, data)
        };
        let decoded = decode().map_err(|e| {
            e.at(position.stored_offset)
                .in_part("generic tile")
                .in_file(blob.display())
        })?;
        Ok(decoded.data)
    }

    /// Decodes the whole body. `LimitExceeded` where it has more than [`MAX_WHOLE`] bytes.
    pub fn decode(&self, blob: &dyn Blob) -> Result<Vec<u8>> {
        self.decode_within(blob, MAX_WHOLE)
    }

    /// The same with another limit.
    pub fn decode_within(&self, blob: &dyn Blob, most: u64) -> Result<Vec<u8>> {
        if self.size > most {
            return Err(Error::limit(format!(
                "the generic tile has {} bytes, more than the {most} allowed",
                self.size
            ))
            .at(self.data_start)
            .in_file(blob.display()));
        }
        let decode = || {
            let index = self.index(blob)?;
            let mut out = Vec::new();
            for chunk in 0..index.chunks().len() {
                out.extend_from_slice(&self.decode_chunk(blob, &index, chunk)?);
            }
            Ok(out)
        };
        decode().inspect_err(|error| forget(blob, self.data_start..self.data_end, error))
    }
}

/// Keeps nothing of what was read of this range if it makes no sense, as `error` tells.
fn forget(blob: &dyn Blob, range: Range<u64>, error: &Error) {
    if !error.may_pass() {
        blob.forget(range);
    }
}

/// Decodes the generic tile at `offset` whole, which has at most [`MAX_WHOLE`] bytes.
pub fn read_generic_tile(
    blob: &dyn Blob,
    offset: u64,
    key: Option<&EncryptionKey>,
) -> Result<(GenericTile, Vec<u8>)> {
    read_generic_tile_within(blob, offset, key, MAX_WHOLE)
}

/// The same for a tile of at most `most` bytes.
pub fn read_generic_tile_within(
    blob: &dyn Blob,
    offset: u64,
    key: Option<&EncryptionKey>,
    most: u64,
) -> Result<(GenericTile, Vec<u8>)> {
    let tile = GenericTile::read_header(blob, offset, key)?;
    let body = tile.decode_within(blob, most)?;
    Ok((tile, body))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::testing::Bytes;
    use crate::storage::MemoryBlob;

    /// A generic tile of one chunk, which is filtered by GZIP, of `original` bytes stored as `data`.
    pub(crate) fn gzip_tile(original: u32, data: &[u8]) -> Vec<u8> {
        let pipeline = Bytes::default().pipeline(&[(1, &[1, 6, 0, 0, 0])]);
        let header = Bytes::default()
            .u32(22)
            .u64(20 + data.len() as u64)
            .u64(original.into());
        let header = header.u8(4).u64(1).u8(0).count32(pipeline.bytes.len());
        let chunk = Bytes::default()
            .u64(1)
            .u32(original)
            .count32(data.len())
            .u32(0)
            .raw(data);
        [header.bytes, pipeline.bytes, chunk.bytes].concat()
    }

    #[test]
    fn a_chunk_that_is_stored_in_too_many_bytes_is_not_read() {
        let read = |length: usize| {
            let bytes = gzip_tile(4, &vec![0; length]);
            read_generic_tile(&MemoryBlob::new(bytes, "memory"), 0, None)
                .unwrap_err()
                .kind()
        };
        assert_eq!(read(4), ErrorKind::Truncated);
        assert_eq!(read(64 << 10), ErrorKind::LimitExceeded);
    }
}
