//! Transpositions of bytes and bits, for the shuffle filters.
//!
//! The loops handle pairs of planes or words of eight bytes, so that the compiler vectorises them.
//!
//! Example: the planes `1 3 5` and `2 4 6` interleave to `1 2 3 4 5 6`.

use std::array;

/// Writes element 0 of each of the `width` planes in `planes`, then element 1 of each, and so on. Elements
/// are bytes; `width` is 1, 2, 4 or 8; `out` has the length of `planes`, a multiple of `width`.
pub(super) fn interleave(width: usize, planes: &[u8], out: &mut [u8]) {
    let elements = planes.len() / width;
    if elements == 0 {
        return;
    }
    match width {
        2 => {
            let [a, b] = split(planes, elements);
            zip::<1>(a, b, out);
        }
        4 => interleave4(planes, elements, out),
        8 => interleave8(planes, elements, out),
        _ => out.copy_from_slice(planes),
    }
}

/// Interleaves two pairs of planes to planes of two bytes per element, and these to the output, block by
/// block.
fn interleave4(planes: &[u8], elements: usize, out: &mut [u8]) {
    const BLOCK: usize = 512;
    let [a, b, c, d] = split(planes, elements);
    let inputs = a
        .chunks(BLOCK)
        .zip(b.chunks(BLOCK))
        .zip(c.chunks(BLOCK).zip(d.chunks(BLOCK)));
    let mut pairs = [[0; 2 * BLOCK]; 2];
    for (out, ((a, b), (c, d))) in out.chunks_mut(4 * BLOCK).zip(inputs) {
        let [low, high] = &mut pairs;
        let (low, high) = (&mut low[..2 * a.len()], &mut high[..2 * a.len()]);
        zip::<1>(a, b, low);
        zip::<1>(c, d, high);
        zip::<2>(low, high, out);
    }
}

/// Interleaves eight planes by transposing eight bytes of each at a time. Never inlined: the compiler would
/// not vectorise the loop.
#[inline(never)]
fn interleave8(planes: &[u8], elements: usize, out: &mut [u8]) {
    let planes = split::<8>(planes, elements);
    for (out, words) in out.as_chunks_mut::<64>().0.iter_mut().zip(columns(planes)) {
        store(transpose_bytes(words), out);
    }
    let whole = elements / 8 * 8;
    let tails = planes.map(|plane| &plane[whole..]);
    interleave_tail(tails, &mut out[8 * whole..]);
}

/// Writes elements of `W` bytes (1 or 2) from `a` and `b` in turn.
#[inline(always)]
fn zip<const W: usize>(a: &[u8], b: &[u8], out: &mut [u8]) {
    let elements = a.as_chunks::<W>().0.iter().zip(b.as_chunks::<W>().0);
    let pairs = out.as_chunks_mut::<W>().0.as_chunks_mut::<2>().0;
    for (pair, (a, b)) in pairs.iter_mut().zip(elements) {
        *pair = [*a, *b];
    }
}

/// Interleaves the last bytes, fewer than eight of each plane.
fn interleave_tail(planes: [&[u8]; 8], out: &mut [u8]) {
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *out = planes.map(|plane| plane[i]);
    }
}

/// Undoes the transposition of the bits of bytes. `rows` is eight rows of equal length: row k has bit k of
/// each byte, starting at the lowest bit of a row's byte. `out` has the length of `rows`, a multiple of 8.
pub(super) fn gather_bits(rows: &[u8], out: &mut [u8]) {
    let length = rows.len() / 8;
    if length == 0 {
        return;
    }
    let rows = split::<8>(rows, length);
    for (out, words) in out.as_chunks_mut::<64>().0.iter_mut().zip(columns(rows)) {
        store(transpose_bytes(transpose_bits(words)), out);
    }
    let whole = length / 8 * 8;
    let mut tail = [0; 64];
    let out = &mut out[8 * whole..];
    let mut words = [0; 8];
    for (word, row) in words.iter_mut().zip(rows) {
        let mut bytes = [0; 8];
        for (byte, stored) in bytes.iter_mut().zip(&row[whole..]) {
            *byte = *stored;
        }
        *word = u64::from_le_bytes(bytes);
    }
    store(transpose_bytes(transpose_bits(words)), &mut tail);
    for (out, byte) in out.iter_mut().zip(tail) {
        *out = byte;
    }
}

