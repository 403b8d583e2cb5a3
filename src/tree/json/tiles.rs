//! `tiles.json`: what the metadata of a fragment says of each tile, field by field.

use super::fields::StoredField;
use super::{render, value};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::fragment::MinMax;
use serde_json::{Map, Value};

/// The lists of one field, each with an entry for each tile. None is what the version lacks.
#[derive(Debug, Clone, Copy)]
pub struct FieldTiles<'a> {
    /// The field.
    pub field: &'a StoredField,
    /// Where each tile starts in the file of the data, or of the offsets of a var-sized field.
    pub tile_offsets: Option<&'a [u64]>,
    /// Where each tile starts in the file of the var data.
    pub tile_var_offsets: Option<&'a [u64]>,
    /// Unfiltered bytes of each tile of the var data.
    pub tile_var_sizes: Option<&'a [u64]>,
    /// Where each tile starts in the file of the validity bytes.
    pub tile_validity_offsets: Option<&'a [u64]>,
    /// Least values.
    pub mins: Option<&'a MinMax>,
    /// Greatest values.
    pub maxs: Option<&'a MinMax>,
    /// Sums, as the eight bytes stored.
    pub sums: Option<&'a [u64]>,
    /// Numbers of null cells.
    pub null_counts: Option<&'a [u64]>,
    /// The coordinates of the first cells in global order, of dimensions; from version 23.
    pub global_order_mins: Option<&'a MinMax>,
    /// The coordinates of the last cells.
    pub global_order_maxs: Option<&'a MinMax>,
}

type List = fn(&FieldTiles) -> Value;

/// The keys of a field and how each list is made.
const LISTS: [(&str, List); 10] = [
    ("tile_offsets", |f| Value::from(f.tile_offsets)),
    ("tile_var_offsets", |f| {
        Value::from(f.tile_var_offsets.filter(|_| f.field.cell_val_num.is_var()))
    }),
    ("tile_var_sizes", |f| {
        Value::from(f.tile_var_sizes.filter(|_| f.field.cell_val_num.is_var()))
    }),
    ("tile_validity_offsets", |f| {
        Value::from(f.tile_validity_offsets.filter(|_| f.field.nullable))
    }),
    ("mins", |f| min_max_json(f.field, f.mins)),
    ("maxs", |f| min_max_json(f.field, f.maxs)),
    ("sums", |f| sums_json(f.field, f.sums)),
    ("null_counts", |f| {
        Value::from(f.null_counts.filter(|_| f.field.nullable))
    }),
    ("global_order_mins", |f| {
        min_max_json(f.field, f.global_order_mins)
    }),
    ("global_order_maxs", |f| {
        min_max_json(f.field, f.global_order_maxs)
    }),
];

