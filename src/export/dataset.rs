//! `dataset.zarr/` and `dataset.nc`: the dense arrays of a group as the variables of one data set, as
//! TileDB-CF's engine for xarray joins them.
//!
//! A member with one attribute is a variable of the member's name; the attributes of a member with several,
//! or called `array<N>`, are variables of their own names, without `.data` and `.index`. A dimension is as
//! long as the smallest upper end of what its members have written; the key
//! `__tiledb_array_fixed_dimensions.<member>` of the group names dimensions that are as long as their domain.
//! Cells that a member has not written have the fill value. The only dimension of scalar variables,
//! `__scalars`, is dropped. Groups in the group's directory are groups of the data set. TileDB-CF before 0.9
//! keeps the attributes of a group in the metadata of an array, `__tiledb_group`.
//!
//! Rasters that GDAL wrote end where GDAL says. `X` and `Y` get coordinates if all arrays along them are
//! rasters at one place.
//!
//! The resolutions of an image are no variables: such a group has [`image.ome.zarr/`](image) instead.
//!
//! What does not fit is left out, with a reason, and all else stays.

pub mod image;
#[cfg(test)]
mod tests;

use super::chunks::{Chunks, Extent, MAX_LISTED_CHUNKS, extents};
use super::file_group::FileGroup;
use super::grid::{self, Grid, Ground, Naming, VariableKind};
use super::hdf5::MAX_RANK;
use super::joined::{Joined, JoinedSource, SourceArray};
use super::metadata::gdal::Axes;
use super::metadata::{GroupMetadata, Metadata};
use super::raster::{self, Placed};
use super::{netcdf, zarr};
use crate::bytes::Keep;
use crate::catalog::group::{OpenGroup, group_metadata};
use crate::error::{ErrorKind, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind as Type};
use crate::format::enums::ArrayType;
use crate::format::scalar::Scalar;
use crate::format::schema::{Dimension, Schema};
use crate::layout::FileLayout;
use crate::names;
use crate::query::selection::Selection;
use crate::query::{DimRange, Field, View};
use crate::runtime::cache::CacheKey;
use crate::runtime::{get_or_make, hash};
use image::{Image, ImageDescription, Stored};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::iter;
use std::sync::{Arc, OnceLock};

/// The dimension of scalar variables.
const SCALARS: &str = "__scalars";

/// The array in which TileDB-CF before 0.9 keeps the attributes of a group.
const GROUP_ATTRIBUTES: &[u8] = b"__tiledb_group";

/// A member with this name and a number has several variables, whatever it is called.
const COLLECTED: &[u8] = b"array";

/// What a variable of TileDB-CF has behind its name if a dimension of its array has that name too.
const SUFFIXES: [&[u8]; 2] = [b".data", b".index"];

/// The name of an attribute without such a suffix.
fn without_suffix(name: &[u8]) -> &[u8] {
    let mut stripped = SUFFIXES.iter().filter_map(|suffix| name.strip_suffix(*suffix));
    stripped.find(|own| !own.is_empty()).unwrap_or(name)
}

/// The member of a raster that has its full resolution.
pub const FULL_RESOLUTION: &[u8] = b"l_0";

/// The most arrays of a group whose data set is listed.
pub const MAX_LISTED_ARRAYS: usize = 64;

/// A group with its members, as far as they are known from names.
pub struct DatasetSource {
    /// The group.
    pub group: Arc<OpenGroup>,
    /// The arrays and their names as members, in their order.
    pub arrays: Vec<(Vec<u8>, SourceArray)>,
    /// The groups in its directory, members or not.
    pub groups: Vec<(Vec<u8>, DatasetSource)>,
    /// What is left out already, and why.
    pub left_out: Vec<(String, String)>,
}

impl JoinedSource for DatasetSource {
    fn state(&self) -> Result<u64> {
        let arrays = self.arrays.iter();
        let arrays = arrays.map(|(name, source)| {
            let state = select(source)?.map(Selection::state);
            Ok((name, &source.array.path, state))
        });
        let arrays: Vec<_> = arrays.collect::<Result<_>>()?;
        let groups = self.groups.iter();
        let groups: Vec<_> = groups
            .map(|(name, group)| Ok((name, group.state()?)))
            .collect::<Result<_>>()?;
        let metadata = group_metadata(self.group.engine(), self.group.path())?;
        Ok(hash(&(
            self.group.path(),
            arrays,
            groups,
            metadata,
            &self.left_out,
        )))
    }

    fn arrays(&self) -> Vec<&SourceArray> {
        let inner = self.groups.iter().flat_map(|(_, group)| group.arrays());
        self.arrays.iter().map(|(_, array)| array).chain(inner).collect()
    }

    fn groups(&self) -> Vec<&Arc<OpenGroup>> {
        let inner = self.groups.iter().flat_map(|(_, group)| group.groups());
        iter::once(&self.group).chain(inner).collect()
    }
}

