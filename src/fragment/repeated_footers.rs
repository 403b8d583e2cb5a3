//! Fragments' footers from consolidated metadata files. In an object store, reading one file replaces a
//! request per fragment.
//!
//! Specification:
//! <https://github.com/TileDB-Inc/TileDB/blob/main/format_spec/consolidated_fragment_metadata_file.md>

use super::generic_body::GenericFile;
use crate::bytes::{Bytes, Output};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::filter::EncryptionKey;
use crate::format::body::MAX_VALUE;
use crate::format::commits::parse_consolidated_metadata;
use crate::runtime::lock;
use crate::runtime::single_flight::SingleFlight;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The last component of a fragment's name, which older files store as an absolute URI.
pub fn directory_name(name: &[u8]) -> &[u8] {
    name.rsplit(|&b| b == b'/')
        .find(|component| !component.is_empty())
        .unwrap_or(name)
}

/// The repeated footers of one array. Only used if its storage is remote: local footers are read directly.
pub struct RepeatedFooters {
    engine: Arc<Engine>,
    key: Option<EncryptionKey>,
    state: Mutex<Inner>,
    reading: SingleFlight,
}

#[derive(Default)]
struct Inner {
    files: Vec<PathBuf>,
    /// The parsed files, once somebody has asked.
    index: Option<Arc<Index>>,
}

#[derive(Default)]
struct Index {
    bodies: Vec<GenericFile>,
    /// For each fragment's name, the index of the file's body and the range of the footer in it.
    footers: HashMap<Vec<u8>, (usize, Range<u64>)>,
}

impl RepeatedFooters {
    /// No footers until [`RepeatedFooters::set_files`].
    pub fn new(engine: Arc<Engine>, key: Option<EncryptionKey>) -> Self {
        RepeatedFooters {
            engine,
            key,
            state: Mutex::default(),
            reading: SingleFlight::default(),
        }
    }

    /// Sets the files to take footers from.
    pub fn set_files(&self, files: &[PathBuf]) {
        let mut state = lock(&self.state);
        if state.files != files {
            *state = Inner {
                files: files.to_vec(),
                index: None,
            };
        }
    }

    /// The footer of the fragment `name`; None if there is none, if its version does not repeat it
    /// faithfully, or if it cannot be read.
    pub fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        let index = self.index()?;
        let (body, range) = index.footers.get(name)?;
        let footer = Output::of(|out| index.bodies[*body].read(range.clone(), out));
        Some(footer.map_err(|e| log::warn!("{e}")).ok()?.into())
    }

    /// Whether there is a footer of the fragment `name`.
    pub fn has(&self, name: &[u8]) -> bool {
        self.index().is_some_and(|index| index.footers.contains_key(name))
    }

    fn index(&self) -> Option<Arc<Index>> {
        if !self.engine.storage.is_remote() {
            return None;
        }
        let files = lock(&self.state).files.clone();
        if files.is_empty() {
            return None;
        }
        let find = || lock(&self.state).index.clone();
        let index = self.reading.find_or_make(find, || self.read_all(&files));
        // Fragments have footers of their own.
        index.map_err(|e| log::info!("{e}")).ok()
    }

    fn read_all(&self, files: &[PathBuf]) -> Result<Arc<Index>> {
        let mut index = Index::default();
        for path in files {
            match self.read(path, &mut index) {
                // A failure that may pass must not be cached.
                Err(e) if e.is_transient() => return Err(e),
                // The file itself, when it is shown, reports the damage.
                Err(e) => log::info!("{e}"),
                Ok(()) => {}
            }
        }
        let index = Arc::new(index);
        let mut state = lock(&self.state);
        if state.files == files {
            state.index = Some(index.clone());
        }
        Ok(index)
    }

    fn read(&self, path: &Path, index: &mut Index) -> Result<()> {
        let body = GenericFile::open(&self.engine, path, self.key.as_ref(), true)?;
        let place = |e: Error| e.in_file(self.engine.storage.display(path));
        let footers = parse_consolidated_metadata(&body).map_err(place)?;
        let ends = footers.iter().skip(1).map(|next| next.offset);
        let ends = ends.chain([body.len()]);
        for (footer, end) in footers.iter().zip(ends) {
            if end - footer.offset <= MAX_VALUE {
                let place = (index.bodies.len(), footer.offset..end);
                index.footers.insert(directory_name(&footer.name).to_vec(), place);
            }
        }
        index.bodies.push(body);
        Ok(())
    }
}
