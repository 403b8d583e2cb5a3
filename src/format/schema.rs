//! Array schemas: the unfiltered body of a schema's generic tile, format versions 1 to 23.
//!
//! Specification: <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/array_schema.md>

use super::datatype::{CellValNum, Datatype, Kind};
use super::enums::{ArrayType, DataOrder, Layout};
use super::field::Form;
use super::name_index::NameIndex;
use super::pipeline::Pipeline;
use super::range::{Range, Rect};
use super::read;
use super::scalar::Scalar;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::collections::HashSet;

/// The most bytes of the default fill values of one schema. Schemas below version 6 do not store them.
const MAX_DEFAULT_FILLS: u64 = 1 << 20;

/// An array schema.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Schema {
    /// The format version of the schema.
    pub version: u32,
    /// Whether two cells may have equal coordinates; false below version 5.
    pub allows_duplicates: bool,
    /// Dense or sparse.
    pub array_type: ArrayType,
    /// Order of tiles in the domain.
    pub tile_order: Layout,
    /// Order of cells in a tile.
    pub cell_order: Layout,
    /// Cells of a tile of a sparse fragment.
    pub capacity: u64,
    /// The pipeline of zipped coordinates, of dimensions without a pipeline, and of timestamps.
    pub coords_filters: Pipeline,
    /// The pipeline of all offsets.
    pub offsets_filters: Pipeline,
    /// The pipeline of all validity bytes; None below version 7.
    pub validity_filters: Option<Pipeline>,
    /// In the order of the domain; never empty.
    pub dimensions: Vec<Dimension>,
    /// In the order of their file numbers.
    pub attributes: Vec<Attribute>,
    /// From version 18.
    pub dimension_labels: Vec<DimensionLabel>,
    /// Name and file name of each enumeration, as stored; from version 20.
    pub enumerations: Vec<EnumerationRef>,
    /// From version 22; None below, or if stored as empty.
    pub current_domain: Option<Rect>,
    /// The positions of names.
    pub(crate) indexes: SchemaIndexes,
}

/// Where the dimensions, attributes and enumerations of a schema are in its lists, by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SchemaIndexes {
    dimensions: NameIndex,
    attributes: NameIndex,
    enumerations: NameIndex,
}

/// libtiledb's pipeline of a dimension in schemas below version 5, which store none.
const NO_PIPELINE: Pipeline = Pipeline {
    max_chunk_size: 65_536,
    filters: Vec::new(),
};

/// A dimension of the domain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Dimension {
    /// As stored; may be empty.
    pub name: Vec<u8>,
    /// Type of a coordinate.
    pub datatype: Datatype,
    /// 1, or var for strings.
    pub cell_val_num: CellValNum,
    /// The dimension's own pipeline; empty if it uses [`Schema::coords_filters`].
    pub filters: Pipeline,
    /// None for strings.
    pub domain: Option<Range>,
    /// One little-endian value; None if there are no tiles along the dimension.
    pub tile_extent: Option<Vec<u8>>,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attribute {
    /// As stored; may be empty (`__attr` below version 5).
    pub name: Vec<u8>,
    /// Type of a value.
    pub datatype: Datatype,
    /// Values per cell.
    pub cell_val_num: CellValNum,
    /// Its pipeline.
    pub filters: Pipeline,
    /// The value of an unwritten cell: one cell, or for var-sized ones any length. Below version 6, the
    /// type's default.
    pub fill_value: Vec<u8>,
    /// Whether unwritten cells are valid (not null); false below version 7.
    pub fill_value_valid: bool,
    /// Whether cells may be null.
    pub nullable: bool,
    /// From version 17; unordered below.
    pub order: DataOrder,
    /// The name of the enumeration that the values index; from version 20.
    pub enumeration: Option<Vec<u8>>,
}

