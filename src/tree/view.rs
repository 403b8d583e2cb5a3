//! `data/` and its `subarray/`: an array as TileDB reads it.

use super::array_at::ArrayAt;
use super::column::{cell_attributes, find_file, listed_files};
use super::directory::fixed_listing;
use super::document::{Document, DocumentContent};
use super::export::{ExportFile, Exported};
use super::node::{
    Directory, DirectoryKind, Entry, ExtendedAttributes, File, Freshness, Listing, Node, NodeType, Stat,
};
use super::permissions::Origin;
use super::raster::RasterDirectory;
use super::view_source::{ViewSource, Viewed, of_view, place};
use super::zarr::ZarrGroupDirectory;
use crate::describe::view::{unreadable_view_json, view_json};
use crate::error::{Error, ErrorKind, Result};
use crate::export::{Format, field_names, npy, tiff, zarr};
use crate::format::datatype::CellValNum;
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::layout::{CellBytes, FileLayout, file_len};
use crate::query::{Field, Role, View};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// `data/`, and each directory in `subarray/`.
pub struct ViewDirectory(ViewSource);

impl ViewDirectory {
    /// The directory of `source`.
    pub fn node(source: ViewSource) -> Node {
        Node::Directory(Arc::new(ViewDirectory(source)))
    }
}

impl Directory for ViewDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let source = self.0.clone();
        Ok(match name.to_str() {
            Some("view.json") => Some(document(source)),
            Some("columns") => Some(Node::Directory(Arc::new(ColumnsDirectory(source)))),
            Some("subarray") if source.part.is_none() => {
                Some(Node::Directory(Arc::new(SubarrayDirectory(source))))
            }
            Some(name) => find(&source, name)?,
            None => None,
        })
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        // Listing an array that cannot be read fails.
        let view = self.0.view()?;
        let mut names = vec![("view.json", NodeType::File), ("columns", NodeType::Directory)];
        names.extend(listed(&self.0, &view));
        Ok(fixed_listing(&names))
    }

    fn kind(&self) -> DirectoryKind {
        DirectoryKind::View
    }

    fn viewed(&self) -> Option<Viewed> {
        Some(self.0.viewed())
    }

    of_view!(self => self.0);
}

/// The export `name` of the view `source`; None if no export has that name. `NotFound`, with the reason, if
/// this view has none. If that is unknown, returns a node whose accesses fail.
fn find(source: &ViewSource, name: &str) -> Result<Option<Node>> {
    let of = source.clone();
    let (absent, node) = match (name, Format::ALL.into_iter().find(|format| format.name() == name)) {
        (zarr::NAME, _) => (
            zarr::absent(&*source.view()?),
            Node::Directory(Arc::new(ZarrGroupDirectory(of))),
        ),
        (tiff::DIRECTORY, _) => (
            tiff::all_absent(&*source.view()?),
            Node::Directory(Arc::new(RasterDirectory(of))),
        ),
        (_, Some(format)) => (
            format.absent(&*source.view()?, &source.context.exports),
            ExportFile::node(source, Exported::File(format)),
        ),
        (_, None) => return Ok(None),
    };
    match absent {
        Ok(Some(reason)) => Err(Error::not_found(reason)),
        _ => Ok(Some(node)),
    }
}

/// The listed exports of `view`.
fn listed(source: &ViewSource, view: &View) -> Vec<(&'static str, NodeType)> {
    if source.context.exports.hide {
        return Vec::new();
    }
    let formats = Format::ALL.into_iter();
    let files = formats.map(|format| {
        (
            format.name(),
            NodeType::File,
            format.is_listed(view, &source.context.exports),
        )
    });
    let images = tiff::all_absent(view).map(|absent| absent.is_none());
    let directories = [
        (zarr::NAME, NodeType::Directory, zarr::is_listed(view)),
        (tiff::DIRECTORY, NodeType::Directory, images),
    ];
    // If it is unknown whether an export exists, it is listed; accessing it reports the error.
    let listed = files
        .chain(directories)
        .filter(|(.., listed)| *listed.as_ref().unwrap_or(&true));
    listed.map(|(name, kind, _)| (name, kind)).collect()
}

