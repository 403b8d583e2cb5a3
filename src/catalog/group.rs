//! Groups: their members, replayed from the details files, and the members' paths.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/group_file_hierarchy.md>

use super::commits::read_text;
use super::listing::{DIRECTORIES, MetadataFiles, list_own, whole_name};
use super::revalidated::Revalidated;
use super::source::{GROUP_DIRECTORY, ObjectKind, classify, classify_entered};
use super::time::TimeRange;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::generic::read_generic_tile;
use crate::format::commits::listed_names;
use crate::format::enums::ObjectType;
use crate::format::group::{GroupDetails, GroupMember};
use crate::format::name::TimestampedName;
use crate::storage::{DirEntry, EntryType, Storage, join};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The members of a group after all details files were replayed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    /// Version of the last file; None if there is none.
    pub version: Option<u32>,
    /// In the order in which they were added, without deleted ones.
    pub members: Vec<GroupMember>,
    /// Those that were removed, or replaced by another of the same name.
    pub removed: Vec<GroupMember>,
}

/// Replays details files, oldest first. A file of version 1 is a snapshot, which replaces everything before
/// it. A file of version 2 adds, replaces and removes members, identified by their name, or by their URI if
/// they have none.
pub fn replay(files: impl IntoIterator<Item = GroupDetails>) -> Group {
    let mut version = None;
    let mut members: Vec<Option<GroupMember>> = Vec::new();
    let mut removed = Vec::new();
    let mut index: HashMap<Vec<u8>, usize> = HashMap::new();
    for details in files {
        version = Some(details.version);
        if details.version == 1 {
            members.clear();
            index.clear();
        }
        for member in details.members {
            let key = member.name.as_ref().unwrap_or(&member.uri).clone();
            let known = index.get(&key).copied();
            let place = known.and_then(|i| members.get_mut(i));
            match (member.deleted, place) {
                (true, Some(place)) => {
                    index.remove(&key);
                    removed.extend(place.take());
                }
                (true, None) => {}
                (false, Some(place)) => removed.extend(place.replace(member)),
                (false, None) => {
                    index.insert(key, members.len());
                    members.push(Some(member));
                }
            }
        }
    }
    Group {
        version,
        members: members.into_iter().flatten().collect(),
        removed,
    }
}

/// Whether members were ever registered in the group at `path`. Always false for groups from before TileDB
/// 2.8, and if `__group` is empty.
fn has_details(engine: &Engine, path: &Path) -> Result<bool> {
    let entries = list_own(engine, &path.join(GROUP_DIRECTORY))?;
    Ok(entries.iter().any(|entry| entry.entry_type == EntryType::File))
}

/// What the directory at `at` in a group is, if it is a member although it is not registered. If nothing was
/// ever registered in the group (`any`), all its arrays and groups are members, and what may not be entered
/// is an error; otherwise only groups in which nothing was ever registered.
pub fn unregistered_member(engine: &Engine, at: &Path, any: bool) -> Result<Option<ObjectKind>> {
    let kind = match any {
        true => classify_entered(engine, at)?,
        false => classify(engine, at)?,
    };
    let is_member = match kind {
        ObjectKind::Group => any || !has_details(engine, at)?,
        ObjectKind::Array => any,
        ObjectKind::Directory => false,
    };
    Ok(is_member.then_some(kind))
}

/// What the registered member at `at` is. A directory that cannot be read is an error here: it may be
/// anything; so is one with parts of an array or a group, but without what tells which of them it is.
pub fn registered_member(engine: &Engine, at: &Path) -> Result<ObjectKind> {
    let kind = classify(engine, at)?;
    if kind == ObjectKind::Directory {
        let entries = engine.storage.list(at)?;
        let is_part = |entry: &DirEntry| DIRECTORIES.iter().any(|name| entry.name == *name);
        if entries.iter().any(is_part) {
            let error = Error::new(
                ErrorKind::Missing,
                "it has neither a schema nor the details of a group",
            );
            return Err(error.in_file(engine.storage.display(at)));
        }
    }
    Ok(kind)
}

