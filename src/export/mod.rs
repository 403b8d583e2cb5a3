//! Files that other programs open, made of the columns of a view while they are read.
//!
//! A format is a [`Layout`](crate::layout::Layout): parts of known length, which are found in metadata where that is possible at all. It knows neither
//! paths nor FUSE.

pub mod grid;

use crate::names;
use crate::view::{Role, View};

/// The names of the fields of a view as components of paths, in their order.
pub fn field_names(view: &View) -> Vec<String> {
    let encoded = view.fields().iter().map(|field| match field.role {
        Role::Attribute(_) => names::attribute(&field.name),
        Role::Dimension(i) => names::dimension(&field.name, i),
    });
    names::unique(encoded.collect(), names::MAX)
}
