//! What groups export: `dataset.zarr/`, `dataset.nc` and `dataset.json`, or for an image `image.ome.zarr/`
//! and `dataset.json`; see [`crate::export::dataset`].
//!
//! All exist by name, unless there is nothing to export. A listing shows all or none of them: none in stores,
//! where a group is listed with few requests, and none of large groups. A member of such a name is shown
//! instead.

use super::context::Context;
use super::document::{Document, DocumentContent};
use super::node::{DirectoryKind, File, Freshness, Node, NodeType, of_object};
use super::permissions::Origin;
use super::shown_group::ShownGroup;
use super::view_source::place;
use super::zarr::{AsZarr, ZarrGroupDirectory};
use crate::catalog::group::{Members, OUTSIDE, OpenGroup, unregistered};
use crate::catalog::source::ObjectKind;
use crate::describe::dataset::dataset_json;
use crate::describe::render;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::export::dataset::{Dataset, DatasetSource, Kind, MAX_LISTED_ARRAYS, listed};
use crate::export::joined::SourceArray;
use crate::export::zarr::ZarrGroup;
use crate::format::enums::ObjectType;
use crate::layout::FileLayout;
use crate::runtime::lock;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The names of a group's exports.
const ZARR: &str = "dataset.zarr";
const NETCDF: &str = "dataset.nc";
const JSON: &str = "dataset.json";
const IMAGE: &str = "image.ome.zarr";

/// The most groups of a data set.
const MAX_GROUPS: usize = 256;

/// Why a group is left out that has two places: two members, or a member elsewhere.
const MET_BEFORE: &str = "the data set has it in another place";

impl ShownGroup {
    /// The export of this name; None if no export is called so. `NotFound`, with the reason, if the group has
    /// none. If that is unknown, a node whose accesses fail.
    pub fn find(&self, name: &OsStr) -> Result<Option<Node>> {
        let (shown, name) = (self.clone(), name.to_str().unwrap_or_default());
        let node = match name {
            ZARR | IMAGE => {
                let path = Vec::new();
                Node::Directory(Arc::new(ZarrGroupDirectory(ZarrOfGroup { shown, path })))
            }
            NETCDF => GroupFile::node(shown, Exported::NetCdf),
            JSON => return Ok(Some(self.document())),
            _ => return Ok(None),
        };
        let reason = match self.dataset() {
            Ok(dataset) => match (dataset.kind, name) {
                (Kind::Image, IMAGE) => dataset.absent.clone(),
                (Kind::Image, _) => Some(format!("the arrays are resolutions of one image: see {IMAGE}")),
                (_, IMAGE) => Some("the group is no image".to_owned()),
                (_, NETCDF) => dataset.absent_netcdf.clone(),
                _ => dataset.absent.clone(),
            },
            Err(_) => None,
        };
        match reason {
            Some(reason) => Err(Error::not_found(reason)),
            None => Ok(Some(node)),
        }
    }

    /// The exports that listings show. `shown` has what the directory of each member shows, if it has one.
    /// What the data set is made of is put into `in_use`.
    pub fn listed(
        &self,
        members: &Members,
        shown: &[Option<DirectoryKind>],
        in_use: &Mutex<Option<DatasetSource>>,
    ) -> Vec<(&'static str, NodeType)> {
        let hidden = self.context.exports.hide || self.context.engine.storage.is_remote();
        let registered = members.places.iter().filter(|place| place.registered).count();
        if hidden || registered > MAX_LISTED_ARRAYS {
            return Vec::new();
        }
        let source = self.source(MAX_LISTED_ARRAYS, Some((members, shown)));
        let kind = source.and_then(|source| {
            let kind = listed(&source);
            let before = lock(in_use).replace(source);
            drop(before);
            kind
        });
        let usual = vec![
            (ZARR, NodeType::Directory),
            (NETCDF, NodeType::File),
            (JSON, NodeType::File),
        ];
        match kind {
            Ok(Some(Kind::Image)) => vec![(IMAGE, NodeType::Directory), (JSON, NodeType::File)],
            // Accessing what is not known to exist reports the error.
            Ok(Some(_)) => usual,
            Err(error) if error.is_transient() => usual,
            Ok(None) => Vec::new(),
            Err(error) => {
                log::info!("{}: its data set is not listed: {error}", self.display());
                Vec::new()
            }
        }
    }

    /// The data set now.
    pub fn dataset(&self) -> Result<Arc<Dataset>> {
        let path = self.group.path().to_path_buf();
        let find = || self.source(usize::MAX, None);
        self.placed(self.context.datasets.current(path, find))
    }

    /// What its data set is made of; `LimitExceeded` if that is more than `arrays` arrays.
    fn source(&self, arrays: usize, listed: Option<ListedMembers>) -> Result<DatasetSource> {
        let groups = HashSet::from([self.group.path().to_path_buf()]);
        let mut walk = Walk { groups, arrays };
        source(&self.context, &self.group, listed, &mut walk)
    }

