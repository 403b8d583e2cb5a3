//! What several arrays make together: the data set of a group, the AnnData of a measurement.
//!
//! It is of one time. Arrays are listed one after the other, so that what is found of them may be a state
//! that they never had together: see [`JoinedSource::look_again`].

use crate::catalog::Array;
use crate::catalog::group::OpenGroup;
use crate::catalog::source::GROUP_DIRECTORY;
use crate::catalog::time::When;
use crate::error::Result;
use crate::query::selection::Selection;
use std::sync::{Arc, OnceLock};

/// An array, with what was found of it.
pub struct SourceArray {
    /// The array.
    pub array: Arc<Array>,
    /// Found once, so that all that is derived from a source is of the same state.
    selection: OnceLock<Result<Selection>>,
}

impl SourceArray {
    /// The array. Reads nothing.
    pub fn new(array: Arc<Array>) -> SourceArray {
        SourceArray {
            array,
            selection: OnceLock::new(),
        }
    }

    /// What it has.
    pub(super) fn selection(&self) -> Result<&Selection> {
        let select = || Selection::new(self.array.clone(), When::Now);
        self.selection.get_or_init(select).as_ref().map_err(Clone::clone)
    }

    /// The newest of the times of its commits and changes, in milliseconds since the Unix epoch; None if what
    /// it has cannot be found.
    pub(super) fn mtime(&self) -> Option<u64> {
        Some(self.selection().ok()?.changed())
    }
}

/// The arrays and groups that something is made of, as they were found.
pub trait JoinedSource {
    /// A hash of the state of all of them.
    ///
    /// # Errors
    ///
    /// If that cannot be found.
    fn state(&self) -> Result<u64>;

    /// All arrays.
    fn arrays(&self) -> Vec<&SourceArray>;

    /// All groups.
    fn groups(&self) -> Vec<&Arc<OpenGroup>>;

    /// Whether names were exchanged below one of them.
    fn is_stale(&self) -> bool {
        self.groups().iter().any(|group| group.engine().is_stale())
            || self.arrays().iter().any(|source| source.array.engine.is_stale())
    }

    /// The newest of the times of commits and changes of arrays, and of changes of groups, in milliseconds
    /// since the Unix epoch.
    fn mtime(&self) -> u64 {
        let arrays = self.arrays().into_iter().filter_map(SourceArray::mtime);
        let groups = self.groups().into_iter();
        let groups = groups.map(|group| group.changed(&["", GROUP_DIRECTORY, "__meta"]));
        arrays.chain(groups).max().unwrap_or(0)
    }

    /// Has all of them looked at again by what finds them next. If it finds them in the same state, they
    /// had this state at one time: each still had it after all were found in it. In object stores, where
    /// listings last, each that is older than the newest change of any of them is made again.
    fn look_again(&self) {
        /// How much later a change may be than its time says, in milliseconds: stores tell seconds, by
        /// another clock.
        const UNCERTAINTY: u64 = 2000;
        let arrays = self.arrays();
        let changed = arrays.iter().filter_map(|source| source.selection().ok());
        let changed = changed.map(|selection| selection.snapshot().listing.changed);
        let since = changed.max().unwrap_or(0).saturating_add(UNCERTAINTY);
        self.groups()
            .iter()
            .for_each(|group| group.look_again_since(since));
        arrays
            .iter()
            .for_each(|source| source.array.look_again_since(since));
    }
}

/// What a source makes.
pub trait Joined: Sized {
    /// What it is made of.
    type Source: JoinedSource;

    /// What `source` makes in `state`, which is [`JoinedSource::state`]. Reads only metadata as far as
    /// possible.
    ///
    /// # Errors
    ///
    /// If what it needs cannot be read.
    fn new(source: Self::Source, state: u64) -> Result<Self>;

    /// What it is made of.
    fn source(&self) -> &Self::Source;

    /// Tells its states apart.
    fn state(&self) -> u64;

    /// Whether it is made again from the same state: something could not be read, which the state does not
    /// tell.
    fn is_makeshift(&self) -> bool {
        false
    }
}
