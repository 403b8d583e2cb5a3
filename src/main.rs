//! The `tiledbfs` program.

fn main() {}
