//! Pins: states of an array by name, the same on every machine.
//!
//! A [`Pin`] is a time and a hash of what the array is made of at that time. Another mount may know the array
//! by another listing than the one that the pin was made from. The hash tells whether a listing has that
//! state: as it is; or as it was before a consolidation of which the vacuum file is still there, or before
//! one or two commits that came later than their timestamps say.
//!
//! The hash is a sum modulo 2^64: of each of these lines, the first 8 bytes of its SHA-256, big-endian. So it
//! does not depend on any order, and what came later can be subtracted.
//!
//! | line | for |
//! |---|---|
//! | `time 1738627200000` | the pin's time |
//! | `schema <name>` | the schema in force |
//! | `fragment <name>` | each fragment that is seen |
//! | `delete <name>` | each delete or update in force, whether its file is consolidated or not |
//! | `metadata <name>` | each metadata file in force |
//!
//! For the array of a dimension label, its path in the array and a `/` stand before each name.

use super::Array;
use super::commits::{Replaced, Vacuum};
use super::listing::{ArrayListing, SchemaFile};
use super::snapshot::{Snapshot, counts, is_in_force, missing};
use super::time::TimeRange;
use crate::calendar::timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::format::enums::ArrayType;
use crate::format::name::TimestampedName;
use crate::fragment::file_name;
use crate::fragment::schemas::LEGACY_SCHEMA;
use crate::runtime::lock;
use lru::LruCache;
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// The most fragments and files of all states that an array remembers, except for the last one.
const MAX_REMEMBERED: usize = 1 << 17;

/// The most commits that are left out of a listing to find a state that had another listing: see
/// [`Search::leave_out_late`].
const MAX_LATE: usize = 2;

/// How long a pin that was not found is not looked for again.
const MISSED_FOR: Duration = Duration::from_secs(1);

/// The name of a state of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin {
    /// The end of what is seen, in milliseconds since the Unix epoch.
    pub time: u64,
    /// The hash of what the array is made of.
    pub hash: u64,
}

/// The time as [`timestamp`] writes it, `~`, and the hash as 16 hexadecimal digits.
impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{:016x}", timestamp(self.time), self.hash)
    }
}

/// A state of an array that has a pin. Its listings hold nothing else, but for the schemas of fragments.
pub struct Pinned {
    /// Its name.
    pub pin: Pin,
    /// The path of the array.
    path: PathBuf,
    /// What is seen of the array.
    snapshot: Arc<Snapshot>,
    /// What is seen of the arrays of its dimension labels, by path.
    labels: HashMap<PathBuf, Arc<Snapshot>>,
    /// The number of fragments and files that it is made of, with all schemas.
    size: usize,
    /// The last listing of the array that it was looked for in.
    listing: Mutex<Weak<ArrayListing>>,
}

impl Pinned {
    /// Whether it is of `array`, which may be one of the labels instead.
    pub fn is_of(&self, array: &Array) -> bool {
        array.path == self.path
    }

    /// Whether it has the array of a label at `path`.
    pub fn has_label(&self, path: &Path) -> bool {
        self.labels.contains_key(path)
    }

    /// What is seen of `array`: the one that the pin is of, or one of its labels.
    pub(super) fn snapshot(&self, array: &Array) -> Result<Arc<Snapshot>> {
        if self.is_of(array) {
            return Ok(self.snapshot.clone());
        }
        let label = self.labels.get(&array.path).cloned();
        label.ok_or_else(|| Error::not_found("the pinned state has no such labels"))
    }
}

/// The states that an array remembers.
pub(super) struct Pins {
    found: LruCache<Pin, Arc<Pinned>>,
    /// The sum of [`Pinned::size`].
    size: usize,
    /// The last pin that was not found, when, and why.
    missed: Option<(Pin, Instant, Error)>,
}

impl Default for Pins {
    fn default() -> Self {
        Pins {
            found: LruCache::unbounded(),
            size: 0,
            missed: None,
        }
    }
}

