//! What an AnnData is made of: the arrays and groups of a SOMA experiment, and what their metadata calls
//! them.

use crate::catalog::group::{OpenGroup, group_metadata};
use crate::error::{Error, ErrorKind, Result};
use crate::export::grid::Value;
use crate::export::joined::{JoinedSource, SourceArray};
use crate::export::metadata::all_pairs;
use crate::query::View;
use crate::runtime::hash;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A measurement of an experiment, as far as it is known from names.
pub struct MeasurementSource {
    /// The experiment, and its files of metadata.
    pub experiment: FoundGroup,
    /// Its member `obs`.
    pub obs: Found,
    /// The measurement.
    pub measurement: SourceGroup,
}

/// A group, with what was found of it.
pub struct FoundGroup {
    /// The group.
    pub group: Arc<OpenGroup>,
    /// Its files of metadata in force, oldest first.
    pub metadata: Vec<PathBuf>,
}

/// A group with its members.
pub struct SourceGroup {
    /// The group, and its files of metadata.
    pub group: FoundGroup,
    /// The members by name, in the order of members.
    pub members: Vec<(Vec<u8>, Found)>,
}

/// What a member is.
pub enum Found {
    /// An array.
    Array(SourceArray),
    /// A group.
    Group(SourceGroup),
    /// Nothing that can be shown, and why.
    Absent(String),
    /// What could not be found out.
    Failed(Error),
}

impl JoinedSource for MeasurementSource {
    fn state(&self) -> Result<u64> {
        let experiment = &self.experiment.metadata;
        Ok(hash(&(experiment, self.obs.state()?, self.measurement.state()?)))
    }

    fn arrays(&self) -> Vec<&SourceArray> {
        let mut all = Vec::new();
        self.obs.add_arrays(&mut all);
        self.measurement.add_arrays(&mut all);
        all
    }

    /// The experiment, and the groups of the measurement.
    fn groups(&self) -> Vec<&Arc<OpenGroup>> {
        let mut all = vec![&self.experiment.group];
        self.measurement.add_groups(&mut all);
        all
    }
}

impl FoundGroup {
    /// The group as it is now. Lists its metadata.
    pub fn new(group: &Arc<OpenGroup>) -> Result<FoundGroup> {
        Ok(FoundGroup {
            metadata: group_metadata(group.engine(), group.path())?,
            group: group.clone(),
        })
    }

    /// What its metadata says. Reads only files of metadata.
    pub(super) fn described(&self) -> Result<Described> {
        let (engine, path) = (self.group.engine(), self.group.path());
        let files = self.metadata.iter().map(|file| &**file);
        all_pairs(engine, files, engine.key_for(path)).map(Described::new)
    }
}

impl SourceGroup {
    /// The member of this name; None if there is none.
    pub(super) fn member(&self, name: &str) -> Option<&Found> {
        let found = self.members.iter().find(|(known, _)| known == name.as_bytes());
        found.map(|(_, found)| found)
    }

    fn state(&self) -> Result<u64> {
        let members = self.members.iter();
        let members = members.map(|(name, found)| Ok((name, found.state()?)));
        let members: Vec<_> = members.collect::<Result<_>>()?;
        Ok(hash(&(self.group.group.path(), members, &self.group.metadata)))
    }

    fn add_arrays<'s>(&'s self, all: &mut Vec<&'s SourceArray>) {
        self.members.iter().for_each(|(_, found)| found.add_arrays(all));
    }

    fn add_groups<'s>(&'s self, all: &mut Vec<&'s Arc<OpenGroup>>) {
        all.push(&self.group.group);
        for (_, found) in &self.members {
            if let Found::Group(group) = found {
                group.add_groups(all);
            }
        }
    }
}

