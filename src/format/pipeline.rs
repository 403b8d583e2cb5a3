//! Filter pipelines, as stored in schemas and generic tiles.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filter_pipeline.md>

use super::datatype::Datatype;
use super::enums::WebpFormat;
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// The most filters of a pipeline.
const MAX_FILTERS: u32 = 128;

/// A list of filters in the order in which the writer applied them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pipeline {
    /// The writer's limit of the bytes of a chunk; no reader needs it.
    pub max_chunk_size: u32,
    /// In the order of writing; readers undo them from the last.
    pub filters: Vec<Filter>,
}

/// The codecs that share the compressors' framing and options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
#[non_exhaustive]
pub enum Filter {
    /// Does nothing (number 0, or a compressor of type none).
    Noop,
    /// A compressor.
    Compression {
        /// The codec.
        codec: Codec,
        /// The writer's level; -1 is the codec's default.
        level: i32,
        /// For `DoubleDelta` from format version 20 on, and `Delta` from 19 on: the type that values are read
        /// as instead.
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
    /// AES-256-GCM; only in the pipelines of generic tiles.
    Aes256Gcm,
    /// MD5 of data and metadata.
    ChecksumMd5,
    /// SHA-256 of data and metadata.
    ChecksumSha256,
    /// Floats stored as scaled integers.
    ScaleFloat {
        /// The factor of the stored integer.
        scale: f64,
        /// Added after scaling.
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
    /// An unknown type, kept so that parts without the filter can be read.
    Unknown {
        /// The stored number.
        id: u8,
        /// The stored options.
        options: Vec<u8>,
    },
}

impl Pipeline {
    /// Whether readers get other values than were written.
    pub fn is_lossy(&self) -> bool {
        // Even lossless WebP loses the colours of transparent pixels.
        let lossy = |filter: &Filter| matches!(filter, Filter::ScaleFloat { .. } | Filter::Webp { .. });
        self.filters.iter().any(lossy)
    }

    /// Reads a stored pipeline (max chunk size u32, count u32, then for each filter its number u8, the length
    /// of its options u32 and the options). Skips the options by their length, whatever they contain.
    ///
    /// An unknown filter, or one with options of an unknown form, becomes [`Filter::Unknown`]. `Corrupt` if a
    /// compressor's options name another compressor, `LimitExceeded` for too many filters.
    pub(crate) fn parse(c: &mut Cursor<'_>) -> Result<Pipeline> {
        let max_chunk_size = c.u32("max_chunk_size")?;
        let count = c.u32("filter_num")?;
        if count > MAX_FILTERS {
            return Err(
                Error::limit(format!("{count} filters are more than the {MAX_FILTERS} allowed"))
                    .at(c.offset())
                    .in_part("`filter_num`"),
            );
        }
        c.check_count(u64::from(count), 5, "filter_num")?;
        let mut filters = Vec::new();
        for i in 0..count {
            filters.push(Filter::parse(c).map_err(|e| e.in_part(format_args!("filter {i}")))?);
        }
        Ok(Pipeline {
            max_chunk_size,
            filters,
        })
    }

    /// Whether there is no filter. A dimension without one uses the pipeline of the coordinates.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Whether there is a general compressor: gzip, Zstandard, LZ4, run lengths, bzip2 or double delta.
    /// Decides how version 1 lays out coordinates.
    pub fn has_compressor(&self) -> bool {
        self.filters.iter().any(|filter| {
            matches!(filter, Filter::Compression { codec, .. } if !matches!(codec, Codec::Dictionary | Codec::Delta))
        })
    }
}

impl Codec {
    /// The codec of a filter's number.
    fn of_filter(id: u8) -> Option<Codec> {
        Some(match id {
            1 => Codec::Gzip,
            2 => Codec::Zstd,
            3 => Codec::Lz4,
            4 => Codec::Rle,
            5 => Codec::Bzip2,
            6 => Codec::DoubleDelta,
            14 => Codec::Dictionary,
            19 => Codec::Delta,
            _ => return None,
        })
    }

    /// The number of the compressor in the filter's options, which may differ from the filter's.
    fn compressor_id(self) -> u8 {
        match self {
            Codec::Gzip => 1,
            Codec::Zstd => 2,
            Codec::Lz4 => 3,
            Codec::Rle => 4,
            Codec::Bzip2 => 5,
            Codec::DoubleDelta => 6,
            Codec::Dictionary => 7,
            Codec::Delta => 8,
        }
    }
}

impl Filter {
    /// The string that TileDB's C API prints for the filter's type, e.g. `BIT_WIDTH_REDUCTION`; `UNKNOWN` for
    /// unknown filters.
    pub fn name(&self) -> &'static str {
        match self {
            Filter::Noop => "NONE",
            Filter::Compression { codec, .. } => match codec {
                Codec::Gzip => "GZIP",
                Codec::Zstd => "ZSTD",
                Codec::Lz4 => "LZ4",
                Codec::Rle => "RLE",
                Codec::Bzip2 => "BZIP2",
                Codec::DoubleDelta => "DOUBLE_DELTA",
                Codec::Dictionary => "DICTIONARY_ENCODING",
                Codec::Delta => "DELTA",
            },
            Filter::BitWidthReduction { .. } => "BIT_WIDTH_REDUCTION",
            Filter::Bitshuffle => "BITSHUFFLE",
            Filter::Byteshuffle => "BYTESHUFFLE",
            Filter::PositiveDelta { .. } => "POSITIVE_DELTA",
            Filter::Aes256Gcm => "AES_256_GCM",
            Filter::ChecksumMd5 => "CHECKSUM_MD5",
            Filter::ChecksumSha256 => "CHECKSUM_SHA256",
            Filter::ScaleFloat { .. } => "SCALE_FLOAT",
            Filter::Xor => "XOR",
            Filter::Webp { .. } => "WEBP",
            Filter::Unknown { .. } => "UNKNOWN",
        }
    }

    /// Reads one filter: its number u8, the length of its options u32, the options.
    fn parse(c: &mut Cursor<'_>) -> Result<Filter> {
        let id = c.u8("type")?;
        let length = c.u32("option_length")?;
        let base = c.offset();
        let options = c.bytes(u64::from(length), "options")?;
        let mut o = Cursor::with_base(options, base);
        if let Some(codec) = Codec::of_filter(id) {
            let known = match codec {
                Codec::DoubleDelta | Codec::Delta => matches!(options.len(), 5 | 6),
                _ => options.len() == 5,
            };
            if known {
                return Self::parse_compressor(codec, &mut o, id, options);
            }
        }
        Ok(match (id, options.len()) {
            (0, 0) => Filter::Noop,
            (7, 4) => Filter::BitWidthReduction {
                max_window_size: o.u32("max_window_size")?,
            },
            (8, 0) => Filter::Bitshuffle,
            (9, 0) => Filter::Byteshuffle,
            (10, 4) => Filter::PositiveDelta {
                max_window_size: o.u32("max_window_size")?,
            },
            (11, 0) => Filter::Aes256Gcm,
            (12, 0) => Filter::ChecksumMd5,
            (13, 0) => Filter::ChecksumSha256,
            (15, 24) => {
                let (scale, offset) = (o.f64("scale")?, o.f64("offset")?);
                match o.u64("byte_width")? {
                    byte_width @ (1 | 2 | 4 | 8) => Filter::ScaleFloat {
                        scale,
                        offset,
                        byte_width,
                    },
                    _ => Self::unknown(id, options),
                }
            }
            (16, 0) => Filter::Xor,
            // The last two bytes are the padding of a C struct.
            (18, 12) => {
                let quality = o.f32("quality")?;
                match WebpFormat::from_u8(o.u8("format")?) {
                    Ok(format) => Filter::Webp {
                        quality,
                        format,
                        lossless: o.bool("lossless")?,
                        y_extent: o.u16("y_extent")?,
                        x_extent: o.u16("x_extent")?,
                    },
                    Err(_) => Self::unknown(id, options),
                }
            }
            _ => Self::unknown(id, options),
        })
    }

    /// Reads a compressor's options: compressor u8, level i32, and for newer versions of the deltas a
    /// datatype u8.
    fn parse_compressor(codec: Codec, o: &mut Cursor<'_>, id: u8, options: &[u8]) -> Result<Filter> {
        let compresses = read::byte(o, "compressor", |compressor| match compressor {
            0 => Ok(false),
            n if n == codec.compressor_id() => Ok(true),
            n => Err(Error::corrupt(format!("compressor {n} in a filter of type {id}"))),
        })?;
        let level = o.i32("level")?;
        let reinterpret = match o.is_empty() {
            true => None,
            // TileDB writes ANY for no reinterpretation.
            false => match Datatype::from_u8(o.u8("reinterpret_datatype")?) {
                Ok(datatype) => Some(datatype).filter(|&d| d != Datatype::Any),
                Err(_) => return Ok(Self::unknown(id, options)),
            },
        };
        Ok(match compresses {
            true => Filter::Compression {
                codec,
                level,
                reinterpret,
            },
            false => Filter::Noop,
        })
    }

    fn unknown(id: u8, options: &[u8]) -> Filter {
        Filter::Unknown {
            id,
            options: options.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::testing::{Bytes, ZSTD, check_hostile};

    fn parse(bytes: &[u8]) -> Result<Pipeline> {
        let mut c = Cursor::new(bytes);
        let pipeline = Pipeline::parse(&mut c)?;
        c.finish()?;
        Ok(pipeline)
    }

    fn one(id: u8, options: &[u8]) -> Filter {
        let bytes = Bytes::default().pipeline(&[(id, options), ZSTD]);
        let mut pipeline = check_hostile(&bytes, parse);
        assert_eq!(pipeline.max_chunk_size, 65536);
        assert_eq!(
            pipeline.filters.pop().unwrap().name(),
            "ZSTD",
            "read on in the right place"
        );
        assert_eq!(pipeline.filters.len(), 1);
        pipeline.filters.remove(0)
    }

    #[test]
    fn compressors_store_numbers_of_their_own() {
        let table = [
            (1, 1, Codec::Gzip, "GZIP"),
            (2, 2, Codec::Zstd, "ZSTD"),
            (3, 3, Codec::Lz4, "LZ4"),
            (4, 4, Codec::Rle, "RLE"),
            (5, 5, Codec::Bzip2, "BZIP2"),
            (6, 6, Codec::DoubleDelta, "DOUBLE_DELTA"),
            (14, 7, Codec::Dictionary, "DICTIONARY_ENCODING"),
            (19, 8, Codec::Delta, "DELTA"),
        ];
        for (id, compressor, codec, name) in table {
            let filter = one(id, &[compressor, 0xFE, 0xFF, 0xFF, 0xFF]);
            let expected = Filter::Compression {
                codec,
                level: -2,
                reinterpret: None,
            };
            assert_eq!((filter.name(), filter), (name, expected));
            assert_eq!(one(id, &[0, 9, 0, 0, 0]), Filter::Noop);
            for other in (1..=9).filter(|&n| n != compressor) {
                let bytes = Bytes::default().pipeline(&[(id, &[other, 0, 0, 0, 0])]).bytes;
                assert_eq!(parse(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
            }
        }
    }

    #[test]
    fn only_the_deltas_have_a_type_to_read_values_as() {
        for (id, compressor) in [(6, 6), (19, 8)] {
            let with = |datatype| one(id, &[compressor, 0, 0, 0, 0, datatype]);
            let Filter::Compression { reinterpret, .. } = with(7) else {
                panic!()
            };
            assert_eq!(reinterpret, Some(Datatype::Int16));
            let Filter::Compression { reinterpret, .. } = with(17) else {
                panic!()
            };
            assert_eq!(reinterpret, None, "ANY stands for none");
            assert!(matches!(with(200), Filter::Unknown { .. }));
        }
        assert!(matches!(
            one(1, &[1, 0, 0, 0, 0, 7]),
            Filter::Unknown { id: 1, .. }
        ));
    }

    #[test]
    fn the_other_filters() {
        assert_eq!(one(0, &[]), Filter::Noop);
        assert_eq!(
            one(7, &[0, 1, 0, 0]),
            Filter::BitWidthReduction { max_window_size: 256 }
        );
        assert_eq!(one(8, &[]), Filter::Bitshuffle);
        assert_eq!(one(9, &[]), Filter::Byteshuffle);
        assert_eq!(
            one(10, &[0, 4, 0, 0]),
            Filter::PositiveDelta {
                max_window_size: 1024
            }
        );
        assert_eq!(one(11, &[]), Filter::Aes256Gcm);
        assert_eq!(one(12, &[]), Filter::ChecksumMd5);
        assert_eq!(one(13, &[]), Filter::ChecksumSha256);
        assert_eq!(one(16, &[]), Filter::Xor);
        let scale = |width: u64| {
            let options = [
                &0.5f64.to_le_bytes()[..],
                &3f64.to_le_bytes(),
                &width.to_le_bytes(),
            ]
            .concat();
            one(15, &options)
        };
        for byte_width in [1, 2, 4, 8] {
            let expected = Filter::ScaleFloat {
                scale: 0.5,
                offset: 3.0,
                byte_width,
            };
            assert_eq!(scale(byte_width), expected);
        }
        assert!(matches!(scale(3), Filter::Unknown { id: 15, .. }));
        let webp = |format| one(18, &[0, 0, 0xC8, 0x42, format, 1, 4, 1, 9, 0, 0xAA, 0xBB]);
        let expected = Filter::Webp {
            quality: 100.0,
            format: WebpFormat::Bgr,
            lossless: true,
            y_extent: 260,
            x_extent: 9,
        };
        assert_eq!(webp(2), expected);
        assert!(matches!(webp(5), Filter::Unknown { id: 18, .. }));
    }

    #[test]
    fn what_is_not_known_is_kept() {
        for id in [17, 20, 255] {
            let expected = Filter::Unknown {
                id,
                options: vec![1, 2, 3],
            };
            assert_eq!(one(id, &[1, 2, 3]), expected);
        }
        for id in 0..=19 {
            assert!(
                matches!(one(id, &[1; 7]), Filter::Unknown { .. }),
                "{id} has no 7 bytes of options"
            );
        }
    }

    #[test]
    fn filters_are_limited() {
        let many = |n: usize| parse(&Bytes::default().pipeline(&vec![(9, &[][..]); n]).bytes);
        assert_eq!(many(128).unwrap().filters.len(), 128);
        assert_eq!(many(129).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn which_compressors_split_coordinates_in_version_1() {
        let has = |filters: &[(u8, &[u8])]| {
            parse(&Bytes::default().pipeline(filters).bytes)
                .unwrap()
                .has_compressor()
        };
        assert!(has(&[(9, &[]), ZSTD]) && has(&[(6, &[6, 0, 0, 0, 0])]));
        assert!(!has(&[]) && !has(&[(0, &[]), (11, &[])]) && !has(&[(2, &[0; 5])]));
    }
}