impl Pins {
    fn remember(&mut self, pinned: Arc<Pinned>) {
        self.size += pinned.size;
        if let Some((_, before)) = self.found.push(pinned.pin, pinned) {
            self.size -= before.size;
        }
        while self.size > MAX_REMEMBERED && self.found.len() > 1 {
            let (_, oldest) = self.found.pop_lru().expect("more than one state");
            self.size -= oldest.size;
        }
    }
}

impl Array {
    /// The pin of what `snapshot` shows of the time from the beginning on, where it is known which fragments
    /// those are: [`Snapshot::check_complete`]. `Missing` while so many fragments are not listed yet that
    /// nobody would find the state again.
    pub(crate) fn pin(&self, snapshot: &Snapshot) -> Result<Pin> {
        let parts = self.parts(snapshot.listing.clone(), snapshot.times.end)?;
        let until = TimeRange::until(snapshot.times.end);
        let missing = parts
            .iter()
            .map(|part| missing(&part.listing, until, part.sparse).count());
        let late: usize = missing.sum();
        if late > MAX_LATE {
            let message = format!("{late} fragments are committed that are not listed yet");
            let error = Error::new(ErrorKind::Missing, message).at(0);
            return Err(error.in_file(self.engine.storage.display(&self.path)));
        }
        let time = newest(&parts, snapshot.times.end);
        let items = Items::of(&parts, time);
        let hash = items.hash(&items.seen());
        Ok(Pin { time, hash })
    }

