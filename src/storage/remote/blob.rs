//! Fetches and keeps bytes of objects.
//!
//! Each file has non-overlapping pieces, each fetched by one request. A read uses the pieces that have
//! arrived or are on their way, and fetches only the gaps, so no byte is fetched twice at the same time. For
//! a sequential reader, a growing read-ahead window is fetched as well.

use super::directories::{Child, File};
use super::disk_cache::{DiskCache, PART, PartKey};
use super::listing_cache::ListingCache;
use super::piece_pool::{Holder, Pool, SMALL_PIECE};
use super::pieces::{MAX_WINDOW, Piece, Pieces};
use super::{convert, guarded, retries};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::requester::is_of_others;
use crate::runtime::single_flight::Flight;
use crate::runtime::stats::Stats;
use crate::runtime::{Permits, lock};
use crate::storage::Blob;
use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Concurrent requests for more than 4 * [`SMALL_PIECE`] bytes, and for at most that.
const MAX_LARGE_REQUESTS: usize = 16;
const MAX_SMALL_REQUESTS: usize = 64;

/// Fetches ranges of the objects of one store.
pub(super) struct Fetcher {
    objects: Arc<dyn ObjectStore>,
    runtime: Handle,
    listings: Arc<ListingCache>,
    disk: Option<Arc<DiskCache>>,
    pub(super) stats: Arc<Stats>,
    pub(super) pool: Arc<Pool>,
    large: Semaphore,
    small: Semaphore,
}

impl Fetcher {
    pub(super) fn new(
        objects: Arc<dyn ObjectStore>,
        runtime: Handle,
        listings: Arc<ListingCache>,
        disk: Option<Arc<DiskCache>>,
        stats: Arc<Stats>,
        pool: Arc<Pool>,
    ) -> Self {
        Fetcher {
            objects,
            runtime,
            listings,
            disk,
            stats,
            pool,
            large: Semaphore::new(MAX_LARGE_REQUESTS),
            small: Semaphore::new(MAX_SMALL_REQUESTS),
        }
    }
}

/// How long an object counts as changed before its listing is read again.
const LISTED_AGAIN: Duration = Duration::from_secs(1);

/// How long after its body broke off an object without an ETag is asked for again.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// Answers that are being written to disk caches. They are in memory until then.
static WRITING: Permits = Permits::new();

/// How many there may be, of up to 8 MiB each. What comes while there are as many is not written.
const MAX_WRITING: usize = 8;

/// One state of an object. All open handles share it and its pieces.
pub(super) struct RemoteFile {
    fetcher: Arc<Fetcher>,
    number: u64,
    /// Relative to the source.
    path: String,
    key: Key,
    url: String,
    listed: Arc<File>,
    /// When a response showed another state.
    changed: Mutex<Option<Instant>>,
    /// The first response, unless it has an ETag as the listing does.
    seen: Mutex<Option<Seen>>,
    pieces: Mutex<Pieces>,
}

/// ETag and time (ms since the Unix epoch) of a response.
type Seen = (Option<String>, i64);

/// Whether a response is from the object as it was listed. Without ETags in both, what is left to compare is
/// the time, in seconds, and the first response, `seen`.
fn is_from(listed: &File, answer: &ObjectMeta, seen: &Mutex<Option<Seen>>) -> bool {
    let found = answer.e_tag.as_ref().filter(|etag| !is_blank(etag));
    let same = match (&listed.etag, found) {
        (Some(listed), Some(found)) => opaque(listed) == opaque(found),
        _ => {
            let time = answer.last_modified.timestamp_millis();
            let known = listed.mtime > 0 && time > 0;
            let found = (found.cloned(), time);
            (!known || listed.mtime / 1000 == time as u64 / 1000)
                && *lock(seen).get_or_insert_with(|| found.clone()) == found
        }
    };
    same && answer.size == listed.len
}

/// Whether a response tells of its state at all, if the listing does. Some proxies leave out what tells.
fn is_told(listed: &File, answer: &ObjectMeta) -> bool {
    let told = answer.e_tag.as_deref().is_some_and(|etag| !is_blank(etag));
    let listing_tells = listed.etag.is_some() || listed.mtime > 0;
    told || answer.last_modified.timestamp_millis() > 0 || !listing_tells
}

