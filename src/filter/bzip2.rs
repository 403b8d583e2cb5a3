//! BZIP2: each part is one bzip2 stream.
//!
//! Example: `42 5a 68 31 | 17 72 45 38 50 90 | 00 00 00 00` is the empty stream: `BZh1`, the end marker, and
//! the checksum of no data. The stream must end at the end of the part.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/compressors/bzip_compressor.cc>

use super::stream::{self, Stream};
use crate::error::Result;
use bzip2::{Decompress, Status};

impl Stream for Decompress {
    const NAME: &'static str = "bzip2";

    fn consumed(&self) -> u64 {
        self.total_in()
    }

    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        self.decompress_vec(input, out)
            .map(|status| status == Status::StreamEnd)
            .map_err(|e| e.to_string())
    }
}

/// Appends the `length` bytes that the bzip2 stream `input` decodes to. Takes up to 4 MB of working memory
/// besides the output.
pub(super) fn decompress(input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    stream::decode(&mut Decompress::new(false), input, length, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use bzip2::{Compression, write::BzEncoder};
    use std::io::Write;

    fn compress(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = BzEncoder::new(vec![], Compression::new(1));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn run(input: &[u8], length: usize) -> Result<Vec<u8>> {
        let mut out = vec![];
        decompress(input, length, &mut out)?;
        Ok(out)
    }

    #[test]
    fn streams_decode() {
        let empty = b"BZh1\x17\x72\x45\x38\x50\x90\0\0\0\0";
        assert_eq!(run(empty, 0).unwrap(), b"");
        assert_eq!(run(&compress(b"abcabc"), 6).unwrap(), b"abcabc");
        let mut out = b"before".to_vec();
        decompress(&compress(&vec![7; 3 << 20]), 3 << 20, &mut out).unwrap();
        assert!(out.starts_with(b"before\x07") && out.len() == 6 + (3 << 20));
    }

    #[test]
    fn a_stream_that_disagrees_with_its_length_fails() {
        let stream = compress(b"abcabc");
        assert_eq!(run(&stream, 5).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(run(&stream[..stream.len() - 1], 6).is_err());
        assert!(run(b"", 6).is_err());
        assert!(run(b"BZh9", 6).is_err());
        let bomb = compress(&vec![0; 4 << 20]);
        assert_eq!(run(&bomb, 1000).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(run(&[stream, vec![0]].concat(), 6).is_err());
    }
}
