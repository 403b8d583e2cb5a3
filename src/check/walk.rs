//! Walks directories and groups, and makes jobs for what is in them.

use super::array;
use super::metadata::metadata_files;
use super::queue::Job;
use super::{Checker, Kind};
use crate::catalog::group::{member_path, read_group, unregistered};
use crate::catalog::listing::list_or_empty;
use crate::catalog::source::{GROUP_DIRECTORY, ObjectKind, classify};
use crate::error::{ErrorKind, Result};
use crate::filter::generic::read_generic_tile;
use crate::format::enums::ObjectType;
use crate::format::group::{GroupDetails, GroupMember};
use crate::format::name::TimestampedName;
use crate::runtime::lock;
use crate::storage::EntryType;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A job that checks the directory at `path`.
pub(super) fn object_job(path: PathBuf) -> Job {
    Box::new(move |checker| object(checker, &path))
}

/// Checks the array, group or plain directory at `path`, unless that was done already: links and group
/// members may form cycles.
pub(super) fn object(checker: &Checker, path: &Path) {
    let Some(metadata) = checker.take(checker.engine.storage.metadata(path), path) else {
        return;
    };
    let mut seen = lock(&checker.seen);
    if !seen.insert(metadata.version) {
        checker.note_object(path);
        return;
    }
    drop(seen);
    match checker.take(classify(&checker.engine, path), path) {
        Some(ObjectKind::Array) => {
            checker.note_object(path);
            let children = |path: &Path| children(checker, path, |_| true);
            array::check(checker, path.to_path_buf(), children);
        }
        Some(ObjectKind::Group) => {
            checker.note_object(path);
            group(checker, path);
        }
        Some(ObjectKind::Directory) => {
            let jobs = children(checker, path, |_| true);
            checker.queue.push(jobs);
        }
        None => {}
    }
}

/// Jobs for the subdirectories of `path` whose names are `wanted`.
pub(super) fn children(checker: &Checker, path: &Path, wanted: impl Fn(&OsStr) -> bool) -> Vec<Job> {
    let entries = checker.take(list_or_empty(&checker.engine, path), path);
    entries
        .unwrap_or_default()
        .into_iter()
        .filter(|entry| entry.entry_type == EntryType::Directory && wanted(&entry.name))
        .map(|entry| object_job(path.join(entry.name)))
        .collect()
}

/// Checks the group at `path`: its details, its metadata, and that its members exist. Objects in its
/// directory that are not registered as members are checked, too: before version 12 no members were
/// registered.
fn group(checker: &Checker, path: &Path) {
    checker.tally.groups.add(1);
    let directory = path.join(GROUP_DIRECTORY);
    let entries = checker.take(list_or_empty(&checker.engine, &directory), &directory);
    let mut locked = false;
    for entry in entries.unwrap_or_default() {
        let file = directory.join(&entry.name);
        let name = entry.name.as_bytes();
        if entry.entry_type != EntryType::File || name.ends_with(b".vac") || name.ends_with(b".tmp") {
            continue;
        }
        if TimestampedName::parse(name).is_err() {
            let message = "ignored: the name is not that of a group details file";
            checker.report(checker.problem(Kind::Name, &file, message).noted());
            continue;
        }
        let result = details(checker, path, &file);
        locked = result.as_ref().is_err_and(|e| e.kind() == ErrorKind::KeyRequired);
        checker.take(result, &file);
        if locked {
            // The other files need the same key.
            break;
        }
        checker.check_end(&file, checker.engine.key_for(path));
    }
    if !locked {
        metadata_files(checker, path, checker.engine.key_for(path));
    }
    let mut jobs = Vec::new();
    // An error here was reported above, for the file that causes it.
    if let Ok((group, _)) = read_group(&checker.engine, path) {
        for member in &group.members {
            jobs.extend(check_member(checker, path, member));
        }
        let strays = checker.take(unregistered(&checker.engine, path, &group), path);
        for (name, kind) in strays.unwrap_or_default() {
            let message = match kind {
                ObjectType::Array => "the array lies in the group's directory, but is no member of the group",
                _ => "the group lies in the group's directory, but is no member of the group",
            };
            let at = path.join(OsStr::from_bytes(&name));
            checker.report(checker.problem(Kind::Group, &at, message).noted());
        }
    }
    jobs.extend(children(checker, path, |name| {
        !name.as_bytes().starts_with(b"__")
    }));
    checker.queue.push(jobs);
}

fn details(checker: &Checker, group: &Path, file: &Path) -> Result<GroupDetails> {
    let blob = checker.engine.storage.open(file)?;
    let (_, body) = read_generic_tile(&*blob, 0, checker.engine.key_for(group))?;
    GroupDetails::parse(&body).map_err(|e| e.in_part("group details").in_file(blob.display()))
}

/// Checks that a member exists and has the type that its group says. Returns the job that checks it.
fn check_member(checker: &Checker, group: &Path, member: &GroupMember) -> Option<Job> {
    let uri = String::from_utf8_lossy(&member.uri).into_owned();
    let finding = |message: String| {
        checker
            .problem(Kind::Group, group, message)
            .in_part(format_args!("member {uri:?}"))
    };
    let Some(path) = member_path(&*checker.engine.storage, group, member) else {
        let message = "the member lies outside of the source and is not checked".to_owned();
        checker.report(finding(message).noted());
        return None;
    };
    let found = match checker.engine.storage.metadata(&path) {
        Ok(metadata) if metadata.entry_type == EntryType::Directory => classify(&checker.engine, &path),
        Ok(_) => {
            checker.report(finding("the member is a file, not a directory".into()));
            return None;
        }
        Err(e) => Err(e),
    };
    match (found, member.object_type) {
        (Ok(ObjectKind::Array), ObjectType::Array) | (Ok(ObjectKind::Group), ObjectType::Group) => {
            Some(object_job(path))
        }
        (Ok(found), stated) => {
            let message = format!(
                "the member is registered as {} but is {}",
                stated.name(),
                match found {
                    ObjectKind::Array => "an array",
                    ObjectKind::Group => "a group",
                    ObjectKind::Directory => "neither array nor group",
                }
            );
            checker.report(finding(message));
            Some(object_job(path))
        }
        (Err(e), _) => {
            let message = match e.kind() {
                ErrorKind::NotFound => "the member is missing".to_owned(),
                _ => e.to_string(),
            };
            checker.report(finding(message));
            None
        }
    }
}
