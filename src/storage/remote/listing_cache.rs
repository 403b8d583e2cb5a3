//! Cached listings of an object store.
//!
//! A prefix whose keys fit into one page (1000 keys) is listed flat: one request gives everything below it,
//! with lengths, times and ETags. Larger prefixes are listed directory by directory, when asked for, except
//! directories with few keys per entry, which are listed flat to their end.

use super::Pages;
use super::directories::{
    Child, Depth, Directory, File, Listing, Object, Page, Tree, is_within, join, split,
};
use super::guarded;
use super::listing_room::{Listings, Room, Share, Tokens};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::lock;
use crate::runtime::requester::is_of_others;
use crate::runtime::single_flight::Flight;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Directories with at most this many keys per entry are listed flat even over several pages.
const MAX_FLAT_KEYS_PER_NAME: usize = 8;

/// Parts of a directory that are listed concurrently: in some stores a page is as slow as many small reads.
const CONCURRENT_PARTS: usize = 8;

/// How long a caller waits for a new listing before it uses an expired one.
const REFRESH_WAIT: Duration = Duration::from_secs(1);

/// How long after its expiry a listing may still be used while the store is slow.
const MAX_STALENESS: Duration = Duration::from_secs(8);

/// How much older what is derived from a listing may be at most.
const MADE_OF_IT: Duration = Duration::from_secs(1);

/// The cached listings of a store.
pub(super) struct ListingCache {
    pages: Arc<Pages>,
    runtime: tokio::runtime::Handle,
    refresh: Option<Duration>,
    state: Arc<Mutex<Inner>>,
    room: Arc<Room>,
}

#[derive(Default)]
struct Inner {
    /// Whether the source has been listed.
    exists: bool,
    /// By path, in order: those below a directory are found without looking at all.
    directories: BTreeMap<String, Arc<Directory>>,
    /// By path.
    under_way: HashMap<String, Loading>,
    /// How often files without an ETag were found changed, by path.
    changes: HashMap<String, u64>,
}

impl Listings for Mutex<Inner> {
    fn drop_all(&self) {
        lock(self).directories.clear();
    }
}

/// A listing that is under way.
#[derive(Clone)]
struct Loading {
    begun: Instant,
    flight: Arc<Flight<()>>,
    /// Whether something in it is known to have changed since it was begun.
    forgotten: bool,
}

/// What the cache knows about a directory.
enum Cached {
    Here(Arc<Directory>),
    Absent,
    /// This directory must be listed first, to this depth.
    Unknown(String, Depth),
}

impl ListingCache {
    /// An empty cache over `pages`. Listings expire after `refresh`; with None, never.
    pub(super) fn new(
        pages: Arc<Pages>,
        runtime: tokio::runtime::Handle,
        refresh: Option<Duration>,
        room: Arc<Room>,
    ) -> Self {
        let state: Arc<Mutex<Inner>> = Arc::default();
        let listings = Arc::downgrade(&state);
        room.add(listings);
        ListingCache {
            pages,
            runtime,
            refresh,
            state,
            room,
        }
    }

    /// How old a listing may be at most, with what is derived from it; None if there is no bound.
    pub(super) fn lag(&self) -> Option<Duration> {
        let refresh = self.refresh?;
        Some(refresh.saturating_add(MAX_STALENESS + REFRESH_WAIT + MADE_OF_IT))
    }

    /// Whether `directory` has not expired for a call that began at `asked`. A listing that began later
    /// counts as fresh, because making it may take longer than it is valid, or something in it may change at
    /// any time. `grace` extends its validity.
    fn is_fresh(&self, directory: &Directory, asked: Instant, grace: Duration) -> bool {
        let listing = &directory.listing;
        let holds = |refresh: Duration| listing.made.elapsed() < refresh.saturating_add(grace);
        let is_valid = || !listing.forgotten.load(Ordering::Relaxed) && self.refresh.is_none_or(holds);
        listing.made >= asked || is_valid()
    }

