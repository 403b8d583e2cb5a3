//! What a view is of: found from listings and schemas, before a view is built.

use super::DimRange;
use super::labels::AxisLabel;
use crate::calendar::now;
use crate::catalog::Array;
use crate::catalog::listing::SchemaFile;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::time::When;
use crate::error::{Error, ErrorKind, Result};
use crate::format::enums::ArrayType;
use crate::format::schema::Schema;
use crate::fragment::schemas::LEGACY_SCHEMA;
use crate::runtime::hash;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a file of a fragment had been found changed, by the fragments' indexes, oldest first; those of
/// which none had are left out.
#[derive(Clone, Default, PartialEq, Hash)]
pub(super) struct Changes(Vec<(usize, u64)>);

impl Changes {
    /// Those of fragment number `index`.
    pub(super) fn of(&self, index: usize) -> u64 {
        let known = self.0.binary_search_by_key(&index, |(index, _)| *index);
        known.map_or(0, |place| self.0[place].1)
    }
}

/// An array at a time, and which of its cells.
#[derive(Clone)]
pub(crate) struct Selection {
    pub(super) array: Arc<Array>,
    pub(super) snapshot: Arc<Snapshot>,
    /// The time range or the pinned state that was asked for.
    pub(super) when: When,
    /// The schema in force, and its file.
    pub(super) schema: Arc<Schema>,
    pub(super) schema_file: SchemaFile,
    /// The labels.
    pub(super) labels: Arc<[AxisLabel]>,
    /// The cells in these ranges; None: in the whole domain.
    pub(super) subarray: Option<Vec<DimRange>>,
    /// Only so many of the first cells, in a sparse view.
    pub(super) most: Option<u64>,
    /// Indexes of the fragments, oldest first, whose cells are known not to be in global order.
    pub(super) unsorted: Vec<usize>,
    /// What was known of changes of files.
    pub(super) changes: Changes,
    /// Why it is unknown which fragments are seen; None if it is known.
    pub(super) incomplete: Option<Error>,
    state: u64,
}

impl Selection {
    /// What a reader sees of `array` at `when`. Reads only file names and schemas.
    pub(crate) fn new(array: Arc<Array>, when: When) -> Result<Selection> {
        Selection::with_labels(array, when, AxisLabel::all)
    }

    /// [`Selection::new`] with the dimension labels that `labels` finds.
    pub(super) fn with_labels(
        array: Arc<Array>,
        when: When,
        labels: impl FnOnce(&Array, &When, &Schema) -> Arc<[AxisLabel]>,
    ) -> Result<Selection> {
        let snapshot = array.snapshot_at(&when)?;
        let schema_file = array.schema_file(&snapshot)?.clone();
        let schema = array.schemas.get(&schema_file.name)?;
        if snapshot.sparse != (schema.array_type == ArrayType::Sparse) {
            // Nobody knows which fragments count.
            let message = "the schema could not be read a moment ago";
            let schema_path = array.schemas.path(&schema_file.name);
            let error = Error::new(ErrorKind::Io(libc::EIO), message);
            return Err(error.in_file(array.engine.storage.display(&schema_path)));
        }
        let labels = labels(&array, &when, &schema);
        let whole = Selection {
            unsorted: Vec::new(),
            changes: Changes::default(),
            incomplete: None,
            state: 0,
            subarray: None,
            most: None,
            array,
            snapshot,
            when,
            schema,
            schema_file,
            labels,
        };
        Ok(whole.into_part(None, None))
    }

    /// The cells in `subarray` (None: the whole domain) of the same array at the same time; if `most` is
    /// given, only so many of the first ones. `subarray` has one range per dimension, in the schema's order,
    /// already checked against the domain.
    pub(crate) fn part(&self, subarray: Option<Vec<DimRange>>, most: Option<u64>) -> Selection {
        self.clone().into_part(subarray, most)
    }

    fn into_part(self, subarray: Option<Vec<DimRange>>, most: Option<u64>) -> Selection {
        let mut part = Selection {
            incomplete: self.snapshot.check_complete(now()).err(),
            unsorted: self.known_unsorted(),
            changes: self.known_changes(),
            subarray,
            most,
            ..self
        };
        part.state = part.hash();
        part
    }

    fn known_unsorted(&self) -> Vec<usize> {
        let engine = &self.array.engine;
        if engine.disorder.is_empty() {
            return Vec::new();
        }
        let fragments = self.snapshot.fragments().enumerate();
        let unsorted = fragments.filter(|(_, entry)| engine.disorder.is_known(engine, &entry.fragment.path));
        unsorted.map(|(index, _)| index).collect()
    }

