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
