//! Entries of directories, and directories with what a request asks of them.

use super::path::UrlPath;
use crate::error::Result;
use crate::tree::{Directory, DirectoryKind, ErrorLog, File, Listing, Node, NodeType, Stat, identity};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// A file or directory with its place in the tree.
#[derive(Clone)]
pub struct Entry {
    /// Its path below the root.
    pub path: UrlPath,
    /// The file or directory; never a link.
    pub node: Node,
}

impl Entry {
    /// Its name; empty for the root.
    pub fn name(&self) -> &OsStr {
        self.path.names.last().map_or(OsStr::new(""), |name| name)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.node.node_type() == NodeType::Directory
    }

    /// Modification time in milliseconds since the Unix epoch.
    pub fn mtime(&self) -> u64 {
        match &self.node {
            Node::Directory(directory) => directory.mtime(),
            Node::File(file) => file.mtime(),
            Node::Link(link) => link.mtime,
        }
    }

    /// Length and state of a file; None for a directory. May decode what decides the length.
    pub fn stat(&self) -> Result<Option<Stat>> {
        match &self.node {
            Node::File(file) => file.stat().map(Some),
            _ => Ok(None),
        }
    }

    /// The strong entity tag of a file in the state of `stat`, with its quotes; None for files that change
    /// continuously.
    pub fn etag(&self, stat: Stat) -> Option<String> {
        match &self.node {
            Node::File(file) => etag(&self.path, &**file, stat),
            _ => None,
        }
    }

    /// The media type of a file, by its name.
    pub fn content_type(&self) -> &'static str {
        media_type(self.name())
    }
}

/// The strong entity tag of `file` in the state of `stat`; None for files that change continuously.
pub fn etag(path: &UrlPath, file: &dyn File, stat: Stat) -> Option<String> {
    identity(file, stat, &path.encode(false)).map(|hash| format!("\"{hash:032x}\""))
}

/// The media type of a file of this name.
pub fn media_type(name: &OsStr) -> &'static str {
    let name = name.to_str().unwrap_or_default();
    let is_zarr = [".zarray", ".zattrs", ".zgroup", ".zmetadata"].contains(&name);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        _ if is_zarr => "application/json",
        Some("json") => "application/json",
        Some("csv") => "text/csv; charset=utf-8",
        Some("parquet") => "application/vnd.apache.parquet",
        Some("nc") => "application/x-netcdf",
        Some("h5ad") => "application/x-hdf5",
        Some("tif" | "tiff") => "image/tiff",
        Some("npy") => "application/x-npy",
        Some("jsonl") => "application/jsonl",
        _ => "application/octet-stream",
    }
}

/// A directory that a request asks for.
pub struct Asked {
    /// Its path below the root.
    pub path: UrlPath,
    /// The directory.
    pub directory: Arc<dyn Directory>,
    /// Its entries at one moment.
    pub listing: Arc<dyn Listing>,
    /// `--prefix`: empty, or `/PATH` without a slash at the end. URLs with an absolute path begin with it.
    pub prefix: String,
    /// Where errors are recorded of which a page only says that there are some.
    pub errors: Arc<ErrorLog>,
    /// Scheme and host of the request, as in `http://localhost:8470`.
    pub origin: String,
    /// The decoded parameters of the query, in their order.
    pub query: Vec<(String, String)>,
}

impl Asked {
    /// What the directory is.
    pub fn kind(&self) -> DirectoryKind {
        self.directory.kind()
    }

    /// The first parameter of this name in the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The path of its URL, with the prefix and a slash at the end.
    pub fn url_path(&self) -> String {
        format!("{}{}", self.prefix, self.path.encode(true))
    }
}

/// The path of `name` in the directory at `path`.
pub fn child(path: &UrlPath, name: OsString) -> UrlPath {
    let mut names = path.names.clone();
    names.push(name);
    UrlPath { names, slash: false }
}
