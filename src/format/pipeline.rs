//! Filter pipelines as a schema or a generic tile describes them.

use super::datatype::Datatype;
use super::enums::WebpFormat;
use crate::cursor::Cursor;
use crate::error::Result;

/// A list of filters in the order in which the writer applied them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pipeline {
    /// The writer's limit on the bytes of a chunk; no reader needs it.
    pub max_chunk_size: u32,
    /// First applied first; readers undo them from the last.
    pub filters: Vec<Filter>,
}

/// The codecs that share the compressors' framing and their options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// zlib streams (RFC 1950).
    Gzip,
    /// Zstandard frames.
    Zstd,
    /// LZ4 raw blocks.
    Lz4,
    /// Run lengths.
    Rle,
    /// bzip2 streams.
    Bzip2,
    /// Differences of differences, bit-packed.
    DoubleDelta,
    /// String dictionary.
    Dictionary,
    /// Differences.
    Delta,
}

/// One filter with its options.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// Does nothing (number 0, or a compressor of type none).
    Noop,
    /// A compressor.
    Compression {
        /// Which.
        codec: Codec,
        /// The writer's level; -1 is the codec's default.
        level: i32,
        /// For `DoubleDelta` and `Delta`, from format version 20 and 19: values are read as this type instead.
        reinterpret: Option<Datatype>,
    },
    /// Integers stored in fewer bits, by windows.
    BitWidthReduction {
        /// The writer's window, in bytes.
        max_window_size: u32,
    },
    /// Bits transposed.
    Bitshuffle,
    /// Bytes transposed.
    Byteshuffle,
    /// Non-negative differences, by windows.
    PositiveDelta {
        /// The writer's window, in bytes.
        max_window_size: u32,
    },
    /// AES-256-GCM; in the pipelines of generic tiles only.
    Aes256Gcm,
    /// MD5 of data and metadata.
    ChecksumMd5,
    /// SHA-256 of data and metadata.
    ChecksumSha256,
    /// Floats stored as scaled integers.
    ScaleFloat {
        /// Multiplied with the stored integer.
        scale: f64,
        /// Added thereafter.
        offset: f64,
        /// Bytes of a stored integer: 1, 2, 4 or 8.
        byte_width: u64,
    },
    /// Each value exclusive-or its predecessor.
    Xor,
    /// WebP images.
    Webp {
        /// 0 to 100.
        quality: f32,
        /// Pixel layout.
        format: WebpFormat,
        /// Whether encoding was lossless.
        lossless: bool,
        /// Rows of a tile.
        y_extent: u16,
        /// Bytes of a row of a tile.
        x_extent: u16,
    },
    /// A number that no filter has, kept so that everything that does not use it still reads.
    Unknown {
        /// The stored number.
        id: u8,
        /// The stored options.
        options: Vec<u8>,
    },
}

impl Pipeline {
    /// Reads a stored pipeline (max chunk size u32, count u32, then for each filter its number u8, the length of its options u32
    /// and the options). Advances by the option length whatever the options hold.
    pub fn parse(c: &mut Cursor<'_>) -> Result<Pipeline> {
        let _ = c;
        unimplemented!("format helper")
    }
}

impl Filter {
    /// The string that TileDB's C API prints for the filter's type, e.g. `BIT_WIDTH_REDUCTION`.
    pub fn name(&self) -> &'static str {
        unimplemented!("format helper")
    }
}
