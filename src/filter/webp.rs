//! WEBP: each part is a WebP file that holds the tile as an image.
//!
//! | metadata | type |
//! |---|---|
//! | number of parts, stored length of each | u32, u32 each |
//!
//! Only tiles of UINT8 in two dimensions are written so, in one chunk of one part. The second dimension counts bytes: rows of
//! pixels of 3 bytes (RGB, BGR) or 4 (RGBA, BGRA), as the filter's format says.
//!
//! Example: a tile of 16 rows by 48 bytes in the format BGR is an image of 16 by 16 pixels; of each pixel the blue byte
//! comes first.

use super::element::extend_zeroed;
use super::framing::{Limits, TABLE_BOUND, split};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::enums::WebpFormat;
use image_webp::WebPDecoder;

/// The filter's options.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub format: WebpFormat,
    /// Rows of the tile.
    pub y_extent: u16,
    /// Bytes of a row.
    pub x_extent: u16,
}

/// Undoes the filter on `data` into the empty `out`, of which `limit` bytes are possible.
pub(super) fn undo(
    metadata: &mut Cursor<'_>,
    options: Options,
    data: &[u8],
    limit: u64,
    out: &mut Vec<u8>,
) -> Result<()> {
    split(metadata, data, |part| {
        let depth = match options.format {
            WebpFormat::Rgb | WebpFormat::Bgr => 3,
            WebpFormat::Rgba | WebpFormat::Bgra => 4,
            WebpFormat::None => return Err(Error::corrupt("a WebP image without a pixel format")),
        };
        let (rows, row) = (usize::from(options.y_extent), usize::from(options.x_extent));
        let length = rows * row;
        if !row.is_multiple_of(depth) || length == 0 {
            return Err(Error::corrupt(format!(
                "{rows} rows of {row} bytes as an image of {depth} bytes a pixel"
            )));
        }
        if (out.len() as u64).saturating_add(length as u64) > limit {
            return Err(Error::limit(format!(
                "an image of {length} bytes after {} where {limit} are possible",
                out.len()
            )));
        }
        check_size(part, (row / depth) as u32, rows as u32)?;
        decode(part, options.format, length / depth, out)
    })
}

/// Checks before anything is decoded that `file` is a still image, and that each of its headers states this size.
fn check_size(file: &[u8], width: u32, height: u32) -> Result<()> {
    let mut c = Cursor::new(file);
    let riff = c.bytes(4, "RIFF")?;
    c.u32("length of the file")?;
    if riff != b"RIFF" || c.bytes(4, "WEBP")? != b"WEBP" {
        return Err(Error::corrupt("not a WebP file"));
    }
    let mut images = 0;
    while c.remaining() >= 8 {
        let name = c.array::<4>("chunk name")?;
        let length = c.u32("chunk length")?;
        let mut chunk = Cursor::with_base(c.bytes(length.into(), "chunk")?, c.offset());
        if length % 2 == 1 && !c.is_empty() {
            c.u8("padding")?;
        }
        let size = match &name {
            b"VP8 " => {
                chunk.bytes(6, "frame tag")?;
                let (width, height) = (chunk.u16("width")?, chunk.u16("height")?);
                (u32::from(width & 0x3FFF), u32::from(height & 0x3FFF))
            }
            b"VP8L" => {
                chunk.u8("signature")?;
                let bits = chunk.u32("width and height")?;
                ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
            }
            b"VP8X" => {
                chunk.u32("flags")?;
                let bytes = chunk.array::<6>("canvas")?;
                let [w0, w1, w2, h0, h1, h2] = bytes.map(u32::from);
                (1 + (w0 | w1 << 8 | w2 << 16), 1 + (h0 | h1 << 8 | h2 << 16))
            }
            b"ANIM" | b"ANMF" => return Err(Error::corrupt("an animation in place of an image")),
            _ => continue,
        };
        if size != (width, height) {
            return Err(chunk.corrupt(
                "image size",
                format!(
                    "an image of {} by {} pixels in place of {width} by {height}",
                    size.0, size.1
                ),
            ));
        }
        images += u32::from(&name != b"VP8X");
    }
    match images {
        1 => Ok(()),
        n => Err(Error::corrupt(format!("a WebP file of {n} images"))),
    }
}

/// Appends the `pixels` pixels of `file` in `format`.
fn decode(file: &[u8], format: WebpFormat, pixels: usize, out: &mut Vec<u8>) -> Result<()> {
    let failed = |e| Error::corrupt(format!("not a WebP image: {e}"));
    let mut decoder = WebPDecoder::new(std::io::Cursor::new(file)).map_err(failed)?;
    let has_alpha = decoder.has_alpha();
    let length = pixels.saturating_mul(if has_alpha { 4 } else { 3 });
    if decoder.output_buffer_size() != Some(length) {
        return Err(Error::corrupt(format!(
            "a WebP image of {:?} pixels in place of {pixels}",
            decoder.dimensions()
        )));
    }
    if matches!(
        (format, has_alpha),
        (WebpFormat::Rgb, false) | (WebpFormat::Rgba, true)
    ) {
        return decoder.read_image(extend_zeroed(out, length)?).map_err(failed);
    }
    let mut image = Vec::new();
    decoder
        .read_image(extend_zeroed(&mut image, length)?)
        .map_err(failed)?;
    if has_alpha {
        let pixels = image.as_chunks::<4>().0;
        rearrange(pixels.iter().copied(), format, pixels.len(), out)
    } else {
        let pixels = image.as_chunks::<3>().0;
        let opaque = pixels.iter().map(|[r, g, b]| [*r, *g, *b, 0xFF]);
        rearrange(opaque, format, pixels.len(), out)
    }
}

/// Appends pixels of red, green, blue and alpha in `format`.
fn rearrange(
    pixels: impl Iterator<Item = [u8; 4]>,
    format: WebpFormat,
    count: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    match format {
        WebpFormat::Rgba | WebpFormat::Bgra => {
            let out = extend_zeroed(out, count.saturating_mul(4))?
                .as_chunks_mut::<4>()
                .0;
            for (out, [r, g, b, a]) in out.iter_mut().zip(pixels) {
                *out = if format == WebpFormat::Rgba {
                    [r, g, b, a]
                } else {
                    [b, g, r, a]
                };
            }
        }
        _ => {
            let out = extend_zeroed(out, count.saturating_mul(3))?
                .as_chunks_mut::<3>()
                .0;
            for (out, [r, g, b, _]) in out.iter_mut().zip(pixels) {
                *out = if format == WebpFormat::Rgb {
                    [r, g, b]
                } else {
                    [b, g, r]
                };
            }
        }
    }
    Ok(())
}

/// What a tile of at most this size can take up: no image that a writer makes is twice as long as its pixels.
pub(super) fn bound(before: Limits) -> Limits {
    Limits {
        data: before.data.saturating_mul(2).saturating_add(TABLE_BOUND),
        metadata: before.metadata.saturating_add(TABLE_BOUND),
    }
}
