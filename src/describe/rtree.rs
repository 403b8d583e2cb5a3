//! `rtree.json`: the R-tree over the minimum bounding rectangles (MBRs) of a sparse fragment's tiles.
//!
//! The document has the fanout and the levels, root first. A level is an array of MBRs, an MBR a list of
//! `[lo, hi]` for each dimension. A dense fragment has no levels. Versions 1 and 2 have no R-tree: their
//! fanout is null, and their MBRs are the only level.

use super::render::{self, line};
use super::value::{self, Cell};
use crate::bytes::Bytes;
use crate::error::Result;
use crate::format::fragment::Boxes;
use crate::format::fragment::boxes::{Bounds, to_rect};
use crate::format::schema::{Dimension, Schema};
use crate::layout::segments::{Cutter, Parts, Segments};
use std::ops::Range;
use std::sync::Arc;

/// The document of `levels`, whose boxes lie in `body`.
pub fn rtree_segments(
    fanout: Option<u32>,
    levels: Vec<Boxes>,
    body: Arc<dyn Bytes>,
    schema: Arc<Schema>,
) -> Result<Segments> {
    let mut cutter = Cutter::new();
    for level in &levels {
        cutter.part();
        let mut at = 0;
        while at < level.len() {
            let next = at.saturating_add(level.step()).min(level.len());
            let bytes = level.bytes_before(next) - level.bytes_before(at);
            let boxes = next - at;
            cutter.items(boxes, (bytes / boxes).saturating_mul(2).saturating_add(16))?;
            at = next;
        }
    }
    Ok(cutter.finish(RTreeParts {
        fanout,
        levels,
        body,
        schema,
    }))
}

struct RTreeParts {
    fanout: Option<u32>,
    levels: Vec<Boxes>,
    body: Arc<dyn Bytes>,
    schema: Arc<Schema>,
}

impl Parts for RTreeParts {
    fn write(&self, part: usize, items: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        if part == 0 && items.start == 0 {
            render::begin_object(out, &[("fanout", self.fanout.into())], 0);
            out.push(b',');
            render::key(out, "levels", 1);
            out.push(b'[');
        }
        let count = self.levels.get(part).map_or(0, Boxes::len);
        if let Some(level) = self.levels.get(part) {
            if items.start == 0 {
                if part > 0 {
                    out.push(b',');
                }
                line(out, 2);
                out.push(b'[');
            }
            level.visit(&*self.body, items.clone(), |index, bounds| {
                if index > 0 {
                    out.push(b',');
                }
                line(out, 3);
                write_box(out, &self.schema.dimensions, bounds);
                Ok(())
            })?;
            if items.end >= count {
                if count > 0 {
                    line(out, 2);
                }
                out.push(b']');
            }
        }
        if part + 1 >= self.levels.len() && items.end >= count {
            if !self.levels.is_empty() {
                line(out, 1);
            }
            out.extend_from_slice(b"]\n}\n");
        }
        Ok(())
    }
}

