//! The directory of an array, its schemas, enumerations, labels and fragments.

use super::at::AtDirectory;
use super::context::{Ancestors, Context};
use super::directory::{NamedDirectory, Names, fixed_listing, unreadable};
use super::document::{Document, DocumentContent, state_of_file};
use super::fragment::fragment;
use super::metadata::metadata;
use super::moment::Moment;
use super::node::{Directory, DirectoryKind, Entry, Freshness, Link, Listing, Node, NodeType};
use super::permissions::Origin;
use super::view::{Shown, Viewed};
use crate::catalog::Array;
use crate::catalog::commits::Hidden;
use crate::catalog::listing::{ArrayListing, FragmentEntry};
use crate::catalog::pin::Pin;
use crate::catalog::time::When;
use crate::describe::{self, render};
use crate::error::{Error, ErrorKind, Result};
use crate::format::schema::Schema;
use crate::fragment::prefetch::TailPrefetch;
use crate::fragment::schemas::LEGACY_SCHEMA;
use crate::fragment::{Fragment, Outline};
use crate::names;
use crate::runtime::hash;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory of an array, now or (in `at/`) at another time.
#[derive(Clone)]
pub struct ArrayDirectory {
    context: Arc<Context>,
    moment: Moment,
    above: Ancestors,
}

impl ArrayDirectory {
    /// The directory of `array`.
    pub fn new(context: Arc<Context>, array: Arc<Array>, above: Ancestors) -> Self {
        ArrayDirectory {
            context,
            moment: Moment {
                array,
                when: When::Now,
            },
            above,
        }
    }

    /// The directory of the array in a range of time, or in a state.
    pub fn at(&self, when: When) -> ArrayDirectory {
        let mut past = self.clone();
        past.moment.when = when;
        past
    }

    /// The directory of the array in the state called `pin`; see [`Array::pinned`].
    pub fn pinned(&self, pin: Pin) -> Result<ArrayDirectory> {
        let pinned = self.array().pinned(pin)?;
        self.context.keep_pinned(self.array());
        Ok(self.at(When::Pinned(pinned)))
    }

    /// Whether it is a directory in `at/`.
    fn is_in_at(&self) -> bool {
        self.moment.is_in_at()
    }

    /// The array.
    pub fn array(&self) -> &Arc<Array> {
        &self.moment.array
    }

    /// A document of the array at its time. `state` is as in [`Document::node`].
    fn document(
        &self,
        name: &'static str,
        mtime: u64,
        state: fn(&Moment) -> Option<u64>,
        content: fn(&Moment) -> Result<DocumentContent>,
    ) -> Node {
        let document = Document {
            engine: self.array().engine.clone(),
            of: self.array().path.clone(),
            name,
            mtime,
            freshness: Freshness::Listing,
            origin: Origin::InArray(self.moment.clone(), name),
        };
        let (of_state, moment) = (self.moment.clone(), self.moment.clone());
        document.node(
            move || state(&of_state).map(|state| hash(&(of_state.when.times(), state))),
            move || {
                content(&moment).or_else(|_| {
                    // The listing may be out of date, and name files that are gone.
                    moment.array.look_again();
                    content(&moment)
                })
            },
        )
    }

    /// What `data/` shows.
    fn data(&self) -> Shown {
        Shown {
            moment: self.moment.clone(),
            subarray: None,
            context: self.context.clone(),
            latest: Arc::default(),
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

    /// The node of `name`, one of [`CHILDREN`].
    fn child(&self, name: &'static str) -> Node {
        let (mtime, moment) = (self.mtime(), self.moment.clone());
        match name {
            "schema.json" => {
                let mtime = self.moment.schema_file().map_or(mtime, |file| file.mtime);
                let state = |moment: &Moment| {
                    let name = moment.schema_file().ok()?.name;
                    moment.array.schemas.state(&name)
                };
                self.document(name, mtime, state, schema_json)
            }
            "metadata.json" => {
                let state = |moment: &Moment| Some(hash(&moment.metadata_paths().ok()?));
                let content = |moment: &Moment| {
                    let array = &moment.array;
                    metadata(&array.engine, &moment.metadata_paths()?, array.key.as_ref())
                };
                self.document(name, mtime, state, content)
            }
            "fragments.json" => self.document(name, mtime, state, fragments_json),
            "commits.json" => {
                let content = |moment: &Moment| super::commits::commits_json(&moment.array);
                self.document(name, mtime, state, content)
            }
            "consolidated_metadata.json" => {
                let content =
                    |moment: &Moment| super::consolidated_metadata::consolidated_metadata(&moment.array);
                self.document(name, mtime, state, content)
            }
            "schemas" => NamedDirectory::node(mtime, Freshness::Listing, SchemaFiles(moment)),
            "enumerations" => NamedDirectory::node(mtime, Freshness::Listing, Enumerations(moment)),
            "data" => self.data().directory(),
            "labels" => {
                let labels = Labels {
                    context: self.context.clone(),
                    moment,
                    above: self.above.clone(),
                };
                NamedDirectory::node(mtime, Freshness::Listing, labels)
            }
            _ => Node::Directory(Arc::new(FragmentsDirectory { moment })),
        }
    }
}

/// The directory of past states.
pub const AT: &str = "at";

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
        self.context.engine.storage.metadata(&self.array().path)?;
        let mut children = self.children().to_vec();
        if !self.lists_data() {
            children.retain(|(name, _)| *name != "data");
        }
        let past = self.is_in_at() || self.array().engine.at().is_some();
        if self.context.show_at && !past {
            children.push((AT, NodeType::Directory));
        }
        Ok(fixed_listing(&children))
    }

