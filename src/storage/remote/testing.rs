//! A store in memory for tests, with recorded requests, latency and faults.

use super::Store;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long requests are held, and waited for, before a test fails.
const HELD_AT_MOST: Duration = Duration::from_secs(20);

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A request to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    List(String),
    Get(String, Range<u64>),
}

/// Decides which requests fail.
pub(crate) type Fault = Box<dyn FnMut(&Request) -> Option<object_store::Error> + Send>;

/// A store in memory.
pub(crate) struct TestStore {
    pub(crate) inner: InMemory,
    pub(crate) requests: Mutex<Vec<Request>>,
    pub(crate) fault: Mutex<Option<Fault>>,
    pub(crate) latency: Mutex<Duration>,
    held: AtomicBool,
    /// Whether listings have neither ETags nor times.
    pub(crate) plain: AtomicBool,
    /// Whether the next body breaks off; its reply has no ETag.
    pub(crate) breaks: AtomicBool,
    /// Requests under way, and the most that were at once.
    pub(crate) under_way: Mutex<(usize, usize)>,
    /// Keys in listings that `object_store` cannot parse.
    pub(crate) odd: Mutex<Vec<String>>,
    /// Listings are in the order of this.
    pub(crate) order: Mutex<fn(&str) -> String>,
    /// Keys per page.
    pub(crate) page: usize,
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestStore")
    }
}

impl fmt::Display for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestStore")
    }
}

/// Runs a future that never waits.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

impl TestStore {
    pub(crate) fn new(page: usize) -> Arc<TestStore> {
        Arc::new(TestStore {
            inner: InMemory::new(),
            requests: Mutex::default(),
            fault: Mutex::default(),
            latency: Mutex::default(),
            held: AtomicBool::new(false),
            plain: AtomicBool::new(false),
            breaks: AtomicBool::new(false),
            under_way: Mutex::default(),
            odd: Mutex::default(),
            order: Mutex::new(str::to_owned),
            page,
        })
    }

    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let key = Key::parse(key).unwrap();
        now(self.inner.put(&key, PutPayload::from(bytes.to_vec()))).unwrap();
    }

    pub(crate) fn delete(&self, key: &str) {
        now(self.inner.delete(&Key::parse(key).unwrap())).unwrap();
    }

    /// Puts all files in `folder` below `prefix`.
    pub(crate) fn put_folder(&self, folder: &Path, prefix: &str) {
        let mut waiting = vec![folder.to_path_buf()];
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    waiting.push(path);
                } else {
                    let below = path.strip_prefix(folder).unwrap().to_str().unwrap();
                    self.put(&format!("{prefix}/{below}"), &std::fs::read(&path).unwrap());
                }
            }
        }
    }

    pub(crate) fn store(self: &Arc<Self>, prefix: &str) -> Store {
        Store {
            objects: self.clone(),
            pages: Some(self.clone()),
            ordered: true,
            prefix: Key::parse(prefix).unwrap(),
            url: format!("test://{prefix}"),
            unsigned: false,
            open_until: Instant::now() + Duration::from_secs(8),
            failures: Arc::default(),
        }
    }

    /// The requests since the last call.
    pub(crate) fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    /// While it holds, no request is answered.
    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// Waits until there has been a request since the last call of [`TestStore::asked`].
    pub(crate) fn wait_for_request(&self) {
        let end = Instant::now() + HELD_AT_MOST;
        while self.requests.lock().unwrap().is_empty() {
            assert!(Instant::now() < end, "there is no request");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    async fn note(&self, request: Request) -> Result<()> {
        let fault = self
            .fault
            .lock()
            .unwrap()
            .as_mut()
            .and_then(|fault| fault(&request));
        self.requests.lock().unwrap().push(request);
        let held_until = Instant::now() + HELD_AT_MOST;
        while self.held.load(Ordering::Relaxed) {
            if Instant::now() > held_until {
                return Err(object_store::Error::Generic {
                    store: "test",
                    source: "held too long".into(),
                });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let latency = *self.latency.lock().unwrap();
        if latency > Duration::ZERO {
            let begin = |under_way: &mut (usize, usize)| {
                under_way.0 += 1;
                under_way.1 = under_way.1.max(under_way.0);
            };
            begin(&mut self.under_way.lock().unwrap());
            tokio::time::sleep(latency).await;
            self.under_way.lock().unwrap().0 -= 1;
        }
        fault.map_or(Ok(()), Err)
    }
}

impl PaginatedListStore for TestStore {
    fn list_paginated<'a, 'b, 'c>(
        &'a self,
        prefix: Option<&'b str>,
        options: PaginatedListOptions,
    ) -> Answer<'c, PaginatedListResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async move {
            let prefix = prefix.unwrap_or_default().to_owned();
            self.note(Request::List(prefix.clone())).await?;
            let all: Vec<_> = self.inner.list(None).collect().await;
            let mut objects: Vec<ObjectMeta> = all.into_iter().collect::<Result<_>>()?;
            objects.sort_by(|a, b| a.location.as_ref().cmp(b.location.as_ref()));
            objects.retain(|object| object.location.as_ref().starts_with(&prefix));
            if self.plain.load(Ordering::Relaxed) {
                for object in &mut objects {
                    (object.e_tag, object.last_modified) = (None, UNIX_EPOCH.into());
                }
            }
            // A page counts keys and common prefixes.
            let mut names = BTreeSet::new();
            let odd = self.odd.lock().unwrap().clone();
            let odd = odd
                .iter()
                .map(String::as_str)
                .filter(|odd| odd.starts_with(&prefix));
            for key in objects.iter().map(|object| object.location.as_ref()).chain(odd) {
                let name = match options.delimiter.is_some() {
                    true => key[prefix.len()..]
                        .find('/')
                        .map_or(key, |end| &key[..prefix.len() + end + 1]),
                    false => key,
                };
                names.insert(name.to_owned());
            }
            let after = options.page_token.max(options.offset).unwrap_or_default();
            let most = options.max_keys.unwrap_or(self.page).min(self.page);
            let order = *self.order.lock().unwrap();
            let mut names: Vec<String> = names.into_iter().collect();
            names.sort_by_key(|name| order(name));
            let after = order(&after);
            let mut names = names.into_iter().filter(|name| order(name) > after);
            let page: Vec<String> = names.by_ref().take(most).collect();
            for name in &page {
                Key::parse(name)?;
            }
            let page_token = names.next().and(page.last().cloned());
            let mut result = ListResult {
                common_prefixes: Vec::new(),
                objects: Vec::new(),
                extensions: Default::default(),
            };
            for name in page {
                match name.ends_with('/') {
                    true => result.common_prefixes.push(Key::parse(&name)?),
                    false => {
                        let object = objects.iter().find(|object| object.location.as_ref() == name);
                        result.objects.extend(object.cloned());
                    }
                }
            }
            Ok(PaginatedListResult { result, page_token })
        })
    }
}

