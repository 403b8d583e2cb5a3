//! `tiledbfs info`: describes an array on one screen, or shows a group or directory as a tree, and a group's
//! data set, as its Zarr hierarchy has it.

use super::options::source_parser;
use super::output::{Failures, Names, Stop, stdout};
use super::paths::{failed, join, visit};
use super::times::{Unit, time};
use super::{Failure, TreeArgs, logging};
use crate::describe::fragments::FragmentSummary;
use crate::describe::metadata::Pairs;
use crate::describe::value::Cell;
use crate::error::{Error, ErrorKind, Result};
use crate::export::dataset::{Group, Kind};
use crate::export::zarr::{ZarrArray, ZarrGroup};
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::enums::ArrayType;
use crate::format::pipeline::{Filter, Pipeline};
use crate::format::range::{Range, compare};
use crate::format::scalar::Scalar;
use crate::format::schema::{Dimension, Schema};
use crate::fragment::Outline;
use crate::names;
use crate::printable::escape;
use crate::tree::{Directory, DirectoryKind, Node, OWN_DIRECTORY, ShownGroup, Viewed};
use clap::{Args, ValueHint};
use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

pub(super) const HELP: &str = "\
Cells and bytes are those stored in the visible fragments. They include
overwritten and deleted cells, and in dense arrays the padding of tiles.
Unfiltered bytes are values, offsets and validity.

