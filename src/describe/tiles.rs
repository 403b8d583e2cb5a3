//! `tiles.json`: what the metadata of a fragment stores of each tile, field by field.
//!
//! Each field has an object of lists, which have an entry for each tile. A list that the format version or
//! the field does not have is null.

use super::fields::KeyedField;
use super::list::ValueList;
use super::{Json, render, value};
use crate::bytes::Bytes;
use crate::error::Result;
use crate::format::body::BodyCursor;
use crate::format::datatype::{CellValNum, Datatype};
use crate::fragment::tile_list::TileListKey;
use crate::layout::segments::{Cutter, Parts, Segments};
use std::ops::Range;

impl TileListKey {
    /// All lists, in the order of the document.
    pub const ALL: [TileListKey; 10] = [
        TileListKey::TileOffsets,
        TileListKey::TileVarOffsets,
        TileListKey::TileVarSizes,
        TileListKey::TileValidityOffsets,
        TileListKey::Mins,
        TileListKey::Maxs,
        TileListKey::Sums,
        TileListKey::NullCounts,
        TileListKey::GlobalOrderMins,
        TileListKey::GlobalOrderMaxs,
    ];

    /// Its key in the document.
    fn key(self) -> &'static str {
        match self {
            TileListKey::TileOffsets => "tile_offsets",
            TileListKey::TileVarOffsets => "tile_var_offsets",
            TileListKey::TileVarSizes => "tile_var_sizes",
            TileListKey::TileValidityOffsets => "tile_validity_offsets",
            TileListKey::Mins => "mins",
            TileListKey::Maxs => "maxs",
            TileListKey::Sums => "sums",
            TileListKey::NullCounts => "null_counts",
            TileListKey::GlobalOrderMins => "global_order_mins",
            TileListKey::GlobalOrderMaxs => "global_order_maxs",
        }
    }

    /// Whether a field has the list, if the format version does.
    pub fn is_of(self, field: &KeyedField) -> bool {
        match self {
            TileListKey::TileVarOffsets | TileListKey::TileVarSizes => field.stored.cell_val_num.is_var(),
            TileListKey::TileValidityOffsets | TileListKey::NullCounts => field.stored.nullable,
            _ => true,
        }
    }

    /// Parses the list from the body that holds it; None if the document shows null.
    fn find(self, field: &KeyedField, body: &dyn Bytes) -> Result<Option<ValueList>> {
        match self {
            TileListKey::Mins
            | TileListKey::Maxs
            | TileListKey::GlobalOrderMins
            | TileListKey::GlobalOrderMaxs => find_bounds(field, body),
            TileListKey::Sums => match sum_type(field.stored.datatype, field.stored.cell_val_num) {
                Some(datatype) => Ok(Some(find_numbers(datatype, body)?).filter(|list| list.count() > 0)),
                None => find_numbers(Datatype::Uint64, body).map(|_| None),
            },
            _ => find_numbers(Datatype::Uint64, body).map(Some),
        }
    }
}

/// Where the lists of a fragment are stored.
pub trait TileLists: Send + Sync {
    /// The body of a list that the field has; None if the fragment's version does not have it.
    fn body(&self, field: &KeyedField, list: TileListKey) -> Result<Option<Box<dyn Bytes + '_>>>;

    /// Adds file, field and list to an error.
    fn place(&self, field: &KeyedField, list: TileListKey, error: crate::error::Error)
    -> crate::error::Error;
}

/// The document of the lists of `fields`.
pub fn tiles_segments(fields: Vec<KeyedField>, lists: impl TileLists + 'static) -> Result<Segments> {
    let mut cutter = Cutter::new();
    let mut found = Vec::with_capacity(fields.len() * TileListKey::ALL.len());
    for field in &fields {
        for list in TileListKey::ALL {
            cutter.part();
            let mut find = || -> Result<Option<Box<ValueList>>> {
                let body = match list.is_of(field) {
                    true => lists.body(field, list)?,
                    false => None,
                };
                let Some(body) = body else { return Ok(None) };
                let shown = list.find(field, &*body)?;
                if let Some(shown) = &shown {
                    shown.cut(&*body, &mut cutter)?;
                }
                Ok(shown.map(Box::new))
            };
            found.push(find().map_err(|e| lists.place(field, list, e))?);
        }
    }
    Ok(cutter.finish(TileParts {
        fields,
        lists: Box::new(lists),
        found,
    }))
}

