//! The virtual tree: nodes, names, exact sizes. FUSE, HTTP and the command line are thin layers over it.
//!
//! | module | |
//! |---|---|
//! | `node` | what a file, a directory and a link are: the traits that all others implement |
//! | `root` | a source opened as a tree, and `.tiledbfs` (`errors`) |
//! | `context`, `position`, `object` | what nodes share; the place and the node of a directory of the source |
//! | `array`, `group`, `shown_group` | the directories of an array and of a group |
//! | `array_at`, `view_source`, `view` | an array at a time; `data/` and `subarray/` |
//! | `times`, `ranges` | names in `at/` and in `subarray/` |
//! | `fragment`, `column` | `fragments/` and their columns |
//! | `commits`, `consolidated_metadata` | documents of an array |
//! | `metadata` | the metadata of an array or group |
//! | `export`, `raster`, `zarr` | exports of a view |
//! | `dataset`, `anndata`, `pyramid`, `joined_cache` | exports that are made of several arrays |
//! | `directory`, `document` | directories of names, and files of text, of any content |
//! | `permissions` | who may see a node |
//! | `stored` | the files as they are stored, for `serve --stored` |

mod anndata;
mod array;
mod array_at;
mod column;
mod commits;
mod consolidated_metadata;
mod context;
mod dataset;
mod directory;
mod document;
pub mod errors;
mod export;
mod fragment;
mod group;
mod joined_cache;
#[cfg(any(test, feature = "internals"))]
pub mod memory;
mod metadata;
pub mod node;
mod object;
mod permissions;
mod position;
mod pyramid;
pub mod ranges;
mod raster;
mod root;
mod shown_group;
#[cfg(feature = "serve")]
mod stored;
pub mod times;
mod view;
mod view_source;
mod zarr;

use std::time::{Duration, Instant};

/// How long the node that a path led to is used without following the path again. Changes must be seen within
/// one second.
pub const FRESH: Duration = Duration::from_millis(300);

/// Since when a node counts as known that was found just now below one known since `above`. What takes long
/// to find is not old at once, or it would be looked up again and again.
pub fn known_since(above: Instant) -> Instant {
    let now = Instant::now();
    now.checked_sub(FRESH / 2).map_or(now, |least| above.max(least))
}

pub use errors::ErrorLog;
#[cfg(feature = "mount")]
pub use node::identity;
pub use node::{
    Directory, DirectoryKind, ExtendedAttributes, File, Freshness, Listing, Node, NodeType, Stat, follow,
};
pub use permissions::Permissions;
pub use root::{OWN_DIRECTORY, Tree, TreeOptions, is_object, is_object_in};
pub use shown_group::ShownGroup;
#[cfg(feature = "serve")]
pub use stored::stored;
pub use view_source::Viewed;
