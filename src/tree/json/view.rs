//! `view.json`: what a view shows.
//!
//! The length of the document follows from names and the schema alone, so that `stat` opens no fragment. A
//! value that depends on fragments has room for the longest possible text, and is padded with blanks.

use super::render;
use super::value;
use crate::error::Result;
use crate::export::{Export, Options};
use crate::format::enums::Layout;
use crate::view::{Role, View};
use serde_json::{Map, Value, json};

/// The most characters of an error that are shown.
const ERROR: usize = 240;

/// The most characters of a reason why an image export is absent. A view may have a thousand such exports.
const IMAGE_REASON: usize = 80;

/// What is known only from fragments.
struct Facts {
    region: Value,
    shape: Result<Vec<u64>>,
    cells: Value,
    error: Value,
    exports: Map<String, Value>,
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
        error: error.map_or(Value::Null, |error| plain(&error.to_string()).into()),
        region: match &region {
            Ok(Some(rect)) => value::rect(dimensions, rect),
            _ => Value::Null,
        },
        cells: cells.map_or(Value::Null, Value::from),
        shape,
        exports: exports
            .map(|one| export(&one, one.absent(view, options)))
            .collect(),
    }
}

/// The path of an export, and an object that tells whether it exists and why not. `exists` is null if that
/// is unknown because of an error.
fn export(export: &Export, absent: Result<Option<String>>) -> (String, Value) {
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
        Ok(None) => (true.into(), Value::Null),
        Ok(Some(reason)) => (false.into(), reason_of(&reason)),
        Err(error) => (Value::Null, reason_of(&error.to_string())),
    };
    (export.path(), json!({"exists": exists, "reason": reason}))
}

/// The facts whose text is longest.
fn longest(view: &View) -> Facts {
    let dimensions = view.schema().dimensions.len();
    let (axes, region) = match view.is_dense() {
        true => (dimensions, vec![json!([i64::MIN, i64::MIN]); dimensions].into()),
        false => (1, Value::Null),
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

fn document(view: &View, facts: &Facts) -> Value {
    let (snapshot, schema) = (view.snapshot(), view.schema());
    let time = |time: u64, open: u64| match time == open {
        true => Value::Null,
        false => time.into(),
    };
    let asked = view.times();
    let times = [
        asked.map_or(Value::Null, |times| time(times.start, 0)),
        asked.map_or(Value::Null, |times| time(times.end, u64::MAX)),
    ];
    let order = match (view.is_dense(), schema.cell_order) {
        (true, _) => "row-major",
        (false, Layout::Hilbert) => "hilbert",
        (false, _) => "global",
    };
    let shape = |axis: Option<usize>| match (&facts.shape, axis) {
        (Err(_), _) => Value::Null,
        (Ok(shape), None) => shape.iter().copied().collect(),
        (Ok(shape), Some(axis)) => shape.get(axis).map_or(Value::Null, |len| json!([len])),
    };
    let fields = view.fields().iter().map(|field| {
        let (role, axis) = match field.role {
            Role::Dimension(i) => ("dimension", view.is_dense().then_some(i)),
            Role::Attribute(_) => ("attribute", None),
        };
        json!({
            "name": value::name(&field.name),
            "role": role,
            "datatype": field.datatype.name(),
            "cell_val_num": value::cell_val_num(field.cell_val_num),
            "nullable": field.nullable,
            "shape": shape(axis),
        })
    });
    let deletes = snapshot.deletes().map(|file| Value::from(file.name.clone()));
    let fragments = snapshot.fragments().map(|entry| Value::from(entry.name.clone()));
    Value::Object(Map::from_iter([
        ("time_range".to_owned(), times.into_iter().collect()),
        ("schema".to_owned(), view.schema_file().name.clone().into()),
        ("dense".to_owned(), view.is_dense().into()),
        ("order".to_owned(), order.into()),
        ("region".to_owned(), facts.region.clone()),
        ("shape".to_owned(), shape(None)),
        ("cells".to_owned(), facts.cells.clone()),
        ("error".to_owned(), facts.error.clone()),
        ("fragments".to_owned(), fragments.collect()),
        ("deletes".to_owned(), deletes.collect()),
        ("fields".to_owned(), fields.collect()),
        ("exports".to_owned(), Value::Object(facts.exports.clone())),
    ]))
}
