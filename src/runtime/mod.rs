//! What decodes and waits, without a word of TileDB: memory, threads, and whoever waits for them.
//!
//! | module | |
//! |---|---|
//! | [`cache`] | what was decoded, within one bound in bytes |
//! | [`pinned`] | bytes that stay in memory while they are open, within the same bound |
//! | [`single_flight`] | one thread makes what several want |
//! | [`parallel`] | work on all processors |
//! | [`requester`] | the thread that this one works for, and whether it still waits |
//! | [`work`] | long jobs, which end when nobody waits for them |
//! | [`stats`] | counters of all that |

pub mod cache;
pub(crate) mod hash;
pub(crate) mod lock;
pub(crate) mod parallel;
pub mod pinned;
pub(crate) mod requester;
pub mod sequential;
pub(crate) mod single_flight;
pub mod stats;
pub mod work;