struct TileParts {
    fields: Vec<KeyedField>,
    lists: Box<dyn TileLists>,
    /// The lists of [`TileListKey::ALL`] of the first field, then those of the next, and so on.
    found: Vec<Option<Box<ValueList>>>,
}

impl Parts for TileParts {
    fn write(&self, part: usize, items: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let (number, of_field) = (part / TileListKey::ALL.len(), part % TileListKey::ALL.len());
        let (Some(field), Some(&list)) = (self.fields.get(number), TileListKey::ALL.get(of_field)) else {
            out.extend_from_slice(b"{}\n");
            return Ok(());
        };
        if items.start == 0 {
            if of_field == 0 {
                out.push(if number == 0 { b'{' } else { b',' });
                render::key(out, &field.key, 1);
            }
            out.push(if of_field == 0 { b'{' } else { b',' });
            render::key(out, list.key(), 2);
        }
        let shown = self.found[part].as_ref();
        let count = shown.map_or(0, |shown| shown.count());
        match shown {
            None => out.extend_from_slice(b"null"),
            Some(shown) => self
                .lists
                .body(field, list)
                .and_then(|body| {
                    let body = body.expect("the list was found in it");
                    shown.write(&*body, items.clone(), 2, out)
                })
                .map_err(|e| self.lists.place(field, list, e))?,
        }
        if items.end >= count && of_field + 1 == TileListKey::ALL.len() {
            out.extend_from_slice(b"\n  }");
            if number + 1 == self.fields.len() {
                out.extend_from_slice(b"\n}\n");
            }
        }
        Ok(())
    }
}

/// A list of numbers. It is stored as a u64 count and that many values of eight bytes.
fn find_numbers(datatype: Datatype, body: &dyn Bytes) -> Result<ValueList> {
    let mut c = BodyCursor::new(body);
    let count = c.u64("count")?;
    c.check_count(count, 8, "values")?;
    let values = c.skip(count * 8, "values")?;
    c.finish()?;
    ValueList::fixed(datatype, 1, values)
}

/// A list of minima or maxima. It is stored as the lengths in bytes of a fixed and a var part, u64 each, then
/// both parts. None if it is empty.
fn find_bounds(field: &KeyedField, body: &dyn Bytes) -> Result<Option<ValueList>> {
    let mut c = BodyCursor::new(body);
    let (fixed, var) = (c.u64("fixed_size")?, c.u64("var_size")?);
    let fixed = c.skip(fixed, "fixed_values")?;
    let var = c.skip(var, "var_values")?;
    c.finish()?;
    if fixed.is_empty() {
        return Ok(None);
    }
    Ok(Some(match field.stored.cell_val_num {
        CellValNum::Fixed(n) => ValueList::fixed(field.stored.datatype, n, fixed)?,
        CellValNum::Var => {
            let count = (fixed.end - fixed.start) / 8;
            ValueList::var(body, field.stored.datatype, fixed.start, count, var)?
        }
    }))
}

/// The datatype in which sums of a field are stored; None if the field has no sums.
fn sum_type(datatype: Datatype, cell_val_num: CellValNum) -> Option<Datatype> {
    let one = cell_val_num == CellValNum::Fixed(1);
    datatype.sum_type().filter(|_| one)
}