/// An ETag without the mark of weak ones, and without its quotes, which some listings leave out.
fn opaque(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Whether an ETag tells nothing: some servers send one whatever they know.
pub(super) fn is_blank(etag: &str) -> bool {
    opaque(etag).is_empty()
}

/// Whether an ETag tells one state from all others: `if-match` and the disk cache can use it.
fn is_strong(etag: &&str) -> bool {
    !etag.starts_with("W/")
}

impl RemoteFile {
    pub(super) fn new(fetcher: Arc<Fetcher>, path: String, key: Key, url: String, listed: Arc<File>) -> Self {
        RemoteFile {
            number: fetcher.pool.next_file(),
            fetcher,
            path,
            key,
            url,
            listed,
            changed: Mutex::default(),
            seen: Mutex::default(),
            pieces: Mutex::default(),
        }
    }

    pub(super) fn version(&self) -> (u64, u64, u64) {
        self.listed.version
    }

    /// Whether this is the state in `listed`, and no response has shown another one.
    pub(super) fn is_of(&self, listed: &File) -> bool {
        self.version() == listed.version && self.is_unchanged()
    }

    fn is_unchanged(&self) -> bool {
        lock(&self.changed).is_none()
    }

    /// `Changed` if a response has shown another state, until a listing, not read at once, has this one
    /// again. For good if responses have no ETags: then the listing may have two states under one time, and
    /// there are pieces of the first.
    fn check_unchanged(&self) -> Result<()> {
        let Some(seen) = *lock(&self.changed) else {
            return Ok(());
        };
        let is_listed = || match self.fetcher.listings.child(&self.path) {
            Ok(Some(Child::File(listed))) => listed.version == self.version(),
            _ => false,
        };
        if lock(&self.seen).is_some() || seen.elapsed() < LISTED_AGAIN || !is_listed() {
            return Err(Error::changed());
        }
        *lock(&self.changed) = None;
        Ok(())
    }

    /// The disk cache, and the ETag by which it knows the object.
    fn on_disk(&self) -> Option<(&Arc<DiskCache>, &str)> {
        let etag = self.listed.etag.as_deref().filter(is_strong)?;
        Some((self.fetcher.disk.as_ref()?, etag))
    }

    /// Whether the disk cache has the part at `offset`.
    fn is_on_disk(&self, offset: u64) -> bool {
        self.on_disk().is_some_and(|(disk, etag)| {
            disk.has(&PartKey {
                url: &self.url,
                etag,
                part: offset / PART,
            })
        })
    }

    /// Drops what was fetched of `range`.
    fn forget(&self, range: Range<u64>) {
        let mut pieces = lock(&self.pieces);
        let begins_before = pieces.pieces.range(..range.end);
        let within = begins_before.filter(|(_, piece)| piece.end > range.start && piece.room.is_none());
        let starts: Vec<u64> = within.map(|(start, _)| *start).collect();
        for start in &starts {
            pieces.pieces.remove(start);
        }
        drop(pieces);
        for start in starts {
            self.fetcher.pool.forget((self.number, start));
        }
        if let Some((disk, etag)) = self.on_disk() {
            for part in range.start / PART..range.end.div_ceil(PART) {
                disk.remove(&PartKey {
                    url: &self.url,
                    etag,
                    part,
                });
            }
        }
    }

    /// Begins to fetch the last `bytes` bytes.
    pub(super) fn will_read_tail(self: &Arc<Self>, bytes: u64) {
        let len = self.listed.len;
        if len > 0 {
            self.want(len.saturating_sub(bytes)..len, true);
        }
    }

    /// Where the first bytes of `range` end that are wanted at once: with more than half of the pool, or with
    /// a second part where there is room for one, the first bytes would be evicted for the last ones.
    fn first_end(&self, range: &Range<u64>) -> u64 {
        let part_end = (range.start / PART + 1).saturating_mul(PART);
        if range.end <= part_end {
            return range.end;
        }
        let half = range.start.saturating_add(self.fetcher.pool.most() / 2);
        range.end.min(part_end.max(half / PART * PART))
    }

    /// Begins to fetch the gaps in the first bytes of `range`. Unless `exact`, small ranges are extended to
    /// [`SMALL_PIECE`] bytes. Sequential readers get read-ahead in both cases.
    fn want(self: &Arc<Self>, range: Range<u64>, exact: bool) {
        let len = self.listed.len;
        let range = range.start..self.first_end(&range);
        let mut wanted = range.start..range.end.min(len);
        if len <= SMALL_PIECE / 4 {
            wanted = 0..len;
        } else if !exact && wanted.end - wanted.start < SMALL_PIECE {
            wanted = match len - wanted.start <= SMALL_PIECE {
                true => len - SMALL_PIECE.min(len)..len,
                false => wanted.start..wanted.start + SMALL_PIECE,
            };
        }
        if self.on_disk().is_some() {
            let end = wanted.end.div_ceil(PART).saturating_mul(PART);
            wanted = wanted.start / PART * PART..end.min(len);
            self.take_from_disk(&wanted);
        }
        let mut victims = Vec::new();
        let mut begun = Vec::new();
        let mut pieces = lock(&self.pieces);
        let most = (self.fetcher.pool.most() / 2).min(MAX_WINDOW);
        let mut ahead = pieces.advance(&range, most).min(len);
        if !pieces.gaps(&wanted).is_empty() {
            // Fills gaps that earlier out-of-order reads have left before the frontier.
            ahead = ahead.max(pieces.frontier()).min(len);
        }
        if let Some(end) = pieces.part_end(range.start) {
            ahead = ahead.min(end);
        }
        let ahead = match self.on_disk() {
            // The disk cache stores whole parts only.
            Some(_) => ahead.div_ceil(PART).saturating_mul(PART).min(len),
            None => ahead,
        };
        let all = wanted.start..wanted.end.max(ahead);
        let mut frontier = all.end;
        'gaps: for gap in pieces.gaps(&all) {
            for part in pieces.cut(gap, wanted.end) {
                let now = part.start < wanted.end;
                if !now && self.is_on_disk(part.start) {
                    // It is read from there once it is wanted.
                    continue;
                }
                let bytes = part.end - part.start;
                let Some(room) = self.fetcher.pool.reserve(bytes, now, &mut victims) else {
                    frontier = part.start;
                    break 'gaps;
                };
                let flight = Arc::new(Flight::default());
                let piece = Piece {
                    end: part.end,
                    bytes: flight.clone(),
                    room: Some(room),
                    read: part.start,
                };
                pieces.pieces.insert(part.start, piece);
                begun.push((part, flight, now));
            }
        }
        pieces.fetched(frontier);
        drop(pieces);
        for (part, flight, now) in begun {
            let (file, landing) = (self.clone(), flight.clone());
            let task = self.fetcher.runtime.spawn(async move {
                let result = guarded(file.fetch(part.clone())).await;
                file.land(part.start, &landing, result);
            });
            if now {
                flight.abort_when_abandoned(move || task.abort());
            }
        }
        for (file, start) in victims {
            file.drop_piece(start);
        }
    }

    /// Adds pieces for the parts of `range` that are in the disk cache.
    fn take_from_disk(self: &Arc<Self>, range: &Range<u64>) {
        let Some((disk, etag)) = self.on_disk() else {
            return;
        };
        for part in range.start / PART..range.end.div_ceil(PART) {
            let whole = part * PART..(part + 1).saturating_mul(PART).min(self.listed.len);
            if lock(&self.pieces).gaps(&whole) != [whole.clone()] {
                continue;
            }
            let key = PartKey {
                url: &self.url,
                etag,
                part,
            };
            let Some(bytes) = disk.get(&key) else { continue };
            if bytes.len() as u64 != whole.end - whole.start {
                continue;
            }
            let mut victims = Vec::new();
            let mut pieces = lock(&self.pieces);
            if pieces.gaps(&whole) == [whole.clone()]
                && let Some(room) = self
                    .fetcher
                    .pool
                    .reserve(whole.end - whole.start, true, &mut victims)
            {
                let piece = Piece {
                    end: whole.end,
                    bytes: Arc::new(Flight::arrived(bytes)),
                    room: None,
                    read: whole.start,
                };
                pieces.pieces.insert(whole.start, piece);
                self.fetcher.pool.keep(self.clone(), whole.start, room);
            }
            drop(pieces);
            for (file, start) in victims {
                file.drop_piece(start);
            }
        }
    }

    /// Fetches the non-empty `range` with one request. `Changed` if the object has changed.
    async fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let bytes = range.end - range.start;
        let most = match bytes > 4 * SMALL_PIECE {
            true => &self.fetcher.large,
            false => &self.fetcher.small,
        };
        let _permit = most.acquire().await;
        let etag = self.listed.etag.as_deref().filter(is_strong);
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: etag.map(str::to_owned),
            ..GetOptions::default()
        };
        let until = Instant::now() + retries().retry_timeout;
        let (found, has_etag) = loop {
            let answer = self.fetcher.objects.get_opts(&self.key, options.clone()).await;
            let answer = answer.map_err(convert)?;
            if !is_told(&self.listed, &answer.meta) {
                return Err(Error::new(
                    ErrorKind::Io(libc::EIO),
                    "the store sends neither ETag nor Last-Modified with the bytes: they may be of any state",
                ));
            }
            if !is_from(&self.listed, &answer.meta, &self.seen) {
                return Err(Error::changed());
            }
            // `object_store` asks for the rest of a body that breaks off only if there is an ETag.
            let etag = answer.meta.e_tag.clone();
            match answer.bytes().await {
                Err(_) if etag.is_none() && Instant::now() < until => sleep(ASKED_AGAIN).await,
                found => break (found.map_err(convert)?, etag.is_some_and(|etag| !is_blank(&etag))),
            }
        };
        self.fetcher.stats.bytes_fetched.add(found.len() as u64);
        if found.len() as u64 != bytes {
            return Err(Error::new(
                ErrorKind::Io(libc::EIO),
                match found.len() as u64 > bytes {
                    true => format!("the store sent more than the {bytes} bytes that were asked for"),
                    false => format!("the store sent {} bytes, expected {bytes}", found.len()),
                },
            ));
        }
        // Without its ETag an answer may be of another state than the listing.
        if has_etag {
            self.store_on_disk(range.start, &found);
        }
        Ok(found)
    }

    /// Stores the whole parts within `bytes`, which begin at offset `start`, in the disk cache, unless it is
    /// slower than the store.
    fn store_on_disk(&self, start: u64, bytes: &Bytes) {
        let Some((disk, etag)) = self.on_disk() else {
            return;
        };
        let Some(permit) = WRITING.take(MAX_WRITING) else {
            return;
        };
        let (disk, etag, url) = (disk.clone(), etag.to_owned(), self.url.clone());
        let (bytes, len) = (bytes.clone(), self.listed.len);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let end = start + bytes.len() as u64;
            for part in start.div_ceil(PART)..end.div_ceil(PART) {
                let whole = part * PART..(part + 1).saturating_mul(PART).min(len);
                let place = (whole.start - start) as usize..(whole.end - start) as usize;
                if let Some(bytes) = bytes.get(place) {
                    let key = PartKey {
                        url: &url,
                        etag: &etag,
                        part,
                    };
                    disk.put(&key, bytes);
                }
            }
        });
    }

    /// Completes the piece at `start` with `result`; removes it if the request failed.
    fn land(self: &Arc<Self>, start: u64, flight: &Arc<Flight<Bytes>>, result: Result<Bytes>) {
        let mut pieces = lock(&self.pieces);
        let own = pieces.pieces.get_mut(&start);
        if let Some(piece) = own.filter(|piece| Arc::ptr_eq(&piece.bytes, flight)) {
            match (&result, piece.room.take()) {
                (Ok(_), Some(room)) => self.fetcher.pool.keep(self.clone(), start, room),
                _ => {
                    pieces.pieces.remove(&start);
                }
            }
        }
        drop(pieces);
        if let Err(e) = &result {
            match e.kind() {
                ErrorKind::Changed => {
                    let before = lock(&self.changed).replace(Instant::now());
                    if before.is_none() && self.listed.etag.is_none() {
                        self.fetcher.listings.note_change(&self.path);
                    }
                }
                ErrorKind::NotFound => {}
                _ => log::debug!("{}: {e}", self.path),
            }
            if matches!(e.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
                self.fetcher.listings.forget(&self.path, Duration::ZERO);
            }
        }
        flight.finish(result);
    }

    /// Removes a piece that nobody waits for any more.
    fn give_up(&self, start: u64, flight: &Arc<Flight<Bytes>>) {
        let mut pieces = lock(&self.pieces);
        let own = pieces.pieces.get(&start);
        let own = own.is_some_and(|piece| Arc::ptr_eq(&piece.bytes, flight));
        if own {
            pieces.pieces.remove(&start);
            // It may have arrived meanwhile.
            self.fetcher.pool.forget((self.number, start));
        }
    }

    fn read(self: &Arc<Self>, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(out.len() as u64);
        let Some(end) = end.filter(|&end| end <= self.listed.len) else {
            let message = format!("the file ends within the {} bytes wanted", out.len());
            return Err(Error::truncated(message));
        };
        let mut at = offset;
        while at < end {
            self.check_unchanged()?;
            let first_end = self.first_end(&(at..end));
            let found = {
                let pieces = lock(&self.pieces);
                let all = pieces.gaps(&(at..first_end)).is_empty();
                let first = pieces.pieces.range(..=at).next_back();
                let first = first.filter(|(_, piece)| at < piece.end);
                first.filter(|_| all).map(|(&start, piece)| {
                    let entered = piece.read == start && pieces.is_ahead(at);
                    (start, piece.bytes.clone(), entered)
                })
            };
            let Some((start, flight, entered)) = found else {
                self.want(at..end, false);
                continue;
            };
            if entered {
                // Readers may give no hints, so reads move the window as well.
                self.want(at..end, true);
            }
            let bytes = match flight.wait(&|| self.give_up(start, &flight)) {
                Err(e) if is_of_others(&e) => continue,
                result => result?,
            };
            let have = bytes.get((at - start) as usize..).filter(|have| !have.is_empty());
            let have = have.ok_or_else(|| Error::internal("a fetched piece is shorter than it should be"))?;
            let room = &mut out[(at - offset) as usize..];
            let count = have.len().min(room.len());
            room[..count].copy_from_slice(&have[..count]);
            at += count as u64;
            self.note(start, at);
        }
        Ok(())
    }

    /// Notes that the piece at `start` was read up to offset `to`.
    fn note(&self, start: u64, to: u64) {
        let mut pieces = lock(&self.pieces);
        let read = pieces.pieces.get_mut(&start).is_some_and(|piece| {
            piece.read = piece.read.max(to);
            piece.read >= piece.end
        });
        self.fetcher.pool.used((self.number, start), read);
    }
}

