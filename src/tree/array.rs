//! The directory of an array, its schemas, enumerations and labels, and its past states.

use super::array_at::ArrayAt;
use super::directory::{NamedDirectory, Names, fixed_listing, unreadable};
use super::document::{Document, DocumentContent, state_of_file};
use super::fragment::{FragmentsDirectory, fragments_json};
use super::node::{Directory, DirectoryKind, Entry, Freshness, Link, Listing, Node, NodeType};
use super::permissions::Origin;
use super::position::Position;
use super::times::{self, Asked};
use super::view::ViewDirectory;
use super::view_source::{ViewSource, Viewed};
use crate::calendar::{now, timestamp};
use crate::catalog::Array;
use crate::catalog::listing::ArrayListing;
use crate::catalog::pin::Pin;
use crate::catalog::time::When;
use crate::describe::{self, render};
use crate::error::{Error, ErrorKind, Result};
use crate::format::schema::Schema;
use crate::fragment::schemas::LEGACY_SCHEMA;
use crate::names;
use crate::runtime::hash;
use crate::runtime::requester::settled;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

/// The directory of an array, now or (in `at/`) at another time.
#[derive(Clone)]
pub struct ArrayDirectory {
    position: Position,
    array_at: ArrayAt,
}

impl ArrayDirectory {
    /// The directory of `array`.
    pub fn new(array: Arc<Array>, position: Position) -> Self {
        ArrayDirectory {
            position,
            array_at: ArrayAt::now(&array),
        }
    }

    /// The directory of the array in a range of time, or in a state.
    pub fn at(&self, when: When) -> ArrayDirectory {
        let mut past = self.clone();
        past.array_at.when = when;
        past
    }

    /// The directory of the array in the state called `pin`; see [`Array::pinned`].
    pub fn pinned(&self, pin: Pin) -> Result<ArrayDirectory> {
        let pinned = self.array().pinned(pin)?;
        self.position.context.keep_pinned(self.array());
        Ok(self.at(When::Pinned(pinned)))
    }

    /// Whether it is a directory in `at/`.
    fn is_in_at(&self) -> bool {
        self.array_at.is_in_at()
    }

    /// The array.
    pub fn array(&self) -> &Arc<Array> {
        &self.array_at.array
    }

    /// A document of the array at its time. `state` is as in [`Document::node`].
    fn document(
        &self,
        name: &'static str,
        mtime: u64,
        state: fn(&ArrayAt) -> Option<u64>,
        content: fn(&ArrayAt) -> Result<DocumentContent>,
    ) -> Node {
        let document = Document {
            engine: self.array().engine.clone(),
            of: self.array().path.clone(),
            name,
            mtime,
            freshness: Freshness::Listing,
            origin: Origin::InArray(self.array_at.clone(), name),
        };
        let (of_state, array_at) = (self.array_at.clone(), self.array_at.clone());
        document.node(
            move || state(&of_state).map(|state| hash(&(of_state.when.times(), state))),
            move || array_at.twice(content),
        )
    }

    /// A directory of the array at its time.
    fn named(&self, name: &'static str, names: impl Names) -> Node {
        let origin = Origin::InArray(self.array_at.clone(), name);
        NamedDirectory::node(self.mtime(), Freshness::Listing, origin, names)
    }

    /// What `data/` shows.
    fn data(&self) -> ViewSource {
        ViewSource {
            array_at: self.array_at.clone(),
            part: None,
            context: self.position.context.clone(),
            last: Arc::default(),
        }
    }

    /// Whether `data/` is listed: not if the array is huge and mostly empty.
    fn lists_data(&self) -> bool {
        let view = self.data().view();
        !view.and_then(|view| view.is_mostly_empty()).unwrap_or(false)
    }

