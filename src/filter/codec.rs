//! The decoding of one chunk through the chain of filters of its tile.
//!
//! A chunk is two streams, metadata and data. Undoing the filters from the last to the first, some take what
//! they stored from the front of the metadata stream and leave the rest to the filters before them; the
//! compressors and the encryption consume all of it and bring back the stream as it was before them (see
//! `framing`). After the first filter nothing must be left.
//!
//! Example: through byteshuffle and then MD5, the metadata stream holds the digests first, then the part
//! lengths of byteshuffle, which the digests cover as well.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filter_pipeline.md>

use super::framing::{self, Limits};
use super::key::key_required;
use super::tile_codec::{Decoded, Stage, TileCodec, reinterpretation};
use super::{
    aes_256_gcm, bit_width_reduction, bitshuffle, byteshuffle, bzip2, checksum, delta, dictionary,
    double_delta, element, embedded, gzip, lz4, positive_delta, rle, scale_float, string_rle, webp, xor,
    zstd,
};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::pipeline::{Codec, Filter};
use std::cell::Cell;
use std::mem;

impl TileCodec {
    /// Decodes one chunk into exactly `original_length` bytes. Allocates in proportion to it, whatever the
    /// chunk declares.
    ///
    /// With [`TileCodec::embedding_offsets`] prefer [`TileCodec::decode_chunk_of_cells`]: here the offsets
    /// alone may take up 128 MiB and 8 bytes for each byte of the original length.
    ///
    /// Errors: `Truncated`, `Corrupt` and `LimitExceeded` for a damaged chunk, `ChecksumMismatch`,
    /// `KeyRequired`, `WrongKey`, and `Unsupported` for an unknown filter.
    pub fn decode_chunk(&self, original_length: u32, metadata: &[u8], data: &[u8]) -> Result<Decoded> {
        self.decode(original_length, None, metadata, data)
    }

    /// The same for the only chunk of a tile with embedded offsets and `cells` cells: another number of
    /// strings is an error before anything is allocated for them.
    pub fn decode_chunk_of_cells(
        &self,
        original_length: u32,
        cells: u64,
        metadata: &[u8],
        data: &[u8],
    ) -> Result<Decoded> {
        self.decode(original_length, Some(cells), metadata, data)
    }

    fn decode(
        &self,
        original_length: u32,
        cells: Option<u64>,
        metadata: &[u8],
        data: &[u8],
    ) -> Result<Decoded> {
        for stage in &self.stages {
            if let Filter::Unknown { id, .. } = stage.filter {
                return Err(Error::unsupported(format!("unknown filter type {id}")));
            }
        }
        if self.embeds_offsets && !self.stages.first().is_some_and(|stage| stage.strings) {
            return Err(Error::corrupt(
                "the offsets should be embedded in the values, but the first filter embeds none",
            ));
        }
        let mut chunk = HalfDecoded {
            codec: self,
            cells,
            scratch: SCRATCH.take(),
            stored: (metadata, data),
            metadata: StreamPlace::Stored,
            consumed: 0,
            data: StreamPlace::Stored,
            result: Vec::new(),
            offsets: Vec::new(),
        };
        let outcome = chunk.undo_all(original_length);
        chunk.scratch.trim();
        SCRATCH.set(chunk.scratch);
        outcome?;
        Ok(Decoded {
            data: chunk.result,
            offsets: self.embeds_offsets.then_some(chunk.offsets),
        })
    }
}

/// Where a stream is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamPlace {
    /// In the chunk as stored.
    Stored,
    /// In the scratch space.
    Scratch,
    /// In the result, where they are once the first filter that changes data is undone.
    Result,
}

/// Room for the streams between two filters, kept by each thread from chunk to chunk.
#[derive(Default)]
struct Scratch {
    metadata: Vec<u8>,
    next_metadata: Vec<u8>,
    data: Vec<u8>,
    next_data: Vec<u8>,
}

impl Scratch {
    /// What a vector may keep; chunks are seldom larger.
    const KEPT: usize = 1 << 20;

    fn trim(&mut self) {
        for vector in [
            &mut self.metadata,
            &mut self.next_metadata,
            &mut self.data,
            &mut self.next_data,
        ] {
            vector.clear();
            if vector.capacity() > Self::KEPT {
                *vector = Vec::new();
            }
        }
    }
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::new(Scratch::default());
}

/// A chunk half decoded.
struct HalfDecoded<'a> {
    codec: &'a TileCodec,
    cells: Option<u64>,
    scratch: Scratch,
    /// Metadata and data as stored.
    stored: (&'a [u8], &'a [u8]),
    /// Where the metadata stream is, and how much of it has been consumed from the front.
    metadata: StreamPlace,
    consumed: usize,
    data: StreamPlace,
    result: Vec<u8>,
    offsets: Vec<u64>,
}

