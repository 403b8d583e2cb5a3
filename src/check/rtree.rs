//! The bounding boxes of tiles, and of boxes.

use super::{Checker, Kind, Problem};
use crate::array::fragment::FragmentInfo;
use crate::format::fragment::RTree;
use crate::format::range::{Range, Rect, compare};
use crate::format::schema::Schema;
use std::cmp::Ordering;

/// The bounding box of each tile of a sparse fragment, as stored.
pub(super) struct Boxes(Vec<Rect>);

impl Boxes {
    /// Those of versions 1 and 2, which have no tree.
    pub(super) fn of_legacy(checker: &Checker, info: &FragmentInfo, boxes: &[Rect]) -> Option<Boxes> {
        if info.dense {
            return None;
        }
        check_domain(checker, info, boxes);
        Some(Boxes(boxes.to_vec()))
    }

    /// The leaves of an R-tree: as many as tiles, each inner node the union of its children, and the root the non-empty domain. None where
    /// they cannot be told apart, and for dense fragments.
    pub(super) fn of_rtree(checker: &Checker, info: &FragmentInfo, mut rtree: RTree) -> Option<Boxes> {
        let problem = |message: String| {
            Problem::new(Kind::RTree, checker.show(&info.metadata_path()), message).in_part("R-tree")
        };
        if info.dense {
            if !rtree.levels.is_empty() {
                let message = format!("{} levels in a dense fragment", rtree.levels.len());
                checker.report(problem(message));
            }
            return None;
        }
        let (leaves, tiles) = (rtree.leaves().len() as u64, info.geometry.tile_num);
        if leaves != tiles {
            checker.report(problem(format!("{leaves} leaves in a fragment of {tiles} tiles")));
            return None;
        }
        let fanout = usize::try_from(rtree.fanout).unwrap_or(usize::MAX).max(1);
        // Libraries before format 6 wrote boxes of strings that are none.
        if info.writer.library_version < 6 && !info.schema.all_dimensions_fixed() {
            return Some(Boxes(rtree.levels.pop().unwrap_or_default()));
        }
        for (i, (parents, children)) in rtree.levels.iter().zip(rtree.levels.iter().skip(1)).enumerate() {
            for (node, (parent, below)) in parents.iter().zip(children.chunks(fanout)).enumerate() {
                if let Some(d) =
                    union(&info.schema, below).and_then(|all| differs(&info.schema, parent, &all))
                {
                    let message = format!("dimension {d} of a node is not the union of its children");
                    checker.report(problem(message).in_part(format_args!("level {i}, node {node}")));
                }
            }
        }
        let leaves = rtree.levels.pop().unwrap_or_default();
        check_domain(checker, info, &leaves);
        Some(Boxes(leaves))
    }

    /// The box of a tile.
    pub(super) fn tile(&self, tile: u64) -> Option<&Rect> {
        self.0.get(usize::try_from(tile).ok()?)
    }
}

/// The non-empty domain of a sparse fragment is the union of its tiles' boxes.
fn check_domain(checker: &Checker, info: &FragmentInfo, boxes: &[Rect]) {
    let stored = info.non_empty_domain();
    // Libraries before format 10 left tiles out of the domain of strings.
    if info.writer.library_version < 10 && !info.schema.all_dimensions_fixed() {
        return;
    }
    let problem = |message: String| {
        checker.report(Problem::new(
            Kind::NonEmptyDomain,
            checker.show(&info.metadata_path()),
            message,
        ));
    };
    match (stored, union(&info.schema, boxes)) {
        (Some(stored), Some(all)) => {
            if let Some(d) = differs(&info.schema, stored, &all) {
                problem(format!(
                    "dimension {d} of the non-empty domain is not the union of the tiles' bounding boxes"
                ));
            }
        }
        (None, Some(_)) => problem("no non-empty domain, but there are tiles".into()),
        (_, None) => {}
    }
}

/// The smallest box that holds all of `boxes`; None for no boxes. Bounds that cannot be compared (NaN) are passed over.
fn union(schema: &Schema, boxes: &[Rect]) -> Option<Rect> {
    let (first, rest) = boxes.split_first()?;
    let mut all = first.clone();
    for next in rest {
        for ((d, all), next) in schema.dimensions.iter().zip(&mut all).zip(next) {
            if compare(d.datatype, d.cell_val_num, &next.lo, &all.lo) == Some(Ordering::Less) {
                all.lo.clone_from(&next.lo);
            }
            if compare(d.datatype, d.cell_val_num, &next.hi, &all.hi) == Some(Ordering::Greater) {
                all.hi.clone_from(&next.hi);
            }
        }
    }
    Some(all)
}

/// The first dimension in which two boxes differ.
fn differs(schema: &Schema, a: &[Range], b: &[Range]) -> Option<usize> {
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
    use crate::format::testing::{field, schema, var};

    fn rect(x: (i16, i16), s: (&str, &str)) -> Rect {
        vec![
            Range {
                lo: x.0.to_le_bytes().to_vec(),
                hi: x.1.to_le_bytes().to_vec(),
            },
            Range {
                lo: s.0.into(),
                hi: s.1.into(),
            },
        ]
    }

    #[test]
    fn unions_follow_the_types() {
        let dimensions = [field("x", Datatype::Int16), var("s", Datatype::StringAscii)];
        let schema = schema(22, true, &dimensions, &[]);
        let boxes = [rect((-1, 2), ("b", "c")), rect((-300, 1), ("bb", "d"))];
        let all = union(&schema, &boxes).unwrap();
        assert_eq!(all, rect((-300, 2), ("b", "d")));
        assert_eq!(differs(&schema, &all, &rect((-300, 2), ("b", "d"))), None);
        assert_eq!(differs(&schema, &all, &rect((-300, 3), ("b", "d"))), Some(0));
        assert_eq!(differs(&schema, &all, &rect((-300, 2), ("", "d"))), Some(1));
        assert_eq!(union(&schema, &[]), None);
    }
}
