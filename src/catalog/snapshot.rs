//! What a reader sees in an array in a range of time.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/array/array_directory.cc>

use super::commits::{DeleteFile, MissingFragment, NotVisible, Vacuum};
use super::listing::{ArrayListing, FragmentEntry, MetadataFile, SchemaFile};
use super::time::TimeRange;
use crate::error::{Error, ErrorKind, Result};
use crate::format::name::TimestampedName;
use crate::fragment::Fragment;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// What a reader sees in an array in a range of time. Derived from a listing; never changes.
pub struct Snapshot {
    /// The listing.
    pub listing: Arc<ArrayListing>,
    /// The range of time.
    pub times: TimeRange,
    /// For each fragment of the listing, why it is not seen; None if it is seen.
    pub hidden: Vec<Option<NotVisible>>,
    /// The first time after the end of the range at which a reader may see something else.
    pub next: Option<u64>,
    /// Whether a fragment is seen in part, because it ends after the range.
    pub is_cut: bool,
    /// Whether the schema in force is sparse; if it could not be read, whether a fragment is.
    pub sparse: bool,
    digest: OnceLock<u64>,
}

impl Snapshot {
    /// What a reader of `times` sees of `listing`. `sparse` tells whether the schema in force is sparse.
    pub fn new(listing: Arc<ArrayListing>, times: TimeRange, sparse: bool) -> Snapshot {
        let vacuums: Vec<bool> = listing
            .vacuums
            .iter()
            .map(|vacuum| is_in_force(vacuum, &listing, times, sparse))
            .collect();
        let hidden = listing
            .fragments
            .iter()
            .map(|entry| hidden(entry, &listing.vacuums, &vacuums, times, sparse))
            .collect();
        let mut next = listing
            .instants()
            .into_iter()
            .find(|&instant| instant > times.end);
        let mut fragments = listing.fragments.iter().zip(&hidden);
        let is_later = |entry: &FragmentEntry| entry.fragment.name.timestamps.1 > times.end;
        let is_cut = fragments.any(|(entry, hidden): (_, &Option<_>)| hidden.is_none() && is_later(entry));
        if is_cut {
            // Its cells may have any time until its last.
            next = next.map(|next| next.min(times.end.saturating_add(1000)));
        }
        Snapshot {
            listing,
            times,
            hidden,
            next,
            is_cut,
            sparse,
            digest: OnceLock::new(),
        }
    }

    /// A hash of the names of the fragments, commits, deletes and metadata that are seen: what is written
    /// later does not change it.
    pub fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            for entry in self.fragments() {
                entry.name.hash(&mut hasher);
            }
            let is_later = |name: &TimestampedName| name.timestamps.0 > self.times.end;
            let commits = self.listing.commits.iter();
            for commit in commits.filter(|commit| !commit.parsed.as_ref().is_some_and(is_later)) {
                (&commit.name, commit.kind.extension()).hash(&mut hasher);
            }
            // The listing of a pin has them without their commits.
            for file in self.deletes() {
                file.name.hash(&mut hasher);
            }
            for file in self.metadata() {
                file.path.hash(&mut hasher);
            }
            hasher.finish()
        })
    }

    /// The file of the schema in force. The start of the range does not restrict schemas.
    pub fn schema_file(&self) -> Option<&SchemaFile> {
        self.listing.schema_at(self.times.end)
    }

    /// The fragments that are seen, in reading order: later ones are newer.
    pub fn fragments(&self) -> impl DoubleEndedIterator<Item = &FragmentEntry> {
        let entries = self.listing.fragments.iter().zip(&self.hidden);
        entries
            .filter(|(_, hidden)| hidden.is_none())
            .map(|(entry, _)| entry)
    }

    /// [`Snapshot::fragments`] without the names of their directories.
    pub fn fragment_list(&self) -> Vec<Arc<Fragment>> {
        self.fragments().map(|entry| entry.fragment.clone()).collect()
    }

    /// The newest timestamp of the schema, fragments, deletes and metadata that are seen, in milliseconds.
    pub fn mtime(&self) -> u64 {
        let schema = self.schema_file().map(|file| file.timestamps.1);
        let fragments = self.fragments().map(|entry| entry.fragment.name.timestamps.1);
        let deletes = self.deletes().map(|file| file.parsed.timestamps.1);
        let metadata = self.metadata().map(|file| file.parsed.timestamps.1);
        let all = fragments.chain(deletes).chain(metadata).chain(schema);
        all.max().unwrap_or(0)
    }

    /// The newest of [`Snapshot::mtime`] and the times at which the array's directories changed, so that
    /// back-dated writes and vacuums count as well.
    pub fn changed(&self) -> u64 {
        self.mtime().max(self.listing.changed)
    }

    /// The delete and update files in force, oldest first.
    pub fn deletes(&self) -> impl Iterator<Item = &DeleteFile> {
        let deletes = self.listing.deletes.iter();
        deletes.filter(|file| self.times.covers(file.parsed.timestamps))
    }

    /// The files of metadata in force, oldest first.
    pub fn metadata(&self) -> impl Iterator<Item = &MetadataFile> {
        self.listing.metadata.at(self.times)
    }

    /// The fragments of which a part was written in the range of time, but which are not seen, because they
    /// do not keep when each of their cells was written; what they were consolidated from was vacuumed.
    pub fn incomplete(&self) -> impl Iterator<Item = &FragmentEntry> {
        self.emptied().into_iter().filter(|entry| {
            let stamps = entry.fragment.name.timestamps;
            self.times.meets(stamps) && !self.times.covers(stamps)
        })
    }

    /// The consolidated fragments that a reader sees whole or not at all, and that have replaced others for
    /// good, at any time. While their vacuum file is there, so are the others. A consolidation that makes
    /// several fragments, all of its range of time, names the file after one of them.
    pub fn emptied(&self) -> Vec<&FragmentEntry> {
        let mut vacuums: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        for (index, vacuum) in self.listing.vacuums.iter().enumerate() {
            vacuums.entry(vacuum.parsed.timestamps).or_default().push(index);
        }
        // What was consolidated again, and alone, has the range of time of its successor.
        let has_own = |entry: &FragmentEntry| {
            let mut same = vacuums.get(&entry.fragment.name.timestamps).into_iter().flatten();
            same.any(|index| !entry.vacuums.contains(index))
        };
        let entries = self.listing.fragments.iter().filter(|entry| {
            let name = &entry.fragment.name;
            let whole = !self.sparse || !keeps_times(name);
            let consolidated = name.timestamps.0 < name.timestamps.1 && entry.uncommitted.is_none();
            whole && consolidated && !has_own(entry)
        });
        entries.collect()
    }

    /// The committed fragments that a reader would see if they were listed.
    pub fn missing(&self) -> impl Iterator<Item = &MissingFragment> {
        missing(&self.listing, self.times, self.sparse)
    }

    /// Fails if it is unknown which fragments are seen: a commit file is damaged, or a committed fragment is
    /// missing that should be listed by `now`, in milliseconds since the Unix epoch.
    pub fn check_complete(&self, now: u64) -> Result<()> {
        if let Some(damage) = &self.listing.damage {
            return Err(damage.clone());
        }
        let missing = self.missing().filter(|missing| missing.expected_until < now);
        let names = missing.map(|missing| &missing.parsed);
        match names.min_by_key(|name| name.timestamps) {
            None => Ok(()),
            Some(name) => {
                let (start, end) = name.timestamps;
                let uuid = String::from_utf8_lossy(&name.uuid);
                let message = format!("fragment {uuid} of {start} to {end} is committed but missing");
                Err(Error::new(ErrorKind::Missing, message).at(0))
            }
        }
    }
}

