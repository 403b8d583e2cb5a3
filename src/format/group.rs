//! Group details: the members of a group.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/group.md>

use super::enums::ObjectType;
use super::read;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};

/// The unfiltered body of a file in `__group/`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupDetails {
    /// 1: a snapshot of all members. 2: changes to be replayed in the order of the files.
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
    /// The member's location.
    pub uri: Vec<u8>,
    /// The member's name, if it has one.
    pub name: Option<Vec<u8>>,
    /// Whether this removes the member.
    pub deleted: bool,
}

impl GroupDetails {
    /// The number of members that a body declares, checked against its length.
    pub fn count(body: &[u8]) -> Result<u64> {
        Ok(parse_head(&mut Cursor::new(body))?.1)
    }

    /// Parses the unfiltered body. `UnsupportedVersion` if the version of the group or a member is not 1 or
    /// 2.
    pub fn parse(body: &[u8]) -> Result<GroupDetails> {
        read::whole("group details", body, |c| {
            let (version, count) = parse_head(c)?;
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

/// The version, and the number of members, checked against the bytes left.
fn parse_head(c: &mut Cursor<'_>) -> Result<(u32, u64)> {
    let version = parse_version(c, "version")?;
    let count = c.u64("member_num")?;
    c.check_count(count, 15, "member_num")?;
    Ok((version, count))
}

fn parse_version(c: &mut Cursor<'_>, field: &str) -> Result<u32> {
    let offset = c.offset();
    match c.u32(field)? {
        version @ (1 | 2) => Ok(version),
        version => Err(Error::new(
            ErrorKind::UnsupportedVersion,
            format!("unknown version {version}, only 1 and 2 are known"),
        )
        .at(offset)
        .in_part(format_args!("`{field}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::{Bytes, check_hostile};

    #[test]
    fn members_with_and_without_a_name() {
        for version in [1, 2] {
            let bytes = Bytes::default()
                .u32(version)
                .count64(2)
                .u32(version)
                .u8(2)
                .u8(1)
                .text64("arr")
                .u8(0)
                .when(version == 2, |b| b.u8(1))
                .u32(version)
                .u8(1)
                .u8(0)
                .text64("file:///g")
                .u8(1)
                .text64("name")
                .when(version == 2, |b| b.u8(0));
            let details = check_hostile(&bytes, GroupDetails::parse);
            let member = |object_type, relative, uri: &str, name: Option<&str>, deleted| GroupMember {
                object_type,
                relative,
                uri: uri.into(),
                name: name.map(Into::into),
                deleted,
            };
            let expected = [
                member(ObjectType::Array, true, "arr", None, version == 2),
                member(ObjectType::Group, false, "file:///g", Some("name"), false),
            ];
            assert_eq!((details.version, &details.members[..]), (version, &expected[..]));
        }
    }

    #[test]
    fn other_versions_are_not_understood() {
        let empty = |version| GroupDetails::parse(&Bytes::default().u32(version).u64(0).bytes);
        assert_eq!(empty(1).unwrap().members, []);
        assert_eq!(empty(3).unwrap_err().kind(), ErrorKind::UnsupportedVersion);
        let member = Bytes::default().u32(2).u64(1).u32(3).raw(&[0; 20]);
        let error = GroupDetails::parse(&member.bytes).unwrap_err();
        assert_eq!(error.part(), Some("group details, member 0, `member_version`"));
    }
}
