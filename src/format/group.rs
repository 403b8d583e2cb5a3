//! Group details: the members of a group.

use super::enums::ObjectType;
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};

/// The unfiltered body of a file in `__group/`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupDetails {
    /// 1: a snapshot of all members. 2: changes to be replayed in the order of their files.
    pub version: u32,
    /// In stored order.
    pub members: Vec<GroupMember>,
}

/// A member of a group, or from version 2 its removal.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupMember {
    /// Group or array.
    pub object_type: ObjectType,
    /// Whether `uri` is relative to the group.
    pub relative: bool,
    /// Where the member lies.
    pub uri: Vec<u8>,
    /// Its name, where it has one.
    pub name: Option<Vec<u8>>,
    /// Whether this removes the member.
    pub deleted: bool,
}

impl GroupDetails {
    /// Parses the unfiltered body. `UnsupportedVersion` for versions of groups and members other than 1 and 2.
    pub fn parse(body: &[u8]) -> Result<GroupDetails> {
        read::whole("group details", body, |c| {
            let version = parse_version(c, "version")?;
            let count = c.u64("member_num")?;
            c.check_count(count, 15, "member_num")?;
            let members = (0..count)
                .map(|i| GroupMember::parse(c).map_err(|e| e.in_part(format_args!("member {i}"))))
                .collect::<Result<_>>()?;
            Ok(GroupDetails { version, members })
        })
    }
}

impl GroupMember {
    fn parse(c: &mut Cursor<'_>) -> Result<GroupMember> {
        let version = parse_version(c, "member_version")?;
        let object_type = read::byte(c, "object_type", ObjectType::from_u8)?;
        let relative = c.bool("relative")?;
        let uri = read::text64(c, "uri")?;
        let name = match c.bool("name_set")? {
            true => Some(read::text64(c, "name")?),
            false => None,
        };
        let deleted = version >= 2 && c.bool("deleted")?;
        Ok(GroupMember {
            object_type,
            relative,
            uri,
            name,
            deleted,
        })
    }
}

fn parse_version(c: &mut Cursor<'_>, field: &str) -> Result<u32> {
    let offset = c.offset();
    match c.u32(field)? {
        version @ (1 | 2) => Ok(version),
        version => Err(Error::new(
            ErrorKind::UnsupportedVersion,
            format!("version {version}; 1 and 2 are understood"),
        )
        .at(offset)
        .in_part(format_args!("`{field}`"))),
    }
}
