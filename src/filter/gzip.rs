//! GZIP: despite the name, each part is a zlib stream (RFC 1950) with its Adler-32 checksum.
//!
//! Example: `78 9c | 63 64 60 60 60 44 c2 00 | 00 38 00 05` is four INT32 of value 1: the zlib header, one
//! deflate block with fixed codes, and the checksum. The stream must end at the end of the part.
//!
//! Parts are decoded by libdeflate, the fastest library, which decodes whole buffers. If that does not give
//! exactly the declared length, zlib decodes the part piece by piece: it reports what is wrong, and allocates
//! memory only for bytes that it produces.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/compressors/gzip_compressor.cc>

use super::element::{extend_zeroed, first_room};
use super::stream::{self, Stream};
use crate::error::Result;
use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{Decompressor, adler32};
use std::cell::Cell;

thread_local! {
    /// Reused, because its tables are large.
    static WHOLE: Cell<Option<Decompressor>> = const { Cell::new(None) };

    /// Reused, because its window and tables are large.
    static INFLATE: Cell<Option<Decompress>> = const { Cell::new(None) };
}

impl Stream for Decompress {
    const NAME: &'static str = "zlib";

    fn consumed(&self) -> u64 {
        self.total_in()
    }

    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        let status = self.decompress_vec(input, out, FlushDecompress::Finish);
        status
            .map(|status| status == Status::StreamEnd)
            .map_err(|e| e.to_string())
    }
}

/// Appends the `length` bytes that the zlib stream `input` decodes to.
pub(super) fn decompress(input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    if first_room(length, input.len()) == length && decompress_whole(input, extend_zeroed(out, length)?) {
        return Ok(());
    }
    out.truncate(start);
    let mut inflate = INFLATE.take().unwrap_or_else(|| Decompress::new(true));
    inflate.reset(true);
    let result = stream::decode(&mut inflate, input, length, out);
    INFLATE.set(Some(inflate));
    result
}

/// Fills `out` with the decoded zlib stream `input`. False if it decodes to another length or not at all, or
/// if bytes follow it.
fn decompress_whole(input: &[u8], out: &mut [u8]) -> bool {
    let mut decompressor = WHOLE.take().unwrap_or_default();
    let result = decompressor.zlib_decompress(input, out);
    WHOLE.set(Some(decompressor));
    // libdeflate ignores bytes after the stream, so the input must end with the checksum of the output.
    result == Ok(out.len()) && input.ends_with(&adler32(out).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write;

    const ONES: [u8; 14] = [
        0x78, 0x9c, 0x63, 0x64, 0x60, 0x60, 0x60, 0x44, 0xc2, 0x00, 0x00, 0x38, 0x00, 0x05,
    ];

    fn compress(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(vec![], Compression::new(6));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn run(input: &[u8], length: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        decompress(input, length, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_example() {
        assert_eq!(
            run(&ONES, 16).unwrap(),
            [1u32; 4].map(u32::to_le_bytes).as_flattened()
        );
        assert_eq!(run(&compress(b""), 0).unwrap(), b"");
    }

    #[test]
    fn parts_are_appended_and_large_ones_grow() {
        let mut out = b"before".to_vec();
        let zeros = vec![0; 20 << 20];
        decompress(&compress(&zeros), zeros.len(), &mut out).unwrap();
        assert!(out.starts_with(b"before\0") && out.len() == 6 + zeros.len());
    }

    #[test]
    fn a_stream_that_disagrees_with_its_length_fails() {
        let bomb = compress(&vec![0; 8 << 20]);
        assert_eq!(run(&bomb, 100).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(run(&ONES[..10], 16).is_err());
        assert!(run(b"", 16).is_err());
        let mut longer = ONES.to_vec();
        longer.push(0);
        assert_eq!(run(&longer, 16).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(run(&ONES, 15).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(run(&ONES, 17).unwrap_err().kind(), ErrorKind::Corrupt);
        let mut wrong_sum = ONES;
        wrong_sum[13] ^= 1;
        assert_eq!(run(&wrong_sum, 16).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
