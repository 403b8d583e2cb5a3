//! What an array's directory holds at one moment: schemas, fragments, commits and metadata files, and which fragments a reader would see.
//!
//! Only this can change in an array, so only this is ever looked at again.

use super::engine::Engine;
use super::fragment::Fragment;
use super::fragment_info::METADATA_FILE;
use super::schemas::{LEGACY_SCHEMA, SCHEMA_DIRECTORY};
use crate::error::{Error, ErrorKind, Result};
use crate::format::MAX_VERSION;
use crate::format::commits::{last_component, normalise_path, parse_consolidated, parse_lines};
use crate::format::name::TimestampedName;
use crate::storage::{DirEntry, EntryType, Metadata};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The directories that an array's state depends on.
const DIRECTORIES: [&str; 8] = [
    "",
    SCHEMA_DIRECTORY,
    "__commits",
    "__fragments",
    "__meta",
    "__fragment_meta",
    "__schema/__enumerations",
    "__labels",
];

/// A directory of more bytes than this is worth a thread that lists it.
const LARGE_DIRECTORY: u64 = 64 << 10;

/// The most bytes of a commit, ignore or vacuum file.
const MAX_TEXT: u64 = 256 << 20;

/// A schema's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFile {
    /// Its name.
    pub name: String,
    /// Start and end of its timestamp range in milliseconds; 0 for `__array_schema.tdb`.
    pub timestamps: (u64, u64),
    /// Modification time for show: the end of the range, or the file's own where it has none.
    pub mtime: u64,
}

/// A fragment directory.
#[derive(Clone)]
pub struct FragmentEntry {
    /// Its directory's name.
    pub name: String,
    /// The fragment.
    pub fragment: Arc<Fragment>,
    /// Why a reader would not see it; None when it would.
    pub hidden: Option<String>,
}

/// What a commit file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CommitKind {
    Ok,
    Write,
    Consolidated,
    Ignore,
    Vacuum,
    Delete,
    Update,
}

impl CommitKind {
    /// The extension of its files.
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
    /// Its name.
    pub name: String,
    /// The directory that it is in, relative to the source.
    pub directory: Arc<Path>,
    /// What it is.
    pub kind: CommitKind,
    /// Its name, parsed; None where it follows no grammar.
    pub parsed: Option<TimestampedName>,
}

impl CommitFile {
    /// Its path relative to the source.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// A file of metadata (key-value pairs).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataFile {
    /// Its path relative to the source.
    pub path: PathBuf,
    /// Its name, parsed.
    pub parsed: TimestampedName,
}

/// One state of an array's directory.
pub struct ArrayListing {
    /// In the order in which libtiledb lists them: the legacy schema first, then by name.
    pub schemas: Vec<SchemaFile>,
    /// Oldest first.
    pub fragments: Vec<FragmentEntry>,
    /// Root first, then `__commits`, each by name.
    pub commits: Vec<CommitFile>,
    /// Those in force, oldest first.
    pub metadata: Vec<MetadataFile>,
    /// Paths of consolidated fragment metadata files.
    pub consolidated_metadata: Vec<PathBuf>,
    /// Indices into `fragments` in the order of names.
    by_name: Vec<usize>,
    /// The newest timestamp of all, in milliseconds.
    pub mtime: u64,
    /// What the directories looked like before they were read.
    pub stamp: Stamp,
    /// When they were read, in milliseconds since the Unix epoch.
    pub read_at: u64,
}

/// The state of the directories that a listing was made from.
pub type Stamp = Vec<Option<(u64, u64, u64)>>;

/// Milliseconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| {
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The state of an array's directories, and the newest of their modification times. `NotFound` when the array is gone.
pub fn stamp(engine: &Engine, array: &Path) -> Result<(Stamp, u64)> {
    let mut newest = 0;
    let mut stamp = Vec::with_capacity(DIRECTORIES.len());
    for directory in DIRECTORIES {
        match engine.storage.metadata(&array.join(directory)) {
            Ok(Metadata { version, mtime, .. }) => {
                newest = newest.max(mtime);
                stamp.push(Some(version));
            }
            Err(e) if e.kind() == ErrorKind::NotFound && !directory.is_empty() => stamp.push(None),
            Err(e) => return Err(e),
        }
    }
    Ok((stamp, newest))
}

