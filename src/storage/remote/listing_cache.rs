//! What is known of the names in an object store, for how long it holds, and how more is found out.
//!
//! A prefix is listed flat while that is cheap: one page of a thousand keys has everything below it, with
//! lengths, times and ETags. If there are more keys, only the names in the directory itself are listed, and
//! each directory in it when it is asked for. A directory with few keys for each of its names is listed flat
//! to its end nevertheless, to have the lengths.

use super::Pages;
use super::flight::Flight;
use crate::error::{Error, ErrorKind, Result};
use crate::requester::is_of_others;
use crate::storage::{EntryType, Metadata};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most keys for each name in a directory with which it is listed flat although it takes more than one
/// page.
const FLAT: usize = 8;

/// Parts of a directory that are listed at once: some stores take as long for a page as for many small reads.
const PARTS: usize = 8;

/// How long a caller waits for an expired listing to be made again, if it may use the old one instead.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long an expired listing may still be used: a slow store keeps nobody waiting for what is known.
const GRACE: Duration = Duration::from_secs(8);

/// Above this many names, of some 200 bytes each, those that were listed longest ago are forgotten.
const MOST_NAMES: usize = 1 << 20;

/// An object, as a listing has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    /// Its path below the source, with slashes.
    pub(super) path: String,
    pub(super) len: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) mtime: u64,
    pub(super) etag: Option<String>,
}

/// What a page of a listing has.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Object>,
    /// Paths of the directories, where these are listed.
    pub(super) directories: Vec<String>,
    /// Asks for the next page, where there is one.
    pub(super) next: Option<String>,
}

/// What a name in a directory is.
#[derive(Debug, Clone)]
pub(super) enum Child {
    File(Arc<File>),
    Directory,
}

/// A file of the source.
#[derive(Debug)]
pub(super) struct File {
    pub(super) len: u64,
    pub(super) mtime: u64,
    pub(super) etag: Option<String>,
    /// Path, length, and ETag or time.
    pub(super) version: (u64, u64, u64),
}

impl File {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            entry_type: EntryType::File,
            len: self.len,
            mtime: self.mtime,
            identity: self.version.0,
            version: self.version,
        }
    }
}

/// The names in a directory.
pub(super) struct Directory {
    /// In byte order.
    pub(super) children: BTreeMap<Box<str>, Child>,
    identity: u64,
    /// A hash over names, lengths and ETags.
    version: u64,
    mtime: u64,
    /// By which listing they are known.
    listing: Arc<Listing>,
}

impl Directory {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            entry_type: EntryType::Directory,
            len: 0,
            mtime: self.mtime,
            identity: self.identity,
            version: (self.identity, self.version, 0),
        }
    }

    /// Whether it has become empty: a store has no empty directories.
    fn is_gone(&self) -> bool {
        self.children.is_empty()
    }
}

/// A listing that was made.
struct Listing {
    /// Of what directory.
    path: String,
    /// Whether it went on below that.
    depth: Depth,
    made: Instant,
    /// It is known to be out of date.
    forgotten: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// Not known yet: whatever a first page says.
    Unknown,
    /// All that is below.
    Flat,
    /// Only the names in the directory.
    Names,
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// A directory whose names arrive one after the other.
#[derive(Default)]
struct Growing {
    children: BTreeMap<Box<str>, Child>,
    /// The newest of all objects below it.
    mtime: u64,
}

/// Directories made of the keys of a flat listing.
struct Tree {
    /// Without a slash at its end.
    root: String,
    directories: HashMap<String, Growing>,
}

/// `path` as parent and last component.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// `name` in the directory `path`.
pub(super) fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        _ => format!("{path}/{name}"),
    }
}

