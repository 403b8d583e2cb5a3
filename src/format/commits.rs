//! The text files that decide which fragments count: consolidated commits, ignore files and vacuum files.
//!
//! Specification:
//! <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/consolidated_commits_file.md>,
//! <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/ignore_file.md>,
//! <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/vacuum_file.md>

use super::body::BodyCursor;
use super::name::TimestampedName;
use super::read;
use crate::bytes::Bytes;
use crate::error::{Error, Result};

/// One entry of a consolidated commit file (`.con`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidatedEntry {
    /// The commit's path relative to the array, e.g. `__commits/__1_1_<uuid>_22.wrt`.
    pub path: Vec<u8>,
    /// For a delete or update: offset and length of its copy in the `.con` file.
    pub payload: Option<(u64, u64)>,
}

/// Parses a `.con` file, in which lines alternate with binary copies of delete files.
///
/// Each line is a path whose last component is a timestamped name (`Corrupt` if not). After a line that ends
/// in `.del` or `.upd` come the length (u64) and the bytes of that file, without a line feed after them. The
/// last line may lack its line feed.
pub fn parse_consolidated(bytes: &[u8]) -> Result<Vec<ConsolidatedEntry>> {
    read::whole("consolidated commits", bytes, |c| {
        let mut entries = Vec::new();
        while !c.is_empty() {
            let offset = c.offset();
            let rest = c.rest();
            let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            let path = c.bytes(length as u64, "path")?;
            if !c.is_empty() {
                c.u8("line_end")?;
            }
            TimestampedName::parse(path).map_err(|e| e.at(offset).in_part("`path`"))?;
            let payload = match path.ends_with(b".del") || path.ends_with(b".upd") {
                true => {
                    let length = c.u64("payload_size")?;
                    let start = c.offset();
                    c.bytes(length, "payload")?;
                    Some((start, length))
                }
                false => None,
            };
            entries.push(ConsolidatedEntry {
                path: path.to_vec(),
                payload,
            });
        }
        Ok(entries)
    })
}

/// The non-empty lines of an `.ign` or `.vac` file, without line feeds.
pub fn parse_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty())
}

/// The last components of the paths in an `.ign` or `.vac` file, without those that can be no file's name:
/// each short line would take more memory than its bytes.
pub fn listed_names(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let names = parse_lines(bytes).map(last_component);
    names
        .filter(|name| TimestampedName::parse(name).is_ok())
        .map(<[u8]>::to_vec)
}

/// The part after the last slash of a stored path; all of it if there is none.
pub fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// Makes a path of a vacuum file relative to the array: from `__fragments` or `__meta` on, or else the last
/// component. The stored path may be relative, have a leading slash, or be an absolute URI of a former
/// location of the array.
pub fn normalise_path(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let components: Vec<&[u8]> = path[..end].split(|&b| b == b'/').collect();
    // The last such name, because the array itself may be below a directory of such a name.
    let known = |component: &&[u8]| matches!(*component, b"__fragments" | b"__meta");
    let first = components.iter().rposition(known);
    components[first.unwrap_or(components.len() - 1)..].join(&b'/')
}

/// One footer in a consolidated fragment metadata file (`.meta`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidatedFooter {
    /// Fragment directory name; below version 9 an absolute URI.
    pub name: Vec<u8>,
    /// Offset of the footer in the unfiltered body.
    pub offset: u64,
}

/// Parses the index of a `.meta` file's unfiltered body.
///
/// The footers follow the index without gaps, in its order, so each one ends where the next begins; offsets
/// must ascend and be after the index. The file is only a shortcut: the fragments' own footers always exist.
/// Do not trust its footers of versions 3 and 4: current libraries write them with lists of the wrong length,
/// which may parse as something else.
pub fn parse_consolidated_metadata(body: &dyn Bytes) -> Result<Vec<ConsolidatedFooter>> {
    parse_index(&mut BodyCursor::new(body)).map_err(|e| e.in_part("consolidated fragment metadata"))
}

/// The most memory for the names in an index, in bytes.
const MAX_INDEX: u64 = 32 << 20;

