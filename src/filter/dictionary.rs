//! DICTIONARY_ENCODING: each string as its index in a list of the distinct ones, with embedded offsets (see
//! [`embedded`](super::embedded) for the metadata).
//!
//! | dictionary, in the metadata | type |
//! |---|---|
//! | repeated: string length, string | big-endian of the stored width, bytes |
//!
//! | data | type |
//! |---|---|
//! | repeated: index in the dictionary, from 0 | big-endian of the stored width |
//!
//! Example: the dictionary `02 61 61 | 01 62 | 00` and the indexes `00 00 01 02`, with widths of 1, are `aa`,
//! `aa`, `b` and an empty string.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/filters/dictionary_encoding.md>

use super::embedded::{Header, number, reserve};
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// Undoes the filter on `input` into the empty `out` and `offsets`; `metadata` begins with the dictionary's
/// length.
pub(super) fn undo(
    header: &Header,
    metadata: &mut Cursor<'_>,
    input: &[u8],
    out: &mut Vec<u8>,
    offsets: &mut Vec<u64>,
) -> Result<()> {
    let length = metadata.u32("bytes of the dictionary")?;
    let dictionary = metadata.bytes(length.into(), "dictionary")?;
    let strings = entries(header, dictionary)?;
    if header.strings.checked_mul(header.number_width) != Some(input.len()) {
        return Err(Error::corrupt(format!(
            "{} bytes of ids, {} bytes each, do not match {} strings",
            input.len(),
            header.number_width,
            header.strings
        )));
    }
    match header.number_width {
        1 => expand(header, &strings, ids(input, u8::from_be_bytes), out, offsets),
        2 => expand(header, &strings, ids(input, u16::from_be_bytes), out, offsets),
        4 => expand(header, &strings, ids(input, u32::from_be_bytes), out, offsets),
        _ => expand(header, &strings, ids(input, u64::from_be_bytes), out, offsets),
    }
}

fn ids<const N: usize, T: Into<u64>>(
    input: &[u8],
    from_bytes: impl Fn([u8; N]) -> T + Clone,
) -> impl Iterator<Item = u64> + Clone {
    input
        .as_chunks::<N>()
        .0
        .iter()
        .map(move |id| from_bytes(*id).into())
}

/// The strings of the dictionary. Each is that of a cell: a list of more would take many times its bytes if
/// they are empty.
fn entries<'a>(header: &Header, dictionary: &'a [u8]) -> Result<Vec<&'a [u8]>> {
    let mut c = Cursor::new(dictionary);
    let mut strings = Vec::new();
    while !c.is_empty() {
        let length = number(&mut c, header.length_width, "string length")?;
        if strings.len() == header.strings {
            let cells = header.strings;
            return Err(Error::corrupt(format!(
                "the dictionary has more strings than the {cells} encoded"
            )));
        }
        strings.push(c.bytes(length, "string")?);
    }
    Ok(strings)
}

fn expand(
    header: &Header,
    strings: &[&[u8]],
    ids: impl Iterator<Item = u64> + Clone,
    out: &mut Vec<u8>,
    offsets: &mut Vec<u64>,
) -> Result<()> {
    let find = |id: u64| usize::try_from(id).ok().and_then(|id| strings.get(id));
    let mut bytes = 0u64;
    for id in ids.clone() {
        let string = find(id).ok_or_else(|| {
            Error::corrupt(format!(
                "string id {id} is not in the dictionary, which has {} strings",
                strings.len()
            ))
        })?;
        // Cannot reach 2^64: at most 2^32 ids of strings shorter than 2^32.
        bytes += string.len() as u64;
    }
    if bytes != header.bytes as u64 {
        return Err(Error::corrupt(format!(
            "the strings take {bytes} bytes, but {} are declared",
            header.bytes
        )));
    }
    reserve(header, out, offsets)?;
    for id in ids {
        offsets.push(out.len() as u64);
        out.extend_from_slice(strings[id as usize]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn run(
        strings: usize,
        bytes: usize,
        widths: (usize, usize),
        dictionary: &[u8],
        input: &[u8],
    ) -> Result<(Vec<u8>, Vec<u64>)> {
        let header = Header {
            bytes,
            strings,
            number_width: widths.0,
            length_width: widths.1,
        };
        let metadata = [&(dictionary.len() as u32).to_le_bytes(), dictionary].concat();
        let (mut out, mut offsets) = (vec![], vec![]);
        undo(
            &header,
            &mut Cursor::new(&metadata),
            input,
            &mut out,
            &mut offsets,
        )?;
        Ok((out, offsets))
    }

    #[test]
    fn the_example() {
        assert_eq!(
            run(4, 5, (1, 1), b"\x02aa\x01b\x00", &[0, 0, 1, 2]).unwrap(),
            (b"aaaab".to_vec(), vec![0, 2, 4, 5])
        );
        assert_eq!(run(0, 0, (1, 1), b"", &[]).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn wide_numbers_are_big_endian() {
        for width in [2usize, 4, 8] {
            let ids: Vec<u8> = [1u64, 0]
                .iter()
                .flat_map(|id| id.to_be_bytes()[8 - width..].to_vec())
                .collect();
            let dictionary: Vec<u8> = [b"xy", b"zw"]
                .iter()
                .flat_map(|s| [&2u64.to_be_bytes()[8 - width..], &s[..]].concat())
                .collect();
            assert_eq!(
                run(2, 4, (width, width), &dictionary, &ids).unwrap(),
                (b"zwxy".to_vec(), vec![0, 2])
            );
        }
    }

    #[test]
    fn hostile_input_fails() {
        let dictionary = b"\x02aa\x01b\x00";
        let kind = |strings, bytes, dictionary: &[u8], ids: &[u8]| {
            run(strings, bytes, (1, 1), dictionary, ids).unwrap_err().kind()
        };
        assert_eq!(kind(1, 2, dictionary, &[3]), ErrorKind::Corrupt, "no such string");
        assert_eq!(kind(1, 2, b"", &[0]), ErrorKind::Corrupt);
        assert_eq!(kind(2, 2, dictionary, &[0]), ErrorKind::Corrupt, "too few ids");
        assert_eq!(kind(1, 3, dictionary, &[0]), ErrorKind::Corrupt, "too few bytes");
        assert_eq!(kind(2, 3, dictionary, &[0, 0]), ErrorKind::Corrupt, "too many");
        assert_eq!(kind(1, 2, b"\x03aa", &[0]), ErrorKind::Truncated);
        let error = run(2, 0, (1, 1), &[0; 3], &[0, 0]).unwrap_err();
        assert!(error.to_string().contains("more strings than the 2"), "{error}");
        let header = Header {
            bytes: 0,
            strings: 0,
            number_width: 1,
            length_width: 1,
        };
        let mut metadata = Cursor::new(&[9, 0, 0, 0, 1]);
        let error = undo(&header, &mut metadata, &[], &mut vec![], &mut vec![]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
    }
}
