//! The metadata of a fragment, and the paths of its files.

use super::field::{Role, StoredField, Writer};
use super::generic_body::{GenericBody, StoredList};
use super::geometry::Geometry;
use super::tile_list::{PrefixSums, TileList, TileListKey};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::field::{Field, Role as FieldRole, Stored};
use crate::format::fragment::Footer;
use crate::format::fragment::footer::FooterPosition;
use crate::format::name::{Part, TimestampedName, field_file};
use crate::format::range::Rect;
use crate::format::schema::Schema;
use crate::runtime::{get_or_make, hash, lock};
use crate::storage::{Blob, join};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The name of a fragment's metadata file.
pub const METADATA_FILE: &str = "__fragment_metadata.tdb";

/// A fragment whose metadata is in memory.
pub struct FragmentInfo {
    /// Shared state.
    pub engine: Arc<Engine>,
    /// The directory, relative to the source.
    pub path: PathBuf,
    /// The directory's name, parsed.
    pub name: TimestampedName,
    /// The schema that it was written with.
    pub schema: Arc<Schema>,
    /// The file name of that schema.
    pub schema_name: String,
    /// The footer of its metadata.
    pub footer: Footer,
    /// Where the footer lies in the metadata file; None in versions 1 and 2.
    pub footer_position: Option<FooterPosition>,
    /// The tiles.
    pub geometry: Geometry,
    /// The fields.
    pub fields: Vec<StoredField>,
    /// The writer.
    pub writer: Writer,
    /// Bytes of the metadata file.
    pub metadata_size: u64,
    /// The state of the metadata file that it was read from.
    pub(super) metadata_version: (u64, u64, u64),
    /// A hash of that state and of the schema: what chunks decode to depends on both.
    pub(super) read_from: u64,
    /// The edition of the files.
    pub(super) edition: Edition,
    pub(super) var_sums: Vec<OnceLock<Arc<PrefixSums>>>,
    /// The indexes of the fields that it stores.
    pub(super) stored: OnceLock<Vec<usize>>,
}

/// An edition of the files of a fragment. There is more than one if somebody has changed a file: what is left
/// to read of the metadata is found by what was read before, so that all of it has to be of one edition.
#[derive(Debug, Clone, Default)]
pub struct Edition {
    changes: Arc<Changes>,
    /// How often a file was found changed before this edition was read.
    before: u64,
}

/// What is known of changes of a fragment's files.
#[derive(Debug, Default)]
struct Changes {
    /// How often a file was found changed.
    count: AtomicU64,
    /// The state of each data file when it was opened last, as a hash.
    files: Mutex<HashMap<(usize, Part), u64>>,
}

impl Edition {
    /// The edition that is read now.
    #[must_use]
    pub fn anew(&self) -> Edition {
        Edition {
            changes: self.changes.clone(),
            before: self.changes(),
        }
    }

    /// Whether it was read after so many changes.
    pub(super) fn is_after(&self, changes: u64) -> bool {
        self.before == changes
    }

    /// Whether no file was found changed since.
    pub fn is_valid(&self) -> bool {
        self.changes() == self.before
    }

    /// How often a file was found changed.
    pub fn changes(&self) -> u64 {
        self.changes.count.load(Ordering::Acquire)
    }

    /// Notes the state of a data file that was opened. The edition ends if it had another before.
    pub(super) fn meet(&self, engine: &Engine, slot: usize, part: Part, version: (u64, u64, u64)) {
        let version = hash(&version);
        let before = lock(&self.changes.files).insert((slot, part), version);
        if before.is_some_and(|before| before != version) {
            self.end(engine);
        }
    }

    /// `Changed`, and the end of the edition, if the metadata file has another state than when it was read.
    pub(super) fn check(&self, engine: &Engine, file: &dyn Blob, read: (u64, u64, u64)) -> Result<()> {
        if file.version() == read {
            return Ok(());
        }
        self.end(engine);
        Err(Error::changed())
    }

