//! WebDAV, read-only: PROPFIND.