/// Whether `path` is `above` or lies below it.
fn is_within(path: &str, above: &str) -> bool {
    above.is_empty()
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Tree {
    fn new(root: &str) -> Tree {
        Tree {
            root: root.to_owned(),
            directories: HashMap::from([(root.to_owned(), Growing::default())]),
        }
    }

    fn directory(&mut self, path: &str) -> &mut Growing {
        if !self.directories.contains_key(path) {
            let (parent, name) = split(path);
            // A directory wins over a file of its name, which is a marker of no bytes.
            self.directory(parent)
                .children
                .insert(name.into(), Child::Directory);
        }
        self.directories.entry(path.to_owned()).or_default()
    }

    fn add(&mut self, page: Page) {
        for object in page.objects {
            // The marker of the directory itself comes as an object of its name.
            if object.path == self.root || !is_within(&object.path, &self.root) {
                continue;
            }
            let (parent, name) = split(&object.path);
            let version = (
                hash(&object.path),
                object.len,
                object.etag.as_ref().map_or(object.mtime, hash),
            );
            let file = Child::File(Arc::new(File {
                len: object.len,
                mtime: object.mtime,
                etag: object.etag,
                version,
            }));
            let directory = self.directory(parent);
            directory.mtime = directory.mtime.max(object.mtime);
            directory.children.entry(name.into()).or_insert(file);
        }
        for path in page.directories {
            if path != self.root && is_within(&path, &self.root) {
                let (parent, name) = split(&path);
                self.directory(parent)
                    .children
                    .insert(name.into(), Child::Directory);
            }
        }
    }

    /// Those within `root` as of `listing`.
    fn finish(self, listing: &Arc<Listing>) -> impl Iterator<Item = (String, Arc<Directory>)> {
        let mut mtimes: HashMap<String, u64> = HashMap::new();
        for (path, directory) in &self.directories {
            let mut above = path.as_str();
            loop {
                let newest = mtimes.entry(above.to_owned()).or_default();
                *newest = (*newest).max(directory.mtime);
                if above == self.root || above.is_empty() {
                    break;
                }
                above = split(above).0;
            }
        }
        self.directories.into_iter().map(move |(path, directory)| {
            let mut hasher = DefaultHasher::new();
            for (name, child) in &directory.children {
                name.hash(&mut hasher);
                match child {
                    Child::File(file) => file.version.hash(&mut hasher),
                    Child::Directory => 0_u8.hash(&mut hasher),
                }
            }
            let made = Directory {
                identity: hash(&path),
                version: hasher.finish(),
                mtime: mtimes.get(&path).copied().unwrap_or(0),
                children: directory.children,
                listing: listing.clone(),
            };
            (path, Arc::new(made))
        })
    }
}

/// What is known.
pub(super) struct ListingCache {
    pages: Arc<Pages>,
    runtime: tokio::runtime::Handle,
    refresh: Option<Duration>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By path.
    directories: HashMap<String, Arc<Directory>>,
    /// By path.
    under_way: HashMap<String, Loading>,
}

/// A listing that is under way.
#[derive(Clone)]
struct Loading {
    begun: Instant,
    flight: Arc<Flight<()>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the state says of a directory.
enum Known {
    Here(Arc<Directory>),
    Absent,
    /// This is to be listed first.
    Unknown(String, Depth),
}

impl ListingCache {
    /// Knows nothing yet. Listings of `pages` hold for `refresh`, or forever.
    pub(super) fn new(pages: Arc<Pages>, runtime: tokio::runtime::Handle, refresh: Option<Duration>) -> Self {
        ListingCache {
            pages,
            runtime,
            refresh,
            state: Arc::default(),
        }
    }

    /// Whether it still holds for a caller who asked at `asked`: making a listing may take longer than it
    /// holds. `grace` is added to the time that it holds.
    fn is_fresh(&self, directory: &Directory, asked: Instant, grace: Duration) -> bool {
        let listing = &directory.listing;
        let holds = |refresh: Duration| {
            listing.made >= asked || listing.made.elapsed() < refresh.saturating_add(grace)
        };
        !listing.forgotten.load(Ordering::Relaxed) && self.refresh.is_none_or(holds)
    }

    fn known(&self, state: &State, path: &str, asked: Instant, grace: Duration) -> Known {
        if let Some(known) = state.directories.get(path) {
            if !self.is_fresh(known, asked, grace) {
                return Known::Unknown(known.listing.path.clone(), known.listing.depth);
            }
            return match known.is_gone() && !path.is_empty() {
                true => Known::Absent,
                false => Known::Here(known.clone()),
            };
        }
        if path.is_empty() {
            return Known::Unknown(String::new(), Depth::Unknown);
        }
        let (parent, name) = split(path);
        match self.known(state, parent, asked, grace) {
            Known::Here(parent) => match parent.children.get(name) {
                Some(Child::Directory) => Known::Unknown(path.to_owned(), Depth::Unknown),
                Some(Child::File(_)) | None => Known::Absent,
            },
            other => other,
        }
    }

    /// The directory at `path`; None where there is none.
    pub(super) fn directory(&self, path: &str) -> Result<Option<Arc<Directory>>> {
        let asked = Instant::now();
        loop {
            let (loading, old) = {
                let mut state = lock(&self.state);
                match self.known(&state, path, asked, Duration::ZERO) {
                    Known::Here(directory) => return Ok(Some(directory)),
                    Known::Absent => return Ok(None),
                    Known::Unknown(listed, depth) => {
                        let old = match self.known(&state, path, asked, GRACE) {
                            Known::Here(directory) => Some(Some(directory)),
                            Known::Absent => Some(None),
                            Known::Unknown(..) => None,
                        };
                        (self.load(&mut state, listed, depth), old)
                    }
                }
            };
            if let Some(old) = old
                && !loading.flight.arrives_by(loading.begun + PATIENCE)
            {
                return Ok(old);
            }
            let forget = || {
                let mut state = lock(&self.state);
                state
                    .under_way
                    .retain(|_, other| !Arc::ptr_eq(&other.flight, &loading.flight));
            };
            match loading.flight.wait(forget) {
                Err(e) if is_of_others(&e) => {}
                result => result?,
            }
        }
    }

    /// Whether the contents of the directory at `path` are known without a request.
    pub(super) fn is_known(&self, path: &str) -> bool {
        !matches!(
            self.known(&lock(&self.state), path, Instant::now(), Duration::ZERO),
            Known::Unknown(..)
        )
    }

    /// What is at `path`, which is not the source itself.
    pub(super) fn child(&self, path: &str) -> Result<Option<Child>> {
        let (parent, name) = split(path);
        let directory = self.directory(parent)?;
        Ok(directory.and_then(|directory| directory.children.get(name).cloned()))
    }

    /// What is known of the file at `path` without a request, however old; None if nothing is.
    pub(super) fn peek(&self, path: &str) -> Option<Arc<File>> {
        let (parent, name) = split(path);
        match lock(&self.state).directories.get(parent)?.children.get(name)? {
            Child::File(file) => Some(file.clone()),
            Child::Directory => None,
        }
    }

    /// Begins to list those of `paths` that are known to exist, but whose contents are not known.
    pub(super) fn will_list<'p>(&self, paths: impl Iterator<Item = &'p str>) {
        let asked = Instant::now();
        let mut state = lock(&self.state);
        for path in paths {
            if let Known::Unknown(path, depth) = self.known(&state, path, asked, Duration::ZERO) {
                self.load(&mut state, path, depth);
            }
        }
    }

    /// Makes the next question about `path` list it again.
    pub(super) fn forget(&self, path: &str) {
        let state = lock(&self.state);
        let mut above = path;
        loop {
            if let Some(directory) = state.directories.get(above) {
                directory.listing.forgotten.store(true, Ordering::Relaxed);
                return;
            }
            if above.is_empty() {
                return;
            }
            above = split(above).0;
        }
    }

    /// Begins to list `path`, unless somebody does.
    fn load(&self, state: &mut State, path: String, depth: Depth) -> Loading {
        if let Some(loading) = state.under_way.get(&path) {
            return loading.clone();
        }
        let begun = Instant::now();
        let flight = Arc::new(Flight::new());
        let loading = Loading {
            begun,
            flight: flight.clone(),
        };
        state.under_way.insert(path.clone(), loading.clone());
        let (pages, shared, done) = (self.pages.clone(), self.state.clone(), flight.clone());
        let task = self.runtime.spawn(async move {
            let result = list(&pages, &path, depth).await;
            let mut state = lock(&shared);
            state.under_way.remove(&path);
            let result = result.and_then(|listed| state.take(&path, begun, listed));
            drop(state);
            done.finish(result);
        });
        flight.ends_with_the_last(task.abort_handle());
        loading
    }
}

/// What was listed at once.
struct Listed {
    /// The directory, in the depth given.
    tree: Tree,
    depth: Depth,
    /// Directories in it of which all is known besides.
    complete: Vec<Tree>,
}

impl State {
    fn take(&mut self, path: &str, made: Instant, listed: Listed) -> Result<()> {
        let empty = |tree: &Tree| tree.directories.values().all(|d| d.children.is_empty());
        if path.is_empty() && empty(&listed.tree) {
            return Err(match self.directories.is_empty() {
                true => Error::not_found("not found: no object is below this URL"),
                false => Error::new(ErrorKind::Io(libc::EIO), "nothing of the source exists any more"),
            });
        }
        // What the listing before it said of directories below.
        self.directories
            .retain(|below, directory| below == path || directory.listing.path != path);
        let depths = listed.complete.into_iter().map(|tree| (tree, Depth::Flat));
        for (tree, depth) in depths.chain([(listed.tree, listed.depth)]) {
            let listing = Arc::new(Listing {
                path: tree.root.clone(),
                depth,
                made,
                forgotten: AtomicBool::new(false),
            });
            match depth {
                Depth::Flat => self.directories.extend(tree.finish(&listing)),
                _ => {
                    let root = tree.root.clone();
                    let own = tree.finish(&listing).filter(|(path, _)| *path == root);
                    self.directories.extend(own);
                }
            }
        }
        let names = self
            .directories
            .values()
            .map(|directory| directory.children.len());
        if names.sum::<usize>() > MOST_NAMES {
            self.directories
                .retain(|other, directory| is_within(path, other) || directory.listing.path == path);
        }
        Ok(())
    }
}

/// Lists the directory `path`.
async fn list(pages: &Pages, path: &str, depth: Depth) -> Result<Listed> {
    let mut complete = Vec::new();
    let names = pages.expected(path);
    if depth != Depth::Names {
        match pages.flat(path, None).await {
            Ok(Some(first)) => {
                let (flat, some) = split_page(path, &first);
                if first.next.is_none() || flat {
                    return list_flat(pages, path, first, &names).await;
                }
                complete = some;
            }
            Ok(None) => {}
            Err(e) => return Err(e),
        }
    }
    let mut tree = Tree::new(path);
    let mut next = None;
    loop {
        let mut page = pages.names(path, next).await?;
        next = page.next.take();
        tree.add(page);
        if next.is_none() {
            return Ok(Listed {
                tree,
                depth: Depth::Names,
                complete,
            });
        }
    }
}

async fn list_flat(pages: &Pages, path: &str, first: Page, names: &[String]) -> Result<Listed> {
    let cuts = match first.next {
        Some(_) => cuts(path, &first, names),
        None => Vec::new(),
    };
    let mut tree = Tree::new(path);
    let mut next = first.next.clone();
    tree.add(first);
    let ends: Vec<_> = cuts.iter().skip(1).cloned().map(Some).chain([None]).collect();
    let parts = cuts
        .into_iter()
        .zip(ends)
        .map(|(after, end)| async move { pages.flat_between(path, &after, end.as_deref()).await });
    let parts: Vec<_> = stream::iter(parts).buffered(PARTS).try_collect().await?;
    let parts: Option<Vec<Vec<Page>>> = parts.into_iter().collect();
    if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
        next = None;
        parts.into_iter().flatten().for_each(|page| tree.add(page));
    }
    while let Some(token) = next {
        let mut page = pages.flat(path, Some(token)).await?.unwrap_or_default();
        next = page.next.take();
        tree.add(page);
    }
    Ok(Listed {
        tree,
        depth: Depth::Flat,
        complete: Vec::new(),
    })
}