/// A dimension label: an array whose values name the coordinates of a dimension.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DimensionLabel {
    /// Index of the dimension that it labels.
    pub dimension_index: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Whether `uri` is relative to the array.
    pub relative: bool,
    /// The location of its array, e.g. `__labels/l0`.
    pub uri: Vec<u8>,
    /// The attribute of that array that has the labels.
    pub attribute: Vec<u8>,
    /// Whether labels are sorted.
    pub order: DataOrder,
    /// Type of a label.
    pub datatype: Datatype,
    /// Values per label.
    pub cell_val_num: CellValNum,
    /// Whether its array is not part of this array.
    pub external: bool,
}

/// A reference to a stored enumeration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EnumerationRef {
    /// The name by which attributes refer to it.
    pub name: Vec<u8>,
    /// A file in `__schema/__enumerations/`.
    pub file: Vec<u8>,
}

impl Schema {
    /// Parses the unfiltered body of a schema's generic tile.
    ///
    /// Checks all that the body alone allows: dimensions have a domain with `lo <= hi` and extents above 0;
    /// dense arrays have dimensions of one integral or time type with extents, in row-major or column-major
    /// order; fixed-size fill values are one cell; no two fields share a name; no byte is left over.
    ///
    /// # Errors
    ///
    /// `UnsupportedVersion` above version 23, of which the rest is not read; otherwise an error that names
    /// the part and its byte.
    pub fn parse(body: &[u8]) -> Result<Schema> {
        read::whole("schema", body, Self::parse_body)
    }

    fn parse_body(c: &mut Cursor<'_>) -> Result<Schema> {
        let version = c.u32("version")?;
        read::check_version(version, 0)?;
        let allows_duplicates = version >= 5 && c.bool("allows_duplicates")?;
        let array_type = read::byte(c, "array_type", ArrayType::from_u8)?;
        let tile_order = read::byte(c, "tile_order", Layout::from_u8)?;
        let cell_order = read::byte(c, "cell_order", Layout::from_u8)?;
        let capacity = c.u64("capacity")?;
        let coords_filters = Pipeline::parse(c).map_err(|e| e.in_part("coords filters"))?;
        let offsets_filters = Pipeline::parse(c).map_err(|e| e.in_part("offsets filters"))?;
        let validity_filters = match version >= 7 {
            true => Some(Pipeline::parse(c).map_err(|e| e.in_part("validity filters"))?),
            false => None,
        };
        let dimensions = Self::parse_dimensions(c, version)?;
        let mut default_fills = MAX_DEFAULT_FILLS;
        let attributes = read::items(c, "attribute_num", 17, "attribute", |c| {
            Attribute::parse(c, version, &mut default_fills)
        })?;
        let dimension_labels = match version >= 18 {
            true => read::items(
                c,
                "dimension_label_num",
                28,
                "dimension label",
                DimensionLabel::parse,
            )?,
            false => Vec::new(),
        };
        let enumerations = match version >= 20 {
            true => read::items(c, "enumeration_num", 8, "enumeration", EnumerationRef::parse)?,
            false => Vec::new(),
        };
        let current_domain = match version >= 22 {
            true => parse_current_domain(c, &dimensions).map_err(|e| e.in_part("current domain"))?,
            false => None,
        };
        let schema = Schema {
            version,
            allows_duplicates,
            array_type,
            tile_order,
            cell_order,
            capacity,
            coords_filters,
            offsets_filters,
            validity_filters,
            dimensions,
            attributes,
            dimension_labels,
            enumerations,
            current_domain,
            indexes: SchemaIndexes::default(),
        };
        schema.check()?;
        Ok(schema)
    }

    fn parse_dimensions(c: &mut Cursor<'_>, version: u32) -> Result<Vec<Dimension>> {
        let domain_datatype = match version < 5 {
            true => Some(read::byte(c, "domain_datatype", Datatype::from_u8)?),
            false => None,
        };
        let dimensions = read::items(c, "dimension_num", 7, "dimension", |c| {
            Dimension::parse(c, domain_datatype)
        })?;
        if dimensions.is_empty() {
            return Err(c.corrupt("dimension_num", "the array has no dimensions"));
        }
        Ok(dimensions)
    }

