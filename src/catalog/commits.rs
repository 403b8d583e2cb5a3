//! The files that commit, ignore, vacuum and delete fragments of an array.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/array_file_hierarchy.md>
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/array/array_directory.cc>

use crate::calendar::now;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::commits::{
    ConsolidatedEntry, last_component, listed_names, normalise_path, parse_consolidated, parse_lines,
};
use crate::format::name::TimestampedName;
use crate::fragment::info::METADATA_FILE;
use crate::fragment::schemas::LEGACY_SCHEMA;
use crate::storage::{DirEntry, EntryType};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long after a commit the files of its fragment may be missing from listings, in milliseconds.
const MAX_LISTING_DELAY: u64 = 10_000;

/// The most bytes of a commit, ignore or vacuum file.
const MAX_TEXT: u64 = 256 << 20;

/// The kind of a commit file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitKind {
    /// Commits a fragment of a version below 12.
    Ok,
    /// Commits a fragment of version 12 or later.
    Write,
    /// Contains several commits.
    Consolidated,
    /// Takes commits out of consolidated commit files.
    Ignore,
    /// Hides the fragments that a consolidation has replaced.
    Vacuum,
    /// Deletes cells.
    Delete,
    /// Updates cells.
    Update,
}

impl CommitKind {
    /// The extension of the files, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            CommitKind::Ok => "ok",
            CommitKind::Write => "wrt",
            CommitKind::Consolidated => "con",
            CommitKind::Ignore => "ign",
            CommitKind::Vacuum => "vac",
            CommitKind::Delete => "del",
            CommitKind::Update => "upd",
        }
    }

    fn of(name: &str) -> Option<CommitKind> {
        use CommitKind::*;
        let extension = name.rsplit_once('.')?.1;
        [Ok, Write, Consolidated, Ignore, Vacuum, Delete, Update]
            .into_iter()
            .find(|k| k.extension() == extension)
    }
}

/// A commit, ignore, vacuum, delete or update file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFile {
    /// The file's name.
    pub name: String,
    /// Its directory, relative to the source.
    pub directory: Arc<Path>,
    /// Its kind.
    pub kind: CommitKind,
    /// The name, parsed; None if it is not of TileDB's form.
    pub parsed: Option<TimestampedName>,
}

impl CommitFile {
    /// The path relative to the source.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// A delete or update file, or the copy of one in a consolidated commit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteFile {
    /// The name of the delete or update file.
    pub name: String,
    /// The name, parsed.
    pub parsed: TimestampedName,
    /// The file that holds it, relative to the source.
    pub path: PathBuf,
    /// The offset in that file.
    pub offset: u64,
}

impl DeleteFile {
    /// A commit file as a delete; None if it is another commit or its name cannot be parsed.
    pub fn of(commit: &CommitFile) -> Option<DeleteFile> {
        let is_delete = matches!(commit.kind, CommitKind::Delete | CommitKind::Update);
        Some(DeleteFile {
            name: commit.name.clone(),
            parsed: commit.parsed.clone().filter(|_| is_delete)?,
            path: commit.path(),
            offset: 0,
        })
    }

    /// An entry of the consolidated commit file at `path` as a delete; None if it is no delete.
    pub fn embedded(path: &Path, entry: &ConsolidatedEntry) -> Option<DeleteFile> {
        let (offset, _) = entry.payload?;
        let name = last_component(&entry.path);
        Some(DeleteFile {
            name: String::from_utf8_lossy(name).into_owned(),
            parsed: TimestampedName::parse(name).ok()?,
            path: path.to_path_buf(),
            offset,
        })
    }

    /// Milliseconds since the Unix epoch. The delete applies to cells written up to then, inclusive.
    pub fn stamp(&self) -> u64 {
        self.parsed.timestamps.0
    }
}

/// A fragment that is committed but missing: who would see it cannot read the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFragment {
    /// The name of its directory.
    pub stem: String,
    /// The name, parsed.
    pub parsed: TimestampedName,
    /// Until when its files may be missing, in milliseconds since the Unix epoch: a storage may list them
    /// later than the commit. 0 if the storage does not do so.
    pub expected_until: u64,
    /// The vacuum files that list it, as indexes into those of the listing.
    pub vacuums: Vec<usize>,
}

