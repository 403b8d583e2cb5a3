//! Damaged files, and inputs that fuzzing found: an error at the most.

mod check;
#[path = "../common/mod.rs"]
mod common;
mod mutants;
mod mutants_in_memory;
mod mutate;
mod regressions;
#[path = "../../fuzz/src/lib.rs"]
#[allow(dead_code)]
mod targets;
