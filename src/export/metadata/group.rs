//! The metadata of a group that is a data set.

use super::{MAX_LEFT_OUT, MAX_VALUE, Metadata, OF_PROGRAMS, replayed, rules};
use crate::catalog::group::{OpenGroup, group_metadata};
use crate::engine::Engine;
use crate::error::Result;
use crate::export::grid::Value;
use crate::filter::EncryptionKey;
use crate::names;
use crate::query::View;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A key that begins so names the dimensions of a member that are as long as their domain.
pub(super) const FIXED: &[u8] = b"__tiledb_array_fixed_dimensions.";

/// Whether a key that begins with `_` is an attribute of the data set: two begin what programs keep.
fn is_hidden_attribute(key: &[u8]) -> bool {
    key.starts_with(b"_") && !key.starts_with(b"__") && !OF_PROGRAMS.contains(&key)
}

/// The most bytes of the value of a key that may be shown; None for the keys of other programs.
fn is_shown(key: &[u8]) -> Option<u64> {
    super::is_shown(key).or_else(|| is_hidden_attribute(key).then_some(MAX_VALUE))
}

/// The metadata of a group.
pub struct GroupMetadata {
    /// Its attributes by key, in order.
    pub attributes: Vec<(Vec<u8>, Value)>,
    /// Keys that are left out, and why: the first thousand.
    pub left_out: Vec<(Vec<u8>, &'static str)>,
    /// The files that it was read from, oldest first.
    pub files: Vec<PathBuf>,
    /// The names of fixed dimensions by member, joined by `;`.
    fixed: HashMap<Vec<u8>, String>,
}

impl GroupMetadata {
    /// The metadata of a group now. Reads only files of metadata.
    pub fn of(group: &OpenGroup) -> Result<GroupMetadata> {
        let (engine, path) = (group.engine(), group.path());
        let files = group_metadata(engine, path)?;
        let key = engine.key_for(path);
        let metadata = GroupMetadata::read(engine, files.iter().map(|file| &**file), key)?;
        Ok(GroupMetadata { files, ..metadata })
    }

    /// Adds what an array keeps for the group and the group does not have itself.
    pub fn add(&mut self, view: &View) -> Result<()> {
        let (array, snapshot) = (view.array(), view.snapshot());
        let files = snapshot.metadata().map(|file| &*file.path);
        let kept = GroupMetadata::read(&array.engine, files, array.key.as_ref())?;
        self.left_out.extend(kept.left_out);
        let attributes = kept.attributes.into_iter().chain(self.attributes.drain(..));
        let attributes: BTreeMap<Vec<u8>, Value> = attributes.collect();
        self.attributes = attributes.into_iter().collect();
        Ok(())
    }

    /// What is in metadata files, the oldest first.
    fn read<'p>(
        engine: &Arc<Engine>,
        files: impl Iterator<Item = &'p Path>,
        key: Option<&EncryptionKey>,
    ) -> Result<GroupMetadata> {
        let mut pairs = replayed(engine, files, key, is_shown)?;
        let (mut fixed, mut left_out) = (HashMap::new(), Vec::new());
        pairs.retain(|key, value| {
            let reason = match (key.strip_prefix(FIXED), &*value) {
                (Some(member), Ok(Value::Text(names))) => {
                    fixed.insert(member.to_vec(), names.clone());
                    return false;
                }
                (Some(_), Ok(Value::Numbers(..))) => "it is not text",
                (_, Err(reason)) => *reason,
                (None, Ok(_))
                    if is_hidden_attribute(key) && rules::is_of_files(&String::from_utf8_lossy(key)) =>
                {
                    rules::OF_FILES_REASON
                }
                (None, Ok(_)) => return true,
            };
            if left_out.len() < MAX_LEFT_OUT {
                left_out.push((key.clone(), reason));
            }
            false
        });
        let (hidden, pairs): (BTreeMap<_, _>, BTreeMap<_, _>) =
            pairs.into_iter().partition(|(key, _)| is_hidden_attribute(key));
        let hidden = hidden
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.ok()?)));
        let attributes = hidden.chain(Metadata::sort(&[], pairs).array);
        let attributes: BTreeMap<Vec<u8>, Value> = attributes.collect();
        Ok(GroupMetadata {
            attributes: attributes.into_iter().collect(),
            left_out,
            files: Vec::new(),
            fixed,
        })
    }

    /// What these attributes tell.
    #[cfg(test)]
    pub(in crate::export) fn of_pairs<'p>(pairs: impl Iterator<Item = (&'p str, Value)>) -> GroupMetadata {
        GroupMetadata {
            attributes: pairs
                .map(|(key, value)| (key.as_bytes().to_vec(), value))
                .collect(),
            left_out: Vec::new(),
            files: Vec::new(),
            fixed: HashMap::new(),
        }
    }

    /// The dimensions of a member that are as long as their domain, as files have their names.
    pub fn fixed(&self, member: &[u8]) -> Vec<String> {
        let names = self.fixed.get(member).map(|names| names.split(';'));
        let names = names.into_iter().flatten();
        names.map(|name| names::encode(name.as_bytes())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fixed_dimensions_are_those_of_files() {
        let metadata = GroupMetadata {
            fixed: [(b"a".to_vec(), "x%;y;.z/".to_owned())].into(),
            ..GroupMetadata::of_pairs([].into_iter())
        };
        assert_eq!(metadata.fixed(b"a"), ["x%25", "y", "%2Ez%2F"]);
        assert_eq!(metadata.fixed(b"b"), Vec::<String>::new());
    }
}
