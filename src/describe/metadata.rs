//! `metadata.json`: the key-value pairs of an array or group.
//!
//! The document is an object that maps each key to `{"datatype", "value_num", "value"}`, ordered by the bytes
//! of the keys. A key that is not UTF-8 is percent-encoded.

use super::list::ValueList;
use super::render;
use super::text::LongString;
use super::value;
use crate::bytes::{Bytes, Output};
use crate::error::{Error, Result};
use crate::format::body::MAX_VALUE;
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::metadata::{MetadataRecord, each_record};
use crate::format::scalar::Scalar;
use crate::layout::segments::{Cutter, Parts, Segments};
use crate::names;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most memory that all pairs together may take, in bytes, without their values.
const MAX_PAIRS: u64 = 32 << 20;

/// Values of at most this many bytes are read whole.
const SMALL: u64 = 64 << 10;

/// The type of a pair's value, and where the value lies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LocatedValue {
    datatype: Datatype,
    value_num: u32,
    /// Index of the file.
    file: u32,
    /// Byte range in the file's unfiltered body.
    data: Range<u64>,
}

/// The pairs that are left after the records of several files were replayed, oldest file first. Each record
/// replaces or deletes the value of its key. Values are not read, only located.
#[derive(Default)]
pub struct Pairs {
    pairs: BTreeMap<Vec<u8>, LocatedValue>,
    /// The unfiltered bodies of the files.
    bodies: Vec<Box<dyn Bytes>>,
    memory: u64,
}

impl Pairs {
    /// Bytes of memory that a pair takes besides its key.
    const PAIR: u64 = 96;

    /// Replays the records of the next file, whose unfiltered body is `body`. `LimitExceeded` if the pairs
    /// take too much memory.
    pub fn replay(&mut self, body: Box<dyn Bytes>) -> Result<()> {
        each_record(&*body, |record| self.record(record))?;
        self.bodies.push(body);
        Ok(())
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.pairs.keys().map(Vec::as_slice)
    }

    /// Whether there is this key.
    pub fn has(&self, key: &str) -> bool {
        self.pairs.contains_key(key.as_bytes())
    }

    /// The text of this key; None if it has none, or more than `MAX_VALUE` bytes.
    pub fn text(&self, key: &str) -> Result<Option<String>> {
        let found = self.read(key)?;
        let found = found.filter(|(datatype, _)| datatype.kind() == Kind::Text);
        Ok(found.and_then(|(datatype, bytes)| datatype.text(&bytes)))
    }

    /// The finite number of this key; None if it has none, or several.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let found = self.read(key)?;
        let number = found.and_then(|(datatype, bytes)| Scalar::read(datatype, &bytes));
        Ok(number.map(Scalar::float).filter(|number| number.is_finite()))
    }

    /// The value of this key; None if there is none, or more than `MAX_VALUE` bytes.
    fn read(&self, key: &str) -> Result<Option<(Datatype, Output)>> {
        let place = self.pairs.get(key.as_bytes());
        let is_read = |place: &&LocatedValue| (1..=MAX_VALUE).contains(&(place.data.end - place.data.start));
        let Some(place) = place.filter(is_read) else {
            return Ok(None);
        };
        let body = &self.bodies[place.file as usize];
        let bytes = Output::of(|out| body.read(place.data.clone(), out))?;
        Ok(Some((place.datatype, bytes)))
    }

    fn record(&mut self, MetadataRecord { key, value }: MetadataRecord) -> Result<()> {
        let memory = (key.len() as u64).saturating_add(Self::PAIR);
        let known = match value {
            None => self.pairs.remove(&key).is_some(),
            Some((datatype, value_num, data)) => {
                self.memory = self.memory.saturating_add(memory);
                let file = self.bodies.len() as u32;
                let place = LocatedValue {
                    datatype,
                    value_num,
                    file,
                    data,
                };
                self.pairs.insert(key, place).is_some()
            }
        };
        if known {
            self.memory = self.memory.saturating_sub(memory);
        }
        if self.memory > MAX_PAIRS {
            return Err(Error::limit(format!(
                "the keys of {} pairs take more than the {MAX_PAIRS} bytes allowed",
                self.pairs.len()
            )));
        }
        Ok(())
    }

    /// The document.
    pub fn document(self) -> Result<Segments> {
        let bodies = self.bodies;
        let (keys, places): (Vec<Vec<u8>>, Vec<LocatedValue>) = self.pairs.into_iter().unzip();
        let keys: Vec<String> = keys
            .into_iter()
            .map(|key| String::from_utf8(key).unwrap_or_else(|e| names::key(e.as_bytes())))
            .collect();
        let keys = names::unique(keys, usize::MAX);
        let mut cutter = Cutter::new();
        let mut pairs = Vec::with_capacity(places.len());
        for (key, place) in keys.into_iter().zip(places) {
            cutter.part();
            let shown = ValueForm::find(&place, &*bodies[place.file as usize], &mut cutter)
                .map_err(|e| e.in_part(format_args!("value of `{key}`")).in_part("metadata"))?;
            pairs.push(Pair { key, place, shown });
        }
        Ok(cutter.finish(Document { bodies, pairs }))
    }
}

