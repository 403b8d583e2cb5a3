//! LZ4: each part is a raw LZ4 block, without frame or length.
//!
//! Example: `4f 07 00 00 00 04 00 24 | 50 00 07 00 00 00` is sixteen INT32 of value 7: four literal bytes,
//! then a copy of 15 + 36 + 4 = 55 bytes from 4 bytes back, then five literal bytes.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/compressors/lz4_compressor.cc>

use super::element::extend_zeroed;
use crate::error::{Error, Result};

/// Appends the `length` bytes that the block `input` decodes to.
pub(super) fn decompress(input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    // A byte of a block adds at most 255 to a length: do not allocate for a larger length.
    if length as u64 > input.len() as u64 * 255 {
        return Err(Error::corrupt(format!(
            "{} bytes of LZ4 cannot decode to {length} bytes",
            input.len()
        )));
    }
    let start = out.len();
    let produced = lz4_flex::block::decompress_into(input, extend_zeroed(out, length)?)
        .map_err(|e| Error::corrupt(format!("not an LZ4 block: {e}")))?;
    out.truncate(start + produced);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVENS: [u8; 14] = [0x4f, 0x07, 0, 0, 0, 0x04, 0, 0x24, 0x50, 0, 0x07, 0, 0, 0];

    fn run(input: &[u8], length: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        decompress(input, length, &mut out)?;
        Ok(out)
    }

    #[test]
    fn blocks_decode() {
        assert_eq!(
            run(&SEVENS, 64).unwrap(),
            [7u32; 16].map(u32::to_le_bytes).as_flattened()
        );
        assert_eq!(run(&[0], 0).unwrap(), b"");
        let text = b"abcabcabcabcabcabcabc".repeat(100);
        let mut out = b"before".to_vec();
        decompress(&lz4_flex::block::compress(&text), text.len(), &mut out).unwrap();
        assert_eq!(out, [b"before", &text[..]].concat());
    }

    #[test]
    fn a_block_that_is_damaged_or_of_another_length_fails() {
        assert!(run(&SEVENS, 63).is_err());
        assert!(run(&SEVENS, 4000).is_err());
        // The caller compares lengths.
        assert_eq!(run(&SEVENS, 65).unwrap().len(), 64);
        assert!(run(&SEVENS[..7], 64).is_err());
        assert!(run(b"", 64).is_err());
        assert!(
            run(&[0x4f, 1, 2, 3, 4, 9, 0, 0x20], 64).is_err(),
            "a copy from before the start"
        );
    }
}