    /// Adds the group to an error without a file.
    pub fn placed<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| place(error, &self.display()))
    }

    /// The group's directory, for errors without a file.
    pub fn display(&self) -> String {
        self.group.engine().storage.display(self.group.path())
    }

    /// Modification time in milliseconds since the Unix epoch; 0 if it is unknown.
    pub fn mtime(&self) -> u64 {
        self.dataset().map_or(0, |dataset| dataset.mtime())
    }

    /// All that a data set is made of; nothing that others may read if that is unknown.
    pub fn origin(&self) -> Origin {
        Origin::of_joined(self.dataset())
    }

    fn document(&self) -> Node {
        let document = Document {
            engine: self.group.engine().clone(),
            of: self.group.path().to_path_buf(),
            name: JSON,
            mtime: self.mtime(),
            freshness: Freshness::Listing,
            origin: self.origin(),
        };
        let (of_state, shown) = (self.clone(), self.clone());
        document.node(
            move || of_state.dataset().ok().map(|dataset| dataset.version()),
            move || Ok(DocumentContent::text(render(&dataset_json(&*shown.dataset()?)?))),
        )
    }
}

/// The members that a listing was of, and what the directory of each shows, if it has one.
type ListedMembers<'m> = (&'m Members, &'m [Option<DirectoryKind>]);

/// A walk through a group and those in it.
struct Walk {
    /// The groups that were met.
    groups: HashSet<PathBuf>,
    /// How many arrays there may still be.
    arrays: usize,
}

/// What a data set of `group` is made of. Reads names.
fn source(
    context: &Arc<Context>,
    group: &Arc<OpenGroup>,
    listed: Option<ListedMembers>,
    walk: &mut Walk,
) -> Result<DatasetSource> {
    let engine = &context.engine;
    let members = group.members()?;
    let known = &members.group;
    let mut found = DatasetSource {
        group: group.clone(),
        arrays: Vec::new(),
        groups: Vec::new(),
        left_out: Vec::new(),
    };
    let mut groups = Vec::new();
    // There may be other members since the listing.
    let listed = listed.filter(|(of, _)| std::ptr::eq(*of, &*members));
    for (number, member) in members.places.iter().enumerate() {
        let shown = listed.and_then(|(_, shown)| shown[number]);
        let kind = match shown {
            Some(DirectoryKind::Array) => Ok(Some(ObjectKind::Array)),
            Some(DirectoryKind::Group) => Ok(Some(ObjectKind::Group)),
            _ => member.kind(engine, &members),
        };
        let reason = match kind {
            Ok(Some(ObjectKind::Array)) => {
                if !context.is_later(&member.at)? {
                    let left = walk.arrays.checked_sub(1);
                    walk.arrays = left.ok_or_else(|| Error::limit("too many arrays"))?;
                    let array = SourceArray::new(context.array(&member.at));
                    found.arrays.push((member.name.clone(), array));
                }
                continue;
            }
            Ok(Some(ObjectKind::Group)) => {
                groups.push((member.name.clone(), member.at.clone()));
                continue;
            }
            Ok(Some(ObjectKind::Directory)) => "it is neither an array nor a group",
            Err(error) if error.kind() == ErrorKind::NotFound => "it is missing",
            Ok(None) => continue,
            Err(error) => return Err(error),
        };
        let name = String::from_utf8_lossy(&member.name).into_owned();
        found.left_out.push((name, reason.to_owned()));
    }
    for name in &members.outside {
        let name = String::from_utf8_lossy(name).into_owned();
        found.left_out.push((name, OUTSIDE.to_owned()));
    }
    // TileDB-CF does not register groups in groups. Those that nobody ever registered anything in are members
    // already.
    let mut others = group.removed(known);
    others.extend(groups.iter().map(|(_, at)| at.clone()));
    for (name, kind) in unregistered(engine, group.path(), known)? {
        let at = group.path().join(OsStr::from_bytes(&name));
        if kind == ObjectType::Group && !others.contains(&at) {
            groups.push((name, at));
        }
    }
    for (name, at) in groups {
        // Through links, a few groups have any number of paths.
        let reason = match engine.storage.is_link(&at) {
            true => Some("it is a link"),
            false if walk.groups.insert(at.clone()) => None,
            false => Some(MET_BEFORE),
        };
        if let Some(reason) = reason {
            let name = String::from_utf8_lossy(&name).into_owned();
            found.left_out.push((name, reason.to_owned()));
            continue;
        }
        if walk.groups.len() > MAX_GROUPS {
            return Err(Error::limit(format!(
                "a data set of more than {MAX_GROUPS} groups"
            )));
        }
        let inner = source(context, &context.group(&at), None, walk)?;
        found.groups.push((name, inner));
    }
    Ok(found)
}

/// `dataset.zarr/` or `image.ome.zarr/`, or a group in it.
#[derive(Clone)]
struct ZarrOfGroup {
    shown: ShownGroup,
    /// The names of the groups that lead to it.
    path: Vec<String>,
}

impl AsZarr for ZarrOfGroup {
    fn group(&self) -> Result<ZarrGroup> {
        let mut group = self.shown.placed(self.shown.dataset()?.zarr())?;
        for name in &self.path {
            let missing = || Error::not_found(format!("there is no group {name:?}"));
            group = group.group(name).ok_or_else(missing)?;
        }
        Ok(group)
    }

