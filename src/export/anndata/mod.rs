//! `anndata.zarr/` and `anndata.h5ad`: a measurement of a SOMA experiment as a Zarr group or an HDF5 file in
//! AnnData's format, for anndata, zarr, h5py and scanpy.
//!
//! | SOMA | AnnData |
//! |---|---|
//! | `obs` of the experiment, `var` of the measurement | the same, rows by ascending joinid |
//! | `X/data`, `X/<layer>` | `X`, `layers/<layer>` |
//! | `obsm`, `varm`, `obsp`, `varp`, `uns` | the same |
//!
//! Rows are the joinids of obs, columns those of var; cells of matrices are placed by joinid. What does not
//! fit is left out, with a reason, and all else stays.
//!
//! Nothing is compressed, and nothing is made before it is looked at. The `zarr.json` of a column of three
//! nullable INT32 without a null, without blanks and line breaks, and its only chunk `c/0`:
//!
//! ```json
//! {"attributes":{"encoding-type":"array","encoding-version":"0.2.0"},"zarr_format":3,"node_type":"array",
//!  "shape":[3],"data_type":"int32","fill_value":0,
//!  "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[3]}},
//!  "chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},
//!  "codecs":[{"name":"bytes","configuration":{"endian":"little"}}]}
//! ```
//!
//! ```text
//! 07 00 00 00  08 00 00 00  09 00 00 00
//! ```
//!
//! | module | |
//! |---|---|
//! | [`source`] | what an AnnData is made of |
//! | [`node`] | groups and arrays |
//! | [`h5ad`] | all of them as one file of HDF5 |
//! | [`frame`] | data frames |
//! | [`text`] | text |
//! | [`matrix`](mod@matrix) | arrays of numbers |
//! | [`csr`] | sparse matrices by rows |

mod axis;
mod csr;
mod frame;
mod h5ad;
mod matrix;
pub mod node;
mod source;
mod text;

use crate::bytes::Keep;
use crate::catalog::group::OpenGroup;
use crate::error::{Error, ErrorKind, Result};
use crate::export::chunks::MAX_LISTED_CHUNKS;
use crate::export::grid::Value;
use crate::export::hdf5::MAX_RANK;
use crate::export::joined::{Joined, JoinedSource};
use crate::layout::FileLayout;
use crate::query::View;
use crate::runtime::cache::CacheKey;
use axis::Axis;
use frame::{Frame, unfit_name};
use matrix::{Dense, Division, Filled, MetadataArray, Sparse, domain_shape};
use node::{Group, Member, Members, Node, Type};
use source::{Described, Object};
pub use source::{Found, FoundGroup, MeasurementSource, SourceGroup};
use std::sync::Arc;

/// The kind of SOMA object that a measurement is.
const MEASUREMENT: &str = "SOMAMeasurement";

/// The layer that is X.
const DATA: &str = "data";

/// The members of a measurement that have a place in an AnnData.
const PARTS: [&str; 7] = ["var", "X", "obsm", "varm", "obsp", "varp", "uns"];

/// The name of the directory.
pub const NAME: &str = "anndata.zarr";

/// The name of the file.
pub const HDF5: &str = "anndata.h5ad";

/// A format of an AnnData.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A directory.
    Zarr,
    /// A file.
    Hdf5,
}

/// What an AnnData of this name is: its format, and the layer that is X, None for the usual one. None if no
/// AnnData is called so.
pub fn named(name: &str) -> Option<(Format, Option<&str>)> {
    let layer = name.strip_prefix("anndata.");
    let layer_of = |suffix: &str| layer?.strip_suffix(suffix);
    match name {
        NAME => Some((Format::Zarr, None)),
        HDF5 => Some((Format::Hdf5, None)),
        _ => match layer_of(".zarr") {
            Some(layer) => Some((Format::Zarr, Some(layer))),
            None => Some((Format::Hdf5, Some(layer_of(".h5ad")?))),
        },
    }
}

/// Elements, and why they are left out.
type Reasons = Vec<(String, String)>;

/// What an AnnData does not have.
#[derive(Default)]
struct LeftOut {
    /// Of any format.
    elements: Reasons,
    /// Further elements, of HDF5.
    of_hdf5: Reasons,
    /// Why there is none in HDF5; None if there is one.
    hdf5: Option<String>,
    /// Whether elements could not be read that may be readable the next time.
    is_makeshift: bool,
}

