//! The chain of filters of one kind of tile.
//!
//! For each filter it is known when a file is opened which type the filter was given. Libraries of format 20
//! and later gave each filter the type that the one before it put out; earlier ones gave all the type of the
//! field.
//!
//! For each chunk there are limits: its original length bounds the data before the first filter, and what
//! each filter can add bounds the streams before the next. A length beyond these limits is refused before it
//! is allocated.
//!
//! Example: a chunk of FLOAT64 of 800 bytes through float scale (to integers of 2 bytes) and byteshuffle:
//! byteshuffle saw at most 200 bytes, of INT16 where types are propagated.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/filter/filter_pipeline.cc>

use super::framing::{self, Limits};
use super::key::EncryptionKey;
use super::{aes_256_gcm, bit_width_reduction, checksum, embedded, positive_delta, rle, scale_float, webp};
use crate::error::{Error, Result};
use crate::format::datatype::Datatype;
use crate::format::pipeline::{Codec, Filter, Pipeline};

/// Decodes the chunks of one kind of tile.
#[derive(Debug, Clone)]
pub struct TileCodec {
    /// All filters, in the order of writing.
    pipeline: Pipeline,
    /// The type that the first filter saw.
    datatype: Datatype,
    /// In bytes; never 0.
    cell_size: u64,
    pub(super) fragment_version: u32,
    library_version: u32,
    /// Whether string RLE or a dictionary as the first filter embeds the tile's offsets in its data.
    pub(super) embeds_offsets: bool,
    /// The most bytes of a stream between two filters.
    most: u64,
    /// The key, where one was given.
    pub(super) key: Option<EncryptionKey>,
    /// The filters that do something, in the order of writing.
    pub(super) stages: Vec<Stage>,
}

/// A filter that does something.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub filter: Filter,
    /// Its place in the pipeline, from 0.
    pub index: usize,
    /// The type that it saw.
    pub datatype: Datatype,
    /// Whether it is string RLE or a dictionary, with embedded offsets.
    pub strings: bool,
}

impl Stage {
    /// Whether undoing it changes the data, rather than only checks them.
    pub fn rewrites(&self) -> bool {
        !matches!(self.filter, Filter::ChecksumMd5 | Filter::ChecksumSha256)
    }
}

/// From this format version of the library on, a filter has the type that the schema gives its pipeline,
/// changed by the filters before it. Older libraries gave each filter the type of the tile.
pub const TYPED_FILTERS: u32 = 20;

/// The limit for a chunk's streams anywhere in a pipeline: this many times their original length, and
/// [`FLOOR`] more. Real pipelines stay far below.
const FACTOR: u64 = 64;
const FLOOR: u64 = 1 << 20;

impl TileCodec {
    /// For tiles of cells of `cell_size` bytes (never 0), as the format prescribes it for their kind.
    /// `datatype` is the type that the first filter saw. `fragment_version` is the format version of the
    /// fragment, or of the generic tile; `library_version` is that of the library which wrote it.
    pub fn new(
        pipeline: Pipeline,
        datatype: Datatype,
        cell_size: u64,
        fragment_version: u32,
        library_version: u32,
    ) -> Self {
        TileCodec {
            pipeline,
            datatype,
            cell_size,
            fragment_version,
            library_version,
            embeds_offsets: false,
            most: u64::MAX,
            key: None,
            stages: Vec::new(),
        }
        .planned()
    }

    /// The same with a key for the AES filters of the pipeline.
    #[must_use]
    pub fn with_key(mut self, key: Option<EncryptionKey>) -> Self {
        self.key = key;
        self
    }

    /// The same with at most `most` bytes in a stream between two filters. Without, a stream may have many
    /// times the bytes of its chunk.
    #[must_use]
    pub fn bounded(mut self, most: u64) -> Self {
        self.most = most;
        self
    }