    /// The state called `pin`: as far as is known already, or in the present listing, or in a new one.
    /// `Io(ESTALE)` if there is no such state any more, or never was one.
    pub(crate) fn pinned(&self, pin: Pin) -> Result<Arc<Pinned>> {
        let asked = Instant::now();
        let known = {
            let mut pins = lock(&self.pins);
            let known = pins.found.get(&pin).cloned();
            if let (None, Some((missed, when, error))) = (&known, &pins.missed)
                && *missed == pin
                && when.elapsed() < MISSED_FOR
            {
                return Err(error.clone());
            }
            known
        };
        let listing = self.listing();
        if let (Some(known), Ok(listing)) = (&known, &listing) {
            let looked_in = std::mem::replace(&mut *lock(&known.listing), Arc::downgrade(listing));
            if std::ptr::eq(looked_in.as_ptr(), Arc::as_ptr(listing)) {
                return Ok(known.clone());
            }
        }
        // A newer listing may tell that a delete has moved to another file.
        let found = listing.and_then(|listing| self.find(pin, listing));
        match (found, known) {
            (Ok(Some(found)), _) => return Ok(found),
            (_, Some(known)) => return Ok(known),
            (Ok(None), None) => {}
            (Err(error), None) => return Err(error),
        }
        let labels: Vec<Arc<Array>> = lock(&self.labels).values().cloned().collect();
        for array in labels {
            match array.list_begun_since(|| Some(asked.elapsed())) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let listing = self.list_begun_since(|| Some(asked.elapsed()))?;
        if let Some(found) = self.find(pin, listing)? {
            return Ok(found);
        }
        let message = "the array has no state of this name: it was vacuumed, or the name is of another array";
        let error = Error::new(ErrorKind::Io(libc::ESTALE), message);
        let error = error.in_file(self.engine.storage.display(&self.path));
        lock(&self.pins).missed = Some((pin, Instant::now(), error.clone()));
        Err(error)
    }

    /// The state called `pin`, if `listing` has it. Remembers it.
    fn find(&self, pin: Pin, listing: Arc<ArrayListing>) -> Result<Option<Arc<Pinned>>> {
        let parts = self.parts(listing.clone(), pin.time)?;
        let items = Items::of(&parts, pin.time);
        let Some(seen) = items.find(pin.hash) else {
            return Ok(None);
        };
        let mut rest = seen.as_slice();
        let mut snapshots = parts.iter().map(|part| {
            let own;
            (own, rest) = rest.split_at(part.len());
            (part.path.clone(), part.snapshot(own, pin.time))
        });
        let (path, snapshot) = snapshots.next().expect("the array itself");
        let pinned = Arc::new(Pinned {
            pin,
            path,
            snapshot,
            labels: snapshots.collect(),
            size: seen.iter().filter(|seen| **seen).count()
                + parts.iter().map(|part| part.listing.schemas.len()).sum::<usize>(),
            listing: Mutex::new(Arc::downgrade(&listing)),
        });
        lock(&self.pins).remember(pinned.clone());
        Ok(Some(pinned))
    }

    /// The array as in `listing`, and the arrays of the labels of the schema in force at `time`.
    fn parts(&self, listing: Arc<ArrayListing>, time: u64) -> Result<Vec<Part>> {
        let own = Part::new(self, listing, time)?;
        let labels = match &own.schema {
            Some(file) => self.schemas.get(&file.name)?.dimension_labels.clone(),
            None => Vec::new(),
        };
        let mut parts = vec![own];
        for label in &labels {
            let Some(array) = self.label(label) else { continue };
            if parts.iter().any(|part| part.path == array.path) {
                continue;
            }
            match array.listing() {
                Ok(listing) => parts.push(Part::new(&array, listing, time)?),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(parts)
    }
}

/// An array of which a state is made: the one that the pin is of, or one of its labels.
struct Part {
    path: PathBuf,
    listing: Arc<ArrayListing>,
    /// The schema in force.
    schema: Option<SchemaFile>,
    sparse: bool,
}

impl Part {
    /// `array` as in `listing`, with the schema in force at `time`.
    fn new(array: &Array, listing: Arc<ArrayListing>, time: u64) -> Result<Part> {
        let schema = listing.schema_at(time).cloned();
        let parsed = schema.as_ref().map(|file| array.schemas.get(&file.name));
        let parsed = parsed.transpose()?;
        Ok(Part {
            path: array.path.clone(),
            listing,
            schema,
            sparse: parsed.is_some_and(|schema| schema.array_type == ArrayType::Sparse),
        })
    }

    /// The number of its [`Items`].
    fn len(&self) -> usize {
        let listing = &self.listing;
        listing.fragments.len() + listing.deletes.len() + listing.metadata.files.len()
    }

    /// What is seen at `time`, with one flag for each item.
    fn snapshot(&self, seen: &[bool], time: u64) -> Arc<Snapshot> {
        let listing = &self.listing;
        let (fragments, seen) = seen.split_at(listing.fragments.len());
        let (deletes, metadata) = seen.split_at(listing.deletes.len());
        let listing = ArrayListing::of(
            self.schema.as_ref(),
            listing.schemas.clone(),
            kept(&listing.fragments, fragments),
            kept(&listing.deletes, deletes),
            kept(&listing.metadata.files, metadata),
        );
        Arc::new(Snapshot::new(
            Arc::new(listing),
            TimeRange::until(time),
            self.sparse,
        ))
    }
}

/// Those of `all` that have their flag set.
fn kept<T: Clone>(all: &[T], flags: &[bool]) -> Vec<T> {
    let flagged = all.iter().zip(flags).filter(|(_, flag)| **flag);
    flagged.map(|(one, _)| one.clone()).collect()
}

/// The time of the pin of what is seen until `end`: the newest timestamp until then of what is committed. If
/// a fragment is seen in part, `end`, because cells may have any time in between.
fn newest(parts: &[Part], end: u64) -> u64 {
    let mut newest = 0;
    for Part { listing, sparse, .. } in parts {
        let committed = listing
            .fragments
            .iter()
            .filter(|entry| entry.uncommitted.is_none());
        let fragments = committed.map(|entry| &entry.fragment.name);
        let times = TimeRange::until(end);
        let mut in_part = fragments.clone().filter(|name| counts(name, times, *sparse));
        if in_part.any(|name| name.timestamps.1 > end) {
            return end;
        }
        let vacuums = listing.vacuums.iter().chain(&listing.metadata.vacuums);
        let names = fragments
            .chain(vacuums.map(|vacuum| &vacuum.parsed))
            .chain(listing.deletes.iter().map(|file| &file.parsed))
            .chain(listing.metadata.files.iter().map(|file| &file.parsed));
        let schemas = listing.schemas.iter().filter(|file| file.name != LEGACY_SCHEMA);
        let stamps = names.map(|name| name.timestamps);
        let stamps = stamps.chain(schemas.map(|file| file.timestamps));
        let stamps = stamps.flat_map(|(start, end)| [start, end]);
        newest = stamps.filter(|stamp| *stamp <= end).fold(newest, u64::max);
    }
    newest
}

/// A fragment, delete or metadata file.
struct Item {
    hash: u64,
    /// Whether it is committed, and in the range of time.
    counts: bool,
    /// The consolidations that replaced it, as indexes.
    replaced_by: Vec<usize>,
}

/// A consolidation of which the vacuum file is there.
struct Consolidation {
    /// Whether the vacuum file is in force.
    counts: bool,
    /// What it has made, as an index of items.
    result: Option<usize>,
}

/// What a state may be made of.
#[derive(Default)]
struct Items {
    /// The sum for what belongs to every state.
    always: u64,
    items: Vec<Item>,
    consolidations: Vec<Consolidation>,
    /// The consolidations in the order in which to undo them.
    order: Vec<usize>,
}

/// The number of a line.
fn number(line: &str) -> u64 {
    let digest = Sha256::digest(line);
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Items {
    /// Those of `parts`, of which the first is the array itself, at `time`.
    fn of(parts: &[Part], time: u64) -> Items {
        let mut all = Items {
            always: number(&format!("time {time}")),
            ..Items::default()
        };
        let mut stamps = Vec::new();
        for part in parts {
            all.add(part, &parts[0].path, time, &mut stamps);
        }
        // Later timestamps are as a rule consolidated later, and a consolidation of several at last.
        all.order = (0..stamps.len()).collect();
        all.order.sort_by_key(|i| {
            let (start, end) = stamps[*i];
            (Reverse(end), start)
        });
        all
    }

    /// Adds those of a part of the array at `path`; the timestamps of its consolidations to `stamps`.
    fn add(&mut self, part: &Part, path: &Path, time: u64, stamps: &mut Vec<(u64, u64)>) {
        let Part { listing, sparse, .. } = part;
        let times = TimeRange::until(time);
        let place = part
            .path
            .strip_prefix(path)
            .expect("labels are in the directory of the array")
            .display()
            .to_string();
        let prefix = match place.is_empty() {
            true => place,
            false => place + "/",
        };
        let number = |kind: &str, name: &str| number(&format!("{kind} {prefix}{name}"));
        let schema = part
            .schema
            .as_ref()
            .map_or(0, |file| number("schema", &file.name));
        self.always = self.always.wrapping_add(schema);

        let (first, before) = (self.items.len(), self.consolidations.len());
        let in_force = |name: &TimestampedName| counts(name, times, *sparse);
        self.items.extend(listing.fragments.iter().map(|entry| Item {
            hash: number("fragment", &entry.name),
            counts: entry.uncommitted.is_none() && in_force(&entry.fragment.name),
            replaced_by: entry.vacuums.iter().map(|vacuum| before + vacuum).collect(),
        }));
        for vacuum in &listing.vacuums {
            stamps.push(vacuum.parsed.timestamps);
            self.consolidations.push(Consolidation {
                counts: is_in_force(vacuum, listing, times, *sparse),
                result: listing.position(&vacuum.stem).map(|index| first + index),
            });
        }
        self.items.extend(listing.deletes.iter().map(|file| Item {
            hash: number("delete", &file.name),
            counts: times.covers(file.parsed.timestamps),
            replaced_by: Vec::new(),
        }));
        let (first, before) = (self.items.len(), self.consolidations.len());
        let replaced = Replaced::by(&listing.metadata.vacuums);
        let mut results = HashMap::new();
        for (index, file) in listing.metadata.files.iter().enumerate() {
            let name = file_name(&file.path);
            results.insert(name, first + index);
            let replacing = replaced.vacuums_of(name).into_iter();
            self.items.push(Item {
                hash: number("metadata", &String::from_utf8_lossy(name)),
                counts: times.covers(file.parsed.timestamps),
                replaced_by: replacing.map(|index| before + index).collect(),
            });
        }
        for Vacuum { stem, parsed, .. } in &listing.metadata.vacuums {
            stamps.push(parsed.timestamps);
            self.consolidations.push(Consolidation {
                counts: times.covers(parsed.timestamps),
                result: results.get(stem.as_bytes()).copied(),
            });
        }
    }

    /// Whether each item is seen.
    fn seen(&self) -> Vec<bool> {
        let in_force = |i: &usize| self.consolidations[*i].counts;
        let seen = self.items.iter();
        seen.map(|item| item.counts && !item.replaced_by.iter().any(in_force))
            .collect()
    }

    /// The hash of a state.
    fn hash(&self, seen: &[bool]) -> u64 {
        let seen = self.items.iter().zip(seen).filter(|(_, seen)| **seen);
        seen.fold(self.always, |sum, (item, _)| sum.wrapping_add(item.hash))
    }

    /// The items of the state with the hash `wanted`; None if it is not found.
    fn find(&self, wanted: u64) -> Option<Vec<bool>> {
        let seen = self.seen();
        let mut replaced = vec![Vec::new(); self.consolidations.len()];
        for (index, item) in self.items.iter().enumerate() {
            for consolidation in &item.replaced_by {
                replaced[*consolidation].push(index);
            }
        }
        let by_hash = self.items.iter().enumerate();
        let mut search = Search {
            items: self,
            wanted,
            by_hash: by_hash.map(|(index, item)| (item.hash, index)).collect(),
            replaced,
            hash: self.hash(&seen),
            seen,
            undone: vec![false; self.consolidations.len()],
            visited: HashSet::new(),
            work: 0,
        };
        search.visit(0).then_some(search.seen)
    }
}

/// A search for a state, which undoes one consolidation after the other.
struct Search<'i> {
    items: &'i Items,
    wanted: u64,
    by_hash: HashMap<u64, usize>,
    /// What each consolidation replaced, as indexes of items.
    replaced: Vec<Vec<usize>>,
    /// The consolidations that are undone.
    undone: Vec<bool>,
    /// The items that are seen then, and their hash.
    seen: Vec<bool>,
    hash: u64,
    /// The hashes of the states that were looked at.
    visited: HashSet<u64>,
    /// The items and consolidations that were looked at.
    work: usize,
}

impl Search<'_> {
    /// When to give up.
    const MAX_WORK: usize = 1 << 24;

    /// The most consolidations to undo at a time.
    const MAX_UNDONE: usize = 1 << 10;

    /// The states in which to look for two late commits, which takes a look at each item.
    const MAX_WITH_TWO: usize = 1 << 6;

    /// Looks at the state before the `depth` consolidations that are undone, and at those before others too.
    /// Returns whether it is found, in `seen`.
    fn visit(&mut self, depth: usize) -> bool {
        if self.work > Self::MAX_WORK || !self.visited.insert(self.hash) {
            return false;
        }
        if self.leave_out_late() {
            return true;
        }
        self.work += self.items.order.len();
        for &i in self.items.order.iter().filter(|_| depth < Self::MAX_UNDONE) {
            if !self.is_undoable(i) {
                continue;
            }
            let changed = self.undo(i);
            if self.visit(depth + 1) {
                return true;
            }
            self.undone[i] = false;
            changed.into_iter().for_each(|item| self.change(item));
        }
        false
    }

    /// Whether consolidation `i` is in force, and what it has made is seen.
    fn is_undoable(&self, i: usize) -> bool {
        let Consolidation { counts, result } = &self.items.consolidations[i];
        *counts && !self.undone[i] && result.is_some_and(|result| self.seen[result])
    }

    /// Undoes consolidation `i`. Returns the items that are then seen, or not, other than before.
    fn undo(&mut self, i: usize) -> Vec<usize> {
        self.undone[i] = true;
        let (items, undone) = (self.items, &self.undone);
        let in_force = |i: &usize| items.consolidations[*i].counts && !undone[*i];
        let reappears = |item: &Item| item.counts && !item.replaced_by.iter().any(in_force);
        let replaced = self.replaced[i].iter().copied();
        let replaced = replaced.filter(|index| reappears(&items.items[*index]));
        let changed: Vec<usize> = replaced.chain(items.consolidations[i].result).collect();
        changed.iter().for_each(|item| self.change(*item));
        self.work += self.replaced[i].len();
        changed
    }

    /// Makes an item seen, or unseen.
    fn change(&mut self, item: usize) {
        let hash = self.items.items[item].hash;
        self.hash = match self.seen[item] {
            true => self.hash.wrapping_sub(hash),
            false => self.hash.wrapping_add(hash),
        };
        self.seen[item] = !self.seen[item];
    }

    /// Whether the items that are seen are the state, or are without one or two that were committed later
    /// than they say. Leaves those out.
    fn leave_out_late(&mut self) -> bool {
        let rest = self.hash.wrapping_sub(self.wanted);
        let seen = |hash: u64| self.by_hash.get(&hash).copied().filter(|i| self.seen[*i]);
        let late: Vec<usize> = match seen(rest) {
            _ if rest == 0 => Vec::new(),
            Some(one) => vec![one],
            None if self.visited.len() > Self::MAX_WITH_TWO => return false,
            None => {
                let all = self.items.items.iter().enumerate();
                let mut pairs = all.filter(|(one, _)| self.seen[*one]).filter_map(|(one, item)| {
                    let other = seen(rest.wrapping_sub(item.hash))?;
                    (one != other).then(|| vec![one, other])
                });
                let pair = pairs.next();
                self.work += self.items.items.len();
                match pair {
                    Some(pair) => pair,
                    None => return false,
                }
            }
        };
        late.into_iter().for_each(|item| self.change(item));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(hash: u64, replaced_by: &[usize]) -> Item {
        let replaced_by = replaced_by.to_vec();
        Item {
            hash,
            counts: true,
            replaced_by,
        }
    }

    /// Four writes: 1 and 2 were consolidated into 10, 4 and 8 into 100, and then both into 1000.
    fn items() -> Items {
        let result = |index| Consolidation {
            counts: true,
            result: Some(index),
        };
        Items {
            always: 0,
            items: vec![
                item(1, &[0]),
                item(2, &[0]),
                item(4, &[1]),
                item(8, &[1]),
                item(10, &[2]),
                item(100, &[2]),
                item(1000, &[]),
            ],
            consolidations: vec![result(4), result(5), result(6)],
            order: vec![2, 1, 0],
        }
    }

    /// The hashes of the items of a state.
    fn found(items: &Items, wanted: u64) -> Option<Vec<u64>> {
        let seen = items.find(wanted)?;
        let seen = items.items.iter().zip(seen).filter(|(_, seen)| *seen);
        Some(seen.map(|(item, _)| item.hash).collect())
    }

    #[test]
    fn consolidations_are_undone_one_by_one() {
        let mut items = items();
        for order in [vec![2, 1, 0], vec![0, 1, 2], vec![1, 0, 2]] {
            items.order = order;
            assert_eq!(found(&items, 1000), Some(vec![1000]));
            assert_eq!(found(&items, 110), Some(vec![10, 100]));
            assert_eq!(found(&items, 103), Some(vec![1, 2, 100]));
            assert_eq!(found(&items, 22), Some(vec![4, 8, 10]));
            assert_eq!(found(&items, 15), Some(vec![1, 2, 4, 8]));
            // No states: what replaced others beside them.
            for none in [1110, 1103, 0xffff] {
                assert_eq!(found(&items, none), None, "{none}");
            }
        }
    }

    #[test]
    fn what_has_been_vacuumed_or_is_not_in_force_stays_consolidated() {
        let mut items = items();
        // The first two writes are gone.
        items.items[0].counts = false;
        items.items[1].counts = false;
        assert_eq!(found(&items, 15), None);
        assert_eq!(found(&items, 22), Some(vec![4, 8, 10]));
        // Of another time: the last consolidation is later.
        items.consolidations[2].counts = false;
        items.items[6].counts = false;
        assert_eq!(found(&items, 1000), None);
        assert_eq!(found(&items, 110), Some(vec![10, 100]));
    }

    #[test]
    fn commits_that_came_late_are_left_out() {
        let mut items = items();
        items.items.push(item(1 << 20, &[]));
        assert_eq!(found(&items, 15), Some(vec![1, 2, 4, 8]));
        items.items.push(item(1 << 30, &[]));
        assert_eq!(found(&items, 110), Some(vec![10, 100]));
        assert_eq!(found(&items, 110 + (1 << 30)), Some(vec![10, 100, 1 << 30]));
        items.items.push(item(1 << 40, &[]));
        assert_eq!(found(&items, 1000), None);
    }

    #[test]
    fn many_consolidations_are_undone_in_their_order() {
        let most = 3000;
        let items = Items {
            always: 7,
            items: (0..most)
                .flat_map(|i| [item(1 << 32 | i as u64, &[i]), item(3 << 40 | i as u64, &[])])
                .collect(),
            consolidations: (0..most)
                .map(|i| Consolidation {
                    counts: true,
                    result: Some(2 * i + 1),
                })
                .collect(),
            order: (0..most).rev().collect(),
        };
        // Without the last `count` consolidations: of each pair, what was replaced, or what replaced it.
        let undone = |count: usize| {
            let seen = (0..most).flat_map(|i| [i >= most - count, i < most - count]);
            items.hash(&seen.collect::<Vec<bool>>())
        };
        assert!(items.find(undone(0)).is_some());
        assert!(items.find(undone(500)).is_some());
        assert!(items.find(1).is_none(), "the search ends");
    }

    #[test]
    fn the_pin_of_an_array_is_of_the_names_in_it() {
        let array = Array::open("tests/data/sample/weather").unwrap();
        let pin_of = |end| {
            let times = Some(TimeRange::until(end));
            array.pin(&array.snapshot(times).unwrap()).unwrap()
        };
        let now = array.pin(&array.snapshot(None).unwrap()).unwrap();
        // As other programs compute it from the table above.
        let expected = Pin {
            time: 1_739_491_200_000,
            hash: 0xb591_1a3a_f383_4452,
        };
        assert_eq!(now, expected);
        let before = pin_of(now.time - 1);
        // Of the metadata.
        assert_eq!(before.time, 1_738_713_600_000);
        assert_eq!(pin_of(u64::MAX - 1), now);

        let pinned = array.pinned(before).unwrap();
        let snapshot = pinned.snapshot(&array).unwrap();
        assert_eq!(
            (snapshot.fragments().count(), snapshot.metadata().count()),
            (1, 1)
        );
        assert!(Arc::ptr_eq(&pinned, &array.pinned(before).unwrap()));
        for other in [
            Pin {
                time: before.time,
                ..now
            },
            Pin {
                hash: now.hash + 1,
                ..now
            },
        ] {
            let error = array.pinned(other).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io(libc::ESTALE));
        }
    }

    #[test]
    fn few_states_are_remembered() {
        let mut pins = Pins::default();
        let listing = Arc::new(ArrayListing::of(
            None,
            Vec::new(),
            Vec::new(),
            Vec::new(),
            Vec::new(),
        ));
        let snapshot = Arc::new(Snapshot::new(listing, TimeRange::ALL, false));
        for hash in [0, 1, 2, 2, 3] {
            pins.remember(Arc::new(Pinned {
                pin: Pin { time: 0, hash },
                path: PathBuf::new(),
                snapshot: snapshot.clone(),
                labels: HashMap::new(),
                size: MAX_REMEMBERED / 2,
                listing: Mutex::default(),
            }));
        }
        let mut kept: Vec<u64> = pins.found.iter().map(|(pin, _)| pin.hash).collect();
        kept.sort_unstable();
        assert_eq!((kept, pins.size), (vec![2, 3], MAX_REMEMBERED));
    }
}
