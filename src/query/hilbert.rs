//! Positions of cells on the Hilbert curve.
//!
//! With D dimensions each coordinate is mapped to one of 2^b buckets, b = 63 / D. A number's bucket is
//! `(coordinate - low) / (high - low) * (2^b - 1)`, computed in f64 and rounded down; a text's bucket is made
//! of its first bytes. The curve is Skilling's ("Programming the Hilbert curve", 2004).
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/misc/hilbert.h>

use crate::format::datatype::Datatype;
use crate::format::scalar::Scalar;
use crate::format::schema::{Dimension, Schema};

/// The curve over the domain of an array.
pub(crate) struct Curve {
    bits: u32,
    axes: Vec<Axis>,
    /// The bits of each byte value, spread to a distance of the number of dimensions.
    spread: [u64; 256],
}

/// The mapping of one dimension's coordinates to buckets.
enum Axis {
    /// From the first bytes.
    Text,
    /// From the distance to the lower bound of the domain. Bounds are None if the type is not numeric.
    Number {
        datatype: Datatype,
        lo: Option<f64>,
        hi: Option<f64>,
    },
}

/// A coordinate or bound as libtiledb computes with it: first rounded to f64.
fn number(datatype: Datatype, bytes: &[u8]) -> Option<f64> {
    Scalar::read(datatype, bytes).map(Scalar::float)
}

impl Axis {
    fn new(dimension: &Dimension) -> Axis {
        match &dimension.domain {
            Some(domain) if !dimension.cell_val_num.is_var() => Axis::Number {
                datatype: dimension.datatype,
                lo: number(dimension.datatype, &domain.lo),
                hi: number(dimension.datatype, &domain.hi),
            },
            _ => Axis::Text,
        }
    }

    /// The bucket of a coordinate, of 2^`bits`. A coordinate outside the domain, or whose distance is not
    /// finite, may get a bucket that does not exist.
    fn bucket(&self, bits: u32, value: &[u8]) -> u64 {
        match self {
            // Bytes that are not ASCII set all higher bits, as signed chars do.
            Axis::Text => {
                let bytes = value.iter().take(8).zip((0..64).step_by(8).rev());
                let text = bytes.fold(0, |text, (&byte, shift)| {
                    text | (i64::from(byte.cast_signed()) << shift).cast_unsigned()
                });
                text >> (64 - bits)
            }
            Axis::Number { .. } => self.distance(bits, value).map_or(0, truncated),
        }
    }

    /// A number's bucket before it is rounded.
    fn distance(&self, bits: u32, value: &[u8]) -> Option<f64> {
        let &Axis::Number { datatype, lo, hi } = self else {
            return None;
        };
        let (lo, hi) = (lo?, hi?);
        let largest = (1u64 << bits) - 1;
        Some((number(datatype, value)? - lo) / (hi - lo) * largest as f64)
    }

    /// Whether the bucket is the same on all machines.
    fn is_certain(&self, bits: u32, value: &[u8]) -> bool {
        match self {
            Axis::Text => value.iter().take(8).all(u8::is_ascii),
            Axis::Number { lo, hi, .. } => {
                let finite = |v: Option<f64>| v.is_some_and(f64::is_finite);
                let distance = self.distance(bits, value);
                let is_u64 = distance.is_some_and(|distance| distance > -1.0 && distance < BEYOND_U64);
                finite(lo.zip(*hi).map(|(lo, hi)| hi - lo)) && is_u64
            }
        }
    }
}

/// 2^64.
pub(super) const BEYOND_U64: f64 = 18_446_744_073_709_551_616.0;

/// A number rounded towards 0. One that u64 lacks is converted as libtiledb does on x86-64.
pub(super) fn truncated(number: f64) -> u64 {
    match number {
        _ if number.is_nan() => 1 << 63,
        BEYOND_U64.. => 0,
        ..0.0 => (number as i64).cast_unsigned(),
        number => number as u64,
    }
}

