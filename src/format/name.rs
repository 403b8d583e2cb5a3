//! Timestamped names of fragments, schemas, commits and metadata files, and the file names of fields.

use crate::error::{Error, Result};

/// A parsed name of a fragment, commit or other timestamped file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimestampedName {
    /// Start and end in milliseconds since the Unix epoch, inclusive; start <= end.
    pub timestamps: (u64, u64),
    /// The part of 32 hexadecimal digits.
    pub uuid: String,
    /// The version at the end of the name, where the grammar has one.
    pub version: Option<u32>,
    /// The version that the grammar implies for locating things: the stated one, 4 for `__t1_t2_uuid`, 2 for `__uuid_t` and `__uuid_t1_t2`.
    pub name_version: u32,
}

impl TimestampedName {
    /// Parses the last component of a path, its extension removed (the part after its last `.`). `Corrupt` when it follows none of the grammars.
    ///
    /// `__t1_t2_uuid_v`, `__t1_t2_uuid`, `__uuid_t` and `__uuid_t1_t2` are the grammars. Numbers are decimal without sign and need not be
    /// padded; a version may be any number, and it is for the caller to refuse those that it does not know. In the last one, the name
    /// of a consolidated fragment of version 2, only `t2` counts, as both start and end.
    pub fn parse(name: &[u8]) -> Result<TimestampedName> {
        Self::split(name).ok_or_else(|| {
            Error::corrupt(format!(
                "{:?} is not a timestamped name",
                String::from_utf8_lossy(name)
            ))
        })
    }

    fn split(name: &[u8]) -> Option<TimestampedName> {
        let name = std::str::from_utf8(name).ok()?;
        let name = name.rsplit('/').next()?;
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let parts: Vec<&str> = stem.strip_prefix("__")?.split('_').collect();
        let (timestamps, uuid, version, name_version) = match parts[..] {
            [start, end, uuid, version] => {
                let version = u32::try_from(number(version)?).ok()?;
                ((number(start)?, number(end)?), uuid, Some(version), version)
            }
            [start, end, uuid] if uuid.len() == 32 => ((number(start)?, number(end)?), uuid, None, 4),
            [uuid, start, end] => {
                number(start)?;
                let end = number(end)?;
                ((end, end), uuid, None, 2)
            }
            [uuid, time] => {
                let time = number(time)?;
                ((time, time), uuid, None, 2)
            }
            _ => return None,
        };
        let is_uuid = uuid.len() == 32 && uuid.bytes().all(|b| b.is_ascii_hexdigit());
        (is_uuid && timestamps.0 <= timestamps.1).then(|| TimestampedName {
            timestamps,
            uuid: uuid.to_string(),
            version,
            name_version,
        })
    }
}

/// A decimal number without sign.
fn number(digits: &str) -> Option<u64> {
    match digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse().ok(),
        false => None,
    }
}

/// What a file of a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Values of a fixed-size field, or offsets of a var-sized one.
    Fixed,
    /// Values of a var-sized field.
    Var,
    /// Validity bytes.
    Validity,
}

/// The base name and suffix of a field's file in a fragment whose *name* says `version`: below 8 the raw name, in 8 its encoding, from 9 `index_name`
/// (`a0`, `d1`). Internal fields pass their fixed base (`__coords`, `t`, `dt`, `dci`) as both. The result may hold any byte: callers check for path separators.
pub fn field_file(version: u32, name: &[u8], index_name: &str, part: Part) -> Vec<u8> {
    let mut file = match version {
        0..=7 => name.to_vec(),
        8 => encode_version_8(name),
        _ => index_name.as_bytes().to_vec(),
    };
    file.extend_from_slice(match part {
        Part::Fixed => b".tdb",
        Part::Var => b"_var.tdb",
        Part::Validity => b"_validity.tdb",
    });
    file
}

/// Replaces the bytes that version 8 keeps out of file names by a percent sign and two digits.
fn encode_version_8(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &b in name {
        let code = match b {
            b'!'..=b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' => b,
            // These four are not their own codes, but they are what TileDB wrote.
            b'<' => 0x20,
            b'>' => 0x2D,
            b'\\' => 0x30,
            b'|' => 0x3C,
            _ => {
                out.push(b);
                continue;
            }
        };
        out.extend_from_slice(format!("%{code:02X}").as_bytes());
    }
    out
}
