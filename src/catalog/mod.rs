//! What lies in a source, and what of it is seen at a time.
//!
//! An [`Array`] is an array's directory. An [`ArrayListing`] is what it holds at one moment; a [`Snapshot`]
//! is what of that a reader sees in a range of time.
//!
//! | module | |
//! |---|---|
//! | [`source`] | a source opened; arrays, groups and plain directories told apart |
//! | [`group`] | the members of a group |
//! | [`listing`] | the files of an array: schemas, fragments, commits, metadata |
//! | [`commits`] | which files commit, ignore, vacuum and delete fragments; why a fragment is not seen |
//! | [`snapshot`] | what a reader sees |
//! | [`time`] | ranges of time |
//! | [`pin`] | states of an array by name |
//! | [`revalidated`] | values that are made again when a directory changes |

pub mod commits;
pub mod group;
pub mod listing;
pub mod pin;
pub mod revalidated;
pub mod snapshot;
pub mod source;
pub mod time;

use crate::calendar::now;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::format::enumeration::Enumeration;
use crate::format::enums::ArrayType;
use crate::format::schema::{DimensionLabel, Schema};
use crate::fragment::Fragment;
use crate::fragment::generic_body::GenericFile;
use crate::fragment::repeated_footers::RepeatedFooters;
use crate::fragment::schemas::{SCHEMA_DIRECTORY, Schemas};
use crate::runtime::single_flight::SingleFlight;
use crate::runtime::{hash, lock};
use crate::storage::{Blob, join};
use listing::{ArrayListing, DIRECTORIES, ENUMERATIONS, SchemaFile};
use lru::LruCache;
use pin::Pins;
use revalidated::Revalidated;
use snapshot::{Snapshot, keeps_times};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use time::{TimeRange, When};

/// The most states of an array that it knows to have warned about.
const MAX_WARNED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// An array.
pub struct Array {
    pub(crate) engine: Arc<Engine>,
    /// The directory, relative to the source.
    pub(crate) path: PathBuf,
    pub(crate) schemas: Arc<Schemas>,
    /// The key, if one was given.
    pub(crate) key: Option<EncryptionKey>,
    listing: Revalidated<ArrayListing>,
    /// The latest past time, in milliseconds since the Unix epoch, that the listing is known to answer for.
    listed_after: AtomicU64,
    repeated_footers: Arc<RepeatedFooters>,
    latest: Mutex<Option<Arc<Snapshot>>>,
    /// The states that were found by their pins.
    pins: Mutex<Pins>,
    /// The states about which there was a warning last.
    warned: Mutex<LruCache<u64, ()>>,
    making_latest: SingleFlight,
    /// The arrays of dimension labels that were asked for, by their paths.
    labels: Mutex<HashMap<PathBuf, Arc<Array>>>,
}

/// The directories of the array at `path` of which a listing is made.
fn directories(path: &Path) -> [PathBuf; DIRECTORIES.len()] {
    DIRECTORIES.map(|directory| join(path, Path::new(directory)))
}

impl Drop for Array {
    /// Nobody needs the files of the array any more.
    fn drop(&mut self) {
        self.engine.close_below(&self.path);
    }
}

impl Array {
    /// The array at `path`. Reads nothing.
    pub(crate) fn new(engine: Arc<Engine>, path: PathBuf) -> Self {
        let key = engine.key_for(&path).cloned();
        let listing = Revalidated::new(directories(&path).into());
        let schemas = Arc::new(Schemas::new(engine.clone(), path.clone(), key.clone()));
        let repeated_footers = RepeatedFooters::new(engine.clone(), key.clone());
        Array {
            engine,
            path,
            schemas,
            key,
            listing,
            listed_after: AtomicU64::new(0),
            repeated_footers: Arc::new(repeated_footers),
            latest: Mutex::default(),
            pins: Mutex::default(),
            warned: Mutex::new(LruCache::new(MAX_WARNED)),
            making_latest: SingleFlight::default(),
            labels: Mutex::default(),
        }
    }