impl LeftOut {
    /// The element that could not be made because of `error`.
    fn failed(&mut self, error: Error) -> Result<Arc<Member>> {
        // Others still wait.
        if error.kind() == ErrorKind::Abandoned {
            return Err(error);
        }
        // Also a damaged file may be copied anew under its name.
        self.is_makeshift = true;
        Ok(Member::new(error))
    }

    fn push(&mut self, element: String, reason: impl Into<String>) {
        self.elements.push((element, reason.into()));
    }

    /// Adds the columns that are left out of the frame that is called `element`.
    fn add_columns(&mut self, element: &str, frame: &Frame) {
        let named = |(name, reason): &(String, String)| (format!("{element}/{name}"), reason.clone());
        self.is_makeshift |= frame.lacks_labels();
        self.elements.extend(frame.left_out.iter().map(named));
        self.of_hdf5.extend(frame.left_out_of_hdf5.iter().map(named));
    }
}

/// A measurement as an AnnData.
pub struct AnnData {
    source: MeasurementSource,
    state: u64,
    mtime: u64,
    /// Why there is none, or all of it.
    content: Result<Content, String>,
}

/// All of an AnnData.
struct Content {
    obs: Arc<Member>,
    var: Arc<Member>,
    layers: Members,
    /// obsm, varm, obsp, varp and uns.
    others: Members,
    left_out: LeftOut,
}

/// Whether a group is a measurement. Reads its metadata, once for each state of it.
pub fn is_measurement(group: &Arc<OpenGroup>) -> Result<bool> {
    let engine = group.engine();
    let group = FoundGroup::new(group)?;
    let key = CacheKey::of(engine.number(&("is a measurement", group.group.path(), &group.metadata)));
    let made = || Ok(vec![group.described()?.kind.as_deref() == Some(MEASUREMENT)]);
    Ok(engine.cache.derive(key, 1, Keep::Staying, made)?[0])
}

impl Joined for AnnData {
    type Source = MeasurementSource;

    /// Reads joinids as well, if they have gaps.
    fn new(source: MeasurementSource, state: u64) -> Result<AnnData> {
        Ok(AnnData {
            mtime: source.mtime(),
            content: Content::new(&source)?,
            source,
            state,
        })
    }

    fn source(&self) -> &MeasurementSource {
        &self.source
    }

    fn state(&self) -> u64 {
        self.state
    }

    fn is_makeshift(&self) -> bool {
        let content = self.content.as_ref();
        content.is_ok_and(|content| content.left_out.is_makeshift)
    }
}

impl AnnData {
    /// Why there is no AnnData in a format; None if there is one.
    pub fn absent(&self, format: Format) -> Option<&str> {
        match (&self.content, format) {
            (Err(reason), _) => Some(reason),
            (Ok(_), Format::Zarr) => None,
            (Ok(content), Format::Hdf5) => content.left_out.hdf5.as_deref(),
        }
    }

    /// The elements that are left out of a format, and why.
    pub fn left_out(&self, format: Format) -> impl Iterator<Item = (&str, &str)> {
        let left_out = self.content.as_ref().ok().map(|content| &content.left_out);
        let own = left_out.filter(|_| format == Format::Hdf5);
        let all = left_out.into_iter().flat_map(|left_out| &left_out.elements);
        all.chain(own.into_iter().flat_map(|left_out| &left_out.of_hdf5))
            .map(|(element, reason)| (&**element, &**reason))
    }

    /// The newest of the times of commits and changes of its arrays, in milliseconds since the Unix epoch.
    pub fn mtime(&self) -> u64 {
        self.mtime
    }

    /// The group at the top, in which X is the layer `layer`, or else the layer `data` if there is one.
    ///
    /// # Errors
    ///
    /// `NotFound`, with the reason, if there is no AnnData in this format, or no such layer.
    pub fn root(&self, format: Format, layer: Option<&str>) -> Result<Group> {
        let content = match (&self.content, self.absent(format)) {
            (Ok(content), None) => content,
            (Ok(_), Some(reason)) => return Err(Error::not_found(reason)),
            (Err(reason), _) => return Err(Error::not_found(reason.as_str())),
        };
        let is_x = |name: &str| name == layer.unwrap_or(DATA);
        let x = content.layers.iter().find(|(name, _)| is_x(name));
        if let (None, Some(layer)) = (x, layer) {
            let element = format!("layers/{layer}");
            let mut left_out = self.left_out(format);
            let known = left_out.find(|(own, _)| *own == element);
            let reason = known.map_or("there is no such layer", |(_, reason)| reason);
            return Err(Error::not_found(format!("{element}: {reason}")));
        }
        let layers = content.layers.iter().filter(|(name, _)| !is_x(name));
        let layers = Member::new(Node::from(Group::new("dict", layers.cloned().collect())));
        let mut members: Members = Vec::new();
        members.extend(x.map(|(_, member)| ("X".to_owned(), member.clone())));
        members.push(("obs".to_owned(), content.obs.clone()));
        members.push(("var".to_owned(), content.var.clone()));
        members.push(("layers".to_owned(), layers));
        members.extend(content.others.iter().cloned());
        Ok(Group::new("anndata", members))
    }