    fn known(&self, state: &Inner, path: &str, asked: Instant, grace: Duration) -> Cached {
        if let Some(known) = state.directories.get(path) {
            if !self.is_fresh(known, asked, grace) {
                return Cached::Unknown(known.listing.path.clone(), known.listing.depth);
            }
            return match known.is_gone() && !path.is_empty() {
                true => Cached::Absent,
                false => Cached::Here(known.clone()),
            };
        }
        if path.is_empty() {
            return Cached::Unknown(String::new(), Depth::Unknown);
        }
        let (parent, name) = split(path);
        match self.known(state, parent, asked, grace) {
            Cached::Here(parent) => match parent.children.get(name) {
                Some(Child::Directory) => Cached::Unknown(path.to_owned(), Depth::Unknown),
                Some(Child::File(_)) | None => Cached::Absent,
            },
            other => other,
        }
    }

    /// The directory at `path`, listed if need be; None if it does not exist.
    pub(super) fn directory(&self, path: &str) -> Result<Option<Arc<Directory>>> {
        let mut asked = Instant::now();
        let mut missing = false;
        loop {
            let (loading, listed, old) = {
                let mut state = lock(&self.state);
                match self.known(&state, path, asked, Duration::ZERO) {
                    Cached::Here(directory) => return Ok(Some(directory)),
                    Cached::Absent => return Ok(None),
                    Cached::Unknown(listed, depth) => {
                        let old = match self.known(&state, path, asked, MAX_STALENESS) {
                            Cached::Here(directory) => Some(Some(directory)),
                            Cached::Absent => Some(None),
                            Cached::Unknown(..) => None,
                        };
                        (self.load(&mut state, listed.clone(), depth), listed, old)
                    }
                }
            };
            if let Some(old) = old
                && !loading.flight.arrives_by(loading.begun + REFRESH_WAIT)
            {
                return Ok(old);
            }
            let forget = || {
                let mut state = lock(&self.state);
                state
                    .under_way
                    .retain(|_, other| !Arc::ptr_eq(&other.flight, &loading.flight));
            };
            match loading.flight.wait(&forget) {
                Err(e) if is_of_others(&e) => {}
                // The directory above it may have been listed before this one was removed.
                Err(e) if e.kind() == ErrorKind::NotFound && !listed.is_empty() => {
                    if missing {
                        let cause = format!("the server lists {listed:?}, and says: {e}");
                        return Err(Error::new(ErrorKind::Io(libc::EIO), cause));
                    }
                    missing = true;
                    self.forget(split(&listed).0, Duration::ZERO);
                    asked = Instant::now();
                }
                result => result?,
            }
        }
    }

    /// Whether the contents of the directory at `path` are known without a request.
    pub(super) fn is_known(&self, path: &str) -> bool {
        !matches!(
            self.known(&lock(&self.state), path, Instant::now(), Duration::ZERO),
            Cached::Unknown(..)
        )
    }

    /// The entry at `path`, which is not the root; None if it does not exist.
    pub(super) fn child(&self, path: &str) -> Result<Option<Child>> {
        let (parent, name) = split(path);
        let directory = self.directory(parent)?;
        Ok(directory.and_then(|directory| directory.children.get(name).cloned()))
    }

    /// The cached file at `path`, however old. Makes no request.
    pub(super) fn peek(&self, path: &str) -> Option<Arc<File>> {
        let (parent, name) = split(path);
        match lock(&self.state).directories.get(parent)?.children.get(name)? {
            Child::File(file) => Some(file.clone()),
            Child::Directory => None,
        }
    }

