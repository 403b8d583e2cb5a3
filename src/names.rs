//! Names of files: how any bytes that TileDB allows as a name become one component of a path.
//!
//! A lookup never decodes. It encodes the names that the array has and compares, so that the encoding need
//! not be reversible for names that are cut.

use crate::printable::hex;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Component, Path};

/// Bytes of the longest component of a path on Linux.
pub const MAX: usize = 255;

/// Hexadecimal digits of SHA-256 that end a name which was cut or renamed.
const HASH_DIGITS: usize = 16;

/// Whether `name` is one component of a path: neither empty, nor `.` or `..`, and without slashes.
pub fn is_component(name: &OsStr) -> bool {
    matches!(Path::new(name).components().next(), Some(Component::Normal(only)) if only == name)
}

/// A name as a component of a path: `/`, NUL, `%`, a leading `.` and bytes that are not UTF-8 are
/// percent-encoded with upper-case digits; what is then over 255 bytes is cut and ends in `~` and a hash of
/// `name`.
///
/// No bytes at all become a lone `%`, which no other name gives. Attributes and dimensions have names of
/// their own for that, see [`attribute`] and [`dimension`].
pub fn encode(name: &[u8]) -> String {
    encode_within(name, MAX)
}

/// [`encode`] with another limit than 255 bytes, to leave room for a suffix such as `.json`. A limit too
/// small for the hash counts as if it were just large enough.
pub fn encode_within(name: &[u8], max: usize) -> String {
    if name.is_empty() {
        return "%".to_string();
    }
    let encoded = escape(name);
    if encoded.len() <= max {
        encoded
    } else {
        cut(encoded, max, &hash(name))
    }
}

/// A name that is a component of a path already; what is over `max` bytes is cut as by [`encode_within`].
pub fn within(name: &str, max: usize) -> String {
    match name.len() <= max {
        true => name.to_owned(),
        false => cut(name.to_owned(), max, &hash(name.as_bytes())),
    }
}

/// The directory name of an attribute: `__attr` for the anonymous one.
pub fn attribute(name: &[u8]) -> String {
    if name.is_empty() {
        "__attr".to_string()
    } else {
        encode(name)
    }
}

/// The directory name of dimension `index`: `__dim_<index>` for an anonymous one.
pub fn dimension(name: &[u8], index: usize) -> String {
    if name.is_empty() {
        format!("__dim_{index}")
    } else {
        encode(name)
    }
}

/// A name as the key of a JSON object: itself where it is UTF-8, else percent-encoded as by [`encode`], but
/// never cut.
pub fn key(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(name) => name.to_string(),
        Err(_) => escape(name),
    }
}

/// Makes encoded names differ from each other: the second and later ones of a kind end in `~` and a hash of
/// the name and of how often it was there before. No result is longer than `max` bytes, provided that no name
/// is and that `max` has room for the hash (17 bytes). The same names in the same order give the same result.
pub fn unique(names: Vec<String>, max: usize) -> Vec<String> {
    let distinct: HashSet<&str> = names.iter().map(String::as_str).collect();
    if distinct.len() == names.len() {
        return names;
    }
    // Names that stay as they are keep the names of those that do not from taking theirs.
    let mut taken: HashSet<String> = names.iter().cloned().collect();
    let mut seen: HashMap<String, u64> = HashMap::new();
    names
        .into_iter()
        .map(|name| {
            let count = seen.entry(name.clone()).or_insert(0);
            loop {
                *count += 1;
                if *count == 1 {
                    return name;
                }
                let mut salted = name.clone().into_bytes();
                salted.push(0);
                salted.extend_from_slice(&count.to_le_bytes());
                let other = cut(name.clone(), max, &hash(&salted));
                if taken.insert(other.clone()) {
                    return other;
                }
            }
        })
        .collect()
}

/// Percent-encodes what may not be in a component of a path.
fn escape(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    let percent = |out: &mut String, byte: u8| {
        // Writing to a String cannot fail.
        let _ = write!(out, "%{byte:02X}");
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '/' | '\0' | '%' => percent(&mut out, c as u8),
                '.' if out.is_empty() => percent(&mut out, b'.'),
                c => out.push(c),
            }
        }
        for &byte in chunk.invalid() {
            percent(&mut out, byte);
        }
    }
    out
}

