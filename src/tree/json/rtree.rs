//! `rtree.json`: the R-tree over the minimum bounding rectangles (MBRs) of a sparse fragment's tiles.

use super::{render, value};
use crate::format::fragment::RTree;
use crate::format::range::Rect;
use crate::format::schema::Dimension;
use serde_json::{Value, json};

/// An R-tree (format version 3 and later): its levels, root first, each an array of MBRs `[[lo, hi], …]` by
/// dimension. A dense fragment has no levels.
pub fn rtree_json(rtree: &RTree, dimensions: &[Dimension]) -> Value {
    json!({
        "fanout": rtree.fanout,
        "levels": rtree.levels.iter().map(|level| level_json(level, dimensions)).collect::<Value>(),
    })
}

/// The MBRs of versions 1 and 2, which have no tree, as its only level.
pub fn legacy_rtree_json(mbrs: &[Rect], dimensions: &[Dimension]) -> Value {
    let levels = if mbrs.is_empty() {
        vec![]
    } else {
        vec![level_json(mbrs, dimensions)]
    };
    json!({"fanout": null, "levels": levels})
}

/// The text that [`render`](super::render()) gives for [`rtree_json`] or, without a fanout, for [`legacy_rtree_json`] of `levels`, made
/// one MBR at a time, so that those of a million tiles are not in memory as JSON values.
pub fn write_rtree(fanout: Option<u32>, levels: &[&[Rect]], dimensions: &[Dimension]) -> Vec<u8> {
    let mut out = vec![b'{'];
    render::key(&mut out, "fanout", 1);
    render::write_value(&mut out, &Value::from(fanout), 1);
    out.push(b',');
    render::key(&mut out, "levels", 1);
    render::write_list(&mut out, levels, 1, |out, level| {
        render::write_list(out, level, 2, |out, mbr| {
            render::write_value(out, &value::rect(dimensions, mbr), 3);
        });
    });
    out.extend_from_slice(b"\n}\n");
    out
}

fn level_json(level: &[Rect], dimensions: &[Dimension]) -> Value {
    level.iter().map(|mbr| value::rect(dimensions, mbr)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::example;
    use super::*;
    use crate::format::range::Range;

    fn mbr(x: [u8; 2], y: [&[u8]; 2]) -> Rect {
        let [lo, hi] = x.map(|x| vec![x, 0]);
        let [low, high] = y.map(<[u8]>::to_vec);
        vec![Range { lo, hi }, Range { lo: low, hi: high }]
    }

    #[test]
    fn levels_are_listed_from_the_root() {
        let dimensions = example().dimensions;
        let leaves = vec![mbr([1, 2], [b"a", b"b"]), mbr([3, 4], [b"", b"\xFF"])];
        let rtree = RTree {
            fanout: 10,
            levels: vec![vec![mbr([1, 4], [b"", b"\xFF"])], leaves.clone()],
        };
        assert_eq!(
            rtree_json(&rtree, &dimensions).to_string(),
            concat!(
                r#"{"fanout":10,"levels":[[[[1,4],["",{"hex":"ff"}]]],"#,
                r#"[[[1,2],["a","b"]],[[3,4],["",{"hex":"ff"}]]]]}"#,
            )
        );
        let levels: Vec<&[Rect]> = rtree.levels.iter().map(Vec::as_slice).collect();
        assert_eq!(
            write_rtree(Some(10), &levels, &dimensions),
            render::render(&rtree_json(&rtree, &dimensions))
        );
        assert_eq!(
            write_rtree(None, &[&leaves], &dimensions),
            render::render(&legacy_rtree_json(&leaves, &dimensions))
        );
        assert_eq!(
            write_rtree(None, &[], &dimensions),
            render::render(&legacy_rtree_json(&[], &dimensions))
        );
        assert_eq!(
            legacy_rtree_json(&leaves, &dimensions).to_string(),
            r#"{"fanout":null,"levels":[[[[1,2],["a","b"]],[[3,4],["",{"hex":"ff"}]]]]}"#
        );
    }

    #[test]
    fn dense_fragments_have_no_levels() {
        let rtree = RTree {
            fanout: 10,
            levels: vec![],
        };
        assert_eq!(rtree_json(&rtree, &[]), json!({"fanout": 10, "levels": []}));
        assert_eq!(legacy_rtree_json(&[], &[]), json!({"fanout": null, "levels": []}));
    }
}
