//! The directory of a fragment.

use super::column::columns;
use super::directory::{Children, ListedDirectory};
use super::document::Document;
use super::json::fields::{StoredField, stored_fields};
use super::json::tiles::{FieldTiles, TilesWriter};
use super::json::{self, render};
use super::node::{Freshness, Node};
use super::permissions::{Sources, of_fragment, restricted};
use crate::array::fragment::{Fragment, FragmentInfo, FragmentMetadata};
use crate::error::{Error, ErrorKind, Result};
use crate::format::fragment::sections::{
    parse_fragment_statistics, parse_processed_conditions, parse_u64_list,
};
use crate::format::fragment::{Footer, MinMax, RTree};
use crate::format::range::Rect;
use serde_json::Value;
use std::sync::Arc;

/// The node of a fragment.
pub fn fragment(fragment: Arc<Fragment>) -> Node {
    let mtime = fragment.name.timestamps.1;
    let of_directory = fragment.clone();
    let directory = ListedDirectory::node(mtime, Freshness::Immutable, move || {
        let document = |content: fn(&FragmentInfo) -> Result<Vec<u8>>| {
            let fragment = fragment.clone();
            Document::node(mtime, Freshness::Immutable, move || {
                let info = fragment.open()?;
                content(&info).map_err(|e| e.in_file(info.engine.storage.display(&info.metadata_path())))
            })
        };
        let children: [(&str, Node); 6] = [
            ("footer.json", footer_document(fragment.clone())),
            ("rtree.json", document(rtree)),
            ("tiles.json", document(tiles)),
            ("statistics.json", document(|info| Ok(render(&statistics(info)?)))),
            ("conditions.json", document(|info| Ok(render(&conditions(info)?)))),
            ("columns", columns(fragment.clone())),
        ];
        Ok(children
            .into_iter()
            .map(|(name, node)| {
                let fragment = fragment.clone();
                (name.into(), restricted(node, move || Ok(of_fragment(&fragment))))
            })
            .collect::<Children>())
    });
    restricted(directory, move || {
        let fragment = &of_directory;
        let sources = Sources::new(fragment.engine()).key(fragment.key());
        Ok(sources
            .search(&fragment.path)
            .listing(&fragment.path)
            .permissions())
    })
}

fn footer_document(fragment: Arc<Fragment>) -> Node {
    Document::node(fragment.name.timestamps.1, Freshness::Immutable, move || {
        let error = match fragment.open() {
            Ok(info) => return Ok(render(&footer(&info))),
            Err(error) => error,
        };
        match (error.kind(), fragment.clear_footer()) {
            (ErrorKind::KeyRequired | ErrorKind::WrongKey, Ok(Some((front, position)))) => {
                Ok(render(&json::footer::clear_footer_json(&front, position)))
            }
            _ => Err(error),
        }
    })
}

fn footer(info: &FragmentInfo) -> Value {
    let geometry = &info.geometry;
    match &info.metadata {
        FragmentMetadata::Legacy(legacy) => json::footer::legacy_json(
            legacy,
            &info.schema,
            info.dense,
            geometry.tile_num,
            geometry.cell_num,
        ),
        FragmentMetadata::Footer(footer, position) => json::footer::footer_json(
            footer,
            &info.schema,
            *position,
            geometry.tile_num,
            geometry.cell_num,
        ),
    }
}

fn rtree(info: &FragmentInfo) -> Result<Vec<u8>> {
    let dimensions = &info.schema.dimensions;
    match &info.metadata {
        FragmentMetadata::Legacy(legacy) => {
            let levels = [legacy.mbrs.as_slice()];
            let levels = if legacy.mbrs.is_empty() { &[] } else { &levels[..] };
            Ok(json::rtree::write_rtree(None, levels, dimensions))
        }
        FragmentMetadata::Footer(footer, _) => {
            let body = info.section(Some(footer.offsets.rtree))?.unwrap_or_default();
            let rtree = RTree::parse(&body, footer.version, &info.schema)
                .map_err(|e| e.in_part("R-tree").at(footer.offsets.rtree))?;
            let levels: Vec<&[Rect]> = rtree.levels.iter().map(Vec::as_slice).collect();
            Ok(json::rtree::write_rtree(Some(rtree.fanout), &levels, dimensions))
        }
    }
}

/// The lists of one field that are kept in sections of their own.
#[derive(Default)]
struct Lists {
    tile_offsets: Option<Vec<u64>>,
    tile_var_offsets: Option<Vec<u64>>,
    tile_var_sizes: Option<Vec<u64>>,
    tile_validity_offsets: Option<Vec<u64>>,
    mins: Option<MinMax>,
    maxs: Option<MinMax>,
    sums: Option<Vec<u64>>,
    null_counts: Option<Vec<u64>>,
    global_order_mins: Option<MinMax>,
    global_order_maxs: Option<MinMax>,
}