/// Whether a fragment of this name, if it is sparse, keeps when each of its cells was written.
pub(super) fn keeps_times(name: &TimestampedName) -> bool {
    name.name_version >= 15
}

/// Whether a reader uses a fragment or vacuum file of this name. In a sparse array, any overlap of the time
/// ranges is enough from version 15 on, because cells with different timestamps carry their own. Otherwise
/// the reader's range must contain the file's.
pub(super) fn counts(name: &TimestampedName, times: TimeRange, sparse: bool) -> bool {
    if sparse && keeps_times(name) {
        times.meets(name.timestamps)
    } else {
        times.covers(name.timestamps)
    }
}

/// Whether a vacuum file hides what it lists from readers of `times`. While the fragment that replaced it is
/// not listed yet, readers see what was replaced.
pub(super) fn is_in_force(vacuum: &Vacuum, listing: &ArrayListing, times: TimeRange, sparse: bool) -> bool {
    let result = |missing: &MissingFragment| missing.stem.cmp(&vacuum.stem);
    counts(&vacuum.parsed, times, sparse) && listing.missing.binary_search_by(result).is_err()
}

/// See [`Snapshot::missing`].
pub(super) fn missing(
    listing: &ArrayListing,
    times: TimeRange,
    sparse: bool,
) -> impl Iterator<Item = &MissingFragment> {
    let hides = move |i: &usize| is_in_force(&listing.vacuums[*i], listing, times, sparse);
    let missing = listing.missing.iter();
    missing
        .filter(move |missing| counts(&missing.parsed, times, sparse) && !missing.vacuums.iter().any(hides))
}

fn hidden(
    entry: &FragmentEntry,
    vacuums: &[Vacuum],
    in_force: &[bool],
    times: TimeRange,
    sparse: bool,
) -> Option<NotVisible> {
    if let Some(uncommitted) = &entry.uncommitted {
        return Some(uncommitted.clone());
    }
    let mut listed = entry.vacuums.iter().rev();
    let by = listed.find(|&&i| in_force[i]);
    if let Some(&by) = by {
        return Some(NotVisible::Vacuumed {
            by: vacuums[by].stem.clone(),
        });
    }
    let name = &entry.fragment.name;
    if counts(name, times, sparse) {
        return None;
    }
    let (start, end) = name.timestamps;
    let past = end < times.start || end <= times.end && start < times.start;
    Some(match past {
        true => NotVisible::Past((start, end)),
        false => NotVisible::Future((start, end)),
    })
}
