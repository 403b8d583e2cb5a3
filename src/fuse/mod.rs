//! The tree as a FUSE file system: inodes, replies, errno, kernel options. Knows nothing of TileDB.
//!
//! [`FileSystem`] answers the kernel's requests from a [`Tree`](crate::tree::Tree). [`mount()`] mounts one on
//! a directory and serves it with threads of this process until it is unmounted, by this or another process.
//!
//! What the kernel may cache depends on a node's [`Freshness`](crate::tree::Freshness):
//!
//! | | entries and attributes | pages |
//! |---|---|---|
//! | `Immutable` | a day | kept between opens |
//! | `Listing` | 300 ms | kept while the version stays the same |
//! | `Live` | not cached | not cached: each open file has its own state |
//!
//! With `allow_other`, the mode of a node follows the [permissions](crate::tree::Permissions) of its sources,
//! and names and attributes are cached for at most 300 ms, so that changes are seen within a second. Each
//! request of another user is checked besides, against the files that it is answered from; and an inode is of
//! one generation of these files ([`Engine::generation`](crate::engine::Engine::generation)), so that its
//! pages are as well.
//!
//! How long an entry is cached depends on the directory that contains it, so a removed fragment disappears in
//! time, although everything in it is immutable.
//!
//! | module | |
//! |---|---|
//! | `mount` | mounting and unmounting |
//! | `requests`, `guard` | replies to the kernel, and what becomes of an error or a panic |
//! | `filesystem` | what a request does |
//! | `inodes`, `handles` | what the kernel knows, and what is open |
//! | `attributes` | attributes, and for how long they may be kept |

mod attributes;
mod filesystem;
mod guard;
mod handles;
mod inodes;
#[cfg(test)]
mod model;
mod mount;
mod requests;

pub use attributes::Access;
pub use filesystem::FileSystem;
pub use mount::{MountOptions, Mounted, SUBTYPE, is_dead, mount, serve_descriptor, unmount_path};
