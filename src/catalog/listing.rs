//! The contents of an array's directory at one moment: schemas, fragments, commits and metadata files.
//!
//! Nothing else of an array can change. What a reader sees at a time is a [`super::snapshot::Snapshot`] of a
//! listing.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/array_file_hierarchy.md>

use super::commits::{
    CommitFile, Committed, DeleteFile, MissingFragment, NotVisible, Replaced, Vacuum, commit_files,
    expected_until, read_text, vacuum, vacuums,
};
use super::source::{GROUP_DIRECTORY, misplaced};
use super::time::TimeRange;
use crate::calendar::now;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::format::MAX_VERSION;
use crate::format::commits::{last_component, parse_consolidated};
use crate::format::name::TimestampedName;
use crate::fragment::Fragment;
use crate::fragment::schemas::{LEGACY_SCHEMA, SCHEMA_DIRECTORY};
use crate::storage::{DirEntry, EntryType, join};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;

/// The directories that an array's state depends on.
pub const DIRECTORIES: [&str; 8] = [
    "",
    SCHEMA_DIRECTORY,
    "__commits",
    "__fragments",
    "__meta",
    "__fragment_meta",
    "__schema/__enumerations",
    "__labels",
];

/// The directory in that of schemas.
pub const ENUMERATIONS: &str = "__enumerations";

/// A `__fragments` directory of more bytes than this is listed by a thread of its own.
const LARGE_DIRECTORY: u64 = 64 << 10;

/// The file of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFile {
    /// The file's name.
    pub name: String,
    /// Start and end of the timestamp range in milliseconds; 0 for `__array_schema.tdb`.
    pub timestamps: (u64, u64),
    /// Modification time for listings: the end of the range, or the file's own if it has none.
    pub mtime: u64,
}

/// A fragment directory.
#[derive(Clone)]
pub struct FragmentEntry {
    /// The directory's name.
    pub name: String,
    /// The fragment.
    pub fragment: Arc<Fragment>,
    /// Why no reader sees it, whatever the time; None if time decides.
    pub uncommitted: Option<NotVisible>,
    /// The vacuum files that list it, as indexes into [`ArrayListing::vacuums`].
    pub vacuums: Vec<usize>,
}

/// A file of metadata (key-value pairs).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataFile {
    /// The path relative to the source.
    pub path: PathBuf,
    /// The name, parsed.
    pub parsed: TimestampedName,
}

/// The files of a `__meta` directory.
#[derive(Default)]
pub struct MetadataFiles {
    /// The files, oldest first.
    pub files: Vec<MetadataFile>,
    /// The vacuum files in the directory.
    pub(super) vacuums: Vec<Vacuum>,
}

impl MetadataFiles {
    /// The files in force in a range of time, oldest first: those in the range that no vacuum file in the
    /// range lists.
    pub fn at(&self, times: TimeRange) -> impl Iterator<Item = &MetadataFile> {
        let vacuums = self.vacuums.iter();
        let in_force = vacuums.filter(|vacuum| times.covers(vacuum.parsed.timestamps));
        let replaced: HashSet<&[u8]> = in_force
            .flat_map(|vacuum| vacuum.replaced.iter().map(Vec::as_slice))
            .collect();
        self.files.iter().filter(move |file| {
            let name = crate::fragment::file_name(&file.path);
            times.covers(file.parsed.timestamps) && !replaced.contains(name)
        })
    }
}

/// One state of an array's directory.
pub struct ArrayListing {
    /// In libtiledb's order: the legacy schema first, then by name.
    pub schemas: Vec<SchemaFile>,
    /// Oldest first.
    pub fragments: Vec<FragmentEntry>,
    /// Those in the root first, then those in `__commits`, each by name.
    pub commits: Vec<CommitFile>,
    /// The vacuum files among the commits.
    pub vacuums: Vec<Vacuum>,
    /// The delete and update files, plain and in consolidated commit files, each once, oldest first.
    pub deletes: Vec<DeleteFile>,
    /// The files of metadata.
    pub metadata: MetadataFiles,
    /// Fragments that are committed but missing, by name.
    pub missing: Vec<MissingFragment>,
    /// Why it is unknown which fragments are committed and not replaced; None if it is known.
    pub damage: Option<Error>,
    /// Paths of consolidated fragment metadata files.
    pub consolidated_metadata: Vec<PathBuf>,
    /// Indexes into `fragments`, sorted by name.
    by_name: Vec<usize>,
    /// The newest timestamp of all that was not in the future when it was read, in milliseconds: what is
    /// later would hide every change until then.
    pub mtime: u64,
    /// The first timestamp that was in the future; `u64::MAX` if there is none, or if time stands still.
    next: u64,
    /// The newest modification time of the directories of the array, its schemas, fragments, commits and
    /// metadata, in milliseconds.
    pub changed: u64,
    /// Identifies the directories of the array and of its fragments.
    identities: [Option<u64>; 2],
}

