//! Fetching bytes of objects, and failures.

use super::*;
use std::sync::atomic::Ordering;

/// Test content without short periods.
fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn one_object(len: u64) -> (Arc<TestStore>, Arc<dyn Storage>) {
    let store = TestStore::new(1000);
    store.put("p/f", &bytes(len));
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    store.asked();
    (store, storage)
}

fn fetched(requests: &[Request]) -> u64 {
    let bytes = requests.iter().map(|request| match request {
        Request::Get(_, range) => range.end - range.start,
        Request::List(_) => 0,
    });
    bytes.sum()
}

#[test]
fn sequential_readers_share_large_requests() {
    const LEN: u64 = 40 << 20;
    let (store, storage) = one_object(LEN);
    let all = bytes(LEN);
    let read = |start: u64| {
        let blob = storage.open(Path::new("f")).unwrap();
        let mut at = start;
        while at < LEN {
            let size = (LEN - at).min(100_000);
            blob.will_read(at..at + size);
            let found = blob.read(at, size).unwrap();
            assert!(found == all[at as usize..(at + size) as usize], "{at}");
            at += size;
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| read(0));
        }
    });
    let asked = store.asked();
    assert!(asked.len() <= 16, "{asked:?}");
    assert_eq!(fetched(&asked), LEN);
}

#[test]
fn out_of_order_requests_of_one_reader_are_sequential() {
    const LEN: u64 = 16 << 20;
    const TILE: u64 = 64 << 10;
    let (store, storage) = one_object(LEN);
    *store.latency.lock().unwrap() = Duration::from_millis(5);
    let blob = storage.open(Path::new("f")).unwrap();
    let next = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let request = next.fetch_add(2 * TILE, std::sync::atomic::Ordering::Relaxed);
                    if request >= LEN {
                        break;
                    }
                    for tile in [request, request + TILE] {
                        blob.will_read(tile..tile + TILE);
                        blob.read(tile, TILE).unwrap();
                    }
                }
            });
        }
    });
    let asked = store.asked();
    // 128 if each read were on its own. How far the first windows grow depends on which thread comes first.
    assert!(asked.len() <= 24, "{} {asked:?}", asked.len());
    assert_eq!(fetched(&asked), LEN);
}

#[test]
fn read_ahead_ends_where_the_part_of_the_reader_ends() {
    const TILE: u64 = 100_000;
    let (store, storage) = one_object(64 << 20);
    let blob = storage.open(Path::new("f")).unwrap();
    // Every second part, as one of two workers reads them, then one before them.
    for part in [4, 6, 8, 2] {
        let part = part * 8 * TILE..(part + 1) * 8 * TILE;
        for tile in part.clone().step_by(TILE as usize) {
            blob.will_read_through(tile..part.end);
            blob.will_read(tile..tile + TILE);
            blob.read(tile, TILE).unwrap();
        }
        let asked = store.asked();
        assert_eq!(fetched(&asked), part.end - part.start, "{asked:?}");
        assert!(asked.len() <= 3, "{asked:?}");
    }
}

/// What a new mount of `store` with the disk cache in `folder` opens.
fn with_disk_cache(store: &Arc<TestStore>, folder: &Path) -> Arc<dyn Storage> {
    let disk = DiskCache::open(folder, 100 << 20).unwrap();
    let settings = RemoteSettings {
        disk_cache: Some(Arc::new(disk)),
        ..settings()
    };
    RemoteStorage::open(store.store("p"), settings).unwrap()
}

