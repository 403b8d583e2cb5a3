//! `group.json`: the members of a group.

use super::value;
use crate::format::group::{GroupDetails, GroupMember};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The members of a group once its details files have been replayed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    /// Version of the last file; None without any.
    pub version: Option<u32>,
    /// In the order in which they were added; none is marked as deleted.
    pub members: Vec<GroupMember>,
}

/// Replays details files, oldest first. A file of version 1 is a snapshot, which replaces all before it; one
/// of version 2 adds, replaces and removes members, which are known by their name, or by their URI where they
/// have none.
pub fn replay(files: impl IntoIterator<Item = GroupDetails>) -> Group {
    let mut version = None;
    let mut members: Vec<Option<GroupMember>> = Vec::new();
    let mut index: HashMap<Vec<u8>, usize> = HashMap::new();
    for details in files {
        version = Some(details.version);
        if details.version == 1 {
            members.clear();
            index.clear();
        }
        for member in details.members {
            let key = member.name.as_ref().unwrap_or(&member.uri).clone();
            let known = index.get(&key).copied();
            let place = known.and_then(|i| members.get_mut(i));
            match (member.deleted, place) {
                (true, Some(place)) => {
                    *place = None;
                    index.remove(&key);
                }
                (true, None) => {}
                (false, Some(place)) => *place = Some(member),
                (false, None) => {
                    index.insert(key, members.len());
                    members.push(Some(member));
                }
            }
        }
    }
    Group {
        version,
        members: members.into_iter().flatten().collect(),
    }
}

/// The document: the version of the group's details, null where it has none, and its members as written.
pub fn group_json(group: &Group) -> Value {
    json!({
        "version": group.version,
        "members": group.members.iter().map(member_json).collect::<Value>(),
    })
}

fn member_json(member: &GroupMember) -> Value {
    json!({
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

    fn member(name: Option<&str>, uri: &str, deleted: bool) -> GroupMember {
        GroupMember {
            object_type: ObjectType::Array,
            relative: true,
            uri: uri.into(),
            name: name.map(|name| name.into()),
            deleted,
        }
    }

    fn details(version: u32, members: Vec<GroupMember>) -> GroupDetails {
        GroupDetails { version, members }
    }

    fn uris(group: &Group) -> Vec<&str> {
        let uris = group.members.iter().map(|m| std::str::from_utf8(&m.uri));
        uris.map(Result::unwrap).collect()
    }

    #[test]
    fn a_group_is_shown_as_written() {
        let sub = GroupMember {
            object_type: ObjectType::Group,
            relative: false,
            ..member(Some("child"), "file:///x/sub", false)
        };
        let group = replay([details(2, vec![member(None, "a", false), sub])]);
        assert_eq!(
            group_json(&group).to_string(),
            concat!(
                r#"{"version":2,"members":[{"name":null,"type":"ARRAY","uri":"a","relative":true},"#,
                r#"{"name":"child","type":"GROUP","uri":"file:///x/sub","relative":false}]}"#,
            )
        );
        assert_eq!(
            group_json(&replay([])).to_string(),
            r#"{"version":null,"members":[]}"#
        );
    }

    #[test]
    fn changes_are_replayed_by_name_or_uri() {
        let group = replay([
            details(2, vec![member(Some("n"), "a", false), member(None, "b", false)]),
            details(2, vec![member(None, "c", false), member(Some("n"), "a2", false)]),
            details(2, vec![member(None, "b", true), member(None, "never", true)]),
        ]);
        assert_eq!(uris(&group), ["a2", "c"]);
        // The name counts, not the URI.
        let group = replay([
            details(2, vec![member(Some("n"), "a", false)]),
            details(2, vec![member(None, "a", true)]),
        ]);
        assert_eq!(uris(&group), ["a"]);
        // Removed and added again: behind those that stayed.
        let group = replay([
            details(2, vec![member(None, "a", false), member(None, "b", false)]),
            details(2, vec![member(None, "a", true), member(None, "a", false)]),
        ]);
        assert_eq!(uris(&group), ["b", "a"]);
    }

    #[test]
    fn a_snapshot_replaces_all_before_it() {
        let group = replay([
            details(1, vec![member(None, "a", false), member(None, "b", false)]),
            details(1, vec![member(None, "b", false)]),
        ]);
        assert_eq!((group.version, uris(&group)), (Some(1), vec!["b"]));
    }
}
