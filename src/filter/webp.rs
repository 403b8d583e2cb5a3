//! WEBP: each part is a WebP file that holds the tile as an image.
//!
//! | metadata | type |
//! |---|---|
//! | number of parts, stored length of each | u32, u32 each |
//!
//! Writers use it only for tiles of UINT8 in two dimensions, in one chunk of one part. The second dimension
//! counts bytes: rows of pixels of 3 bytes (RGB, BGR) or 4 (RGBA, BGRA), by the filter's format.
//!
//! Example: a tile of 16 rows by 48 bytes in the format BGR is an image of 16 by 16 pixels, with the blue
//! byte of each pixel first.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filters/webp.md>

use super::element::extend_zeroed;
use super::framing::{Limits, TABLE_BOUND, split};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::enums::WebpFormat;
use image_webp::WebPDecoder;

#[derive(Debug, Clone, Copy)]
pub(super) struct WebpOptions {
    pub format: WebpFormat,
    /// Rows of the tile.
    pub y_extent: u16,
    /// Bytes of a row.
    pub x_extent: u16,
}

/// Undoes the filter on `data` into the empty `out`. `limit` is an upper bound of the output in bytes.
pub(super) fn undo(
    metadata: &mut Cursor<'_>,
    options: WebpOptions,
    data: &[u8],
    limit: u64,
    out: &mut Vec<u8>,
) -> Result<()> {
    split(metadata, data, |part| {
        let depth = match options.format {
            WebpFormat::Rgb | WebpFormat::Bgr => 3,
            WebpFormat::Rgba | WebpFormat::Bgra => 4,
            WebpFormat::None => return Err(Error::corrupt("the filter names no pixel format")),
        };
        let (rows, row) = (usize::from(options.y_extent), usize::from(options.x_extent));
        let length = rows * row;
        if !row.is_multiple_of(depth) || length == 0 {
            return Err(Error::corrupt(format!(
                "{rows} rows of {row} bytes are not an image of {depth} bytes per pixel"
            )));
        }
        if out.len() as u64 + length as u64 > limit {
            return Err(Error::limit(format!(
                "an image of {length} bytes after {} bytes exceeds the {limit} possible",
                out.len()
            )));
        }
        check_size(part, (row / depth) as u32, rows as u32)?;
        decode(part, options.format, length / depth, out)
    })
}

/// Checks before decoding that `file` is a still image, and that all of its headers declare this size.
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
            b"ANIM" | b"ANMF" => return Err(Error::corrupt("found an animation, expected a still image")),
            _ => continue,
        };
        if size != (width, height) {
            return Err(chunk.corrupt(
                "image size",
                format!(
                    "the image has {} by {} pixels, expected {width} by {height}",
                    size.0, size.1
                ),
            ));
        }
        images += u32::from(&name != b"VP8X");
    }
    match images {
        1 => Ok(()),
        n => Err(Error::corrupt(format!(
            "the WebP file holds {n} images, expected 1"
        ))),
    }
}

