//! Fragment metadata: the footer, the sections that it refers to, and the body of versions 1 and 2.
//!
//! Lists in fragment metadata are indexed by *slot*: attributes first, then one slot for zipped coordinates
//! (in all versions), then from version 5 dimensions and the optional internal fields. See [`Slots`].

pub mod boxes;
pub mod footer;
pub mod legacy;
pub mod sections;
pub mod slots;
pub use boxes::{Boxes, RTree, StoredBoxes};
pub use footer::{Footer, FooterFront};
pub use sections::{FragmentStatistics, MinMax};
pub use slots::Slots;
