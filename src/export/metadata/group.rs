//! The metadata of a group that is a data set.

use super::{MAX_LEFT_OUT, Metadata, pairs_in};
use crate::catalog::group::{OpenGroup, group_metadata};
use crate::error::Result;
use crate::export::grid::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A key that begins so names the dimensions of a member that are as long as their domain.
pub(super) const FIXED: &[u8] = b"__tiledb_array_fixed_dimensions.";

/// The metadata of a group.
pub struct GroupMetadata {
    /// Its attributes by key, in order.
    pub attributes: Vec<(Vec<u8>, Value)>,
    /// Keys that are left out, and why: the first thousand.
    pub left_out: Vec<(Vec<u8>, &'static str)>,
    /// The files that it was read from, oldest first.
    pub files: Vec<PathBuf>,
    /// The names of fixed dimensions by member, joined by `;`.
    fixed: BTreeMap<Vec<u8>, String>,
}

impl GroupMetadata {
    /// The metadata of a group now. Reads only files of metadata.
    pub fn of(group: &OpenGroup) -> Result<GroupMetadata> {
        let (engine, path) = (group.engine(), group.path());
        let files = group_metadata(engine, path)?;
        let mut pairs = pairs_in(engine, files.iter().map(|file| &**file), engine.key_for(path))?;
        let (mut fixed, mut left_out) = (BTreeMap::new(), Vec::new());
        pairs.retain(|key, value| {
            let reason = match (key.strip_prefix(FIXED), &*value) {
                (Some(member), Ok(Value::Text(names))) => {
                    fixed.insert(member.to_vec(), names.clone());
                    return false;
                }
                (Some(_), Ok(Value::Numbers(..))) => "it is not text",
                (_, Err(reason)) => *reason,
                (None, Ok(_)) => return true,
            };
            if left_out.len() < MAX_LEFT_OUT {
                left_out.push((key.clone(), reason));
            }
            false
        });
        let attributes = Metadata::sort(&[], pairs).array;
        Ok(GroupMetadata {
            attributes,
            left_out,
            files,
            fixed,
        })
    }

    /// The dimensions of a member that are as long as their domain.
    pub fn fixed(&self, member: &[u8]) -> Vec<&str> {
        self.fixed
            .get(member)
            .map_or(Vec::new(), |names| names.split(';').collect())
    }

    /// What `dataset_type` says, by which programs tell their groups.
    pub fn dataset_type(&self) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key == b"dataset_type");
        match found {
            Some((_, Value::Text(kind))) => Some(kind),
            _ => None,
        }
    }
}
