//! The metadata files of an array or group, merged, as `metadata.json` shows them.

use crate::describe::metadata::Pairs;
use crate::engine::Engine;
use crate::error::Result;
use crate::filter::EncryptionKey;
use crate::fragment::generic_body::GenericFile;
use std::path::PathBuf;
use std::sync::Arc;

/// Large files to keep open, so that deleting them does not affect readers. More are opened when read.
const MAX_OPEN_FILES: usize = 256;

/// The metadata in the files at `paths`, oldest first. Fails if one cannot be decoded.
pub fn metadata(engine: &Arc<Engine>, paths: &[PathBuf], key: Option<&EncryptionKey>) -> Result<Pairs> {
    let (mut pairs, mut large) = (Pairs::default(), 0);
    for path in paths {
        let file = GenericFile::open(engine, path, key, large < MAX_OPEN_FILES)?;
        if let GenericFile::Large(_) = file {
            large += 1;
        }
        pairs
            .replay(Box::new(file))
            .map_err(|e| e.at(0).in_part("metadata").in_file(engine.storage.display(path)))?;
    }
    Ok(pairs)
}
