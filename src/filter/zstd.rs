//! ZSTD: each part is a Zstandard frame, with or without the length of its content.
//!
//! Example: `28 b5 2f fd | 20 40 | 55 00 00 | 20 07 00 00 00 01 00 59 72 44` is sixteen INT32 of value 7: the
//! magic number, a header that declares 64 bytes of content, the header of the last block, and the block.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/compressors/zstd_compressor.cc>

use super::element::{first_room, more_room, reserve};
use crate::error::{Error, Result};
use std::cell::Cell;
use zstd::zstd_safe::{self, DCtx};

thread_local! {
    /// Reused, because its tables are large.
    static CONTEXT: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// The first bytes of every frame.
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Appends the `length` bytes that the frame `input` decodes to.
pub(super) fn decompress(input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    if !input.starts_with(&MAGIC) {
        return Err(Error::corrupt("not a Zstandard frame"));
    }
    let mut context = CONTEXT.take().unwrap_or_else(DCtx::create);
    let result = if out.is_empty() {
        run(&mut context, input, length, out)
    } else {
        // The library writes from the start of a vector.
        let mut part = Vec::new();
        run(&mut context, input, length, &mut part).map(|()| out.extend_from_slice(&part))
    };
    CONTEXT.set(Some(context));
    result
}

/// Decodes into the empty `out`. A frame that did not fit is decoded again with more room. That happens only
/// at extraordinary ratios, and such frames decode fast.
fn run(context: &mut DCtx<'_>, input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let mut room = first_room(length, input.len());
    loop {
        out.clear();
        reserve(out, room)?;
        match context.decompress(out, input) {
            Ok(_) => return Ok(()),
            Err(code) if room < length && zstd_safe::get_error_name(code) == TOO_SMALL => {
                room += more_room(length, room);
            }
            Err(code) => {
                return Err(Error::corrupt(format!(
                    "Zstandard: {}",
                    zstd_safe::get_error_name(code)
                )));
            }
        }
    }
}

/// The library's message for output that does not fit.
const TOO_SMALL: &str = "Destination buffer is too small";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const SEVENS: [u8; 19] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x40, 0x55, 0x00, 0x00, 0x20, 0x07, 0x00, 0x00, 0x00, 0x01, 0x00, 0x59,
        0x72, 0x44,
    ];

    fn run(input: &[u8], length: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        decompress(input, length, &mut out)?;
        Ok(out)
    }

    #[test]
    fn frames_decode() {
        assert_eq!(
            run(&SEVENS, 64).unwrap(),
            [7u32; 16].map(u32::to_le_bytes).as_flattened()
        );
        let empty = zstd::bulk::compress(b"", 1).unwrap();
        assert_eq!(run(&empty, 0).unwrap(), b"");
    }

    #[test]
    fn parts_are_appended_and_large_ones_grow() {
        let zeros = vec![0; 40 << 20];
        let frame = zstd::bulk::compress(&zeros, 1).unwrap();
        let mut out = b"before".to_vec();
        decompress(&frame, zeros.len(), &mut out).unwrap();
        assert!(out.starts_with(b"before\0") && out.len() == 6 + zeros.len());
        assert_eq!(run(&frame, zeros.len()).unwrap().len(), zeros.len());
        // A frame without the length of its content.
        let frame = zstd::stream::encode_all(&zeros[..], 1).unwrap();
        assert_eq!(run(&frame, zeros.len()).unwrap().len(), zeros.len());
    }

    #[test]
    fn a_frame_that_is_damaged_or_too_long_fails() {
        let bomb = zstd::bulk::compress(&vec![0; 8 << 20], 1).unwrap();
        assert_eq!(run(&bomb, 100).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(run(&SEVENS[..18], 64).is_err());
        assert!(run(b"", 64).is_err());
        assert!(run(b"\x50\x2A\x4D\x18\0\0\0\0", 0).is_err(), "a skippable frame");
        assert!(run(&[&SEVENS[..], b"x"].concat(), 64).is_err());
    }
}
