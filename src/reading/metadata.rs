//! The metadata of arrays and groups: key-value pairs.

use super::values::{Value, of_bytes};
use crate::bytes::{Bytes, Output};
use crate::engine::Engine;
use crate::error::Result;
use crate::filter::EncryptionKey;
use crate::format::datatype::Datatype;
use crate::format::metadata::each_record;
use crate::fragment::generic_body::GenericFile;
use crate::query::View;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The memory of a record besides the bytes of key and value: of both, and of their places on the heap.
const RECORD_BYTES: u64 = 96;

/// The metadata of an array or group: values by their keys, which are mostly UTF-8.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObjectMetadata(BTreeMap<Vec<u8>, MetadataValue>);

/// A value of [`ObjectMetadata`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MetadataValue {
    /// Type of its elements.
    pub datatype: Datatype,
    /// Its elements as stored, little-endian, one after the other.
    pub bytes: Vec<u8>,
}

impl ObjectMetadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.0.get(key.as_bytes())
    }

    /// All keys with their values, in the order of the keys' bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &MetadataValue)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// What is left after the records of the files at `paths`, oldest first, were replayed.
    pub(super) fn read<'a>(
        engine: &Arc<Engine>,
        paths: impl Iterator<Item = &'a Path>,
        key: Option<&EncryptionKey>,
    ) -> Result<ObjectMetadata> {
        let (mut values, mut memory) = (BTreeMap::new(), 0);
        for path in paths {
            let file = GenericFile::open(engine, path, key, false)?;
            let replayed = each_record(&file, |record| {
                let value = match record.value {
                    None => values.remove(&record.key),
                    Some((datatype, _, range)) => {
                        memory += RECORD_BYTES + range.end - range.start + record.key.len() as u64;
                        engine.cache.check_size(memory)?;
                        let bytes = Output::of(|out| file.read(range, out))?.into();
                        values.insert(record.key.clone(), MetadataValue { datatype, bytes })
                    }
                };
                if let Some(before) = value {
                    memory -= RECORD_BYTES + (before.bytes.len() + record.key.len()) as u64;
                }
                Ok(())
            });
            replayed.map_err(|e| e.at(0).in_file(engine.storage.display(path)))?;
        }
        Ok(ObjectMetadata(values))
    }
}

impl MetadataValue {
    /// The value as text, in the encoding of its type; UTF-8 if that is no text. None if it is none.
    pub fn text(&self) -> Option<String> {
        self.datatype.text(&self.bytes)
    }

    /// The value as numbers; None if its type does not hold `T`.
    pub fn numbers<T: Value>(&self) -> Option<Vec<T>> {
        T::holds(self.datatype).then(|| of_bytes(&self.bytes).collect())
    }
}

impl View {
    /// The metadata of the array in the view's range of time.
    ///
    /// ```
    /// use tiledbfs::{Source, SourceOptions, TimeRange};
    ///
    /// let source = Source::open("tests/data/sample", &SourceOptions::default())?;
    /// let view = source.array("weather").at(TimeRange::ALL).open()?;
    /// let metadata = view.metadata()?;
    /// let title = metadata.get("title").and_then(|value| value.text());
    /// assert_eq!(title.as_deref(), Some("Made-up weather of a year at six stations"));
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if it takes more memory than the cache allows; fails if a file of it cannot be read.
    pub fn metadata(&self) -> Result<ObjectMetadata> {
        let array = self.array();
        let paths = self.snapshot().metadata().map(|file| &*file.path);
        ObjectMetadata::read(&array.engine, paths, array.key.as_ref())
    }
}