    /// Checks across several parts of the schema.
    fn check(&self) -> Result<()> {
        match self.array_type {
            ArrayType::Dense => self.check_dense()?,
            ArrayType::Sparse if self.capacity == 0 => {
                return Err(Error::corrupt("the capacity of a sparse array is 0").in_part("`capacity`"));
            }
            ArrayType::Sparse => {}
        }
        let fields = self.dimensions.iter().map(|d| &d.name);
        let fields = fields.chain(self.attributes.iter().map(|a| &a.name));
        // Up to version 4, dimensions and attributes need no name, and their files cannot collide.
        check_unique(
            fields.filter(|name| self.version >= 5 || !name.is_empty()),
            "fields",
        )?;
        check_unique(self.dimension_labels.iter().map(|l| &l.name), "dimension labels")?;
        check_unique(self.enumerations.iter().map(|e| &e.name), "enumerations")?;
        for (i, label) in self.dimension_labels.iter().enumerate() {
            if label.dimension_index as usize >= self.dimensions.len() {
                let message = format!(
                    "the label is for dimension {}, but the array has {}",
                    label.dimension_index,
                    self.dimensions.len()
                );
                return Err(Error::corrupt(message).in_part(format_args!("dimension label {i}")));
            }
        }
        Ok(())
    }

    fn check_dense(&self) -> Result<()> {
        for (order, field) in [
            (self.tile_order, "`tile_order`"),
            (self.cell_order, "`cell_order`"),
        ] {
            if !matches!(order, Layout::RowMajor | Layout::ColMajor) {
                let message = format!("a dense array cannot be in {} order", order.name());
                return Err(Error::unsupported(message).in_part(field));
            }
        }
        let first = self.dimensions.first().map(|d| d.datatype);
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let integral = matches!(
                dimension.datatype.kind(),
                Kind::Signed | Kind::Unsigned | Kind::Datetime | Kind::Time
            );
            let problem = if !integral || dimension.cell_val_num.is_var() {
                format!(
                    "a dense array cannot have a dimension of type {}",
                    dimension.datatype.name()
                )
            } else if Some(dimension.datatype) != first {
                "the dimensions of a dense array must have one datatype".to_string()
            } else if dimension.tile_extent.is_none() {
                "a dimension of a dense array needs a tile extent".to_string()
            } else {
                continue;
            };
            return Err(Error::corrupt(problem).in_part(format_args!("dimension {i}")));
        }
        Ok(())
    }

    /// The pipeline of the tiles of dimension `i`: its own, or else that of the coordinates. Empty in schemas
    /// below version 5, where dimensions have no tiles: newer libraries that write to such an array do not
    /// filter its dimensions.
    ///
    /// # Panics
    ///
    /// If there is no dimension `i`.
    pub fn dimension_filters(&self, i: usize) -> &Pipeline {
        let own = &self.dimensions[i].filters;
        match self.version < 5 || !own.is_empty() {
            true => own,
            false => &self.coords_filters,
        }
    }

    /// Index of the dimension of this name.
    pub fn dimension_index(&self, name: &[u8]) -> Option<usize> {
        let names = self.dimensions.iter().map(|d| &d.name);
        self.indexes.dimensions.position(name, names)
    }

    /// Index of the attribute of this name.
    pub fn attribute_index(&self, name: &[u8]) -> Option<usize> {
        let names = self.attributes.iter().map(|a| &a.name);
        self.indexes.attributes.position(name, names)
    }

    /// The dimension of this name.
    pub fn dimension(&self, name: &[u8]) -> Option<&Dimension> {
        self.dimensions.get(self.dimension_index(name)?)
    }

    /// The attribute of this name.
    pub fn attribute(&self, name: &[u8]) -> Option<&Attribute> {
        self.attributes.get(self.attribute_index(name)?)
    }

    /// The file of the enumeration of this name, in `__schema/__enumerations/`.
    pub fn enumeration_file(&self, name: &[u8]) -> Option<&[u8]> {
        let names = self.enumerations.iter().map(|e| &e.name);
        let position = self.indexes.enumerations.position(name, names)?;
        self.enumerations.get(position).map(|e| e.file.as_slice())
    }

    /// Bytes of the coordinates of one cell; None if a dimension is var-sized.
    pub fn coordinates_size(&self) -> Option<u64> {
        self.dimensions
            .iter()
            .try_fold(0, |sum, d| Some(sum + d.cell_size()?))
    }

    /// Whether no dimension is var-sized.
    pub fn all_dimensions_fixed(&self) -> bool {
        !self.dimensions.iter().any(|d| d.cell_val_num.is_var())
    }

    /// Whether the filters of a dimension are lossy: readers get other coordinates than were written.
    pub fn has_lossy_dimensions(&self) -> bool {
        (0..self.dimensions.len()).any(|dimension| self.dimension_filters(dimension).is_lossy())
    }

    /// Whether readers compare coordinates as their writer did: none is a string, and none has a lossy
    /// filter.
    pub fn has_exact_coordinates(&self) -> bool {
        self.all_dimensions_fixed() && !self.has_lossy_dimensions()
    }

    /// Reads one range per dimension: a box in a footer, R-tree or current domain.
    pub(super) fn parse_rect(&self, c: &mut Cursor<'_>, field: &str) -> Result<Rect> {
        parse_rect(c, &self.dimensions, field)
    }

    /// The fewest bytes that a stored box takes; at least 2.
    pub(super) fn min_rect_size(&self) -> usize {
        let sizes = self.dimensions.iter();
        sizes
            .map(|d| Range::min_stored_size(d.datatype, d.cell_val_num))
            .sum()
    }

    /// Fails if a lower bound is above its upper one.
    pub(super) fn check_rect(&self, rect: &Rect) -> Result<()> {
        check_rect(rect, &self.dimensions)
    }
}

