//! Timestamped names of fragments, schemas, commits and metadata files, and the file names of fields.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/timestamped_name.md>

use crate::error::{Error, Result};

/// A parsed name of a fragment, commit or other timestamped file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimestampedName {
    /// Start and end in milliseconds since the Unix epoch, inclusive; start <= end.
    pub timestamps: (u64, u64),
    /// The 32 hexadecimal digits, in ASCII.
    pub uuid: [u8; 32],
    /// The version at the end of the name, if it has one.
    pub version: Option<u32>,
    /// The version that decides where files are: the one in the name, else 4 for `__t1_t2_uuid`, 2 for
    /// `__uuid_t` and `__uuid_t1_t2`.
    pub name_version: u32,
}

impl TimestampedName {
    /// Parses the last component of a path, without its extension (the part after the last `.`).
    ///
    /// The forms are `__t1_t2_uuid_v`, `__t1_t2_uuid`, `__uuid_t` and `__uuid_t1_t2`. Numbers are decimal
    /// without sign, padded or not. The version may be any number; callers refuse unknown ones. In the last
    /// form, the name of a consolidated fragment of version 2, `t2` counts as both start and end.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it has none of these forms.
    pub fn parse(name: &[u8]) -> Result<TimestampedName> {
        Self::split(name).ok_or_else(|| {
            Error::corrupt(format!(
                "{:?} is not a timestamped name (`__START_END_UUID…`)",
                String::from_utf8_lossy(name)
            ))
        })
    }

    fn split(name: &[u8]) -> Option<TimestampedName> {
        let name = std::str::from_utf8(name).ok()?;
        let name = name.rsplit('/').next()?;
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let mut parts = stem.strip_prefix("__")?.split('_');
        let parts = [(); 5].map(|()| parts.next());
        let (timestamps, uuid, version, name_version) = match parts {
            [Some(start), Some(end), Some(uuid), Some(version), None] => {
                let version = u32::try_from(number(version)?).ok()?;
                ((number(start)?, number(end)?), uuid, Some(version), version)
            }
            [Some(start), Some(end), Some(uuid), None, None] if uuid.len() == 32 => {
                ((number(start)?, number(end)?), uuid, None, 4)
            }
            [Some(uuid), Some(start), Some(end), None, None] => {
                number(start)?;
                let end = number(end)?;
                ((end, end), uuid, None, 2)
            }
            [Some(uuid), Some(time), None, None, None] => {
                let time = number(time)?;
                ((time, time), uuid, None, 2)
            }
            _ => return None,
        };
        let uuid: [u8; 32] = uuid.as_bytes().try_into().ok()?;
        let is_uuid = uuid.iter().all(u8::is_ascii_hexdigit);
        (is_uuid && timestamps.0 <= timestamps.1).then_some(TimestampedName {
            timestamps,
            uuid,
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

/// The content of a field's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Values of a fixed-size field, or offsets of a var-sized one.
    Fixed,
    /// Values of a var-sized field.
    Var,
    /// Validity bytes.
    Validity,
}

/// The name of a field's file in a fragment whose *name* has `version`: made of the raw name below 8, of its
/// encoding in 8, of `index_name` (`a0`, `d1`) from 9 on. For internal fields, both are the fixed name
/// (`__coords`, `t`, `dt`, `dci`). The result may have any byte: callers check for path separators.
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

/// Replaces the bytes that version 8 does not allow in file names by a percent sign and two digits.
fn encode_version_8(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &b in name {
        let code = match b {
            b'!'..=b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' => b,
            // These four are not the bytes' own codes, but TileDB wrote them.
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

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0123456789abcdef0123456789abcdef";

    fn parse(text: &str) -> Option<((u64, u64), Option<u32>, u32)> {
        let name = TimestampedName::parse(text.replace('U', UUID).as_bytes()).ok()?;
        assert_eq!(name.uuid, UUID.as_bytes());
        Some((name.timestamps, name.version, name.name_version))
    }

    #[test]
    fn the_grammars() {
        assert_eq!(parse("__1_20_U_22"), Some(((1, 20), Some(22), 22)));
        assert_eq!(parse("__1_1_U"), Some(((1, 1), None, 4)));
        assert_eq!(parse("__U_7"), Some(((7, 7), None, 2)));
        assert_eq!(
            parse("__U_9_7"),
            Some(((7, 7), None, 2)),
            "the first is when it was consolidated"
        );
        assert_eq!(
            parse("__0_18446744073709551615_U_5"),
            Some(((0, u64::MAX), Some(5), 5))
        );
        assert_eq!(
            parse("__1_2_U_4294967295").unwrap().2,
            u32::MAX,
            "the caller refuses it"
        );
    }

    #[test]
    fn paths_and_extensions_do_not_matter() {
        let expected = parse("__1_20_U_22");
        for name in [
            "__1_20_U_22.wrt",
            "__commits/__1_20_U_22.del",
            "file:///a.b/__fragments/__1_20_U_22",
        ] {
            assert_eq!(parse(name), expected);
        }
        assert_eq!(parse("__1_2_U.ok"), parse("__1_2_U"));
    }

    #[test]
    fn everything_else_is_refused() {
        let refused = [
            "",
            "__",
            ".",
            "__array_schema.tdb",
            "__fragment_metadata.tdb",
            "__lock.tdb",
            "U_7",
            "_U_7",
            "__U",
            "__U_",
            "__U_x",
            "__U_-1",
            "__U_+1",
            "__2_1_U",
            "__2_1_U_5",
            "__1_2_U_",
            "__1_2_U_x",
            "__1_2_U_4294967296",
            "__18446744073709551616_18446744073709551616_U",
            "__1_2_3_U_5",
            "__1__U_5",
            "__1_2_Ua_5",
            "__1_2_Ux",
            "__1_2_zzzz456789abcdef0123456789abcdef_5",
            "__x_7",
            "__1_2_U/",
            "__٣_3_U_5",
        ];
        for name in refused {
            assert_eq!(parse(name), None, "{name}");
        }
        assert!(TimestampedName::parse(b"\xFF\xFE").is_err());
        let error = TimestampedName::parse(b"data").unwrap_err();
        assert!(error.to_string().contains("\"data\""), "{error}");
    }

    #[test]
    fn files_of_fields() {
        let file = |version, name: &str, part| {
            String::from_utf8(field_file(version, name.as_bytes(), "a3", part)).unwrap()
        };
        assert_eq!(file(7, "s:1", Part::Fixed), "s:1.tdb");
        assert_eq!(file(8, "s:1", Part::Var), "s%3A1_var.tdb");
        assert_eq!(file(9, "s:1", Part::Var), "a3_var.tdb");
        assert_eq!(file(22, "", Part::Validity), "a3_validity.tdb");
        assert_eq!(file(5, "", Part::Fixed), ".tdb");
        for version in [2, 8] {
            assert_eq!(
                field_file(version, b"__coords", "__coords", Part::Fixed),
                b"__coords.tdb"
            );
        }
    }

    #[test]
    fn version_8_replaces_reserved_bytes() {
        let encoded = encode_version_8("!\"#$%&'()*+,/:;<=>?@[\\]|".as_bytes());
        let expected = "%21%22%23%24%25%26%27%28%29%2A%2B%2C%2F%3A%3B%20%3D%2D%3F%40%5B%30%5D%3C";
        assert_eq!(String::from_utf8(encoded).unwrap(), expected);
        let kept = "a Z.9-_^`{}~ü";
        assert_eq!(encode_version_8(kept.as_bytes()), kept.as_bytes());
    }
}
