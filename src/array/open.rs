//! An array, opened.

use super::engine::Engine;
use super::fragment::Fragment;
use super::listing::{ArrayListing, SchemaFile, now, stamp};
use super::schemas::{SCHEMA_DIRECTORY, Schemas};
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::read_generic_tile;
use crate::format::enumeration::Enumeration;
use crate::format::enums::ArrayType;
use crate::format::metadata::{MetadataEntry, parse_metadata};
use crate::format::schema::Schema;
use crate::storage::Blob;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a listing is taken as it is, without a look at the directories.
const TRUSTED: Duration = Duration::from_millis(100);

/// Directories that changed this recently may change again without their modification time showing it, in milliseconds.
const RACY: u64 = 2000;

/// An array.
pub struct Array {
    /// Shared state.
    pub engine: Arc<Engine>,
    /// Its directory, relative to the source.
    pub path: PathBuf,
    /// Its schemas.
    pub schemas: Arc<Schemas>,
    /// Its key, where one was given.
    pub key: Option<EncryptionKey>,
    listing: Mutex<Option<(Instant, Arc<ArrayListing>)>>,
    /// By path; kept across listings so that what was read of a fragment is read once.
    fragments: Mutex<HashMap<PathBuf, Arc<Fragment>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Array {
    /// The array at `path`. Reads nothing.
    pub fn new(engine: Arc<Engine>, path: PathBuf) -> Self {
        let key = engine.key_for(&path).cloned();
        let schemas = Arc::new(Schemas::new(engine.clone(), path.clone(), key.clone()));
        Array {
            engine,
            path,
            schemas,
            key,
            listing: Mutex::default(),
            fragments: Mutex::default(),
        }
    }

    /// What its directory holds; at most a tenth of a second old.
    pub fn listing(&self) -> Result<Arc<ArrayListing>> {
        let mut known = lock(&self.listing);
        if let Some((checked, listing)) = &mut *known {
            if checked.elapsed() < TRUSTED {
                return Ok(listing.clone());
            }
            let (current, newest) = stamp(&self.engine, &self.path)?;
            if current == listing.stamp && newest.saturating_add(RACY) < listing.read_at {
                *checked = Instant::now();
                return Ok(listing.clone());
            }
        }
        let listing = Arc::new(self.read_listing()?);
        *known = Some((Instant::now(), listing.clone()));
        Ok(listing)
    }

    fn read_listing(&self) -> Result<ArrayListing> {
        let mut before = std::mem::take(&mut *lock(&self.fragments));
        let mut after = HashMap::new();
        let listing = ArrayListing::read(
            &self.engine,
            &self.path,
            |schemas| {
                let latest = ArrayListing::latest_schema(schemas, now());
                latest
                    .and_then(|file| self.schemas.get(&file.name).ok())
                    .is_some_and(|schema| schema.array_type == ArrayType::Sparse)
            },
            |path, _, parsed| {
                let fragment = before.remove(&path).unwrap_or_else(|| {
                    let (engine, schemas) = (self.engine.clone(), self.schemas.clone());
                    Arc::new(Fragment::new(
                        engine,
                        schemas,
                        path.clone(),
                        parsed,
                        self.key.clone(),
                    ))
                });
                after.insert(path, fragment.clone());
                fragment
            },
        );
        *lock(&self.fragments) = after;
        listing
    }

    /// The file of the schema that a reader opening the array now would get.
    pub fn latest_schema_file(&self) -> Result<SchemaFile> {
        let listing = self.listing()?;
        ArrayListing::latest_schema(&listing.schemas, now())
            .cloned()
            .ok_or_else(|| {
                Error::corrupt("the array has no schema")
                    .at(0)
                    .in_file(self.engine.storage.display(&self.path))
            })
    }

    /// That schema.
    pub fn latest_schema(&self) -> Result<Arc<Schema>> {
        self.schemas.get(&self.latest_schema_file()?.name)
    }

    /// The records of all metadata files in force, file by file, oldest first.
    pub fn metadata(&self) -> Result<Vec<Vec<MetadataEntry>>> {
        let listing = self.listing()?;
        listing
            .metadata
            .iter()
            .map(|file| read_metadata(&self.engine, &file.path, self.key.as_ref()))
            .collect()
    }

    /// The enumeration stored in `file`, one of those that the schema names.
    pub fn enumeration(&self, file: &[u8]) -> Result<Enumeration> {
        let directory = self.path.join(SCHEMA_DIRECTORY).join("__enumerations");
        let name = std::str::from_utf8(file)
            .ok()
            .filter(|name| !name.is_empty() && !name.contains('/') && *name != "..")
            .ok_or_else(|| {
                Error::corrupt(format!(
                    "an enumeration in a file called {:?}",
                    file.escape_ascii().to_string()
                ))
                .at(0)
                .in_file(self.engine.storage.display(&directory))
            })?;
        let path = directory.join(name);
        let (blob, body) = self.generic_file(&path).map_err(|e| match e.kind() {
            // The schema names it: it is the array that is incomplete.
            ErrorKind::NotFound => e.with_kind(ErrorKind::Missing).at(0),
            _ => e,
        })?;
        Enumeration::parse(&body).map_err(|e| e.in_part("enumeration").in_file(blob.display()))
    }

    /// The body of a file that is one generic tile, with the file.
    pub fn generic_file(&self, path: &Path) -> Result<(Arc<dyn Blob>, Vec<u8>)> {
        let blob = self.engine.storage.open(path)?;
        let (_, body) = read_generic_tile(&*blob, 0, self.key.as_ref())?;
        Ok((blob, body))
    }
}

/// The records of one metadata file of an array or group.
pub fn read_metadata(
    engine: &Engine,
    path: &Path,
    key: Option<&EncryptionKey>,
) -> Result<Vec<MetadataEntry>> {
    let blob = engine.storage.open(path)?;
    let (_, body) = read_generic_tile(&*blob, 0, key)?;
    parse_metadata(&body).map_err(|e| e.in_part("metadata").in_file(blob.display()))
}
