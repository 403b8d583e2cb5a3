//! A source in an object store.
//!
//! Names, lengths and times come from listings ([`listing_cache`]); bytes are fetched by ranges ([`blob`]).
//! Requests are tasks of one runtime; callers block until they are done.
//!
//! | response | error |
//! |---|---|
//! | 404 for a key | `NotFound`; its listing is dropped |
//! | 404 for a directory of a web server | the one above is listed again; if that still has it, `Io(EIO)` |
//! | 401, 403, and 400 for expired credentials | `Io(EACCES)` |
//! | 412; ETag or length other than listed | `Changed`; its listing is dropped |
//! | 408, 429, 5xx, connection lost, body truncated | tried again for 30 s ([`retries`]), then `Io(EIO)` |
//! | another range than requested, 301, all else | `Io(EIO)` |
//!
//! Replies have bounds ([`replies`], [`listing_room`]), and few redirects are followed ([`redirects`]).

pub mod disk_cache;
pub mod following;
pub mod store;

mod aws_profile;
mod blob;
mod directories;
pub mod http;
mod listing_cache;
mod listing_room;
mod piece_pool;
mod pieces;
mod redirects;
mod replies;
mod runtime;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use super::location::with_usual_scheme;
use super::{Audience, Blob, DirEntry, EntryType, Metadata, Storage, Want};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::cache::ChunkCache;
use crate::runtime::lock;
use crate::runtime::stats::Stats;
use blob::{Fetcher, RemoteBlob, RemoteFile};
use directories::{Child, File, Object, Page, join};
use disk_cache::DiskCache;
use futures_util::FutureExt;
use http::{Failures, NO_SUCH_DIRECTORY};
use listing_cache::ListingCache;
use listing_room::Room;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::{Error as KeyError, Path as Key};
use object_store::{ListResult, ObjectMeta, ObjectStore, RetryConfig};
use piece_pool::Pool;
use replies::Refused;
use runtime::runtime;
use std::collections::HashMap;
use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};
use store::{LISTING_TIMEOUT, OPEN_TIMEOUT};

/// The store and prefix of a URL.
#[derive(Clone)]
pub struct Store {
    /// The objects.
    pub objects: Arc<dyn ObjectStore>,
    /// The same store, for listings page by page; None if the store has no pages.
    pub pages: Option<Arc<dyn PaginatedListStore>>,
    /// Whether these are in byte order, unless one shows that it is not.
    pub ordered: bool,
    /// The prefix of all keys in the source.
    pub prefix: Key,
    /// The URL for messages, without a trailing slash and without secrets.
    pub url: String,
    /// Whether it is read without credentials, so that everybody may read it.
    pub unsigned: bool,
    /// Deadline for the first page of its listing, so that mounting a missing source fails soon.
    pub open_until: Instant,
    /// The last failure of its requests.
    pub failures: Arc<Failures>,
}

/// Settings for reading a store.
#[derive(Clone)]
pub struct RemoteSettings {
    /// How long a listing is valid; None means forever.
    pub refresh: Option<Duration>,
    /// Keeps parts of objects between mounts.
    pub disk_cache: Option<Arc<DiskCache>>,
    /// Counts requests and bytes.
    pub stats: Arc<Stats>,
    /// Bounds what is kept in memory.
    pub memory: Arc<RemoteMemory>,
}

/// What the storages of a mount keep in memory together.
pub struct RemoteMemory {
    pool: Arc<Pool>,
    room: Arc<Room>,
}

impl Default for RemoteMemory {
    fn default() -> Self {
        RemoteMemory {
            pool: Arc::new(Pool::new()),
            room: Room::new(),
        }
    }
}

impl Drop for RemoteMemory {
    /// The pieces in the pool hold their files, which hold the pool.
    fn drop(&mut self) {
        self.pool.clear();
    }
}

/// Retries with pauses from 100 ms to 5 s, for 30 s in all.
pub fn retries() -> RetryConfig {
    let mut retries = RetryConfig {
        // Only the time limits retries: pauses are random, and so is the number of retries.
        max_retries: 1000,
        retry_timeout: Duration::from_secs(30),
        ..RetryConfig::default()
    };
    retries.backoff.init_backoff = Duration::from_millis(100);
    retries.backoff.max_backoff = Duration::from_secs(5);
    retries
}

