//! The index of a chunked data set: HDF5's B-tree of version 1, computed where it is read.
//!
//! All chunks are there, of one size and in row-major order, so chunk i lies at `first + i * size`. A node
//! has up to 64 children. The nodes have one size; the root is the first, then each level in order, the
//! leaves last. All but the last node of a level are full.
//!
//! ```text
//!  0  54 52 45 45    TREE
//!  4  01             the tree of a data set
//!  5  u8             level, 0 = leaf
//!  6  u16            children
//!  8  u64, u64       addresses of the left and the right neighbour, ff×8 = none
//! 24  key, child, key, child, ..., key; zeros up to 64 children and 65 keys
//!
//! key    u32 bytes of the chunk, u32 0, u64 × rank first cell of the chunk, u64 0
//! child  u64         address of the chunk, or of the node below
//! ```
//!
//! The last key of a node is that of the next chunk; behind the last chunk, the first cell beyond.

use crate::bytes::{Bytes, Output};
use crate::error::Result;
use crate::export::chunks::Chunks;
use crate::export::hdf5::UNDEFINED_ADDRESS;
use std::ops::Range;

/// The most children of a node: twice what the superblock leaves at HDF5's default.
const CHILDREN: u64 = 64;

/// The index of the chunks of a data set.
pub(super) struct Index {
    chunks: Chunks,
    /// Bytes of a chunk.
    size: u32,
    /// The address of the root.
    root: u64,
    /// The address of the first chunk.
    first: u64,
    /// The number of nodes of each level, from the root.
    levels: Vec<u64>,
}

impl Index {
    /// The index at address `root` of `chunks` of `size` bytes each, the first at address `first`.
    pub(super) fn new(chunks: &Chunks, size: u32, root: u64, first: u64) -> Index {
        Index {
            levels: levels(chunks.count()),
            chunks: chunks.clone(),
            size,
            root,
            first,
        }
    }

    /// The address of node `node`.
    fn address(&self, node: u64) -> u64 {
        self.root + node * node_size(self.chunks.shape.len())
    }

    /// Appends node `node`.
    fn node(&self, node: u64, out: &mut Vec<u8>) {
        let end = out.len() + node_size(self.chunks.shape.len()) as usize;
        let (mut before, mut depth) = (0, 0);
        while node >= before + self.levels[depth] {
            before += self.levels[depth];
            depth += 1;
        }
        let (place, nodes) = (node - before, self.levels[depth]);
        let height = self.levels.len() - 1 - depth;
        let below = match self.levels.get(depth + 1) {
            Some(below) => *below,
            None => self.chunks.count(),
        };
        let children = place * CHILDREN..below.min((place + 1) * CHILDREN);
        let neighbour = |exists: bool, node: u64| match exists {
            true => self.address(node),
            false => UNDEFINED_ADDRESS,
        };
        out.extend_from_slice(b"TREE\x01");
        out.push(height as u8);
        out.extend_from_slice(&((children.end - children.start) as u16).to_le_bytes());
        out.extend_from_slice(&neighbour(place > 0, node.wrapping_sub(1)).to_le_bytes());
        out.extend_from_slice(&neighbour(place + 1 < nodes, node + 1).to_le_bytes());
        // Chunks below a child.
        let each = CHILDREN.pow(height as u32);
        for child in children.clone() {
            self.key(child * each, out);
            let address = match height {
                0 => self.first + child * u64::from(self.size),
                _ => self.address(before + nodes + child),
            };
            out.extend_from_slice(&address.to_le_bytes());
        }
        self.key(self.chunks.count().min(children.end * each), out);
        out.resize(end, 0);
    }

    /// Appends the key of chunk `chunk`.
    fn key(&self, chunk: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for (number, side) in self.chunks.numbers(chunk).iter().zip(&self.chunks.sides) {
            out.extend_from_slice(&(number * side).to_le_bytes());
        }
        out.extend_from_slice(&[0; 8]);
    }
}

/// The number of nodes of each level, from the root, over `chunks` chunks.
fn levels(chunks: u64) -> Vec<u64> {
    let mut levels = vec![chunks.div_ceil(CHILDREN)];
    while levels[0] > 1 {
        levels.insert(0, levels[0].div_ceil(CHILDREN));
    }
    levels
}

/// Bytes of a node of a data set of `rank` axes.
fn node_size(rank: usize) -> u64 {
    24 + CHILDREN * 8 + (CHILDREN + 1) * (16 + 8 * rank as u64)
}

/// Bytes of the index of `chunks` chunks of a data set of `rank` axes; None beyond 2^64.
pub(super) fn len(chunks: u64, rank: usize) -> Option<u64> {
    levels(chunks).iter().sum::<u64>().checked_mul(node_size(rank))
}