/// A vacuum file: from its time on, readers see what replaced the fragments that it lists.
pub struct Vacuum {
    /// Its name without extension: the name of the replacing fragment.
    pub stem: String,
    /// The name, parsed.
    pub parsed: TimestampedName,
    /// The names that it lists.
    pub(super) replaced: HashSet<Vec<u8>>,
}

/// Reads a whole file of at most [`MAX_TEXT`] bytes.
pub fn read_text(engine: &Engine, path: &Path) -> Result<Vec<u8>> {
    let blob = engine.storage.open(path)?;
    if blob.len() > MAX_TEXT {
        return Err(Error::limit(format!(
            "the file has {} bytes, more than the {MAX_TEXT} allowed for a list of paths",
            blob.len()
        ))
        .at(0)
        .in_file(blob.display()));
    }
    blob.read(0, blob.len())
}

pub(super) fn commit_files(array: &Path, root: &[DirEntry], commits: &[DirEntry]) -> Vec<CommitFile> {
    let directory: Arc<Path> = array.join("__commits").into();
    let root_directory: Arc<Path> = array.into();
    let in_root = root.iter().map(|entry| (&root_directory, entry));
    in_root
        .chain(commits.iter().map(|entry| (&directory, entry)))
        // In `__commits`, TileDB does not tell directories from files.
        .filter(|(parent, entry)| entry.entry_type == EntryType::File || **parent == directory)
        .filter_map(|(parent, entry)| {
            let name = entry.name.to_str()?;
            let Some(kind) = CommitKind::of(name) else {
                let known = **parent == *array && is_of_array(name);
                if !known {
                    log::info!("{}: ignored: not a file of TileDB", parent.join(name).display());
                }
                return None;
            };
            let parsed = TimestampedName::parse(name.as_bytes()).ok();
            Some(CommitFile {
                name: name.to_owned(),
                directory: parent.clone(),
                kind,
                parsed,
            })
        })
        .collect()
}

/// Whether a file of this name belongs in an array's root but commits nothing.
fn is_of_array(name: &str) -> bool {
    matches!(name, LEGACY_SCHEMA | "__lock.tdb") || name.ends_with(".meta")
}

/// The vacuum file `name` at `path`; None if its name is invalid. `NotFound` if it is gone since.
pub(super) fn vacuum(engine: &Engine, path: &Path, name: &str) -> Result<Option<Vacuum>> {
    let Ok(parsed) = TimestampedName::parse(name.as_bytes()) else {
        return Ok(None);
    };
    let bytes = read_text(engine, path).map_err(|e| engine.incomplete(path, e))?;
    Ok(Some(Vacuum {
        stem: name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned(),
        parsed,
        replaced: parse_lines(&bytes)
            .map(|line| last_component(&normalise_path(line)).to_vec())
            .filter(|name| TimestampedName::parse(name).is_ok())
            .collect(),
    }))
}

/// `error`, of which the log tells. Fails with it if nobody waits any more.
fn warned(error: Error) -> Result<Error> {
    if error.kind() == ErrorKind::Abandoned {
        return Err(error);
    }
    log::warn!("{error}");
    Ok(error)
}

/// The vacuum files among `commits`, and the error of one that cannot be read. Fails if nobody waits any
/// more.
pub(super) fn vacuums(engine: &Engine, commits: &[CommitFile]) -> Result<(Vec<Vacuum>, Option<Error>)> {
    let files = commits.iter().filter(|commit| commit.kind == CommitKind::Vacuum);
    let files: Vec<&CommitFile> = files.collect();
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path()).collect();
    let (mut found, mut damage) = (Vec::new(), None);
    for (path, file) in engine.in_turn(&paths).zip(files) {
        match vacuum(engine, path, &file.name) {
            Ok(vacuum) => found.extend(vacuum),
            Err(e) => damage = Some(warned(e)?),
        }
    }
    Ok((found, damage))
}

