//! `group.json`: the members of a group.

use super::{Json, object, value};
use crate::format::group::GroupMember;

/// The document: the version of the group's details (null if there are none), and its members as written.
pub fn group_json(version: Option<u32>, members: &[GroupMember]) -> Json {
    object!({
        "version": version,
        "members": members.iter().map(member_json).collect::<Json>(),
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
    use crate::format::enums::ObjectType;

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
            group_json(Some(2), &[member(None, "a"), sub]).to_string(),
            concat!(
                r#"{"version":2,"members":[{"name":null,"type":"ARRAY","uri":"a","relative":true},"#,
                r#"{"name":"child","type":"GROUP","uri":"file:///x/sub","relative":false}]}"#,
            )
        );
        assert_eq!(
            group_json(None, &[]).to_string(),
            r#"{"version":null,"members":[]}"#
        );
    }
}
