//! Tests of mounts through the kernel. Most need root.

mod allow_other;
mod cache;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod guards;
mod model;
mod mount;
mod mutants;
#[path = "../damage/mutate/mod.rs"]
mod mutate;
mod names;
mod operations;
mod permissions;
mod read;
mod source_changes;
mod source_faults;
#[path = "../common/walk.rs"]
#[allow(dead_code)]
mod walk;