    /// The contents of its directory; at most a tenth of a second old.
    pub(crate) fn listing(&self) -> Result<Arc<ArrayListing>> {
        let prepare = || self.expect_fragments();
        let read = |before: Option<&ArrayListing>| {
            let listing = self.read_listing(before)?;
            let until = listing.lasts_until();
            Ok((listing, until))
        };
        let listing = self.listing.get(&self.engine, prepare, read)?;
        if !listing.missing.is_empty() {
            let now = now();
            let mut missing = listing.missing.iter();
            if missing.any(|missing| missing.expected_until >= now) {
                self.engine.list_anew(&self.path.join("__fragments"));
            }
        }
        Ok(listing)
    }

    /// [`Array::listing`] for a reader of what was written until `end`. If that is past, one that was begun
    /// later: a listing cannot know what was written after it. What another machine wrote shows so in `at/`
    /// of its stamp, however old the listings of this mount are.
    fn listing_until(&self, end: u64) -> Result<Arc<ArrayListing>> {
        let past = |now: u64| now.checked_sub(end).filter(|age| *age > 0);
        if past(now()).is_none() || self.listed_after.load(Ordering::Acquire) >= end {
            return self.listing();
        }
        let listing = self.list_begun_since(|| past(now()).map(Duration::from_millis))?;
        self.listed_after.fetch_max(end, Ordering::AcqRel);
        Ok(listing)
    }

    /// A listing that was not begun `age` ago or earlier, as `age` is at each look; whatever listing there is
    /// if that is None.
    fn list_begun_since(&self, age: impl Fn() -> Option<Duration>) -> Result<Arc<ArrayListing>> {
        /// How often to list: a listing that is under way may have begun too early as well.
        const TRIES: usize = 3;
        self.look_again();
        for _ in 0..TRIES {
            let Some(age) = age() else { break };
            let directories = directories(&self.path);
            let old = directories.map(|directory| self.engine.storage.forget(&directory, age));
            if !old.contains(&true) {
                break;
            }
            self.look_again();
            self.listing()?;
        }
        self.listing()
    }

    /// Makes the next listing look at the directories, however recent the last one is.
    pub(crate) fn look_again(&self) {
        self.listing.look_again();
    }

    /// [`Array::look_again`], and of an object store the next listing is one that was not begun before
    /// `time`, in milliseconds since the Unix epoch, or if that is to come, now.
    pub(crate) fn look_again_since(&self, time: u64) {
        self.engine.forget_listings_before(&directories(&self.path), time);
        self.look_again();
    }

    /// Whether there was no warning about what `snapshot` shows yet. From then on there was.
    pub(crate) fn warns_first(&self, snapshot: &Snapshot) -> bool {
        let state = hash(&(snapshot.times, snapshot.digest()));
        lock(&self.warned).put(state, ()).is_none()
    }