    fn mtime(&self) -> u64 {
        match self.moment.when.times() {
            Some(times) if times.end < u64::MAX => times.end,
            _ => self.array().listing().map_or(0, |listing| listing.mtime),
        }
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

/// The state from which the array's documents are derived.
fn state(moment: &Moment) -> Option<u64> {
    match &moment.when {
        When::Pinned(pinned) => Some(hash(&pinned.pin)),
        _ => moment.array.state(&*moment.snapshot().ok()?),
    }
}

fn schema_json(moment: &Moment) -> Result<DocumentContent> {
    schema_of(&moment.array, &moment.schema_file()?.name)
}

fn schema_of(array: &Array, name: &str) -> Result<DocumentContent> {
    let value = describe::schema::schema_json(&*array.schemas.get(name)?, name);
    Ok(DocumentContent::text(render(&value)))
}

/// `schemas/`: all schemas of the array.
struct SchemaFiles(Moment);

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

    fn origin(&self) -> Origin {
        Origin::InArray(self.0.clone(), "schemas")
    }
}

/// `enumerations/`: the enumerations of the current schema.
struct Enumerations(Moment);

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
            freshness: Freshness::Immutable,
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

    fn origin(&self) -> Origin {
        Origin::InArray(self.0.clone(), "enumerations")
    }
}

/// `labels/`: the arrays of the dimension labels inside the array's directory.
struct Labels {
    context: Arc<Context>,
    moment: Moment,
    above: Ancestors,
}

impl Names for Labels {
    type From = Schema;

    fn from(&self) -> Result<Arc<Schema>> {
        self.moment.schema()
    }

    fn names(&self, schema: &Schema) -> Vec<String> {
        let encoded = schema.dimension_labels.iter().map(|l| names::encode(&l.name));
        names::unique(encoded.collect(), names::MAX)
    }

    fn node(&self, schema: &Arc<Schema>, index: usize) -> Result<Option<Node>> {
        let Some(label) = schema.dimension_labels.get(index) else {
            return Ok(None);
        };
        let array = &self.moment.array;
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
            .any(|path| self.context.engine.storage.is_link(path));
        let Some(above) = in_place.then(|| self.above.clone()).or_else(|| self.above.jump()) else {
            log::warn!("{path}: label {name} is not shown: it is reached through too many symbolic links");
            return Ok(None);
        };
        Ok(match (self.context.object(&at, &above), &self.moment.when) {
            (Ok(Some(_)), When::Pinned(pinned)) if pinned.has_label(&at) => {
                let label = ArrayDirectory::new(self.context.clone(), self.context.array(&at), above);
                Some(Node::Directory(Arc::new(label.at(self.moment.when.clone()))))
            }
            (Ok(node), _) => node,
            (Err(e), _) if matches!(e.kind(), ErrorKind::Io(_)) => Some(unreadable(e)),
            (Err(e), _) => {
                log::warn!("{path}: label {name} is not shown: {e}");
                None
            }
        })
    }

    fn kind(&self, _: usize) -> Option<NodeType> {
        None
    }

    fn origin(&self) -> Origin {
        Origin::InArray(self.moment.clone(), "labels")
    }
}

/// `fragments/`: all fragments.
struct FragmentsDirectory {
    moment: Moment,
}

/// The link in `fragments/` to the newest visible fragment.
const LATEST: &str = "latest";