/// Appends a box at nesting depth 3.
fn write_box(out: &mut Vec<u8>, dimensions: &[Dimension], bounds: &[Bounds<'_>]) {
    let plain = dimensions.iter().zip(bounds).all(|(d, (lo, hi))| {
        let is_atom = |bytes| Cell::new(d.datatype, d.cell_val_num, bytes).is_atom();
        is_atom(*lo) && is_atom(*hi)
    });
    if !plain {
        return render::write_value(out, &value::rect(dimensions, &to_rect(bounds)), 3);
    }
    out.push(b'[');
    for (i, (d, (lo, hi))) in dimensions.iter().zip(bounds).enumerate() {
        out.extend_from_slice(if i > 0 { b", [" } else { b"[" });
        value::write_cell(out, d.datatype, d.cell_val_num, lo);
        out.extend_from_slice(b", ");
        value::write_cell(out, d.datatype, d.cell_val_num, hi);
        out.push(b']');
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::super::{Json, object};
    use super::*;
    use crate::format::datatype::Datatype;
    use crate::format::fragment::RTree;
    use crate::format::range::{Range as Interval, Rect};
    use crate::format::testing::{Bytes, field, schema, var};

    fn mbr(x: [u8; 2], y: [&[u8]; 2]) -> Rect {
        let [lo, hi] = x.map(|x| vec![x, 0]);
        let [low, high] = y.map(<[u8]>::to_vec);
        vec![Interval { lo, hi }, Interval { lo: low, hi: high }]
    }

    fn stored(fanout: u32, levels: &[Vec<Rect>]) -> Vec<u8> {
        let mut b = Bytes::default().u32(fanout).count32(levels.len());
        for level in levels {
            b = b.count64(level.len());
            for rect in level {
                b = b.raw(&rect[0].lo).raw(&rect[0].hi);
                let (lo, hi) = (&rect[1].lo, &rect[1].hi);
                b = b.count64(lo.len() + hi.len()).count64(lo.len()).raw(lo).raw(hi);
            }
        }
        b.bytes
    }

    /// The document by way of [`Json`].
    fn whole(fanout: Option<u32>, levels: &[Vec<Rect>], dimensions: &[Dimension]) -> Vec<u8> {
        let level = |level: &Vec<Rect>| {
            level
                .iter()
                .map(|mbr| value::rect(dimensions, mbr))
                .collect::<Json>()
        };
        render::render(&object!({"fanout": fanout, "levels": levels.iter().map(level).collect::<Json>()}))
    }

    fn example() -> Schema {
        let dimensions = [field("x", Datatype::Int16), var("s", Datatype::StringAscii)];
        schema(22, true, &dimensions, &[])
    }

    fn document(fanout: Option<u32>, body: Vec<u8>, schema: &Schema) -> Segments {
        let rtree = RTree::parse(&body, 22, schema).unwrap();
        rtree_segments(fanout, rtree.levels, Arc::new(body), Arc::new(schema.clone())).unwrap()
    }

    #[test]
    fn levels_are_listed_from_the_root() {
        let leaves = vec![mbr([1, 2], [b"a", b"b"]), mbr([3, 4], [b"", b"\xFF"])];
        let levels = [vec![mbr([1, 4], [b"", b"\xFF"])], leaves];
        let schema = example();
        for count in 0..=2 {
            let levels = &levels[..count];
            let segments = document(Some(10), stored(10, levels), &schema);
            let text = String::from_utf8(segments.render().unwrap()).unwrap();
            let expected = whole(Some(10), levels, &schema.dimensions);
            assert_eq!(text, String::from_utf8(expected).unwrap());
        }
        let legacy = document(None, stored(10, &levels[..1]), &example());
        assert_eq!(
            String::from_utf8(legacy.render().unwrap()).unwrap(),
            "{\n  \"fanout\": null,\n  \"levels\": [\n    [\n      [[1, 4], [\"\", {\"hex\": \"ff\"}]]\n    ]\n  ]\n}\n"
        );
    }

    #[test]
    fn many_boxes_make_many_segments_of_the_same_text() {
        let schema = example();
        let text = |i: u16| vec![b'a' + (i % 26) as u8; usize::from(i % 100)];
        let leaf = |i: u16| {
            let x = i.to_le_bytes().to_vec();
            vec![
                Interval { lo: x.clone(), hi: x },
                Interval {
                    lo: text(i),
                    hi: text(i + 1),
                },
            ]
        };
        let levels = vec![
            vec![mbr([1, 4], [b"", b"z"])],
            (0..20_000).map(leaf).collect::<Vec<_>>(),
        ];
        let segments = document(Some(20_000), stored(20_000, &levels), &schema);
        assert!(segments.count() > 10, "{}", segments.count());
        assert_eq!(
            segments.render().unwrap(),
            whole(Some(20_000), &levels, &schema.dimensions)
        );
    }
}