/// What an array has; None if it is encrypted and the key is missing.
fn select(array: &SourceArray) -> Result<Option<&Selection>> {
    match array.selection() {
        Ok(selection) => Ok(Some(selection)),
        Err(error) if matches!(error.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What kind of data set a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Variables over common dimensions.
    Cf,
    /// A raster of GDAL, with overviews.
    Raster,
    /// An image in several resolutions.
    Image,
}

impl Kind {
    /// The word for it in `dataset.json`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Cf => "cf",
            Kind::Raster => "raster",
            Kind::Image => "image",
        }
    }

    /// That of a group with this `dataset_type` in its metadata.
    pub fn told(dataset_type: Option<&str>) -> Kind {
        match dataset_type {
            Some("raster") => Kind::Raster,
            // Releases of tiledb-bioimg before 0.2.9 wrote it in capitals.
            Some("bioimg" | "BIOIMG") => Kind::Image,
            _ => Kind::Cf,
        }
    }
}

/// Whether a group is a raster of GDAL. Reads its metadata.
pub fn is_raster(group: &OpenGroup) -> Result<bool> {
    Ok(Kind::told(GroupMetadata::of(group)?.dataset_type()) == Kind::Raster)
}

/// A variable of a data set.
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The name of the array that has it, and of the attribute.
    pub array: Vec<u8>,
    /// The name of the attribute.
    pub attribute: Vec<u8>,
    /// Its dimensions, as indexes of those of the group.
    pub dimensions: Vec<usize>,
    /// Whether the Zarr hierarchy has it.
    pub is_in_zarr: bool,
    /// How many axes it has: one more than dimensions if there are several values in a cell.
    axes: usize,
    /// Index of the field in its view.
    field: usize,
    /// Index of the array among those that have variables.
    member: usize,
    /// Values in a cell of the view, and bytes of the cell.
    size: u64,
}

/// A group of a data set.
pub struct Group {
    /// Names and lengths.
    pub dimensions: Vec<(String, u64)>,
    /// In the order of members and attributes.
    pub variables: Vec<Variable>,
    /// Members, `member/attribute`, and keys of metadata that are left out, and why.
    pub left_out: Vec<(String, String)>,
    /// The groups in it by name.
    pub groups: Vec<(String, Group)>,
    /// The image that it is; None if it is none.
    pub image: Option<Arc<Image>>,
    members: Vec<Member>,
    metadata: GroupMetadata,
    /// The members whose metadata are damaged, so that lengths, coordinates or levels may be others.
    damaged: BTreeSet<Vec<u8>>,
}

/// A dense array that has variables.
struct Member {
    schema: Arc<Schema>,
    selection: Selection,
    /// Its dimensions as indexes of the group's; None for scalars and images.
    dimensions: Option<Vec<usize>>,
    /// How many cells the data set has along each dimension of the array.
    lengths: Vec<u64>,
    extents: Vec<Extent>,
    /// Where it is, if it may be a raster.
    ground: Option<Ground>,
}

/// The coordinates along an axis: the centres of pixels, and attributes.
type Coordinates = (grid::Centres, grid::Attributes);

/// What lengths of dimensions are found from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lengths {
    /// From the domains: upper bounds, for which nothing but schemas is read.
    Bounds,
    /// From what is written, by the metadata of fragments.
    Exact,
}

/// A group as one data set.
pub struct Dataset {
    /// What it is.
    pub kind: Kind,
    /// Why it has no exports; None if it has `image.ome.zarr/`, or `dataset.zarr/` and `dataset.nc`.
    pub absent: Option<String>,
    /// Why it has no `dataset.nc`; None if it has one.
    pub absent_netcdf: Option<String>,
    /// All of it.
    pub root: Group,
    source: DatasetSource,
    state: u64,
    /// See [`Dataset::version`].
    version: u64,
    mtime: u64,
    zarr: OnceLock<Arc<FileGroup>>,
}

impl Joined for Dataset {
    type Source = DatasetSource;

    fn new(source: DatasetSource, state: u64) -> Result<Dataset> {
        let (kind, mut root) = Group::new(&source, Lengths::Exact)?;
        let absent = absent(&root);
        let exports = match kind {
            Kind::Image => "image.ome.zarr",
            _ => "dataset.zarr, dataset.nc",
        };
        root.left_out
            .extend(absent.clone().map(|reason| (exports.to_owned(), reason)));
        let most = netcdf::MAX_DIMENSIONS;
        let too_many = (root.count_dimensions() > most).then(|| format!("more than {most} dimensions"));
        root.left_out
            .extend(too_many.clone().map(|reason| ("dataset.nc".to_owned(), reason)));
        Ok(Dataset {
            absent_netcdf: absent.clone().or(too_many),
            absent,
            version: hash(&(state, root.metadata_state())),
            mtime: source.mtime(),
            kind,
            root,
            source,
            state,
            zarr: OnceLock::new(),
        })
    }

    fn source(&self) -> &DatasetSource {
        &self.source
    }

    fn state(&self) -> u64 {
        self.state
    }

    fn is_makeshift(&self) -> bool {
        self.root.is_makeshift()
    }
}

impl Dataset {
    /// Tells apart what is derived from it: the metadata of groups are read after the state was found, and
    /// damaged ones of arrays may be whole again in the same state.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The newest of the times of commits and changes of its arrays, in milliseconds since the Unix epoch.
    pub fn mtime(&self) -> u64 {
        self.mtime
    }

