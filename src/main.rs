//! The `tiledbfs` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    tiledbfs::main()
}
