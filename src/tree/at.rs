//! `at/`: an array at past times, or in ranges of time.
//!
//! `at/latest` is a symbolic link to the newest time up to now: `readlink -f` of a path through it pins one
//! state, for programs that open many files one after another.

use super::array::{AT, ArrayDirectory};
use super::moment::Moment;
use super::node::{Directory, Entry, Link, Listing, Node, NodeType};
use super::permissions::Origin;
use super::times;
use crate::array::time::now;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The link in `at/` to the newest time.
const LATEST: &str = "latest";

/// `at/`: any time can be looked up; the times of writes are listed.
pub struct AtDirectory {
    /// The directory of the array now.
    pub array: ArrayDirectory,
}

impl AtDirectory {
    /// The link to the newest stamp that is not in the future. Before the first stamp an array is as at time
    /// 0: empty, with its first schema.
    fn latest(&self) -> Result<Node> {
        let instants = self.array.array().listing()?.instants();
        let now = now();
        let newest = instants
            .into_iter()
            .filter(|instant| *instant <= now)
            .fold(0, u64::max);
        Ok(Node::Link(Arc::new(Link {
            target: OsString::from(times::name(newest)),
            mtime: newest,
        })))
    }
}

impl Directory for AtDirectory {
    /// `NotFound`, with the reason, if `name` is not a time.
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == LATEST {
            return self.latest().map(Some);
        }
        let times = name.to_str().ok_or_else(|| "the time is not UTF-8".to_owned());
        let times = times.and_then(times::parse).map_err(Error::not_found)?;
        Ok(Some(Node::Directory(Arc::new(self.array.at(times)))))
    }

    /// Leaves out the times at which what was consolidated later has been vacuumed.
    fn list(&self) -> Result<Arc<dyn Listing>> {
        let snapshot = self.array.array().snapshot(None)?;
        let emptied: Vec<(u64, u64)> = snapshot
            .emptied()
            .iter()
            .map(|entry| entry.fragment.name.timestamps)
            .collect();
        let entries: Vec<Entry> = snapshot
            .listing
            .instants()
            .into_iter()
            .filter(|instant| {
                !emptied
                    .iter()
                    .any(|(start, end)| start <= instant && instant < end)
            })
            .map(|instant| (OsString::from(times::name(instant)), NodeType::Directory))
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        self.array.mtime()
    }

    fn origin(&self) -> Origin {
        let array = self.array.array().clone();
        Origin::InArray(Moment { array, times: None }, AT)
    }
}
