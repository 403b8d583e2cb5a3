//! Enumerations: lists of values that integers of attributes index (format version 20 and later).
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/enumeration.md>

use super::datatype::{CellValNum, Datatype};
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};

/// An enumeration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Enumeration {
    /// The name by which attributes refer to it.
    pub name: Vec<u8>,
    /// The name of its file, as stored in the file.
    pub file: Vec<u8>,
    /// Type of the elements of a value.
    pub datatype: Datatype,
    /// Elements per value.
    pub cell_val_num: CellValNum,
    /// Whether the order of the values means anything.
    pub ordered: bool,
    /// All values, concatenated.
    pub data: Vec<u8>,
    /// Var-sized: the start of each value in `data`. Empty otherwise.
    pub offsets: Vec<u64>,
}

/// Fails for the version of an enumeration that is not known.
pub fn check_version(version: u32) -> Result<()> {
    if version == 0 {
        return Ok(());
    }
    let message = format!("unknown version {version}, only 0 is known");
    let error = Error::new(ErrorKind::UnsupportedVersion, message);
    Err(error.at(0).in_part("`version`"))
}

impl Enumeration {
    /// The name by which attributes refer to it, if that is UTF-8.
    pub fn name_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.name).ok()
    }

    /// Parses the unfiltered body of a file in `__schema/__enumerations/`. Checks that offsets do not
    /// decrease and are inside the data.
    ///
    /// # Errors
    ///
    /// `UnsupportedVersion` for an enumeration version other than 0; `Truncated` or `Corrupt` if the bytes
    /// are no enumeration.
    pub fn parse(body: &[u8]) -> Result<Enumeration> {
        read::whole("enumeration", body, Self::parse_body)
    }

    fn parse_body(c: &mut Cursor<'_>) -> Result<Enumeration> {
        check_version(c.u32("version")?)?;
        let name = read::text32(c, "name")?;
        let file = read::text32(c, "file_name")?;
        let datatype = read::byte(c, "datatype", Datatype::from_u8)?;
        let cell_val_num = read::cell_val_num(c)?;
        let ordered = c.bool("ordered")?;
        let data = read::text64(c, "data")?;
        let offsets = match cell_val_num.cell_size(datatype) {
            None => read::offsets(c, data.len(), "offsets")?,
            Some(size) if !(data.len() as u64).is_multiple_of(size) => {
                let message = format!(
                    "{} bytes are not a multiple of {size}, the bytes of a value",
                    data.len()
                );
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

    /// The number of values.
    pub fn count(&self) -> usize {
        match self.cell_val_num.cell_size(self.datatype) {
            Some(size) => self.data.len() / size as usize,
            None => self.offsets.len(),
        }
    }

    /// The bytes of value `index`; None if there is no such value.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        match self.cell_val_num.cell_size(self.datatype) {
            Some(size) => self.data.chunks_exact(size as usize).nth(index),
            None => {
                let start = *self.offsets.get(index)?;
                let next = index.checked_add(1).and_then(|next| self.offsets.get(next));
                let end = next.map_or(self.data.len(), |end| *end as usize);
                Some(&self.data[start as usize..end])
            }
        }
    }

    /// The bytes of each value in order.
    pub fn values(&self) -> Vec<&[u8]> {
        (0..).map_while(|index| self.value(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::{Bytes, check_hostile};

    fn head(datatype: Datatype, cells: u32) -> Bytes {
        Bytes::default()
            .u32(0)
            .text32("colours")
            .text32("__0123_0")
            .u8(datatype as u8)
            .u32(cells)
            .u8(1)
    }

    #[test]
    fn var_sized_values() {
        let bytes = head(Datatype::StringUtf8, u32::MAX)
            .count64(7)
            .raw(b"redblue")
            .count64(24)
            .u64s(&[0, 3, 3]);
        let e = check_hostile(&bytes, Enumeration::parse);
        assert_eq!(
            (&e.name[..], &e.file[..], e.ordered),
            (&b"colours"[..], &b"__0123_0"[..], true)
        );
        assert_eq!(
            (e.datatype, e.cell_val_num),
            (Datatype::StringUtf8, CellValNum::Var)
        );
        assert_eq!(e.values(), [&b"red"[..], b"", b"blue"]);
        let empty = head(Datatype::StringUtf8, u32::MAX).count64(0).count64(0);
        assert!(check_hostile(&empty, Enumeration::parse).values().is_empty());
    }

    #[test]
    fn fixed_size_values() {
        let bytes = head(Datatype::Int16, 2).count64(8).raw(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let e = check_hostile(&bytes, Enumeration::parse);
        assert_eq!(e.values(), [[1, 2, 3, 4], [5, 6, 7, 8]]);
        let odd = head(Datatype::Int16, 2).u64(6).raw(&[0; 6]);
        assert!(
            Enumeration::parse(&odd.bytes)
                .unwrap_err()
                .to_string()
                .contains("`data`")
        );
    }

    #[test]
    fn offsets_are_checked() {
        for offsets in [[0, 4], [2, 1]] {
            let bytes = head(Datatype::Char, u32::MAX)
                .u64(3)
                .raw(b"abc")
                .u64(16)
                .u64s(&offsets);
            let error = Enumeration::parse(&bytes.bytes).unwrap_err();
            assert_eq!(error.part(), Some("enumeration, `offsets`"));
        }
        let at_the_end = head(Datatype::Char, u32::MAX)
            .u64(3)
            .raw(b"abc")
            .u64(16)
            .u64s(&[0, 3]);
        let parsed = Enumeration::parse(&at_the_end.bytes).unwrap();
        assert_eq!(parsed.values(), [&b"abc"[..], b""]);
    }

    #[test]
    fn other_versions_are_not_understood() {
        let error = Enumeration::parse(&[1, 0, 0, 0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
    }
}
