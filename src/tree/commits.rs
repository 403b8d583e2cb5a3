//! `commits.json`: every commit file of an array, decoded.

use super::document::DocumentContent;
use crate::catalog::Array;
use crate::catalog::commits::{CommitFile, CommitKind, read_text};
use crate::describe::commits::{CommitContent, CommitEntry, ConsolidatedCommit, ListedPath, entry_json};
use crate::describe::condition::schema_lookup;
use crate::describe::render_objects;
use crate::error::{Error, Result};
use crate::filter::generic::read_generic_tile_within;
use crate::format::commits::{normalise_path, parse_consolidated, parse_lines};
use crate::query::deletes::{self, StoredCondition};
use crate::storage::Blob;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest condition in bytes, unfiltered: enough to delete 100,000 values.
const MAX_CONDITION: u64 = 2 << 20;

/// The document, rendered in parallel. A file that cannot be decoded is shown with the reason.
pub fn commits_json(array: &Array) -> Result<DocumentContent> {
    let errors: Arc<AtomicBool> = Arc::default();
    let listing = array.listing()?;
    // Constants in conditions have the types of the latest schema's fields; without a schema, they are bytes.
    let schema = array.latest_schema().ok();
    errors.store(schema.is_none(), Ordering::Relaxed);
    let text = render_objects(&listing.commits, |commit| {
        let entry = entry(array, commit);
        if let CommitContent::Damaged(_) = entry.content {
            errors.store(true, Ordering::Relaxed);
        }
        Ok(match &schema {
            Some(schema) => entry_json(&entry, &schema_lookup(schema)),
            None => entry_json(&entry, &|_| None),
        })
    })?;
    Ok(DocumentContent::text(text).with_errors(errors))
}

fn entry(array: &Array, commit: &CommitFile) -> CommitEntry {
    let path = commit.path();
    let relative = path.strip_prefix(&array.path).expect("a file of the array");
    CommitEntry {
        name: commit.name.clone().into_bytes(),
        path: relative.as_os_str().as_bytes().to_vec(),
        kind: commit.kind,
        timestamp_range: commit.parsed.as_ref().map(|name| name.timestamps),
        format_version: commit.parsed.as_ref().map(|name| name.name_version),
        size: array.engine.storage.metadata(&path).ok().map(|file| file.len),
        content: content(array, commit).unwrap_or_else(|e| {
            log::warn!("{e}");
            CommitContent::Damaged(e.to_string())
        }),
    }
}

fn content(array: &Array, commit: &CommitFile) -> Result<CommitContent> {
    let place = |e: Error| e.in_file(array.engine.storage.display(&commit.path()));
    match commit.kind {
        CommitKind::Ok | CommitKind::Write => Ok(CommitContent::Marker),
        CommitKind::Ignore | CommitKind::Vacuum => {
            let text = read_text(&array.engine, &commit.path())?;
            let paths = parse_lines(&text).map(|path| ListedPath {
                normalised: normalise_path(path),
                path: path.to_vec(),
            });
            Ok(CommitContent::Paths(paths.collect()))
        }
        CommitKind::Consolidated => {
            let bytes = read_text(&array.engine, &commit.path())?;
            let entries = parse_consolidated(&bytes).map_err(place)?;
            let embedded = array.engine.storage.open(&commit.path())?;
            let entries = entries.into_iter().map(|entry| ConsolidatedCommit {
                condition: entry.payload.map(|(offset, _)| {
                    condition(array, &*embedded, offset, &entry.path).map_err(|e| e.to_string())
                }),
                path: entry.path,
            });
            Ok(CommitContent::Consolidated(entries.collect()))
        }
        CommitKind::Delete | CommitKind::Update => {
            let blob = array.engine.storage.open(&commit.path())?;
            let (condition, values) = condition(array, &*blob, 0, commit.name.as_bytes())?;
            Ok(CommitContent::Condition(condition, values))
        }
    }
}

/// The condition of the delete or update commit `name`, stored at `offset` of `blob`.
fn condition(array: &Array, blob: &dyn Blob, offset: u64, name: &[u8]) -> Result<StoredCondition> {
    let (_, body) = read_generic_tile_within(blob, offset, array.key.as_ref(), MAX_CONDITION)?;
    deletes::parse(name, &body).map_err(|e| e.in_part("condition").at(offset).in_file(blob.display()))
}
