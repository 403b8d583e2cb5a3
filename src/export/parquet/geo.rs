//! `geo`: which columns are geometries, by [GeoParquet](https://geoparquet.org) 1.1.0.

use super::leaf::Leaf;
use crate::export::metadata::geometry::Geometry;
use crate::query::table::Table;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;

/// The value of `geo`; None if the table has no column of geometries. The extent is that of all cells, so the
/// table of a part has none.
pub(super) fn metadata(table: &Table, leaves: &[Leaf], geometry: &Geometry, of_part: bool) -> Option<String> {
    let named = table.columns().iter().zip(leaves);
    let named: HashMap<usize, &Leaf> = named.map(|(column, leaf)| (column.field, leaf)).collect();
    let mut columns = Map::new();
    for (place, field) in geometry.fields.iter().enumerate() {
        let Some(leaf) = named.get(field) else {
            continue;
        };
        let is_primary = place == 0;
        let crs = geometry.crs.as_ref().filter(|_| is_primary);
        let mut column = json!({"encoding": "WKB", "geometry_types": [], "crs": crs});
        if let Some(extent) = geometry.extent.filter(|_| is_primary && !of_part) {
            column["bbox"] = json!(extent);
        }
        columns.insert(leaf.name.clone(), column);
    }
    let primary = columns.keys().next()?.clone();
    Some(json!({"version": "1.1.0", "primary_column": primary, "columns": Json::Object(columns)}).to_string())
}
