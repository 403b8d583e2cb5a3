use super::*;
use crate::bytes::Output;
use crate::layout::FileLayout;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tiles of these sides in a domain.
fn tiles(sides: &[u64], domain: &[u64]) -> Vec<Extent> {
    let lengths = sides.iter().zip(domain);
    lengths.map(|(&tile, &domain)| Extent { tile, domain }).collect()
}

#[test]
fn extents_are_put_together_or_halved() {
    let whole = |shape: &[u64], sides: &[u64], size| Chunks::new(shape, &tiles(sides, shape), size);
    let sides = |shape: &[u64], extents: &[u64], size| whole(shape, extents, size).sides;
    assert_eq!(sides(&[5, 6], &[3, 4], 8), [5, 6]);
    assert_eq!(sides(&[1 << 40], &[10], 8), [10 << 13]);
    assert_eq!(sides(&[1 << 20, 2], &[1, 1], 8), [1 << 15, 2]);
    assert_eq!(sides(&[1000, 1000], &[100, 7], 8), [400, 224]);
    assert_eq!(
        sides(&[1 << 30, 1 << 30], &[1 << 30, 1 << 30], 8),
        [1 << 12, 1 << 11]
    );
    assert_eq!(sides(&[3, 3], &[1, 1], 1 << 30), [1, 1]);
    let scalar = Chunks::new(&[], &tiles(&[4], &[8]), 8);
    assert_eq!((scalar.count(), scalar.sides), (1, vec![]));
    assert_eq!(sides(&[u64::MAX, u64::MAX], &[u64::MAX, 1], 1), [1 << 26, 1]);
    let chunks = whole(&[1000, 1000], &[100, 7], 8);
    assert_eq!(
        (chunks.counts().collect::<Vec<_>>(), chunks.count()),
        (vec![3, 5], 15)
    );
    assert_eq!(chunks.part(&[2, 4]), (vec![800, 896], vec![200, 104]));
}

#[test]
fn chunks_of_an_array_that_grows_are_the_same_or_larger() {
    for (domain, sides) in [
        ([1 << 40, 180, 360], [1, 90, 90]),
        ([1 << 20; 3], [1 << 18, 1, 7]),
    ] {
        let mut last = (Vec::new(), 0);
        for written in 1..200 {
            let shape = [written, 180, 360];
            let chunks = Chunks::new(&shape, &tiles(&sides, &domain), 8);
            let cells: u64 = chunks.sides.iter().product();
            assert!(
                chunks.sides == last.0 || cells > last.1,
                "{shape:?}: {chunks:?} after {last:?}"
            );
            last = (chunks.sides, cells);
        }
    }
}

/// Cells in memory.
struct Plain(Vec<u8>, u64);

impl Cells for Plain {
    fn count(&self) -> u64 {
        self.0.len() as u64 / self.1
    }

    fn cell_size(&self) -> Option<u64> {
        Some(self.1)
    }

    fn len(&self, _: Content) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, _: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        self.0.read(range, out)
    }
}

#[test]
fn a_chunk_is_padded_on_all_sides() {
    let shapes: [(&[u64], &[u64]); 6] = [
        (&[7], &[4]),
        (&[3, 4], &[3, 4]),
        (&[3, 4], &[2, 4]),
        (&[3, 4], &[3, 1]),
        (&[2, 3, 4], &[1, 2, 3]),
        (&[2, 1, 2, 3], &[1, 1, 2, 2]),
    ];
    for ((sides, part), cell) in shapes.into_iter().flat_map(|shape| [(shape, 1), (shape, 3)]) {
        let own = part.iter().product::<u64>() * cell;
        let fill: Vec<u8> = (0..cell as u8).map(|i| 200 + i).collect();
        let chunk = GridChunk {
            cells: Arc::new(Plain((0..own as u8).collect(), cell)),
            cell,
            fill: fill.clone(),
            sides: sides.to_vec(),
            part: part.to_vec(),
            len: sides.iter().product::<u64>() * cell,
        };
        // Cells in row-major order.
        let (mut expected, mut next) = (Vec::new(), 0u8);
        for number in 0..sides.iter().product::<u64>() {
            let mut rest = number;
            let mut axes = sides.iter().zip(part).rev();
            let inside = axes.all(|(side, part)| {
                let place = rest % side;
                rest /= side;
                place < *part
            });
            match inside {
                true => expected.extend((0..cell as u8).map(|i| next + i)),
                false => expected.extend_from_slice(&fill),
            }
            next += if inside { cell as u8 } else { 0 };
        }
        let layout = FileLayout::new(0, vec![Box::new(chunk)]).unwrap();
        assert_eq!(layout.len(), expected.len() as u64);
        for start in 0..expected.len() {
            for end in start..=expected.len() {
                let piece = Output::of(|out| layout.read(start as u64..end as u64, out)).unwrap();
                assert_eq!(
                    *piece,
                    expected[start..end],
                    "{part:?} of {sides:?}: {start}..{end}"
                );
            }
        }
    }
}

#[test]
fn padding_without_a_fill_value_is_no_zeros() {
    let chunk = GridChunk {
        cells: Arc::new(Plain(vec![1, 2], 1)),
        cell: 1,
        fill: Vec::new(),
        sides: vec![3],
        part: vec![2],
        len: 3,
    };
    let layout = FileLayout::new(0, vec![Box::new(chunk)]).unwrap();
    assert_eq!(*Output::of(|out| layout.read(0..2, out)).unwrap(), [1, 2]);
    let read = || Output::of(|out| layout.read(0..3, out)).map(|piece| piece.to_vec());
    assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
}
