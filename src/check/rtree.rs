//! Checks the bounding boxes of tiles, the R-tree over them, and the non-empty domain.

use super::{Checker, Kind};
use crate::error::Result;
use crate::format::fragment::boxes::to_rect;
use crate::format::fragment::{Boxes, RTree, StoredBoxes};
use crate::format::range::{Range as Interval, Rect, compare};
use crate::format::schema::Schema;
use crate::fragment::info::FragmentInfo;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// The bounding box of each tile of a sparse fragment, as stored.
pub(super) struct TileBoxes(StoredBoxes);

impl TileBoxes {
    /// The boxes of a fragment that has no R-tree over them; None for dense fragments.
    pub(super) fn of_mbrs(checker: &Checker, info: &FragmentInfo, mbrs: &StoredBoxes) -> Option<TileBoxes> {
        if info.footer.dense {
            return None;
        }
        check_domain(checker, info, mbrs);
        Some(TileBoxes(mbrs.clone()))
    }

    /// Checks an R-tree, whose boxes lie in `body`, and returns its leaves. There must be a leaf for each
    /// tile, each inner node must be the union of its children, and the root the non-empty domain. None for
    /// dense fragments, or if the number of leaves is wrong.
    pub(super) fn of_rtree(
        checker: &Checker,
        info: &FragmentInfo,
        mut rtree: RTree,
        body: Vec<u8>,
    ) -> Option<TileBoxes> {
        let problem = |message: String| {
            checker
                .problem(Kind::RTree, &info.metadata_path(), message)
                .in_part("R-tree")
        };
        if info.footer.dense {
            if !rtree.levels.is_empty() {
                let message = format!(
                    "a dense fragment must have no R-tree, but there are {} levels",
                    rtree.levels.len()
                );
                checker.report(problem(message));
            }
            return None;
        }
        let leaves = rtree.levels.pop();
        let (number, tiles) = (leaves.as_ref().map_or(0, |l| l.len()), info.geometry.tile_num);
        if number != tiles {
            checker.report(problem(format!(
                "the R-tree has {number} leaves, but the fragment has {tiles} tiles"
            )));
            return None;
        }
        let leaves = StoredBoxes {
            boxes: leaves?,
            body: Arc::new(body),
        };
        // libtiledb before format version 9 wrote wrong boxes for strings.
        if info.writer.library_version < 9 && !info.schema.all_dimensions_fixed() {
            return Some(TileBoxes(leaves));
        }
        let fanout = u64::from(rtree.fanout).max(1);
        let below = rtree.levels.iter().skip(1).chain([&leaves.boxes]);
        for (i, (parents, children)) in rtree.levels.iter().zip(below).enumerate() {
            let compared = parents.visit(&*leaves.body, 0..parents.len(), |node, parent| {
                let first = node * fanout;
                let all = union(&info.schema, &leaves.body, children, first..first + fanout)?;
                if let Some(d) = all.and_then(|all| differs(&info.schema, &to_rect(parent), &all)) {
                    let message =
                        format!("the node's range of dimension {d} is not the union of its children's");
                    checker.report(problem(message).in_part(format_args!("level {i}, node {node}")));
                }
                Ok(())
            });
            if let Err(error) = compared {
                checker.report(problem(error.to_string()));
            }
        }
        check_domain(checker, info, &leaves);
        Some(TileBoxes(leaves))
    }

    /// The bounding box of a tile.
    pub(super) fn tile(&self, tile: u64) -> Option<Rect> {
        self.0.get(tile)
    }
}

