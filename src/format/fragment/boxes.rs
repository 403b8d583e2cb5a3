//! Stored bounding boxes: the minimum bounding rectangles (MBRs) of tiles, and the R-tree over them.
//!
//! A fragment of a million tiles has a million boxes, so only their positions are kept in memory. A box is a
//! range for each dimension: `lo, hi` of a fixed-size one; for a var-sized one the total length u64, the
//! length of `lo` u64 and the bytes of both.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/fragment.md>

use crate::bytes::{Bytes, Output};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::body::BodyCursor;
use crate::format::datatype::Datatype;
use crate::format::range::{self, Rect, lengths};
use crate::format::schema::Schema;
use std::ops::Range;
use std::sync::Arc;

/// More levels than a tree with 2^64 leaves needs.
const MAX_LEVELS: u32 = 64;

/// The most bytes of a box of var-sized dimensions.
const MAX_BOX: u64 = 1 << 20;

/// With var-sized dimensions, the position of every this many boxes is kept.
const BOXES_PER_BLOCK: u64 = 16;

/// Bytes of boxes visited in one step.
const STEP_SIZE: u64 = 64 << 10;

/// Lower and upper bound along one dimension, as stored.
pub type Bounds<'a> = (&'a [u8], &'a [u8]);

/// Consecutive boxes in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boxes {
    /// Bytes of a bound along each dimension; None if they vary.
    sizes: Vec<Option<u64>>,
    count: u64,
    /// The range of the boxes' bytes.
    place: Range<u64>,
    /// Bytes of a box, if all have equal sizes.
    stride: Option<u64>,
    /// Otherwise, the offset of every [`BOXES_PER_BLOCK`]th box.
    blocks: Vec<u64>,
}

impl Boxes {
    /// Finds the positions of the next `count` boxes at `c`, and skips the boxes.
    fn find(c: &mut BodyCursor<'_>, count: u64, schema: &Schema, field: &str) -> Result<Boxes> {
        let sizes: Vec<Option<u64>> = schema.dimensions.iter().map(|d| d.cell_size()).collect();
        let stride = stride(&sizes);
        c.check_count(count, schema.min_rect_size() as u64, field)?;
        let start = c.offset();
        let mut blocks = Vec::new();
        match stride {
            Some(stride) => {
                // The count was checked against the bytes left.
                c.skip(count * stride, field)?;
            }
            None => {
                for i in 0..count {
                    let start = c.offset();
                    if i % BOXES_PER_BLOCK == 0 {
                        blocks.push(start);
                    }
                    pass_over(c, &sizes)?;
                    if c.offset() - start > MAX_BOX {
                        let message = format!(
                            "a bounding box of {} bytes is more than the {MAX_BOX} allowed",
                            c.offset() - start
                        );
                        return Err(Error::limit(message).at(start).in_part("`mbr`"));
                    }
                }
            }
        }
        Ok(Boxes {
            sizes,
            count,
            place: start..c.offset(),
            stride,
            blocks,
        })
    }

    /// The number of boxes.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The offset of box `index`, or of the end past the last. With var-sized dimensions, the offset of the
    /// nearest box before it (or itself) that is kept, and the number of boxes between.
    fn start(&self, index: u64) -> (u64, u64) {
        if index >= self.count {
            return (self.place.end, 0);
        }
        match self.stride {
            Some(stride) => (self.place.start + index * stride, 0),
            None => (
                self.blocks[(index / BOXES_PER_BLOCK) as usize],
                index % BOXES_PER_BLOCK,
            ),
        }
    }

    /// Approximate bytes of the boxes before `index`; exact if all have equal sizes, and for the first of
    /// each block.
    pub fn bytes_before(&self, index: u64) -> u64 {
        self.start(index).0 - self.place.start
    }

    /// The number of boxes to read together; multiples are good as well.
    pub fn step(&self) -> u64 {
        self.stride
            .map_or(BOXES_PER_BLOCK, |stride| (STEP_SIZE / stride.max(1)).max(1))
    }

