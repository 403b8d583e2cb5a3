//! The text files that say which fragments count: consolidated commits, ignore files and vacuum files.

use super::name::TimestampedName;
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// One entry of a consolidated commit file (`.con`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidatedEntry {
    /// The commit's path relative to the array, e.g. `__commits/__1_1_<uuid>_22.wrt`.
    pub path: Vec<u8>,
    /// For a delete or update: where the copy of its file lies in the `.con` file, as offset and length.
    pub payload: Option<(u64, u64)>,
}

/// Parses a `.con` file, in which lines alternate with binary copies of delete files.
///
/// Each line is a path whose last component is a timestamped name (`Corrupt` if not). One that ends in `.del` or `.upd` is
/// followed, without a line end behind it, by the length (u64) and bytes of that file. The last line may lack its line end.
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

/// The lines of an `.ign` or `.vac` file, without line ends, empty ones left out.
pub fn parse_lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// Reduces a path of a vacuum file (relative, with a leading slash, or an absolute URI of wherever the array once lay) to one relative to the array: from `__fragments` or `__meta` on, or else the last component.
pub fn normalise_path(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or(path);
    // From the back: the array itself may lie below a directory of such a name.
    let mut tail_start = path.len();
    let mut last = None;
    for component in path.rsplit(|&b| b == b'/') {
        tail_start = tail_start.saturating_sub(component.len());
        if matches!(component, b"__fragments" | b"__meta") {
            return path.get(tail_start..).unwrap_or(path).to_vec();
        }
        last.get_or_insert(component);
        tail_start = tail_start.saturating_sub(1);
    }
    last.unwrap_or(path).to_vec()
}

/// One footer in a consolidated fragment metadata file (`.meta`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidatedFooter {
    /// Fragment directory name, or below version 9 an absolute URI.
    pub name: Vec<u8>,
    /// Offset of its footer in the unfiltered body.
    pub offset: u64,
}

/// Parses the index of a `.meta` file's unfiltered body.
///
/// The footers follow the index back to back, in its order, so each one ends where the next begins; offsets have to ascend and lie behind the index.
/// The file only saves opening those of the fragments, which are always there too. Footers of versions 3 and 4 in it are not to be trusted:
/// current libraries write them with lists of the wrong length, which may parse as something else.
pub fn parse_consolidated_metadata(body: &[u8]) -> Result<Vec<ConsolidatedFooter>> {
    parse_index(&mut Cursor::new(body)).map_err(|e| e.in_part("consolidated fragment metadata"))
}

fn parse_index(c: &mut Cursor<'_>) -> Result<Vec<ConsolidatedFooter>> {
    let end = c.remaining() as u64;
    let count = c.u32("fragment_num")?;
    c.check_count(u64::from(count), 16, "fragment_num")?;
    let mut footers = Vec::new();
    for _ in 0..count {
        footers.push(ConsolidatedFooter {
            name: read::text64(c, "name")?,
            offset: c.u64("footer_offset")?,
        });
    }
    let mut least = c.offset();
    for (i, footer) in footers.iter().enumerate() {
        if footer.offset < least || footer.offset >= end {
            let message = format!(
                "footer {i} at byte {} of {end}, before {least} or behind the end",
                footer.offset
            );
            return Err(Error::corrupt(message).in_part("`footer_offset`"));
        }
        least = footer.offset + 1;
    }
    Ok(footers)
}