    /// Remembers that a file has changed since.
    pub fn end(&self, engine: &Engine) {
        let (before, after) = (self.before, self.before + 1);
        let count = &self.changes.count;
        let ended = count.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire);
        // Another may have said so. The files that were opened are forgotten: if several were replaced, the
        // next edition has all of them.
        if ended.is_ok() {
            lock(&self.changes.files).clear();
        }
        engine.has_changed_fragments.store(true, Ordering::Release);
    }
}

impl Drop for FragmentInfo {
    /// Nobody needs the files of the fragment any more.
    fn drop(&mut self) {
        self.engine.close_below(&self.path);
    }
}

impl FragmentInfo {
    /// Approximate size in memory, in bytes.
    pub(super) fn memory(&self) -> u64 {
        const BASE_MEMORY: u64 = 1024;
        const SLOT_MEMORY: u64 = 256;
        let slots = self.var_sums.len().max(self.fields.len()) as u64;
        let mut memory = BASE_MEMORY + slots * SLOT_MEMORY;
        if let Some(inline) = &self.footer.inline {
            let lists = [
                &inline.tile_offsets,
                &inline.tile_var_offsets,
                &inline.tile_var_sizes,
            ];
            let entries: usize = lists.into_iter().flatten().map(Vec::len).sum();
            memory += 8 * entries as u64 + inline.mbrs.body.len() as u64;
        }
        memory
    }

    /// Format version of the metadata.
    pub fn version(&self) -> u32 {
        self.footer.version
    }

    /// Bounding box of the cells.
    pub fn non_empty_domain(&self) -> Option<&Rect> {
        self.footer.non_empty_domain.as_ref()
    }

    /// The indexes of the fields that it stores.
    pub fn stored(&self) -> &[usize] {
        self.stored.get_or_init(|| {
            let fields = self.fields.iter().enumerate();
            let stored = fields.filter(|(_, field)| self.stores(field));
            stored.map(|(index, _)| index).collect()
        })
    }

    /// The field of attribute `index` of its schema.
    pub fn attribute(&self, index: usize) -> Option<&StoredField> {
        // Attributes come first, in their order.
        let field = self.fields.get(index);
        field.filter(|field| field.role == Role::Attribute(index))
    }

    /// The field of dimension `index`, in files of its own or zipped. None in dense fragments.
    pub fn dimension(&self, index: usize) -> Option<&StoredField> {
        let mut others = self.fields.iter().skip(self.schema.attributes.len());
        others.find(|field| [Role::Dimension(index), Role::ZippedDimension(index)].contains(&field.role))
    }

    /// What the fragment has of a field of the array.
    pub fn stored_as(&self, wanted: &Field) -> Stored<&StoredField> {
        let found = match wanted.role {
            FieldRole::Dimension(i) => self.dimension(i),
            FieldRole::Attribute(_) => {
                let index = self.schema.attribute_index(&wanted.name);
                index.and_then(|index| self.attribute(index))
            }
        };
        let found = found.filter(|found| self.stores(found));
        Stored::of(found.map(|found| (found, found.form())), wanted.form())
    }

    /// The path of the metadata file, relative to the source.
    pub fn metadata_path(&self) -> PathBuf {
        join(&self.path, Path::new(METADATA_FILE))
    }

    /// Adds the metadata file to an error.
    pub fn place(&self, error: Error) -> Error {
        error.in_file(self.engine.storage.display(&self.metadata_path()))
    }

    /// The size of one of a field's files by the metadata, in bytes; 0 if there is no such file.
    pub fn file_size(&self, slot: usize, part: Part) -> u64 {
        let sizes = match part {
            // Every field has a file of this kind.
            Part::Fixed => return self.footer.file_sizes[slot],
            Part::Var => &self.footer.file_var_sizes,
            Part::Validity => &self.footer.file_validity_sizes,
        };
        sizes.get(slot).copied().unwrap_or(0)
    }

