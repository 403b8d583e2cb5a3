//! Array and group metadata: key-value pairs.

use super::datatype::Datatype;
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
    let _ = body;
    unimplemented!("format helper")
}
