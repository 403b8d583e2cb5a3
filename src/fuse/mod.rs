//! The tree as a FUSE file system: inodes, replies, errno, kernel options. Knows nothing of TileDB.
