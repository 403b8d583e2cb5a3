//! `anndata.zarr/` and `anndata.h5ad` of a SOMA measurement, and `anndata.<layer>.zarr/` and
//! `anndata.<layer>.h5ad`; see [`crate::export::anndata`].
//!
//! They exist if the path went from an experiment through its member `ms` to the measurement, since obs is a
//! member of the experiment. The first is listed as `dataset.zarr/` is: not in stores, and not if it is
//! large. The others are there by name: listings ask for lengths. A member of such a name is shown instead.

use super::context::Context;
use super::directory::fixed_listing;
use super::document::{Document, DocumentContent};
use super::node::{Directory, Entry, File, Freshness, Listing, Node, NodeType, of_object};
use super::permissions::Origin;
use super::position::Position;
use super::view_source::place;
use super::zarr::{CHUNKS, Chunked, DOCUMENT, chunks};
use crate::catalog::group::{MemberPlace, Members, OUTSIDE, OpenGroup, registered_member};
use crate::catalog::source::ObjectKind;
use crate::describe::Json;
use crate::describe::group::anndata_json;
use crate::error::{Error, ErrorKind, Result};
use crate::export::anndata::node::{Array, Group, Node as ZarrNode};
use crate::export::anndata::{
    AnnData, Format, Found, FoundGroup, HDF5, MeasurementSource, NAME, SourceGroup, is_measurement, named,
};
use crate::export::joined::{Joined, SourceArray};
use crate::layout::FileLayout;
use crate::runtime::hash;
use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most groups of a measurement.
const MAX_GROUPS: usize = 1 << 12;

/// The most groups of a measurement inside of each other.
const MAX_DEPTH: usize = 128;

/// The name of the collection of measurements in an experiment.
const MEASUREMENTS: &[u8] = b"ms";

/// Why a measurement has no AnnData if it was reached on another way.
const ELSEWHERE: &str = "the path does not go through ms of an experiment";

/// A group that may be a measurement.
#[derive(Clone)]
pub struct ShownMeasurement {
    context: Arc<Context>,
    group: Arc<OpenGroup>,
    /// The experiment, if the path went there.
    experiment: Option<Arc<OpenGroup>>,
}

impl ShownMeasurement {
    /// The group, which lies at `position`.
    pub fn new(group: &Arc<OpenGroup>, position: &Position) -> ShownMeasurement {
        let context = &position.context;
        let steps = position.steps().filter(|[first, _]| first.name == MEASUREMENTS);
        ShownMeasurement {
            experiment: steps.map(|[first, _]| context.group(&first.group)),
            context: context.clone(),
            group: group.clone(),
        }
    }

    /// The AnnData of this name; None if none is called so. `NotFound`, with the reason, if the measurement
    /// has none. If that is unknown, a node whose accesses fail.
    pub fn find(&self, name: &OsStr) -> Result<Option<Node>> {
        let name = name.to_str().unwrap_or_default();
        let Some((format, layer)) = named(name) else {
            return Ok(None);
        };
        if self.experiment.is_none() {
            return match is_measurement(&self.group)? {
                true => Err(Error::not_found(ELSEWHERE)),
                false => Ok(None),
            };
        }
        if let Ok(anndata) = self.anndata() {
            anndata.root(format, layer)?;
        }
        let layer = layer.map(str::to_owned);
        Ok(Some(match format {
            Format::Zarr => Node::Directory(Arc::new(NodeDirectory {
                shown: self.clone(),
                name: name.to_owned(),
                layer,
                path: Vec::new(),
            })),
            Format::Hdf5 => Node::File(Arc::new(AnnDataFile {
                shown: self.clone(),
                exported: Exported::Hdf5(layer),
            })),
        }))
    }

