//! Bob Jenkins' lookup3, the checksum of HDF5's metadata.

/// `hashlittle` of `bytes` with the initial value 0.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    let mut state = [0xdead_beef_u32.wrapping_add(bytes.len() as u32); 3];
    // The last 1 to 12 bytes are mixed by `finish`.
    let head = bytes.len().saturating_sub(1) / 12 * 12;
    let (head, tail) = bytes.split_at(head);
    for block in head.as_chunks::<12>().0 {
        add(&mut state, block);
        mix(&mut state);
    }
    if !tail.is_empty() {
        add(&mut state, tail);
        finish(&mut state);
    }
    state[2]
}

/// Adds up to 12 bytes as three little-endian words.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    for (word, bytes) in state.iter_mut().zip(bytes.chunks(4)) {
        let value = bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u32::from(*byte));
        *word = word.wrapping_add(value);
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    // x -= z; x ^= z rotated; z += y, with the three words in turn.
    let turn = |x: &mut u32, y: u32, z: &mut u32, bits: u32| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(bits);
        *z = z.wrapping_add(y);
    };
    turn(a, *b, c, 4);
    turn(b, *c, a, 6);
    turn(c, *a, b, 8);
    turn(a, *b, c, 16);
    turn(b, *c, a, 19);
    turn(c, *a, b, 4);
}

fn finish([a, b, c]: &mut [u32; 3]) {
    let turn = |x: &mut u32, y: u32, bits: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
    turn(c, *b, 14);
    turn(a, *c, 11);
    turn(b, *a, 25);
    turn(c, *b, 16);
    turn(a, *c, 4);
    turn(b, *a, 14);
    turn(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::lookup3;

    #[test]
    fn hashes_are_those_of_the_reference() {
        // From the self-test of lookup3.c.
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