/// How a value is shown.
enum ValueForm {
    Null,
    /// A value that is read whole.
    Cell(CellValNum),
    List(Box<ValueList>),
    Text(Box<LongString>),
}

impl ValueForm {
    fn find(place: &LocatedValue, body: &dyn Bytes, cutter: &mut Cutter) -> Result<ValueForm> {
        let size = place.data.end - place.data.start;
        let kind = place.datatype.kind();
        let cells = match kind {
            Kind::Text => CellValNum::Var,
            _ => CellValNum::Fixed(place.value_num),
        };
        if place.value_num == 0 {
            return Ok(ValueForm::Null);
        }
        let in_one_item = match kind {
            Kind::Text if place.datatype.size() > 1 => MAX_VALUE,
            _ => SMALL,
        };
        if size <= in_one_item {
            cutter.items(1, size.saturating_mul(2))?;
            return Ok(ValueForm::Cell(cells));
        }
        match kind {
            Kind::Text if place.datatype.size() > 1 => Err(Error::limit(format!(
                "{size} bytes of {}; at most {MAX_VALUE} are shown",
                place.datatype.name()
            ))),
            Kind::Text | Kind::Bytes => {
                let string = match kind {
                    Kind::Text => LongString::text(body, place.data.clone())?,
                    _ => LongString::hex(place.data.clone()),
                };
                string.cut(cutter)?;
                Ok(ValueForm::Text(Box::new(string)))
            }
            _ => {
                let list = ValueList::fixed(place.datatype, 1, place.data.clone())?;
                list.cut(body, cutter)?;
                Ok(ValueForm::List(Box::new(list)))
            }
        }
    }

    fn count(&self) -> u64 {
        match self {
            ValueForm::Null => 0,
            ValueForm::Cell(_) => 1,
            ValueForm::List(list) => list.count(),
            ValueForm::Text(text) => text.count(),
        }
    }
}

struct Pair {
    key: String,
    place: LocatedValue,
    shown: ValueForm,
}

struct Document {
    bodies: Vec<Box<dyn Bytes>>,
    pairs: Vec<Pair>,
}

