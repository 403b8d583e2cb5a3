//! A group, as its nodes share it.

use super::context::Context;
use super::metadata::metadata;
use crate::catalog::group::{Members, OpenGroup, group_metadata, unregistered};
use crate::describe::group::GroupSummary;
use crate::describe::metadata::Pairs;
use crate::error::Result;
use crate::format::enums::ObjectType;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A group that a directory shows.
#[derive(Clone)]
pub struct ShownGroup {
    /// What all nodes share.
    pub context: Arc<Context>,
    /// The group.
    pub group: Arc<OpenGroup>,
}

impl ShownGroup {
    /// What is in it.
    pub fn summary(&self) -> Result<GroupSummary> {
        let members = self.group.members()?;
        Ok(GroupSummary {
            details: members.group.clone(),
            unregistered: self.unregistered(&members)?,
        })
    }

    /// The arrays and groups in its directory that are no members, without arrays that were written later
    /// than the time shown.
    pub fn unregistered(&self, members: &Members) -> Result<Vec<(Vec<u8>, ObjectType)>> {
        let group = &self.group;
        let mut found = unregistered(group.engine(), group.path(), &members.group)?;
        let registered = members.places.iter().filter(|place| place.registered);
        let registered: HashSet<&PathBuf> = registered.map(|place| &place.at).collect();
        found.retain(|(name, kind)| {
            let at = group.path().join(OsStr::from_bytes(name));
            let is_later = || self.context.is_later(&at).is_ok_and(|later| later);
            !registered.contains(&at) && (*kind == ObjectType::Group || !is_later())
        });
        Ok(found)
    }

    /// Its metadata.
    pub fn metadata(&self) -> Result<Pairs> {
        let (engine, path) = (self.group.engine(), self.group.path());
        metadata(engine, &group_metadata(engine, path)?, engine.key_for(path))
    }
}
