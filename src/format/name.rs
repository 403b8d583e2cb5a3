//! Timestamped names of fragments, schemas, commits and metadata files, and the file names of fields.

use crate::error::Result;

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
    pub fn parse(name: &[u8]) -> Result<TimestampedName> {
        let _ = name;
        unimplemented!("format helper")
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
    let _ = (version, name, index_name, part);
    unimplemented!("format helper")
}
