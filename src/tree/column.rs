//! `columns/`: the fields of a fragment as files of bytes, with and without NumPy headers, whole and tile by tile.

use super::directory::{Children, ListedDirectory};
use super::node::{Directory, File, Freshness, Listing, Node, NodeType, OpenFile, Piece, clamp};
use super::permissions::{Permissions, Sources, of_fragment, restricted};
use super::{names, npy};
use crate::array::column::{Column, Content, OpenColumn};
use crate::array::field::{Field, Role};
use crate::array::fragment::Fragment;
use crate::array::fragment_info::FragmentInfo;
use crate::error::Result;
use crate::format::datatype::CellValNum;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The `columns` directory of a fragment.
pub fn columns(fragment: Arc<Fragment>) -> Node {
    let mtime = fragment.name.timestamps.1;
    ListedDirectory::node(mtime, Freshness::Immutable, move || {
        let info = fragment.open()?;
        Ok(column_names(&info)
            .into_iter()
            .zip(stored(&info))
            .map(|(name, field)| {
                let column = column(Column::new(info.clone(), field.clone()), mtime, &fragment);
                let fragment = fragment.clone();
                let column = restricted(column, move || Ok(of_fragment(&fragment)));
                (OsString::from(name), column)
            })
            .collect())
    })
}

fn stored(info: &FragmentInfo) -> impl Iterator<Item = &Field> {
    info.fields.iter().filter(|field| info.stores(field))
}

fn column_names(info: &FragmentInfo) -> Vec<String> {
    let encoded = stored(info).map(|field| match field.role {
        Role::Attribute(_) => names::attribute(&field.name),
        Role::Dimension(i) | Role::ZippedDimension(i) => names::dimension(&field.name, i),
        _ => names::encode(&field.name),
    });
    names::unique(encoded.collect(), 255)
}

fn stem(content: Content) -> &'static str {
    match content {
        Content::Data => "data",
        Content::Offsets => "offsets",
        Content::Validity => "validity",
    }
}

/// The directory of one field.
fn column(column: Column, mtime: u64, fragment: &Arc<Fragment>) -> Node {
    let fragment = fragment.clone();
    ListedDirectory::node(mtime, Freshness::Immutable, move || {
        let mut children = Children::new();
        for content in column.contents() {
            for header in [false, true] {
                let file = ColumnFile {
                    column: column.clone(),
                    content,
                    tile: None,
                    header,
                    mtime,
                    fragment: fragment.clone(),
                };
                let name = format!("{}.{}", stem(content), if header { "npy" } else { "bin" });
                children.push((name.into(), Node::File(Arc::new(file))));
            }
        }
        let tiles = TilesDirectory {
            column: column.clone(),
            contents: column.contents(),
            mtime,
            fragment: fragment.clone(),
        };
        children.push(("tiles".into(), Node::Directory(Arc::new(tiles))));
        Ok(children)
    })
}

/// Values, offsets or validity of a field: of all tiles or of one, plain or behind a NumPy header.
struct ColumnFile {
    column: Column,
    content: Content,
    tile: Option<u64>,
    header: bool,
    mtime: u64,
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
    fn len(&self) -> Result<u64> {
        let len = self.column.len(self.content, self.tile)?;
        Ok(len.saturating_add(self.header(len).len() as u64))
    }

    fn mtime(&self) -> u64 {
        self.mtime
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
        Ok(Arc::new(OpenColumnFile { header, column }))
    }
}

struct OpenColumnFile {
    header: Vec<u8>,
    column: OpenColumn,
}

impl OpenFile for OpenColumnFile {
    fn len(&self) -> u64 {
        self.column.len().saturating_add(self.header.len() as u64)
    }

    fn version(&self) -> u64 {
        self.column.version()
    }

    fn read<'s>(&self, offset: u64, size: usize, scratch: &'s mut Vec<u8>) -> Result<Piece<'s>> {
        let range = clamp(self.len(), offset, size);
        let header = self.header.len() as u64;
        if range.start >= header {
            return self
                .column
                .read(range.start - header..range.end - header, scratch);
        }
        let from_header = self
            .header
            .get(range.start as usize..header.min(range.end) as usize)
            .unwrap_or(&[]);
        if range.end <= header {
            scratch.clear();
            scratch.extend_from_slice(from_header);
            return Ok(Piece::Scratch(scratch));
        }
        let mut rest = Vec::new();
        let rest = self.column.read(0..range.end - header, &mut rest)?;
        scratch.clear();
        scratch.extend_from_slice(from_header);
        scratch.extend_from_slice(&rest);
        Ok(Piece::Scratch(scratch))
    }
}

/// `tiles/`: `<n>.data.bin` and its like. Names are computed, so that a million tiles cost nothing until they are asked for.
struct TilesDirectory {
    column: Column,
    contents: Vec<Content>,
    mtime: u64,
    fragment: Arc<Fragment>,
}

impl Directory for TilesDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let Some((number, rest)) = name.to_str().and_then(|name| name.split_once('.')) else {
            return Ok(None);
        };
        let tile = number
            .parse()
            .ok()
            .filter(|tile: &u64| tile.to_string() == number);
        let content = self
            .contents
            .iter()
            .find(|c| rest.strip_suffix(".bin") == Some(stem(**c)));
        Ok(match (tile, content) {
            (Some(tile), Some(&content)) if tile < self.column.tile_num() => {
                let tile = Some(tile);
                let (column, mtime, fragment) = (self.column.clone(), self.mtime, self.fragment.clone());
                Some(Node::File(Arc::new(ColumnFile {
                    column,
                    content,
                    tile,
                    header: false,
                    mtime,
                    fragment,
                })))
            }
            _ => None,
        })
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(Arc::new(TilesListing {
            tile_num: self.column.tile_num(),
            contents: self.contents.clone(),
        }))
    }

    fn mtime(&self) -> u64 {
        self.mtime
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
        Some((
            Cow::Owned(format!("{tile}.{}.bin", stem(*content)).into()),
            NodeType::File,
        ))
    }
}
