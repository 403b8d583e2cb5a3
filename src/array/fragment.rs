//! A fragment: where its files lie, and what its metadata says.

use super::engine::{Engine, FragmentCell};
use super::field::{Field, Role, Writer};
use super::geometry::Geometry;
use super::schemas::Schemas;
use super::tile_list::{PrefixSums, Section, TileList};
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::{GenericTile, read_generic_tile_within};
use crate::format::enums::{ArrayType, Encryption};
use crate::format::fragment::footer::FooterPosition;
use crate::format::fragment::{Footer, FooterFront, LegacyMetadata, Slots};
use crate::format::name::{Part, TimestampedName, field_file};
use crate::format::range::Rect;
use crate::format::schema::Schema;
use crate::storage::{Blob, join};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

/// The name of every fragment's metadata file.
pub const METADATA_FILE: &str = "__fragment_metadata.tdb";

/// The most bytes of a footer: schemas of thousands of fields have footers of some hundred KiB.
const MAX_FOOTER: u64 = 16 << 20;

/// The most bytes of the metadata of versions 1 and 2, unfiltered: lists of a million tiles of eight fields. They are in memory as long as
/// the array is.
const MAX_LEGACY: u64 = 64 << 20;

/// A fragment directory, opened when something about it is asked.
pub struct Fragment {
    engine: Arc<Engine>,
    schemas: Arc<Schemas>,
    /// Its directory, relative to the source.
    pub path: PathBuf,
    /// Its directory's name, parsed.
    pub name: TimestampedName,
    key: Option<EncryptionKey>,
    opened: Arc<FragmentCell>,
}

/// What the metadata of a fragment says, in the form of its version.
pub enum FragmentMetadata {
    /// Versions 1 and 2.
    Legacy(Box<LegacyMetadata>),
    /// Version 3 and later.
    Footer(Box<Footer>, FooterPosition),
}

/// Which list of tiles; the number distinguishes them in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ListKind {
    TileOffsets = 0,
    VarOffsets = 1,
    VarSizes = 2,
    ValidityOffsets = 3,
}

/// An opened fragment.
pub struct FragmentInfo {
    /// Shared state.
    pub engine: Arc<Engine>,
    /// Its directory, relative to the source.
    pub path: PathBuf,
    /// Its directory's name, parsed.
    pub name: TimestampedName,
    /// The schema that it was written with.
    pub schema: Arc<Schema>,
    /// The file name of that schema.
    pub schema_name: String,
    /// Its metadata.
    pub metadata: FragmentMetadata,
    /// Whether cells are stored by position.
    pub dense: bool,
    /// Its tiles.
    pub geometry: Geometry,
    /// The numbering of its fields.
    pub slots: Slots,
    /// Its fields.
    pub fields: Vec<Field>,
    /// Who wrote it.
    pub writer: Writer,
    /// Bytes of the metadata file.
    pub metadata_size: u64,
    /// Which state of the metadata file it was read from.
    metadata_version: (u64, u64, u64),
    var_sums: Vec<OnceLock<Arc<PrefixSums>>>,
}

/// A file whose end is in memory: all that opening most fragments takes, in one read.
struct Tail<'a> {
    blob: &'a dyn Blob,
    start: u64,
    bytes: &'a [u8],
}

impl Tail<'_> {
    const SIZE: usize = 8192;

    fn new<'a>(blob: &'a dyn Blob, room: &'a mut [u8; Tail::SIZE]) -> Result<Tail<'a>> {
        let len = blob.len().min(Self::SIZE as u64);
        let start = blob.len() - len;
        let bytes = room.get_mut(..len as usize).unwrap_or_default();
        blob.read_at(start, bytes)?;
        Ok(Tail { blob, start, bytes })
    }
}

impl Blob for Tail<'_> {
    fn len(&self) -> u64 {
        self.blob.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let known = offset
            .checked_sub(self.start)
            .and_then(|from| usize::try_from(from).ok())
            .and_then(|from| self.bytes.get(from..)?.get(..out.len()));
        match known {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => self.blob.read_at(offset, out),
        }
    }

    fn display(&self) -> &str {
        self.blob.display()
    }
}

impl Fragment {
    /// A fragment directory at `path`. Reads nothing.
    pub fn new(
        engine: Arc<Engine>,
        schemas: Arc<Schemas>,
        path: PathBuf,
        name: TimestampedName,
        key: Option<EncryptionKey>,
    ) -> Self {
        Fragment {
            engine,
            schemas,
            path,
            name,
            key,
            opened: Arc::default(),
        }
    }