    fn known_changes(&self) -> Changes {
        if !self.array.engine.has_changed_fragments.load(Ordering::Acquire) {
            return Changes::default();
        }
        let fragments = self.snapshot.fragments().enumerate();
        let changes = fragments.map(|(index, entry)| (index, entry.fragment.changes()));
        Changes(changes.filter(|(_, changes)| *changes > 0).collect())
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.schema_file.name.hash(&mut hasher);
        if self.schema_file.name == LEGACY_SCHEMA {
            // An array that is made again has another schema of this name.
            self.array.schemas.content(LEGACY_SCHEMA).hash(&mut hasher);
        }
        self.snapshot.digest().hash(&mut hasher);
        // The present ends when it is looked at, which counts only where that cuts a fragment: what else
        // comes with time is in the digest.
        match self.when.times() {
            Some(times) if times.end < u64::MAX => self.snapshot.times.hash(&mut hasher),
            _ if self.snapshot.is_cut => self.snapshot.times.hash(&mut hasher),
            Some(times) => times.start.hash(&mut hasher),
            None => {}
        }
        (self.subarray.as_deref(), self.most).hash(&mut hasher);
        // Two pins may differ in labels alone that are not shown.
        if let When::Pinned(pinned) = &self.when {
            pinned.pin.hash(&mut hasher);
        }
        (&self.unsorted, &self.changes).hash(&mut hasher);
        let state = hash(&(hasher.finish(), self.incomplete.is_some()));
        match self.labels.is_empty() {
            true => state,
            false => hash(&(state, &*self.labels)),
        }
    }

    /// Whether the same would be selected now; false also where only selecting it can tell.
    pub(super) fn is_current(&self) -> bool {
        if !self.labels.is_empty() || self.incomplete.is_some() {
            return false;
        }
        let snapshot = self.array.snapshot_at(&self.when);
        let is_seen = snapshot.is_ok_and(|snapshot| Arc::ptr_eq(&snapshot, &self.snapshot));
        let schema = || self.array.schemas.get(&self.schema_file.name);
        is_seen
            && schema().is_ok_and(|schema| Arc::ptr_eq(&schema, &self.schema))
            && self.snapshot.check_complete(now()).is_ok()
            && self.unsorted == self.known_unsorted()
            && self.changes == self.known_changes()
    }

    /// The array.
    pub(crate) fn array(&self) -> &Arc<Array> {
        &self.array
    }

    /// The schema in force.
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The fragments and files that are seen.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// When what is seen of the array and of its labels [changed](Snapshot::changed) last, in milliseconds
    /// since the Unix epoch.
    pub(crate) fn changed(&self) -> u64 {
        let labels = self.labels.iter().filter_map(AxisLabel::selection);
        let labels = labels.map(|labels| labels.snapshot.changed());
        labels.fold(self.snapshot.changed(), u64::max)
    }

    /// A hash of the state that is seen: two selections of an array with equal hashes show the same.
    pub(crate) fn state(&self) -> u64 {
        self.state
    }

    /// Fails if it is unknown which fragments are seen: a commit file is damaged, or a committed fragment is
    /// missing. Then everything that depends on fragments fails with this error.
    pub(crate) fn check_complete(&self) -> Result<()> {
        match &self.incomplete {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::time::TimeRange;
    use crate::query::testing::{UUID, open};
    use crate::storage::MemoryStorage;
    use std::path::Path;
    use std::time::Duration;
    use std::{fs, thread};

    #[test]
    fn the_moment_of_looking_counts_only_where_it_cuts_a_fragment() {
        const LATER: u64 = 4_102_444_800_000;
        let since = When::Within(TimeRange {
            start: 3,
            end: u64::MAX,
        });
        for (kind, start, is_cut) in [
            ("dense", LATER, false),
            ("dense", 5, false),
            ("sparse", LATER, false),
            ("sparse", 5, true),
        ] {
            let mut storage = MemoryStorage::default();
            let schemas = fs::read_dir(format!("tests/data/versions/v22/{kind}/__schema")).unwrap();
            let schema = schemas
                .map(|entry| entry.unwrap().path())
                .find(|path| path.is_file());
            let name = format!("__{start}_{LATER}_{UUID}_22");
            for (path, bytes) in [
                (
                    format!("__schema/__1_1_{UUID}"),
                    fs::read(schema.unwrap()).unwrap(),
                ),
                (format!("__fragments/{name}/__fragment_metadata.tdb"), Vec::new()),
                (format!("__commits/{name}.wrt"), Vec::new()),
            ] {
                storage.insert(Path::new(&path), bytes);
            }
            for when in [When::Now, since.clone()] {
                let state = || Selection::new(open(&storage).0, when.clone()).unwrap().state();
                let before = state();
                thread::sleep(Duration::from_millis(2));
                assert_eq!(state() != before, is_cut, "{kind} {start}");
            }
        }
    }
}
