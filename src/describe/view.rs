//! `view.json`: what a view shows.
//!
//! The length of the document follows from names and the schema alone, so that `stat` opens no fragment. A
//! value that depends on fragments has room for the longest possible text, and is padded with blanks. With
//! one blank more if an error is shown: a copy that was made meanwhile has another size than the document
//! afterwards.

use super::{Json, object, render, value};
use crate::catalog::snapshot::Snapshot;
use crate::catalog::time::TimeRange;
use crate::error::{Error, Result};
use crate::export::metadata::Metadata;
use crate::export::{Export, ExportOptions, names_with_labels};
use crate::format::enums::Layout;
use crate::query::{Role, View};
use crate::runtime::requester::settled;

/// The most characters of an error that are shown.
const ERROR: usize = 240;

/// The most characters of a reason why an image export is absent. A view may have a thousand such exports.
const IMAGE_REASON: usize = 80;

/// The most characters of a reason why an export leaves a field out.
const FIELD_REASON: usize = 160;

/// The document of a view of `times` whose schema cannot be read because of `error`: most is unknown.
pub fn unreadable_view_json(snapshot: &Snapshot, times: Option<TimeRange>, error: &Error) -> Vec<u8> {
    let deletes = snapshot.deletes().map(|file| file.name.clone());
    render(&object!({
        "time_range": time_range(times),
        "schema": snapshot.schema_file().map(|file| file.name.clone()),
        "dense": Json::Null,
        "order": Json::Null,
        "region": Json::Null,
        "shape": Json::Null,
        "cells": Json::Null,
        "error": plain(&error.to_string()),
        "fragments": Json::Null,
        "deletes": deletes.collect::<Json>(),
        "fields": Json::Null,
        "exports": Json::Null,
        "pin": Json::Null,
        "incomplete": incomplete(snapshot),
        "left_out": Json::Null,
    }))
}

/// The names of the fragments that would be seen in part, if their parts were known.
fn incomplete(snapshot: &Snapshot) -> Json {
    snapshot.incomplete().map(|entry| entry.name.clone()).collect()
}

/// Start and end in milliseconds; null where open.
fn time_range(times: Option<TimeRange>) -> [Option<u64>; 2] {
    [
        times.map(|times| times.start).filter(|&start| start > 0),
        times.map(|times| times.end).filter(|&end| end < u64::MAX),
    ]
}

/// What is known only from fragments.
struct Facts {
    region: Json,
    shape: Result<Vec<u64>>,
    cells: Json,
    error: Json,
    exports: Json,
    /// Whether an error is shown.
    failed: bool,
}

/// The document, with what is known. `options` say which exports exist.
///
/// # Errors
///
/// `Abandoned` if nobody waits.
pub fn view_json(view: &View, options: &ExportOptions) -> Result<Vec<u8>> {
    let facts = known(view, options)?;
    let failed = facts.failed;
    let mut text = render(&document(view, &facts)?);
    let longest = render(&document(view, &longest(view)?)?).len();
    text.pop();
    text.resize((longest - 1).max(text.len()) + usize::from(failed), b' ');
    text.push(b'\n');
    Ok(text)
}

fn known(view: &View, options: &ExportOptions) -> Result<Facts> {
    let dimensions = &view.schema().dimensions;
    let region = settled(view.region())?;
    let (shape, cells) = (settled(view.shape())?, settled(view.count())?);
    let error = [region.as_ref().err(), shape.as_ref().err(), cells.as_ref().err()];
    let error = error.into_iter().flatten().next();
    let names = names_with_labels(view);
    let exports = Export::all(view)
        .into_iter()
        .map(|one| Ok((settled(one.absent(view, options))?, one)));
    let exports: Vec<_> = exports.collect::<Result<_>>()?;
    Ok(Facts {
        failed: error.is_some() || exports.iter().any(|(absent, _)| absent.is_err()),
        error: error.map(|error| plain(&error.to_string())).into(),
        region: match &region {
            Ok(Some(rect)) => value::rect(dimensions, rect),
            _ => Json::Null,
        },
        cells: cells.ok().into(),
        shape,
        exports: exports
            .into_iter()
            .map(|(absent, one)| {
                let left_out = left_out(view, &one, &absent)?;
                Ok(export(&one, absent, left_out, &names))
            })
            .collect::<Result<_>>()?,
    })
}

/// The fields that an export leaves out, and why, as far as that is known.
fn left_out(view: &View, export: &Export, absent: &Result<Option<String>>) -> Result<Vec<(usize, String)>> {
    match absent {
        // Whoever reads the export is told the error.
        Ok(None) => Ok(settled(export.left_out(view))?.unwrap_or_else(|_| Vec::new())),
        _ => Ok(Vec::new()),
    }
}

