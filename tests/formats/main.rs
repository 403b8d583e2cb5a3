//! Reads arrays of every format version, and counts the work that reading takes.

mod by_hand;
#[path = "../common/mod.rs"]
mod common;
mod corners;
mod scaled_floats;
mod versions;
mod work;