    /// `dataset.zarr/`, or `image.ome.zarr/`.
    pub fn zarr(&self) -> Result<zarr::ZarrGroup> {
        let made = || self.file_group(&self.root, "", Naming::Zarr).map(Arc::new);
        Ok(get_or_make(&self.zarr, made)?.clone().into())
    }

    /// `dataset.nc`. Its length follows from metadata; reads decode the data.
    pub fn netcdf(&self) -> Result<FileLayout> {
        let group = self.file_group(&self.root, "", Naming::NetCdf)?;
        let engine = self.source.group.engine();
        let object = engine.number(&("dataset.nc", self.source.group.path(), self.version));
        netcdf::file(engine, object, self.version, &Arc::new(group), None)
    }

    /// The group at `path` of the data set, and all in it.
    fn file_group(&self, group: &Group, path: &str, naming: Naming) -> Result<FileGroup> {
        let views = group.members.iter().map(|member| Arc::new(member.view()));
        let views: Vec<Arc<View>> = views.collect();
        let engine = self.source.group.engine();
        let of = ("dataset", self.source.group.path(), path, self.version, naming);
        let key = CacheKey::of(engine.number(&of));
        let grid = || group.grid(&views, naming);
        let grid = engine.cache.derive(key, 4096, Keep::Staying, grid)?;
        let own = group.groups.iter().map(|(name, _)| naming.name(name.clone()));
        let names = group_names(&grid, own.collect());
        let groups = names.into_iter().zip(&group.groups).map(|(name, (own, group))| {
            let inner = self.file_group(group, &format!("{path}/{own}"), naming)?;
            Ok((name, Arc::new(inner)))
        });
        Ok(FileGroup {
            groups: groups.collect::<Result<_>>()?,
            grid,
            views,
            image: group.image.clone(),
        })
    }
}

/// The kind of the data set of `source` if listings show it. Reads schemas, of images metadata, and footers
/// only if the domains are too large to tell, or if an attribute of an image changed its type.
pub fn listed(source: &DatasetSource) -> Result<Option<Kind>> {
    let (kind, bounds) = Group::new(source, Lengths::Bounds)?;
    if absent(&bounds).is_some() {
        return Ok(None);
    }
    let is_listed = bounds.chunks() <= MAX_LISTED_CHUNKS
        || kind != Kind::Image && Group::new(source, Lengths::Exact)?.1.chunks() <= MAX_LISTED_CHUNKS;
    Ok(is_listed.then_some(kind))
}

/// Why there are no exports; None if there are.
fn absent(root: &Group) -> Option<String> {
    (!root.has_cells()).then(|| "no array of the group has cells and can be a variable".to_owned())
}

/// The names of groups in a group of this grid: unique among them, the variables and the dimensions, which
/// are all links of one group of HDF5.
fn group_names(grid: &Grid, own: Vec<String>) -> Vec<String> {
    let variables = grid.variables.iter().map(|variable| &variable.name);
    let dimensions = grid.dimensions.iter().map(|(name, _)| name);
    let mut all: Vec<String> = variables.chain(dimensions).cloned().collect();
    let others = all.len();
    all.extend(own);
    names::unique(all, names::MAX).split_off(others)
}

/// Why a format has no variable of this field with so many axes; None if it has one.
fn unfit(field: &Field, axes: usize, naming: Naming) -> Option<String> {
    let too_many = naming == Naming::NetCdf && axes > MAX_RANK;
    let too_many = too_many.then(|| format!("HDF5 has no more than {MAX_RANK} axes"));
    grid::unfit(field, naming).map(str::to_owned).or(too_many)
}

impl Group {
    fn new(source: &DatasetSource, lengths: Lengths) -> Result<(Kind, Group)> {
        let mut metadata = GroupMetadata::of(&source.group)?;
        let kind = Kind::told(metadata.dataset_type());
        let of_group = source.arrays.iter().find(|(name, _)| name == GROUP_ATTRIBUTES);
        let of_group = of_group.map(|(_, array)| select(array)).transpose()?.flatten();
        if let Some(selection) = of_group
            && lengths == Lengths::Exact
        {
            metadata.add(&View::of(selection.clone()))?;
        }
        let mut group = Group {
            dimensions: Vec::new(),
            variables: Vec::new(),
            left_out: source.left_out.clone(),
            groups: Vec::new(),
            image: None,
            members: Vec::new(),
            metadata,
            damaged: BTreeSet::new(),
        };
        for (key, reason) in &group.metadata.left_out {
            group.left_out.push((shown(key), (*reason).to_owned()));
        }
        if kind == Kind::Image {
            group.add_levels(source)?;
            return Ok((kind, group));
        }
        let mut found: Vec<(Found, Vec<u64>)> = Vec::new();
        for (name, array) in &source.arrays {
            if name == GROUP_ATTRIBUTES && of_group.is_some() {
                continue;
            }
            if kind == Kind::Raster && name != FULL_RESOLUTION {
                let has_full = source.arrays.iter().any(|(name, _)| name == FULL_RESOLUTION);
                let reason = match has_full {
                    true => "it is an overview",
                    false => "a raster has its full resolution in l_0, which is not there",
                };
                group.left_out.push((shown(name), reason.to_owned()));
                continue;
            }
            match Found::new(name, array, kind, lengths)? {
                Ok(member) => {
                    group.note_damage(name, member.0.metadata.as_deref());
                    found.push(member);
                }
                Err(reason) => group.left_out.push((shown(name), reason)),
            }
        }
        if lengths == Lengths::Exact {
            let too_long = grid::too_long_for_hdf5(&group.metadata.attributes);
            let reason = "dataset.nc: HDF5 has no room for such a long attribute";
            let too_long = too_long.iter().map(|key| (shown(key), reason.to_owned()));
            group.left_out.extend(too_long);
        }
        group.join(found, lengths)?;
        let mut taken: HashSet<String> = group.variables.iter().map(|one| one.name.clone()).collect();
        for (name, inner) in &source.groups {
            let encoded = names::encode(name);
            if !taken.insert(encoded.clone()) {
                let reason = "a variable or a group before it has this name".to_owned();
                group.left_out.push((shown(name), reason));
                continue;
            }
            match Group::new(inner, lengths)? {
                (Kind::Image, _) => {
                    let reason = "it is an image, which the group has by itself".to_owned();
                    group.left_out.push((shown(name), reason));
                }
                (_, inner) => group.groups.push((encoded, inner)),
            }
        }
        Ok((kind, group))
    }

