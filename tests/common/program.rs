//! The program as a process.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs the program with signals as a terminal leaves them: whoever runs the tests may have some ignored, which processes inherit.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiledbfs"));
    let reset = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            // SAFETY: allowed between fork and exec; no handler is involved.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: it calls nothing but signal(2).
    unsafe { command.pre_exec(reset) };
    command
}