impl ObjectStore for TestStore {
    fn get_opts<'a, 'b, 'c>(&'a self, location: &'b Key, options: GetOptions) -> Answer<'c, GetResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async move {
            let range = match &options.range {
                Some(GetRange::Bounded(range)) => range.clone(),
                _ => 0..u64::MAX,
            };
            self.note(Request::Get(location.to_string(), range)).await?;
            let mut answer = self.inner.get_opts(location, options).await?;
            if self.breaks.swap(false, Ordering::Relaxed) {
                answer.meta.e_tag = None;
                let error = object_store::Error::Generic {
                    store: "test",
                    source: "the connection is lost".into(),
                };
                let pieces = [Ok(Bytes::from_static(b"part")), Err(error)];
                answer.payload = GetResultPayload::Stream(stream::iter(pieces).boxed());
            }
            Ok(answer)
        })
    }

    fn put_opts<'a, 'b, 'c>(
        &'a self,
        location: &'b Key,
        payload: PutPayload,
        options: PutOptions,
    ) -> Answer<'c, PutResult>
    where
        'a: 'c,
        'b: 'c,
    {
        self.inner.put_opts(location, payload, options)
    }

    fn put_multipart_opts<'a, 'b, 'c>(
        &'a self,
        location: &'b Key,
        options: PutMultipartOptions,
    ) -> Answer<'c, Box<dyn MultipartUpload>>
    where
        'a: 'c,
        'b: 'c,
    {
        self.inner.put_multipart_opts(location, options)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_delimiter<'a, 'b, 'c>(&'a self, prefix: Option<&'b Key>) -> Answer<'c, ListResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async move {
            let shown = prefix.map(Key::to_string).unwrap_or_default();
            self.note(Request::List(shown)).await?;
            self.inner.list_with_delimiter(prefix).await
        })
    }

    fn copy_opts<'a, 'b, 'c, 'd>(&'a self, from: &'b Key, to: &'c Key, options: CopyOptions) -> Answer<'d, ()>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
    {
        self.inner.copy_opts(from, to, options)
    }
}
