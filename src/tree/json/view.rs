//! `view.json`: what a view shows.
//!
//! The length of the document follows from names and the schema alone, so that `stat` opens no fragment. A
//! value that depends on fragments has room for the longest possible text, and is padded with blanks.

use super::{Json, object, render, value};
use crate::error::Result;
use crate::export::{Export, Options};
use crate::format::enums::Layout;
use crate::view::{Role, View};

/// The most characters of an error that are shown.
const ERROR: usize = 240;

/// The most characters of a reason why an image export is absent. A view may have a thousand such exports.
const IMAGE_REASON: usize = 80;

/// What is known only from fragments.
struct Facts {
    region: Json,
    shape: Result<Vec<u64>>,
    cells: Json,
    error: Json,
    exports: Json,
}

/// The document. `options` say which exports exist.
pub fn view_json(view: &View, options: &Options) -> Vec<u8> {
    let mut text = render(&document(view, &known(view, options)));
    let longest = render(&document(view, &longest(view))).len();
    text.pop();
    text.resize(longest.saturating_sub(1).max(text.len()), b' ');
    text.push(b'\n');
    text
}

fn known(view: &View, options: &Options) -> Facts {
    let dimensions = &view.schema().dimensions;
    let region = view.region();
    let (shape, cells) = (view.shape(), view.count());
    let error = [region.as_ref().err(), shape.as_ref().err(), cells.as_ref().err()];
    let error = error.into_iter().flatten().next();
    let exports = Export::all(view).into_iter();
    Facts {
        error: error.map(|error| plain(&error.to_string())).into(),
        region: match &region {
            Ok(Some(rect)) => value::rect(dimensions, rect),
            _ => Json::Null,
        },
        cells: cells.ok().into(),
        shape,
        exports: exports
            .map(|one| export(&one, one.absent(view, options)))
            .collect(),
    }
}

/// The path of an export, and an object that tells whether it exists and why not. `exists` is null if that
/// is unknown because of an error.
fn export(export: &Export, absent: Result<Option<String>>) -> (String, Json) {
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
    (export.path(), object!({"exists": exists, "reason": reason}))
}

/// The facts whose text is longest.
fn longest(view: &View) -> Facts {
    let dimensions = view.schema().dimensions.len();
    let (axes, region) = match view.is_dense() {
        true => (dimensions, Json::Array(vec![[i64::MIN; 2].into(); dimensions])),
        false => (1, Json::Null),
    };
    let exports = Export::all(view).into_iter();
    Facts {
        region,
        shape: Ok(vec![u64::MAX; axes]),
        cells: u64::MAX.into(),
        error: "x".repeat(ERROR).into(),
        exports: exports
            .map(|one| export(&one, Ok(Some("x".repeat(ERROR)))))
            .collect(),
    }
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

fn document(view: &View, facts: &Facts) -> Json {
    let (snapshot, schema) = (view.snapshot(), view.schema());
    let asked = view.times();
    let times = [
        asked.map(|times| times.start).filter(|&start| start > 0),
        asked.map(|times| times.end).filter(|&end| end < u64::MAX),
    ];
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
    object!({
        "time_range": times,
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
    })
}
