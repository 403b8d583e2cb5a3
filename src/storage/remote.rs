//! Objects of a store as a source.

use super::Storage;
use super::disk_cache::DiskCache;
use super::remote_http::Failures;
use crate::error::Result;
use crate::stats::Stats;
use object_store::list::PaginatedListStore;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a URL leads to.
#[derive(Clone)]
pub struct Store {
    /// The objects.
    pub objects: Arc<dyn ObjectStore>,
    /// The same, for listings page by page; None where the store has no pages.
    pub pages: Option<Arc<dyn PaginatedListStore>>,
    /// What the keys of all that is in the source begin with.
    pub prefix: Key,
    /// The URL as messages show it: without a slash at the end, and without anything that is secret.
    pub url: String,
    /// Whether it is read without credentials, so that everybody may.
    pub unsigned: bool,
    /// When the first answer must be there, so that a mount of nothing fails soon.
    pub open_until: Instant,
    /// What went wrong with requests.
    pub failures: Arc<Failures>,
}

/// How a store is read.
#[derive(Clone)]
pub struct RemoteSettings {
    /// For how long a listing is taken as it is; None: for ever.
    pub refresh: Option<Duration>,
    /// Where parts of objects are kept from mount to mount.
    pub disk_cache: Option<Arc<DiskCache>>,
    /// Where requests and bytes are counted.
    pub stats: Arc<Stats>,
}

/// A source in an object store.
pub struct RemoteStorage {}

impl RemoteStorage {
    /// The source that `store` leads to. Lists it: `NotFound` where nothing is there.
    pub fn open(store: Store, settings: RemoteSettings) -> Result<Arc<dyn Storage>> {
        let (_, _) = (store, settings);
        Err(crate::error::Error::unsupported("to come"))
    }
}

/// How often what failed is tried again: 100 ms and more in between, 30 s in all.
pub fn retries() -> RetryConfig {
    let mut retries = RetryConfig {
        max_retries: 12,
        retry_timeout: Duration::from_secs(30),
        ..RetryConfig::default()
    };
    retries.backoff.init_backoff = Duration::from_millis(100);
    retries.backoff.max_backoff = Duration::from_secs(5);
    retries
}

/// How long a connection may take, and may stay silent. A body takes as long as it takes.
pub fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_read_timeout(Duration::from_secs(15))
        .with_connect_timeout(Duration::from_secs(5))
}