    /// The entries: [`CHILDREN`], or in `at/` [`PAST_CHILDREN`]. An array of the predecessor format has only
    /// the first of these, which reports the error.
    fn children(&self) -> &'static [(&'static str, NodeType)] {
        let legacy = |listing: &ArrayListing| {
            listing
                .schemas
                .first()
                .is_some_and(|file| file.name == LEGACY_SCHEMA)
        };
        let of_predecessor = self.array().listing().is_ok_and(|listing| legacy(&listing))
            && self.array().schemas.are_of_predecessor();
        match (of_predecessor, &CHILDREN) {
            (true, [schema, ..]) => std::slice::from_ref(schema),
            (false, _) if self.is_in_at() => &PAST_CHILDREN,
            (false, all) => all,
        }
    }

    /// The end of a range of time, if it has one.
    fn end(&self) -> Option<u64> {
        let times = self.array_at.when.times();
        times.map(|times| times.end).filter(|end| *end < u64::MAX)
    }

    /// The time of documents that change with more than new stamps: with back-dated writes, commits and
    /// vacuums, which change what is seen at a past time as well.
    fn changed(&self) -> u64 {
        if let When::Pinned(pinned) = &self.array_at.when {
            return pinned.pin.time;
        }
        let past = self.end().filter(|end| *end <= now());
        let of = |listing: Arc<ArrayListing>| past.unwrap_or(listing.mtime).max(listing.changed);
        self.array().listing().map_or(past.unwrap_or(0), of)
    }

    /// The same of documents that tell which footers are consolidated as well, on which views do not depend.
    fn changed_with_copies(&self) -> u64 {
        if let When::Pinned(_) = &self.array_at.when {
            return self.changed();
        }
        let array = self.array();
        let directory = array.engine.storage.metadata(&array.path.join("__fragment_meta"));
        self.changed()
            .max(directory.map_or(0, |directory| directory.mtime))
    }

    /// The node of `name`, one of [`CHILDREN`].
    fn child(&self, name: &'static str) -> Node {
        let array_at = self.array_at.clone();
        match name {
            "schema.json" => {
                let file = self.array_at.schema_file();
                let mtime = file.map_or_else(|_| self.mtime(), |file| file.mtime);
                let state = |array_at: &ArrayAt| {
                    let name = array_at.schema_file().ok()?.name;
                    array_at.array.schemas.state(&name)
                };
                self.document(name, mtime, state, schema_json)
            }
            "metadata.json" => {
                let state = |array_at: &ArrayAt| Some(hash(&array_at.metadata_paths().ok()?));
                let content = |array_at: &ArrayAt| DocumentContent::of(array_at.metadata()?.document()?);
                self.document(name, self.changed(), state, content)
            }
            "fragments.json" => self.document(name, self.changed_with_copies(), state, fragments_json),
            "commits.json" => {
                let content = |array_at: &ArrayAt| super::commits::commits_json(&array_at.array);
                self.document(name, self.changed(), state, content)
            }
            "consolidated_metadata.json" => {
                let content =
                    |array_at: &ArrayAt| super::consolidated_metadata::consolidated_metadata(&array_at.array);
                self.document(name, self.changed_with_copies(), state, content)
            }
            "schemas" => self.named(name, SchemaFiles(array_at)),
            "enumerations" => self.named(name, Enumerations(array_at)),
            "data" => ViewDirectory::node(self.data()),
            "labels" => {
                let position = self.position.clone();
                self.named(name, Labels { position, array_at })
            }
            _ => Node::Directory(Arc::new(FragmentsDirectory { array_at })),
        }
    }
}

/// The directory of past states.
const AT: &str = "at";

/// The entries of a directory in `at/`.
static PAST_CHILDREN: [(&str, NodeType); 5] = [
    ("schema.json", NodeType::File),
    ("metadata.json", NodeType::File),
    ("fragments.json", NodeType::File),
    ("enumerations", NodeType::Directory),
    ("data", NodeType::Directory),
];

/// The entries of the directory of an array.
static CHILDREN: [(&str, NodeType); 10] = [
    ("schema.json", NodeType::File),
    ("metadata.json", NodeType::File),
    ("fragments.json", NodeType::File),
    ("commits.json", NodeType::File),
    ("consolidated_metadata.json", NodeType::File),
    ("schemas", NodeType::Directory),
    ("enumerations", NodeType::Directory),
    ("labels", NodeType::Directory),
    ("fragments", NodeType::Directory),
    ("data", NodeType::Directory),
];

impl Directory for ArrayDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let known = self.children().iter().find(|(known, _)| *known == name);
        // `at/` is not listed by default, so that programs that walk the tree do not visit every past state.
        if name == AT && !self.is_in_at() && self.array().engine.at().is_none() {
            let array = self.clone();
            return Ok(Some(Node::Directory(Arc::new(AtDirectory { array }))));
        }
        Ok(known.map(|(name, _)| self.child(name)))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let context = &self.position.context;
        context.engine.storage.metadata(&self.array().path)?;
        let mut children = self.children().to_vec();
        if !self.lists_data() {
            children.retain(|(name, _)| *name != "data");
        }
        let past = self.is_in_at() || self.array().engine.at().is_some();
        if context.show_at && !past {
            children.push((AT, NodeType::Directory));
        }
        Ok(fixed_listing(&children))
    }

    fn mtime(&self) -> u64 {
        let newest = || self.array().listing().map_or(0, |listing| listing.mtime);
        self.end().unwrap_or_else(newest)
    }

    fn kind(&self) -> DirectoryKind {
        DirectoryKind::Array
    }

    fn viewed(&self) -> Option<Viewed> {
        let data = self.data().viewed();
        Some(Viewed { data: false, ..data })
    }

    fn origin(&self) -> Origin {
        Origin::Array(self.array().clone())
    }
}

