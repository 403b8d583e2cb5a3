//! Places of cells on the Hilbert curve.
//!
//! With D dimensions each coordinate becomes one of 2^b buckets, b = 63 / D. A number's bucket is
//! `(coordinate - low) / (high - low) * (2^b - 1)`, all of it in f64, rounded down; a text's is made of its first bytes. The curve is Skilling's ("Programming the Hilbert curve", 2004).

use crate::format::datatype::{Datatype, Kind};
use crate::format::schema::{Dimension, Schema};

/// The curve over the domain of an array.
pub(super) struct Curve {
    bits: u32,
    dimensions: Vec<Dimension>,
}

/// A coordinate, or a bound of a domain, as libtiledb takes it into its computations: rounded to f64 before anything else.
fn number(datatype: Datatype, bytes: &[u8]) -> Option<f64> {
    macro_rules! number {
        ($type:ty) => {
            bytes
                .first_chunk()
                .map(|bytes| <$type>::from_le_bytes(*bytes))
        };
    }
    match (datatype.kind(), datatype.size()) {
        (Kind::Signed, 1) => number!(i8).map(f64::from),
        (Kind::Signed, 2) => number!(i16).map(f64::from),
        (Kind::Signed, 4) => number!(i32).map(f64::from),
        (Kind::Signed | Kind::Datetime | Kind::Time, 8) => number!(i64).map(|v| v as f64),
        (Kind::Unsigned, 1) => number!(u8).map(f64::from),
        (Kind::Unsigned, 2) => number!(u16).map(f64::from),
        (Kind::Unsigned, 4) => number!(u32).map(f64::from),
        (Kind::Unsigned, 8) => number!(u64).map(|v| v as f64),
        (Kind::Float, 4) => number!(f32).map(f64::from),
        (Kind::Float, 8) => number!(f64),
        _ => None,
    }
}

impl Curve {
    /// The curve over the domain of a schema. None for more dimensions than one has.
    pub(super) fn new(schema: &Schema) -> Option<Curve> {
        let count = u32::try_from(schema.dimensions.len()).ok()?;
        Some(Curve {
            bits: 63u32.checked_div(count).filter(|&bits| bits > 0)?,
            dimensions: schema.dimensions.clone(),
        })
    }

    /// Where a cell lies on the curve. None where a distance is not finite, and for text that is not ASCII: there
    /// it depends on the machine that wrote the cell.
    pub(super) fn place(&self, cell: &[&[u8]]) -> Option<u64> {
        let axes = self.dimensions.iter().zip(cell);
        let buckets: Option<Vec<u64>> = axes.map(|(d, v)| self.bucket(d, v)).collect();
        let mut axes = buckets.filter(|axes| axes.len() == self.dimensions.len())?;
        // A line is its own curve. Its last bucket is rounded up to 2^63, which takes one bit more than the others.
        if let [only] = axes.as_slice() {
            return Some(*only);
        }
        transpose(&mut axes, self.bits);
        let mut place = 0u64;
        for bit in (0..self.bits).rev() {
            for axis in &axes {
                place = place << 1 | (axis >> bit & 1);
            }
        }
        Some(place)
    }

    fn bucket(&self, dimension: &Dimension, value: &[u8]) -> Option<u64> {
        let largest = (1u64 << self.bits) - 1;
        let Some(domain) = dimension
            .domain
            .as_ref()
            .filter(|_| !dimension.cell_val_num.is_var())
        else {
            let bytes = (0..8).map(|i| value.get(i).copied().unwrap_or(0));
            let bytes: Vec<u8> = bytes.collect();
            if !bytes.is_ascii() {
                return None;
            }
            let text = bytes.iter().fold(0, |text, &byte| text << 8 | u64::from(byte));
            return Some(text >> (64 - self.bits));
        };
        let number = |bytes: &[u8]| number(dimension.datatype, bytes);
        let (lo, hi) = (number(&domain.lo)?, number(&domain.hi)?);
        let (distance, width) = (number(value)? - lo, hi - lo);
        if !width.is_finite() {
            return None;
        }
        let bucket = distance / width * largest as f64;
        // Rounding may lead one above the largest.
        bucket.is_finite().then_some(bucket as u64)
    }
}

