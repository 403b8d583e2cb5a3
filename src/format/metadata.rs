//! Array and group metadata: key-value pairs.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/metadata.md>

use super::body::BodyCursor;
use super::datatype::Datatype;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use std::ops::Range;

/// The most bytes of a key.
const MAX_KEY: u64 = 1 << 20;

/// One record of a metadata file. Its value is not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataRecord {
    /// Arbitrary bytes, mostly UTF-8.
    pub key: Vec<u8>,
    /// Type and number of the value's elements, and its range in the body. None if the record deletes the
    /// key.
    pub value: Option<(Datatype, u32, Range<u64>)>,
}

/// Calls `visit` with each record of a metadata file in order; `body` is the unfiltered body.
pub fn each_record(body: &dyn Bytes, mut visit: impl FnMut(MetadataRecord) -> Result<()>) -> Result<()> {
    let mut c = BodyCursor::new(body);
    let mut number = 0u64;
    while !c.is_empty() {
        MetadataRecord::parse(&mut c)
            .and_then(&mut visit)
            .map_err(|e| e.in_part(format_args!("entry {number}")).in_part("metadata"))?;
        number += 1;
    }
    Ok(())
}

impl MetadataRecord {
    fn parse(c: &mut BodyCursor<'_>) -> Result<MetadataRecord> {
        let length = u64::from(c.u32("key")?);
        if length > MAX_KEY {
            return Err(Error::limit(format!(
                "a key of {length} bytes is more than the {MAX_KEY} allowed"
            ))
            .at(c.offset())
            .in_part("`key`"));
        }
        let key = c.bytes(length, "key")?.to_vec();
        if c.bool("deletion")? {
            return Ok(MetadataRecord { key, value: None });
        }
        let offset = c.offset();
        let datatype =
            Datatype::from_u8(c.u8("value_type")?).map_err(|e| e.at(offset).in_part("`value_type`"))?;
        let value_num = c.u32("value_num")?;
        let size = u64::from(value_num) * datatype.size() as u64;
        let value = Some((datatype, value_num, c.skip(size, "value")?));
        Ok(MetadataRecord { key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::{Bytes, check_damage};

    type Value = Option<(Datatype, u32, Vec<u8>)>;

    /// The records in order, with the bytes of their values.
    fn parse(body: &[u8]) -> Result<Vec<(Vec<u8>, Value)>> {
        let mut records = Vec::new();
        each_record(&body, |record| {
            let value = record.value.map(|(datatype, value_num, range)| {
                (
                    datatype,
                    value_num,
                    body[range.start as usize..range.end as usize].to_vec(),
                )
            });
            records.push((record.key, value));
            Ok(())
        })?;
        Ok(records)
    }

    #[test]
    fn values_empty_values_and_deletions() {
        let records = [
            Bytes::default()
                .text32("k")
                .u8(0)
                .u8(7)
                .count32(2)
                .raw(&[1, 0, 2, 0]),
            Bytes::default().text32("\u{0}").u8(0).u8(12).count32(0),
            Bytes::default().text32("gone").u8(1),
        ];
        let mut ends = vec![0];
        let mut all = Bytes::default();
        for record in &records {
            check_damage(record, parse);
            all = all.raw(&record.bytes);
            ends.push(all.bytes.len());
        }
        let entries = parse(&all.bytes).unwrap();
        let expected = [
            (&b"k"[..], Some((Datatype::Int16, 2, vec![1, 0, 2, 0]))),
            (b"\0", Some((Datatype::StringUtf8, 0, vec![]))),
            (b"gone", None),
        ];
        assert_eq!(entries, expected.map(|(key, value)| (key.to_vec(), value)));
        for n in 0..all.bytes.len() {
            let whole = ends.iter().position(|&end| end == n);
            assert_eq!(
                parse(&all.bytes[..n]).ok().map(|e| e.len()),
                whole,
                "the first {n} bytes"
            );
        }
    }

    #[test]
    fn errors_name_the_entry() {
        let good = Bytes::default().text32("a").u8(1);
        let bad = Bytes::default().raw(&good.bytes).text32("b").u8(0).u8(99).u32(0);
        let error = parse(&bad.bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "metadata, entry 1, `value_type` at byte 12: 99 is not a datatype"
        );
    }
}