/// What vacuum files list, fragments or metadata files, by name, each with the indexes of those files.
pub(super) struct Replaced<'v>(HashMap<&'v [u8], Vec<usize>>);

impl<'v> Replaced<'v> {
    pub(super) fn by(vacuums: &'v [Vacuum]) -> Replaced<'v> {
        let mut replaced: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (index, vacuum) in vacuums.iter().enumerate() {
            for name in &vacuum.replaced {
                replaced.entry(name).or_default().push(index);
            }
        }
        Replaced(replaced)
    }

    /// The vacuum files that list `name`.
    pub(super) fn vacuums_of(&self, name: &[u8]) -> Vec<usize> {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

/// The [`MissingFragment::expected_until`] of the fragment that the file `name` commits. A commit of later
/// than a moment from now tells nothing: the clock of the store differs from this one.
pub(super) fn expected_until(engine: &Engine, array: &Path, name: &str) -> u64 {
    if !engine.storage.is_remote() {
        return 0;
    }
    let written = |directory: &str| engine.storage.metadata(&array.join(directory).join(name));
    let written = written("__commits").or_else(|_| written(""));
    let latest = now().saturating_add(MAX_LISTING_DELAY);
    let stamp = written.ok().map(|written| written.mtime);
    let stamp = stamp.filter(|stamp| *stamp <= latest);
    stamp.map_or(0, |stamp| stamp.saturating_add(MAX_LISTING_DELAY))
}

/// What the commit files say of fragments.
pub(super) struct Committed<'a> {
    /// Names of commit files (`<fragment>.ok`, `<fragment>.wrt`) that exist or are in a consolidated commit
    /// file.
    pub(super) names: HashSet<Cow<'a, [u8]>>,
    /// Names of commit files that an ignore file takes out of consolidated ones.
    pub(super) ignored: HashSet<Vec<u8>>,
    /// The deletes in consolidated commit files. Ignore files do not apply to them.
    pub(super) deletes: Vec<DeleteFile>,
    /// A consolidated commit file that cannot be read, and its error.
    pub(super) damage: Option<(String, Error)>,
}

impl<'a> Committed<'a> {
    /// Reads them. Fails if nobody waits any more.
    pub(super) fn read(engine: &Engine, commits: &'a [CommitFile]) -> Result<Committed<'a>> {
        let of_kind = |kind: CommitKind| commits.iter().filter(move |c| c.kind == kind);
        let mut damage = None;
        let mut ignored = HashSet::new();
        for commit in of_kind(CommitKind::Ignore) {
            match read_text(engine, &commit.path()) {
                Ok(bytes) => ignored.extend(listed_names(&bytes)),
                Err(e) => damage = Some((commit.name.clone(), warned(e)?)),
            }
        }
        let mut deletes = Vec::new();
        let mut names: HashSet<Cow<[u8]>> = of_kind(CommitKind::Ok)
            .chain(of_kind(CommitKind::Write))
            .map(|commit| Cow::Borrowed(commit.name.as_bytes()))
            .collect();
        for commit in of_kind(CommitKind::Consolidated) {
            let entries = read_text(engine, &commit.path()).and_then(|bytes| {
                parse_consolidated(&bytes).map_err(|e| e.in_file(engine.storage.display(&commit.path())))
            });
            match entries {
                Ok(entries) => {
                    let path = commit.path();
                    let embedded = entries.iter().filter_map(|e| DeleteFile::embedded(&path, e));
                    deletes.extend(embedded);
                    names.extend(
                        entries
                            .iter()
                            .map(|entry| last_component(&entry.path).to_vec())
                            .filter(|name| !ignored.contains(name))
                            .map(Cow::Owned),
                    );
                }
                Err(e) => damage = Some((commit.name.clone(), warned(e)?)),
            }
        }
        Ok(Committed {
            names,
            ignored,
            deletes,
            damage,
        })
    }

    /// Why a fragment does not count as committed; None if it does. Those of versions 1 to 4 count if they
    /// have a metadata file: fails if that is unknown.
    pub(super) fn missing_commit(
        &self,
        engine: &Engine,
        path: &Path,
        name: &str,
        parsed: &TimestampedName,
        in_fragments: bool,
    ) -> Result<Option<NotVisible>> {
        let marker = format!("{name}.{}", if in_fragments { "wrt" } else { "ok" });
        if self.names.contains(marker.as_bytes()) {
            return Ok(None);
        }
        if parsed.name_version <= 4 {
            match engine.storage.metadata(&path.join(METADATA_FILE)) {
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if self.ignored.contains(marker.as_bytes()) {
            return Ok(Some(NotVisible::Ignored));
        }
        let damaged = self.damage.as_ref().map(|(file, _)| file.clone());
        Ok(Some(NotVisible::Uncommitted { marker, damaged }))
    }

    /// Committed fragments that are missing in `listed`, by name. `until` takes the name of a commit file,
    /// and that of the fragment. As in libtiledb, a fragment that an `.ok` file commits may be missing:
    /// readers do without it.
    pub(super) fn without_fragment(
        &self,
        listed: impl Fn(&str) -> bool,
        until: impl Fn(&str, &TimestampedName) -> u64,
        replaced: &Replaced,
    ) -> Vec<MissingFragment> {
        let missing = self.names.iter().filter_map(|marker| {
            let marker = std::str::from_utf8(marker).ok()?;
            let (stem, extension) = marker.rsplit_once('.')?;
            let commits = extension == "wrt" && !listed(stem);
            let parsed = TimestampedName::parse(stem.as_bytes()).ok().filter(|_| commits)?;
            Some(MissingFragment {
                stem: stem.to_owned(),
                expected_until: until(marker, &parsed),
                parsed,
                vacuums: replaced.vacuums_of(stem.as_bytes()),
            })
        });
        let mut missing: Vec<_> = missing.collect();
        missing.sort_by(|a, b| a.stem.cmp(&b.stem));
        missing
    }
}

/// Why a reader does not see a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotVisible {
    /// An ignore file takes its commit out of the consolidated commit files.
    Ignored,
    /// Nothing commits it.
    Uncommitted {
        /// The commit file that is missing.
        marker: String,
        /// A consolidated commit file that may contain the commit but cannot be read.
        damaged: Option<String>,
    },
    /// A vacuum file lists it.
    Vacuumed {
        /// The fragment that replaced it.
        by: String,
    },
    /// It was written later than the range of time, or ended later.
    Future((u64, u64)),
    /// It was written before the range of time, or began before it.
    Past((u64, u64)),
}

impl fmt::Display for NotVisible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotVisible::Ignored => {
                f.write_str("ignored: an ignore file takes its commit out of the consolidated commits")
            }
            NotVisible::Uncommitted {
                marker,
                damaged: None,
            } => write!(f, "uncommitted: there is no {marker}"),
            NotVisible::Uncommitted {
                marker,
                damaged: Some(damaged),
            } => write!(
                f,
                "uncommitted: there is no {marker}, and {damaged}, which may stand for it, cannot be read"
            ),
            NotVisible::Vacuumed { by } => write!(f, "vacuumed: replaced by {by}"),
            NotVisible::Future((start, end)) => {
                write!(f, "in the future: its timestamps are {start} to {end}")
            }
            NotVisible::Past((start, end)) => {
                write!(f, "in the past: its timestamps are {start} to {end}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vacuum_files_are_found_by_what_they_list() {
        let names: Vec<String> = (0..100).map(|n| format!("__{n}_{n}_{n:032x}_22")).collect();
        let vacuums = names.iter().map(|name| Vacuum {
            stem: name.clone(),
            parsed: TimestampedName::parse(name.as_bytes()).unwrap(),
            replaced: HashSet::from([name.clone().into_bytes(), b"all".to_vec()]),
        });
        let vacuums: Vec<Vacuum> = vacuums.collect();
        let replaced = Replaced::by(&vacuums);
        for (index, name) in names.iter().enumerate() {
            assert_eq!(replaced.vacuums_of(name.as_bytes()), [index]);
        }
        assert_eq!(replaced.vacuums_of(b"all").len(), 100);
        assert!(replaced.vacuums_of(b"none").is_empty());
    }
}
