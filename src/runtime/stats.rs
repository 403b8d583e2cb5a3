//! Counters of the work that a mount has done, shown in `.tiledbfs/stats.json`.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters. All only grow, but for the gauges that say so.
        #[derive(Debug, Default)]
        pub struct Stats { $($(#[$doc])* pub $name: Counter),* }

        impl Stats {
            /// Name and value of every counter.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

counters! {
    /// Data tiles whose chunk index was read: tiles of which at least one byte was asked for.
    tiles_opened,
    /// Chunks of data tiles (values, offsets, validity) that were decoded.
    chunks_decoded,
    /// Chunks of fragment metadata sections that were decoded.
    metadata_chunks_decoded,
    /// Bytes that decoding has produced, both kinds of chunk.
    bytes_decoded,
    /// Bytes read from the source's files.
    bytes_read,
    /// Files of the source that were opened.
    files_opened,
    /// Chunks found in the cache, decoded or being decoded by another reader.
    cache_hits,
    /// Chunks not found in the cache.
    cache_misses,
    /// Chunks dropped from the cache to make room.
    cache_evictions,
    /// Gauge: bytes in the cache, those being decoded included.
    cache_bytes,
    /// Gauge: the cache's bound in bytes.
    cache_capacity,
    /// Read requests answered.
    reads,
    /// Bytes that read requests were answered with.
    bytes_served,
    /// Requests that failed with an error in the data.
    errors,
    /// Gauge: inodes that the kernel remembers, the root included.
    inodes,
    /// Gauge: files and directories that are open.
    open_handles,
    /// Gauge: files of the source that are kept open between reads.
    kept_files,
    /// Requests to an object store for a page of a listing.
    list_requests,
    /// Requests to an object store for bytes of an object.
    get_requests,
    /// Requests to an object store for the properties of an object.
    head_requests,
    /// Requests to an object store that failed in a way that is tried again.
    retries,
    /// Bytes of objects that were fetched.
    bytes_fetched,
}

/// One counter, safe to change from any thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