fn parse_index(c: &mut BodyCursor<'_>) -> Result<Vec<ConsolidatedFooter>> {
    let end = c.remaining();
    let count = c.u32("fragment_num")?;
    c.check_count(u64::from(count), 16, "fragment_num")?;
    let mut footers = Vec::new();
    let mut memory = 0u64;
    for _ in 0..count {
        let length = c.u64("name")?;
        memory = memory
            .saturating_add(length)
            .saturating_add(size_of::<ConsolidatedFooter>() as u64);
        if memory > MAX_INDEX && length <= c.remaining() {
            return Err(Error::limit(format!(
                "the names of {count} fragments take more than the {MAX_INDEX} bytes allowed"
            ))
            .at(c.offset())
            .in_part("`name`"));
        }
        footers.push(ConsolidatedFooter {
            name: c.bytes(length, "name")?.to_vec(),
            offset: c.u64("footer_offset")?,
        });
    }
    let mut least = c.offset();
    for (i, footer) in footers.iter().enumerate() {
        if footer.offset < least || footer.offset >= end {
            let message = format!(
                "footer {i} is at byte {}, outside of bytes {least} to {end}",
                footer.offset
            );
            return Err(Error::corrupt(message).at(0).in_part("`footer_offset`"));
        }
        least = footer.offset + 1;
    }
    Ok(footers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::testing::{Bytes, check_damage};

    const WRT: &str = "__commits/__1_1_0123456789abcdef0123456789abcdef_22.wrt";
    const DEL: &str = "__commits/__2_2_0123456789abcdef0123456789abcdef_22.del";
    const OK: &str = "__3_3_0123456789abcdef0123456789abcdef_5.ok";

    #[test]
    fn binary_payloads_stand_between_the_lines() {
        let payload = b"\n\0__\n\xFF.del\n";
        let bytes = Bytes::default()
            .raw(format!("{WRT}\n{DEL}\n").as_bytes())
            .count64(payload.len())
            .raw(payload)
            .raw(format!("{OK}\n").as_bytes());
        check_damage(&bytes, parse_consolidated);
        let entries = parse_consolidated(&bytes.bytes).unwrap();
        let paths: Vec<&[u8]> = entries.iter().map(|e| &e.path[..]).collect();
        assert_eq!(paths, [WRT.as_bytes(), DEL.as_bytes(), OK.as_bytes()]);
        assert_eq!((entries[0].payload, entries[2].payload), (None, None));
        let (offset, length) = entries[1].payload.unwrap();
        let found = &bytes.bytes[offset as usize..][..length as usize];
        assert_eq!(found, payload);

        let without_end = &bytes.bytes[..bytes.bytes.len() - 1];
        assert_eq!(parse_consolidated(without_end).unwrap(), entries);
        let in_payload = offset as usize + payload.len() - 1;
        assert_eq!(
            parse_consolidated(&bytes.bytes[..in_payload]).unwrap_err().kind(),
            ErrorKind::Truncated
        );
        assert_eq!(parse_consolidated(b"").unwrap(), []);
    }

    #[test]
    fn updates_have_payloads_too() {
        let bytes = Bytes::default()
            .raw(DEL.replace(".del", ".upd").as_bytes())
            .raw(b"\n")
            .u64(2)
            .raw(b"xy")
            .raw(WRT.as_bytes());
        let entries = parse_consolidated(&bytes.bytes).unwrap();
        assert_eq!(entries[0].payload, Some((DEL.len() as u64 + 9, 2)));
        assert_eq!(entries[1].path, WRT.as_bytes());
    }

    #[test]
    fn lines_that_are_no_commits_are_refused() {
        let text = format!("{WRT}\nhello\n");
        let error = parse_consolidated(text.as_bytes()).unwrap_err();
        let at = WRT.len() + 1;
        assert!(
            error
                .to_string()
                .starts_with(&format!("consolidated commits, `path` at byte {at}: ")),
            "{error}"
        );
        assert!(parse_consolidated(format!("{WRT}\n\n{OK}").as_bytes()).is_err());
    }

    #[test]
    fn lines_without_their_ends() {
        assert!(parse_lines(b"a\nb c\n\nd").eq([&b"a"[..], b"b c", b"d"]));
        assert_eq!(parse_lines(b"\n\n").count(), 0);
    }

    #[test]
    fn only_timestamped_names_are_listed() {
        let text = format!("a\nfile:///b/{OK}\n__commits/\n{DEL}\n");
        let expected = [OK, &DEL["__commits/".len()..]].map(|name| name.as_bytes().to_vec());
        assert!(listed_names(text.as_bytes()).eq(expected));
    }

    #[test]
    fn paths_of_vacuum_files() {
        let cases = [
            ("/__fragments/__1_1_u_22", "__fragments/__1_1_u_22"),
            ("__fragments/__1_1_u_22", "__fragments/__1_1_u_22"),
            ("/__meta/__1_1_u", "__meta/__1_1_u"),
            ("file:///tmp/a/__1_1_u_11", "__1_1_u_11"),
            ("file:///tmp/a/__1_1_u_11/", "__1_1_u_11"),
            ("s3://b/a/__fragments/__1_1_u_12/", "__fragments/__1_1_u_12"),
            (
                "file:///__fragments/x/__fragments/__1_1_u_12",
                "__fragments/__1_1_u_12",
            ),
            ("file:///a/my__meta/__1_1_u_11", "__1_1_u_11"),
            ("/__1_1_u_22", "__1_1_u_22"),
            ("__1_1_u", "__1_1_u"),
            ("", ""),
            ("///", ""),
        ];
        for (path, expected) in cases {
            assert_eq!(
                String::from_utf8(normalise_path(path.as_bytes())).unwrap(),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn the_index_of_consolidated_metadata() {
        let index = |offsets: [u64; 2]| {
            Bytes::default()
                .count32(2)
                .text64("__a")
                .u64(offsets[0])
                .text64("file:///x/__b")
                .u64(offsets[1])
                .raw(&[0; 20])
        };
        let bytes = index([52, 60]);
        check_damage(&bytes, |bytes| parse_consolidated_metadata(&bytes));
        let footers = parse_consolidated_metadata(&bytes.bytes).unwrap();
        let expected = [(&b"__a"[..], 52), (&b"file:///x/__b"[..], 60)];
        assert_eq!(
            footers
                .iter()
                .map(|f| (&f.name[..], f.offset))
                .collect::<Vec<_>>(),
            expected
        );
        for offsets in [[51, 60], [52, 52], [60, 52], [52, 72], [52, u64::MAX]] {
            let error = parse_consolidated_metadata(&index(offsets).bytes).unwrap_err();
            assert_eq!(
                error.part(),
                Some("consolidated fragment metadata, `footer_offset`"),
                "{offsets:?}"
            );
        }
        for n in 0..52 {
            assert!(parse_consolidated_metadata(&&bytes.bytes[..n]).is_err());
        }
        assert_eq!(parse_consolidated_metadata(&vec![0; 4]).unwrap(), []);
    }
}
