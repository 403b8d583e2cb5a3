//! tiledbfs: TileDB arrays as plain files.
#![warn(missing_docs)]

pub mod array;
pub mod cli;
pub mod cursor;
pub mod error;
pub mod filter;
pub mod format;
pub mod fuse;
pub mod stats;
pub mod storage;
pub mod tree;

pub use error::{Error, ErrorKind, Result};
