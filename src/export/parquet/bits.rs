//! Numbers packed with a fixed number of bits, lowest bit first, as pages have levels, booleans and indexes.

/// Appends numbers to bytes.
pub(super) struct Bits<'a> {
    out: &'a mut Vec<u8>,
    /// Bits not yet in `out`, and their number: less than 8 between calls.
    rest: u128,
    count: u32,
}

impl<'a> Bits<'a> {
    /// Appends to `out`, from a new byte on.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Bits {
            out,
            rest: 0,
            count: 0,
        }
    }

    /// Appends `value` with `width` bits; its higher bits must be 0.
    #[inline]
    pub(super) fn push(&mut self, value: u64, width: u64) {
        self.rest |= u128::from(value) << self.count;
        self.count += width as u32;
        while self.count >= 8 {
            self.out.push(self.rest as u8);
            self.rest >>= 8;
            self.count -= 8;
        }
    }

    /// Pads the last byte with zeros.
    pub(super) fn finish(self) {
        if self.count > 0 {
            self.out.push(self.rest as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_bit_comes_first() {
        let pack = |values: &[u64], width| {
            let mut out = Vec::new();
            let mut bits = Bits::new(&mut out);
            values.iter().for_each(|value| bits.push(*value, width));
            bits.finish();
            out
        };
        // The example of the format's description.
        assert_eq!(
            pack(&[0, 1, 2, 3, 4, 5, 6, 7], 3),
            [0b1000_1000, 0b1100_0110, 0b1111_1010]
        );
        assert_eq!(pack(&[1, 0, 1], 1), [0b101]);
        assert_eq!(
            pack(&[u64::MAX, 1], 64),
            [&[0xFF; 8][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat()
        );
        assert!(pack(&[], 5).is_empty());
    }
}