    /// Begins to list those of `paths` that are not cached; of one in an unknown directory, that directory.
    pub(super) fn will_list<'p>(&self, paths: impl Iterator<Item = &'p str>) {
        let asked = Instant::now();
        let mut state = lock(&self.state);
        for path in paths {
            if let Cached::Unknown(path, depth) = self.known(&state, path, asked, Duration::ZERO) {
                self.load(&mut state, path, depth);
            }
        }
    }

    /// Makes the next call for `path` list it again, if its listing was begun `age` ago or earlier. Returns
    /// whether it was.
    pub(super) fn forget(&self, path: &str, age: Duration) -> bool {
        let mut state = lock(&self.state);
        for (listed, loading) in &mut state.under_way {
            loading.forgotten |= is_within(path, listed) && loading.begun.elapsed() >= age;
        }
        let mut above = path;
        loop {
            if let Some(directory) = state.directories.get(above) {
                let old = directory.listing.made.elapsed() >= age;
                directory.listing.forgotten.fetch_or(old, Ordering::Relaxed);
                return old;
            }
            if above.is_empty() {
                return false;
            }
            above = split(above).0;
        }
    }

    /// Notes that the file at `path`, which is listed without an ETag, has changed: whatever the next listing
    /// says of it, it is another version.
    pub(super) fn note_change(&self, path: &str) {
        let mut state = lock(&self.state);
        *state.changes.entry(path.to_owned()).or_default() += 1;
    }

    /// Begins to list `path`, or joins a listing under way.
    fn load(&self, state: &mut Inner, path: String, depth: Depth) -> Loading {
        if let Some(loading) = state.under_way.get(&path) {
            return loading.clone();
        }
        let begun = Instant::now();
        let flight = Arc::new(Flight::default());
        let loading = Loading {
            begun,
            flight: flight.clone(),
            forgotten: false,
        };
        state.under_way.insert(path.clone(), loading.clone());
        let (pages, shared, done) = (self.pages.clone(), self.state.clone(), flight.clone());
        let room = self.room.clone();
        let task = self.runtime.spawn(async move {
            let lister = Lister {
                pages: &pages,
                path: &path,
                room: &room,
            };
            let result = guarded(lister.list(depth)).await;
            let mut state = lock(&shared);
            let forgotten = state.under_way.remove(&path).is_some_and(|own| own.forgotten);
            let result = result.and_then(|listed| state.take(&path, begun, forgotten, listed));
            drop(state);
            done.finish(result);
        });
        flight.abort_when_abandoned(move || task.abort());
        loading
    }
}

/// The result of one listing.
struct Listed {
    /// The directory that was listed, to `depth`.
    tree: Tree,
    depth: Depth,
    /// Subdirectories that the first page contains completely.
    complete: Vec<Tree>,
    share: Arc<Share>,
}

impl Inner {
    /// Takes what a listing of `path`, begun at `made`, has found, except what is known from a later one.
    fn take(&mut self, path: &str, made: Instant, forgotten: bool, listed: Listed) -> Result<()> {
        let empty = |tree: &Tree| tree.directories.values().all(|d| d.children.is_empty());
        if path.is_empty() && empty(&listed.tree) {
            return Err(match self.exists {
                false => Error::not_found("not found: no object is below this URL"),
                true => Error::new(ErrorKind::Io(libc::EIO), "the source does not exist any more"),
            });
        }
        self.exists = true;
        // Drops the subdirectories from the previous listing of `path`.
        let below = match path {
            "" => String::new(),
            _ => format!("{path}/"),
        };
        let old: Vec<String> = self
            .directories
            .range::<str, _>((Bound::Excluded(&*below), Bound::Unbounded))
            .take_while(|(inside, _)| inside.starts_with(&below))
            .filter(|(_, directory)| directory.listing.path == path && directory.listing.made <= made)
            .map(|(inside, _)| inside.clone())
            .collect();
        for inside in old {
            self.directories.remove(&inside);
        }
        let depths = listed.complete.into_iter().map(|tree| (tree, Depth::Flat));
        for (mut tree, depth) in depths.chain([(listed.tree, listed.depth)]) {
            for (path, changes) in &self.changes {
                tree.note_changes(path, *changes);
            }
            let listing = Arc::new(Listing {
                path: tree.root.clone(),
                depth,
                made,
                forgotten: AtomicBool::new(forgotten),
                _share: listed.share.clone(),
            });
            let root = tree.root.clone();
            for (path, directory) in tree.finish(&listing) {
                if (depth == Depth::Flat || path == root) && !self.is_known_later(&path, made) {
                    self.directories.insert(path, directory);
                }
            }
        }
        Ok(())
    }