const REFUSED: &str =
    "the store refuses these credentials (403): give others, or none (`-o anonymous`) if it is public";

const WANTED: &str = "the store wants credentials (401)";

const CLOCK: &str =
    "the store refuses the time of this request: the clock of this machine is wrong, or the store's is";

const ARCHIVED: &str = "the object is archived: restore it, or copy it to another storage class";

/// Converts an error of the store, without its description of the request.
fn convert(error: object_store::Error) -> Error {
    use object_store::Error as E;
    // The last one is Azure's, of a SAS.
    const EXPIRED: [&str; 4] = [
        "ExpiredToken",
        "TokenRefreshRequired",
        "InvalidToken",
        "Signature not valid in the specified time frame",
    ];
    const NO_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];
    let refused = |what: &str| Error::new(ErrorKind::Io(libc::EACCES), what);
    if let Some(Refused(reason)) = cause(&error) {
        return Error::new(ErrorKind::Io(libc::EIO), reason.as_str());
    }
    let text = chain(&error);
    let says = |codes: &[&str]| codes.iter().any(|code| text.contains(code));
    match &error {
        // Not `NotFound`, which would mean that a file is missing.
        E::NotFound { .. } | E::Generic { .. } if says(&NO_BUCKET) => {
            Error::new(ErrorKind::Io(libc::ENOENT), "not found: there is no such bucket")
        }
        E::NotFound { .. } => Error::not_found("the store has no such object"),
        _ if says(&EXPIRED) => refused("the credentials for the store have expired"),
        _ if says(&["RequestTimeTooSkewed"]) => refused(CLOCK),
        _ if says(&["InvalidObjectState"]) => refused(ARCHIVED),
        E::PermissionDenied { .. } => refused(REFUSED),
        E::Unauthenticated { .. } => refused(WANTED),
        E::Precondition { .. } | E::NotModified { .. } => Error::changed(),
        E::InvalidPath { source } => Error::unsupported(format!("the object's key is not a path: {source}")),
        // For listings, some stores report these as generic errors.
        _ if says(&["403 Forbidden"]) => refused(REFUSED),
        _ if says(&["401 Unauthorized"]) => refused(WANTED),
        // Ranges lie within the object as it was listed.
        _ if says(&["416 Range Not Satisfiable"]) => Error::changed(),
        _ => Error::new(ErrorKind::Io(libc::EIO), shortened(text)),
    }
}

/// The cause of the type `T`, if it is among those of `error`.
fn cause<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|error| error.downcast_ref()).next()
}

/// A message that may quote what a store replied, which may be long.
fn shortened(mut text: String) -> String {
    const MOST: usize = 1000;
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The result of `work`; an internal error if it panics, so that nobody waits for it forever.
async fn guarded<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.unwrap_or_else(|_| Err(Error::internal("a request to the store panicked")))
}

/// Whether an error means that a web server has no WebDAV.
fn is_without_webdav(error: &object_store::Error) -> bool {
    let text = chain(error);
    let says = |what: &str| text.contains(what);
    says("400 Bad Request") || says("405 Method Not Allowed")
}

/// What `object_store` says of an answer to PROPFIND that it does not understand.
const NOT_WEBDAV: &str = "decoding PROPFIND";

