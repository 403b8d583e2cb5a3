//! For each filter of a pipeline, the type that it was given and the largest size that the streams before it
//! can have.
//!
//! Types: libraries of format 20 and later gave each filter the type that the one before it put out; earlier
//! ones gave all the type of the field. Sizes: the original length of a chunk bounds the data before the
//! first filter, and what each filter can add bounds the streams before the next. A length beyond these
//! bounds is refused before it is allocated.
//!
//! Example: a chunk of FLOAT64 of 800 bytes through float scale (to integers of 2 bytes) and byteshuffle:
//! byteshuffle saw at most 200 bytes, of INT16 where types are propagated.

use super::framing::{self, Limits};
use super::tile_codec::TileCodec;
use super::{aes_256_gcm, bit_width_reduction, checksum, embedded, positive_delta, rle, scale_float, webp};
use crate::error::{Error, Result};
use crate::format::datatype::Datatype;
use crate::format::pipeline::{Codec, Filter};

/// A filter that does something, with what is needed to undo it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stage<'a> {
    pub filter: &'a Filter,
    /// Its place in the pipeline, from 0.
    pub index: usize,
    /// The type that it saw.
    pub datatype: Datatype,
    /// The most bytes that the streams before it can have.
    pub before: Limits,
    /// Whether it is string RLE or a dictionary, with embedded offsets.
    pub strings: bool,
}

impl Stage<'_> {
    /// Whether undoing it changes the data, rather than only checks them.
    pub fn rewrites(&self) -> bool {
        !matches!(self.filter, Filter::ChecksumMd5 | Filter::ChecksumSha256)
    }
}

/// The limit for a chunk's streams anywhere in a pipeline: this many times their original length, and
/// [`FLOOR`] more. Real pipelines stay far below.
const FACTOR: u64 = 64;
const FLOOR: u64 = 1 << 20;

/// The stages of `codec`'s pipeline, in the order of writing, for a chunk of `original_length` bytes of a
/// tile of `cells` cells. Filters that do nothing are left out. `Unsupported` for an unknown filter type.
pub(super) fn stages(
    codec: &TileCodec,
    original_length: u32,
    cells: Option<u64>,
) -> impl Iterator<Item = Result<Stage<'_>>> {
    let original = u64::from(original_length);
    let strings = match codec.embeds_offsets {
        true => embedded::string_bound(original, cells),
        false => 0,
    };
    let most = original
        .saturating_mul(FACTOR)
        .saturating_add(strings.saturating_mul(8))
        .saturating_add(FLOOR);
    let mut next_datatype = codec.datatype;
    let mut before = Limits {
        metadata: 0,
        data: original,
    };
    let filters = codec.pipeline.filters.iter().enumerate();
    filters.filter_map(move |(index, filter)| {
        let datatype = next_datatype;
        if codec.propagates_types {
            next_datatype = output_type(filter, datatype);
        }
        let is_strings = index == 0
            && codec.embeds_offsets
            && matches!(
                filter,
                Filter::Compression {
                    codec: Codec::Rle | Codec::Dictionary,
                    ..
                }
            );
        let after = match filter {
            _ if is_strings => embedded::bound(original, strings),
            Filter::Unknown { id, .. } => {
                return Some(Err(Error::unsupported(format!("unknown filter type {id}"))));
            }
            _ => bound(codec, filter, datatype, before)?,
        };
        let stage = Stage {
            filter,
            index,
            datatype,
            before,
            strings: is_strings,
        };
        before = Limits {
            metadata: after.metadata.min(most),
            data: after.data.min(most),
        };
        Some(Ok(stage))
    })
}

/// The most bytes that the streams after `filter` can have, None where it does nothing.
fn bound(codec: &TileCodec, filter: &Filter, datatype: Datatype, before: Limits) -> Option<Limits> {
    Some(match filter {
        Filter::Noop | Filter::Unknown { .. } => return None,
        Filter::Compression {
            codec: Codec::Rle, ..
        } => rle::bound(before, codec.cell_size),
        Filter::Compression { .. } => framing::bound(before),
        Filter::BitWidthReduction { max_window_size } => {
            let (width, _) = bit_width_reduction::integers(datatype, codec.fragment_version)?;
            bit_width_reduction::bound(before, width, *max_window_size)
        }
        Filter::PositiveDelta { max_window_size } => {
            let width = positive_delta::integers(datatype, codec.fragment_version)?;
            positive_delta::bound(before, width, *max_window_size)
        }
        Filter::Bitshuffle
        | Filter::Byteshuffle
        | Filter::Xor
        | Filter::ChecksumMd5
        | Filter::ChecksumSha256 => checksum::bound(before),
        Filter::Aes256Gcm => aes_256_gcm::bound(before),
        Filter::ScaleFloat { byte_width, .. } => scale_float::bound(before, datatype.size(), *byte_width),
        Filter::Webp { .. } => webp::bound(before),
    })
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
