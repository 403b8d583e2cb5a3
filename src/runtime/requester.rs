//! The requester: the thread that this one works for, as a rule of another process, and whether it still
//! waits.

use crate::error::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a waiting thread checks whether it still should.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

thread_local! {
    static REQUESTER: Cell<u32> = const { Cell::new(0) };
}

/// The thread id of the requester: the thread, of another process as a rule, that this one works for; 0 if
/// unknown.
pub fn requester() -> u32 {
    REQUESTER.get()
}

/// Works for the thread `requester`.
pub fn on_behalf_of<T>(requester: u32, work: impl FnOnce() -> T) -> T {
    let before = REQUESTER.replace(requester);
    let result = work();
    REQUESTER.set(before);
    result
}

/// The signals of `masks`, lines of what the system says of a thread, as bits from 0 on; None where it says
/// nothing.
fn signals(status: &str, mask: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(mask))?;
    u64::from_str_radix(line.strip_prefix(':')?.trim(), 16).ok()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether a thread has been killed, and only waits for an answer before it ends. The kernel lets it wait and
/// does not tell us, so its pending signals are read from /proc.
pub fn is_killed(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
        return true;
    };
    signals(&status, "SigPnd").is_some_and(|pending| pending & bit(libc::SIGKILL) != 0)
}

/// Whether a thread has a signal to handle as soon as it has its answer, or has been killed.
pub fn is_interrupted(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
        return true;
    };
    let of = |mask| signals(&status, mask).unwrap_or(0);
    // These only stop and continue it, which is no reason to give up.
    let stops = [
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCONT,
    ];
    let stops = stops.into_iter().map(bit).fold(0, |all, signal| all | signal);
    (of("SigPnd") | of("ShdPnd")) & !of("SigBlk") & !of("SigIgn") & !stops != 0
}

/// Waits until `done` is notified, or for a moment. `Abandoned`, with the lock released, if the requester has
/// a signal to handle.
pub fn wait_on<'m, T>(done: &Condvar, locked: MutexGuard<'m, T>) -> Result<MutexGuard<'m, T>> {
    let waited = done.wait_timeout(locked, CHECK_INTERVAL);
    let (locked, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    match waited.timed_out() && is_interrupted(requester()) {
        true => Err(abandoned()),
        false => Ok(locked),
    }
}

/// Does `work` in a new thread and waits for it. `Abandoned` if the requester has a signal to handle; the
/// work then goes on, and its result is dropped.
pub fn on_another_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, answer) = channel();
    thread::spawn(move || sender.send(work()));
    loop {
        match answer.recv_timeout(CHECK_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if is_interrupted(requester()) => return Err(abandoned()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("a thread panicked; this is a bug"));
            }
        }
    }
}

/// What whoever gave up gets.
pub fn abandoned() -> Error {
    Error::new(
        ErrorKind::Abandoned,
        "stopped, because nobody waits for the result any more",
    )
}

/// Whether `error` means that another requester gave up, not this thread's: then the work is tried again.
pub fn is_of_others(error: &Error) -> bool {
    error.kind() == ErrorKind::Abandoned && !is_interrupted(requester())
}