    /// The file of HDF5, with X as in [`AnnData::root`]. Its length needs the number of cells of all sparse
    /// matrices, and the lengths of all text.
    ///
    /// # Errors
    ///
    /// Those of [`AnnData::root`]; if what the length needs cannot be read.
    pub fn h5ad(&self, layer: Option<&str>) -> Result<FileLayout> {
        let root = self.root(Format::Hdf5, layer)?;
        let (experiment, group) = (
            &self.source.experiment.group,
            &self.source.measurement.group.group,
        );
        let engine = group.engine();
        let object = engine.number(&(HDF5, experiment.path(), group.path(), self.state, layer));
        h5ad::file(engine, object, self.state, &root)
    }

    /// Whether listings show the directory: not if it has very many chunks. Reads metadata.
    pub fn is_listed(&self) -> bool {
        let root = self.root(Format::Zarr, None);
        root.is_ok_and(|root| Node::from(root).chunks() <= MAX_LISTED_CHUNKS)
    }
}

impl Content {
    fn new(source: &MeasurementSource) -> Result<Result<Content, String>> {
        let kind = |group: &FoundGroup| Ok(group.described()?.kind);
        if kind(&source.experiment)?.as_deref() != Some("SOMAExperiment") {
            return Ok(Err("the path does not go through ms of an experiment".to_owned()));
        }
        if kind(&source.measurement.group)?.as_deref() != Some(MEASUREMENT) {
            return Ok(Err("the group is no measurement".to_owned()));
        }
        let mut left_out = LeftOut::default();
        let mut frames = Vec::new();
        let missing = Found::Absent("there is none".to_owned());
        let var = source.measurement.member("var").unwrap_or(&missing);
        for (name, found) in [("obs", &source.obs), ("var", var)] {
            let reason = match Object::of(found)? {
                Ok(Object::Frame(view, described)) => match frame::unfit(&view) {
                    None => {
                        let frame = frame_of(view, &described, &format!("{name}_id"), true)?;
                        left_out.add_columns(name, &frame);
                        frames.push(frame);
                        continue;
                    }
                    Some(reason) => reason.to_owned(),
                },
                Ok(_) => "it is no data frame".to_owned(),
                Err(reason) => reason,
            };
            return Ok(Err(format!("{name}: {reason}")));
        }
        let (obs, var) = (&frames[0], &frames[1]);
        let mut others = Members::new();
        let mut elements = Elements {
            source,
            left_out: &mut left_out,
        };
        let layers = elements.matrices("X", "layers", obs, Some(var))?;
        for (name, rows, columns) in [
            ("obsm", obs, None),
            ("varm", var, None),
            ("obsp", obs, Some(obs)),
            ("varp", var, Some(var)),
        ] {
            let members = elements.matrices(name, name, rows, columns)?;
            let group = Node::from(Group::new("dict", members));
            others.push((name.to_owned(), Member::new(group)));
        }
        others.push(("uns".to_owned(), elements.uns()?));
        for (name, _) in &source.measurement.members {
            let name = String::from_utf8_lossy(name);
            if !PARTS.contains(&&*name) {
                left_out.push(name.into_owned(), "it is no part of an AnnData");
            }
        }
        let frame = |frame: &Arc<Frame>| Member::new(Node::from(frame.group()));
        Ok(Ok(Content {
            obs: frame(obs),
            var: frame(var),
            layers,
            others,
            left_out,
        }))
    }
}

/// The frame of an array with joinids. Its rows are called as the column that metadata names; else as the
/// column `fallback`, which has no name then.
fn frame_of(view: Arc<View>, described: &Described, fallback: &str, text_index: bool) -> Result<Arc<Frame>> {
    let stored = described.text(b"soma_dataframe_original_index_name");
    let stored = stored.and_then(|stored| serde_json::from_str::<Option<String>>(stored).ok()?);
    let index = match &stored {
        Some(name) => (name.as_bytes(), Some(&**name)),
        None => (fallback.as_bytes(), None),
    };
    Frame::new(view, Some(index), text_index).map(Arc::new)
}

