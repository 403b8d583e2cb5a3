//! The directory of a group.

use super::anndata::ShownMeasurement;
use super::directory::{NamedDirectory, Names, unreadable};
use super::document::{Document, DocumentContent};
use super::node::{DirectoryKind, Freshness, Node, NodeType};
use super::permissions::Origin;
use super::position::Position;
use super::shown_group::ShownGroup;
use crate::catalog::group::{Members, OpenGroup, group_metadata, unregistered_member};
use crate::catalog::source::{GROUP_DIRECTORY, ObjectKind, classify};
use crate::describe::group::group_json;
use crate::describe::render;
use crate::error::{ErrorKind, Result};
use crate::export::dataset::DatasetSource;
use crate::names;
use crate::runtime::hash;
use crate::runtime::requester::settled;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex};

/// The node of `group`.
pub fn group(group: Arc<OpenGroup>, position: Position, mtime: u64) -> Node {
    // The members are those in `__group`.
    let origin = Origin::Group(group.clone(), GROUP_DIRECTORY);
    let directory = GroupDirectory {
        position,
        group,
        mtime,
        listed: Mutex::default(),
    };
    NamedDirectory::node(mtime, Freshness::Listing, origin, directory)
}

struct GroupDirectory {
    position: Position,
    group: Arc<OpenGroup>,
    mtime: u64,
    /// What was listed last: its arrays stay in use while somebody walks through the group.
    listed: Mutex<Option<DatasetSource>>,
}

/// The entries of a group's directory besides its members.
const DOCUMENTS: [&str; 2] = ["group.json", "metadata.json"];

impl Names for GroupDirectory {
    type From = Members;

    fn from(&self) -> Result<Arc<Members>> {
        self.group.members()
    }

    /// The documents, then all members, whether they exist or not, so that names do not depend on that.
    fn names(&self, members: &Members) -> Vec<String> {
        let members = members.places.iter().map(|place| names::encode(&place.name));
        let all = DOCUMENTS.into_iter().map(str::to_owned).chain(members);
        names::unique(all.collect(), names::MAX)
    }

    fn node(&self, members: &Arc<Members>, index: usize) -> Result<Option<Node>> {
        let own = DOCUMENTS.get(index).map(|name| self.document(name));
        match own {
            Some(own) => Ok(Some(own)),
            None => self.member(members, index - DOCUMENTS.len()),
        }
    }

    /// The documents, also of a group whose members cannot be read.
    fn fixed(&self, name: &OsStr) -> Option<Node> {
        let own = DOCUMENTS.into_iter().find(|own| name == *own);
        own.map(|own| self.document(own))
    }

    fn kind(&self, index: usize) -> Option<NodeType> {
        (index < DOCUMENTS.len()).then_some(NodeType::File)
    }

    /// Exports, and groups in the directory that never were members.
    fn other(&self, members: &Members, name: &OsStr) -> Result<Option<Node>> {
        if let Some(export) = self.shown().find(name)? {
            return Ok(Some(export));
        }
        if let Some(export) = self.measurement().find(name)? {
            return Ok(Some(export));
        }
        let engine = &self.position.context.engine;
        let mut places = members.places.iter().filter(|place| !place.registered);
        let place = places.find(|place| name == names::encode(&place.name).as_str());
        match place.map(|place| (place, classify(engine, &place.at))) {
            Some((place, Ok(ObjectKind::Group))) => self.position.clone().elsewhere().child(&place.at),
            Some((_, Err(e))) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(None),
        }
    }

    fn listed_others(
        &self,
        members: &Members,
        shown: &[Option<DirectoryKind>],
    ) -> Vec<(&'static str, NodeType)> {
        let shown = &shown[DOCUMENTS.len()..];
        let mut listed = self.shown().listed(members, shown, &self.listed);
        listed.extend(self.measurement().listed());
        listed
    }

    fn shows(&self) -> DirectoryKind {
        DirectoryKind::Group
    }

    fn group(&self) -> Option<ShownGroup> {
        Some(self.shown())
    }
}

impl GroupDirectory {
    fn shown(&self) -> ShownGroup {
        ShownGroup {
            context: self.position.context.clone(),
            group: self.group.clone(),
        }
    }

    fn measurement(&self) -> ShownMeasurement {
        ShownMeasurement::new(&self.group, &self.position)
    }

    /// One of [`DOCUMENTS`].
    fn document(&self, name: &'static str) -> Node {
        match name {
            "group.json" => self.details(),
            _ => self.metadata(),
        }
    }

    fn template(&self, name: &'static str, directory: &'static str) -> Document {
        Document {
            engine: self.group.engine().clone(),
            of: self.group.path().to_path_buf(),
            name,
            mtime: self.mtime.max(self.group.changed(&[directory])),
            freshness: Freshness::Listing,
            origin: Origin::Group(self.group.clone(), directory),
        }
    }

