//! The program as its users run it: commands, options, exit codes, signals, memory.

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod life;
mod memory;
mod messages;
mod mount;