/// Appends `~` and `hash`, having cut `name` so that all of it fits in `max` bytes; neither a character nor a
/// percent triple is cut in two.
fn cut(mut name: String, max: usize, hash: &str) -> String {
    let room = max.saturating_sub(1 + hash.len());
    if name.len() > room {
        let mut end = room;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        // An encoded name holds `%` only as the first of three.
        let tail = name.as_bytes().iter().rev().take(2).position(|&b| b == b'%');
        if let Some(after) = tail {
            name.truncate(name.len() - (after + 1));
        }
    }
    name.push('~');
    name.push_str(hash);
    name
}

/// The first 16 hexadecimal digits of the SHA-256 of `bytes`, in lower case.
fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..HASH_DIGITS / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_troublesome_bytes_are_encoded() {
        assert_eq!(encode(b"temperature"), "temperature");
        assert_eq!(encode("größe, 長さ".as_bytes()), "größe, 長さ");
        assert_eq!(encode(b"a/b\0c%d"), "a%2Fb%00c%25d");
        assert_eq!(encode(b".hidden.x"), "%2Ehidden.x");
        assert_eq!(encode(b"."), "%2E");
        assert_eq!(encode(b".."), "%2E.");
        assert_eq!(encode(b"\xFFa\xC3"), "%FFa%C3");
        assert_eq!(encode(b"\xFF.a"), "%FF.a");
        assert_eq!(encode(b""), "%");
    }

    #[test]
    fn anonymous_fields_have_names() {
        assert_eq!(attribute(b""), "__attr");
        assert_eq!(attribute(b".a"), "%2Ea");
        assert_eq!(dimension(b"", 2), "__dim_2");
        assert_eq!(dimension(b"d", 2), "d");
    }

    #[test]
    fn long_names_are_cut_at_a_character_and_end_in_a_hash() {
        let at_the_limit = "x".repeat(255);
        assert_eq!(encode(at_the_limit.as_bytes()), at_the_limit);
        // SHA-256 of 256 times "x".
        assert_eq!(
            encode("x".repeat(256).as_bytes()),
            format!("{}~85e62acd750c4eb5", "x".repeat(238))
        );
        // 238 is in the middle of the 80th "長" (3 bytes each, after one "x").
        let long = format!("x{}", "長".repeat(100));
        let encoded = encode(long.as_bytes());
        assert!(encoded.starts_with(&format!("x{}~", "長".repeat(79))));
        assert_eq!(encoded.len(), 1 + 79 * 3 + 17);
        // 238 is in the middle of the 80th "%FF".
        let encoded = encode(&[0xFF; 100]);
        assert!(encoded.starts_with(&format!("{}~", "%FF".repeat(79))));
        assert_eq!(encoded.len(), 79 * 3 + 17);
        assert_eq!(encode_within(&[b'y'; 300], 250).len(), 250);
        assert!(encode_within(&[b'y'; 300], 0).starts_with('~'));
    }

    #[test]
    fn long_names_with_a_common_start_differ() {
        let (mut a, mut b) = (vec![b'x'; 300], vec![b'x'; 300]);
        a.push(b'a');
        b.push(b'b');
        assert_ne!(encode(&a), encode(&b));
    }

    #[test]
    fn keys_are_encoded_only_where_they_must_be() {
        assert_eq!(key("a/b%ü".as_bytes()), "a/b%ü");
        assert_eq!(key(b""), "");
        assert_eq!(key(b"a/\xFF"), "a%2F%FF");
        assert_eq!(key(&[0xFF; 100]).len(), 300);
    }

    #[test]
    fn collisions_are_resolved_and_the_first_keeps_its_name() {
        let list = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(unique(list(&["a", "b"]), MAX), ["a", "b"]);
        let names = unique(list(&["a", "b", "a", "a"]), MAX);
        assert_eq!(&names[..2], ["a", "b"]);
        assert_eq!((names[2].len(), names[3].len()), (18, 18));
        assert!(names[2].starts_with("a~") && names[3].starts_with("a~"));
        assert_ne!(names[2], names[3]);
        // Adding one at the end changes none before it.
        assert_eq!(unique(list(&["a", "b", "a", "a", "a"]), MAX)[..4], names);
        // A name that is what another would be renamed to.
        let hostile = unique(vec!["a".into(), names[2].clone(), "a".into()], MAX);
        assert_eq!(hostile[..2], [names[0].clone(), names[2].clone()]);
        assert!(!hostile[..2].contains(&hostile[2]));
        let long = unique(list(&["é".repeat(127).as_str(); 3]), MAX);
        assert!(long.iter().all(|n| n.len() <= MAX));
        assert_eq!(long.iter().collect::<HashSet<_>>().len(), 3);
    }
}
