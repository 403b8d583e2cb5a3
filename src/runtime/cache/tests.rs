use super::*;
use crate::error::ErrorKind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

fn key(tile: u64) -> CacheKey {
    CacheKey::tile(0, tile)
}

fn item(bytes: usize) -> Vec<u8> {
    vec![1; bytes]
}

#[test]
fn many_readers_of_one_chunk_cause_one_load() {
    let cache = ChunkCache::new(1 << 20, Arc::default());
    let (loads, start) = (AtomicUsize::new(0), Barrier::new(16));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                start.wait();
                let load = || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    Ok(item(10))
                };
                cache.get(key(1), 10, Keep::Staying, load).unwrap();
            });
        }
    });
    assert_eq!(loads.load(Ordering::SeqCst), 1);
}

#[test]
fn entries_of_two_types_are_two() {
    let cache = ChunkCache::new(1 << 20, Arc::default());
    let bytes = cache.get(key(1), 0, Keep::Staying, || Ok(vec![1u8])).unwrap();
    let numbers = cache.get(key(1), 0, Keep::Staying, || Ok(vec![2u64])).unwrap();
    assert_eq!((&*bytes, &*numbers), (&vec![1], &vec![2]));
    assert_eq!(cache.find(key(1)), Some(bytes));
    assert_eq!(cache.find::<Vec<u16>>(key(1)), None);
}

#[test]
fn what_is_borrowed_drives_out_what_is_kept() {
    let stats: Arc<Stats> = Arc::default();
    let cache = ChunkCache::new(10_000, stats.clone());
    for tile in 0..4 {
        cache
            .get(key(tile), 2000, Keep::Staying, || Ok(item(2000)))
            .unwrap();
    }
    let before = stats.cache_bytes.get();
    let borrowed = cache.borrow(5000);
    assert!(stats.cache_bytes.get() <= 10_000);
    assert!(stats.cache_evictions.get() >= 2);
    drop(borrowed);
    assert!(stats.cache_bytes.get() < before);
}