    fn details(&self) -> Node {
        let (of_state, shown) = (self.shown(), self.shown());
        let (measurement_of_state, measurement) = (self.measurement(), self.measurement());
        let mut template = self.template("group.json", GROUP_DIRECTORY);
        if let Some(exports) = measurement.origin_of_exports() {
            template.origin = Origin::Several(vec![template.origin, exports]);
        }
        template.node(
            move || {
                let members = of_state.group.members().ok()?;
                // A directory may become an array without a change of the group's own.
                let strays = of_state.unregistered(&members).ok()?;
                let exports = measurement_of_state.state().ok()?;
                Some(hash(&(of_state.group.state(&members)?, strays, exports)))
            },
            move || {
                let json = group_json(&shown.summary()?, measurement.exports());
                Ok(DocumentContent::text(render(&json)))
            },
        )
    }

    fn metadata(&self) -> Node {
        let (of_state, shown) = (self.group.clone(), self.shown());
        self.template("metadata.json", "__meta").node(
            move || Some(hash(&group_metadata(of_state.engine(), of_state.path()).ok()?)),
            move || DocumentContent::of(shown.metadata()?.document()?),
        )
    }

    /// The node of member `index`; None if it is not shown.
    fn member(&self, members: &Members, index: usize) -> Result<Option<Node>> {
        let Some(place) = members.places.get(index) else {
            return Ok(None);
        };
        let engine = &self.position.context.engine;
        if !place.registered {
            match settled(unregistered_member(engine, &place.at, members.unregistered))? {
                Ok(None) => return Ok(None),
                Err(error) if error.kind() != ErrorKind::NotFound => return Ok(Some(unreadable(error))),
                _ => {}
            }
        }
        let (path, at) = (self.group.path().display(), place.at.display());
        // Only members elsewhere can give a directory several paths in the tree.
        let in_place = place.in_place && !engine.storage.is_link(&place.at);
        let Some(above) = in_place
            .then(|| self.position.clone())
            .or_else(|| self.position.jump())
        else {
            log::warn!(
                "{path}: {at} is not shown: it is reached through too many members outside of their groups"
            );
            return Ok(None);
        };
        let above = above.through(self.group.path(), &place.name);
        Ok(match settled(above.node(&place.at))? {
            Ok(node) => node,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                log::info!("{path}: {at} is not shown: it is missing");
                None
            }
            Err(e) => Some(unreadable(e)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::source::tests::Refusing;
    use crate::format::testing::Bytes;
    use crate::query::testing::{UUID, generic};
    use crate::tree::{Tree, TreeOptions};
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    /// What is at `path` of the sample while the requester gives up at `refused`.
    fn given_up(path: &str, refused: &str) -> Result<Option<Node>> {
        let (storage, _) = Refusing::of("tests/data/sample", refused, ErrorKind::Abandoned);
        let tree = Tree::over(storage, &TreeOptions::default(), Arc::default()).unwrap();
        tree.root.find(path)
    }

    #[test]
    fn who_gives_up_gets_an_error_and_leaves_nothing_for_others() {
        let kind = given_up("weather", "weather/__schema")
            .err()
            .map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::Abandoned));
        for path in ["weather/fragments.json", "weather/data/view.json"] {
            let fragment =
                "weather/__fragments/__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22";
            let Some(Node::File(file)) = given_up(path, fragment).unwrap() else {
                panic!("no {path}");
            };
            let kind = file.open().err().map(|error| error.kind());
            assert_eq!(kind, Some(ErrorKind::Abandoned), "{path}");
        }
    }

    #[test]
    fn a_group_that_becomes_a_measurement_says_so() {
        let folder = tempfile::tempdir().unwrap();
        for directory in ["__group", "__meta"] {
            fs::create_dir(folder.path().join(directory)).unwrap();
        }
        let tree = Tree::open(folder.path(), &TreeOptions::default()).unwrap();
        let has_exports = || {
            let document = tree.root.find("group.json").unwrap().unwrap();
            let text = String::from_utf8(document.read_all().unwrap()).unwrap();
            text.contains("anndata.zarr")
        };
        let becomes = |expected| {
            let end = Instant::now() + Duration::from_secs(10);
            while has_exports() != expected {
                assert!(Instant::now() < end);
                thread::sleep(Duration::from_millis(50));
            }
        };
        becomes(false);
        let kind = Bytes::default().text32("soma_object_type").u8(0);
        let kind = kind.u8(12).text32("SOMAMeasurement").bytes;
        let file = folder.path().join(format!("__meta/__1_1_{UUID}"));
        fs::write(&file, generic(&kind)).unwrap();
        becomes(true);
        fs::remove_file(file).unwrap();
        becomes(false);
    }
}
