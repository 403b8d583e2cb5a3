//! Locks, and cells that are filled once.

use crate::error::Result;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Locks `mutex`, even if a thread panicked while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of `cell`, which `make` makes if there is none. Several threads may make it; the first one stays. A
/// failure is not kept.
pub(crate) fn get_or_make<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match cell.get() {
        Some(value) => Ok(value),
        None => {
            let value = make()?;
            Ok(cell.get_or_init(|| value))
        }
    }
}
