//! Parses arguments with a syntax of their own: sizes, times and key files.

use super::Failure;
use crate::filter::EncryptionKey;
use crate::tree::times::{self, Asked};
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Parses a SOURCE, which is not the empty text of a shell variable that is not set.
pub fn source_parser() -> impl TypedValueParser<Value = OsString> {
    not_empty("give a path or a URL, `.` for the current directory")
}

/// Parses a PATH in SOURCE, which is not empty either.
pub fn path_parser() -> impl TypedValueParser<Value = OsString> {
    not_empty("give a path, `.` for SOURCE itself")
}

/// Parses a PATH in SOURCE or a DEST, which are not empty either.
pub fn path_or_dest_parser() -> impl TypedValueParser<Value = OsString> {
    not_empty("give a path: a PATH `.` is SOURCE itself, a DEST `.` the current directory")
}

/// Parses what is not empty; else the error is `advice`.
fn not_empty(advice: &'static str) -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(move |text| match text.is_empty() {
        true => Err(advice),
        false => Ok(text),
    })
}

/// Parses the size of the cache in memory, in bytes, at least 1.
pub fn parse_cache_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("the cache cannot be empty".to_owned()),
        size => Ok(size),
    }
}

/// Parses the size of the disk cache, in bytes, at least 1.
#[cfg(feature = "remote")]
pub fn parse_disk_cache_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("leave out --disk-cache for no disk cache".to_owned()),
        size => Ok(size),
    }
}

/// Parses a number of bytes: digits, and an optional suffix K, M, G or T (powers of 1024) in any case,
/// optionally followed by `iB` or `B`.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at_checked(digits).unwrap_or(("", text));
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("give bytes, or a number with the suffix K, M, G or T".to_owned()),
    };
    if number.is_empty() {
        return Err("give bytes, or a number with the suffix K, M, G or T".to_owned());
    }
    let size = number.parse::<u64>().ok().and_then(|number| {
        let factor = 1_u64.checked_shl(shift)?;
        number.checked_mul(factor)
    });
    size.ok_or_else(|| "that is more than 2^64 bytes".to_owned())
}

/// Parses a time or a pin as in `at/`; fails for ranges.
pub fn parse_time(text: &str) -> Result<Asked, String> {
    match times::parse_name(text)? {
        Asked::Within(_) if text.contains("..") => Err("give one time, not a range".to_owned()),
        asked => Ok(asked),
    }
}

/// Reads the files of all `--key-file`, sorted by descending depth of path, because the first match counts.
pub fn read_keys(arguments: &[OsString]) -> Result<Vec<(PathBuf, EncryptionKey)>, Failure> {
    let mut keys = Vec::new();
    for argument in arguments {
        let bytes = argument.as_bytes();
        let (path, file) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => {
                let (path, file) = bytes.split_at(at);
                (path, &file[1..])
            }
            None => (&[][..], bytes),
        };
        let path: PathBuf = Path::new(OsStr::from_bytes(path))
            .components()
            .filter(|part| matches!(part, std::path::Component::Normal(_)))
            .collect();
        keys.push((path, read_key(Path::new(OsStr::from_bytes(file)))?));
    }
    keys.sort_by_key(|(path, _)| std::cmp::Reverse(path.components().count()));
    Ok(keys)
}

/// Reads a key: 32 raw bytes or 64 hexadecimal digits, and an optional newline. Errors never show it.
fn read_key(path: &Path) -> Result<EncryptionKey, Failure> {
    let fail = |cause: &dyn Display| Failure::new(format!("key file {}: {cause}", super::show_path(path)));
    let not_a_key = || fail(&"neither 32 raw bytes nor 64 hexadecimal digits");
    let mut bytes = Vec::new();
    // One byte more than the longest valid file.
    File::open(path)
        .and_then(|file| file.take(67).read_to_end(&mut bytes))
        .map_err(|error| fail(&error))?;
    let mut key = [0; 32];
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    match (bytes.len(), text.len()) {
        (32, _) => key.copy_from_slice(&bytes),
        (_, 32) => key.copy_from_slice(text),
        (_, 64) => {
            for (byte, digits) in key.iter_mut().zip(text.chunks_exact(2)) {
                *byte = std::str::from_utf8(digits)
                    .ok()
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                    .ok_or_else(not_a_key)?;
            }
        }
        _ => return Err(not_a_key()),
    }
    let file = std::path::absolute(path).map_err(|error| fail(&error))?;
    Ok(EncryptionKey::from_file(key, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        for (text, size) in [
            ("1", 1),
            ("1000", 1000),
            ("4k", 4096),
            ("4KiB", 4096),
            ("256M", 256 << 20),
            ("2g", 2 << 30),
            ("1TB", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in ["0", "0M"] {
            assert_eq!(parse_cache_size(text).unwrap_err(), "the cache cannot be empty");
        }
        for text in [
            "",
            "-1",
            "+1",
            "1.5G",
            "M",
            "10 M",
            "10X",
            "10MM",
            "10iB",
            "18446744073709551616",
            "99999999999T",
            "١",
            "1é",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn key_files_are_read_and_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let raw: [u8; 32] = std::array::from_fn(|i| i as u8 * 7);
        let hex: String = raw.iter().map(|byte| format!("{byte:02X}")).collect();
        for bytes in [
            raw.to_vec(),
            [&raw[..], b"\n"].concat(),
            hex.clone().into_bytes(),
            format!("{}\n", hex.to_lowercase()).into_bytes(),
            format!("{hex}\r\n").into_bytes(),
        ] {
            let key = read_key(&write("good", &bytes)).unwrap();
            assert_eq!(key.bytes(), &raw);
        }
        let bad = "zz".repeat(32);
        for bytes in [
            &b""[..],
            b"short",
            bad.as_bytes(),
            &[b'+'; 64],
            &[b'0'; 65],
            &[0; 100],
        ] {
            let failure = read_key(&write("bad", bytes)).unwrap_err();
            assert!(
                failure
                    .message
                    .ends_with("neither 32 raw bytes nor 64 hexadecimal digits")
            );
        }
        let good = write("good", &raw);
        let argument = |prefix: &str| {
            let mut text = OsString::from(prefix);
            text.push(&good);
            text
        };
        let keys = read_keys(&[argument(""), argument("a="), argument("/a/b/="), argument("=")]).unwrap();
        let paths: Vec<_> = keys.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a/b", "a", "", ""]);
        assert_eq!(read_keys(&["/no/such/file".into()]).unwrap_err().code, 1);
    }
}