impl Dimension {
    /// Its name, if that is UTF-8.
    pub fn name_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.name).ok()
    }

    /// Bytes of a coordinate; None if var-sized.
    pub fn cell_size(&self) -> Option<u64> {
        self.cell_val_num.cell_size(self.datatype)
    }

    /// Reads a dimension. Its type is `domain_datatype` below version 5.
    fn parse(c: &mut Cursor<'_>, domain_datatype: Option<Datatype>) -> Result<Dimension> {
        let name = read::text32(c, "name")?;
        let (datatype, cell_val_num, filters) = match domain_datatype {
            Some(datatype) => (datatype, CellValNum::Fixed(1), NO_PIPELINE),
            None => (
                read::byte(c, "datatype", Datatype::from_u8)?,
                read::cell_val_num(c)?,
                Pipeline::parse(c).map_err(|e| e.in_part("filters"))?,
            ),
        };
        match cell_val_num {
            CellValNum::Fixed(1) => {}
            CellValNum::Var if datatype.kind() == Kind::Text => {}
            CellValNum::Var => {
                return Err(c.corrupt("cell_val_num", "a var-sized dimension must be a string"));
            }
            CellValNum::Fixed(n) => {
                return Err(c.corrupt("cell_val_num", format!("a coordinate has {n} values, expected 1")));
            }
        }
        let size = cell_val_num.cell_size(datatype);
        let stored_domain_size = match domain_datatype {
            None => Some(c.u64("domain_size")?),
            Some(_) => None,
        };
        let expected = size.map_or(0, |size| size * 2);
        if stored_domain_size.is_some_and(|stored| stored != expected) {
            return Err(c.corrupt("domain_size", format!("the domain must take {expected} bytes")));
        }
        let domain = match cell_val_num.is_var() {
            true => None,
            false => Some(parse_domain(c, datatype, cell_val_num)?),
        };
        let tile_extent = match (c.bool("null_tile_extent")?, size) {
            (true, _) => None,
            (false, Some(size)) => {
                let extent = c.bytes(size, "tile_extent")?;
                if !is_positive(datatype, extent) {
                    return Err(c.corrupt("tile_extent", "the tile extent is not above 0"));
                }
                Some(extent.to_vec())
            }
            (false, None) => {
                return Err(c.corrupt(
                    "null_tile_extent",
                    "a var-sized dimension cannot have a tile extent",
                ));
            }
        };
        Ok(Dimension {
            name,
            datatype,
            cell_val_num,
            filters,
            domain,
            tile_extent,
        })
    }
}

