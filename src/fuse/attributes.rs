//! Attributes of nodes, and how long the kernel may cache them.

use crate::tree::{Freshness, NodeType, Permissions};
use fuser::{FileAttr, FileType, INodeNo};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The preferred size of reads that `stat` and `statfs` tell, in bytes.
pub(super) const BLOCK_SIZE: u32 = 4096;

/// Who may use a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Only the user who mounted it.
    #[default]
    Owner,
    /// Also root (`allow_root`).
    OwnerAndRoot,
    /// Everybody (`allow_other`).
    All,
}

/// How long the kernel may cache the attributes of a node, or the entries of a directory.
pub(super) fn ttl(freshness: Freshness) -> Duration {
    match freshness {
        Freshness::Immutable => Duration::from_secs(24 * 60 * 60),
        // Changes must be seen within one second, and the view of the source may itself lag behind a little.
        Freshness::Listing => Duration::from_millis(300),
        Freshness::Live => Duration::ZERO,
    }
}

/// Group and permission bits of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) gid: u32,
    pub(super) bits: u16,
}

impl Mode {
    /// The mode of a node of type `kind`. Grants access to everybody whom the kernel lets in. With
    /// [`Access::All`], only to those whom `permissions`, those of the source, grant it, and to `owner`.
    pub(super) fn of(
        kind: NodeType,
        permissions: impl FnOnce() -> Permissions,
        access: Access,
        owner: Owner,
    ) -> Self {
        let gid = owner.gid;
        let (read, search) = match kind {
            NodeType::Directory => (0o4, 0o1),
            NodeType::File => (0o4, 0),
            // Linux ignores the mode of a link.
            NodeType::Link => return Mode { gid, bits: 0o777 },
        };
        let all: u16 = read | search;
        match access {
            Access::Owner => Mode {
                gid,
                bits: all * 0o111,
            },
            // The kernel cannot let in only root besides the owner. It lets in everybody, and the mode bits
            // keep out all others but root.
            Access::OwnerAndRoot => Mode { gid, bits: all << 6 },
            Access::All => {
                let permissions = permissions();
                let open = &permissions.open;
                let list = &permissions.list;
                let gid = open.group().or(list.group()).unwrap_or(gid);
                let class = |opens: bool, lists: bool| match (opens, lists) {
                    (false, _) => 0,
                    (true, false) => search,
                    (true, true) => all,
                };
                let group = class(open.has_group(gid, owner.uid), list.has_group(gid, owner.uid));
                let others = class(open.has_others(gid, owner.uid), list.has_others(gid, owner.uid));
                Mode {
                    gid,
                    bits: all << 6 | group << 3 | others,
                }
            }
        }
    }
}

/// The owner of all nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// What `stat` returns for a node, except its inode number and owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) kind: NodeType,
    /// Bytes; 0 for directories.
    pub(super) size: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) mtime: u64,
    /// How long the kernel may cache them.
    pub(super) ttl: Duration,
    pub(super) mode: Mode,
}

impl Attributes {
    /// Converts to FUSE's attributes. All times are the modification time.
    pub(super) fn to_fuse(self, number: u64, owner: Owner) -> FileAttr {
        let time = time(self.mtime);
        FileAttr {
            ino: INodeNo(number),
            size: self.size,
            blocks: self.size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: file_type(self.kind),
            perm: self.mode.bits,
            // Of a directory, 1 says that the number is unknown: walkers take 2 for one without
            // subdirectories.
            nlink: 1,
            uid: owner.uid,
            gid: self.mode.gid,
            rdev: 0,
            // The buffer size of stdio. Small, so that reading a few bytes decodes only one chunk.
            blksize: BLOCK_SIZE,
            flags: 0,
        }
    }
}

/// The attributes of a negative entry in the reply to a lookup.
pub(super) fn absent() -> FileAttr {
    let nothing = Attributes {
        kind: NodeType::File,
        size: 0,
        mtime: 0,
        ttl: Duration::ZERO,
        mode: Mode { gid: 0, bits: 0 },
    };
    nothing.to_fuse(0, Owner { uid: 0, gid: 0 })
}

/// Converts a node type.
pub(super) fn file_type(kind: NodeType) -> FileType {
    match kind {
        NodeType::Directory => FileType::Directory,
        NodeType::File => FileType::RegularFile,
        NodeType::Link => FileType::Symlink,
    }
}

fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(milliseconds))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::RECHECK_AFTER;

    /// That is how long the kernel keeps the size of a document, after the listing and the file behind it,
    /// each of which is looked at again.
    #[test]
    fn changes_are_seen_within_a_second() {
        let longest = ttl(Freshness::Listing) + 2 * RECHECK_AFTER;
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }
}
