//! The schemas of an array, each parsed once.

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::read_generic_tile_within;
use crate::format::predecessor::Predecessor;
use crate::format::schema::Schema;
use crate::runtime::{hash, lock};
use crate::storage::{Blob, RECHECK_AFTER};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The file in the array's directory with its schema before version 10.
pub const LEGACY_SCHEMA: &str = "__array_schema.tdb";

/// The directory of schemas from version 10 on.
pub const SCHEMA_DIRECTORY: &str = "__schema";

/// The most bytes of a schema, unfiltered: enough for 100,000 attributes. It stays in memory as long as the
/// array.
const MAX_SCHEMA: u64 = 4 << 20;

/// A schema, and the state of the file that it was parsed from: an array may be deleted and created anew.
struct ParsedSchema {
    schema: Arc<Schema>,
    /// A hash of what was parsed.
    content: u64,
    state: (u64, u64, u64),
    checked: Instant,
}

/// By file name.
type Parsed = HashMap<String, ParsedSchema>;

/// The schemas of one array by file name.
pub struct Schemas {
    engine: Arc<Engine>,
    array: PathBuf,
    key: Option<EncryptionKey>,
    parsed: Mutex<Parsed>,
}

impl Schemas {
    /// The schemas of the array at `array`.
    pub fn new(engine: Arc<Engine>, array: PathBuf, key: Option<EncryptionKey>) -> Self {
        Schemas {
            engine,
            array,
            key,
            parsed: Mutex::default(),
        }
    }

    /// The path of a schema's file, relative to the source.
    pub fn path(&self, name: &str) -> PathBuf {
        if name == LEGACY_SCHEMA {
            self.array.join(name)
        } else {
            self.array.join(SCHEMA_DIRECTORY).join(name)
        }
    }

    /// The schema in the file `name`. `NotFound` if there is none; callers that follow a reference change
    /// that error.
    pub fn get(&self, name: &str) -> Result<Arc<Schema>> {
        if let Some(known) = lock(&self.parsed).get(name)
            && known.checked.elapsed() < RECHECK_AFTER
        {
            return Ok(known.schema.clone());
        }
        if Path::new(name).components().count() != 1 || name.contains('/') || name == ".." {
            return Err(Error::corrupt(format!(
                "{name:?} is not the name of a schema file"
            )));
        }
        let path = self.path(name);
        let checked = Instant::now();
        let metadata = || self.engine.storage.metadata(&path);
        // What refers to the schema may have been listed later than the schemas.
        let metadata = match path.parent() {
            Some(directory) if name != LEGACY_SCHEMA => self.engine.read_in(directory, metadata),
            _ => metadata(),
        };
        let state = metadata?.version;
        if let Some(known) = lock(&self.parsed).get_mut(name)
            && known.state == state
        {
            known.checked = checked;
            return Ok(known.schema.clone());
        }
        let blob = self.engine.storage.open(&path)?;
        let parse = || {
            let (_, body) = read_generic_tile_within(&*blob, 0, self.key.as_ref(), MAX_SCHEMA)?;
            let schema = Schema::parse(&body).map_err(|e| e.in_part("schema").in_file(blob.display()))?;
            Ok((Arc::new(schema), hash(&body)))
        };
        let parsed = parse().map_err(|e| predecessor(&*blob, name).unwrap_or(e));
        let (schema, content) = parsed.map_err(|e| self.engine.incomplete(&path, e))?;
        let known = ParsedSchema {
            schema: schema.clone(),
            content,
            state,
            checked,
        };
        lock(&self.parsed).insert(name.to_owned(), known);
        Ok(schema)
    }

    /// A hash of the schema in the file `name` as it was read last; None if it was not.
    pub fn content(&self, name: &str) -> Option<u64> {
        lock(&self.parsed).get(name).map(|known| known.content)
    }

    /// A number for the state of the schema in the file `name`; None if it cannot be read.
    pub fn state(&self, name: &str) -> Option<u64> {
        self.get(name).ok()?;
        Some(hash(&lock(&self.parsed).get(name)?.state))
    }

    /// Whether the array has a format from before versions were numbered, of which nothing can be read.
    pub fn are_of_predecessor(&self) -> bool {
        let schema = self.get(LEGACY_SCHEMA);
        // An error about a numbered version has a part of the schema.
        schema.is_err_and(|e| e.kind() == ErrorKind::UnsupportedVersion && e.part().is_none())
    }
}

/// An `Unsupported` error that names the program that wrote the schema in `blob`, called `name`, if it is
/// from before versions were numbered.
fn predecessor(blob: &dyn Blob, name: &str) -> Option<Error> {
    let head = blob.read(0, blob.len().min(Predecessor::HEAD_SIZE as u64)).ok()?;
    let writer = Predecessor::of(&head, blob.len()).filter(|_| name == LEGACY_SCHEMA)?;
    let message = format!("arrays of {} are not supported", writer.name());
    let error = Error::new(ErrorKind::UnsupportedVersion, message);
    Some(error.at(0).in_file(blob.display()))
}