    /// Calls `visit` with each box in `range` of `body`, in order, and its number.
    pub fn visit(
        &self,
        body: &dyn Bytes,
        range: Range<u64>,
        mut visit: impl FnMut(u64, &[Bounds<'_>]) -> Result<()>,
    ) -> Result<()> {
        let end = range.end.min(self.count);
        let mut at = range.start;
        let mut bytes = Output::new();
        while at < end {
            let (from, skipped) = self.start(at);
            let mut next = at - skipped + self.step();
            if self.stride.is_some() {
                next = next.min(end);
            }
            let mut to = self.start(next).0;
            while next < end && self.start(next + self.step()).0 - from <= STEP_SIZE {
                next += self.step();
                to = self.start(next).0;
            }
            bytes.clear();
            body.read(from..to, &mut bytes)?;
            let mut c = Cursor::with_base(&bytes, from);
            let mut bounds = Vec::with_capacity(self.sizes.len());
            for index in at - skipped..next.min(end) {
                bounds.clear();
                for size in &self.sizes {
                    bounds.push(parse_bounds(&mut c, *size)?);
                }
                if index >= at {
                    visit(index, &bounds)?;
                }
            }
            at = next;
        }
        Ok(())
    }

    /// Box `index`; None past the last.
    pub fn get(&self, body: &dyn Bytes, index: u64) -> Result<Option<Rect>> {
        let mut found = None;
        self.visit(body, index..index + 1, |_, bounds| {
            found = Some(to_rect(bounds));
            Ok(())
        })?;
        Ok(found)
    }
}

/// The box with its bounds copied.
pub fn to_rect(bounds: &[Bounds<'_>]) -> Rect {
    let range = |(lo, hi): &Bounds<'_>| range::Range {
        lo: lo.to_vec(),
        hi: hi.to_vec(),
    };
    bounds.iter().map(range).collect()
}

fn stride(sizes: &[Option<u64>]) -> Option<u64> {
    sizes
        .iter()
        .try_fold(0u64, |sum, size| sum.checked_add(size.as_ref()?.checked_mul(2)?))
}

fn pass_over(c: &mut BodyCursor<'_>, sizes: &[Option<u64>]) -> Result<()> {
    for size in sizes {
        let length = match size {
            Some(size) => size * 2,
            None => {
                let (total, low) = (c.u64("mbr")?, c.u64("mbr")?);
                lengths(total, low).map_err(|e| e.at(c.offset()).in_part("`mbr`"))?;
                total
            }
        };
        c.skip(length, "mbr")?;
    }
    Ok(())
}

fn parse_bounds<'a>(c: &mut Cursor<'a>, size: Option<u64>) -> Result<Bounds<'a>> {
    let (low, high) = match size {
        Some(size) => (size, size),
        None => {
            let (total, low) = (c.u64("mbr")?, c.u64("mbr")?);
            lengths(total, low).map_err(|e| e.at(c.offset()))?
        }
    };
    Ok((c.bytes(low, "mbr")?, c.bytes(high, "mbr")?))
}

/// Boxes and the bytes that they are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBoxes {
    /// The positions.
    pub boxes: Boxes,
    /// The bytes.
    pub body: Arc<Vec<u8>>,
}

impl StoredBoxes {
    /// `count` boxes of fixed-size dimensions, read from `c`.
    pub fn parse(c: &mut Cursor<'_>, count: u64, schema: &Schema, field: &str) -> Result<StoredBoxes> {
        let sizes: Vec<Option<u64>> = schema.dimensions.iter().map(|d| d.cell_size()).collect();
        let stride = stride(&sizes)
            .ok_or_else(|| Error::corrupt("var-sized dimensions, which this format version does not have"))?;
        c.check_count(count, stride as usize, field)?;
        let body = c.bytes(count * stride, field)?.to_vec();
        Ok(StoredBoxes {
            boxes: Boxes {
                sizes,
                count,
                place: 0..body.len() as u64,
                stride: Some(stride),
                blocks: Vec::new(),
            },
            body: Arc::new(body),
        })
    }

