//! A fragment: its footer and its schema, of all versions of the format as one; its fields, tiles and cells.
//!
//! A [`Fragment`] is a fragment's directory. It outlives the listing that found it. Its [`Outline`] is small,
//! is kept, and decides whether a reader needs the fragment. Its [`FragmentInfo`], kept for the most recently
//! used fragments, has what reading cells takes: fields, tiles, and the footer of its metadata.
//!
//! | module | |
//! |---|---|
//! | [`info`], [`sections`] | the metadata of a fragment |
//! | [`schemas`] | the schemas of an array, each parsed once |
//! | [`repeated_footers`], [`prefetch`] | footers by fewer requests to an object store |
//! | [`field`] | the fields that a fragment stores |
//! | [`geometry`] | how many tiles there are, and how many cells in each |
//! | [`tile_file`], [`tile_list`] | a file of tiles, and where they lie in it |
//! | [`generic_body`] | bodies of generic tiles, read by ranges |
//! | [`field_files`], [`column`](mod@column) | the files of a field; its values, offsets and validity as bytes |
//! | [`cells`], [`cell_slice`] | the cells of a field in order; some of them in memory |

pub mod cell_slice;
pub mod cells;
pub mod column;
pub mod field;
pub mod field_files;
pub mod generic_body;
pub mod geometry;
pub mod info;
pub mod prefetch;
pub mod repeated_footers;
pub mod schemas;
mod sections;
pub mod tile_file;
pub mod tile_list;

use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::{GenericTile, read_generic_tile_within};
use crate::format::enums::{ArrayType, Encryption};
use crate::format::fragment::footer::FooterPosition;
use crate::format::fragment::{Footer, FooterFront, legacy};
use crate::format::name::TimestampedName;
use crate::format::range::Rect;
use crate::format::schema::Schema;
use crate::runtime::{hash, lock};
use crate::storage::{Blob, Tail, join};
use field::{StoredField, Writer};
use geometry::Geometry;
use info::{Edition, FragmentInfo, METADATA_FILE};
use repeated_footers::RepeatedFooters;
use schemas::Schemas;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// The most bytes of a footer. With thousands of fields it takes some hundred KiB.
const MAX_FOOTER: u64 = 16 << 20;

/// The most bytes of the metadata of versions 1 and 2, unfiltered: lists of a million tiles of eight fields.
/// It stays in memory as long as the array.
const MAX_LEGACY: u64 = 64 << 20;

/// A footer with the schema that it names, and the schema's name.
type ParsedFooter = (Arc<Schema>, String, Footer);

/// What decides whether a reader needs a fragment. Kept as long as the fragment.
#[non_exhaustive]
pub struct Outline {
    /// Bounding box of the cells; None if there are none.
    pub domain: Option<Rect>,
    /// Whether it is dense.
    pub dense: bool,
    /// Number of stored cells.
    pub cells: u64,
    /// Whether cells have timestamps of their own, of writes or deletes.
    pub timed: bool,
    /// Tiles of each field.
    pub tiles: u64,
    /// Bytes of all files; None beyond 2^64.
    pub size: Option<u64>,
    /// Format version of its metadata.
    pub version: u32,
    /// The schema that it was written with.
    pub schema: Arc<Schema>,
    /// The name of the schema's file.
    pub schema_name: String,
}

impl Outline {
    /// The outline of a fragment with this footer in a metadata file of `size` bytes.
    fn new(
        footer: &Footer,
        geometry: &Geometry,
        schema: Arc<Schema>,
        schema_name: String,
        size: u64,
    ) -> Outline {
        Outline {
            domain: footer.non_empty_domain.clone(),
            dense: footer.dense,
            cells: geometry.cell_num,
            timed: footer.slots.are_timed(),
            tiles: geometry.tile_num,
            size: footer.files_size().and_then(|files| files.checked_add(size)),
            version: footer.version,
            schema,
            schema_name,
        }
    }

