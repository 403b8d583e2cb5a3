//! `pandas`: which columns are the index of a data frame, and the types of all. pyarrow's `to_pandas` and
//! fastparquet go by it.

use super::dictionary;
use super::leaf::{Leaf, Logical, Physical, Shape, TimeUnit};
use crate::export::metadata::pandas::{Pandas, UNNAMED_INDEX};
use crate::query::table::{Column, Table};
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// The value of `pandas`.
pub(super) fn metadata(table: &Table, leaves: &[Leaf], pandas: &Pandas) -> String {
    let columns = || table.columns().iter().zip(leaves);
    // There may be as many names of the index as columns, both tens of thousands.
    let names: HashMap<usize, &str> = columns()
        .map(|(column, leaf)| (column.field, &*leaf.name))
        .collect();
    let index = pandas.index.iter().filter_map(|field| names.get(field).copied());
    let index: Vec<&str> = index.collect();
    let is_unnamed = index.contains(&UNNAMED_INDEX);
    let described = columns().map(|(column, leaf)| {
        let name = match is_unnamed && leaf.name == UNNAMED_INDEX {
            true => Json::Null,
            false => leaf.name.clone().into(),
        };
        let (of, numpy, metadata) = types(column, leaf);
        let extension = pandas.types.get(&column.field);
        let numpy = extension.map_or(numpy, |extension| (*extension).to_owned());
        json!({"name": name, "field_name": leaf.name, "pandas_type": of, "numpy_type": numpy, "metadata": metadata})
    });
    json!({
        "index_columns": index,
        "column_indexes": [],
        "columns": described.collect::<Vec<Json>>(),
        "creator": {"library": "tiledbfs", "version": env!("CARGO_PKG_VERSION")},
        "pandas_version": "2.2.3",
    })
    .to_string()
}

/// The type of a column's values by pandas' names, that of NumPy, and what else describes it.
fn types(column: &Column, leaf: &Leaf) -> (String, String, Json) {
    let same = |name: &str| (name.to_owned(), name.to_owned(), Json::Null);
    let object = |name: &str| (name.to_owned(), "object".to_owned(), Json::Null);
    let int = |bits: u8, signed: bool| same(&format!("{}int{bits}", if signed { "" } else { "u" }));
    if let (Some(of), Some(labels)) = (dictionary(column, leaf), &column.labels) {
        let categories = json!({"num_categories": labels.count(), "ordered": of.ordered});
        return ("categorical".to_owned(), "int32".to_owned(), categories);
    }
    if leaf.shape != Shape::One {
        return object("list");
    }
    match (leaf.logical, leaf.physical) {
        (Logical::String, _) => object("unicode"),
        (Logical::Date, _) => object("date"),
        (Logical::Timestamp(unit), _) => {
            let unit = match unit {
                TimeUnit::Millis => "ms",
                TimeUnit::Micros => "us",
                TimeUnit::Nanos => "ns",
            };
            ("datetime".to_owned(), format!("datetime64[{unit}]"), Json::Null)
        }
        (Logical::Integer { bits, signed }, _) => int(bits, signed),
        (Logical::Nothing, Physical::Boolean) => same("bool"),
        (Logical::Nothing, Physical::Int32) => int(32, true),
        (Logical::Nothing, Physical::Int64) => int(64, true),
        (Logical::Nothing, Physical::Float) => same("float32"),
        (Logical::Nothing, Physical::Double) => same("float64"),
        (Logical::Nothing, Physical::ByteArray) => object("bytes"),
    }
}
