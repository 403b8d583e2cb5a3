//! Runs the program as a process.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The program under test.
pub fn program() -> Command {
    with_signals(env!("CARGO_BIN_EXE_tiledbfs"))
}

/// A command that runs `program` with the default action for signals, as in a terminal. The test runner may
/// ignore some signals, and processes inherit that.
pub fn with_signals(program: &str) -> Command {
    let mut command = Command::new(program);
    let reset = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            // SAFETY: allowed between fork and exec; no handler is involved.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure only calls signal(2).
    unsafe { command.pre_exec(reset) };
    command
}

/// Sends a signal to a process that the test has started.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: a system call without pointers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}
