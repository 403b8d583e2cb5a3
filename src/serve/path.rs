//! Paths of URLs: split at slashes, then decoded once.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What is encoded in a name: all but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadPath {
    /// It is no path: `.`, `..`, NUL, or a `%` without two hexadecimal digits.
    Malformed,
    /// It names nothing: an empty component.
    Missing,
}

/// A path below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPath {
    /// The decoded names from the root on; none for the root itself.
    pub names: Vec<OsString>,
    /// Whether it ends with a slash. That of the root does.
    pub slash: bool,
}

impl UrlPath {
    /// Parses what follows the prefix: an empty text, or one that begins with a slash.
    pub fn parse(path: &str) -> Result<UrlPath, BadPath> {
        let Some(rest) = path.strip_prefix('/').filter(|rest| !rest.is_empty()) else {
            return Ok(UrlPath {
                names: Vec::new(),
                slash: true,
            });
        };
        let (rest, slash) = match rest.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        // All names are looked at, so that what is malformed anywhere is refused as that.
        let names: Vec<OsString> = rest.split('/').map(decode).collect::<Result<_, _>>()?;
        match names.iter().any(|name| name.is_empty()) {
            true => Err(BadPath::Missing),
            false => Ok(UrlPath { names, slash }),
        }
    }

    /// The path as it is written in a URL, from the root on, with a slash at the end if it is that of a
    /// directory.
    pub fn encode(&self, directory: bool) -> String {
        let mut out = String::from("/");
        for (index, name) in self.names.iter().enumerate() {
            if index > 0 {
                out.push('/');
            }
            out.push_str(&encode(name));
        }
        if directory && !self.names.is_empty() {
            out.push('/');
        }
        out
    }

    /// The path for messages.
    pub fn display(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| name.to_string_lossy()).collect();
        names.join("/")
    }
}

/// Decodes one component.
fn decode(component: &str) -> Result<OsString, BadPath> {
    let bytes = component.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digits = bytes.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(BadPath::Malformed);
        }
    }
    let name: Vec<u8> = percent_decode(bytes).collect();
    match name.as_slice() {
        b"." | b".." => Err(BadPath::Malformed),
        name if name.contains(&0) => Err(BadPath::Malformed),
        _ => Ok(OsString::from_vec(name)),
    }
}

/// A name as one component of a URL's path.
pub fn encode(name: &OsStr) -> String {
    percent_encode(name.as_bytes(), ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_and_then_decoded_once() {
        let parse = |text: &str| UrlPath::parse(text).map(|path| (path.names, path.slash));
        let names = |names: &[&str]| names.iter().map(OsString::from).collect::<Vec<_>>();
        for root in ["", "/"] {
            assert_eq!(parse(root), Ok((Vec::new(), true)));
        }
        assert_eq!(parse("/a/b"), Ok((names(&["a", "b"]), false)));
        assert_eq!(parse("/a/b/"), Ok((names(&["a", "b"]), true)));
        assert_eq!(parse("/a%2Fb/%5c\\"), Ok((names(&["a/b", "\\\\"]), false)));
        assert_eq!(parse("/%252e%252E/..."), Ok((names(&["%2e%2E", "..."]), false)));
        assert_eq!(parse("/%ff").unwrap().0[0].as_bytes(), [0xff]);
        for bad in [
            "/.", "/..", "/a/../b", "/%2e%2E/", "/.%2e", "/%00", "/a%", "/a%4", "/a%4g", "/%%41", "//..",
        ] {
            assert_eq!(parse(bad), Err(BadPath::Malformed), "{bad}");
        }
        for missing in ["//", "/a//b", "//a", "/a//"] {
            assert_eq!(parse(missing), Err(BadPath::Missing), "{missing}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        let all: Vec<u8> = (1..=255).collect();
        let path = UrlPath {
            names: vec![OsString::from_vec(all), "a b".into(), "%41?#".into()],
            slash: false,
        };
        let text = path.encode(false);
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        assert_eq!(UrlPath::parse(&text), Ok(path.clone()));
        let slash = UrlPath { slash: true, ..path };
        assert_eq!(UrlPath::parse(&slash.encode(true)), Ok(slash));
    }
}
