//! `group.json`: the members of a group.

use super::{Json, object, value};
use crate::catalog::group::Group;
use crate::format::enums::ObjectType;
use crate::format::group::GroupMember;

/// What is in a group.
pub struct GroupSummary {
    /// Its members as written.
    pub details: Group,
    /// The arrays and groups in its directory that are no members.
    pub unregistered: Vec<(Vec<u8>, ObjectType)>,
}

/// The document, with the exports of a measurement.
pub fn group_json(group: &GroupSummary, exports: Option<Json>) -> Json {
    let unregistered = group.unregistered.iter().map(|(name, kind)| {
        object!({
            "name": value::name(name),
            "type": kind.name(),
        })
    });
    let mut document = vec![
        ("version", group.details.version.into()),
        (
            "members",
            group.details.members.iter().map(member_json).collect::<Json>(),
        ),
        ("unregistered", unregistered.collect::<Json>()),
    ];
    document.extend(exports.map(|exports| ("exports", exports)));
    document
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// An export of a measurement: why there is none (None if there is one), and what it leaves out.
pub fn anndata_json<'l>(absent: Option<&str>, left_out: impl Iterator<Item = (&'l str, &'l str)>) -> Json {
    let left_out = left_out.map(|(element, reason)| {
        object!({
            "element": element,
            "reason": reason,
        })
    });
    object!({
        "exists": absent.is_none(),
        "reason": absent.map(str::to_owned),
        "left_out": left_out.collect::<Json>(),
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
    use crate::catalog::group::tests::member;

    #[test]
    fn a_group_is_shown_as_written() {
        let sub = GroupMember {
            object_type: ObjectType::Group,
            relative: false,
            ..member(Some("child"), "file:///x/sub", false)
        };
        let group = GroupSummary {
            details: Group {
                version: Some(2),
                members: vec![member(None, "a", false), sub],
                removed: Vec::new(),
            },
            unregistered: vec![(b"b".to_vec(), ObjectType::Array)],
        };
        let empty = GroupSummary {
            details: Group::default(),
            unregistered: Vec::new(),
        };
        assert_eq!(
            group_json(&group, None).to_string(),
            concat!(
                r#"{"version":2,"members":[{"name":null,"type":"ARRAY","uri":"a","relative":true},"#,
                r#"{"name":"child","type":"GROUP","uri":"file:///x/sub","relative":false}],"#,
                r#""unregistered":[{"name":"b","type":"ARRAY"}]}"#,
            )
        );
        assert_eq!(
            group_json(&empty, None).to_string(),
            r#"{"version":null,"members":[],"unregistered":[]}"#
        );
        let left_out = [("obs/when", "it has several values in a cell")];
        let exports = object!({ "anndata.zarr": anndata_json(None, left_out.into_iter()) });
        assert_eq!(
            group_json(&empty, Some(exports)).to_string(),
            concat!(
                r#"{"version":null,"members":[],"unregistered":[],"exports":{"anndata.zarr":{"exists":true,"#,
                r#""reason":null,"left_out":[{"element":"obs/when","reason":"it has several values in a cell"}]}}}"#,
            )
        );
    }
}
