//! The JSON documents of the tree, one module each.
//!
//! Most are a function from decoded structs to a [`Json`], which [`render()`] writes out.
//! Documents that may be large are [`Parts`](crate::layout::segments::Parts), which write the same text item
//! by item. Objects have all their keys, in a fixed order: a missing value is null.

pub mod commits;
pub mod condition;
pub mod consolidated_metadata;
pub mod dataset;
pub mod document;
pub mod enumeration;
pub mod fields;
pub mod footer;
pub mod fragments;
pub mod group;
pub mod list;
pub mod metadata;
pub mod render;
pub mod rtree;
pub mod schema;
pub mod statistics;
pub mod text;
pub mod tiles;
pub mod value;
pub mod view;
pub use document::Json;
pub(crate) use document::object;
pub use render::{render, render_objects};