    /// Shared state.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Its array's key, where one was given.
    pub fn key(&self) -> Option<&EncryptionKey> {
        self.key.as_ref()
    }

    /// The path of the metadata file, relative to the source.
    pub fn metadata_path(&self) -> PathBuf {
        join(&self.path, Path::new(METADATA_FILE))
    }

    /// The path of the schema that it was written with, relative to the source.
    pub fn schema_path(&self, info: &FragmentInfo) -> PathBuf {
        self.schemas.path(&info.schema_name)
    }

    /// Reads the metadata, or finds it still in memory; a failure is not remembered.
    pub fn open(&self) -> Result<Arc<FragmentInfo>> {
        if let Some(info) = &*self.opened() {
            return Ok(info.clone());
        }
        let info = Arc::new(self.read_metadata()?);
        let mut opened = self.opened();
        if let Some(first) = &*opened {
            return Ok(first.clone());
        }
        *opened = Some(info.clone());
        drop(opened);
        self.engine.keep_fragment(&self.opened, info.memory());
        Ok(info)
    }

    /// The same for a look that does not count as use: very many fragments can be looked at without holding what they say in memory.
    pub fn look(&self) -> Result<Arc<FragmentInfo>> {
        let known = self.opened().clone();
        known.map_or_else(|| self.read_metadata().map(Arc::new), Ok)
    }