/// The entries of a directory; none where it does not exist.
pub fn list_or_empty(engine: &Engine, path: &Path) -> Result<Vec<DirEntry>> {
    match engine.storage.list(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        result => result,
    }
}

/// Names that are UTF-8; anything TileDB writes is.
fn utf8(entry: &DirEntry) -> Option<&str> {
    entry.name.to_str()
}

/// Reads a file whole, with a bound.
pub fn read_text(engine: &Engine, path: &Path) -> Result<Vec<u8>> {
    let blob = engine.storage.open(path)?;
    if blob.len() > MAX_TEXT {
        return Err(
            Error::limit(format!("a file of {} bytes where lines are expected", blob.len()))
                .at(0)
                .in_file(blob.display()),
        );
    }
    blob.read(0, blob.len())
}

/// A file's name without its extension.
fn stem(name: &[u8]) -> &[u8] {
    name.iter()
        .rposition(|&b| b == b'.')
        .and_then(|dot| name.get(..dot))
        .unwrap_or(name)
}

impl ArrayListing {
    /// Reads the directories of the array at `array`. Damaged commit files are logged and passed over, as are names that follow no grammar. `known` gives back
    /// the fragments of an earlier listing, so that what was learned of them is kept; `make` makes those that are new.
    pub fn read(
        engine: &Engine,
        array: &Path,
        sparse_latest: impl FnOnce(&[SchemaFile]) -> bool,
        mut make: impl FnMut(PathBuf, &str, TimestampedName) -> Arc<Fragment>,
    ) -> Result<ArrayListing> {
        let read_at = now();
        let (stamp, _) = stamp(engine, array)?;
        let directory = array.join("__fragments");
        let list_fragments = || list_or_empty(engine, &directory);
        let (root, schemas, commits, listed) = std::thread::scope(|scope| {
            let large = matches!(stamp.get(3), Some(Some((_, len, _))) if *len > LARGE_DIRECTORY);
            let listed = large.then(|| scope.spawn(list_fragments));
            let root = engine.storage.list(array)?;
            let commits_directory = list_or_empty(engine, &array.join("__commits"))?;
            let schemas = schema_files(engine, array, &root)?;
            let commits = commit_files(array, &root, &commits_directory);
            let listed = match listed.map(|thread| thread.join()) {
                None => list_fragments()?,
                Some(Ok(listed)) => listed?,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
            };
            Ok((root, schemas, commits, listed))
        })?;
        let visibility = Visibility::read(engine, &commits, read_at, sparse_latest(&schemas));

        let mut fragments = Vec::new();
        let in_root = root.iter().map(|entry| (array.to_path_buf(), entry, false));
        let in_directory = listed.iter().map(|entry| (directory.clone(), entry, true));
        for (parent, entry, in_fragments) in in_root.chain(in_directory) {
            let Some((name, parsed)) = fragment_name(&parent, entry, in_fragments) else {
                continue;
            };
            let path = parent.join(name);
            let twin = |other: &DirEntry| other.name.as_os_str().cmp(entry.name.as_os_str());
            if !in_fragments && listed.binary_search_by(twin).is_ok() {
                log::warn!(
                    "{}: passed over: `__fragments` has one of that name",
                    path.display()
                );
                continue;
            }
            let hidden = visibility.hidden(engine, &path, name, &parsed, in_fragments);
            fragments.push(FragmentEntry {
                name: name.to_owned(),
                fragment: make(path, name, parsed),
                hidden,
            });
        }
        // Stable: ties keep the order of names, root first, as libtiledb has it.
        fragments.sort_by_key(|entry| entry.fragment.name.timestamps.0);

        let name = |i: &usize| {
            fragments
                .get(*i)
                .map(|fragment: &FragmentEntry| fragment.name.as_str())
        };
        let mut by_name: Vec<usize> = (0..fragments.len()).collect();
        by_name.sort_by_key(name);
        let metadata = metadata_files(engine, &array.join("__meta"), read_at)?;
        let consolidated_metadata = consolidated_metadata_files(engine, array, &root)?;
        let mtime = schemas
            .iter()
            .map(|s| s.mtime)
            .chain(fragments.iter().map(|f| f.fragment.name.timestamps.1))
            .chain(metadata.iter().map(|m| m.parsed.timestamps.1))
            .max()
            .unwrap_or(0);
        Ok(ArrayListing {
            schemas,
            fragments,
            by_name,
            commits,
            metadata,
            consolidated_metadata,
            mtime,
            stamp,
            read_at,
        })
    }