/// `view.json`: a description of the view. Depends only on names and the schema; can also be read if the
/// schema is damaged.
fn document(source: ViewSource) -> Node {
    let document = Document {
        engine: source.array_at.array.engine.clone(),
        of: source.array_at.array.path.clone(),
        name: "view.json",
        mtime: source.mtime(),
        freshness: Freshness::Listing,
        // It names the keys of metadata that exports leave out.
        origin: Origin::DescribedCells(source.array_at.clone()),
    };
    document.node(
        || None,
        move || {
            let text = match source.view() {
                Ok(view) => {
                    let snapshot = view.snapshot();
                    if let Some(entry) = snapshot.incomplete().next()
                        && view.array().warns_first(snapshot)
                    {
                        let (array, name) = (source.display(), &entry.name);
                        log::warn!(
                            "{array}: what {name} has replaced is vacuumed, and not seen at this time"
                        );
                    }
                    view_json(&view, &source.context.exports)?
                }
                Err(error) if is_damage(&error) => {
                    log::warn!("{error}");
                    let ArrayAt { array, when } = &source.array_at;
                    let times = when.times_in(&array.engine);
                    let snapshot = source.array_at.snapshot()?;
                    unreadable_view_json(&snapshot, times, &error)
                }
                Err(error) => return Err(error),
            };
            Ok(DocumentContent::text(text))
        },
    )
}

/// Whether the error is about what is stored, not about who reads it and how.
fn is_damage(error: &Error) -> bool {
    use ErrorKind::*;
    matches!(
        error.kind(),
        NotFound
            | Missing
            | Truncated
            | Corrupt
            | ChecksumMismatch
            | UnsupportedVersion
            | Unsupported
            | LimitExceeded
    )
}

/// `subarray/`: every part of the domain can be looked up; nothing is listed.
struct SubarrayDirectory(ViewSource);

impl Directory for SubarrayDirectory {
    /// `NotFound`, with the reason, if `name` is not a part of the domain.
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        Ok(Some(ViewDirectory::node(self.0.part(name)?)))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(Arc::new(Vec::<Entry>::new()))
    }

    /// The kernel's limit.
    fn longest_name(&self) -> usize {
        1024
    }

    of_view!(self => self.0);
}

/// `columns/` of a view: dimensions, then attributes.
struct ColumnsDirectory(ViewSource);

impl Directory for ColumnsDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let view = self.0.view()?;
        Ok(field_names(&view)?.position(name).map(|index| {
            let source = self.0.clone();
            let field = &view.fields()[index];
            let (index, name, is_attribute) = (index, field.name.clone(), field.is_attribute());
            let field = FieldSource {
                source,
                index,
                name,
                is_attribute,
            };
            Node::Directory(Arc::new(ColumnDirectory(field)))
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let names = field_names(&*self.0.view()?)?;
        let entries = names.names.iter();
        let entries = entries.map(|name| (OsString::from(name), NodeType::Directory));
        Ok(Arc::new(entries.collect::<Vec<Entry>>()))
    }

    of_view!(self => self.0);
}

/// A field of the view.
#[derive(Clone)]
struct FieldSource {
    source: ViewSource,
    /// Where the schema had it. Another one may have another field there.
    index: usize,
    name: Vec<u8>,
    is_attribute: bool,
}

impl FieldSource {
    /// The current view, and the index of the field in it. `NotFound` if its schema is another one, without
    /// the field.
    fn find(&self) -> Result<(Arc<View>, usize)> {
        let view = self.source.view()?;
        let is_it = |field: &Field| field.name == self.name && field.is_attribute() == self.is_attribute;
        let index = match view.fields().get(self.index) {
            Some(field) if is_it(field) => Some(self.index),
            _ => view.fields().iter().position(is_it),
        };
        let changed = || place(Error::not_found("the schema has changed"), &self.source.display());
        Ok((view, index.ok_or_else(changed)?))
    }
}

/// The files of one field.
struct ColumnDirectory(FieldSource);

impl ColumnDirectory {
    fn contents(&self) -> Result<Vec<Content>> {
        let (view, index) = self.0.find()?;
        let field = &view.fields()[index];
        Ok(Content::all(field.cell_val_num, field.nullable))
    }
}

/// The extended attributes of one content of a field, of this shape.
fn attributes(view: &View, field: &Field, content: Content, shape: Vec<u64>) -> ExtendedAttributes {
    let fragments: Vec<&str> = view.snapshot().fragments().map(|entry| &*entry.name).collect();
    let mut attributes = cell_attributes(field.datatype, field.cell_val_num, content, shape);
    attributes.push(("user.tiledb.source", fitting(&fragments)));
    attributes
}

/// `names`, one a line: as many as an extended attribute of Linux can have, 64 KiB, and in place of the
/// others a line that tells how many these are.
fn fitting(names: &[&str]) -> String {
    const MOST: usize = 64 << 10;
    const LAST_LINE: usize = 32;
    let all = names.join("\n");
    if all.len() <= MOST {
        return all;
    }
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        if text.len() + name.len() > MOST - LAST_LINE {
            return text + &format!("and {} more", names.len() - index);
        }
        text.push_str(name);
        text.push('\n');
    }
    text
}