/// The entries of a directory; empty if it does not exist.
pub fn list_or_empty(engine: &Engine, path: &Path) -> Result<Vec<DirEntry>> {
    match engine.storage.list(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        result => result,
    }
}

/// [`list_or_empty`] of a directory in that of an array or a group: `NotFound` if this does not exist. Like
/// TileDB, fails if something else is in its place: nobody knows what it was.
fn list_inner(engine: &Engine, path: &Path) -> Result<Vec<DirEntry>> {
    match engine.storage.list(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            engine.storage.check_above(path)?;
            match engine.storage.is_there(path) {
                // It may have been made since, or the directory above was away.
                true => engine.storage.list(path).map_err(|e| match e.kind() {
                    ErrorKind::NotFound => misplaced(engine, path),
                    _ => e,
                }),
                false => Ok(Vec::new()),
            }
        }
        result => result,
    }
}

/// [`list_inner`] of a directory with nothing in it but files and directories; fails if something else is
/// there.
pub fn list_own(engine: &Engine, path: &Path) -> Result<Vec<DirEntry>> {
    only_known(engine, path, list_inner(engine, path)?)
}

/// `entries` of the directory at `path`, if all of them are files and directories.
fn only_known(engine: &Engine, path: &Path, entries: Vec<DirEntry>) -> Result<Vec<DirEntry>> {
    let linked = |entry: &&DirEntry| entry.linked && entry.entry_type == EntryType::Directory;
    for entry in entries.iter().filter(linked) {
        // What a link leads to may be unknown.
        engine.storage.metadata(&path.join(&entry.name))?;
    }
    match entries.iter().find(|entry| entry.entry_type == EntryType::Other) {
        Some(other) => Err(misplaced(engine, &path.join(&other.name))),
        None => Ok(entries),
    }
}

impl ArrayListing {
    /// Until when it can be used while the directories stay the same, in milliseconds since the Unix epoch:
    /// what was refused or missing may be readable a second later, and [`ArrayListing::mtime`] changes when
    /// the next timestamp is reached. Fragments of versions up to 4 are committed by a file of their own,
    /// which changes no directory of the array.
    pub(super) fn lasts_until(&self) -> u64 {
        let may_be_committed =
            |entry: &FragmentEntry| entry.uncommitted.is_some() && entry.fragment.name.name_version <= 4;
        let may_pass = self.damage.as_ref().is_some_and(Error::may_pass);
        match may_pass || self.fragments.iter().any(may_be_committed) {
            true => self.next.min(now() + 1000),
            false => self.next,
        }
    }

    /// Whether a directory is another than in the listing `before`: it may have other files of the same
    /// names.
    pub(super) fn is_moved(&self, before: &ArrayListing) -> bool {
        let mut pairs = self.identities.iter().zip(&before.identities);
        pairs.any(|(now, before)| now.is_some() && before.is_some() && now != before)
    }

