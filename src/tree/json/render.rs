//! Writes JSON text that people can read.

use crate::parallel;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::io::{Result, Write};

/// The text of a document, indented by two spaces, with a line feed at its end. An array is on one line if it
/// holds only scalars and hexadecimal bytes, or pairs of these such as `[lo, hi]`. Equal documents give equal
/// bytes.
pub fn render(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(&mut out, value, 0);
    out.push(b'\n');
    out
}

/// The text of an array with an object for each of `items`, as by [`render`]. `make` makes the members of an
/// object. `items` and the members must not be empty. Works on all cores, since `make` may read a file.
pub fn render_objects<T: Sync, const N: usize>(
    items: &[T],
    make: impl Fn(&T) -> [(&'static str, Value); N] + Sync,
) -> Vec<u8> {
    /// The fewest items that are worth a thread.
    const ITEMS: usize = 64;
    if items.is_empty() {
        return b"[]\n".to_vec();
    }
    let slices: Vec<&[T]> = items.chunks(ITEMS).collect();
    let Ok(texts) = parallel::each(
        slices.len() as u64,
        |number| -> std::result::Result<_, Infallible> {
            let mut out = Vec::new();
            for item in slices.get(number as usize).copied().unwrap_or_default() {
                out.push(b',');
                line(&mut out, 1);
                write_members(&mut out, make(item).iter().map(|(key, value)| (*key, value)), 1);
            }
            Ok(out)
        },
    );
    let mut out = texts.concat();
    if let Some(comma) = out.first_mut() {
        *comma = b'[';
    }
    out.extend_from_slice(b"\n]\n");
    out
}

/// An object with this key holds the text of an array in place of the array. No document has such an object.
pub(super) const RENDERED: &str = "\0rendered";

/// The text of an array that is kept as text; None for other objects.
pub(super) fn rendered_text(entries: &Map<String, Value>) -> Option<&str> {
    match entries.get(RENDERED) {
        Some(Value::String(text)) if entries.len() == 1 => Some(text),
        _ => None,
    }
}

/// Writes `value` at nesting `depth`, without a line feed at its end.
pub(super) fn write_value(out: &mut Vec<u8>, value: &Value, depth: usize) {
    match value {
        Value::Array(items) if items.is_empty() => out.extend_from_slice(b"[]"),
        Value::Array(items) if items.iter().all(is_atom_or_pair) => write_inline(out, value),
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                line(out, depth + 1);
                write_value(out, item, depth + 1);
            }
            line(out, depth);
            out.push(b']');
        }
        Value::Object(entries) if !entries.is_empty() && !is_atom(value) => {
            if let Some(text) = rendered_text(entries) {
                return out.extend_from_slice(text.as_bytes());
            }
            let members = entries.iter().map(|(key, value)| (key.as_str(), value));
            write_members(out, members, depth);
        }
        _ => write_inline(out, value),
    }
}

/// Writes an object of `members`, which are not empty, at nesting `depth`.
fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a str, &'a Value)>, depth: usize) {
    out.push(b'{');
    for (i, (name, value)) in members.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        key(out, name, depth + 1);
        write_value(out, value, depth + 1);
    }
    line(out, depth);
    out.push(b'}');
}

/// Writes `value` on the current line.
pub(super) fn write_inline(out: &mut Vec<u8>, value: &impl Serialize) {
    // Neither writing to a Vec nor serializing what is shown can fail.
    let _ = value.serialize(&mut Serializer::with_formatter(out, OneLine));
}

/// Writes a space after each comma and colon.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.begin_array_value(writer, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        writer.write_all(b": ")
    }
}

/// Writes a string with its quotes and escapes.
pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    // Neither writing to a Vec nor serializing a string can fail.
    let _ = serde_json::to_writer(out, text);
}

/// Starts a line at nesting `depth`.
pub(super) fn line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

/// Starts a line at nesting `depth` with the key of an object's entry.
pub(super) fn key(out: &mut Vec<u8>, key: &str, depth: usize) {
    line(out, depth);
    write_string(out, key);
    out.extend_from_slice(b": ");
}

/// Whether `value` is a scalar or hexadecimal bytes.
fn is_atom(value: &Value) -> bool {
    match value {
        Value::Array(_) => false,
        Value::Object(entries) => entries.len() == 1 && matches!(entries.get("hex"), Some(Value::String(_))),
        _ => true,
    }
}

fn is_atom_or_pair(value: &Value) -> bool {
    match value {
        Value::Array(items) => matches!(items.as_slice(), [a, b] if is_atom(a) && is_atom(b)),
        _ => is_atom(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_objects_are_indented_and_flat_arrays_are_not() {
        let value = json!({
            "a": 1,
            "b": [],
            "c": {},
            "d": [1, "x\n\"ü", null, true, false, {"hex": "ff"}],
            "domain": [[-1, 9], ["a", {"hex": "80"}]],
            "e": [[1, 2, 3], [4, 5, 6]],
            "f": [{"g": 1.5}, {"hex": 1}],
            "levels": [[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]],
            "h": {"hex": "00"},
        });
        let expected = r#"{
  "a": 1,
  "b": [],
  "c": {},
  "d": [1, "x\n\"ü", null, true, false, {"hex": "ff"}],
  "domain": [[-1, 9], ["a", {"hex": "80"}]],
  "e": [
    [1, 2, 3],
    [4, 5, 6]
  ],
  "f": [
    {
      "g": 1.5
    },
    {
      "hex": 1
    }
  ],
  "levels": [
    [
      [[1, 2], [3, 4]],
      [[5, 6], [7, 8]]
    ]
  ],
  "h": {"hex": "00"}
}
"#;
        let text = render(&value);
        assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn objects_from_several_threads_are_in_order() {
        for count in [0, 1, 63, 64, 65, 1000] {
            let items: Vec<u64> = (0..count).collect();
            let make = |i: &u64| [("i", json!(i)), ("list", json!([[i]]))];
            let whole: Value = items.iter().map(make).map(Value::from_iter).collect();
            assert_eq!(render_objects(&items, make), render(&whole), "{count}");
        }
    }

    #[test]
    fn a_scalar_is_a_line() {
        assert_eq!(render(&Value::Null), b"null\n");
        assert_eq!(render(&json!([])), b"[]\n");
        assert_eq!(render(&json!(u64::MAX)), b"18446744073709551615\n");
        assert_eq!(render(&json!(-0.0)), b"-0.0\n");
    }

    #[test]
    fn a_million_integers_are_one_line() {
        let value: Value = (0..1_000_000_u64).collect();
        let text = render(&value);
        assert_eq!(text.iter().filter(|&&b| b == b'\n').count(), 1);
        assert!(text.starts_with(b"[0, 1, 2, ") && text.ends_with(b", 999999]\n"));
        // Digits of 0 to 999999, separators, brackets and line feed.
        assert_eq!(text.len(), 5_888_890 + 2 * 999_999 + 3);
    }
}