impl DimensionLabel {
    /// Its name, if that is UTF-8.
    pub fn name_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.name).ok()
    }
}

impl EnumerationRef {
    /// The name by which attributes refer to it, if that is UTF-8.
    pub fn name_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.name).ok()
    }
}

impl Attribute {
    /// Its name, if that is UTF-8.
    pub fn name_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.name).ok()
    }

    /// Bytes of a cell; None if var-sized.
    pub fn cell_size(&self) -> Option<u64> {
        self.cell_val_num.cell_size(self.datatype)
    }

    /// Reads an attribute. `default_fills` is the number of bytes left for fill values that are not stored.
    fn parse(c: &mut Cursor<'_>, version: u32, default_fills: &mut u64) -> Result<Attribute> {
        let name = read::text32(c, "name")?;
        let datatype = read::byte(c, "datatype", Datatype::from_u8)?;
        let cell_val_num_offset = c.offset();
        let cell_val_num = read::cell_val_num(c)?;
        let filters = Pipeline::parse(c).map_err(|e| e.in_part("filters"))?;
        let fill_value = match version >= 6 {
            true => {
                let fill_value = read::text64(c, "fill_value")?;
                match cell_val_num.cell_size(datatype) {
                    Some(size) if size != fill_value.len() as u64 => {
                        let message = format!(
                            "the fill value has {} bytes, but a cell has {size}",
                            fill_value.len()
                        );
                        return Err(c.corrupt("fill_value", message));
                    }
                    _ => fill_value,
                }
            }
            false => {
                default_fill(datatype, cell_val_num, default_fills).map_err(|e| e.at(cell_val_num_offset))?
            }
        };
        let (nullable, fill_value_valid) = match version >= 7 {
            true => (c.bool("nullable")?, c.bool("fill_value_validity")?),
            false => (false, false),
        };
        let order = match version >= 17 {
            true => read::byte(c, "order", DataOrder::from_u8)?,
            false => DataOrder::Unordered,
        };
        let enumeration = match version >= 20 {
            true => Some(read::text32(c, "enumeration_name")?).filter(|name| !name.is_empty()),
            false => None,
        };
        Ok(Attribute {
            name,
            datatype,
            cell_val_num,
            filters,
            fill_value,
            fill_value_valid,
            nullable,
            order,
            enumeration,
        })
    }

    /// What the stored bytes of a cell depend on.
    pub(crate) fn form(&self) -> Form {
        Form {
            datatype: self.datatype,
            cell_val_num: self.cell_val_num,
            nullable: self.nullable,
        }
    }
}

impl DimensionLabel {
    fn parse(c: &mut Cursor<'_>) -> Result<DimensionLabel> {
        Ok(DimensionLabel {
            dimension_index: c.u32("dimension_index")?,
            name: read::text32(c, "name")?,
            relative: c.bool("relative_uri")?,
            uri: read::text64(c, "uri")?,
            attribute: read::text32(c, "attribute_name")?,
            order: read::byte(c, "order", DataOrder::from_u8)?,
            datatype: read::byte(c, "datatype", Datatype::from_u8)?,
            cell_val_num: read::cell_val_num(c)?,
            external: c.bool("external")?,
        })
    }
}