/// An open object.
pub(super) struct RemoteBlob {
    file: Arc<RemoteFile>,
    display: String,
}

impl RemoteBlob {
    pub(super) fn new(file: Arc<RemoteFile>, display: String) -> Self {
        RemoteBlob { file, display }
    }
}

impl Holder for RemoteFile {
    fn number(&self) -> u64 {
        self.number
    }

    fn drop_piece(&self, start: u64) {
        let mut pieces = lock(&self.pieces);
        if pieces
            .pieces
            .get(&start)
            .is_some_and(|piece| piece.room.is_none())
        {
            pieces.pieces.remove(&start);
        }
    }
}

impl Blob for RemoteBlob {
    fn len(&self) -> u64 {
        self.file.listed.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file
            .read(offset, out)
            .map_err(|e| e.at(offset).in_file(&self.display))?;
        self.file.fetcher.stats.bytes_read.add(out.len() as u64);
        Ok(())
    }

    fn will_read(&self, range: Range<u64>) {
        let range = range.start..range.end.min(self.file.listed.len);
        if range.start < range.end {
            self.file.want(range, true);
        }
    }

    fn will_read_through(&self, range: Range<u64>) {
        lock(&self.file.pieces).note_part(range);
    }

    fn forget(&self, range: Range<u64>) {
        self.file.forget(range);
    }