/// The arrays and groups in the directory of the group at `path` that are not among the members in `group`,
/// by name. There are none if nothing was ever registered, because then they are members. Fails if it is
/// unknown what one of the directories is.
pub fn unregistered(engine: &Engine, path: &Path, group: &Group) -> Result<Vec<(Vec<u8>, ObjectType)>> {
    if !has_details(engine, path)? {
        return Ok(Vec::new());
    }
    let members = group.members.iter();
    let members = members.filter_map(|member| member_path(&*engine.storage, path, member));
    let members: HashSet<PathBuf> = members.collect();
    let mut found = Vec::new();
    for entry in engine.storage.list(path)? {
        let at = path.join(&entry.name);
        // Names of TileDB's own directories begin with two underscores.
        let own = entry.name.as_bytes().starts_with(b"__");
        if entry.entry_type != EntryType::Directory || own || members.contains(&at) {
            continue;
        }
        match classify(engine, &at) {
            Ok(ObjectKind::Array) => found.push((entry.name.into_vec(), ObjectType::Array)),
            Ok(ObjectKind::Group) => found.push((entry.name.into_vec(), ObjectType::Group)),
            Ok(ObjectKind::Directory) => {}
            // It is gone since.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Whether an entry of a group's directory is one of TileDB's own directories there.
fn is_own(entry: &DirEntry) -> bool {
    [GROUP_DIRECTORY, "__meta"].iter().any(|name| entry.name == *name)
}

/// Why a member of [`Members::outside`] is not shown.
pub const OUTSIDE: &str = "it lies outside of the source";

/// An opened group. Its members are read once for each state of its directories.
pub struct OpenGroup {
    engine: Arc<Engine>,
    path: PathBuf,
    members: Revalidated<Members>,
}

/// The contents of a group at one moment, by its own directories.
pub struct Members {
    /// The group's details, replayed.
    pub group: Group,
    /// The candidates for its listing: registered members inside the source, then the other directories of
    /// the group that never were members.
    pub places: Vec<MemberPlace>,
    /// The names of registered members outside of the source.
    pub outside: Vec<Vec<u8>>,
    /// Whether nothing was ever registered.
    pub unregistered: bool,
}

/// The location of a member that may exist.
pub struct MemberPlace {
    /// The name in listings.
    pub name: Vec<u8>,
    /// The path, relative to the source.
    pub at: PathBuf,
    /// Whether it is registered. If not, [`MemberPlace::kind`] tells whether it is a member.
    pub registered: bool,
    /// Whether it is a directory of the group itself that no other member refers to.
    pub in_place: bool,
}

impl MemberPlace {
    /// What lies at the place, one of `members`; None if it is no member. `NotFound` if there is nothing.
    pub fn kind(&self, engine: &Engine, members: &Members) -> Result<Option<ObjectKind>> {
        match self.registered {
            true => registered_member(engine, &self.at).map(Some),
            false => unregistered_member(engine, &self.at, members.unregistered),
        }
    }
}

impl OpenGroup {
    /// The group at `path`. Reads nothing.
    pub fn new(engine: Arc<Engine>, path: PathBuf) -> Self {
        let directories = vec![path.clone(), path.join(GROUP_DIRECTORY)];
        OpenGroup {
            engine,
            path,
            members: Revalidated::new(directories),
        }
    }

    /// Shared state.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The group's directory, relative to the source.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directories that were members once, by the details of the group. Some may be members again.
    pub fn removed(&self, details: &Group) -> HashSet<PathBuf> {
        let removed = details.removed.iter();
        let paths = removed.filter_map(|member| member_path(&*self.engine.storage, &self.path, member));
        paths.collect()
    }

    /// The newest of the times at which `directories` in it changed, in milliseconds since the Unix epoch.
    /// Lists them in an object store. What cannot be found has none.
    pub fn changed(&self, directories: &[&str]) -> u64 {
        let paths = directories.iter().map(|name| join(&self.path, Path::new(name)));
        let found = paths.filter_map(|path| self.engine.storage.metadata(&path).ok());
        found.map(|metadata| metadata.mtime).max().unwrap_or(0)
    }

    /// Makes the next call look at the directories, however recent the last look is, and of an object store
    /// at listings that were not begun before `time`, in milliseconds since the Unix epoch.
    pub(crate) fn look_again_since(&self, time: u64) {
        let directories =
            ["", GROUP_DIRECTORY, "__meta"].map(|directory| join(&self.path, Path::new(directory)));
        self.engine.forget_listings_before(&directories, time);
        self.members.look_again();
    }

    /// The members; at most a tenth of a second old. Fails if the details cannot be read: then nobody knows
    /// which there are. A failure is not kept.
    pub fn members(&self) -> Result<Arc<Members>> {
        self.members.get(&self.engine, || Ok(()), |_| self.read_members())
    }

    /// A number for the state of `members`; None if they may have changed since.
    pub fn state(&self, members: &Arc<Members>) -> Option<u64> {
        self.members.state(members)
    }

    fn read_members(&self) -> Result<(Members, u64)> {
        let (group, mut until) = match read_group(&self.engine, &self.path) {
            // A listing may be older than a vacuum.
            Err(error) if error.kind() == ErrorKind::Missing => {
                let directory = self.path.join(GROUP_DIRECTORY);
                self.engine.storage.forget(&directory, Duration::ZERO);
                read_group(&self.engine, &self.path)?
            }
            found => found?,
        };
        let entries = self.engine.storage.list(&self.path)?.into_iter();
        let directories = entries
            .filter(|entry| entry.entry_type == EntryType::Directory && !is_own(entry))
            .map(|entry| (self.path.join(&entry.name), entry.name));
        let directories: Vec<(PathBuf, OsString)> = directories.collect();
        let removed = self.removed(&group);
        let written = group.members.iter();
        let written = written.map(|member| member_path(&*self.engine.storage, &self.path, member));
        let written: Vec<Option<PathBuf>> = written.collect();
        // Those that the details say nothing of.
        let free = directories.iter().map(|(at, _)| at);
        let mut free: HashSet<&PathBuf> = free.filter(|at| !removed.contains(*at)).collect();
        for at in written.iter().flatten() {
            free.remove(at);
        }
        let mut seen = HashSet::new();
        let mut places = Vec::new();
        let mut outside = Vec::new();
        for (member, written) in group.members.iter().zip(&written) {
            let Some(name) = member_name(member) else {
                continue;
            };
            let moved = self.moved(member).filter(|at| free.contains(at));
            let moved = match (moved, written) {
                (Some(at), Some(written)) => {
                    // What is there may change without a change of the group.
                    until = 0;
                    self.is_missing(written)?.then_some(at)
                }
                (moved, _) => moved,
            };
            if let Some(at) = &moved {
                free.remove(at);
            }
            let Some(at) = moved.or_else(|| written.clone()) else {
                let (path, uri) = (self.path.display(), member.uri.escape_ascii());
                log::info!("{path}: member {uri} is not shown: {OUTSIDE}");
                outside.push(name.to_vec());
                continue;
            };
            places.push(MemberPlace {
                name: name.to_vec(),
                in_place: at.parent() == Some(&self.path) && seen.insert(at.clone()),
                registered: true,
                at,
            });
        }
        let directories = directories.into_iter();
        let unregistered = directories.filter(|(at, _)| !seen.contains(at) && !removed.contains(at));
        places.extend(unregistered.map(|(at, name)| MemberPlace {
            name: name.into_vec(),
            at,
            registered: false,
            in_place: true,
        }));
        let members = Members {
            group,
            places,
            outside,
            unregistered: !has_details(&self.engine, &self.path)?,
        };
        Ok((members, until))
    }

    /// The directory in the group where a member is if the group was moved or copied: then its details name
    /// another place by an absolute URI. None if the URI is relative.
    fn moved(&self, member: &GroupMember) -> Option<PathBuf> {
        let name = last_segment(&member.uri).filter(|_| !member.relative)?;
        Some(self.path.join(OsStr::from_bytes(name)))
    }

    /// Whether there is nothing at `path`.
    fn is_missing(&self, path: &Path) -> Result<bool> {
        match classify(&self.engine, path) {
            Err(error) if error.is_transient() => Err(error),
            found => Ok(found.is_err_and(|error| error.kind() == ErrorKind::NotFound)),
        }
    }
}

/// Memory of a member besides its names, and the most for all members of a group (some 100,000), in bytes.
const MEMBER_MEMORY: u64 = 256;
const MAX_MEMBERS_MEMORY: u64 = 32 << 20;

/// Reads the details of the group at `path`: its registered members, and until when they are these if nothing
/// is written, in milliseconds since the Unix epoch. `u64::MAX` if no details have a time to come.
pub fn read_group(engine: &Engine, path: &Path) -> Result<(Group, u64)> {
    let directory = path.join(GROUP_DIRECTORY);
    let entries = list_own(engine, &directory)?;
    let names: Vec<&str> = entries.iter().filter_map(|e| e.name.to_str()).collect();
    let mut vacuumed = HashSet::new();
    for name in names.iter().filter(|name| name.ends_with(".vac")) {
        match read_text(engine, &directory.join(name)) {
            Ok(bytes) => vacuumed.extend(listed_names(&bytes)),
            Err(e) if e.is_transient() => return Err(e),
            Err(e) => log::warn!("{e}"),
        }
    }
    let now = engine.now();
    let mut files: Vec<(TimestampedName, &str)> = names
        .into_iter()
        .filter(|name| !name.ends_with(".vac") && !vacuumed.contains(name.as_bytes()))
        .filter_map(|name| match whole_name(name) {
            Ok(parsed) => Some((parsed, name)),
            Err(e) => {
                log::info!("{}: ignored: {e}", directory.join(name).display());
                None
            }
        })
        .collect();
    let to_come = files.iter().map(|(parsed, _)| parsed.timestamps.1);
    let next = to_come.filter(|time| *time > now).min();
    let until = next.filter(|_| engine.at().is_none()).unwrap_or(u64::MAX);
    files.retain(|(parsed, _)| parsed.timestamps.1 <= now);
    files.sort_by_key(|(parsed, _)| parsed.timestamps.0);
    // A file of version 1 is a snapshot of all members: only the last counts.
    let snapshot = files
        .last()
        .is_some_and(|(latest, _)| latest.version.is_none_or(|version| version == 1));
    let from = if snapshot { files.len() - 1 } else { 0 };
    let mut memory = 0u64;
    let paths = files.iter().skip(from).map(|(_, name)| directory.join(name));
    let paths: Vec<PathBuf> = paths.collect();
    let details = engine.in_turn(&paths).map(|file| {
        let read = || {
            let blob = engine.storage.open(file)?;
            let (_, body) = read_generic_tile(&*blob, 0, engine.key_for(path))?;
            Ok((blob, body))
        };
        let (blob, body) = read().map_err(Error::missing_if_not_found)?;
        let place = |e: Error| e.in_part("group details").in_file(blob.display());
        let members = GroupDetails::count(&body).map_err(place)?;
        memory = memory
            .saturating_add(members.saturating_mul(MEMBER_MEMORY))
            .saturating_add(body.len() as u64);
        if memory > MAX_MEMBERS_MEMORY {
            return Err(place(Error::limit(format!(
                "{members} members take more than the {MAX_MEMBERS_MEMORY} bytes of memory allowed"
            ))));
        }
        GroupDetails::parse(&body).map_err(place)
    });
    Ok((replay(details.collect::<Result<Vec<_>>>()?), until))
}

/// The paths of a group's metadata files in force, oldest first.
pub fn group_metadata(engine: &Engine, path: &Path) -> Result<Vec<PathBuf>> {
    let files = MetadataFiles::read(engine, &path.join("__meta"))?;
    let in_force = files.at(TimeRange::until(engine.now()));
    Ok(in_force.map(|file| file.path.clone()).collect())
}

/// The path of a member of the group at `group` of `storage`, relative to the source; None if it is outside.
pub fn member_path(storage: &dyn Storage, group: &Path, member: &GroupMember) -> Option<PathBuf> {
    let uri = Path::new(OsStr::from_bytes(&member.uri));
    let path = if member.relative {
        group.join(uri.strip_prefix("/").unwrap_or(uri))
    } else {
        storage.inside(&member.uri)?
    };
    normalise(&path)
}

/// Resolves `.` and `..` textually; None if that leads above the source.
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

/// The name of a member in listings: its own, or the last segment of its URI. None if it has neither.
fn member_name(member: &GroupMember) -> Option<&[u8]> {
    match &member.name {
        Some(name) if !name.is_empty() => Some(name),
        _ => last_segment(&member.uri),
    }
}

/// The last segment of a URI that is not empty.
fn last_segment(uri: &[u8]) -> Option<&[u8]> {
    uri.rsplit(|&b| b == b'/').find(|segment| !segment.is_empty())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::format::testing::Bytes;
    use crate::query::testing::{UUID, generic};
    use crate::storage::{LocalStorage, MemoryStorage};
    use nix::unistd::{Uid, setfsuid};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    pub(crate) fn member(name: Option<&str>, uri: &str, deleted: bool) -> GroupMember {
        GroupMember {
            object_type: ObjectType::Array,
            relative: true,
            uri: uri.into(),
            name: name.map(|name| name.into()),
            deleted,
        }
    }

    fn details(version: u32, members: Vec<GroupMember>) -> GroupDetails {
        GroupDetails { version, members }
    }

    fn uris(group: &Group) -> Vec<&str> {
        let uris = group.members.iter().map(|m| std::str::from_utf8(&m.uri));
        uris.map(Result::unwrap).collect()
    }

    #[test]
    fn what_may_not_be_entered_may_be_a_member() {
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let modes = [("open", 0o755), ("readable", 0o444), ("closed", 0)];
        for (name, mode) in modes {
            fs::create_dir(folder.path().join(name)).unwrap();
            set(&folder.path().join(name), mode);
        }
        set(folder.path(), 0o755);
        let storage = LocalStorage::new(folder.path(), false, Arc::default()).unwrap();
        let engine = Engine::new(Arc::new(storage), 1, Vec::new(), Arc::default());
        // Root may enter everything: this thread is another user's for a while.
        let before = setfsuid(Uid::from_raw(65534));
        let found =
            modes.map(|(name, _)| [true, false].map(|any| unregistered_member(&engine, name.as_ref(), any)));
        setfsuid(before);
        let errno = |result: &Result<Option<ObjectKind>>| result.as_ref().map_err(Error::errno).copied();
        let errnos = found.each_ref().map(|found| found.each_ref().map(errno));
        assert_eq!(
            errnos,
            [
                [Ok(None), Ok(None)],
                [Err(libc::EACCES), Ok(None)],
                [Err(libc::EACCES), Ok(None)]
            ]
        );
    }

    /// Each listing looks into all candidates.
    #[test]
    fn directories_of_the_group_itself_are_no_candidates() {
        let folder = tempfile::tempdir().unwrap();
        for name in [GROUP_DIRECTORY, "__meta", "__other", "array"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let storage = LocalStorage::new(folder.path(), false, Arc::default()).unwrap();
        let engine = Engine::new(Arc::new(storage), 1, Vec::new(), Arc::default());
        let members = OpenGroup::new(Arc::new(engine), PathBuf::new())
            .members()
            .unwrap();
        let names: Vec<&[u8]> = members.places.iter().map(|place| &*place.name).collect();
        assert_eq!(names, [&b"__other"[..], b"array"]);
    }

    /// GDAL registers arrays by absolute URIs.
    #[test]
    fn members_of_a_group_that_was_moved_are_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("group");
        for directory in [GROUP_DIRECTORY, "l_0", "l_1", "there", "other"] {
            fs::create_dir_all(group.join(directory)).unwrap();
        }
        fs::create_dir(folder.path().join("there")).unwrap();
        let here = format!("file://{}", folder.path().display());
        // Absolute URIs: of an old place elsewhere, of one in the source, of what is there, of what another
        // member has, of what is nowhere.
        let members = [
            (0, "file:///old/l_0".to_owned()),
            (0, format!("{here}/old/l_1")),
            (0, format!("{here}/there")),
            (1, "other".to_owned()),
            (0, "s3://bucket/other".to_owned()),
            (0, "file:///old/l_2".to_owned()),
        ];
        let head = Bytes::default().u32(2).u64(members.len() as u64);
        let body = members.iter().fold(head, |body, (relative, uri)| {
            let member = body.u32(2).u8(ObjectType::Array as u8).u8(*relative);
            member.text64(uri).u8(0).u8(0)
        });
        let details = group.join(GROUP_DIRECTORY).join(format!("__1_1_{UUID}_2"));
        fs::write(details, generic(&body.bytes)).unwrap();
        let storage = LocalStorage::new(folder.path(), false, Arc::default()).unwrap();
        let engine = Engine::new(Arc::new(storage), 1, Vec::new(), Arc::default());
        let members = OpenGroup::new(Arc::new(engine), "group".into());
        let members = members.members().unwrap();
        let registered = members.places.iter().filter(|place| place.registered);
        let registered = registered.map(|place| place.at.to_str().unwrap());
        assert_eq!(
            registered.collect::<Vec<_>>(),
            ["group/l_0", "group/l_1", "there", "group/other"]
        );
        assert_eq!(members.outside, [&b"other"[..], b"l_2"]);
        let others = members.places.iter().filter(|place| !place.registered);
        let others = others.map(|place| place.at.to_str().unwrap());
        assert_eq!(others.collect::<Vec<_>>(), ["group/there"]);
    }

    #[test]
    fn changes_are_replayed_by_name_or_uri() {
        let group = replay([
            details(2, vec![member(Some("n"), "a", false), member(None, "b", false)]),
            details(2, vec![member(None, "c", false), member(Some("n"), "a2", false)]),
            details(2, vec![member(None, "b", true), member(None, "never", true)]),
        ]);
        assert_eq!(uris(&group), ["a2", "c"]);
        // Members are identified by name, not by URI.
        let group = replay([
            details(2, vec![member(Some("n"), "a", false)]),
            details(2, vec![member(None, "a", true)]),
        ]);
        assert_eq!(uris(&group), ["a"]);
        // A member removed and added again comes after those that stayed.
        let group = replay([
            details(2, vec![member(None, "a", false), member(None, "b", false)]),
            details(2, vec![member(None, "a", true), member(None, "a", false)]),
        ]);
        assert_eq!(uris(&group), ["b", "a"]);
        let group = replay([
            details(2, vec![member(Some("n"), "a", false), member(None, "b", false)]),
            details(2, vec![member(Some("n"), "a", true), member(None, "never", true)]),
        ]);
        assert_eq!(group.removed, [member(Some("n"), "a", false)]);
        // Neither directory is a member any more, whatever has the name now.
        let group = replay([
            details(2, vec![member(Some("n"), "a", false)]),
            details(2, vec![member(Some("n"), "b", false)]),
            details(2, vec![member(Some("n"), "b", true)]),
            details(2, vec![member(Some("n"), "c", false)]),
        ]);
        assert_eq!(uris(&group), ["c"]);
        assert_eq!(
            group.removed,
            [member(Some("n"), "a", false), member(Some("n"), "b", false)]
        );
    }

    #[test]
    fn a_snapshot_replaces_all_before_it() {
        let group = replay([
            details(1, vec![member(None, "a", false), member(None, "b", false)]),
            details(1, vec![member(None, "b", false)]),
        ]);
        assert_eq!((group.version, uris(&group)), (Some(1), vec!["b"]));
    }

    #[test]
    fn members_elsewhere_are_told_apart() {
        let at = |relative, uri: &str| {
            let member = GroupMember {
                relative,
                ..member(None, uri, false)
            };
            member_path(&MemoryStorage::new(), Path::new("g/h"), &member)
        };
        assert_eq!(at(true, "a"), Some("g/h/a".into()));
        assert_eq!(at(true, "../a/./b"), Some("g/a/b".into()));
        assert_eq!(at(true, "../../../a"), None);
        assert_eq!(at(false, "file:///a"), Some("a".into()));
        assert_eq!(at(false, "/g/./h/a"), Some("g/h/a".into()));
        assert_eq!(at(false, "file:///../a"), None);
        assert_eq!(at(false, "s3://bucket/a"), None);
    }
}