/// The document: for each field an object of lists, null where the version or the field has none.
pub fn tiles_json(fields: &[FieldTiles]) -> Value {
    let entries = fields.iter().map(|field| {
        let lists = LISTS.iter().map(|(key, list)| (key.to_string(), list(field)));
        (
            field.field.key.clone(),
            Value::Object(lists.collect::<Map<_, _>>()),
        )
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Writes the same document as [`render`](super::render()) of [`tiles_json`] gives, a field at a time, so
/// that the lists of many tiles are in memory one after the other.
#[derive(Debug, Default)]
pub struct TilesWriter {
    out: Vec<u8>,
}

impl TilesWriter {
    /// A document without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field. The keys of fields must differ.
    pub fn field(&mut self, field: &FieldTiles) {
        self.out.push(if self.out.is_empty() { b'{' } else { b',' });
        render::key(&mut self.out, &field.field.key, 1);
        for (i, (key, list)) in LISTS.iter().enumerate() {
            self.out.push(if i == 0 { b'{' } else { b',' });
            render::key(&mut self.out, key, 2);
            render::write_value(&mut self.out, &list(field), 2);
        }
        self.out.extend_from_slice(b"\n  }");
    }

    /// The document's text.
    pub fn finish(self) -> Vec<u8> {
        let mut out = self.out;
        out.extend_from_slice(if out.is_empty() { b"{}\n" } else { b"\n}\n" });
        out
    }
}

/// The sum of values of a field from its eight bytes: signed, unsigned or floating-point after the field's
/// type; null where sums make no sense.
pub fn sum_json(datatype: Datatype, cell_val_num: CellValNum, sum: [u8; 8]) -> Value {
    if cell_val_num != CellValNum::Fixed(1) {
        return Value::Null;
    }
    match datatype.kind() {
        Kind::Signed | Kind::Datetime | Kind::Time => Value::from(i64::from_le_bytes(sum)),
        Kind::Text if datatype == Datatype::Char => Value::from(i64::from_le_bytes(sum)),
        Kind::Unsigned | Kind::Bool => Value::from(u64::from_le_bytes(sum)),
        Kind::Float => value::float(f64::from_le_bytes(sum)),
        Kind::Text | Kind::Bytes => Value::Null,
    }
}

fn min_max_json(field: &StoredField, list: Option<&MinMax>) -> Value {
    let Some(list) = list.filter(|list| !list.fixed.is_empty()) else {
        return Value::Null;
    };
    match field.cell_val_num {
        CellValNum::Fixed(n) => value::fixed_cells(field.datatype, n, &list.fixed),
        CellValNum::Var => {
            let starts = list.fixed.as_chunks::<8>().0.iter();
            let starts: Vec<u64> = starts.map(|start| u64::from_le_bytes(*start)).collect();
            value::var_cells(field.datatype, &starts, &list.var)
        }
    }
}

fn sums_json(field: &StoredField, sums: Option<&[u64]>) -> Value {
    match sums {
        None | Some([]) => Value::Null,
        Some(_) if sum_json(field.datatype, field.cell_val_num, [0; 8]).is_null() => Value::Null,
        Some(sums) => sums
            .iter()
            .map(|sum| sum_json(field.datatype, field.cell_val_num, sum.to_le_bytes()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(key: &str, datatype: Datatype, cell_val_num: CellValNum, nullable: bool) -> StoredField {
        StoredField {
            key: key.to_string(),
            slot: 0,
            datatype,
            cell_val_num,
            nullable,
            dimension: false,
        }
    }

    #[test]
    fn lists_are_typed_and_null_where_there_are_none() {
        let a = field("a", Datatype::Int16, CellValNum::Fixed(1), false);
        let s = field("s", Datatype::StringAscii, CellValNum::Var, true);
        let x = field("x", Datatype::Float64, CellValNum::Fixed(1), false);
        let min_a = MinMax {
            fixed: vec![0xFF, 0xFF, 2, 0],
            var: vec![],
        };
        let min_s = MinMax {
            fixed: [0_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat(),
            var: b"abz".to_vec(),
        };
        let none = MinMax {
            fixed: vec![],
            var: vec![],
        };
        let floats = [1.5_f64.to_bits(), f64::INFINITY.to_bits()];
        let fields = [
            FieldTiles {
                field: &a,
                tile_offsets: Some(&[0, 100]),
                tile_var_offsets: Some(&[0, 0]),
                tile_var_sizes: Some(&[0, 0]),
                tile_validity_offsets: Some(&[0, 0]),
                mins: Some(&min_a),
                maxs: Some(&min_a),
                sums: Some(&[u64::MAX, 5]),
                null_counts: Some(&[]),
                global_order_mins: None,
                global_order_maxs: None,
            },
            FieldTiles {
                field: &s,
                tile_offsets: Some(&[0, 10]),
                tile_var_offsets: Some(&[0, 20]),
                tile_var_sizes: Some(&[30, 40]),
                tile_validity_offsets: Some(&[0, 50]),
                mins: Some(&min_s),
                maxs: Some(&none),
                sums: Some(&[0, 0]),
                null_counts: Some(&[1, 0]),
                global_order_mins: Some(&min_s),
                global_order_maxs: Some(&min_s),
            },
            FieldTiles {
                field: &x,
                tile_offsets: Some(&[]),
                tile_var_offsets: None,
                tile_var_sizes: None,
                tile_validity_offsets: None,
                mins: None,
                maxs: None,
                sums: Some(&floats),
                null_counts: None,
                global_order_mins: None,
                global_order_maxs: None,
            },
        ];
        let json = tiles_json(&fields);
        assert_eq!(
            json.to_string(),
            concat!(
                r#"{"a":{"tile_offsets":[0,100],"tile_var_offsets":null,"tile_var_sizes":null,"tile_validity_offsets":null,"#,
                r#""mins":[-1,2],"maxs":[-1,2],"sums":[-1,5],"null_counts":null,"global_order_mins":null,"global_order_maxs":null},"#,
                r#""s":{"tile_offsets":[0,10],"tile_var_offsets":[0,20],"tile_var_sizes":[30,40],"tile_validity_offsets":[0,50],"#,
                r#""mins":["ab","z"],"maxs":null,"sums":null,"null_counts":[1,0],"global_order_mins":["ab","z"],"global_order_maxs":["ab","z"]},"#,
                r#""x":{"tile_offsets":[],"tile_var_offsets":null,"tile_var_sizes":null,"tile_validity_offsets":null,"#,
                r#""mins":null,"maxs":null,"sums":[1.5,"inf"],"null_counts":null,"global_order_mins":null,"global_order_maxs":null}}"#,
            )
        );
        for count in 0..=fields.len() {
            let mut writer = TilesWriter::new();
            fields[..count].iter().for_each(|field| writer.field(field));
            assert_eq!(
                String::from_utf8(writer.finish()).unwrap(),
                String::from_utf8(render(&tiles_json(&fields[..count]))).unwrap()
            );
        }
    }

    #[test]
    fn sums_are_typed() {
        let one = CellValNum::Fixed(1);
        let sum = |datatype, n, sum: u64| sum_json(datatype, n, sum.to_le_bytes());
        assert_eq!(sum(Datatype::Uint8, one, u64::MAX), json!(u64::MAX));
        assert_eq!(sum(Datatype::Bool, one, 3), json!(3));
        assert_eq!(sum(Datatype::DatetimeMs, one, u64::MAX), json!(-1));
        assert_eq!(sum(Datatype::Char, one, u64::MAX), json!(-1));
        assert_eq!(sum(Datatype::Float32, one, f64::NAN.to_bits()), json!("nan"));
        assert_eq!(sum(Datatype::StringAscii, one, 3), Value::Null);
        assert_eq!(sum(Datatype::Blob, one, 3), Value::Null);
        assert_eq!(sum(Datatype::Int32, CellValNum::Fixed(2), 3), Value::Null);
        assert_eq!(sum(Datatype::Int32, CellValNum::Var, 3), Value::Null);
    }

    #[test]
    fn damaged_lists_are_shown_as_far_as_they_go() {
        let a = field("a", Datatype::Int16, CellValNum::Fixed(1), false);
        let s = field("s", Datatype::StringAscii, CellValNum::Var, false);
        let odd = MinMax {
            fixed: vec![1, 0, 2],
            var: vec![],
        };
        assert_eq!(min_max_json(&a, Some(&odd)), json!([1, {"hex": "02"}]));
        let outside = MinMax {
            fixed: 9_u64.to_le_bytes().to_vec(),
            var: vec![1],
        };
        assert_eq!(min_max_json(&s, Some(&outside)), json!([null]));
    }
}