    /// A number for the state of the array in `snapshot`; None if the array may have changed since.
    pub(crate) fn state(&self, snapshot: &Snapshot) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.listing.state(&snapshot.listing)?.hash(&mut hasher);
        for hidden in &snapshot.hidden {
            hidden.is_some().hash(&mut hasher);
        }
        Some(hasher.finish())
    }

    /// Lists the directory, once more if it changed meanwhile: its subdirectories are listed one after the
    /// other, so a fragment may come or go in between, and a commit or vacuum file that was listed may go.
    fn read_listing(&self, before: Option<&ArrayListing>) -> Result<ArrayListing> {
        let listing = self.list_once(before)?;
        let gone = |error: &Error| error.kind() == ErrorKind::NotFound;
        let torn = !listing.missing.is_empty() || listing.damage.as_ref().is_some_and(gone);
        if !torn {
            return Ok(listing);
        }
        for directory in directories(&self.path) {
            self.engine.storage.forget(&directory, Duration::ZERO);
        }
        self.expect_fragments()?;
        self.list_once(before)
    }

    /// Lists commits before fragments: what is committed while both are listed is then not seen yet.
    fn expect_fragments(&self) -> Result<()> {
        let names = || ArrayListing::committed(&self.engine, &self.path);
        let fragments = self.path.join("__fragments");
        self.engine.storage.will_list_named(&fragments, &names)
    }

    /// Takes over the fragments of the listing `before`, with what they have read if they are still the same.
    fn list_once(&self, before: Option<&ArrayListing>) -> Result<ArrayListing> {
        let listing = ArrayListing::read(&self.engine, &self.path, |path, name, parsed| {
            let known = before.and_then(|listing| listing.fragment(name));
            match known.filter(|known| known.fragment.path == path) {
                Some(known) => known.fragment.clone(),
                None => Arc::new(Fragment::new(
                    self.engine.clone(),
                    self.schemas.clone(),
                    self.repeated_footers.clone(),
                    path,
                    parsed,
                    self.key.clone(),
                )),
            }
        })?;
        self.repeated_footers.set_files(&listing.consolidated_metadata);
        if before.is_some_and(|before| listing.is_moved(before)) {
            for entry in &listing.fragments {
                entry.fragment.set_changed();
            }
        }
        Ok(listing)
    }

    /// What a reader of a range of time sees. A range without end, or None, ends now; the snapshot of "now"
    /// is kept until something changes.
    pub(crate) fn snapshot(&self, times: Option<TimeRange>) -> Result<Arc<Snapshot>> {
        let times = times.unwrap_or(TimeRange::ALL);
        let listing = self.listing_until(times.end)?;
        if times.end != u64::MAX {
            return Ok(self.snapshot_of(listing, times).0);
        }
        let times = TimeRange {
            end: self.engine.now(),
            ..times
        };
        let find = || {
            let latest = lock(&self.latest).clone()?;
            let same = Arc::ptr_eq(&latest.listing, &listing)
                && latest.times.start == times.start
                && latest.times.end <= times.end
                && latest.next.is_none_or(|next| times.end < next);
            same.then_some(latest)
        };
        self.making_latest.find_or_make(find, || {
            let (snapshot, lasting) = self.snapshot_of(listing.clone(), times);
            if lasting {
                *lock(&self.latest) = Some(snapshot.clone());
            }
            Ok(snapshot)
        })
    }

    /// What a reader sees who asks for `when`.
    pub(crate) fn snapshot_at(&self, when: &When) -> Result<Arc<Snapshot>> {
        match when {
            When::Now => self.snapshot(None),
            When::Within(times) => self.snapshot(Some(*times)),
            When::Pinned(pinned) => pinned.snapshot(self),
        }
    }

    /// The snapshot, and whether to keep it: not if the schema could not be read. Then a fragment tells
    /// whether the array is sparse, without the key too.
    fn snapshot_of(&self, listing: Arc<ArrayListing>, times: TimeRange) -> (Arc<Snapshot>, bool) {
        let schema = listing.schema_at(times.end);
        let schema = schema.map(|file| self.schemas.get(&file.name));
        let lasting = !matches!(schema, Some(Err(_)));
        let sparse = match schema {
            Some(Ok(schema)) => schema.array_type == ArrayType::Sparse,
            Some(Err(_)) => has_sparse_fragments(&listing),
            None => false,
        };
        (Arc::new(Snapshot::new(listing, times, sparse)), lasting)
    }

    /// The file of the schema in force in a snapshot.
    pub(crate) fn schema_file<'s>(&self, snapshot: &'s Snapshot) -> Result<&'s SchemaFile> {
        snapshot.schema_file().ok_or_else(|| {
            Error::corrupt("the array has no schema")
                .at(0)
                .in_file(self.engine.storage.display(&self.path))
        })
    }

    /// The schema in force in a snapshot.
    pub(crate) fn schema(&self, snapshot: &Snapshot) -> Result<Arc<Schema>> {
        self.schemas.get(&self.schema_file(snapshot)?.name)
    }

    /// The schema in force now.
    ///
    /// # Errors
    ///
    /// `Corrupt` if there is none; fails if it cannot be listed, read or decoded.
    pub fn latest_schema(&self) -> Result<Arc<Schema>> {
        self.schema(&*self.snapshot(None)?)
    }

    /// The enumeration in `file`, one of those that the schema names.
    ///
    /// # Errors
    ///
    /// `Missing` if there is no such file; fails if it cannot be read or decoded.
    pub fn enumeration(&self, file: &[u8]) -> Result<Enumeration> {
        let (blob, body) = self.read_enumeration(file, |path| self.generic_file(path))?;
        Enumeration::parse(&body).map_err(|e| e.in_part("enumeration").in_file(blob.display()))
    }

    /// [`Array::enumeration`] for reads of ranges.
    pub(crate) fn enumeration_body(&self, file: &[u8]) -> Result<GenericFile> {
        self.read_enumeration(file, |path| {
            GenericFile::open(&self.engine, path, self.key.as_ref(), true)
        })
    }

    /// Calls `read` for the path of an enumeration's file. The schema that names it may have been listed
    /// later.
    fn read_enumeration<T>(&self, file: &[u8], read: impl Fn(&Path) -> Result<T>) -> Result<T> {
        let path = self.enumeration_path(file)?;
        let directory = path.parent().expect("the directory of enumerations");
        let found = self.engine.read_in(directory, || read(&path));
        found.map_err(Error::missing_if_not_found)
    }

    /// The path of the enumeration in `file`, relative to the source.
    pub(crate) fn enumeration_path(&self, file: &[u8]) -> Result<PathBuf> {
        let directory = self.path.join(SCHEMA_DIRECTORY).join(ENUMERATIONS);
        let name = std::str::from_utf8(file)
            .ok()
            .filter(|name| !name.is_empty() && !name.contains('/') && *name != "..")
            .ok_or_else(|| {
                Error::corrupt(format!(
                    "an enumeration's file is called {:?}, which is not a plain file name",
                    file.escape_ascii().to_string()
                ))
                .at(0)
                .in_file(self.engine.storage.display(&directory))
            })?;
        Ok(directory.join(name))
    }

    /// The body of a file of one generic tile, with the file. `LimitExceeded` if that takes more memory than
    /// the cache allows.
    pub(crate) fn generic_file(&self, path: &Path) -> Result<(Arc<dyn Blob>, Vec<u8>)> {
        let blob = self.engine.storage.open(path)?;
        let (_, body) = self.engine.generic_tile(&*blob, 0, self.key.as_ref())?;
        Ok((blob, body))
    }
}