    /// The outline of a fragment whose metadata is in memory.
    fn of_info(info: &FragmentInfo) -> Outline {
        let (schema, name) = (info.schema.clone(), info.schema_name.clone());
        Outline::new(&info.footer, &info.geometry, schema, name, info.metadata_size)
    }
}

/// A fragment directory. The first access that needs metadata reads it.
pub struct Fragment {
    engine: Arc<Engine>,
    schemas: Arc<Schemas>,
    repeated_footers: Arc<RepeatedFooters>,
    /// The directory, relative to the source.
    pub path: PathBuf,
    /// The directory's name, parsed.
    pub name: TimestampedName,
    key: Option<EncryptionKey>,
    opened: Arc<Mutex<Option<Arc<FragmentInfo>>>>,
    /// With how often the metadata file was found changed before.
    outline: Mutex<Option<(u64, Arc<Outline>)>>,
    /// The first edition of the files, which tells of later ones.
    edition: Edition,
}

impl Fragment {
    /// The name of its directory.
    pub(crate) fn directory_name(&self) -> String {
        String::from_utf8_lossy(file_name(&self.path)).into_owned()
    }

    /// The fragment directory at `path`. Reads nothing.
    pub(crate) fn new(
        engine: Arc<Engine>,
        schemas: Arc<Schemas>,
        repeated_footers: Arc<RepeatedFooters>,
        path: PathBuf,
        name: TimestampedName,
        key: Option<EncryptionKey>,
    ) -> Self {
        Fragment {
            engine,
            schemas,
            repeated_footers,
            path,
            name,
            key,
            opened: Arc::default(),
            outline: Mutex::default(),
            edition: Edition::default(),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The array's key, if one was given.
    pub(crate) fn key(&self) -> Option<&EncryptionKey> {
        self.key.as_ref()
    }

    /// The path of the metadata file, relative to the source.
    pub(crate) fn metadata_path(&self) -> PathBuf {
        join(&self.path, Path::new(METADATA_FILE))
    }

    /// The path of the schema that the fragment was written with, relative to the source.
    pub(crate) fn schema_path(&self, info: &FragmentInfo) -> PathBuf {
        self.schemas.path(&info.schema_name)
    }

    /// The metadata, from memory or read now. A failure is not cached.
    pub(crate) fn open(&self) -> Result<Arc<FragmentInfo>> {
        if let Some(info) = self.known() {
            return Ok(info);
        }
        let info = Arc::new(self.read_metadata()?);
        let mut opened = lock(&self.opened);
        if let Some(first) = opened.as_ref().filter(|first| first.edition.is_valid()) {
            return Ok(first.clone());
        }
        *opened = Some(info.clone());
        drop(opened);
        self.engine.keep_fragment(&self.opened, info.memory());
        Ok(info)
    }

    /// [`Fragment::open`] for a reader who has read of it after so many changes of its files: `Changed` if
    /// there are more by now.
    pub(crate) fn open_after(&self, changes: u64) -> Result<Arc<FragmentInfo>> {
        let info = self.open()?;
        match info.edition.is_after(changes) {
            true => Ok(info),
            false => Err(info.place(Error::changed())),
        }
    }

    /// [`Fragment::open`] without keeping the metadata in memory: for a pass over very many fragments.
    pub(crate) fn look(&self) -> Result<Arc<FragmentInfo>> {
        self.known()
            .map_or_else(|| self.read_metadata().map(Arc::new), Ok)
    }

    /// The metadata in memory, unless their file has changed.
    fn known(&self) -> Option<Arc<FragmentInfo>> {
        lock(&self.opened)
            .clone()
            .filter(|known| known.edition.is_valid())
    }

    /// The outline in memory, unless the metadata file has changed.
    fn known_outline(&self) -> Option<Arc<Outline>> {
        let known = lock(&self.outline).clone();
        known
            .filter(|(changes, _)| *changes == self.changes())
            .map(|(_, outline)| outline)
    }

    /// How often a file of it was found changed: what was made of it by then is of another state.
    pub(crate) fn changes(&self) -> u64 {
        self.edition.changes()
    }

    /// What was read of it may be of another state.
    pub(crate) fn set_changed(&self) {
        self.edition.anew().end(&self.engine);
    }

    /// The outline. Reads the metadata at most once, and does not keep the metadata in memory.
    ///
    /// # Errors
    ///
    /// If the metadata or the schema that it names cannot be read or decoded.
    pub fn outline(&self) -> Result<Arc<Outline>> {
        if let Some(known) = self.known_outline() {
            return Ok(known);
        }
        let changes = self.changes();
        let outline = self.look_at_outline()?;
        *lock(&self.outline) = Some((changes, outline.clone()));
        Ok(outline)
    }

    /// [`Fragment::outline`] without keeping the outline: for a pass over very many fragments.
    pub(crate) fn look_at_outline(&self) -> Result<Arc<Outline>> {
        if let Some(outline) = self.known_outline() {
            return Ok(outline);
        }
        if !self.is_open() {
            if let Some(outline) = self.repeated_outline() {
                return Ok(Arc::new(outline));
            }
            // Versions 1 and 2 have no footer.
            if self.name.name_version > 2 {
                return self.reading(|| self.read_outline()).map(Arc::new);
            }
        }
        Ok(Arc::new(Outline::of_info(&*self.look()?)))
    }

    /// The outline from the footer alone: with very many fragments, decoding the other metadata would take
    /// longer than reading it.
    fn read_outline(&self) -> Result<Outline> {
        let file = self.engine.storage.open(&self.metadata_path())?;
        let mut room = [0; Tail::SIZE];
        let blob = Tail::new(&*file, &mut room)?;
        let (position, parsed) = self.footer(&blob)?;
        self.outline_of(parsed, position, file.len())
    }

    /// The outline from the result of [`Fragment::parse_footer`] for the footer at `position` of a metadata
    /// file of `size` bytes.
    fn outline_of(
        &self,
        (schema, schema_name, footer): ParsedFooter,
        position: FooterPosition,
        size: u64,
    ) -> Result<Outline> {
        let geometry = geometry_of(&schema, &footer, position)?;
        Ok(Outline::new(&footer, &geometry, schema, schema_name, size))
    }

    /// Whether the outline is known without reading the fragment's own metadata file.
    pub(crate) fn has_outline(&self) -> bool {
        let known = self.known_outline().is_some() || self.is_open();
        known || self.repeated_footers.has(file_name(&self.path))
    }

    /// Whether the metadata is in memory.
    pub(crate) fn is_open(&self) -> bool {
        self.known().is_some()
    }

    /// The outline from the footer in a consolidated metadata file; None if there is none or it is damaged.
    fn repeated_outline(&self) -> Option<Outline> {
        // libtiledb does not repeat footers of older versions faithfully.
        const FIRST_VERSION: u32 = 5;
        let footer = self.repeated_footers.get(file_name(&self.path));
        let bytes = footer.filter(|_| self.name.name_version >= FIRST_VERSION)?;
        let file = self.engine.storage.metadata(&self.metadata_path()).ok()?;
        let size = bytes.len() as u64;
        let position = FooterPosition {
            offset: file.len.checked_sub(size)?,
            size,
        };
        let parsed = self.parse_footer(&bytes, position, None);
        let outline = parsed.and_then(|parsed| self.outline_of(parsed, position, file.len));
        outline
            .map_err(|e| log::info!("{}: {e}", self.path.display()))
            .ok()
    }

    /// Number of stored cells. Keeps the metadata in memory if the source is an object store, because the
    /// caller will read the cells.
    ///
    /// # Errors
    ///
    /// Those of [`Fragment::outline`].
    pub fn cells(&self) -> Result<u64> {
        match self.known_outline() {
            Some(outline) => Ok(outline.cells),
            None if self.engine.storage.is_remote() => Ok(self.open()?.geometry.cell_num),
            None => Ok(self.outline()?.cells),
        }
    }

    fn read_metadata(&self) -> Result<FragmentInfo> {
        // The edition is that before: what changes meanwhile ends it.
        self.reading(|| self.read(self.edition.anew()))
    }

    /// Calls `read`, which reads the metadata file, and completes its errors.
    fn reading<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        let read = self.engine.read_in(&self.path, read);
        read.map_err(|e| {
            let path = self.metadata_path();
            if !e.may_pass()
                && let Ok(file) = self.engine.storage.open(&path)
            {
                file.forget(0..file.len());
            }
            let error = self.engine.incomplete(&self.path, e);
            error.in_file(self.engine.storage.display(&path))
        })
    }

    fn read(&self, edition: Edition) -> Result<FragmentInfo> {
        // Not through the open files: most of very many fragments are opened for the footer only.
        let file = self.engine.storage.open(&self.metadata_path())?;
        let mut room = [0; Tail::SIZE];
        let blob = Tail::new(&*file, &mut room)?;
        if self.name.name_version <= 2 {
            return self.read_legacy(edition, &*file, &blob);
        }
        let (position, (schema, schema_name, footer)) = self.footer(&blob)?;
        let tile = GenericTile::read_header(&blob, footer.offsets.rtree, self.key.as_ref())?;
        let geometry = geometry_of(&schema, &footer, position)?;
        let footer = (footer, Some(position));
        Ok(self.info(edition, (schema, schema_name), footer, geometry, &tile, &*file))
    }

    /// The position of the footer of the metadata file `blob`, and the result of [`Fragment::parse_footer`].
    fn footer(&self, blob: &dyn Blob) -> Result<(FooterPosition, ParsedFooter)> {
        let schema = match self.name.name_version {
            ..10 => Some(self.schemas.get(schemas::LEGACY_SCHEMA)?),
            _ => None,
        };
        let (position, bytes) = self.footer_bytes(blob, schema.as_deref())?;
        Ok((position, self.parse_footer(&bytes, position, schema)?))
    }

    /// Parses a footer. `schema` is its schema, if known; otherwise the footer names it.
    fn parse_footer(
        &self,
        bytes: &[u8],
        position: FooterPosition,
        schema: Option<Arc<Schema>>,
    ) -> Result<ParsedFooter> {
        let mut c = Cursor::with_base(bytes, position.offset);
        let front = Footer::peek(&mut c)?;
        let schema_name = match &front.schema_name {
            Some(name) => std::str::from_utf8(name)
                .map_err(|_| {
                    Error::corrupt("the schema's name is not UTF-8")
                        .at(position.offset)
                        .in_part("footer")
                })?
                .to_owned(),
            None => schemas::LEGACY_SCHEMA.to_owned(),
        };
        let schema = match schema {
            Some(schema) => schema,
            None => self.schemas.get(&schema_name)?,
        };
        let footer = front
            .parse_rest(&mut c, &schema, true)
            .and_then(|footer| footer.check_sections(position.offset).map(|()| footer))
            .map_err(|e| e.at(position.offset))?;
        Ok((schema, schema_name, footer))
    }

    /// Position and bytes of the footer. `schema` as for [`Footer::locate`].
    fn footer_bytes(&self, blob: &dyn Blob, schema: Option<&Schema>) -> Result<(FooterPosition, Vec<u8>)> {
        let word = blob
            .len()
            .checked_sub(8)
            .ok_or_else(|| {
                Error::truncated(format!(
                    "the file has only {} bytes, too few for a footer",
                    blob.len()
                ))
                .at(blob.len())
            })
            .and_then(|offset| {
                let mut word = [0; 8];
                blob.read_at(offset, &mut word).map(|()| word)
            })?;
        let position = Footer::locate(self.name.name_version, schema, blob.len(), word)?;
        if position.size > MAX_FOOTER {
            return Err(Error::limit(format!(
                "the footer takes {} bytes, more than the {MAX_FOOTER} allowed",
                position.size
            ))
            .at(position.offset)
            .in_part("footer"));
        }
        let bytes = blob.read(position.offset, position.size)?;
        Ok((position, bytes))
    }

    /// The part of the footer that can be decoded without the schema, and so without the key of an encrypted
    /// array: footers are not encrypted. None below version 10, where finding the footer takes the schema.
    pub(crate) fn clear_footer(&self) -> Result<Option<(FooterFront, FooterPosition)>> {
        if self.name.name_version < 10 {
            return Ok(None);
        }
        let blob = self.engine.open_immutable(&self.metadata_path())?;
        let (position, bytes) = self
            .footer_bytes(&*blob, None)
            .map_err(|e| e.in_file(blob.display()))?;
        let front = Footer::peek(&mut Cursor::with_base(&bytes, position.offset))
            .map_err(|e| e.in_file(blob.display()))?;
        Ok(Some((front, position)))
    }

    /// Reads metadata of version 1 or 2 from `blob`, which is `file`.
    fn read_legacy(&self, edition: Edition, file: &dyn Blob, blob: &dyn Blob) -> Result<FragmentInfo> {
        let schema_name = schemas::LEGACY_SCHEMA;
        let schema = self.schemas.get(schema_name)?;
        let (tile, body) = read_generic_tile_within(blob, 0, self.key.as_ref(), MAX_LEGACY)?;
        // There is no flag: a fragment with coordinates is sparse, as are all of a sparse array.
        let coordinates = self.path.join("__coords.tdb");
        let dense = match self.engine.storage.metadata(&coordinates) {
            _ if schema.array_type == ArrayType::Sparse => false,
            Ok(_) => false,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.engine.storage.check_above(&coordinates)?;
                true
            }
            Err(e) => return Err(e.at(0)),
        };
        let footer = legacy::parse(&body, &schema, dense).map_err(|e| e.in_part("fragment metadata"))?;
        let geometry = Geometry::of_footer(&footer, &schema).map_err(|e| e.at(0))?;
        let schema = (schema, schema_name.to_owned());
        Ok(self.info(edition, schema, (footer, None), geometry, &tile, file))
    }