/// The first `N` runs of `length` bytes in `bytes`.
#[inline(always)]
fn split<const N: usize>(bytes: &[u8], length: usize) -> [&[u8]; N] {
    array::from_fn(|i| &bytes[i * length..(i + 1) * length])
}

/// The first eight bytes of each plane as words, then the next eight, and so on, without incomplete words.
#[inline(always)]
fn columns(planes: [&[u8]; 8]) -> impl Iterator<Item = [u64; 8]> {
    let [a, b, c, d, e, f, g, h] = planes.map(|plane| plane.as_chunks::<8>().0);
    let (ab, cd) = (a.iter().zip(b), c.iter().zip(d));
    let (ef, gh) = (e.iter().zip(f), g.iter().zip(h));
    ab.zip(cd)
        .zip(ef.zip(gh))
        .map(|(((a, b), (c, d)), ((e, f), (g, h)))| [a, b, c, d, e, f, g, h].map(|w| u64::from_le_bytes(*w)))
}

#[inline(always)]
fn store(words: [u64; 8], out: &mut [u8; 64]) {
    out.copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
}

/// Byte j of word i becomes byte i of word j, by swapping squares of 1, 2 and 4 bytes.
#[inline(always)]
fn transpose_bytes(words: [u64; 8]) -> [u64; 8] {
    let words = exchange::<1>(words, 8, 0x00FF_00FF_00FF_00FF);
    let words = exchange::<2>(words, 16, 0x0000_FFFF_0000_FFFF);
    exchange::<4>(words, 32, 0x0000_0000_FFFF_FFFF)
}

/// In each of the eight bytes of the words, bit j of word i becomes bit i of word j.
#[inline(always)]
fn transpose_bits(words: [u64; 8]) -> [u64; 8] {
    let words = exchange::<1>(words, 1, 0x5555_5555_5555_5555);
    let words = exchange::<2>(words, 2, 0x3333_3333_3333_3333);
    exchange::<4>(words, 4, 0x0F0F_0F0F_0F0F_0F0F)
}

/// In each pair of words that are `D` apart, swaps the bits in `mask` of the second with the bits of the
/// first that are `shift` higher.
#[inline(always)]
fn exchange<const D: usize>(mut words: [u64; 8], shift: u32, mask: u64) -> [u64; 8] {
    for i in 0..8 {
        if i & D == 0 {
            let change = ((words[i] >> shift) ^ words[i | D]) & mask;
            words[i | D] ^= change;
            words[i] ^= change << shift;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * i * 31 + i / 3) as u8).collect()
    }

    #[test]
    fn planes_interleave() {
        let mut out = [0; 6];
        interleave(2, &[1, 3, 5, 2, 4, 6], &mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6]);
        for width in [1, 2, 4, 8] {
            for elements in (0..70).chain([511, 512, 513, 1030]) {
                let planes = sample(width * elements);
                let mut out = vec![0; planes.len()];
                interleave(width, &planes, &mut out);
                for (i, byte) in out.iter().enumerate() {
                    assert_eq!(
                        *byte,
                        planes[i % width * elements + i / width],
                        "{width} {elements} {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn bits_gather() {
        for length in (0..40).chain([128, 1024]) {
            let rows = sample(8 * length);
            let mut out = vec![0; rows.len()];
            gather_bits(&rows, &mut out);
            for (i, byte) in out.iter().enumerate() {
                let expected = (0..8).fold(0, |b, k| b | ((rows[k * length + i / 8] >> (i % 8)) & 1) << k);
                assert_eq!(*byte, expected, "{length} {i}");
            }
        }
    }
}
