//! `columns/` of a fragment: its fields as files, with and without NumPy headers, whole and by tile.

use super::directory::{NamedDirectory, Names, fixed_listing};
use super::node::{Directory, ExtendedAttributes, File, Freshness, Listing, Node, NodeType, Stat, of_object};
use super::permissions::Origin;
use crate::bytes::Bytes;
use crate::describe::Json;
use crate::describe::schema::pipeline_json;
use crate::error::Result;
use crate::export::npy;
use crate::format::datatype::{CellValNum, Datatype};
use crate::fragment::Fragment;
use crate::fragment::column::{Column, Content};
use crate::fragment::field::Role;
use crate::fragment::info::FragmentInfo;
use crate::layout::{FileLayout, file_len};
use crate::names;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

/// The `columns` directory of a fragment.
pub fn columns(fragment: Arc<Fragment>) -> Node {
    let origin = Origin::FragmentMetadata(fragment.clone());
    let mtime = fragment.name.timestamps.1;
    NamedDirectory::node(mtime, Freshness::Immutable, origin, Columns(fragment))
}

/// The fields that a fragment stores.
struct Columns(Arc<Fragment>);

impl Names for Columns {
    type From = FragmentInfo;

    fn from(&self) -> Result<Arc<FragmentInfo>> {
        self.0.open()
    }

    fn names(&self, info: &FragmentInfo) -> Vec<String> {
        let stored = info.stored().iter().map(|index| &info.fields[*index]);
        let encoded = stored.map(|field| match field.role {
            Role::Attribute(_) => names::attribute(&field.name),
            Role::Dimension(i) | Role::ZippedDimension(i) => names::dimension(&field.name, i),
            _ => names::encode(&field.name),
        });
        names::unique(encoded.collect(), names::MAX)
    }

    fn node(&self, info: &Arc<FragmentInfo>, index: usize) -> Result<Option<Node>> {
        let fragment = self.0.clone();
        let field = info.stored().get(index).map(|index| &info.fields[*index]);
        Ok(field.map(|field| {
            Node::Directory(Arc::new(ColumnDirectory {
                column: Column::new(info.clone(), field.clone()),
                fragment,
            }))
        }))
    }

    fn kind(&self, _: usize) -> Option<NodeType> {
        Some(NodeType::Directory)
    }
}

/// The files of a content: without and with a NumPy header, and the suffix in `tiles/`.
fn file_names(content: Content) -> [&'static str; 3] {
    match content {
        Content::Data => ["data.bin", "data.npy", ".data.bin"],
        Content::Offsets => ["offsets.bin", "offsets.npy", ".offsets.bin"],
        Content::Validity => ["validity.bin", "validity.npy", ".validity.bin"],
    }
}

/// The files of `contents`, without and with a NumPy header.
pub fn listed_files(contents: &[Content]) -> Vec<(&'static str, NodeType)> {
    let names = contents.iter().flat_map(|&content| {
        let [plain, numpy, _] = file_names(content);
        [plain, numpy]
    });
    names.map(|name| (name, NodeType::File)).collect()
}

/// The content of the file `name`, one of [`listed_files`], and whether it has a NumPy header.
pub fn find_file(contents: &[Content], name: &OsStr) -> Option<(Content, bool)> {
    contents.iter().find_map(|&content| {
        let [plain, numpy, _] = file_names(content);
        (name == plain || name == numpy).then(|| (content, name == numpy))
    })
}

/// The directory of one field.
#[derive(Clone)]
struct ColumnDirectory {
    column: Column,
    fragment: Arc<Fragment>,
}

impl ColumnDirectory {
    /// A file of the field: see [`ColumnFile`].
    fn file(&self, content: Content, tile: Option<u64>, header: bool) -> Node {
        Node::File(Arc::new(ColumnFile {
            column: self.column.clone(),
            content,
            tile,
            header,
            fragment: self.fragment.clone(),
        }))
    }
}

impl Directory for ColumnDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == TILES {
            return Ok(Some(Node::Directory(Arc::new(TilesDirectory(self.clone())))));
        }
        let found = find_file(&self.column.contents(), name);
        Ok(found.map(|(content, header)| self.file(content, None, header)))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let mut names = listed_files(&self.column.contents());
        names.push((TILES, NodeType::Directory));
        Ok(fixed_listing(&names))
    }

    fn mtime(&self) -> u64 {
        self.fragment.name.timestamps.1
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn origin(&self) -> Origin {
        Origin::FragmentMetadata(self.fragment.clone())
    }

    /// Type and shape of the values, and the paths of all files of the field.
    fn attributes(&self) -> Result<ExtendedAttributes> {
        let cells = vec![self.column.info().geometry.cell_num];
        Ok(attributes(
            &self.column,
            Content::Data,
            cells,
            self.column.files()?,
        ))
    }
}

/// The directory of the tiles of a field.
const TILES: &str = "tiles";

