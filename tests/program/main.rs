//! The program as its users run it: mounts, options, exit codes, signals, memory. Most need root.

#[path = "../common/mod.rs"]
mod common;
mod life;
mod lost;
mod memory;
mod messages;
mod mount;