    /// Finds the lengths of dimensions and adds the variables of arrays, given what each has along its
    /// dimensions, and what that was found from.
    fn join(&mut self, found: Vec<(Found, Vec<u64>)>, from: Lengths) -> Result<()> {
        let mut common: HashMap<String, u64> = HashMap::new();
        for (member, ends) in &found {
            let fixed = self.metadata.fixed(&member.name);
            for (dimension, end) in member.dimensions.iter().zip(ends) {
                if !fixed.contains(dimension) {
                    let length = common.entry(dimension.clone()).or_insert(*end);
                    *length = (*length).min(*end);
                }
            }
        }
        // How many variables would have a name without suffixes: `x`, `x.data`.
        let mut sharing: HashMap<Vec<u8>, usize> = HashMap::new();
        for name in found.iter().flat_map(|(member, _)| member.variable_names()) {
            *sharing.entry(name.to_vec()).or_default() += 1;
        }
        let mut taken = HashSet::new();
        for (member, ends) in found {
            let fixed = self.metadata.fixed(&member.name);
            let axes = member.dimensions.iter().zip(&member.domain);
            let lengths = axes.map(|(dimension, domain)| match fixed.contains(dimension) {
                true => *domain,
                false => common[dimension],
            });
            let lengths: Vec<u64> = lengths.collect();
            let mut axes = member.dimensions.iter().zip(&lengths);
            if let Some((dimension, length)) =
                axes.find(|(name, length)| common.get(*name).is_some_and(|other| other != *length))
            {
                let reason = format!("its length of {dimension:?}, {length}, is not that of others");
                self.left_out.push((shown(&member.name), reason));
                continue;
            }
            for ((dimension, end), length) in member.dimensions.iter().zip(ends).zip(&lengths) {
                if end > *length {
                    let reason =
                        format!("of {end} along {dimension:?}, what is beyond the {length} of another array");
                    self.left_out.push((shown(&member.name), reason));
                }
            }
            common.extend(member.dimensions.iter().cloned().zip(lengths.iter().copied()));
            self.add(member, lengths, from, &sharing, &mut taken)?;
        }
        Ok(())
    }