impl Bytes for Index {
    fn len(&self) -> u64 {
        self.levels.iter().sum::<u64>() * node_size(self.chunks.shape.len())
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let size = node_size(self.chunks.shape.len());
        let mut nodes = Vec::new();
        (range.start / size..range.end.div_ceil(size)).for_each(|node| self.node(node, &mut nodes));
        let from = (range.start % size) as usize;
        let wanted = &nodes[from..from + (range.end - range.start) as usize];
        out.append(wanted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FileLayout;

    fn number(bytes: &[u8], at: u64, size: usize) -> u64 {
        let mut out = [0; 8];
        out[..size].copy_from_slice(&bytes[at as usize..at as usize + size]);
        u64::from_le_bytes(out)
    }

    /// Address and first cell of each chunk below the node at `at`, as HDF5 reads them.
    fn walk(
        index: &[u8],
        root: u64,
        at: u64,
        level: Option<u8>,
        rank: u64,
        found: &mut Vec<(u64, Vec<u64>)>,
    ) {
        let node = at - root;
        assert_eq!(&index[node as usize..][..5], b"TREE\x01");
        let height = index[node as usize + 5];
        assert!(level.is_none_or(|level| level == height));
        let children = number(index, node + 6, 2);
        assert!((1..=64).contains(&children));
        let key = |at: u64| -> Vec<u64> {
            assert_eq!((number(index, at, 4), number(index, at + 4, 4)), (7, 0));
            assert_eq!(number(index, at + 8 + 8 * rank, 8), 0);
            (0..rank)
                .map(|axis| number(index, at + 8 + 8 * axis, 8))
                .collect()
        };
        let mut place = node + 24;
        for _ in 0..children {
            let child = number(index, place + 16 + 8 * rank, 8);
            let before = found.len();
            match height {
                0 => found.push((child, key(place))),
                _ => walk(index, root, child, Some(height - 1), rank, found),
            }
            assert_eq!(found[before].1, key(place));
            place += 24 + 8 * rank;
        }
        assert!(found.last().unwrap().1 < key(place));
        // Neighbours know each other.
        for (own, other) in [(8, 16), (16, 8)] {
            let neighbour = number(index, node + own, 8);
            if neighbour != UNDEFINED_ADDRESS {
                assert_eq!(number(index, neighbour - root + other, 8), at);
            }
        }
    }

    #[test]
    fn every_chunk_is_found_and_any_range_is_part_of_the_whole() {
        let shapes: [(&[u64], &[u64]); 7] = [
            (&[3, 5], &[2, 2]),
            (&[1, 64], &[1, 1]),
            (&[1, 65], &[1, 1]),
            (&[64, 64], &[1, 1]),
            (&[4097, 1], &[1, 1]),
            (&[9, 70, 20, 3], &[2, 3, 20, 2]),
            (&[300, 1000], &[1, 1]),
        ];
        for (shape, sides) in shapes {
            let chunks = Chunks {
                shape: shape.to_vec(),
                sides: sides.to_vec(),
            };
            let count = chunks.count();
            let index = Index::new(&chunks, 7, 1000, 5_000_000);
            assert_eq!(Some(index.len()), len(count, shape.len()));
            let file = FileLayout::new(0, vec![Box::new(index)]).unwrap();
            let whole = Output::of(|out| file.read(0..file.len(), out)).unwrap().to_vec();
            let mut found = Vec::new();
            walk(&whole, 1000, 1000, None, shape.len() as u64, &mut found);
            let expected = (0..count).map(|chunk| {
                let numbers = chunks.numbers(chunk);
                let first: Vec<u64> = numbers.iter().zip(sides).map(|(n, side)| n * side).collect();
                (5_000_000 + 7 * chunk, first)
            });
            assert!(found.into_iter().eq(expected), "{shape:?}");
            let mut start = 0;
            while start < whole.len() {
                let end = (start + 1 + start * 31 % 5000).min(whole.len());
                let piece = Output::of(|out| file.read(start as u64..end as u64, out)).unwrap();
                assert!(*piece == whole[start..end], "{shape:?}: {start}..{end}");
                start += 1 + start * 17 % 9000;
            }
        }
    }

    #[test]
    fn the_index_of_very_many_chunks_is_made_where_it_is_read() {
        let chunks = Chunks {
            shape: vec![1 << 40, 1 << 20],
            sides: vec![1 << 10, 1 << 6],
        };
        let file = FileLayout::new(0, vec![Box::new(Index::new(&chunks, 1 << 16, 64, 1 << 60))]).unwrap();
        let last = node_size(2);
        let node = Output::of(|out| file.read(file.len() - last..file.len(), out))
            .unwrap()
            .to_vec();
        let key = 24 + 63 * 40;
        assert_eq!(number(&node, key + 8, 8), (1 << 40) - (1 << 10));
        assert_eq!(number(&node, key + 16, 8), (1 << 20) - (1 << 6));
        assert_eq!(number(&node, key + 32, 8), (1 << 60) + (((1 << 44) - 1) << 16));
        assert_eq!(number(&node, key + 40 + 8, 8), 1 << 40);
    }
}
