//! Undoing filters: one file for each, the chunk decoder that chains them, and generic tiles.
//!
//! A tile is a run of chunks, each filtered on its own ([`chunk`]). A chunk is two byte streams, metadata and data; undoing a filter
//! turns a pair of streams into another, from the last filter of the pipeline to the first ([`codec`]).

pub mod chunk;
pub mod codec;
pub mod generic;
pub use codec::{Decoded, EncryptionKey, TileCodec};
