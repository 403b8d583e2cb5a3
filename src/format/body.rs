//! The unfiltered body of a generic tile, read by ranges, so that parsing a body of any size takes little
//! memory.

use crate::bytes::{Bytes, Output, numbers};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use std::ops::Range;

/// The most bytes of a listed value, which has to be in memory whole.
pub const MAX_VALUE: u64 = 8 << 20;

/// Bytes of a read-ahead.
const WINDOW: u64 = 16 << 10;

/// A position in a body, with a window of the bytes that follow: a [`Cursor`] over a body. No method panics,
/// and every error names the field and its offset in the body.
pub struct BodyCursor<'a> {
    body: &'a dyn Bytes,
    /// Offset of the first byte of the window.
    start: u64,
    window: Output,
    /// Bytes of the window already read.
    used: usize,
}

impl<'a> BodyCursor<'a> {
    /// A cursor at the start of `body`.
    pub fn new(body: &'a dyn Bytes) -> Self {
        BodyCursor {
            body,
            start: 0,
            window: Output::new(),
            used: 0,
        }
    }

    /// The offset in the body of the next byte.
    pub fn offset(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> u64 {
        self.body.len() - self.offset()
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    fn check(&self, length: u64, field: &str) -> Result<()> {
        let left = self.remaining();
        if length > left {
            return Err(Error::truncated(format!("{length} bytes wanted, {left} left"))
                .at(self.offset())
                .in_part(format_args!("`{field}`")));
        }
        Ok(())
    }

    /// The next `length` bytes, read into memory, so only for short fields. `Truncated` if fewer are left.
    pub fn bytes(&mut self, length: u64, field: &str) -> Result<&[u8]> {
        self.check(length, field)?;
        let wanted = length as usize;
        if self.window.len() - self.used < wanted {
            let start = self.offset();
            let end = start + length.max(WINDOW).min(self.remaining());
            self.start = start;
            self.used = 0;
            self.window.clear();
            self.body.read(start..end, &mut self.window)?;
        }
        let from = self.used;
        self.used = from + wanted;
        Ok(&self.window[from..self.used])
    }

    /// Skips the next `length` bytes and returns their range. `Truncated` if fewer are left.
    pub fn skip(&mut self, length: u64, field: &str) -> Result<Range<u64>> {
        self.check(length, field)?;
        let start = self.offset();
        let end = start + length;
        match usize::try_from(length) {
            Ok(length) if length <= self.window.len() - self.used => self.used += length,
            _ => {
                self.start = end;
                self.used = 0;
                self.window.clear();
            }
        }
        Ok(start..end)
    }

    /// One unsigned byte.
    pub fn u8(&mut self, field: &str) -> Result<u8> {
        Cursor::new(self.bytes(1, field)?).u8(field)
    }

    /// One byte; not 0 means true.
    pub fn bool(&mut self, field: &str) -> Result<bool> {
        Ok(self.u8(field)? != 0)
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self, field: &str) -> Result<u32> {
        Cursor::new(self.bytes(4, field)?).u32(field)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self, field: &str) -> Result<u64> {
        Cursor::new(self.bytes(8, field)?).u64(field)
    }

    /// Checks a count that was just read against the bytes left, if each item takes at least `min_size` bytes
    /// (at least 1).
    pub fn check_count(&self, count: u64, min_size: u64, field: &str) -> Result<()> {
        let left = self.remaining();
        let most = left / min_size.max(1);
        if count > most {
            return Err(Error::limit(format!(
                "a count of {count}, but the {left} bytes left hold {most} at most"
            ))
            .at(self.offset())
            .in_part(format_args!("`{field}`")));
        }
        Ok(())
    }

    /// A `Corrupt` error at the current position about `field`.
    pub fn corrupt(&self, field: &str, message: impl Into<String>) -> Error {
        Error::corrupt(message)
            .at(self.offset())
            .in_part(format_args!("`{field}`"))
    }

    /// An error if bytes are left.
    pub fn finish(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            n => Err(Error::corrupt(format!("{n} bytes are left over at the end")).at(self.offset())),
        }
    }
}

/// The u64 items in `range` of the list that starts at offset `start` of `body`.
pub fn u64_items(body: &dyn Bytes, start: u64, range: Range<u64>, scratch: &mut Output) -> Result<Vec<u64>> {
    let place = |index: u64| index.checked_mul(8).and_then(|n| n.checked_add(start));
    let (Some(from), Some(to)) = (place(range.start), place(range.end)) else {
        return Err(Error::limit(format!("item {} of the list lies beyond byte 2^64", range.end)).at(start));
    };
    scratch.clear();
    body.read(from..to, scratch)?;
    Ok(numbers(scratch).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_window_moves_over_the_body_and_no_length_is_believed() {
        let mut bytes: Vec<u8> = Vec::new();
        for i in 0..10_000u64 {
            bytes.extend(i.to_le_bytes());
        }
        let mut c = BodyCursor::new(&bytes);
        assert_eq!(c.u64("n").unwrap(), 0);
        assert_eq!(c.skip(8 * 5000 - 8, "skipped").unwrap(), 8..40_000);
        assert_eq!(c.u64("n").unwrap(), 5000);
        assert_eq!(c.bytes(32_000, "long").unwrap(), &bytes[40_008..72_008]);
        assert_eq!(c.offset(), 72_008);
        assert_eq!(c.u32("half").unwrap(), 9001);
        let error = c.bytes(u64::MAX, "text").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        assert!(error.to_string().contains("7988 left"), "{error}");
        assert!(c.skip(7989, "rest").is_err());
        assert_eq!(
            c.check_count(1000, 8, "n").unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
        assert!(c.finish().is_err());
        c.skip(7988, "rest").unwrap();
        assert!(c.is_empty());
        c.finish().unwrap();
        assert!(c.u8("after").is_err());
    }
}