/// Turns coordinates into the transpose of their place on the curve.
fn transpose(axes: &mut [u64], bits: u32) {
    let highest = 1u64 << bits.saturating_sub(1);
    let mut bit = highest;
    while bit > 1 {
        let low = bit - 1;
        if let Some((first, rest)) = axes.split_first_mut() {
            if *first & bit != 0 {
                *first ^= low;
            }
            for axis in rest {
                if *axis & bit != 0 {
                    *first ^= low;
                } else {
                    let change = (*first ^ *axis) & low;
                    *first ^= change;
                    *axis ^= change;
                }
            }
        }
        bit >>= 1;
    }
    // Gray code.
    let mut before = 0;
    for axis in axes.iter_mut() {
        *axis ^= before;
        before = *axis;
    }
    let mut change = 0;
    let mut bit = highest;
    while bit > 1 {
        if before & bit != 0 {
            change ^= bit - 1;
        }
        bit >>= 1;
    }
    for axis in axes {
        *axis ^= change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::range::Range;
    use crate::format::testing::{field, schema, var};

    #[test]
    fn the_example_of_the_paper() {
        // Skilling's own: (5, 10, 20) in 5 bits has the place 7865.
        let mut axes = [5, 10, 20];
        transpose(&mut axes, 5);
        assert_eq!(axes, [0b01010, 0b01110, 0b11011]);
    }

    #[test]
    fn neighbours_on_the_curve_are_neighbours_in_space() {
        let mut cells: Vec<(u64, [i64; 2])> = Vec::new();
        for x in 0..8u64 {
            for y in 0..8u64 {
                let mut axes = [x, y];
                transpose(&mut axes, 3);
                let place = (0..3).rev().fold(0, |place, bit| {
                    place << 2 | (axes[0] >> bit & 1) << 1 | (axes[1] >> bit & 1)
                });
                cells.push((place, [x as i64, y as i64]));
            }
        }
        cells.sort();
        for (i, pair) in cells.windows(2).enumerate() {
            assert_eq!(pair[0].0, i as u64);
            let ([x, y], [u, v]) = (pair[0].1, pair[1].1);
            assert_eq!((x - u).abs() + (y - v).abs(), 1, "{pair:?}");
        }
    }

    #[test]
    fn a_line_ends_at_its_last_bucket() {
        let mut schema = schema(22, true, &[field("x", Datatype::Uint32)], &[]);
        schema.dimensions[0].domain = Some(Range {
            lo: vec![0; 4],
            hi: 238u32.to_le_bytes().to_vec(),
        });
        let curve = Curve::new(&schema).unwrap();
        let place = |v: u32| curve.place(&[&v.to_le_bytes()]).unwrap();
        assert!(place(0) < place(1) && place(1) < place(237) && place(237) < place(238));
    }

    #[test]
    fn distances_are_those_of_rounded_numbers() {
        let mut schema = schema(
            22,
            true,
            &[field("x", Datatype::Int64), field("y", Datatype::Int8)],
            &[],
        );
        let lo = i64::MAX - 4000;
        schema.dimensions[0].domain = Some(Range {
            lo: lo.to_le_bytes().to_vec(),
            hi: (lo + 3000).to_le_bytes().to_vec(),
        });
        let curve = Curve::new(&schema).unwrap();
        let bucket = |v: i64| curve.bucket(&curve.dimensions[0], &v.to_le_bytes()).unwrap();
        // Numbers below 2^63 are multiples of 1024 in f64.
        assert_eq!(bucket(lo + 1), 0);
        assert_eq!(bucket(lo + 3000), (1 << 31) - 1);
    }

    #[test]
    fn buckets_of_numbers_and_texts() {
        let dimensions = [field("x", Datatype::Int8), var("s", Datatype::StringAscii)];
        let mut schema = schema(22, true, &dimensions, &[]);
        schema.dimensions[0].domain = Some(Range {
            lo: vec![(-100i8).cast_unsigned()],
            hi: vec![100],
        });
        let curve = Curve::new(&schema).unwrap();
        assert_eq!(curve.bits, 31);
        let number = |v: i8| curve.bucket(&curve.dimensions[0], &[v.cast_unsigned()]);
        let largest = (1 << 31) - 1;
        assert_eq!(
            (number(-100), number(0), number(100)),
            (Some(0), Some(largest / 2), Some(largest))
        );
        let text = |v: &[u8]| curve.bucket(&curve.dimensions[1], v).unwrap();
        assert_eq!(text(b""), 0);
        assert_eq!(text(b"ab"), 0x6162_0000 >> 1);
        assert!(text(b"ab") < text(b"b"));
        assert_eq!(curve.bucket(&curve.dimensions[1], b"b\x80"), None);
        assert!(curve.place(&[&[0], b"ab"]).unwrap() < 1 << 62);
        assert_eq!(curve.place(&[&[0]]), None);
    }
}
