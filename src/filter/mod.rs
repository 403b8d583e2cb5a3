//! Undoing filters: one file for each filter, the chunk decoder that chains them, and generic tiles.
//!
//! A tile is a sequence of chunks, each filtered separately ([`chunk`]). A chunk is two byte streams,
//! metadata and data. Undoing a filter turns a pair of streams into another, from the last filter of the
//! pipeline to the first (`codec`).
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filter_pipeline.md>

pub mod chunk;
pub mod generic;

mod aes_256_gcm;
mod bit_width_reduction;
mod bitshuffle;
mod byteshuffle;
mod bzip2;
mod checksum;
mod codec;
mod delta;
mod dictionary;
mod double_delta;
mod element;
mod embedded;
mod framing;
mod gzip;
mod key;
mod lz4;
mod positive_delta;
mod rle;
mod scale_float;
mod stream;
mod string_rle;
#[cfg(test)]
mod tests;
pub mod tile_codec;
mod transpose;
#[cfg(test)]
mod vectors;
mod webp;
mod xor;
mod zstd;

pub use key::EncryptionKey;
pub use tile_codec::{TYPED_FILTERS, TileCodec};
