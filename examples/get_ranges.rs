//! Asks a store for ranges with `object_store` alone, and drops what comes: the most that it allows, for
//! `scripts/bench.sh` to compare with.
//!
//! `get_ranges BUCKET PREFIX AT_ONCE` lists all below the prefix and then gets what standard input says, a
//! line each: a key, the first byte, and the byte behind the last. It prints requests and bytes as JSON. The
//! store is that of the environment.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::aws::AmazonS3Builder;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use std::error::Error;
use std::ops::Range;

fn wanted(line: &str) -> Option<(Path, Range<u64>)> {
    let mut words = line.rsplitn(3, ' ');
    let end = words.next()?.parse().ok()?;
    let start = words.next()?.parse().ok()?;
    Some((Path::parse(words.next()?).ok()?, start..end))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bucket, prefix, at_once] = arguments.as_slice() else {
        return Err("usage: get_ranges BUCKET PREFIX AT_ONCE".into());
    };
    let at_once = at_once.parse()?;
    let lines: Vec<String> = std::io::stdin().lines().collect::<Result<_, _>>()?;
    let ranges: Option<Vec<_>> = lines.iter().map(|line| wanted(line)).collect();
    let ranges = ranges.ok_or("a line that is not KEY START END")?;
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "the library for TLS had been chosen before")?;
    let store = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_allow_http(true)
        .build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (requests, bytes) = runtime.block_on(async {
        let (mut requests, mut token) = (0, None);
        loop {
            let options = PaginatedListOptions {
                page_token: token,
                ..PaginatedListOptions::default()
            };
            token = store.list_paginated(Some(prefix), options).await?.page_token;
            requests += 1;
            if token.is_none() {
                break;
            }
        }
        let lengths = stream::iter(&ranges).map(|(key, range)| store.get_range(key, range.clone()));
        let lengths = lengths.buffer_unordered(at_once).map_ok(|bytes| bytes.len());
        let lengths: Vec<usize> = lengths.try_collect().await?;
        Ok::<_, object_store::Error>((requests + lengths.len(), lengths.iter().sum::<usize>()))
    })?;
    println!("{{\"requests\": {requests}, \"bytes\": {bytes}}}");
    Ok(())
}