    /// The number of boxes.
    pub fn len(&self) -> u64 {
        self.boxes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// The box `index`; None past the last.
    pub fn get(&self, index: u64) -> Option<Rect> {
        self.boxes.get(&*self.body, index).ok().flatten()
    }
}

/// The R-tree over the MBRs of a sparse fragment's tiles, as positions in the body of its section.
#[derive(Debug, Clone, PartialEq)]
pub struct RTree {
    /// Children per node.
    pub fanout: u32,
    /// Root first, leaves last; leaf `i` is the MBR of tile `i`. Empty for a dense fragment.
    pub levels: Vec<Boxes>,
}

impl RTree {
    /// Parses an R-tree of a fragment of `version`; versions below 5 store the dimension count and datatype
    /// with it.
    ///
    /// Fails unless the levels shrink from the leaves to one root by the fanout, in at most 64 levels.
    pub fn parse(body: &dyn Bytes, version: u32, schema: &Schema) -> Result<RTree> {
        let mut c = BodyCursor::new(body);
        let rtree = Self::parse_body(&mut c, version, schema);
        rtree
            .and_then(|rtree| c.finish().map(|()| rtree))
            .map_err(|e| e.in_part("R-tree"))
    }

    fn parse_body(c: &mut BodyCursor<'_>, version: u32, schema: &Schema) -> Result<RTree> {
        if version < 5 {
            let count = c.u32("dimension_num")?;
            if count as usize != schema.dimensions.len() {
                let message = format!(
                    "found {count} dimensions, but the schema has {}",
                    schema.dimensions.len()
                );
                return Err(c.corrupt("dimension_num", message));
            }
        }
        let fanout = c.u32("fanout")?;
        if version < 5 {
            let offset = c.offset();
            let datatype =
                Datatype::from_u8(c.u8("datatype")?).map_err(|e| e.at(offset).in_part("`datatype`"))?;
            if schema.dimensions.iter().any(|d| d.datatype != datatype) {
                return Err(c.corrupt(
                    "datatype",
                    format!(
                        "{} is not the datatype of all dimensions in the schema",
                        datatype.name()
                    ),
                ));
            }
        }
        let level_num = c.u32("level_num")?;
        if level_num > MAX_LEVELS {
            return Err(Error::limit(format!(
                "{level_num} levels are more than the {MAX_LEVELS} allowed"
            ))
            .at(c.offset())
            .in_part("`level_num`"));
        }
        let mut levels: Vec<Boxes> = Vec::new();
        for i in 0..level_num {
            let level = c
                .u64("mbr_num")
                .and_then(|count| Boxes::find(c, count, schema, "mbr_num"))
                .map_err(|e| e.in_part(format_args!("level {i}")))?;
            // One root. Each level below has as many nodes as its parents can have; only the last parent may
            // have fewer.
            let fits = match levels.last() {
                None => level.len() == 1,
                Some(parents) => level.len().div_ceil(u64::from(fanout.max(1))) == parents.len(),
            };
            if !fits {
                let message = format!("{} nodes do not match the number in the level above", level.len());
                return Err(c.corrupt("mbr_num", message).in_part(format_args!("level {i}")));
            }
            levels.push(level);
        }
        Ok(RTree { fanout, levels })
    }