#[test]
fn a_second_mount_with_a_disk_cache_only_lists() {
    const LEN: u64 = 5 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = TestStore::new(1000);
    store.put("p/f", &bytes(LEN));
    store.put("p/small", b"few");
    for mount in 0..2 {
        let storage = with_disk_cache(&store, folder.path());
        let blob = storage.open(Path::new("f")).unwrap();
        for place in [4 << 20, (2 << 20) - 5, LEN - 10] {
            let found = blob.read(place, 10).unwrap();
            assert_eq!(found, bytes(LEN)[place as usize..place as usize + 10]);
        }
        let small = storage.open(Path::new("small")).unwrap();
        assert_eq!(small.read(0, 3).unwrap(), b"few");
        let asked = store.asked();
        match mount {
            0 => assert!(asked.len() > 3, "{asked:?}"),
            _ => assert_eq!(asked, [Request::List("p/".to_owned())]),
        }
        // Other threads than the readers write the parts.
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn random_reads_fetch_only_the_announced_range() {
    let (store, storage) = one_object(64 << 20);
    let blob = storage.open(Path::new("f")).unwrap();
    for place in [30 << 20, 5 << 20, 50 << 20, 20 << 20] {
        blob.will_read(place..place + 400_000);
        for step in 0..40 {
            blob.read(place + step * 10_000, 512).unwrap();
        }
        let asked = store.asked();
        assert_eq!(asked, [Request::Get("p/f".to_owned(), place..place + 400_000)]);
    }
}

#[test]
fn a_changed_object_fails_open_readers_and_is_new_when_reopened() {
    let (store, storage) = one_object(1 << 20);
    let old = storage.open(Path::new("f")).unwrap();
    old.read(0, 10).unwrap();
    store.put("p/f", &[9; 1 << 20]);
    let error = old.read(900_000, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert!(
        error.to_string().contains("has changed since it was opened"),
        "{error}"
    );
    // Bytes fetched earlier are not mixed with new ones.
    assert!(old.read(0, 10).is_err() && !old.is_unchanged());
    let new = storage.open(Path::new("f")).unwrap();
    assert!(new.version() != old.version());
    assert_eq!(new.read(900_000, 10).unwrap(), [9; 10]);
}

#[test]
fn an_object_without_etag_that_has_changed_fails_its_readers_for_good() {
    let store = TestStore::new(1000);
    store.plain.store(true, Ordering::Relaxed);
    store.put("p/f", &bytes(1 << 20));
    let storage = RemoteStorage::open(store.store("p"), settings()).unwrap();
    let old = storage.open(Path::new("f")).unwrap();
    old.read(0, 10).unwrap();
    // The listing tells nothing of this.
    store.put("p/f", &[9; 1 << 20]);
    assert_eq!(old.read(900_000, 10).unwrap_err().kind(), ErrorKind::Changed);
    thread::sleep(Duration::from_millis(1100));
    for place in [900_000, 0] {
        assert_eq!(old.read(place, 10).unwrap_err().kind(), ErrorKind::Changed);
    }
    let new = storage.open(Path::new("f")).unwrap();
    for place in [900_000, 0] {
        assert_eq!(new.read(place, 10).unwrap(), [9; 10]);
    }
    // What was decoded of the old one is kept by its version.
    assert_ne!(new.version(), old.version());
    assert_eq!(storage.metadata(Path::new("f")).unwrap().version, new.version());
}

#[test]
fn a_body_that_breaks_off_is_asked_for_again_without_an_etag_too() {
    let (store, storage) = one_object(1 << 20);
    let blob = storage.open(Path::new("f")).unwrap();
    store.breaks.store(true, Ordering::Relaxed);
    assert_eq!(blob.read(0, 10).unwrap(), bytes(10));
    assert_eq!(store.asked().len(), 2);
}

#[test]
fn a_read_larger_than_the_pool_fetches_nothing_that_is_on_disk() {
    const LEN: u64 = 9 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = TestStore::new(1000);
    store.put("p/f", &bytes(LEN));
    for (mount, cache) in [64 << 20, 8 << 20, 1 << 20].into_iter().enumerate() {
        let storage = with_disk_cache(&store, folder.path());
        storage.share(Arc::new(ChunkCache::new(cache, Arc::default())));
        store.asked();
        let blob = storage.open(Path::new("f")).unwrap();
        let range = 100..LEN - 100;
        blob.will_read(range.clone());
        let found = blob.read(range.start, range.end - range.start).unwrap();
        assert!(found == bytes(LEN)[100..LEN as usize - 100]);
        if mount > 0 {
            assert_eq!(store.asked(), [], "a cache of {cache} bytes");
        }
        // Other threads than the readers write the parts.
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn members_outside_of_a_source_share_its_pool() {
    const LEN: u64 = 300 << 10;
    const CACHE: u64 = 1 << 20;
    let store = TestStore::new(1000);
    let content = |seed: u8| vec![seed; LEN as usize];
    for (seed, prefix) in ["p", "q", "r"].into_iter().enumerate() {
        store.put(&format!("{prefix}/f"), &content(seed as u8));
    }
    let settings = settings();
    let (stores, of_members) = (store.clone(), settings.clone());
    let open = move |url: &str| {
        let prefix = url.strip_prefix("s3://").unwrap();
        RemoteStorage::open(stores.store(prefix), of_members.clone())
    };
    let source = RemoteStorage::open(store.store("p"), settings.clone()).unwrap();
    let storage = following::FollowingStorage::new(source, Arc::new(open));
    storage.share(Arc::new(ChunkCache::new(CACHE, Arc::default())));
    let members = ["s3://q", "s3://r"].map(|url| storage.inside(url.as_bytes()).unwrap());
    for (seed, path) in [PathBuf::new()].iter().chain(&members).enumerate() {
        let blob = storage.open(&path.join("f")).unwrap();
        assert!(blob.read(0, LEN).unwrap() == content(seed as u8));
    }
    let kept = settings.memory.pool.bytes();
    assert!((LEN..=CACHE / 2).contains(&kept), "{kept}");
}

#[test]
fn a_deleted_object_is_not_found_and_not_listed() {
    let (store, storage) = one_object(100);
    store.put("p/other", b"x");
    let blob = storage.open(Path::new("f")).unwrap();
    store.delete("p/f");
    assert_eq!(blob.read(0, 10).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names(&*storage, ""), ["other"]);
}

#[test]
fn errors_have_their_errno_and_are_not_cached() {
    use object_store::Error as E;
    let (store, storage) = one_object(1 << 20);
    let blob = storage.open(Path::new("f")).unwrap();
    let denied = |text: &'static str| E::PermissionDenied {
        path: String::new(),
        source: text.into(),
    };
    let unauthenticated = |text: &'static str| E::Unauthenticated {
        path: String::new(),
        source: text.into(),
    };
    let generic = |text: &'static str| E::Generic {
        store: "S3",
        source: text.into(),
    };
    type Fault = fn(&'static str) -> E;
    let faults: [(Fault, &str, i32, &str); 9] = [
        (denied, "403", libc::EACCES, "give others"),
        (unauthenticated, "401", libc::EACCES, "wants credentials"),
        (generic, "403 Forbidden", libc::EACCES, "give others"),
        (generic, "400: <Code>ExpiredToken</Code>", libc::EACCES, "expired"),
        (denied, "<Code>ExpiredToken</Code>", libc::EACCES, "expired"),
        (
            denied,
            "Signature not valid in the specified time frame: Start [x] - Expiry [y]",
            libc::EACCES,
            "expired",
        ),
        (denied, "<Code>RequestTimeTooSkewed</Code>", libc::EACCES, "clock"),
        (
            denied,
            "<Code>InvalidObjectState</Code>",
            libc::EACCES,
            "archived",
        ),
        (generic, "503", libc::EIO, "503"),
    ];
    for (fault, text, errno, word) in faults {
        *store.fault.lock().unwrap() = Some(Box::new(move |_| Some(fault(text))));
        let error = blob.read(500_000, 10).unwrap_err();
        assert_eq!((error.errno(), error.file()), (errno, Some("f")), "{error}");
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
    *store.fault.lock().unwrap() = None;
    assert_eq!(blob.read(500_000, 10).unwrap(), bytes(1 << 20)[500_000..500_010]);
}

#[test]
fn an_interrupted_reader_gets_eintr_and_others_their_bytes() {
    let (store, storage) = one_object(1 << 20);
    let blob = storage.open(Path::new("f")).unwrap();
    store.hold(true);
    let ended = ended();
    let gone = || crate::runtime::requester::on_behalf_of(ended.clone(), || blob.read(0, 10).unwrap_err());
    assert_eq!(gone().errno(), libc::EINTR);
    store.asked();
    thread::scope(|scope| {
        let other = scope.spawn(|| blob.read(0, 10));
        store.wait_for_request();
        assert_eq!(gone().errno(), libc::EINTR);
        store.hold(false);
        assert_eq!(other.join().unwrap().unwrap(), bytes(10));
    });
    // The first request was aborted; the second is not repeated.
    assert_eq!(store.asked().len(), 1);
}