    /// Reads the directories of the array at `array`. Logs and ignores damaged commit files and names that
    /// cannot be parsed. `known` returns the fragments of an earlier listing, to keep what they have read;
    /// `make` makes new ones.
    pub fn read(
        engine: &Engine,
        array: &Path,
        mut make: impl FnMut(PathBuf, &str, TimestampedName) -> Arc<Fragment>,
    ) -> Result<ArrayListing> {
        let read_at = engine.now();
        let directory = array.join("__fragments");
        let changing = ["", "__fragments", SCHEMA_DIRECTORY, "__commits", "__meta"];
        let changing = changing.map(|name| join(array, Path::new(name)));
        let looked = engine.storage.metadata_of(&changing)?;
        let changed = looked.iter().flatten().map(|metadata| metadata.mtime).max();
        let changed = changed.unwrap_or(0);
        let identities = [0, 1].map(|at: usize| looked[at].map(|metadata| metadata.identity));
        let list_fragments = || list_inner(engine, &directory);
        let (root, schemas, commits, listed) = std::thread::scope(|scope| {
            let large = looked[1].is_some_and(|metadata| metadata.len > LARGE_DIRECTORY);
            // Without another thread, this one lists them afterwards.
            let other = || Builder::new().spawn_scoped(scope, list_fragments).ok();
            let listed = large.then(other).flatten();
            let root = only_known(engine, array, engine.storage.list(array)?)?;
            let commits_directory = list_own(engine, &array.join("__commits"))?;
            let schemas = schema_files(engine, array, &root)?;
            let commits = commit_files(array, &root, &commits_directory);
            let listed = match listed.map(|thread| thread.join()) {
                None => list_fragments()?,
                Some(Ok(listed)) => listed?,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
            };
            Ok((root, schemas, commits, listed))
        })?;
        let committed = Committed::read(engine, &commits)?;
        let (vacuums, unread_vacuum) = vacuums(engine, &commits)?;
        let replaced = Replaced::by(&vacuums);

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
                    "{}: ignored: `__fragments` has a fragment of the same name",
                    path.display()
                );
                continue;
            }
            let uncommitted = committed.missing_commit(engine, &path, name, &parsed, in_fragments)?;
            fragments.push(FragmentEntry {
                name: name.to_owned(),
                uncommitted,
                vacuums: replaced.vacuums_of(name.as_bytes()),
                fragment: make(path, name, parsed),
            });
        }
        // The sort is stable: ties keep libtiledb's order, by name, root first.
        fragments.sort_by_key(|entry| entry.fragment.name.timestamps.0);

        let by_name = by_name(&fragments);
        let listed = |name: &str| position(&fragments, &by_name, name).is_some();
        // A consolidation whose fragments have lost their commits has ended: `__fragments` was listed long
        // before `__commits`, by a server between, say. If its result need not be there, all its cells are
        // missing.
        let lost = uncommitted_ends(&fragments);
        let until = |marker: &str, name: &TimestampedName| {
            let (start, end) = name.timestamps;
            let first = lost.partition_point(|lost| lost.0 < start);
            match lost.get(first).is_some_and(|lost| lost.1 <= end) {
                true => 0,
                false => expected_until(engine, array, marker),
            }
        };
        let missing = committed.without_fragment(listed, until, &replaced);
        let mut deletes: Vec<DeleteFile> = commits.iter().filter_map(DeleteFile::of).collect();
        deletes.extend(committed.deletes);
        deletes.sort_by(|a, b| (a.stamp(), &a.name).cmp(&(b.stamp(), &b.name)));
        deletes.dedup_by(|a, b| a.name == b.name);
        let damage = committed.damage.map(|(_, error)| error).or(unread_vacuum);
        let metadata = MetadataFiles::read(engine, &array.join("__meta"))?;
        let consolidated_metadata = consolidated_metadata_files(engine, array, &root)?;
        let stamps = schemas.iter().map(|schema| schema.mtime);
        let stamps = stamps.chain(fragments.iter().map(|entry| entry.fragment.name.timestamps.1));
        let in_force = metadata.at(TimeRange::until(read_at));
        let past = stamps.clone().filter(|stamp| *stamp <= read_at);
        let past = past.chain(in_force.map(|file| file.parsed.timestamps.1));
        let mtime = past.max().unwrap_or(0);
        let to_come = stamps.chain(metadata.files.iter().map(|file| file.parsed.timestamps.1));
        let to_come = to_come.filter(|stamp| *stamp > read_at && engine.at().is_none());
        let next = to_come.min().unwrap_or(u64::MAX);
        Ok(ArrayListing {
            schemas,
            fragments,
            by_name,
            commits,
            vacuums,
            deletes,
            metadata,
            missing,
            damage,
            consolidated_metadata,
            mtime,
            next,
            changed,
            identities,
        })
    }

    /// A listing with these schemas, of which `schema` is in force, these fragments, oldest first, these
    /// deletes, oldest first, and these metadata files, oldest first. All are committed, and nothing has
    /// replaced them.
    pub(super) fn of(
        schema: Option<&SchemaFile>,
        schemas: Vec<SchemaFile>,
        mut fragments: Vec<FragmentEntry>,
        deletes: Vec<DeleteFile>,
        metadata: Vec<MetadataFile>,
    ) -> ArrayListing {
        for entry in &mut fragments {
            (entry.uncommitted, entry.vacuums) = (None, Vec::new());
        }
        let names = fragments.iter().map(|entry| &entry.fragment.name);
        let names = names
            .chain(deletes.iter().map(|file| &file.parsed))
            .chain(metadata.iter().map(|file| &file.parsed));
        let schema = schema.map(|file| file.mtime);
        let mtime = names.map(|name| name.timestamps.1).chain(schema).max();
        ArrayListing {
            by_name: by_name(&fragments),
            identities: [None; 2],
            schemas,
            fragments,
            commits: Vec::new(),
            vacuums: Vec::new(),
            deletes,
            metadata: MetadataFiles {
                files: metadata,
                vacuums: Vec::new(),
            },
            missing: Vec::new(),
            damage: None,
            consolidated_metadata: Vec::new(),
            mtime: mtime.unwrap_or(0),
            next: u64::MAX,
            changed: 0,
        }
    }

    /// The names of the committed fragments in `__fragments`, in byte order, read before that directory is
    /// listed: fragments may be missing there. Skips commit files that cannot be read; [`ArrayListing::read`]
    /// reports them.
    pub fn committed(engine: &Engine, array: &Path) -> Result<Vec<String>> {
        let directory = array.join("__commits");
        let marked = |name: &str| name.strip_suffix(".wrt").map(str::to_owned);
        let mut names = Vec::new();
        for entry in list_or_empty(engine, &directory)? {
            let Some(name) = entry.name.to_str() else { continue };
            names.extend(marked(name));
            if name.ends_with(".con") {
                let bytes = read_text(engine, &directory.join(name));
                let entries = bytes
                    .and_then(|bytes| parse_consolidated(&bytes))
                    .unwrap_or_default();
                let markers = entries.iter().map(|entry| last_component(&entry.path));
                names.extend(markers.filter_map(|marker| marked(std::str::from_utf8(marker).ok()?)));
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The fragment with the directory name `name`.
    pub fn fragment(&self, name: &str) -> Option<&FragmentEntry> {
        Some(&self.fragments[self.position(name)?])
    }

    /// The index of the fragment with the directory name `name`.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        position(&self.fragments, &self.by_name, name)
    }

    /// The start and end timestamps in the names of schemas, fragments, deletes and metadata, ascending, each
    /// once.
    pub fn instants(&self) -> Vec<u64> {
        let schemas = self.schemas.iter().filter(|schema| schema.name != LEGACY_SCHEMA);
        let deletes = self.deletes.iter().map(|delete| &delete.parsed);
        let names = self.fragments.iter().map(|entry| &entry.fragment.name);
        let names = names
            .chain(deletes)
            .chain(self.metadata.files.iter().map(|file| &file.parsed));
        let stamps = schemas
            .map(|schema| schema.timestamps)
            .chain(names.map(|name| name.timestamps));
        let mut instants: Vec<u64> = stamps.flat_map(|(start, end)| [start, end]).collect();
        instants.sort_unstable();
        instants.dedup();
        instants
    }

    /// The schema in force at `time`: the last by name of those written until then, or else the first.
    pub fn schema_at(&self, time: u64) -> Option<&SchemaFile> {
        self.schemas
            .iter()
            .rfind(|schema| schema.timestamps.1 <= time)
            .or(self.schemas.first())
    }
}

/// For each of `fragments` that nothing commits, its start, and the least end of it and those behind it. They
/// are sorted by their starts.
fn uncommitted_ends(fragments: &[FragmentEntry]) -> Vec<(u64, u64)> {
    let all = fragments.iter().filter_map(|entry| match entry.uncommitted {
        Some(NotVisible::Uncommitted { .. }) => Some(entry.fragment.name.timestamps),
        _ => None,
    });
    let mut all: Vec<(u64, u64)> = all.collect();
    let mut least = u64::MAX;
    for (_, end) in all.iter_mut().rev() {
        least = least.min(*end);
        *end = least;
    }
    all
}

/// The indexes of `fragments`, sorted by name.
fn by_name(fragments: &[FragmentEntry]) -> Vec<usize> {
    let mut by_name: Vec<usize> = (0..fragments.len()).collect();
    by_name.sort_by_key(|i| &*fragments[*i].name);
    by_name
}

/// The index of the fragment of this name, given the indexes of all, sorted by name.
fn position(fragments: &[FragmentEntry], by_name: &[usize], name: &str) -> Option<usize> {
    let at = by_name.binary_search_by(|i| (*fragments[*i].name).cmp(name));
    Some(by_name[at.ok()?])
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
    for entry in list_own(engine, &array.join(SCHEMA_DIRECTORY))? {
        let Some(name) = entry.name.to_str().filter(|name| *name != ENUMERATIONS) else {
            continue;
        };
        match whole_name(name) {
            Ok(parsed) => schemas.push(SchemaFile {
                name: name.to_owned(),
                timestamps: parsed.timestamps,
                mtime: parsed.timestamps.1,
            }),
            Err(e) => {
                let path = array.join(SCHEMA_DIRECTORY).join(name);
                log::info!("{}: ignored: {e}", path.display());
            }
        }
    }
    Ok(schemas)
}

/// Parses the name of a file without extension. A file with one is something else, such as an unfinished
/// file.
pub fn whole_name(name: &str) -> Result<TimestampedName> {
    if name.contains('.') {
        return Err(Error::corrupt(format!("{name:?} has an extension")));
    }
    TimestampedName::parse(name.as_bytes())
}

/// The name of a fragment directory, parsed; None and a line in the log if it is not one.
fn fragment_name<'a>(
    parent: &Path,
    entry: &'a DirEntry,
    in_fragments: bool,
) -> Option<(&'a str, TimestampedName)> {
    if entry.entry_type != EntryType::Directory {
        // `commit_files` looks at the files in the root.
        if in_fragments {
            log::info!("{}: ignored: not a fragment", parent.join(&entry.name).display());
        }
        return None;
    }
    // All names that TileDB writes are UTF-8.
    let name = entry.name.to_str();
    if !in_fragments && name.is_some_and(|name| DIRECTORIES.contains(&name) || name == GROUP_DIRECTORY) {
        return None;
    }
    let path = || parent.join(&entry.name);
    let name = name.filter(|name| name.starts_with("__") && !name.contains('.'));
    let Some(name) = name else {
        log::info!("{}: ignored: not a fragment", path().display());
        return None;
    };
    match TimestampedName::parse(name.as_bytes()) {
        Ok(parsed) if parsed.name_version > MAX_VERSION => {
            log::warn!(
                "{}: ignored: format version {} is newer than {MAX_VERSION}, the newest supported",
                path().display(),
                parsed.name_version
            );
            None
        }
        Ok(parsed) => Some((name, parsed)),
        Err(e) => {
            log::info!("{}: ignored: {e}", path().display());
            None
        }
    }
}

