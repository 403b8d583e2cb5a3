//! BZIP2: each part is one bzip2 stream.
//!
//! Example: `42 5a 68 31 | 17 72 45 38 50 90 | 00 00 00 00` is the empty stream: `BZh1`, the end marker, and a
//! checksum over nothing. The stream must end where the part ends.

use super::element::{first_room, more_room, reserve};
use crate::error::{Error, Result};
use bzip2::{Decompress, Status};

/// Appends the `length` bytes that the bzip2 stream `input` decodes to. Besides the output it takes a working
/// area of at most 4 MB.
pub(super) fn decompress(input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let mut stream = Decompress::new(false);
    let start = out.len();
    let mut room = first_room(length, input.len());
    loop {
        // One byte more than wanted: with room left over, a full vector never hides the end of the stream.
        reserve(out, room.saturating_add(1))?;
        let rest = usize::try_from(stream.total_in())
            .ok()
            .and_then(|n| input.get(n..))
            .unwrap_or_default();
        let status = stream
            .decompress_vec(rest, out)
            .map_err(|e| Error::corrupt(format!("not a bzip2 stream: {e}")))?;
        let produced = out.len().saturating_sub(start);
        if status == Status::StreamEnd && produced == length {
            break;
        }
        if status == Status::StreamEnd || produced > length {
            return Err(Error::corrupt(format!(
                "the bzip2 stream decodes to {produced} bytes or more in place of {length}"
            )));
        }
        if out.len() < out.capacity() {
            return Err(Error::truncated(format!(
                "the bzip2 stream ends early, after {produced} of {length} bytes"
            )));
        }
        room = more_room(length, produced);
    }
    match (input.len() as u64).saturating_sub(stream.total_in()) {
        0 => Ok(()),
        n => Err(Error::corrupt(format!(
            "{n} bytes after the end of the bzip2 stream"
        ))),
    }
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
