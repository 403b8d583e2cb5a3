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

/// What the directory at `path` is. A failure to read it is an error: it must not make an array look like a
/// plain directory.
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