    /// The directories that listings show.
    pub fn listed(&self) -> Vec<(&'static str, NodeType)> {
        let hidden = self.context.exports.hide || self.context.engine.storage.is_remote();
        if hidden || self.experiment.is_none() || matches!(is_measurement(&self.group), Ok(false)) {
            return Vec::new();
        }
        // Of what is damaged, the accesses fail.
        match self.anndata().is_ok_and(|anndata| !anndata.is_listed()) {
            true => Vec::new(),
            false => vec![(NAME, NodeType::Directory)],
        }
    }

    /// What `group.json` says of it; None if the group is no measurement. If its metadata cannot be reached,
    /// it says why; a group with damaged metadata is taken for none.
    pub fn exports(&self) -> Option<Json> {
        let anndata = match is_measurement(&self.group) {
            Ok(false) => return None,
            Ok(true) => self.experiment.as_ref().map(|_| self.anndata()),
            Err(error) if error.is_transient() => Some(Err(error)),
            Err(error) => {
                log::info!("{error}");
                return None;
            }
        };
        let formats = [(NAME, Format::Zarr), (HDF5, Format::Hdf5)];
        let exports = formats.map(|(name, format)| {
            let export = match &anndata {
                None => anndata_json(Some(ELSEWHERE), iter::empty()),
                Some(Ok(anndata)) => anndata_json(anndata.absent(format), anndata.left_out(format)),
                Some(Err(error)) => anndata_json(Some(&error.to_string()), iter::empty()),
            };
            (name.to_owned(), export)
        });
        Some(exports.into_iter().collect())
    }

    /// A hash of what [`ShownMeasurement::exports`] depends on.
    pub fn state(&self) -> Result<u64> {
        let is_measurement = is_measurement(&self.group)?;
        let anndata = match is_measurement && self.experiment.is_some() {
            true => Some(self.anndata()?.state()),
            false => None,
        };
        Ok(hash(&(is_measurement, anndata)))
    }

    /// What [`ShownMeasurement::exports`] comes from; None if the group is no measurement. Nothing that
    /// others may read if that is unknown.
    pub fn origin_of_exports(&self) -> Option<Origin> {
        match (is_measurement(&self.group), &self.experiment) {
            (Ok(false), _) => None,
            (Ok(true), Some(_)) => Some(self.origin()),
            (Ok(true), None) => Some(Origin::Group(self.group.clone(), "__meta")),
            (Err(_), _) => Some(Origin::Private),
        }
    }

    /// The AnnData now.
    fn anndata(&self) -> Result<Arc<AnnData>> {
        let experiment = self.experiment.as_ref();
        let experiment = experiment.ok_or_else(|| Error::not_found(ELSEWHERE))?;
        let key = (experiment.path().to_path_buf(), self.group.path().to_path_buf());
        self.placed(self.context.anndata.current(key, || self.source(experiment)))
    }

    /// What it is made of. Reads names.
    fn source(&self, experiment: &Arc<OpenGroup>) -> Result<MeasurementSource> {
        let mut walk = Walk {
            context: &self.context,
            above: Vec::new(),
            groups: 0,
        };
        let members = experiment.members()?;
        let obs = registered(&members).find(|place| place.name == b"obs");
        let obs = match obs.map(|place| walk.found(&place.at)) {
            Some(Some(found)) => found,
            _ => Found::Absent(match members.outside.iter().any(|name| name == b"obs") {
                true => OUTSIDE.to_owned(),
                false => "there is none".to_owned(),
            }),
        };
        Ok(MeasurementSource {
            experiment: FoundGroup::new(experiment)?,
            obs,
            measurement: walk.group(&self.group)?,
        })
    }

    /// Adds the group to an error without a file. What cannot be found is damage: a reader takes what does
    /// not exist for zeros.
    fn placed<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let error = place(error, &self.display());
            match error.kind() {
                ErrorKind::NotFound => error.with_kind(ErrorKind::Corrupt),
                _ => error,
            }
        })
    }

    fn display(&self) -> String {
        self.group.engine().storage.display(self.group.path())
    }

    fn mtime(&self) -> u64 {
        self.anndata().map_or(0, |anndata| anndata.mtime())
    }

    /// All that it is made of; nothing that others may read if that is unknown.
    fn origin(&self) -> Origin {
        Origin::of_joined(self.anndata())
    }
}