    /// Adds the variables of a member whose dimensions have these lengths. `sharing` counts the variables of
    /// all members by their names without suffixes.
    fn add(
        &mut self,
        found: Found,
        lengths: Vec<u64>,
        from: Lengths,
        sharing: &HashMap<Vec<u8>, usize>,
        taken: &mut HashSet<String>,
    ) -> Result<()> {
        let is_collected = found.is_collected();
        let mut member = Member {
            schema: found.schema,
            selection: found.selection,
            dimensions: None,
            lengths,
            extents: found.extents,
            ground: None,
        };
        let view = member.view();
        if let Some(metadata) = &found.metadata {
            member.ground = Ground::of(metadata, Placed::of(metadata, &view)?.as_ref());
        }
        let fields = member.schema.fields().into_iter().enumerate();
        let mut variables = Vec::new();
        for (index, field) in fields.skip(member.schema.dimensions.len()) {
            let name = match is_collected {
                true => {
                    let own = without_suffix(&field.name);
                    let mut dimensions = member.schema.dimensions.iter();
                    let is_told_apart = sharing[own] > 1 && dimensions.all(|known| known.name != own);
                    names::attribute(if is_told_apart { &field.name } else { own })
                }
                false => names::encode(&found.name),
            };
            let what = format!("{}/{}", shown(&found.name), shown(&field.name));
            let outer = if found.is_scalar { 0 } else { member.lengths.len() };
            let axes = outer + usize::from(grid::exported(&field).is_some_and(|(_, number)| number > 1));
            let unfit = [Naming::NetCdf, Naming::Zarr].map(|naming| unfit(&field, axes, naming));
            let reason = match &unfit {
                [Some(reason), Some(_)] => Some(reason.clone()),
                _ if from == Lengths::Exact => view.unreadable(index)?,
                _ => None,
            };
            if let Some(reason) = reason {
                self.left_out.push((what, reason));
                continue;
            }
            if !taken.insert(name.clone()) {
                let reason = format!("a variable before it is called {name:?}");
                self.left_out.push((what, reason));
                continue;
            }
            let is_in_zarr = unfit[1].is_none();
            for (export, reason) in ["dataset.nc", "dataset.zarr"].iter().zip(unfit) {
                let reason = reason.map(|reason| (what.clone(), format!("{export}: {reason}")));
                self.left_out.extend(reason);
            }
            variables.push((name, index, field, axes, is_in_zarr));
        }
        if variables.is_empty() {
            return Ok(());
        }
        let mut dimensions = Vec::new();
        if !found.is_scalar {
            for (name, length) in found.dimensions.iter().zip(&member.lengths) {
                let known = self.dimensions.iter().position(|(known, _)| known == name);
                dimensions.push(known.unwrap_or(self.dimensions.len()));
                if known.is_none() {
                    self.dimensions.push((name.clone(), *length));
                }
            }
        }
        let number = self.members.len();
        for (name, index, field, axes, is_in_zarr) in variables {
            self.variables.push(Variable {
                name,
                array: found.name.clone(),
                size: field.cell_size().expect("var-sized fields do not fit"),
                attribute: field.name,
                dimensions: dimensions.clone(),
                is_in_zarr,
                axes,
                field: index,
                member: number,
            });
        }
        let labels = member.schema.dimension_labels.iter().map(|label| {
            let what = format!("{}/{}", shown(&found.name), shown(&label.name));
            (
                what,
                "labels of dimensions are shown by the array's own exports alone".to_owned(),
            )
        });
        self.left_out.extend(labels);
        member.dimensions = (!found.is_scalar).then_some(dimensions);
        self.members.push(member);
        Ok(())
    }

    /// Notes it if the metadata of a member are damaged.
    fn note_damage(&mut self, member: &[u8], metadata: Option<&Metadata>) {
        if metadata.is_some_and(|metadata| metadata.is_damaged) {
            self.damaged.insert(member.to_vec());
            let what = format!("{}/__meta", shown(member));
            self.left_out.push((what, "it is damaged".to_owned()));
        }
    }

    /// Makes it the image that tiledb-bioimg wrote: each array with a level is a variable.
    fn add_levels(&mut self, source: &DatasetSource) -> Result<()> {
        let described = ImageDescription::read(&self.metadata, &mut self.left_out);
        let mut found: BTreeMap<u64, ImageArray> = BTreeMap::new();
        for (name, array) in &source.arrays {
            let level = match Found::new(name, array, Kind::Image, Lengths::Bounds)? {
                Ok((_, ends)) if ends.contains(&0) => Err("nothing is written".to_owned()),
                Ok((member, _)) => {
                    let view = View::of(member.selection.clone());
                    let metadata = Metadata::or_none(&view)?;
                    self.note_damage(name, Some(&metadata));
                    member.level(&described, &view, &metadata)?
                }
                Err(reason) => Err(reason),
            };
            let reason = match level {
                Ok((level, member)) if !found.contains_key(&level) => {
                    found.insert(level, member);
                    continue;
                }
                Ok((level, _)) => format!("a member before it is level {level}"),
                Err(reason) => reason,
            };
            self.left_out.push((shown(name), reason));
        }
        for (name, _) in &source.groups {
            let reason = "an image has no groups".to_owned();
            self.left_out.push((shown(name), reason));
        }
        let stored = found.iter().map(|(level, (member, _, field))| Stored {
            level: *level,
            dimensions: &member.dimensions,
            shape: &member.domain,
            extents: &member.extents,
            size: field.datatype.size() as u64,
        });
        let image = Image::new(&described, &stored.collect::<Vec<_>>(), &mut self.left_out);
        if let Some(first) = image.levels.first() {
            let lengths = first.shape.iter().copied();
            self.dimensions = image.axes.iter().cloned().zip(lengths).collect();
        }
        for (number, (level, (member, index, field))) in found.into_iter().enumerate() {
            self.variables.push(Variable {
                name: level.to_string(),
                array: member.name,
                size: field.datatype.size() as u64,
                attribute: field.name,
                dimensions: (0..image.axes.len()).collect(),
                is_in_zarr: true,
                axes: image.axes.len(),
                field: index,
                member: number,
            });
            self.members.push(Member {
                schema: member.schema,
                selection: member.selection,
                dimensions: None,
                lengths: member.domain,
                extents: member.extents,
                ground: None,
            });
        }
        self.image = Some(Arc::new(image));
        Ok(())
    }

    /// A hash of the files that the metadata were read from, and of what is damaged, of groups in it too.
    fn metadata_state(&self) -> u64 {
        let groups = self.groups.iter().map(|(_, group)| group.metadata_state());
        hash(&(&self.metadata.files, &self.damaged, groups.collect::<Vec<_>>()))
    }

