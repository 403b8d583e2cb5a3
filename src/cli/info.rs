//! `tiledbfs info`: describes an array on one screen, or shows a group or directory as a tree, and a group's
//! data set. Uses only the JSON documents of the tree, those of its Zarr hierarchies among them.

use super::output::{Failures, Names, Stop, stdout};
use super::paths::{failed, join, visit};
use super::times::{Unit, time};
use super::{Failure, TreeArgs, logging};
use crate::error::{Error, ErrorKind, Result};
use crate::names;
use crate::printable::escape;
use crate::tree::{Directory, Node, OWN_DIRECTORY};
use clap::{Args, ValueHint};
use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem;
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
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::DirPath)]
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
            let name = names.show(source).to_string_lossy().into_owned();
            let mut text = if mem::take(&mut first) {
                String::new()
            } else {
                "\n".to_owned()
            };
            match kind(&**directory).map_err(|error| failed(found.path, error))? {
                Kind::Array => array(&mut text, names, &name, &**directory, found.path, failures)?,
                kind => {
                    tree(&mut text, names, &name, directory, found.path, failures);
                    if kind == Kind::Group
                        && let Err(error) = data_set(&mut text, names, &**directory)
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array,
    Group,
    Directory,
}

/// The kind of a directory of the tree.
fn kind(directory: &dyn Directory) -> Result<Kind> {
    let is_file = |name: &str| Ok(matches!(directory.lookup(OsStr::new(name))?, Some(Node::File(_))));
    Ok(if is_file("group.json")? {
        Kind::Group
    } else if is_file("schema.json")? {
        Kind::Array
    } else {
        Kind::Directory
    })
}

/// Reads and parses a document of the tree.
fn document(directory: &dyn Directory, name: &str) -> Result<Value> {
    let node = directory.lookup(OsStr::new(name))?;
    let node = node.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no {name}")))?;
    let invalid = |error| Error::internal(format!("{name}: {error}"));
    serde_json::from_slice(&node.read_all()?).map_err(invalid)
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
    path: &OsStr,
    failures: &mut Failures,
) -> std::result::Result<(), Stop> {
    let schema = document(directory, "schema.json").map_err(|error| failed(path, error))?;
    let fragments = match document(directory, "fragments.json") {
        Ok(fragments) => fragments,
        Err(error) => {
            failures.add(failed(path, error));
            Value::Null
        }
    };
    let all = items(&fragments);
    let visible: Vec<&Value> = all.iter().filter(|f| f["visible"] == Value::Bool(true)).collect();
    for fragment in all.iter().filter(|fragment| fragment["cell_num"].is_null()) {
        let reason = format!("{}: {}", text(&fragment["name"]), text(&fragment["reason"]));
        failures.add(failed(&join(path, OsStr::new("fragments")), reason));
    }
    let dimensions = items(&schema["dimensions"]);
    let written = written(dimensions, &visible);

    let line = |out: &mut String, name: &str, value: String| {
        let _ = writeln!(out, "{name:<14}{value}");
    };
    let _ = writeln!(out, "{shown}: {}", one_line(&schema));
    let extents = |ranges: &mut dyn Iterator<Item = Option<(&Value, &Value)>>| {
        let lengths: Vec<String> = ranges.map(|range| range.map_or("0".to_owned(), length)).collect();
        lengths.join(" × ")
    };
    let domains = || dimensions.iter().map(|dimension| pair(&dimension["domain"]));
    let nothing = (&Value::Null, &Value::Null);
    let whole = extents(&mut domains().map(|domain| domain.or(Some(nothing))));
    let region = match written.iter().all(Option::is_some) {
        true => format!("{} written", extents(&mut written.iter().copied())),
        false => "nothing written".to_owned(),
    };
    // Only integer dimensions have a shape.
    if !whole.contains(NO_LENGTH) {
        line(out, "shape", format!("{region}, in a domain of {whole}"));
    }
    if let Some(current) = schema["current_domain"].as_array() {
        let current = current.iter().zip(dimensions);
        let current: Vec<String> = current
            .filter_map(|(ends, d)| Some(range(pair(ends)?, d)))
            .collect();
        line(out, "", format!("current domain {}", current.join(", ")));
    }
    let mut order = format!(
        "tiles {}, cells {}",
        text(&schema["tile_order"]),
        text(&schema["cell_order"])
    );
    if text(&schema["array_type"]) != "dense" {
        let _ = write!(order, ", capacity {}", schema["capacity"]);
    }
    line(out, "order", order);
    let versions = all
        .iter()
        .filter_map(|fragment| fragment["format_version"].as_u64());
    let mut version = format!("schema {}", schema["format_version"]);
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
    let sum = |key: &str| {
        let values = visible.iter().filter_map(|fragment| fragment[key].as_u64());
        values.fold(0u64, |sum, value| sum.saturating_add(value))
    };
    // A total does not pass for that of all fragments.
    let without = |keys: &[&str]| {
        let is_known = |fragment: &&&Value| keys.iter().all(|key| fragment[*key].is_u64());
        match visible.len() - visible.iter().filter(is_known).count() {
            0 => String::new(),
            unknown => format!(", without {}", count(unknown, "unreadable fragment")),
        }
    };
    let cells = HumanCount(sum("cell_num"));
    line(out, "cells", format!("{cells}{}", without(&["cell_num"])));
    let fragments = visible
        .iter()
        .filter(|f| !f["cell_num"].is_null())
        .filter_map(|f| f["name"].as_str());
    let unfiltered = unfiltered(directory, fragments, path, failures);
    let (stored, unfiltered) = (HumanBytes(sum("size")), HumanBytes(unfiltered));
    let without = without(&["cell_num", "size"]);
    line(
        out,
        "bytes",
        format!("{stored} stored, {unfiltered} unfiltered{without}"),
    );
    let newest = all.iter().filter_map(|f| f["timestamp_range"][1].as_u64()).max();
    line(
        out,
        "newest write",
        newest.map_or("none".to_owned(), |newest| format!("{} UTC", time(newest))),
    );
    let labels: Vec<String> = items(&schema["dimension_labels"])
        .iter()
        .map(|label| names.show_text(text(&label["name"])))
        .collect();
    if !labels.is_empty() {
        line(out, "labels", labels.join(", "));
    }
    match exports(directory) {
        Ok(exports) if exports.is_empty() => {}
        Ok(exports) => line(out, "open", format!("{}, in data/", exports.join(", "))),
        Err(error) => failures.add(failed(path, error)),
    }
    out.push('\n');
    table(out, &dimension_rows(&schema, &written, names));
    out.push('\n');
    table(out, &attribute_rows(&schema, names));
    Ok(())
}

/// The names of an array's exports, which are in `data/`.
fn exports(array: &dyn Directory) -> Result<Vec<String>> {
    /// What is no export.
    const OTHERS: [&str; 2] = ["columns", "view.json"];
    let Some(data) = below(array, OsStr::new("data"))? else {
        return Ok(Vec::new());
    };
    let listing = data.list()?;
    let listed = (0..).map_while(|index| listing.get(index));
    let listed = listed.filter_map(|(name, _)| name.to_str().map(str::to_owned));
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
fn one_line(schema: &Value) -> String {
    let mut line = format!(
        "{} array, {}, {}",
        text(&schema["array_type"]),
        count(items(&schema["dimensions"]).len(), "dimension"),
        count(items(&schema["attributes"]).len(), "attribute"),
    );
    if schema["allows_duplicates"] == Value::Bool(true) {
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

/// Lower and upper end of a range.
fn pair(range: &Value) -> Option<(&Value, &Value)> {
    match items(range) {
        [low, high] => Some((low, high)),
        _ => None,
    }
}

/// The length of a range that is not of integers.
const NO_LENGTH: &str = "…";

/// The number of integers in a range, or [`NO_LENGTH`].
fn length((low, high): (&Value, &Value)) -> String {
    let integer = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    match (integer(low), integer(high)) {
        (Some(low), Some(high)) => (high - low + 1).to_string(),
        _ => NO_LENGTH.to_owned(),
    }
}

/// The union of the fragments' non-empty domains, per dimension; None without fragments.
fn written<'a>(dimensions: &[Value], fragments: &[&'a Value]) -> Vec<Option<(&'a Value, &'a Value)>> {
    let mut all = vec![None; dimensions.len()];
    for fragment in fragments {
        for (known, range) in all.iter_mut().zip(items(&fragment["non_empty_domain"])) {
            let Some((low, high)) = pair(range) else { continue };
            *known = Some(match *known {
                None => (low, high),
                Some((lowest, highest)) => (
                    if compare(low, lowest).is_lt() { low } else { lowest },
                    if compare(high, highest).is_gt() {
                        high
                    } else {
                        highest
                    },
                ),
            });
        }
    }
    all
}

/// Compares two values of one dimension.
fn compare(a: &Value, b: &Value) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    if let (Some(a), Some(b)) = (a.as_u64(), b.as_u64()) {
        return a.cmp(&b);
    }
    let float = |value: &Value| value.as_f64();
    match (float(a), float(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => bytes(a).cmp(&bytes(b)),
    }
}

/// The bytes of a string, which JSON has as `{"hex": "..."}` if it is not UTF-8.
fn bytes(value: &Value) -> Vec<u8> {
    match value["hex"].as_str() {
        Some(digits) => digits
            .as_bytes()
            .chunks(2)
            .map(|digits| {
                let digits = std::str::from_utf8(digits).unwrap_or_default();
                u8::from_str_radix(digits, 16).unwrap_or(0)
            })
            .collect(),
        None => value.as_str().unwrap_or_default().into(),
    }
}

/// Unfiltered bytes of all columns of `fragments`. Errors are added to `failures`.
fn unfiltered<'a>(
    array: &dyn Directory,
    fragments: impl Iterator<Item = &'a str>,
    path: &OsStr,
    failures: &mut Failures,
) -> u64 {
    let mut sum = 0u64;
    for fragment in fragments {
        if let Err(error) = add_columns(array, fragment, &mut sum) {
            let path = join(&join(path, OsStr::new("fragments")), OsStr::new(fragment));
            failures.add(failed(&path, error));
        }
    }
    sum
}

fn add_columns(array: &dyn Directory, fragment: &str, sum: &mut u64) -> Result<()> {
    /// The column of zipped coordinates; each dimension has a column of its own as well.
    const ZIPPED_COORDS: &str = "__coords";
    let fragments = below(array, OsStr::new("fragments"))?;
    let fragment = fragments.map(|directory| below(&*directory, OsStr::new(fragment)));
    let Some(fragment) = fragment.transpose()?.flatten() else {
        return Ok(());
    };
    let Some(columns) = below(&*fragment, OsStr::new("columns"))? else {
        return Ok(());
    };
    let listing = columns.list()?;
    for (name, _) in (0..).map_while(|index| listing.get(index)) {
        let Some(column) = below(&*columns, &name)?.filter(|_| *name != *ZIPPED_COORDS) else {
            continue;
        };
        for part in ["data.bin", "offsets.bin", "validity.bin"] {
            if let Some(Node::File(file)) = column.lookup(OsStr::new(part))? {
                *sum = sum.saturating_add(file.len()?);
            }
        }
    }
    Ok(())
}

/// A range of a dimension as `LOW..HIGH`.
fn range((low, high): (&Value, &Value), dimension: &Value) -> String {
    let unit = Unit::of(text(&dimension["datatype"]));
    format!("{}..{}", value(low, unit), value(high, unit))
}

/// The table of dimensions; the first row is the heading.
fn dimension_rows(schema: &Value, written: &[Option<(&Value, &Value)>], names: Names) -> Vec<[String; 6]> {
    let heading = ["dimension", "type", "domain", "tile", "written", "filters"].map(str::to_owned);
    let mut rows = vec![heading];
    let sparse = text(&schema["array_type"]) != "dense";
    for (dimension, written) in items(&schema["dimensions"]).iter().zip(written) {
        let shown = |ends: (&Value, &Value)| range(ends, dimension);
        rows.push([
            name(dimension, names),
            datatype(dimension),
            pair(&dimension["domain"]).map_or_else(|| "any".to_owned(), shown),
            match &dimension["tile_extent"] {
                Value::Null => String::new(),
                extent => value(extent, None),
            },
            written.map(shown).unwrap_or_default(),
            // Dense arrays do not store coordinates.
            if sparse {
                dimension_filters(schema, dimension)
            } else {
                String::new()
            },
        ]);
    }
    rows
}

/// The table of attributes; the first row is the heading.
fn attribute_rows(schema: &Value, names: Names) -> Vec<[String; 4]> {
    let mut rows = vec![["attribute", "type", "", "filters"].map(str::to_owned)];
    for attribute in items(&schema["attributes"]) {
        let nullable = (attribute["nullable"] == Value::Bool(true)).then(|| "nullable".to_owned());
        let enumeration = attribute["enumeration"]
            .as_str()
            .map(|name| format!("one of {}", names.show_text(name)));
        let notes: Vec<String> = nullable.into_iter().chain(enumeration).collect();
        rows.push([
            name(attribute, names),
            datatype(attribute),
            notes.join(", "),
            pipeline(&attribute["filters"]),
        ]);
    }
    rows
}

fn name(field: &Value, names: Names) -> String {
    match text(&field["name"]) {
        "" => "(no name)".to_owned(),
        name => names.show_text(name),
    }
}

/// The filters of a dimension. Without filters of its own, it has the array's coordinate filters.
fn dimension_filters(schema: &Value, dimension: &Value) -> String {
    match items(&dimension["filters"]["filters"]) {
        [] => pipeline(&schema["coords_filters"]),
        _ => pipeline(&dimension["filters"]),
    }
}

fn datatype(field: &Value) -> String {
    match &field["cell_val_num"] {
        Value::String(_) => format!("{} var", text(&field["datatype"])),
        number if number == 1 => text(&field["datatype"]).to_owned(),
        number => format!("{} × {number}", text(&field["datatype"])),
    }
}

fn pipeline(pipeline: &Value) -> String {
    let filters = items(&pipeline["filters"])
        .iter()
        .map(|filter| match &filter["level"] {
            // -1 means the compressor's default.
            Value::Number(level) if level.as_i64() != Some(-1) => {
                format!("{} {level}", text(&filter["type"]))
            }
            _ => text(&filter["type"]).to_owned(),
        });
    filters.collect::<Vec<_>>().join(", ")
}

/// A value of a dimension; datetimes as dates.
fn value(value: &Value, unit: Option<Unit>) -> String {
    match (value, unit) {
        (Value::Number(number), Some(unit)) => match number.as_i64().and_then(|number| unit.show(number)) {
            Some(date) => date,
            None => number.to_string(),
        },
        (Value::String(text), _) => escape(text),
        (Value::Object(_), _) => format!("0x{}", text(&value["hex"])),
        (other, _) => other.to_string(),
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
                names.show(&name).to_string_lossy().into_owned(),
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
}

type Children = Vec<(OsString, Child)>;

/// One line about a directory of the tree, and its children if it is a group or plain directory.
fn summarize(directory: &dyn Directory) -> Result<(String, Children)> {
    let kind = kind(directory)?;
    if kind == Kind::Array {
        let mut line = one_line(&document(directory, "schema.json")?);
        if let Some(Node::Directory(fragments)) = directory.lookup(OsStr::new("fragments"))? {
            let number = usize::try_from(fragments.list()?.len()).unwrap_or(usize::MAX);
            line = format!("{line}, {}", count(number, "fragment"));
        }
        return Ok((line, Vec::new()));
    }
    let listing = directory.list()?;
    let (mut children, mut exports) = (Vec::new(), Vec::new());
    for (name, _) in (0..).map_while(|index| listing.get(index)) {
        if *name == *OWN_DIRECTORY {
            continue;
        }
        match directory.lookup(&name)? {
            Some(Node::Directory(child)) if kind == Kind::Group && is_zarr(&*child)? => {
                exports.push(name.to_string_lossy().into_owned());
            }
            Some(Node::Directory(child)) => children.push((name.into_owned(), Child::Shown(child))),
            // Part of an array; its contents are not shown.
            Some(Node::File(_)) if kind == Kind::Directory => {
                return Ok(("directory".to_owned(), Vec::new()));
            }
            _ => {}
        }
    }
    if kind != Kind::Group {
        return Ok(("directory".to_owned(), children));
    }
    let details = document(directory, "group.json")?;
    let known: HashSet<OsString> = children.iter().map(|(name, _)| name.clone()).collect();
    let file_name = |name: &[u8]| OsString::from(names::encode(name));
    let (mut members, mut unregistered) = (children.len(), 0);
    for one in items(&details["unregistered"]) {
        unregistered += 1;
        let name = file_name(&bytes(&one["name"]));
        if known.contains(&name) {
            // A group in which nothing was ever registered.
            members -= 1;
        } else {
            let kind = text(&one["type"]).to_lowercase();
            children.push((
                name,
                Child::NotShown(format!("{kind}, not registered in the group")),
            ));
        }
    }
    let mut elsewhere = 0;
    for member in items(&details["members"]) {
        let uri = bytes(&member["uri"]);
        let parts = || uri.split(|&byte| byte == b'/');
        let name = Some(bytes(&member["name"])).filter(|name| !name.is_empty());
        let last = || parts().rfind(|part| !part.is_empty()).unwrap_or(&uri).to_vec();
        let name = file_name(&name.unwrap_or_else(last));
        let inside = member["relative"] == Value::Bool(true) && !parts().any(|part| part == b"..");
        if !inside && !known.contains(&name) {
            elsewhere += 1;
            let uri = escape(&uri);
            children.push((name, Child::NotShown(format!("elsewhere, {uri}"))));
        }
    }
    let mut line = format!("group, {}", count(members, "member"));
    if elsewhere > 0 {
        let _ = write!(line, ", {} elsewhere", count(elsewhere, "member"));
    }
    if unregistered > 0 {
        let _ = write!(line, ", {} unregistered", HumanCount(unregistered));
    }
    if !exports.is_empty() {
        let _ = write!(line, ", open {}", exports.join(", "));
    }
    Ok((line, children))
}

/// Whether a directory is a Zarr hierarchy, which no array and no group is.
fn is_zarr(directory: &dyn Directory) -> Result<bool> {
    Ok(matches!(
        directory.lookup(OsStr::new(ZARR_JSON))?,
        Some(Node::File(_))
    ))
}

/// The metadata of a Zarr group or array.
const ZARR_JSON: &str = "zarr.json";

/// Writes what a group is: its kind, what to open it with, and the variables of its data set with their units and
/// their place on the ground. Nothing for a mere folder of arrays.
fn data_set(out: &mut String, names: Names, group: &dyn Directory) -> Result<()> {
    const IMAGE: &str = "image.ome.zarr";
    let metadata = document(group, "metadata.json")?;
    let told = |key: &str| metadata[key]["value"].as_str();
    let zarr = below(group, OsStr::new("dataset.zarr"))?;
    let zarr = zarr.map(|zarr| document(&*zarr, ZARR_JSON)).transpose()?;
    let nodes = zarr
        .as_ref()
        .map(|zarr| &zarr["consolidated_metadata"]["metadata"]);
    let kind = match (told("soma_object_type"), told("dataset_type")) {
        (Some("SOMAExperiment"), _) => "experiment",
        (Some(other), _) => other,
        (None, Some("bioimg")) => "image",
        (None, Some(other)) => other,
        (None, None) if nodes.is_some() => "data set",
        (None, None) => return Ok(()),
    };
    let line = |out: &mut String, name: &str, value: &str| {
        let _ = writeln!(out, "{name:<14}{value}");
    };
    out.push('\n');
    line(out, "kind", &escape(kind).to_string());
    if below(group, OsStr::new(IMAGE))?.is_some() {
        line(out, "open", IMAGE);
    }
    // An experiment's frames and matrices are no grids.
    let nodes = nodes
        .and_then(Value::as_object)
        .filter(|_| told("soma_object_type").is_none());
    let Some(nodes) = nodes else { return Ok(()) };
    line(out, "open", "dataset.zarr, dataset.nc");
    let arrays = || nodes.iter().filter(|(_, node)| node["node_type"] == "array");
    for (name, mapping) in arrays() {
        let attributes = &mapping["attributes"];
        let Some(wkt) = attributes["crs_wkt"].as_str() else {
            continue;
        };
        // The name is the first text of a WKT.
        line(
            out,
            "crs",
            &escape(wkt.split('"').nth(1).unwrap_or(wkt)).to_string(),
        );
        let mapped = arrays().find(|(_, array)| array["attributes"]["grid_mapping"] == **name);
        let transform = attributes["GeoTransform"].as_str();
        if let Some(extent) = mapped
            .zip(transform)
            .and_then(|((_, array), text)| extent(array, text))
        {
            line(out, "extent", &extent);
        }
    }
    let mut rows = vec![["variable", "type", "dimensions", "shape", "units"].map(str::to_owned)];
    for (name, array) in arrays() {
        let joined = |value: &Value, between: &str| {
            let items = items(value).iter().map(|item| match item {
                Value::String(text) => names.show_text(text),
                other => other.to_string(),
            });
            items.collect::<Vec<_>>().join(between)
        };
        let units = array["attributes"]["units"].as_str();
        rows.push([
            names.show_text(name),
            text(&array["data_type"]).to_owned(),
            joined(&array["dimension_names"], " "),
            joined(&array["shape"], " × "),
            units.map(|units| escape(units).to_string()).unwrap_or_default(),
        ]);
    }
    out.push('\n');
    table(out, &rows);
    Ok(())
}

/// The corners of a raster: the lowest and highest X, then Y. `transform` is GDAL's six numbers. None if the raster
/// is rotated.
fn extent(array: &Value, transform: &str) -> Option<String> {
    let numbers = transform.split_whitespace().map(str::parse);
    let numbers: Vec<f64> = numbers.collect::<std::result::Result<_, _>>().ok()?;
    let &[x, x_step, 0.0, y, 0.0, y_step] = numbers.as_slice() else {
        return None;
    };
    let length = |name: &str| {
        let names = items(&array["dimension_names"]).iter();
        let (_, length) = names
            .zip(items(&array["shape"]))
            .find(|(found, _)| **found == name)?;
        length.as_f64()
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

    #[test]
    fn names_of_fields_are_escaped_on_terminals_and_values_always() {
        let schema = serde_json::json!({
            "array_type": "sparse",
            "dimensions": [{"name": "d\u{1b}", "datatype": "STRING_ASCII", "cell_val_num": "var", "domain": null}],
            "attributes": [{"name": "a\n", "datatype": "INT32", "cell_val_num": 1, "enumeration": "e\u{9b}"}],
        });
        let value = Value::from("\u{202e}");
        for (escaped, names_shown) in [
            (true, ["d\\u{1b}", "a\\n", "one of e\\u{9b}"]),
            (false, ["d\u{1b}", "a\n", "one of e\u{9b}"]),
        ] {
            let names = Names { escaped };
            let dimensions = dimension_rows(&schema, &[Some((&value, &value))], names);
            let attributes = attribute_rows(&schema, names);
            let shown = [&dimensions[1][0], &attributes[1][0], &attributes[1][2]];
            assert_eq!(shown, names_shown.map(str::to_owned).each_ref());
            assert_eq!(dimensions[1][4], "\\u{202e}..\\u{202e}");
        }
    }
}