    /// The fragment whose directory is called `name`.
    pub fn fragment(&self, name: &str) -> Option<&FragmentEntry> {
        let named = |i: &usize| self.fragments.get(*i).map(|fragment| fragment.name.as_str());
        let at = self.by_name.binary_search_by(|i| named(i).cmp(&Some(name)));
        self.fragments.get(*self.by_name.get(at.ok()?)?)
    }

    /// The schema that a reader opening the array now would get: the last by name of those whose time has come, or else the first.
    pub fn latest_schema(schemas: &[SchemaFile], now: u64) -> Option<&SchemaFile> {
        schemas
            .iter()
            .rfind(|schema| schema.timestamps.1 <= now)
            .or(schemas.first())
    }
}

fn schema_files(engine: &Engine, array: &Path, root: &[DirEntry]) -> Result<Vec<SchemaFile>> {
    let mut schemas = Vec::new();
    if root
        .iter()
        .any(|e| e.name == LEGACY_SCHEMA && e.entry_type == EntryType::File)
    {
        let mtime = engine.storage.metadata(&array.join(LEGACY_SCHEMA))?.mtime;
        schemas.push(SchemaFile {
            name: LEGACY_SCHEMA.to_owned(),
            timestamps: (0, 0),
            mtime,
        });
    }
    for entry in list_or_empty(engine, &array.join(SCHEMA_DIRECTORY))? {
        let Some(name) = utf8(&entry).filter(|_| entry.entry_type == EntryType::File) else {
            continue;
        };
        match whole_name(name) {
            Ok(parsed) => schemas.push(SchemaFile {
                name: name.to_owned(),
                timestamps: parsed.timestamps,
                mtime: parsed.timestamps.1,
            }),
            Err(e) => log::info!("{}: passed over among schemas: {e}", array.join(name).display()),
        }
    }
    Ok(schemas)
}

/// Parses the name of a file that has no extension: with one it is something else, a file that was never finished for example.
pub fn whole_name(name: &str) -> Result<TimestampedName> {
    if name.contains('.') {
        return Err(Error::corrupt(format!("{name:?} has an extension")));
    }
    TimestampedName::parse(name.as_bytes())
}