/// The link in `at/` to the state of now, by its pin: `readlink -f` of a path through it pins one state, for
/// programs that open many files one after another, and on several machines.
const LATEST: &str = "latest";

/// `at/`: any time and any pin can be looked up; the times of writes are listed.
struct AtDirectory {
    /// The directory of the array now.
    array: ArrayDirectory,
}

impl AtDirectory {
    /// The link to the state of now. Fails if it is unknown which fragments that has.
    fn latest(&self) -> Result<Node> {
        let array = self.array.array();
        let snapshot = array.snapshot(None)?;
        snapshot.check_complete(now())?;
        let pin = array.pin(&snapshot)?;
        Ok(Node::Link(Arc::new(Link {
            target: OsString::from(pin.to_string()),
            mtime: pin.time,
        })))
    }
}

impl Directory for AtDirectory {
    /// `NotFound`, with the reason, if `name` is neither a time nor a pin; `Io(ESTALE)` if it is the pin of a
    /// state that is not there.
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == LATEST {
            return self.latest().map(Some);
        }
        let name = name.to_str().ok_or_else(|| "the time is not UTF-8".to_owned());
        let array = match name.and_then(times::parse_name).map_err(Error::not_found)? {
            Asked::Within(times) => self.array.at(When::Within(times)),
            Asked::Pin(pin) => self.array.pinned(pin)?,
        };
        Ok(Some(Node::Directory(Arc::new(array))))
    }

    /// Leaves out the times at which what was consolidated later has been vacuumed: the schema and the vacuum
    /// files tell which these are.
    fn list(&self) -> Result<Arc<dyn Listing>> {
        let array = self.array.array();
        let snapshot = array.snapshot(None)?;
        // What is damaged for good, or needs a key, leaves the times that are known.
        let unknown = [
            snapshot.check_complete(array.engine.now()).err(),
            array.schema(&snapshot).err(),
        ];
        if let Some(error) = unknown.into_iter().flatten().find(Error::is_transient) {
            return Err(error);
        }
        let emptied = snapshot.emptied().into_iter();
        let mut emptied: Vec<(u64, u64)> = emptied.map(|entry| entry.fragment.name.timestamps).collect();
        emptied.sort_unstable();
        // In ascending order of instants: the end of what has begun.
        let (mut emptied, mut end) = (emptied.into_iter().peekable(), 0);
        let mut instants = snapshot.listing.instants();
        instants.retain(|instant| {
            while let Some((_, other)) = emptied.next_if(|(start, _)| start <= instant) {
                end = end.max(other);
            }
            *instant >= end
        });
        let instants = instants.into_iter();
        let entry = |instant| (OsString::from(timestamp(instant)), NodeType::Directory);
        Ok(Arc::new(instants.map(entry).collect::<Vec<Entry>>()))
    }

    fn mtime(&self) -> u64 {
        self.array.mtime()
    }

    fn origin(&self) -> Origin {
        Origin::InArray(ArrayAt::now(self.array.array()), AT)
    }
}

/// The state from which the array's documents are derived.
fn state(array_at: &ArrayAt) -> Option<u64> {
    match &array_at.when {
        When::Pinned(pinned) => Some(hash(&pinned.pin)),
        _ => array_at.array.state(&*array_at.snapshot().ok()?),
    }
}

fn schema_json(array_at: &ArrayAt) -> Result<DocumentContent> {
    schema_of(&array_at.array, &array_at.schema_file()?.name)
}

fn schema_of(array: &Array, name: &str) -> Result<DocumentContent> {
    let value = describe::schema::schema_json(&*array.schemas.get(name)?, name);
    Ok(DocumentContent::text(render(&value)))
}

/// `schemas/`: all schemas of the array.
struct SchemaFiles(ArrayAt);

impl Names for SchemaFiles {
    type From = ArrayListing;

    fn from(&self) -> Result<Arc<ArrayListing>> {
        self.0.array.listing()
    }

    fn names(&self, listing: &ArrayListing) -> Vec<String> {
        let names = listing.schemas.iter().map(|file| format!("{}.json", file.name));
        names.collect()
    }