    /// See [`Joined::is_makeshift`].
    fn is_makeshift(&self) -> bool {
        !self.damaged.is_empty() || self.groups.iter().any(|(_, group)| group.is_makeshift())
    }

    /// The dimensions of `dataset.nc`: those of cells, and those within cells of variables that it has.
    fn count_dimensions(&self) -> usize {
        let has_inner =
            |variable: &&Variable| variable.axes > variable.dimensions.len() && variable.axes <= MAX_RANK;
        let inner = self.variables.iter().filter(has_inner).count();
        let groups = self.groups.iter().map(|(_, group)| group.count_dimensions());
        self.dimensions.len() + inner + groups.sum::<usize>()
    }

    /// Whether a variable has cells.
    fn has_cells(&self) -> bool {
        let mut variables = self.variables.iter();
        let has_length = |number: &usize| self.dimensions[*number].1 > 0;
        variables.any(|variable| variable.dimensions.iter().all(has_length))
            || self.groups.iter().any(|(_, group)| group.has_cells())
    }

    /// The number of chunks of `dataset.zarr/`, at least.
    fn chunks(&self) -> u64 {
        if let Some(image) = &self.image {
            let levels = image.levels.iter().map(|level| level.chunks.count());
            return levels.fold(0, u64::saturating_add);
        }
        let own = self.variables.iter().map(|variable| {
            let axes = variable.dimensions.iter();
            let shape: Vec<u64> = axes.map(|number| self.dimensions[*number].1).collect();
            Chunks::new(&shape, &self.members[variable.member].extents, variable.size).count()
        });
        let inner = self.groups.iter().map(|(_, group)| group.chunks());
        own.chain(inner).fold(0, u64::saturating_add)
    }

    /// Its variables and attributes, by the rules for names of a format; `views` are those of its members.
    fn grid(&self, views: &[Arc<View>], naming: Naming) -> Result<Grid> {
        if let Some(image) = &self.image {
            return self.levels(image, views, naming);
        }
        let dimensions = self.dimensions.iter();
        let dimensions = dimensions.map(|(name, _)| naming.name(name.clone()));
        let dimensions = names::unique(dimensions.collect(), names::MAX);
        let names = self.variables.iter();
        let names = names.map(|variable| naming.name(variable.name.clone()));
        let names = names::unique(names.collect(), names::MAX);
        let mut taken: HashSet<String> = dimensions.iter().chain(&names).cloned().collect();
        let (mut variables, mut room) = (Vec::new(), grid::Room::new());
        for (name, variable) in names.into_iter().zip(&self.variables) {
            let view = &views[variable.member];
            if unfit(&view.fields()[variable.field], variable.axes, naming).is_some() {
                continue;
            }
            let made = grid::of_dataset(view, variable.field, name, naming, &mut taken)?;
            made.iter().try_for_each(|one| room.take(&one.attributes))?;
            variables.extend(made.into_iter().map(|mut made| {
                made.dimensions = variable.dimensions.clone();
                made.view = variable.member;
                made
            }));
        }
        variables.extend(self.coordinates(&dimensions, &variables));
        let grounds = self
            .members
            .iter()
            .zip(views)
            .map(|(member, view)| match &member.ground {
                Some(ground) => Ok(Some(ground.clone())),
                // If they are damaged, the variables that the format has of the member have told so.
                None => Ok(Ground::of(&*Metadata::or_none(view)?, None)),
            });
        let grounds: Vec<Option<Ground>> = grounds.collect::<Result<_>>()?;
        grid::refer(&mut variables, &grounds, &mut taken);
        let lengths = self.dimensions.iter().map(|(_, length)| *length);
        let dimensions = dimensions.into_iter().zip(lengths).collect();
        let extents: Vec<_> = self.members.iter().map(|member| member.extents.clone()).collect();
        let attributes = grid::of_pairs(&self.metadata.attributes, naming);
        Ok(Grid::new(dimensions, variables, &extents, attributes))
    }

    /// The levels of an image. They have no dimensions here: [`Image::levels`] has their axes.
    fn levels(&self, image: &Image, views: &[Arc<View>], naming: Naming) -> Result<Grid> {
        let mut taken = HashSet::new();
        let mut levels = Vec::new();
        for (variable, view) in self.variables.iter().zip(views) {
            let name = variable.name.clone();
            let made = grid::of_dataset(view, variable.field, name, naming, &mut taken)?;
            // The first has the values.
            levels.extend(made.into_iter().take(1).map(|mut level| {
                level.attributes.clear();
                level.fill_value = None;
                level.view = variable.member;
                level
            }));
        }
        let extents: Vec<_> = self.members.iter().map(|member| member.extents.clone()).collect();
        let mut grid = Grid::new(Vec::new(), levels, &extents, Vec::new());
        for (variable, level) in grid.variables.iter_mut().zip(&image.levels) {
            variable.chunks = level.chunks.clone();
        }
        Ok(grid)
    }

