//! The text files that say which fragments count: consolidated commits, ignore files and vacuum files.

use crate::error::Result;

/// One entry of a consolidated commit file (`.con`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidatedEntry {
    /// The commit's path relative to the array, e.g. `__commits/__1_1_<uuid>_22.wrt`.
    pub path: Vec<u8>,
    /// For a delete or update: where the copy of its file lies in the `.con` file, as offset and length.
    pub payload: Option<(u64, u64)>,
}

/// Parses a `.con` file, in which lines alternate with binary copies of delete files.
pub fn parse_consolidated(bytes: &[u8]) -> Result<Vec<ConsolidatedEntry>> {
    let _ = bytes;
    unimplemented!("format helper")
}

/// The lines of an `.ign` or `.vac` file, without line ends, empty ones left out.
pub fn parse_lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let _ = bytes;
    unimplemented!("format helper")
}

/// Reduces a path of a vacuum file (relative, with a leading slash, or an absolute URI of wherever the array once lay) to one relative to the array: from `__fragments` or `__meta` on, or else the last component.
pub fn normalise_path(path: &[u8]) -> Vec<u8> {
    let _ = path;
    unimplemented!("format helper")
}

/// One footer in a consolidated fragment metadata file (`.meta`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidatedFooter {
    /// Fragment directory name, or below version 9 an absolute URI.
    pub name: Vec<u8>,
    /// Offset of its footer in the unfiltered body.
    pub offset: u64,
}

/// Parses the index of a `.meta` file's unfiltered body.
pub fn parse_consolidated_metadata(body: &[u8]) -> Result<Vec<ConsolidatedFooter>> {
    let _ = body;
    unimplemented!("format helper")
}