fn commit_files(array: &Path, root: &[DirEntry], commits: &[DirEntry]) -> Vec<CommitFile> {
    let directory: Arc<Path> = array.join("__commits").into();
    let root_directory: Arc<Path> = array.into();
    let in_root = root.iter().map(|entry| (&root_directory, entry));
    in_root
        .chain(commits.iter().map(|entry| (&directory, entry)))
        .filter(|(_, entry)| entry.entry_type == EntryType::File)
        .filter_map(|(parent, entry)| {
            let name = utf8(entry)?;
            let Some(kind) = CommitKind::of(name) else {
                let known = **parent == *array && is_of_array(name);
                if !known {
                    log::info!("{}: passed over: no file of TileDB", parent.join(name).display());
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

/// Whether a file of this name has its place in the root of an array, beside those that commit something.
fn is_of_array(name: &str) -> bool {
    matches!(name, LEGACY_SCHEMA | "__lock.tdb") || name.ends_with(".meta")
}

/// The name of a fragment directory, parsed; None, with a line in the log, for everything that is not one.
fn fragment_name<'a>(
    parent: &Path,
    entry: &'a DirEntry,
    in_fragments: bool,
) -> Option<(&'a str, TimestampedName)> {
    if entry.entry_type != EntryType::Directory {
        // Files in the root were looked at among the commits.
        if in_fragments {
            log::info!("{}: passed over: no fragment", parent.join(&entry.name).display());
        }
        return None;
    }
    if !in_fragments && utf8(entry).is_some_and(|name| DIRECTORIES.contains(&name) || name == "__group") {
        return None;
    }
    let path = || parent.join(&entry.name);
    let name = utf8(entry).filter(|name| name.starts_with("__") && !name.contains('.'));
    let Some(name) = name else {
        log::info!("{}: passed over: no fragment", path().display());
        return None;
    };
    match TimestampedName::parse(name.as_bytes()) {
        Ok(parsed) if parsed.name_version > MAX_VERSION => {
            log::warn!(
                "{}: passed over: format version {} is newer than {MAX_VERSION}",
                path().display(),
                parsed.name_version
            );
            None
        }
        Ok(parsed) => Some((name, parsed)),
        Err(e) => {
            log::info!("{}: passed over: {e}", path().display());
            None
        }
    }
}

/// Metadata files in force in a `__meta` directory: those whose time has come and that were not vacuumed, oldest first.
pub fn metadata_files(engine: &Engine, directory: &Path, now: u64) -> Result<Vec<MetadataFile>> {
    let entries = list_or_empty(engine, directory)?;
    let names: Vec<&str> = entries
        .iter()
        .filter(|e| e.entry_type == EntryType::File)
        .filter_map(utf8)
        .collect();
    let mut vacuumed = HashSet::new();
    for name in names.iter().filter(|name| name.ends_with(".vac")) {
        let in_time = TimestampedName::parse(name.as_bytes()).is_ok_and(|parsed| parsed.timestamps.1 <= now);
        match read_text(engine, &directory.join(name)) {
            Ok(bytes) if in_time => {
                vacuumed.extend(
                    parse_lines(&bytes)
                        .iter()
                        .map(|line| last_component(line).to_vec()),
                );
            }
            Ok(_) => {}
            Err(e) => log::warn!("{e}"),
        }
    }
    let mut files: Vec<MetadataFile> = names
        .iter()
        .filter(|name| !name.ends_with(".vac") && !vacuumed.contains(name.as_bytes()))
        .filter_map(|name| match whole_name(name) {
            Ok(parsed) => Some(MetadataFile {
                path: directory.join(name),
                parsed,
            }),
            Err(e) => {
                log::info!(
                    "{}: passed over among metadata: {e}",
                    directory.join(name).display()
                );
                None
            }
        })
        .filter(|file| file.parsed.timestamps.1 <= now)
        .collect();
    files.sort_by_key(|file| file.parsed.timestamps.0);
    Ok(files)
}

fn consolidated_metadata_files(engine: &Engine, array: &Path, root: &[DirEntry]) -> Result<Vec<PathBuf>> {
    let directory = array.join("__fragment_meta");
    let listed = list_or_empty(engine, &directory)?;
    let in_root = root.iter().map(|entry| (array, entry));
    Ok(in_root
        .chain(listed.iter().map(|entry| (directory.as_path(), entry)))
        .filter(|(parent, e)| {
            let wanted = e.entry_type == EntryType::File && e.name.as_bytes().ends_with(b".meta");
            if !wanted && *parent == directory {
                log::info!(
                    "{}: passed over: no fragment metadata",
                    parent.join(&e.name).display()
                );
            }
            wanted
        })
        .map(|(parent, e)| parent.join(&e.name))
        .collect())
}

/// What the commit files say of fragments.
struct Visibility<'a> {
    /// Names of commit files (`<fragment>.ok`, `<fragment>.wrt`) that exist or that a consolidated commit file contains.
    committed: HashSet<Cow<'a, [u8]>>,
    /// Names of commit files that an ignore file takes out of consolidated ones.
    ignored: HashSet<Vec<u8>>,
    /// Fragments that a vacuum file lists, and the name of that file without extension.
    vacuumed: HashMap<Vec<u8>, String>,
    /// A consolidated commit file that cannot be read, so that its fragments seem uncommitted.
    damaged: Option<String>,
    /// Whether the current schema is sparse.
    sparse: bool,
    now: u64,
}

impl<'a> Visibility<'a> {
    fn read(engine: &Engine, commits: &'a [CommitFile], now: u64, sparse: bool) -> Visibility<'a> {
        let of_kind = |kind: CommitKind| commits.iter().filter(move |c| c.kind == kind);
        let text = |commit: &CommitFile| {
            read_text(engine, &commit.path())
                .map_err(|e| log::warn!("{e}"))
                .unwrap_or_default()
        };
        let mut ignored = HashSet::new();
        for commit in of_kind(CommitKind::Ignore) {
            ignored.extend(
                parse_lines(&text(commit))
                    .iter()
                    .map(|line| last_component(line).to_vec()),
            );
        }
        let mut committed: HashSet<Cow<[u8]>> = of_kind(CommitKind::Ok)
            .chain(of_kind(CommitKind::Write))
            .map(|commit| Cow::Borrowed(commit.name.as_bytes()))
            .collect();
        let mut damaged = None;
        for commit in of_kind(CommitKind::Consolidated) {
            let entries = read_text(engine, &commit.path()).and_then(|bytes| {
                parse_consolidated(&bytes).map_err(|e| e.in_file(engine.storage.display(&commit.path())))
            });
            match entries {
                Ok(entries) => committed.extend(
                    entries
                        .iter()
                        .map(|entry| last_component(&entry.path).to_vec())
                        .filter(|name| !ignored.contains(name))
                        .map(Cow::Owned),
                ),
                Err(e) => {
                    log::warn!("{e}");
                    damaged = Some(commit.name.clone());
                }
            }
        }
        let mut vacuumed = HashMap::new();
        for commit in of_kind(CommitKind::Vacuum) {
            let in_time = commit
                .parsed
                .as_ref()
                .is_some_and(|parsed| in_time(parsed, sparse, now));
            if in_time {
                let stem = String::from_utf8_lossy(stem(commit.name.as_bytes())).into_owned();
                for line in parse_lines(&text(commit)) {
                    let path = normalise_path(&line);
                    vacuumed.insert(last_component(&path).to_vec(), stem.clone());
                }
            }
        }
        Visibility {
            committed,
            ignored,
            vacuumed,
            damaged,
            sparse,
            now,
        }
    }

    /// Why a reader opening the array now would not see a fragment; None when it would.
    fn hidden(
        &self,
        engine: &Engine,
        path: &Path,
        name: &str,
        parsed: &TimestampedName,
        in_fragments: bool,
    ) -> Option<String> {
        let marker = format!("{name}.{}", if in_fragments { "wrt" } else { "ok" });
        let committed = self.committed.contains(marker.as_bytes())
            || (parsed.name_version <= 4 && engine.storage.metadata(&path.join(METADATA_FILE)).is_ok());
        if !committed {
            return Some(if self.ignored.contains(marker.as_bytes()) {
                "ignored: an ignore file takes its commit out of the consolidated commits".into()
            } else if let Some(damaged) = &self.damaged {
                format!(
                    "uncommitted: there is no {marker}, and {damaged}, which may stand for it, cannot be read"
                )
            } else {
                format!("uncommitted: there is no {marker}")
            });
        }
        if let Some(by) = self.vacuumed.get(name.as_bytes()) {
            return Some(format!("vacuumed: replaced by {by}"));
        }
        let (start, end) = parsed.timestamps;
        (!in_time(parsed, self.sparse, self.now))
            .then(|| format!("in the future: its timestamps are {start} to {end}"))
    }
}

/// Whether a reader that opens the array `now` takes a fragment or vacuum file of this name into account. Of sparse arrays it does from the
/// start of their time on, because from version 15 cells carry their own timestamps where they differ.
fn in_time(name: &TimestampedName, sparse: bool, now: u64) -> bool {
    let (start, end) = name.timestamps;
    let from = if sparse && name.name_version >= 15 {
        start
    } else {
        end
    };
    from <= now
}