    /// The members along each dimension, with the coordinates that each gives it.
    fn along(&self) -> Vec<Vec<(usize, Option<Coordinates>)>> {
        let mut along = vec![Vec::new(); self.dimensions.len()];
        for (number, member) in self.members.iter().enumerate() {
            let of_raster = member.ground.as_ref().and_then(Ground::coordinates);
            let dimensions = member.dimensions.iter().flatten().enumerate();
            for (axis, dimension) in dimensions {
                let mut found = of_raster.iter().flatten();
                let found = found.find(|(own, ..)| *own == axis);
                let found = found.map(|(_, centres, attributes)| (*centres, attributes.clone()));
                along[*dimension].push((number, found));
            }
        }
        along
    }

    /// The dimensions that have no coordinates because the rasters along them lie at different places, and
    /// why.
    pub fn unplaced(&self) -> Vec<(String, String)> {
        let apart = self
            .along()
            .into_iter()
            .zip(&self.dimensions)
            .filter(|(members, (name, _))| {
                let is_told = members.iter().any(|(_, found)| found.is_some());
                let is_free = self.variables.iter().all(|variable| variable.name != *name);
                is_told && is_free && members.iter().any(|(_, found)| *found != members[0].1)
            });
        let reason = "the arrays along it are not at one place: it has no coordinates";
        apart
            .map(|(_, (name, _))| (name.clone(), reason.to_owned()))
            .collect()
    }

    /// The dimensions of arrays to which the metadata give attributes, and why no variable has these.
    pub fn described_dimensions(&self) -> Result<Vec<(String, String)>> {
        let mut out = Vec::new();
        for variables in self.variables.chunk_by(|a, b| a.member == b.member) {
            let Variable { array, member, .. } = &variables[0];
            let member = &self.members[*member];
            let metadata = Metadata::or_none(&member.view())?;
            let dimensions = member.schema.dimensions.iter().zip(&metadata.fields);
            for (dimension, _) in dimensions.filter(|(_, attributes)| !attributes.is_empty()) {
                let what = format!("{}/__tiledb_dim.{}", shown(array), shown(&dimension.name));
                let reason = "attributes of dimensions are shown by the array's own exports alone";
                out.push((what, reason.to_owned()));
            }
        }
        Ok(out)
    }

    /// The coordinates of rasters along dimensions of these names, where all members with the dimension have
    /// the same ones, and no variable is called like it.
    fn coordinates(&self, names: &[String], variables: &[grid::Variable]) -> Vec<grid::Variable> {
        let along = self.along();
        let mut out = Vec::new();
        for ((dimension, name), members) in names.iter().enumerate().zip(along) {
            let is_free = variables.iter().all(|variable| variable.name != *name);
            if let Some((view, Some((centres, attributes)))) = members.first()
                && is_free
                && members.iter().all(|(_, other)| *other == members[0].1)
            {
                let kind = VariableKind::Axis(dimension);
                let mut variable = grid::Variable::new(name.clone(), kind, 0, Datatype::Float64);
                grid::place(&mut variable, *centres, attributes.clone());
                variable.dimensions = vec![dimension];
                variable.view = *view;
                out.push(variable);
            }
        }
        out
    }
}

impl Member {
    /// The cells of the array that the data set has.
    fn view(&self) -> View {
        if self.lengths.contains(&0) {
            // Nothing is read of it.
            return View::of(self.selection.clone());
        }
        let axes = self.schema.dimensions.iter().zip(&self.lengths);
        let ranges = axes.map(|(dimension, length)| {
            let lo = first(dimension);
            let hi = (lo + i128::from(*length) - 1).to_le_bytes();
            DimRange {
                lo: Some(lo.to_le_bytes()[..dimension.datatype.size()].to_vec()),
                hi: Some(hi[..dimension.datatype.size()].to_vec()),
            }
        });
        View::of(self.selection.clone()).part(ranges.collect())
    }
}

/// An array with the field that has the values of an image, and the field's place.
type ImageArray = (Found, usize, Field);

/// A dense array that may have variables.
struct Found {
    name: Vec<u8>,
    schema: Arc<Schema>,
    selection: Selection,
    dimensions: Vec<String>,
    /// The length of the domain of each dimension.
    domain: Vec<u64>,
    extents: Vec<Extent>,
    is_scalar: bool,
    /// Its metadata, if exact lengths depend on them: GDAL's dimensions may be those of a raster.
    metadata: Option<Arc<Metadata>>,
}

