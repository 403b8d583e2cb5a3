//! The runtime for network requests.

use crate::error::{Error, Result};
use crate::runtime::lock;
use std::sync::{Mutex, OnceLock};
use tokio::runtime::{Builder, Runtime};

/// The runtime for requests to object stores: two threads, started with the first remote source.
pub(super) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = lock(&STARTING);
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("network")
        .enable_all()
        .build()
        .map_err(|error| Error::io(&error))?;
    Ok(RUNTIME.get_or_init(|| runtime))
}