    fn opened(&self) -> MutexGuard<'_, Option<Arc<FragmentInfo>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_metadata(&self) -> Result<FragmentInfo> {
        self.read().map_err(|e| {
            let path = self.metadata_path();
            self.incomplete(e).in_file(self.engine.storage.display(&path))
        })
    }

    /// A missing file of a fragment that is there is damage; of one that has been vacuumed meanwhile, it is not.
    fn incomplete(&self, error: Error) -> Error {
        incomplete(&self.engine, &self.path, error)
    }

    fn read(&self) -> Result<FragmentInfo> {
        // Not among the files that are kept open: of very many fragments most are opened for a look at the footer.
        let file = self.engine.storage.open(&self.metadata_path())?;
        let mut room = [0; Tail::SIZE];
        let blob = Tail::new(&*file, &mut room)?;
        let key = self.key.as_ref();
        if self.name.name_version <= 2 {
            let schema_name = super::schemas::LEGACY_SCHEMA;
            let schema = self.schemas.get(schema_name)?;
            let (tile, body) = read_generic_tile_within(&blob, 0, key, MAX_LEGACY)?;
            let metadata =
                LegacyMetadata::parse(&body, &schema).map_err(|e| e.in_part("fragment metadata"))?;
            let info = self
                .legacy_info(schema, schema_name.to_owned(), metadata, &tile)
                .map_err(|e| e.at(0))?;
            return Ok(info.with_file(&*file));
        }
        let legacy_schema = match self.name.name_version {
            ..10 => Some(self.schemas.get(super::schemas::LEGACY_SCHEMA)?),
            _ => None,
        };
        let (position, bytes) = self.footer_bytes(&blob, legacy_schema.as_deref())?;
        let front = Footer::peek(&mut Cursor::with_base(&bytes, position.offset))?;
        let schema_name = match front.schema_name {
            Some(name) => String::from_utf8(name).map_err(|_| {
                Error::corrupt("the schema's name is not UTF-8")
                    .at(position.offset)
                    .in_part("footer")
            })?,
            None => super::schemas::LEGACY_SCHEMA.to_owned(),
        };
        let schema = match legacy_schema {
            Some(schema) => schema,
            None => self.schemas.get(&schema_name)?,
        };
        let footer = Footer::parse(&mut Cursor::with_base(&bytes, position.offset), &schema, true)
            .and_then(|footer| footer.check_sections(position.offset).map(|()| footer))
            .map_err(|e| e.at(position.offset))?;
        let first = GenericTile::read_header(&blob, footer.offsets.rtree, key)?;
        let info = self.footer_info(schema, schema_name, footer, position, &first)?;
        Ok(info.with_file(&*file))
    }

    /// The footer and where it lies. `schema` as [`Footer::locate`] takes it.
    fn footer_bytes(&self, blob: &dyn Blob, schema: Option<&Schema>) -> Result<(FooterPosition, Vec<u8>)> {
        let word = blob
            .len()
            .checked_sub(8)
            .ok_or_else(|| {
                Error::truncated(format!("a fragment metadata file of {} bytes", blob.len())).at(blob.len())
            })
            .and_then(|offset| {
                let mut word = [0; 8];
                blob.read_at(offset, &mut word).map(|()| word)
            })?;
        let position = Footer::locate(self.name.name_version, schema, blob.len(), word)?;
        if position.size > MAX_FOOTER {
            return Err(Error::limit(format!("a footer of {} bytes", position.size))
                .at(position.offset)
                .in_part("footer"));
        }
        let bytes = blob.read(position.offset, position.size)?;
        Ok((position, bytes))
    }

    /// What the footer says without a schema, which in an encrypted array takes the key: footers are in the clear. None below
    /// version 10, where it takes the schema to find the footer.
    pub fn clear_footer(&self) -> Result<Option<(FooterFront, FooterPosition)>> {
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

    fn writer(&self, fragment_version: u32, tile: &GenericTile) -> Writer {
        Writer {
            fragment_version,
            library_version: tile.version,
            encrypted: tile.encryption != Encryption::None,
            key: self.key.clone(),
        }
    }

    fn legacy_info(
        &self,
        schema: Arc<Schema>,
        schema_name: String,
        metadata: LegacyMetadata,
        tile: &GenericTile,
    ) -> Result<FragmentInfo> {
        // There is no flag: a fragment with coordinates is sparse, as are all of a sparse array.
        let coordinates = self.path.join("__coords.tdb");
        let dense = match self.engine.storage.metadata(&coordinates) {
            _ if schema.array_type == ArrayType::Sparse => false,
            Ok(_) => false,
            Err(e) if e.kind() == ErrorKind::NotFound => true,
            Err(e) => return Err(e),
        };
        let slots = metadata.slots(&schema);
        let geometry = match (dense, &metadata.non_empty_domain) {
            (true, Some(domain)) => Geometry::dense(&schema, domain)?,
            (true, None) => Geometry::new(0, 0, 0)?,
            (false, _) => {
                Geometry::sparse(metadata.mbrs.len(), schema.capacity, metadata.last_tile_cell_num)?
            }
        };
        let writer = self.writer(metadata.version, tile);
        Ok(self.info(
            schema,
            schema_name,
            FragmentMetadata::Legacy(Box::new(metadata)),
            dense,
            geometry,
            slots,
            writer,
        ))
    }

    fn footer_info(
        &self,
        schema: Arc<Schema>,
        schema_name: String,
        footer: Footer,
        position: FooterPosition,
        tile: &GenericTile,
    ) -> Result<FragmentInfo> {
        let geometry = match (footer.dense, &footer.non_empty_domain) {
            (true, Some(domain)) => Geometry::dense(&schema, domain),
            (true, None) => Geometry::new(0, 0, 0),
            (false, _) => {
                Geometry::sparse(footer.sparse_tile_num, schema.capacity, footer.last_tile_cell_num)
            }
        }
        .map_err(|e| e.in_part("footer").at(position.offset))?;
        // A tile takes eight bytes at the least, so files bear out the number of tiles before anything is sized by it.
        for (slot, &size) in footer.file_sizes.iter().enumerate() {
            if size > 0 && size / 8 < geometry.tile_num {
                return Err(Error::corrupt(format!(
                    "{} tiles in a data file of {size} bytes (slot {slot})",
                    geometry.tile_num
                ))
                .in_part("footer")
                .at(position.offset));
            }
        }
        let (dense, slots) = (footer.dense, footer.slots);
        let writer = self.writer(footer.version, tile);
        let metadata = FragmentMetadata::Footer(Box::new(footer), position);
        Ok(self.info(schema, schema_name, metadata, dense, geometry, slots, writer))
    }

    #[allow(clippy::too_many_arguments)]
    fn info(
        &self,
        schema: Arc<Schema>,
        schema_name: String,
        metadata: FragmentMetadata,
        dense: bool,
        geometry: Geometry,
        slots: Slots,
        writer: Writer,
    ) -> FragmentInfo {
        FragmentInfo {
            engine: self.engine.clone(),
            path: self.path.clone(),
            name: self.name.clone(),
            fields: Field::all(&schema, &slots, dense),
            schema,
            schema_name,
            metadata,
            dense,
            geometry,
            slots,
            writer,
            metadata_size: 0,
            metadata_version: (0, 0, 0),
            var_sums: (0..slots.fixed()).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl Drop for FragmentInfo {
    /// Nobody looks at it any more: its files need not be kept open.
    fn drop(&mut self) {
        self.engine.close_below(&self.path);
    }
}

impl FragmentInfo {
    /// Notes the metadata file that it was read from.
    fn with_file(mut self, file: &dyn Blob) -> Self {
        self.metadata_size = file.len();
        self.metadata_version = file.version();
        self
    }

    /// Bytes that it takes in memory, about.
    fn memory(&self) -> u64 {
        const BASE: u64 = 1024;
        const SLOT: u64 = 256;
        let lists = match &self.metadata {
            FragmentMetadata::Legacy(legacy) => {
                let lists = [
                    &legacy.tile_offsets,
                    &legacy.tile_var_offsets,
                    &legacy.tile_var_sizes,
                ];
                let entries: usize = lists.into_iter().flatten().map(Vec::len).sum();
                // Each tile has a bounding box and two cells.
                let tile = self.schema.dimensions.len().saturating_mul(4 * SLOT as usize / 8);
                let tiles = usize::try_from(self.geometry.tile_num).unwrap_or(usize::MAX);
                entries.saturating_mul(8).saturating_add(match self.dense {
                    true => 0,
                    false => tiles.saturating_mul(tile),
                })
            }
            FragmentMetadata::Footer(..) => 0,
        };
        let slots = self.var_sums.len().max(self.fields.len()) as u64;
        BASE.saturating_add(slots.saturating_mul(SLOT))
            .saturating_add(lists as u64)
    }

    /// Format version of the metadata.
    pub fn version(&self) -> u32 {
        match &self.metadata {
            FragmentMetadata::Legacy(legacy) => legacy.version,
            FragmentMetadata::Footer(footer, _) => footer.version,
        }
    }

    /// Bounding box of the cells.
    pub fn non_empty_domain(&self) -> Option<&Rect> {
        match &self.metadata {
            FragmentMetadata::Legacy(legacy) => legacy.non_empty_domain.as_ref(),
            FragmentMetadata::Footer(footer, _) => footer.non_empty_domain.as_ref(),
        }
    }

    /// The path of the metadata file, relative to the source.
    pub fn metadata_path(&self) -> PathBuf {
        join(&self.path, Path::new(METADATA_FILE))
    }

    /// Names the metadata file in an error about what it says.
    pub fn place(&self, error: Error) -> Error {
        error.in_file(self.engine.storage.display(&self.metadata_path()))
    }

    /// Bytes of one of a field's files as the metadata has it; 0 where it has none.
    pub fn file_size(&self, slot: usize, part: Part) -> u64 {
        let sizes: &[u64] = match (&self.metadata, part) {
            (FragmentMetadata::Legacy(legacy), Part::Fixed) => &legacy.file_sizes,
            (FragmentMetadata::Legacy(legacy), Part::Var) => &legacy.file_var_sizes,
            (FragmentMetadata::Legacy(_), Part::Validity) => &[],
            (FragmentMetadata::Footer(footer, _), Part::Fixed) => &footer.file_sizes,
            (FragmentMetadata::Footer(footer, _), Part::Var) => &footer.file_var_sizes,
            (FragmentMetadata::Footer(footer, _), Part::Validity) => &footer.file_validity_sizes,
        };
        sizes.get(slot).copied().unwrap_or(0)
    }

    /// Bytes of all files of fields as the metadata has it; None beyond 2^64.
    pub fn files_size(&self) -> Option<u64> {
        let (fixed, var, validity): (&[u64], &[u64], &[u64]) = match &self.metadata {
            FragmentMetadata::Legacy(legacy) => (&legacy.file_sizes, &legacy.file_var_sizes, &[]),
            FragmentMetadata::Footer(footer, _) => (
                &footer.file_sizes,
                &footer.file_var_sizes,
                &footer.file_validity_sizes,
            ),
        };
        fixed
            .iter()
            .chain(var)
            .chain(validity)
            .try_fold(0u64, |sum, size| sum.checked_add(*size))
    }

    /// Whether the fragment has values of `field`: a field that a write left out has no file.
    pub fn stores(&self, field: &Field) -> bool {
        self.geometry.tile_num == 0 || self.file_size(field.slot, Part::Fixed) > 0
    }

    /// The path of one of a field's files, relative to the source. `Corrupt` where the name would lead out of the fragment.
    pub fn file_path(&self, field: &Field, part: Part) -> Result<PathBuf> {
        let base = field.file_base();
        let internal = !matches!(field.role, Role::Attribute(_) | Role::Dimension(_));
        let index_name = field.index_name();
        let base: &[u8] = if internal { index_name.as_bytes() } else { &base };
        // The encoding of version 8 is for users' names; those of internal files are what they are.
        let version = if internal { 9 } else { self.name.name_version };
        let name = field_file(version, base, &index_name, part);
        let plain =
            !name.is_empty() && !name.contains(&b'/') && !name.contains(&0) && name != b".." && name != b".";
        if !plain {
            return Err(Error::corrupt(format!(
                "a field whose file would be called {:?}",
                String::from_utf8_lossy(&name)
            ))
            .at(0)
            .in_file(self.engine.storage.display(&self.path)));
        }
        Ok(self.path.join(OsString::from_vec(name)))
    }

    /// One of the lists of tiles of a slot.
    pub fn list(&self, slot: usize, kind: ListKind) -> Result<TileList> {
        let missing = || {
            Error::corrupt(format!(
                "the fragment's metadata has no list of {kind:?} for slot {slot}"
            ))
            .at(0)
            .in_file(self.engine.storage.display(&self.metadata_path()))
        };
        match &self.metadata {
            FragmentMetadata::Legacy(legacy) => {
                let lists = match kind {
                    ListKind::TileOffsets => &legacy.tile_offsets,
                    ListKind::VarOffsets => &legacy.tile_var_offsets,
                    ListKind::VarSizes => &legacy.tile_var_sizes,
                    ListKind::ValidityOffsets => return Err(missing()),
                };
                Ok(TileList::Memory(lists.get(slot).ok_or_else(missing)?.clone()))
            }
            FragmentMetadata::Footer(footer, _) => {
                let lists = match kind {
                    ListKind::TileOffsets => &footer.offsets.tile_offsets,
                    ListKind::VarOffsets => &footer.offsets.tile_var_offsets,
                    ListKind::VarSizes => &footer.offsets.tile_var_sizes,
                    ListKind::ValidityOffsets => &footer.offsets.tile_validity_offsets,
                };
                let offset = *lists.get(slot).ok_or_else(missing)?;
                Ok(TileList::Section(self.section_reader(offset)))
            }
        }
    }

    /// Running sums of the var sizes of a slot, with the list itself.
    pub fn var_sizes(&self, slot: usize) -> Result<(Arc<PrefixSums>, TileList)> {
        let list = self.list(slot, ListKind::VarSizes)?;
        let cell = self
            .var_sums
            .get(slot)
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("slot {slot}")))?;
        let sums = match cell.get() {
            Some(sums) => sums.clone(),
            None => {
                self.check_tiles(slot)?;
                let sums = Arc::new(PrefixSums::new(&list, self.geometry.tile_num)?);
                cell.get_or_init(|| sums).clone()
            }
        };
        Ok((sums, list))
    }

    /// Fails where there are very many tiles and the file of a slot is too small for them, whatever the metadata says its size is.
    fn check_tiles(&self, slot: usize) -> Result<()> {
        /// Fewer are counted before the file is looked at.
        const MANY: u64 = 1 << 20;
        let field = self.fields.iter().find(|field| field.slot == slot);
        if self.geometry.tile_num <= MANY {
            return Ok(());
        }
        let Some(field) = field else { return Ok(()) };
        let path = self.file_path(field, Part::Fixed)?;
        let size = self
            .engine
            .storage
            .metadata(&path)
            .map_err(|e| incomplete(&self.engine, &self.path, e))?
            .len;
        if size / 8 < self.geometry.tile_num {
            return Err(Error::corrupt(format!(
                "{} tiles in a data file of {size} bytes",
                self.geometry.tile_num
            ))
            .at(0)
            .in_file(self.engine.storage.display(&path)));
        }
        Ok(())
    }

    /// The section at `offset`, to be read by ranges.
    pub fn section_reader(&self, offset: u64) -> Section {
        Section::new(
            self.engine.clone(),
            self.metadata_path(),
            offset,
            self.writer.key.clone(),
            self.metadata_version,
        )
    }

    /// The body of a section of the metadata, decoded whole. None where `offset` is None. `LimitExceeded` for more than the cache allows to
    /// be decoded at once.
    pub fn section(&self, offset: Option<u64>) -> Result<Option<Vec<u8>>> {
        let Some(offset) = offset else { return Ok(None) };
        let blob = self.engine.open_immutable(&self.metadata_path())?;
        let tile = GenericTile::read_header(&*blob, offset, self.writer.key.as_ref())?;
        let check = self.engine.cache.check_size(tile.size);
        check.map_err(|e| e.at(offset.saturating_add(12)).in_file(blob.display()))?;
        Ok(Some(tile.decode_within(&*blob, tile.size)?))
    }
}

/// Makes a missing file an error in the data as long as the fragment's directory is there.
pub fn incomplete(engine: &Engine, fragment: &Path, error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound if engine.storage.metadata(fragment).is_ok() => {
            error.with_kind(ErrorKind::Missing).at(0)
        }
        _ => error,
    }
}

/// The last component of `path` as bytes.
pub fn file_name(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", |name| name.as_bytes())
}