Examples:
  tiledbfs info my_array
  tiledbfs info my_group ~/other/*
  tiledbfs info my_array/labels/year";

#[derive(Debug, Args)]
pub(super) struct InfoArgs {
    /// Arrays, groups and directories of these; or SOURCE/PATH in one
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::DirPath, value_parser = source_parser())]
    sources: Vec<OsString>,
    #[command(flatten)]
    source_args: TreeArgs,
}

/// Runs `tiledbfs info`. If something cannot be read, the rest is still shown.
pub(super) fn run(args: &InfoArgs) -> std::result::Result<(), Failure> {
    logging::to_stderr();
    let mut out = stdout()?;
    let names = out.names();
    let mut first = true;
    let options = args.source_args.options()?;
    let mut failures = Failures::default();
    for source in &args.sources {
        let shown = visit(source, &[], &options, |found, failures| {
            let Node::Directory(directory) = &found.node else {
                return Err(failed(found.path, "is a file, not an array, group or directory").into());
            };
            let name = names.show_in_text(source);
            let mut text = if mem::take(&mut first) {
                String::new()
            } else {
                "\n".to_owned()
            };
            match shown_array(&**directory) {
                Some(viewed) => array(
                    &mut text,
                    names,
                    &name,
                    &**directory,
                    &viewed,
                    found.path,
                    failures,
                )?,
                None => {
                    tree(&mut text, names, &name, directory, found.path, failures);
                    if let Some(group) = directory.group()
                        && let Err(error) = data_set(&mut text, names, &**directory, &group)
                    {
                        failures.add(failed(found.path, error));
                    }
                }
            }
            Ok(out.write_all(text.as_bytes())?)
        });
        failures.check(shown);
    }
    failures.result()
}

/// The array that a directory shows; None if it shows none.
fn shown_array(directory: &dyn Directory) -> Option<Viewed> {
    let is_array = directory.kind() == DirectoryKind::Array;
    directory.viewed().filter(|_| is_array)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// Writes the description of an array to `out`.
fn array(
    out: &mut String,
    names: Names,
    shown: &str,
    directory: &dyn Directory,
    viewed: &Viewed,
    path: &OsStr,
    failures: &mut Failures,
) -> std::result::Result<(), Stop> {
    let schema = viewed.schema().map_err(|error| failed(path, error))?;
    let all = viewed.fragments().unwrap_or_else(|error| {
        failures.add(failed(path, error));
        Vec::new()
    });
    for fragment in all.iter().filter(|fragment| fragment.outline.is_none()) {
        let reason = fragment.reason.as_deref().unwrap_or("?");
        let reason = format!("{}: {reason}", fragment.name);
        failures.add(failed(&join(path, OsStr::new("fragments")), reason));
    }
    let written = written(&schema.dimensions, &all);

    let _ = writeln!(out, "{shown}: {}", one_line(&schema));
    schema_lines(out, &schema, &written);
    fragment_lines(out, &schema, viewed, &all, path, failures);
    let labels = schema.dimension_labels.iter();
    let labels: Vec<String> = labels.map(|label| shown_name(&label.name, names)).collect();
    if !labels.is_empty() {
        line(out, "labels", labels.join(", "));
    }
    let metadata = viewed.metadata().unwrap_or_else(|error| {
        failures.add(failed(path, error));
        Pairs::default()
    });
    match array_kind(directory, &metadata) {
        Ok((kind, exports)) => {
            if let Some(kind) = kind {
                line(out, "kind", kind);
            }
            if !exports.is_empty() {
                line(out, "open", format!("{}, in data/", exports.join(", ")));
            }
        }
        Err(error) => failures.add(failed(path, error)),
    }
    if let Err(error) = array_place(out, names, directory, &metadata) {
        failures.add(failed(path, error));
    }
    out.push('\n');
    table(out, &dimension_rows(&schema, &written, names));
    out.push('\n');
    table(out, &attribute_rows(&schema, names));
    Ok(())
}

/// Writes the shape of an array, of which `written` is written, and its order.
fn schema_lines(out: &mut String, schema: &Schema, written: &[Option<Range>]) {
    let dimensions = &schema.dimensions;
    let lengths = |ranges: &mut dyn Iterator<Item = Option<&Range>>| -> Option<String> {
        let lengths = ranges
            .zip(dimensions)
            .map(|(range, dimension)| length(dimension, range?));
        let lengths: Option<Vec<String>> = lengths.map(|length| Some(length?.to_string())).collect();
        Some(lengths?.join(" × "))
    };
    // Only integer dimensions have a shape.
    if let Some(whole) = lengths(&mut dimensions.iter().map(|dimension| dimension.domain.as_ref())) {
        let region = lengths(&mut written.iter().map(Option::as_ref));
        let region = region.map_or("nothing written".to_owned(), |region| format!("{region} written"));
        line(out, "shape", format!("{region}, in a domain of {whole}"));
    }
    if let Some(current) = &schema.current_domain {
        let current = current.iter().zip(dimensions);
        let current: Vec<String> = current.map(|(ends, dimension)| range(dimension, ends)).collect();
        line(out, "", format!("current domain {}", current.join(", ")));
    }
    let (tiles, cells) = (schema.tile_order.name(), schema.cell_order.name());
    let mut order = format!("tiles {tiles}, cells {cells}");
    if schema.array_type == ArrayType::Sparse {
        let _ = write!(order, ", capacity {}", schema.capacity);
    }
    line(out, "order", order);
}

/// Writes what the fragments of an array store, of all that are listed.
fn fragment_lines(
    out: &mut String,
    schema: &Schema,
    viewed: &Viewed,
    all: &[FragmentSummary],
    path: &OsStr,
    failures: &mut Failures,
) {
    let visible: Vec<&FragmentSummary> = all.iter().filter(|fragment| fragment.visible).collect();
    let outlines = outlines(all);
    let versions = visible.iter().filter_map(|fragment| fragment.format_version);
    let mut version = format!("schema {}", schema.version);
    match (versions.clone().min(), versions.max()) {
        (Some(first), Some(last)) if first == last => {
            let _ = write!(version, ", fragments {first}");
        }
        (Some(first), Some(last)) => {
            let _ = write!(version, ", fragments {first} to {last}");
        }
        _ => {}
    }
    line(out, "format", version);
    let mut number = HumanCount(visible.len() as u64).to_string();
    if visible.len() < all.len() {
        let _ = write!(
            number,
            ", and {} not visible",
            HumanCount((all.len() - visible.len()) as u64)
        );
    }
    line(out, "fragments", number);
    let sum = |value: fn(&Outline) -> u64| {
        let values = outlines.iter().map(|outline| value(outline));
        values.fold(0u64, |sum, value| sum.saturating_add(value))
    };
    // A total does not pass for that of all fragments.
    let without = match visible.len() - outlines.len() {
        0 => String::new(),
        unknown => format!(", without {}", count(unknown, "unreadable fragment")),
    };
    let cells = HumanCount(sum(|outline| outline.cells));
    line(out, "cells", format!("{cells}{without}"));
    let mut unfiltered = 0u64;
    for fragment in visible.iter().filter(|fragment| fragment.outline.is_some()) {
        match viewed.unfiltered(&fragment.name) {
            Ok(bytes) => unfiltered = unfiltered.saturating_add(bytes),
            Err(error) => {
                let path = join(&join(path, OsStr::new("fragments")), OsStr::new(&fragment.name));
                failures.add(failed(&path, error));
            }
        }
    }
    // The size of a fragment with an outline is known.
    let stored = HumanBytes(sum(|outline| outline.size.unwrap_or(u64::MAX)));
    let unfiltered = HumanBytes(unfiltered);
    line(
        out,
        "bytes",
        format!("{stored} stored, {unfiltered} unfiltered{without}"),
    );
    let newest = visible.iter().map(|fragment| fragment.timestamps.1).max();
    line(
        out,
        "newest write",
        newest.map_or("none".to_owned(), |newest| format!("{} UTC", time(newest))),
    );
}

/// The outlines of those fragments that are seen and can be read.
fn outlines(all: &[FragmentSummary]) -> Vec<&Outline> {
    let visible = all.iter().filter(|fragment| fragment.visible);
    visible
        .filter_map(|fragment| fragment.outline.as_deref())
        .collect()
}

/// The names of an array's exports, which are in `data/`.
fn exports(array: &dyn Directory) -> Result<Vec<String>> {
    /// What is no export.
    const OTHERS: [&str; 2] = ["columns", "view.json"];
    let Some(data) = below(array, OsStr::new("data"))? else {
        return Ok(Vec::new());
    };
    let listing = data.list()?;
    let listed = listing
        .entries()
        .filter_map(|(name, _)| name.to_str().map(str::to_owned));
    Ok(listed.filter(|name| !OTHERS.contains(&name.as_str())).collect())
}

/// The directory of this name, if there is one.
fn below(directory: &dyn Directory, name: &OsStr) -> Result<Option<Arc<dyn Directory>>> {
    match directory.lookup(name) {
        Ok(Some(Node::Directory(found))) => Ok(Some(found)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Summary of an array in one line.
fn one_line(schema: &Schema) -> String {
    let mut line = format!(
        "{} array, {}, {}",
        schema.array_type.name(),
        count(schema.dimensions.len(), "dimension"),
        count(schema.attributes.len(), "attribute"),
    );
    if schema.allows_duplicates {
        line.push_str(", duplicates allowed");
    }
    line
}

fn count(number: usize, what: &str) -> String {
    format!(
        "{} {what}{}",
        HumanCount(number as u64),
        if number == 1 { "" } else { "s" }
    )
}

/// The number of integers in a range of a dimension; None if it is not of integers.
fn length(dimension: &Dimension, range: &Range) -> Option<i128> {
    let end = |bytes: &[u8]| Scalar::read(dimension.datatype, bytes)?.integer();
    Some(end(&range.hi)? - end(&range.lo)? + 1)
}

/// The union of the fragments' non-empty domains, per dimension; None without fragments.
fn written(dimensions: &[Dimension], fragments: &[FragmentSummary]) -> Vec<Option<Range>> {
    let mut all: Vec<Option<Range>> = vec![None; dimensions.len()];
    for domain in outlines(fragments)
        .into_iter()
        .filter_map(|outline| outline.domain.as_ref())
    {
        for ((known, range), dimension) in all.iter_mut().zip(domain).zip(dimensions) {
            let known = known.get_or_insert_with(|| range.clone());
            let order = |a: &[u8], b: &[u8]| compare(dimension.datatype, dimension.cell_val_num, a, b);
            if order(&range.lo, &known.lo) == Some(Ordering::Less) {
                known.lo.clone_from(&range.lo);
            }
            if order(&range.hi, &known.hi) == Some(Ordering::Greater) {
                known.hi.clone_from(&range.hi);
            }
        }
    }
    all
}

/// A range of a dimension as `LOW..HIGH`.
fn range(dimension: &Dimension, range: &Range) -> String {
    let unit = Unit::of(dimension.datatype.name());
    let end = |bytes: &[u8]| value(dimension, bytes, unit);
    format!("{}..{}", end(&range.lo), end(&range.hi))
}

/// The table of dimensions; the first row is the heading.
fn dimension_rows(schema: &Schema, written: &[Option<Range>], names: Names) -> Vec<[String; 6]> {
    let heading = ["dimension", "type", "domain", "tile", "written", "filters"].map(str::to_owned);
    let mut rows = vec![heading];
    for (i, (dimension, written)) in schema.dimensions.iter().zip(written).enumerate() {
        let shown = |ends: &Range| range(dimension, ends);
        let extent = dimension.tile_extent.as_ref();
        rows.push([
            field_name(&dimension.name, names),
            datatype(dimension.datatype, dimension.cell_val_num),
            dimension.domain.as_ref().map_or_else(|| "any".to_owned(), shown),
            extent
                .map(|extent| value(dimension, extent, None))
                .unwrap_or_default(),
            written.as_ref().map(shown).unwrap_or_default(),
            // Dense arrays do not store coordinates.
            match (schema.array_type, schema.dimension_filters(i)) {
                (ArrayType::Dense, _) => String::new(),
                // Those of an array whose dimensions have no tiles of their own.
                (ArrayType::Sparse, own) if own.is_empty() => pipeline(&schema.coords_filters),
                (ArrayType::Sparse, own) => pipeline(own),
            },
        ]);
    }
    rows
}

/// The table of attributes; the first row is the heading.
fn attribute_rows(schema: &Schema, names: Names) -> Vec<[String; 4]> {
    let mut rows = vec![["attribute", "type", "", "filters"].map(str::to_owned)];
    for attribute in &schema.attributes {
        let nullable = attribute.nullable.then(|| "nullable".to_owned());
        let enumeration = attribute.enumeration.as_ref();
        let enumeration = enumeration.map(|name| format!("one of {}", shown_name(name, names)));
        let notes: Vec<String> = nullable.into_iter().chain(enumeration).collect();
        rows.push([
            field_name(&attribute.name, names),
            datatype(attribute.datatype, attribute.cell_val_num),
            notes.join(", "),
            pipeline(&attribute.filters),
        ]);
    }
    rows
}

/// A name of the array as it is written in text.
fn shown_name(name: &[u8], names: Names) -> String {
    names.show_in_text(OsStr::from_bytes(name))
}

fn field_name(name: &[u8], names: Names) -> String {
    match name {
        b"" => "(no name)".to_owned(),
        name => shown_name(name, names),
    }
}

fn datatype(datatype: Datatype, cell_val_num: CellValNum) -> String {
    let name = datatype.name();
    match cell_val_num {
        CellValNum::Var => format!("{name} var"),
        CellValNum::Fixed(1) => name.to_owned(),
        CellValNum::Fixed(number) => format!("{name} × {number}"),
    }
}

fn pipeline(pipeline: &Pipeline) -> String {
    let filters = pipeline.filters.iter().map(|filter| match filter {
        // -1 means the compressor's default.
        Filter::Compression { level, .. } if *level != -1 => format!("{} {level}", filter.name()),
        _ => filter.name().to_owned(),
    });
    filters.collect::<Vec<_>>().join(", ")
}

/// A value of a dimension; datetimes as dates.
fn value(dimension: &Dimension, bytes: &[u8], unit: Option<Unit>) -> String {
    let number = Scalar::read(dimension.datatype, bytes).and_then(Scalar::integer);
    let number = number.and_then(|number| i64::try_from(number).ok());
    if let Some(date) = unit.and_then(|unit| unit.show(number?)) {
        return date;
    }
    let cell = Cell::new(dimension.datatype, dimension.cell_val_num, bytes);
    match cell.hex() {
        Some(digits) => format!("0x{digits}"),
        None => match serde_json::to_value(&cell) {
            Ok(Value::String(text)) => escape(text),
            Ok(other) => other.to_string(),
            Err(error) => error.to_string(),
        },
    }
}

/// Writes an aligned table; the first row is the heading. Empty columns are left out.
fn table<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let mut widths = [None; N];
    for row in rows.iter().skip(1) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(Some(cell.chars().count()).filter(|width| *width > 0));
        }
    }
    if let Some(heading) = rows.first() {
        for (width, name) in widths.iter_mut().zip(heading) {
            *width = width.map(|width: usize| width.max(name.chars().count()));
        }
    }
    for row in rows {
        let cells = row.iter().zip(widths);
        let cells = cells.filter_map(|(cell, width)| width.map(|width| format!("{cell:<width$}")));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
}

/// Writes a group or directory as a tree.
fn tree(
    out: &mut String,
    names: Names,
    shown: &str,
    directory: &Arc<dyn Directory>,
    path: &OsStr,
    failures: &mut Failures,
) {
    // An explicit stack, because depth is unbounded: line prefix, prefix of children, name, child, path.
    let mut waiting = vec![(
        String::new(),
        String::new(),
        shown.to_owned(),
        Child::Shown(directory.clone()),
        path.to_owned(),
    )];
    while let Some((stem, indent, name, child, path)) = waiting.pop() {
        let found = match child {
            Child::Shown(directory) => summarize(&*directory),
            Child::NotShown(what) => Ok((what, Vec::new())),
            Child::Failed(error) => Err(error),
        };
        let (what, children) = match found {
            Ok(found) => found,
            Err(error) => {
                let what = escape(error.to_string());
                failures.add(failed(&path, error));
                (what, Vec::new())
            }
        };
        let _ = writeln!(out, "{stem}{name}: {what}");
        let last = children.len();
        let children = children.into_iter().zip(1..).map(|((name, child), number)| {
            let (branch, below) = if number == last {
                ("└── ", "    ")
            } else {
                ("├── ", "│   ")
            };
            (
                format!("{indent}{branch}"),
                format!("{indent}{below}"),
                names.show_in_text(&name),
                child,
                join(&path, &name),
            )
        });
        let mut children: Vec<_> = children.collect();
        children.reverse();
        waiting.append(&mut children);
    }
}

/// What is below a group or plain directory.
enum Child {
    /// A directory of the tree.
    Shown(Arc<dyn Directory>),
    /// A description of what the tree does not show.
    NotShown(String),
    /// Why nobody can tell what it is.
    Failed(Error),
}

type Children = Vec<(OsString, Child)>;

/// One line about a directory of the tree, and its children if it is a group or plain directory.
fn summarize(directory: &dyn Directory) -> Result<(String, Children)> {
    if let Some(viewed) = shown_array(directory) {
        let mut line = one_line(&*viewed.schema()?);
        if let Some(Node::Directory(fragments)) = directory.lookup(OsStr::new("fragments"))? {
            let number = usize::try_from(fragments.list()?.len()).unwrap_or(usize::MAX);
            line = format!("{line}, {}", count(number, "fragment"));
        }
        return Ok((line, Vec::new()));
    }
    let is_group = directory.kind() == DirectoryKind::Group;
    let listing = directory.list()?;
    let (mut children, mut exports) = (Vec::new(), Vec::new());
    for (name, _) in listing.entries() {
        if *name == *OWN_DIRECTORY {
            continue;
        }
        match directory.lookup(&name) {
            Ok(Some(Node::Directory(child))) if is_group && is_zarr(&*child) => {
                exports.push(name.to_string_lossy().into_owned());
            }
            Ok(Some(Node::Directory(child))) => children.push((name.into_owned(), Child::Shown(child))),
            // Part of an array; its contents are not shown.
            Ok(Some(Node::File(_))) if !is_group => {
                return Ok(("directory".to_owned(), Vec::new()));
            }
            Ok(_) => {}
            Err(error) => children.push((name.into_owned(), Child::Failed(error))),
        }
    }
    let Some(group) = directory.group() else {
        return Ok(("directory".to_owned(), children));
    };
    let group = group.summary()?;
    let known: HashSet<OsString> = children.iter().map(|(name, _)| name.clone()).collect();
    let file_name = |name: &[u8]| OsString::from(names::encode(name));
    let (mut members, unregistered) = (children.len(), group.unregistered.len());
    for (name, kind) in &group.unregistered {
        let name = file_name(name);
        if known.contains(&name) {
            // A group in which nothing was ever registered.
            members -= 1;
        } else {
            let kind = kind.name().to_lowercase();
            children.push((
                name,
                Child::NotShown(format!("{kind}, not registered in the group")),
            ));
        }
    }
    let mut elsewhere = 0;
    for member in &group.details.members {
        let uri = &member.uri;
        let parts = || uri.split(|&byte| byte == b'/');
        let name = member.name.as_deref().filter(|name| !name.is_empty());
        let last = || parts().rfind(|part| !part.is_empty()).unwrap_or(uri);
        let name = file_name(name.unwrap_or_else(last));
        let inside = member.relative && !parts().any(|part| part == b"..");
        if !inside && !known.contains(&name) {
            elsewhere += 1;
            let uri = escape(uri);
            children.push((name, Child::NotShown(format!("elsewhere, {uri}"))));
        }
    }
    let mut line = format!("group, {}", count(members, "member"));
    if elsewhere > 0 {
        let _ = write!(line, ", {} elsewhere", count(elsewhere, "member"));
    }
    if unregistered > 0 {
        let _ = write!(line, ", {} unregistered", HumanCount(unregistered as u64));
    }
    if !exports.is_empty() {
        let _ = write!(line, ", open {}", exports.join(", "));
    }
    Ok((line, children))
}

/// Whether a directory is a Zarr hierarchy, which no array and no group is, nor what cannot be read.
fn is_zarr(directory: &dyn Directory) -> bool {
    matches!(directory.lookup(OsStr::new(ZARR_JSON)), Ok(Some(Node::File(_))))
}

/// The metadata of a Zarr group or array.
const ZARR_JSON: &str = "zarr.json";

/// The Zarr hierarchy of this name, if there is one.
fn zarr(directory: &dyn Directory, name: &str) -> Result<Option<ZarrGroup>> {
    let found = below(directory, OsStr::new(name))?;
    found.map_or(Ok(None), |found| found.zarr())
}

/// Writes a line of a description.
fn line(out: &mut String, name: &str, value: impl AsRef<str>) {
    let _ = writeln!(out, "{name:<14}{}", value.as_ref());
}

/// What an array is by the conventions of the program that wrote it, which its metadata tells, and its
/// exports in `data/`, those that have most of it first.
fn array_kind(array: &dyn Directory, metadata: &Pairs) -> Result<(Option<String>, Vec<String>)> {
    let told = match metadata.text("soma_object_type")? {
        None => metadata.text("dataset_type")?,
        told => told,
    };
    let kind = match told {
        Some(kind) => escape(kind),
        None if metadata.has("_gdal") => "raster".to_owned(),
        None if is_layer(metadata)? => LAYERS.to_owned(),
        None if metadata.has("__pandas_index_dims") => "table".to_owned(),
        None => return Ok((None, exports(array)?)),
    };
    let mut exports = exports(array)?;
    if kind != "raster" {
        exports.sort_by_key(|name| name != "table.parquet");
        return Ok((Some(kind), exports));
    }
    exports.sort_by_key(|name| match name.as_str() {
        RASTER => 0,
        "array.zarr" | "array.nc" => 1,
        _ => 2,
    });
    if let Some(raster) = exports.first_mut().filter(|name| *name == RASTER)
        && let Some(image) = raster_image(array)?
    {
        *raster = format!("{RASTER}/{image}");
    }
    Ok((Some(kind), exports))
}

/// The directory of an array's images.
const RASTER: &str = "raster";

/// The image that has all bands of a raster of GDAL, if there is one.
fn raster_image(array: &dyn Directory) -> Result<Option<&'static str>> {
    const IMAGE: &str = "TDB_VALUES.tif";
    let data = below(array, OsStr::new("data"))?;
    let raster = data.map(|data| below(&*data, OsStr::new(RASTER))).transpose()?;
    let image = raster.flatten().map(|raster| raster.lookup(OsStr::new(IMAGE)));
    match image.transpose() {
        // The error is the reason why there is none.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        image => Ok(image?.flatten().map(|_| IMAGE)),
    }
}

/// Writes the place on the ground of an array, and the units of its variables, as far as the conventions of
/// the program that wrote it tell them.
fn array_place(out: &mut String, names: Names, array: &dyn Directory, metadata: &Pairs) -> Result<()> {
    if is_layer(metadata)? {
        if let Some(name) = metadata.text("CRS")?.as_deref().and_then(system_name) {
            line(out, "crs", escape(name));
        }
        let end = |end: &str| metadata.number(&format!("LAYER_EXTENT_{end}"));
        let ends = [end("MINX")?, end("MAXX")?, end("MINY")?, end("MAXY")?];
        if let [Some(min_x), Some(max_x), Some(min_y), Some(max_y)] = ends {
            line(out, "extent", format!("X {min_x}..{max_x}, Y {min_y}..{max_y}"));
        }
        return Ok(());
    }
    let has_place = ["_gdal", "_CRS", "_UNIT"].iter().any(|key| metadata.has(key))
        || metadata.keys().any(|key| key.ends_with(b".units"));
    let Some(data) = below(array, OsStr::new("data"))?.filter(|_| has_place) else {
        return Ok(());
    };
    let Some(zarr) = zarr(&*data, "array.zarr")? else {
        return Ok(());
    };
    write_place(out, &zarr);
    let units = zarr.all_arrays().into_iter().filter_map(|(name, array)| {
        let units = array.text("units")?;
        Some(format!("{} {}", names.show_text(&name), escape(units)))
    });
    let units: Vec<String> = units.collect();
    if !units.is_empty() {
        line(out, "units", units.join(", "));
    }
    Ok(())
}

/// Whether an array is a layer of geometries.
fn is_layer(metadata: &Pairs) -> Result<bool> {
    let told = metadata.text("dataset_type")?;
    Ok(metadata.has("GEOMETRY_ATTRIBUTE_NAME") || told.as_deref() == Some(LAYERS))
}

/// The `dataset_type` of layers, and of groups of them.
const LAYERS: &str = "geometry";

/// The name of a reference system: that of PROJJSON, the first text of a WKT, or all of a code. None if it is
/// JSON without a name.
fn system_name(system: &str) -> Option<String> {
    match serde_json::from_str(system) {
        Ok(Value::Object(json)) => Some(json.get("name")?.as_str()?.to_owned()),
        _ => Some(system.split('"').nth(1).unwrap_or(system).to_owned()),
    }
}

/// Writes the reference systems of a Zarr hierarchy, and the extents of what lies in them.
fn write_place(out: &mut String, zarr: &ZarrGroup) {
    let all = zarr.all_arrays();
    for (name, mapping) in &all {
        let Some(system) = mapping.text("crs_wkt").or_else(|| mapping.text("spatial_ref")) else {
            continue;
        };
        if let Some(name) = system_name(system) {
            line(out, "crs", escape(name));
        }
        let mut arrays = all.iter().map(|(_, array)| array);
        let mapped = arrays.find(|array| array.text("grid_mapping") == Some(name));
        let found = mapped.zip(mapping.text("GeoTransform"));
        if let Some(extent) = found.and_then(|(array, text)| extent(array, text)) {
            line(out, "extent", extent);
        }
    }
}

/// Writes what an image is made of: the size of its pixels, and its channels.
fn write_image(out: &mut String, ome: &Value) {
    let image = &ome["multiscales"][0];
    let scale = items(&image["datasets"][0]["coordinateTransformations"][0]["scale"]);
    let sizes = items(&image["axes"]).iter().zip(scale);
    let sizes = sizes.filter_map(|(axis, size)| {
        Some(format!(
            "{} {size} {}",
            text(&axis["name"]),
            axis["unit"].as_str()?
        ))
    });
    let sizes: Vec<String> = sizes.collect();
    if !sizes.is_empty() {
        line(out, "pixel", sizes.join(", "));
    }
    let channels = items(&ome["omero"]["channels"]).iter();
    let channels: Vec<String> = channels.map(|channel| escape(text(&channel["label"]))).collect();
    if !channels.is_empty() {
        line(out, "channels", channels.join(", "));
    }
}

/// The AnnData of the measurements of an experiment, and of a measurement.
fn anndata(group: &dyn Directory) -> Result<Vec<String>> {
    const FILES: [&str; 2] = ["anndata.zarr", "anndata.h5ad"];
    const MEASUREMENTS: &str = "ms";
    let mut found = Vec::new();
    let mut add = |group: &dyn Directory, path: &str| -> Result<()> {
        for name in FILES {
            match group.lookup(OsStr::new(name)) {
                Ok(Some(_)) => found.push(format!("{path}{name}")),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    add(group, "")?;
    if let Some(measurements) = below(group, OsStr::new(MEASUREMENTS))? {
        let listing = measurements.list()?;
        for (name, _) in listing.entries() {
            if let Some(measurement) = below(&*measurements, &name)? {
                let name = escape(name.as_encoded_bytes());
                add(&*measurement, &format!("{MEASUREMENTS}/{name}/"))?;
            }
        }
    }
    Ok(found)
}

/// The tables of the arrays of a group.
fn layers(names: Names, group: &dyn Directory) -> Result<Vec<String>> {
    let listing = group.list()?;
    let mut found = Vec::new();
    for (name, _) in listing.entries() {
        if let Some(member) = below(group, &name)?
            && member.kind() == DirectoryKind::Array
        {
            found.push(format!("{}/data/table.parquet", names.show_in_text(&name)));
        }
    }
    Ok(found)
}

/// Adds the variables of `group` of a data set, which is at `path` in it, that the Zarr hierarchy lacks: those
/// of text.
fn text_rows(rows: &mut Vec<[String; 5]>, names: Names, group: &Group, path: &str) {
    for variable in group.variables.iter().filter(|variable| !variable.is_in_zarr) {
        let dimensions = variable.dimensions.iter();
        let dimensions = dimensions.map(|number| &group.dimensions[*number]);
        let (dimensions, shape): (Vec<String>, Vec<String>) = dimensions
            .map(|(name, length)| (names.show_text(name), length.to_string()))
            .unzip();
        rows.push([
            names.show_text(&format!("{path}{}", variable.name)),
            "text".to_owned(),
            dimensions.join(" "),
            shape.join(" × "),
            String::new(),
        ]);
    }
    for (name, inner) in &group.groups {
        text_rows(rows, names, inner, &format!("{path}{name}/"));
    }
}

/// Writes which files to open, if there are any.
fn write_open(out: &mut String, files: &[String]) {
    if !files.is_empty() {
        line(out, "open", files.join(", "));
    }
}

/// Writes what a group is: its kind, what to open it with, and the variables of its data set with their units
/// and their place on the ground. Nothing for a mere folder of arrays.
fn data_set(out: &mut String, names: Names, group: &dyn Directory, shown: &ShownGroup) -> Result<()> {
    const IMAGE: &str = "image.ome.zarr";
    const DATA_SET: &str = "dataset.zarr";
    const FULL_RESOLUTION: &str = "l_0";
    let metadata = shown.metadata()?;
    let (object, told) = (metadata.text("soma_object_type")?, metadata.text("dataset_type")?);
    let image = zarr(group, IMAGE)?;
    let data_set = zarr(group, DATA_SET)?;
    let kind = match (object.as_deref(), told.as_deref()) {
        (Some("SOMAExperiment"), _) => "experiment",
        (Some(other), _) => other,
        (None, told) if Kind::told(told) == Kind::Image => "image",
        (None, Some(other)) => other,
        (None, None) if data_set.is_some() => "data set",
        (None, None) => return Ok(()),
    };
    out.push('\n');
    line(out, "kind", escape(kind));
    // An experiment's frames and matrices are no grids.
    if object.is_some() {
        write_open(out, &anndata(group)?);
        return Ok(());
    }
    let (open, zarr) = match (image, data_set) {
        (Some(image), _) => (vec![IMAGE.to_owned()], image),
        (None, Some(zarr)) => {
            let mut open = vec![DATA_SET.to_owned(), "dataset.nc".to_owned()];
            if kind == "raster"
                && let Some(full) = below(group, OsStr::new(FULL_RESOLUTION))?
                && let Some(image) = raster_image(&*full)?
            {
                open.insert(0, format!("{FULL_RESOLUTION}/data/{RASTER}/{image}"));
            }
            (open, zarr)
        }
        (None, None) => {
            if kind == LAYERS {
                write_open(out, &layers(names, group)?);
            }
            return Ok(());
        }
    };
    write_open(out, &open);
    write_place(out, &zarr);
    if let Some(ome) = zarr.ome() {
        write_image(out, ome);
    }
    let mut rows = vec![["variable", "type", "dimensions", "shape", "units"].map(str::to_owned)];
    for (name, array) in zarr.all_arrays() {
        let dimensions = array.dimension_names().into_iter();
        let dimensions: Vec<String> = dimensions.map(|name| names.show_text(name)).collect();
        let shape: Vec<String> = array.shape().iter().map(u64::to_string).collect();
        rows.push([
            names.show_text(&name),
            array.data_type().to_owned(),
            dimensions.join(" "),
            shape.join(" × "),
            array.text("units").map(escape).unwrap_or_default(),
        ]);
    }
    text_rows(&mut rows, names, &shown.dataset()?.root, "");
    out.push('\n');
    table(out, &rows);
    Ok(())
}

/// The corners of a raster: the lowest and highest X, then Y. `transform` is GDAL's six numbers. None if the
/// raster is rotated.
fn extent(array: &ZarrArray<'_>, transform: &str) -> Option<String> {
    let numbers = transform.split_whitespace().map(str::parse);
    let numbers: Vec<f64> = numbers.collect::<std::result::Result<_, _>>().ok()?;
    let &[x, x_step, 0.0, y, 0.0, y_step] = numbers.as_slice() else {
        return None;
    };
    let length = |name: &str| {
        let mut axes = array.dimension_names().into_iter().zip(array.shape());
        axes.find(|(found, _)| *found == name)
            .map(|(_, length)| *length as f64)
    };
    let ends = |start: f64, step: f64, length: f64| {
        let end = start + step * length;
        format!("{}..{}", start.min(end), start.max(end))
    };
    let (x, y) = (ends(x, x_step, length("X")?), ends(y, y_step, length("Y")?));
    Some(format!("X {x}, Y {y}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Tree, TreeOptions};
    use std::fs;

    #[test]
    fn coordinates_keep_their_last_digit() {
        let mut dimension = crate::describe::schema::tests::example().dimensions.remove(0);
        dimension.datatype = Datatype::Float64;
        let shown = value(&dimension, &(-92.24632150511853f64).to_le_bytes(), None);
        assert_eq!(shown, "-92.24632150511853");
    }

    #[test]
    fn names_of_fields_are_escaped_on_terminals_and_values_always() {
        let mut schema = crate::describe::schema::tests::example();
        (schema.dimensions[1].name, schema.attributes[0].name) = (b"d\x1b".to_vec(), b"a\n".to_vec());
        schema.attributes[0].enumeration = Some("e\u{9b}".into());
        let value = Vec::from("\u{202e}");
        schema.dimensions[1].datatype = Datatype::StringUtf8;
        let written = [
            None,
            Some(Range {
                lo: value.clone(),
                hi: value,
            }),
        ];
        for (escaped, names_shown) in [
            (true, ["d\\u{1b}", "a\\n", "one of e\\u{9b}"]),
            (false, ["d\u{1b}", "a\n", "one of e\u{9b}"]),
        ] {
            let names = Names { escaped };
            let dimensions = dimension_rows(&schema, &written, names);
            let attributes = attribute_rows(&schema, names);
            let shown = [&dimensions[2][0], &attributes[1][0], &attributes[1][2]];
            assert_eq!(shown, names_shown.map(str::to_owned).each_ref());
            assert_eq!(dimensions[2][4], "\\u{202e}..\\u{202e}");
        }
    }

    #[test]
    fn names_that_are_not_utf_8_are_escaped() {
        let mut schema = crate::describe::schema::tests::example();
        schema.attributes[0].name = b"a\xff".to_vec();
        let rows = attribute_rows(&schema, Names { escaped: false });
        assert_eq!(rows[1][0], "a\\xff");
    }

    #[test]
    fn a_damaged_child_is_a_line_and_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["good/__group", "group/__group", "group/bad", "bad"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in ["group/bad/__schema", "bad/__schema"] {
            // A file in place of a directory.
            fs::write(folder.path().join(path), "").unwrap();
        }
        let source = Tree::open(folder.path(), &TreeOptions::default()).unwrap();
        let (mut text, mut failures) = (String::new(), Failures::default());
        let Some(Node::Directory(root)) = source.root.find("").unwrap() else {
            panic!("no directory");
        };
        let names = Names { escaped: true };
        tree(
            &mut text,
            names,
            "source",
            &root,
            OsStr::new("source"),
            &mut failures,
        );
        let lines: Vec<&str> = text
            .lines()
            .map(|line| line.trim_start_matches(['│', '├', '└', '─', ' ']))
            .collect();
        let starts = [
            "source: directory",
            "bad: bad/__schema:",
            "good: group, 0 members",
            "group: group,",
        ];
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{text}");
        }
        assert!(lines[4].starts_with("bad: group/bad/__schema:"), "{text}");
        assert_eq!((lines.len(), failures.count()), (5, 2), "{text}");
    }
}