impl HalfDecoded<'_> {
    fn undo_all(&mut self, original_length: u32) -> Result<()> {
        let stages = &self.codec.stages;
        let (limits, _) = self.codec.limits(original_length, self.cells);
        // Undone last, this stage writes straight to the result.
        let last = stages
            .iter()
            .find(|stage| stage.rewrites())
            .map(|stage| stage.index);
        for (stage, before) in stages.iter().zip(limits).rev() {
            let is_last = last == Some(stage.index);
            self.undo(stage, before, is_last).map_err(|e| {
                let name = label(&stage.filter);
                e.in_part(format_args!("filter {} ({name})", stage.index + 1))
            })?;
        }
        if last.is_none() {
            let stored = self.stored.1;
            element::reserve(&mut self.result, stored.len())?;
            self.result.extend_from_slice(stored);
        }
        let left = self.remaining_metadata().len();
        if left != 0 {
            return Err(Error::corrupt(format!(
                "{left} bytes of the chunk's metadata belong to no filter"
            )));
        }
        if self.result.len() as u64 != u64::from(original_length) {
            return Err(Error::corrupt(format!(
                "the chunk should decode to {original_length} bytes, but decodes to {}",
                self.result.len()
            )));
        }
        Ok(())
    }

    fn remaining_metadata(&self) -> &[u8] {
        let stream = match self.metadata {
            StreamPlace::Stored => self.stored.0,
            _ => &self.scratch.metadata,
        };
        &stream[self.consumed..]
    }

    /// Undoes one filter, into the result if `is_last`, else into the scratch space. The streams before it
    /// have at most `before` bytes.
    fn undo(&mut self, stage: &Stage, before: Limits, is_last: bool) -> Result<()> {
        let mut out = match is_last {
            true => mem::take(&mut self.result),
            false => mem::take(&mut self.scratch.next_data),
        };
        let mut metadata_out = mem::take(&mut self.scratch.next_metadata);
        let mut offsets = mem::take(&mut self.offsets);
        out.clear();
        metadata_out.clear();

        let input = match self.data {
            StreamPlace::Stored => self.stored.1,
            StreamPlace::Scratch => &self.scratch.data,
            StreamPlace::Result => &self.result,
        };
        let mut metadata = Cursor::new(self.remaining_metadata());
        let stored_metadata = metadata.remaining();
        let outcome = undo_stage(
            Context {
                codec: self.codec,
                cells: self.cells,
                stage,
                before,
            },
            &mut metadata,
            input,
            &mut metadata_out,
            &mut out,
            &mut offsets,
        );
        let consumed = stored_metadata - metadata.remaining();

        self.offsets = offsets;
        match &outcome {
            Ok(Metadata::Absorbed) => {
                self.metadata = StreamPlace::Scratch;
                self.consumed = 0;
                self.scratch.next_metadata = mem::replace(&mut self.scratch.metadata, metadata_out);
            }
            _ => {
                self.consumed += consumed;
                self.scratch.next_metadata = metadata_out;
            }
        }
        if is_last {
            self.result = out;
            self.data = StreamPlace::Result;
        } else if stage.rewrites() {
            self.scratch.next_data = mem::replace(&mut self.scratch.data, out);
            self.data = StreamPlace::Scratch;
        } else {
            self.scratch.next_data = out;
        }
        outcome.map(|_| ())
    }
}

/// What a filter did to the metadata stream.
enum Metadata {
    /// It consumed its own from the front.
    Prefix,
    /// It consumed all and brought another back.
    Absorbed,
}

#[derive(Clone, Copy)]
struct Context<'a> {
    codec: &'a TileCodec,
    cells: Option<u64>,
    stage: &'a Stage,
    before: Limits,
}

