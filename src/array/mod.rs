//! A source opened: its schemas and fragments, where a tile lies and how many cells it has, the cache of decoded chunks, and columns as
//! seekable sequences of bytes.
