//! The tree over HTTP: requests, answers, connections. Knows nothing of TileDB.
//!
//! What is asked for is found and made by synchronous code in a pool of threads. What goes over the network
//! is the business of an asynchronous runtime of its own, to which an answer is an iterator of pieces
//! ([`Pieces`]): the next ones are made while one is sent, so that a client who does not read
//! holds no thread.
//!
//! | module | |
//! |---|---|
//! | `listen`, `socket`, `framing`, `frames` | sockets; bounds of a connection, of HTTP/1 and HTTP/2 |
//! | `server` | a connection from its beginning to its end |
//! | `access`, `peer`, `cors` | who may ask |
//! | `path`, `nodes`, `entry` | what is asked for |
//! | `headers`, `conditions`, `range` | how much of it |
//! | `answer`, `body`, `pool` | the answer, its pieces, and the threads that make them |
//! | `page`, `json`, `webdav` | directories, in three forms |
//! | `log` | the log of requests |

mod access;
mod answer;
mod body;
mod conditions;
mod cors;
pub mod entry;
pub mod frames;
pub mod framing;
mod headers;
mod json;
mod listen;
mod log;
mod nodes;
pub mod page;
pub mod path;
mod peer;
mod pool;
pub mod range;
mod server;
mod socket;
pub mod webdav;

pub use access::{Hosts, without_port};
pub use answer::Site;
pub use cors::Cors;
pub use listen::{Address, Listener};
pub use log::AccessLog;
pub use nodes::Nodes;
pub use pool::Pool;
pub use server::{Server, Settings};

use crate::error::Result;

/// The bytes of an answer, in pieces of moderate size. An error cuts the connection.
pub type Pieces = Box<dyn Iterator<Item = Result<::bytes::Bytes>> + Send>;
