//! `columns/`: the fields of a fragment as files of bytes, with and without NumPy headers, whole and tile by tile.

use super::directory::{FixedDirectory, NamedDirectory, Names};
use super::node::{Directory, File, Freshness, Listing, Node, NodeType, OpenFile, Stat};
use super::permissions::{Permissions, Sources, of_fragment, restricted};
use super::{names, npy};
use crate::array::column::{Column, Content};
use crate::array::field::{Field, Role};
use crate::array::fragment::Fragment;
use crate::array::fragment_info::FragmentInfo;
use crate::error::Result;
use crate::format::datatype::CellValNum;
use crate::layout::Layout;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The `columns` directory of a fragment.
pub fn columns(fragment: Arc<Fragment>) -> Node {
    NamedDirectory::node(
        fragment.name.timestamps.1,
        Freshness::Immutable,
        Columns(fragment),
    )
}

/// The fields that a fragment stores.
struct Columns(Arc<Fragment>);

impl Names for Columns {
    type From = FragmentInfo;

    fn from(&self) -> Result<Arc<FragmentInfo>> {
        self.0.open()
    }

    fn names(&self, info: &FragmentInfo) -> Vec<OsString> {
        let encoded = stored(info).map(|field| match field.role {
            Role::Attribute(_) => names::attribute(&field.name),
            Role::Dimension(i) | Role::ZippedDimension(i) => names::dimension(&field.name, i),
            _ => names::encode(&field.name),
        });
        let names = names::unique(encoded.collect(), 255);
        names.into_iter().map(OsString::from).collect()
    }

    fn node(&self, info: &Arc<FragmentInfo>, index: usize) -> Result<Option<Node>> {
        let fragment = self.0.clone();
        Ok(stored(info).nth(index).map(|field| {
            let column = column(Column::new(info.clone(), field.clone()), &fragment);
            restricted(column, move || Ok(of_fragment(&fragment)))
        }))
    }

    fn kind(&self, _: usize) -> Option<NodeType> {
        Some(NodeType::Directory)
    }
}

fn stored(info: &FragmentInfo) -> impl Iterator<Item = &Field> {
    info.fields.iter().filter(|field| info.stores(field))
}

/// The files of each content: without and with a NumPy header, and those in `tiles`.
fn file_names(content: Content) -> [&'static str; 3] {
    match content {
        Content::Data => ["data.bin", "data.npy", ".data.bin"],
        Content::Offsets => ["offsets.bin", "offsets.npy", ".offsets.bin"],
        Content::Validity => ["validity.bin", "validity.npy", ".validity.bin"],
    }
}

/// The directory of one field.
fn column(column: Column, fragment: &Arc<Fragment>) -> Node {
    let contents = column.contents();
    let files = contents.iter().flat_map(|content| {
        let [plain, numpy, _] = file_names(*content);
        [(plain, NodeType::File), (numpy, NodeType::File)]
    });
    let names = files.chain([("tiles", NodeType::Directory)]).collect();
    let fragment = fragment.clone();
    let mtime = fragment.name.timestamps.1;
    FixedDirectory::node(mtime, Freshness::Immutable, names, move |name| {
        let (column, fragment) = (column.clone(), fragment.clone());
        let content = contents
            .iter()
            .find(|content| file_names(**content).contains(&name));
        match content {
            Some(content) => Node::File(Arc::new(ColumnFile {
                column,
                content: *content,
                tile: None,
                header: name.ends_with(".npy"),
                fragment,
            })),
            None => Node::Directory(Arc::new(TilesDirectory {
                contents: column.contents(),
                column,
                fragment,
            })),
        }
    })
}

/// Values, offsets or validity of a field: of all tiles or of one, plain or behind a NumPy header.
struct ColumnFile {
    column: Column,
    content: Content,
    tile: Option<u64>,
    header: bool,
    fragment: Arc<Fragment>,
}

impl ColumnFile {
    fn header(&self, len: u64) -> Vec<u8> {
        if !self.header {
            return Vec::new();
        }
        let field = self.column.field();
        match self.content {
            Content::Data => {
                // Zipped coordinates are not stored cell by cell.
                let cells = match field.role {
                    Role::Coordinates => CellValNum::Fixed(1),
                    _ => field.cell_val_num,
                };
                npy::data_header(field.datatype, cells, len)
            }
            Content::Offsets => npy::offsets_header(len / 8),
            Content::Validity => npy::validity_header(len),
        }
    }
}

impl File for ColumnFile {
    fn stat(&self) -> Result<Stat> {
        let len = self.column.len(self.content, self.tile)?;
        Ok(Stat {
            len: len.saturating_add(self.header(len).len() as u64),
            version: 0,
        })
    }

    fn mtime(&self) -> u64 {
        self.fragment.name.timestamps.1
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn permissions(&self) -> Permissions {
        let mut permissions = of_fragment(&self.fragment);
        let files = self.column.files().map(|files| {
            let sources = Sources::new(self.fragment.engine());
            files
                .iter()
                .fold(sources, |sources, path| sources.read(path))
                .permissions()
        });
        permissions
            .open
            .and(&files.unwrap_or_else(|_| Permissions::nobody()).open);
        permissions
    }

    fn open(&self) -> Result<Arc<dyn OpenFile>> {
        let column = self.column.open(self.content, self.tile)?;
        let header = self.header(column.len());
        let version = column.version();
        let layout = Layout::new(version, vec![Box::new(header), Box::new(column)])?;
        Ok(Arc::new(layout))
    }
}

/// `tiles/`: `<n>.data.bin` and its like. Names are computed, so that a million tiles cost nothing until they are asked for.
struct TilesDirectory {
    column: Column,
    contents: Vec<Content>,
    fragment: Arc<Fragment>,
}

impl Directory for TilesDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let name = name.to_str().unwrap_or_default();
        let (number, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
        let tile: Option<u64> = number.parse().ok();
        let tile = tile.filter(|tile| tile.to_string() == number && *tile < self.column.tile_num());
        let is_called = |content: &&Content| file_names(**content)[2] == rest;
        let content = self.contents.iter().find(is_called);
        Ok(tile.zip(content).map(|(tile, content)| {
            Node::File(Arc::new(ColumnFile {
                column: self.column.clone(),
                content: *content,
                tile: Some(tile),
                header: false,
                fragment: self.fragment.clone(),
            }))
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(Arc::new(TilesListing {
            tile_num: self.column.tile_num(),
            contents: self.contents.clone(),
        }))
    }

    fn mtime(&self) -> u64 {
        self.fragment.name.timestamps.1
    }

    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }

    fn permissions(&self) -> Permissions {
        of_fragment(&self.fragment)
    }
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