/// Checks that the non-empty domain of a sparse fragment is the union of its tiles' boxes.
fn check_domain(checker: &Checker, info: &FragmentInfo, boxes: &StoredBoxes) {
    let stored = info.non_empty_domain();
    // libtiledb before format version 10 left tiles out of the non-empty domain of strings.
    if info.writer.library_version < 10 && !info.schema.all_dimensions_fixed() {
        return;
    }
    let problem = |message: String| {
        checker.report(checker.problem(Kind::NonEmptyDomain, &info.metadata_path(), message));
    };
    match (
        stored,
        union(&info.schema, &boxes.body, &boxes.boxes, 0..boxes.len()),
    ) {
        (Some(stored), Ok(Some(all))) => {
            if let Some(d) = differs(&info.schema, stored, &all) {
                problem(format!(
                    "dimension {d} of the non-empty domain is not the union of the tiles' bounding boxes"
                ));
            }
        }
        (None, Ok(Some(_))) => problem("the non-empty domain is missing, but there are tiles".into()),
        (_, Ok(None)) => {}
        (_, Err(error)) => problem(error.to_string()),
    }
}

/// The smallest box that contains the `boxes` in `range`, which lie in `body`; None for no boxes. Bounds that
/// cannot be compared (NaN) are skipped.
fn union(schema: &Schema, body: &[u8], boxes: &Boxes, range: Range<u64>) -> Result<Option<Rect>> {
    let mut union: Option<Rect> = None;
    boxes.visit(&body, range, |_, bounds| {
        let Some(all) = &mut union else {
            union = Some(to_rect(bounds));
            return Ok(());
        };
        for ((d, all), (lo, hi)) in schema.dimensions.iter().zip(all).zip(bounds) {
            if compare(d.datatype, d.cell_val_num, lo, &all.lo) == Some(Ordering::Less) {
                all.lo = lo.to_vec();
            }
            if compare(d.datatype, d.cell_val_num, hi, &all.hi) == Some(Ordering::Greater) {
                all.hi = hi.to_vec();
            }
        }
        Ok(())
    })?;
    Ok(union)
}

/// Index of the first dimension in which two boxes differ; None if they are equal.
fn differs(schema: &Schema, a: &[Interval], b: &[Interval]) -> Option<usize> {
    let mut dimensions = schema.dimensions.iter().zip(a.iter().zip(b));
    dimensions.position(|(d, (a, b))| {
        let unequal = |a: &[u8], b: &[u8]| {
            compare(d.datatype, d.cell_val_num, a, b).is_some_and(|order| order != Ordering::Equal)
        };
        unequal(&a.lo, &b.lo) || unequal(&a.hi, &b.hi)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::Datatype;
    use crate::format::testing::{Bytes, field, schema, var};

    fn rect(x: (i16, i16), s: (&str, &str)) -> Rect {
        vec![
            Interval {
                lo: x.0.to_le_bytes().to_vec(),
                hi: x.1.to_le_bytes().to_vec(),
            },
            Interval {
                lo: s.0.into(),
                hi: s.1.into(),
            },
        ]
    }

    #[test]
    fn unions_follow_the_types() {
        let dimensions = [field("x", Datatype::Int16), var("s", Datatype::StringAscii)];
        let schema = schema(22, true, &dimensions, &[]);
        let mut tree = Bytes::default().u32(2).count32(2);
        let root = rect((-300, 2), ("b", "d"));
        for level in [
            &[root][..],
            &[rect((-1, 2), ("b", "c")), rect((-300, 1), ("bb", "d"))],
        ] {
            tree = tree.count64(level.len());
            for rect in level {
                tree = tree.raw(&rect[0].lo).raw(&rect[0].hi);
                let (lo, hi) = (&rect[1].lo, &rect[1].hi);
                tree = tree
                    .count64(lo.len() + hi.len())
                    .count64(lo.len())
                    .raw(lo)
                    .raw(hi);
            }
        }
        let rtree = RTree::parse(&tree.bytes, 22, &schema).unwrap();
        let union = |range| union(&schema, &tree.bytes, &rtree.levels[1], range).unwrap();
        let all = union(0..2).unwrap();
        assert_eq!(all, rect((-300, 2), ("b", "d")));
        assert_eq!(differs(&schema, &all, &rect((-300, 2), ("b", "d"))), None);
        assert_eq!(differs(&schema, &all, &rect((-300, 3), ("b", "d"))), Some(0));
        assert_eq!(differs(&schema, &all, &rect((-300, 2), ("", "d"))), Some(1));
        assert_eq!(union(2..4), None);
    }
}
