//! The directory of a fragment.

use super::column::columns;
use super::directory::FixedDirectory;
use super::document::{Document, DocumentContent, state_of_file};
use super::json::fields::{StoredField, stored_fields};
use super::json::tiles::{TileListKey, TileLists};
use super::json::{self, render};
use super::node::{Freshness, Node, NodeType};
use super::permissions::Origin;
use crate::array::fragment::Fragment;
use crate::array::fragment_info::{FragmentInfo, FragmentMetadata};
use crate::array::generic_body::GenericBody;
use crate::error::{Error, ErrorKind, Result};
use crate::format::body::Body;
use crate::format::fragment::RTree;
use crate::format::fragment::sections::parse_fragment_statistics;
use crate::layout::segments::Segments;
use crate::storage::Blob;
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;

/// The node of a fragment.
pub fn fragment(fragment: Arc<Fragment>) -> Node {
    let names = vec![
        ("footer.json", NodeType::File),
        ("rtree.json", NodeType::File),
        ("tiles.json", NodeType::File),
        ("statistics.json", NodeType::File),
        ("conditions.json", NodeType::File),
        ("columns", NodeType::Directory),
    ];
    let mtime = fragment.name.timestamps.1;
    let origin = Origin::Fragment(fragment.clone());
    FixedDirectory::node(mtime, origin, names, move |name| child(&fragment, name))
}

/// What `name` in the directory of a fragment is.
fn child(fragment: &Arc<Fragment>, name: &'static str) -> Node {
    let large = |content: fn(&Arc<FragmentInfo>) -> Result<Segments>| {
        document(fragment, name, move |fragment| {
            let info = fragment.open()?;
            content(&info)
                .and_then(DocumentContent::of)
                .map_err(|e| info.place(e))
        })
    };
    let small = |content: fn(&FragmentInfo) -> Result<Value>| {
        document(fragment, name, move |fragment| {
            let info = fragment.open()?;
            let value = content(&info).map_err(|e| info.place(e))?;
            Ok(DocumentContent::text(render(&value)))
        })
    };
    match name {
        "footer.json" => document(fragment, name, |fragment| {
            Ok(DocumentContent::text(render(&footer_or_front(fragment)?)))
        }),
        "rtree.json" => large(rtree),
        "tiles.json" => large(tiles),
        "statistics.json" => small(statistics),
        "conditions.json" => small(conditions),
        _ => columns(fragment.clone()),
    }
}

/// A document made of a fragment's metadata file.
fn document(
    fragment: &Arc<Fragment>,
    name: &'static str,
    content: impl Fn(&Fragment) -> Result<DocumentContent> + Send + Sync + 'static,
) -> Node {
    let document = Document {
        engine: fragment.engine().clone(),
        of: fragment.path.clone(),
        name,
        mtime: fragment.name.timestamps.1,
        freshness: Freshness::Immutable,
        origin: Origin::FragmentMetadata(fragment.clone()),
    };
    let (of_state, fragment) = (fragment.clone(), fragment.clone());
    document.node(
        move || state_of_file(of_state.engine(), &of_state.metadata_path()),
        move || content(&fragment),
    )
}

fn footer_or_front(fragment: &Fragment) -> Result<Value> {
    let error = match fragment.open() {
        Ok(info) => return Ok(footer(&info)),
        Err(error) => error,
    };
    match (error.kind(), fragment.clear_footer()) {
        (ErrorKind::KeyRequired | ErrorKind::WrongKey, Ok(Some((front, position)))) => {
            Ok(json::footer::clear_footer_json(&front, position))
        }
        _ => Err(error),
    }
}

fn footer(info: &FragmentInfo) -> Value {
    let geometry = &info.geometry;
    match &info.metadata {
        FragmentMetadata::Legacy(legacy) => {
            json::footer::legacy_json(legacy, &info.schema, info.dense, geometry)
        }
        FragmentMetadata::Footer(footer, position) => {
            json::footer::footer_json(footer, &info.schema, *position, geometry)
        }
    }
}

fn rtree(info: &Arc<FragmentInfo>) -> Result<Segments> {
    let schema = info.schema.clone();
    match &info.metadata {
        FragmentMetadata::Legacy(legacy) => {
            let levels = match legacy.mbrs.is_empty() {
                true => Vec::new(),
                false => vec![legacy.mbrs.boxes.clone()],
            };
            json::rtree::rtree_segments(None, levels, Arc::new(LegacyBoxes(info.clone())), schema)
        }
        FragmentMetadata::Footer(footer, _) => {
            let offset = footer.offsets.rtree;
            let body = info.generic_body(offset).hold()?;
            let rtree =
                RTree::parse(&body, footer.version, &schema).map_err(|e| e.in_part("R-tree").at(offset))?;
            json::rtree::rtree_segments(Some(rtree.fanout), rtree.levels, Arc::new(body), schema)
        }
    }
}

/// The boxes of versions 1 and 2.
struct LegacyBoxes(Arc<FragmentInfo>);

impl Body for LegacyBoxes {
    fn size(&self) -> Result<u64> {
        self.bytes().size()
    }

    fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        self.bytes().read(range, out)
    }
}

impl LegacyBoxes {
    fn bytes(&self) -> &[u8] {
        match &self.0.metadata {
            FragmentMetadata::Legacy(legacy) => &legacy.mbrs.body,
            FragmentMetadata::Footer(..) => &[],
        }
    }
}