/// The path of an export, and an object that tells whether it exists and why not, and the fields that it
/// leaves out. `exists` is null if that is unknown because of an error.
fn export(
    export: &Export,
    absent: Result<Option<String>>,
    left_out: Vec<(usize, String)>,
    names: &[String],
) -> (String, Json) {
    let most = match export {
        Export::Image(..) => IMAGE_REASON,
        _ => ERROR,
    };
    let reason_of = |text: &str| {
        let mut text = plain(text);
        text.truncate(most);
        text.into()
    };
    let (exists, reason) = match absent {
        Ok(None) => (true.into(), Json::Null),
        Ok(Some(reason)) => (false.into(), reason_of(&reason)),
        Err(error) => (Json::Null, reason_of(&error.to_string())),
    };
    let left_out = left_out.into_iter().map(|(field, reason)| {
        let mut reason = plain(&reason);
        reason.truncate(FIELD_REASON);
        (names[field].clone(), reason.into())
    });
    (
        export.path(),
        object!({"exists": exists, "reason": reason, "left_out": left_out.collect::<Json>()}),
    )
}

/// The facts whose text is longest.
fn longest(view: &View) -> Result<Facts> {
    let dimensions = view.schema().dimensions.len();
    let (axes, region) = match view.is_dense() {
        true => (dimensions, Json::Array(vec![[i64::MIN; 2].into(); dimensions])),
        false => (1, Json::Null),
    };
    let names = names_with_labels(view);
    // An export that does not exist leaves nothing out.
    let longest_of = |one: Export| {
        let fields = one.may_leave_out(view)?;
        let left_out = fields.into_iter().map(|field| (field, "x".repeat(FIELD_REASON)));
        let absent = Ok(Some("x".repeat(ERROR)));
        Ok(export(&one, absent, left_out.collect(), &names))
    };
    let exports = Export::all(view).into_iter();
    Ok(Facts {
        region,
        shape: Ok(vec![u64::MAX; axes]),
        cells: u64::MAX.into(),
        error: "x".repeat(ERROR).into(),
        exports: exports.map(longest_of).collect::<Result<_>>()?,
        failed: false,
    })
}

/// The keys of metadata that no export shows although they are meant for one, and why.
fn left_out_metadata(view: &View) -> Result<Json> {
    let one = |key: &[u8], reason: &str| object!({"what": value::name(key), "reason": reason});
    Ok(match settled(Metadata::of(view))? {
        Ok(metadata) => {
            let pairs = metadata.left_out.iter();
            pairs.map(|(key, reason)| one(key, reason)).collect()
        }
        Err(error) => [one(b"__meta", &plain(&error.to_string()))].into_iter().collect(),
    })
}

/// `error` with only such characters as take one byte each in JSON.
fn plain(error: &str) -> String {
    let plain = |c: char| match c {
        '"' | '`' => '\'',
        '\\' => '/',
        c if c.is_ascii() && !c.is_ascii_control() => c,
        _ => '?',
    };
    error.chars().map(plain).take(ERROR).collect()
}

fn document(view: &View, facts: &Facts) -> Result<Json> {
    let (snapshot, schema) = (view.snapshot(), view.schema());
    let order = match (view.is_dense(), schema.cell_order) {
        (true, _) => "row-major",
        (false, Layout::Hilbert) => "hilbert",
        (false, _) => "global",
    };
    let shape = |axis: Option<usize>| match (&facts.shape, axis) {
        (Err(_), _) => Json::Null,
        (Ok(shape), None) => shape.iter().copied().collect(),
        (Ok(shape), Some(axis)) => shape.get(axis).map_or(Json::Null, |&len| [len].into()),
    };
    let fields = view.fields().iter().map(|field| {
        let (role, axis) = match field.role {
            Role::Dimension(i) => ("dimension", view.is_dense().then_some(i)),
            Role::Attribute(_) => ("attribute", None),
        };
        object!({
            "name": value::name(&field.name),
            "role": role,
            "datatype": field.datatype.name(),
            "cell_val_num": value::cell_val_num(field.cell_val_num),
            "nullable": field.nullable,
            "shape": shape(axis),
        })
    });
    let deletes = snapshot.deletes().map(|file| file.name.clone());
    let fragments = snapshot.fragments().map(|entry| entry.name.clone());
    Ok(object!({
        "time_range": time_range(view.times()),
        "schema": view.schema_file().name.clone(),
        "dense": view.is_dense(),
        "order": order,
        "region": facts.region.clone(),
        "shape": shape(None),
        "cells": facts.cells.clone(),
        "error": facts.error.clone(),
        "fragments": fragments.collect::<Json>(),
        "deletes": deletes.collect::<Json>(),
        "fields": fields.collect::<Json>(),
        "exports": facts.exports.clone(),
        "pin": view.pin().map(|pin| pin.to_string()),
        "incomplete": incomplete(snapshot),
        "left_out": left_out_metadata(view)?,
    }))
}