impl FragmentsDirectory {
    /// The link to the newest visible fragment; None if there is none.
    fn latest(&self) -> Result<Option<Node>> {
        let snapshot = self.moment.snapshot()?;
        let link = |entry: &FragmentEntry| {
            Node::Link(Arc::new(Link {
                target: OsString::from(&entry.name),
                mtime: entry.fragment.name.timestamps.1,
            }))
        };
        Ok(snapshot.fragments().next_back().map(link))
    }
}

impl Directory for FragmentsDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == LATEST {
            return self.latest();
        }
        let listing = self.moment.array.listing()?;
        let found = name.to_str().and_then(|name| listing.fragment(name));
        Ok(found.map(|entry| fragment(entry.fragment.clone())))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let listing = self.moment.array.listing()?;
        let entries: Vec<Entry> = listing
            .fragments
            .iter()
            .map(|f| (OsString::from(&f.name), NodeType::Directory))
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        let Ok(listing) = self.moment.array.listing() else {
            return 0;
        };
        let ends = listing.fragments.iter().map(|f| f.fragment.name.timestamps.1);
        ends.max().unwrap_or(0)
    }

    fn origin(&self) -> Origin {
        Origin::InArray(self.moment.clone(), "fragments")
    }
}

fn fragments_json(moment: &Moment) -> Result<DocumentContent> {
    let array = &moment.array;
    let errors: Arc<AtomicBool> = Arc::default();
    let snapshot = moment.snapshot()?;
    let listing = &snapshot.listing;
    let files = listing.consolidated_metadata.iter().map(PathBuf::as_path);
    let consolidated = super::consolidated_metadata::repeated_names(array, files, &errors);
    // Not a part of a pinned state.
    let consolidated = (!matches!(moment.when, When::Pinned(_))).then_some(consolidated);
    let entries = listing.fragments.iter().zip(&snapshot.hidden).enumerate();
    let entries: Vec<_> = entries.collect();
    let fragments = listing.fragments.iter().map(|entry| &entry.fragment);
    let tails = TailPrefetch::new(&array.engine, fragments, Fragment::has_outline);
    let text = describe::render_objects(&entries, |(index, (entry, hidden))| {
        tails.reach(*index);
        let entry = fragment_entry(entry, hidden.as_ref(), consolidated.as_ref(), &errors);
        describe::fragments::entry_json(&entry)
    });
    Ok(DocumentContent::text(text).with_errors(errors))
}

fn fragment_entry(
    entry: &FragmentEntry,
    hidden: Option<&Hidden>,
    consolidated: Option<&HashSet<Vec<u8>>>,
    errors: &AtomicBool,
) -> describe::fragments::FragmentSummary {
    let name = &entry.fragment.name;
    let mut out = describe::fragments::FragmentSummary {
        name: entry.name.clone().into_bytes(),
        format_version: name.version,
        timestamp_range: Some(name.timestamps),
        dense: None,
        cell_num: None,
        tile_num: None,
        size: None,
        schema_name: None,
        non_empty_domain: None,
        has_consolidated_metadata: consolidated.map(|names| names.contains(entry.name.as_bytes())),
        visible: hidden.is_none(),
        reason: hidden.map(Hidden::to_string),
    };
    let outline = entry.fragment.look_at_outline();
    match outline.and_then(|outline| Ok((size(&outline)?, outline))) {
        Ok((size, outline)) => {
            out.format_version = Some(outline.version);
            out.dense = Some(outline.dense);
            out.cell_num = Some(outline.cells);
            out.tile_num = Some(outline.tiles);
            out.size = Some(size);
            out.schema_name = Some(outline.schema_name.clone().into_bytes());
            let domain = outline.domain.as_ref();
            out.non_empty_domain = domain.map(|rect| describe::value::rect(&outline.schema.dimensions, rect));
        }
        Err(e) => {
            // Without the key, the unencrypted part of the footer is shown. Not a transient error.
            let locked = matches!(e.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey);
            errors.fetch_or(!locked, Ordering::Relaxed);
            if locked && let Ok(Some((front, _))) = entry.fragment.clear_footer() {
                out.format_version = Some(front.version);
                out.dense = Some(front.dense);
                out.schema_name = front.schema_name;
            }
            log::warn!("{e}");
            out.reason = Some(match out.reason {
                Some(reason) => format!("{reason}; {e}"),
                None => e.to_string(),
            });
        }
    }
    out
}

/// Bytes of all files of a fragment, including its metadata.
fn size(outline: &Outline) -> Result<u64> {
    outline
        .size
        .ok_or_else(|| Error::limit("the files take more than 2^64 bytes").at(0))
}