fn tiles(info: &FragmentInfo) -> Result<Vec<u8>> {
    let mut writer = TilesWriter::new();
    for field in stored_fields(&info.schema, &info.slots) {
        let lists = match &info.metadata {
            FragmentMetadata::Legacy(legacy) => Lists {
                tile_offsets: legacy.tile_offsets.get(field.slot).cloned(),
                tile_var_offsets: legacy.tile_var_offsets.get(field.slot).cloned(),
                tile_var_sizes: legacy.tile_var_sizes.get(field.slot).cloned(),
                ..Lists::default()
            },
            FragmentMetadata::Footer(footer, _) => read_lists(info, footer, &field)
                .map_err(|e| e.in_part(format_args!("lists of field `{}`", field.key)))?,
        };
        writer.field(&FieldTiles {
            field: &field,
            tile_offsets: lists.tile_offsets.as_deref(),
            tile_var_offsets: lists.tile_var_offsets.as_deref(),
            tile_var_sizes: lists.tile_var_sizes.as_deref(),
            tile_validity_offsets: lists.tile_validity_offsets.as_deref(),
            mins: lists.mins.as_ref(),
            maxs: lists.maxs.as_ref(),
            sums: lists.sums.as_deref(),
            null_counts: lists.null_counts.as_deref(),
            global_order_mins: lists.global_order_mins.as_ref(),
            global_order_maxs: lists.global_order_maxs.as_ref(),
        });
    }
    Ok(writer.finish())
}

fn read_lists(info: &FragmentInfo, footer: &Footer, field: &StoredField) -> Result<Lists> {
    fn parsed<T>(
        info: &FragmentInfo,
        offsets: &[u64],
        slot: usize,
        part: &str,
        parse: fn(&[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        let offset = offsets.get(slot).copied();
        let place = |e: Error| e.in_part(part).at(offset.unwrap_or(0));
        info.section(offset)?
            .map(|body| parse(&body).map_err(place))
            .transpose()
    }
    let list = |offsets: &[u64], part| parsed(info, offsets, field.slot, part, parse_u64_list);
    let bounds = |offsets: &[u64], part| parsed(info, offsets, field.slot, part, MinMax::parse);
    // These lists are by dimension, not by slot.
    let dimension = (0..info.slots.dimensions).find(|&i| info.slots.dimension(i) == Some(field.slot));
    let of_dimension = |offsets: &[u64], part| match dimension {
        Some(i) => parsed(info, offsets, i, part, MinMax::parse),
        None => Ok(None),
    };
    let offsets = &footer.offsets;
    let var = |list: &'_ [u64]| {
        if field.cell_val_num.is_var() {
            list.to_vec()
        } else {
            Vec::new()
        }
    };
    let nullable = |list: &'_ [u64]| if field.nullable { list.to_vec() } else { Vec::new() };
    Ok(Lists {
        tile_offsets: list(&offsets.tile_offsets, "tile offsets")?,
        tile_var_offsets: list(&var(&offsets.tile_var_offsets), "tile var offsets")?,
        tile_var_sizes: list(&var(&offsets.tile_var_sizes), "tile var sizes")?,
        tile_validity_offsets: list(&nullable(&offsets.tile_validity_offsets), "tile validity offsets")?,
        mins: bounds(&offsets.tile_mins, "tile mins")?,
        maxs: bounds(&offsets.tile_maxs, "tile maxs")?,
        sums: list(&offsets.tile_sums, "tile sums")?,
        null_counts: list(&nullable(&offsets.tile_null_counts), "tile null counts")?,
        global_order_mins: of_dimension(&offsets.global_order_mins, "global-order minima")?,
        global_order_maxs: of_dimension(&offsets.global_order_maxs, "global-order maxima")?,
    })
}

fn statistics(info: &FragmentInfo) -> Result<Value> {
    let fields = stored_fields(&info.schema, &info.slots);
    let FragmentMetadata::Footer(footer, _) = &info.metadata else {
        return Ok(json::statistics::statistics_json(&fields, info.dense, None));
    };
    // A newer library that writes into an array of version 11 leaves an offset in the footer, but that version has no statistics.
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
    let FragmentMetadata::Footer(footer, _) = &info.metadata else {
        return Ok(json::conditions::conditions_json(None));
    };
    let offset = footer.offsets.processed_conditions;
    let paths = info
        .section(offset)?
        .map(|body| parse_processed_conditions(&body))
        .transpose()
        .map_err(|e| e.in_part("processed conditions").at(offset.unwrap_or(0)))?;
    Ok(json::conditions::conditions_json(paths.as_deref()))
}
