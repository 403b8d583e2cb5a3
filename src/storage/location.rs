//! What SOURCE means: a directory of this machine, or a URL that leads into an object store.

use super::remote::{Store, client_options, retries};
use super::remote_http::Counting;
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Stats;
use object_store::aws::AmazonS3Builder;
use std::sync::Arc;

/// Whether `source` is a URL.
pub fn is_url(source: &str) -> bool {
    source.starts_with("s3://")
}

/// What the URL `source` leads to, with what the environment says.
pub fn open(source: &str, stats: Arc<Stats>) -> Result<Store> {
    let wrong = |message: String| Error::new(ErrorKind::InvalidInput, message).in_file(source);
    let rest = source.strip_prefix("s3://").unwrap_or_default();
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let store = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(client_options())
        .with_retry(retries())
        .with_http_connector(Counting::new(stats))
        .build()
        .map_err(|e| wrong(e.to_string()))?;
    let store = Arc::new(store);
    Ok(Store {
        objects: store.clone(),
        pages: Some(store),
        prefix: object_store::path::Path::parse(prefix).map_err(|e| wrong(e.to_string()))?,
        url: source.trim_end_matches('/').to_owned(),
        public: false,
    })
}
