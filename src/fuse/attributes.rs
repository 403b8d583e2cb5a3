//! Attributes of nodes and how long the kernel may keep them.

use crate::tree::{Freshness, NodeType};
use fuser::{FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may believe what it knows of a node, or of the names in a directory.
pub(super) fn ttl(freshness: Freshness) -> Duration {
    match freshness {
        Freshness::Immutable => Duration::from_secs(24 * 60 * 60),
        // A change must be seen within one second, and looking at the source may itself lag behind a little.
        Freshness::Listing => Duration::from_millis(300),
        Freshness::Live => Duration::ZERO,
    }
}

/// The owner of all nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// What `stat` says of a node, but for its number and owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) kind: NodeType,
    /// Bytes; 0 for directories.
    pub(super) size: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) mtime: u64,
    /// How long they may be kept.
    pub(super) ttl: Duration,
}

impl Attributes {
    /// As FUSE wants them: files 0444, directories 0555, all times the modification time.
    pub(super) fn to_fuse(self, number: u64, owner: Owner) -> FileAttr {
        let time = time(self.mtime);
        let (kind, perm, nlink) = match self.kind {
            NodeType::Directory => (FileType::Directory, 0o555, 2),
            NodeType::File => (FileType::RegularFile, 0o444, 1),
        };
        FileAttr {
            ino: INodeNo(number),
            size: self.size,
            blocks: self.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink,
            uid: owner.uid,
            gid: owner.gid,
            rdev: 0,
            // What stdio reads at once: small, so that reading a few bytes decodes one chunk; the kernel reads ahead by itself.
            blksize: 4096,
            flags: 0,
        }
    }
}

/// The attributes that say "no such name" in the answer to a lookup.
pub(super) fn absent() -> FileAttr {
    let nothing = Attributes {
        kind: NodeType::File,
        size: 0,
        mtime: 0,
        ttl: Duration::ZERO,
    };
    nothing.to_fuse(0, Owner { uid: 0, gid: 0 })
}

/// FUSE's name of a node type.
pub(super) fn file_type(kind: NodeType) -> FileType {
    match kind {
        NodeType::Directory => FileType::Directory,
        NodeType::File => FileType::RegularFile,
    }
}

fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(milliseconds))
        .unwrap_or(UNIX_EPOCH)
}
