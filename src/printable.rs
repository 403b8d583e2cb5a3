//! Text of others on terminals and in logs, and bytes as digits.
//!
//! Names and messages may contain what a terminal obeys, or what begins another line. Whatever is written to
//! a terminal, to stderr or to a log passes through [`escape`].

use std::fmt::Write;

/// `text`, which need not be UTF-8, as one line that a terminal shows and does not obey: control characters
/// are written as `\n`, `\t` or `\u{1b}`, bytes that are not UTF-8 as `\xff`. A backslash stays as it is, so
/// that escaping twice changes nothing.
pub fn escape(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_control(c) {
                true => out.extend(c.escape_default()),
                false => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// A JSON text with the same value, in which [`escape`] finds nothing: control characters that JSON allows in
/// strings are written as `\u009b`.
pub fn escape_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_control(c) {
            true => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            false => out.push(c),
        }
    }
    out
}

/// Two hexadecimal digits in lower case for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::with_capacity(2 * bytes.len());
    write_hex(bytes, &mut digits);
    String::from_utf8(digits).expect("digits are ASCII")
}

/// Appends what [`hex`] returns.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
    out.extend(bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte)]));
}

/// Whether a terminal may obey a character instead of showing it: C0, DEL and C1, separators of lines and
/// paragraphs, and controls of the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(escape("a\nb\tc\r"), "a\\nb\\tc\\r");
        assert_eq!(escape("\u{1b}[31mred\0\u{7f}"), "\\u{1b}[31mred\\u{0}\\u{7f}");
        assert_eq!(escape("\u{9b}31m\u{85}"), "\\u{9b}31m\\u{85}");
        assert_eq!(escape(b"a\xff\xc3(\x9b"), "a\\xff\\xc3(\\x9b");
        for c in "\u{61c}\u{200e}\u{200f}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            assert_eq!(escape(c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
        }
        for plain in [
            "",
            "temperature",
            "größe µ – 温度 🌡 עברית",
            "a\\nb 'c' \"d\"",
            "a\u{200d}b",
        ] {
            assert_eq!(escape(plain), plain);
        }
        let once = escape("\u{1b}\n");
        assert_eq!(escape(&once), once);
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({"a\u{9b}": "b\u{202e}\u{7f}\n\u{1b}ü"});
        let text = escape_json(&value.to_string());
        assert_eq!(text, "{\"a\\u009b\":\"b\\u202e\\u007f\\n\\u001bü\"}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert_eq!(escape(&text), text);
    }
}
