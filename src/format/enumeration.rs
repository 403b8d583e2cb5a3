//! Enumerations: the values that an attribute's integers stand for (format version 20 and later).

use super::datatype::{CellValNum, Datatype};
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};

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
    /// `UnsupportedVersion` for an enumeration version other than 0.
    pub fn parse(body: &[u8]) -> Result<Enumeration> {
        read::whole("enumeration", body, Self::parse_body)
    }

    fn parse_body(c: &mut Cursor<'_>) -> Result<Enumeration> {
        let version = c.u32("version")?;
        if version != 0 {
            let message = format!("version {version}; 0 is understood");
            return Err(Error::new(ErrorKind::UnsupportedVersion, message)
                .at(0)
                .in_part("`version`"));
        }
        let name = read::text32(c, "name")?;
        let file = read::text32(c, "file_name")?;
        let datatype = read::byte(c, "datatype", Datatype::from_u8)?;
        let cell_val_num = read::cell_val_num(c)?;
        let ordered = c.bool("ordered")?;
        let data = read::text64(c, "data")?;
        let offsets = match cell_val_num.cell_size(datatype) {
            None => read::offsets(c, data.len(), "offsets")?,
            Some(size) if data.len() as u64 % size != 0 => {
                let message = format!("{} bytes for values of {size}", data.len());
                return Err(c.corrupt("data", message));
            }
            Some(_) => Vec::new(),
        };
        Ok(Enumeration {
            name,
            file,
            datatype,
            cell_val_num,
            ordered,
            data,
            offsets,
        })
    }

    /// The bytes of each value in order.
    pub fn values(&self) -> Vec<&[u8]> {
        match self.cell_val_num.cell_size(self.datatype) {
            Some(size) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
                self.data.chunks_exact(size).collect()
            }
            None => {
                let ends = self.offsets.iter().skip(1).copied();
                self.offsets
                    .iter()
                    .zip(ends.chain([self.data.len() as u64]))
                    .map(|(&start, end)| {
                        // Checked when parsed; but the fields are public.
                        self.data.get(start as usize..end as usize).unwrap_or(&[])
                    })
                    .collect()
            }
        }
    }
}
