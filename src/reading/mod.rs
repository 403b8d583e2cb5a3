//! The interface for programs that read arrays: choose a time, a part of the domain and fields (`select`),
//! then read numbers with their shape (`values`), cells as Rust values (`cells`), rows as Arrow's batches
//! (`arrow`), or `metadata`. A source is a local directory, an object store, or a storage of the program's
//! own (`storage`), and has groups (`group`).

#[cfg(feature = "arrow")]
mod arrow;
mod cells;
mod group;
mod metadata;
mod select;
mod storage;
#[cfg(all(test, feature = "arrow", feature = "ndarray"))]
mod tests;
mod values;

#[cfg(feature = "arrow")]
pub use arrow::Batches;
pub use cells::Cell;
pub use group::{Group, Member};
pub use metadata::{MetadataValue, ObjectMetadata};
pub use select::{Coordinate, ViewBuilder};
pub use storage::ReadStorage;
pub use values::{Value, Values};

mod sealed {
    /// Only this crate implements what extends it, so that methods may be added.
    #[allow(unnameable_types)]
    pub trait Sealed {}
}