/// Whether an array is sparse, by its first fragment of those that are seen or not for that reason. False if
/// there is none, or its footer cannot be read.
fn has_sparse_fragments(listing: &ArrayListing) -> bool {
    let mut entries = listing.fragments.iter();
    let first = entries.find(|entry| keeps_times(&entry.fragment.name));
    let footer = first.and_then(|entry| entry.fragment.clear_footer().ok()?);
    footer.is_some_and(|(front, _)| !front.dense)
}

impl Array {
    /// The array of a dimension label. None if it is not inside this array's directory, or lies behind a
    /// symbolic link. Reads no file of it.
    pub(crate) fn label(&self, label: &DimensionLabel) -> Option<Arc<Array>> {
        let uri = std::str::from_utf8(&label.uri).ok()?;
        let is_name = |part: &str| !matches!(part, "" | "." | "..");
        if !label.relative || !uri.split('/').all(is_name) {
            return None;
        }
        let path = self.path.join(Path::new(uri));
        let mut below = path.ancestors().take_while(|path| *path != self.path);
        let moved = below.any(|path| self.engine.storage.is_link(path));
        (!moved).then(|| {
            let mut labels = lock(&self.labels);
            let array = labels.entry(path.clone());
            array
                .or_insert_with(|| Arc::new(Array::new(self.engine.clone(), path)))
                .clone()
        })
    }
}