impl Curve {
    /// The curve over the domain of a schema. None for more than 63 dimensions.
    pub(crate) fn new(schema: &Schema) -> Option<Curve> {
        let count = u32::try_from(schema.dimensions.len()).ok()?;
        let bits = 63u32.checked_div(count).filter(|&bits| bits > 0)?;
        let mut spread = [0; 256];
        for (byte, spread) in spread.iter_mut().enumerate() {
            *spread = (0..bits.min(8)).fold(0, |spread, bit| {
                let set = byte as u64 >> bit & 1;
                spread | set << (bit * count)
            });
        }
        Some(Curve {
            bits,
            axes: schema.dimensions.iter().map(Axis::new).collect(),
            spread,
        })
    }

    /// Bits of a position.
    pub(crate) fn position_bits(&self) -> u32 {
        self.bits * self.axes.len() as u32
    }

    /// The bucket of a coordinate of dimension `i`.
    pub(crate) fn bucket(&self, i: usize, value: &[u8]) -> u64 {
        self.axes[i].bucket(self.bits, value)
    }

    /// The position of a cell on the curve. None if a distance is not finite, or for text that is not ASCII:
    /// then the position depends on the machine that wrote the cell.
    pub(crate) fn certain_place(&self, cell: &[&[u8]]) -> Option<u64> {
        let certain = |(axis, value): (&Axis, &&[u8])| axis.is_certain(self.bits, value);
        if cell.len() != self.axes.len() || !self.axes.iter().zip(cell).all(certain) {
            return None;
        }
        let axes = self.axes.iter().zip(cell);
        let mut buckets: Vec<u64> = axes.map(|(axis, v)| axis.bucket(self.bits, v)).collect();
        let mut place = [0];
        self.positions(&mut buckets, &mut place);
        let [place] = place;
        Some(place)
    }

    /// The positions of cells on the curve, given the buckets of their coordinates: those of the first
    /// dimension, then those of the second, and so on. Overwrites the buckets.
    pub(crate) fn positions(&self, buckets: &mut [u64], places: &mut [u64]) {
        let cells = places.len();
        if cells == 0 {
            return;
        }
        transpose(buckets, cells, self.bits);
        places.fill(0);
        let count = self.axes.len();
        for (i, axis) in buckets.chunks_exact(cells).take(count).enumerate() {
            let last = count - 1 - i;
            for byte in 0..self.bits.div_ceil(8) as usize {
                let mask = ((1u64 << self.bits) - 1) >> (8 * byte) & 0xFF;
                let shift = 8 * byte * count + last;
                for (place, axis) in places.iter_mut().zip(axis) {
                    let byte = (axis >> (8 * byte) & mask) as usize;
                    *place |= self.spread[byte] << shift;
                }
            }
        }
    }
}

