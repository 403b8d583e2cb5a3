//! The chain of filters of one kind of tile.

use super::key::EncryptionKey;
use crate::format::datatype::Datatype;
use crate::format::pipeline::{Filter, Pipeline};

/// Everything that decoding a chunk of one kind of tile needs: the pipeline, and what its filters were told
/// about the data.
#[derive(Debug, Clone)]
pub struct TileCodec {
    /// All filters, in the order of writing. For the data tiles of an encrypted array
    /// [`TileCodec::encrypted_with`] has appended the AES filter that schemas leave out.
    pub pipeline: Pipeline,
    /// The type that the first filter saw.
    pub datatype: Datatype,
    /// The cell size that the format prescribes for this kind of tile, in bytes; never 0.
    pub cell_size: u64,
    /// Format version of the fragment, or of the generic tile.
    pub fragment_version: u32,
    /// Whether each filter saw the type that the one before it put out (libraries of format 20 and later), or
    /// all saw `datatype`.
    pub propagates_types: bool,
    /// Whether the tile's offsets are embedded in its data by string RLE or dictionary encoding as the first
    /// filter.
    pub embeds_offsets: bool,
    /// The key, where the pipeline has an AES filter.
    pub key: Option<EncryptionKey>,
}

/// What a chunk decodes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Exactly the chunk's original length.
    pub data: Vec<u8>,
    /// With [`TileCodec::embeds_offsets`]: the start of each cell in `data`, one entry a cell.
    pub offsets: Option<Vec<u64>>,
}

impl TileCodec {
    /// Bytes of memory that decoding a chunk of `original` bytes, stored in `stored` bytes, takes, including
    /// the result. For ordinary chunks it is the result alone: other memory is reused.
    pub fn working_memory(&self, original: u64, stored: u64) -> u64 {
        /// Chunks are seldom larger.
        const ORDINARY: u64 = 1 << 20;
        if original.max(stored) <= ORDINARY {
            return original;
        }
        // The result, and the streams between filters.
        let streams = self.pipeline.filters.len().clamp(1, 3) as u64;
        original.saturating_mul(streams).saturating_add(stored)
    }

    /// The same with AES-256-GCM as the last filter, and its key where there is one.
    #[must_use]
    pub fn encrypted_with(mut self, key: Option<EncryptionKey>) -> Self {
        if self.pipeline.filters.last() != Some(&Filter::Aes256Gcm) {
            self.pipeline.filters.push(Filter::Aes256Gcm);
        }
        self.key = key;
        self
    }
}