impl EnumerationRef {
    fn parse(c: &mut Cursor<'_>) -> Result<EnumerationRef> {
        let name = read::text32(c, "name")?;
        let file = read::text32(c, "file_name")?;
        if !read::is_plain_file_name(&file) {
            return Err(c.corrupt("file_name", "the name is not a plain file name"));
        }
        Ok(EnumerationRef { name, file })
    }
}

/// Reads `lo, hi` of a fixed-size dimension, which must be in order.
fn parse_domain(c: &mut Cursor<'_>, datatype: Datatype, cells: CellValNum) -> Result<Range> {
    let domain = Range::parse(c, datatype, cells, "domain")?;
    match domain.order(datatype, cells) {
        Some(Ordering::Less | Ordering::Equal) => Ok(domain),
        _ => Err(c.corrupt("domain", "the lower bound is not below the upper one")),
    }
}

fn parse_rect(c: &mut Cursor<'_>, dimensions: &[Dimension], field: &str) -> Result<Rect> {
    dimensions
        .iter()
        .map(|d| Range::parse(c, d.datatype, d.cell_val_num, field))
        .collect()
}

fn check_rect(rect: &Rect, dimensions: &[Dimension]) -> Result<()> {
    for (i, (range, d)) in rect.iter().zip(dimensions).enumerate() {
        range
            .check(d.datatype, d.cell_val_num)
            .map_err(|e| e.in_part(format_args!("dimension {i}")))?;
    }
    Ok(())
}

fn parse_current_domain(c: &mut Cursor<'_>, dimensions: &[Dimension]) -> Result<Option<Rect>> {
    let offset = c.offset();
    let version = c.u32("version")?;
    if version != 0 {
        return Err(Error::unsupported(format!(
            "unknown version {version} of a current domain, only 0 is known"
        ))
        .at(offset)
        .in_part("`version`"));
    }
    if c.bool("empty")? {
        return Ok(None);
    }
    read::byte(c, "type", |id| match id {
        0 => Ok(()),
        _ => Err(Error::unsupported(format!(
            "unknown type {id} of a current domain, only 0 (NDRectangle) is known"
        ))),
    })?;
    let rect = parse_rect(c, dimensions, "ndrectangle")?;
    check_rect(&rect, dimensions).map(|()| Some(rect))
}

/// The fill value of an attribute that stores none: the datatype's default for each value of a cell, or one
/// value if var-sized. `LimitExceeded` beyond `budget`.
fn default_fill(datatype: Datatype, cells: CellValNum, budget: &mut u64) -> Result<Vec<u8>> {
    let fill = datatype.default_fill();
    let CellValNum::Fixed(count) = cells else {
        return Ok(fill);
    };
    let size = u64::from(count) * fill.len() as u64;
    *budget = budget.checked_sub(size).ok_or_else(|| {
        Error::limit(format!(
            "a fill value of {size} bytes: those of a schema may take {MAX_DEFAULT_FILLS} bytes together"
        ))
        .in_part("`cell_val_num`")
    })?;
    Ok(fill.repeat(count as usize))
}

/// Whether a tile extent is above 0. Integral extents are unsigned: they may exceed the maximum of a signed
/// type.
fn is_positive(datatype: Datatype, extent: &[u8]) -> bool {
    match Scalar::read(datatype, extent) {
        Some(float @ (Scalar::Float32(_) | Scalar::Float64(_))) => float.float() > 0.0,
        _ => extent.iter().any(|&b| b != 0),
    }
}

fn check_unique<'a>(names: impl Iterator<Item = &'a Vec<u8>>, what: &str) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::corrupt(format!(
                "two {what} have the name {:?}",
                String::from_utf8_lossy(name)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