    /// The same with AES-256-GCM as the last filter, and its key where there is one. Schemas leave this
    /// filter out for the data tiles of encrypted arrays.
    #[must_use]
    pub fn encrypted_with(mut self, key: Option<EncryptionKey>) -> Self {
        if self.pipeline.filters.last() != Some(&Filter::Aes256Gcm) {
            self.pipeline.filters.push(Filter::Aes256Gcm);
        }
        self.planned().with_key(key)
    }

    /// The same for tiles whose offsets the first filter embeds in their data: decoding rebuilds them.
    #[must_use]
    pub fn embedding_offsets(mut self) -> Self {
        self.embeds_offsets = true;
        self.planned()
    }

    fn planned(mut self) -> Self {
        let mut next_datatype = self.datatype;
        let mut stages = Vec::with_capacity(self.pipeline.filters.len());
        for (index, filter) in self.pipeline.filters.iter().enumerate() {
            let datatype = next_datatype;
            if self.library_version >= TYPED_FILTERS {
                next_datatype = output_type(filter, datatype);
            }
            let idle = match filter {
                Filter::Noop => true,
                Filter::BitWidthReduction { .. } => {
                    bit_width_reduction::integers(datatype, self.fragment_version).is_none()
                }
                Filter::PositiveDelta { .. } => !positive_delta::applies(datatype, self.fragment_version),
                _ => false,
            };
            let is_strings = index == 0
                && self.embeds_offsets
                && matches!(
                    filter,
                    Filter::Compression {
                        codec: Codec::Rle | Codec::Dictionary,
                        ..
                    }
                );
            if !idle {
                stages.push(Stage {
                    filter: filter.clone(),
                    index,
                    datatype,
                    strings: is_strings,
                });
            }
        }
        self.stages = stages;
        self
    }

    /// All filters, in the order of writing.
    #[cfg(any(test, feature = "internals"))]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The type that the first filter saw.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Bytes of a cell; never 0.
    pub fn cell_size(&self) -> u64 {
        self.cell_size
    }

    /// Whether the tile's offsets are embedded in its data.
    pub fn embeds_offsets(&self) -> bool {
        self.embeds_offsets
    }

    /// Whether decoded bytes are the stored ones and there is nothing to check.
    pub fn is_identity(&self) -> bool {
        !self.embeds_offsets && self.stages.is_empty()
    }

    /// For each stage, the most bytes that the streams before it can have, and after the last, for a chunk of
    /// `original_length` bytes of a tile of `cells` cells.
    pub(super) fn limits(&self, original_length: u32, cells: Option<u64>) -> (Vec<Limits>, Limits) {
        let original = u64::from(original_length);
        let strings = match self.embeds_offsets {
            true => embedded::string_bound(original, cells),
            false => 0,
        };
        let most = original
            .saturating_mul(FACTOR)
            .saturating_add(strings.saturating_mul(8))
            .saturating_add(FLOOR)
            .min(self.most);
        let mut next = Limits {
            metadata: 0,
            data: original,
        };
        let limits = self.stages.iter().map(|stage| {
            let before = next;
            let after = match stage.strings {
                true => embedded::bound(original, strings),
                false => self.bound(stage, before),
            };
            next = Limits {
                metadata: after.metadata.min(most),
                data: after.data.min(most),
            };
            before
        });
        (limits.collect(), next)
    }

    /// `LimitExceeded` if a chunk of `original_length` bytes cannot take so many bytes of metadata and data
    /// as it is stored.
    pub(super) fn check_stored(&self, original_length: u32, metadata: u32, data: u32) -> Result<()> {
        let most = self.limits(original_length, None).1;
        if u64::from(metadata) > most.metadata || u64::from(data) > most.data {
            return Err(Error::limit(format!(
                "{metadata} bytes of metadata and {data} of data, but {} and {} at most are possible",
                most.metadata, most.data
            )));
        }
        Ok(())
    }

