//! `at/`: an array at past times, in ranges of time, or in states that have a name.
//!
//! `at/latest` is a symbolic link to the state of now by its pin: `readlink -f` of a path through it pins one
//! state, for programs that open many files one after another, and on several machines.

use super::array::{AT, ArrayDirectory};
use super::moment::Moment;
use super::node::{Directory, Entry, Link, Listing, Node, NodeType};
use super::permissions::Origin;
use super::times::{self, Asked};
use crate::calendar::{now, timestamp};
use crate::catalog::time::When;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// The link in `at/` to the state of now.
const LATEST: &str = "latest";

/// `at/`: any time and any pin can be looked up; the times of writes are listed.
pub struct AtDirectory {
    /// The directory of the array now.
    pub array: ArrayDirectory,
}

impl AtDirectory {
    /// The link to the state of now. Fails if it is unknown which fragments that has.
    fn latest(&self) -> Result<Node> {
        let array = self.array.array();
        let snapshot = array.snapshot(None)?;
        snapshot.check_complete(now())?;
        let pin = array.pin(&snapshot)?;
        Ok(Node::Link(Arc::new(Link {
            target: OsString::from(pin.to_string()),
            mtime: pin.time,
        })))
    }
}

impl Directory for AtDirectory {
    /// `NotFound`, with the reason, if `name` is neither a time nor a pin; `Io(ESTALE)` if it is the pin of a
    /// state that is not there.
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == LATEST {
            return self.latest().map(Some);
        }
        let name = name.to_str().ok_or_else(|| "the time is not UTF-8".to_owned());
        let array = match name.and_then(times::parse_name).map_err(Error::not_found)? {
            Asked::Within(times) => self.array.at(When::Within(times)),
            Asked::Pin(pin) => self.array.pinned(pin)?,
        };
        Ok(Some(Node::Directory(Arc::new(array))))
    }

    /// Leaves out the times at which what was consolidated later has been vacuumed.
    fn list(&self) -> Result<Arc<dyn Listing>> {
        let snapshot = self.array.array().snapshot(None)?;
        let emptied = snapshot.emptied().into_iter();
        let mut emptied: Vec<(u64, u64)> = emptied.map(|entry| entry.fragment.name.timestamps).collect();
        emptied.sort_unstable();
        // In ascending order of instants: the end of what has begun.
        let (mut emptied, mut end) = (emptied.into_iter().peekable(), 0);
        let mut instants = snapshot.listing.instants();
        instants.retain(|instant| {
            while let Some((_, other)) = emptied.next_if(|(start, _)| start <= instant) {
                end = end.max(other);
            }
            *instant >= end
        });
        let instants = instants.into_iter();
        let entry = |instant| (OsString::from(timestamp(instant)), NodeType::Directory);
        Ok(Arc::new(instants.map(entry).collect::<Vec<Entry>>()))
    }

    fn mtime(&self) -> u64 {
        self.array.mtime()
    }

    fn origin(&self) -> Origin {
        let array = self.array.array().clone();
        let when = When::Now;
        Origin::InArray(Moment { array, when }, AT)
    }
}
