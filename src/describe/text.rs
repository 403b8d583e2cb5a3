//! JSON strings that may be too long to be rendered at once: text, or bytes as hexadecimal digits.

use super::{render, value};
use crate::bytes::{Bytes, Output};
use crate::error::{Error, Result};
use crate::layout::segments::Cutter;
use crate::printable::write_hex;
use std::ops::Range;
use std::str::from_utf8;

/// The bytes of a value that one item shows.
const BLOCK: u64 = 64 << 10;

/// A string of the bytes in a part of a body, written as a sequence of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongString {
    data: Range<u64>,
    /// Whether it is text; if not, it is hexadecimal digits.
    text: bool,
}

impl LongString {
    /// The bytes in `data` as hexadecimal digits.
    pub fn hex(data: Range<u64>) -> LongString {
        LongString { data, text: false }
    }

    /// The bytes in `data` as text if they are UTF-8, else as hexadecimal digits.
    pub fn text(body: &dyn Bytes, data: Range<u64>) -> Result<LongString> {
        let text = is_utf8(body, &data)?;
        Ok(LongString { data, text })
    }

    /// Number of items; at least 1.
    pub fn count(&self) -> u64 {
        (self.data.end - self.data.start).div_ceil(BLOCK).max(1)
    }

    /// Passes the approximate lengths of the items to `cutter`.
    pub fn cut(&self, cutter: &mut Cutter) -> Result<()> {
        cutter.items(self.count(), if self.text { BLOCK } else { 2 * BLOCK })
    }

    /// Appends the items in `items`. The first and the last item include the quotes.
    pub fn write(&self, body: &dyn Bytes, items: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let (before, after): (&[u8], &[u8]) = if self.text { (b"\"", b"\"") } else { value::HEX };
        if items.start == 0 {
            out.extend_from_slice(before);
        }
        let mut bytes = Output::new();
        for item in items.clone() {
            let start = self.data.start + item * BLOCK;
            let end = start.saturating_add(BLOCK).min(self.data.end);
            bytes.clear();
            if !self.text {
                body.read(start..end, &mut bytes)?;
                write_hex(&bytes, out);
                continue;
            }
            // A character belongs to the item in which it begins.
            let ahead = end.saturating_add(3).min(self.data.end);
            body.read(start..ahead, &mut bytes)?;
            let continues = |byte: &u8| byte & 0xC0 == 0x80;
            let from = match item {
                0 => 0,
                _ => bytes.iter().take_while(|byte| continues(byte)).count(),
            };
            let length = (end - start) as usize;
            let more = bytes[length..].iter();
            let to = length + more.take_while(|byte| continues(byte)).count();
            let part = from_utf8(&bytes[from..to])
                .map_err(|_| Error::corrupt("the text changed while it was read"))?;
            let quote = out.len();
            render::write_string(out, part);
            out.pop();
            out.remove(quote);
        }
        if items.end >= self.count() {
            out.extend_from_slice(after);
        }
        Ok(())
    }
}

fn is_utf8(body: &dyn Bytes, data: &Range<u64>) -> Result<bool> {
    let mut bytes = Output::new();
    let mut at = data.start;
    while at < data.end {
        let end = at.saturating_add(BLOCK).min(data.end);
        body.read(at..end, &mut bytes)?;
        at = end;
        let valid = match from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            Err(_) => return Ok(false),
        };
        // The rest is the beginning of a character.
        bytes.write(|bytes| drop(bytes.drain(..valid)));
    }
    Ok(bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::{CellValNum, Datatype};

    #[test]
    fn text_in_pieces_is_the_text() {
        let mut text = String::new();
        for i in 0..60_000 {
            text.push_str(["a", "\"", "ü", "€", "😀", "\n", "\u{1}"][i * i % 7]);
        }
        for cut in [0, 1, 2, 3] {
            let mut bytes = text.as_bytes()[..text.len() - cut].to_vec();
            let expected = |bytes: &[u8]| {
                let mut out = Vec::new();
                value::write_cell(&mut out, Datatype::StringUtf8, CellValNum::Var, bytes);
                out
            };
            bytes.splice(0..0, b"before".iter().copied());
            let whole = bytes.len() as u64;
            let string = LongString::text(&bytes, 6..whole).unwrap();
            assert!(string.count() > 1);
            let mut out = Vec::new();
            for item in 0..string.count() {
                string.write(&bytes, item..item + 1, &mut out).unwrap();
            }
            assert!(out == expected(&bytes[6..]));
            let mut at_once = Vec::new();
            string.write(&bytes, 0..string.count(), &mut at_once).unwrap();
            assert!(out == at_once);
        }
    }
}