/// Appends the `pixels` pixels of `file` in `format`.
fn decode(file: &[u8], format: WebpFormat, pixels: usize, out: &mut Vec<u8>) -> Result<()> {
    let failed = |e| Error::corrupt(format!("not a WebP image: {e}"));
    let mut decoder = WebPDecoder::new(std::io::Cursor::new(file)).map_err(failed)?;
    let has_alpha = decoder.has_alpha();
    let length = pixels * if has_alpha { 4 } else { 3 };
    if decoder.output_buffer_size() != Some(length) {
        return Err(Error::corrupt(format!(
            "the WebP image decodes to {:?} pixels, expected {pixels}",
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
            let out = extend_zeroed(out, count * 4)?.as_chunks_mut::<4>().0;
            for (out, [r, g, b, a]) in out.iter_mut().zip(pixels) {
                *out = if format == WebpFormat::Rgba {
                    [r, g, b, a]
                } else {
                    [b, g, r, a]
                };
            }
        }
        _ => {
            let out = extend_zeroed(out, count * 3)?.as_chunks_mut::<3>().0;
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

/// The most bytes that a tile of this size can be encoded to: no writer makes an image twice as long as its
/// pixels.
pub(super) fn bound(before: Limits) -> Limits {
    Limits {
        data: before.data.saturating_mul(2).saturating_add(TABLE_BOUND),
        metadata: before.metadata.saturating_add(TABLE_BOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// Format, rows, bytes of a row, the file, and the pixels that libtiledb 2.30 reads from it, in
    /// hexadecimal digits. The first three are lossless, the others not.
    const IMAGES: [(WebpFormat, u16, u16, &str, &str); 5] = [
        (
            WebpFormat::Rgb,
            2,
            9,
            "524946464e000000574542505650384c410000002f024000002fa0a48d2468770f9e7f89c77f7a3ad40440c230fa1721141578fd54d4b60dd4f35bfe8cc66a9aff88dc7bfb9539b2cf6f20102043bc5810d1ff980400",
            "71d6df9bdbd3aae5c779cbd198d8cfa9daca",
        ),
        (
            WebpFormat::Bgr,
            2,
            9,
            "524946464c000000574542505650384c3f0000002f024000002fa0a66d24e6eecbd4f923fbfd49296a2485b942f3ef0d31bc2093b679ebdf4cedccc20414e63f6ecdbfbf6c8e0fc28140800c11e34044ff231600",
            "8adcdda5bccdb7d8d58dd1da85ccd2a8d9d4",
        ),
        (
            WebpFormat::Rgba,
            1,
            4,
            "524946461e000000574542505650384c110000002f0000001007d0e84256bd808188e87f0000",
            "90d1ea80",
        ),
        (
            WebpFormat::Bgra,
            2,
            12,
            "524946462e0000005745425056503820220000009001009d012a0300020005407c25a80002e759b60000fee124d5ffeaaa7b7c860000",
            "91d2c7ff99dacfffa4e5dbff91d2c7ff99dacfffa4e5dbff",
        ),
        (
            WebpFormat::Bgra,
            1,
            4,
            "524946465200000057454250565038580a00000010000000000000000000414c5048020000000093565038202a000000b001009d012a0100010002003425a00274ba0004300000fef5cfbffe7e67fba7f9dfaf5f6d70dbd60000",
            "63d3ec93",
        ),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
            .collect()
    }

    fn run((format, y_extent, x_extent): (WebpFormat, u16, u16), file: &[u8]) -> Result<Vec<u8>> {
        let metadata = [[1, 0, 0, 0], (file.len() as u32).to_le_bytes()].concat();
        let options = WebpOptions {
            format,
            y_extent,
            x_extent,
        };
        let mut out = vec![];
        undo(&mut Cursor::new(&metadata), options, file, 1000, &mut out)?;
        Ok(out)
    }

    #[test]
    fn images_of_libtiledb() {
        for (format, rows, row, file, pixels) in IMAGES {
            assert_eq!(
                run((format, rows, row), &bytes(file)).unwrap(),
                bytes(pixels),
                "{format:?}"
            );
        }
    }

    #[test]
    fn an_opaque_image_has_alpha_where_the_format_has() {
        let file = bytes(IMAGES[0].3);
        let rgb = run((WebpFormat::Rgb, 2, 9), &file).unwrap();
        let bgra = run((WebpFormat::Bgra, 2, 12), &file).unwrap();
        for (rgb, bgra) in rgb.chunks(3).zip(bgra.chunks(4)) {
            assert_eq!(bgra, [rgb[2], rgb[1], rgb[0], 0xFF]);
        }
    }

    #[test]
    fn another_size_is_refused_before_decoding() {
        let file = bytes(IMAGES[0].3);
        for (rows, row) in [(2, 12), (3, 9), (1, 9), (3, 6), (2, 10), (0, 9), (2, 0)] {
            assert_eq!(
                run((WebpFormat::Rgb, rows, row), &file).unwrap_err().kind(),
                ErrorKind::Corrupt
            );
        }
        assert_eq!(
            run((WebpFormat::Rgb, 200, 9), &file).unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
        assert_eq!(
            run((WebpFormat::None, 2, 9), &file).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        // An image whose canvas has the expected size, but whose picture has another.
        let picture = &file[12..];
        let canvas = [&b"VP8X\x0A\0\0\0\0\0\0\0\x02\0\0\x01\0\0"[..], picture].concat();
        let extended = [b"RIFF\0\0\0\0WEBP", &canvas[..]].concat();
        assert!(check_size(&extended, 3, 2).is_ok());
        let mut larger = extended.clone();
        larger[12 + 18 + 9] = 0xFF;
        assert_eq!(check_size(&larger, 3, 2).unwrap_err().kind(), ErrorKind::Corrupt);
        let twice = [&extended[..], picture].concat();
        assert_eq!(check_size(&twice, 3, 2).unwrap_err().kind(), ErrorKind::Corrupt);
        let animated = [b"RIFF\0\0\0\0WEBPANIM\0\0\0\0", &canvas[..]].concat();
        assert_eq!(
            check_size(&animated, 3, 2).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }

    #[test]
    fn damage_is_an_error_or_other_pixels() {
        for (format, rows, row, file, _) in IMAGES {
            let file = bytes(file);
            for cut in 0..file.len() {
                let _ = run((format, rows, row), &file[..cut]);
            }
            for bit in 0..8 * file.len() {
                let mut damaged = file.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                if let Ok(pixels) = run((format, rows, row), &damaged) {
                    assert_eq!(pixels.len(), usize::from(rows) * usize::from(row));
                }
            }
        }
        assert!(run((WebpFormat::Rgb, 2, 9), b"").is_err());
    }
}
