//! `at/`: an array at past times, or in ranges of time.

use super::array::{AT, ArrayDirectory};
use super::moment::Moment;
use super::node::{Directory, Entry, Listing, Node, NodeType};
use super::permissions::Origin;
use super::times;
use crate::error::Result;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// `at/`: any time can be looked up; the times of writes are listed.
pub struct AtDirectory {
    /// The directory of the array now.
    pub array: ArrayDirectory,
}

impl Directory for AtDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let parsed = match name.to_str() {
            Some(name) => times::parse(name),
            None => Err("the time is not UTF-8".to_owned()),
        };
        match parsed {
            Ok(times) => Ok(Some(Node::Directory(Arc::new(self.array.at(times))))),
            Err(reason) => {
                log::debug!("{} is not a time: {reason}", name.display());
                Ok(None)
            }
        }
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let instants = self.array.array().listing()?.instants();
        let entries: Vec<Entry> = instants
            .into_iter()
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