    /// Whether the directory `path` is in a listing that was begun after `made`, or would be if it existed.
    fn is_known_later(&self, path: &str, made: Instant) -> bool {
        let mut above = path;
        loop {
            if let Some(known) = self.directories.get(above)
                && known.listing.made > made
                && (above == path || known.listing.depth == Depth::Flat)
            {
                return true;
            }
            if above.is_empty() {
                return false;
            }
            above = split(above).0;
        }
    }
}

/// Lists one directory.
struct Lister<'a> {
    pages: &'a Pages,
    /// The directory.
    path: &'a str,
    room: &'a Arc<Room>,
}

impl Lister<'_> {
    /// Takes the memory for a page. If there is too little, all listings of the mount are dropped.
    fn admit(&self, share: &Share, page: &Page) -> Result<()> {
        share.admit(page, || self.room.drop_listings())
    }

    /// Whether the store lists in byte order, as far as is known from it and from `page`.
    fn is_ordered(&self, page: &Page) -> bool {
        self.pages.ordered && page.objects.is_sorted_by(|one, other| one.path <= other.path)
    }

    /// Lists the directory to the depth that its first page suggests.
    async fn list(&self, depth: Depth) -> Result<Listed> {
        let names = self.pages.expected(self.path);
        if depth != Depth::Names
            && let Some(first) = self.pages.flat(self.path, None, None).await?
        {
            let share = Share::of(self.room);
            self.admit(&share, &first)?;
            let (flat, mut complete) = split_page(self.path, &first);
            if !self.is_ordered(&first) {
                // What else is in them may be on any page.
                complete.clear();
            }
            if first.next.is_some() && !flat {
                return self.list_names(complete, share).await;
            }
            match self.list_flat(first, &names, share).await {
                // The names alone may fit.
                Err(e) if e.kind() == ErrorKind::LimitExceeded && !complete.is_empty() => {}
                listed => return listed,
            }
        }
        self.list_names(Vec::new(), Share::of(self.room)).await
    }

    async fn list_names(&self, complete: Vec<Tree>, share: Arc<Share>) -> Result<Listed> {
        let mut tree = Tree::new(self.path);
        let (mut next, mut tokens) = (None, Tokens::default());
        loop {
            let mut page = self.pages.names(self.path, next).await?;
            self.admit(&share, &page)?;
            next = tokens.next(&mut page)?;
            tree.add(page);
            if next.is_none() {
                return Ok(Listed {
                    tree,
                    depth: Depth::Names,
                    complete,
                    share,
                });
            }
        }
    }

    async fn list_flat(&self, mut first: Page, names: &[String], share: Arc<Share>) -> Result<Listed> {
        let cuts = match first.next {
            Some(_) if self.is_ordered(&first) => cuts(self.path, &first, names),
            _ => Vec::new(),
        };
        let mut tree = Tree::new(self.path);
        let mut tokens = Tokens::default();
        let mut next = tokens.next(&mut first)?;
        tree.add(first);
        let ends: Vec<_> = cuts.iter().skip(1).cloned().map(Some).chain([None]).collect();
        let parts = cuts.into_iter().zip(ends).map(|(after, end)| {
            let share = &share;
            async move { self.list_between(share, &after, end.as_deref()).await }
        });
        let parts: Vec<_> = stream::iter(parts)
            .buffered(CONCURRENT_PARTS)
            .try_collect()
            .await?;
        let parts: Option<Vec<Vec<Page>>> = parts.into_iter().collect();
        if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
            next = None;
            parts.into_iter().flatten().for_each(|page| tree.add(page));
        }
        while let Some(token) = next {
            let page = self.pages.flat(self.path, Some(token), None).await?;
            let mut page = page.ok_or_else(|| Error::internal("a store with pages has none"))?;
            self.admit(&share, &page)?;
            next = tokens.next(&mut page)?;
            tree.add(page);
        }
        Ok(Listed {
            tree,
            depth: Depth::Flat,
            complete: Vec::new(),
            share,
        })
    }

    /// The pages of all objects in the directory after the path `after`, up to the path `end` or a little
    /// further. None if the store cannot begin there.
    async fn list_between(&self, share: &Share, after: &str, end: Option<&str>) -> Result<Option<Vec<Page>>> {
        let mut pages = Vec::new();
        let (mut next, mut from, mut tokens) = (None, Some(after), Tokens::default());
        loop {
            let Some(mut page) = self.pages.flat(self.path, next, from.take()).await? else {
                return Ok(None);
            };
            self.admit(share, &page)?;
            next = tokens.next(&mut page)?;
            let begins_before = page.objects.first().is_some_and(|object| *object.path <= *after);
            if begins_before || !self.is_ordered(&page) {
                return Ok(None);
            }
            let last = page.objects.last().map(|object| object.path.as_str());
            let done = next.is_none() || end.is_some_and(|end| last >= Some(end));
            pages.push(page);
            if done {
                return Ok(Some(pages));
            }
        }
    }
}