/// The registered members of a group inside the source. SOMA has no others.
fn registered(members: &Members) -> impl Iterator<Item = &MemberPlace> {
    members.places.iter().filter(|place| place.registered)
}

/// A walk through a measurement.
struct Walk<'c> {
    context: &'c Arc<Context>,
    /// The groups from the measurement on.
    above: Vec<PathBuf>,
    groups: usize,
}

impl Walk<'_> {
    fn group(&mut self, group: &Arc<OpenGroup>) -> Result<SourceGroup> {
        self.groups += 1;
        self.above.push(group.path().to_path_buf());
        let known = group.members()?;
        let mut members = Vec::new();
        for place in registered(&known) {
            let found = self.found(&place.at);
            members.extend(found.map(|found| (place.name.clone(), found)));
        }
        for name in &known.outside {
            members.push((name.clone(), Found::Absent(OUTSIDE.to_owned())));
        }
        self.above.pop();
        Ok(SourceGroup {
            group: FoundGroup::new(group)?,
            members,
        })
    }

    /// What the registered member at `at` is; None if it is later than the time shown.
    fn found(&mut self, at: &Path) -> Option<Found> {
        let found = match registered_member(&self.context.engine, at) {
            Ok(ObjectKind::Array) => match self.context.is_later(at) {
                Ok(false) => Ok(Found::Array(SourceArray::new(self.context.array(at)))),
                Ok(true) => return None,
                Err(error) => Err(error),
            },
            Ok(ObjectKind::Group) => self.inner(at),
            Ok(ObjectKind::Directory) => Ok(Found::Absent("it is neither an array nor a group".to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Found::Absent("it is missing".to_owned()))
            }
            Err(error) => Err(error),
        };
        Some(found.unwrap_or_else(Found::Failed))
    }

    fn inner(&mut self, at: &Path) -> Result<Found> {
        if self.above.iter().any(|above| above == at) {
            return Ok(Found::Absent("it contains itself".to_owned()));
        }
        if self.above.len() == MAX_DEPTH {
            return Ok(Found::Absent(format!(
                "more than {MAX_DEPTH} groups are inside of each other"
            )));
        }
        if self.groups == MAX_GROUPS {
            let reason = format!("the measurement has more than {MAX_GROUPS} groups");
            return Ok(Found::Absent(reason));
        }
        self.group(&self.context.group(at)).map(Found::Group)
    }
}

/// A group or an array of an AnnData.
#[derive(Clone)]
struct NodeDirectory {
    shown: ShownMeasurement,
    /// The name of the AnnData's directory.
    name: String,
    /// The layer that is X; None for the usual one.
    layer: Option<String>,
    /// The names from the root on.
    path: Vec<String>,
}

impl NodeDirectory {
    /// The node. `NotFound` if the state changed and there is none any more.
    fn found(&self) -> Result<(ZarrNode, Arc<AnnData>)> {
        let anndata = self.shown.anndata()?;
        let mut node = ZarrNode::from(anndata.root(Format::Zarr, self.layer.as_deref())?);
        for name in &self.path {
            let inner = match &node {
                ZarrNode::Group(group) => self.shown.placed(group.member(name))?,
                ZarrNode::Array(_) => None,
            };
            node = inner.ok_or_else(|| Error::not_found(format!("there is no {name:?}")))?;
        }
        Ok((node, anndata))
    }

    fn group(&self) -> Result<Option<Arc<Group>>> {
        match self.found()?.0 {
            ZarrNode::Group(group) => Ok(Some(group)),
            ZarrNode::Array(_) => Ok(None),
        }
    }

