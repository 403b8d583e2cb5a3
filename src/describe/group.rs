//! `group.json`: the members of a group.

use super::{Json, object, value};
use crate::format::enums::ObjectType;
use crate::format::group::GroupMember;

/// The document: the version of the group's details (null if there are none), its members as written, and the
/// arrays and groups in its directory that are no members.
pub fn group_json(
    version: Option<u32>,
    members: &[GroupMember],
    unregistered: &[(Vec<u8>, ObjectType)],
) -> Json {
    let unregistered = unregistered.iter().map(|(name, kind)| {
        object!({
            "name": value::name(name),
            "type": kind.name(),
        })
    });
    object!({
        "version": version,
        "members": members.iter().map(member_json).collect::<Json>(),
        "unregistered": unregistered.collect::<Json>(),
    })
}

fn member_json(member: &GroupMember) -> Json {
    object!({
        "name": member.name.as_ref().map(|name| value::name(name)),
        "type": member.object_type.name(),
        "uri": value::name(&member.uri),
        "relative": member.relative,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: Option<&str>, uri: &str) -> GroupMember {
        GroupMember {
            object_type: ObjectType::Array,
            relative: true,
            uri: uri.into(),
            name: name.map(|name| name.into()),
            deleted: false,
        }
    }

    #[test]
    fn a_group_is_shown_as_written() {
        let sub = GroupMember {
            object_type: ObjectType::Group,
            relative: false,
            ..member(Some("child"), "file:///x/sub")
        };
        assert_eq!(
            group_json(
                Some(2),
                &[member(None, "a"), sub],
                &[(b"b".to_vec(), ObjectType::Array)]
            )
            .to_string(),
            concat!(
                r#"{"version":2,"members":[{"name":null,"type":"ARRAY","uri":"a","relative":true},"#,
                r#"{"name":"child","type":"GROUP","uri":"file:///x/sub","relative":false}],"#,
                r#""unregistered":[{"name":"b","type":"ARRAY"}]}"#,
            )
        );
        assert_eq!(
            group_json(None, &[], &[]).to_string(),
            r#"{"version":null,"members":[],"unregistered":[]}"#
        );
    }
}