/// Undoes one filter: reads `metadata` and `data`, writes to the empty vectors.
fn undo_stage(
    context: Context<'_>,
    metadata: &mut Cursor<'_>,
    data: &[u8],
    metadata_out: &mut Vec<u8>,
    out: &mut Vec<u8>,
    offsets: &mut Vec<u64>,
) -> Result<Metadata> {
    let Context {
        codec,
        cells,
        stage,
        before,
    } = context;
    let limit = before.data;
    let width = stage.datatype.size();
    if stage.strings {
        let header = embedded::header(metadata, data.len(), limit, cells)?;
        match stage.filter {
            Filter::Compression {
                codec: Codec::Rle, ..
            } => string_rle::undo(&header, data, out, offsets)?,
            Filter::Compression {
                codec: Codec::Dictionary,
                ..
            } => dictionary::undo(&header, metadata, data, out, offsets)?,
            _ => return Err(Error::corrupt("this filter embeds no offsets")),
        }
        return Ok(Metadata::Prefix);
    }
    match &stage.filter {
        Filter::Compression {
            codec: compressor,
            reinterpret,
            ..
        } => {
            let datatype = reinterpretation(*reinterpret).unwrap_or(stage.datatype);
            let cell_size = codec.cell_size() as usize;
            let all = metadata.rest();
            framing::undo(all, data, 0, before, metadata_out, out, |part, out| {
                let (stored, original) = (part.stored, part.original);
                match compressor {
                    Codec::Gzip => gzip::decompress(stored, original, out),
                    Codec::Zstd => zstd::decompress(stored, original, out),
                    Codec::Lz4 => lz4::decompress(stored, original, out),
                    Codec::Bzip2 => bzip2::decompress(stored, original, out),
                    Codec::Rle => rle::decompress(stored, cell_size, original, out),
                    Codec::DoubleDelta => double_delta::decompress(stored, datatype, original, out),
                    Codec::Delta => delta::decompress(stored, datatype, original, out),
                    Codec::Dictionary => Err(Error::corrupt(
                        "dictionary encoding is for var-sized strings only",
                    )),
                }
            })?;
            return Ok(Metadata::Absorbed);
        }
        Filter::Aes256Gcm => {
            let key = codec.key.as_ref().ok_or_else(key_required)?;
            let all = metadata.rest();
            framing::undo(
                all,
                data,
                aes_256_gcm::EXTRA_SIZE,
                before,
                metadata_out,
                out,
                |part, out| key.cipher().decrypt(&part, out),
            )?;
            return Ok(Metadata::Absorbed);
        }
        Filter::BitWidthReduction { .. } => {
            if let Some(integers) = bit_width_reduction::integers(stage.datatype, codec.fragment_version) {
                bit_width_reduction::undo(metadata, integers, data, limit, out)?;
            }
        }
        Filter::PositiveDelta { .. } => positive_delta::undo(metadata, width, data, out)?,
        Filter::Bitshuffle => bitshuffle::undo(metadata, width, data, out)?,
        Filter::Byteshuffle => byteshuffle::undo(metadata, width, data, out)?,
        Filter::Xor => xor::undo(metadata, width, data, out)?,
        Filter::ChecksumMd5 => checksum::check_md5(metadata, data)?,
        Filter::ChecksumSha256 => checksum::check_sha256(metadata, data)?,
        Filter::ScaleFloat {
            scale,
            offset,
            byte_width,
        } => {
            let options = scale_float::ScaleFloatOptions {
                scale: *scale,
                offset: *offset,
                byte_width: *byte_width,
            };
            scale_float::undo(metadata, options, width, data, limit, out)?;
        }
        Filter::Webp {
            format,
            y_extent,
            x_extent,
            ..
        } => {
            let options = webp::WebpOptions {
                format: *format,
                y_extent: *y_extent,
                x_extent: *x_extent,
            };
            webp::undo(metadata, options, data, limit, out)?;
        }
        Filter::Noop | Filter::Unknown { .. } => {
            return Err(Error::internal("this filter has nothing to undo"));
        }
    }
    Ok(Metadata::Prefix)
}

/// The filter's name in messages.
fn label(filter: &Filter) -> &'static str {
    match filter {
        Filter::Noop => "none",
        Filter::Compression { codec, .. } => match codec {
            Codec::Gzip => "gzip",
            Codec::Zstd => "zstd",
            Codec::Lz4 => "lz4",
            Codec::Rle => "rle",
            Codec::Bzip2 => "bzip2",
            Codec::DoubleDelta => "double delta",
            Codec::Dictionary => "dictionary",
            Codec::Delta => "delta",
        },
        Filter::BitWidthReduction { .. } => "bit width reduction",
        Filter::Bitshuffle => "bitshuffle",
        Filter::Byteshuffle => "byteshuffle",
        Filter::PositiveDelta { .. } => "positive delta",
        Filter::Aes256Gcm => "AES-256-GCM",
        Filter::ChecksumMd5 => "MD5",
        Filter::ChecksumSha256 => "SHA-256",
        Filter::ScaleFloat { .. } => "float scale",
        Filter::Xor => "xor",
        Filter::Webp { .. } => "webp",
        Filter::Unknown { .. } => "unknown",
    }
}
