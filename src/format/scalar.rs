//! A stored number of any datatype: read, compared, converted.
//!
//! Loops over many numbers call a macro once with their Rust type ([`with_number`]), so that nothing is
//! decided for each of them.

use super::datatype::{Datatype, Kind};
use std::cmp::Ordering;

/// A value of a datatype that is a number. Dates and times are signed; BOOL is its byte.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Scalar {
    Signed(i64),
    Unsigned(u64),
    Float32(f32),
    Float64(f64),
}

/// Calls a macro with the Rust type of a datatype's integers, or another expression if it has none.
macro_rules! with_integer {
    ($datatype:expr, $call:ident, $otherwise:expr) => {
        match ($datatype.kind(), $datatype.size()) {
            (Kind::Signed, 1) => $call!(i8),
            (Kind::Signed, 2) => $call!(i16),
            (Kind::Signed, 4) => $call!(i32),
            (Kind::Signed | Kind::Datetime | Kind::Time, _) => $call!(i64),
            (Kind::Unsigned | Kind::Bool, 1) => $call!(u8),
            (Kind::Unsigned, 2) => $call!(u16),
            (Kind::Unsigned, 4) => $call!(u32),
            (Kind::Unsigned, _) => $call!(u64),
            _ => $otherwise,
        }
    };
}

/// Calls a macro with the Rust type of a datatype's numbers, or another expression if it has none.
macro_rules! with_number {
    ($datatype:expr, $call:ident, $otherwise:expr) => {
        match $datatype {
            Datatype::Float32 => $call!(f32),
            Datatype::Float64 => $call!(f64),
            _ => $crate::format::scalar::with_integer!($datatype, $call, $otherwise),
        }
    };
}

pub(crate) use {with_integer, with_number};

macro_rules! from {
    ($($variant:ident: $($number:ty),*;)*) => {$($(
        impl From<$number> for Scalar {
            fn from(number: $number) -> Scalar {
                Scalar::$variant(number.into())
            }
        }
    )*)*};
}

from! {
    Signed: i8, i16, i32, i64;
    Unsigned: u8, u16, u32, u64;
    Float32: f32;
    Float64: f64;
}

impl Scalar {
    /// The value in little-endian `bytes`. None if they are not the size of one, and for text and opaque
    /// bytes.
    pub fn read(datatype: Datatype, bytes: &[u8]) -> Option<Scalar> {
        macro_rules! number {
            ($type:ty) => {
                Some(<$type>::from_le_bytes(bytes.try_into().ok()?).into())
            };
        }
        with_number!(datatype, number, None)
    }

    /// The integer; None for a float.
    pub fn integer(self) -> Option<i128> {
        match self {
            Scalar::Signed(number) => Some(number.into()),
            Scalar::Unsigned(number) => Some(number.into()),
            Scalar::Float32(_) | Scalar::Float64(_) => None,
        }
    }

    /// The number, rounded to the nearest that f64 has.
    pub fn float(self) -> f64 {
        match self {
            Scalar::Signed(number) => number as f64,
            Scalar::Unsigned(number) => number as f64,
            Scalar::Float32(number) => number.into(),
            Scalar::Float64(number) => number,
        }
    }

    /// Compares values of one datatype: floats by IEEE 754. None for a NaN.
    pub fn order(self, other: Scalar) -> Option<Ordering> {
        match (self.integer(), other.integer()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => self.float().partial_cmp(&other.float()),
        }
    }

    /// The bits of an integer of a datatype, zero-extended. Tile extents are read so: they may exceed the
    /// maximum of a signed type. None if `bytes` are not an integer of the type.
    pub fn bits(datatype: Datatype, bytes: &[u8]) -> Option<u64> {
        let integer = Scalar::read(datatype, bytes)?.integer()?;
        Some(integer as u64 & datatype.mask())
    }

