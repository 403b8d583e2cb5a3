//! The chain of filters of one kind of tile, and the decoding of one chunk through it.

use crate::error::Result;
use crate::format::datatype::Datatype;
use crate::format::pipeline::Pipeline;
use std::sync::Arc;

/// A 32-byte AES-256 key. Shows nothing of itself when printed.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionKey(Arc<[u8; 32]>);

impl EncryptionKey {
    /// Wraps the raw key.
    pub fn new(key: [u8; 32]) -> Self {
        EncryptionKey(Arc::new(key))
    }

    /// The raw key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EncryptionKey(…)")
    }
}

/// Everything that decoding a chunk of one kind of tile needs: the pipeline, and what its filters were told about the data.
#[derive(Debug, Clone)]
pub struct TileCodec {
    /// All filters, in the order of writing. For the data tiles of an encrypted array [`TileCodec::encrypted_with`] has appended the AES filter that schemas leave out.
    pub pipeline: Pipeline,
    /// The type that the first filter saw.
    pub datatype: Datatype,
    /// Bytes of a cell of the tile (FORMAT-NOTES 4.4); never 0.
    pub cell_size: u64,
    /// Format version of the fragment, or of the generic tile.
    pub fragment_version: u32,
    /// Whether each filter saw the type that the one before it put out (libraries of format 20 and later), or all saw `datatype`.
    pub propagates_types: bool,
    /// Whether the tile's offsets are embedded in its data by string RLE or dictionary encoding as the first filter.
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
    /// Whether decoded bytes are the stored ones.
    pub fn is_identity(&self) -> bool {
        unimplemented!("filter helper")
    }

    /// The same with AES-256-GCM as the last filter, and its key where there is one.
    #[must_use]
    pub fn encrypted_with(self, key: Option<EncryptionKey>) -> Self {
        let _ = key;
        unimplemented!("filter helper")
    }

    /// Decodes one chunk into exactly `original_length` bytes. Allocates in proportion to it, whatever the chunk declares.
    pub fn decode_chunk(&self, original_length: u32, metadata: &[u8], data: &[u8]) -> Result<Decoded> {
        let _ = (original_length, metadata, data);
        unimplemented!("filter helper")
    }
}
