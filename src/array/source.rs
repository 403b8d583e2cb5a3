//! What a directory of the source is, and the members of groups.

use super::engine::Engine;
use super::listing::{list_or_empty, metadata_files, now, read_text};
use super::schemas::{LEGACY_SCHEMA, SCHEMA_DIRECTORY};
use crate::error::Result;
use crate::filter::generic::read_generic_tile;
use crate::format::commits::parse_lines;
use crate::format::group::{GroupDetails, GroupMember};
use crate::format::metadata::MetadataEntry;
use crate::format::name::TimestampedName;
use crate::storage::EntryType;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The directory of a group's details.
const GROUP_DIRECTORY: &str = "__group";

/// The marker of a group.
const GROUP_FILE: &str = "__tiledb_group.tdb";

/// What a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ObjectKind {
    Array,
    Group,
    Directory,
}

/// Tells what the directory at `path` is.
pub fn classify(engine: &Engine, path: &Path) -> Result<ObjectKind> {
    let is = |name: &str, wanted: EntryType| {
        engine
            .storage
            .metadata(&path.join(name))
            .is_ok_and(|m| m.entry_type == wanted)
    };
    if is(SCHEMA_DIRECTORY, EntryType::Directory) || is(LEGACY_SCHEMA, EntryType::File) {
        return Ok(ObjectKind::Array);
    }
    if is(GROUP_DIRECTORY, EntryType::Directory) || is(GROUP_FILE, EntryType::File) {
        return Ok(ObjectKind::Group);
    }
    engine.storage.metadata(path)?;
    Ok(ObjectKind::Directory)
}

/// Whether there is an array or group at `path` or below it. Gives up, saying yes, after looking into very many directories.
pub fn holds_tiledb(engine: &Engine, path: &Path) -> Result<bool> {
    const MOST: usize = 100_000;
    const DEPTH: usize = 64;
    let mut waiting = vec![(path.to_path_buf(), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = waiting.pop() {
        if classify(engine, &directory)? != ObjectKind::Directory {
            return Ok(true);
        }
        seen += 1;
        if seen > MOST {
            return Ok(true);
        }
        if depth < DEPTH {
            // What cannot be listed does not hold anything that could be shown.
            let entries = engine.storage.list(&directory).unwrap_or_default();
            let directories = entries
                .into_iter()
                .filter(|e| e.entry_type == EntryType::Directory);
            waiting.extend(directories.map(|e| (directory.join(e.name), depth + 1)));
        }
    }
    Ok(false)
}

/// The members of a group as its details say, and the version of these.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupMembers {
    /// 1 or 2; None for a group of a time before members were registered.
    pub version: Option<u32>,
    /// After replaying all files.
    pub members: Vec<GroupMember>,
}

/// Reads the details of the group at `path`.
pub fn group_members(engine: &Engine, path: &Path) -> Result<GroupMembers> {
    let directory = path.join(GROUP_DIRECTORY);
    let entries = list_or_empty(engine, &directory)?;
    let names: Vec<&str> = entries
        .iter()
        .filter(|e| e.entry_type == EntryType::File)
        .filter_map(|e| e.name.to_str())
        .collect();
    let mut vacuumed = HashSet::new();
    for name in names.iter().filter(|name| name.ends_with(".vac")) {
        for line in parse_lines(&read_text(engine, &directory.join(name))?) {
            vacuumed.insert(line.rsplit(|&b| b == b'/').next().unwrap_or(&line).to_vec());
        }
    }
    let now = now();
    let mut files: Vec<(TimestampedName, &str)> = names
        .into_iter()
        .filter(|name| !name.contains('.') && !vacuumed.contains(name.as_bytes()))
        .filter_map(|name| Some((TimestampedName::parse(name.as_bytes()).ok()?, name)))
        .filter(|(parsed, _)| parsed.timestamps.1 <= now)
        .collect();
    files.sort_by_key(|(parsed, _)| parsed.timestamps.0);
    let Some((latest, _)) = files.last() else {
        return Ok(GroupMembers {
            version: None,
            members: Vec::new(),
        });
    };
    // A file of version 1 is a snapshot of all members; later ones are changes.
    let snapshot = latest.version.is_none_or(|version| version == 1);
    let from = if snapshot { files.len() - 1 } else { 0 };
    let mut version = 0;
    let mut members: Vec<GroupMember> = Vec::new();
    for (_, name) in files.iter().skip(from) {
        let blob = engine.storage.open(&directory.join(name))?;
        let (_, body) = read_generic_tile(&*blob, 0, engine.key_for(path))?;
        let details =
            GroupDetails::parse(&body).map_err(|e| e.in_part("group details").in_file(blob.display()))?;
        version = details.version;
        for member in details.members {
            let key = |m: &GroupMember| m.name.clone().unwrap_or_else(|| m.uri.clone());
            members.retain(|known| key(known) != key(&member));
            if !member.deleted {
                members.push(member);
            }
        }
    }
    Ok(GroupMembers {
        version: Some(version),
        members,
    })
}

/// The records of a group's metadata files in force, file by file, oldest first.
pub fn group_metadata(engine: &Engine, path: &Path) -> Result<Vec<Vec<MetadataEntry>>> {
    metadata_files(engine, &path.join("__meta"), now())?
        .iter()
        .map(|file| super::open::read_metadata(engine, &file.path, engine.key_for(path)))
        .collect()
}

/// Where a member of the group at `group` lies, relative to the source; None where that is outside of it. `root` is the source's own path, which absolute
/// URIs are compared with.
pub fn member_path(root: &Path, group: &Path, member: &GroupMember) -> Option<PathBuf> {
    let uri = Path::new(OsStr::from_bytes(&member.uri));
    let path = if member.relative {
        group.join(uri.strip_prefix("/").unwrap_or(uri))
    } else {
        let local = member.uri.strip_prefix(b"file://").unwrap_or(&member.uri);
        Path::new(OsStr::from_bytes(local))
            .strip_prefix(root)
            .ok()?
            .to_path_buf()
    };
    normalise(&path)
}

/// Resolves `.` and `..` by name; None where that leads above the source.
fn normalise(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// The name under which a member is shown: its own, or the last segment of its URI. None where it has neither.
pub fn member_name(member: &GroupMember) -> Option<&[u8]> {
    match &member.name {
        Some(name) if !name.is_empty() => Some(name),
        _ => member
            .uri
            .rsplit(|&b| b == b'/')
            .find(|segment| !segment.is_empty()),
    }
}
