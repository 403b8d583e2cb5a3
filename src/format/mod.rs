//! How *unfiltered* bytes become plain structs. Pure functions over slices: nothing here knows files,
//! filters' algorithms, threads, caches or FUSE.
//!
//! Every parser takes the bytes as a [`Cursor`](crate::cursor::Cursor), a slice or, where they may be many, a
//! [`body::Body`], and checks each length and count before it uses it. Names are kept as the bytes that were
//! stored: the format does not promise that they are UTF-8.

pub mod body;
pub mod commits;
pub mod condition;
pub mod datatype;
pub mod enumeration;
pub mod enums;
pub mod fragment;
pub mod group;
pub mod metadata;
pub mod name;
pub mod pipeline;
pub mod predecessor;
pub mod range;
mod read;
pub mod schema;
#[cfg(test)]
pub(crate) mod testing;

/// The newest format version that is supported. Newer ones are refused.
pub const MAX_VERSION: u32 = 23;
