//! Fixed-width little-endian integers, the elements that filters compute with.
//!
//! Filters compute modulo 2^(8 * width), where signedness makes no difference, so unsigned types serve for
//! all. Arrays of exactly the element's width let the compiler drop bounds checks and vectorise.
//!
//! Example: as `u16` elements, the bytes `01 00 02 01 FF` are 1 and 258, with a tail of one byte.

use crate::error::{Error, Result};

/// An unsigned integer of 1, 2, 4 or 8 bytes.
pub(super) trait Element: Copy + Default {
    /// The element's bytes, little-endian.
    type Bytes: Copy;
    /// Bytes of an element.
    const SIZE: usize;

    /// Whole elements from the front, and the remaining bytes.
    fn split(bytes: &[u8]) -> (&[Self::Bytes], &[u8]);
    /// [`Element::split`] for writing.
    fn split_mut(bytes: &mut [u8]) -> (&mut [Self::Bytes], &mut [u8]);
    fn load(bytes: &Self::Bytes) -> Self;
    fn store(self) -> Self::Bytes;
    /// The sum modulo 2^(8 * SIZE).
    fn plus(self, other: Self) -> Self;
    /// The difference modulo 2^(8 * SIZE).
    fn minus(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// `value` modulo 2^(8 * SIZE).
    fn truncate(value: u64) -> Self;
    /// The value zero-extended.
    fn widen(self) -> u64;
}

macro_rules! elements {
    ($($type:ty)*) => {$(
        impl Element for $type {
            type Bytes = [u8; size_of::<$type>()];
            const SIZE: usize = size_of::<$type>();

            #[inline(always)]
            fn split(bytes: &[u8]) -> (&[Self::Bytes], &[u8]) {
                bytes.as_chunks()
            }

            #[inline(always)]
            fn split_mut(bytes: &mut [u8]) -> (&mut [Self::Bytes], &mut [u8]) {
                bytes.as_chunks_mut()
            }

            #[inline(always)]
            fn load(bytes: &Self::Bytes) -> Self {
                Self::from_le_bytes(*bytes)
            }

            #[inline(always)]
            fn store(self) -> Self::Bytes {
                self.to_le_bytes()
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline(always)]
            fn truncate(value: u64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                self.into()
            }
        }
    )*};
}

elements!(u8 u16 u32 u64);

/// Evaluates an expression with `$element` as the unsigned type of `$width` bytes. For other widths, returns
/// an `Unsupported` error from the calling function.
macro_rules! by_width {
    ($width:expr, $element:ident => $body:expr) => {
        match $width {
            1 => {
                type $element = u8;
                $body
            }
            2 => {
                type $element = u16;
                $body
            }
            4 => {
                type $element = u32;
                $body
            }
            8 => {
                type $element = u64;
                $body
            }
            width => return Err($crate::filter::element::width_error(width)),
        }
    };
}
pub(super) use by_width;

/// The error for elements of a width that is not 1, 2, 4 or 8.
#[cold]
pub(super) fn width_error(width: usize) -> Error {
    Error::unsupported(format!(
        "this filter takes values of 1, 2, 4 or 8 bytes, found {width}"
    ))
}

/// Reserves room for `more` bytes at the end of `out`; `LimitExceeded` if there is no memory.
pub(super) fn reserve(out: &mut Vec<u8>, more: usize) -> Result<()> {
    out.try_reserve_exact(more)
        .map_err(|_| Error::limit(format!("out of memory: cannot allocate {more} bytes")))
}

/// Appends `length` zero bytes to `out` and returns them for overwriting. The caller must have checked
/// `length` against the input.
pub(super) fn extend_zeroed(out: &mut Vec<u8>, length: usize) -> Result<&mut [u8]> {
    let start = out.len();
    reserve(out, length)?;
    out.resize(start + length, 0);
    Ok(&mut out[start..])
}

/// The first allocation for output of `declared` bytes decoded from `input` bytes: all of a small length, and
/// for a large one at most an ordinary compression ratio.
pub(super) fn first_room(declared: usize, input: usize) -> usize {
    declared.min(MAX_TRUSTED.max(input.saturating_mul(64)))
}

/// The next allocation after `produced` bytes: output grows at most eightfold.
pub(super) fn more_room(declared: usize, produced: usize) -> usize {
    declared
        .saturating_sub(produced)
        .min(produced.saturating_mul(7).max(MAX_TRUSTED))
}

/// A declared length that may be allocated without further evidence, in bytes.
const MAX_TRUSTED: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_little_endian() {
        let bytes = [1, 0, 2, 1, 0xFF];
        let (elements, tail) = u16::split(&bytes);
        assert_eq!(elements.iter().map(u16::load).collect::<Vec<_>>(), [1, 258]);
        assert_eq!(tail, [0xFF]);
        assert_eq!(u8::truncate(0x1_02).plus(0xFF), 1);
        assert_eq!(u8::truncate(0).minus(1), 0xFF);
    }

    #[test]
    fn room_grows_with_what_is_produced() {
        assert_eq!(first_room(65536, 1), 65536);
        assert_eq!(first_room(1 << 30, 10), 1 << 20);
        assert_eq!(first_room(1 << 30, 1 << 20), 1 << 26);
        assert_eq!(more_room(1 << 30, 1 << 20), 7 << 20);
        assert_eq!(more_room(1 << 21, 1 << 20), 1 << 20);
    }
}