impl Found {
    /// The array of a member, and how far it has cells along each dimension; or why it has no variables.
    fn new(
        name: &[u8],
        array: &SourceArray,
        kind: Kind,
        lengths: Lengths,
    ) -> Result<Result<(Found, Vec<u64>), String>> {
        let Some(selection) = select(array)?.cloned() else {
            return Ok(Err("it is encrypted, and its key is missing".to_owned()));
        };
        let view = View::of(selection.clone());
        let schema = view.schema().clone();
        if schema.array_type == ArrayType::Sparse {
            return Ok(Err("it is sparse".to_owned()));
        }
        let mut domain = Vec::new();
        for (i, dimension) in schema.dimensions.iter().enumerate() {
            let length = length(dimension);
            let length = length.filter(|_| kind == Kind::Raster || first(dimension) == 0);
            let Some(length) = length else {
                let name = names::dimension(&dimension.name, i);
                return Ok(Err(format!(
                    "its dimension {name:?} is not one of integers from 0"
                )));
            };
            domain.push(length);
        }
        let dimensions = schema.dimensions.iter().enumerate();
        let dimensions: Vec<String> = dimensions
            .map(|(i, dimension)| names::dimension(&dimension.name, i))
            .collect();
        let is_scalar = dimensions == [SCALARS] && domain == [1];
        let may_be_raster = lengths == Lengths::Exact && Axes::of(view.fields()).is_some();
        let metadata = may_be_raster.then(|| Metadata::or_none(&view)).transpose()?;
        let ends = match lengths {
            // It has one value, written or not.
            _ if is_scalar => vec![1],
            Lengths::Bounds if view.snapshot().fragments().next().is_none() => vec![0; domain.len()],
            Lengths::Bounds => domain.clone(),
            Lengths::Exact => match view.region()? {
                None => vec![0; domain.len()],
                Some(region) => {
                    let ends = schema.dimensions.iter().zip(&region);
                    let ends = ends.map(|(dimension, range)| {
                        (number(dimension, &range.hi) - first(dimension) + 1) as u64
                    });
                    let mut ends: Vec<u64> = ends.collect();
                    let sizes = metadata
                        .as_ref()
                        .and_then(|metadata| raster::sizes(metadata, &view));
                    for (axis, size) in sizes.into_iter().flatten() {
                        let size = i128::from(size) - first(&schema.dimensions[axis]);
                        if size > 0 && size < i128::from(ends[axis]) {
                            ends[axis] = size as u64;
                        }
                    }
                    ends
                }
            },
        };
        let found = Found {
            is_scalar,
            name: name.to_vec(),
            extents: extents(&schema)?,
            selection,
            dimensions,
            domain,
            schema,
            metadata,
        };
        Ok(Ok((found, ends)))
    }
}

impl Found {
    /// Whether its attributes are variables of their own names. TileDB-CF makes `<name>_` of a variable
    /// `<name>` of xarray over a dimension of that name, in an array of the variable's name, whatever that
    /// is.
    fn is_collected(&self) -> bool {
        let [only] = &self.schema.attributes[..] else {
            return true;
        };
        let number = self.name.strip_prefix(COLLECTED);
        let is_numbered =
            number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit));
        let is_of_xarray = only.name.strip_suffix(b"_") == Some(&self.name);
        self.is_scalar || is_numbered && !is_of_xarray
    }

    /// The names of its variables, without suffixes.
    fn variable_names(&self) -> Vec<&[u8]> {
        let attributes = self.schema.attributes.iter();
        match self.is_collected() {
            true => attributes
                .map(|attribute| without_suffix(&attribute.name))
                .collect(),
            false => vec![&self.name],
        }
    }

    /// The number of the level that the array of an image is, with the field that has the values; or why it
    /// is none. `view` and `metadata` are those of the array.
    fn level(
        self,
        described: &ImageDescription,
        view: &View,
        metadata: &Metadata,
    ) -> Result<Result<(u64, ImageArray), String>> {
        let reason = |reason: &str| Ok(Err(reason.to_owned()));
        let Some(level) = image::level(&metadata.array) else {
            return reason("its metadata has no number of a level");
        };
        let (axes, fields) = (self.schema.dimensions.len(), self.schema.fields());
        let mut numbered = fields.into_iter().enumerate().skip(axes);
        let found = match self.schema.attributes.len() {
            1 => numbered.next(),
            _ => numbered.find(|(_, field)| field.name == image::VALUES.as_bytes()),
        };
        let is_number =
            |field: &Field| matches!(field.datatype.kind(), Type::Signed | Type::Unsigned | Type::Float);
        let fits = |field: &Field| is_number(field) && field.cell_val_num == CellValNum::Fixed(1);
        let Some((index, field)) = found.filter(|(_, field)| fits(field)) else {
            return reason("it has no attribute of numbers that is the image's");
        };
        if let Some(why) = view.unreadable(index)? {
            return Ok(Err(why));
        }
        let stored = Stored {
            level,
            dimensions: &self.dimensions,
            shape: &self.domain,
            extents: &self.extents,
            size: field.datatype.size() as u64,
        };
        match stored.axes(described.depth(level)) {
            Ok(_) => Ok(Ok((level, (self, index, field)))),
            Err(why) => reason(why),
        }
    }
}

/// The length of the domain of a dimension of integers; None for other types, and for 2^64.
fn length(dimension: &Dimension) -> Option<u64> {
    let domain = dimension.domain.as_ref()?;
    match dimension.datatype.kind() {
        Type::Signed | Type::Unsigned => {
            u64::try_from(number(dimension, &domain.hi) - first(dimension) + 1).ok()
        }
        _ => None,
    }
}

/// The lower end of the domain of a dimension of integers.
fn first(dimension: &Dimension) -> i128 {
    let domain = dimension
        .domain
        .as_ref()
        .expect("a dimension of integers has a domain");
    number(dimension, &domain.lo)
}

/// A coordinate of a dimension of integers.
fn number(dimension: &Dimension, bytes: &[u8]) -> i128 {
    let number = Scalar::read(dimension.datatype, bytes).and_then(Scalar::integer);
    number.expect("its coordinates are integers")
}

/// A name or a key as text.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
