//! Reads [TileDB](https://tiledb.com) arrays from a disk or an object store, without libtiledb.
//!
//! An [`Array`] is opened by itself or as a part of a [`Source`]. [`Array::at`] selects a time and a part of
//! the domain. The result is a [`View`], in which the array's fragments are merged and its deletes carried
//! out, as in TileDB. A view gives the [`Cells`] of a field. Data is decoded when it is read, and kept in a
//! cache of bounded size.
//!
//! ```
//! use tiledbfs::{Array, DimRange, TimeRange};
//!
//! let array = Array::open("tests/data/sample/weather")?;
//! let all = array.at(TimeRange::ALL).open()?;
//! assert_eq!(all.shape()?, [365, 6]);
//!
//! // Days 32 to 59 at all stations, row by row.
//! let february = array.at(TimeRange::ALL).subarray([DimRange::from(32_i32..=59), DimRange::default()]);
//! let february = february.open()?;
//! let temperatures: Vec<f32> = february.read("temperature", 0..february.count()?)?;
//! assert_eq!(temperatures.len(), 28 * 6);
//!
//! // Cells of a length of their own: where each begins, and the bytes of all.
//! let (starts, text) = february.cells("note")?.var_values(0..6)?;
//! assert_eq!(starts.last(), Some(&(text.len() as u64)));
//!
//! // As it was at the end of 2024.
//! let before = array.at(TimeRange::until(1_735_689_599_999)).open()?;
//! assert_eq!(before.count()?, 0);
//!
//! // What one write stored, in the order on disk.
//! let fragments = all.fragments();
//! assert_eq!(fragments.len(), 2);
//! assert_eq!(fragments[1].outline()?.cells, 438);
//! # Ok::<(), tiledbfs::Error>(())
//! ```
//!
//! | feature | |
//! |---|---|
//! | `remote` (default) | sources in object stores: S3, Google Cloud Storage, Azure, WebDAV |
//! | `mount` (default) | the program `tiledbfs`: a file system, and a command line |
//! | `tree` | the half of the program that needs no FUSE; a part of `mount` |
//! | `internals` | opens the modules to the crate's own tests; what is in them changes at any time |
//!
//! `docs/architecture.md` describes how it works.
#![warn(missing_docs)]
#![cfg_attr(not(feature = "internals"), warn(unnameable_types))]
#![deny(unsafe_op_in_unsafe_fn)]
// Types that are not exported have `is_empty` only where it is called.
#![allow(clippy::len_without_is_empty)]
// Unused code is reported with all features on. With fewer, some modules are used only in part.
#![cfg_attr(
    not(all(feature = "mount", feature = "remote")),
    allow(dead_code, unused_imports)
)]

mod array;
#[cfg(feature = "tree")]
mod calendar;
#[cfg(feature = "tree")]
mod check;
#[cfg(feature = "mount")]
mod cli;
mod cursor;
mod error;
#[cfg(feature = "tree")]
mod export;
mod filter;
mod format;
#[cfg(feature = "mount")]
mod fuse;
mod hash;
#[cfg(feature = "internals")]
pub mod internals;
mod layout;
mod lock;
#[cfg(feature = "tree")]
mod names;
mod parallel;
#[cfg(feature = "tree")]
mod printable;
mod requester;
pub mod schema;
mod single_flight;
mod stats;
mod storage;
#[cfg(feature = "tree")]
mod tree;
mod view;

pub use array::Array;
pub use array::cells::Cells;
pub use array::column::Content;
pub use array::fragment::{Fragment, Outline};
pub use array::read_bytes::ReadBytes;
pub use array::source::{Source, SourceOptions};
pub use array::time::TimeRange;
#[cfg(feature = "mount")]
#[doc(hidden)]
pub use cli::main;
pub use error::{Error, ErrorKind, Result};
pub use filter::EncryptionKey;
pub use format::name::TimestampedName;
#[cfg(feature = "remote")]
pub use storage::remote::store::StoreOptions;
pub use view::{DimRange, Field, Role, Value, View, ViewBuilder};
