//! A source opened: its schemas and fragments, where a tile lies and how many cells it has, the cache of
//! decoded chunks, and columns as seekable sequences of bytes.

pub mod body;
pub mod cache;
pub mod cell_slice;
pub mod cells;
pub mod column;
pub mod condition;
pub mod deletes;
pub mod engine;
pub mod field;
pub mod fragment;
pub mod fragment_info;
pub mod geometry;
pub(crate) mod grid;
pub mod group;
pub mod held;
pub(crate) mod hilbert;
pub mod listing;
pub mod open;
pub mod order;
pub mod part;
pub mod piece;
mod reopened;
pub mod repeated_footers;
pub mod schemas;
pub mod sequence;
pub mod snapshot;
pub mod source;
pub mod tails;
pub mod tile_boxes;
pub mod tile_list;
pub mod time;
pub mod watched;
pub mod work;
pub(crate) mod written_order;
pub use open::Array;
pub use piece::Piece;
