//! SCALE_FLOAT: floats as scaled and shifted integers, which loses precision.
//!
//! | metadata | type |
//! |---|---|
//! | number of parts, stored length of each | u32, u32 each |
//!
//! A stored signed integer s decodes to `scale * s + offset`, computed in double precision, then rounded to
//! the float type of the data; s itself is rounded to that type first. Only the width of the type matters: 4
//! bytes are a FLOAT32, 8 a FLOAT64.
//!
//! Example, of FLOAT64 with scale 0.25, offset 1 and integers of 2 bytes: parts `01 00 00 00 | 06 00 00 00`
//! and data `02 00 03 00 f4 ff` are 1.5, 1.75 and -2.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filters/float_scale.md>

use super::element::{extend_zeroed, width_error};
use super::framing::{Limits, TABLE_BOUND, split};
use crate::cursor::Cursor;
use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy)]
pub(super) struct ScaleFloatOptions {
    pub scale: f64,
    pub offset: f64,
    /// Bytes of a stored integer.
    pub byte_width: u64,
}

/// Undoes the filter on `data` into the empty `out`, as floats of `width` bytes. `limit` is an upper bound of
/// the output in bytes.
pub(super) fn undo(
    metadata: &mut Cursor<'_>,
    options: ScaleFloatOptions,
    width: usize,
    data: &[u8],
    limit: u64,
    out: &mut Vec<u8>,
) -> Result<()> {
    let stored = match options.byte_width {
        1 | 2 | 4 | 8 => options.byte_width as usize,
        other => {
            return Err(Error::corrupt(format!(
                "found integers of {other} bytes; expected 1, 2, 4 or 8"
            )));
        }
    };
    if !matches!(width, 4 | 8) {
        return Err(width_error(width));
    }
    split(metadata, data, |part| {
        if !part.len().is_multiple_of(stored) {
            return Err(Error::corrupt(format!(
                "{} bytes are not a multiple of {stored}, the bytes of an integer",
                part.len()
            )));
        }
        let length = part.len() / stored * width;
        if out.len() as u64 + length as u64 > limit {
            return Err(Error::limit(format!(
                "{length} bytes of floats after {} are more than the {limit} possible",
                out.len()
            )));
        }
        scale(part, stored, options, width, extend_zeroed(out, length)?);
        Ok(())
    })
}

fn scale(part: &[u8], stored: usize, options: ScaleFloatOptions, width: usize, out: &mut [u8]) {
    let ScaleFloatOptions { scale, offset, .. } = options;
    macro_rules! scale {
        ($integer:ty => $float:ty) => {{
            let integers = part.as_chunks::<{ size_of::<$integer>() }>().0;
            let out = out.as_chunks_mut::<{ size_of::<$float>() }>().0;
            for (out, integer) in out.iter_mut().zip(integers) {
                let x = <$integer>::from_le_bytes(*integer) as $float;
                *out = ((scale * f64::from(x) + offset) as $float).to_le_bytes();
            }
        }};
    }
    match (stored, width) {
        (1, 4) => scale!(i8 => f32),
        (2, 4) => scale!(i16 => f32),
        (4, 4) => scale!(i32 => f32),
        (8, 4) => scale!(i64 => f32),
        (1, 8) => scale!(i8 => f64),
        (2, 8) => scale!(i16 => f64),
        (4, 8) => scale!(i32 => f64),
        (8, 8) => scale!(i64 => f64),
        _ => {}
    }
}

/// The most bytes that streams of these sizes can be encoded to.
pub(super) fn bound(before: Limits, width: usize, byte_width: u64) -> Limits {
    Limits {
        data: (before.data / width.max(1) as u64).saturating_mul(byte_width),
        metadata: before.metadata.saturating_add(TABLE_BOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn run(byte_width: u64, width: usize, part: u32, data: &[u8]) -> Result<Vec<u8>> {
        let options = ScaleFloatOptions {
            scale: 0.25,
            offset: 1.0,
            byte_width,
        };
        let metadata = [[1, 0, 0, 0], part.to_le_bytes()].concat();
        let mut out = vec![];
        undo(&mut Cursor::new(&metadata), options, width, data, 100, &mut out)?;
        Ok(out)
    }

    #[test]
    fn the_example() {
        assert_eq!(
            run(2, 8, 6, &[2, 0, 3, 0, 0xf4, 0xff]).unwrap(),
            [1.5f64, 1.75, -2.0].map(f64::to_le_bytes).as_flattened()
        );
    }

    #[test]
    fn every_width() {
        for stored in [1, 2, 4, 8] {
            let mut data = (-12i64).to_le_bytes()[..stored].to_vec();
            data.extend(&6i64.to_le_bytes()[..stored]);
            let length = data.len() as u32;
            assert_eq!(
                run(stored as u64, 4, length, &data).unwrap(),
                [-2f32, 2.5].map(f32::to_le_bytes).as_flattened()
            );
            assert_eq!(
                run(stored as u64, 8, length, &data).unwrap(),
                [-2f64, 2.5].map(f64::to_le_bytes).as_flattened()
            );
        }
    }

    #[test]
    fn integers_are_rounded_to_the_float_first() {
        let odd = (1i64 << 24) + 1;
        let expected = (0.25 * f64::from(odd as f32) + 1.0) as f32;
        assert_eq!(run(8, 4, 8, &odd.to_le_bytes()).unwrap(), expected.to_le_bytes());
        assert_eq!(expected, 4194305.0);
    }

    #[test]
    fn hostile_input_fails() {
        assert_eq!(run(3, 4, 3, &[0; 3]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            run(u64::MAX, 4, 3, &[0; 3]).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        assert_eq!(run(2, 2, 4, &[0; 4]).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(run(2, 4, 3, &[0; 3]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            run(1, 8, 13, &[0; 13]).unwrap_err().kind(),
            ErrorKind::LimitExceeded
        );
        assert_eq!(run(1, 8, 14, &[0; 13]).unwrap_err().kind(), ErrorKind::Truncated);
    }
}
