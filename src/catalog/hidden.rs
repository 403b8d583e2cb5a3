//! Reasons why fragments are not seen.

use std::fmt;

/// Why a reader does not see a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hidden {
    /// An ignore file takes its commit out of the consolidated commit files.
    Ignored,
    /// Nothing commits it.
    Uncommitted {
        /// The commit file that is missing.
        marker: String,
        /// A consolidated commit file that may contain the commit but cannot be read.
        damaged: Option<String>,
    },
    /// A vacuum file lists it.
    Vacuumed {
        /// The fragment that replaced it.
        by: String,
    },
    /// It was written later than the range of time, or ended later.
    Future((u64, u64)),
    /// It was written before the range of time, or began before it.
    Past((u64, u64)),
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hidden::Ignored => {
                f.write_str("ignored: an ignore file takes its commit out of the consolidated commits")
            }
            Hidden::Uncommitted {
                marker,
                damaged: None,
            } => write!(f, "uncommitted: there is no {marker}"),
            Hidden::Uncommitted {
                marker,
                damaged: Some(damaged),
            } => write!(
                f,
                "uncommitted: there is no {marker}, and {damaged}, which may stand for it, cannot be read"
            ),
            Hidden::Vacuumed { by } => write!(f, "vacuumed: replaced by {by}"),
            Hidden::Future((start, end)) => {
                write!(f, "in the future: its timestamps are {start} to {end}")
            }
            Hidden::Past((start, end)) => {
                write!(f, "in the past: its timestamps are {start} to {end}")
            }
        }
    }
}