    /// The same number in another datatype, little-endian. None if an integer type does not have it, if it
    /// becomes infinite, and for text and opaque bytes.
    pub fn to(self, datatype: Datatype) -> Option<Vec<u8>> {
        let integer = || match self.integer() {
            Some(integer) => Some(integer),
            // The cast saturates far outside of the types.
            None => Some(self.float()).filter(|v| *v == v.trunc()).map(|v| v as i128),
        };
        macro_rules! number {
            ($type:ty) => {
                Some(<$type>::try_from(integer()?).ok()?.to_le_bytes().to_vec())
            };
        }
        match datatype {
            Datatype::Float64 => Some(self.float().to_le_bytes().to_vec()),
            Datatype::Float32 => {
                let (wide, narrow) = (self.float(), self.float() as f32);
                (narrow.is_infinite() == wide.is_infinite()).then(|| narrow.to_le_bytes().to_vec())
            }
            _ => with_integer!(datatype, number, None),
        }
    }
}

/// The INT64 in little-endian `bytes`; None if they are not the size of one.
pub fn int64(bytes: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Datatype::*;

    #[test]
    fn every_datatype_is_a_number_or_has_none() {
        for &datatype in Datatype::ALL {
            let ones = vec![0xFF; datatype.size()];
            let expected = match datatype.kind() {
                Kind::Signed | Kind::Datetime | Kind::Time => Some(-1),
                Kind::Unsigned | Kind::Bool => Some(i128::from(datatype.mask())),
                Kind::Float | Kind::Text | Kind::Bytes => None,
            };
            let read = Scalar::read(datatype, &ones);
            assert_eq!(read.and_then(Scalar::integer), expected, "{datatype:?}");
            assert_eq!(
                read.is_some(),
                !matches!(datatype.kind(), Kind::Text | Kind::Bytes)
            );
            assert_eq!(Scalar::read(datatype, &ones[1..]), None);
            assert_eq!(Scalar::read(datatype, &[ones.clone(), vec![0]].concat()), None);
            assert_eq!(Scalar::bits(datatype, &ones), expected.map(|_| datatype.mask()));
            if let Some(read) = read.filter(|_| datatype.kind() != Kind::Float) {
                assert_eq!(read.to(datatype), Some(ones));
            }
        }
        assert_eq!(
            Scalar::read(Float32, &0.1f32.to_le_bytes()),
            Some(Scalar::Float32(0.1))
        );
        assert_eq!(
            Scalar::read(Float64, &0.1f64.to_le_bytes()),
            Some(Scalar::Float64(0.1))
        );
    }

    #[test]
    fn numbers_compare_as_their_type_does() {
        let less = Some(Ordering::Less);
        assert_eq!(Scalar::Signed(-1).order(Scalar::Signed(0)), less);
        // As f64 these are equal.
        assert_eq!(
            Scalar::Unsigned(u64::MAX - 1).order(Scalar::Unsigned(u64::MAX)),
            less
        );
        assert_eq!(Scalar::Float32(-0.5).order(Scalar::Float32(0.0)), less);
        assert_eq!(Scalar::Float64(f64::NAN).order(Scalar::Float64(0.0)), None);
        assert_eq!(
            Scalar::Float64(-0.0).order(Scalar::Float64(0.0)),
            Some(Ordering::Equal)
        );
    }

    #[test]
    fn a_number_is_converted_only_if_the_other_type_has_it() {
        assert_eq!(Scalar::Signed(-1).to(Int8), Some(vec![0xFF]));
        assert_eq!(Scalar::Signed(-1).to(Uint8), None);
        assert_eq!(Scalar::Unsigned(255).to(Int8), None);
        assert_eq!(Scalar::Unsigned(u64::MAX).to(Int64), None);
        assert_eq!(Scalar::Float64(255.0).to(Uint8), Some(vec![255]));
        assert_eq!(Scalar::Float64(0.5).to(Int32), None);
        assert_eq!(Scalar::Float64(f64::NAN).to(Int32), None);
        assert_eq!(Scalar::Float64(1e300).to(Int64), None);
        assert_eq!(Scalar::Float64(1e300).to(Float32), None);
        assert_eq!(
            Scalar::Float64(f64::INFINITY).to(Float32),
            Some(f32::INFINITY.to_le_bytes().to_vec())
        );
        assert_eq!(Scalar::Signed(3).to(Float32), Some(3f32.to_le_bytes().to_vec()));
        assert_eq!(Scalar::Signed(3).to(Blob), None);
    }
}
