//! Finds the fragment that each cell of a dense array comes from.
//!
//! A cell comes from the newest fragment whose non-empty domain contains it and that has the attribute.
//! libtiledb makes one exception for speed: within a tile, a fragment is ignored if a newer fragment covers
//! all that it covers, even if the newer one lacks the attribute.

use super::space::Area;
use std::collections::HashSet;
use std::ops::Range;

/// The box that a fragment covers.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// The bounding box of its cells.
    pub(super) area: Area,
    /// Whether the fragment is dense, and so has all cells of the box. A sparse one has only those at its
    /// coordinates.
    pub(super) dense: bool,
}

/// A box of cells of one tile, and the layer that has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LayerPart {
    /// The layer; None for the fill value.
    pub(super) layer: Option<usize>,
    pub(super) area: Area,
}

/// The layers that have some cells of one tile.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Boxes that do not overlap and together are all cells wanted.
    pub(super) boxes: Vec<LayerPart>,
    /// The dense layers that `boxes` may refer to, newest first.
    pub(super) whole: Vec<usize>,
    /// The sparse layers that may set some of the cells, oldest first, each with the number of layers of
    /// `whole` that are newer and hide what they cover.
    pub(super) points: Vec<(usize, usize)>,
}

/// The layers of an array, oldest first, and a tree of bounding boxes to find those that touch a tile.
#[derive(Debug)]
pub(super) struct Overlay {
    layers: Vec<Layer>,
    /// Indexes of the layers, in the order of the tree's leaves.
    sorted: Vec<usize>,
    /// The nodes of the tree; the root is the last. Empty if there are no layers.
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    area: Area,
    below: Below,
}

#[derive(Debug)]
enum Below {
    Nodes(usize, usize),
    /// A range of [`Overlay::sorted`].
    Layers(Range<usize>),
}

/// The most layers in a leaf of the tree.
const MAX_LEAF: usize = 8;

/// A box with more layers is halved, so that each half has fewer.
const MAX_BOX_LAYERS: usize = 8;

impl Overlay {
    /// An overlay of `layers`, oldest first.
    pub(super) fn new(layers: Vec<Layer>) -> Overlay {
        let mut sorted: Vec<usize> = (0..layers.len()).collect();
        let mut nodes = Vec::new();
        build(&layers, &mut sorted, 0, &mut nodes);
        Overlay {
            layers,
            sorted,
            nodes,
        }
    }

    pub(super) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The layers whose boxes touch `area`, newest first.
    pub(super) fn touching(&self, area: &Area) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        self.search(area, |layer| {
            found.push(layer);
            false
        });
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    /// Whether any layer's box touches `area`.
    pub(super) fn touches(&self, area: &Area) -> bool {
        self.search(area, |_| true)
    }