    fn version(&self) -> (u64, u64, u64) {
        self.file.version()
    }

    fn is_unchanged(&self) -> bool {
        let known = self.file.fetcher.listings.peek(&self.file.path);
        self.file.is_unchanged() && known.is_none_or(|known| known.version == self.file.version())
    }

    fn display(&self) -> &str {
        &self.display
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pages;
    use super::super::listing_room::Room;
    use super::super::runtime::runtime;
    use super::super::testing::TestStore;
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_piece_that_arrived_while_its_last_reader_gave_up_is_not_counted() {
        let store = TestStore::new(1000);
        store.put("f", b"content");
        let runtime = runtime().unwrap().handle();
        let pages = Arc::new(Pages::new(&store.store("")));
        let listings = Arc::new(ListingCache::new(pages, runtime.clone(), None, Room::new()));
        let pool = Arc::new(Pool::new());
        let fetcher = Fetcher::new(store, runtime.clone(), listings, None, Arc::default(), pool);
        let listed = File {
            len: 7,
            mtime: 0,
            etag: None,
            version: (0, 0, 0),
        };
        let file = RemoteFile::new(
            Arc::new(fetcher),
            "f".to_owned(),
            Key::from("f"),
            String::new(),
            Arc::new(listed),
        );
        let file = Arc::new(file);
        file.want(0..7, true);
        let flight = lock(&file.pieces).pieces[&0].bytes.clone();
        assert_eq!(flight.wait(&|| ()).unwrap(), "content");
        assert_eq!(file.fetcher.pool.bytes(), 7);
        file.give_up(0, &flight);
        assert_eq!(file.fetcher.pool.bytes(), 0);
    }

    #[test]
    fn a_response_that_tells_of_no_state_is_refused_where_the_listing_does() {
        for (listed, mtime, found, time, told) in [
            (Some("\"a\""), 7_000, None, 0, false),
            (Some("\"a\""), 0, Some("\"\""), 0, false),
            (None, 7_000, None, 0, false),
            (None, 7_000, None, 7_000, true),
            (None, 7_000, Some("\"a\""), 0, true),
            (None, 0, None, 0, true),
        ] {
            let listed = File {
                len: 5,
                mtime,
                etag: listed.map(str::to_owned),
                version: (0, 0, 0),
            };
            let answer = ObjectMeta {
                location: Key::from("f"),
                last_modified: (UNIX_EPOCH + Duration::from_millis(time)).into(),
                size: 5,
                e_tag: found.map(str::to_owned),
                version: None,
            };
            assert_eq!(is_told(&listed, &answer), told, "{listed:?} {answer:?}");
        }
    }

    #[test]
    fn a_response_from_another_state_than_the_listed_one_is_found() {
        let file = |etag: Option<&str>| File {
            len: 5,
            mtime: 7_300,
            etag: etag.map(str::to_owned),
            version: (0, 0, 0),
        };
        let answer = |etag: Option<&str>, time: u64, size: u64| ObjectMeta {
            location: Key::from("f"),
            last_modified: (UNIX_EPOCH + Duration::from_millis(time)).into(),
            size,
            e_tag: etag.map(str::to_owned),
            version: None,
        };
        for (listed, found, time, size, same) in [
            (Some("\"a\""), Some("\"a\""), 9_000, 5, true),
            (Some("a"), Some("\"a\""), 9_000, 5, true),
            (Some("\"a\""), Some("\"b\""), 7_000, 5, false),
            (Some("W/\"a\""), Some("W/\"a\""), 9_000, 5, true),
            (Some("W/\"a\""), Some("W/\"b\""), 7_000, 5, false),
            (None, None, 7_000, 5, true),
            (None, None, 8_000, 5, false),
            (None, Some("\"b\""), 8_000, 5, false),
            (None, None, 0, 5, true),
            (None, None, 7_000, 6, false),
            (Some("\"a\""), Some("\"\""), 8_000, 5, false),
            (None, Some(""), 7_000, 5, true),
            (None, Some("W/\"\""), 8_000, 5, false),
        ] {
            let case = (listed, found, time, size);
            let is = is_from(&file(listed), &answer(found, time, size), &Mutex::default());
            assert_eq!(is, same, "{case:?}");
        }
        let seen = Mutex::default();
        assert!(is_from(&file(None), &answer(Some("\"a\""), 7_000, 5), &seen));
        assert!(!is_from(&file(None), &answer(Some("\"b\""), 7_000, 5), &seen));
    }
}
