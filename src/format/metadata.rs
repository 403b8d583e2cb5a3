//! Array and group metadata: key-value pairs.

use super::datatype::Datatype;
use super::read;
use crate::cursor::Cursor;
use crate::error::Result;

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