impl Directory for ColumnDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        Ok(find_file(&self.contents()?, name).map(|(content, header)| {
            Node::File(Arc::new(ColumnFile {
                field: self.0.clone(),
                content,
                header,
            }))
        }))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(fixed_listing(&listed_files(&self.contents()?)))
    }

    of_view!(self => self.0.source);

    /// Datatype, shape and number of values per cell, and the fragments of the view.
    fn attributes(&self) -> Result<ExtendedAttributes> {
        let (view, index) = self.0.find()?;
        let field = &view.fields()[index];
        let shape = || match field.role {
            Role::Attribute(_) => view.shape(),
            Role::Dimension(_) => Ok(vec![view.open(index)?.count()]),
        };
        let shape = self.0.source.placed(shape())?;
        Ok(attributes(&view, field, Content::Data, shape))
    }
}

/// Values, offsets or validity of a field, optionally after a NumPy header.
struct ColumnFile {
    field: FieldSource,
    content: Content,
    header: bool,
}

impl ColumnFile {
    /// The header, the cells, and their length in bytes. Together as many bytes as a file may have.
    fn parts(&self, view: &View, index: usize) -> Result<(Vec<u8>, Arc<dyn Cells>, u64)> {
        self.field.source.placed(self.try_parts(view, index))
    }

    fn try_parts(&self, view: &View, index: usize) -> Result<(Vec<u8>, Arc<dyn Cells>, u64)> {
        let cells = view.open(index)?;
        let len = cells.len(self.content)?;
        let mut header = Vec::new();
        if self.header {
            let (descr, shape) = self.data_type(view, &view.fields()[index], &*cells, len)?;
            header = npy::header(&descr, &shape);
        }
        file_len(len.checked_add(header.len() as u64))?;
        Ok((header, cells, len))
    }

    /// The NumPy type and shape of `cells`, of which the content has `len` bytes.
    fn data_type(
        &self,
        view: &View,
        field: &Field,
        cells: &dyn Cells,
        len: u64,
    ) -> Result<(String, Vec<u64>)> {
        let shape = match field.role {
            Role::Attribute(_) if view.is_dense() => view.shape()?,
            _ => vec![cells.count()],
        };
        Ok(match self.content {
            Content::Data => {
                let (descr, cells) = npy::data_type(field.datatype, field.cell_val_num, len);
                match field.cell_val_num {
                    CellValNum::Var => (descr, cells),
                    // The axes of the view, and one more if cells have several values.
                    CellValNum::Fixed(_) => (
                        descr,
                        shape.into_iter().chain(cells.into_iter().skip(1)).collect(),
                    ),
                }
            }
            Content::Offsets => ("<u8".to_owned(), vec![len / 8]),
            Content::Validity => ("|u1".to_owned(), shape),
        })
    }
}

impl File for ColumnFile {
    fn stat(&self) -> Result<Stat> {
        let (view, index) = self.field.find()?;
        let (header, _, len) = self.parts(&view, index)?;
        Ok(Stat {
            len: len + header.len() as u64,
            version: view.state(),
        })
    }

    fn known_len(&self) -> Result<Option<u64>> {
        let (view, index) = self.field.find()?;
        let is_var = view.fields()[index].cell_val_num.is_var();
        match is_var && self.content == Content::Data || view.known_count()?.is_none() {
            true => Ok(None),
            false => self.len().map(Some),
        }
    }

    of_view!(self => self.field.source);

    /// Datatype, shape and number of values per cell of the content, and the fragments of the view.
    fn attributes(&self) -> Result<ExtendedAttributes> {
        let (view, index) = self.field.find()?;
        let (_, cells, len) = self.parts(&view, index)?;
        let field = &view.fields()[index];
        let shape = self.data_type(&view, field, &*cells, len);
        let (_, shape) = self.field.source.placed(shape)?;
        Ok(attributes(&view, field, self.content, shape))
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let (view, index) = self.field.find()?;
        let (header, cells, _) = self.parts(&view, index)?;
        let values = CellBytes::new(cells, self.content)?;
        let layout = FileLayout::new(view.state(), vec![Box::new(header), Box::new(values)])?;
        Ok(Arc::new(layout.of(self.field.source.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Tree, TreeOptions};
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};
    use std::{fs, thread};

    /// Copies the files of `from` whose names begin with one of `prefixes` to `to`.
    fn copy(from: &Path, to: &Path, prefixes: &[&str]) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
            let name = name.to_str().unwrap();
            match path.is_dir() {
                true => copy(&path, &to.join(name), &[""]),
                false if prefixes.iter().any(|prefix| name.starts_with(prefix)) => {
                    fs::copy(&path, to.join(name)).unwrap();
                }
                false => {}
            }
        }
    }

