//! Parses *unfiltered* bytes into plain structs. The functions are pure: they know no files, filters,
//! threads, caches or FUSE.
//!
//! Parsers read the bytes from a [`Cursor`](crate::cursor::Cursor), a slice or, if there may be many, a
//! [`body::BodyCursor`], and check each length and count before use. Names stay bytes: the format does not
//! promise UTF-8.

pub mod body;
pub mod commits;
pub mod condition;
pub mod datatype;
pub mod enumeration;
pub mod enums;
pub mod field;
pub mod fragment;
pub mod group;
pub mod metadata;
pub mod name;
pub mod name_index;
pub mod pipeline;
pub mod predecessor;
pub mod range;
mod read;
pub mod scalar;
pub mod schema;
#[cfg(test)]
pub(crate) mod testing;

/// The newest format version that is supported. Newer ones are refused.
pub const MAX_VERSION: u32 = 23;