impl Parts for Document {
    fn write(&self, part: usize, items: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        if self.pairs.is_empty() {
            out.extend_from_slice(b"{}\n");
            return Ok(());
        }
        let Pair { key, place, shown } = &self.pairs[part];
        if items.start == 0 {
            out.push(if part == 0 { b'{' } else { b',' });
            render::key(out, key, 1);
            let fields = [
                ("datatype", place.datatype.name().into()),
                ("value_num", place.value_num.into()),
            ];
            render::begin_object(out, &fields, 1);
            out.push(b',');
            render::key(out, "value", 2);
        }
        let body = &*self.bodies[place.file as usize];
        match shown {
            ValueForm::Null => out.extend_from_slice(b"null"),
            ValueForm::Cell(cells) => {
                if items.start == 0 {
                    let bytes = Output::of(|out| body.read(place.data.clone(), out))?;
                    value::write_cell(out, place.datatype, *cells, &bytes);
                }
            }
            ValueForm::List(list) => list.write(body, items.clone(), 2, out)?,
            ValueForm::Text(text) => text.write(body, items.clone(), out)?,
        }
        if items.end >= shown.count() {
            out.extend_from_slice(b"\n  }");
            if part + 1 == self.pairs.len() {
                out.extend_from_slice(b"\n}\n");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::object;
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::testing::Bytes;
    use serde_json::{Map, Value, json};

    fn entry(file: Bytes, key: &[u8], datatype: Datatype, value_num: u32, value: &[u8]) -> Bytes {
        let file = file.count32(key.len()).raw(key).u8(0);
        file.u8(datatype as u8).u32(value_num).raw(value)
    }

    fn deletion(file: Bytes, key: &[u8]) -> Bytes {
        file.count32(key.len()).raw(key).u8(1)
    }

    fn document(files: &[&[u8]]) -> Result<Segments> {
        replayed(files)?.document()
    }

    fn replayed(files: &[&[u8]]) -> Result<Pairs> {
        let mut pairs = Pairs::default();
        for file in files {
            pairs.replay(Box::new(file.to_vec()))?;
        }
        Ok(pairs)
    }

    fn text(files: &[&[u8]]) -> Vec<u8> {
        document(files).unwrap().render().unwrap()
    }

    fn parsed(files: &[&[u8]]) -> Value {
        let text = text(files);
        let json: Value = serde_json::from_slice(&text).unwrap();
        // As it would be rendered at once.
        assert!(text == render::render(&json.clone().into()));
        json
    }

    #[test]
    fn values_are_scalars_arrays_or_strings() {
        let file = Bytes::default();
        let file = entry(file, b"one", Datatype::Int16, 1, &[5, 0]);
        let file = entry(file, b"many", Datatype::Int16, 2, &[1, 0, 2, 0]);
        let file = entry(file, b"text", Datatype::StringUtf8, 3, b"abc");
        let file = entry(file, b"wide", Datatype::StringUtf16, 2, b"a\0b\0");
        let file = entry(file, b"empty", Datatype::StringUtf8, 0, b"");
        let file = entry(file, b"blob", Datatype::Blob, 2, &[1, 0xFF]);
        let file = entry(file, b"\xFF/", Datatype::Bool, 1, &[1]);
        let file = entry(file, b"", Datatype::Float64, 1, &f64::NAN.to_le_bytes());
        assert_eq!(
            parsed(&[&file.bytes]).to_string(),
            concat!(
                r#"{"":{"datatype":"FLOAT64","value_num":1,"value":"nan"},"#,
                r#""blob":{"datatype":"BLOB","value_num":2,"value":{"hex":"01ff"}},"#,
                r#""empty":{"datatype":"STRING_UTF8","value_num":0,"value":null},"#,
                r#""many":{"datatype":"INT16","value_num":2,"value":[1,2]},"#,
                r#""one":{"datatype":"INT16","value_num":1,"value":5},"#,
                r#""text":{"datatype":"STRING_UTF8","value_num":3,"value":"abc"},"#,
                r#""wide":{"datatype":"STRING_UTF16","value_num":2,"value":"ab"},"#,
                r#""%FF%2F":{"datatype":"BOOL","value_num":1,"value":true}}"#,
            )
        );
        assert_eq!(text(&[]), b"{}\n");
        let two = entry(Bytes::default(), b"key", Datatype::Uint8, 2, &[1, 2]);
        for end in 1..two.bytes.len() {
            assert!(document(&[&two.bytes[..end]]).is_err());
        }
    }

    #[test]
    fn texts_and_numbers_are_read_alone() {
        let long = vec![b'a'; MAX_VALUE as usize + 1];
        let mut file = Bytes::default();
        for (key, datatype, value_num, value) in [
            ("text", Datatype::StringUtf8, 3, &b"abc"[..]),
            ("invalid", Datatype::StringUtf8, 1, b"\xFF"),
            ("long", Datatype::StringUtf8, long.len() as u32, &long),
            ("empty", Datatype::StringUtf8, 0, b""),
            ("one", Datatype::Int16, 1, &[5, 0]),
            ("two", Datatype::Int16, 2, &[1, 0, 2, 0]),
            ("nan", Datatype::Float64, 1, &f64::NAN.to_le_bytes()),
            ("bytes", Datatype::Blob, 1, b"a"),
        ] {
            file = entry(file, key.as_bytes(), datatype, value_num, value);
        }
        let pairs = replayed(&[&file.bytes]).unwrap();
        let text = |key| pairs.text(key).unwrap();
        let number = |key| pairs.number(key).unwrap();
        assert_eq!((text("text").as_deref(), number("one")), (Some("abc"), Some(5.0)));
        for key in ["invalid", "long", "empty", "one", "two", "nan", "bytes", "none"] {
            assert_eq!((pairs.has(key), text(key)), (key != "none", None), "{key}");
        }
        for key in ["text", "invalid", "long", "empty", "two", "nan", "bytes", "none"] {
            assert_eq!(number(key), None, "{key}");
        }
    }

    #[test]
    fn later_records_win() {
        let first = entry(Bytes::default(), b"a", Datatype::Uint8, 1, &[1]);
        let first = entry(first, b"b", Datatype::Uint8, 1, &[1]);
        let second = entry(deletion(Bytes::default(), b"a"), b"b", Datatype::Uint8, 1, &[2]);
        let second = deletion(second, b"never");
        let third = entry(Bytes::default(), b"c", Datatype::Uint8, 1, &[3]);
        let third = entry(deletion(third, b"c"), b"c", Datatype::Uint8, 1, &[4]);
        let json = parsed(&[&first.bytes, &second.bytes, &third.bytes]);
        let left: Vec<_> = json
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.as_str(), &v["value"]))
            .collect();
        assert_eq!(left, [("b", &json!(2)), ("c", &json!(4))]);
    }

    #[test]
    fn keys_that_look_the_same_are_both_there() {
        let file = entry(Bytes::default(), b"%FF", Datatype::Uint8, 1, &[1]);
        let file = entry(file, b"\xFF", Datatype::Uint8, 1, &[2]);
        let json = parsed(&[&file.bytes]);
        assert_eq!(json["%FF"]["value"], json!(1));
        assert_eq!(json.as_object().map(Map::len), Some(2));
    }

    #[test]
    fn long_values_are_in_many_segments() {
        let bytes: Vec<u8> = (0..600_000u64).map(|i| b' ' + (i * i % 90) as u8).collect();
        let of = |datatype: Datatype| bytes.len() as u32 / datatype.size() as u32;
        let mut file = Bytes::default();
        for datatype in [
            Datatype::Int8,
            Datatype::Float64,
            Datatype::StringUtf8,
            Datatype::Blob,
            Datatype::StringUtf32,
        ] {
            file = entry(file, datatype.name().as_bytes(), datatype, of(datatype), &bytes);
        }
        let segments = document(&[&file.bytes]).unwrap();
        assert!(segments.count() > 20, "{}", segments.count());
        let mut expected = Vec::new();
        for name in ["BLOB", "FLOAT64", "INT8", "STRING_UTF32", "STRING_UTF8"] {
            let datatype = *Datatype::ALL.iter().find(|d| d.name() == name).unwrap();
            let cells = match datatype.kind() {
                Kind::Text => CellValNum::Var,
                _ => CellValNum::Fixed(of(datatype)),
            };
            let shown = value::cell(datatype, cells, &bytes);
            let pair = object!({"datatype": name, "value_num": of(datatype), "value": shown});
            expected.push((name, pair));
        }
        assert!(segments.render().unwrap() == render::render(&expected.into_iter().collect()));
    }

    #[test]
    fn very_many_pairs_are_refused() {
        let mut file = Bytes::default();
        for i in 0..400_000u32 {
            file = entry(file, &i.to_be_bytes(), Datatype::Uint8, 0, b"");
        }
        assert_eq!(
            document(&[&file.bytes]).err().unwrap().kind(),
            ErrorKind::LimitExceeded
        );
    }
}