    /// The MBRs of the tiles, in order; None for a dense fragment.
    pub fn leaves(&self) -> Option<&Boxes> {
        self.levels.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::testing::{Bytes, check_hostile, field, schema, var};

    fn numbers(version: u32) -> Schema {
        let two = [field("x", Datatype::Int16), field("y", Datatype::Int16)];
        schema(version, true, &two, &[])
    }

    /// An R-tree of INT16 boxes with this many nodes per level. The bytes of the nodes count up.
    fn tree(version: u32, fanout: u32, levels: &[usize]) -> Bytes {
        let mut b = Bytes::default()
            .when(version < 5, |b| b.u32(2))
            .u32(fanout)
            .when(version < 5, |b| b.u8(Datatype::Int16 as u8))
            .count32(levels.len());
        let mut next = 0;
        for &nodes in levels {
            b = b.count64(nodes);
            for _ in 0..nodes {
                b = b.raw(&[next; 8]);
                next = u8::wrapping_add(next, 1);
            }
        }
        b
    }

    #[test]
    fn r_trees_of_numbers() {
        for version in 3..=23 {
            let schema = numbers(version);
            let bytes = tree(version, 10, &[1, 2, 13]);
            let rtree = check_hostile(&bytes, |bytes| RTree::parse(&bytes.to_vec(), version, &schema));
            assert_eq!(rtree.fanout, 10);
            assert_eq!(
                rtree.levels.iter().map(Boxes::len).collect::<Vec<_>>(),
                [1, 2, 13]
            );
            let leaf = |i| rtree.leaves().unwrap().get(&bytes.bytes, i).unwrap().unwrap();
            assert_eq!(
                (&leaf(0)[1].lo[..], &leaf(12)[0].hi[..]),
                (&[3, 3][..], &[15, 15][..])
            );
            let dense = RTree::parse(&tree(version, 10, &[]).bytes, version, &schema).unwrap();
            assert!(dense.leaves().is_none());
        }
    }

    #[test]
    fn r_trees_of_strings() {
        let dimensions = [field("x", Datatype::Int32), var("s", Datatype::StringAscii)];
        let schema = schema(22, true, &dimensions, &[]);
        let bytes = Bytes::default()
            .u32(10)
            .count32(1)
            .count64(1)
            .u32(1)
            .u32(41)
            .count64(3)
            .count64(0)
            .raw(b"zzz");
        let rtree = check_hostile(&bytes, |bytes| RTree::parse(&bytes.to_vec(), 22, &schema));
        let strings = &rtree.leaves().unwrap().get(&bytes.bytes, 0).unwrap().unwrap()[1];
        assert_eq!((&strings.lo[..], &strings.hi[..]), (&b""[..], &b"zzz"[..]));
    }

    #[test]
    fn r_trees_shrink_to_one_root() {
        let parse =
            |fanout, levels: &[usize]| RTree::parse(&tree(22, fanout, levels).bytes, 22, &numbers(22));
        for (fanout, levels) in [(10, &[1][..]), (10, &[1, 10]), (2, &[1, 2, 3]), (3, &[1, 1])] {
            assert!(parse(fanout, levels).is_ok(), "{levels:?}");
        }
        for (fanout, levels) in [
            (10, &[2][..]),
            (10, &[0]),
            (10, &[1, 11]),
            (10, &[1, 0]),
            (0, &[1, 2]),
        ] {
            assert!(parse(fanout, levels).is_err(), "{levels:?}");
        }
        assert!(parse(10, &[1; 64]).is_ok());
        assert_eq!(parse(10, &[1; 65]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn old_r_trees_repeat_the_domain() {
        let schema = numbers(4);
        let good = tree(4, 10, &[1]).bytes;
        for (at, field) in [(0, "`dimension_num`"), (8, "`datatype`")] {
            let mut bad = good.clone();
            bad[at] = 1;
            let error = RTree::parse(&bad, 4, &schema).unwrap_err();
            assert_eq!(error.part(), Some(format!("R-tree, {field}").as_str()));
        }
    }

    /// Texts of all lengths, so that blocks of boxes have many sizes.
    #[test]
    fn boxes_are_found_by_number() {
        let dimensions = [field("x", Datatype::Int32), var("s", Datatype::StringAscii)];
        let of_texts = schema(22, true, &dimensions, &[]);
        let of_numbers = numbers(22);
        let mut texts = Bytes::default()
            .u32(1 << 30)
            .count32(2)
            .count64(1)
            .raw(&[0; 24])
            .count64(5000);
        for i in 0..5000 {
            let long = if i == 2500 { 100_000 } else { i % 300 };
            texts = texts
                .u32(i as u32)
                .u32(0)
                .count64(long + 1)
                .count64(1)
                .raw(&vec![b'a'; long + 1]);
        }
        let tall = tree(22, 5000, &[1, 5000]);
        for (bytes, schema) in [(texts, of_texts), (tall, of_numbers)] {
            let rtree = RTree::parse(&bytes.bytes, 22, &schema).unwrap();
            let leaves = rtree.leaves().unwrap();
            let mut all = Vec::new();
            leaves
                .visit(&bytes.bytes, 0..u64::MAX, |i, bounds| {
                    assert_eq!(i, all.len() as u64);
                    all.push(to_rect(bounds));
                    Ok(())
                })
                .unwrap();
            assert_eq!(all.len(), 5000);
            for from in (0..5000).step_by(61) {
                for count in [0, 1, 15, 16, 17, 1000] {
                    let mut some = Vec::new();
                    leaves
                        .visit(&bytes.bytes, from..from + count, |_, bounds| {
                            some.push(to_rect(bounds));
                            Ok(())
                        })
                        .unwrap();
                    let end = (from + count).min(5000);
                    assert_eq!(some, all[from as usize..end as usize]);
                }
            }
            assert_eq!(leaves.get(&bytes.bytes, 5000).unwrap(), None);
        }
    }
}
