//! Where the directories of the source lie in the tree.

use super::context::Context;
use super::node::Node;
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a directory lies in the tree: below which others, so that cycles of groups or links do not make an
/// endless tree.
#[derive(Clone)]
pub struct Position {
    /// What all nodes share.
    pub context: Arc<Context>,
    /// Makes the node of a directory that lies here.
    make: MakeNode,
    /// The storage's identities of the directories from the root on.
    identities: Arc<Vec<u64>>,
    /// How many steps did not lead to a subdirectory.
    jumps: usize,
    /// The last two groups, if each led to the next directory by a member, and the names of these.
    groups: [Option<Arc<Step>>; 2],
}

/// Makes the node of the source directory at a path that lies at a position; None if it is not shown there.
pub type MakeNode = fn(&Path, &Position) -> Result<Option<Node>>;

/// A member by which a group leads to a directory.
pub struct Step {
    /// The group's directory.
    pub group: PathBuf,
    /// The member's name.
    pub name: Vec<u8>,
}

/// The limit of such steps. Through group members elsewhere and symbolic links, the number of paths to one
/// directory can grow exponentially.
const MAX_JUMPS: usize = 3;

impl Position {
    /// The root of a tree whose nodes `make` makes.
    pub fn root(context: Arc<Context>, make: MakeNode) -> Position {
        Position {
            context,
            make,
            identities: Arc::default(),
            jumps: 0,
            groups: [None, None],
        }
    }

    /// The node of the source directory at `path`; None if it is one of those above, or an array that was
    /// written later than the time shown.
    pub fn node(&self, path: &Path) -> Result<Option<Node>> {
        (self.make)(path, self)
    }

    /// [`Self::node`] of a directory in that of the position; None too if it is a symbolic link after too
    /// many jumps.
    pub fn child(&self, path: &Path) -> Result<Option<Node>> {
        if !self.context.engine.storage.is_link(path) {
            return self.node(path);
        }
        match self.jump() {
            Some(above) => above.node(path),
            None => Ok(None),
        }
    }

    /// Adds a directory; None if it is already among them.
    pub fn with(&self, identity: u64) -> Option<Position> {
        if self.identities.contains(&identity) {
            return None;
        }
        let mut all = (*self.identities).clone();
        all.push(identity);
        Some(Position {
            identities: Arc::new(all),
            ..self.clone()
        })
    }

    /// Adds the step by a member of a group.
    #[must_use]
    pub fn through(self, group: &Path, name: &[u8]) -> Position {
        let [_, before] = self.groups;
        let step = Step {
            group: group.to_path_buf(),
            name: name.to_vec(),
        };
        Position {
            groups: [before, Some(Arc::new(step))],
            ..self
        }
    }

    /// Forgets through which groups a path went, for a directory that is no member.
    #[must_use]
    pub fn elsewhere(self) -> Position {
        Position {
            groups: [None, None],
            ..self
        }
    }

    /// The last two steps by members of groups; None if the last two steps were others.
    pub fn steps(&self) -> Option<[&Step; 2]> {
        match &self.groups {
            [Some(first), Some(second)] => Some([first, second]),
            _ => None,
        }
    }

    /// Counts a step to a directory elsewhere, or to a duplicate member; None after [`MAX_JUMPS`].
    pub fn jump(&self) -> Option<Position> {
        (self.jumps < MAX_JUMPS).then(|| Position {
            jumps: self.jumps + 1,
            ..self.clone()
        })
    }
}