fn tiles(info: &Arc<FragmentInfo>) -> Result<Segments> {
    let lists = Lists {
        blob: info.engine.open_immutable(&info.metadata_path())?,
        info: info.clone(),
    };
    json::tiles::tiles_segments(stored_fields(&info.schema, &info.slots), lists)
}

/// The lists of a fragment, whose metadata file is held.
struct Lists {
    info: Arc<FragmentInfo>,
    blob: Arc<dyn Blob>,
}

impl Lists {
    /// Where the list of a field is: the offset of its generic tile, and that tile's body.
    fn generic_body(&self, field: &StoredField, list: TileListKey) -> Option<(u64, GenericBody)> {
        let FragmentMetadata::Footer(footer, _) = &self.info.metadata else {
            return None;
        };
        let (info, o) = (&self.info, &footer.offsets);
        let body = |offsets: &[u64], index: Option<usize>| {
            let offset = *offsets.get(index?)?;
            Some((offset, info.generic_body(offset)))
        };
        let slot = Some(field.slot);
        // Those of the global order are by dimension, not by slot.
        let dimension = || (0..info.slots.dimensions).find(|&i| info.slots.dimension(i) == slot);
        match list {
            TileListKey::TileOffsets => body(&o.tile_offsets, slot),
            TileListKey::TileVarOffsets => body(&o.tile_var_offsets, slot),
            TileListKey::TileVarSizes => body(&o.tile_var_sizes, slot),
            TileListKey::TileValidityOffsets => body(&o.tile_validity_offsets, slot),
            TileListKey::Mins => body(&o.tile_mins, slot),
            TileListKey::Maxs => body(&o.tile_maxs, slot),
            TileListKey::Sums => body(&o.tile_sums, slot),
            TileListKey::NullCounts => body(&o.tile_null_counts, slot),
            TileListKey::GlobalOrderMins => body(&o.global_order_mins, dimension()),
            TileListKey::GlobalOrderMaxs => body(&o.global_order_maxs, dimension()),
        }
    }
}

impl TileLists for Lists {
    fn body(&self, field: &StoredField, list: TileListKey) -> Option<Box<dyn Body + '_>> {
        if let FragmentMetadata::Legacy(legacy) = &self.info.metadata {
            let lists = match list {
                TileListKey::TileOffsets => &legacy.tile_offsets,
                TileListKey::TileVarOffsets => &legacy.tile_var_offsets,
                TileListKey::TileVarSizes => &legacy.tile_var_sizes,
                _ => return None,
            };
            return Some(Box::new(Numbers(lists.get(field.slot)?)));
        }
        let (_, body) = self.generic_body(field, list)?;
        Some(Box::new(body.held(self.blob.clone())))
    }

    fn place(&self, field: &StoredField, list: TileListKey, error: Error) -> Error {
        let part = match list {
            TileListKey::TileOffsets => "tile offsets",
            TileListKey::TileVarOffsets => "tile var offsets",
            TileListKey::TileVarSizes => "tile var sizes",
            TileListKey::TileValidityOffsets => "tile validity offsets",
            TileListKey::Mins => "tile mins",
            TileListKey::Maxs => "tile maxs",
            TileListKey::Sums => "tile sums",
            TileListKey::NullCounts => "tile null counts",
            TileListKey::GlobalOrderMins => "global-order minima",
            TileListKey::GlobalOrderMaxs => "global-order maxima",
        };
        let offset = self.generic_body(field, list).map_or(0, |(offset, _)| offset);
        error
            .in_part(part)
            .at(offset)
            .in_part(format_args!("lists of field `{}`", field.key))
            .in_file(self.blob.display())
    }
}

/// A list of numbers in memory in the form of one that is stored: its count, then the numbers.
struct Numbers<'a>(&'a [u64]);

impl Body for Numbers<'_> {
    fn size(&self) -> Result<u64> {
        Ok((self.0.len() as u64).saturating_mul(8).saturating_add(8))
    }

    fn read(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        if range.end > self.size()? {
            return Err(Error::truncated("the list ends early").at(range.start));
        }
        let first = range.start / 8;
        let words = std::iter::once(self.0.len() as u64).chain(self.0.iter().copied());
        let wanted = range.end.div_ceil(8).saturating_sub(first) as usize;
        let bytes = words.skip(first as usize).take(wanted).flat_map(u64::to_le_bytes);
        let skipped = (range.start % 8) as usize;
        out.extend(
            bytes
                .skip(skipped)
                .take(range.end.saturating_sub(range.start) as usize),
        );
        Ok(())
    }
}

fn statistics(info: &FragmentInfo) -> Result<Value> {
    let fields = stored_fields(&info.schema, &info.slots);
    let FragmentMetadata::Footer(footer, _) = &info.metadata else {
        return Ok(json::statistics::statistics_json(&fields, info.dense, None));
    };
    // A newer library that writes into an array of version 11 leaves an offset in the footer, but that
    // version has no statistics.
    let offset = footer
        .offsets
        .fragment_statistics
        .filter(|_| footer.version >= 12);
    let statistics = info
        .section(offset)?
        .map(|body| parse_fragment_statistics(&body, info.slots.fixed()))
        .transpose()
        .map_err(|e| e.in_part("fragment statistics").at(offset.unwrap_or(0)))?;
    Ok(json::statistics::statistics_json(
        &fields,
        info.dense,
        statistics.as_deref(),
    ))
}

fn conditions(info: &FragmentInfo) -> Result<Value> {
    let paths = info.processed_conditions()?;
    Ok(json::conditions::conditions_json(paths.as_deref()))
}
