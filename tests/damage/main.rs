//! Damaged files, and inputs found by fuzzing: they may cause an error, but nothing worse.

mod check;
#[path = "../common/mod.rs"]
mod common;
mod mutants_in_memory;
mod mutate;
mod regressions;
#[path = "../../fuzz/src/lib.rs"]
#[allow(dead_code)]
mod targets;
