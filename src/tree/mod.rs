//! The virtual tree: nodes, names, exact sizes. FUSE and the command line are two thin skins over it.

pub mod errors;
pub mod json;
pub mod names;
pub mod node;
pub mod npy;
pub use errors::ErrorLog;
pub use node::{Directory, Entry, File, Freshness, Listing, Node, NodeType, OpenFile, Piece};

use crate::error::Result;
use crate::filter::EncryptionKey;
use crate::stats::Stats;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a source is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bound of the decoded-chunk cache, in bytes.
    pub cache_size: u64,
    /// Keys of encrypted arrays: the entry whose path (relative to the source, empty for all) is the longest that is the array or above it counts.
    pub keys: Vec<(PathBuf, EncryptionKey)>,
    /// Whether symbolic links that lead out of the source are followed.
    pub follow_symlinks: bool,
}

/// An opened source, ready to be looked at.
pub struct Tree {
    /// The directory that a mount shows.
    pub root: Node,
    /// The most recent errors.
    pub errors: Arc<ErrorLog>,
    /// The counters.
    pub stats: Arc<Stats>,
}

impl Tree {
    /// Opens an array, a group or a plain directory. Reads no more than it needs to tell which: `NotFound` when there is nothing, `InvalidInput` when
    /// it is not TileDB (a file, or a directory without any array or group at any depth), `UnsupportedVersion` for a single array of a version that is too new.
    pub fn open(source: &Path, options: &Options) -> Result<Tree> {
        let _ = (source, options);
        unimplemented!("tree")
    }
}