    fn inner(&self, name: &str) -> Option<ZarrOfGroup> {
        let mut inner = self.clone();
        inner.path.push(name.to_owned());
        Some(inner)
    }

    fn chunk(&self, array: String, numbers: Vec<u64>) -> Node {
        GroupFile::node(self.shown.clone(), Exported::Chunk(self.clone(), array, numbers))
    }

    fn place(&self, error: Error) -> Error {
        place(error, &self.shown.display())
    }

    fn directory(&self) -> (Arc<Engine>, PathBuf) {
        let group = &self.shown.group;
        let top = group.path().join(ZARR);
        let directory = self.path.iter().fold(top, |path, name| path.join(name));
        (group.engine().clone(), directory)
    }

    fn state(&self) -> Option<u64> {
        Some(self.shown.dataset().ok()?.version())
    }

    of_object!(self => self.shown);
}

/// What a file exports of a group.
enum Exported {
    /// `dataset.nc`
    NetCdf,
    /// A chunk: its group, the name of its array, its numbers along the axes.
    Chunk(ZarrOfGroup, String, Vec<u64>),
}

/// A file that exports a group.
struct GroupFile {
    shown: ShownGroup,
    exported: Exported,
}

impl GroupFile {
    /// The file `exported` of a group.
    fn node(shown: ShownGroup, exported: Exported) -> Node {
        Node::File(Arc::new(GroupFile { shown, exported }))
    }

    fn layout(&self) -> Result<FileLayout> {
        match &self.exported {
            Exported::NetCdf => self.shown.dataset()?.netcdf(),
            Exported::Chunk(group, array, numbers) => group.group()?.array(array)?.chunk(numbers),
        }
    }
}

impl File for GroupFile {
    of_object!(self => self.shown);

    fn open(&self) -> Result<Arc<FileLayout>> {
        let layout = self.shown.placed(self.layout())?;
        Ok(Arc::new(layout.of(self.shown.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::Bytes;
    use crate::query::testing::{UUID, generic};
    use crate::storage::Storage;
    use crate::storage::testing::ListedBy;
    use crate::tree::{Tree, TreeOptions};
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn exports_are_listed_while_it_is_unknown_whether_they_exist() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
        let fails = Arc::new(AtomicBool::new(true));
        let failing = fails.clone();
        let storage = ListedBy::new(&sample, move |files, path| {
            match path.ends_with("__schema") && failing.load(Ordering::Relaxed) {
                true => {
                    Err(Error::new(ErrorKind::Io(libc::EIO), "told to fail").in_file(files.display(path)))
                }
                false => files.list(path),
            }
        });
        let tree = Tree::over(Arc::new(storage), &TreeOptions::default(), Arc::default()).unwrap();
        let Node::Directory(root) = tree.root else {
            unreachable!()
        };
        // Of the sample no array can be a variable.
        for failing in [true, false] {
            fails.store(failing, Ordering::Relaxed);
            let listing = root.list().unwrap();
            for name in [ZARR, NETCDF, JSON] {
                let is_listed = listing.entries().any(|(listed, _)| *listed == *name);
                assert_eq!(is_listed, failing, "{name}");
            }
            match root.lookup(OsStr::new(NETCDF)) {
                Ok(Some(Node::File(file))) => assert!(failing && file.open().is_err()),
                Ok(_) => unreachable!(),
                Err(error) => assert!(!failing && error.kind() == ErrorKind::NotFound),
            }
        }
    }

    #[test]
    fn a_group_is_shown_once_and_what_is_left_out_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let write = |group: &str, members: &[(&str, &str)]| {
            let directory = folder.path().join(group).join("__group");
            fs::create_dir_all(&directory).unwrap();
            let head = Bytes::default().u32(2).u64(members.len() as u64);
            let body = members.iter().fold(head, |body, (name, uri)| {
                let member = body.u32(2).u8(ObjectType::Group as u8).u8(1);
                member.text64(uri).u8(1).text64(name).u8(0)
            });
            fs::write(directory.join(format!("__1_1_{UUID}_2")), generic(&body.bytes)).unwrap();
        };
        write("", &[("one", "g"), ("two", "g"), ("self", ".")]);
        // Groups that are no members, with and without details.
        write("other", &[]);
        for group in ["g", "bare"] {
            fs::create_dir_all(folder.path().join(group).join("__group")).unwrap();
        }
        let tree = Tree::open(folder.path(), &TreeOptions::default()).unwrap();
        let document = tree.root.find(JSON).unwrap().unwrap().read_all().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
        let groups: Vec<&String> = document["groups"].as_object().unwrap().keys().collect();
        assert_eq!(groups, ["one", "bare", "other"]);
        let left_out = document["left_out"].as_array().unwrap().iter();
        let twice = left_out.filter(|one| one["reason"] == MET_BEFORE);
        let twice: Vec<_> = twice.map(|one| one["what"].as_str().unwrap()).collect();
        assert_eq!(twice, ["two", "self"]);
    }
}
