//! The tree as a FUSE file system: inodes, replies, errno, kernel options. Knows nothing of TileDB.
//!
//! [`FileSystem`] answers the kernel's requests from a [`Tree`](crate::tree::Tree); [`mount()`] attaches one
//! to a directory and serves it from threads of this process until it is unmounted, from inside or outside.
//!
//! What the kernel may keep follows from a node's [`Freshness`](crate::tree::Freshness):
//!
//! | | entries and attributes | pages |
//! |---|---|---|
//! | `Immutable` | a day | kept from one open to the next |
//! | `Listing` | 300 ms | kept while the opened version is the one that they were read from |
//! | `Live` | not at all | not at all: each open file reads its own state |
//!
//! Where others than the user who mounts are let in (`allow_other`), the mode of a node follows the
//! [permissions](crate::tree::Permissions) of what it comes from, and attributes are kept for 300 ms at the
//! most, so that a change there is seen within a second. Without, nobody asks for permissions.
//!
//! An entry's lifetime is that of the directory which names it, so a fragment that is removed from a listing
//! disappears in time, though all that is in it is immutable.

mod attributes;
mod filesystem;
mod guard;
mod handles;
mod inodes;
#[cfg(test)]
mod model;
mod mount;
pub mod mountinfo;
mod requests;

pub use attributes::Access;
pub use filesystem::FileSystem;
pub(crate) use guard::message as panic_message;
pub use mount::{MountOptions, Mounted, SUBTYPE, is_dead, mount, unmount_path};
