//! Decodes a compressed stream piece by piece into memory that grows only as bytes are produced.

use super::element::{first_room, more_room, reserve};
use crate::error::{Error, Result};

/// A decompressor in the middle of one stream.
pub(super) trait Stream {
    /// Its name in messages.
    const NAME: &'static str;

    /// Bytes of input consumed.
    fn consumed(&self) -> u64;

    /// Decodes from the start of `input` into the spare capacity of `out`. Returns whether the stream has
    /// ended. The error is the codec's own message.
    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<bool, String>;
}

/// Appends the `length` bytes that `stream` decodes from `input`, which must be exactly one stream. `Corrupt`
/// for another length, bytes left over and errors of the codec; `Truncated` if the stream does not end.
pub(super) fn decode<S: Stream>(
    stream: &mut S,
    input: &[u8],
    length: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let name = S::NAME;
    let start = out.len();
    let mut room = first_room(length, input.len());
    loop {
        // One byte more than wanted: a full vector would hide the end of the stream.
        reserve(out, room + 1)?;
        let rest = &input[stream.consumed() as usize..];
        let ended = stream
            .step(rest, out)
            .map_err(|e| Error::corrupt(format!("not a {name} stream: {e}")))?;
        let produced = out.len() - start;
        if ended && produced == length {
            break;
        }
        if ended || produced > length {
            return Err(Error::corrupt(format!(
                "the {name} stream decodes to {produced} bytes or more, expected {length}"
            )));
        }
        if out.len() < out.capacity() {
            return Err(Error::truncated(format!(
                "the {name} stream ends after {produced} of {length} bytes"
            )));
        }
        room = more_room(length, produced);
    }
    match input.len() as u64 - stream.consumed() {
        0 => Ok(()),
        n => Err(Error::corrupt(format!(
            "{n} bytes are left over after the end of the {name} stream"
        ))),
    }
}
