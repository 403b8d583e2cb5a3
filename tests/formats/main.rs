//! What is read of arrays of each version, and how much work that is.

mod by_hand;
#[path = "../common/mod.rs"]
mod common;
mod corners;
mod scaled_floats;
mod versions;
mod work;