impl MetadataFiles {
    /// Lists a `__meta` directory, and reads the vacuum files in it.
    pub fn read(engine: &Engine, directory: &Path) -> Result<MetadataFiles> {
        let mut all = MetadataFiles::default();
        for entry in list_own(engine, directory)? {
            let Some(name) = entry.name.to_str() else { continue };
            let path = directory.join(name);
            if name.ends_with(".vac") {
                match vacuum(engine, &path, name) {
                    // What it lists is gone as well, or says the same as what replaced it.
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    vacuum => all.vacuums.extend(vacuum?),
                }
                continue;
            }
            match whole_name(name) {
                Ok(parsed) => all.files.push(MetadataFile { path, parsed }),
                Err(e) => log::info!("{}: ignored: {e}", path.display()),
            }
        }
        all.files.sort_by_key(|file| file.parsed.timestamps.0);
        Ok(all)
    }
}

fn consolidated_metadata_files(engine: &Engine, array: &Path, root: &[DirEntry]) -> Result<Vec<PathBuf>> {
    let directory = array.join("__fragment_meta");
    let listed = list_own(engine, &directory)?;
    let in_root = root.iter().map(|entry| (array, entry));
    Ok(in_root
        .chain(listed.iter().map(|entry| (directory.as_path(), entry)))
        .filter(|(parent, e)| {
            let wanted = e.entry_type == EntryType::File && e.name.as_bytes().ends_with(b".meta");
            if !wanted && *parent == directory {
                log::info!(
                    "{}: ignored: it has no fragment metadata",
                    parent.join(&e.name).display()
                );
            }
            wanted
        })
        .map(|(parent, e)| parent.join(&e.name))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Array;
    use crate::storage::Storage;
    use crate::storage::testing::ListedBy;
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
            let to = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => copy(&entry.path(), &to),
                false => _ = fs::copy(entry.path(), to).unwrap(),
            }
        }
    }

    #[test]
    fn what_is_listed_while_the_directory_above_is_away_is_not_empty() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
        for listed in [SCHEMA_DIRECTORY, "__commits", "__fragments", "__meta"] {
            for returns in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                let root = folder.path().to_owned();
                copy(&sample, &root.join("p"));
                // The directory `p` is away when `listed` in it is listed for the first time.
                let (top, waits) = (root.clone(), AtomicBool::new(true));
                let storage = ListedBy::new(&root, move |files, path| {
                    if !path.ends_with(listed) || !waits.swap(false, Ordering::Relaxed) {
                        return files.list(path);
                    }
                    fs::rename(top.join("p"), top.join("away")).unwrap();
                    let entries = files.list(path);
                    if returns {
                        fs::rename(top.join("away"), top.join("p")).unwrap();
                    }
                    entries
                });
                let engine = Engine::new(Arc::new(storage), 1 << 20, Vec::new(), Arc::default());
                let array = Array::new(Arc::new(engine), "p/weather".into());
                if !returns {
                    let error = array.listing().err().map(|error| error.kind());
                    assert_eq!(error, Some(ErrorKind::NotFound), "{listed}");
                    fs::rename(root.join("away"), root.join("p")).unwrap();
                }
                let listing = array.listing().unwrap();
                let has = [
                    !listing.schemas.is_empty(),
                    !listing.commits.is_empty(),
                    !listing.fragments.is_empty(),
                    !listing.metadata.files.is_empty(),
                ];
                assert_eq!(has, [true; 4], "{listed}, {returns}");
                assert!(listing.missing.is_empty() && listing.damage.is_none());
            }
        }
    }

    #[test]
    fn a_fragment_that_is_listed_late_is_waited_for_unless_it_replaced_others_that_lost_their_commits() {
        let folder = tempfile::tempdir().unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample/weather");
        copy(&sample, folder.path());
        let commits = folder.path().join("__commits");
        let marker = fs::read_dir(&commits).unwrap().map(|entry| entry.unwrap());
        let marker = marker
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|e| e == "wrt"));
        let marker = marker.unwrap();
        let own = TimestampedName::parse(marker.file_stem().unwrap().as_bytes()).unwrap();
        let (start, end) = own.timestamps;
        let missing = commits.join(format!("__{start}_{}_{:032x}_22.wrt", end + 1, 7));
        fs::write(&missing, "").unwrap();
        let is_waited_for = || {
            let mut storage = ListedBy::new(folder.path(), |files, path| files.list(path));
            storage.is_remote = true;
            let engine = Engine::new(Arc::new(storage), 1 << 20, Vec::new(), Arc::default());
            let listing = Array::new(Arc::new(engine), PathBuf::new()).listing().unwrap();
            let [missing] = listing.missing.as_slice() else {
                panic!()
            };
            missing.expected_until > now()
        };
        assert!(is_waited_for());
        fs::rename(&marker, folder.path().join("marker")).unwrap();
        assert!(!is_waited_for());
        fs::rename(folder.path().join("marker"), &marker).unwrap();
        let stamp = std::time::SystemTime::now();
        for (ahead, waits) in [(3600, false), (0, true), (5, true)] {
            let file = fs::File::open(&missing).unwrap();
            file.set_modified(stamp + std::time::Duration::from_secs(ahead))
                .unwrap();
            assert_eq!(is_waited_for(), waits, "{ahead}");
        }
    }
}