/// The message of the innermost cause.
fn innermost(mut error: &dyn std::error::Error) -> String {
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

/// An error and its causes, without repetitions.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Milliseconds since the Unix epoch; 0 before it.
fn milliseconds(object: &ObjectMeta) -> u64 {
    u64::try_from(object.last_modified.timestamp_millis()).unwrap_or(0)
}

/// Lists a store page by page.
struct Pages {
    objects: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    /// As in [`Store`].
    ordered: bool,
    prefix: Key,
    /// Limits concurrent requests.
    permits: tokio::sync::Semaphore,
    /// Expected entries of directories, by path, until they are listed.
    expected: Mutex<HashMap<String, Vec<String>>>,
    /// When the last page came.
    latest: Mutex<Option<Instant>>,
}

/// Page size for finding a key that cannot be parsed: less than the 1000 of most stores.
const SMALL_PAGE: usize = 125;

/// The most keys of a page that are skipped because they are not paths.
const MAX_SKIPPED: usize = 1000;

/// The longest key, and the longest name in one, in bytes. Stores allow 1024 bytes, the kernel a name of 1024
/// bytes; web servers have the longer paths of their disks.
const MAX_KEY: usize = 4096;
const MAX_NAME: usize = 1024;

/// The longest ETag that is used, in bytes.
const MAX_ETAG: usize = 1024;

/// Concurrent requests for listings.
const MAX_LISTINGS: usize = 64;

impl Pages {
    fn new(store: &Store) -> Self {
        Pages {
            objects: store.objects.clone(),
            pages: store.pages.clone(),
            ordered: store.ordered,
            prefix: store.prefix.clone(),
            permits: tokio::sync::Semaphore::new(MAX_LISTINGS),
            expected: Mutex::default(),
            latest: Mutex::default(),
        }
    }

    /// Sets the expected entries of the directory `path`.
    fn expect(&self, path: &str, names: Vec<String>) {
        let mut expected = lock(&self.expected);
        expected.insert(path.to_owned(), names);
    }

    /// Takes the expected entries of the directory `path`.
    fn expected(&self, path: &str) -> Vec<String> {
        let mut expected = lock(&self.expected);
        expected.remove(path).unwrap_or_default()
    }

    /// Whether a request is under way.
    fn are_asked_for(&self) -> bool {
        self.permits.available_permits() < MAX_LISTINGS
    }

    /// The key of `path`, without a trailing slash.
    fn key(&self, path: &str) -> String {
        join(self.prefix.as_ref(), path).trim_end_matches('/').to_owned()
    }

    /// A page of all objects below `path`, in byte order: the one of the token `next`, or from after the path
    /// `after`. None if the store has no flat listings.
    async fn flat(&self, path: &str, next: Option<String>, after: Option<&str>) -> Result<Option<Page>> {
        let after = after.map(|after| self.key(after));
        match &self.pages {
            Some(pages) => self.page(&**pages, path, next, after, false).await.map(Some),
            None => Ok(None),
        }
    }

    /// A page of the entries of the directory `path`; `NotFound` if a web server says that there is none. A
    /// source that does not exist has no entries.
    async fn names(&self, path: &str, next: Option<String>) -> Result<Page> {
        if let Some(pages) = &self.pages {
            return self.page(&**pages, path, next, None, true).await;
        }
        let _permit = self.permits.acquire().await;
        let key = Key::parse(self.key(path)).map_err(|e| convert(e.into()))?;
        match self.objects.list_with_delimiter(Some(&key)).await {
            Ok(listed) => {
                check_within(&listed, &key)?;
                Ok(self.shown(listed, None))
            }
            Err(e) if chain(&e).contains(NO_SUCH_DIRECTORY) => match path {
                "" => Ok(Page::default()),
                _ => Err(Error::not_found(NO_SUCH_DIRECTORY)),
            },
            Err(e) if is_without_webdav(&e) => Err(Error::unsupported(
                "the web server does not support WebDAV (PROPFIND), which is needed to list directories",
            )),
            Err(e) if chain(&e).contains(NOT_WEBDAV) => Err(Error::unsupported(format!(
                "the web server's answer to PROPFIND is not of WebDAV, by which directories are listed: {}",
                shortened(innermost(&e))
            ))),
            Err(e) => Err(convert(e)),
        }
    }

    /// One page: the one of the token `next`, or from after the key `after`.
    ///
    /// A key that is not a path (with `//` or `..`, for example) makes `object_store` fail for its whole
    /// page. Then pages get smaller until the key is alone, and it is skipped.
    async fn page(
        &self,
        pages: &dyn PaginatedListStore,
        path: &str,
        mut next: Option<String>,
        mut after: Option<String>,
        names: bool,
    ) -> Result<Page> {
        let _permit = self.permits.acquire().await;
        let key = self.key(path);
        let prefix = (!key.is_empty()).then(|| format!("{key}/"));
        let mut keys = None;
        let mut skipped = 0_usize;
        loop {
            let options = PaginatedListOptions {
                delimiter: names.then_some("/".into()),
                page_token: next.clone(),
                max_keys: keys,
                offset: after.clone(),
                ..PaginatedListOptions::default()
            };
            let error = match pages.list_paginated(prefix.as_deref(), options).await {
                Ok(listed) => return Ok(self.shown(listed.result, listed.page_token)),
                Err(error) => error,
            };
            let Some(odd) = odd_key(&error) else {
                return Err(convert(error));
            };
            if keys != Some(1) {
                keys = Some(keys.map_or(SMALL_PAGE, |keys: usize| keys / 8).max(1));
                continue;
            }
            // No path begins with a part that is none, nor with a slash: everything below it is skipped.
            let mut parts = odd.match_indices('/').map(|(slash, _)| &odd[..=slash]);
            let part = parts.find(|part| *part == "/" || Key::parse(part).is_err());
            let odd_end = match part {
                Some(part) => format!("{part}\u{10FFFF}"),
                None => odd.to_owned(),
            };
            skipped += 1;
            if odd.len() > MAX_KEY || skipped > MAX_SKIPPED || after.is_some_and(|after| odd_end <= after) {
                return Err(Error::new(
                    ErrorKind::Io(libc::EIO),
                    "the store lists keys that are not paths without end",
                ));
            }
            match part {
                Some(part) => log::warn!("what is below {part:?} is ignored: these keys are not paths"),
                None => log::warn!("{odd:?} is ignored: this key is not a path"),
            }
            after = Some(odd_end);
            (keys, next) = (None, None);
        }
    }

    fn shown(&self, listed: ListResult, next: Option<String>) -> Page {
        *lock(&self.latest) = Some(Instant::now());
        let prefix = self.prefix.as_ref();
        let below = |key: &Key| match prefix {
            "" => Some(key.to_string()),
            _ => Some(key.as_ref().strip_prefix(prefix)?.strip_prefix('/')?.to_owned()),
        };
        let below = |key: &Key| {
            let path = below(key)?;
            let fits = key.as_ref().len() <= MAX_KEY && path.split('/').all(|name| name.len() <= MAX_NAME);
            if !fits {
                let start: String = path.chars().take(40).collect();
                log::warn!("{start:?}… is ignored: this key, or a name in it, is too long");
            }
            fits.then_some(path)
        };
        let objects = listed.objects.into_iter().filter_map(|object| {
            Some(Object {
                path: below(&object.location)?,
                len: object.size,
                mtime: milliseconds(&object),
                etag: object
                    .e_tag
                    .filter(|etag| is_header(etag) && !blob::is_blank(etag)),
            })
        });
        Page {
            objects: objects.collect(),
            directories: listed.common_prefixes.iter().filter_map(below).collect(),
            next,
        }
    }
}

/// Fails unless all that a web server lists is below `directory`. It is not if a proxy changes paths of
/// requests, and not those in answers.
fn check_within(listed: &ListResult, directory: &Key) -> Result<()> {
    let objects = listed.objects.iter().map(|object| &object.location);
    let mut all = objects.chain(&listed.common_prefixes);
    match all.find(|entry| !entry.prefix_matches(directory)) {
        None => Ok(()),
        Some(entry) => Err(Error::new(
            ErrorKind::Io(libc::EIO),
            format!(
                "the web server lists {:?}, which is not in this directory",
                entry.as_ref()
            ),
        )),
    }
}

/// Whether an ETag can be sent back in a header.
fn is_header(etag: &str) -> bool {
    etag.len() <= MAX_ETAG && etag.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// The key that is not a path, if that is the error.
fn odd_key(error: &object_store::Error) -> Option<&str> {
    match error {
        object_store::Error::InvalidPath {
            source: KeyError::EmptySegment { path } | KeyError::BadSegment { path, .. },
        } => Some(path),
        _ => None,
    }
}

/// A source in an object store.
pub struct RemoteStorage {
    pages: Arc<Pages>,
    listings: Arc<ListingCache>,
    fetcher: Arc<Fetcher>,
    prefix: Key,
    url: String,
    unsigned: bool,
    memory: Arc<RemoteMemory>,
    /// Files in use, by path.
    files: Mutex<HashMap<String, Weak<RemoteFile>>>,
}

impl RemoteStorage {
    /// Opens the source in `store` and lists it. `NotFound` if it is empty.
    pub fn open(store: Store, settings: RemoteSettings) -> Result<Arc<dyn Storage>> {
        let (until, failures) = (store.open_until, store.failures.clone());
        let storage = RemoteStorage::new(store, settings)?;
        storage.list_root(until, &failures)?;
        Ok(Arc::new(storage))
    }

    /// The source in `store`, which is not listed yet.
    fn new(store: Store, settings: RemoteSettings) -> Result<RemoteStorage> {
        let runtime = runtime()?.handle();
        let pages = Arc::new(Pages::new(&store));
        let listings = Arc::new(ListingCache::new(
            pages.clone(),
            runtime.clone(),
            settings.refresh,
            settings.memory.room.clone(),
        ));
        let fetcher = Fetcher::new(
            store.objects,
            runtime.clone(),
            listings.clone(),
            settings.disk_cache,
            settings.stats,
            settings.memory.pool.clone(),
        );
        Ok(RemoteStorage {
            pages,
            listings,
            fetcher: Arc::new(fetcher),
            prefix: store.prefix,
            url: store.url,
            unsigned: store.unsigned,
            memory: settings.memory,
            files: Mutex::default(),
        })
    }

    /// Lists the root. Fails with `Io(EIO)` if there is no page by `until`, or within [`OPEN_TIMEOUT`] of the
    /// last while one is asked for, or if that takes longer than [`LISTING_TIMEOUT`].
    fn list_root(&self, mut until: Instant, failures: &Failures) -> Result<()> {
        let (sender, answer) = channel();
        let listings = self.listings.clone();
        let started = thread::Builder::new().spawn(move || sender.send(listings.directory("").map(drop)));
        started.map_err(|e| Error::io(&e))?;
        let end = Instant::now() + LISTING_TIMEOUT;
        let has_no_end = loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok(listed) = answer.recv_timeout(left) {
                return listed;
            }
            // A listing of many pages takes its time, and so does it to sort them when all are there.
            let latest = *lock(&self.pages.latest);
            let latest = latest.map(|latest| match self.pages.are_asked_for() {
                true => latest,
                false => Instant::now(),
            });
            match latest.map(|latest| (latest + OPEN_TIMEOUT).min(end)) {
                Some(later) if later > until => until = later,
                latest => break latest == Some(end),
            }
        };
        let cause = match failures.last() {
            Some(cause) if cause.contains("certificate") => {
                format!("{cause}: to trust a certificate, give it by the option `ca_bundle`")
            }
            Some(cause) => cause,
            None if has_no_end => "the listing has no end in sight".to_owned(),
            None => "the store does not answer".to_owned(),
        };
        Err(Error::new(ErrorKind::Io(libc::EIO), cause))
    }

    /// The listed entry at `path`; `NotFound` if there is none.
    fn find(&self, path: &Path) -> Result<Child> {
        let missing = || Error::not_found("no such file or directory");
        let path = text(path).ok_or_else(missing)?;
        match path {
            "" => Ok(Child::Directory),
            _ => self.listings.child(path)?.ok_or_else(missing),
        }
    }

    fn place(&self, path: &Path) -> impl Fn(Error) -> Error {
        let display = self.display(path);
        move |e| e.in_file(&display)
    }

    /// The shared file at `path` in the state `listed`.
    fn file(&self, path: &str, listed: Arc<File>) -> Result<Arc<RemoteFile>> {
        let mut files = lock(&self.files);
        let known = files.get(path).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.is_of(&listed)) {
            return Ok(known);
        }
        let key = Key::parse(join(self.prefix.as_ref(), path)).map_err(|e| convert(e.into()))?;
        if files.len().is_power_of_two() {
            files.retain(|_, file| file.strong_count() > 0);
        }
        let url = join(&self.url, path);
        let file = Arc::new(RemoteFile::new(
            self.fetcher.clone(),
            path.to_owned(),
            key,
            url,
            listed,
        ));
        files.insert(path.to_owned(), Arc::downgrade(&file));
        Ok(file)
    }
}