/// Collects the elements of a measurement.
struct Elements<'s> {
    source: &'s MeasurementSource,
    left_out: &'s mut LeftOut,
}

impl<'s> Elements<'s> {
    /// The members of a collection of the measurement; none if it is missing.
    fn collection(&mut self, name: &str, shown: &str) -> Result<Option<(&'s SourceGroup, Described)>> {
        let source: &'s MeasurementSource = self.source;
        let Some(found) = source.measurement.member(name) else {
            return Ok(None);
        };
        let reason = match Object::of(found)? {
            Ok(Object::Collection(group, described)) => return Ok(Some((group, described))),
            Ok(_) => "it is no collection".to_owned(),
            Err(reason) => reason,
        };
        self.left_out.push(shown.to_owned(), reason);
        Ok(None)
    }

    /// The matrices in collection `name`, whose elements are called `shown/<name>`. Without an axis of
    /// columns each has its own width.
    fn matrices(
        &mut self,
        name: &str,
        shown: &str,
        rows: &Arc<Frame>,
        columns: Option<&Arc<Frame>>,
    ) -> Result<Members> {
        let Some((group, _)) = self.collection(name, shown)? else {
            return Ok(Members::new());
        };
        let mut members = Members::new();
        for (name, found) in &group.members {
            let shown_name = String::from_utf8_lossy(name).into_owned();
            let made = match unfit_name(name) {
                Some(reason) => Err(reason.to_owned()),
                None => match matrix(found, rows, columns) {
                    Ok(made) => made,
                    Err(error) => Ok(self.left_out.failed(error)?),
                },
            };
            match made {
                Ok(member) => members.push((shown_name, member)),
                Err(reason) => self.left_out.push(format!("{shown}/{shown_name}"), reason),
            }
        }
        Ok(members)
    }

    fn uns(&mut self) -> Result<Arc<Member>> {
        let group = match self.collection("uns", "uns") {
            Ok(Some((group, described))) => uns("uns", group, &described, self.left_out)?,
            Ok(None) => Group::new("dict", Members::new()),
            Err(error) => return self.left_out.failed(error),
        };
        Ok(Member::new(Node::from(group)))
    }
}

/// The matrix that a member is, or why it is none.
fn matrix(
    found: &Found,
    rows: &Arc<Frame>,
    columns: Option<&Arc<Frame>>,
) -> Result<Result<Arc<Member>, String>> {
    let view = match Object::of(found)? {
        Ok(Object::Sparse(view) | Object::Dense(view)) => view,
        Ok(Object::Frame(..)) => return Ok(Err("it is a data frame".to_owned())),
        Ok(Object::Collection(..)) => return Ok(Err("it is a collection".to_owned())),
        Err(reason) => return Ok(Err(reason)),
    };
    if let Some(reason) = unfit_values(&view)? {
        return Ok(Err(reason));
    }
    if view.schema().dimensions.len() != 2 {
        return Ok(Err("it does not have two dimensions".to_owned()));
    }
    if view.is_dense() {
        let Some(domain) = domain_shape(view.schema()) else {
            return Ok(Err("its domain does not begin at 0".to_owned()));
        };
        let mut shape = domain.clone();
        let axes = [Some(rows), columns];
        for (length, frame) in shape.iter_mut().zip(axes) {
            let Some(frame) = frame else { continue };
            match &*frame.axis()? {
                Axis::Listed(_) => return Ok(Err("joinids have gaps, and it is dense".to_owned())),
                Axis::Whole(count) if count > length => {
                    return Ok(Err(format!("it has {length} of {count} rows or columns")));
                }
                Axis::Whole(count) => *length = *count,
            }
        }
        let division = match columns {
            Some(_) => Division::Tiles,
            None => Division::Rows,
        };
        return Ok(Ok(Member::new(Dense {
            view,
            shape,
            division,
        })));
    }
    Ok(Ok(match columns {
        Some(columns) => Member::new(Sparse {
            view,
            rows: rows.clone(),
            columns: columns.clone(),
        }),
        None => Member::new(Filled {
            view,
            rows: rows.clone(),
        }),
    }))
}

