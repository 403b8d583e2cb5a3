//! What a directory of the source is.

use super::engine::Engine;
use super::schemas::{LEGACY_SCHEMA, SCHEMA_DIRECTORY};
use crate::error::{ErrorKind, Result};
use crate::storage::EntryType;
use std::path::Path;

/// The directory of a group's details.
pub const GROUP_DIRECTORY: &str = "__group";

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

/// Tells what the directory at `path` is. A source that fails is an error: it does not make an array a plain directory.
pub fn classify(engine: &Engine, path: &Path) -> Result<ObjectKind> {
    let is = |name: &str, wanted: EntryType| match engine.storage.metadata(&path.join(name)) {
        Ok(metadata) => Ok(metadata.entry_type == wanted),
        Err(e) => match e.kind() {
            // What may not be looked into shows nothing.
            ErrorKind::Io(code) if ![libc::EACCES, libc::EPERM, libc::ELOOP].contains(&code) => Err(e),
            _ => Ok(false),
        },
    };
    if is(SCHEMA_DIRECTORY, EntryType::Directory)? || is(LEGACY_SCHEMA, EntryType::File)? {
        return Ok(ObjectKind::Array);
    }
    if is(GROUP_DIRECTORY, EntryType::Directory)? || is(GROUP_FILE, EntryType::File)? {
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