/// The path as in listings; None if it is not UTF-8, as all keys are.
fn text(path: &Path) -> Option<&str> {
    path.to_str().map(|path| path.trim_end_matches('/'))
}

impl Storage for RemoteStorage {
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let place = self.place(path);
        let missing = || Error::not_found("no such directory");
        let directory = text(path).ok_or_else(missing).map_err(&place)?;
        let directory = self.listings.directory(directory).map_err(&place)?;
        let directory = directory.ok_or_else(missing).map_err(&place)?;
        let entries = directory.children.iter().map(|(name, child)| DirEntry {
            name: OsString::from(&**name),
            entry_type: match child {
                Child::File(_) => EntryType::File,
                Child::Directory => EntryType::Directory,
            },
            linked: false,
        });
        Ok(entries.collect())
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let place = self.place(path);
        match self.find(path).map_err(&place)? {
            Child::File(file) => Ok(file.metadata()),
            Child::Directory => {
                let directory = self.listings.directory(text(path).expect("it was found"));
                let directory = directory.map_err(&place)?;
                let missing = || place(Error::not_found("no such file or directory"));
                directory
                    .map(|directory| directory.metadata())
                    .ok_or_else(missing)
            }
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn Blob>> {
        let place = self.place(path);
        match self.find(path).map_err(&place)? {
            Child::File(listed) => {
                let file = self.file(text(path).expect("it was found"), listed);
                let file = file.map_err(&place)?;
                self.fetcher.stats.files_opened.add(1);
                Ok(Arc::new(RemoteBlob::new(file, self.display(path))))
            }
            Child::Directory => Err(place(Error::corrupt("not a regular file"))),
        }
    }

    fn display(&self, path: &Path) -> String {
        match path.as_os_str().is_empty() {
            true => self.url.clone(),
            false => path.display().to_string(),
        }
    }

    fn inside(&self, uri: &[u8]) -> Option<PathBuf> {
        let uri = with_usual_scheme(str::from_utf8(uri).ok()?);
        let rest = uri.strip_prefix(&self.url)?;
        let inside = rest.is_empty() || rest.starts_with('/');
        inside.then(|| PathBuf::from(rest.trim_matches('/')))
    }

    fn audience(&self, _: &Path, _: Want) -> Audience {
        match self.unsigned {
            true => Audience::everybody(),
            false => Audience::nobody(),
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn lag(&self) -> Option<Duration> {
        self.listings.lag()
    }

    fn forget(&self, path: &Path, age: Duration) -> bool {
        text(path).is_some_and(|path| self.listings.forget(path, age))
    }

    fn will_list(&self, directories: &[PathBuf]) {
        let paths = directories.iter().filter_map(|path| text(path));
        self.listings.will_list(paths);
    }

    fn will_list_named(&self, directory: &Path, names: &dyn Fn() -> Result<Vec<String>>) -> Result<()> {
        if let Some(path) = text(directory)
            && !self.listings.is_known(path)
        {
            self.pages.expect(path, names()?);
        }
        Ok(())
    }

    fn will_read_tails(&self, files: &[PathBuf], bytes: u64) {
        let paths = || files.iter().filter_map(|path| text(path));
        // In large listings, lengths may not be known yet.
        self.listings
            .will_list(paths().filter_map(|path| Some(path.rsplit_once('/')?.0)));
        for path in paths() {
            // The read itself will report the error.
            let Ok(Some(Child::File(listed))) = self.listings.child(path) else {
                continue;
            };
            if let Ok(file) = self.file(path, listed) {
                file.will_read_tail(bytes);
            }
        }
    }

    fn share(&self, budget: Arc<ChunkCache>) {
        self.memory.pool.share(budget);
    }
}