/// Paths at which the rest of a flat listing of the directory `path` can be split into parts. Each part is a
/// page, if the other names have as many keys as those on the first page. `names` are the expected ones, in
/// byte order.
fn cuts(path: &str, first: &Page, names: &[String]) -> Vec<String> {
    let inside = |object: &Object| {
        let rest = object.path.strip_prefix(path)?;
        let (name, file) = rest.trim_start_matches('/').split_once('/')?;
        Some((name.to_owned(), file.to_owned()))
    };
    // The last name may go on behind the page.
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
    // Each part begins right after the last key of the one before, so no key is asked for twice.
    let ends = rest
        .chunks_exact((first.objects.len() / most).max(1))
        .filter_map(|names| names.last());
    let ends = ends.map(|name| join(path, &join(name, file)));
    [end.path.clone()].into_iter().chain(ends).collect()
}

/// Whether a directory with this first page is to be listed flat to its end; and the directories in it that
/// the page has whole.
fn split_page(path: &str, page: &Page) -> (bool, Vec<Tree>) {
    let mut trees: BTreeMap<&str, Tree> = BTreeMap::new();
    let mut names = 0_usize;
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
        if name != last {
            names += 1;
            last = name;
        }
        if below.contains('/') {
            let tree = trees.entry(name).or_insert_with(|| Tree::new(&join(path, name)));
            tree.add(Page {
                objects: vec![object.clone()],
                ..Page::default()
            });
        }
    }
    // The page may end in the midst of the last one.
    trees.remove(last);
    let flat = page.objects.len() <= names.saturating_mul(FLAT);
    (flat, trees.into_values().collect())
}