/// The sum of values of a field from its eight little-endian bytes. It is signed, unsigned or floating-point
/// as the field is; null if the field has no sums.
pub fn sum_json(datatype: Datatype, cell_val_num: CellValNum, sum: [u8; 8]) -> Json {
    sum_type(datatype, cell_val_num).map_or(Json::Null, |datatype| value::element(datatype, &sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::format::testing::Bytes;
    use crate::fragment::field::{Role, StoredField};
    use serde_json::{Value, json};
    use std::collections::HashMap;

    fn field(key: &str, datatype: Datatype, cell_val_num: CellValNum, nullable: bool) -> KeyedField {
        KeyedField {
            key: key.to_string(),
            stored: StoredField {
                name: key.into(),
                role: Role::Attribute(0),
                datatype,
                cell_val_num,
                nullable,
                slot: 0,
            },
        }
    }

    #[derive(Default)]
    struct Lists(HashMap<(String, TileListKey), Vec<u8>>);

    impl TileLists for Lists {
        fn body(
            &self,
            field: &KeyedField,
            list: TileListKey,
        ) -> Result<Option<Box<dyn crate::bytes::Bytes + '_>>> {
            let body = self.0.get(&(field.key.clone(), list));
            Ok(body.map(|body| Box::new(body.clone()) as _))
        }
        fn place(&self, field: &KeyedField, list: TileListKey, error: Error) -> Error {
            error.in_part(format!("{} of {}", list.key(), field.key))
        }
    }

    impl Lists {
        fn with(mut self, key: &str, list: TileListKey, body: Vec<u8>) -> Self {
            self.0.insert((key.to_owned(), list), body);
            self
        }
    }

    fn numbers(values: &[u64]) -> Vec<u8> {
        Bytes::default().count64(values.len()).u64s(values).bytes
    }

    fn bounds(fixed: &[u8], var: &[u8]) -> Vec<u8> {
        Bytes::default()
            .count64(fixed.len())
            .count64(var.len())
            .raw(fixed)
            .raw(var)
            .bytes
    }

    fn starts(starts: &[u64]) -> Vec<u8> {
        starts.iter().flat_map(|start| start.to_le_bytes()).collect()
    }

    #[test]
    fn lists_are_typed_and_null_where_there_are_none() {
        use TileListKey::*;
        let a = field("a", Datatype::Int16, CellValNum::Fixed(1), false);
        let s = field("s", Datatype::StringAscii, CellValNum::Var, true);
        let x = field("x", Datatype::Float64, CellValNum::Fixed(1), false);
        let min_a = bounds(&[0xFF, 0xFF, 2, 0], b"");
        let min_s = bounds(&starts(&[0, 2]), b"abz");
        let lists = || {
            Lists::default()
                .with("a", TileOffsets, numbers(&[0, 100]))
                .with("a", TileVarOffsets, numbers(&[0, 0]))
                .with("a", TileVarSizes, numbers(&[0, 0]))
                .with("a", TileValidityOffsets, numbers(&[0, 0]))
                .with("a", Mins, min_a.clone())
                .with("a", Maxs, min_a.clone())
                .with("a", Sums, numbers(&[u64::MAX, 5]))
                .with("a", NullCounts, numbers(&[]))
                .with("s", TileOffsets, numbers(&[0, 10]))
                .with("s", TileVarOffsets, numbers(&[0, 20]))
                .with("s", TileVarSizes, numbers(&[30, 40]))
                .with("s", TileValidityOffsets, numbers(&[0, 50]))
                .with("s", Mins, min_s.clone())
                .with("s", Maxs, bounds(b"", b""))
                .with("s", Sums, numbers(&[0, 0]))
                .with("s", NullCounts, numbers(&[1, 0]))
                .with("s", GlobalOrderMins, min_s.clone())
                .with("s", GlobalOrderMaxs, min_s.clone())
                .with("x", TileOffsets, numbers(&[]))
                .with("x", Sums, numbers(&[1.5_f64.to_bits(), f64::INFINITY.to_bits()]))
        };
        let json: Value = serde_json::from_str(concat!(
            r#"{"a":{"tile_offsets":[0,100],"tile_var_offsets":null,"tile_var_sizes":null,"tile_validity_offsets":null,"#,
            r#""mins":[-1,2],"maxs":[-1,2],"sums":[-1,5],"null_counts":null,"global_order_mins":null,"global_order_maxs":null},"#,
            r#""s":{"tile_offsets":[0,10],"tile_var_offsets":[0,20],"tile_var_sizes":[30,40],"tile_validity_offsets":[0,50],"#,
            r#""mins":["ab","z"],"maxs":null,"sums":null,"null_counts":[1,0],"global_order_mins":["ab","z"],"global_order_maxs":["ab","z"]},"#,
            r#""x":{"tile_offsets":[],"tile_var_offsets":null,"tile_var_sizes":null,"tile_validity_offsets":null,"#,
            r#""mins":null,"maxs":null,"sums":[1.5,"inf"],"null_counts":null,"global_order_mins":null,"global_order_maxs":null}}"#,
        ))
        .unwrap();
        let fields = [a, s, x];
        for count in 0..=fields.len() {
            let shown = tiles_segments(fields[..count].to_vec(), lists())
                .unwrap()
                .render()
                .unwrap();
            let expected = json.as_object().unwrap().clone().into_iter().take(count);
            assert_eq!(
                String::from_utf8(shown).unwrap(),
                String::from_utf8(render::render(&Value::Object(expected.collect()).into())).unwrap()
            );
        }
    }

    /// Many tiles make many segments, and cells of several values a line each.
    #[test]
    fn long_lists_are_the_same_text_as_short_ones() {
        use TileListKey::*;
        let fields = [
            field("a", Datatype::Int32, CellValNum::Fixed(1), false),
            field("pairs", Datatype::Int16, CellValNum::Fixed(2), false),
            field("three", Datatype::Uint8, CellValNum::Fixed(3), false),
            field("text", Datatype::StringUtf8, CellValNum::Var, false),
            field("lists", Datatype::Uint8, CellValNum::Var, false),
        ];
        let tiles = 30_000u64;
        let offsets: Vec<u64> = (0..tiles).map(|i| i * i).collect();
        let mins: Vec<u8> = (0..tiles * 6).map(|i| ((i * 7) >> 3) as u8).collect();
        let texts: Vec<u8> = (0..tiles * 2).map(|i| b'!' + (i % 90) as u8).collect();
        let at: Vec<u64> = (0..tiles).map(|i| i * 2 - i % 2).collect();
        let mut lists = Lists::default();
        for f in &fields {
            lists = lists.with(&f.key, TileOffsets, numbers(&offsets));
            lists = lists.with(
                &f.key,
                Mins,
                match f.stored.cell_val_num {
                    CellValNum::Var => bounds(&starts(&at), &texts),
                    CellValNum::Fixed(_) => bounds(&mins, b""),
                },
            );
        }
        let segments = tiles_segments(fields.to_vec(), lists).unwrap();
        assert!(segments.count() > 10);
        let expected = fields.iter().map(|f| {
            let mins: Json = match f.stored.cell_val_num {
                CellValNum::Var => value::split(&at, &texts)
                    .map(|bytes| value::cell(f.stored.datatype, f.stored.cell_val_num, bytes.unwrap()))
                    .collect(),
                CellValNum::Fixed(n) => mins
                    .chunks(n as usize * f.stored.datatype.size())
                    .map(|bytes| value::cell(f.stored.datatype, f.stored.cell_val_num, bytes))
                    .collect(),
            };
            let lists = TileListKey::ALL.map(|list| {
                let value = match list {
                    TileOffsets => offsets.iter().copied().collect(),
                    Mins => mins.clone(),
                    _ => Json::Null,
                };
                (list.key(), value)
            });
            (f.key.clone(), lists.into_iter().collect())
        });
        let expected = render::render(&expected.collect());
        assert!(segments.render().unwrap() == expected);
        let ends = segments.measure().unwrap().ends;
        assert_eq!(ends.last(), Some(&(expected.len() as u64)));
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
        let mins = |field: &KeyedField, body: Vec<u8>| -> Value {
            let lists = Lists::default().with(&field.key, TileListKey::Mins, body);
            let text = tiles_segments(vec![field.clone()], lists)
                .unwrap()
                .render()
                .unwrap();
            let json: Value = serde_json::from_slice(&text).unwrap();
            json[&field.key]["mins"].clone()
        };
        assert_eq!(mins(&a, bounds(&[1, 0, 2], b"")), json!([1, {"hex": "02"}]));
        assert_eq!(mins(&s, bounds(&starts(&[9]), b"a")), json!([null]));
        assert_eq!(
            mins(&s, bounds(&starts(&[0, 9, 1]), b"abc")),
            json!([null, null, "bc"])
        );
        let cut = Lists::default().with("a", TileListKey::Sums, vec![2, 0, 0, 0, 0, 0, 0, 0, 1]);
        let error = tiles_segments(vec![a], cut).err().unwrap();
        assert_eq!(error.part(), Some("sums of a, `values`"));
    }
}