    fn node(&self, listing: &Arc<ArrayListing>, index: usize) -> Result<Option<Node>> {
        Ok(listing.schemas.get(index).map(|file| {
            // In old versions, an array that is created again has a new schema with the same name.
            let freshness = if file.name == LEGACY_SCHEMA {
                Freshness::Listing
            } else {
                Freshness::Immutable
            };
            let (of_state, array) = (self.0.array.clone(), self.0.array.clone());
            let (name_of_state, name) = (file.name.clone(), file.name.clone());
            let document = Document {
                engine: array.engine.clone(),
                of: array.schemas.path(&name),
                name: "schema",
                mtime: file.mtime,
                freshness,
                origin: Origin::Schema(array.clone(), name.clone()),
            };
            document.node(
                move || of_state.schemas.state(&name_of_state),
                move || schema_of(&array, &name),
            )
        }))
    }

    fn kind(&self, _: usize) -> Option<NodeType> {
        Some(NodeType::File)
    }
}

/// `enumerations/`: the enumerations of the current schema.
struct Enumerations(ArrayAt);

impl Names for Enumerations {
    type From = Schema;

    fn from(&self) -> Result<Arc<Schema>> {
        self.0.schema()
    }

    fn names(&self, schema: &Schema) -> Vec<String> {
        let encoded = schema.enumerations.iter();
        let encoded = encoded.map(|e| names::encode_within(&e.name, 250)).collect();
        let names = names::unique(encoded, 250).into_iter();
        names.map(|name| format!("{name}.json")).collect()
    }

    fn node(&self, schema: &Arc<Schema>, index: usize) -> Result<Option<Node>> {
        let Some(reference) = schema.enumerations.get(index) else {
            return Ok(None);
        };
        let mtime = self.0.schema_file()?.mtime;
        let (of_state, array, file) = (self.0.array.clone(), self.0.array.clone(), reference.file.clone());
        // If the file name is invalid, opening the document reports it.
        let path = array.enumeration_path(&file).unwrap_or_default();
        let document = Document {
            engine: array.engine.clone(),
            of: path.clone(),
            name: "enumeration",
            mtime,
            // The schema of later may have another enumeration of this name.
            freshness: Freshness::Listing,
            origin: Origin::Enumeration(self.0.clone(), file.clone()),
        };
        Ok(Some(document.node(
            move || state_of_file(&of_state.engine, &path),
            move || {
                let path = array.enumeration_path(&file)?;
                let body = array.enumeration_body(&file)?;
                let segments = describe::enumeration::enumeration_segments(body).map_err(|e| {
                    e.at(0)
                        .in_part("enumeration")
                        .in_file(array.engine.storage.display(&path))
                })?;
                DocumentContent::of(segments)
            },
        )))
    }

    fn kind(&self, _: usize) -> Option<NodeType> {
        Some(NodeType::File)
    }
}

/// `labels/`: the arrays of the dimension labels inside the array's directory.
struct Labels {
    position: Position,
    array_at: ArrayAt,
}

impl Names for Labels {
    type From = Schema;

    fn from(&self) -> Result<Arc<Schema>> {
        self.array_at.schema()
    }

    fn names(&self, schema: &Schema) -> Vec<String> {
        let encoded = schema.dimension_labels.iter().map(|l| names::encode(&l.name));
        names::unique(encoded.collect(), names::MAX)
    }

    fn node(&self, schema: &Arc<Schema>, index: usize) -> Result<Option<Node>> {
        let Some(label) = schema.dimension_labels.get(index) else {
            return Ok(None);
        };
        let array = &self.array_at.array;
        let (path, name) = (array.path.display(), label.name.escape_ascii());
        let uri = String::from_utf8_lossy(&label.uri);
        let inside = label.relative && !uri.split('/').any(|part| part == "..") && !uri.starts_with('/');
        if !inside {
            log::info!("{path}: label {name} is not shown: its URI {uri} is outside of the array");
            return Ok(None);
        }
        let at = array.path.join(Path::new(&*uri));
        let below = at.ancestors().take_while(|path| *path != array.path);
        let in_place = !below
            .into_iter()
            .any(|path| self.position.context.engine.storage.is_link(path));
        let Some(above) = in_place
            .then(|| self.position.clone())
            .or_else(|| self.position.jump())
        else {
            log::warn!("{path}: label {name} is not shown: it is reached through too many symbolic links");
            return Ok(None);
        };
        Ok(match (settled(above.node(&at))?, &self.array_at.when) {
            (Ok(Some(_)), When::Pinned(pinned)) if pinned.has_label(&at) => {
                let label = ArrayDirectory::new(self.position.context.array(&at), above);
                Some(Node::Directory(Arc::new(label.at(self.array_at.when.clone()))))
            }
            (Ok(node), _) => node,
            (Err(e), _) if e.kind() == ErrorKind::NotFound => {
                log::warn!("{path}: label {name} is not shown: {e}");
                None
            }
            (Err(e), _) => Some(unreadable(e)),
        })
    }

    fn kind(&self, _: usize) -> Option<NodeType> {
        None
    }
}
