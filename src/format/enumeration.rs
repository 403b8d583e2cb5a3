//! Enumerations: the values that an attribute's integers stand for (format version 20 and later).

use super::datatype::{CellValNum, Datatype};
use crate::error::Result;

/// An enumeration.
#[derive(Debug, Clone, PartialEq)]
pub struct Enumeration {
    /// The name by which attributes refer to it.
    pub name: Vec<u8>,
    /// The name of its file, as stored inside it.
    pub file: Vec<u8>,
    /// Type of a value's elements.
    pub datatype: Datatype,
    /// Elements a value.
    pub cell_val_num: CellValNum,
    /// Whether the order of the values means anything.
    pub ordered: bool,
    /// All values one after the other.
    pub data: Vec<u8>,
    /// Var-sized: the start of each value in `data`. Empty otherwise.
    pub offsets: Vec<u64>,
}

impl Enumeration {
    /// Parses the unfiltered body of a file in `__schema/__enumerations/`. Offsets are checked to be non-decreasing and inside the data.
    pub fn parse(body: &[u8]) -> Result<Enumeration> {
        let _ = body;
        unimplemented!("format helper")
    }

    /// The bytes of each value in order.
    pub fn values(&self) -> Vec<&[u8]> {
        unimplemented!("format helper")
    }
}