    /// The most bytes that the streams after `stage` can have.
    fn bound(&self, stage: &Stage, before: Limits) -> Limits {
        match stage.filter {
            Filter::Noop => before,
            // Another error tells of it.
            Filter::Unknown { .. } => Limits {
                metadata: u64::MAX,
                data: u64::MAX,
            },
            Filter::Compression {
                codec: Codec::Rle, ..
            } => rle::bound(before, self.cell_size),
            Filter::Compression { .. } => framing::bound(before),
            Filter::BitWidthReduction { max_window_size } => {
                bit_width_reduction::bound(before, stage.datatype.size(), max_window_size)
            }
            Filter::PositiveDelta { max_window_size } => {
                positive_delta::bound(before, stage.datatype.size(), max_window_size)
            }
            Filter::Bitshuffle
            | Filter::Byteshuffle
            | Filter::Xor
            | Filter::ChecksumMd5
            | Filter::ChecksumSha256 => checksum::bound(before),
            Filter::Aes256Gcm => aes_256_gcm::bound(before),
            Filter::ScaleFloat { byte_width, .. } => {
                scale_float::bound(before, stage.datatype.size(), byte_width)
            }
            Filter::Webp { .. } => webp::bound(before),
        }
    }

    /// Bytes of memory that decoding a chunk of `original_length` bytes, stored in `stored` bytes, of a tile
    /// of `cells` cells takes, including the result: if no filter makes its input longer, and at the most.
    /// For ordinary chunks both are the result alone: other memory is reused.
    pub fn working_memory(&self, original_length: u32, stored: u64, cells: u64) -> (u64, u64) {
        /// Chunks are seldom larger.
        const ORDINARY: u64 = 1 << 20;
        let original = u64::from(original_length);
        if original.max(stored) <= ORDINARY {
            return (original, original);
        }
        // The result, and the streams between filters.
        let streams = self.pipeline.filters.len().clamp(1, 3) as u64;
        let usual = original.saturating_mul(streams).saturating_add(stored);
        let (limits, _) = self.limits(original_length, Some(cells));
        let rewriting = self
            .stages
            .iter()
            .zip(limits)
            .filter(|(stage, _)| stage.rewrites());
        let between = rewriting
            .skip(1)
            .map(|(_, limits)| limits.data.saturating_add(limits.metadata));
        let mut between: Vec<u64> = between.collect();
        between.sort_unstable();
        // Two at a time.
        let result = original.saturating_add(stored);
        let most = between
            .iter()
            .rev()
            .take(2)
            .fold(result, |sum, stream| sum.saturating_add(*stream));
        (usual, most.max(usual))
    }
}

/// The type that `filter` puts out for values of `datatype`.
fn output_type(filter: &Filter, datatype: Datatype) -> Datatype {
    match filter {
        Filter::ScaleFloat {
            byte_width: width, ..
        } => signed(*width).unwrap_or(datatype),
        Filter::Xor => signed(datatype.size() as u64).unwrap_or(datatype),
        Filter::Compression {
            codec: Codec::DoubleDelta | Codec::Delta,
            reinterpret,
            ..
        } => reinterpretation(*reinterpret).unwrap_or(datatype),
        Filter::Aes256Gcm => Datatype::Blob,
        _ => datatype,
    }
}

/// The type that the option names; ANY means none.
pub(super) fn reinterpretation(option: Option<Datatype>) -> Option<Datatype> {
    option.filter(|datatype| *datatype != Datatype::Any)
}

/// The signed integer of this many bytes.
fn signed(width: u64) -> Option<Datatype> {
    match width {
        1 => Some(Datatype::Int8),
        2 => Some(Datatype::Int16),
        4 => Some(Datatype::Int32),
        8 => Some(Datatype::Int64),
        _ => None,
    }
}

/// What a chunk decodes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Exactly the chunk's original length.
    pub data: Vec<u8>,
    /// With [`TileCodec::embedding_offsets`]: the start of each cell in `data`, one entry a cell.
    pub offsets: Option<Vec<u64>>,
}