/// Paths at which to split the rest of a flat listing of the directory `path` into concurrent parts. Each
/// part fits a page if all entries have as many keys as those on the first page. `names` are the expected
/// entries, in byte order.
fn cuts(path: &str, first: &Page, names: &[String]) -> Vec<String> {
    let inside = |object: &Object| {
        let rest = object.path.strip_prefix(path)?;
        let (name, file) = rest.trim_start_matches('/').split_once('/')?;
        Some((name.to_owned(), file.to_owned()))
    };
    // The keys of the last entry may continue on the next page.
    let Some((end, last)) = first
        .objects
        .last()
        .and_then(|object| Some((object, inside(object)?.0)))
    else {
        return Vec::new();
    };
    let mut keys: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (name, file) in first.objects.iter().filter_map(inside) {
        let (count, newest) = keys.entry(name).or_default();
        (*count, *newest) = (*count + 1, file);
    }
    let whole = keys.iter().filter(|(name, _)| **name != last);
    let Some((most, file)) = whole.map(|(_, (count, file))| (*count, file)).max() else {
        return Vec::new();
    };
    let from = names.partition_point(|name| *name <= last);
    let rest = names.get(from..).and_then(<[String]>::split_last);
    let rest = rest.map(|(_, rest)| rest).unwrap_or_default();
    // Each part begins right after the last key of the previous one, so no key is listed twice.
    let ends = rest
        .chunks_exact((first.objects.len() / most).max(1))
        .filter_map(|names| names.last());
    let ends = ends.map(|name| join(path, &join(name, file)));
    [end.path.clone()].into_iter().chain(ends).collect()
}