#[test]
fn the_bound_holds_with_loads_in_progress() {
    let stats: Arc<Stats> = Arc::default();
    let cache = ChunkCache::new(10_000, stats.clone());
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (cache, stats, most) = (&cache, &stats, &most);
            scope.spawn(move || {
                for i in 0..200u64 {
                    let load = || {
                        most.fetch_max(stats.cache_bytes.get(), Ordering::SeqCst);
                        Ok(item(3000))
                    };
                    cache
                        .get(key((thread * 31 + i * 7) % 50), 3200, Keep::Staying, load)
                        .unwrap();
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 10_000);
    assert!(stats.cache_evictions.get() > 0);
    assert!(stats.cache_bytes.get() <= 10_000);
}

#[test]
fn what_passes_is_kept_in_small_numbers() {
    const CHUNK: usize = 64 << 10;
    const LARGE: usize = 256 << 10;
    let stats: Arc<Stats> = Arc::default();
    let mut cache = ChunkCache::new(256 << 20, stats.clone());
    cache.processors = 2;
    let pass = |cache: &ChunkCache, size: usize, tiles: std::ops::Range<u64>| {
        for tile in tiles {
            let load = || Ok(item(size));
            cache.get(key(tile), size as u64, Keep::Passing, load).unwrap();
        }
        stats.cache_bytes.get() >> 10
    };
    assert_eq!(pass(&cache, CHUNK, 0..1000), 128 * 64 + 16);
    let evictions = stats.cache_evictions.get();
    pass(&cache, CHUNK, 880..1000);
    assert_eq!(stats.cache_evictions.get(), evictions, "the last ones are there");
    assert_eq!(
        pass(&cache, LARGE, 2000..3000),
        63 * 256 + 7,
        "the share of 16 MiB"
    );
    assert_eq!(pass(&cache, 100, 4000..50_000), 8191, "small ones fill 8 MiB");
}

#[test]
fn one_entry_is_kept_that_is_larger_than_the_cache() {
    let stats: Arc<Stats> = Arc::default();
    let cache = ChunkCache::new(1000, stats.clone());
    let loads = AtomicUsize::new(0);
    let get = |tile, size: usize| {
        let load = || {
            loads.fetch_add(1, Ordering::SeqCst);
            Ok(item(size))
        };
        cache.get(key(tile), size as u64, Keep::Passing, load).unwrap();
        (loads.load(Ordering::SeqCst), stats.cache_bytes.get())
    };
    assert_eq!(get(1, 5000), (1, 5128));
    // What else there is has the size of the cache, as ever.
    assert_eq!(get(2, 100), (2, 5356));
    assert_eq!(get(1, 5000), (2, 5356));
    assert_eq!(get(3, 800), (3, 5128 + 928));
    assert_eq!(get(1, 5000).0, 3);
    // The next one takes the place of it, and of nearly all else.
    assert_eq!(get(4, 6000), (4, 6128));
    assert_eq!(get(1, 5000), (5, 5128));
    // One that is larger than all may be is not kept.
    let most = cache.most_at_once() as usize;
    assert_eq!(get(5, most), (6, 0));
    assert_eq!(get(2, 100), (7, 228));
}

#[test]
fn who_would_evict_a_large_entry_waits_for_its_readers() {
    let mut cache = ChunkCache::new(1000, Arc::default());
    cache.unkept_wait = Duration::from_secs(600);
    let get = |tile, size: usize| cache.get(key(tile), size as u64, Keep::Staying, || Ok(item(size)));
    get(1, 600).unwrap();
    // As if it took long to load it.
    let set = |seconds| {
        lock(&cache.state).large.as_mut().unwrap().took = Duration::from_secs(seconds);
    };
    set(600);
    thread::scope(|scope| {
        let other = scope.spawn(|| get(2, 600).unwrap());
        // There is room for this one.
        get(3, 10).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(!other.is_finished());
        assert!(cache.find::<Vec<u8>>(key(1)).is_some());
        set(0);
        other.join().unwrap();
    });
    assert!(cache.find::<Vec<u8>>(key(1)).is_none());
}

#[test]
fn what_is_too_large_waits_for_readers_of_another() {
    let mut cache = ChunkCache::new(1000, Arc::default());
    // Whatever else the machine does, a reader drops the first before.
    cache.unkept_wait = Duration::from_secs(600);
    let get = |cache: &ChunkCache, tile| {
        cache
            .get(key(tile), 100_000, Keep::Staying, || Ok(item(100_000)))
            .unwrap()
    };
    let small = || cache.get(key(0), 5000, Keep::Staying, || Ok(item(5000))).unwrap();
    let first = get(&cache, 1);
    thread::scope(|scope| {
        let second = scope.spawn(|| get(&cache, 2));
        thread::sleep(Duration::from_millis(50));
        assert!(!second.is_finished());
        // One that is larger than the cache, but small, waits for nobody.
        drop(small());
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap();
    });

    // A reader of one does not wait for itself for ever.
    cache.unkept_wait = MAX_UNKEPT_WAIT;
    let held = get(&cache, 3);
    get(&cache, 4);
    drop(held);

    // Entries that nobody holds are forgotten.
    for tile in 5..50 {
        cache
            .derive(key(tile), 0, Keep::Staying, || Ok(item(100_000)))
            .unwrap();
    }
    assert!(lock(&cache.state).unkept.len() <= 1);
}

#[test]
fn what_is_decoded_at_once_is_bounded() {
    let small = ChunkCache::new(1, Arc::default());
    small.check_size(64 << 20).unwrap();
    assert_eq!(
        small.check_size(u64::MAX).unwrap_err().kind(),
        ErrorKind::LimitExceeded
    );
    let large = ChunkCache::new(1 << 30, Arc::default());
    large.check_size(1 << 30).unwrap();
    assert!(large.check_size(2 << 30).is_err());
}

#[test]
fn failures_and_panics_free_their_budget_and_are_not_kept() {
    let stats: Arc<Stats> = Arc::default();
    let cache = ChunkCache::new(1000, stats.clone());
    assert!(
        cache
            .get(key(1), 500, Keep::Staying, || Err::<Vec<u8>, _>(Error::corrupt(
                "x"
            )))
            .is_err()
    );
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = cache.get(key(1), 500, Keep::Staying, || -> Result<Vec<u8>> {
            panic!("deliberate")
        });
    }));
    assert!(unwound.is_err());
    assert_eq!(stats.cache_bytes.get(), 0);
    cache.get(key(1), 500, Keep::Staying, || Ok(item(5))).unwrap();
}
