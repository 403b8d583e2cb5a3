//! Writes JSON text that people can read.

use super::Json;
use crate::runtime::parallel;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::io::{Result, Write};

/// The text of a document, indented by two spaces, with a line feed at its end. An array is on one line if it
/// holds only scalars and hexadecimal bytes, or pairs of these such as `[lo, hi]`. Equal documents give equal
/// bytes.
pub fn render(value: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    write_value(&mut out, value, 0);
    out.push(b'\n');
    out
}

/// The text of an array with the object that `make` makes of each of `items`, as by [`render`]. Works on all
/// cores, since `make` may read a file.
pub fn render_objects<T: Sync, E: Send>(
    items: &[T],
    make: impl Fn(&T) -> std::result::Result<Json, E> + Sync,
) -> std::result::Result<Vec<u8>, E> {
    /// The fewest items that are worth a thread.
    const ITEMS: usize = 64;
    if items.is_empty() {
        return Ok(b"[]\n".to_vec());
    }
    let slices: Vec<&[T]> = items.chunks(ITEMS).collect();
    let texts = parallel::each(slices.len() as u64, |number| {
        let mut out = Vec::new();
        for item in slices[number as usize] {
            out.push(b',');
            line(&mut out, 1);
            write_value(&mut out, &make(item)?, 1);
        }
        Ok(out)
    })?;
    let mut out = texts.concat();
    if let Some(comma) = out.first_mut() {
        *comma = b'[';
    }
    out.extend_from_slice(b"\n]\n");
    Ok(out)
}

/// Writes `value` at nesting `depth`, without a line feed at its end.
pub(super) fn write_value(out: &mut Vec<u8>, value: &Json, depth: usize) {
    match value {
        Json::Array(items) if !items.iter().all(is_atom_or_pair) => {
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
        Json::Object(members) if !members.is_empty() => {
            begin_object(out, members, depth);
            line(out, depth);
            out.push(b'}');
        }
        _ => write_inline(out, value),
    }
}

/// Writes an object at nesting `depth` that begins with `members`, which are not empty, without its end.
pub(super) fn begin_object<K: AsRef<str>>(out: &mut Vec<u8>, members: &[(K, Json)], depth: usize) {
    for (i, (name, value)) in members.iter().enumerate() {
        out.push(if i == 0 { b'{' } else { b',' });
        key(out, name.as_ref(), depth + 1);
        write_value(out, value, depth + 1);
    }
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
fn is_atom(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Cell(cell) => cell.is_atom(),
        Json::Array(_) | Json::Object(_) => false,
    }
}

fn is_atom_or_pair(value: &Json) -> bool {
    match value {
        Json::Cell(cell) => cell.array_len().is_none_or(|len| len == 2),
        Json::Array(items) => matches!(items.as_slice(), [a, b] if is_atom(a) && is_atom(b)),
        _ => is_atom(value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::object;
    use super::*;
    use serde_json::{Value, json};

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
        let text = render(&value.clone().into());
        assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn objects_from_several_threads_are_in_order() {
        for count in [0, 1, 63, 64, 65, 1000] {
            let items: Vec<u64> = (0..count).collect();
            let make = |i: &u64| object!({"i": *i, "list": [[*i]]});
            let whole: Json = items.iter().map(make).collect();
            let objects = render_objects(&items, |i| Ok::<_, ()>(make(i)));
            assert_eq!(objects.unwrap(), render(&whole), "{count}");
        }
    }

    #[test]
    fn a_scalar_is_a_line() {
        assert_eq!(render(&Json::Null), b"null\n");
        assert_eq!(render(&json!([]).into()), b"[]\n");
        assert_eq!(render(&u64::MAX.into()), b"18446744073709551615\n");
        assert_eq!(render(&(-0.0).into()), b"-0.0\n");
    }

    #[test]
    fn a_million_integers_are_one_line() {
        let value: Json = (0..1_000_000_u64).collect();
        let text = render(&value);
        assert_eq!(text.iter().filter(|&&b| b == b'\n').count(), 1);
        assert!(text.starts_with(b"[0, 1, 2, ") && text.ends_with(b", 999999]\n"));
        // Digits of 0 to 999999, separators, brackets and line feed.
        assert_eq!(text.len(), 5_888_890 + 2 * 999_999 + 3);
    }
}