/// Why the values of an array cannot be shown; None if they can.
fn unfit_values(view: &View) -> Result<Option<String>> {
    if let Some(reason) = matrix::unfit(view) {
        return Ok(Some(reason.to_owned()));
    }
    let data = view.fields().iter().position(|field| field.name == matrix::DATA);
    data.map_or(Ok(None), |field| view.unreadable(field))
}

/// The group of a collection in uns, which is called `path`.
fn uns(path: &str, group: &SourceGroup, described: &Described, left_out: &mut LeftOut) -> Result<Group> {
    let mut members = Members::new();
    for (key, value) in &described.pairs {
        if key.starts_with(b"soma_") {
            continue;
        }
        let name = String::from_utf8_lossy(key).into_owned();
        let reason = match (unfit_name(key), value) {
            (Some(reason), _) => reason,
            (None, Err(reason)) => *reason,
            (None, Ok(value)) => {
                members.push((name, Member::new(scalar(value))));
                continue;
            }
        };
        left_out.push(format!("{path}/{name}"), reason);
    }
    for (name, found) in &group.members {
        // Metadata wins.
        if described.pairs.contains_key(name) && !name.starts_with(b"soma_") {
            continue;
        }
        let shown = String::from_utf8_lossy(name).into_owned();
        let path = format!("{path}/{shown}");
        let made = match unfit_name(name) {
            Some(reason) => Ok(Err(reason.to_owned())),
            None => uns_member(&path, found, left_out),
        };
        match made.or_else(|error| left_out.failed(error).map(Ok))? {
            Ok(member) => members.push((shown, member)),
            Err(reason) => left_out.push(path, reason),
        }
    }
    Ok(Group::new("dict", members))
}

/// What a member in uns is, or why it is nothing.
fn uns_member(path: &str, found: &Found, left_out: &mut LeftOut) -> Result<Result<Arc<Member>, String>> {
    let (view, described) = match Object::of(found)? {
        Err(reason) => return Ok(Err(reason)),
        Ok(Object::Collection(group, described)) => {
            let group = uns(path, group, &described, left_out)?;
            return Ok(Ok(Member::new(Node::from(group))));
        }
        Ok(Object::Frame(view, described)) => (view, described),
        Ok(Object::Sparse(view)) => {
            if let Some(reason) = unfit_values(&view)? {
                return Ok(Err(reason));
            }
            let frame = Arc::new(Frame::new(view, None, false)?);
            return Ok(Ok(Member::new(Node::from(frame.group()))));
        }
        Ok(Object::Dense(view)) => {
            if let Some(reason) = unfit_values(&view)? {
                return Ok(Err(reason));
            }
            let Some(shape) = domain_shape(view.schema()) else {
                return Ok(Err("its domain does not begin at 0".to_owned()));
            };
            if shape.len() > MAX_RANK {
                left_out.hdf5 = Some(format!(
                    "{path} has more than {MAX_RANK} axes, which HDF5 does not have"
                ));
            }
            return Ok(Ok(Member::new(Dense {
                view,
                shape,
                division: Division::Tiles,
            })));
        }
    };
    if let Some(reason) = frame::unfit(&view) {
        return Ok(Err(reason.to_owned()));
    }
    let frame = frame_of(view, &described, "index", false)?;
    match described.text(b"soma_uns_outgest_hint") {
        Some("array_1d") => {
            if let Some(field) = frame.text_column(b"values") {
                return Ok(Ok(Member::new(frame.column(field))));
            }
        }
        Some("array_2d") => {
            let fields: Vec<usize> = (0..)
                .map_while(|number| frame.text_column(format!("values_{number}").as_bytes()))
                .collect();
            if !fields.is_empty() && fields.len() + 1 == frame.view.fields().len() {
                return Ok(Ok(Member::new(frame.matrix(fields))));
            }
        }
        _ => {}
    }
    left_out.add_columns(path, &frame);
    Ok(Ok(Member::new(Node::from(frame.group()))))
}

/// A value of metadata.
fn scalar(value: &Value) -> MetadataArray {
    match value {
        Value::Text(text) => MetadataArray {
            of: Type::Text,
            bytes: Arc::new(text.as_bytes().to_vec()),
            count: None,
        },
        Value::Numbers(datatype, bytes) => {
            let count = (bytes.len() / datatype.size()) as u64;
            MetadataArray {
                of: Type::Number(*datatype),
                bytes: Arc::new(bytes.clone()),
                count: Some(count).filter(|count| *count != 1),
            }
        }
    }
}