impl Found {
    fn state(&self) -> Result<u64> {
        Ok(match self {
            Found::Array(array) => match array.selection() {
                // A copy elsewhere has files of the same names.
                Ok(selection) => hash(&(&array.array.path, selection.state())),
                Err(error) if error.kind() == ErrorKind::Abandoned => return Err(error),
                // What is damaged leaves all else as it is.
                Err(error) => hash(&error.to_string()),
            },
            Found::Group(group) => group.state()?,
            Found::Absent(reason) => hash(reason),
            Found::Failed(error) if error.kind() == ErrorKind::Abandoned => return Err(error.clone()),
            Found::Failed(error) => hash(&error.to_string()),
        })
    }

    fn add_arrays<'s>(&'s self, all: &mut Vec<&'s SourceArray>) {
        match self {
            Found::Array(array) => all.push(array),
            Found::Group(group) => group.add_arrays(all),
            Found::Absent(_) | Found::Failed(_) => {}
        }
    }
}

/// What the metadata of an array or a group says.
pub(super) struct Described {
    /// The kind of SOMA object; None for other objects.
    pub(super) kind: Option<String>,
    /// All pairs: values, or why they are not shown.
    pub(super) pairs: BTreeMap<Vec<u8>, Result<Value, &'static str>>,
}

impl Described {
    fn array(view: &View) -> Result<Described> {
        let (array, snapshot) = (view.array(), view.snapshot());
        let files = snapshot.metadata().map(|file| &*file.path);
        all_pairs(&array.engine, files, array.key.as_ref()).map(Described::new)
    }

    fn new(pairs: BTreeMap<Vec<u8>, Result<Value, &'static str>>) -> Described {
        let mut described = Described { kind: None, pairs };
        described.kind = described.text(b"soma_object_type").map(str::to_owned);
        described
    }

    /// The text of a key; None if it has none.
    pub(super) fn text(&self, key: &[u8]) -> Option<&str> {
        match self.pairs.get(key) {
            Some(Ok(Value::Text(text))) => Some(text),
            _ => None,
        }
    }
}

/// A SOMA object.
pub(super) enum Object<'s> {
    /// A data frame, and what its metadata says.
    Frame(Arc<View>, Described),
    /// A sparse array.
    Sparse(Arc<View>),
    /// A dense array.
    Dense(Arc<View>),
    /// A collection, and what its metadata says.
    Collection(&'s SourceGroup, Described),
}

impl Object<'_> {
    /// The object that a member is, or why it is none. Reads schema and metadata.
    pub(super) fn of(found: &Found) -> Result<Result<Object<'_>, String>> {
        match found {
            Found::Absent(reason) => Ok(Err(reason.clone())),
            Found::Failed(error) => Err(error.clone()),
            Found::Group(group) => {
                let described = group.group.described()?;
                match described.kind.as_deref() {
                    Some("SOMACollection" | "SOMAMeasurement" | "SOMAExperiment") => {
                        Ok(Ok(Object::Collection(group, described)))
                    }
                    kind => Ok(Err(no_object(kind))),
                }
            }
            Found::Array(array) => {
                let opened = array
                    .selection()
                    .map(|selection| Arc::new(View::of(selection.clone())));
                let opened = opened.and_then(|view| Ok((Described::array(&view)?, view)));
                let (described, view) = match opened {
                    Ok(opened) => opened,
                    Err(error) if matches!(error.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey) => {
                        return Ok(Err("its encryption key was not given".to_owned()));
                    }
                    Err(error) => return Err(error),
                };
                Ok(match (described.kind.as_deref(), view.is_dense()) {
                    (Some("SOMADataFrame"), false) => Ok(Object::Frame(view, described)),
                    (Some("SOMASparseNDArray"), false) => Ok(Object::Sparse(view)),
                    (Some("SOMADenseNDArray"), true) => Ok(Object::Dense(view)),
                    (kind, _) => Err(no_object(kind)),
                })
            }
        }
    }
}

fn no_object(kind: Option<&str>) -> String {
    match kind {
        Some(kind) => format!("it cannot be a {kind}"),
        None => "it is no SOMA object".to_owned(),
    }
}