/// Whether to list a directory with this first page flat, and the subdirectories that are complete in it if
/// the store lists in byte order.
fn split_page(path: &str, page: &Page) -> (bool, Vec<Tree>) {
    let mut trees: BTreeMap<&str, Tree> = BTreeMap::new();
    let mut files = 0_usize;
    let mut last = "";
    for object in &page.objects {
        let below = match path {
            "" => Some(object.path.as_str()),
            _ => object
                .path
                .strip_prefix(path)
                .and_then(|rest| rest.strip_prefix('/')),
        };
        let Some(below) = below else { continue };
        let name = below.split('/').next().unwrap_or_default();
        last = name;
        if below.contains('/') {
            let tree = trees.entry(name).or_insert_with(|| Tree::new(&join(path, name)));
            tree.add(Page {
                objects: vec![object.clone()],
                ..Page::default()
            });
        } else {
            files += 1;
        }
    }
    let names = trees.len() + files;
    // The page may not contain all of the last one.
    trees.remove(last);
    let flat = page.objects.len() <= names.saturating_mul(MAX_FLAT_KEYS_PER_NAME);
    (flat, trees.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::super::store::OPEN_TIMEOUT;
    use super::super::testing::TestStore;
    use super::super::{RemoteSettings, RemoteStorage};
    use super::*;
    use crate::runtime::processor_time;
    use std::thread;

    #[test]
    fn a_first_listing_is_waited_for_while_its_keys_are_sorted() {
        let store = TestStore::new(1000);
        store.put("p/a", b"1");
        let settings = RemoteSettings {
            refresh: None,
            disk_cache: None,
            stats: Arc::default(),
            memory: Arc::default(),
        };
        let storage = RemoteStorage::new(store.store("p"), settings).unwrap();
        // As if the last page had come long ago.
        *lock(&storage.pages.latest) = Instant::now().checked_sub(2 * OPEN_TIMEOUT);
        let sorting = lock(&storage.listings.state);
        let until = Instant::now() + Duration::from_millis(50);
        thread::scope(|scope| {
            let listing = scope.spawn(|| storage.list_root(until, &Default::default()));
            thread::sleep(Duration::from_millis(300));
            drop(sorting);
            listing.join().unwrap().unwrap();
        });
    }

    fn listed(root: &str, paths: &[&str]) -> Listed {
        let mut tree = Tree::new(root);
        let objects = paths.iter().map(|path| Object {
            path: (*path).to_owned(),
            len: 1,
            mtime: 0,
            etag: None,
        });
        tree.add(Page {
            objects: objects.collect(),
            ..Page::default()
        });
        Listed {
            tree,
            depth: Depth::Flat,
            complete: Vec::new(),
            share: Share::of(&Room::new()),
        }
    }

    #[test]
    fn a_listing_of_one_of_very_many_directories_takes_little_work() {
        let mut state = Inner::default();
        let before = processor_time();
        for number in 0..40_000 {
            let path = format!("a{number}");
            let listed = listed(&path, &[&format!("{path}/b/x"), &format!("{path}/c")]);
            state.take(&path, Instant::now(), false, listed).unwrap();
        }
        let took = processor_time() - before;
        assert_eq!(state.directories.len(), 80_000);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[test]
    fn a_later_listing_of_a_directory_drops_what_was_below_it_alone() {
        let mut state = Inner::default();
        let made = Instant::now();
        for (path, files) in [
            ("a", &["a/b/x", "a/c/d/x"][..]),
            ("a-", &["a-/b/x"]),
            ("a/c/e", &["a/c/e/x"]),
            ("a0", &["a0/b/x"]),
            ("a", &["a/y"]),
        ] {
            state.take(path, made, false, listed(path, files)).unwrap();
        }
        let known: Vec<&str> = state.directories.keys().map(String::as_str).collect();
        assert_eq!(known, ["a", "a-", "a-/b", "a/c/e", "a0", "a0/b"]);
    }

    #[test]
    fn an_older_listing_does_not_replace_a_newer_one() {
        let older = Instant::now();
        let newer = older + Duration::from_millis(1);
        let mut state = Inner::default();
        state.take("a", newer, false, listed("a", &["a/new"])).unwrap();
        let old = listed("", &["a/old", "a/gone/x", "b/c/y"]);
        state.take("", older, false, old).unwrap();
        let known: Vec<&str> = state.directories.keys().map(String::as_str).collect();
        assert_eq!(known, ["", "a", "b", "b/c"]);
        assert!(state.directories["a"].children.contains_key("new"));
        // A later one does.
        let new = listed("", &["a/newest"]);
        state.take("", newer, false, new).unwrap();
        assert!(state.directories["a"].children.contains_key("newest"));
        assert!(!state.directories.contains_key("b"));
    }
}