    /// Whether the fragment has values of `field`. A write may leave out fields; they have no file.
    pub fn stores(&self, field: &StoredField) -> bool {
        self.geometry.tile_num == 0 || self.file_size(field.slot, Part::Fixed) > 0
    }

    /// The path of one of a field's files, relative to the source. `Corrupt` if the name is no plain file
    /// name.
    pub fn file_path(&self, field: &StoredField, part: Part) -> Result<PathBuf> {
        let internal = !matches!(field.role, Role::Attribute(_) | Role::Dimension(_));
        // Version 8 encodes names of fields, but not those of internal files.
        let version = if internal { 9 } else { self.name.name_version };
        let name = field_file(version, &field.file_base(), &field.index_name(), part);
        let plain =
            !name.is_empty() && !name.contains(&b'/') && !name.contains(&0) && name != b".." && name != b".";
        if !plain {
            return Err(Error::corrupt(format!(
                "the field's file would be called {:?}, which is not a plain file name",
                String::from_utf8_lossy(&name)
            ))
            .at(0)
            .in_file(self.engine.storage.display(&self.path)));
        }
        Ok(self.path.join(OsString::from_vec(name)))
    }

    /// A list of a slot. Its file stays open if `hold` is true, unless too many do.
    pub fn list(&self, slot: usize, list: TileListKey, hold: bool) -> Result<Arc<dyn TileList>> {
        if let Some(numbers) = self.inline_list(list, slot) {
            return Ok(Arc::new(numbers.clone()));
        }
        let offset = self.list_offset(list, slot).ok_or_else(|| {
            let what = list.name();
            self.place(Error::corrupt(format!("the fragment's metadata has no {what} for slot {slot}")).at(0))
        })?;
        let mut body = self.generic_body(offset);
        if hold && self.engine.may_hold() {
            body = body.hold().map_err(|e| self.engine.incomplete(&self.path, e))?;
        }
        Ok(Arc::new(StoredList::new(body)))
    }

    /// The var sizes of a slot: running sums and the list.
    pub fn var_sizes(&self, slot: usize, hold: bool) -> Result<(Arc<PrefixSums>, Arc<dyn TileList>)> {
        let list = self.list(slot, TileListKey::TileVarSizes, hold)?;
        let sums = get_or_make(&self.var_sums[slot], || {
            self.check_tiles(slot)?;
            PrefixSums::new(&*list, self.geometry.tile_num).map(Arc::new)
        });
        Ok((sums?.clone(), list))
    }

    /// Fails if there are very many tiles and the actual file of a slot is too small for them, whatever size
    /// the metadata gives.
    fn check_tiles(&self, slot: usize) -> Result<()> {
        /// Only larger numbers of tiles are worth a look at the file.
        const MAX_UNCHECKED_TILES: u64 = 1 << 20;
        if self.geometry.tile_num <= MAX_UNCHECKED_TILES {
            return Ok(());
        }
        let field = self.fields.iter().find(|field| field.slot == slot);
        let Some(field) = field else { return Ok(()) };
        let path = self.file_path(field, Part::Fixed)?;
        let size = self
            .engine
            .storage
            .metadata(&path)
            .map_err(|e| self.engine.incomplete(&self.path, e))?
            .len;
        if size / 8 < self.geometry.tile_num {
            return Err(Error::corrupt(format!(
                "{} tiles do not fit in a data file of {size} bytes",
                self.geometry.tile_num
            ))
            .at(0)
            .in_file(self.engine.storage.display(&path)));
        }
        Ok(())
    }

    /// The generic tile at `offset` of the metadata file, for reads of ranges.
    pub fn generic_body(&self, offset: u64) -> GenericBody {
        GenericBody::new(
            self.engine.clone(),
            self.metadata_path(),
            offset,
            self.writer.key.clone(),
            self.metadata_version,
            self.edition.clone(),
        )
    }
}
