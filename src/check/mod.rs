//! Checks a source: decodes everything in it, and compares whatever is stored in more than one place.
//!
//! | what | against | module |
//! |---|---|---|
//! | every chunk of every tile | its codecs, checksums and declared lengths | `field`, `coordinates` |
//! | files of fields | sizes in the metadata, and tiles back to back | `files` |
//! | offsets of var-sized cells, validity bytes | their tile | `cells`, `field` |
//! | fragment metadata, R-tree, non-empty domain | the tiles, and each other | `fragment`, `rtree` |
//! | minima, maxima, sums, null counts of tiles and fragments | the values | `statistics`, `stored` |
//! | R-tree, global order | the coordinates | `coordinates`, `written_order` |
//! | schemas, enumerations, labels, metadata | what refers to them | `array`, `metadata` |
//! | commit, ignore, vacuum, delete files | fragments | `commits` |
//! | consolidated fragment metadata | the fragments' own | `consolidated` |
//! | members of groups | the objects that exist | `walk` |
//!
//! `grid` tells cells from the padding of dense tiles, `queue` shares the work among threads, and a `problem`
//! is what is found.
//!
//! Memory is bounded by the number of threads, the longest cell and the fragment metadata: cells are read
//! some thousands at a time.

mod array;
mod cells;
mod commits;
mod consolidated;
mod coordinates;
mod field;
mod files;
mod fragment;
mod grid;
mod metadata;
mod problem;
mod queue;
mod rtree;
mod statistics;
mod stored;
mod walk;
mod written_order;

pub use problem::{Kind, Level, Problem};

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::EncryptionKey;
use crate::filter::generic::GenericTile;
use crate::runtime::lock;
use crate::runtime::stats::{Counter, Stats};
use crate::storage::{LocalStorage, Storage};
use std::collections::HashSet;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How a source is checked.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Bound of the cache of decoded chunks, in bytes.
    pub cache_size: u64,
    /// Keys of encrypted arrays: each for the array at a path (relative to the source) and all below; the
    /// longest path wins.
    pub keys: Vec<(PathBuf, EncryptionKey)>,
    /// Whether symbolic links that lead out of the source are followed.
    pub follow_symlinks: bool,
    /// Threads that decode; at least one.
    pub threads: usize,
}

/// How much has been checked. All counters only grow.
#[derive(Debug, Default)]
pub struct Tally {
    /// Arrays, labels included.
    pub arrays: Counter,
    /// Groups.
    pub groups: Counter,
    /// Committed fragments.
    pub fragments: Counter,
    /// Fields that fragments store.
    pub columns: Counter,
    /// Tiles, counted for each field.
    pub tiles: Counter,
    /// Bytes of values, offsets and validity, unfiltered.
    pub bytes: Counter,
    /// Bytes of tiles as they are stored.
    pub stored_bytes: Counter,
}

/// Called with each finding, from several threads at once.
pub type Report = Box<dyn Fn(Problem) + Send + Sync>;

/// Checks the array, group or directory at `source`, and everything below. Findings go to `report` as they
/// are made, in no order.
///
/// Returns the paths in `options.keys` at or below which there is no array or group. Errors: `NotFound` if
/// there is nothing at `source`, `InvalidInput` if it is a file or holds no array or group at any depth.
pub fn check(
    source: &Path,
    options: &CheckOptions,
    report: Report,
    tally: Arc<Tally>,
) -> Result<Vec<PathBuf>> {
    let place = |e: Error| e.in_file(source.display());
    let metadata = std::fs::metadata(source).map_err(|e| place(Error::io(&e)))?;
    if !metadata.is_dir() {
        let message = "not TileDB: it is a file";
        return Err(place(Error::new(ErrorKind::InvalidInput, message)));
    }
    let stats: Arc<Stats> = Arc::default();
    let storage = LocalStorage::new(source, options.follow_symlinks, stats.clone())?;
    check_over(Arc::new(storage), stats, options, report, tally)
}

/// As [`check`], for the source in `storage`. `options.follow_symlinks` is ignored: it was chosen when
/// `storage` was made.
pub fn check_over(
    storage: Arc<dyn Storage>,
    stats: Arc<Stats>,
    options: &CheckOptions,
    report: Report,
    tally: Arc<Tally>,
) -> Result<Vec<PathBuf>> {
    let engine = Engine::new(storage, options.cache_size, options.keys.clone(), stats);
    let top = PathBuf::new();
    let objects = |tally: &Tally| tally.arrays.get().saturating_add(tally.groups.get());
    let before = objects(&tally);
    let checker = Checker {
        engine: Arc::new(engine),
        report,
        tally,
        seen: Mutex::default(),
        unmatched: Mutex::new(
            options
                .keys
                .iter()
                .map(|(path, _)| path.clone())
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
        ),
        queue: queue::Queue::default(),
    };
    checker.queue.push(vec![walk::object_job(top.clone())]);
    std::thread::scope(|scope| {
        for _ in 1..options.threads {
            // Without other threads, this one does it all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || checker.queue.work(&checker));
        }
        checker.queue.work(&checker);
    });
    if objects(&checker.tally) == before {
        let message = "not TileDB: there is no array or group in it, at any depth";
        return Err(Error::new(ErrorKind::InvalidInput, message).in_file(checker.show(&top)));
    }
    let unmatched = mem::take(&mut *lock(&checker.unmatched));
    Ok(unmatched)
}

/// What all jobs share.
struct Checker {
    engine: Arc<Engine>,
    report: Report,
    tally: Arc<Tally>,
    /// The directories that were visited, by the versions that the storage gives them.
    seen: Mutex<HashSet<(u64, u64, u64)>>,
    /// The paths of `CheckOptions::keys` at or below which no array or group was found yet.
    unmatched: Mutex<Vec<PathBuf>>,
    queue: queue::Queue,
}

impl Checker {
    /// Notes that there is an array or group at `path`.
    fn note_object(&self, path: &Path) {
        lock(&self.unmatched).retain(|wanted| !path.starts_with(wanted));
    }

    fn report(&self, problem: Problem) {
        (self.report)(problem);
    }

    /// The value of `result`. An error is reported, as one of the file at `path` if it names no other.
    fn take<T>(&self, result: Result<T>, path: &Path) -> Option<T> {
        result
            .map_err(|e| self.report(Problem::from_error(&e, self.show(path))))
            .ok()
    }

    /// Reports bytes after the generic tile in the file at `path`, which should hold nothing else. A file
    /// that cannot be read is left to the check that decodes it.
    fn check_end(&self, path: &Path, key: Option<&EncryptionKey>) {
        let Ok(blob) = self.engine.storage.open(path) else {
            return;
        };
        if let Ok(tile) = GenericTile::read_header(&*blob, 0, key)
            && tile.data_end < blob.len()
        {
            let message = format!(
                "{} bytes are left over after the generic tile",
                blob.len() - tile.data_end
            );
            self.report(self.problem(Kind::Size, path, message).at(tile.data_end));
        }
    }

    /// A finding of level [`Level::Problem`] in the file at `path`.
    fn problem(&self, kind: Kind, path: &Path, message: impl Into<String>) -> Problem {
        Problem::new(kind, self.show(path), message)
    }

    /// A path as findings show it.
    fn show(&self, path: &Path) -> String {
        self.engine.storage.display(path)
    }
}
