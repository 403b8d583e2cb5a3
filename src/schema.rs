//! What an array's schema says: its dimensions and attributes, their types and filters.

pub use crate::format::datatype::{CellValNum, Datatype, Kind};
pub use crate::format::enumeration::Enumeration;
pub use crate::format::enums::{ArrayType, DataOrder, Layout, WebpFormat};
pub use crate::format::pipeline::{Codec, Filter, Pipeline};
pub use crate::format::range::{Range, Rect};
pub use crate::format::schema::{Attribute, Dimension, DimensionLabel, EnumerationRef, Schema};