    fn array(&self) -> Result<Arc<Array>> {
        match self.found()?.0 {
            ZarrNode::Array(array) => Ok(array),
            ZarrNode::Group(_) => Err(Error::not_found("it is a group")),
        }
    }

    fn document(&self) -> Node {
        let directory = self.shown.group.path().join(&self.name);
        let document = Document {
            engine: self.shown.group.engine().clone(),
            of: self.path.iter().fold(directory, |path, name| path.join(name)),
            name: DOCUMENT,
            mtime: self.shown.mtime(),
            freshness: Freshness::Listing,
            origin: self.shown.origin(),
        };
        let (of_state, made) = (self.clone(), self.clone());
        document.node(
            move || {
                let state = of_state.shown.anndata().ok()?.state();
                let experiment = of_state.shown.experiment.as_ref()?;
                Some(hash(&(state, experiment.path())))
            },
            move || {
                let text = made.found().map(|(node, _)| node.json());
                made.shown.placed(text).map(DocumentContent::text)
            },
        )
    }
}

impl Directory for NodeDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == DOCUMENT {
            return Ok(Some(self.document()));
        }
        let Some(group) = self.group()? else {
            let has_chunks = name == CHUNKS && !self.array()?.counts().contains(&0);
            let made = || Ok(chunks(self.clone(), self.counts()?.is_empty()));
            return has_chunks.then(made).transpose();
        };
        let name = name.to_str().unwrap_or_default();
        if !group.names().any(|known| known == name) {
            return Ok(None);
        }
        let mut inner = self.clone();
        inner.path.push(name.to_owned());
        Ok(Some(Node::Directory(Arc::new(inner))))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        if let Some(group) = self.group()? {
            let names = group.names().map(|name| (name.into(), NodeType::Directory));
            let document = (OsString::from(DOCUMENT), NodeType::File);
            return Ok(Arc::new(
                [document].into_iter().chain(names).collect::<Vec<Entry>>(),
            ));
        }
        let counts = self.array()?.counts();
        let mut entries = vec![(DOCUMENT, NodeType::File)];
        match &counts[..] {
            [] => entries.push((CHUNKS, NodeType::File)),
            counts if !counts.contains(&0) => entries.push((CHUNKS, NodeType::Directory)),
            _ => {}
        }
        Ok(fixed_listing(&entries))
    }

    of_object!(self => self.shown);
}

impl Chunked for NodeDirectory {
    fn counts(&self) -> Result<Vec<u64>> {
        Ok(self.array()?.counts())
    }

    fn chunk(&self, numbers: Vec<u64>) -> Node {
        Node::File(Arc::new(AnnDataFile {
            shown: self.shown.clone(),
            exported: Exported::Chunk(self.clone(), numbers),
        }))
    }
}

/// What a file has of an AnnData.
enum Exported {
    /// The chunk of these numbers along the axes of an array.
    Chunk(NodeDirectory, Vec<u64>),
    /// All of it, with this layer as X; None for the usual one.
    Hdf5(Option<String>),
}

/// A file of an AnnData.
struct AnnDataFile {
    shown: ShownMeasurement,
    exported: Exported,
}

impl AnnDataFile {
    fn layout(&self) -> Result<FileLayout> {
        match &self.exported {
            Exported::Chunk(array, numbers) => match array.found()? {
                (ZarrNode::Array(array), anndata) => array.chunk(numbers, anndata.state()),
                (ZarrNode::Group(_), _) => Err(Error::not_found("it is a group")),
            },
            Exported::Hdf5(layer) => self.shown.anndata()?.h5ad(layer.as_deref()),
        }
    }
}

impl File for AnnDataFile {
    of_object!(self => self.shown);

    fn open(&self) -> Result<Arc<FileLayout>> {
        let layout = self.shown.placed(self.layout())?;
        Ok(Arc::new(layout.of(self.shown.display())))
    }
}
