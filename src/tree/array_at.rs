//! An array at a time.

use super::metadata::metadata;
use crate::catalog::Array;
use crate::catalog::listing::SchemaFile;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::time::When;
use crate::describe::metadata::Pairs;
use crate::error::Result;
use crate::format::schema::Schema;
use std::path::PathBuf;
use std::sync::Arc;

/// An array, and what of it is asked for.
#[derive(Clone)]
pub struct ArrayAt {
    /// The array.
    pub array: Arc<Array>,
    /// The time, or the state.
    pub when: When,
}

impl ArrayAt {
    /// The array now.
    pub fn now(array: &Arc<Array>) -> ArrayAt {
        ArrayAt {
            array: array.clone(),
            when: When::Now,
        }
    }

    /// Whether it is a time or a state that a directory in `at/` shows.
    pub fn is_in_at(&self) -> bool {
        !matches!(self.when, When::Now) && self.array.engine.at().is_none()
    }

    /// The fragments and files that a reader sees.
    pub fn snapshot(&self) -> Result<Arc<Snapshot>> {
        self.array.snapshot_at(&self.when)
    }

    /// The file of the current schema.
    pub fn schema_file(&self) -> Result<SchemaFile> {
        self.array.schema_file(&*self.snapshot()?).cloned()
    }

    /// The current schema.
    pub fn schema(&self) -> Result<Arc<Schema>> {
        self.array.schema(&*self.snapshot()?)
    }

    /// What `read` finds, the second time if the first fails: the listing may be out of date, and name files
    /// that are gone.
    pub fn twice<T>(&self, read: impl Fn(&ArrayAt) -> Result<T>) -> Result<T> {
        read(self).or_else(|_| {
            self.array.look_again();
            read(self)
        })
    }

    /// The paths of the visible metadata files, oldest first.
    pub fn metadata_paths(&self) -> Result<Vec<PathBuf>> {
        let snapshot = self.snapshot()?;
        Ok(snapshot.metadata().map(|file| file.path.clone()).collect())
    }

    /// The metadata.
    pub fn metadata(&self) -> Result<Pairs> {
        metadata(
            &self.array.engine,
            &self.metadata_paths()?,
            self.array.key.as_ref(),
        )
    }
}
