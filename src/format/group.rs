//! Group details: the members of a group.

use super::enums::ObjectType;
use crate::error::Result;

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
    /// Parses the unfiltered body.
    pub fn parse(body: &[u8]) -> Result<GroupDetails> {
        let _ = body;
        unimplemented!("format helper")
    }
}