/// Turns coordinates into the transpose of their position on the curve: `cells` coordinates of the first
/// dimension, then those of the next.
fn transpose(axes: &mut [u64], cells: usize, bits: u32) {
    let (first, rest) = axes.split_at_mut(cells.min(axes.len()));
    for bit in (1..bits).rev() {
        let low = (1u64 << bit) - 1;
        // All ones where the bit is set.
        let set = |axis: u64| (axis >> bit & 1).wrapping_neg();
        for first in first.iter_mut() {
            *first ^= low & set(*first);
        }
        for axis in rest.chunks_exact_mut(cells) {
            for (first, axis) in first.iter_mut().zip(axis) {
                let set = set(*axis);
                let change = (*first ^ *axis) & low & !set;
                *first ^= low & set | change;
                *axis ^= change;
            }
        }
    }
    // Gray code.
    let mut before: &[u64] = first;
    for axis in rest.chunks_exact_mut(cells) {
        for (axis, before) in axis.iter_mut().zip(before) {
            *axis ^= before;
        }
        before = axis;
    }
    // Buckets that do not exist have more than `bits` bits, which count as well.
    let mut changes = before.to_vec();
    for shift in [1, 2, 4, 8, 16, 32].into_iter().filter(|shift| *shift < bits) {
        changes.iter_mut().for_each(|change| *change ^= *change >> shift);
    }
    changes
        .iter_mut()
        .zip(before)
        .for_each(|(change, last)| *change ^= last);
    for axis in axes.chunks_exact_mut(cells) {
        for (axis, change) in axis.iter_mut().zip(&changes) {
            *axis ^= change;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::range::Range;
    use crate::format::testing::{field, schema, var};

    #[test]
    fn the_example_of_the_paper() {
        // Skilling's example: (5, 10, 20) in 5 bits has position 7865.
        let mut axes = [5, 10, 20];
        transpose(&mut axes, 1, 5);
        assert_eq!(axes, [0b01010, 0b01110, 0b11011]);
    }

    #[test]
    fn neighbours_on_the_curve_are_neighbours_in_space() {
        let mut cells: Vec<(u64, [i64; 2])> = Vec::new();
        for x in 0..8u64 {
            for y in 0..8u64 {
                let mut axes = [x, y];
                transpose(&mut axes, 1, 3);
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
        let place = |v: u32| curve.certain_place(&[&v.to_le_bytes()]).unwrap();
        assert!(place(0) < place(1) && place(1) < place(237) && place(237) < place(238));
    }

    /// The places are those of libtiledb's `Hilbert::coords_to_hilbert`.
    #[test]
    fn places_outside_of_the_domain() {
        let dimensions = ["x", "y"].map(|name| field(name, Datatype::Float64));
        let mut schema = schema(22, true, &dimensions, &[]);
        let number = |number: f64| number.to_le_bytes().to_vec();
        for dimension in &mut schema.dimensions {
            dimension.domain = Some(Range {
                lo: number(0.0),
                hi: number(100.0),
            });
        }
        let curve = Curve::new(&schema).unwrap();
        for (x, y, place, is_certain) in [
            (40.00, 60.00, 2_260_630_401_189_896_030, true),
            (100.50, 3.00, 4_607_262_567_422_556_781, true),
            (3.00, 100.50, 4_610_105_397_524_451_559, true),
            (-0.25, 60.00, 2_061_713_218_752_599_686, false),
            (60.00, -0.25, 1_627_634_781_423_664_134, false),
            (-7.00, 250.00, 4_362_919_172_798_188_599, false),
            (1e6, 1e6, 3_074_457_345_481_288_192, true),
        ] {
            let cell = [number(x), number(y)];
            let mut buckets = [0, 1].map(|axis| curve.bucket(axis, &cell[axis]));
            let mut found = [0];
            curve.positions(&mut buckets, &mut found);
            assert_eq!(found, [place], "{x} {y}");
            let found = curve.certain_place(&[&cell[0], &cell[1]]);
            assert_eq!(found, is_certain.then_some(place), "{x} {y}");
        }
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
        let bucket = |v: i64| curve.bucket(0, &v.to_le_bytes());
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
        let number = |v: i8| curve.bucket(0, &[v.cast_unsigned()]);
        let largest = (1 << 31) - 1;
        assert_eq!((number(-100), number(0), number(100)), (0, largest / 2, largest));
        assert_eq!(number(-101), (-10_737_418i64).cast_unsigned());
        let text = |v: &[u8]| curve.bucket(1, v);
        assert_eq!(text(b""), 0);
        assert_eq!(text(b"ab"), 0x6162_0000 >> 1);
        assert!(text(b"ab") < text(b"b"));
        assert_eq!(text(b"b\x80"), 0xFF80_0000 >> 1);
        assert_eq!(text(b"12345678\x80"), 0x3132_3334 >> 1);
        assert_eq!(curve.certain_place(&[&[0], b"b\x80"]), None);
        assert!(curve.certain_place(&[&[0], b"ab"]).unwrap() < 1 << 62);
        assert_eq!(curve.certain_place(&[&[0]]), None);
    }
}
