//! JSON documents in memory.

use super::value::{self, Cell};
use crate::format::datatype::{CellValNum, Datatype};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A document, or a value in one. [`render`](super::render()) writes it out.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// A missing value.
    Null,
    /// A number, boolean or text, or whatever else a cell of an array may be. Its bytes are kept as they are
    /// stored: one by one, the values of a cell of megabytes would take many times the memory.
    Cell(Cell<'static>),
    /// A list of values.
    Array(Vec<Json>),
    /// Keys with their values, in the order in which they are shown. No key is there twice.
    Object(Vec<(Cow<'static, str>, Json)>),
}

/// An object: `object!({"key": value, …})`. A value may be all that [`Json`] has a [`From`] for.
macro_rules! object {
    ({$($key:literal: $value:expr),* $(,)?}) => {
        $crate::describe::Json::Object(vec![$(($key.into(), $value.into())),*])
    };
}
pub(crate) use object;

macro_rules! from_numbers {
    ($($number:ty: $datatype:ident),*) => {$(
        impl From<$number> for Json {
            fn from(number: $number) -> Self {
                value::element(Datatype::$datatype, &number.to_le_bytes())
            }
        }
    )*};
}
from_numbers!(u8: Uint8, u16: Uint16, u32: Uint32, i32: Int32, u64: Uint64, i64: Int64, f64: Float64);

impl From<bool> for Json {
    fn from(boolean: bool) -> Self {
        value::element(Datatype::Bool, &[boolean.into()])
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        value::name(text.as_bytes())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Json::Cell(Cell::new(
            Datatype::StringUtf8,
            CellValNum::Var,
            text.into_bytes(),
        ))
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Json::Null, T::into)
    }
}

impl<T: Into<Json>, const N: usize> From<[T; N]> for Json {
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

impl<T: Into<Json>> FromIterator<T> for Json {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Json::Array(values.into_iter().map(T::into).collect())
    }
}

impl<K: Into<Cow<'static, str>>> FromIterator<(K, Json)> for Json {
    fn from_iter<I: IntoIterator<Item = (K, Json)>>(members: I) -> Self {
        Json::Object(
            members
                .into_iter()
                .map(|(key, value)| (key.into(), value))
                .collect(),
        )
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Cell(cell) => cell.serialize(serializer),
            Json::Array(values) => serializer.collect_seq(values),
            Json::Object(members) => serializer.collect_map(members.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// Writes the value on one line, without blanks.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    impl PartialEq<Value> for Json {
        fn eq(&self, other: &Value) -> bool {
            serde_json::to_value(self).unwrap() == *other
        }
    }

    impl From<Value> for Json {
        fn from(value: Value) -> Self {
            match value {
                Value::Null => Json::Null,
                Value::Bool(boolean) => boolean.into(),
                Value::Number(n) => n
                    .as_u64()
                    .map(Json::from)
                    .or(n.as_i64().map(Json::from))
                    .unwrap_or_else(|| n.as_f64().unwrap().into()),
                Value::String(text) => text.into(),
                Value::Array(values) => values.into_iter().collect(),
                Value::Object(members) => match members.get("hex") {
                    Some(Value::String(digits)) if members.len() == 1 => {
                        let byte = |i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap();
                        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
                        value::hex(&bytes)
                    }
                    _ => members
                        .into_iter()
                        .map(|(key, value)| (key, value.into()))
                        .collect(),
                },
            }
        }
    }

    #[test]
    fn scalars_lists_and_objects() {
        let document = object!({
            "numbers": [Json::from(u64::MAX), (-1).into(), 0.1.into(), f64::NAN.into(), true.into()],
            "text": "a: \"b\", c",
            "none": None::<u64>,
            "hex": value::hex(b"\xFF"),
            "list": (0_u8..3).collect::<Json>(),
            "object": [("a", Json::Null)].into_iter().collect::<Json>(),
        });
        let text = concat!(
            r#"{"numbers":[18446744073709551615,-1,0.1,"nan",true],"text":"a: \"b\", c","none":null,"#,
            r#""hex":{"hex":"ff"},"list":[0,1,2],"object":{"a":null}}"#,
        );
        assert_eq!(document.to_string(), text);
        assert_eq!(document, serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(object!({}), json!({}));
    }
}
