//! `statistics.json`: the statistics of each field of a fragment.

use super::fields::{KeyedField, by_field};
use super::tiles::sum_json;
use super::{Json, object, value};
use crate::format::datatype::Kind;
use crate::format::fragment::FragmentStatistics;
use crate::fragment::field::Role;

/// The document: the minimum, maximum, sum and null count of each field. `statistics` is indexed by slot. It
/// is None for versions below 12; then all values are null.
///
/// A minimum or maximum is null if none is stored. The sum is null for fields without one: text, opaque
/// bytes, several values a cell. All four are null for the dimensions of a dense fragment (`dense`), for
/// which zeros are stored.
pub fn statistics_json(
    fields: &[KeyedField],
    dense: bool,
    statistics: Option<&[FragmentStatistics]>,
) -> Json {
    let Some(statistics) = statistics else {
        return Json::Null;
    };
    let is_dimension = |field: &KeyedField| matches!(field.stored.role, Role::Dimension(_));
    by_field(fields, |field| {
        let entry = statistics
            .get(field.stored.slot)
            .filter(|_| !(dense && is_dimension(field)));
        // An empty text as the minimum is stored in the same way as no minimum.
        let may_be_empty = field.stored.cell_val_num.is_var() && field.stored.datatype.kind() == Kind::Text;
        let bound = |bytes: &[u8], other: &[u8]| {
            if bytes.is_empty() && (!may_be_empty || other.is_empty()) {
                Json::Null
            } else {
                value::cell(field.stored.datatype, field.stored.cell_val_num, bytes)
            }
        };
        object!({
            "min": entry.map(|entry| bound(&entry.min, &entry.max)),
            "max": entry.map(|entry| bound(&entry.max, &entry.min)),
            "sum": entry.map(|entry| sum_json(field.stored.datatype, field.stored.cell_val_num, entry.sum)),
            "null_count": entry.map(|entry| entry.null_count),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::{CellValNum, Datatype};
    use crate::fragment::field::StoredField;
    use serde_json::{Value, json};

    #[test]
    fn statistics_are_typed_and_found_by_slot() {
        let field = |key: &str, slot, datatype, cell_val_num| KeyedField {
            key: key.to_string(),
            stored: StoredField {
                name: key.into(),
                role: match key {
                    "x" => Role::Dimension(0),
                    _ => Role::Attribute(slot),
                },
                datatype,
                cell_val_num,
                nullable: false,
                slot,
            },
        };
        let fields = [
            field("a", 0, Datatype::Int16, CellValNum::Fixed(1)),
            field("s", 1, Datatype::StringAscii, CellValNum::Var),
            field("x", 3, Datatype::Float64, CellValNum::Fixed(1)),
            field("none", 9, Datatype::Float64, CellValNum::Fixed(1)),
        ];
        let entry = |min: &[u8], max: &[u8], sum: u64, null_count| FragmentStatistics {
            min: min.to_vec(),
            max: max.to_vec(),
            sum: sum.to_le_bytes(),
            null_count,
        };
        let statistics = [
            entry(&[0xFF, 0xFF], &[3, 0], u64::MAX, 0),
            entry(b"", b"zz", 0, 7),
            entry(b"", b"", 0, 0),
            entry(b"", b"", 2.5_f64.to_bits(), 0),
        ];
        assert_eq!(
            statistics_json(&fields, false, Some(&statistics)).to_string(),
            concat!(
                r#"{"a":{"min":-1,"max":3,"sum":-1,"null_count":0},"#,
                r#""s":{"min":"","max":"zz","sum":null,"null_count":7},"#,
                r#""x":{"min":null,"max":null,"sum":2.5,"null_count":0},"#,
                r#""none":{"min":null,"max":null,"sum":null,"null_count":null}}"#,
            )
        );
        assert_eq!(statistics_json(&fields, false, None), Json::Null);
        let dense = serde_json::to_value(statistics_json(&fields, true, Some(&statistics))).unwrap();
        assert_eq!(dense["x"]["sum"], Value::Null);
        assert_eq!(dense["a"]["sum"], json!(-1));
    }
}