    /// The fragment with this schema and its name, and a footer and its position read from `file`, one
    /// generic tile of which is `tile`.
    fn info(
        &self,
        edition: Edition,
        (schema, schema_name): (Arc<Schema>, String),
        (footer, footer_position): (Footer, Option<FooterPosition>),
        geometry: Geometry,
        tile: &GenericTile,
        file: &dyn Blob,
    ) -> FragmentInfo {
        let slots = footer.slots;
        let read_from = hash(&(file.version(), self.schemas.content(&schema_name)));
        FragmentInfo {
            engine: self.engine.clone(),
            path: self.path.clone(),
            name: self.name.clone(),
            stored: OnceLock::new(),
            fields: StoredField::all(&schema, &slots, footer.dense),
            schema,
            schema_name,
            geometry,
            writer: Writer {
                fragment_version: slots.version,
                library_version: tile.version,
                encrypted: tile.encryption != Encryption::None,
                key: self.key.clone(),
            },
            footer,
            footer_position,
            metadata_size: file.len(),
            metadata_version: file.version(),
            read_from,
            edition,
            var_sums: (0..slots.fixed()).map(|_| OnceLock::new()).collect(),
        }
    }
}

/// The tiles of a fragment with this footer.
fn geometry_of(schema: &Schema, footer: &Footer, position: FooterPosition) -> Result<Geometry> {
    let geometry =
        Geometry::of_footer(footer, schema).map_err(|e| e.in_part("footer").at(position.offset))?;
    // A tile takes at least eight bytes: checks the number of tiles against the files before it sizes any
    // allocation.
    for (slot, &size) in footer.file_sizes.iter().enumerate() {
        if size > 0 && size / 8 < geometry.tile_num {
            return Err(Error::corrupt(format!(
                "{} tiles do not fit in a data file of {size} bytes (slot {slot})",
                geometry.tile_num
            ))
            .in_part("footer")
            .at(position.offset));
        }
    }
    Ok(geometry)
}

/// The last component of `path` as bytes.
pub fn file_name(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", |name| name.as_bytes())
}
