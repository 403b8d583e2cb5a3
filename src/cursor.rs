//! The bounds-checked reader through which all untrusted bytes are parsed.
//!
//! No method panics, none allocates more than the bytes that are there, and every failure names the field
//! that was being read and its byte offset. Integers are little-endian.

use crate::bytes::numbers;
use crate::error::{Error, Result};

/// A position in a slice of untrusted bytes.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    data: &'a [u8],
    position: usize,
    /// Offset of `data[0]` in what errors count from.
    base: u64,
}

macro_rules! integers {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $from:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&mut self, field: &str) -> Result<$type> {
                Ok(<$type>::$from(self.array(field)?))
            }
        )*
    };
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `data`; errors count bytes from there.
    pub fn new(data: &'a [u8]) -> Self {
        Self::with_base(data, 0)
    }

    /// A cursor at the start of `data`; errors count its first byte as byte `base`.
    pub fn with_base(data: &'a [u8], base: u64) -> Self {
        Cursor {
            data,
            position: 0,
            base,
        }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.data.len() - self.position
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Where the next byte lies, as errors count.
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(self.position as u64)
    }

    /// All bytes not yet read, which stay unread.
    pub fn rest(&self) -> &'a [u8] {
        &self.data[self.position..]
    }

    /// The next `length` bytes. `Truncated` when fewer are left.
    pub fn bytes(&mut self, length: u64, field: &str) -> Result<&'a [u8]> {
        let rest = self.rest();
        let slice = usize::try_from(length)
            .ok()
            .and_then(|n| rest.get(..n))
            .ok_or_else(|| {
                Error::truncated(format!("{length} bytes wanted, {} left", rest.len()))
                    .at(self.offset())
                    .in_part(format_args!("`{field}`"))
            })?;
        self.position += slice.len();
        Ok(slice)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N as u64, field)?);
        Ok(out)
    }

    integers! {
        /// One unsigned byte.
        u8: u8, from_le_bytes;
        /// Two bytes, little-endian.
        u16: u16, from_le_bytes;
        /// Four bytes, little-endian.
        u32: u32, from_le_bytes;
        /// Four bytes, little-endian two's complement.
        i32: i32, from_le_bytes;
        /// Eight bytes, little-endian.
        u64: u64, from_le_bytes;
        /// Four bytes, IEEE 754.
        f32: f32, from_le_bytes;
        /// Eight bytes, IEEE 754.
        f64: f64, from_le_bytes;
    }

    /// One byte, non-zero meaning true.
    pub fn bool(&mut self, field: &str) -> Result<bool> {
        Ok(self.u8(field)? != 0)
    }

    /// Checks a count that was just read against the bytes left, when each item takes at least `min_size`
    /// bytes (at least 1), so that it is safe to allocate for.
    pub fn check_count(&self, count: u64, min_size: usize, field: &str) -> Result<usize> {
        let most = (self.remaining() / min_size.max(1)) as u64;
        if count > most {
            return Err(Error::limit(format!(
                "a count of {count}, but the {} bytes left hold {most} at most",
                self.remaining()
            ))
            .at(self.offset())
            .in_part(format_args!("`{field}`")));
        }
        Ok(count as usize)
    }

    /// `count` little-endian u64.
    pub fn u64_list(&mut self, count: u64, field: &str) -> Result<Vec<u64>> {
        let count = self.check_count(count, 8, field)?;
        Ok(numbers(self.bytes(count as u64 * 8, field)?).collect())
    }

    /// A `Corrupt` error at the current position about `field`.
    pub fn corrupt(&self, field: &str, message: impl Into<String>) -> Error {
        Error::corrupt(message)
            .at(self.offset())
            .in_part(format_args!("`{field}`"))
    }

    /// Succeeds only when nothing is left to read.
    pub fn finish(&self) -> Result<()> {
        match self.remaining() {
            0 => Ok(()),
            n => Err(Error::corrupt(format!("{n} bytes are left over at the end")).at(self.offset())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn reads_in_order_and_names_what_is_missing() {
        let mut c = Cursor::with_base(&[1, 2, 0, 0, 0, 9], 100);
        assert_eq!(c.u8("a").unwrap(), 1);
        assert_eq!(c.u32("b").unwrap(), 2);
        let error = c.u64("capacity").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`capacity` at byte 105: 8 bytes wanted, 1 left"
        );
        assert_eq!(c.finish().unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(c.u8("c").unwrap(), 9);
        c.finish().unwrap();
    }

    #[test]
    fn counts_are_checked_before_they_are_used() {
        let mut c = Cursor::new(&[0; 16]);
        assert_eq!(
            c.u64_list(u64::MAX, "n").unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
        assert_eq!(c.u64_list(2, "n").unwrap(), [0, 0]);
        assert!(c.bytes(u64::MAX, "x").is_err());
    }
}