    #[test]
    fn a_column_never_shows_another_field() {
        let source = Path::new("tests/data/versions/v22/evolved");
        let folder = tempfile::tempdir().unwrap();
        let schemas = |prefix| {
            copy(
                &source.join("__schema"),
                &folder.path().join("__schema"),
                &[prefix],
            )
        };
        // Attributes a and s, which then are s and b.
        schemas("__1_");
        fs::create_dir_all(folder.path().join("__fragments")).unwrap();
        fs::create_dir_all(folder.path().join("__commits")).unwrap();
        let tree = Tree::open(folder.path(), &TreeOptions::default()).unwrap();
        let found = |path| tree.root.find(path).unwrap().unwrap();
        let column = found("data/columns/a/data.bin");
        let before = column.read_all().unwrap();
        schemas("__20_");
        let after = loop {
            match column.read_all() {
                Ok(bytes) if bytes == before => thread::sleep(Duration::from_millis(10)),
                after => break after,
            }
        };
        assert_eq!(after.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(tree.root.find("data/columns/a").unwrap().is_none());
        assert!(found("data/columns/s/data.bin").read_all().is_ok());
    }

    #[test]
    fn the_names_of_many_fragments_fit_into_an_extended_attribute() {
        let names: Vec<String> = (1000..3000).map(|number| format!("{number:060}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(fitting(&names[..1000]), names[..1000].join("\n"));
        let text = fitting(&names);
        assert!(text.len() <= 65_536 && text.len() > 65_400);
        let lines: Vec<&str> = text.lines().collect();
        let (last, shown) = lines.split_last().unwrap();
        assert_eq!(shown, &names[..shown.len()]);
        assert_eq!(*last, format!("and {} more", 2000 - shown.len()));
    }

    #[test]
    fn times_are_those_of_all_that_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        copy(Path::new("tests/data/sample/weather"), folder.path(), &[""]);
        let meta = folder.path().join("__meta");
        let newest = 1_740_000_000_000;
        for entry in fs::read_dir(&meta).unwrap() {
            fs::rename(
                entry.unwrap().path(),
                meta.join(format!("__{newest}_{newest}_{:032}", 0)),
            )
            .unwrap();
        }
        fs::create_dir(folder.path().join("__fragment_meta")).unwrap();
        let directories = [
            "",
            "__schema",
            "__fragments",
            "__commits",
            "__meta",
            "__fragment_meta",
        ];
        let set = |directory: &str, seconds| {
            let directory = fs::File::open(folder.path().join(directory)).unwrap();
            directory
                .set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        };
        let open = || Tree::open(folder.path(), &TreeOptions::default()).unwrap();
        let time_in = |tree: &Tree, path: &str| match tree.root.find(path).unwrap() {
            Some(Node::File(file)) => file.mtime(),
            _ => panic!("no {path}"),
        };
        let time = |path: &str| time_in(&open(), path);
        directories.iter().for_each(|directory| set(directory, 1));
        for changed in directories {
            assert_eq!(time("data/array.nc"), newest);
            set(changed, 2_000_000_000);
            let of_view = changed != "__fragment_meta";
            for (path, follows) in [
                ("data/view.json", of_view),
                ("data/array.nc", of_view),
                ("data/array.zarr/zarr.json", of_view),
                ("metadata.json", of_view),
                ("fragments.json", true),
                ("commits.json", of_view),
                ("consolidated_metadata.json", true),
                ("at/latest/data/array.nc", false),
                ("at/latest/fragments.json", false),
                ("at/1740000000000/fragments.json", true),
                ("at/1740000000000/metadata.json", of_view),
            ] {
                let expected = if follows { 2_000_000_000_000 } else { newest };
                assert_eq!(time(path), expected, "{path} when {changed:?} changes");
            }
            set(changed, 1);
        }
        // A timestamp counts from its time on.
        let soon = crate::calendar::now() + 2000;
        for stamp in [soon, 4_102_444_800_000] {
            let name = format!("__{stamp}_{stamp}_{:032}_22", 0);
            fs::create_dir(folder.path().join("__fragments").join(name)).unwrap();
        }
        set("__fragments", 1);
        let tree = open();
        assert_eq!(time_in(&tree, "commits.json"), newest);
        thread::sleep(Duration::from_millis(2500));
        assert_eq!(time_in(&tree, "commits.json"), soon);
    }
}
