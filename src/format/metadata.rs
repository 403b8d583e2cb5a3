//! Array and group metadata: key-value pairs.

use super::body::{Body, BodyCursor};
use super::datatype::Datatype;
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use std::ops::Range;

/// One record of a metadata file.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataEntry {
    /// Arbitrary bytes, mostly UTF-8.
    pub key: Vec<u8>,
    /// None where the record deletes the key.
    pub value: Option<MetadataValue>,
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataValue {
    /// Type of its elements.
    pub datatype: Datatype,
    /// Number of elements; 0 for an empty value.
    pub value_num: u32,
    /// `value_num` elements, little-endian.
    pub value: Vec<u8>,
}

/// The most bytes of a key that [`each_record`] takes.
const MAX_KEY: u64 = 1 << 20;

/// One record of a metadata file, whose value is not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataRecord {
    /// Arbitrary bytes, mostly UTF-8.
    pub key: Vec<u8>,
    /// Type and number of the value's elements, and its place in the body. None if the record deletes the
    /// key.
    pub value: Option<(Datatype, u32, Range<u64>)>,
}

/// Calls `visit` with each record of a metadata file, whose unfiltered body is `body`, in order.
pub fn each_record(body: &dyn Body, mut visit: impl FnMut(MetadataRecord) -> Result<()>) -> Result<()> {
    let mut c = BodyCursor::new(body).map_err(|e| e.in_part("metadata"))?;
    let mut number = 0u64;
    while !c.is_empty() {
        MetadataRecord::parse(&mut c)
            .and_then(&mut visit)
            .map_err(|e| e.in_part(format_args!("entry {number}")).in_part("metadata"))?;
        number = number.saturating_add(1);
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
        let size = u64::from(value_num).saturating_mul(datatype.size() as u64);
        let value = Some((datatype, value_num, c.skip(size, "value")?));
        Ok(MetadataRecord { key, value })
    }
}

/// Parses the unfiltered body of a metadata file into its records, in order.
pub fn parse_metadata(body: &[u8]) -> Result<Vec<MetadataEntry>> {
    read::whole("metadata", body, |c| {
        let mut entries = Vec::new();
        while !c.is_empty() {
            let entry =
                MetadataEntry::parse(c).map_err(|e| e.in_part(format_args!("entry {}", entries.len())))?;
            entries.push(entry);
        }
        Ok(entries)
    })
}

impl MetadataEntry {
    fn parse(c: &mut Cursor<'_>) -> Result<MetadataEntry> {
        let key = read::text32(c, "key")?;
        if c.bool("deletion")? {
            return Ok(MetadataEntry { key, value: None });
        }
        let datatype = read::byte(c, "value_type", Datatype::from_u8)?;
        let value_num = c.u32("value_num")?;
        let size = u64::from(value_num) * datatype.size() as u64;
        let value = c.bytes(size, "value")?.to_vec();
        Ok(MetadataEntry {
            key,
            value: Some(MetadataValue {
                datatype,
                value_num,
                value,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::{Bytes, check_damage};

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
            check_damage(record, parse_metadata);
            all = all.raw(&record.bytes);
            ends.push(all.bytes.len());
        }
        let entries = parse_metadata(&all.bytes).unwrap();
        let value = |i: usize| entries[i].value.as_ref();
        let numbers = MetadataValue {
            datatype: Datatype::Int16,
            value_num: 2,
            value: vec![1, 0, 2, 0],
        };
        assert_eq!((&entries[0].key[..], value(0)), (&b"k"[..], Some(&numbers)));
        let empty = value(1).unwrap();
        assert_eq!(
            (empty.datatype, empty.value_num, &empty.value[..]),
            (Datatype::StringUtf8, 0, &b""[..])
        );
        assert_eq!((&entries[2].key[..], value(2)), (&b"gone"[..], None));
        assert_eq!(entries.len(), 3);
        for n in 0..all.bytes.len() {
            let whole = ends.iter().position(|&end| end == n);
            assert_eq!(
                parse_metadata(&all.bytes[..n]).ok().map(|e| e.len()),
                whole,
                "the first {n} bytes"
            );
        }
    }

    #[test]
    fn errors_name_the_entry() {
        let good = Bytes::default().text32("a").u8(1);
        let bad = Bytes::default().raw(&good.bytes).text32("b").u8(0).u8(99).u32(0);
        let error = parse_metadata(&bad.bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "metadata, entry 1, `value_type` at byte 12: 99 is not a datatype"
        );
    }
}
