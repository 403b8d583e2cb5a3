//! Reads [TileDB](https://tiledb.com) arrays from a disk or an object store, without libtiledb.
//!
//! # From an array to its values
//!
//! An [`Array`] is opened by itself or as a part of a [`Source`]. [`Array::at`] selects a time, a part of the
//! domain and fields: a [`ViewBuilder`]. The result is a [`View`], in which the array's fragments are merged
//! and its deletes carried out, as in TileDB. Making one is cheap; data is decoded when it is read, and kept
//! in a cache of bounded size.
//!
//! ```
//! use tiledbfs::{Array, TimeRange};
//!
//! let array = Array::open("tests/data/sample/weather")?;
//! let all = array.at(TimeRange::ALL).open()?;
//! assert_eq!(all.shape()?, [365, 6]);
//!
//! // Days 32 to 59 at all stations, row by row.
//! let february = array.at(TimeRange::ALL).range("day", 32..=59).open()?;
//! let temperatures: Vec<f32> = february.read("temperature", 0..february.count()?)?;
//! assert_eq!(temperatures.len(), 28 * 6);
//!
//! // As it was at the end of 2024.
//! let before = array.at(TimeRange::until(1_735_689_599_999)).open()?;
//! assert_eq!(before.count()?, 0);
//! # Ok::<(), tiledbfs::Error>(())
//! ```
//!
//! Cells of a dense view are in row-major order, those of a sparse view in the array's global order. What
//! reads them:
//!
//! | | gives |
//! |---|---|
//! | [`View::read`], [`View::read_into`] | numbers of a run of cells, or into a buffer of the caller |
//! | [`View::values`] | all numbers of a field, with their shape |
//! | `View::ndarray` | the same as an array of `ndarray` (feature `ndarray`) |
//! | [`View::read_cells`] | a Rust value for each cell: numbers, lists, `String`, and an `Option` of these |
//! | [`View::read_enumerated`] | the values of an enumeration that indexes stand for |
//! | `Batches` | several fields, as Arrow's record batches (feature `arrow`) |
//! | [`View::cells`] | the bytes: values, the start of var-sized cells, validity |
//!
//! # What lies around them
//!
//! [`View::schema`] describes dimensions and attributes ([`schema`]), [`View::metadata`] has the key-value
//! pairs of the array, and [`View::fragments`] what each write stored, in the order on disk:
//!
//! ```
//! use tiledbfs::{Array, TimeRange};
//!
//! let all = Array::open("tests/data/sample/weather")?.at(TimeRange::ALL).open()?;
//! let fragments = all.fragments();
//! assert_eq!(fragments.len(), 2);
//! assert_eq!(fragments[1].outline()?.cells, 438);
//!
//! // Cells of a length of their own: where each begins, and the bytes of all.
//! let (starts, text) = fragments[1].field("note")?.var_values(0..6)?;
//! assert_eq!(starts.last(), Some(&(text.len() as u64)));
//! # Ok::<(), tiledbfs::Error>(())
//! ```
//!
//! [`Source::group`] lists the members of a group. A source is a local directory, a prefix in an object store
//! (feature `remote`), or a [`ReadStorage`] that a program brings along.
//!
//! # Errors
//!
//! There is one [`Error`] type, which names the file, the part of the format and the byte where it knows
//! them. Its [`ErrorKind`] tells damage from what does not exist, and from what makes no sense to ask.
//! Nothing that was read from a file makes the crate panic.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `remote` (default) | sources in object stores: S3, Google Cloud Storage, Azure, WebDAV |
//! | `mount` (default) | the program `tiledbfs`: a file system, and a command line |
//! | `serve` (default) | the program's tree over HTTP, to browsers and other machines |
//! | `ndarray` | values as arrays of `ndarray` |
//! | `arrow` | rows as Arrow's record batches, of its release 59 or 60: that of your other crates |
//! | `tree` | the half of the program that needs no FUSE; a part of `mount` |
//! | `internals` | opens the modules to the crate's own tests; what is in them changes at any time |
//!
//! `docs/architecture.md` describes how it works.
#![warn(missing_docs)]
#![cfg_attr(
    not(feature = "internals"),
    warn(unnameable_types, clippy::missing_errors_doc, clippy::missing_panics_doc)
)]
#![deny(unsafe_op_in_unsafe_fn)]
// Types that are not exported have `is_empty` only where it is called.
#![allow(clippy::len_without_is_empty)]
// Unused code is reported with all features on. With fewer, some modules are used only in part.
#![cfg_attr(
    not(all(feature = "mount", feature = "remote", feature = "serve")),
    allow(dead_code, unused_imports)
)]

mod bytes;
mod calendar;
mod catalog;
#[cfg(feature = "tree")]
mod check;
#[cfg(feature = "mount")]
mod cli;
mod cursor;
#[cfg(feature = "tree")]
mod describe;
mod engine;
mod error;
#[cfg(feature = "tree")]
mod export;
mod filter;
mod format;
mod fragment;
#[cfg(feature = "mount")]
mod fuse;
#[cfg(feature = "internals")]
pub mod internals;
#[cfg(test)]
mod layers;
mod layout;
#[cfg(feature = "tree")]
mod names;
mod printable;
mod query;
mod reading;
mod runtime;
#[cfg(feature = "serve")]
mod serve;
mod storage;
#[cfg(feature = "tree")]
mod tree;

pub use bytes::{Keep, Output};
pub use catalog::Array;
pub use catalog::source::{ObjectKind, Source, SourceOptions};
pub use catalog::time::TimeRange;
#[cfg(feature = "mount")]
#[doc(hidden)]
pub use cli::main;
pub use error::{Error, ErrorKind, Result};
pub use filter::EncryptionKey;
pub use format::name::TimestampedName;
pub use fragment::cells::Cells;
pub use fragment::column::Content;
pub use fragment::{Fragment, Outline};
pub use query::{DimRange, Field, Role, View};
#[cfg(feature = "arrow")]
pub use reading::Batches;
pub use reading::{
    Cell, Coordinate, Group, Member, MetadataValue, ObjectMetadata, ReadStorage, Value, Values, ViewBuilder,
};
pub use storage::EntryType;
#[cfg(feature = "remote")]
pub use storage::remote::store::StoreOptions;

pub mod schema {
    //! What an array's schema says: its dimensions and attributes, their types and filters.

    pub use crate::format::datatype::{CellValNum, Datatype, Kind};
    pub use crate::format::enumeration::Enumeration;
    pub use crate::format::enums::{ArrayType, DataOrder, Layout, WebpFormat};
    pub use crate::format::pipeline::{Codec, Filter, Pipeline};
    pub use crate::format::range::{Range, Rect};
    pub use crate::format::schema::{Attribute, Dimension, DimensionLabel, EnumerationRef, Schema};
}