    /// Calls `each` with the layers whose boxes touch `area`, in any order, until it returns true. Returns
    /// whether it did.
    fn search(&self, area: &Area, mut each: impl FnMut(usize) -> bool) -> bool {
        let mut waiting: Vec<usize> = self.nodes.len().checked_sub(1).into_iter().collect();
        while let Some(number) = waiting.pop() {
            let node = &self.nodes[number];
            if !node.area.touches(area) {
                continue;
            }
            match &node.below {
                Below::Nodes(a, b) => waiting.extend([*a, *b]),
                Below::Layers(range) => {
                    let layers = self.sorted[range.clone()].iter();
                    let touches = |layer: usize| self.area(layer).touches(area);
                    if layers.copied().filter(|&layer| touches(layer)).any(&mut each) {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn area(&self, layer: usize) -> &Area {
        #[cfg(test)]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
        &self.layers[layer].area
    }

    /// The layers that have the cells of `wanted`, which must be inside `tile`, the box of a tile of the
    /// array. `holds` tells whether a layer has the attribute; the values of older layers show through one
    /// that has not.
    pub(super) fn parts(&self, tile: &Area, wanted: &Area, holds: impl Fn(usize) -> bool) -> Parts {
        let mut parts = Parts::default();
        // A layer that does not touch `wanted` hides none that does: it cannot contain all that one covers.
        let touching = self.touching(wanted);
        // Behind the oldest layer with the attribute there is nothing to hide.
        let count = touching.iter().rposition(|&number| holds(number));
        let count = count.map_or(0, |last| last + 1);
        // The parts of the tile that newer layers without the attribute cover. Many layers may cover the
        // same.
        let mut hiding: HashSet<Area> = HashSet::new();
        for &number in &touching[..count] {
            let layer = &self.layers[number];
            let covered = layer.area.common(tile).expect("what is wanted is in the tile");
            if !holds(number) {
                if layer.dense {
                    hiding.insert(covered);
                }
                continue;
            }
            if hiding.iter().any(|newer| hides(newer, &covered)) {
                continue;
            }
            match layer.dense {
                true => parts.whole.push(number),
                false => parts.points.push((number, parts.whole.len())),
            }
            // All older layers are hidden.
            if layer.dense && layer.area.contains(wanted) {
                break;
            }
        }
        parts.points.reverse();
        self.resolve(wanted.clone(), &parts.whole, &mut parts.boxes);
        parts
    }

    /// Splits `area` into boxes of one layer each, or of none. All of `layers` touch `area`; the newest is
    /// first.
    fn resolve(&self, area: Area, layers: &[usize], out: &mut Vec<LayerPart>) {
        let newest = layers.first().copied();
        let whole = newest
            .map(|layer| self.area(layer))
            .is_none_or(|newest| newest.contains(&area));
        if whole {
            return out.push(LayerPart { layer: newest, area });
        }
        if layers.len() > MAX_BOX_LAYERS
            && let Some(halves) = halves(&area)
        {
            for half in halves {
                let mut inside = Vec::new();
                for &layer in layers {
                    let own = self.area(layer);
                    if !own.touches(&half) {
                        continue;
                    }
                    inside.push(layer);
                    if own.contains(&half) {
                        break;
                    }
                }
                self.resolve(half, &inside, out);
            }
            return;
        }
        let mut left = vec![area];
        for &layer in layers {
            let mut after = Vec::new();
            for area in left {
                match self.area(layer).common(&area) {
                    None => after.push(area),
                    Some(covered) => {
                        area.without(&covered, &mut after);
                        out.push(LayerPart {
                            layer: Some(layer),
                            area: covered,
                        });
                    }
                }
            }
            left = after;
        }
        out.extend(left.into_iter().map(|area| LayerPart { layer: None, area }));
    }
}

/// Whether a layer that covers `newer` of a tile hides an older one that covers `covered` of it.
fn hides(newer: &Area, covered: &Area) -> bool {
    #[cfg(test)]
    tests::COMPARED.set(tests::COMPARED.get() + 1);
    newer.contains(covered)
}

/// Halves a box along its longest side; None for a single cell.
fn halves(area: &Area) -> Option<[Area; 2]> {
    let sides = area.0.iter().enumerate();
    let (longest, &(first, last)) = sides.max_by_key(|(_, (first, last))| last - first)?;
    if first == last {
        return None;
    }
    let middle = first + (last - first) / 2;
    let half = |ends| {
        let mut half = area.clone();
        half.0[longest] = ends;
        half
    };
    Some([half((first, middle)), half((middle + 1, last))])
}

/// Builds the tree over the layers in `part`, which begins at index `start` of all layers, and sorts `part`.
/// Returns the index of the tree's root.
fn build(layers: &[Layer], part: &mut [usize], start: usize, nodes: &mut Vec<Node>) -> Option<usize> {
    let area_of = |number: usize| &layers[number].area;
    let mut areas = part.iter().map(|&number| area_of(number));
    let first = areas.next()?.clone();
    let area = areas.fold(first, |all, next| all.around(next));
    let below = if part.len() <= MAX_LEAF {
        Below::Layers(start..start + part.len())
    } else {
        // Splits the layers by the centres of their boxes, along the dimension in which the centres are
        // farthest apart relative to the lengths of the boxes.
        let middle = |number: usize, axis: usize| {
            let (first, last) = area_of(number).0[axis];
            first + (last - first) / 2
        };
        let spread = |axis: usize| {
            let middles = || part.iter().map(|&number| middle(number, axis));
            let ends = part.iter().map(|&number| area_of(number).0[axis]);
            let lengths = ends.map(|(first, last)| (last - first) as f64 + 1.0);
            let apart = middles().max().unwrap_or(0) - middles().min().unwrap_or(0);
            apart as f64 / lengths.sum::<f64>()
        };
        let axes = (0..area.0.len()).map(|axis| (axis, spread(axis)));
        let axis = axes
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map_or(0, |(axis, _)| axis);
        let half = part.len() / 2;
        part.select_nth_unstable_by_key(half, |&number| middle(number, axis));
        let (low, high) = part.split_at_mut(half);
        let low = build(layers, low, start, nodes)?;
        Below::Nodes(low, build(layers, high, start + half, nodes)?)
    };
    nodes.push(Node { area, below });
    nodes.len().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::Random;
    use std::cell::Cell;

    thread_local! {
        /// How often the area of a layer was looked at.
        pub(super) static LOOKED_AT: Cell<u64> = const { Cell::new(0) };
        /// How often it was asked whether a layer hides another.
        pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    fn random_area(random: &mut Random, within: &Area) -> Area {
        let ends = within.0.iter().map(|&(low, high)| {
            let (a, b) = (
                low + random.below(high - low + 1),
                low + random.below(high - low + 1),
            );
            (a.min(b), a.max(b))
        });
        Area(ends.collect())
    }

    fn cells(area: &Area) -> Vec<Vec<u64>> {
        area.0.iter().fold(vec![Vec::new()], |places, (first, last)| {
            let longer = |place: &Vec<u64>| {
                let place = place.clone();
                (*first..=*last).map(move |index| [place.clone(), vec![index]].concat())
            };
            places.iter().flat_map(longer).collect()
        })
    }

    /// The rule of the module's documentation: drop fragments that a newer one covers in the tile, then take
    /// the newest dense one that has the cell and the attribute. Returns it, and the sparse ones that are
    /// left and newer, oldest first.
    fn expected(layers: &[Layer], tile: &Area, held: &[bool], place: &[u64]) -> (Option<usize>, Vec<usize>) {
        let covered: Vec<Option<Area>> = layers.iter().map(|layer| layer.area.common(tile)).collect();
        let kept = |number: usize| {
            let own = covered[number].as_ref().unwrap();
            let mut newer = (number + 1..layers.len()).filter(|&newer| layers[newer].dense);
            !newer.any(|newer| covered[newer].as_ref().is_some_and(|newer| newer.contains(own)))
        };
        let has = |&n: &usize| layers[n].area.has(place) && held[n] && kept(n);
        let whole = (0..layers.len()).filter(has).rfind(|&n| layers[n].dense);
        let points = (whole.map_or(0, |whole| whole + 1)..layers.len()).filter(|&n| !layers[n].dense);
        (whole, points.filter(has).collect())
    }

    #[test]
    fn every_cell_is_from_whom_the_rule_says() {
        let mut random = Random(5);
        for round in 0..400 {
            let dimensions = 1 + random.below(3) as usize;
            let domain = Area(vec![(0, 11); dimensions]);
            let tile = Area(vec![(4, 7); dimensions]);
            let count = random.below(if round % 10 == 0 { 40 } else { 7 });
            let layers: Vec<Layer> = (0..count)
                .map(|_| Layer {
                    area: random_area(&mut random, &domain),
                    dense: random.below(4) > 0,
                })
                .collect();
            let lacking = random.below(3);
            let held: Vec<bool> = (0..count).map(|_| random.below(3) >= lacking).collect();
            let wanted = random_area(&mut random, &tile);
            let overlay = Overlay::new(layers.clone());
            let parts = overlay.parts(&tile, &wanted, |layer| held[layer]);
            let mut seen = 0;
            for part in &parts.boxes {
                for place in cells(&part.area) {
                    seen += 1;
                    assert!(wanted.has(&place));
                    let (whole, points) = expected(&layers, &tile, &held, &place);
                    assert_eq!(part.layer, whole);
                    let shown = |&&(layer, newer): &&(usize, usize)| {
                        let mut newer = parts.whole[..newer].iter();
                        layers[layer].area.has(&place) && !newer.any(|&layer| layers[layer].area.has(&place))
                    };
                    let shown = parts.points.iter().filter(shown).map(|(layer, _)| *layer);
                    assert_eq!(Vec::from_iter(shown), points);
                }
            }
            // All cells are there and their number is right, so none is there twice.
            assert_eq!(seen, cells(&wanted).len());
            let boxes = &parts.boxes;
            for (i, part) in boxes.iter().enumerate() {
                assert!(
                    boxes
                        .iter()
                        .skip(i + 1)
                        .all(|other| !other.area.touches(&part.area))
                );
            }
        }
    }

    #[test]
    fn single_cells_are_hidden_by_newer_boxes_alone() {
        let layer = |first, last, dense| Layer {
            area: Area(vec![(first, last)]),
            dense,
        };
        let overlay = Overlay::new(vec![
            layer(0, 9, true),
            layer(2, 8, false),
            layer(4, 5, true),
            layer(1, 3, false),
        ]);
        let tile = Area(vec![(0, 9)]);
        let parts = overlay.parts(&tile, &tile, |_| true);
        assert_eq!(parts.whole, [2, 0]);
        assert_eq!(parts.points, [(1, 1), (3, 0)]);
        let mut froms: Vec<_> = parts.boxes.iter().map(|p| (p.area.0[0], p.layer)).collect();
        froms.sort_unstable();
        assert_eq!(froms, [((0, 3), Some(0)), ((4, 5), Some(2)), ((6, 9), Some(0))]);
    }

    #[test]
    fn those_that_touch_a_box_are_found_among_many() {
        let mut random = Random(9);
        let domain = Area(vec![(0, u64::MAX >> 20), (1000, 2000)]);
        let layers: Vec<Layer> = (0..3000)
            .map(|_| {
                let mut area = random_area(&mut random, &domain);
                area.0[0].1 = area.0[0].1.min(area.0[0].0 + (1 << 30));
                Layer { area, dense: true }
            })
            .collect();
        let overlay = Overlay::new(layers.clone());
        for _ in 0..200 {
            let area = random_area(&mut random, &domain);
            let touching = layers.iter().enumerate().rev();
            let touching = touching.filter(|(_, layer)| layer.area.touches(&area));
            assert_eq!(
                overlay.touching(&area),
                touching.map(|(n, _)| n).collect::<Vec<_>>()
            );
        }
        assert!(Overlay::new(Vec::new()).touching(&domain).is_empty());
    }

    /// The work for ten thousand single cells in one tile grows with their number only, and a fragment over
    /// all of it hides older ones.
    #[test]
    fn many_fragments_in_one_tile_are_told_apart_quickly() {
        let tile = Area(vec![(0, 999), (0, 999)]);
        let mut layers: Vec<Layer> = (0..10_000u64)
            .map(|n| Layer {
                area: Area(vec![(n * 7 % 1000, n * 7 % 1000), (n * 13 % 997, n * 13 % 997)]),
                dense: true,
            })
            .collect();
        LOOKED_AT.set(0);
        let parts = Overlay::new(layers.clone()).parts(&tile, &tile, |_| true);
        assert!(parts.boxes.len() > 9000);
        layers.push(Layer {
            area: tile.clone(),
            dense: true,
        });
        let parts = Overlay::new(layers).parts(&tile, &tile, |_| true);
        let all = LayerPart {
            layer: Some(10_000),
            area: tile,
        };
        assert_eq!(parts.boxes, [all]);
        // A loop over pairs would look at a hundred million.
        let looked_at = LOOKED_AT.get();
        assert!(
            (10_000..5_000_000).contains(&looked_at),
            "{looked_at} areas looked at"
        );
    }

    /// The work for ten thousand fragments without the attribute, newer than those that have it, grows with
    /// their number only.
    #[test]
    fn many_fragments_without_the_attribute_are_passed_over_quickly() {
        let tile = Area(vec![(0, 19_999)]);
        let single = |n: u64| Area(vec![(n, n)]);
        let mut areas: Vec<Area> = (0..5).map(|n| Area(vec![(n * 4000, n * 4000 + 3999)])).collect();
        areas.extend((0..10_000).map(single));
        areas.extend((0..10_000).map(|_| single(7)));
        let layers: Vec<Layer> = areas
            .into_iter()
            .map(|area| Layer { area, dense: true })
            .collect();
        let overlay = Overlay::new(layers);
        COMPARED.set(0);
        let asked = Cell::new(0u64);
        let parts = overlay.parts(&tile, &tile, |layer| {
            asked.set(asked.get() + 1);
            layer < 5
        });
        assert_eq!(parts.whole, [4, 3, 2, 1, 0]);
        let none = overlay.parts(&tile, &tile, |_| false);
        assert_eq!((none.whole.len(), none.boxes[0].layer), (0, None));
        // One cell: those elsewhere are not looked at.
        let one = overlay.parts(&tile, &single(9000), |layer| layer < 5);
        assert_eq!(one.whole, [2]);
        let (compared, asked) = (COMPARED.get(), asked.get());
        assert!(compared <= 51_000, "{compared} comparisons");
        assert!(asked <= 41_000, "{asked} questions");
    }
}
