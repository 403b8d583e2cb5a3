//! The tree over HTTP: requests, answers, connections. Knows nothing of TileDB.
//!
//! What is asked for is found and made by synchronous code in a pool of threads. What goes over the network is the
//! business of an asynchronous runtime of its own, to which an answer is an iterator of pieces ([`Pieces`]): the
//! next one is made while the one before it is sent, so that a client who does not read holds no thread.

pub mod entry;
pub mod page;
pub mod path;
pub mod webdav;

use crate::error::Result;

/// The bytes of an answer, in pieces of moderate size. An error cuts the connection.
pub type Pieces = Box<dyn Iterator<Item = Result<::bytes::Bytes>> + Send>;