/// The extended attributes of one content of a field of such cells, of this shape.
pub fn cell_attributes(
    datatype: Datatype,
    cell_val_num: CellValNum,
    content: Content,
    shape: Vec<u64>,
) -> ExtendedAttributes {
    let (datatype, cell_val_num) = content.stored_as(datatype, cell_val_num);
    let cell_val_num = match cell_val_num {
        CellValNum::Fixed(count) => count.to_string(),
        CellValNum::Var => "var".to_owned(),
    };
    vec![
        ("user.tiledb.datatype", datatype.name().to_owned()),
        ("user.tiledb.shape", Json::from_iter(shape).to_string()),
        ("user.tiledb.cell_val_num", cell_val_num),
    ]
}

/// The extended attributes of one content of a column, stored in `files`.
fn attributes(column: &Column, content: Content, shape: Vec<u64>, files: Vec<PathBuf>) -> ExtendedAttributes {
    let field = column.field();
    let filters = field.filters(&column.info().schema, column.part_of(content));
    let filters = Json::from(filters.map(pipeline_json));
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut attributes = cell_attributes(field.datatype, field.cell_val_num, content, shape);
    attributes.extend([
        ("user.tiledb.filters", filters.to_string()),
        ("user.tiledb.source", files.join("\n")),
    ]);
    attributes
}

/// Values, offsets or validity of a field, of all tiles or one, optionally after a NumPy header.
struct ColumnFile {
    column: Column,
    content: Content,
    tile: Option<u64>,
    header: bool,
    fragment: Arc<Fragment>,
}

impl ColumnFile {
    /// The NumPy type and shape of `len` bytes of values.
    fn data_type(&self, len: u64) -> (String, Vec<u64>) {
        let field = self.column.field();
        match (self.content, field.role) {
            // Zipped coordinates are stored by dimension within a tile, not by cell.
            (Content::Data, Role::Coordinates) => npy::data_type(field.datatype, CellValNum::Fixed(1), len),
            (Content::Data, _) => npy::data_type(field.datatype, field.cell_val_num, len),
            (Content::Offsets, _) => ("<u8".to_owned(), vec![len / 8]),
            // Not `|b1`, because values other than 0 and 1 occur.
            (Content::Validity, _) => ("|u1".to_owned(), vec![len]),
        }
    }

    fn header(&self, len: u64) -> Vec<u8> {
        if !self.header {
            return Vec::new();
        }
        let (descr, shape) = self.data_type(len);
        npy::header(&descr, &shape)
    }
}

impl File for ColumnFile {
    fn stat(&self) -> Result<Stat> {
        let len = self.column.len(self.content, self.tile)?;
        Ok(Stat {
            len: file_len(len.checked_add(self.header(len).len() as u64))?,
            version: 0,
        })
    }

    fn mtime(&self) -> u64 {
        self.fragment.name.timestamps.1
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn origin(&self) -> Origin {
        Origin::Column(self.fragment.clone(), self.column.clone())
    }

    fn attributes(&self) -> Result<ExtendedAttributes> {
        let (_, shape) = self.data_type(self.column.len(self.content, self.tile)?);
        let files = self.column.files_of(self.content)?;
        Ok(attributes(&self.column, self.content, shape, files))
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let column = self.column.open_alone(self.content, self.tile)?;
        let header = self.header(Bytes::len(&column));
        let version = column.version();
        let layout = FileLayout::new(version, vec![Box::new(header), Box::new(column)])?;
        Ok(Arc::new(layout))
    }
}

/// `tiles/`: files like `<n>.data.bin`. Names are computed on demand, so that a million tiles take no memory.
struct TilesDirectory(ColumnDirectory);

impl Directory for TilesDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let name = name.to_str().unwrap_or_default();
        let (number, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
        let tile: Option<u64> = number.parse().ok();
        let tile = tile.filter(|tile| tile.to_string() == number && *tile < self.0.column.tile_num());
        let is_called = |content: &Content| file_names(*content)[2] == rest;
        let content = self.0.column.contents().into_iter().find(is_called);
        let found = tile.zip(content);
        Ok(found.map(|(tile, content)| self.0.file(content, Some(tile), false)))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(Arc::new(TilesListing {
            tile_num: self.0.column.tile_num(),
            contents: self.0.column.contents(),
        }))
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    of_object!(self => self.0);
}

struct TilesListing {
    tile_num: u64,
    contents: Vec<Content>,
}

impl Listing for TilesListing {
    fn len(&self) -> u64 {
        self.tile_num.saturating_mul(self.contents.len() as u64)
    }

    fn get(&self, index: u64) -> Option<(Cow<'_, OsStr>, NodeType)> {
        let each = self.contents.len() as u64;
        let tile = index.checked_div(each).filter(|&tile| tile < self.tile_num)?;
        let content = self.contents.get((index % each) as usize)?;
        let name = format!("{tile}{}", file_names(*content)[2]);
        Some((Cow::Owned(name.into()), NodeType::File))
    }
}
