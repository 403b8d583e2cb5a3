//! Memory for the listings of a mount, those under way included, with a bound: a store may list without end.

use super::directories::Page;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The most bytes of all listings of a mount.
const MOST: usize = 224 << 20;

/// The most pages without an entry, one after the other. Some stores send a few.
const MAX_EMPTY_PAGES: usize = 100;
/// The longest token of a page, in bytes, which becomes part of a URL.
const MAX_TOKEN: usize = 8 << 10;

/// Listings that can be made again.
pub(super) trait Listings: Send + Sync {
    /// Drops all of them.
    fn drop_all(&self);
}

/// The memory for the listings of a mount.
pub(super) struct Room {
    used: AtomicUsize,
    most: usize,
    /// Those in it, of a store each.
    listings: Mutex<Vec<Weak<dyn Listings>>>,
}

impl Room {
    pub(super) fn new() -> Arc<Room> {
        Room::of(MOST)
    }

    fn of(most: usize) -> Arc<Room> {
        Arc::new(Room {
            used: AtomicUsize::new(0),
            most,
            listings: Mutex::default(),
        })
    }

    /// Has `listings` dropped when there is too little room.
    pub(super) fn add(&self, listings: Weak<dyn Listings>) {
        let mut all = lock(&self.listings);
        all.retain(|other| other.strong_count() > 0);
        all.push(listings);
    }

    /// Drops all listings but those under way.
    pub(super) fn drop_listings(&self) {
        let all: Vec<_> = lock(&self.listings).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|listings| listings.drop_all());
    }
}

/// What one listing takes of the room, given back when the listing is dropped.
pub(super) struct Share {
    room: Arc<Room>,
    bytes: AtomicUsize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.room.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Share {
    pub(super) fn of(room: &Arc<Room>) -> Arc<Share> {
        Arc::new(Share {
            room: room.clone(),
            bytes: AtomicUsize::new(0),
        })
    }

    /// Takes the memory for a page. If there is too little, `make_room` is called to drop other listings;
    /// `LimitExceeded` if there still is.
    pub(super) fn admit(&self, page: &Page, make_room: impl FnOnce()) -> Result<()> {
        let bytes = page.cost();
        if self.take(bytes) {
            return Ok(());
        }
        make_room();
        match self.take(bytes) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "a listing of the store takes more than {} bytes of memory",
                    self.room.most
                ),
            )),
        }
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.room.most);
        let taken = self
            .room
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        if taken.is_ok() {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }
}

/// Follows the tokens of pages, which may lead nowhere.
#[derive(Default)]
pub(super) struct Tokens {
    last: Option<String>,
    empty: usize,
}

impl Tokens {
    /// The token of the page after `page`; None if it is the last one.
    pub(super) fn next(&mut self, page: &mut Page) -> Result<Option<String>> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Io(libc::EIO), format!("the store {what}")));
        let Some(token) = page.next.take().filter(|token| !token.is_empty()) else {
            return Ok(None);
        };
        if token.len() > MAX_TOKEN {
            return wrong("lists with a page token that is too long");
        }
        if self.last.as_ref() == Some(&token) {
            return wrong("lists the same page again and again");
        }
        self.empty = match page.is_empty() {
            true => self.empty + 1,
            false => 0,
        };
        if self.empty > MAX_EMPTY_PAGES {
            return wrong("lists empty pages without end");
        }
        self.last = Some(token.clone());
        Ok(Some(token))
    }
}

#[cfg(test)]
mod tests {
    use super::super::directories::Object;
    use super::*;

    fn page(paths: &[&str], next: Option<&str>) -> Page {
        let objects = paths.iter().map(|path| Object {
            path: (*path).to_owned(),
            len: 1,
            mtime: 0,
            etag: None,
        });
        Page {
            objects: objects.collect(),
            directories: Vec::new(),
            next: next.map(str::to_owned),
        }
    }

    #[test]
    fn listings_share_the_room_and_give_it_back() {
        let one = page(&["a/b"], None);
        let room = Room::of(2 * one.cost());
        let (first, second) = (Share::of(&room), Share::of(&room));
        first.admit(&one, || panic!("there is room")).unwrap();
        second.admit(&one, || panic!("there is room")).unwrap();
        let error = second.admit(&one, || ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        let mut first = Some(first);
        second.admit(&one, || drop(first.take())).unwrap();
        drop(second);
        assert_eq!(room.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn listings_of_all_stores_are_dropped_for_another_one() {
        struct Store(Mutex<Option<Arc<Share>>>);
        impl Listings for Store {
            fn drop_all(&self) {
                lock(&self.0).take();
            }
        }
        let one = page(&["a/b"], None);
        let room = Room::of(2 * one.cost());
        let stores = [(); 2].map(|()| {
            let share = Share::of(&room);
            share.admit(&one, || panic!("there is room")).unwrap();
            Arc::new(Store(Mutex::new(Some(share))))
        });
        for store in &stores {
            let store: Arc<dyn Listings> = store.clone();
            room.add(Arc::downgrade(&store));
        }
        let share = Share::of(&room);
        share.admit(&one, || room.drop_listings()).unwrap();
        share.admit(&one, || panic!("there is room")).unwrap();
    }

    #[test]
    fn deep_paths_cost_their_directories() {
        let deep = |name: &str| format!("{name}{}", "/d".repeat(100));
        let (one, other) = (deep("a"), deep("b"));
        let flat = page(&["a", "b"], None).cost();
        let cost = page(&[&one, &other], None).cost();
        assert!(cost > 200 * 900, "{cost}");
        assert!(page(&[&one, &format!("{one}x")], None).cost() < cost / 2 + 2 * flat);
    }

    #[test]
    fn tokens_that_lead_nowhere_are_errors() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.next(&mut page(&["a"], Some("1"))).unwrap().unwrap(), "1");
        assert_eq!(tokens.next(&mut page(&["b"], Some("2"))).unwrap().unwrap(), "2");
        assert!(tokens.next(&mut page(&["c"], Some("2"))).is_err());
        assert!(
            tokens
                .next(&mut page(&["c"], Some(&"x".repeat(MAX_TOKEN + 1))))
                .is_err()
        );
        assert_eq!(tokens.next(&mut page(&[], Some(""))).unwrap(), None);
        assert_eq!(tokens.next(&mut page(&[], None)).unwrap(), None);
        let empty = (0..).map(|n| tokens.next(&mut page(&[], Some(&format!("t{n}")))));
        assert_eq!(empty.take_while(Result::is_ok).count(), MAX_EMPTY_PAGES);
    }
}
